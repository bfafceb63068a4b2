//! A state machine of one's own: for services whose shards are small enough to be copied at once.
//!
//! A [`StateMachine`] declares a command's keys and executes it; [`StateMachineAdapter`] makes a
//! [`ShardedMachine`] of it. A snapshot saves each shard in one go, so its node waits for as long as
//! [`Shard::save`] takes. A node that gets its state from another one has two of them for a moment, the old and the new,
//! and the bytes of one shard besides. A service with much state implements [`ShardedMachine`] and
//! [`MachinePart`] itself, as the key-value store does.

use crate::digest::Slice;
use crate::hash::hash_bytes;
use crate::machine::{Access, Corrupt, ExecutionPoint, MachinePart, Refusal, ShardedMachine, Use};
use crate::stream::{Piece, StreamReader};
use amcast_core::groupcast::ViewName;
use amcast_core::{Gid, GroupSet, Outcome};

/// The key of the hashes of touched keys. Equal hashes cost waiting, never correctness.
const SEED: u64 = 0x7768_6f6c_6521;

/// A service over shards: deterministic, and the same on every replica. Its answers and changes
/// must follow from the commands alone.
pub trait StateMachine: Default + Send + Sync + 'static {
    /// One shard's data.
    type Shard: Shard;

    /// Says which keys `command` touches, in which of its shards, and whether it may change them.
    /// Commands that share none, or only such that neither changes, run in any order. False if it
    /// touches its shards as a whole.
    ///
    /// A command that may change a key is executed by every replica, and refused where a client sends it as a read
    /// (`amcast::replicate::Session::read`), which one replica may execute alone. A command that changes its
    /// shards as a whole is known by this, too, if it names any key with [`KeyUse::Writes`]; without one it is the
    /// client that must not send it as a read.
    fn touches(
        &self,
        command: &[u8],
        shards: GroupSet,
        key: &mut dyn FnMut(Gid, &[u8], KeyUse),
    ) -> bool;

    /// Executes `command` over all its shards at once and appends the answer. Bytes that are no
    /// command are answered with an error of the service's own; it must not panic.
    ///
    /// [`Outcome::NotExecuted`] means that the service refused the command and that nothing
    /// changed: the caller receives an error with the answer. All other commands were executed,
    /// also those without effect.
    fn apply(
        &self,
        command: &[u8],
        shards: &mut [ShardView<'_, Self::Shard>],
        answer: &mut Vec<u8>,
    ) -> Outcome;

    /// The hook that makes one state of two that parted where every component of a partition continued, if the service has
    /// one: it merges the second one into the first. Without it the service runs on no protocol with
    /// [`PartitionMode::EveryComponent`](amcast_core::PartitionMode::EveryComponent); with it see [`crate::reconcile`].
    ///
    /// Both states may hold what they had in common before. A merge of a state with itself, or of one that follows from it, must
    /// change nothing, because a component can part and merge again while its members exchange their states.
    fn reconciler(&self) -> Option<Reconciler<Self::Shard>> {
        None
    }

    /// The replica enters a view, in which the commands from here on are ordered: where every component of a partition
    /// continues, with [`Self::reconciler`]. The state is that with which the commands of the view before end, and members,
    /// a bit each by their number in the group, that come from that view into this one are called with the same state. Those
    /// of them that come from another view have states of their own, which are reconciled after it.
    fn enter_view(&self, _data: &mut Self::Shard, _view: ViewName, _members: u32) {}

    /// Every process of the group is in the present view, all had one state in it, and each has executed its first
    /// `executed` commands in it: those that [`Self::apply`] was given since [`Self::enter_view`]. From now on no state that
    /// this one merges with is without them, save the empty one of a process that begins anew. All replicas
    /// call it between the same two commands. Where every component of a partition continues, with [`Self::reconciler`].
    fn settle(&self, _data: &mut Self::Shard, _executed: u64) {}
}

/// The hook of a [`StateMachine`] that can reconcile: merges the second state into the first.
pub type Reconciler<D> = fn(&mut D, &D);

/// The use of a key by a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyUse {
    /// It looks at it.
    Reads,
    /// It may change it.
    Writes,
}

/// A shard as a command sees it.
#[derive(Debug)]
pub struct ShardView<'a, S> {
    /// Which shard.
    pub shard: Gid,
    /// Ordered time there, in milliseconds since 1970: the same at every replica.
    pub now_ms: u64,
    /// Its data.
    pub data: &'a mut S,
}

