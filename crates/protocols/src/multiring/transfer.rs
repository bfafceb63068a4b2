//! State transfer [MRP 5.2]: where a replica continues whose missing instances the acceptors have
//! trimmed: at a position that another replica of the group has applied, and whose state its
//! application then needs.
//!
//! ```text
//! lagging --StateQuery--> all of the group                again, ever less often, until there are offers
//!         <--StateOffer(position, merge position)--       of a quorum `Q_R`: the best one
//! the merge continues there: NeedsState(position)         the application gets that state, or a later one
//! ```
//!
//! A replica whose log was lost, and whose application has nothing of its group on disk, asks for a state as well, which takes less
//! time than to execute all that the others have in their logs. But it can do without: what comes behind the empty state is still
//! held by the others, or a trimmed instance shows that it is not, and then it needs one. So it does without when no quorum has
//! offered one after a few queries.
//! Otherwise nodes that lost a log each, of different groups, would wait for each other for ever: a node gives its state as a
//! whole, and has none to give while one of its replicas waits.
//!
//! The driver brings the state itself. Until it is in force no replica counts on what this process reports
//! to have applied: it offers nothing itself, and others keep the instances that it would need.

use super::message::{RingMessage, RingPacket};
use super::process::MultiRing;
use super::topology::MergePosition;
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::step::Note;
use amcast_core::{Outbox, Pid, ProtocolEvent, Span, StateSource, Time};

/// The furthest merge position that is possible.
const MERGED_MAX: u64 = 1 << 51;

/// How many times `retry` this process waits for an answer, at least and at most.
const PATIENCE: (u64, u64) = (8, 256);

/// It waits at least this long in the end, however short `retry` is: otherwise it might give up for ever
/// before an answer can be there.
const PATIENCE_LONGEST: Span = Span::secs(1);

/// How often a replica that can do without a state asks for one, while it reaches a quorum.
pub(super) const OPTIONAL_QUERIES: u32 = 4;

/// The search for a position from which this process continues.
#[derive(Clone, Debug, Default)]
pub(super) struct StateNegotiation {
    /// Whether the application's state is in force.
    pub(super) in_force: bool,
    /// Whether this process has reported that it lags, and not that it has caught up since.
    pub(super) lagging: bool,
    /// Whether this process asks for a state.
    pub(super) wanted: bool,
    /// How many more queries it makes before it does without; none if it cannot do without.
    pub(super) optional_queries: Option<u32>,
    /// The application has reported that it misses state, and nothing since.
    pub(super) is_unfit: bool,
    /// Grows with each attempt.
    attempt: u32,
    /// By rank: the position that each offers, and the merge position there.
    offers: Vec<Option<(u64, MergePosition)>>,
    asked_at: Option<Time>,
    patience: u64,
    /// The position from which this process continues, as long as the application's state is not in force.
    pub(super) awaited: Option<u64>,
    /// How many states it has asked its driver for: a report that a state is in force answers so many.
    needs: u64,
}

impl MultiRing {
    /// This process is missing instances that acceptors have trimmed.
    pub(super) fn want_state(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        self.state.optional_queries = None;
        if !self.state.wanted {
            self.state.wanted = true;
            self.state.asked_at = None;
            self.report_lagging(out);
            out.mark("multiring-wants-state");
        }
    }

    /// Whether a state at this position, in force since so many were asked for, is the one that is awaited.
    pub(super) fn is_answered_by(&self, position: u64, needs: u64) -> bool {
        self.state.awaited.is_some_and(|awaited| position >= awaited) && needs >= self.state.needs
    }

    fn patience(&self) -> Span {
        let doubled = self.state.patience.saturating_sub(1).min(16);
        let longest = self.config.retry.times(PATIENCE.1).max(PATIENCE_LONGEST);
        self.config.retry.times(PATIENCE.0 << doubled).min(longest)
    }

    /// When to send the query again.
    pub(super) fn state_query_at(&self) -> Time {
        match self.state.asked_at {
            _ if !self.state.wanted => Time::NEVER,
            None => self.now,
            Some(at) => at + self.patience(),
        }
    }

