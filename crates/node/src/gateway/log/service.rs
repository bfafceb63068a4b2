//! The calls of the service: requests become commands, answers become responses.

use crate::clock;
use crate::gateway::log::answers::{AnswerBytes, CountedStream, ToTail, UnreadAnswers, answer_on};
use crate::gateway::log::connections::RequestOrigin;
use crate::gateway::log::counts::{LogRequestKind, LogServiceCounts, Method};
use crate::gateway::log::follow::LogFollowers;
use crate::gateway::log::looks::LookAnswer;
use crate::gateway::log::reads::{ReadBudget, ReadLane};
use crate::gateway::log::session::GatewaySessions;
use crate::gateway::log::status::{RetryToken, invalid, not_done, unanswered};
use crate::gateway::log::tail::{TailGateways, TailPosition};
use crate::gateway::{Backend, CommandFailure, FailureCause, GatewayClock};
use amcast_core::{GroupSet, Outcome, ServiceAnswer};
use amcast_kv::SlotMap;
use amcast_log::client::AGE_MAX_MS;
use amcast_log::command::{APPEND_BYTES, LIST_MAX, addition_bytes, check};
use amcast_log::proto::log_server::Log;
use amcast_log::proto::{self, info_response, list_response, multi_append_request};
use amcast_log::{
    Addition, Extent, LogAnswer, LogCommand, Logs, NAME_BYTES_MAX, READ_BYTES_MAX, READ_VALUES_MAX,
    Rejection,
};
use amcast_smr::Envelope;
use amcast_smr::machine::Refusal;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot, watch};
use tonic::{Code, Request, Response, Status};

/// Values of a read that does not say how many, and logs of a list.
pub(crate) const USUAL_VALUES: u32 = 1000;

/// Bytes of a read that does not say how many.
const USUAL_BYTES: u32 = 1_000_000;

/// How often a request is ordered, at most, whose stamp is refused: this host's clock is set by the first refusal.
const CLOCK_TRIES: u32 = 3;

/// Streams at a time.
pub(crate) const TAILS_MAX: usize = 1024;

/// The state that all requests of a gateway share.
pub(crate) struct LogGatewayShared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) map: SlotMap,
    /// Bytes of the largest command that is sent on, its envelope included.
    pub(crate) payload_max: usize,
    pub(crate) clock: GatewayClock,
    pub(crate) sessions: GatewaySessions,
    pub(crate) follows: Arc<LogFollowers>,
    /// True once the gateway stops.
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) tails: Arc<Semaphore>,
    /// Answers that their clients have not taken.
    pub(crate) unread: UnreadAnswers,
    /// Answers that nodes are asked for.
    pub(crate) read_budget: ReadBudget,
    pub(crate) done: Arc<LogServiceCounts>,
    /// The node that serves streams in its place, if any.
    pub(crate) through: Option<TailGateways>,
    /// How long a stream waits for a shard that does not answer.
    pub(crate) stream_patience: Duration,
    /// The password that clients must give, if any; nodes get the same.
    pub(crate) password: Option<String>,
}

/// The answer to an ordered command.
struct OrderedAnswer {
    answer: LogAnswer,
    /// The command's outcome.
    outcome: Outcome,
}

