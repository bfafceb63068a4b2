//! Where gateways hand their commands to a node whose members multicast them, and are given the
//! answers: for protocols that have no processes for clients.
//!
//! ```text
//! gateway                                       node
//!   hello ---------------------------------->
//!   <------------------------------- serves   and again whenever that changes
//!   command T to groups G ------------------> waits here for room, is multicast by the node's member
//!                                             of the lowest group in G, as its own
//!   <------------------------------ answer T  when the member's application has executed it
//!   read T of group g ---------------------->  is answered without being multicast ([`crate::read_table`]),
//!   <------------------------------ answer T  where the protocol has barriers
//! ```
//!
//! The connection is a socket in the cluster's directory or, for the gateway of the node's own process, goes
//! through memory; the loop of the node serves all of them and waits for none. Commands that are not taken
//! up wait in a line for their groups, or stay in the connection; so a gateway has at most [`FLIGHT_MAX`]
//! commands with [`FLIGHT_BYTES_MAX`] bytes on their way.
//!
//! Answers may be far larger than their commands. While [`CALM_BYTES`] of answers wait for a gateway, the node
//! executes no further read of it, unless the last ones had small answers: the reads wait as the few bytes that they
//! are. Ordered commands are executed at their turn, so their answers can only be kept or dropped: while [`FULL_BYTES`]
//! of answers wait for a gateway, none of its commands is taken up. Beyond [`BACKLOG_BYTES_MAX`], and twice as many for a
//! small one, an answer is dropped and the gateway told so ([`IngressFrame::NotKept`]): it asks again. Ordered commands
//! that change nothing are not executed meanwhile. No gateway is cut off for being slow, and one that is holds back
//! nobody else.
//!
//! When the member loses its broadcasts, because it was excluded, the connections of their gateways are closed: they
//! connect again, and send their commands again in their order, through another member if there is one. To tell them which
//! commands are lost would not do: further ones of theirs are in the connection, and would be ordered before these are
//! repeated. The sessions of the service see to it that each is executed once.

mod broadcasts;
pub mod frame;
pub(crate) mod line;

use crate::clock;
use crate::command_bytes::CommandBytes;
use crate::read_table::NodeRead;
use crate::readiness::ReadinessSet;
use crate::reply_ring::ANSWER_BYTES_MAX;
use crate::waiting_queue::{Occupancy, QueueItem, WaitingQueue};
use amcast_core::limits::PAYLOAD_BYTES_MAX;
use amcast_core::{Gid, GroupSet, Outcome, Time};
use amcast_smr::application::WakeHandle;
use broadcasts::{BroadcastCommand, BroadcastCommands};
use frame::{AROUND_BYTES, IngressFrame, VERSION};
use line::{ArrivedCommand, IngressLine};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Commands of one gateway that a node has and has not answered, at most.
pub(crate) const FLIGHT_MAX: usize = 4096;

/// Their bytes, at most; a single command may have more.
pub(crate) const FLIGHT_BYTES_MAX: usize = 8 << 20;

/// The largest frame that a node takes.
pub(crate) const COMMAND_FRAME_MAX: usize = PAYLOAD_BYTES_MAX + AROUND_BYTES;

/// The largest frame that a gateway takes.
pub(crate) const ANSWER_FRAME_MAX: usize = ANSWER_BYTES_MAX + AROUND_BYTES;

/// Bytes of answers that wait for a gateway, before its reads are executed no more: what a connection carries in some
/// milliseconds. The answer that is the last may be as large as answers are; so it is with the next two.
const CALM_BYTES: usize = 4 << 20;

/// An answer is small below so many bytes.
const SMALL_ANSWER_BYTES: usize = 16 << 10;

/// Bytes of answers that wait for a gateway, before none of its commands is taken up.
const FULL_BYTES: usize = 16 << 20;

/// Bytes of answers that wait for a gateway, before those to ordered commands are dropped.
const BACKLOG_BYTES_MAX: usize = 64 << 20;

/// Reads that a node has and has not answered, at most, and their bytes, about: further ones stay in the connections. One half
/// is for all gateways together; of the other one each gateway has an equal part, so gateways that take no answers
/// leave room for the rest.
const READS_MAX: usize = 16_384;
const READ_BYTES_MAX: usize = 32 << 20;

/// The half that is for all gateways.
const COMMON_READS: usize = READS_MAX / 2;
const COMMON_READ_BYTES: usize = READ_BYTES_MAX / 2;

