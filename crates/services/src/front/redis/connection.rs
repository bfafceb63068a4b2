//! One client's connection.

mod again;
mod bounds;
mod written;

use self::written::{Written, has_effect};
use super::parser::{Bounds, Parser, Step};
use super::pipeline::{Pipeline, Reach};
use super::resp;
use super::router::{Frame, Lane, Mail, Post, token};
use super::strangers::Entrance;
use super::wire::{OUTPUT_BYTES_CALM, Wire};
use super::{COUNT_BYTES, Shared};
use crate::backend::{Backend, Busy, Wrote};
use crate::clock::Now;
use crate::envelope::Envelope;
use crate::kv::client::{Client, Info, Level, Said, lock, wall_us};
use crate::kv::commands::transactions::Script;
use crate::kv::hash::hash_bytes;
use crate::kv::registry::{self, Command, Next, Run};
use crate::kv::reply::{Error, Reply};
use crate::kv::{Partitions, destinations, encode_args, encode_epoch, encoded_len, key_hashes};
use amcast_core::{Gid, GroupSet};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// What an answer is taken to have before any came, in bytes: so 16 commands are sent at first.
const ANSWER_BYTES_GUESS: usize = OUTPUT_BYTES_CALM / 16;

/// What to do with the answer of an ordered command.
enum Then {
    /// Send it.
    Show,
    /// It holds the versions of these keys, which are watched from now on.
    Watch(Vec<Box<[u8]>>),
    /// It is a transaction's; the commands that the front runs itself take their places in it.
    Transaction(Vec<Vec<Box<[u8]>>>),
}

/// An answer in the order of commands.
enum Slot {
    /// Being ordered.
    Open { request: u64, then: Then, resp: u8, silent: bool },
    /// Not executed, since its shards go by another map of partitions, or another time than this host's clock
    /// said: to be ordered again, with these arguments.
    Refused { args: Vec<u8>, then: Then, resp: u8, silent: bool },
    /// To be sent once all before it are.
    Ready(Vec<u8>),
}

/// An ordered command that could not be sent yet.
struct Pending {
    dst: GroupSet,
    keys: Option<Vec<u64>>,
    read_only: bool,
    /// Whether a node of this process is to answer it from what it has executed.
    here: bool,
    /// Whether it is a read that need not be ordered.
    apart: bool,
    then: Then,
}

/// Reads input, tells what may happen next.
#[derive(PartialEq, Eq)]
enum Progress {
    More,
    Stuck,
}

struct Connection<B: Backend> {
    shared: Arc<Shared<B>>,
    wire: Wire,
    client: Client,
    lane: Lane,
    mail: Mail,
    parser: Parser,
    /// The input holds no whole command.
    starved: bool,
    /// Commands were left in the input because too many bytes wait to be written.
    held_back: bool,
    slots: VecDeque<Slot>,
    /// Bytes of an answer: the largest lately, since answers under way cannot be sent back.
    answer_guess: usize,
    /// Bytes of the answers in `slots`.
    slot_bytes: usize,
    /// The request of the first read, which is under way alone to tell how large answers are; and whether one was.
    probe: Option<u64>,
    probed: bool,
    entrance: Entrance,
    pipeline: Pipeline,
    /// The map of partitions that commands are sent by.
    map: Arc<Partitions>,
    /// Refused commands in `slots`.
    refused: usize,
    /// A command was refused: none is sent until all that were sent are answered, so that those which
    /// were refused, too, are ordered in their order.
    drains: bool,
    last_request: u64,
    /// Reads under way that a node of this process answers.
    peeks: Vec<u64>,
    /// What such reads must see.
    written: Written,
    /// Reads under way that are not ordered: nothing else is under way with them.
    apart: Vec<u64>,
    /// The encoded command that waits to be sent, without its envelope.
    body: Vec<u8>,
    pending: Option<Pending>,
    /// Reused for envelope and body.
    payload: Vec<u8>,
    /// A command must see the answers of all before it.
    barrier: bool,
    /// No more input will be taken; the connection ends once all answers were written.
    closing: bool,
    /// The last command, for `CLIENT LIST`.
    last_command: &'static str,
}

