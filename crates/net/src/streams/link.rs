//! The connection to one peer, through its stages.

use crate::peer_identity::{PeerClaim, PeerIdentity};
use crate::secret::Nonce;
use crate::wire::{
    CHALLENGE_BYTES, ConnectionRefusal, FrameQueue, FrameReader, Hello, Nonces, PROVED_BYTES,
};
use amcast_core::rng::Rng;
use amcast_core::{Pid, Span};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The end that dials of two processes: the higher pid. Clients have the highest, and may be behind something
/// that lets connections out and not in.
pub(super) fn dials(from: Pid, to: Pid) -> bool {
    from > to
}

/// The connection to one peer, and what waits to be sent on it.
#[derive(Debug)]
pub(super) struct PeerLink {
    pub(super) address: SocketAddr,
    pub(super) stage: LinkState,
    pub(super) queue: FrameQueue,
    pub(super) reader: FrameReader,
    /// The latest life that it was let in with in this life of ours.
    pub(super) incarnation: Option<u32>,
    /// Its identity, from our earlier lives, too.
    pub(super) known: PeerIdentity,
    /// The reason for leaving it although it welcomed us, with its claim; it receives the reason when it is
    /// dialled next.
    pub(super) dismissed: Option<(ConnectionRefusal, PeerClaim)>,
    /// One of the two refuses the other, and the refused incarnation of the peer, or the largest number where the peer refuses
    /// us: until something else happens a peer that knocks is not dialled sooner.
    pub(super) refused: Option<u32>,
    /// `Up` was reported, and no `Down` since.
    pub(super) up: bool,
    /// `Down` was reported, and no `Up` since: messages are lost. False before the first connection:
    /// messages wait for it.
    pub(super) muted: bool,
    /// The socket takes nothing more for now; it is watched for that.
    pub(super) blocked: bool,
    /// Something was put in since the last flush.
    pub(super) dirty: bool,
    /// It is among those whose messages are given out in this round.
    pub(super) in_turn: bool,
    /// Attempts since it was last connected.
    pub(super) failures: u32,
    /// That it cannot be reached, or that something else is there, was remarked.
    pub(super) remarked: bool,
}

/// How far a connection is.
#[derive(Debug)]
pub(super) enum LinkState {
    /// There is none. The dialling end dials at that time.
    Away { dial_at: Option<Instant> },
    /// Under way until then.
    Dialling { socket: OwnedFd, until: Instant },
    /// It is open, and the other end is to prove until then that it knows the secret.
    Opening {
        socket: OwnedFd,
        nonce: Nonce,
        challenge: PartialRead<CHALLENGE_BYTES>,
        until: Instant,
    },
    /// It did, and is to answer this process's hello until then.
    Greeting { socket: OwnedFd, nonces: Nonces, hello: PartialRead<PROVED_BYTES>, until: Instant },
    /// Frames go both ways.
    Open { socket: OwnedFd },
}

impl PeerLink {
    pub(super) fn new(
        address: SocketAddr,
        frame_bytes_max: usize,
        (stage, known): (LinkState, PeerIdentity),
    ) -> Self {
        Self {
            address,
            stage,
            queue: FrameQueue::default(),
            reader: FrameReader::new(frame_bytes_max),
            incarnation: None,
            known,
            dismissed: None,
            refused: None,
            up: false,
            muted: false,
            blocked: false,
            dirty: false,
            in_turn: false,
            failures: 0,
            remarked: false,
        }
    }

    /// When something is to be done for it even if nothing arrives.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.stage {
            LinkState::Away { dial_at } => dial_at,
            LinkState::Dialling { until, .. }
            | LinkState::Opening { until, .. }
            | LinkState::Greeting { until, .. } => Some(until),
            LinkState::Open { .. } => None,
        }
    }
}

/// How long to wait after so many failures: doubled each time up to a limit, and then any time
/// between half of it and all of it, so that many do not dial at once.
pub(super) fn pause(failures: u32, min: Span, max: Span, rng: &mut Rng) -> Duration {
    let factor = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
    let whole = min.times(factor).0.min(max.0);
    Duration::from_nanos(whole / 2 + rng.below(whole / 2 + 1))
}

/// A part of the handshake that arrives in pieces.
#[derive(Debug)]
pub(super) struct PartialRead<const BYTES: usize> {
    /// Apart: most connections are in another stage, and need no room for it.
    bytes: Box<[u8; BYTES]>,
    filled: usize,
}

impl<const BYTES: usize> PartialRead<BYTES> {
    pub(super) fn new() -> Self {
        Self { bytes: Box::new([0; BYTES]), filled: 0 }
    }

    /// Reads on, and nothing behind it; gives it once it is there. A message that does not begin like one
    /// of this version is given at once: another version's may be shorter, and is judged by its beginning.
    pub(super) fn read(&mut self, socket: &OwnedFd) -> Result<Option<&[u8; BYTES]>, Errno> {
        while self.filled < BYTES {
            let space = &mut self.bytes[self.filled..];
            match rustix::net::recv(socket, space, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(Errno::CONNRESET),
                Ok((count, _)) => {
                    self.filled += count;
                    if Hello::is_foreign(&self.bytes[..self.filled]) {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        Ok(Some(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_differ() {
        let mut rng = Rng::new(1);
        let (min, max) = (Span::millis(10), Span::millis(500));
        let mut seen = Vec::new();
        for (failures, limit_ms) in [(0, 10), (1, 10), (2, 20), (6, 320), (7, 500), (4_000, 500)] {
            for _ in 0..100 {
                let pause = pause(failures, min, max, &mut rng).as_micros();
                assert!(
                    (limit_ms * 500..=limit_ms * 1_000).contains(&pause),
                    "{failures}: {pause}"
                );
                seen.push(pause);
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 500, "no two wait equally long");
    }
}
