//! The stores, started for a measurement and ended after it.

use super::store::StoreLanguage;
use crate::bench::service::children::{OwnCluster, RedisServer};
use crate::bench::service::etcd::EtcdServers;
use amcast_core::Entry;
use amcast_protocols::multiring;
use std::any::Any;

/// A store that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum StoreKind {
    /// Ours in memory, over shared memory (tram)
    Amcast,
    /// Ours on disk: acceptors sync before they vote (multi-ring)
    AmcastDurable,
    /// Ours on rings that write to disk some time later, with a ring around all shards
    AmcastRings,
    /// The same without a ring around all: no command over several shards
    AmcastIndependent,
    /// Ours on disk, where each node's own thread executes commands (--workers 0)
    AmcastInline,
    /// Ours on disk, where a thread for it executes commands (--workers 1)
    AmcastWorkers,
    /// One Redis in memory
    Redis,
    /// One Redis that syncs before it answers
    RedisAlways,
    /// etcd, three members that sync before they answer
    Etcd,
}

impl StoreKind {
    /// Those that are compared unless others are asked for, ours first.
    pub const ALL: [Self; 5] =
        [Self::Amcast, Self::AmcastDurable, Self::Redis, Self::RedisAlways, Self::Etcd];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amcast => "amcast",
            Self::AmcastDurable => "amcast-durable",
            Self::AmcastRings => "amcast-rings",
            Self::AmcastIndependent => "amcast-independent",
            Self::AmcastInline => "amcast-inline",
            Self::AmcastWorkers => "amcast-workers",
            Self::Redis => "redis",
            Self::RedisAlways => "redis-always",
            Self::Etcd => "etcd",
        }
    }

    /// Its guarantees, in a sentence.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Amcast => "tram: replicated in memory, linearizable, sharded",
            Self::AmcastDurable => {
                "multi-ring: replicated, synced to disk before an answer, linearizable, sharded"
            }
            Self::AmcastRings => {
                "multi-ring-async: replicated, written to disk some time later, linearizable, sharded"
            }
            Self::AmcastIndependent => {
                "multi-ring-async, rings = independent: as amcast-rings, without commands over shards"
            }
            Self::AmcastInline => "as amcast-durable, --workers 0",
            Self::AmcastWorkers => "as amcast-durable, --workers 1",
            Self::Redis => "one server, in memory, --appendonly no",
            Self::RedisAlways => "one server, --appendonly yes --appendfsync always",
            Self::Etcd => "three members, synced to disk before an answer, linearizable",
        }
    }
}

/// A store that runs.
pub(super) struct RunningStore {
    pub(super) kind: StoreKind,
    /// Where it listens.
    pub(super) at: String,
    /// Its processes, which end with this.
    _kept: Box<dyn Any>,
}

impl RunningStore {
    /// Starts one; the inner error says what is not installed.
    pub(super) fn start(
        kind: StoreKind,
        (shards, replicas): (usize, usize),
    ) -> Result<Result<Self, String>, String> {
        let absent = |what: &str| Ok(Err(format!("{what} is not installed: apt install {what}")));
        let (at, kept): (String, Box<dyn Any>) = match kind {
            StoreKind::Amcast => {
                let own = OwnCluster::start(shards, replicas, &[])?;
                (own.redis.clone(), Box::new(own))
            }
            StoreKind::AmcastDurable => {
                let own = OwnCluster::start_durable(
                    multiring::SYNCED.name(),
                    (shards, replicas),
                    &[],
                    None,
                )?;
                (own.redis.clone(), Box::new(own))
            }
            StoreKind::AmcastInline | StoreKind::AmcastWorkers => {
                let workers = Some(usize::from(kind == StoreKind::AmcastWorkers));
                let own = OwnCluster::start_durable(
                    multiring::SYNCED.name(),
                    (shards, replicas),
                    &[],
                    workers,
                )?;
                (own.redis.clone(), Box::new(own))
            }
            StoreKind::AmcastRings | StoreKind::AmcastIndependent => {
                let rings = if kind == StoreKind::AmcastRings { "global" } else { "independent" };
                let set = [("rings".to_string(), rings.to_string())];
                let own = OwnCluster::start_durable(
                    multiring::WRITTEN.name(),
                    (shards, replicas),
                    &set,
                    None,
                )?;
                (own.redis.clone(), Box::new(own))
            }
            StoreKind::Redis | StoreKind::RedisAlways => {
                let syncs = kind == StoreKind::RedisAlways;
                let Some(redis) = RedisServer::start_with("redis-server", syncs)? else {
                    return absent("redis-server");
                };
                (redis.at.clone(), Box::new(redis))
            }
            StoreKind::Etcd => {
                let Some(etcd) = EtcdServers::start()? else { return absent("etcd-server") };
                (etcd.at.clone(), Box::new(etcd))
            }
        };
        Ok(Ok(Self { kind, at, _kept: kept }))
    }

    pub(super) fn speaks(&self) -> StoreLanguage {
        match self.kind {
            StoreKind::Etcd => StoreLanguage::Etcd,
            _ => StoreLanguage::Redis,
        }
    }
}
