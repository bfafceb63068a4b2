//! The early execution of a simulated node: the shipped [`EarlyReplica`] with a machine that notices each call out of turn.
//!
//! The state of the machine is a hash of all that it has executed, in that order. With each command that is not confirmed it keeps
//! the state before it, which an undo brings back. So the state behind a confirmed command must be that of the deliveries
//! alone, however many commands were executed early and undone.

use amcast_core::MsgId;
use amcast_smr::early::EarlyReplica;
use amcast_smr::{EarlyCommand, EarlyMachine};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The state behind one more command.
const fn behind(state: u64, msg: MsgId) -> u64 {
    let mixed = state.rotate_left(17) ^ (msg.sender.0 as u64) << 48 ^ msg.seq;
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The machine, and the first call that was out of turn.
#[derive(Debug, Default)]
struct EarlyState {
    /// Behind all that is executed.
    state: u64,
    /// The commands that are not confirmed, and the state before each.
    open: VecDeque<(MsgId, u64)>,
    /// Behind all that is confirmed.
    confirmed: u64,
    /// The last command that was confirmed.
    last: Option<MsgId>,
    undone: u64,
    wrong: Option<String>,
}

impl EarlyState {
    fn note(&mut self, is_right: bool, why: impl FnOnce() -> String) {
        if !is_right {
            self.wrong.get_or_insert_with(why);
        }
    }
}

/// The machine of a node, which its checks look into.
#[derive(Clone, Debug, Default)]
struct UndoMachine(Arc<Mutex<EarlyState>>);

impl UndoMachine {
    fn with<T>(&self, act: impl FnOnce(&mut EarlyState) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EarlyMachine for UndoMachine {
    fn execute(&mut self, command: &EarlyCommand<'_>) {
        self.with(|it| {
            it.open.push_back((command.msg, it.state));
            it.state = behind(it.state, command.msg);
        });
    }

    fn undo(&mut self, msg: MsgId) {
        self.with(|it| {
            let last = it.open.pop_back();
            it.note(last.is_some_and(|(of, _)| of == msg), || {
                format!("{msg:?} is undone, and the last one that is executed is {last:?}")
            });
            it.state = last.map_or(it.state, |(_, before)| before);
            it.undone += 1;
        });
    }

    fn confirm(&mut self, msg: MsgId) {
        self.with(|it| {
            let first = it.open.pop_front();
            it.note(first == Some((msg, it.confirmed)), || {
                format!("{msg:?} is confirmed, and the first one that is open is {first:?}")
            });
            it.confirmed = behind(it.confirmed, msg);
            it.last = Some(msg);
            let state = it.open.front().map_or(it.state, |(_, before)| *before);
            it.note(state == it.confirmed, || {
                format!("the early state behind {msg:?} is not that of the deliveries")
            });
        });
    }

    fn lost_its_place(&mut self) {
        self.with(|it| {
            let is_clear = it.open.is_empty() && it.state == it.confirmed;
            it.note(is_clear, || "early commands are left where the place is lost".to_string());
        });
    }
}

/// The early execution of a node.
pub(super) struct CheckedEarly {
    replica: EarlyReplica,
    machine: UndoMachine,
    wrong: Option<String>,
}

impl CheckedEarly {
    /// Of a node that has executed nothing.
    pub(super) fn new() -> Self {
        let machine = UndoMachine::default();
        let replica = EarlyReplica::new(Box::new(machine.clone()));
        Self { replica, machine, wrong: None }
    }

    /// A message is delivered early.
    pub(super) fn early(&mut self, msg: MsgId, payload: &[u8]) {
        self.replica.early(msg, payload);
        self.look();
    }

    /// A message is delivered in its place; `is_command` says whether it carries a command of a client.
    pub(super) fn deliver(&mut self, msg: MsgId, payload: &[u8], is_command: bool) {
        self.replica.deliver(msg, payload);
        if is_command {
            self.machine.with(|it| {
                let last = it.last;
                it.note(last == Some(msg), || {
                    format!("{msg:?} is delivered, and {last:?} was confirmed last")
                });
            });
        }
        self.look();
    }

    /// The node has another state than the one that the deliveries led to.
    pub(super) fn lose_place(&mut self) {
        self.replica.lose_place();
        self.look();
    }

    /// The first call that was out of turn, if there was one.
    pub(super) fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    /// How many commands were undone.
    pub(super) fn undone(&self) -> u64 {
        self.machine.with(|it| it.undone)
    }

    fn look(&mut self) {
        if self.wrong.is_none() {
            self.wrong = self.machine.with(|it| it.wrong.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Pid;

    fn execute(machine: &mut UndoMachine, seq: u64) {
        let command = EarlyCommand { msg: msg(seq), session: 1, request: seq, command: b"" };
        machine.execute(&command);
    }

    const fn msg(seq: u64) -> MsgId {
        MsgId { sender: Pid(1), seq }
    }

    fn wrong(act: impl FnOnce(&mut UndoMachine)) -> Option<String> {
        let mut machine = UndoMachine::default();
        (1..=3).for_each(|seq| execute(&mut machine, seq));
        act(&mut machine);
        machine.with(|it| it.wrong.take())
    }

    #[test]
    fn each_call_out_of_turn_is_noticed() {
        let sound = wrong(|machine| {
            machine.confirm(msg(1));
            machine.undo(msg(3));
            machine.undo(msg(2));
            execute(machine, 3);
            machine.confirm(msg(3));
            machine.lost_its_place();
        });
        assert_eq!(sound, None);
        let out_of_turn: [fn(&mut UndoMachine); 4] = [
            |machine| machine.undo(msg(2)),
            |machine| machine.confirm(msg(2)),
            |machine| machine.lost_its_place(),
            |machine| {
                (1..=3).for_each(|seq| machine.confirm(msg(seq)));
                machine.undo(msg(3));
            },
        ];
        for (at, act) in out_of_turn.into_iter().enumerate() {
            assert!(wrong(act).is_some(), "{at}");
        }
        let mut early = CheckedEarly::new();
        early.deliver(msg(1), b"", true);
        assert!(early.wrong().is_some(), "a command that the machine is never shown");
    }
}
