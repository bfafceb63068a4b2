//! Bounds of the answers that all connections of a gateway ask for at a time.
//!
//! A command of a few bytes may have an answer of megabytes. Commands that are sent cannot be taken back: while the nodes
//! prepare large answers, and while these arrive, the commands of the other clients of the gateway wait behind them. So
//! before a connection sends a command whose answer may be large it takes a place:
//! - where the size of its answers is not known, one of [`TRIALS`]: the more, the more of such answers were small
//!   since one was large;
//! - where its last answers were large, one of their size, of [`LARGE_BYTES_MAX`] bytes.
//!
//! A read takes none where the last answers were small, or there were none, and says that only a small answer is wanted: if
//! it is large after all the read is [refused](amcast_kv::size_refusal) before more was prepared, and is sent again with a
//! place among the large answers, of the size that such answers had lately. So a client that has just connected waits for
//! none of those that ask for large ones. A command that also writes cannot be refused so, and takes a place.
//!
//! It keeps the place until the answer has arrived, and for no longer than [`HELD_AT_MOST`]: a shard that does not answer
//! stops no commands to others. Where there is no place, connections wait, and
//! their hosts take turns.

use amcast_kv::client::lock;
use amcast_kv::size_refusal::SMALL_ANSWER_BYTES;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// An answer of fewer bytes is small.
pub(super) const LARGE_ANSWER_BYTES: usize = SMALL_ANSWER_BYTES;

/// Bytes of large answers that are asked for at a time, by all connections: some hundredths of a second of a node's
/// work. One answer alone may be larger.
pub(super) const LARGE_BYTES_MAX: usize = 32 << 20;

/// Answers of unknown size that are asked for at a time, by all connections: after a large one, and at most. Each of them
/// may be as large as answers are. A client whose first command also writes waits for one of these places, so there have
/// to be enough for many such clients a second, also where an answer takes a tenth of a second.
pub(super) const TRIALS: (usize, usize) = (8, 64);

/// The bytes that the answer to a refused read counts as, at least, and at first: nobody knows by how much it is too large.
const REFUSED_BYTES: (usize, usize) = (LARGE_BYTES_MAX / 8, LARGE_BYTES_MAX / 2);

/// How long a command without an answer keeps its place, also that of a connection that is gone: the nodes prepare the
/// answer all the same.
const HELD_AT_MOST: Duration = Duration::from_secs(1);

/// The size that the answer to a command may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AnswerSize {
    /// Nothing is known.
    Unknown,
    /// More than is small: a node refused the read for that.
    Refused,
    /// About so many bytes, at least [`LARGE_ANSWER_BYTES`].
    Large(usize),
}

/// The places of a gateway.
#[derive(Default)]
pub(super) struct AnswerAdmission(Mutex<AnswersUnderWay>);

struct AnswersUnderWay {
    trials: AnswerPlaces,
    trials_max: usize,
    large: AnswerPlaces,
    /// Bytes that the answers to refused reads have: of the largest lately.
    refused_bytes: usize,
    last: u64,
}

impl Default for AnswersUnderWay {
    fn default() -> Self {
        let (trials, large) = (AnswerPlaces::default(), AnswerPlaces::default());
        Self { trials, trials_max: TRIALS.0, large, refused_bytes: REFUSED_BYTES.1, last: 0 }
    }
}

impl AnswerAdmission {
    /// An answer of unknown size has arrived, and has so many bytes.
    pub(super) fn learn(&self, bytes: usize) {
        let mut all = lock(&self.0);
        all.trials_max = match bytes < LARGE_ANSWER_BYTES {
            true => TRIALS.1.min(all.trials_max + 1),
            false => TRIALS.0,
        };
        all.trials.wake_next();
    }

    /// The answer to a read that was refused before has so many bytes.
    fn learn_refused(&self, bytes: usize) {
        let mut all = lock(&self.0);
        let before = all.refused_bytes;
        all.refused_bytes = bytes.max(before - before / 8).max(REFUSED_BYTES.0);
    }
}

/// Places of one kind.
#[derive(Default)]
struct AnswerPlaces {
    /// How much of them is taken.
    taken: usize,
    /// Those that are taken, by their numbers: since when, and how much each is. The oldest come first.
    placed: BTreeMap<u64, (Instant, usize)>,
    /// The host whose turn is next in front; each of them has one that waits.
    hosts: VecDeque<WaitingHost>,
}

