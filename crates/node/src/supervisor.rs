//! Starts the nodes of a cluster as processes of the operating system, and starts again those that
//! die.
//!
//! A node's standard input is a pipe that the supervisor holds open: when the supervisor ends,
//! however it ends, the nodes read its end and stop. A line in it asks a node to serve no more
//! clients, so that the cluster can come to rest before it stops.
//!
//! A node that ends is started again after a wait that doubles from one early end to the next. One
//! that always ends early is given up after [`EARLY_ENDS_MAX`] times: what fails so often fails for a reason that
//! another start does not mend. An end is early within [`EARLY`] of the start, and one by the node itself within
//! [`EARLY_BY_ITSELF`], since it takes a moment to find a full disk. Reasons go away, too, as when a full memory has room
//! again: it is tried again now and then ([`TRY_AGAIN`]).

use crate::cluster_dir::Transport;
use crate::log_lines;
use rustix::process::{Pid as OsPid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often the supervisor looks after its nodes.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// How long a node that died waits for its next start; doubled each time, up to the longest.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// A node that ends sooner after its start than this ended early; one that lived longer begins again
/// with the shortest wait.
pub const EARLY: Duration = Duration::from_secs(1);

/// The same for a node that ends by itself, with an exit code or by a fault, and is not killed.
pub const EARLY_BY_ITSELF: Duration = Duration::from_secs(10);

/// So many early ends in a row, and a node is given up.
pub const EARLY_ENDS_MAX: u32 = 20;

/// How long a node that was given up waits for its next start.
pub const TRY_AGAIN: Duration = Duration::from_secs(30);

/// The exit code of a program that panicked.
const PANICKED: i32 = 101;

/// How long nodes may take to stop before they are killed.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How long a node may take to stop when its supervisor has ended.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(5);

/// The node's side: calls `close` when the supervisor asks to serve no more clients, sets `stop` when
/// standard input ends, and ends the process if it does not stop then.
///
/// # Errors
/// When the thread that listens cannot be started.
pub fn obey(stop: &Arc<AtomicBool>, mut close: impl FnMut() + Send + 'static) -> io::Result<()> {
    let stop = Arc::clone(stop);
    let listen = move || {
        let mut line = [0; 64];
        loop {
            match io::stdin().read(&mut line) {
                Ok(1..) => close(),
                // A signal of the program's own came in between.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A read returns nothing when the other end is closed.
                Ok(0) | Err(_) => break,
            }
        }
        stop.store(true, Ordering::Relaxed);
        thread::sleep(ORPHAN_PATIENCE);
        tracing::error!("the supervisor has ended, and this node does not stop: it ends at once");
        log_lines::end();
        std::process::exit(1);
    };
    thread::Builder::new().name("input".to_string()).spawn(listen).map(drop)
}

/// How to start a node: program, and arguments in front of its name.
#[derive(Clone, Debug)]
pub struct NodeCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; the node's name follows.
    pub args: Vec<OsString>,
}

/// The supervisor's record of a node's incarnations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProcess {
    /// The node's name.
    pub name: String,
    /// Its number in the operating system; none while it does not run.
    pub os_pid: Option<u32>,
    /// How often it was started.
    pub starts: u64,
    /// How it ended last, for people: `was killed by SIGKILL`.
    pub last_end: Option<String>,
    /// It ended early too often in a row: nobody counts on it, and it is tried again now and then.
    pub given_up: bool,
}

impl NodeProcess {
    /// That the node is down for good, for people, and how it ended; none of one that is started again
    /// at once. `last_words` is what its log says of that.
    pub fn down(&self, last_words: Option<&str>) -> Option<String> {
        let how = self.last_end.as_deref().filter(|_| self.given_up)?;
        let why = last_words.map_or_else(String::new, |why| format!(": {why}"));
        Some(format!(
            "{} is DOWN, each start of it fails; it is tried again every {TRY_AGAIN:?}; its last process {how}{why}",
            self.name
        ))
    }

    /// Whether the node ended by itself: its log says why then. A kill from outside leaves no word.
    pub fn is_telling(&self) -> bool {
        let killed = |end: &String| end.contains("SIGKILL") || end.contains("SIGTERM");
        self.given_up || self.last_end.as_ref().is_some_and(|end| !killed(end))
    }
}

/// Told whenever a node starts or ends, with the rank of one that just ended.
pub type OnNodeChange = Box<dyn FnMut(Option<usize>, &[NodeProcess]) + Send>;

/// Supervised nodes.
pub struct Supervisor {
    shared: Arc<SupervisorShared>,
    thread: Option<JoinHandle<()>>,
}

