//! Commands to a service of your own.

use super::{StartError, entry};
use amcast_core::GroupSet;
use amcast_memory::Idle;
use amcast_runtime::front::{Effect, Front, FrontOptions, NoAnswer};
use amcast_runtime::home::Home;
use amcast_services::machine::Refusal;
use amcast_services::{Clock, Envelope, whole};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sends commands to a running cluster. It takes one of the cluster's client places and a thread,
/// until its last session is dropped, too.
pub struct Client {
    front: Arc<Front>,
    clock: Arc<Clock>,
    /// The number of the next session.
    next: AtomicU64,
}

impl Client {
    /// Joins the cluster in `home`.
    ///
    /// # Errors
    /// When there is none, or all its client places are taken.
    pub fn join(home: &Home) -> Result<Self, StartError> {
        let file = home.file()?;
        let entry = entry(&file.protocol)?;
        let config = file.check(entry).map_err(StartError::Config)?;
        let ground = home.ground(&file, (entry.about().medium, entry.about().params), &config)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let front = Front::start(&FrontOptions {
            entry,
            config: &config,
            ground: &ground,
            own: None,
            idle: Idle::for_loops(file.replicas + 1, cores),
            record: file.record.clone(),
        });
        let front = Arc::new(front.map_err(StartError::Client)?);
        // No other front has or had this place in this life, so no session has or had its number.
        let first = u64::from(front.place()) << 48 | u64::from(front.life()) << 24 | 1;
        let keeps = entry.capabilities().durability.has_log();
        let clock = Arc::new(Clock::ahead(file.clock_ahead(keeps)));
        Ok(Self { front, clock, next: AtomicU64::new(first) })
    }

    /// A session: commands in a row.
    pub fn session(&self) -> Session {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (front, clock) = (Arc::clone(&self.front), Arc::clone(&self.clock));
        Session { front, clock, number, requests: 0, scratch: Vec::new() }
    }
}

/// How often a command is sent, at most, whose stamp is refused: this host's clock is set by the first refusal.
const CLOCK_TRIES: u32 = 3;

/// Commands in a row, each sent when the one before it was answered. Several threads take a session
/// each.
pub struct Session {
    front: Arc<Front>,
    clock: Arc<Clock>,
    number: u64,
    requests: u64,
    scratch: Vec<u8>,
}

/// Why a command has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The cluster gave none.
    NoAnswer(NoAnswer),
    /// The service refused it: it was repeated for so long that its answer is not known any more, and whether it
    /// was executed is not known, either; or all replicas skip it, and it was not executed.
    Refused(Refusal),
}

impl CallError {
    /// Whether the command took effect.
    pub const fn effect(&self) -> Effect {
        match self {
            Self::NoAnswer(why) => why.effect(),
            Self::Refused(Refusal::Skipped) => Effect::None,
            Self::Refused(_) => Effect::Unknown,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer(why) => why.fmt(f),
            Self::Refused(Refusal::Window) => f.write_str("too many commands are open"),
            Self::Refused(Refusal::NoRoom | Refusal::Incomplete) => {
                f.write_str("a part of the command is missing; the command was not executed")
            }
            Self::Refused(Refusal::Stale { .. } | Refusal::Ahead { .. } | Refusal::Forgotten) => {
                f.write_str("it took so long that whether the command was executed is not known")
            }
            Self::Refused(Refusal::Skipped) => f.write_str(
                "all replicas skip it by decision of those who run the cluster; it was not executed",
            ),
        }
    }
}

impl std::error::Error for CallError {}

impl Session {
    /// Has `command` executed once, over all of `shards` at one moment, and waits for the answer.
    ///
    /// # Errors
    /// When there is none; [`CallError::effect`] says whether the command was executed.
    pub fn call(&mut self, shards: GroupSet, command: &[u8]) -> Result<Vec<u8>, CallError> {
        self.send(shards, command, false)
    }

    /// The same for a command that changes nothing, and may be executed twice.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn read(&mut self, shards: GroupSet, command: &[u8]) -> Result<Vec<u8>, CallError> {
        self.send(shards, command, true)
    }

    fn send(
        &mut self,
        shards: GroupSet,
        command: &[u8],
        read_only: bool,
    ) -> Result<Vec<u8>, CallError> {
        self.requests += 1;
        let mut tries = CLOCK_TRIES;
        loop {
            let envelope = Envelope {
                session: self.number,
                request: self.requests,
                open_from: self.requests,
                stamp: self.clock.now().stamp,
                read_only,
            };
            self.scratch.clear();
            envelope.encode(&mut self.scratch);
            self.scratch.extend_from_slice(command);
            let answer = self.front.call(shards, &self.scratch).map_err(CallError::NoAnswer)?;
            tries -= 1;
            match whole::answered(&answer) {
                // The front gives a command up long before it could be forgotten that it was executed: so this
                // one was not, and the clock of this host is wrong.
                Err(Refusal::Stale { now_ms } | Refusal::Ahead { now_ms }) if tries > 0 => {
                    self.clock.set(now_ms);
                }
                answered => return answered.map(<[u8]>::to_vec).map_err(CallError::Refused),
            }
        }
    }
}
