//! The server: information, configuration, the list of commands, the cluster.

use super::super::client::{ClientState, lock, wall_us};
use super::super::number::parse_int;
use super::super::registry::{self, AfterRun, CommandSpec, KeyArguments};
use super::super::reply::{RedisError, Reply};
use super::super::{Context, Partitions, glob, slots};
use super::connection::NAMED_MAX;
use super::{hyperloglog, info, keys, subcommands};
use amcast_core::limits::PAYLOAD_BYTES_MAX;
use amcast_core::{Gid, GroupSet};
use std::collections::BTreeMap;

/// The version of Redis whose commands are followed.
pub const VERSION: &str = "7.0.15";

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::local("info", -1, "loading stale", info::info, "Tells about the server."),
    CommandSpec::local("command", -1, "loading stale", command, "Tells about commands."),
    CommandSpec::local(
        "config",
        -2,
        "admin noscript loading stale",
        config,
        "Shows parameters; to set one to another value is refused, but for those of encodings, which mean nothing here.",
    ),
    CommandSpec::local("cluster", -2, "stale", cluster, "Tells where keys are: all are here."),
    CommandSpec::local("time", 1, "loading stale fast", time, "Returns this gateway's clock."),
    CommandSpec::local(
        "wait",
        3,
        "noscript",
        wait,
        "Returns at once how many other replicas certainly have each write that was answered before.",
    ),
    CommandSpec::local(
        "role",
        1,
        "noscript loading stale fast",
        role,
        "Returns the role, which is master.",
    ),
    CommandSpec::local(
        "readonly",
        1,
        "loading stale fast",
        fine,
        "Allows reads at replicas; all are linearizable.",
    ),
    CommandSpec::local("readwrite", 1, "loading stale fast", fine, "Undoes READONLY."),
    CommandSpec::local(
        "lastsave",
        1,
        "loading stale fast",
        lastsave,
        "Returns until when writes are certainly on disk: now, or the gateway's start where they are not synced.",
    ),
    CommandSpec::ordered(
        TIDY,
        2,
        "write admin",
        KeyArguments::Shards(tidied),
        tidy,
        "Frees memory of expired keys in a shard; servers send it by themselves.",
    ),
];

/// Has a shard free what expired: keys of a shard that no command comes to would be held for ever.
pub const TIDY: &str = "amcast.tidy";

/// Keys that it drops at a time: this takes a few milliseconds at the most.
const TIDY_KEYS: usize = 5000;

fn tidied(args: &[&[u8]], map: &Partitions) -> GroupSet {
    let shard = parse_int(args[1]).and_then(|n| u8::try_from(n).ok());
    let shard = shard.filter(|n| usize::from(*n) < map.shards());
    shard.map_or(GroupSet::EMPTY, |n| GroupSet::one(Gid(n)))
}

/// It touches the whole shard, so it runs behind everything that could still see what it drops. It counts as a command that
/// writes, although no answer shows what it did: one that only reads may be answered by one replica alone, at a later
/// time than the others have reached.
fn tidy(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    if tidied(args, &c.map).is_empty() {
        return Err(RedisError::new("ERR there is no such shard"));
    }
    for store in c.each_store() {
        store.purge(store.now_ms, TIDY_KEYS);
    }
    reply.ok();
    Ok(())
}

const DONE: Result<AfterRun, RedisError> = Ok(AfterRun::Answer);

/// Parameters of how Redis keeps values inside: their names, the older ones, which mean the same, and the usual values. They may
/// be set, so that programs which do so run. Nothing that clients see depends on them but what `OBJECT ENCODING` says, by the
/// usual values: all replicas must say the same.
const ENCODINGS: [(&str, &str, i64); 7] = {
    let [hash, hash_value, set, sorted, sorted_value] = keys::ENCODING_BOUNDS;
    [
        (hash.0, "hash-max-ziplist-entries", hash.1 as i64),
        (hash_value.0, "hash-max-ziplist-value", hash_value.1 as i64),
        (sorted.0, "zset-max-ziplist-entries", sorted.1 as i64),
        (sorted_value.0, "zset-max-ziplist-value", sorted_value.1 as i64),
        (set.0, set.0, set.1 as i64),
        ("list-max-listpack-size", "list-max-ziplist-size", -2),
        ("list-compress-depth", "list-compress-depth", 0),
    ]
};

