//! Recovery of an acceptor that lost its storage, its memory or its disk: it gets back what it promised and
//! accepted from the other acceptors of its group before it votes again.
//!
//! ```text
//!   Intact --storage lost--> Asking --answers of enough others--> Writing --durable--> Intact
//!                              ^           (phase 1B for every ring)
//!   Lost (in the log) ---------+ at the start of the process
//! ```
//!
//! A loss that the driver reports ([`Input::Lost`](amcast_core::Input::Lost)) is reported at each start until the
//! recovery is durable (`ProtocolEvent::StorageRecovered`), and nothing else says so: where the others are gone for
//! good, an operator may end it. A loss that the log itself shows is recorded there ([`LogRecord::StorageLost`]),
//! because what is learned meanwhile may hide it from the next start.
//!
//! Each loss begins a new *storage epoch* of the acceptor, with a number (a vector of these is what others
//! call a crash vector). The acceptor asks the others. Each of them, before it answers with all that it
//! has, stops to count votes and promises of older epochs, also of those that are still in flight; and with
//! every vote that it sends on it says which epoch counts (`successor.rs`), so that any process that needs
//! its vote does not count the lost one, asked or not. With answers of `n - q + 1` others the acceptor
//! continues, where `q` of the `n` acceptors are a quorum: with 3 of them 2, with 4 of them 2, with 5 of them 3.
//!
//! # Why `n - q + 1` answers suffice
//! Let a quorum have decided a value with a vote of the lost epoch. All but `n - q` acceptors are in it, so one of
//! the `n - q + 1` is.
//! Either it had voted when it answered, and the value is in its answer; or it votes later, and then every
//! process that hears of that vote does not count the lost one. The same holds of promises, which carry
//! what their senders know of epochs. (Mutants `forgets-that-it-forgot`, `asks-too-few`,
//! `remembers-nothing`, `remembers-the-longest-log`, `counts-on-lost-memories`, `passes-on-lost-votes`.)
//!
//! No answer of so many can be spared. So the acceptor asks a peer that it does not reach via another one
//! of its group, too, which forwards the request and, unchanged, the answer. A forwarder keeps nothing, and
//! forwards only messages that come from the sender itself.

use super::MultiRingMutant;
use super::message::{ForwardedMessage, RecoveryRequest, RingMessage, RingPacket};
use super::persistence::{DurableAction, LogRecord};
use super::phase1::is_contiguous;
use super::process::MultiRing;
use super::topology::{RingId, ring_for};
use super::value::{INSTANCE_MAX, InstanceEntry, RingBallot};
use alloc::boxed::Box;
use alloc::vec::Vec;
use amcast_core::messages::Messages;
use amcast_core::step::Note;
use amcast_core::{GroupSet, Outbox, Pid, Time};

/// Whether an acceptor has its promises and accepted values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum StorageState {
    /// It has all of it, and votes.
    #[default]
    Intact,
    /// Its log says that an earlier incarnation found it lost, and had not recovered it.
    Lost,
    /// It asks the other acceptors of its group for it.
    Asking,
    /// A quorum has answered, and the answer is being written.
    Writing,
}

/// The evidence of a later start that the storage is lost, as long as it is not recovered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LossEvidence {
    /// The driver alone.
    Driver,
    /// The log.
    Log,
}

/// The recovery of an acceptor that lost its storage.
#[derive(Clone, Debug, Default)]
pub(super) struct AcceptorRecovery {
    /// By process: the storage epoch whose votes and promises count.
    pub(super) epochs: Vec<u32>,
    pub(super) state: StorageState,
    /// By rank: entries that came before the answer that they belong to.
    partial: Vec<PartialAnswer>,
    /// By rank, and by ring: the answer.
    answers: Vec<Vec<Option<RecoveryAnswer>>>,
    /// The number of the last request.
    asked: u32,
    asked_at: Option<Time>,
}

impl AcceptorRecovery {
    /// All of so many processes are in their first storage epoch.
    pub(super) fn new(processes: usize) -> Self {
        Self { epochs: alloc::vec![0; processes], ..Self::default() }
    }

    /// Whether the acceptor has lost its promises and accepted proposals: it must not vote.
    pub(super) fn is_needed(&self) -> bool {
        self.state != StorageState::Intact
    }
}

