//! Figure 8 on real sockets: the latency of one sender at a low load, the most senior member or the most junior one.
//!
//! All hosts take turns on the processors of this machine, and that takes longer with more of them, while the paper's machines have
//! processors of their own. So it is measured on two networks. The second one is the paper's, slower in everything: what a
//! message takes on a link and what a link delays it keep their proportion, and both are so long that turns hardly count.

use super::sockets::{
    HOSTS, NOTHING_FOUND, SocketEcho, SocketFigure, SocketPoint, SocketResult, SocketResults,
    apart_ns, below, drawn, latency_table, measure, median_ms, seconds,
};
use crate::bench::broadcasts::LATENCY;
use crate::bench::lan::{Lan, LanBursts, LanLinks, LanLoad};
use crate::commands::Failure;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine, lines};
use crate::commands::reproduce::page::{ClaimVerdict, PagePart, PaperClaim};
use amcast_core::Entry;
use amcast_protocols::fastcast::FastCast;
use amcast_protocols::lcr::Lcr;
use amcast_protocols::ring_paxos_multicast::RingPaxosMulticast;
use serde_json::json;
use std::time::Duration;

/// A network, and what is sent on it.
struct LowLoad {
    /// Behind the names of charts.
    name: &'static str,
    links: LanLinks,
    /// Megabits a second of messages.
    mbps: f64,
    seconds: [f64; 2],
}

/// How many times slower than the simulator's network, which is the paper's, the slow one is.
const SLOWER: u32 = 94;

/// The rate of its links, in bits of frames a second: datagrams of a packet each carry that part of the paper's 942 Mbit/s.
const SLOW_BITS_PER_S: u64 = 10_310_000;

/// Megabits a second of messages on slow links: one in 0.32 s, so that even those that travel a ring of eight hosts hardly meet.
const SLOW_MBPS: f64 = 0.25;

/// Figure 8.
pub(super) fn run(session: &ReproduceSession<'_>) -> Result<SocketFigure, Failure> {
    if let Some(why) = Lan::missing() {
        return Ok(SocketFigure::skipped(why));
    }
    let near = LanLinks::near(LanBursts::Short);
    let usual = LowLoad { name: "", links: near, mbps: 1.0, seconds: seconds(session) };
    let links = LanLinks {
        bits_per_s: SLOW_BITS_PER_S,
        delay: Duration::from_nanos(LATENCY.0) * SLOWER,
        bursts: LanBursts::Short,
    };
    let lasts = if session.quick { 8.0 } else { 30.0 };
    let slow = LowLoad { name: "-slow", links, mbps: SLOW_MBPS, seconds: [1.0, lasts] };
    let mut figure = usual.measured(session)?;
    let of_slow = match Lan::missing_with_delays() {
        None => slow.measured(session)?,
        Some(why) => SocketFigure::skipped(why),
    };
    let SocketFigure { how, parts, claims, figures } = of_slow;
    figure.how.push_str(&format!(
        " Then once more on the network of the simulator, {SLOWER} times slower in its rate and in its delays. {how}"
    ));
    figure.parts.extend(parts);
    figure.claims.extend(claims);
    figure.figures = json!({ "usual": figure.figures, "slow": figures });
    Ok(figure)
}

impl LowLoad {
    fn measured(&self, session: &ReproduceSession<'_>) -> Result<SocketFigure, Failure> {
        let sizes: Vec<usize> =
            if session.quick { vec![2, 4, HOSTS] } else { (2..=HOSTS).collect() };
        let at = |n: usize, sender| SocketPoint { sender: Some(sender), ..SocketPoint::of(n) };
        let points: Vec<_> = sizes.iter().flat_map(|&n| [at(n, 0), at(n, n - 1)]).collect();
        let apart_ns = apart_ns(self.mbps);
        let results = measure(self.links, self.seconds, &points, |point, _| LanLoad::One {
            sender: point.sender.unwrap_or(0),
            apart_ns,
        })?;
        self.figure(&results)
    }

