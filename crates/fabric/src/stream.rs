//! A stream of frames in each direction between two endpoints: each writes into a ring in the other's landing buffer.
//!
//! ```text
//!  sender                                                 receiver
//!  frame --> staging ring --- write, one-sided --------->  landing ring --> frame
//!                         --- notice: landed up to P --->
//!                         <-- notice: taken up to Q -----
//! ```
//! The staging ring of the sender is an image of the landing ring of the receiver: the byte at position `p` of the stream is
//! at `p` modulo their size in both. A frame is its length, 8 bytes, then its bytes, then zeros up to a multiple of 8.
//! Positions are those of whole words.
//!
//! # Why nothing is missing between two frames
//! A receiver takes bytes up to the position of a notice. The sender sends a notice behind the writes that it covers, where
//! the provider keeps that order, and after they are complete where it does not. If a write fails, its event is in the queue
//! before the provider can connect anew, and the sender empties the queue before every operation: so no notice that
//! covers a failed write leaves, and the stream is at its end.
//!
//! # Bounds
//! The sender overwrites a part of the ring when the write of it is complete and the receiver has taken it. Frames that find
//! no room wait in a buffer, whose size [`FabricStream::backlog`] tells: its user gives no more than it wants to wait there.

use crate::endpoint::FabricWrite;
use crate::endpoint::{FabricAddress, FabricEndpoint, FabricError, FabricEvent, FabricSettings};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// The most bytes of one write: the receiver takes a part of a long frame while the next is under way.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// The most writes under way; fewer than the queues of providers have room for.
const WRITES_MAX: usize = 64;

/// How many events are taken at a time: somebody who sends one notice after the other holds up no other stream.
const EVENTS_MAX: usize = 128;

/// Bytes of a word; every position is a multiple of it.
const WORD: usize = 8;

/// Marks a notice that says up to which position the receiver has taken the stream.
const TAKEN: u64 = 1 << 63;

/// Why a stream is at its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamFault {
    /// An operation failed: the peer closed its endpoint, or cannot be reached.
    Fabric(FabricError),
    /// The peer says what cannot be.
    Malformed,
}

impl fmt::Display for StreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fabric(why) => why.fmt(f),
            Self::Malformed => f.write_str(
                "it wrote what is no frame; give both nodes the same version of this program",
            ),
        }
    }
}

impl core::error::Error for StreamFault {}

impl From<FabricError> for StreamFault {
    fn from(why: FabricError) -> Self {
        Self::Fabric(why)
    }
}

/// Whether the user of a stream may sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamRest {
    /// There is something to do.
    Ready,
    /// Something waits for room in the provider, or for the peer's address: the descriptor need not tell when there is room,
    /// and its user looks again soon. While a provider connects this is the rule.
    Blocked,
    /// There is nothing to do before the descriptor is ready.
    Idle,
}

/// The direction to the peer. Positions in bytes; each is at most the one before it.
#[derive(Default)]
struct Outgoing {
    /// Up to where the staging ring is filled.
    filled: u64,
    /// Up to where writes are begun.
    begun: u64,
    /// Up to where the peer was sent a notice.
    announced: u64,
    /// Up to where writes are complete.
    complete: u64,
    /// Up to where the peer has taken the stream.
    taken: u64,
    /// Writes under way: where each ends, and whether it is complete.
    writes: VecDeque<(u64, bool)>,
    /// Frames that find no room in the ring, and how many bytes of them were moved there.
    waiting: Vec<u8>,
    moved: usize,
}

/// The direction from the peer.
#[derive(Default)]
struct Incoming {
    /// Up to where the stream has landed.
    landed: u64,
    /// Up to where it was taken.
    taken: u64,
    /// Up to where the peer has been sent that position.
    told: u64,
    /// Bytes that were taken, and are no whole frame yet.
    bytes: Vec<u8>,
}

/// Frames to and from one peer.
#[derive(Debug)]
pub struct FabricStream {
    endpoint: FabricEndpoint,
    /// Bytes of each ring.
    ring: u64,
    /// The longest frame that is taken.
    frame_bytes_max: usize,
    out: Outgoing,
    inward: Incoming,
    meets: bool,
    /// Messages of others than the peer, which were dropped.
    foreign: u64,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({} of {})", self.taken, self.filled)
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming({} of {})", self.taken, self.landed)
    }
}

