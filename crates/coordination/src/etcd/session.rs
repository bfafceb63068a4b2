//! One session with etcd after the other.

use super::connect::{EtcdConnection, EtcdServerList, within};
use super::{EtcdOptions, EtcdShared, PendingClaim, WantedEntry, lock};
use crate::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::event::EventType;
use crate::proto::kv_client::KvClient;
use crate::proto::lease_client::LeaseClient;
use crate::proto::request_op::Request as Op;
use crate::proto::response_op::Response as OpResponse;
use crate::proto::watch_client::WatchClient;
use crate::proto::watch_request::RequestUnion;
use crate::proto::{
    Compare, DeleteRangeRequest, Event, KeyValue, LeaseGrantRequest, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    WatchCreateRequest, WatchRequest, WatchResponse,
};
use crate::{EntryLifetime, RegistryUnreachable};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::Streaming;

/// How long after a session that failed the next one begins, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// How often it is looked whether the registry is still used, while a session begins.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Requests on a stream that wait to be sent.
const REQUESTS_MAX: usize = 4;

pub(super) struct EtcdSession {
    options: EtcdOptions,
    servers: EtcdServerList,
    shared: Arc<EtcdShared>,
    /// Whether the log has a line that etcd is unreachable.
    remarked: bool,
}

/// A session's connections, streams and lease.
struct LeaseWatch {
    kv: KvClient<EtcdConnection>,
    lease: LeaseClient<EtcdConnection>,
    lease_id: i64,
    keep: mpsc::Sender<LeaseKeepAliveRequest>,
    kept: Streaming<LeaseKeepAliveResponse>,
    watched: Streaming<WatchResponse>,
    /// Dropping this ends the watch.
    _watch: mpsc::Sender<WatchRequest>,
}

