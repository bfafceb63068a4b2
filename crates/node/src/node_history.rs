//! A node's history over all its lives, kept only where histories are recorded.
//!
//! The deliveries of a process over all its incarnations are one sequence. A node that restarts
//! installs a state instead of delivering its contents; so the source of the state lists its
//! deliveries, and the node records them as delivered, from the end of its earlier incarnations'
//! files.
//!
//! Recording may begin with a cluster that has data: the node's life is not its first then, and it has no earlier
//! file. Its first file says so, and its list of deliveries begins at the state that it restores, which may be
//! another one at each node: what a later life takes over from another node is compared with its own files message
//! by message.
//!
//! Where nothing is recorded none of this exists; where it is, memory grows with the run, as
//! the files do, until the files are as large as they may be.

use crate::history::{HistoryRecorder, RESTORED};
use amcast_core::codec::{ByteReader, Codec, CodecError};
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, Gid, GroupSet, MsgId, Overlay, Pid, Time};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// The records of a node besides its deliveries.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct HistoryKind<'a> {
    /// Its replicas multicast, and not clients.
    pub(crate) multicasts: bool,
    /// Groups have views. Each life is then a process of its own, which records as delivered all that
    /// came with the state that it was given.
    pub(crate) views: bool,
    /// The tree of groups along which messages are ordered, if they are.
    pub(crate) overlay: Option<&'a Overlay>,
    /// An earlier life may have left it a state.
    pub(crate) lived: bool,
}

/// The deliveries that the files of a node's earlier lives have, by group.
enum EarlierDeliveries {
    /// So many.
    Counted(Vec<usize>),
    /// These, where recording began later than the cluster; without those that were met again since.
    Named(Vec<BTreeSet<String>>),
}

/// The deliveries of a node's replicas, in a file and in memory.
pub(crate) struct NodeHistory {
    recorder: HistoryRecorder,
    /// The multicasts of the replicas, where members multicast: in a file of their own, since
    /// recording multicasts must not end before recording deliveries.
    casts: Option<HistoryRecorder>,
    /// The replica of each group.
    pids: Vec<Pid>,
    /// Each group's deliveries: position and message.
    delivered: Vec<Vec<(u64, MsgId)>>,
    /// The deliveries of each group that the files of earlier lives have.
    earlier: EarlierDeliveries,
    cluster: ClusterShape,
}

impl NodeHistory {
    /// Begins the next file of the node.
    pub(crate) fn begin(
        dir: &Path,
        name: &str,
        cluster: ClusterShape,
        pids: &[Pid],
        HistoryKind { multicasts, views, overlay, lived }: HistoryKind<'_>,
        now: Time,
    ) -> io::Result<Self> {
        let earlier = match views {
            true => Ok(EarlierDeliveries::Counted(vec![0; pids.len()])),
            false => earlier_lives(dir, name, cluster, pids),
        };
        let mut recorder = HistoryRecorder::begin_in(dir, name, cluster, pids, overlay, now)?;
        if lived && !views && recorder.is_first() {
            pids.iter().for_each(|&p| recorder.restored(p));
        }
        let casts = if multicasts {
            let sent = format!("{name}-sent");
            Some(HistoryRecorder::begin(dir, &sent, cluster, &[], now)?)
        } else {
            None
        };
        let delivered = vec![Vec::new(); pids.len()];
        let (pids, earlier) = (pids.to_vec(), earlier?);
        Ok(Self { recorder, casts, pids, delivered, earlier, cluster })
    }

    /// The replica of `group` delivered.
    pub(crate) fn deliver(&mut self, t: Time, group: Gid, position: u64, m: MsgId) {
        if !self.recorder.records() {
            return;
        }
        let list = &mut self.delivered[group.index()];
        if list.last().is_some_and(|&(last, _)| last >= position) {
            return;
        }
        list.push((position, m));
        let is_new = match &mut self.earlier {
            EarlierDeliveries::Counted(counts) => list.len() > counts[group.index()],
            EarlierDeliveries::Named(all) if all[group.index()].is_empty() => true,
            EarlierDeliveries::Named(all) => {
                !all[group.index()].remove(&format!("{}:{}", self.cluster.name(m.sender), m.seq))
            }
        };
        if is_new {
            self.recorder.event(&TraceEvent::Deliver { t, p: self.pids[group.index()], m });
        }
    }

