//! Bounds on the growth of the state by commands: a command that would exceed them is refused
//! before anything is applied, by all replicas alike, since the decision follows from the commands
//! in front and the values of keys then.
//!
//! There are two bounds. A shard whose keys take more than its budget refuses commands that may make them more, as
//! Redis does with `maxmemory`; deletes and reads are served. And no command, and no transaction as a whole, may
//! make the state grow by more than [`GROWTH_BYTES_MAX`], with any budget: a few bytes can ask for much
//! (`SETRANGE`, `COPY`, `SUNIONSTORE`), which nobody could free again before all replicas had run out of memory.
//!
//! Whether a shard is full depends on all that it holds: it is looked at only where that is the same on all replicas
//! ([`At::exact`](amcast_smr::machine::ExecutionPoint::exact)).

use super::Context;
use super::args::{decode_args, split_epoch};
use super::batch;
use super::commands::transactions::OrderedTransaction;
use super::commands::{bits, memory, partitions, sort, strings};
use super::missing;
use super::number::parse_int;
use super::registry::{CommandSpec, KeyArguments, lookup};
use super::reply::RedisError;
use amcast_core::{GroupSet, Outcome};
use amcast_smr::machine::{ANY_GROWTH, NEW_BUDGET};
use std::collections::BTreeMap;

/// Bytes by which one command, or one transaction, may make the state grow.
pub(crate) const GROWTH_BYTES_MAX: u64 = 128 << 20;

/// The overhead of an argument in the state beside its bytes: as a key, or as a member.
const ARG_BYTES: u64 = 200;

/// Bytes of the digits of a sum of floats, which may be many more than those of its summands, at most.
const FLOAT_BYTES: u64 = 5_000;

/// Bytes of a counter of different elements.
const COUNTER_BYTES: u64 = 16 << 10;

/// Each shard's part of what all keys of a node may take; 0 is no bound.
pub fn share(bytes: u64, shards: usize) -> u64 {
    if bytes == 0 { 0 } else { (bytes / shards as u64).max(1) }
}

/// The answer to a command that a full shard refuses.
const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The words in front of that in the answer to a transaction.
const ABORTED: &str = "EXECABORT Transaction discarded because of: ";

/// Whether a command or a transaction with this answer was refused because a shard is full.
pub fn is_refusal(answer: &[u8]) -> bool {
    let error = answer.strip_prefix(b"-").unwrap_or_default();
    error.strip_prefix(ABORTED.as_bytes()).unwrap_or(error).starts_with(b"OOM ")
}

/// Whether a command, with its epoch, may have what all shards together hold grow.
pub fn may_grow(command: &[u8]) -> bool {
    // Keys that move from one shard to another take no more than before, and a bound takes nothing.
    let is_neutral = |name| matches!(name, partitions::MOVE | memory::MAXMEMORY);
    batch::commands(split_epoch(command).1).any(|command| {
        !named(command).is_some_and(|found| is_neutral(found.name)) && growth(command) > 0
    })
}

fn word(command: &[u8], at: usize) -> Option<usize> {
    let bytes = command.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(bytes) as usize)
}

/// The command of this encoded one, by its name.
fn named(command: &[u8]) -> Option<&'static CommandSpec> {
    lookup(command.get(8..8_usize.checked_add(word(command, 4)?)?)?)
}

/// By how many bytes an encoded command may make what each of its shards holds grow, at most.
pub(super) fn growth(command: &[u8]) -> u64 {
    let Some(found) = named(command) else { return 0 };
    let args = u64::from(word(command, 0).unwrap_or(0) as u32);
    let bytes = (command.len() as u64).saturating_add(args.saturating_mul(ARG_BYTES));
    if !matches!(found.keys, KeyArguments::Inner) {
        return growth_of(found, bytes);
    }
    let mut args = Vec::new();
    match decode_args(command, &mut args).and_then(|()| OrderedTransaction::parse(&args)) {
        None => ANY_GROWTH,
        Some(script) => {
            let inner = script.commands.iter().filter_map(|inner| lookup(inner[0]));
            let of = |inner: &CommandSpec| match moves(inner.name) {
                // Each may be small, and all together are not.
                true => ANY_GROWTH,
                false => growth_of(inner, bytes),
            };
            inner.map(of).max().unwrap_or(0)
        }
    }
}

