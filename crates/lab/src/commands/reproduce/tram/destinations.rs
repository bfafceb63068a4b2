//! `tram-fig5` and `tram-fig6`: latency and throughput against the number of destinations, chosen at random or adjacent in
//! the tree.

use super::{
    CONTENDERS, Contender, Demand, DemandTurn, GROUPS, MODEL, PAPER_LATENCY, PAPER_THROUGHPUT,
    SHARED, TramPoint, chart, claim, line_of, measure, simulate, simulate_on, table, text,
};
use crate::bench::DestinationChoice;
use crate::bench::infiniband::Infiniband;
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine};
use crate::commands::reproduce::page::{ExperimentAccount, PagePart, PaperClaim};
use maud::html;
use serde::Serialize;
use serde_json::json;

/// How far apart figures may be that count as constant.
const CONSTANT: f64 = 1.25;

/// Results are as good as the same within this factor: with one destination both protocols do the same.
const SAME: f64 = 1.02;

/// The trees that the paper finds best for latency and for throughput [TRAM 8.2].
const FOR_LATENCY: &str = "breadth";
const FOR_THROUGHPUT: &str = "depth";

/// Costs of posting a write, in nanoseconds, with the ratios for each: the paper prints no cost.
const POSTS_NS: [u64; 5] = [0, 75, 150, 300, 600];

/// Figure 5.
pub(in crate::commands::reproduce) fn uniform(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    account(session, DestinationChoice::Uniform)
}

/// Figure 6.
pub(in crate::commands::reproduce) fn neighbouring(
    session: &ReproduceSession<'_>,
) -> Result<ExperimentAccount, Failure> {
    account(session, DestinationChoice::Neighbouring)
}

/// The turns of all contenders: with one multicast on the way, and with many.
fn turns(session: &ReproduceSession<'_>, choice: DestinationChoice) -> Vec<DemandTurn> {
    let all: &[usize] = match session.quick {
        true => &[1, 2, 3, 4, 8],
        false => &[1, 2, 3, 4, 5, 6, 7, 8],
    };
    let demands =
        all.iter().flat_map(|&n| [Demand::latency(n, choice), Demand::throughput(n, choice)]);
    demands.flat_map(|demand| CONTENDERS.map(|contender| on(contender, demand))).collect()
}

/// The rival goes to the same destinations: those that are adjacent in the base tree, where that matters.
fn on(contender: Contender, demand: Demand) -> DemandTurn {
    let on_tree = contender.on_tree || demand.choice == DestinationChoice::Uniform;
    let overlay = if on_tree { contender.overlay } else { "base" };
    (Contender { overlay, ..contender }, demand)
}

fn account(
    session: &ReproduceSession<'_>,
    choice: DestinationChoice,
) -> Result<ExperimentAccount, Failure> {
    let turns = turns(session, choice);
    let mut points = simulate(session.quick, &turns)?;
    points.extend(measure(session.quick, &turns)?);
    let mut parts = Vec::new();
    let mut claims = Vec::new();
    for medium in ["sim", "shm"] {
        let mine: Vec<TramPoint> = points.iter().filter(|p| p.medium == medium).cloned().collect();
        let seen = DestinationResults { medium, points: mine };
        parts.extend(seen.charts()?);
        claims.extend(match choice {
            DestinationChoice::Uniform => seen.uniform_claims(),
            DestinationChoice::Neighbouring => seen.neighbouring_claims(),
        });
    }
    let number = if choice == DestinationChoice::Uniform { 5 } else { 6 };
    let costs = match choice {
        DestinationChoice::Uniform => posting_costs(session.quick)?,
        DestinationChoice::Neighbouring => Vec::new(),
    };
    if !costs.is_empty() {
        parts.push(cost_table(&costs));
    }
    parts.push(table(&format!("Figure {number}"), &points));
    let chosen = match choice {
        DestinationChoice::Uniform => "drawn from all groups, all sets alike",
        DestinationChoice::Neighbouring => {
            "adjacent in the tree, so that only destinations take part (RamCast's are adjacent in the base tree)"
        }
    };
    Ok(ExperimentAccount {
        how: format!(
            "{MODEL} {SHARED} {GROUPS} groups of three replicas, 64 B; destinations {chosen}. Latency with one client and one \
             multicast on the way, throughput with 8 clients and 32 on the way of each."
        ),
        parts,
        claims,
        failures: Vec::new(),
        figures: json!({ "figure": number, "points": points, "posting_costs": costs }),
    })
}

