//! `fastcast-strangers`: beyond the paper, whose processes are the only ones on their network [FastCast 5]. A UDP stream and a TCP
//! connection of strangers use a link of four members that send all that they can, on real sockets, where members judge what
//! their links carry as usual, where they never use less than half of it, and where they do not judge it.

use super::sockets::{optimum, parameters};
use super::{ComparedProtocol, MESSAGE_BYTES, PROTOCOLS};
use crate::bench::lan::{
    COURSE_STEP, ContendedBroadcasts, ContendedResult, FramesLost, LAN_BITS_PER_S, LAN_QUEUE_BYTES,
    Lan, LanBroadcasts, LanBursts, LanLink, LanLinks, LanLoad, LanLosses, LanStranger,
    StrangerFlow, StrangerResult,
};
use crate::bench::{Latency, heed_signals};
use crate::commands::Failure;
use crate::commands::cores::progress;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine, lines};
use crate::commands::reproduce::page::{ClaimVerdict, ExperimentAccount, PagePart, PaperClaim};
use amcast_core::Span;
use maud::{Markup, html};
use serde::Serialize;
use serde_json::json;
use std::ops::Range;

const MEMBERS: usize = 4;

/// Messages that each member has on the way, or waiting.
const OUTSTANDING: usize = 16;

/// The hosts of the strangers: neither of them has the leader, which has the first host.
const FROM: usize = 1;
const TO: usize = 2;

/// The part of a link that the stream takes.
const STREAM_PART: f64 = 0.5;

/// Losses are counted apart so long after a phase begins: members have noticed by then that a stranger came.
const NOTICED: Span = Span::millis(500);

/// The part of the throughput of the first phase at which members are back, on average over so many steps.
const BACK_PART: f64 = 0.95;
const BACK_STEPS: usize = 5;

/// Seconds within which members shall be back.
const BACK_S: f64 = 1.0;

/// How members judge what their links carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum LinkJudgement {
    Usual,
    AtLeastHalf,
    Never,
}

/// All of them, in turns.
const JUDGEMENTS: [LinkJudgement; 3] =
    [LinkJudgement::Usual, LinkJudgement::AtLeastHalf, LinkJudgement::Never];

impl LinkJudgement {
    /// The parameter that differs from the usual ones, and its value.
    const fn set(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Usual => None,
            Self::AtLeastHalf => Some(("link_least_percent", "50")),
            Self::Never => Some(("queue_us", "0")),
        }
    }

    fn name(self) -> String {
        self.set().map_or("usual".to_string(), |(name, value)| format!("{name}={value}"))
    }
}

/// A phase of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum StrangerPhase {
    Before,
    Udp,
    AfterUdp,
    Tcp,
    AfterTcp,
}

/// All of them, in their order.
const PHASES: [StrangerPhase; 5] = [
    StrangerPhase::Before,
    StrangerPhase::Udp,
    StrangerPhase::AfterUdp,
    StrangerPhase::Tcp,
    StrangerPhase::AfterTcp,
];

impl StrangerPhase {
    const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Udp => "UDP stream",
            Self::AfterUdp => "after the stream",
            Self::Tcp => "TCP connection",
            Self::AfterTcp => "after the connection",
        }
    }

    /// The traffic of a stranger in it, where the stream has that rate.
    const fn flow(self, kb_per_s: u64) -> Option<StrangerFlow> {
        match self {
            Self::Udp => Some(StrangerFlow::Udp { kb_per_s }),
            Self::Tcp => Some(StrangerFlow::Tcp),
            Self::Before | Self::AfterUdp | Self::AfterTcp => None,
        }
    }
}