/// The commands of one host that wait, the oldest in front.
struct WaitingHost {
    host: IpAddr,
    waiting: VecDeque<(u64, Waker)>,
}

impl AnswerPlaces {
    /// Takes `share` of `most` for the one of this number, unless others are to have it before.
    fn take(&mut self, number: u64, share: usize, most: usize) -> bool {
        let next = self.hosts.front().and_then(|host| host.waiting.front());
        if next.is_some_and(|(next, _)| *next != number) {
            return false;
        }
        let now = Instant::now();
        while self.taken > 0 && self.taken + share > most {
            let oldest =
                self.placed.first_key_value().map(|(oldest, (since, _))| (*oldest, *since));
            match oldest {
                Some((oldest, since)) if since + HELD_AT_MOST <= now => self.give_back(oldest),
                _ => return false,
            }
        }
        self.taken += share;
        self.placed.insert(number, (now, share));
        true
    }

    /// The one of this number does not need its place any more, if it still has it.
    fn give_back(&mut self, number: u64) {
        if let Some((_, share)) = self.placed.remove(&number) {
            self.taken -= share;
        }
    }

    /// Puts one behind the others of its host, or notes who is to be woken for it.
    fn wait(&mut self, number: u64, host: IpAddr, waker: &Waker) {
        let Some(line) = self.hosts.iter_mut().find(|line| line.host == host) else {
            let waiting = [(number, waker.clone())].into();
            return self.hosts.push_back(WaitingHost { host, waiting });
        };
        match line.waiting.iter_mut().find(|(other, _)| *other == number) {
            Some((_, old)) => old.clone_from(waker),
            None => line.waiting.push_back((number, waker.clone())),
        }
    }

    /// The one that comes next has its place, if it waited: its host goes behind the others.
    fn leave_as_next(&mut self, number: u64) {
        let Some(mut line) = self.hosts.pop_front() else { return };
        line.waiting.retain(|(other, _)| *other != number);
        if !line.waiting.is_empty() {
            self.hosts.push_back(line);
        }
    }

    /// One waits no longer.
    fn leave(&mut self, number: u64) {
        self.hosts.iter_mut().for_each(|line| line.waiting.retain(|(other, _)| *other != number));
        self.hosts.retain(|line| !line.waiting.is_empty());
    }

    fn wake_next(&self) {
        if let Some((_, waker)) = self.hosts.front().and_then(|line| line.waiting.front()) {
            waker.wake_by_ref();
        }
    }
}

impl AnswersUnderWay {
    /// The places for answers of this size, how much of them one takes, and how much there is.
    fn places(&mut self, size: AnswerSize) -> (&mut AnswerPlaces, usize, usize) {
        match size {
            AnswerSize::Unknown => (&mut self.trials, 1, self.trials_max),
            AnswerSize::Refused => (&mut self.large, self.refused_bytes, LARGE_BYTES_MAX),
            AnswerSize::Large(bytes) => (&mut self.large, bytes, LARGE_BYTES_MAX),
        }
    }
}

/// The place of one command, or its wait for one. It is given back when this is dropped.
pub(super) struct AnswerTurn {
    admission: Arc<AnswerAdmission>,
    host: IpAddr,
    size: AnswerSize,
    number: u64,
    is_placed: bool,
    /// Wakes one that waits when places may have been held for too long.
    timer: Option<Pin<Box<Sleep>>>,
}

impl AnswerTurn {
    /// The turn of a command of a client of `host`.
    pub(super) fn new(admission: &Arc<AnswerAdmission>, host: IpAddr, size: AnswerSize) -> Self {
        let mut all = lock(&admission.0);
        all.last += 1;
        let number = all.last;
        drop(all);
        let admission = Arc::clone(admission);
        Self { admission, host, size, number, is_placed: false, timer: None }
    }

