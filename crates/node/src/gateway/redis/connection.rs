//! One client's connection.

mod answers;
mod batches;
mod blocking;
mod bounds;
mod order;
mod parts;
mod reroute;
mod state;

use self::batches::UnsentBatches;
use self::blocking::{BlockedState, BlockingCall};
use self::state::{
    AnswerQueue, ExpectedAnswers, InputProgress, NextCommand, RefusedCommands, TransactionHere,
    UnorderedReads,
};
use super::RedisShared;
use super::answer_admission::AnswerTurn;
use super::pipeline::Pipeline;
use super::router::{ArrivedAnswers, RouterLane, WakeBatch};
use super::unauthenticated::{self, GivenPassword, LoginWait};
use super::wire::{ClientSocket, OUTPUT_BYTES_CALM, leave_turn};
use crate::gateway::backend::Backend;
use crate::gateway::clock::ClockReading;
use amcast_core::{GroupSet, Outcome};
use amcast_kv::Partitions;
use amcast_kv::batch::BatchKind;
use amcast_kv::client::host_ns;
use amcast_kv::client::{BlockState, ClientInfo, ClientReport, ClientState, lock, wall_us};
use amcast_kv::command_stats::{CallEnd, CommandCall, ThreadStats};
use amcast_kv::registry::{self, AfterRun, CommandRunner, CommandSpec};
use amcast_kv::reply::{RedisError, Reply};
use amcast_kv::resp::parser::{ParserStep, RequestBounds};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// The assumed size of an answer before any arrived, in bytes: so 16 commands are sent at first.
const ANSWER_BYTES_GUESS: usize = OUTPUT_BYTES_CALM / 16;

/// Commands of one transaction that the gateway runs itself: it runs them in one go, and no other connection of its thread
/// meanwhile.
const GATEWAY_COMMANDS_MAX: usize = 1000;

/// The time, in nanoseconds, that commands which the gateway runs itself may take before other connections have their turn.
/// `INFO` takes 0.1 ms.
const TURN_NS: u64 = 1_500_000;

/// The use of the answer of an ordered command.
enum AfterAnswer {
    /// Send it.
    Show,
    /// It holds the versions of these keys, which are watched from now on.
    Watch(Vec<Box<[u8]>>),
    /// It is a transaction's; the commands that the gateway runs itself take their places in it.
    Transaction(Vec<Vec<Box<[u8]>>>),
    /// It is that of a command that does not wait, in place of this one.
    Blocking(Box<BlockingCall>),
}

/// An answer in the order of commands.
enum AnswerSlot {
    /// Being ordered.
    Open { request: u64, then: AfterAnswer, resp: u8, silent: bool, call: CommandCall },
    /// Not executed, since its shards go by another map of partitions, or another time than this host's clock
    /// said, or its answer is larger than was thought: to be ordered again, with these arguments.
    Refused { args: Vec<u8>, then: AfterAnswer, resp: u8, silent: bool, call: CommandCall },
    /// There was nothing for it to take: its client waits.
    Blocked { blocking: Box<BlockingCall>, resp: u8, silent: bool, call: CommandCall },
    /// To be sent once all before it are; it ends this call, if any.
    Ready(Vec<u8>, Option<CommandCall>),
}

/// An ordered command that could not be sent yet.
struct UnsentCommand {
    dst: GroupSet,
    keys: Option<Vec<u64>>,
    read_only: bool,
    /// Whether a node of this process is to answer it from its executed state.
    here: bool,
    /// Whether it is a read that need not be ordered.
    apart: bool,
    /// Whether it is sent in parts.
    large: bool,
    /// Whether its answer may be far larger than the command.
    may_answer_much: bool,
    /// The kind of batches that it may be added to, if there is any.
    batch: Option<BatchKind>,
    /// Its place among the commands with large answers, once it was asked for: most have none.
    turn: Option<Box<AnswerTurn>>,
    then: AfterAnswer,
    call: CommandCall,
}

/// A read under way that a node of this process answers.
struct OpenPeek {
    request: u64,
    /// Bytes of the node's copy.
    bytes: usize,
}

/// Reads input, and returns how to continue.
#[derive(PartialEq, Eq)]
enum ReadProgress {
    More,
    Stuck,
}

/// The result of taking a command from the input.
#[derive(PartialEq, Eq)]
enum TakenInput {
    /// Something was taken.
    Some,
    /// The input holds no whole command.
    None,
    /// The command has to wait for its turn, and stays.
    Deferred,
}

