//! Messages between processes: items, gathered into packets.

use super::agreement::{
    ComponentCut, ComponentProposal, ComponentStatus, HearingReport, PromiserStatus, ViewBallot,
    ViewDecision, ViewProposal,
};
use super::casts::RetainedCast;
use crate::layers::compact::{bytes, counts, list, number};
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec, CodecError};
use amcast_core::groupcast::Grade;
use amcast_core::{Pid, messages};

/// Everything that one process has to say to another at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VsyncPacket {
    /// The life of the sender: what an earlier one said is not listened to any more.
    pub(super) life: u64,
    /// The messages, in order.
    pub(super) items: Vec<PacketItem>,
}

impl VsyncPacket {
    /// About how many bytes of a link it takes.
    pub(super) fn link_bytes(&self) -> usize {
        let items = self.items.iter().map(|item| item.size() - HEAD_BYTES + SHORT_HEAD_BYTES);
        FRAME_BYTES + items.sum::<usize>()
    }

    /// The kinds of messages in it, in order: for people who count them.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        self.items.iter().map(PacketItem::kind)
    }
}

/// A thing said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PacketItem {
    /// A cast of `sender` in this view, perhaps passed on by another.
    Cast { view: u64, sender: Pid, number: u64, kept: RetainedCast },
    /// A message for the receiver alone, the so-manyth in this view; or a part of one, which the next
    /// one continues if there is `more`.
    To { view: u64, number: u64, more: bool, bytes: Arc<[u8]> },
    /// In this view the sender has so many casts of each process, and so many messages of the
    /// receiver. `gap`: it has later ones of the receiver, too.
    Ack { view: u64, fit: bool, gap: bool, had: u64, have: Vec<u64> },
    /// The same for all: `had`, the messages that it has of each process, which is empty where no receiver has an
    /// unacknowledged message; and the processes of which it has casts that are not next, a bit each.
    AckAll { view: u64, fit: bool, gaps: u32, had: Vec<u64>, have: Vec<u64> },
    /// In this view all members have so many casts of each process, as the member says that gathers acknowledgements.
    HeldByAll { view: u64, held: Vec<u64> },
    /// The sender has made so many casts in this view, and asks which of them the receiver has.
    AskAck { view: u64, number: u64 },
    /// The sender lives; the last view it knows of.
    Alive { view: u64, fit: bool },
    /// The sender is in no view and wants to be; the last view it knows of.
    Join { view: u64 },
    /// The sender is about to stop: the next view is to be without it. The last view it knows of.
    Leave { view: u64 },
    /// Consensus on the view `instance`, first phase.
    Prepare { instance: u64, ballot: ViewBallot },
    /// The answer.
    Promise {
        instance: u64,
        ballot: ViewBallot,
        accepted: Option<(ViewBallot, ViewProposal)>,
        standing: PromiserStatus,
    },
    /// The sender has promised a higher ballot.
    Refuse { instance: u64, promised: ViewBallot },
    /// Second phase.
    Accept { instance: u64, ballot: ViewBallot, proposal: ViewProposal },
    /// The answer.
    Accepted { instance: u64, ballot: ViewBallot },
    /// A decided view.
    Decide(ViewDecision),
    /// Asks for casts of `sender` in this view: those after `after`, up to `upto`.
    Fetch { view: u64, sender: Pid, after: u64, upto: u64 },
    /// A joiner asks for what it must know to begin in this view.
    Ask { view: u64 },
    /// The state for a process that joins in this view.
    Base { view: u64, bytes: Arc<[u8]> },
    /// The sender has not heard these processes for long, a bit each.
    Unheard { processes: u32 },
    /// A cast of `sender` on its way along the ring: the so-manyth message for the receiver alone in this view.
    Forward { view: u64, link: u64, sender: Pid, number: u64, kept: RetainedCast },
    /// On the second lap: all members have the casts of `sender` up to this one. A message for the receiver alone, too.
    Stable { view: u64, link: u64, sender: Pid, number: u64 },
    /// A coordinator asks the receiver to take in no more casts, for a view of this name.
    Gather { name: u64 },
    /// The answer.
    Gathered { name: u64, status: ComponentStatus },
    /// The view that the coordinator of a component installs.
    Install(ComponentProposal),
    /// The sender has answered the coordinator of a larger name, which is this one.
    Outdated { name: u64 },
    /// By pid, the last report that the sender has of which processes each hears, and in which view it is.
    Hears { reports: Vec<HearingReport> },
}

