//! Bytes that peers leave in each other's memory.

use amcast_core::memory::{
    AccessOutcome, HeapRegions, LINE_WORDS, LineStamp, Memory, MemoryInput, MemoryOutput, RegionId,
    RegionSpec, RegionWindow, Regions,
};
use amcast_core::step::Note;
use amcast_core::{
    ClusterShape, Config, Entry, Gid, Input, Outbox, Output, Pid, Protocol, ProtocolEvent,
    ProtocolProcess, RawConfig, Span, Time,
};
use amcast_protocols::tram::Tram;

/// Steps of a run at most.
const STEPS_MAX: usize = 512;

/// Writes into every region of a follower, and of a client, that others write, and looks what they
/// make of it.
pub(crate) fn memory(bytes: &[u8]) {
    deliveries(bytes);
}

/// How many messages the process delivers that has most to do with others: a replica in the root.
fn deliveries(bytes: &[u8]) -> usize {
    let entry = &Tram;
    let set = [("log_lines", "16"), ("hm_lines", "16"), ("xfer_lines", "16")];
    let set = set.map(|(name, value)| (name.to_string(), value.to_string())).into();
    let raw = RawConfig { groups: 3, clients: 2, set, ..RawConfig::default() };
    let config = raw.check(entry.about().params).expect("a sound configuration");
    let cluster = config.cluster();
    // Also one that lost its memory, one of a group below, and a client. None has a reason to lead.
    let replica = |g, incarnation| (cluster.replica(Gid(g), 1 + usize::from(g)), incarnation);
    for (me, incarnation) in [replica(0, 2), replica(1, 0), (cluster.client(0), 0)] {
        FuzzedProcess::new(&config, me, incarnation).run(&mut Bytes(bytes));
    }
    let (me, incarnation) = replica(0, 0);
    FuzzedProcess::new(&config, me, incarnation).run(&mut Bytes(bytes))
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

struct FuzzedProcess {
    me: Pid,
    cluster: ClusterShape,
    node: Box<dyn Protocol<Medium = Memory> + Send>,
    specs: Vec<RegionSpec>,
    memory: HeapRegions,
    now: Time,
    out: Outbox<Memory>,
    delivered: usize,
}

impl FuzzedProcess {
    fn new(config: &Config, me: Pid, incarnation: u32) -> Self {
        let entry = &Tram;
        let Ok(ProtocolProcess::Memory(node, specs)) = entry.build(me, config) else {
            panic!("TRAM writes memory")
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
                    self.step(Input::Installed { position, installs: u64::MAX });
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_gets_as_far_as_deliveries() {
        let bytes = include_bytes!("../../../fuzz/corpus/tram_memory/rows-and-records");
        assert!(super::deliveries(bytes) > 0);
    }
}
