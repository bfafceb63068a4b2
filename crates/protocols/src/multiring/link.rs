//! What a member passes on to the next in its ring, and what it tells the coordinator beside it.
//!
//! # The next one
//! Values go from one member to the next, to each once. A member that is slow, or was away, takes them
//! in its own time: what it was sent and has not shown to hold is bounded, and what has left this
//! process's memory is decided, so that the next one fetches it. Who is far behind is left out of the
//! ring by the coordinator (`layout.rs`) until it has caught up that way: those behind it in the ring wait
//! for nobody who is. Who cannot be reached by the one in front of it is passed over at once.
//!
//! # The coordinator
//! Votes reach it straight from the first member that sees enough of them, not by the rest of the way
//! round: a member of whose vote there is no need holds up nothing, and one hop or more is saved.

use super::Mutant;
use super::ring::{Cx, Ring};
use super::value::{Ballot, Entry};
use super::word::{Pass, Vote, Word};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use amcast_core::{Pid, Span, Time};

/// How many times as much as may be undecided in a ring may be on the way to the next member.
const ON_THE_WAY: usize = 4;

/// Members in front of each one that are shown how far it has come, besides acceptors.
pub(super) const WATCHERS: usize = 2;

/// What was passed on to the next in the ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    to: Option<Pid>,
    ballot: Ballot,
    layout: u32,
    /// It was sent the run up to here.
    end: u64,
    /// What it was sent and has not shown to hold: where each entry ends, and its bytes.
    on_the_way: VecDeque<(u64, usize)>,
    on_the_way_bytes: usize,
    votes: Vec<Vote>,
    trim: u64,
    /// When it was sent something last.
    at: Time,
    /// Whether it must be sent something, because the connection is new.
    fresh: bool,
}

impl Link {
    /// The connection to `pid` is new.
    pub(super) fn reconnected(&mut self, pid: Pid) {
        if self.to == Some(pid) {
            self.fresh = true;
        }
    }

    /// The next one holds the run up to `known`.
    fn shown(&mut self, known: u64) {
        self.end = self.end.max(known);
        while let Some(&(_, bytes)) = self.on_the_way.front().filter(|(end, _)| *end <= known) {
            self.on_the_way_bytes -= bytes;
            self.on_the_way.pop_front();
        }
    }

    /// Whether `pid` is the next one.
    pub(super) fn is_to(&self, pid: Pid) -> bool {
        self.to == Some(pid)
    }

    /// The next one has the run up to `from` only.
    pub(super) fn back_to(&mut self, from: u64) {
        self.end = from;
        while let Some(&(_, bytes)) = self.on_the_way.back().filter(|(end, _)| *end > from) {
            self.on_the_way_bytes -= bytes;
            self.on_the_way.pop_back();
        }
    }

    fn sent(&mut self, entries: &[Entry]) {
        for entry in entries {
            let bytes = entry.value.size();
            self.on_the_way.push_back((entry.end(), bytes));
            self.on_the_way_bytes += bytes;
            self.end = entry.end();
        }
    }
}

impl Ring {
    /// The next one in the ring that is not left out and can be reached, if there is another.
    fn successor(&self, cx: &Cx<'_>) -> Option<Pid> {
        let at = self.shape.member(cx.me)?;
        let members = &self.shape.members;
        let mut behind = members[at + 1..].iter().chain(&members[..at]).copied();
        let passed_over =
            |p: &Pid| self.out.contains(p) || self.hears(cx.me, *p) && !cx.reaches(*p);
        behind.find(|p| !passed_over(p))
    }

    /// Whether `me` is shown how far `p` has come.
    pub(super) fn hears(&self, me: Pid, p: Pid) -> bool {
        let Some((mine, its)) = self.shape.member(me).zip(self.shape.member(p)) else {
            return false;
        };
        let count = self.shape.members.len();
        let between = |from: usize, to: usize| (to + count - from) % count;
        let near = between(mine, its).min(between(its, mine)) <= WATCHERS;
        near || self.shape.acceptor(me).is_some() || self.shape.acceptor(p).is_some()
    }

