//! The hosts and their links, and who starts the processes on them and gathers what they saw.

use super::echo;
use super::member::{LanReport, LanTask};
use super::watch::COURSE_STEP;
use super::{LAN_QUEUE_BYTES, LanBroadcasts, LanBursts, LanLink, LanLinks, LanLosses, LanResult};
use crate::bench::child_process::{ChildOutput, ChildProcess, gather, this_program};
use crate::bench::{Latency, histogram};
use amcast_core::Time;
use amcast_hosts::{HostLab, LabFeature, LinkSettings};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long members may take besides what is measured: a busy machine starts them slowly.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a link is measured, and for how long each time.
const LINK_ROUNDS: usize = 3;
const LINK_MEASURED: Duration = Duration::from_secs(1);

/// The payload of a frame that is a datagram, in bytes, and which part of it a frame of TCP with time stamps carries.
const DATAGRAM_PAYLOAD_BYTES: usize = 1472;
const SEGMENT_PART: f64 = 1448.0 / 1472.0;

/// Two frames.
const SHORT_BURST_BYTES: u32 = 2 * 1514;

/// Where each member listens, for streams and for datagrams.
const PORT: u16 = 7400;

/// Where datagrams to all members go.
const GROUP: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(239, 99, 7, 1)), 7401);

/// Hosts on a switch, with links that are limited in rate.
pub struct Lan {
    hosts: HostLab,
    links: LanLinks,
    /// Runs so far: each is a cluster of its own.
    runs: u64,
}

