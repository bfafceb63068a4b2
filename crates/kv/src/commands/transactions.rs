//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`: transactions over any shards.
//!
//! The gateway gathers the commands. `EXEC` is one ordered command that carries them, and the
//! watched keys with the versions that `WATCH` read; its destinations are the shards of all these
//! keys. It runs at one moment in all of them, and only if no watched key has changed.

use super::super::Context;
use super::super::client::{ClientState, QueuedTransaction};
use super::super::number::parse_int;
use super::super::registry::{AfterRun, CommandRunner, CommandSpec, EACH, KeyArguments};
use super::super::reply::{RedisError, Reply};
use super::super::run;
use super::super::work;
use amcast_core::Outcome;
use std::borrow::Cow;
use std::collections::BTreeSet;

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::local("multi", 1, "noscript loading stale fast", multi, "Begins a transaction."),
    CommandSpec {
        name: "exec",
        arity: -1,
        flags: "write noscript loading stale skip_slowlog",
        keys: KeyArguments::Inner,
        summary: "Runs the commands of a transaction at one moment.",
        run: CommandRunner::Both(exec, exec_ordered),
        work: None,
    },
    CommandSpec::local(
        "discard",
        1,
        "noscript loading stale fast",
        discard,
        "Ends a transaction undone.",
    ),
    CommandSpec {
        name: "watch",
        arity: -2,
        flags: "write noscript loading stale fast",
        keys: EACH,
        summary: "Lets the next transaction run only if keys do not change.",
        run: CommandRunner::Both(watch, watch_ordered),
        work: Some(work::of_watch),
    },
    CommandSpec::local("unwatch", 1, "noscript loading stale fast", unwatch, "Watches no key."),
];

/// A transaction as ordered: `exec`, the number of watched keys, each with its version, the
/// number of commands, each behind the number of its arguments.
pub struct OrderedTransaction<'a> {
    /// The watched keys, with the versions that they had.
    pub watched: Vec<(&'a [u8], u64)>,
    /// The commands, each as its arguments.
    pub commands: Vec<Vec<&'a [u8]>>,
}

impl<'a> OrderedTransaction<'a> {
    /// Reads a script; none if it is none.
    pub fn parse(args: &[&'a [u8]]) -> Option<Self> {
        let mut rest = args[1..].iter().copied();
        let number = |rest: &mut dyn Iterator<Item = &'a [u8]>| {
            rest.next().and_then(parse_int).and_then(|n| u64::try_from(n).ok())
        };
        let mut watched = Vec::new();
        for _ in 0..number(&mut rest)? {
            watched.push((rest.next()?, number(&mut rest)?));
        }
        let mut commands = Vec::new();
        for _ in 0..number(&mut rest)? {
            let count = number(&mut rest)?;
            let command: Vec<&[u8]> = rest.by_ref().take(count as usize).collect();
            let whole = command.len() as u64 == count && count > 0;
            if !whole || command[0].eq_ignore_ascii_case(b"exec") {
                return None;
            }
            commands.push(command);
        }
        rest.next().is_none().then_some(Self { watched, commands })
    }

    /// The arguments of an ordered `EXEC`.
    pub fn encode<'c>(client: &ClientState, commands: &[&'c Vec<Box<[u8]>>]) -> Vec<Cow<'c, [u8]>> {
        let number = |n: u64| Cow::Owned(n.to_string().into_bytes());
        let mut args = vec![Cow::Borrowed(&b"exec"[..]), number(client.watched.len() as u64)];
        for (key, version) in client.watched.iter() {
            args.push(Cow::Owned(key.to_vec()));
            args.push(number(*version));
        }
        args.push(number(commands.len() as u64));
        for command in commands {
            args.push(number(command.len() as u64));
            args.extend(command.iter().map(|arg| Cow::Borrowed(&**arg)));
        }
        args
    }
}

