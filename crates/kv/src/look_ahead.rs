//! Reading what the next keys will be looked for by, before each of them is.
//!
//! To find a key of a large store is to wait for memory at several places, one after the other: its segment, its entry,
//! its value. A batch, and a command of many keys, would wait for all of that once for each key. The reads of different
//! keys do not depend on each other, so the processor has them on the way side by side if they come close together:
//! first all segments, then all entries, then all values. Nothing is changed, and nothing remembered: it is the
//! processor's caches that have what was read.

use super::args::second_arg;
use super::batch::BatchCommands;
use super::data::Data;
use super::registry::{CommandSpec, KeyArguments};
use super::{Context, Store};
use std::hint::black_box;

/// Keys whose reads are on the way side by side: a core has about as many.
const ABREAST: usize = 16;

/// Keys of one command that are read ahead; more would push each other out of the nearest caches.
const KEYS_MAX: usize = 256;

/// Keys that are being read, each with its store and its hash.
#[derive(Default)]
struct LookAhead<'a> {
    keys: [Option<(&'a Store, u64)>; ABREAST],
    len: usize,
}

impl<'a> LookAhead<'a> {
    fn add(&mut self, store: &'a Store, key: &[u8]) {
        let hash = store.hash(key);
        store.touch_segment(hash);
        self.keys[self.len] = Some((store, hash));
        self.len += 1;
        if self.len == ABREAST {
            self.read();
        }
    }

    /// Reads the entries of all keys, and then their values.
    fn read(&mut self) {
        let mut entries = [None; ABREAST];
        let keys = self.keys[..self.len].iter().flatten();
        for (entry, (store, hash)) in entries.iter_mut().zip(keys) {
            *entry = store.touch_entry(*hash);
        }
        for entry in entries.iter().flatten() {
            if let Data::Str(bytes) = &entry.data {
                black_box(bytes.first());
            }
        }
        self.len = 0;
    }
}

/// Reads what the commands of a batch to one shard, which have one key each for the most part, will look for. Those of
/// several shards have several keys, and [each](of_command) reads for itself.
pub(super) fn of_batch(context: &Context<'_>, commands: BatchCommands<'_>) {
    let [store] = &*context.stores else { return };
    if !store.exceeds_caches() {
        return;
    }
    let mut ahead = LookAhead::default();
    commands.filter_map(second_arg).for_each(|key| ahead.add(store, key));
    ahead.read();
}

/// Reads what a command of several keys, all of them in its destinations, will look for.
pub(super) fn of_command(context: &Context<'_>, command: &CommandSpec, args: &[&[u8]]) {
    let KeyArguments::Range { first, last: -1, step } = command.keys else { return };
    if args.len() <= first + step || !context.stores.iter().any(|store| store.exceeds_caches()) {
        return;
    }
    let mut ahead = LookAhead::default();
    for key in args.iter().skip(first).step_by(step).take(KEYS_MAX) {
        ahead.add(context.view(key), key);
    }
    ahead.read();
}
