//! Members: the replicas of a node whose protocol sends messages, one of each group, at the carrier
//! that all of them talk through.
//!
//! The node is one end of a connection ([`crate::message_router`]), so its events concern all its
//! processes: when a node connects or disconnects, each process of this node learns that of each
//! process of that node. Processes of one node live and die together, and learn at their start that
//! the others are there.
//!
//! Where the protocol keeps something on disk each process has a log of its own ([`crate::replica_log`]).
//! Its records are delivered first of all; records persisted in a round are handed over at its end.

use crate::cluster_dir::{LogLocation, Net};
use crate::config::{HostPlacement, marks};
use crate::connection_requests::{ConnectionRequests, group_address};
use crate::control::{NetworkStatus, PeerStatus};
use crate::driver_core::DriverCore;
use crate::log_backpressure::LogBackpressure;
use crate::log_ends::LogEnds;
use crate::memory_driver::UpperLayer;
use crate::message_router::{
    ADDRESS_BYTES, InternalMessages, MessageRouter, ReceivedMessage, TURNS_MAX,
};
use crate::node::NodeError;
use crate::peer_refusals::NodeRefusal;
use crate::peer_registry::{Dismissal, PeerRegistry};
use crate::replica_log::{LogVolume, ReplicaLog, UnopenedLog};
use crate::replicas::Replicas;
use crate::resources::LogStatus;
use amcast_core::messages::{Frames, MessageInput};
use amcast_core::step::{Oracle, Protocol, ProtocolStatus, Ticket};
use amcast_core::{ClusterShape, Gid, GroupSet, Input, Pid, Span, Submission, Time};
use amcast_net::{Carrier, Interface, LivenessProbe, NetCounts, NetError, NetOptions, PeerConfig};
use amcast_smr::application::WakeHandle;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// After how long without a word a node counts as silent, for people.
const SILENT: Span = Span::millis(200);

/// How much may wait for a connection before nothing more is broadcast. The carrier has room for
/// the others' casts of the same time beside it.
const BACKLOG_BYTES_MAX: usize = 8 << 20;

/// The carrier's peers are nodes, and all of them are one group to it.
const ALL: Gid = Gid(0);

/// The interface that multicast uses: the one of the node's own address.
fn interface_at(own: SocketAddr) -> Interface {
    match own.ip() {
        IpAddr::V4(ip) if !ip.is_unspecified() => Interface::Address(ip),
        _ => Interface::System,
    }
}

/// The node's replica of each group, and their carrier.
pub(crate) struct MessageDriver {
    cluster: ClusterShape,
    rank: usize,
    /// By group.
    members: Vec<DriverCore<Frames>>,
    post: MessageRouter,
    /// When each node was heard last.
    heard: Vec<Time>,
    /// When the loop came round last.
    now: Time,
    begun_at: Time,
    /// Messages to processes that do not exist.
    astray: u64,
    /// Where their logs are, if they have any.
    keeping: Option<LogLocation>,
    /// Whether they keep commands waiting.
    log_backpressure: LogBackpressure,
    /// The nodes whose slowness holds back what is multicast, a bit each.
    awaited: u32,
    /// Finds out who died, where the protocol wants proof.
    reach: Option<LivenessProbe>,
    peer_registry: PeerRegistry,
    /// It lost what it had promised, and has not its place back yet.
    forgot: bool,
}

/// How a node's driver starts.
pub(crate) struct MessageDriverOptions {
    /// The rank of the node.
    pub(crate) rank: usize,
    /// A higher number than in any earlier life of the node.
    pub(crate) life: u32,
    pub(crate) peer_registry: PeerRegistry,
    /// Where its processes have their logs, if they have any.
    pub(crate) keeping: Option<LogLocation>,
    pub(crate) asks: ConnectionRequests,
    /// Whether a history is recorded.
    pub(crate) tracing: bool,
    /// Whether the application wants early deliveries.
    pub(crate) early: bool,
}

/// The protocol of one process.
pub(crate) type BoxedProcess = Box<dyn Protocol<Medium = Frames> + Send>;

