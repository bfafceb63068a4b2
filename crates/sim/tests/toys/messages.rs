//! Over messages: everyone sends to process 0, which numbers and sends on. It never forgets
//! anything; a process that comes back gets the state from it, then the rest.

use super::about;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::entry::{About, Assumption, Entry, MediumKind, ProtocolProcess};
use amcast_core::messages::{Frames, Lane, MessageInput, MessageOutput};
use amcast_core::step::{ProtocolStatus, Ticket, WaitReason, WakeReason};
use amcast_core::{
    Config, ConfigError, Gid, GroupSet, Input, MsgId, Outbox, Output, Pid, Protocol, Time,
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
    /// Forgets its newest delivery when it comes back.
    Forgets,
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
const STATE: u8 = 3;

struct MessageToyState {
    kind: MessageToyKind,
    me: Pid,
    next: u64,
    early: BTreeMap<u64, (MsgId, Vec<u8>)>,
    sent: Vec<(MsgId, Vec<u8>)>,
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
        while self.fit
            && let Some((m, bytes)) = self.early.remove(&self.next)
        {
            out.deliver(m, GroupSet(1), self.next, |to| to.extend_from_slice(&bytes));
            self.next += 1;
        }
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
            ASK => {
                out.push(Output::Capture { ticket: Ticket(u64::from(from.0)), reader: from });
            }
            STATE => {
                let mut rest = r.rest();
                let mut reached = number;
                if self.kind == MessageToyKind::Forgets && rest.len() >= 32 {
                    rest = &rest[32..];
                }
                if rest.is_empty() {
                    reached = 0;
                }
                let piece = out.fill(|to| to.extend_from_slice(rest));
                out.push(Output::Install { piece, first: true, last: true, position: reached });
                self.fit = true;
                self.next = reached + 1;
                out.mark("toy-installed");
            }
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
            Input::Start { incarnation } if incarnation > 0 => self.fit = false,
            Input::Medium(MessageInput::Up(Pid(0))) if !self.fit => {
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
            Input::Captured { ticket, position, bytes } => {
                out.push(Output::Piece { ticket, offset: 0, bytes: bytes as u32 });
                self.early.insert(
                    u64::MAX - ticket.0,
                    (MsgId { sender: self.me, seq: position }, vec![]),
                );
            }
            Input::Piece { ticket, bytes, .. } => {
                let to = Pid(ticket.0 as u32);
                let kept = self.early.remove(&(u64::MAX - ticket.0)).expect("it was captured");
                let position = kept.0.seq;
                let m = MsgId { sender: self.me, seq: 0 };
                let extent = out.fill(|b| frame(STATE, position, m, bytes, b));
                out.ask(MessageOutput::To(to, Lane::Stream, extent));
                out.push(Output::Release { ticket });
                for number in position + 1..=self.sent.len() as u64 {
                    let (m, bytes) = &self.sent[number as usize - 1];
                    let extent = out.fill(|b| frame(ORDERED, number, *m, bytes, b));
                    out.ask(MessageOutput::To(to, Lane::Stream, extent));
                }
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
