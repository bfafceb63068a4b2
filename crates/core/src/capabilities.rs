//! The abilities of a protocol towards the program that runs it: [`Capabilities`], declared once by each entry
//! of the catalog.
//!
//! A driver, a service and a tool ask the declaration, and derive nothing from a protocol's name, from
//! its promises or from its medium. Promises say what holds of the order of deliveries; capabilities
//! say which inputs a process answers and which outputs it makes. A declared capability must be there, and one that
//! is not declared must be absent: the test `capabilities` of the protocols' crate runs every entry and
//! compares. [`Entry::require`](crate::Entry::require) refuses an entry for a missing capability, in the one
//! sentence of [`MissingCapability`].

use core::fmt;

/// The abilities of a protocol, besides ordering messages within one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Whether a message may go to several groups.
    ///
    /// Drivers: a cluster of such a protocol may have several shards, and a command several destinations.
    /// The protocol owes: a configuration of several groups can be built, [`Protocol::room`] is more than 0
    /// towards every set of groups that [`Entry::together`] admits, and all its groups deliver. Without it
    /// [`Entry::build`] refuses a configuration of several groups.
    ///
    /// [`Protocol::room`]: crate::Protocol::room
    /// [`Entry::together`]: crate::Entry::together
    /// [`Entry::build`]: crate::Entry::build
    pub several_groups: bool,
    /// Which processes multicast.
    ///
    /// Drivers: where clients do, a gateway takes a client's place in the cluster; where replicas do, it hands
    /// commands to a node, and nodes multicast reports of their own (clocks, digests).
    /// The protocol owes: processes of the other kind have no [`Protocol::room`], or cannot be built.
    ///
    /// [`Protocol::room`]: crate::Protocol::room
    pub senders: Senders,
    /// Whether the members of a group agree on views.
    ///
    /// Drivers: the runtime records views for the checker, and a node that stops asks its replicas to leave.
    /// The protocol owes: [`ViewEntered`](crate::ProtocolEvent::ViewEntered) when a process enters a view, and an answer
    /// to [`Input::Leave`](crate::Input::Leave).
    pub views: bool,
    /// Whether a process answers a read index, [`Input::Barrier`](crate::Input::Barrier).
    ///
    /// Drivers: a read of one group takes no place in the order.
    /// The protocol owes: [`Output::Passed`](crate::Output::Passed) once the process has delivered all messages that any
    /// replica of its group had delivered when the barrier was set.
    pub read_index: bool,
    /// The failures that the log of a process survives.
    ///
    /// Drivers: the runtime opens a write-ahead log and keeps checkpoints, a cluster outlives its processes,
    /// and the simulator fails disks.
    /// The protocol owes: [`Output::Persist`](crate::Output::Persist) for each promise that it must keep, and the same
    /// state again from [`Input::Stored`](crate::Input::Stored).
    pub durability: Durability,
    /// Whether a replica that misses state takes that of another one.
    ///
    /// Drivers: they bring the application's state from one replica to another.
    /// The protocol owes: [`NeedsState`](crate::ProtocolEvent::NeedsState) at the replica that misses state, with a
    /// position that another replica has in force.
    pub state_transfer: bool,
    /// Whether a group continues when one of its processes fails, so that services may be built on it.
    ///
    /// Drivers: `amcast up` and `amcast node` start no cluster of a protocol without it.
    /// The protocol owes: while a majority of each group works, each multicast message is delivered.
    pub crash_tolerance: bool,
    /// Whether all promises are kept where a process that lives is taken for failed, as a partition or a long pause makes
    /// it seem, so that services may be built on it.
    ///
    /// Drivers: `amcast up` and `amcast node` start no cluster of a protocol without it.
    /// The protocol owes: its promises with each [`Oracle`](crate::step::Oracle), also one that is wrong.
    pub suspicion_tolerance: bool,
    /// Whether a process shows messages before their place in the order is decided.
    ///
    /// Drivers: an application may execute a message at once, and undo it where the order is another one.
    /// The protocol owes: [`Output::Early`](crate::Output::Early) for messages that it has, where its driver wants that.
    pub early_delivery: bool,
    /// Which components of a partitioned group continue.
    ///
    /// Drivers: services without a hook to reconcile start no cluster where all of them do, and the simulator expects a
    /// message in the view alone in which it was delivered.
    /// The protocol owes, where all do: each process delivers its own messages also where it hears nobody, each message in one view
    /// alone, and [`Merged`](crate::ProtocolEvent::Merged) where components come together.
    pub partitions: PartitionMode,
    /// The messages of it that may be sent as datagrams: the parameter [`LANE`](crate::parameters::LANE) says
    /// whether they are.
    ///
    /// Drivers: a node opens a socket for datagrams to all its peers; measurements over UDP.
    /// The protocol owes: it bears the loss, the doubling and the reordering of each.
    pub datagrams: Datagrams,
}

/// Which processes multicast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Senders {
    /// Processes of their own, outside of all groups.
    Clients,
    /// The replicas; a cluster has no clients.
    Replicas,
}

