//! A node's key-value store: the executor of the services as the runtime's application.

use amcast_core::codec::{Codec, Reader, put_bytes};
use amcast_core::{Gid, MsgId};
use amcast_runtime::application::{Application, Command, Figures};
use amcast_services::kv::Kv;
use amcast_services::{Chunk, Executor, Full, Limits};

/// Keys the hashes that `SCAN` walks by. The same on every node; clients of one user on one machine
/// are trusted not to craft keys against it.
const SCAN_SEED: u64 = 0x616d_6361_7374_6b76;

/// The key-value store of one node.
pub struct KvNode {
    executor: Executor<Kv>,
    shards: usize,
}

impl KvNode {
    /// An empty store of `shards` shards.
    pub fn new(shards: usize) -> Self {
        let executor = Executor::new(Kv::new(shards, SCAN_SEED), shards, Limits::default());
        Self { executor, shards }
    }
}

impl Application for KvNode {
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

    fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in self.executor.snapshot() {
            chunk.shard.encode(&mut out);
            chunk.position.encode(&mut out);
            put_bytes(&chunk.bytes, &mut out);
        }
        out
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        let mut from = Reader::new(snapshot);
        let mut chunks = Vec::new();
        while !from.is_empty() {
            let mut chunk = || {
                let shard = Gid::decode(&mut from)?;
                let position = u64::decode(&mut from)?;
                Ok(Chunk { shard, position, bytes: from.bytes()?.to_vec() })
            };
            let chunk = chunk().map_err(|e: amcast_core::codec::CodecError| e.to_string())?;
            chunks.push(chunk);
        }
        let empty = Kv::new(self.shards, SCAN_SEED);
        self.executor =
            Executor::restore(empty, &chunks, Limits::default()).map_err(|e| e.to_string())?;
        Ok(())
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
