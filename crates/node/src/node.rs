//! A node: one operating-system process that hosts replica `rank` of every group, in one loop. The
//! loop steps them, at drivers or as members; their deliveries go to its [`crate::replica_host`].

mod error;
mod foundation;
mod status;

pub use error::NodeError;

use crate::checkpoint::{Checkpoints, OpenedCheckpoints};
use crate::clock;
use crate::cluster_dir::{LogLocation, Transport, life_beyond};
use crate::command_gateway::OwnNode;
use crate::config::HostPlacement;
use crate::control::{self, ControlRequest, NodeStatus, PeerMover};
use crate::disk::DiskRecord;
use crate::execution_notes::ExecutionNotes;
use crate::incarnation::SharedIncarnation;
use crate::node_address::NodeAddress;
use crate::node_history::{HistoryKind, NodeHistory};
use crate::overlay_changes::OverlayRequester;
use crate::peer_registry::Dismissal;
use crate::replica_host::ReplicaHost;
use crate::replicas::Replicas;
use crate::reply_sink::{ReplySink, is_of};
use crate::resources::Resources;
use crate::skips::NodeSkips;
use crate::state_transfer::{StateFetch, sources};
use amcast_core::entry::MediumKind;
use amcast_core::step::ProtocolStatus;
use amcast_core::{Config, Entry, Gid, GroupSet, MsgId, Pid, Senders, Span, Submission, Time};
use amcast_memory::{Idle, Idler, Pause, shorten_turns};
use amcast_net::wire::ConnectionRefusal;
use amcast_smr::application::{Application, WakeHandle};
use amcast_smr::recovery::WantedState;
use foundation::{NodeFoundation, kept};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

/// Room for what the application says by itself, in bytes.
const REPORT_BYTES: usize = 512;

/// How often it is asked whether it has anything to say.
const REPORT_LOOK: Span = Span::millis(50);

/// How long a node that is to stop takes for leaving its groups, at the longest.
const LEAVING_MAX: Span = Span::secs(2);

/// Rounds in which a node that may stop still answers its gateways, at the most.
const LAST_ROUNDS: u32 = 1000;

/// The longest a loop sleeps while it leaves.
const LEAVING_SLEEP: Span = Span::millis(1);

/// How long a node that is to stop may take to save its state, before it ends without.
const LEAVE_PATIENCE: Span = Span::secs(3);

/// How long a node waits until it says what for, and how often it says it again.
const SAY_FIRST: Span = Span::secs(10);
const SAY_EVERY: Span = Span::secs(60);

/// How long a node works until what ended it before counts as survived.
const WELL_AFTER: Span = Span::secs(10);

/// The longest a loop sleeps, so that it looks at its flag now and then.
const SLEEP_MAX: Span = Span::millis(50);

/// The options of a node.
pub struct NodeOptions<'a> {
    /// The protocol.
    pub entry: &'static dyn Entry,
    /// The cluster's checked configuration.
    pub config: &'a Config,
    /// The transport between the processes of the cluster.
    pub ground: &'a Transport,
    /// Where the nodes are asked, in order of rank.
    pub nodes: Vec<NodeAddress>,
    /// Which replica of each group it hosts.
    pub rank: usize,
    /// How it waits when there is nothing to do.
    pub idle: Idle,
    /// Where it writes its history, if anywhere.
    pub record: Option<PathBuf>,
    /// Where its processes keep what they must not forget, if they keep anything.
    pub keeping: Option<LogLocation>,
    /// Bytes of its state that it gives to another node, or writes to its disk, in a second, at first; none: any number.
    pub state_per_second: Option<u64>,
}

