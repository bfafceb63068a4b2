//! A node's state at one moment, given out piece by piece while commands go on.
//!
//! A *cut* begins between two commands ([`Executor::capture`]) and holds exactly what was there
//! then: every node that reads it goes on behind each shard's [`delivered`](Executor::delivered)
//! position. The machine keeps aside what changes before it was given. What else belongs to the
//! state is taken at once, by reference: the waiting commands, at most [`Limits::waiting`](super::Limits::waiting)
//! a shard, and the sessions, as many as the fronts' pools have; a session that is used while the
//! cut is open is copied then. Taking them costs some nanoseconds each and copies no bytes of
//! commands or answers.
//!
//! In the [stream](crate::stream), in this order: each shard's position and ordered time; the
//! waiting commands; and for each shard its sessions and the machine's part. A byte of one stands
//! before each command and session, a zero behind the last. A piece may be longer than asked for
//! by one command, or by one session with its answers.

use super::sessions::{Session, Sessions, Table};
use super::waiting::{Entry, Lanes};
use super::{Executor, Shard};
use crate::envelope::Envelope;
use crate::machine::{Corrupt, Machine, Place};
use crate::stream::{Piece, Progress, Source};
use amcast_core::limits::PAYLOAD_BYTES_MAX;
use amcast_core::{Gid, GroupSet, MsgId, Pid};
use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;

const END: u8 = 0;
const NEXT: u8 = 1;

/// What makes up a node: the machine, and who is to run what on it.
pub struct State<M> {
    pub(super) machine: M,
    pub(super) shards: Vec<Shard>,
    pub(super) lanes: Lanes,
}

/// The part of a cut that is the executor's, and how much of it was given.
pub(super) struct Cut {
    progress: Progress,
    /// Each shard's position and ordered time, until they are given.
    heads: Option<Vec<(u64, u64)>>,
    waiting: VecDeque<Waiting>,
    /// Each shard's sessions, and the index of the next one.
    sessions: Vec<(Table, usize)>,
    stage: Stage,
}

/// What is given next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Waiting,
    Sessions(usize),
    Machine(usize),
    End,
}

/// A waiting command.
struct Waiting {
    id: MsgId,
    dst: GroupSet,
    floor: u64,
    /// Each with the position of the command in front of it.
    places: Vec<(Place, u64)>,
    payload: Arc<[u8]>,
}

impl Waiting {
    fn of(e: &Entry, lanes: &Lanes) -> Self {
        let places = e.places.iter().map(|p| (*p, lanes.before(p))).collect();
        Self { id: e.id, dst: e.dst, floor: e.floor, places, payload: e.payload.clone() }
    }

    fn give(&self, to: &mut Piece<'_>) {
        let Self { id, dst, floor, places, payload } = self;
        for word in [u64::from(id.sender.0), id.seq, dst.0, *floor, places.len() as u64] {
            to.word(word);
        }
        for (p, before) in places {
            for word in [u64::from(p.shard.0), p.position, p.now_ms, *before] {
                to.word(word);
            }
        }
        to.bytes(payload);
    }

    fn read(from: &mut Source<'_>, shards: usize) -> Result<Self, Corrupt> {
        let sender = u32::try_from(from.word()?).map_err(|_| Corrupt::Malformed)?;
        let id = MsgId { sender: Pid(sender), seq: from.word()? };
        let (dst, floor, count) = (GroupSet(from.word()?), from.word()?, from.word()?);
        if !dst.within(GroupSet::first(shards)) || count == 0 || count > dst.len() as u64 {
            return Err(Corrupt::Malformed);
        }
        let mut places: Vec<(Place, u64)> = Vec::new();
        for _ in 0..count {
            let shard = from.word()?;
            let (position, now_ms, before) = (from.word()?, from.word()?, from.word()?);
            let known = places.iter().any(|(p, _)| u64::from(p.shard.0) == shard);
            if known
                || before >= position
                || shard >= shards as u64
                || !dst.contains(Gid(shard as u8))
            {
                return Err(Corrupt::Malformed);
            }
            places.push((Place { shard: Gid(shard as u8), position, now_ms }, before));
        }
        let payload = from.bytes()?;
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Corrupt::Malformed);
        }
        Envelope::decode(&payload).ok_or(Corrupt::Malformed)?;
        Ok(Self { id, dst, floor, places, payload: payload.into() })
    }
}

