//! The bytes of commands on their way from a gateway to a protocol: encoded once, shared by all that pass them on, and
//! their buffers used again.
//!
//! The way of a command, with the copies of its bytes; what the kernel copies between a socket and a buffer is not
//! counted:
//!
//! ```text
//! client's socket --> input buffer
//!   copy 1: the arguments are encoded, behind room for the envelope, in the buffer that becomes the message
//! gateway: the buffer itself is handed in (CommandGateway::submit), kept until the answer, and sent again from there
//!   shared memory: the protocol's client process reads it there
//!   own node:      its ingress is given a reference (ingress::line)
//!   other node:    written to the socket from there (vectored), and read there from the connection's input buffer
//!   copy 2: the protocol writes it into its outbox, or into memory
//! ```
//!
//! Two kinds of commands are copied once more: one that came through a socket and must wait at the node for room, so
//! that those behind it need not wait; and one that is larger than a message, which is cut into parts.
//!
//! No command holds a larger buffer than it needs: it has a buffer of its own, never a piece of one into which a socket
//! was read, and [`fit`] sees that a buffer which is used again is not much larger than the command. The buffer's
//! capacity is bounded and counted on the way, not the command's length.

use std::sync::Arc;

/// The bytes of a command.
pub(crate) type CommandBytes = Arc<Vec<u8>>;

/// Buffers that are kept, at most, and their bytes; and those of a single one, as many as a connection keeps.
const SPARE_BUFFERS_MAX: usize = 512;
const SPARE_BYTES_MAX: usize = 4 << 20;
pub(crate) const BUFFER_BYTES_MAX: usize = 16 << 10;

/// A buffer of no more bytes is used for any command; a larger one for those that need a quarter of it.
const BUFFER_BYTES_SMALL: usize = 1 << 10;

/// Empties `buffer`, and makes room for a command of so many bytes. A buffer that is much larger is not used: it would be
/// held as long as the command.
pub(crate) fn fit(buffer: &mut Vec<u8>, bytes: usize) {
    buffer.clear();
    if buffer.capacity() > BUFFER_BYTES_SMALL.max(4 * bytes) {
        *buffer = Vec::new();
    }
    buffer.reserve_exact(bytes);
}

/// Buffers of commands that were answered, for later ones.
#[derive(Default, Debug)]
pub(crate) struct SpareBuffers {
    buffers: Vec<CommandBytes>,
    bytes: usize,
}

impl SpareBuffers {
    /// Keeps the buffer of an answered command, if nobody else reads it and there is room.
    pub(crate) fn put(&mut self, mut buffer: CommandBytes) {
        let Some(own) = Arc::get_mut(&mut buffer) else { return };
        let bytes = own.capacity();
        if self.buffers.len() < SPARE_BUFFERS_MAX
            && bytes <= BUFFER_BYTES_MAX
            && self.bytes + bytes <= SPARE_BYTES_MAX
        {
            own.clear();
            self.bytes += bytes;
            self.buffers.push(buffer);
        }
    }

    /// Takes what `command` holds, and leaves an empty buffer in its place.
    pub(crate) fn exchange(&mut self, command: &mut Vec<u8>) -> CommandBytes {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        match Arc::get_mut(&mut buffer) {
            Some(own) => {
                self.bytes -= own.capacity();
                std::mem::swap(own, command);
                buffer
            }
            // Only what nobody else reads is kept.
            None => Arc::new(std::mem::take(command)),
        }
    }

    /// Moves as many buffers of `from` here as there is room for; the others are freed.
    pub(crate) fn refill(&mut self, from: &mut Self) {
        if self.buffers.is_empty() {
            std::mem::swap(self, from);
        }
        from.buffers.drain(..).for_each(|buffer| self.put(buffer));
        from.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_and_is_used_again_and_none_that_is_still_read() {
        let mut spare = SpareBuffers::default();
        let mut command = vec![7; 1000];
        let at = command.as_ptr();
        let first = spare.exchange(&mut command);
        assert_eq!((first.as_ptr(), command.capacity()), (at, 0), "moved, not copied");
        let reader = Arc::clone(&first);
        spare.put(first);
        assert!(spare.buffers.is_empty());
        spare.put(reader);
        assert_eq!((spare.buffers.len(), spare.bytes), (1, 1000));
        command.extend([8; 10]);
        let second = spare.exchange(&mut command);
        assert_eq!((&second[..], command.as_ptr()), (&[8; 10][..], at));
        assert_eq!((command.len(), spare.bytes), (0, 0));
    }

    #[test]
    fn a_command_gets_a_buffer_that_is_not_much_larger_than_itself() {
        for (had, needs, has) in [
            (0, 100, 100),
            (1000, 100, 1000),
            (BUFFER_BYTES_SMALL, 1, BUFFER_BYTES_SMALL),
            (BUFFER_BYTES_SMALL + 1, 100, 100),
            (16_000, 4000, 16_000),
            (16_000, 3999, 3999),
            (16_000, 20_000, 20_000),
        ] {
            let mut buffer = Vec::with_capacity(had);
            buffer.push(1);
            fit(&mut buffer, needs);
            assert_eq!((buffer.len(), buffer.capacity()), (0, has), "{had} {needs}");
        }
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let mut spare = SpareBuffers::default();
        let sized = |bytes| Arc::new(Vec::with_capacity(bytes));
        spare.put(sized(BUFFER_BYTES_MAX + 1));
        assert!(spare.buffers.is_empty());
        (0..1000).for_each(|_| spare.put(sized(BUFFER_BYTES_MAX)));
        assert_eq!((spare.buffers.len(), spare.bytes), (256, SPARE_BYTES_MAX));
        let mut other = SpareBuffers::default();
        (0..1000).for_each(|_| other.put(sized(8)));
        assert_eq!(other.buffers.len(), SPARE_BUFFERS_MAX);
        spare.refill(&mut other);
        assert_eq!((spare.bytes, other.buffers.len(), other.bytes), (SPARE_BYTES_MAX, 0, 0));
        other.refill(&mut spare);
        assert_eq!((other.bytes, spare.bytes), (SPARE_BYTES_MAX, 0));
    }
}
