//! Runs ordered commands over the shards of one node.
//!
//! A node hosts a replica of every shard. Each replica delivers a stream of commands; a command
//! with several destinations is in the stream of each, in mutually consistent order. The executor
//! is fed with these streams ([`Executor::deliver`]) and runs each command once: a command of one
//! shard when nothing in front of it in that shard conflicts with it, a command of several shards
//! when that holds in *all* its shards, which needs its delivery in all of them (the rendezvous).
//! It then runs at one moment over all their stores.
//!
//! # Why this is linearizable
//!
//! Atomic multicast alone gives an acyclic order of commands, not one that agrees with real time
//! across shards. The anomaly: a writer sets `x` in shard A and `y` in shard B with one command
//! `w`. Replica a of A delivers `w`; a reader reads the new `x` there and then, after that answer,
//! reads `y` at a replica b of B which has not delivered `w` yet, and sees the old value: the
//! second read takes effect before `w`, though the first, which ended before it began, took effect
//! after `w`. Replicas of a command of several shards must therefore hear from the other shards
//! before they let anyone see it [MRP 3]. Here they hear from the replicas beside them in the same
//! node: `w` has an effect at a node only once this node has seen `w` *ordered in every
//! destination*, and whatever conflicts with `w` waits behind it. So when a read returns the new
//! `x`, `w` already has its position in B's stream, fixed in front of every command that is
//! multicast later; the later read of `y` gets a later position, whichever node answers it. The
//! same holds for chains over more shards: each answer is given only when all positions of all
//! commands that it depends on are fixed, so a command called after an answer is ordered behind
//! them in every shard where they conflict.
//!
//! # What runs out of order
//!
//! A command that conflicts with nothing that waits in front of it runs at once. Two commands
//! conflict if they share a key that one of them may write, or if one of them touches whole
//! shards and they share a shard. Replicas may therefore run non-conflicting commands in different
//! orders; nothing a machine answers may depend on that.
//!
//! # Limits
//!
//! Each shard holds at most [`Limits::waiting`] waiting commands with [`Limits::waiting_bytes`]
//! bytes; beyond this `deliver` refuses and the node stops taking from that shard's stream. The
//! streams of other shards go on, and since the order is acyclic one of them brings what the full
//! shard waits for.

mod sessions;
mod snapshot;
#[cfg(test)]
mod tests;
mod waiting;

pub use snapshot::State;

use crate::envelope::Envelope;
use crate::machine::{At, Machine, Place, Refusal};
use amcast_core::{Gid, GroupSet, MsgId};
use sessions::{Sessions, Verdict};
use snapshot::Cut;
use waiting::Entry;

/// How much an executor may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Commands that wait in one shard.
    pub waiting: usize,
    /// Bytes of commands that wait in one shard.
    pub waiting_bytes: usize,
    /// Open requests of one session whose answers are kept.
    pub window: u64,
    /// Bytes of answers kept per shard.
    pub answer_bytes: usize,
    /// How long an idle session is remembered, in milliseconds of ordered time. A command that was
    /// first sent longer ago is refused, because whether it ran before is no longer known. All
    /// nodes of a cluster need the same value.
    pub session_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: 8192,
            waiting_bytes: 64 << 20,
            window: 1024,
            answer_bytes: 64 << 20,
            session_ms: 600_000,
        }
    }
}

/// What became of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivered {
    /// The command ran, or waits to run.
    Taken,
    /// The position was delivered before, or is covered by the adopted state.
    Old,
    /// The payload is not a command of this format: it takes its place in the order and does
    /// nothing.
    Malformed,
}

/// The shard holds as much as it may: deliver the same again after other shards delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("too many commands wait in this shard")
    }
}

impl core::error::Error for Full {}

/// The answer to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'a> {
    /// The message that carried the command; its sender is the front that asked.
    pub id: MsgId,
    /// The client's session.
    pub session: u64,
    /// The request in that session.
    pub request: u64,
    /// The machine's answer.
    pub bytes: &'a [u8],
}

