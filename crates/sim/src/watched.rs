//! A layer between a process and its driver that sees every step: for tests that record what processes do, or change what
//! they are given.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use amcast_core::entry::{About, Trials};
use amcast_core::memory::Memory;
use amcast_core::messages::Frames;
use amcast_core::step::{Medium, ProtocolStatus, WaitReason, WakeReason};
use amcast_core::{
    Config, ConfigError, Entry, GroupSet, Input, MsgId, Outbox, Overlay, Pid, Protocol,
    ProtocolProcess, Time,
};

/// Sees the steps of one process: it has to call the process's own step, with what it likes.
pub trait StepWatch<M: Medium>: Send {
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

/// A process that is watched: everything but its steps is the inner process's own.
pub struct WatchedProcess<M: Medium, W> {
    /// The process.
    pub inner: Box<dyn Protocol<Medium = M> + Send>,
    /// Its watch.
    pub watch: W,
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

    fn lagging(&self) -> u64 {
        self.inner.lagging()
    }

    fn status(&self) -> ProtocolStatus {
        self.inner.status()
    }

    fn overlay(&self) -> Option<(u32, &Overlay)> {
        self.inner.overlay()
    }
}

/// Makes the watch of a new process.
pub type MakeStepWatch<W> = dyn Fn(Pid, &Config) -> W + Sync;

/// An entry whose processes are watched.
pub struct WatchedEntry<'a, W> {
    /// The entry.
    pub entry: &'static dyn Entry,
    /// Makes the watch of each of its processes.
    pub watch: &'a MakeStepWatch<W>,
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

    fn overlay<'a>(&self, config: &'a Config) -> Option<&'a Overlay> {
        self.entry.overlay(config)
    }

    fn has_dynamic_overlay(&self, config: &Config) -> bool {
        self.entry.has_dynamic_overlay(config)
    }

    fn trials(&self) -> &'static Trials {
        self.entry.trials()
    }

    fn show(&self, bytes: &[u8]) -> String {
        self.entry.show(bytes)
    }
}