/// The beginning of an answer.
#[derive(Clone, Debug)]
struct PartialAnswer {
    /// The request that it answers: answers to different requests are not mixed.
    request: u32,
    /// By ring.
    entries: Vec<Vec<InstanceEntry>>,
}

impl PartialAnswer {
    /// The entries that came for a ring in answer to this request; none if a later one is being answered.
    fn of(&mut self, request: u32, ring: RingId) -> Option<&mut Vec<InstanceEntry>> {
        if request > self.request {
            self.request = request;
            self.entries.iter_mut().for_each(Vec::clear);
        }
        self.entries.get_mut(usize::from(ring)).filter(|_| request == self.request)
    }
}

/// The answer of an acceptor about one ring. Its entries arrive before it, one in each message.
#[derive(Clone, Debug)]
struct RecoveryAnswer {
    promised: RingBallot,
    learned: u64,
    adopted: RingBallot,
    entries: Vec<InstanceEntry>,
    storage_epochs: Vec<u32>,
}

impl MultiRing {
    /// The storage of earlier incarnations is lost: begins a new storage epoch.
    pub(super) fn lose_storage(&mut self, evidence: LossEvidence) {
        let (ranks, rings) = (self.config.cluster.replicas(), self.rings.len());
        self.recovery.epochs[self.me.index()] = self.incarnation;
        let record = match evidence {
            LossEvidence::Log => LogRecord::StorageLost { storage_epoch: self.incarnation },
            // The others count votes of this storage epoch from now on, also if an operator ends the loss.
            LossEvidence::Driver => LogRecord::StorageEpochs { of: self.group_storage_epochs() },
        };
        self.persistence.writes.write(record, None);
        let partial = PartialAnswer { request: 0, entries: alloc::vec![Vec::new(); rings] };
        self.recovery = AcceptorRecovery {
            epochs: core::mem::take(&mut self.recovery.epochs),
            state: StorageState::Asking,
            partial: alloc::vec![partial; ranks],
            answers: alloc::vec![alloc::vec![None; rings]; ranks],
            ..AcceptorRecovery::default()
        };
    }

    /// Whether this process asks other acceptors for its lost promises.
    fn is_asking(&self) -> bool {
        self.recovery.state == StorageState::Asking
    }

    pub(super) fn recovery_at(&self) -> Time {
        match self.recovery.asked_at {
            _ if !self.is_asking() => Time::NEVER,
            None => self.now,
            Some(at) => at + self.config.retry,
        }
    }

    /// Asks the other acceptors for the promises and accepted values of this one. An acceptor that has answered in full
    /// is not asked again: a later answer would reach further, and where answers take longer than the retry
    /// interval, this process would never learn all that the last one knew.
    pub(super) fn request_recovery(&mut self) {
        if self.recovery_at() > self.now {
            return;
        }
        self.recovery.asked_at = Some(self.now);
        for p in self.group_peers() {
            if self.has_answered(p) {
                continue;
            }
            let message = self.request();
            self.send(p, message);
            if let Some(by) = self.forwarder_to(p) {
                let (message, own) = (self.request(), (self.me, self.incarnation));
                self.send(by, forwarded(own, p, message));
            }
        }
    }

    /// The next request.
    fn request(&mut self) -> RingMessage {
        self.recovery.asked += 1;
        let (storage_epoch, number) = (self.recovery.epochs[self.me.index()], self.recovery.asked);
        RingMessage::RecoveryRequest { request: RecoveryRequest { storage_epoch, number } }
    }

    /// Whether another acceptor has answered for all rings.
    fn has_answered(&self, p: Pid) -> bool {
        let Some(answers) = self.rank_of(p).and_then(|rank| self.recovery.answers.get(rank)) else {
            return false;
        };
        self.voted_rings().all(|id| answers.get(usize::from(id)).is_some_and(Option::is_some))
    }

    /// A forwarder to a peer that is not reached, a different one each time.
    fn forwarder_to(&self, p: Pid) -> Option<Pid> {
        if self.reaches(p) {
            return None;
        }
        let own = ring_for(&self.config.rings, GroupSet::one(self.group))?;
        let mut forwarders = self.forwarders(own, p);
        forwarders.retain(|&by| by != p && self.reaches(by));
        let turn = self.recovery.asked as usize % forwarders.len().max(1);
        forwarders.get(turn).copied()
    }

