//! Datagrams on their way out: messages are gathered into them, and many are sent with one call.

use crate::error::NetDiagnostic;
use crate::events::CarrierEvents;
use crate::inbound::ProbeEcho;
use crate::options::NetOptions;
use crate::wire::{
    DatagramSender, HEAD_BYTES, MessageFragment, PIECE_BYTES, Probe, SIZE_BYTES, put_message,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, addr::SocketAddrArg};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How many datagrams one system call sends.
const BATCH: usize = 32;

/// How long to wait when the socket takes no more.
const PAUSE: Duration = Duration::from_micros(200);

/// Where datagrams go: a process, or all members of a group.
#[derive(Debug)]
struct DatagramTarget {
    address: SocketAddr,
    /// The same, as the system wants it.
    raw: SocketAddrAny,
    /// The datagram that is being filled; empty if none is.
    filling: Vec<u8>,
    /// The last one could not be sent, and this was remarked.
    remarked: bool,
}

/// Datagrams that wait to be sent.
#[derive(Debug)]
pub(crate) struct Outbound {
    sender: DatagramSender,
    datagram_bytes: usize,
    waiting_max: usize,
    targets: Vec<DatagramTarget>,
    /// Targets whose datagram is begun.
    begun: Vec<usize>,
    /// Full datagrams, each for a target.
    waiting: VecDeque<(usize, Vec<u8>)>,
    /// Buffers that were sent, to be used again.
    spare: Vec<Vec<u8>>,
    /// How many messages were sent in pieces.
    in_pieces: u32,
    /// The socket takes nothing more until then, or so it is hoped: for a full queue of the network
    /// interface there is no event to wait for.
    blocked_until: Option<Instant>,
}

impl Outbound {
    pub(crate) fn new(
        sender: DatagramSender,
        options: &NetOptions,
        addresses: impl Iterator<Item = SocketAddr>,
    ) -> Self {
        let target = |address: SocketAddr| DatagramTarget {
            address,
            raw: address.as_any(),
            filling: Vec::new(),
            remarked: false,
        };
        Self {
            sender,
            datagram_bytes: options.datagram_bytes,
            waiting_max: (options.datagram_queue_bytes_max / options.datagram_bytes).max(BATCH),
            targets: addresses.map(target).collect(),
            begun: Vec::new(),
            waiting: VecDeque::new(),
            spare: Vec::new(),
            in_pieces: 0,
            blocked_until: None,
        }
    }

    /// Puts a message in for a target.
    #[inline]
    pub(crate) fn put(
        &mut self,
        socket: &OwnedFd,
        target: usize,
        message: &[u8],
        told: &mut CarrierEvents,
    ) {
        told.counts.datagram_messages_sent += 1;
        let bytes = SIZE_BYTES + message.len();
        if HEAD_BYTES + bytes > self.datagram_bytes {
            return self.put_in_pieces(socket, target, message, told);
        }
        if self.targets[target].filling.len() + bytes > self.datagram_bytes {
            self.seal(target);
            self.write_out_if_many(socket, told);
        }
        if self.targets[target].filling.is_empty() {
            let mut buffer = self.buffer();
            self.sender.messages(&mut buffer);
            self.targets[target].filling = buffer;
            self.begun.push(target);
        }
        put_message(message, &mut self.targets[target].filling);
    }

    fn put_in_pieces(
        &mut self,
        socket: &OwnedFd,
        target: usize,
        message: &[u8],
        told: &mut CarrierEvents,
    ) {
        // Messages that were put in before go before it.
        self.seal(target);
        self.in_pieces = self.in_pieces.wrapping_add(1);
        let size = self.datagram_bytes - HEAD_BYTES - PIECE_BYTES;
        let number = self.in_pieces;
        for (index, bytes) in (0..).zip(message.chunks(size)) {
            let total = message.len() as u32;
            let mut buffer = self.buffer();
            let piece = MessageFragment { number, total, index, size: size as u16, bytes };
            self.sender.piece(&piece, &mut buffer);
            self.waiting.push_back((target, buffer));
            self.write_out_if_many(socket, told);
        }
    }

    /// A target is somewhere else from now on.
    pub(crate) fn move_target(&mut self, target: usize, to: SocketAddr) {
        let target = &mut self.targets[target];
        (target.address, target.raw, target.remarked) = (to, to.as_any(), false);
    }

    /// Tells a process that this one has started.
    pub(crate) fn knock(&mut self, target: usize) {
        let mut buffer = self.buffer();
        self.sender.knock(&mut buffer);
        self.waiting.push_back((target, buffer));
    }

    /// Asks who hears the address of a group.
    pub(crate) fn probe(&mut self, target: usize, probe: Probe) {
        let mut buffer = self.buffer();
        self.sender.probe(probe, &mut buffer);
        self.waiting.push_back((target, buffer));
    }

    /// Answers a process's probe.
    pub(crate) fn echo(&mut self, echo: ProbeEcho) {
        let mut buffer = self.buffer();
        self.sender.echo(echo.probe, echo.incarnation, &mut buffer);
        self.waiting.push_back((echo.to.index(), buffer));
    }

    fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// The target's datagram is full, or goes as it is.
    fn seal(&mut self, target: usize) {
        let filling = std::mem::take(&mut self.targets[target].filling);
        if !filling.is_empty() {
            self.begun.retain(|&begun| begun != target);
            self.waiting.push_back((target, filling));
        }
    }

