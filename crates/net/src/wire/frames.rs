//! Frames on a stream: each behind its length.

use core::fmt;
use core::ops::Range;

/// How long the length in front of a frame is, in bytes.
pub const LENGTH_BYTES: usize = 4;

/// The first size of a reader, in bytes, below which it never falls.
const ROOM_MIN: usize = 16 << 10;

/// The largest size of a reader if frames keep coming, in bytes: larger ones do not save system calls that
/// show, and fall out of the processor's cache.
const ROOM_MAX: usize = 256 << 10;

/// A peer announced a frame that is longer than the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameTooLong {
    /// Its announced length, in bytes.
    pub bytes: usize,
}

impl fmt::Display for FrameTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a frame of {} bytes", self.bytes)
    }
}

/// Cuts what arrives on a stream into frames, which are borrowed from its buffer: a byte is moved
/// only if its frame arrives in two parts.
#[derive(Debug)]
pub struct FrameReader {
    /// All of it can be read into; what is before `head` was given out, what is behind `tail` is free.
    buffer: Vec<u8>,
    head: usize,
    tail: usize,
    frame_bytes_max: usize,
}

impl FrameReader {
    /// A reader of frames of at most `frame_bytes_max` bytes. Takes memory once something arrives,
    /// and never more than the larger of 256 KiB and one frame.
    pub const fn new(frame_bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), head: 0, tail: 0, frame_bytes_max }
    }

    /// Where the next frame lies in [`FrameReader::bytes`], if it is there as a whole. It counts as
    /// given out.
    ///
    /// # Errors
    /// When the peer announced a frame over the limit: nothing behind it can be read.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Range<usize>>, FrameTooLong> {
        let Some(bytes) = self.announced() else { return Ok(None) };
        if bytes > self.frame_bytes_max {
            return Err(FrameTooLong { bytes });
        }
        let begin = self.head + LENGTH_BYTES;
        if self.tail - begin < bytes {
            return Ok(None);
        }
        self.head = begin + bytes;
        Ok(Some(begin..self.head))
    }

    /// The buffer, in which [`FrameReader::take`] says where a frame lies.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Where to put what arrives next: never empty if all whole frames were taken out. Call
    /// [`FrameReader::arrived`] afterwards.
    pub fn space(&mut self) -> &mut [u8] {
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        } else if self.head > 0 {
            self.buffer.copy_within(self.head..self.tail, 0);
            (self.head, self.tail) = (0, self.tail - self.head);
        }
        let frame = self.announced().unwrap_or(0).min(self.frame_bytes_max) + LENGTH_BYTES;
        let wanted = frame.max(ROOM_MIN);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        &mut self.buffer[self.tail..]
    }

    /// `count` bytes were put into the space.
    ///
    /// # Panics
    /// When there was no space for so many.
    pub fn arrived(&mut self, count: usize) {
        self.tail += count;
        assert!(self.tail <= self.buffer.len(), "{count} bytes arrived in less space");
        if self.tail == self.buffer.len() && self.buffer.len() < ROOM_MAX {
            // More is waiting: fetch more of it with the next call.
            self.buffer.resize((self.buffer.len() * 2).min(ROOM_MAX), 0);
        }
    }

    /// Forgets what arrived; keeps at most the usual room.
    pub fn clear(&mut self) {
        (self.head, self.tail) = (0, 0);
        self.buffer.truncate(ROOM_MAX);
        self.buffer.shrink_to_fit();
    }

    /// The length of the frame at the head, if it arrived.
    #[inline]
    fn announced(&self) -> Option<usize> {
        let length = self.buffer[self.head..self.tail].first_chunk::<LENGTH_BYTES>()?;
        Some(u32::from_le_bytes(*length) as usize)
    }
}

/// Frames that wait to be sent on a stream, as they will travel. The caller that puts them in keeps the bound.
#[derive(Debug, Default)]
pub(crate) struct FrameQueue {
    buffer: Vec<u8>,
    head: usize,
}

/// Above this much that was sent and still lies in front of what was not, the queue moves up.
const SENT_MAX: usize = 256 << 10;

impl FrameQueue {
    /// How many bytes wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.buffer.len() - self.head
    }

    /// Puts a frame in that has these two parts.
    #[inline]
    pub(crate) fn push(&mut self, head: &[u8], rest: &[u8]) {
        if self.head > SENT_MAX && self.head > self.buffer.len() / 2 {
            self.buffer.drain(..self.head);
            self.head = 0;
        }
        let bytes = head.len() + rest.len();
        self.buffer.reserve(LENGTH_BYTES + bytes);
        self.buffer.extend_from_slice(&(bytes as u32).to_le_bytes());
        self.buffer.extend_from_slice(head);
        self.buffer.extend_from_slice(rest);
    }

    /// The waiting bytes.
    #[inline]
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.buffer[self.head..]
    }

    /// The first `count` bytes were sent.
    #[inline]
    pub(crate) fn sent(&mut self, count: usize) {
        self.head += count;
        assert!(self.head <= self.buffer.len(), "more was sent than waited");
        if self.head == self.buffer.len() {
            self.buffer.clear();
            self.head = 0;
        }
    }

    /// Forgets everything, and gives back what it grew by.
    pub(crate) fn clear(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(SENT_MAX);
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::rng::Rng;

    fn put(reader: &mut FrameReader, mut bytes: &[u8], piece: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let space = reader.space();
            let count = space.len().min(bytes.len()).min(piece);
            space[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            reader.arrived(count);
            while let Some(at) = reader.take().unwrap() {
                frames.push(reader.bytes()[at].to_vec());
            }
        }
        frames
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let mut rng = Rng::new(3);
        for piece in [1, 3, 4, 5, 100, 16 << 10, 1 << 20] {
            let mut queue = FrameQueue::default();
            let sizes = [0, 1, 64, 5_000, 20_000, 300_000, 0, 7];
            let frames: Vec<Vec<u8>> =
                sizes.iter().map(|&n| (0..n).map(|_| rng.word() as u8).collect()).collect();
            frames.iter().for_each(|f| queue.push(&f[..f.len() / 3], &f[f.len() / 3..]));
            let mut reader = FrameReader::new(300_000);
            assert_eq!(put(&mut reader, queue.waiting(), piece), frames, "pieces of {piece}");
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_before_it_arrives() {
        let mut queue = FrameQueue::default();
        queue.push(&[7; 11], &[]);
        let mut reader = FrameReader::new(10);
        let bytes = &queue.waiting()[..LENGTH_BYTES];
        reader.space()[..bytes.len()].copy_from_slice(bytes);
        reader.arrived(bytes.len());
        assert_eq!(reader.take(), Err(FrameTooLong { bytes: 11 }));
    }

    #[test]
    fn a_reader_does_not_grow_beyond_its_bound() {
        let mut queue = FrameQueue::default();
        (0..20_000).for_each(|_| queue.push(&[], &[1; 60]));
        let mut reader = FrameReader::new(1 << 20);
        assert_eq!(put(&mut reader, queue.waiting(), usize::MAX).len(), 20_000);
        assert!(reader.bytes().len() <= ROOM_MAX);
    }

    #[test]
    fn a_queue_that_is_never_empty_does_not_grow() {
        let mut queue = FrameQueue::default();
        queue.push(&[0; 1_000], &[]);
        for _ in 0..10_000 {
            queue.push(&[0; 1_000], &[]);
            queue.sent(1_004);
            assert_eq!(queue.len(), 1_004);
        }
        assert!(queue.buffer.capacity() < 4 * SENT_MAX);
    }
}