    /// [MRP 4] Passes on what the next in the ring lacks: entries of the run, votes that may decide
    /// something, and a sign of life now and then.
    pub(super) fn pass_on(&mut self, cx: &mut Cx<'_>) {
        if self.out.contains(&cx.me) {
            // The others have all this from each other.
            self.link.to = None;
            return;
        }
        let Some(to) = self.successor(cx).filter(|_| self.ballot != Ballot::NONE) else {
            self.link.to = None;
            return;
        };
        if self.link.to != Some(to) || self.link.ballot != self.ballot {
            // Of a new run it has nothing; of an old one it will say what it lacks.
            let end = if self.link.ballot == self.ballot { self.end } else { self.start };
            let (to, ballot) = (Some(to), self.ballot);
            self.link = Link { to, ballot, end, fresh: true, ..Link::default() };
        }
        let closes = Some(to) == self.coordinator();
        if let Some(at) = self.shape.member(to).filter(|_| self.hears(cx.me, to)) {
            self.link.shown(self.peers[at].known.min(self.end));
        } else if self.link.end < self.known {
            // What is not in memory any more is decided, and to be fetched.
            let held = self.book.in_memory_from(self.link.end).min(self.known);
            self.link.shown(held);
        }
        while self.has_news(closes, cx) {
            // [MRP 1:6]
            let entries = if closes { Vec::new() } else { self.unsent(cx) };
            self.link.sent(&entries);
            if closes {
                self.link.end = self.end;
            }
            (self.link.at, self.link.fresh) = (cx.now, false);
            (self.link.layout, self.link.trim) = (self.layout, self.trim);
            self.link.votes.clone_from(&self.votes);
            let pass = self.pass(self.link.end, entries, cx);
            cx.say(to, Word::Pass(pass));
        }
    }

    /// Whether more values may be on the way to the next one.
    fn has_way(&self, cx: &Cx<'_>) -> bool {
        let most = cx.shape.pipeline_bytes.saturating_mul(ON_THE_WAY);
        let shows = self.link.to.is_some_and(|to| self.hears(cx.me, to));
        // Of what was proposed again nothing is known to be decided before all of it has arrived.
        let again = self.link.end < self.fresh;
        !shows || again || self.link.on_the_way_bytes < most
    }

    /// Whether the next in the ring should be told something.
    fn has_news(&self, closes: bool, cx: &Cx<'_>) -> bool {
        let link = &self.link;
        if link.fresh || link.layout != self.layout || link.trim != self.trim {
            return true;
        }
        let more = !closes && link.end < self.end && self.has_way(cx);
        if more && self.run_entry(link.end).is_some() {
            return true;
        }
        if cx.now.since(link.at) >= cx.shape.heartbeat {
            return true;
        }
        // What is decided in its eyes needs no more votes; the coordinator is told of them straight.
        let decided = self.majority(&link.votes, cx);
        let told = |at: usize| link.votes.get(at).copied().unwrap_or_default();
        let matters = |(at, vote): (usize, &Vote)| {
            *vote != told(at) && vote.upto > decided && Some(self.shape.acceptors[at]) != link.to
        };
        !closes && self.votes.iter().enumerate().any(matters)
    }

    /// When something is to be passed on again, whatever happens.
    pub(super) fn pass_at(&self, heartbeat: Span) -> Time {
        // Without a next one there is nobody to pass anything on to.
        let passes = self.ballot != Ballot::NONE && self.link.to.is_some();
        if passes { self.link.at + heartbeat } else { Time::NEVER }
    }

    /// Entries of the run that the next in the ring was not sent, about one packet of them.
    fn unsent(&self, cx: &Cx<'_>) -> Vec<Entry> {
        if self.has_way(cx) { self.run_from(self.link.end, cx) } else { Vec::new() }
    }

    /// Entries of the run from instance `at` on, about one packet of them.
    pub(super) fn run_from(&self, mut at: u64, cx: &Cx<'_>) -> Vec<Entry> {
        let (mut bytes, mut entries) = (0, Vec::new());
        while at < self.end && bytes < cx.shape.pass_bytes {
            let Some(entry) = self.run_entry(at) else { break };
            bytes += entry.value.size();
            at = entry.end();
            entries.push(Entry { ballot: self.ballot, ..entry });
        }
        entries
    }

    /// What is said of the run, with these entries of it, which end at `end`. Whoever is told of a vote
    /// is told in which memory of its acceptor it counts: a vote of one that was lost counts nowhere
    /// once any vote of one who knows of the loss is needed, too.
    pub(super) fn pass(&self, end: u64, entries: Vec<Entry>, cx: &Cx<'_>) -> Pass {
        let current = |(at, vote): (usize, &Vote)| {
            let memory = cx.memories[self.shape.acceptors[at].index()];
            let lost = vote.memory < memory && !cx.shape.mutants.is(Mutant::PassesOnLostVotes);
            if lost { Vote { memory, upto: 0 } } else { *vote }
        };
        Pass {
            ring: self.id,
            ballot: self.ballot,
            layout: self.layout,
            out: self.out.clone(),
            start: self.start,
            fresh: self.fresh,
            end,
            votes: self.votes.iter().enumerate().map(current).collect(),
            trim: self.trim,
            entries,
        }
    }

    /// What one who is left out of the ring and lives must know of the run, to follow it.
    pub(super) fn tell_beside(&self, to: Pid, cx: &mut Cx<'_>) {
        let pass = self.pass(self.start, Vec::new(), cx);
        cx.say(to, Word::Pass(pass));
    }

