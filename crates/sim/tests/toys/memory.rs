//! Over memory: each sender has a region at process 0, which copies what it finds into everyone's
//! log. No line is used twice.

use super::about;
use amcast_core::entry::{About, Assumption, Entry, MediumKind, ProtocolProcess};
use amcast_core::memory::{
    CacheLine, LINE_WORDS, LineRange, LineStamp, Memory, MemoryInput, MemoryOutput, RegionId,
    RegionSpec, RegionWindow, WriteSource,
};
use amcast_core::step::{ProtocolStatus, Ticket, WaitReason, WakeReason};
use amcast_core::{
    Config, ConfigError, GroupSet, Input, MsgId, Outbox, Pid, Protocol, Submission, Time,
};

pub(crate) const LINES: u32 = 256;
const STAMP: LineStamp = LineStamp::new(1, 0);
const LOG: RegionId = RegionId(0);
const STAGING: RegionId = RegionId(1);
/// The region of sender `p` at process 0.
const fn inbox(p: Pid) -> RegionId {
    RegionId(2 + p.0 as u16)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryToyKind {
    /// As it should be.
    Right,
    /// Believes a line before its stamp is there.
    Hasty,
    /// Uses one staging line for every message, before the write is answered.
    Reuses,
    /// Asserts something that is not so.
    Asserts,
}

#[derive(Debug)]
pub(crate) struct MemoryToy(pub MemoryToyKind);

static ABOUT: About = about(MediumKind::Memory, &[Assumption::NoCrash]);

impl Entry for MemoryToy {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn about(&self) -> &'static About {
        &ABOUT
    }
    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let count = config.cluster().processes() as u32;
        let spec = |name, writer| RegionSpec { name, lines: LINES, writer, guarded: false };
        let mut regions = vec![spec("log", Pid(0)), spec("staging", me)];
        regions.extend((0..count).map(|p| spec("inbox", Pid(p))));
        let state = MemoryToyState {
            kind: self.0,
            me,
            count,
            sent: 0,
            read: vec![0; count as usize],
            log: Vec::new(),
            done: 0,
            position: 0,
        };
        Ok(ProtocolProcess::Memory(Box::new(state), regions))
    }
    fn show(&self, bytes: &[u8]) -> String {
        format!("{bytes:?}")
    }
}

struct MemoryToyState {
    kind: MemoryToyKind,
    me: Pid,
    count: u32,
    sent: u32,
    read: Vec<u32>,
    /// The ordered messages.
    log: Vec<[u64; LINE_WORDS]>,
    done: u32,
    position: u64,
}

impl MemoryToyState {
    fn seen(&self, line: &CacheLine) -> Option<[u64; LINE_WORDS]> {
        let there = match self.kind {
            MemoryToyKind::Hasty => line.word(0) != 0,
            _ => line.stamp() == STAMP,
        };
        there.then(|| line.words())
    }

    fn submit(&mut self, view: RegionWindow<'_>, s: Submission<'_>, out: &mut Outbox<Memory>) {
        let mut head = [0; LINE_WORDS];
        head[0] = u64::from(self.me.0 + 1);
        head[1] = s.seq;
        head[2] = s.payload.len() as u64;
        for (word, bytes) in head[3..].iter_mut().zip(s.payload.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(eight);
        }
        let place = if self.kind == MemoryToyKind::Reuses { 0 } else { self.sent };
        view.region(STAGING)[place as usize].put(&head, STAMP);
        self.send(place, self.sent, out);
        self.sent += 1;
        assert!(self.kind != MemoryToyKind::Asserts || self.sent < 5, "five is right out");
    }

    /// Writes a message to the orderer.
    fn send(&self, place: u32, at: u32, out: &mut Outbox<Memory>) {
        let lines = LineRange { region: STAGING, at: place, count: 1 };
        out.ask(MemoryOutput::Write {
            to: Pid(0),
            region: inbox(self.me),
            at,
            source: WriteSource::Copy(lines),
            ticket: Some(Ticket(u64::from(at))),
            bell: true,
        });
    }

    fn order(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        for p in (0..self.count).map(Pid) {
            while let Some(line) = view.region(inbox(p)).get(self.read[p.index()] as usize) {
                let Some(words) = self.seen(line) else { break };
                self.read[p.index()] += 1;
                self.log.push(words);
                (0..self.count).for_each(|to| self.tell(Pid(to), self.log.len() - 1, out));
            }
        }
    }

    /// Writes an entry of the log.
    fn tell(&self, to: Pid, at: usize, out: &mut Outbox<Memory>) {
        let source = WriteSource::line(self.log[at], STAMP);
        let at = at as u32;
        out.ask(MemoryOutput::Write { to, region: LOG, at, source, ticket: None, bell: true });
    }

    /// Nothing of what it has written there is there.
    fn again(&self, pid: Pid, out: &mut Outbox<Memory>) {
        (0..self.log.len()).for_each(|at| self.tell(pid, at, out));
        if pid == Pid(0) {
            (0..self.sent).for_each(|at| self.send(at, at, out));
        }
    }

    fn deliver(&mut self, view: RegionWindow<'_>, out: &mut Outbox<Memory>) {
        while let Some(line) = view.region(LOG).get(self.done as usize) {
            let Some(words) = self.seen(line) else { break };
            self.done += 1;
            self.position += 1;
            let msg = MsgId { sender: Pid((words[0] - 1) as u32), seq: words[1] };
            let bytes: Vec<u8> = words[3..].iter().flat_map(|w| w.to_le_bytes()).collect();
            let payload = &bytes[..(words[2] as usize).min(32)];
            out.deliver(msg, GroupSet(1), self.position, |to| to.extend_from_slice(payload));
        }
    }
}

impl Protocol for MemoryToyState {
    type Medium = Memory;
    fn step(
        &mut self,
        _: Time,
        view: RegionWindow<'_>,
        input: Input<'_, Memory>,
        out: &mut Outbox<Memory>,
    ) {
        match input {
            Input::Submit(s) => self.submit(view, s, out),
            Input::Medium(MemoryInput::Poll) => {
                if self.me == Pid(0) {
                    self.order(view, out);
                }
                self.deliver(view, out);
            }
            Input::Medium(MemoryInput::Fresh { pid, .. }) => self.again(pid, out),
            _ => {}
        }
    }
    fn deadline(&self) -> Option<(Time, WakeReason)> {
        None
    }
    fn room(&self, _: GroupSet, bytes: usize) -> usize {
        if bytes <= 32 { ((LINES - 1) / self.count - self.sent) as usize } else { 0 }
    }
    fn payload_max(&self) -> usize {
        32
    }
    fn waiting(&self, _: &mut dyn FnMut(MsgId, WaitReason)) {}
    fn status(&self) -> ProtocolStatus {
        ProtocolStatus { delivered: self.position, ..ProtocolStatus::default() }
    }
}
