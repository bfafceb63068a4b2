//! `INFO`: what the gateway tells about itself and its cluster.

use super::super::client::ClientState;
use super::super::command_stats::CommandStats;
use super::super::registry::AfterRun;
use super::super::reply::{RedisError, Reply};
use super::server::{VERSION, maxmemory};
use crate::client::host_us;
use crate::process::{CpuTime, ProcessMemory};
use crate::status::ShardStatus;
use std::fmt::{Display, Write};
use std::sync::atomic::Ordering::Relaxed;

/// Tells what is asked for: the sections that are named, those that are shown unless others are named (`default`), or
/// all (`all` and `everything`). A name that no section has is none.
pub(super) fn info(
    c: &mut ClientState,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<AfterRun, RedisError> {
    let named = |name: &str| args[1..].iter().any(|a| a.eq_ignore_ascii_case(name.as_bytes()));
    let all = named("all") || named("everything");
    let default = args.len() == 1 || named("default");
    let mut text = String::new();
    for section in SECTIONS {
        if all || (default && section.is_default) || named(section.name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            text.push_str(&format!("# {}\r\n", section.name));
            for (key, value) in (section.tell)(c) {
                write!(text, "{key}:{value}\r\n").expect("a string takes all");
            }
        }
    }
    reply.text(&text);
    Ok(AfterRun::Answer)
}

/// A section of the report.
struct Section {
    name: &'static str,
    /// It is shown unless others are named.
    is_default: bool,
    tell: fn(&ClientState) -> Vec<(String, String)>,
}

const fn usual(name: &'static str, tell: fn(&ClientState) -> Vec<(String, String)>) -> Section {
    Section { name, is_default: true, tell }
}

const fn asked(name: &'static str, tell: fn(&ClientState) -> Vec<(String, String)>) -> Section {
    Section { name, is_default: false, tell }
}

const SECTIONS: &[Section] = &[
    usual("Server", server),
    usual("Clients", |c| {
        facts(&[
            ("connected_clients", &c.server.connected()),
            ("maxclients", &c.server.clients_max),
            ("blocked_clients", &c.server.blocked.count()),
        ])
    }),
    usual("Memory", memory),
    usual("Persistence", |c| {
        // A gateway itself loads, saves and rewrites nothing at any time.
        facts(&[
            ("loading", &0),
            ("rdb_bgsave_in_progress", &0),
            ("aof_enabled", &u8::from(c.server.status.syncs_writes())),
            ("aof_rewrite_in_progress", &0),
        ])
    }),
    usual("Stats", stats),
    usual("Replication", |c| {
        facts(&[("role", &"master"), ("connected_slaves", &connected_replicas(c))])
    }),
    usual("CPU", cpu),
    asked("Commandstats", command_stats),
    asked("Latencystats", latency_stats),
    usual("Cluster", |_| facts(&[("cluster_enabled", &0)])),
    usual("Shards", shards),
    usual("Keyspace", keyspace),
];

fn server(c: &ClientState) -> Vec<(String, String)> {
    let up = (host_us() - c.server.started_us) / 1_000_000;
    facts(&[
        ("redis_version", &VERSION),
        ("redis_mode", &"standalone"),
        ("os", &std::env::consts::OS),
        ("arch_bits", &usize::BITS),
        ("process_id", &std::process::id()),
        ("run_id", &c.server.run_id),
        ("tcp_port", &c.info.local.port()),
        ("uptime_in_seconds", &up),
        ("uptime_in_days", &(up / 86_400)),
        ("amcast_version", &env!("CARGO_PKG_VERSION")),
        ("amcast_node", &c.server.status.node()),
        ("amcast_protocol", &c.server.status.protocol()),
    ])
}

/// How many replicas each shard has now, as far as is known, besides the one that executes a command for its answer.
fn connected_replicas(c: &ClientState) -> usize {
    let shards = c.server.status.shards();
    shards.iter().map(|shard| shard.replicas.0.saturating_sub(1)).min().unwrap_or(0)
}

/// Memory of the process that answers, and of the keys of a node.
fn memory(c: &ClientState) -> Vec<(String, String)> {
    let mut known = match ProcessMemory::read() {
        Some(of) => facts(&[("used_memory", &of.own), ("used_memory_rss", &of.resident)]),
        None => Vec::new(),
    };
    let used: u64 = c.server.status.shards().iter().map(|shard| shard.used_bytes).sum();
    known.extend(facts(&[
        ("used_memory_dataset", &used),
        ("maxmemory", &maxmemory(c)),
        ("maxmemory_policy", &"noeviction"),
    ]));
    known
}

fn stats(c: &ClientState) -> Vec<(String, String)> {
    let (of, server) = (c.server.stats.since_reset(), &c.server);
    let connections =
        server.connections.load(Relaxed).saturating_sub(server.connections_reset.load(Relaxed));
    facts(&[
        ("total_connections_received", &connections),
        ("total_commands_processed", &of.taken),
        ("rejected_connections", &server.refusals.clients.load(Relaxed)),
        ("acl_access_denied_auth", &server.wrong_passwords.load(Relaxed)),
        ("total_error_replies", &of.errors()),
    ])
}

/// Processor time of the process that answers.
fn cpu(_: &ClientState) -> Vec<(String, String)> {
    let (Some(all), Some(main)) = (CpuTime::of_process(), CpuTime::of_main_thread()) else {
        return Vec::new();
    };
    let line = |name: &str, us: u64| {
        (name.to_owned(), format!("{}.{:06}", us / 1_000_000, us % 1_000_000))
    };
    vec![
        line("used_cpu_sys", all.system_us),
        line("used_cpu_user", all.user_us),
        line("used_cpu_sys_children", all.children_system_us),
        line("used_cpu_user_children", all.children_user_us),
        line("used_cpu_sys_main_thread", main.system_us),
        line("used_cpu_user_main_thread", main.user_us),
    ]
}

fn command_stats(c: &ClientState) -> Vec<(String, String)> {
    let line = |(name, of): (&str, &CommandStats)| {
        let (calls, us) = (of.latency.count(), of.latency.sum_ns / 1000);
        let each = if calls == 0 { 0.0 } else { us as f64 / calls as f64 };
        let told = format!(
            "calls={calls},usec={us},usec_per_call={each:.2},rejected_calls={},failed_calls={}",
            of.rejected, of.failed
        );
        (format!("cmdstat_{name}"), told)
    };
    c.server.stats.since_reset().used().map(line).collect()
}

fn latency_stats(c: &ClientState) -> Vec<(String, String)> {
    let line = |(name, of): (&str, &CommandStats)| {
        let us = |permille| of.latency.permille(permille) as f64 / 1000.0;
        let told = format!("p50={:.3},p99={:.3},p99.9={:.3}", us(500), us(990), us(999));
        (format!("latency_percentiles_usec_{name}"), told)
    };
    let all = c.server.stats.since_reset();
    all.used().filter(|(_, of)| of.latency.count() > 0).map(line).collect()
}

fn shards(c: &ClientState) -> Vec<(String, String)> {
    let shards = c.server.status.shards();
    let line = |s: &ShardStatus| {
        let leader = s.leader.as_deref().unwrap_or("?");
        let (up, of) = s.replicas;
        format!(
            "leader={leader},replicas={up}/{of},applied={},waiting={},keys={}",
            s.applied, s.waiting, s.keys
        )
    };
    shards.iter().map(|s| (format!("shard{}", s.shard.0), line(s))).collect()
}

fn keyspace(c: &ClientState) -> Vec<(String, String)> {
    let shards = c.server.status.shards();
    let keys: usize = shards.iter().map(|s| s.keys).sum();
    let expiring: usize = shards.iter().map(|s| s.expiring).sum();
    if keys == 0 {
        return Vec::new();
    }
    facts(&[("db0", &format!("keys={keys},expires={expiring},avg_ttl=0"))])
}

fn facts(pairs: &[(&str, &dyn Display)]) -> Vec<(String, String)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), v.to_string())).collect()
}
