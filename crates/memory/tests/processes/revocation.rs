//! Revocation under fire: the owner finds every write that was reported written after it revoked.

use super::*;
use amcast_core::memory::AccessOutcome;
use amcast_core::step::Ticket;
use std::thread;

/// At the owner: what is guarded, and what the writer says of itself.
const GUARDED: RegionId = RegionId(0);
const REPORT: RegionId = RegionId(1);
/// Lines written in one batch, each with a ticket.
const BATCH: u32 = 4;
/// Lines of the report: one for each guarded line, then the count of denied batches.
const REPORTS: u32 = BATCH + 1;

/// Writes ever larger numbers to each guarded line, and reports the largest that was `Written`.
fn hammer(carrier: &mut MappedCarrier) {
    let mut denied_batches = 0;
    for value in 1_u64.. {
        let outs: Vec<_> = (0..BATCH)
            .map(|at| MemoryOutput::Write {
                to: PARENT,
                region: GUARDED,
                at,
                source: WriteSource::line([value; 7], LineStamp(value)),
                ticket: Some(Ticket(u64::from(at))),
                bell: false,
            })
            .collect();
        carrier.post(&outs);
        let mut reports = Vec::new();
        let mut denied = false;
        let mut stopped = false;
        carrier.begin_round();
        while let Some((_, input)) = carrier.next_input() {
            match input {
                MemoryInput::Done(Ticket(at), AccessOutcome::Written) => {
                    reports.push(number(PARENT, REPORT, at as u32, value, false));
                }
                MemoryInput::Done(_, AccessOutcome::Denied) => denied = true,
                MemoryInput::Done(_, AccessOutcome::Lost) => stopped = true,
                _ => {}
            }
        }
        if stopped {
            return;
        }
        denied_batches += u64::from(denied);
        reports.push(number(PARENT, REPORT, BATCH, denied_batches.max(1), false));
        carrier.post(&reports);
        if denied {
            thread::yield_now();
        }
    }
}

pub(super) fn writer(directory: &Directory) {
    hammer(&mut start(directory, CHILD, &[]));
}

/// How often it is revoked; on a machine that has much else to do, where each time waits for its turn,
/// only as often as there is time, and no less than a tenth as often.
const ROUNDS: u64 = 10_000;
const TIME: Duration = Duration::from_secs(10);

/// Revokes again and again, and compares its reads with the reports to the writer.
fn judge(owner: &mut MappedCarrier) {
    let (begun, mut rounds, mut written_rounds) = (Instant::now(), 0, 0);
    while rounds < ROUNDS && (rounds < ROUNDS / 10 || begun.elapsed() < TIME) {
        let round = rounds;
        rounds += 1;
        owner.post(&[MemoryOutput::Allow(GUARDED)]);
        let before = read(owner, GUARDED, BATCH - 1);
        // Sooner or later: the revocation falls into any part of a batch.
        let wanted = before + round % 7;
        until("the writer writes", || read(owner, GUARDED, BATCH - 1) > wanted);
        owner.post(&[MemoryOutput::Revoke(GUARDED)]);
        let found: Vec<_> = (0..BATCH).map(|at| read(owner, GUARDED, at)).collect();
        // Two denied batches later the writer has judged, and reported, all it did under the grant.
        let denied = read(owner, REPORT, BATCH);
        until("the writer is denied", || read(owner, REPORT, BATCH) >= denied + 2);
        let reported: Vec<_> = (0..BATCH).map(|at| read(owner, REPORT, at)).collect();
        for (found, reported) in found.iter().zip(&reported) {
            assert!(reported <= found, "round {round}: found {found}, reported {reported}");
        }
        written_rounds += u64::from(reported.iter().any(|&r| r > before));
    }
    assert!(written_rounds * 2 > rounds, "only {written_rounds} grants were of any use");
}

fn owner(directory: &Directory) -> MappedCarrier {
    start(directory, PARENT, &[region(BATCH, CHILD, true), region(REPORTS, CHILD, false)])
}

#[test]
fn between_processes_every_written_is_found_after_the_revocation() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let mut carrier = owner(&cluster.directory);
    let _child = cluster.spawn("revocation");
    judge(&mut carrier);
}

#[test]
fn between_threads_every_written_is_found_after_the_revocation() {
    let _limit = amcast_test_policy::time_limit();
    let directory = Directory::heap(ClusterId(1), 2, 0).expect("made");
    let mut carrier = owner(&directory);
    let mut child = start(&directory, CHILD, &[]);
    thread::scope(|scope| {
        scope.spawn(|| hammer(&mut child));
        judge(&mut carrier);
        // The writer receives `Lost` and ends.
        carrier.stop().expect("stopped");
    });
}