/// The ratios of the abstract where a write costs its writer so much.
#[derive(Serialize)]
struct PostingCost {
    post_ns: u64,
    /// TRAM's on the breadth tree, and RamCast's.
    latency_us: [f64; 2],
    /// TRAM's on the depth tree, and RamCast's.
    per_second: [f64; 2],
}

/// All groups as destinations, simulated, for each cost of posting a write.
fn posting_costs(quick: bool) -> Result<Vec<PostingCost>, Failure> {
    let choice = DestinationChoice::Uniform;
    let [latency, throughput] =
        [Demand::latency(GROUPS, choice), Demand::throughput(GROUPS, choice)];
    let turns = [
        (Contender::tram(FOR_LATENCY), latency),
        (Contender::RAMCAST, latency),
        (Contender::tram(FOR_THROUGHPUT), throughput),
        (Contender::RAMCAST, throughput),
    ];
    let mut costs = Vec::new();
    for post_ns in POSTS_NS {
        let machines = Infiniband { post_ns, ..Infiniband::PAPER };
        let points = simulate_on(machines, quick, &turns)?;
        let [breadth, of_rival, depth, rival] = &points[..] else {
            return Err(Failure::Failed("a simulated run gave nothing".to_string()));
        };
        costs.push(PostingCost {
            post_ns,
            latency_us: [breadth, of_rival].map(|p| p.latency_us.median),
            per_second: [depth, rival].map(|p| p.per_second.median),
        });
    }
    Ok(costs)
}

fn cost_table(costs: &[PostingCost]) -> PagePart {
    let row = |cost: &PostingCost| {
        let [own, rival] = cost.latency_us;
        let [own_rate, rival_rate] = cost.per_second;
        let cells = [own, rival, rival / own, own_rate, rival_rate, own_rate / rival_rate];
        let mut row = vec![html! { (cost.post_ns) }];
        row.extend(cells.map(|v| html! { (text(v)) }));
        row
    };
    let head = [
        "a post, ns",
        "TRAM breadth, us",
        "RamCast, us",
        "ratio",
        "TRAM depth, multicasts/s",
        "RamCast, multicasts/s",
        "ratio",
    ];
    PagePart::Table {
        caption: format!(
            "Simulated, {GROUPS} destinations: the ratios against the assumed cost of posting a write"
        ),
        head: head.map(String::from).to_vec(),
        rows: costs.iter().map(row).collect(),
    }
}

/// The points of a medium.
struct DestinationResults {
    medium: &'static str,
    points: Vec<TramPoint>,
}

impl DestinationResults {
    /// Latency of a contender.
    fn latency(&self, name: &str, destinations: usize) -> f64 {
        self.find(name, destinations, false).map_or(f64::NAN, |p| p.latency_us.median)
    }

    /// Throughput of a contender.
    fn throughput(&self, name: &str, destinations: usize) -> f64 {
        self.find(name, destinations, true).map_or(f64::NAN, |p| p.per_second.median)
    }

    fn find(&self, name: &str, destinations: usize, loaded: bool) -> Option<&TramPoint> {
        let fits = |p: &&TramPoint| {
            p.contender == name && p.destinations == destinations && (p.outstanding > 1) == loaded
        };
        self.points.iter().find(fits)
    }

