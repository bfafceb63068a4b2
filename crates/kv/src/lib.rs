//! The key-value store: a state machine over shards that speaks Redis's commands.
//!
//! The three types to know are [`Kv`] (the machine), [`Store`] (the keys of one shard) and
//! [`CommandSpec`] (one of Redis's, a value in its family's file of `commands/`).
//!
//! Read [`registry`] (what a command is), one family such as `commands/strings.rs`, [`store`](Store), then [`partitions`] (which
//! shard holds which keys, and how they move). [`resp`] reads requests and writes answers; what connections share is in
//! [`client`].

#[cfg(test)]
pub(crate) mod answers;
pub mod args;
pub mod batch;
pub mod blocked_clients;
pub mod budget;
pub mod client;
pub mod command_stats;
pub mod commands;
mod data;
mod digest;
mod glob;
mod key_name;
mod lazy_free;
mod long_double;
mod look_ahead;
mod measured;
pub mod number;
mod ordered_hash_table;
pub mod partitions;
pub mod process;
#[cfg(test)]
mod random_commands;
mod ranked;
pub mod registry;
pub mod reply;
pub mod resp;
pub mod size_refusal;
pub mod slots;
mod snapshot;
pub mod stamp_refusal;
pub mod status;
mod store;
#[cfg(test)]
mod tests;
mod usage;
mod walk;
mod work;

pub use amcast_smr::hash::HashSeed;
pub use args::{
    EPOCH_BYTES, decode_args, encode_args, encode_epoch, encode_whole_epoch, encoded_len,
    set_small_answer, split_epoch, wants_small_answer,
};
pub use partitions::Partitions;
pub use slots::{SLOTS, SlotMap, slot};

use amcast_core::limits::PAYLOAD_BYTES_MAX;
use amcast_core::rng::Rng;
use amcast_core::{Gid, GroupSet, MsgId, Outcome};
use amcast_smr::digest::Slice;
use amcast_smr::machine::{
    Access, Corrupt, ExecutionPoint, Growth, MachinePart, Refusal, ShardPosition, ShardedMachine,
    Use,
};
use amcast_smr::stream::{Piece, StreamReader};
use blocked_clients::BlockedClients;
use data::{Data, DataKind};
use partitions::PartitionOwner;
use registry::{CommandRunner, CommandSpec, KeyArguments, lookup};
use reply::{RedisError, Reply};
use std::ops::Range;
use std::sync::Arc;
use store::KeyEntry;
use work::WorkBudget;

pub use store::Store;

/// A string, as keys hold it.
#[cfg(test)]
pub(crate) fn value_of(bytes: &[u8]) -> Data {
    Data::Str(bytes.to_vec())
}

/// Bits of a version that say in which shard a key was changed.
const SHARD_BITS: u32 = 6;
const _: () = assert!(amcast_core::limits::GROUPS_MAX <= 1 << SHARD_BITS);

/// Expired keys that are dropped after a message for each of its commands: none creates as many.
const SWEEP_KEYS: usize = 4;

/// Arguments of a command that is called short, at most.
const SHORT_ARGS: usize = 16;

/// The store's commands, over [`Store`]s of one shard each.
pub struct Kv {
    /// The first map of partitions.
    first: Arc<Partitions>,
    seed: HashSeed,
    /// The initial memory budget of a shard's keys, in bytes; 0 for no limit.
    budget: u64,
    /// Keys that one command of a move looks at.
    move_keys: usize,
    /// The clients of this process's gateway that wait for keys.
    blocked: Option<Arc<BlockedClients>>,
}

impl Kv {
    /// A store of `shards` shards, each with as many slots. `seed` keys the hashes that `SCAN` walks
    /// by, so it must be the same on all nodes of a cluster and should not be known outside.
    pub fn new(shards: usize, seed: impl Into<HashSeed>) -> Self {
        Self::over(Arc::new(Partitions::by_slot(shards)), seed)
    }

    /// A store whose map of partitions is at first this one, the same on all nodes of a cluster.
    pub fn over(first: Arc<Partitions>, seed: impl Into<HashSeed>) -> Self {
        let move_keys = commands::partitions::LOOK_KEYS;
        Self { first, seed: seed.into(), budget: 0, move_keys, blocked: None }
    }

