//! The bytes of a node's state on their way to another node.
//!
//! A stream begins with eight bytes: `amKV`, the version of the format, the number of shards, and
//! two zeros. Frames follow: the number of bytes in the frame, the bytes, and the CRC-32C of
//! everything in the stream up to there; both numbers have 32 bits, little-endian. An empty frame
//! ends the stream, so that a reader takes not a byte after it. Since each sum covers
//! the frames before it too, a frame that is lost, repeated or of another stream is found like a
//! damaged one. Within the frames, words have 64 bits, little-endian, and byte strings follow their
//! length; both may continue in the next frame.

use crate::machine::Corrupt;
use std::io::{ErrorKind, Read};

const MAGIC: [u8; 4] = *b"amKV";
/// The version of the format that is written.
pub const VERSION: u8 = 16;
/// The oldest version that is read: checkpoints outlive the program that wrote them.
const VERSION_READ: u8 = 6;
/// Bytes of a frame, its length and sum not counted. A damaged length is found by it before memory
/// is taken for it.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// The shortest piece that can be asked for, so that each one makes way.
const PIECE_BYTES_MIN: usize = 128;
/// The share of a piece that one visited item costs, in bytes, whether it adds any or not.
const LOOK_BYTES: usize = 32;

/// The progress of a stream from one piece to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamProgress {
    /// The sum of all that was given.
    sum: u32,
}

/// A piece of a stream that is being written: takes bytes, cuts them into frames, and knows when
/// it is long enough.
pub struct Piece<'a> {
    to: &'a mut Vec<u8>,
    progress: &'a mut StreamProgress,
    /// Where the open frame begins in `to`.
    frame: usize,
    /// Bytes that may follow.
    left: usize,
}

impl<'a> Piece<'a> {
    /// Writes the first bytes of a stream.
    pub fn begin(shards: usize, progress: &mut StreamProgress, to: &mut Vec<u8>) {
        let [a, b, c, d] = MAGIC;
        let head = [a, b, c, d, VERSION, shards as u8, 0, 0];
        progress.sum = crc32c::crc32c(&head);
        to.extend_from_slice(&head);
    }

    /// A piece of about `most` bytes behind those in `to`; no shorter than [`PIECE_BYTES_MIN`].
    pub fn new(most: usize, progress: &'a mut StreamProgress, to: &'a mut Vec<u8>) -> Self {
        let frame = to.len();
        to.extend_from_slice(&[0; 4]);
        Self { to, progress, frame, left: most.max(PIECE_BYTES_MIN) }
    }

    /// Whether nothing should follow in this piece.
    pub fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Counts one look at something that may give no bytes, so that a piece ends also when there
    /// is much to look at and nothing to give.
    pub fn look(&mut self) {
        self.left = self.left.saturating_sub(LOOK_BYTES);
    }

    /// Appends one byte.
    pub fn byte(&mut self, byte: u8) {
        self.raw(&[byte]);
    }

    /// Appends a number.
    pub fn word(&mut self, word: u64) {
        self.raw(&word.to_le_bytes());
    }

    /// Appends bytes behind their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Appends bytes whose number the reader knows.
    pub fn raw(&mut self, mut bytes: &[u8]) {
        self.left = self.left.saturating_sub(bytes.len());
        while !bytes.is_empty() {
            let room = FRAME_BYTES_MAX - (self.to.len() - self.frame - 4);
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.to.extend_from_slice(now);
            if !later.is_empty() {
                self.close();
                self.frame = self.to.len();
                self.to.extend_from_slice(&[0; 4]);
            }
            bytes = later;
        }
    }

