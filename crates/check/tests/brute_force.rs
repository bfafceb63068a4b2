//! The fast checker against the definitions, word for word, on thousands of small random runs.

use amcast_check::{History, Property, PropertyVerdict, check};
use amcast_core::rng::Rng;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Ev {
    Cast(usize),
    Deliver(usize),
    Part(usize),
    Crash,
    Recover,
}

/// A run as the definitions see it. Groups are bits.
struct BruteForceRun {
    groups_of: Vec<u8>,
    /// Of each group its parent, none for the root, if the run tells the tree.
    parents: Option<Vec<Option<usize>>>,
    dst: Vec<u8>,
    /// The actions of processes, in the order of time.
    events: Vec<(usize, Ev)>,
    settled: bool,
}

/// The parents of a random tree, or of none. Drawn from a stream of its own, so that what else a run is stays.
fn tree(rng: &Rng, groups: usize) -> Option<Vec<Option<usize>>> {
    let mut rng = Rng::stream(rng.clone().word(), "tree");
    let parent = |g: usize, rng: &mut Rng| (g > 0).then(|| rng.below(g as u64) as usize);
    let parents = (0..groups).map(|g| parent(g, &mut rng)).collect();
    rng.chance(700_000).then_some(parents)
}

impl BruteForceRun {
    /// A run that is mostly in order, with a few faults.
    fn random(rng: &mut Rng) -> Self {
        let (procs, groups, messages) = (3 + rng.below(2), 1 + rng.below(3), 3 + rng.below(3));
        let group = |rng: &mut Rng| 1_u8 << rng.below(groups);
        let groups_of: Vec<u8> = (0..procs)
            .map(|_| match rng.below(8) {
                0 => 0,
                1 => group(rng) | group(rng),
                _ => group(rng),
            })
            .collect();
        let dst: Vec<u8> = (0..messages).map(|_| group(rng) | group(rng)).collect();
        let sender: Vec<usize> = dst.iter().map(|_| rng.below(procs) as usize).collect();
        let fault = [0, 20_000, 80_000][rng.below(3) as usize];
        // The deliveries of each process if none failed.
        let plans: Vec<Vec<usize>> = groups_of
            .iter()
            .map(|g| {
                let mut plan: Vec<usize> = (0..dst.len())
                    .filter(|&m| (dst[m] & g != 0) != rng.chance(fault / 2))
                    .collect();
                for i in 1..plan.len() {
                    if rng.chance(fault) {
                        plan.swap(i - 1, i);
                    }
                    if rng.chance(fault / 2) {
                        plan[i] = plan[i - 1];
                    }
                }
                plan
            })
            .collect();
        let (parents, settled) = (tree(rng, groups as usize), !rng.chance(100_000));
        let mut run = Self { groups_of, parents, dst, events: Vec::new(), settled };
        let mut cast = vec![false; sender.len()];
        let (mut at, mut down) = (vec![0; plans.len()], vec![false; plans.len()]);
        for _ in 0..120 {
            let p = rng.below(procs) as usize;
            if down[p] {
                if rng.chance(30_000) {
                    down[p] = false;
                    run.events.push((p, Ev::Recover));
                }
                continue;
            }
            if rng.chance(fault / 4) {
                down[p] = true;
                run.events.push((p, Ev::Crash));
            } else if rng.chance(60_000) {
                let m = rng.below(messages) as usize;
                let may = run.dst[m] & run.groups_of[p] != 0 || rng.chance(fault);
                if may {
                    run.events.push((p, Ev::Part(m)));
                }
            } else if let Some(m) = (0..sender.len()).find(|&m| !cast[m] && sender[m] == p)
                && rng.chance(300_000)
            {
                // A fault: it is never cast.
                cast[m] = true;
                if !rng.chance(fault / 2) {
                    run.events.push((p, Ev::Cast(m)));
                }
            } else if let Some(&m) = plans[p].get(at[p])
                && (cast[m] || rng.chance(fault / 8))
            {
                at[p] += 1;
                run.events.push((p, Ev::Deliver(m)));
            }
        }
        run
    }