    /// All keys of a node may take so many bytes at first, in equal parts for its shards: the same on all nodes of a
    /// cluster. 0 is any number.
    #[must_use]
    pub fn with_maxmemory(mut self, bytes: u64) -> Self {
        self.budget = budget::share(bytes, self.first.shards());
        self
    }

    /// These clients, of a gateway in the same process, hear which keys commands change. The state does not depend on them.
    #[must_use]
    pub fn with_blocked(mut self, blocked: Arc<BlockedClients>) -> Self {
        blocked.hear_replicas();
        self.blocked = Some(blocked);
        self
    }

    /// A command that moves keys looks at so many: the same on all nodes of a cluster.
    #[must_use]
    pub const fn with_move_keys(mut self, keys: usize) -> Self {
        self.move_keys = keys;
        self
    }
}

/// The context of a running command.
pub struct Context<'a> {
    map: Arc<Partitions>,
    places: &'a [ShardPosition],
    /// The stores of `places`, one for one.
    stores: &'a mut [&'a mut Store],
    dst: GroupSet,
    id: MsgId,
    chance: Option<Rng>,
    /// How long it may still take.
    work: WorkBudget,
    /// Keys that a command of a move looks at.
    move_keys: usize,
}

impl Context<'_> {
    /// Where the store of `shard`, one of the destinations, is among the stores.
    fn index(&self, shard: Gid) -> usize {
        let mut places = self.places.iter();
        places.position(|p| p.shard == shard).expect("a key in the destinations")
    }

    /// Where the store that holds `key` is: mostly there is only one.
    fn index_of_key(&self, key: &[u8]) -> usize {
        if self.stores.len() == 1 {
            return 0;
        }
        let PartitionOwner { shard, to } = self.map.of_key(key);
        let index = self.index(shard);
        match to {
            Some(to) if self.stores[index].has_moved(key) => self.index(to),
            _ => index,
        }
    }

    /// The store of `key`'s shard.
    pub(crate) fn store(&mut self, key: &[u8]) -> &mut Store {
        let index = self.index_of_key(key);
        self.stores[index]
    }

    /// The same, only to read.
    pub(crate) fn view(&self, key: &[u8]) -> &Store {
        self.stores[self.index_of_key(key)]
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<&KeyEntry> {
        self.view(key).find(key)
    }

    pub(crate) fn get<K: DataKind>(&self, key: &[u8]) -> Result<Option<&K>, RedisError> {
        self.view(key).get(key)
    }

    pub(crate) fn put(&mut self, key: &[u8], data: Data, deadline_ms: u64) {
        self.store(key).put(key, data, deadline_ms);
    }

    pub(crate) fn put_str(&mut self, key: &[u8], value: &[u8], deadline_ms: u64) {
        self.store(key).put_str(key, value, deadline_ms);
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
        self.stores.iter_mut().map(|s| &mut **s)
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
pub fn destinations(
    command: &CommandSpec,
    args: &[&[u8]],
    map: &Partitions,
) -> Result<GroupSet, RedisError> {
    let mut dst = GroupSet::EMPTY;
    match command.keys {
        KeyArguments::All => dst = map.all(),
        // One of too few words in a transaction touches nothing: it is answered with an error.
        KeyArguments::Shards(find) if command.check_arity(args.len()).is_ok() => {
            dst = find(args, map)
        }
        KeyArguments::Shards(_) => {}
        KeyArguments::Told(keys) => {
            if !keys(args, &mut |key| dst = dst.or(map.of_key(key).shards())) {
                dst = map.all();
            }
        }
        KeyArguments::Inner => {
            let script = commands::transactions::OrderedTransaction::parse(args)
                .ok_or(RedisError::SYNTAX)?;
            for (key, _) in &script.watched {
                dst = dst.or(map.of_key(key).shards());
            }
            for inner in &script.commands {
                let command = lookup(inner[0]).ok_or(RedisError::SYNTAX)?;
                dst = dst.or(destinations(command, inner, map)?);
            }
        }
        _ => command.keys_of(args, &mut |key| dst = dst.or(map.of_key(key).shards())),
    }
    Ok(dst)
}

/// The hashes of the keys that a command touches; none if it touches whole shards.
pub fn key_hashes(command: &CommandSpec, args: &[&[u8]], tell: &mut dyn FnMut(&[u8])) -> bool {
    match command.keys {
        KeyArguments::All | KeyArguments::Shards(_) => return false,
        KeyArguments::Told(keys) => return keys(args, tell),
        KeyArguments::Inner => {
            let Some(script) = commands::transactions::OrderedTransaction::parse(args) else {
                return true;
            };
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

impl ShardedMachine for Kv {
    type Part = Store;

    /// Which shard holds a key depends on the map at the command's place in the order, and is not
    /// known here. A command that knows the first map touches nothing under another one, and one that
    /// knows a later map may find its keys in any of its shards.
    fn access(&self, command: &[u8], dst: GroupSet, access: &mut Access) {
        let (epoch, commands) = split_epoch(command);
        let (mut by_key, mut changes) = (true, false);
        each_command(commands, |command, args| {
            let write = command.writes();
            changes |= write;
            by_key &= key_hashes(command, args, &mut |key| {
                let hash = self.seed.hash(key);
                let shards = match epoch {
                    0 if dst.len() > 1 => self.first.of_key(key).shards(),
                    _ => dst,
                };
                access.uses.extend(shards.iter().map(|shard| Use { shard, key: hash, write }));
            });
        });
        // One that touches no key may wait with a copy of itself: they take their turns in order all the same.
        access.whole = !by_key || changes && access.uses.is_empty();
    }

    fn look_ahead(&self, store: &Store, commands: &mut dyn Iterator<Item = &[u8]>) {
        look_ahead::of_messages(store, commands);
    }

    fn growth(&self, command: &[u8]) -> Growth {
        // Whether there is memory is decided for each command of a batch.
        let commands = batch::commands(split_epoch(command).1);
        commands.fold(Growth::default(), |before, command| {
            let most = before.most.saturating_add(budget::growth(command));
            Growth { most, before_decision: before.most }
        })
    }

    /// Times of the last changes are not in the states of versions before 15: a node that executed the commands itself knows them, and
    /// another one does not. A transaction counts whole.
    fn is_compared(&self, command: &[u8]) -> bool {
        let command = split_epoch(command).1;
        let mut args = Vec::new();
        if batch::is_batch(command) || decode_args(command, &mut args).is_none() {
            return true;
        }
        let name = args.first().and_then(|name| lookup(name)).map(|command| command.name);
        let tells_times = |arg: &&[u8]| arg.windows(8).any(|w| w.eq_ignore_ascii_case(b"idletime"));
        !matches!(name, Some("exec" | "object")) || !args.iter().any(tells_times)
    }

    fn is_short(&self, command: &[u8]) -> bool {
        let command = split_epoch(command).1;
        let mut args = Vec::with_capacity(8);
        if decode_args(command, &mut args).is_none() || args.len() > SHORT_ARGS {
            return false;
        }
        let name = args.first().and_then(|name| lookup(name));
        name.is_some_and(|c| {
            c.is("fast") && !matches!(c.keys, KeyArguments::All | KeyArguments::Shards(_))
        })
    }

    fn sees_expiry(&self, store: &Store, command: &[u8], deadlines_ms: Range<u64>) -> bool {
        if store.first_deadline_ms().is_none_or(|first_ms| first_ms >= deadlines_ms.end) {
            return false;
        }
        let mut sees = false;
        each_command(split_epoch(command).1, |command, args| {
            let by_key = key_hashes(command, args, &mut |key| {
                sees |= store.deadline_ms(key).is_some_and(|ms| deadlines_ms.contains(&ms));
            });
            sees |= !by_key && store.has_deadline(deadlines_ms.clone());
        });
        sees
    }

    fn part(&self) -> Store {
        let store = Store::new(self.seed, self.first.clone(), self.budget);
        store.with_blocked(self.blocked.clone())
    }

    fn apply<'a>(
        &self,
        at: &ExecutionPoint<'a>,
        stores: &'a mut [&'a mut Store],
        command: &[u8],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        for (place, store) in at.places.iter().zip(&mut *stores) {
            store.now_ms = place.now.wall_ms;
            // No two changes have one version, also where a key comes from another shard.
            store.version = place.position << SHARD_BITS | u64::from(place.shard.0);
        }
        let only_small = args::wants_small_answer(command);
        let (epoch, command) = split_epoch(command);
        let map = stores[0].map().clone();
        if epoch != map.epoch() {
            map.refuse(echoed(command), answer);
            return Outcome::NotExecuted;
        }
        let ExecutionPoint { id, dst, places, exact, .. } = *at;
        let (chance, work) = (None, WorkBudget::all());
        let move_keys = self.move_keys;
        let mut context = Context { map, places, stores, dst, id, chance, work, move_keys };
        let most = only_small.then_some(size_refusal::SMALL_ANSWER_BYTES);
        match batch::is_batch(command) {
            true => run_batch(&mut context, command, exact, most, answer),
            false => {
                let mut args = Vec::with_capacity(8);
                if decode_args(command, &mut args).is_none() || args.is_empty() {
                    return Reply::new(answer).failed(&RedisError::new(MALFORMED));
                }
                let decoded = DecodedCommand { spec: lookup(args[0]), bytes: command, args: &args };
                run_one(&mut context, &decoded, exact, most, answer)
            }
        }
    }

    /// Of the words that the version before wrote.
    fn outcome_of_kept(&self, kept: &[u8]) -> Outcome {
        let ending = format!("; {}\r\n", Outcome::NotExecuted.words());
        let is_oom = kept.starts_with(b"-OOM ") || kept.starts_with(b"-EXECABORT ");
        let is_refused = kept.starts_with(b"-") && (is_oom || kept.ends_with(ending.as_bytes()));
        match partitions::is_refusal(kept) || is_refused {
            true => Outcome::NotExecuted,
            false => Outcome::Executed,
        }
    }

    fn kept<'a>(&self, answer: &'a [u8]) -> &'a [u8] {
        partitions::kept(answer)
    }

    fn again(&self, store: &Store, kept: &[u8], command: &[u8], answer: &mut Vec<u8>) {
        match partitions::is_refusal(kept) {
            true => store.map().refuse(echoed(split_epoch(command).1), answer),
            false => answer.extend_from_slice(kept),
        }
    }

    fn refuse(&self, why: Refusal, command: &[u8], answer: &mut Vec<u8>) {
        let why_text = match why {
            Refusal::Stale { now_ms } | Refusal::Ahead { now_ms } => {
                return stamp_refusal::refuse(now_ms, echoed(command), answer);
            }
            Refusal::Forgotten { .. } => "ERR the answer to the command is not kept any more",
            Refusal::Window => "ERR too many commands of this session are open",
            Refusal::NoRoom => "ERR the shard keeps as many parts of large commands as it may",
            Refusal::Incomplete => {
                "ERR the shard has given up parts of the command before the last one came"
            }
            Refusal::Skipped => {
                "ERR All replicas skip this command by decision of those who run the cluster"
            }
        };
        Reply::new(answer).error(&RedisError::of(why.outcome(), why_text));
    }
}

/// The part of a refused command that its answer repeats: nothing if it came in parts. Its gateway
/// has it.
fn echoed(command: &[u8]) -> &[u8] {
    if command.len() > PAYLOAD_BYTES_MAX { &[] } else { command }
}

impl MachinePart for Store {
    fn memory(&self) -> (u64, u64) {
        (self.used(), self.budget())
    }

    fn items(&self) -> (usize, usize) {
        (self.len(), self.expiring())
    }

    fn due_ms(&self) -> Option<u64> {
        self.first_deadline_ms()
    }

    fn has_chore(&self) -> bool {
        self.map().moving().is_some()
    }

    fn sweep(&mut self, now_ms: u64) {
        let commands = self.take_counted().max(1);
        self.purge(now_ms, commands * SWEEP_KEYS);
    }

    fn capture(&mut self) {
        self.begin_snapshot();
    }

    fn piece(&mut self, to: &mut Piece<'_>) -> bool {
        snapshot::give(self, to)
    }

    fn release(&mut self) {
        self.end_cut();
    }

    fn kept(&self) -> usize {
        self.kept_aside()
    }

    fn read(&mut self, from: &mut StreamReader<'_>) -> Result<(), Corrupt> {
        snapshot::read(from, self)?;
        self.tell_blocked();
        Ok(())
    }

    fn digest(&self, slice: &mut Slice<'_>) {
        digest::cover(self, slice);
    }
}

/// Shows each of the encoded commands that is one, with its arguments.
fn each_command<'a>(commands: &'a [u8], mut show: impl FnMut(&'static CommandSpec, &[&'a [u8]])) {
    let mut args = Vec::with_capacity(8);
    for command in batch::commands(commands) {
        args.clear();
        let is_whole = decode_args(command, &mut args).is_some();
        if let Some(found) = args.first().filter(|_| is_whole).and_then(|name| lookup(name)) {
            show(found, &args);
        }
    }
}

