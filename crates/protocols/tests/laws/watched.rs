//! The runs whose steps are watched ([`amcast_sim::watched`]), and their inputs once more.

use amcast_core::step::Medium;
use amcast_core::{Config, Entry, Input, RawConfig, Span, memory, messages};
use amcast_protocols::{catalog, trial};
use amcast_sim::{Profile, RunSettings};
use amcast_test_policy::protocol_is_tested;

/// Every protocol, or the one that is asked for, in a small shape of this seed in which much happens.
pub(crate) fn each(seed: u64, mut run: impl FnMut(&'static dyn Entry, &Config)) {
    let tested = |entry: &&'static dyn Entry| protocol_is_tested(entry.name());
    for entry in catalog::CATALOG.iter().copied().filter(tested) {
        let mut raw = trial::hasty(entry, seed, None);
        if built(entry, &raw).is_none() {
            raw.replicas = 1;
        }
        run(entry, &built(entry, &raw).expect("what is drawn can be built"));
    }
}

fn built(entry: &dyn Entry, raw: &RawConfig) -> Option<Config> {
    let config = raw.check(entry.about().params).ok()?;
    amcast_core::entry::build_all(entry, &config).ok()?;
    Some(config)
}

/// Events of a run, at most. Rings of some shapes take over two million until all is delivered or the
/// time to settle is over; this is far above that.
pub(crate) const EVENTS_MAX: u64 = 20_000_000;

/// Runs in which all that is not assumed away strikes, soon and at once.
pub(crate) fn troubled() -> RunSettings {
    RunSettings {
        payload_max: 1500,
        faulty: Some(Span::millis(4)),
        settle: Span::secs(1),
        quiet: Span::micros(500),
        events_max: EVENTS_MAX,
        ..RunSettings::with(Profile::All)
    }
}

/// The same input once more; `medium` copies what the medium says.
pub(crate) fn again<'a, M: Medium>(
    input: &Input<'a, M>,
    medium: impl FnOnce(&M::In<'a>) -> M::In<'a>,
) -> Input<'a, M> {
    match input {
        Input::Start { incarnation } => Input::Start { incarnation: *incarnation },
        Input::Submit(submission) => Input::Submit(*submission),
        Input::Wake => Input::Wake,
        Input::Stored { number, record } => Input::Stored { number: *number, record },
        Input::Torn => Input::Torn,
        Input::Lost => Input::Lost,
        Input::Durable(ticket) => Input::Durable(*ticket),
        Input::Loaded { ticket, record } => Input::Loaded { ticket: *ticket, record: *record },
        Input::Checkpointed(position) => Input::Checkpointed(*position),
        Input::Applied(position) => Input::Applied(*position),
        Input::Installed { position, needs } => {
            Input::Installed { position: *position, needs: *needs }
        }
        Input::Full(is_full) => Input::Full(*is_full),
        Input::Unfit => Input::Unfit,
        Input::Leave => Input::Leave,
        Input::Overlay(overlay) => Input::Overlay(overlay),
        Input::Barrier(ticket) => Input::Barrier(*ticket),
        Input::Oracle(oracle) => Input::Oracle(*oracle),
        Input::Medium(said) => Input::Medium(medium(said)),
    }
}

/// The inputs of the medium of messages, once more.
pub(crate) fn frame_again<'a>(
    said: &messages::MessageInput<&'a [u8]>,
) -> messages::MessageInput<&'a [u8]> {
    match said {
        messages::MessageInput::From(p, frame) => messages::MessageInput::From(*p, frame),
        messages::MessageInput::Up(p) => messages::MessageInput::Up(*p),
        messages::MessageInput::Down(p) => messages::MessageInput::Down(*p),
        messages::MessageInput::Backlog(of) => messages::MessageInput::Backlog(*of),
    }
}

/// The inputs of the medium of memory, once more.
pub(crate) fn memory_again<'a>(said: &memory::MemoryInput<'a>) -> memory::MemoryInput<'a> {
    match said {
        memory::MemoryInput::Poll => memory::MemoryInput::Poll,
        memory::MemoryInput::Done(ticket, outcome) => memory::MemoryInput::Done(*ticket, *outcome),
        memory::MemoryInput::Fresh { pid, incarnation } => {
            memory::MemoryInput::Fresh { pid: *pid, incarnation: *incarnation }
        }
    }
}
