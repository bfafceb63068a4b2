//! Total order by a fixed sequencer: the first member of a group numbers all messages. It has no protocol's ambition:
//! a test adds it to a copy of the repository, to see that a protocol is a folder and a line.
//!
//! # Order and guarantees
//! Multicasts of the members of one group: validity, uniform agreement, uniform integrity, uniform prefix order, and
//! the order of each sender.
//!
//! # Assumptions
//! No process crashes, and no stream breaks.
//!
//! # The normal case
//! ```text
//! member 0 (sequencer)   number 1: deliver --.
//!                     ask ^                   | order 1
//! member 1 ---------------'                   v deliver
//! ```
//! Two message delays for the members, one for the sequencer.
//!
//! # Roles and phases
//! 1. `[SEQ 1:1]` A member asks the sequencer for a number for its message.
//! 2. `[SEQ 1:2-3]` The sequencer gives the next number, delivers the message, and sends it to all others.
//! 3. `[SEQ 1:4]` A member delivers messages as they come: streams keep the order of the numbers.
//!
//! # Limits
//! A member has at most `window` messages that it has not delivered itself; so the sequencer gathers at most that many
//! of each member.
//!
//! # Deviations
//! The sequencer gathers `gather` messages, or waits 50 microseconds, before it gives numbers to all of them.
//!
//! # Read first
//! `SequencerMember::order`.

use crate::mutant::{self, Mutants};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::config::ParamKind;
use amcast_core::entry::Trials;
use amcast_core::limits::PAYLOAD_BYTES_MAX;
use amcast_core::messages::{FramedProtocol, Lane, MessageInput, MessageOutput, Messages};
use amcast_core::parameters::{PAYLOAD_MAX, WINDOW};
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    About, Assumption, Capabilities, ClusterShape, Config, ConfigError, Entry, Gid, GroupSet,
    Input, MediumKind, MsgId, Outbox, Param, Pid, Property, Protocol, ProtocolEvent,
    ProtocolProcess, Span, Time, messages,
};

const GATHER: Param = Param {
    name: "gather",
    kind: ParamKind::Number { default: 1, min: 1, max: 64 },
    about: "Messages that the sequencer gathers before it gives numbers to them.",
    cost: "More waits longer, at most 50 microseconds.",
    source: "ours",
};

/// How long the sequencer gathers at most.
const GATHERS: Span = Span::micros(50);

/// The only group.
const GROUP: Gid = Gid(0);

static PARAMS: &[Param] = &[
    WINDOW.with(ParamKind::Number { default: 16, min: 1, max: 256 }, "ours"),
    PAYLOAD_MAX.with(
        ParamKind::Number { default: 64 << 10, min: 0, max: PAYLOAD_BYTES_MAX as u64 },
        "ours",
    ),
    GATHER,
    #[cfg(feature = "mutants")]
    <SequencerMutant as mutant::Mutant>::PARAM,
];

static ABOUT: About = About {
    summary: "Total order within one group by a sequencer that never fails.",
    paper: "ours",
    medium: MediumKind::Messages,
    capabilities: Capabilities { suspicion_tolerance: true, ..Capabilities::NONE },
    promises: &[
        Property::Validity,
        Property::UniformAgreement,
        Property::UniformIntegrity,
        Property::UniformPrefixOrder,
        Property::FifoOrder,
    ],
    assumes: &[Assumption::NoCrash, Assumption::StreamsHold, Assumption::StreamsOnly],
    params: PARAMS,
};

mutant::mutants! {
    /// Ways to break this protocol.
    pub enum SequencerMutant {
        Twice = "delivers-twice":
            "Every fourth message is delivered two times." breaks [UniformIntegrity];
        Drops = "drops-a-message":
            "Members drop every fourth message." breaks [UniformAgreement];
        Swaps = "delivers-behind-the-next":
            "Members deliver every fourth message behind the next one." breaks [UniformPrefixOrder];
        Ignores = "ignores-a-message":
            "The sequencer gives no number to every fourth message." breaks [Validity];
        Newest = "newest-first":
            "Gathered messages get numbers from the newest on." breaks [FifoOrder];
    }
}

/// The fixed sequencer in the catalog.
#[derive(Debug)]
pub struct Sequencer;