struct RedisConnection<B: Backend> {
    shared: Arc<RedisShared<B>>,
    wire: ClientSocket,
    client: ClientState,
    lane: RouterLane,
    mail: ArrivedAnswers,
    /// When answers were collected last.
    collected_ns: u64,
    /// The counters of its thread.
    stats: Arc<ThreadStats>,
    input: InputProgress,
    answers: AnswerQueue,
    expected: ExpectedAnswers,
    entrance: LoginWait,
    pipeline: Pipeline,
    /// The map of partitions that commands are sent by.
    map: Arc<Partitions>,
    refused: RefusedCommands,
    last_request: u64,
    reads: UnorderedReads,
    next: NextCommand,
    batches: UnsentBatches,
    transaction: TransactionHere,
    blocked: BlockedState,
    /// No more input will be taken; the connection ends once all answers were written.
    closing: bool,
    /// The last command, for `CLIENT LIST`.
    last_command: &'static str,
}

/// The task that serves a new connection.
pub(super) fn open<B: Backend>(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Arc<RedisShared<B>>,
    post: &Arc<WakeBatch>,
    stats: &Arc<ThreadStats>,
) -> io::Result<impl Future<Output = ()> + Send + use<B>> {
    stream.set_nodelay(true)?;
    let local = stream.local_addr()?;
    let lane = shared.router.open(post);
    let id = shared.next_client.fetch_add(1, Ordering::Relaxed);
    let now = wall_us();
    let replies = lane.replies.clone();
    let info = Arc::new(ClientInfo {
        id,
        peer,
        local,
        since_us: now,
        said: std::sync::Mutex::new(ClientReport {
            name: String::new(),
            lib_name: String::new(),
            lib_version: String::new(),
            resp: 2,
            command: "NULL",
            active_us: now,
        }),
        killed: AtomicBool::new(false),
        held: AtomicUsize::new(0),
        block: BlockState::default(),
        wake: Box::new(move || replies.wake()),
    });
    lock(&shared.server.clients).insert(id, info.clone());
    let mut connection = RedisConnection {
        shared: shared.clone(),
        wire: ClientSocket::new(stream),
        client: ClientState::new(shared.server.clone(), info),
        last_request: lane.last_request,
        lane,
        mail: ArrivedAnswers::default(),
        collected_ns: 0,
        stats: Arc::clone(stats),
        input: InputProgress::default(),
        answers: AnswerQueue::default(),
        expected: ExpectedAnswers::default(),
        entrance: LoginWait::default(),
        pipeline: Pipeline::default(),
        map: shared.server.partitions(),
        refused: RefusedCommands::default(),
        reads: UnorderedReads::default(),
        next: NextCommand::default(),
        batches: UnsentBatches::default(),
        transaction: TransactionHere::default(),
        blocked: BlockedState::default(),
        closing: false,
        last_command: "NULL",
    };
    Ok(async move { poll_fn(|cx| connection.poll(cx)).await })
}

impl<B: Backend> Drop for RedisConnection<B> {
    fn drop(&mut self) {
        self.leave_parts();
        let info = &self.client.info;
        self.shared.held_bytes.fetch_sub(info.held.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.shared.strangers.leave(info.id);
        self.shared.forget(info.id);
        self.shared.router.close(&self.lane);
    }
}

impl<B: Backend> RedisConnection<B> {
    /// Does all that can be done now; ready when the connection ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.wire.begin_turn();
        self.input.own_ns = 0;
        loop {
            self.collect();
            // Before any of its passwords is compared it has its place.
            self.note_stranger();
            if self.client.info.killed.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            self.closing |= self.shared.leaving.load(Ordering::Acquire);
            let now = self.shared.clock.now();
            while self.take_commands(cx, now) == ReadProgress::More {
                self.shared.backend.flush();
                self.collect();
            }
            self.note_stranger();
            if self.entrance.is_over(cx) {
                return Poll::Ready(());
            }
            if self.entrance.delays(cx) {
                match self.lane.replies.sleep(cx.waker()) {
                    true => return Poll::Pending,
                    false => continue,
                }
            }
            if self.wire.write(cx).is_err() || self.holds_too_much() {
                return Poll::Ready(());
            }
            if self.waits_in_line() && self.wire.has_left(cx) {
                return Poll::Ready(());
            }
            if self.is_blocked() && (self.wire.has_left(cx) || self.wire.is_hung_up()) {
                return Poll::Ready(());
            }
            if self.waits_in_line() || !self.closing && self.entrance.rests(cx) {
                match self.lane.replies.sleep(cx.waker()) {
                    true => return Poll::Pending,
                    false => continue,
                }
            }
            if self.input.own_ns >= TURN_NS {
                leave_turn(cx);
                return Poll::Pending;
            }
            let retries = self.refused.count > 0 || self.is_blocked();
            if self.input.held_back && (self.is_calm() || retries && self.is_being_read()) {
                continue;
            }
            let next = if self.closing {
                let all_said = self.answers.slots.is_empty() && self.next.pending.is_none();
                self.wire.part(cx, all_said).map(Err)
            } else if self.wire.ended && self.input.starved && self.is_done() {
                Poll::Ready(Err(()))
            } else {
                self.read(cx)
            };
            match next {
                Poll::Ready(Ok(())) if self.wire.ends_turn(cx) => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(())) => return Poll::Ready(()),
                Poll::Pending if self.lane.replies.sleep(cx.waker()) => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }

    /// Takes commands from the input and sends them on, while it can.
    fn take_commands(&mut self, cx: &mut Context<'_>, now: ClockReading) -> ReadProgress {
        (self.input.held_back, self.input.starved) = (false, false);
        if self.is_blocked() {
            self.look_at_blocked(cx);
        }
        if self.refused.count > 0 {
            self.take_back_batches();
        }
        let unsent = self.batches.len();
        let mut sent = self.send_batches(cx, now) && self.send_commands(cx, now);
        self.send_batches(cx, now);
        // Batches that had found no room before are to be flushed, too.
        sent |= self.batches.len() < unsent;
        self.give_back();
        if self.wire.release_read() {
            let mut said = lock(&self.client.info.said);
            said.active_us = now.wall_us;
            said.command = self.last_command;
        }
        // Answers may be there already, and let more commands go.
        if sent { ReadProgress::More } else { ReadProgress::Stuck }
    }

    /// Takes commands and sends them, or adds them to batches, until one of them has to wait, or there is none. Whether
    /// there was one.
    fn send_commands(&mut self, cx: &mut Context<'_>, now: ClockReading) -> bool {
        let mut sent = false;
        loop {
            sent |= self.send_parts(cx, now);
            if self.refused.count > 0 {
                let (is_large, all) = (self.next.large.is_some(), self.send_refused(cx, now));
                // A large one was only begun: its parts are sent in the next turn.
                sent |= all || self.next.large.is_some() && !is_large;
                if !all {
                    break;
                }
            }
            if let Some(pending) = self.next.pending.take() {
                self.next.pending = self.send_or_wait(pending, cx, now);
                if self.next.pending.is_some() {
                    break;
                }
                sent = true;
            }
            if self.next.barrier && (self.pipeline.len() > 0 || self.is_blocked()) {
                break;
            }
            self.next.barrier = false;
            if self.closing || self.full() {
                break;
            }
            let turn_is_over = self.input.own_ns >= TURN_NS;
            if self.entrance.is_closed() || !self.is_calm() || turn_is_over {
                self.input.held_back = true;
                break;
            }
            let taken = self.take_command(cx);
            self.input.starved = taken == TakenInput::None;
            self.input.held_back = taken == TakenInput::Deferred;
            if taken != TakenInput::Some {
                break;
            }
        }
        sent
    }

    /// Takes one command from the input.
    fn take_command(&mut self, cx: &mut Context<'_>) -> TakenInput {
        let mut parser = std::mem::take(&mut self.input.parser);
        let mut input = std::mem::take(&mut self.wire.input);
        let buffer = input.unread();
        let bounds = match self.client.authenticated {
            true => RequestBounds::new(self.shared.config.command_bytes_max),
            false => RequestBounds::STRANGER,
        };
        let step = parser.step(buffer, bounds);
        let (mut taken, before) = (TakenInput::Some, buffer.len());
        match step {
            ParserStep::More => taken = TakenInput::None,
            ParserStep::Drop(n) => input.take(n),
            ParserStep::TooLarge(n) => {
                input.take(n);
                self.stats.unknown();
                self.refuse(&self.too_large());
            }
            ParserStep::Error(e) => {
                self.answer(None, |reply| reply.error(&RedisError::new(format!("ERR {e}"))));
                self.closing = true;
            }
            ParserStep::Command(n) => {
                // Most commands have few arguments: these do not touch the heap.
                let mut few = [&[][..]; 8];
                let many: Vec<&[u8]>;
                let args = match few.get_mut(..parser.args.len()) {
                    Some(few) => {
                        few.iter_mut().zip(&parser.args).for_each(|(a, r)| *a = &buffer[r.clone()]);
                        &*few
                    }
                    None => {
                        many = parser.args.iter().map(|r| &buffer[r.clone()]).collect();
                        &many
                    }
                };
                match args {
                    [] => input.take(n),
                    _ if self.awaits_turn(args, cx) => taken = TakenInput::Deferred,
                    _ => {
                        self.run(args);
                        // One that was malformed compared nothing.
                        self.entrance.end_turn(GivenPassword::Nothing);
                        input.take(n);
                    }
                }
            }
        }
        let spent = before - input.unread().len();
        self.input.parser = parser;
        self.wire.input = input;
        let is_strange = !self.client.authenticated && taken == TakenInput::Some;
        if is_strange && self.entrance.spend(spent) {
            self.entrance.begin_rest(self.shared.strangers.rest());
        }
        taken
    }