/// The task that serves a new connection.
pub(super) fn open<B: Backend>(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Arc<Shared<B>>,
    post: &Arc<Post>,
) -> io::Result<impl Future<Output = ()> + Send + use<B>> {
    stream.set_nodelay(true)?;
    let local = stream.local_addr()?;
    let lane = shared.router.open(post);
    let id = shared.next_client.fetch_add(1, Ordering::Relaxed);
    let now = wall_us();
    let mailbox = lane.mailbox.clone();
    let info = Arc::new(Info {
        id,
        peer,
        local,
        since_us: now,
        said: std::sync::Mutex::new(Said {
            name: String::new(),
            lib_name: String::new(),
            lib_version: String::new(),
            resp: 2,
            command: "NULL",
            active_us: now,
        }),
        killed: AtomicBool::new(false),
        held: AtomicUsize::new(0),
        wake: Box::new(move || mailbox.wake()),
    });
    lock(&shared.server.clients).insert(id, info.clone());
    let mut connection = Connection {
        shared: shared.clone(),
        wire: Wire::new(stream),
        client: Client::new(shared.server.clone(), info),
        last_request: lane.last_request,
        lane,
        mail: Mail::default(),
        parser: Parser::default(),
        starved: true,
        held_back: false,
        slots: VecDeque::new(),
        answer_guess: ANSWER_BYTES_GUESS,
        slot_bytes: 0,
        probe: None,
        probed: false,
        entrance: Entrance::default(),
        pipeline: Pipeline::default(),
        map: shared.server.partitions(),
        refused: 0,
        drains: false,
        peeks: Vec::new(),
        apart: Vec::new(),
        written: Written::default(),
        body: Vec::new(),
        pending: None,
        payload: Vec::new(),
        barrier: false,
        closing: false,
        last_command: "NULL",
    };
    Ok(async move { poll_fn(|cx| connection.poll(cx)).await })
}

impl<B: Backend> Drop for Connection<B> {
    fn drop(&mut self) {
        let info = &self.client.info;
        self.shared.held_bytes.fetch_sub(info.held.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        self.shared.strangers.leave(info.id);
        self.shared.forget(info.id);
        self.shared.router.close(&self.lane);
    }
}

impl<B: Backend> Connection<B> {
    /// Does all that can be done now; ready when the connection ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.collect();
            if self.client.info.killed.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            self.closing |= self.shared.leaving.load(Ordering::Acquire);
            let now = self.shared.clock.now();
            while self.take_commands(cx, now) == Progress::More {
                self.shared.backend.flush();
                self.collect();
            }
            if self.stays_outside(cx) {
                return Poll::Ready(());
            }
            if self.entrance.delays(cx) {
                match self.lane.mailbox.sleep(cx.waker()) {
                    true => return Poll::Pending,
                    false => continue,
                }
            }
            if self.wire.write(cx).is_err() || self.holds_too_much() {
                return Poll::Ready(());
            }
            if self.held_back && self.is_calm() {
                continue;
            }
            let next = if self.closing {
                let all_said = self.slots.is_empty() && self.pending.is_none();
                self.wire.part(cx, all_said).map(Err)
            } else if self.wire.ended && self.starved && self.is_done() {
                Poll::Ready(Err(()))
            } else {
                self.read(cx)
            };
            match next {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(())) => return Poll::Ready(()),
                Poll::Pending if self.lane.mailbox.sleep(cx.waker()) => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }

    /// Takes answers that came, and moves those whose turn it is to the output.
    fn collect(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.lane.mailbox.take(&mut mail);
        let mut at = 0;
        for (low, frame) in mail.frames.drain(..) {
            match frame {
                Frame::Small(len) => {
                    self.place(low, Cow::Borrowed(&mail.bytes[at..at + len]));
                    at += len;
                }
                Frame::Large(bytes) => self.place(low, Cow::Owned(bytes)),
            }
        }
        mail.bytes.clear();
        if mail.bytes.capacity() > bounds::BUFFER_BYTES_KEPT {
            mail.bytes = Vec::new();
        }
        self.mail = mail;
    }

