//! Runs a protocol in the simulator over many seeds, and judges each run.
//!
//! `cargo run --release -p amcast-protocols --features mutants --example soak -- tram 0 1000 all k=v ..`
use amcast_check::{History, check};
use amcast_core::RawConfig;
use amcast_sim::faults::Profile;
use amcast_sim::run::{Outcome, Settings, run};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let entry = amcast_protocols::catalog::find(&args[0]).expect("a protocol");
    let (from, to): (u64, u64) = (args[1].parse().unwrap(), args[2].parse().unwrap());
    let profile = Profile::ALL.into_iter().find(|p| p.name() == args[3]).expect("a profile");
    let dump = std::env::var("DUMP").is_ok();
    let mut total = 0;
    let mut marks = std::collections::BTreeMap::<&str, u64>::new();
    let start = std::time::Instant::now();
    let mut bad = 0;
    for seed in from..to {
        let mut raw = RawConfig { groups: 1 + (seed % 4) as usize, ..RawConfig::default() };
        raw.replicas = if seed % 7 == 3 { 5 } else { 3 };
        raw.overlay = ["breadth", "depth", "base"][(seed % 3) as usize].into();
        raw.set.insert("log_lines".into(), if seed % 2 == 0 { "64" } else { "512" }.into());
        raw.set.insert("hm_lines".into(), if seed % 5 < 2 { "64" } else { "256" }.into());
        raw.set.insert("xfer_lines".into(), "64".into());
        for kv in &args[4..] {
            let (k, v) = kv.split_once('=').expect("k=v");
            match k {
                "groups" => raw.groups = v.parse().unwrap(),
                "replicas" => raw.replicas = v.parse().unwrap(),
                "clients" => raw.clients = v.parse().unwrap(),
                _ => drop(raw.set.insert(k.into(), v.into())),
            }
        }
        let config = raw.check(entry.about().params).unwrap();
        let settings = Settings { payload_max: 1500, ..Settings::with(profile) };
        let mut history = History::new();
        let cluster = *config.cluster();
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(entry, &config, &settings, seed, &mut |e| {
                if dump {
                    println!("{}", e.json(&cluster));
                }
                history.push_event(e, &cluster).unwrap();
            })
            .unwrap()
        }));
        let Ok(report) = run else {
            println!("seed {seed}: PANIC");
            bad += 1;
            continue;
        };
        total += report.deliveries;
        for (m, n) in &report.marks {
            *marks.entry(m).or_default() += n;
        }
        let judged = check(&history, entry.about().promises);
        if report.outcome != Outcome::Settled || !judged.no_violation() {
            bad += 1;
            println!("seed {seed}: {:?}", report.outcome);
            println!("{judged}");
            if bad > 5 {
                break;
            }
        }
    }
    println!("{} seeds, {total} deliveries, {bad} bad, {:?}", to - from, start.elapsed());
    println!("{marks:?}");
}
