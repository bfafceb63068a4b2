//! A backend that counts the requests of a gateway, and fails or withholds some.

use super::SHARDS;
use amcast_core::{GroupSet, Outcome, ServiceAnswer};
use amcast_kv::Partitions;
use amcast_kv::client::StoreServer;
use amcast_node::gateway::redis::{self, RedisGateway};
use amcast_node::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, FailureCause, LocalBackend,
    OnBackendAnswer,
};
use amcast_smr::{Envelope, SessionWrite};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// How the node of this process answers reads from its executed state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    /// There is no such node.
    Absent,
    /// It has executed nothing.
    Behind,
    /// It answers no read.
    Stalled,
}

/// A command that is not executed yet.
type WithheldCommand = (GroupSet, Vec<u8>, u64);

/// One gateway's way to a store that gateways share.
pub(super) struct Observed {
    store: Arc<LocalBackend>,
    answers: OnceLock<Arc<dyn BackendAnswers>>,
    node: NodeState,
    reads_apart: bool,
    fails_reads: AtomicBool,
    withholds: AtomicBool,
    withheld: Mutex<Option<WithheldCommand>>,
    writes: AtomicUsize,
    ordered_reads: AtomicUsize,
    unordered_reads: AtomicUsize,
}

/// Requests that were handed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RequestCounts {
    pub(super) writes: usize,
    pub(super) ordered_reads: usize,
    pub(super) unordered_reads: usize,
}

impl Observed {
    pub(super) fn new(store: &Arc<LocalBackend>, node: NodeState, reads_apart: bool) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            answers: OnceLock::new(),
            node,
            reads_apart,
            fails_reads: false.into(),
            withholds: false.into(),
            withheld: Mutex::default(),
            writes: 0.into(),
            ordered_reads: 0.into(),
            unordered_reads: 0.into(),
        })
    }

    /// A gateway over it, whose sessions begin with this one. No replica tells it of changes.
    pub(super) fn serve(self: &Arc<Self>, first_session: u64) -> RedisGateway {
        let map = Partitions::by_slot(SHARDS).into();
        let server = StoreServer::new(map, 100, 0, None, self.store.clone());
        let config = redis::RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), first_session);
        redis::start(config, self.clone(), Arc::new(server)).expect("a free port")
    }

    pub(super) fn counts(&self) -> RequestCounts {
        let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        RequestCounts {
            writes: count(&self.writes),
            ordered_reads: count(&self.ordered_reads),
            unordered_reads: count(&self.unordered_reads),
        }
    }

    /// Reads have no answer from now on.
    pub(super) fn fail_reads(&self) {
        self.fails_reads.store(true, Ordering::SeqCst);
    }

    /// The next command is executed when it is released.
    pub(super) fn withhold_next(&self) {
        self.withholds.store(true, Ordering::SeqCst);
    }

    pub(super) fn release(&self) {
        let withheld = self.withheld.lock().unwrap().take();
        let (dst, mut command, token) = withheld.expect("a command was withheld");
        self.execute(dst, &mut command, token);
    }

    fn sink(&self) -> Arc<dyn BackendAnswers> {
        self.answers.get().expect("a backend is started before it is used").clone()
    }

    fn execute(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) {
        let answers = self.sink();
        let done = move |answer: Result<ServiceAnswer<'_>, CommandFailure>| match answer {
            Ok(answer) => answers.answer(token, answer),
            Err(failure) => answers.fail(token, &failure),
        };
        self.store.ask(dst, command, Box::new(done)).expect("it takes all commands");
    }

    /// Executes a read, or says that nobody knows what became of it.
    fn execute_read(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) {
        if self.fails_reads.load(Ordering::SeqCst) {
            let (outcome, cause) = (Outcome::Unknown, FailureCause::Other);
            let failure = CommandFailure::new(outcome, cause, "no answer came for 15 s");
            return self.sink().fail(token, &failure);
        }
        self.execute(dst, command, token);
    }
}

impl Backend for Observed {
    fn start(&self, answers: Arc<dyn BackendAnswers>) {
        assert!(self.answers.set(answers).is_ok(), "a backend is started once");
    }

    fn submit(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        let (envelope, _) = Envelope::decode(command).expect("an envelope");
        if self.withholds.swap(false, Ordering::SeqCst) {
            *self.withheld.lock().unwrap() = Some((dst, command.clone(), token));
        } else if envelope.read_only {
            self.ordered_reads.fetch_add(1, Ordering::SeqCst);
            self.execute_read(dst, command, token);
        } else {
            self.writes.fetch_add(1, Ordering::SeqCst);
            self.execute(dst, command, token);
        }
        Ok(())
    }

    fn reads_apart(&self) -> bool {
        self.reads_apart
    }

    fn read(&self, dst: GroupSet, command: &mut Vec<u8>, token: u64) -> Result<(), BackendBusy> {
        self.unordered_reads.fetch_add(1, Ordering::SeqCst);
        self.execute_read(dst, command, token);
        Ok(())
    }

    fn read_here(&self, _: GroupSet, _: &[u8], _: &[SessionWrite], token: u64) -> bool {
        if self.node == NodeState::Behind {
            let none = ServiceAnswer::borrowed(Outcome::Executed, b":0\r\n");
            self.sink().answer(token, none);
        }
        self.node != NodeState::Absent
    }

    fn ask(&self, _: GroupSet, _: &mut Vec<u8>, _: OnBackendAnswer) -> Result<(), CommandFailure> {
        unreachable!("the Redis gateway has tokens");
    }
}
