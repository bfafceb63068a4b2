//! A client that repeats its requests until they are answered: over all addresses that it was given,
//! with a session and numbers of its own, so that each takes effect once.

use crate::proto;
use crate::proto::log_client::LogClient;
use bytes::Bytes;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;
use tokio::runtime::Runtime;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

/// The oldest request that a gateway sends on, from when it was sent first, in milliseconds: what is twice as old may be
/// forgotten, and this leaves as much for all ways and waits.
pub const AGE_MAX_MS: u64 = 300_000;

/// How long a request is repeated unless somebody says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a connection may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// How long one sending of a request may take: less than a gateway's own patience, since another gateway
/// may answer sooner.
const SENDING_PATIENCE: Duration = Duration::from_secs(5);

/// How often a connection without traffic is asked whether it lives, and how long it may take.
const ALIVE_EVERY: Duration = Duration::from_secs(5);
const ALIVE_PATIENCE: Duration = Duration::from_secs(5);

/// How long after a failure a request is repeated; doubled each time.
const AGAIN_FIRST: Duration = Duration::from_millis(10);
const AGAIN_LAST: Duration = Duration::from_millis(500);

/// How long a stream must have been open for its gateway to have a cluster: one that has none ends it after 15 s, or
/// after 30 s where it forwards streams of others.
const STEADY_AFTER: Duration = Duration::from_secs(40);

/// The metadata in which a gateway states what became of a request that the nodes refused, of all its sendings.
pub const OUTCOME_KEY: &str = "amcast-outcome";

/// It took effect.
pub const OUTCOME_EXECUTED: &str = "executed";

/// It took no effect, and will take none under its number.
pub const OUTCOME_NOT_EXECUTED: &str = "not-executed";

/// A gateway's words to a client that gave no password, with the code `UNAUTHENTICATED`.
pub const PASSWORD_MISSING: &str =
    "the cluster has a password: send the metadata \"authorization: Bearer PASSWORD\"";