impl MessageDriver {
    /// Opens the sockets of a node and begins to connect to the others. `processes` are its replicas, in
    /// order of groups.
    ///
    /// # Errors
    /// When its addresses cannot be used; the error says which.
    pub(crate) fn start(
        net: &Net,
        cluster: &ClusterShape,
        processes: Vec<BoxedProcess>,
        options: MessageDriverOptions,
    ) -> Result<Self, NetError> {
        let MessageDriverOptions { rank, life, mut peer_registry, keeping, asks, .. } = options;
        let MessageDriverOptions { tracing, early, .. } = options;
        let peer = |(of, place): (usize, &HostPlacement)| {
            // Others get its public address, and it listens at the configured one.
            let listens = place.listen.filter(|_| of == rank);
            let at = listens.unwrap_or(place.address);
            let groups = if asks.multicast { GroupSet::one(ALL) } else { GroupSet::EMPTY };
            PeerConfig { tcp: at, udp: at, groups }
        };
        // Skip decisions come first: they have a mark of their own, beside all other settings.
        peer_registry.decides.extend_from_slice(&net.decides);
        let peers: Vec<PeerConfig> = net.places.iter().enumerate().map(peer).collect();
        let usual = NetOptions::default();
        let options = NetOptions {
            cluster_id: net.key.id,
            secret: net.key.secret.clone(),
            processes: cluster.processes() as u32,
            decides: marks(&peer_registry.decides),
            disk: peer_registry.disk,
            start: peer_registry.start,
            anew: peer_registry.anew,
            known: peer_registry.known.clone(),
            seed: (rank as u64) << 32 | u64::from(life),
            frame_bytes_max: usual.frame_bytes_max + ADDRESS_BYTES,
            multicast: asks
                .multicast
                .then(|| (ALL, group_address(net.key.id)))
                .into_iter()
                .collect(),
            interface: interface_at(peers[rank].udp),
            datagram_bytes_per_s: asks.datagram_bytes_per_s,
            ..usual
        };
        let addresses = || peers.iter().map(|peer| peer.tcp);
        let reach = |me| LivenessProbe::new(me, addresses(), Instant::now());
        let reach = asks.proof_of_death.then(|| reach(Pid(rank as u32)));
        let carrier = Carrier::start(Pid(rank as u32), life, &peers, &options)?;
        let member = |(group, process)| {
            let mut core = DriverCore::new(cluster.replica(group, rank), process, tracing);
            if early {
                core.want_early();
            }
            core
        };
        Ok(Self {
            cluster: *cluster,
            rank,
            members: cluster.all_groups().iter().zip(processes).map(member).collect(),
            post: MessageRouter::new(*cluster, rank, (carrier, asks.multicast)),
            heard: vec![Time::ZERO; cluster.replicas()],
            now: Time::ZERO,
            begun_at: Time::ZERO,
            astray: 0,
            keeping,
            log_backpressure: LogBackpressure::default(),
            awaited: u32::MAX,
            reach,
            peer_registry,
            forgot: false,
        })
    }