/// Runs the commands of a batch, one after the other; together they have no larger an answer than `most`, if that
/// is wanted.
fn run_batch(
    context: &mut Context<'_>,
    commands: &[u8],
    exact: GroupSet,
    most: Option<usize>,
    answer: &mut Vec<u8>,
) -> Outcome {
    let batched = batch::commands(commands);
    if !batched.is_whole() {
        return Reply::new(answer).failed(&RedisError::new(MALFORMED));
    }
    let start = answer.len();
    let mut args = Vec::with_capacity(8);
    batch::begin_answers(answer);
    for command in batched {
        context.each_store().for_each(Store::count_command);
        batch::put_answer(answer, |answer| {
            let left = most.map(|most| most.saturating_sub(answer.len() - start));
            args.clear();
            let found = decode_args(command, &mut args).and_then(|()| lookup(args.first()?));
            match found.filter(|found| found.runs_in_batch()) {
                Some(found) => {
                    let decoded = DecodedCommand { spec: Some(found), bytes: command, args: &args };
                    run_one(context, &decoded, exact, left, answer)
                }
                None => Reply::new(answer).failed(&RedisError::new(MALFORMED)),
            }
        });
    }
    Outcome::Executed
}

/// A command with its encoded arguments, and with these apart.
struct DecodedCommand<'a, 'b> {
    spec: Option<&'static CommandSpec>,
    bytes: &'a [u8],
    args: &'b [&'a [u8]],
}

