//! Only clients that give the cluster's password may call the log.
//!
//! A wrong password is answered late. A bounded number of them wait for that answer at a time; a connection that gives
//! one more is closed. All clients together that have not given the password can try as many as [`LOGINS`] says, however many
//! connections and calls they begin: beyond, each waits for its turn, whether its password is right or wrong.

use crate::gateway::log::connections::{CONNECTIONS_MAX, RequestOrigin};
use crate::gateway::log::counts::LogServiceCounts;
use crate::gateway::login_turns::{LoginPace, LoginTurns};
use crate::gateway::rate_limited_log::RateLimitedLog;
use amcast_log::client::{PASSWORD_MISSING, PASSWORD_WRONG};
use std::future::Future;
use std::net::Ipv4Addr;
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

/// How fast passwords may be tried: as fast as so many late answers let them. Each connection of the gateway may wait:
/// strangers of more hosts than may wait would have clients with the right password refused.
const LOGINS: LoginPace =
    LoginPace { per_second: 256, burst: LATE_MAX as u32, waiting_max: CONNECTIONS_MAX };

/// Lets in who gives the password, if there is one.
#[derive(Clone)]
pub(crate) struct PasswordGuard(Option<Arc<GuardState>>);

struct GuardState {
    password: String,
    late: Semaphore,
    turns: Arc<LoginTurns>,
    done: Arc<LogServiceCounts>,
    warning: RateLimitedLog,
}

impl PasswordGuard {
    /// Asks for the password, if there is one; `done` counts the wrong ones.
    pub(crate) fn new(password: Option<String>, done: &Arc<LogServiceCounts>) -> Self {
        let inner = |password| GuardState {
            password,
            late: Semaphore::new(LATE_MAX),
            turns: LoginTurns::new(LOGINS),
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
                from.inspect(|from| from.slot.end());
                sleep(LATE).await;
            }
        }
    }

    /// Whether a password is right, of a client that is not known; false late, and either in its turn.
    async fn lets_in(&self, given: &[u8], from: Option<RequestOrigin>) -> bool {
        let host = from.as_ref().map_or(Ipv4Addr::UNSPECIFIED.into(), |from| from.slot.host());
        let Ok(permit) = self.turns.turn(host).await else {
            from.inspect(|from| from.slot.end());
            return false;
        };
        let is_right = is_right(given, &self.password);
        if is_right {
            permit.was_right();
            from.inspect(|from| from.show_known());
        } else {
            self.refuse(from).await;
        }
        is_right
    }
}

fn unauthenticated(why: &str) -> Response<Body> {
    Status::unauthenticated(why).into_http()
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
        let Some(state) = &self.guard.0 else { return Box::pin(self.service.call(request)) };
        let Some(given) = given(request.headers()) else {
            return Box::pin(async { Ok(unauthenticated(PASSWORD_MISSING)) });
        };
        let from = request.extensions().get::<RequestOrigin>().cloned();
        let is_known = from.as_ref().is_some_and(|from| from.slot.is_known());
        if is_known && is_right(given, &state.password) {
            return Box::pin(self.service.call(request));
        }
        let (state, given) = (Arc::clone(state), given.to_vec());
        // The one that is ready answers; the other one is made ready for the next.
        let next = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, next);
        Box::pin(async move {
            match state.lets_in(&given, from).await {
                true => service.call(request).await,
                false => Ok(unauthenticated(PASSWORD_WRONG)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use std::time::Instant;

    /// Lets every request through.
    #[derive(Clone)]
    struct OpenService;

    impl Service<Request<Body>> for OpenService {
        type Response = Response<Body>;
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<Response<Body>, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            std::future::ready(Ok(Response::new(Body::empty())))
        }
    }

    fn request(password: &str) -> Request<Body> {
        let head = Request::builder().header("authorization", format!("Bearer {password}"));
        head.body(Body::empty()).expect("a request")
    }

    #[test]
    fn passwords_of_unknown_clients_are_compared_at_a_bounded_pace_and_right_ones_wait_as_well() {
        let _limit = amcast_test_policy::time_limit();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime");
        let _entered = runtime.enter();
        let done = Arc::<LogServiceCounts>::default();
        let guard = PasswordGuard::new(Some("secret".to_owned()), &done);
        let mut service = guard.layer(OpenService);
        let begun = Instant::now();
        let mut cx = Context::from_waker(Waker::noop());
        let mut tried: Vec<_> = (0..100).map(|_| service.call(request("wrong"))).collect();
        tried.iter_mut().for_each(|call| _ = call.as_mut().poll(&mut cx));
        let mut right = service.call(request("secret"));
        let waits = right.as_mut().poll(&mut cx).is_pending();
        let most = 64 + begun.elapsed().as_millis() / 4 + 1;
        let wrong = u128::from(done.wrong_password() - 1);
        assert!(wrong >= 64 && wrong <= most, "{wrong} of {most} were compared");
        assert!(waits || most > 99, "the right one was told at once");
        drop(tried);
        assert!(runtime.block_on(right).is_ok(), "it has its turn");
    }
}
