//! Changes of leaders on this machine's memory: all replicas in one thread, all clients in another. A leader that dies is
//! never stepped again; its memory stays, as that of a process that is killed does.

use super::{ChangeCause, ChangeTimes, LeaderChange, LeaderChangeLoad};
use crate::bench::ack_counters::{AckCounters, MeasurePhase, ProcessAssignment};
use crate::bench::delivered::DeliveryDigest;
use crate::bench::multicasts::FinishedMulticast;
use crate::bench::part::bind;
use crate::bench::stop::check_stop;
use crate::bench::{judge, shared};
use amcast_core::step::Oracle;
use amcast_core::{
    ClusterShape, Config, Delivery, Entry, Gid, GroupSet, Pid, ProtocolEvent, Role, Span,
    Submission, Time,
};
use amcast_memory::{Backing, Directory, StartOptions};
use amcast_node::clock;
use amcast_node::memory_driver::{MemoryDriver, UpperLayer};

/// How long the threads wait for each other, and a change may take.
const PATIENCE: Span = Span::secs(20);

/// The result of the replicas' thread.
struct ReplicaSightings {
    kept: Vec<DeliveryDigest>,
    changes: Vec<ChangeTimes>,
}

/// Runs it.
///
/// # Errors
/// When the memory cannot be set aside, a change does not come to an end, or the order is wrong.
pub fn run(entry: &dyn Entry, load: &LeaderChangeLoad) -> Result<Vec<LeaderChange>, String> {
    let config = load.plan.config(entry).map_err(|e| e.to_string())?;
    let cluster = *config.cluster();
    let deal = ProcessAssignment::new(cluster, 2, 1);
    let directory = shared::directory(&deal)?;
    let at = (entry, &config, &directory, &deal);
    let (replicas, clients) = std::thread::scope(|scope| {
        // In threads of their own: each is bound to a core.
        let clients = scope.spawn(move || ClientLoop::start(at, load)?.run());
        let replicas = scope.spawn(move || ReplicaLoop::start(at, load)?.run());
        let replicas = replicas.join();
        let clients = clients.join();
        (
            replicas.unwrap_or_else(|_| Err("the replicas panicked".to_string())),
            clients.unwrap_or_else(|_| Err("the clients panicked".to_string())),
        )
    });
    directory.remove().map_err(|e| e.to_string())?;
    let (replicas, (finished, open)) = (replicas?, clients?);
    judge(&cluster, &replicas.kept)?;
    // The last change is followed by as much time as there is between two.
    if let (Some(last), Some(first)) = (replicas.changes.last(), open.iter().min())
        && last.has_delayed(*first)
    {
        return Err("a multicast that was on the way in a change has not ended".to_string());
    }
    replicas.changes.iter().map(|change| change.account(load.cause, &finished)).collect()
}

/// The parts of a measurement.
type Setup<'a> = (&'a dyn Entry, &'a Config, &'a Directory, &'a ProcessAssignment);

fn drivers(
    (entry, config, directory, deal): Setup<'_>,
    part: usize,
) -> Result<Vec<MemoryDriver>, String> {
    let mut drivers: Vec<MemoryDriver> = Vec::new();
    for &p in &deal.parts[part] {
        let node = entry.build(p, config).map_err(|e| e.to_string())?;
        let bell = drivers.first().map(|driver| driver.bell().clone());
        // All pages are there from the start, as RDMA pins them: else a new leader's log is touched for the first time in
        // the middle of a change.
        let options =
            StartOptions { bell, backing: Backing::Prefaulted, ..StartOptions::default() };
        let at = (directory, options);
        let driver = MemoryDriver::start_with(at, config.cluster(), p, node, false);
        drivers.push(driver.map_err(|e| e.to_string())?);
    }
    Ok(drivers)
}

