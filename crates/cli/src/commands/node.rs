//! `amcast node`: one node of a cluster.

use super::end_signals::end_flag;
use super::listening::{Addresses, OpenPorts, address, given, ports_before};
use super::log_output::{self, LogOutput};
use super::notify::ServiceNotifier;
use super::registration::NodeRegistration;
use super::up::{check_record_outside, servable};
use super::{Failure, entry, warn_if_others_read};
use amcast_core::{Config, Entry};
use amcast_log::StoreAndLog;
use amcast_log::{DISK_BYTES, Logs, NODE_BYTES};
use amcast_memory::Idle;
use amcast_node::cluster_dir::{ClusterDir, ForgetOutcome, LogLocation};
use amcast_node::command_gateway::{CommandGateway, GatewayOptions, OwnNode};
use amcast_node::config::{ClusterFile, HostPlacement, node_name, node_rank};
use amcast_node::control::PeerMover;
use amcast_node::gateway::log::{GrowthSource, GrowthWatch};
use amcast_node::log_lines;
use amcast_node::node::{Node, NodeError, NodeOptions};
use amcast_node::overlay_changes::OverlayRequester;
use amcast_node::service::{ClusterWatch, Reads, ServiceNode, host_logs, host_store};
use amcast_node::supervisor::{NodeProcess, obey};
use amcast_node::system::refuses_file;
use std::fs::DirBuilder;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked whether a signal came.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// When it is tried again to follow what could not be followed.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Run one node of a cluster in the foreground
///
/// The file is the same on every host: it names each node's addresses and ports. The node's log
/// goes to standard error and, with more detail, to the file NAME.log in its directory.
///
/// SIGTERM and Ctrl-C end it in good order: its gateways let nobody in, answer what they took, and
/// close; its state goes to the disk; then its connections end, by which the other nodes know at once
/// that they do without it. SIGHUP has it read the file again, for addresses of nodes that were moved
/// or replaced. Under systemd it says when it is a full member (Type=notify).
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct NodeArgs {
    #[command(subcommand)]
    offline: Option<OfflineFiles>,
    #[command(flatten)]
    run: Option<RunArgs>,
}

/// A command on the files of a node that does not run.
#[derive(clap::Subcommand)]
enum OfflineFiles {
    /// Have a node that does not run forget another one, or that it was refused itself
    ///
    /// A node remembers for good which life, start and disk of each other node it met last, and refuses
    /// earlier ones. Where such an earlier one is the right one after all, since the later one never
    /// answered anybody, every node that met the later one is to forget it, and the refused node that it
    /// was refused (`amcast node forget n1 --config FILE --name n1`). The command asks before it forgets: an
    /// acknowledged write may be lost if the later one did answer somebody.
    Forget(ForgetArgs),
}

#[derive(clap::Args)]
struct ForgetArgs {
    /// The node that it forgets: n0, n1, ..; its own name for its own refusal
    node: String,
    /// The cluster's file
    #[arg(long)]
    config: PathBuf,
    /// The node that is to forget, on this host
    #[arg(long)]
    name: String,
    /// Forget without asking; needed where there is no terminal to ask at
    #[arg(long)]
    yes: bool,
}

#[derive(clap::Args)]
struct RunArgs {
    /// The cluster's file
    #[arg(long)]
    config: PathBuf,
    /// Stop when standard input ends: the process that started this node has ended
    #[arg(long, hide = true)]
    until_input_ends: bool,
    /// Which node: n0, n1, ..
    #[arg(long)]
    name: String,
    /// Serve Redis clients on this machine at this port, not at the file's; 0 takes any, if
    /// possible the one that it had before
    #[arg(long)]
    redis_port: Option<u16>,
    /// The same for the log over gRPC
    #[arg(long)]
    log_port: Option<u16>,
    /// The same for the status page and metrics
    #[arg(long)]
    http_port: Option<u16>,
}

