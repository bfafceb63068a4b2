//! The application at a replica: the list of what was delivered, applied some time later.

use crate::transfer::StateGap;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec, CodecError};
use amcast_core::step::Ticket;
use amcast_core::{MsgId, Pid};

/// One delivered message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeliveredMessage {
    pub msg: MsgId,
    pub position: u64,
    /// The hash of the payload.
    pub payload: u64,
}

impl Codec for DeliveredMessage {
    fn encode(&self, to: &mut Vec<u8>) {
        for n in [u64::from(self.msg.sender.0), self.msg.seq, self.position, self.payload] {
            to.extend_from_slice(&n.to_le_bytes());
        }
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        let mut number = || u64::decode(from);
        let sender = number()?;
        let seq = number()?;
        let position = number()?;
        let payload = number()?;
        let sender = Pid(u32::try_from(sender).map_err(|_| CodecError::Unknown(sender))?);
        Ok(Self { msg: MsgId { sender, seq }, position, payload })
    }
}

/// The application of one process in one life.
#[derive(Debug, Default)]
pub(crate) struct App {
    /// Its deliveries, its installed state included.
    pub log: Vec<DeliveredMessage>,
    /// The position that was reported applied last.
    pub applied: u64,
    /// Whether it will say so again without being asked.
    pub applying: bool,
    /// The position that the protocol has reached: of its last delivery, or where it continues from.
    pub reached: u64,
    /// The missing part of the state, unless it is whole; and the deliveries behind it.
    pub gap: Option<StateGap>,
    pub waiting: Vec<DeliveredMessage>,
    /// The process lost its state when it died, or when its group excluded it: it has none at any position.
    pub is_lost: bool,
    /// How often a state was asked for.
    pub attempts: u64,
    captures: BTreeMap<Ticket, Capture>,
    /// Pieces of a state that is being installed.
    incoming: Option<Vec<u8>>,
    /// The position of a state that came whole and is not in force yet.
    pub awaited: Option<u64>,
    /// How many states it was given whole.
    pub installs: u64,
    /// The view of the host, if there is one in its place.
    pub above: HostView,
}

/// The knowledge about the replica of a service above a process. With one the log begins behind the state that the
/// process continued from last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostView {
    /// The position of that state.
    pub base: u64,
    /// How many deliveries are in it.
    pub before: usize,
    /// How many deliveries of the group the ledger has for this life of the process.
    pub entered: usize,
    /// The highest position of a state that was reported to the process as in force.
    pub in_force: u64,
    /// The highest position that the host said to be applied.
    pub applied: u64,
}

#[derive(Debug)]
struct Capture {
    position: u64,
    bytes: Vec<u8>,
}

impl App {
    /// One that begins with the deliveries of a checkpoint.
    pub(crate) fn resumed(checkpoint: &[DeliveredMessage]) -> Self {
        let applied = checkpoint.last().map_or(0, |item| item.position);
        Self { log: checkpoint.to_vec(), applied, reached: applied, ..Self::default() }
    }

    /// One that has nothing, in the same life of its process: the counts of states that it needed continue.
    pub(crate) fn begun_anew(&self) -> Self {
        let Self { installs, attempts, .. } = *self;
        // The result of an earlier attempt is of no use.
        Self { installs, attempts: attempts + 1, is_lost: true, ..Self::default() }
    }

    /// The position of its state.
    pub(crate) fn position(&self) -> u64 {
        self.log.last().map_or(self.above.base, |item| item.position)
    }

    /// The place of its next delivery in the sequence of its group.
    pub(crate) fn place(&self) -> usize {
        self.above.before + self.log.len()
    }

    /// Continues from a state at `position`, with so many deliveries, which the host has or gets.
    pub(crate) fn go_on_from(&mut self, position: u64, deliveries: usize) {
        self.log.clear();
        (self.above.base, self.above.before) = (position, deliveries);
        self.reached = position;
    }

    /// The position up to which the host's word that it has applied may be passed on.
    pub(crate) fn may_pass_on(&self) -> u64 {
        self.above.applied.min(self.held())
    }

    /// The lowest position of a capture that is not released.
    fn held(&self) -> u64 {
        let positions = self.captures.values().map(|capture| capture.position);
        positions.min().unwrap_or(u64::MAX)
    }

    /// The position up to which it may say that it has applied.
    pub(crate) fn may_apply(&self) -> u64 {
        let waits = || self.waiting.last().map_or(0, |item| item.position);
        // Deliveries that wait for a state count: nobody needs to keep them for this process.
        let position = if self.gap.is_some() { waits() } else { self.position() };
        position.min(self.held())
    }

