//! The step machine: the one shape of every protocol.
//!
//! A protocol has state, takes one input at a time and asks for outputs. It talks through
//! its [`Medium`]. It never blocks, sleeps, reads a clock or draws a random number, so the
//! simulator, the tests and the real carriers run the same code.
//!
//! # Laws of [`Protocol::step`]
//! 1. The same state and inputs give the same outputs, byte for byte.
//! 2. It does bounded work, and in the steady state allocates nothing.
//! 3. `now` never goes back within one process.
//! 4. Malformed or stale input from a peer becomes a [`Note`], never a panic; a broken invariant of
//!    its own is an assertion, also in release builds.
//! 5. A message that promises durability leaves only after [`Input::Durable`] was seen.
//! 6. A report on which a driver must act is an [`Output::Event`], in the order of [`ProtocolEvent`]; nothing depends on a
//!    [`Note`].
//!
//! # The duties of the driver
//! Outputs are carried out in the order in which they were put into the outbox, and all of them
//! before the next input. `Submit` is offered only while [`Protocol::room`] allows it. Each
//! [`ProtocolEvent`] says what it asks of the driver.

use crate::cluster::Overlay;
use crate::early::EarlyDelivery;
use crate::events::ProtocolEvent;
use crate::id::{Gid, GroupSet, MsgId, Pid};
use crate::time::Time;
use alloc::vec::Vec;
use core::fmt;

/// The medium of a protocol: messages, or the memory of other processes.
pub trait Medium: Sized + 'static {
    /// The view that the driver lends the protocol with every input: its own memory, or nothing.
    type View<'a>: Copy;
    /// The inputs from the medium to the protocol.
    type In<'a>;
    /// The requests of the protocol to the medium.
    type Out: fmt::Debug;
}

/// A protocol as a step machine over its medium. See the [module](self) for the laws.
pub trait Protocol {
    /// Its medium.
    type Medium: Medium;

    /// Takes one input and puts what follows from it into `out`.
    fn step(
        &mut self,
        now: Time,
        view: <Self::Medium as Medium>::View<'_>,
        input: Input<'_, Self::Medium>,
        out: &mut Outbox<Self::Medium>,
    );

    /// When to call again with [`Input::Wake`] at the latest, and for what.
    fn deadline(&self) -> Option<(Time, WakeReason)>;

    /// How many submissions of `bytes` bytes each to `dst` it can take now. 0 is back-pressure.
    fn room(&self, dst: GroupSet, bytes: usize) -> usize;

    /// The largest payload it takes, in bytes.
    fn payload_max(&self) -> usize;

    /// Says why each message it knows of and has not delivered still waits.
    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason));

    /// Whether it counts as a working member of its group: false while it misses state that it lost
    /// in a crash, or missed, and has not got back yet.
    fn fit(&self) -> bool {
        true
    }

    /// The replicas of its group that lag and for which it, as the leader, does not wait: a bit for each rank. They may not know it.
    fn lagging(&self) -> u64 {
        0
    }

    /// Its position and progress, for people and for metrics.
    fn status(&self) -> ProtocolStatus;

    /// The tree of the groups that it goes by, and how many changes ([`Input::Overlay`]) have led to it: a replica's
    /// as far as it has delivered, a client's as far as it knows. None where the tree cannot be changed.
    fn overlay(&self) -> Option<(u32, &Overlay)> {
        None
    }
}

