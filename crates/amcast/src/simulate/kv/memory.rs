//! Runs with a memory budget: the calls that fill shards and make room in them, and what may be refused for lack of memory.
//!
//! Which command meets a full shard is not modelled. That all replicas refuse the same is seen in their states, and that a
//! refused command changes nothing, and an acknowledged one does, in the answers to reads.

use super::super::{ApartCall, Call, SeenCalls};
use super::KvWorkload;
use amcast_check::{Counterexample, PropertyVerdict};
use amcast_core::Time;
use amcast_core::rng::Rng;
use amcast_node::service::calls::NO_MEMORY;

/// One run of so many has a budget from the beginning.
const RUNS: u64 = 4;

/// Budgets of a shard, in bytes: a key takes about 200 bytes and its value, and a shard has a few keys.
const SHARD_BYTES: [u64; 5] = [450, 700, 1_000, 1_500, 2_500];

/// Bytes of values: in some of these shards there is room for several of the larger ones, in others for none.
const VALUE_BYTES: [usize; 4] = [10, 60, 250, 700];

/// A budget that no run reaches.
const AMPLE_BYTES: u64 = 1 << 30;

const MAXMEMORY: &str = "AMCAST.MAXMEMORY";

/// The first budget of a run over so many shards; 0 for none.
pub(super) fn draw(shards: usize, rng: &mut Rng) -> u64 {
    if rng.below(RUNS) > 0 { 0 } else { small(shards, rng) }
}

fn small(shards: usize, rng: &mut Rng) -> u64 {
    shards as u64 * SHARD_BYTES[rng.below(SHARD_BYTES.len() as u64) as usize]
}

impl KvWorkload {
    /// A call of a run with a budget.
    pub(super) fn memory_call(
        &self,
        (one, other): (&str, &str),
        value: &str,
        rng: &mut Rng,
    ) -> Call {
        let bytes = VALUE_BYTES[rng.below(VALUE_BYTES.len() as u64) as usize];
        let large = value.repeat(bytes.div_ceil(value.len()));
        match rng.below(12) {
            0 => self.budget_call(rng),
            1..=3 => self.call(&["DEL", one, other]),
            4 => self.call(&["SET", one, &large]),
            5 => self.call(&["APPEND", one, &large]),
            6 => self.call(&["MSET", one, &large, other, "s"]),
            7 => self.call(&["EXEC", "0", "2", "2", "DEL", one, "3", "SET", other, &large]),
            8 => self.batch(&[&["SET", one, "s"], &["APPEND", one, "a"], &["APPEND", one, &large]]),
            // In one message: what a batch takes that comes in parts is not known before it is whole.
            _ if self.batches_over_shards => {
                self.batch(&[&["MSET", one, "s", other, "s"], &["MSET", other, "m", one, "m"]])
            }
            _ => self.batch(&[&["SET", one, "s"], &["APPEND", one, "a"], &["APPEND", one, "b"]]),
        }
    }

    /// Another budget, which may be larger, smaller or none.
    fn budget_call(&self, rng: &mut Rng) -> Call {
        let bytes = match rng.below(8) {
            0 | 1 => 0,
            2 => AMPLE_BYTES,
            _ => small(self.map.shards(), rng),
        };
        let bytes = bytes.to_string();
        match rng.below(2) {
            0 => self.apart(&[MAXMEMORY, &bytes]),
            _ => self.apart(&["EXEC", "0", "1", "2", MAXMEMORY, &bytes]),
        }
    }

    /// Lifts the budget and writes to several shards.
    pub(super) fn closing_calls(&self) -> Vec<Call> {
        let keys: Vec<String> = self.closing_keys().collect();
        let pairs = keys.iter().flat_map(|key| [&**key, "1"]);
        let args: Vec<&str> = std::iter::once("MSET").chain(pairs).collect();
        vec![self.apart(&[MAXMEMORY, "0"]), self.call(&args)]
    }

    /// The keys that are written when there is no budget any more.
    pub(super) fn closing_keys(&self) -> impl Iterator<Item = String> {
        (0..3).map(|number| self.key('w', number))
    }
}

/// A budget that came into force, in a run or at its begin.
struct BudgetChange {
    bytes: u64,
    called: Time,
    returned: Option<Time>,
}

impl BudgetChange {
    fn of(call: &ApartCall) -> Option<Self> {
        let mut words = call.op.split(' ').skip_while(|word| *word != MAXMEMORY);
        let bytes = words.nth(1)?.parse().ok()?;
        let is_refused = call.returned.as_ref().is_some_and(|(_, out)| out.starts_with("ERR"));
        let returned = call.returned.as_ref().map(|(at, _)| *at);
        (!is_refused).then_some(Self { bytes, called: call.called, returned })
    }

    /// Whether it may refuse anything.
    const fn is_bound(&self) -> bool {
        self.bytes > 0 && self.bytes < AMPLE_BYTES
    }

    fn ended_before(&self, at: Time) -> bool {
        self.returned.is_some_and(|returned| returned < at)
    }
}