impl QueuedTransaction {
    /// Adds a command, if all together have no more bytes than `most`: they are ordered as one.
    pub fn push(&mut self, args: &[&[u8]], most: usize) -> Result<(), RedisError> {
        self.bytes += args.iter().map(|a| a.len() + 16).sum::<usize>();
        if self.bytes > most {
            self.spoiled = true;
            (self.commands, self.held) = (Vec::new(), 0);
            let why = format_args!("ERR the transaction is larger than the limit of {most} bytes");
            return Err(RedisError::of(Outcome::NotExecuted, why));
        }
        self.held += held(args.iter().map(|arg| arg.len()));
        self.commands.push(args.iter().map(|a| (*a).into()).collect());
        Ok(())
    }
}

/// Bytes of memory that a gathered command takes, about, by the lengths of its arguments: short ones take many times
/// their own bytes. The list of all commands may have grown to twice what it needs.
pub fn held(args: impl Iterator<Item = usize>) -> usize {
    const ALLOCATION_BYTES: usize = 16;
    let args = args.map(|len| size_of::<Box<[u8]>>() + len + ALLOCATION_BYTES).sum::<usize>();
    2 * size_of::<Vec<Box<[u8]>>>() + ALLOCATION_BYTES + args
}

fn multi(c: &mut ClientState, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<AfterRun, RedisError> {
    if c.transaction.is_some() {
        return Err(RedisError::new("ERR MULTI calls can not be nested"));
    }
    c.transaction = Some(QueuedTransaction::default());
    reply.ok();
    Ok(AfterRun::Answer)
}

fn discard(
    c: &mut ClientState,
    _: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    if c.transaction.take().is_none() {
        return Err(RedisError::new("ERR DISCARD without MULTI"));
    }
    c.watched.clear();
    reply.ok();
    Ok(AfterRun::Answer)
}

fn exec(c: &mut ClientState, args: &[&[u8]], _: &mut Reply<'_>) -> Result<AfterRun, RedisError> {
    if args.len() != 1 {
        // Redis finds that before it runs the command, and then the transaction is refused.
        c.transaction.iter_mut().for_each(|gathered| gathered.spoiled = true);
        return Err(RedisError::arity("exec"));
    }
    match &c.transaction {
        None => Err(RedisError::new("ERR EXEC without MULTI")),
        Some(t) if t.spoiled => {
            c.transaction = None;
            c.watched.clear();
            Err(RedisError::new("EXECABORT Transaction discarded because of previous errors."))
        }
        Some(_) => Ok(AfterRun::Transaction),
    }
}

fn exec_ordered(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let script = OrderedTransaction::parse(args).ok_or(RedisError::SYNTAX)?;
    if !script.watched.iter().all(|(key, version)| c.view(key).unchanged(key, *version)) {
        reply.null_array();
        return Ok(());
    }
    work::admit(c, &script)?;
    reply.array(script.commands.len());
    for command in &script.commands {
        // Of the whole transaction it says nothing: the others are executed.
        let _ = run(c, command, reply);
    }
    Ok(())
}

/// Keys that one client may watch, and their bytes: they travel with its transaction, which must fit into one message.
const WATCHED_MAX: usize = 10_000;
const WATCHED_BYTES_MAX: usize = amcast_core::limits::PAYLOAD_BYTES_MAX / 2;

fn watch(c: &mut ClientState, args: &[&[u8]], _: &mut Reply<'_>) -> Result<AfterRun, RedisError> {
    let fresh: BTreeSet<&[u8]> =
        args[1..].iter().copied().filter(|key| !c.watched.contains(key)).collect();
    if c.watched.len() + fresh.len() > WATCHED_MAX {
        return Err(RedisError::new(format!("ERR more than {WATCHED_MAX} keys are watched")));
    }
    if c.watched.bytes() + fresh.iter().map(|key| key.len()).sum::<usize>() > WATCHED_BYTES_MAX {
        return Err(RedisError::new(format!(
            "ERR the keys that are watched have more than {WATCHED_BYTES_MAX} bytes"
        )));
    }
    if c.transaction.is_some() {
        return Err(RedisError::new("ERR WATCH inside MULTI is not allowed"));
    }
    Ok(AfterRun::Watch)
}

fn watch_ordered(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    reply.array(args.len() - 1);
    for key in &args[1..] {
        let version = c.store(key).watch(key);
        reply.int(version as i64);
    }
    Ok(())
}

fn unwatch(
    c: &mut ClientState,
    _: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    c.watched.clear();
    reply.ok();
    Ok(AfterRun::Answer)
}