/// The place of a message among those of its sender for its receiver alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkMessagePlace {
    pub(super) view: u64,
    /// The so-manyth in this view.
    pub(super) number: u64,
    /// Bytes of its contents.
    pub(super) bytes: usize,
}

/// Added to the byte that says what it is, where the next one continues it.
const PART: u8 = 32;
const PART_OF_MESSAGE: u8 = PART + 3;

/// The byte that says of what grade a cast is.
const PLAIN_CAST: u8 = 1;
const UNIFORM_CAST: u8 = 2;
const STABLE_CAST: u8 = 16;

const fn cast_tag(grade: Grade) -> u8 {
    match grade {
        Grade::Plain => PLAIN_CAST,
        Grade::Uniform => UNIFORM_CAST,
        Grade::Stable => STABLE_CAST,
    }
}

/// The same of a cast that may be a part of one.
const fn tag_of(kept: &RetainedCast) -> u8 {
    cast_tag(kept.grade) + if kept.more { PART } else { 0 }
}

/// The grade of a cast, or of a part of one, by its byte; none if something else begins so.
const fn cast_grade(tag: u8) -> Option<Grade> {
    match tag % PART {
        _ if tag > 2 * PART => None,
        PLAIN_CAST => Some(Grade::Plain),
        UNIFORM_CAST => Some(Grade::Uniform),
        STABLE_CAST => Some(Grade::Stable),
        _ => None,
    }
}

/// Bytes of a packet's head, and about as many of an item without its variable part.
pub(crate) const HEAD_BYTES: usize = 32;

/// Bytes of an item without its variable part, as they are most often.
const SHORT_HEAD_BYTES: usize = 8;

/// Bytes of a link that the heads of a packet take, about: those of the network and of the carrier.
const FRAME_BYTES: usize = 90;

/// Bytes of a count of casts or messages, about.
const COUNT_BYTES: usize = 3;

impl PacketItem {
    /// Its name, for people.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Cast { .. } => "cast",
            Self::To { .. } => "message",
            Self::Ack { .. } => "ack",
            Self::AckAll { .. } => "ack-all",
            Self::HeldByAll { .. } => "held-by-all",
            Self::AskAck { .. } => "ask-ack",
            Self::Fetch { .. } => "fetch",
            Self::Forward { .. } => "forward",
            Self::Stable { .. } => "stable",
            Self::Alive { .. } | Self::Unheard { .. } | Self::Hears { .. } => "alive",
            _ => "view",
        }
    }

    /// Where it is among the messages for its receiver alone, if it is one.
    pub(super) fn on_link(&self) -> Option<LinkMessagePlace> {
        let (view, number, bytes) = match self {
            Self::To { view, number, bytes, .. } => (*view, *number, bytes.len()),
            Self::Forward { view, link, kept, .. } => (*view, *link, kept.bytes.len()),
            Self::Stable { view, link, .. } => (*view, *link, 0),
            _ => return None,
        };
        Some(LinkMessagePlace { view, number, bytes })
    }

    /// Whether it names a view for its receiver to enter.
    pub(super) const fn names_view(&self) -> bool {
        matches!(self, Self::Decide(_) | Self::Install(_))
    }

    /// About how many bytes it takes on the wire.
    pub(super) fn size(&self) -> usize {
        HEAD_BYTES
            + match self {
                Self::Cast { kept, .. } | Self::Forward { kept, .. } => kept.bytes.len(),
                Self::To { bytes, .. } | Self::Base { bytes, .. } => bytes.len(),
                Self::Ack { have, .. } => have.len() * COUNT_BYTES,
                Self::HeldByAll { held, .. } => held.len() * COUNT_BYTES,
                Self::AckAll { have, .. } => have.len() * COUNT_BYTES * 2,
                Self::Promise { .. } | Self::Accept { .. } | Self::Decide(_) => 256,
                Self::Gathered { .. } => 64,
                Self::Hears { reports } => reports.len() * 28,
                Self::Install(proposal) => 64 + proposal.cuts.len() * 128,
                _ => 0,
            }
    }
}