impl LogGatewayShared {
    /// Has a command executed; the answer, or in words why there is none.
    async fn order(
        &self,
        head: &Envelope,
        dst: GroupSet,
        command: &LogCommand<'_>,
        again: RetryToken,
    ) -> Result<OrderedAnswer, Status> {
        let mut payload = Vec::new();
        head.encode(&mut payload);
        command.encode(&mut payload);
        if payload.len() > self.payload_max {
            return Err(invalid("the request is larger than the cluster takes; nothing happened"));
        }
        let (to, from) = oneshot::channel();
        let done = move |answer: Result<ServiceAnswer<'_>, CommandFailure>| {
            // The caller may have gone.
            let _ = to.send(answer.map(ServiceAnswer::into_owned));
        };
        self.backend
            .ask(dst, &mut payload, Box::new(done))
            .map_err(|why| unanswered(&why, again))?;
        let lost = CommandFailure::new(Outcome::Unknown, FailureCause::Other, "the gateway stops");
        let came = from.await.unwrap_or(Err(lost)).map_err(|why| unanswered(&why, again))?;
        let answer = LogAnswer::decode(&came.bytes);
        let answer = answer.ok_or_else(|| Status::internal("a node gave what is no answer"))?;
        Ok(OrderedAnswer { answer, outcome: came.outcome })
    }

    /// Has a command executed that changes nothing.
    pub(crate) async fn read(&self, command: &LogCommand<'_>) -> Result<LogAnswer, Status> {
        let stamp = self.clock.now().stamp;
        let head = Envelope { session: 0, request: 1, open_from: 1, stamp, read_only: true };
        let dst = Logs::destinations(self.map, command);
        let OrderedAnswer { answer, outcome } =
            self.order(&head, dst, command, RetryToken::Harmless).await?;
        match answer {
            // Repeating a read does no harm.
            LogAnswer::Not(why) => Err(not_done(why, outcome)),
            answer => Ok(answer),
        }
    }

    /// Has `read` begin, which asks for so many bytes of a log beside the last value, once there is room for its answer.
    /// `lane` is that of its connection.
    pub(crate) async fn read_values(
        &self,
        lane: Option<&ReadLane>,
        bytes_max: u32,
        read: impl Future<Output = Result<LogAnswer, Status>>,
    ) -> Result<LogAnswer, Status> {
        // No value is larger than a command.
        let asked = bytes_max as usize + self.payload_max;
        let size = |answer: &Result<LogAnswer, Status>| match answer {
            Ok(LogAnswer::Values { values, .. }) => Some(values.iter().map(|v| v.len()).sum()),
            _ => None,
        };
        self.read_budget.within(lane, asked, read, size).await
    }

    /// Has a command executed once that changes something.
    async fn write(
        &self,
        command: &LogCommand<'_>,
        session: Option<&proto::Session>,
    ) -> Result<LogAnswer, Status> {
        let dst = Logs::destinations(self.map, command);
        let begun = clock::now();
        let passed_ms = || clock::now().since(begun).0 / 1_000_000;
        let mut tries = CLOCK_TRIES;
        let mut lane = None;
        let OrderedAnswer { answer, outcome } = loop {
            let stamp = self.clock.now().stamp;
            let (head, again) = match session {
                Some(session) => {
                    let age_ms = session.age_ms.saturating_add(passed_ms());
                    let session = proto::Session { age_ms, ..*session };
                    (self.sessions.named(&session, stamp)?, RetryToken::Named)
                }
                None => {
                    let lane = lane.get_or_insert_with(|| self.sessions.lend());
                    (lane.envelope(stamp), RetryToken::Nameless)
                }
            };
            let ordered = self.order(&head, dst, command, again).await?;
            tries -= 1;
            match ordered.answer {
                // Its age is bounded, so if it had been executed that would be remembered: it was not, and the
                // clock of this host is far from ordered time.
                LogAnswer::Not(Rejection::Refused(
                    Refusal::Stale { now_ms } | Refusal::Ahead { now_ms },
                )) if tries > 0 && passed_ms() <= AGE_MAX_MS => {
                    _ = self.clock.refused(now_ms);
                }
                _ => break ordered,
            }
        };
        let mut body = Vec::new();
        command.encode(&mut body);
        let of = match &answer {
            LogAnswer::Appended { check, .. }
            | LogAnswer::Trimmed { check, .. }
            | LogAnswer::Deleted { check, .. } => Some(*check),
            LogAnswer::Not(
                Rejection::Full { check, .. }
                | Rejection::TooMany { check, .. }
                | Rejection::Unknown { check },
            ) => Some(*check),
            _ => None,
        };
        if of.is_some_and(|of| of != check(&body)) {
            return Err(Status::already_exists(
                "the session used this number for something else before; this request did nothing: \
                 give each new request a new number",
            ));
        }
        match answer {
            LogAnswer::Not(why) => Err(not_done(why, outcome)),
            answer => Ok(answer),
        }
    }

    async fn append(
        &self,
        additions: Vec<Addition<'_>>,
        session: Option<&proto::Session>,
    ) -> Result<Vec<u64>, Status> {
        let most = self.payload_max.saturating_sub(Envelope::BYTES + APPEND_BYTES);
        let each = additions.iter().map(|a| addition_bytes(a.log.len(), a.value.len()));
        let bytes: usize = each.sum();
        if bytes > most {
            return Err(invalid(format!(
                "the values and names have {bytes} bytes, more than the limit of {most} bytes of a \
                 request; nothing was appended"
            )));
        }
        let command = LogCommand::Append(additions);
        let LogAnswer::Appended { positions, .. } = self.write(&command, session).await? else {
            return Err(wrong_answer());
        };
        if let LogCommand::Append(additions) = &command {
            for (a, position) in additions.iter().zip(&positions) {
                let log = std::str::from_utf8(a.log).unwrap_or_default();
                self.follows.tell_appended(log, position + 1);
            }
        }
        Ok(positions)
    }

    /// Asks how far logs of one shard go, and tells the streams that wait for them.
    pub(crate) async fn look(self: Arc<Self>, logs: Vec<String>) -> LookAnswer {
        let mut heard = LookAnswer::Missing;
        for logs in logs.chunks(LIST_MAX) {
            let command = LogCommand::Extents(logs.iter().map(|log| log.as_bytes()).collect());
            // One that has no answer is asked again with the next look.
            let extents = match self.read(&command).await {
                Ok(LogAnswer::Extents(extents)) => extents,
                Err(why) if why.code() == Code::Unavailable => continue,
                // Its shard answers, so that streams are to wait: what is wrong with the look is nothing that another gateway
                // would mend.
                Ok(_) | Err(_) => Vec::new(),
            };
            for (log, extent) in logs.iter().zip(extents) {
                if self.follows.tell(log, extent) {
                    heard = LookAnswer::News;
                }
            }
            if heard == LookAnswer::Missing {
                heard = LookAnswer::NoNews;
            }
        }
        heard
    }
}