    /// The process `p` broadcasts. [`NodeHistory::flush_casts`] must come before anyone can have the
    /// message.
    pub(crate) fn cast(&mut self, t: Time, p: Pid, m: MsgId, dst: GroupSet) {
        if let Some(casts) = &mut self.casts {
            casts.event(&TraceEvent::Cast { t, p, m, dst });
        }
    }

    /// Writes out what was broadcast: this process may be killed when others have it.
    pub(crate) fn flush_casts(&mut self) {
        if let Some(casts) = &mut self.casts {
            casts.flush();
        }
    }

    /// The process `p` enters a view. The line is written at once: who is killed later is known to
    /// have been in it.
    pub(crate) fn view(&mut self, t: Time, p: Pid, view: u64, members: &[Pid]) {
        let view = view.to_string();
        self.recorder.event(&TraceEvent::View { t, p, view: &view, members });
        self.recorder.flush();
    }

    /// The only replica was excluded from its group: it counts as failed, and from here on as a new
    /// process that has nothing yet.
    pub(crate) fn begin_anew(&mut self, t: Time) {
        for &p in &self.pids {
            self.recorder.event(&TraceEvent::Crash { t, p });
            self.recorder.event(&TraceEvent::Recover { t, p });
        }
        self.recorder.flush();
        self.delivered = vec![Vec::new(); self.pids.len()];
        self.earlier = EarlierDeliveries::Counted(vec![0; self.pids.len()]);
    }

    /// The process `p` has left its group by choice, and stops.
    pub(crate) fn left(&mut self, t: Time, p: Pid) {
        self.recorder.event(&TraceEvent::Leave { t, p });
        self.recorder.flush();
    }

    /// The process `p` took part.
    pub(crate) fn part(&mut self, t: Time, p: Pid, m: MsgId) {
        self.recorder.event(&TraceEvent::Part { t, p, m });
    }

    /// The process `p` takes part along this tree of so many groups from here on.
    pub(crate) fn takes_part_along(&mut self, (t, p): (Time, Pid), groups: usize, tree: &[u8]) {
        match Overlay::of_bytes(tree, groups) {
            Ok(tree) => self.recorder.event(&TraceEvent::Overlay { t, p, tree: &tree }),
            Err(e) => tracing::error!("{p:?} takes part along no tree: {e}"),
        }
    }

    pub(crate) fn flush(&mut self) {
        self.recorder.flush();
        self.flush_casts();
    }

    /// Appends every delivery, for a node that takes over this one's state.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        for list in &self.delivered {
            (list.len() as u64).encode(to);
            for (position, m) in list {
                position.encode(to);
                m.encode(to);
            }
        }
    }

    /// Records what came with a state whose groups stand at `positions`. A state without a history is from before
    /// anything was recorded.
    pub(crate) fn take_over(
        &mut self,
        now: Time,
        bytes: &[u8],
        positions: &[u64],
    ) -> Result<(), String> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut from = ByteReader::new(bytes);
        for (g, &end) in positions.iter().enumerate() {
            let list = read_list(&mut from).map_err(|e| e.to_string())?;
            for (position, m) in list.into_iter().filter(|&(position, _)| position <= end) {
                self.deliver(now, Gid(g as u8), position, m);
            }
        }
        Ok(())
    }
}

fn read_list(from: &mut ByteReader<'_>) -> Result<Vec<(u64, MsgId)>, CodecError> {
    let n = u64::decode(from)?;
    (0..n).map(|_| Ok((u64::decode(from)?, MsgId::decode(from)?))).collect()
}

