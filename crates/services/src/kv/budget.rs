//! What commands may make of the state: refused is what would exceed it, before anything is applied, and by all
//! replicas alike, since it follows from the commands in front and what keys hold then.
//!
//! There are two bounds. A shard whose keys take more than its budget refuses commands that may make them more, as
//! Redis does with `maxmemory`; deletes and reads are served. And no command, and no transaction as a whole, may make
//! the state grow by more than [`GROWTH_BYTES_MAX`], whatever the budget: a few bytes can ask for much (`SETRANGE`,
//! `COPY`, `SUNIONSTORE`), which nobody could free again before all replicas had run out of memory.
//!
//! Whether a shard is full depends on all that it holds: it is looked at only where that is the same on all replicas
//! ([`At::exact`](crate::machine::At::exact)).

use super::Context;
use super::args::decode_args;
use super::commands::transactions::Script;
use super::commands::{bits, memory, partitions, sort};
use super::missing;
use super::number::parse_int;
use super::registry::{Command, Keys, lookup};
use super::reply::Error;
use crate::machine::{ANY_GROWTH, NEW_BUDGET};
use amcast_core::GroupSet;
use std::collections::BTreeMap;

/// Bytes by which one command, or one transaction, may make the state grow.
pub(crate) const GROWTH_BYTES_MAX: u64 = 128 << 20;

/// What an argument may take in the state beside its bytes: as a key, or as a member.
const ARG_BYTES: u64 = 200;

/// Bytes of a counter of different elements.
const COUNTER_BYTES: u64 = 16 << 10;

/// Each shard's part of what all keys of a node may take; 0 is no bound.
pub fn share(bytes: u64, shards: usize) -> u64 {
    if bytes == 0 { 0 } else { (bytes / shards as u64).max(1) }
}

/// By how many bytes an encoded command may make what each of its shards holds grow, at most.
pub(super) fn growth(command: &[u8]) -> u64 {
    let word = |at: usize| {
        let bytes = command.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    };
    let name = || command.get(8..8_usize.checked_add(word(4)?)?);
    let Some(found) = name().and_then(lookup) else { return 0 };
    let args = word(0).unwrap_or(0) as u64;
    match found.keys {
        _ if !found.writes() => 0,
        _ if found.name == memory::MAXMEMORY => NEW_BUDGET,
        // What moves between shards may be large.
        _ if found.name == partitions::MOVE => ANY_GROWTH,
        Keys::Inner => {
            let mut args = Vec::new();
            let script = decode_args(command, &mut args).and_then(|()| Script::parse(&args));
            let moves = |script: Script<'_>| script.commands.iter().any(|inner| renames(inner[0]));
            if script.is_none_or(moves) { ANY_GROWTH } else { GROWTH_BYTES_MAX }
        }
        _ if renames(found.name.as_bytes()) => ANY_GROWTH,
        _ if asks_for_much(found.name) => GROWTH_BYTES_MAX,
        _ if denies(Some(found)) => command.len() as u64 + args.saturating_mul(ARG_BYTES),
        _ => 0,
    }
}

/// Whether a command moves a whole value, of any size, perhaps from another shard.
fn renames(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"rename") || name.eq_ignore_ascii_case(b"renamenx")
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
            | "sort"
            | "lmove"
            | "rpoplpush"
            | "smove"
    ) || name.ends_with("store")
}

/// Whether a command may run; `exact` are the shards whose budgets decide.
pub(super) fn admit(c: &mut Context<'_>, exact: GroupSet, args: &[&[u8]]) -> Result<(), Error> {
    let Some(command) = lookup(args[0]).filter(|command| command.writes()) else { return Ok(()) };
    let script = match command.keys {
        Keys::Inner => Some(Script::parse(args).ok_or(Error::SYNTAX)?),
        _ => None,
    };
    let may_grow = || match &script {
        Some(script) => script.commands.iter().any(|inner| denies(lookup(inner[0]))),
        None => denies(Some(command)),
    };
    let mut stores = c.places.iter().zip(&mut *c.stores).filter(|(p, _)| exact.contains(p.shard));
    if stores.any(|(_, store)| !store.is_within_budget() && may_grow() && store.is_over_budget()) {
        const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
        return Err(match script {
            Some(_) => Error::new(format!("EXECABORT Transaction discarded because of: {OOM}")),
            None => Error::new(OOM),
        });
    }
    if script.is_none() && !asks_for_much(command.name) || missing(command, args, c) {
        return Ok(());
    }
    let mut forecast = Forecast { sizes: BTreeMap::new(), growth: 0 };
    match &script {
        Some(script) => script.commands.iter().for_each(|inner| forecast.add(c, inner)),
        None => forecast.add(c, args),
    }
    if forecast.growth > GROWTH_BYTES_MAX {
        return Err(Error::new(format!(
            "ERR this may take {} bytes of memory more, and one command or transaction may take \
             {GROWTH_BYTES_MAX}; the command was not executed",
            forecast.growth
        )));
    }
    Ok(())
}

