//! The medium `Groupcast`: virtual synchrony [TO 3]. A layer below agrees on the members of the
//! group, view after view, and carries messages within a view.
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
use crate::step::{Medium, PayloadRange};
use alloc::vec::Vec;
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
    /// Its number; the view after it has the next one.
    pub id: u64,
    /// The members, the most senior first: the same order at every member.
    pub members: Vec<GroupMember>,
}

impl View {
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
