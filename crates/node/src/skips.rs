//! The messages that a node skips, by decision of those who run the cluster.
//!
//! A decision is written into a node's directory while the node does not run ([`amcast_storage::SkipEntry`]). No
//! replica executes what another one skips:
//!
//! - A node reads its decisions at its start, before it talks to anybody, and goes by them for its whole life. It
//!   notes first that it is *bound*: from then on no tool takes the decision back.
//! - Two nodes with different decisions refuse each other's connections ([`SKIPPED`] is a thing that decides). So
//!   all that a majority agrees on is agreed among nodes with the same decisions.
//! - A node does not start from a state of its own, and takes none from another node, in which a message was executed
//!   that it is to skip, or skipped that it has no decision about
//!   ([`Application::conflict`](amcast_smr::application::Application::conflict)).
//! - A node skips nothing before it has met *every* other node with the same decisions: then all of them are bound, and
//!   none of them has executed the message in a state that outlasts it. That is noted (*agreed*), and so is that the
//!   message was reached (*used*), each before anything follows from it.
//!
//! Hence once any node has skipped a message, all nodes are bound to skip it, and none of them has it executed in
//! what it starts from; and where a node executes it, no node has skipped it. A node that is down at that time is
//! waited for; one that begins anew has executed nothing, and must be given the decisions before others let it in.

use amcast_core::{MsgId, SkipDecision};
use amcast_storage::{SkipEntry, SkipStage, StorageError, read_skipped, write_skipped};
use std::path::{Path, PathBuf};

/// By which name nodes compare their decisions, among all that decides what they do.
pub(crate) const SKIPPED: &str = "the messages that are skipped";

/// The messages that a node skips.
#[derive(Debug, Default)]
pub(crate) struct NodeSkips {
    /// Where it is written.
    data: PathBuf,
    entries: Vec<SkipEntry>,
}

impl NodeSkips {
    /// The messages that the node with this directory skips; from now on it is bound to them.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub(crate) fn open(data: &Path) -> Result<Self, StorageError> {
        let mut it = Self { data: data.to_path_buf(), entries: read_skipped(data)? };
        it.advance(SkipStage::Decided, SkipStage::Bound)?;
        Ok(it)
    }

    fn advance(&mut self, from: SkipStage, to: SkipStage) -> Result<(), StorageError> {
        let mut entries = self.entries.clone();
        entries.iter_mut().filter(|entry| entry.stage == from).for_each(|entry| entry.stage = to);
        self.replace(entries)
    }

    fn replace(&mut self, entries: Vec<SkipEntry>) -> Result<(), StorageError> {
        if entries != self.entries {
            write_skipped(&self.data, &entries)?;
            self.entries = entries;
        }
        Ok(())
    }

    /// The decisions; each with whether the node may skip the message when it comes to it.
    pub(crate) fn decisions(&self) -> Vec<(SkipDecision, bool)> {
        self.entries.iter().map(|entry| (entry.decision, entry.stage == SkipStage::Used)).collect()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The messages with their places, in ascending order, by which nodes compare their decisions, and for people.
    /// A place is compared, too: one that was mistyped on a single host must not count as the decision of all.
    pub(crate) fn names(&self) -> String {
        match self.entries.is_empty() {
            true => "nothing".to_string(),
            false => names(self.entries.iter()),
        }
    }

    /// Those of them that `counts` and about which not every node was met yet, for people; none if there are none.
    pub(crate) fn open_ones(&self, counts: impl Fn(MsgId) -> bool) -> Option<String> {
        let is_open =
            |entry: &&SkipEntry| entry.stage < SkipStage::Agreed && counts(entry.decision.msg);
        let open: Vec<&SkipEntry> = self.entries.iter().filter(is_open).collect();
        (!open.is_empty()).then(|| names(open.into_iter()))
    }

    /// Every other node was met with the same decisions.
    ///
    /// # Errors
    /// When that cannot be written down; it does not count then.
    pub(crate) fn agree(&mut self) -> Result<(), StorageError> {
        self.advance(SkipStage::Bound, SkipStage::Agreed)
    }

    /// The node has reached this message: returns its decision if it may be skipped.
    ///
    /// # Errors
    /// When that cannot be written down; it must not be skipped then.
    pub(crate) fn begin_to_use(
        &mut self,
        msg: MsgId,
    ) -> Result<Option<SkipDecision>, StorageError> {
        let mut entries = self.entries.clone();
        let mut agreed = entries.iter_mut().filter(|entry| entry.stage >= SkipStage::Agreed);
        let Some(entry) = agreed.find(|entry| entry.decision.msg == msg) else { return Ok(None) };
        entry.stage = SkipStage::Used;
        let decision = entry.decision;
        self.replace(entries)?;
        Ok(Some(decision))
    }

    /// How many of the messages are such.
    pub(crate) fn count(&self, is_such: impl Fn(MsgId) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_such(entry.decision.msg)).count()
    }
}

fn names<'a>(entries: impl Iterator<Item = &'a SkipEntry>) -> String {
    entries.map(|entry| entry.decision.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::{Gid, Pid};
    use std::fs;

    fn decided(seq: u64) -> SkipEntry {
        let msg = MsgId { sender: Pid(1), seq };
        let decision = SkipDecision { msg, group: Gid(0), position: seq };
        SkipEntry { decision, stage: SkipStage::Decided }
    }

    #[test]
    fn a_start_binds_a_meeting_of_all_agrees_and_only_then_it_is_used_each_on_disk_first() {
        let data = std::env::temp_dir().join(format!("amcast-skips-{}", std::process::id()));
        fs::create_dir_all(&data).unwrap();
        assert!(NodeSkips::open(&data).unwrap().is_empty() && !data.join("skipped").exists());
        assert_eq!(NodeSkips::default().names(), "nothing");
        let (one, other) = (decided(7), decided(9));
        write_skipped(&data, &[one, other]).unwrap();
        let stages = || -> Vec<u8> {
            read_skipped(&data).unwrap().iter().map(|entry| entry.stage as u8).collect()
        };
        let mut skips = NodeSkips::open(&data).unwrap();
        assert_eq!(stages(), [2, 2], "bound before anybody is talked to");
        assert_eq!(skips.names(), "p1:7@g0/7, p1:9@g0/9");
        assert_eq!(skips.begin_to_use(one.decision.msg).unwrap(), None);
        let open = skips.open_ones(|msg| msg == one.decision.msg);
        assert_eq!(open.as_deref(), Some("p1:7@g0/7"));
        drop(NodeSkips::open(&data).unwrap());
        assert_eq!(stages(), [2, 2]);
        skips.agree().unwrap();
        assert_eq!((stages(), skips.open_ones(|_| true)), (vec![3, 3], None));
        assert_eq!(skips.begin_to_use(one.decision.msg).unwrap(), Some(one.decision));
        assert_eq!(stages(), [4, 3]);
        assert_eq!(skips.begin_to_use(decided(8).decision.msg).unwrap(), None);
        assert_eq!(skips.decisions(), [(one.decision, true), (other.decision, false)]);
        // A node with another place for a message has another decision.
        let elsewhere = SkipDecision { position: 8, ..other.decision };
        let elsewhere = SkipEntry { decision: elsewhere, ..other };
        let of = |entry| NodeSkips { data: data.clone(), entries: vec![entry] }.names();
        assert_ne!(of(elsewhere), of(other));
        // Nothing is taken for done that is not on the disk.
        fs::remove_dir_all(&data).unwrap();
        assert!(skips.begin_to_use(other.decision.msg).is_err());
        assert_eq!(skips.decisions()[1], (other.decision, false));
    }
}
