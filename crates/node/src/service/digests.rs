//! When a node has digest points and reports ordered, and when it serves nobody since it is in doubt.
//!
//! Each node asks for points by itself, so that none is needed for them; those of a higher rank wait a little longer,
//! and find that there was one. Where nothing was changed since the last one there is none: a cluster that nobody uses
//! writes nothing.

use amcast_core::{Gid, Span, Time};
use amcast_smr::{Executor, ShardedMachine};

/// How long a doubt may last before it counts: the reports of a point come one after the other.
const DOUBT_PATIENCE: Span = Span::secs(2);

/// The longest from a change to the next point as long as a node is in doubt.
const DOUBT_EVERY: Span = Span::secs(1);

/// When this node has digests compared.
pub struct DigestPace {
    /// From the first change on to the next point; none for no points of this node.
    every: Option<Span>,
    rank: usize,
    /// By shard: since when a point is wanted, if one is, and the last one then at which a majority agreed.
    wanted: Vec<Option<(Time, u64)>>,
    /// Since when it is in doubt, if it is, and why.
    doubt: Option<(Time, Option<String>)>,
}

impl DigestPace {
    /// That of the node of this rank, with a point every so many seconds at most; none if that is 0.
    pub fn new(rank: usize, shards: usize, every_secs: u64) -> Self {
        let every = (every_secs > 0).then(|| Span::secs(every_secs));
        Self { every, rank, wanted: vec![None; shards], doubt: None }
    }

    /// This node's report on the digests of `shard`, if any.
    pub fn report<M: ShardedMachine>(
        &mut self,
        now: Time,
        shard: Gid,
        executor: &mut Executor<M>,
    ) -> Option<Vec<u8>> {
        self.look(now, executor);
        if let Some(report) = executor.take_digest_report(shard) {
            return Some(report);
        }
        let wanted = &mut self.wanted[shard.index()];
        if !executor.wants_digest_point(shard) {
            *wanted = None;
            return None;
        }
        let every = if self.doubt.is_some() { self.every?.min(DOUBT_EVERY) } else { self.every? };
        let wait = Span(every.0 + every.0 / 4 * self.rank as u64);
        let last = executor.agreed(shard);
        match *wanted {
            Some((since, before)) if before == last => {
                if now.since(since) < wait {
                    return None;
                }
                // If it is lost, it is sent again as late.
                *wanted = Some((now, last));
                Some(executor.digest_point(shard))
            }
            // The point of another node was ordered meanwhile, or its own.
            _ => {
                *wanted = Some((now, last));
                None
            }
        }
    }

    /// Looks whether the node is in doubt.
    fn look<M: ShardedMachine>(&mut self, now: Time, executor: &Executor<M>) {
        let Some(why) = executor.doubt() else {
            if let Some((_, Some(_))) = self.doubt.take() {
                tracing::warn!("this node is no longer in doubt, and serves again");
            }
            return;
        };
        let (since, told) = self.doubt.get_or_insert((now, None));
        if told.is_none() && now.since(*since) >= DOUBT_PATIENCE {
            let why = format!(
                "replicas are in different states, and none of these has a majority, so nobody knows which is \
                 right: {why}"
            );
            tracing::error!("it serves nobody: {why}");
            *told = Some(why);
        }
    }

    /// Why this node serves nobody, if it is in doubt.
    pub fn lacks(&self) -> Option<&str> {
        self.doubt.as_ref()?.1.as_deref()
    }
}