/// The part of one gateway.
const OWN_READS: usize = READS_MAX / 2 / GATEWAYS_MAX;
const OWN_READ_BYTES: usize = READ_BYTES_MAX / 2 / GATEWAYS_MAX;

/// Bytes of commands that are taken in from a gateway and not looked at.
const UNREAD_BYTES_MAX: usize = COMMAND_FRAME_MAX;

/// Gateways at a time; more are cut off at once.
const GATEWAYS_MAX: usize = 64;

/// Where the gateway of a node's own process finds its node.
#[derive(Clone)]
pub(crate) struct IngressInlet {
    fresh: Arc<FreshCommand>,
    wake: WakeHandle,
}

#[derive(Default)]
struct FreshCommand {
    lines: Mutex<Vec<IngressLine>>,
    some: AtomicBool,
    /// The other nodes refuse this one.
    is_refused: AtomicBool,
}

impl IngressInlet {
    /// A connection to the node; `wake` wakes the loop of the gateway.
    pub(crate) fn connect(&self, wake: WakeHandle) -> IngressLine {
        let [gateway, node] = IngressLine::pair([wake, Arc::clone(&self.wake)]);
        self.fresh.lines.lock().unwrap_or_else(PoisonError::into_inner).push(node);
        self.fresh.some.store(true, Ordering::Release);
        (self.wake)();
        gateway
    }

    /// Whether so many of the other nodes refuse the node that it takes no commands.
    pub(crate) fn is_refused(&self) -> bool {
        self.fresh.is_refused.load(Ordering::Acquire)
    }
}

/// The number under which the listener is watched; no gateway has it.
const LISTENER: u64 = u64::MAX;

/// Whether there is room for a further read of a gateway that has `own`, where `all` gateways have so many.
const fn is_room_for_read(all: Occupancy, own: Occupancy) -> bool {
    all.count < COMMON_READS && all.bytes < COMMON_READ_BYTES
        || own.count < OWN_READS && own.bytes < OWN_READ_BYTES
}

/// A command as its gateway said it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct WaitingCommand {
    /// The gateway's token of it.
    token: u64,
    dst: GroupSet,
    bytes: CommandBytes,
}

impl QueueItem for WaitingCommand {
    /// All groups that it goes to.
    type Line = GroupSet;

    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// A gateway that is served.
struct ServedGateway {
    /// Tells it from others that had its place.
    number: u64,
    line: IngressLine,
    /// Answers for it are dropped, since too many wait, and those who execute commands know it.
    is_full: bool,
    /// It has said which version it speaks.
    greeted: bool,
    /// Commands of it that are broadcast and not answered.
    flights: usize,
    /// Reads of it that are not answered.
    reads: Occupancy,
    /// How many reads of it the application answers later, and the bytes of an answer to a read of it, on the average of
    /// the last ones.
    given: usize,
    answer_bytes: usize,
    /// Reads that are ordered after all and not answered, by what the gateway calls them: their lines and groups.
    detours: BTreeMap<u64, (u64, Gid)>,
    /// How many of these each line has in each group.
    detoured: BTreeMap<(u64, Gid), usize>,
    /// Commands that there was no room for.
    waiting: WaitingQueue<WaitingCommand>,
}

/// A command that was taken up, to be multicast and then [put back](Ingress::put_back).
#[derive(Debug)]
pub(crate) struct TakenCommand {
    /// The number that it is to be multicast with.
    pub(crate) seq: u64,
    /// The groups that it goes to: some of the cluster's, at least one.
    pub(crate) dst: GroupSet,
    /// The number of its gateway.
    gateway: u64,
    bytes: ArrivedCommand,
}

impl TakenCommand {
    /// The command.
    pub(crate) fn payload(&self) -> &[u8] {
        self.bytes.get()
    }

    /// Whether its bytes are those of its gateway.
    #[cfg(test)]
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.bytes, ArrivedCommand::Shared(_))
    }
}

/// The node's side of all its gateways.
pub(crate) struct Ingress {
    /// All groups of the cluster.
    groups: GroupSet,
    /// Reads that were taken up, if they need not be ordered.
    reads: Option<Vec<NodeRead>>,
    /// Reads of all gateways that were taken up and have not ended.
    open_reads: Occupancy,
    listener: UnixListener,
    ready: ReadinessSet,
    inlet: IngressInlet,
    gateways: Vec<ServedGateway>,
    next_gateway: u64,
    /// The commands that are broadcast and not answered.
    flights: Arc<BroadcastCommands>,
    /// When the last round began.
    now: Time,
    /// Which gateway's command is taken up next.
    turn: usize,
    next_seq: u64,
    serves: bool,
    cut_off: u64,
    dropped: u64,
}

