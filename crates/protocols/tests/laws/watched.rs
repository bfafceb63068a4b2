//! A layer between each process of a run and its driver, which sees every step.

use amcast_core::entry::About;
use amcast_core::memory::{self, Memory};
use amcast_core::messages::{self, Frames};
use amcast_core::step::{Medium, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Config, ConfigError, Entry, GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolProcess,
    RawConfig, Span, Time,
};
use amcast_protocols::{catalog, trial};
use amcast_sim::{Profile, RunSettings};
use amcast_test_policy::protocol_is_tested;

/// Sees the steps of one process: it has to call the process's own step, with what it likes.
pub(crate) trait StepWatch<M: Medium>: Send {
    /// A step of `inner`.
    fn step(
        &mut self,
        inner: &mut dyn Protocol<Medium = M>,
        now: Time,
        view: M::View<'_>,
        input: Input<'_, M>,
        out: &mut Outbox<M>,
    );
}

/// Makes what watches a new process.
type MakeStepWatch<W> = dyn Fn(Pid, &Config) -> W + Sync;

/// An entry whose processes are watched.
pub(crate) struct WatchedEntry<'a, W> {
    pub(crate) entry: &'static dyn Entry,
    pub(crate) watch: &'a MakeStepWatch<W>,
}

impl<W: StepWatch<Frames> + StepWatch<Memory> + 'static> Entry for WatchedEntry<'_, W> {
    fn name(&self) -> &'static str {
        self.entry.name()
    }

    fn about(&self) -> &'static About {
        self.entry.about()
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let watch = (self.watch)(me, config);
        Ok(match self.entry.build(me, config)? {
            ProtocolProcess::Messages(inner) => {
                ProtocolProcess::Messages(Box::new(WatchedProcess { inner, watch }))
            }
            ProtocolProcess::Memory(inner, regions) => {
                ProtocolProcess::Memory(Box::new(WatchedProcess { inner, watch }), regions)
            }
        })
    }

    fn together(&self, config: &Config) -> Vec<GroupSet> {
        self.entry.together(config)
    }

    fn show(&self, bytes: &[u8]) -> String {
        self.entry.show(bytes)
    }
}

struct WatchedProcess<M: Medium, W> {
    inner: Box<dyn Protocol<Medium = M> + Send>,
    watch: W,
}

impl<M: Medium, W: StepWatch<M>> Protocol for WatchedProcess<M, W> {
    type Medium = M;

    fn step(&mut self, now: Time, view: M::View<'_>, input: Input<'_, M>, out: &mut Outbox<M>) {
        self.watch.step(&mut *self.inner, now, view, input, out);
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        self.inner.deadline()
    }

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        self.inner.room(dst, bytes)
    }

    fn payload_max(&self) -> usize {
        self.inner.payload_max()
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        self.inner.waiting(tell);
    }

    fn fit(&self) -> bool {
        self.inner.fit()
    }

    fn status(&self) -> ProtocolStatus {
        self.inner.status()
    }
}

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
