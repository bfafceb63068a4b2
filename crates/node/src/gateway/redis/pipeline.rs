//! Which commands of one connection may be under way together.
//!
//! A client that sends several commands without waiting expects them to take effect in this
//! order. The backend keeps that order only for commands that go to one and the same shard; others
//! may be ordered in any way, since none of them was answered before the next was sent. So a
//! command may join those under way if each of them either goes to the same single shard, or
//! shares no key with it that one of the two may change: two such commands have the same answers
//! and effects in either order. Any other command waits until those that it clashes with were
//! answered, and all later ones behind it. Other clients may see the effects of commands on
//! different keys in another order than they were sent in, as with a cluster of Redis servers;
//! `MULTI` makes them one.
//!
//! Each key of a command under way takes memory, and each is compared with the keys of the next one. So a command of more
//! than [`KEYS_MAX`] keys counts as one that touches its shards as a whole.
//!
//! Reads that are not ordered ([`Backend::read`](crate::gateway::Backend::read)) are under way only with others like them:
//! the connection sees to that. Each is answered as of a moment while it is under way; which of them is as of
//! an earlier one, nobody says. The same is true of a read that is sent again, since it was
//! [refused](amcast_kv::size_refusal) for the size of its answer, or its node was lost: shards keep no answers to reads, so
//! that it is read anew, as of a later moment. So no write of the connection to its keys passes a read, and other reads may.

use amcast_core::{Gid, GroupSet};
use std::collections::VecDeque;

/// The most keys of a command that are compared with those of others.
pub(super) const KEYS_MAX: usize = 64;

/// Room for so many holds stays with a connection that has nothing under way.
const HOLDS_KEPT: usize = 64;

/// The destinations and keys of a command.
#[derive(Debug)]
pub(super) struct CommandReach<'a> {
    pub(super) dst: GroupSet,
    /// Hashes of its keys, in ascending order; none if it touches whole shards.
    pub(super) keys: Option<&'a [u64]>,
    pub(super) writes: bool,
}

impl<'a> CommandReach<'a> {
    /// The keys, if they are few enough to be looked at one by one.
    fn few_keys(&self) -> Option<&'a [u64]> {
        self.keys.filter(|keys| keys.len() <= KEYS_MAX)
    }
}

/// A use of a key by a request under way.
#[derive(Debug)]
struct KeyHold {
    request: u64,
    dst: GroupSet,
    /// None for all keys.
    key: Option<u64>,
    writes: bool,
}

impl KeyHold {
    /// Whether it has no key in common with a command.
    fn is_apart(&self, reach: &CommandReach<'_>) -> bool {
        match (self.key, reach.few_keys()) {
            (Some(key), Some(keys)) => keys.binary_search(&key).is_err(),
            _ => self.dst.and(reach.dst).is_empty(),
        }
    }
}

/// The requests of one connection that are under way.
#[derive(Default, Debug)]
pub(super) struct Pipeline {
    /// In ascending order, each once for each of its commands.
    open: VecDeque<u64>,
    /// The single shard that all of them go to, while that is so.
    only: Option<Gid>,
    /// In ascending order of requests.
    held: VecDeque<KeyHold>,
    /// Of these, those that write.
    writes: usize,
}

impl Pipeline {
    /// Commands under way.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The lowest request that was not answered.
    pub(super) fn first_open(&self) -> Option<u64> {
        self.open.front().copied()
    }

    /// Whether a command may be sent now.
    pub(super) fn admits(&self, reach: &CommandReach<'_>) -> bool {
        let overtakes = reach.writes && self.held.len() > self.writes;
        let same_shard = reach.dst.len() == 1 && self.only == reach.dst.lowest();
        if self.open.is_empty() || same_shard && !overtakes {
            return true;
        }
        self.held.iter().all(|held| {
            // The shard keeps the order, but of a read that is sent again.
            let same_shard = held.dst.len() == 1 && held.dst == reach.dst;
            let ordered = same_shard && (held.writes || !reach.writes);
            ordered || !(held.writes || reach.writes) || held.is_apart(reach)
        })
    }