    /// Puts the answer to the request with this low half into its place.
    fn place(&mut self, low: u32, answer: Cow<'_, [u8]>) {
        self.answer_guess = answer.len().max(self.answer_guess - self.answer_guess / 8);
        let mine = |s: &Slot| matches!(s, Slot::Open { request, .. } if *request as u32 == low);
        let Some(i) = self.slots.iter().position(mine) else { return };
        let Slot::Open { request, then, resp, silent } =
            std::mem::replace(&mut self.slots[i], Slot::Ready(Vec::new()))
        else {
            return;
        };
        self.pipeline.answered(request);
        self.peeks.retain(|peek| *peek != request);
        self.apart.retain(|read| *read != request);
        if self.probe == Some(request) {
            (self.probe, self.probed) = (None, true);
            // One of that size and no other is known; below this many are sent in any case.
            self.answer_guess = answer.len().max(ANSWER_BYTES_GUESS);
        }
        let refusal = self.shared.learn(&answer);
        self.written.answered(request, refusal.is_none() && has_effect(&answer));
        if let Some(args) = refusal {
            (self.refused, self.drains) = (self.refused + 1, true);
            self.slots[i] = Slot::Refused { args: args.to_vec(), then, resp, silent };
            return;
        }
        match answer {
            _ if silent => _ = self.finished(then, &answer, resp, Vec::new()),
            Cow::Owned(bytes) if matches!(then, Then::Show) && resp::is_same(&bytes, resp) => {
                self.slot_bytes += bytes.len();
                self.slots[i] = Slot::Ready(bytes);
            }
            _ if i == 0 => {
                let output = std::mem::take(&mut self.wire.output);
                self.wire.output = self.finished(then, &answer, resp, output);
            }
            _ => {
                let shown = self.finished(then, &answer, resp, Vec::new());
                self.slot_bytes += shown.len();
                self.slots[i] = Slot::Ready(shown);
            }
        }
        while let Some(Slot::Ready(next)) = self.slots.front_mut() {
            self.slot_bytes -= next.len();
            self.wire.put(std::mem::take(next));
            self.slots.pop_front();
        }
    }

    /// Appends what the client sees of an ordered command's answer to `out`.
    fn finished(&mut self, then: Then, answer: &[u8], resp: u8, mut out: Vec<u8>) -> Vec<u8> {
        self.finish(then, answer, resp, &mut out);
        out
    }

    /// Turns an ordered command's answer into what the client sees.
    fn finish(&mut self, then: Then, answer: &[u8], version: u8, out: &mut Vec<u8>) {
        match then {
            Then::Show => resp::write(answer, version, out),
            Then::Watch(keys) => {
                let versions = resp::elements(answer).unwrap_or_default();
                let number = |v: &[u8]| {
                    let digits = v.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
                    crate::kv::number::parse_int(digits).map(|n| n as u64)
                };
                let versions: Option<Vec<u64>> = versions.into_iter().map(number).collect();
                match versions.filter(|v| v.len() == keys.len() && !keys.is_empty()) {
                    Some(versions) => {
                        for (key, version) in keys.into_iter().zip(versions) {
                            self.client.watched.insert(key, version);
                        }
                        out.extend_from_slice(b"+OK\r\n");
                    }
                    None => resp::write(answer, version, out),
                }
            }
            Then::Transaction(commands) => self.finish_transaction(&commands, answer, version, out),
        }
    }

    fn finish_transaction(
        &mut self,
        commands: &[Vec<Box<[u8]>>],
        answer: &[u8],
        version: u8,
        out: &mut Vec<u8>,
    ) {
        let Some(parts) = resp::elements(answer) else {
            return resp::write(answer, version, out);
        };
        let mut parts = parts.into_iter();
        let mut whole = Vec::new();
        let mut reply = Reply::new(&mut whole);
        reply.array(commands.len());
        for command in commands {
            let args: Vec<&[u8]> = command.iter().map(|a| &**a).collect();
            match registry::lookup(args[0]).map(|c| c.run) {
                Some(Run::Front(f)) => {
                    let start = reply.mark();
                    if let Err(e) = f(&mut self.client, &args, &mut reply) {
                        reply.take_back(start);
                        reply.error(&e);
                    }
                }
                _ => reply.raw(parts.next().unwrap_or(b"_\r\n")),
            }
        }
        reply.finish(0);
        // The transaction may have chosen another version: it holds from the next command on.
        resp::write(&whole, version, out);
    }

