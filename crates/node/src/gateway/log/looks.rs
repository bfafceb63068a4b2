//! Looks: how far the logs go that streams wait for, asked of the nodes.
//!
//! A gateway asks in one command for all logs of a shard, however many streams there are, and all shards at the same time.
//! A shard that does not answer delays the others by a second at most: then they are asked again without it.
//!
//! A look that fails is repeated. Where no look at a shard was answered for the [patience](Looks::new) of a stream, the
//! streams that wait for its logs end, and their clients turn to another gateway. Without that the streams of a node that
//! is cut off from the others would wait without a word for as long as that lasts: nothing is executed there, so no log
//! of it grows.

use crate::gateway::log::follow::LogFollowers;
use amcast_kv::SlotMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long after it asked a gateway asks again: at first, while there is news; doubled up to the second
/// while there is none.
pub(crate) type PollPauses = (Duration, Duration);

/// Of a gateway that hears nothing by itself.
pub(crate) const DEAF: PollPauses = (Duration::from_millis(2), Duration::from_millis(20));

/// Of one that does.
pub(crate) const TOLD: PollPauses = (Duration::from_secs(1), Duration::from_secs(1));

/// How long an answer is waited for at most: a look that got lost keeps no further one from being sent.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// How long the answers of a round are waited for.
const ROUND: Duration = Duration::from_secs(1);

/// The answer to a look at a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LookAnswer {
    /// It had news for a stream.
    News,
    /// It had none.
    NoNews,
    /// There was none.
    Missing,
}

/// The looks at one shard.
#[derive(Clone, Copy, Default)]
struct ShardLooks {
    is_under_way: bool,
    /// When the first of those was sent that were not answered, if the last was not.
    unanswered_since: Option<Instant>,
}

struct LookEnd {
    shard: usize,
    round: u64,
    answer: LookAnswer,
}

/// The looks of a gateway.
pub(crate) struct Looks<A> {
    follows: Arc<LogFollowers>,
    map: SlotMap,
    /// Looks at logs of one shard, and tells `follows` what it hears.
    ask: A,
    patience: Duration,
    shards: Vec<ShardLooks>,
    under_way: JoinSet<LookEnd>,
    round: u64,
}

