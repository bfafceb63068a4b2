//! A wrapper of an entry that claims capabilities, and records what its processes do.

use amcast_core::entry::About;
use amcast_core::memory::Memory;
use amcast_core::messages::{self, Frames, Lane};
use amcast_core::step::Medium;
use amcast_core::{
    Capabilities, Config, ConfigError, Entry, GroupSet, Input, Outbox, Output, Pid, Protocol,
    ProtocolEvent, ProtocolProcess, Time,
};
use amcast_sim::watched::{StepWatch, WatchedProcess};
use std::sync::{Arc, Mutex, PoisonError};

/// The actions of the processes of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessRecord {
    /// Processes that entered a view.
    pub(crate) views: usize,
    /// Processes that left their group, as they were asked to.
    pub(crate) left: usize,
    /// Records that were not awaited.
    pub(crate) written: usize,
    /// Records that were awaited.
    pub(crate) awaited: usize,
    /// States of another process that were installed whole.
    pub(crate) installed: usize,
    /// Datagrams to one process.
    pub(crate) unicast: usize,
    /// Datagrams to a group.
    pub(crate) multicast: usize,
}

pub(crate) type SharedRecord = Arc<Mutex<ProcessRecord>>;

/// The record until now.
pub(crate) fn recorded(record: &SharedRecord) -> ProcessRecord {
    record.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The entry, with another declaration; it is leaked, as entries of the catalog live for ever.
pub(crate) fn claiming(
    entry: &'static dyn Entry,
    capabilities: Capabilities,
) -> (&'static dyn Entry, SharedRecord) {
    let About { summary, paper, medium, promises, assumes, params, .. } = *entry.about();
    let about = About { summary, paper, medium, capabilities, promises, assumes, params };
    let about: &'static About = Box::leak(Box::new(about));
    let record = SharedRecord::default();
    let claims = ClaimedEntry { entry, about, record: Arc::clone(&record) };
    (Box::leak(Box::new(claims)), record)
}

struct ClaimedEntry {
    entry: &'static dyn Entry,
    about: &'static About,
    record: SharedRecord,
}

impl Entry for ClaimedEntry {
    fn name(&self) -> &'static str {
        self.entry.name()
    }

    fn about(&self) -> &'static About {
        self.about
    }

    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let watch = StepRecorder(Arc::clone(&self.record));
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

/// How a medium's outputs are recorded.
trait RecordedMedium: Medium {
    fn record(out: &Self::Out, record: &mut ProcessRecord);
}

impl RecordedMedium for Frames {
    fn record(out: &Self::Out, record: &mut ProcessRecord) {
        match out {
            messages::MessageOutput::To(_, Lane::Datagram, _) => record.unicast += 1,
            messages::MessageOutput::Group(_, Lane::Datagram, _) => record.multicast += 1,
            messages::MessageOutput::To(..) | messages::MessageOutput::Group(..) => {}
        }
    }
}

impl RecordedMedium for Memory {
    fn record(_: &Self::Out, _: &mut ProcessRecord) {}
}

struct StepRecorder(SharedRecord);

impl<M: RecordedMedium> StepWatch<M> for StepRecorder {
    fn step(
        &mut self,
        inner: &mut dyn Protocol<Medium = M>,
        now: Time,
        view: M::View<'_>,
        input: Input<'_, M>,
        out: &mut Outbox<M>,
    ) {
        let before = out.items().len();
        inner.step(now, view, input, out);
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for output in &out.items()[before..] {
            match output {
                Output::Event(ProtocolEvent::ViewEntered { .. }) => record.views += 1,
                // A process that may stop has not left its group.
                Output::Event(ProtocolEvent::Left(_)) => record.left += 1,
                Output::Persist { awaited: true, .. } => record.awaited += 1,
                Output::Persist { awaited: false, .. } => record.written += 1,
                Output::Event(ProtocolEvent::NeedsState { .. }) => record.installed += 1,
                Output::Medium(out) => M::record(out, &mut record),
                _ => {}
            }
        }
    }
}