/// The name that a parameter has now.
fn present_name(name: &str) -> &str {
    let of = |(now, before, _): &(&'static str, &str, i64)| (*before == name).then_some(*now);
    ENCODINGS.iter().find_map(of).unwrap_or(name)
}

/// Parameters that `CONFIG` shows, those that clients look for: a cluster is set up when it is started, the same on all
/// gateways. [`ENCODINGS`] may be set, each gateway's for itself.
pub struct Settings(BTreeMap<&'static str, String>);

impl Settings {
    /// With this password, if one is asked for, so many connections at a time, and writes that are synced before
    /// their answers or not.
    pub fn new(password: Option<String>, clients_max: usize, syncs_writes: bool) -> Self {
        let mut all: BTreeMap<&'static str, String> = [
            ("appendonly", if syncs_writes { "yes" } else { "no" }),
            ("databases", "1"),
            ("maxmemory", "0"),
            ("maxmemory-policy", "noeviction"),
            ("save", ""),
            ("timeout", "0"),
            ("slowlog-log-slower-than", "-1"),
            ("slowlog-max-len", "128"),
        ]
        .map(|(k, v)| (k, v.to_owned()))
        .into();
        if syncs_writes {
            all.insert("appendfsync", "always".to_owned());
        }
        all.extend(ENCODINGS.map(|(name, _, usual)| (name, usual.to_string())));
        all.insert("requirepass", password.unwrap_or_default());
        all.insert("hll-sparse-max-bytes", hyperloglog::SPARSE_BYTES_MAX.to_string());
        all.insert("maxclients", clients_max.to_string());
        all.insert("proto-max-bulk-len", PAYLOAD_BYTES_MAX.to_string());
        Self(all)
    }

    /// How large a command may be, in bytes.
    pub fn show_command_bytes(&mut self, most: usize) {
        self.0.insert("proto-max-bulk-len", most.to_string());
    }

    /// The password that clients must give, if any.
    pub fn password(&self) -> Option<&str> {
        self.0.get("requirepass").map(String::as_str).filter(|p| !p.is_empty())
    }

    /// Sets parameters to their values, all of them or none. The cluster's `maxmemory` is given.
    ///
    /// # Errors
    /// When one has another value and cannot be set, or is none.
    fn set(&mut self, pairs: &[&[u8]], maxmemory: u64) -> Result<(), RedisError> {
        for pair in pairs.chunks_exact(2) {
            self.may_set(pair[0], pair[1], maxmemory)?;
        }
        for pair in pairs.chunks_exact(2) {
            let name = String::from_utf8_lossy(pair[0]).to_ascii_lowercase();
            let encoding = ENCODINGS.iter().find(|encoding| encoding.0 == present_name(&name));
            if let (Some((name, ..)), Some(value)) = (encoding, parse_int(pair[1])) {
                self.0.insert(name, value.to_string());
            }
        }
        Ok(())
    }

    fn may_set(&self, name: &[u8], value: &[u8], maxmemory: u64) -> Result<(), RedisError> {
        let asked = String::from_utf8_lossy(name).to_ascii_lowercase();
        let name = present_name(&asked);
        let why = match (self.0.get(name), name) {
            (Some(_), name) if ENCODINGS.iter().any(|encoding| encoding.0 == name) => {
                match parse_int(value) {
                    Some(n) if n >= 0 || name == "list-max-listpack-size" => return Ok(()),
                    Some(_) => "argument must be between 0 and 9223372036854775807 inclusive",
                    None => "argument couldn't be parsed into an integer",
                }
            }
            (Some(_), "maxmemory") if maxmemory.to_string().as_bytes() == value => return Ok(()),
            (Some(has), name) if has.as_bytes() == value && name != "maxmemory" => return Ok(()),
            (Some(_), "requirepass") => {
                "a password holds for all gateways of a cluster: start it with --password-file"
            }
            (Some(_), "maxmemory") => "it holds for all nodes: AMCAST.MAXMEMORY sets it",
            (Some(_), _) => "can't set immutable config",
            (None, _) => {
                return Err(RedisError::new(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{asked}'"
                )));
            }
        };
        Err(RedisError::new(format!(
            "ERR CONFIG SET failed (possibly related to argument '{asked}') - {why}"
        )))
    }
}

