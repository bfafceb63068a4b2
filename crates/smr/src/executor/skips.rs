//! Messages that all replicas skip, by decision of the cluster's operators.
//!
//! A command that ends every process that executes it would end it again at each start. A decision to skip its
//! message has every replica count it as delivered and answer it with [`Refusal::Skipped`](crate::machine::Refusal)
//! in place of executing it. Its session remembers that answer, so a repetition under another message is not
//! executed either.
//!
//! # Why two replicas do not differ
//!
//! The executor's actions are a function of the order and of the decisions, which are given before the first command
//! and stay for its whole life. A state carries which messages are skipped in it
//! ([`ExecutorState`](super::ExecutorState)), from where the first shard takes them, and of every message with a
//! decision it is known whether it is in a state: a decision names one place of it, and a command that was delivered
//! in one shard and did not have its turn is among those that wait. So
//! [`Executor::conflict`](super::Executor::conflict) finds a state in which a message was executed that is to be
//! skipped here, and one in which a message was skipped that is to be executed.
//!
//! No command with a decision is taken before it was [released](super::Executor::release_skip): its
//! host releases it once every node of the cluster is bound to the decision for good. And no
//! message is skipped at another place than its decision names: the executor panics before.
//!
//! Digests that replicas reported before the decision ([`super::digests`]) are no longer compared.

use super::ExecutorState;
use super::snapshot::{SnapshotCommand, SnapshotTop};
use crate::digest::skips_mark;
use crate::machine::{Corrupt, ShardPosition, ShardedMachine};
use crate::stream::StreamReader;
use amcast_core::{Gid, GroupSet, MsgId, SkipDecision};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// The status of a message to be skipped in a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SkipStatus {
    /// It had no turn: it is ahead, or waits.
    Ahead,
    /// It was executed.
    Executed,
    /// It was skipped, or waits to be.
    Skipped,
    /// It waits, and not where the decision says.
    Misplaced,
}

/// The head of a state, in front of the machine's data: it has one format for all services.
#[derive(Debug)]
pub struct StateHead {
    /// The position of the last command that each shard took.
    delivered: Vec<u64>,
    /// Messages that were delivered and had no turn.
    waiting: Vec<SnapshotCommand>,
    skipped: BTreeMap<MsgId, SkipDecision>,
}

impl StateHead {
    /// Reads it from the beginning of what [`Executor::piece`](super::Executor::piece) gave.
    ///
    /// # Errors
    /// When the bytes are damaged, end too early, or are of no version that is known here.
    pub fn read(from: &mut dyn Read) -> Result<Self, Corrupt> {
        let (mut from, shards) = StreamReader::begin(from)?;
        let SnapshotTop { heads, skipped, waiting } = SnapshotTop::read(&mut from, shards)?;
        let delivered = heads.iter().map(|head| head.delivered).collect();
        Ok(Self { delivered, waiting, skipped: by_message(&skipped) })
    }

    /// How many shards it is of.
    pub fn shards(&self) -> usize {
        self.delivered.len()
    }

    /// The position of the last command that `shard` took; 0 if there is no such shard.
    pub fn delivered(&self, shard: Gid) -> u64 {
        self.delivered.get(shard.index()).copied().unwrap_or(0)
    }

    /// The status of the message of `decision` in the state.
    pub fn skip_status(&self, decision: &SkipDecision) -> SkipStatus {
        let there =
            |w: &SnapshotCommand| place_in(decision.group, w.places.iter().map(|(place, _)| place));
        let waiting = self.waiting.iter().map(|w| (w.id, w.dst, there(w)));
        stands(decision, self.delivered(decision.group), waiting, &self.skipped)
    }

    /// The messages skipped in it, or waiting to be, in ascending order.
    pub fn skipped(&self) -> impl Iterator<Item = SkipDecision> {
        self.skipped.values().copied()
    }
}

/// Where a command is in a group, of its places so far.
fn place_in<'a>(group: Gid, mut places: impl Iterator<Item = &'a ShardPosition>) -> Option<u64> {
    places.find(|place| place.shard == group).map(|place| place.position)
}

/// Whether the command `id` to `dst`, which is there in the decision's group if it is anywhere in it yet, can
/// be in a cluster in which the decision is right.
fn fits(decision: &SkipDecision, id: MsgId, dst: GroupSet, there: Option<u64>) -> bool {
    let is_there = there == Some(decision.position);
    match id == decision.msg {
        true => dst.contains(decision.group) && (there.is_none() || is_there),
        false => !is_there,
    }
}

/// The status of a message in a state: `waiting` are the commands that wait in it, their
/// destinations, and their positions in the decision's group.
fn stands(
    decision: &SkipDecision,
    delivered: u64,
    waiting: impl Iterator<Item = (MsgId, GroupSet, Option<u64>)>,
    skipped: &BTreeMap<MsgId, SkipDecision>,
) -> SkipStatus {
    let mut is_waiting = false;
    for (id, dst, there) in waiting {
        if !fits(decision, id, dst, there) {
            return SkipStatus::Misplaced;
        }
        is_waiting |= id == decision.msg;
    }
    if skipped.contains_key(&decision.msg) {
        SkipStatus::Skipped
    } else if delivered < decision.position || is_waiting {
        SkipStatus::Ahead
    } else {
        SkipStatus::Executed
    }
}

pub(super) fn by_message(decisions: &[SkipDecision]) -> BTreeMap<MsgId, SkipDecision> {
    decisions.iter().map(|decision| (decision.msg, *decision)).collect()
}