/// A list of at most as many values as there are processes: their number takes 2 bytes.
mod short {
    use alloc::vec::Vec;
    use amcast_core::codec::{ByteReader, Codec, CodecError};

    pub(super) fn encode<T: Codec>(all: &[T], to: &mut Vec<u8>) {
        (all.len() as u16).encode(to);
        T::encode_all(all, to);
    }

    pub(super) fn decode<T: Codec>(from: &mut ByteReader<'_>) -> Result<Vec<T>, CodecError> {
        let count = u16::decode(from)?;
        T::decode_all(usize::from(count), from)
    }
}

/// The members of a group, likewise.
mod members {
    use alloc::vec::Vec;
    use amcast_core::codec::{ByteReader, Codec, CodecError};
    use amcast_core::groupcast::GroupMember;

    pub(super) fn encode(all: &[GroupMember], to: &mut Vec<u8>) {
        (all.len() as u16).encode(to);
        all.iter().for_each(|GroupMember { pid, life }| (*pid, *life).encode(to));
    }

    pub(super) fn decode(from: &mut ByteReader<'_>) -> Result<Vec<GroupMember>, CodecError> {
        let all = super::short::decode(from)?.into_iter();
        Ok(all.map(|(pid, life)| GroupMember { pid, life }).collect())
    }
}

/// A view, likewise.
mod view {
    use alloc::vec::Vec;
    use amcast_core::codec::{ByteReader, Codec, CodecError};
    use amcast_core::groupcast::View;

    pub(super) fn encode(View { id, members, .. }: &View, to: &mut Vec<u8>) {
        id.encode(to);
        super::members::encode(members, to);
    }

    pub(super) fn decode(from: &mut ByteReader<'_>) -> Result<View, CodecError> {
        Ok(View::new(Codec::decode(from)?, super::members::decode(from)?))
    }
}

messages! {
    struct ViewBallot { round, pid }
    struct ViewProposal { members with members, cut with short }
    struct ViewDecision { view with view, cut with short }
    struct HearingReport { life, version, view, hears }
    struct ComponentStatus { view, hears, have with counts }
    struct ComponentCut { view, cut with counts, holders with short }
    struct ComponentProposal { name, members with members, origins with short, cuts with short }
    struct VsyncPacket { life with number, items with list }
    part of enum PacketItem by hand (Cast, To) {
        4 => Ack { view with number, fit, gap, had with number, have with counts },
        5 => Alive { view with number, fit },
        6 => Join { view },
        7 => Fetch { view with number, sender with number, after with number, upto with number },
        8 => Prepare { instance, ballot },
        9 => Promise { instance, ballot, accepted, standing },
        10 => Refuse { instance, promised },
        11 => Accept { instance, ballot, proposal },
        12 => Accepted { instance, ballot },
        13 => Decide(decision),
        14 => Ask { view },
        15 => Base { view, bytes },
        20 => Leave { view },
        21 => AckAll { view with number, fit, gaps with number, had with counts, have with counts },
        22 => Unheard { processes },
        30 => HeldByAll { view with number, held with counts },
        31 => AskAck { view with number, number with number },
        23 => Forward {
            view with number,
            link with number,
            sender with number,
            number with number,
            kept,
        },
        24 => Stable { view with number, link with number, sender with number, number with number },
        25 => Gather { name },
        26 => Gathered { name, status },
        27 => Install(proposal),
        28 => Outdated { name },
        29 => Hears { reports with short },
    }
}