fn config(
    c: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    let mut settings = lock(&c.server.settings);
    match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
        (b"get", patterns @ [_, ..]) => {
            let wanted = names_like(patterns)?;
            let older = ENCODINGS.iter().filter(|(now, before, _)| now != before);
            let older = older.filter_map(|(now, before, _)| Some((before, settings.0.get(now)?)));
            let all = settings.0.iter().chain(older);
            let found: Vec<_> = all.filter(|(name, _)| wanted(name)).collect();
            let budget = maxmemory(c).to_string();
            reply.map(found.len());
            for (name, value) in found {
                reply.bulk(name.as_bytes());
                reply.bulk(if *name == "maxmemory" { &budget } else { value }.as_bytes());
            }
        }
        (b"set", pairs @ [_, ..]) if pairs.len() % 2 == 0 => {
            let now = maxmemory(c);
            settings.set(pairs, now)?;
            reply.ok();
        }
        (b"resetstat", []) => {
            c.server.reset_stats();
            reply.ok();
        }
        _ => subcommands::help("CONFIG", args, reply)?,
    }
    DONE
}

/// Bytes that all keys of a node may take; 0 for any number.
pub(super) fn maxmemory(c: &ClientState) -> u64 {
    c.server.status.shards().iter().map(|shard| shard.budget_bytes).sum()
}

fn key_spec(c: &CommandSpec) -> (i64, i64, i64) {
    match c.keys {
        KeyArguments::Range { first, last, step } => (first as i64, last as i64, step as i64),
        KeyArguments::Counted { before: 1, .. } | KeyArguments::Told(_) => (1, 1, 1),
        _ => (0, 0, 0),
    }
}

fn describe(c: &CommandSpec, reply: &mut Reply<'_>) {
    let (first, last, step) = key_spec(c);
    reply.array(10);
    reply.bulk(c.name.as_bytes());
    reply.int(i64::from(c.arity));
    let flags = c.flags.split(' ').filter(|f| !f.is_empty());
    let movable = matches!(c.keys, KeyArguments::Counted { .. } | KeyArguments::Told(_))
        .then_some("movablekeys");
    let flags: Vec<&str> = flags.chain(movable).collect();
    reply.set(flags.len());
    flags.iter().for_each(|f| reply.simple(f));
    reply.int(first);
    reply.int(last);
    reply.int(step);
    for _ in 0..4 {
        reply.array(0);
    }
}

/// Bytes of patterns of names in one command, at the most: names are compared with them in the thread that serves all
/// clients of a gateway, and no name has so many.
const PATTERN_BYTES_MAX: usize = 1024;

/// Tells which names are like one of these patterns, in any case.
fn names_like(patterns: &[&[u8]]) -> Result<impl Fn(&str) -> bool + use<>, RedisError> {
    if patterns.iter().map(|pattern| pattern.len()).sum::<usize>() > PATTERN_BYTES_MAX {
        return Err(RedisError::new(format!(
            "ERR patterns of names may have at most {PATTERN_BYTES_MAX} bytes together"
        )));
    }
    let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.to_ascii_lowercase()).collect();
    Ok(move |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes())))
}

