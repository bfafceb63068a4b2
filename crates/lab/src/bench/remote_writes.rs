//! The time of a write to several processes' memory [TRAM 3, figure 2]: one at a time, each awaited before the
//! next one is posted, or all of them posted and then awaited together. Writing needs the owner's permission, as a leader's
//! writes to its followers' logs do.

use super::infiniband::Infiniband;
use super::stop::check_stop;
use amcast_core::memory::{
    AccessOutcome, LineStamp, MemoryInput, MemoryOutput, RegionId, RegionSpec, WriteSource,
};
use amcast_core::step::Ticket;
use amcast_core::{Pid, Span, Time};
use amcast_memory::{ClusterId, Directory, MappedCarrier, StartOptions};
use amcast_sim::ram::{MemoryOccurrence, OwnedOutcome};
use amcast_sim::{Chooser, Ram};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The writer; its targets follow.
const WRITER: Pid = Pid(0);

const REGION: RegionId = RegionId(0);

/// Targets, at most.
pub const TARGETS_MAX: usize = 24;

/// How long targets may take to be reachable.
const PATIENCE: Duration = Duration::from_secs(20);

/// The mean time of a write to so many targets, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WriteCost {
    /// Targets.
    pub targets: usize,
    /// Each write is awaited before the next one is posted.
    pub one_by_one_ns: f64,
    /// All are posted, and then awaited.
    pub together_ns: f64,
}

/// One line to a target, answered.
fn write_to(target: usize, words: u64) -> MemoryOutput {
    MemoryOutput::Write {
        to: Pid(target as u32 + 1),
        region: REGION,
        at: 0,
        source: WriteSource::line([words; 7], LineStamp::new(1, words)),
        ticket: Some(Ticket(target as u64)),
        bell: false,
    }
}

fn spec() -> RegionSpec {
    RegionSpec { name: "target", lines: 1, writer: WRITER, guarded: true }
}

/// In the simulator, under a model of the machines.
///
/// # Panics
/// When a write of a memory without faults fails.
pub fn simulated(machines: &Infiniband, targets: usize) -> WriteCost {
    let once = |together: bool| {
        let specs = (0..=targets).map(|p| if p == 0 { Vec::new() } else { vec![spec()] });
        let model = machines.model();
        let (mut ram, mut chooser) = (Ram::new(specs.collect(), model.ram), Chooser::seeded(1));
        let (mut now, mut waiting) = (Time::ZERO, 0);
        for target in 0..targets {
            let owner = Pid(target as u32 + 1);
            ram.post(Time::ZERO, owner, &MemoryOutput::Allow(REGION), &mut chooser);
        }
        for target in 0..targets {
            ram.occupy(WRITER, now);
            ram.post(now, WRITER, &write_to(target, 1), &mut chooser);
            waiting += 1;
            if !together || target + 1 == targets {
                now = await_all((&mut ram, &mut chooser), now, waiting, model.completion);
                waiting = 0;
            }
        }
        now.0 as f64
    };
    WriteCost { targets, one_by_one_ns: once(false), together_ns: once(true) }
}

/// When so many completions are taken, each of which costs the writer `each`.
fn await_all(
    (ram, chooser): (&mut Ram, &mut Chooser),
    posted: Time,
    mut waiting: usize,
    each: Span,
) -> Time {
    let mut free = posted;
    while waiting > 0 {
        let at = ram.next();
        ram.step(chooser);
        while let Some(occurrence) = ram.take() {
            if let MemoryOccurrence::Done { answer, .. } = occurrence {
                assert_eq!(answer, OwnedOutcome::Written, "nothing fails here");
                free = free.max(at).max(ram.busy_until(WRITER)) + each;
                waiting -= 1;
            }
        }
    }
    free
}

/// On this machine's memory: the writer in one thread, and all targets in another, which looks at what was written all the
/// time. Each figure is a mean over `repeats`, the lowest of `rounds`: nothing makes a write quicker than it is.
///
/// # Errors
/// When memory cannot be set aside, or a target is not reached.
pub fn shared(most: usize, (repeats, rounds): (u32, usize)) -> Result<Vec<WriteCost>, String> {
    // One line each: on the heap of this process, which is the same memory to the cores.
    let id = ClusterId(u64::from(std::process::id()));
    let directory = Directory::heap(id, most as u32 + 1, 0).map_err(|e| e.to_string())?;
    let (ready, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // In threads of their own: each is bound to a core.
        let watching = scope.spawn(|| watch(&directory, most, (&ready, &over)));
        let writing = scope.spawn(|| measure(&directory, most, (repeats, rounds), &ready));
        let costs = writing.join().map_err(|_| "the writer's thread panicked".to_string());
        over.store(true, Ordering::Release);
        let watched = watching.join().map_err(|_| "the targets' thread panicked".to_string())?;
        watched.and(costs?)
    })
}

