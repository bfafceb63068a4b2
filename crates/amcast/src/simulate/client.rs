//! Clients with one call at a time, each at a gateway that asks nodes in turn, and the history of what they saw.

use super::clocks::SimulatedHostClock;
use super::node::{ClientRequest, HowRead};
use super::progress::CallProgress;
use super::time::MILLISECOND;
use super::{AnswerMeaning, ApartCall, Call, ReadLevel, Workload};
use amcast_core::rng::Rng;
use amcast_core::{GroupSet, Outcome, ServiceAnswer, Span, Time};
use amcast_node::gateway::SessionWrites;
use amcast_node::service::calls::NO_MEMORY;
use amcast_smr::parts::{Assembly, CommandPart, KEPT};
use amcast_smr::{Envelope, SessionWrite, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

/// How long a gateway waits for an answer before it hands the same command in at the next node.
const ASK_AGAIN_AFTER: Span = Span(500 * MILLISECOND.0);

/// When it gives the command up.
const GIVE_UP_AFTER: Span = Span(15_000 * MILLISECOND.0);

/// The longest pauses of a client between two calls, one of which is drawn: calls come fast, or in all of a run.
const PAUSES_MAX: [Span; 3] = [Span::micros(400), Span::millis(4), Span::millis(20)];

/// Bytes of a command that fit into a message of a simulated gateway: a larger one is sent in parts of this size.
const MESSAGE_BYTES: usize = 96;

/// The clients' calls and their answers.
#[derive(Default)]
pub(super) struct CallLines {
    /// As lines of a history.
    pub(super) lines: String,
    /// The calls that the workload judges by itself.
    pub(super) apart: Vec<ApartCall>,
    /// Of all calls, those that were refused for lack of memory, as a whole or in part.
    pub(super) no_memory: Vec<ApartCall>,
    /// The last request of each call in the history with its whole command, by the call's message.
    pub(super) requests: BTreeMap<String, ClientRequest>,
    /// Those of these calls that were sent as a batch there.
    pub(super) batches: BTreeSet<String>,
    /// The results of all calls, counted.
    pub(super) progress: CallProgress,
}

impl CallLines {
    fn line(&mut self, args: std::fmt::Arguments<'_>) {
        writeln!(self.lines, "{args}").expect("a string takes it");
    }

    /// The whole command of the call `message` was sent as this request. Those before were refused and had no effect: by
    /// another map a batch is sent as a transaction, or the other way round.
    fn sent(&mut self, message: String, of: ClientRequest, is_batch: bool) {
        match is_batch {
            true => _ = self.batches.insert(message.clone()),
            false => _ = self.batches.remove(&message),
        }
        self.requests.insert(message, of);
    }
}

/// A command that is on its way in parts.
struct PartedCommand {
    /// The request of its first part.
    first: u64,
    /// Parts that are kept.
    kept: u64,
}

/// A call that has not returned.
struct OpenCall {
    call: Call,
    /// The client's name in the history, and the number of the call.
    name: String,
    number: u64,
    /// Its place among the calls that the workload judges by itself, if it is one.
    apart: Option<usize>,
    since: Time,
    asked_at: Time,
    /// The node that was asked last, by rank.
    node: usize,
    request: u64,
    payload: Vec<u8>,
    how: HowRead,
    large: Option<PartedCommand>,
}

/// A client's state: its next action.
enum ClientStage {
    /// It calls again then.
    Idle(Time),
    Waits(Box<OpenCall>),
    Done,
}

/// A command that a gateway sends to a node.
pub(super) struct SentCommand {
    pub(super) node: usize,
    pub(super) of: ClientRequest,
    pub(super) dst: GroupSet,
    pub(super) payload: Vec<u8>,
    pub(super) how: HowRead,
}

/// A client, its connection, and its session at a gateway.
pub(super) struct SimClient<W> {
    index: usize,
    workload: W,
    /// Its calls when all clients have made theirs.
    closing: VecDeque<Call>,
    level: ReadLevel,
    /// A client whose call did not return calls no more: another one of that session does.
    names: u64,
    is_named: bool,
    /// A connection that ends with its node is followed by another one, with a session of its own.
    connections: u64,
    /// The node of the gateway, and its incarnation.
    connected: (usize, Option<u32>),
    written: SessionWrites,
    calls: u64,
    calls_max: u64,
    request: u64,
    clock: SimulatedHostClock,
    nodes: usize,
    pause_max: Span,
    rng: Rng,
    stage: ClientStage,
}

impl<W: Workload> SimClient<W> {
    pub(super) fn new(
        (index, workload): (usize, W),
        (level, clock): (ReadLevel, SimulatedHostClock),
        calls_max: u64,
        nodes: usize,
        mut rng: Rng,
    ) -> Self {
        let pause_max = PAUSES_MAX[rng.below(PAUSES_MAX.len() as u64) as usize];
        let first = Time(rng.below(pause_max.0));
        Self {
            index,
            closing: workload.closing().into(),
            workload,
            level,
            names: 0,
            is_named: false,
            connections: 0,
            connected: (index % nodes, None),
            written: SessionWrites::default(),
            calls: 0,
            calls_max,
            request: 0,
            clock,
            nodes,
            pause_max,
            rng,
            stage: ClientStage::Idle(first),
        }
    }

    /// When it has something to do.
    pub(super) fn deadline(&self) -> Option<Time> {
        match &self.stage {
            ClientStage::Idle(at) => Some(*at),
            ClientStage::Waits(open) => Some(open.asked_at + ASK_AGAIN_AFTER),
            ClientStage::Done => None,
        }
    }

    /// Whether it has made all its calls.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.stage, ClientStage::Done)
    }

    /// Whether its next call in the end is none that reads what a node has.
    pub(super) fn is_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Makes its next closing call via the node of this rank, or reads all keys there: what each node has is looked at in
    /// the end.
    pub(super) fn look(
        &mut self,
        (now, node): (Time, usize),
        lines: &mut CallLines,
    ) -> SentCommand {
        self.calls_max += 1;
        let call = self.closing.pop_front().unwrap_or_else(|| self.workload.last());
        self.call((now, node), call, HowRead::Ordered, lines)
    }

    /// The incarnations of the nodes that live, by rank. A client whose reads are answered by the node of its gateway goes
    /// with it: another one comes then, at a node that lives.
    pub(super) fn connect(&mut self, now: Time, lives: &[Option<u32>]) {
        let (node, life) = self.connected;
        if self.level != ReadLevel::Sequential || life.is_some() && lives[node] == life {
            return;
        }
        let nodes = (0..self.nodes).map(|i| (node + i) % self.nodes);
        let Some(next) = nodes.into_iter().find(|n| lives[*n].is_some()) else { return };
        self.connected = (next, lives[next]);
        if life.is_some() {
            (self.names, self.is_named, self.written) =
                (self.names + 1, false, SessionWrites::default());
            self.connections += 1;
            if matches!(self.stage, ClientStage::Waits(_)) {
                self.pause(now);
            }
        }
    }

    /// Does what is due.
    pub(super) fn poll(&mut self, now: Time, lines: &mut CallLines) -> Option<SentCommand> {
        if self.deadline().is_none_or(|at| at > now) {
            return None;
        }
        match std::mem::replace(&mut self.stage, ClientStage::Done) {
            ClientStage::Done => None,
            ClientStage::Idle(_) if self.calls == self.calls_max => None,
            ClientStage::Idle(_) => {
                let call = self.workload.next(&mut self.rng);
                let drawn = self.rng.below(self.nodes as u64) as usize;
                let is_single = call.dst.len() == 1;
                let (node, how) = match self.level {
                    ReadLevel::Sequential if call.read_only => {
                        (self.connected.0, HowRead::Here(self.written.all()))
                    }
                    ReadLevel::Sequential => (self.connected.0, HowRead::Ordered),
                    ReadLevel::Index if call.read_only && is_single => (drawn, HowRead::Index),
                    ReadLevel::Index | ReadLevel::Ordered => (drawn, HowRead::Ordered),
                };
                Some(self.call((now, node), call, how, lines))
            }
            ClientStage::Waits(open) if now.since(open.since) >= GIVE_UP_AFTER => {
                // Nobody knows what became of it.
                self.written.answered(open.request, Outcome::Unknown);
                (self.names, self.is_named) = (self.names + 1, false);
                self.pause(now);
                None
            }
            ClientStage::Waits(mut open) => {
                open.asked_at = now;
                if !matches!(open.how, HowRead::Here(_)) {
                    open.node = (open.node + 1) % self.nodes;
                }
                let sent = self.sent(&open);
                self.stage = ClientStage::Waits(open);
                Some(sent)
            }
        }
    }

    fn pause(&mut self, now: Time) {
        self.stage = ClientStage::Idle(Time(now.0 + self.rng.below(self.pause_max.0)));
    }

    fn session(&self) -> u64 {
        self.connections << 16 | (self.index as u64 + 1)
    }

    fn sent(&self, open: &OpenCall) -> SentCommand {
        let of = ClientRequest { client: self.index, request: open.request };
        let is_part =
            open.large.as_ref().is_some_and(|large| open.request < large.first + parts(&open.call));
        let lowest = open.call.dst.lowest().map(GroupSet::one).filter(|_| is_part);
        let dst = lowest.unwrap_or(open.call.dst);
        SentCommand {
            node: open.node,
            of,
            dst,
            payload: open.payload.clone(),
            how: open.how.clone(),
        }
    }

    fn call(
        &mut self,
        (now, node): (Time, usize),
        call: Call,
        how: HowRead,
        lines: &mut CallLines,
    ) -> SentCommand {
        self.calls += 1;
        lines.progress.of(&call).made += 1;
        let (name, number) = (format!("c{}.{}", self.index, self.names), self.calls);
        let mut apart = None;
        if call.is_apart {
            apart = Some(lines.apart.len());
            let op = call.op.clone();
            lines.apart.push(ApartCall { op, called: now, returned: None });
        } else if !call.op.is_empty() {
            if !std::mem::replace(&mut self.is_named, true) {
                lines.line(format_args!(r#"{{"ev":"process","p":"{name}","groups":[]}}"#));
            }
            let op = serde_json::Value::from(&*call.op);
            let at = now.0;
            lines.line(format_args!(
                r#"{{"ev":"call","t":{at},"p":"{name}","m":"{name}:{number}","op":{op}}}"#
            ));
        }
        let open = Box::new(OpenCall {
            call,
            name,
            number,
            apart,
            since: now,
            asked_at: now,
            node,
            request: 0,
            payload: Vec::new(),
            how,
            large: None,
        });
        self.request_anew(now, open, lines)
    }

    /// Sends a call as a new request.
    fn request_anew(
        &mut self,
        now: Time,
        mut open: Box<OpenCall>,
        lines: &mut CallLines,
    ) -> SentCommand {
        let is_large = !open.call.read_only && open.call.body.len() > MESSAGE_BYTES;
        open.large = is_large.then_some(PartedCommand { first: self.request + 1, kept: 0 });
        self.next_request(now, open, lines)
    }

    /// Sends the next message of a call: the command, a part of it, or what puts the parts together.
    fn next_request(
        &mut self,
        now: Time,
        mut open: Box<OpenCall>,
        lines: &mut CallLines,
    ) -> SentCommand {
        self.request += 1;
        (open.request, open.asked_at) = (self.request, now);
        let session = self.session();
        let request = self.request;
        let stamp = self.clock.stamp_of_gateway(now);
        let open_from = match &open.large {
            Some(large) if large.kept < parts(&open.call) => large.first,
            _ => request,
        };
        let read_only = open.call.read_only;
        let envelope = Envelope { session, request, open_from, stamp, read_only };
        open.payload.clear();
        let mut writes = !read_only;
        match &open.large {
            None => {
                envelope.encode(&mut open.payload);
                open.payload.extend_from_slice(&open.call.body);
            }
            Some(PartedCommand { kept, .. }) if *kept < parts(&open.call) => {
                writes = false;
                let mut chunks = open.call.body.chunks(MESSAGE_BYTES);
                let bytes = chunks.nth(*kept as usize).expect("there are as many");
                CommandPart { envelope, bytes }.encode(&mut open.payload);
            }
            Some(_) => {
                let parts = parts(&open.call) as u32;
                Assembly::of(envelope, parts, &open.call.body).encode(&mut open.payload);
            }
        }
        let is_part = open.large.as_ref().is_some_and(|large| large.kept < parts(&open.call));
        if !is_part && open.apart.is_none() && !open.call.op.is_empty() {
            let of = ClientRequest { client: self.index, request: self.request };
            lines.sent(format!("{}:{}", open.name, open.number), of, open.call.is_batch);
        }
        if writes && let Some(shard) = open.call.dst.lowest() {
            let Stamp { host_ms, .. } = stamp;
            self.written.sent(SessionWrite { shard, request, host_ms }, request);
        }
        let sent = self.sent(&open);
        self.stage = ClientStage::Waits(open);
        sent
    }

    /// Takes an answer; what it sends then.
    pub(super) fn answered(
        &mut self,
        now: Time,
        request: u64,
        answer: &ServiceAnswer<'_>,
        lines: &mut CallLines,
    ) -> Option<SentCommand> {
        let is_mine = matches!(&self.stage, ClientStage::Waits(open) if open.request == request);
        if !is_mine {
            return None;
        }
        let ClientStage::Waits(mut open) = std::mem::replace(&mut self.stage, ClientStage::Done)
        else {
            return None;
        };
        self.written.answered(request, answer.outcome);
        let count = parts(&open.call);
        if let Some(large) = open.large.as_mut().filter(|large| large.kept < count)
            && *answer.bytes == *KEPT
        {
            large.kept += 1;
            return Some(self.next_request(now, open, lines));
        }
        // As long as its assembly was not sent, a command is surely not executed.
        let is_part = open.large.as_ref().is_some_and(|large| large.kept < count);
        match self.workload.returned(&open.call, answer) {
            AnswerMeaning::Out(_) | AnswerMeaning::Unknown if is_part => {
                lines.progress.of(&open.call).returned(Outcome::NotExecuted, "ERR");
                self.ends(now, &open, "ERR", lines)
            }
            AnswerMeaning::Out(out) => {
                lines.progress.of(&open.call).returned(answer.outcome, &out);
                self.ends(now, &open, &out, lines)
            }
            AnswerMeaning::Unknown => {
                (self.names, self.is_named) = (self.names + 1, false);
                self.pause(now);
                None
            }
            AnswerMeaning::Again { now_ms, call } => {
                if let Some(now_ms) = now_ms {
                    self.clock.refused(now, now_ms);
                }
                if let Some(call) = call {
                    open.call = call;
                }
                Some(self.request_anew(now, open, lines))
            }
        }
    }

    /// A call has returned.
    fn ends(
        &mut self,
        now: Time,
        open: &OpenCall,
        out: &str,
        lines: &mut CallLines,
    ) -> Option<SentCommand> {
        if out.contains(NO_MEMORY) {
            let (op, returned) = (open.call.op.clone(), Some((now, out.to_string())));
            lines.no_memory.push(ApartCall { op, called: open.since, returned });
        }
        if let Some(apart) = open.apart {
            lines.apart[apart].returned = Some((now, out.to_string()));
        } else if !open.call.op.is_empty() {
            let out = serde_json::Value::from(out);
            let at = now.0;
            let name = &open.name;
            let number = open.number;
            lines.line(format_args!(
                r#"{{"ev":"return","t":{at},"p":"{name}","m":"{name}:{number}","out":{out}}}"#
            ));
        }
        self.pause(now);
        None
    }
}

/// How many parts a large command has.
fn parts(call: &Call) -> u64 {
    call.body.len().div_ceil(MESSAGE_BYTES) as u64
}
