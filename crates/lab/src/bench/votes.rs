//! Messages that are votes, in the simulator [ToTo 6]: sources that send at fixed or at random intervals, how long a message
//! takes to its delivery at its sender, and from how many members a process has to hear for that.
//!
//! The *index of latency* of a message at a process is the number of members of which the process has a message that is
//! concurrent to it, or follows it, when it delivers it; the message itself is one of its sender. The *concurrency* is that
//! number when the message arrives. Both follow from what each process takes part in, in order ([`TraceEvent::Part`]): a sender
//! does so as it sends a message, which follows all before that, and everybody as a message arrives.

use super::histogram;
use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{Entry, GroupSet, MsgId, Pid, RawConfig, Span, Time};
use amcast_sim::{CarrierModel, CastPace, Choices, PlannedCast, RunOutcome, RunPlan, RunRecord};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Sources begin after this time: by then the group has formed.
const BEGIN: Span = Span::millis(100);

/// Messages of each source, on average, before the measured ones and after them: those behind them have to vote.
const AROUND: usize = 20;

/// When a source sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VoteSource {
    /// At fixed intervals, from a time of its own on.
    Periodic,
    /// At intervals with an exponential distribution.
    Poisson,
}

impl VoteSource {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Poisson => "Poisson",
        }
    }

    /// The next interval of this mean.
    pub fn interval(self, mean: Span, rng: &mut Rng) -> Span {
        match self {
            Self::Periodic => mean,
            Self::Poisson => {
                // Above zero, and at most one: its logarithm is finite.
                let part = (rng.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64;
                Span((-part.ln() * mean.0 as f64) as u64)
            }
        }
    }
}

/// The setup of a run.
#[derive(Clone, Debug)]
pub struct SimulatedVotes {
    /// Members of the group. Each is a source.
    pub members: usize,
    /// Parameters of the protocol.
    pub set: Vec<(String, String)>,
    /// The network and the hosts.
    pub model: CarrierModel,
    /// When sources send.
    pub source: VoteSource,
    /// Messages of all sources in a second.
    pub per_second: u64,
    /// Bytes of each message.
    pub bytes: usize,
    /// Messages that are measured.
    pub messages: usize,
    /// The seed of all times.
    pub seed: u64,
}

impl SimulatedVotes {
    /// From one message of a source to its next one, on average.
    pub fn interval(&self) -> Span {
        Span(1_000_000_000 * self.members as u64 / self.per_second)
    }

    /// All messages by time: sender, and whether it is measured.
    fn sends(&self) -> Vec<(Time, Pid, bool)> {
        let mut rng = Rng::new(self.seed);
        let interval = self.interval();
        let around = AROUND * self.members;
        // Random sources differ in how many messages they send until then.
        let each = 2 * ((self.messages + 2 * around) / self.members + AROUND);
        let mut all = Vec::new();
        for p in 0..self.members as u32 {
            let mut at = Time::ZERO + BEGIN + Span(rng.below(interval.0));
            for _ in 0..each {
                all.push((at, Pid(p), false));
                at += self.source.interval(interval, &mut rng);
            }
        }
        all.sort_by_key(|(at, sender, _)| (*at, *sender));
        all.truncate(self.messages + 2 * around);
        all[around..around + self.messages]
            .iter_mut()
            .for_each(|(_, _, measured)| *measured = true);
        all
    }

    fn plan(&self, sends: &[(Time, Pid, bool)]) -> RunPlan {
        let cast = |&(at, sender, _): &(Time, Pid, bool)| PlannedCast {
            at,
            sender,
            dst: GroupSet::first(1),
            bytes: self.bytes,
        };
        RunPlan {
            model: self.model,
            casts: sends.iter().map(cast).collect(),
            pace: CastPace::Open,
            barriers: Vec::new(),
            strikes: Vec::new(),
            calm: sends.last().map_or(Time::ZERO, |send| send.0) + Span::millis(1),
            service: false,
            drift_ppm: vec![0; self.members],
            settle: Span::secs(3600),
            quiet: Span::secs(1),
            events_max: 4_000_000_000,
        }
    }
}

/// How often each pair of index and concurrency was seen.
#[derive(Clone, Debug, Serialize)]
pub struct IndexCounts {
    members: usize,
    /// By index, from 1 (row), and by concurrency, from 1.
    counts: Vec<Vec<u64>>,
}

impl IndexCounts {
    /// None was seen, in a group of so many members.
    pub fn new(members: usize) -> Self {
        Self { members, counts: vec![vec![0; members]; members] }
    }

    /// Members of the group.
    pub const fn members(&self) -> usize {
        self.members
    }

    /// A pair was seen so many times more. Neither is zero, or larger than the group.
    pub fn add(&mut self, index: usize, concurrency: usize, times: u64) {
        self.counts[index - 1][concurrency - 1] += times;
    }

