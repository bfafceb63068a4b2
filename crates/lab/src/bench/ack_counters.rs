//! Acknowledgements: how clients learn that their multicasts are delivered.
//!
//! Each part of a measurement (a thread or an OS process with some of the loops) has an *acknowledgement
//! process* in the shared memory, beside the protocol's processes. It owns one region for each part, which that part
//! writes:
//!
//! ```text
//! line 0    how far the part is: Phase
//! then      for each client of the owner's part, for each group: one word for each place of the
//!           client's window, seven words a line: the number of the last multicast delivered there
//! ```
//! A part whose replica is the first of its part to deliver a multicast writes the number; the
//! client polls the words of its outstanding multicasts. Each word is complete in itself, so a line
//! that is written again and again needs no flow control: only the newest number counts.

use amcast_core::memory::{
    CacheLine, LINE_WORDS, LineStamp, MemoryInput, MemoryOutput, RegionId, RegionSpec, WriteSource,
};
use amcast_core::{ClusterShape, Gid, GroupSet, Pid};
use amcast_memory::{Backing, Directory, MappedCarrier, MemoryError, StartOptions};

/// The stamp of every line: each word is complete in itself.
const STAMP: LineStamp = LineStamp::new(1, 0);

/// How far a part is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum MeasurePhase {
    /// Its loops run.
    Runs = 1,
    /// Its clients are finished.
    Finished = 2,
}

/// Which part runs which processes, and where their words lie.
#[derive(Clone, Debug)]
pub(super) struct ProcessAssignment {
    cluster: ClusterShape,
    /// The processes of each part.
    pub(super) parts: Vec<Vec<Pid>>,
    /// For each client: its part, and which of the part's clients it is.
    placements: Vec<(usize, usize)>,
    /// Places in each client's window.
    window: usize,
}

impl ProcessAssignment {
    /// Deals replicas and clients to `parts` parts: all replicas of a node together, nodes before
    /// clients. With two parts that is replicas on the one and clients on the other; with one,
    /// everything shares it.
    pub(super) fn new(cluster: ClusterShape, parts: usize, window: usize) -> Self {
        let for_nodes = parts.saturating_sub(1).clamp(1, cluster.replicas());
        let for_clients = parts.saturating_sub(for_nodes);
        let mut dealt = vec![Vec::new(); parts.max(1)];
        for p in cluster.pids() {
            let part = match cluster.role(p) {
                amcast_core::Role::Replica { rank, .. } => usize::from(rank) % for_nodes,
                amcast_core::Role::Client { .. } if for_clients == 0 => 0,
                amcast_core::Role::Client { client } => {
                    for_nodes + usize::from(client) % for_clients
                }
            };
            dealt[part].push(p);
        }
        dealt.retain(|pids| !pids.is_empty());
        let mut placements = vec![(0, 0); cluster.clients()];
        for (part, pids) in dealt.iter().enumerate() {
            let clients = pids.iter().filter_map(|&p| match cluster.role(p) {
                amcast_core::Role::Client { client } => Some(usize::from(client)),
                amcast_core::Role::Replica { .. } => None,
            });
            for (nth, client) in clients.enumerate() {
                placements[client] = (part, nth);
            }
        }
        Self { cluster, parts: dealt, placements, window }
    }

    /// The processes of the shared memory: the protocol's, and an acknowledgement process for each part.
    pub(super) fn processes(&self) -> u32 {
        (self.cluster.processes() + self.parts.len()) as u32
    }

    /// The part of each process of the memory.
    pub(super) fn part_of_each(&self) -> Vec<usize> {
        let mut parts = vec![0; self.processes() as usize];
        for (part, pids) in self.parts.iter().enumerate() {
            pids.iter().for_each(|pid| parts[pid.index()] = part);
            parts[self.acks(part).index()] = part;
        }
        parts
    }

    fn acks(&self, part: usize) -> Pid {
        Pid((self.cluster.processes() + part) as u32)
    }

    /// Lines for the words of one client and group.
    fn lines_each(&self) -> usize {
        self.window.div_ceil(LINE_WORDS)
    }

    fn lines_of(&self, part: usize) -> usize {
        let clients = self.placements.iter().filter(|&&(p, _)| p == part).count();
        1 + clients * self.cluster.groups() * self.lines_each()
    }

    /// The line and word for a multicast of a client.
    fn place(&self, client: usize, group: Gid, seq: u64) -> (usize, usize) {
        let slot = (seq % self.window as u64) as usize;
        let (_, nth) = self.placements[client];
        let before = (nth * self.cluster.groups() + group.index()) * self.lines_each();
        (1 + before + slot / LINE_WORDS, slot % LINE_WORDS)
    }
}

/// The acknowledgement process of one part.
pub(super) struct AckCounters<'a> {
    deal: &'a ProcessAssignment,
    carrier: MappedCarrier,
    /// For each part: what was last written to its region, line by line.
    written: Vec<Vec<[u64; LINE_WORDS]>>,
    /// Lines that changed since.
    changed: Vec<(usize, usize)>,
}

impl<'a> AckCounters<'a> {
    /// Opens the acknowledgement process of a part.
    ///
    /// # Errors
    /// When its memory cannot be set aside.
    pub(super) fn open(
        deal: &'a ProcessAssignment,
        directory: &Directory,
        part: usize,
    ) -> Result<Self, MemoryError> {
        let lines = deal.lines_of(part) as u32;
        let region = |writer| RegionSpec { name: "acks", lines, writer, guarded: false };
        let specs: Vec<_> = (0..deal.parts.len()).map(|w| region(deal.acks(w))).collect();
        let options = StartOptions { backing: Backing::Prefaulted, ..StartOptions::default() };
        let carrier = directory.start(deal.acks(part), &specs, options)?;
        let zeroed = |p| vec![[0; LINE_WORDS]; deal.lines_of(p)];
        let written: Vec<Vec<_>> = (0..deal.parts.len()).map(zeroed).collect();
        let changed = Vec::with_capacity(written.iter().map(Vec::len).sum());
        Ok(Self { deal, carrier, written, changed })
    }