    /// As much of `bytes` as fits; how much that was.
    pub fn some(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.left);
        self.raw(&bytes[..n]);
        n
    }

    /// Ends the piece; with `last`, the stream.
    pub fn end(mut self, last: bool) {
        if self.to.len() > self.frame + 4 {
            self.close();
        } else {
            self.to.truncate(self.frame);
        }
        if last {
            self.frame = self.to.len();
            self.to.extend_from_slice(&[0; 4]);
            self.close();
        }
    }

    /// Writes length and sum of the open frame.
    fn close(&mut self) {
        let len = (self.to.len() - self.frame - 4) as u32;
        self.to[self.frame..self.frame + 4].copy_from_slice(&len.to_le_bytes());
        self.progress.sum = crc32c::crc32c_append(self.progress.sum, &self.to[self.frame..]);
        self.to.extend_from_slice(&self.progress.sum.to_le_bytes());
    }
}

/// Reads a stream, frame by frame.
pub struct StreamReader<'a> {
    from: &'a mut dyn Read,
    version: u8,
    sum: u32,
    frame: Vec<u8>,
    /// How much of the frame was read.
    at: usize,
}

impl<'a> StreamReader<'a> {
    /// Reads the first bytes of a stream; the number of shards that it is of.
    pub fn begin(from: &'a mut dyn Read) -> Result<(Self, usize), Corrupt> {
        let mut head = [0; 8];
        fill(from, &mut head)?;
        let [a, b, c, d, version, shards, zeros @ ..] = head;
        if [a, b, c, d] != MAGIC {
            return Err(Corrupt::Malformed);
        }
        if !(VERSION_READ..=VERSION).contains(&version) {
            return Err(Corrupt::Version(version));
        }
        if zeros != [0, 0] {
            return Err(Corrupt::Malformed);
        }
        let it = Self { from, version, sum: crc32c::crc32c(&head), frame: Vec::new(), at: 0 };
        Ok((it, usize::from(shards)))
    }

    /// The version of the format that the stream was written in.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The next byte.
    ///
    /// # Errors
    /// When the stream ends, is damaged, or cannot be read.
    pub fn byte(&mut self) -> Result<u8, Corrupt> {
        let mut byte = [0];
        self.raw(&mut byte)?;
        Ok(byte[0])
    }

    /// The next number.
    ///
    /// # Errors
    /// When the stream ends, is damaged, or cannot be read.
    pub fn word(&mut self) -> Result<u64, Corrupt> {
        let mut word = [0; 8];
        self.raw(&mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// The next bytes with their number in front.
    ///
    /// # Errors
    /// When the stream ends, is damaged, or cannot be read.
    pub fn bytes(&mut self) -> Result<Vec<u8>, Corrupt> {
        let len = usize::try_from(self.word()?).map_err(|_| Corrupt::Malformed)?;
        let mut bytes = Vec::new();
        while bytes.len() < len {
            // Memory is allocated for bytes that arrived, not for those that a length promises.
            let here = self.here()?;
            let now = here.len().min(len - bytes.len());
            bytes.extend_from_slice(&here[..now]);
            self.at += now;
        }
        Ok(bytes)
    }

    fn raw(&mut self, to: &mut [u8]) -> Result<(), Corrupt> {
        let mut done = 0;
        while done < to.len() {
            let here = self.here()?;
            let now = here.len().min(to.len() - done);
            to[done..done + now].copy_from_slice(&here[..now]);
            self.at += now;
            done += now;
        }
        Ok(())
    }

    /// The rest of the frame, or the next one if the rest is empty.
    fn here(&mut self) -> Result<&[u8], Corrupt> {
        if self.at == self.frame.len() && !self.next()? {
            return Err(Corrupt::Malformed);
        }
        Ok(&self.frame[self.at..])
    }

    /// Reads the next frame; false if it is the last one.
    fn next(&mut self) -> Result<bool, Corrupt> {
        let (mut len, mut sum) = ([0; 4], [0; 4]);
        fill(self.from, &mut len)?;
        self.sum = crc32c::crc32c_append(self.sum, &len);
        let bytes = u32::from_le_bytes(len) as usize;
        if bytes > FRAME_BYTES_MAX {
            return Err(Corrupt::Checksum);
        }
        self.frame.resize(bytes, 0);
        self.at = 0;
        fill(self.from, &mut self.frame)?;
        self.sum = crc32c::crc32c_append(self.sum, &self.frame);
        fill(self.from, &mut sum)?;
        if u32::from_le_bytes(sum) != self.sum {
            return Err(Corrupt::Checksum);
        }
        Ok(bytes > 0)
    }

    /// Reads the end of the stream, and nothing behind it.
    pub fn end(mut self) -> Result<(), Corrupt> {
        if self.at < self.frame.len() || self.next()? {
            return Err(Corrupt::Malformed);
        }
        Ok(())
    }
}

/// Writes whether another item of a list follows.
pub fn next(another: bool, to: &mut Piece<'_>) {
    to.byte(u8::from(another));
}

/// Reads whether another item of a list follows.
pub fn follows(from: &mut StreamReader<'_>) -> Result<bool, Corrupt> {
    match from.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Corrupt::Malformed),
    }
}

