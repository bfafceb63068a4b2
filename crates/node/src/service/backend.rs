//! The services' backend on a real cluster, for the Redis and the log gateway: commands go out through a gateway of the
//! runtime.

use super::calls::CallStart;
use super::{CallBook, ClusterWatch, Reads};
use crate::command_gateway::{CommandGateway, GatewaySink, NoAnswer};
use crate::config::node_rank;
use crate::control::NodeStatus;
use crate::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, FailureCause, OnBackendAnswer,
};
use amcast_core::{ClusterShape, GroupSet, Outcome, ServiceAnswer};
use amcast_kv::budget::may_grow;
use amcast_kv::status::ServerStatus;
use amcast_log::command::{LogCommand, MARK};
use amcast_smr::parts::{Assembly, CommandPart};
use amcast_smr::{Envelope, SessionWrite};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Has commands ordered by the cluster.
pub struct ClusterBackend {
    gateway: Arc<CommandGateway>,
    watch: Arc<ClusterWatch>,
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    book: Option<Arc<CallBook>>,
    /// Of the node of this process, if there is one.
    reads: Option<LocalReads>,
}

/// The node of this process.
struct LocalReads {
    reads: Arc<Reads>,
    watch: Arc<ClusterWatch>,
    /// Whether it was a working member once. Before, it may have forgotten everything.
    ready: AtomicBool,
}

impl LocalReads {
    fn is_ready(&self) -> bool {
        let look = || {
            let rank = node_rank(&self.watch.node());
            let node = rank.and_then(|rank| self.watch.nodes().into_iter().nth(rank)).flatten();
            node.is_some_and(|node| node.is_member())
        };
        if !self.ready.load(Ordering::Relaxed) && look() {
            self.ready.store(true, Ordering::Relaxed);
        }
        self.ready.load(Ordering::Relaxed)
    }
}

impl ClusterBackend {
    /// A backend on `gateway`, which hears from `watch` which shards have lost their majority. Calls
    /// are recorded in `book`, if there is one.
    pub fn new(
        gateway: Arc<CommandGateway>,
        watch: Arc<ClusterWatch>,
        book: Option<CallBook>,
    ) -> Self {
        let asked = Arc::clone(&watch);
        gateway.watch(Box::new(move || without_majority(asked.cluster(), &asked.nodes())));
        Self { gateway, watch, answers: OnceLock::new(), book: book.map(Arc::new), reads: None }
    }

    /// Has reads that need no order answered by the node of this process, which `watch` watches.
    #[must_use]
    pub fn with_reads(self, reads: Option<Arc<Reads>>, watch: Arc<ClusterWatch>) -> Self {
        let here = |reads| LocalReads { reads, watch, ready: AtomicBool::new(false) };
        Self { reads: reads.map(here), ..self }
    }

    fn answers(&self) -> &Arc<dyn BackendAnswers> {
        self.answers.get().expect("a backend is started before its use")
    }

    /// Why what `grows` tells of is refused for want of room on the disks, if it is.
    fn refuses(&self, grows: impl FnOnce() -> bool) -> Option<CommandFailure> {
        let why = self.watch.refuses(grows)?;
        Some(CommandFailure::new(Outcome::NotExecuted, FailureCause::DiskFull, why))
    }

    /// The record of a message's command, if there is one.
    fn called(&self, command: Option<(Envelope, &[u8])>) -> Option<CallStart> {
        let (envelope, body) = command.filter(|_| self.book.is_some())?;
        CallStart::of(&envelope, body)
    }

    /// Hands a command in, unless there is no room for what it adds, and calls `taken` if it was taken.
    fn hand_command_in(
        &self,
        dst: GroupSet,
        command: &mut Vec<u8>,
        token: u64,
        taken: impl FnOnce(),
    ) -> Result<(), BackendBusy> {
        if let Some(failure) = self.refuses(|| takes_room(command)) {
            self.answers().fail(token, &failure);
            return Ok(());
        }
        let called = self.called(Envelope::decode(command));
        let submit = || self.gateway.submit(dst, command, token).inspect(|()| taken());
        self.hand_in(token, called, submit)
    }

    /// Hands a message in by `submit`, and records its command as called, if it has one.
    fn hand_in(
        &self,
        token: u64,
        called: Option<CallStart>,
        submit: impl FnOnce() -> Result<(), NoAnswer>,
    ) -> Result<(), BackendBusy> {
        let submitted = match self.book.as_ref().zip(called) {
            Some((book, called)) => book.call(token, called, submit),
            None => submit(),
        };
        match submitted {
            Ok(()) => Ok(()),
            Err(NoAnswer::Busy) => Err(BackendBusy),
            Err(why) => {
                self.answers().fail(token, &failure(why));
                Ok(())
            }
        }
    }
}