    /// Asks all replicas of the group which state they have, again and again.
    pub(super) fn query_state(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        if self.state_query_at() > self.now {
            return;
        }
        if self.does_without_state() {
            out.mark("multiring-does-without-state");
            return;
        }
        self.state.patience += 1;
        self.state.attempt += 1;
        self.state.asked_at = Some(self.now);
        self.state.offers = alloc::vec![None; self.config.cluster.replicas()];
        let attempt = self.state.attempt;
        for p in self.group_peers() {
            self.send(p, RingMessage::StateQuery { attempt });
        }
    }

    /// Before a query: gives the search up if the process can do without a state, and has asked often enough.
    fn does_without_state(&mut self) -> bool {
        let reached = self.group_peers().into_iter().filter(|p| self.reaches(*p)).count();
        let has_quorum = reached + 1 >= self.config.cluster.quorum();
        let state = &mut self.state;
        match &mut state.optional_queries {
            Some(0) => {
                (state.wanted, state.patience, state.in_force) = (false, 0, !state.is_unfit);
                return true;
            }
            Some(left) => *left -= u32::from(has_quorum),
            None => {}
        }
        false
    }

    pub(super) fn on_state_query(&mut self, from: Pid, attempt: u32) {
        if self.rank_of(from).is_some() && self.has_state() {
            let position = self.merge.applied;
            let point = self.merge.merge_position_at(position);
            self.send(from, RingMessage::StateOffer { attempt, position, point });
        }
    }

    /// [MRP 5.2] With offers of a quorum `Q_R`, this process included, the best one is taken
    /// (predicate 3).
    pub(super) fn on_state_offer(
        &mut self,
        from: Pid,
        attempt: u32,
        offer: (u64, MergePosition),
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let quorum = self.config.cluster.quorum();
        let Some(rank) = self.rank_of(from) else { return };
        let state = &mut self.state;
        if !state.wanted || state.attempt != attempt {
            return;
        }
        // Before it has asked there is no place for an offer.
        let Some(place) = state.offers.get_mut(rank) else { return };
        let (position, point) = offer;
        if point < MergePosition::of(position) || point.merged > MERGED_MAX {
            return out.note(Note::Malformed(from, "an offer of an impossible state"));
        }
        *place = Some(offer);
        if state.offers.iter().flatten().count() + 1 < quorum.max(2) {
            return;
        }
        // [MRP 3:6,8]
        let best = state.offers.iter().flatten().max_by_key(|(position, _)| *position).copied();
        if let Some((position, point)) = best
            && position >= self.merge.delivered
        {
            self.continue_from(position, point, out);
        }
    }

    /// Continues after a state at this position.
    fn continue_from(
        &mut self,
        position: u64,
        point: MergePosition,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let state = &mut self.state;
        (state.wanted, state.patience, state.awaited) = (false, 0, Some(position));
        state.needs += 1;
        self.merge.install(position, point);
        out.event(ProtocolEvent::NeedsState { position, source: StateSource::Replicas });
    }
}

#[cfg(test)]
mod tests {
    use super::super::merge::MergeStall;
    use super::super::persistence::AcceptorStorage;
    use super::super::shared_bytes::SharedBytes;
    use super::super::value::{InstanceValue, RingProposal};
    use super::super::{MEMORY, MultiRingConfig, SYNCED};
    use super::*;
    use crate::layers::routing::BrokenLinks;
    use alloc::string::String;
    use alloc::sync::Arc;
    use amcast_core::messages::MessageInput;
    use amcast_core::{Entry, Gid, GroupSet, Input, MsgId, Output, Protocol, RawConfig};