/// Runs one command with an answer of its own, which is refused if it is larger than `most` and the command changes
/// nothing.
fn run_one(
    context: &mut Context<'_>,
    decoded: &DecodedCommand<'_, '_>,
    exact: GroupSet,
    most: Option<usize>,
    answer: &mut Vec<u8>,
) -> Outcome {
    let DecodedCommand { spec: command, bytes, args } = *decoded;
    let start = answer.len();
    let most = most.filter(|_| command.is_some_and(|c| !c.writes()));
    let mut reply = match most {
        Some(most) => Reply::at_most(most, answer),
        None => Reply::new(answer),
    };
    let outcome = match budget::admit(context, command, exact, args) {
        Ok(()) => run_command(context, command, args, &mut reply),
        Err(error) => reply.failed(&error),
    };
    let is_refused = most.is_some() && reply.is_over();
    if is_refused {
        reply.take_back((start, false));
    } else {
        reply.finish(start);
    }
    context.each_store().for_each(Store::count_lent);
    if is_refused {
        size_refusal::refuse(echoed(bytes), answer);
        return Outcome::NotExecuted;
    }
    outcome
}

/// The error of bytes that are no command, which only a faulty gateway sends.
const MALFORMED: &str = "ERR Protocol error: malformed command";

/// Runs one command, alone or in a transaction; an error takes the place of its answer. Returns its
/// outcome.
pub(crate) fn run(context: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
    run_command(context, lookup(args[0]), args, reply)
}