/// Tells which commands are listed.
type CommandFilter = Box<dyn Fn(&CommandSpec) -> bool>;

/// Which commands a list has with this filter: those of a module, of which there are none; of a category, as
/// far as flags tell; or of names like a pattern.
fn listed(filter: &[&[u8]]) -> Result<CommandFilter, RedisError> {
    let (by, value) = match filter {
        [] => return Ok(Box::new(|_| true)),
        [word, by, value] if word.eq_ignore_ascii_case(b"filterby") => (*by, *value),
        _ => return Err(RedisError::SYNTAX),
    };
    match by.to_ascii_lowercase().as_slice() {
        b"module" => Ok(Box::new(|_| false)),
        b"pattern" => {
            let wanted = names_like(&[value])?;
            Ok(Box::new(move |c| wanted(c.name)))
        }
        b"aclcat" => {
            let category = value.to_ascii_lowercase();
            Ok(Box::new(move |c| match category.as_slice() {
                b"read" => c.is("readonly"),
                b"write" => c.is("write"),
                b"fast" => c.is("fast"),
                b"slow" => !c.is("fast"),
                _ => false,
            }))
        }
        _ => Err(RedisError::SYNTAX),
    }
}

fn command(
    _: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    let all = || {
        registry::families()
            .iter()
            .flat_map(|(family, list)| list.iter().map(move |c| (*family, c)))
    };
    let Some(sub) = args.get(1).map(|s| s.to_ascii_lowercase()) else {
        reply.array(all().count());
        all().for_each(|(_, c)| describe(c, reply));
        return DONE;
    };
    match (sub.as_slice(), &args[2..]) {
        (b"count", []) => reply.count(all().count()),
        (b"list", filter) => {
            let wanted = listed(filter)?;
            let names: Vec<_> = all().filter(|(_, c)| wanted(c)).map(|(_, c)| c.name).collect();
            reply.array(names.len());
            names.iter().for_each(|name| reply.bulk(name.as_bytes()));
        }
        (b"info", []) => {
            reply.array(all().count());
            all().for_each(|(_, c)| describe(c, reply));
        }
        (b"info" | b"docs", names) if names.len() > NAMED_MAX => {
            return Err(RedisError::new(format!("ERR more than {NAMED_MAX} commands are named")));
        }
        (b"info", names) => {
            reply.array(names.len());
            for name in names {
                match registry::lookup(name) {
                    Some(c) => describe(c, reply),
                    None => reply.null_array(),
                }
            }
        }
        (b"docs", names) => {
            let wanted: Vec<_> = all()
                .filter(|(_, c)| {
                    names.is_empty()
                        || names.iter().any(|n| n.eq_ignore_ascii_case(c.name.as_bytes()))
                })
                .collect();
            reply.map(wanted.len());
            for (family, c) in wanted {
                reply.bulk(c.name.as_bytes());
                reply.map(2);
                for (key, value) in [("summary", c.summary), ("group", family)] {
                    reply.bulk(key.as_bytes());
                    reply.bulk(value.as_bytes());
                }
            }
        }
        (b"getkeys", inner @ [name, ..]) => get_keys(name, inner, reply)?,
        _ => subcommands::help("COMMAND", args, reply)?,
    }
    DONE
}

/// Answers the keys of a command.
fn get_keys(name: &[u8], inner: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let c = registry::lookup(name).ok_or(RedisError::new("ERR Invalid command specified"))?;
    let arity = RedisError::new("ERR Invalid number of arguments specified for command");
    c.check_arity(inner.len()).map_err(|_| arity)?;
    let mut keys = Vec::new();
    c.keys_of(inner, &mut |k| keys.push(k));
    if keys.is_empty() {
        return Err(RedisError::new("ERR The command has no key arguments"));
    }
    reply.array(keys.len());
    keys.iter().for_each(|k| reply.bulk(k));
    Ok(())
}

