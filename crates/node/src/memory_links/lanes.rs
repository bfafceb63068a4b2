//! Carriers of the frames between hosts, other than the connections themselves.
//!
//! A *lane* carries the frames of the memory of hosts between two nodes, beside the connection that the two have: each end opens
//! its lane when there is a connection, and sends the other an invitation over it, which names the lane. The connection
//! proves which node the other one is, shows when it is gone, and carries nothing else. When it ends, the lane is closed first:
//! nothing of that node lands in memory any more, and the next connection has a new lane.

use std::os::fd::BorrowedFd;

/// The first byte of an invitation; frames of `amcast_memory::remote` begin with lower ones.
const INVITATION: u8 = 32;

/// How frames travel between hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum HostCarrier {
    /// Over the nodes' connections.
    #[default]
    Tcp,
    /// By remote memory access, which needs a program with the feature `rdma`.
    Rdma {
        /// The provider of libfabric: `tcp`, `verbs`, `efa`.
        provider: String,
    },
}

/// A lane that is at its end: the node at the other end, and why.
pub(super) type LaneEnd = (usize, String);

/// The lanes of a node, one to each other node that it is connected to.
pub(super) trait FrameLanes: Send {
    /// Their name, for people.
    fn name(&self) -> String;

    /// Opens a lane to a node, in place of any that there is, and gives the address for the invitation.
    fn open(&mut self, node: usize) -> Result<Vec<u8>, String>;

    /// The other end of the lane to a node is at this address.
    fn meet(&mut self, node: usize, address: &[u8]) -> Result<(), String>;

    /// Closes the lane to a node: when it returns, nothing of that node lands any more.
    fn close(&mut self, node: usize);

    /// Bytes of frames that a node has not taken.
    fn backlog(&self, node: usize) -> usize;

    /// Puts a frame behind those before it; it is lost if there is no lane.
    fn send(&mut self, node: usize, frame: &[u8]);

    /// Gives the frames that arrived; `take` says whether it wants more of the same node. Whether there was anything.
    fn receive(
        &mut self,
        take: &mut dyn FnMut(usize, &[u8]) -> bool,
        ended: &mut Vec<LaneEnd>,
    ) -> bool;

    /// Sends frames that were put; whether there were any.
    fn flush(&mut self, ended: &mut Vec<LaneEnd>) -> bool;

    /// The descriptor that is ready when something may have arrived from a node, if the lane has one.
    fn wait_fd(&self, node: usize) -> Option<BorrowedFd<'_>>;

    /// Whether there is nothing to do before a descriptor is ready.
    fn may_sleep(&mut self) -> bool;
}

/// The invitation to the lane at this address: its head, before the address.
pub(super) const fn invitation() -> [u8; 1] {
    [INVITATION]
}

/// The address in an invitation; none if the frame is none.
pub(super) fn invited(frame: &[u8]) -> Option<&[u8]> {
    frame.split_first().filter(|(kind, _)| **kind == INVITATION).map(|(_, address)| address)
}

impl HostCarrier {
    /// The lanes of a node among so many, from the local address `bind`; none over connections. Opens one for a trial.
    ///
    /// # Errors
    /// When there can be none here.
    #[cfg(feature = "rdma")]
    pub(super) fn lanes(
        &self,
        nodes: usize,
        bind: std::net::IpAddr,
    ) -> Result<Option<Box<dyn FrameLanes>>, String> {
        match self {
            Self::Tcp => Ok(None),
            Self::Rdma { provider } => {
                Ok(Some(Box::new(super::fabric::FabricLanes::new(provider, nodes, bind)?)))
            }
        }
    }

    /// The same without the feature.
    ///
    /// # Errors
    /// For any but connections.
    #[cfg(not(feature = "rdma"))]
    pub(super) fn lanes(
        &self,
        _: usize,
        _: std::net::IpAddr,
    ) -> Result<Option<Box<dyn FrameLanes>>, String> {
        match self {
            Self::Tcp => Ok(None),
            Self::Rdma { .. } => Err(
                "this program was built without remote memory access: install libfabric-dev, and build it with \
                 `cargo build --release -p amcast-cli --features rdma`"
                    .to_string(),
            ),
        }
    }
}