    /// Whether it has its place. If not, `cx` is woken when it is to be asked again.
    pub(super) fn is_placed(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_placed {
            return true;
        }
        let mut all = lock(&self.admission.0);
        let (places, share, most) = all.places(self.size);
        self.is_placed = places.take(self.number, share, most);
        if self.is_placed {
            places.leave_as_next(self.number);
            // There may be room for another one.
            places.wake_next();
            return true;
        }
        places.wait(self.number, self.host, cx.waker());
        drop(all);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(HELD_AT_MOST)));
        if timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(Instant::now() + HELD_AT_MOST);
            // It is woken by this one from now on.
            _ = timer.as_mut().poll(cx);
        }
        false
    }

    /// Its command is under way, and nobody is there for the answer: the place stays taken for as long as that may be.
    fn abandon(mut self) {
        self.is_placed = false;
    }
}

impl Drop for AnswerTurn {
    fn drop(&mut self) {
        let mut all = lock(&self.admission.0);
        let (places, ..) = all.places(self.size);
        match self.is_placed {
            true => places.give_back(self.number),
            false => places.leave(self.number),
        }
        places.wake_next();
    }
}

/// The turns of a connection.
#[derive(Default)]
pub(super) struct OpenTurns {
    /// Of the commands that it has sent, by their requests.
    sent: Vec<(u64, Box<AnswerTurn>)>,
    /// Of its first command that was refused and is to be sent again, while that waits for its turn.
    pub(super) refused: Option<Box<AnswerTurn>>,
}

impl OpenTurns {
    /// A command with its place was sent.
    pub(super) fn sent(&mut self, request: u64, turn: Box<AnswerTurn>) {
        self.sent.push((request, turn));
    }

    /// The answer to a request has arrived. If its size was not known, and it is as large as its command asks for, others
    /// learn from it.
    pub(super) fn answered(&mut self, request: u64, is_executed: bool, bytes: usize) {
        let Some(at) = self.sent.iter().position(|(open, _)| *open == request) else { return };
        let (_, turn) = self.sent.swap_remove(at);
        match turn.size {
            AnswerSize::Unknown if is_executed => turn.admission.learn(bytes),
            AnswerSize::Refused if is_executed => turn.admission.learn_refused(bytes),
            _ => {}
        }
    }
}