/// One input of a step.
#[derive(Debug)]
pub enum Input<'a, M: Medium> {
    /// A record of the process's log that survived its earlier lives, the oldest first; before
    /// [`Input::Start`].
    Stored {
        /// Its number: records are numbered in the order of their [`Output::Persist`], from 0, over
        /// all lives. Those that were trimmed are missing at the front, and no other.
        number: u64,
        /// The record, as it was persisted.
        record: &'a [u8],
    },
    /// Records at the end of the log may be missing, of those that were not awaited: the machine
    /// failed, and not just the process. Between the last [`Input::Stored`] and [`Input::Start`].
    Torn,
    /// The log of the earlier lives is gone altogether, with what was awaited: its medium was replaced.
    /// Before [`Input::Start`], and instead of all [`Input::Stored`] or behind those that are left; at each start until
    /// [`ProtocolEvent::StorageRecovered`].
    Lost,
    /// The process starts. Once, and first but for what its log says.
    Start {
        /// Which life of this process it is: 0 at the first start of the cluster. A later life
        /// has lost its memory and must not act as if it had never promised anything. For a
        /// client it is the number of its lease: another holder of the same place has a higher one.
        incarnation: u32,
    },
    /// The application multicasts. A run of submissions is followed by some other input (`Poll`,
    /// where there is nothing else), so that a protocol may gather them into one batch.
    Submit(Submission<'a>),
    /// The time given by [`Protocol::deadline`] is over (or the driver wakes it early).
    Wake,
    /// The record persisted with this ticket survives a crash from now on, and all before it do.
    Durable(Ticket),
    /// The record that was asked for with [`Output::Load`].
    Loaded {
        /// The ticket of the request.
        ticket: Ticket,
        /// The record; none if it cannot be read: it was trimmed, or its medium is damaged.
        record: Option<&'a [u8]>,
    },
    /// The application's state survives a crash from now on, with every delivery up to this
    /// position: after the next start, [`Input::Installed`] says so at once, and this right behind it.
    Checkpointed(u64),
    /// The application has applied every delivery up to this one, named by its
    /// [`Delivery::position`]; no number between two of them.
    Applied(u64),
    /// The application has a state in force that holds every delivery up to this position: the one that
    /// [`ProtocolEvent::NeedsState`] asked for, a later one, or one from the process's own checkpoint. All that it
    /// holds counts as applied, and [`Input::Applied`] does not report it again. It need not survive a crash: only
    /// [`Input::Checkpointed`] says that.
    Installed {
        /// The position of the last delivery in it.
        position: u64,
        /// How many states this incarnation had asked for ([`ProtocolEvent::NeedsState`]) when this one came into
        /// force: two states may have one position, and the first does not answer the second request.
        needs: u64,
    },
    /// Whether the application takes in no deliveries for now: so much waits for it that it is full. A protocol whose groups
    /// have views delivers no more then, but for the rest of a view that ends, and holds the others back, so that they do
    /// not exclude this process; where it has [`Input::Applied`] to hold back the others it may ignore this. At each
    /// change; a process that starts is not full.
    Full(bool),
    /// The application misses state, for a reason that lies outside of this process's group: nobody
    /// may count on this process until the next [`Input::Installed`].
    Unfit,
    /// The process is about to stop, and is to leave its group before. It takes no more submissions;
    /// [`ProtocolEvent::Left`] or [`ProtocolEvent::MayStop`] says when it may stop. A protocol whose members
    /// are fixed says neither.
    Leave,
    /// The application asks this client for another tree of the groups: a change that is ordered like a message to all of
    /// them. Where several are asked for, each group has them one after the other, in one order. Only where
    /// [`Entry::has_dynamic_overlay`](crate::Entry::has_dynamic_overlay) says so; a tree of another number of groups
    /// is no change.
    Overlay(&'a Overlay),
    /// A barrier: [`Output::Passed`] answers it once everything is delivered here that any replica of
    /// this process's group had delivered when it was set. Only where
    /// [`Capabilities::read_index`] is declared.
    ///
    /// [`Capabilities::read_index`]: crate::Capabilities::read_index
    Barrier(Ticket),
    /// The present claim of an oracle. It may lie as far as the entry's assumptions allow.
    Oracle(Oracle),
    /// The medium speaks.
    Medium(M::In<'a>),
}

/// A claim of an oracle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oracle {
    /// This process seems to have failed.
    Suspect(Pid),
    /// This process seems to work.
    Trust(Pid),
    /// The leader of the group (`leader(g)`).
    Leader(Gid, Pid),
    /// No leader of the group is named any more: the processes choose one by themselves, as before
    /// the first [`Oracle::Leader`].
    NoLeader(Gid),
}

/// A multicast that the application asks for.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// The number the sender gives it: larger than any it gave before.
    pub seq: u64,
    /// The destinations. Not empty.
    pub dst: GroupSet,
    /// The payload (`m.val`), at most [`Protocol::payload_max`] bytes.
    pub payload: &'a [u8],
}

