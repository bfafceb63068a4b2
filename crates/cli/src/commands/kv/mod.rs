//! `amcast kv`: a small client of the key-value store, for hands and scripts.

mod partitions;

use super::not_running::stopped;
use super::terminal_text::{harmless, harmless_line, warn};
use super::wrong_port::{self, Listener};
use super::{Failure, cluster_dir, secret};
use amcast::client::{Answer, Connection};
use amcast_node::cluster_dir::{ClusterDir, GatewayAddresses};
use amcast_node::config::ClusterFile;
use amcast_node::control::statuses_of;
use amcast_node::system::refuses_address;
use serde_json::{Value, json};
use std::io::{self, ErrorKind, IsTerminal};
use std::path::PathBuf;

/// Reads and changes the keys of a running cluster, and says where they are.
///
/// Any other word is sent as a Redis command, such as: amcast kv incr counter. Exits with 1 if the
/// command was refused, or if there is no such key, and with 2 if it was misused.
#[derive(clap::Args)]
#[command(subcommand_value_name = "WORD", disable_help_subcommand = true)]
#[command(subcommand_help_heading = "Words")]
#[command(
    after_help = "Any other word is sent as a command of Redis: amcast kv incr counter. Options stand before such a word,
since all behind it are its arguments: amcast kv --data DIR incr counter."
)]
pub(super) struct KvArgs {
    /// The cluster's directory [of the only cluster that runs]
    #[arg(long, global = true)]
    data: Option<PathBuf>,
    /// Address of a Redis gateway, instead of a cluster of this machine
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "data", value_parser = address)]
    at: Option<String>,
    /// A file with the password of the gateway [the cluster's own, if it is of this machine]
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Print JSON; bytes that are no text are shown with U+FFFD in their place
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: KvAction,
}

/// Where the store is.
#[derive(clap::Args)]
struct StoreAddress {
    /// Address of a Redis gateway, instead of a cluster of this machine
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    at: Option<String>,
}

#[derive(clap::Subcommand)]
enum KvAction {
    /// Print the value of a key
    Read {
        /// The key
        key: String,
        #[command(flatten)]
        gateway: StoreAddress,
    },
    /// Print keys with their values, in order, as they were at one moment
    Scan {
        /// The first key [the first of all]
        #[arg(default_value = "", hide_default_value = true)]
        from: String,
        /// The first key that is not printed [none]
        #[arg(default_value = "", hide_default_value = true)]
        to: String,
        /// How many at the most
        #[arg(long, default_value_t = 10_000)]
        limit: usize,
        #[command(flatten)]
        gateway: StoreAddress,
    },
    /// Give a key a value
    Put {
        /// The key
        key: String,
        /// The value
        #[arg(allow_hyphen_values = true)]
        value: String,
        #[command(flatten)]
        gateway: StoreAddress,
    },
    /// Give a key that exists another value
    Update {
        /// The key
        key: String,
        /// The value
        #[arg(allow_hyphen_values = true)]
        value: String,
        #[command(flatten)]
        gateway: StoreAddress,
    },
    /// Give a key that does not exist a value
    Insert {
        /// The key
        key: String,
        /// The value
        #[arg(allow_hyphen_values = true)]
        value: String,
        #[command(flatten)]
        gateway: StoreAddress,
    },
    /// Delete keys
    Delete {
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        gateway: StoreAddress,
    },
    /// Show which shards hold which keys
    Partitions {
        #[command(flatten)]
        gateway: StoreAddress,
    },
    /// Move keys to another shard, from one key to the end of its partition, while clients
    /// continue. (The address of a gateway is given before the word here: amcast kv --at HOST:PORT
    /// split ..)
    Split(partitions::SplitArgs),
    /// Move all keys of a shard to another, while clients continue
    Merge(partitions::MergeArgs),
    /// Any command of Redis
    #[command(external_subcommand)]
    Other(Vec<String>),
}

impl KvAction {
    fn gateway(&self) -> Option<&String> {
        match self {
            Self::Read { gateway, .. }
            | Self::Scan { gateway, .. }
            | Self::Put { gateway, .. }
            | Self::Update { gateway, .. }
            | Self::Insert { gateway, .. }
            | Self::Delete { gateway, .. }
            | Self::Partitions { gateway } => gateway.at.as_ref(),
            Self::Split(_) | Self::Other(_) => None,
            Self::Merge(merge) => merge.gateway(),
        }
    }
}

pub(super) fn run(args: &KvArgs) -> Result<(), Failure> {
    let (at, connection) = connect(args)?;
    let mut store = StoreClient { at, connection, json: args.json };
    match &args.action {
        KvAction::Read { key, .. } => store.read(key),
        KvAction::Scan { from, to, limit, .. } => store.scan(from, to, *limit),
        KvAction::Put { key, value, .. } => store.write(key, value, None),
        KvAction::Update { key, value, .. } => store.write(key, value, Some("XX")),
        KvAction::Insert { key, value, .. } => store.write(key, value, Some("NX")),
        KvAction::Delete { keys, .. } => store.delete(keys),
        KvAction::Partitions { .. } => partitions::show(&mut store),
        KvAction::Split(split) => split.run(&mut store),
        KvAction::Merge(merge) => merge.run(&mut store),
        KvAction::Other(words) => store.other(words),
    }
}