impl Drop for OpenTurns {
    fn drop(&mut self) {
        self.sent.drain(..).for_each(|(_, turn)| turn.abandon());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(admission: &Arc<AnswerAdmission>, last: u8, size: AnswerSize) -> AnswerTurn {
        AnswerTurn::new(admission, [10, 0, 0, last].into(), size)
    }

    fn is_placed(turn: &mut AnswerTurn) -> bool {
        turn.is_placed(&mut Context::from_waker(Waker::noop()))
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn hosts_take_turns_and_one_that_gives_up_leaves_its_turn_to_the_next() {
        let _limit = amcast_test_policy::time_limit();
        let runtime = runtime();
        let _entered = runtime.enter();
        let admission = Arc::<AnswerAdmission>::default();
        let half = AnswerSize::Large(LARGE_BYTES_MAX / 2);
        let mut first: Vec<_> = (0..2).map(|_| turn(&admission, 1, half)).collect();
        assert!(first.iter_mut().all(is_placed));
        let mut waiting: Vec<_> = (0..3).map(|_| turn(&admission, 1, half)).collect();
        assert!(!waiting.iter_mut().any(is_placed));
        let mut other = turn(&admission, 2, half);
        assert!(!is_placed(&mut other));
        first.pop();
        assert!(!is_placed(&mut other), "the other host came first");
        assert!(is_placed(&mut waiting[0]) && !is_placed(&mut waiting[1]));
        first.pop();
        assert!(!is_placed(&mut waiting[1]), "it is the turn of another host");
        assert!(is_placed(&mut other));
        drop(waiting.remove(1));
        drop(other);
        assert!(is_placed(&mut waiting[1]));
        waiting.clear();
        let mut larger = turn(&admission, 1, AnswerSize::Large(2 * LARGE_BYTES_MAX));
        assert!(is_placed(&mut larger), "one alone may be larger");
        assert!(!is_placed(&mut turn(&admission, 1, half)));
    }

    #[test]
    fn hosts_that_ask_again_at_once_have_their_turns_alike() {
        let _limit = amcast_test_policy::time_limit();
        let runtime = runtime();
        let _entered = runtime.enter();
        let admission = Arc::<AnswerAdmission>::default();
        let all = AnswerSize::Large(LARGE_BYTES_MAX);
        let mut turns: Vec<_> = (0..4).map(|host| turn(&admission, host, all)).collect();
        let mut served = [0; 4];
        for _ in 0..40 {
            let placed: Vec<_> = (0..4).filter(|at| is_placed(&mut turns[*at])).collect();
            assert_eq!(placed.len(), 1);
            served[placed[0]] += 1;
            turns[placed[0]] = turn(&admission, placed[0] as u8, all);
        }
        assert_eq!(served, [10; 4]);
    }

    #[test]
    fn more_answers_of_unknown_size_are_asked_for_while_such_answers_are_small() {
        let _limit = amcast_test_policy::time_limit();
        let runtime = runtime();
        let _entered = runtime.enter();
        let admission = Arc::<AnswerAdmission>::default();
        let placed = || {
            let mut turns: Vec<_> =
                (0..100).map(|_| turn(&admission, 1, AnswerSize::Unknown)).collect();
            turns.iter_mut().filter_map(|turn| is_placed(turn).then_some(())).count()
        };
        assert_eq!(placed(), TRIALS.0);
        (0..10).for_each(|_| admission.learn(LARGE_ANSWER_BYTES - 1));
        assert_eq!(placed(), TRIALS.0 + 10);
        (0..1000).for_each(|_| admission.learn(0));
        assert_eq!(placed(), TRIALS.1);
        admission.learn(LARGE_ANSWER_BYTES);
        assert_eq!(placed(), TRIALS.0);
    }

    #[test]
    fn reads_that_were_refused_count_as_the_largest_of_them_lately_and_stop_no_trials() {
        let _limit = amcast_test_policy::time_limit();
        let runtime = runtime();
        let _entered = runtime.enter();
        let admission = Arc::<AnswerAdmission>::default();
        let placed = || {
            let turns = (0..20).map(|_| turn(&admission, 1, AnswerSize::Refused));
            let mut turns: Vec<_> = turns.collect();
            let placed = turns.iter_mut().filter_map(|turn| is_placed(turn).then_some(())).count();
            assert!(is_placed(&mut turn(&admission, 1, AnswerSize::Unknown)));
            placed
        };
        assert_eq!(placed(), 2);
        admission.learn_refused(LARGE_BYTES_MAX - 1);
        assert_eq!(placed(), 1);
        (0..100).for_each(|_| admission.learn_refused(LARGE_ANSWER_BYTES));
        assert_eq!(placed(), 8);
        admission.learn_refused(2 * LARGE_BYTES_MAX);
        assert_eq!(placed(), 1, "one alone may be larger");
    }

    #[test]
    fn a_shard_that_does_not_answer_stops_no_commands_to_others() {
        let _limit = amcast_test_policy::time_limit();
        runtime().block_on(async {
            let admission = Arc::<AnswerAdmission>::default();
            let mut open = OpenTurns::default();
            for request in 0..TRIALS.0 as u64 {
                let mut turn = turn(&admission, 1, AnswerSize::Unknown);
                assert!(is_placed(&mut turn));
                open.sent(request, Box::new(turn));
            }
            let mut next = turn(&admission, 2, AnswerSize::Unknown);
            let begun = Instant::now();
            std::future::poll_fn(|cx| match next.is_placed(cx) {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            })
            .await;
            assert!(begun.elapsed() >= HELD_AT_MOST && begun.elapsed() < 2 * HELD_AT_MOST);
            // An answer that comes later gives back nothing that others have.
            open.answered(0, false, 0);
            drop(next);
            // A connection that is gone leaves its places taken for as long.
            let mut turns: Vec<_> =
                (0..TRIALS.0).map(|_| turn(&admission, 3, AnswerSize::Unknown)).collect();
            assert!(turns.iter_mut().all(is_placed));
            turns.into_iter().zip(0..).for_each(|(turn, n)| open.sent(100 + n, Box::new(turn)));
            drop(open);
            assert!(!is_placed(&mut turn(&admission, 2, AnswerSize::Unknown)));
            tokio::time::sleep(HELD_AT_MOST).await;
            assert!(is_placed(&mut turn(&admission, 2, AnswerSize::Unknown)));
        });
    }
}
