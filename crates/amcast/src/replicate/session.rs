//! Commands to a service of your own.

use super::{StartError, entry};
use amcast_core::{GroupSet, Outcome, ServiceAnswer};
use amcast_memory::Idle;
use amcast_node::cluster_dir::ClusterDir;
use amcast_node::command_gateway::{CommandGateway, GatewayOptions, NoAnswer};
use amcast_node::gateway::GatewayClock;
use amcast_smr::machine::Refusal;
use amcast_smr::state_machine::MachineRefusal;
use amcast_smr::{Envelope, state_machine};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Sends commands to a running cluster. It takes one of the cluster's client places and a thread,
/// until its last session is dropped, too.
pub struct Client {
    gateway: Arc<CommandGateway>,
    clock: Arc<GatewayClock>,
    numbers: Arc<Mutex<SessionNumbers>>,
}

impl Client {
    /// Joins the cluster in `dir`.
    ///
    /// # Errors
    /// When there is none, or all its client places are taken.
    pub fn join(dir: &ClusterDir) -> Result<Self, StartError> {
        let file = dir.file()?;
        let entry = entry(&file.protocol)?;
        let config = file.check(entry).map_err(StartError::Config)?;
        let ground = dir.ground(&file, (entry.about().medium, entry.about().params), &config)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let gateway = CommandGateway::start(&GatewayOptions {
            entry,
            config: &config,
            ground: &ground,
            own: None,
            idle: Idle::for_loops(file.replicas + 1, cores),
            record: file.record.clone(),
        });
        let gateway = Arc::new(gateway.map_err(StartError::Client)?);
        // No other gateway has or had this place in this life, so no session has or had its number.
        let first = u64::from(gateway.place()) << 48 | u64::from(gateway.life()) << 24 | 1;
        let keeps = entry.capabilities().durability.has_log();
        let clock = Arc::new(GatewayClock::ahead(file.clock_ahead(keeps)));
        let numbers = Arc::new(Mutex::new(SessionNumbers { next: first, unused: Vec::new() }));
        Ok(Self { gateway, clock, numbers })
    }

    /// A session: commands in a row.
    pub fn session(&self) -> Session {
        let lent = LentNumber::of(&self.numbers);
        let (gateway, clock) = (Arc::clone(&self.gateway), Arc::clone(&self.clock));
        Session { gateway, clock, lent, unsettled: None, scratch: Vec::new() }
    }

    /// Whether it can send commands. If not, join again: it was stopped, or has failed.
    pub fn is_serving(&self) -> bool {
        self.gateway.is_serving()
    }

    /// Asks `down` from now on which shards have lost their majority of replicas: commands to them fail at once.
    pub(super) fn watch(&self, down: impl Fn() -> GroupSet + Send + 'static) {
        self.gateway.watch(Box::new(down));
    }

    /// Takes no more commands, also of sessions that outlive it, and gives its client place back.
    pub(super) fn stop(&self) {
        self.gateway.stop();
    }
}

/// The numbers of a client's sessions. Replicas remember what a session has asked for, and 2^24 numbers lie between two
/// lives of a client: a new session continues with the number of one that has ended, so that there are never more numbers
/// than there were sessions at one time.
#[derive(Debug)]
struct SessionNumbers {
    /// Those from this one on were not lent.
    next: u64,
    /// Numbers of ended sessions, with their last requests.
    unused: Vec<(u64, u64)>,
}

/// The number of a session, and its last request.
#[derive(Debug)]
struct LentNumber {
    number: u64,
    request: u64,
    from: Arc<Mutex<SessionNumbers>>,
}

impl LentNumber {
    fn of(from: &Arc<Mutex<SessionNumbers>>) -> Self {
        let mut numbers = from.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, request) = numbers.unused.pop().unwrap_or_else(|| {
            numbers.next += 1;
            (numbers.next - 1, 0)
        });
        drop(numbers);
        Self { number, request, from: Arc::clone(from) }
    }
}

impl Drop for LentNumber {
    fn drop(&mut self) {
        let mut numbers = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.unused.push((self.number, self.request));
    }
}

