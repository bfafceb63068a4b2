//! Early execution: a machine of one's own beside the replicated state, which executes commands before their place
//! in the order is decided, and undoes them where the order turns out to be another one.
//!
//! The replicated state ([`StateMachine`](crate::StateMachine)) executes commands in their final order alone, and so do
//! the answers to clients. An [`EarlyMachine`] is what else an application has of them: a display, a cache, a
//! prefetch, a computation that takes long. A protocol with the capability
//! [`EarlyDelivery`](amcast_core::Capability::EarlyDelivery) shows each command as soon as the node has it.
//!
//! ```text
//! protocol   a early    b early    b delivered                         a delivered
//! machine    execute a  execute b  undo b, undo a, execute b,          confirm a
//!                                  confirm b, execute a
//! ```

use crate::envelope::Envelope;
use amcast_core::MsgId;
use amcast_core::early::{EarlyAction, TentativeOrder};
use std::collections::BTreeMap;

/// A command that an [`EarlyMachine`] executes.
#[derive(Clone, Copy, Debug)]
pub struct EarlyCommand<'a> {
    /// Its message.
    pub msg: MsgId,
    /// The session and its request, which a client's retry in another message has, too: the replicated state executes it
    /// once.
    pub session: u64,
    /// The number of the request in the session.
    pub request: u64,
    /// The command, as the client gave it.
    pub command: &'a [u8],
}

/// A machine that executes commands early. Called by the node's own thread: it does not block.
///
/// At each time it has executed the confirmed commands in the final order, and behind them those that the node has and
/// whose place is not decided, in the likely order.
pub trait EarlyMachine: Send {
    /// Executes a command, behind all that are executed.
    fn execute(&mut self, command: &EarlyCommand<'_>);

    /// Undoes a command: the last one that is executed and not undone. It is never a confirmed one.
    fn undo(&mut self, msg: MsgId);

    /// The first command that is executed and not confirmed has its final place: what would undo it may be forgotten.
    fn confirm(&mut self, msg: MsgId);

    /// The node has another state than the one that these commands led to: it was excluded, or has missed commands and takes
    /// the state of another node. All commands that are not confirmed are undone before. Confirmed commands from here on are
    /// behind a gap.
    fn lost_its_place(&mut self);
}

/// An [`EarlyMachine`] and the commands that it has executed early.
pub struct EarlyReplica {
    order: TentativeOrder,
    /// The payloads of those, with their envelopes. The windows of their senders bound them.
    payloads: BTreeMap<MsgId, Box<[u8]>>,
    machine: Box<dyn EarlyMachine>,
}

impl EarlyReplica {
    /// One that has executed nothing.
    pub fn new(machine: Box<dyn EarlyMachine>) -> Self {
        Self { order: TentativeOrder::default(), payloads: BTreeMap::new(), machine }
    }

    /// A message is delivered early. Messages that carry no command of a client are none of the machine.
    pub fn early(&mut self, msg: MsgId, payload: &[u8]) {
        if Envelope::decode(payload).is_none() {
            return;
        }
        self.payloads.insert(msg, payload.into());
        let Self { order, payloads, machine } = self;
        order.early(msg, &mut |action| act(&mut **machine, payloads, action));
    }

    /// A message is delivered in its final place.
    pub fn deliver(&mut self, msg: MsgId, payload: &[u8]) {
        if Envelope::decode(payload).is_none() {
            return;
        }
        self.payloads.entry(msg).or_insert_with(|| payload.into());
        let Self { order, payloads, machine } = self;
        order.deliver(msg, &mut |action| act(&mut **machine, payloads, action));
        payloads.remove(&msg);
    }

    /// The node's state is not the one that the commands led to any more: nothing is pending.
    pub fn lose_place(&mut self) {
        let Self { order, payloads, machine } = self;
        order.clear(&mut |action| act(&mut **machine, payloads, action));
        payloads.clear();
        machine.lost_its_place();
    }
}

fn act(machine: &mut dyn EarlyMachine, payloads: &BTreeMap<MsgId, Box<[u8]>>, action: EarlyAction) {
    match action {
        EarlyAction::Execute(msg) => {
            let payload = payloads.get(&msg);
            if let Some((envelope, command)) = payload.and_then(|bytes| Envelope::decode(bytes)) {
                let Envelope { session, request, .. } = envelope;
                machine.execute(&EarlyCommand { msg, session, request, command });
            }
        }
        EarlyAction::Undo(msg) => machine.undo(msg),
        EarlyAction::Confirm(msg) => machine.confirm(msg),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Stamp;
    use amcast_core::Pid;
    use std::sync::{Arc, Mutex};

    /// Writes down its calls.
    #[derive(Clone, Default)]
    struct CallLog(Arc<Mutex<Vec<String>>>);

    impl CallLog {
        fn push(&self, call: String) {
            self.0.lock().unwrap().push(call);
        }
    }

    impl EarlyMachine for CallLog {
        fn execute(&mut self, command: &EarlyCommand<'_>) {
            self.push(format!("execute {}", String::from_utf8_lossy(command.command)));
        }

        fn undo(&mut self, msg: MsgId) {
            self.push(format!("undo {}", msg.seq));
        }

        fn confirm(&mut self, msg: MsgId) {
            self.push(format!("confirm {}", msg.seq));
        }

        fn lost_its_place(&mut self) {
            self.push("lost".to_string());
        }
    }

    fn payload(command: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let stamp = Stamp::default();
        Envelope { session: 1, request: 1, open_from: 1, stamp, read_only: false }
            .encode(&mut bytes);
        bytes.extend(command.bytes());
        bytes
    }

    #[test]
    fn a_command_is_executed_as_the_client_gave_it_and_again_where_the_order_is_another_one() {
        let log = CallLog::default();
        let mut replica = EarlyReplica::new(Box::new(log.clone()));
        let msg = |seq| MsgId { sender: Pid(0), seq };
        replica.early(msg(1), &payload("a"));
        replica.early(msg(2), &payload("b"));
        replica.early(msg(3), b"no command of a client");
        replica.deliver(msg(2), &payload("b"));
        replica.deliver(msg(3), b"no command of a client");
        replica.deliver(msg(1), &payload("a"));
        replica.deliver(msg(4), &payload("late"));
        replica.early(msg(5), &payload("e"));
        replica.lose_place();
        assert!(replica.payloads.is_empty() && replica.order.pending().len() == 0);
        let calls = log.0.lock().unwrap().join(", ");
        let expected = "execute a, execute b, undo 2, undo 1, execute b, confirm 2, execute a, confirm 1, execute late, \
                        confirm 4, execute e, undo 5, lost";
        assert_eq!(calls, expected);
    }
}
