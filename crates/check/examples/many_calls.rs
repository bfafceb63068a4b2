//! Judges generated calls of twenty clients on a key-value store and prints the seconds it took,
//! once for a good run and once with a stale read in it.
//!
//! `cargo run --release -p amcast-check --example many_calls [CALLS [KEYS [MULTI_PER_MILLION]]]`

use amcast_check::{History, Property, check};
use amcast_core::rng::Rng;
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

const CLIENTS: u64 = 20;

/// The pending call of a client.
struct PendingCall {
    m: String,
    op: String,
    /// Its answer, once it took effect.
    out: Option<String>,
}

fn operation(rng: &mut Rng, keys: u64, multi: u64, i: u64) -> String {
    let (a, b) = (rng.below(keys), rng.below(keys));
    match rng.below(4) {
        _ if rng.chance(multi) => format!("MSET k{a} v{i} k{b} v{i}"),
        _ if rng.chance(multi) => format!("MGET k{a} k{b}"),
        0 | 1 => format!("GET k{a}"),
        2 => format!("SET k{a} v{i}"),
        _ => format!("INCR n{a}"),
    }
}

/// Runs `op` on the store.
fn run(store: &mut BTreeMap<String, String>, op: &str) -> String {
    let words: Vec<&str> = op.split(' ').collect();
    let get = |store: &BTreeMap<String, String>, k: &str| {
        store.get(k).cloned().unwrap_or_else(|| "nil".into())
    };
    match words[0] {
        "GET" => get(store, words[1]),
        "MGET" => format!("{} {}", get(store, words[1]), get(store, words[2])),
        "INCR" => {
            let n = store.get(words[1]).map_or(0, |n| n.parse().unwrap_or(0)) + 1;
            store.insert(words[1].into(), n.to_string());
            n.to_string()
        }
        _ => {
            for pair in words[1..].chunks(2) {
                store.insert(pair[0].into(), pair[1].into());
            }
            "OK".into()
        }
    }
}

/// A run of `calls` calls; one in a thousand never returns. `stale` makes a late read answer what
/// its key held long before.
fn calls(calls: u64, keys: u64, multi: u64, stale: bool) -> Result<History, Box<dyn Error>> {
    let (mut rng, mut h) = (Rng::new(7), History::new());
    let (mut store, mut old) = (BTreeMap::new(), BTreeMap::new());
    let mut open: Vec<Option<PendingCall>> = (0..CLIENTS).map(|_| None).collect();
    for c in 0..CLIENTS {
        h.push_line(&format!(r#"{{"ev":"process","p":"c{c}","groups":[]}}"#))?;
    }
    let mut made = 0;
    let mut t = 0;
    let mut spoilt = !stale;
    while made < calls || open.iter().any(Option::is_some) {
        t += 1;
        let c = rng.below(CLIENTS) as usize;
        match &mut open[c] {
            None if made < calls => {
                made += 1;
                let (m, op) = (format!("c{c}:{made}"), operation(&mut rng, keys, multi, made));
                h.push_line(&format!(
                    r#"{{"ev":"call","t":{t},"p":"c{c}","m":"{m}","op":"{op}"}}"#
                ))?;
                open[c] = Some(PendingCall { m, op, out: None });
                if made == calls / 2 {
                    old = store.clone();
                }
            }
            None => {}
            Some(o) if o.out.is_none() => {
                let mut out = run(&mut store, &o.op);
                if !spoilt && made > calls * 3 / 4 && o.op.starts_with("GET k") {
                    let before = old.get(&o.op[4..]).cloned().unwrap_or_default();
                    spoilt = before != out;
                    out = before;
                }
                o.out = Some(out);
                if rng.chance(1_000) {
                    open[c] = None;
                }
            }
            Some(PendingCall { m, out, .. }) => {
                let out = out.take().unwrap_or_default();
                h.push_line(&format!(
                    r#"{{"ev":"return","t":{t},"p":"c{c}","m":"{m}","out":"{out}"}}"#
                ))?;
                open[c] = None;
            }
        }
    }
    Ok(h)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mut arg = |default: u64| args.next().map_or(Ok(default), |n| n.parse());
    let count = arg(50_000)?;
    let keys = arg(1_000)?;
    let multi = arg(5_000)?;
    for stale in [false, true] {
        let history = calls(count, keys, multi, stale)?;
        println!(
            "{count} calls on {keys} keys, {} a stale read",
            if stale { "with" } else { "without" }
        );
        for property in [
            Property::Linearizable,
            Property::Sequential,
            Property::ReadYourWrites,
            Property::ExactlyOnce,
        ] {
            let start = Instant::now();
            let report = check(&history, &[property]);
            print!("{:6.2} s  {report}", start.elapsed().as_secs_f64());
        }
    }
    Ok(())
}
