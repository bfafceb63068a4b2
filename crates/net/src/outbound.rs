//! Datagrams on their way out: messages are gathered into them, and many are sent with one call.

use crate::batched::{SEGMENTED_BYTES_MAX, SEGMENTS_MAX, send_segments};
use crate::datagram_pace::DatagramPace;
use crate::error::NetDiagnostic;
use crate::events::CarrierEvents;
use crate::inbound::ProbeEcho;
use crate::multicast::DueProbe;
use crate::options::NetOptions;
use crate::wire::{
    DatagramSender, HEAD_BYTES, MessageFragment, PIECE_BYTES, SIZE_BYTES, complete, put_message,
};
use amcast_core::messages::DatagramBacklog;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, addr::SocketAddrArg};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How many datagrams one system call sends.
const BATCH: usize = 32;

/// Where datagrams leave at a rate, how long the last one that waits has to wait at most, in parts of a second: a protocol
/// that hears nothing for longer sends it again.
const QUEUED_PART: usize = 5;

/// From which part of the bytes that may wait on the protocol has no room, as a divisor; it has again from half of that on. So
/// the network has enough to do until the protocol hears of that, and what the protocol makes until it hears that there is none
/// finds a place.
const CROWDED_PART: usize = 4;

/// How many bytes may wait at least, however low the rate is.
const QUEUED_BYTES_MIN: usize = 256 << 10;

/// How many probes and answers to probes wait in front of everything else, at most.
const URGENT_MAX: usize = 256;

/// How long to wait when the socket takes no more.
const PAUSE: Duration = Duration::from_micros(200);

/// For how long datagrams leave uncut after the system refused to cut them: another route to the target may allow it.
const UNCUT_FOR: Duration = Duration::from_secs(10);

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
    /// Until when the system cuts no datagrams for it, as far as is known.
    uncut_until: Option<Instant>,
}

