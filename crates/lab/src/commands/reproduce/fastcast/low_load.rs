//! Figure 8 on real sockets: the latency of one sender at a low load, the most senior member or the most junior one.
//!
//! All hosts take turns on the processors of this machine, and that takes longer with more of them, while the paper's machines have
//! processors of their own. So it is measured on links of two rates: on the slower ones a message takes so long that turns
//! hardly count.

use super::sockets::{
    HOSTS, NOTHING_FOUND, SocketEcho, SocketFigure, SocketPoint, SocketResult, SocketResults,
    apart_ns, below, drawn, latency_table, measure, median_ms, seconds,
};
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

/// Links of one rate, and what is sent on them.
struct LowLoad {
    /// Behind the names of charts and before what the page says of the rate.
    name: &'static str,
    bits_per_s: u64,
    /// Megabits a second of messages.
    mbps: f64,
    seconds: [f64; 2],
}

/// The rate of slow links, in bits of frames a second: a message of 10 kB takes 6 ms.
const SLOW_BITS_PER_S: u64 = 10_060_000;

/// Megabits a second of messages on slow links: one in 0.16 s, so that even those that travel a ring of eight hosts hardly meet.
const SLOW_MBPS: f64 = 0.5;

/// Figure 8.
pub(super) fn run(session: &ReproduceSession<'_>) -> Result<SocketFigure, Failure> {
    if let Some(why) = Lan::missing() {
        return Ok(SocketFigure::skipped(why));
    }
    let near = LanLinks::near(LanBursts::Short);
    let usual =
        LowLoad { name: "", bits_per_s: near.bits_per_s, mbps: 1.0, seconds: seconds(session) };
    let lasts = if session.quick { 4.0 } else { 15.0 };
    let slow = LowLoad {
        name: "-slow",
        bits_per_s: SLOW_BITS_PER_S,
        mbps: SLOW_MBPS,
        seconds: [1.0, lasts],
    };
    let mut figure = usual.measured(session)?;
    let SocketFigure { how, parts, claims, figures } = slow.measured(session)?;
    figure.how.push_str(&format!(" Then once more with slow links. {how}"));
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
        let links = LanLinks { bits_per_s: self.bits_per_s, ..LanLinks::near(LanBursts::Short) };
        let apart_ns = apart_ns(self.mbps);
        let results = measure(links, self.seconds, &points, |point, _| LanLoad::One {
            sender: point.sender.unwrap_or(0),
            apart_ns,
        })?;
        self.figure(&results)
    }

    fn figure(&self, results: &SocketResults) -> Result<SocketFigure, Failure> {
        let of =
            |is_first: bool| results.seen.iter().filter(move |s| (s.sender == Some(0)) == is_first);
        let place =
            format!("on real sockets, with links of {:.0} Mbit/s", self.bits_per_s as f64 / 1e6);
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
            claims.push(is_a_part_of_rivals(of(is_first), &place, sender));
        }
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
             floor in the charts.",
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
fn is_a_part_of_rivals<'a>(
    seen: impl Iterator<Item = &'a SocketResult>,
    place: &str,
    sender: &str,
) -> PaperClaim {
    let largest: Vec<_> = seen.filter(|s| s.found.members == HOSTS).collect();
    let of = |name: &str| largest.iter().find(|s| s.protocol == name).map(|s| median_ms(s));
    let parts = of(FastCast.name())
        .and_then(|own| Some((own / of(Lcr.name())?, own / of(RingPaxosMulticast.name())?)));
    PaperClaim {
        paper: format!(
            "with {HOSTS} members the latency of FastCast is at most half of that of LCR and of Ring Paxos, {place}, of the \
             {sender} member"
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
            is_a_part_of_rivals(none(), "here", "only"),
            below(&[], "x"),
        ] {
            assert_eq!(claim.holds, ClaimVerdict::Open, "{}", claim.paper);
            assert_eq!(claim.found, NOTHING_FOUND);
        }
    }
}
