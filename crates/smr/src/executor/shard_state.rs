//! One shard's data and the requests that ran on it: everything that a command needs when it runs.

use super::observer::{ExecutedCommand, ExecutionObserver, tell};
use super::sessions::{
    KeptOutcome, SessionKey, SessionRequests, SessionTable, Sessions, ShardProgress, Verdict,
};
use super::snapshot::BEGUN_SINCE;
use super::{CommandAnswer, ExecutionDecision, Limits};
use crate::digest::{Digest, Outcomes, Slice, cursor, encode_result, is_point};
use crate::envelope::Envelope;
use crate::machine::{
    Corrupt, ExecutionPoint, MachinePart, Refusal, ShardPosition, ShardedMachine,
};
use crate::parts::header;
use crate::stream::{Piece, StreamReader, follows, next};
use amcast_core::{GroupSet, MsgId, Outcome};
use std::collections::VecDeque;

/// One shard's data and what ran on it.
pub(super) struct ShardState<P> {
    pub(super) part: P,
    pub(super) sessions: Sessions,
    /// Commands that ran here, retried ones included; one of several shards in its lowest.
    pub(super) executed: u64,
    /// A digest of the answers of the commands whose lowest shard it is.
    outcomes: Outcomes,
    /// The sessions of the snapshot that is being given, and how many of them were.
    snapshot: Option<(SessionTable, usize)>,
}

/// A time that every command still to run in some shards has reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionSweep {
    /// By the wall clock.
    pub(super) wall_ms: u64,
    /// By lived time: see [`super::sessions`].
    pub(super) lived_ms: u64,
}

/// A command at its turn.
pub(super) struct Turn<'a> {
    pub(super) id: MsgId,
    pub(super) dst: GroupSet,
    /// Its place in each destination, in ascending order of shards.
    pub(super) places: &'a [ShardPosition],
    pub(super) judged: ExecutionDecision,
    /// How far its lowest shard was when it was given to be run.
    pub(super) progress: ShardProgress,
    pub(super) sweep: SessionSweep,
    pub(super) payload: &'a [u8],
    /// Whether anybody waits for its answer here.
    pub(super) is_awaited: bool,
    /// The observer of its execution.
    pub(super) witness: Option<&'a dyn ExecutionObserver>,
}

impl<P: MachinePart> ShardState<P> {
    pub(super) fn new(part: P) -> Self {
        let (sessions, outcomes) = (Sessions::default(), Outcomes::default());
        Self { part, sessions, executed: 0, outcomes, snapshot: None }
    }

    /// Computes the digest of a point, whose command this is: all commands in front of it have run here, and none
    /// behind it. Nothing if the point is of another version.
    pub(super) fn digest(
        &mut self,
        place: &ShardPosition,
        body: &[u8],
        limits: &Limits,
        to: &mut Vec<u8>,
    ) {
        let Some(cursor) = cursor(body) else { return };
        let mut slice = Slice::new(cursor, place.now, limits.slice_bytes);
        self.part.digest(&mut slice);
        let (sum, next) = slice.end();
        encode_result(&Digest::new(sum, self.outcomes.end(place.position)), &next, to);
    }

    /// Begins a snapshot at this moment.
    pub(super) fn capture(&mut self) {
        self.snapshot = Some((self.sessions.table.clone(), 0));
        self.part.capture();
    }

    /// Gives the next part of the snapshot; false if that was all.
    pub(super) fn piece(&mut self, to: &mut Piece<'_>) -> bool {
        if let Some((table, given)) = &mut self.snapshot {
            while let Some((key, session)) = table.get_index(*given) {
                if to.is_full() {
                    return true;
                }
                next(true, to);
                give_session(*key, session, to);
                *given += 1;
            }
            next(false, to);
            self.snapshot = None;
        }
        self.part.piece(to)
    }

    /// Forgets the snapshot.
    pub(super) fn release(&mut self) {
        self.snapshot = None;
        self.part.release();
    }

    /// Reads the bytes of [`Self::piece`] into an empty side.
    pub(super) fn read<M: ShardedMachine<Part = P>>(
        &mut self,
        machine: &M,
        from: &mut StreamReader<'_>,
    ) -> Result<(), Corrupt> {
        while follows(from)? {
            let (key, session) = read_session(machine, from)?;
            self.sessions.insert(key, session);
        }
        self.part.read(from)
    }
}

fn give_session(key: SessionKey, s: &SessionRequests, to: &mut Piece<'_>) {
    let SessionKey { id, begun } = key;
    let (below, position) = s.drop_below.unwrap_or((0, 0));
    for word in [id, begun, s.used_ms, below, position, s.ran.len() as u64] {
        to.word(word);
    }
    for (request, kept) in &s.ran {
        to.word(*request);
        let answer = kept.answer();
        to.byte(u8::from(answer.is_some()) | kept.outcome().code() << 1);
        to.bytes(answer.unwrap_or_default());
    }
}

/// The first version of the stream in which the byte before an answer has the command's outcome, too.
const OUTCOMES_SINCE: u8 = 13;

/// The record of a request, from the byte before the answer: its lowest bit says whether there is one, and
/// those above it are the outcome. In older states that byte is 0 or 1, and the machine tells the outcome from
/// the answer.
fn kept_of<M: ShardedMachine>(
    machine: &M,
    version: u8,
    (mark, answer): (u8, &[u8]),
) -> Result<KeptOutcome, Corrupt> {
    let outcome = match version >= OUTCOMES_SINCE {
        true => Outcome::of_code(mark >> 1).ok_or(Corrupt::Malformed)?,
        // It had an answer, which was dropped.
        false if mark != 1 => Outcome::Unknown,
        false => machine.outcome_of_kept(answer),
    };
    match mark & 1 {
        0 => Ok(KeptOutcome::Dropped(outcome)),
        _ => Ok(KeptOutcome::new(outcome, answer)),
    }
}

