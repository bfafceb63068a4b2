//! One number for a whole run: two runs that differ anywhere differ here.

use crate::process::OwnedInput;
use amcast_core::memory::{self, AccessOutcome, WriteSource};
use amcast_core::messages;
use amcast_core::step::{Medium, Note, Oracle, Outbox, Output, PayloadRange};
use amcast_core::trace::TraceEvent;
use amcast_core::{GroupSet, Pid, ProtocolEvent, StateSource, Time};

/// A running hash. Not for secrets. The numbers of kinds of inputs and outputs that are gone (16, 17, 32 to 35) are
/// given to no other kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunHash(pub u64);

impl RunHash {
    pub(crate) const fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) const fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0xa24b_aed4_963e_e407);
    }

    pub(crate) fn words(&mut self, words: &[u64]) {
        for &word in words {
            self.word(word);
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.word(u64::from_le_bytes(*chunk));
        }
        for &byte in rest {
            self.word(u64::from(byte));
        }
    }

    pub(crate) fn event(&mut self, event: &TraceEvent<'_>) {
        match *event {
            TraceEvent::Process { p, groups } => self.words(&[1, u64::from(p.0), groups.0]),
            TraceEvent::Cast { t, p, m, dst } => {
                self.words(&[2, t.0, u64::from(p.0), u64::from(m.sender.0), m.seq, dst.0]);
            }
            TraceEvent::Part { t, p, m } => {
                self.words(&[3, t.0, u64::from(p.0), u64::from(m.sender.0), m.seq]);
            }
            TraceEvent::Overlay { t, p, tree } => {
                self.words(&[74, t.0, u64::from(p.0), tree.groups() as u64]);
                tree.bytes().for_each(|parent| self.word(u64::from(parent)));
            }
            TraceEvent::Deliver { t, p, m } => {
                self.words(&[4, t.0, u64::from(p.0), u64::from(m.sender.0), m.seq]);
            }
            TraceEvent::Early { t, p, m } => {
                self.words(&[73, t.0, u64::from(p.0), u64::from(m.sender.0), m.seq]);
            }
            TraceEvent::Crash { t, p } => self.words(&[5, t.0, u64::from(p.0)]),
            TraceEvent::Recover { t, p } => self.words(&[6, t.0, u64::from(p.0)]),
            TraceEvent::View { t, p, view, members } => {
                self.words(&[7, t.0, u64::from(p.0), members.len() as u64]);
                self.bytes(view.as_bytes());
            }
            TraceEvent::Call { t, p, m, op: text } | TraceEvent::Return { t, p, m, out: text } => {
                self.words(&[8, t.0, u64::from(p.0), u64::from(m.sender.0), m.seq]);
                self.bytes(text.as_bytes());
            }
            TraceEvent::Leave { t, p } => self.words(&[60, t.0, u64::from(p.0)]),
            TraceEvent::End => self.word(9),
        }
    }

    pub(crate) fn input(&mut self, now: Time, p: Pid, input: &OwnedInput) {
        self.words(&[now.0, u64::from(p.0)]);
        match input {
            OwnedInput::Start(life) => self.words(&[10, u64::from(*life)]),
            OwnedInput::Leave => self.word(39),
            OwnedInput::Overlay(overlay) => {
                self.word(76);
                for g in GroupSet::first(overlay.groups()).iter() {
                    self.word(overlay.parent(g).map_or(u64::MAX, |parent| u64::from(parent.0)));
                }
            }
            OwnedInput::Wake => self.word(11),
            OwnedInput::Poll => self.word(12),
            OwnedInput::Submit(cast) => self.words(&[13, *cast as u64]),
            OwnedInput::Given(given) => {
                self.words(&[73, given.seq, given.dst.0]);
                self.bytes(&given.payload);
            }
            OwnedInput::Full(is_full) => self.words(&[75, u64::from(*is_full)]),
            OwnedInput::Unfit => self.word(74),
            OwnedInput::Durable(ticket) => self.words(&[14, ticket.0]),
            OwnedInput::Loaded(ticket, record) => {
                self.words(&[29, ticket.0, u64::from(record.is_some())]);
                self.bytes(record.as_deref().unwrap_or_default());
            }
            OwnedInput::Stored(number, record) => {
                self.words(&[26, *number]);
                self.bytes(record);
            }
            OwnedInput::Torn => self.word(27),
            OwnedInput::Lost => self.word(39),
            OwnedInput::Checkpointed(position) => self.words(&[38, *position]),
            OwnedInput::Applied(position) => self.words(&[15, *position]),
            OwnedInput::Installed { position, needs } => self.words(&[28, *position, *needs]),
            OwnedInput::Barrier(ticket) => self.words(&[70, ticket.0]),
            OwnedInput::Oracle(Oracle::Suspect(of)) => self.words(&[18, u64::from(of.0)]),
            OwnedInput::Oracle(Oracle::Trust(of)) => self.words(&[19, u64::from(of.0)]),
            OwnedInput::Oracle(Oracle::Leader(g, of)) => {
                self.words(&[20, u64::from(g.0), u64::from(of.0)]);
            }
            OwnedInput::Oracle(Oracle::NoLeader(g)) => self.words(&[72, u64::from(g.0)]),
            OwnedInput::Done(ticket, answer) => {
                self.words(&[21, ticket.0]);
                match answer.outcome() {
                    AccessOutcome::Written => self.word(1),
                    AccessOutcome::Denied => self.word(2),
                    AccessOutcome::Lost => self.word(3),
                    AccessOutcome::Words(lines) => lines.iter().for_each(|line| self.words(line)),
                }
            }
            OwnedInput::Fresh(of, life) => self.words(&[22, u64::from(of.0), u64::from(*life)]),
            OwnedInput::From(from, _, bytes) => {
                self.words(&[23, u64::from(from.0)]);
                self.bytes(bytes);
            }
            OwnedInput::Up(of) => self.words(&[24, u64::from(of.0)]),
            OwnedInput::Down(of) => self.words(&[25, u64::from(of.0)]),
            OwnedInput::Backlog(of) => {
                self.words(&[26, of.bytes as u64, u64::from(of.has_room)]);
            }
        }
    }

    pub(crate) fn output<M: Medium>(&mut self, output: &Output<M>, outbox: &Outbox<M>)
    where
        M::Out: HashableMedium<M>,
    {
        match output {
            Output::Deliver(d) => {
                self.words(&[30, u64::from(d.msg.sender.0), d.msg.seq, d.dst.0, d.position]);
                self.bytes(outbox.bytes(d.payload));
            }
            Output::Early(d) => {
                self.words(&[72, u64::from(d.msg.sender.0), d.msg.seq, d.dst.0]);
                self.bytes(outbox.bytes(d.payload));
            }
            Output::Persist { ticket, record, awaited } => {
                self.words(&[31, ticket.0, u64::from(*awaited)]);
                self.bytes(outbox.bytes(*record));
            }
            Output::Load { ticket, number } => self.words(&[36, ticket.0, *number]),
            Output::Trim { before } => self.words(&[37, *before]),
            Output::Passed { ticket } => self.words(&[71, ticket.0]),
            Output::Overlay(tree) => {
                self.word(75);
                self.bytes(outbox.bytes(*tree));
            }
            Output::Event(event) => self.protocol_event(event),
            Output::Note(note) => self.note(note),
            Output::Medium(out) => out.hash(self, outbox),
        }
    }

    fn protocol_event(&mut self, event: &ProtocolEvent) {
        match *event {
            ProtocolEvent::Part(m) => self.words(&[40, u64::from(m.sender.0), m.seq]),
            ProtocolEvent::Leads(epoch) => self.words(&[41, epoch]),
            ProtocolEvent::Lagging => self.word(44),
            ProtocolEvent::NeedsState { position, source } => {
                let view = match source {
                    StateSource::Replicas => 0,
                    StateSource::View(view) => 1 + view,
                };
                self.words(&[52, position, view]);
            }
            ProtocolEvent::CaughtUp(position) => self.words(&[45, position]),
            ProtocolEvent::ViewEntered { number, members, continuing } => {
                self.words(&[48, number, u64::from(members), u64::from(continuing)]);
            }
            ProtocolEvent::Excluded(view) => self.words(&[49, view]),
            ProtocolEvent::Left(view) => self.words(&[50, view]),
            ProtocolEvent::MayStop(view) => self.words(&[51, view]),
            ProtocolEvent::StorageRecovered => self.word(53),
            ProtocolEvent::Merged { view, from, members } => {
                self.words(&[54, view, from, u64::from(members)]);
            }
        }
    }

    fn note(&mut self, note: &Note) {
        match *note {
            Note::Demoted(epoch) => self.words(&[42, epoch]),
            Note::LeftBehind(p) => self.words(&[43, u64::from(p.0)]),
            Note::TooFull => self.word(76),
            Note::Malformed(p, why) => {
                self.words(&[46, u64::from(p.0)]);
                self.bytes(why.as_bytes());
            }
            Note::Mark(name) => {
                self.word(47);
                self.bytes(name.as_bytes());
            }
        }
    }
}

