//! Over messages: everyone sends to process 0, which numbers and sends on. It never forgets
//! anything. A process that comes back continues where the application of process 0 is, and needs a state as of there.

use super::about;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::entry::{About, Assumption, Entry, MediumKind, ProtocolProcess};
use amcast_core::messages::{Frames, Lane, MessageInput, MessageOutput};
use amcast_core::step::{ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Config, ConfigError, Gid, GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent,
    StateSource, Time,
};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageToyKind {
    /// As it should be.
    Right,
    /// Sends datagrams and never again.
    Careless,
    /// Everyone delivers what comes, as it comes.
    Unordered,
    /// Continues when it comes back, and asks for no state.
    Forgets,
    /// Counts as fit as soon as it knows where it continues, before its application has the state.
    Eager,
    /// Has something to do at once, always.
    Spins,
}

#[derive(Debug)]
pub(crate) struct MessageToy(pub MessageToyKind);

static ABOUT: About =
    about(MediumKind::Messages, &[Assumption::StreamsHold, Assumption::MajorityFit]);

impl Entry for MessageToy {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn about(&self) -> &'static About {
        &ABOUT
    }
    fn build(&self, me: Pid, _: &Config) -> Result<ProtocolProcess, ConfigError> {
        let state = MessageToyState {
            kind: self.0,
            me,
            next: 1,
            early: BTreeMap::new(),
            sent: Vec::new(),
            applied: 0,
            follows: true,
            fit: true,
            now: Time::ZERO,
        };
        Ok(ProtocolProcess::Messages(Box::new(state)))
    }
    fn show(&self, bytes: &[u8]) -> String {
        format!("{bytes:?}")
    }
}

const SUBMIT: u8 = 0;
const ORDERED: u8 = 1;
const ASK: u8 = 2;
const OFFER: u8 = 3;

struct MessageToyState {
    kind: MessageToyKind,
    me: Pid,
    next: u64,
    early: BTreeMap<u64, (MsgId, Vec<u8>)>,
    sent: Vec<(MsgId, Vec<u8>)>,
    /// The position up to which its application has applied.
    applied: u64,
    /// It has its place in the order.
    follows: bool,
    fit: bool,
    now: Time,
}

fn frame(kind: u8, number: u64, m: MsgId, bytes: &[u8], to: &mut Vec<u8>) {
    kind.encode(to);
    number.encode(to);
    m.encode(to);
    to.extend_from_slice(bytes);
}

impl MessageToyState {
    fn lane(&self) -> Lane {
        if self.kind == MessageToyKind::Careless { Lane::Datagram } else { Lane::Stream }
    }

    fn order(&mut self, m: MsgId, bytes: &[u8], out: &mut Outbox<Frames>) {
        self.sent.push((m, bytes.to_vec()));
        let number = self.sent.len() as u64;
        let extent = out.fill(|to| frame(ORDERED, number, m, bytes, to));
        out.ask(MessageOutput::Group(Gid(0), self.lane(), extent));
    }

    fn ordered(&mut self, number: u64, m: MsgId, bytes: &[u8], out: &mut Outbox<Frames>) {
        if number >= self.next {
            self.early.insert(number, (m, bytes.to_vec()));
        }
        while self.follows
            && let Some((m, bytes)) = self.early.remove(&self.next)
        {
            out.deliver(m, GroupSet(1), self.next, |to| to.extend_from_slice(&bytes));
            self.next += 1;
        }
    }

    /// Says to a process that comes back where it may continue, and sends the messages behind that.
    fn offer(&mut self, to: Pid, out: &mut Outbox<Frames>) {
        let m = MsgId { sender: self.me, seq: 0 };
        let extent = out.fill(|b| frame(OFFER, self.applied, m, &[], b));
        out.ask(MessageOutput::To(to, Lane::Stream, extent));
        for number in self.applied + 1..=self.sent.len() as u64 {
            let (m, bytes) = &self.sent[number as usize - 1];
            let extent = out.fill(|b| frame(ORDERED, number, *m, bytes, b));
            out.ask(MessageOutput::To(to, Lane::Stream, extent));
        }
    }

    /// Continues behind this position, up to which its application needs a state.
    fn continue_from(&mut self, position: u64, out: &mut Outbox<Frames>) {
        (self.follows, self.next) = (true, position + 1);
        self.early = self.early.split_off(&self.next);
        self.fit = matches!(self.kind, MessageToyKind::Forgets | MessageToyKind::Eager);
        out.event(match self.kind {
            MessageToyKind::Forgets => ProtocolEvent::CaughtUp(0),
            _ => ProtocolEvent::NeedsState { position, source: StateSource::Replicas },
        });
    }

    fn from(&mut self, from: Pid, mut r: ByteReader<'_>, out: &mut Outbox<Frames>) -> Option<()> {
        let kind = u8::decode(&mut r).ok()?;
        let number = u64::decode(&mut r).ok()?;
        let m = MsgId::decode(&mut r).ok()?;
        match kind {
            SUBMIT if self.kind == MessageToyKind::Unordered => {
                out.deliver(m, GroupSet(1), self.next, |to| to.extend_from_slice(r.rest()));
                self.next += 1;
            }
            SUBMIT => self.order(m, r.rest(), out),
            ORDERED => self.ordered(number, m, r.rest(), out),
            ASK => self.offer(from, out),
            OFFER if !self.follows => self.continue_from(number, out),
            OFFER => {}
            _ => return None,
        }
        Some(())
    }
}

impl Protocol for MessageToyState {
    type Medium = Frames;
    fn step(&mut self, now: Time, (): (), input: Input<'_, Frames>, out: &mut Outbox<Frames>) {
        self.now = now;
        match input {
            Input::Start { incarnation } if incarnation > 0 => {
                (self.follows, self.fit) = (false, false);
                out.event(ProtocolEvent::Lagging);
            }
            Input::Applied(position) => self.applied = position,
            Input::Installed { position, .. } if !self.fit => {
                (self.fit, self.applied) = (true, position);
                out.event(ProtocolEvent::CaughtUp(position));
                out.mark("toy-installed");
            }
            Input::Medium(MessageInput::Up(Pid(0))) if !self.follows => {
                let m = MsgId { sender: self.me, seq: 0 };
                let extent = out.fill(|to| frame(ASK, 0, m, &[], to));
                out.ask(MessageOutput::To(Pid(0), Lane::Stream, extent));
            }
            Input::Submit(s) => {
                let m = MsgId { sender: self.me, seq: s.seq };
                let extent = out.fill(|to| frame(SUBMIT, 0, m, s.payload, to));
                let lane = self.lane();
                out.ask(match self.kind {
                    MessageToyKind::Unordered => MessageOutput::Group(Gid(0), lane, extent),
                    _ => MessageOutput::To(Pid(0), lane, extent),
                });
            }
            Input::Medium(MessageInput::From(from, bytes)) => {
                assert!(self.from(from, ByteReader::new(bytes), out).is_some(), "frames are ours");
            }
            _ => {}
        }
    }
    fn deadline(&self) -> Option<(Time, WakeReason)> {
        (self.kind == MessageToyKind::Spins).then_some((self.now, WakeReason::Flush))
    }
    fn room(&self, _: GroupSet, _: usize) -> usize {
        usize::from(self.fit)
    }
    fn payload_max(&self) -> usize {
        1000
    }
    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        self.early.values().for_each(|(m, _)| tell(*m, WaitReason::Turn));
    }
    fn fit(&self) -> bool {
        self.fit
    }
    fn status(&self) -> ProtocolStatus {
        ProtocolStatus { delivered: self.next - 1, ..ProtocolStatus::default() }
    }
}