    fn history(&self) -> History {
        let mut h = History::new();
        let mut push = |line: String| h.push_line(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let list = |set: u8| {
            let names = (0..8).filter(|g| set >> g & 1 == 1).map(|g| format!("\"g{g}\""));
            names.collect::<Vec<_>>().join(",")
        };
        for (p, &groups) in self.groups_of.iter().enumerate() {
            let parent = |g: usize| match &self.parents {
                Some(parents) => parents[g].map_or("\"\"".into(), |p| format!("\"g{p}\"")),
                None => String::new(),
            };
            let parents: Vec<_> = (0..8).filter(|g| groups >> g & 1 == 1).map(parent).collect();
            let parents = match &self.parents {
                Some(_) => format!(r#","parents":[{}]"#, parents.join(",")),
                None => String::new(),
            };
            push(format!(r#"{{"ev":"process","p":"p{p}","groups":[{}]{parents}}}"#, list(groups)));
        }
        for (t, (p, ev)) in self.events.iter().enumerate() {
            let head = |ev: &str| format!(r#"{{"ev":"{ev}","t":{},"p":"p{p}""#, t / 2);
            push(match ev {
                Ev::Cast(m) => {
                    format!(r#"{},"m":"m:{m}","dst":[{}]}}"#, head("cast"), list(self.dst[*m]))
                }
                Ev::Deliver(m) => format!(r#"{},"m":"m:{m}"}}"#, head("deliver")),
                Ev::Part(m) => format!(r#"{},"m":"m:{m}"}}"#, head("part")),
                Ev::Crash => head("crash") + "}",
                Ev::Recover => head("recover") + "}",
            });
        }
        if self.settled {
            push(r#"{"ev":"end"}"#.into());
        }
        h
    }

    /// The parent of a group, if the lines of processes in it tell it.
    fn parent(&self, g: usize) -> Option<usize> {
        let told = self.groups_of.iter().any(|groups| groups >> g & 1 == 1);
        self.parents.as_ref().filter(|_| told).and_then(|parents| parents[g])
    }

    /// Whether `above` is `g` or an ancestor of it.
    fn reaches(&self, above: usize, g: usize) -> bool {
        above == g || self.parent(g).is_some_and(|parent| self.reaches(above, parent))
    }

    fn common_ancestors(&self, dst: u8) -> impl Iterator<Item = usize> + '_ {
        let all = move |a: &usize| (0..8).all(|d| dst >> d & 1 == 0 || self.reaches(*a, d));
        (0..8).filter(all)
    }

    /// Whether no common ancestor of these groups is known.
    fn paths_untold(&self, dst: u8) -> bool {
        self.common_ancestors(dst).next().is_none()
    }

    /// Whether `g` lies between the lowest common ancestor of these groups and one of them, these included.
    fn on_a_path(&self, g: usize, dst: u8) -> bool {
        let lowest = |a: &usize| self.common_ancestors(dst).all(|b| self.reaches(b, *a));
        let lca = self.common_ancestors(dst).find(lowest);
        let to_one = (0..8).any(|d| dst >> d & 1 == 1 && self.reaches(g, d));
        lca.is_some_and(|lca| self.reaches(lca, g)) && to_one
    }

    fn procs(&self) -> std::ops::Range<usize> {
        0..self.groups_of.len()
    }

    fn messages(&self) -> std::ops::Range<usize> {
        0..self.dst.len()
    }

    fn correct(&self, p: usize) -> bool {
        let life = |e: &&(usize, Ev)| e.0 == p && matches!(e.1, Ev::Crash | Ev::Recover);
        self.events.iter().rfind(life).is_none_or(|(_, e)| *e == Ev::Recover)
    }

    /// When `p` did this first.
    fn when(&self, p: usize, ev: Ev) -> Option<usize> {
        self.events.iter().position(|e| *e == (p, ev))
    }

    fn delivers(&self, p: usize, m: usize) -> Option<usize> {
        self.when(p, Ev::Deliver(m))
    }

    fn sender(&self, m: usize) -> Option<usize> {
        self.procs().find(|&p| self.when(p, Ev::Cast(m)).is_some())
    }

    fn cast_at(&self, m: usize) -> Option<usize> {
        self.sender(m).and_then(|p| self.when(p, Ev::Cast(m)))
    }

    fn to(&self, m: usize, p: usize) -> bool {
        self.sender(m).is_some() && self.dst[m] & self.groups_of[p] != 0
    }

    /// Whether `p` is correct and has cast `m` in the life in which it still is.
    fn stands(&self, p: usize, m: usize) -> bool {
        let since = &self.events[self.cast_at(m).expect("it was cast")..];
        self.correct(p) && !since.contains(&(p, Ev::Crash))
    }

    fn before(&self, p: usize, m: usize, n: usize) -> bool {
        matches!((self.delivers(p, m), self.delivers(p, n)), (Some(a), Some(b)) if a < b)
    }

    /// Pairs of different messages.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.messages().flat_map(|m| self.messages().map(move |n| (m, n))).filter(|(m, n)| m != n)
    }

    fn holds(&self, property: Property) -> bool {
        let correct = |p: &usize| self.correct(*p);
        let everyone = |m: usize| {
            self.procs().filter(correct).all(|q| !self.to(m, q) || self.delivers(q, m).is_some())
        };
        let delivered =
            |m: usize, p: usize| self.sender(m).is_some() && self.delivers(p, m).is_some();
        match property {
            Property::Validity => self
                .messages()
                .all(|m| !self.sender(m).is_some_and(|p| self.stands(p, m)) || everyone(m)),
            Property::UniformAgreement | Property::Ua => {
                self.messages().all(|m| !self.procs().any(|p| delivered(m, p)) || everyone(m))
            }
            Property::Nua => self
                .messages()
                .all(|m| !self.procs().filter(correct).any(|p| delivered(m, p)) || everyone(m)),
            Property::Nuv => self.messages().all(|m| {
                let sender = self.sender(m).filter(|&p| self.stands(p, m) && self.to(m, p));
                sender.is_none_or(|p| self.delivers(p, m).is_some())
            }),
            Property::UniformIntegrity | Property::Ui => self.procs().all(|p| {
                self.messages().all(|m| {
                    let times = self.events.iter().filter(|e| **e == (p, Ev::Deliver(m))).count();
                    let cast_first =
                        self.cast_at(m) < self.delivers(p, m) && self.cast_at(m).is_some();
                    let mine = property == Property::Ui || self.to(m, p);
                    times == 0 || times == 1 && cast_first && mine
                })
            }),
            Property::UniformPrefixOrder => self.prefix_order(),
            Property::UniformAcyclicOrder => self.acyclic(),
            Property::Genuine | Property::PartiallyGenuine => self.events.iter().all(|&(p, ev)| {
                let Ev::Part(m) = ev else { return true };
                let several = self.sender(m).is_some() && self.dst[m].count_ones() > 1;
                let allowed = property == Property::PartiallyGenuine
                    && several
                    && (0..8)
                        .any(|g| self.groups_of[p] >> g & 1 == 1 && self.on_a_path(g, self.dst[m]));
                let untold = property == Property::PartiallyGenuine
                    && several
                    && self.paths_untold(self.dst[m]);
                let allowed = allowed || untold;
                self.sender(m) == Some(p) || self.to(m, p) || allowed
            }),
            Property::FifoOrder => self.pairs().all(|(m, n)| {
                let sent = self.sender(m).is_some()
                    && self.sender(m) == self.sender(n)
                    && self.cast_at(m) < self.cast_at(n);
                !sent || !self.procs().any(|p| self.before(p, n, m))
            }),
            Property::CausalOrder => self.causal(),
            Property::Suto => self.strong(&|_| true),
            Property::Snuto => self.strong(&|p| self.correct(p)),
            Property::Wuto => self.weak(&|_| true),
            Property::Wnuto => self.weak(&|p| self.correct(p)),
            _ => panic!("{property} is not about such runs"),
        }
    }

    fn prefix_order(&self) -> bool {
        let groups =
            |p: usize| (0..8).map(|g| 1_u8 << g).filter(move |g| self.groups_of[p] & g != 0);
        let cast = |m: usize, g: u8| self.sender(m).is_some() && self.dst[m] & g == g;
        self.pairs().all(|(m, n)| {
            self.procs().all(|p| {
                self.procs().all(|q| {
                    groups(p).all(|g| {
                        groups(q).all(|h| {
                            let both = cast(m, g | h) && cast(n, g | h);
                            let happens =
                                self.delivers(p, m).is_some() && self.delivers(q, n).is_some();
                            !both || !happens || self.before(p, n, m) || self.before(q, m, n)
                        })
                    })
                })
            })
        })
    }

    fn acyclic(&self) -> bool {
        let mut less = vec![vec![false; self.dst.len()]; self.dst.len()];
        for (m, n) in self.pairs() {
            less[m][n] = self.procs().any(|p| self.before(p, m, n));
        }
        self.close(&mut less);
        self.messages().all(|m| !less[m][m])
    }

    fn close(&self, less: &mut [Vec<bool>]) {
        for via in self.messages() {
            for m in self.messages() {
                for n in self.messages() {
                    less[m][n] |= less[m][via] && less[via][n];
                }
            }
        }
    }

    fn causal(&self) -> bool {
        let mut precedes = vec![vec![false; self.dst.len()]; self.dst.len()];
        for (m, n) in self.pairs() {
            let (Some(s), Some(at)) = (self.sender(n), self.cast_at(n)) else { continue };
            precedes[m][n] = self.sender(m).is_some()
                && (self.when(s, Ev::Cast(m)).is_some_and(|t| t < at)
                    || self.delivers(s, m).is_some_and(|t| t < at));
        }
        self.close(&mut precedes);
        self.pairs().filter(|&(m, n)| precedes[m][n]).all(|(m, n)| {
            self.procs()
                .all(|q| !self.to(m, q) || self.delivers(q, n).is_none() || self.before(q, m, n))
        })
    }

    fn strong(&self, counts: &dyn Fn(usize) -> bool) -> bool {
        (0..8).map(|g| 1_u8 << g).all(|g| {
            let cast = |m: usize| self.sender(m).is_some() && self.dst[m] & g != 0;
            let members = || self.procs().filter(|&p| counts(p) && self.groups_of[p] & g != 0);
            self.pairs().filter(|&(m, n)| cast(m) && cast(n)).all(|(m, n)| {
                !members().any(|p| self.before(p, m, n))
                    || members().all(|q| self.delivers(q, n).is_none() || self.before(q, m, n))
            })
        })
    }

    fn weak(&self, counts: &dyn Fn(usize) -> bool) -> bool {
        let who = || self.procs().filter(|&p| counts(p));
        self.pairs().all(|(m, n)| {
            !who().any(|p| self.before(p, m, n)) || !who().any(|p| self.before(p, n, m))
        })
    }

    /// Whether something is delivered before it is cast: the causal past is muddled then.
    fn delivers_uncast(&self) -> bool {
        self.procs().any(|p| {
            self.messages().any(|m| {
                self.delivers(p, m).is_some_and(|t| self.cast_at(m).is_some_and(|cast| cast > t))
            })
        })
    }
}

/// The properties that random runs do not decide: they have no services and no views.
const APART: [Property; 6] = [
    Property::Linearizable,
    Property::Sequential,
    Property::ReadYourWrites,
    Property::ExactlyOnce,
    Property::ViewSynchrony,
    Property::AgreedMulticast,
];

const LIVENESS: [Property; 5] =
    [Property::Validity, Property::UniformAgreement, Property::Ua, Property::Nua, Property::Nuv];

#[test]
fn the_fast_checker_agrees_with_the_definitions() {
    let mut rng = Rng::stream(1, "brute force");
    let judged: Vec<Property> =
        Property::ALL.iter().copied().filter(|p| !APART.contains(p)).collect();
    let mut counts = vec![(0_u32, 0_u32); judged.len()];
    for round in 0..20_000 {
        let run = BruteForceRun::random(&mut rng);
        let report = check(&run.history(), &judged);
        let muddled = run.delivers_uncast();
        for ((property, verdict), count) in report.findings.iter().zip(&mut counts) {
            if muddled && *property == Property::CausalOrder {
                continue;
            }
            let expected = run.holds(*property);
            match verdict {
                PropertyVerdict::Holds => count.0 += 1,
                PropertyVerdict::Violated(_) => count.1 += 1,
                PropertyVerdict::Impossible(why) => panic!("{property}: {why}"),
                PropertyVerdict::NotJudged(_) => {
                    let parts = run.events.iter().any(|(_, e)| matches!(e, Ev::Part(_)));
                    let open = LIVENESS.contains(property) && !run.settled;
                    assert!(open || !parts, "{property} not judged in round {round}");
                    continue;
                }
            }
            assert_eq!(
                *verdict == PropertyVerdict::Holds,
                expected,
                "{property} in round {round}: {verdict:?}\n{:?}\n{:?}",
                run.groups_of,
                run.events
            );
        }
    }
    for (property, (good, bad)) in judged.iter().zip(&counts) {
        assert!(
            *good > 300 && *bad > 300,
            "{property}: {good} good and {bad} bad runs are too few"
        );
    }
}

#[test]
fn a_counterexample_names_what_a_reader_can_look_up() {
    let mut rng = Rng::stream(2, "counterexamples");
    let mut seen = 0;
    for _ in 0..2_000 {
        let run = BruteForceRun::random(&mut rng);
        let history = run.history();
        let lines = history.lines();
        for (property, verdict) in check(&history, Property::ALL).findings {
            let PropertyVerdict::Violated(why) = verdict else { continue };
            seen += 1;
            assert!(!why.sentence.is_empty(), "{property}");
            for event in &why.events {
                assert!(u64::from(event.place.line) <= lines, "{property}");
                assert!(history.process(&event.process).is_some(), "{property}");
                assert!(event.message.starts_with("m:"), "{property}");
            }
        }
    }
    assert!(seen > 1000);
}