impl Ingress {
    /// Opens it at the socket `path`, for commands to some of `groups`. They are numbered from
    /// `first_seq`; `wake` wakes the node's loop. Where it `has_barriers`, reads are not ordered.
    ///
    /// # Errors
    /// When the socket cannot be bound.
    pub(crate) fn open(
        path: &Path,
        (groups, has_barriers): (GroupSet, bool),
        first_seq: u64,
        wake: WakeHandle,
    ) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        // A process that may write to the socket may change the state.
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let ready = ReadinessSet::new()?;
        ready.watch(&listener, LISTENER)?;
        Ok(Self {
            groups,
            reads: has_barriers.then(Vec::new),
            open_reads: Occupancy::default(),
            listener,
            ready,
            inlet: IngressInlet { fresh: Arc::default(), wake },
            gateways: Vec::new(),
            next_gateway: 0,
            flights: Arc::default(),
            now: clock::now(),
            turn: 0,
            next_seq: first_seq,
            serves: false,
            cut_off: 0,
            dropped: 0,
        })
    }

    /// The commands that are broadcast and not answered.
    pub(crate) fn commands(&self) -> Arc<BroadcastCommands> {
        Arc::clone(&self.flights)
    }

    /// For a gateway in this process.
    pub(crate) fn inlet(&self) -> IngressInlet {
        self.inlet.clone()
    }

    /// Tells the gateway of the node's process whether the other nodes refuse the node.
    pub(crate) fn set_refused(&self, is_refused: bool) {
        self.inlet.fresh.is_refused.store(is_refused, Ordering::Release);
    }

    /// Answers that were dropped because too many waited for their gateway, and gateways that were cut off because they
    /// made no sense. Only grows.
    pub(crate) const fn dropped(&self) -> u64 {
        self.cut_off + self.dropped
    }

    /// Commands that are broadcast and not answered.
    #[cfg(test)]
    fn open_commands(&self) -> usize {
        self.flights.len()
    }

    /// The set of descriptors that become readable when there is work that no [`WakeHandle`]
    /// signals.
    pub(crate) const fn ready(&self) -> &ReadinessSet {
        &self.ready
    }

    /// Accepts connections of gateways, reads their frames and sends waiting answers. Whether there was
    /// anything.
    pub(crate) fn round(&mut self) -> bool {
        self.now = clock::now();
        let skipped = self.flights.take_skipped();
        self.tell_not_kept(skipped);
        let mut lines = self.look();
        let fresh = &self.inlet.fresh;
        if fresh.some.swap(false, Ordering::AcqRel) {
            lines.append(&mut fresh.lines.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let mut busy = !lines.is_empty();
        lines.into_iter().for_each(|line| self.let_in(line));
        for at in (0..self.gateways.len()).rev() {
            match self.gateways[at].round() {
                Ok(any) => {
                    busy |= any;
                    self.gateways[at].tell_full(&self.flights);
                }
                Err(_) => {
                    busy = true;
                    self.close(at, None);
                }
            }
        }
        busy
    }

    /// Notes which sockets are ready, and takes new connections.
    fn look(&mut self) -> Vec<IngressLine> {
        let mut knocks = false;
        match self.ready.look() {
            Ok(numbers) => {
                for number in numbers {
                    knocks |= number == LISTENER;
                    if let Some(gateway) = self.gateways.iter_mut().find(|f| f.number == number) {
                        gateway.line.set_ready();
                    }
                }
            }
            Err(e) => tracing::warn!("the connections of gateways cannot be polled: {e}"),
        }
        let mut lines = Vec::new();
        if !knocks {
            return lines;
        }
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => match IngressLine::socket(stream) {
                    Ok(line) => lines.push(line),
                    Err(e) => tracing::warn!("a gateway's connection is refused: {e}"),
                },
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    tracing::warn!("no connection of a gateway is accepted: {e}");
                    break;
                }
            }
        }
        lines
    }

    fn let_in(&mut self, line: IngressLine) {
        if self.gateways.len() >= GATEWAYS_MAX {
            tracing::warn!("a gateway's connection is refused: {GATEWAYS_MAX} are served");
            return;
        }
        let number = self.next_gateway;
        self.next_gateway += 1;
        if let Some(Err(e)) = line.fd().map(|fd| self.ready.watch(fd, number)) {
            tracing::warn!("a gateway's connection is refused: {e}");
            return;
        }
        self.gateways.push(ServedGateway {
            number,
            line,
            is_full: false,
            greeted: false,
            flights: 0,
            reads: Occupancy::default(),
            given: 0,
            answer_bytes: 0,
            detours: BTreeMap::new(),
            detoured: BTreeMap::new(),
            waiting: WaitingQueue::default(),
        });
    }

    fn close(&mut self, at: usize, why: Option<&str>) {
        let gateway = self.gateways.swap_remove(at);
        self.flights.forget(gateway.number);
        if let Some(why) = why {
            self.cut_off += 1;
            tracing::warn!("a gateway's connection is closed: {why}");
        }
    }

    /// Says to all gateways whether the member takes commands, when that changes.
    pub(crate) fn serve(&mut self, serves: bool) {
        if self.serves == serves {
            return;
        }
        self.serves = serves;
        for gateway in self.gateways.iter_mut().filter(|f| f.greeted) {
            gateway.line.say(IngressFrame::Serves(serves));
        }
    }

    /// Takes up the next command, of each gateway in turn: no other is taken up before it is put back. `room` says how
    /// many commands of so many bytes to these groups the members take.
    pub(crate) fn take(
        &mut self,
        room: &mut dyn FnMut(GroupSet, usize) -> usize,
    ) -> Option<TakenCommand> {
        for _ in 0..self.gateways.len() {
            self.turn = (self.turn + 1) % self.gateways.len();
            match self.take_from(self.turn, room) {
                Ok(Some(taken)) => return Some(taken),
                Ok(None) => {}
                Err(why) => {
                    self.close(self.turn, Some(why));
                    self.turn = 0;
                    return None;
                }
            }
        }
        None
    }

    /// The command was multicast: its bytes are not needed any more.
    pub(crate) fn put_back(&mut self, taken: TakenCommand) {
        if let Some(gateway) = self.gateways.iter_mut().find(|f| f.number == taken.gateway) {
            gateway.line.put_back(taken.bytes);
        }
    }

    fn take_from(
        &mut self,
        at: usize,
        room: &mut dyn FnMut(GroupSet, usize) -> usize,
    ) -> Result<Option<TakenCommand>, &'static str> {
        let gateway = &mut self.gateways[at];
        if gateway.line.backlog() >= FULL_BYTES {
            return Ok(None);
        }
        if self.serves
            && gateway.flights < FLIGHT_MAX
            && let Some(WaitingCommand { token, dst, bytes }) =
                gateway.waiting.take(|command| room(command.dst, command.bytes.len()) > 0)
        {
            return Ok(Some(self.begin_flight(at, token, dst, ArrivedCommand::Shared(bytes))));
        }
        loop {
            let gateway = &mut self.gateways[at];
            let Some((frame, used)) = gateway.line.next(COMMAND_FRAME_MAX)? else {
                return Ok(None);
            };
            match frame {
                IngressFrame::Hello(VERSION) if !gateway.greeted => {
                    gateway.line.done(used);
                    gateway.greeted = true;
                    gateway.line.say(IngressFrame::Serves(self.serves));
                }
                IngressFrame::Hello(_) => return Err("it speaks another version, or begins twice"),
                IngressFrame::Command(token, dst, bytes)
                | IngressFrame::Read(token, dst, bytes)
                    if gateway.greeted =>
                {
                    let is_read = matches!(frame, IngressFrame::Read(..));
                    if dst.is_empty() || !dst.within(self.groups) {
                        return Err("it has a command for groups that there are not");
                    }
                    if !self.serves || !gateway.has_credit() {
                        return Ok(None);
                    }
                    let ServedGateway { waiting, reads, .. } = gateway;
                    let group = one(dst).filter(|_| is_read);
                    if let (Some(taken), Some(group)) = (&mut self.reads, group) {
                        if !is_room_for_read(self.open_reads, *reads) {
                            return Ok(None);
                        }
                        reads.begin(bytes.len());
                        self.open_reads.begin(bytes.len());
                        let (gateway_number, bytes) = (gateway.number, bytes.into());
                        let line = 0;
                        taken.push(NodeRead { gateway: gateway_number, token, line, group, bytes });
                        gateway.line.done(used);
                        continue;
                    }
                    if waiting.has(dst) || room(dst, bytes.len()) == 0 {
                        let shared = gateway.line.shared().cloned();
                        let bytes = shared.unwrap_or_else(|| CommandBytes::new(bytes.to_vec()));
                        waiting.push(dst, WaitingCommand { token, dst, bytes });
                        gateway.line.done(used);
                        continue;
                    }
                    let bytes = bytes.len();
                    let bytes = gateway.line.take_command(used, bytes);
                    return Ok(Some(self.begin_flight(at, token, dst, bytes)));
                }
                _ => return Err("it sent a frame that no gateway sends"),
            }
        }
    }

    /// A command of the gateway is multicast; under which number.
    fn begin_flight(
        &mut self,
        at: usize,
        token: u64,
        dst: GroupSet,
        bytes: ArrivedCommand,
    ) -> TakenCommand {
        let (gateway, seq) = (&mut self.gateways[at], self.next_seq);
        gateway.flights += 1;
        self.next_seq += 1;
        let command = BroadcastCommand { gateway: gateway.number, token, since: self.now };
        self.flights.begin(seq, command);
        TakenCommand { seq, dst, gateway: gateway.number, bytes }
    }

    /// The number that is given to the next message.
    pub(crate) const fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The number that something of the node's own is multicast with: nobody waits for its answer.
    pub(crate) fn own_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// The reads that were taken up since it was asked last; their lines are not known here.
    pub(crate) fn take_reads(&mut self) -> Vec<NodeRead> {
        self.reads.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn gateway_of(&mut self, read: &NodeRead) -> Option<&mut ServedGateway> {
        self.gateways.iter_mut().find(|f| f.number == read.gateway)
    }

    /// This read is not under way any more. Its gateway, if it still is there.
    fn end_read(&mut self, read: &NodeRead) -> Option<&mut ServedGateway> {
        self.open_reads.end(read.bytes.len());
        let gateway = self.gateway_of(read)?;
        gateway.reads.end(read.bytes.len());
        Some(gateway)
    }

    /// Whether the read may be executed now. A read of a gateway that is gone is dropped.
    pub(crate) fn may_read(&mut self, read: &NodeRead) -> MayRead {
        match self.gateway_of(read) {
            None => {
                self.end_read(read);
                MayRead::Gone
            }
            // One of its line is ordered, and it must not be answered from an earlier moment.
            Some(gateway) if gateway.detoured.contains_key(&(read.line, read.group)) => {
                MayRead::NotYet
            }
            Some(gateway) if gateway.expected_bytes() >= gateway.read_bytes_max() => MayRead::Held,
            Some(_) => MayRead::Now,
        }
    }

    /// The application answers the read later.
    pub(crate) fn give_read(&mut self, read: &NodeRead) {
        if let Some(gateway) = self.gateway_of(read) {
            gateway.given += 1;
        }
    }

    /// It does not any more.
    pub(crate) fn take_back_read(&mut self, read: &NodeRead) {
        if let Some(gateway) = self.gateway_of(read) {
            gateway.given -= 1;
        }
    }

    /// The read has this answer.
    pub(crate) fn answer_read(&mut self, read: &NodeRead, outcome: Outcome, bytes: &[u8]) {
        if let Some(gateway) = self.end_read(read) {
            gateway.answer_bytes =
                gateway.answer_bytes - gateway.answer_bytes / 8 + bytes.len() / 8;
            let dropped = gateway.answer(read.token, outcome, bytes);
            self.dropped += u64::from(dropped);
        }
    }

    /// The read is to be ordered, like a command.
    pub(crate) fn order(&mut self, read: NodeRead) {
        if let Some(gateway) = self.end_read(&read) {
            let NodeRead { token, line, bytes, group, .. } = read;
            gateway.detours.insert(token, (line, group));
            *gateway.detoured.entry((line, group)).or_default() += 1;
            let dst = GroupSet::one(group);
            let bytes = CommandBytes::new(bytes.into_vec());
            gateway.waiting.push(dst, WaitingCommand { token, dst, bytes });
        }
    }

    /// The command that was broadcast with the number `seq` has this outcome and this answer. An
    /// answer for which no gateway waits is dropped.
    pub(crate) fn answer(&mut self, seq: u64, outcome: Outcome, bytes: &[u8]) {
        let Some(BroadcastCommand { gateway, token, .. }) = self.flights.end(seq) else { return };
        let Some(gateway) = self.gateways.iter_mut().find(|f| f.number == gateway) else { return };
        gateway.flights -= 1;
        gateway.end_detour(token);
        let dropped = gateway.answer(token, outcome, bytes);
        gateway.tell_full(&self.flights);
        self.dropped += u64::from(dropped);
    }

    /// The outcome of the broadcast commands is unknown. The connection of each gateway that has one, or a command that waits
    /// for room here, is closed: also what is still in the connection is behind the lost ones, and is to come again behind them.
    pub(crate) fn lose_all(&mut self) {
        self.flights.forget_all();
        for at in (0..self.gateways.len()).rev() {
            let gateway = &self.gateways[at];
            if gateway.flights > 0 || gateway.waiting.occupancy().count > 0 {
                self.close(at, None);
            }
        }
    }

    /// The answers to these are not kept: tells their gateways.
    fn tell_not_kept(&mut self, commands: Vec<BroadcastCommand>) {
        for BroadcastCommand { gateway, token, .. } in commands {
            if let Some(gateway) = self.gateways.iter_mut().find(|f| f.number == gateway) {
                gateway.flights -= 1;
                gateway.end_detour(token);
                gateway.line.say(IngressFrame::NotKept(token));
            }
        }
    }
}

