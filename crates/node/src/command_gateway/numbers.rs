//! The numbers of a gateway's commands.
//!
//! Where a gateway has a process of the protocol, its commands' numbers are those of its messages: no two messages of a
//! process have one number, so each incarnation of it has numbers of its own, and a last one. Before that is reached the
//! gateway sends nothing new, waits until no command is on its way, and has its process begin the next incarnation
//! ([`super::GatewayLoop::has_numbers`]).

use super::GatewayLoop;
use amcast_core::limits::NUMBER_BITS;
use amcast_core::{Span, Time};

/// As many numbers of an incarnation are kept for commands that are sent again while the last ones wait for their answers.
const KEPT: u64 = 1 << 20;

/// How long new commands wait for those that are on their way. One to a group without a majority has no answer for long.
const DRAIN_MAX: Span = Span::secs(1);

/// How long after the next incarnation could not begin that is tried again.
const BEGIN_AGAIN: Span = Span::millis(500);

/// The numbers of the commands of one incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CommandNumbers {
    /// The next one.
    next: u64,
    /// From here on only commands that were sent before are sent again.
    last_new: u64,
    /// The first number that is not of this incarnation any more.
    end: u64,
}

impl CommandNumbers {
    /// Those of one incarnation of a client process.
    pub(super) fn of_incarnation(incarnation: u32) -> Self {
        let first = u64::from(incarnation) << NUMBER_BITS;
        let end = first + (1 << NUMBER_BITS);
        Self { next: first + 1, last_new: end - KEPT, end }
    }

    /// Those of a gateway without a process of the protocol, which are not used up.
    pub(super) const fn endless() -> Self {
        Self { next: 1, last_new: u64::MAX, end: u64::MAX }
    }

    /// The number that the next command will have.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Takes the next one.
    pub(super) const fn take(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Whether no new command may be sent any more.
    const fn are_used_up(&self) -> bool {
        self.next >= self.last_new
    }

    /// Whether no command may be sent again either.
    pub(super) const fn are_at_end(&self) -> bool {
        self.next >= self.end
    }

    /// As after so many commands that only `left` new ones may be sent.
    #[cfg(test)]
    pub(super) const fn skip_to_last(&mut self, left: u64) {
        self.next = self.last_new - left;
    }
}

/// The change of a gateway's process to its next incarnation, once the numbers of this one are used up.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumbersUsedUp {
    /// When it begins at the latest, if nothing is on its way before.
    pub(super) at: Time,
    /// Whether it could not begin: then it is not tried before that.
    has_failed: bool,
}

impl GatewayLoop {
    /// Whether there are numbers for new commands. Where they are used up, the next incarnation begins as soon as nothing is
    /// on its way, or after [`DRAIN_MAX`]: what is on its way then is sent again.
    pub(super) fn has_numbers(&mut self, now: Time) -> bool {
        if !self.numbers.are_used_up() {
            return true;
        }
        let first = NumbersUsedUp { at: now + DRAIN_MAX, has_failed: false };
        let due = *self.used_up.get_or_insert(first);
        if now < due.at && (due.has_failed || !self.sent.open.is_empty()) {
            return false;
        }
        match self.transport.begin_next_incarnation(now) {
            Ok(()) => {
                self.numbers = self.transport.numbers();
                self.used_up = None;
                // In their order, before all others. A command that both incarnations send is executed once.
                self.lost.extend(self.sent.open.keys());
                tracing::info!(
                    "a gateway's numbers were used up: its process has begun its next incarnation"
                );
                self.lost.is_empty()
            }
            Err(e) => {
                if !due.has_failed {
                    tracing::warn!(
                        "a gateway's numbers are used up, and its next incarnation cannot begin yet: {e}"
                    );
                }
                self.used_up = Some(NumbersUsedUp { at: now + BEGIN_AGAIN, has_failed: true });
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
