//! The loop of a gateway.

use super::*;
use amcast_core::{Outcome, RawConfig};

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

/// The reports of a transport in its next round.
type ToReport = Arc<Mutex<Vec<(u64, CommandProgress<'static>)>>>;

/// A transport that notes the numbers of what it is given, and makes the reports that it was given.
#[derive(Default)]
struct SilentTransport {
    sent: Arc<Mutex<Vec<u64>>>,
    reports_losses: bool,
    reports: ToReport,
    incarnations: Arc<Mutex<SilentIncarnations>>,
    /// No node takes commands of it.
    is_shut_out: Arc<AtomicBool>,
}

/// The incarnations of a [`SilentTransport`].
#[derive(Default)]
struct SilentIncarnations {
    /// The present one.
    present: u32,
    /// How often the next one does not begin.
    refused: u32,
}

impl ClientTransport for SilentTransport {
    fn begin(&mut self, _now: Time) {}

    fn numbers(&self) -> CommandNumbers {
        CommandNumbers::of_incarnation(self.incarnations.lock().expect("nothing panicked").present)
    }

    fn begin_next_incarnation(&mut self, _now: Time) -> Result<(), GatewayError> {
        let mut incarnations = self.incarnations.lock().expect("nothing panicked");
        if incarnations.refused > 0 {
            incarnations.refused -= 1;
            return Err(GatewayError::NoNode);
        }
        incarnations.present += 1;
        Ok(())
    }

    fn round(&mut self, _now: Time, tell: client_transport::OnCommandOutcome<'_>) -> bool {
        let reports = std::mem::take(&mut *self.reports.lock().expect("nothing panicked"));
        reports.into_iter().for_each(|(seq, progress)| tell(seq, progress));
        false
    }

    fn room(&self, _dst: GroupSet, _bytes: usize) -> usize {
        if self.is_shut_out() { 0 } else { 100 }
    }

    fn is_shut_out(&self) -> bool {
        self.is_shut_out.load(Ordering::Acquire)
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

fn gateway_loop(transport: SilentTransport) -> (GatewayLoop, Arc<GatewayShared>) {
    let shared = Arc::new(GatewayShared::new(OverlayRequests::default()));
    let config = RawConfig { groups: 1, ..RawConfig::default() }.check(&[]).expect("it is sound");
    let overlay = PresentOverlay::first(&config);
    (GatewayLoop::new(Box::new(transport), Arc::clone(&shared), overlay), shared)
}

/// A read of a session.
pub(super) fn read_of(session: u64, request: u64) -> Vec<u8> {
    let stamp = amcast_smr::Stamp::default();
    let mut payload = Vec::new();
    Envelope { session, request, open_from: 1, stamp, read_only: true }.encode(&mut payload);
    payload
}

/// Hands in a read of a session.
fn hand_in_read(shared: &GatewayShared, session: u64, request: u64) {
    let mut payload = read_of(session, request);
    let asker = JobAsker::Once(Box::new(|_: Result<ServiceAnswer<'_>, NoAnswer>| {}));
    let since = clock::now();
    let request = JobRequest { dst: GroupSet::one(Gid(0)), is_read: false, since, asker };
    shared.jobs.hand_in(request, &mut payload).expect("there is room");
}

#[test]
fn where_all_nodes_refuse_the_gateway_only_what_was_never_sent_is_answered_at_once() {
    let _limit = amcast_test_policy::time_limit();
    let is_shut_out = Arc::<AtomicBool>::default();
    let transport =
        SilentTransport { is_shut_out: Arc::clone(&is_shut_out), ..SilentTransport::default() };
    let sent = Arc::clone(&transport.sent);
    let (mut work, shared) = gateway_loop(transport);
    let answers = Arc::<Mutex<Vec<(u64, NoAnswer)>>>::default();
    let hand_in = |number: u64| {
        let told = Arc::clone(&answers);
        let asker = JobAsker::Once(Box::new(move |answer: Result<ServiceAnswer<'_>, NoAnswer>| {
            told.lock().unwrap().push((number, answer.unwrap_err()));
        }));
        let since = clock::now();
        let request = JobRequest { dst: GroupSet::one(Gid(0)), is_read: false, since, asker };
        shared.jobs.hand_in(request, &mut read_of(1, number)).expect("there is room");
    };
    let mut round = || {
        work.next_check = Time::ZERO;
        work.round();
        std::mem::take(&mut *answers.lock().unwrap())
    };
    hand_in(1);
    assert_eq!(round(), []);
    is_shut_out.store(true, Ordering::Release);
    hand_in(2);
    // It is taken from the queue in the first round, behind the look at what waits.
    let told: Vec<(u64, NoAnswer)> = (0..2).flat_map(|_| round()).collect();
    assert_eq!(told, [(2, NoAnswer::Refused)]);
    assert_eq!(NoAnswer::Refused.outcome(), Outcome::NotExecuted);
    assert_eq!(sent.lock().unwrap().len(), 1, "the first one may be executed yet");
}

#[test]
fn commands_whose_answers_are_not_kept_are_sent_again_a_few_at_a_time_beside_others() {
    let _limit = amcast_test_policy::time_limit();
    let (sent, reports) = (Arc::<Mutex<Vec<u64>>>::default(), ToReport::default());
    let (to, out) = (Arc::clone(&reports), Arc::clone(&sent));
    let (mut work, shared) = gateway_loop(SilentTransport {
        sent: out,
        reports_losses: true,
        reports: to,
        ..SilentTransport::default()
    });
    let taken = || std::mem::take(&mut *sent.lock().unwrap());
    let answer = || CommandProgress::Answer(Ok(ServiceAnswer::borrowed(Outcome::Executed, b"")));
    (0..30).for_each(|n| hand_in_read(&shared, 1 + n % 10, 1 + n / 10));
    work.round();
    let first = taken();
    assert_eq!(first.len(), 30);
    let all_refused = first.iter().map(|seq| (*seq, CommandProgress::NotKept)).collect();
    *reports.lock().unwrap() = all_refused;
    work.round();
    let again = taken();
    assert_eq!(again.len(), 4, "a few");
    // One of another session does not wait, and one of a session with some before it does.
    hand_in_read(&shared, 77, 1);
    hand_in_read(&shared, 1, 4);
    work.round();
    let fresh = taken();
    assert_eq!(fresh.len(), 1);
    assert_eq!(work.sent.open[&fresh[0]].again, Vec::<u64>::new());
    // One of the four is not kept again, and the others are answered: the next ones of all are sent.
    let mut told = vec![(again[0], CommandProgress::NotKept)];
    told.extend(again[1..].iter().map(|seq| (*seq, answer())));
    *reports.lock().unwrap() = told;
    work.round();
    let mut under_way = taken();
    assert_eq!(under_way.len(), 4);
    let (mut rounds, mut last) = (0, 0);
    while !under_way.is_empty() {
        *reports.lock().unwrap() = under_way.drain(..).map(|seq| (seq, answer())).collect();
        work.round();
        under_way = taken();
        last = under_way.last().copied().unwrap_or(last);
        rounds += 1;
        assert!(under_way.len() <= 5 && rounds < 20);
    }
    assert!(work.deferred.is_empty());
    assert_eq!(work.sent.open.len(), 1, "only the one of the other session has no answer");
    assert!(work.sent.open.contains_key(&fresh[0]) && last > fresh[0]);
}

/// Clients that wait for nothing; the reasons that they were given.
#[derive(Default)]
struct GoneClients(Mutex<Vec<(u64, NoAnswer)>>);

impl GatewaySink for GoneClients {
    fn answer(&self, token: u64, answer: Result<ServiceAnswer<'_>, NoAnswer>) {
        self.0.lock().unwrap().push((token, answer.map(drop).expect_err("nothing was answered")));
    }

    fn awaits(&self, _token: u64) -> bool {
        false
    }

    fn room(&self) {}
}

#[test]
fn a_command_for_which_nobody_waits_is_not_sent_again() {
    let _limit = amcast_test_policy::time_limit();
    let (transport, sink) = (SilentTransport::default(), Arc::new(GoneClients::default()));
    let (sent, reports) = (Arc::clone(&transport.sent), Arc::clone(&transport.reports));
    let (mut work, shared) = gateway_loop(transport);
    shared.jobs.set_sink(Arc::clone(&sink) as Arc<dyn GatewaySink>);
    for token in 1..=3 {
        let mut payload = read_of(token, 1);
        let (asker, since) = (JobAsker::Sink(token), clock::now());
        let request = JobRequest { dst: GroupSet::one(Gid(0)), is_read: false, since, asker };
        shared.jobs.hand_in(request, &mut payload).expect("there is room");
    }
    work.round();
    let first = std::mem::take(&mut *sent.lock().unwrap());
    assert_eq!(first.len(), 3);
    *reports.lock().unwrap() = vec![(first[1], CommandProgress::NotKept)];
    work.round();
    assert_eq!(*sink.0.lock().unwrap(), [(2, NoAnswer::TimedOut)]);
    assert!(sent.lock().unwrap().is_empty() && work.deferred.is_empty());
    assert_eq!(work.sent.open.len(), 2);
}

#[test]
fn a_command_that_is_lost_does_not_overtake_one_of_its_session_that_was_not_kept() {
    let _limit = amcast_test_policy::time_limit();
    let (sent, reports) = (Arc::<Mutex<Vec<u64>>>::default(), ToReport::default());
    let (to, out) = (Arc::clone(&reports), Arc::clone(&sent));
    let (mut work, shared) = gateway_loop(SilentTransport {
        sent: out,
        reports_losses: true,
        reports: to,
        ..SilentTransport::default()
    });
    let taken = || std::mem::take(&mut *sent.lock().unwrap());
    (1..=6).for_each(|request| hand_in_read(&shared, 1, request));
    // Reads of the log are of no session, and wait for none.
    (0..8).for_each(|_| hand_in_read(&shared, 0, 1));
    work.round();
    let first = taken();
    let progress = |at: usize| match at {
        0 | 6..13 => CommandProgress::NotKept,
        _ => CommandProgress::Lost,
    };
    *reports.lock().unwrap() =
        first.iter().zip(0..).map(|(seq, at)| (*seq, progress(at))).collect();
    let mut order = Vec::new();
    for _ in 0..20 {
        work.round();
        let again = taken();
        let came_again = |seq: &u64| work.sent.first(*seq).expect("it has no answer");
        order.extend(again.iter().map(came_again));
        let answer = CommandProgress::Answer(Ok(ServiceAnswer::borrowed(Outcome::Executed, b"")));
        *reports.lock().unwrap() = again.iter().map(|seq| (*seq, answer.clone())).collect();
    }
    assert_eq!(order.len(), first.len());
    let of_session: Vec<u64> =
        order.iter().copied().filter(|seq| first[..6].contains(seq)).collect();
    assert_eq!(of_session, first[..6]);
    assert!(work.deferred.is_empty() && work.sent.open.is_empty());
}

/// How often a command without an answer is sent until nobody waits for it any more.
fn sendings(read_only: bool, reports_losses: bool) -> usize {
    let sent = Arc::<Mutex<Vec<u64>>>::default();
    let reports = ToReport::default();
    let transport = SilentTransport {
        sent: Arc::clone(&sent),
        reports_losses,
        reports,
        ..SilentTransport::default()
    };
    let (mut work, shared) = gateway_loop(transport);
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

/// A gateway that may send two more new commands, and its transport.
struct LastNumbers {
    work: GatewayLoop,
    shared: Arc<GatewayShared>,
    sent: Arc<Mutex<Vec<u64>>>,
    reports: ToReport,
    incarnations: Arc<Mutex<SilentIncarnations>>,
}

impl LastNumbers {
    fn begin() -> Self {
        let transport = SilentTransport { reports_losses: true, ..SilentTransport::default() };
        let (sent, reports) = (Arc::clone(&transport.sent), Arc::clone(&transport.reports));
        let incarnations = Arc::clone(&transport.incarnations);
        let (mut work, shared) = gateway_loop(transport);
        work.numbers.skip_to_last(2);
        Self { work, shared, sent, reports, incarnations }
    }

    /// A round in which the transport makes these reports; the numbers that were sent in it, and the incarnation.
    fn round(&mut self, reports: Vec<(u64, CommandProgress<'static>)>) -> (Vec<u64>, u32) {
        *self.reports.lock().unwrap() = reports;
        self.work.round();
        let sent = std::mem::take(&mut *self.sent.lock().unwrap());
        (sent, self.incarnations.lock().unwrap().present)
    }

    /// It is long since the numbers were used up, or since the next incarnation could not begin.
    fn wait_long(&mut self) {
        self.work.used_up.as_mut().expect("they are used up").at = Time::ZERO;
    }
}

#[test]
fn a_gateway_whose_numbers_are_used_up_begins_its_next_incarnation_when_nothing_is_on_its_way() {
    let _limit = amcast_test_policy::time_limit();
    let mut gateway = LastNumbers::begin();
    (1..=3).for_each(|session| hand_in_read(&gateway.shared, session, 1));
    let (last, _) = gateway.round(vec![]);
    assert_eq!(last.len(), 2, "the third one has no number");
    assert!(last[1] < 1 << 32);
    // One of the two is lost: it is sent again, and nothing else is.
    let (again, _) = gateway.round(vec![(last[0], CommandProgress::Lost)]);
    assert_eq!(again, [last[1] + 1]);
    let answer = || CommandProgress::Answer(Ok(ServiceAnswer::borrowed(Outcome::Executed, b"")));
    assert_eq!(gateway.round(vec![(again[0], answer())]), (vec![], 0), "one is on its way");
    // The next incarnation cannot begin at first, and is not tried again at once.
    gateway.incarnations.lock().unwrap().refused = 1;
    assert_eq!(gateway.round(vec![(last[1], answer())]), (vec![], 0));
    assert_eq!(gateway.round(vec![]), (vec![], 0));
    gateway.wait_long();
    assert_eq!(gateway.round(vec![]), (vec![(1 << 32) + 1], 1));
}

#[test]
fn a_command_that_has_no_answer_for_long_does_not_keep_the_next_incarnation_from_beginning() {
    let _limit = amcast_test_policy::time_limit();
    let mut gateway = LastNumbers::begin();
    (1..=3).for_each(|session| hand_in_read(&gateway.shared, session, 1));
    let (last, _) = gateway.round(vec![]);
    assert_eq!((last.len(), gateway.round(vec![])), (2, (vec![], 0)));
    gateway.wait_long();
    // First those that were on their way, in their order, then the new one.
    let (mut sent, incarnation) = gateway.round(vec![]);
    sent.extend(gateway.round(vec![]).0);
    assert_eq!((sent, incarnation), ((1..=3).map(|n| (1 << 32) + n).collect(), 1));
    let first = |seq: u64| gateway.work.sent.first((1 << 32) + seq);
    assert_eq!([1, 2, 3].map(first), [Some(last[0]), Some(last[1]), Some((1 << 32) + 3)]);
}