/// One shard's data.
pub trait Shard: Default + Send + 'static {
    /// How many items it holds, for people and metrics.
    fn items(&self) -> usize;

    /// Appends all of it to `to`.
    fn save(&self, to: &mut Vec<u8>);

    /// Decodes the bytes of [`save`](Self::save); none if they are not valid. They come as they were saved, which sums show:
    /// a node that gets none takes them for those of another version of the program. It ends if it finds them on its disk, and
    /// where another node gave them, it says so in its status and asks again now and then.
    fn load(from: &[u8]) -> Option<Self>;

    /// Appends the bytes that replicas compare now and then, to find one that is in another state: that node stops.
    /// The bytes must follow from the commands that were applied alone: no hash order, and the same in all versions of
    /// a program that run together. Where that holds for [`save`](Self::save), `self.save(to)` does. By default there
    /// are none, and only answers of commands are compared.
    fn digest(&self, _to: &mut Vec<u8>) {}
}

/// The byte in front of an answer: whether the command ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum AnswerCode {
    Answer = 0,
    Stale = 1,
    Forgotten = 2,
    Window = 3,
    Ahead = 4,
    NoRoom = 5,
    Incomplete = 6,
    Skipped = 7,
    NotARead = 8,
}

/// Why a [`StateMachine`] did not run a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MachineRefusal {
    /// The executor refused it.
    Executor(Refusal),
    /// It was sent as a read, and [`StateMachine::touches`] says that it may change something: nobody executed it.
    NotARead,
}

impl MachineRefusal {
    /// The command's outcome.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Executor(why) => why.outcome(),
            Self::NotARead => Outcome::NotExecuted,
        }
    }
}

/// The refusal for bytes that are no answer.
const UNKNOWN: Refusal = Refusal::Forgotten { outcome: Outcome::Unknown };

/// Takes an answer of a [`StateMachineAdapter`] apart.
///
/// # Errors
/// Why the command was not run.
pub fn answered(bytes: &[u8]) -> Result<&[u8], MachineRefusal> {
    if bytes == [AnswerCode::NotARead as u8] {
        return Err(MachineRefusal::NotARead);
    }
    unless_refused(bytes).map_err(MachineRefusal::Executor)
}

/// The answer of the machine itself, unless the executor refused the command.
fn unless_refused(bytes: &[u8]) -> Result<&[u8], Refusal> {
    match bytes.split_first() {
        Some((&word, answer)) if word == AnswerCode::Answer as u8 => Ok(answer),
        Some((&word, now_ms)) if word == AnswerCode::Stale as u8 => {
            Err(time(now_ms).map_or(UNKNOWN, |now_ms| Refusal::Stale { now_ms }))
        }
        Some((&word, now_ms)) if word == AnswerCode::Ahead as u8 => {
            Err(time(now_ms).map_or(UNKNOWN, |now_ms| Refusal::Ahead { now_ms }))
        }
        Some((&word, _)) if word == AnswerCode::Window as u8 => Err(Refusal::Window),
        Some((&word, _)) if word == AnswerCode::NoRoom as u8 => Err(Refusal::NoRoom),
        Some((&word, _)) if word == AnswerCode::Incomplete as u8 => Err(Refusal::Incomplete),
        Some((&word, _)) if word == AnswerCode::Skipped as u8 => Err(Refusal::Skipped),
        Some((&word, &[outcome])) if word == AnswerCode::Forgotten as u8 => {
            let outcome = Outcome::of_code(outcome).unwrap_or(Outcome::Unknown);
            Err(Refusal::Forgotten { outcome })
        }
        _ => Err(UNKNOWN),
    }
}

fn time(now_ms: &[u8]) -> Option<u64> {
    now_ms.try_into().ok().map(u64::from_le_bytes)
}

/// A [`StateMachine`] as a [`ShardedMachine`].
#[derive(Debug, Default)]
pub struct StateMachineAdapter<S>(S);

/// One shard of a [`StateMachineAdapter`].
#[derive(Debug, Default)]
pub struct AdaptedShard<D> {
    data: D,
    snapshot: Option<Saved>,
}

/// A shard's bytes, on their way to another node.
#[derive(Debug)]
struct Saved {
    bytes: Vec<u8>,
    /// How many of them were given; none until their number was.
    given: Option<usize>,
}

impl<S: StateMachine> StateMachineAdapter<S> {
    /// Whether the command names a key that it may change.
    fn may_write(&self, command: &[u8], dst: GroupSet) -> bool {
        let mut writes = false;
        self.0.touches(command, dst, &mut |_, _, touch| writes |= touch == KeyUse::Writes);
        writes
    }
}

