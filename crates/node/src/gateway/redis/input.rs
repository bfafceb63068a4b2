//! The bytes that were read from a connection and are not processed.
//!
//! Input is read into the buffer that commands are parsed in. An idle connection has none: it borrows one of its thread
//! while there is something to read, and gives it back when all of that is dealt with.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

/// Bytes read at once, and of a buffer that threads lend.
const READ_BYTES: usize = 64 << 10;

/// Less input than this that waits, while nothing is read, is kept in a buffer of its own size.
const SMALL_BYTES: usize = READ_BYTES / 2;

/// Input that was dealt with and has more bytes is given back though more follows it.
const LARGE_BYTES: usize = 1 << 20;

/// Buffers that a thread keeps to lend them.
const LENT_MAX: usize = 8;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of [`READ_BYTES`] bytes.
fn borrow() -> Vec<u8> {
    BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; READ_BYTES])
}

/// Gives a buffer back; one of another size is freed.
fn give_back(buffer: Vec<u8>) {
    BUFFERS.with_borrow_mut(|buffers| {
        if buffer.len() == READ_BYTES && buffers.len() < LENT_MAX {
            buffers.push(buffer);
        }
    });
}

/// Input of one connection.
#[derive(Default)]
pub(super) struct ClientInput {
    /// Bytes that came are in `taken..filled`; the rest is room.
    bytes: Vec<u8>,
    taken: usize,
    filled: usize,
}

impl ClientInput {
    /// The bytes that are not processed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.taken..self.filled]
    }

    /// So many bytes are dealt with.
    pub(super) fn take(&mut self, bytes: usize) {
        self.taken += bytes;
        debug_assert!(self.taken <= self.filled, "they had arrived");
    }

    /// Bytes that it holds.
    pub(super) const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Releases the buffer if all of its bytes were taken, and shrinks a large one. Whether all were.
    pub(super) fn release_read(&mut self) -> bool {
        let all = self.taken > 0 && self.taken == self.filled;
        if all {
            self.release();
        } else if self.taken > LARGE_BYTES {
            self.shrink();
        }
        all
    }

    /// Has no buffer any more.
    fn release(&mut self) {
        let Self { bytes, .. } = std::mem::take(self);
        give_back(bytes);
    }

    /// Keeps only the bytes that were not taken.
    fn shrink(&mut self) {
        let bytes = self.unread().to_vec();
        let filled = bytes.len();
        give_back(std::mem::replace(&mut self.bytes, bytes));
        (self.taken, self.filled) = (0, filled);
    }

    /// Makes room for the next read, where the unread bytes are known to become `needs` bytes long.
    fn make_room(&mut self, needs: usize) {
        if self.taken > 0 {
            self.bytes.copy_within(self.taken..self.filled, 0);
            (self.taken, self.filled) = (0, self.filled - self.taken);
        }
        let len = self.bytes.len();
        if self.filled < len && needs <= len {
            return;
        }
        if self.filled < READ_BYTES && needs <= READ_BYTES {
            let small = std::mem::replace(&mut self.bytes, borrow());
            self.bytes[..self.filled].copy_from_slice(&small[..self.filled]);
        } else if self.filled + READ_BYTES > len {
            // As it would grow by itself, but not beyond the need.
            let most = needs.max(self.filled) + READ_BYTES;
            let more = (2 * self.filled + READ_BYTES).min(most);
            self.bytes.reserve_exact(more.saturating_sub(len));
            self.bytes.resize(more.max(len), 0);
        }
    }

    /// Reads once; returns how many bytes arrived, none at the end. The present input is known to
    /// become `needs` bytes long.
    pub(super) fn receive(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
        needs: usize,
    ) -> Poll<io::Result<usize>> {
        self.make_room(needs);
        let end = self.bytes.len().min(self.filled + READ_BYTES);
        let read = read(stream, cx, &mut self.bytes[self.filled..end]);
        match &read {
            Poll::Ready(Ok(count)) => self.filled += count,
            Poll::Ready(Err(_)) => {}
            // Nothing comes for now: the room is of more use to others.
            Poll::Pending if self.filled == 0 => self.release(),
            Poll::Pending => self.wait(),
        }
        read
    }

    /// Nothing is read for now: a little that waits in a large buffer does not keep all of that.
    pub(super) fn wait(&mut self) {
        if self.unread().len() < SMALL_BYTES && self.bytes.len() >= READ_BYTES {
            self.shrink();
        }
    }
}