    /// Takes commands from the input and sends them on, while it can.
    fn take_commands(&mut self, cx: &mut Context<'_>, now: Now) -> Progress {
        let mut sent = false;
        (self.held_back, self.starved) = (false, false);
        loop {
            if self.refused > 0 {
                if !self.send_refused(cx, now) {
                    break;
                }
                sent = true;
            }
            if let Some(pending) = self.pending.take() {
                self.pending = self.send_or_wait(pending, cx, now);
                if self.pending.is_some() {
                    break;
                }
                sent = true;
            }
            if self.barrier && self.pipeline.len() > 0 {
                break;
            }
            self.barrier = false;
            if self.closing || self.full() {
                break;
            }
            if self.entrance.is_delayed() || !self.is_calm() {
                self.held_back = true;
                break;
            }
            if !self.take_command() {
                self.starved = true;
                break;
            }
        }
        self.give_back();
        if self.wire.tidy() {
            let mut said = lock(&self.client.info.said);
            said.active_us = now.wall_us;
            said.command = self.last_command;
        }
        // Answers may be there already, and let more commands go.
        if sent { Progress::More } else { Progress::Stuck }
    }

    /// Sends a command, or gives it back and sees to it that it is tried again in time.
    fn send_or_wait(
        &mut self,
        pending: Pending,
        cx: &mut Context<'_>,
        now: Now,
    ) -> Option<Pending> {
        match self.hand_in_or_wait(pending, cx, now) {
            Ok((request, then)) => {
                let silent = self.client.silent || std::mem::take(&mut self.client.skip_next);
                let resp = self.client.resp;
                self.slots.push_back(Slot::Open { request, then, resp, silent });
                None
            }
            Err(pending) => Some(pending),
        }
    }

    /// Hands a command in; the number of its request. Or gives it back and sees to it that it is tried
    /// again in time.
    fn hand_in_or_wait(
        &mut self,
        pending: Pending,
        cx: &mut Context<'_>,
        now: Now,
    ) -> Result<(u64, Then), Pending> {
        let pending = match self.hand_in(pending, now) {
            Err(pending) if self.admits(&pending) => pending,
            other => return other,
        };
        self.shared.router.wait_for_room(&self.lane, cx.waker());
        // There may have been room between the refusal and the line above.
        self.hand_in(pending, now)
    }

    /// Takes one command from the input; false if there is none.
    fn take_command(&mut self) -> bool {
        let mut parser = std::mem::take(&mut self.parser);
        let input = std::mem::take(&mut self.wire.input);
        let buffer = &input[self.wire.used..];
        let bounds = match self.client.authenticated {
            true => Bounds::new(self.shared.config.command_bytes_max),
            false => Bounds::STRANGER,
        };
        let step = parser.step(buffer, bounds);
        let mut go_on = true;
        match step {
            Step::More => go_on = false,
            Step::Drop(n) => self.wire.used += n,
            Step::TooLarge(n) => {
                self.wire.used += n;
                self.refuse(&self.too_large());
            }
            Step::Error(e) => {
                self.answer(|reply| reply.error(&Error::new(format!("ERR {e}"))));
                self.closing = true;
            }
            Step::Command(n) => {
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
                if !args.is_empty() {
                    self.run(args);
                }
                self.wire.used += n;
            }
        }
        self.parser = parser;
        self.wire.input = input;
        go_on
    }