fn cluster(
    c: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    let (id, local) = (&c.server.run_id, c.info.local);
    let (host, port) = (local.ip().to_string(), local.port());
    let last_slot = slots::SLOTS - 1;
    match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
        (b"info", []) => {
            let size = c.server.partitions().shards();
            reply.text(&format!(
                "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n\
                 cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\n\
                 cluster_size:1\r\ncluster_current_epoch:1\r\ncluster_my_epoch:1\r\namcast_shards:{size}\r\n"
            ));
        }
        (b"myid", []) => reply.bulk(id.as_bytes()),
        (b"keyslot", [key]) => reply.int(i64::from(slots::slot(key))),
        (b"slots", []) => {
            reply.array(1);
            reply.array(3);
            reply.int(0);
            reply.int(i64::from(last_slot));
            reply.array(4);
            reply.bulk(host.as_bytes());
            reply.int(i64::from(port));
            reply.bulk(id.as_bytes());
            reply.array(0);
        }
        (b"shards", []) => {
            reply.array(1);
            reply.map(2);
            reply.bulk(b"slots");
            reply.array(2);
            reply.int(0);
            reply.int(i64::from(last_slot));
            reply.bulk(b"nodes");
            reply.array(1);
            reply.map(7);
            for (key, value) in [
                ("id", id.as_str()),
                ("ip", &host),
                ("endpoint", &host),
                ("role", "master"),
                ("health", "online"),
            ] {
                reply.bulk(key.as_bytes());
                reply.bulk(value.as_bytes());
            }
            for (key, value) in [("port", i64::from(port)), ("replication-offset", 0)] {
                reply.bulk(key.as_bytes());
                reply.int(value);
            }
        }
        (b"nodes", []) => reply.text(&format!(
            "{id} {host}:{port}@{port} myself,master - 0 0 1 connected 0-{last_slot}\n"
        )),
        _ => subcommands::help("CLUSTER", args, reply)?,
    }
    DONE
}

fn time(_: &mut ClientState, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<AfterRun, RedisError> {
    let us = wall_us();
    reply.array(2);
    reply.bulk((us / 1_000_000).to_string().as_bytes());
    reply.bulk((us % 1_000_000).to_string().as_bytes());
    DONE
}

fn wait(
    c: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    parse_int(args[1]).ok_or(RedisError::NOT_INTEGER)?;
    match parse_int(args[2]) {
        None => return Err(RedisError::new("ERR timeout is not an integer or out of range")),
        Some(n) if n < 0 => return Err(RedisError::new("ERR timeout is negative")),
        // A write is answered once so many have it, and waiting proves no more of the others.
        Some(_) => reply.count(c.server.other_certain_replicas),
    }
    DONE
}

fn role(_: &mut ClientState, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<AfterRun, RedisError> {
    reply.array(3);
    reply.bulk(b"master");
    reply.int(0);
    reply.array(0);
    DONE
}

fn fine(_: &mut ClientState, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<AfterRun, RedisError> {
    reply.ok();
    DONE
}

fn lastsave(
    c: &mut ClientState,
    _: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    let saved_s = match c.server.status.syncs_writes() {
        true => wall_us() / 1_000_000,
        // As a server that has saved nothing since it started.
        false => c.server.started_unix_s,
    };
    reply.int(saved_s as i64);
    DONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_pattern_of_names_is_refused() {
        let list = |pattern: &[u8]| {
            let filter = [&b"FILTERBY"[..], b"PATTERN", pattern];
            let found = listed(&filter).map(|wanted| registry::all().filter(|c| wanted(c)).count());
            found.map_err(|error| error.text().to_string())
        };
        assert_eq!(list(b"GET*"), Ok(6));
        assert!(list(&[b'*'; 1024]).is_ok_and(|found| found == registry::all().count()));
        assert!(list(&[b'*'; 1025]).is_err_and(|error| error.contains("at most 1024 bytes")));
    }
}
