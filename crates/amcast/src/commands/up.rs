//! `amcast up`: a cluster on this machine.

use super::{Failure, entry, setting};
use crate::client::Connection;
use crate::service::{ClusterBackend, Watch};
use amcast_core::trace::Event;
use amcast_core::{Cluster, Config};
use amcast_memory::{Directory, Idle};
use amcast_runtime::clock;
use amcast_runtime::config::{ClusterFile, Ports, Setting};
use amcast_runtime::front::{Front, FrontOptions};
use amcast_runtime::home::{Fronts, Home, OwnHome};
use amcast_runtime::record::Recorder;
use amcast_runtime::supervisor::{NodeCommand, OnDeath, Supervisor};
use amcast_services::kv::client::Server;
use amcast_services::{Status, front};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The usual ports: Redis's own, and two beside it.
const USUAL_PORTS: [u16; 3] = [6379, 6380, 6381];

/// How long a cluster may take until it serves.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How long commands that are under way may take when the cluster stops.
const DRAIN_PATIENCE: Duration = Duration::from_secs(3);

/// Connections that the Redis front serves at a time.
const REDIS_CLIENTS_MAX: usize = 10_000;

/// Runs a cluster on this machine until it is told to stop (Ctrl-C, SIGTERM).
///
/// Each node is a process of its own and hosts one replica of every shard; a node that dies is
/// started again. When all serve, one line on standard output says where.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Shards of the key-value store [3]
    #[arg(long)]
    shards: Option<usize>,
    /// Replicas of each shard, and so nodes [3]
    #[arg(long)]
    replicas: Option<usize>,
    /// The protocol that orders commands [tram]
    #[arg(long)]
    protocol: Option<String>,
    /// The tree over the shards: breadth, depth, base, or parents such as -1,0,0 [breadth]
    #[arg(long, allow_hyphen_values = true)]
    overlay: Option<String>,
    /// A new or empty directory for the cluster's files and shared memory [one in /dev/shm]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Read the cluster from this file; flags win over it
    #[arg(long)]
    config: Option<PathBuf>,
    /// A parameter of the protocol; `amcast config --explain` lists them
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Every process writes its history into this directory, for `amcast check`
    #[arg(long)]
    record: Option<PathBuf>,
    /// Port of the Redis front; 0 takes any [6379, or any if that is taken]
    #[arg(long)]
    redis_port: Option<u16>,
    /// Port of the log service; 0 takes any [6380, or any if that is taken]
    #[arg(long)]
    log_port: Option<u16>,
    /// Port of the status page and metrics; 0 takes any [6381, or any if that is taken]
    #[arg(long)]
    http_port: Option<u16>,
}

impl Args {
    fn file(&self) -> Result<ClusterFile, Failure> {
        let mut file = match &self.config {
            Some(path) => ClusterFile::read(path).map_err(Failure::misuse)?,
            None => ClusterFile::default(),
        };
        file.shards = self.shards.unwrap_or(file.shards);
        file.replicas = self.replicas.unwrap_or(file.replicas);
        if let Some(protocol) = &self.protocol {
            file.protocol.clone_from(protocol);
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
        file.ports = Ports {
            redis: self.redis_port.or(file.ports.redis),
            log: self.log_port.or(file.ports.log),
            http: self.http_port.or(file.ports.http),
        };
        Ok(file)
    }
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let file = args.file()?;
    let entry = entry(&file.protocol)?;
    let config = file.check(entry).map_err(Failure::misuse)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // The second signal ends at once: whoever sends it has waited long enough.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(Failure::failed)?;
    }
    let ports = reserve(file.ports)?;
    let own = OwnHome::create(args.data.as_deref(), &file).map_err(Failure::failed)?;
    let memory = own.home().memory(*config.cluster()).map_err(Failure::failed)?;
    let served = serve(&own, &memory, &file, &config, ports, &stop);
    let removed = own.remove(&memory, file.replicas).map_err(Failure::failed);
    served.and(removed)
}

/// Where the fronts are to listen. Port 0 is left to them, so that nobody else can take it between.
struct Reserved {
    redis: SocketAddr,
    http: SocketAddr,
    log: TcpListener,
}