    /// The descriptor becomes readable when there is work outside of the protocol, and wakes the
    /// loop.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub(crate) fn watch(&mut self, what: impl AsFd) -> Result<(), NetError> {
        self.post.carrier.watch(what)
    }

    fn step(
        &mut self,
        now: Time,
        group: Gid,
        input: Input<'_, Frames>,
        above: &mut dyn UpperLayer,
    ) {
        self.members[group.index()].step(now, &mut self.post.of(group), input, above);
    }

    /// Gives each process of this node an input about the process of each group at node `rank`.
    fn tell_all(
        &mut self,
        now: Time,
        rank: usize,
        above: &mut dyn UpperLayer,
        say: impl Fn(Pid) -> Input<'static, Frames>,
    ) {
        let groups = self.cluster.all_groups();
        for (group, of) in groups.iter().flat_map(|g| groups.iter().map(move |of| (g, of))) {
            let pid = self.cluster.replica(of, rank);
            if pid != self.pid(group) {
                self.step(now, group, say(pid), above);
            }
        }
    }

    /// Opens the log of the replica of `group`, and tells it what is in it.
    fn open_journal(
        &mut self,
        now: Time,
        group: Gid,
        (keeping, ends): (&LogLocation, &LogEnds),
        above: &mut dyn UpperLayer,
    ) -> Result<(), NodeError> {
        let wake = self.wake();
        let end = ends.0.get(&group.to_string());
        let (member, post) = (&mut self.members[group.index()], &mut self.post);
        let each = |number: u64, record: &[u8]| {
            member.step(now, &mut post.of(group), Input::Stored { number, record }, above);
        };
        let opened = ReplicaLog::open(group, keeping, (wake, end), each);
        let (journal, found, is_lost) = opened.map_err(|why| match why {
            UnopenedLog::Unusable(why) => NodeError::Disk(why),
            UnopenedLog::CutShort(why) => NodeError::Anew(why),
        })?;
        let name = self.cluster.name(self.cluster.replica(group, self.rank));
        let count = found.next - found.first;
        tracing::info!("{name}: its log has {count} records, up to number {}", found.next);
        if let Some(torn) = &found.torn {
            tracing::warn!("{name}: {}: cut at byte {}", torn.path.display(), torn.offset);
        }
        if is_lost {
            let what = if count == 0 {
                "its log is gone"
            } else {
                "it may have promised more than is here"
            };
            tracing::warn!("{name}: {what}: it asks the others what it had promised");
            self.forgot = true;
            self.step(now, group, Input::Lost, above);
        }
        if found.lossy {
            tracing::warn!("{name}: the machine failed: the end of its log may be missing");
            self.step(now, group, Input::Torn, above);
        }
        self.members[group.index()].keep(journal);
        Ok(())
    }

    /// Tells the processes what their logs have done, and lets go of what waited for that.
    fn hear_journals(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool {
        if self.keeping.is_none() {
            return false;
        }
        let mut any = false;
        for group in self.cluster.all_groups().iter() {
            let member = &mut self.members[group.index()];
            any |= member.hear_journal(now, &mut self.post.of(group), above);
            if let Some(written) = self.members[group.index()].journal().map(ReplicaLog::written) {
                any |= self.post.release(group, written);
            }
        }
        any
    }

    /// A connection was made, or broke.
    fn news(&mut self, now: Time, rank: usize, is_up: bool, above: &mut dyn UpperLayer) {
        if is_up {
            if !self.peer_registry.meets(rank, self.post.carrier.known(Pid(rank as u32))) {
                return;
            }
            self.peer_registry.met.insert(rank);
            if let Some(reach) = &mut self.reach {
                reach.trust(Pid(rank as u32));
                self.tell_all(now, rank, above, |p| Input::Oracle(Oracle::Trust(p)));
            }
            return self.tell_all(now, rank, above, |p| Input::Medium(MessageInput::Up(p)));
        }
        self.post.drop_held(rank);
        self.tell_all(now, rank, above, |p| Input::Medium(MessageInput::Down(p)));
        if let Some(reach) = &mut self.reach {
            return reach.doubt(Pid(rank as u32), Instant::now());
        }
        // The system closes the connections of a process that dies: that is known at once, and silence
        // only after a while. One that lives is heard again soon.
        self.tell_all(now, rank, above, |p| Input::Oracle(Oracle::Suspect(p)));
    }

    /// Tells of those that are proved to be dead.
    fn tell_dead(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool {
        let Some(reach) = &mut self.reach else { return false };
        let mut dead = Vec::new();
        reach.look(Instant::now(), |node| dead.push(node));
        for node in &dead {
            tracing::info!("node {} takes no connection any more: it is dead", node.0);
            self.tell_all(now, node.index(), above, |p| Input::Oracle(Oracle::Suspect(p)));
        }
        !dead.is_empty()
    }

    /// Gives out what the connections brought.
    fn take_in(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool {
        let (mut busy, cluster) = (false, self.cluster);
        self.post.carrier.begin_round();
        while let Some(input) = self.post.carrier.next_input() {
            busy = true;
            let (rank, frame) = match input {
                MessageInput::From(node, frame) => (node.index(), frame),
                MessageInput::Backlog(backlog) => {
                    // All processes of the node send their datagrams through it.
                    for group in cluster.all_groups().iter() {
                        let input = Input::Medium(MessageInput::Backlog(backlog));
                        self.step(now, group, input, above);
                    }
                    continue;
                }
                MessageInput::Up(node) | MessageInput::Down(node) => {
                    let is_up = matches!(input, MessageInput::Up(_));
                    if is_up {
                        self.heard[node.index()] = now;
                    }
                    self.news(now, node.index(), is_up, above);
                    continue;
                }
            };
            self.heard[rank] = now;
            let Some(ReceivedMessage { from, to, message }) =
                ReceivedMessage::read(frame, cluster.groups())
            else {
                self.astray += 1;
                continue;
            };
            let input = Input::Medium(MessageInput::From(cluster.replica(from, rank), message));
            let member = &mut self.members[to.index()];
            let (protocol, outbox) = member.parts();
            protocol.step(now, (), input, outbox);
            member.carry_out(now, &mut self.post.of(to), above);
        }
        busy
    }

    /// Gives out what the processes of the node have for each other, and what comes of that.
    fn deal(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool {
        let mut busy = false;
        for _ in 0..TURNS_MAX {
            if !self.post.has_inside() {
                break;
            }
            busy = true;
            let inside: InternalMessages = self.post.take_inside();
            for ReceivedMessage { from, to, message } in inside.messages() {
                let input = Input::Medium(MessageInput::From(self.pid(from), message));
                self.step(now, to, input, above);
            }
            self.post.put_back(inside);
        }
        busy
    }

    /// Wakes each process when it is time: again if it asks for that at once, as it does to send what
    /// it gathered; but not for ever.
    fn wake_up(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool {
        let mut woke = false;
        for group in self.cluster.all_groups().iter() {
            for _ in 0..2 {
                if self.members[group.index()].deadline().is_none_or(|t| t > now) {
                    break;
                }
                self.step(now, group, Input::Wake, above);
                woke = true;
            }
        }
        woke
    }

    /// The other nodes.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.cluster.replicas()).filter(move |&r| r != rank)
    }

    /// The bytes that wait for each of the connected nodes.
    fn backlogs(&self) -> impl Iterator<Item = usize> + '_ {
        let pids = self.others().map(|rank| Pid(rank as u32));
        let connected = pids.filter(|&node| self.post.carrier.connected(node).is_some());
        connected.map(|node| self.post.carrier.backlog(node))
    }

    /// The counters of the connections.
    pub(crate) fn counts(&self) -> NetCounts {
        self.post.carrier.counts()
    }

    /// How often their logs were synced.
    pub(crate) fn syncs(&self) -> u64 {
        self.members.iter().filter_map(DriverCore::journal).map(ReplicaLog::syncs).sum()
    }

    fn log(&mut self) {
        while let Some(remark) = self.post.carrier.take_remark() {
            self.peer_registry.hear(remark);
        }
    }

    /// The first group in which the node's replica has not its place.
    fn first_lost(&self) -> Option<Gid> {
        self.cluster.all_groups().iter().find(|&g| !self.status(g).0.follows)
    }
}

impl Replicas for MessageDriver {
    fn pid(&self, group: Gid) -> Pid {
        self.cluster.replica(group, self.rank)
    }

    fn life(&self) -> u32 {
        self.post.carrier.incarnation()
    }

    fn begin(&mut self, now: Time, above: &mut dyn UpperLayer) -> Result<(), NodeError> {
        self.begun_at = now;
        let (incarnation, keeping) = (self.life(), self.keeping.clone());
        if let Some(keeping) = &keeping {
            let wrong =
                |e: std::io::Error| NodeError::Disk(format!("{}: {e}", keeping.path.display()));
            if keeping.is_begun() {
                // Also a life that ends before all logs are there leaves that they were there once.
                keeping.begun().map_err(wrong)?;
            }
            let ends = LogEnds::read(&keeping.path);
            for group in self.cluster.all_groups().iter() {
                self.open_journal(now, group, (keeping, &ends), above)?;
            }
            if self.forgot {
                // Each log that is missing records has a mark beside it.
                LogEnds::forget(&keeping.path);
            }
            keeping.sync().and_then(|()| keeping.begun()).map_err(wrong)?;
        }
        for group in self.cluster.all_groups().iter() {
            self.step(now, group, Input::Start { incarnation }, above);
        }
        self.tell_all(now, self.rank, above, |p| Input::Medium(MessageInput::Up(p)));
        Ok(())
    }

    fn round(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool {
        self.now = now;
        let came = self.take_in(now, above) | self.tell_dead(now, above);
        let kept = self.hear_journals(now, above);
        let logs = self.members.iter().filter_map(DriverCore::journal);
        self.log_backpressure.look(now, logs.map(ReplicaLog::room));
        let dealt = self.deal(now, above);
        self.log();
        came | kept | dealt
    }

    fn flush(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool {
        let woke = self.wake_up(now, above);
        let dealt = self.deal(now, above);
        self.members.iter_mut().for_each(DriverCore::submit_records);
        self.post.carrier.flush();
        woke | dealt
    }

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        let Some(group) = dst.lowest() else { return 0 };
        // The protocol has bounds of its own; where they are wide, the slowest connection holds back.
        // One that is not of the group any more, or stopped, holds back nobody.
        let lives = |rank: usize| self.now.since(self.heard[rank]) < SILENT;
        let counts = |rank: &usize| self.awaited >> rank & 1 == 1 && lives(*rank);
        let pids = self.others().filter(counts).map(|rank| Pid(rank as u32));
        let connected = pids.filter(|&node| self.post.carrier.connected(node).is_some());
        let slowest = connected.map(|node| self.post.carrier.backlog(node)).max().unwrap_or(0);
        let waiting = slowest.max(self.post.waiting_bytes());
        let disk_is_full =
            |member: &DriverCore<Frames>| member.journal().is_some_and(|j| j.room().free == 0);
        if waiting > BACKLOG_BYTES_MAX || self.members.iter().any(disk_is_full) {
            return 0;
        }
        self.members[group.index()].protocol().room(dst, bytes)
    }

    fn wait_for(&mut self, nodes: Option<u32>) {
        self.awaited = nodes.unwrap_or(u32::MAX);
    }

    fn submit(&mut self, now: Time, submission: Submission<'_>, above: &mut dyn UpperLayer) {
        let group = submission.dst.lowest().expect("a command has a destination");
        self.step(now, group, Input::Submit(submission), above);
    }

    fn set_barrier(&mut self, now: Time, group: Gid, ticket: Ticket, above: &mut dyn UpperLayer) {
        self.step(now, group, Input::Barrier(ticket), above);
    }

    fn applied(&mut self, now: Time, group: Gid, position: u64, above: &mut dyn UpperLayer) {
        self.members[group.index()].applied(now, &mut self.post.of(group), position, above);
    }

    fn full(&mut self, now: Time, is_full: bool, above: &mut dyn UpperLayer) {
        for group in self.cluster.all_groups().iter() {
            self.step(now, group, Input::Full(is_full), above);
        }
    }

    fn installed(&mut self, now: Time, positions: &[u64], above: &mut dyn UpperLayer) {
        for (group, &position) in self.cluster.all_groups().iter().zip(positions) {
            let needs = self.members[group.index()].needs();
            self.step(now, group, Input::Installed { position, needs }, above);
        }
    }

    fn unfit(&mut self, now: Time, above: &mut dyn UpperLayer) {
        for group in self.cluster.all_groups().iter() {
            self.step(now, group, Input::Unfit, above);
        }
    }

    fn leave(&mut self, now: Time, above: &mut dyn UpperLayer) {
        for group in self.cluster.all_groups().iter() {
            self.step(now, group, Input::Leave, above);
        }
    }

    fn checkpointed(&mut self, now: Time, positions: &[u64], above: &mut dyn UpperLayer) {
        for (group, &position) in self.cluster.all_groups().iter().zip(positions) {
            self.step(now, group, Input::Checkpointed(position), above);
        }
    }

    fn move_to(&mut self, places: &[HostPlacement]) {
        for rank in self.others() {
            let Some(place) = places.get(rank) else { continue };
            if self.post.carrier.move_peer(Pid(rank as u32), place.address) {
                tracing::info!("{} is at {} now", crate::config::node_name(rank), place.address);
            }
        }
    }

    fn doubt(&mut self, now: Time, rank: usize, above: &mut dyn UpperLayer) {
        // A node that is heard is alive, even if etcd reports it dead.
        let is_heard = self.heard.get(rank).is_none_or(|&heard| now.since(heard) < SILENT);
        if rank != self.rank && !is_heard {
            tracing::info!("{} is reported dead", crate::config::node_name(rank));
            self.tell_all(now, rank, above, |p| Input::Oracle(Oracle::Suspect(p)));
        }
    }

    fn logged(&self) -> LogVolume {
        self.members.iter().filter_map(DriverCore::journal).map(ReplicaLog::volume).sum()
    }

    fn not_met(&self) -> Vec<usize> {
        self.others().filter(|rank| !self.peer_registry.met.contains(rank)).collect()
    }

    fn log_stuck_since(&self) -> Option<Time> {
        self.log_backpressure.stuck_since()
    }

    fn log_status(&self) -> Option<LogStatus> {
        LogStatus::of(self.members.iter().filter_map(DriverCore::journal).map(ReplicaLog::counts))
    }

    fn log_ends(&self) -> LogEnds {
        let groups = self.cluster.all_groups();
        let end = |group: Gid| {
            let journal = self.members[group.index()].journal()?;
            Some((group.to_string(), journal.end()))
        };
        LogEnds(groups.iter().filter_map(end).collect())
    }

    fn failed(&self) -> Option<String> {
        let failed = |member: &DriverCore<Frames>| Some(member.journal()?.failed()?.to_string());
        self.peer_registry.failed().cloned().or_else(|| self.members.iter().find_map(failed))
    }

    fn status(&self, group: Gid) -> (ProtocolStatus, bool) {
        let protocol = self.members[group.index()].protocol();
        (protocol.status(), protocol.fit())
    }

    fn stopped(&self, now: Time) -> Option<String> {
        let lost = self.first_lost()?;
        let silent = |rank: usize| {
            let heard = self.heard[rank];
            let since = now.since(if heard == Time::ZERO { self.begun_at } else { heard });
            let name = self.cluster.name(self.cluster.replica(lost, rank));
            (since > SILENT).then(|| match heard {
                Time::ZERO => format!("{name} was never heard"),
                _ => format!("{name} is silent for {:.1} s", since.0 as f64 / 1e9),
            })
        };
        let silent: Vec<String> = self.others().filter_map(silent).collect();
        let works = self.cluster.replicas() - silent.len();
        let answers = self.cluster.recovery_answers();
        if works > answers && self.forgot {
            return Some(
                "it asks the others what it had promised on a disk that is gone, or in a log that was \
                 cut short"
                    .to_string(),
            );
        }
        if works >= self.cluster.quorum() && self.forgot {
            return Some(format!(
                "it asks the others what it had promised on a disk that is gone, or in a log that was cut \
                 short, and waits for one that is not heard: {answers} of them must answer ({})",
                silent.join(", ")
            ));
        }
        if works >= self.cluster.quorum() {
            return Some("it waits to be taken into the group".to_string());
        }
        // One that never heard a majority in this life has not begun yet.
        let met = 1 + self.others().filter(|&rank| self.heard[rank] != Time::ZERO).count();
        let what = if met >= self.cluster.quorum() { "has stopped" } else { "starts" };
        Some(format!(
            "it {what}: {works} of {} members are heard, and {} are needed ({})",
            self.cluster.replicas(),
            self.cluster.quorum(),
            silent.join(", ")
        ))
    }

    fn network(&self) -> Option<NetworkStatus> {
        let counts = self.post.carrier.counts();
        let dropped_datagrams = counts.datagrams_dropped_full
            + counts.datagrams_dropped_error
            + counts.datagrams_malformed
            + counts.datagrams_old
            + counts.datagrams_early;
        Some(NetworkStatus {
            connected: self.backlogs().count(),
            backlog_bytes: self.backlogs().max().unwrap_or(0),
            connects: counts.connects,
            breaks: counts.breaks,
            sent: counts.stream_sent + counts.datagram_messages_sent,
            received: counts.stream_received + counts.datagram_messages_received,
            dropped: counts.dropped_down + dropped_datagrams + self.astray,
            strange: counts.strangers + counts.datagrams_strange,
            overflowed: self.post.carrier.kernel_drops(),
        })
    }

    fn peers(&self) -> Vec<PeerStatus> {
        let carrier = &self.post.carrier;
        self.peer_registry.peers(|rank| carrier.connected(Pid(rank as u32)).is_some())
    }

    fn differs(&self) -> Option<String> {
        self.peer_registry.differs().cloned()
    }

    fn dismissal(&self) -> Option<Dismissal> {
        self.peer_registry.dismissal().cloned()
    }

    fn refusal(&self) -> Option<NodeRefusal> {
        let (cluster, refusals) = (self.cluster, &self.peer_registry.refusals);
        let refusal = refusals.by_majority(cluster.replicas(), cluster.quorum())?;
        self.first_lost().map(|_| refusal)
    }

    fn wake(&self) -> WakeHandle {
        let waker = self.post.carrier.waker();
        Arc::new(move || waker.ring())
    }

    fn announce(&mut self) {}

    fn stay(&mut self) {}

    fn sleep(&mut self, now: Time, at_most: Span) {
        if self.post.has_inside() {
            return;
        }
        let wake =
            self.members.iter().filter_map(DriverCore::deadline).min().unwrap_or(Time::NEVER);
        let look = self.reach.as_ref().and_then(LivenessProbe::next_due);
        let look = look.map(|at| at.saturating_duration_since(Instant::now()));
        let look = look.map_or(at_most, |span| Span(span.as_nanos() as u64));
        let wake = wake.since(now).min(at_most).min(look);
        if wake > Span::ZERO {
            self.post.carrier.park(Some(wake));
        }
    }
}

#[cfg(test)]
mod tests;