/// A running node; [`Node::run`] is its loop.
pub struct Node<A: Application> {
    name: String,
    rank: usize,
    /// Where the nodes are asked, in order of rank.
    nodes: Vec<NodeAddress>,
    replicas: Box<dyn Replicas>,
    host: ReplicaHost<A>,
    requests: Receiver<ControlRequest>,
    mover: PeerMover,
    overlays: OverlayRequester,
    /// Whether the system wakes the loop, for what comes on sockets.
    woken: bool,
    idler: Idler,
    /// The medium of its protocol.
    medium: MediumKind,
    /// Held as long as the node lives, where no shared memory tells that it does.
    life: Option<SharedIncarnation>,
    /// Its data directory and its disk, if they outlast it.
    kept: Option<(LogLocation, DiskRecord)>,
    /// Its data directory, also where that ends with the cluster.
    keeping: Option<LogLocation>,
    /// Whether it never had its place on this disk yet.
    joining: bool,
    /// The next report of the missing conditions, if it is not ready then.
    say_at: Time,
    reports: OwnReports,
    notes: Option<OwnNotes>,
}

/// A node's notes on what it executes, if it makes any.
struct OwnNotes {
    file: Arc<ExecutionNotes>,
    /// The time from which the node may count as well; none once it has cleared the notes on its earlier ends.
    well_at: Option<Time>,
}

/// The messages that the application multicasts by itself.
#[derive(Default)]
struct OwnReports {
    /// When it is asked for one next.
    look_at: Time,
    /// Whether it is asked for none any more.
    are_over: Arc<AtomicBool>,
}

/// The error of a node whose state is not the one of a majority. If its data are durable, no later
/// start continues from them.
fn differs(name: &str, why: &str, keeping: Option<&LogLocation>) -> String {
    let why = format!("{name} differs from a majority of the replicas, and serves nobody: {why}");
    match keeping {
        None => {
            format!("{why}. It has nothing on disk: its next start takes the state of another node")
        }
        Some(keeping) => keeping.is_different(why),
    }
}

/// Continues a node's application from the state on disk, and saves it there from now on.
fn keep_state<A: Application>(
    keeping: &LogLocation,
    (rank, per_second): (usize, Option<u64>),
    (host, wake): (&mut ReplicaHost<A>, WakeHandle),
) -> Result<(), NodeError> {
    keeping.make().map_err(|e| NodeError::Io(keeping.path.clone(), e))?;
    let (node, groups) = ((rank, host.cluster.replicas()), host.cluster.groups());
    let opened = Checkpoints::open::<A>(keeping, node, groups, (wake, per_second));
    let OpenedCheckpoints { checkpoints, restored } =
        opened.map_err(|e| NodeError::Disk(e.to_string()))?;
    let kept = host.keep_state(checkpoints, restored);
    kept.map_err(|why| {
        NodeError::Disk(format!(
            "{}: {why}: see \"A command that ends every node\" in docs/deploy.md. {} skips {}",
            keeping.checkpoints().display(),
            crate::config::node_name(rank),
            host.skips.names()
        ))
    })
}

/// Has what the application executes noted where the node keeps what outlasts it, and tells what it was executing
/// when it ended before. Has it skip what is skipped.
fn prepare<A: Application>(
    app: &mut A,
    (name, groups): (&str, usize),
    keeping: Option<&LogLocation>,
    skips: &NodeSkips,
) -> Result<Option<OwnNotes>, NodeError> {
    if !skips.is_empty() {
        app.skip(&skips.decisions()).map_err(NodeError::Disk)?;
        tracing::info!("{name} skips {}", skips.names());
    }
    let Some(keeping) = keeping.filter(|keeping| keeping.lasts) else { return Ok(None) };
    keeping.make().map_err(|e| NodeError::Io(keeping.path.clone(), e))?;
    match ExecutionNotes::begin(&keeping.path, groups + 1) {
        Ok((notes, ended)) => {
            for note in ended {
                tracing::warn!(
                    "{name} {note}. If no node survives it: `amcast log-file skip {}`",
                    keeping.path.display()
                );
            }
            let file = Arc::new(notes);
            app.note_in(file.clone());
            Ok(Some(OwnNotes { file, well_at: Some(clock::now() + WELL_AFTER) }))
        }
        Err(e) => {
            tracing::warn!("{}: {e}: what is executed is not noted", keeping.path.display());
            Ok(None)
        }
    }
}