    /// One of three replicas that has lost its storage and asks for a state.
    fn reader(set: &[(&str, &str)]) -> MultiRing {
        let mut raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        raw.set =
            set.iter().map(|(name, value)| (String::from(*name), String::from(*value))).collect();
        let config = raw.check(MEMORY.about().params).expect("a sound configuration");
        let shape =
            Arc::new(MultiRingConfig::of(AcceptorStorage::Memory, &config).expect("a sound shape"));
        let mut reader = MultiRing::new(Pid(0), &shape);
        step(&mut reader, Time(1), Input::Start { incarnation: 1 });
        reader.want_state(&mut Outbox::default());
        reader
    }

    fn step(reader: &mut MultiRing, now: Time, input: Input<'_, Messages<RingPacket>>) {
        reader.step(now, (), input, &mut Outbox::default());
    }

    #[test]
    fn an_unexpected_offer_changes_nothing() {
        let mut reader = reader(&[]);
        let word = RingMessage::StateOffer { attempt: 0, position: 7, point: MergePosition::of(7) };
        step(
            &mut reader,
            Time(1),
            Input::Medium(MessageInput::From(Pid(1), RingPacket { incarnation: 0, message: word })),
        );
        assert!(reader.state.wanted && reader.state.awaited.is_none());
    }

    #[test]
    fn a_replica_that_lost_its_log_and_has_its_state_asks_for_none() {
        let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        let config = raw.check(SYNCED.about().params).expect("a sound configuration");
        let shape = MultiRingConfig::of(AcceptorStorage::Synced, &config).expect("a sound shape");
        let mut replica = MultiRing::new(Pid(0), &Arc::new(shape));
        step(&mut replica, Time(1), Input::Lost);
        step(&mut replica, Time(1), Input::Start { incarnation: 1 });
        assert!(replica.state.wanted && !replica.has_state());
        let position = MergePosition { merged: 4, place: 1 }.position();
        step(&mut replica, Time(1), Input::Installed { position, needs: 0 });
        assert!(!replica.state.wanted && replica.has_state());
        // It still asks the others what it had promised.
        assert!(!replica.may_vote() && !replica.fit());
        // Should they have trimmed instances behind that state, then it needs a newer one.
        replica.with_ring(0, |ring, _| {
            ring.log.trim(9);
            ring.learner.learned = 9;
        });
        step(&mut replica, Time(2), Input::Wake);
        assert!(replica.state.wanted);
    }

    /// One of three replicas that starts behind the loss of its log, and asks for a state.
    fn lost((row, storage): (&dyn Entry, AcceptorStorage)) -> MultiRing {
        let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        let config = raw.check(row.about().params).expect("a sound configuration");
        let shape = MultiRingConfig::of(storage, &config).expect("a sound shape");
        let mut replica = MultiRing::new(Pid(0), &Arc::new(shape));
        step(&mut replica, Time(1), Input::Lost);
        step(&mut replica, Time(1), Input::Start { incarnation: 1 });
        assert!(replica.state.wanted && !replica.has_state());
        replica
    }

    /// Lets ten seconds pass, in which it hears nothing but heartbeats of another replica, if it `reaches` it. Whether it gives
    /// the search up.
    fn does_without(replica: &mut MultiRing, reaches: bool) -> bool {
        let (mut out, end) = (Outbox::default(), replica.now + Span::secs(10));
        while replica.now < end {
            let (due, _) = replica.deadline().expect("it sends heartbeats");
            let now = due.max(replica.now + Span::millis(1));
            if reaches {
                let (count, broken) = (now.0, BrokenLinks::default());
                let message =
                    RingMessage::Heartbeat { count, eligible: true, broken, rings: Vec::new() };
                let packet = RingPacket { incarnation: 0, message };
                let heard = Input::Medium(MessageInput::From(Pid(1), packet));
                replica.step(now, (), heard, &mut out);
            }
            replica.step(now, (), Input::Wake, &mut out);
        }
        let gives_up =
            |it: &_| matches!(it, Output::Note(Note::Mark("multiring-does-without-state")));
        out.items().iter().any(gives_up)
    }