/// The deliveries of each replica that the files of earlier lives have.
fn earlier_lives(
    dir: &Path,
    name: &str,
    cluster: ClusterShape,
    pids: &[Pid],
) -> io::Result<EarlierDeliveries> {
    let (mut counts, mut names) = (vec![0; pids.len()], vec![BTreeSet::new(); pids.len()]);
    let mut began_late = false;
    let needles: Vec<String> =
        pids.iter().map(|&p| format!("\"p\":\"{}\"", cluster.name(p))).collect();
    for run in 0.. {
        let text = match fs::read(dir.join(format!("{name}.{run}.jsonl"))) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => break,
            Err(e) => return Err(e),
        };
        began_late |= run == 0 && text.lines().take(2 * pids.len()).any(|l| l.contains(RESTORED));
        // A line that a kill has cut off does not end in a brace, and does not count.
        let whole = text.lines().filter(|l| l.contains("\"ev\":\"deliver\"") && l.ends_with('}'));
        for line in whole {
            let Some(g) = needles.iter().position(|needle| line.contains(needle)) else { continue };
            counts[g] += 1;
            let message = line.split("\"m\":\"").nth(1).and_then(|rest| rest.split('"').next());
            if began_late && let Some(message) = message {
                names[g].insert(message.to_string());
            }
        }
    }
    Ok(match began_late {
        true => EarlierDeliveries::Named(names),
        false => EarlierDeliveries::Counted(counts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_life_records_what_came_with_the_state_after_what_its_files_have() {
        let dir = std::env::temp_dir().join(format!("amcast-history-{}", std::process::id()));
        let cluster = ClusterShape::new(1, 2, 1).unwrap();
        let (p, q) = (cluster.replica(Gid(0), 0), cluster.replica(Gid(0), 1));
        let m = |seq| MsgId { sender: cluster.client(0), seq };
        let begin = |name: &str, pid: Pid, now: Time| {
            NodeHistory::begin(&dir, name, cluster, &[pid], HistoryKind::default(), now).unwrap()
        };
        let mut source = begin("n1", q, Time(0));
        let mut first = begin("n0", p, Time(0));
        for (position, seq) in [(3, 1), (5, 2), (9, 3)] {
            source.deliver(Time(1), Gid(0), position, m(seq));
        }
        first.deliver(Time(1), Gid(0), 3, m(1));
        drop(first);
        let mut state = Vec::new();
        source.write(&mut state);
        let mut second = begin("n0", p, Time(2));
        second.take_over(Time(3), &state, &[5]).unwrap();
        second.deliver(Time(4), Gid(0), 9, m(3));
        second.deliver(Time(5), Gid(0), 9, m(3));
        drop(second);
        let text = fs::read_to_string(dir.join("n0.1.jsonl")).unwrap();
        let messages: Vec<_> = text.lines().filter(|l| l.contains("deliver")).collect();
        assert_eq!(messages.len(), 2, "{text}");
        assert!(messages[0].contains("c0:2") && messages[1].contains("c0:3"), "{text}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn recording_that_begins_with_a_state_says_so_and_takes_over_what_it_has_not() {
        let dir = std::env::temp_dir().join(format!("amcast-begun-late-{}", std::process::id()));
        let cluster = ClusterShape::new(1, 2, 1).unwrap();
        let (p, q) = (cluster.replica(Gid(0), 0), cluster.replica(Gid(0), 1));
        let m = |seq| MsgId { sender: cluster.client(0), seq };
        let kind = HistoryKind { lived: true, ..HistoryKind::default() };
        let begin = |name: &str, pid: Pid, now: Time| {
            NodeHistory::begin(&dir, name, cluster, &[pid], kind, now).unwrap()
        };
        // Their states on disk have no history, and that of the other node is an earlier one.
        let (mut source, mut first) = (begin("n1", q, Time(0)), begin("n0", p, Time(0)));
        source.take_over(Time(1), &[], &[2]).unwrap();
        first.take_over(Time(1), &[], &[5]).unwrap();
        for (position, seq) in [(3, 1), (5, 2), (9, 3), (10, 4)] {
            source.deliver(Time(1), Gid(0), position, m(seq));
        }
        first.deliver(Time(1), Gid(0), 9, m(3));
        drop(first);
        let mut state = Vec::new();
        source.write(&mut state);
        let mut second = begin("n0", p, Time(2));
        second.take_over(Time(3), &state, &[10]).unwrap();
        drop(second);
        let read = |run: u32| fs::read_to_string(dir.join(format!("n0.{run}.jsonl"))).unwrap();
        let restored =
            "{\"ev\":\"process\",\"p\":\"g0/r0\",\"groups\":[\"g0\"],\"restored\":true}\n";
        assert!(read(0).contains(restored), "{}", read(0));
        assert!(!read(1).contains("restored"), "{}", read(1));
        let deliveries = |text: &str| text.matches("\"m\":\"c0:3\"").count();
        assert_eq!((deliveries(&read(0)), deliveries(&read(1))), (1, 0), "once in all");
        assert!(read(1).contains("c0:4"), "{}", read(1));
        fs::remove_dir_all(&dir).unwrap();
    }
}