/// The only group of the set, if it has just one.
fn one(dst: GroupSet) -> Option<Gid> {
    dst.lowest().filter(|_| dst.len() == 1)
}

/// Whether a read may be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MayRead {
    /// It may.
    Now,
    /// Something that is before it is not answered.
    NotYet,
    /// Its gateway takes no answers at the moment.
    Held,
    /// Nobody waits for it any more.
    Gone,
}

impl ServedGateway {
    /// Whether a further command of it may be taken up.
    const fn has_credit(&self) -> bool {
        let waits = self.waiting.occupancy();
        self.flights + self.reads.count + waits.count < FLIGHT_MAX
            && waits.bytes + self.reads.bytes < FLIGHT_BYTES_MAX
    }

    /// Bytes of answers that wait for it, and of those that reads of it may be expected to have.
    fn expected_bytes(&self) -> usize {
        self.line.backlog() + self.given * self.answer_bytes
    }

    /// Bytes of answers that wait for it, before its reads are executed no more. Where these have small answers the large
    /// ones are those of ordered commands, which others may have sent: they hold back no read for as long as answers are kept.
    const fn read_bytes_max(&self) -> usize {
        if self.answer_bytes < SMALL_ANSWER_BYTES { BACKLOG_BYTES_MAX } else { CALM_BYTES }
    }