    /// Notes that a request was sent, or that one more command is in it. A request's first command comes in the order of
    /// requests.
    pub(super) fn sent(&mut self, request: u64, reach: &CommandReach<'_>) {
        let CommandReach { dst, writes, .. } = *reach;
        let before = self.held.len();
        let single = if dst.len() == 1 { dst.lowest() } else { None };
        self.only =
            if self.open.is_empty() { single } else { self.only.filter(|g| single == Some(*g)) };
        // Mostly it is the last one: then nothing is moved.
        let at = self.open.partition_point(|open| *open <= request);
        self.open.insert(at, request);
        let at = self.held.partition_point(|held| held.request <= request);
        let hold = |key| KeyHold { request, dst, key, writes };
        match reach.few_keys() {
            None => self.held.push_back(hold(None)),
            Some(keys) => self.held.extend(keys.iter().map(|key| hold(Some(*key)))),
        }
        // Behind those of later requests they all go to their place at a time.
        let more = self.held.len() - before;
        if at < before {
            self.held.make_contiguous()[at..].rotate_right(more);
        }
        self.writes += if writes { more } else { 0 };
    }

    /// The hashes of the keys that a request under way may change; none for all keys of its shards.
    pub(super) fn written(&self, request: u64) -> impl Iterator<Item = Option<u64>> {
        let from = self.held.partition_point(|held| held.request < request);
        let held = self.held.range(from..).take_while(move |held| held.request == request);
        held.filter(|held| held.writes).map(|held| held.key)
    }

    /// Notes that a request was answered; how many commands it had.
    pub(super) fn answered(&mut self, request: u64) -> usize {
        // Most answers are to the first one: then neither of these moves the rest.
        let from = self.open.partition_point(|open| *open < request);
        let commands = self.open.range(from..).take_while(|open| **open == request).count();
        self.open.drain(from..from + commands);
        let from = self.held.partition_point(|held| held.request < request);
        let count = self.held.range(from..).take_while(|held| held.request == request).count();
        for held in self.held.drain(from..from + count) {
            self.writes -= usize::from(held.writes);
        }
        if self.held.is_empty() {
            self.held.shrink_to(HOLDS_KEPT);
        }
        commands
    }

