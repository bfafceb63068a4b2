//! A process of the run: its node, its clock, and what waits for it.

use crate::app::{App, DeliveredMessage};
use crate::contract::EventContract;
use crate::ram::OwnedOutcome;
use crate::world::OutboxBuffer;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use amcast_core::memory::Memory;
use amcast_core::messages::{DatagramBacklog, Frames, Lane};
use amcast_core::step::{Medium, Oracle, ProtocolStatus, Ticket, WaitReason};
use amcast_core::{
    Gid, GroupSet, Input, MsgId, Overlay, Pid, ProtocolProcess, Span, Submission, Time,
};

/// A multicast that the host asked for, with its number.
#[derive(Clone, Debug)]
pub(crate) struct HostCast {
    pub seq: u64,
    pub dst: GroupSet,
    pub payload: Vec<u8>,
}

/// An input that owns what it says, so that it can wait.
#[derive(Clone, Debug)]
pub(crate) enum OwnedInput {
    /// The number of a record, and the record.
    Stored(u64, Vec<u8>),
    Torn,
    Lost,
    /// Which life it is.
    Start(u32),
    Leave,
    Overlay(Overlay),
    Wake,
    Poll,
    /// The index of the cast in the plan.
    Submit(usize),
    /// A multicast that the host asked for.
    Given(HostCast),
    Full(bool),
    Unfit,
    Durable(Ticket),
    Loaded(Ticket, Option<Vec<u8>>),
    Checkpointed(u64),
    Applied(u64),
    Installed {
        position: u64,
        needs: u64,
    },
    Barrier(Ticket),
    Oracle(Oracle),
    Done(Ticket, OwnedOutcome),
    Fresh(Pid, u32),
    From(Pid, Lane, Rc<[u8]>),
    Up(Pid),
    Down(Pid),
    Backlog(DatagramBacklog),
}

impl OwnedInput {
    /// As an input, if it is none of a medium's and no submission of the plan.
    pub(crate) fn plain<M: Medium>(&self) -> Option<Input<'_, M>> {
        Some(match self {
            Self::Stored(number, record) => Input::Stored { number: *number, record },
            Self::Torn => Input::Torn,
            Self::Lost => Input::Lost,
            Self::Start(incarnation) => Input::Start { incarnation: *incarnation },
            Self::Leave => Input::Leave,
            Self::Overlay(overlay) => Input::Overlay(overlay),
            Self::Full(is_full) => Input::Full(*is_full),
            Self::Unfit => Input::Unfit,
            Self::Given(given) => Input::Submit(Submission {
                seq: given.seq,
                dst: given.dst,
                payload: &given.payload,
            }),
            Self::Wake => Input::Wake,
            Self::Durable(ticket) => Input::Durable(*ticket),
            Self::Loaded(ticket, record) => {
                Input::Loaded { ticket: *ticket, record: record.as_deref() }
            }
            Self::Checkpointed(position) => Input::Checkpointed(*position),
            Self::Applied(position) => Input::Applied(*position),
            Self::Installed { position, needs } => {
                Input::Installed { position: *position, needs: *needs }
            }
            Self::Barrier(ticket) => Input::Barrier(*ticket),
            Self::Oracle(oracle) => Input::Oracle(*oracle),
            _ => return None,
        })
    }
}

/// Bytes that an input occupies in the buffer of a socket for datagrams.
fn datagram_bytes(input: &OwnedInput) -> u64 {
    match input {
        OwnedInput::From(_, Lane::Datagram, bytes) => bytes.len() as u64,
        _ => 0,
    }
}

/// Outputs of a step that are still to be carried out.
#[derive(Debug)]
pub(crate) enum PendingOutputs {
    Messages(OutboxBuffer<Frames>),
    Memory(OutboxBuffer<Memory>),
}

/// A process of the run.
pub(crate) struct SimProcess {
    /// None while it is dead.
    pub node: Option<ProtocolProcess>,
    /// How often it crashed.
    pub life: u32,
    /// How often it crashed or was excluded by its group.
    pub standing: u32,
    /// The group it is a replica of.
    pub group: Option<Gid>,
    pub app: App,
    /// The deliveries in the application's last checkpoint that is durable.
    pub checkpoint: Vec<DeliveredMessage>,
    pub inbox: VecDeque<OwnedInput>,
    /// Bytes of datagrams in it.
    pub datagram_bytes: u64,
    /// Busy or paused until then.
    pub free_at: Time,
    /// Its application executes nothing before that.
    pub hung_until: Time,
    /// When the inbox is looked at again, if it has to wait.
    pub run_at: Option<Time>,
    pub wake_at: Option<Time>,
    pub poll_at: Option<Time>,
    /// How often in a row it was woken, and nothing else, and asked to be woken at once again.
    pub spins: u32,
    /// The multicasts that it is still to make: indices into the plan.
    pub backlog: VecDeque<usize>,
    /// The multicasts of the host that it has not taken yet.
    pub given: VecDeque<HostCast>,
    /// The position of the checkpoint that the host continues from in this life; 0 for none.
    pub resumes_from: u64,
    /// Multicasts so far, of all its lives.
    pub casts: u64,
    /// Barriers of this life that it has not passed, and the position that it must have then.
    pub barriers: BTreeMap<Ticket, u64>,
    /// As of its last step.
    pub fit: bool,
    /// Its reports.
    pub contract: EventContract,
    /// Dies in the middle of its next step's outputs, and is dead for so long, or for ever.
    pub doomed: Option<Option<Span>>,
    /// Pauses for so long in the middle of its next step's outputs.
    pub pauses: Option<Span>,
    /// Outputs of its last step that it carries out when the pause among them is over.
    pub unposted: Option<PendingOutputs>,
    /// Was asked to leave its group, and is then dead for so long, or for ever.
    pub leaving: Option<Option<Span>>,
    /// Has left its group, and stops.
    pub left: bool,
    /// Dead for ever.
    pub gone: bool,
    /// Its disk lost records: it owes this many deliveries until its checkpoints hold them again.
    pub owes: Option<usize>,
    /// It is dead, and its log has all that it knew when it died and was fit.
    pub intact: bool,
    /// How much faster its clock runs, in parts per million.
    pub drift_ppm: i32,
}