/// How often a command is sent, at most, whose stamp is refused: this host's clock is set by the first refusal.
const CLOCK_TRIES: u32 = 3;

/// Commands in a row, each sent when the one before it was answered. Several threads take a session
/// each.
///
/// Where a command's outcome is unknown, [`Session::again`] sends it once more, and it is executed once all the same.
pub struct Session {
    gateway: Arc<CommandGateway>,
    clock: Arc<GatewayClock>,
    lent: LentNumber,
    /// The destinations of the last command, whose message is in `scratch`, if its outcome is not known.
    unsettled: Option<GroupSet>,
    scratch: Vec<u8>,
}

/// Why a command has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The cluster gave none.
    NoAnswer(NoAnswer),
    /// The replicas refused it: it was repeated for so long that its answer is not known any more; or all replicas
    /// skip it.
    Refused(Refusal),
    /// The service itself refused it: [`StateMachine::apply`](amcast_smr::StateMachine::apply) said that it was not executed.
    Declined(Vec<u8>),
    /// The command came by [`Session::read`], and [`StateMachine::touches`](amcast_smr::StateMachine::touches) says that it may
    /// change something: nobody executed it.
    NotARead,
    /// The command was not sent again; an earlier sending may have taken effect, or may yet.
    Unrepeated(NoAnswer),
    /// There is no command to send again: the outcome of the last one is known.
    Settled,
}

impl CallError {
    /// The command's outcome.
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::NoAnswer(why) => why.outcome(),
            Self::Refused(why) => why.outcome(),
            Self::Unrepeated(_) => Outcome::Unknown,
            Self::Declined(_) | Self::NotARead | Self::Settled => Outcome::NotExecuted,
        }
    }

    /// Why a command that was sent before has no answer now.
    fn again(why: NoAnswer) -> Self {
        match why.outcome() {
            Outcome::NotExecuted => Self::Unrepeated(why),
            Outcome::Executed | Outcome::Unknown => Self::NoAnswer(why),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            // It ends so already.
            Self::NoAnswer(why) => return why.fmt(f),
            Self::Unrepeated(why) => &format!("it was not sent again, as {}", why.reason()),
            Self::Refused(Refusal::Window) => "too many commands are open",
            Self::Refused(Refusal::NoRoom | Refusal::Incomplete) => {
                "a part of the command is missing"
            }
            Self::Refused(Refusal::Stale { .. } | Refusal::Ahead { .. }) => {
                "it took so long that what became of it may be forgotten"
            }
            Self::Refused(Refusal::Forgotten { .. }) => {
                "it took so long that its answer is not kept any more"
            }
            Self::Refused(Refusal::Skipped) => {
                "all replicas skip it by decision of those who run the cluster"
            }
            Self::Declined(_) => "the service refused it",
            Self::NotARead => {
                "it was sent as a read, and may change something by what the service says of it: send it with \
                 `Session::call`"
            }
            Self::Settled => "the outcome of the last command is known, so nothing was sent again",
        };
        write!(f, "{why}; {}", self.outcome().words())
    }
}

impl std::error::Error for CallError {}

/// Takes a service's answer apart.
fn taken(answer: &ServiceAnswer<'_>) -> Result<Vec<u8>, CallError> {
    let bytes = match state_machine::answered(&answer.bytes) {
        Ok(bytes) => bytes.to_vec(),
        Err(MachineRefusal::Executor(why)) => return Err(CallError::Refused(why)),
        Err(MachineRefusal::NotARead) => return Err(CallError::NotARead),
    };
    match answer.outcome {
        Outcome::NotExecuted => Err(CallError::Declined(bytes)),
        Outcome::Executed | Outcome::Unknown => Ok(bytes),
    }
}

impl Session {
    /// Has `command` executed once, over all of `shards` at one moment, and waits for the answer.
    ///
    /// # Errors
    /// When there is none; [`CallError::outcome`] says what became of the command.
    pub fn call(&mut self, shards: GroupSet, command: &[u8]) -> Result<Vec<u8>, CallError> {
        self.send(shards, command, false)
    }