impl Entry for Sequencer {
    fn name(&self) -> &'static str {
        "sequencer"
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let cluster = *config.cluster();
        if cluster.groups() != 1 || cluster.clients() != 0 {
            let why =
                "sequencer orders one group, whose members multicast: give groups = 1, clients = 0";
            return Err(ConfigError::Relation(why.to_string()));
        }
        Ok(ProtocolProcess::Messages(Box::new(FramedProtocol::new(SequencerMember::new(
            me, cluster, config,
        )))))
    }

    fn trials(&self) -> &'static Trials {
        &[("gather", &["1", "4", "16"])]
    }

    fn show(&self, bytes: &[u8]) -> String {
        let mut reader = ByteReader::new(bytes);
        match SequencerMessage::decode(&mut reader) {
            Ok(message) => format!("{message:?}, and {} bytes", reader.rest().len()),
            Err(e) => format!("no message of a sequencer: {e}"),
        }
    }
}

/// A message between members.
#[derive(Clone, PartialEq, Eq, Debug)]
enum SequencerMessage {
    /// A member asks the sequencer for a number.
    Ask { seq: u64, payload: Arc<[u8]> },
    /// The sequencer gave this number.
    Order { number: u64, msg: MsgId, payload: Arc<[u8]> },
}

messages! {
    enum SequencerMessage {
        1 => Ask { seq, payload },
        2 => Order { number, msg, payload },
    }
}

/// A message that waits for its number.
#[derive(Clone, Debug)]
struct GatheredMessage {
    msg: MsgId,
    payload: Arc<[u8]>,
}

/// A member of the group; the first one is the sequencer.
#[derive(Debug)]
struct SequencerMember {
    me: Pid,
    cluster: ClusterShape,
    window: usize,
    payload_max: usize,
    gather: usize,
    mutants: Mutants<SequencerMutant>,
    /// Own messages that are not delivered.
    own: VecDeque<u64>,
    /// Of the sequencer: what waits for a number, and until when.
    gathered: VecDeque<GatheredMessage>,
    due: Option<Time>,
    /// Of the sequencer: the last message of each member that asked.
    asked: Vec<u64>,
    /// The last message of each member that has a number.
    ordered: Vec<u64>,
    /// The message that a mutant delivers behind the next one.
    held: Option<GatheredMessage>,
    /// The count of numbers that were assigned or received.
    numbers: u64,
    /// Deliveries.
    delivered: u64,
}

type Outputs = Outbox<Messages<SequencerMessage>>;

impl SequencerMember {
    fn new(me: Pid, cluster: ClusterShape, config: &Config) -> Self {
        Self {
            me,
            cluster,
            window: WINDOW.get(config),
            payload_max: PAYLOAD_MAX.get(config),
            gather: config.get(&GATHER) as usize,
            mutants: Mutants::of(config),
            own: VecDeque::new(),
            gathered: VecDeque::new(),
            due: None,
            asked: alloc::vec![0; cluster.replicas()],
            ordered: alloc::vec![0; cluster.replicas()],
            held: None,
            numbers: 0,
            delivered: 0,
        }
    }

    fn sequencer(&self) -> Pid {
        self.cluster.replica(GROUP, 0)
    }

