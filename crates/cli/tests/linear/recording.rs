//! The clients' calls and their answers, as a history for the checker.

use amcast::check::History;
use amcast::core::trace::TraceEvent;
use amcast::core::{ClusterShape, GroupSet, MsgId, Time};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

/// A command as the checker's language has it; words have no spaces, quotes or semicolons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CheckerWords(pub(crate) String);

impl CheckerWords {
    pub(crate) fn of(words: &[&str]) -> Self {
        Self(words.join(" "))
    }
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCall {
    pub(crate) op: CheckerWords,
    pub(crate) at: Time,
    /// When it returned and with what; nothing if it is not known whether it took effect.
    pub(crate) back: Option<(Time, String)>,
}

/// The calls of one client, in the order in which it made them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(pub(crate) Vec<RecordedCall>);

/// A run as its clients saw it.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    pub(crate) clients: Vec<Calls>,
}

/// The moment since `begun`.
pub(crate) fn moment(begun: Instant) -> Time {
    Time(begun.elapsed().as_nanos() as u64)
}

impl Recording {
    /// Every call and return in the order of time. A return goes behind a call of the same
    /// nanosecond: the two then overlap, which claims less.
    fn events(&self) -> Vec<(Time, bool, usize, usize)> {
        let mut events = Vec::new();
        for (client, calls) in self.clients.iter().enumerate() {
            for (n, called) in calls.0.iter().enumerate() {
                events.push((called.at, false, client, n));
                events.extend(called.back.as_ref().map(|(at, _)| (*at, true, client, n)));
            }
        }
        events.sort_unstable();
        events
    }

    /// Tells each event of the run to `tell`.
    fn each(&self, tell: &mut dyn FnMut(&TraceEvent<'_>, &ClusterShape)) {
        let cluster = ClusterShape::new(1, 1, self.clients.len()).expect("clients can be numbered");
        for client in 0..self.clients.len() {
            let groups = GroupSet::default();
            tell(&TraceEvent::Process { p: cluster.client(client), groups }, &cluster);
        }
        for (t, is_return, client, n) in self.events() {
            let p = cluster.client(client);
            let m = MsgId { sender: p, seq: n as u64 + 1 };
            let called = &self.clients[client].0[n];
            match &called.back {
                Some((_, out)) if is_return => tell(&TraceEvent::Return { t, p, m, out }, &cluster),
                _ => tell(&TraceEvent::Call { t, p, m, op: &called.op.0 }, &cluster),
            }
        }
    }

    /// The run for the checker.
    pub(crate) fn history(&self) -> History {
        let mut history = History::new();
        self.each(&mut |event, cluster| {
            history.push_event(event, cluster).expect("the recording is a history");
        });
        history
    }

    /// Keeps the run as a file for `amcast check`.
    pub(crate) fn save(&self, name: &str) -> PathBuf {
        let file = format!("amcast-{name}-{}.jsonl", std::process::id());
        let path = std::env::temp_dir().join(file);
        let mut text = String::new();
        self.each(&mut |event, cluster| {
            writeln!(text, "{}", event.json(cluster)).expect("a string takes everything");
        });
        std::fs::write(&path, text).expect("the history can be kept");
        path
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = &RecordedCall> {
        self.clients.iter().flat_map(|calls| &calls.0)
    }

    /// How many calls returned.
    pub(crate) fn answered(&self) -> usize {
        self.calls().filter(|called| called.back.is_some()).count()
    }

    /// Calls, and how many of them have no known outcome.
    pub(crate) fn figures(&self) -> String {
        let (all, answered) = (self.calls().count(), self.answered());
        let aborted = self.calls().filter(|c| {
            c.op.0.starts_with("MULTI; IF") && c.back.as_ref().is_some_and(|(_, out)| out == "nil")
        });
        format!(
            "{all} calls, {} of them without a known outcome, {} watched transactions given up",
            all - answered,
            aborted.count()
        )
    }

    /// When the last call returned.
    pub(crate) fn end(&self) -> Time {
        let backs = self.calls().filter_map(|called| called.back.as_ref());
        backs.map(|(at, _)| *at).max().unwrap_or_default()
    }

    /// The longest time without any return, of those that `from` to `until` have a part in; in
    /// nanoseconds.
    pub(crate) fn longest_silence(&self, from: Time, until: Time) -> u64 {
        let mut backs: Vec<Time> =
            self.calls().filter_map(|called| called.back.as_ref().map(|(at, _)| *at)).collect();
        backs.sort_unstable();
        let gaps = backs.windows(2).filter(|pair| pair[1] >= from && pair[0] <= until);
        gaps.map(|pair| pair[1].0 - pair[0].0).max().unwrap_or_default()
    }

    /// The longest that a call took, of those under way between `from` and `until`; in nanoseconds.
    pub(crate) fn slowest_call(&self, from: Time, until: Time) -> u64 {
        let took = |called: &RecordedCall| {
            let (back, _) = called.back.as_ref().filter(|(back, _)| *back >= from)?;
            (called.at <= until).then(|| back.0 - called.at.0)
        };
        self.calls().filter_map(took).max().unwrap_or_default()
    }

    /// A client that wrote a key with a plain SET, the key, and a value that another SET had
    /// written there before: reading it again at the end is wrong.
    pub(crate) fn overwritten(&self) -> Option<(usize, String, String)> {
        let sets = |calls: &Calls| -> Vec<(String, String, Time, Time)> {
            let parse = |called: &RecordedCall| {
                let words: Vec<&str> = called.op.0.split(' ').collect();
                let (["SET", key, value], Some((back, _))) = (&words[..], &called.back) else {
                    return None;
                };
                Some((key.to_string(), value.to_string(), called.at, *back))
            };
            calls.0.iter().filter_map(parse).collect()
        };
        let all: Vec<_> = self.clients.iter().map(sets).collect();
        all.iter().enumerate().find_map(|(client, own)| {
            own.iter().find_map(|(key, _, call, _)| {
                let before = |s: &&(String, String, Time, Time)| s.0 == *key && s.3 < *call;
                let old = all.iter().flatten().find(before)?;
                Some((client, key.clone(), old.1.clone()))
            })
        })
    }

    /// Adds a call behind everything else.
    pub(crate) fn add(&mut self, client: usize, op: CheckerWords, out: &str) {
        let end = self.end();
        let called = RecordedCall {
            op,
            at: Time(end.0 + 1),
            back: Some((Time(end.0 + 2), out.to_string())),
        };
        self.clients[client].0.push(called);
    }

    /// Lets the last INCR of some key have counted twice.
    pub(crate) fn count_twice(&mut self) {
        let number = |called: &RecordedCall| {
            let counts = called.op.0.starts_with("INCR ");
            let (_, out) = called.back.as_ref().filter(|_| counts)?;
            out.parse::<i64>().ok().map(|n| (called.op.0.clone(), n))
        };
        let (op, most) = self.calls().filter_map(number).max().expect("something was counted");
        let told = self.clients.iter_mut().flat_map(|calls| &mut calls.0);
        for called in told.filter(|called| called.op.0 == op) {
            if let Some((_, out)) = &mut called.back
                && *out == most.to_string()
            {
                *out = (most + 1).to_string();
            }
        }
    }
}