/// The messages that an executor skips.
#[derive(Default)]
pub(super) struct SkipSet {
    decided: BTreeMap<MsgId, SkipDecision>,
    /// See [`skips_mark`].
    mark: u64,
    released: BTreeSet<MsgId>,
    /// Those that were skipped in the state in force, or wait in it to be.
    done: BTreeMap<MsgId, SkipDecision>,
    /// Those that wait in the state in force and were not released: nothing is taken before they are.
    held: BTreeSet<MsgId>,
    /// One that was offered and was not released since, even if others were offered behind it.
    reached: Option<MsgId>,
}

impl SkipSet {
    /// Whether the command may be taken. Panics where a decision is wrong, before its message is
    /// executed: the node must not continue.
    pub(super) fn admits(
        &mut self,
        (shard, position): (Gid, u64),
        id: MsgId,
        dst: GroupSet,
    ) -> bool {
        if self.decided.is_empty() {
            return true;
        }
        let there = |d: &SkipDecision| Some(position).filter(|_| d.group == shard);
        if let Some(wrong) = self.decided.values().find(|d| !fits(d, id, dst, there(d))) {
            panic!(
                "the decision to skip {wrong} is wrong: {shard} has {id:?} at position {position}. Nothing was \
                 executed there; take the decision back at all nodes with `amcast log-file skip --undo`"
            );
        }
        let is_held = |id: &MsgId| self.decided.contains_key(id) && !self.released.contains(id);
        let held = self.held.first().copied().or(Some(id).filter(is_held));
        self.reached = self.reached.or(held);
        held.is_none()
    }

    /// Whether a command is skipped that is being taken, or is at its turn.
    pub(super) fn takes(&mut self, id: MsgId) -> bool {
        let Some(decision) = self.decided.get(&id) else { return false };
        assert!(self.released.contains(&id), "{decision} was taken before it was released");
        self.done.insert(id, *decision);
        true
    }

    /// Whether it is to be skipped.
    pub(super) fn has(&self, id: MsgId) -> bool {
        self.decided.contains_key(&id)
    }

    /// One number for what is decided: see [`skips_mark`].
    pub(super) const fn mark(&self) -> u64 {
        self.mark
    }

    pub(super) fn done(&self) -> Vec<SkipDecision> {
        self.done.values().copied().collect()
    }
}

impl<M: ShardedMachine> super::Executor<M> {
    /// Has these messages skipped; each with whether it is released already. Called once, before the first
    /// command and before any state is put in force. The same on all nodes.
    ///
    /// # Errors
    /// When a decision names a shard that there is not.
    pub fn skip(&mut self, decisions: &[(SkipDecision, bool)]) -> Result<(), String> {
        for (decision, is_released) in decisions {
            if decision.group.index() >= self.heads.len() {
                let shards = self.heads.len();
                return Err(format!("{decision} is of a cluster with more than {shards} shards"));
            }
            self.skips.decided.insert(decision.msg, *decision);
            if *is_released {
                self.skips.released.insert(decision.msg);
            }
        }
        self.skips.mark = skips_mark(self.skips.decided.keys().copied());
        Ok(())
    }

    /// The message that is next in some shard and is skipped once it is released.
    pub fn at_skip(&self) -> Option<MsgId> {
        self.skips.reached
    }

    /// Has a message skipped when its turn comes: every node is bound to the decision.
    pub fn release_skip(&mut self, msg: MsgId) {
        self.skips.released.insert(msg);
        self.skips.reached = None;
        if self.skips.held.remove(&msg) {
            self.skips.takes(msg);
            self.skips.reached = self.skips.held.first().copied();
        }
    }

    /// The messages skipped in the installed state, or waiting in it to be, in ascending order.
    pub fn skipped(&self) -> impl Iterator<Item = SkipDecision> {
        self.skips.done.values().copied()
    }

    /// Why `state` must not be put in force here, if the messages that were skipped on the way to it are not
    /// those that are skipped here.
    pub fn conflict(&self, state: &ExecutorState<M>) -> Option<String> {
        for decision in self.skips.decided.values() {
            let (group, delivered) =
                (decision.group, state.heads[decision.group.index()].delivered);
            let waiting =
                state.lanes.iter().map(|e| (e.id, e.dst, place_in(group, e.places.iter())));
            match stands(decision, delivered, waiting, &state.skipped) {
                SkipStatus::Ahead | SkipStatus::Skipped => {}
                SkipStatus::Executed => {
                    return Some(format!(
                        "{decision} was executed in it ({group} is at {delivered}), and this node has the \
                         decision to skip that message"
                    ));
                }
                SkipStatus::Misplaced => {
                    return Some(format!(
                        "the decision to skip {decision} is wrong: a command that waits in it says so. Take the \
                         decision back at all nodes with `amcast log-file skip --undo`"
                    ));
                }
            }
        }
        let unknown = state.skipped.values().find(|done| !self.skips.has(done.msg))?;
        Some(format!(
            "{unknown} was skipped in it, and this node has no decision to skip that message"
        ))
    }

    /// The state in force is another one.
    pub(super) fn skips_of_state(
        &mut self,
        skipped: BTreeMap<MsgId, SkipDecision>,
    ) -> BTreeMap<MsgId, SkipDecision> {
        let Self { skips, lanes, .. } = self;
        let waiting = lanes.iter().map(|entry| entry.id);
        skips.held = waiting.filter(|id| skips.has(*id) && !skips.released.contains(id)).collect();
        skips.reached = skips.held.first().copied();
        std::mem::replace(&mut skips.done, skipped)
    }
}