impl Lan {
    /// Why this machine cannot have them, if so.
    pub fn missing() -> Option<&'static str> {
        HostLab::missing_feature(&[LabFeature::Rates])
    }

    /// Why this machine cannot have them with links that delay, if so.
    pub fn missing_with_delays() -> Option<&'static str> {
        HostLab::missing_feature(&[LabFeature::Rates, LabFeature::Delays])
    }

    /// Builds so many hosts.
    ///
    /// # Errors
    /// Why this user or this system cannot have them.
    pub fn new(hosts: usize, links: LanLinks) -> Result<Self, String> {
        let settings = LinkSettings {
            delay: links.delay,
            queue_bytes: LAN_QUEUE_BYTES,
            burst_bytes: match links.bursts {
                LanBursts::Usual => None,
                LanBursts::Short => Some(SHORT_BURST_BYTES),
            },
            ..LinkSettings::of_rate(links.bits_per_s)
        };
        let hosts = HostLab::new(hosts, settings).map_err(|e| e.to_string())?;
        // Members leave the group at the end of a run, and others join it at once.
        hosts.flood_multicast().map_err(|e| e.to_string())?;
        Ok(Self { hosts, links, runs: 0 })
    }

    /// Measures the payload that a link carries, some times: other work on this machine makes it look slower. A receiver
    /// that is late to begin makes it look faster, but never more so than what frames of its rate have room for.
    ///
    /// # Errors
    /// When a socket cannot be opened on one of the hosts.
    pub fn link(&self) -> Result<LanLink, String> {
        let mut link = LanLink { udp_mbps: 0.0, tcp_mbps: 0.0 };
        for _ in 0..LINK_ROUNDS {
            let udp = self.hosts.udp_goodput(0, 1, LINK_MEASURED).map_err(|e| e.to_string())?;
            let tcp = self.hosts.tcp_goodput(0, 1, LINK_MEASURED).map_err(|e| e.to_string())?;
            link.udp_mbps = link.udp_mbps.max(udp.mbit_per_s());
            link.tcp_mbps = link.tcp_mbps.max(tcp.mbit_per_s());
        }
        let most = |payload| {
            let rate = LinkSettings::of_rate(self.links.bits_per_s).udp_goodput_max(payload);
            rate.map_or(f64::INFINITY, |bytes| bytes * 8.0 / 1e6)
        };
        link.udp_mbps = link.udp_mbps.min(most(DATAGRAM_PAYLOAD_BYTES));
        // Heads of TCP with its time stamps take 24 bytes more than those of UDP.
        link.tcp_mbps = link.tcp_mbps.min(most(DATAGRAM_PAYLOAD_BYTES) * SEGMENT_PART);
        Ok(link)
    }

    /// Measures the floor of latencies on the first hosts: how long it takes the first one to send a datagram of so many
    /// bytes to all, and to have an answer of each other one. `count` times, one at a time.
    ///
    /// # Errors
    /// When a socket cannot be opened on one of the hosts, or hardly any answers come.
    pub fn echo(&self, hosts: usize, bytes: usize, count: usize) -> Result<Latency, String> {
        let SocketAddr::V4(group) = GROUP else { return Err("it is an address of IPv4".into()) };
        echo::measure(&self.hosts, hosts, (group, PORT), bytes, count)
    }

    /// Runs a protocol on the first hosts.
    ///
    /// # Errors
    /// With what could not be set up, or that members delivered in different orders.
    pub fn run(&mut self, plan: &LanBroadcasts) -> Result<LanResult, String> {
        let (said, in_links, ()) = self.run_with(plan, |_, _| Ok(()))?;
        result(plan, &said, in_links)
    }

    /// Runs a protocol on the first hosts, and `during` from the time on at which all members measure. Gives the members' reports, and
    /// how many frames the links dropped.
    ///
    /// # Errors
    /// With what could not be set up, or what `during` gives.
    pub(super) fn run_with<T>(
        &mut self,
        plan: &LanBroadcasts,
        during: impl FnOnce(&HostLab, Time) -> Result<T, String>,
    ) -> Result<(Vec<LanReport>, u64, T), String> {
        self.runs += 1;
        let before = self.frames_dropped(plan.members)?;
        let mut members = (0..plan.members)
            .map(|me| self.start(plan, me))
            .collect::<Result<Vec<ChildProcess>, String>>()?;
        let within = PATIENCE + Duration::from_secs_f64(plan.seconds.iter().sum());
        let begun = read_lines::<u64>(&gather(&mut members, within, ChildOutput::line)?)?;
        let all_measure = begun.into_iter().max().unwrap_or(0);
        let done = during(&self.hosts, Time(all_measure))?;
        let said = read_lines(&gather(&mut members, within, ChildOutput::line)?)?;
        let in_links = self.frames_dropped(plan.members)? - before;
        Ok((said, in_links, done))
    }

    /// The hosts.
    pub(super) const fn hosts(&self) -> &HostLab {
        &self.hosts
    }

    fn start(&self, plan: &LanBroadcasts, me: usize) -> Result<ChildProcess, String> {
        let address = |host| SocketAddr::from((self.hosts.host(host).address(), PORT));
        let task = LanTask {
            protocol: plan.protocol.to_string(),
            set: plan.set.clone(),
            me,
            cluster_id: u64::from(std::process::id()) << 32 | self.runs,
            addresses: (0..plan.members).map(address).collect(),
            group: GROUP,
            payload: plan.payload,
            load: plan.load.clone(),
            seconds: plan.seconds,
            kinds: plan.kinds,
        };
        let text = serde_json::to_string(&task).map_err(|e| e.to_string())?;
        let program = this_program(&[])?;
        let mut command: Command = self.hosts.host(me).command(program.get_program());
        command.args(["bench", "--lan-member"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut member = ChildProcess::start(&format!("member {me}"), &mut command)?;
        member.tell(&text).map(|()| member)
    }

    fn frames_dropped(&self, hosts: usize) -> Result<u64, String> {
        frames_dropped(&self.hosts, hosts)
    }
}

/// How many frames the links of the first hosts dropped so far.
///
/// # Errors
/// When the system does not tell.
pub(super) fn frames_dropped(lab: &HostLab, hosts: usize) -> Result<u64, String> {
    let of = |host| lab.frames_dropped(host).map_err(|e| e.to_string());
    (0..hosts).map(of).sum()
}

/// Reads a line of each member.
fn read_lines<T: DeserializeOwned>(lines: &[String]) -> Result<Vec<T>, String> {
    let read = |line: &String| {
        serde_json::from_str(line).map_err(|e| format!("a member wrote {line:?}: {e}"))
    };
    lines.iter().map(read).collect()
}

/// The result of a run, as its members report it.
///
/// # Errors
/// That they delivered in different orders, or too little.
pub(super) fn result(
    plan: &LanBroadcasts,
    said: &[LanReport],
    in_links: u64,
) -> Result<LanResult, String> {
    let common = said.iter().map(|one| one.digests.len()).min().unwrap_or(0);
    if common == 0 {
        return Err(format!("{}: too little was delivered to compare orders", plan.protocol));
    }
    if said.iter().any(|one| one.digests[..common] != said[0].digests[..common]) {
        return Err(format!("{}: members delivered in different orders", plan.protocol));
    }
    let mut latencies = histogram();
    let steps = said.iter().flat_map(|one| &one.course);
    let all_ns = steps.flat_map(|step| &step.latencies_ns);
    all_ns.for_each(|ns| latencies.saturating_record(*ns));
    let rates = said.iter().map(|one| one.delivered_bytes as f64 * 8e3 / one.lasted_ns as f64);
    let rates: Vec<f64> = rates.collect();
    let mut increases = histogram();
    said.iter().flat_map(|one| &one.increases_ns).for_each(|ns| increases.saturating_record(*ns));
    let mean = |all: &mut dyn Iterator<Item = f64>| all.sum::<f64>() / said.len() as f64;
    let lost = LanLosses {
        in_links,
        in_sockets: said.iter().map(|one| one.lost.in_sockets).sum(),
        in_senders: said.iter().map(|one| one.lost.in_senders).sum(),
    };
    let delivered = said.iter().map(|one| one.delivered).sum::<u64>() as f64;
    let datagrams: u64 = said.iter().map(|one| one.datagrams).sum();
    Ok(LanResult {
        members: plan.members,
        delivered_mbps: mean(&mut rates.iter().copied()),
        least_and_most_mbps: [
            rates.iter().copied().fold(f64::INFINITY, f64::min),
            rates.iter().copied().fold(0.0, f64::max),
        ],
        own_mbps: said
            .iter()
            .map(|one| one.own_bytes as f64 * 8e3 / one.lasted_ns as f64)
            .collect(),
        course_mbps: course(said),
        increase_ns: (!increases.is_empty()).then(|| Latency::of(&increases)),
        latency_ns: Latency::of(&latencies),
        messages: latencies.len(),
        lost,
        datagrams,
        processor: mean(&mut said.iter().map(|one| one.used_ns as f64 / one.lasted_ns as f64)),
        delivered_per_s: mean(
            &mut said.iter().map(|one| one.delivered as f64 * 1e9 / one.lasted_ns as f64),
        ),
        processor_us_per_delivery: said.iter().map(|one| one.used_ns).sum::<u64>() as f64
            / 1e3
            / delivered,
        datagrams_per_message: datagrams as f64 * said.len() as f64 / delivered,
        sent_per_message: sent_by_kind(said, said.len() as f64 / delivered),
    })
}

/// Counts of all members' packets, by kind, as often as for one of `1 / part` messages.
fn sent_by_kind(said: &[LanReport], part: f64) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for (kind, count) in said.iter().flat_map(|one| &one.kinds) {
        *all.entry(kind.clone()).or_insert(0.0) += *count as f64 * part;
    }
    all
}

