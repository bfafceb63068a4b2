//! Has shards free expired keys.
//!
//! Every command frees a little in its shards, at ordered time; a shard that no command comes to
//! would hold expired keys for ever. So each gateway checks now and then whether a shard holds keys
//! that expired a while ago, and then orders a command there that frees them. Clocks decide no more
//! than that: expiry follows from the order, on all replicas alike. If several gateways notice at
//! the same time, the shard executes several sweeps, which does no harm.

use super::RedisShared;
use super::router::{ArrivedAnswers, token};
use crate::gateway::backend::Backend;
use amcast_core::{Gid, GroupSet};
use amcast_kv::commands::server::TIDY;
use amcast_kv::{encode_args, encode_epoch};
use amcast_smr::envelope::{Envelope, Stamp};
use std::sync::Arc;
use std::time::Duration;

/// How often shards are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long something may have expired before a command is sent only for it.
const GRACE_MS: u64 = 300;

/// Looks at the shards for as long as the gateway serves.
pub(super) async fn now_and_then<B: Backend>(shared: Arc<RedisShared<B>>) {
    // It looks for answers by itself.
    let lane = shared.router.open(&Arc::default());
    let mut last = lane.last_request;
    // Shards that were sent a sweep, with the low half of the request's number, until they answer.
    let mut told: Vec<(Gid, u32)> = Vec::new();
    let mut mail = ArrivedAnswers::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        lane.replies.take(&mut mail);
        told.retain(|(_, request)| !mail.frames.iter().any(|answered| answered.low == *request));
        mail.drain(|answer| _ = shared.learn(answer));
        let stamp = shared.clock.now().stamp;
        for shard in shared.server.status.shards() {
            let due = |due_ms: u64| due_ms.saturating_add(GRACE_MS) < stamp.wall_ms;
            if !shard.due_ms.is_some_and(due) || told.iter().any(|(gid, _)| *gid == shard.shard) {
                continue;
            }
            let request = last + 1;
            let session = shared.config.first_session + u64::from(lane.index);
            let epoch = shared.server.epoch();
            let mut command = command(shard.shard, session, request, stamp, epoch);
            lane.replies.opened(request);
            let dst = GroupSet::one(shard.shard);
            if shared.backend.submit_own(dst, &mut command, token(lane.index, request)).is_err() {
                // Others need the room; there is time.
                lane.replies.withdrawn();
                continue;
            }
            last = request;
            told.push((shard.shard, request as u32));
        }
        shared.backend.flush();
    }
}

fn command(shard: Gid, session: u64, request: u64, stamp: Stamp, epoch: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // All nodes are to run it.
    let read_only = false;
    Envelope { session, request, open_from: request, stamp, read_only }.encode(&mut bytes);
    encode_epoch(epoch, &mut bytes);
    encode_args(&[TIDY.as_bytes(), shard.0.to_string().as_bytes()], &mut bytes);
    bytes
}