/// As [`growth`], of a command, or of a transaction that has it and is of so many bytes in all.
fn growth_of(command: &CommandSpec, bytes: u64) -> u64 {
    match command.name {
        _ if !command.writes() => 0,
        memory::MAXMEMORY => NEW_BUDGET,
        // Keys that move between shards may be large.
        partitions::MOVE | "rename" | "renamenx" => ANY_GROWTH,
        name if asks_for_much(name) => GROWTH_BYTES_MAX,
        // The mark of a key that does not exist takes more than an argument.
        "watch" => bytes.saturating_mul(2),
        _ if denies(Some(command)) => bytes,
        _ => 0,
    }
}

/// Whether what a command moves from one key to another, perhaps in another shard, was paid for at the first.
fn moves(name: &str) -> bool {
    matches!(name, "rename" | "renamenx" | "lmove" | "rpoplpush" | "smove" | partitions::MOVE)
}

/// Whether a command can make the state grow by much more than its own bytes.
fn asks_for_much(name: &str) -> bool {
    matches!(
        name,
        "setrange"
            | "setbit"
            | "bitfield"
            | "bitop"
            | "copy"
            | "pfadd"
            | "pfmerge"
            | "pfdebug"
            | "sort"
            | "lmove"
            | "rpoplpush"
            | "smove"
            | "incrbyfloat"
            | "hincrbyfloat"
    ) || name.ends_with("store")
}

/// Whether a command, which the first argument names, may run; `exact` are the shards whose budgets decide.
pub(super) fn admit(
    c: &mut Context<'_>,
    command: Option<&CommandSpec>,
    exact: GroupSet,
    args: &[&[u8]],
) -> Result<(), RedisError> {
    let Some(command) = command.filter(|command| command.writes()) else { return Ok(()) };
    let script = match command.keys {
        KeyArguments::Inner => Some(OrderedTransaction::parse(args).ok_or(RedisError::SYNTAX)?),
        _ => None,
    };
    let may_grow = || match &script {
        Some(script) => script.commands.iter().any(|inner| denies(lookup(inner[0]))),
        None => denies(Some(command)),
    };
    let mut stores = c.places.iter().zip(&mut *c.stores).filter(|(p, _)| exact.contains(p.shard));
    if stores.any(|(_, store)| !store.is_within_budget() && may_grow() && store.is_over_budget()) {
        return Err(match script {
            Some(_) => RedisError::refused(format!("{ABORTED}{OOM}")),
            None => RedisError::refused(OOM),
        });
    }
    // One that came in parts may have more arguments than fit.
    let is_much =
        asks_for_much(command.name) || denies(Some(command)) && written(args) > GROWTH_BYTES_MAX;
    if script.is_none() && !is_much || missing(command, args, c) {
        return Ok(());
    }
    let mut forecast = GrowthForecast::default();
    match &script {
        Some(script) => script.commands.iter().for_each(|inner| forecast.add(c, inner)),
        None => forecast.add(c, args),
    }
    if forecast.growth > GROWTH_BYTES_MAX {
        let why = format_args!(
            "ERR this may take {} bytes of memory more, and one command or transaction may take \
             {GROWTH_BYTES_MAX}",
            forecast.growth
        );
        return Err(RedisError::of(Outcome::NotExecuted, why));
    }
    Ok(())
}

/// The memory of a command's arguments, if each is kept. That of the name covers values that no
/// argument has, as the digits of `INCR`.
fn written(args: &[&[u8]]) -> u64 {
    args.iter().map(|arg| arg.len() as u64 + ARG_BYTES).sum()
}

/// Whether a command may need memory: `WATCH` does, of keys that do not exist.
fn denies(command: Option<&CommandSpec>) -> bool {
    command.is_some_and(|command| command.is("denyoom") || command.name == "watch")
}

/// The bound on a key's size while commands run one after the other.
#[derive(Clone, Copy)]
struct SizeBound {
    /// Bytes that it surely has no more than.
    most: u64,
    /// Bytes of it that were there before, or are counted in the growth, and are of no other key.
    paid: u64,
}

