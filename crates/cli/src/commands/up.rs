//! `amcast up`: a cluster on this machine.

mod probe;

use self::probe::ServingProbe;
use super::end_signals::end_flag;
use super::listening::{Addresses, OpenPorts, address, ports_before};
use super::terminal_text::warn;
use super::{Failure, entry, once_each, secret, setting, warn_if_others_read};
use amcast_core::limits::REPLICAS_MAX;
use amcast_core::trace::TraceEvent;
use amcast_core::{Capability, ClusterShape, Config, Entry};
use amcast_lab::bench;
use amcast_memory::Idle;
use amcast_node::clock;
use amcast_node::cluster_dir::{
    CapacityCheck, ClusterDir, ClusterDirError, ClusterRegistry, GatewayAddresses, SupervisedDir,
    Transport, logs_bytes,
};
use amcast_node::command_gateway::{CommandGateway, GatewayOptions};
use amcast_node::config::settings::flag_help;
use amcast_node::config::{
    ClusterFile, GatewayPorts, MAXMEMORY_MB, PartitionOrder, Setting, USUAL_PROTOCOL, orders_all,
};
use amcast_node::gateway::log::GrowthSource;
use amcast_node::history::{self, HistoryRecorder, LIMIT_BYTES};
use amcast_node::secret::random_word;
use amcast_node::service::{
    ClusterReadiness, ClusterWatch, LateNodes, LostShard, NotServing, START_PATIENCE,
    first_partitions,
};
use amcast_node::supervisor::{NodeCommand, NodeProcess, OnNodeChange, Supervisor};
use amcast_node::system::refuses_file;
use amcast_protocols::multiring;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The usual ports: Redis's own, and two beside it.
const USUAL_PORTS: [u16; 3] = [6379, 6380, 6381];

/// Where a cluster keeps its data that was not told where: a directory here.
const USUAL_DATA: &str = "amcast-data";

/// How long replicas may take to come to the same position when the cluster stops.
const SETTLE_PATIENCE: Duration = Duration::from_secs(5);

/// For how long all replicas must have delivered the same, before nothing counts as under way.
const AT_REST: Duration = Duration::from_millis(250);

/// Places for clients besides the gateways: benchmarks, tools, and lives that overlap.
const PLACES_SPARE: usize = 4;

/// Runs a cluster on this machine until it receives a signal to stop (Ctrl-C, SIGTERM, the terminal
/// closes).
///
/// Each node is a process of its own and hosts one replica of every shard; a node that dies is
/// started again; one that has died 20 times in a row within a second of its start, every 30 seconds.
/// When all serve, or a majority does and 5 s later the others still do not, one line on standard output says where;
/// warnings name the nodes that are missing, and those that come later. Every node serves Redis clients, too: `amcast status`
/// names the ports.
///
/// An acknowledged write is on the disks of a majority of the nodes, synced: it survives the kill of
/// nodes, even of all at once. The data are in ./amcast-data, or where --data says, and stay there when
/// the cluster ends, however it does; the next `up` continues with them. With --storage memory, or a
/// protocol that keeps nothing, such as tram, all data end with the cluster.
///
/// When it stops it removes its own files and nothing else but the data that stay. A cluster whose `up`
/// was killed (-9) stops as well; its directory is taken over by the next `up` with the same --data.
#[derive(clap::Args)]
pub(super) struct UpArgs {
    #[arg(long, help = flag_help("shards"))]
    shards: Option<usize>,
    #[arg(long, help = flag_help("replicas"))]
    replicas: Option<usize>,
    #[arg(long, help = flag_help("protocol"))]
    protocol: Option<String>,
    /// Where what is acknowledged is: on the disks of a majority; in their memory, and with their
    /// operating systems; or in their memory alone. Short for --protocol multi-ring, multi-ring-async,
    /// multi-ring-memory [disk]
    #[arg(long, value_enum, conflicts_with = "protocol")]
    storage: Option<StorageChoice>,
    #[arg(long, allow_hyphen_values = true, help = flag_help("overlay"))]
    overlay: Option<String>,
    #[arg(long, help = flag_help("workers"))]
    workers: Option<usize>,
    #[arg(long, value_name = "MB", help = flag_help("maxmemory-mb"))]
    maxmemory_mb: Option<u64>,
    #[arg(long, value_name = "MB", help = flag_help("command-max-mb"))]
    command_max_mb: Option<usize>,
    #[arg(long, value_name = "MB", help = flag_help("log-mb"))]
    log_mb: Option<usize>,
    #[arg(long, value_name = "DIR", help = flag_help("log-dir"))]
    log_dir: Option<PathBuf>,
    #[arg(long, value_name = "MB", help = flag_help("log-disk-mb"))]
    log_disk_mb: Option<usize>,
    #[arg(long, value_name = "ORDER", value_parser = partition, help = flag_help("partition"))]
    partition: Option<PartitionOrder>,
    #[arg(long, value_name = "N", help = flag_help("partitions"))]
    partitions: Option<usize>,
    #[arg(long, value_name = "KEY,KEY,..", value_delimiter = ',', help = flag_help("boundaries"))]
    boundaries: Vec<String>,
    #[arg(long, value_name = "DIR", help = flag_help("data"))]
    data: Option<PathBuf>,
    /// Read the cluster from this file; flags win over it
    #[arg(long)]
    config: Option<PathBuf>,
    /// A parameter of the protocol; `amcast config --explain` lists them
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    #[arg(long, value_name = "DIR", help = flag_help("record"))]
    record: Option<PathBuf>,
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..), help = flag_help("record-limit"))]
    record_limit: Option<u64>,
    #[arg(long, value_name = "FILE", help = flag_help("password-file"))]
    password_file: Option<PathBuf>,
    #[arg(long, help = flag_help("no-node-fronts"))]
    no_node_fronts: bool,
    /// Port of the Redis gateway; 0 takes any, if possible the one that it had before [the one of the
    /// cluster whose data are continued, else 6379, or any if that is taken]
    #[arg(long)]
    redis_port: Option<u16>,
    /// Port of the log service; likewise [6380]
    #[arg(long)]
    log_port: Option<u16>,
    /// Port of the status page and metrics; likewise [6381]
    #[arg(long)]
    http_port: Option<u16>,
}