impl<A: Application> Node<A> {
    /// Starts every replica of the node.
    ///
    /// # Errors
    /// When memory, sockets, history or application cannot be set up, or the node runs already.
    pub fn start(options: &NodeOptions<'_>, mut app: A) -> Result<Self, NodeError> {
        let (rank, cluster) = (options.rank, *options.config.cluster());
        let NodeFoundation { replicas, reply_sink, life, skips } = match options.ground {
            Transport::Memory(directory) => NodeFoundation::in_memory(options, directory)?,
            Transport::Hosts(hosts) => NodeFoundation::on_hosts(options, hosts)?,
            Transport::Net(net) => NodeFoundation::on_net(options, net, &app)?,
        };
        let name = crate::config::node_name(rank);
        let (NodeAddress::Socket(socket) | NodeAddress::Address(_, _, socket)) =
            options.nodes[rank].clone();
        let far = options.ground.net().and_then(|net| net.control(rank));
        let overlays = OverlayRequester::default();
        let serves = (Resources::of(options.keeping.as_ref()), overlays.clone());
        let requests = control::serve(&socket, far, serves, replicas.wake());
        let (requests, mover) = requests.map_err(|e| NodeError::Io(socket, e))?;
        let node_history = match &options.record {
            None => None,
            Some(dir) => {
                let pids: Vec<Pid> = cluster.all_groups().iter().map(|g| replicas.pid(g)).collect();
                let can = options.entry.capabilities();
                let (multicasts, views) = (can.senders == Senders::Replicas, can.views);
                let overlay = options.entry.overlay(options.config);
                let kind = HistoryKind { multicasts, views, overlay, lived: replicas.life() > 0 };
                let begun = NodeHistory::begin(dir, &name, cluster, &pids, kind, clock::now());
                Some(begun.map_err(|e| NodeError::Io(dir.clone(), e))?)
            }
        };
        let keeping = options.keeping.as_ref();
        let notes = prepare(&mut app, (&name, cluster.groups()), keeping, &skips)?;
        app.begin(replicas.wake()).map_err(NodeError::Application)?;
        if let ReplySink::Ingress(ingress, _) = &reply_sink {
            let commands = ingress.commands();
            app.answer_only(Arc::new(move |id: MsgId| {
                is_of(cluster, rank, id.sender) && commands.awaits(id.seq, clock::now())
            }));
        }
        let forgot = replicas.life() > 0 && options.keeping.is_none();
        let state_per_second = options.state_per_second;
        let mut host =
            ReplicaHost::new(cluster, app, reply_sink, node_history, (forgot, state_per_second));
        host.skips = skips;
        if let Some(keeping) = &options.keeping {
            keep_state(keeping, (rank, state_per_second), (&mut host, replicas.wake()))?;
        }
        let woken = !matches!(options.ground, Transport::Memory(_));
        let idle = if woken { options.idle.woken() } else { options.idle };
        let (idler, nodes) = (Idler::new(idle), options.nodes.clone());
        let (kept, keeping) = (kept(options), options.keeping.clone());
        let joining = kept.as_ref().is_some_and(|(_, disk)| disk.is_joining());
        Ok(Self {
            name,
            rank,
            nodes,
            replicas,
            host,
            requests,
            mover,
            overlays,
            woken,
            idler,
            medium: options.entry.about().medium,
            life,
            kept,
            keeping,
            joining,
            say_at: clock::now() + SAY_FIRST,
            reports: OwnReports::default(),
            notes,
        })
    }

    /// The handle that informs this node, from any thread, that nodes are at other addresses.
    pub fn mover(&self) -> PeerMover {
        self.mover.clone()
    }

    /// Where requests to this node for another tree of the groups go: its process names the gateway that takes them.
    pub fn overlays(&self) -> OverlayRequester {
        self.overlays.clone()
    }

