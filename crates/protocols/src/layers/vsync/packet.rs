//! What processes say to each other: items, gathered into packets.

use super::casts::Kept;
use super::change::{Ballot, Decision, Proposal, Standing};
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::Pid;
use amcast_core::codec::{Codec, CodecError, Reader, put_bytes};
use amcast_core::groupcast::{Grade, Member, View};

/// Everything that one process has to say to another at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The life of the sender: what an earlier one said is not listened to any more.
    pub(super) life: u64,
    /// What it says, in order.
    pub(super) items: Vec<Item>,
}

/// A thing said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Item {
    /// A cast of `sender` in this view, perhaps passed on by another.
    Cast { view: u64, sender: Pid, number: u64, kept: Kept },
    /// A message for the receiver alone, the so-manyth in this view; or a part of one, which the next
    /// one continues if there is `more`.
    To { view: u64, number: u64, more: bool, bytes: Arc<[u8]> },
    /// In this view the sender has so many casts of each process, and so many messages of the
    /// receiver. `gap`: it has later ones of the receiver, too.
    Ack { view: u64, fit: bool, gap: bool, had: u64, have: Vec<u64> },
    /// The same for all: messages that it has of each process, and the processes of which it has casts
    /// that are not next, a bit each.
    AckAll { view: u64, fit: bool, gaps: u32, had: Vec<u64>, have: Vec<u64> },
    /// The sender lives; the last view it knows of.
    Alive { view: u64, fit: bool },
    /// The sender is in no view and wants to be; the last view it knows of.
    Join { view: u64 },
    /// The sender is about to stop: the next view is to be without it. The last view it knows of.
    Leave { view: u64 },
    /// Consensus on the view `instance`, first phase.
    Prepare { instance: u64, ballot: Ballot },
    /// The answer.
    Promise {
        instance: u64,
        ballot: Ballot,
        accepted: Option<(Ballot, Proposal)>,
        standing: Standing,
    },
    /// The sender has promised a higher ballot.
    Refuse { instance: u64, promised: Ballot },
    /// Second phase.
    Accept { instance: u64, ballot: Ballot, proposal: Proposal },
    /// The answer.
    Accepted { instance: u64, ballot: Ballot },
    /// What was decided.
    Decide(Decision),
    /// Asks for casts of `sender` in this view: those after `after`, up to `upto`.
    Fetch { view: u64, sender: Pid, after: u64, upto: u64 },
    /// A joiner asks for the state of the application, no older than `least`; and, if `base`, for
    /// what it must know to begin in this view.
    Ask { view: u64, attempt: u32, base: bool, least: u64 },
    /// What one that joins in this view must know.
    Base { view: u64, bytes: Arc<[u8]> },
    /// The state is at hand: it holds what is delivered up to `position`, in so many bytes.
    State { attempt: u32, position: u64, bytes: u64 },
    /// A joiner asks for the state from this byte on.
    Want { attempt: u32, offset: u64 },
    /// A piece of the state.
    Piece { attempt: u32, offset: u64, bytes: Arc<[u8]> },
    /// A joiner has the whole state.
    Thanks { attempt: u32 },
    /// The sender has not heard these processes for long, a bit each.
    Unheard { processes: u32 },
}

/// Added to the byte that says what it is, where the next one continues it.
const PART: u8 = 32;
const PART_OF_PLAIN: u8 = PART + 1;
const PART_OF_UNIFORM: u8 = PART + 2;
const PART_OF_MESSAGE: u8 = PART + 3;

/// Bytes of a packet's head, and about as many of an item without its variable part.
pub(super) const HEAD_BYTES: usize = 32;

impl Item {
    /// About how many bytes it takes on the wire.
    pub(super) fn size(&self) -> usize {
        HEAD_BYTES
            + match self {
                Self::Cast { kept, .. } => kept.bytes.len(),
                Self::To { bytes, .. } | Self::Base { bytes, .. } | Self::Piece { bytes, .. } => {
                    bytes.len()
                }
                Self::Ack { have, .. } => have.len() * 8,
                Self::AckAll { have, .. } => have.len() * 16,
                Self::Promise { .. } | Self::Accept { .. } | Self::Decide(_) => 256,
                _ => 0,
            }
    }
}

fn put_all<T: Codec>(all: &[T], to: &mut Vec<u8>) {
    (all.len() as u16).encode(to);
    all.iter().for_each(|one| one.encode(to));
}

