//! The toy over messages, whose process 2 reports what a test wants it to, right or wrong.

use super::messages::{MessageToy, MessageToyKind};
use amcast_core::entry::{About, Entry, ProtocolProcess};
use amcast_core::messages::Frames;
use amcast_core::step::{Note, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Config, ConfigError, GroupSet, Input, MsgId, Outbox, Pid, Protocol, ProtocolEvent, Time,
};

/// The process that reports.
pub(crate) const REPORTER: Pid = Pid(2);

/// Its report.
#[derive(Clone, Default, Debug)]
pub(crate) struct ToyReports {
    /// When it starts.
    pub start: Vec<ProtocolEvent>,
    /// When it is asked to leave.
    pub leave: Vec<ProtocolEvent>,
    /// When it delivers first, behind what it delivers.
    pub delivery: Vec<ProtocolEvent>,
    /// Whether it counts as fit all the time.
    pub fit: bool,
    /// The reports of all others when they start.
    pub others: Vec<ProtocolEvent>,
}

impl Entry for ToyReports {
    fn name(&self) -> &'static str {
        "reporter"
    }
    fn about(&self) -> &'static About {
        MessageToy(MessageToyKind::Right).about()
    }
    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        let ProtocolProcess::Messages(toy) = MessageToy(MessageToyKind::Right).build(me, config)?
        else {
            unreachable!("it exchanges messages")
        };
        Ok(ProtocolProcess::Messages(Box::new(Reporter {
            reports: self.clone(),
            me,
            toy,
            delivered: false,
        })))
    }
    fn show(&self, bytes: &[u8]) -> String {
        format!("{bytes:?}")
    }
}

struct Reporter {
    reports: ToyReports,
    me: Pid,
    toy: Box<dyn Protocol<Medium = Frames> + Send>,
    delivered: bool,
}

impl Protocol for Reporter {
    type Medium = Frames;
    fn step(&mut self, now: Time, (): (), input: Input<'_, Frames>, out: &mut Outbox<Frames>) {
        let events: &[ProtocolEvent] = match input {
            Input::Start { .. } if self.me == REPORTER => &self.reports.start,
            Input::Start { .. } => &self.reports.others,
            Input::Leave => &self.reports.leave,
            _ => &[],
        };
        let before = self.toy.status().delivered;
        self.toy.step(now, (), input, out);
        events.iter().for_each(|event| out.event(*event));
        if self.me == REPORTER && !self.delivered && self.toy.status().delivered > before {
            self.delivered = true;
            out.note(Note::Malformed(self.me, "nothing at all"));
            self.reports.delivery.iter().for_each(|event| out.event(*event));
        }
    }
    fn deadline(&self) -> Option<(Time, WakeReason)> {
        self.toy.deadline()
    }
    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        self.toy.room(dst, bytes)
    }
    fn payload_max(&self) -> usize {
        self.toy.payload_max()
    }
    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        self.toy.waiting(tell);
    }
    fn fit(&self) -> bool {
        self.toy.fit() && (self.reports.fit || self.me != REPORTER)
    }
    fn status(&self) -> ProtocolStatus {
        self.toy.status()
    }
}