/// Takes answers as commands run.
pub type OnAnswer<'a> = &'a mut dyn FnMut(Answer<'_>);

/// One shard's side.
struct Shard {
    /// Position of the last command that was taken.
    delivered: u64,
    /// Ordered time there.
    now_ms: u64,
    /// Commands that ran, retried ones included.
    executed: u64,
    sessions: Sessions,
}

/// Runs the commands of one node's shards; see the module's documentation.
pub struct Executor<M> {
    limits: Limits,
    state: State<M>,
    /// The cut that is being given.
    cut: Option<Box<Cut>>,
    /// Reused for each answer.
    scratch: Vec<u8>,
}

impl<M: Machine> Executor<M> {
    /// An executor over `shards` empty shards of `machine`.
    pub fn new(machine: M, shards: usize, limits: Limits) -> Self {
        Self { limits, state: State::new(machine, shards), cut: None, scratch: Vec::new() }
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.state.machine
    }

    /// The position of the last command up to which `shard` executed everything; 0 before the first
    /// one. It is always a position that was delivered: streams may leave out numbers, and who keeps
    /// the stream need not know what a number between two commands means.
    pub fn applied(&self, shard: Gid) -> u64 {
        let delivered = self.state.shards[shard.index()].delivered;
        self.state.lanes.first_waiting(shard).map_or(delivered, |since| since.before)
    }

    /// The position of the last command that `shard` took; it and all before it need not be
    /// delivered again to a node that has this one's state.
    pub fn delivered(&self, shard: Gid) -> u64 {
        self.state.shards[shard.index()].delivered
    }

    /// Ordered time at `shard`, milliseconds since 1970.
    pub fn now_ms(&self, shard: Gid) -> u64 {
        self.state.shards[shard.index()].now_ms
    }

    /// How many commands ran in `shard`; one of several shards counts in its lowest one.
    pub fn executed(&self, shard: Gid) -> u64 {
        self.state.shards[shard.index()].executed
    }

    /// How many commands wait in `shard`.
    pub fn waiting(&self, shard: Gid) -> usize {
        self.state.lanes.waiting(shard)
    }

    /// Takes the next command of `shard`'s stream, and runs what can run. `position` grows along
    /// the stream, from 1; a replayed one is skipped. `dst` must contain `shard`.
    ///
    /// # Errors
    /// When the shard holds too much; the command was not taken.
    pub fn deliver(
        &mut self,
        shard: Gid,
        position: u64,
        id: MsgId,
        dst: GroupSet,
        payload: &[u8],
        on_answer: OnAnswer<'_>,
    ) -> Result<Delivered, Full> {
        assert!(dst.contains(shard) && dst.within(GroupSet::first(self.state.shards.len())));
        let mine = &mut self.state.shards[shard.index()];
        if position <= mine.delivered {
            return Ok(Delivered::Old);
        }
        let Some((envelope, body)) = Envelope::decode(payload) else {
            mine.delivered = position;
            return Ok(Delivered::Malformed);
        };
        let now_ms = mine.now_ms.max(envelope.stamp_ms);
        let place = Place { shard, position, now_ms };
        if dst.len() == 1 && self.state.lanes.waiting(shard) == 0 {
            let floor = self.took(place, dst, &envelope).unwrap_or(0);
            self.run((id, dst), &[place], floor, payload, on_answer);
            return Ok(Delivered::Taken);
        }
        if self.state.lanes.waiting(shard) >= self.limits.waiting
            || self.state.lanes.waiting_bytes(shard) + payload.len() > self.limits.waiting_bytes
        {
            return Err(Full);
        }
        let before = self.state.shards[shard.index()].delivered;
        let floor = self.took(place, dst, &envelope);
        let machine = &self.state.machine;
        let ready = self.state.lanes.enter((id, dst), (place, before), floor, payload, |access| {
            machine.access(body, dst, access);
        });
        if let Some(entry) = ready {
            self.run_ready(entry, on_answer);
        }
        Ok(Delivered::Taken)
    }

    /// Notes a delivery; in the command's lowest shard, where its session is kept, the floor for
    /// its retries.
    fn took(&mut self, place: Place, dst: GroupSet, envelope: &Envelope) -> Option<u64> {
        let shard = &mut self.state.shards[place.shard.index()];
        (shard.delivered, shard.now_ms) = (place.position, place.now_ms);
        let home = dst.lowest() == Some(place.shard) && !envelope.read_only;
        home.then(|| shard.sessions.admit(envelope, place.now_ms))
    }

    /// Runs a waiting command and, one after the other, all that only waited for those that ran.
    fn run_ready(&mut self, ticket: u64, on_answer: OnAnswer<'_>) {
        let mut ready = vec![ticket];
        while let Some(ticket) = ready.pop() {
            let entry = self.state.lanes.leave(ticket, &mut ready);
            let Entry { id, dst, mut places, payload, floor, .. } = entry;
            places.sort_by_key(|p| p.shard);
            self.run((id, dst), &places, floor, &payload, on_answer);
        }
    }

    /// Runs a command, unless its session says that it ran before.
    fn run(
        &mut self,
        (id, dst): (MsgId, GroupSet),
        places: &[Place],
        floor: u64,
        payload: &[u8],
        on_answer: OnAnswer<'_>,
    ) {
        let (envelope, body) = Envelope::decode(payload).expect("it was decoded when it came");
        // Each command's session is kept in its lowest shard; a retry has the same destinations.
        let applied = self.applied(places[0].shard);
        let home = &mut self.state.shards[places[0].shard.index()];
        let Envelope { session, request, .. } = envelope;
        let verdict = if envelope.read_only {
            Verdict::New
        } else {
            home.sessions.check(&envelope, floor, places[0].now_ms, &self.limits)
        };
        self.scratch.clear();
        match verdict {
            Verdict::Done(bytes) => on_answer(Answer { id, session, request, bytes }),
            Verdict::Refused(why) => {
                self.state.machine.refuse(why, &mut self.scratch);
                on_answer(Answer { id, session, request, bytes: &self.scratch });
            }
            Verdict::New => {
                self.state.machine.apply(&At { id, dst, places }, body, &mut self.scratch);
                home.executed += 1;
                if !envelope.read_only {
                    let progress = (applied, home.delivered);
                    home.sessions.record(&envelope, &self.scratch, progress, &self.limits);
                }
                on_answer(Answer { id, session, request, bytes: &self.scratch });
            }
        }
        for place in places {
            let shard = &mut self.state.shards[place.shard.index()];
            // No command that has not run is earlier than this.
            let now_ms =
                self.state.lanes.first_waiting(place.shard).map_or(shard.now_ms, |w| w.now_ms);
            self.state.machine.tidy(place.shard, now_ms);
            shard.sessions.tidy(now_ms, &self.limits);
        }
    }
}

impl Refusal {
    /// Whether sending the same command again may help.
    pub const fn may_retry(self) -> bool {
        matches!(self, Self::Window)
    }
}
