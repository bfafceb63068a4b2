//! The host of a node's replicas: it passes their deliveries to the application, answers to the
//! gateways, and the state to the disk and to other nodes. [`amcast_smr::recovery`] restores the
//! state.

use crate::checkpoint::{Checkpoints, Restored};
use crate::clock;
use crate::control::ViewStatus;
use crate::diagnostics;
use crate::ingress::MayRead;
use crate::memory_driver::UpperLayer;
use crate::node_history::NodeHistory;
use crate::read_table::{NodeRead, ReadAttempt, ReadTable};
use crate::replica_log::LogVolume;
use crate::reply_sink::ReplySink;
use crate::skips::NodeSkips;
use crate::state_transfer::{OutgoingState, StateFetch, TransferEvent};
use amcast_core::step::{Note, Ticket};
use amcast_core::{
    ClusterShape, Delivery, EarlyDelivery, Gid, MsgId, Outcome, Pid, ProtocolEvent, Span, Time,
};
use amcast_smr::application::{Application, LocalReadResult};
use amcast_smr::recovery::{Adoption, MemberView, Recovery, TakeOver, TakenDelivery, WantedState};
use amcast_storage::StorageError;
use std::sync::mpsc::Receiver;

/// The overhead of an item in a saved state beside its counted size, in bytes.
const ITEM_BYTES: u64 = 128;

/// A larger buffer for answers to reads is given back.
const ANSWER_BYTES_KEPT: usize = 1 << 20;

/// How often a state is asked for while this program does not read those that other nodes give: each comes whole first.
const ASK_UNREAD_EVERY: Span = Span::secs(10);

/// States of other nodes that this program did not read since one was installed.
#[derive(Default)]
struct UnreadStates {
    /// Why the last one was not, for people, and the node that gave it.
    last: Option<(String, String)>,
    /// When another one may be asked for.
    again_at: Time,
}

impl UnreadStates {
    /// That of the node `from` was not read at `now`. The log has a line for each reason, and none where all nodes give
    /// such a state in turn.
    fn found(&mut self, from: String, why: String, now: Time) {
        if self.last.as_ref().is_none_or(|(last, _)| *last != why) {
            tracing::error!("this program does not read the state of another node: {from}: {why}");
        }
        (self.last, self.again_at) = (Some((why, from)), now + ASK_UNREAD_EVERY);
    }
}

/// Everything of a node except the drivers of its replicas.
pub(crate) struct ReplicaHost<A: Application> {
    pub(crate) cluster: ClusterShape,
    /// The application, and how its state comes back.
    pub(crate) recovery: Recovery<A>,
    pub(crate) reply_sink: ReplySink,
    pub(crate) node_history: Option<NodeHistory>,
    giving: OutgoingState,
    /// The state that is on its way here.
    fetching: Option<StateFetch<A::State>>,
    /// The states of other nodes that this program does not read.
    unread: UnreadStates,
    /// Where the application's state is written, if it is.
    checkpoints: Option<Checkpoints>,
    /// Reads that are not ordered.
    pub(crate) reading: ReadTable,
    /// The answer to one, reused.
    answer: Vec<u8>,
    /// The messages that are not executed here, by decision of the operators.
    pub(crate) skips: NodeSkips,
    /// How many of these are in the state that was saved or taken over last.
    skipped: usize,
    /// Whether it takes in nothing, since too much waits for the application.
    is_full: bool,
}

impl<A: Application> ReplicaHost<A> {
    /// A host whose application is empty; `reborn` if it had a state in an earlier life. It gives its state to other
    /// nodes with at most `per_second` bytes in a second, at first; none for any number.
    pub(crate) fn new(
        cluster: ClusterShape,
        app: A,
        reply_sink: ReplySink,
        node_history: Option<NodeHistory>,
        (reborn, per_second): (bool, Option<u64>),
    ) -> Self {
        Self {
            cluster,
            recovery: Recovery::new(cluster, app, reborn),
            reply_sink,
            node_history,
            giving: OutgoingState::at_most(per_second),
            fetching: None,
            unread: UnreadStates::default(),
            checkpoints: None,
            reading: ReadTable::of(cluster.groups()),
            answer: Vec::new(),
            skips: NodeSkips::default(),
            skipped: 0,
            is_full: false,
        }
    }

