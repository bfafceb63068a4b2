//! Requests that are looked at: so many at a time, each for so long until it is whole.
//!
//! A request that does not come whole holds the place of one that does. It is given up after a while, and at once if
//! its place is wanted and no other one has been unfinished for longer: whether anybody looks at its bytes or not, since
//! a stream whose answers are not taken is not read either. The bytes of a request are taken in only once it has a place.

use crate::gateway::log::answers::count_until_taken;
use bytes::Bytes;
use http_body::{Body as _, Frame};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

/// How long a request may take to be there as a whole.
const WHOLE_WITHIN: Duration = Duration::from_secs(10);

/// Requests that wait for a place, for each place: more are refused.
const WAITING_PER_PLACE: usize = 8;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Places for the requests of a service.
#[derive(Clone)]
pub(crate) struct Requests(Arc<RequestPlaces>);

struct RequestPlaces {
    room: Arc<Semaphore>,
    /// Those that wait for a place, too.
    waits: Arc<Semaphore>,
    unfinished: Mutex<UnfinishedRequests>,
}

#[derive(Default)]
struct UnfinishedRequests {
    next: u64,
    /// In the order in which they began.
    all: BTreeMap<u64, Arc<UnfinishedRequest>>,
}

/// A request that is not whole.
struct UnfinishedRequest {
    /// Its place, until it is given up.
    place: Mutex<Option<Arc<OwnedSemaphorePermit>>>,
    waker: Mutex<Option<Waker>>,
}

impl UnfinishedRequest {
    /// Takes its place from it. If its bytes are looked at, it ends.
    fn give_up(&self) {
        drop(lock(&self.place).take());
        if let Some(waker) = lock(&self.waker).take() {
            waker.wake();
        }
    }

    fn is_given_up(&self) -> bool {
        lock(&self.place).is_none()
    }
}

impl Requests {
    /// So many places.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(RequestPlaces {
            room: Arc::new(Semaphore::new(most)),
            waits: Arc::new(Semaphore::new(most * WAITING_PER_PLACE)),
            unfinished: Mutex::default(),
        }))
    }

    /// A place, once there is one.
    async fn enter(&self) -> Result<OwnedSemaphorePermit, Status> {
        let RequestPlaces { room, waits, unfinished } = &*self.0;
        if let Ok(place) = Arc::clone(room).try_acquire_owned() {
            return Ok(place);
        }
        let refused = || Status::resource_exhausted("too many requests wait; nothing happened");
        let _waits = waits.try_acquire().map_err(|_| refused())?;
        let oldest = lock(unfinished).all.pop_first();
        if let Some((_, oldest)) = oldest {
            oldest.give_up();
        }
        Arc::clone(room).acquire_owned().await.map_err(|_| refused())
    }

    /// The body of a request, which keeps its place until it is whole: also when it is answered before, as a stream is.
    fn watch(&self, body: Body, place: Arc<OwnedSemaphorePermit>) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let part =
            Arc::new(UnfinishedRequest { place: Mutex::new(Some(place)), waker: Mutex::default() });
        let mut unfinished = lock(&self.0.unfinished);
        let number = unfinished.next;
        unfinished.next += 1;
        unfinished.all.insert(number, Arc::clone(&part));
        drop(unfinished);
        let of = RequestRemoval { requests: self.clone(), number, part: Arc::clone(&part) };
        Body::new(TimedBody { body, part, of: Some(of), end: Box::pin(sleep(WHOLE_WITHIN)) })
    }
}

/// Takes a request out of those that are unfinished.
struct RequestRemoval {
    requests: Requests,
    number: u64,
    part: Arc<UnfinishedRequest>,
}

impl Drop for RequestRemoval {
    fn drop(&mut self) {
        lock(&self.requests.0.unfinished).all.remove(&self.number);
        drop(lock(&self.part.place).take());
    }
}

/// The bytes of a request that must come whole in time.
struct TimedBody {
    body: Body,
    part: Arc<UnfinishedRequest>,
    /// Until it is whole.
    of: Option<RequestRemoval>,
    end: Pin<Box<Sleep>>,
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let is_given_up = self.of.is_some() && self.part.is_given_up();
        let polled = match is_given_up {
            true => Poll::Pending,
            false => Pin::new(&mut self.body).poll_frame(cx),
        };
        if let Poll::Ready(frame) = polled {
            let goes_on = matches!(&frame, Some(Ok(_))) && !self.body.is_end_stream();
            if !goes_on {
                self.of = None;
            }
            return Poll::Ready(frame);
        }
        *lock(&self.part.waker) = Some(cx.waker().clone());
        let why = if is_given_up || self.part.is_given_up() {
            Status::resource_exhausted(
                "the request was not whole when others waited; nothing happened",
            )
        } else if self.end.as_mut().poll(cx).is_ready() {
            Status::deadline_exceeded(format!(
                "the request was not whole within {} s; nothing happened",
                WHOLE_WITHIN.as_secs()
            ))
        } else {
            return Poll::Pending;
        };
        self.of = None;
        Poll::Ready(Some(Err(why)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

impl<S> Layer<S> for Requests {
    type Service = BoundedService<S>;

    fn layer(&self, service: S) -> BoundedService<S> {
        BoundedService { requests: self.clone(), service }
    }
}

/// A service whose requests have places.
#[derive(Clone)]
pub(crate) struct BoundedService<S> {
    requests: Requests,
    service: S,
}

impl<S> Service<Request<Body>> for BoundedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The one that is ready answers; the other one is made ready for the next.
        let next = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, next);
        let requests = self.requests.clone();
        Box::pin(async move {
            let place = match requests.enter().await {
                Ok(place) => Arc::new(place),
                Err(why) => return Ok(why.into_http()),
            };
            let answer =
                service.call(request.map(|body| requests.watch(body, Arc::clone(&place)))).await;
            drop(place);
            answer.map(count_until_taken)
        })
    }
}
