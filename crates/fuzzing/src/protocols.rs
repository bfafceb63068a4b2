//! Input of peers to the processes of any protocol of the catalog: their messages, and their writes to memory.
//!
//! An input begins with a line that names the protocol, so that a corpus keeps its meaning when protocols are added; an
//! input whose line names none goes to one of the protocols there are.

use amcast_core::memory::{
    AccessOutcome, HeapRegions, LINE_WORDS, LineStamp, Memory, MemoryInput, MemoryOutput, RegionId,
    RegionSpec, RegionWindow, Regions,
};
use amcast_core::messages::{Frames, MessageInput};
use amcast_core::parameters::{HEARTBEAT, SUSPECT};
use amcast_core::step::Note;
use amcast_core::{
    ClusterShape, Config, Entry, Gid, Input, MediumKind, MsgId, Outbox, Output, Pid, Protocol,
    ProtocolEvent, ProtocolProcess, RawConfig, Span, Time,
};
use amcast_protocols::catalog::CATALOG;
use amcast_protocols::trial;

/// Steps of a run at most.
const STEPS_MAX: usize = 512;

/// The protocol over `medium` that the first line names, and the bytes behind that line.
fn named(bytes: &[u8], medium: MediumKind) -> Option<(&'static dyn Entry, &[u8])> {
    let end = bytes.iter().position(|&b| b == b'\n')?;
    let line = &bytes[..end];
    let mut all = CATALOG.iter().copied().filter(|entry| entry.about().medium == medium);
    let known = all.clone().find(|entry| entry.name().as_bytes() == line);
    let sum: usize = line.iter().map(|&b| usize::from(b)).sum();
    let count = all.clone().count().max(1);
    Some((known.or_else(|| all.nth(sum % count))?, &bytes[end + 1..]))
}

/// A small cluster of three groups, or of as many as the protocol takes, with the default timers.
fn config(entry: &dyn Entry) -> Config {
    let mut raw = trial::tiny(entry, 3);
    raw.set.retain(|name, _| name != HEARTBEAT.name() && name != SUSPECT.name());
    let raw = RawConfig { overlay: RawConfig::default().overlay, ..raw };
    raw.check(entry.about().params).expect("a sound configuration")
}

/// Frames behind their sender and length, a byte each, to a replica of the first group, one of the last group, and a
/// client. Time passes meanwhile. An empty frame is noted; nothing is delivered twice, and positions only grow.
pub(crate) fn messages(bytes: &[u8]) {
    let Some((entry, body)) = named(bytes, MediumKind::Messages) else { return };
    let config = config(entry);
    let cluster = config.cluster();
    let last = Gid((cluster.groups() - 1) as u8);
    let replicas = [cluster.replica(Gid(0), 0), cluster.replica(last, cluster.replicas() - 1)];
    let client = (cluster.clients() > 0).then(|| cluster.client(0));
    for me in replicas.into_iter().chain(client) {
        let Ok(ProtocolProcess::Messages(node)) = entry.build(me, &config) else {
            panic!("{} exchanges messages", entry.name())
        };
        let (processes, out) = (cluster.processes() as u32, Outbox::default());
        FrameReceiver { node, now: Time::ZERO, out, position: 0, delivered: Vec::new() }
            .run(body, processes);
    }
}

/// A process that takes frames.
struct FrameReceiver {
    node: Box<dyn Protocol<Medium = Frames> + Send>,
    now: Time,
    out: Outbox<Frames>,
    /// The position of the last delivery.
    position: u64,
    delivered: Vec<MsgId>,
}

impl FrameReceiver {
    fn run(mut self, body: &[u8], processes: u32) {
        self.step(Input::Start { incarnation: 0 });
        let mut rest = body;
        while let [from, len, tail @ ..] = rest {
            let (frame, tail) = tail.split_at(tail.len().min(usize::from(*len)));
            rest = tail;
            self.now += Span::micros(u64::from(*from) * 100);
            let from = Pid(u32::from(*from) % processes);
            let noted = self.step(Input::Medium(MessageInput::From(from, frame)));
            assert!(noted || !frame.is_empty(), "an empty frame passes unnoted");
            if self.node.deadline().is_some_and(|(at, _)| at <= self.now) {
                self.step(Input::Wake);
            }
        }
    }

    /// A step, and the driver's answers to it; whether the step notes that its input is malformed.
    fn step(&mut self, input: Input<'_, Frames>) -> bool {
        self.out.clear();
        self.node.step(self.now, (), input, &mut self.out);
        let mut noted = false;
        let mut answers = Vec::new();
        for item in self.out.items() {
            match item {
                Output::Deliver(delivery) => {
                    assert!(delivery.position > self.position, "positions do not grow");
                    self.position = delivery.position;
                    assert!(!self.delivered.contains(&delivery.msg), "{:?} twice", delivery.msg);
                    self.delivered.push(delivery.msg);
                    answers.push(Input::Applied(delivery.position));
                }
                Output::Persist { ticket, awaited: true, .. } => {
                    answers.push(Input::Durable(*ticket));
                }
                Output::Note(Note::Malformed(..)) => noted = true,
                _ => {}
            }
        }
        for answer in answers {
            self.step(answer);
        }
        noted
    }
}

