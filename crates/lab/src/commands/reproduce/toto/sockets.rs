//! Tables 2 and 3 on real sockets: a process on each of four and eight hosts of this machine. Where the machine does not grant
//! such hosts the page says so.

use super::model::least_latency_ms;
use super::{MEMBERS, MESSAGE_BYTES, MESSAGES, PROTOCOLS, extremes, text};
use crate::bench::heed_signals;
use crate::bench::lan::{
    LAN_BITS_PER_S, Lan, LanBroadcasts, LanBursts, LanLinks, LanLoad, LanResult,
};
use crate::bench::votes::VoteSource;
use crate::commands::Failure;
use crate::commands::cores::progress;
use crate::commands::reproduce::ReproduceSession;
use crate::commands::reproduce::page::{ClaimVerdict, PagePart, PaperClaim};
use amcast_core::parameters::{HEARTBEAT, LANE, PacketLane, RETRY, SUSPECT};
use amcast_core::{Entry, Span};
use amcast_protocols::toto::TOTO;
use maud::html;
use serde::Serialize;
use serde_json::{Value, json};

/// Numbers of hosts.
const SIZES: [usize; 2] = [4, MEMBERS];

/// Seconds before a load is measured.
const WARM_UP: f64 = 1.0;

/// Seconds of a load in a quick run.
const QUICK: f64 = 8.0;

/// The part of a table that real sockets gave.
pub(super) struct VotedSockets {
    pub(super) how: String,
    pub(super) parts: Vec<PagePart>,
    pub(super) claims: Vec<PaperClaim>,
    pub(super) figures: Value,
}

/// A measurement.
#[derive(Debug, Serialize)]
struct VotedSocketResult {
    protocol: &'static str,
    per_second: u64,
    #[serde(flatten)]
    found: LanResult,
}

impl VotedSocketResult {
    fn mean_ms(&self) -> f64 {
        self.found.latency_ns.mean / 1e6
    }
}

/// Patience for a process that has to wait for a core; and nobody votes alone before its source sends again.
fn parameters() -> Vec<(String, String)> {
    let set = [
        LANE.setting(PacketLane::Multicast),
        HEARTBEAT.setting(Span::millis(100)),
        SUSPECT.setting(Span::secs(5)),
        RETRY.setting(Span::millis(100)),
        ("ack_us".to_string(), "20000".to_string()),
        ("vote_us".to_string(), "2000000".to_string()),
    ];
    set.to_vec()
}

fn skipped(why: &str) -> VotedSockets {
    VotedSockets {
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

/// Measures both protocols with each number of hosts and at each load.
pub(super) fn latency(
    session: &ReproduceSession<'_>,
    source: VoteSource,
) -> Result<VotedSockets, Failure> {
    if let Some(why) = Lan::missing() {
        return Ok(skipped(why));
    }
    heed_signals();
    let mut lan = Lan::new(MEMBERS, LanLinks::near(LanBursts::Short)).map_err(Failure::Failed)?;
    let loads: &[u64] = if session.quick { &super::QUICK_LOADS } else { &super::LOADS };
    let mut seen = Vec::new();
    let bar = progress((SIZES.len() * loads.len() * PROTOCOLS.len()) as u64, "runs on hosts");
    for members in SIZES {
        for &per_second in loads {
            let apart_ns = 1_000_000_000 * members as u64 / per_second;
            let lasts = MESSAGES as f64 / per_second as f64;
            for protocol in PROTOCOLS {
                let plan = LanBroadcasts {
                    protocol: protocol.name(),
                    set: parameters(),
                    members,
                    payload: MESSAGE_BYTES,
                    load: LanLoad::Source { source, apart_ns },
                    seconds: [WARM_UP, if session.quick { QUICK } else { lasts }],
                    kinds: false,
                };
                let found = lan.run(&plan).map_err(Failure::Failed)?;
                seen.push(VotedSocketResult { protocol: plan.protocol, per_second, found });
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let rate = LAN_BITS_PER_S as f64 / 1e6;
    Ok(VotedSockets {
        how: format!(
            "On real sockets: a process on each of four and eight hosts, which are network namespaces of this machine behind a \
             switch, with links of {rate:.1} Mbit/s and IP multicast; the same messages a second of all members together."
        ),
        parts: vec![table(&seen, source)],
        claims: claims(&seen, source),
        figures: json!({ "points": seen }),
    })
}

/// Both protocols with a number of hosts and a load.
fn pairs(
    seen: &[VotedSocketResult],
) -> impl Iterator<Item = (&VotedSocketResult, &VotedSocketResult)> {
    seen.chunks_exact(2).map(|pair| (&pair[0], &pair[1]))
}

fn speed_up((toto, all_ack): (&VotedSocketResult, &VotedSocketResult)) -> f64 {
    all_ack.mean_ms() / toto.mean_ms()
}

/// The latency that the equation of the source gives where nothing is concurrent, and as few are heard as may be.
fn least_ms(point: &VotedSocketResult, source: VoteSource) -> f64 {
    let members = point.found.members;
    let index = if point.protocol == TOTO.name() { members / 2 + 1 } else { members };
    least_latency_ms(source, members, point.per_second, index)
}

fn table(seen: &[VotedSocketResult], source: VoteSource) -> PagePart {
    let mut rows = Vec::new();
    for pair in pairs(seen) {
        for (point, ratio) in [(pair.0, text(speed_up(pair))), (pair.1, String::new())] {
            rows.push(vec![
                html! { (point.found.members) },
                html! { (point.per_second) },
                html! { (point.protocol) },
                html! { (text(point.mean_ms())) },
                html! { (text(point.found.latency_ns.p99 as f64 / 1e6)) },
                html! { (text(least_ms(point, source))) },
                html! { (point.found.messages) },
                html! { (ratio) },
            ]);
        }
    }
    let head = [
        "members",
        "messages/s",
        "protocol",
        "mean latency, ms",
        "99 %, ms",
        "of the equation without concurrency, ms",
        "messages",
        "speed-up",
    ];
    PagePart::Table {
        caption: format!("On real sockets, {} sources", source.name()),
        head: head.map(String::from).to_vec(),
        rows,
    }
}

fn claims(seen: &[VotedSocketResult], source: VoteSource) -> Vec<PaperClaim> {
    let least = match source {
        VoteSource::Periodic => 1.56,
        VoteSource::Poisson => 2.60,
    };
    let eight = pairs(seen).filter(|pair| pair.0.found.members == MEMBERS);
    let (slowest, fastest) = extremes(eight.map(speed_up));
    vec![PaperClaim {
        paper: format!(
            "on eight real hosts, {} sources: at least {least} times as soon as with all-ack",
            source.name()
        ),
        found: format!("{slowest:.2} to {fastest:.2} times"),
        holds: ClaimVerdict::when(slowest >= least),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_are_no_hosts_the_page_says_that_it_was_skipped_and_why() {
        let table = skipped("hosts need root");
        assert_eq!(table.how, "On real sockets: skipped: hosts need root.");
        assert_eq!(table.claims[0].holds, ClaimVerdict::Open);
        assert!(table.claims[0].found.contains("hosts need root") && table.parts.is_empty());
    }
}