    fn destinations(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.points.iter().map(|p| p.destinations).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// TRAM's latency on the tree that the paper finds best for it. Not the lowest of three: the rival is measured once.
    fn tram_latency(&self, destinations: usize) -> f64 {
        self.latency(&Contender::tram(FOR_LATENCY).name(), destinations)
    }

    /// TRAM's throughput, likewise.
    fn tram_throughput(&self, destinations: usize) -> f64 {
        self.throughput(&Contender::tram(FOR_THROUGHPUT).name(), destinations)
    }

    fn charts(&self) -> Result<Vec<PagePart>, Failure> {
        let rival = Contender::RAMCAST.name();
        let draw = |what: &str, y: &str, loaded: bool, of: &dyn Fn(&TramPoint) -> f64| {
            let at = |p: &TramPoint| (p.destinations as f64, of(p));
            let mine = || self.points.iter().filter(|p| (p.outstanding > 1) == loaded);
            let all: Vec<ChartLine> =
                CONTENDERS.iter().map(|c| line_of(mine(), &c.name(), at)).collect();
            let title = format!("{what} against destinations, {}", self.place());
            chart(
                &format!("{}-{what}", self.medium),
                &Axes { title: &title, x: "destination groups", y },
                &all,
            )
        };
        let over = |p: &TramPoint| p.per_second.median / self.throughput(&rival, p.destinations);
        Ok(vec![
            draw("latency", "microseconds", false, &|p| p.latency_us.median)?,
            draw("throughput", "multicasts a second", true, &|p| p.per_second.median)?,
            draw("normalized", "throughput over RamCast's", true, &over)?,
        ])
    }

    const fn place(&self) -> &'static str {
        match self.medium.as_bytes() {
            b"sim" => "simulated",
            _ => "this machine",
        }
    }

    fn uniform_claims(&self) -> Vec<PaperClaim> {
        let mut claims = self.tree_claims();
        claims.extend(self.rival_claims());
        claims.extend(self.ratio_claims());
        claims
    }

    /// The claims on one tree beside another.
    fn tree_claims(&self) -> Vec<PaperClaim> {
        let (place, all) = (self.place(), self.destinations());
        let [base, breadth, depth] =
            ["base", "breadth", "depth"].map(|t| Contender::tram(t).name());
        let several = || all.iter().copied().filter(|&n| n >= 2);
        let (least, most) = extremes(several().map(|n| self.latency(&breadth, n)));
        let at_most = all.last().copied().unwrap_or(GROUPS);
        let deep = [&base, &depth].map(|name| self.latency(name, at_most));
        let flat = self.latency(&breadth, at_most);
        let mean = |name: &str| {
            several().map(|n| self.throughput(name, n)).sum::<f64>() / several().count() as f64
        };
        let [of_base, of_breadth, of_depth] = [&base, &breadth, &depth].map(|name| mean(name));
        vec![
            claim(
                format!(
                    "{place}: the latency of the breadth tree is almost constant beyond one destination"
                ),
                format!("{} to {} us", text(least), text(most)),
                most <= least * CONSTANT,
                self.why("growing"),
            ),
            claim(
                format!("{place}: the base and depth trees have a higher latency"),
                format!(
                    "with {at_most} destinations {} and {} us, breadth {} us",
                    text(deep[0]),
                    text(deep[1]),
                    text(flat)
                ),
                deep.iter().all(|&d| d > flat),
                self.why("one-core"),
            ),
            claim(
                format!(
                    "{place}: the depth tree has the best throughput, closely followed by the base tree"
                ),
                format!(
                    "means over 2 and more destinations: depth {}, base {}, breadth {} a second",
                    text(of_depth),
                    text(of_base),
                    text(of_breadth)
                ),
                of_depth >= of_base && of_base >= of_breadth,
                self.why("one-core"),
            ),
        ]
    }

    /// The claims on who wins where.
    fn rival_claims(&self) -> Vec<PaperClaim> {
        let (place, all) = (self.place(), self.destinations());
        let rival = Contender::RAMCAST.name();
        let lower = |n: usize| self.latency(&rival, n) / self.tram_latency(n);
        let higher = |n: usize| self.tram_throughput(n) / self.throughput(&rival, n);
        let list = |of: &dyn Fn(usize) -> f64, keep: &dyn Fn(usize) -> bool| {
            let each = all.iter().copied().filter(|&n| keep(n));
            each.map(|n| format!("{n}: {}", text(of(n)))).collect::<Vec<_>>().join(", ")
        };
        let judge = |of: &dyn Fn(usize) -> f64, keep: &dyn Fn(usize) -> bool, tram: bool| {
            let mut each = all.iter().copied().filter(|&n| keep(n)).map(of);
            each.all(|ratio| if tram { ratio > 1.0 } else { ratio < SAME })
        };
        let found = |what: &str, list: String| format!("{what}, by destinations: {list}");
        let latency = format!("RamCast's latency over that of the {FOR_LATENCY} tree");
        let throughput = format!("the {FOR_THROUGHPUT} tree's throughput over RamCast's");
        vec![
            claim(
                format!("{place}: with one or two destinations RamCast has the lower latency"),
                found(&latency, list(&lower, &|n| n <= 2)),
                judge(&lower, &|n| n <= 2, false),
                self.why("few"),
            ),
            claim(
                format!("{place}: with more than two destinations TRAM has the lower latency"),
                found(&latency, list(&lower, &|n| n > 2)),
                judge(&lower, &|n| n > 2, true),
                self.why("rival"),
            ),
            claim(
                format!("{place}: with up to three destinations RamCast has the higher throughput"),
                found(&throughput, list(&higher, &|n| n <= 3)),
                judge(&higher, &|n| n <= 3, false),
                self.why("few"),
            ),
            claim(
                format!(
                    "{place}: with more than three destinations TRAM has the higher throughput"
                ),
                found(&throughput, list(&higher, &|n| n > 3)),
                judge(&higher, &|n| n > 3, true),
                self.why("rival"),
            ),
        ]
    }

