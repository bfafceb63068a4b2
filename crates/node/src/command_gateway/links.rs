//! The transport through the nodes: a gateway hands its commands to one member at a time, which broadcasts
//! them as its own.
//!
//! One member at a time, so that commands are ordered as they were handed in: its own node's if the
//! gateway has one, else the first that takes commands. If that one dies, is cut off or says nothing
//! any more, what was on its way is lost, and is sent again, in its order, through another. When the
//! gateway's own member is back, the gateway goes back to it as soon as nothing is on its way. A gateway whose own node is
//! new, or keeps no data, waits until that one takes commands once.

use super::client_transport::{
    ClientTransport, CommandProgress, OnCommandOutcome, TransportCommand,
};
use super::numbers::CommandNumbers;
use super::{GatewayError, GatewayOptions, OwnNode};
use crate::incarnation::{IncarnationLock, ProcessName};
use crate::ingress::frame::{IngressFrame, VERSION};
use crate::ingress::line::IngressLine;
use crate::ingress::{ANSWER_FRAME_MAX, FLIGHT_BYTES_MAX, FLIGHT_MAX, IngressInlet};
use crate::node_address::connect;
use crate::readiness::ReadinessSet;
use crate::reply_ring::{ANSWER_BYTES_MAX, Oversize};
use crate::waker::LoopWaker;
use amcast_core::limits::REPLICAS_MAX;
use amcast_core::{
    Config, Entry, GroupSet, Outcome, Pid, ProtocolProcess, ServiceAnswer, Span, Time,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// How long after a connection failed it is tried again.
const CONNECT_AGAIN: Span = Span::millis(20);

/// How long the member that has commands may say nothing, before another one is given them.
const SILENCE: Span = Span::secs(1);

/// Bytes of answers that the commands on their way may be expected to have. More of them need not be at the member: it
/// would only have them wait, for so long that they are asked for again.
const CREDIT_BYTES: usize = 16 << 20;

/// Bytes of an answer that count for that, at most. The gateways of the services bound their large answers before they
/// hand in the commands: here these must not keep back all the commands with small answers.
const COUNTED_ANSWER_BYTES: usize = 256 << 10;

/// Gateways besides those of nodes that may live in one cluster directory at a time.
const PLACES: usize = 256;

/// Where a node is reached.
enum LinkTarget {
    Socket(PathBuf),
    Own(IngressInlet),
}

/// A connection to a node, or the want of one.
struct NodeLink {
    target: LinkTarget,
    line: Option<IngressLine>,
    connect_at: Time,
    /// Its member takes commands.
    serves: bool,
    heard_at: Time,
    /// Commands on their way, with their bytes and when they were sent.
    flights: BTreeMap<u64, (usize, Time)>,
    flight_bytes: usize,
    /// Bytes of an answer, on the average of the last ones.
    answer_bytes: usize,
}

/// All nodes of a cluster, as one gateway sees them.
pub(super) struct NodeLinks {
    links: Vec<NodeLink>,
    own: Option<usize>,
    /// The own node, if there is one, has taken commands, or keeps the data of a life in which it did. Before that no other node of
    /// its directory is given any: the own one may have lost the file that counts its lives, and then it has the number of an
    /// earlier life. So have the sessions of this gateway, and to their commands the nodes would give the answers of that
    /// life. No majority takes such a node in.
    is_admitted: bool,
    /// The node that receives commands.
    current: Option<usize>,
    alarm: LoopWaker,
    ready: ReadinessSet,
    place: u32,
    life: u32,
    payload_max: usize,
    /// Held as long as the gateway lives, unless its node holds it.
    _life: Option<IncarnationLock>,
}

impl NodeLinks {
    /// The transport of a gateway whose cluster is in `dir`.
    pub(super) fn take(options: &GatewayOptions<'_>, dir: &Path) -> Result<Self, GatewayError> {
        let GatewayOptions { entry, config, own, .. } = options;
        let payload_max = payload_max(*entry, config)?;
        let (place, life, held) = match own {
            Some(own) => (own.rank as u32, own.life, None),
            None => {
                let place = free_place(dir, config.cluster().replicas());
                let (place, held) = place.map_err(GatewayError::Io)?;
                (place, held.number(), Some(held))
            }
        };
        let link = |rank: usize| {
            let own = own.as_ref().filter(|own| own.rank == rank);
            NodeLink::to(match own {
                Some(OwnNode { inlet, .. }) => LinkTarget::Own(inlet.clone()),
                None => LinkTarget::Socket(dir.join(crate::cluster_dir::ingress_name(rank))),
            })
        };
        Ok(Self {
            links: (0..config.cluster().replicas()).map(link).collect(),
            own: own.as_ref().map(|own| own.rank),
            is_admitted: own.as_ref().is_none_or(|own| own.has_joined),
            current: None,
            alarm: LoopWaker::new().map_err(GatewayError::Io)?,
            ready: ReadinessSet::new().map_err(GatewayError::Io)?,
            place,
            life,
            payload_max,
            _life: held,
        })
    }

    /// The number of this gateway: of no other one that lives.
    pub(super) const fn place(&self) -> u32 {
        self.place
    }

    /// Which life of that number this is.
    pub(super) const fn life(&self) -> u32 {
        self.life
    }

    /// The largest command that members take, in bytes.
    pub(super) const fn payload_max(&self) -> usize {
        self.payload_max
    }

    /// Wakes the loop.
    pub(super) fn wake(&self) -> amcast_smr::application::WakeHandle {
        self.alarm.wake()
    }

    /// Chooses the node that receives commands from here on. Commands on their way to another are
    /// lost, if that one cannot be waited for.
    fn choose(&mut self, now: Time, tell: OnCommandOutcome<'_>) {
        self.is_admitted |= self.own.is_some_and(|own| self.links[own].takes());
        if !self.is_admitted {
            return;
        }
        let silent = self.current.filter(|&at| self.links[at].is_silent(now));
        let takes = |at: &usize| self.links[*at].takes() && silent != Some(*at);
        let at = self.own.filter(takes).or_else(|| self.current.filter(takes));
        let Some(at) = at.or_else(|| (0..self.links.len()).find(takes)) else { return };
        match self.current {
            Some(current) if current == at => return,
            // When it answers again, it is as a new one.
            Some(current) if silent.is_some() => self.links[current].close(now, tell),
            // It answers: what is on its way is waited for, and nothing is sent meanwhile.
            Some(current) if self.links[current].takes() && self.links[current].is_flying() => {
                return;
            }
            Some(current) => self.links[current].lose(tell),
            None => {}
        }
        self.current = Some(at);
    }

    /// The node that receives commands now.
    fn taker(&self) -> Option<&NodeLink> {
        let own = self.own.filter(|&own| self.links[own].takes());
        let current = self.current.filter(|&at| own.is_none_or(|own| own == at))?;
        Some(&self.links[current]).filter(|link| link.takes())
    }
}

/// The largest payload of the protocol, which every process of it knows.
fn payload_max(entry: &dyn Entry, config: &Config) -> Result<usize, GatewayError> {
    match entry.build(Pid(0), config).map_err(GatewayError::Config)? {
        ProtocolProcess::Messages(protocol) => Ok(protocol.payload_max()),
        ProtocolProcess::Memory(..) => {
            Err(GatewayError::MemoryDriver(crate::memory_driver::MemoryDriverError::Medium))
        }
    }
}

/// A number that no gateway of the cluster has, above those that nodes have. Gateways of one host find each other in `dir`. Those of
/// several hosts count from different numbers on: each host has another first node, whose lives are counted in `dir`.
fn free_place(dir: &Path, replicas: usize) -> io::Result<(u32, IncarnationLock)> {
    let has_node = |rank: &usize| dir.join(crate::cluster_dir::life_name(*rank)).exists();
    let first_node = (0..replicas).find(has_node).unwrap_or(replicas);
    // Programs of earlier versions count from `REPLICAS_MAX` on, on any host.
    let first = REPLICAS_MAX + PLACES * (1 + first_node);
    for n in 0..PLACES {
        let path = dir.join(crate::cluster_dir::gateway_life_name(n));
        if let Some(name) = ProcessName::take(&path)? {
            return Ok(((first + n) as u32, name.begin_anywhere()?));
        }
    }
    Err(io::Error::other(format!("{PLACES} gateways and clients run in {}", dir.display())))
}

impl NodeLink {
    const fn to(target: LinkTarget) -> Self {
        Self {
            target,
            line: None,
            connect_at: Time::ZERO,
            serves: false,
            heard_at: Time::ZERO,
            flights: BTreeMap::new(),
            flight_bytes: 0,
            answer_bytes: 0,
        }
    }

    /// Whether it may be given commands.
    const fn takes(&self) -> bool {
        self.line.is_some() && self.serves
    }

    fn is_flying(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Whether it has had a command for long and said nothing since.
    fn is_silent(&self, now: Time) -> bool {
        let oldest = self.flights.first_key_value().map(|(_, &(_, sent_at))| sent_at);
        oldest.is_some_and(|sent_at| sent_at.max(self.heard_at) + SILENCE <= now)
    }

    /// Connects if it is time to. `ready` watches the connection as `number`.
    fn connect(
        &mut self,
        now: Time,
        alarm: &LoopWaker,
        (ready, number): (&ReadinessSet, u64),
    ) -> bool {
        if self.line.is_some() || now < self.connect_at {
            return false;
        }
        self.connect_at = now + CONNECT_AGAIN;
        let line = match &self.target {
            LinkTarget::Own(inlet) => Ok(inlet.connect(alarm.wake())),
            LinkTarget::Socket(path) => connect(path).and_then(|stream| {
                ready.watch(&stream, number)?;
                IngressLine::socket(stream)
            }),
        };
        // A node that does not run is known to those who watch it.
        let Ok(mut line) = line else { return false };
        line.say(IngressFrame::Hello(VERSION));
        self.serves = false;
        self.line = Some(line);
        true
    }

    /// One round over its connection.
    fn round(&mut self, now: Time, tell: OnCommandOutcome<'_>) -> bool {
        let Some(line) = &mut self.line else { return false };
        let moved = line.fill().and_then(|came| Ok((came, line.flush()?)));
        let came = match &moved {
            Ok((came, _)) => *came,
            Err(_) => true,
        };
        let heard = if came { self.hear(now, tell) } else { Ok(()) };
        match (moved, heard) {
            (Ok((came, went)), Ok(())) => came | went,
            (Err(_), _) => {
                self.close(now, tell);
                true
            }
            (_, Err(why)) => {
                tracing::warn!("the connection to a node is closed: {why}");
                self.close(now, tell);
                true
            }
        }
    }

    fn hear(&mut self, now: Time, tell: OnCommandOutcome<'_>) -> Result<(), &'static str> {
        let Some(line) = &mut self.line else { return Ok(()) };
        // Also a part of a large answer says that the member lives.
        self.heard_at = now;
        while let Some((frame, used)) = line.next(ANSWER_FRAME_MAX)? {
            let (token, came) = match frame {
                IngressFrame::Serves(serves) => {
                    self.serves = serves;
                    line.done(used);
                    continue;
                }
                IngressFrame::Answer(token, outcome, bytes) => {
                    // An error says nothing of how large answers are.
                    if outcome == Outcome::Executed {
                        let before = self.answer_bytes;
                        let counted = bytes.len().min(COUNTED_ANSWER_BYTES);
                        self.answer_bytes = before - before / 32 + counted / 32;
                    }
                    (token, CommandProgress::Answer(Ok(ServiceAnswer::borrowed(outcome, bytes))))
                }
                IngressFrame::TooLarge(token, outcome, bytes) => {
                    let most = ANSWER_BYTES_MAX as u64;
                    (token, CommandProgress::Answer(Err(Oversize { outcome, bytes, most })))
                }
                IngressFrame::NotKept(token) => (token, CommandProgress::NotKept),
                IngressFrame::Hello(_) | IngressFrame::Command(..) | IngressFrame::Read(..) => {
                    return Err("it says what no node says");
                }
            };
            if let Some((bytes, _)) = self.flights.remove(&token) {
                self.flight_bytes -= bytes;
            }
            // Also what nobody counts on its way any more may be the first answer to come.
            tell(token, came);
            line.done(used);
        }
        Ok(())
    }

    fn close(&mut self, now: Time, tell: OnCommandOutcome<'_>) {
        self.line = None;
        self.connect_at = now + CONNECT_AGAIN;
        self.lose(tell);
    }

    fn lose(&mut self, tell: OnCommandOutcome<'_>) {
        self.flight_bytes = 0;
        std::mem::take(&mut self.flights)
            .into_keys()
            .for_each(|token| tell(token, CommandProgress::Lost));
    }

    fn room(&self, bytes: usize) -> usize {
        if self.flights.is_empty() {
            return 1;
        }
        let most = FLIGHT_MAX.min(CREDIT_BYTES / self.answer_bytes.max(1));
        let left = FLIGHT_BYTES_MAX.saturating_sub(self.flight_bytes) / bytes.max(1);
        left.min(most.saturating_sub(self.flights.len()))
    }
}

impl ClientTransport for NodeLinks {
    fn begin(&mut self, _now: Time) {}

    fn numbers(&self) -> CommandNumbers {
        // Only this gateway and a node know them: the member multicasts under numbers of its own.
        CommandNumbers::endless()
    }

    fn begin_next_incarnation(&mut self, _now: Time) -> Result<(), GatewayError> {
        Ok(())
    }

    fn round(&mut self, now: Time, tell: OnCommandOutcome<'_>) -> bool {
        match self.ready.look() {
            Ok(numbers) => {
                for number in numbers {
                    let link = self.links.get_mut(number as usize);
                    link.and_then(|link| link.line.as_mut())
                        .into_iter()
                        .for_each(IngressLine::set_ready);
                }
            }
            Err(e) => tracing::warn!("nodes are not heard: {e}"),
        }
        let mut busy = false;
        for (number, link) in (0..).zip(&mut self.links) {
            busy |= link.connect(now, &self.alarm, (&self.ready, number));
            busy |= link.round(now, tell);
        }
        self.choose(now, tell);
        busy
    }

    fn room(&self, _dst: GroupSet, bytes: usize) -> usize {
        self.taker().map_or(0, |link| link.room(bytes))
    }

    fn is_shut_out(&self) -> bool {
        let own = self.own.map(|own| &self.links[own].target);
        !self.is_admitted
            && own.is_some_and(|own| matches!(own, LinkTarget::Own(inlet) if inlet.is_refused()))
    }

    fn reports_losses(&self) -> bool {
        true
    }

    fn send(&mut self, now: Time, command: TransportCommand<'_>) {
        let TransportCommand { seq, dst, payload, is_read } = command;
        let link = &mut self.links[self.current.expect("there was room")];
        if let Some(line) = &mut link.line {
            let head = match is_read {
                true => IngressFrame::Read(seq, dst, payload),
                false => IngressFrame::Command(seq, dst, payload),
            };
            line.say_shared(head, payload);
        }
        link.flights.insert(seq, (payload.len(), now));
        link.flight_bytes += payload.len();
    }

    fn forget(&mut self, seq: u64) {
        for link in &mut self.links {
            if let Some((bytes, _)) = link.flights.remove(&seq) {
                link.flight_bytes -= bytes;
            }
        }
    }

    fn flush(&mut self, _now: Time) {
        let Some(link) = self.current.map(|at| &mut self.links[at]) else { return };
        if let Some(line) = &mut link.line {
            // One that is at its end says so again in the next round.
            let _ = line.flush();
        }
    }

    fn rest(&mut self) {}

    fn announce(&mut self) {
        self.alarm.announce();
    }

    fn stay(&mut self) {
        self.alarm.stay();
    }

    fn is_pressing(&self, _now: Time) -> bool {
        false
    }

    fn sleep(&mut self, now: Time, at_most: Span) {
        let down = self.links.iter().filter(|link| link.line.is_none());
        let connect = down.map(|link| link.connect_at.since(now)).min().unwrap_or(at_most);
        self.alarm.sleep(self.ready.as_fd(), at_most.min(connect));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_dir::{Net, Transport};
    use crate::ingress::Ingress;
    use crate::node_address::ClusterKey;
    use amcast_core::{Gid, Outcome, RawConfig};
    use amcast_memory::Idle;
    use amcast_protocols::catalog;
    use std::sync::Arc;

    const DST: GroupSet = GroupSet::one(Gid(0));

    /// Nodes that serve, and the links of a gateway to them.
    struct LinkTestNodes {
        dir: PathBuf,
        nodes: Vec<Option<Ingress>>,
        links: NodeLinks,
        now: Time,
        told: Vec<(u64, Option<Vec<u8>>)>,
    }

    impl LinkTestNodes {
        fn new(name: &str, own: Option<usize>) -> Self {
            Self::begin(name, own.map(|rank| (rank, false)), &[])
        }

        /// With some nodes that do not serve; the own one with whether it has joined.
        fn begin(name: &str, own: Option<(usize, bool)>, idle: &[usize]) -> Self {
            let dir = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let mut nodes: Vec<_> = (0..3).map(|rank| Some(node(&dir, rank))).collect();
            nodes
                .iter_mut()
                .enumerate()
                .filter(|(rank, _)| idle.contains(rank))
                .for_each(|(_, node)| node.iter_mut().for_each(|node| node.serve(false)));
            let own = own.map(|(rank, has_joined)| {
                let node = nodes[rank].as_ref().expect("it runs");
                OwnNode { rank, life: 0, has_joined, inlet: node.inlet() }
            });
            let links = links_in(&dir, own);
            let mut place = Self { dir, nodes, links, now: Time(1), told: Vec::new() };
            place.rounds();
            place
        }

        /// Rounds until all is sent; time advances.
        fn rounds(&mut self) {
            for _ in 0..8 {
                self.now += CONNECT_AGAIN;
                for node in self.nodes.iter_mut().flatten() {
                    node.round();
                    // It greets, if it must.
                    assert!(node.take(&mut |_, _| 0).is_none());
                }
                let told = &mut self.told;
                self.links.round(self.now, &mut |seq, came| {
                    told.push((
                        seq,
                        match came {
                            CommandProgress::Answer(answer) => Some(answer.unwrap().bytes.to_vec()),
                            CommandProgress::Part
                            | CommandProgress::Lost
                            | CommandProgress::NotKept => None,
                        },
                    ));
                });
            }
        }

        fn send(&mut self, seq: u64) {
            assert!(self.links.room(GroupSet::EMPTY, 1) > 0, "{seq} has room");
            let payload = &Arc::new(b"x".to_vec());
            self.links.send(self.now, TransportCommand { seq, dst: DST, payload, is_read: false });
            self.links.flush(self.now);
        }

        /// Takes up what node `rank` was sent.
        fn take(&mut self, rank: usize) -> Option<u64> {
            let node = self.nodes[rank].as_mut().unwrap();
            node.round();
            let taken = node.take(&mut |_, _| 1)?;
            let seq = taken.seq;
            node.put_back(taken);
            Some(seq)
        }

        fn told(&mut self) -> Vec<(u64, Option<Vec<u8>>)> {
            std::mem::take(&mut self.told)
        }
    }

    impl Drop for LinkTestNodes {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.dir).unwrap();
        }
    }

    /// The links of a gateway to three nodes.
    fn links_in(dir: &Path, own: Option<OwnNode>) -> NodeLinks {
        let entry = catalog::find("multi-ring").expect("it is in the catalog");
        let raw = RawConfig { groups: 1, replicas: 3, clients: 0, ..RawConfig::default() };
        let config = &raw.check(entry.about().params).unwrap();
        let net = Net::of(dir.to_path_buf(), ClusterKey::default(), Vec::new());
        let (ground, idle) = (&Transport::Net(net), Idle::SHARED);
        let options = GatewayOptions { entry, config, ground, own, idle, record: None };
        NodeLinks::take(&options, dir).unwrap()
    }

    fn node(dir: &Path, rank: usize) -> Ingress {
        let socket = dir.join(crate::cluster_dir::ingress_name(rank));
        let mut ingress = Ingress::open(&socket, (DST, false), 1, Arc::new(|| {})).unwrap();
        ingress.serve(true);
        ingress
    }

    #[test]
    fn commands_go_to_one_member_and_to_another_in_their_order_when_that_dies() {
        let mut place = LinkTestNodes::new("links-die", None);
        (10..13).for_each(|seq| place.send(seq));
        let seq = place.take(0).unwrap();
        place.nodes[0].as_mut().unwrap().answer(seq, Outcome::Executed, b"+1");
        place.rounds();
        assert_eq!(place.told(), [(10, Some(b"+1".to_vec()))]);
        place.nodes[0] = None;
        place.rounds();
        assert_eq!(place.told(), [(11, None), (12, None)]);
        place.send(13);
        assert!(place.take(1).is_some() && place.take(2).is_none());
    }

    #[test]
    fn the_own_member_reads_a_command_where_the_gateway_keeps_it_and_another_one_where_it_came() {
        for own in [Some(1), None] {
            let mut place = LinkTestNodes::new("links-shared", own);
            let rank = own.unwrap_or(0);
            let payload = Arc::new(vec![7; 5000]);
            for seq in 10..15 {
                let command = TransportCommand { seq, dst: DST, payload: &payload, is_read: false };
                place.links.send(place.now, command);
                place.links.flush(place.now);
                let node = place.nodes[rank].as_mut().unwrap();
                node.round();
                let taken = node.take(&mut |_, _| 1).expect("it came");
                assert_eq!(taken.payload(), &payload[..]);
                assert_eq!(taken.payload().as_ptr() == payload.as_ptr(), own.is_some());
                assert_eq!(taken.is_shared(), own.is_some(), "else it lies where it was read");
                node.put_back(taken);
                assert_eq!(Arc::strong_count(&payload), 1, "nobody reads it any more");
            }
        }
    }

    #[test]
    fn a_member_that_stops_serving_gives_its_commands_up_if_another_one_serves() {
        let mut place = LinkTestNodes::new("links-stop", None);
        place.send(10);
        for rank in 0..3 {
            place.nodes[rank].as_mut().unwrap().serve(false);
        }
        place.rounds();
        assert_eq!((place.told(), place.links.room(GroupSet::EMPTY, 1)), (vec![], 0));
        place.nodes[2].as_mut().unwrap().serve(true);
        place.rounds();
        assert_eq!(place.told(), [(10, None)]);
        place.send(11);
        assert!(place.take(2).is_some());
    }

    #[test]
    fn the_own_member_is_preferred_and_gone_back_to_when_nothing_is_on_its_way() {
        let mut place = LinkTestNodes::new("links-own", Some(1));
        place.send(10);
        assert!(place.take(1).is_some());
        place.nodes[1].as_mut().unwrap().serve(false);
        place.rounds();
        assert_eq!(place.told(), [(10, None)]);
        place.send(11);
        let seq = place.take(0).unwrap();
        place.nodes[1].as_mut().unwrap().serve(true);
        place.rounds();
        assert_eq!(place.links.room(GroupSet::EMPTY, 1), 0, "11 is on its way elsewhere");
        place.nodes[0].as_mut().unwrap().answer(seq, Outcome::Executed, b"+1");
        place.rounds();
        assert_eq!(place.told(), [(11, Some(b"+1".to_vec()))]);
        place.send(12);
        assert!(place.take(1).is_some());
    }

    #[test]
    fn before_the_own_member_is_taken_in_no_other_one_is_given_commands() {
        let mut place = LinkTestNodes::begin("links-own-first", Some((1, false)), &[1]);
        place.rounds();
        assert_eq!(place.links.room(GroupSet::EMPTY, 1), 0, "the own one is not taken in");
        assert!(!place.links.is_shut_out(), "it may be, soon");
        let refused = |place: &LinkTestNodes, is| place.nodes[1].as_ref().unwrap().set_refused(is);
        refused(&place, true);
        assert!(place.links.is_shut_out());
        refused(&place, false);
        assert!(!place.links.is_shut_out());
        place.nodes[1].as_mut().unwrap().serve(true);
        place.rounds();
        refused(&place, true);
        assert!(!place.links.is_shut_out(), "other nodes may be given commands from now on");
        place.send(10);
        assert!(place.take(1).is_some());
        // From then on others are.
        place.nodes[1].as_mut().unwrap().serve(false);
        place.rounds();
        assert_eq!(place.told(), [(10, None)]);
        place.send(11);
        assert!(place.take(0).is_some());
    }

    #[test]
    fn while_the_own_member_that_was_taken_in_before_catches_up_others_are_given_commands() {
        let mut place = LinkTestNodes::begin("links-own-behind", Some((1, true)), &[1]);
        place.send(10);
        assert!(place.take(0).is_some());
    }

    #[test]
    fn gateways_in_all_cluster_directories_have_numbers_of_their_own() {
        let base = std::env::temp_dir().join(format!("amcast-places-{}", std::process::id()));
        let (mut held, mut places) = (Vec::new(), Vec::new());
        // Hosts of some nodes each, and one without any.
        for (host, nodes) in [&[0][..], &[1], &[2], &[]].iter().enumerate() {
            let dir = base.join(host.to_string());
            std::fs::create_dir_all(&dir).unwrap();
            for rank in *nodes {
                std::fs::write(dir.join(crate::cluster_dir::life_name(*rank)), "1\n").unwrap();
            }
            for _ in 0..2 {
                let (place, life) = free_place(&dir, 3).unwrap();
                held.push(life);
                places.push(place as usize);
            }
        }
        let first = REPLICAS_MAX + PLACES;
        let expected = (0..4).flat_map(|host| [0, 1].map(|n| first + host * PLACES + n));
        assert_eq!(places, expected.collect::<Vec<_>>());
        // A number is given out again, for another life, when its gateway has ended.
        let life = held.remove(6).number();
        let (again, next) = free_place(&base.join("3"), 3).unwrap();
        assert_eq!((again as usize, next.number()), (places[6], life + 1));
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_member_that_hangs_is_left_and_one_without_answer_for_a_given_up_command_is_not() {
        let mut place = LinkTestNodes::new("links-hang", None);
        place.send(10);
        place.links.forget(10);
        place.now += SILENCE;
        place.rounds();
        assert_eq!((place.told(), place.links.current), (vec![], Some(0)));
        place.send(11);
        place.now += SILENCE;
        place.rounds();
        assert_eq!((place.told(), place.links.current), (vec![(11, None)], Some(1)));
    }

    #[test]
    fn where_answers_are_large_few_are_asked_for_at_a_time() {
        let mut place = LinkTestNodes::new("links-large", None);
        let mut room = Vec::new();
        for (bytes, count) in [(256 << 10, 100), (10, 500)] {
            for seq in 0..count {
                place.send(seq);
                let number = place.take(0).unwrap();
                place.nodes[0].as_mut().unwrap().answer(number, Outcome::Executed, &vec![7; bytes]);
                place.rounds();
            }
            place.send(1 << 20);
            room.push(place.links.room(GroupSet::EMPTY, 1));
            let number = place.take(0).unwrap();
            place.nodes[0].as_mut().unwrap().answer(number, Outcome::Executed, b"");
            place.rounds();
        }
        assert!((50..90).contains(&room[0]) && room[1] > FLIGHT_MAX / 2, "{room:?}");
    }

    #[test]
    fn a_gateway_has_no_more_on_its_way_than_a_node_takes() {
        let mut place = LinkTestNodes::new("links-full", None);
        (0..FLIGHT_MAX as u64).for_each(|seq| place.send(seq + 10));
        assert_eq!(place.links.room(GroupSet::EMPTY, 1), 0);
        place.links.forget(10);
        assert_eq!(place.links.room(GroupSet::EMPTY, 1), 1);
        assert_eq!(place.links.room(GroupSet::EMPTY, FLIGHT_BYTES_MAX), 0);
    }
}