/// Where what is acknowledged is.
#[derive(clap::ValueEnum, Clone, Copy)]
enum StorageChoice {
    Disk,
    Async,
    Memory,
}

impl StorageChoice {
    /// The protocol that keeps it there.
    fn protocol(self) -> &'static str {
        match self {
            Self::Disk => multiring::SYNCED.name(),
            Self::Async => multiring::WRITTEN.name(),
            Self::Memory => multiring::MEMORY.name(),
        }
    }
}

impl UpArgs {
    /// The protocol that was asked for here.
    fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref().or(self.storage.map(StorageChoice::protocol))
    }

    /// The directory of the cluster, if it is not left to us. A protocol that keeps something gets one
    /// that stays.
    fn data(&self) -> Result<Option<PathBuf>, Failure> {
        let file = self.config.as_deref().map(ClusterFile::read).transpose();
        let file = file.map_err(Failure::misuse)?.unwrap_or_default();
        if let (None, Some(_), Some(config)) = (&self.data, &file.data, &self.config) {
            let dir = ClusterDir::of_host(&file, config);
            dir.check_not_elsewhere(&file, config, 0..REPLICAS_MAX)?;
        }
        if let Some(data) = self.data.clone().or(file.data) {
            return Ok(Some(data));
        }
        // An unknown protocol is reported later.
        let entry = entry(self.protocol().unwrap_or(&file.protocol));
        let keeps = entry.is_ok_and(|entry| entry.capabilities().durability.has_log());
        Ok(keeps.then(|| PathBuf::from(USUAL_DATA)))
    }

    /// The directory of the logs of the file that is to run, if it is there to be looked at. A relative one is seen from the
    /// same directory as by `amcast node`; where that is still to be made, or is the one of the existing cluster, it
    /// stays relative to it.
    fn log_dir_of(&self, file: &ClusterFile) -> Option<PathBuf> {
        let log_dir = file.log_dir.as_ref()?;
        let from = match (&self.config, &self.data) {
            _ if log_dir.is_absolute() => return Some(log_dir.clone()),
            (None, _) => return None,
            (Some(_), Some(data)) => data.clone(),
            (Some(config), None) => ClusterDir::of_host(file, config).path().to_path_buf(),
        };
        from.is_dir().then(|| from.join(log_dir))
    }

    /// The file of the cluster that is to run; `kept` is that of one that keeps its data where this
    /// one is to run.
    fn file(&self, kept: Option<&ClusterFile>) -> Result<ClusterFile, Failure> {
        let mut file = match (&self.config, kept) {
            (Some(path), _) => ClusterFile::read(path).map_err(Failure::misuse)?,
            (None, Some(kept)) => kept.clone(),
            (None, None) => ClusterFile::default(),
        };
        if self.config.is_none() {
            file.forget_run();
        }
        if let Some(path) = self.config.as_ref().filter(|_| file.password.is_some()) {
            warn_if_others_read(path);
        }
        file.shards = self.shards.unwrap_or(file.shards);
        file.replicas = self.replicas.unwrap_or(file.replicas);
        file.workers = self.workers.or(file.workers);
        file.maxmemory_mb = self.maxmemory_mb.or(file.maxmemory_mb);
        file.command_max_mb = self.command_max_mb.or(file.command_max_mb);
        file.log_mb = self.log_mb.or(file.log_mb);
        file.log_disk_mb = self.log_disk_mb.or(file.log_disk_mb);
        if let Some(dir) = self.log_dir.clone().or_else(|| self.log_dir_of(&file)) {
            // Said here, once, and not by each node.
            let usable = amcast_log::LogDisk::new(&dir, 0);
            usable.map_err(|e| Failure::Misuse(format!("--log-dir {}", refuses_file(&dir, &e))))?;
            file.log_dir = Some(std::path::absolute(&dir).map_err(Failure::misuse)?);
        }
        file.partition = self.partition.unwrap_or(file.partition);
        file.partitions = self.partitions.or(file.partitions);
        if !self.boundaries.is_empty() {
            file.boundaries.clone_from(&self.boundaries);
        }
        if let Some(protocol) = self.protocol() {
            file.protocol = protocol.to_string();
        }
        // Its nodes find it beside the file.
        file.data = None;
        file.record_limit = self.record_limit.or(file.record_limit);
        if self.no_node_fronts {
            file.node_fronts = Some(false);
        }
        if let Some(overlay) = &self.overlay {
            file.overlay.clone_from(overlay);
        }
        for (name, value) in &self.set {
            file.set.insert(name.clone(), Setting::Word(value.clone()));
        }
        if let Some(dir) = self.record.as_ref().or(file.record.as_ref()) {
            // Nodes read the file from elsewhere.
            file.record = Some(std::path::absolute(dir).map_err(Failure::misuse)?);
        }
        if let Some(path) = &self.password_file {
            file.password = Some(secret(path)?);
        }
        if file.password.as_deref() == Some("") {
            return Err(Failure::misuse("password = \"\" would let everybody in: leave it out"));
        }
        file.ports = GatewayPorts {
            redis: self.redis_port.or(file.ports.redis),
            log: self.log_port.or(file.ports.log),
            http: self.http_port.or(file.ports.http),
        };
        Ok(file)
    }
}

