//! How much memory all keys may take.

use super::super::Context;
use super::super::budget::share;
use super::super::number::parse_int;
use super::super::registry::{CommandSpec, KeyArguments};
use super::super::reply::{RedisError, Reply};

/// Sets what all keys of a node may take.
pub(crate) const MAXMEMORY: &str = "amcast.maxmemory";

pub(crate) const COMMANDS: &[CommandSpec] = &[CommandSpec::ordered(
    MAXMEMORY,
    2,
    "write admin",
    KeyArguments::All,
    maxmemory,
    "Sets how many bytes all keys may take in each node, in equal parts for its shards; 0 for any number.",
)];

/// A number of bytes as Redis reads it: `k` is 1000, `kb` is 1024, and so on.
fn bytes(arg: &[u8]) -> Option<u64> {
    let text = arg.to_ascii_lowercase();
    let digits = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let unit: u64 = match &text[digits..] {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    u64::try_from(parse_int(&text[..digits])?).ok()?.checked_mul(unit)
}

fn maxmemory(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let bytes = bytes(args[1]).ok_or(RedisError::new("ERR argument must be a memory value"))?;
    let part = share(bytes, c.map.shards());
    c.each_store().for_each(|store| store.set_budget(part));
    reply.ok();
    Ok(())
}