    /// Takes up a message at the sequencer.
    fn on_ask(
        &mut self,
        now: Time,
        msg: MsgId,
        payload: Arc<[u8]>,
        out: &mut Outputs,
    ) -> Result<(), &'static str> {
        let rank = msg.sender.index();
        if self.me != self.sequencer() || rank >= self.asked.len() {
            return Err("a message that only a sequencer takes, of a member");
        }
        let waiting = self.gathered.iter().filter(|g| g.msg.sender == msg.sender).count();
        if msg.seq <= self.asked[rank] || waiting >= self.window || payload.len() > self.payload_max
        {
            return Err("a message that is old, too much or too large");
        }
        self.asked[rank] = msg.seq;
        self.gathered.push_back(GatheredMessage { msg, payload });
        self.due = self.due.or(Some(now + GATHERS));
        if self.gathered.len() >= self.gather {
            self.order_all(out);
        }
        Ok(())
    }

    /// Gives numbers to all that is gathered.
    fn order_all(&mut self, out: &mut Outputs) {
        self.due = None;
        let newest = self.mutants.is(SequencerMutant::Newest);
        while let Some(next) =
            if newest { self.gathered.pop_back() } else { self.gathered.pop_front() }
        {
            self.order(next, out);
        }
    }

    /// [SEQ 1:2-3] Gives the next number to a message: delivers it, and sends it to all others.
    fn order(&mut self, GatheredMessage { msg, payload }: GatheredMessage, out: &mut Outputs) {
        let ignores = self.mutants.is(SequencerMutant::Ignores) && msg.seq.is_multiple_of(4);
        if ignores {
            return;
        }
        self.numbers += 1;
        for member in self.cluster.members(GROUP).filter(|&member| member != self.me) {
            let order = SequencerMessage::Order {
                number: self.numbers,
                msg,
                payload: Arc::clone(&payload),
            };
            out.ask(MessageOutput::To(member, Lane::Stream, order));
        }
        self.deliver(msg, &payload, out);
    }

    /// [SEQ 1:4] A numbered message comes, behind the one with the number before.
    fn on_order(
        &mut self,
        from: Pid,
        number: u64,
        (msg, payload): (MsgId, &[u8]),
        out: &mut Outputs,
    ) -> Result<(), &'static str> {
        if from != self.sequencer() || from == self.me || number != self.numbers + 1 {
            return Err("a number that is not the sequencer's next one");
        }
        let Some(last) = self.ordered.get_mut(msg.sender.index()) else {
            return Err("a message of one that is no member");
        };
        let mine = msg.sender == self.me && !self.own.contains(&msg.seq);
        if mine || msg.seq <= *last && !self.mutants.any() {
            return Err("a message that was not sent, or is old");
        }
        *last = msg.seq;
        self.numbers = number;
        if self.mutants.is(SequencerMutant::Swaps) && number.is_multiple_of(4) {
            self.held = Some(GatheredMessage { msg, payload: payload.into() });
            return Ok(());
        }
        self.deliver(msg, payload, out);
        if let Some(held) = self.held.take() {
            self.deliver(held.msg, &held.payload, out);
        }
        Ok(())
    }

    fn deliver(&mut self, msg: MsgId, payload: &[u8], out: &mut Outputs) {
        if msg.sender == self.me {
            self.own.retain(|&seq| seq != msg.seq);
        }
        out.event(ProtocolEvent::Part(msg));
        let fourth = self.numbers.is_multiple_of(4);
        if fourth && self.mutants.is(SequencerMutant::Drops) && self.me != self.sequencer() {
            self.delivered += 1;
            return;
        }
        let times = if fourth && self.mutants.is(SequencerMutant::Twice) { 2 } else { 1 };
        for _ in 0..times {
            self.delivered += 1;
            let fill = |bytes: &mut Vec<u8>| bytes.extend_from_slice(payload);
            out.deliver(msg, GroupSet::one(GROUP), self.delivered, fill);
        }
    }
}

impl Protocol for SequencerMember {
    type Medium = Messages<SequencerMessage>;

    fn step(
        &mut self,
        now: Time,
        (): (),
        input: Input<'_, Self::Medium>,
        out: &mut Outbox<Self::Medium>,
    ) {
        let (from, heard) = match input {
            Input::Submit(s) => {
                let msg = MsgId { sender: self.me, seq: s.seq };
                self.own.push_back(s.seq);
                out.event(ProtocolEvent::Part(msg));
                if self.me != self.sequencer() {
                    // [SEQ 1:1] The sequencer is asked for a number.
                    let ask = SequencerMessage::Ask { seq: s.seq, payload: s.payload.into() };
                    return out.ask(MessageOutput::To(self.sequencer(), Lane::Stream, ask));
                }
                (self.me, self.on_ask(now, msg, s.payload.into(), out))
            }
            Input::Medium(MessageInput::From(from, SequencerMessage::Ask { seq, payload })) => {
                let msg = MsgId { sender: from, seq };
                (from, self.on_ask(now, msg, payload, out))
            }
            Input::Medium(MessageInput::From(
                from,
                SequencerMessage::Order { number, msg, payload },
            )) => (from, self.on_order(from, number, (msg, &payload), out)),
            Input::Wake if self.due.is_some_and(|due| due <= now) => {
                return self.order_all(out);
            }
            _ => return,
        };
        if let Err(why) = heard {
            out.note(Note::Malformed(from, why));
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        self.due.map(|due| (due, WakeReason::Flush))
    }

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        let sound = dst == GroupSet::one(GROUP) && bytes <= self.payload_max;
        if sound { self.window.saturating_sub(self.own.len()) } else { 0 }
    }

    fn payload_max(&self) -> usize {
        self.payload_max
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        for &seq in &self.own {
            tell(MsgId { sender: self.me, seq }, WaitReason::Order(GROUP));
        }
    }

    fn status(&self) -> ProtocolStatus {
        let leader = Some(self.sequencer());
        let (delivered, backlog) = (self.delivered, self.own.len() as u64);
        ProtocolStatus {
            leader,
            delivered,
            decided: delivered,
            backlog,
            ..ProtocolStatus::default()
        }
    }
}