/// Takes over what nobody says from the file that an earlier run left; a new cluster has the usual bound of memory, and
/// a seed of its own.
fn keep_as_it_was(file: &mut ClusterFile, kept: Option<&ClusterFile>) -> std::io::Result<()> {
    let Some(kept) = kept else {
        file.maxmemory_mb = file.maxmemory_mb.or(Some(MAXMEMORY_MB));
        if file.hash_seed.is_none() {
            file.hash_seed = Some(random_word()?);
        }
        return Ok(());
    };
    file.log_dir = file.log_dir.take().or_else(|| kept.log_dir.clone());
    file.maxmemory_mb = file.maxmemory_mb.or(kept.maxmemory_mb);
    file.command_max_mb = file.command_max_mb.or(kept.command_max_mb);
    Ok(())
}

pub(super) fn run(args: UpArgs) -> Result<(), Failure> {
    once_each(&args.set)?;
    let data = args.data()?;
    let kept = data.as_deref().map(ClusterDir::kept).transpose()?.flatten();
    let mut file = args.file(kept.as_ref())?;
    let entry = entry(&file.protocol)?;
    let node_fronts = file.node_fronts.unwrap_or(true);
    let gateways = 1 + if node_fronts { file.replicas } else { 0 };
    give_places(&mut file, gateways);
    if !entry.capabilities().several_groups
        && args.shards.is_none()
        && args.config.is_none()
        && kept.is_none()
    {
        // These order within one group: one is the default.
        file.shards = 1;
    }
    servable(entry, &file)?;
    if file.etcd.is_some() {
        return Err(Failure::misuse(
            "[etcd] is for nodes on hosts of their own, which `amcast node` starts there; `amcast up` \
             knows where its nodes are: leave it out",
        ));
    }
    file.check_names(entry).map_err(Failure::misuse)?;
    keep_as_it_was(&mut file, kept.as_ref()).map_err(Failure::failed)?;
    if let (Some(kept), Some(data)) = (&kept, &data) {
        file.go_on_from(kept).map_err(|why| ClusterDirError::Another(data.clone(), why))?;
    }
    file.settle(entry, data.is_some()).map_err(Failure::failed)?;
    if kept.is_none() && file.durable {
        // Where a disk is used for all that is ordered, logs may be larger than memory.
        file.log_dir = file.log_dir.or_else(|| Some(PathBuf::from(".")));
    }
    if file.log_disk_mb.is_some() && file.log_dir.is_none() {
        return Err(Failure::misuse("--log-disk-mb is for logs in files: give --log-dir, too"));
    }
    let config = file.check(entry).map_err(Failure::misuse)?;
    if kept.is_none() {
        file.check_log_room().map_err(Failure::misuse)?;
    }
    first_partitions(&file).map_err(Failure::Misuse)?;
    let stop = end_flag(&[SIGTERM, SIGINT, SIGHUP]).map_err(Failure::failed)?;
    let room = CapacityCheck::of(entry, &config).map_err(Failure::misuse)?;
    let before = match (&data, &kept) {
        (Some(data), Some(_)) => ports_before(&ClusterDir::at(data)?, None, USUAL_PORTS),
        _ => USUAL_PORTS,
    };
    let ports = addresses(file.ports, before)?;
    bench::clear_left_over();
    prepare_record(&file, data.as_deref(), kept.is_some())?;
    let mut own = SupervisedDir::create(data.as_deref(), &mut file, ClusterRegistry::usual())?;
    let ground = own.dir().ground(&file, (entry.about().medium, entry.about().params), &config)?;
    warn_if_nothing_is_kept(entry, data.as_deref());
    let goes_on = kept.is_some();
    let plan = UpPlan { file: &file, config: &config, node_fronts, goes_on, stop: &stop };
    let logs = if goes_on { 0 } else { logs_bytes(&file, entry.capabilities().durability) };
    let needed = room.map_or(0, |room| room.with_gateways(gateways)) + logs;
    let served = match own.dir().check_room(needed) {
        Ok(()) => plan.serve(&mut own, &ground, ports),
        Err(e) => {
            own.keep_only(goes_on);
            Err(e.into())
        }
    };
    let removed = own.remove(&ground, matches!(served, Ok(CleanStop { keep_logs: true }) | Err(_)));
    served?;
    Ok(removed?)
}