/// Its words to a client that gave a wrong one, with the same code.
pub const PASSWORD_WRONG: &str =
    "the password in the metadata \"authorization: Bearer PASSWORD\" is not that of the cluster";

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub struct LogError {
    /// The code, as in the .proto file.
    pub code: Code,
    /// The event and the remedy.
    pub why: String,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for LogError {}

impl From<Status> for LogError {
    fn from(status: Status) -> Self {
        let (mut code, mut why) = (status.code(), status.message().to_string());
        if why.is_empty() {
            why = status.code().description().to_string();
        }
        if code == Code::OutOfRange && why.starts_with(TOO_LARGE) {
            // It was not read, so nobody there could say it in the words of the log.
            let bytes = why.strip_prefix(TOO_LARGE).unwrap_or_default();
            why = format!(
                "the request is larger than the gateway takes, and nothing was done{bytes}"
            );
            code = Code::InvalidArgument;
        }
        Self { code, why }
    }
}

/// How a library begins to say that a request is larger than a gateway reads.
const TOO_LARGE: &str = "Error, decoded message length too large";

/// Says where gateways listen now; nothing if nobody knows, and it is asked again.
type FindGateways = Box<dyn FnMut() -> Vec<String> + Send>;

/// Says why it is of no use to ask at an address, if it is not.
type DoubtAddress = Box<dyn FnMut(&str) -> Option<String> + Send>;

/// A client of the log: a session of requests, one after the other. Its calls wait.
pub struct LogSession {
    runtime: Runtime,
    /// Where gateways listen, `host:port`.
    addresses: Vec<String>,
    /// Finds out where they do when they do not any more.
    finds: Option<FindGateways>,
    /// Looks at an address where something broke.
    doubts: Option<DoubtAddress>,
    /// Those that it has looked at.
    doubted: BTreeSet<String>,
    /// The one that is asked.
    current: usize,
    connected: Option<LogClient<Channel>>,
    password: Option<MetadataValue<Ascii>>,
    session: u64,
    requests: u64,
    patience: Duration,
    steady_after: Duration,
}

impl LogSession {
    /// A client of the gateways at `addresses`, each `host:port`; at least one. Nothing is connected yet.
    ///
    /// # Errors
    /// When its runtime cannot be started, or the password is nothing that can be sent.
    pub fn new(addresses: Vec<String>, password: Option<&str>) -> io::Result<Self> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
        if addresses.is_empty() {
            return Err(invalid("no address is given"));
        }
        let bearer = |password: &str| format!("Bearer {password}").parse();
        let password = password.map(bearer).transpose();
        let password = password.map_err(|_| invalid("the password is no printable ASCII"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self {
            runtime,
            addresses,
            finds: None,
            doubts: None,
            doubted: BTreeSet::new(),
            current: 0,
            connected: None,
            password,
            // The standard library's only source of chance: each state has keys of its own.
            session: RandomState::new().hash_one(std::process::id()) | 1,
            requests: 0,
            patience: PATIENCE,
            steady_after: STEADY_AFTER,
        })
    }

    /// Has requests repeated for so long.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience.min(Duration::from_millis(AGE_MAX_MS));
        self
    }

    /// Has a stream that breaks after it was open for so long count as one that was served: it is then opened again for
    /// as long as a request is repeated. 40 s unless somebody says otherwise, since a gateway without a cluster ends a
    /// stream after 15 to 30 s.
    #[must_use]
    pub const fn with_steady_after(mut self, steady_after: Duration) -> Self {
        self.steady_after = steady_after;
        self
    }

    /// Has it ask where gateways listen whenever one did not answer: a cluster that is started again may
    /// have other ports.
    #[must_use]
    pub fn finding(mut self, finds: impl FnMut() -> Vec<String> + Send + 'static) -> Self {
        self.finds = Some(Box::new(finds));
        self
    }

    /// Has it ask, once of each address, whether something else than a gateway may listen there, when what
    /// comes from there makes no sense, or a connection breaks. Where something does, requests fail with
    /// what was answered.
    #[must_use]
    pub fn doubting(mut self, doubts: impl FnMut(&str) -> Option<String> + Send + 'static) -> Self {
        self.doubts = Some(Box::new(doubts));
        self
    }

    /// Appends a value to a log; its position.
    ///
    /// # Errors
    /// When it was refused, or no gateway answered in time: it may have been appended then.
    pub fn append(&mut self, log: &str, value: impl Into<Bytes>) -> Result<u64, LogError> {
        let asked = proto::AppendRequest { log: log.into(), value: value.into(), session: None };
        let answer = self.write(asked, |request, session| request.session = Some(session))?;
        Ok(answer.position)
    }

    /// Appends values to logs, all at one moment; their positions.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn multi_append(
        &mut self,
        additions: impl IntoIterator<Item = (String, Bytes)>,
    ) -> Result<Vec<u64>, LogError> {
        let one = |(log, value)| proto::multi_append_request::Addition { log, value };
        let additions = additions.into_iter().map(one).collect();
        let asked = proto::MultiAppendRequest { additions, session: None };
        let answer = self.write(asked, |request, session| request.session = Some(session))?;
        Ok(answer.positions)
    }

    /// Drops the values in front of a position; how far the log goes then.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn trim(&mut self, log: &str, before: u64) -> Result<proto::Extent, LogError> {
        let asked = proto::TrimRequest { log: log.into(), before, session: None };
        let answer = self.write(asked, |request, session| request.session = Some(session))?;
        Ok(answer.extent.unwrap_or_default())
    }

    /// Takes a log away with all its values; how far it went. An append to its name makes a new log, whose positions
    /// count from 0.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn delete(&mut self, log: &str) -> Result<proto::Extent, LogError> {
        let asked = proto::DeleteRequest { log: log.into(), session: None };
        let answer = self.write(asked, |request, session| request.session = Some(session))?;
        Ok(answer.extent.unwrap_or_default())
    }

    /// Reads values; see the request.
    ///
    /// # Errors
    /// When it was refused, or no gateway answered in time.
    pub fn read(&mut self, asked: proto::ReadRequest) -> Result<proto::ReadResponse, LogError> {
        self.send(asked, |_, _| {})
    }

    /// How far some logs go, all at one moment; none for one that is not there.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn info(&mut self, logs: &[&str]) -> Result<Vec<Option<proto::Extent>>, LogError> {
        let logs = logs.iter().map(|log| (*log).to_string()).collect();
        let answer = self.send(proto::InfoRequest { logs }, |_, _| {})?;
        Ok(answer.found.into_iter().map(|found| found.extent).collect())
    }

    /// A page of the logs behind `after`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn list(&mut self, after: &str) -> Result<Vec<proto::list_response::Listed>, LogError> {
        let asked = proto::ListRequest { after: after.into(), max_logs: 0 };
        Ok(self.send(asked, |_, _| {})?.logs)
    }

    /// Tells `on` each value of a log from a position on with its position, and those that are appended
    /// later, until it says false. A stream that breaks is begun again where it was.
    ///
    /// # Errors
    /// When the log was trimmed behind the position, or deleted (also if it was made anew), or no gateway answered in
    /// time.
    pub fn tail(
        &mut self,
        log: &str,
        from: u64,
        on: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), LogError> {
        let mut position = from;
        let mut of = None;
        let mut failing = None;
        loop {
            let Self { runtime, addresses, current, connected, password, .. } = self;
            let log = log.to_string();
            let asked = proto::TailRequest { log, from: position, incarnation: of };
            let mut opened = None;
            let ended = runtime.block_on(async {
                let client = connect(connected, &addresses[*current]).await?;
                let mut stream = client.tail(with(asked, password)).await?.into_inner();
                opened = Some(since_boot());
                while let Some(given) = stream.message().await? {
                    let proto::TailResponse { from, values, incarnation } = given;
                    (of, failing) = (Some(incarnation), None);
                    for (value, at) in values.iter().zip(from..) {
                        position = at + 1;
                        if !on(at, value) {
                            return Ok(());
                        }
                    }
                }
                Err(Status::unavailable("the stream ended"))
            });
            match ended {
                Ok(()) => return Ok(()),
                Err(status) => {
                    let open = opened.map(|at| since_boot().saturating_sub(at));
                    failing.take_if(|_| open.is_some_and(|open| open > self.steady_after));
                    let failing = failing.get_or_insert_with(|| FailingRequest::begin(false));
                    self.again(status, failing)?
                }
            }
        }
    }

    /// Sends a request under a new number until it is answered.
    fn write<Q: SingleRequest>(
        &mut self,
        mut asked: Q,
        put: impl Fn(&mut Q, proto::Session),
    ) -> Result<Q::Answer, LogError> {
        self.requests += 1;
        let (id, request) = (self.session, self.requests);
        put(&mut asked, proto::Session { id, request, age_ms: 0 });
        self.send(asked, |asked, age_ms| put(asked, proto::Session { id, request, age_ms }))
    }

    /// Sends a request until it is answered; `grow` is called with the request's age before each
    /// repetition.
    fn send<Q: SingleRequest>(
        &mut self,
        mut asked: Q,
        grow: impl Fn(&mut Q, u64),
    ) -> Result<Q::Answer, LogError> {
        let mut trouble = FailingRequest::begin(Q::CHANGES);
        loop {
            let Self { runtime, addresses, current, connected, password, .. } = self;
            let request = with(asked.clone(), password);
            let answered = runtime.block_on(async {
                let client = connect(connected, &addresses[*current]).await?;
                let sending = tokio::time::timeout(SENDING_PATIENCE, Q::send(client, request));
                sending.await.unwrap_or_else(|_| {
                    Err(Status::deadline_exceeded(
                        "no answer came in time; whether the request took effect is not known",
                    ))
                })
            });
            match answered {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => self.again(status, &mut trouble)?,
            }
            // Rounded up: a request never looks younger than it is.
            grow(&mut asked, trouble.age().as_millis() as u64 + 1);
        }
    }

    /// Waits and turns to another gateway, if it is worth it.
    fn again(&mut self, status: Status, trouble: &mut FailingRequest) -> Result<(), LogError> {
        if is_uncertain(&status)
            && let Some(why) = self.doubt()
        {
            let code = if trouble.uncertain { Code::Unavailable } else { Code::InvalidArgument };
            return Err(trouble.last(Status::new(code, why)));
        }
        // A connection that broke says nothing of the request, with any code.
        trouble.uncertain |= trouble.changes && std::error::Error::source(&status).is_some();
        let worth_it = match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled => true,
            // There may be room later, and with it the answer to an earlier sending.
            Code::ResourceExhausted => trouble.uncertain && !is_settled(&status),
            _ => false,
        };
        if !worth_it {
            return Err(trouble.last(status));
        }
        trouble.uncertain |= trouble.changes && is_uncertain(&status);
        self.connected = None;
        let mut is_found = false;
        while !is_found {
            if trouble.age() + trouble.pause > self.patience {
                return Err(trouble.last(status));
            }
            std::thread::sleep(trouble.pause);
            trouble.pause = AGAIN_LAST.min(2 * trouble.pause);
            is_found = self.turn();
        }
        Ok(())
    }

    /// Why it is of no use to ask again at the address that was asked, if that is not known yet.
    fn doubt(&mut self) -> Option<String> {
        let (address, doubts) = (&self.addresses[self.current], self.doubts.as_mut()?);
        if self.doubted.insert(address.clone()) { doubts(address) } else { None }
    }

    /// Turns to another gateway; whether there is one. Where it is asked for gateways and nobody knows any,
    /// there is none: another cluster may have the ports of the one that ended.
    fn turn(&mut self) -> bool {
        match self.finds.as_mut().map(|finds| finds()) {
            Some(found) if found.is_empty() => return false,
            Some(found) => {
                let tried = &self.addresses[self.current];
                // Where it is gone, the one behind it has its place.
                let behind = found.iter().position(|address| address == tried).map(|at| at + 1);
                self.current = behind.unwrap_or(self.current) % found.len();
                self.addresses = found;
            }
            None => self.current = (self.current + 1) % self.addresses.len(),
        }
        true
    }
}