impl<A, F> Looks<A>
where
    A: FnMut(Vec<String>) -> F,
    F: Future<Output = LookAnswer> + Send + 'static,
{
    /// `ask` looks at logs, all of one shard, and tells `follows` what it hears. Streams of a shard end when no look was
    /// answered for as long as `patience`.
    pub(crate) fn new(
        follows: Arc<LogFollowers>,
        map: SlotMap,
        patience: Duration,
        ask: A,
    ) -> Self {
        let shards = vec![ShardLooks::default(); map.shards()];
        Self { follows, map, ask, patience, shards, under_way: JoinSet::new(), round: 0 }
    }

    /// Asks, as long as anybody waits. Never ends.
    pub(crate) async fn go_on(mut self, (first, last): PollPauses) {
        let mut pause = first;
        loop {
            let names = self.names();
            if names.iter().all(Vec::is_empty) {
                self.shards.iter_mut().for_each(|shard| shard.unanswered_since = None);
                self.follows.wanted().await;
                pause = first;
            }
            sleep(pause).await;
            let names = self.names();
            let news = self.look(&names).await;
            self.end_streams(&names);
            pause = if news { first } else { last.min(2 * pause) };
        }
    }

    /// The logs that streams wait for, by shard.
    fn names(&self) -> Vec<Vec<String>> {
        let mut shards = vec![Vec::new(); self.shards.len()];
        for name in self.follows.names() {
            shards[self.map.of_key(name.as_bytes()).index()].push(name);
        }
        shards
    }

    /// A round: looks at each shard that has no look under way; whether there is news.
    async fn look(&mut self, names: &[Vec<String>]) -> bool {
        let mut news = false;
        while let Some(ended) = self.under_way.try_join_next() {
            news |= self.note(ended).answer == LookAnswer::News;
        }
        self.round += 1;
        let begun = Instant::now();
        let mut open = self.begin(names, begun);
        while open > 0
            && let Ok(Some(ended)) = timeout_at(begun + ROUND, self.under_way.join_next()).await
        {
            let LookEnd { round, answer, .. } = self.note(ended);
            news |= answer == LookAnswer::News;
            open -= usize::from(round == self.round);
        }
        news
    }

    /// Begins the looks of a round; how many.
    fn begin(&mut self, names: &[Vec<String>], now: Instant) -> usize {
        let (round, mut begun) = (self.round, 0);
        for (shard, (looks, names)) in self.shards.iter_mut().zip(names).enumerate() {
            if names.is_empty() {
                looks.unanswered_since = None;
            } else if !looks.is_under_way {
                looks.is_under_way = true;
                looks.unanswered_since.get_or_insert(now);
                let answer = (self.ask)(names.clone());
                self.under_way.spawn(async move {
                    let answer = timeout(LOOK_MAX, answer).await.unwrap_or(LookAnswer::Missing);
                    LookEnd { shard, round, answer }
                });
                begun += 1;
            }
        }
        begun
    }

    /// Notes how a look ended.
    fn note(&mut self, ended: Result<LookEnd, JoinError>) -> LookEnd {
        let end = match ended.map_err(JoinError::try_into_panic) {
            Ok(end) => end,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(cancelled)) => unreachable!("none is cancelled: {cancelled}"),
        };
        let looks = &mut self.shards[end.shard];
        looks.is_under_way = false;
        if end.answer != LookAnswer::Missing {
            looks.unanswered_since = None;
        }
        end
    }

    /// Ends the streams that wait for logs of shards that do not answer.
    fn end_streams(&self, names: &[Vec<String>]) {
        for (looks, names) in self.shards.iter().zip(names) {
            if looks.unanswered_since.is_some_and(|since| since.elapsed() >= self.patience) {
                names.iter().for_each(|name| self.follows.tell_unanswered(name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::log::follow::UnansweredLooks;
    use std::sync::Mutex;

    const SHARDS: usize = 2;

    /// A log of each shard.
    const LOGS: [&str; SHARDS] = ["b", "a"];

    /// Half of it is more than a busy machine delays a look.
    const PATIENCE: Duration = Duration::from_millis(1200);

    /// How looks end, and at which shards there were some, in their order.
    #[derive(Default)]
    struct TestShards {
        /// None answers never.
        answers: [Option<LookAnswer>; SHARDS],
        asked: Vec<usize>,
    }

    /// Lets `test` run beside looks at `shards`.
    fn with_looks<F: Future<Output = ()>>(
        shards: &Arc<Mutex<TestShards>>,
        test: impl FnOnce(Arc<LogFollowers>) -> F,
    ) {
        let map = SlotMap::new(SHARDS);
        assert_eq!(LOGS.map(|log| map.of_key(log.as_bytes()).index()), [0, 1]);
        let (follows, shards) = (Arc::<LogFollowers>::default(), Arc::clone(shards));
        let ask = move |names: Vec<String>| {
            let shard = map.of_key(names[0].as_bytes()).index();
            assert_eq!(names, [LOGS[shard]]);
            let mut shards = shards.lock().unwrap();
            shards.asked.push(shard);
            let answer = shards.answers[shard];
            async move {
                match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            }
        };
        let looks = Looks::new(Arc::clone(&follows), map, PATIENCE, ask);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let test = async { timeout(Duration::from_secs(20), test(follows)).await };
            tokio::select! {
                () = looks.go_on(DEAF) => unreachable!("it never ends"),
                done = test => done.expect("the test ends"),
            }
        });
    }

    #[test]
    fn streams_end_whose_shard_answers_no_look_and_others_do_not() {
        let _limit = amcast_test_policy::time_limit();
        for missing in [None, Some(LookAnswer::Missing)] {
            let shards = Arc::new(Mutex::new(TestShards::default()));
            shards.lock().unwrap().answers = [missing, Some(LookAnswer::NoNews)];
            with_looks(&shards, |follows| async move {
                let (mut answered, mut unanswered) = (follows.watch("a"), follows.watch("b"));
                let begun = Instant::now();
                let waits = timeout(4 * PATIENCE, answered.until(0));
                let (waits, ended) = tokio::join!(waits, unanswered.until(0));
                assert_eq!(ended, Err(UnansweredLooks));
                assert!(waits.is_err(), "the shard of \"a\" answers");
                assert!(begun.elapsed() >= PATIENCE);
            });
            let asked = &shards.lock().unwrap().asked;
            let count = |shard| asked.iter().filter(|asked| **asked == shard).count();
            assert!(count(1) > 1, "the one delays the other by a second at most: {asked:?}");
            assert_eq!(count(0) == 1, missing.is_none(), "one is under way at a time: {asked:?}");
        }
    }

    #[test]
    fn a_look_that_is_answered_begins_the_patience_anew() {
        let _limit = amcast_test_policy::time_limit();
        let shards = Arc::new(Mutex::new(TestShards::default()));
        let answers = Arc::clone(&shards);
        let set = move |answer| answers.lock().unwrap().answers = [Some(answer); SHARDS];
        set(LookAnswer::Missing);
        with_looks(&shards, |follows| async move {
            let mut stream = follows.watch("a");
            for _ in 0..3 {
                assert!(timeout(PATIENCE / 2, stream.until(0)).await.is_err());
                set(LookAnswer::NoNews);
                assert!(timeout(PATIENCE / 4, stream.until(0)).await.is_err());
                set(LookAnswer::Missing);
            }
            // Nobody waits for a while: that counts for nothing.
            drop(stream);
            sleep(2 * PATIENCE).await;
            let mut stream = follows.watch("a");
            assert!(timeout(PATIENCE / 2, stream.until(0)).await.is_err());
            assert_eq!(stream.until(0).await, Err(UnansweredLooks));
        });
    }
}
