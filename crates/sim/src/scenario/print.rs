//! A line for each event of a run that is worth printing.

use crate::run::RunEvent;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use amcast_core::memory::{MemoryOutput, RegionId, RegionSpec};
use amcast_core::messages;
use amcast_core::step::Note;
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, Config, Entry, GroupSet, MsgId, Pid, ProtocolEvent, Time};

pub(super) struct ScenarioPrinter<'a> {
    entry: &'static dyn Entry,
    cluster: &'a ClusterShape,
    shown: &'a [String],
    /// The regions of each process.
    specs: Vec<Vec<RegionSpec>>,
    /// The processes that took part in each message, as reported so far.
    parts: BTreeSet<(Pid, MsgId)>,
    pub(super) lines: Vec<(Time, String)>,
}

impl<'a> ScenarioPrinter<'a> {
    pub(super) fn new(entry: &'static dyn Entry, config: &'a Config, shown: &'a [String]) -> Self {
        let nodes = amcast_core::entry::build_all(entry, config).unwrap_or_default();
        let specs = nodes.iter().map(|node| node.regions().to_vec()).collect();
        let cluster = config.cluster();
        Self { entry, cluster, shown, specs, parts: BTreeSet::new(), lines: Vec::new() }
    }

    pub(super) fn hear(&mut self, t: Time, told: &RunEvent<'_>) {
        let said = match *told {
            RunEvent::Event(event) => self.event(event),
            RunEvent::Reported(p, event) => reported(event).map(|says| (p, says)),
            RunEvent::Note(p, note) => Some((p, self.note(note))),
            RunEvent::Memory(p, out) => self.memory(p, out).map(|says| (p, says)),
            RunEvent::Message(p, out, bytes) => self.message(out, bytes).map(|says| (p, says)),
            RunEvent::Record(p, record, awaited) if self.shows("disk") => {
                let waits = if awaited { ", and waits for it" } else { "" };
                Some((p, format!("writes a record of {} bytes{waits}", record.len())))
            }
            RunEvent::Checkpoint(p, position) if self.shows("disk") => {
                Some((p, format!("has a checkpoint at {position}")))
            }
            RunEvent::Torn(p, lost) => {
                Some((p, format!("loses its machine, and {lost} of its records")))
            }
            RunEvent::Replaced(p) => Some((p, "gets a new disk".to_string())),
            RunEvent::Damaged(p, number) => {
                Some((p, format!("cannot read its record {number} any more")))
            }
            RunEvent::Full(p) => Some((p, "has no room for a record".to_string())),
            RunEvent::Record(..) | RunEvent::Checkpoint(..) => None,
            RunEvent::Failed(p, how) if self.shows(how) => {
                Some((p, format!("learns that a write was {how}")))
            }
            RunEvent::Failed(..) => None,
            RunEvent::Barrier(p, false) => Some((p, "is set a barrier".to_string())),
            RunEvent::Barrier(p, true) => Some((p, "has passed its barrier".to_string())),
        };
        if let Some((p, says)) = said {
            let name = self.name(p);
            let us = (t.0 / 1000, t.0 % 1000);
            self.lines.push((t, format!("{:>6}.{:03} us {name:>6} {says}\n", us.0, us.1)));
        }
    }

    fn name(&self, p: Pid) -> String {
        self.cluster.name(p).to_string()
    }

    fn message_name(&self, m: MsgId) -> String {
        format!("{}:{}", self.name(m.sender), m.seq)
    }

    fn shows(&self, what: &str) -> bool {
        self.shown.iter().any(|shown| shown == what)
    }

