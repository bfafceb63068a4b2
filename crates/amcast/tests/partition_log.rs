//! The partition-available log on a protocol that continues in every component of a partition, in the simulator: the answers
//! to its writers against the logs of all nodes when all components have merged.
//!
//! `AMCAST_PARTITION_LOG_SEEDS` says how many seeds a run of it has.

#[path = "../examples/bank/machine.rs"]
#[allow(dead_code, reason = "only its name is of interest here")]
mod bank;

use amcast::core::rng::Rng;
use amcast::core::{Entry, Gid, GroupSet, Outcome, Span};
use amcast::log::partition_log::{AppendId, LogPlace};
use amcast::log::{PartitionLog, PartitionLogAnswer, PartitionLogCommand, PartitionLogState};
use amcast::net::Secret;
use amcast::protocols::catalog;
use amcast::replicate::{
    self, ComponentMember, MemberCallError, MemberError, MemberOptions, StartError,
};
use amcast::sim::{Profile, RunOutcome, RunSettings};
use amcast::simulate::components::{
    ComponentRun, ComponentSettings, ComponentWorkload, run_components,
};
use amcast::smr::{KeyUse, ReconcileLimits, ReconcileRefusal, Reconciler, ShardView, StateMachine};
use amcast_core::groupcast::ViewName;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes of the log: enough for all appends of a run, so that none is declined.
const LOG_BYTES: usize = 1 << 20;

type SoundLog = PartitionLog<LOG_BYTES>;

/// A log whose hook is broken.
trait BrokenMerge: Default + Send + Sync + 'static {
    const MERGE: Reconciler<PartitionLogState>;
}

/// The log with another hook.
#[derive(Default)]
struct BrokenLog<B>(SoundLog, PhantomData<B>);

impl<B: BrokenMerge> StateMachine for BrokenLog<B> {
    type Shard = PartitionLogState;

    fn touches(&self, _: &[u8], _: GroupSet, _: &mut dyn FnMut(Gid, &[u8], KeyUse)) -> bool {
        false
    }

    fn apply(
        &self,
        command: &[u8],
        shards: &mut [ShardView<'_, PartitionLogState>],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        self.0.apply(command, shards, answer)
    }

    fn reconciler(&self) -> Option<Reconciler<PartitionLogState>> {
        Some(B::MERGE)
    }

    fn enter_view(&self, data: &mut PartitionLogState, view: ViewName, members: u32) {
        self.0.enter_view(data, view, members);
    }
}

/// A merge keeps the longer log.
#[derive(Default)]
struct KeepsTheLonger;

impl BrokenMerge for KeepsTheLonger {
    const MERGE: Reconciler<PartitionLogState> = |own, other| {
        if other.entries().count() > own.entries().count() {
            *own = other.clone();
        }
    };
}

/// A merge appends the entries of the other log behind those of the own one, in the present configuration.
#[derive(Default)]
struct OrdersAnew;

impl BrokenMerge for OrdersAnew {
    const MERGE: Reconciler<PartitionLogState> = |own, other| {
        for entry in other.entries() {
            let command = PartitionLogCommand::Append { id: entry.id, value: entry.value };
            let view = ShardView { shard: Gid(0), now_ms: 0, data: own };
            SoundLog::default().apply(&command.encode(), &mut [view], &mut Vec::new());
        }
    };
}

/// All that a node ordered in a configuration, and the next one that it entered.
#[derive(Debug)]
struct OrderedIn {
    configuration: ViewName,
    next: Option<ViewName>,
    ids: Vec<AppendId>,
}

/// The writers of the log, one at each node, and what they and their nodes have seen.
struct LogWriters<M> {
    appended: u64,
    /// By node: the appends that were acknowledged in its present life, with their places.
    acknowledged: BTreeMap<usize, Vec<(AppendId, LogPlace)>>,
    /// By node: the configurations of its present life, as it was in each of them last.
    ordered: BTreeMap<usize, Vec<OrderedIn>>,
    machine: PhantomData<M>,
}

impl<M> Default for LogWriters<M> {
    fn default() -> Self {
        Self {
            appended: 0,
            acknowledged: BTreeMap::new(),
            ordered: BTreeMap::new(),
            machine: PhantomData,
        }
    }
}

impl<M: StateMachine<Shard = PartitionLogState>> ComponentWorkload for LogWriters<M> {
    type Machine = M;