    fn write_out_if_many(&mut self, socket: &OwnedFd, told: &mut CarrierEvents) {
        if self.waiting.len() >= BATCH && self.blocked_until.is_none() {
            self.write_out(socket, told);
        }
        // The latest is lost: what goes out is then at least whole from its beginning.
        while self.waiting.len() > self.waiting_max {
            if let Some((_, buffer)) = self.waiting.pop_back() {
                told.counts.datagrams_dropped_full += 1;
                self.spare.push(buffer);
            }
        }
    }

    /// Hands everything to the system, as far as it takes it.
    pub(crate) fn flush(&mut self, socket: &OwnedFd, told: &mut CarrierEvents) {
        while let Some(target) = self.begun.pop() {
            let filling = std::mem::take(&mut self.targets[target].filling);
            self.waiting.push_back((target, filling));
        }
        if self.blocked_until.is_none() {
            self.write_out(socket, told);
        }
    }

    /// Tries again what the socket did not take, if it is time.
    pub(crate) fn retry(&mut self, socket: &OwnedFd, now: Instant, told: &mut CarrierEvents) {
        if self.blocked_until.take_if(|until| *until <= now).is_some() {
            self.write_out(socket, told);
        }
    }

    /// When to try again, if something waits for that.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.blocked_until
    }

    /// Sends what waits, until the socket takes no more.
    fn write_out(&mut self, socket: &OwnedFd, told: &mut CarrierEvents) {
        while !self.waiting.is_empty() {
            told.counts.datagram_writes += 1;
            match self.send_batch(socket) {
                Ok(sent) => {
                    told.counts.datagrams_sent += sent as u64;
                    for _ in 0..sent {
                        self.sent(None, told);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    self.blocked_until = Some(Instant::now() + PAUSE);
                    return;
                }
                // It concerns the first one only.
                Err(errno) => self.sent(Some(errno), told),
            }
        }
    }

    /// Sends the first of what waits; how many of them.
    fn send_batch(&self, socket: &OwnedFd) -> Result<usize, Errno> {
        let count = self.waiting.len().min(BATCH);
        if let (1, Some((target, bytes))) = (count, self.waiting.front()) {
            let address = &self.targets[*target].address;
            return rustix::net::sendto(socket, bytes, SendFlags::DONTWAIT, address).map(|_| 1);
        }
        let at = |i: usize| &self.waiting[i.min(count - 1)];
        let slices: [[IoSlice<'_>; 1]; BATCH] = std::array::from_fn(|i| [IoSlice::new(&at(i).1)]);
        let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BATCH] =
            std::array::from_fn(|_| SendAncillaryBuffer::default());
        let mut i = 0;
        let mut heads = controls.each_mut().map(|control| {
            let to = &self.targets[at(i).0].raw;
            i += 1;
            MMsgHdr::new_with_addr(to, &slices[i - 1], control)
        });
        rustix::net::sendmmsg(socket, &mut heads[..count], SendFlags::DONTWAIT)
    }

    /// The first of what waits was sent, or cannot be.
    fn sent(&mut self, error: Option<Errno>, told: &mut CarrierEvents) {
        let Some((target, buffer)) = self.waiting.pop_front() else { return };
        if self.spare.len() < self.waiting_max {
            self.spare.push(buffer);
        }
        let target = &mut self.targets[target];
        let Some(errno) = error else {
            target.remarked = false;
            return;
        };
        told.counts.datagrams_dropped_error += 1;
        if !std::mem::replace(&mut target.remarked, true) {
            told.remark(NetDiagnostic::Undeliverable { address: target.address, errno });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{DatagramBody, next_message, read_datagram};
    use amcast_core::Pid;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    const BYTES: usize = 200;

    /// A socket that is no use to send on: everything waits.
    fn blocked(queue_bytes_max: usize) -> (Outbound, OwnedFd) {
        let sender = DatagramSender { cluster: 1, pid: Pid(0), incarnation: 0 };
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let two = [address; 2].into_iter();
        let options = NetOptions {
            datagram_bytes: BYTES,
            datagram_queue_bytes_max: queue_bytes_max,
            ..NetOptions::default()
        };
        let mut out = Outbound::new(sender, &options, two);
        out.blocked_until = Some(Instant::now());
        let flags = SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
        (out, pair.unwrap().0)
    }

    #[test]
    fn messages_share_datagrams_as_far_as_they_fit() {
        let (mut out, socket) = blocked(1 << 20);
        let mut told = CarrierEvents::default();
        for i in 0..10_u8 {
            out.put(&socket, 0, &[i; 40], &mut told);
            out.put(&socket, 1, &[i; 1], &mut told);
        }
        out.flush(&socket, &mut told);
        let mut came = [Vec::new(), Vec::new()];
        for (target, bytes) in &out.waiting {
            assert!(bytes.len() <= BYTES);
            let Ok((_, DatagramBody::Messages(mut rest))) = read_datagram(bytes) else { panic!() };
            while let Some(message) = next_message(&mut rest).unwrap() {
                came[*target].push(message.to_vec());
            }
        }
        assert_eq!(came[0], (0..10).map(|i| vec![i; 40]).collect::<Vec<_>>());
        assert_eq!(came[1], (0..10).map(|i| vec![i; 1]).collect::<Vec<_>>());
        // 176 bytes behind the head: four of 42, and ten of 3.
        assert_eq!(out.waiting.len(), 3 + 1);
    }

    #[test]
    fn what_the_queue_does_not_hold_is_counted_and_lost() {
        let (mut out, socket) = blocked(0);
        let mut told = CarrierEvents::default();
        out.put(&socket, 0, &vec![7; (BYTES - HEAD_BYTES - PIECE_BYTES) * (BATCH + 5)], &mut told);
        assert_eq!(out.waiting.len(), BATCH);
        assert_eq!(told.counts.datagrams_dropped_full, 5);
    }
}
