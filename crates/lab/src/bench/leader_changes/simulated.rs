//! Changes of leaders in the simulator.

use super::{ChangeCause, ChangeTimes, LeaderChange, LeaderChangeLoad};
use crate::bench::multicasts::{BEGIN, MulticastWatch, SimulatedWorld, run_of};
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, Entry, Pid, ProtocolEvent, Span, Time};
use amcast_sim::{Choices, Fault, FaultTime, RunOutcome, RunRecord, Strike, replay_with_events};
use std::cell::RefCell;

/// Longer than any run: the named leader stays until another one is named.
const FOR_EVER: Span = Span::secs(1000);

/// Runs it under a model, with so many multicasts of all clients together, and a seed.
///
/// # Errors
/// When the configuration is incomplete, the run fails, or there were too few multicasts for all changes.
pub fn run(
    entry: &dyn Entry,
    load: &LeaderChangeLoad,
    world: &SimulatedWorld,
) -> Result<Vec<LeaderChange>, String> {
    let config = load.plan.config(entry).map_err(|e| e.to_string())?;
    let cluster = *config.cluster();
    let begins: Vec<Time> =
        (1..=load.changes as u64).map(|k| Time::ZERO + BEGIN + load.apart.times(k)).collect();
    let strikes = begins.iter().enumerate().flat_map(|(k, &at)| strikes_of(cluster, load, (k, at)));
    let plan = run_of(&config, &load.plan, world, strikes.collect());
    let recorded = RunRecord { plan, choices: Choices::default() };
    let watch = RefCell::new(MulticastWatch::new(cluster, world.messages));
    let none = |&at: &Time| ChangeTimes::new(at, cluster.groups());
    let changes: RefCell<Vec<ChangeTimes>> = RefCell::new(begins.iter().map(none).collect());
    // An event belongs to the last change that has begun.
    let current = |now: Time| begins.iter().filter(|&&at| at <= now).count().checked_sub(1);
    let group_of = |p: Pid| cluster.group_of(p).map(amcast_core::Gid::index);
    let report = replay_with_events(
        entry,
        &config,
        &recorded,
        &mut |event| {
            watch.borrow_mut().event(event);
            if let TraceEvent::Deliver { t, p, .. } = *event
                && let (Some(k), Some(group)) = (current(t), group_of(p))
            {
                changes.borrow_mut()[k].delivers(t, group, p);
            }
        },
        &mut |now, p, event| {
            if let ProtocolEvent::Leads(_) = event
                && let (Some(k), Some(group)) = (current(now), group_of(p))
            {
                changes.borrow_mut()[k].leads(now, group, p);
            }
        },
    );
    let report = report.map_err(|e| e.to_string())?;
    if report.outcome != RunOutcome::Settled {
        return Err(format!("{}: the run did not settle: {:?}", entry.name(), report.outcome));
    }
    let watch = watch.into_inner();
    watch.judge()?;
    changes.borrow().iter().map(|change| change.account(load.cause, &watch.finished)).collect()
}

/// The strikes of a change: by then, group `g` is led by its replica of rank `g + k`.
fn strikes_of(
    cluster: ClusterShape,
    load: &LeaderChangeLoad,
    (k, at): (usize, Time),
) -> Vec<Strike> {
    let n = cluster.replicas();
    let mut all = Vec::new();
    for group in cluster.all_groups().iter() {
        let of = |rank: usize| cluster.replica(group, rank % n);
        let at = FaultTime::Time(at);
        match load.cause {
            ChangeCause::Death => {
                let p = of(group.index() + k);
                let fault = Fault::Crash { p, mid_step: false, down: None };
                all.push(Strike { at, fault });
            }
            ChangeCause::Suspicion => all.extend(cluster.members(group).map(|to| {
                let leader = of(group.index() + k + 1);
                let fault = Fault::WrongLeader { to, group, leader, span: FOR_EVER };
                Strike { at, fault }
            })),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::infiniband::Infiniband;
    use crate::bench::{BenchLoad, BenchPlan, DestinationChoice};
    use amcast_protocols::tram::Tram;

    fn load(cause: ChangeCause) -> LeaderChangeLoad {
        let set = [("hm_lines", "64"), ("log_lines", "1024"), ("suspect_us", "5000")];
        let plan = BenchPlan {
            protocol: Tram.name().to_string(),
            groups: 2,
            replicas: 3,
            clients: 4,
            overlay: "breadth".to_string(),
            set: set.map(|(name, value)| (name.to_string(), value.to_string())).to_vec(),
            load: BenchLoad {
                hosts: false,
                rdma_provider: None,
                destinations: 2,
                choice: DestinationChoice::Uniform,
                payload: 64,
                outstanding: 1,
                rate: None,
                warm_up_s: 0.0,
                duration_s: 1.0,
                threads: 1,
                pin: false,
                processes: false,
                senders: 0,
                early: false,
            },
        };
        LeaderChangeLoad { plan, cause, changes: 1, apart: Span::micros(200) }
    }

    #[test]
    fn leaders_that_are_suspected_or_die_are_followed_by_others_that_deliver() {
        let _limit = amcast_test_policy::time_limit();
        let world = SimulatedWorld { model: Infiniband::PAPER.model(), messages: 200, seed: 1 };
        for cause in [ChangeCause::Suspicion, ChangeCause::Death] {
            let changes = run(&Tram, &load(cause), &world).unwrap();
            let [change] = &changes[..] else { panic!("{changes:?}") };
            assert_eq!((change.takeover_ns.len(), change.whole_ns.len()), (2, 2), "{cause:?}");
            // A write to a dead process is answered as lost after so long, and nothing tells of its death before.
            let waits = if cause == ChangeCause::Death { world.model.ram.lost.most().0 } else { 0 };
            assert!(change.whole_ns.iter().all(|&ns| ns > waits), "{change:?}");
            assert!(!change.delayed_ns.is_empty(), "{change:?}");
        }
    }
}
