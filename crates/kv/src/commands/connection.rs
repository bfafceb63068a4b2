//! The connection itself: greeting, authentication, names.

use super::super::client::{ClientInfo, ClientReport, ClientState, Unblocked, lock, wall_us};
use super::super::number::parse_int;
use super::super::registry::{AfterRun, CommandSpec};
use super::super::reply::{RedisError, Reply};
use super::subcommands;
use amcast_core::limits::ANSWER_BYTES_MAX;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

/// How many clients, or commands, a command may name: to find each takes time, and others wait meanwhile.
pub(super) const NAMED_MAX: usize = 1000;

/// How many filters `CLIENT KILL` may have: each looks at all clients.
const KILL_FILTERS_MAX: usize = 16;

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::local("ping", -1, "fast", ping, "Answers PONG or its argument."),
    CommandSpec::local("echo", 2, "loading stale fast", echo, "Answers its argument."),
    CommandSpec::local(
        "hello",
        -1,
        "noscript loading stale fast no_auth",
        hello,
        "Greets and chooses the protocol's version.",
    ),
    CommandSpec::local(
        "auth",
        -2,
        "noscript loading stale fast no_auth",
        auth,
        "Authenticates the client.",
    ),
    CommandSpec::local(
        "select",
        2,
        "loading stale fast",
        select,
        "Chooses the database, of which there is one.",
    ),
    CommandSpec::local(
        "quit",
        -1,
        "noscript loading stale fast no_auth",
        quit,
        "Closes the connection.",
    ),
    CommandSpec::local(
        "reset",
        1,
        "noscript loading stale fast no_auth",
        reset,
        "Makes the connection as new.",
    ),
    CommandSpec::local(
        "client",
        -2,
        "admin noscript loading stale",
        client,
        "Tells about and manages connections.",
    ),
];

const DONE: Result<AfterRun, RedisError> = Ok(AfterRun::Answer);

fn ping(
    _: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    match args {
        [_] => reply.simple("PONG"),
        [_, text] => reply.bulk(text),
        _ => return Err(RedisError::arity("ping")),
    }
    DONE
}

fn echo(
    _: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    reply.bulk(args[1]);
    DONE
}

/// Compares in a time that depends on the lengths alone.
fn same_secret(a: &[u8], b: &[u8]) -> bool {
    let differ = a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y));
    a.len() == b.len() && std::hint::black_box(differ) == 0
}

fn log_in(c: &mut ClientState, user: &[u8], given: &[u8]) -> Result<(), RedisError> {
    let settings = lock(&c.server.settings);
    let right = match settings.password() {
        Some(password) => same_secret(password.as_bytes(), given),
        None => true,
    };
    if right && user == b"default" {
        drop(settings);
        c.authenticated = true;
        return Ok(());
    }
    drop(settings);
    c.wrong_passwords += 1;
    Err(RedisError::new("WRONGPASS invalid username-password pair or user is disabled."))
}

fn auth(
    c: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    match args {
        [_, password] => {
            if lock(&c.server.settings).password().is_none() {
                return Err(RedisError::new(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                ));
            }
            log_in(c, b"default", password)?;
        }
        [_, user, password] => log_in(c, user, password)?,
        _ => return Err(RedisError::SYNTAX),
    }
    reply.ok();
    DONE
}