/// The events that were taken in.
#[derive(Clone, Copy)]
struct DrainedEvents {
    /// Whether there were any.
    any: bool,
    /// Whether none is left: else one of them may say that a write failed, and nothing may be sent that covers it.
    all: bool,
}

impl FabricStream {
    /// Opens one end, with rings of so many bytes, a multiple of 8, for frames of at most `frame_bytes_max` bytes, which may
    /// be more than a ring has.
    ///
    /// # Errors
    /// When libfabric opens no endpoint.
    pub fn open(
        settings: &FabricSettings,
        ring_bytes: usize,
        frame_bytes_max: usize,
    ) -> Result<Self, FabricError> {
        let endpoint = FabricEndpoint::open(settings, ring_bytes, ring_bytes)?;
        let (out, inward) = (Outgoing::default(), Incoming::default());
        let ring = ring_bytes as u64;
        Ok(Self { endpoint, ring, frame_bytes_max, out, inward, meets: false, foreign: 0 })
    }

    /// The name and key for the peer.
    pub fn address(&self) -> &FabricAddress {
        self.endpoint.address()
    }

    /// The other end. Before that nothing is sent, and nothing is taken.
    ///
    /// # Errors
    /// When it is of another provider or has rings of another size.
    pub fn meet(&mut self, peer: FabricAddress) -> Result<(), FabricError> {
        if peer.bytes() != self.ring {
            return Err(FabricError::Ring { own: self.ring, peer: peer.bytes() });
        }
        self.endpoint.meet(peer)?;
        self.meets = true;
        Ok(())
    }

    /// Bytes that the peer has not taken.
    pub fn backlog(&self) -> usize {
        (self.out.filled - self.out.taken) as usize + self.out.waiting.len() - self.out.moved
    }

    /// Puts a frame behind those before it. [`FabricStream::flush`] sends it.
    pub fn send(&mut self, frame: &[u8]) {
        let waiting = &mut self.out.waiting;
        waiting.extend_from_slice(&(frame.len() as u64).to_le_bytes());
        waiting.extend_from_slice(frame);
        waiting.resize(waiting.len().next_multiple_of(WORD), 0);
    }

    /// Sends what was put; whether there was anything.
    ///
    /// # Errors
    /// When the stream is at its end.
    pub fn flush(&mut self) -> Result<bool, StreamFault> {
        if !self.meets {
            return Ok(false);
        }
        let mut any = false;
        loop {
            if !self.drain()?.all {
                return Ok(true);
            }
            self.fill();
            if !self.begin_write()? {
                break;
            }
            any = true;
        }
        let covers =
            if self.endpoint.orders_notices() { self.out.begun } else { self.out.complete };
        if covers > self.out.announced && self.notify(covers)? {
            self.out.announced = covers;
            any = true;
        }
        let taken = self.inward.taken;
        if taken - self.inward.told >= self.ring / 4 && self.notify(TAKEN | taken)? {
            self.inward.told = taken;
            any = true;
        }
        Ok(any)
    }

    fn notify(&mut self, value: u64) -> Result<bool, StreamFault> {
        Ok(self.drain()?.all && self.endpoint.notify(value)?)
    }

    /// Moves frames that wait into the staging ring, as far as there is room.
    fn fill(&mut self) {
        let out = &mut self.out;
        let room = self.ring - (out.filled - out.taken.min(out.complete));
        let ring = self.endpoint.staging();
        let waiting = &out.waiting[out.moved..];
        for word in waiting.chunks_exact(WORD).take(room as usize / WORD) {
            let word = u64::from_le_bytes(word.try_into().expect("a word"));
            slot(ring, out.filled).store(word, Ordering::Release);
            out.filled += WORD as u64;
            out.moved += WORD;
        }
        if out.moved == out.waiting.len() {
            out.waiting.clear();
            out.moved = 0;
        } else if out.moved > self.ring as usize {
            out.waiting.drain(..out.moved);
            out.moved = 0;
        }
    }

    /// Begins the next write; false if there is none, or no room for it now.
    fn begin_write(&mut self) -> Result<bool, StreamFault> {
        let out = &mut self.out;
        let at = out.begun % self.ring;
        let bytes = (out.filled - out.begun).min(self.ring - at).min(PIECE_BYTES_MAX);
        if bytes == 0 || out.writes.len() == WRITES_MAX {
            return Ok(false);
        }
        let end = out.begun + bytes;
        let at = at as usize;
        let write = FabricWrite { from: at, to: at, bytes: bytes as usize, id: end };
        if !self.endpoint.write(write)? {
            return Ok(false);
        }
        out.begun = end;
        out.writes.push_back((end, false));
        Ok(true)
    }

