//! Streams: values of a log as they are appended.
//!
//! A stream of a gateway whose process is a node reads, and waits until the log grows. A gateway
//! without a node forwards the stream of one that has: a node learns of an append at its execution,
//! without a request.
//!
//! A stream whose shard does not answer ends with UNAVAILABLE and its position: after [`STREAM_PATIENCE`], whether it
//! reads or [waits](super::looks). A gateway that forwards streams turns to another node then; if that one is silent as well,
//! the stream ends.

use crate::gateway::log::answers::ToTail;
use crate::gateway::log::connections::RequestOrigin;
use crate::gateway::log::reads::hold;
use crate::gateway::log::service::{LogGatewayShared, USUAL_VALUES};
use crate::gateway::log::status::{deleted, parting, silent};
use amcast_log::client::connect_to;
use amcast_log::proto;
use amcast_log::proto::log_client::LogClient;
use amcast_log::{LogAnswer, LogCommand};
use bytes::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tonic::{Code, Request, Status, Streaming};

/// Bytes of one message of a stream, beside its last value: little, since a stream that is not read
/// holds one or two of them.
const BYTES: u32 = 100_000;

/// How long a stream usually waits for a shard that does not answer: as long as a command waits for its answer.
pub const STREAM_PATIENCE: Duration = Duration::from_secs(15);

/// How much later than that the stream of a gateway that gave nothing may end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Gateways in succession that give nothing until their patience is over, before a stream that is passed on ends.
const SILENT_MAX: u32 = 2;

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

/// A stream on its way.
struct TailCursor {
    next: TailPosition,
    /// Whether its reader has a message: the first one comes with the first answer, also where that has no values.
    has_begun: bool,
    silence: TailSilence,
}

/// How long a stream has waited for answers.
#[derive(Default)]
struct TailSilence {
    /// When the first of its own reads began that were not answered, if the last was not.
    unanswered_since: Option<Instant>,
    /// Gateways in succession that gave nothing in its place until their patience was over.
    gateways: u32,
}

impl TailSilence {
    fn is_over(&self, patience: Duration) -> bool {
        self.gateways >= SILENT_MAX
            || self.unanswered_since.is_some_and(|since| since.elapsed() >= patience)
    }
}

/// Why a stream has no next values.
enum NoValues {
    /// Its read was not answered: it may be repeated.
    Unanswered,
    /// The stream ends.
    Ends(Status),
}

impl From<Status> for NoValues {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::Unavailable => Self::Unanswered,
            _ => Self::Ends(status),
        }
    }
}

impl LogGatewayShared {
    /// Feeds a stream until it ends.
    pub(crate) async fn tail(&self, log: &str, next: TailPosition, to: &ToTail) {
        let mut cursor = TailCursor { next, has_begun: false, silence: TailSilence::default() };
        let mut look_at = Instant::now();
        loop {
            if cursor.silence.is_over(self.stream_patience) {
                // The reader may have gone.
                to.send(Err(self.silent(log, cursor.next))).await;
                return;
            }
            let mut own_until = None;
            if let Some(through) = &self.through {
                if look_at <= Instant::now() {
                    if self.pass_on(through, log, &mut cursor, to).await.is_break() {
                        return;
                    }
                    look_at = Instant::now() + LOOK_AGAIN;
                    continue;
                }
                own_until = Some(look_at);
            }
            let impatient = async {
                match own_until {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            let mut stopping = self.stopping.clone();
            let step = tokio::select! {
                biased;
                () = to.closed() => return,
                _ = stopping.wait_for(|stop| *stop) => {
                    Err(NoValues::Ends(parting(cursor.next.from)))
                }
                step = self.next(log, &mut cursor, to.from()) => step,
                () = impatient => continue,
            };
            let item = match step {
                Ok(message) => Ok(message),
                Err(NoValues::Unanswered) => {
                    sleep(AGAIN).await;
                    continue;
                }
                Err(NoValues::Ends(why)) => Err(why),
            };
            let ends = item.is_err();
            if !to.send(item).await || ends {
                return;
            }
        }
    }

    /// The end of a stream whose shard does not answer.
    fn silent(&self, log: &str, next: TailPosition) -> Status {
        silent(self.map.of_key(log.as_bytes()), self.stream_patience, next.from)
    }

    /// The next values of a log, once there are any.
    async fn next(
        &self,
        log: &str,
        TailCursor { next, has_begun, silence }: &mut TailCursor,
        from: Option<&RequestOrigin>,
    ) -> Result<proto::TailResponse, NoValues> {
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
            let asked_at = Instant::now();
            let read = async {
                // It has waited for room until now, which is not the shard's silence.
                let waited = asked_at.elapsed();
                let since = silence.unanswered_since.map_or_else(Instant::now, |at| at + waited);
                silence.unanswered_since = Some(since);
                let answer = timeout_at(since + self.stream_patience, self.read(&command)).await;
                answer.unwrap_or_else(|_| Err(self.silent(log, *next)))
            };
            let answer = self.read_values(lane, BYTES, read).await;
            _ = answered.send(());
            if !matches!(&answer, Err(why) if why.code() == Code::Unavailable) {
                *silence = TailSilence::default();
            }
            match answer {
                Ok(LogAnswer::Values { extent, .. })
                    if next.incarnation.is_some_and(|known| known != extent.incarnation) =>
                {
                    return Err(deleted().into());
                }
                Ok(LogAnswer::Values { extent, values, .. }) => {
                    // Its reader has to know which log it is of to open it again, also where no value came; and that
                    // it is served.
                    if !values.is_empty() || !*has_begun {
                        *has_begun = true;
                        let values = values.into_iter().map(Bytes::from).collect();
                        return Ok(next.gives(extent.incarnation, values));
                    }
                }
                Ok(_) => {}
                Err(why) if why.code() == Code::NotFound => {
                    if next.incarnation.is_some() {
                        return Err(deleted().into());
                    }
                }
                Err(why) if why.code() == Code::OutOfRange => {
                    return Err(self.trimmed(log, next.incarnation, why).await.into());
                }
                Err(why) => return Err(why.into()),
            }
            if watching.until(next.from).await.is_err() {
                return Err(NoValues::Ends(self.silent(log, *next)));
            }
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
        TailCursor { next, has_begun, silence }: &mut TailCursor,
        to: &ToTail,
    ) -> ControlFlow<()> {
        let mut stopping = self.stopping.clone();
        for address in through.next() {
            if silence.is_over(self.stream_patience) {
                break;
            }
            let begun = Instant::now();
            let Ok(mut stream) = self.open(&address, log, *next).await else { continue };
            // A read of its own that this interrupted is over, and was not left unanswered.
            silence.unanswered_since = None;
            let mut is_silent = true;
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
                        is_silent = false;
                        *silence = TailSilence::default();
                        // Each of the gateways begins with one, and the stream with the first.
                        if item.values.is_empty() && *has_begun {
                            continue;
                        }
                        *has_begun = true;
                        Ok(item)
                    }
                    // The log was trimmed, or deleted: so it is everywhere.
                    Err(why) if matches!(why.code(), Code::OutOfRange | Code::NotFound) => Err(why),
                    Ok(None) | Err(_) => {
                        // One that waits for a log to be made gives nothing either, but for longer.
                        let open = begun.elapsed();
                        is_silent &= open >= self.stream_patience
                            && open < self.stream_patience + ENDS_WITHIN;
                        silence.gateways += u32::from(is_silent);
                        break;
                    }
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