impl Backend for ClusterBackend {
    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(Arc::clone(&answers)).is_ok(), "a backend is started once");
        self.gateway.serve(Arc::new(ToClients { answers, book: self.book.clone() }));
    }

    fn submit(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let bytes = command.len();
        self.hand_command_in(dst, command, token, || self.watch.count(dst, bytes))
    }

    fn submit_own(
        &self,
        dst: GroupSet,
        command: &mut Vec<u8>,
        token: u64,
    ) -> Result<(), BackendBusy> {
        self.hand_command_in(dst, command, token, || {})
    }

    fn assemble(
        &self,
        dst: GroupSet,
        assembly: &mut Vec<u8>,
        command: &[u8],
        token: u64,
    ) -> Result<(), BackendBusy> {
        let last = Assembly::decode(assembly).map(|last| (last.envelope, command));
        if let Some(failure) = self.refuses(|| grows(last)) {
            self.answers().fail(token, &failure);
            return Ok(());
        }
        let called = self.called(last);
        let bytes = assembly.len();
        self.hand_in(token, called, || {
            self.gateway.submit(dst, assembly, token).inspect(|()| self.watch.count(dst, bytes))
        })
    }

    fn reads_apart(&self) -> bool {
        self.gateway.reads_apart()
    }

    fn read(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let called = self.called(Envelope::decode(command));
        self.hand_in(token, called, || self.gateway.read(dst, command, token))
    }

    /// Such reads are not recorded: a history is judged linearizable or not, which they are not.
    fn read_here(
        &self,
        dst: GroupSet,
        command: &[u8],
        written: &[SessionWrite],
        token: u64,
    ) -> bool {
        let Some(here) = &self.reads else { return false };
        let answers = Arc::clone(self.answers());
        if !here.is_ready() {
            let why = "this node has no state yet";
            let failure = CommandFailure::new(Outcome::NotExecuted, FailureCause::Busy, why);
            answers.fail(token, &failure);
            return true;
        }
        let done = move |outcome, bytes: Vec<u8>| {
            answers.answer(token, ServiceAnswer { outcome, bytes: bytes.into() });
        };
        here.reads.hand_in(dst, command, written, Box::new(done));
        true
    }

    fn flush(&self) {
        if let Some(book) = &self.book {
            // Before anyone sees what the calls do: this process may be killed when somebody has.
            book.flush();
        }
        self.gateway.flush();
    }

    /// Such commands are not recorded: the language of histories has none for logs.
    fn ask(
        &self,
        dst: GroupSet,
        command: &mut Vec<u8>,
        done: OnBackendAnswer,
    ) -> Result<(), CommandFailure> {
        if let Some(failure) = self.refuses(|| takes_room(command)) {
            return Err(failure);
        }
        let done = move |answer: Result<ServiceAnswer<'_>, NoAnswer>| done(answer.map_err(failure));
        // A client must expect its concurrent commands in any order.
        let is_read = Envelope::decode(command).is_some_and(|(envelope, _)| envelope.read_only);
        let bytes = command.len();
        let asked = match is_read {
            true => self.gateway.ask_read(dst, command, Box::new(done)),
            false => {
                let asked = self.gateway.ask(dst, command, Box::new(done));
                asked.inspect(|_| self.watch.count(dst, bytes))
            }
        };
        asked.map_err(failure)?;
        self.gateway.flush();
        Ok(())
    }
}

/// Whether a message may take more room: a command that does, or a part of a large one, which takes room in the logs
/// before anybody can tell what the whole command does.
fn takes_room(message: &[u8]) -> bool {
    grows(Envelope::decode(message)) || CommandPart::decode(message).is_some()
}

/// Whether a command may take more room: one of the log that appends, or one of the store that may grow what it holds.
fn grows(command: Option<(Envelope, &[u8])>) -> bool {
    command.is_some_and(|(envelope, body)| match body.starts_with(&MARK) {
        true => matches!(LogCommand::decode(body), Some(LogCommand::Append(_))),
        false => !envelope.read_only && may_grow(body),
    })
}

/// Brings answers from the cluster to the clients.
struct ToClients {
    answers: Arc<dyn BackendAnswers>,
    book: Option<Arc<CallBook>>,
}

impl GatewaySink for ToClients {
    fn answer(&self, token: u64, answer: Result<ServiceAnswer<'_>, NoAnswer>) {
        if let Some(book) = &self.book {
            book.answered(token, answer.as_ref().map_err(|why| *why));
        }
        match answer {
            Ok(answer) => self.answers.answer(token, answer),
            Err(why) => self.answers.fail(token, &failure(why)),
        }
    }

    fn awaits(&self, token: u64) -> bool {
        self.answers.awaits(token)
    }

    fn room(&self) {
        self.answers.room();
    }

    fn rest(&self) {
        if let Some(book) = &self.book {
            book.flush();
        }
    }
}

/// The shards of which fewer replicas than a quorum work, as far as the nodes say so.
pub fn without_majority(cluster: ClusterShape, nodes: &[Option<NodeStatus>]) -> GroupSet {
    let lost = |g: &amcast_core::Gid| {
        let replicas = nodes.iter().flatten().filter_map(|n| n.replicas.get(g.index()));
        replicas.filter(|r| r.fit).count() < cluster.quorum()
    };
    cluster.all_groups().iter().filter(lost).collect()
}

