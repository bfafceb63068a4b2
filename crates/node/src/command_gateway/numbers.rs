//! The numbers of a gateway's commands.
//!
//! Where a gateway has a process of the protocol, its commands' numbers are those of its messages: no two messages of a
//! process have one number, so each life of it has numbers of its own, and a last one. Before that is reached the gateway
//! sends nothing new, waits until nothing is on its way, and begins another life ([`super::GatewayLoop::has_numbers`]).

use super::GatewayLoop;
use amcast_core::{Span, Time};

/// Bits of a number that count within a life.
const LIFE_BITS: u32 = 32;

/// As many numbers of a life are kept for commands that are sent again while the last ones wait for their answers.
const KEPT: u64 = 1 << 20;

/// How long after the next life could not begin that is tried again.
const BEGIN_AGAIN: Span = Span::millis(500);

/// The numbers of the commands of one life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CommandNumbers {
    /// The next one.
    next: u64,
    /// From here on only commands that were sent before are sent again.
    last_new: u64,
    /// The first number that is not of this life any more.
    end: u64,
}

impl CommandNumbers {
    /// Those of life `life` of a client process.
    pub(super) fn of_life(life: u32) -> Self {
        let first = u64::from(life) << LIFE_BITS;
        let end = first + (1 << LIFE_BITS);
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

impl GatewayLoop {
    /// Whether there are numbers for new commands. Where they are used up, the next life begins as soon as nothing is on its
    /// way.
    pub(super) fn has_numbers(&mut self, now: Time) -> bool {
        if !self.numbers.are_used_up() {
            return true;
        }
        if !self.sent.open.is_empty() || now < self.begin_again_at {
            return false;
        }
        match self.transport.begin_next_life(now) {
            Ok(()) => {
                self.numbers = self.transport.numbers();
                tracing::info!(
                    "the numbers of this gateway's commands were used up: its next life has begun"
                );
                true
            }
            Err(e) => {
                tracing::warn!(
                    "the numbers of this gateway's commands are used up, and its next life cannot begin: {e}"
                );
                self.begin_again_at = now + BEGIN_AGAIN;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