impl<S: StateMachine> ShardedMachine for StateMachineAdapter<S> {
    type Part = AdaptedShard<S::Shard>;

    /// Its shards are small enough to be copied at once.
    const FITS_TWICE: bool = true;

    fn part(&self) -> Self::Part {
        AdaptedShard::default()
    }

    fn access(&self, command: &[u8], dst: GroupSet, access: &mut Access) {
        let uses = &mut access.uses;
        access.whole = !self.0.touches(command, dst, &mut |shard, key, touch| {
            // A shard that the command does not go to cannot be touched by it.
            if dst.contains(shard) {
                let write = touch == KeyUse::Writes;
                uses.push(Use { shard, key: hash_bytes(SEED, key), write });
            }
        });
    }

    fn apply<'a>(
        &self,
        at: &ExecutionPoint<'a>,
        parts: &'a mut [&'a mut Self::Part],
        command: &[u8],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        // This replica alone may be the one that runs it.
        if at.read_only && self.may_write(command, at.dst) {
            answer.push(AnswerCode::NotARead as u8);
            return Outcome::NotExecuted;
        }
        let mut shards: Vec<_> = at
            .places
            .iter()
            .zip(parts)
            .map(|(place, part)| ShardView {
                shard: place.shard,
                now_ms: place.now.wall_ms,
                data: &mut part.data,
            })
            .collect();
        answer.push(AnswerCode::Answer as u8);
        self.0.apply(command, &mut shards, answer)
    }

    fn outcome_of_kept(&self, kept: &[u8]) -> Outcome {
        answered(kept).map_or_else(MachineRefusal::outcome, |_| Outcome::Executed)
    }

    fn refuse(&self, why: Refusal, _command: &[u8], answer: &mut Vec<u8>) {
        let (word, now_ms) = match why {
            Refusal::Stale { now_ms } => (AnswerCode::Stale, Some(now_ms)),
            Refusal::Ahead { now_ms } => (AnswerCode::Ahead, Some(now_ms)),
            Refusal::Forgotten { outcome } => {
                return answer.extend([AnswerCode::Forgotten as u8, outcome.code()]);
            }
            Refusal::Window => (AnswerCode::Window, None),
            Refusal::NoRoom => (AnswerCode::NoRoom, None),
            Refusal::Incomplete => (AnswerCode::Incomplete, None),
            Refusal::Skipped => (AnswerCode::Skipped, None),
        };
        answer.push(word as u8);
        answer.extend(now_ms.into_iter().flat_map(u64::to_le_bytes));
    }
}

impl<D: Shard> MachinePart for AdaptedShard<D> {
    fn items(&self) -> (usize, usize) {
        (self.data.items(), 0)
    }

    fn due_ms(&self) -> Option<u64> {
        None
    }

    fn sweep(&mut self, _now_ms: u64) {}

    fn capture(&mut self) {
        let mut bytes = Vec::new();
        self.data.save(&mut bytes);
        self.snapshot = Some(Saved { bytes, given: None });
    }

    fn piece(&mut self, to: &mut Piece<'_>) -> bool {
        let Some(snapshot) = &mut self.snapshot else { return false };
        let mut given = snapshot.given.unwrap_or_else(|| {
            to.word(snapshot.bytes.len() as u64);
            0
        });
        given += to.some(&snapshot.bytes[given..]);
        snapshot.given = Some(given);
        given < snapshot.bytes.len()
    }

    fn release(&mut self) {
        self.snapshot = None;
    }

    fn kept(&self) -> usize {
        0
    }

    fn read(&mut self, from: &mut StreamReader<'_>) -> Result<(), Corrupt> {
        // The sum of each frame fits by now.
        self.data = D::load(&from.bytes()?).ok_or(Corrupt::Rejected)?;
        Ok(())
    }