/// Makes the directory in which the processes record their histories, if they are to; says so where the cluster
/// `goes_on` with data that no history has.
fn prepare_record(file: &ClusterFile, data: Option<&Path>, goes_on: bool) -> Result<(), Failure> {
    let Some(dir) = &file.record else { return Ok(()) };
    data.map_or(Ok(()), |data| check_record_outside("--record", dir, data))?;
    if goes_on {
        warn(format_args!(
            "the cluster has data from before: the history in {} begins with them, and `amcast check` does not \
             judge what was sent before, nor what clients read",
            dir.display()
        ));
    }
    let limit_bytes = file.record_limit.map_or(LIMIT_BYTES, |mb| mb << 20);
    history::prepare(dir, limit_bytes).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::misuse(format!("{}: {e}", dir.display())),
        _ => Failure::Failed(format!("--record {}", refuses_file(dir, &e))),
    })
}

/// Checks that histories, which `what` has recorded in `dir`, are not recorded in the cluster's own directory: one with
/// something else in it is refused at the next start.
pub(super) fn check_record_outside(what: &str, dir: &Path, data: &Path) -> Result<(), Failure> {
    if !resolved(dir).starts_with(resolved(data)) {
        return Ok(());
    }
    Err(Failure::Misuse(format!(
        "{what} {}: is in {}, the directory of the cluster itself; give one outside of it",
        dir.display(),
        data.display()
    )))
}