/// How much commands may make the state grow, one after the other: never less than they will.
#[derive(Default)]
struct GrowthForecast<'a> {
    /// Keys that were looked at.
    held: BTreeMap<&'a [u8], SizeBound>,
    /// Their memory before.
    before: u64,
    growth: u64,
}

impl<'a> GrowthForecast<'a> {
    /// The bound on a key's size when the next command comes.
    fn held(&mut self, c: &Context<'_>, key: &'a [u8]) -> SizeBound {
        if let Some(held) = self.held.get(key) {
            return *held;
        }
        let bytes = c.find(key).map_or(0, |entry| entry.bytes());
        self.before = self.before.saturating_add(bytes);
        let held = SizeBound { most: bytes, paid: bytes };
        self.held.insert(key, held);
        held
    }

    /// How many bytes that are at the most.
    fn size(&mut self, c: &Context<'_>, key: &'a [u8]) -> u64 {
        self.held(c, key).most
    }

    /// The same of all keys together.
    fn sum(&mut self, c: &Context<'_>, keys: &[&'a [u8]]) -> u64 {
        keys.iter().fold(0, |sum: u64, key| sum.saturating_add(self.size(c, key)))
    }

    /// The same of the smallest of them.
    fn least(&mut self, c: &Context<'_>, keys: &[&'a [u8]]) -> u64 {
        keys.iter().map(|key| self.size(c, key)).min().unwrap_or(0)
    }

    /// So many bytes more are in the state.
    fn count(&mut self, bytes: u64) {
        self.growth = self.growth.saturating_add(bytes);
    }

    /// A key may come to take so much.
    fn grow(&mut self, c: &Context<'_>, key: &'a [u8], to: u64) {
        let SizeBound { most, paid } = self.held(c, key);
        self.count(to.saturating_sub(paid));
        self.held.insert(key, SizeBound { most: most.max(to), paid: paid.max(to) });
    }

    /// The string of a key may come to have so many bytes, if the command writes at all.
    fn lengthen(&mut self, c: &Context<'_>, key: &'a [u8], to: Option<usize>) {
        if let Some(to) = to {
            self.grow(c, key, to as u64 + key.len() as u64 + ARG_BYTES);
        }
    }

    /// A key may come to take so much more, which is counted already, or comes from others.
    fn take_over(&mut self, c: &Context<'_>, key: &'a [u8], bytes: u64) {
        let held = self.held(c, key);
        // No key holds more than all of them did, and what came since.
        let all = self.before.saturating_add(self.growth);
        let most = held.most.saturating_add(bytes).min(all.max(held.most));
        self.held.insert(key, SizeBound { most, ..held });
    }

    /// The value of one key, or a part of it, may move to another key: growth of the first one
    /// counts as new then, and so does growth of the other one.
    fn pass(&mut self, c: &Context<'_>, from: &'a [u8], to: &'a [u8], beside: u64) {
        self.count(beside);
        let bytes = self.size(c, from).saturating_add(beside);
        self.take_over(c, to, bytes);
        for key in [from, to] {
            let held = self.held(c, key);
            self.held.insert(key, SizeBound { paid: 0, ..held });
        }
    }

    fn add(&mut self, c: &Context<'_>, args: &[&'a [u8]]) {
        let Some(command) = lookup(args[0]).filter(|command| command.writes()) else { return };
        if command.check_arity(args.len()).is_err() {
            return;
        }
        match command.name {
            "setrange" => self.lengthen(c, args[1], strings::setrange_bytes(args)),
            "setbit" => self.lengthen(c, args[1], bits::setbit_bytes(args)),
            "bitfield" => self.lengthen(c, args[1], bits::bitfield_bytes(args)),
            "bitop" => {
                let longest = args[3..].iter().map(|key| self.size(c, key)).max().unwrap_or(0);
                self.grow(c, args[2], longest.saturating_add(args[2].len() as u64 + ARG_BYTES));
            }
            "copy" => {
                let size = self.size(c, args[1]).saturating_add(args[2].len() as u64);
                self.grow(c, args[2], size);
            }
            "rename" | "renamenx" => self.pass(c, args[1], args[2], args[2].len() as u64),
            "lmove" | "rpoplpush" | "smove" => {
                self.pass(c, args[1], args[2], ARG_BYTES + args[2].len() as u64);
            }
            "pfadd" | "pfmerge" => {
                self.grow(c, args[1], COUNTER_BYTES + args[1].len() as u64);
            }
            "pfdebug" => self.grow(c, args[2], COUNTER_BYTES + args[2].len() as u64),
            "incrbyfloat" | "hincrbyfloat" => {
                let bytes = written(args).saturating_add(FLOAT_BYTES);
                self.count(bytes);
                self.take_over(c, args[1], bytes);
            }
            name if name.ends_with("store") || name == "sort" => self.store(c, name, args),
            _ => {
                let bytes = written(args);
                self.count(bytes);
                command.keys_of(args, &mut |key| self.take_over(c, key, bytes));
            }
        }
    }

    /// A command that stores what it finds in other keys.
    fn store(&mut self, c: &Context<'_>, name: &str, args: &[&'a [u8]]) {
        // A member of a set takes twice as much in a sorted set.
        let (to, found) = match name {
            "sunionstore" => (args[1], self.sum(c, &args[2..])),
            "sinterstore" => (args[1], self.least(c, &args[2..])),
            "sdiffstore" | "zrangestore" => (args[1], self.size(c, args[2])),
            "sort" => {
                let Some((to, looks_elsewhere)) = sort::target(args) else { return };
                let most = sort::STORED_BYTES_MAX as u64;
                (to, if looks_elsewhere { most } else { self.size(c, args[1]) })
            }
            _ => {
                let n = parse_int(args[2]).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
                let keys = args[3..].get(..n).unwrap_or_default();
                let found = match name {
                    "zinterstore" => self.least(c, keys),
                    "zdiffstore" => keys.first().map_or(0, |key| self.size(c, key)),
                    _ => self.sum(c, keys),
                };
                (args[1], found.saturating_mul(2))
            }
        };
        self.grow(c, to, found.saturating_add(ARG_BYTES + to.len() as u64));
    }
}