impl SimProcess {
    pub(crate) fn new(group: Option<Gid>, drift_ppm: i32) -> Self {
        Self {
            node: None,
            life: 0,
            standing: 0,
            group,
            app: App::default(),
            checkpoint: Vec::new(),
            inbox: VecDeque::new(),
            datagram_bytes: 0,
            free_at: Time::ZERO,
            hung_until: Time::ZERO,
            run_at: None,
            wake_at: None,
            poll_at: None,
            spins: 0,
            backlog: VecDeque::new(),
            given: VecDeque::new(),
            resumes_from: 0,
            casts: 0,
            barriers: BTreeMap::new(),
            fit: true,
            contract: EventContract::new(),
            doomed: None,
            pauses: None,
            unposted: None,
            leaving: None,
            left: false,
            gone: false,
            owes: None,
            intact: false,
            drift_ppm,
        }
    }

    pub(crate) const fn alive(&self) -> bool {
        self.node.is_some()
    }

    fn rate(&self) -> u128 {
        (1_000_000 + i64::from(self.drift_ppm).max(-900_000)) as u128
    }

    /// The time of its clock.
    pub(crate) fn clock(&self, now: Time) -> Time {
        if self.drift_ppm == 0 {
            return now;
        }
        Time((u128::from(now.0) * self.rate() / 1_000_000) as u64)
    }

    /// When its clock shows at least `local`.
    pub(crate) fn when(&self, local: Time) -> Time {
        if self.drift_ppm == 0 {
            return local;
        }
        let now = (u128::from(local.0) * 1_000_000).div_ceil(self.rate());
        Time(u64::try_from(now).unwrap_or(u64::MAX))
    }

    /// When it wants to be woken, by its own clock.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let deadline = match self.node.as_ref()? {
            ProtocolProcess::Messages(node) => node.deadline(),
            ProtocolProcess::Memory(node, _) => node.deadline(),
        };
        deadline.map(|(at, _)| at)
    }

    /// How many multicasts of so many bytes it takes now, and the most bytes of one.
    pub(crate) fn room(&self, dst: GroupSet, bytes: usize) -> (usize, usize) {
        match &self.node {
            Some(ProtocolProcess::Messages(node)) => {
                let most = node.payload_max();
                (node.room(dst, bytes.min(most)), most)
            }
            Some(ProtocolProcess::Memory(node, _)) => {
                let most = node.payload_max();
                (node.room(dst, bytes.min(most)), most)
            }
            None => (0, 0),
        }
    }

    /// Its status and the messages that wait, the first `most` of them.
    pub(crate) fn explain(&self, most: usize) -> (ProtocolStatus, Vec<(MsgId, WaitReason)>) {
        let mut waits = Vec::new();
        let mut tell = |m, wait| {
            if waits.len() < most {
                waits.push((m, wait));
            }
        };
        match &self.node {
            Some(ProtocolProcess::Messages(node)) => node.waiting(&mut tell),
            Some(ProtocolProcess::Memory(node, _)) => node.waiting(&mut tell),
            None => {}
        }
        (self.status(), waits)
    }

    /// Its status, if it lives.
    pub(crate) fn status(&self) -> ProtocolStatus {
        match &self.node {
            Some(ProtocolProcess::Messages(node)) => node.status(),
            Some(ProtocolProcess::Memory(node, _)) => node.status(),
            None => ProtocolStatus::default(),
        }
    }

    /// Puts an input into the inbox. A second `Poll` or `Wake` is dropped while one waits there.
    pub(crate) fn put(&mut self, input: OwnedInput) {
        let again = match input {
            OwnedInput::Poll => matches!(self.inbox.back(), Some(OwnedInput::Poll)),
            OwnedInput::Wake => self.inbox.iter().any(|l| matches!(l, OwnedInput::Wake)),
            _ => false,
        };
        if !again {
            self.datagram_bytes += datagram_bytes(&input);
            self.inbox.push_back(input);
        }
    }

    /// Takes what is first in the inbox.
    pub(crate) fn take(&mut self) -> Option<OwnedInput> {
        let input = self.inbox.pop_front()?;
        self.datagram_bytes -= datagram_bytes(&input);
        Some(input)
    }

    /// Whether a frame finds a place in the buffer of its socket, which takes so many bytes of
    /// datagrams; 0 is no limit.
    pub(crate) const fn has_place(&self, lane: Lane, bytes: usize, most: u64) -> bool {
        matches!(lane, Lane::Stream) || most == 0 || self.datagram_bytes + bytes as u64 <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drifting_clock_reaches_a_deadline_when_it_says() {
        for drift in [-300, 0, 7, 500] {
            let p = SimProcess::new(None, drift);
            for local in [1, 999, 123_456_789, 5_000_000_000] {
                let at = p.when(Time(local));
                assert!(p.clock(at) >= Time(local));
                assert!(at.0 == 0 || p.clock(Time(at.0 - 1)) < Time(local));
            }
        }
    }
}