    /// Bytes that the keys of commands under way take.
    pub(super) fn bytes(&self) -> usize {
        self.held.capacity() * size_of::<KeyHold>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::rng::Rng;

    fn reach<'a>(shards: &[u8], keys: &'a [u64], writes: bool) -> CommandReach<'a> {
        let dst = shards.iter().map(|g| Gid(*g)).collect();
        CommandReach { dst, keys: Some(keys), writes }
    }

    #[test]
    fn an_answer_ends_the_holds_of_its_request_and_of_no_other_in_whatever_order_answers_come() {
        let mut rng = Rng::new(7);
        let mut p = Pipeline::default();
        let mut open = Vec::new();
        for request in 1..2000 {
            let keys: Vec<u64> = (0..rng.below(4)).map(|n| request * 10 + n).collect();
            p.sent(request, &reach(&[0, 1], &keys, true));
            open.push((request, keys));
            while open.len() > 1 + rng.below(30) as usize {
                let (request, _) = open.remove(rng.below(open.len() as u64) as usize);
                p.answered(request);
                // An answer that comes twice ends nothing.
                p.answered(request);
            }
            let expected = open.iter().flat_map(|(request, keys)| {
                keys.iter().map(|key| (*request, Some(*key))).collect::<Vec<_>>()
            });
            assert!(p.held.iter().map(|held| (held.request, held.key)).eq(expected));
            assert!(p.open.iter().eq(open.iter().map(|(request, _)| request)));
            assert_eq!((p.len(), p.first_open()), (open.len(), open.first().map(|(r, _)| *r)));
        }
    }

    #[test]
    fn commands_that_join_an_earlier_request_hold_their_keys_until_its_answer() {
        let mut rng = Rng::new(11);
        let (mut p, mut expected) = (Pipeline::default(), Vec::new());
        for request in 1..=20 {
            p.sent(request, &reach(&[0, 1], &[request], true));
            expected.push((request, vec![request]));
        }
        for key in 100..400 {
            let keys: Vec<u64> = (0..rng.below(5)).map(|n| key * 10 + n).collect();
            let at = rng.below(expected.len() as u64) as usize;
            p.sent(expected[at].0, &reach(&[0, 1], &keys, true));
            expected[at].1.extend(keys);
            if key % 20 == 0 {
                let (request, _) = expected.remove(at);
                assert!(p.answered(request) > 1);
                // Some that are left in front make room that later ones wrap into.
                let (request, keys) = (500 + key, vec![key]);
                p.sent(request, &reach(&[0, 1], &keys, true));
                expected.push((request, keys));
            }
            let holds = expected.iter().flat_map(|(request, keys)| {
                keys.iter().map(|key| (*request, Some(*key))).collect::<Vec<_>>()
            });
            assert!(p.held.iter().map(|held| (held.request, held.key)).eq(holds));
        }
    }

    #[test]
    fn only_what_could_be_reordered_to_an_effect_waits() {
        let mut p = Pipeline::default();
        p.sent(1, &reach(&[0], &[10], true));
        assert!(p.admits(&reach(&[0], &[10], false)), "one shard keeps the order");
        assert!(p.admits(&reach(&[1], &[20], true)), "another key");
        assert!(!p.admits(&reach(&[0, 1], &[10, 20], false)), "a read of the written key");
        let (dst, keys) = (GroupSet::first(2), None);
        assert!(!p.admits(&CommandReach { dst, keys, writes: false }));
        p.sent(2, &reach(&[1], &[20], false));
        assert!(p.admits(&reach(&[1, 2], &[20, 30], false)), "reads do not clash");
        assert!(!p.admits(&reach(&[1, 2], &[20, 30], true)));
        p.answered(1);
        assert_eq!(p.first_open(), Some(2));
        assert!(p.admits(&reach(&[0, 2], &[10, 30], true)));
        p.answered(2);
        assert!(p.admits(&reach(&[1, 2], &[20, 30], true)) && p.len() == 0);
    }

    #[test]
    fn a_write_waits_behind_a_read_of_its_key_which_may_be_sent_again() {
        let mut p = Pipeline::default();
        p.sent(1, &reach(&[0], &[10], false));
        assert!(!p.admits(&reach(&[0], &[10], true)), "the shard cannot keep the order");
        assert!(p.admits(&reach(&[0], &[11], true)) && p.admits(&reach(&[0], &[10], false)));
        // Also where that read is behind a write of the key.
        p.sent(2, &reach(&[0], &[11], true));
        assert!(p.admits(&reach(&[0], &[11], true)));
        p.sent(3, &reach(&[0], &[11], false));
        assert!(!p.admits(&reach(&[0], &[11], true)) && p.admits(&reach(&[0], &[11], false)));
        p.answered(1);
        assert!(p.admits(&reach(&[0], &[10], true)));
        p.answered(3);
        assert!(p.admits(&reach(&[0], &[11], true)));
        p.answered(2);
        assert_eq!((p.writes, p.held.len()), (0, 0));
    }

    #[test]
    fn a_command_of_many_keys_takes_no_room_for_each_and_holds_its_shards_as_a_whole() {
        let mut p = Pipeline::default();
        let many: Vec<u64> = (1000..3000).collect();
        for request in 1..=250 {
            p.sent(request, &reach(&[0, 1], &many, true));
        }
        assert_eq!(p.held.len(), 250, "one hold for each command");
        assert!(p.held.capacity() <= 512);
        assert!(!p.admits(&reach(&[1, 2], &[5], false)), "another key of a shard that is held");
        assert!(p.admits(&reach(&[2, 3], &[5], true)), "other shards");
        assert!(!p.admits(&reach(&[1, 2], &many, false)));
        (1..=250).for_each(|request| assert_eq!(p.answered(request), 1));
        assert!(p.admits(&reach(&[1, 2], &[5], false)));
        // Many keys of few commands are counted one by one.
        p.sent(251, &reach(&[0, 1], &many[..KEYS_MAX], false));
        assert_eq!(p.held.len(), KEYS_MAX);
        assert!(p.admits(&reach(&[1, 2], &many, false)), "two reads");
        assert!(!p.admits(&reach(&[1, 2], &many[10..11], true)));
    }

    #[test]
    fn the_room_for_keys_is_given_back_with_the_last_answer() {
        let mut p = Pipeline::default();
        let keys: Vec<u64> = (1000..1060).collect();
        (1..=250).for_each(|request| p.sent(request, &reach(&[0, 1], &keys, true)));
        assert!(p.held.capacity() >= 250 * keys.len());
        assert_eq!(p.bytes(), p.held.capacity() * size_of::<KeyHold>());
        (1..=250).for_each(|request| assert_eq!(p.answered(request), 1));
        assert!(p.held.capacity() <= HOLDS_KEPT, "{}", p.held.capacity());
    }
}
