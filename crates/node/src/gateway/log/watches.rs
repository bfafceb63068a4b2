//! Streams of the health service: so many at a time.
//!
//! Anybody may ask whether the log serves, also for a stream of answers, which ends when its client ends it.
//! Where there are as many streams as there may be, one more is refused; a single question (`Check`) is not.

use http_body_util::BodyExt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

/// The end of the path of a request for a stream.
const WATCH: &str = "/Watch";

/// Bounds the streams of a service.
#[derive(Clone)]
pub(crate) struct HealthWatches(Arc<Semaphore>);

impl HealthWatches {
    /// At most so many streams.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }
}

impl<S> Layer<S> for HealthWatches {
    type Service = WatchedService<S>;

    fn layer(&self, service: S) -> WatchedService<S> {
        WatchedService { watches: self.clone(), service }
    }
}

/// A service with a bounded number of streams.
#[derive(Clone)]
pub(crate) struct WatchedService<S> {
    watches: HealthWatches,
    service: S,
}

impl<S> Service<Request<Body>> for WatchedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if !request.uri().path().ends_with(WATCH) {
            return Box::pin(self.service.call(request));
        }
        let Ok(place) = Arc::clone(&self.watches.0).try_acquire_owned() else {
            let why = "too many clients watch the health of this gateway: ask it with Check";
            return Box::pin(async move { Ok(Status::resource_exhausted(why).into_http()) });
        };
        let answer = self.service.call(request);
        Box::pin(async move {
            // The place is taken for as long as the stream is there.
            let hold = |body: Body| {
                Body::new(body.map_frame(move |frame| {
                    let _place = &place;
                    frame
                }))
            };
            answer.await.map(|answer| answer.map(hold))
        })
    }
}
