//! `amcast bench`: a protocol measured, on shared memory or in the simulator.

use super::{Failure, entry, setting};
use crate::bench::{Choice, Load, Machine, Measured, run_shared, run_simulated};
use amcast_core::{Config, RawConfig, Span};
use amcast_sim::Model;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::json;
use std::io::IsTerminal;
use std::time::Duration;

/// Measures a protocol: latency and throughput of its multicasts.
///
/// On shared memory the loops of all nodes and clients are threads of this process over mapped
/// files; a loop that spins wants a core of its own. In the simulator every write and every message
/// takes the same time, and the machine does not matter. What was delivered is judged afterwards.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The protocol
    #[arg(long)]
    protocol: String,
    /// What it runs on
    #[arg(long, value_enum, default_value_t = On::Shm)]
    medium: On,
    /// Groups
    #[arg(long, default_value_t = 1)]
    groups: usize,
    /// Replicas of each group [3, or 1 if the protocol takes no more]
    #[arg(long)]
    replicas: Option<usize>,
    /// Client processes
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Destination groups of each multicast
    #[arg(long, default_value_t = 1)]
    destinations: usize,
    /// How the destination groups are chosen
    #[arg(long, value_enum, default_value_t = Choice::Uniform)]
    choice: Choice,
    /// Bytes of each payload
    #[arg(long, default_value_t = 64)]
    payload: usize,
    /// The tree over the groups
    #[arg(long, default_value = "breadth", allow_hyphen_values = true)]
    overlay: String,
    /// A parameter of the protocol
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Multicasts that each client has on the way: 1 for latency, many for throughput
    #[arg(long, default_value_t = 1)]
    outstanding: usize,
    /// Multicasts a second of each client instead; latency then counts from when one was due
    #[arg(long, conflicts_with = "outstanding")]
    rate: Option<u64>,
    /// Seconds of measuring
    #[arg(long, default_value_t = 2.0)]
    duration: f64,
    /// Seconds before that
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// Threads that the nodes and clients are dealt to [one each, at most one for each core]
    #[arg(long)]
    threads: Option<usize>,
    /// Bind each thread to a core
    #[arg(long)]
    pin: bool,
    /// In the simulator: nanoseconds that a write or a message takes
    #[arg(long, default_value_t = 1000)]
    delay_ns: u64,
    /// In the simulator: how many multicasts
    #[arg(long, default_value_t = 10_000)]
    messages: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum On {
    /// Shared memory of this machine
    Shm,
    /// The simulator
    Sim,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let entry = entry(&args.protocol)?;
    let config = args.config(entry)?;
    let cluster = config.cluster();
    let machine = Machine::here();
    let load = Load {
        destinations: args.destinations,
        choice: args.choice,
        payload: args.payload,
        outstanding: args.outstanding,
        rate: args.rate,
        warm_up_s: args.warm_up,
        duration_s: args.duration,
        threads: args
            .threads
            .unwrap_or_else(|| machine.cores.min(cluster.replicas() + cluster.clients())),
        pin: args.pin,
    };
    let spinner = spinner(args);
    let measured = match args.medium {
        On::Shm => run_shared(entry, &config, &load),
        On::Sim => {
            let delay = Span::nanos(args.delay_ns);
            run_simulated(entry, &config, &load, Model::constant(delay, delay), args.messages)
        }
    };
    spinner.finish_and_clear();
    let measured = measured.map_err(Failure::failed)?;
    if args.json {
        let report = json!({
            "protocol": args.protocol,
            "medium": if args.medium == On::Shm { "shm" } else { "sim" },
            "groups": cluster.groups(),
            "replicas": cluster.replicas(),
            "clients": cluster.clients(),
            "overlay": args.overlay,
            "set": args.set,
            "delay_ns": (args.medium == On::Sim).then_some(args.delay_ns),
            "load": load,
            "measured": measured,
            "machine": machine,
        });
        println!("{report}");
    } else {
        print(&measured, &machine, &load);
    }
    Ok(())
}

impl Args {
    fn config(&self, entry: &dyn amcast_core::Entry) -> Result<Config, Failure> {
        if !(1..=self.groups).contains(&self.destinations) {
            let why = format!("--destinations {}: give 1 to {}", self.destinations, self.groups);
            return Err(Failure::Misuse(why));
        }
        let sane = |s: f64| s.is_finite() && (0.0..=3600.0).contains(&s);
        if self.clients == 0 || !sane(self.duration) || !sane(self.warm_up) || self.duration == 0.0
        {
            let why = "give at least one client, and times above 0 and up to an hour";
            return Err(Failure::Misuse(why.to_string()));
        }
        let check = |replicas| {
            let raw = RawConfig {
                groups: self.groups,
                replicas,
                clients: self.clients,
                overlay: self.overlay.clone(),
                set: self.set.iter().cloned().collect(),
            };
            let config = raw.check(entry.about().params)?;
            amcast_core::entry::build_all(entry, &config)?;
            Ok(config)
        };
        let checked: Result<Config, amcast_core::ConfigError> = match self.replicas {
            Some(n) => check(n),
            None => check(3).or_else(|why| check(1).map_err(|_| why)),
        };
        checked.map_err(Failure::misuse)
    }
}

fn spinner(args: &Args) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if std::io::stderr().is_terminal() && !args.json {
        bar.set_message(format!("measuring {}", args.protocol));
        bar.enable_steady_tick(Duration::from_millis(100));
    } else {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

fn print(measured: &Measured, machine: &Machine, load: &Load) {
    let us = |ns: u64| ns as f64 / 1e3;
    let l = &measured.latency_ns;
    println!("{:.0} multicasts/s ({} measured)", measured.per_second, measured.multicasts);
    println!(
        "latency us: min {:.2}  p50 {:.2}  p90 {:.2}  p99 {:.2}  p99.9 {:.2}  max {:.2}",
        us(l.min),
        us(l.p50),
        us(l.p90),
        us(l.p99),
        us(l.p999),
        us(l.max),
    );
    println!("{} deliveries judged: {}", measured.deliveries_judged, measured.holds.join(", "));
    println!(
        "{} ({} cores, {} threads used), {} build; a cache line one way {:.0} ns",
        machine.processor, machine.cores, load.threads, machine.build, machine.line_one_way_ns
    );
}
