//! A date in answers that the library cannot date: see [`dates`](crate::gateway::dates).

use crate::gateway::dates;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;
use tonic::codegen::http::{HeaderValue, Response, header};
use tower::{Layer, Service};

/// The first date that can be written.
const FIRST: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

/// Gives the answers of a service a date, where the clock's cannot be written.
#[derive(Clone)]
pub(super) struct WritableDates {
    pub(super) clock: fn() -> SystemTime,
}

/// A service whose answers have dates that can be written.
#[derive(Clone)]
pub(super) struct DatedService<S> {
    clock: fn() -> SystemTime,
    service: S,
}

impl<S> Layer<S> for WritableDates {
    type Service = DatedService<S>;

    fn layer(&self, service: S) -> DatedService<S> {
        DatedService { clock: self.clock, service }
    }
}

impl<S, Q, B> Service<Q> for DatedService<S>
where
    S: Service<Q, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let (answer, clock) = (self.service.call(request), self.clock);
        Box::pin(async move {
            let mut answer = answer.await?;
            if !dates::is_writable(clock()) {
                let first = HeaderValue::from_static(FIRST);
                answer.headers_mut().entry(header::DATE).or_insert(first);
            }
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::pin::pin;
    use std::task::Waker;
    use std::time::{Duration, UNIX_EPOCH};

    #[derive(Clone)]
    struct EmptyService;

    impl Service<()> for EmptyService {
        type Response = Response<()>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<()>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            std::future::ready(Ok(Response::new(())))
        }
    }

    #[test]
    fn answers_are_dated_where_the_clock_is_before_1970() {
        let date = |clock: fn() -> SystemTime| {
            let mut service = WritableDates { clock }.layer(EmptyService);
            let mut cx = Context::from_waker(Waker::noop());
            match pin!(service.call(())).poll(&mut cx) {
                Poll::Ready(Ok(answer)) => answer.headers().get(header::DATE).cloned(),
                Poll::Ready(Err(never)) => match never {},
                Poll::Pending => panic!("it waits for nothing"),
            }
        };
        assert_eq!(
            date(|| UNIX_EPOCH - Duration::from_secs(1)),
            Some(HeaderValue::from_static(FIRST))
        );
        assert_eq!(date(SystemTime::now), None, "the library writes it");
    }
}
