//! The drawn part of a history: its processes, and the events that were chosen.

use crate::commands::histories::HistoryInput;
use amcast_lab::commands::Failure;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Which events are drawn.
#[derive(Clone, Debug)]
pub(super) struct EventFilter {
    /// Those of these messages and calls; of all if there are none.
    pub(super) messages: BTreeSet<String>,
    /// Not before this time, in nanoseconds of the run's clock, and not after that one.
    pub(super) between: (u64, u64),
    /// At most so many, the first ones.
    pub(super) most: usize,
}

/// The kind of an event of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SceneEventKind {
    Cast,
    Part,
    /// Its place among the deliveries of the process, from 1.
    Deliver(u64),
    Call,
    Return,
    Crash,
    Recover,
    View,
}

/// Something that is drawn.
#[derive(Clone, Debug)]
pub(super) struct SceneEvent {
    pub(super) t: u64,
    /// The place of its process among those that are drawn.
    pub(super) row: usize,
    /// Its place from the left. Events at one time in several processes are in one column.
    pub(super) column: usize,
    pub(super) kind: SceneEventKind,
    /// The message or call; empty for what belongs to none.
    pub(super) message: String,
    /// All that the history says of it, in a sentence.
    pub(super) says: String,
    /// Whether it is one of those that show what is wrong.
    pub(super) is_evidence: bool,
}

/// A picture before it is drawn.
#[derive(Debug, Default)]
pub(super) struct Scene {
    /// The processes that did something that is drawn, in the order of their declaration.
    pub(super) processes: Vec<String>,
    pub(super) events: Vec<SceneEvent>,
    pub(super) columns: usize,
    /// How many events were chosen and are not drawn, since there are too many.
    pub(super) left_out: u64,
    /// How many events there are at all.
    pub(super) all: u64,
    /// The first call, and the first message, that the history names.
    pub(super) first: [Option<String>; 2],
}

/// A line of a history, as far as it is drawn.
#[derive(Deserialize)]
struct RecordedLine {
    ev: String,
    #[serde(default)]
    t: u64,
    #[serde(default)]
    p: String,
    #[serde(default)]
    m: String,
    #[serde(default)]
    dst: Vec<String>,
    #[serde(default)]
    view: serde_json::Value,
    #[serde(default)]
    members: Vec<String>,
    #[serde(default)]
    op: String,
    #[serde(default)]
    out: String,
    #[serde(default)]
    left: bool,
}

impl RecordedLine {
    /// The kind of the event, and its text; none if it is not drawn. `count` is how much the
    /// process has delivered, this included.
    fn says(&self, count: u64) -> Option<(SceneEventKind, String)> {
        let Self { p, m, op, out, .. } = self;
        let (kind, what) = match &*self.ev {
            "cast" => (SceneEventKind::Cast, format!("casts {m} to {}", self.dst.join(", "))),
            "part" => (SceneEventKind::Part, format!("takes part in ordering {m}")),
            "deliver" => {
                (SceneEventKind::Deliver(count), format!("delivers {m}, as number {count}"))
            }
            "call" => (SceneEventKind::Call, format!("calls {op} ({m})")),
            "return" => (SceneEventKind::Return, format!("gets {out} for {op} ({m})")),
            "crash" if self.left => {
                (SceneEventKind::Crash, "leaves its group, and ends".to_string())
            }
            "crash" => (SceneEventKind::Crash, "crashes".to_string()),
            "recover" => (SceneEventKind::Recover, "is back".to_string()),
            "view" => {
                let view = self.view.as_str().map_or_else(|| self.view.to_string(), str::to_string);
                (SceneEventKind::View, format!("enters view {view}: {}", self.members.join(", ")))
            }
            _ => return None,
        };
        Some((kind, format!("{p} {what}")))
    }
}

/// The events of a history as they are gone through.
fn each_event(
    lines: &HistoryInput,
    take: &mut dyn FnMut((&str, u32), RecordedLine),
) -> Result<(), Failure> {
    lines.each(&mut |file, number, text| {
        // An unreadable line was refused when the history was judged.
        if let Ok(event) = serde_json::from_str(text) {
            take((file, number), event);
        }
        Ok(())
    })
}

