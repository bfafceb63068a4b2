//! The key-value store: a state machine over shards that speaks Redis's commands.

pub(crate) mod args;
pub mod client;
pub(crate) mod commands;
mod data;
mod glob;
pub(crate) mod hash;
pub(crate) mod number;
mod ranked;
pub mod registry;
pub mod reply;
pub(crate) mod slots;
mod snapshot;
mod store;
mod walk;

pub use args::{decode_args, encode_args, encoded_len};
pub use slots::{SLOTS, SlotMap, slot};

use crate::machine::{Access, At, Corrupt, Machine, Refusal, Use};
use crate::stream::{Piece, Source};
use amcast_core::rng::Rng;
use amcast_core::{Gid, GroupSet, MsgId};
use data::{Data, Kind};
use hash::hash_bytes;
use registry::{Command, Keys, Run, lookup};
use reply::{Error, Reply};
use store::{Entry, Store};

/// Expired keys that are dropped after each command.
const TIDY_KEYS: usize = 4;

/// The store: the data of every shard of one node.
pub struct Kv {
    map: SlotMap,
    seed: u64,
    stores: Vec<Store>,
}

impl Kv {
    /// An empty store of `shards` shards. `seed` keys the hashes that `SCAN` walks by, so it must
    /// be the same on all nodes of a cluster and should not be known outside.
    pub fn new(shards: usize, seed: u64) -> Self {
        Self {
            map: SlotMap::new(shards),
            seed,
            stores: (0..shards).map(|_| Store::new(seed)).collect(),
        }
    }

    /// All that a cut should hold, told in another way.
    #[cfg(test)]
    pub(crate) fn dump(&self) -> String {
        self.stores.iter().map(Store::dump).collect()
    }

    /// Keys held by `shard`, and how many of them will expire.
    pub fn keys(&self, shard: Gid) -> (usize, usize) {
        let store = &self.stores[shard.index()];
        (store.len(), store.expiring())
    }
}

/// What a running command sees.
pub struct Context<'a> {
    map: SlotMap,
    stores: &'a mut [Store],
    dst: GroupSet,
    id: MsgId,
    chance: Option<Rng>,
}

impl Context<'_> {
    /// The store of `key`'s shard.
    pub(crate) fn store(&mut self, key: &[u8]) -> &mut Store {
        &mut self.stores[self.map.of_key(key).index()]
    }

    /// The same, only to read.
    pub(crate) fn view(&self, key: &[u8]) -> &Store {
        &self.stores[self.map.of_key(key).index()]
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<&Entry> {
        self.view(key).find(key)
    }

    pub(crate) fn get<K: Kind>(&self, key: &[u8]) -> Result<Option<&K>, Error> {
        self.view(key).get(key)
    }

    pub(crate) fn put(&mut self, key: &[u8], data: Data, deadline_ms: u64) {
        self.store(key).put(key, data, deadline_ms);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        self.store(key).delete(key).is_some()
    }

    /// Ordered time at `key`'s shard, in milliseconds since 1970.
    pub(crate) fn now_ms(&self, key: &[u8]) -> u64 {
        self.view(key).now_ms
    }

    /// The stores of all destination shards.
    pub(crate) fn each_store(&mut self) -> impl Iterator<Item = &mut Store> {
        let dst = self.dst;
        self.stores
            .iter_mut()
            .enumerate()
            .filter(move |(i, _)| dst.contains(Gid(*i as u8)))
            .map(|s| s.1)
    }

    /// A number below `n`, the same on all replicas.
    pub(crate) fn pick(&mut self, n: usize) -> usize {
        let id = self.id;
        let seed = id.seq ^ u64::from(id.sender.0) << 40;
        self.chance.get_or_insert_with(|| Rng::stream(seed, "pick")).below(n as u64) as usize
    }
}

/// The destinations of a command: the shards of its keys. Empty if it touches none.
///
/// # Errors
/// When it is a transaction that holds something that cannot be in one.
pub fn destinations(command: &Command, args: &[&[u8]], map: SlotMap) -> Result<GroupSet, Error> {
    let mut dst = GroupSet::EMPTY;
    match command.keys {
        Keys::All => dst = map.all(),
        Keys::Shards(find) => dst = find(args, map),
        Keys::Inner => {
            let script = commands::transactions::Script::parse(args).ok_or(Error::SYNTAX)?;
            for (key, _) in &script.watched {
                dst = dst.with(map.of_key(key));
            }
            for inner in &script.commands {
                let command = lookup(inner[0]).ok_or(Error::SYNTAX)?;
                dst = dst.or(destinations(command, inner, map)?);
            }
        }
        _ => command.keys_of(args, &mut |key| dst = dst.with(map.of_key(key))),
    }
    Ok(dst)
}