    /// The application's state is written to disk from now on. It continues from the one that was
    /// there.
    ///
    /// # Errors
    /// When other messages were skipped in that than are skipped here; the sentence says so.
    pub(crate) fn keep_state(
        &mut self,
        checkpoints: Checkpoints,
        restored: Option<Restored<A::State>>,
    ) -> Result<(), String> {
        self.checkpoints = Some(checkpoints);
        let Some(Restored { state, history }) = restored else { return Ok(()) };
        let positions = self.recovery.restore(state)?;
        tracing::info!("continues from the state on disk, at {positions:?}");
        self.record_taken_over(&history, "the disk");
        self.skipped = self.count_skipped();
        Ok(())
    }

    /// Records what came with a state, which is in force.
    fn record_taken_over(&mut self, history: &[u8], from: &str) {
        let positions = self.recovery.positions();
        if let Some(node_history) = &mut self.node_history
            && let Err(why) = node_history.take_over(clock::now(), history, &positions)
        {
            tracing::error!("the history is not whole: {from}: {why}");
        }
    }

    /// Saves the application's state when it is time, by the volume of the replicas' logs; returns
    /// the positions of one that has become durable.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub(crate) fn checkpoint(
        &mut self,
        logged: LogVolume,
    ) -> Result<Option<Vec<u64>>, StorageError> {
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(None) };
        checkpoints.logged(logged);
        let (app, groups) = (&self.recovery.app, self.cluster.all_groups());
        let holds = |g| app.figures(g).used_bytes + ITEM_BYTES * app.figures(g).items;
        checkpoints.look_at_room(clock::now(), || groups.iter().map(holds).sum());
        let saved = checkpoints.poll()?;
        let executed = || groups.iter().map(|g| app.delivered(g)).sum();
        if checkpoints.is_due(executed) && self.may_save() {
            self.save();
        }
        Ok(saved)
    }

    /// Whether there is a state to save; and one state is given at a time.
    fn may_save(&self) -> bool {
        self.recovery.has_state() && !self.giving.is_going()
    }

    /// Begins to save the state as it is now.
    fn save(&mut self) {
        let Some(checkpoints) = &mut self.checkpoints else { return };
        let mut history = Vec::new();
        if let Some(node_history) = &self.node_history {
            node_history.write(&mut history);
        }
        let positions = self.recovery.positions();
        checkpoints.begin(&mut self.recovery.app, positions, &history);
    }

    /// The node is to end: saves what was executed since the last time, whether it is due or not, so
    /// that the next life has little to read. Whether a state is on its way to the disk.
    pub(crate) fn save_last(&mut self) -> bool {
        let may = self.may_save();
        let Some(checkpoints) = &mut self.checkpoints else { return false };
        checkpoints.hurry();
        if checkpoints.is_idle() && checkpoints.has_more() && may {
            self.save();
        }
        self.is_saving()
    }

    /// Whether a state is on its way to the disk.
    pub(crate) fn is_saving(&self) -> bool {
        self.checkpoints.as_ref().is_some_and(|checkpoints| !checkpoints.is_idle())
    }

    /// Whether it has something to do soon that no doorbell announces.
    pub(crate) fn is_pressing(&self) -> bool {
        let saves = self.checkpoints.as_ref().is_some_and(Checkpoints::is_giving);
        let reads = self.reading.is_pressing();
        self.reply_sink.is_pressing() || self.giving.is_going() || saves || reads
    }

    fn has_left(&mut self, p: Pid) {
        if let Some(node_history) = &mut self.node_history {
            node_history.left(clock::now(), p);
        }
    }

    /// The members of the view, a bit for each node, where groups have views.
    pub(crate) fn members(&self) -> Option<u32> {
        self.recovery.view().filter(|view| !view.is_over).map(|view| view.members)
    }

    /// Takes the answers of what the application executed in its own threads.
    pub(crate) fn collect(&mut self, now: Time) -> bool {
        let any = self.collect_reads(now);
        any | self.recovery.app.collect(&mut answerer(&mut self.reply_sink, self.cluster))
    }

    /// Takes what became of reads that the application answers in its own threads.
    fn collect_reads(&mut self, now: Time) -> bool {
        let Self { recovery: Recovery { app, .. }, reply_sink, reading, .. } = self;
        let ReplySink::Ingress(ingress, _) = reply_sink else { return false };
        app.collect_reads(&mut |group, number, peeked, bytes| match peeked {
            LocalReadResult::Answered(outcome) => {
                if let Some(read) = reading.answered(group, number) {
                    ingress.take_back_read(&read);
                    ingress.answer_read(&read, outcome, bytes);
                }
            }
            LocalReadResult::Later | LocalReadResult::NotYet | LocalReadResult::Busy => {
                reading.put_back(group, (number, now), &mut |read| ingress.take_back_read(read));
            }
            LocalReadResult::Never => {
                let mut back = |read: &NodeRead| ingress.take_back_read(read);
                if let Some(read) = reading.refused(group, (number, now), &mut back) {
                    ingress.order(read);
                }
            }
        })
    }

    /// Gives the application what waits for it, as far as it takes it.
    pub(crate) fn drain(&mut self) -> bool {
        let Self { recovery, reply_sink, node_history, checkpoints, cluster, .. } = self;
        let mut answer = answerer(reply_sink, *cluster);
        recovery.drain(&mut answer, &mut |taken| note_delivery(node_history, checkpoints, taken))
    }

    /// Answers reads whose barriers are passed; those that wait for too long are ordered. Whether there was
    /// anything to do.
    pub(crate) fn read(&mut self, now: Time) -> bool {
        if self.reading.is_empty() {
            return false;
        }
        let (is_live, mut any) = (self.recovery.is_live(), false);
        let Self { recovery: Recovery { app, .. }, reply_sink, reading, answer, .. } = self;
        let ReplySink::Ingress(ingress, _) = reply_sink else { return false };
        for group in self.cluster.all_groups().iter().filter(|_| is_live) {
            let at = (app.delivered(group), now);
            any |= reading.serve(group, at, &mut |number, read| {
                match ingress.may_read(&read) {
                    MayRead::Now => {}
                    MayRead::NotYet => return ReadAttempt::NotYet(read),
                    MayRead::Held => return ReadAttempt::Held(read),
                    MayRead::Gone => return ReadAttempt::Done,
                }
                answer.clear();
                match app.peek(group, number, &read.bytes, answer) {
                    LocalReadResult::Answered(outcome) => {
                        ingress.answer_read(&read, outcome, answer)
                    }
                    LocalReadResult::Later => {
                        ingress.give_read(&read);
                        return ReadAttempt::Later(read);
                    }
                    LocalReadResult::NotYet => return ReadAttempt::NotYet(read),
                    LocalReadResult::Busy => return ReadAttempt::Held(read),
                    LocalReadResult::Never => ingress.order(read),
                }
                ReadAttempt::Done
            });
        }
        app.flush_reads();
        for read in reading.late(now) {
            ingress.order(read);
            any = true;
        }
        if answer.capacity() > ANSWER_BYTES_KEPT {
            *answer = Vec::new();
        }
        any
    }

    /// A state is asked for from these nodes, by rank, in turn.
    pub(crate) fn expect(&mut self, fetching: StateFetch<A::State>, sources: Vec<usize>) {
        self.recovery.expect(sources);
        self.fetching = Some(fetching);
    }

    /// Takes the news of the state that was asked for, if there are any.
    fn poll_fetching(&mut self) {
        if !self.recovery.is_fetching() {
            self.fetching = None;
        }
        let Some(fetching) = &mut self.fetching else { return };
        match fetching.poll() {
            Some(TransferEvent::Comes) => {
                let old = self.recovery.make_room();
                fetching.go_on();
                if let Some(old) = old {
                    self.stop_giving();
                    free(old);
                }
            }
            Some(TransferEvent::Unreadable { from, why }) => {
                self.unread.found(from, why, clock::now());
            }
            Some(TransferEvent::Ended(fetched)) => {
                if fetched.is_none() {
                    tracing::info!("no node gave its state; asking again");
                }
                self.fetching = None;
                self.recovery.fetched(fetched);
            }
            None => {}
        }
    }

    /// Whether a state may be asked for now: where this program does not read those of the other nodes, only now and then.
    pub(crate) fn may_fetch(&self, now: Time) -> bool {
        now >= self.unread.again_at
    }

    /// The state that the application waits for, for people, if its own is behind.
    pub(crate) fn awaited_state(&self) -> Option<String> {
        let tell = || match &self.unread.last {
            None => "the state is being fetched from another node".to_string(),
            Some((why, from)) => format!(
                "this program does not read the state of another node, and tries it again every {} s: start the \
                 version that the other nodes run ({from}: {why})",
                ASK_UNREAD_EVERY.0 / 1_000_000_000
            ),
        };
        self.recovery.wants_state().then(tell)
    }

    /// Installs the fetched state, if it has arrived.
    pub(crate) fn take_over(&mut self) {
        self.poll_fetching();
        match self.recovery.take_over() {
            None => {}
            Some(TakeOver::Dropped(why)) => tracing::info!("{why}; asking again"),
            Some(TakeOver::Conflicts(why)) => tracing::error!("{why}"),
            Some(TakeOver::Adopted(Adoption { old, history, from, positions })) => {
                self.unread = UnreadStates::default();
                self.stop_giving();
                free(old);
                self.record_taken_over(&history, &from);
                tracing::info!("has all state again, from {from}, at {positions:?}");
                self.checkpoints.iter_mut().for_each(|c| c.took_over(positions.clone()));
                self.skipped = self.count_skipped();
                // Commands that are executed in this state have no answer here.
                self.lose_commands();
                self.drain();
            }
        }
    }

    /// Whether it takes in no deliveries from now on, or takes them in again, if that is another answer than before.
    pub(crate) fn turns_full(&mut self) -> Option<bool> {
        let is_full = self.recovery.is_full();
        if is_full == std::mem::replace(&mut self.is_full, is_full) {
            return None;
        }
        match is_full {
            true => tracing::warn!("holds the group back: too many deliveries wait here"),
            false => tracing::info!("no longer holds the group back"),
        }
        Some(is_full)
    }

    /// The commands of its gateways may have no answer here: they are sent again.
    fn lose_commands(&mut self) {
        if let ReplySink::Ingress(ingress, _) = &mut self.reply_sink {
            ingress.lose_all();
        }
    }

    /// The outgoing state is not whole any more.
    fn stop_giving(&mut self) {
        self.giving.give_up();
        self.checkpoints.iter_mut().for_each(Checkpoints::give_up);
    }

    /// Begins to give its state to another node, which needs it at these positions at least.
    ///
    /// # Errors
    /// When it has none, or not so far, or one that may be wrong, or gives to another one; the sentence says which.
    pub(crate) fn give(&mut self, wanted: &WantedState) -> Result<Receiver<Vec<u8>>, String> {
        self.recovery.may_give(wanted)?;
        if !self.giving.is_going()
            && let Some(checkpoints) = self.checkpoints.as_mut().filter(|c| c.is_giving())
        {
            // The receiver serves no client until it has the state; the disk has time, and is next.
            if !checkpoints.give_way() {
                return Err("it writes its state to its disk just now".to_string());
            }
            self.recovery.app.release();
        }
        let mut history = Vec::new();
        if let Some(node_history) = &self.node_history {
            node_history.write(&mut history);
        }
        self.giving.begin(&mut self.recovery.app, &history)
    }

    /// Continues to send.
    pub(crate) fn give_on(&mut self) -> bool {
        if self.giving.is_going()
            && let Err(why) = self.recovery.trusts_state()
        {
            // The captured state may have been wrong already.
            tracing::warn!("it gives up to give its state: {why}");
            self.giving.give_up();
            self.recovery.app.release();
        }
        let mut any = self.giving.round(&mut self.recovery.app);
        if let Some(checkpoints) = &mut self.checkpoints {
            any |= checkpoints.round(&mut self.recovery.app);
        }
        any
    }

    /// The view of the replica of the only group, where groups have views.
    pub(crate) fn view(&self) -> Option<ViewStatus> {
        let MemberView { number, members, is_over } = self.recovery.view()?;
        let of = |rank: &usize| members >> rank & 1 == 1;
        let name = |rank| self.cluster.name(self.cluster.replica(Gid(0), rank)).to_string();
        let members = (0..self.cluster.replicas()).filter(of).map(name).collect();
        Some(ViewStatus { number, members, left_out: is_over })
    }

    fn enters_view(&mut self, p: Pid, number: u64, members: u32) {
        if let Some(node_history) = &mut self.node_history {
            let of = |rank: &usize| members >> rank & 1 == 1;
            let ranks = (0..self.cluster.replicas()).filter(of);
            let members: Vec<Pid> = ranks.map(|r| self.cluster.replica(Gid(0), r)).collect();
            node_history.view(clock::now(), p, number, &members);
        }
    }

    /// The group continues without the replica.
    fn is_excluded(&mut self) {
        if let Some(node_history) = &mut self.node_history {
            node_history.begin_anew(clock::now());
        }
        self.lose_commands();
    }

    fn group(&self, p: Pid) -> Gid {
        self.cluster.group_of(p).expect("a node hosts replicas")
    }
}

