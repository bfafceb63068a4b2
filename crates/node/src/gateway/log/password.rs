//! Only clients that give the cluster's password may call the log.
//!
//! A wrong password is answered late. A bounded number of them wait for that answer at a time; a connection that gives
//! one more is closed. So all unauthenticated clients together can try few passwords, however many connections and calls they begin.

use crate::gateway::log::connections::RequestOrigin;
use crate::gateway::log::counts::LogServiceCounts;
use crate::gateway::rate_limited_log::RateLimitedLog;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tower::{Layer, Service};

/// How long the answer to a wrong password takes.
const LATE: Duration = Duration::from_millis(250);

/// Such answers that wait at a time: so 256 passwords can be tried in a second.
const LATE_MAX: usize = 64;

/// Lets in who gives the password, if there is one.
#[derive(Clone)]
pub(crate) struct PasswordGuard(Option<Arc<GuardState>>);

struct GuardState {
    password: String,
    late: Semaphore,
    done: Arc<LogServiceCounts>,
    warning: RateLimitedLog,
}

impl PasswordGuard {
    /// Asks for the password, if there is one; `done` counts the wrong ones.
    pub(crate) fn new(password: Option<String>, done: &Arc<LogServiceCounts>) -> Self {
        let inner = |password| GuardState {
            password,
            late: Semaphore::new(LATE_MAX),
            done: Arc::clone(done),
            warning: RateLimitedLog::default(),
        };
        Self(password.map(|password| Arc::new(inner(password))))
    }
}

impl GuardState {
    /// A wrong password was given; returns when that is to be answered.
    async fn refuse(&self, from: Option<RequestOrigin>) {
        let count = self.done.wrong_password();
        self.warning
            .warn(|| format!("a client of the log gave a wrong password; {count} since the start"));
        match (self.late.try_acquire(), from) {
            (Ok(_place), _) => sleep(LATE).await,
            (Err(_), from) => {
                from.inspect(|from| from.end());
                sleep(LATE).await;
            }
        }
    }
}

/// The password that a request gives, right or wrong.
fn given(head: &HeaderMap) -> Option<&[u8]> {
    head.get("authorization")?.as_bytes().strip_prefix(b"Bearer ")
}

fn is_right(given: &[u8], password: &str) -> bool {
    // Takes as long for a password that is nearly right as for one that is not.
    let differ = given.iter().zip(password.as_bytes()).fold(0, |d, (a, b)| d | (a ^ b));
    given.len() == password.len() && std::hint::black_box(differ) == 0
}

impl<S> Layer<S> for PasswordGuard {
    type Service = GuardedService<S>;

    fn layer(&self, service: S) -> GuardedService<S> {
        GuardedService { guard: self.clone(), service }
    }
}

/// A service that is not for everybody.
#[derive(Clone)]
pub(crate) struct GuardedService<S> {
    guard: PasswordGuard,
    service: S,
}

impl<S> Service<Request<Body>> for GuardedService<S>
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
        let from = request.extensions().get::<RequestOrigin>().cloned();
        let given = given(request.headers());
        match &self.guard.0 {
            Some(inner) if !given.is_some_and(|given| is_right(given, &inner.password)) => {
                let (inner, tries) = (Arc::clone(inner), given.is_some());
                Box::pin(async move {
                    if tries {
                        inner.refuse(from).await;
                    }
                    let why = "the cluster has a password: send the metadata \"authorization: Bearer \
                               PASSWORD\"";
                    Ok(Status::unauthenticated(why).into_http())
                })
            }
            _ => {
                from.inspect(|from| from.is_known());
                Box::pin(self.service.call(request))
            }
        }
    }
}