    /// Those of other runs are added.
    pub fn merge(&mut self, other: &Self) {
        let rows = self.counts.iter_mut().zip(&other.counts);
        rows.for_each(|(row, with)| row.iter_mut().zip(with).for_each(|(to, n)| *to += n));
    }

    /// Each pair that was seen, as index and concurrency, with its probability.
    pub fn probabilities(&self) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        let all: u64 = self.counts.iter().flatten().sum();
        let rows = self.counts.iter().enumerate();
        rows.flat_map(move |(i, row)| {
            let seen = row.iter().enumerate().filter(|(_, n)| **n > 0);
            seen.map(move |(j, &n)| (i + 1, j + 1, n as f64 / all as f64))
        })
    }

    /// The mean index.
    pub fn mean_index(&self) -> f64 {
        self.probabilities().map(|(i, _, part)| i as f64 * part).sum()
    }

    /// The mean concurrency.
    pub fn mean_concurrency(&self) -> f64 {
        self.probabilities().map(|(_, j, part)| j as f64 * part).sum()
    }

    /// The probability of this index.
    pub fn probability(&self, index: usize) -> f64 {
        self.probabilities().filter(|(i, _, _)| *i == index).map(|(_, _, part)| part).sum()
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct VoteResult {
    /// Nanoseconds from the time at which a message is due to its delivery at its sender.
    pub latencies: Histogram<u64>,
    /// The indices at all members.
    pub counts: IndexCounts,
    /// Datagrams that found a buffer full.
    pub overflows: u64,
}

/// A message of which something is measured.
struct WatchedMessage {
    due: Time,
    measured: bool,
    /// Of each member, how many messages it follows; none until it is sent.
    follows: Option<Vec<u64>>,
    /// The concurrency at each member that has it.
    concurrency: Vec<Option<usize>>,
}

/// The observations of a run.
struct VoteWatch {
    /// The messages that each sender is still to send: when each is due, and whether it is measured.
    planned: Vec<VecDeque<(Time, bool)>>,
    messages: BTreeMap<MsgId, WatchedMessage>,
    /// How many messages of each sender each process (row) has.
    had: Vec<Vec<u64>>,
    result: VoteResult,
}

impl VoteWatch {
    fn new(members: usize, sends: &[(Time, Pid, bool)]) -> Self {
        let mut planned = vec![VecDeque::new(); members];
        sends.iter().for_each(|&(at, p, measured)| planned[p.index()].push_back((at, measured)));
        Self {
            planned,
            messages: BTreeMap::new(),
            had: vec![vec![0; members]; members],
            result: VoteResult {
                latencies: histogram(),
                counts: IndexCounts::new(members),
                overflows: 0,
            },
        }
    }

    fn event(&mut self, event: &TraceEvent<'_>) {
        match *event {
            TraceEvent::Cast { t, m, .. } => {
                let next = self.planned[m.sender.index()].pop_front();
                let (due, measured) = next.unwrap_or((t, false));
                let concurrency = vec![None; self.had.len()];
                let message = WatchedMessage { due, measured, follows: None, concurrency };
                self.messages.insert(m, message);
            }
            TraceEvent::Part { p, m, .. } => self.take_part(p, m),
            TraceEvent::Deliver { t, p, m } => self.deliver(t, p, m),
            _ => {}
        }
    }

    /// A process sends a message, or it arrives there.
    fn take_part(&mut self, p: Pid, m: MsgId) {
        let Some(message) = self.messages.get_mut(&m) else { return };
        let had = &mut self.had[p.index()];
        match &message.follows {
            None => message.follows = Some(had.clone()),
            Some(follows) => {
                message.concurrency[p.index()] = Some(heard_beside(m.sender, follows, had));
                had[m.sender.index()] += 1;
            }
        }
    }

    fn deliver(&mut self, now: Time, p: Pid, m: MsgId) {
        let Some(message) = self.messages.get(&m).filter(|message| message.measured) else {
            return;
        };
        if p == m.sender {
            self.result.latencies.saturating_record(now.since(message.due).0);
        }
        // Other protocols say nothing of what they take part in, or something else.
        if let (Some(follows), Some(concurrency)) =
            (&message.follows, message.concurrency[p.index()])
        {
            let index = heard_beside(m.sender, follows, &self.had[p.index()]);
            self.result.counts.add(index, concurrency, 1);
        }
    }
}

/// Of how many members a process that has so many messages of each has one that a message does not follow; its sender is one
/// of them.
fn heard_beside(sender: Pid, follows: &[u64], had: &[u64]) -> usize {
    let others = had.iter().zip(follows).enumerate().filter(|(q, _)| *q != sender.index());
    1 + others.filter(|(_, (had, follows))| had > follows).count()
}

/// Runs it.
///
/// # Errors
/// When the configuration is incomplete, or the run did not settle.
pub fn run(entry: &dyn Entry, world: &SimulatedVotes) -> Result<VoteResult, String> {
    let raw = RawConfig {
        groups: 1,
        replicas: world.members,
        clients: 0,
        set: world.set.iter().cloned().collect(),
        ..RawConfig::default()
    };
    let config = raw.check(entry.about().params).map_err(|e| e.to_string())?;
    let sends = world.sends();
    let recorded = RunRecord { plan: world.plan(&sends), choices: Choices::default() };
    let mut watch = VoteWatch::new(world.members, &sends);
    let report = amcast_sim::replay(entry, &config, &recorded, &mut |event| watch.event(event));
    let report = report.map_err(|e| e.to_string())?;
    let mut result = watch.result;
    if report.outcome != RunOutcome::Settled || result.latencies.len() != world.messages as u64 {
        let of = (entry.name(), world.members, world.per_second, report.outcome);
        return Err(format!("{}, {} members, {}/s: not settled: {:?}", of.0, of.1, of.2, of.3));
    }
    result.overflows = report.overflows;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_protocols::toto::{ALL_ACK, TOTO};

    fn world(source: VoteSource, seed: u64) -> SimulatedVotes {
        SimulatedVotes {
            members: 4,
            set: vec![
                ("lane".to_string(), "multicast".to_string()),
                ("vote_us".to_string(), "10000000".to_string()),
            ],
            model: CarrierModel::constant(Span::ZERO, Span::micros(50)),
            source,
            per_second: 100,
            bytes: 10,
            messages: 400,
            seed,
        }
    }

    #[test]
    fn sources_send_at_their_mean_interval_and_periodic_ones_always() {
        for source in [VoteSource::Periodic, VoteSource::Poisson] {
            let world = SimulatedVotes { messages: 8000, ..world(source, 3) };
            let sends = world.sends();
            let of = |p| sends.iter().filter(move |s| s.1 == Pid(p)).map(|s| s.0);
            let gaps: Vec<u64> = of(1).zip(of(1).skip(1)).map(|(a, b)| b.since(a).0).collect();
            let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64 / 1e6;
            assert!((mean - 40.0).abs() < 2.0, "{mean}");
            let short = gaps.iter().filter(|&&gap| gap < 20_000_000).count() as f64;
            let part = short / gaps.len() as f64;
            // 1 - exp(-1/2) of the random ones.
            let expected = if source == VoteSource::Periodic { 0.0 } else { 0.393 };
            assert!((part - expected).abs() < 0.04, "{part}");
            assert_eq!(sends.iter().filter(|s| s.2).count(), 8000);
            assert!(sends.is_sorted_by_key(|s| s.0));
        }
    }

    #[test]
    fn an_index_counts_members_and_an_order_by_votes_needs_a_majority_of_them() {
        let world = world(VoteSource::Periodic, 1);
        let toto = run(&TOTO, &world).unwrap();
        // The times of four sources are far apart: three of four vote one after the other.
        assert_eq!(toto.counts.probability(3), 1.0, "{:?}", toto.counts);
        assert_eq!(toto.counts.mean_concurrency(), 1.0);
        assert_eq!(toto.counts.counts[2][0], 1600, "each message at each member");
        let all = run(&ALL_ACK, &world).unwrap();
        assert_eq!(all.counts.mean_index(), 4.0);
        // On average two and three of four intervals, which are 40 ms together, and a message delay.
        for (found, ms) in [(&toto, 20.05), (&all, 30.05)] {
            let mean = found.latencies.mean() / 1e6;
            assert!((mean - ms).abs() < 0.1, "{mean} ms");
        }
    }

    #[test]
    fn messages_that_cross_each_other_are_concurrent() {
        let mut watch = VoteWatch::new(3, &[(Time(5), Pid(0), true), (Time(6), Pid(1), true)]);
        let (a, b) = (MsgId { sender: Pid(0), seq: 1 }, MsgId { sender: Pid(1), seq: 1 });
        let dst = GroupSet::first(1);
        let mut tell = |event| watch.event(&event);
        tell(TraceEvent::Cast { t: Time(7), p: Pid(0), m: a, dst });
        tell(TraceEvent::Cast { t: Time(7), p: Pid(1), m: b, dst });
        // Each sends its own, and then all arrive at member 2, and at the senders.
        for (p, m) in [(0, a), (1, b), (2, a), (2, b), (0, a), (0, b)] {
            tell(TraceEvent::Part { t: Time(8), p: Pid(p), m });
        }
        tell(TraceEvent::Deliver { t: Time(25), p: Pid(2), m: b });
        tell(TraceEvent::Deliver { t: Time(25), p: Pid(0), m: a });
        let counts = &watch.result.counts;
        let seen: Vec<_> = counts.probabilities().collect();
        assert_eq!(seen, [(2, 1, 0.5), (2, 2, 0.5)], "b found a there, and a was the first");
        assert_eq!((counts.mean_index(), counts.mean_concurrency()), (2.0, 1.5));
        assert_eq!(watch.result.latencies.max(), 20, "from when it was due");
    }
}
