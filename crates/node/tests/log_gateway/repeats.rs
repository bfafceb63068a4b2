//! Requests that are sent again after refusals, and streams that are opened again.

use super::*;
use amcast_log::proto::TailRequest;
use std::sync::Mutex;

#[test]
fn a_refusal_does_not_hide_an_earlier_sending_that_took_effect() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut client = server.client();
    server.local.lose_answers(1);
    server.local.fill_disks(3);
    assert_eq!(client.append("a", "x").unwrap(), 0, "once there is room");
    let mut hasty = server.client().with_patience(Duration::from_millis(300));
    server.local.lose_answers(1);
    server.local.fill_disks(u32::MAX);
    let failed = hasty.append("a", "y").unwrap_err();
    assert_eq!(failed.code, Code::DeadlineExceeded, "{failed}");
    assert!(failed.why.contains("an earlier sending may have taken effect"), "{failed}");
    let failed = hasty.append("a", "z").unwrap_err();
    assert_eq!(failed.code, Code::ResourceExhausted, "{failed}");
    assert!(!failed.why.contains("may have"), "it was sent once: {failed}");
    server.local.fill_disks(0);
    assert_eq!(read(&mut client, "a", 0).unwrap(), ["x", "y"]);
}

#[test]
fn what_the_nodes_refused_is_known_to_be_refused_also_where_the_first_answer_was_lost() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    let mut client = server.client();
    while client.append("a", vec![0; 100_000]).is_ok() {}
    server.local.lose_answers(1);
    let begun = Instant::now();
    let failed = client.append("a", vec![0; 100_000]).unwrap_err();
    assert_eq!(failed.code, Code::ResourceExhausted, "{failed}");
    assert!(failed.why.contains("nothing was appended"), "{failed}");
    assert!(begun.elapsed() < Duration::from_secs(3), "it is not repeated for nothing");
}

#[test]
fn a_read_that_fails_says_nothing_of_effects() {
    let _limit = amcast_test_policy::time_limit();
    let server = TestLogServer::start(None);
    server.client().append("a", "x").unwrap();
    server.local.lose_answers(u32::MAX);
    let mut hasty = server.client().with_patience(Duration::from_millis(200));
    let failed = hasty.info(&["a"]).unwrap_err();
    assert_eq!(failed.code, Code::Unavailable, "{failed}");
    assert!(!failed.why.contains("may have taken effect"), "{failed}");
}

/// Where a gateway listens now, if one does.
#[derive(Clone, Default)]
struct CurrentAddress(Arc<Mutex<Option<String>>>);

impl CurrentAddress {
    fn set(&self, server: Option<&TestLogServer>) {
        let address = server.map(|server| server.gateway.address().to_string());
        *self.0.lock().unwrap() = address;
    }

    /// A client that finds it.
    fn client(&self, patience: Duration) -> LogSession {
        let of = self.clone();
        let finds = move || of.0.lock().unwrap().clone().into_iter().collect();
        let first = self.0.lock().unwrap().clone().expect("there is one");
        let client = LogSession::new(vec![first], None).expect("an address");
        client.with_patience(patience).finding(finds)
    }
}

#[test]
fn a_stream_of_a_quiet_log_outlives_each_gateway_that_stops() {
    let _limit = amcast_test_policy::time_limit();
    let local = Arc::new(Local::new(SHARDS));
    let start = || TestLogServer::on(&local, None, GrowthSource::Nothing);
    let (current, mut serving) = (CurrentAddress::default(), start());
    current.set(Some(&serving));
    let patience = Duration::from_millis(500);
    let mut client = current.client(patience).with_steady_after(Duration::from_millis(600));
    let (to, given) = sync_channel(1);
    let stream = std::thread::spawn(move || {
        client.tail("a", 0, &mut |position, _| {
            to.send(position).unwrap();
            false
        })
    });
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(1000));
        let next = start();
        current.set(Some(&next));
        drop(std::mem::replace(&mut serving, next));
    }
    serving.client().append("a", "x").unwrap();
    assert_eq!(given.recv_timeout(Duration::from_secs(10)), Ok(0), "the stream continues");
    stream.join().unwrap().unwrap();
}

/// The first message of a stream from the end of log `a`.
fn first_message(
    server: &TestLogServer,
    incarnation: Option<u64>,
) -> amcast_log::proto::TailResponse {
    let Appender { runtime, mut client } = Appender::of(server);
    runtime.block_on(async {
        let asked = TailRequest { log: "a".into(), from: 1, incarnation };
        let mut stream = client.tail(asked).await.unwrap().into_inner();
        let first = tokio::time::timeout(Duration::from_secs(10), stream.message()).await;
        first.expect("it comes at once").unwrap().expect("a message")
    })
}

#[test]
fn a_stream_at_the_end_of_a_log_is_told_of_which_log_it_is_and_does_not_continue_on_another() {
    let _limit = amcast_test_policy::time_limit();
    let local = Arc::new(Local::new(SHARDS));
    let node = TestLogServer::on(&local, None, GrowthSource::Nothing);
    let at = node.gateway.address().to_string();
    let others = GrowthSource::Others(Arc::new(move || vec![at.clone()]));
    let passes = TestLogServer::on(&local, None, others);
    let mut client = node.client();
    client.append("a", "old").unwrap();
    let incarnation = client.info(&["a"]).unwrap()[0].unwrap().incarnation;
    for server in [&node, &passes] {
        // One that is opened again learns that it is served.
        for known in [None, Some(incarnation)] {
            let first = first_message(server, known);
            assert_eq!((first.from, first.values.len(), first.incarnation), (1, 0, incarnation));
        }
    }
    // The gateway goes, and meanwhile there is a new log of that name.
    let current = CurrentAddress::default();
    current.set(Some(&passes));
    let mut reader = current.client(Duration::from_secs(10));
    let stream = std::thread::spawn(move || reader.tail("a", 1, &mut |_, _| false));
    std::thread::sleep(Duration::from_millis(500));
    current.set(None);
    drop(passes);
    client.delete("a").unwrap();
    client.multi_append(several(&["a"; 5], "new")).unwrap();
    current.set(Some(&node));
    let failed = stream.join().unwrap().expect_err("that log is gone");
    assert_eq!(failed.code, Code::NotFound, "{failed}");
}
