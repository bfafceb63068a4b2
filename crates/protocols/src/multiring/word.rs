//! What processes say to each other.

use super::bytes::Bytes;
use super::rings::{Point, RingId};
use super::value::{Ballot, Entry};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::Pid;
use amcast_core::codec::{Codec, CodecError, Reader, put_bytes};

/// A word and the life of who says it: what an earlier life said is not listened to any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) life: u32,
    pub(super) word: Word,
}

/// How far an acceptor has accepted what the coordinator of the ballot proposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Vote {
    /// The memory that the vote is from: [`super::recovery`].
    pub(super) memory: u32,
    /// The instance behind the last one.
    pub(super) upto: u64,
}

/// Where a process stands in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Standing {
    /// Decided instances that it holds, all up to here.
    pub(super) known: u64,
    /// How far its application has applied them.
    pub(super) merged: u64,
    /// How far they may be trimmed for its sake (`k[x]p` of [MRP 5.2]).
    pub(super) safe: u64,
}

/// With whom of those who exchange signs of life with it a process does not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Gaps {
    /// Whom it does not hear.
    pub(super) unheard: Vec<Pid>,
    /// Whom it hears, and who says that it does not hear it.
    pub(super) unreached: Vec<Pid>,
}

/// Per process: the life in which it proposed last, and its last number in it.
pub(super) type Rows = Vec<(u32, u64)>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// The sender lives, has these gaps, and stands so in the rings that it shares with the receiver.
    Alive { count: u64, fit: bool, gaps: Gaps, rings: Vec<(RingId, Standing)> },
    /// To a coordinator: order these proposals of the sender's, which lie one behind the other.
    Propose { ring: RingId, proposals: Bytes },
    /// To a coordinator: order these proposals, which `sender` gave to who says this because it does not
    /// reach the coordinator.
    Relay { ring: RingId, sender: Pid, proposals: Bytes },
    /// To a proposer: its proposals of this life up to this number are decided.
    Done { ring: RingId, life: u32, upto: u64 },
    /// To a proposer: the ballot that the ring is in, for all the sender knows.
    Lead { ring: RingId, ballot: Ballot },
    /// To a coordinator: others wait until this ring has come to this instance.
    Want { ring: RingId, upto: u64 },
    /// Before phase 1: the sender would begin this ballot.
    Canvass { ring: RingId, ballot: Ballot },
    /// The sender, too, knows of nobody who leads.
    Consent { ring: RingId, ballot: Ballot },
    /// Phase 1A, for all instances that are not known to be decided.
    Prepare { ring: RingId, ballot: Ballot },
    /// Before a promise: what the sender accepted last for some instances.
    Accepted { ring: RingId, ballot: Ballot, entry: Entry },
    /// Phase 1B: `count` entries went before, of the run of ballot `settled`. `memories` are what the
    /// sender knows of acceptors.
    Promise {
        ring: RingId,
        ballot: Ballot,
        known: u64,
        settled: Ballot,
        count: u32,
        memories: Vec<u32>,
    },
    /// The sender has promised a higher ballot.
    Refuse { ring: RingId, promised: Ballot },
    /// Phases 2A and 2B and decisions, along the ring: `entries` of the ballot's run, which began
    /// at `start` and which the sender has up to `end`, and all votes it knows of. `out` are not
    /// in the ring, by the order of the coordinator that has this number.
    Pass(Pass),
    /// To the one before in the ring: the sender has the run up to here only.
    Lack { ring: RingId, ballot: Ballot, from: u64 },
    /// Asks for decided instances from `from` on, and, if `table`, for who proposed what.
    Fetch { ring: RingId, from: u64, table: bool },
    /// Decided instances. The sender knows all up to `known`, and nothing below `floor`; `table` is who
    /// proposed what before `known`.
    Learn { ring: RingId, entries: Vec<Entry>, known: u64, floor: u64, table: Option<Rows> },
    /// The sender has lost its memory, and asks what it had promised and accepted.
    Lost { question: Question },
    /// Part of the answer: what the sender accepted last for some instances.
    Recalled { ring: RingId, question: Question, entry: Entry },
    /// The answer for a ring, after `count` entries.
    Recall {
        ring: RingId,
        question: Question,
        promised: Ballot,
        known: u64,
        settled: Ballot,
        count: u32,
        memories: Vec<u32>,
    },
    /// One of the three above, by way of another acceptor.
    Carry(Box<Carried>),
    /// The sender lacks state: who of its group has which.
    Ask { attempt: u32 },
    /// The sender's application has applied everything up to this position.
    Offer { attempt: u32, position: u64 },
    /// Asks for a state, no older than `least`.
    Take { attempt: u32, least: u64 },
    /// The state is at hand: it holds every delivery up to `position`, and nothing else is
    /// delivered before `point`.
    State { attempt: u32, position: u64, point: Point, bytes: u64 },
    /// Asks for the state from this byte on.
    Need { attempt: u32, offset: u64 },
    /// A piece of it.
    Piece { attempt: u32, offset: u64, bytes: Arc<[u8]> },
    /// The sender has the whole state.
    Thanks { attempt: u32 },
    /// A skip that is decided: [`super::spread`].
    Skipped { ring: RingId, entry: Entry },
    /// Asks an acceptor how far it has voted, for barriers.
    Probe { round: u64 },
    /// The answer to that round of the asker's life: behind the last message that the sender has voted for,
    /// in each ring of which the asker is a member.
    Voted { life: u32, round: u64, rings: Vec<(RingId, u64)> },
}