/// Matches an answer to its request. The requester chooses it: the protocol, but for barriers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// One output of a step.
#[derive(Debug)]
pub enum Output<M: Medium> {
    /// A message is delivered.
    Deliver(Delivery),
    /// A message is here, and is delivered when its place is decided.
    ///
    /// *Protocol:* asks for it at most once for each message, before it delivers the message, and only if its driver wants
    /// it ([`Outbox::wants_early`]). It delivers the message later, unless the process fails or is excluded.
    /// *Driver:* an application whose state is not in force is shown none. With an exclusion
    /// ([`ProtocolEvent::Excluded`]) all that are not delivered are void.
    Early(EarlyDelivery),
    /// Append this record of the outbox's bytes to the process's log.
    Persist {
        /// Comes back with [`Input::Durable`] when it is durable, if that is awaited.
        ticket: Ticket,
        /// The record.
        record: PayloadRange,
        /// Whether the protocol waits for [`Input::Durable`]. If not, the record is written soon,
        /// and survives the end of the process, but perhaps not that of the machine.
        awaited: bool,
    },
    /// Read a record of the log again, then say [`Input::Loaded`].
    Load {
        /// Comes back with the record.
        ticket: Ticket,
        /// The number of the record.
        number: u64,
    },
    /// The records before this number are not needed any more.
    Trim {
        /// The first number that is still needed.
        before: u64,
    },
    /// The barrier of this ticket is passed: what it waited for was delivered in front of this, or is in
    /// a state that the process reported in front of it to need. One that is never passed is lost with its process.
    Passed {
        /// The ticket that the driver gave it.
        ticket: Ticket,
    },
    /// The process takes part in ordering messages ([`ProtocolEvent::Part`]) along this tree of groups, from here on: the
    /// [bytes](Overlay::bytes) of it.
    ///
    /// *Protocol:* asks for it only where the tree can be changed
    /// ([`Entry::has_dynamic_overlay`](crate::Entry::has_dynamic_overlay)) and the driver traces: in front of the first
    /// participation of an incarnation, and of each one that goes by another tree than the one before.
    /// *Driver:* writes it into the history, from which the checker judges genuineness.
    Overlay(PayloadRange),
    /// Something that the driver must act on.
    Event(ProtocolEvent),
    /// Something worth a line in the trace.
    Note(Note),
    /// The medium is asked for something.
    Medium(M::Out),
}

/// A delivered message (`deliver(m)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Which message.
    pub msg: MsgId,
    /// Its destinations.
    pub dst: GroupSet,
    /// The position that the group's sequence reaches by this delivery: the same at every replica,
    /// and only grows.
    pub position: u64,
    /// The payload, of the outbox's bytes.
    pub payload: PayloadRange,
}

/// A range of the outbox's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadRange {
    /// Where it begins.
    pub at: u32,
    /// How many bytes.
    pub len: u32,
}

/// A diagnostic for people and traces. Nothing depends on it: what a driver must act on is a
/// [`ProtocolEvent`], and only modules that log, trace or test tell one note from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// This process no longer leads, or no longer tries to; the epoch that it saw above its own.
    Demoted(u64),
    /// A peer lags too far: no process waits for it any more.
    LeftBehind(Pid),
    /// The application was full for so long that the process asks the others to continue without it.
    TooFull,
    /// A peer's input made no sense and was dropped.
    Malformed(Pid, &'static str),
    /// A rare branch was taken; the name ties it to the test that expects it.
    Mark(&'static str),
}

/// Why a protocol wants to be called again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WakeReason {
    /// To show that it lives.
    Heartbeat,
    /// To judge whether a peer lives.
    Suspicion,
    /// To try again what has had no answer.
    Retry,
    /// To send out what was held back for a batch.
    Flush,
}

/// Why a message is not delivered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitReason {
    /// It waits for a free place towards this group.
    Room(Gid),
    /// No leader has ordered it in this group yet.
    Order(Gid),
    /// It is ordered, and waits for a quorum of this group.
    Quorum(Gid),
    /// A message in front of it in this process's order is not delivered.
    Turn,
    /// A timestamp or vote of this process is missing.
    Vote(Pid),
}

