//! Invariants of keys that expire: an expired key does not reappear, and no key expires much too
//! early, even if the clocks of fewer than half of the nodes and of any gateways are wrong.

use super::super::time::MILLISECOND;
use super::super::{ApartCall, ReadLevel, SeenCalls};
use amcast_check::{Counterexample, PropertyVerdict};
use amcast_core::Time;
use amcast_smr::AHEAD_MAX_MS;

/// By how much a key may expire early, in milliseconds: as far as a stamp counts beyond the agreed time, and as long as
/// that may be behind when the key is written. Nodes report their clocks every two seconds, and later under faults.
const EARLY_MAX_MS: u64 = AHEAD_MAX_MS + 5_000;

/// A write of a value that no other write has.
struct UniqueWrite<'a> {
    key: &'a str,
    value: &'a str,
    ttl_ms: u64,
    called: Time,
    returned: Option<Time>,
}

/// A read that returned.
struct ReturnedRead<'a> {
    key: &'a str,
    /// The value; `nil` if there was none.
    saw: &'a str,
    called: Time,
    returned: Time,
}

fn write(call: &ApartCall) -> Option<UniqueWrite<'_>> {
    let words: Vec<&str> = call.op.split(' ').collect();
    let &["SET", key, value, "PX", ttl] = &words[..] else { return None };
    let is_refused = call.returned.as_ref().is_some_and(|(_, out)| out.starts_with("ERR"));
    let returned = call.returned.as_ref().map(|(at, _)| *at);
    let write =
        UniqueWrite { key, value, ttl_ms: ttl.parse().ok()?, called: call.called, returned };
    (!is_refused).then_some(write)
}

fn look(call: &ApartCall) -> Option<ReturnedRead<'_>> {
    let key = call.op.strip_prefix("GET ")?;
    let (returned, saw) = call.returned.as_ref().filter(|(_, out)| !out.starts_with("ERR"))?;
    Some(ReturnedRead { key, saw, called: call.called, returned: *returned })
}

/// Judges the calls on keys that expire.
pub(super) fn judge(seen: &SeenCalls<'_>) -> PropertyVerdict {
    let writes: Vec<UniqueWrite<'_>> = seen.apart.iter().filter_map(write).collect();
    let looks: Vec<ReturnedRead<'_>> = seen.apart.iter().filter_map(look).collect();
    let wrong = |sentence: String| {
        PropertyVerdict::Violated(Counterexample { sentence, events: Vec::new() })
    };
    for look in looks.iter().filter(|look| look.saw != "nil") {
        let write = writes.iter().find(|w| w.key == look.key && w.value == look.saw);
        let Some(write) = write.filter(|w| w.called <= look.returned) else {
            return wrong(format!(
                "{} is read as {}, which nobody had written",
                look.key, look.saw
            ));
        };
        let gone = looks.iter().find(|other| {
            let is_written = write.returned.is_some_and(|returned| returned < other.called);
            let is_gone = other.key == look.key && other.saw != look.saw && is_written;
            is_gone && other.returned < look.called
        });
        // Reads that may be old may see what others see no more.
        if let Some(other) = gone.filter(|_| seen.level != ReadLevel::Sequential) {
            return wrong(format!(
                "{} is read as {} until {} ns, and then, from {} ns on, as {} again, which was written once",
                look.key, other.saw, other.returned.0, look.called.0, look.saw
            ));
        }
    }
    let early = looks.iter().filter(|look| look.saw == "nil").find_map(|look| {
        let mine = || writes.iter().filter(|w| w.key == look.key && w.called <= look.returned);
        let is_before =
            |w: &UniqueWrite<'_>, at: Time| w.returned.is_some_and(|returned| returned < at);
        let is_over = |w: &UniqueWrite<'_>| {
            mine().any(|later| is_before(w, later.called) && is_before(later, look.called))
        };
        let left_ms = |w: &UniqueWrite<'_>| {
            let passed_ms = look.returned.since(w.called).0 / MILLISECOND.0;
            w.ttl_ms.saturating_sub(passed_ms)
        };
        let was_there = mine().any(|w| is_before(w, look.called));
        let least = mine().filter(|w| !is_over(w)).map(left_ms).min()?;
        (was_there && least > EARLY_MAX_MS).then_some((look, least))
    });
    match early.filter(|_| seen.level != ReadLevel::Sequential) {
        Some((look, left_ms)) => wrong(format!(
            "{} is gone at {} ns, {left_ms} ms before it expires by a right clock",
            look.key, look.returned.0
        )),
        None => PropertyVerdict::Holds,
    }
}