impl DatagramTarget {
    /// Whether the system may cut datagrams of equal length out of one.
    fn may_cut(&self) -> bool {
        self.uncut_until.is_none_or(|until| Instant::now() >= until)
    }
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
    /// How many datagrams of such targets were dropped, which says whose are dropped next.
    turn: usize,
    /// Full datagrams, each for a target.
    waiting: VecDeque<(usize, Vec<u8>)>,
    /// How many of them are in front of what came before them: probes, and answers to probes.
    urgent: usize,
    /// Bytes of all that wait.
    waiting_bytes: usize,
    /// From how many of them on the protocol has no room.
    crowded_bytes: usize,
    /// Whether it has room, as it heard last.
    has_room: bool,
    /// Buffers that were sent, to be used again.
    spare: Vec<Vec<u8>>,
    /// How many messages were sent in pieces.
    in_pieces: u32,
    /// Nothing more leaves until then: the rate is used up, or the socket takes no more, and then it is hoped that it
    /// does later: for a full queue of the network interface there is no event to wait for.
    blocked_until: Option<Instant>,
    /// The rate at which datagrams leave, if there is one.
    pace: Option<DatagramPace>,
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
            uncut_until: None,
        };
        let waiting_max = (queue_bytes_max(options) / options.datagram_bytes).max(BATCH);
        Self {
            sender,
            datagram_bytes: options.datagram_bytes,
            waiting_max,
            urgent: 0,
            waiting_bytes: 0,
            crowded_bytes: waiting_max * options.datagram_bytes / CROWDED_PART,
            has_room: true,
            targets: addresses.map(target).collect(),
            begun: Vec::new(),
            turn: 0,
            waiting: VecDeque::new(),
            spare: Vec::new(),
            in_pieces: 0,
            blocked_until: None,
            pace: options.datagram_bytes_per_s.map(|rate| DatagramPace::new(rate, Instant::now())),
        }
    }

    /// How many datagrams wait to be sent, without those that are being filled.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the protocol has room, if that has changed since it was asked last.
    pub(crate) fn backlog_change(&mut self) -> Option<DatagramBacklog> {
        let bytes = self.waiting_bytes;
        // Many short ones fill the queue, which holds so many, before their bytes do.
        let [most_bytes, most] = match self.has_room {
            true => [self.crowded_bytes, self.waiting_max / 2],
            false => [self.crowded_bytes / 2, self.waiting_max / 4],
        };
        let has_room = bytes <= most_bytes && self.waiting.len() <= most;
        let has_changed = std::mem::replace(&mut self.has_room, has_room) != has_room;
        has_changed.then_some(DatagramBacklog { bytes, has_room })
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
            self.enqueue(target, buffer);
            self.write_out_if_many(socket, told);
        }
    }

    /// A datagram is complete, and waits to be sent.
    fn enqueue(&mut self, target: usize, mut datagram: Vec<u8>) {
        complete(&mut datagram);
        self.waiting_bytes += datagram.len();
        self.waiting.push_back((target, datagram));
    }

    /// A target is somewhere else from now on.
    pub(crate) fn move_target(&mut self, target: usize, to: SocketAddr) {
        let target = &mut self.targets[target];
        (target.address, target.raw, target.remarked) = (to, to.as_any(), false);
        target.uncut_until = None;
    }

    /// A datagram is complete, and is the next one that leaves. Those that ask who hears an address are few and small, and
    /// must not wait behind a load: unanswered, they would have each datagram sent to each process alone, and so make the
    /// load many times as much. Only so many are in front at a time: strangers who make up probes fill neither memory nor the queue.
    fn enqueue_first(&mut self, target: usize, mut datagram: Vec<u8>, told: &mut CarrierEvents) {
        if self.urgent >= URGENT_MAX.min(self.waiting_max / 2) {
            told.counts.datagrams_dropped_full += 1;
            return self.spare.push(datagram);
        }
        complete(&mut datagram);
        self.waiting_bytes += datagram.len();
        self.waiting.push_front((target, datagram));
        self.urgent += 1;
        self.drop_surplus(told);
    }

    /// Tells a process that this one has started.
    pub(crate) fn knock(&mut self, target: usize) {
        let mut buffer = self.buffer();
        self.sender.knock(&mut buffer);
        self.enqueue(target, buffer);
    }

    /// Asks who hears the address of a group.
    pub(crate) fn probe(&mut self, due: &DueProbe, told: &mut CarrierEvents) {
        told.counts.probes_sent += 1;
        let mut buffer = self.buffer();
        self.sender.probe(due.probe, due.is_urgent, &due.echoes, &mut buffer);
        self.enqueue_first(due.target, buffer, told);
    }

    /// Answers a process's probe, to that process alone.
    pub(crate) fn echo(&mut self, echo: ProbeEcho, told: &mut CarrierEvents) {
        told.counts.echoes_sent += 1;
        let mut buffer = self.buffer();
        self.sender.echo(echo.probe, echo.incarnation, &mut buffer);
        self.enqueue_first(echo.to.index(), buffer, told);
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
            self.enqueue(target, filling);
        }
    }

    fn write_out_if_many(&mut self, socket: &OwnedFd, told: &mut CarrierEvents) {
        if self.waiting.len() >= BATCH && self.blocked_until.is_none() {
            self.write_out(socket, told);
        }
        self.drop_surplus(told);
    }

    /// Where too many wait, the latest is lost: what goes out is then at least whole from its beginning. Returns how many were
    /// lost.
    fn drop_surplus(&mut self, told: &mut CarrierEvents) -> usize {
        let surplus = self.waiting.len().saturating_sub(self.waiting_max);
        for (_, buffer) in self.waiting.drain(self.waiting.len() - surplus..) {
            told.counts.datagrams_dropped_full += 1;
            self.waiting_bytes -= buffer.len();
            self.spare.push(buffer);
        }
        surplus
    }

    /// Hands everything to the system, as far as it takes it.
    pub(crate) fn flush(&mut self, socket: &OwnedFd, told: &mut CarrierEvents) {
        // The first ones that were begun wait last, and are dropped where the queue is full. They would be of the same targets in
        // each round, which then would hear nothing of this process any more.
        if !self.begun.is_empty() {
            let by = self.turn % self.begun.len();
            self.begun.rotate_left(by);
        }
        while let Some(target) = self.begun.pop() {
            let filling = std::mem::take(&mut self.targets[target].filling);
            self.enqueue(target, filling);
        }
        if self.blocked_until.is_none() {
            self.write_out(socket, told);
        }
        // Short ones fill the queue without any that is full. The next ones that are dropped are those of other targets.
        let dropped = self.drop_surplus(told);
        self.turn = self.turn.wrapping_add(dropped);
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

    /// Sends what waits, until the socket takes no more, or the rate is used up.
    fn write_out(&mut self, socket: &OwnedFd, told: &mut CarrierEvents) {
        while !self.waiting.is_empty() {
            let count = self.paid_for(BATCH.max(SEGMENTS_MAX));
            if count == 0 {
                return;
            }
            told.counts.datagram_writes += 1;
            let equal = self.equal_ones(count);
            let sent = match equal {
                0..2 => self.send_batch(socket, count),
                _ => self.send_equal_ones(socket, equal),
            };
            match sent {
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

    /// How many of those that wait may leave at this rate now, up to `most`; if none, says when.
    fn paid_for(&mut self, most: usize) -> usize {
        let most = self.waiting.len().min(most);
        let Some(pace) = &mut self.pace else { return most };
        let mut allowed = pace.allows(Instant::now());
        let mut count = 0;
        while count < most && allowed > 0 {
            allowed = allowed.saturating_sub(self.waiting[count].1.len() as u64);
            count += 1;
        }
        if count == 0 {
            self.blocked_until = Some(pace.next_at());
        }
        count
    }

    /// How many of the first `most` that wait go to one place and are equally long, but for the last, which may be shorter;
    /// 0 if the system does not cut datagrams for it.
    fn equal_ones(&self, most: usize) -> usize {
        let Some((to, first)) = self.waiting.front() else { return 0 };
        if !self.targets[*to].may_cut() {
            return 0;
        }
        let most = most.min(SEGMENTS_MAX).min(SEGMENTED_BYTES_MAX / first.len().max(1));
        let all = self.waiting.iter().take(most).take_while(|(target, _)| target == to);
        let mut count = 0;
        for (_, datagram) in all {
            if datagram.len() > first.len() {
                break;
            }
            count += 1;
            if datagram.len() < first.len() {
                break;
            }
        }
        count
    }

    /// Sends the first ones of what waits, which are [equal](Self::equal_ones); how many of them. If the system refuses, sends
    /// the first one alone. Where that leaves, only cutting fails: the system does not do it, nor does the device, or the segments
    /// are longer than packets to this target may be. Otherwise the error is one of the target or the network, and passes.
    fn send_equal_ones(&mut self, socket: &OwnedFd, count: usize) -> Result<usize, Errno> {
        match self.send_cut(socket, count) {
            Err(errno) if !matches!(errno, Errno::INTR | Errno::AGAIN | Errno::NOBUFS) => {}
            sent => return sent.map(|()| count),
        }
        let sent = self.send_batch(socket, 1)?;
        if let Some((target, _)) = self.waiting.front() {
            self.targets[*target].uncut_until = Some(Instant::now() + UNCUT_FOR);
        }
        Ok(sent)
    }

    /// Has the system cut the first ones of what waits out of one datagram.
    fn send_cut(&self, socket: &OwnedFd, count: usize) -> Result<(), Errno> {
        let (target, first) = &self.waiting[0];
        let at = |i: usize| IoSlice::new(&self.waiting[i.min(count - 1)].1);
        let slices: [IoSlice<'_>; SEGMENTS_MAX] = std::array::from_fn(at);
        send_segments(socket, self.targets[*target].address, first.len() as u16, &slices[..count])
    }

    /// Sends the first of what waits, at most `most`; how many of them.
    fn send_batch(&self, socket: &OwnedFd, most: usize) -> Result<usize, Errno> {
        let count = most.min(BATCH);
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
        self.urgent = self.urgent.saturating_sub(1);
        self.waiting_bytes -= buffer.len();
        if let Some(pace) = &mut self.pace {
            pace.spend(buffer.len());
        }
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

/// How many bytes of datagrams may wait to be sent.
fn queue_bytes_max(options: &NetOptions) -> usize {
    let paced = options.datagram_bytes_per_s.map_or(usize::MAX, |rate| rate as usize / QUEUED_PART);
    options.datagram_queue_bytes_max.min(paced.max(QUEUED_BYTES_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{DatagramBody, Probe, next_message, read_datagram};
    use amcast_core::Pid;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
    use std::net::UdpSocket;

    const BYTES: usize = 200;

    /// A socket that is no use to send on: everything waits.
    fn blocked(queue_bytes_max: usize) -> (Outbound, OwnedFd) {
        blocked_for(2, queue_bytes_max)
    }

    /// The same with so many targets.
    fn blocked_for(targets: usize, queue_bytes_max: usize) -> (Outbound, OwnedFd) {
        let sender = DatagramSender { cluster: 1, pid: Pid(0), incarnation: 0 };
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let addresses = std::iter::repeat_n(address, targets);
        let options = NetOptions {
            datagram_bytes: BYTES,
            datagram_queue_bytes_max: queue_bytes_max,
            ..NetOptions::default()
        };
        let mut out = Outbound::new(sender, &options, addresses);
        out.blocked_until = Some(Instant::now());
        let flags = SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
        (out, pair.unwrap().0)
    }

    #[test]
    fn messages_share_datagrams_as_far_as_they_fit() {
        let _limit = amcast_test_policy::time_limit();
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
        let _limit = amcast_test_policy::time_limit();
        let (mut out, socket) = blocked(0);
        let mut told = CarrierEvents::default();
        out.put(&socket, 0, &vec![7; (BYTES - HEAD_BYTES - PIECE_BYTES) * (BATCH + 5)], &mut told);
        assert_eq!(out.waiting.len(), BATCH);
        assert_eq!(told.counts.datagrams_dropped_full, 5);
    }

    #[test]
    fn short_datagrams_that_leave_too_slowly_fill_the_queue_and_no_more() {
        let _limit = amcast_test_policy::time_limit();
        let (mut out, socket) = blocked(0);
        let mut told = CarrierEvents::default();
        for _ in 0..1_000 {
            out.put(&socket, 0, &[7; 10], &mut told);
            out.flush(&socket, &mut told);
        }
        assert_eq!(out.waiting.len(), BATCH);
        assert_eq!(told.counts.datagrams_dropped_full, 1_000 - BATCH as u64);
        assert_eq!(out.waiting_bytes, out.waiting.iter().map(|(_, bytes)| bytes.len()).sum());
        assert!(out.spare.len() <= 1, "buffers are used again");
    }

    #[test]
    fn a_full_queue_drops_the_datagrams_of_all_targets_in_turn() {
        let _limit = amcast_test_policy::time_limit();
        let (mut out, socket) = blocked_for(5, 0);
        let mut told = CarrierEvents::default();
        let mut left = [0; 5];
        for _ in 0..100 {
            for target in 0..5 {
                out.put(&socket, target, &[7; 10], &mut told);
            }
            out.flush(&socket, &mut told);
            for _ in 0..2 {
                left[out.waiting[0].0] += 1;
                out.sent(None, &mut told);
            }
        }
        assert!(told.counts.datagrams_dropped_full > 200);
        assert!(left.iter().all(|count| (38..=42).contains(count)), "{left:?}");
    }

    #[test]
    fn only_equal_ones_to_one_place_are_segments_of_one_datagram() {
        let _limit = amcast_test_policy::time_limit();
        let (mut out, _) = blocked(1 << 20);
        let lengths = [(0, 150), (0, 150), (0, 60), (0, 60), (1, 60), (1, 70), (0, 70)];
        for (target, length) in lengths {
            out.enqueue(target, vec![7; length]);
        }
        let mut found = Vec::new();
        while !out.waiting.is_empty() {
            let count = out.equal_ones(BATCH);
            found.push(count);
            out.waiting.drain(..count);
            out.waiting_bytes = out.waiting.iter().map(|(_, bytes)| bytes.len()).sum();
        }
        assert_eq!(found, [3, 1, 1, 1, 1], "the last may be shorter, and none longer");
        (0..100).for_each(|_| out.enqueue(0, vec![7; 1400]));
        assert_eq!(out.equal_ones(BATCH), BATCH);
        assert_eq!(out.equal_ones(100), SEGMENTED_BYTES_MAX / 1400);
        out.targets[0].uncut_until = Some(Instant::now() + UNCUT_FOR);
        assert_eq!(out.equal_ones(100), 0);
        out.targets[0].uncut_until = Some(Instant::now());
        assert_eq!(out.equal_ones(BATCH), BATCH, "it is tried again");
    }

    #[test]
    fn where_the_system_cuts_nothing_all_are_sent_one_by_one() {
        let _limit = amcast_test_policy::time_limit();
        let (flags, protocol) = (SocketFlags::NONBLOCK, Some(ipproto::UDPLITE));
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, protocol);
        let Ok(socket) = socket else {
            let test = "where_the_system_cuts_nothing_all_are_sent_one_by_one";
            return amcast_test_policy::skip(test, format_args!("no UDP-Lite here"));
        };
        let (mut out, _) = blocked(1 << 20);
        let mut told = CarrierEvents::default();
        (0..3).for_each(|_| out.enqueue(0, vec![7; 150]));
        out.write_out(&socket, &mut told);
        assert!(out.waiting.is_empty() && !out.targets[0].may_cut());
        assert_eq!((told.counts.datagrams_sent, told.counts.datagrams_dropped_error), (3, 0));
        assert!(out.targets[1].may_cut(), "longer packets may pass to others");
        out.move_target(0, "127.0.0.1:2".parse().unwrap());
        assert!(out.targets[0].may_cut(), "another host");
    }

    #[test]
    fn an_error_of_the_network_leaves_it_to_the_system_to_cut_datagrams() {
        let _limit = amcast_test_policy::time_limit();
        let (mut out, unix) = blocked(1 << 20);
        let mut told = CarrierEvents::default();
        (0..3).for_each(|_| out.enqueue(0, vec![7; 150]));
        // It is no socket of the network, and takes neither.
        out.write_out(&unix, &mut told);
        assert!(out.targets[0].may_cut() && out.waiting.is_empty());
        assert_eq!((told.counts.datagrams_sent, told.counts.datagrams_dropped_error), (0, 3));
        let [sender, receiver] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        // The system lets nobody broadcast who does not say so.
        out.move_target(0, "255.255.255.255:9".parse().unwrap());
        (0..3).for_each(|_| out.enqueue(0, vec![7; 150]));
        out.write_out(&sender.try_clone().unwrap().into(), &mut told);
        assert!(out.targets[0].may_cut() && out.waiting.is_empty());
        assert_eq!((told.counts.datagrams_sent, told.counts.datagrams_dropped_error), (0, 6));
        out.targets[0].address = receiver.local_addr().unwrap();
        out.targets[0].raw = out.targets[0].address.as_any();
        for uncut in [true, false] {
            out.targets[0].uncut_until = uncut.then(|| Instant::now() + UNCUT_FOR);
            (0..3).for_each(|_| out.enqueue(0, vec![7; 150]));
            out.write_out(&sender.try_clone().unwrap().into(), &mut told);
            for _ in 0..3 {
                let mut received = [0; 1000];
                assert_eq!(receiver.recv(&mut received).unwrap(), 150);
            }
        }
        assert_eq!(told.counts.datagrams_sent, 6);
    }

    #[test]
    fn what_the_rate_does_not_pay_for_waits_and_says_until_when() {
        let _limit = amcast_test_policy::time_limit();
        let (mut out, socket) = blocked(1 << 20);
        out.blocked_until = None;
        out.pace = Some(DatagramPace::new(1_000_000, Instant::now()));
        let mut told = CarrierEvents::default();
        (0..1000).for_each(|_| out.enqueue(0, vec![7; 150]));
        out.write_out(&socket, &mut told);
        let left = 1000 - out.waiting.len();
        // 64 KiB may be ahead, and a byte more in each microsecond that passes meanwhile.
        assert!((400..1000).contains(&left), "{left}");
        let until = out.retry_at().expect("it waits");
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        out.retry(&socket, until, &mut told);
        assert!(1000 - out.waiting.len() > left, "time has paid for more");
    }

    #[test]
    fn a_protocol_hears_that_there_is_no_room_and_once_half_of_it_has_left_that_there_is() {
        let _limit = amcast_test_policy::time_limit();
        let (mut out, socket) = blocked(100 * BYTES);
        let mut told = CarrierEvents::default();
        assert_eq!(out.backlog_change(), None, "it has room to begin with");
        let level = out.crowded_bytes;
        assert_eq!(level, 25 * BYTES);
        let mut heard = Vec::new();
        for _ in 0..60 {
            out.enqueue(0, vec![7; BYTES]);
            heard.extend(out.backlog_change());
        }
        let bytes: usize = out.waiting.iter().map(|(_, datagram)| datagram.len()).sum();
        assert_eq!((heard.len(), bytes), (1, out.waiting_bytes));
        assert!(!heard[0].has_room && heard[0].bytes > level && heard[0].bytes <= level + BYTES);
        while !out.waiting.is_empty() {
            out.sent(None, &mut told);
            heard.extend(out.backlog_change());
        }
        assert_eq!((heard.len(), out.waiting_bytes), (2, 0));
        assert!(heard[1].has_room && heard[1].bytes <= level / 2);
        // Also where the queue drops what it cannot hold.
        out.put(&socket, 0, &vec![7; BYTES * 200], &mut told);
        assert_eq!(out.backlog_change().map(|backlog| backlog.has_room), Some(false));
        assert!(out.waiting_bytes <= 100 * BYTES && told.counts.datagrams_dropped_full > 0);
    }

    #[test]
    fn short_datagrams_leave_no_room_once_half_of_the_queue_is_theirs() {
        let _limit = amcast_test_policy::time_limit();
        let (mut out, _) = blocked(100 * BYTES);
        let mut told = CarrierEvents::default();
        let mut heard = Vec::new();
        for _ in 0..100 {
            out.enqueue(0, vec![7; 10]);
            heard.extend(out.backlog_change().map(|backlog| (out.waiting.len(), backlog.has_room)));
        }
        while !out.waiting.is_empty() {
            out.sent(None, &mut told);
            heard.extend(out.backlog_change().map(|backlog| (out.waiting.len(), backlog.has_room)));
        }
        assert_eq!(heard, [(51, false), (25, true)]);
    }

    #[test]
    fn answers_to_made_up_probes_take_a_bounded_part_of_memory() {
        let _limit = amcast_test_policy::time_limit();
        let (mut out, _) = blocked(100 * BYTES);
        let mut told = CarrierEvents::default();
        let probe = Probe { group: amcast_core::Gid(0), number: 7 };
        let echo = ProbeEcho { to: Pid(1), incarnation: 0, probe, is_urgent: true };
        (0..100).for_each(|_| out.enqueue(0, vec![7; BYTES]));
        (0..1000).for_each(|_| out.echo(echo, &mut told));
        // Half of the queue is theirs at most, and leaves first.
        assert_eq!((out.waiting.len(), told.counts.datagrams_dropped_full), (100, 50 + 950));
        assert!(out.spare.len() <= 51, "buffers are used again");
        (0..50).for_each(|_| out.sent(None, &mut told));
        assert!(out.waiting.iter().all(|(target, _)| *target == 0));
        out.echo(echo, &mut told);
        assert_eq!(out.waiting[0].0, 1, "there is room for others");
    }

    #[test]
    fn a_probe_leaves_before_the_load_and_a_low_rate_has_a_short_queue() {
        let _limit = amcast_test_policy::time_limit();
        let (mut out, _) = blocked(1 << 20);
        (0..3).for_each(|_| out.enqueue(0, vec![7; 150]));
        let probe = Probe { group: amcast_core::Gid(0), number: 7 };
        let due = DueProbe { target: 1, probe, is_urgent: false, echoes: Vec::new() };
        out.probe(&due, &mut CarrierEvents::default());
        let Ok((_, DatagramBody::Probe(first))) = read_datagram(&out.waiting[0].1) else {
            panic!()
        };
        assert_eq!((first.probe, first.is_urgent), (probe, false));
        let bytes = |rate| {
            let datagram_bytes_per_s = rate;
            queue_bytes_max(&NetOptions { datagram_bytes_per_s, ..NetOptions::default() })
        };
        assert_eq!([None, Some(10 << 30)].map(bytes), [8 << 20; 2]);
        assert_eq!(bytes(Some(10_000_000)), 2_000_000);
        assert_eq!(bytes(Some(1)), QUEUED_BYTES_MIN);
    }
}
