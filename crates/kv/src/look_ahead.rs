//! Reading what the next keys will be looked for by, before each of them is.
//!
//! To find a key of a large store is to wait for memory at several places, one after the other: its segment, its entry,
//! its value. The commands of several messages, and a command of many keys, would wait for all of that once for each key.
//! The reads of different keys do not depend on each other, so the processor has them on the way side by side if they come
//! close together: first all segments, then all entries, then all values. Nothing is changed, and nothing remembered: it is
//! the processor's caches that have what was read.

use super::args::second_arg;
use super::data::Data;
use super::registry::{CommandSpec, KeyArguments};
use super::{Context, Store, batch, split_epoch};
use std::hint::black_box;

/// Keys whose reads are on the way side by side: a core has about as many.
const ABREAST: usize = 16;

/// Keys that are read ahead at a time; more would push each other out of the nearest caches.
const KEYS_MAX: usize = 256;

/// Keys that are being read, each with its store.
#[derive(Default)]
struct LookAhead<'a> {
    keys: [Option<(&'a Store, &'a [u8])>; ABREAST],
    len: usize,
}

impl<'a> LookAhead<'a> {
    fn add(&mut self, store: &'a Store, key: &'a [u8]) {
        self.keys[self.len] = Some((store, key));
        self.len += 1;
        if self.len == ABREAST {
            self.read();
        }
    }

    /// Reads the segments of all keys, then their entries, then their values. Nothing else is between the reads, or they
    /// would be too far from each other to be on the way side by side. A single key gains nothing.
    fn read(&mut self) {
        let keys = &self.keys[..std::mem::take(&mut self.len)];
        if keys.len() < 2 {
            return;
        }
        let mut hashed = [None; ABREAST];
        for (place, (store, key)) in hashed.iter_mut().zip(keys.iter().flatten()) {
            *place = Some((*store, store.hash(key)));
        }
        let hashed = hashed.iter().flatten();
        hashed.clone().for_each(|(store, hash)| store.touch_segment(*hash));
        let mut entries = [None; ABREAST];
        for (entry, (store, hash)) in entries.iter_mut().zip(hashed) {
            *entry = store.touch_entry(*hash);
        }
        for entry in entries.iter().flatten() {
            if let Data::Str(bytes) = &entry.data {
                black_box(bytes.first());
            }
        }
    }
}

/// Reads what the commands of the next messages to this store alone will look for. Most of them have one key; one that has
/// several [reads](of_command) the others for itself.
pub(super) fn of_messages(store: &Store, messages: &mut dyn Iterator<Item = &[u8]>) {
    if !store.exceeds_caches() {
        return;
    }
    let mut ahead = LookAhead::default();
    let commands = messages.flat_map(|message| batch::commands(split_epoch(message).1));
    let keys = commands.filter_map(second_arg).take(KEYS_MAX);
    keys.for_each(|key| ahead.add(store, key));
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
