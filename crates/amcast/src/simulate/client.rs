//! Clients with one call at a time, each at a gateway that asks nodes in turn, and the history of what they saw.

use super::application::{MILLISECOND, stamp_at};
use super::node::ClientRequest;
use super::{Call, Returned, Workload};
use amcast_core::rng::Rng;
use amcast_core::{GroupSet, ServiceAnswer, Span, Time};
use amcast_smr::{Envelope, Stamp};
use std::fmt::Write;

/// How long a gateway waits for an answer before it hands the same command in at the next node.
const ASK_AGAIN_AFTER: Span = Span(500 * MILLISECOND.0);

/// When it gives the command up.
const GIVE_UP_AFTER: Span = Span(15_000 * MILLISECOND.0);

/// The longest pauses of a client between two calls, one of which is drawn: calls come fast, or in all of a run.
const PAUSES_MAX: [Span; 3] = [Span::micros(400), Span::millis(4), Span::millis(20)];

/// What clients called and got back, as lines of a history.
#[derive(Default)]
pub(super) struct CallLines {
    pub(super) lines: String,
}

impl CallLines {
    fn line(&mut self, args: std::fmt::Arguments<'_>) {
        writeln!(self.lines, "{args}").expect("a string takes it");
    }
}

/// A call that has not returned.
struct OpenCall {
    call: Call,
    /// The client's name in the history, and the number of the call.
    name: String,
    number: u64,
    since: Time,
    asked_at: Time,
    /// The node that was asked last, by rank.
    node: usize,
    request: u64,
    payload: Vec<u8>,
}

/// What a client does next.
enum Stage {
    /// It calls again then.
    Idle(Time),
    Waits(OpenCall),
    Done,
}

/// A command that a gateway sends to a node.
pub(super) struct Sent {
    pub(super) node: usize,
    pub(super) of: ClientRequest,
    pub(super) dst: GroupSet,
    pub(super) payload: Vec<u8>,
}

/// A client, and its session at a gateway.
pub(super) struct SimClient {
    index: usize,
    /// A client whose call did not return calls no more: another one of that session does.
    names: u64,
    is_named: bool,
    calls: u64,
    calls_max: u64,
    request: u64,
    /// What its stamps say beside the right time, in milliseconds, modulo 2^64.
    ahead_ms: u64,
    nodes: usize,
    pause_max: Span,
    rng: Rng,
    stage: Stage,
}

impl SimClient {
    pub(super) fn new(index: usize, calls_max: u64, nodes: usize, mut rng: Rng) -> Self {
        let pause_max = PAUSES_MAX[rng.below(PAUSES_MAX.len() as u64) as usize];
        let first = Time(rng.below(pause_max.0));
        let stage = Stage::Idle(first);
        Self {
            index,
            names: 0,
            is_named: false,
            calls: 0,
            calls_max,
            request: 0,
            ahead_ms: 0,
            nodes,
            pause_max,
            rng,
            stage,
        }
    }

    /// When it has something to do.
    pub(super) fn deadline(&self) -> Option<Time> {
        match &self.stage {
            Stage::Idle(at) => Some(*at),
            Stage::Waits(open) => Some(open.asked_at + ASK_AGAIN_AFTER),
            Stage::Done => None,
        }
    }

    /// Whether it has made all its calls.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Reads all keys at the node of this rank: what each node has is looked at in the end.
    pub(super) fn look<W: Workload>(
        &mut self,
        (now, node): (Time, usize),
        workload: &mut W,
        lines: &mut CallLines,
    ) -> Sent {
        self.calls_max += 1;
        let call = workload.last();
        self.call((now, node), call, lines)
    }

    fn stamp(&self, now: Time) -> Stamp {
        let right = stamp_at(now);
        Stamp { host_ms: right.host_ms.wrapping_add(self.ahead_ms), ..right }
    }