fn take_all<T: Codec>(from: &mut Reader<'_>) -> Result<Vec<T>, CodecError> {
    let count = u16::decode(from)?;
    (0..count).map(|_| T::decode(from)).collect()
}

fn take_bytes(from: &mut Reader<'_>) -> Result<Arc<[u8]>, CodecError> {
    from.bytes().map(Arc::from)
}

fn take_bool(from: &mut Reader<'_>) -> Result<bool, CodecError> {
    match u8::decode(from)? {
        n @ 0..=1 => Ok(n == 1),
        n => Err(CodecError::Unknown(u64::from(n))),
    }
}

/// [`Member`] on the wire.
struct Named(Member);

impl Codec for Named {
    fn encode(&self, to: &mut Vec<u8>) {
        self.0.pid.encode(to);
        self.0.life.encode(to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self(Member { pid: Codec::decode(from)?, life: Codec::decode(from)? }))
    }
}

fn put_members(members: &[Member], to: &mut Vec<u8>) {
    (members.len() as u16).encode(to);
    members.iter().for_each(|m| Named(*m).encode(to));
}

fn take_members(from: &mut Reader<'_>) -> Result<Vec<Member>, CodecError> {
    Ok(take_all::<Named>(from)?.into_iter().map(|m| m.0).collect())
}

impl Codec for Ballot {
    fn encode(&self, to: &mut Vec<u8>) {
        self.round.encode(to);
        self.pid.encode(to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self { round: Codec::decode(from)?, pid: Codec::decode(from)? })
    }
}

impl Codec for Proposal {
    fn encode(&self, to: &mut Vec<u8>) {
        put_members(&self.members, to);
        put_all(&self.cut, to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self { members: take_members(from)?, cut: take_all(from)? })
    }
}

impl Codec for Decision {
    fn encode(&self, to: &mut Vec<u8>) {
        self.view.id.encode(to);
        put_members(&self.view.members, to);
        put_all(&self.cut, to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let view = View { id: Codec::decode(from)?, members: take_members(from)? };
        Ok(Self { view, cut: take_all(from)? })
    }
}

impl Codec for Standing {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Outsider => 0_u8.encode(to),
            Self::Member { fit, have } => {
                (1 + u8::from(*fit)).encode(to);
                put_all(have, to);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        match u8::decode(from)? {
            0 => Ok(Self::Outsider),
            n @ 1..=2 => Ok(Self::Member { fit: n == 2, have: take_all(from)? }),
            n => Err(CodecError::Unknown(u64::from(n))),
        }
    }
}

impl Codec for Packet {
    fn encode(&self, to: &mut Vec<u8>) {
        self.life.encode(to);
        put_all(&self.items, to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self { life: Codec::decode(from)?, items: take_all(from)? })
    }
}

impl Codec for Item {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Cast { view, sender, number, kept } => {
                let last = 1 + u8::from(kept.grade == Grade::Uniform);
                (last + if kept.more { PART } else { 0 }).encode(to);
                view.encode(to);
                sender.encode(to);
                number.encode(to);
                put_bytes(&kept.bytes, to);
            }
            Self::To { view, number, more, bytes } => {
                (3 + if *more { PART } else { 0 }).encode(to);
                view.encode(to);
                number.encode(to);
                put_bytes(bytes, to);
            }
            Self::Ack { view, fit, gap, had, have } => {
                4_u8.encode(to);
                view.encode(to);
                u8::from(*fit).encode(to);
                u8::from(*gap).encode(to);
                had.encode(to);
                put_all(have, to);
            }
            Self::Alive { view, fit } => {
                5_u8.encode(to);
                view.encode(to);
                u8::from(*fit).encode(to);
            }
            Self::Join { view } => {
                6_u8.encode(to);
                view.encode(to);
            }
            Self::Fetch { view, sender, after, upto } => {
                7_u8.encode(to);
                view.encode(to);
                sender.encode(to);
                after.encode(to);
                upto.encode(to);
            }
            Self::Prepare { .. }
            | Self::Promise { .. }
            | Self::Refuse { .. }
            | Self::Accept { .. }
            | Self::Accepted { .. }
            | Self::Decide(_) => self.encode_consensus(to),
            _ => self.encode_transfer(to),
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(match u8::decode(from)? {
            n @ (1 | 2 | PART_OF_PLAIN | PART_OF_UNIFORM) => Self::Cast {
                view: Codec::decode(from)?,
                sender: Codec::decode(from)?,
                number: Codec::decode(from)?,
                kept: Kept {
                    grade: if n % PART == 1 { Grade::Plain } else { Grade::Uniform },
                    more: n > PART,
                    bytes: take_bytes(from)?,
                },
            },
            n @ (3 | PART_OF_MESSAGE) => Self::To {
                view: Codec::decode(from)?,
                number: Codec::decode(from)?,
                more: n > PART,
                bytes: take_bytes(from)?,
            },
            4 => Self::Ack {
                view: Codec::decode(from)?,
                fit: take_bool(from)?,
                gap: take_bool(from)?,
                had: Codec::decode(from)?,
                have: take_all(from)?,
            },
            5 => Self::Alive { view: Codec::decode(from)?, fit: take_bool(from)? },
            6 => Self::Join { view: Codec::decode(from)? },
            7 => Self::Fetch {
                view: Codec::decode(from)?,
                sender: Codec::decode(from)?,
                after: Codec::decode(from)?,
                upto: Codec::decode(from)?,
            },
            tag @ 8..=13 => Self::decode_consensus(tag, from)?,
            tag => Self::decode_transfer(tag, from)?,
        })
    }
}

