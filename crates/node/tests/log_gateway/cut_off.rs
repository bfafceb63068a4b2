//! Streams of nodes that are cut off from the others.

use super::*;
use amcast_core::{GroupSet, Outcome};
use amcast_log::proto::{TailRequest, TailResponse};
use amcast_node::gateway::{
    Backend, BackendAnswers, BackendBusy, CommandFailure, FailureCause, OnBackendAnswer,
};
use std::sync::Mutex;
use tokio::runtime::Runtime;
use tonic::{Status, Streaming};

/// How long a stream waits here.
const PATIENCE: Duration = Duration::from_secs(2);

/// How much later than that it may end.
const LATE: Duration = Duration::from_secs(6);

/// How a node treats commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TestLink {
    Works,
    /// None is taken: the node knows that it reaches no other one.
    Refuses,
    /// None is answered.
    Silent,
}

/// The cluster, as a node uses it that may be cut off.
struct CutOffBackend {
    local: Arc<Local>,
    link: Mutex<TestLink>,
    unanswered: Mutex<Vec<OnBackendAnswer>>,
}

impl Backend for CutOffBackend {
    fn start(&self, _: Arc<dyn BackendAnswers>) {
        unreachable!("the log's gateway has no tokens");
    }

    fn submit(&self, _: GroupSet, _: &mut Vec<u8>, _: u64) -> Result<(), BackendBusy> {
        unreachable!("the log's gateway has no tokens");
    }

    fn ask(
        &self,
        dst: GroupSet,
        command: &mut Vec<u8>,
        done: OnBackendAnswer,
    ) -> Result<(), CommandFailure> {
        let link = *self.link.lock().unwrap();
        match link {
            TestLink::Works => self.local.ask(dst, command, done),
            TestLink::Refuses => {
                let (outcome, cause) = (Outcome::NotExecuted, FailureCause::Unavailable);
                Err(CommandFailure::new(outcome, cause, "no majority"))
            }
            TestLink::Silent => {
                self.unanswered.lock().unwrap().push(done);
                Ok(())
            }
        }
    }
}

/// A gateway of a node that may be cut off.
struct TestNodeGateway {
    node: Arc<CutOffBackend>,
    gateway: LogGateway,
}

impl TestNodeGateway {
    fn start(local: &Arc<Local>, hears: GrowthSource) -> Self {
        let (link, unanswered) = (Mutex::new(TestLink::Works), Mutex::default());
        let node = Arc::new(CutOffBackend { local: Arc::clone(local), link, unanswered });
        let mut config = TestLogServer::config(None, hears);
        config.stream_patience = PATIENCE;
        let backend = Arc::clone(&node) as Arc<dyn Backend>;
        let gateway = LogGateway::start(config, backend, Arc::new(AlwaysReady));
        Self { node, gateway: gateway.expect("a port is free") }
    }

    /// One of a process without a node, which passes on the streams of others.
    fn passing(local: &Arc<Local>, others: &[&Self]) -> Self {
        let at: Vec<_> = others.iter().map(|other| other.gateway.address().to_string()).collect();
        // The first one is asked first.
        Self::start(local, GrowthSource::Others(Arc::new(move || at.clone())))
    }

    fn cut_off(&self, link: TestLink) {
        *self.node.link.lock().unwrap() = link;
    }

    /// A stream of log `a` from position 1 on.
    async fn follow(&self) -> Streaming<TailResponse> {
        let endpoint = format!("http://{}", self.gateway.address());
        let endpoint = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
        let mut client = LogClient::new(endpoint.connect().await.unwrap());
        let asked = TailRequest { log: "a".into(), from: 1, incarnation: None };
        client.tail(asked).await.unwrap().into_inner()
    }

    /// The same, once it waits at the log's end.
    async fn wait_at_the_end(&self) -> Streaming<TailResponse> {
        let mut stream = self.follow().await;
        let first = tokio::time::timeout(LATE, stream.message()).await;
        let first = first.expect("it comes at once").unwrap().expect("a message");
        assert!(first.values.is_empty(), "there is one value, at 0");
        stream
    }
}