fn wrong_answer() -> Status {
    Status::internal("a node gave the answer to something else")
}

/// A log's name, checked.
fn named(log: &str) -> Result<&[u8], Status> {
    if (1..=NAME_BYTES_MAX).contains(&log.len()) {
        return Ok(log.as_bytes());
    }
    let bytes = log.len();
    Err(invalid(format!(
        "a log's name has 1 to {NAME_BYTES_MAX} bytes, this one has {bytes}; nothing happened"
    )))
}

/// How many there are, checked.
fn counted(what: &str, count: usize) -> Result<(), Status> {
    if (1..=LIST_MAX).contains(&count) {
        return Ok(());
    }
    Err(invalid(format!(
        "a request has 1 to {LIST_MAX} {what}, this one {count}; nothing happened"
    )))
}

/// The requested number, `usual` if it is zero, and no more than `most`.
fn asked(given: u32, usual: u32, most: u32) -> u32 {
    if given == 0 { usual } else { given.min(most) }
}

fn extent(e: Extent) -> proto::Extent {
    let Extent { first, next, bytes, incarnation } = e;
    proto::Extent { first, next, bytes, incarnation }
}

/// The service.
#[derive(Clone)]
pub(crate) struct LogGatewayService(pub(crate) Arc<LogGatewayShared>);

impl LogGatewayService {
    fn answer<T: AnswerBytes>(&self, connection: Option<RequestOrigin>, answer: T) -> Response<T> {
        answer_on(&self.0.unread, connection.as_ref(), answer)
    }
}

fn connection_of<T>(request: &Request<T>) -> Option<RequestOrigin> {
    request.extensions().get::<RequestOrigin>().cloned()
}

#[tonic::async_trait]
impl Log for LogGatewayService {
    async fn append(
        &self,
        request: Request<proto::AppendRequest>,
    ) -> Result<Response<proto::AppendResponse>, Status> {
        let timer = Method::Append.begin();
        let connection = connection_of(&request);
        let proto::AppendRequest { log, value, session } = request.into_inner();
        let additions = vec![Addition { log: named(&log)?, value: &value }];
        let positions = self.0.append(additions, session.as_ref()).await;
        let positions = self.0.done.note(timer, LogRequestKind::Append(1), positions)?;
        let position = positions.first().copied().ok_or_else(wrong_answer)?;
        Ok(self.answer(connection, proto::AppendResponse { position }))
    }

    async fn multi_append(
        &self,
        request: Request<proto::MultiAppendRequest>,
    ) -> Result<Response<proto::MultiAppendResponse>, Status> {
        let timer = Method::MultiAppend.begin();
        let connection = connection_of(&request);
        let proto::MultiAppendRequest { additions, session } = request.into_inner();
        counted("additions", additions.len())?;
        let one = |a: &'_ multi_append_request::Addition| named(&a.log).map(|_| ());
        additions.iter().try_for_each(one)?;
        let each = additions.iter().map(|a| Addition { log: a.log.as_bytes(), value: &a.value });
        let positions = self.0.append(each.collect(), session.as_ref()).await;
        let positions =
            self.0.done.note(timer, LogRequestKind::Append(additions.len()), positions)?;
        Ok(self.answer(connection, proto::MultiAppendResponse { positions }))
    }