impl Scene {
    /// The chosen events of a history, and those in the lines of `evidence` (file and number).
    pub(super) fn of(
        lines: &HistoryInput,
        choice: &EventFilter,
        evidence: &BTreeSet<(String, u32)>,
    ) -> Result<Self, Failure> {
        let is_evidence =
            |(file, number): (&str, u32)| evidence.contains(&(file.to_string(), number));
        let mut messages = choice.messages.clone();
        if messages.is_empty() && !evidence.is_empty() {
            each_event(lines, &mut |place, event| {
                if is_evidence(place) && !event.m.is_empty() {
                    messages.insert(event.m);
                }
            })?;
        }
        let mut scene = Self::default();
        let mut declared = BTreeMap::new();
        let mut delivered: BTreeMap<String, u64> = BTreeMap::new();
        let mut drawn = 0;
        each_event(lines, &mut |place, event| {
            if event.ev == "process" {
                let next = declared.len();
                declared.entry(event.p).or_insert(next);
                return;
            }
            if event.ev == "deliver" {
                *delivered.entry(event.p.clone()).or_default() += 1;
            }
            let count = delivered.get(&event.p).copied().unwrap_or_default();
            let (Some((kind, says)), Some(&row)) = (event.says(count), declared.get(&event.p))
            else {
                return;
            };
            scene.all += 1;
            if !event.m.is_empty() {
                scene.first[usize::from(kind != SceneEventKind::Call)]
                    .get_or_insert_with(|| event.m.clone());
            }
            let is_evidence = is_evidence(place);
            let of = event.m.is_empty() || messages.is_empty() || messages.contains(&event.m);
            let within = (choice.between.0..=choice.between.1).contains(&event.t);
            if !(of && within) {
                return;
            }
            // Evidence of a violation is always drawn; there may be too many of the other events.
            if drawn >= choice.most && !is_evidence {
                scene.left_out += 1;
                return;
            }
            drawn += usize::from(!event.m.is_empty() || messages.is_empty());
            let says = format!("{says} at {} (line {})", time(event.t), place.1);
            let (t, message) = (event.t, event.m);
            scene.events.push(SceneEvent { t, row, column: 0, kind, message, says, is_evidence });
        })?;
        scene.forget_lives_elsewhere(!messages.is_empty());
        let names = declared.into_iter().map(|(name, at)| (at, name)).collect();
        scene.lay_out(&names);
        Ok(scene)
    }

    /// Where only some messages are drawn, of the lives and views of processes only those that lie
    /// between.
    fn forget_lives_elsewhere(&mut self, some: bool) {
        if !some {
            return;
        }
        let of_messages = || self.events.iter().filter(|e| !e.message.is_empty()).map(|e| e.t);
        let first = of_messages().min().unwrap_or(u64::MAX);
        let last = of_messages().max().unwrap_or(0);
        self.events.retain(|e| !e.message.is_empty() || (first..=last).contains(&e.t));
    }

    /// Gives each event its row and its column.
    fn lay_out(&mut self, names: &BTreeMap<usize, String>) {
        // Those of one process stay in their order.
        self.events.sort_by_key(|e| e.t);
        let seen: BTreeSet<usize> = self.events.iter().map(|e| e.row).collect();
        let rows: BTreeMap<usize, usize> =
            seen.iter().enumerate().map(|(to, &at)| (at, to)).collect();
        self.processes = seen.iter().map(|at| names[at].clone()).collect();
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        let mut before = None;
        for event in &mut self.events {
            event.row = rows[&event.row];
            if before != Some(event.t) || taken.contains(&event.row) {
                self.columns += 1;
                taken.clear();
            }
            taken.insert(event.row);
            (before, event.column) = (Some(event.t), self.columns - 1);
        }
    }
}