fn meet(acks: &mut AckCounters<'_>) -> Result<(), String> {
    let begun = clock::now();
    while !acks.reach(MeasurePhase::Runs) {
        check_stop()?;
        if clock::now().since(begun) > PATIENCE {
            return Err("the other half of the measurement did not start".to_string());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
}

/// The layer above the replicas.
struct ReplicaWatch<'a> {
    acks: AckCounters<'a>,
    cluster: ClusterShape,
    kept: Vec<DeliveryDigest>,
    position: Vec<u64>,
    /// By group: how far the first of its replicas has delivered, and who leads it.
    first: Vec<u64>,
    leaders: Vec<Option<Pid>>,
    changes: Vec<ChangeTimes>,
}

impl UpperLayer for ReplicaWatch<'_> {
    fn deliver(&mut self, _: Time, p: Pid, d: Delivery, _: &[u8]) {
        self.kept[p.index()].push(d.msg, d.dst);
        self.position[p.index()] = d.position;
        let Some(group) = self.cluster.group_of(p) else { return };
        if let Some(change) = self.changes.last_mut() {
            change.delivers(clock::now(), group.index(), p);
        }
        if self.first[group.index()] >= d.position {
            return;
        }
        self.first[group.index()] = d.position;
        if let Role::Client { client } = self.cluster.role(d.msg.sender) {
            self.acks.delivered(usize::from(client), group, d.msg.seq);
        }
    }

    fn event(&mut self, _: Time, p: Pid, event: ProtocolEvent) {
        match event {
            ProtocolEvent::Leads(_) => {
                let Some(group) = self.cluster.group_of(p) else { return };
                self.leaders[group.index()] = Some(p);
                if let Some(change) = self.changes.last_mut() {
                    change.leads(clock::now(), group.index(), p);
                }
            }
            ProtocolEvent::Lagging => self.kept[p.index()].close(),
            _ => {}
        }
    }
}

struct ReplicaLoop<'a> {
    load: &'a LeaderChangeLoad,
    drivers: Vec<MemoryDriver>,
    /// By driver: whether it lives.
    lives: Vec<bool>,
    watch: ReplicaWatch<'a>,
    begun: Time,
}

impl<'a> ReplicaLoop<'a> {
    fn start(at: Setup<'a>, load: &'a LeaderChangeLoad) -> Result<Self, String> {
        bind(0);
        let drivers = drivers(at, 0)?;
        let (_, config, directory, deal) = at;
        let cluster = *config.cluster();
        let most = DeliveryDigest::most(cluster.groups() * cluster.replicas());
        let room = |p| DeliveryDigest::new(if cluster.group_of(p).is_some() { most } else { 0 });
        let mut watch = ReplicaWatch {
            acks: AckCounters::open(deal, directory, 0).map_err(|e| e.to_string())?,
            cluster,
            kept: cluster.pids().map(room).collect(),
            position: vec![0; cluster.processes()],
            first: vec![0; cluster.groups()],
            leaders: vec![None; cluster.groups()],
            changes: Vec::new(),
        };
        meet(&mut watch.acks)?;
        let lives = vec![true; drivers.len()];
        Ok(Self { load, drivers, lives, watch, begun: clock::now() })
    }

    fn run(mut self) -> Result<ReplicaSightings, String> {
        for driver in &mut self.drivers {
            driver.begin(self.begun, &mut self.watch);
        }
        while !self.watch.acks.are_at(MeasurePhase::Finished) {
            check_stop()?;
            let now = clock::now();
            let due = self.load.apart.times(self.watch.changes.len() as u64 + 1);
            let is_over = self.watch.changes.last().is_none_or(ChangeTimes::is_over);
            if !is_over && now.since(self.begun) > due + PATIENCE {
                self.watch.acks.reach(MeasurePhase::Finished);
                return Err("a change of leaders did not come to an end".to_string());
            }
            if is_over && now.since(self.begun) >= due {
                if self.watch.changes.len() == self.load.changes {
                    self.watch.acks.reach(MeasurePhase::Finished);
                } else {
                    self.change()?;
                }
            }
            self.round();
        }
        Ok(ReplicaSightings { kept: self.watch.kept, changes: self.watch.changes })
    }

    fn round(&mut self) {
        for (driver, _) in self.drivers.iter_mut().zip(&self.lives).filter(|(_, lives)| **lives) {
            let p = driver.pid();
            driver.round(clock::now(), &mut self.watch);
            self.watch.acks.flush();
            driver.applied(clock::now(), self.watch.position[p.index()], &mut self.watch);
            if let (Some(change), Some(group)) =
                (self.watch.changes.last_mut(), self.watch.cluster.group_of(p))
            {
                change.sees_epoch(clock::now(), group.index(), driver.protocol().status().epoch);
            }
        }
    }

