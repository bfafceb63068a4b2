//! `amcast config`: check a cluster file, or explain every parameter.

use super::terminal_text::warn;
use super::up::give_places;
use super::{Failure, entry, others_read};
use amcast_core::{ConfigError, Durability, Entry, MediumKind};
use amcast_memory::Directory;
use amcast_node::cluster_dir::{CapacityCheck, megabytes};
use amcast_node::config::{
    ClusterFile, FileError, HostPlacement, MAXMEMORY_MB, USUAL_PROTOCOL, explain, node_name,
    settings,
};
use amcast_node::secret::{make, random_word};
use amcast_node::service::first_partitions;
use amcast_node::system::refuses_file;
use std::fmt;
use std::io::ErrorKind::NotFound;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Checks a cluster file, or explains every parameter.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: Option<ConfigCommand>,
    /// Explain what a cluster file may hold, and every parameter of the protocol
    #[arg(long)]
    explain: bool,
    /// The protocol whose parameters are explained
    #[arg(long, default_value = USUAL_PROTOCOL)]
    protocol: String,
}

#[derive(clap::Subcommand)]
enum ConfigCommand {
    /// Check a cluster file; exits with 2 and says what is wrong
    Check {
        /// The file
        file: PathBuf,
    },
    /// Write the file of a cluster on these hosts, and its secret, for the same place on each of them
    Init {
        /// The IP addresses of the hosts, one for each node: 10.0.0.1, ..
        #[arg(required = true, value_name = "HOST", value_parser = ip_address)]
        hosts: Vec<IpAddr>,
        /// The directory in which cluster.toml and secret are made
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// How many shards it has
        #[arg(long, default_value_t = 3)]
        shards: usize,
        /// The data directory of the nodes, on every host
        #[arg(long, default_value = "/var/lib/amcast")]
        data: PathBuf,
    },
}

/// The address of a host, as it is given.
fn ip_address(given: &str) -> Result<IpAddr, String> {
    let why =
        |_| "give an IP address, such as 10.0.0.1: names of hosts are not looked up".to_string();
    given.parse().map_err(why)
}

/// The comment on a node's data, where the protocol has durable state.
const KEEPS: &str = "
# Nodes of this protocol keep what they must not forget in n0.data, n1.data, .. in their directory: acknowledged writes
# survive the kill of any nodes. With `amcast up` that is ./amcast-data, or where --data says; it stays when the cluster
# ends, and the next `amcast up` there continues with the data.
";

/// The guarantee of an answer under uniform agreement.
const UNIFORM: &str = "
# An acknowledged write survives as long as a majority of the nodes lives and keeps its memory: a node answers
# when all nodes that continue will execute the command, too.
";

/// The guarantee of an answer without it.
const NOT_UNIFORM: &str = "
# An answer is the word of one node only. If that node dies, or is cut off, before the others have the
# command, it is lost though it was answered, and so is what others have read there since. For data
# that must stay choose a protocol that promises UA (`amcast protocols`).
";

/// How many replicas of a shard may fail at one time: a majority has to be left.
const MAY_FAIL: &str = "
# Of n replicas of a shard so many may fail at one time; an even number gains nothing over one less:
#   n          1 2 3 4 5 6 7 8 9
#   may fail   0 0 1 1 2 2 3 3 4
";

/// The shared memory that a cluster takes, with a gateway in every process.
struct MemoryNeed {
    file: ClusterFile,
    room: CapacityCheck,
}

impl MemoryNeed {
    fn bytes(&self) -> u64 {
        self.room.with_gateways(1 + self.file.replicas)
    }
}

impl fmt::Display for MemoryNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterFile { shards, replicas, .. } = self.file;
        write!(
            f,
            "Shared memory of {shards} shards of {replicas} replicas: {} MB; {} for each node, {} for \
             each gateway (one in every node, one more in `up`)",
            megabytes(self.bytes()),
            megabytes(self.room.nodes / replicas as u64),
            megabytes(self.room.gateway)
        )
    }
}

