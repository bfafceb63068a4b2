//! Flow control: a member whose application takes in no more ([`Input::Full`]) holds the others back, and they do not
//! exclude it.
//!
//! ```text
//! application   full ---------------------------------------> no longer full
//! this member   hands nothing over; keeps two windows of      hands over what it kept, and acknowledges more
//!               each sender; takes part in all else
//! a sender      has a third window that this member has not,  sends that one again, and continues
//!               and broadcasts nothing more
//! ```
//! It beats, acknowledges what it takes in, promises, votes and changes views as any other member. So a change of views
//! never waits for its application: what a view ends with is bounded by these windows, and is handed over however full
//! the application is. It submits nothing meanwhile.
//!
//! # A member that stays full
//! After [`VsyncSettings::full`](super::VsyncSettings) without an end it asks the others to continue without it, as one
//! that leaves does, if they are a majority with the state. They exclude it, and it does not ask to join before as long a
//! time is over: a member whose application is stuck for good stops the group for half of the time at most.
//!
//! Where every component of a partition continues, a member that the others excluded would be a component, and would
//! merge with them at once, since all hear each other. So it holds its component back for as long as its application is full.

use super::VsyncPacket;
use super::agreement::PrimaryComponent;
use super::membership::{GroupMembership, ViewPhase};
use super::packet::PacketItem;
use super::packing::OutgoingPackets;
use amcast_core::messages::Messages;
use amcast_core::step::Note;
use amcast_core::{Outbox, Span, Time};

#[cfg(doc)]
use amcast_core::Input;

/// Whether this process's application holds back the group.
#[derive(Debug)]
pub(super) struct FlowControl {
    /// How long it may, if there is an end.
    most: Option<Span>,
    is_full: bool,
    /// When this process asks the others to continue without it; never unless the application is full.
    ask_at: Time,
    /// Not before that it asks to join a view.
    join_at: Time,
}

impl FlowControl {
    /// Of an application that is not full, and may be full for so long.
    pub(super) const fn new(most: Option<Span>) -> Self {
        Self { most, is_full: false, ask_at: Time::NEVER, join_at: Time::ZERO }
    }

    /// Whether the application takes in nothing.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// The application is full, or no longer.
    pub(super) fn set_full(&mut self, now: Time, is_full: bool) {
        if is_full != self.is_full {
            self.is_full = is_full;
            let most = self.most.filter(|_| is_full);
            self.ask_at = most.map_or(Time::NEVER, |most| now + most);
        }
    }

    /// Whether this process may ask to join.
    pub(super) fn may_join(&self, now: Time) -> bool {
        now >= self.join_at
    }

    /// When the others are asked to continue without this process.
    pub(super) fn deadline(&self, group: &GroupMembership) -> Time {
        if group.phase == ViewPhase::Active { self.ask_at } else { Time::NEVER }
    }

    /// Asks the others to continue without this process, if its application was full for too long.
    pub(super) fn ask_to_go_on(
        &mut self,
        group: &GroupMembership,
        post: &mut OutgoingPackets,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let now = group.now;
        let Some(most) = self.most.filter(|_| self.deadline(group) <= now) else { return };
        self.ask_at = now + group.settings.retry;
        if PrimaryComponent(group).can_spare_this() {
            if self.join_at <= now {
                out.note(Note::TooFull);
            }
            self.join_at = now + most;
            let view = group.decision.view.id;
            group.others().for_each(|to| post.push(to, PacketItem::Leave { view }));
        }
    }
}
