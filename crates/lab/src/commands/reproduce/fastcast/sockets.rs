//! The figures on real sockets: a process on each of up to eight hosts of this machine, whose links are limited in rate.
//! Where the machine does not grant such hosts the page says so.

use super::shares::{self, DEMAND_MBPS, DemandCourse};
use super::{ComparedProtocol, MESSAGE_BYTES, PROTOCOLS};
use crate::bench::broadcasts::LINK_MBPS;
use crate::bench::lan::{
    LAN_QUEUE_BYTES, Lan, LanBroadcasts, LanBursts, LanLink, LanLinks, LanLoad, LanResult,
};
use crate::bench::{Latency, heed_signals};
use crate::commands::Failure;
use crate::commands::cores::progress;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::chart::{Axes, ChartLine, lines};
use crate::commands::reproduce::page::{ClaimVerdict, PagePart, PaperClaim};
use amcast_core::parameters::{HEARTBEAT, LINK, LinkRate, RETRY, SUSPECT};
use amcast_core::{Entry, Span};
use amcast_protocols::fastcast::FastCast;
use amcast_protocols::lcr::Lcr;
use amcast_protocols::ring_paxos_multicast::RingPaxosMulticast;
use maud::html;
use serde::Serialize;
use serde_json::{Value, json};

/// Hosts at most.
pub(super) const HOSTS: usize = 8;

/// The result of a claim for which nothing was measured.
pub(super) const NOTHING_FOUND: &str = "nothing was measured";

/// How often the floor of latencies is measured.
const ECHOES: usize = 50;

/// How many times the payload of the measured datagrams, of a packet each, our datagrams of 10 kB carry: seven packets
/// have one head of UDP.
const LONG_DATAGRAMS: f64 = 1.004;

/// The part of a figure that real sockets gave.
pub(super) struct SocketFigure {
    pub(super) how: String,
    pub(super) parts: Vec<PagePart>,
    pub(super) claims: Vec<PaperClaim>,
    pub(super) figures: Value,
}

/// A measurement.
#[derive(Serialize)]
pub(super) struct SocketResult {
    pub(super) protocol: &'static str,
    /// The load in parts of a link, where it is not all that the members can send.
    #[serde(skip_serializing_if = "Option::is_none")]
    load: Option<f64>,
    /// The place of the only sender in the group, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sender: Option<usize>,
    #[serde(flatten)]
    pub(super) found: LanResult,
}

/// A group in which each protocol is measured.
#[derive(Clone, Copy)]
pub(super) struct SocketPoint {
    pub(super) members: usize,
    pub(super) load: Option<f64>,
    pub(super) sender: Option<usize>,
}

impl SocketPoint {
    pub(super) const fn of(members: usize) -> Self {
        Self { members, load: None, sender: None }
    }
}

/// Everything that was measured, and the link.
pub(super) struct SocketResults {
    /// The rate of each link, in bits of frames a second.
    bits_per_s: u64,
    link: LanLink,
    pub(super) seen: Vec<SocketResult>,
    /// For each number of members, where latencies are what is measured: the floor of this machine.
    pub(super) echoes: Vec<SocketEcho>,
}

/// How long a message to all takes that each host answers at once, without any protocol.
#[derive(Serialize)]
pub(super) struct SocketEcho {
    pub(super) members: usize,
    latency_ns: Latency,
}

impl SocketEcho {
    pub(super) fn median_ms(&self) -> f64 {
        self.latency_ns.p50 as f64 / 1e6
    }
}

impl SocketFigure {
    pub(super) fn skipped(why: &str) -> Self {
        Self {
            how: format!("On real sockets: skipped: {why}."),
            parts: Vec::new(),
            claims: vec![PaperClaim {
                paper: "the same on real sockets".to_string(),
                found: format!("skipped: {why}"),
                holds: ClaimVerdict::Open,
            }],
            figures: json!({ "skipped": why }),
        }
    }

