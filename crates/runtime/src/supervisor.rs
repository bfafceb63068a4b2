//! Starts the nodes of a cluster as processes of the operating system, and starts again those that
//! die.
//!
//! A node's standard input is a pipe that the supervisor holds open: when the supervisor ends,
//! however it ends, the nodes read its end and stop.

use amcast_memory::Directory;
use rustix::process::{Pid as OsPid, Signal, kill_process};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often the supervisor looks after its nodes.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// How long a node that died waits for its next start; doubled each time, up to the longest.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// A node that lived as long as this begins again with the shortest wait.
const SETTLED: Duration = Duration::from_secs(10);

/// How long nodes may take to stop before they are killed.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How to start a node: program, and arguments in front of its name.
#[derive(Clone, Debug)]
pub struct NodeCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; the node's name follows.
    pub args: Vec<String>,
}

/// Told the rank of a node that died.
pub type OnDeath = Box<dyn FnMut(usize) + Send>;

/// Supervised nodes.
pub struct Supervisor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    restarts: AtomicU64,
    pids: Mutex<Vec<Option<u32>>>,
}

struct Nodes {
    command: NodeCommand,
    memory: Directory,
    shared: Arc<Shared>,
    on_death: OnDeath,
    slots: Vec<Slot>,
}

struct Slot {
    name: String,
    child: Option<Child>,
    started: Instant,
    back_off: Duration,
    start_at: Instant,
}

impl Supervisor {
    /// Starts the nodes named `names`.
    ///
    /// # Errors
    /// When a process cannot be started; those that were are stopped again.
    pub fn start(
        command: NodeCommand,
        names: Vec<String>,
        memory: Directory,
        on_death: OnDeath,
    ) -> io::Result<Self> {
        let pids = Mutex::new(vec![None; names.len()]);
        let (stop, restarts) = (AtomicBool::new(false), AtomicU64::new(0));
        let shared = Arc::new(Shared { stop, restarts, pids });
        let now = Instant::now();
        let slot =
            |name| Slot { name, child: None, started: now, back_off: BACK_OFF.0, start_at: now };
        let slots = names.into_iter().map(slot).collect();
        let mut nodes = Nodes { command, memory, shared: Arc::clone(&shared), on_death, slots };
        for rank in 0..nodes.slots.len() {
            if let Err(e) = nodes.spawn(rank) {
                nodes.end();
                return Err(e);
            }
        }
        let look = move || nodes.look_after();
        let thread = thread::Builder::new().name("supervisor".to_string()).spawn(look)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// How often a node was started again.
    pub fn restarts(&self) -> u64 {
        self.shared.restarts.load(Ordering::Relaxed)
    }

    /// The operating system's numbers of the nodes that run.
    pub fn os_pids(&self) -> Vec<Option<u32>> {
        self.shared.pids.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Supervisor {
    /// Stops every node: asks first, and kills what does not stop in time.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the supervisor's thread had panicked");
        }
    }
}

impl Nodes {
    fn look_after(&mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            for rank in 0..self.slots.len() {
                self.look(rank);
            }
            thread::sleep(LOOK_EVERY);
        }
        self.end();
    }

    fn look(&mut self, rank: usize) {
        let slot = &mut self.slots[rank];
        let Some(child) = &mut slot.child else {
            if Instant::now() >= slot.start_at {
                self.shared.restarts.fetch_add(1, Ordering::Relaxed);
                if let Err(e) = self.spawn(rank) {
                    tracing::error!("{}: cannot be started: {e}", self.slots[rank].name);
                }
            }
            return;
        };
        let status = match child.try_wait() {
            Ok(None) => return,
            Ok(Some(status)) => status.to_string(),
            Err(e) => e.to_string(),
        };
        if slot.started.elapsed() > SETTLED {
            slot.back_off = BACK_OFF.0;
        }
        slot.child = None;
        slot.start_at = Instant::now() + slot.back_off;
        eprintln!("amcast: {} ended ({status}); it starts again", slot.name);
        slot.back_off = (slot.back_off * 2).min(BACK_OFF.1);
        self.note_pid(rank, None);
        (self.on_death)(rank);
        // Its peers learn that its memory is gone before the next one makes new.
        if let Err(e) = self.memory.clean() {
            tracing::warn!("{e}");
        }
    }

    fn spawn(&mut self, rank: usize) -> io::Result<()> {
        let NodeCommand { program, args } = &self.command;
        let slot = &mut self.slots[rank];
        slot.started = Instant::now();
        slot.start_at = slot.started + slot.back_off;
        let mut command = Command::new(program);
        command.args(args).arg(&slot.name).stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.spawn()?;
        let id = child.id();
        slot.child = Some(child);
        self.note_pid(rank, Some(id));
        Ok(())
    }

    fn note_pid(&self, rank: usize, id: Option<u32>) {
        self.shared.pids.lock().unwrap_or_else(PoisonError::into_inner)[rank] = id;
    }

    fn end(&mut self) {
        for child in self.slots.iter().filter_map(|s| s.child.as_ref()) {
            // One that has just ended by itself is what we want.
            if let Some(pid) = OsPid::from_raw(child.id() as i32) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now() + STOP_PATIENCE;
        for slot in &mut self.slots {
            let Some(mut child) = slot.child.take() else { continue };
            loop {
                match child.try_wait() {
                    Ok(None) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
                    Ok(None) => {
                        tracing::warn!("{} did not stop in time and is killed", slot.name);
                        if let Err(e) = child.kill().and_then(|()| child.wait().map(drop)) {
                            tracing::error!("{}: {e}", slot.name);
                        }
                        break;
                    }
                    Ok(Some(_)) => break,
                    Err(e) => {
                        tracing::error!("{}: {e}", slot.name);
                        break;
                    }
                }
            }
        }
    }
}