/// A connection to a gateway, logged in, and where that is.
fn connect(args: &KvArgs) -> Result<(String, Connection), Failure> {
    let given = args.password_file.as_deref().map(secret).transpose()?;
    let (at, password, mut connection) = match args.at.as_ref().or(args.action.gateway()) {
        Some(at) if args.data.is_none() => {
            let connection = Connection::open(at);
            let connection = connection.map_err(|e| Failure::Failed(refuses_address(at, &e)))?;
            (at.clone(), given, connection)
        }
        Some(_) => return Err(Failure::misuse("give --at or --data, not both")),
        None => {
            let dir = cluster_dir(args.data.as_deref())?;
            let file = dir.file()?;
            let (at, connection) = reach(&dir, &file)?;
            (at, given.or(file.password), connection)
        }
    };
    connection.log_in(password.as_deref()).map_err(|e| match e.kind() {
        ErrorKind::PermissionDenied => Failure::Failed(format!("{at}: {e}")),
        _ => unanswered(&at, &e),
    })?;
    Ok((at, connection))
}

/// The error for a command without an answer: perhaps no Redis gateway listens at the address.
fn unanswered(at: &str, e: &io::Error) -> Failure {
    match wrong_port::error_at(at, Listener::Redis) {
        Some(why) => Failure::Misuse(why),
        None => Failure::Failed(refuses_address(at, e)),
    }
}

/// The store, and how its answers are shown.
struct StoreClient {
    /// Where its gateway is.
    at: String,
    connection: Connection,
    json: bool,
}

impl StoreClient {
    /// Sends a command; its answer if it is no error.
    fn call(&mut self, words: &[&str]) -> Result<Answer, Failure> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        match self.connection.call(&words).map_err(|e| unanswered(&self.at, &e))? {
            Answer::Error(why) if why.starts_with("NOAUTH") => {
                Err(Failure::Misuse(format!("{why} Give --password-file FILE")))
            }
            Answer::Error(why) if is_misuse(&why) => Err(Failure::Misuse(why)),
            Answer::Error(why) => Err(Failure::Failed(why)),
            answer => Ok(answer),
        }
    }

    /// Prints what was found, as text or as JSON.
    fn show(&self, text: impl FnOnce() -> String, json: impl FnOnce() -> Value) {
        if self.json {
            return println!("{}", json());
        }
        // Somebody else may have written it.
        let text = text();
        match io::stdout().is_terminal() {
            true => println!("{}", harmless(&text)),
            false => println!("{text}"),
        }
    }

    fn read(&mut self, key: &str) -> Result<(), Failure> {
        match self.call(&["GET", key])? {
            Answer::Null => Err(missing(key)),
            value => {
                let shown = json!({ "key": key, "value": value.to_string() });
                self.show(|| value.to_string(), || shown);
                Ok(())
            }
        }
    }

    fn scan(&mut self, from: &str, to: &str, limit: usize) -> Result<(), Failure> {
        // One key more says whether there are more.
        let asked = limit.saturating_add(1).min(i64::MAX as usize);
        let answer = self.call(&["RANGE", from, to, "LIMIT", &asked.to_string(), "WITHVALUES"])?;
        let Answer::Array(items) = answer else { return Err(strange(&answer)) };
        let pairs = || items.chunks_exact(2).map(|pair| (&pair[0], &pair[1]));
        let next = pairs().nth(limit).map(|(key, _)| key.to_string());
        let pairs: Vec<(&Answer, &Answer)> = pairs().take(limit).collect();
        if let Some(next) = next {
            warn(format_args!(
                "there are more keys than --limit {limit}: the next one is {next}; give a higher --limit, or begin there"
            ));
        }
        if self.json {
            let value = |v: &Answer| match v {
                Answer::Null => Value::Null,
                v => v.to_string().into(),
            };
            let pair =
                |(k, v): &(&Answer, &Answer)| json!({ "key": k.to_string(), "value": value(v) });
            println!("{}", Value::Array(pairs.iter().map(pair).collect()));
            return Ok(());
        }
        for (key, value) in pairs {
            println!("{}", scan_line(key, value));
        }
        Ok(())
    }

    /// Sets a key, on `condition`.
    fn write(&mut self, key: &str, value: &str, condition: Option<&str>) -> Result<(), Failure> {
        let words: Vec<&str> = ["SET", key, value].into_iter().chain(condition).collect();
        match (self.call(&words)?, condition) {
            (Answer::Null, Some("NX")) => {
                Err(Failure::Failed(format!("{key}: this key exists; amcast kv update changes it")))
            }
            (Answer::Null, _) => Err(missing(key)),
            _ => {
                self.show(|| "OK".to_string(), || json!({ "key": key, "written": true }));
                Ok(())
            }
        }
    }

    fn delete(&mut self, keys: &[String]) -> Result<(), Failure> {
        let words: Vec<&str> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        match self.call(&words)? {
            Answer::Number(0) => Err(missing(&keys.join(", "))),
            Answer::Number(n) => {
                self.show(|| n.to_string(), || json!({ "deleted": n }));
                Ok(())
            }
            other => Err(strange(&other)),
        }
    }

    fn other(&mut self, words: &[String]) -> Result<(), Failure> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let answer = self.call(&words)?;
        self.show(|| answer.to_string(), || to_json(&answer));
        Ok(())
    }
}