/// A request to a medium, as part of the hash.
pub(crate) trait HashableMedium<M: Medium> {
    fn hash(&self, hash: &mut RunHash, outbox: &Outbox<M>);
}

impl HashableMedium<messages::Frames> for messages::MessageOutput<PayloadRange> {
    fn hash(&self, hash: &mut RunHash, outbox: &Outbox<messages::Frames>) {
        let (kind, whom, lane, frame) = match *self {
            Self::To(p, lane, frame) => (50, u64::from(p.0), lane, frame),
            Self::Group(g, lane, frame) => (51, u64::from(g.0), lane, frame),
        };
        hash.words(&[kind, whom, lane as u64]);
        hash.bytes(outbox.bytes(frame));
    }
}

impl HashableMedium<memory::Memory> for memory::MemoryOutput {
    fn hash(&self, hash: &mut RunHash, _: &Outbox<memory::Memory>) {
        match *self {
            Self::Write { to, region, at, source, ticket, bell } => {
                let answer = ticket.map_or(u64::MAX, |ticket| ticket.0);
                let place = u64::from(region.0) << 32 | u64::from(at);
                hash.words(&[60, u64::from(to.0), place, answer, u64::from(bell)]);
                let (WriteSource::Copy(rest) | WriteSource::Made { rest, .. }) = source;
                let rest = [u64::from(rest.region.0), u64::from(rest.at), u64::from(rest.count)];
                if let WriteSource::Made { head, stamp, .. } = source {
                    hash.words(&head);
                    hash.word(stamp.0);
                }
                hash.words(&rest);
            }
            Self::Read { of, region, at, count, ticket } => {
                let place = u64::from(region.0) << 32 | u64::from(at);
                hash.words(&[61, u64::from(of.0), place, u64::from(count), ticket.0]);
            }
            Self::Allow(region) => hash.words(&[62, u64::from(region.0)]),
            Self::Revoke(region) => hash.words(&[63, u64::from(region.0)]),
        }
    }
}
