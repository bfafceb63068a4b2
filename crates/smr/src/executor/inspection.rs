//! State of the executor that tests over a real service inspect, and break on purpose.

pub use super::mutant::{ExecutorMutant, with};
pub use super::parts::keep_less;

use super::{Engine, Executor, ExecutorState, ShardHead};
use crate::machine::ShardedMachine;
use amcast_core::Gid;
use std::fmt::Write;

/// How long parts are kept behind the last one, in milliseconds of ordered time.
pub const PARTS_MS: u64 = super::parts::PARTS_MS;

/// Bytes of parts that a shard keeps, and that one session may have, where a test [has less kept](keep_less).
pub const BYTES_MAX_IN_TESTS: (usize, usize) = super::parts::BYTES_MAX_IN_TESTS;

/// The largest single advance of lived time, in milliseconds.
pub const LEAP_MS: u64 = super::LEAP_MS;

/// How long requests of a session are refused that follow one whose stamp was too far ahead, in milliseconds of lived time.
pub const HELD_MS: u64 = super::sessions::HELD_MS;

/// Changes one shard's data, as no command does.
pub fn change_part<M: ShardedMachine>(
    executor: &mut Executor<M>,
    shard: Gid,
    change: impl FnOnce(&mut M::Part),
) {
    if let Engine::Here(sides) = &mut executor.engine {
        change(&mut sides[shard.index()].part);
    }
}

/// Has an executor forget the requests that its sessions ran, as no replica may.
pub fn forget_sessions<M: ShardedMachine>(executor: &mut Executor<M>) {
    if let Engine::Here(sides) = &mut executor.engine {
        sides.iter_mut().for_each(|side| side.sessions.table.clear());
    }
}

/// Lets reads overtake the commands that workers have not come to, as they may not.
pub fn let_reads_jump<M: ShardedMachine>(executor: &mut Executor<M>, jumps: bool) {
    if let Engine::Pool(pool) = &mut executor.engine {
        pool.jumps = jumps;
    }
}

/// Whether workers have run all that they were given of a shard.
///
/// # Panics
/// Where there are no workers.
pub fn is_done<M: ShardedMachine>(executor: &Executor<M>, shard: Gid) -> bool {
    let Engine::Pool(pool) = &executor.engine else { panic!("it has workers") };
    pool.is_done(shard.index())
}

/// The sessions that a shard knows.
pub fn known_sessions<M: ShardedMachine>(executor: &Executor<M>, shard: Gid) -> Vec<u64> {
    executor.heads[shard.index()].floors.table.keys().copied().collect()
}

/// How many requests of a session a shard has refused by their stamps and still knows of.
pub fn untimely<M: ShardedMachine>(executor: &Executor<M>, shard: Gid, session: u64) -> usize {
    executor.heads[shard.index()].floors.table[&session].untimely.len()
}

/// By how much the ordered time of each shard leapt, in milliseconds.
pub fn leapt_ms<M: ShardedMachine>(executor: &Executor<M>) -> Vec<u64> {
    executor.heads.iter().map(|head| head.leapt_ms).collect()
}

/// The shards' data alone.
pub fn dump_parts<M: ShardedMachine>(
    executor: &Executor<M>,
    show: impl Fn(&M::Part) -> String,
) -> String {
    let Engine::Here(sides) = &executor.engine else { return String::new() };
    sides.iter().map(|side| show(&side.part)).collect()
}

/// All that a snapshot should hold, told in another way than the snapshot does.
///
/// # Panics
/// Never: a string takes all that is written.
pub fn dump<M: ShardedMachine>(
    executor: &Executor<M>,
    show: impl Fn(&M::Part) -> String,
) -> String {
    let Engine::Here(sides) = &executor.engine else { return String::new() };
    let mut out = String::new();
    for (h, s) in executor.heads.iter().zip(sides) {
        let mut sessions: Vec<_> = s.sessions.table.iter().collect();
        sessions.sort_by_key(|(key, _)| **key);
        let mut floors: Vec<_> = h.floors.table.iter().collect();
        floors.sort_by_key(|(id, _)| **id);
        let sum = s.sessions.answer_bytes;
        out += &show(&s.part);
        write!(out, "{} {:?} {} ", h.delivered, h.now, h.leapt_ms).expect("a string");
        write!(out, "{sum} {sessions:?}{floors:?}").expect("a string");
        out += &h.parts.dump();
    }
    let mut waiting: Vec<_> = executor.lanes.iter().collect();
    waiting.sort_by_key(|e| e.id);
    for e in waiting {
        let mut places = e.places.clone();
        places.sort_by_key(|p| p.shard);
        write!(out, "{:?} {} {:?} {places:?} {:?}", e.id, e.dst.0, e.admission, e.payload)
            .expect("a string");
    }
    out
}

/// The contents of a state: each shard's data and position, and the skipped messages.
pub fn dump_state<M: ShardedMachine>(
    state: &ExecutorState<M>,
    show: impl Fn(&M::Part) -> String,
) -> String {
    let shards = state.heads.iter().zip(&state.sides);
    let shards = shards.map(|(head, side): (&ShardHead, _)| {
        format!("{} {:?} {}", head.delivered, head.now, show(&side.part))
    });
    let shards: Vec<String> = shards.collect();
    format!("{shards:?} {:?}", state.skipped)
}
