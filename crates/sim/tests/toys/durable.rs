//! With a log at each of two replicas: process 0 orders what clients send, writes it and sends
//! it on without waiting for its disk; process 1 waits for its own. Records that process 1 has durable are
//! delivered by both. Everyone may die at any time, also at once.
//!
//! If its machine fails, process 0 may have ordered more than it finds in its log: it takes that
//! from process 1 before it orders again.

use super::about;
use amcast_core::codec::{ByteReader, Codec};
use amcast_core::entry::{About, Entry, MediumKind, ProtocolProcess};
use amcast_core::messages::{Frames, Lane, MessageInput, MessageOutput};
use amcast_core::step::{ProtocolStatus, Ticket, WaitReason, WakeReason};
use amcast_core::{
    Capabilities, Config, ConfigError, Durability, GroupSet, Input, MsgId, Outbox, Output, Pid,
    Protocol, Time,
};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DurableToyKind {
    /// As it should be.
    Right,
    /// Process 1 delivers what is not durable.
    Hasty,
    /// Process 0 orders on after its machine failed.
    IgnoresTorn,
    /// Does not deliver again what its application lost.
    Forgets,
    /// Trims what its application has applied, durable or not.
    TrimsEarly,
}

#[derive(Debug)]
pub(crate) struct DurableToy(pub DurableToyKind);

static ABOUT: About = About {
    capabilities: Capabilities { durability: Durability::Synced, ..Capabilities::NONE },
    ..about(MediumKind::Messages, &[])
};

impl Entry for DurableToy {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn about(&self) -> &'static About {
        &ABOUT
    }
    fn build(&self, me: Pid, _: &Config) -> Result<ProtocolProcess, ConfigError> {
        Ok(ProtocolProcess::Messages(Box::new(DurableToyState::new(self.0, me))))
    }
    fn show(&self, bytes: &[u8]) -> String {
        format!("{bytes:?}")
    }
}

// Frames, of which the first two are records as well.
/// A message at its place.
const ORDERED: u8 = 0;
/// Process 0 misses all that lies behind this place.
const LACKS: u8 = 1;
/// That was all of it, up to this place.
const ALL: u8 = 2;
/// This many are durable at the sender.
const HAVE: u8 = 3;
/// The same, of one that has just come back.
const HELLO: u8 = 4;
/// A client wants this message ordered.
const SUBMIT: u8 = 5;
/// A client is asked for all of them again.
const AGAIN: u8 = 6;

const ORDERER: Pid = Pid(0);
const KEEPER: Pid = Pid(1);
const CLIENTS: [Pid; 2] = [Pid(2), Pid(3)];
const NO_MESSAGE: MsgId = MsgId { sender: Pid(0), seq: 0 };

struct DurableToyState {
    kind: DurableToyKind,
    me: Pid,
    /// By place, from 1, as far as it is needed. At the client: what it ever sent, by its number.
    log: BTreeMap<u64, (MsgId, Vec<u8>)>,
    /// The number of each one's record.
    records: BTreeMap<u64, u64>,
    /// The place of each client's last message, and its number.
    lasts: BTreeMap<Pid, (u64, u64)>,
    written: u64,
    /// The last place, and how many this process and the other have durable.
    reached: u64,
    durable: u64,
    other: u64,
    delivered: u64,
    /// How many the application has durable.
    kept: u64,
    /// Whether it knows the position of its application.
    resumed: bool,
    /// Whether there may be more than process 0 knows.
    lacks: bool,
}

fn frame(kind: u8, place: u64, m: MsgId, bytes: &[u8], to: &mut Vec<u8>) {
    kind.encode(to);
    place.encode(to);
    m.encode(to);
    to.extend_from_slice(bytes);
}

fn parse(bytes: &[u8]) -> (u8, u64, MsgId, Vec<u8>) {
    let mut r = ByteReader::new(bytes);
    let parsed = (u8::decode(&mut r), u64::decode(&mut r), MsgId::decode(&mut r));
    let (Ok(kind), Ok(place), Ok(m)) = parsed else { panic!("frames and records are ours") };
    (kind, place, m, r.rest().to_vec())
}