/// Reads once, and drops the bytes; returns their number.
pub(super) fn discard(stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let mut buffer = borrow();
    let read = read(stream, cx, &mut buffer);
    give_back(buffer);
    read
}

fn read(stream: &mut TcpStream, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
    // This knows, other than `try_read`, that a socket which gave less than was asked for has no
    // more, and does not ask once more to find that out.
    let mut buffer = ReadBuf::new(room);
    Pin::new(stream).poll_read(cx, &mut buffer).map_ok(|()| buffer.filled().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::rng::Rng;

    /// Puts bytes in as if they had arrived.
    fn come(input: &mut ClientInput, bytes: &[u8], needs: usize) {
        let mut rest = bytes;
        while !rest.is_empty() {
            input.make_room(needs);
            let room = &mut input.bytes[input.filled..];
            let count = room.len().min(rest.len());
            room[..count].copy_from_slice(&rest[..count]);
            input.filled += count;
            rest = &rest[count..];
        }
    }

    #[test]
    fn what_came_is_there_in_its_order_however_it_is_cut_and_taken() {
        let mut rng = Rng::new(3);
        let (mut input, mut sent, mut seen) = (ClientInput::default(), Vec::<u8>::new(), 0);
        for n in 0..2000_u32 {
            let size = [3, 300, 20_000, 90_000][rng.below(4) as usize];
            let bytes: Vec<u8> = (0..rng.below(size)).map(|i| (i as u32 * 7 + n) as u8).collect();
            let unread = sent.len() - seen;
            let needs = if rng.below(2) == 0 { unread + bytes.len() } else { 0 };
            come(&mut input, &bytes, needs);
            sent.extend_from_slice(&bytes);
            assert!(input.unread() == &sent[seen..], "{n}");
            let take = (rng.below(size) as usize * 2).min(sent.len() - seen);
            input.take(take);
            seen += take;
            match rng.below(3) {
                0 => {
                    let all = input.taken > 0 && seen == sent.len();
                    assert_eq!(input.release_read(), all, "{n}");
                }
                1 if input.unread().len() < SMALL_BYTES => input.shrink(),
                _ => {}
            }
            assert!(input.unread() == &sent[seen..], "{n}");
            if seen > 1 << 20 {
                sent.drain(..seen);
                seen = 0;
            }
        }
    }

    #[test]
    fn an_idle_connection_has_no_buffer_and_the_next_one_reads_into_the_same() {
        let mut input = ClientInput::default();
        come(&mut input, b"GET k", 0);
        let at = input.bytes.as_ptr();
        input.take(5);
        assert!(input.release_read());
        assert_eq!(input.capacity(), 0);
        let mut other = ClientInput::default();
        come(&mut other, b"GE", 0);
        assert_eq!(other.bytes.as_ptr(), at);
        other.wait();
        assert!(other.capacity() < 64 && other.unread() == b"GE");
    }

    #[test]
    fn commands_that_wait_for_earlier_ones_keep_a_buffer_of_their_own_size_however_much_was_taken()
    {
        let mut input = ClientInput::default();
        come(&mut input, &[7; 3 * READ_BYTES], 3 * READ_BYTES);
        input.take(3 * READ_BYTES - SMALL_BYTES);
        let before = input.capacity();
        input.wait();
        assert_eq!(input.capacity(), before, "half a buffer waits: that is not worth a copy");
        input.take(SMALL_BYTES - 100);
        input.wait();
        assert_eq!((input.unread(), input.capacity()), (&[7; 100][..], 100));
    }

    #[test]
    fn a_buffer_grows_with_what_comes_and_not_with_what_is_announced() {
        let mut input = ClientInput::default();
        come(&mut input, &[7; 100], 512 << 20);
        assert!(input.capacity() <= 2 * READ_BYTES, "{}", input.capacity());
        come(&mut input, &[7; 1 << 20], 512 << 20);
        assert!(input.capacity() <= (2 << 20) + 2 * READ_BYTES, "{}", input.capacity());
        // Where it is known how long it becomes, there is not much more.
        let mut known = ClientInput::default();
        come(&mut known, &[7; 3 << 20], 3 << 20);
        assert!(known.capacity() <= (3 << 20) + READ_BYTES, "{}", known.capacity());
    }
}