fn read_session<M: ShardedMachine>(
    machine: &M,
    from: &mut StreamReader<'_>,
) -> Result<(SessionKey, SessionRequests), Corrupt> {
    let id = from.word()?;
    let begun = if from.version() >= BEGUN_SINCE { from.word()? } else { 0 };
    let used_ms = from.word()?;
    let (below, position) = (from.word()?, from.word()?);
    let drop_below = (position > 0).then_some((below, position));
    let mut ran = VecDeque::new();
    for _ in 0..from.word()? {
        let request = from.word()?;
        let mark = from.byte()?;
        let answer = from.bytes()?;
        if ran.back().is_some_and(|(last, _)| *last >= request) {
            return Err(Corrupt::Malformed);
        }
        ran.push_back((request, kept_of(machine, from.version(), (mark, &answer))?));
    }
    Ok((SessionKey { id, begun }, SessionRequests { used_ms, drop_below, ran }))
}

/// Bytes of an answer for which memory is kept, to build the next one in.
const SCRATCH_BYTES_KEPT: usize = 1 << 20;

/// Gives the memory of a large answer back.
pub(super) fn keep_small(scratch: &mut Vec<u8>) {
    if scratch.capacity() > SCRATCH_BYTES_KEPT {
        *scratch = Vec::new();
    }
}

/// Why a command is refused so that no other message of its request is executed either.
const fn refused_for_good(
    verdict: &Verdict<'_>,
    is_skipped: bool,
    is_whole: bool,
) -> Option<Refusal> {
    match verdict {
        // Another message of it may come when it is not ahead any more; one that is old stays so.
        Verdict::New | Verdict::Refused(Refusal::Ahead { .. }) if is_skipped => {
            Some(Refusal::Skipped)
        }
        Verdict::New if !is_whole => Some(Refusal::Incomplete),
        _ => None,
    }
}

/// Runs a command on `sides`, those of its places, unless its session says that it ran before.
pub(super) fn run<M: ShardedMachine>(
    machine: &M,
    limits: &Limits,
    sides: &mut [&mut ShardState<M::Part>],
    turn: &Turn<'_>,
    scratch: &mut Vec<u8>,
    on_answer: &mut dyn FnMut(CommandAnswer<'_>),
) {
    let Turn { id, dst, places, judged, progress, sweep, payload, is_awaited, witness } = *turn;
    let ExecutionDecision { admission, exact, is_skipped } = judged;
    let (envelope, body) = header(payload).expect("it was decoded when it came");
    let Envelope { session, request, .. } = envelope;
    // Each command's session is kept in its lowest shard; a retry has the same destinations.
    let (lowest, now_ms) = (&mut *sides[0], places[0].now.host_ms);
    let verdict = if envelope.read_only {
        admission.timing.refusal(now_ms).map_or(Verdict::New, Verdict::Refused)
    } else {
        lowest.sessions.check(&envelope, admission, now_ms, limits)
    };
    let is_whole = body.is_some();
    let body = body.unwrap_or_default();
    scratch.clear();
    if is_point(&envelope) {
        lowest.digest(&places[0], body, limits, scratch);
        let outcome = Outcome::Executed;
        return on_answer(CommandAnswer { id, session, request, outcome, bytes: scratch });
    }
    let for_good = refused_for_good(&verdict, is_skipped, is_whole);
    match verdict {
        Verdict::Done(outcome, kept) => {
            machine.again(&lowest.part, kept, body, scratch);
            lowest.sessions.renew(&envelope, admission);
            on_answer(CommandAnswer { id, session, request, outcome, bytes: scratch });
        }
        Verdict::Refused(why) if for_good.is_none() => {
            machine.refuse(why, body, scratch);
            lowest.sessions.renew(&envelope, admission);
            let outcome = why.outcome();
            on_answer(CommandAnswer { id, session, request, outcome, bytes: scratch });
        }
        // It changes nothing, and its client is answered by another node.
        Verdict::New if envelope.read_only && !is_awaited => {}
        Verdict::New | Verdict::Refused(_) => {
            let outcome = if let Some(why) = for_good {
                machine.refuse(why, body, scratch);
                why.outcome()
            } else {
                lowest.executed += 1;
                let at = ExecutionPoint { id, dst, places, exact, read_only: envelope.read_only };
                let doing = (
                    places[0].shard.index(),
                    ExecutedCommand { id, dst, place: places[0], command: body },
                );
                tell(witness, doing, || apply(machine, &at, sides, (body, scratch)))
            };
            if !envelope.read_only {
                let kept = KeptOutcome::new(outcome, machine.kept(scratch));
                sides[0].sessions.record(&envelope, kept, admission, &progress, limits);
                let compared = if machine.is_compared(body) { &scratch[..] } else { &[] };
                sides[0].outcomes.add((places[0].position, id), outcome, compared);
            }
            on_answer(CommandAnswer { id, session, request, outcome, bytes: scratch });
        }
    }
    keep_small(scratch);
    for side in sides {
        side.part.sweep(sweep.wall_ms);
        side.sessions.sweep(sweep.lived_ms, limits);
    }
}

fn apply<M: ShardedMachine>(
    machine: &M,
    at: &ExecutionPoint<'_>,
    sides: &mut [&mut ShardState<M::Part>],
    (body, answer): (&[u8], &mut Vec<u8>),
) -> Outcome {
    if let [one] = sides {
        return machine.apply(at, &mut [&mut one.part], body, answer);
    }
    let mut parts: Vec<&mut M::Part> = sides.iter_mut().map(|s| &mut s.part).collect();
    machine.apply(at, &mut parts, body, answer)
}
