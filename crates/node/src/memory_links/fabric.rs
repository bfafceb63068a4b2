//! Lanes by libfabric: an endpoint and a registered ring for each other node, closed to end its access.

use super::lanes::{FrameLanes, LaneEnd};
use amcast_core::Span;
use amcast_fabric::{FabricAddress, FabricSettings, FabricStream, StreamRest};
use amcast_memory::remote::FRAME_BYTES_MAX;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// The most bytes of the ring of a lane in each direction; each end has two of them. Tests go round them.
const RING_BYTES_MAX: usize = if cfg!(test) { 16 << 10 } else { 4 << 20 };

/// The fewest.
const RING_BYTES_MIN: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };

/// The most bytes of all rings of a node in each direction, unless there are so many that the fewest bytes of each are more.
const RINGS_BYTES_MAX: usize = if cfg!(test) { 64 << 10 } else { 32 << 20 };

/// Bytes of the ring of a lane in each direction where there are so many nodes, the same at both ends: a power of two.
fn ring_bytes(nodes: usize) -> usize {
    let each = RINGS_BYTES_MAX / nodes.saturating_sub(1).max(1);
    let power = 1 << each.max(1).ilog2();
    usize::clamp(power, RING_BYTES_MIN, RING_BYTES_MAX)
}

/// How much may wait for a node: frames that are paced, and the words of reads.
const BACKLOG_BYTES_MAX: usize = super::QUEUE_BYTES_MAX;

/// The lanes of a node.
pub(super) struct FabricLanes {
    settings: FabricSettings,
    /// Bytes of each ring.
    ring_bytes: usize,
    /// By node.
    streams: Vec<Option<FabricStream>>,
}

impl FabricLanes {
    /// The lanes of a node among so many.
    pub(super) fn new(provider: &str, nodes: usize, bind: IpAddr) -> Result<Self, String> {
        let bind = (!bind.is_unspecified()).then_some(bind);
        let settings = FabricSettings { provider: provider.to_string(), bind };
        let streams = (0..nodes).map(|_| None).collect();
        let lanes = Self { settings, ring_bytes: ring_bytes(nodes), streams };
        if !amcast_fabric::has_buffer_sizes() {
            tracing::warn!(
                "libfabric may take 80 MB for each other node: a program calls HostCarrier::prepare() before it starts threads, or \
                 sets FI_OFI_RXM_BUFFER_SIZE=512 and FI_OFI_RXM_MSG_RX_SIZE=128"
            );
        }
        // A provider that is not there fails the start of the node, and not each connection.
        end(lanes.opened()?);
        Ok(lanes)
    }

    fn opened(&self) -> Result<FabricStream, String> {
        let opened = FabricStream::open(&self.settings, self.ring_bytes, FRAME_BYTES_MAX);
        opened.map_err(|e| e.to_string())
    }

    /// Does something with each lane, and closes those that are at their end.
    fn each(
        &mut self,
        ended: &mut Vec<LaneEnd>,
        mut act: impl FnMut(usize, &mut FabricStream) -> Result<bool, String>,
    ) -> bool {
        let mut any = false;
        for (node, lane) in self.streams.iter_mut().enumerate() {
            let Some(stream) = lane else { continue };
            match act(node, stream) {
                Ok(busy) => any |= busy,
                Err(why) => {
                    lane.take().into_iter().for_each(end);
                    ended.push((node, why));
                }
            }
        }
        any
    }
}

/// Ends a lane: nothing of its peer lands from here on.
fn end(stream: FabricStream) {
    if let Err(why) = stream.close() {
        // Its buffers are never freed, and nobody looks at them.
        tracing::error!(
            "an endpoint for remote writes cannot be closed, and keeps its memory: {why}"
        );
    }
}

impl FrameLanes for FabricLanes {
    fn name(&self) -> String {
        format!("rdma ({})", self.settings.provider)
    }

    fn open(&mut self, node: usize) -> Result<Vec<u8>, String> {
        self.close(node);
        let stream = self.opened()?;
        let address = stream.address().encode();
        self.streams[node] = Some(stream);
        Ok(address)
    }

    fn meet(&mut self, node: usize, address: &[u8]) -> Result<String, String> {
        let address = FabricAddress::decode(address).map_err(|e| e.to_string())?;
        let stream = self.streams[node].as_mut().ok_or("it invites before it is connected")?;
        let place = format!("{address} ({})", self.settings.provider);
        stream.meet(address).map_err(|e| e.to_string())?;
        Ok(place)
    }

    fn close(&mut self, node: usize) {
        self.streams[node].take().into_iter().for_each(end);
    }

    fn backlog(&self, node: usize) -> usize {
        self.streams[node].as_ref().map_or(0, FabricStream::backlog)
    }

    fn send(&mut self, node: usize, frame: &[u8]) {
        if let Some(stream) = &mut self.streams[node] {
            stream.send(frame);
        }
    }

    fn receive(
        &mut self,
        take: &mut dyn FnMut(usize, &[u8]) -> bool,
        ended: &mut Vec<LaneEnd>,
    ) -> bool {
        self.each(ended, |node, stream| {
            let received = stream.receive(&mut |frame| take(node, frame));
            received.map_err(|why| why.to_string())
        })
    }

    fn flush(&mut self, ended: &mut Vec<LaneEnd>) -> bool {
        self.each(ended, |_, stream| {
            if stream.backlog() > BACKLOG_BYTES_MAX {
                return Err(format!("over {} MB wait for it", BACKLOG_BYTES_MAX >> 20));
            }
            stream.flush().map_err(|why| why.to_string())
        })
    }

    fn wait_fd(&self, node: usize) -> Option<BorrowedFd<'_>> {
        self.streams[node].as_ref().and_then(FabricStream::wait_fd)
    }

    fn sleep_max(&mut self) -> Span {
        let longest = |stream: &mut FabricStream| match stream.rest() {
            StreamRest::Ready => Span::ZERO,
            StreamRest::Blocked => super::LANE_SLEEP_MAX,
            StreamRest::Idle => super::SLEEP_MAX,
        };
        self.streams.iter_mut().flatten().map(longest).min().unwrap_or(super::SLEEP_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_nodes_have_smaller_rings_of_which_all_together_stay_within_a_bound() {
        let _limit = amcast_test_policy::time_limit();
        let mut before = RING_BYTES_MAX;
        for nodes in 1..200 {
            let each = ring_bytes(nodes);
            assert!(each <= before && each >= RING_BYTES_MIN && each.is_power_of_two(), "{nodes}");
            let all = each * (nodes - 1);
            assert!(all <= RINGS_BYTES_MAX || each == RING_BYTES_MIN, "{nodes}: {all}");
            before = each;
        }
        assert_eq!((ring_bytes(3), ring_bytes(1)), (RING_BYTES_MAX, RING_BYTES_MAX));
    }
}
