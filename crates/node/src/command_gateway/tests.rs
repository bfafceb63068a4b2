//! The loop of a gateway.

use super::*;

fn open(sent_at: Time) -> SentJob {
    let (dst, payload) = (GroupSet::one(Gid(0)), Arc::default());
    let job = GatewayJob { dst, payload, is_read: false, since: sent_at, asker: JobAsker::Sink(1) };
    let (retry_at, retry_after) = (sent_at + RETRY_FIRST, RETRY_FIRST);
    SentJob { job, sent_at, moved_at: sent_at, again: Vec::new(), retry_at, retry_after }
}

#[test]
fn an_answer_that_comes_in_pieces_is_neither_late_nor_asked_for_again() {
    let at = |ms| Time::ZERO + Span::millis(ms);
    let mut sent = SentJobs::default();
    sent.open.insert(1, open(at(0)));
    sent.open.insert(2, open(at(400)));
    assert_eq!(sent.late_since(at(9)), None);
    assert_eq!(sent.late_since(at(10)), Some(at(0)));
    sent.came_part(1, at(405));
    assert_eq!(sent.late_since(at(409)), None);
    assert_eq!(sent.late_since(at(410)), Some(at(400)), "the other one is");
    assert_eq!(sent.open[&1].retry_at, at(405) + RETRY_FIRST);
    // Of a message that carried the first job again, too.
    sent.alias.insert(7, 1);
    sent.came_part(7, at(900));
    assert_eq!(sent.open[&1].moved_at, at(900));
    assert_eq!(sent.open[&2].moved_at, at(400));
}

/// A transport that notes the numbers of what it is given, and answers nothing.
struct SilentTransport {
    sent: Arc<Mutex<Vec<u64>>>,
    reports_losses: bool,
}

impl ClientTransport for SilentTransport {
    fn begin(&mut self, _now: Time) {}

    fn round(&mut self, _now: Time, _tell: client_transport::OnCommandOutcome<'_>) -> bool {
        false
    }

    fn room(&self, _dst: GroupSet, _bytes: usize) -> usize {
        100
    }

    fn reports_losses(&self) -> bool {
        self.reports_losses
    }

    fn send(&mut self, _now: Time, command: TransportCommand<'_>) {
        self.sent.lock().expect("nothing panicked").push(command.seq);
    }

    fn forget(&mut self, _seq: u64) {}

    fn flush(&mut self, _now: Time) {}

    fn rest(&mut self) {}

    fn announce(&mut self) {}

    fn stay(&mut self) {}

    fn is_pressing(&self, _now: Time) -> bool {
        false
    }

    fn sleep(&mut self, _now: Time, _at_most: Span) {}
}

/// How often a command without an answer is sent until nobody waits for it any more.
fn sendings(read_only: bool, reports_losses: bool) -> usize {
    let sent = Arc::<Mutex<Vec<u64>>>::default();
    let transport = SilentTransport { sent: Arc::clone(&sent), reports_losses };
    let shared = Arc::new(GatewayShared {
        stop: AtomicBool::new(false),
        jobs: JobTable::new(JobBounds::USUAL),
        health: Mutex::default(),
    });
    let overlay = Overlay::new(&[-1], 1).expect("a tree");
    let mut work = GatewayLoop::new(Box::new(transport), 0, Arc::clone(&shared), overlay);
    let stamp = amcast_smr::Stamp::default();
    let head = Envelope { session: 1, request: 1, open_from: 1, stamp, read_only };
    let mut payload = Vec::new();
    head.encode(&mut payload);
    let answered = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&answered);
    let done = move |answer: Result<ServiceAnswer<'_>, NoAnswer>| {
        assert_eq!(answer.map(drop), Err(NoAnswer::TimedOut));
        ends.store(true, Ordering::Relaxed);
    };
    let begun = Time::ZERO + Span::secs(100);
    let asker = JobAsker::Once(Box::new(done));
    let request = JobRequest { dst: GroupSet::one(Gid(0)), is_read: false, since: begun, asker };
    shared.jobs.hand_in(request, &mut payload).expect("there is room");
    work.send(begun);
    for ms in (0..20_000).step_by(20) {
        work.judge(begun + Span::millis(ms));
    }
    assert!(answered.load(Ordering::Relaxed));
    sent.lock().expect("nothing panicked").len()
}

#[test]
fn a_read_that_is_only_slow_is_hardly_sent_again() {
    let _limit = amcast_test_policy::time_limit();
    // After 5 s.
    assert_eq!(sendings(true, true), 2);
    // After 0.5 s, 1.5 s, 3.5 s and 7.5 s.
    assert_eq!(sendings(false, true), 5);
    assert_eq!(sendings(true, false), 5, "the first one may be lost");
}
