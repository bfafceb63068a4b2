//! The medium `Groupcast`: virtual synchrony [TO 3]. A layer below agrees on the members of the
//! group, view after view, and carries messages within a view.
//!
//! # One view at a time, or one of each component
//! Where a majority agrees on each view, the views of a group are one chain, numbered one after the other. Where the group
//! continues in every component of a partition, each component has views of its own ([`View::component`]): a view is
//! named by its round and its coordinator ([`ViewName`]), and says from which view each member came. Then laws 1 to 5
//! and 7 are about the members that come from the same view: a view that merges components has members that come from
//! several. Nobody is excluded, and nobody takes over the state of another one.
//!
//! # Laws
//! 1. Processes that enter a view after the same view have been handed the same casts in between,
//!    in the order of each sender among casts of the same [`Grade`].
//! 2. A cast is handed over in the view in which it was made, or nowhere; at its sender, too.
//! 3. A cast that any member is handed as [`Grade::Uniform`] or [`Grade::Stable`] is handed to all that enter the next
//!    view.
//! 4. Messages to one process arrive in order and once, in the view in which they were sent, or
//!    not at all if that view ends.
//! 5. After [`GroupcastInput::Block`] the protocol casts and sends nothing until the next view: what it asks
//!    for is dropped. The casts that it is handed until then are the end of the old view, the same for all members that
//!    continue, and nothing else: a blocked member has reported its casts.
//! 6. All enter the same views in the same order; an excluded one receives [`GroupcastInput::Excluded`], and
//!    [`GroupcastInput::Join`] when it is taken in again.
//! 7. A cast of another member as [`Grade::Stable`] that is handed over before [`GroupcastInput::Block`] was announced by
//!    [`GroupcastInput::Received`] before, once each, in the order of each sender. An announced cast may be nowhere
//!    handed over, if its view ends.
//! 8. Where casts travel along a ring each is handed over as soon as it arrives, in causal order, and announced by
//!    [`GroupcastInput::Stable`] when all members have it, in the order of each sender. By then the casts that a member made
//!    before it was handed that one have been handed over. An announced cast is handed to all that enter the next view.

use crate::id::Pid;
use crate::messages::DatagramBacklog;
use crate::step::{Medium, PayloadRange};
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

/// A process in one of its lives. One that was excluded and joins again is another member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupMember {
    /// The process.
    pub pid: Pid,
    /// Its incarnation: grows when it starts again, and each time it was excluded.
    pub life: u64,
}

/// The members of the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Its number. In a chain of views the view after it has the next one; a view of a component has the number of its
    /// [name](ViewName::number).
    pub id: u64,
    /// The members, the most senior first: the same order at every member.
    pub members: Vec<GroupMember>,
    /// The rest of a component's view; none where the views of a group are one chain.
    pub component: Option<Component>,
}

/// A view of a group that continues in every component of a partition, besides its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Component {
    /// By rank: the number of the view from which each member came. Members with the same one came along with each other
    /// (the transitional set): they have been handed the same casts in that view.
    pub origins: Vec<u64>,
    /// Whether its members are a majority of the configured processes. Two views that are primary have a member in common,
    /// so as soon as one of them is entered by all its members the other one is over.
    pub primary: bool,
}

/// The name of a component's view: unique, and larger than those of all views that its members were in before, in their
/// present incarnations. It reads `round.pid`, with the incarnation of the coordinator if it had started again: `7.p2`,
/// `7.p2.1`. The first view of a group is `0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ViewName {
    /// Larger than any round that the coordinator had heard of.
    pub round: u64,
    /// How often the coordinator had started again: rounds that it had heard of before are forgotten.
    pub incarnation: u32,
    /// The coordinator, which collected the answers of the members.
    pub coordinator: Pid,
}

/// Bits of a coordinator's process in the number of a view.
const PID_BITS: u32 = 5;

/// Bits of its incarnation.
const INCARNATION_BITS: u32 = 20;

impl ViewName {
    /// The last round that has a number; nobody reaches it by counting.
    pub const ROUND_MAX: u64 = (1 << 36) - 1;

    /// The name as a number: in the same order. Of an incarnation the lowest 20 bits count, and of a process the
    /// lowest 5, which are all bits of a process of a group.
    pub const fn number(self) -> u64 {
        let incarnation = self.incarnation as u64 & ((1 << INCARNATION_BITS) - 1);
        let coordinator = self.coordinator.0 as u64 & ((1 << PID_BITS) - 1);
        (self.round << INCARNATION_BITS | incarnation) << PID_BITS | coordinator
    }

    /// The name of that number.
    pub const fn of(number: u64) -> Self {
        let incarnation = number >> PID_BITS & ((1 << INCARNATION_BITS) - 1);
        Self {
            round: number >> (INCARNATION_BITS + PID_BITS),
            incarnation: incarnation as u32,
            coordinator: Pid((number & ((1 << PID_BITS) - 1)) as u32),
        }
    }
}

impl fmt::Display for ViewName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round, incarnation, coordinator } = self;
        match (self.number(), incarnation) {
            (0, _) => f.write_str("0"),
            (_, 0) => write!(f, "{round}.p{}", coordinator.0),
            _ => write!(f, "{round}.p{}.{incarnation}", coordinator.0),
        }
    }
}

