//! The layer in a network of its own: processes that exchange heartbeats every millisecond over links that
//! are cut in either direction, by seed.

use super::*;
use alloc::collections::BTreeSet;
use amcast_core::codec::Codec;
use amcast_core::rng::Rng;

const INTERVAL: Span = Span::millis(1);
const SUSPECT: Span = Span::millis(10);
const TIMERS: DirectTimers = DirectTimers { suspect: SUSPECT, retry: Span::millis(2) };

/// How long suspicions and reports take to be known.
const KNOWN: u64 = 40;

struct LinkNetwork {
    now: Time,
    nodes: Vec<LinkTable>,
    /// Links that lose everything, from one process to another.
    cut: BTreeSet<(u32, u32)>,
}

impl LinkNetwork {
    fn new(processes: u32, cut: BTreeSet<(u32, u32)>) -> Self {
        let all: Vec<usize> = (0..processes as usize).collect();
        let node = |me: u32| {
            let neighbours = (0..processes).filter(|&p| p != me).map(Pid).collect();
            let detector = FailureDetector::new(me as usize, &all, INTERVAL, SUSPECT);
            LinkTable::new(Pid(me), neighbours, detector, processes as usize)
        };
        Self { now: Time(1), nodes: (0..processes).map(node).collect(), cut }
    }

    /// Some links of so many processes, by seed.
    fn random(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "links");
        let processes = 3 + rng.below(5) as u32;
        let count = rng.below(u64::from(processes) * 3);
        let mut one = || rng.below(u64::from(processes)) as u32;
        let cut = (0..count).map(|_| (one(), one())).filter(|(from, to)| from != to).collect();
        Self::new(processes, cut)
    }

    fn pids(&self) -> impl Iterator<Item = Pid> + Clone + use<> {
        (0..self.nodes.len() as u32).map(Pid)
    }

    /// Whether a message from one process arrives at another.
    fn arrives(&self, from: Pid, to: Pid) -> bool {
        !self.cut.contains(&(from.0, to.0))
    }

    fn joined(&self, p: Pid, q: Pid) -> bool {
        self.arrives(p, q) && self.arrives(q, p)
    }

    /// Heartbeats for so many milliseconds.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += INTERVAL;
            for from in self.pids() {
                let node = &mut self.nodes[from.index()];
                let Some(count) = node.beat(self.now) else { continue };
                let broken = node.broken_links(self.now);
                for to in self.pids().filter(|&to| to != from) {
                    if self.arrives(from, to) {
                        self.nodes[to.index()].observe(self.now, from, count, true);
                        self.nodes[to.index()].report(from, broken.clone());
                    }
                }
            }
        }
    }

    fn reaches(&self, p: Pid, q: Pid) -> bool {
        self.nodes[p.index()].reaches(self.now, q)
    }

    /// Sends from `p` to `q` until a message arrives; nothing is known of a message but whether it arrived.
    /// The routes that it took.
    fn send(&self, p: Pid, q: Pid, selection: &mut RouteSelection) -> Vec<Route> {
        let (mut taken, mut stuck) = (Vec::new(), false);
        while taken.len() <= self.nodes.len() {
            let forwarders = |to| self.nodes[p.index()].forwarders(self.now, self.pids(), to);
            let route = selection.choose(q, self.reaches(p, q), stuck, forwarders);
            selection.take(route);
            taken.push(route);
            let arrives = match route {
                Route::Direct(to) => self.arrives(p, to),
                Route::Via(by) => self.arrives(p, by) && (by == q || self.arrives(by, q)),
            };
            if arrives {
                return taken;
            }
            stuck = true;
            selection.advance();
        }
        panic!("nothing arrives from {p:?} at {q:?} past {:?}: {taken:?}", self.cut);
    }
}

fn pairs(network: &LinkNetwork) -> impl Iterator<Item = (Pid, Pid)> + use<> {
    let all = network.pids();
    all.clone().flat_map(move |p| all.clone().map(move |q| (p, q))).filter(|(p, q)| p != q)
}

#[test]
fn each_process_knows_which_links_work_in_both_directions() {
    for seed in 0..200 {
        let mut network = LinkNetwork::random(seed);
        network.run(KNOWN);
        for (p, q) in pairs(&network) {
            assert_eq!(network.reaches(p, q), network.joined(p, q), "{p:?} {q:?}, seed {seed}");
        }
        network.cut.clear();
        network.run(KNOWN);
        assert!(pairs(&network).all(|(p, q)| network.reaches(p, q)), "healed, seed {seed}");
    }
}