    /// A forwarded message of recovery, for this process or to be forwarded.
    pub(super) fn on_forwarded(
        &mut self,
        by: Pid,
        forwarded: ForwardedMessage,
        out: &mut Outbox<Messages<RingPacket>>,
    ) -> Result<(), &'static str> {
        let processes = self.config.cluster.processes();
        let group_peer = |p: Pid| p.index() < processes && self.rank_of(p).is_some();
        if !group_peer(forwarded.sender) {
            return Err("a message to be forwarded from a process that is not in this group");
        }
        if forwarded.to == self.me {
            if self.is_current_incarnation(forwarded.sender, forwarded.incarnation) {
                self.dispatch_recovery((forwarded.sender, Some(by)), forwarded.message, out);
            }
            return Ok(());
        }
        if by != forwarded.sender || !group_peer(forwarded.to) {
            return Err("a message that this process does not forward");
        }
        self.send(forwarded.to, RingMessage::Forwarded(Box::new(forwarded)));
        Ok(())
    }

    /// A message of recovery, and the forwarder that it came via, if any.
    pub(super) fn dispatch_recovery(
        &mut self,
        (from, by): (Pid, Option<Pid>),
        message: RingMessage,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        match message {
            RingMessage::RecoveryRequest { request } => {
                self.on_recovery_request((from, by), request)
            }
            RingMessage::RecoveryEntry { ring, request, entry } => {
                self.on_recovery_entry(from, ring, request, entry);
            }
            RingMessage::RecoveryResponse {
                ring,
                request,
                promised,
                learned,
                adopted,
                count,
                storage_epochs,
            } => {
                let entries = Vec::new();
                let answer = RecoveryAnswer { promised, learned, adopted, entries, storage_epochs };
                self.on_recovery_response(from, ring, request, count, answer, out);
            }
            _ => out.note(Note::Malformed(from, "a message that is not of recovery")),
        }
    }

    /// The rings in which this process is an acceptor.
    fn voted_rings(&self) -> impl Iterator<Item = RingId> + '_ {
        let votes = |id: &RingId| {
            self.rings[usize::from(*id)].as_ref().is_some_and(|ring| ring.acceptor.index.is_some())
        };
        (0..self.rings.len() as RingId).filter(votes)
    }

    fn on_recovery_request(&mut self, (from, by): (Pid, Option<Pid>), request: RecoveryRequest) {
        let storage_epoch = request.storage_epoch;
        if !self.may_vote() || self.rank_of(from).is_none() {
            return;
        }
        let held = self.recovery.epochs[from.index()];
        if storage_epoch < held {
            return;
        }
        if !self.config.mutants.is(MultiRingMutant::CountsLostEpochs) {
            self.recovery.epochs[from.index()] = storage_epoch;
        }
        let storage_epochs: Vec<u32> = self.group_storage_epochs();
        let mut messages = Vec::new();
        for id in self.voted_rings() {
            let Some(ring) = &self.rings[usize::from(id)] else { continue };
            let entries = ring.undecided_entries();
            let count = entries.len() as u32;
            let learned = ring.learner.learned;
            let promised = ring.acceptor.promised;
            let adopted = ring.acceptor.adopted;
            let recalled = entries.into_iter();
            messages.extend(recalled.map(|entry| RingMessage::RecoveryEntry {
                ring: id,
                request,
                entry,
            }));
            let storage_epochs = storage_epochs.clone();
            let ring = id;
            messages.push(RingMessage::RecoveryResponse {
                ring,
                request,
                promised,
                learned,
                adopted,
                count,
                storage_epochs,
            });
        }
        if by.is_some() {
            let own = (self.me, self.incarnation);
            messages = messages.into_iter().map(|message| forwarded(own, from, message)).collect();
        }
        let act = DurableAction::Send { to: by.unwrap_or(from), messages };
        self.persistence.writes.write(LogRecord::StorageEpochs { of: storage_epochs }, Some(act));
    }

    /// By rank: the storage epoch of each acceptor of this group that counts.
    pub(super) fn group_storage_epochs(&self) -> Vec<u32> {
        let members = self.config.cluster.members(self.group);
        members.map(|p| self.recovery.epochs[p.index()]).collect()
    }

    /// Whether a request is of this storage epoch and not answered completely.
    fn is_open(&self, request: RecoveryRequest) -> bool {
        let current = request.storage_epoch == self.recovery.epochs[self.me.index()];
        let asked = request.number <= self.recovery.asked;
        current && asked && self.is_asking()
    }

    fn on_recovery_entry(
        &mut self,
        from: Pid,
        ring: RingId,
        request: RecoveryRequest,
        entry: InstanceEntry,
    ) {
        if let Some(rank) = self.rank_of(from).filter(|_| self.is_open(request))
            && let Some(partial) = self.recovery.partial[rank].of(request.number, ring)
        {
            partial.push(entry);
        }
    }

    fn on_recovery_response(
        &mut self,
        from: Pid,
        ring: RingId,
        request: RecoveryRequest,
        count: u32,
        mut answer: RecoveryAnswer,
        out: &mut Outbox<Messages<RingPacket>>,
    ) {
        let ranks = self.config.cluster.replicas();
        let Some(rank) = self.rank_of(from).filter(|_| self.is_open(request)) else { return };
        if usize::from(ring) >= self.rings.len() || answer.storage_epochs.len() != ranks {
            return out.note(Note::Malformed(from, "an answer for another cluster"));
        }
        let partial = self.recovery.partial[rank].of(request.number, ring);
        answer.entries = partial.map(core::mem::take).unwrap_or_default();
        if answer.entries.len() != count as usize {
            // Some entries were lost, or a later request is being answered.
            return;
        }
        let processes = self.config.cluster.processes();
        let acceptors = &self.config.rings[usize::from(ring)].acceptors;
        let sound = |entry: &InstanceEntry| entry.makes_sense(acceptors, processes);
        let RecoveryAnswer { promised, learned, adopted, ref entries, .. } = answer;
        let far = learned > INSTANCE_MAX || !promised.max(adopted).is_of(acceptors);
        if far || !entries.iter().all(sound) || !is_contiguous(learned, entries) {
            return out.note(Note::Malformed(from, "an answer with gaps or impossible values"));
        }
        // The one that answers need not be heard: a forwarder may have brought its answer.
        if let Some(ring) = &self.rings[usize::from(ring)] {
            self.start_goals.hear(&ring.topology, ring.id, from, learned);
        }
        self.recovery.answers[rank][usize::from(ring)] = Some(answer);
    }

    /// With answers of enough others, and once this process has learned all that they had and their tables:
    /// takes over the log of the highest adopted ballot, and votes again.
    pub(super) fn finish_recovery(&mut self, out: &mut Outbox<Messages<RingPacket>>) {
        if !self.is_asking() {
            return;
        }
        let rings: Vec<RingId> = self.voted_rings().collect();
        let whole = |answers: &&Vec<Option<RecoveryAnswer>>| {
            rings.iter().all(|&id| answers[usize::from(id)].is_some())
        };
        let answers: Vec<_> = self.recovery.answers.iter().filter(whole).collect();
        let behind = |id: &RingId| {
            let Some(ring) = &self.rings[usize::from(*id)] else { return false };
            let mut answers = answers.iter().filter_map(|a| a[usize::from(*id)].as_ref());
            answers.any(|a| a.learned > ring.learner.learned)
                || ring.proposals.at != ring.learner.learned
        };
        let few = usize::from(self.config.mutants.is(MultiRingMutant::AsksTooFew));
        let enough = self.config.cluster.recovery_answers() - few;
        if answers.len() < enough || rings.iter().any(behind) {
            return;
        }
        let answers: Vec<Vec<Option<RecoveryAnswer>>> = answers.into_iter().cloned().collect();
        self.recovery.state = StorageState::Writing;
        for answer in answers.iter().flatten().flatten() {
            for (rank, &storage_epoch) in answer.storage_epochs.iter().enumerate() {
                let p = self.config.cluster.replica(self.group, rank);
                let held = &mut self.recovery.epochs[p.index()];
                *held = (*held).max(storage_epoch);
            }
        }
        for id in rings {
            let of_ring = || answers.iter().filter_map(|a| a[usize::from(id)].as_ref());
            let promised = of_ring().map(|a| a.promised).max().unwrap_or(RingBallot::NONE);
            let end = |a: &RecoveryAnswer| a.entries.last().map_or(a.learned, InstanceEntry::end);
            let longest = self.config.mutants.is(MultiRingMutant::RecoversTheLongestLog);
            let rank =
                |a: &&RecoveryAnswer| (if longest { RingBallot::NONE } else { a.adopted }, end(a));
            let best = of_ring().max_by_key(rank).cloned();
            self.with_ring(id, |ring, cx| {
                ring.acceptor.promised = ring.acceptor.promised.max(promised);
                let ballot = ring.acceptor.promised;
                cx.writes.write(LogRecord::Promise { ring: id, ballot }, None);
                // From now on the table is kept here, too, although not from the beginning.
                cx.writes.write(ring.trim_base(), None);
                let takes = !cx.config.mutants.is(MultiRingMutant::RecoversNothing);
                if let Some(RecoveryAnswer { adopted, entries, .. }) = best.filter(|_| takes) {
                    ring.restore_accepted(adopted, entries, cx);
                }
            });
        }
        let of = self.group_storage_epochs();
        let record = LogRecord::StorageEpochs { of };
        // It votes again once that is durable, in asynchronous storage, too: an acceptor that voted before, and died, would count
        // as lost once more, and could be missing to another one that has lost its storage meanwhile.
        self.persistence.writes.write(record, Some(DurableAction::Recovered));
        out.mark("multiring-remembers");
    }
}