    /// Tells every part how far this one is, and says whether all of them are as far.
    pub(super) fn reach(&mut self, phase: MeasurePhase) -> bool {
        // A part that has reported to this one is there; once the carrier has noticed that, it
        // receives this one's report.
        let all = self.are_at(phase);
        self.carrier.begin_round();
        while let Some((_, input)) = self.carrier.next_input() {
            debug_assert!(
                !matches!(input, MemoryInput::Done(..)),
                "nothing is posted with a ticket"
            );
        }
        for part in 0..self.written.len() {
            self.written[part][0][0] = phase as u64;
            self.changed.push((part, 0));
        }
        self.flush();
        all
    }

    /// Whether every part has told that it is as far as `phase`.
    pub(super) fn are_at(&self, phase: MeasurePhase) -> bool {
        let window = self.carrier.window();
        let told = |w: usize| window.region(RegionId(w as u16))[0].word(0);
        (0..self.written.len()).all(|w| told(w) >= phase as u64)
    }

    /// Whether one part has told that it is as far as `phase`.
    pub(super) fn is_part_at(&self, part: usize, phase: MeasurePhase) -> bool {
        let window = self.carrier.window();
        window.region(RegionId(part as u16))[0].word(0) >= phase as u64
    }

    /// Notes that a multicast is delivered in a group; told with the next [`AckCounters::flush`].
    pub(super) fn delivered(&mut self, client: usize, group: Gid, seq: u64) {
        let part = self.deal.placements[client].0;
        let (line, word) = self.deal.place(client, group, seq);
        self.written[part][line][word] = seq;
        if self.changed.last() != Some(&(part, line)) {
            self.changed.push((part, line));
        }
    }

    /// Tells what was noted.
    pub(super) fn flush(&mut self) {
        if self.changed.is_empty() {
            return;
        }
        let (deal, written) = (self.deal, &self.written);
        self.changed.sort_unstable();
        self.changed.dedup();
        for &(part, line) in &self.changed {
            let source = WriteSource::line(written[part][line], STAMP);
            let own = deal.part_of(self.carrier.pid());
            self.carrier.post(&[MemoryOutput::Write {
                to: deal.acks(part),
                region: RegionId(own as u16),
                at: line as u32,
                source,
                ticket: None,
                bell: false,
            }]);
        }
        self.changed.clear();
    }

    /// Whether a client's multicast is delivered in all of its destinations.
    pub(super) fn is_delivered(&self, client: usize, seq: u64, dst: GroupSet) -> bool {
        let window = self.carrier.window();
        let parts = self.written.len();
        dst.iter().all(|g| {
            let (line, word) = self.deal.place(client, g, seq);
            let has = |w: usize| -> bool {
                let lines: &[CacheLine] = window.region(RegionId(w as u16));
                lines[line].word(word) == seq
            };
            (0..parts).any(has)
        })
    }
}

impl ProcessAssignment {
    fn part_of(&self, acks: Pid) -> usize {
        acks.index() - self.cluster.processes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_memory::ClusterId;

    #[test]
    fn replicas_and_clients_share_no_part_if_there_are_two() {
        let cluster = ClusterShape::new(2, 3, 4).unwrap();
        for parts in 2..9 {
            let deal = ProcessAssignment::new(cluster, parts, 1);
            assert_eq!(deal.parts.iter().map(Vec::len).sum::<usize>(), cluster.processes());
            for pids in &deal.parts {
                let replicas = pids.iter().filter(|&&p| cluster.group_of(p).is_some()).count();
                assert!(replicas == 0 || replicas == pids.len(), "{parts} parts: {pids:?}");
            }
        }
        assert_eq!(ProcessAssignment::new(cluster, 1, 1).parts.len(), 1);
    }

    #[test]
    fn a_client_learns_of_each_group_for_itself() {
        let cluster = ClusterShape::new(2, 1, 2).unwrap();
        let deal = ProcessAssignment::new(cluster, 2, 9);
        let directory = Directory::heap(ClusterId(1), deal.processes(), 0).unwrap();
        let mut nodes = AckCounters::open(&deal, &directory, 0).unwrap();
        let mut clients = AckCounters::open(&deal, &directory, 1).unwrap();
        assert!(!nodes.reach(MeasurePhase::Runs), "the other part has said nothing");
        while !(clients.reach(MeasurePhase::Runs) && nodes.reach(MeasurePhase::Runs)) {}
        let both = GroupSet::first(2);
        nodes.delivered(1, Gid(0), 17);
        nodes.delivered(0, Gid(1), 17);
        nodes.flush();
        assert!(!clients.is_delivered(1, 17, both) && !clients.is_delivered(0, 17, both));
        assert!(clients.is_delivered(1, 17, GroupSet::one(Gid(0))));
        nodes.delivered(1, Gid(1), 17);
        nodes.flush();
        assert!(clients.is_delivered(1, 17, both));
        assert!(!clients.is_delivered(1, 26, both), "another multicast in the same place");
        assert!(!nodes.are_at(MeasurePhase::Finished));
    }
}
