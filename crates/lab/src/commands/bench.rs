//! `amcast bench`: a protocol measured, on shared memory, over a network of processes, or in the
//! simulator.

use super::{Failure, entry, once_each, setting};
use crate::bench::bursts::BurstMedium;
use crate::bench::ycsb::StoreKind;
use crate::bench::{
    self, BenchLoad, BenchPlan, DestinationChoice, HostMachine, ReportRow, STOPPED,
    line_one_way_ns, message_groups, report, run_part, run_shared, run_simulated, wire,
    workload_ranking,
};
use amcast_core::entry::{MediumKind, ProtocolProcess};
use amcast_core::{Capability, Entry, Gid, Span};
use amcast_node::system::refuses_file;
use amcast_protocols::tram::Tram;
use amcast_sim::CarrierModel;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of clients in a sweep's rows of throughput.
const SWEEP_CLIENTS: usize = 4;
const SWEEP_OUTSTANDING: usize = 256;

/// Measures a protocol: latency and throughput of its multicasts.
///
/// On shared memory the loops of all nodes and clients are threads of this process over mapped
/// files, or OS processes; a loop that spins wants a core of its own, and is bound to it. Over TCP or
/// UDP each node is an OS process of this machine that multicasts itself. In the
/// simulator every write and every message takes the same time, and the machine does not matter.
/// The checker judges the deliveries afterwards. Several values of a flag, as in `--destinations
/// 1,2,4` or `--overlay base --overlay depth`, make a row for each combination; rows take turns.
#[derive(clap::Args)]
pub struct BenchArgs {
    /// The protocol
    #[arg(long, default_value = Tram.name())]
    pub(super) protocol: String,
    /// Measure a service instead: a cluster of its own, with --groups shards [3]
    #[arg(long, value_enum)]
    service: Option<BenchService>,
    /// Of the service: the rival, measured in turns: of kv, redis-server or a path
    /// [redis-server]; of log, bookkeeper [bookkeeper]; or none
    #[arg(long, requires = "service")]
    pub(super) rival: Option<String>,
    /// Of the service: kill leaders under load, and tell how long shards do not serve; 2 shards
    /// and 5 replicas unless said otherwise, so that a majority outlives all leaders
    #[arg(long, requires = "service")]
    pub(super) failover: bool,
    /// Measure stores instead, under YCSB's workloads: A,B or A..F or all; clusters of its own, and
    /// other stores, in turns
    #[arg(long, value_name = "WORKLOADS", conflicts_with = "service")]
    ycsb: Option<String>,
    /// With --ycsb: which stores [all that are installed]
    #[arg(long, value_enum, value_delimiter = ',', requires = "ycsb")]
    pub(super) stores: Vec<StoreKind>,
    /// With --ycsb: records of 1 KB that each store is filled with [10000]
    #[arg(long, requires = "ycsb")]
    pub(super) records: Option<u64>,
    #[command(flatten)]
    recovery: super::bench_recovery::BenchRecoveryArgs,
    #[command(flatten)]
    cost: super::bench_cost::BenchCostArgs,
    /// The medium that it runs on
    #[arg(long, value_enum, default_value_t = BenchMedium::Shm)]
    medium: BenchMedium,
    /// The whole table: overlays base, breadth and depth, 1 to all groups as destinations, uniform
    /// and neighbouring, each for latency and for throughput; 8 groups unless said otherwise
    #[arg(long, conflicts_with_all = ["rate", "outstanding"])]
    sweep: bool,
    /// Groups [1, or 8 in a sweep]
    #[arg(long)]
    pub(super) groups: Option<usize>,
    /// Replicas of each group [3, or 1 if the protocol takes no more]
    #[arg(long)]
    pub(super) replicas: Option<usize>,
    /// Client processes [1; in a sweep, for throughput, 4]
    #[arg(long)]
    pub(super) clients: Option<usize>,
    /// Destination groups of each multicast: 2, or 1,2,4, or 1..8 [1]
    #[arg(long, value_parser = counts)]
    destinations: Option<CountList>,
    /// How the destination groups are chosen [uniform]
    #[arg(long, value_enum, value_delimiter = ',')]
    choice: Vec<DestinationChoice>,
    /// Bytes of each payload [64, or 1024 of --service log and --recovery]
    #[arg(long, value_delimiter = ',')]
    payload: Vec<usize>,
    /// The tree over the groups: base, breadth, depth, or parents such as -1,0,0 [breadth]
    #[arg(long, allow_hyphen_values = true)]
    overlay: Vec<String>,
    /// A parameter of the protocol
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub(super) set: Vec<(String, String)>,
    /// Over TCP or UDP: on how many nodes replicas multicast [all]
    #[arg(long)]
    senders: Option<usize>,
    /// Over TCP or UDP, and in the simulator: measure early deliveries too, of a protocol that has them: how much earlier
    /// they are, and how often an application has to undo one
    #[arg(long)]
    early: bool,
    /// Over TCP, and of --service log: where logs are kept, in a directory of its own that is removed
    /// afterwards [the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Multicasts that each client has on the way: 1 for latency, many for throughput
    #[arg(long, value_delimiter = ',', default_value = "1")]
    outstanding: Vec<usize>,
    /// Multicasts a second of each client instead; latency then counts from when one was due
    #[arg(long, conflicts_with = "outstanding")]
    pub(super) rate: Option<u64>,
    /// Seconds of measuring [1; 0.3 in a sweep; 0.1 if quick]
    #[arg(long, allow_negative_numbers = true)]
    pub(super) duration: Option<f64>,
    /// Seconds before that [0.2, or 0.1 if quick]
    #[arg(long, allow_negative_numbers = true)]
    pub(super) warm_up: Option<f64>,
    /// How often each row is measured; figures are medians over them [3, or 1 if quick]
    #[arg(long)]
    rounds: Option<usize>,
    /// Measure each row once and shortly: for a first look, not for a figure to quote
    #[arg(long)]
    quick: bool,
    /// Parts that nodes and clients are dealt to: a part has all replicas of some nodes, or some
    /// clients [one for each core, at most one for each node and client]
    #[arg(long)]
    threads: Option<usize>,
    /// Parts are OS processes, not threads; if not said otherwise, one for each node and client
    #[arg(long)]
    processes: bool,
    /// Bind each part to a core, even if there are fewer cores than parts
    #[arg(long)]
    pin: bool,
    /// In the simulator: nanoseconds that a write or a message takes
    #[arg(long, default_value_t = 1000)]
    delay_ns: u64,
    /// In the simulator: how many multicasts
    #[arg(long, default_value_t = 10_000)]
    messages: usize,
    /// Write which groups the multicasts went to, how often, how large and how fast, as a file for
    /// `amcast choose --workload`; of one row
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sweep", "service", "ycsb"])]
    record: Option<PathBuf>,
    /// With `--medium rdma`: libfabric's provider, `tcp`, `verbs` or `efa`
    #[arg(long, value_name = "NAME", default_value = "tcp")]
    rdma_provider: String,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    /// Be one part of a measurement that another process leads
    #[arg(long, hide = true)]
    part: bool,
    /// Be one node of a measurement over a network
    #[arg(long, hide = true)]
    node: bool,
    /// Be one process of a measurement of bursts
    #[arg(long, hide = true)]
    member: bool,
    /// Be a group, or a client, of a measurement of a protocol with one process a group
    #[arg(long, hide = true)]
    group_member: bool,
    /// Be one process of a measurement on hosts of their own
    #[arg(long, hide = true)]
    lan_member: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BenchService {
    /// The key-value store, through its Redis gateway
    Kv,
    /// The distributed log on disk, through its gRPC gateway: synchronous appends of 1, 10, .. 200
    /// clients, or of as many as --clients says
    Log,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BenchMedium {
    /// Shared memory of this machine
    Shm,
    /// TCP between processes of this machine
    Tcp,
    /// UDP between processes of this machine
    Udp,
    /// TCP between the memories of hosts, for protocols over memory: each part of the measurement is a host
    TcpMemory,
    /// Remote memory access by libfabric between the memories of hosts, each an OS process, in a program with the feature `rdma`
    Rdma,
    /// The simulator
    Sim,
}

impl BenchMedium {
    const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::TcpMemory => "tcp-memory",
            Self::Rdma => "rdma",
            Self::Sim => "sim",
        }
    }