#[test]
fn messages_get_round_a_broken_link_via_the_first_forwarder_that_hears_both_ends() {
    let mut forwarded = 0;
    for seed in 0..200 {
        let mut network = LinkNetwork::random(seed);
        network.run(KNOWN);
        for (p, q) in pairs(&network).filter(|&(p, q)| !network.arrives(p, q)) {
            let mut between = network.pids().filter(|&by| by != p && by != q);
            if !between.any(|by| network.joined(p, by) && network.joined(by, q)) {
                continue;
            }
            let mut selection = RouteSelection::default();
            let taken = network.send(p, q, &mut selection);
            assert!(
                matches!(taken[..], [Route::Direct(_), Route::Via(_)]),
                "{taken:?}, seed {seed}"
            );
            // The route is kept, without another try.
            assert_eq!(network.send(p, q, &mut selection), taken[1..]);
            forwarded += 1;
        }
    }
    assert!(forwarded > 100, "only {forwarded}");
}

#[test]
fn messages_go_directly_again_once_the_link_heals() {
    let mut network = LinkNetwork::new(3, [(0, 1)].into());
    network.run(KNOWN);
    let mut selection = RouteSelection::default();
    let taken = network.send(Pid(0), Pid(1), &mut selection);
    assert_eq!(taken, [Route::Direct(Pid(1)), Route::Via(Pid(2))]);
    network.cut.clear();
    network.run(KNOWN);
    assert_eq!(network.send(Pid(0), Pid(1), &mut selection), [Route::Direct(Pid(1))]);
}

#[test]
fn what_a_ring_with_broken_links_does_not_spread_the_direct_channel_does() {
    let (mut opened, mut ringed) = (0, 0);
    for seed in 0..200 {
        let mut network = LinkNetwork::random(seed);
        network.run(KNOWN);
        let (all, first) = (network.nodes.len(), Pid(0));
        let majority = all / 2 + 1;
        if network.pids().filter(|&p| p == first || network.reaches(first, p)).count() < majority {
            continue;
        }
        let others: Vec<Pid> = network.pids().filter(|&p| p != first).collect();
        let (mut held, mut channel) = (alloc::vec![0; all], DirectChannel::default());
        let mut progress = 0;
        for value in 1..=300 {
            network.run(1);
            held[0] = value.min(100);
            // Each process sends to the next one that it reaches.
            for p in network.pids() {
                let behind = (1..all).map(|i| Pid((p.0 + i as u32) % all as u32));
                let next = behind.into_iter().find(|&q| network.reaches(p, q));
                if let Some(next) = next.filter(|&next| next != first) {
                    held[next.index()] = held[next.index()].max(held[p.index()]);
                }
            }
            let reported = |held: &[u64]| -> Vec<u64> {
                let hears = |p: &Pid| network.arrives(*p, first);
                network.pids().filter(hears).map(|p| held[p.index()]).collect()
            };
            let mut counts = reported(&held);
            counts.sort_unstable();
            progress = counts.len().checked_sub(majority).map_or(0, |at| counts[at]);
            let links = &network.nodes[0];
            let broken = || links.has_broken_links(network.now, &others, |_, _| true);
            if let Some(before) = channel.poll(network.now, progress, held[0], TIMERS, broken) {
                for &p in others.iter().filter(|&&p| network.reaches(first, p)) {
                    if held[p.index()] < before {
                        held[p.index()] = held[0];
                    }
                }
            }
        }
        assert_eq!(progress, 100, "seed {seed}, without {:?}", network.cut);
        match channel.is_open(network.now) {
            true => opened += 1,
            false => ringed += 1,
        }
    }
    assert!(opened > 5 && ringed > 50, "{opened} needed the channel, {ringed} did not");
}

#[test]
fn the_channel_stays_closed_while_all_links_work() {
    let mut network = LinkNetwork::new(3, BTreeSet::new());
    network.run(KNOWN);
    let (mut channel, links) = (DirectChannel::default(), &network.nodes[0]);
    for millis in 0..100 {
        let now = network.now + Span::millis(millis);
        let broken = || links.has_broken_links(network.now, &[Pid(1), Pid(2)], |_, _| true);
        assert_eq!(channel.poll(now, 3, 9, TIMERS, broken), None);
        assert!(!channel.is_open(now));
    }
}

#[test]
fn broken_links_keep_their_bytes() {
    let broken = BrokenLinks { unheard: [Pid(3)].into(), unreached: [Pid(1), Pid(258)].into() };
    let mut bytes = Vec::new();
    broken.encode(&mut bytes);
    assert_eq!(bytes, [1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0]);
}