    pub(super) fn of(
        results: &SocketResults,
        how: &str,
        parts: Vec<PagePart>,
        claims: Vec<PaperClaim>,
    ) -> Self {
        let SocketResults { bits_per_s, link, seen, echoes } = results;
        let LanLink { udp_mbps, tcp_mbps } = link;
        let rate = *bits_per_s as f64 / 1e6;
        Self {
            how: format!(
                "On real sockets: a process on each of up to {HOSTS} hosts, which are network namespaces of this machine \
                 behind a switch; each direction of each link carries {rate:.1} Mbit/s of Ethernet frames, with \
                 {} KiB of queue in front of it. The link carried {udp_mbps:.2} Mbit/s of payload in UDP datagrams of \
                 1472 bytes when this run began, and {tcp_mbps:.2} on a TCP connection. Datagrams of our protocols have \
                 up to 12 kB, which the system cuts into packets. {how}",
                LAN_QUEUE_BYTES >> 10
            ),
            parts,
            claims,
            figures: json!({ "link": link, "rate_mbps": rate, "points": seen, "echoes": echoes }),
        }
    }
}

/// The same parameters as in the simulator, with the link as it was measured, and more patience: a process that has to
/// wait for a core is not suspected.
pub(super) fn parameters(
    own: &[(&str, &str)],
    protocol: &dyn Entry,
    link_mbps: f64,
) -> Vec<(String, String)> {
    let shared = [("packet_bytes", "12000"), ("window", "256")];
    let pairs = shared.iter().chain(own).map(|(name, value)| (name.to_string(), value.to_string()));
    let timers = [
        HEARTBEAT.setting(Span::millis(100)),
        SUSPECT.setting(Span::secs(5)),
        RETRY.setting(Span::millis(100)),
    ];
    let has_link = protocol.about().params.iter().any(|param| LINK.is(param));
    let mbps = (link_mbps * LONG_DATAGRAMS) as u64;
    let link = has_link.then(|| LINK.setting(LinkRate { mbps }));
    pairs.chain(timers).chain(link).collect()
}

