//! Bounds of calls that read: how many of one connection are under way at a time, and how large the answers are that
//! nodes prepare for all of them together.
//!
//! A call that reads has a few bytes, and its answer has megabytes: a node that was sent hundreds of them would serve
//! nobody else meanwhile. So a connection has some places for such calls. A call takes one before it is looked at, and
//! keeps it until its client has taken the answer: a client that takes none has that many calls executed, and no more.
//! Reads of streams have places as well, each until its answer has arrived: of a stream that is not read a message or two
//! wait, and the other streams of its connection continue.
//!
//! Before a read is sent to a node it reserves the size that its answer may have ([`ReadBudget`]), until that has
//! arrived. From then on the answer itself counts ([`UnreadAnswers`](super::answers::UnreadAnswers)).

use crate::gateway::log::connections::RequestOrigin;
use http_body_util::BodyExt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

/// Calls of one connection that read and whose answers are not taken; and as many reads of its streams.
pub(crate) const READS_PER_CONNECTION: usize = 8;

/// Bytes of answers that nodes are asked for at a time, of all connections: some milliseconds of a node's work.
pub(crate) const READ_BYTES_UNDER_WAY: usize = 32 << 20;

/// The ends of the paths of calls with large answers.
const LARGE: [&str; 2] = ["/Read", "/List"];

/// The unit of the budget, in bytes.
const UNIT: usize = 1 << 10;

/// The reads of one connection, of one kind.
pub(crate) struct ReadLane {
    places: Arc<Semaphore>,
    /// The expected size of the next answer, from the last ones.
    expected: AtomicUsize,
}

impl Default for ReadLane {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(READS_PER_CONNECTION));
        Self { places, expected: AtomicUsize::new(usize::MAX) }
    }
}

impl ReadLane {
    /// A place, once there is one.
    pub(crate) async fn enter(&self) -> Result<OwnedSemaphorePermit, Status> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        place.map_err(|_| Status::internal("the places of reads are closed"))
    }

    /// The size that the answer to a read may have, which asks for `asked` bytes at most.
    fn expects(&self, asked: usize) -> usize {
        self.expected.load(Ordering::Relaxed).min(asked)
    }

    /// Notes the size of an answer.
    fn learn(&self, expected: usize, bytes: usize) {
        self.expected.store(bytes.max(expected - expected / 8), Ordering::Relaxed);
    }
}

/// The bytes of answers that nodes are asked for.
pub(crate) struct ReadBudget {
    units: Semaphore,
    most: usize,
}

impl ReadBudget {
    /// So many bytes at a time; a read that may have more has all of them.
    pub(crate) fn new(bytes: usize) -> Self {
        let most = bytes.div_ceil(UNIT).clamp(1, u32::MAX as usize);
        Self { units: Semaphore::new(most), most }
    }

    /// Has `read` begin once there is room for an answer of `asked` bytes, or as large as the last ones of its lane were.
    /// `size` is that of the answer, if it is one: an error says nothing of how large answers are.
    pub(crate) async fn within<T>(
        &self,
        lane: Option<&ReadLane>,
        asked: usize,
        read: impl Future<Output = T>,
        size: impl FnOnce(&T) -> Option<usize>,
    ) -> T {
        let expected = lane.map_or(asked, |lane| lane.expects(asked));
        let units = expected.div_ceil(UNIT).clamp(1, self.most);
        // It is never closed.
        let reserved = self.units.acquire_many(units as u32).await;
        let answer = read.await;
        drop(reserved);
        if let (Some(lane), Some(bytes)) = (lane, size(&answer)) {
            lane.learn(expected, bytes);
        }
        answer
    }
}

/// Has the calls with large answers of a service take places of their connections.
#[derive(Clone)]
pub(crate) struct ReadPlaces;

impl<S> Layer<S> for ReadPlaces {
    type Service = PlacedReads<S>;

    fn layer(&self, service: S) -> PlacedReads<S> {
        PlacedReads { service }
    }
}

/// A service whose calls with large answers have places.
#[derive(Clone)]
pub(crate) struct PlacedReads<S> {
    service: S,
}

impl<S> Service<Request<Body>> for PlacedReads<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let is_large = LARGE.iter().any(|method| path.ends_with(method));
        let from = request.extensions().get::<RequestOrigin>().filter(|_| is_large).cloned();
        let Some(from) = from else { return Box::pin(self.service.call(request)) };
        // The one that is ready answers; the other one is made ready for the next.
        let next = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, next);
        Box::pin(async move {
            let place = match from.reads.enter().await {
                Ok(place) => place,
                Err(why) => return Ok(why.into_http()),
            };
            // The place is taken for as long as the answer is there.
            let hold = |body: Body| {
                Body::new(body.map_frame(move |frame| {
                    let _place = &place;
                    frame
                }))
            };
            service.call(request).await.map(|answer| answer.map(hold))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Waker;
    use tokio::sync::oneshot;

    #[test]
    fn reads_begin_only_while_there_is_room_for_their_answers() {
        let _limit = amcast_test_policy::time_limit();
        let (budget, mut cx) = (ReadBudget::new(100 << 10), Context::from_waker(Waker::noop()));
        let lane = ReadLane::default();
        let (to, from) = oneshot::channel::<usize>();
        let begun = AtomicUsize::new(0);
        let begins = async {
            begun.fetch_add(1, Ordering::Relaxed);
            from.await.unwrap_or(0)
        };
        let mut first = pin!(budget.within(Some(&lane), 60 << 10, begins, |bytes| Some(*bytes)));
        let mut second = pin!(budget.within(None, 60 << 10, async { 1 }, |bytes| Some(*bytes)));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        assert!(second.as_mut().poll(&mut cx).is_pending(), "120 KB are more than 100");
        to.send(10).expect("it waits");
        assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(10));
        assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(1));
        // Answers are expected to be about as large as the last ones were.
        assert_eq!(lane.expects(1 << 30), (60 << 10) - (60 << 10) / 8);
        lane.learn(1, 5 << 20);
        assert_eq!((lane.expects(1 << 30), lane.expects(7)), (5 << 20, 7));
        // A read that may have more than all of it has its turn as well.
        let mut large = pin!(budget.within(None, 1 << 30, async { 2 }, |_| None));
        assert_eq!(large.as_mut().poll(&mut cx), Poll::Ready(2));
    }
}