    /// The same for a command that changes nothing, and may be executed twice, and by one replica alone.
    ///
    /// # Errors
    /// As [`Session::call`]; [`CallError::NotARead`] if the state machine says that it may change something, by
    /// [`touches`](amcast_smr::StateMachine::touches). Of a command that changes its shards as a whole and names no key, this is
    /// not known: sent as a read, it would change one replica alone.
    pub fn read(&mut self, shards: GroupSet, command: &[u8]) -> Result<Vec<u8>, CallError> {
        self.send(shards, command, true)
    }

    /// Sends the last command again, whose outcome is not known ([`Outcome::Unknown`]): if it was executed, this is its answer,
    /// and if not, it is executed now. Replicas remember a command for ten minutes of ordered time at least; after that
    /// they refuse it, and its outcome stays unknown.
    ///
    /// # Errors
    /// As [`Session::call`]; [`CallError::Settled`] if there is no such command.
    pub fn again(&mut self) -> Result<Vec<u8>, CallError> {
        let shards = self.unsettled.ok_or(CallError::Settled)?;
        let mut tries = CLOCK_TRIES;
        loop {
            // With the stamp of its first sending: a later one would hide that it may be forgotten.
            let answer = self.gateway.call(shards, &self.scratch).map_err(CallError::again);
            tries -= 1;
            match answer.and_then(|answer| taken(&answer)) {
                // Replicas that had executed it would have said so. They refuse each copy with this stamp.
                Err(CallError::Refused(Refusal::Ahead { now_ms })) if tries > 0 => {
                    _ = self.clock.refused(now_ms);
                    self.stamp_anew();
                }
                answered => return self.settle(shards, answered),
            }
        }
    }

    /// Gives the command in `scratch` the stamp of now.
    fn stamp_anew(&mut self) {
        let Some((envelope, body)) = Envelope::decode(&self.scratch) else { return };
        let mut message = Vec::with_capacity(self.scratch.len());
        Envelope { stamp: self.clock.now().stamp, ..envelope }.encode(&mut message);
        message.extend_from_slice(body);
        self.scratch = message;
    }

    /// Notes whether the outcome of the command in `scratch` is known.
    fn settle(
        &mut self,
        shards: GroupSet,
        answered: Result<Vec<u8>, CallError>,
    ) -> Result<Vec<u8>, CallError> {
        let is_unknown = answered.as_ref().is_err_and(|why| why.outcome() == Outcome::Unknown);
        self.unsettled = is_unknown.then_some(shards);
        answered
    }

    fn send(
        &mut self,
        shards: GroupSet,
        command: &[u8],
        read_only: bool,
    ) -> Result<Vec<u8>, CallError> {
        self.lent.request += 1;
        let answered = self.send_new(shards, command, read_only);
        if answered.is_ok() && !read_only {
            self.clock.accepted();
        }
        self.settle(shards, answered)
    }