struct SupervisorShared {
    stop: AtomicBool,
    /// The nodes are to serve no more clients.
    close: AtomicBool,
    lives: Mutex<Vec<NodeProcess>>,
}

struct SupervisedNodes {
    command: NodeCommand,
    ground: Transport,
    shared: Arc<SupervisorShared>,
    on_change: OnNodeChange,
    slots: Vec<NodeSlot>,
}

struct NodeSlot {
    life: NodeProcess,
    early_ends: u32,
    child: Option<Child>,
    /// The child was asked to serve no more clients.
    closed: bool,
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
        ground: Transport,
        on_change: OnNodeChange,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let slot = |name| NodeSlot {
            life: NodeProcess { name, ..NodeProcess::default() },
            early_ends: 0,
            child: None,
            closed: false,
            started: now,
            back_off: BACK_OFF.0,
            start_at: now,
        };
        let slots: Vec<NodeSlot> = names.into_iter().map(slot).collect();
        let lives = Mutex::new(Vec::new());
        let shared = Arc::new(SupervisorShared {
            stop: AtomicBool::new(false),
            close: AtomicBool::new(false),
            lives,
        });
        let mut nodes =
            SupervisedNodes { command, ground, shared: Arc::clone(&shared), on_change, slots };
        for rank in 0..nodes.slots.len() {
            if let Err(e) = nodes.spawn(rank) {
                nodes.end();
                return Err(e);
            }
        }
        nodes.tell(None);
        let look = move || nodes.look_after();
        let thread = thread::Builder::new().name("supervisor".to_string()).spawn(look)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Asks all nodes to serve no more clients. They continue to order and execute.
    pub fn close_gateways(&self) {
        self.shared.close.store(true, Ordering::Release);
    }

    /// The record of each node's incarnations.
    pub fn lives(&self) -> Vec<NodeProcess> {
        self.shared.lives.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

impl SupervisedNodes {
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
                if let Err(e) = self.spawn(rank) {
                    // A start that fails is as good as an early end: the next one waits as long.
                    let how = format!("could not be started: {e}");
                    say(&self.slots[rank].ended(&how, EARLY));
                }
                self.tell(None);
            }
            return;
        };
        let (how, early) = match child.try_wait() {
            Ok(None) => {
                if self.shared.close.load(Ordering::Acquire)
                    && let Some(mut input) = child.stdin.take_if(|_| !slot.closed)
                {
                    slot.closed = true;
                    // One that is just dying serves nobody either.
                    let _ = input.write_all(b"close\n");
                    child.stdin = Some(input);
                }
                if slot.recovered() {
                    self.tell(None);
                }
                return;
            }
            Ok(Some(status)) => (exit_reason(status), early(status)),
            Err(e) => (format!("is lost: {e}"), EARLY),
        };
        slot.child = None;
        say(&slot.ended(&how, early));
        self.tell(Some(rank));
        // Its peers learn that its memory is gone before the next one makes new.
        if let Err(e) = self.ground.clean() {
            tracing::warn!("{e}");
        }
    }

    fn spawn(&mut self, rank: usize) -> io::Result<()> {
        let NodeCommand { program, args } = &self.command;
        let slot = &mut self.slots[rank];
        slot.started = Instant::now();
        slot.start_at = slot.started + slot.back_off;
        let mut command = Command::new(program);
        command.args(args).arg(&slot.life.name).stdin(Stdio::piped()).stdout(Stdio::null());
        // Ctrl-C on a terminal is for the supervisor, which stops the nodes when they are drained.
        command.process_group(0);
        let child = command.spawn()?;
        slot.life.os_pid = Some(child.id());
        slot.life.starts += 1;
        slot.child = Some(child);
        slot.closed = false;
        Ok(())
    }

    /// Tells what has changed.
    fn tell(&mut self, ended: Option<usize>) {
        let lives: Vec<NodeProcess> = self.slots.iter().map(|slot| slot.life.clone()).collect();
        (self.on_change)(ended, &lives);
        *self.shared.lives.lock().unwrap_or_else(PoisonError::into_inner) = lives;
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
                        tracing::warn!("{} did not stop in time and is killed", slot.life.name);
                        if let Err(e) = child.kill().and_then(|()| child.wait().map(drop)) {
                            tracing::error!("{}: {e}", slot.life.name);
                        }
                        break;
                    }
                    Ok(Some(_)) => break,
                    Err(e) => {
                        tracing::error!("{}: {e}", slot.life.name);
                        break;
                    }
                }
            }
        }
    }
}