    fn next(&mut self, rank: usize, rng: &mut Rng) -> Vec<u8> {
        self.appended += 1;
        let id = AppendId { writer: rank as u64, number: self.appended };
        let value = vec![rank as u8; rng.below(40) as usize];
        PartitionLogCommand::Append { id, value: &value }.encode()
    }

    fn answered(&mut self, rank: usize, command: &[u8], outcome: Outcome, answer: &[u8]) {
        if outcome == Outcome::Executed
            && let Some(PartitionLogCommand::Append { id, .. }) =
                PartitionLogCommand::decode(command)
            && let Some(PartitionLogAnswer::Appended(place)) = PartitionLogAnswer::decode(answer)
        {
            self.acknowledged.entry(rank).or_default().push((id, place));
        }
    }

    fn observed(&mut self, rank: usize, state: &PartitionLogState) {
        let all = self.ordered.entry(rank).or_default();
        if let Some(last) = all.last_mut()
            && last.next.is_none()
        {
            // Right behind its end, before anything is merged.
            last.next = state.place_of(last.ids[0]).and_then(|place| place.next());
        }
        let open: Vec<_> = state.entries().filter(|e| e.place.next().is_none()).collect();
        let Some(configuration) = open.last().map(|entry| entry.place.configuration()) else {
            return;
        };
        let ids = open.iter().map(|entry| entry.id).collect();
        match all.last_mut() {
            Some(last) if last.configuration == configuration => last.ids = ids,
            _ => all.push(OrderedIn { configuration, next: None, ids }),
        }
    }

    fn crashed(&mut self, rank: usize) {
        self.acknowledged.remove(&rank);
        self.ordered.remove(&rank);
    }
}

/// The first mistake at the end of a run, if there is one.
fn judge<M: StateMachine<Shard = PartitionLogState>>(
    end: &ComponentRun<LogWriters<M>>,
) -> Result<(), String> {
    let Some(log) = end.states.values().next() else { return Ok(()) };
    if end.states.values().any(|other| other != log) {
        return Err("nodes have different logs".to_string());
    }
    let mut places = BTreeMap::new();
    for entry in log.entries() {
        if places.insert(entry.id, entry.place).is_some() {
            return Err(format!("{:?} is in the log twice", entry.id));
        }
    }
    for (id, told) in end.workload.acknowledged.values().flatten() {
        let Some(place) = places.get(id) else {
            return Err(format!("{id:?} was acknowledged at {told}, and is lost"));
        };
        if place.configuration() != told.configuration() {
            return Err(format!("{id:?} was acknowledged at {told}, and is at {place}"));
        }
    }
    for (rank, all) in &end.workload.ordered {
        for there in all {
            let name = there.configuration;
            check_order(&places, there).map_err(|why| format!("n{rank} in {name}: {why}"))?;
        }
    }
    Ok(())
}

/// Whether entries that a node ordered in one configuration are in that order, as far as their places are there: those that
/// members which entered another one next ordered there, too, may have a lesser place by these, in another order.
fn check_order(places: &BTreeMap<AppendId, LogPlace>, there: &OrderedIn) -> Result<(), String> {
    let mut last: Option<LogPlace> = None;
    for id in &there.ids {
        let Some(place) = places.get(id) else { return Err(format!("{id:?} is lost")) };
        if place.configuration() != there.configuration {
            return Err(format!("{id:?} was ordered elsewhere, and is at {place}"));
        }
        if place.next() != there.next {
            continue;
        }
        if last.is_some_and(|last| last >= *place) {
            return Err(format!("{id:?} is at {place}, in front of what it followed"));
        }
        last = Some(*place);
    }
    Ok(())
}

fn partitionable() -> &'static dyn Entry {
    catalog::find("toto-partitionable").expect("it is in the catalog")
}

fn run<M: StateMachine<Shard = PartitionLogState>>(
    profile: Profile,
    seed: u64,
) -> ComponentRun<LogWriters<M>> {
    let settings = ComponentSettings::default();
    let run = RunSettings { settle: Span::secs(60), ..RunSettings::with(profile) };
    run_components(partitionable(), (&settings, &run), seed, &LogWriters::<M>::default)
        .expect("it runs")
}