    fn send_new(
        &mut self,
        shards: GroupSet,
        command: &[u8],
        read_only: bool,
    ) -> Result<Vec<u8>, CallError> {
        let mut tries = CLOCK_TRIES;
        loop {
            let envelope = Envelope {
                session: self.lent.number,
                request: self.lent.request,
                open_from: self.lent.request,
                stamp: self.clock.now().stamp,
                read_only,
            };
            self.scratch.clear();
            envelope.encode(&mut self.scratch);
            self.scratch.extend_from_slice(command);
            let answer = self.gateway.call(shards, &self.scratch).map_err(CallError::NoAnswer)?;
            tries -= 1;
            match taken(&answer) {
                // The gateway gives a command up long before it could be forgotten that it was executed: so this
                // one was not, and the clock of this host is far from ordered time.
                Err(CallError::Refused(Refusal::Stale { now_ms } | Refusal::Ahead { now_ms }))
                    if tries > 0 =>
                {
                    _ = self.clock.refused(now_ms);
                }
                answered => return answered,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Gid;
    use amcast_smr::{KeyUse, Shard, ShardView, ShardedMachine, StateMachine, StateMachineAdapter};

    #[derive(Debug, Default)]
    struct Nothing;

    impl Shard for Nothing {
        fn items(&self) -> usize {
            0
        }

        fn save(&self, _: &mut Vec<u8>) {}

        fn load(_: &[u8]) -> Option<Self> {
            Some(Self)
        }
    }

    impl StateMachine for Nothing {
        type Shard = Self;

        fn touches(&self, _: &[u8], _: GroupSet, _: &mut dyn FnMut(Gid, &[u8], KeyUse)) -> bool {
            true
        }

        fn apply(&self, _: &[u8], _: &mut [ShardView<'_, Self>], _: &mut Vec<u8>) -> Outcome {
            Outcome::Executed
        }
    }

    /// Every reason for which there is no answer: its words end with its outcome, and with no other.
    #[test]
    fn each_error_says_what_became_of_the_command_and_ends_with_the_words_for_it() {
        let (now_ms, group) = (7, Gid(1));
        let of = |outcome| Refusal::Forgotten { outcome };
        let refused = [
            (Refusal::Stale { now_ms }, Outcome::Unknown),
            (Refusal::Ahead { now_ms }, Outcome::Unknown),
            (Refusal::Window, Outcome::Unknown),
            (of(Outcome::Unknown), Outcome::Unknown),
            (of(Outcome::Executed), Outcome::Executed),
            (of(Outcome::NotExecuted), Outcome::NotExecuted),
            (Refusal::NoRoom, Outcome::NotExecuted),
            (Refusal::Incomplete, Outcome::NotExecuted),
            (Refusal::Skipped, Outcome::NotExecuted),
        ];
        // As a replica answers it.
        let refused = refused.map(|(why, outcome)| {
            let mut bytes = Vec::new();
            StateMachineAdapter::<Nothing>::default().refuse(why, b"", &mut bytes);
            let answer = ServiceAnswer::borrowed(why.outcome(), &bytes);
            (taken(&answer).expect_err("it is no answer"), outcome)
        });
        let declined = taken(&ServiceAnswer::borrowed(Outcome::NotExecuted, b"\0no"));
        assert_eq!(declined, Err(CallError::Declined(b"no".to_vec())));
        let others = [
            (declined.expect_err("it was refused"), Outcome::NotExecuted),
            (CallError::NoAnswer(NoAnswer::Busy), Outcome::NotExecuted),
            (CallError::NoAnswer(NoAnswer::Down(group)), Outcome::NotExecuted),
            (CallError::NoAnswer(NoAnswer::Cut(group)), Outcome::Unknown),
            (CallError::NoAnswer(NoAnswer::TimedOut), Outcome::Unknown),
            (CallError::again(NoAnswer::Busy), Outcome::Unknown),
            (CallError::again(NoAnswer::NoShard(3)), Outcome::Unknown),
            (CallError::again(NoAnswer::TimedOut), Outcome::Unknown),
            (CallError::Settled, Outcome::NotExecuted),
            (CallError::NotARead, Outcome::NotExecuted),
        ];
        for (error, outcome) in refused.into_iter().chain(others) {
            assert_eq!(error.outcome(), outcome, "{error}");
            for other in Outcome::ALL {
                let ends = error.to_string().ends_with(&format!("; {}", other.words()));
                assert_eq!(ends, other == outcome, "{error}");
            }
        }
    }

    #[test]
    fn a_session_continues_with_the_number_of_one_that_has_ended() {
        let numbers = Arc::new(Mutex::new(SessionNumbers { next: 7, unused: Vec::new() }));
        let lend = || LentNumber::of(&numbers);
        let (mut first, second) = (lend(), lend());
        assert_eq!(
            [(first.number, first.request), (second.number, second.request)],
            [(7, 0), (8, 0)]
        );
        first.request = 5;
        drop(first);
        let third = lend();
        assert_eq!((third.number, third.request), (7, 5), "its requests were not sent yet");
        for _ in 0..1000 {
            assert_eq!(lend().number, 9);
        }
    }

    #[test]
    fn what_a_service_answers_is_no_refusal_whatever_it_says() {
        let words = b"\0-ERR no funds; the command was not executed\r\n";
        let answer = ServiceAnswer::borrowed(Outcome::Executed, words);
        assert_eq!(taken(&answer), Ok(words[1..].to_vec()));
    }
}