impl Item {
    fn encode_consensus(&self, to: &mut Vec<u8>) {
        match self {
            Self::Prepare { instance, ballot } => {
                8_u8.encode(to);
                instance.encode(to);
                ballot.encode(to);
            }
            Self::Promise { instance, ballot, accepted, standing } => {
                9_u8.encode(to);
                instance.encode(to);
                ballot.encode(to);
                u8::from(accepted.is_some()).encode(to);
                if let Some((ballot, proposal)) = accepted {
                    ballot.encode(to);
                    proposal.encode(to);
                }
                standing.encode(to);
            }
            Self::Refuse { instance, promised } => {
                10_u8.encode(to);
                instance.encode(to);
                promised.encode(to);
            }
            Self::Accept { instance, ballot, proposal } => {
                11_u8.encode(to);
                instance.encode(to);
                ballot.encode(to);
                proposal.encode(to);
            }
            Self::Accepted { instance, ballot } => {
                12_u8.encode(to);
                instance.encode(to);
                ballot.encode(to);
            }
            Self::Decide(decision) => {
                13_u8.encode(to);
                decision.encode(to);
            }
            other => unreachable!("{other:?} is none of the consensus"),
        }
    }

    fn decode_consensus(tag: u8, from: &mut Reader<'_>) -> Result<Self, CodecError> {
        if tag == 13 {
            return Ok(Self::Decide(Codec::decode(from)?));
        }
        let instance = Codec::decode(from)?;
        let ballot = Codec::decode(from)?;
        Ok(match tag {
            8 => Self::Prepare { instance, ballot },
            9 => Self::Promise {
                instance,
                ballot,
                accepted: match take_bool(from)? {
                    true => Some((Codec::decode(from)?, Codec::decode(from)?)),
                    false => None,
                },
                standing: Codec::decode(from)?,
            },
            10 => Self::Refuse { instance, promised: ballot },
            11 => Self::Accept { instance, ballot, proposal: Codec::decode(from)? },
            _ => Self::Accepted { instance, ballot },
        })
    }

    fn encode_transfer(&self, to: &mut Vec<u8>) {
        match self {
            Self::Ask { view, attempt, base, least } => {
                14_u8.encode(to);
                view.encode(to);
                attempt.encode(to);
                u8::from(*base).encode(to);
                least.encode(to);
            }
            Self::Base { view, bytes } => {
                15_u8.encode(to);
                view.encode(to);
                put_bytes(bytes, to);
            }
            Self::State { attempt, position, bytes } => {
                16_u8.encode(to);
                attempt.encode(to);
                position.encode(to);
                bytes.encode(to);
            }
            Self::Want { attempt, offset } => {
                17_u8.encode(to);
                attempt.encode(to);
                offset.encode(to);
            }
            Self::Piece { attempt, offset, bytes } => {
                18_u8.encode(to);
                attempt.encode(to);
                offset.encode(to);
                put_bytes(bytes, to);
            }
            Self::Thanks { attempt } => {
                19_u8.encode(to);
                attempt.encode(to);
            }
            Self::Leave { view } => {
                20_u8.encode(to);
                view.encode(to);
            }
            Self::AckAll { view, fit, gaps, had, have } => {
                21_u8.encode(to);
                view.encode(to);
                u8::from(*fit).encode(to);
                gaps.encode(to);
                put_all(had, to);
                put_all(have, to);
            }
            Self::Unheard { processes } => {
                22_u8.encode(to);
                processes.encode(to);
            }
            other => unreachable!("{other:?} is none of the transfer"),
        }
    }