impl NodeArgs {
    /// Its log for people.
    pub(super) fn journal(&self) -> LogOutput {
        match &self.run {
            Some(run) if self.offline.is_none() => {
                log_output::of_node(run.name(), &run.log(), run.last_words())
            }
            _ => log_output::of_command(),
        }
    }
}

pub(super) fn run(args: &NodeArgs) -> Result<(), Failure> {
    match (&args.offline, &args.run) {
        (Some(OfflineFiles::Forget(args)), _) => forget(args),
        (None, Some(args)) => serve(args),
        (None, None) => Err(Failure::Misuse("--config and --name are needed".to_string())),
    }
}

/// The node of that name, of those in the file.
fn rank_of(file: &ClusterFile, name: &str) -> Result<usize, Failure> {
    node_rank(name).filter(|&rank| rank < file.replicas).ok_or_else(|| {
        let all: Vec<_> = file.nodes().collect();
        Failure::Misuse(format!("no node is named {name}; there are: {}", all.join(", ")))
    })
}

fn forget(args: &ForgetArgs) -> Result<(), Failure> {
    let file = ClusterFile::read(&args.config).map_err(Failure::misuse)?;
    let (rank, of) = (rank_of(&file, &args.name)?, rank_of(&file, &args.node)?);
    let dir = ClusterDir::of_host(&file, &args.config);
    dir.check_not_elsewhere(&file, &args.config, rank..rank + 1)?;
    let mut outcome = dir.forget(rank, of, args.yes).map_err(Failure::Failed)?;
    if let ForgetOutcome::Unconfirmed { has_refused } = outcome {
        confirm_forget(args, has_refused)?;
        outcome = dir.forget(rank, of, true).map_err(Failure::Failed)?;
    }
    let (name, of) = (&args.name, &args.node);
    println!(
        "{}",
        match (outcome == ForgetOutcome::Forgotten, name == of) {
            (true, true) => format!("{name} has forgotten that it was refused"),
            (true, false) => format!(
                "{name} has forgotten {of}, and takes in the first disk of it that it meets"
            ),
            (false, true) => format!("{name} was not refused"),
            (false, false) => format!("{name} never met {of}"),
        }
    );
    Ok(())
}

/// Asks at the terminal whether to forget.
///
/// # Errors
/// When the answer is no, or there is no terminal.
fn confirm_forget(args: &ForgetArgs, has_refused: bool) -> Result<(), Failure> {
    let risk = forget_risk(args, has_refused);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::Misuse(format!(
            "nothing was forgotten, since there is no terminal to ask at: {risk}. Add --yes if that is right"
        )));
    }
    let what = if args.name == args.node { "the refusal of " } else { "" };
    eprint!("{risk}.\nForget {what}{}? [y/N] ", args.node);
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(Failure::failed)?;
    match is_yes(&answer) {
        true => Ok(()),
        false => Err(Failure::Failed("nothing was forgotten".to_string())),
    }
}

/// The possible loss if a node forgets.
fn forget_risk(args: &ForgetArgs, has_refused: bool) -> String {
    let (name, of) = (&args.name, &args.node);
    if name == of {
        return format!(
            "{name} will start again from a disk that another node refused, because it knows a later start or disk of \
             {name}. If that later one ever answered anybody, acknowledged writes may be lost"
        );
    }
    let needless = match has_refused {
        true => String::new(),
        false => format!(
            "{name} has refused no earlier disk or start of {of} since it met {of} last, so {of} can come back without \
             this. "
        ),
    };
    format!(
        "{needless}{name} will admit any disk of {of}, also one that promised less than the disk that it met last. If \
         that last one ever answered anybody, acknowledged writes may be lost"
    )
}

/// Whether a typed answer confirms.
fn is_yes(answer: &str) -> bool {
    matches!(answer.trim(), "y" | "Y" | "yes" | "Yes" | "YES")
}

impl RunArgs {
    /// The node's name, as it was given.
    fn name(&self) -> &str {
        &self.name
    }

