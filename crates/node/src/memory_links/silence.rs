//! How long another node has answered nothing, and the consequences.
//!
//! A process that is stopped, or a host that is paused, answers no access, while its system takes what is sent to it. So its connection
//! stays, for a while. Protocols wait for the outcomes meanwhile: a leader of TRAM writes over no line of its log that was posted
//! and not answered, and its group orders nothing more once the log is full. Therefore a node is
//!
//! 1. *silent* once it has neither answered its oldest access nor sent anything else for as long as a connection may be silent, and for
//!    as long as the slowest network takes for that access. Accesses to it are `Lost` then, though they stay on
//!    their way: a majority continues, and the node misses nothing if it continues as well.
//! 2. *stalled* once it has not answered that access for [`STALLED_AFTER`], even if it sends something else. Its connection is ended.
//!
//! This node may have been stopped itself. When it looks at the others again, it may not have read the answers that came
//! meanwhile. So a time in which it did not look says nothing of the others.

use super::PUBLISH_EVERY;
use amcast_core::Span;
use amcast_memory::remote::SentAccess;
use std::time::{Duration, Instant};

/// A node that answers none of the accesses that its system took for so long does not run, and its connection is ended: what is on
/// the way to it is lost then, and nobody waits for it. A system takes megabytes for a process that is stopped.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(3);

/// Bytes per second on the slowest network between two hosts: 7 Mbit/s. It carries a ring of the default length within
/// [`STALLED_AFTER`]. A node that gets one over such a network has nothing to answer meanwhile.
const SLOWEST_BYTES_PER_S: u32 = 7_000_000 / 8;

/// Time between two looks counts as the others' silence up to here. A thread that runs looks more often.
const LOOK_GAP_MAX: Duration = PUBLISH_EVERY.saturating_mul(4);

/// The state of another node, by what it answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeAnswers {
    /// It answers, is asked nothing, or has time left.
    InTime,
    /// See the [module](self).
    Silent,
    /// See the [module](self).
    Stalled,
}

/// The oldest access to a node that was sent and is not answered.
#[derive(Clone, Copy, Debug)]
struct AwaitedAnswer {
    number: u64,
    /// Since when it is the oldest.
    since: Instant,
    /// How many frames the node has sent, and since when there are no more.
    frames: u64,
    silent_since: Instant,
}

/// The silence of each other node.
#[derive(Debug)]
pub(super) struct NodeSilences {
    /// After how long a node is silent.
    after: Duration,
    /// By node.
    of: Vec<Option<AwaitedAnswer>>,
    /// When all nodes were looked at last.
    pub(super) looked: Option<Instant>,
}

impl NodeSilences {
    /// For so many nodes, which are silent `after` that time.
    pub(super) fn new(nodes: usize, after: Span) -> Self {
        Self { after: Duration::from_nanos(after.0), of: vec![None; nodes], looked: None }
    }

    /// Begins a look at all nodes: a time in which this node did not look is not their silence.
    pub(super) fn begin(&mut self, now: Instant) {
        let since = self.looked.replace(now).map_or(Duration::ZERO, |at| now.duration_since(at));
        let away = since.saturating_sub(LOOK_GAP_MAX);
        for awaited in self.of.iter_mut().flatten() {
            awaited.since += away;
            awaited.silent_since += away;
        }
    }

