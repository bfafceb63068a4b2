//! Where fronts hand their commands to a node whose members multicast them, and are given the
//! answers: for protocols that have no processes for clients.
//!
//! ```text
//! front                                       node
//!   hello ---------------------------------->
//!   <------------------------------- serves   and again whenever that changes
//!   command T to groups G ------------------> waits here for room, is multicast by the node's member
//!                                             of the lowest group in G, as its own
//!   <------------------------------ answer T  when the member's application has executed it
//!   read T of group g ---------------------->  is answered without being multicast ([`crate::reading`]),
//!   <------------------------------ answer T  where the protocol has barriers
//! ```
//!
//! The connection is a socket in the cluster's home or, for the front of the node's own process, goes
//! through memory; the loop of the node serves all of them and waits for none. What nobody has taken
//! up waits in a line for its groups, or stays in the connection; so a front has at most [`FLIGHT_MAX`] commands with
//! [`FLIGHT_BYTES_MAX`] bytes on their way.
//!
//! Answers may be far larger than what asked for them. While [`CALM_BYTES`] of answers wait for a front, the
//! node executes no further read of it: the reads wait as the few bytes that they are. What is ordered is executed when its
//! turn comes, so its answers can only be kept or dropped: while [`FULL_BYTES`] of answers wait for a front, none of its commands is
//! taken up, and beyond [`BACKLOG_BYTES_MAX`] an answer is dropped and the front told so ([`Frame::Lost`]): it asks
//! again. No front is cut off for being slow, and one that is holds back nobody else.
//!
//! When the member loses what it had broadcast, because it was left out, the fronts are told: they
//! send their commands again, through another member if there is one. The sessions of the service
//! see to it that each is executed once.

pub mod frame;
pub(crate) mod line;
mod waiting;

use crate::answers::ANSWER_BYTES_MAX;
use crate::application::Wake;
use crate::reading::Read;
use crate::ready::Ready;
use amcast_core::limits::PAYLOAD_BYTES_MAX;
use amcast_core::{Gid, GroupSet};
use frame::{AROUND_BYTES, Frame, VERSION};
use line::Line;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use waiting::{Command, Waiting};

/// Commands of one front that a node has and has not answered, at most.
pub(crate) const FLIGHT_MAX: usize = 4096;

/// Their bytes, at most; a single command may have more.
pub(crate) const FLIGHT_BYTES_MAX: usize = 8 << 20;

/// The largest frame that a node takes.
pub(crate) const COMMAND_FRAME_MAX: usize = PAYLOAD_BYTES_MAX + AROUND_BYTES;

/// The largest frame that a front takes.
pub(crate) const ANSWER_FRAME_MAX: usize = ANSWER_BYTES_MAX + AROUND_BYTES;

/// Bytes of answers that wait for a front, before its reads are executed no more: what a connection carries in some
/// milliseconds. The answer that is the last may be as large as answers are; so it is with the next two.
const CALM_BYTES: usize = 4 << 20;

/// Bytes of answers that wait for a front, before none of its commands is taken up.
const FULL_BYTES: usize = 16 << 20;

/// Bytes of answers that wait for a front, before those to ordered commands are dropped.
const BACKLOG_BYTES_MAX: usize = 64 << 20;

/// Bytes of commands that are taken in from a front and not looked at.
const UNREAD_BYTES_MAX: usize = COMMAND_FRAME_MAX;

/// Fronts at a time; more are cut off at once.
const FRONTS_MAX: usize = 64;

/// Where the front of a node's own process finds its node.
#[derive(Clone)]
pub(crate) struct Inlet {
    fresh: Arc<Fresh>,
    wake: Wake,
}

#[derive(Default)]
struct Fresh {
    lines: Mutex<Vec<Line>>,
    some: AtomicBool,
}