    /// Takes events in, all if there are not too many.
    fn drain(&mut self) -> Result<DrainedEvents, StreamFault> {
        let mut any = false;
        for _ in 0..EVENTS_MAX {
            let Some(event) = self.endpoint.poll()? else {
                return Ok(DrainedEvents { any, all: true });
            };
            any = true;
            let out = &mut self.out;
            match event {
                FabricEvent::Written(end) => {
                    let found = out.writes.iter_mut().find(|write| write.0 == end);
                    found.ok_or(StreamFault::Malformed)?.1 = true;
                    while let Some(&(end, true)) = out.writes.front() {
                        out.complete = end;
                        out.writes.pop_front();
                    }
                }
                FabricEvent::Notice(taken) if taken & TAKEN != 0 => {
                    let taken = taken & !TAKEN;
                    // A provider without order may bring an earlier notice later.
                    out.taken = out.taken.max(is_word(taken, out.begun)?);
                }
                FabricEvent::Notice(landed) => {
                    let landed = is_word(landed, self.inward.taken + self.ring)?;
                    self.inward.landed = self.inward.landed.max(landed);
                }
                FabricEvent::Foreign => self.foreign += 1,
                FabricEvent::Failed(_, why) => return Err(why.into()),
            }
        }
        Ok(DrainedEvents { any, all: false })
    }

    /// Takes in what has landed, and gives each whole frame to `take`, which says whether it wants more. Whether there was
    /// anything.
    ///
    /// # Errors
    /// When the stream is at its end.
    pub fn receive(&mut self, take: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool, StreamFault> {
        if !self.meets {
            return Ok(false);
        }
        let any = self.drain()?.any;
        let inward = &mut self.inward;
        while inward.taken < inward.landed {
            let word = slot(self.endpoint.landing(), inward.taken).load(Ordering::Acquire);
            inward.bytes.extend_from_slice(&word.to_le_bytes());
            inward.taken += WORD as u64;
        }
        let mut begin = 0;
        while let Some((length, rest)) = inward.bytes[begin..].split_first_chunk() {
            let length = u64::from_le_bytes(*length);
            let fits = usize::try_from(length).ok().filter(|&it| it <= self.frame_bytes_max);
            let length = fits.ok_or(StreamFault::Malformed)?;
            let Some(frame) = rest.get(..length) else { break };
            begin += WORD + length.next_multiple_of(WORD);
            if !take(frame) {
                break;
            }
        }
        inward.bytes.drain(..begin);
        Ok(any)
    }

    /// The descriptor that is ready when there may be events; see [`FabricEndpoint::wait_fd`].
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.wait_fd()
    }

    /// Messages of others than the peer, which were dropped. Only grows.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Whether its user may sleep. To be asked right before sleeping.
    pub fn rest(&mut self) -> StreamRest {
        if !self.meets {
            return StreamRest::Blocked;
        }
        if self.inward.taken != self.inward.landed || !self.endpoint.may_sleep() {
            return StreamRest::Ready;
        }
        let out = &self.out;
        let covers = if self.endpoint.orders_notices() { out.begun } else { out.complete };
        let all_told = self.inward.taken - self.inward.told < self.ring / 4;
        let all_begun = out.begun == out.filled && out.announced == covers && all_told;
        if all_begun { StreamRest::Idle } else { StreamRest::Blocked }
    }

    /// Ends the stream: nothing of the peer lands after this returns.
    ///
    /// # Errors
    /// When libfabric cannot close the endpoint; what lands there afterwards is never looked at.
    pub fn close(self) -> Result<(), FabricError> {
        self.endpoint.close().map(drop)
    }
}

/// The word of a ring for the position.
fn slot(ring: &[AtomicU64], position: u64) -> &AtomicU64 {
    &ring[(position as usize / WORD) % ring.len()]
}

/// A position that the peer says, if it is one of a whole word and at most `most`.
fn is_word(position: u64, most: u64) -> Result<u64, StreamFault> {
    let is_sound = position.is_multiple_of(WORD as u64) && position <= most;
    is_sound.then_some(position).ok_or(StreamFault::Malformed)
}