/// A question of an acceptor that lost its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Question {
    /// The memory that it begins.
    pub(super) memory: u32,
    /// Counts its questions.
    pub(super) number: u32,
}

/// A word of recovery of one who does not reach whom it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Carried {
    pub(super) sender: Pid,
    /// The life in which the sender said it.
    pub(super) life: u32,
    pub(super) to: Pid,
    pub(super) word: Word,
}

/// See [`Word::Pass`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pass {
    pub(super) ring: RingId,
    pub(super) ballot: Ballot,
    pub(super) layout: u32,
    pub(super) out: Vec<Pid>,
    pub(super) start: u64,
    /// Where what the coordinator proposed again ends, and new values begin.
    pub(super) fresh: u64,
    pub(super) end: u64,
    pub(super) votes: Vec<Vote>,
    /// Everything below is trimmed.
    pub(super) trim: u64,
    pub(super) entries: Vec<Entry>,
}

pub(super) fn put_all<T: Codec>(all: &[T], to: &mut Vec<u8>) {
    (all.len() as u32).encode(to);
    all.iter().for_each(|one| one.encode(to));
}

pub(super) fn take_all<T: Codec>(from: &mut Reader<'_>) -> Result<Vec<T>, CodecError> {
    let count = u32::decode(from)?;
    (0..count).map(|_| T::decode(from)).collect()
}

/// Declares structs whose encoding is that of their fields, in order.
macro_rules! fields {
    ($($t:ident { $($field:ident),* })*) => {$(
        impl Codec for $t {
            fn encode(&self, to: &mut Vec<u8>) {
                $(self.$field.encode(to);)*
            }
            fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
                Ok(Self { $($field: Codec::decode(from)?),* })
            }
        }
    )*};
}
fields! {
    Vote { memory, upto }
    Standing { known, merged, safe }
    Point { merged, place }
    Question { memory, number }
}

/// Two values.
pub(super) struct Two<A, B>(pub(super) A, pub(super) B);

impl<A: Codec, B: Codec> Codec for Two<A, B> {
    fn encode(&self, to: &mut Vec<u8>) {
        self.0.encode(to);
        self.1.encode(to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self(Codec::decode(from)?, Codec::decode(from)?))
    }
}

pub(super) fn put_pairs<A: Codec + Copy, B: Codec + Copy>(all: &[(A, B)], to: &mut Vec<u8>) {
    (all.len() as u32).encode(to);
    all.iter().for_each(|&(a, b)| Two(a, b).encode(to));
}

pub(super) fn take_pairs<A: Codec, B: Codec>(
    from: &mut Reader<'_>,
) -> Result<Vec<(A, B)>, CodecError> {
    Ok(take_all::<Two<A, B>>(from)?.into_iter().map(|Two(a, b)| (a, b)).collect())
}

pub(super) fn take_bool(from: &mut Reader<'_>) -> Result<bool, CodecError> {
    match u8::decode(from)? {
        n @ 0..=1 => Ok(n == 1),
        n => Err(CodecError::Unknown(u64::from(n))),
    }
}