    /// Keeps the state as of the last of these many deliveries; gives its position and size.
    pub(crate) fn capture(&mut self, ticket: Ticket, deliveries: usize) -> (u64, u64) {
        let kept = &self.log[..deliveries];
        let mut bytes = Vec::with_capacity(kept.len() * 32);
        kept.iter().for_each(|item| item.encode(&mut bytes));
        let position = kept.last().map_or(0, |item| item.position);
        let size = bytes.len() as u64;
        self.captures.insert(ticket, Capture { position, bytes });
        (position, size)
    }

    /// Keeps a placeholder of the state that the host has at `position`; gives its size.
    pub(crate) fn capture_placeholder(&mut self, ticket: Ticket, position: u64) -> u64 {
        let bytes = position.to_le_bytes().to_vec();
        let size = bytes.len() as u64;
        self.captures.insert(ticket, Capture { position, bytes });
        size
    }

    /// How many deliveries are applied.
    pub(crate) fn applied_count(&self) -> usize {
        self.log.partition_point(|item| item.position <= self.applied)
    }

    /// A piece of a kept state, as far as there is one.
    pub(crate) fn piece(&self, ticket: Ticket, offset: u64, bytes: u32) -> Option<Vec<u8>> {
        let state = &self.captures.get(&ticket)?.bytes;
        let from = usize::try_from(offset).ok()?.min(state.len());
        let upto = from.saturating_add(bytes as usize).min(state.len());
        Some(state[from..upto].to_vec())
    }

    pub(crate) fn release(&mut self, ticket: Ticket) {
        self.captures.remove(&ticket);
    }

    /// Takes a piece of a new state; with the last one, gives the whole state.
    ///
    /// # Errors
    /// When there was no first piece, or the whole is no state.
    pub(crate) fn install(
        &mut self,
        piece: &[u8],
        first: bool,
        last: bool,
    ) -> Result<Option<Vec<DeliveredMessage>>, &'static str> {
        let Some(bytes) = self.gather(piece, first, last)? else { return Ok(None) };
        let mut reader = ByteReader::new(&bytes);
        let mut items = Vec::with_capacity(bytes.len() / 32);
        while !reader.is_empty() {
            items.push(
                DeliveredMessage::decode(&mut reader).map_err(|_| "the pieces are no state")?,
            );
        }
        Ok(Some(items))
    }

    /// As [`App::install`], of a placeholder: with the last piece, gives its position.
    ///
    /// # Errors
    /// When there was no first piece, or the whole is no placeholder.
    pub(crate) fn install_placeholder(
        &mut self,
        piece: &[u8],
        first: bool,
        last: bool,
    ) -> Result<Option<u64>, &'static str> {
        let Some(bytes) = self.gather(piece, first, last)? else { return Ok(None) };
        let bytes = bytes.try_into().map_err(|_| "the pieces are no placeholder")?;
        Ok(Some(u64::from_le_bytes(bytes)))
    }

    /// Takes a piece; with the last one, gives all of them.
    fn gather(
        &mut self,
        piece: &[u8],
        first: bool,
        last: bool,
    ) -> Result<Option<Vec<u8>>, &'static str> {
        if first {
            self.incoming = Some(Vec::new());
        }
        let incoming = self.incoming.as_mut().ok_or("a piece came without a first one")?;
        incoming.extend_from_slice(piece);
        if !last {
            return Ok(None);
        }
        Ok(Some(self.incoming.take().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_goes_over_in_pieces() {
        let item = |n| DeliveredMessage {
            msg: MsgId { sender: Pid(1), seq: n },
            position: n * 2,
            payload: n,
        };
        let mut from = App { log: (1..=3).map(item).collect(), ..App::default() };
        assert_eq!(from.capture(Ticket(7), 2), (4, 64));
        assert_eq!((from.position(), from.may_apply()), (6, 4));
        let mut to = App::default();
        let mut piece = |offset, first, last| {
            let bytes = from.piece(Ticket(7), offset, 40).expect("it was captured");
            to.install(&bytes, first, last)
        };
        assert_eq!(piece(0, true, false), Ok(None));
        assert_eq!(piece(40, false, true), Ok(Some(alloc::vec![item(1), item(2)])));
        assert!(piece(40, true, true).is_err());
        assert!(piece(0, false, true).is_err());
        from.release(Ticket(7));
        assert_eq!(from.may_apply(), 6);
        assert_eq!(from.piece(Ticket(7), 0, 1), None);
    }
}