    /// How far the coordinator knows the run to be decided that is told of these votes: its own it
    /// knows itself.
    fn decides(&self, votes: &[Vote], cx: &Cx<'_>) -> u64 {
        let mut votes = votes.to_vec();
        if let Some(at) = self.coordinator().and_then(|p| self.shape.acceptor(p)) {
            let memory = cx.memories[self.shape.acceptors[at].index()];
            votes[at] = Vote { memory, upto: u64::MAX };
        }
        self.majority(&votes, cx)
    }

    /// Tells the coordinator of votes that decide something; of its own also where it has the run from the
    /// coordinator beside the ring.
    pub(super) fn report(&mut self, cx: &mut Cx<'_>) {
        let Some(to) = self.coordinator().filter(|&to| to != cx.me && self.my_vote.is_some())
        else {
            return;
        };
        let own = |votes: &[Vote]| self.my_vote.map_or(0, |mine| votes[mine].upto);
        let asked = self.asked_beside && own(&self.votes) > own(&self.reported);
        if asked || self.decides(&self.votes, cx) > self.decides(&self.reported, cx) {
            self.reported.clone_from(&self.votes);
            let pass = self.pass(self.start, Vec::new(), cx);
            cx.say(to, Word::Pass(pass));
        }
    }

    /// Who passes votes on has told the coordinator of those that decide something, or had them from
    /// it. Should that be lost, the way round the ring ends at the coordinator, too.
    pub(super) fn told_coordinator(&mut self, votes: &[Vote]) {
        for (held, vote) in self.reported.iter_mut().zip(votes) {
            if (vote.memory, vote.upto) > (held.memory, held.upto) {
                *held = *vote;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bytes::Bytes;
    use super::super::keep::{Keep, Storage};
    use super::super::reach::Reach;
    use super::super::rings::{Around, Rings, shapes};
    use super::super::value::{Proposal, Value};
    use super::super::{Shape, WRITTEN};
    use super::*;
    use crate::layers::heartbeat::Heartbeat;
    use amcast_core::{Entry as _, Gid, GroupSet, MsgId, Outbox, RawConfig};

    const BALLOT: Ballot = Ballot::new(1, Pid(0));

    /// A batch of one message.
    fn batch(seq: u64) -> Value {
        let (msg, dst) = (MsgId { sender: Pid(0), seq }, GroupSet::one(Gid(0)));
        let mut bytes = Vec::new();
        Proposal { msg, life: 0, number: seq + 1, dst, payload: &[7; 64] }.encode(&mut bytes);
        Value::Batch(Bytes::from(&bytes[..]))
    }

    /// A member of a ring of three, which `Pid(0)` leads.
    struct Member {
        me: Pid,
        now: Time,
        shape: Shape,
        heartbeat: Heartbeat,
        reach: Reach,
        memories: Vec<u32>,
        keep: Keep,
        post: Vec<(Pid, Word)>,
        ring: Ring,
    }

    impl Member {
        fn new(me: Pid) -> Self {
            let set = [("pipeline_bytes", "1000"), ("pass_bytes", "500")];
            let set = set.map(|(name, value)| (name.into(), value.into())).into();
            let raw = RawConfig { groups: 1, clients: 0, set, ..RawConfig::default() };
            let config = raw.check(WRITTEN.about().params).unwrap();
            let shape = Shape::of(Storage::Written, &config).unwrap();
            let round = shapes(config.cluster(), Rings::Independent, &[], Around::Nodes).remove(0);
            let mut member = Self {
                me,
                now: Time(1),
                heartbeat: Heartbeat::new(me.index(), &[0, 1, 2], shape.heartbeat, shape.suspect),
                shape,
                reach: Reach::new(3),
                memories: alloc::vec![0; 3],
                keep: Keep::new(Storage::Written),
                post: Vec::new(),
                ring: Ring::new(0, round, me, 3),
            };
            member.does(|ring, cx| ring.follow(BALLOT, (0, 0), cx));
            member
        }

        /// Does something, and what follows from that. What is said.
        fn does(&mut self, does: impl FnOnce(&mut Ring, &mut Cx<'_>)) -> Vec<(Pid, Word)> {
            let Self { me, now, shape, heartbeat, reach, memories, keep, post, ring } = self;
            let mut cx = Cx {
                now: *now,
                me: *me,
                votes: true,
                shape,
                heartbeat,
                reach,
                memories,
                keep,
                post,
                out: &mut Outbox::default(),
                needs: &mut Vec::new(),
            };
            does(ring, &mut cx);
            while let Some(super::super::keep::Act::Vote { ballot, upto, .. }) =
                cx.keep.due.pop_front()
            {
                ring.vote(ballot, upto, &mut cx);
            }
            core::mem::take(post)
        }

        fn accepts(&mut self, count: u64) {
            for _ in 0..count {
                let first = self.ring.end;
                let entry = Entry { first, ballot: BALLOT, value: batch(first) };
                self.does(|ring, cx| ring.accept(entry, cx));
            }
        }
    }

    /// The instances that are passed on to someone.
    fn passed(said: &[(Pid, Word)], whom: Pid) -> Vec<u64> {
        let passes = said.iter().filter(|(to, _)| *to == whom).filter_map(|(_, word)| match word {
            Word::Pass(pass) => Some(&pass.entries),
            _ => None,
        });
        passes.flatten().map(|entry| entry.first).collect()
    }

    #[test]
    fn what_is_on_the_way_to_the_next_one_has_a_bound() {
        let mut first = Member::new(Pid(0));
        first.accepts(500);
        let said = first.does(|ring, cx| ring.pass_on(cx));
        let most = (ON_THE_WAY * 1000).div_ceil(batch(0).size()) as u64;
        let sent = passed(&said, Pid(1));
        assert_eq!(sent, (0..sent.len() as u64).collect::<Vec<_>>());
        assert!((most / 2..=most + 1).contains(&(sent.len() as u64)), "{}", sent.len());
        assert!(passed(&first.does(|ring, cx| ring.pass_on(cx)), Pid(1)).is_empty());
        // It shows that it has some, and that it lost the rest.
        first.ring.peers[1].known = 10;
        let more = passed(&first.does(|ring, cx| ring.pass_on(cx)), Pid(1));
        assert_eq!((more[0], more.len()), (sent.len() as u64, 10));
        first.does(|ring, cx| ring.on_lack(Pid(1), (BALLOT, 15), cx));
        let again = passed(&first.does(|ring, cx| ring.pass_on(cx)), Pid(1));
        assert_eq!((again[0], again.len()), (15, sent.len() - 5));
    }

    #[test]
    fn what_was_proposed_again_arrives_as_a_whole() {
        let mut first = Member::new(Pid(0));
        first.ring.fresh = 400;
        first.accepts(500);
        let said = first.does(|ring, cx| ring.pass_on(cx));
        let sent = passed(&said, Pid(1));
        assert!((400..500).contains(&sent.len()), "{}", sent.len());
        assert_eq!(sent, (0..sent.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn who_sees_enough_votes_first_tells_the_coordinator_and_nobody_else_does() {
        let mut second = Member::new(Pid(1));
        second.accepts(1);
        let said = second.does(|ring, cx| {
            ring.pass_on(cx);
            ring.report(cx);
        });
        assert_eq!(said.iter().filter(|(to, _)| *to == Pid(0)).count(), 1, "{said:?}");
        let pass = said.iter().find_map(|(to, word)| match word {
            Word::Pass(pass) if *to == Pid(2) => Some(pass.clone()),
            _ => None,
        });
        let mut third = Member::new(Pid(2));
        third.does(|ring, cx| ring.pass_on(cx));
        let said = third.does(|ring, cx| {
            ring.on_pass(Pid(1), pass.expect("it is passed on"), cx).unwrap();
            ring.pass_on(cx);
            ring.report(cx);
        });
        assert_eq!((third.ring.end, said.len()), (1, 0), "{said:?}");
    }

    #[test]
    fn a_vote_of_a_lost_memory_is_not_passed_on() {
        let mut second = Member::new(Pid(1));
        second.ring.votes[2] = Vote { memory: 0, upto: 9 };
        second.memories[2] = 4;
        let said = second.does(|ring, cx| ring.pass_on(cx));
        let votes = said.iter().find_map(|(_, word)| match word {
            Word::Pass(pass) => Some(pass.votes[2]),
            _ => None,
        });
        assert_eq!(votes, Some(Vote { memory: 4, upto: 0 }));
    }

    #[test]
    fn who_is_far_behind_is_left_out_as_long_as_enough_acceptors_remain() {
        let mut first = Member::new(Pid(0));
        first.accepts(500);
        first.ring.know(500);
        let mut out = |known: [u64; 2], failed: &[Pid]| {
            (first.ring.peers[1].known, first.ring.peers[2].known) = (known[0], known[1]);
            let mut behind = Vec::new();
            first.does(|ring, cx| behind = ring.behind(failed, cx));
            behind
        };
        assert_eq!(out([499, 450], &[]), []);
        assert_eq!(out([0, 500], &[]), [Pid(1)]);
        assert_eq!(out([100, 0], &[]), [Pid(2)], "the other one is needed");
        assert_eq!(out([0, 500], &[Pid(2)]), []);
    }
}
