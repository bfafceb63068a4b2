//! Judges a generated history of ten million deliveries and prints the seconds it took; or, with
//! the name of a file, only writes the history there, for `amcast check`.
//!
//! `cargo run --release -p amcast-check --example ten_million [DELIVERIES [GROUPS [FILE]]]`

use amcast_check::{History, Property, check};
use amcast_core::rng::Rng;
use std::error::Error;
use std::fmt::Write;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::time::{Duration, Instant};

const REPLICAS: u64 = 3;
const CLIENTS: u64 = 20;

const JUDGED: [Property; 16] = [
    Property::UniformIntegrity,
    Property::UniformAgreement,
    Property::Validity,
    Property::UniformPrefixOrder,
    Property::UniformAcyclicOrder,
    Property::FifoOrder,
    Property::CausalOrder,
    Property::Nuv,
    Property::Ui,
    Property::Ua,
    Property::Nua,
    Property::Suto,
    Property::Snuto,
    Property::Wuto,
    Property::Wnuto,
    Property::Genuine,
];

/// Early messages of a spoilt run change places by hundreds: so many that also among 64 groups some
/// are for the one replica's group. It is a hundred messages late, so all of them were cast.
const SPOILT: std::ops::Range<u64> = 1_000..5_000;

/// The generated history: how much, to how many groups, and whether one replica delivers some early
/// messages too late.
#[derive(Clone, Copy)]
struct GeneratedHistory {
    deliveries: u64,
    groups: u64,
    spoilt: bool,
}

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Writes a run line by line: every message goes to one or two of the groups; each replica lags
/// behind the casts by some hundred messages of its own number.
fn write_run(run: GeneratedHistory, tell: &mut dyn FnMut(&str) -> Fallible<()>) -> Fallible<()> {
    let GeneratedHistory { deliveries, groups, spoilt } = run;
    let mut rng = Rng::new(1);
    let mut line = String::new();
    for g in 0..groups {
        for r in 0..REPLICAS {
            tell(&format!(r#"{{"ev":"process","p":"g{g}/r{r}","groups":["g{g}"]}}"#))?;
        }
    }
    for c in 0..CLIENTS {
        tell(&format!(r#"{{"ev":"process","p":"c{c}","groups":[]}}"#))?;
    }
    let mut casts: Vec<(u64, u64, u64)> = Vec::new(); // sender and two groups, maybe the same
    let mut written = 0;
    let mut t = 0;
    let mut i = 0;
    while written < deliveries || i < casts.len() as u64 + 1000 {
        t += 100;
        if written < deliveries {
            let (c, a) = (rng.below(CLIENTS), rng.below(groups));
            let b = if rng.chance(250_000) { rng.below(groups) } else { a };
            line.clear();
            write!(line, r#"{{"ev":"cast","t":{t},"p":"c{c}","m":"c{c}:{i}","dst":["g{a}""#)?;
            line.push_str(if a == b { "" } else { "," });
            if a != b {
                write!(line, r#""g{b}""#)?;
            }
            line.push_str("]}");
            tell(&line)?;
            casts.push((c, a, b));
        }
        for g in 0..groups {
            for r in 0..REPLICAS {
                let Some(late) = i.checked_sub(100 * (r + 1) + g) else { continue };
                let spoilt = spoilt && (g, r) == (0, 0) && SPOILT.contains(&late);
                let late = match late / 100 % 2 {
                    0 if spoilt => late + 100,
                    1 if spoilt => late - 100,
                    _ => late,
                };
                let Some(&(c, a, b)) = casts.get(late as usize) else { continue };
                if a == g || b == g {
                    line.clear();
                    write!(
                        line,
                        r#"{{"ev":"deliver","t":{t},"p":"g{g}/r{r}","m":"c{c}:{late}"}}"#
                    )?;
                    tell(&line)?;
                    written += 1;
                }
            }
        }
        i += 1;
    }
    tell(r#"{"ev":"end"}"#)
}

fn seconds(what: &str, took: Duration) {
    println!("{what:<24} {:6.2} s", took.as_secs_f64());
}

/// Reads and judges a run; whether it has no violation.
fn judge(run: GeneratedHistory) -> Fallible<bool> {
    let start = Instant::now();
    let mut bytes = 0;
    write_run(run, &mut |line| {
        bytes += line.len() + 1;
        Ok(())
    })?;
    let writing = start.elapsed();
    let start = Instant::now();
    let mut history = History::new();
    write_run(run, &mut |line| Ok(history.push_line(line)?))?;
    let reading = start.elapsed().saturating_sub(writing);
    println!("{} deliveries, {} lines, {bytes} bytes", history.deliveries(), history.lines());
    seconds("read", reading);

    let start = Instant::now();
    let report = check(&history, &JUDGED);
    let judging = start.elapsed();
    seconds("judge all at once", judging);
    seconds("read and judge", reading + judging);
    for property in JUDGED {
        let start = Instant::now();
        check(&history, &[property]);
        seconds(property.name(), start.elapsed());
    }
    print!("{report}");
    Ok(report.no_violation())
}

fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let deliveries = args.next().map_or(Ok(10_000_000), |n| n.parse())?;
    let groups = args.next().map_or(Ok(4), |n| n.parse())?;
    if let Some(path) = args.next() {
        let mut file = BufWriter::new(File::create(path)?);
        let run = GeneratedHistory { deliveries, groups, spoilt: false };
        write_run(run, &mut |line| Ok(writeln!(file, "{line}")?))?;
        return Ok(file.flush()?);
    }
    let good = judge(GeneratedHistory { deliveries, groups, spoilt: false })?;
    println!("\nthe same, but g0/r0 delivers some messages out of their order");
    let bad = judge(GeneratedHistory { deliveries, groups, spoilt: true })?;
    if good && !bad { Ok(()) } else { Err("the checker took one run for the other".into()) }
}