/// How long a request has failed.
struct FailingRequest {
    /// By the clock that continues while the machine is suspended: a gateway takes a request for one that may have been
    /// executed and forgotten by its age.
    since: Duration,
    pause: Duration,
    /// Whether it changes anything.
    changes: bool,
    /// Whether a sending of it may have taken effect although it was not answered.
    uncertain: bool,
}

impl FailingRequest {
    fn begin(changes: bool) -> Self {
        Self { since: since_boot(), pause: AGAIN_FIRST, changes, uncertain: false }
    }

    /// How long ago the request was sent first.
    fn age(&self) -> Duration {
        since_boot().saturating_sub(self.since)
    }

    /// The error when the last attempt ended with this status.
    fn last(&self, status: Status) -> LogError {
        let is_settled = is_settled(&status);
        let failed = LogError::from(status);
        // A gateway that refuses a request by itself knows nothing of its other sendings.
        let is_of_this_one = matches!(
            failed.code,
            Code::Unavailable
                | Code::ResourceExhausted
                | Code::Unauthenticated
                | Code::PermissionDenied
                | Code::InvalidArgument
                | Code::Internal
        );
        if self.uncertain && is_of_this_one && !is_settled {
            let why = format!("{}; an earlier sending may have taken effect", failed.why);
            return LogError { code: Code::DeadlineExceeded, why };
        }
        failed
    }
}