/// Tries the ports before anything else is started, so that a port in use is an error at once.
fn reserve(ports: Ports) -> Result<Reserved, Failure> {
    let bind = |name: &str, given: Option<u16>, usual: u16| match given {
        Some(port) => TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|e| {
            Failure::Failed(format!(
                "port {port} cannot be used: {e}; give another --{name}-port, or 0 for any"
            ))
        }),
        None => TcpListener::bind((Ipv4Addr::LOCALHOST, usual))
            .or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .map_err(Failure::failed),
    };
    let address = |name: &str, given: Option<u16>, usual: u16| {
        let at = bind(name, given, usual)?.local_addr().map_err(Failure::failed)?;
        let port = if given.unwrap_or(usual) == at.port() { at.port() } else { 0 };
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    };
    Ok(Reserved {
        redis: address("redis", ports.redis, USUAL_PORTS[0])?,
        http: address("http", ports.http, USUAL_PORTS[2])?,
        log: bind("log", ports.log, USUAL_PORTS[1])?,
    })
}

/// Everything that listens for users.
struct Listening {
    redis: front::redis::Front,
    http: front::http::Http,
    log: SocketAddr,
}

impl Listening {
    fn begin(
        ports: Reserved,
        front: &Arc<Front>,
        watch: &Arc<Watch>,
        file: &ClusterFile,
    ) -> Result<Self, Failure> {
        let Reserved { redis: redis_at, http: http_at, log } = ports;
        let log_at = log.local_addr().map_err(Failure::failed)?;
        let status = Arc::clone(watch) as Arc<dyn Status>;
        let others = file.replicas - 1;
        let server = Arc::new(Server::new(file.shards, REDIS_CLIENTS_MAX, others, None, status));
        let first_session = u64::from(front.place()) << 48 | u64::from(front.life()) << 24;
        let redis = front::redis::start(
            front::redis::Config::new(redis_at, first_session + 1),
            Arc::new(ClusterBackend::new(Arc::clone(front))),
            Arc::clone(&server),
        );
        let redis = redis.map_err(|e| Failure::Failed(format!("{redis_at}: {e}")))?;
        let http = front::http::start(http_at, server);
        let http = http.map_err(|e| Failure::Failed(format!("{http_at}: {e}")))?;
        turn_away(log)?;
        Ok(Self { redis, http, log: log_at })
    }
}

/// Closes every connection to the port that is kept for the log service, which does not serve yet,
/// so that nobody waits for an answer. The thread ends with the process.
fn turn_away(listener: TcpListener) -> Result<(), Failure> {
    let close = move || listener.incoming().for_each(drop);
    let thread = std::thread::Builder::new().name("log-port".to_string()).spawn(close);
    thread.map(drop).map_err(Failure::failed)
}

/// Starts nodes and fronts, says so, waits for `stop`, and stops them again.
fn serve(
    own: &OwnHome,
    memory: &Directory,
    file: &ClusterFile,
    config: &Config,
    ports: Reserved,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let cluster = *config.cluster();
    let home = || Home::find(Some(own.home().path())).map_err(Failure::failed);
    let config_path = own.home().file_path().display().to_string();
    let command = NodeCommand {
        program: std::env::current_exe().map_err(Failure::failed)?,
        args: ["node", "--until-input-ends", "--config", &config_path, "--name"]
            .map(str::to_string)
            .to_vec(),
    };
    let chronicle = chronicle(file, cluster)?;
    let on_death = record_deaths(&chronicle, cluster);
    let nodes = Supervisor::start(command, file.nodes().collect(), memory.clone(), on_death)
        .map_err(Failure::failed)?;
    let watch = Watch::begin(home()?, file.protocol.clone(), cluster).map_err(Failure::failed)?;
    let watch = Arc::new(watch);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let front = Front::start(&FrontOptions {
        entry: entry(&file.protocol)?,
        config,
        directory: memory,
        idle: Idle::for_loops(file.replicas + 1, cores),
        record: file.record.clone(),
    });
    let front = Arc::new(front.map_err(Failure::failed)?);
    let listening = Listening::begin(ports, &front, &watch, file)?;
    let ready = wait_until_it_serves(&watch, listening.redis.address(), stop)?;
    if ready {
        let fronts = Fronts {
            redis: listening.redis.address().to_string(),
            log: listening.log.to_string(),
            http: listening.http.address().to_string(),
        };
        own.announce(&fronts).map_err(Failure::failed)?;
        let Fronts { redis, log, http } = fronts;
        println!("ready redis={redis} log={log} http={http}");
        std::io::stdout().flush().map_err(Failure::failed)?;
    }
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
    drain(&front);
    drop(listening);
    let settled = chronicle.is_some() && front.open() == 0 && settle(&watch, cluster);
    drop(front);
    drop(watch);
    drop(nodes);
    if settled {
        tell(&chronicle, [Event::End]);
    }
    Ok(())
}

