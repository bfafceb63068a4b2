//! A node's key-value store: the executor of the services as the runtime's application.

use amcast_core::{Gid, MsgId};
use amcast_runtime::application::{Application, Command, Figures, Wake};
use amcast_services::kv::Kv;
use amcast_services::{Executor, Full, Holds, Limits, State};
use std::io::{self, Read};

/// Keys the hashes that `SCAN` walks by. The same on every node; clients of one user on one machine
/// are trusted not to craft keys against it.
const SCAN_SEED: u64 = 0x616d_6361_7374_6b76;

/// The key-value store of one node.
pub struct KvNode {
    executor: Executor<Kv>,
    /// Threads that execute commands; without any, the node's own does.
    workers: usize,
}

impl KvNode {
    /// An empty store of `shards` shards, in which commands that do not conflict are executed by
    /// `workers` threads, or by the node's own if there are none.
    pub fn new(shards: usize, workers: usize) -> Self {
        let executor = Executor::new(Kv::new(shards, SCAN_SEED), shards, Limits::default());
        Self { executor, workers }
    }
}

impl Application for KvNode {
    type State = State<Kv>;

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
        State::read(&Kv::new(groups, SCAN_SEED), groups, from).map_err(|e| e.to_string())
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