fn hello(
    c: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    let mut version = c.resp;
    if let Some(v) = args.get(1) {
        version = match parse_int(v) {
            Some(v @ (2 | 3)) => v as u8,
            Some(_) => return Err(RedisError::new("NOPROTO unsupported protocol version")),
            None => {
                return Err(RedisError::new(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        };
    }
    let mut name = None;
    let mut i = 2;
    while let Some(word) = args.get(i) {
        if word.eq_ignore_ascii_case(b"auth") && i + 2 < args.len() {
            log_in(c, args[i + 1], args[i + 2])?;
            i += 3;
        } else if word.eq_ignore_ascii_case(b"setname") && i + 1 < args.len() {
            name = Some(checked_name(args[i + 1], CLIENT_NAMES)?);
            i += 2;
        } else {
            let word = String::from_utf8_lossy(word);
            return Err(RedisError::new(format!("ERR Syntax error in HELLO option '{word}'")));
        }
    }
    if !c.authenticated {
        return Err(RedisError::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        lock(&c.info.said).name = name;
    }
    c.resp = version;
    lock(&c.info.said).resp = version;
    reply.map(7);
    for (key, value) in [("server", "redis"), ("version", super::server::VERSION)] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.int(i64::from(version));
    reply.bulk(b"id");
    reply.int(c.info.id as i64);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    DONE
}

fn select(
    _: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    match parse_int(args[1]) {
        Some(0) => reply.ok(),
        Some(_) => return Err(RedisError::new("ERR DB index is out of range")),
        None => return Err(RedisError::NOT_INTEGER),
    }
    DONE
}

fn quit(_: &mut ClientState, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<AfterRun, RedisError> {
    reply.ok();
    Ok(AfterRun::Close)
}

fn reset(c: &mut ClientState, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<AfterRun, RedisError> {
    let wrong_passwords = c.wrong_passwords;
    *c = ClientState { wrong_passwords, ..ClientState::new(c.server.clone(), c.info.clone()) };
    let mut said = lock(&c.info.said);
    said.name.clear();
    said.resp = 2;
    reply.simple("RESET");
    DONE
}

/// Bytes of each name that a client gives itself or its library, at the most: they are held for every connection, and
/// all are shown together.
const NAME_BYTES_MAX: usize = 256;

/// A name that a client gave; `what` it is, for the error.
fn checked_name(name: &[u8], what: &str) -> Result<String, RedisError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(RedisError::new(format!(
            "ERR {what} may have at most {NAME_BYTES_MAX} bytes."
        )));
    }
    if name.iter().all(|b| (b'!'..=b'~').contains(b)) {
        return Ok(String::from_utf8_lossy(name).into_owned());
    }
    Err(RedisError::new(format!(
        "ERR {what} cannot contain spaces, newlines or special characters."
    )))
}

/// The subject of an error about a name of `CLIENT SETNAME`.
const CLIENT_NAMES: &str = "Client names";

fn set_info(c: &ClientState, what: &[u8], text: &[u8]) -> Result<(), RedisError> {
    let place: fn(&mut ClientReport) -> &mut String = match what.to_ascii_lowercase().as_slice() {
        b"lib-name" => |said| &mut said.lib_name,
        b"lib-ver" => |said| &mut said.lib_version,
        _ => {
            let what = String::from_utf8_lossy(what);
            return Err(RedisError::new(format!("ERR Unrecognized option '{what}'")));
        }
    };
    let text = checked_name(text, &String::from_utf8_lossy(what).to_ascii_lowercase())?;
    *place(&mut lock(&c.info.said)) = text;
    Ok(())
}

fn client(
    c: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    let sub = args[1].to_ascii_lowercase();
    match (sub.as_slice(), &args[2..]) {
        (b"id", []) => reply.int(c.info.id as i64),
        (b"getname", []) => {
            let name = lock(&c.info.said).name.clone();
            reply.bulk_or_null((!name.is_empty()).then_some(name.as_bytes()));
        }
        (b"setname", [name]) => {
            lock(&c.info.said).name = checked_name(name, CLIENT_NAMES)?;
            reply.ok();
        }
        (b"setinfo", [what, text]) => {
            set_info(c, what, text)?;
            reply.ok();
        }
        (b"info", []) => reply.text(&line(&c.info)),
        (b"list", filters) => list(c, filters, reply)?,
        (b"kill", filters @ [_, ..]) => return kill(c, filters, reply),
        (b"unblock", [id, how @ ..]) => unblock(c, id, how, reply)?,
        (b"no-evict" | b"no-touch", [how]) => match on_off(how) {
            Some(_) => reply.ok(),
            None => return Err(RedisError::SYNTAX),
        },
        (b"getredir", []) => reply.int(-1),
        (b"unpause", []) => reply.ok(),
        (b"trackinginfo", []) => {
            reply.map(3);
            reply.bulk(b"flags");
            reply.set(1);
            reply.bulk(b"off");
            reply.bulk(b"redirect");
            reply.int(-1);
            reply.bulk(b"prefixes");
            reply.array(0);
        }
        (b"reply", [how]) => match how.to_ascii_lowercase().as_slice() {
            b"on" => {
                (c.silent, c.skip_next) = (false, false);
                reply.ok();
            }
            b"off" => c.silent = true,
            b"skip" => c.skip_next = !c.silent,
            _ => return Err(RedisError::SYNTAX),
        },
        _ => subcommands::help("CLIENT", args, reply)?,
    }
    DONE
}

fn on_off(word: &[u8]) -> Option<bool> {
    match word.to_ascii_lowercase().as_slice() {
        b"on" => Some(true),
        b"off" => Some(false),
        _ => None,
    }
}

fn list(c: &ClientState, filters: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let clients = lock(&c.server.clients);
    let text = match filters {
        [] => lines(clients.values(), ANSWER_BYTES_MAX),
        [word, kind] if word.eq_ignore_ascii_case(b"type") => {
            match kind.to_ascii_lowercase().as_slice() {
                b"normal" => lines(clients.values(), ANSWER_BYTES_MAX),
                b"master" | b"replica" | b"slave" | b"pubsub" => String::new(),
                _ => {
                    let kind = String::from_utf8_lossy(kind);
                    return Err(RedisError::new(format!("ERR Unknown client type '{kind}'")));
                }
            }
        }
        [word, ids @ ..] if word.eq_ignore_ascii_case(b"id") && !ids.is_empty() => {
            if ids.len() > NAMED_MAX {
                return Err(RedisError::new(format!(
                    "ERR more than {NAMED_MAX} clients are named"
                )));
            }
            let id = |id: &&[u8]| parse_int(id).ok_or(RedisError::new("ERR Invalid client ID"));
            let ids = ids.iter().map(id).collect::<Result<Vec<_>, _>>()?;
            let named = ids.iter().filter_map(|id| clients.get(&(*id as u64)));
            lines(named, ANSWER_BYTES_MAX)
        }
        _ => return Err(RedisError::SYNTAX),
    };
    reply.text(&text);
    Ok(())
}

/// Clients as `CLIENT LIST` shows them, as long as all that comes first has `most` bytes at the most: one may be
/// asked for often, and a longer answer is not given in any case.
fn lines<'a>(clients: impl Iterator<Item = &'a Arc<ClientInfo>>, most: usize) -> String {
    let mut text = String::new();
    for info in clients {
        text.push_str(&line(info));
        if text.len() > most {
            break;
        }
    }
    text
}

/// One client as `CLIENT LIST` shows it.
fn line(info: &ClientInfo) -> String {
    let ClientReport { name, lib_name, lib_version, resp, command, active_us } =
        lock(&info.said).clone();
    let (now, mut text) = (wall_us(), String::new());
    let secs = |since: u64| now.saturating_sub(since) / 1_000_000;
    writeln!(
        text,
        "id={} addr={} laddr={} fd=8 name={name} age={} idle={} flags={} db=0 sub=0 psub=0 ssub=0 \
         multi=-1 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=1024 rbp=0 obl=0 oll=0 omem=0 \
         tot-mem={} events=r cmd={command} user=default redir=-1 resp={resp} lib-name={lib_name} \
         lib-ver={lib_version}",
        info.id,
        info.peer,
        info.local,
        secs(info.since_us),
        secs(active_us),
        if info.block.waits() { 'b' } else { 'N' },
        info.held.load(std::sync::atomic::Ordering::Relaxed),
    )
    .expect("a string takes all");
    text
}

/// Ends the wait of a client that waits for a key.
fn unblock(
    c: &ClientState,
    id: &[u8],
    how: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let how = match how {
        [] => Unblocked::TimedOut,
        [how] if how.eq_ignore_ascii_case(b"timeout") => Unblocked::TimedOut,
        [how] if how.eq_ignore_ascii_case(b"error") => Unblocked::WithError,
        [_] => {
            let why = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
            return Err(RedisError::new(why));
        }
        _ => return Err(RedisError::SYNTAX),
    };
    let id = parse_int(id).ok_or(RedisError::NOT_INTEGER)?;
    let client = lock(&c.server.clients).get(&(id as u64)).cloned();
    let waited = client.filter(|client| client.block.end(how));
    reply.flag(waited.is_some());
    waited.iter().for_each(|client| (client.wake)());
    Ok(())
}

fn kill(c: &ClientState, filters: &[&[u8]], reply: &mut Reply<'_>) -> Result<AfterRun, RedisError> {
    let clients: Vec<Arc<ClientInfo>> = lock(&c.server.clients).values().cloned().collect();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    if let [addr] = filters {
        let address: Option<SocketAddr> = text(addr).parse().ok();
        let found = clients.iter().find(|i| Some(i.peer) == address);
        let found = found.ok_or(RedisError::new("ERR No such client"))?;
        reply.ok();
        return Ok(end(c, std::slice::from_ref(found)));
    }
    if !filters.len().is_multiple_of(2) {
        return Err(RedisError::SYNTAX);
    }
    if filters.len() > 2 * KILL_FILTERS_MAX {
        return Err(RedisError::new(format!("ERR more than {KILL_FILTERS_MAX} filters are given")));
    }
    let (mut spare_me, mut chosen) = (true, clients);
    for pair in filters.chunks_exact(2) {
        let value = text(pair[1]);
        let address: Option<SocketAddr> = value.parse().ok();
        match pair[0].to_ascii_lowercase().as_slice() {
            b"id" => {
                let id = parse_int(pair[1]).filter(|id| *id > 0);
                let id =
                    id.ok_or(RedisError::new("ERR client-id should be greater than 0"))? as u64;
                chosen.retain(|i| i.id == id);
            }
            b"addr" => chosen.retain(|i| Some(i.peer) == address),
            b"laddr" => chosen.retain(|i| Some(i.local) == address),
            b"user" if value == "default" => {}
            b"user" => return Err(RedisError::new(format!("ERR No such user '{value}'"))),
            b"type" if value == "normal" => {}
            // There are none of these.
            b"type" if ["master", "slave", "replica", "pubsub"].contains(&&*value) => {
                chosen.clear()
            }
            b"type" => return Err(RedisError::new(format!("ERR Unknown client type '{value}'"))),
            b"skipme" if value.eq_ignore_ascii_case("yes") => spare_me = true,
            b"skipme" if value.eq_ignore_ascii_case("no") => spare_me = false,
            _ => return Err(RedisError::SYNTAX),
        }
    }
    if spare_me {
        chosen.retain(|i| i.id != c.info.id);
    }
    reply.count(chosen.len());
    Ok(end(c, &chosen))
}

/// Has these connections closed: the client's own one when it has all answers.
fn end(c: &ClientState, chosen: &[Arc<ClientInfo>]) -> AfterRun {
    let mut next = AfterRun::Answer;
    for info in chosen {
        match info.id == c.info.id {
            true => next = AfterRun::Close,
            false => info.kill(),
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::super::super::Partitions;
    use super::super::super::client::{BlockState, StoreServer};
    use super::super::super::registry::{CommandRunner, lookup};
    use super::super::super::status::{ServerStatus, ShardStatus};
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    struct NoShards;

    impl ServerStatus for NoShards {
        fn node(&self) -> String {
            String::new()
        }

        fn protocol(&self) -> String {
            String::new()
        }

        fn shards(&self) -> Vec<ShardStatus> {
            Vec::new()
        }

        fn ready(&self) -> Result<(), String> {
            Ok(())
        }
    }

    fn connection(id: u64) -> ClientInfo {
        let address = "127.0.0.1:1".parse().unwrap();
        let said = ClientReport {
            name: String::new(),
            lib_name: String::new(),
            lib_version: String::new(),
            resp: 2,
            command: "client",
            active_us: 0,
        };
        ClientInfo {
            id,
            peer: address,
            local: address,
            since_us: 0,
            said: Mutex::new(said),
            killed: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            block: BlockState::default(),
            wake: Box::new(|| ()),
        }
    }

    fn connected() -> ClientState {
        let map = Arc::new(Partitions::by_slot(1));
        let server = StoreServer::new(map, 10, 0, None, Arc::new(NoShards));
        let info = Arc::new(connection(1));
        lock(&server.clients).insert(1, info.clone());
        ClientState::new(Arc::new(server), info)
    }

    fn run(c: &mut ClientState, line: &str) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out);
        let Some(CommandRunner::Gateway(run)) = lookup(args[0]).map(|c| c.run) else { panic!() };
        if let Err(error) = run(c, &args, &mut reply) {
            reply.error(&error);
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn a_list_of_clients_ends_where_it_is_too_long() {
        let c = connected();
        let one = lines([&c.info].into_iter(), 1_000);
        assert_eq!(lines([&c.info; 3].into_iter(), 1_000_000), one.repeat(3));
        let mut looked = 0;
        let clients = std::iter::repeat_n(&c.info, 1_000).inspect(|_| looked += 1);
        assert_eq!(lines(clients, 10 * one.len()).len(), 11 * one.len());
        assert_eq!(looked, 11);
    }

    #[test]
    fn a_filter_that_is_not_understood_ends_no_connection() {
        let mut c = connected();
        assert_eq!(run(&mut c, "CLIENT KILL SKIPME maybe"), "-ERR syntax error\r\n");
        assert_eq!(run(&mut c, "CLIENT KILL TYPE x"), "-ERR Unknown client type 'x'\r\n");
        assert_eq!(run(&mut c, "CLIENT KILL TYPE pubsub SKIPME no"), ":0\r\n");
        assert!(!c.info.killed.load(Ordering::Relaxed));
    }

    #[test]
    fn a_wrong_number_of_arguments_is_said_of_the_subcommand() {
        let mut c = connected();
        for (command, name) in [
            ("CLIENT KILL", "kill"),
            ("CLIENT id 7", "id"),
            ("CLIENT SetName", "setname"),
            ("CLIENT NO-EVICT", "no-evict"),
            ("CLIENT HELP 7", "help"),
        ] {
            let arity = format!("-ERR wrong number of arguments for 'client|{name}' command\r\n");
            assert_eq!(run(&mut c, command), arity);
        }
        for command in ["CLIENT NO-EVICT maybe", "CLIENT REPLY maybe", "CLIENT LIST ID"] {
            assert_eq!(run(&mut c, command), "-ERR syntax error\r\n", "{command}");
        }
        let unknown = "-ERR unknown subcommand 'Pause'. Try CLIENT HELP.\r\n";
        assert_eq!(run(&mut c, "CLIENT Pause"), unknown);
    }

    #[test]
    fn a_client_that_kills_all_connections_ends_its_own_when_it_has_its_answers() {
        let c = connected();
        let other = Arc::new(connection(2));
        lock(&c.server.clients).insert(2, other.clone());
        let mut out = Vec::new();
        let filters: [&[u8]; 4] = [b"TYPE", b"normal", b"SKIPME", b"No"];
        let next = kill(&c, &filters, &mut Reply::new(&mut out)).expect("proper filters");
        assert_eq!((next, &*out), (AfterRun::Close, &b":2\r\n"[..]));
        let is_killed = [&c.info, &other].map(|info| info.killed.load(Ordering::Relaxed));
        assert_eq!(is_killed, [false, true]);
    }

    #[test]
    fn a_client_says_little_about_itself() {
        let mut c = connected();
        let (fits, long) = ("n".repeat(256), "n".repeat(257));
        for command in ["CLIENT SETNAME", "CLIENT SETINFO LIB-NAME", "CLIENT SETINFO lib-ver"] {
            assert_eq!(run(&mut c, &format!("{command} {fits}")), "+OK\r\n");
            let answer = run(&mut c, &format!("{command} {long}"));
            let expected = answer.starts_with("-ERR") && answer.contains("at most 256 bytes");
            assert!(expected, "{command}: {answer}");
        }
        let answer = run(&mut c, &format!("HELLO 3 SETNAME {long}"));
        assert!(answer.contains("at most 256 bytes"), "{answer}");
        assert_eq!(run(&mut c, "CLIENT GETNAME"), format!("$256\r\n{fits}\r\n"));
        let answer = run(&mut c, "CLIENT SETNAME a\n");
        assert_eq!(
            answer,
            "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
        );
        let answer = run(&mut c, "CLIENT SETINFO LIB-VER a\n");
        assert_eq!(
            answer,
            "-ERR lib-ver cannot contain spaces, newlines or special characters.\r\n"
        );
    }
}