impl DurableToyState {
    fn new(kind: DurableToyKind, me: Pid) -> Self {
        let (log, records, lasts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (written, reached, durable, other, delivered, kept) = (0, 0, 0, 0, 0, 0);
        let (resumed, lacks) = (false, false);
        Self {
            kind,
            me,
            log,
            records,
            lasts,
            written,
            reached,
            durable,
            other,
            delivered,
            kept,
            resumed,
            lacks,
        }
    }

    fn send(to: Pid, kind: u8, place: u64, (m, b): (MsgId, &[u8]), out: &mut Outbox<Frames>) {
        let extent = out.fill(|bytes| frame(kind, place, m, b, bytes));
        out.ask(MessageOutput::To(to, Lane::Stream, extent));
    }

    fn say(to: Pid, kind: u8, place: u64, out: &mut Outbox<Frames>) {
        Self::send(to, kind, place, (NO_MESSAGE, &[]), out);
    }

    fn persist(&mut self, kind: u8, place: u64, (m, b): (MsgId, &[u8]), out: &mut Outbox<Frames>) {
        let record = out.fill(|bytes| frame(kind, place, m, b, bytes));
        // A record of the lack need not outlive the machine: the process would be notified anew.
        let awaited = kind == ORDERED;
        out.push(Output::Persist { ticket: Ticket(place), record, awaited });
        self.written += 1;
    }

    fn append(&mut self, m: MsgId, bytes: &[u8], out: &mut Outbox<Frames>) {
        self.reached += 1;
        self.records.insert(self.reached, self.written);
        self.persist(ORDERED, self.reached, (m, bytes), out);
        self.log.insert(self.reached, (m, bytes.to_vec()));
        self.lasts.insert(m.sender, (self.reached, m.seq));
    }

    fn stored(&mut self, number: u64, record: &[u8]) {
        self.written = number + 1;
        match parse(record) {
            (ORDERED, place, m, bytes) => {
                self.records.insert(place, number);
                self.log.insert(place, (m, bytes));
                self.lasts.insert(m.sender, (place, m.seq));
                (self.reached, self.durable) = (place, place);
            }
            (kind, ..) => self.lacks = kind == LACKS,
        }
    }

    fn start(&mut self, out: &mut Outbox<Frames>) {
        if self.me == ORDERER && self.lacks {
            self.persist(LACKS, 0, (NO_MESSAGE, &[]), out);
        }
    }

    /// Delivers what process 1 has durable, behind what the application has.
    fn deliver(&mut self, out: &mut Outbox<Frames>) {
        let safe = match (self.me, self.kind) {
            (ORDERER, _) => self.other.min(self.reached),
            (_, DurableToyKind::Hasty) => self.reached,
            _ => self.durable,
        };
        while self.delivered < safe {
            let Some((m, bytes)) = self.log.get(&(self.delivered + 1)) else { break };
            self.delivered += 1;
            out.deliver(*m, GroupSet(1), self.delivered, |to| to.extend_from_slice(bytes));
        }
    }

    /// Gives up what the application and the other process have durable, but for what says which
    /// message of each client was the last.
    fn trim(&mut self, out: &mut Outbox<Frames>) {
        let lasts = self.lasts.values().map(|(place, _)| place - 1).min();
        // At least one record stays that is durable: it says which place was the last.
        let least = self.kept.min(self.other).min(lasts.unwrap_or(0));
        let least = least.min(self.durable.saturating_sub(1));
        self.log = self.log.split_off(&(least + 1));
        self.records = self.records.split_off(&(least + 1));
        if let Some((_, &before)) = self.records.first_key_value() {
            out.push(Output::Trim { before });
        }
    }

    /// Another process is there, or there again.
    fn greet(&mut self, of: Pid, out: &mut Outbox<Frames>) {
        match (self.me, of) {
            (_, ORDERER) if self.me > KEEPER => self.submit_all(out),
            (ORDERER, KEEPER) if self.lacks => Self::say(KEEPER, LACKS, self.reached, out),
            (ORDERER, KEEPER) | (KEEPER, ORDERER) => Self::say(of, HELLO, self.durable, out),
            _ => {}
        }
    }

    fn submit_all(&self, out: &mut Outbox<Frames>) {
        for (m, bytes) in self.log.values() {
            Self::send(ORDERER, SUBMIT, 0, (*m, bytes), out);
        }
    }

    /// Reads the record at `place`, for process 0, which misses it.
    fn tell(&self, place: u64, out: &mut Outbox<Frames>) {
        match self.records.get(&place) {
            Some(&number) => out.push(Output::Load { ticket: Ticket(place), number }),
            None => {
                Self::say(ORDERER, ALL, place - 1, out);
                Self::say(ORDERER, HELLO, self.durable, out);
            }
        }
    }

    fn hear(&mut self, from: Pid, frame: &[u8], out: &mut Outbox<Frames>) {
        let (kind, place, m, bytes) = parse(frame);
        match kind {
            SUBMIT => {
                let last = self.lasts.get(&from).map_or(0, |(_, seq)| *seq);
                if !self.lacks && m.seq == last + 1 {
                    self.append(m, &bytes, out);
                    Self::send(KEEPER, ORDERED, self.reached, (m, &bytes), out);
                }
            }
            AGAIN => self.submit_all(out),
            ORDERED if place == self.reached + 1 => self.append(m, &bytes, out),
            HAVE | HELLO => {
                self.other = self.other.max(place);
                if kind == HELLO && self.me == ORDERER && !self.lacks {
                    for (place, (m, bytes)) in self.log.range(place + 1..) {
                        Self::send(from, ORDERED, *place, (*m, bytes), out);
                    }
                }
                self.trim(out);
            }
            LACKS => self.tell(place + 1, out),
            ALL if self.lacks && self.reached >= place => {
                self.lacks = false;
                self.persist(ALL, 0, (NO_MESSAGE, &[]), out);
                out.mark("toy-whole-again");
                CLIENTS.into_iter().for_each(|client| Self::say(client, AGAIN, 0, out));
            }
            _ => {}
        }
    }
}

impl Protocol for DurableToyState {
    type Medium = Frames;
    fn step(&mut self, _: Time, (): (), input: Input<'_, Frames>, out: &mut Outbox<Frames>) {
        // The position of the application is reported right behind the start, or it is 0.
        let starts = matches!(
            input,
            Input::Stored { .. } | Input::Torn | Input::Start { .. } | Input::Installed { .. }
        );
        if !starts && !self.resumed {
            self.resumed = true;
            if self.kind == DurableToyKind::Forgets {
                self.delivered = self.reached;
            }
        }
        match input {
            Input::Stored { number, record } => self.stored(number, record),
            Input::Torn => {
                self.lacks = self.me == ORDERER && self.kind != DurableToyKind::IgnoresTorn
            }
            Input::Start { .. } => self.start(out),
            Input::Installed { position, .. } => {
                (self.delivered, self.kept) = (position, position);
                out.mark("toy-resumed");
            }
            Input::Submit(s) => {
                let m = MsgId { sender: self.me, seq: s.seq };
                self.log.insert(s.seq, (m, s.payload.to_vec()));
                Self::send(ORDERER, SUBMIT, 0, (m, s.payload), out);
            }
            Input::Durable(Ticket(place)) => {
                self.durable = self.durable.max(place);
                let to = if self.me == ORDERER { KEEPER } else { ORDERER };
                Self::say(to, HAVE, self.durable, out);
            }
            Input::Loaded { ticket: Ticket(place), record } => {
                let (_, _, m, bytes) = parse(record.expect("it is not trimmed"));
                Self::send(ORDERER, ORDERED, place, (m, &bytes), out);
                self.tell(place + 1, out);
            }
            Input::Applied(position) if self.kind == DurableToyKind::TrimsEarly => {
                self.kept = position
            }
            Input::Checkpointed(position) => {
                self.kept = self.kept.max(position);
                self.trim(out);
            }
            Input::Medium(MessageInput::Up(of)) => self.greet(of, out),
            Input::Medium(MessageInput::From(from, bytes)) => self.hear(from, bytes, out),
            _ => {}
        }
        if self.resumed {
            self.deliver(out);
        }
    }
    fn deadline(&self) -> Option<(Time, WakeReason)> {
        (!self.resumed).then_some((Time::ZERO, WakeReason::Retry))
    }
    fn room(&self, _: GroupSet, _: usize) -> usize {
        usize::from(self.me > KEEPER)
    }
    fn payload_max(&self) -> usize {
        1000
    }
    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        self.log.range(self.delivered + 1..).for_each(|(_, (m, _))| tell(*m, WaitReason::Turn));
    }
    fn fit(&self) -> bool {
        !self.lacks
    }
    fn status(&self) -> ProtocolStatus {
        ProtocolStatus {
            delivered: self.delivered,
            decided: self.reached,
            ..ProtocolStatus::default()
        }
    }
}