/// The observations of a phase.
#[derive(Clone, Debug, Serialize)]
struct PhaseResult {
    phase: StrangerPhase,
    /// Megabits of payload a second that a member delivered.
    delivered_mbps: f64,
    /// The same in its second half.
    settled_mbps: f64,
    latency_ns: Latency,
    /// Frames that were lost soon after it began, and after that.
    lost: [FramesLost; 2],
    /// How often members announced another rate of their links.
    capacity_changes: u64,
    /// Seconds until the throughput was that of the first phase again, where a stranger has ended.
    back_s: Option<f64>,
}

/// A run through all phases.
#[derive(Clone, Debug, Serialize)]
struct StrangerRun {
    judgement: LinkJudgement,
    phases: Vec<PhaseResult>,
    strangers: Vec<StrangerResult>,
    /// Datagrams of the stream that were sent, and of these those that did not arrive.
    stream_datagrams: [u64; 2],
    course_mbps: Vec<f64>,
    lost: LanLosses,
    /// The share of the time in which a member had a processor.
    processor: f64,
}

/// All runs, on the same links.
struct StrangerRuns {
    link: LanLink,
    phase: Span,
    kb_per_s: u64,
    runs: Vec<StrangerRun>,
}

/// The steps of a time.
const fn steps(at: Span) -> usize {
    (at.0 / COURSE_STEP.0) as usize
}

/// Measures all of it.
pub(in crate::commands::reproduce) fn run(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    if let Some(why) = Lan::missing() {
        return Ok(skipped(why));
    }
    let all = measure(session)?;
    let mut parts = charts(&all)?;
    parts.extend([phases_table(&all), strangers_table(&all)]);
    Ok(ExperimentAccount {
        how: how(&all),
        parts,
        claims: claims(&all),
        failures: Vec::new(),
        figures: json!({
            "link": all.link,
            "rate_mbps": LAN_BITS_PER_S as f64 / 1e6,
            "optimum_mbps": optimum(all.link.udp_mbps, MEMBERS),
            "stream_kb_per_s": all.kb_per_s,
            "phase_ns": all.phase.0,
            "runs": all.runs,
        }),
    })
}

fn skipped(why: &str) -> ExperimentAccount {
    ExperimentAccount {
        how: format!("On real sockets: skipped: {why}."),
        parts: Vec::new(),
        claims: vec![PaperClaim {
            paper: "ours: members give up what strangers take of a link, and take it back"
                .to_string(),
            found: format!("skipped: {why}"),
            holds: ClaimVerdict::Open,
        }],
        failures: Vec::new(),
        figures: json!({ "skipped": why }),
    }
}

fn how(all: &StrangerRuns) -> String {
    let strangers = all.runs.iter().flat_map(|run| &run.strangers);
    let congestion = strangers.filter_map(|of| of.congestion.as_deref()).next();
    let congestion = congestion.map_or(String::new(), |name| format!(" ({name})"));
    format!(
        "Not in the paper. A process on each of {MEMBERS} hosts, which are network namespaces of this machine behind a switch; each \
         direction of each link carries {:.1} Mbit/s of Ethernet frames, with {} KiB of queue in front of it, and carried \
         {:.2} Mbit/s of payload in UDP datagrams of 1472 bytes when this run began. Each member has {OUTSTANDING} messages of \
         10 kB on the way or waiting, over IP multicast. Phases of {:.0} s: before; a stranger's UDP stream of {} kB/s from the \
         host of the second member to that of the third; after; a TCP connection{congestion} on that way, which sends as fast as \
         it can; after. Beside the usual parameters: link_least_percent=50, with which members never use less than half of a \
         link, and queue_us=0, with which they take their links to carry the same at any time. Medians of {} rounds, in turns.",
        LAN_BITS_PER_S as f64 / 1e6,
        LAN_QUEUE_BYTES >> 10,
        all.link.udp_mbps,
        all.phase.0 as f64 / 1e9,
        all.kb_per_s,
        all.runs.len() / JUDGEMENTS.len(),
    )
}