/// A key with its value as one line; other clients wrote both.
fn scan_line(key: &Answer, value: &Answer) -> String {
    let key = key.to_string();
    let value = match value {
        Answer::Null => "(no string)".to_string(),
        value => value.to_string(),
    };
    format!("{}\t{}", harmless_line(&key), harmless_line(&value))
}

/// Whether the gateway's error means that the command is malformed, for any stored values.
fn is_misuse(why: &str) -> bool {
    const WORDS: [&str; 9] = [
        "unknown command",
        "unknown subcommand",
        "wrong number of arguments",
        "syntax error",
        "invalid ",
        "timeout is",
        "give ",
        "there are shards",
        "there is no such shard",
    ];
    let lower = why.to_ascii_lowercase();
    let told = lower.strip_prefix("err ");
    told.is_some_and(|told| WORDS.iter().any(|words| told.starts_with(words)))
}

fn missing(key: &str) -> Failure {
    Failure::Failed(format!("{key}: there is no such key"))
}

fn strange(answer: &Answer) -> Failure {
    Failure::Failed(format!("this gateway answers in another way than expected: {answer}"))
}

fn to_json(answer: &Answer) -> Value {
    match answer {
        Answer::Null => Value::Null,
        Answer::Number(n) => (*n).into(),
        Answer::Array(items) => items.iter().map(to_json).collect(),
        Answer::Word(_) | Answer::Error(_) | Answer::Bytes(_) => answer.to_string().into(),
    }
}

/// Reads `host:port`.
pub(super) fn address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(text.to_string())
        }
        _ => Err("give host:port, such as 127.0.0.1:6379".to_string()),
    }
}

/// A gateway of the cluster: the supervisor's, or that of any node where nobody supervises them.
fn reach(dir: &ClusterDir, file: &ClusterFile) -> Result<(String, Connection), Failure> {
    let open = |rank| {
        let GatewayAddresses { redis, .. } = dir.gateways_of(rank).ok()?;
        Connection::open(&redis).ok().map(|connection| (redis, connection))
    };
    if dir.is_supervised() {
        let starts = |e| format!("the cluster is starting and has no gateway yet ({e})");
        let at = match dir.gateways() {
            Ok(gateways) => gateways.redis,
            // Its nodes may serve while the supervisor waits for one of them.
            Err(e) => {
                let reached = (0..file.replicas).find_map(open);
                return reached.ok_or_else(|| Failure::Failed(starts(e)));
            }
        };
        let connection = Connection::open(&at);
        return match connection {
            Ok(connection) => Ok((at, connection)),
            Err(e) => Err(Failure::Failed(refuses_address(&at, &e))),
        };
    }
    if let Some(reached) = (0..file.replicas).find_map(open) {
        return Ok(reached);
    }
    if statuses_of(&dir.nodes(file)).iter().all(Option::is_none) {
        return Err(stopped(dir, file));
    }
    let at = dir.path().display();
    Err(Failure::Failed(format!(
        "{at}: no node serves clients; start nodes with --redis-port 0 for that"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_store_could_answer_was_asked_wrongly() {
        for wrong in [
            "ERR unknown command 'fly', with args beginning with: ",
            "ERR wrong number of arguments for 'get' command",
            "ERR syntax error",
            "ERR there are shards 0 to 2",
        ] {
            assert!(is_misuse(wrong), "{wrong}");
        }
        for refused in [
            "ERR no such key",
            "ERR value is not an integer or out of range",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "CLUSTERDOWN shard 0 has lost its majority",
        ] {
            assert!(!is_misuse(refused), "{refused}");
        }
    }

    #[test]
    fn what_others_wrote_is_one_line_that_a_terminal_does_not_obey() {
        let bytes = |text: &str| Answer::Bytes(text.into());
        let line = scan_line(&bytes("k\x1b]0;own\x07"), &bytes("v\nforged\tw"));
        assert_eq!(line, "k\\x1b]0;own\\x07\tv\\x0aforged\tw");
        assert_eq!(scan_line(&bytes("list"), &Answer::Null), "list\t(no string)");
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:6379", "localhost:1", "[::1]:6379"] {
            assert_eq!(address(good).as_deref(), Ok(good));
        }
        for wrong in ["nonsense", "localhost", ":6379", "localhost:redis", "localhost:65536"] {
            assert!(address(wrong).unwrap_err().contains("host:port"), "{wrong}");
        }
    }
}