fn denies(command: Option<&Command>) -> bool {
    command.is_some_and(|command| command.is("denyoom"))
}

/// How much commands may make the state grow, one after the other: never less than they will.
struct Forecast<'a> {
    /// What keys may take that were looked at.
    sizes: BTreeMap<&'a [u8], u64>,
    growth: u64,
}

impl<'a> Forecast<'a> {
    /// What a key may take when the next command comes.
    fn size(&self, c: &Context<'_>, key: &[u8]) -> u64 {
        let known = self.sizes.get(key).copied();
        known.unwrap_or_else(|| c.find(key).map_or(0, |entry| entry.bytes()))
    }

    /// The same of all keys together.
    fn sum(&self, c: &Context<'_>, keys: &[&[u8]]) -> u64 {
        keys.iter().fold(0, |sum: u64, key| sum.saturating_add(self.size(c, key)))
    }

    /// A key may come to take so much.
    fn grow(&mut self, c: &Context<'_>, key: &'a [u8], to: u64) {
        let was = self.size(c, key);
        self.growth = self.growth.saturating_add(to.saturating_sub(was));
        self.sizes.insert(key, was.max(to));
    }

    /// A key may come to take so much more than what others take less.
    fn take_over(&mut self, c: &Context<'_>, key: &'a [u8], bytes: u64) {
        let size = self.size(c, key).saturating_add(bytes);
        self.sizes.insert(key, size);
    }

    fn add(&mut self, c: &Context<'_>, args: &[&'a [u8]]) {
        let Some(command) = lookup(args[0]).filter(|command| command.writes()) else { return };
        if command.check_arity(args.len()).is_err() {
            return;
        }
        let string = |bytes: u64| bytes.saturating_add(ARG_BYTES);
        let number = |arg: &[u8]| parse_int(arg).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        match command.name {
            "setrange" => {
                let end = number(args[2]).saturating_add(args[3].len() as u64);
                self.grow(c, args[1], string(end).saturating_add(args[1].len() as u64));
            }
            "setbit" => self.grow(c, args[1], string(number(args[2]) / 8 + args[1].len() as u64)),
            "bitfield" => {
                let end = bits::written_bytes(args).unwrap_or(0) + args[1].len();
                self.grow(c, args[1], string(end as u64));
            }
            "bitop" => {
                let longest = args[3..].iter().map(|key| self.size(c, key)).max().unwrap_or(0);
                self.grow(c, args[2], string(longest.saturating_add(args[2].len() as u64)));
            }
            "copy" => {
                let size = self.size(c, args[1]).saturating_add(args[2].len() as u64);
                self.grow(c, args[2], size);
            }
            "rename" | "renamenx" => {
                self.growth += args[2].len() as u64;
                let size = self.size(c, args[1]);
                self.take_over(c, args[2], size);
            }
            "lmove" | "rpoplpush" | "smove" => {
                self.growth += ARG_BYTES + args[2].len() as u64;
                let size = self.size(c, args[1]);
                self.take_over(c, args[2], size.saturating_add(ARG_BYTES));
            }
            "pfadd" | "pfmerge" => {
                self.grow(c, args[1], COUNTER_BYTES + args[1].len() as u64);
            }
            name if name.ends_with("store") || name == "sort" => self.store(c, name, args),
            _ => {
                let bytes = args[1..].iter().map(|arg| arg.len() as u64 + ARG_BYTES).sum::<u64>();
                self.growth = self.growth.saturating_add(bytes);
                command.keys_of(args, &mut |key| self.take_over(c, key, bytes));
            }
        }
    }

    /// A command that stores what it finds in other keys.
    fn store(&mut self, c: &Context<'_>, name: &str, args: &[&'a [u8]]) {
        // A member of a set takes twice as much in a sorted set.
        let (to, found) = match name {
            "sunionstore" => (args[1], self.sum(c, &args[2..])),
            "sinterstore" => {
                (args[1], args[2..].iter().map(|key| self.size(c, key)).min().unwrap_or(0))
            }
            "sdiffstore" | "zrangestore" => (args[1], self.size(c, args[2])),
            "sort" => {
                let Some((to, looks_elsewhere)) = sort::target(args) else { return };
                let most = sort::STORED_BYTES_MAX as u64;
                (to, if looks_elsewhere { most } else { self.size(c, args[1]) })
            }
            _ => {
                let n = parse_int(args[2]).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
                let keys = args[3..].get(..n).unwrap_or_default();
                let sizes = keys.iter().map(|key| self.size(c, key));
                let found = match name {
                    "zinterstore" => sizes.min().unwrap_or(0),
                    "zdiffstore" => keys.first().map_or(0, |key| self.size(c, key)),
                    _ => self.sum(c, keys),
                };
                (args[1], found.saturating_mul(2))
            }
        };
        self.grow(c, to, found.saturating_add(ARG_BYTES + to.len() as u64));
    }
}