const PROFILES: [Profile; 2] = [Profile::Network, Profile::All];

fn seeds() -> u64 {
    let given = std::env::var("AMCAST_PARTITION_LOG_SEEDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(12)
}

#[test]
fn every_node_ends_with_one_log_and_each_acknowledged_append_is_in_it_once_where_it_was_ordered() {
    let _limit = amcast_test_policy::time_limit();
    let mut configurations = BTreeSet::new();
    let mut totals = [0; 4];
    let mut answers = [0; 3];
    for profile in PROFILES {
        for seed in 0..seeds() {
            let end = run::<SoundLog>(profile, seed);
            let which = format!("{}, seed {seed}", profile.name());
            assert_eq!(end.report.outcome, RunOutcome::Settled, "{which}");
            judge(&end).unwrap_or_else(|why| panic!("{which}: {why}"));
            let Some(log) = end.states.values().next() else { continue };
            let several = log.configurations();
            // Members that parted in one configuration have places of their own in it.
            let names: BTreeSet<_> = several.iter().map(|there| there.configuration).collect();
            totals[3] += several.len() - names.len();
            configurations.insert(several.len());
            totals[0] += log.entries().count();
            totals[1] += end.merges as usize;
            totals[2] = totals[2].max(end.waited);
            (0..3).for_each(|code| answers[code] += end.answers[code]);
        }
    }
    let [entries, merges, waited, parted] = totals;
    println!(
        "{entries} entries, {merges} merges, {waited} waited at most, {parted} parted configurations; answers {answers:?}"
    );
    assert!(entries > 1000 && merges > 50 && waited > 0 && parted > 0, "{totals:?}");
    assert!(configurations.len() > 2, "{configurations:?}");
}

/// Whether some seed shows that the hook of this log is broken.
fn is_caught<B: BrokenMerge>() -> Option<String> {
    let runs = PROFILES.into_iter().flat_map(|profile| (0..12).map(move |seed| (profile, seed)));
    runs.map(|(profile, seed)| run::<BrokenLog<B>>(profile, seed)).find_map(|end| judge(&end).err())
}

#[test]
fn a_hook_that_loses_entries_or_orders_them_anew_is_caught() {
    let _limit = amcast_test_policy::time_limit();
    let lost = is_caught::<KeepsTheLonger>().expect("it is caught");
    assert!(lost.contains("lost"), "{lost}");
    let moved = is_caught::<OrdersAnew>().expect("it is caught");
    assert!(moved.contains("was acknowledged at") && moved.contains("and is at"), "{moved}");
}

/// Bytes of a log that writers fill and trim again and again.
const WRITERS_BYTES: usize = 1024;

type WritersLog = PartitionLog<WRITERS_BYTES>;

/// The log, which takes each command for settled at once: it forgets trimmed ids too early.
#[derive(Default)]
struct HastyLog(WritersLog);

impl StateMachine for HastyLog {
    type Shard = PartitionLogState;

    fn touches(&self, _: &[u8], _: GroupSet, _: &mut dyn FnMut(Gid, &[u8], KeyUse)) -> bool {
        false
    }

    fn apply(
        &self,
        command: &[u8],
        shards: &mut [ShardView<'_, PartitionLogState>],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        let outcome = self.0.apply(command, shards, answer);
        self.0.settle(shards[0].data, u64::MAX);
        outcome
    }

    fn reconciler(&self) -> Option<Reconciler<PartitionLogState>> {
        self.0.reconciler()
    }

    fn enter_view(&self, data: &mut PartitionLogState, view: ViewName, members: u32) {
        self.0.enter_view(data, view, members);
    }
}

/// A new writer for each append. One node alone trims what it has, now and then: other components keep it.
struct TrimmingWriters<M> {
    appended: u64,
    /// The last entry that it has.
    last: Option<AppendId>,
    /// The entries that it has, and those that it has had and that are trimmed.
    held: BTreeSet<AppendId>,
    trimmed: BTreeSet<AppendId>,
    machine: PhantomData<M>,
}

impl<M> Default for TrimmingWriters<M> {
    fn default() -> Self {
        let (held, trimmed) = (BTreeSet::new(), BTreeSet::new());
        Self { appended: 0, last: None, held, trimmed, machine: PhantomData }
    }
}

impl<M: StateMachine<Shard = PartitionLogState>> ComponentWorkload for TrimmingWriters<M> {
    type Machine = M;

    fn next(&mut self, rank: usize, rng: &mut Rng) -> Vec<u8> {
        if let Some(through) = self.last.filter(|_| rank == 0 && rng.below(3) == 0) {
            return PartitionLogCommand::Trim { through }.encode();
        }
        self.appended += 1;
        let id = AppendId { writer: 1 + 2 * self.appended, number: 1 };
        PartitionLogCommand::Append { id, value: b"value" }.encode()
    }

    fn answered(&mut self, _: usize, _: &[u8], _: Outcome, _: &[u8]) {}

    fn observed(&mut self, rank: usize, state: &PartitionLogState) {
        if rank == 0 {
            let held: BTreeSet<_> = state.entries().map(|entry| entry.id).collect();
            self.trimmed.extend(self.held.difference(&held));
            self.last = state.entries().last().map(|entry| entry.id);
            self.held = held;
        }
    }
}

/// How many entries a run has trimmed, and how many of their ids its nodes have forgotten; or an entry that came back.
fn trims<M: StateMachine<Shard = PartitionLogState>>(seed: u64) -> Result<[usize; 2], String> {
    // Nodes that crash may take all that have seen a trim along.
    let run = RunSettings { settle: Span::secs(60), ..RunSettings::with(Profile::Network) };
    let pause = Span::micros(400);
    let settings = ComponentSettings { commands: 600, pause, ..ComponentSettings::default() };
    let workload = TrimmingWriters::<M>::default;
    let end = run_components(partitionable(), (&settings, &run), seed, &workload)?;
    if end.report.outcome != RunOutcome::Settled {
        return Err(format!("{:?}", end.report.outcome));
    }
    let trimmed = &end.workload.trimmed;
    for log in end.states.values() {
        if let Some(back) = log.entries().find(|entry| trimmed.contains(&entry.id)) {
            return Err(format!("{:?} was trimmed and is back", back.id));
        }
        if log.bytes() > settings.replicas * WRITERS_BYTES {
            return Err(format!("the log has {} bytes", log.bytes()));
        }
    }
    let known = |id: &&AppendId| end.states.values().any(|log| log.was_trimmed(**id));
    Ok([trimmed.len(), trimmed.len() - trimmed.iter().filter(known).count()])
}

#[test]
fn a_log_of_ever_new_writers_forgets_what_was_trimmed_and_no_merge_brings_it_back() {
    let _limit = amcast_test_policy::time_limit();
    let mut totals = [0; 2];
    for seed in 0..seeds().div_ceil(2) {
        let found = trims::<WritersLog>(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        (0..2).for_each(|at| totals[at] += found[at]);
    }
    println!("{} entries trimmed, {} ids of them forgotten", totals[0], totals[1]);
    assert!(totals[1] > 100, "{totals:?}");
    let early = (0..24).find_map(|seed| trims::<HastyLog>(seed).err());
    let early = early.expect("a log that forgets too early is caught");
    assert!(early.contains("is back"), "{early}");
}

/// A directory of a group's members, which is removed when it is dropped.
struct GroupDir(PathBuf);

impl Drop for GroupDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

impl GroupDir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory can be made");
        Self(dir)
    }

    fn options(&self, addresses: &[SocketAddr], rank: usize) -> MemberOptions {
        MemberOptions {
            protocol: "toto-partitionable".to_string(),
            set: Vec::new(),
            group: u64::from(std::process::id()),
            secret: Secret::default(),
            addresses: addresses.to_vec(),
            rank,
            directory: self.0.clone(),
            limits: ReconcileLimits::default(),
            record: None,
        }
    }
}

/// Addresses on this machine that nobody listens at just now.
fn free_addresses(count: usize) -> Vec<SocketAddr> {
    let mut held = Vec::new();
    while held.len() < count {
        let stream = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = stream.local_addr().expect("it has one");
        if let Ok(datagrams) = UdpSocket::bind(address) {
            held.push((address, stream, datagrams));
        }
    }
    held.into_iter().map(|(address, ..)| address).collect()
}

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a member is in a reconciled view of so many.
fn wait_for_view(member: &ComponentMember<SoundLog>, count: usize) {
    let begun = Instant::now();
    loop {
        let status = member.status().expect("it runs");
        if status.is_reconciled && status.members.len() == count {
            assert_eq!(status.is_majority, count > 1);
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{status:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn append(member: &ComponentMember<SoundLog>, writer: u64, number: u64) -> LogPlace {
    let id = AppendId { writer, number };
    let command = PartitionLogCommand::Append { id, value: b"value" };
    let answer = member.call(&command.encode(), PATIENCE).expect("it is executed");
    match PartitionLogAnswer::decode(&answer) {
        Some(PartitionLogAnswer::Appended(place)) => place,
        other => panic!("{other:?}"),
    }
}

#[test]
fn members_over_sockets_append_where_they_are_left_alone_and_merge_with_those_that_come_back() {
    let _limit = amcast_test_policy::time_limit();
    let (dir, addresses) = (GroupDir::new("partition-log"), free_addresses(3));
    let start = |rank| {
        let member = replicate::member::<SoundLog>(&dir.options(&addresses, rank));
        member.unwrap_or_else(|e| panic!("{e}"))
    };
    let mut members: Vec<_> = (0..3).map(start).collect();
    members.iter().for_each(|member| wait_for_view(member, 3));
    append(&members[2], 2, 1);
    members.truncate(1);
    wait_for_view(&members[0], 1);
    let alone = append(&members[0], 0, 1);
    // Those that come back begin in components of their own, and take appends there.
    let back: Vec<_> = (1..3).map(start).collect();
    let own = append(&back[0], 1, 1);
    assert!(own.configuration() != alone.configuration(), "{own} {alone}");
    members.extend(back);
    members.iter().for_each(|member| wait_for_view(member, 3));
    let whole = append(&members[1], 1, 2);
    let log_of = |member: &ComponentMember<SoundLog>| {
        let begun = Instant::now();
        loop {
            let log = member.look(Clone::clone).expect("it runs");
            if log.entries().count() >= 4 {
                return log;
            }
            assert!(begun.elapsed() < PATIENCE, "{log:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let logs: Vec<_> = members.iter().map(log_of).collect();
    assert!(logs.iter().all(|log| *log == logs[0]), "{logs:#?}");
    let at = |writer, number| logs[0].place_of(AppendId { writer, number }).expect("it is there");
    assert_eq!(at(0, 1).configuration(), alone.configuration());
    assert_eq!(at(1, 1).configuration(), own.configuration());
    assert_eq!(at(1, 2), whole);
    assert!(at(2, 1) < at(0, 1), "one that left had said it to the others");
    let merges: u64 = members.iter().filter_map(ComponentMember::status).map(|s| s.merges).sum();
    assert!(merges >= 3, "{merges}");
}

#[test]
fn a_member_is_refused_without_a_hook_and_on_a_protocol_that_needs_none() {
    let _limit = amcast_test_policy::time_limit();
    let (dir, addresses) = (GroupDir::new("partition-refused"), free_addresses(3));
    let options = dir.options(&addresses, 0);
    let refused = replicate::member::<bank::Bank>(&options).map(drop).expect_err("it has no hook");
    assert!(refused.to_string().contains("has a reconcile hook"), "{refused}");
    let primary = MemberOptions { protocol: "toto".to_string(), ..options.clone() };
    let refused = replicate::member::<SoundLog>(&primary).map(drop).expect_err("it is one order");
    let is_one = matches!(refused, StartError::Member(MemberError::OneComponent("toto")));
    assert!(is_one, "{refused}");
    let open =
        MemberOptions { addresses: vec![([10, 1, 1, 1], 7700).into(); 3], ..options.clone() };
    let refused = replicate::member::<SoundLog>(&open).map(drop).expect_err("it has no secret");
    assert!(refused.to_string().contains("a secret is missing"), "{refused}");
    // One that runs is not started twice, and a command that is too large is refused.
    let member = replicate::member::<SoundLog>(&options).unwrap_or_else(|e| panic!("{e}"));
    assert!(replicate::member::<SoundLog>(&options).is_err());
    let refused = member.call(&[0; 1 << 20], PATIENCE).expect_err("it is larger than a message");
    assert_eq!(refused.outcome(), Outcome::NotExecuted);
    let is_large = |e| matches!(e, MemberCallError::Refused(ReconcileRefusal::TooLarge { .. }));
    assert!(is_large(refused));
}