fn fill(from: &mut dyn Read, to: &mut [u8]) -> Result<(), Corrupt> {
    from.read_exact(to).map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof => Corrupt::Short,
        kind => Corrupt::Io(kind),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_golden_ends_by_itself_and_every_flipped_bit_is_found() {
        let (mut out, mut progress) = (Vec::new(), StreamProgress::default());
        Piece::begin(3, &mut progress, &mut out);
        let mut piece = Piece::new(16, &mut progress, &mut out);
        piece.word(258);
        piece.bytes(b"ab");
        assert!(!piece.is_full());
        (0..PIECE_BYTES_MIN / LOOK_BYTES).for_each(|_| piece.look());
        assert!(piece.is_full());
        piece.end(false);
        Piece::new(16, &mut progress, &mut out).end(true);
        let golden = b"amKV\x10\x03\0\0\x12\0\0\0\x02\x01\0\0\0\0\0\0\x02\0\0\0\0\0\0\0ab";
        assert_eq!(out[..golden.len()], *golden);
        let sum = crc32c::crc32c(golden).to_le_bytes();
        assert_eq!(out[golden.len()..golden.len() + 4], sum);
        assert_eq!(out[golden.len() + 4..golden.len() + 8], [0; 4]);
        assert_eq!(out.len(), golden.len() + 12);
        let read = |mut bytes: &[u8]| {
            let (mut source, shards) = StreamReader::begin(&mut bytes)?;
            let read = (shards, source.word()?, source.bytes()?);
            source.end()?;
            Ok((read, bytes.to_vec()))
        };
        let end = out.len();
        out.extend_from_slice(b"more");
        assert_eq!(read(&out), Ok(((3, 258, b"ab".to_vec()), b"more".to_vec())));
        for bit in 0..8 * end {
            let mut damaged = out.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit}");
        }
        for len in 0..end {
            assert_eq!(read(&out[..len]), Err(Corrupt::Short), "{len} bytes");
        }
    }

    #[test]
    fn long_bytes_go_on_in_further_frames_and_a_repeated_frame_is_found() {
        let (mut out, mut progress) = (Vec::new(), StreamProgress::default());
        Piece::begin(1, &mut progress, &mut out);
        let long: Vec<u8> = (0..3 * FRAME_BYTES_MAX + 5).map(|i| i as u8).collect();
        let mut piece = Piece::new(1, &mut progress, &mut out);
        piece.bytes(&long);
        piece.end(true);
        let read = |mut bytes: &[u8]| {
            let (mut source, _) = StreamReader::begin(&mut bytes)?;
            let long = source.bytes()?;
            source.end().map(|()| long)
        };
        assert_eq!(read(&out), Ok(long));
        let frame = FRAME_BYTES_MAX + 8;
        let twice = [&out[..8 + 2 * frame], &out[8 + frame..]].concat();
        let lost = [&out[..8 + frame], &out[8 + 2 * frame..]].concat();
        assert_eq!((read(&twice), read(&lost)), (Err(Corrupt::Checksum), Err(Corrupt::Checksum)));
    }
}
