//! What a protocol says of itself, and how it is built: its line in the catalog.

use crate::cluster::{Cluster, Overlay};
use crate::config::{Config, ConfigError, Param};
use crate::id::{GroupSet, Pid};
use crate::memory::{Memory, RegionSpec};
use crate::messages::Frames;
use crate::property::Property;
use crate::step::Protocol;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A protocol of the catalog.
pub trait Entry: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it promises, assumes and takes.
    fn about(&self) -> &'static About;

    /// One process of it.
    ///
    /// # Errors
    /// When values of the configuration do not go together, or the process has no role in it.
    fn build(&self, me: Pid, config: &Config) -> Result<Node, ConfigError>;

    /// What its processes keep on disk.
    fn keeps(&self) -> Keeps {
        Keeps::Nothing
    }

    /// Whether its processes answer barriers ([`Input::Barrier`](crate::Input::Barrier)): then reads need
    /// no place in the order.
    fn has_barriers(&self) -> bool {
        false
    }

    /// Which groups it orders messages among: a message may go to any that are in one of these sets
    /// together.
    fn together(&self, config: &Config) -> Vec<GroupSet> {
        alloc::vec![config.cluster().all_groups()]
    }

    /// The tree of groups along which it orders messages, if it does: only the groups on the paths from the
    /// lowest common ancestor of a message's destinations down to them take part in ordering it.
    fn overlay<'a>(&self, _config: &'a Config) -> Option<&'a Overlay> {
        None
    }

    /// A message or the lines of a memory region, for people.
    fn show(&self, bytes: &[u8]) -> String;
}

/// What a protocol promises, assumes and takes.
#[derive(Debug)]
pub struct About {
    /// In a sentence.
    pub summary: &'static str,
    /// The paper and section it comes from.
    pub paper: &'static str,
    /// What it talks through.
    pub medium: MediumKind,
    /// The properties it promises in every run that keeps its assumptions.
    pub promises: &'static [Property],
    /// What must hold for that. Drivers attack everything that is not listed here.
    pub assumes: &'static [Assumption],
    /// Its parameters.
    pub params: &'static [Param],
}

/// What the processes of a protocol keep on disk, by [`Output::Persist`](crate::Output::Persist).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// Nothing: who starts again has forgotten everything.
    Nothing,
    /// What survives the end of a process; they await nothing.
    Written,
    /// What survives the end of the machine; they await what they promise.
    Synced,
}

/// Which medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediumKind {
    /// [`crate::messages::Messages`].
    Messages,
    /// [`crate::memory::Memory`].
    Memory,
}

/// What a protocol needs from its surroundings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assumption {
    /// No process crashes.
    NoCrash,
    /// In each group a majority of replicas works at any time, counting one that restarted as
    /// failed until it is fit again ([`Protocol::fit`]).
    MajorityFit,
    /// Streams between processes that live do not break.
    StreamsHold,
    /// Nothing is sent as a datagram that may not be lost: only streams are used.
    StreamsOnly,
    /// Failure detectors never suspect a process that lives.
    PerfectDetector,
    /// A client's place is not given to another process while the first one lives.
    ExclusiveLease,
}

/// One process of a protocol.
pub enum Node {
    /// It exchanges messages.
    Messages(Box<dyn Protocol<Medium = Frames> + Send>),
    /// It writes and reads memory; these are the regions that it owns, in order of their ids.
    Memory(Box<dyn Protocol<Medium = Memory> + Send>, Vec<RegionSpec>),
}

impl Node {
    /// The regions it owns; none for message passing.
    pub fn regions(&self) -> &[RegionSpec] {
        match self {
            Self::Messages(_) => &[],
            Self::Memory(_, regions) => regions,
        }
    }
}

/// Every process of a cluster, in order of pid.
///
/// # Errors
/// As [`Entry::build`].
pub fn build_all(entry: &dyn Entry, config: &Config) -> Result<Vec<Node>, ConfigError> {
    let cluster: &Cluster = config.cluster();
    cluster.pids().map(|p| entry.build(p, config)).collect()
}
