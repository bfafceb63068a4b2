//! The socket of one connection, with its unread input and its unwritten output.

use super::input::{self, ClientInput};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Bytes written in one go before other connections have their turn.
const TURN_BYTES: usize = 128 << 10;

/// Bytes read in one go before other connections have their turn: thousands of the shortest commands.
const INPUT_TURN_BYTES: usize = 32 << 10;

/// Larger buffers are given back when they are empty.
const BUFFER_BYTES_KEPT: usize = 32 << 10;

/// While more output waits, no commands are read.
pub(super) const OUTPUT_BYTES_CALM: usize = 1 << 20;

/// How long a client whose input is ignored may continue to send, so that it reads the error.
const FAREWELL: Duration = Duration::from_secs(10);

/// Bytes that it may send meanwhile: a few of the largest arguments that the protocol has.
const FAREWELL_BYTES_MAX: usize = 2 << 30;

/// A socket and its two buffers.
pub(super) struct ClientSocket {
    stream: TcpStream,
    /// The bytes that were read and are not processed.
    pub(super) input: ClientInput,
    /// The bytes to be written; all before `written` are.
    pub(super) output: Vec<u8>,
    written: usize,
    /// The bytes that were read in this turn.
    turn_bytes: usize,
    /// The client sends no more. It may still read.
    pub(super) ended: bool,
    /// The deadline for the input of a client that has all its answers.
    farewell: Option<Pin<Box<Sleep>>>,
    /// Bytes of input that were dropped unseen.
    dropped: usize,
}

/// Has the task of `cx`, which ends its turn, run again once all sockets were looked at. If it woke itself it would run again some
/// sixty times before.
pub(super) fn leave_turn(cx: &mut Context<'_>) {
    // It is never ready at first.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

impl ClientSocket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            input: ClientInput::default(),
            output: Vec::new(),
            written: 0,
            turn_bytes: 0,
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
    pub(super) fn capacity(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }

    /// Appends `bytes` to the output. Many of them are not copied if nothing waits.
    pub(super) fn put(&mut self, bytes: Vec<u8>) {
        if self.output.is_empty() && bytes.len() > self.output.capacity() {
            self.output = bytes;
        } else {
            self.output.extend_from_slice(&bytes);
        }
    }

    /// Releases the input buffer if all of its bytes were taken. Whether all were.
    pub(super) fn release_read(&mut self) -> bool {
        self.input.release_read()
    }

    /// Writes as much as the socket takes, and no more than is one connection's turn: the task is
    /// woken for the rest.
    pub(super) fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let turn_end = self.written + TURN_BYTES;
        while self.written < self.output.len() {
            if self.written >= turn_end {
                leave_turn(cx);
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
        match self.input.receive(&mut self.stream, cx, needs) {
            Poll::Ready(Ok(0)) => self.ended = true,
            Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
            Poll::Ready(Ok(bytes)) => self.turn_bytes += bytes,
            Poll::Pending => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }

    /// Whether as much was read as is one connection's turn; the task is woken for the next one then.
    pub(super) fn ends_turn(&self, cx: &mut Context<'_>) -> bool {
        let is_over = self.turn_bytes >= INPUT_TURN_BYTES;
        if is_over {
            leave_turn(cx);
        }
        is_over
    }

    /// All that was read so far is of earlier turns.
    pub(super) const fn begin_turn(&mut self) {
        self.turn_bytes = 0;
    }

    /// Whether the client has closed the connection, and nothing that it sent before waits to be read; if not, the task
    /// is woken when there is something.
    pub(super) fn has_left(&self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let peeked = self.stream.poll_peek(cx, &mut ReadBuf::new(&mut byte));
        matches!(peeked, Poll::Ready(Ok(0) | Err(_)))
    }

    /// Whether the client has closed the connection, with or without input before that. Nobody is woken for that.
    pub(super) fn is_hung_up(&self) -> bool {
        let (closed, at_once) =
            (PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR, Timespec::default());
        let mut polled = [PollFd::new(&self.stream, closed)];
        poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// Drops all input, and ends the output once all answers are given and written. Ready when the
    /// socket can be closed: closing one that has unread input resets the connection, and the last
    /// answers would be lost on the way.
    pub(super) fn part(&mut self, cx: &mut Context<'_>, all_said: bool) -> Poll<()> {
        self.input = ClientInput::default();
        if all_said && self.output.is_empty() && self.farewell.is_none() {
            self.farewell = Some(Box::pin(tokio::time::sleep(FAREWELL)));
            // A socket that cannot be shut down is gone already, which the next read tells.
            let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
        }
        while !self.ended && self.dropped < FAREWELL_BYTES_MAX {
            match input::discard(&mut self.stream, cx) {
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