/// A message of one incarnation of a process, to be forwarded.
fn forwarded((sender, incarnation): (Pid, u32), to: Pid, message: RingMessage) -> RingMessage {
    RingMessage::Forwarded(Box::new(ForwardedMessage { sender, incarnation, to, message }))
}

#[cfg(test)]
mod tests {
    use crate::multiring::SYNCED;
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use amcast_core::codec::Codec;
    use amcast_core::messages::MessageInput;
    use amcast_core::{
        Entry, Input, Outbox, Output, Pid, Protocol, ProtocolProcess, RawConfig, Time,
    };

    use super::super::MultiRingConfig;
    use super::super::message::{RecoveryRequest, RingMessage, RingPacket};
    use super::super::persistence::AcceptorStorage;
    use super::super::value::InstanceValue;
    use super::{LogRecord, MultiRing, PartialAnswer, RingBallot, forwarded};

    /// A life of a process that restarts with these records in its log.
    struct RestartedLife {
        votes: bool,
        /// The log that the next life finds.
        log: Vec<Vec<u8>>,
    }

    fn restart(records: &[&[u8]], incarnation: u32, is_lost: bool) -> RestartedLife {
        let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        let config = raw.check(SYNCED.about().params).expect("a sound configuration");
        let Ok(ProtocolProcess::Messages(mut node)) = SYNCED.build(Pid(0), &config) else {
            panic!("it sends messages")
        };
        let mut out = Outbox::default();
        for (number, record) in (0..).zip(records) {
            node.step(Time(1), (), Input::Stored { number, record }, &mut out);
        }
        if is_lost {
            node.step(Time(1), (), Input::Lost, &mut out);
        }
        node.step(Time(1), (), Input::Start { incarnation }, &mut out);
        let mut log: Vec<Vec<u8>> = records.iter().map(|record| record.to_vec()).collect();
        for item in out.items() {
            if let Output::Persist { record, .. } = item {
                log.push(out.bytes(*record).to_vec());
            }
        }
        RestartedLife { votes: node.fit(), log }
    }