/// A time of a run in the unit that suits it.
pub(super) fn time(t: u64) -> String {
    match t {
        0..1_000 => format!("{t} ns"),
        1_000..1_000_000 => format!("{:.3} us", t as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3} ms", t as f64 / 1e6),
        _ => format!("{:.6} s", t as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn scene(lines: &[&str], choice: &EventFilter, evidence: &[u32]) -> Scene {
        // Tests with the same lines run at once.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("amcast-scene-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, lines.join("\n")).unwrap();
        let file = path.display().to_string();
        let evidence = evidence.iter().map(|&line| (file.clone(), line)).collect();
        let scene = Scene::of(&HistoryInput::of(&path).unwrap(), choice, &evidence).unwrap();
        std::fs::remove_file(&path).unwrap();
        scene
    }

    const RUN: [&str; 10] = [
        r#"{"ev":"process","p":"g0/r0","groups":["g0"]}"#,
        r#"{"ev":"process","p":"g0/r1","groups":["g0"]}"#,
        r#"{"ev":"process","p":"c0","groups":[]}"#,
        r#"{"ev":"cast","t":1,"p":"c0","m":"c0:1","dst":["g0"]}"#,
        r#"{"ev":"cast","t":2,"p":"c0","m":"c0:2","dst":["g0"]}"#,
        r#"{"ev":"deliver","t":3,"p":"g0/r0","m":"c0:1"}"#,
        r#"{"ev":"deliver","t":3,"p":"g0/r1","m":"c0:2"}"#,
        "",
        r#"{"ev":"crash","t":4,"p":"g0/r1"}"#,
        r#"{"ev":"deliver","t":5,"p":"g0/r0","m":"c0:2"}"#,
    ];

    fn all() -> EventFilter {
        EventFilter { messages: BTreeSet::new(), between: (0, u64::MAX), most: 100 }
    }

    #[test]
    fn what_happened_at_one_time_is_in_one_column_and_deliveries_are_counted() {
        let scene = scene(&RUN, &all(), &[]);
        assert_eq!(scene.processes, ["g0/r0", "g0/r1", "c0"]);
        let columns: Vec<_> = scene.events.iter().map(|e| (e.column, e.row)).collect();
        assert_eq!(columns, [(0, 2), (1, 2), (2, 0), (2, 1), (3, 1), (4, 0)]);
        assert_eq!((scene.columns, scene.all, scene.left_out), (5, 6, 0));
        assert_eq!(scene.events[5].kind, SceneEventKind::Deliver(2));
        assert_eq!(scene.events[5].says, "g0/r0 delivers c0:2, as number 2 at 5 ns (line 10)");
    }

    #[test]
    fn of_what_is_wrong_its_messages_are_drawn_and_nothing_else() {
        let wrong = scene(&RUN, &all(), &[6]);
        assert_eq!(wrong.processes, ["g0/r0", "c0"]);
        assert!(wrong.events.iter().all(|e| e.message == "c0:1"), "{:?}", wrong.events);
        assert_eq!(wrong.events.iter().filter(|e| e.is_evidence).count(), 1);
    }

    #[test]
    fn what_is_wrong_is_drawn_however_much_there_is_before_it() {
        let crash = r#"{"ev":"crash","t":1,"p":"g0/r1"}"#;
        let back = r#"{"ev":"recover","t":1,"p":"g0/r1"}"#;
        let lives = [crash, back].repeat(9);
        let lines = [&RUN[..3], &lives, &RUN[3..]].concat();
        let few = EventFilter { most: 1, ..all() };
        let (cast, delivered) = (4 + 18, 6 + 18);
        let wrong = scene(&lines, &few, &[cast, delivered]);
        let evidence = wrong.events.iter().filter(|e| e.is_evidence).count();
        assert_eq!(
            (evidence, wrong.events[0].kind),
            (2, SceneEventKind::Crash),
            "{:?}",
            wrong.events
        );
    }

    #[test]
    fn events_are_chosen_by_message_and_time_up_to_a_number() {
        let second = EventFilter { messages: ["c0:2".to_string()].into(), ..all() };
        let kinds = |s: Scene| s.events.into_iter().map(|e| e.kind).collect::<Vec<_>>();
        let (one, two) = (SceneEventKind::Deliver(1), SceneEventKind::Deliver(2));
        assert_eq!(
            kinds(scene(&RUN, &second, &[])),
            [SceneEventKind::Cast, one, SceneEventKind::Crash, two]
        );
        assert_eq!(
            kinds(scene(&RUN, &EventFilter { between: (4, 9), ..all() }, &[])),
            [SceneEventKind::Crash, two]
        );
        let few = scene(&RUN, &EventFilter { most: 2, ..all() }, &[]);
        assert_eq!((few.events.len(), few.left_out), (2, 4));
    }

    #[test]
    fn times_are_in_the_unit_that_suits_them() {
        assert_eq!(
            ["17 ns", "1.500 us", "2.000 ms", "3.000000 s"],
            [time(17), time(1500), time(2_000_000), time(3_000_000_000)]
        );
    }
}
