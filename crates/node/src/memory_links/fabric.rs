//! Lanes by libfabric: an endpoint and a registered ring for each other node, closed to end its access.

use super::lanes::{FrameLanes, LaneEnd};
use amcast_fabric::{FabricAddress, FabricSettings, FabricStream};
use amcast_memory::remote::FRAME_BYTES_MAX;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Bytes of the ring of a lane in each direction; each end has two of them. Tests go round them.
const RING_BYTES: usize = if cfg!(test) { 16 << 10 } else { 4 << 20 };

/// How much may wait for a node: frames that are paced, and the words of reads.
const BACKLOG_BYTES_MAX: usize = super::QUEUE_BYTES_MAX;

/// The lanes of a node.
pub(super) struct FabricLanes {
    settings: FabricSettings,
    /// By node.
    streams: Vec<Option<FabricStream>>,
}

impl FabricLanes {
    /// The lanes of a node among so many.
    pub(super) fn new(provider: &str, nodes: usize, bind: IpAddr) -> Result<Self, String> {
        let bind = (!bind.is_unspecified()).then_some(bind);
        let settings = FabricSettings { provider: provider.to_string(), bind };
        let mut lanes = Self { settings, streams: (0..nodes).map(|_| None).collect() };
        // A provider that is not there fails the start of the node, and not each connection.
        lanes.opened().map(drop)?;
        Ok(lanes)
    }

    fn opened(&mut self) -> Result<FabricStream, String> {
        FabricStream::open(&self.settings, RING_BYTES, FRAME_BYTES_MAX).map_err(|e| e.to_string())
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
                    *lane = None;
                    ended.push((node, why));
                }
            }
        }
        any
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

    fn meet(&mut self, node: usize, address: &[u8]) -> Result<(), String> {
        let address = FabricAddress::decode(address).ok_or("its invitation has no address")?;
        let stream = self.streams[node].as_mut().ok_or("it invites before it is connected")?;
        stream.meet(address).map_err(|e| e.to_string())
    }

    fn close(&mut self, node: usize) {
        self.streams[node] = None;
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

    fn may_sleep(&mut self) -> bool {
        self.streams.iter_mut().flatten().all(FabricStream::may_sleep)
    }
}