    async fn read(
        &self,
        request: Request<proto::ReadRequest>,
    ) -> Result<Response<proto::ReadResponse>, Status> {
        let timer = Method::Read.begin();
        let connection = connection_of(&request);
        let proto::ReadRequest { log, from, max_values, max_bytes } = request.into_inner();
        let bytes_max = asked(max_bytes, USUAL_BYTES, READ_BYTES_MAX);
        let command = LogCommand::Read {
            log: named(&log)?,
            from,
            values_max: asked(max_values, USUAL_VALUES, READ_VALUES_MAX),
            bytes_max,
        };
        let lane = connection.as_ref().map(|connection| &connection.reads);
        let answer = self.0.read_values(lane, bytes_max, self.0.read(&command)).await;
        let answer = self.0.done.note(timer, LogRequestKind::Read, answer)?;
        let LogAnswer::Values { from, extent: e, values } = answer else {
            return Err(wrong_answer());
        };
        let values = values.into_iter().map(Bytes::from).collect();
        let answer = proto::ReadResponse { from, values, extent: Some(extent(e)) };
        Ok(self.answer(connection, answer))
    }

    async fn trim(
        &self,
        request: Request<proto::TrimRequest>,
    ) -> Result<Response<proto::TrimResponse>, Status> {
        let timer = Method::Trim.begin();
        let connection = connection_of(&request);
        let proto::TrimRequest { log, before, session } = request.into_inner();
        let command = LogCommand::Trim { log: named(&log)?, before };
        let answer = self.0.write(&command, session.as_ref()).await;
        let LogAnswer::Trimmed { extent: e, .. } =
            self.0.done.note(timer, LogRequestKind::Trim, answer)?
        else {
            return Err(wrong_answer());
        };
        Ok(self.answer(connection, proto::TrimResponse { extent: Some(extent(e)) }))
    }

    async fn delete(
        &self,
        request: Request<proto::DeleteRequest>,
    ) -> Result<Response<proto::DeleteResponse>, Status> {
        let timer = Method::Delete.begin();
        let connection = connection_of(&request);
        let proto::DeleteRequest { log, session } = request.into_inner();
        let command = LogCommand::Delete { log: named(&log)? };
        let answer = self.0.write(&command, session.as_ref()).await;
        let LogAnswer::Deleted { extent: e, .. } =
            self.0.done.note(timer, LogRequestKind::Delete, answer)?
        else {
            return Err(wrong_answer());
        };
        self.0.follows.tell(&log, None);
        Ok(self.answer(connection, proto::DeleteResponse { extent: Some(extent(e)) }))
    }

    type TailStream = CountedStream;

    async fn tail(
        &self,
        request: Request<proto::TailRequest>,
    ) -> Result<Response<Self::TailStream>, Status> {
        let connection = connection_of(&request);
        let proto::TailRequest { log, from, incarnation } = request.into_inner();
        named(&log)?;
        let place = Arc::clone(&self.0.tails).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "this node has {TAILS_MAX} streams open; ask another node"
            ))
        })?;
        let (to, stream) = ToTail::new(&self.0.unread, connection);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            shared.tail(&log, TailPosition { from, incarnation }, &to).await;
            drop(place);
        });
        Ok(Response::new(stream))
    }

    async fn info(
        &self,
        request: Request<proto::InfoRequest>,
    ) -> Result<Response<proto::InfoResponse>, Status> {
        let timer = Method::Info.begin();
        let connection = connection_of(&request);
        let proto::InfoRequest { logs } = request.into_inner();
        counted("logs", logs.len())?;
        let names = logs.iter().map(|log| named(log)).collect::<Result<_, _>>()?;
        let answer = self.0.read(&LogCommand::Extents(names)).await;
        let LogAnswer::Extents(extents) = self.0.done.note(timer, LogRequestKind::Read, answer)?
        else {
            return Err(wrong_answer());
        };
        let found = |e: Option<Extent>| info_response::Found { extent: e.map(extent) };
        let found = extents.into_iter().map(found).collect();
        Ok(self.answer(connection, proto::InfoResponse { found }))
    }

    async fn list(
        &self,
        request: Request<proto::ListRequest>,
    ) -> Result<Response<proto::ListResponse>, Status> {
        let timer = Method::List.begin();
        let connection = connection_of(&request);
        let proto::ListRequest { after, max_logs } = request.into_inner();
        if after.len() > NAME_BYTES_MAX {
            named(&after)?;
        }
        let most = asked(max_logs, USUAL_VALUES, LIST_MAX as u32) as u16;
        let command = LogCommand::List { after: after.as_bytes(), most };
        let answer = self.0.read(&command).await;
        let LogAnswer::Listed(logs) = self.0.done.note(timer, LogRequestKind::Read, answer)? else {
            return Err(wrong_answer());
        };
        let listed = |(log, e): (Vec<u8>, Extent)| list_response::Listed {
            log: String::from_utf8_lossy(&log).into_owned(),
            extent: Some(extent(e)),
        };
        let logs = logs.into_iter().map(listed).collect();
        Ok(self.answer(connection, proto::ListResponse { logs }))
    }
}
