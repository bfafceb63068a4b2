//! How the layer runs.

use super::casts::SendWindow;
use crate::layers::paced::{BYTE_NS, QUEUE_BYTES};
use amcast_core::messages::Lane;
use amcast_core::{Pid, Span};

/// How the casts of a member reach the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dissemination {
    /// Each is sent to each of them.
    Unicast,
    /// A message for all of them leaves as one datagram to the group: where the carrier has multicast that is one on the
    /// wire. Packets to one process still take the lane of packets.
    Group,
    /// Along a ring: a member sends its casts to its successor alone, and forwards those of others.
    Ring,
}

/// The processes that a change of views needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViewQuorum {
    /// A majority of the configured processes: a wrong suspicion costs a change of views, and no partition makes two orders.
    Majority,
    /// None: the processes that hear each other, and no other ones, agree on a view of their own, in each component of a
    /// partition [ToTo 5]. Then processes that live need not deliver the same.
    Component,
    /// All members of the view that have not failed, however few they are [FastCast 3.4, figure 3]. A member that lives and
    /// counts as failed makes a second order: this needs a perfect failure detector.
    Survivors,
}

/// How the layer runs.
#[derive(Clone, Debug)]
pub struct VsyncSettings {
    /// This process. Those of the group are numbered from 0.
    pub me: Pid,
    /// How many processes are configured.
    pub processes: usize,
    /// The transport of packets.
    pub lane: Lane,
    /// How casts reach the other members.
    pub dissemination: Dissemination,
    /// How often a process shows that it lives.
    pub heartbeat: Span,
    /// How long a process may be silent, to begin with.
    pub suspect: Span,
    /// Whether silence says nothing, and only an oracle knows who has failed: one that is perfect.
    pub told_who_failed: bool,
    /// The processes that a change of views needs.
    pub quorum: ViewQuorum,
    /// After how long without an answer a message is sent again, to begin with; see [`VsyncSettings::first_repeat`] for slow
    /// links.
    pub retry: Span,
    /// How long an acknowledgement that nobody waits for may be held back.
    pub ack: Span,
    /// How long a member whose application is full may hold the others back; without end if none is given, as it must be where
    /// each component decides for itself.
    pub full: Option<Span>,
    /// The rate of the link of each process, in kilobytes a second, if acknowledgements are to take only of what it has to
    /// spare. Where casts are multicast, one member gathers them for all then.
    pub link: Option<u64>,
    /// Bytes of messages to one member that may be on the way as datagrams, unacknowledged, at most.
    pub channel_bytes: usize,
    /// Bytes of a packet, about.
    pub packet_bytes: usize,
    /// Casts of one sender that not all members are known to have. On a ring the protocol above keeps to it.
    pub window: usize,
    /// Bytes of these.
    pub window_bytes: usize,
    /// Bytes of the largest message that the protocol above casts or sends.
    pub message_bytes: usize,
    /// The intended mistake, if any.
    pub broken: Option<VsyncMutant>,
}

impl VsyncSettings {
    /// After how long without an answer casts and messages are sent again, to begin with. On a slow link, where its rate is
    /// given, that is longer than is configured: for as long as a link takes for the queue in front of a port, what has no
    /// answer is rather slow than lost, and repetitions would make the queue longer, until all of the link is theirs.
    pub(super) fn first_repeat(&self) -> Span {
        let queue = |link: u64| Span(QUEUE_BYTES * BYTE_NS / link.max(1));
        self.retry.max(self.link.map_or(Span::ZERO, queue))
    }

    pub(super) const fn window(&self) -> SendWindow {
        SendWindow { casts: self.window, bytes: self.window_bytes }
    }
}

/// Ways to break the layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VsyncMutant {
    /// Uniform and stable casts are handed over at once; on a ring casts count as stable at once.
    TrustsOne,
    /// A member enters the next view with what it happens to have.
    ForgetsTheCut,
    /// A joiner delivers without waiting for the state.
    JoinsWithNothing,
    /// A coordinator of a component names also processes that do not hear each other, and ends their view with what it has
    /// itself.
    NamesUnheard,
    /// A member makes more datagrams while its carrier has no more room.
    IgnoresBacklog,
    /// A member does not hear that its carrier has room again.
    NeverHearsRoom,
    /// Where a member may have missed casts, they are repeated at once, though it answers when it is asked.
    RepeatsUnasked,
    /// A message that came twice is not acknowledged again to all.
    AcknowledgesOnce,
    /// A joiner lets its driver believe any source of a state, whether it continues or not.
    BelievesAnybody,
}