/// Writes into every region of replicas and a client that others write, and polls: malformed lines stop nobody.
pub(crate) fn memory(bytes: &[u8]) {
    if let Some((entry, body)) = named(bytes, MediumKind::Memory) {
        deliveries(entry, body);
    }
}

/// The number of messages that a replica in the first group delivers: the process with the most input from others.
fn deliveries(entry: &dyn Entry, bytes: &[u8]) -> usize {
    let config = config(entry);
    let cluster = config.cluster();
    // Also a replica that lost its memory, one of another group, and a client. None has a reason to lead.
    let replica = |g, rank: usize| cluster.replica(Gid(g), rank.min(cluster.replicas() - 1));
    let last = (cluster.groups() - 1) as u8;
    let client = (cluster.clients() > 0).then(|| (cluster.client(0), 0));
    let others = [(replica(0, 1), 2), (replica(last.min(1), 2), 0)];
    for (me, incarnation) in others.into_iter().chain(client) {
        MemoryReader::new(entry, &config, me, incarnation).run(&mut Bytes(bytes));
    }
    MemoryReader::new(entry, &config, replica(0, 1), 0).run(&mut Bytes(bytes))
}

/// Numbers from bytes; zeros where they end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Of one byte or of eight: small numbers are those that mean something.
    fn word(&mut self) -> u64 {
        match self.byte() {
            255 => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
            254 => u64::from(self.byte()) << 32 | u64::from(self.byte()),
            253 => u64::from(self.byte()) << 48 | u64::from(self.byte()),
            small => u64::from(small),
        }
    }
}

/// A process whose memory others write.
struct MemoryReader {
    me: Pid,
    cluster: ClusterShape,
    node: Box<dyn Protocol<Medium = Memory> + Send>,
    specs: Vec<RegionSpec>,
    memory: HeapRegions,
    now: Time,
    out: Outbox<Memory>,
    delivered: usize,
}

impl MemoryReader {
    fn new(entry: &dyn Entry, config: &Config, me: Pid, incarnation: u32) -> Self {
        let Ok(ProtocolProcess::Memory(node, specs)) = entry.build(me, config) else {
            panic!("{} writes memory", entry.name())
        };
        let memory = HeapRegions::new(&specs);
        let out = Outbox::default();
        let cluster = *config.cluster();
        let mut process =
            Self { me, cluster, node, specs, memory, now: Time::ZERO, out, delivered: 0 };
        process.step(Input::Start { incarnation });
        process
    }

    /// Gives back how many messages it delivered.
    fn run(mut self, bytes: &mut Bytes<'_>) -> usize {
        for _ in 0..STEPS_MAX {
            if bytes.0.is_empty() {
                break;
            }
            let what = bytes.byte();
            let region = usize::from(bytes.byte()) % self.specs.len();
            let spec = self.specs[region];
            let at = bytes.word() % u64::from(spec.lines);
            let words: [u64; LINE_WORDS] = std::array::from_fn(|_| bytes.word());
            let stamp = LineStamp::new(bytes.word() as u32, bytes.word());
            if spec.writer != self.me {
                self.memory.lines(RegionId(region as u16))[at as usize].put(&words, stamp);
            }
            if what != 0 {
                // So little that nobody is suspected: it is followers that are looked at.
                self.now += Span::micros(3);
                self.step(Input::Medium(MemoryInput::Poll));
            }
        }
        self.delivered
    }

    /// A step, and its answers. Its reads from other processes are lost, so that it never becomes
    /// leader; its requests to the application are carried out.
    fn step(&mut self, input: Input<'_, Memory>) {
        self.out.clear();
        self.node.step(self.now, RegionWindow(&self.memory), input, &mut self.out);
        let mut asked = Vec::new();
        self.out.take(&mut asked);
        for output in asked {
            match output {
                Output::Medium(MemoryOutput::Write { ticket: Some(ticket), .. }) => {
                    self.step(Input::Medium(MemoryInput::Done(ticket, AccessOutcome::Written)));
                }
                Output::Medium(MemoryOutput::Read { ticket, .. }) => {
                    self.step(Input::Medium(MemoryInput::Done(ticket, AccessOutcome::Lost)));
                }
                // The logger looks up the peer's name.
                Output::Note(Note::Malformed(peer, _)) => assert!(self.cluster.has(peer)),
                Output::Deliver(delivery) => {
                    self.delivered += 1;
                    self.step(Input::Applied(delivery.position));
                }
                Output::Event(ProtocolEvent::NeedsState { position, .. }) => {
                    self.step(Input::Installed { position, needs: u64::MAX });
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_gets_as_far_as_deliveries() {
        let bytes = include_bytes!("../../../fuzz/corpus/protocol_memory/rows-and-records");
        let (entry, body) = named(bytes, MediumKind::Memory).expect("a line names the protocol");
        assert!(deliveries(entry, body) > 0);
    }

    #[test]
    fn the_first_line_names_the_protocol_or_one_is_chosen() {
        for entry in CATALOG {
            let medium = entry.about().medium;
            let input = format!("{}\nabc", entry.name());
            let (found, body) = named(input.as_bytes(), medium).expect("the line names it");
            assert_eq!(found.name(), entry.name());
            assert_eq!(body, b"abc");
            let (other, _) = named(b"none of them\n", medium).expect("there is one");
            assert_eq!(other.about().medium, medium);
        }
        assert!(named(b"no line", MediumKind::Messages).is_none());
    }
}