    /// The path of its log. A name that is no node's gets none; nor does a file that cannot be
    /// read, which is reported later.
    fn log(&self) -> PathBuf {
        let Ok(file) = ClusterFile::read(&self.config) else { return PathBuf::new() };
        let rank = node_rank(&self.name).filter(|&rank| rank < file.replicas);
        let Some(rank) = rank else { return PathBuf::new() };
        let dir = ClusterDir::of_host(&file, &self.config);
        // The directory does not exist at the first start; an error in making it is reported later.
        let _ = DirBuilder::new().mode(0o700).create(dir.path());
        // A path that is not a file might block the node for ever; that is reported later, too.
        if dir.check_files(Some(rank)).is_ok() { dir.log(rank) } else { PathBuf::new() }
    }

    /// Its last error, if the supervisor that starts it has started it before: that was reported already.
    fn last_words(&self) -> Option<String> {
        let file = ClusterFile::read(&self.config).ok().filter(|_| self.until_input_ends)?;
        let (dir, rank) = (ClusterDir::of_host(&file, &self.config), node_rank(&self.name)?);
        dir.check_files(Some(rank)).ok()?;
        let has_ended = |life: &NodeProcess| life.last_end.is_some();
        dir.lives().get(rank).filter(|life| has_ended(life)).and_then(|_| dir.last_words(rank))
    }

    /// Where it serves clients, if it is to: clients come back to a node that was started again.
    fn addresses(
        &self,
        dir: &ClusterDir,
        rank: usize,
        place: Option<&HostPlacement>,
    ) -> Result<Option<Addresses>, Failure> {
        let flags = [self.redis_port, self.log_port, self.http_port];
        let place = place.filter(|place| place.serves());
        if flags.iter().all(Option::is_none) && place.is_none() {
            return Ok(None);
        }
        let [redis_before, log_before, http_before] = ports_before(dir, Some(rank), [0; 3]);
        let gateway =
            |key: &str, flag: Option<u16>, in_file: Option<SocketAddr>, before| match in_file
                .filter(|_| flag.is_none())
            {
                Some(at) => given(&format!("nodes.{}.{key}", node_name(rank)), at),
                None => address(key, flag.filter(|&port| port != 0), before),
            };
        let [redis, log, http] = flags;
        let redis = gateway("redis", redis, place.and_then(|p| p.redis), redis_before)?;
        let http = gateway("http", http, place.and_then(|p| p.http), http_before)?;
        let log = gateway("log", log, place.and_then(|p| p.log), log_before)?;
        Ok(Some(Addresses { redis, log, http }))
    }
}

