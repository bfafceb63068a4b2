//! Streams: values of a log as they are appended.
//!
//! A stream of a gateway whose process is a node reads, and waits until the log grows. A gateway
//! without a node forwards the stream of one that has: a node learns of an append at its execution,
//! without a request.

use crate::gateway::log::answers::ToTail;
use crate::gateway::log::connections::RequestOrigin;
use crate::gateway::log::reads::hold;
use crate::gateway::log::service::{LogGatewayShared, USUAL_VALUES};
use crate::gateway::log::status::{deleted, parting};
use amcast_log::client::connect_to;
use amcast_log::proto;
use amcast_log::proto::log_client::LogClient;
use amcast_log::{LogAnswer, LogCommand};
use bytes::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tonic::{Code, Request, Status, Streaming};

/// Bytes of one message of a stream, beside its last value: little, since a stream that is not read
/// holds one or two of them.
const BYTES: u32 = 100_000;

/// How long a stream continues to ask when the cluster does not answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long it waits before it asks again.
const AGAIN: Duration = Duration::from_millis(100);

/// How long a gateway that found no node to pass a stream on from reads by itself before it looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A message of a stream, or why it ends.
pub(crate) type TailItem = Result<proto::TailResponse, Status>;

/// Gateways that serve streams in the place of this one.
pub(crate) struct TailGateways {
    addresses: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Streams so far: they are dealt to the gateways.
    begun: AtomicUsize,
}

impl TailGateways {
    pub(crate) fn new(addresses: Arc<dyn Fn() -> Vec<String> + Send + Sync>) -> Self {
        Self { addresses, begun: AtomicUsize::new(0) }
    }

    /// The gateways as they are now, another one first each time.
    fn next(&self) -> Vec<String> {
        let mut addresses = (self.addresses)();
        let first = self.begun.fetch_add(1, Ordering::Relaxed) % addresses.len().max(1);
        addresses.rotate_left(first);
        addresses
    }
}

/// The next position of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TailPosition {
    /// The position.
    pub(crate) from: u64,
    /// Of which log of that name, once that is known.
    pub(crate) incarnation: Option<u64>,
}

impl TailPosition {
    /// Notes what the stream gave; the message.
    fn gives(&mut self, incarnation: u64, values: Vec<Bytes>) -> proto::TailResponse {
        let from = self.from;
        self.from += values.len() as u64;
        self.incarnation = Some(incarnation);
        proto::TailResponse { from, values, incarnation }
    }
}

impl LogGatewayShared {
    /// Feeds a stream until it ends.
    pub(crate) async fn tail(&self, log: &str, mut next: TailPosition, to: &ToTail) {
        let mut unanswered_since = None;
        let mut look_at = Instant::now();
        loop {
            let mut patience = None;
            if let Some(through) = &self.through {
                if look_at <= Instant::now() {
                    if self.pass_on(through, log, &mut next, to).await.is_break() {
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
                _ = stopping.wait_for(|stop| *stop) => Err(parting(next.from)),
                step = self.next(log, &mut next, to.from()) => step,
                () = impatient => continue,
            };
            let item = match step {
                Ok(message) => {
                    unanswered_since = None;
                    Ok(message)
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

    /// The next values of a log, once there are any.
    async fn next(
        &self,
        log: &str,
        next: &mut TailPosition,
        from: Option<&RequestOrigin>,
    ) -> Result<proto::TailResponse, Status> {
        let lane = from.map(|connection| &connection.tails);
        let mut watching = self.follows.watch(log);
        loop {
            let command = LogCommand::Read {
                log: log.as_bytes(),
                from: next.from,
                values_max: USUAL_VALUES,
                bytes_max: BYTES,
            };
            let place = match lane {
                Some(lane) => Some(lane.enter().await?),
                None => None,
            };
            watching.reads();
            let answered = hold(place);
            let answer = self.read_values(lane, &command, BYTES).await;
            _ = answered.send(());
            match answer {
                Ok(LogAnswer::Values { extent, .. })
                    if next.incarnation.is_some_and(|known| known != extent.incarnation) =>
                {
                    return Err(deleted());
                }
                Ok(LogAnswer::Values { extent, values, .. }) => {
                    // Its reader has to know which log it is of to open it again, also where no value came.
                    let is_news = next.incarnation.replace(extent.incarnation).is_none();
                    if !values.is_empty() || is_news {
                        let values = values.into_iter().map(Bytes::from).collect();
                        return Ok(next.gives(extent.incarnation, values));
                    }
                }
                Ok(_) => {}
                Err(why) if why.code() == Code::NotFound => {
                    if next.incarnation.is_some() {
                        return Err(deleted());
                    }
                }
                Err(why) if why.code() == Code::OutOfRange => {
                    return Err(self.trimmed(log, next.incarnation, why).await);
                }
                Err(why) => return Err(why),
            }
            watching.until(next.from).await;
        }
    }

    /// Why a stream of a log ends whose position was trimmed away, as `why` says: not for that, where the log of this
    /// name is another one by now.
    async fn trimmed(&self, log: &str, incarnation: Option<u64>, why: Status) -> Status {
        let Some(known) = incarnation else { return why };
        match self.read(&LogCommand::Extents(vec![log.as_bytes()])).await {
            Ok(LogAnswer::Extents(extents)) => match extents.first() {
                Some(Some(extent)) if extent.incarnation == known => why,
                Some(_) => deleted(),
                None => why,
            },
            Ok(_) => why,
            Err(unanswered) => unanswered,
        }
    }

    /// Feeds a stream with that of another gateway, and of the next one when that breaks; breaks when the
    /// stream is over.
    async fn pass_on(
        &self,
        through: &TailGateways,
        log: &str,
        next: &mut TailPosition,
        to: &ToTail,
    ) -> ControlFlow<()> {
        let mut stopping = self.stopping.clone();
        for address in through.next() {
            let Ok(mut stream) = self.open(&address, log, *next).await else { continue };
            loop {
                let item = tokio::select! {
                    () = to.closed() => return ControlFlow::Break(()),
                    () = async { _ = stopping.wait_for(|stop| *stop).await } => {
                        // The reader may have gone; then the message is not needed.
                        to.send(Err(parting(next.from))).await;
                        return ControlFlow::Break(());
                    }
                    item = stream.message() => item,
                };
                let item = match item {
                    Ok(Some(item)) => {
                        next.from = item.from + item.values.len() as u64;
                        next.incarnation = Some(item.incarnation);
                        Ok(item)
                    }
                    // The log was trimmed, or deleted: so it is everywhere.
                    Err(why) if matches!(why.code(), Code::OutOfRange | Code::NotFound) => Err(why),
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

    /// Opens a stream at another gateway.
    async fn open(
        &self,
        address: &str,
        log: &str,
        next: TailPosition,
    ) -> Result<Streaming<proto::TailResponse>, Status> {
        let mut client = LogClient::new(connect_to(address).await?);
        let TailPosition { from, incarnation } = next;
        let mut request =
            Request::new(proto::TailRequest { log: log.to_string(), from, incarnation });
        if let Some(password) = &self.password {
            let bearer = format!("Bearer {password}").parse();
            let bearer = bearer.map_err(|_| Status::internal("the password cannot be sent"))?;
            request.metadata_mut().insert("authorization", bearer);
        }
        Ok(client.tail(request).await?.into_inner())
    }
}
