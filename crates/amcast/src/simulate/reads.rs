//! Reads that a simulated node answers without an order: what production decides about them ([`ReadTable`]), and when.

use super::SimulatedService;
use super::application::SimApplication;
use super::node::{ClientRequest, HandedIn, HowRead, ServiceReply, SimulatedAsker};
use super::time::{MILLISECOND, stretched};
use amcast_core::step::Ticket;
use amcast_core::{Gid, GroupSet, Outcome, Span, Time};
use amcast_node::read_table::{NodeRead, ReadAttempt, ReadTable};
use amcast_smr::application::{Application, LocalReadResult};
use amcast_smr::{LocalRead, SessionWrite};
use std::collections::BTreeMap;

/// How long a read waits at a node that has not applied its client's write; then the client
/// receives an error.
const PATIENCE: Span = Span(2_000 * MILLISECOND.0);

/// Reads that may wait at a node; further ones are lost.
const WAITING_MAX: usize = 256;

/// A read that sees what its client wrote, and may be old.
struct HereRead {
    of: ClientRequest,
    dst: GroupSet,
    payload: Vec<u8>,
    written: Vec<SessionWrite>,
    since: Time,
}

/// The reads of a node.
pub(super) struct NodeReads {
    /// Those that wait for barriers.
    reading: ReadTable,
    /// The requests, by their numbers at the node.
    askers: BTreeMap<u64, ClientRequest>,
    tokens: u64,
    here: Vec<HereRead>,
    /// Whether the node had its state once in this life: before, it may have forgotten everything.
    is_ready: bool,
}

impl NodeReads {
    /// No reads of so many groups.
    pub(super) fn of(groups: usize) -> Self {
        let (askers, here) = (BTreeMap::new(), Vec::new());
        Self { reading: ReadTable::of(groups), askers, tokens: 0, here, is_ready: false }
    }

    /// Takes a read of a gateway.
    pub(super) fn hand_in(&mut self, now: Time, command: HandedIn) {
        let HandedIn { of, dst, payload, how } = command;
        if self.askers.len() + self.here.len() >= WAITING_MAX {
            return;
        }
        match (how, dst.lowest()) {
            (HowRead::Here(written), _) => {
                if !self.here.iter().any(|read| read.of == of) {
                    self.here.push(HereRead { of, dst, payload, written, since: now });
                }
            }
            (_, Some(group)) => {
                let (token, line) = (self.tokens, of.client as u64);
                self.tokens += 1;
                self.askers.insert(token, of);
                let bytes = payload.into();
                self.reading
                    .take(NodeRead { gateway: 0, token, line, group, bytes }, stretched(now));
            }
            (_, None) => {}
        }
    }

    /// The ticket of the barrier that is to be set now in `group`, if one is. A broken node does not wait for it.
    pub(super) fn begin(&mut self, group: Gid, now: Time, waits: bool) -> Option<Ticket> {
        let ticket = self.reading.begin(group, stretched(now))?;
        if !waits {
            self.reading.passed(group, ticket, (0, stretched(now)));
        }
        Some(ticket).filter(|_| waits)
    }

    /// A replica at this position has passed a barrier.
    pub(super) fn passed(&mut self, group: Gid, ticket: Ticket, (position, now): (u64, Time)) {
        self.reading.passed(group, ticket, (position, stretched(now)));
    }

    /// Answers what can be answered; what is to be ordered in place of that.
    pub(super) fn serve<M: SimulatedService>(
        &mut self,
        now: Time,
        is_live: bool,
        app: &mut SimApplication<M>,
        replies: &mut Vec<ServiceReply>,
    ) -> Vec<HandedIn> {
        self.is_ready |= is_live;
        let mut ordered = Vec::new();
        let Self { reading, askers, here, .. } = self;
        let mut order = |read: &NodeRead, askers: &mut BTreeMap<u64, ClientRequest>| {
            if let Some(of) = askers.remove(&read.token) {
                let (dst, payload) = (GroupSet::one(read.group), read.bytes.to_vec());
                ordered.push(HandedIn { of, dst, payload, how: HowRead::Ordered });
            }
        };
        for group in app.groups().iter().filter(|_| is_live) {
            let at = (app.delivered(group), stretched(now));
            reading.serve(group, at, &mut |number, read| {
                let mut bytes = Vec::new();
                match app.peek(group, number, &read.bytes, &mut bytes) {
                    LocalReadResult::Answered(outcome) => {
                        let asker = askers.remove(&read.token).map(SimulatedAsker::Client);
                        replies.extend(asker.map(|asker| ServiceReply { asker, outcome, bytes }));
                    }
                    LocalReadResult::Later | LocalReadResult::NotYet => {
                        return ReadAttempt::NotYet(read);
                    }
                    LocalReadResult::Busy => return ReadAttempt::Held(read),
                    LocalReadResult::Never => order(&read, askers),
                }
                ReadAttempt::Done
            });
        }
        for read in reading.late(stretched(now)) {
            order(&read, askers);
        }
        if self.is_ready {
            here.retain(|read| {
                let mut bytes = Vec::new();
                let peek = app.peek_here((read.dst, &read.payload), &read.written, &mut bytes);
                let asker = SimulatedAsker::Client(read.of);
                let refused = ServiceReply {
                    asker,
                    outcome: Outcome::NotExecuted,
                    bytes: b"-TRYAGAIN\r\n".to_vec(),
                };
                let reply = match peek {
                    LocalRead::Answered(outcome) => ServiceReply { asker, outcome, bytes },
                    LocalRead::Never => refused,
                    _ if now.since(read.since) > PATIENCE => refused,
                    _ => return true,
                };
                replies.push(reply);
                false
            });
        }
        ordered
    }
}
