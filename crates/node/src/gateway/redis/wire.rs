//! The socket of one connection, with what was read and not yet taken, and what is to be written.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Bytes written in one go before other connections have their turn.
const TURN_BYTES: usize = 128 << 10;

/// Larger buffers are given back when they are empty.
const BUFFER_BYTES_KEPT: usize = READ_BYTES / 2;

/// Input that was dealt with and has more bytes is given back though more follows it.
const LARGE_BYTES: usize = 1 << 20;

/// While more output waits, no commands are read.
pub(super) const OUTPUT_BYTES_CALM: usize = 1 << 20;

/// How long a client that is not listened to any more may go on sending, so that it reads why.
const FAREWELL: Duration = Duration::from_secs(10);

/// Bytes that it may send meanwhile: a few of the largest arguments that the protocol has.
const FAREWELL_BYTES_MAX: usize = 2 << 30;

thread_local! {
    /// Where input lands: shared, so that an idle connection holds no buffer, and none is cleared
    /// for each read.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// A socket and its two buffers.
pub(super) struct ClientSocket {
    stream: TcpStream,
    /// What was read; all before `used` was dealt with.
    pub(super) input: Vec<u8>,
    pub(super) used: usize,
    /// What is to be written; all before `written` was.
    pub(super) output: Vec<u8>,
    written: usize,
    /// The client sends no more. It may still read.
    pub(super) ended: bool,
    /// Until when a client that was told everything may go on sending.
    farewell: Option<Pin<Box<Sleep>>>,
    /// Bytes of input that were dropped unseen.
    dropped: usize,
}

impl ClientSocket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            used: 0,
            output: Vec::new(),
            written: 0,
            ended: false,
            farewell: None,
            dropped: 0,
        }
    }

    /// Bytes that the client has not taken yet.
    pub(super) fn unwritten(&self) -> usize {
        self.output.len() - self.written
    }

    /// Bytes of both buffers.
    pub(super) const fn capacity(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }

    /// Puts `bytes` behind what is to be written. Many of them are not copied if nothing waits.
    pub(super) fn put(&mut self, bytes: Vec<u8>) {
        if self.output.is_empty() && bytes.len() > self.output.capacity() {
            self.output = bytes;
        } else {
            self.output.extend_from_slice(&bytes);
        }
    }

    /// Forgets input that was dealt with, if that is all there is. Whether it was.
    pub(super) fn tidy(&mut self) -> bool {
        let all = self.used > 0 && self.used == self.input.len();
        if all {
            self.input.clear();
            self.used = 0;
            if self.input.capacity() > BUFFER_BYTES_KEPT {
                self.input = Vec::new();
            }
        } else if self.used > LARGE_BYTES {
            self.input = self.input[self.used..].to_vec();
            self.used = 0;
        }
        all
    }

    /// Writes as much as the socket takes, and no more than is one connection's turn: the task is
    /// woken for the rest.
    pub(super) fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let turn_end = self.written + TURN_BYTES;
        while self.written < self.output.len() {
            if self.written >= turn_end {
                cx.waker().wake_by_ref();
                return Ok(());
            }
            let end = self.output.len().min(turn_end);
            match self.stream.try_write(&self.output[self.written..end]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    match self.stream.poll_write_ready(cx) {
                        Poll::Ready(ready) => ready?,
                        Poll::Pending => return Ok(()),
                    }
                }
                Err(e) => return Err(e),
            }
        }
        self.output.clear();
        self.written = 0;
        if self.output.capacity() > BUFFER_BYTES_KEPT {
            self.output = Vec::new();
        }
        Ok(())
    }

    /// Reads once; ready with `Ok` if there is more input, or none will come any more. The input is known to
    /// become `needs` bytes long.
    pub(super) fn read(&mut self, cx: &mut Context<'_>, needs: usize) -> Poll<io::Result<()>> {
        if self.ended {
            return Poll::Pending;
        }
        if self.used > 0 {
            self.input.drain(..self.used);
            self.used = 0;
        }
        let input = &mut self.input;
        let (len, most) = (input.len(), needs + READ_BYTES);
        if needs > len && input.capacity() < most && input.capacity() < len + READ_BYTES {
            // As it would grow by itself, but not beyond what is needed.
            input.reserve_exact((2 * len + READ_BYTES).min(most) - len);
        }
        match receive(&mut self.stream, cx, |bytes| input.extend_from_slice(bytes)) {
            Poll::Ready(Ok(0)) => self.ended = true,
            Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
            Poll::Ready(Ok(_)) => {}
            Poll::Pending => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }

    /// Drops all input, and ends the output once everything was said and written. Ready when the
    /// socket can be closed: closing one that has unread input resets the connection, and the last
    /// answers would be lost on the way.
    pub(super) fn part(&mut self, cx: &mut Context<'_>, all_said: bool) -> Poll<()> {
        self.input = Vec::new();
        self.used = 0;
        if all_said && self.output.is_empty() && self.farewell.is_none() {
            self.farewell = Some(Box::pin(tokio::time::sleep(FAREWELL)));
            // A socket that cannot be shut down is gone already, which the next read tells.
            let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
        }
        while !self.ended && self.dropped < FAREWELL_BYTES_MAX {
            match receive(&mut self.stream, cx, |_| {}) {
                Poll::Ready(Ok(0) | Err(_)) => self.ended = true,
                Poll::Ready(Ok(n)) => self.dropped += n,
                Poll::Pending => break,
            }
        }
        match &mut self.farewell {
            _ if self.dropped >= FAREWELL_BYTES_MAX => Poll::Ready(()),
            Some(_) if self.ended => Poll::Ready(()),
            Some(until) => until.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

/// Receives once, and hands over what came.
fn receive(
    stream: &mut TcpStream,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]),
) -> Poll<io::Result<usize>> {
    SCRATCH.with_borrow_mut(|scratch| {
        // This knows, other than `try_read`, that a socket which gave less than was asked for has no
        // more, and does not ask once more to find that out.
        let mut buffer = ReadBuf::new(scratch);
        let received = Pin::new(stream).poll_read(cx, &mut buffer);
        received.map_ok(|()| {
            take(buffer.filled());
            buffer.filled().len()
        })
    })
}
