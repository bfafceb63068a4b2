//! Datagrams that arrive: on the process's own socket, and on one for each group it is a member of.

use crate::batched::{self, RECEIVE_BYTES, RECEIVES_MAX};
use crate::events::CarrierEvents;
use crate::kernel_drops::kernel_drops;
use crate::poller::{EventFlags, PollToken, SocketRegistry};
use crate::streams::Streams;
use crate::wire::{
    DatagramBody, DatagramSender, GroupProbe, MessageAssembly, NotDatagram, Probe, next_datagram,
    next_message, read_datagram,
};
use amcast_core::Pid;
use core::ops::Range;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

/// After how many datagrams from one socket the others have their turn in a round, about: those that were received with
/// the last of them are taken, too.
const DATAGRAMS_MAX: u32 = 64;

/// Where a message lies until the next one is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MessageLocation {
    /// In the datagram that was read last.
    Datagram(Range<usize>),
    /// In the place in which it was put together.
    Assembled(usize),
}

/// The answer to a probe that arrived on its group's socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeEcho {
    /// The process that probed.
    pub(crate) to: Pid,
    /// The life that it probed in.
    pub(crate) incarnation: u32,
    pub(crate) probe: Probe,
    /// Whether it waits for the answer.
    pub(crate) is_urgent: bool,
}

/// Echoes that wait to be sent; more are lost, as any datagram may be.
const ECHOES_MAX: usize = 256;

/// Probes of groups' addresses, and answers to them.
#[derive(Debug)]
pub(crate) struct ArrivedProbes {
    me: Pid,
    /// This life of the process: echoes to earlier ones do not count.
    incarnation: u32,
    /// Probes that are to be answered.
    pub(crate) to_echo: Vec<ProbeEcho>,
    /// Answers to own probes.
    pub(crate) echoed: Vec<(Pid, Probe)>,
}

impl ArrivedProbes {
    /// Whether there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.to_echo.is_empty() && self.echoed.is_empty()
    }

    /// A probe came, perhaps to the address that it asks for, and echoes of other probes with it.
    fn arrived(&mut self, sender: DatagramSender, came: GroupProbe<'_>, is_of_group: bool) {
        let DatagramSender { pid: to, incarnation, .. } = sender;
        let GroupProbe { probe, is_urgent, .. } = came;
        if is_of_group && self.to_echo.len() < ECHOES_MAX {
            self.to_echo.push(ProbeEcho { to, incarnation, probe, is_urgent });
        }
        let me = self.me;
        for echo in came.echoes().filter(|echo| echo.to == me) {
            self.heard(to, Probe { number: echo.number, ..probe }, echo.incarnation);
        }
    }

    /// A process says that a probe of this one reached it, in this life of this one.
    fn heard(&mut self, from: Pid, probe: Probe, life: u32) {
        if life == self.incarnation && self.echoed.len() < ECHOES_MAX {
            self.echoed.push((from, probe));
        }
    }
}

/// All sockets on which datagrams arrive.
#[derive(Debug)]
pub(crate) struct Inbound {
    me: Pid,
    cluster: u64,
    processes: usize,
    /// The first is the process's own, on which it sends, too.
    sockets: Vec<OwnedFd>,
    /// Sockets that have something for this round, the one whose turn it is last, and how many datagrams that one gave.
    turns: Vec<usize>,
    taken: u32,
    /// Whether that one has given all it had.
    is_empty: bool,
    /// One part for each time that a call receives.
    buffer: Vec<u8>,
    /// How long that is which was received in each part, by the last call.
    lengths: [usize; RECEIVES_MAX],
    /// Parts that were not looked at yet.
    parts: Range<usize>,
    /// Datagrams of the part before these that were not looked at yet.
    joined: Range<usize>,
    /// The rest of the messages of the datagram that was looked at last, and its sender.
    rest: Range<usize>,
    from: Pid,
    assembly: MessageAssembly,
    pub(crate) probes: ArrivedProbes,
    /// The processes from which a datagram arrived since this was cleared.
    pub(crate) senders: Vec<bool>,
}

impl Inbound {
    pub(crate) fn new(
        (own, processes): (DatagramSender, usize),
        sockets: Vec<OwnedFd>,
        assembly: MessageAssembly,
        watch: &SocketRegistry,
    ) -> Result<Self, Errno> {
        for (index, socket) in (0..).zip(&sockets) {
            watch.add(socket, PollToken::Datagrams(index), EventFlags::IN)?;
            batched::join_segments(socket);
        }
        Ok(Self {
            me: own.pid,
            cluster: own.cluster,
            processes,
            turns: Vec::with_capacity(sockets.len()),
            sockets,
            taken: 0,
            is_empty: false,
            // The system gives it pages as they are used: most datagrams need the first of each part.
            buffer: vec![0; RECEIVE_BYTES * RECEIVES_MAX],
            lengths: [0; RECEIVES_MAX],
            parts: 0..0,
            joined: 0..0,
            rest: 0..0,
            from: own.pid,
            assembly,
            probes: ArrivedProbes {
                me: own.pid,
                incarnation: own.incarnation,
                to_echo: Vec::new(),
                echoed: Vec::new(),
            },
            senders: vec![false; processes],
        })
    }

    /// The socket that the process sends on.
    pub(crate) fn own(&self) -> &OwnedFd {
        &self.sockets[0]
    }

    /// How many datagrams the system dropped because these sockets were full; none if it does not tell.
    pub(crate) fn kernel_drops(&self) -> Option<u64> {
        kernel_drops(&self.sockets)
    }

    /// Whether something was received that was not asked for yet.
    pub(crate) fn has_more(&self) -> bool {
        let received = !(self.parts.is_empty() && self.joined.is_empty() && self.rest.is_empty());
        received || !self.turns.is_empty()
    }