fn serve(args: &RunArgs) -> Result<(), Failure> {
    let (mut file, rank) = read(args)?;
    let entry = entry(&file.protocol)?;
    servable(entry, &file)?;
    let config = file.check(entry).map_err(Failure::misuse)?;
    let dir = ClusterDir::of_host(&file, &args.config);
    check_place(args, &dir, &file, rank)?;
    let signals = Signals::take()?;
    let mut registration = NodeRegistration::begin(&file, rank)?;
    // The addresses that this host learned from the others in an earlier incarnation.
    let before = dir.file().ok().filter(|before| before.id == file.id);
    dir.make_on_host(&mut file)?;
    registration.settle(&mut file, before.as_ref(), (&dir, &signals.end))?;
    dir.prepare_host(&mut file)?;
    if file.durable {
        dir.keep_decides(rank, &file.decides_in_full(entry.about().params))?;
    }
    let ground = dir
        .ground(&file, (entry.about().medium, entry.about().params), &config)
        .map_err(Failure::failed)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = NodeOptions {
        entry,
        config: &config,
        ground: &ground,
        nodes: dir.nodes(&file),
        rank,
        idle: Idle::for_loops(file.replicas + 1, cores),
        record: file.record.clone(),
        keeping: keeping(args, &file, &dir, (entry, rank)),
        state_per_second: file.state_per_second(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let supervisor = args.until_input_ends.then(|| SupervisorInput::listen(&stop)).transpose()?;
    let growth = GrowthWatch::default();
    let app = service(&file, entry, &dir, rank, &growth, cores)?;
    let reads = Some(app.reads());
    let mut node = Node::start(&options, app).map_err(Failure::failed)?;
    let own = node.own();
    let place = file.nodes.get(&node_name(rank));
    let overlays = node.overlays();
    let sources = GatewaySources { own, reads, growth: GrowthSource::Node(growth), overlays };
    let begin = |at| NodeGateways::begin(at, &options, sources, &file, &dir);
    let serving = args.addresses(&dir, rank, place)?.map(begin).transpose()?;
    let watch = serving.as_ref().map(|serving| Arc::clone(&serving.watch));
    let serving = GatewaySlot(Arc::new(Mutex::new(serving)));
    if let Some(supervisor) = supervisor {
        supervisor.has_started(StartedNode::new(node.end_reports(), &serving, &dir, rank));
    }
    let reload = ConfigReload {
        path: args.config.clone(),
        file: file.clone(),
        config: config.clone(),
        dir: dir.clone(),
        name: node_name(rank),
        socket: dir.socket(rank),
        mover: node.mover(),
        watch,
        registration,
        try_at: None,
    };
    let notify = ServiceNotifier::of_system(dir.socket(rank));
    signals.attend(reload, serving.clone(), notify, &stop)?;
    let ended = node.run(&stop);
    drop(serving.take());
    drop(node);
    ended.map_err(end)
}

/// Checks that the node can have this directory.
fn check_place(
    args: &RunArgs,
    dir: &ClusterDir,
    file: &ClusterFile,
    rank: usize,
) -> Result<(), Failure> {
    dir.check_files(Some(rank))?;
    dir.check_not_elsewhere(file, &args.config, rank..rank + 1)?;
    // Without `data` the directory is that of the cluster's file, which may have other files in it.
    if let (Some(record), Some(data)) = (&file.record, &file.data) {
        check_record_outside("record =", record, data)?;
    }
    if dir.has_lived(rank) { Ok(()) } else { file.check_log_room().map_err(Failure::misuse) }
}

/// The node's standard input, from which it hears its supervisor. It listens before it reads its state, which may take
/// long: a supervisor that was killed meanwhile would have left a node behind that its next start finds alive.
struct SupervisorInput {
    /// A line came: the node serves no more clients.
    closes: Arc<AtomicBool>,
    node: Arc<OnceLock<StartedNode>>,
}

/// The parts of a node that serve, from when it has started.
struct StartedNode {
    /// Once it is set the node reports nothing by itself.
    reports_end: Arc<AtomicBool>,
    serving: GatewaySlot,
    dir: ClusterDir,
    rank: usize,
}

impl SupervisorInput {
    /// Has the node end when its standard input does, and serve no more clients from a line there on.
    fn listen(stop: &Arc<AtomicBool>) -> Result<Self, Failure> {
        let this = Self { closes: Arc::default(), node: Arc::default() };
        let (closes, node) = (Arc::clone(&this.closes), Arc::clone(&this.node));
        let close = move || {
            closes.store(true, Ordering::SeqCst);
            // Before the look at the node: it may be starting, and looks there when it has.
            fence(Ordering::SeqCst);
            if let Some(node) = node.get() {
                node.close();
            }
        };
        obey(stop, close).map_err(Failure::failed)?;
        Ok(this)
    }

    /// The node has started.
    fn has_started(self, node: StartedNode) {
        let node = self.node.get_or_init(|| node);
        fence(Ordering::SeqCst);
        if self.closes.load(Ordering::SeqCst) {
            node.close();
        }
    }
}

impl StartedNode {
    fn new(
        reports_end: Arc<AtomicBool>,
        serving: &GatewaySlot,
        dir: &ClusterDir,
        rank: usize,
    ) -> Self {
        Self { reports_end, serving: serving.clone(), dir: dir.clone(), rank }
    }

    /// Closes the gateways for good, if there are some, and has the node report nothing by itself.
    fn close(&self) {
        self.reports_end.store(true, Ordering::Relaxed);
        if self.serving.close()
            && let Err(e) = self.dir.withdraw_node(self.rank)
        {
            tracing::warn!("{e}");
        }
    }
}

/// Why the node ends. One that lived before on another disk, or whose log was cut short, starts again instead.
fn end(why: NodeError) -> Failure {
    if !matches!(why, NodeError::Anew(_)) {
        return Failure::failed(why);
    }
    tracing::warn!("{why}");
    begin_anew()
}

/// Starts this program again in the same process; gives why that is not possible.
fn begin_anew() -> Failure {
    log_lines::end();
    let again = std::env::current_exe()
        .map(|program| Command::new(program).args(std::env::args_os().skip(1)).exec());
    let (Ok(why) | Err(why)) = again;
    Failure::Failed(format!("it cannot start again by itself ({why}): start it"))
}

/// The cluster's file, and which node this is.
fn read(args: &RunArgs) -> Result<(ClusterFile, usize), Failure> {
    let mut file = ClusterFile::read(&args.config).map_err(Failure::misuse)?;
    if file.password.is_some() {
        warn_if_others_read(&args.config);
    }
    if let Some(secret) = &file.secret {
        warn_if_others_read(secret);
    }
    // The data of a node without a supervisor outlasts it: its next start continues from the data.
    file.durable |=
        !args.until_input_ends && { entry(&file.protocol)?.capabilities().durability.has_log() };
    let rank = rank_of(&file, &args.name)?;
    file.check_strangers().map_err(Failure::Misuse)?;
    Ok((file, rank))
}

/// Where the node keeps what it must not forget. One whose directory is new in a cluster that works
/// already may have lived before.
fn keeping(
    args: &RunArgs,
    file: &ClusterFile,
    dir: &ClusterDir,
    (entry, rank): (&dyn Entry, usize),
) -> Option<LogLocation> {
    let mut keeping = dir.keeping(file, entry.capabilities().durability, rank)?;
    if !args.until_input_ends
        && let Some((other, life)) = dir.may_have_lived(file, rank, &keeping)
    {
        let known = life.map_or_else(String::new, |life| format!(" and knows life {life} of it"));
        tracing::warn!(
            "{} has nothing on disk, and {other} works already{known}: in case it lived before it asks \
             the others what it had promised",
            node_name(rank)
        );
        keeping.has_lived(life);
    }
    Some(keeping)
}

/// The service of the node, on a host of so many cores; `growth` learns how its logs grow.
fn service(
    file: &ClusterFile,
    entry: &dyn Entry,
    dir: &ClusterDir,
    rank: usize,
    growth: &GrowthWatch,
    cores: usize,
) -> Result<ServiceNode<StoreAndLog>, Failure> {
    let share = amcast_smr::workers(cores, file.replicas, file.shards);
    let workers = file.workers.unwrap_or(share).min(file.shards);
    tracing::info!("{workers} threads execute commands besides the node's own");
    let growth = growth.clone();
    let on_growth = Arc::new(move |log: &[u8], extent| growth.tell(log, extent));
    host_logs(logs(file, dir)?.telling(on_growth));
    host_store(file).map_err(Failure::Misuse)?;
    Ok(ServiceNode::new(file.shards, workers)
        .with_clock(entry, file, rank)
        .with_digests(entry, file, rank))
}

/// The logs of a node, in memory or in files, as the cluster's file has it.
fn logs(file: &ClusterFile, dir: &ClusterDir) -> Result<Logs, Failure> {
    let bytes = |mb: usize| mb.saturating_mul(1_000_000);
    let memory = file.log_mb.map_or(NODE_BYTES, bytes);
    let Some(directory) = &file.log_dir else { return Ok(Logs::new(file.shards, memory)) };
    let (disk, directory) =
        (file.log_disk_mb.map_or(DISK_BYTES, bytes), dir.path().join(directory));
    Logs::on_disk(file.shards, memory, disk, &directory)
        .map_err(|e| Failure::Failed(format!("log_dir = {}", refuses_file(&directory, &e))))
}

/// The signals that the node receives from the system.
struct Signals {
    end: Arc<AtomicBool>,
    read_again: Arc<AtomicBool>,
}

impl Signals {
    fn take() -> Result<Self, Failure> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let end = end_flag(&[SIGTERM, SIGINT]).map_err(Failure::failed)?;
        let this = Self { end, read_again: Arc::default() };
        signal_hook::flag::register(SIGHUP, Arc::clone(&this.read_again))
            .map_err(Failure::failed)?;
        Ok(this)
    }

    /// Does what is asked, in a thread of its own: to end, which closes the gateways first and then sets
    /// `stop`, or to read the file again. That thread panics, which ends the node, if the gateways do not serve any more.
    fn attend(
        self,
        mut reload: ConfigReload,
        serving: GatewaySlot,
        mut notify: ServiceNotifier,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), Failure> {
        let stop = Arc::clone(stop);
        let look = move || {
            while !stop.load(Ordering::Relaxed) {
                if self.end.load(Ordering::Relaxed) {
                    notify.stopping();
                    // Where its gateways were stays written: those of its next life are there again.
                    serving.close();
                    return stop.store(true, Ordering::Relaxed);
                }
                if self.read_again.swap(false, Ordering::Relaxed) {
                    reload.read_again();
                }
                assert!(!serving.has_failed(), "a thread that serves clients has failed");
                reload.look();
                notify.look();
                std::thread::sleep(LOOK_EVERY);
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_string()).spawn(look);
        thread.map(drop).map_err(Failure::failed)
    }
}

/// The state for following changes of the nodes in the cluster's file and in the registry.
struct ConfigReload {
    path: PathBuf,
    /// The cluster as it is known.
    file: ClusterFile,
    /// The node's control socket.
    socket: PathBuf,
    registration: NodeRegistration,
    config: Config,
    dir: ClusterDir,
    /// Which node this is.
    name: String,
    mover: PeerMover,
    watch: Option<Arc<ClusterWatch>>,
    /// When what is on the registry is followed again that could not be.
    try_at: Option<Instant>,
}

impl ConfigReload {
    fn read_again(&mut self) {
        match self.try_again() {
            Ok(()) => tracing::info!("{}: was read again", self.path.display()),
            Err(why) => tracing::error!("the file is not read again: {why}"),
        }
    }

    fn try_again(&mut self) -> Result<(), String> {
        let told = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let new = ClusterFile::read(&self.path).map_err(|e| e.to_string())?;
        let entry = entry(&new.protocol).map_err(|_| format!("protocol = {}", new.protocol))?;
        let config = new.check(entry).map_err(|e| told(&self.path, &e))?;
        new.clone().go_on_from(&self.file)?;
        if config != self.config {
            return Err("something else than addresses is different: restart the node".to_string());
        }
        self.registration.publish_places(&new);
        if let Some(own) = new.nodes.get(&self.name) {
            self.file.nodes.insert(self.name.clone(), own.clone());
        }
        Ok(())
    }

    /// Follows new entries of the registry, and publishes this node's own there.
    fn look(&mut self) {
        let again = self.try_at.take_if(|at| *at <= Instant::now()).is_some();
        if (self.registration.has_changed() || again)
            && let Err(why) = self.follow()
        {
            tracing::error!("where nodes are now is not followed yet: {why}");
            self.try_at = Some(Instant::now() + TRY_AGAIN);
        }
        for rank in self.registration.dead() {
            // A hint: a busy mover ignores it.
            let _ = self.mover.doubt(rank);
        }
        self.registration.tell_leads(&self.socket);
    }

    fn follow(&mut self) -> Result<(), String> {
        let new = ClusterFile { nodes: self.registration.places(&self.file), ..self.file.clone() };
        if new.nodes == self.file.nodes {
            return Ok(());
        }
        let places = new.places()?;
        let nodes = self.dir.nodes(&new);
        self.mover.move_to(places, nodes.clone()).map_err(|e| e.to_string())?;
        self.watch.iter().for_each(|watch| watch.move_to(nodes.clone()));
        if new.data.is_some() {
            // Tools that ask for the cluster's status ask at the nodes' present addresses.
            self.dir.write_file(&new).map_err(|e| e.to_string())?;
        }
        self.file = new;
        Ok(())
    }
}

/// The gateway of a node, until it is closed.
#[derive(Clone)]
struct GatewaySlot(Arc<Mutex<Option<NodeGateways>>>);

impl GatewaySlot {
    fn locked(&self) -> MutexGuard<'_, Option<NodeGateways>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<NodeGateways> {
        self.locked().take()
    }

    /// Serves no more clients, and ends when nothing is under way; whether it served any.
    fn close(&self) -> bool {
        let taken = self.take();
        taken.map(|gateways| gateways.listening.close(&gateways.gateway)).is_some()
    }

    /// Whether a thread of it ended before it was closed: it had panicked.
    fn has_failed(&self) -> bool {
        let serving = self.locked();
        serving.as_ref().is_some_and(|of| !of.listening.is_serving() || !of.gateway.is_serving())
    }
}

/// The parts of a node that its gateways use directly.
struct GatewaySources {
    own: Option<OwnNode>,
    reads: Option<Arc<Reads>>,
    growth: GrowthSource,
    /// Gets the gateway, so that requests to the node for another tree have one that multicasts them.
    overlays: OverlayRequester,
}

/// The gateway of a node.
struct NodeGateways {
    listening: OpenPorts,
    gateway: Arc<CommandGateway>,
    watch: Arc<ClusterWatch>,
}

impl NodeGateways {
    fn begin(
        at: Addresses,
        node: &NodeOptions<'_>,
        sources: GatewaySources,
        file: &ClusterFile,
        dir: &ClusterDir,
    ) -> Result<Self, Failure> {
        let name = node_name(node.rank);
        let cluster = *node.config.cluster();
        let watch = ClusterWatch::begin(dir.clone(), name, file, cluster);
        let watch = Arc::new(watch.map_err(Failure::failed)?);
        let gateway = CommandGateway::start(&GatewayOptions {
            entry: node.entry,
            config: node.config,
            ground: node.ground,
            own: sources.own,
            idle: node.idle,
            record: node.record.clone(),
        });
        let gateway = Arc::new(gateway.map_err(Failure::failed)?);
        sources.overlays.ask_through(&gateway);
        let from = (sources.reads, sources.growth);
        let listening = OpenPorts::begin(at, &gateway, &watch, file, from)?;
        dir.announce_node(node.rank, &listening.gateways())?;
        Ok(Self { listening, gateway, watch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_confirms() {
        assert!(["y\n", "Y\n", "yes\n", " yes "].iter().all(|answer| is_yes(answer)));
        assert!(["", "\n", "n\n", "no\n", "yet\n"].iter().all(|answer| !is_yes(answer)));
    }

    #[test]
    fn the_question_names_the_loss_and_says_where_nothing_was_refused() {
        let risk = |node: &str, has_refused| {
            let (node, name) = (node.to_string(), "n0".to_string());
            forget_risk(&ForgetArgs { node, config: PathBuf::new(), name, yes: false }, has_refused)
        };
        let all = [risk("n1", true), risk("n1", false), risk("n0", true)];
        assert!(all.iter().all(|text| text.contains("acknowledged writes may be lost")), "{all:?}");
        assert!(all[0].starts_with("n0 will admit any disk of n1"), "{}", all[0]);
        assert!(all[1].starts_with("n0 has refused no earlier disk or start of n1"), "{}", all[1]);
        assert!(all[2].starts_with("n0 will start again"), "{}", all[2]);
    }
}