    fn decode_transfer(tag: u8, from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(match tag {
            14 => Self::Ask {
                view: Codec::decode(from)?,
                attempt: Codec::decode(from)?,
                base: take_bool(from)?,
                least: Codec::decode(from)?,
            },
            15 => Self::Base { view: Codec::decode(from)?, bytes: take_bytes(from)? },
            16 => Self::State {
                attempt: Codec::decode(from)?,
                position: Codec::decode(from)?,
                bytes: Codec::decode(from)?,
            },
            17 => Self::Want { attempt: Codec::decode(from)?, offset: Codec::decode(from)? },
            18 => Self::Piece {
                attempt: Codec::decode(from)?,
                offset: Codec::decode(from)?,
                bytes: take_bytes(from)?,
            },
            19 => Self::Thanks { attempt: Codec::decode(from)? },
            20 => Self::Leave { view: Codec::decode(from)? },
            21 => Self::AckAll {
                view: Codec::decode(from)?,
                fit: take_bool(from)?,
                gaps: Codec::decode(from)?,
                had: take_all(from)?,
                have: take_all(from)?,
            },
            22 => Self::Unheard { processes: Codec::decode(from)? },
            tag => return Err(CodecError::Unknown(u64::from(tag))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Item> {
        let ballot = Ballot { round: 3, pid: Pid(1) };
        let members = alloc::vec![Member { pid: Pid(2), life: 7 }, Member { pid: Pid(0), life: 0 }];
        let proposal = Proposal { members: members.clone(), cut: alloc::vec![4, 5] };
        let bytes: Arc<[u8]> = Arc::from(&b"abc"[..]);
        let view = View { id: 9, members };
        let standing = Standing::Member { fit: true, have: alloc::vec![1] };
        let cast = |grade, more| {
            let kept = Kept { grade, more, bytes: bytes.clone() };
            Item::Cast { view: 1, sender: Pid(2), number: 3, kept }
        };
        alloc::vec![
            cast(Grade::Uniform, false),
            cast(Grade::Uniform, true),
            cast(Grade::Plain, true),
            Item::To { view: 1, number: 2, more: false, bytes: bytes.clone() },
            Item::To { view: 1, number: 2, more: true, bytes: bytes.clone() },
            Item::Ack { view: 1, fit: true, gap: false, had: 2, have: alloc::vec![1, 2] },
            Item::AckAll {
                view: 1,
                fit: true,
                gaps: 5,
                had: alloc::vec![2],
                have: alloc::vec![1, 2]
            },
            Item::Alive { view: 4, fit: false },
            Item::Join { view: 4 },
            Item::Prepare { instance: 5, ballot },
            Item::Promise {
                instance: 5,
                ballot,
                accepted: Some((ballot, proposal.clone())),
                standing
            },
            Item::Promise { instance: 5, ballot, accepted: None, standing: Standing::Outsider },
            Item::Refuse { instance: 5, promised: ballot },
            Item::Accept { instance: 5, ballot, proposal },
            Item::Accepted { instance: 5, ballot },
            Item::Decide(Decision { view, cut: alloc::vec![1] }),
            Item::Fetch { view: 1, sender: Pid(0), after: 2, upto: 3 },
            Item::Ask { view: 1, attempt: 2, base: true, least: 3 },
            Item::Base { view: 1, bytes: bytes.clone() },
            Item::State { attempt: 1, position: 2, bytes: 3 },
            Item::Want { attempt: 1, offset: 2 },
            Item::Piece { attempt: 1, offset: 2, bytes },
            Item::Thanks { attempt: 1 },
            Item::Leave { view: 4 },
            Item::Unheard { processes: 5 },
        ]
    }

    #[test]
    fn every_item_reads_back_and_no_shortened_packet_does() {
        let packet = Packet { life: 1 << 40, items: all() };
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(Packet::decode(&mut reader), Ok(packet));
        assert!(reader.is_empty());
        for cut in 0..bytes.len() {
            assert!(Packet::decode(&mut Reader::new(&bytes[..cut])).is_err(), "{cut}");
        }
    }

    #[test]
    fn strange_tags_are_refused() {
        for tag in [0, 23, PART, PART + 4, 255] {
            let bytes = [tag; 64];
            assert!(Item::decode(&mut Reader::new(&bytes)).is_err(), "{tag}");
        }
    }
}
