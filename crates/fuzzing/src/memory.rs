//! Frames of another node that reads and writes the memory of this one, and answers for its own.

use amcast_core::Pid;
use amcast_core::memory::{LINE_WORDS, LineStamp, MemoryOutput, RegionId, RegionSpec, WriteSource};
use amcast_core::step::Ticket;
use amcast_memory::remote::{
    FrameSink, MemoryAgent, RemoteFault, RemoteMap, RemoteMemory, judge_frame,
};
use amcast_memory::{ClusterId, Directory, StartOptions};

const HERE: Pid = Pid(0);
const THERE: Pid = Pid(1);
const LINES: u32 = 8;

/// Takes every frame, which must be one.
struct JudgedFrames;

impl FrameSink for JudgedFrames {
    fn room(&self, _: usize) -> usize {
        usize::MAX
    }

    fn send(&mut self, node: usize, frame: &[u8]) {
        assert!(node == 1 && judge_frame(frame), "the agent sends what is no frame");
    }

    fn end(&mut self, _: usize, _: RemoteFault) {}
}

/// A connection from its beginning on: frames, each behind its length in two bytes. Memory that the other
/// node does not write stays as it is for any bytes, and each access has one outcome at the most.
pub(crate) fn frames(bytes: &[u8]) {
    let spec = |name, writer, guarded| RegionSpec { name, lines: LINES, writer, guarded };
    let specs = [
        spec("plain", THERE, false),
        spec("guarded", THERE, true),
        spec("closed", THERE, true),
        spec("own", HERE, false),
    ];
    let (node_of, near) = (vec![0, 1], vec![0]);
    let map = RemoteMap { here: 0, nodes: 2, node_of, near, places: vec![], first_incarnation: 0 };
    let directory = Directory::heap(ClusterId(1), 2, 0).expect("it is small");
    let directory = directory.with_remote(RemoteMemory::new(map, 5));
    let mut carrier = directory.start(HERE, &specs, StartOptions::default()).expect("it is small");
    let mut agent = MemoryAgent::new(directory.clone());
    carrier.post(&[MemoryOutput::Allow(RegionId(1))]);
    agent.up(1);
    let mut rest = bytes;
    let (mut posted, mut answered) = (0_u64, 0_u64);
    while let Some((length, tail)) = rest.split_first_chunk() {
        let (frame, tail) = tail.split_at(tail.len().min(usize::from(u16::from_le_bytes(*length))));
        rest = tail;
        judge_frame(frame);
        if agent.frame(1, frame).is_err() {
            agent.down(1);
            agent.up(1);
        }
        let source = WriteSource::line([posted; LINE_WORDS], LineStamp(posted + 1));
        let ticket = Some(Ticket(posted));
        let (region, at) = (RegionId(0), (posted % u64::from(LINES)) as u32);
        carrier.post(&[MemoryOutput::Write { to: THERE, region, at, source, ticket, bell: false }]);
        posted += 1;
        agent.flush(&mut JudgedFrames);
        carrier.begin_round();
        while let Some((_, input)) = carrier.next_input() {
            if let amcast_core::memory::MemoryInput::Done(Ticket(ticket), _) = input {
                assert_eq!(ticket, answered, "outcomes come in the order of posting, once each");
                answered += 1;
            }
        }
    }
    for region in [RegionId(2), RegionId(3)] {
        let lines = carrier.window().region(region);
        assert!(lines.iter().all(|line| line.stamp() == LineStamp::default()), "{region:?}");
    }
}