    /// Once this is set, from any thread, the application multicasts nothing by itself any more: so that a cluster which
    /// stops comes to rest, with nothing under way.
    pub fn end_reports(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.reports.are_over)
    }

    /// For a gateway in this process: where its member takes commands, if it does.
    pub fn own(&self) -> Option<OwnNode> {
        let ReplySink::Ingress(ingress, _) = &self.host.reply_sink else { return None };
        let has_joined = self.kept.is_some() && !self.joining;
        let life = self.replicas.life();
        Some(OwnNode { rank: self.rank, life, has_joined, inlet: ingress.inlet() })
    }

    /// The loop, until `stop` is set.
    ///
    /// # Errors
    /// When what it keeps on disk cannot be used, or takes nothing more.
    pub fn run(&mut self, stop: &Arc<AtomicBool>) -> Result<(), NodeError> {
        if self.woken
            && let Err(e) = shorten_turns()
        {
            tracing::info!(
                "{}: on a busy machine it may have to wait for its turn: {e}",
                self.name
            );
        }
        self.replicas.begin(clock::now(), &mut self.host)?;
        self.host.recovery.has_begun();
        self.catch_up(clock::now());
        if let Some(positions) = self.host.recovery.take_restored() {
            self.replicas.checkpointed(clock::now(), &positions, &mut self.host);
        }
        while !stop.load(Ordering::Relaxed) {
            self.keep(clock::now())?;
            self.say_what_it_waits_for(clock::now());
            if self.round() {
                self.idler.busy();
                continue;
            }
            if self.idler.pause() == Pause::Again {
                continue;
            }
            if let Some(node_history) = &mut self.host.node_history {
                node_history.flush();
            }
            self.replicas.announce();
            if self.round() {
                self.replicas.stay();
                self.idler.busy();
                continue;
            }
            let most = if self.host.is_pressing() { Span::millis(1) } else { SLEEP_MAX };
            self.replicas.sleep(clock::now(), most);
        }
        self.leave()?;
        self.notes.iter().for_each(|notes| notes.file.end());
        Ok(())
    }

    /// Ends in good order, so that the others soon do without it.
    fn leave(&mut self) -> Result<(), NodeError> {
        if self.host.recovery.begin_leaving() { self.leave_groups() } else { self.save_last() }
    }

    /// Leaves the groups, which have views, so that the others need not find out that it has stopped, and
    /// answers what its gateways have asked for before. Not for ever: what waits is lost, as in a crash.
    fn leave_groups(&mut self) -> Result<(), NodeError> {
        self.replicas.leave(clock::now(), &mut self.host);
        let until = clock::now() + LEAVING_MAX;
        let mut last_rounds = LAST_ROUNDS;
        loop {
            self.keep(clock::now())?;
            let busy = self.round();
            if self.host.recovery.may_stop() {
                last_rounds -= 1;
                if !busy || last_rounds == 0 {
                    return Ok(());
                }
            }
            if clock::now() > until {
                tracing::warn!("{} could not leave its group in time, and stops", self.name);
                return Ok(());
            }
            if !busy {
                self.replicas.sleep(clock::now(), LEAVING_SLEEP);
            }
        }
    }

    /// The state goes to the disk while the replicas still vote and answer, so that the next
    /// incarnation has little to read. Then its connections end, by which the others know at once
    /// that it is gone: a coordinator on it is replaced.
    fn save_last(&mut self) -> Result<(), NodeError> {
        let begun = clock::now();
        self.keep(begun)?;
        if !self.host.save_last() {
            return Ok(());
        }
        while self.host.is_saving() {
            if clock::now().since(begun) >= LEAVE_PATIENCE {
                tracing::info!("{}: ends before its state is on disk", self.name);
                return Ok(());
            }
            if !self.round() {
                self.replicas.announce();
                self.replicas.sleep(clock::now(), Span::millis(1));
            }
            self.keep(clock::now())?;
        }
        // Records behind the state are trimmed now.
        self.round();
        Ok(())
    }

    /// Looks after what is kept on disk.
    fn keep(&mut self, now: Time) -> Result<(), NodeError> {
        if let Some(why) = self.replicas.failed() {
            return Err(NodeError::Disk(why));
        }
        if let Some(why) = self.host.recovery.app.differs() {
            return Err(NodeError::Differs(differs(&self.name, why, self.keeping.as_ref())));
        }
        if let Some(why) = self.replicas.must_begin_anew() {
            return Err(NodeError::Anew(why));
        }
        if let Some(dismissal) = self.replicas.dismissal() {
            self.step_down(&dismissal)?;
        }
        if let (Some(life), ReplySink::Ingress(ingress, _)) = (&self.life, &self.host.reply_sink) {
            // Nobody else has the lock: a gateway takes it where no messages are sent.
            let mut life = life.locked();
            let kept = life.keep_ahead_of(ingress.next_seq());
            kept.map_err(|e| NodeError::Io(life.path().to_path_buf(), e))?;
        }
        if let ReplySink::Ingress(ingress, _) = &self.host.reply_sink {
            ingress.set_refused(self.replicas.refusal().is_some());
        }
        if self.joining && self.is_ready() {
            self.joining = false;
            self.kept.iter().for_each(|(_, disk)| disk.has_joined());
        }
        let well_at = self.notes.as_ref().and_then(|notes| notes.well_at);
        if well_at.is_some_and(|well_at| now > well_at) && self.is_ready() {
            let (host, ours) = (&self.host, self.host.cluster.all_groups());
            let applied =
                |g: Gid| if ours.contains(g) { host.recovery.app.applied(g) } else { u64::MAX };
            if let Some(OwnNotes { file, well_at }) = &mut self.notes {
                well_at.take_if(|_| file.survives(applied));
            }
        }
        if !self.host.skips.is_empty() {
            let all_met = self.replicas.not_met().is_empty();
            self.host.skip(all_met).map_err(|e| NodeError::Disk(e.to_string()))?;
        }
        let saved = self
            .host
            .checkpoint(self.replicas.logged())
            .map_err(|e| NodeError::Disk(e.to_string()))?;
        if let Some(positions) = saved {
            tracing::info!("the state is on disk, at {positions:?}");
            if let Some((keeping, _)) = &self.kept
                && let Err(e) = self.replicas.log_ends().write(&keeping.path)
            {
                tracing::warn!("how far the logs are synced is not kept beside the state: {e}");
            }
            self.replicas.checkpointed(now, &positions, &mut self.host);
        }
        Ok(())
    }

    /// Another node knows a later life, or another start or disk of this one. On a disk on which it had its place it ends,
    /// and on one that is new to it, it has lived before.
    fn step_down(&mut self, dismissal: &Dismissal) -> Result<(), NodeError> {
        if self.kept.is_none() {
            return self.live_later(dismissal);
        }
        let (Some((keeping, disk)), Some(life)) = (&self.kept, &self.life) else {
            return Ok(());
        };
        let mut life = life.locked();
        let (name, by) = (&self.name, crate::config::node_name(dismissal.by));
        if dismissal.why == ConnectionRefusal::Old && self.joining {
            let (groups, least) = (self.host.cluster.all_groups(), life_beyond(dismissal.life));
            keeping.begin_anew(groups).map_err(|(path, e)| NodeError::Io(path, e))?;
            // Last: one that had its number and did not ask would be let in.
            life.skip_to(least).map_err(|e| NodeError::Io(life.path().to_path_buf(), e))?;
            return Err(NodeError::Anew(format!(
                "{name} lived before on another disk, as {by} says (life {} of it is known there): it \
                 begins anew, and asks the others what it had promised",
                dismissal.life
            )));
        }
        let dir = keeping.path.parent().unwrap_or(&keeping.path);
        let why = dismissal.describe((self.rank, self.host.cluster.replicas()), dir);
        Err(NodeError::Disk(disk.is_refused(why)))
    }

    /// Another node knows a later incarnation of this one, which keeps nothing: the file that counts them is gone, with the
    /// rest of its directory. It begins anew in a still later one, unless it was admitted before: then the other one is a
    /// second process of its name, and this one waits.
    fn live_later(&mut self, dismissal: &Dismissal) -> Result<(), NodeError> {
        let is_new = self.replicas.not_met().len() + 1 == self.host.cluster.replicas();
        // Over messages a second process of its name is refused for good, and the first one stays.
        let may = is_new && self.medium == MediumKind::Memory;
        let Some(mut life) = self.life.as_ref().filter(|_| may).map(SharedIncarnation::locked)
        else {
            return Ok(());
        };
        if dismissal.why != ConnectionRefusal::Old {
            return Ok(());
        }
        let least = dismissal.life.saturating_add(1);
        life.skip_to(least).map_err(|e| NodeError::Io(life.path().to_path_buf(), e))?;
        Err(NodeError::Anew(format!(
            "{} lived before, as {} says (life {} of it is known there): it begins anew, in life {least}",
            self.name,
            crate::config::node_name(dismissal.by),
            dismissal.life
        )))
    }

    /// Says now and then why it is not ready, if it is not.
    fn say_what_it_waits_for(&mut self, now: Time) {
        if now < self.say_at {
            return;
        }
        let NodeStatus { why, .. } = self.status();
        // Readiness is checked more often than missing conditions are reported.
        self.say_at = now + if why.is_empty() { SAY_FIRST } else { SAY_EVERY };
        if !why.is_empty() {
            tracing::warn!("{} is not ready: {why}", self.name);
        }
    }

    fn is_ready(&self) -> bool {
        let works = |(status, fit): (ProtocolStatus, bool)| fit && status.follows;
        self.host.cluster.all_groups().iter().all(|g| works(self.replicas.status(g)))
    }

    /// One round over everything. Says whether there was work.
    fn round(&mut self) -> bool {
        let now = clock::now();
        let mut busy = self.replicas.round(now, &mut self.host);
        busy |= self.host.collect(now);
        busy |= self.host.drain();
        self.replicas.wait_for(self.host.members());
        busy |= self.host.read(now);
        busy |= self.report(now);
        busy |= self.take_commands(now);
        busy |= self.take_reads(now);
        for group in self.host.cluster.all_groups().iter() {
            if let Some(applied) = self.host.recovery.applied(group) {
                self.replicas.applied(now, group, applied, &mut self.host);
            }
        }
        if let Some(is_full) = self.host.turns_full() {
            self.replicas.full(now, is_full, &mut self.host);
        }
        self.catch_up(now);
        busy |= self.host.give_on();
        busy |= self.replicas.flush(now, &mut self.host);
        busy |= self.host.reply_sink.round();
        busy | self.serve_requests()
    }

    /// Has members multicast what this node's application has to say by itself.
    fn report(&mut self, now: Time) -> bool {
        if now < self.reports.look_at || self.reports.are_over.load(Ordering::Relaxed) {
            return false;
        }
        self.reports.look_at = now + REPORT_LOOK;
        let mut any = false;
        for group in self.host.cluster.all_groups().iter() {
            let ReplicaHost { reply_sink: ReplySink::Ingress(ingress, _), recovery, .. } =
                &mut self.host
            else {
                break;
            };
            let (dst, (status, fit)) = (GroupSet::one(group), self.replicas.status(group));
            if !fit || !status.follows || self.replicas.room(dst, REPORT_BYTES) == 0 {
                continue;
            }
            let Some(payload) = recovery.app.report(now, group) else { continue };
            let (sender, seq) = (self.replicas.pid(group), ingress.own_seq());
            if let Some(node_history) = &mut self.host.node_history {
                node_history.cast(clock::now(), sender, MsgId { sender, seq }, dst);
                node_history.flush_casts();
            }
            let submission = Submission { seq, dst, payload: &payload };
            self.replicas.submit(now, submission, &mut self.host);
            any = true;
        }
        any
    }

    /// Has members multicast what gateways ask for, as far as there is room. Each sends what goes to its
    /// group and higher ones, under numbers that grow over all of them.
    fn take_commands(&mut self, now: Time) -> bool {
        let leaves = self.host.recovery.is_leaving() || self.host.undecided().is_some();
        let ReplySink::Ingress(ingress, _) = &mut self.host.reply_sink else { return false };
        let held = self.host.recovery.app.held(now);
        let replicas = &self.replicas;
        let works = |(status, fit): (ProtocolStatus, bool)| fit && status.follows;
        let all = self.host.cluster.all_groups();
        let is_whole = all.iter().all(|g| works(replicas.status(g)));
        let is_stuck = replicas.log_stuck_since().is_some();
        let lacks = self.host.recovery.app.lacks().is_some();
        ingress.serve(!leaves && is_whole && !is_stuck && !lacks);
        let mut any = false;
        while let ReplySink::Ingress(ingress, _) = &mut self.host.reply_sink {
            let replicas = &self.replicas;
            let taken = ingress.take(&mut |dst, bytes| {
                if !dst.and(held).is_empty() { 0 } else { replicas.room(dst, bytes) }
            });
            let Some(taken) = taken else { break };
            let (seq, dst) = (taken.seq, taken.dst);
            let sender = replicas.pid(dst.lowest().expect("a command has a destination"));
            if let Some(node_history) = &mut self.host.node_history {
                node_history.cast(clock::now(), sender, MsgId { sender, seq }, dst);
            }
            let submission = Submission { seq, dst, payload: taken.payload() };
            self.replicas.submit(now, submission, &mut self.host);
            if let ReplySink::Ingress(ingress, _) = &mut self.host.reply_sink {
                ingress.put_back(taken);
            }
            any = true;
        }
        if any && let Some(node_history) = &mut self.host.node_history {
            node_history.flush_casts();
        }
        any
    }

    /// Sets barriers for the reads that gateways ask for.
    fn take_reads(&mut self, now: Time) -> bool {
        let ReplicaHost { reply_sink: ReplySink::Ingress(ingress, _), recovery, reading, .. } =
            &mut self.host
        else {
            return false;
        };
        for mut read in ingress.take_reads() {
            read.line = recovery.app.line(&read.bytes).unwrap_or_else(|| read.own_line());
            reading.take(read, now);
        }
        let mut any = false;
        for group in self.host.cluster.all_groups().iter() {
            if let Some(ticket) = self.host.reading.begin(group, now) {
                self.replicas.set_barrier(now, group, ticket, &mut self.host);
                any = true;
            }
        }
        any
    }

    /// Fetches the application's state if it is behind, and tells the replicas when it is in force.
    fn catch_up(&mut self, now: Time) {
        if self.host.recovery.is_unfit() {
            self.replicas.unfit(now, &mut self.host);
        }
        if self.host.may_fetch(now)
            && let Some(wanted) = self.host.recovery.wants()
        {
            self.fetch(wanted);
        }
        self.host.take_over();
        if let Some(positions) = self.host.recovery.installed() {
            self.replicas.installed(now, &positions, &mut self.host);
        }
    }

    fn fetch(&mut self, wanted: WantedState) {
        let cluster = self.host.cluster;
        let leads = |rank, g| self.replicas.status(g).0.leader == Some(cluster.replica(g, rank));
        let leads = |rank| cluster.all_groups().iter().filter(|g| leads(rank, *g)).count();
        let sources = sources(self.rank, cluster.replicas(), leads);
        let others = sources.iter().map(|&rank| self.nodes[rank].clone());
        let wake = self.replicas.wake();
        match StateFetch::begin::<A>(self.host.cluster, others.collect(), wanted, wake) {
            Ok(fetching) => self.host.expect(fetching, sources),
            Err(e) => tracing::error!("{}: cannot fetch state: {e}", self.name),
        }
    }

    fn serve_requests(&mut self) -> bool {
        let mut busy = false;
        while let Ok(request) = self.requests.try_recv() {
            busy = true;
            // The caller may have gone; its answer is dropped then.
            match request {
                ControlRequest::Status(reply) => drop(reply.try_send(self.status())),
                ControlRequest::State(wanted, reply) => {
                    drop(reply.try_send(self.host.give(&wanted)))
                }
                ControlRequest::Move(places, nodes) => self.move_to(&places, nodes),
                ControlRequest::Doubt(rank) => {
                    self.replicas.doubt(clock::now(), rank, &mut self.host);
                }
            }
        }
        busy
    }

    /// Nodes are somewhere else from now on.
    fn move_to(&mut self, places: &[HostPlacement], nodes: Vec<NodeAddress>) {
        if nodes.len() == self.nodes.len() {
            self.replicas.move_to(places);
            self.nodes = nodes;
        }
    }
}
