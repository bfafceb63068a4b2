//! Loops that sleep are woken, by writes that ring, and never too late.

use super::*;

const INBOX: RegionId = RegionId(0);
const ROUNDS: u64 = 20_000;

/// The child: parks until it is rung, once, and ends well if it was.
pub(super) fn sleeper(directory: &Directory) {
    let carrier = start(directory, CHILD, &[region(1, PARENT, false)]);
    let bell = carrier.bell().clone();
    loop {
        bell.announce();
        if read(&carrier, INBOX, 0) != 0 {
            bell.stay();
            return;
        }
        // Other rings (the parent's start) may come before.
        assert!(bell.sleep(LONG), "woken by the ring and not by the clock");
    }
}

/// Waits for a number, parked whenever it is not there, and answers with the same number.
pub(super) fn player(directory: &Directory, me: Pid, other: Pid) {
    let mut carrier = start(directory, me, &[region(1, other, false)]);
    let bell = carrier.bell().clone();
    until("the other starts", || directory.is_running(other).expect("asked"));
    for round in 1..=ROUNDS {
        if me == PARENT {
            carrier.post(&[number(other, INBOX, 0, round, true)]);
        }
        loop {
            bell.announce();
            if read(&carrier, INBOX, 0) == round {
                bell.stay();
                break;
            }
            assert!(bell.sleep(LONG), "round {round}: a wake-up was lost");
        }
        if me == CHILD {
            carrier.post(&[number(other, INBOX, 0, round, true)]);
        }
    }
    let slept = carrier.counts().wakes;
    assert!(slept > ROUNDS / 10, "the other hardly slept: {slept}");
    // Its last answer was read, or it could not be at the end; so the other needs no more of this.
}

#[test]
fn a_parked_process_is_woken_by_a_write_that_rings() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let mut carrier = start(&cluster.directory, PARENT, &[]);
    let mut child = cluster.spawn("sleeper");
    until("the child starts", || cluster.directory.is_running(CHILD).expect("asked"));
    carrier.post(&[number(CHILD, INBOX, 0, 1, true)]);
    assert!(child.ended_well());
}

#[test]
fn a_bell_that_nobody_sleeps_on_costs_no_call() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let mut carrier = start(&cluster.directory, PARENT, &[]);
    let _other = start(&cluster.directory, CHILD, &[region(1, PARENT, false)]);
    carrier.post(&[number(CHILD, INBOX, 0, 1, true)]);
    assert_eq!((carrier.counts().writes, carrier.counts().wakes), (1, 0));
}

#[test]
fn two_processes_of_one_loop_share_a_bell() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let first = start(&cluster.directory, PARENT, &[]);
    let options = StartOptions { bell: Some(first.bell().clone()), ..StartOptions::default() };
    let second = cluster.directory.start(CHILD, &[], options).expect("started");
    assert_eq!(second.bell().pid(), PARENT);
    second.bell().announce();
    assert!(cluster.directory.bell(CHILD).expect("there").ring(), "the shared bell is rung");
    assert!(first.bell().sleep(Span::ZERO), "and the loop knows it");
}

#[test]
fn no_wake_up_is_lost_between_two_processes_that_always_park() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let mut child = cluster.spawn("pong");
    player(&cluster.directory, PARENT, CHILD);
    assert!(child.ended_well());
}
