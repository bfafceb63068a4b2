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
