//! A member of a group that continues in every component of a partition, in a program of one's own.

use super::{StartError, entry};
use amcast_core::{Config, RawConfig};
use amcast_net::Secret;
use amcast_node::component_member::{ComponentMember, ComponentMemberOptions};
use amcast_smr::{ReconcileLimits, StateMachine};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The options of a member: the same at all members, except for its rank and its directory.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// The protocol's name in the catalog: one that continues in every component of a partition.
    pub protocol: String,
    /// Values of its parameters, by name.
    pub set: Vec<(String, String)>,
    /// A number of the group's own: members of another one are not let in.
    pub group: u64,
    /// The secret of the group's members; none only where all of them listen on this machine.
    pub secret: Secret,
    /// Where each member listens, by rank: for connections by TCP, and for datagrams by UDP.
    pub addresses: Vec<SocketAddr>,
    /// Which of them this one is.
    pub rank: usize,
    /// A directory for the number of its next life, which is there already: the same one whenever it starts.
    pub directory: PathBuf,
    /// How many commands it takes, and how large they are.
    pub limits: ReconcileLimits,
    /// A directory in which it writes its history for the checker, if it is to write one: memory and files grow with the run
    /// then.
    pub record: Option<PathBuf>,
}

/// Starts a member of a group of this state machine. It serves from then on, also while it hears no other one.
///
/// # Errors
/// When it cannot be started: the protocol continues in one component of a partition only; the machine has no hook to
/// reconcile; an option is wrong; a socket or file cannot be used.
pub fn member<S: StateMachine>(options: &MemberOptions) -> Result<ComponentMember<S>, StartError> {
    let MemberOptions { protocol, set, group, secret, addresses, rank, directory, limits, .. } =
        options;
    let entry = entry(protocol)?;
    let raw = RawConfig {
        groups: 1,
        replicas: addresses.len(),
        clients: 0,
        set: set.iter().cloned().collect(),
        ..RawConfig::default()
    };
    let config: Config = raw.check(entry.about().params).map_err(StartError::Config)?;
    let started = ComponentMember::start(ComponentMemberOptions {
        entry,
        config: &config,
        cluster_id: *group,
        secret,
        addresses,
        rank: *rank,
        directory,
        limits: *limits,
        record: options.record.as_deref(),
    });
    started.map_err(StartError::Member)
}
