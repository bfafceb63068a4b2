//! The events: reports of a protocol to its driver, on which the driver must act.
//!
//! An event is part of the contract of the step machine, as a delivery is. A [`Note`] is for people and
//! traces alone. The type is a [`ProtocolEvent`] because a [`TraceEvent`] is something else: a line of
//! a history, which a driver or a simulator writes.
//!
//! # Order
//! A driver acts on events in the order of the outbox, among deliveries and installed states. Where it holds
//! back deliveries (until a record survives the end of the process, say) it holds back the events behind
//! them.
//!
//! # A replica that misses state
//! ```text
//!            Lagging                NeedsState(position)               Input::Installed
//! caught up ---------> negotiating ----------------------> following ------------------> CaughtUp, then `fit`
//!                        ^   |  ^                             |  |
//!                        '---'  '-----------------------------'  '--> another NeedsState, further on
//!                       Lagging       Lagging: it lost its place once more
//! ```
//! The process negotiates its own missing state with the others, by its protocol's messages. The
//! application's state never passes through a protocol: [`ProtocolEvent::NeedsState`] says which one is
//! needed, and the driver brings it. A process that got what it missed from a log of its own, or from the
//! others', goes from `Lagging` to `CaughtUp` without `NeedsState`.
//!
//! # A member of a group with views
//! ```text
//! joining --ViewEntered(n)--> member --ViewEntered(n' > n)--> member
//!    ^                          |
//!    |        Excluded(m > n)   | Input::Leave: Left(m > n), or MayStop(m >= n)
//!    '--------------------------+-----------------> the driver stops the process
//! ```
//! A protocol whose members are fixed reports none of these.
//!
//! [`TraceEvent`]: crate::trace::TraceEvent
//! [`Note`]: crate::step::Note

use crate::id::MsgId;

#[cfg(doc)]
use crate::step::{Input, Protocol};

/// From which processes a state may come ([`ProtocolEvent::NeedsState`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateSource {
    /// Any other replica of the group: its members are fixed, and agree on what is at each position.
    Replicas,
    /// A member of this view, which the process has entered. The deliveries of a member are agreed on only once
    /// others continue with it: the state counts when this process has delivered as much itself, and its source
    /// was a continuing member of every view that the process entered since it was asked.
    View(u64),
}

