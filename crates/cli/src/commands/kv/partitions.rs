//! `amcast kv partitions`, `split` and `merge`.

use super::{StoreAddress, StoreClient, strange};
use amcast::client::Answer;
use amcast_lab::commands::Failure;
use serde_json::{Value, json};
use std::time::Duration;

/// How often it is looked whether keys still move.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub(super) struct SplitArgs {
    /// The shard that holds the keys
    #[arg(long)]
    shard: u8,
    /// The first key that moves; the first slot where partitions are of slots
    #[arg(long, value_name = "KEY|SLOT")]
    at: String,
    /// The shard that the keys move to
    #[arg(long)]
    to: u8,
    /// Do not wait until they have moved
    #[arg(long)]
    no_wait: bool,
}

impl SplitArgs {
    pub(super) fn run(&self, store: &mut StoreClient) -> Result<(), Failure> {
        let (shard, to) = (self.shard.to_string(), self.to.to_string());
        begin(store, &["AMCAST.SPLIT", &shard, &self.at, &to], self.no_wait)
    }
}

#[derive(clap::Args)]
pub(super) struct MergeArgs {
    /// The shard whose keys move: it will hold none
    #[arg(long)]
    shard: u8,
    /// The shard that they move to
    #[arg(long)]
    to: u8,
    /// Do not wait until they have moved
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    gateway: StoreAddress,
}

impl MergeArgs {
    pub(super) fn gateway(&self) -> Option<&String> {
        self.gateway.at.as_ref()
    }

    pub(super) fn run(&self, store: &mut StoreClient) -> Result<(), Failure> {
        let (shard, to) = (self.shard.to_string(), self.to.to_string());
        begin(store, &["AMCAST.MERGE", &shard, &to], self.no_wait)
    }
}

/// Has keys move, and waits until they have.
fn begin(store: &mut StoreClient, words: &[&str], no_wait: bool) -> Result<(), Failure> {
    let answer = store.call(words)?;
    let Answer::Number(epoch) = answer else { return Err(strange(&answer)) };
    while !no_wait && PartitionTable::ask(store)?.epoch <= epoch {
        std::thread::sleep(LOOK_EVERY);
    }
    show(store)
}

/// One partition, as a gateway tells it.
struct PartitionRow {
    start: String,
    end: Option<String>,
    shard: i64,
    moves_to: Option<i64>,
}

/// The map of partitions.
struct PartitionTable {
    epoch: i64,
    /// `slots` or `keys`.
    order: String,
    partitions: Vec<PartitionRow>,
}

impl PartitionTable {
    fn ask(store: &mut StoreClient) -> Result<Self, Failure> {
        let answer = store.call(&["AMCAST.PARTITIONS"])?;
        Self::read(&answer).ok_or_else(|| strange(&answer))
    }

    fn read(answer: &Answer) -> Option<Self> {
        let Answer::Array(parts) = answer else { return None };
        let [Answer::Number(epoch), order, Answer::Array(rows)] = &**parts else { return None };
        let partitions = rows.iter().map(PartitionRow::read).collect::<Option<_>>()?;
        Some(Self { epoch: *epoch, order: order.to_string(), partitions })
    }
}

impl PartitionRow {
    fn read(row: &Answer) -> Option<Self> {
        let Answer::Array(row) = row else { return None };
        let [start, end, Answer::Number(shard), to] = &**row else { return None };
        let number = |answer: &Answer| match answer {
            Answer::Number(n) => Some(*n),
            _ => None,
        };
        let end = (*end != Answer::Null).then(|| end.to_string());
        let start = start.to_string();
        let shard = *shard;
        let moves_to = number(to);
        Some(Self { start, end, shard, moves_to })
    }

    /// In a line, for people.
    fn line(&self, by_slot: bool) -> String {
        let Self { start, end, shard, moves_to } = self;
        let range = match (by_slot, end) {
            (true, Some(end)) => {
                let last = end.parse::<u32>().map_or(0, |end| end.saturating_sub(1));
                format!("{start} to {last}")
            }
            (true, None) => format!("{start} to 16383"),
            (false, Some(end)) => format!("from {start:?}, before {end:?}"),
            (false, None) => format!("from {start:?} on"),
        };
        match moves_to {
            Some(to) => format!("{range}: shard {shard}, moving to shard {to}"),
            None => format!("{range}: shard {shard}"),
        }
    }
}

/// Shows which shards hold which keys.
pub(super) fn show(store: &mut StoreClient) -> Result<(), Failure> {
    let PartitionTable { epoch, order, partitions } = PartitionTable::ask(store)?;
    let text = || {
        let rows = partitions.iter().map(|p| p.line(order == "slots"));
        let head = format!("{order}, epoch {epoch}");
        std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\n")
    };
    let row = |p: &PartitionRow| json!({ "start": p.start, "end": p.end, "shard": p.shard, "moves_to": p.moves_to });
    let json = || {
        let rows: Value = partitions.iter().map(row).collect();
        json!({ "epoch": epoch, "order": order, "partitions": rows })
    };
    store.show(text, json);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_told_to_people() {
        let text = |t: &str| Answer::Bytes(t.into());
        let row = |start, end, shard, to| {
            Answer::Array(vec![text(start), end, Answer::Number(shard), to])
        };
        let rows = vec![
            row("0", text("8192"), 0, Answer::Null),
            row("8192", Answer::Null, 1, Answer::Number(2)),
        ];
        let answer = Answer::Array(vec![Answer::Number(7), text("slots"), Answer::Array(rows)]);
        let map = PartitionTable::read(&answer).expect("a map");
        let told: Vec<_> = map.partitions.iter().map(|p| p.line(true)).collect();
        assert_eq!(told, ["0 to 8191: shard 0", "8192 to 16383: shard 1, moving to shard 2"]);
        assert_eq!(map.partitions[0].line(false), "from \"0\", before \"8192\": shard 0");
        assert_eq!((map.epoch, &*map.order), (7, "slots"));
        assert!(PartitionTable::read(&Answer::Array(vec![Answer::Null])).is_none());
    }
}