/// The records that the processes of a protocol keep on disk, by [`Output::Persist`](crate::Output::Persist).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Nothing: a process that starts again has forgotten everything.
    Volatile,
    /// Records that survive the end of a process; it awaits nothing.
    Written,
    /// Records that survive the end of the machine; a process awaits them before it promises.
    Synced,
}

impl Durability {
    /// Whether there is a log at all.
    pub const fn has_log(self) -> bool {
        !matches!(self, Self::Volatile)
    }
}

/// Which components of a partitioned group continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionMode {
    /// One at most: the one that has a majority, as a rule. So all orders are one.
    PrimaryComponent,
    /// Every one, with an order of its own, and none catches up with another one when they merge.
    EveryComponent,
}

/// The messages that a protocol may send as datagrams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Datagrams {
    /// Nothing.
    Never,
    /// Messages to one process each.
    Unicast,
    /// Messages to one process, and one for all members of a group: IP multicast.
    Multicast,
}

impl Capabilities {
    /// Nothing but order within one group, among replicas that never fail. A declaration begins with it and
    /// says what there is besides, so that a capability that is added here is absent until it is declared.
    pub const NONE: Self = Self {
        several_groups: false,
        senders: Senders::Replicas,
        views: false,
        read_index: false,
        durability: Durability::Volatile,
        state_transfer: false,
        crash_tolerance: false,
        suspicion_tolerance: false,
        early_delivery: false,
        partitions: PartitionMode::PrimaryComponent,
        datagrams: Datagrams::Never,
    };

    /// Whether this one is declared.
    pub fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::SeveralGroups => self.several_groups,
            Capability::SendingReplicas => self.senders == Senders::Replicas,
            Capability::SendingClients => self.senders == Senders::Clients,
            Capability::Views => self.views,
            Capability::ReadIndex => self.read_index,
            Capability::DurableLog => self.durability.has_log(),
            Capability::SyncedLog => self.durability == Durability::Synced,
            Capability::StateTransfer => self.state_transfer,
            Capability::CrashTolerance => self.crash_tolerance,
            Capability::SuspicionTolerance => self.suspicion_tolerance,
            Capability::EarlyDelivery => self.early_delivery,
            Capability::OneOrder => self.partitions == PartitionMode::PrimaryComponent,
            Capability::Datagrams => self.datagrams >= Datagrams::Unicast,
            Capability::IpMulticast => self.datagrams == Datagrams::Multicast,
        }
    }
}

macro_rules! capabilities {
    ($($variant:ident = $name:literal, $lacks:literal;)*) => {
        /// One thing that a protocol can do or not: a question to [`Capabilities`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Capability { $(#[doc = $name] $variant,)* }

        impl Capability {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name in lists.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The refusal of a protocol without it, behind the protocol's name.
            const fn lack(self) -> &'static str {
                match self { $(Self::$variant => $lacks),* }
            }
        }
    };
}

capabilities! {
    SeveralGroups = "multicast to several groups", "orders within one group";
    SendingReplicas = "replicas multicast", "takes multicasts from clients only";
    SendingClients = "clients multicast", "takes multicasts from replicas only";
    Views = "views", "has no views: the members of a group are fixed";
    ReadIndex = "read index", "has no read index: each read takes a place in the order";
    DurableLog = "log on disk", "keeps nothing on disk";
    SyncedLog = "synced log", "does not sync what it acknowledges to disk";
    StateTransfer = "state transfer", "gives a replica that misses state no other one's";
    CrashTolerance = "crash tolerance",
        "assumes that no process crashes, which nobody can promise of real ones";
    SuspicionTolerance = "suspicion tolerance",
        "assumes a perfect failure detector: a partition, in which nodes that live seem to have failed, makes two orders of \
         one group";
    EarlyDelivery = "early delivery",
        "shows no message before its place in the order is decided";
    OneOrder = "one order in a partition",
        "continues in every component of a partition, each with an order of its own: only a service whose state machine has \
         a reconcile hook runs on it";
    Datagrams = "datagrams", "runs on streams only";
    IpMulticast = "IP multicast", "sends no datagram to a whole group";
}

/// The refusal of a protocol that has not a needed capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissingCapability {
    /// The protocol's name.
    pub protocol: &'static str,
    /// The missing capability.
    pub capability: Capability,
}

impl fmt::Display for MissingCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.protocol, self.capability.lack())
    }
}

impl core::error::Error for MissingCapability {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn nothing_is_declared_unless_it_is_written_down() {
        let declared = Capability::ALL.iter().filter(|&&c| Capabilities::NONE.has(c));
        assert!(declared.eq([&Capability::SendingReplicas, &Capability::OneOrder]));
        let synced = Capabilities { durability: Durability::Synced, ..Capabilities::NONE };
        assert!(synced.has(Capability::DurableLog) && synced.has(Capability::SyncedLog));
        let written = Capabilities { durability: Durability::Written, ..Capabilities::NONE };
        assert!(written.has(Capability::DurableLog) && !written.has(Capability::SyncedLog));
    }

    #[test]
    fn a_refusal_names_the_protocol_and_what_it_lacks() {
        let lacks = MissingCapability { protocol: "toy", capability: Capability::DurableLog };
        assert_eq!(lacks.to_string(), "toy keeps nothing on disk");
    }
}