    #[test]
    fn a_replica_that_lost_its_log_does_without_a_state_that_nobody_offers() {
        let mut replica = lost((&SYNCED, AcceptorStorage::Synced));
        assert!(!does_without(&mut replica, false), "it waits for a quorum");
        assert!(does_without(&mut replica, true) && replica.has_state());
        // The instances behind the empty state are trimmed: now it needs a state, however long nobody offers one.
        replica.with_ring(0, |ring, _| {
            ring.log.trim(9);
            ring.learner.learned = 9;
        });
        assert!(!does_without(&mut replica, true));
        assert!(replica.state.wanted && !replica.has_state());
        // In memory, only another replica has what it executed.
        let mut replica = lost((&MEMORY, AcceptorStorage::Memory));
        assert!(!does_without(&mut replica, true) && !replica.has_state());
    }

    #[test]
    fn nobody_counts_on_a_replica_without_a_state_before_its_application_is_fit() {
        let mut replica = lost((&SYNCED, AcceptorStorage::Synced));
        step(&mut replica, Time(1), Input::Unfit);
        assert!(does_without(&mut replica, true) && !replica.has_state());
        let now = replica.now;
        step(&mut replica, now, Input::Installed { position: 0, needs: 0 });
        assert!(replica.has_state());
    }

    #[test]
    fn a_checkpoint_that_holds_nothing_of_the_group_is_a_state_too() {
        let mut replica = lost((&SYNCED, AcceptorStorage::Synced));
        step(&mut replica, Time(1), Input::Installed { position: 0, needs: 0 });
        assert!(replica.has_state());
        let mut replica = lost((&MEMORY, AcceptorStorage::Memory));
        step(&mut replica, Time(1), Input::Installed { position: 0, needs: 0 });
        assert!(!replica.has_state());
    }

    #[test]
    fn what_an_installed_state_holds_counts_as_applied() {
        let mut reader = reader(&[("apply_bytes", "1")]);
        let out = &mut Outbox::default();
        let batch = |seq| {
            let (msg, dst) = (MsgId { sender: Pid(1), seq }, GroupSet::one(Gid(0)));
            let mut bytes = Vec::new();
            RingProposal { msg, incarnation: 0, number: seq, dst, payload: b"x" }
                .encode(&mut bytes);
            InstanceValue::Batch(SharedBytes::from(&bytes[..]))
        };
        let point = |merged, place| MergePosition { merged, place };
        reader.continue_from(point(4, 1).position(), point(5, 0), out);
        let mut deliver = |reader: &mut MultiRing, merged| {
            reader.merge.next = point(merged, 0);
            reader.merge.deliver(&batch(merged), out);
            reader.merge.next = point(merged + 1, 0);
            let config = Arc::clone(&reader.config);
            matches!(reader.merge.run(&reader.rings, &config, out), MergeStall::ApplicationBusy)
        };
        // The application reports nothing before it has its state.
        assert!(deliver(&mut reader, 5));
        let state = Input::Installed { position: point(7, 1).position(), needs: 1 };
        step(&mut reader, Time(2), state);
        assert!(reader.has_state());
        // It will report no message that is in the state, delivered before or after the state came; the log must keep
        // the instances that are still to be merged.
        assert_eq!(reader.merge.applied_point(), point(6, 0));
        assert!(!deliver(&mut reader, 6) && !deliver(&mut reader, 7));
        assert_eq!(reader.merge.applied_point(), point(8, 0));
        assert!(deliver(&mut reader, 8));
        assert_eq!(reader.merge.applied_point(), point(8, 0));
    }

    #[test]
    fn patience_with_answers_grows_up_to_a_second_however_short_a_retry_is() {
        let mut reader =
            reader(&[("retry_us", "200"), ("heartbeat_us", "50"), ("suspect_us", "200")]);
        let mut waits = Vec::new();
        for _ in 0..14 {
            reader.now = reader.state_query_at();
            reader.query_state(&mut Outbox::default());
            waits.push(reader.state_query_at().since(reader.now));
        }
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]), "{waits:?}");
        assert!(waits[0] < Span::millis(10));
        assert_eq!(waits.last(), Some(&Span::secs(1)));
    }
}