/// By how many bytes a command or a transaction may make all shards together grow.
#[cfg(test)]
pub(super) fn forecast(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let mut forecast = GrowthForecast::default();
    let inner = lookup(args[0]).is_some_and(|command| matches!(command.keys, KeyArguments::Inner));
    match OrderedTransaction::parse(args).filter(|_| inner) {
        Some(script) => script.commands.iter().for_each(|inner| forecast.add(c, inner)),
        None if inner => {}
        None => forecast.add(c, args),
    }
    forecast.growth
}

#[cfg(test)]
mod tests {
    use super::super::args::encode_args;
    use super::*;

    fn growth_of_text(text: &str) -> u64 {
        let args: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let mut command = Vec::new();
        encode_args(&args, &mut command);
        growth(&command)
    }

    #[test]
    fn a_transaction_makes_a_shard_grow_as_the_worst_of_its_commands() {
        for (text, bytes) in [
            ("EXEC 0 2 2 GET a 2 DEL a", 0),
            ("EXEC 0 2 2 DEL a 4 SETRANGE a 1 x", GROWTH_BYTES_MAX),
            ("EXEC 0 2 3 SET a 1 5 LMOVE a b LEFT LEFT", ANY_GROWTH),
            ("EXEC 0 1 3 RPOPLPUSH a b", ANY_GROWTH),
            ("EXEC 0 1 4 SMOVE a b m", ANY_GROWTH),
            ("EXEC 0 2 3 RENAME a b 2 AMCAST.MAXMEMORY 1gb", NEW_BUDGET),
            ("EXEC 0 1 3 AMCAST.MOVE 0 1", ANY_GROWTH),
            ("EXEC nonsense", ANY_GROWTH),
            ("LMOVE a b LEFT LEFT", GROWTH_BYTES_MAX),
            ("RENAME a b", ANY_GROWTH),
            ("AMCAST.MAXMEMORY 1gb", NEW_BUDGET),
            ("GET a", 0),
        ] {
            assert_eq!(growth_of_text(text), bytes, "{text}");
        }
        let small = growth_of_text("EXEC 0 1 3 SET a 1");
        assert!((1..5_000).contains(&small), "{small}");
    }
}