/// As [`run`], of the command that the first argument names.
fn run_command(
    context: &mut Context<'_>,
    command: Option<&CommandSpec>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Outcome {
    let start = reply.mark();
    let done = match command {
        Some(c) => c.check_arity(args.len()).and_then(|()| match c.run {
            CommandRunner::Gateway(_) | CommandRunner::Blocking(_) => Err(registry::unknown(args)),
            _ if missing(c, args, context) => {
                Err(RedisError::new("ERR A key is not in the command's destinations"))
            }
            // It would only make an answer longer that is given up.
            _ if reply.is_over() && !c.writes() => Ok(()),
            CommandRunner::Shards(f) | CommandRunner::Both(_, f) => {
                look_ahead::of_command(context, c, args);
                c.work.map_or(Ok(()), |work| work::begin(context, work, args))?;
                f(context, args, reply)
            }
        }),
        None => Err(registry::unknown(args)),
    };
    match done {
        Ok(()) => Outcome::Executed,
        Err(error) => {
            reply.take_back(start);
            reply.failed(&error)
        }
    }
}

/// Whether a key lies outside the destinations, which only a faulty gateway causes: to touch it
/// would break the order of its shard.
fn missing(command: &CommandSpec, args: &[&[u8]], context: &Context<'_>) -> bool {
    let (map, dst) = (&context.map, context.dst);
    if map.all().within(dst) {
        return false;
    }
    destinations(command, args, map).map_or(true, |keys| !keys.within(dst))
}