/// How a stream ends that gives nothing.
async fn end_of(stream: &mut Streaming<TailResponse>, within: Duration) -> Status {
    let ended = tokio::time::timeout(within, stream.message()).await;
    ended.expect("the stream ends").expect_err("there is no value for it")
}

/// A cluster with one value in log `a`.
fn cluster() -> (Arc<Local>, TestLogServer, Runtime) {
    let local = Arc::new(Local::new(SHARDS));
    let healthy = TestLogServer::on(&local, None, GrowthSource::Nothing);
    healthy.client().append("a", "x").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    (local, healthy, runtime)
}

/// That a stream ended for want of answers, and names its position.
fn assert_cut_off(ended: &Status) {
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    assert!(ended.message().contains("continue from position 1"), "{ended}");
}

#[test]
fn streams_of_a_node_that_is_cut_off_end_with_their_position() {
    let _limit = amcast_test_policy::time_limit();
    let (local, _healthy, runtime) = cluster();
    let node = || GrowthSource::Node(GrowthWatch::default());
    for link in [TestLink::Refuses, TestLink::Silent] {
        let gateways = [node(), GrowthSource::Nothing].map(|h| TestNodeGateway::start(&local, h));
        let other = TestNodeGateway::start(&local, node());
        runtime.block_on(async {
            for gateway in &gateways {
                let mut waits = gateway.wait_at_the_end().await;
                gateway.cut_off(link);
                let begun = Instant::now();
                let mut reads = gateway.follow().await;
                let mut works = other.wait_at_the_end().await;
                let within = PATIENCE + LATE;
                let (waits, reads) =
                    tokio::join!(end_of(&mut waits, within), end_of(&mut reads, within));
                assert_cut_off(&waits);
                assert_cut_off(&reads);
                assert!(begun.elapsed() >= PATIENCE, "{:?}", begun.elapsed());
                let waits = tokio::time::timeout(Duration::from_secs(1), works.message()).await;
                assert!(waits.is_err(), "its node has answers: {waits:?}");
            }
        });
    }
}

#[test]
fn a_stream_that_is_passed_on_turns_to_another_node_when_its_own_is_cut_off() {
    let _limit = amcast_test_policy::time_limit();
    for link in [TestLink::Refuses, TestLink::Silent] {
        let (local, healthy, runtime) = cluster();
        let nodes = [(); 2].map(|()| TestNodeGateway::start(&local, GrowthSource::Nothing));
        let passes = [(); 2].map(|()| TestNodeGateway::passing(&local, &nodes.each_ref()));
        let (waits, reads) = runtime.block_on(async {
            let waits = passes[0].wait_at_the_end().await;
            nodes[0].cut_off(link);
            (waits, passes[1].follow().await)
        });
        healthy.client().append("a", "y").unwrap();
        for mut stream in [waits, reads] {
            let given = runtime.block_on(async {
                loop {
                    let given = tokio::time::timeout(PATIENCE + LATE, stream.message()).await;
                    let given = given.expect("in time").expect("no error").expect("no end");
                    if !given.values.is_empty() {
                        return given;
                    }
                }
            });
            assert_eq!((given.from, given.values), (1, vec![Bytes::from("y")]));
        }
    }
}

#[test]
fn a_stream_that_is_passed_on_ends_when_all_nodes_are_cut_off() {
    let _limit = amcast_test_policy::time_limit();
    let (local, _healthy, runtime) = cluster();
    let nodes = [(); 3].map(|()| TestNodeGateway::start(&local, GrowthSource::Nothing));
    for link in [TestLink::Refuses, TestLink::Silent] {
        let passes = TestNodeGateway::passing(&local, &nodes.each_ref());
        let alone = TestNodeGateway::passing(&local, &[]);
        nodes.iter().chain([&passes, &alone]).for_each(|gateway| gateway.cut_off(link));
        runtime.block_on(async {
            let (mut passed, mut own) = (passes.follow().await, alone.follow().await);
            let own = end_of(&mut own, PATIENCE + LATE);
            let (passed, own) = tokio::join!(end_of(&mut passed, 2 * PATIENCE + LATE), own);
            assert_cut_off(&passed);
            assert_cut_off(&own);
        });
    }
}