    /// Whether a process that restarts with these records in its log votes.
    fn votes(records: &[&[u8]]) -> bool {
        restart(records, 1, false).votes
    }

    fn slices(log: &[Vec<u8>]) -> Vec<&[u8]> {
        log.iter().map(|record| &**record).collect()
    }

    fn bytes(record: &LogRecord) -> Vec<u8> {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        bytes
    }

    fn accepted(first: u64) -> Vec<u8> {
        bytes(&LogRecord::Accept { ring: 0, learned: 0, adopted: true, entry: entry(first) })
    }

    #[test]
    fn an_acceptor_whose_log_has_a_gap_does_not_vote() {
        let all: Vec<Vec<u8>> = (0..4).map(accepted).collect();
        let [a, b, c, d] = [0, 1, 2, 3].map(|at: usize| &*all[at]);
        assert!(votes(&[a, b, c, d]) && votes(&[a, b]));
        assert!(!votes(&[b, c, d]), "its beginning is missing");
        assert!(!votes(&[a, b, d]));
        // A value that it learns meanwhile fills the gap, and does not bring back its promises.
        let mut log = restart(&[a, b, d], 1, false).log;
        log.push(bytes(&LogRecord::Learn { ring: 0, entry: entry(2) }));
        assert!(!restart(&slices(&log), 2, false).votes);
    }

