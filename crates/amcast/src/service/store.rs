//! A node's key-value store: the executor of the services as the runtime's application.

use amcast_core::{Gid, MsgId};
use amcast_runtime::application::{Application, Command, Figures};
use amcast_services::kv::Kv;
use amcast_services::{Executor, Full, Limits, State};
use std::io::Read;

/// Keys the hashes that `SCAN` walks by. The same on every node; clients of one user on one machine
/// are trusted not to craft keys against it.
const SCAN_SEED: u64 = 0x616d_6361_7374_6b76;

/// The key-value store of one node.
pub struct KvNode {
    executor: Executor<Kv>,
}

impl KvNode {
    /// An empty store of `shards` shards.
    pub fn new(shards: usize) -> Self {
        let executor = Executor::new(Kv::new(shards, SCAN_SEED), shards, Limits::default());
        Self { executor }
    }
}

impl Application for KvNode {
    type State = State<Kv>;

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
        State::read(Kv::new(groups, SCAN_SEED), groups, from).map_err(|e| e.to_string())
    }

    fn state_delivered(state: &Self::State, group: Gid) -> u64 {
        state.delivered(group)
    }

    fn adopt(&mut self, state: Self::State) -> Self::State {
        self.executor.adopt(state)
    }

    fn figures(&self, group: Gid) -> Figures {
        let (items, expiring) = self.executor.machine().keys(group);
        Figures {
            waiting: self.executor.waiting(group) as u64,
            items: items as u64,
            expiring: expiring as u64,
        }
    }
}