/// The shared memory of this file's cluster, as `amcast up` would start it; none where the protocol
/// does not talk through memory.
fn room(file: &ClusterFile, entry: &dyn Entry) -> Result<Option<MemoryNeed>, ConfigError> {
    if entry.about().medium != MediumKind::Memory {
        return Ok(None);
    }
    let mut file = file.clone();
    let gateways = 1 + file.replicas;
    give_places(&mut file, gateways);
    let config = file.check(entry)?;
    Ok(CapacityCheck::of(entry, &config)?.map(|room| MemoryNeed { file, room }))
}

/// A description of the file's cluster, for people.
fn describe(file: &ClusterFile, entry: &dyn Entry) -> Vec<String> {
    let ClusterFile { shards, replicas, protocol, .. } = file;
    let fail = (replicas - 1) / 2;
    let plural = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let mut lines = vec![format!(
        "{protocol}: {} of {}; {} may fail at one time",
        plural(*shards, "shard"),
        plural(*replicas, "replica"),
        plural(fail, "node"),
    )];
    lines.push(match file.maxmemory_mb {
        Some(mb) => format!("all keys may take {mb} MB in each node (maxmemory_mb)"),
        None => "keys may take all memory of a node: maxmemory_mb is not given".to_string(),
    });
    if let Some(mb) = file.command_max_mb {
        lines.push(format!("commands and transactions may have {mb} MB (command_max_mb)"));
    }
    if let Some(etcd) = &file.etcd {
        lines.push(format!(
            "where the other nodes are is heard from etcd at {}",
            etcd.endpoints.join(" ")
        ));
    } else if entry.about().medium == MediumKind::Messages && file.nodes.is_empty() {
        lines.push("nodes: none; `amcast up` chooses their addresses on this machine".to_string());
    }
    for (name, place) in &file.nodes {
        let mut line = format!("{name}: {}, with a replica of every shard", place.address);
        let gateways = [("redis", place.redis), ("log", place.log), ("http", place.http)];
        for (what, at) in gateways.into_iter().filter_map(|(what, at)| Some((what, at?))) {
            line += &format!(", {what} at {at}");
        }
        lines.push(line);
    }
    lines
}

/// Remarks on settings that are allowed and perhaps not meant.
fn remarks(file: &ClusterFile) -> Vec<String> {
    let mut remarks = Vec::new();
    let n = file.replicas;
    if n.is_multiple_of(2) {
        remarks.push(format!(
            "replicas = {n}: as many may fail as with {}, since a majority has to be left",
            n - 1
        ));
    }
    if n == 1 {
        remarks.push("replicas = 1: nothing is replicated".to_string());
    }
    if file.insecure {
        remarks.push(
            "insecure = true: any process that reaches the ports may speak for a node, and read and change all data"
                .to_string(),
        );
    }
    if !file.nodes.is_empty() && !file.nodes.values().any(HostPlacement::serves) {
        let what = "of redis, log and http";
        remarks.push(format!("no node says where it serves clients: give one {what}"));
    }
    remarks
}

/// The fingerprint that people compare between two hosts; nodes compare it by themselves.
fn fingerprint(file: &ClusterFile, entry: &dyn Entry) -> String {
    let mark = file.marks(entry.about().params).fingerprint();
    format!(
        "{mark:016x}, which must be the same on every host: nodes for which it is not refuse each other"
    )
}