fn give_session(id: u64, s: &Session, to: &mut Piece<'_>) {
    let (below, position) = s.drop_below.unwrap_or((0, 0));
    for word in [id, s.used_ms, s.floor, below, position, s.ran.len() as u64] {
        to.word(word);
    }
    for (request, answer) in &s.ran {
        to.word(*request);
        to.byte(u8::from(answer.is_some()));
        to.bytes(answer.as_deref().unwrap_or_default());
    }
}

fn read_session(from: &mut Source<'_>) -> Result<(u64, Session), Corrupt> {
    let (id, used_ms, floor) = (from.word()?, from.word()?, from.word()?);
    let (below, position) = (from.word()?, from.word()?);
    let drop_below = (position > 0).then_some((below, position));
    let mut ran = VecDeque::new();
    for _ in 0..from.word()? {
        let (request, kept, answer) = (from.word()?, from.byte()?, from.bytes()?);
        if ran.back().is_some_and(|(last, _)| *last >= request) {
            return Err(Corrupt::Malformed);
        }
        ran.push_back((request, (kept == NEXT).then(|| answer.into())));
    }
    Ok((id, Session { used_ms, floor, drop_below, ran }))
}

fn follows(from: &mut Source<'_>) -> Result<bool, Corrupt> {
    match from.byte()? {
        END => Ok(false),
        NEXT => Ok(true),
        _ => Err(Corrupt::Malformed),
    }
}

impl Cut {
    fn of<M>(state: &State<M>) -> Self {
        Self {
            progress: Progress::default(),
            heads: Some(state.shards.iter().map(|s| (s.delivered, s.now_ms)).collect()),
            waiting: state.lanes.iter().map(|e| Waiting::of(e, &state.lanes)).collect(),
            sessions: state.shards.iter().map(|s| (s.sessions.table.clone(), 0)).collect(),
            stage: Stage::Waiting,
        }
    }

    /// Fills `piece`, and says what comes next.
    fn give<M: Machine>(
        &mut self,
        machine: &mut M,
        heads: Option<Vec<(u64, u64)>>,
        piece: &mut Piece<'_>,
    ) {
        for (delivered, now_ms) in heads.into_iter().flatten() {
            piece.word(delivered);
            piece.word(now_ms);
        }
        while !piece.is_full() && self.stage != Stage::End {
            match self.stage {
                Stage::Waiting => match self.waiting.pop_front() {
                    Some(waiting) => {
                        piece.byte(NEXT);
                        waiting.give(piece);
                    }
                    None => {
                        piece.byte(END);
                        self.stage = Stage::Sessions(0);
                    }
                },
                Stage::Sessions(shard) => {
                    let (table, next) = &mut self.sessions[shard];
                    if let Some((id, session)) = table.get_index(*next) {
                        piece.byte(NEXT);
                        give_session(*id, session, piece);
                        *next += 1;
                    } else {
                        piece.byte(END);
                        self.stage = Stage::Machine(shard);
                    }
                }
                Stage::Machine(shard) => {
                    if machine.piece(Gid(shard as u8), piece) {
                        return;
                    }
                    let next = shard + 1;
                    self.stage =
                        if next < self.sessions.len() { Stage::Sessions(next) } else { Stage::End };
                }
                Stage::End => {}
            }
        }
    }
}

impl<M: Machine> Executor<M> {
    /// Begins a cut: the state at this moment, to be given in pieces. One begun before is
    /// forgotten: whoever was given its pieces finds that they end too early.
    pub fn capture(&mut self) {
        self.state.machine.capture();
        self.cut = Some(Box::new(Cut::of(&self.state)));
    }

    /// Appends about `most` bytes of the cut to `to`; false if that was all, and when there is no
    /// cut. The cut is then released. Takes time in proportion to `most`, however much there is.
    pub fn piece(&mut self, most: usize, to: &mut Vec<u8>) -> bool {
        let Some(mut cut) = self.cut.take() else { return false };
        let mut progress = cut.progress;
        let heads = cut.heads.take();
        if heads.is_some() {
            Piece::begin(self.state.shards.len(), &mut progress, to);
        }
        let mut piece = Piece::new(most, &mut progress, to);
        cut.give(&mut self.state.machine, heads, &mut piece);
        let more = cut.stage != Stage::End;
        piece.end(!more);
        if more {
            cut.progress = progress;
            self.cut = Some(cut);
        }
        more
    }

    /// Forgets the cut.
    pub fn release(&mut self) {
        self.cut = None;
        self.state.machine.release();
    }