/// Says so where data were given a directory and are in memory, or the usual directory has data of another cluster.
fn warn_if_nothing_is_kept(entry: &dyn Entry, data: Option<&Path>) {
    let Err(missing) = entry.require(Capability::DurableLog) else { return };
    if data.is_none() && Path::new(USUAL_DATA).is_dir() {
        warn(format_args!(
            "{missing}: this is a new cluster, and the data in ./{USUAL_DATA} are not used"
        ));
    }
    if let Some(data) = data {
        warn(format_args!(
            "{missing}: the data in {} end with the cluster, and are lost when a majority of nodes fails; \
             {USUAL_PROTOCOL}, the usual protocol, keeps acknowledged writes",
            data.display()
        ));
    }
}

/// Where a path leads, of which only a part may exist.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let real = |there: &Path| Some(there.canonicalize().ok()?.join(path.strip_prefix(there).ok()?));
    path.ancestors().find_map(real).unwrap_or_else(|| path.clone())
}

/// Reads the order of keys that partitions are parts of.
fn partition(text: &str) -> Result<PartitionOrder, String> {
    match text {
        "hash" => Ok(PartitionOrder::Hash),
        "range" => Ok(PartitionOrder::Range),
        _ => Err("give hash or range".to_string()),
    }
}

/// Sees to it that there is a place for every gateway, and some to spare.
pub(super) fn give_places(file: &mut ClusterFile, gateways: usize) {
    file.clients = file.clients.max(gateways + PLACES_SPARE);
}

/// Whether a cluster of real processes can run this protocol in this shape.
pub(super) fn servable(entry: &dyn Entry, file: &ClusterFile) -> Result<(), Failure> {
    let name = entry.name();
    if let Err(missing) = entry.require_service() {
        return Err(Failure::Misuse(format!(
            "{name} is not served: {missing}; try it with amcast sim --protocol {name}"
        )));
    }
    if file.shards > 1
        && let Err(missing) = entry.require(Capability::SeveralGroups)
    {
        return Err(Failure::Misuse(format!(
            "shards = {}: {missing}; give --shards 1, or a protocol that multicasts to several: \
             amcast choose --multicast",
            file.shards
        )));
    }
    if !entry.about().is_uniform() {
        warn(format_args!(
            "{name} is not uniform throughout: when a node fails, is partitioned away or is excluded because \
             it was slow, writes that it acknowledged may be lost, or it may have executed them in another \
             order than the others, so the store is not linearizable then; uniform are: amcast choose --spec \
             'TO(UA,SUTO)'"
        ));
    }
    Ok(())
}

/// Where the supervisor is to listen; `before` are the ports that it had, or the usual ones. They are
/// tried before anything else is started, so that a port in use is an error at once.
fn addresses(ports: GatewayPorts, before: [u16; 3]) -> Result<Addresses, Failure> {
    let given = |port: Option<u16>| port.filter(|&port| port != 0);
    // A gateway that takes any port, and had none, gets one that is not among the usual ones.
    let or = |port: Option<u16>, i: usize| match port {
        Some(0) if before[i] == USUAL_PORTS[i] => 0,
        _ => before[i],
    };
    let redis = address("redis", given(ports.redis), or(ports.redis, 0))?;
    let log = address("log", given(ports.log), or(ports.log, 1))?;
    let http = address("http", given(ports.http), or(ports.http, 2))?;
    Ok(Addresses { redis, log, http })
}

/// The cluster to run.
struct UpPlan<'a> {
    file: &'a ClusterFile,
    config: &'a Config,
    /// Whether every node serves clients.
    node_fronts: bool,
    /// Whether nodes continue with the data of an earlier cluster on their disks.
    goes_on: bool,
    stop: &'a AtomicBool,
}

/// A cluster that was stopped in good order.
struct CleanStop {
    /// Whether a node ended in a way that its log tells more about.
    keep_logs: bool,
}

