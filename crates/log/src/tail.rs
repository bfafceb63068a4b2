//! Streams: values of a log as they are appended.
//!
//! A stream of a front whose process is a node reads, and waits to be told that there is more. A front
//! without a node passes on the stream of one that has: a node hears of an append when it is executed,
//! which nobody has to ask for.

use crate::answers::ToTail;
use crate::client::connect_to;
use crate::proto;
use crate::proto::log_client::LogClient;
use crate::service::{Shared, USUAL_VALUES};
use crate::status::parting;
use amcast_services::log::{Answer, Command};
use bytes::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tonic::{Code, Request, Status, Streaming};

/// Bytes of one message of a stream, beside its last value: little, since a stream that is not read
/// holds one or two of them.
const BYTES: u32 = 100_000;

/// How long a stream goes on asking when the cluster does not answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long it waits before it asks again.
const AGAIN: Duration = Duration::from_millis(100);

/// How long a front that found no node to pass a stream on from reads by itself before it looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A message of a stream, or why it ends.
pub(crate) type TailItem = Result<proto::TailResponse, Status>;

/// Fronts that serve streams in the place of this one.
pub(crate) struct Through {
    addresses: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Streams so far: they are dealt to the fronts.
    begun: AtomicUsize,
}

impl Through {
    pub(crate) fn new(addresses: Arc<dyn Fn() -> Vec<String> + Send + Sync>) -> Self {
        Self { addresses, begun: AtomicUsize::new(0) }
    }

    /// The fronts as they are now, another one first each time.
    fn next(&self) -> Vec<String> {
        let mut addresses = (self.addresses)();
        let first = self.begun.fetch_add(1, Ordering::Relaxed) % addresses.len().max(1);
        addresses.rotate_left(first);
        addresses
    }
}

impl Shared {
    /// Feeds a stream until it ends.
    pub(crate) async fn tail(&self, log: &str, mut from: u64, to: &ToTail) {
        let mut unanswered_since = None;
        let mut look_at = Instant::now();
        loop {
            let mut patience = None;
            if let Some(through) = &self.through {
                if look_at <= Instant::now() {
                    if self.pass_on(through, log, &mut from, to).await.is_break() {
                        return;
                    }
                    look_at = Instant::now() + LOOK_AGAIN;
                }
                patience = Some(look_at.saturating_duration_since(Instant::now()));
            }
            let impatient = async {
                match patience {
                    Some(patience) => tokio::time::sleep(patience).await,
                    None => std::future::pending().await,
                }
            };
            let mut stopping = self.stopping.clone();
            let step = tokio::select! {
                () = to.closed() => return,
                _ = stopping.wait_for(|stop| *stop) => Err(parting(from)),
                step = self.next(log, from) => step,
                () = impatient => continue,
            };
            let item = match step {
                Ok(values) => {
                    unanswered_since = None;
                    let start = from;
                    from += values.len() as u64;
                    Ok(proto::TailResponse { from: start, values })
                }
                Err(why) if why.code() == Code::Unavailable && !*stopping.borrow() => {
                    let since = *unanswered_since.get_or_insert_with(Instant::now);
                    if since.elapsed() < PATIENCE {
                        tokio::time::sleep(AGAIN).await;
                        continue;
                    }
                    Err(why)
                }
                Err(why) => Err(why),
            };
            let ends = item.is_err();
            if !to.send(item).await || ends {
                return;
            }
        }
    }

    /// The values of a log from a position on, once there are any.
    async fn next(&self, log: &str, from: u64) -> Result<Vec<Bytes>, Status> {
        let mut watching = self.follows.watch(log);
        loop {
            let command = Command::Read {
                log: log.as_bytes(),
                from,
                values_max: USUAL_VALUES,
                bytes_max: BYTES,
            };
            match self.read(&command).await {
                Ok(Answer::Values { values, .. }) if !values.is_empty() => {
                    return Ok(values.into_iter().map(Bytes::from).collect());
                }
                Ok(_) => {}
                Err(why) if why.code() == Code::NotFound => {}
                Err(why) => return Err(why),
            }
            watching.until(from).await;
        }
    }

    /// Feeds a stream with that of another front, and of the next one when that breaks; breaks when the
    /// stream is over.
    async fn pass_on(
        &self,
        through: &Through,
        log: &str,
        from: &mut u64,
        to: &ToTail,
    ) -> ControlFlow<()> {
        let mut stopping = self.stopping.clone();
        for address in through.next() {
            let Ok(mut stream) = self.open(&address, log, *from).await else { continue };
            loop {
                let item = tokio::select! {
                    () = to.closed() => return ControlFlow::Break(()),
                    () = async { _ = stopping.wait_for(|stop| *stop).await } => {
                        // Whoever reads may have gone; then nobody needs to know.
                        to.send(Err(parting(*from))).await;
                        return ControlFlow::Break(());
                    }
                    item = stream.message() => item,
                };
                let item = match item {
                    Ok(Some(item)) => {
                        *from = item.from + item.values.len() as u64;
                        Ok(item)
                    }
                    // The log was trimmed: so it is everywhere.
                    Err(why) if why.code() == Code::OutOfRange => Err(why),
                    Ok(None) | Err(_) => break,
                };
                let ends = item.is_err();
                if !to.send(item).await || ends {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Opens a stream at another front.
    async fn open(
        &self,
        address: &str,
        log: &str,
        from: u64,
    ) -> Result<Streaming<proto::TailResponse>, Status> {
        let mut client = LogClient::new(connect_to(address).await?);
        let mut request = Request::new(proto::TailRequest { log: log.to_string(), from });
        if let Some(password) = &self.password {
            let bearer = format!("Bearer {password}").parse();
            let bearer = bearer.map_err(|_| Status::internal("the password cannot be sent"))?;
            request.metadata_mut().insert("authorization", bearer);
        }
        Ok(client.tail(request).await?.into_inner())
    }
}
