//! `amcast bench --cost`: the processor time that a delivery takes in groups of 2 to 32 processes on real sockets.

use super::Failure;
use super::bench::BenchArgs as Bench;
use crate::bench::HostMachine;
use crate::bench::lan::{
    LAN_BITS_PER_S, Lan, LanBroadcasts, LanBursts, LanLinks, LanLoad, LanResult,
};
use amcast_core::parameters::{HEARTBEAT, LANE, LINK, LinkRate, PacketLane, RETRY, SUSPECT};
use amcast_core::{Capability, Entry, Span};
use amcast_protocols::fastcast::FastCast;
use amcast_protocols::lcr::Lcr;
use amcast_protocols::ring_paxos_multicast::RingPaxosMulticast;
use serde::Serialize;
use serde_json::json;

/// Members of the groups.
const SIZES: [usize; 5] = [2, 4, 8, 16, 32];

/// Bytes of each message.
const MESSAGE_BYTES: usize = 1_000;

/// Messages that each member has on the way under load.
const OUTSTANDING: usize = 16;

/// Nanoseconds between two messages of one sender at a low load.
const APART_NS: u64 = 20_000_000;

/// The groups to measure, instead of what else is.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct BenchCostArgs {
    /// Measure what a delivery costs instead: processor time, in groups of 2 to 32 processes on hosts of
    /// their own, under load and with one sender at 50 messages a second. Needs root
    #[arg(long, conflicts_with_all = ["service", "ycsb", "sweep", "recovery"])]
    pub(super) cost: bool,
    /// Say of what kinds the packets are that a message takes
    #[arg(long, requires = "cost")]
    pub(super) kinds: bool,
}

/// A measured group.
#[derive(Serialize)]
struct GroupCost {
    protocol: &'static str,
    load: &'static str,
    #[serde(flatten)]
    found: LanResult,
}

/// Measures all groups, and prints a table.
pub(super) fn measure(args: &Bench, kinds: bool) -> Result<(), Failure> {
    if let Some(why) = Lan::missing() {
        return Err(Failure::Failed(why.to_string()));
    }
    let mut all = Vec::new();
    let sizes = if args.is_quick() { &SIZES[..3] } else { &SIZES[..] };
    for &members in sizes {
        let mut lan =
            Lan::new(members, LanLinks::near(LanBursts::Usual)).map_err(Failure::Failed)?;
        for protocol in [&FastCast as &dyn Entry, &Lcr, &RingPaxosMulticast] {
            for (load, of) in [
                ("full", LanLoad::Full { outstanding: OUTSTANDING }),
                ("low", LanLoad::Open { senders: 1, apart_ns: APART_NS }),
            ] {
                let plan = LanBroadcasts {
                    protocol: protocol.name(),
                    set: parameters(protocol),
                    members,
                    payload: MESSAGE_BYTES,
                    load: of,
                    seconds: if args.is_quick() { [0.5, 1.0] } else { [1.0, 4.0] },
                    kinds,
                };
                let found = lan.run(&plan).map_err(Failure::Failed)?;
                all.push(GroupCost { protocol: protocol.name(), load, found });
            }
        }
    }
    match args.json {
        true => {
            let of = json!({ "bench": "cost", "machine": HostMachine::here(), "groups": all });
            println!("{of}");
        }
        false => print(&all, kinds),
    }
    Ok(())
}

/// Heartbeats are seldom, so that they are no part of the cost, and many processes that wait for few cores are not
/// suspected.
fn parameters(protocol: &dyn Entry) -> Vec<(String, String)> {
    let has = |name: &str| protocol.about().params.iter().any(|param| param.name == name);
    let timers = [
        HEARTBEAT.setting(Span::secs(1)),
        SUSPECT.setting(Span::secs(20)),
        RETRY.setting(Span::millis(500)),
    ];
    let multicasts = protocol.capabilities().has(Capability::IpMulticast);
    let multicast = multicasts.then(|| LANE.setting(PacketLane::Multicast));
    let mbps = LAN_BITS_PER_S * 97 / 100 / 1_000_000;
    let link = has("link_mbps").then(|| LINK.setting(LinkRate { mbps }));
    timers.into_iter().chain(multicast).chain(link).collect()
}

fn print(all: &[GroupCost], kinds: bool) {
    println!(
        "processor time of all processes together, messages of {MESSAGE_BYTES} bytes: under full load with \
         {OUTSTANDING} of each member on the way, and with one sender at a low load\n"
    );
    println!(
        "{:<22} {:>7}  {:<4} {:>10} {:>14} {:>13} {:>11}",
        "protocol", "members", "load", "messages/s", "us a delivery", "us a message", "datagrams"
    );
    for GroupCost { protocol, load, found } in all {
        println!(
            "{protocol:<22} {:>7}  {load:<4} {:>10.0} {:>14.2} {:>13.1} {:>11.2}",
            found.members,
            found.delivered_per_s,
            found.processor_us_per_delivery,
            found.processor_us_per_delivery * found.members as f64,
            found.datagrams_per_message,
        );
        if kinds {
            for (kind, each) in found.sent_per_message.iter().filter(|(_, each)| **each >= 0.005) {
                println!("{:>31} {each:>8.2} {kind}", "");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::RawConfig;

    #[test]
    fn all_protocols_take_the_parameters_in_a_group_of_every_size() {
        for protocol in [&FastCast as &dyn Entry, &Lcr, &RingPaxosMulticast] {
            for replicas in SIZES {
                let set = parameters(protocol).into_iter().collect();
                let raw =
                    RawConfig { groups: 1, replicas, clients: 0, set, ..RawConfig::default() };
                let config = raw.check(protocol.about().params).expect("in range");
                assert!(protocol.build(amcast_core::Pid(0), &config).is_ok(), "{replicas}");
            }
        }
    }
}
