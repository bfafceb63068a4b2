//! The output of a connection: frames in one buffer, and the bytes of commands where they are.

use super::super::frame::IngressFrame;
use super::{READ_BYTES, empty};
use crate::command_bytes::CommandBytes;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// Pieces that are written with one system call, at most.
const SLICES_MAX: usize = 64;

/// The bytes of a command that belong between those of frames.
struct CommandSlice {
    /// How many bytes of frames were put in before it, since the connection began.
    behind: u64,
    bytes: CommandBytes,
}

/// Frames that are to go out.
#[derive(Default)]
pub(super) struct OutgoingFrames {
    /// All but the bytes of shared commands.
    frames: Vec<u8>,
    /// How many bytes of `frames` are gone, and how many had gone before its first.
    gone: usize,
    before: u64,
    /// Commands that are not gone, and how many bytes of the first one are.
    commands: VecDeque<CommandSlice>,
    gone_of_first: usize,
    /// The bytes of `commands`.
    commands_bytes: usize,
}

impl OutgoingFrames {
    /// Bytes that are not gone.
    pub(super) const fn len(&self) -> usize {
        self.frames.len() - self.gone + self.commands_bytes - self.gone_of_first
    }

    /// Puts a frame behind all others.
    pub(super) fn push(&mut self, frame: IngressFrame<'_>) {
        frame.encode(&mut self.frames);
    }

    /// The same for one whose bytes are these.
    pub(super) fn push_shared(&mut self, frame: IngressFrame<'_>, bytes: &CommandBytes) {
        let own = frame.encode_head(&mut self.frames);
        debug_assert_eq!(own, &bytes[..], "they are the frame's");
        let behind = self.before + self.frames.len() as u64;
        self.commands_bytes += bytes.len();
        self.commands.push_back(CommandSlice { behind, bytes: CommandBytes::clone(bytes) });
    }

    /// Where in `frames` the first command that is not gone belongs.
    fn first_command(&self) -> Option<usize> {
        self.commands.front().map(|command| (command.behind - self.before) as usize)
    }

    /// Writes what it can with one system call; how many bytes went.
    pub(super) fn write(&mut self, to: &mut impl Write) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let mut at = self.gone;
        let mut gone = self.gone_of_first;
        for CommandSlice { behind, bytes } in &self.commands {
            if count + 2 > SLICES_MAX {
                break;
            }
            let end = (behind - self.before) as usize;
            slices[count] = IoSlice::new(&self.frames[at..end]);
            slices[count + 1] = IoSlice::new(&bytes[gone..]);
            (count, at, gone) = (count + 2, end, 0);
        }
        if count / 2 == self.commands.len() && count < SLICES_MAX {
            slices[count] = IoSlice::new(&self.frames[at..]);
            count += 1;
        }
        let went = to.write_vectored(&slices[..count])?;
        self.forget(went);
        Ok(went)
    }

    /// So many bytes are gone.
    fn forget(&mut self, mut count: usize) {
        loop {
            let frames = self.first_command().unwrap_or(self.frames.len()) - self.gone;
            let now = frames.min(count);
            (self.gone, count) = (self.gone + now, count - now);
            let Some(first) = self.commands.front().filter(|_| now == frames) else { return };
            let len = first.bytes.len();
            let now = (len - self.gone_of_first).min(count);
            (self.gone_of_first, count) = (self.gone_of_first + now, count - now);
            if self.gone_of_first < len {
                return;
            }
            self.commands.pop_front();
            self.commands_bytes -= len;
            self.gone_of_first = 0;
        }
    }

    /// Moves up to `room` bytes of frames to `frames`, and the commands that belong behind these to `commands`.
    pub(super) fn pass(
        &mut self,
        room: usize,
        frames: &mut Vec<u8>,
        commands: &mut VecDeque<CommandBytes>,
    ) {
        let end = self.frames.len().min(self.gone + room);
        frames.extend_from_slice(&self.frames[self.gone..end]);
        self.gone = end;
        while self.first_command().is_some_and(|behind| behind <= end)
            && let Some(CommandSlice { bytes, .. }) = self.commands.pop_front()
        {
            self.commands_bytes -= bytes.len();
            commands.push_back(bytes);
        }
    }

    /// Gives back the room of what is gone, if it is much or all.
    pub(super) fn compact(&mut self) {
        if self.gone == self.frames.len() {
            self.before += self.gone as u64;
            self.gone = 0;
            empty(&mut self.frames);
        } else if self.gone >= READ_BYTES.max(self.frames.len() / 2) {
            self.before += self.gone as u64;
            self.frames.drain(..self.gone);
            self.gone = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::rng::Rng;
    use amcast_core::{Gid, GroupSet, Outcome};

    const DST: GroupSet = GroupSet::one(Gid(0));

    /// Takes any number of bytes at a time.
    struct SlowWriter {
        rng: Rng,
        all: Vec<u8>,
    }

    impl Write for SlowWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let some = self.rng.below(all.len() as u64 + 1) as usize;
            self.all.extend_from_slice(&all[..some]);
            Ok(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_goes_out_is_what_one_buffer_would_hold_however_it_is_cut() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut out, mut expected) = (OutgoingFrames::default(), Vec::new());
            let mut to = SlowWriter { rng: Rng::new(seed + 1), all: Vec::new() };
            for token in 0..300 {
                let bytes = vec![token as u8; rng.below(40) as usize * rng.below(20) as usize];
                let frame = match rng.below(4) {
                    0 => IngressFrame::Answer(token, Outcome::Executed, &bytes),
                    1 => IngressFrame::Serves(true),
                    2 => IngressFrame::Read(token, DST, &bytes),
                    _ => IngressFrame::Command(token, DST, &bytes),
                };
                frame.encode(&mut expected);
                match frame {
                    IngressFrame::Read(..) | IngressFrame::Command(..) => {
                        out.push_shared(frame, &CommandBytes::new(bytes.clone()));
                    }
                    _ => out.push(frame),
                }
                if rng.below(3) == 0 {
                    out.write(&mut to).unwrap();
                    out.compact();
                }
                assert_eq!(out.len(), expected.len() - to.all.len(), "seed {seed}");
            }
            while out.len() > 0 {
                out.write(&mut to).unwrap();
                out.compact();
            }
            assert!(to.all == expected && out.commands.is_empty(), "seed {seed}");
        }
    }
}