    /// The transport of messages, if there are any.
    const fn wire(self) -> Option<BurstMedium> {
        match self {
            Self::Tcp => Some(BurstMedium::Tcp),
            Self::Udp => Some(BurstMedium::Udp),
            Self::Shm | Self::TcpMemory | Self::Rdma | Self::Sim => None,
        }
    }

    /// Whether each part of a measurement is a host.
    const fn has_hosts(self) -> bool {
        matches!(self, Self::TcpMemory | Self::Rdma)
    }
}

/// Some counts, written `2`, `1,2,4` or `1..8`, the last one included.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CountList(Vec<usize>);

fn counts(text: &str) -> Result<CountList, String> {
    let number = |t: &str| t.trim().parse::<usize>().map_err(|_| format!("{t:?} is no number"));
    if let Some((first, last)) = text.split_once("..") {
        return Ok(CountList((number(first)?..=number(last)?).collect()));
    }
    text.split(',').map(number).collect::<Result<_, _>>().map(CountList)
}

/// Does what `args` ask for.
///
/// # Errors
/// A misuse, or a failure.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    if args.member {
        return crate::bench::bursts::run_member().map_err(Failure::Failed);
    }
    if args.group_member {
        return crate::bench::message_groups::run_member().map_err(Failure::Failed);
    }
    if args.lan_member {
        return crate::bench::lan::run_member().map_err(Failure::Failed);
    }
    once_each(&args.set)?;
    if args.node {
        return wire::run_node().map_err(Failure::Failed);
    }
    if args.part {
        return run_part().map_err(Failure::failed);
    }
    if let Some(text) = &args.ycsb {
        let workloads = super::bench_ycsb::workloads(text).map_err(Failure::Misuse)?;
        bench::heed_signals();
        return super::bench_ycsb::run(args, &workloads);
    }
    if args.cost.cost {
        bench::heed_signals();
        return super::bench_cost::measure(args, args.cost.kinds);
    }
    let entry = entry(&args.protocol)?;
    if args.recovery.recovery {
        bench::heed_signals();
        return super::bench_recovery::measure(args, &args.recovery);
    }
    args.check(entry)?;
    if args.medium != BenchMedium::Sim || args.service.is_some() {
        // In memory or files that outlive this process: it is not to end before they are removed.
        bench::heed_signals();
        bench::clear_left_over();
    }
    match args.service {
        Some(BenchService::Kv) => return super::bench_service::run(args),
        Some(BenchService::Log) => return super::bench_log::run(args),
        None => {}
    }
    let machine = HostMachine::here();
    let mut rows = Vec::new();
    let plans = args.plans(machine.cores);
    if args.record.is_some() && plans.len() != 1 {
        let why = format!("--record: give one value of each flag; these make {} rows", plans.len());
        return Err(Failure::Misuse(why));
    }
    for plan in plans {
        rows.push(ReportRow { plan: args.checked(entry, plan)?, rounds: Vec::new() });
    }
    let mut lines_ns = vec![machine.line_one_way_ns];
    let ended = args.measure_all(entry, &mut rows, &mut lines_ns);
    let all = rows.len() * args.rounds();
    rows.retain(|row| !row.rounds.is_empty());
    let made: usize = rows.iter().map(|row| row.rounds.len()).sum();
    if made > 0 {
        // The rows so far, also of a measurement that was stopped.
        args.tell(&machine, &lines_ns, &rows);
    }
    ended.map_err(|why| match why.as_str() {
        STOPPED => Failure::Failed(format!("stopped after {made} of {all} measurements")),
        _ => Failure::Failed(why),
    })?;
    match (&args.record, &rows[..]) {
        (Some(path), [row]) => record(path, row),
        _ => Ok(()),
    }
}