/// The targets: they start, and look.
fn watch(
    directory: &Directory,
    most: usize,
    (ready, over): (&AtomicUsize, &AtomicBool),
) -> Result<(), String> {
    super::part::bind(1);
    let start = |p| {
        let mut target = directory.start(p, &[spec()], StartOptions::default())?;
        target.post([&MemoryOutput::Allow(REGION)]);
        Ok::<_, amcast_memory::MemoryError>(target)
    };
    let targets = (1..=most).map(|p| start(Pid(p as u32)).map_err(|e| e.to_string()));
    let targets = targets.collect::<Result<Vec<_>, _>>();
    ready.store(if targets.is_ok() { most } else { usize::MAX }, Ordering::Release);
    let targets = targets?;
    let mut seen = 0_u64;
    while !over.load(Ordering::Acquire) {
        for target in &targets {
            seen = seen.wrapping_add(target.window().region(REGION)[0].word(0));
        }
        std::hint::spin_loop();
    }
    std::hint::black_box(seen);
    Ok(())
}

fn measure(
    directory: &Directory,
    most: usize,
    (repeats, rounds): (u32, usize),
    ready: &AtomicUsize,
) -> Result<Vec<WriteCost>, String> {
    super::part::bind(0);
    let begun = Instant::now();
    while ready.load(Ordering::Acquire) == 0 {
        check_stop()?;
        if begun.elapsed() > PATIENCE {
            return Err("the targets of the writes did not start".to_string());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let started = directory.start(WRITER, &[], StartOptions::default());
    let mut writer = started.map_err(|e| e.to_string())?;
    let mut number = 0;
    // Until each was found, writes to it are lost.
    while (0..most).any(|target| !written(&mut writer, target..target + 1, &mut number)) {
        if begun.elapsed() > PATIENCE {
            return Err("a target of the writes is not reached".to_string());
        }
    }
    let mut costs = Vec::new();
    for targets in 1..=most {
        let mut timed = |together: bool| -> Result<f64, String> {
            let mut least = f64::INFINITY;
            for _ in 0..rounds {
                check_stop()?;
                let begun = Instant::now();
                for _ in 0..repeats {
                    let whole = match together {
                        true => written(&mut writer, 0..targets, &mut number),
                        false => (0..targets).all(|t| written(&mut writer, t..t + 1, &mut number)),
                    };
                    if !whole {
                        return Err("a write failed".to_string());
                    }
                }
                least = least.min(begun.elapsed().as_nanos() as f64 / f64::from(repeats));
            }
            Ok(least)
        };
        let one_by_one_ns = timed(false)?;
        costs.push(WriteCost { targets, one_by_one_ns, together_ns: timed(true)? });
    }
    Ok(costs)
}

/// Writes to these targets and awaits the answers. Whether all were written.
fn written(writer: &mut MappedCarrier, targets: std::ops::Range<usize>, number: &mut u64) -> bool {
    *number += 1;
    let mut waiting = targets.len();
    let mut outs = [const { None }; TARGETS_MAX];
    for (out, target) in outs.iter_mut().zip(targets) {
        *out = Some(write_to(target, *number));
    }
    writer.post(outs.iter().flatten());
    let mut all = true;
    while waiting > 0 {
        writer.begin_round();
        while let Some((_, input)) = writer.next_input() {
            if let MemoryInput::Done(_, outcome) = input {
                all &= outcome == AccessOutcome::Written;
                waiting -= 1;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_awaited_one_by_one_take_as_many_times_as_long_and_together_far_less() {
        let _limit = amcast_test_policy::time_limit();
        let machines = Infiniband::PAPER;
        let [one, eight] = [1, 8].map(|targets| simulated(&machines, targets));
        let line_ns = 512 / machines.gbps;
        let each =
            machines.write_ns + line_ns + machines.completion_after_ns + machines.completion_ns;
        assert!((one.one_by_one_ns - each as f64).abs() < 2.0, "{one:?}");
        assert!((one.together_ns - one.one_by_one_ns).abs() < 1e-9, "{one:?}");
        assert!((eight.one_by_one_ns - 8.0 * one.one_by_one_ns).abs() < 16.0, "{eight:?}");
        assert!(eight.together_ns < 2.0 * one.together_ns, "{eight:?}");
    }
}
