//! A step never panics on any contents of messages and memory: malformed input is noted.
//!
//! Bound: [`SEEDS`] runs of each protocol, each of at most [`EVENTS_MAX`] events.

use crate::watched::{again, each, frame_again, troubled};
use amcast_core::memory::{
    AccessOutcome, LINE_WORDS, LineStamp, Memory, MemoryInput, RegionId, RegionSpec, RegionWindow,
};
use amcast_core::messages::{self, Frames};
use amcast_core::rng::Rng;
use amcast_core::{Config, Entry, Input, MediumKind, Outbox, Pid, Protocol, Span, Time};
use amcast_sim::watched::{StepWatch, WatchedEntry};
use amcast_sim::{RunSettings, run};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How often each rare branch was taken.
type BranchCounts = BTreeMap<&'static str, u64>;

/// Runs of each protocol.
pub(crate) const SEEDS: u64 = 60;

/// Events of a run, at most: the first 30 seeds of each protocol take up to 36 000.
const EVENTS_MAX: u64 = 200_000;

/// Writes nonsense where the process's peers write, and answers its reads with nonsense.
struct HostilePeers {
    me: Pid,
    processes: u64,
    specs: Vec<RegionSpec>,
    rng: Rng,
    /// The last frames that came.
    frames: Vec<Vec<u8>>,
}

/// How often, in a million steps.
const OFTEN_PPM: u64 = 20_000;

impl HostilePeers {
    /// Words as a peer gone wrong would leave them: some of them changed.
    fn spoil(&mut self, words: &mut [u64]) {
        let i = self.rng.below(words.len() as u64) as usize;
        match self.rng.below(6) {
            0 => words.iter_mut().for_each(|w| *w = self.rng.word()),
            1 => words[i] = self.rng.word(),
            2 => words[i] ^= 1 << self.rng.below(64),
            3 => words[i] = u64::MAX >> self.rng.below(64),
            4 => words[i] = words[i].wrapping_add(self.rng.below(200)).wrapping_sub(100),
            _ => words.swap(i, 0),
        }
    }

    /// Writes where a peer writes, into a line that is in use if there is one.
    fn write(&mut self, view: RegionWindow<'_>) {
        let region = self.rng.below(self.specs.len() as u64) as usize;
        let spec = self.specs[region];
        if spec.writer == self.me {
            return;
        }
        let lines = view.region(RegionId(region as u16));
        let from = self.rng.below(lines.len() as u64) as usize;
        let mut used = (0..lines.len()).map(|i| (from + i) % lines.len());
        // Of a log only the control line, under a stamp that nobody expects: leaders crash, but they
        // neither lie nor take back what they wrote.
        let log = spec.name == "log";
        let at = if log { Some(0) } else { used.find(|&i| lines[i].stamp() != LineStamp(0)) };
        let at = at.unwrap_or(from);
        let mut words = lines[at].words();
        self.spoil(&mut words);
        // Otherwise the stamp is the one that the reader expects, or not.
        let stamp = match self.rng.below(4) {
            0 => LineStamp(self.rng.word()),
            _ if log => LineStamp(self.rng.word()),
            1 => LineStamp::new(1 + self.rng.below(40) as u32, self.rng.below(4)),
            _ => lines[at].stamp(),
        };
        lines[at].put(&words, stamp);
    }
}

impl StepWatch<Memory> for HostilePeers {
    fn step(
        &mut self,
        inner: &mut dyn Protocol<Medium = Memory>,
        now: Time,
        view: RegionWindow<'_>,
        input: Input<'_, Memory>,
        out: &mut Outbox<Memory>,
    ) {
        if self.rng.chance(OFTEN_PPM) {
            self.write(view);
        }
        let Input::Medium(MemoryInput::Done(ticket, AccessOutcome::Words(words))) = &input else {
            return inner.step(now, view, input, out);
        };
        // The control line of a log is read from afar by itself, its records are read together.
        let mut words = words.to_vec();
        if let [line] = &mut words[..]
            && self.rng.chance(10 * OFTEN_PPM)
        {
            self.spoil(line);
            line[LINE_WORDS] = self.rng.word();
        }
        inner.step(
            now,
            view,
            Input::Medium(MemoryInput::Done(*ticket, AccessOutcome::Words(&words))),
            out,
        );
    }
}

impl StepWatch<Frames> for HostilePeers {
    fn step(
        &mut self,
        inner: &mut dyn Protocol<Medium = Frames>,
        now: Time,
        (): (),
        input: Input<'_, Frames>,
        out: &mut Outbox<Frames>,
    ) {
        if let Input::Medium(messages::MessageInput::From(_, frame)) = &input {
            self.frames.push(frame.to_vec());
            self.frames.drain(..self.frames.len().saturating_sub(8));
        }
        inner.step(now, (), again(&input, frame_again), out);
        if !self.rng.chance(OFTEN_PPM) {
            return;
        }
        // Nonsense, an old frame, or an old frame with a byte changed or its end cut off.
        let mut frame: Vec<u8> = match self.rng.below(self.frames.len() as u64 + 1) {
            0 => (0..self.rng.below(64)).map(|_| self.rng.word() as u8).collect(),
            n => self.frames[n as usize - 1].clone(),
        };
        let at = self.rng.below(frame.len().max(1) as u64) as usize;
        match self.rng.below(4) {
            0 => frame.truncate(at),
            1 | 2 => frame.iter_mut().skip(at).take(1).for_each(|b| *b = self.rng.word() as u8),
            _ => {}
        }
        let from = Pid(self.rng.below(self.processes) as u32);
        inner.step(now, (), Input::Medium(messages::MessageInput::From(from, &frame[..])), out);
    }
}

/// Makes a run with hostile peers; the rare branches that it took, or what it panicked with.
fn marks(entry: &'static dyn Entry, config: &Config, seed: u64) -> Result<BranchCounts, String> {
    let watch = move |me, config: &Config| HostilePeers {
        me,
        processes: config.cluster().processes() as u64,
        specs: entry.build(me, config).expect("as before").regions().to_vec(),
        rng: Rng::new(seed << 16 | u64::from(me.0)),
        frames: Vec::new(),
    };
    let watched = WatchedEntry { entry, watch: &watch };
    // A run that nonsense stalls is over soon.
    let settings = RunSettings { settle: Span::millis(4), events_max: EVENTS_MAX, ..troubled() };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        run(&watched, config, &settings, seed, &mut |_| {}).expect("it is built").marks
    }));
    ran.map_err(|said| {
        let text = said.downcast_ref::<String>().cloned();
        text.or_else(|| said.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

#[test]
fn whatever_peers_write_or_send_a_step_never_panics() {
    let (mut taken, mut writes) = (BTreeSet::new(), false);
    for seed in 0..SEEDS {
        each(seed, |entry, config| {
            writes |= entry.about().medium == MediumKind::Memory;
            match marks(entry, config, seed) {
                Ok(marks) => taken.extend(marks.into_keys()),
                Err(said) => panic!("{}, seed {seed}: {said}", entry.name()),
            }
        });
    }
    // No quorum of honest replicas can publish this: it is not adopted.
    assert!(!writes || taken.contains("tram-quorum-forgot"), "{taken:?}");
}