/// Writes the workload of a row's last measurement.
fn record(path: &Path, row: &ReportRow) -> Result<(), Failure> {
    let measured = row.rounds.last().ok_or("nothing was measured").map_err(Failure::failed)?;
    let text = workload_ranking::recorded(&row.plan, measured).text().map_err(Failure::failed)?;
    std::fs::write(path, text).map_err(|e| Failure::Failed(refuses_file(path, &e)))
}

impl BenchArgs {
    fn tell(&self, machine: &HostMachine, lines_ns: &[f64], rows: &[ReportRow]) {
        if self.json {
            println!("{}", report(self.medium.name(), machine, lines_ns, rows));
        } else {
            print(rows, machine, lines_ns);
        }
    }

    /// Measures every row in each round, and says how far it is.
    fn measure_all(
        &self,
        entry: &dyn Entry,
        rows: &mut [ReportRow],
        lines_ns: &mut Vec<f64>,
    ) -> Result<(), String> {
        let (count, all) = (rows.len(), rows.len() * self.rounds());
        let bar = bar(self, all);
        // Where there is no bar a line each tells as much.
        let told = bar.is_hidden() && count > 1;
        for round in 0..self.rounds() {
            if round > 0 {
                lines_ns.push(line_one_way_ns());
            }
            for (nth, row) in rows.iter_mut().enumerate() {
                bar.set_message(title(&row.plan));
                let measured =
                    self.measure(entry, &row.plan).map_err(|why| match why.as_str() {
                        STOPPED => why,
                        _ => format!("{}: {why}", title(&row.plan)),
                    })?;
                if told {
                    let (n, rate) = (round * count + nth + 1, measured.per_second);
                    let p50_us = measured.latency_ns.p50 as f64 / 1e3;
                    eprintln!("[{n}/{all}] {}: {rate:.0}/s p50 {p50_us:.2} us", title(&row.plan));
                }
                row.rounds.push(measured);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(())
    }
}

impl BenchArgs {
    /// Checks what does not depend on the row.
    fn check(&self, entry: &dyn Entry) -> Result<(), Failure> {
        let misuse = |why: String| Err(Failure::Misuse(why));
        let within = |s: f64| s.is_finite() && (0.0..=3600.0).contains(&s);
        let duration = self.duration_s();
        if !within(duration) || duration == 0.0 {
            return misuse(format!("--duration {duration}: give seconds above 0, up to 3600"));
        }
        let warm_up = self.warm_up_s();
        if !within(warm_up) {
            return misuse(format!("--warm-up {warm_up}: give seconds from 0 to 3600"));
        }
        let counts = [
            ("groups", self.groups),
            ("replicas", self.replicas),
            ("clients", self.clients),
            ("threads", self.threads),
            ("rounds", self.rounds),
            ("rate", self.rate.map(|r| r as usize)),
            ("messages", Some(self.messages)),
            ("outstanding", self.outstanding.iter().copied().min()),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, n)| *n == Some(0)) {
            return misuse(format!("--{name} 0: give at least 1"));
        }
        let over_memory = self.medium == BenchMedium::Shm || self.medium.has_hosts();
        if over_memory && entry.about().medium != MediumKind::Memory {
            return misuse(format!(
                "{} passes messages: measure it with --medium tcp, udp or sim; `amcast protocols` \
                 lists those that run on shared memory",
                self.protocol
            ));
        }
        if self.early
            && let Err(missing) = entry.require(Capability::EarlyDelivery)
        {
            return misuse(format!("--early: {missing}"));
        }
        if let Some(wire) = self.medium.wire() {
            self.check_wire(entry, wire)?;
        }
        if self.medium == BenchMedium::Sim
            && self.choices().contains(&DestinationChoice::Neighbouring)
        {
            return misuse("in the simulator destinations are drawn uniformly".to_string());
        }
        Ok(())
    }

    /// Checks what only goes for processes on a network.
    fn check_wire(&self, entry: &dyn Entry, wire: BurstMedium) -> Result<(), Failure> {
        let misuse = |why: String| Err(Failure::Misuse(why));
        let about = entry.about();
        if about.medium != MediumKind::Messages {
            return misuse(format!(
                "{} runs on memory: measure it with --medium shm, tcp-memory or rdma",
                self.protocol
            ));
        }
        if wire == BurstMedium::Udp
            && let Err(missing) = entry.require(Capability::Datagrams)
        {
            return misuse(format!("{missing}: measure it with --medium tcp"));
        }
        if sends_by_clients(entry) {
            return self.check_groups(wire);
        }
        if self.clients.is_some() || self.sweep || self.threads.is_some() || self.pin {
            return misuse(
                "over a network nodes multicast themselves, each in a process of its own: give \
                 --senders, and no --clients, --sweep, --threads or --pin"
                    .to_string(),
            );
        }
        if self.senders.is_some_and(|n| n == 0 || n > self.replicas.unwrap_or(3)) {
            return misuse("--senders: give 1 to as many as there are --replicas".to_string());
        }
        Ok(())
    }

    /// Checks what only goes for a process a group and one for each client.
    fn check_groups(&self, wire: BurstMedium) -> Result<(), Failure> {
        let misuse = |why: &str| Err(Failure::Misuse(why.to_string()));
        if wire == BurstMedium::Udp {
            return misuse("clients are measured over streams: measure it with --medium tcp");
        }
        if self.senders.is_some() || self.early || self.rate.is_some() {
            return misuse(
                "clients multicast, with some on the way: give --clients and --outstanding, and no --senders, --early or \
                 --rate",
            );
        }
        if self.sweep || self.threads.is_some() || self.pin {
            return misuse(
                "each group and each client is a process of its own: give no --sweep, --threads or --pin",
            );
        }
        Ok(())
    }

    fn duration_s(&self) -> f64 {
        self.duration.unwrap_or(match (self.quick, self.sweep) {
            (true, _) => 0.1,
            (false, true) => 0.3,
            (false, false) => 1.0,
        })
    }

    fn warm_up_s(&self) -> f64 {
        self.warm_up.unwrap_or(if self.quick { 0.1 } else { 0.2 })
    }

    /// Whether a first look is enough.
    pub(super) const fn is_quick(&self) -> bool {
        self.quick
    }

    /// How often each row is measured.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// Of a service: the time before a measurement, and of one that takes `usual` seconds if not
    /// said otherwise.
    pub(super) fn service_times(&self, usual: f64) -> [Duration; 2] {
        let usual = if self.quick { usual / 4.0 } else { usual };
        [self.warm_up_s(), self.duration.unwrap_or(usual)].map(Duration::from_secs_f64)
    }

    /// Bytes of payloads, those that are usual for what is measured unless others were given.
    pub(super) fn payloads(&self) -> Vec<usize> {
        match (&self.payload[..], self.service) {
            ([], Some(BenchService::Log)) => vec![1024],
            ([], _) if self.recovery.recovery => vec![1024],
            ([], _) => vec![64],
            (given, _) => given.to_vec(),
        }
    }

    fn choices(&self) -> Vec<DestinationChoice> {
        match (self.choice.is_empty(), self.sweep && self.medium == BenchMedium::Shm) {
            (true, true) => vec![DestinationChoice::Uniform, DestinationChoice::Neighbouring],
            (true, false) => vec![DestinationChoice::Uniform],
            (false, _) => self.choice.clone(),
        }
    }

    /// A plan for each combination of what was given.
    fn plans(&self, cores: usize) -> Vec<BenchPlan> {
        let groups = self.groups.unwrap_or(if self.sweep { 8 } else { 1 });
        let overlays = match (self.overlay.is_empty(), self.sweep) {
            (true, true) => ["base", "breadth", "depth"].map(str::to_string).to_vec(),
            (true, false) => vec!["breadth".to_string()],
            (false, _) => self.overlay.clone(),
        };
        let destinations = match &self.destinations {
            Some(CountList(given)) => given.clone(),
            None if self.sweep => (1..=groups).collect(),
            None => vec![1],
        };
        let clients = self.clients.unwrap_or(1);
        let loads = if self.sweep {
            vec![(1, 1), (self.clients.unwrap_or(SWEEP_CLIENTS), SWEEP_OUTSTANDING)]
        } else {
            self.outstanding.iter().map(|&o| (clients, o)).collect()
        };
        let mut plans = Vec::new();
        for overlay in &overlays {
            for &choice in &self.choices() {
                for &destinations in &destinations {
                    for &payload in &self.payloads() {
                        for &(clients, outstanding) in &loads {
                            let load = self.load(destinations, choice, payload, outstanding);
                            plans.push(self.plan(groups, overlay, clients, cores, load));
                        }
                    }
                }
            }
        }
        plans
    }

    fn load(
        &self,
        destinations: usize,
        choice: DestinationChoice,
        payload: usize,
        outstanding: usize,
    ) -> BenchLoad {
        BenchLoad {
            destinations,
            choice,
            payload,
            outstanding,
            rate: self.rate,
            warm_up_s: self.warm_up_s(),
            duration_s: self.duration_s(),
            threads: 0,
            pin: false,
            processes: self.processes
                || self.medium.wire().is_some()
                || self.medium == BenchMedium::Rdma,
            senders: 0,
            early: self.early,
            hosts: self.medium.has_hosts(),
            rdma_provider: (self.medium == BenchMedium::Rdma).then(|| self.rdma_provider.clone()),
        }
    }

    fn plan(
        &self,
        groups: usize,
        overlay: &str,
        clients: usize,
        cores: usize,
        load: BenchLoad,
    ) -> BenchPlan {
        let replicas = self.replicas.unwrap_or(3);
        let mut plan = BenchPlan {
            protocol: self.protocol.clone(),
            groups,
            replicas,
            clients,
            overlay: overlay.to_string(),
            set: self.set.clone(),
            load,
        };
        let by_clients = plan.entry().is_some_and(sends_by_clients);
        if self.medium.wire().is_some() && by_clients {
            return message_groups::completed(plan);
        }
        if let Some(wire) = self.medium.wire() {
            plan.clients = 0;
            plan.load.threads = replicas;
            plan.load.senders = self.senders.unwrap_or(replicas);
            return wire::completed(plan, wire);
        }
        let each = replicas + clients;
        let few = if self.processes { each } else { each.min(cores) };
        plan.load.threads = self.threads.unwrap_or(few).min(each);
        plan.load.pin = self.pin || plan.load.threads <= cores;
        plan
    }

    /// The plan, if it makes sense.
    fn checked(&self, entry: &dyn Entry, plan: BenchPlan) -> Result<BenchPlan, Failure> {
        let plan = match plan.config(entry) {
            Err(_) => {
                let alone = BenchPlan { replicas: 1, ..plan.clone() };
                let without = BenchPlan { clients: 0, ..plan.clone() };
                let fits = |plan: &BenchPlan| plan.config(entry).is_ok();
                if self.replicas.is_none() && fits(&alone) {
                    alone
                } else if self.clients.is_none() && fits(&without) {
                    without
                } else {
                    plan
                }
            }
            _ => plan,
        };
        let config = plan.config(entry).map_err(Failure::misuse)?;
        let mut plan = plan;
        if self.medium.wire().is_some() && sends_by_clients(entry) {
            plan.load.threads = config.cluster().processes();
        }
        let (groups, destinations) = (plan.groups, plan.load.destinations);
        if !(1..=groups).contains(&destinations) {
            let why = format!("--destinations {destinations}: give 1 to {groups}, the groups");
            return Err(Failure::Misuse(why));
        }
        let cluster = config.cluster();
        let sender =
            if cluster.clients() > 0 { cluster.client(0) } else { cluster.replica(Gid(0), 0) };
        let most = match &entry.build(sender, &config).map_err(Failure::misuse)? {
            ProtocolProcess::Memory(sender, _) => sender.payload_max(),
            ProtocolProcess::Messages(sender) => sender.payload_max(),
        };
        if plan.load.payload > most {
            let why =
                format!("--payload {}: {} takes up to {most}", plan.load.payload, self.protocol);
            return Err(Failure::Misuse(why));
        }
        Ok(plan)
    }

    fn measure(
        &self,
        entry: &dyn Entry,
        plan: &BenchPlan,
    ) -> Result<crate::bench::BenchResult, String> {
        let config = plan.config(entry).map_err(|e| e.to_string())?;
        let measured = match self.medium {
            BenchMedium::Shm | BenchMedium::TcpMemory | BenchMedium::Rdma => {
                run_shared(entry, &config, plan)?
            }
            BenchMedium::Tcp | BenchMedium::Udp if sends_by_clients(entry) => {
                message_groups::run(entry, plan)?
            }
            BenchMedium::Tcp | BenchMedium::Udp => {
                let base = self.data.clone().unwrap_or_else(std::env::temp_dir);
                wire::run(&config, plan, &base)?
            }
            BenchMedium::Sim => {
                let delay = Span::nanos(self.delay_ns);
                let model = CarrierModel::constant(delay, delay);
                run_simulated(entry, &config, &plan.load, model, self.messages)?
            }
        };
        if measured.multicasts == 0 {
            return Err(
                "nothing was delivered while it was measured; give a longer --duration or \
                        --warm-up"
                    .to_string(),
            );
        }
        Ok(measured)
    }
}

/// Whether clients multicast, and no replicas.
fn sends_by_clients(entry: &dyn Entry) -> bool {
    entry.require(Capability::SendingReplicas).is_err()
}

/// The part of a row's plan that distinguishes it from the others.
fn title(plan: &BenchPlan) -> String {
    let load = &plan.load;
    let choice = if load.choice == DestinationChoice::Uniform { "uniform" } else { "neighbouring" };
    let way = match load.rate {
        Some(rate) => format!("{rate}/s"),
        None => format!("{} on the way", load.outstanding),
    };
    let senders = match (plan.clients, load.senders) {
        (0, 0) => plan.replicas,
        (0, senders) => senders,
        (clients, _) => clients,
    };
    format!(
        "{} {}x{} {} {choice} dst {} {} B, {senders} x {way}",
        plan.protocol, plan.groups, plan.replicas, plan.overlay, load.destinations, load.payload,
    )
}

/// Measures a service, which tells how far it is, and prints what was found.
pub(super) fn measure_service(
    args: &BenchArgs,
    run: impl FnOnce(&mut dyn FnMut(String)) -> Result<Value, String>,
    print: fn(&Value),
) -> Result<(), Failure> {
    let bar = bar(args, args.rounds());
    let report = run(&mut |what| bar.set_message(what));
    bar.finish_and_clear();
    let report = report.map_err(Failure::Failed)?;
    if args.json {
        println!("{report}");
    } else {
        print(&report);
    }
    Ok(())
}

fn bar(args: &BenchArgs, rows: usize) -> ProgressBar {
    let bar = ProgressBar::new(rows as u64);
    if std::io::stderr().is_terminal() && !args.json {
        let style = ProgressStyle::with_template("[{pos}/{len}] {wide_msg} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(100));
    } else {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

fn print(rows: &[ReportRow], machine: &HostMachine, lines_ns: &[f64]) {
    let us = |ns: f64| ns / 1e3;
    for row in rows {
        let [Some(rate), Some(p50), Some(p99)] = [row.per_second(), row.p50_ns(), row.p99_ns()]
        else {
            continue;
        };
        println!(
            "{}: {:.0}/s ({:.0} to {:.0})  latency us p50 {:.2} ({:.2} to {:.2}) p99 {:.2}",
            title(&row.plan),
            rate.median,
            rate.min,
            rate.max,
            us(p50.median),
            us(p50.min),
            us(p50.max),
            us(p99.median),
        );
        if let Some(early) = row.early() {
            println!("  {}", early.sentence());
        }
    }
    let measured = || rows.iter().flat_map(|row| &row.rounds);
    let (all, one_by_one) = measured()
        .fold((0, 0), |(all, judged), m| (all + m.deliveries, judged + m.deliveries_judged));
    let holds = measured().next().map(|m| m.holds.join(", ")).unwrap_or_default();
    println!("{all} deliveries judged, {one_by_one} of them one by one: {holds}");
    let line = crate::bench::Spread::of(lines_ns.iter().copied()).map_or(0.0, |s| s.median);
    let parts = rows.first().map_or(0, |row| row.plan.load.threads);
    println!(
        "{} ({} cores, {parts} parts), {} build; a cache line one way {line:.0} ns",
        machine.processor, machine.cores, machine.build
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_a_number_a_list_or_a_range() {
        assert_eq!(counts("3"), Ok(CountList(vec![3])));
        assert_eq!(counts("1,2,8"), Ok(CountList(vec![1, 2, 8])));
        assert_eq!(counts("2..4"), Ok(CountList(vec![2, 3, 4])));
        assert!(counts("1..x").is_err() && counts("").is_err());
    }
}