/// A report of a protocol, on which its driver must act. See the [module](self) for the order of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolEvent {
    /// This process takes part in ordering the message.
    ///
    /// *Protocol:* reports it at the latest in the step in which it first sends or stores something for the
    /// sake of the message, and may report it again. A driver that records no history does not want it
    /// ([`Outbox::traces`](crate::step::Outbox::traces)), and then it is dropped.
    /// *Driver:* writes it into the history, from which the checker judges genuineness.
    Part(MsgId),
    /// This process coordinates its group (or a ring of its group) from now on, in this epoch.
    ///
    /// *Protocol:* reports it in the step in which it begins to propose in the epoch. No two processes of a group
    /// report one epoch; a process that coordinates several rings may report one epoch for each.
    /// *Driver:* owes nothing; a simulator counts the changes of coordinators.
    Leads(u64),
    /// This process misses state that it lost, or that the others no longer have for it, and asks for it.
    ///
    /// *Protocol:* reports it in the step in which it finds this out, and is not [fit](Protocol::fit) until
    /// [`ProtocolEvent::CaughtUp`]. It may report it again meanwhile, for each process that it asks.
    /// *Driver:* saves no checkpoint of the application's state until an installed state or `CaughtUp` says
    /// where the process continues, and tells the other replicas of the same application ([`Input::Unfit`]).
    Lagging,
    /// This process continues from this position, and the application needs a state that holds every delivery up
    /// to there.
    ///
    /// *Protocol:* reports it between [`ProtocolEvent::Lagging`] and [`ProtocolEvent::CaughtUp`], of a position
    /// that some process which had such a state in force has offered it, and that is not before its own last
    /// delivery. From then on it delivers what lies behind the position, and nothing up to it. It is not fit
    /// until [`Input::Installed`] answers the last event of this kind. It may report another one, of a position
    /// that is no earlier, when it has lost its place once more.
    /// *Driver:* fetches the state from another process of the group that has one in force: one that `source`
    /// admits, in the incarnation in which it was asked. Deliveries behind the position wait for it. A state
    /// that goes further is as good: the driver drops the deliveries that are in it. If a process that was asked
    /// does not have as much, or dies, the driver asks another one, or asks again.
    NeedsState {
        /// The position that the state must have reached.
        position: u64,
        /// From which processes the state may come.
        source: StateSource,
    },
    /// This process has all state again, as of this position.
    ///
    /// *Protocol:* reports it after [`ProtocolEvent::Lagging`] or [`ProtocolEvent::Excluded`], perhaps also after
    /// [`Input::Unfit`], and behind all deliveries and installed states up to the position.
    /// *Driver:* treats the application's state as complete again if that, with the deliveries that wait for the
    /// application, reaches the position; else it waits for the state that is being fetched.
    CaughtUp(u64),
    /// This process has recovered what it lost with its log ([`Input::Lost`]), and has it on its disk.
    ///
    /// *Protocol:* reports it once that is durable, in each incarnation that received a loss and could recover. It may
    /// report it in other incarnations, too.
    /// *Driver:* gives the process [`Input::Lost`] at each start until then, and not from then on.
    StorageRecovered,
    /// This process entered a view. Members are a bit each, by their number among the replicas of the group.
    ///
    /// *Protocol:* reports it behind all deliveries of the view before, except those that a lagging process holds
    /// back until it has its state, and before any delivery of the new view. Numbers only grow, over all
    /// incarnations; where every component continues, over each incarnation, and a number is then that of a
    /// [`ViewName`](crate::groupcast::ViewName). All processes that enter the view of a number report the same members.
    /// *Driver:* records the view; believes nothing that it asked of a process that is not among the continuing
    /// members any more.
    ViewEntered {
        /// The number of the view.
        number: u64,
        /// Its members, this process among them.
        members: u32,
        /// Those of them that were members of the view before in the same incarnation, as this process was:
        /// none if it was not. Where every component continues, those that came along from that view. A member that died meanwhile and joined again is not among them: it has
        /// lost what it delivered, and nothing that was asked of it before is believed.
        continuing: u32,
    },
    /// Components of a partitioned group have merged: these members of the view just entered came from another view
    /// than this process, and have delivered messages that it has not, as it has delivered messages that they have not.
    /// Nobody's state replaces that of another one.
    ///
    /// *Protocol:* reports it only where every component continues
    /// ([`PartitionMode::EveryComponent`](crate::PartitionMode::EveryComponent)), directly behind
    /// [`ProtocolEvent::ViewEntered`] of that view, once for each view that members came from, in the order of these. All
    /// members of the view that came from one view report the same.
    /// *Driver:* tells the application, which reconciles.
    Merged {
        /// The number of the view just entered.
        view: u64,
        /// The number of the view that they came from.
        from: u64,
        /// These members, a bit each.
        members: u32,
    },
    /// The group excluded this process, in the view of this number: the process counts as failed, and joins
    /// again as a new one with the state of others. For the old incarnation the exclusion is final.
    ///
    /// *Protocol:* reports it as soon as it learns it; delivers nothing until it enters a later view, in which it
    /// is no continuing member; and is not fit until `CaughtUp`.
    /// *Driver:* drops all that the process delivered and the application has not executed yet, does not use
    /// the application's state any more, and fails the requests that wait for the process. Those deliveries are
    /// repeated, or are in the state that comes.
    Excluded(u64),
    /// This process has left its group, as it was asked to ([`Input::Leave`]): the others continue without
    /// it since the view of this number, and have all that it has sent.
    ///
    /// *Protocol:* reports it at most once, only after `Leave`, and delivers nothing behind it.
    /// *Driver:* stops the process, and records that it left: it did not fail.
    Left(u64),
    /// This process was asked to leave and may stop at once, since nothing is gained by waiting: in the
    /// view of this number the group has excluded it already, or would stop without it.
    ///
    /// *Protocol:* reports it at most once, only after [`Input::Leave`], and not together with `Left`.
    /// *Driver:* stops the process, which counts as failed from then on.
    MayStop(u64),
}