/// The first key behind all that begin with `prefix`.
fn behind(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // A prefix is text: no byte of it is 255.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A stream of requests: the client sends what the sender puts in.
fn stream<T>() -> (mpsc::Sender<T>, impl Stream<Item = T>) {
    let (to, from) = mpsc::channel(REQUESTS_MAX);
    (to, tokio_stream::wrappers::ReceiverStream::new(from))
}

/// Returns when the registry is not used any more.
async fn until_it_ends(shared: &EtcdShared) {
    while !shared.ends.load(Ordering::Acquire) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn ended(what: &str) -> String {
    format!("the stream of {what} has ended")
}

impl EtcdSession {
    pub(super) fn new(
        options: EtcdOptions,
        servers: EtcdServerList,
        shared: Arc<EtcdShared>,
    ) -> Self {
        Self { options, servers, shared, remarked: false }
    }

    fn ends(&self) -> bool {
        self.shared.ends.load(Ordering::Acquire)
    }

    /// Sessions until the registry is not used any more.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSE.0;
        while !self.ends() {
            let shared = Arc::clone(&self.shared);
            let begun = tokio::select! {
                begun = self.begin() => begun,
                // The end of the registry does not wait for a silent server.
                () = until_it_ends(&shared) => return,
            };
            let why = match begun {
                Ok(talk) => {
                    if std::mem::take(&mut self.remarked) {
                        tracing::info!("etcd is there again");
                    }
                    pause = PAUSE.0;
                    self.go_on(talk).await
                }
                Err(why) => Err(why),
            };
            let Err(why) = why else { return };
            self.shared.learn(|known| known.is_current = false);
            if !std::mem::replace(&mut self.remarked, true) {
                tracing::warn!("etcd is unreachable, and the cluster continues without it: {why}");
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.shared.ring.notified() => {}
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Takes a lease, publishes the pending entries, and reads all keys.
    async fn begin(&mut self) -> Result<LeaseWatch, String> {
        let channel = self.servers.connect().await?;
        let (mut kv, mut lease) =
            (KvClient::new(channel.clone()), LeaseClient::new(channel.clone()));
        let ttl = self.options.lease.as_secs().max(1) as i64;
        let granted = within(lease.lease_grant(LeaseGrantRequest { ttl, id: 0 })).await?;
        let lease_id = granted.id;
        let (keep, asks) = stream();
        // A stream is answered only when the first request is there.
        keep.try_send(LeaseKeepAliveRequest { id: lease_id }).map_err(|e| e.to_string())?;
        let kept = within(lease.lease_keep_alive(asks)).await?;
        for said in lock(&self.shared.said).values_mut() {
            said.done = false;
        }
        let prefix = &self.options.prefix;
        let (key, range_end) = (prefix.as_bytes().to_vec(), behind(prefix));
        self.publish_all(&mut kv, lease_id).await?;
        let all = RangeRequest { key: key.clone(), range_end: range_end.clone(), limit: 0 };
        let found = within(kv.range(all)).await?;
        let revision = found.header.map_or(0, |header| header.revision);
        let entries = found.kvs.iter().filter_map(|kv| self.entry(kv)).collect();
        self.shared.learn(|known| (known.entries, known.is_current) = (entries, true));
        let (watch, asks) = stream();
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: revision + 1,
            progress_notify: true,
        };
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        watch.try_send(create).map_err(|e| e.to_string())?;
        let watched = within(WatchClient::new(channel).watch(asks)).await?;
        Ok(LeaseWatch { kv, lease, lease_id, keep, kept, watched, _watch: watch })
    }

    /// A session: until something goes wrong, or the registry is not used any more.
    async fn go_on(&self, mut talk: LeaseWatch) -> Result<(), String> {
        let lease = self.options.lease.max(Duration::from_secs(1));
        let mut renew = tokio::time::interval(lease / 3);
        let mut renewed = Instant::now();
        loop {
            if self.ends() {
                // Best effort: the lease ends by itself.
                let gone = LeaseRevokeRequest { id: talk.lease_id };
                let _ = within(talk.lease.lease_revoke(gone)).await;
                return Ok(());
            }
            self.publish_all(&mut talk.kv, talk.lease_id).await?;
            self.answer_claims(&mut talk.kv).await?;
            tokio::select! {
                () = self.shared.ring.notified() => {}
                _ = renew.tick() => {
                    if renewed.elapsed() > lease {
                        return Err("the lease was not renewed in time".to_string());
                    }
                    let asked = talk.keep.try_send(LeaseKeepAliveRequest { id: talk.lease_id });
                    asked.map_err(|_| ended("renewals"))?;
                }
                kept = talk.kept.message() => {
                    let kept = kept.map_err(|e| e.to_string())?.ok_or_else(|| ended("renewals"))?;
                    if kept.ttl <= 0 {
                        return Err("the lease has ended".to_string());
                    }
                    renewed = Instant::now();
                }
                seen = talk.watched.message() => {
                    let seen = seen.map_err(|e| e.to_string())?.ok_or_else(|| ended("changes"))?;
                    if seen.canceled {
                        return Err(format!("etcd ends the watch: {}", seen.cancel_reason));
                    }
                    self.see(&seen.events);
                }
            }
        }
    }

    /// An entry of the registry, if it is one.
    fn entry(&self, kv: &KeyValue) -> Option<(String, String)> {
        let key = str::from_utf8(&kv.key).ok()?.strip_prefix(&self.options.prefix)?;
        Some((key.to_string(), String::from_utf8_lossy(&kv.value).into_owned()))
    }

    fn see(&self, events: &[Event]) {
        self.shared.learn(|known| {
            for event in events {
                let Some((key, value)) = event.kv.as_ref().and_then(|kv| self.entry(kv)) else {
                    continue;
                };
                match event.r#type() {
                    EventType::Put => known.entries.insert(key, value),
                    EventType::Delete => known.entries.remove(&key),
                };
            }
        });
    }

    fn key(&self, key: &str) -> Vec<u8> {
        [self.options.prefix.as_bytes(), key.as_bytes()].concat()
    }

    /// Writes the published entries that etcd does not have yet.
    async fn publish_all(
        &self,
        kv: &mut KvClient<EtcdConnection>,
        lease_id: i64,
    ) -> Result<(), String> {
        loop {
            let next = lock(&self.shared.said)
                .iter()
                .find(|(_, said)| !said.done)
                .map(|(key, said)| (key.clone(), said.clone()));
            let Some((name, said)) = next else { return Ok(()) };
            let key = self.key(&name);
            match (&said.value, said.lifetime) {
                (Some(value), lifetime) => {
                    let lease = if lifetime == EntryLifetime::Permanent { 0 } else { lease_id };
                    let put = PutRequest { key, value: value.as_bytes().to_vec(), lease };
                    within(kv.put(put)).await?;
                }
                (None, _) => {
                    within(kv.delete_range(DeleteRangeRequest { key, range_end: Vec::new() }))
                        .await?;
                }
            }
            if let Some(now) = lock(&self.shared.said).get_mut(&name)
                && (&now.value, now.lifetime) == (&said.value, said.lifetime)
            {
                *now = WantedEntry { done: true, ..said };
            }
        }
    }

    async fn answer_claims(&self, kv: &mut KvClient<EtcdConnection>) -> Result<(), String> {
        loop {
            let claim = lock(&self.shared.claims).pop();
            let Some(claim) = claim else { return Ok(()) };
            let outcome = self.claim(kv, &claim).await;
            let failed = outcome.as_ref().err().cloned();
            // A caller that waited too long has gone.
            let _ = claim.outcome.try_send(outcome.map_err(RegistryUnreachable));
            if let Some(why) = failed {
                return Err(why);
            }
        }
    }

    async fn claim(
        &self,
        kv: &mut KvClient<EtcdConnection>,
        claim: &PendingClaim,
    ) -> Result<String, String> {
        let key = self.key(&claim.key);
        let (target, union) = match &claim.before {
            // There is none: it was never made.
            None => (CompareTarget::Create, TargetUnion::CreateRevision(0)),
            Some(value) => (CompareTarget::Value, TargetUnion::Value(value.as_bytes().to_vec())),
        };
        let compare = Compare {
            result: CompareResult::Equal.into(),
            target: target.into(),
            key: key.clone(),
            target_union: Some(union),
        };
        let put = PutRequest { key: key.clone(), value: claim.value.as_bytes().to_vec(), lease: 0 };
        let look = RangeRequest { key, range_end: Vec::new(), limit: 1 };
        let op = |op| vec![RequestOp { request: Some(op) }];
        let txn = TxnRequest {
            compare: vec![compare],
            success: op(Op::RequestPut(put)),
            failure: op(Op::RequestRange(look)),
        };
        let done = within(kv.txn(txn)).await?;
        if done.succeeded {
            return Ok(claim.value.clone());
        }
        let found = done.responses.into_iter().find_map(|response| match response.response {
            Some(OpResponse::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        Ok(found.map_or_else(String::new, |kv| String::from_utf8_lossy(&kv.value).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_what_does_not_begin_with_it() {
        assert_eq!(behind("/a/"), b"/a0");
    }
}