impl View {
    /// A view of a chain.
    pub const fn new(id: u64, members: Vec<GroupMember>) -> Self {
        Self { id, members, component: None }
    }

    /// Whether the group may count on this view alone: there is no other one, or its members are a majority.
    pub fn is_primary(&self) -> bool {
        self.component.as_ref().is_none_or(|component| component.primary)
    }

    /// Whether the member of that rank came along from the view `before`. In a chain the members of both did.
    pub fn came_from(&self, rank: usize, before: &Self) -> bool {
        match &self.component {
            Some(component) => component.origins.get(rank) == Some(&before.id),
            None => self.members.get(rank).is_some_and(|m| before.members.contains(m)),
        }
    }

    /// Whether `pid` is a member, in any life.
    pub fn has(&self, pid: Pid) -> bool {
        self.rank(pid).is_some()
    }

    /// The place of `pid` among the members, 0 for the most senior.
    pub fn rank(&self, pid: Pid) -> Option<usize> {
        self.members.iter().position(|m| m.pid == pid)
    }

    /// The processes in it, the most senior first.
    pub fn pids(&self) -> impl DoubleEndedIterator<Item = Pid> + ExactSizeIterator {
        self.members.iter().map(|m| m.pid)
    }
}

/// How sure it must be that the survivors will have a cast, before anyone is handed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grade {
    /// Not at all (`Rcast`): handed over as it comes. A process that then fails may have been the
    /// only one to have it.
    Plain,
    /// For certain (`URcast`): handed over when so many have it that none of them can be missed.
    Uniform,
    /// As certain, and everywhere: handed over when all members of the view have it, or when the view ends. Each one can
    /// then deliver it without the others [FastCast figure 2, lines 30 and 31].
    Stable,
}

/// The medium of a group in virtual synchrony, of messages `M`.
#[derive(Debug)]
pub struct Groupcast<M>(PhantomData<M>);

/// An input from the medium.
#[derive(Debug)]
pub enum GroupcastInput<'a, M> {
    /// This view begins. Everything of the one before has been handed over.
    View(&'a View),
    /// This process begins here, in this view, with what a member gave as [`GroupcastOutput::Base`] when it
    /// entered it.
    Join(&'a View, &'a [u8]),
    /// A cast or a message of this process.
    From(Pid, M),
    /// One more cast of this other process as [`Grade::Stable`] has arrived, behind its earlier ones. It is handed over
    /// when all members have it: a protocol may prepare for that, and must not deliver it.
    Received(Pid),
    /// All members have one more cast of this member, which may be this process: where casts travel along a ring.
    Stable(Pid),
    /// The view is about to end.
    Block,
    /// The group continues without this process, which joins again as a new one.
    Excluded,
    /// The carrier has no more room for datagrams of this process, or has room again: law 5 of
    /// [`messages`](mod@crate::messages). Without room casts and messages for which datagrams would have to be made wait in the
    /// layer below, in their order: the protocol may continue, and does better if it keeps what may still change. At any time,
    /// also outside of views.
    Backlog(DatagramBacklog),
}

/// A request of a protocol to the medium.
#[derive(Debug)]
pub enum GroupcastOutput<M> {
    /// Send to every member, this process too.
    Cast(Grade, M),
    /// Send to one other member.
    To(Pid, M),
    /// The state that a process which joins in the view just entered needs to begin there. Asked for once in
    /// answer to every [`GroupcastInput::View`] and [`GroupcastInput::Join`].
    Base(PayloadRange),
}

impl<M: core::fmt::Debug + 'static> Medium for Groupcast<M> {
    type View<'a> = ();
    type In<'a> = GroupcastInput<'a, M>;
    type Out = GroupcastOutput<M>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_number_of_a_name_reads_back_and_is_in_the_order_of_names() {
        let name = |round, incarnation, pid| ViewName { round, incarnation, coordinator: Pid(pid) };
        let all = [
            name(0, 0, 0),
            name(0, 2, 31),
            name(1, 0, 3),
            name(1, 1, 0),
            name(2, 0, 1),
            name(ViewName::ROUND_MAX, (1 << 20) - 1, 31),
        ];
        assert!(all.is_sorted() && all.map(ViewName::number).is_sorted());
        assert!(all.iter().all(|&name| ViewName::of(name.number()) == name));
        assert!(all[5].number() < 1 << 61);
        let texts = all[..4].iter().map(ToString::to_string);
        assert_eq!(texts.collect::<Vec<_>>(), ["0", "0.p31.2", "1.p3", "1.p0.1"]);
    }

    #[test]
    fn members_come_along_from_the_same_view_only() {
        let members: Vec<_> = (0..3).map(|p| GroupMember { pid: Pid(p), life: 0 }).collect();
        let before = View::new(7, members.clone());
        let component = Component { origins: alloc::vec![7, 7, 9], primary: false };
        let merged = View { component: Some(component), ..View::new(11, members.clone()) };
        let came = |view: &View| [0, 1, 2].map(|rank| view.came_from(rank, &before));
        assert_eq!((came(&merged), merged.is_primary()), ([true, true, false], false));
        let next = View::new(8, members[1..].to_vec());
        assert_eq!((came(&next), next.is_primary()), ([true, true, false], true));
    }
}