    /// How many items of `shard` are kept only for the cut. At most the shard once more, and the
    /// keys of items created since the cut began.
    pub fn kept(&self, shard: Gid) -> usize {
        self.state.machine.kept(shard)
    }

    /// Puts `state` in force, and gives back the one before it: dropping much takes time. A cut
    /// that was open is forgotten. Both are of as many shards.
    pub fn adopt(&mut self, mut state: State<M>) -> State<M> {
        assert_eq!(state.shards.len(), self.state.shards.len(), "a node's shards stay the same");
        self.release();
        for (new, old) in state.shards.iter_mut().zip(&self.state.shards) {
            new.executed = old.executed;
        }
        std::mem::replace(&mut self.state, state)
    }
}

impl<M: Machine> State<M> {
    /// Nothing done yet in any of `shards` shards.
    pub(super) fn new(machine: M, shards: usize) -> Self {
        let shard =
            |_| Shard { delivered: 0, now_ms: 0, executed: 0, sessions: Sessions::default() };
        Self { machine, shards: (0..shards).map(shard).collect(), lanes: Lanes::new(shards) }
    }

    /// Reads what [`Executor::piece`] gave, to its end and not further. `machine` must have
    /// `shards` shards; what it holds is replaced.
    ///
    /// # Errors
    /// When the bytes are damaged, end too early, or are not of such a cluster and this version.
    pub fn read(machine: M, shards: usize, from: &mut dyn Read) -> Result<Self, Corrupt> {
        let (mut from, there) = Source::begin(from)?;
        if there != shards {
            return Err(Corrupt::Shards(there));
        }
        let mut it = Self::new(machine, shards);
        for shard in &mut it.shards {
            (shard.delivered, shard.now_ms) = (from.word()?, from.word()?);
        }
        let mut waiting = Vec::new();
        while follows(&mut from)? {
            waiting.push(Waiting::read(&mut from, shards)?);
        }
        for (i, shard) in it.shards.iter_mut().enumerate() {
            while follows(&mut from)? {
                let (id, session) = read_session(&mut from)?;
                shard.sessions.insert(id, session);
            }
            it.machine.read(Gid(i as u8), &mut from)?;
        }
        from.end()?;
        it.line_up_again(waiting)?;
        Ok(it)
    }

    /// The position of the last command that `shard` took.
    pub fn delivered(&self, shard: Gid) -> u64 {
        self.shards[shard.index()].delivered
    }

    /// Puts waiting commands back, each shard's in order of position. None of them can run: they
    /// waited when the cut was begun.
    fn line_up_again(&mut self, waiting: Vec<Waiting>) -> Result<(), Corrupt> {
        let mut arrivals: Vec<((Place, u64), &Waiting)> =
            waiting.iter().flat_map(|w| w.places.iter().map(move |p| (*p, w))).collect();
        arrivals.sort_by_key(|((p, _), _)| (p.shard, p.position));
        for (place, w) in arrivals {
            let body = Envelope::decode(&w.payload).ok_or(Corrupt::Malformed)?.1;
            let machine = &self.machine;
            let ready =
                self.lanes.enter((w.id, w.dst), place, Some(w.floor), &w.payload, |access| {
                    machine.access(body, w.dst, access);
                });
            if ready.is_some() || place.0.position > self.shards[place.0.shard.index()].delivered {
                return Err(Corrupt::Malformed);
            }
        }
        Ok(())
    }
}

/// All that a cut should hold, told in another way than the cut does.
#[cfg(test)]
pub(super) fn dump(executor: &Executor<crate::kv::Kv>) -> String {
    use std::fmt::Write;
    let mut out = executor.state.machine.dump();
    for s in &executor.state.shards {
        let mut sessions: Vec<_> = s.sessions.table.iter().collect();
        sessions.sort_by_key(|(id, _)| **id);
        let sum = s.sessions.answer_bytes;
        write!(out, "{} {} {sum} {sessions:?}", s.delivered, s.now_ms).expect("a string");
    }
    let mut waiting: Vec<_> = executor.state.lanes.iter().collect();
    waiting.sort_by_key(|e| e.id);
    for e in waiting {
        let mut places = e.places.clone();
        places.sort_by_key(|p| p.shard);
        write!(out, "{:?} {} {} {places:?} {:?}", e.id, e.dst.0, e.floor, e.payload)
            .expect("a string");
    }
    out
}
