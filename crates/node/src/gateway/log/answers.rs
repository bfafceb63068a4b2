//! Answers that clients have not taken: so many bytes for all connections together.
//!
//! An answer waits in memory until its client takes it, and a client may take none. Where all of them together are
//! too large, the connection whose answers are largest is closed: who takes its answers loses nothing.

use crate::gateway::log::connections::RequestOrigin;
use crate::gateway::log::pieces::PiecedBody;
use crate::gateway::log::tail::TailItem;
use amcast_log::proto::{
    AppendResponse, DeleteResponse, InfoResponse, ListResponse, MultiAppendResponse, ReadResponse,
    TailResponse, TrimResponse,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::codegen::http::Response;

/// Bytes of the answers of all connections that wait to be taken, usually.
pub const UNREAD_BYTES_MAX: usize = 256 << 20;

/// The overhead of every answer.
const ANSWER_BYTES: usize = 1 << 10;

/// The overhead of each value, log or position of an answer beside its bytes, at most.
const ITEM_BYTES: usize = 80;

/// The answers that wait.
#[derive(Clone)]
pub(crate) struct UnreadAnswers(Arc<Mutex<AnswerLedger>>);

struct AnswerLedger {
    most: usize,
    bytes: usize,
    /// By the address of the connection's slot.
    connections: BTreeMap<usize, (RequestOrigin, usize)>,
}

impl UnreadAnswers {
    /// At most so many bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(AnswerLedger { most, bytes: 0, connections: BTreeMap::new() })))
    }

    fn ledger(&self) -> MutexGuard<'_, AnswerLedger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an answer for as long as the result is there; `None` where nobody knows of which connection.
    pub(crate) fn count(
        &self,
        from: Option<&RequestOrigin>,
        bytes: usize,
    ) -> Option<CountedAnswer> {
        let (from, bytes) = (from?, bytes + ANSWER_BYTES);
        let of = Arc::as_ptr(from) as usize;
        let mut ledger = self.ledger();
        ledger.bytes += bytes;
        ledger.connections.entry(of).or_insert_with(|| (Arc::clone(from), 0)).1 += bytes;
        if ledger.bytes > ledger.most
            && let Some((largest, _)) = ledger.connections.values().max_by_key(|(_, bytes)| *bytes)
        {
            largest.slot.end();
        }
        drop(ledger);
        Some(CountedAnswer { unread: self.clone(), of, bytes })
    }
}

/// An answer that counts.
pub(crate) struct CountedAnswer {
    unread: UnreadAnswers,
    of: usize,
    bytes: usize,
}

impl Drop for CountedAnswer {
    fn drop(&mut self) {
        let mut ledger = self.unread.ledger();
        ledger.bytes -= self.bytes;
        if let Some((_, bytes)) = ledger.connections.get_mut(&self.of) {
            *bytes -= self.bytes;
            if *bytes == 0 {
                ledger.connections.remove(&self.of);
            }
        }
    }
}

/// An answer of the service.
pub(crate) trait AnswerBytes {
    /// The approximate size of its contents, in bytes of memory.
    fn bytes(&self) -> usize;
}

fn bytes_of_values(values: &[Bytes]) -> usize {
    values.iter().map(|value| value.len() + ITEM_BYTES).sum()
}

impl AnswerBytes for AppendResponse {
    fn bytes(&self) -> usize {
        ITEM_BYTES
    }
}

impl AnswerBytes for MultiAppendResponse {
    fn bytes(&self) -> usize {
        self.positions.len() * ITEM_BYTES
    }
}

impl AnswerBytes for ReadResponse {
    fn bytes(&self) -> usize {
        bytes_of_values(&self.values)
    }
}

impl AnswerBytes for TrimResponse {
    fn bytes(&self) -> usize {
        ITEM_BYTES
    }
}

impl AnswerBytes for DeleteResponse {
    fn bytes(&self) -> usize {
        ITEM_BYTES
    }
}

impl AnswerBytes for InfoResponse {
    fn bytes(&self) -> usize {
        self.found.len() * ITEM_BYTES
    }
}

impl AnswerBytes for ListResponse {
    fn bytes(&self) -> usize {
        self.logs.iter().map(|listed| listed.log.len() + ITEM_BYTES).sum()
    }
}

impl AnswerBytes for TailItem {
    fn bytes(&self) -> usize {
        self.as_ref().map_or(0, |TailResponse { values, .. }| bytes_of_values(values))
    }
}

/// The answer of a call on this connection, if that is known, which counts from now on.
pub(crate) fn answer_on<T: AnswerBytes>(
    unread: &UnreadAnswers,
    from: Option<&RequestOrigin>,
    answer: T,
) -> tonic::Response<T> {
    let counted = unread.count(from, answer.bytes());
    let mut response = tonic::Response::new(answer);
    if let Some(counted) = counted {
        response.extensions_mut().insert(Arc::new(counted));
    }
    response
}

/// Has the answer of a call count until its client has taken it.
pub(crate) fn count_until_taken(mut answer: Response<Body>) -> Response<Body> {
    match answer.extensions_mut().remove::<Arc<CountedAnswer>>() {
        None => answer,
        // It counts for as long as its body is there.
        Some(counted) => answer.map(|body| PiecedBody::of(body, counted)),
    }
}

/// Where the messages of a stream go.
pub(crate) struct ToTail {
    to: mpsc::Sender<(TailItem, Option<CountedAnswer>)>,
    unread: UnreadAnswers,
    from: Option<RequestOrigin>,
}

impl ToTail {
    /// With a stream of what is sent, to which one message waits while the next is made.
    pub(crate) fn new(
        unread: &UnreadAnswers,
        from: Option<RequestOrigin>,
    ) -> (Self, CountedStream) {
        let (to, messages) = mpsc::channel(1);
        let unread = unread.clone();
        (Self { to, unread, from }, CountedStream { messages, given: None })
    }

    /// Sends a message once there is room; false if the stream is gone.
    pub(crate) async fn send(&self, item: TailItem) -> bool {
        let counted = self.unread.count(self.from.as_ref(), item.bytes());
        self.to.send((item, counted)).await.is_ok()
    }

    /// The connection of the stream, if that is known.
    pub(crate) const fn from(&self) -> Option<&RequestOrigin> {
        self.from.as_ref()
    }

    /// Waits until the stream is gone.
    pub(crate) async fn closed(&self) {
        self.to.closed().await;
    }
}

/// The messages of a stream. Each counts until the next one is asked for: then the client has taken it.
pub(crate) struct CountedStream {
    messages: mpsc::Receiver<(TailItem, Option<CountedAnswer>)>,
    given: Option<CountedAnswer>,
}

impl Stream for CountedStream {
    type Item = TailItem;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TailItem>> {
        self.given = None;
        self.messages.poll_recv(cx).map(|message| {
            message.map(|(item, counted)| {
                self.given = counted;
                item
            })
        })
    }
}