    /// Answers from here, in its turn.
    fn answer(&mut self, fill: impl FnOnce(&mut Reply<'_>)) {
        if self.client.silent || std::mem::take(&mut self.client.skip_next) {
            return;
        }
        let mut answer = Vec::new();
        fill(&mut Reply::new(&mut answer));
        self.put(&answer, self.client.resp);
    }

    fn put(&mut self, answer: &[u8], version: u8) {
        if self.slots.is_empty() {
            resp::write(answer, version, &mut self.wire.output);
        } else {
            let mut shown = Vec::new();
            resp::write(answer, version, &mut shown);
            self.hold(shown);
        }
    }

    /// Puts an answer behind those that are to come.
    fn hold(&mut self, shown: Vec<u8>) {
        self.slot_bytes += shown.len();
        self.slots.push_back(Slot::Ready(shown));
    }

    fn too_large(&self) -> Error {
        let most = self.shared.config.command_bytes_max;
        Error::new(format!(
            "ERR the command is larger than the limit of {most} bytes; the command was not executed"
        ))
    }

    /// Answers with an error, which spoils a transaction.
    fn refuse(&mut self, error: &Error) {
        if let Some(transaction) = &mut self.client.transaction {
            transaction.spoiled = true;
        }
        self.answer(|reply| reply.error(error));
    }

    /// Refuses what is no command. If it looks like HTTP, somebody may have a browser send commands
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
        self.shared.server.commands.fetch_add(1, Ordering::Relaxed);
        let Some(command) = registry::lookup(args[0]) else {
            return self.refuse_unknown(args);
        };
        self.last_command = command.name;
        if !self.client.authenticated && !command.is("no_auth") {
            return self.refuse(&Error::new("NOAUTH Authentication required."));
        }
        if let Err(e) = command.check_arity(args.len()) {
            return self.refuse(&e);
        }
        let gathers = self.client.transaction.is_some()
            && !matches!(command.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset");
        if gathers {
            let pushed = self.client.transaction.as_mut().map(|t| t.push(args));
            return match pushed {
                Some(Err(e)) => self.refuse(&e),
                _ => self.answer(|reply| reply.simple("QUEUED")),
            };
        }
        match command.run {
            Run::Shards(_) => self.order(command, args, Then::Show),
            Run::Front(f) | Run::Both(f, _) => self.run_here(command, f, args),
        }
    }

    fn run_here(&mut self, command: &'static Command, f: registry::OnFront, args: &[&[u8]]) {
        let mut answer = Vec::new();
        let version = self.client.resp;
        let wrong = self.client.wrong_passwords;
        let outcome = f(&mut self.client, args, &mut Reply::new(&mut answer));
        if self.client.wrong_passwords != wrong {
            self.refuse_password();
        }
        match outcome {
            Err(e) => self.answer(|reply| reply.error(&e)),
            Ok(Next::Watch) => {
                let keys = args[1..].iter().map(|k| (*k).into()).collect();
                self.order(command, args, Then::Watch(keys));
                self.barrier = true;
            }
            Ok(Next::Transaction) => self.order_transaction(command),
            Ok(next) => {
                let skipped = !answer.is_empty() && std::mem::take(&mut self.client.skip_next);
                // `HELLO` answers in the version that it chose.
                let version = if command.name == "hello" { self.client.resp } else { version };
                if !self.client.silent && !skipped {
                    self.put(&answer, version);
                }
                self.closing |= next == Next::Close;
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

    /// Whether the connection ends because its client has not given the password.
    fn stays_outside(&mut self, cx: &mut Context<'_>) -> bool {
        let (strange, info) = (!self.client.authenticated, &self.client.info);
        if strange != self.entrance.is_strange() {
            self.entrance.set_strange(strange);
            match strange {
                true => {
                    if let Some(idlest) = self.shared.strangers.enter(info.clone()) {
                        self.shared.warnings.strangers.warn(|| {
                            let most = self.shared.strangers.most();
                            let peer = idlest.peer;
                            format!(
                                "{peer} is cut off: {most} connections have not given the password"
                            )
                        });
                    }
                }
                false => self.shared.strangers.leave(info.id),
            }
        }
        self.entrance.is_over(cx)
    }

    fn order_transaction(&mut self, exec: &'static Command) {
        let Some(gathered) = self.client.transaction.take() else { return };
        let ordered = |c: &&Vec<Box<[u8]>>| {
            registry::lookup(&c[0]).is_some_and(|c| !matches!(c.run, Run::Front(_)))
        };
        let for_shards: Vec<_> = gathered.commands.iter().filter(ordered).collect();
        if for_shards.is_empty() && self.client.watched.len() == 0 {
            let mut shown = Vec::new();
            self.finish_transaction(&gathered.commands, b"*0\r\n", self.client.resp, &mut shown);
            match self.slots.is_empty() {
                true => self.wire.output.append(&mut shown),
                false => self.hold(shown),
            }
            return;
        }
        let script = Script::encode(&self.client, &for_shards);
        self.client.watched.clear();
        let args: Vec<&[u8]> = script.iter().map(|a| &**a).collect();
        self.order(exec, &args, Then::Transaction(gathered.commands));
        self.barrier = true;
    }

    /// Encodes a command to be ordered; it is sent at once or when its turn comes.
    fn order(&mut self, command: &'static Command, args: &[&[u8]], then: Then) {
        if encoded_len(args) > self.shared.config.command_bytes_max + COUNT_BYTES {
            let error = self.too_large();
            return self.answer(|reply| reply.error(&error));
        }
        match self.prepare(command, args, then) {
            Ok(pending) => self.pending = Some(pending),
            Err(e) => self.answer(|reply| reply.error(&e)),
        }
    }

    /// Finds where a command goes, and encodes it.
    fn prepare(
        &mut self,
        command: &'static Command,
        args: &[&[u8]],
        then: Then,
    ) -> Result<Pending, Error> {
        // Commands under way that are refused must not be overtaken by one that goes by a later map and is
        // not: those that are under way together go by one map.
        if self.pipeline.len() == 0 && self.map.epoch() != self.shared.server.epoch() {
            self.map = self.shared.server.partitions();
        }
        let mut dst = destinations(command, args, &self.map)?;
        if dst.is_empty() {
            dst = GroupSet::one(Gid(0));
        }
        let keys = if self.map.shards() == 1 {
            Some(Vec::new())
        } else {
            let mut keys = Vec::new();
            let by_key = key_hashes(command, args, &mut |k| keys.push(hash_bytes(0, k)));
            by_key.then_some(keys)
        };
        self.body.clear();
        encode_epoch(self.map.epoch(), &mut self.body);
        encode_args(args, &mut self.body);
        let read_only = !command.writes();
        let shown = matches!(then, Then::Show);
        let sequential = self.client.level == Level::Sequential;
        let here = read_only && shown && sequential;
        let can = dst.len() == 1 && self.shared.backend.reads_apart();
        let apart = read_only && shown && !sequential && can;
        Ok(Pending { dst, keys, read_only, here, apart, then })
    }

    /// Whether a command may be sent now. A read that is answered here sees all that was written before
    /// it, and nothing that is written after it.
    fn admits(&self, p: &Pending) -> bool {
        if self.must_probe(p) {
            return false;
        }
        if p.here || !self.peeks.is_empty() {
            return p.here;
        }
        if !self.apart.is_empty() {
            return p.apart;
        }
        self.pipeline.admits(&Reach { dst: p.dst, keys: p.keys.as_deref(), writes: !p.read_only })
    }

    /// Hands the encoded command in, or gives it back if that is not possible now.
    fn hand_in(&mut self, pending: Pending, now: Now) -> Result<(u64, Then), Pending> {
        if !self.admits(&pending) {
            return Err(pending);
        }
        let request = self.last_request + 1;
        let open_from = self.pipeline.first_open().unwrap_or(request);
        let envelope = Envelope {
            session: self.shared.config.first_session + u64::from(self.lane.index),
            request,
            open_from,
            stamp: now.stamp,
            read_only: pending.read_only,
        };
        self.payload.clear();
        envelope.encode(&mut self.payload);
        self.payload.extend_from_slice(&self.body);
        self.lane.mailbox.opened(request);
        let token = token(self.lane.index, request);
        let (backend, dst) = (&self.shared.backend, pending.dst);
        if pending.here {
            if !backend.read_here(dst, &self.payload, &self.written.all(), token) {
                self.lane.mailbox.withdrawn();
                return self.hand_in(Pending { here: false, ..pending }, now);
            }
            self.peeks.push(request);
        } else {
            // Where something else is under way its place in the order keeps it from overtaking that.
            let apart = pending.apart && self.pipeline.len() == self.apart.len();
            let taken = match apart {
                true => backend.read(dst, &self.payload, token),
                false => backend.submit(dst, &self.payload, token),
            };
            if let Err(Busy) = taken {
                self.lane.mailbox.withdrawn();
                return Err(pending);
            }
            if apart {
                self.apart.push(request);
            }
        }
        let Pending { dst, keys, read_only, then, .. } = pending;
        if let (false, Some(home)) = (read_only, dst.lowest()) {
            self.written.sent(Wrote { home, request, host_ms: now.stamp.host_ms }, open_from);
        }
        self.last_request = request;
        if read_only && !self.probed {
            self.probe = Some(request);
        }
        self.pipeline.sent(request, &Reach { dst, keys: keys.as_deref(), writes: !read_only });
        Ok((request, then))
    }

    /// Reads once, unless commands cannot be taken now; ready with `Ok` if there is something new
    /// to look at, with `Err` if the connection broke.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let waits = self.barrier || self.pending.is_some() || self.refused > 0;
        let stuck = self.full() || waits || !self.is_calm();
        if stuck { Poll::Pending } else { self.wire.read(cx).map_err(drop) }
    }
}