impl NodeSlot {
    /// Whether the node had been given up, and lives. One that ends early all the same is given up again at once.
    fn recovered(&mut self) -> bool {
        let lives = self.life.given_up && self.started.elapsed() >= EARLY;
        self.life.given_up &= !lives;
        lives
    }

    /// Takes note of an end, which is early within so long of the start, and decides what comes next: a line for the
    /// operator.
    fn ended(&mut self, how: &str, early: Duration) -> String {
        let early = self.started.elapsed() < early;
        if !early {
            self.early_ends = 0;
            self.back_off = BACK_OFF.0;
        }
        self.early_ends += u32::from(early);
        let NodeProcess { name, os_pid, last_end, given_up, .. } = &mut self.life;
        let was = os_pid.take().map_or_else(String::new, |n| format!(" (process {n})"));
        *last_end = Some(how.to_string());
        *given_up = self.early_ends >= EARLY_ENDS_MAX;
        let (wait, next) = if *given_up {
            let next = format!(
                "it ended {} times in a row soon after its start and is given up: the others \
                 continue without it, and it is tried again in {TRY_AGAIN:?}",
                self.early_ends
            );
            (TRY_AGAIN, next)
        } else {
            (self.back_off, format!("it is started again in {:?}", self.back_off))
        };
        self.start_at = Instant::now() + wait;
        let line = format!("{name}{was} {how}; {next}");
        self.back_off = (self.back_off * 2).min(BACK_OFF.1);
        line
    }
}

/// How a process ended, to follow its name.
fn exit_reason(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(PANICKED), _) => format!("panicked (exit code {PANICKED})"),
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(number)) => match signal_hook::low_level::signal_name(number) {
            Some(name) => format!("was killed by signal {number} ({name})"),
            None => format!("was killed by signal {number}"),
        },
        (None, None) => status.to_string(),
    }
}

/// Within how long of the start an end like this is early.
fn early(status: ExitStatus) -> Duration {
    let is_fault = |signal| {
        let faults = [Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE];
        faults.iter().any(|fault| fault.as_raw() == signal)
    };
    match status.signal() {
        Some(signal) if !is_fault(signal) => EARLY,
        _ => EARLY_BY_ITSELF,
    }
}