impl Codec for Packet {
    fn encode(&self, to: &mut Vec<u8>) {
        self.life.encode(to);
        self.word.encode(to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self { life: Codec::decode(from)?, word: Codec::decode(from)? })
    }
}

impl Codec for Pass {
    fn encode(&self, to: &mut Vec<u8>) {
        self.ring.encode(to);
        self.ballot.encode(to);
        self.layout.encode(to);
        put_all(&self.out, to);
        self.start.encode(to);
        self.fresh.encode(to);
        self.end.encode(to);
        put_all(&self.votes, to);
        self.trim.encode(to);
        put_all(&self.entries, to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            ring: Codec::decode(from)?,
            ballot: Codec::decode(from)?,
            layout: Codec::decode(from)?,
            out: take_all(from)?,
            start: Codec::decode(from)?,
            fresh: Codec::decode(from)?,
            end: Codec::decode(from)?,
            votes: take_all(from)?,
            trim: Codec::decode(from)?,
            entries: take_all(from)?,
        })
    }
}

/// Encodes the tag of a word and then its fields, in order.
macro_rules! say {
    ($to:expr, $tag:literal $(, $field:expr)*) => {{
        u8::encode(&$tag, $to);
        $($field.encode($to);)*
    }};
}

impl Codec for Word {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Alive { count, fit, gaps, rings } => {
                say!(to, 1, count, u8::from(*fit));
                put_all(&gaps.unheard, to);
                put_all(&gaps.unreached, to);
                put_pairs(rings, to);
            }
            Self::Propose { ring, proposals } => {
                say!(to, 2, ring);
                put_bytes(proposals, to);
            }
            Self::Done { ring, life, upto } => say!(to, 3, ring, life, upto),
            Self::Lead { ring, ballot } => say!(to, 4, ring, ballot),
            Self::Want { ring, upto } => say!(to, 5, ring, upto),
            Self::Prepare { ring, ballot } => say!(to, 6, ring, ballot),
            Self::Accepted { ring, ballot, entry } => say!(to, 7, ring, ballot, entry),
            Self::Promise { ring, ballot, known, settled, count, memories } => {
                say!(to, 8, ring, ballot, known, settled, count);
                put_all(memories, to);
            }
            Self::Refuse { ring, promised } => say!(to, 9, ring, promised),
            Self::Pass(pass) => say!(to, 10, pass),
            Self::Lack { ring, ballot, from } => say!(to, 11, ring, ballot, from),
            Self::Fetch { ring, from, table } => say!(to, 12, ring, from, u8::from(*table)),
            Self::Learn { ring, entries, known, floor, table } => {
                say!(to, 13, ring, known, floor, u8::from(table.is_some()));
                put_all(entries, to);
                put_pairs(table.as_deref().unwrap_or_default(), to);
            }
            Self::Lost { question } => say!(to, 14, question),
            Self::Recalled { ring, question, entry } => say!(to, 15, ring, question, entry),
            Self::Recall { ring, question, promised, known, settled, count, memories } => {
                say!(to, 16, ring, question, promised, known, settled, count);
                put_all(memories, to);
            }
            Self::Ask { attempt } => say!(to, 17, attempt),
            Self::Offer { attempt, position } => say!(to, 18, attempt, position),
            Self::Take { attempt, least } => say!(to, 19, attempt, least),
            Self::State { attempt, position, point, bytes } => {
                say!(to, 20, attempt, position, point, bytes)
            }
            Self::Need { attempt, offset } => say!(to, 21, attempt, offset),
            Self::Piece { attempt, offset, bytes } => {
                say!(to, 22, attempt, offset);
                put_bytes(bytes, to);
            }
            Self::Thanks { attempt } => say!(to, 23, attempt),
            Self::Skipped { ring, entry } => say!(to, 24, ring, entry),
            Self::Canvass { ring, ballot } => say!(to, 25, ring, ballot),
            Self::Consent { ring, ballot } => say!(to, 26, ring, ballot),
            Self::Carry(carried) => {
                let Carried { sender, life, to: receiver, word } = &**carried;
                say!(to, 28, sender, life, receiver, word);
            }
            Self::Relay { ring, sender, proposals } => {
                say!(to, 27, ring, sender);
                put_bytes(proposals, to);
            }
            Self::Probe { round } => say!(to, 29, round),
            Self::Voted { life, round, rings } => {
                say!(to, 30, life, round);
                put_pairs(rings, to);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let tag = u8::decode(from)?;
        match tag {
            1..=13 | 24..=27 | 29..=30 => Self::decode_of_ring(tag, from),
            28 => Ok(Self::Carry(Box::new(Carried::decode(from)?))),
            _ => Self::decode_of_state(tag, from),
        }
    }
}