impl Inlet {
    /// A connection to the node; `wake` wakes the loop of the front.
    pub(crate) fn connect(&self, wake: Wake) -> Line {
        let [front, node] = Line::pair([wake, Arc::clone(&self.wake)]);
        self.fresh.lines.lock().unwrap_or_else(PoisonError::into_inner).push(node);
        self.fresh.some.store(true, Ordering::Release);
        (self.wake)();
        front
    }
}

/// What the listener is watched as; no front has this number.
const LISTENER: u64 = u64::MAX;

/// A front that is served.
struct Front {
    /// Tells it from others that had its place.
    number: u64,
    line: Line,
    /// It has said which version it speaks.
    greeted: bool,
    /// Commands of it that are broadcast and not answered.
    flights: usize,
    /// Reads of it that are not answered, and their bytes.
    reads: usize,
    read_bytes: usize,
    /// Reads that are ordered after all and not answered, by what the front calls them, and their groups. What
    /// the front reads of these groups meanwhile must not be answered from an earlier moment, and is ordered, too.
    detours: BTreeMap<u64, Gid>,
    /// Those that there was no room for.
    waiting: Waiting,
}

/// A command that is broadcast: whose it is, and what its front calls it.
struct Flight {
    front: u64,
    token: u64,
}

/// A command that was taken up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// The number that it is to be multicast with.
    pub(crate) seq: u64,
    /// The groups that it goes to: some of the cluster's, at least one.
    pub(crate) dst: GroupSet,
}

