//! Skeen in random runs, judged by the checker: the protocol keeps what it promises, and each way
//! of breaking it is seen to break what it is said to break.

use amcast_check::{History, Property, Report, Verdict, check};
use amcast_core::entry::build_all;
use amcast_core::messages::{Frames, In, Out};
use amcast_core::rng::Rng;
use amcast_core::step::Note;
use amcast_core::trace::Event;
use amcast_core::{
    Cluster, Entry, GroupSet, Input, MsgId, Node, Outbox, Output, Pid, Protocol, RawConfig,
    Submission, Time,
};
use amcast_protocols::catalog;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const GROUPS: usize = 3;
const CLIENTS: usize = 3;
const CASTS_EACH: u64 = 12;

/// Processes and what is on the way between them; whatever can happen next is equally likely.
struct Net {
    cluster: Cluster,
    nodes: Vec<Box<dyn Protocol<Medium = Frames> + Send>>,
    links: BTreeMap<(Pid, Pid), VecDeque<Vec<u8>>>,
    /// The number of each client's last multicast.
    sent: Vec<u64>,
    history: History,
    steps: u64,
}

impl Net {
    fn new(entry: &dyn Entry, mutant: &str) -> Self {
        let set = [("mutant", mutant), ("window", "4")];
        let set = set.map(|(k, v)| (k.to_string(), v.to_string())).into();
        let (groups, clients) = (GROUPS, CLIENTS);
        let raw = RawConfig { groups, replicas: 1, clients, set, ..RawConfig::default() };
        let config = raw.check(entry.about().params).unwrap();
        let nodes = build_all(entry, &config).unwrap().into_iter().map(|node| match node {
            Node::Messages(node) => node,
            Node::Memory(..) => panic!("Skeen passes messages"),
        });
        let mut net = Self {
            cluster: *config.cluster(),
            nodes: nodes.collect(),
            links: BTreeMap::new(),
            sent: vec![0; CLIENTS],
            history: History::new(),
            steps: 0,
        };
        for p in net.cluster.pids() {
            let groups = net.cluster.group_of(p).map_or(GroupSet::EMPTY, GroupSet::one);
            net.record(&Event::Process { p, groups });
            net.step(p, Input::Start { incarnation: 0 });
        }
        net
    }

    fn record(&mut self, event: &Event<'_>) {
        self.history.push_event(event, &self.cluster).unwrap();
    }

    fn step(&mut self, p: Pid, input: Input<'_, Frames>) {
        self.steps += 1;
        let (t, mut out) = (Time(self.steps), Outbox::new(true));
        self.nodes[p.index()].step(t, (), input, &mut out);
        for output in out.items() {
            match output {
                Output::Medium(Out::To(to, _, frame)) => {
                    let frame = out.bytes(*frame).to_vec();
                    self.links.entry((p, *to)).or_default().push_back(frame);
                }
                Output::Deliver(d) => self.record(&Event::Deliver { t, p, m: d.msg }),
                Output::Note(Note::Part(m)) => self.record(&Event::Part { t, p, m: *m }),
                // What the mutant that tells everybody sends to strangers is refused there.
                Output::Note(Note::Malformed(_, "a message for others")) => {}
                other => panic!("{p:?}: {other:?}"),
            }
        }
    }

    fn cast(&mut self, client: usize, rng: &mut Rng) {
        let (p, t) = (self.cluster.client(client), Time(self.steps));
        let dst = GroupSet(1 + rng.below((1 << GROUPS) - 1));
        if self.nodes[p.index()].room(dst, 2) > 0 {
            self.sent[client] += 1;
            let seq = self.sent[client];
            self.record(&Event::Cast { t, p, m: MsgId { sender: p, seq }, dst });
            self.step(p, Input::Submit(Submission { seq, dst, payload: b"hi" }));
        }
    }

    /// Runs until nothing is left to send and nothing is on its way.
    fn run(mut self, rng: &mut Rng) -> History {
        loop {
            let casting: Vec<_> = (0..CLIENTS).filter(|&c| self.sent[c] < CASTS_EACH).collect();
            let busy: Vec<_> = self.links.keys().copied().collect();
            match rng.below((casting.len() + busy.len()) as u64) as usize {
                _ if casting.is_empty() && busy.is_empty() => break,
                i if i < casting.len() => self.cast(casting[i], rng),
                i => {
                    let link = busy[i - casting.len()];
                    let queue = self.links.get_mut(&link).unwrap();
                    let frame: Vec<u8> = queue.pop_front().unwrap();
                    if queue.is_empty() {
                        self.links.remove(&link);
                    }
                    self.step(link.1, Input::Medium(In::From(link.0, frame.as_slice())));
                }
            }
        }
        self.record(&Event::End);
        self.history
    }
}

fn judged(mutant: &str, seed: u64) -> Report {
    let skeen = catalog::find("skeen").unwrap();
    let history = Net::new(skeen, mutant).run(&mut Rng::new(seed));
    assert_eq!(history.messages() as u64, CLIENTS as u64 * CASTS_EACH);
    check(&history, skeen.about().promises)
}

fn broken(report: &Report) -> BTreeSet<Property> {
    let violated = report.findings.iter().filter(|(_, v)| matches!(v, Verdict::Violated(_)));
    violated.map(|(p, _)| *p).collect()
}

#[test]
fn every_promise_is_kept_in_200_random_runs() {
    for seed in 0..200 {
        let report = judged("none", seed);
        assert!(report.all_hold(), "seed {seed}: {}", report.json());
    }
}

#[test]
fn each_mutant_breaks_within_20_runs_just_what_it_is_said_to_break() {
    for mutant in catalog::mutants("skeen") {
        let said: BTreeSet<Property> = mutant.breaks.iter().copied().collect();
        let mut seen = BTreeSet::new();
        let first = (0..20).find(|&seed| {
            seen.extend(broken(&judged(mutant.name, seed)));
            seen == said
        });
        let runs = first.map(|seed| seed + 1);
        println!("{}: {seen:?} broken within {runs:?} runs", mutant.name);
        assert_eq!(seen, said, "{}", mutant.name);
    }
}