    /// Does what is due.
    pub(super) fn poll<W: Workload>(
        &mut self,
        now: Time,
        workload: &mut W,
        lines: &mut CallLines,
    ) -> Option<Sent> {
        if self.deadline().is_none_or(|at| at > now) {
            return None;
        }
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Done => None,
            Stage::Idle(_) if self.calls == self.calls_max => None,
            Stage::Idle(_) => {
                let call = workload.next(&mut self.rng);
                let node = self.rng.below(self.nodes as u64) as usize;
                Some(self.call((now, node), call, lines))
            }
            Stage::Waits(open) if now.since(open.since) >= GIVE_UP_AFTER => {
                // Nobody knows what became of it.
                (self.names, self.is_named) = (self.names + 1, false);
                self.pause(now);
                None
            }
            Stage::Waits(mut open) => {
                (open.node, open.asked_at) = ((open.node + 1) % self.nodes, now);
                let sent = self.sent(&open);
                self.stage = Stage::Waits(open);
                Some(sent)
            }
        }
    }

    fn pause(&mut self, now: Time) {
        self.stage = Stage::Idle(Time(now.0 + self.rng.below(self.pause_max.0)));
    }

    fn sent(&self, open: &OpenCall) -> Sent {
        let of = ClientRequest { client: self.index, request: open.request };
        Sent { node: open.node, of, dst: open.call.dst, payload: open.payload.clone() }
    }

    fn call(&mut self, (now, node): (Time, usize), call: Call, lines: &mut CallLines) -> Sent {
        self.calls += 1;
        let (name, number) = (format!("c{}.{}", self.index, self.names), self.calls);
        if !std::mem::replace(&mut self.is_named, true) {
            lines.line(format_args!(r#"{{"ev":"process","p":"{name}","groups":[]}}"#));
        }
        let op = serde_json::Value::from(&*call.op);
        let at = now.0;
        lines.line(format_args!(
            r#"{{"ev":"call","t":{at},"p":"{name}","m":"{name}:{number}","op":{op}}}"#
        ));
        let open = OpenCall {
            call,
            name,
            number,
            since: now,
            asked_at: now,
            node,
            request: 0,
            payload: Vec::new(),
        };
        self.request_anew(now, open)
    }

    /// Sends a call as a new request.
    fn request_anew(&mut self, now: Time, mut open: OpenCall) -> Sent {
        self.request += 1;
        (open.request, open.asked_at) = (self.request, now);
        let envelope = Envelope {
            session: self.index as u64 + 1,
            request: self.request,
            open_from: self.request,
            stamp: self.stamp(now),
            read_only: open.call.read_only,
        };
        open.payload.clear();
        envelope.encode(&mut open.payload);
        open.payload.extend_from_slice(&open.call.body);
        let sent = self.sent(&open);
        self.stage = Stage::Waits(open);
        sent
    }

    /// Takes an answer; what it sends then.
    pub(super) fn answered<W: Workload>(
        &mut self,
        now: Time,
        request: u64,
        answer: &ServiceAnswer<'_>,
        (workload, lines): (&W, &mut CallLines),
    ) -> Option<Sent> {
        let is_mine = matches!(&self.stage, Stage::Waits(open) if open.request == request);
        if !is_mine {
            return None;
        }
        let Stage::Waits(open) = std::mem::replace(&mut self.stage, Stage::Done) else {
            return None;
        };
        match workload.returned(answer) {
            Returned::Out(out) => {
                let (out, at, name) = (serde_json::Value::from(out), now.0, &open.name);
                let number = open.number;
                lines.line(format_args!(
                    r#"{{"ev":"return","t":{at},"p":"{name}","m":"{name}:{number}","out":{out}}}"#
                ));
                self.pause(now);
                None
            }
            Returned::Unknown => {
                (self.names, self.is_named) = (self.names + 1, false);
                self.pause(now);
                None
            }
            Returned::Again { now_ms } => {
                if let Some(now_ms) = now_ms {
                    self.ahead_ms = now_ms.wrapping_sub(stamp_at(now).host_ms);
                }
                Some(self.request_anew(now, open))
            }
        }
    }
}