/// The node's side of all its fronts.
pub(crate) struct Ingress {
    /// All groups of the cluster.
    groups: GroupSet,
    /// Reads that were taken up, if they need not be ordered.
    reads: Option<Vec<Read>>,
    listener: UnixListener,
    ready: Ready,
    inlet: Inlet,
    fronts: Vec<Front>,
    next_front: u64,
    /// By the number that the member broadcast it with.
    flights: BTreeMap<u64, Flight>,
    /// Which front's command is taken up next.
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
        wake: Wake,
    ) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        // Whoever may write to the socket may change the state.
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let ready = Ready::new()?;
        ready.watch(&listener, LISTENER)?;
        Ok(Self {
            groups,
            reads: has_barriers.then(Vec::new),
            listener,
            ready,
            inlet: Inlet { fresh: Arc::default(), wake },
            fronts: Vec::new(),
            next_front: 0,
            flights: BTreeMap::new(),
            turn: 0,
            next_seq: first_seq,
            serves: false,
            cut_off: 0,
            dropped: 0,
        })
    }

    /// For a front in this process.
    pub(crate) fn inlet(&self) -> Inlet {
        self.inlet.clone()
    }

    /// Answers that were dropped because too many waited for their front, and fronts that were cut off because they
    /// made no sense. Only grows.
    pub(crate) const fn dropped(&self) -> u64 {
        self.cut_off + self.dropped
    }

    /// Commands that are broadcast and not answered.
    #[cfg(test)]
    fn open_commands(&self) -> usize {
        self.flights.len()
    }

    /// What can be read when there is something to do that no [`Wake`] tells of.
    pub(crate) const fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Lets fronts in, takes in what they say and sends what waits for them. Whether there was
    /// anything.
    pub(crate) fn round(&mut self) -> bool {
        let mut lines = self.look();
        let fresh = &self.inlet.fresh;
        if fresh.some.swap(false, Ordering::AcqRel) {
            lines.append(&mut fresh.lines.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let mut busy = !lines.is_empty();
        lines.into_iter().for_each(|line| self.let_in(line));
        for at in (0..self.fronts.len()).rev() {
            match self.fronts[at].round() {
                Ok(any) => busy |= any,
                Err(_) => {
                    busy = true;
                    self.close(at, None);
                }
            }
        }
        busy
    }

    /// Notes which sockets are ready, and takes new connections.
    fn look(&mut self) -> Vec<Line> {
        let mut knocks = false;
        match self.ready.look() {
            Ok(numbers) => {
                for number in numbers {
                    knocks |= number == LISTENER;
                    if let Some(front) = self.fronts.iter_mut().find(|f| f.number == number) {
                        front.line.set_ready();
                    }
                }
            }
            Err(e) => tracing::warn!("fronts are not heard: {e}"),
        }
        let mut lines = Vec::new();
        if !knocks {
            return lines;
        }
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => match Line::socket(stream) {
                    Ok(line) => lines.push(line),
                    Err(e) => tracing::warn!("a front is turned away: {e}"),
                },
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    tracing::warn!("fronts are turned away: {e}");
                    break;
                }
            }
        }
        lines
    }

    fn let_in(&mut self, line: Line) {
        if self.fronts.len() >= FRONTS_MAX {
            tracing::warn!("a front is turned away: {FRONTS_MAX} are served");
            return;
        }
        let number = self.next_front;
        self.next_front += 1;
        if let Some(Err(e)) = line.fd().map(|fd| self.ready.watch(fd, number)) {
            tracing::warn!("a front is turned away: {e}");
            return;
        }
        self.fronts.push(Front {
            number,
            line,
            greeted: false,
            flights: 0,
            reads: 0,
            read_bytes: 0,
            detours: BTreeMap::new(),
            waiting: Waiting::default(),
        });
    }

    fn close(&mut self, at: usize, why: Option<&str>) {
        let front = self.fronts.swap_remove(at);
        self.flights.retain(|_, flight| flight.front != front.number);
        if let Some(why) = why {
            self.cut_off += 1;
            tracing::warn!("a front is cut off: {why}");
        }
    }

    /// Says to all fronts whether the member takes commands, when that changes.
    pub(crate) fn serve(&mut self, serves: bool) {
        if self.serves == serves {
            return;
        }
        self.serves = serves;
        for front in self.fronts.iter_mut().filter(|f| f.greeted) {
            front.line.say(Frame::Serves(serves));
        }
    }

    /// Takes up the next command, of each front in turn, and puts it into `payload`. `room` says how
    /// many commands of so many bytes to these groups the members take.
    pub(crate) fn take(
        &mut self,
        payload: &mut Vec<u8>,
        room: &mut dyn FnMut(GroupSet, usize) -> usize,
    ) -> Option<Taken> {
        for _ in 0..self.fronts.len() {
            self.turn = (self.turn + 1) % self.fronts.len();
            match self.take_from(self.turn, payload, room) {
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

    fn take_from(
        &mut self,
        at: usize,
        payload: &mut Vec<u8>,
        room: &mut dyn FnMut(GroupSet, usize) -> usize,
    ) -> Result<Option<Taken>, &'static str> {
        let front = &mut self.fronts[at];
        if front.line.backlog() >= FULL_BYTES {
            return Ok(None);
        }
        if self.serves
            && front.flights < FLIGHT_MAX
            && let Some(Command { token, dst, bytes }) = front.waiting.take(room)
        {
            payload.clear();
            payload.extend_from_slice(&bytes);
            return Ok(Some(self.begin_flight(at, token, dst)));
        }
        loop {
            let front = &mut self.fronts[at];
            let Some((frame, used)) = front.line.next(COMMAND_FRAME_MAX)? else { return Ok(None) };
            match frame {
                Frame::Hello(VERSION) if !front.greeted => {
                    front.line.done(used);
                    front.greeted = true;
                    front.line.say(Frame::Serves(self.serves));
                }
                Frame::Hello(_) => return Err("it speaks another version, or begins twice"),
                Frame::Command(token, dst, bytes) | Frame::Read(token, dst, bytes)
                    if front.greeted =>
                {
                    let is_read = matches!(frame, Frame::Read(..));
                    if dst.is_empty() || !dst.within(self.groups) {
                        return Err("it has a command for groups that there are not");
                    }
                    let Front { flights, waiting, reads, read_bytes, detours, .. } = front;
                    if !self.serves
                        || *flights + *reads + waiting.count() >= FLIGHT_MAX
                        || waiting.bytes() + *read_bytes >= FLIGHT_BYTES_MAX
                    {
                        return Ok(None);
                    }
                    let group = one(dst).filter(|_| is_read);
                    let detour = group.filter(|group| detours.values().any(|g| g == group));
                    if let Some(group) = detour {
                        detours.insert(token, group);
                    } else if let (Some(taken), Some(group)) = (&mut self.reads, group) {
                        (*reads, *read_bytes) = (*reads + 1, *read_bytes + bytes.len());
                        taken.push(Read { front: front.number, token, group, bytes: bytes.into() });
                        front.line.done(used);
                        continue;
                    }
                    if waiting.has(dst) || room(dst, bytes.len()) == 0 {
                        waiting.push(Command { token, dst, bytes: bytes.into() });
                        front.line.done(used);
                        continue;
                    }
                    payload.clear();
                    payload.extend_from_slice(bytes);
                    front.line.done(used);
                    return Ok(Some(self.begin_flight(at, token, dst)));
                }
                _ => return Err("it says what no front says"),
            }
        }
    }

    /// A command of the front is multicast; under which number.
    fn begin_flight(&mut self, at: usize, token: u64, dst: GroupSet) -> Taken {
        let (front, seq) = (&mut self.fronts[at], self.next_seq);
        front.flights += 1;
        self.next_seq += 1;
        self.flights.insert(seq, Flight { front: front.number, token });
        Taken { seq, dst }
    }

    /// The number that something of the node's own is multicast with: nobody waits for its answer.
    pub(crate) fn own_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// The reads that were taken up since it was asked last.
    pub(crate) fn take_reads(&mut self) -> Vec<Read> {
        self.reads.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// This read is not under way any more. Its front, if it still is there.
    fn end_read(&mut self, read: &Read) -> Option<&mut Front> {
        let front = self.fronts.iter_mut().find(|f| f.number == read.front)?;
        (front.reads, front.read_bytes) = (front.reads - 1, front.read_bytes - read.bytes.len());
        Some(front)
    }

    /// Whether the read may be executed: its front takes answers, or is gone.
    pub(crate) fn takes_answer(&self, read: &Read) -> bool {
        let front = self.fronts.iter().find(|f| f.number == read.front);
        front.is_none_or(|front| front.line.backlog() < CALM_BYTES)
    }

    /// The read has this answer.
    pub(crate) fn answer_read(&mut self, read: &Read, bytes: &[u8]) {
        if let Some(front) = self.end_read(read) {
            let dropped = front.answer(read.token, bytes);
            self.dropped += u64::from(dropped);
        }
    }

    /// The read is to be ordered, like a command.
    pub(crate) fn order(&mut self, read: Read) {
        if let Some(front) = self.end_read(&read) {
            let Read { token, bytes, group, .. } = read;
            front.detours.insert(token, group);
            front.waiting.push(Command { token, dst: GroupSet::one(group), bytes });
        }
    }

    /// The command that was broadcast with the number `seq` was executed, with this answer. What
    /// nobody waits for is dropped.
    pub(crate) fn answer(&mut self, seq: u64, bytes: &[u8]) {
        let Some(Flight { front, token }) = self.flights.remove(&seq) else { return };
        let Some(front) = self.fronts.iter_mut().find(|f| f.number == front) else { return };
        front.flights -= 1;
        front.detours.remove(&token);
        let dropped = front.answer(token, bytes);
        self.dropped += u64::from(dropped);
    }

    /// Nobody knows what becomes of the commands that were broadcast: their fronts are told.
    pub(crate) fn lose_all(&mut self) {
        for Flight { front, token } in std::mem::take(&mut self.flights).into_values() {
            if let Some(front) = self.fronts.iter_mut().find(|f| f.number == front) {
                front.flights -= 1;
                front.detours.remove(&token);
                front.line.say(Frame::Lost(token));
            }
        }
    }
}

/// The only group of the set, if it has just one.
fn one(dst: GroupSet) -> Option<Gid> {
    dst.lowest().filter(|_| dst.len() == 1)
}

impl Front {
    /// Gives it an answer, unless that is larger than is sent, or too many wait: whether it was dropped for that.
    fn answer(&mut self, token: u64, bytes: &[u8]) -> bool {
        let dropped = self.line.backlog() >= BACKLOG_BYTES_MAX;
        self.line.say(if bytes.len() > ANSWER_BYTES_MAX {
            Frame::TooLarge(token, bytes.len() as u64)
        } else if dropped {
            Frame::Lost(token)
        } else {
            Frame::Answer(token, bytes)
        });
        dropped
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
mod tests {
    use super::*;

    const DST: GroupSet = GroupSet::one(Gid(1));

    /// An ingress at a socket of its own, and a front that has greeted it.
    struct Place {
        dir: std::path::PathBuf,
        ingress: Ingress,
        front: Line,
    }

    impl Place {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let socket = dir.join("n0.in");
            let groups = GroupSet::first(2);
            let mut ingress = Ingress::open(&socket, (groups, true), 100, Arc::new(|| {})).unwrap();
            let mut front = ingress.inlet().connect(Arc::new(|| {}));
            front.say(Frame::Hello(VERSION));
            front.flush().unwrap();
            ingress.round();
            Self { dir, ingress, front }
        }

        fn say(&mut self, frame: Frame<'_>) {
            self.front.say(frame);
            self.front.flush().unwrap();
            self.ingress.round();
        }

        /// What the front hears next.
        fn hears(&mut self, frame: Frame<'_>) -> bool {
            self.ingress.round();
            self.front.fill().unwrap();
            let Ok(Some((heard, used))) = self.front.next(ANSWER_FRAME_MAX) else { return false };
            let same = heard == frame;
            self.front.done(used);
            same
        }

        /// Takes up the next command, if there is room for `room`.
        fn take(&mut self, room: usize) -> Option<(u64, Vec<u8>)> {
            let mut payload = Vec::new();
            let Taken { seq, dst } = self.ingress.take(&mut payload, &mut |_, _| room)?;
            assert_eq!(dst, DST);
            Some((seq, payload))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.dir).unwrap();
        }
    }

    #[test]
    fn commands_wait_for_room_and_answers_find_their_front() {
        let mut place = Place::new("ingress");
        assert!(place.take(9).is_none());
        assert!(place.hears(Frame::Serves(false)));
        place.say(Frame::Command(7, DST, b"one"));
        place.say(Frame::Command(8, DST, b"two"));
        assert!(place.take(9).is_none(), "the member does not serve");
        place.ingress.serve(true);
        assert!(place.hears(Frame::Serves(true)));
        assert!(place.take(0).is_none(), "there is no room");
        assert_eq!(place.take(1), Some((100, b"one".to_vec())));
        assert_eq!(place.take(1), Some((101, b"two".to_vec())));
        place.ingress.answer(101, b"+2");
        place.ingress.answer(100, b"+1");
        place.ingress.answer(100, b"again");
        place.ingress.answer(55, b"of an earlier life");
        assert!(place.hears(Frame::Answer(8, b"+2")) && place.hears(Frame::Answer(7, b"+1")));
        assert_eq!((place.front.unread(), place.ingress.open_commands()), (0, 0));
    }

    #[test]
    fn reads_are_taken_apart_and_answered_or_ordered_after_all() {
        let mut place = Place::new("reads");
        place.ingress.serve(true);
        place.say(Frame::Read(1, DST, b"first"));
        place.say(Frame::Command(2, DST, b"set"));
        place.say(Frame::Read(3, DST, b"second"));
        assert_eq!(place.take(1), Some((100, b"set".to_vec())));
        assert_eq!(place.take(1), None);
        let mut reads = place.ingress.take_reads();
        assert_eq!(reads.iter().map(|read| read.token).collect::<Vec<_>>(), [1, 3]);
        let second = reads.pop().unwrap();
        place.ingress.answer_read(&reads[0], b"+x");
        assert!(place.hears(Frame::Serves(true)) && place.hears(Frame::Answer(1, b"+x")));
        place.ingress.order(second);
        // A read behind one that is ordered is ordered behind it.
        place.say(Frame::Read(4, DST, b"third"));
        assert_eq!(place.take(1), Some((101, b"second".to_vec())));
        assert_eq!(place.take(1), Some((102, b"third".to_vec())));
        place.ingress.answer(101, b"+y");
        place.ingress.answer(102, b"+z");
        assert!(place.hears(Frame::Answer(3, b"+y")) && place.hears(Frame::Answer(4, b"+z")));
        let left = &place.ingress.fronts[0];
        assert_eq!((left.reads, left.read_bytes, left.detours.len()), (0, 0, 0));
        place.say(Frame::Read(5, DST, b"fourth"));
        assert!(place.take(1).is_none() && place.ingress.take_reads().len() == 1);
    }

    #[test]
    fn a_read_of_several_groups_is_ordered() {
        let mut place = Place::new("reads-several");
        place.ingress.serve(true);
        let both = GroupSet::first(2);
        place.say(Frame::Read(1, both, b"both"));
        let mut payload = Vec::new();
        let taken = place.ingress.take(&mut payload, &mut |_, _| 1).unwrap();
        assert_eq!((taken.dst, &payload[..]), (both, &b"both"[..]));
    }

    #[test]
    fn a_front_has_a_bounded_number_of_reads_and_of_their_bytes_on_their_way() {
        for (name, bytes) in [("reads-many", 1), ("reads-large", FLIGHT_BYTES_MAX / 16)] {
            let mut place = Place::new(name);
            place.ingress.serve(true);
            let read = vec![7; bytes];
            let (most, mut taken) = (FLIGHT_MAX.min(FLIGHT_BYTES_MAX / bytes), Vec::new());
            for token in 0..most as u64 + 5 {
                place.say(Frame::Read(token, DST, &read));
                assert!(place.take(1).is_none());
                taken.append(&mut place.ingress.take_reads());
            }
            assert_eq!(taken.len(), most);
            place.ingress.answer_read(&taken[0], b"");
            assert!(place.take(1).is_none());
            assert_eq!(place.ingress.take_reads().len(), 1);
        }
    }

    #[test]
    fn a_member_that_was_left_out_tells_whose_commands_are_lost() {
        let mut place = Place::new("lost");
        place.ingress.serve(true);
        place.say(Frame::Command(7, DST, b"one"));
        assert!(place.take(1).is_some() && place.hears(Frame::Serves(true)));
        place.ingress.lose_all();
        assert!(place.hears(Frame::Lost(7)));
        place.ingress.answer(100, b"late");
        place.ingress.round();
        assert!(!place.front.fill().unwrap());
    }

    #[test]
    fn a_front_has_a_bounded_number_of_commands_on_their_way() {
        let mut place = Place::new("flights");
        place.ingress.serve(true);
        for token in 0..FLIGHT_MAX as u64 + 1 {
            place.say(Frame::Command(token, DST, b""));
        }
        let taken = (0..2 * FLIGHT_MAX).filter(|_| place.take(1).is_some()).count();
        assert_eq!(taken, FLIGHT_MAX);
        place.ingress.answer(100, b"");
        assert!(place.take(1).is_some());
    }

    #[test]
    fn reads_of_a_front_are_executed_while_few_of_its_answers_wait() {
        let mut place = Place::new("calm");
        place.ingress.serve(true);
        let answer = vec![b'x'; 900 << 10];
        (0..100).for_each(|token| place.say(Frame::Read(token, DST, b"")));
        assert!(place.take(1).is_none());
        let mut reads = place.ingress.take_reads();
        assert_eq!(reads.len(), 100);
        reads.reverse();
        let mut heard = 0;
        while heard < 100 {
            // As many as the node executes in one round.
            while let Some(read) = reads.pop_if(|read| place.ingress.takes_answer(read)) {
                place.ingress.answer_read(&read, &answer);
            }
            assert!(place.ingress.fronts[0].line.backlog() <= CALM_BYTES + answer.len() + 64);
            place.ingress.round();
            place.front.fill().unwrap();
            while let Ok(Some((frame, used))) = place.front.next(ANSWER_FRAME_MAX) {
                heard += usize::from(matches!(frame, Frame::Answer(..)));
                place.front.done(used);
            }
        }
        assert_eq!((place.ingress.dropped(), place.ingress.fronts.len()), (0, 1));
    }

    #[test]
    fn answers_beyond_the_bound_are_dropped_and_asked_for_again_and_no_front_is_cut_off() {
        let mut place = Place::new("unread");
        place.ingress.serve(true);
        let answer = vec![b'x'; 1 << 20];
        let most = BACKLOG_BYTES_MAX / answer.len();
        for token in 0..most as u64 + 50 {
            place.say(Frame::Command(token, DST, b""));
        }
        let taken: Vec<_> = std::iter::from_fn(|| place.take(1)).collect();
        assert_eq!(taken.len(), most + 50);
        for (seq, _) in taken {
            place.ingress.answer(seq, &answer);
        }
        assert!(place.ingress.fronts[0].line.backlog() < BACKLOG_BYTES_MAX + (2 << 20));
        // Nothing more is taken up of it, and of others it is.
        place.say(Frame::Command(1000, DST, b""));
        let mut other = place.ingress.inlet().connect(Arc::new(|| {}));
        other.say(Frame::Hello(VERSION));
        other.say(Frame::Command(7, DST, b"other"));
        other.flush().unwrap();
        place.ingress.round();
        assert_eq!(place.take(1).unwrap().1, b"other");
        assert!(place.take(1).is_none());
        let (mut answers, mut lost) = (0, 0);
        while answers + lost < most + 50 {
            place.ingress.round();
            place.front.fill().unwrap();
            while let Ok(Some((frame, used))) = place.front.next(ANSWER_FRAME_MAX) {
                answers += usize::from(matches!(frame, Frame::Answer(..)));
                lost += usize::from(matches!(frame, Frame::Lost(_)));
                place.front.done(used);
            }
        }
        assert_eq!((answers, lost, place.ingress.dropped()), (most, 50, 50));
        assert!(place.take(1).is_some(), "what waited is taken up");
    }

    #[test]
    fn who_makes_no_sense_is_cut_off_and_its_commands_with_it() {
        let mut place = Place::new("sense");
        place.ingress.serve(true);
        place.say(Frame::Command(1, DST, b""));
        assert!(place.take(1).is_some());
        place.say(Frame::Answer(1, b"I am no node"));
        assert!(place.take(1).is_none());
        assert_eq!((place.ingress.cut_off, place.ingress.open_commands()), (1, 0));
        place.front.say(Frame::Command(2, DST, b""));
        assert!(place.front.flush().is_err());
    }

    #[test]
    fn a_command_for_no_group_of_the_cluster_is_not_taken_up() {
        for dst in [GroupSet::EMPTY, DST.with(Gid(2))] {
            let mut place = Place::new("nowhere");
            place.ingress.serve(true);
            place.say(Frame::Command(1, dst, b""));
            assert!(place.take(1).is_none());
            assert_eq!(place.ingress.cut_off, 1, "{dst:?}");
        }
    }
}