    fn figure(&self, results: &SocketResults) -> Result<SocketFigure, Failure> {
        let of =
            |is_first: bool| results.seen.iter().filter(move |s| (s.sender == Some(0)) == is_first);
        let LanLinks { bits_per_s, delay, .. } = self.links;
        let delayed = match delay.is_zero() {
            true => String::new(),
            false => format!(" that delay by {:.1} ms", delay.as_secs_f64() * 1e3),
        };
        let mbps = bits_per_s as f64 / 1e6;
        let place = format!("on real sockets, with links of {mbps:.0} Mbit/s{delayed}");
        let (mut parts, mut claims) = (Vec::new(), Vec::new());
        for (name, is_first) in [("sockets", true), ("sockets-junior", false)] {
            let sender = if is_first { "most senior" } else { "most junior" };
            let title = format!("latency of the {sender} member at {} Mbit/s {place}", self.mbps);
            let mut all = drawn(of(is_first), |s| (s.found.members as f64, median_ms(s)));
            let floor = results.echoes.iter().map(|e| (e.members as f64, e.median_ms())).collect();
            all.push(ChartLine { name: "answer of each host".to_string(), points: floor });
            let axes = Axes { title: &title, x: "members", y: "milliseconds (median)" };
            let svg = lines(&axes, &all)?;
            let name = format!("{name}{}", self.name);
            parts.push(PagePart::Chart { name, caption: title, svg });
            claims.push(is_constant(of(is_first), &place, sender));
            claims.push(is_constant_beside(&beside_floors(of(is_first), &results.echoes), sender));
            let by = format!("of the {sender} member");
            claims.push(is_a_part_of_rivals(of(is_first), of(is_first), &place, &by));
        }
        let by = "of the most senior member, and in Ring Paxos of the most junior one, as probably in the paper";
        claims.push(is_a_part_of_rivals(of(true), of(false), &place, by));
        let members = |s: &SocketResult| {
            let sender = if s.sender == Some(0) { "most senior" } else { "most junior" };
            format!("{}, {sender}", s.found.members)
        };
        let caption = format!("Figure 8 {place}");
        parts.push(latency_table(&caption, "members, sender", &results.seen, &members));
        claims.push(below(&results.seen, &format!("a lower latency {place},")));
        let how = format!(
            "One member broadcasts messages of 10 kB, {} Mbit/s of them: the most senior one, which is the leader of FastCast, and \
             the coordinator of Ring Paxos, to which no other one has to send them first; or the most junior one, which is \
             neither. An idle link passes two frames at once, and then its rate: so a message takes its time on each link \
             that it crosses. With more members than cores, these take turns on them, and latencies grow with the group: so \
             do those of a datagram of 10 kB to all hosts that each of them answers at once, without any protocol, which is the \
             floor in the charts. The paper names no sender. Ring Paxos cannot take 2.47 times as long as FastCast, as it does there, \
             where its coordinator sends: its acknowledgements take five delays of a link with eight members and FastCast's two, \
             and the message takes the same time.",
            self.mbps
        );
        Ok(SocketFigure::of(results, &how, parts, claims))
    }
}

/// The claim that the latency of FastCast is the same in groups of any size.
fn is_constant<'a>(
    seen: impl Iterator<Item = &'a SocketResult>,
    place: &str,
    sender: &str,
) -> PaperClaim {
    let own: Vec<f64> = seen.filter(|s| s.protocol == FastCast.name()).map(median_ms).collect();
    let least = own.iter().copied().fold(f64::INFINITY, f64::min);
    let most = own.iter().copied().fold(0.0, f64::max);
    PaperClaim {
        paper: format!(
            "the latency of FastCast is constant in the number of members, {place}, of the {sender} member"
        ),
        found: match own.is_empty() {
            true => NOTHING_FOUND.to_string(),
            false => format!("medians of {least:.3} to {most:.3} ms"),
        },
        holds: ClaimVerdict::of_any(!own.is_empty(), most <= least * 1.1),
    }
}