impl Carried {
    /// Only words of recovery are passed on.
    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let (sender, life, to) = (Codec::decode(from)?, Codec::decode(from)?, Codec::decode(from)?);
        let word = match u8::decode(from)? {
            tag @ 14..=16 => Word::decode_of_state(tag, from)?,
            tag => return Err(CodecError::Unknown(u64::from(tag))),
        };
        Ok(Self { sender, life, to, word })
    }
}

impl Word {
    fn decode_of_ring(tag: u8, from: &mut Reader<'_>) -> Result<Self, CodecError> {
        macro_rules! hear {
            () => {
                Codec::decode(from)?
            };
        }
        Ok(match tag {
            1 => Self::Alive {
                count: hear!(),
                fit: take_bool(from)?,
                gaps: Gaps { unheard: take_all(from)?, unreached: take_all(from)? },
                rings: take_pairs(from)?,
            },
            2 => Self::Propose { ring: hear!(), proposals: Bytes::from(from.bytes()?) },
            3 => Self::Done { ring: hear!(), life: hear!(), upto: hear!() },
            4 => Self::Lead { ring: hear!(), ballot: hear!() },
            5 => Self::Want { ring: hear!(), upto: hear!() },
            6 => Self::Prepare { ring: hear!(), ballot: hear!() },
            7 => Self::Accepted { ring: hear!(), ballot: hear!(), entry: hear!() },
            8 => Self::Promise {
                ring: hear!(),
                ballot: hear!(),
                known: hear!(),
                settled: hear!(),
                count: hear!(),
                memories: take_all(from)?,
            },
            9 => Self::Refuse { ring: hear!(), promised: hear!() },
            10 => Self::Pass(hear!()),
            11 => Self::Lack { ring: hear!(), ballot: hear!(), from: hear!() },
            12 => Self::Fetch { ring: hear!(), from: hear!(), table: take_bool(from)? },
            13 => {
                let (ring, known, floor) = (hear!(), hear!(), hear!());
                let has_table = take_bool(from)?;
                let entries = take_all(from)?;
                let table = take_pairs(from)?;
                let table = has_table.then_some(table);
                Self::Learn { ring, entries, known, floor, table }
            }
            24 => Self::Skipped { ring: hear!(), entry: hear!() },
            25 => Self::Canvass { ring: hear!(), ballot: hear!() },
            26 => Self::Consent { ring: hear!(), ballot: hear!() },
            27 => Self::Relay {
                ring: hear!(),
                sender: hear!(),
                proposals: Bytes::from(from.bytes()?),
            },
            29 => Self::Probe { round: hear!() },
            30 => Self::Voted { life: hear!(), round: hear!(), rings: take_pairs(from)? },
            tag => return Err(CodecError::Unknown(u64::from(tag))),
        })
    }

    fn decode_of_state(tag: u8, from: &mut Reader<'_>) -> Result<Self, CodecError> {
        macro_rules! hear {
            () => {
                Codec::decode(from)?
            };
        }
        Ok(match tag {
            14 => Self::Lost { question: hear!() },
            15 => Self::Recalled { ring: hear!(), question: hear!(), entry: hear!() },
            16 => Self::Recall {
                ring: hear!(),
                question: hear!(),
                promised: hear!(),
                known: hear!(),
                settled: hear!(),
                count: hear!(),
                memories: take_all(from)?,
            },
            17 => Self::Ask { attempt: hear!() },
            18 => Self::Offer { attempt: hear!(), position: hear!() },
            19 => Self::Take { attempt: hear!(), least: hear!() },
            20 => {
                Self::State { attempt: hear!(), position: hear!(), point: hear!(), bytes: hear!() }
            }
            21 => Self::Need { attempt: hear!(), offset: hear!() },
            22 => {
                Self::Piece { attempt: hear!(), offset: hear!(), bytes: Arc::from(from.bytes()?) }
            }
            23 => Self::Thanks { attempt: hear!() },
            tag => return Err(CodecError::Unknown(u64::from(tag))),
        })
    }
}
