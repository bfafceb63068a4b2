//! A display on every node that shows words as soon as the node has them, before their order is decided, and takes back
//! those that it showed in another order.
//!
//! `cargo run --release --example early` starts three nodes, has some writers append words for two seconds, and
//! prints how many words each display showed early, by how much, and how many it took back. With the name of a
//! protocol behind it that one is used; `amcast protocols` names those with early deliveries.

use amcast::core::{Capability, Gid, GroupSet, MsgId, Outcome};
use amcast::node::config::ClusterFile;
use amcast::node::supervisor::NodeCommand;
use amcast::protocols::catalog;
use amcast::replicate::{self, Cluster};
use amcast::smr::{EarlyCommand, EarlyMachine, KeyUse, Shard, ShardView, StateMachine};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const WRITERS: u32 = 4;
const WRITING: Duration = Duration::from_secs(2);

/// How many words there are: all that the replicated state keeps.
#[derive(Debug, Default)]
struct WordCount(u64);

impl Shard for WordCount {
    fn items(&self) -> usize {
        1
    }

    fn save(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.0.to_le_bytes());
    }

    fn load(from: &[u8]) -> Option<Self> {
        from.try_into().ok().map(|count| Self(u64::from_le_bytes(count)))
    }
}

/// The replicated state machine: it executes words in their final order alone.
#[derive(Debug, Default)]
struct Words;

impl StateMachine for Words {
    type Shard = WordCount;

    fn touches(&self, _: &[u8], _: GroupSet, _: &mut dyn FnMut(Gid, &[u8], KeyUse)) -> bool {
        false
    }

    fn apply(
        &self,
        _: &[u8],
        shards: &mut [ShardView<'_, WordCount>],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        for shard in shards {
            shard.data.0 += 1;
            answer.extend_from_slice(&shard.data.0.to_le_bytes());
        }
        Outcome::Executed
    }
}

/// A word on the display whose place may change.
struct ShownWord {
    msg: MsgId,
    word: String,
    at: Instant,
}

/// The display of one node. It writes what became of the words to a file when the node ends.
struct WordDisplay {
    file: PathBuf,
    shown: Vec<ShownWord>,
    /// In the final order.
    confirmed: Vec<String>,
    taken_back: u64,
    early: Duration,
}

impl EarlyMachine for WordDisplay {
    fn execute(&mut self, command: &EarlyCommand<'_>) {
        let word = String::from_utf8_lossy(command.command).into_owned();
        self.shown.push(ShownWord { msg: command.msg, word, at: Instant::now() });
    }

    fn undo(&mut self, msg: MsgId) {
        let last = self.shown.pop().expect("it was shown");
        assert_eq!(last.msg, msg, "the last one is undone first");
        self.taken_back += 1;
    }

    fn confirm(&mut self, msg: MsgId) {
        let first = self.shown.remove(0);
        assert_eq!(first.msg, msg, "the first one is confirmed");
        self.early += first.at.elapsed();
        self.confirmed.push(first.word);
    }

    fn lost_its_place(&mut self) {
        self.confirmed.push("(a gap)".to_string());
    }
}

impl Drop for WordDisplay {
    fn drop(&mut self) {
        let mean_us = self.early.as_micros() / self.confirmed.len().max(1) as u128;
        let head = format!("{} {mean_us}", self.taken_back);
        let text = [&[head], &self.confirmed[..]].concat().join("\n");
        if let Err(e) = std::fs::write(&self.file, text) {
            eprintln!("{}: {e}", self.file.display());
        }
    }
}

fn node(dir: &str, config: &str, name: &str) -> Result<(), Box<dyn Error>> {
    let display = WordDisplay {
        file: Path::new(dir).join(name),
        shown: Vec::new(),
        confirmed: Vec::new(),
        taken_back: 0,
        early: Duration::ZERO,
    };
    Ok(replicate::node_with_early::<Words>(Path::new(config), name, Box::new(display))?)
}

/// Appends words until the time is over.
fn write(cluster: &Cluster, writer: u32) -> Result<(), String> {
    let (mut session, begun) = (cluster.session(), Instant::now());
    for n in 0.. {
        if begun.elapsed() > WRITING {
            break;
        }
        let word = format!("{writer}:{n}");
        session.call(GroupSet::one(Gid(0)), word.as_bytes()).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut protocol = "bb-rcast-urcast".to_string();
    match &std::env::args().collect::<Vec<_>>()[..] {
        // Started by the supervisor below.
        [_, dir, config, name] => return node(dir, config, name),
        [_, named] => protocol.clone_from(named),
        _ => {}
    }
    let entry = catalog::find(&protocol).ok_or("no protocol has this name")?;
    entry.require(Capability::EarlyDelivery).map_err(|missing| missing.to_string())?;
    let file = ClusterFile { protocol, shards: 1, ..ClusterFile::default() };
    let dir = std::env::temp_dir().join(format!("amcast-early-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let args = vec![dir.clone().into_os_string()];
    let cluster =
        Cluster::start(&file, None, NodeCommand { program: std::env::current_exe()?, args })?;
    let nodes: Vec<String> = (0..cluster.lives().len()).map(|rank| format!("n{rank}")).collect();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| (writer, &cluster))
            .map(|(writer, cluster)| scope.spawn(move || write(cluster, writer)))
            .collect();
        writers.into_iter().try_for_each(|w| w.join().expect("writers do not panic"))
    })?;
    drop(cluster);
    let mut orders = Vec::new();
    for name in &nodes {
        let text = std::fs::read_to_string(dir.join(name))?;
        let (head, words) = text.split_once('\n').ok_or("a display showed nothing")?;
        let (taken_back, mean_us) = head.split_once(' ').ok_or("a display wrote nonsense")?;
        let count = words.lines().count();
        println!(
            "{name}: {count} words, {mean_us} us early in the mean, {taken_back} taken back and shown again"
        );
        orders.push(words.to_string());
    }
    std::fs::remove_dir_all(&dir)?;
    let least = orders.iter().map(|words| words.lines().count()).min().unwrap_or(0);
    let first = |words: &String| words.lines().take(least).map(str::to_string).collect::<Vec<_>>();
    assert!(orders.windows(2).all(|pair| first(&pair[0]) == first(&pair[1])), "orders differ");
    println!("all displays confirmed the same order of {least} words");
    Ok(())
}