/// A line for the operator. A terminal that is gone, or stopped, is no reason to stop.
fn say(line: &str) {
    log_lines::standard_error().put(format!("amcast: {line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_dir::Net;

    fn slot(lived: Duration) -> NodeSlot {
        let now = Instant::now();
        NodeSlot {
            life: NodeProcess { name: "n0".to_string(), os_pid: Some(7), ..NodeProcess::default() },
            early_ends: 0,
            child: None,
            closed: false,
            started: now.checked_sub(lived).expect("the clock is older than a test"),
            back_off: BACK_OFF.0,
            start_at: now,
        }
    }

    #[test]
    fn a_node_that_ends_early_again_and_again_waits_longer_and_is_given_up() {
        let _limit = amcast_test_policy::time_limit();
        let mut slot = slot(Duration::ZERO);
        for n in 1..=EARLY_ENDS_MAX {
            slot.started = Instant::now();
            let line = slot.ended("panicked", EARLY);
            assert_eq!(line.contains("given up"), n == EARLY_ENDS_MAX, "{line}");
            assert_eq!(slot.life.given_up, n == EARLY_ENDS_MAX, "after {n}");
        }
        assert_eq!(slot.back_off, BACK_OFF.1);
        assert_eq!(slot.life.last_end.as_deref(), Some("panicked"));
        assert_eq!(slot.life.os_pid, None);
    }

    #[test]
    fn a_node_that_was_given_up_is_tried_again_later_and_forgiven_when_it_lives() {
        let _limit = amcast_test_policy::time_limit();
        let mut slot = slot(Duration::ZERO);
        slot.early_ends = EARLY_ENDS_MAX - 1;
        slot.back_off = BACK_OFF.1;
        slot.ended("ended with exit code 1", EARLY);
        assert!(slot.start_at > slot.started + TRY_AGAIN - EARLY, "not at once");
        let down = slot.life.down(Some("8 MB are needed")).expect("it is down");
        assert!(down.contains("n0 is DOWN") && down.ends_with("code 1: 8 MB are needed"), "{down}");
        slot.started = Instant::now();
        assert!(!slot.recovered(), "it has only just begun");
        slot.started -= EARLY;
        assert!(slot.recovered() && !slot.recovered(), "once");
        assert!(!slot.life.given_up);
        assert_eq!(slot.life.down(None), None);
        slot.ended("was killed", EARLY);
        assert_eq!(slot.early_ends, 0);
    }

    #[test]
    fn a_node_that_ends_by_itself_some_seconds_after_each_start_is_given_up_and_a_killed_one_is_not()
     {
        let _limit = amcast_test_policy::time_limit();
        for (status, gives_up) in
            [(1 << 8, true), (101 << 8, true), (6, true), (9, false), (15, false)]
        {
            let status = ExitStatus::from_raw(status);
            let mut slot = slot(Duration::ZERO);
            let mut end_after = |lived: Duration| {
                slot.started = Instant::now() - lived;
                slot.recovered();
                slot.ended(&exit_reason(status), early(status));
                slot.life.given_up
            };
            let ends: Vec<bool> = (0..=EARLY_ENDS_MAX).map(|_| end_after(EARLY * 3 / 2)).collect();
            let wanted: Vec<bool> =
                (1..=EARLY_ENDS_MAX + 1).map(|n| gives_up && n >= EARLY_ENDS_MAX).collect();
            assert_eq!(ends, wanted, "{status}: and again at once when it was tried again");
            // One that worked for longer begins anew.
            assert!(!end_after(EARLY_BY_ITSELF * 2) && !end_after(EARLY / 2), "{status}");
        }
    }

    /// The slots of a supervisor without a thread, with one node that runs `program`.
    fn nodes(program: &str) -> SupervisedNodes {
        let (stop, close) = (AtomicBool::new(false), AtomicBool::new(false));
        let lives = Mutex::new(Vec::new());
        SupervisedNodes {
            command: NodeCommand { program: program.into(), args: Vec::new() },
            ground: Transport::Net(Net::of(
                std::env::temp_dir(),
                crate::node_address::ClusterKey::default(),
                Vec::new(),
            )),
            shared: Arc::new(SupervisorShared { stop, close, lives }),
            on_change: Box::new(|_, _| {}),
            slots: vec![slot(Duration::ZERO)],
        }
    }

    /// Looks after the node until then, or for so long; how often it was tried to start it.
    fn look_for(
        nodes: &mut SupervisedNodes,
        span: Duration,
        is_enough: fn(&NodeSlot) -> bool,
    ) -> u32 {
        let (until, mut starts) = (Instant::now() + span, 0);
        while Instant::now() < until && !is_enough(&nodes.slots[0]) {
            let before = nodes.slots[0].started;
            nodes.look(0);
            starts += u32::from(nodes.slots[0].started != before);
            thread::sleep(Duration::from_millis(1));
        }
        starts
    }

    #[test]
    fn a_node_that_keeps_dying_is_started_ever_less_often_and_hardly_any_more_once_given_up() {
        let _limit = amcast_test_policy::time_limit();
        // One that ends at once, and one that cannot even be started.
        for program in ["false", "/nonexistent/amcast"] {
            let (mut nodes, never) = (nodes(program), |_: &NodeSlot| false);
            let starts = look_for(&mut nodes, BACK_OFF.0 * 20, never);
            // After 0, 1, 3, 7 and 15 of the shortest waits.
            assert!((1..=5).contains(&starts), "{program}: {starts} starts");
            let slot = &mut nodes.slots[0];
            (slot.early_ends, slot.start_at) = (EARLY_ENDS_MAX - 1, Instant::now());
            look_for(&mut nodes, TRY_AGAIN / 2, |slot| slot.life.given_up);
            assert!(nodes.slots[0].life.given_up, "{program}");
            let again = look_for(&mut nodes, BACK_OFF.0 * 20, never);
            assert_eq!(again, 0, "{program} was given up");
            assert!(nodes.slots[0].start_at > Instant::now() + TRY_AGAIN / 2);
        }
    }

    #[test]
    fn a_node_that_lived_is_not_held_to_its_earlier_ends() {
        let _limit = amcast_test_policy::time_limit();
        let mut slot = slot(EARLY * 2);
        slot.early_ends = EARLY_ENDS_MAX - 1;
        slot.back_off = BACK_OFF.1;
        slot.ended("was killed", EARLY);
        assert!(!slot.life.given_up);
        assert_eq!((slot.early_ends, slot.back_off), (0, BACK_OFF.0 * 2));
    }

    #[test]
    fn ends_are_told_by_signal_and_by_exit_code() {
        let _limit = amcast_test_policy::time_limit();
        assert_eq!(exit_reason(ExitStatus::from_raw(9)), "was killed by signal 9 (SIGKILL)");
        assert_eq!(exit_reason(ExitStatus::from_raw(6)), "was killed by signal 6 (SIGABRT)");
        assert_eq!(exit_reason(ExitStatus::from_raw(101 << 8)), "panicked (exit code 101)");
        assert_eq!(exit_reason(ExitStatus::from_raw(1 << 8)), "ended with exit code 1");
    }
}