/// Medians of FastCast beside the floor of as many hosts, in milliseconds.
fn beside_floors<'a>(
    seen: impl Iterator<Item = &'a SocketResult>,
    floors: &[SocketEcho],
) -> Vec<(f64, f64)> {
    let floor = |members: usize| floors.iter().find(|e| e.members == members);
    let own = seen.filter(|s| s.protocol == FastCast.name());
    own.filter_map(|s| Some((median_ms(s), floor(s.found.members)?.median_ms()))).collect()
}

/// The claim that the latency of FastCast is the same in groups of any size, as far as that of a message that as many hosts answer
/// is: medians of both.
fn is_constant_beside(pairs: &[(f64, f64)], sender: &str) -> PaperClaim {
    let times = pairs.iter().map(|(own, floor)| own / floor);
    let (least, most) = times.fold((f64::INFINITY, 0.0_f64), |(l, m), v| (l.min(v), m.max(v)));
    let floors: Vec<_> = pairs.iter().map(|(_, floor)| format!("{floor:.3}")).collect();
    PaperClaim {
        paper: format!(
            "the same, beside a message to all hosts that each of them answers, of the {sender} member"
        ),
        found: match pairs.is_empty() {
            true => NOTHING_FOUND.to_string(),
            false => format!(
                "medians are {least:.2} to {most:.2} times that, which takes {} ms",
                floors.join(", ")
            ),
        },
        holds: ClaimVerdict::of_any(!pairs.is_empty(), most <= least * 1.1),
    }
}

/// The claim that the latency of FastCast is at most half of the others' in the largest group. The paper has up to 465 % less than
/// LCR and up to 247 % less than Ring Paxos.
///
/// Ring Paxos is among `ring`, where another member may send. With eight members its acknowledgements are complete five delays of a link after its
/// coordinator sends, FastCast's two delays after its leader does, and both messages take the same time on the links: so the
/// coordinator cannot take 2.5 times as long. Any other member has to send the message to the coordinator first.
fn is_a_part_of_rivals<'a>(
    seen: impl Iterator<Item = &'a SocketResult>,
    ring: impl Iterator<Item = &'a SocketResult>,
    place: &str,
    by: &str,
) -> PaperClaim {
    let is_ring = |s: &&SocketResult| s.protocol == RingPaxosMulticast.name();
    let seen: Vec<_> = seen.filter(|s| !is_ring(s)).chain(ring.filter(is_ring)).collect();
    let of = |name: &str| {
        let largest = seen.iter().find(|s| s.protocol == name && s.found.members == HOSTS);
        largest.map(|s| median_ms(s))
    };
    let parts = of(FastCast.name())
        .and_then(|own| Some((own / of(Lcr.name())?, own / of(RingPaxosMulticast.name())?)));
    PaperClaim {
        paper: format!(
            "with {HOSTS} members the latency of FastCast is at most half of that of LCR and of Ring Paxos, {place}, {by}"
        ),
        found: match parts {
            None => NOTHING_FOUND.to_string(),
            Some((lcr, ring)) => {
                format!("{lcr:.2} of the median of LCR, {ring:.2} of that of Ring Paxos")
            }
        },
        holds: ClaimVerdict::of_any(
            parts.is_some(),
            parts.is_some_and(|(lcr, ring)| lcr <= 0.5 && ring <= 0.5),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_that_grows_as_the_floor_does_is_constant_beside_it() {
        let claim = is_constant_beside(&[(1.5, 1.0), (3.2, 2.0)], "only");
        assert_eq!(claim.holds, ClaimVerdict::Yes);
        assert_eq!(claim.found, "medians are 1.50 to 1.60 times that, which takes 1.000, 2.000 ms");
        assert_eq!(is_constant_beside(&[(1.5, 1.0), (3.5, 2.0)], "only").holds, ClaimVerdict::No);
    }

    #[test]
    fn without_measurements_every_claim_is_open() {
        let none = core::iter::empty;
        for claim in [
            is_constant(none(), "here", "only"),
            is_constant_beside(&[], "only"),
            is_a_part_of_rivals(none(), none(), "here", "only"),
            below(&[], "x"),
        ] {
            assert_eq!(claim.holds, ClaimVerdict::Open, "{}", claim.paper);
            assert_eq!(claim.found, NOTHING_FOUND);
        }
    }
}
