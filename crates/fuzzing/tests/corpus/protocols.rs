//! Every protocol of the catalog bears changes to the messages that its own processes send each other, or to their
//! writes to each other's memory. Its corpus is recorded from a simulated run, so that a new protocol needs no file.

use crate::change::change;
use crate::{run, seeds};
use amcast_core::entry::About;
use amcast_core::memory::{LineStamp, Memory, RegionId};
use amcast_core::messages::{Frames, MessageInput};
use amcast_core::rng::Rng;
use amcast_core::step::Medium;
use amcast_core::{
    Config, ConfigError, Entry, GroupSet, Input, MediumKind, Outbox, Overlay, Pid, Protocol,
    ProtocolProcess, Time,
};
use amcast_protocols::{catalog::CATALOG, trial};
use amcast_sim::RunSettings;
use amcast_sim::watched::{StepWatch, WatchedProcess};
use amcast_test_policy::protocol_is_tested;
use std::sync::{Arc, Mutex, PoisonError};

/// Changed inputs of each protocol.
const CHANGED: u64 = 400;

/// The longest corpus of a protocol, in bytes.
const RECORDED_MAX: usize = 2 << 10;

/// Inputs of the processes of a run, in the form of the targets' inputs.
type SharedInputs = Arc<Mutex<Vec<u8>>>;

/// An entry whose processes' inputs are recorded.
struct RecordedEntry {
    entry: &'static dyn Entry,
    recorded: SharedInputs,
}

impl Entry for RecordedEntry {
    fn name(&self) -> &'static str {
        self.entry.name()
    }

    fn about(&self) -> &'static About {
        self.entry.about()
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let recorded = Arc::clone(&self.recorded);
        Ok(match self.entry.build(me, config)? {
            ProtocolProcess::Messages(inner) => {
                let watch = InputRecorder { seen: (), recorded };
                ProtocolProcess::Messages(Box::new(WatchedProcess { inner, watch }))
            }
            ProtocolProcess::Memory(inner, specs) => {
                let blank = specs.iter().map(|spec| vec![LineStamp(0); spec.lines as usize]);
                let watch = InputRecorder { seen: blank.collect(), recorded };
                ProtocolProcess::Memory(Box::new(WatchedProcess { inner, watch }), specs)
            }
        })
    }

    fn together(&self, config: &Config) -> Vec<GroupSet> {
        self.entry.together(config)
    }

    fn overlay<'a>(&self, config: &'a Config) -> Option<&'a Overlay> {
        self.entry.overlay(config)
    }

    fn show(&self, bytes: &[u8]) -> String {
        self.entry.show(bytes)
    }
}

struct InputRecorder<M: FrameRecorder> {
    seen: M::Seen,
    recorded: SharedInputs,
}

/// How the inputs of a medium are recorded.
trait FrameRecorder: Medium {
    /// The part of a process's inputs that is recorded already.
    type Seen: Send;

    fn record(seen: &mut Self::Seen, view: &Self::View<'_>, input: &Self::In<'_>, to: &mut Vec<u8>);
}

impl FrameRecorder for Frames {
    type Seen = ();

    fn record((): &mut (), (): &(), input: &MessageInput<&[u8]>, to: &mut Vec<u8>) {
        if let MessageInput::From(from, frame) = input
            && let Ok(len) = u8::try_from(frame.len())
        {
            to.extend_from_slice(&[from.0 as u8, len]);
            to.extend_from_slice(frame);
        }
    }
}

/// The stamps of the lines of each region of a process.
type RegionStamps = Vec<Vec<LineStamp>>;

impl FrameRecorder for Memory {
    type Seen = RegionStamps;

    /// Each line whose stamp has changed, as a write of a peer.
    fn record(seen: &mut RegionStamps, view: &Self::View<'_>, _: &Self::In<'_>, to: &mut Vec<u8>) {
        for (region, stamps) in seen.iter_mut().enumerate() {
            let lines = view.region(RegionId(region as u16));
            for (at, (line, stamp)) in lines.iter().zip(stamps).enumerate() {
                if line.stamp() != *stamp {
                    *stamp = line.stamp();
                    to.extend_from_slice(&[1, region as u8]);
                    word(at as u64, to);
                    line.words().into_iter().for_each(|value| word(value, to));
                    word(u64::from(stamp.epoch()), to);
                    word((stamp.0 & u64::from(u32::MAX)).saturating_sub(1), to);
                }
            }
        }
    }
}

/// A number as the target reads it: a byte, or a mark and eight bytes.
fn word(value: u64, to: &mut Vec<u8>) {
    match u8::try_from(value) {
        Ok(small @ 0..253) => to.push(small),
        _ => {
            to.push(u8::MAX);
            to.extend_from_slice(&value.to_le_bytes());
        }
    }
}

impl<M: FrameRecorder> StepWatch<M> for InputRecorder<M> {
    fn step(
        &mut self,
        inner: &mut dyn Protocol<Medium = M>,
        now: Time,
        view: M::View<'_>,
        input: Input<'_, M>,
        out: &mut Outbox<M>,
    ) {
        if let Input::Medium(input) = &input {
            let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
            if recorded.len() < RECORDED_MAX {
                M::record(&mut self.seen, &view, input, &mut recorded);
            }
        }
        inner.step(now, view, input, out);
    }
}

/// The inputs of the protocol's processes in a small run.
fn recorded(entry: &'static dyn Entry) -> Vec<u8> {
    let raw = trial::tiny(entry, 3);
    let config = raw.check(entry.about().params).expect("a sound configuration");
    let recording = RecordedEntry { entry, recorded: SharedInputs::default() };
    let settings = RunSettings { messages: 20, payload: Some(8), ..RunSettings::default() };
    amcast_sim::run(&recording, &config, &settings, 1, &mut |_| {}).expect("it is built");
    let recorded = recording.recorded.lock().unwrap_or_else(PoisonError::into_inner);
    recorded.clone()
}

#[test]
fn every_protocol_bears_changes_to_its_own_messages_and_writes() {
    for entry in CATALOG.iter().copied().filter(|entry| protocol_is_tested(entry.name())) {
        let target = match entry.about().medium {
            MediumKind::Messages => "protocol_messages",
            MediumKind::Memory => "protocol_memory",
        };
        let target = amcast_fuzzing::target(target).expect("a target of that name");
        let body = recorded(entry);
        assert!(body.len() > RECORDED_MAX / 4, "{}: {} bytes", entry.name(), body.len());
        let with_line = |body: &[u8]| [entry.name().as_bytes(), b"\n", body].concat();
        run(target, entry.name(), &with_line(&body));
        let all = [(entry.name().to_string(), body)];
        for seed in 0..seeds(CHANGED) {
            let mut rng = Rng::stream(seed, entry.name());
            let mut input = all[0].1.clone();
            change(&mut input, target, &all, &mut rng);
            run(target, &format!("{}, seed {seed}", entry.name()), &with_line(&input));
        }
    }
}