impl Codec for RetainedCast {
    fn encode(&self, to: &mut Vec<u8>) {
        tag_of(self).encode(to);
        bytes::encode(&self.bytes, to);
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        let tag = u8::decode(from)?;
        let grade = cast_grade(tag).ok_or(CodecError::Unknown(u64::from(tag)))?;
        Ok(Self { grade, more: tag > PART, bytes: bytes::decode(from)? })
    }
}

impl Codec for PromiserStatus {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Outsider => 0_u8.encode(to),
            Self::Member { fit, have } => {
                (1 + u8::from(*fit)).encode(to);
                short::encode(have, to);
            }
        }
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        match u8::decode(from)? {
            0 => Ok(Self::Outsider),
            n @ 1..=2 => Ok(Self::Member { fit: n == 2, have: short::decode(from)? }),
            n => Err(CodecError::Unknown(u64::from(n))),
        }
    }
}

/// The byte in front of a cast and of a message for one receiver says more of it; the others are as they stand above.
impl Codec for PacketItem {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Cast { view, sender, number, kept } => {
                tag_of(kept).encode(to);
                number::encode(view, to);
                number::encode(sender, to);
                number::encode(number, to);
                bytes::encode(&kept.bytes, to);
            }
            Self::To { view, number, more, bytes } => {
                (3 + if *more { PART } else { 0 }).encode(to);
                number::encode(view, to);
                number::encode(number, to);
                bytes::encode(bytes, to);
            }
            other => other.encode_listed(to),
        }
    }

    fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        let tag = u8::decode(from)?;
        if let Some(grade) = cast_grade(tag) {
            return Ok(Self::Cast {
                view: number::decode(from)?,
                sender: number::decode(from)?,
                number: number::decode(from)?,
                kept: RetainedCast { grade, more: tag > PART, bytes: bytes::decode(from)? },
            });
        }
        Ok(match tag {
            n @ (3 | PART_OF_MESSAGE) => Self::To {
                view: number::decode(from)?,
                number: number::decode(from)?,
                more: n > PART,
                bytes: bytes::decode(from)?,
            },
            tag => Self::decode_listed(tag, from)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::groupcast::{GroupMember, View};

    /// Those of the agreement within a component.
    fn of_components() -> Vec<PacketItem> {
        let end = ComponentCut { view: 3, cut: alloc::vec![4, 300], holders: alloc::vec![Pid(1)] };
        let installed = ComponentProposal {
            name: 1 << 40,
            members: alloc::vec![GroupMember { pid: Pid(2), life: 7 }],
            origins: alloc::vec![3],
            cuts: alloc::vec![end],
        };
        let report = HearingReport { life: 1 << 32, version: 4, view: 9, hears: 5 };
        let status = ComponentStatus { view: 3, hears: 5, have: alloc::vec![0, 300] };
        alloc::vec![
            PacketItem::Gather { name: 9 },
            PacketItem::Gathered { name: 9, status },
            PacketItem::Install(installed),
            PacketItem::Outdated { name: 10 },
            PacketItem::Hears { reports: alloc::vec![report] },
        ]
    }

    fn all() -> Vec<PacketItem> {
        let ballot = ViewBallot { round: 3, pid: Pid(1) };
        let members =
            alloc::vec![GroupMember { pid: Pid(2), life: 7 }, GroupMember { pid: Pid(0), life: 0 }];
        let proposal = ViewProposal { members: members.clone(), cut: alloc::vec![4, 5] };
        let bytes: Arc<[u8]> = Arc::from(&b"abc"[..]);
        let view = View::new(9, members);
        let standing = PromiserStatus::Member { fit: true, have: alloc::vec![1] };
        let kept = RetainedCast { grade: Grade::Plain, more: true, bytes: bytes.clone() };
        let cast = |grade, more| {
            let kept = RetainedCast { grade, more, bytes: bytes.clone() };
            PacketItem::Cast { view: 1, sender: Pid(2), number: 3, kept }
        };
        alloc::vec![
            cast(Grade::Uniform, false),
            cast(Grade::Uniform, true),
            cast(Grade::Plain, true),
            cast(Grade::Stable, false),
            cast(Grade::Stable, true),
            PacketItem::To { view: 1, number: 2, more: false, bytes: bytes.clone() },
            PacketItem::To { view: 1, number: 2, more: true, bytes: bytes.clone() },
            PacketItem::Ack { view: 1, fit: true, gap: false, had: 2, have: alloc::vec![1, 2] },
            PacketItem::AckAll {
                view: 1,
                fit: true,
                gaps: 5,
                had: alloc::vec![2],
                have: alloc::vec![1, 2]
            },
            PacketItem::HeldByAll { view: 1, held: alloc::vec![1, 300] },
            PacketItem::AskAck { view: 1, number: 3 },
            PacketItem::Alive { view: 4, fit: false },
            PacketItem::Join { view: 4 },
            PacketItem::Prepare { instance: 5, ballot },
            PacketItem::Promise {
                instance: 5,
                ballot,
                accepted: Some((ballot, proposal.clone())),
                standing
            },
            PacketItem::Promise {
                instance: 5,
                ballot,
                accepted: None,
                standing: PromiserStatus::Outsider
            },
            PacketItem::Refuse { instance: 5, promised: ballot },
            PacketItem::Accept { instance: 5, ballot, proposal },
            PacketItem::Accepted { instance: 5, ballot },
            PacketItem::Decide(ViewDecision { view, cut: alloc::vec![1] }),
            PacketItem::Fetch { view: 1, sender: Pid(0), after: 2, upto: 3 },
            PacketItem::Ask { view: 1 },
            PacketItem::Base { view: 1, bytes },
            PacketItem::Leave { view: 4 },
            PacketItem::Unheard { processes: 5 },
            PacketItem::Forward { view: 1, link: 9, sender: Pid(2), number: 3, kept },
            PacketItem::Stable { view: 1, link: 10, sender: Pid(2), number: 3 },
        ]
    }

    #[test]
    fn every_item_reads_back_and_no_shortened_packet_does() {
        let packet = VsyncPacket { life: 1 << 40, items: [all(), of_components()].concat() };
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        let mut reader = ByteReader::new(&bytes);
        assert_eq!(VsyncPacket::decode(&mut reader), Ok(packet));
        assert!(reader.is_empty());
        for cut in 0..bytes.len() {
            assert!(VsyncPacket::decode(&mut ByteReader::new(&bytes[..cut])).is_err(), "{cut}");
        }
    }

    #[test]
    fn what_goes_along_with_a_cast_takes_few_bytes() {
        let have = (0..8).map(|p| 20_000 + p).collect();
        let ack = PacketItem::AckAll { view: 3, fit: true, gaps: 0, had: Vec::new(), have };
        let kept = RetainedCast {
            grade: Grade::Stable,
            more: false,
            bytes: alloc::vec![7; 10_000].into(),
        };
        let cast = PacketItem::Cast { view: 3, sender: Pid(2), number: 20_000, kept };
        let packet = VsyncPacket { life: 0, items: alloc::vec![cast, ack] };
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        // The life and how many items; a tag, view, sender, number, and length; a tag, view, fitness, gaps, no messages, and
        // the eight counts behind their number and the smallest one.
        assert_eq!(bytes.len() - 10_000, 2 + 8 + (5 + 4 + 8));
    }

    #[test]
    fn strange_tags_are_refused() {
        for tag in [0, 17, PART, PART + 4, PART + 17, 2 * PART + 1, 255] {
            let bytes = [tag; 64];
            assert!(PacketItem::decode(&mut ByteReader::new(&bytes)).is_err(), "{tag}");
        }
    }
}