/// Judges what was refused for lack of memory.
pub(super) fn judge(seen: &SeenCalls<'_>) -> PropertyVerdict {
    let first =
        BudgetChange { bytes: seen.maxmemory, called: Time::ZERO, returned: Some(Time::ZERO) };
    let changes = seen.apart.iter().filter_map(BudgetChange::of);
    let changes: Vec<BudgetChange> = std::iter::once(first).chain(changes).collect();
    let wrong = seen.no_memory.iter().find_map(|call| {
        let (at, out) = call.returned.as_ref()?;
        let why = match call {
            _ if !may_refuse(&call.op, out) => "it takes no memory",
            _ if !is_bounded(&changes, (call.called, *at)) => "no budget was in force",
            _ => return None,
        };
        Some(format!("{} is answered {out} at {} ns, though {why}", call.op, at.0))
    });
    wrong.map_or(PropertyVerdict::Holds, |sentence| {
        PropertyVerdict::Violated(Counterexample { sentence, events: Vec::new() })
    })
}

/// Whether all commands may grow that were refused, or one of those that were refused together.
fn may_refuse(op: &str, out: &str) -> bool {
    let grows = |command: &str| {
        matches!(command.split(' ').next(), Some("SET" | "MSET" | "INCR" | "APPEND"))
    };
    let Some(commands) = op.strip_prefix("MULTI; ") else { return grows(op) };
    if out == NO_MEMORY {
        return commands.split("; ").any(grows);
    }
    let refused = commands.split("; ").zip(out.split("; ")).filter(|(_, out)| *out == NO_MEMORY);
    refused.into_iter().all(|(command, _)| grows(command))
}

/// Whether a budget may have been in force at some time between these.
fn is_bounded(changes: &[BudgetChange], (called, returned): (Time, Time)) -> bool {
    let is_over = |change: &BudgetChange| {
        let mut later = changes.iter().filter(|later| change.ended_before(later.called));
        later.any(|later| later.ended_before(called))
    };
    let mut bounds = changes.iter().filter(|change| change.is_bound() && change.called < returned);
    bounds.any(|change| !is_over(change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::ReadLevel;
    use amcast_check::History;

    /// A call between these times.
    fn call(op: &str, (called, returned): (u64, u64), out: &str) -> ApartCall {
        let returned = Some((Time(returned), out.to_string()));
        ApartCall { op: op.to_string(), called: Time(called), returned }
    }

    fn holds(maxmemory: u64, changes: &[ApartCall], refused: ApartCall) -> bool {
        let (history, no_memory) = (History::new(), [refused]);
        let level = ReadLevel::Ordered;
        let seen = SeenCalls {
            history: &history,
            apart: changes,
            no_memory: &no_memory,
            level,
            maxmemory,
        };
        judge(&seen) == PropertyVerdict::Holds
    }

    #[test]
    fn only_what_may_grow_is_refused() {
        for (op, out, is_right) in [
            ("SET k v", "ERR OOM", true),
            ("GET k", "ERR OOM", false),
            ("DEL k", "ERR OOM", false),
            ("MULTI; DEL k; SET k v", "ERR OOM", true),
            ("MULTI; DEL k; GET k", "ERR OOM", false),
            ("MULTI; SET k v; APPEND k v", "OK; ERR OOM", true),
            ("MULTI; DEL k; SET k v", "ERR OOM; OK", false),
            ("SET e v PX 20000", "ERR OOM", true),
        ] {
            assert_eq!(holds(1_000, &[], call(op, (1, 2), out)), is_right, "{op}: {out}");
        }
    }

    #[test]
    fn only_a_budget_that_may_be_in_force_refuses() {
        let lifted = |times| call("AMCAST.MAXMEMORY 0", times, "");
        let ample = |times| call("AMCAST.MAXMEMORY 1073741824", times, "");
        let bound = |times| call("EXEC 0 1 2 AMCAST.MAXMEMORY 900", times, "OK");
        let refused = || call("SET k v", (10, 20), NO_MEMORY);
        assert!(!holds(0, &[], refused()), "no budget at all");
        assert!(
            holds(1_000, &[lifted((8, 12))], refused()),
            "perhaps before the budget was lifted"
        );
        assert!(!holds(1_000, &[lifted((8, 9))], refused()), "behind that");
        assert!(
            !holds(1_000, &[ample((8, 9))], refused()),
            "behind a budget that is never reached"
        );
        assert!(holds(0, &[bound((15, 30))], refused()), "perhaps behind the budget");
        assert!(!holds(0, &[bound((20, 30))], refused()), "surely before it");
        assert!(!holds(0, &[bound((2, 3)), lifted((4, 5))], refused()));
        assert!(holds(0, &[lifted((2, 4)), bound((3, 5))], refused()), "at the same time");
        let unknown = ApartCall { returned: None, ..bound((2, 3)) };
        assert!(holds(0, &[unknown, lifted((4, 5))], refused()), "it may come at any time");
        let unmade = call("AMCAST.MAXMEMORY 900", (2, 3), "ERR");
        assert!(!holds(0, &[unmade], refused()), "it was not made");
    }
}