/// Waits until every node is ready and a write over all shards went through. False if it was told
/// to stop before.
fn wait_until_it_serves(
    watch: &Watch,
    redis: SocketAddr,
    stop: &AtomicBool,
) -> Result<bool, Failure> {
    let begun = Instant::now();
    let mut last = String::new();
    while begun.elapsed() < START_PATIENCE {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match watch.all_ready().and_then(|()| probe(redis)) {
            Ok(()) => return Ok(true),
            Err(why) => last = why,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(Failure::Failed(format!("the cluster does not serve after {START_PATIENCE:?}: {last}")))
}

/// A write that leaves nothing behind, over enough keys that every shard takes part.
fn probe(redis: SocketAddr) -> Result<(), String> {
    let keys: Vec<String> = (0..256).map(|i| format!("amcast:probe:{i}")).collect();
    let words: Vec<&[u8]> =
        std::iter::once(&b"DEL"[..]).chain(keys.iter().map(String::as_bytes)).collect();
    let mut connection = Connection::open(&redis.to_string()).map_err(|e| e.to_string())?;
    match connection.call(&words) {
        Ok(answer) if answer.is_error() => Err(answer.to_string()),
        Ok(_) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

/// Waits for what is under way.
fn drain(front: &Front) {
    let begun = Instant::now();
    while front.open() > 0 && begun.elapsed() < DRAIN_PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The supervisor's own history: deaths, which a killed node cannot tell, and the end.
type Chronicle = Option<Arc<Mutex<Recorder>>>;

fn chronicle(file: &ClusterFile, cluster: Cluster) -> Result<Chronicle, Failure> {
    let Some(dir) = &file.record else { return Ok(None) };
    let recorder = Recorder::begin(dir, "supervisor", cluster, &[], clock::now());
    let recorder = recorder.map_err(|e| Failure::Failed(format!("{}: {e}", dir.display())))?;
    Ok(Some(Arc::new(Mutex::new(recorder))))
}

fn tell(chronicle: &Chronicle, events: impl IntoIterator<Item = Event<'static>>) {
    let Some(recorder) = chronicle else { return };
    let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
    events.into_iter().for_each(|event| recorder.event(&event));
    recorder.flush();
}

fn record_deaths(chronicle: &Chronicle, cluster: Cluster) -> OnDeath {
    let chronicle = chronicle.clone();
    Box::new(move |rank| {
        let replicas = cluster.all_groups().iter().map(|g| cluster.replica(g, rank));
        tell(&chronicle, replicas.map(|p| Event::Crash { t: clock::now(), p }));
    })
}

/// Waits until every replica has delivered what any of them has. Whether that came about.
fn settle(watch: &Watch, cluster: Cluster) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < DRAIN_PATIENCE {
        let nodes: Vec<_> = watch.ask_now().into_iter().flatten().collect();
        let level = |g: usize| {
            let mut at = nodes.iter().filter_map(|n| n.replicas.get(g).map(|r| r.delivered));
            let first = at.next();
            at.all(|position| Some(position) == first)
        };
        let whole = nodes.len() == cluster.replicas() && nodes.iter().all(|n| n.ready);
        if whole && (0..cluster.groups()).all(level) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
