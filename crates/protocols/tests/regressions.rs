//! Seeds that failed once keep every promise: each line of `regressions/*.txt` is a run. The draws of a run change
//! with the simulator, so a line may say what it must still show: `mark=` a rare branch that it takes, `mutant=` a
//! mutant with which it fails. With `REGRESSION` in the environment only lines that contain its value are run; see
//! `regressions/README.md`.

use amcast_check::{History, check};
use amcast_core::trace::TraceEvent;
use amcast_core::{Entry, RawConfig, Span};
use amcast_protocols::{catalog, trial};
use amcast_sim::{Profile, RunReport, RunSettings, run};
use amcast_test_policy::time_limit_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

/// How long all lines may take.
const LIMIT: Duration = Duration::from_secs(900);

#[test]
fn what_failed_once_holds() {
    let _limit = time_limit_of(LIMIT);
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../regressions");
    let entries = std::fs::read_dir(dir).expect("the directory is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let files: Vec<_> = paths.filter(|p| p.extension().is_some_and(|end| end == "txt")).collect();
    assert!(!files.is_empty(), "nothing is replayed");
    // A thread for each file: each of them takes a while.
    std::thread::scope(|scope| files.iter().for_each(|file| drop(scope.spawn(|| replay(file)))));
}

/// Runs each line of a file: of the protocol that its first word names, or of the one that the file is named after.
fn replay(file: &Path) {
    let text = std::fs::read_to_string(file).expect("it can be read");
    let lines = text.lines();
    let lines: Vec<&str> = lines.filter(|l| !l.starts_with('#') && !l.is_empty()).collect();
    assert!(!lines.is_empty(), "{}: nothing is replayed", file.display());
    let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("it has a name");
    let only = std::env::var("REGRESSION").unwrap_or_default();
    for line in lines.into_iter().filter(|line| line.contains(&only)) {
        println!("{line}");
        let (how, story) = line.split_once(" | ").expect("a story");
        let named = how.split(' ').next().is_some_and(|word| catalog::find(word).is_some());
        let failed = RecordedRegression::read(how, (!named).then_some(stem));
        let (report, broken) = failed.play(None);
        assert!(broken.is_none(), "{story}: {broken:?}");
        let report = report.expect("it ran");
        for mark in &failed.marks {
            let shown = report.marks.contains_key(mark.as_str());
            assert!(shown, "{story}: the run does not show {mark} any more");
        }
        for mutant in &failed.mutants {
            let (_, broken) = failed.play(Some(mutant));
            assert!(broken.is_some(), "{story}: the run shows nothing of {mutant} any more");
        }
    }
}

/// A run that failed once.
struct RecordedRegression {
    entry: &'static dyn Entry,
    seed: u64,
    settings: RunSettings,
    raw: RawConfig,
    /// Rare branches that the run takes.
    marks: Vec<String>,
    /// With each of these mutants it fails.
    mutants: Vec<String>,
}

impl RecordedRegression {
    /// Of the words of a line.
    fn read(how: &str, protocol: Option<&str>) -> Self {
        let mut words = how.split(' ');
        let protocol = protocol.unwrap_or_else(|| words.next().expect("a protocol"));
        let profile = Profile::parse(words.next().expect("a profile")).expect("a known profile");
        let seed: u64 = words.next().expect("a seed").parse().expect("a number");
        let entry = catalog::find(protocol).expect("it is in the catalog");
        // Most are older than barriers and successions.
        let settings = RunSettings { payload_max: 1500, barriers: 0, ..RunSettings::with(profile) };
        let settings = RunSettings { successions: false, ..settings };
        let (marks, mutants) = (Vec::new(), Vec::new());
        let raw = RawConfig::default();
        let mut failed = Self { entry, seed, settings, raw, marks, mutants };
        words.for_each(|word| failed.take(word));
        failed
    }

    fn take(&mut self, word: &str) {
        let (settings, raw) = (&mut self.settings, &mut self.raw);
        match word {
            "kept" => return settings.replaces = false,
            "successions" => return settings.successions = true,
            _ => {}
        }
        let Some((name, value)) = word.split_once('=') else {
            *raw = match word {
                "wide" => trial::wide(self.entry, self.seed, None),
                "hasty" => trial::hasty(self.entry, self.seed, None),
                _ => panic!("{word:?} is no way to draw a shape"),
            };
            return;
        };
        let number = || value.parse::<u64>().expect("a number");
        match name {
            "groups" => raw.groups = number() as usize,
            "replicas" => raw.replicas = number() as usize,
            "clients" => raw.clients = number() as usize,
            "payload" => settings.payload_max = number() as usize,
            "overlay" => raw.overlay = value.to_string(),
            "barriers" => settings.barriers = number() as usize,
            "messages" => settings.messages = number() as usize,
            "faulty_us" => settings.faulty = Some(Span::micros(number())),
            "events" => settings.events_max = number(),
            "quiet_us" => settings.quiet = Span::micros(number()),
            "settle_us" => settings.settle = Span::micros(number()),
            "mark" => self.marks.push(value.to_string()),
            "mutant" => self.mutants.push(value.to_string()),
            _ => drop(raw.set.insert(name.to_string(), value.to_string())),
        }
    }

    /// Makes the run, and tells what is wrong with it, if anything.
    fn play(&self, mutant: Option<&str>) -> (Option<RunReport>, Option<String>) {
        let (entry, mut raw) = (self.entry, self.raw.clone());
        if let Some(mutant) = mutant {
            raw.set.insert("mutant".to_string(), mutant.to_string());
        }
        let config = raw.check(entry.about().params).expect("a sound configuration");
        let mut history = History::new();
        if let Some(overlay) = entry.overlay(&config) {
            history.arrange(overlay).expect("one tree");
        }
        let mut push = |event: &TraceEvent<'_>| {
            history.push_event(event, config.cluster()).expect("the events are sound");
        };
        let mut made =
            || run(entry, &config, &self.settings, self.seed, &mut push).expect("it is built");
        let report = match mutant {
            None => made(),
            // With a mutant an assertion may come first.
            Some(_) => match catch_unwind(AssertUnwindSafe(made)) {
                Ok(report) => report,
                Err(_) => return (None, Some("an assertion".to_string())),
            },
        };
        let findings = check(&history, entry.about().promises);
        let holds = report.settled() && findings.all_hold();
        let broken = (!holds).then(|| format!("{:?}\n{findings}", report.outcome));
        (Some(report), broken)
    }
}