/// Why a command has no answer, for the gateways.
fn failure(why: NoAnswer) -> CommandFailure {
    let cause = match why {
        NoAnswer::Down(_) | NoAnswer::Closed => FailureCause::Unavailable,
        NoAnswer::Busy | NoAnswer::Unsent | NoAnswer::Refused => FailureCause::Busy,
        NoAnswer::Several | NoAnswer::NoShard(_) | NoAnswer::TooLarge(_) => {
            FailureCause::Unsupported
        }
        _ => FailureCause::Other,
    };
    CommandFailure::new(why.outcome(), cause, why.reason())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::redis::failure_answer;
    use amcast_core::Gid;
    use amcast_kv::{encode_args, encode_epoch};
    use amcast_log::Addition;
    use amcast_smr::{ClockReport, Stamp};

    const HEAD: Envelope = Envelope {
        session: 1,
        request: 2,
        open_from: 1,
        stamp: Stamp { wall_ms: 0, host_ms: 0 },
        read_only: false,
    };

    fn encoded(text: &str, read_only: bool) -> Vec<u8> {
        let mut command = Vec::new();
        Envelope { read_only, ..HEAD }.encode(&mut command);
        encode_epoch(0, &mut command);
        encode_args(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>(), &mut command);
        command
    }

    #[test]
    fn what_may_take_room_is_told_from_reads_and_deletes() {
        for text in ["SET k v", "INCR k", "RPUSH k v", "EXEC 0 1 3 SET k v", "SETRANGE k 9 v"] {
            assert!(takes_room(&encoded(text, false)), "{text}");
        }
        for text in
            ["DEL k", "UNLINK k", "LPOP k", "FLUSHALL", "EXPIRE k 1", "PERSIST k", "HDEL k f"]
        {
            assert!(!takes_room(&encoded(text, false)), "{text}");
        }
        assert!(!takes_room(&encoded("EXEC 0 1 2 DEL k", false)));
        assert!(!takes_room(&encoded("GET k", true)) && !takes_room(b""));
    }

    #[test]
    fn of_the_log_appends_alone_take_room() {
        let takes_room = |body: &LogCommand<'_>| {
            let mut command = Vec::new();
            HEAD.encode(&mut command);
            body.encode(&mut command);
            super::takes_room(&command)
        };
        assert!(takes_room(&LogCommand::Append(vec![Addition { log: b"a", value: b"v" }])));
        assert!(!takes_room(&LogCommand::Trim { log: b"a", before: 3 }));
        assert!(!takes_room(&LogCommand::Delete { log: b"a" }));
    }

    #[test]
    fn each_part_of_a_large_command_takes_room_whatever_is_in_it() {
        for bytes in [&b""[..], b"part", &encoded("DEL k", false)] {
            let mut part = Vec::new();
            CommandPart { envelope: HEAD, bytes }.encode(&mut part);
            assert!(takes_room(&part));
        }
    }

    #[test]
    fn what_keeps_a_cluster_going_is_served_where_there_is_little_room() {
        for text in [
            "AMCAST.TIDY",
            "AMCAST.PARTITIONS",
            "AMCAST.MOVE 0 1",
            "AMCAST.MOVED",
            "AMCAST.MAXMEMORY 1gb",
            "AMCAST.SPLIT 0 k 1",
            "AMCAST.MERGE 0 1",
        ] {
            assert!(!takes_room(&encoded(text, false)), "{text}");
        }
        assert!(!takes_room(&ClockReport(Stamp { wall_ms: 3, host_ms: 4 }).encode()));
    }

    #[test]
    fn only_what_surely_was_not_executed_may_be_sent_again_by_itself() {
        let all = [
            NoAnswer::Busy,
            NoAnswer::TooLarge(1),
            NoAnswer::NoShard(3),
            NoAnswer::Several,
            NoAnswer::Unsent,
            NoAnswer::Refused,
            NoAnswer::Down(Gid(2)),
            NoAnswer::Closed,
            NoAnswer::TimedOut,
            NoAnswer::Cut(Gid(2)),
            NoAnswer::Stopped,
            NoAnswer::AnswerTooLarge { outcome: Outcome::Executed, bytes: 2, most: 1 },
            NoAnswer::AnswerTooLarge { outcome: Outcome::NotExecuted, bytes: 2, most: 1 },
        ];
        for why in all {
            let ServiceAnswer { outcome, bytes } = failure_answer(&failure(why));
            let text = String::from_utf8(bytes.into_owned()).unwrap();
            let again = ["-TRYAGAIN ", "-CLUSTERDOWN "].iter().any(|w| text.starts_with(w));
            assert!(again || text.starts_with("-ERR "), "{text}");
            assert!(!again || outcome == Outcome::NotExecuted, "{text}");
            for other in Outcome::ALL {
                let words = format!("; {}\r\n", other.words());
                assert_eq!(text.ends_with(&words), other == outcome, "{text}");
            }
        }
        assert_eq!(
            *failure_answer(&failure(NoAnswer::Down(Gid(2)))).bytes,
            *b"-CLUSTERDOWN shard 2 has lost its majority of replicas; the command was not executed\r\n"
        );
    }
}