/// Megabits a second in each step of the time, on average over the members.
fn course(said: &[LanReport]) -> Vec<f64> {
    let steps = said.iter().map(|one| one.course.len()).max().unwrap_or(0);
    let bytes = |step: usize| {
        said.iter().filter_map(|one| one.course.get(step)).map(|of| of.bytes).sum::<u64>()
    };
    let mbps = |bytes: u64| bytes as f64 * 8e3 / (COURSE_STEP.0 as f64 * said.len() as f64);
    (0..steps).map(|step| mbps(bytes(step))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::lan::LanLoad;
    use crate::bench::lan::watch::MemberStep;

    fn report(digests: &[u64]) -> LanReport {
        let step = MemberStep { bytes: 100_000, latencies_ns: vec![1000], ..MemberStep::default() };
        LanReport {
            delivered_bytes: 1_000_000,
            delivered: 100,
            own_bytes: 1_000,
            course: vec![step; digests.len()],
            increases_ns: vec![5_000],
            lasted_ns: 1_000_000_000,
            digests: digests.to_vec(),
            lost: LanLosses { in_sockets: Some(2), ..LanLosses::default() },
            datagrams: 3,
            kinds: [("carrier echoes".to_string(), 25)].into(),
            used_ns: 500_000_000,
        }
    }

    #[test]
    fn members_that_delivered_in_different_orders_have_no_result() {
        let load = LanLoad::Full { outstanding: 1 };
        let (set, seconds) = (Vec::new(), [0.0, 1.0]);
        let plan = LanBroadcasts {
            protocol: "any",
            set,
            members: 2,
            payload: 1000,
            load,
            seconds,
            kinds: true,
        };
        let found = result(&plan, &[report(&[1, 2, 3]), report(&[1, 2])], 5).unwrap();
        assert!((found.delivered_mbps - 8.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.own_mbps, [0.008; 2]);
        assert_eq!(found.course_mbps, [8.0, 8.0, 4.0]);
        let waited = found.increase_ns.as_ref().map_or(0.0, |waited| waited.mean);
        assert!((waited - 5_000.0).abs() < 50.0, "{waited}");
        let lost = LanLosses { in_links: 5, in_sockets: Some(4), in_senders: 0 };
        assert_eq!((found.lost, found.datagrams, found.messages), (lost, 6, 5));
        // Two processes had 0.5 s of a processor each, for 100 deliveries each.
        assert!((found.processor_us_per_delivery - 5_000.0).abs() < 1e-6, "{found:?}");
        assert!((found.datagrams_per_message - 0.06).abs() < 1e-9, "{found:?}");
        assert!((found.delivered_per_s - 100.0).abs() < 1e-9, "{found:?}");
        assert!((found.sent_per_message["carrier echoes"] - 0.5).abs() < 1e-9, "{found:?}");
        let why = result(&plan, &[report(&[1, 2]), report(&[1, 3])], 0).unwrap_err();
        assert!(why.contains("different orders"), "{why}");
        assert!(result(&plan, &[report(&[1]), report(&[])], 0).is_err(), "nothing was compared");
    }
}