/// The position and progress of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProtocolStatus {
    /// The leader it follows, if the protocol has one.
    pub leader: Option<Pid>,
    /// The epoch (`tmp`, ballot, view) it is in.
    pub epoch: u64,
    /// The position its deliveries have reached.
    pub delivered: u64,
    /// The position that is known to be decided.
    pub decided: u64,
    /// Messages accepted and not yet delivered, where it knows.
    pub backlog: u64,
    /// Whether it has its place in the order of its group. If so and it is not
    /// [`fit`](Protocol::fit), it only waits for its application's state.
    pub follows: bool,
    /// How many instances its application has still to execute of those that were ordered before the process started, as far
    /// as it knows; none once that is done, for good, and where the protocol does not count them.
    pub catching_up: Option<u64>,
}

/// Collects what a step asks for. Reused from step to step, so the steady state allocates nothing.
#[derive(Debug)]
pub struct Outbox<M: Medium> {
    items: Vec<Output<M>>,
    /// How many of them are for the medium.
    asks: usize,
    bytes: Vec<u8>,
    tracing: bool,
    early: bool,
}

impl<M: Medium> Default for Outbox<M> {
    fn default() -> Self {
        Self { items: Vec::new(), asks: 0, bytes: Vec::new(), tracing: true, early: false }
    }
}

impl<M: Medium> Outbox<M> {
    /// An empty outbox. `tracing` says whether [`ProtocolEvent::Part`] is wanted.
    pub fn new(tracing: bool) -> Self {
        Self { tracing, ..Self::default() }
    }

    /// Early deliveries are wanted ([`Output::Early`]).
    pub const fn want_early(&mut self) {
        self.early = true;
    }

    /// Whether early deliveries are wanted.
    pub const fn wants_early(&self) -> bool {
        self.early
    }

    /// Forgets everything, keeps the room.
    pub fn clear(&mut self) {
        self.items.clear();
        self.asks = 0;
        self.bytes.clear();
    }

    /// The requested outputs, in order.
    pub fn items(&self) -> &[Output<M>] {
        &self.items
    }

    /// How many of them are requests to the medium: a driver need not look for those, or for others, where there are none.
    pub const fn asks(&self) -> usize {
        self.asks
    }

    /// Takes out what was asked for, in order. The bytes stay until [`Outbox::clear`].
    pub fn take(&mut self, into: &mut Vec<Output<M>>) {
        into.append(&mut self.items);
        self.asks = 0;
    }

    /// The bytes of an extent.
    pub fn bytes(&self, extent: PayloadRange) -> &[u8] {
        &self.bytes[extent.at as usize..][..extent.len as usize]
    }

    /// Asks for `output`.
    pub fn push(&mut self, output: Output<M>) {
        self.asks += usize::from(matches!(output, Output::Medium(_)));
        self.items.push(output);
    }

    /// Asks the medium for something.
    pub fn ask(&mut self, out: M::Out) {
        self.asks += 1;
        self.items.push(Output::Medium(out));
    }

    /// Reports what the driver must act on. Participation is dropped unless the driver traces.
    pub fn event(&mut self, event: ProtocolEvent) {
        if self.tracing || !matches!(event, ProtocolEvent::Part(_)) {
            self.items.push(Output::Event(event));
        }
    }

    /// Reports that participation goes by another tree from here on. Dropped unless the driver traces.
    pub fn overlay(&mut self, tree: &Overlay) {
        if self.tracing {
            let bytes = self.fill(|to| to.extend(tree.bytes()));
            self.items.push(Output::Overlay(bytes));
        }
    }

    /// Leaves a remark for the trace.
    pub fn note(&mut self, note: Note) {
        self.items.push(Output::Note(note));
    }

    /// Moves the outputs of `other`, which refer to no bytes, to the end of this outbox.
    pub fn append(&mut self, other: &mut Self) {
        assert!(other.bytes.is_empty(), "outputs with bytes are relayed");
        self.items.append(&mut other.items);
        self.asks += core::mem::take(&mut other.asks);
    }

    /// Whether [`ProtocolEvent::Part`] is wanted.
    pub const fn traces(&self) -> bool {
        self.tracing
    }

    /// Traces and wants early deliveries if `outer` does: what an inner layer asks for goes there.
    pub const fn trace_as<N: Medium>(&mut self, outer: &Outbox<N>) {
        self.tracing = outer.tracing;
        self.early = outer.early;
    }

    /// Marks a rare branch; [`Note::Mark`].
    pub fn mark(&mut self, name: &'static str) {
        self.note(Note::Mark(name));
    }