/// The time since this machine booted, also while it was suspended.
fn since_boot() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    Duration::new(tv_sec.unsigned_abs(), tv_nsec.unsigned_abs() as u32)
}

/// Whether a gateway states what became of a request, also of its earlier sendings.
fn is_settled(status: &Status) -> bool {
    let outcome = status.metadata().get(OUTCOME_KEY);
    outcome.is_some_and(|outcome| outcome == OUTCOME_EXECUTED || outcome == OUTCOME_NOT_EXECUTED)
}

/// Whether a request that ended so may have taken effect: a gateway says when it did not, a connection
/// that breaks does not.
fn is_uncertain(status: &Status) -> bool {
    status.code() != Code::Unavailable || std::error::Error::source(status).is_some()
}

/// The connection, or a new one.
async fn connect<'a>(
    connected: &'a mut Option<LogClient<Channel>>,
    address: &str,
) -> Result<&'a mut LogClient<Channel>, Status> {
    if connected.is_none() {
        *connected = Some(LogClient::new(connect_to(address).await?));
    }
    connected.as_mut().ok_or_else(|| Status::internal("it was just connected"))
}

/// A connection to a gateway.
pub async fn connect_to(address: &str) -> Result<Channel, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|e| Status::invalid_argument(format!("{address}: {e}")))?;
    // A process that hangs is found out also while a stream waits.
    let endpoint = endpoint.http2_keep_alive_interval(ALIVE_EVERY);
    let endpoint = endpoint.keep_alive_timeout(ALIVE_PATIENCE).keep_alive_while_idle(true);
    let channel = endpoint.connect_timeout(CONNECT_PATIENCE).tcp_nodelay(true).connect().await;
    channel.map_err(|_| {
        Status::unavailable(format!("nobody serves at {address}; nothing was sent there"))
    })
}

