//! Carriers of the frames between hosts, other than the connections themselves.
//!
//! A *lane* carries the frames of the memory of hosts between two nodes, beside the connection that the two have: each end opens
//! its lane when there is a connection, and sends the other an invitation over it, which names the lane. The connection
//! proves which node the other one is, shows when it is gone, and carries nothing else. When it ends, the lane is closed first:
//! nothing of that node lands in memory any more, and the next connection has a new lane.
//!
//! A lane that fails, or that carries nothing within the limits of [`super::lane_states`], ends the connection, so that both
//! ends begin again.

use super::lane_states::LaneStates;
use super::{LANE_SLEEP_MAX, SLEEP_MAX};
use amcast_core::{Pid, Span};
use amcast_net::Carrier;
use std::os::fd::BorrowedFd;
use std::time::Instant;

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

    /// The other end of the lane to a node is at this address. Gives the place where that is, for people.
    fn meet(&mut self, node: usize, address: &[u8]) -> Result<String, String>;

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

    /// How long the thread may sleep unless a descriptor is ready; not at all if there is something to do.
    fn sleep_max(&mut self) -> Span;
}

/// The lanes of a node with the state of each.
pub(super) struct NodeLanes {
    frames: Box<dyn FrameLanes>,
    states: LaneStates,
    /// By node: whether its lane wakes the thread.
    wakes: Vec<bool>,
}

impl NodeLanes {
    /// For so many nodes.
    #[cfg_attr(
        not(feature = "rdma"),
        expect(dead_code, reason = "without the feature there are no lanes")
    )]
    pub(super) fn new(frames: Box<dyn FrameLanes>, nodes: usize) -> Self {
        Self { frames, states: LaneStates::new(nodes), wakes: vec![true; nodes] }
    }

    /// Their name, for people.
    pub(super) fn name(&self) -> String {
        self.frames.name()
    }

    /// Why accesses do not reach the memory of a node, and what to do, if a lane to it failed and none carries frames since.
    pub(super) fn fault(&self, node: usize) -> Option<&str> {
        self.states.fault(node)
    }

    /// There is a new connection to a node.
    pub(super) fn connected(&mut self, node: usize) {
        self.frames.close(node);
        self.states.connected(node);
    }

    /// The connection to a node is gone: nothing of it lands from here on.
    pub(super) fn disconnected(&mut self, node: usize) {
        self.frames.close(node);
        self.states.disconnected(node);
    }

    /// The connection to a node is ended for this reason: nothing of it lands from here on. Gives the sentence for the log,
    /// unless it has been there lately.
    pub(super) fn fail(&mut self, node: usize, why: &str) -> Option<String> {
        self.frames.close(node);
        self.states.fail(node, why, Instant::now())
    }

    /// Opens lanes that are due, and sends the invitations. Gives the nodes of lanes whose other end is known by now.
    pub(super) fn open_due(
        &mut self,
        carrier: &mut Carrier,
        ended: &mut Vec<LaneEnd>,
    ) -> Vec<usize> {
        let mut met = Vec::new();
        while let Some(node) = self.states.next_due(Instant::now()) {
            let kept = self.states.opened(node, Instant::now());
            match self.frames.open(node) {
                Ok(address) => {
                    carrier.carry_parts(Pid(node as u32), &[INVITATION], &address);
                    let fd = self.frames.wait_fd(node);
                    self.wakes[node] = fd.is_some_and(|fd| carrier.watch(fd).is_ok());
                }
                Err(why) => {
                    ended.push((node, why));
                    continue;
                }
            }
            let Some(address) = kept else { continue };
            match self.meet(node, &address) {
                Ok(()) => met.push(node),
                Err(why) => ended.push((node, why)),
            }
        }
        met
    }

    /// A node invites this one; whether its lane is open here, and knows its other end by now.
    ///
    /// # Errors
    /// When the invitation is none that this node can follow.
    pub(super) fn invited(&mut self, node: usize, address: &[u8]) -> Result<bool, String> {
        if self.states.keep(node, address)? {
            return Ok(false);
        }
        self.meet(node, address).map(|()| true)
    }

    fn meet(&mut self, node: usize, address: &[u8]) -> Result<(), String> {
        let place = self.frames.meet(node, address)?;
        self.states.met(node, place, Instant::now());
        Ok(())
    }

    /// Finds lanes whose time is over, where `carries` says whether the memory of a node is reached. Gives nodes that
    /// are reached again after a fault.
    pub(super) fn look(
        &mut self,
        now: Instant,
        carries: impl Fn(usize) -> bool,
        ended: &mut Vec<LaneEnd>,
    ) -> Vec<usize> {
        self.states.look(now, carries, ended)
    }

    /// See [`FrameLanes::backlog`].
    pub(super) fn backlog(&self, node: usize) -> usize {
        self.frames.backlog(node)
    }

    /// See [`FrameLanes::send`].
    pub(super) fn send(&mut self, node: usize, frame: &[u8]) {
        self.frames.send(node, frame);
    }

    /// See [`FrameLanes::receive`].
    pub(super) fn receive(
        &mut self,
        take: &mut dyn FnMut(usize, &[u8]) -> bool,
        ended: &mut Vec<LaneEnd>,
    ) -> bool {
        self.frames.receive(take, ended)
    }

    /// See [`FrameLanes::flush`].
    pub(super) fn flush(&mut self, ended: &mut Vec<LaneEnd>) -> bool {
        self.frames.flush(ended)
    }

    /// How long the thread may sleep; not at all if there is something to do.
    pub(super) fn sleep_max(&mut self) -> Span {
        let by_lanes = self.frames.sleep_max();
        let all_wake = self.wakes.iter().all(|wakes| *wakes);
        by_lanes.min(if all_wake { SLEEP_MAX } else { LANE_SLEEP_MAX })
    }
}

/// The address in an invitation; none if the frame is none.
pub(super) fn invited(frame: &[u8]) -> Option<&[u8]> {
    frame.split_first().filter(|(kind, _)| **kind == INVITATION).map(|(_, address)| address)
}

impl HostCarrier {
    /// Prepares this process for the carriers that it may have. To be called at the beginning of a program, before it has other
    /// threads and handlers of signals. With remote memory access it takes much more memory otherwise, and on some systems fails
    /// when it is asked to end.
    pub fn prepare() {
        #[cfg(feature = "rdma")]
        amcast_fabric::prepare_process();
    }

    /// The lanes of a node among so many, from the local address `bind`; none over connections. Opens one for a trial.
    ///
    /// # Errors
    /// When there can be none here.
    #[cfg(feature = "rdma")]
    pub(super) fn lanes(
        &self,
        nodes: usize,
        bind: std::net::IpAddr,
    ) -> Result<Option<NodeLanes>, String> {
        match self {
            Self::Tcp => Ok(None),
            Self::Rdma { provider } => {
                let frames = super::fabric::FabricLanes::new(provider, nodes, bind)?;
                Ok(Some(NodeLanes::new(Box::new(frames), nodes)))
            }
        }
    }

    /// The same without the feature.
    ///
    /// # Errors
    /// For any but connections.
    #[cfg(not(feature = "rdma"))]
    pub(super) fn lanes(&self, _: usize, _: std::net::IpAddr) -> Result<Option<NodeLanes>, String> {
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
