//! Moves keys from shard to shard, where a split or a merge was asked for.
//!
//! Moves and their progress are state of the shards; see [`amcast_kv::partitions`]. Each gateway
//! checks whether a move is under way, and then sends the commands that continue it. Nothing is
//! lost when one ends: others continue the move, and it does no harm if several do at the same
//! time.

use super::RedisShared;
use super::router::{ArrivedAnswers, RouterLane, WakeBatch, token};
use crate::gateway::backend::Backend;
use amcast_core::{Gid, GroupSet};
use amcast_kv::commands::partitions::{LIST, MOVE, MOVED};
use amcast_kv::{encode_args, encode_epoch};
use amcast_smr::envelope::Envelope;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// How often it is looked whether keys move.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Each command is followed by a rest so many times as long as it took: shards are there for clients.
const REST: u32 = 8;

/// The shortest rest.
const REST_MIN: Duration = Duration::from_millis(2);

/// Moves keys for as long as the gateway serves; `post` is the batch of its thread.
pub(super) async fn drive<B: Backend>(shared: Arc<RedisShared<B>>, post: Arc<WakeBatch>) {
    let lane = shared.router.open(&post);
    let mut driver =
        Driver { last: lane.last_request, lane, shared, mail: ArrivedAnswers::default() };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if driver.shared.server.status.shards().iter().any(|shard| shard.has_chore) {
            driver.go_on().await;
        }
    }
}

/// Sends commands one after the other.
struct Driver<B> {
    shared: Arc<RedisShared<B>>,
    lane: RouterLane,
    last: u64,
    mail: ArrivedAnswers,
}

impl<B: Backend> Driver<B> {
    /// Continues until nothing moves, or a command fails: then it retries later.
    async fn go_on(&mut self) {
        // The map may be an old one. A refusal tells the one that holds.
        if self.ask(&[LIST], GroupSet::one(Gid(0))).await.is_none() {
            return;
        }
        while let Some((from, to)) = self.shared.server.partitions().moving() {
            let begun = Instant::now();
            let (one, other) = (from.0.to_string(), to.0.to_string());
            let answer = self.ask(&[MOVE, &one, &other], GroupSet::one(from).with(to)).await;
            match answer.as_deref() {
                Some(b":1\r\n") => {
                    let all = self.shared.server.partitions().all();
                    // The answer to the next command tells the map that is in force then.
                    if self.ask(&[MOVED], all).await.is_none() {
                        return;
                    }
                }
                Some([b'-', ..]) | None => return,
                Some(_) => tokio::time::sleep((begun.elapsed() * REST).max(REST_MIN)).await,
            }
        }
    }

    /// Has a command ordered, and waits for its answer, which tells of a later map, if there is one.
    /// None if it cannot be sent now.
    async fn ask(&mut self, words: &[&str], dst: GroupSet) -> Option<Vec<u8>> {
        let Self { shared, lane, last, mail } = self;
        let request = *last + 1;
        let (session, stamp) =
            (shared.config.first_session + u64::from(lane.index), shared.clock.now().stamp);
        let mut bytes = Vec::new();
        Envelope { session, request, open_from: request, stamp, read_only: false }
            .encode(&mut bytes);
        encode_epoch(shared.server.epoch(), &mut bytes);
        let args: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        encode_args(&args, &mut bytes);
        lane.replies.opened(request);
        if shared.backend.submit_own(dst, &mut bytes, token(lane.index, request)).is_err() {
            lane.replies.withdrawn();
            return None;
        }
        *last = request;
        shared.backend.flush();
        poll_fn(|cx| {
            loop {
                lane.replies.take(mail);
                if !mail.frames.is_empty() {
                    return Poll::Ready(());
                }
                if lane.replies.sleep(cx.waker()) {
                    return Poll::Pending;
                }
            }
        })
        .await;
        let mut answer = Vec::new();
        mail.drain(|bytes| answer = bytes.to_vec());
        shared.learn(&answer);
        Some(answer)
    }
}