    /// The leaders of all groups are to change.
    fn change(&mut self) -> Result<(), String> {
        let cluster = self.watch.cluster;
        let leaders: Option<Vec<Pid>> = self.watch.leaders.iter().copied().collect();
        let leaders = leaders.ok_or("a group has no leader yet: give it more time")?;
        let now = clock::now();
        let mut change = ChangeTimes::new(now, cluster.groups());
        for driver in &self.drivers {
            if let Some(group) = cluster.group_of(driver.pid()) {
                change.epoch_before(group.index(), driver.protocol().status().epoch);
            }
        }
        self.watch.changes.push(change);
        for (driver, lives) in self.drivers.iter_mut().zip(&mut self.lives) {
            let Some(group) = cluster.group_of(driver.pid()) else { continue };
            let leader = leaders[group.index()];
            match self.load.cause {
                ChangeCause::Death => *lives &= driver.pid() != leader,
                ChangeCause::Suspicion => {
                    let next = next_of(cluster, group, leader);
                    driver.consult(now, Oracle::Leader(group, next), &mut self.watch);
                }
            }
        }
        Ok(())
    }
}

/// The replica behind this one.
fn next_of(cluster: ClusterShape, group: Gid, leader: Pid) -> Pid {
    let rank = cluster.members(group).position(|p| p == leader).map_or(0, |rank| rank + 1);
    cluster.replica(group, rank % cluster.replicas())
}

/// The layer above the clients: nothing is delivered to them.
struct ClientsAbove;

impl UpperLayer for ClientsAbove {
    fn deliver(&mut self, _: Time, _: Pid, _: Delivery, _: &[u8]) {}
    fn event(&mut self, _: Time, _: Pid, _: ProtocolEvent) {}
}

struct ClientLoop<'a> {
    drivers: Vec<MemoryDriver>,
    acks: AckCounters<'a>,
    /// By client: the number and the time of its multicast on the way, or the last number.
    open: Vec<(u64, Option<Time>)>,
    dst: GroupSet,
    payload: Vec<u8>,
    finished: Vec<FinishedMulticast>,
}

impl<'a> ClientLoop<'a> {
    fn start(at: Setup<'a>, load: &LeaderChangeLoad) -> Result<Self, String> {
        bind(1);
        let drivers = drivers(at, 1)?;
        let (_, config, directory, deal) = at;
        let mut acks = AckCounters::open(deal, directory, 1).map_err(|e| e.to_string())?;
        meet(&mut acks)?;
        let open = vec![(0, None); drivers.len()];
        let dst = config.cluster().all_groups();
        let payload = vec![0x5a; load.plan.load.payload];
        Ok(Self { drivers, acks, open, dst, payload, finished: Vec::new() })
    }

    /// Each client multicasts to all groups, again and again, until the changes are over. Gives the times of those that are
    /// on the way then, too.
    fn run(mut self) -> Result<(Vec<FinishedMulticast>, Vec<Time>), String> {
        let now = clock::now();
        self.drivers.iter_mut().for_each(|driver| driver.begin(now, &mut ClientsAbove));
        let finished = |me: &Self| me.acks.is_part_at(0, MeasurePhase::Finished);
        while !finished(&self) {
            check_stop()?;
            for client in 0..self.drivers.len() {
                self.turn(client);
            }
        }
        self.acks.reach(MeasurePhase::Finished);
        let open = self.open.iter().filter_map(|&(_, cast)| cast).collect();
        Ok((self.finished, open))
    }

    fn turn(&mut self, client: usize) {
        let driver = &mut self.drivers[client];
        let (seq, open) = &mut self.open[client];
        if let Some(cast) = *open
            && self.acks.is_delivered(client, *seq, self.dst)
        {
            self.finished.push(FinishedMulticast { cast, end: clock::now() });
            *open = None;
        }
        let now = clock::now();
        if open.is_none() && driver.protocol().room(self.dst, self.payload.len()) > 0 {
            *seq += 1;
            *open = Some(now);
            let submission = Submission { seq: *seq, dst: self.dst, payload: &self.payload };
            driver.submit(now, submission, &mut ClientsAbove);
        }
        driver.round(now, &mut ClientsAbove);
    }
}