fn with<T>(asked: T, password: &Option<MetadataValue<Ascii>>) -> Request<T> {
    let mut request = Request::new(asked);
    if let Some(password) = password {
        request.metadata_mut().insert("authorization", password.clone());
    }
    request
}

/// A request with one answer.
trait SingleRequest: Clone {
    type Answer;
    /// Whether it changes anything.
    const CHANGES: bool;

    fn send(
        client: &mut LogClient<Channel>,
        request: Request<Self>,
    ) -> impl Future<Output = Result<Response<Self::Answer>, Status>>;
}

macro_rules! ask {
    ($($changes:literal $request:ident => $call:ident -> $answer:ident;)*) => {$(
        impl SingleRequest for proto::$request {
            type Answer = proto::$answer;
            const CHANGES: bool = $changes;

            async fn send(
                client: &mut LogClient<Channel>,
                request: Request<Self>,
            ) -> Result<Response<Self::Answer>, Status> {
                client.$call(request).await
            }
        }
    )*};
}

ask! {
    true AppendRequest => append -> AppendResponse;
    true MultiAppendRequest => multi_append -> MultiAppendResponse;
    true TrimRequest => trim -> TrimResponse;
    true DeleteRequest => delete -> DeleteResponse;
    false ReadRequest => read -> ReadResponse;
    false InfoRequest => info -> InfoResponse;
    false ListRequest => list -> ListResponse;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_tried_in_turn_also_where_those_that_are_found_change() {
        let named = |names: &str| names.chars().map(String::from).collect::<Vec<_>>();
        let mut client = LogSession::new(named("a"), None).expect("an address");
        let mut found = ["abc", "abc", "", "ac", "ac", "bd", "bd"].into_iter();
        client = client.finding(move || named(found.next().unwrap_or_default()));
        let mut tried = String::new();
        for _ in 0..7 {
            tried += if client.turn() { &client.addresses[client.current] } else { "-" };
        }
        assert_eq!(tried, "bc-acdb");
    }
}