/// The hashes of the keys that a command touches; none if it touches whole shards.
pub(crate) fn key_hashes(command: &Command, args: &[&[u8]], tell: &mut dyn FnMut(&[u8])) -> bool {
    match command.keys {
        Keys::All | Keys::Shards(_) => return false,
        Keys::Inner => {
            let Some(script) = commands::transactions::Script::parse(args) else { return true };
            script.watched.iter().for_each(|(key, _)| tell(key));
            for inner in &script.commands {
                if lookup(inner[0]).is_some_and(|c| !key_hashes(c, inner, tell)) {
                    return false;
                }
            }
        }
        _ => command.keys_of(args, tell),
    }
    true
}

impl Machine for Kv {
    fn access(&self, command: &[u8], _dst: GroupSet, access: &mut Access) {
        let mut args = Vec::with_capacity(8);
        if decode_args(command, &mut args).is_none() || args.is_empty() {
            return;
        }
        let Some(command) = lookup(args[0]) else { return };
        let (map, write) = (self.map, command.writes());
        let by_key = key_hashes(command, &args, &mut |key| {
            let (shard, key) = (map.of_key(key), hash_bytes(self.seed, key));
            access.uses.push(Use { shard, key, write });
        });
        access.whole = !by_key;
    }

    fn apply(&mut self, at: &At<'_>, command: &[u8], answer: &mut Vec<u8>) {
        for place in at.places {
            let store = &mut self.stores[place.shard.index()];
            (store.now_ms, store.version) = (place.now_ms, place.position);
        }
        let mut args = Vec::with_capacity(8);
        let mut reply = Reply::new(answer);
        if decode_args(command, &mut args).is_none() || args.is_empty() {
            return reply.error(&Error::new("ERR Protocol error: malformed command"));
        }
        let mut context = Context {
            map: self.map,
            stores: &mut self.stores,
            dst: at.dst,
            id: at.id,
            chance: None,
        };
        run(&mut context, &args, &mut reply);
    }

    fn refuse(&self, why: Refusal, answer: &mut Vec<u8>) {
        Reply::new(answer).error(&Error::new(match why {
            Refusal::Stale => {
                "TRYAGAIN The command is too old to know whether it was executed: the clock of \
                 this front may be behind"
            }
            Refusal::Forgotten => "ERR The command was executed once, but its answer is not kept",
            Refusal::Window => "TRYAGAIN Too many commands of this session are open",
        }));
    }

    fn tidy(&mut self, shard: Gid, now_ms: u64) {
        self.stores[shard.index()].purge(now_ms, TIDY_KEYS);
    }

    fn capture(&mut self) {
        self.stores.iter_mut().for_each(Store::capture);
    }

    fn piece(&mut self, shard: Gid, to: &mut Piece<'_>) -> bool {
        snapshot::give(&mut self.stores[shard.index()], to)
    }

    fn release(&mut self) {
        self.stores.iter_mut().for_each(Store::release);
    }

    fn kept(&self, shard: Gid) -> usize {
        self.stores[shard.index()].kept()
    }

    fn read(&mut self, shard: Gid, from: &mut Source<'_>) -> Result<(), Corrupt> {
        let store = &mut self.stores[shard.index()];
        *store = Store::new(self.seed);
        snapshot::read(from, store)
    }
}

/// Runs one command, alone or in a transaction; an error takes the place of its answer.
pub(crate) fn run(context: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) {
    let start = reply.len();
    let outcome = match lookup(args[0]) {
        Some(c) => c.check_arity(args.len()).and_then(|()| match c.run {
            Run::Front(_) => Err(registry::unknown(args)),
            _ if missing(c, args, context) => {
                Err(Error::new("ERR A key is not in the command's destinations"))
            }
            Run::Shards(f) | Run::Both(_, f) => f(context, args, reply),
        }),
        None => Err(registry::unknown(args)),
    };
    if let Err(error) = outcome {
        reply.truncate(start);
        reply.error(&error);
    }
}

/// Whether a key lies outside the destinations, which only a faulty front causes: to touch it
/// would break the order of its shard.
fn missing(command: &Command, args: &[&[u8]], context: &Context<'_>) -> bool {
    if context.map.shards() == 1 {
        return false;
    }
    let (map, dst) = (context.map, context.dst);
    destinations(command, args, map).map_or(true, |keys| !keys.within(dst))
}