/// Measures each protocol with each number of members and each load, after so many seconds and for so many.
pub(super) fn measure(
    links: LanLinks,
    seconds: [f64; 2],
    points: &[SocketPoint],
    load: impl Fn(SocketPoint, f64) -> LanLoad,
) -> Result<SocketResults, Failure> {
    heed_signals();
    let mut lan = Lan::new(HOSTS, links).map_err(Failure::Failed)?;
    let link = lan.link().map_err(Failure::Failed)?;
    let (mut seen, mut echoes) = (Vec::new(), Vec::new());
    let bar = progress((points.len() * PROTOCOLS.len()) as u64, "runs on hosts");
    for &point in points {
        if point.sender == Some(0) {
            let latency_ns = lan.echo(point.members, MESSAGE_BYTES, ECHOES);
            let latency_ns = latency_ns.map_err(Failure::Failed)?;
            echoes.push(SocketEcho { members: point.members, latency_ns });
        }
        for protocol in &PROTOCOLS {
            let plan = LanBroadcasts {
                protocol: protocol.entry.name(),
                set: parameters(protocol.set, protocol.entry, link.udp_mbps),
                members: point.members,
                payload: MESSAGE_BYTES,
                load: load(point, link.udp_mbps),
                seconds,
                kinds: false,
            };
            let found = lan.run(&plan).map_err(Failure::Failed)?;
            let SocketPoint { load, sender, .. } = point;
            seen.push(SocketResult { protocol: plan.protocol, load, sender, found });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(SocketResults { bits_per_s: links.bits_per_s, link, seen, echoes })
}

/// Seconds until it is measured, and for how long, where messages are many.
pub(super) const fn seconds(session: &ReproduceSession<'_>) -> [f64; 2] {
    if session.quick { [0.5, 1.5] } else { [1.0, 5.0] }
}

/// The same of full load: members of a ring deliver in bursts of a lap, which takes up to 0.8 s.
const fn seconds_of_full_load(session: &ReproduceSession<'_>) -> [f64; 2] {
    if session.quick { seconds(session) } else { [2.0, 10.0] }
}

/// `N/(N-1)` of the link.
pub(super) fn optimum(link_mbps: f64, members: usize) -> f64 {
    link_mbps * members as f64 / (members - 1) as f64
}

/// Figure 5: members whose demand changes.
pub(super) fn follow(session: &ReproduceSession<'_>) -> Result<SocketFigure, Failure> {
    if let Some(why) = Lan::missing() {
        return Ok(SocketFigure::skipped(why));
    }
    heed_signals();
    let links = LanLinks::near(LanBursts::Usual);
    let mut lan = Lan::new(shares::MEMBERS, links).map_err(Failure::Failed)?;
    let link = lan.link().map_err(Failure::Failed)?;
    let demand = DEMAND_MBPS.map(|of| of.map(|mbps| mbps * link.udp_mbps / LINK_MBPS));
    let phase = if session.quick { Span::secs(1) } else { Span::secs(5) };
    let [ComparedProtocol { entry, set }, ..] = &PROTOCOLS;
    let plan = LanBroadcasts {
        protocol: entry.name(),
        set: parameters(set, *entry, link.udp_mbps),
        members: shares::MEMBERS,
        payload: 0,
        load: LanLoad::Phases {
            phase_ns: phase.0,
            mbps: demand.iter().map(|of| of.to_vec()).collect(),
            bytes: shares::MESSAGE_BYTES,
        },
        seconds: [1.0, phase.times(shares::PHASES as u64).0 as f64 / 1e9],
        kinds: false,
    };
    let found = lan.run(&plan).map_err(Failure::Failed)?;
    let course = DemandCourse::new(&found.course_mbps, phase, &demand);
    let title = "throughput of four members whose demand changes, on real sockets";
    let svg = course.drawn(title)?;
    let place = ", on real sockets";
    let mut claims = shares::claims(place, &course, found.increase_ns.as_ref());
    let lost = all_lost(&found);
    claims.push(PaperClaim {
        paper: format!("members lose no datagrams while their demand changes{place}"),
        found: format!("{lost} frames and datagrams found a buffer full"),
        holds: ClaimVerdict::when(lost == 0),
    });
    let seen = vec![SocketResult { protocol: entry.name(), load: None, sender: None, found }];
    let how = format!(
        "Demands are the same parts of the link as in the simulator, and change every {:.0} s.",
        phase.0 as f64 / 1e9
    );
    let chart = PagePart::Chart { name: "sockets".to_string(), caption: title.to_string(), svg };
    Ok(SocketFigure::of(
        &SocketResults { bits_per_s: links.bits_per_s, link, seen, echoes: Vec::new() },
        &how,
        vec![chart],
        claims,
    ))
}

/// Figure 6: all members send.
pub(super) fn throughput(
    session: &ReproduceSession<'_>,
    outstanding: usize,
) -> Result<SocketFigure, Failure> {
    if let Some(why) = Lan::missing() {
        return Ok(SocketFigure::skipped(why));
    }
    let sizes: Vec<usize> = if session.quick { vec![2, 4, HOSTS] } else { (2..=HOSTS).collect() };
    let points: Vec<_> = sizes.iter().map(|&n| SocketPoint::of(n)).collect();
    let links = LanLinks::near(LanBursts::Usual);
    let load = LanLoad::Full { outstanding };
    let results = measure(links, seconds_of_full_load(session), &points, |_, _| load.clone())?;
    let link = results.link.udp_mbps;
    let mut all = drawn(&results.seen, |s| (s.found.members as f64, s.found.delivered_mbps));
    let points = sizes.iter().map(|&n| (n as f64, optimum(link, n))).collect();
    all.push(ChartLine { name: "N/(N-1) of the link".to_string(), points });
    let title = "throughput of a group on real sockets, all members sending";
    let svg = lines(&Axes { title, x: "members", y: "Mbit/s that a member delivers" }, &all)?;
    let parts = vec![
        PagePart::Chart { name: "sockets".to_string(), caption: title.to_string(), svg },
        throughput_table(&results),
    ];
    let of = |name: &'static str| results.seen.iter().filter(move |s| s.protocol == name);
    let near = |name| {
        let part = |s: &SocketResult| s.found.delivered_mbps / optimum(link, s.found.members);
        let least = of(name).map(part).fold(f64::INFINITY, f64::min);
        PaperClaim {
            paper: format!(
                "{name} on real sockets: very close to N/(N-1) of what the link carries in datagrams"
            ),
            found: format!("at least {least:.3} of it"),
            holds: ClaimVerdict::when(least >= 0.98),
        }
    };
    let most = of(RingPaxosMulticast.name()).map(|s| s.found.delivered_mbps / link);
    let most = most.fold(0.0, f64::max);
    let lost: u64 = of(FastCast.name()).map(|s| all_lost(&s.found)).sum();
    let claims = vec![
        near(FastCast.name()),
        near(Lcr.name()),
        PaperClaim {
            paper: "Ring Paxos on real sockets: one link at most".to_string(),
            found: format!("{most:.3} of the link"),
            holds: ClaimVerdict::when(most <= 1.0),
        },
        PaperClaim {
            paper: "members that send at once lose no datagrams, on real sockets".to_string(),
            found: format!("{lost} frames and datagrams of FastCast found a buffer full"),
            holds: ClaimVerdict::when(lost == 0),
        },
    ];
    let how = format!("Each member has {outstanding} messages of 10 kB on the way or waiting.");
    Ok(SocketFigure::of(&results, &how, parts, claims))
}

/// Frames and datagrams that found a buffer full, wherever it was.
fn all_lost(found: &LanResult) -> u64 {
    found.lost.in_links + found.lost.in_sockets.unwrap_or(0) + found.lost.in_senders
}

/// The least and the most that one member sent, in megabits a second.
fn shares(found: &LanResult) -> String {
    let least = found.own_mbps.iter().copied().fold(f64::INFINITY, f64::min);
    let most = found.own_mbps.iter().copied().fold(0.0, f64::max);
    format!("{least:.1} to {most:.1}")
}

fn throughput_table(results: &SocketResults) -> PagePart {
    let row = |s: &SocketResult| {
        let found = &s.found;
        let part = |link| {
            let part = found.delivered_mbps / optimum(link, found.members);
            html! { (format!("{part:.3}")) }
        };
        vec![
            html! { (s.protocol) },
            html! { (found.members) },
            html! { (format!("{:.2}", found.delivered_mbps)) },
            part(results.link.udp_mbps),
            part(results.link.tcp_mbps),
            html! { (format!("{:.3}", found.delivered_mbps / results.link.udp_mbps)) },
            html! { (shares(found)) },
            html! { (format!("{:.2}", found.latency_ns.mean / 1e6)) },
            html! { (found.lost.in_links) },
            html! { (found.lost.in_sockets.map_or("-".to_string(), |n| n.to_string())) },
            html! { (found.lost.in_senders) },
            html! { (format!("{:.0}", found.processor * 100.0)) },
        ]
    };
    let head = [
        "protocol",
        "members",
        "Mbit/s",
        "of N/(N-1)",
        "the same, as TCP measures the link",
        "of the link",
        "each sender's, Mbit/s",
        "mean response, ms",
        "frames lost in links",
        "datagrams lost in sockets",
        "datagrams lost in senders",
        "of a processor for each, %",
    ];
    PagePart::Table {
        caption: "Figure 6 on real sockets".to_string(),
        head: head.map(String::from).to_vec(),
        rows: results.seen.iter().map(row).collect(),
    }
}

/// Figure 7: the response time against the load, all members sending at random times.
pub(super) fn response(session: &ReproduceSession<'_>) -> Result<SocketFigure, Failure> {
    if let Some(why) = Lan::missing() {
        return Ok(SocketFigure::skipped(why));
    }
    let parts: Vec<f64> = match session.quick {
        true => vec![0.1, 0.4, 0.8],
        false => (1..=10).map(|n| f64::from(n) / 10.0).collect(),
    };
    let at = |&part: &f64| SocketPoint { load: Some(part), ..SocketPoint::of(HOSTS) };
    let points: Vec<_> = parts.iter().map(at).collect();
    let links = LanLinks::near(LanBursts::Short);
    let results = measure(links, seconds(session), &points, |point, link_mbps| {
        let mbps = point.load.unwrap_or(1.0) * link_mbps / point.members as f64;
        LanLoad::Open { senders: point.members, apart_ns: apart_ns(mbps) }
    })?;
    let place = |s: &SocketResult| s.load.unwrap_or(0.0) * results.link.udp_mbps;
    let title = "response time against the load on real sockets, 8 members";
    let axes = Axes { title, x: "Mbit/s that all members send together", y: "milliseconds" };
    let svg = lines(&axes, &drawn(&results.seen, |s| (place(s), s.found.latency_ns.mean / 1e6)))?;
    let parts = vec![
        PagePart::Chart { name: "sockets".to_string(), caption: title.to_string(), svg },
        latency_table("Figure 7 on real sockets", "load, Mbit/s", &results.seen, &|s| {
            format!("{:.0}", place(s))
        }),
    ];
    let claims = vec![below(&results.seen, "a lower response time on real sockets")];
    let how = "Messages of 10 kB are broadcast at random times by all members, whose sum is the load. An idle link passes two \
         frames at once, and then its rate: so a message takes its time on each link that it crosses.";
    Ok(SocketFigure::of(&results, how, parts, claims))
}

/// How far the messages of a member are apart that sends so many megabits a second.
pub(super) fn apart_ns(mbps: f64) -> u64 {
    (MESSAGE_BYTES as f64 * 8e3 / mbps) as u64
}

pub(super) fn median_ms(s: &SocketResult) -> f64 {
    s.found.latency_ns.p50 as f64 / 1e6
}

/// The claim that FastCast is below every other protocol at each point.
pub(super) fn below(seen: &[SocketResult], what: &str) -> PaperClaim {
    let ratios = seen.chunks(PROTOCOLS.len()).flat_map(|point| {
        let own = point.iter().find(|s| s.protocol == FastCast.name()).map_or(f64::NAN, median_ms);
        point.iter().filter(|s| s.protocol != FastCast.name()).map(move |s| median_ms(s) / own)
    });
    let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    PaperClaim {
        paper: format!("FastCast has {what} than LCR and Ring Paxos"),
        found: match ratios.is_empty() {
            true => NOTHING_FOUND.to_string(),
            false => format!("their medians are at least {least:.2} times that of FastCast"),
        },
        holds: ClaimVerdict::of_any(!ratios.is_empty(), least > 1.0),
    }
}

pub(super) fn latency_table(
    caption: &str,
    by: &str,
    seen: &[SocketResult],
    place: &dyn Fn(&SocketResult) -> String,
) -> PagePart {
    let ms = |ns: f64| format!("{:.3}", ns / 1e6);
    let row = |s: &SocketResult| {
        vec![
            html! { (s.protocol) },
            html! { (place(s)) },
            html! { (ms(s.found.latency_ns.mean)) },
            html! { (ms(s.found.latency_ns.p50 as f64)) },
            html! { (ms(s.found.latency_ns.p99 as f64)) },
            html! { (all_lost(&s.found)) },
        ]
    };
    let head = ["protocol", by, "mean, ms", "median, ms", "99 %, ms", "lost"];
    PagePart::Table {
        caption: caption.to_string(),
        head: head.map(String::from).to_vec(),
        rows: seen.iter().map(row).collect(),
    }
}

/// A line for each protocol.
pub(super) fn drawn<'a>(
    seen: impl IntoIterator<Item = &'a SocketResult> + Clone,
    point: impl Fn(&SocketResult) -> (f64, f64),
) -> Vec<ChartLine> {
    let line = |name: &'static str| ChartLine {
        name: name.to_string(),
        points: seen.clone().into_iter().filter(|s| s.protocol == name).map(&point).collect(),
    };
    PROTOCOLS.iter().map(|protocol| line(protocol.entry.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::reproduce::fastcast::ComparedProtocol;

    #[test]
    fn where_there_are_no_hosts_the_page_says_that_it_was_skipped_and_why() {
        let figure = SocketFigure::skipped("hosts need root");
        assert_eq!(figure.how, "On real sockets: skipped: hosts need root.");
        assert_eq!(figure.claims[0].holds, ClaimVerdict::Open);
        assert!(figure.claims[0].found.contains("hosts need root") && figure.parts.is_empty());
    }

    #[test]
    fn protocols_that_pace_are_told_what_the_link_carries_in_whole_megabits() {
        let told = |protocol: &ComparedProtocol| {
            let set = parameters(protocol.set, protocol.entry, 97.81);
            set.into_iter().find(|(name, _)| name == "link_mbps").map(|(_, value)| value)
        };
        for protocol in &PROTOCOLS {
            assert_eq!(told(protocol), Some("98".to_string()), "{}", protocol.entry.name());
        }
    }
}
