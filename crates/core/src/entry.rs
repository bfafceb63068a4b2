//! A protocol's description of itself, and its constructor: its line in the catalog.

use crate::capabilities::{Capabilities, Capability, MissingCapability};
use crate::cluster::{ClusterShape, Overlay};
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

    /// Its promises, assumptions and parameters.
    fn about(&self) -> &'static About;

    /// One process of it.
    ///
    /// # Errors
    /// When values of the configuration do not go together, or the process has no role in it.
    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError>;

    /// Its capabilities.
    fn capabilities(&self) -> &'static Capabilities {
        &self.about().capabilities
    }

    /// Refuses the entry for a purpose that needs a missing capability.
    ///
    /// # Errors
    /// When the capability is missing.
    fn require(&self, capability: Capability) -> Result<(), MissingCapability> {
        match self.capabilities().has(capability) {
            true => Ok(()),
            false => Err(MissingCapability { protocol: self.name(), capability }),
        }
    }

    /// Which groups it orders messages among in this configuration: a message may go to any that are in
    /// one of these sets together. A set of several groups is for entries that declare
    /// [`Capabilities::several_groups`] only.
    fn together(&self, config: &Config) -> Vec<GroupSet> {
        alloc::vec![config.cluster().all_groups()]
    }

    /// The tree of groups along which it orders messages, if it does: only the groups on the paths from the
    /// lowest common ancestor of a message's destinations down to them take part in ordering it.
    fn overlay<'a>(&self, _config: &'a Config) -> Option<&'a Overlay> {
        None
    }

    /// Whether the tree of a running system of this configuration can be changed ([`Input::Overlay`]): then none is its
    /// [`overlay`](Self::overlay) for good.
    ///
    /// [`Input::Overlay`]: crate::Input::Overlay
    fn has_dynamic_overlay(&self, _config: &Config) -> bool {
        false
    }

    /// Refuses the entry for a service on real processes: some of them crash, and some that live seem to have failed. A
    /// service that cannot reconcile two states needs one order, too.
    ///
    /// # Errors
    /// The capability that is missing.
    fn require_service(&self) -> Result<(), MissingCapability> {
        self.require(Capability::CrashTolerance)?;
        self.require(Capability::SuspicionTolerance)?;
        self.require(Capability::OneOrder)
    }

    /// Values in which simulations by the thousand try its own parameters: small ones, so that rare events show
    /// soon, and the usual one. A value that cannot be in a cluster of some shape is not tried there.
    fn trials(&self) -> &'static Trials {
        &[]
    }

    /// A message or the lines of a memory region, for people.
    fn show(&self, bytes: &[u8]) -> String;
}

/// Values of parameters, by the parameter's name; a value that is there twice is drawn twice as often.
pub type Trials = [(&'static str, &'static [&'static str])];

/// The promises, assumptions and parameters of a protocol.
#[derive(Debug)]
pub struct About {
    /// In a sentence.
    pub summary: &'static str,
    /// The paper and section it comes from.
    pub paper: &'static str,
    /// Its medium.
    pub medium: MediumKind,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// The properties it promises in every run that keeps its assumptions.
    pub promises: &'static [Property],
    /// The assumptions of these promises. Drivers attack everything that is not listed here.
    pub assumes: &'static [Assumption],
    /// Its parameters.
    pub params: &'static [Param],
}

/// Which medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediumKind {
    /// [`crate::messages::Messages`].
    Messages,
    /// [`crate::memory::Memory`].
    Memory,
}

/// A need of a protocol from its surroundings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assumption {
    /// No process crashes.
    NoCrash,
    /// In each group a majority of replicas works at any time, counting one that restarted as
    /// failed until it is fit again ([`Protocol::fit`]).
    MajorityFit,
    /// In each group one replica works at any time that has the group's state; one that restarted counts as failed until
    /// it is fit again ([`Protocol::fit`]).
    OneFit,
    /// Streams between processes that live do not break.
    StreamsHold,
    /// Nothing is sent as a datagram that may not be lost: only streams are used.
    StreamsOnly,
    /// Failure detectors never suspect a process that lives.
    PerfectDetector,
    /// A client's place is not given to another process while the first one lives.
    ExclusiveLease,
}

impl About {
    /// Whether a process, faulty or not, delivers nothing that the others do not deliver, in the same
    /// order: uniform agreement and uniform order are both promised, of one group or of several.
    pub fn is_uniform(&self) -> bool {
        let any = |of: &[Property]| of.iter().any(|p| self.promises.contains(p));
        self.agrees_uniformly() && any(&[Property::UniformPrefixOrder, Property::Suto])
    }

    /// Whether all correct processes deliver each message that any process delivers, in any order.
    pub fn agrees_uniformly(&self) -> bool {
        let uniform = [Property::UniformAgreement, Property::Ua];
        uniform.iter().any(|p| self.promises.contains(p))
    }

    /// How many replicas of a group certainly have a message that one of them delivered, that one included: a majority
    /// where they agree uniformly although any minority may fail. Otherwise a delivery proves nothing of the others: no
    /// replica may fail, or the only one left delivers alone.
    pub fn certain_replicas(&self, cluster: &ClusterShape) -> usize {
        let no_majority = [Assumption::NoCrash, Assumption::OneFit];
        let by_majority = !no_majority.iter().any(|a| self.assumes.contains(a));
        if by_majority && self.agrees_uniformly() { cluster.quorum() } else { 1 }
    }
}

/// One process of a protocol.
pub enum ProtocolProcess {
    /// It exchanges messages.
    Messages(Box<dyn Protocol<Medium = Frames> + Send>),
    /// It writes and reads memory; these are the regions that it owns, in order of their ids.
    Memory(Box<dyn Protocol<Medium = Memory> + Send>, Vec<RegionSpec>),
}

impl ProtocolProcess {
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
pub fn build_all(entry: &dyn Entry, config: &Config) -> Result<Vec<ProtocolProcess>, ConfigError> {
    let cluster: &ClusterShape = config.cluster();
    cluster.pids().map(|p| entry.build(p, config)).collect()
}