    /// Looks at a node: its oldest access that was sent and is not answered, and the number of frames that it has sent.
    pub(super) fn look(
        &mut self,
        node: usize,
        (oldest, frames): (Option<SentAccess>, u64),
        now: Instant,
    ) -> NodeAnswers {
        let Some(SentAccess { number, bytes }) = oldest else {
            self.of[node] = None;
            return NodeAnswers::InTime;
        };
        let before = self.of[node].filter(|before| before.number == number);
        let since = before.map_or(now, |before| before.since);
        let quiet = before.filter(|before| before.frames == frames);
        let silent_since = quiet.map_or(now, |before| before.silent_since);
        self.of[node] = Some(AwaitedAnswer { number, since, frames, silent_since });
        let carried_within = Duration::from_secs(bytes as u64) / SLOWEST_BYTES_PER_S;
        if now.duration_since(since) >= STALLED_AFTER {
            // On the next connection the access is sent again, and has as long.
            self.of[node] = None;
            NodeAnswers::Stalled
        } else if now.duration_since(silent_since) >= self.after + carried_within {
            NodeAnswers::Silent
        } else {
            NodeAnswers::InTime
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Span = Span::millis(500);

    fn sent(number: u64, bytes: usize) -> Option<SentAccess> {
        Some(SentAccess { number, bytes })
    }

    #[test]
    fn a_node_is_silent_when_it_neither_answers_nor_sends_anything_and_stalled_when_it_answers_nothing()
     {
        let _limit = amcast_test_policy::time_limit();
        let (mut silences, begun) = (NodeSilences::new(2, SILENCE), Instant::now());
        let mut look = |oldest, frames, millis| {
            silences.look(1, (oldest, frames), begun + Duration::from_millis(millis))
        };
        assert_eq!(look(None, 7, 0), NodeAnswers::InTime);
        assert_eq!(look(sent(3, 0), 7, 1_000), NodeAnswers::InTime, "it was asked nothing before");
        assert_eq!(look(sent(3, 0), 7, 1_499), NodeAnswers::InTime);
        assert_eq!(look(sent(3, 0), 7, 1_500), NodeAnswers::Silent);
        assert_eq!(look(sent(3, 0), 8, 1_600), NodeAnswers::InTime, "it runs: its answer may come");
        assert_eq!(look(sent(4, 0), 8, 2_000), NodeAnswers::InTime, "it has answered one");
        assert_eq!(look(sent(4, 0), 8, 2_500), NodeAnswers::Silent);
        for (frames, millis) in (9..).zip((2_600..5_000).step_by(100)) {
            assert_eq!(look(sent(4, 0), frames, millis), NodeAnswers::InTime, "{millis}");
        }
        assert_eq!(look(sent(4, 0), 99, 5_000), NodeAnswers::Stalled, "it answers nothing");
        assert_eq!(look(sent(4, 0), 99, 5_001), NodeAnswers::InTime, "on the next connection");
        assert_eq!(look(None, 99, 9_000), NodeAnswers::InTime);
        assert_eq!(look(sent(4, 0), 99, 9_001), NodeAnswers::InTime);
    }

    #[test]
    fn a_time_in_which_this_node_did_not_look_is_not_the_silence_of_others() {
        let _limit = amcast_test_policy::time_limit();
        let (mut silences, begun) = (NodeSilences::new(1, SILENCE), Instant::now());
        let mut look = |millis| {
            let now = begun + Duration::from_millis(millis);
            silences.begin(now);
            silences.look(0, (sent(3, 0), 7), now)
        };
        assert_eq!(look(0), NodeAnswers::InTime);
        assert_eq!(look(150), NodeAnswers::InTime);
        assert_eq!(look(9_000), NodeAnswers::InTime, "its answer may wait in the socket");
        assert_eq!(look(9_149), NodeAnswers::InTime);
        assert_eq!(look(9_150), NodeAnswers::Silent, "150 ms, 200 and 150");
        assert_eq!(look(19_000), NodeAnswers::Silent);
        let stalled = (19_100..).step_by(100).find(|millis| look(*millis) == NodeAnswers::Stalled);
        assert_eq!(stalled, Some(21_300), "after 700 ms by then");
    }

    #[test]
    fn an_access_that_takes_the_slowest_network_long_has_that_time() {
        let _limit = amcast_test_policy::time_limit();
        let (mut silences, begun) = (NodeSilences::new(1, SILENCE), Instant::now());
        let mut look = |bytes, seconds: f64| {
            silences.look(0, (sent(1, bytes), 0), begun + Duration::from_secs_f64(seconds))
        };
        let second = SLOWEST_BYTES_PER_S as usize;
        assert_eq!(look(second, 0.0), NodeAnswers::InTime);
        assert_eq!(look(second, 1.49), NodeAnswers::InTime);
        assert_eq!(look(second, 1.5), NodeAnswers::Silent);
        // A ring of the default length: until its connection is ended.
        let ring = 40_960 * 64;
        assert_eq!(look(ring, 2.99), NodeAnswers::InTime);
        assert_eq!(look(ring, 3.0), NodeAnswers::Stalled);
    }
}