/// Takes note of a delivery that the application took.
fn note_delivery(
    node_history: &mut Option<NodeHistory>,
    checkpoints: &mut Option<Checkpoints>,
    taken: TakenDelivery,
) {
    if let Some(checkpoints) = checkpoints {
        checkpoints.delivered(taken.bytes);
    }
    if let Some(node_history) = node_history {
        // The round's time may be older than the multicast.
        node_history.deliver(clock::now(), taken.group, taken.position, taken.msg);
    }
}

/// Frees a state: that may take as long as it took to build it.
fn free<S: Send + 'static>(state: S) {
    let thread = std::thread::Builder::new().name("free".to_string());
    let dropped = thread.spawn(move || {
        drop(state);
        amcast_memory::give_back_memory();
    });
    if dropped.is_err() {
        tracing::warn!("no thread to free an old state with: this node was blocked meanwhile");
    }
}

/// Gives an answer to the gateway that asked.
fn answerer(
    reply_sink: &mut ReplySink,
    cluster: ClusterShape,
) -> impl FnMut(MsgId, Outcome, &[u8]) {
    move |msg, outcome, bytes| reply_sink.answer(cluster, msg, outcome, bytes)
}

impl<A: Application> UpperLayer for ReplicaHost<A> {
    fn deliver(&mut self, _: Time, p: Pid, delivery: Delivery, payload: &[u8]) {
        let mut answer = answerer(&mut self.reply_sink, self.cluster);
        if let Some(taken) = self.recovery.deliver(p, delivery, payload, &mut answer) {
            note_delivery(&mut self.node_history, &mut self.checkpoints, taken);
        }
    }