fn measure(session: &ReproduceSession<'_>) -> Result<StrangerRuns, Failure> {
    heed_signals();
    let mut lan = Lan::new(MEMBERS, LanLinks::near(LanBursts::Usual)).map_err(Failure::Failed)?;
    let link = lan.link().map_err(Failure::Failed)?;
    let (rounds, seconds) = if session.quick { (1, 3) } else { (3, 10) };
    let phase = Span::secs(seconds);
    let kb_per_s = (link.udp_mbps * STREAM_PART * 1e3 / 8.0) as u64;
    let mut all = StrangerRuns { link, phase, kb_per_s, runs: Vec::new() };
    let turns = JUDGEMENTS.repeat(rounds);
    let bar = progress(turns.len() as u64, "runs on hosts");
    for judgement in turns {
        let found = lan.run_contended(&plan(&all, judgement)).map_err(Failure::Failed)?;
        all.runs.push(judged(&all, judgement, found));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(all)
}

/// A run through all phases.
fn plan(all: &StrangerRuns, judgement: LinkJudgement) -> ContendedBroadcasts {
    let [ComparedProtocol { entry, set }, ..] = &PROTOCOLS;
    let mut set = parameters(set, *entry, all.link.udp_mbps);
    set.extend(judgement.set().map(|(name, value)| (name.to_string(), value.to_string())));
    let begin = |number: usize| all.phase.times(number as u64);
    let strangers = PHASES.iter().enumerate().filter_map(|(number, phase)| {
        let flow = phase.flow(all.kb_per_s)?;
        Some(LanStranger { flow, from: FROM, to: TO, begins: begin(number), lasts: all.phase })
    });
    let samples = (0..PHASES.len()).flat_map(|number| [begin(number), begin(number) + NOTICED]);
    ContendedBroadcasts {
        broadcasts: LanBroadcasts {
            protocol: entry.name(),
            set,
            members: MEMBERS,
            payload: MESSAGE_BYTES,
            load: LanLoad::Full { outstanding: OUTSTANDING },
            seconds: [1.0, begin(PHASES.len()).0 as f64 / 1e9],
            kinds: false,
        },
        strangers: strangers.collect(),
        samples: samples.chain([begin(PHASES.len())]).collect(),
    }
}

/// The observations of a run, phase by phase.
fn judged(all: &StrangerRuns, judgement: LinkJudgement, found: ContendedResult) -> StrangerRun {
    let within = |number: usize| {
        let begins = steps(all.phase.times(number as u64));
        begins..begins + steps(all.phase)
    };
    let before = found.delivered_mbps(within(0));
    let of = |number: usize, phase: StrangerPhase| {
        let steps = within(number);
        let is_after = matches!(phase, StrangerPhase::AfterUdp | StrangerPhase::AfterTcp);
        let back = || back_after(&found.whole.course_mbps, steps.clone(), before * BACK_PART);
        PhaseResult {
            phase,
            delivered_mbps: found.delivered_mbps(steps.clone()),
            settled_mbps: found.delivered_mbps(steps.start + steps.len() / 2..steps.end),
            latency_ns: found.latency(steps.clone()),
            lost: [found.lost[2 * number], found.lost[2 * number + 1]],
            capacity_changes: found.capacity_changes(steps.clone()),
            back_s: if is_after { back() } else { None },
        }
    };
    let phases = PHASES.iter().enumerate().map(|(number, phase)| of(number, *phase)).collect();
    let sum = |count: fn(&StrangerResult) -> u64| found.strangers.iter().map(count).sum();
    StrangerRun {
        judgement,
        phases,
        stream_datagrams: [
            sum(StrangerResult::datagrams_sent),
            sum(StrangerResult::datagrams_lost),
        ],
        strangers: found.strangers,
        course_mbps: found.whole.course_mbps,
        lost: found.whole.lost,
        processor: found.whole.processor,
    }
}

/// Seconds from the first of these steps until the throughput is that much, on average over some steps.
fn back_after(course: &[f64], steps: Range<usize>, mbps: f64) -> Option<f64> {
    let course = course.get(steps.start..steps.end.min(course.len()))?;
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let at = course.windows(BACK_STEPS).position(|window| mean(window) >= mbps)?;
    Some(at as f64 * COURSE_STEP.0 as f64 / 1e9)
}

impl StrangerRun {
    fn phase(&self, phase: StrangerPhase) -> &PhaseResult {
        &self.phases[phase as usize]
    }

    /// The stranger of a phase.
    fn stranger(&self, phase: StrangerPhase) -> Option<&StrangerResult> {
        let flow = phase.flow(0)?.name();
        self.strangers.iter().find(|of| of.flow.name() == flow)
    }
}

impl StrangerRuns {
    /// The median over the rounds; none without a run, or if there is none in one of them.
    fn median(
        &self,
        judgement: LinkJudgement,
        figure: impl Fn(&StrangerRun) -> Option<f64>,
    ) -> Option<f64> {
        let runs = self.runs.iter().filter(|run| run.judgement == judgement);
        let mut figures = runs.map(figure).collect::<Option<Vec<f64>>>()?;
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    }

    /// The median of a figure of a phase.
    fn of_phase(
        &self,
        judgement: LinkJudgement,
        phase: StrangerPhase,
        figure: impl Fn(&PhaseResult) -> f64,
    ) -> Option<f64> {
        self.median(judgement, |run| Some(figure(run.phase(phase))))
    }

    /// Megabits a second that arrived of the stranger of a phase.
    fn stranger_mbps(&self, judgement: LinkJudgement, phase: StrangerPhase) -> Option<f64> {
        self.median(judgement, |run| run.stranger(phase).map(|of| of.arrived_mbps))
    }

    /// Frames of members that were lost in a phase, soon after it began or after that.
    fn lost(&self, judgement: LinkJudgement, phase: StrangerPhase, later: bool) -> Option<f64> {
        self.of_phase(judgement, phase, |of| of.lost[usize::from(later)].of_members() as f64)
    }
}

/// A figure with so many digits, if there is one.
fn text(figure: Option<f64>, digits: usize) -> String {
    figure.map_or("-".to_string(), |figure| format!("{figure:.digits$}"))
}

/// Two charts over the time of the first round: what members deliver, and what strangers get.
fn charts(all: &StrangerRuns) -> Result<Vec<PagePart>, Failure> {
    let at = |step: usize| step as f64 * COURSE_STEP.0 as f64 / 1e9;
    let line = |run: &StrangerRun, course: &[f64]| ChartLine {
        name: run.judgement.name(),
        points: course.iter().enumerate().map(|(step, mbps)| (at(step), *mbps)).collect(),
    };
    let (mut members, mut strangers) = (Vec::new(), Vec::new());
    for run in all.runs.iter().take(JUDGEMENTS.len()) {
        // The last step is not whole.
        let whole = run.course_mbps.len().saturating_sub(1);
        members.push(line(run, &run.course_mbps[..whole]));
        let of = |step| run.strangers.iter().filter_map(move |of| of.course_mbps.get(step)).sum();
        strangers.push(line(run, &(0..whole).map(of).collect::<Vec<f64>>()));
    }
    let chart = |name: &str, title: &str, all: &[ChartLine]| -> Result<PagePart, Failure> {
        let svg = lines(&Axes { title, x: "seconds", y: "Mbit/s" }, all)?;
        let caption = title.to_string();
        Ok(PagePart::Chart { name: name.to_string(), caption, svg })
    };
    Ok(vec![
        chart("members", "throughput of four members beside strangers on one link", &members)?,
        chart("strangers", "payload of a UDP stream, then of a TCP connection", &strangers)?,
    ])
}

/// The rows of a table, of all kinds of runs.
fn rows(row: impl Fn(LinkJudgement, StrangerPhase) -> Option<Vec<String>>) -> Vec<Vec<Markup>> {
    let all = JUDGEMENTS.into_iter().flat_map(|judgement| PHASES.map(|phase| (judgement, phase)));
    let markup = |(judgement, phase): (LinkJudgement, StrangerPhase)| {
        let cells = [judgement.name(), phase.name().to_string()].into_iter();
        Some(cells.chain(row(judgement, phase)?).map(|cell| html! { (cell) }).collect())
    };
    all.filter_map(markup).collect()
}

fn phases_table(all: &StrangerRuns) -> PagePart {
    let best = optimum(all.link.udp_mbps, MEMBERS);
    let row = |judgement, phase| {
        let of = |figure: fn(&PhaseResult) -> f64| all.of_phase(judgement, phase, figure);
        Some(vec![
            text(of(|of| of.delivered_mbps), 2),
            text(of(|of| of.delivered_mbps).map(|mbps| mbps / best), 3),
            text(of(|of| of.settled_mbps).map(|mbps| mbps / best), 3),
            text(of(|of| of.latency_ns.p50 as f64 / 1e6), 1),
            text(of(|of| of.latency_ns.p99 as f64 / 1e6), 1),
            text(all.lost(judgement, phase, false), 0),
            text(all.lost(judgement, phase, true), 0),
            text(of(|of| of.capacity_changes as f64), 0),
            text(all.median(judgement, |run| run.phase(phase).back_s), 1),
        ])
    };
    let head = [
        "parameters",
        "phase",
        "Mbit/s",
        "of N/(N-1)",
        "of N/(N-1), second half",
        "median, ms",
        "99 %, ms",
        "members' frames lost in half a second",
        "and after it",
        "rates announced",
        "back at 0.95 of before after, s",
    ];
    PagePart::Table {
        caption: "The group, phase by phase".to_string(),
        head: head.map(String::from).to_vec(),
        rows: rows(row),
    }
}

fn strangers_table(all: &StrangerRuns) -> PagePart {
    let row = |judgement, phase: StrangerPhase| {
        let flow = phase.flow(all.kb_per_s)?;
        let is_stream = flow != StrangerFlow::Tcp;
        let datagrams = |at: usize| {
            let count = |run: &StrangerRun| is_stream.then(|| run.stream_datagrams[at] as f64);
            text(all.median(judgement, count), 0)
        };
        let again = |of: &PhaseResult| of.lost[0].plus(of.lost[1]).of_strangers as f64;
        let again = all.median(judgement, |run| (!is_stream).then(|| again(run.phase(phase))));
        Some(vec![
            text(all.stranger_mbps(judgement, phase), 2),
            text(all.stranger_mbps(judgement, phase).map(|mbps| mbps / all.link.udp_mbps), 3),
            datagrams(0),
            datagrams(1),
            text(again, 0),
        ])
    };
    let head = [
        "parameters",
        "stranger",
        "arrived, Mbit/s",
        "of the link",
        "datagrams sent",
        "datagrams lost",
        "segments sent again",
    ];
    PagePart::Table {
        caption: "The strangers".to_string(),
        head: head.map(String::from).to_vec(),
        rows: rows(row),
    }
}

fn claims(all: &StrangerRuns) -> Vec<PaperClaim> {
    use LinkJudgement::{AtLeastHalf, Never, Usual};
    use StrangerPhase::{AfterTcp, AfterUdp, Tcp, Udp};
    let best = optimum(all.link.udp_mbps, MEMBERS);
    let stream_mbps = all.kb_per_s as f64 * 8e-3;
    let left = optimum(all.link.udp_mbps - stream_mbps, MEMBERS);
    let part = |figure: Option<f64>, of: f64| figure.map(|mbps| mbps / of);
    let got = part(all.stranger_mbps(Usual, Udp), stream_mbps);
    let used = part(all.of_phase(Usual, Udp, |of| of.settled_mbps), left);
    let beside_tcp = part(all.of_phase(Usual, Tcp, |of| of.settled_mbps), best);
    let claim = |says: &str, found: String, holds: Option<bool>| PaperClaim {
        paper: format!("ours: {says}"),
        found,
        holds: holds.map_or(ClaimVerdict::Open, ClaimVerdict::when),
    };
    let back = |phase: StrangerPhase, whose: &str| {
        let back = all.median(Usual, |run| run.phase(phase).back_s);
        let found = match back {
            Some(s) => format!("{BACK_PART} of the throughput of before after {s:.1} s"),
            None => "not within the phase".to_string(),
        };
        let says = format!("members take capacity back within a second after the end of {whose}");
        claim(&says, found, Some(back.is_some_and(|s| s <= BACK_S)))
    };
    vec![
        claim(
            "a UDP stream that takes half of a link gets what it sends",
            format!("{} of it", text(got, 3)),
            got.map(|part| part >= 0.95),
        ),
        claim(
            "members use what the stream leaves",
            format!("{} of N/(N-1) of that, in the second half of the phase", text(used, 3)),
            used.map(|part| part >= 0.9),
        ),
        few_lost(all),
        back(AfterUdp, "the stream"),
        claim(
            "members and a TCP connection share the link: they keep a third at least",
            format!(
                "{} of N/(N-1) of the link in the second half of the phase, and the connection has {} of the link; {} and {} with {}, {} \
                 and {} with {}",
                text(beside_tcp, 3),
                text(part(all.stranger_mbps(Usual, Tcp), all.link.udp_mbps), 3),
                text(part(all.of_phase(AtLeastHalf, Tcp, |of| of.settled_mbps), best), 3),
                text(part(all.stranger_mbps(AtLeastHalf, Tcp), all.link.udp_mbps), 3),
                AtLeastHalf.name(),
                text(part(all.of_phase(Never, Tcp, |of| of.settled_mbps), best), 3),
                text(part(all.stranger_mbps(Never, Tcp), all.link.udp_mbps), 3),
                Never.name(),
            ),
            beside_tcp.map(|part| part >= 1.0 / 3.0),
        ),
        back(AfterTcp, "the connection"),
    ]
}

/// The claim that few frames of members are lost beside the stream once they have noticed it.
fn few_lost(all: &StrangerRuns) -> PaperClaim {
    use LinkJudgement::{Never, Usual};
    let phase = StrangerPhase::Udp;
    let later = all.lost(Usual, phase, true);
    // Of those that members sent to the link of the stream meanwhile, of 1472 bytes of payload.
    let mbps = all.of_phase(Usual, phase, |of| of.settled_mbps).unwrap_or(0.0);
    let foreign = (MEMBERS - 1) as f64 / MEMBERS as f64;
    let seconds = (all.phase.0 - NOTICED.0) as f64 / 1e9;
    let frames = mbps * foreign * seconds * 1e6 / 8.0 / 1472.0;
    let without = [false, true].map(|later| text(all.lost(Never, phase, later), 0));
    PaperClaim {
        paper: "ours: members lose fewer than one in a thousand frames once they have noticed the stream".to_string(),
        found: format!(
            "{} frames lost in half a second, and {} of {frames:.0} after it; {} and {} with queue_us=0",
            text(all.lost(Usual, phase, false), 0),
            text(later, 0),
            without[0],
            without[1],
        ),
        holds: later.map_or(ClaimVerdict::Open, |lost| ClaimVerdict::when(lost * 1e3 < frames)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_are_no_hosts_the_page_says_that_it_was_skipped_and_why() {
        let account = skipped("hosts need root");
        assert_eq!(account.how, "On real sockets: skipped: hosts need root.");
        assert_eq!(account.claims[0].holds, ClaimVerdict::Open);
    }

    #[test]
    fn members_are_back_when_some_steps_in_a_row_have_the_throughput() {
        let course = [50.0, 10.0, 60.0, 10.0, 40.0, 50.0, 50.0, 50.0, 50.0, 20.0];
        assert_eq!(back_after(&course, 1..10, 47.0), Some(0.3));
        assert_eq!(back_after(&course, 1..9, 47.0), Some(0.3));
        assert_eq!(back_after(&course, 1..8, 47.0), None, "the phase is over before");
        assert_eq!(back_after(&course, 20..30, 1.0), None);
    }

    /// A run in which members lost so many frames beside the stream, and were back after so long.
    fn played(judgement: LinkJudgement, lost: u64, back_s: Option<f64>) -> StrangerRun {
        let phase = |phase| PhaseResult {
            phase,
            delivered_mbps: 30.0,
            settled_mbps: 30.0,
            latency_ns: Latency::default(),
            lost: [FramesLost::default(), FramesLost { all: lost + 2, of_strangers: 2 }],
            capacity_changes: 1,
            back_s,
        };
        let stranger = |flow| StrangerResult {
            flow,
            seconds: [0.0, 1.0],
            congestion: None,
            arrived_mbps: 23.0,
            course_mbps: vec![23.0; 10],
            sent: vec![100],
            lost: vec![4],
        };
        StrangerRun {
            judgement,
            phases: PHASES.map(phase).to_vec(),
            strangers: vec![
                stranger(StrangerFlow::Udp { kb_per_s: 3_000 }),
                stranger(StrangerFlow::Tcp),
            ],
            stream_datagrams: [100, 4],
            course_mbps: vec![30.0; 50],
            lost: LanLosses::default(),
            processor: 0.5,
        }
    }

    fn runs(runs: Vec<StrangerRun>) -> StrangerRuns {
        let link = LanLink { udp_mbps: 48.0, tcp_mbps: 47.0 };
        StrangerRuns { link, phase: Span::secs(3), kb_per_s: 3_000, runs }
    }

    #[test]
    fn claims_are_judged_by_the_medians_of_the_rounds_with_the_usual_parameters() {
        let holds = |all: &StrangerRuns| claims(all).iter().map(|of| of.holds).collect::<Vec<_>>();
        let good = |lost, back_s| played(LinkJudgement::Usual, lost, back_s);
        let all = runs(vec![good(0, Some(0.9)), good(900, Some(9.0)), good(1, Some(0.2))]);
        assert_eq!(holds(&all), [ClaimVerdict::Yes; 6]);
        assert!(claims(&all)[2].found.contains("- and - with queue_us=0"), "{:?}", claims(&all));
        // 30 Mbit/s, of which three quarters are of others: 4777 frames in 2.5 s.
        let all = runs(vec![good(5, None), played(LinkJudgement::Never, 700, None)]);
        let [yes, no] = [ClaimVerdict::Yes, ClaimVerdict::No];
        assert_eq!(holds(&all), [yes, yes, no, no, yes, no]);
        assert!(claims(&all)[2].found.contains("5 of 4777 after it; 0 and 700 with"));
        let parts = [phases_table(&all), strangers_table(&all)];
        let rows = parts.map(|part| match part {
            PagePart::Table { rows, .. } => rows.len(),
            PagePart::Chart { .. } => 0,
        });
        assert_eq!(rows, [15, 6]);
    }

    #[test]
    fn each_phase_has_its_stranger_and_two_counts_of_losses() {
        let all = runs(Vec::new());
        let plan = plan(&all, LinkJudgement::Never);
        let begins: Vec<_> = plan.strangers.iter().map(|of| of.begins).collect();
        assert_eq!(begins, [Span::secs(3), Span::secs(9)]);
        assert_eq!((plan.samples.len(), plan.samples[3]), (11, Span::millis(3500)));
        assert!(plan.broadcasts.set.contains(&("queue_us".to_string(), "0".to_string())));
    }
}