    /// All at once, as it is saved.
    fn digest(&self, slice: &mut Slice<'_>) {
        let mut bytes = Vec::new();
        self.data.digest(&mut bytes);
        slice.bytes(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Envelope, Executor, ExecutorState, Limits, LocalRead, Stamp};
    use amcast_core::{MsgId, Pid};

    /// A number for each shard; a command of bytes adds their sum to all its shards, and one without any reads it.
    #[derive(Debug, Default)]
    struct Sums;

    #[derive(Debug, Default)]
    struct Sum(u64, Vec<u8>);

    impl Shard for Sum {
        fn items(&self) -> usize {
            1
        }

        fn save(&self, to: &mut Vec<u8>) {
            to.extend_from_slice(&self.0.to_le_bytes());
            to.extend_from_slice(&self.1);
        }

        fn load(from: &[u8]) -> Option<Self> {
            let (sum, rest) = from.split_first_chunk()?;
            Some(Self(u64::from_le_bytes(*sum), rest.to_vec()))
        }
    }

    impl StateMachine for Sums {
        type Shard = Sum;

        fn touches(
            &self,
            command: &[u8],
            shards: GroupSet,
            key: &mut dyn FnMut(Gid, &[u8], KeyUse),
        ) -> bool {
            let touch = if command.is_empty() { KeyUse::Reads } else { KeyUse::Writes };
            shards.iter().for_each(|g| key(g, b"sum", touch));
            // The sum is all that there is, unless the command says so.
            command != WHOLE
        }

        fn apply(
            &self,
            command: &[u8],
            shards: &mut [ShardView<'_, Sum>],
            answer: &mut Vec<u8>,
        ) -> Outcome {
            for seen in shards {
                seen.data.0 += command.iter().map(|&b| u64::from(b)).sum::<u64>();
                seen.data.1.extend_from_slice(command);
                answer.extend_from_slice(&seen.data.0.to_le_bytes());
            }
            Outcome::Executed
        }
    }

    /// A later version of it, which does not read what the first one saved.
    #[derive(Debug, Default)]
    struct Pickier;

    #[derive(Debug, Default)]
    struct PickySum;

    impl Shard for PickySum {
        fn items(&self) -> usize {
            0
        }

        fn save(&self, _: &mut Vec<u8>) {}

        fn load(_: &[u8]) -> Option<Self> {
            None
        }
    }

    impl StateMachine for Pickier {
        type Shard = PickySum;

        fn touches(&self, _: &[u8], _: GroupSet, _: &mut dyn FnMut(Gid, &[u8], KeyUse)) -> bool {
            false
        }

        fn apply(&self, _: &[u8], _: &mut [ShardView<'_, PickySum>], _: &mut Vec<u8>) -> Outcome {
            Outcome::NotExecuted
        }
    }

    /// A command that touches its shards as a whole.
    const WHOLE: &[u8] = &[9, 9];

    fn run(
        executor: &mut Executor<StateMachineAdapter<Sums>>,
        request: u64,
        command: &[u8],
    ) -> Vec<u8> {
        send(executor, request, command, false)
    }

    /// The bytes of a command that goes to both shards.
    fn payload(request: u64, command: &[u8], read_only: bool) -> Vec<u8> {
        let stamp = Stamp { wall_ms: request, host_ms: request };
        let envelope = Envelope { session: 1, request, open_from: request, stamp, read_only };
        let mut payload = Vec::new();
        envelope.encode(&mut payload);
        payload.extend_from_slice(command);
        payload
    }

    /// Has both shards deliver a command; its answer, if this replica gives one.
    fn send(
        executor: &mut Executor<StateMachineAdapter<Sums>>,
        request: u64,
        command: &[u8],
        read_only: bool,
    ) -> Vec<u8> {
        let mut answer = Vec::new();
        let payload = payload(request, command, read_only);
        let (id, dst) = (MsgId { sender: Pid(9), seq: request }, GroupSet::first(2));
        for g in dst.iter() {
            let taken = executor.deliver(g, request, id, dst, &payload, &mut |a| {
                answer = a.bytes.to_vec();
            });
            taken.expect("it has room");
        }
        answer
    }

    #[test]
    fn commands_run_once_and_the_state_goes_over_in_pieces() {
        let mut first = Executor::new(StateMachineAdapter::<Sums>::default(), 2, Limits::default());
        let long = vec![1; 5000];
        run(&mut first, 1, &long);
        let twice = run(&mut first, 2, &[7]);
        assert_eq!(answered(&twice).unwrap()[..8], 5007_u64.to_le_bytes());
        first.capture();
        run(&mut first, 3, &[100]);
        let mut stream = Vec::new();
        let mut pieces = 1;
        while first.piece(500, &mut stream) {
            pieces += 1;
        }
        assert!(pieces > 10, "{pieces} pieces");
        let state =
            ExecutorState::read(&StateMachineAdapter::<Sums>::default(), 2, &mut &stream[..])
                .unwrap();
        let mut second =
            Executor::new(StateMachineAdapter::<Sums>::default(), 2, Limits::default());
        second.adopt(state);
        assert_eq!(second.delivered(Gid(1)), 2);
        // Commands after the snapshot are not in it, and are delivered separately.
        assert_eq!(run(&mut second, 3, &[100]), run_again(&mut first));
    }

    /// The answer to a retry of the last request: the same, without being run again.
    fn run_again(executor: &mut Executor<StateMachineAdapter<Sums>>) -> Vec<u8> {
        let mut answer = Vec::new();
        let stamp = Stamp { wall_ms: 3, host_ms: 3 };
        let envelope = Envelope { session: 1, request: 3, open_from: 3, stamp, read_only: false };
        let mut payload = Vec::new();
        envelope.encode(&mut payload);
        payload.push(100);
        for g in GroupSet::first(2).iter() {
            let id = MsgId { sender: Pid(9), seq: 4 };
            let taken = executor.deliver(g, 4, id, GroupSet::first(2), &payload, &mut |a| {
                answer = a.bytes.to_vec();
            });
            taken.expect("it has room");
        }
        answer
    }

    fn sums() -> Executor<StateMachineAdapter<Sums>> {
        Executor::new(StateMachineAdapter::default(), 2, Limits::default())
    }

    /// Only the replica that is asked runs a read: a write that is sent as one would make it another one than the others.
    #[test]
    fn a_command_that_may_write_is_refused_as_a_read_wherever_it_is_executed() {
        let (mut asked, mut other) = (sums(), sums());
        asked.answer_only(std::sync::Arc::new(|_| true));
        other.answer_only(std::sync::Arc::new(|_| false));
        for executor in [&mut asked, &mut other] {
            run(executor, 1, &[7]);
        }
        let sum = [7_u64.to_le_bytes(), 7_u64.to_le_bytes()].concat();
        for (request, command) in [(2, &[5][..]), (3, WHOLE)] {
            let answer = send(&mut asked, request, command, true);
            assert_eq!(answered(&answer), Err(MachineRefusal::NotARead));
            assert_eq!(send(&mut other, request, command, true), b"");
        }
        // Local reads, of one shard and of several.
        let write = payload(4, &[5], true);
        let mut answer = Vec::new();
        let refused = LocalRead::Answered(Outcome::NotExecuted);
        assert_eq!(asked.peek_one(Gid(0), 0, &write, &mut answer), refused);
        assert_eq!(answered(&answer), Err(MachineRefusal::NotARead));
        answer.clear();
        assert_eq!(asked.peek(0, (GroupSet::first(2), &write), &[], &mut answer), refused);
        assert_eq!(answered(&answer), Err(MachineRefusal::NotARead));
        for (request, executor) in [(5, &mut asked), (6, &mut other)] {
            executor.answer_only(std::sync::Arc::new(|_| true));
            let read = send(executor, request, &[], true);
            assert_eq!(
                answered(&read),
                Ok(&sum[..]),
                "a read is answered, and nothing has changed"
            );
        }
        assert_eq!(MachineRefusal::NotARead.outcome(), Outcome::NotExecuted);
    }

    #[test]
    fn a_state_that_the_machine_refuses_is_told_from_a_damaged_one() {
        let mut first = sums();
        run(&mut first, 1, &[7]);
        first.capture();
        let mut stream = Vec::new();
        while first.piece(500, &mut stream) {}
        let machine = StateMachineAdapter::<Pickier>::default();
        let read = |mut bytes: &[u8]| ExecutorState::read(&machine, 2, &mut bytes).map(drop);
        assert_eq!(read(&stream), Err(Corrupt::Rejected));
        let at = stream.len() - 20;
        stream[at] ^= 1;
        assert_eq!(read(&stream), Err(Corrupt::Checksum));
        assert_eq!(read(&stream[..at]), Err(Corrupt::Short));
    }

    #[test]
    fn a_refusal_is_no_answer() {
        let timed = [Refusal::Stale { now_ms: 9 }, Refusal::Ahead { now_ms: 9 }];
        let untimed = [
            Refusal::Forgotten { outcome: Outcome::Executed },
            Refusal::Forgotten { outcome: Outcome::NotExecuted },
            UNKNOWN,
            Refusal::Window,
            Refusal::NoRoom,
            Refusal::Incomplete,
            Refusal::Skipped,
        ];
        for why in timed.into_iter().chain(untimed) {
            let mut bytes = Vec::new();
            StateMachineAdapter::<Sums>::default().refuse(why, b"", &mut bytes);
            assert_eq!(answered(&bytes), Err(MachineRefusal::Executor(why)));
        }
        assert_eq!(answered(&[0]), Ok(&[][..]));
        assert_eq!(answered(&[]), Err(MachineRefusal::Executor(UNKNOWN)));
    }
}