    #[test]
    fn a_loss_that_the_driver_reports_lasts_as_long_as_it_does() {
        let promise = bytes(&LogRecord::Promise { ring: 0, ballot: RingBallot::new(1, Pid(0)) });
        let first = restart(&[&promise], 1, true);
        let second = restart(&slices(&first.log), 2, true);
        assert!(!first.votes && !second.votes);
        // The others are gone for good, and an operator has removed the mark.
        assert!(restart(&slices(&second.log), 3, false).votes);
    }

    #[test]
    fn an_answer_with_a_gap_does_not_count() {
        let raw = RawConfig { groups: 1, clients: 0, ..RawConfig::default() };
        let config = raw.check(SYNCED.about().params).expect("a sound configuration");
        let shape = MultiRingConfig::of(AcceptorStorage::Synced, &config).expect("a sound shape");
        let mut replica = MultiRing::new(Pid(0), &Arc::new(shape));
        let mut step = |input| replica.step(Time(1), (), input, &mut Outbox::default());
        [Input::Lost, Input::Start { incarnation: 1 }, Input::Wake].into_iter().for_each(&mut step);
        let request = RecoveryRequest { storage_epoch: 1, number: 1 };
        for (from, firsts) in [(Pid(1), [0, 2]), (Pid(2), [0, 1])] {
            let ballot = RingBallot::new(1, Pid(1));
            let entries = firsts.map(|first| RingMessage::RecoveryEntry {
                ring: 0,
                request,
                entry: entry(first),
            });
            let answer = RingMessage::RecoveryResponse {
                ring: 0,
                request,
                promised: ballot,
                learned: 0,
                adopted: ballot,
                count: 2,
                storage_epochs: alloc::vec![1, 0, 0],
            };
            for message in entries.into_iter().chain([answer]) {
                let packet = RingPacket { incarnation: 0, message };
                step(Input::Medium(MessageInput::From(from, packet)));
            }
        }
        assert_eq!([Pid(1), Pid(2)].map(|p| replica.has_answered(p)), [false, true]);
    }

    #[test]
    fn an_acceptor_with_a_log_that_it_cannot_read_does_not_vote() {
        let mut promise = Vec::new();
        LogRecord::Promise { ring: 0, ballot: RingBallot::new(1, Pid(0)) }.encode(&mut promise);
        assert!(votes(&[&promise]) && votes(&[]));
        assert!(!votes(&[&promise, &[99, 1, 2]]));
        assert!(!votes(&[&promise[..promise.len() - 1], &promise]));
    }

    fn entry(first: u64) -> super::InstanceEntry {
        super::InstanceEntry {
            first,
            ballot: RingBallot::new(1, Pid(0)),
            value: InstanceValue::Skip(1),
        }
    }

    #[test]
    fn answers_that_come_via_two_forwarders_are_not_mixed() {
        let mut partial = PartialAnswer { request: 0, entries: alloc::vec![Vec::new(); 2] };
        partial.of(3, 0).expect("the first").push(entry(5));
        partial.of(3, 1).expect("of another ring").push(entry(7));
        assert!(partial.of(2, 0).is_none(), "of an earlier question");
        assert!(partial.of(4, 0).is_some_and(|entries| entries.is_empty()));
        partial.of(4, 0).expect("it is the last").push(entry(6));
        assert_eq!(partial.of(4, 0), Some(&mut alloc::vec![entry(6)]));
        assert!(partial.of(3, 0).is_none() && partial.of(4, 2).is_none());
    }

    #[test]
    fn only_messages_of_recovery_are_forwarded() {
        let request = RecoveryRequest { storage_epoch: 3, number: 7 };
        let read = |message: &RingMessage| {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            RingMessage::decode(&mut amcast_core::codec::ByteReader::new(&bytes)).ok()
        };
        for message in [
            RingMessage::RecoveryRequest { request },
            RingMessage::RecoveryEntry { ring: 1, request, entry: entry(9) },
        ] {
            let forwarded = forwarded((Pid(2), 4), Pid(0), message);
            assert_eq!(read(&forwarded), Some(forwarded));
        }
        let others = [
            RingMessage::StateQuery { attempt: 1 },
            forwarded((Pid(2), 4), Pid(0), RingMessage::RecoveryRequest { request }),
        ];
        for message in others {
            assert_eq!(read(&forwarded((Pid(2), 4), Pid(0), message)), None);
        }
    }
}