    fn event(&mut self, event: &TraceEvent<'_>) -> Option<(Pid, String)> {
        Some(match event {
            TraceEvent::Cast { p, m, dst, .. } => {
                let m = self.message_name(*m);
                (*p, format!("casts {m} to {}", groups(*dst)))
            }
            TraceEvent::Part { p, m, .. } if self.shows("part") && self.parts.insert((*p, *m)) => {
                (*p, format!("takes part in {}", self.message_name(*m)))
            }
            TraceEvent::Overlay { p, tree, .. } if self.shows("part") => {
                (*p, format!("takes part along the tree {tree}"))
            }
            TraceEvent::Deliver { p, m, .. } => (*p, format!("delivers {}", self.message_name(*m))),
            TraceEvent::Early { p, m, .. } if self.shows("early") => {
                (*p, format!("delivers {} early", self.message_name(*m)))
            }
            TraceEvent::Crash { p, .. } => (*p, "crashes".to_string()),
            TraceEvent::Leave { p, .. } => (*p, "leaves its group, and stops".to_string()),
            TraceEvent::Recover { p, .. } => (*p, "starts again".to_string()),
            _ => return None,
        })
    }

    fn note(&self, note: Note) -> String {
        match note {
            Note::Demoted(epoch) => format!("leads no more: it saw epoch {epoch}"),
            Note::LeftBehind(p) => format!("leaves {} behind", self.name(p)),
            Note::TooFull => "asks the others to continue without it: it is full".to_string(),
            Note::Malformed(p, what) => format!("drops what {} sent: {what}", self.name(p)),
            Note::Mark(name) => format!("takes a rare branch: {name}"),
        }
    }

    fn memory(&self, p: Pid, out: &MemoryOutput) -> Option<String> {
        let spec = |of: Pid, region: RegionId| self.specs[of.index()][usize::from(region.0)];
        let shown = |of, region| self.shows(spec(of, region).name).then(|| spec(of, region));
        let lines = |n: u32| if n == 1 { "1 line".to_string() } else { format!("{n} lines") };
        Some(match *out {
            MemoryOutput::Write { to, region, at, source, .. } => {
                let (name, count) = (shown(to, region)?.name, lines(source.count()));
                format!("writes {count} of {name} at {at} to {}", self.name(to))
            }
            MemoryOutput::Read { of, region, at, count, .. } => {
                let (name, count) = (shown(of, region)?.name, lines(count));
                format!("reads {count} of {name} at {at} from {}", self.name(of))
            }
            MemoryOutput::Allow(region) => {
                let spec = shown(p, region)?;
                format!("lets {} write its {}", self.name(spec.writer), spec.name)
            }
            MemoryOutput::Revoke(region) => {
                let spec = shown(p, region)?;
                format!("lets {} write its {} no more", self.name(spec.writer), spec.name)
            }
        })
    }

    fn message(
        &self,
        out: &messages::MessageOutput<amcast_core::step::PayloadRange>,
        bytes: &[u8],
    ) -> Option<String> {
        if !self.shows("messages") {
            return None;
        }
        let to = match out {
            messages::MessageOutput::To(p, ..) => self.name(*p),
            messages::MessageOutput::Group(g, ..) => format!("all of {g}"),
        };
        Some(format!("sends to {to}: {}", self.entry.show(bytes)))
    }
}

fn groups(set: GroupSet) -> String {
    let names: Vec<String> = set.iter().map(|g| g.to_string()).collect();
    names.join(", ")
}

/// A report of a process to its driver. Its part in a message is an event of the trace.
fn reported(event: ProtocolEvent) -> Option<String> {
    Some(match event {
        ProtocolEvent::Part(_) => return None,
        ProtocolEvent::Leads(epoch) => format!("leads, epoch {epoch}"),
        ProtocolEvent::Lagging => "is lagging, and requests a state".to_string(),
        ProtocolEvent::NeedsState { position, .. } => format!("needs a state, up to {position}"),
        ProtocolEvent::CaughtUp(position) => format!("has all state, up to {position}"),
        ProtocolEvent::StorageRecovered => "has its promises on its disk again".to_string(),
        ProtocolEvent::ViewEntered { number, members, .. } => {
            format!("enters view {number} of {} members", members.count_ones())
        }
        ProtocolEvent::Merged { from, members, .. } => {
            format!("merges with {} members of view {from}", members.count_ones())
        }
        ProtocolEvent::Excluded(view) => format!("is excluded since view {view}"),
        ProtocolEvent::Left(view) => format!("has left: view {view} is without it"),
        ProtocolEvent::MayStop(_) => "may stop, and need not leave before".to_string(),
    })
}
