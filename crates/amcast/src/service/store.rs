//! A node's part of a service: the executor of the services as the runtime's application.

use amcast_core::{Gid, MsgId};
use amcast_runtime::application::{Application, Command, Figures, Wake};
use amcast_services::kv::Kv;
use amcast_services::log::{Logs, NODE_BYTES};
use amcast_services::{
    Executor, Full, Holds, Limits, Machine, State, StateMachine, StoreAndLog, Whole,
};
use std::io::{self, Read};
use std::sync::OnceLock;

/// Keys the hashes that `SCAN` walks by. The same on every node; clients of one user on one machine
/// are trusted not to craft keys against it.
const SCAN_SEED: u64 = 0x616d_6361_7374_6b76;

/// A service that nodes can be made of: it follows from the number of shards alone, so that the same
/// is made on every node.
pub trait Hosted: Machine + Sized {
    /// The service over `shards` empty shards.
    fn over(shards: usize) -> Self;
}

/// The logs of this process, which is one node: a node's state is made anew wherever it is read.
static LOGS: OnceLock<Logs> = OnceLock::new();

/// Has the logs of [`StoreAndLog`] be these, in this process. Once, before its node starts.
pub fn host_logs(logs: Logs) {
    assert!(LOGS.set(logs).is_ok(), "a process is one node");
}

impl Hosted for StoreAndLog {
    fn over(shards: usize) -> Self {
        let logs = LOGS.get_or_init(|| Logs::new(shards, NODE_BYTES)).clone();
        Self::new(Kv::new(shards, SCAN_SEED), logs)
    }
}

impl<S: StateMachine> Hosted for Whole<S> {
    fn over(_shards: usize) -> Self {
        Self::default()
    }
}

/// One node's shards of a service.
pub struct ServiceNode<M: Machine> {
    executor: Executor<M>,
    /// Threads that execute commands; without any, the node's own does.
    workers: usize,
}

impl<M: Hosted> ServiceNode<M> {
    /// `shards` empty shards, in which commands that do not conflict are executed by `workers`
    /// threads, or by the node's own if there are none.
    pub fn new(shards: usize, workers: usize) -> Self {
        Self { executor: Executor::new(M::over(shards), shards, Limits::default()), workers }
    }
}

impl<M: Hosted> Application for ServiceNode<M> {
    type State = State<M>;

    fn begin(&mut self, wake: Wake) -> io::Result<()> {
        self.executor.employ(self.workers, wake)
    }

    fn deliver(&mut self, command: Command<'_>, answer: &mut dyn FnMut(MsgId, &[u8])) -> bool {
        let Command { group, position, msg, dst, payload } = command;
        let taken = self.executor.deliver(group, position, msg, dst, payload, &mut |a| {
            answer(a.id, a.bytes);
        });
        match taken {
            Ok(_) => true,
            Err(Full) => false,
        }
    }

    fn collect(&mut self, answer: &mut dyn FnMut(MsgId, &[u8])) -> bool {
        self.executor.collect(&mut |a| answer(a.id, a.bytes))
    }

    fn applied(&self, group: Gid) -> u64 {
        self.executor.applied(group)
    }

    fn delivered(&self, group: Gid) -> u64 {
        self.executor.delivered(group)
    }

    fn capture(&mut self) {
        self.executor.capture();
    }

    fn piece(&mut self, most: usize, to: &mut Vec<u8>) -> bool {
        self.executor.piece(most, to)
    }

    fn release(&mut self) {
        self.executor.release();
    }

    fn read(groups: usize, from: &mut dyn Read) -> Result<Self::State, String> {
        State::read(&M::over(groups), groups, from).map_err(|e| e.to_string())
    }

    fn state_delivered(state: &Self::State, group: Gid) -> u64 {
        state.delivered(group)
    }

    fn adopt(&mut self, state: Self::State) -> Self::State {
        self.executor.adopt(state)
    }

    fn figures(&self, group: Gid) -> Figures {
        let Holds { items, expiring, due_ms, .. } = self.executor.holds(group);
        Figures {
            waiting: self.executor.waiting(group) as u64,
            items: items as u64,
            expiring: expiring as u64,
            due_ms,
        }
    }
}