    /// The read `token` is answered: no read of its line needs to wait for it.
    fn end_detour(&mut self, token: u64) {
        let Some(of) = self.detours.remove(&token) else { return };
        match self.detoured.get_mut(&of) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = self.detoured.remove(&of),
        }
    }

    /// Gives it an answer, unless that is larger than is sent, or too many wait: whether it was dropped for that.
    fn answer(&mut self, token: u64, outcome: Outcome, bytes: &[u8]) -> bool {
        // A small one is kept for longer: it is mostly that of a client that did not ask for much.
        let most = match bytes.len() < SMALL_ANSWER_BYTES {
            true => 2 * BACKLOG_BYTES_MAX,
            false => BACKLOG_BYTES_MAX,
        };
        let dropped = self.line.backlog() >= most;
        self.line.say(if bytes.len() > ANSWER_BYTES_MAX {
            IngressFrame::TooLarge(token, outcome, bytes.len() as u64)
        } else if dropped {
            IngressFrame::NotKept(token)
        } else {
            IngressFrame::Answer(token, outcome, bytes)
        });
        dropped
    }

    /// Tells those who execute commands whether answers for it are dropped, if that has changed.
    fn tell_full(&mut self, commands: &BroadcastCommands) {
        let is_full = self.line.backlog() >= BACKLOG_BYTES_MAX;
        if is_full != self.is_full {
            self.is_full = is_full;
            commands.set_full(self.number, is_full);
        }
    }

    /// Moves bytes both ways.
    ///
    /// # Errors
    /// When the connection is at its end.
    fn round(&mut self) -> io::Result<bool> {
        let mut busy = false;
        if self.line.backlog() > 0 {
            busy |= self.line.flush()?;
        }
        if self.line.unread() < UNREAD_BYTES_MAX {
            busy |= self.line.fill()?;
        }
        Ok(busy)
    }
}

#[cfg(test)]
mod tests;