fn check(path: &Path) -> Result<(), Failure> {
    let file = ClusterFile::read_once(path).map_err(Failure::misuse)?;
    let wrong = |e| Failure::Misuse(format!("{}: {e}", path.display()));
    let entry = entry(&file.protocol)?;
    file.check(entry).map_err(wrong)?;
    file.check_log_room().map_err(wrong)?;
    first_partitions(&file).map_err(|e| wrong(ConfigError::Relation(e)))?;
    file.check_strangers().map_err(|e| wrong(ConfigError::Relation(e)))?;
    let unread = file.read_secret().map(drop).err().filter(|_| file.secret.is_some());
    let missing = |e: &FileError| matches!(e, FileError::Io(_, e) if e.kind() == NotFound);
    if let Some(e) = unread {
        // The file may be looked at on a machine that is none of its hosts.
        if !missing(&e) {
            return Err(Failure::misuse(e));
        }
        warn(format_args!("{e}: it is checked where it is; no node starts without it"));
    }
    let takes = room(&file, entry).map_err(wrong)?;
    println!("{}: good", path.display());
    describe(&file, entry).iter().for_each(|line| println!("{line}"));
    println!("decides: {}", fingerprint(&file, entry));
    let secrets = [file.password.as_ref().map(|_| path), file.secret.as_deref()];
    let readable = secrets.into_iter().flatten().filter_map(others_read);
    for remark in remarks(&file).into_iter().chain(readable) {
        warn(remark);
    }
    let Some(takes) = takes else { return Ok(()) };
    println!("{takes}");
    let base = Directory::usual_base();
    // Another machine, or another directory, may have it.
    if let Ok(free) = Directory::free_bytes(&base)
        && free < takes.bytes()
    {
        let (base, free) = (base.display(), free >> 20);
        warn(format_args!("{base} on this machine has {free} MB free"));
    }
    Ok(())
}

/// Writes a cluster's file and its secret where none are.
fn init(hosts: &[IpAddr], dir: &Path, data: &Path, shards: usize) -> Result<(), Failure> {
    let mut file = ClusterFile {
        shards,
        replicas: hosts.len(),
        data: Some(data.to_path_buf()),
        maxmemory_mb: Some(MAXMEMORY_MB),
        hash_seed: Some(random_word().map_err(Failure::failed)?),
        password: Some(random_word().map_err(Failure::failed)?),
        id: Some(
            u64::from_str_radix(&random_word().map_err(Failure::failed)?[..8], 16).unwrap_or(1),
        ),
        ..ClusterFile::default()
    };
    for (rank, &host) in hosts.iter().enumerate() {
        let at = |port| SocketAddr::new(host, port);
        let mut place = HostPlacement::at(at(7400));
        place.control = Some(at(7401));
        (place.redis, place.log, place.http) = (Some(at(6379)), Some(at(6380)), Some(at(6381)));
        file.nodes.insert(node_name(rank), place);
    }
    file.check(entry(&file.protocol)?).map_err(Failure::misuse)?;
    let (path, secret) = (dir.join("cluster.toml"), dir.join("secret"));
    if let Some(there) = [&path, &secret].into_iter().find(|path| path.exists()) {
        return Err(Failure::Misuse(format!(
            "{}: is there already, and may be a cluster's: give another --dir",
            there.display()
        )));
    }
    let wrong = |path: &Path, e| Failure::Failed(refuses_file(path, &e));
    std::fs::create_dir_all(dir).map_err(|e| wrong(dir, e))?;
    make(&secret).map_err(|e| wrong(&secret, e))?;
    file.secret = Some("secret".into());
    file.write(&path).map_err(Failure::failed)?;
    let names = match hosts.len() {
        1 => String::new(),
        n => format!(", with its own name, n0 to {}", node_name(n - 1)),
    };
    println!(
        "{0} and {1}: copy both to the same place on all hosts, for the user of amcast alone; then on each{names}:\n\
         amcast node --config {0} --name n0",
        path.display(),
        secret.display(),
    );
    Ok(())
}

pub(super) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    match &args.command {
        Some(ConfigCommand::Check { file: path }) => return check(path),
        Some(ConfigCommand::Init { hosts, dir, shards, data }) => {
            return init(hosts, dir, data, *shards);
        }
        None => {}
    }
    print!("{}", explained(entry(&args.protocol)?));
    Ok(())
}