    /// Something waits at a socket.
    pub(crate) fn ready(&mut self, index: u32) {
        let index = index as usize;
        if index < self.sockets.len() && !self.turns.contains(&index) {
            // The one in front keeps its turn: parts of it may not be looked at yet.
            self.turns.insert(0, index);
        }
    }

    /// The next message of this round: from whom, and where it lies.
    #[inline]
    pub(crate) fn next(
        &mut self,
        streams: &mut Streams,
        told: &mut CarrierEvents,
    ) -> Option<(Pid, MessageLocation)> {
        loop {
            if !self.rest.is_empty() {
                match self.next_of_datagram() {
                    Some(at) => {
                        told.counts.datagram_messages_received += 1;
                        return Some((self.from, MessageLocation::Datagram(at)));
                    }
                    None => told.counts.datagrams_malformed += 1,
                }
            }
            if self.joined.is_empty()
                && let Some(part) = self.parts.next()
            {
                let begin = part * RECEIVE_BYTES;
                self.joined = begin..begin + self.lengths[part];
                // Nobody of the cluster sends nothing.
                told.counts.datagrams_strange += u64::from(self.joined.is_empty());
                self.taken += u32::from(self.joined.is_empty());
            }
            if !self.joined.is_empty() {
                if let Some(place) = self.take(streams, told) {
                    told.counts.datagram_messages_received += 1;
                    return Some((self.from, MessageLocation::Assembled(place)));
                }
                continue;
            }
            if !self.parts.is_empty() {
                continue;
            }
            let index = *self.turns.last()?;
            if self.is_empty || self.taken >= DATAGRAMS_MAX {
                // The rest makes the socket ready again.
                self.next_turn();
                continue;
            }
            told.counts.datagram_reads += 1;
            match batched::receive(&self.sockets[index], &mut self.buffer, &mut self.lengths) {
                Ok(count) => {
                    self.parts = 0..count;
                    self.is_empty = count < RECEIVES_MAX;
                }
                Err(Errno::AGAIN) => self.next_turn(),
                // The reported error is of an earlier datagram of ours, which is lost.
                Err(_) => self.taken += 1,
            }
        }
    }

    /// A message that was given out last.
    #[inline]
    pub(crate) fn bytes(&self, at: MessageLocation) -> &[u8] {
        match at {
            MessageLocation::Datagram(at) => &self.buffer[at],
            MessageLocation::Assembled(place) => self.assembly.message(place),
        }
    }

    fn next_turn(&mut self) {
        self.turns.pop();
        (self.taken, self.is_empty) = (0, false);
    }

    fn next_of_datagram(&mut self) -> Option<Range<usize>> {
        let mut rest = &self.buffer[self.rest.clone()];
        let Ok(Some(message)) = next_message(&mut rest) else {
            self.rest = 0..0;
            return None;
        };
        let end = self.rest.end - rest.len();
        let at = end - message.len()..end;
        self.rest.start = end;
        Some(at)
    }

    /// Takes the next datagram of those that were received; gives the place of a message that it completes.
    fn take(&mut self, streams: &mut Streams, told: &mut CarrierEvents) -> Option<usize> {
        self.taken += 1;
        let mut left = &self.buffer[self.joined.clone()];
        let datagram = next_datagram(&mut left).and_then(|one| one.ok_or(NotDatagram::Malformed));
        let end = self.joined.end - left.len();
        let (sender, body) = match datagram.and_then(read_datagram) {
            Ok(read) => read,
            Err(why) => {
                // Behind one that has no sound head no other one is found.
                self.joined.start = if datagram.is_ok() { end } else { self.joined.end };
                told.counts.datagrams_strange += u64::from(why == NotDatagram::Stranger);
                told.counts.datagrams_malformed += u64::from(why == NotDatagram::Malformed);
                return None;
            }
        };
        self.joined.start = end;
        if sender.cluster != self.cluster || sender.pid.index() >= self.processes {
            told.counts.datagrams_strange += 1;
            return None;
        }
        // A message of this process to a group comes back to it: it has had it already.
        if sender.pid == self.me || !is_current(sender, streams, told) {
            return None;
        }
        told.counts.datagrams_received += 1;
        self.senders[sender.pid.index()] = true;
        self.from = sender.pid;
        match body {
            DatagramBody::Messages(messages) => self.rest = end - messages.len()..end,
            DatagramBody::Piece(piece) => {
                let whole = self.assembly.add(sender, &piece);
                told.counts.assemblies_given_up = self.assembly.given_up();
                return whole;
            }
            DatagramBody::Knock => streams.knocked(sender.pid, sender.incarnation, told),
            DatagramBody::Probe(probe) => {
                // On the process's own socket it says nothing of the group's address.
                let is_of_group = self.turns.last() > Some(&0);
                self.probes.arrived(sender, probe, is_of_group);
            }
            DatagramBody::Echo(probe, life) => self.probes.heard(sender.pid, probe, life),
        }
        None
    }
}

/// Whether a datagram is of the incarnation in which its sender was connected last. One of a later incarnation is
/// lost, since the protocol does not know that incarnation yet, and makes this process dial its sender soon.
fn is_current(sender: DatagramSender, streams: &mut Streams, told: &mut CarrierEvents) -> bool {
    match streams.incarnation(sender.pid) {
        Some(known) if sender.incarnation < known => {
            told.counts.datagrams_old += 1;
            false
        }
        Some(known) if sender.incarnation == known => true,
        _ => {
            told.counts.datagrams_early += 1;
            streams.knocked(sender.pid, sender.incarnation, told);
            false
        }
    }
}
