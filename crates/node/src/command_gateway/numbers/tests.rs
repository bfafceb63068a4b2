//! A gateway of a cluster in the memory of this process, across two incarnations.

use super::super::leased::LeasedTransport;
use super::super::tests::read_of;
use super::super::{
    GatewayOptions, GatewayShared, JobAsker, JobRequest, NoAnswer, OverlayRequests, PresentOverlay,
};
use super::*;
use crate::clock;
use crate::cluster_dir::{MemoryHosts, Net, Transport};
use crate::incarnation::{IncarnationLock, SharedIncarnation};
use crate::memory_driver::{MemoryDriver, UpperLayer};
use crate::node_address::ClusterKey;
use crate::reply_ring::{ReplyRingLayout, ReplyRingWriter};
use amcast_core::{
    ClusterShape, Config, Delivery, Entry, Gid, GroupSet, Outcome, Pid, ProtocolEvent, RawConfig,
    ServiceAnswer,
};
use amcast_memory::{ClusterId, Directory, Idle};
use amcast_protocols::catalog;
use std::sync::Arc;

#[test]
fn numbers_of_an_incarnation_lie_between_those_of_its_neighbours_and_end_after_all_that_is_sent_again()
 {
    let [mut first, second] = [0, 1].map(CommandNumbers::of_incarnation);
    assert_eq!((first.next(), second.next()), (1, (1 << 32) + 1));
    first.skip_to_last(1);
    assert!(!first.are_used_up());
    first.take();
    assert!(first.are_used_up());
    (1..KEPT).for_each(|_| _ = first.take());
    assert!(!first.are_at_end());
    assert!(first.take() < second.next() - 1 && first.are_at_end());
    let mut endless = CommandNumbers::endless();
    endless.skip_to_last(u64::MAX / 2);
    assert!(!endless.are_used_up());
}

/// A replica answers each command that it delivers.
struct AnsweringNode {
    driver: MemoryDriver,
    above: AnsweringUpper,
}

struct AnsweringUpper {
    cluster: ClusterShape,
    answers: ReplyRingWriter,
    delivered: Vec<u64>,
}

impl UpperLayer for AnsweringUpper {
    fn deliver(&mut self, _: Time, _: Pid, delivery: Delivery, _: &[u8]) {
        let client = delivery.msg.sender.index() - self.cluster.client(0).index();
        self.answers.push(client, delivery.msg.seq, Outcome::Executed, b"+OK");
        self.delivered.push(delivery.msg.seq);
    }

    fn event(&mut self, _: Time, _: Pid, _: ProtocolEvent) {}
}

impl AnsweringNode {
    fn start(entry: &'static dyn Entry, config: &Config, dir: &Directory, rank: usize) -> Self {
        let (cluster, places) = (*config.cluster(), ReplyRingLayout(*config.cluster()));
        let pid = cluster.replica(Gid(0), rank);
        let process = entry.build(pid, config).unwrap();
        let driver = MemoryDriver::start(dir, &cluster, pid, process, None, false).unwrap();
        let answers = ReplyRingWriter::open(dir, places, rank, driver.bell().clone()).unwrap();
        let mut above = AnsweringUpper { cluster, answers, delivered: Vec::new() };
        let mut driver = driver;
        driver.begin(clock::now(), &mut above);
        Self { driver, above }
    }

    fn round(&mut self) {
        self.driver.round(clock::now(), &mut self.above);
        self.above.answers.round();
    }
}

#[test]
fn replicas_deliver_the_commands_of_both_incarnations_over_every_protocol_in_memory() {
    let _limit = amcast_test_policy::time_limit();
    let in_memory =
        |entry: &&&'static dyn Entry| entry.about().medium == amcast_core::MediumKind::Memory;
    let mut protocols = 0;
    for &entry in catalog::CATALOG.iter().filter(in_memory) {
        protocols += 1;
        let raw = RawConfig { groups: 1, replicas: 3, clients: 1, ..RawConfig::default() };
        let config = raw.check(entry.about().params).unwrap();
        let places = ReplyRingLayout(*config.cluster());
        let dir = Directory::heap(ClusterId(1), places.processes(), 1).unwrap();
        let mut nodes: Vec<_> =
            (0..3).map(|rank| AnsweringNode::start(entry, &config, &dir, rank)).collect();
        // As on several hosts, whose memory does not outlast them.
        let base = std::env::temp_dir().join(format!(
            "amcast-numbers-{}-{}",
            entry.name(),
            std::process::id()
        ));
        std::fs::create_dir_all(&base).unwrap();
        let count = base.join("n0.life");
        let hosts =
            MemoryHosts::of(dir.clone(), Net::of(base.clone(), ClusterKey::default(), vec![]));
        let node = IncarnationLock::begin(&count, 0).unwrap().unwrap();
        hosts.name(&SharedIncarnation::of(node));
        let ground = Transport::Hosts(hosts);
        let options = GatewayOptions {
            entry,
            config: &config,
            ground: &ground,
            own: None,
            idle: Idle::SHARED,
            record: None,
        };
        let transport = LeasedTransport::take(&options, &dir).unwrap();
        let shared = Arc::new(GatewayShared::new(OverlayRequests::default()));
        let overlay = PresentOverlay::first(&config);
        let mut gateway = GatewayLoop::new(Box::new(transport), Arc::clone(&shared), overlay);
        gateway.transport.begin(clock::now());
        gateway.numbers.skip_to_last(3);
        for session in 1..=10 {
            let (dst, since) = (GroupSet::one(Gid(0)), clock::now());
            let done = |answer: Result<ServiceAnswer<'_>, NoAnswer>| {
                assert_eq!(answer.map(|answer| answer.outcome), Ok(Outcome::Executed));
            };
            let asker = JobAsker::Once(Box::new(done));
            let request = JobRequest { dst, is_read: false, since, asker };
            shared.jobs.hand_in(request, &mut read_of(session, 1)).unwrap();
        }
        while nodes.iter().any(|node| node.above.delivered.len() < 10) || shared.jobs.open() > 0 {
            gateway.round();
            nodes.iter_mut().for_each(AnsweringNode::round);
        }
        let numbers: Vec<u64> = (1..=3)
            .map(|left| (1 << NUMBER_BITS) - KEPT - 4 + left)
            .chain((1..=7).map(|number| (1 << NUMBER_BITS) + number))
            .collect();
        for node in &nodes {
            assert_eq!(node.above.delivered, numbers, "{}", entry.name());
        }
        assert_eq!(IncarnationLock::next(&count), Some(2), "above all that this host has begun");
        std::fs::remove_dir_all(&base).unwrap();
    }
    assert!(protocols >= 2, "{protocols}");
}
