//! The same state and inputs give the same outputs, byte for byte; and `now` never goes back.
//!
//! Bound: [`SEEDS`] runs of each protocol, each of at most [`crate::watched::EVENTS_MAX`] events.

use crate::watched::{again, each, frame_again, memory_again, troubled};
use amcast_core::memory::{
    CacheLine, HeapRegions, Memory, RegionId, RegionSpec, RegionWindow, Regions,
};
use amcast_core::messages::Frames;
use amcast_core::step::Medium;
use amcast_core::trace::TraceEvent;
use amcast_core::{Config, Entry, Input, Outbox, Pid, Protocol, ProtocolProcess, Time};
use amcast_sim::watched::{StepWatch, WatchedEntry};
use amcast_sim::{RunSettings, run};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Runs of each protocol.
pub(crate) const SEEDS: u64 = 2;

/// A second process of the same kind, which is given the same inputs and, before each of them, the
/// same memory.
struct TwinProcess {
    node: ProtocolProcess,
    specs: Vec<RegionSpec>,
    memory: HeapRegions,
    last: Time,
}

thread_local! {
    /// Steps that were compared in this thread.
    static COMPARED: Cell<u64> = const { Cell::new(0) };
}

impl TwinProcess {
    fn new(entry: &dyn Entry, me: Pid, config: &Config) -> Self {
        let node = entry.build(me, config).expect("its twin could be built");
        let specs = node.regions().to_vec();
        let memory = HeapRegions::new(&specs);
        Self { node, specs, memory, last: Time::ZERO }
    }

    fn look_at(&mut self, now: Time) {
        assert!(now >= self.last, "time goes back from {:?} to {now:?}", self.last);
        self.last = now;
        COMPARED.set(COMPARED.get() + 1);
    }

    /// Does `each` for every line of its own and of the other one's memory.
    fn lines(&self, other: RegionWindow<'_>, mut each: impl FnMut(&CacheLine, &CacheLine)) {
        for (i, _) in self.specs.iter().enumerate() {
            let region = RegionId(i as u16);
            let pairs = self.memory.lines(region).iter().zip(other.region(region));
            pairs.for_each(|(own, other)| each(own, other));
        }
    }
}

/// The outputs of two processes in the same step, and their status after it.
fn agree<M: Medium + Debug>(
    (one, said): (&dyn Protocol<Medium = M>, &Outbox<M>),
    (two, also): (&dyn Protocol<Medium = M>, &Outbox<M>),
) {
    // An outbox prints all of its items and bytes.
    assert_eq!(format!("{said:?}"), format!("{also:?}"));
    assert_eq!((one.deadline(), one.fit()), (two.deadline(), two.fit()));
    assert_eq!(one.status(), two.status());
    let waits = |p: &dyn Protocol<Medium = M>| {
        let mut all = Vec::new();
        p.waiting(&mut |m, why| all.push((m, why)));
        all
    };
    assert_eq!(waits(one), waits(two));
}

impl StepWatch<Frames> for TwinProcess {
    fn step(
        &mut self,
        inner: &mut dyn Protocol<Medium = Frames>,
        now: Time,
        (): (),
        input: Input<'_, Frames>,
        out: &mut Outbox<Frames>,
    ) {
        self.look_at(now);
        let ProtocolProcess::Messages(twin) = &mut self.node else { panic!("another medium") };
        let mut also = Outbox::default();
        also.trace_as(out);
        twin.step(now, (), again(&input, frame_again), &mut also);
        inner.step(now, (), input, out);
        agree((inner, out), (&**twin, &also));
    }
}

impl StepWatch<Memory> for TwinProcess {
    fn step(
        &mut self,
        inner: &mut dyn Protocol<Medium = Memory>,
        now: Time,
        view: RegionWindow<'_>,
        input: Input<'_, Memory>,
        out: &mut Outbox<Memory>,
    ) {
        self.look_at(now);
        self.lines(view, |own, other| own.copy(other, other.stamp()));
        let ProtocolProcess::Memory(twin, _) = &mut self.node else { panic!("another medium") };
        let mut also = Outbox::default();
        also.trace_as(out);
        twin.step(now, RegionWindow(&self.memory), again(&input, memory_again), &mut also);
        inner.step(now, view, input, out);
        let ProtocolProcess::Memory(twin, _) = &self.node else { unreachable!() };
        agree((inner, out), (&**twin, &also));
        self.lines(view, |own, other| {
            assert_eq!((own.words(), own.stamp()), (other.words(), other.stamp()));
        });
    }
}

#[test]
fn the_same_inputs_give_the_same_outputs_byte_for_byte_and_time_never_goes_back() {
    let _limit = amcast_test_policy::time_limit_of(Duration::from_secs(900));
    // A run may deliver nothing only where it settles after crashes: then each message is of an incarnation that died
    // before its message was ordered (multi-ring-async, seed 2: the coordinator's machine fails after 0.2 ms and
    // loses its disk, a link may take 13 ms, and all is over after 4 ms). Most runs deliver.
    let (runs, silent) = (AtomicU64::new(0), AtomicU64::new(0));
    let compare = |seed| {
        each(seed, |entry, config| {
            let before = COMPARED.get();
            let watch = move |me, config: &Config| TwinProcess::new(entry, me, config);
            let watched = WatchedEntry { entry, watch: &watch };
            // The twin's memory is a copy from before the step: nothing may change amid it.
            let settings = RunSettings { splits_steps: false, ..troubled() };
            // Those that have cast since they started last.
            let mut have_cast = BTreeSet::new();
            let mut follow = |event: &TraceEvent<'_>| match *event {
                TraceEvent::Cast { p, .. } => _ = have_cast.insert(p),
                TraceEvent::Crash { p, .. } => _ = have_cast.remove(&p),
                _ => {}
            };
            let report = run(&watched, config, &settings, seed, &mut follow).expect("it is built");
            let compared = COMPARED.get() - before;
            assert!(compared >= report.steps, "{report:?}");
            let all_died = report.settled() && have_cast.is_empty();
            assert!(report.deliveries > 0 || all_died, "{}, seed {seed}: {report:?}", entry.name());
            runs.fetch_add(1, Ordering::Relaxed);
            silent.fetch_add(u64::from(report.deliveries == 0), Ordering::Relaxed);
        });
    };
    let compare = &compare;
    std::thread::scope(|scope| {
        (0..SEEDS).for_each(|seed| drop(scope.spawn(move || compare(seed))))
    });
    let (runs, silent) = (runs.into_inner(), silent.into_inner());
    assert!(silent * 10 < runs, "{silent} of {runs} runs deliver nothing");
}
