//! How a gateway's commands reach the replicas, and how the answers come back.

use super::GatewayError;
use super::numbers::CommandNumbers;
use crate::command_bytes::CommandBytes;
use crate::reply_ring::Oversize;
use amcast_core::{GroupSet, Overlay, ServiceAnswer, Span, Time};

/// The progress of a command that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CommandProgress<'a> {
    /// This is the answer, or why that is not sent.
    Answer(Result<ServiceAnswer<'a>, Oversize>),
    /// Its answer, which is large, is on its way: one more piece has arrived.
    Part,
    /// The node that had it will not answer any more: it is to be sent again, before any newer one.
    Lost,
    /// The node did not keep its answer, since too many wait for this gateway: it is to be sent again, and nobody else waits
    /// for that.
    NotKept,
}

/// A command that is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransportCommand<'a> {
    /// Its number.
    pub(super) seq: u64,
    pub(super) dst: GroupSet,
    pub(super) payload: &'a CommandBytes,
    /// It changes nothing, and need not be ordered.
    pub(super) is_read: bool,
}

/// Told what has become of the command that was sent with this number.
pub(super) type OnCommandOutcome<'a> = &'a mut dyn FnMut(u64, CommandProgress<'_>);

/// A way from a gateway to the replicas and back. The gateway's loop owns it.
pub(super) trait ClientTransport: Send {
    /// Called once, before anything else.
    fn begin(&mut self, now: Time);

    /// The numbers that commands may have in this incarnation.
    fn numbers(&self) -> CommandNumbers;

    /// Begins another incarnation, whose numbers are larger than those of this one. Commands that are on their way are lost.
    ///
    /// # Errors
    /// When it cannot begin: there is no room until it has, at a later call.
    fn begin_next_incarnation(&mut self, now: Time) -> Result<(), GatewayError>;

    /// One round: reports arrived answers. Returns whether there was anything to do.
    fn round(&mut self, now: Time, tell: OnCommandOutcome<'_>) -> bool;

    /// How many commands of `bytes` bytes to `dst` it takes now.
    fn room(&self, dst: GroupSet, bytes: usize) -> usize;

    /// Whether it is certain that no node takes commands of this gateway for now. It has sent none then.
    fn is_shut_out(&self) -> bool {
        false
    }

    /// Whether it reports each command that will not be answered ([`CommandProgress::Lost`]).
    fn reports_losses(&self) -> bool;

    /// Takes a command that there is room for. Numbers only grow.
    fn send(&mut self, now: Time, command: TransportCommand<'_>);

    /// Nobody waits for the command of this number any more.
    fn forget(&mut self, seq: u64);

    /// Nobody waits for a command with a lower number than `below` any more.
    fn settle(&mut self, _below: u64) {}

    /// A command that was sent at `since`, or of whose answer a piece came then, waits for long.
    fn is_late(&mut self, _now: Time, _since: Time) {}

    /// Asks for another tree of the groups. Only where the protocol has one that can be changed; over messages none
    /// has.
    fn change_overlay(&mut self, _now: Time, _to: &Overlay) {}

    /// The tree by which it finds the group that orders a message first, and its number, where that can be changed.
    fn overlay(&self) -> Option<(u32, &Overlay)> {
        None
    }

    /// A run of commands is over: what was taken goes out.
    fn flush(&mut self, now: Time);

    /// Writes out what it records.
    fn rest(&mut self);

    /// The loop is about to sleep; it makes one more round before it does.
    fn announce(&mut self);

    /// There was work after all.
    fn stay(&mut self);

    /// Whether there is something to do that nobody will wake the loop for.
    fn is_pressing(&self, now: Time) -> bool;

    /// Sleeps for `at_most`, or until it is time for the next round.
    fn sleep(&mut self, now: Time, at_most: Span);
}
