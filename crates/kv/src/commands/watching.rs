//! Commands of monitoring tools: each is answered, though the data are not kept here.

use super::super::client::ClientState;
use super::super::registry::{AfterRun, CommandSpec};
use super::super::reply::{RedisError, Reply};
use super::subcommands;

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::local(
        "slowlog",
        -2,
        "admin loading stale",
        slowlog,
        "Returns slow commands: none are kept.",
    ),
    CommandSpec::local(
        "latency",
        -2,
        "admin noscript loading stale",
        latency,
        "Returns spikes of latency: none are kept.",
    ),
    CommandSpec::local(
        "acl",
        -2,
        "admin noscript loading stale",
        acl,
        "Tells about users: there is one, who may do everything.",
    ),
    CommandSpec::local(
        "function",
        -2,
        "noscript",
        function,
        "Lists and deletes functions: there are none, and none can be loaded.",
    ),
];

const DONE: Result<AfterRun, RedisError> = Ok(AfterRun::Answer);

fn slowlog(
    _: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"get", 2 | 3) => reply.array(0),
        (b"len", 2) => reply.int(0),
        (b"reset", 2) => reply.ok(),
        _ => subcommands::help("SLOWLOG", args, reply)?,
    }
    DONE
}

fn latency(
    _: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"latest", 2) | (b"history", 3) => reply.array(0),
        (b"histogram", _) => reply.map(0),
        (b"reset", _) => reply.int(0),
        _ => subcommands::help("LATENCY", args, reply)?,
    }
    DONE
}

fn acl(c: &mut ClientState, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<AfterRun, RedisError> {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"whoami", 2) => reply.bulk(b"default"),
        (b"users", 2) => {
            reply.array(1);
            reply.bulk(b"default");
        }
        (b"list", 2) => {
            let open = super::super::client::lock(&c.server.settings).password().is_none();
            let line = match open {
                true => "user default on nopass ~* &* +@all",
                false => "user default on ~* &* +@all",
            };
            reply.array(1);
            reply.bulk(line.as_bytes());
        }
        _ => subcommands::help("ACL", args, reply)?,
    }
    DONE
}

/// Functions are listed and deleted by programs that want to begin without those of others.
fn function(
    _: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
        (b"flush", []) => reply.ok(),
        (b"flush", [how])
            if how.eq_ignore_ascii_case(b"async") || how.eq_ignore_ascii_case(b"sync") =>
        {
            reply.ok();
        }
        (b"flush", [_]) => {
            return Err(RedisError::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
        }
        (b"list", filters) => {
            check_function_filters(filters)?;
            reply.array(0);
        }
        _ => subcommands::help("FUNCTION", args, reply)?,
    }
    DONE
}

/// Whether these follow `FUNCTION LIST` in any order, each once: `WITHCODE`, and `LIBRARYNAME` with a pattern.
fn check_function_filters(filters: &[&[u8]]) -> Result<(), RedisError> {
    let (mut with_code, mut named) = (false, false);
    let mut rest = filters;
    while let [word, behind @ ..] = rest {
        rest = match (word.to_ascii_lowercase().as_slice(), behind) {
            (b"withcode", _) if !std::mem::replace(&mut with_code, true) => behind,
            (b"libraryname", []) if !named => {
                return Err(RedisError::new("ERR library name argument was not given"));
            }
            (b"libraryname", [_, behind @ ..]) if !std::mem::replace(&mut named, true) => behind,
            _ => {
                let word = String::from_utf8_lossy(word);
                return Err(RedisError::new(format!("ERR Unknown argument {word}")));
            }
        };
    }
    Ok(())
}
