//! Shopping carts that stay usable at every node of a partitioned network: the library's example of a service that
//! reconciles.
//!
//! `cargo run --release --example carts` runs some nodes in the simulator, under partitions, one-way cuts and crashes, with
//! customers at all of them, and prints the carts when all components have merged. A number behind it is the seed of another
//! run.

mod machine;
mod simulated;

use amcast::core::Outcome;
use amcast::protocols::catalog;
use amcast::sim::{Profile, RunOutcome};
use simulated::{contents, run};

fn main() -> Result<(), String> {
    let seed = std::env::args().nth(1).map_or(Ok(1), |text| text.parse::<u64>());
    let seed = seed.map_err(|e| format!("the seed is no number: {e}"))?;
    let entry = catalog::find("toto-partitionable").ok_or("this build has no such protocol")?;
    let end = run(entry, 5, Profile::All, seed)?;
    if end.report.outcome != RunOutcome::Settled {
        return Err(format!("the run did not settle: {:?}", end.report.outcome));
    }
    let executed = end.answers[usize::from(Outcome::Executed.code())];
    println!("{executed} commands were executed where they were given");
    println!("states were reconciled {} times, at all nodes together", end.merges);
    let Some(state) = end.states.values().next() else { return Err("no node lives".to_string()) };
    for (cart, items) in contents(state) {
        println!("cart {cart}: {items:?}, at each of {} nodes", end.states.len());
    }
    let same = end.states.values().all(|other| other == state);
    let kept = end.workload.kept().all(|tag| state.knows(tag));
    match same && kept {
        true => Ok(()),
        false => Err("nodes differ, or an addition is lost".to_string()),
    }
}