    fn look_ahead(&mut self, p: Pid, deliveries: &mut dyn Iterator<Item = (Delivery, &[u8])>) {
        self.recovery.look_ahead(p, deliveries);
    }

    fn early(&mut self, _: Pid, early: EarlyDelivery, payload: &[u8]) {
        self.recovery.early(early.msg, payload);
    }

    fn passed(&mut self, now: Time, p: Pid, ticket: Ticket) {
        let group = self.group(p);
        self.reading.passed(group, ticket, (self.recovery.stands(group), now));
    }

    fn takes_part_along(&mut self, _: Time, p: Pid, tree: &[u8]) {
        if let Some(node_history) = &mut self.node_history {
            node_history.takes_part_along((clock::now(), p), self.cluster.groups(), tree);
        }
    }

    fn event(&mut self, _: Time, p: Pid, event: ProtocolEvent) {
        diagnostics::log_event(&self.cluster, p, event);
        self.recovery.event(p, event);
        match event {
            ProtocolEvent::Part(m) => {
                if let Some(node_history) = &mut self.node_history {
                    node_history.part(clock::now(), p, m);
                }
            }
            ProtocolEvent::ViewEntered { number, members, .. } => {
                self.enters_view(p, number, members);
            }
            ProtocolEvent::Excluded(_) => self.is_excluded(),
            ProtocolEvent::Left(_) => self.has_left(p),
            ProtocolEvent::Leads(_)
            | ProtocolEvent::Lagging
            | ProtocolEvent::NeedsState { .. }
            | ProtocolEvent::CaughtUp(_)
            | ProtocolEvent::StorageRecovered
            // No service that cannot reconcile is started where components merge.
            | ProtocolEvent::Merged { .. }
            | ProtocolEvent::MayStop(_) => {}
        }
    }

    fn note(&mut self, _: Time, p: Pid, note: Note) {
        diagnostics::log_note(&self.cluster, p, note);
    }
}

mod skipping;
#[cfg(test)]
mod tests;