    /// The ratios of the abstract, with all groups as destinations.
    fn ratio_claims(&self) -> Vec<PaperClaim> {
        let (place, rival) = (self.place(), Contender::RAMCAST.name());
        let n = self.destinations().last().copied().unwrap_or(GROUPS);
        let higher = self.tram_throughput(n) / self.throughput(&rival, n);
        let lower = self.latency(&rival, n) / self.tram_latency(n);
        vec![
            claim(
                format!("{place}: throughput increases by more than {PAPER_THROUGHPUT} times"),
                format!(
                    "with {n} destinations {} times: {} and {} a second",
                    text(higher),
                    text(self.tram_throughput(n)),
                    text(self.throughput(&rival, n))
                ),
                higher > PAPER_THROUGHPUT,
                self.why("rival"),
            ),
            claim(
                format!("{place}: latency is reduced by more than {PAPER_LATENCY} times"),
                format!(
                    "with {n} destinations {} times: {} and {} us",
                    text(lower),
                    text(self.tram_latency(n)),
                    text(self.latency(&rival, n))
                ),
                lower > PAPER_LATENCY,
                self.why("rival"),
            ),
        ]
    }

    fn neighbouring_claims(&self) -> Vec<PaperClaim> {
        let (place, all) = (self.place(), self.destinations());
        let (depth, rival) = (Contender::tram("depth").name(), Contender::RAMCAST.name());
        let ratio = |n: usize| self.throughput(&depth, n) / self.throughput(&rival, n);
        let each: Vec<String> = all.iter().map(|&n| format!("{n}: {}", text(ratio(n)))).collect();
        let mut claims = vec![claim(
            format!("{place}: with the depth tree the throughput is always better than RamCast's"),
            format!("times RamCast's, by destinations: {}", each.join(", ")),
            all.iter().all(|&n| ratio(n) > 1.0),
            self.why("few"),
        )];
        claims.extend(self.ratio_claims());
        claims
    }

    /// Why a claim is missed.
    fn why(&self, of: &str) -> &'static str {
        match (self.medium, of) {
            ("sim", "growing") => {
                "The root posts three writes for each further child, one after the other, and the last child waits for all."
            }
            (_, "growing") => {
                "The root writes to three replicas of each further child, and the same core then steps all of these children."
            }
            ("shm", "one-core") => {
                "One core steps all replicas, so trees gain nothing by work that several machines do at one time: each group on \
                 a message's way is work of the same core."
            }
            ("sim", "rival") => {
                "The RamCast here needs fewer writes than the paper's: followers acknowledge a timestamp by the completion of \
                 the leader's write, and not by writes of their own to all replicas of all destinations."
            }
            ("shm", "few") => {
                "On this machine a write is cheap and a step is dear: RamCast's exchange of timestamps is work for every \
                 destination, where one core does the work of all."
            }
            ("shm", "rival") => {
                "One core steps all replicas, so the replicas that TRAM spares are gained, and what it does at one time is not."
            }
            _ => {
                "The costs of the machines are assumed; the table of posting costs in tram-fig5 shows how far this depends on them."
            }
        }
    }
}

/// The least and the most.
fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), v| (l.min(v), m.max(v)))
}