    fn too_large(&self) -> RedisError {
        let most = self.shared.config.command_bytes_max;
        let why = format_args!("ERR the command is larger than the limit of {most} bytes");
        RedisError::of(Outcome::NotExecuted, why)
    }

    /// Answers with an error, which spoils a transaction.
    fn refuse(&mut self, error: &RedisError) {
        if let Some(transaction) = &mut self.client.transaction {
            transaction.spoiled = true;
        }
        self.answer(None, |reply| reply.error(error));
    }

    /// Refuses input that is no command. If it looks like HTTP, somebody may have a browser send commands
    /// here in the body of a request: none of them must be run.
    fn refuse_unknown(&mut self, args: &[&[u8]]) {
        let http = [&b"post"[..], b"host:"].iter().any(|name| args[0].eq_ignore_ascii_case(name));
        if !http {
            return self.refuse(&registry::unknown(args));
        }
        let peer = self.client.info.peer;
        self.shared.warnings.http.warn(|| {
            format!(
                "possible attack: {peer} sends POST or Host: to the Redis port, as if somebody had \
                 a browser send commands; the connection is closed"
            )
        });
        self.closing = true;
    }

    /// Runs or orders one command.
    fn run(&mut self, args: &[&[u8]]) {
        self.stats.took();
        let Some((number, command)) = registry::find(args[0]) else {
            self.stats.unknown();
            return self.refuse_unknown(args);
        };
        self.last_command = command.name;
        if !self.client.authenticated && !command.is("no_auth") {
            self.stats.reject(number);
            return self.refuse(&RedisError::new("NOAUTH Authentication required."));
        }
        if let Err(e) = command.check_arity(args.len()) {
            self.stats.reject(number);
            return self.refuse(&e);
        }
        let gathers = self.client.transaction.is_some()
            && !matches!(command.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset");
        if gathers {
            return match self.gather(command, args) {
                Err(e) => {
                    self.stats.reject(number);
                    self.refuse(&e);
                }
                Ok(()) => self.answer(None, |reply| reply.simple("QUEUED")),
            };
        }
        let call = CommandCall { number, end: CallEnd::Executed, read_ns: self.input.read_ns };
        match command.run {
            CommandRunner::Shards(_) => self.order(command, args, AfterAnswer::Show, call),
            CommandRunner::Gateway(f) | CommandRunner::Both(f, _) => {
                self.run_here(command, f, args, call)
            }
            CommandRunner::Blocking(form) => self.order_blocking(form, args, call),
        }
    }

    /// Puts a command into the transaction that is gathered.
    fn gather(&mut self, command: &CommandSpec, args: &[&[u8]]) -> Result<(), RedisError> {
        let most = self.shared.config.command_bytes_max;
        let Some(transaction) = &mut self.client.transaction else { return Ok(()) };
        if transaction.commands.is_empty() {
            self.transaction.count = 0;
        }
        if let CommandRunner::Blocking(form) = command.run {
            form.ordered(args)?;
        }
        if matches!(command.run, CommandRunner::Gateway(_)) {
            self.transaction.count += 1;
            if self.transaction.count > GATEWAY_COMMANDS_MAX {
                let why = format_args!(
                    "ERR the transaction has more than {GATEWAY_COMMANDS_MAX} commands that no shard runs, \
                     such as INFO"
                );
                return Err(RedisError::of(Outcome::NotExecuted, why));
            }
        }
        transaction.push(args, most)
    }

    fn run_here(
        &mut self,
        command: &'static CommandSpec,
        f: registry::OnGateway,
        args: &[&[u8]],
        mut call: CommandCall,
    ) {
        let mut answer = Vec::new();
        let version = self.client.resp;
        let wrong = self.client.wrong_passwords;
        let begun = host_ns();
        let outcome = f(&mut self.client, args, &mut Reply::new(&mut answer));
        self.input.own_ns += host_ns().saturating_sub(begun);
        let is_wrong = self.client.wrong_passwords != wrong;
        self.entrance.end_turn(match self.client.authenticated {
            _ if is_wrong => GivenPassword::Wrong,
            true => GivenPassword::Right,
            false => GivenPassword::Nothing,
        });
        if is_wrong {
            self.refuse_password();
        }
        match outcome {
            Err(e) => {
                call.end = CallEnd::Failed;
                self.answer(Some(call), |reply| reply.error(&e));
            }
            Ok(AfterRun::Watch) => {
                self.order_watch(command, args, call);
            }
            Ok(AfterRun::Transaction) => self.order_transaction(command, call),
            Ok(next) => {
                let skipped = !answer.is_empty() && std::mem::take(&mut self.client.skip_next);
                // `HELLO` answers in the version that it chose.
                let version = if command.name == "hello" { self.client.resp } else { version };
                call.end = CallEnd::of_part(&answer);
                match self.client.silent || skipped {
                    true => self.stats.answered(call, host_ns()),
                    false => self.put(&answer, version, Some(call)),
                }
                self.closing |= next == AfterRun::Close;
            }
        }
    }

    /// A wrong password was given.
    fn refuse_password(&mut self) {
        self.entrance.refuse();
        let count = self.shared.server.wrong_passwords.fetch_add(1, Ordering::Relaxed) + 1;
        let peer = self.client.info.peer;
        self.shared
            .warnings
            .password
            .warn(|| format!("{peer} gave a wrong password; {count} were given since the start"));
    }

    /// Whether a command may compare a password of a client that is not known, and has to wait for its turn.
    fn awaits_turn(&mut self, args: &[&[u8]], cx: &mut Context<'_>) -> bool {
        let name = args[0];
        let compares = name.eq_ignore_ascii_case(b"auth") || name.eq_ignore_ascii_case(b"hello");
        if self.client.authenticated || !compares || args.len() < 2 {
            return false;
        }
        let (info, waited) = (&self.client.info, self.entrance.is_in_line());
        let host = unauthenticated::host(info);
        let waits = self.entrance.awaits_turn(&self.shared.logins, host, cx);
        if waits != waited {
            self.shared.strangers.set_waiting(info.id, waits);
        }
        waits
    }

    /// Whether nothing else is done before a password may be compared. A client that closes the connection meanwhile, also
    /// only its own side, gives up its turn: connections that try a password and end at once make no other one wait.
    fn waits_in_line(&mut self) -> bool {
        if self.closing {
            self.entrance.leave_line();
        }
        self.entrance.is_in_line()
    }

    /// Notes whether its client has given the password.
    fn note_stranger(&mut self) {
        let (strange, info) = (!self.client.authenticated, &self.client.info);
        if strange == self.entrance.is_strange() {
            return;
        }
        self.entrance.set_strange(strange);
        if !strange {
            return self.shared.strangers.let_in(info);
        }
        let is_known = self.shared.logins.knows(unauthenticated::host(info));
        if let Some(closed) = self.shared.strangers.enter(info.clone(), is_known) {
            self.shared.server.refusals.strangers.fetch_add(1, Ordering::Relaxed);
            self.shared.warnings.strangers.warn(|| {
                let (most, peer) = (self.shared.strangers.most(), closed.peer);
                format!("{peer} is cut off: {most} connections have not given the password")
            });
        }
    }

    /// Reads once, unless commands cannot be taken now; ready with `Ok` if there is something new
    /// to look at, with `Err` if the connection broke.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let unsent = self.next.pending.is_some() || self.batches.len() > 0;
        let waits = self.next.barrier || unsent || self.refused.count > 0;
        let stuck = self.full() || waits || !self.is_calm();
        if stuck {
            self.wire.input.wait();
            return Poll::Pending;
        }
        let read = self.wire.read(cx, self.input.parser.needs());
        if read.is_ready() {
            self.input.read_ns = host_ns();
        }
        read.map_err(drop)
    }
}