    /// Puts bytes aside for an output; `fill` appends them.
    pub fn fill(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> PayloadRange {
        let at = self.bytes.len();
        fill(&mut self.bytes);
        PayloadRange { at: at as u32, len: (self.bytes.len() - at) as u32 }
    }

    /// Delivers a message whose payload `fill` appends.
    pub fn deliver(
        &mut self,
        msg: MsgId,
        dst: GroupSet,
        position: u64,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        let payload = self.fill(fill);
        self.items.push(Output::Deliver(Delivery { msg, dst, position, payload }));
    }

    /// Delivers a message early whose payload `fill` appends, if that is wanted.
    pub fn deliver_early(&mut self, msg: MsgId, dst: GroupSet, fill: impl FnOnce(&mut Vec<u8>)) {
        if self.early {
            let payload = self.fill(fill);
            self.items.push(Output::Early(EarlyDelivery { msg, dst, payload }));
        }
    }

    /// Puts in an output of an inner layer's outbox, its medium's outputs changed by `map`. Bytes
    /// are taken over with [`Outbox::adopt_bytes`] first.
    pub fn relay<N: Medium>(
        &mut self,
        output: Output<N>,
        base: u32,
        map: impl FnOnce(N::Out) -> M::Out,
    ) {
        let shift = |e: PayloadRange| PayloadRange { at: e.at + base, len: e.len };
        self.push(match output {
            Output::Deliver(d) => Output::Deliver(Delivery { payload: shift(d.payload), ..d }),
            Output::Early(d) => Output::Early(EarlyDelivery { payload: shift(d.payload), ..d }),
            Output::Persist { ticket, record, awaited } => {
                Output::Persist { ticket, record: shift(record), awaited }
            }
            Output::Load { ticket, number } => Output::Load { ticket, number },
            Output::Trim { before } => Output::Trim { before },
            Output::Passed { ticket } => Output::Passed { ticket },
            Output::Overlay(tree) => Output::Overlay(shift(tree)),
            Output::Event(event) => Output::Event(event),
            Output::Note(note) => Output::Note(note),
            Output::Medium(out) => Output::Medium(map(out)),
        });
    }

    /// Takes over the bytes of an inner layer's outbox, whose outputs were taken out; gives the base to
    /// relay with. Where there are none yet they are not copied.
    pub fn adopt_bytes<N: Medium>(&mut self, inner: &mut Outbox<N>) -> u32 {
        if self.bytes.is_empty() {
            core::mem::swap(&mut self.bytes, &mut inner.bytes);
            return 0;
        }
        let base = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&inner.bytes);
        base
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Frames, Lane, MessageOutput};

    #[test]
    fn requests_to_the_medium_are_counted_until_they_are_taken_out() {
        let ask = || MessageOutput::Group(Gid(0), Lane::Stream, PayloadRange { at: 0, len: 0 });
        let (mut out, mut inner) = (Outbox::<Frames>::default(), Outbox::<Frames>::default());
        out.ask(ask());
        out.mark("no request");
        out.push(Output::Medium(ask()));
        inner.ask(ask());
        out.append(&mut inner);
        out.relay(Output::<Frames>::Medium(ask()), 0, |out| out);
        assert_eq!((out.asks(), out.items().len(), inner.asks()), (4, 5, 0));
        let mut taken = Vec::new();
        out.take(&mut taken);
        out.push(taken.swap_remove(0));
        assert_eq!(out.asks(), 1);
        out.clear();
        assert_eq!(out.asks(), 0);
    }

    #[test]
    fn participation_is_reported_only_to_a_driver_that_traces() {
        let part = ProtocolEvent::Part(MsgId { sender: Pid(1), seq: 1 });
        for traces in [true, false] {
            let (mut out, mut inner) = (Outbox::<Frames>::new(traces), Outbox::<Frames>::default());
            out.mark("first");
            inner.trace_as(&out);
            inner.event(ProtocolEvent::Lagging);
            inner.event(part);
            inner.note(Note::Demoted(7));
            out.append(&mut inner);
            let kinds: Vec<bool> =
                out.items().iter().map(|item| matches!(item, Output::Event(_))).collect();
            let expected: &[bool] =
                if traces { &[false, true, true, false] } else { &[false, true, false] };
            assert_eq!(kinds, expected);
            assert!(inner.items().is_empty());
        }
    }
}