impl UpPlan<'_> {
    /// Starts nodes and gateways, says so, waits for `stop`, and stops them again.
    fn serve(
        &self,
        own: &mut SupervisedDir,
        ground: &Transport,
        ports: Addresses,
    ) -> Result<CleanStop, Failure> {
        let Self { file, config, stop, .. } = *self;
        let cluster = *config.cluster();
        let dir = own.dir().clone();
        let own_history = supervisor_history(file, cluster)?;
        let on_change = on_change(&dir, &own_history, cluster);
        let command = self.node_command(&dir)?;
        let nodes = Supervisor::start(command, file.nodes().collect(), ground.clone(), on_change)
            .map_err(Failure::failed)?;
        let watch = ClusterWatch::begin(dir.clone(), "gateway".to_string(), file, cluster);
        let watch = Arc::new(watch.map_err(Failure::failed)?);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let gateway = CommandGateway::start(&GatewayOptions {
            entry: entry(&file.protocol)?,
            config,
            ground,
            own: None,
            idle: Idle::for_loops(file.replicas + 1, cores),
            record: file.record.clone(),
        });
        let gateway = Arc::new(gateway.map_err(Failure::failed)?);
        let (announced, replicas) = (dir.clone(), file.replicas);
        let gateways = move || {
            (0..replicas).filter_map(|rank| announced.gateways_of(rank).ok()?.log).collect()
        };
        let hears = GrowthSource::Others(Arc::new(gateways));
        let listening = OpenPorts::begin(ports, &gateway, &watch, file, (None, hears))?;
        let mut late = self.wait((&dir, &nodes), &watch, listening.redis())?;
        if late.is_some() {
            // Its probe was a command, too.
            watch.begin_workload();
            let gateways = listening.gateways();
            own.announce(&gateways)?;
            say_ready(&gateways);
        }
        let mut told = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            tell_lost(&watch, &file.protocol, &mut told);
            late.iter_mut().for_each(|late| late.tell_arrived(&watch));
            if !gateway.is_serving() || !listening.is_serving() {
                return Err(Failure::Failed("a thread that serves clients has failed".to_string()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        tell_of_the_end(file);
        // First nobody may ask for more; then what was asked for is done, everywhere.
        nodes.close_gateways();
        listening.close(&gateway);
        let settled = own_history.is_some() && gateway.open() == 0 && settle(&watch, &dir, cluster);
        drop(gateway);
        drop(watch);
        let keep_logs = nodes.lives().iter().any(NodeProcess::is_telling);
        drop(nodes);
        finish(&own_history, file, settled);
        Ok(CleanStop { keep_logs })
    }

    /// Waits until it serves; the nodes that it serves without, or nothing if it was stopped before.
    fn wait(
        &self,
        (dir, nodes): (&ClusterDir, &Supervisor),
        watch: &ClusterWatch,
        door: SocketAddr,
    ) -> Result<Option<LateNodes>, Failure> {
        let probe = ServingProbe {
            door,
            password: self.file.password.as_deref(),
            together: orders_all(entry(&self.file.protocol)?, self.config),
        };
        let readiness = ClusterReadiness {
            dir,
            watch,
            nodes,
            probe: &|| probe.run(),
            goes_on: self.goes_on,
            patience: START_PATIENCE,
        };
        readiness.wait(self.stop).map_err(does_not_serve)
    }

    fn node_command(&self, dir: &ClusterDir) -> Result<NodeCommand, Failure> {
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let mut args = vec![OsString::from("node"), "--until-input-ends".into()];
        if self.node_fronts {
            args.extend(
                ["--redis-port", "0", "--log-port", "0", "--http-port", "0"].map(OsString::from),
            );
        }
        args.extend(["--config".into(), dir.file_path().into_os_string(), "--name".into()]);
        Ok(NodeCommand { program, args })
    }
}

/// Why the cluster does not serve. Lines of its nodes and of their supervisor are there already.
fn does_not_serve(why: NotServing) -> Failure {
    let see = if matches!(why, NotServing::CannotStart(_)) { "; see above" } else { "" };
    Failure::Failed(format!("{why}{see}"))
}

/// Says which shards have lost their state, each once: their nodes are started again and again, and
/// nobody can give them any.
fn tell_lost(watch: &ClusterWatch, protocol: &str, told: &mut Vec<LostShard>) {
    let lost = watch.lost();
    for new in lost.iter().filter(|lost| !told.contains(lost)) {
        tracing::error!(
            "{new} ({protocol} keeps its state in memory only; multi-ring, the usual protocol, keeps it \
             on disks)"
        );
    }
    *told = lost;
}

/// Says what comes of impatience where a history is recorded.
fn tell_of_the_end(file: &ClusterFile) {
    if let Some(dir) = &file.record {
        tracing::warn!(
            "it stops, which takes some seconds; a second signal would end it at once, and the \
             history in {} without its end: then liveness cannot be judged",
            dir.display()
        );
    }
}

/// Says on standard output that the cluster serves. Nobody has to read it, and nobody waits until it is read.
fn say_ready(GatewayAddresses { redis, log, http }: &GatewayAddresses) {
    let log = log.as_deref().unwrap_or_default();
    let line = format!("ready redis={redis} log={log} http={http}\n");
    let at = format!("ready at redis={redis} http={http}");
    let say = move || {
        let mut out = std::io::stdout();
        if let Err(e) = out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
            tracing::warn!("standard output cannot be written ({e}); {at}");
        }
    };
    if let Err(e) = std::thread::Builder::new().name("ready".to_string()).spawn(say) {
        tracing::warn!("standard output is not written: {e}");
    }
}

/// The supervisor's own history: deaths, which a killed node cannot tell, and the end.
type SupervisorHistory = Option<Arc<Mutex<HistoryRecorder>>>;

fn supervisor_history(
    file: &ClusterFile,
    cluster: ClusterShape,
) -> Result<SupervisorHistory, Failure> {
    let Some(dir) = &file.record else { return Ok(None) };
    let recorder = HistoryRecorder::begin(dir, "supervisor", cluster, &[], clock::now());
    let recorder = recorder.map_err(|e| Failure::Failed(refuses_file(dir, &e)))?;
    Ok(Some(Arc::new(Mutex::new(recorder))))
}

fn tell(own_history: &SupervisorHistory, events: impl IntoIterator<Item = TraceEvent<'static>>) {
    let Some(recorder) = own_history else { return };
    let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
    events.into_iter().for_each(|event| recorder.event(&event));
    recorder.flush();
}

/// Writes down what happens to nodes: for `amcast status`, and in the history.
fn on_change(
    dir: &ClusterDir,
    own_history: &SupervisorHistory,
    cluster: ClusterShape,
) -> OnNodeChange {
    let (dir, own_history) = (dir.clone(), own_history.clone());
    Box::new(move |ended, lives| {
        if let Some(rank) = ended {
            let replicas = cluster.all_groups().iter().map(|g| cluster.replica(g, rank));
            tell(&own_history, replicas.map(|p| TraceEvent::Crash { t: clock::now(), p }));
        }
        if let Err(e) = dir.write_lives(lives) {
            tracing::warn!("`amcast status` will not know: {e}");
        }
    })
}

/// Ends the history, if the run settled and nothing of it is missing; else says why not.
fn finish(own_history: &SupervisorHistory, file: &ClusterFile, settled: bool) {
    let Some(dir) = &file.record else { return };
    let why = history::stopped(dir);
    if settled && why.is_none() {
        tell(own_history, [TraceEvent::End]);
        return;
    }
    let why = why.unwrap_or_else(|| "the replicas did not come to the same position".to_string());
    tracing::warn!("the history has no end, liveness will not be judged: {}", why.trim_end());
}

/// Waits until no node serves clients and every replica has delivered what any of them has. Whether
/// that came about.
fn settle(watch: &ClusterWatch, dir: &ClusterDir, cluster: ClusterShape) -> bool {
    let begun = Instant::now();
    let mut rests: Option<(Vec<u64>, Instant)> = None;
    while begun.elapsed() < SETTLE_PATIENCE {
        let nodes: Vec<_> = watch.ask_now().into_iter().flatten().collect();
        let level = |g: usize| {
            let mut at = nodes.iter().filter_map(|n| n.replicas.get(g).map(|r| r.delivered));
            let first = at.next();
            at.all(|position| Some(position) == first)
        };
        let whole = nodes.len() == cluster.replicas() && nodes.iter().all(|n| n.ready);
        let closed = (0..cluster.replicas()).all(|rank| dir.gateways_of(rank).is_err());
        let positions: Vec<u64> = nodes
            .first()
            .map_or_else(Vec::new, |n| n.replicas.iter().map(|r| r.delivered).collect());
        // A last message may be under way, which no replica has delivered.
        rests = match rests.filter(|(at, _)| *at == positions) {
            _ if !(closed && whole && (0..cluster.groups()).all(level)) => None,
            Some((_, since)) if since.elapsed() >= AT_REST => return true,
            Some(rests) => Some(rests),
            None => Some((positions, Instant::now())),
        };
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[cfg(test)]
mod tests;
