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
//! arrived. From then on the answer itself counts ([`UnreadAnswers`](super::answers::UnreadAnswers)). A read whose caller
//! gives up keeps its place and its reservation for a second, since the node executes it all the same; and none keeps
//! them for longer without an answer: a shard that does not answer stops no reads of others.

use crate::gateway::log::connections::RequestOrigin;
use crate::gateway::log::pieces::PiecedBody;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

/// Calls of one connection that read and whose answers are not taken; and as many reads of its streams.
pub(crate) const READS_PER_CONNECTION: usize = 8;

/// Bytes of answers that nodes are asked for at a time, of all connections: some milliseconds of a node's work.
pub(crate) const READ_BYTES_UNDER_WAY: usize = 32 << 20;

/// The ends of the paths of calls with large answers, which take places of their connections.
const READS: [&str; 2] = ["/Read", "/List"];

/// The end of the path of streams that are served before any password: of these one connection would have all places else.
const DESCRIPTIONS: &str = "/ServerReflectionInfo";

/// The size that the first answer of a connection is expected to have, at most.
const FIRST_BYTES: usize = 1 << 20;

/// How long a read without an answer keeps its place and its reservation.
const HELD_AT_MOST: Duration = Duration::from_secs(1);

/// The unit of the budget, in bytes.
const UNIT: usize = 1 << 10;

/// The reads of one connection, of one kind, or its streams of descriptions.
pub(crate) struct ReadLane {
    places: Arc<Semaphore>,
    /// The expected size of the next answer, from the last ones.
    expected: AtomicUsize,
}

impl Default for ReadLane {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(READS_PER_CONNECTION));
        Self { places, expected: AtomicUsize::new(FIRST_BYTES) }
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
    units: Arc<Semaphore>,
    most: usize,
}

impl ReadBudget {
    /// So many bytes at a time; a read that may have more has all of them.
    pub(crate) fn new(bytes: usize) -> Self {
        let most = bytes.div_ceil(UNIT).clamp(1, u32::MAX as usize);
        Self { units: Arc::new(Semaphore::new(most)), most }
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
        let reserved = Arc::clone(&self.units).acquire_many_owned(units as u32).await;
        let answered = hold(reserved);
        let answer = read.await;
        // It fails where a second is over: nothing is held then.
        _ = answered.send(());
        if let (Some(lane), Some(bytes)) = (lane, size(&answer)) {
            lane.learn(expected, bytes);
        }
        answer
    }
}

/// Holds the places of a read until that is answered, which the result tells; for a second, where it is not. It takes a
/// task of its own, since the read's may be dropped at any time.
pub(crate) fn hold(places: impl Send + 'static) -> oneshot::Sender<()> {
    let (answered, is_answered) = oneshot::channel();
    tokio::spawn(async move {
        let end = Instant::now() + HELD_AT_MOST;
        if !matches!(timeout_at(end, is_answered).await, Ok(Ok(()))) {
            sleep_until(end).await;
        }
        drop(places);
    });
    answered
}

/// Has calls with large answers, and streams, take places of their connections.
#[derive(Clone)]
pub(crate) struct ReadPlaces;

impl<S> Layer<S> for ReadPlaces {
    type Service = PlacedReads<S>;

    fn layer(&self, service: S) -> PlacedReads<S> {
        PlacedReads { service }
    }
}

/// A service whose calls have places of their connections.
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
        let is_read = READS.iter().any(|method| path.ends_with(method));
        let is_placed = is_read || path.ends_with(DESCRIPTIONS);
        let from = request.extensions().get::<RequestOrigin>().filter(|_| is_placed).cloned();
        let Some(from) = from else { return Box::pin(self.service.call(request)) };
        // The one that is ready answers; the other one is made ready for the next.
        let next = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, next);
        Box::pin(async move {
            let lane = if is_read { &from.reads } else { &from.descriptions };
            let place = match lane.enter().await {
                Ok(place) => place,
                Err(why) => return Ok(why.into_http()),
            };
            // The place is taken for as long as the answer is there.
            let place = Arc::new(place);
            let answered = hold(Arc::clone(&place));
            let answer = service.call(request).await;
            _ = answered.send(());
            answer.map(|answer| answer.map(|body| PiecedBody::of(body, place)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Waker;

    #[test]
    fn reads_begin_only_while_there_is_room_for_their_answers() {
        let _limit = amcast_test_policy::time_limit();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
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
        // Those that hold reservations have their turn.
        let turn = || runtime.block_on(tokio::time::sleep(Duration::from_millis(1)));
        turn();
        assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(1));
        turn();
        // Answers are expected to be about as large as the last ones were.
        assert_eq!(lane.expects(1 << 30), (60 << 10) - (60 << 10) / 8);
        lane.learn(1, 5 << 20);
        assert_eq!((lane.expects(1 << 30), lane.expects(7)), (5 << 20, 7));
        // A read that may have more than all of it has its turn as well.
        let mut large = pin!(budget.within(None, 1 << 30, async { 2 }, |_| None));
        assert_eq!(large.as_mut().poll(&mut cx), Poll::Ready(2));
    }

    #[test]
    fn a_read_that_is_given_up_or_not_answered_keeps_its_reservation_for_a_second() {
        let _limit = amcast_test_policy::time_limit();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let budget = ReadBudget::new(100 << 10);
        runtime.block_on(async {
            let never = std::future::pending::<usize>();
            let read = budget.within(None, 100 << 10, never, |_| None);
            assert!(tokio::time::timeout(Duration::from_millis(1), read).await.is_err());
            assert_eq!(budget.units.available_permits(), 0, "the node still executes it");
            budget.within(None, 100 << 10, async { 1 }, |_| None).await;
        });
    }
}