/// The file of a cluster of this protocol with the usual settings.
fn usual_of(entry: &dyn Entry) -> ClusterFile {
    let mut file = ClusterFile { protocol: entry.name().to_string(), ..ClusterFile::default() };
    if !entry.capabilities().several_groups {
        file.shards = 1;
    }
    file
}

/// The settings that a cluster file of this protocol may hold: a cluster file itself, with all explanations as comments.
fn explained(entry: &dyn Entry) -> String {
    let about = entry.about();
    let network = about.medium == MediumKind::Messages;
    let usual = usual_of(entry);
    let mut text = settings::template(&usual.protocol, usual.shards, network) + MAY_FAIL;
    // There are protocols that cannot have the usual shape.
    if let Ok(Some(takes)) = room(&usual, entry) {
        let more = "`amcast config check FILE` says how much another shape takes.";
        text += &format!("\n# {takes}\n# {more}\n");
    }
    if network {
        text += match about.capabilities.durability {
            Durability::Volatile if about.agrees_uniformly() => UNIFORM,
            Durability::Volatile => NOT_UNIFORM,
            Durability::Written | Durability::Synced => KEEPS,
        };
    }
    for param in about.params {
        text.push('\n');
        let lines = explain(param);
        lines.trim_end().lines().for_each(|line| text += &format!("# {line}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_explained_file_is_a_cluster_file() {
        let dir = std::env::temp_dir().join(format!("amcast-explain-{}.toml", std::process::id()));
        for entry in amcast_protocols::catalog::CATALOG.iter().copied() {
            let text = explained(entry);
            std::fs::write(&dir, &text).unwrap();
            let file = ClusterFile::read(&dir);
            std::fs::remove_file(&dir).unwrap();
            let usual = ClusterFile::default();
            let file = file.unwrap_or_else(|e| panic!("{}: {e}", entry.name()));
            let shards = if entry.capabilities().several_groups { 3 } else { 1 };
            assert_eq!((file.shards, file.clients, &file.overlay), (shards, 8, &usual.overlay));
            assert_eq!((&*file.protocol, &file.set), (entry.name(), &usual.set));
            // `amcast config check` accepts it as it is; a protocol that survives no crash has one replica, and is not served.
            if entry.require_service().is_ok() {
                file.check(entry).unwrap_or_else(|e| panic!("{}: {e}", entry.name()));
            }
            let network = entry.about().medium == MediumKind::Messages;
            assert_eq!(text.contains("# [nodes.n0]"), network);
            for param in entry.about().params {
                assert!(text.contains(param.name), "{}: {}", entry.name(), param.name);
            }
        }
    }

    #[test]
    fn what_may_not_be_meant_is_remarked() {
        let file = |replicas| ClusterFile { replicas, ..ClusterFile::default() };
        assert!(remarks(&file(3)).is_empty());
        assert!(remarks(&file(4))[0].starts_with("replicas = 4: as many may fail as with 3"));
        assert!(remarks(&file(1))[0].ends_with("nothing is replicated"));
        let mut one = file(3);
        one.nodes.insert("n0".to_string(), HostPlacement::at("10.0.0.1:7400".parse().unwrap()));
        assert!(remarks(&one)[0].starts_with("no node says where it serves clients"));
    }

    #[test]
    fn the_table_of_what_may_fail_is_what_quorums_leave() {
        let row = |name| {
            let line = MAY_FAIL.lines().find_map(|l| l.strip_prefix(name)).unwrap();
            line.split_whitespace().map(|n| n.parse().unwrap()).collect::<Vec<usize>>()
        };
        let (replicas, may_fail) = (row("#   n "), row("#   may fail "));
        assert_eq!(replicas, (1..=9).collect::<Vec<_>>());
        let left = |n| n - amcast_core::ClusterShape::new(1, n, 1).unwrap().quorum();
        assert_eq!(may_fail, replicas.iter().map(|&n| left(n)).collect::<Vec<_>>());
    }
}
