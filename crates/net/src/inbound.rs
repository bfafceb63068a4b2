//! Datagrams that arrive: on the process's own socket, and on one for each group it is a member of.

use crate::events::CarrierEvents;
use crate::poller::{EventFlags, PollToken, SocketRegistry};
use crate::streams::Streams;
use crate::wire::{
    DatagramBody, DatagramSender, MessageAssembly, NotDatagram, Probe, next_message, read_datagram,
};
use amcast_core::Pid;
use core::ops::Range;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;

/// How many datagrams are taken from a socket in one round: the others have their turn then.
const DATAGRAMS_MAX: u32 = 64;

/// The longest datagram there is, in bytes.
const BUFFER_BYTES: usize = 64 << 10;

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
}

/// Echoes that wait to be sent; more are lost, as any datagram may be.
const ECHOES_MAX: usize = 256;

/// All sockets on which datagrams arrive.
#[derive(Debug)]
pub(crate) struct Inbound {
    me: Pid,
    cluster: u64,
    processes: usize,
    /// The first is the process's own, on which it sends, too.
    sockets: Vec<OwnedFd>,
    /// Sockets that have something for this round, and how often the one in front was read.
    turns: Vec<usize>,
    reads: u32,
    buffer: Vec<u8>,
    /// The rest of the datagram that was read last, and its sender.
    rest: Range<usize>,
    from: Pid,
    assembly: MessageAssembly,
    /// This life of the process: echoes to earlier ones do not count.
    incarnation: u32,
    /// Probes that are to be answered.
    pub(crate) to_echo: Vec<ProbeEcho>,
    /// Answers to own probes.
    pub(crate) echoed: Vec<(Pid, Probe)>,
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
        }
        Ok(Self {
            me: own.pid,
            cluster: own.cluster,
            incarnation: own.incarnation,
            processes,
            turns: Vec::with_capacity(sockets.len()),
            sockets,
            reads: 0,
            buffer: vec![0; BUFFER_BYTES],
            rest: 0..0,
            from: own.pid,
            assembly,
            to_echo: Vec::new(),
            echoed: Vec::new(),
        })
    }

    /// The socket that the process sends on.
    pub(crate) fn own(&self) -> &OwnedFd {
        &self.sockets[0]
    }

    /// Whether something was read that was not asked for yet.
    pub(crate) fn has_more(&self) -> bool {
        !self.rest.is_empty() || !self.turns.is_empty()
    }

    /// Something waits at a socket.
    pub(crate) fn ready(&mut self, index: u32) {
        let index = index as usize;
        if index < self.sockets.len() && !self.turns.contains(&index) {
            self.turns.push(index);
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
            let index = *self.turns.last()?;
            if self.reads >= DATAGRAMS_MAX {
                // The rest makes the socket ready again.
                self.next_turn();
                continue;
            }
            match self.read(index, streams, told) {
                Ok(None) => {}
                Ok(Some(place)) => {
                    told.counts.datagram_messages_received += 1;
                    return Some((self.from, MessageLocation::Assembled(place)));
                }
                Err(Errno::AGAIN) => self.next_turn(),
                // The reported error is of an earlier datagram of ours, which is lost.
                Err(_) => self.reads += 1,
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
        self.reads = 0;
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

    /// Reads a datagram; gives the place of a message that it completes.
    fn read(
        &mut self,
        index: usize,
        streams: &mut Streams,
        told: &mut CarrierEvents,
    ) -> Result<Option<usize>, Errno> {
        told.counts.datagram_reads += 1;
        let socket = &self.sockets[index];
        let (bytes, _) = rustix::net::recv(socket, &mut self.buffer[..], RecvFlags::DONTWAIT)?;
        self.reads += 1;
        let (sender, body) = match read_datagram(&self.buffer[..bytes]) {
            Ok(read) => read,
            Err(NotDatagram::Stranger) => {
                told.counts.datagrams_strange += 1;
                return Ok(None);
            }
            Err(NotDatagram::Malformed) => {
                told.counts.datagrams_malformed += 1;
                return Ok(None);
            }
        };
        if sender.cluster != self.cluster || sender.pid.index() >= self.processes {
            told.counts.datagrams_strange += 1;
            return Ok(None);
        }
        // A message of this process to a group comes back to it: it has had it already.
        if sender.pid == self.me || !is_current(sender, streams, told) {
            return Ok(None);
        }
        told.counts.datagrams_received += 1;
        self.from = sender.pid;
        match body {
            DatagramBody::Messages(messages) => self.rest = bytes - messages.len()..bytes,
            DatagramBody::Piece(piece) => {
                let whole = self.assembly.add(sender, &piece);
                told.counts.assemblies_given_up = self.assembly.given_up();
                return Ok(whole);
            }
            DatagramBody::Knock => streams.knocked(sender.pid, sender.incarnation, told),
            // On the process's own socket it says nothing of the group's address.
            DatagramBody::Probe(probe) if index > 0 && self.to_echo.len() < ECHOES_MAX => {
                let DatagramSender { pid: to, incarnation, .. } = sender;
                self.to_echo.push(ProbeEcho { to, incarnation, probe });
            }
            DatagramBody::Echo(probe, life)
                if life == self.incarnation && self.echoed.len() < ECHOES_MAX =>
            {
                self.echoed.push((sender.pid, probe));
            }
            DatagramBody::Probe(_) | DatagramBody::Echo(..) => {}
        }
        Ok(None)
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
