//! The turns in which passwords of clients that are not known are compared.
//!
//! All such clients of a gateway together can try a bounded number of wrong passwords a second, however many
//! connections they open: each comparison takes a token of a bucket, and a right password gives it back, so that any
//! number of clients that know it are let in at once. While the bucket is empty comparisons wait, of right and wrong
//! passwords alike: an answer that came at once would tell that the password is right. Hosts take turns, so a host that
//! tries passwords without end has only its own clients wait long, and where too many wait, one of the host that has
//! most is refused.
//!
//! A host of which a client has given the right password is known from then on, and every second turn is for known hosts.
//! Where too many wait, none is refused of a known host that has no more than an eighth of them, unless known hosts have
//! more than half: so thousands of hosts that try passwords keep out none of those that clients usually come from, nor these
//! all the others.

use amcast_kv::client::lock;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// How fast passwords may be tried, and how many may wait to be.
#[derive(Clone, Copy)]
pub(crate) struct LoginPace {
    /// Wrong passwords a second.
    pub(crate) per_second: u32,
    /// Those that may be tried at once after a rest.
    pub(crate) burst: u32,
    /// Comparisons that may wait.
    pub(crate) waiting_max: usize,
}

/// Tokens that come back at an even pace, up to a number.
struct TokenBucket {
    every: Duration,
    burst: u32,
    /// When all tokens are there again.
    full_at: Instant,
}

impl TokenBucket {
    /// When there is a token, if none is taken meanwhile.
    fn ready_at(&self) -> Instant {
        let before = self.every * (self.burst - 1);
        self.full_at.checked_sub(before).unwrap_or(self.full_at)
    }

    /// Takes a token, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        let is_there = self.ready_at() <= now;
        if is_there {
            self.full_at = self.full_at.max(now) + self.every;
        }
        is_there
    }

    /// A token that was taken comes back.
    fn give_back(&mut self) {
        self.full_at = self.full_at.checked_sub(self.every).unwrap_or(self.full_at);
    }
}

/// A comparison that waits.
struct WaitingLogin {
    number: u64,
    waker: Waker,
}

/// The comparisons of one host that wait, the oldest in front.
struct HostLine {
    host: IpAddr,
    waiting: VecDeque<WaitingLogin>,
}

/// Hosts that are known at a time: one more has the one forgotten whose last right password is the oldest.
const KNOWN_HOSTS_MAX: usize = 1024;

/// Hosts of which clients have given the right password.
#[derive(Default)]
struct KnownHosts {
    /// When each did so last, counted in right passwords.
    last_right: BTreeMap<IpAddr, u64>,
    count: u64,
}

impl KnownHosts {
    fn has(&self, host: IpAddr) -> bool {
        self.last_right.contains_key(&host)
    }

    fn note(&mut self, host: IpAddr) {
        self.count += 1;
        if !self.has(host) && self.last_right.len() >= KNOWN_HOSTS_MAX {
            let oldest = self.last_right.iter().min_by_key(|(_, last)| **last);
            if let Some(oldest) = oldest.map(|(host, _)| *host) {
                self.last_right.remove(&oldest);
            }
        }
        self.last_right.insert(host, self.count);
    }
}

/// Hosts that take turns, the one that comes next in front; each of them has one that waits.
type HostTurns = VecDeque<HostLine>;

/// The state of all turns.
struct LoginLine {
    bucket: TokenBucket,
    waiting_max: usize,
    last: u64,
    known: KnownHosts,
    /// Those that are not known, and those that are.
    hosts: [HostTurns; 2],
    /// Which of both come next, where both wait.
    preferred: usize,
}

/// The answer to one that asks for its turn.
#[derive(PartialEq, Eq, Debug)]
enum TurnAnswer {
    Now,
    /// Others come first; it is woken.
    Behind,
    /// It comes next, when there is a token: then.
    At(Instant),
    /// Too many wait.
    Refused,
}

impl LoginLine {
    fn new(bucket: TokenBucket, waiting_max: usize) -> Self {
        let (known, hosts) = (KnownHosts::default(), Default::default());
        Self { bucket, waiting_max, last: 0, known, hosts, preferred: 1 }
    }

    /// Which hosts come next.
    fn next_hosts(&self) -> usize {
        match self.hosts[self.preferred].is_empty() {
            true => 1 - self.preferred,
            false => self.preferred,
        }
    }

    fn next(&self) -> Option<&WaitingLogin> {
        self.hosts[self.next_hosts()].front().and_then(|line| line.waiting.front())
    }

    fn lines(&mut self) -> impl Iterator<Item = &mut HostLine> {
        self.hosts.iter_mut().flatten()
    }

    /// Forgets hosts of which nobody waits.
    fn sweep(&mut self) {
        self.hosts.iter_mut().for_each(|hosts| hosts.retain(|line| !line.waiting.is_empty()));
    }

    fn wake_next(&self) {
        if let Some(next) = self.next() {
            next.waker.wake_by_ref();
        }
    }

    /// Takes the next one out; its host goes behind the others.
    fn leave_next(&mut self) {
        let next = self.next_hosts();
        let hosts = &mut self.hosts[next];
        let Some(mut line) = hosts.pop_front() else { return };
        line.waiting.pop_front();
        if !line.waiting.is_empty() {
            hosts.push_back(line);
        }
        self.preferred = 1 - next;
        self.wake_next();
    }

    /// One gives up its turn, if it has not had it.
    fn leave(&mut self, number: u64) {
        let was_next = self.next().is_some_and(|next| next.number == number);
        self.lines().for_each(|line| line.waiting.retain(|one| one.number != number));
        self.sweep();
        if was_next {
            self.wake_next();
        }
    }

    /// A client of this host gave the right password: those of it that wait have the turns of known hosts.
    fn note_known(&mut self, host: IpAddr) {
        self.known.note(host);
        let [unknown, known] = &mut self.hosts;
        let at = unknown.iter().position(|line| line.host == host);
        let Some(mut line) = at.and_then(|at| unknown.remove(at)) else { return };
        match known.iter_mut().find(|line| line.host == host) {
            Some(old) => old.waiting.append(&mut line.waiting),
            None => known.push_back(line),
        }
    }

    /// Makes room for one more of `host`: the newest of the host that has most is refused, if need be of a known one that
    /// has few. False if that is this one.
    fn make_room(&mut self, host: IpAddr) -> bool {
        let (waiting_max, is_known) = (self.waiting_max, self.known.has(host));
        if self.lines().map(|line| line.waiting.len()).sum::<usize>() < waiting_max {
            return true;
        }
        let known_waiting: usize = self.hosts[1].iter().map(|line| line.waiting.len()).sum();
        let is_exempt = known_waiting <= waiting_max / 2;
        let rank = |hosts: usize, at: IpAddr, waiting: usize| {
            let is_own = at == host;
            let with_newcomer = waiting + usize::from(is_own);
            let may_be_refused = hosts == 0 || !is_exempt || with_newcomer > waiting_max / 8;
            (may_be_refused, with_newcomer, is_own)
        };
        let own = rank(usize::from(is_known), host, 0);
        let all = self.hosts.iter_mut().enumerate();
        let lines = all.flat_map(|(known, hosts)| hosts.iter_mut().map(move |line| (known, line)));
        let most = lines.max_by_key(|(known, line)| rank(*known, line.host, line.waiting.len()));
        let Some((known, line)) = most else { return false };
        let is_own = line.host == host || rank(known, line.host, line.waiting.len()) < own;
        if is_own {
            return false;
        }
        if let Some(refused) = line.waiting.pop_back() {
            refused.waker.wake();
        }
        self.sweep();
        // It may have been the one that came next.
        self.wake_next();
        true
    }

    /// Puts one behind the others of its host; its number.
    fn enter(&mut self, host: IpAddr, waker: &Waker) -> u64 {
        self.last += 1;
        let waiting = WaitingLogin { number: self.last, waker: waker.clone() };
        let hosts = &mut self.hosts[usize::from(self.known.has(host))];
        match hosts.iter_mut().find(|line| line.host == host) {
            Some(line) => line.waiting.push_back(waiting),
            None => hosts.push_back(HostLine { host, waiting: [waiting].into() }),
        }
        self.last
    }

    /// The first question for a turn: `number` is set where it waits.
    fn begin(
        &mut self,
        host: IpAddr,
        number: &mut Option<u64>,
        now: Instant,
        waker: &Waker,
    ) -> TurnAnswer {
        if self.next().is_none() && self.bucket.take(now) {
            return TurnAnswer::Now;
        }
        if !self.make_room(host) {
            return TurnAnswer::Refused;
        }
        let entered = self.enter(host, waker);
        *number = Some(entered);
        self.ask(entered, now, waker)
    }

    /// A further question of one that waits.
    fn ask(&mut self, number: u64, now: Instant, waker: &Waker) -> TurnAnswer {
        let mut all = self.lines().flat_map(|line| &mut line.waiting);
        let asks = all.find(|one| one.number == number);
        if asks.map(|asks| asks.waker.clone_from(waker)).is_none() {
            return TurnAnswer::Refused;
        }
        drop(all);
        if self.next().is_none_or(|next| next.number != number) {
            return TurnAnswer::Behind;
        }
        if !self.bucket.take(now) {
            return TurnAnswer::At(self.bucket.ready_at());
        }
        self.leave_next();
        TurnAnswer::Now
    }
}

/// The turns of a gateway.
pub(crate) struct LoginTurns(Mutex<LoginLine>);

impl LoginTurns {
    /// Nobody waits, and all tokens are there.
    pub(crate) fn new(pace: LoginPace) -> Arc<Self> {
        let LoginPace { per_second, burst, waiting_max } = pace;
        let every = Duration::from_secs(1) / per_second;
        let bucket = TokenBucket { every, burst, full_at: Instant::now() };
        Arc::new(Self(Mutex::new(LoginLine::new(bucket, waiting_max))))
    }

    /// Whether a client of this host has given the right password.
    pub(crate) fn knows(&self, host: IpAddr) -> bool {
        lock(&self.0).known.has(host)
    }

    /// Waits for the turn of a client of this host.
    pub(crate) fn turn(self: &Arc<Self>, host: IpAddr) -> LoginTurn {
        LoginTurn { turns: Arc::clone(self), host, number: None, timer: None }
    }
}

/// Too many comparisons wait.
#[derive(Debug)]
pub(crate) struct TooManyLogins;

/// One password of a client of this host may be compared.
pub(crate) struct LoginPermit(Arc<LoginTurns>, IpAddr);

impl LoginPermit {
    /// The right password was given: its host is known from now on.
    pub(crate) fn was_right(self) {
        lock(&self.0.0).note_known(self.1);
        self.compared_nothing();
    }

    /// No password was compared.
    pub(crate) fn compared_nothing(self) {
        let mut line = lock(&self.0.0);
        line.bucket.give_back();
        line.wake_next();
    }
}

/// Waits until a password may be compared. One that is dropped gives up its turn.
pub(crate) struct LoginTurn {
    turns: Arc<LoginTurns>,
    host: IpAddr,
    /// Its number, while it waits among others.
    number: Option<u64>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Future for LoginTurn {
    type Output = Result<LoginPermit, TooManyLogins>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let (now, waker) = (Instant::now(), cx.waker());
            let mut line = lock(&this.turns.0);
            let answer = match this.number {
                None => line.begin(this.host, &mut this.number, now, waker),
                Some(number) => line.ask(number, now, waker),
            };
            drop(line);
            let at = match answer {
                TurnAnswer::At(at) => at,
                TurnAnswer::Behind => return Poll::Pending,
                TurnAnswer::Now => {
                    this.number = None;
                    return Poll::Ready(Ok(LoginPermit(Arc::clone(&this.turns), this.host)));
                }
                TurnAnswer::Refused => {
                    this.number = None;
                    return Poll::Ready(Err(TooManyLogins));
                }
            };
            let timer = this.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
            timer.as_mut().reset(at);
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for LoginTurn {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&self.turns.0).leave(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(10);

    /// A line with three tokens, a hundred a second, where four may wait.
    fn line(now: Instant) -> LoginLine {
        let bucket = TokenBucket { every: EVERY, burst: 3, full_at: now };
        LoginLine::new(bucket, 4)
    }

    fn host(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// A first question; with the number, where it waits.
    fn begin(line: &mut LoginLine, last: u8, now: Instant) -> (TurnAnswer, u64) {
        let mut number = None;
        let answer = line.begin(host(last), &mut number, now, Waker::noop());
        (answer, number.unwrap_or(0))
    }

    #[test]
    fn wrong_passwords_have_a_bounded_pace_and_right_ones_cost_nothing() {
        let start = Instant::now();
        let mut line = line(start);
        for _ in 0..100 {
            assert_eq!(begin(&mut line, 1, start).0, TurnAnswer::Now);
            line.bucket.give_back();
        }
        for _ in 0..3 {
            assert_eq!(begin(&mut line, 1, start).0, TurnAnswer::Now);
        }
        let (answer, first) = begin(&mut line, 1, start);
        assert_eq!(answer, TurnAnswer::At(start + EVERY), "a right one would wait as long");
        let (answer, second) = begin(&mut line, 1, start);
        assert_eq!(answer, TurnAnswer::Behind);
        let ask = |line: &mut LoginLine, number, at| line.ask(number, at, Waker::noop());
        assert_eq!(ask(&mut line, first, start + EVERY / 2), TurnAnswer::At(start + EVERY));
        assert_eq!(ask(&mut line, first, start + EVERY), TurnAnswer::Now);
        assert_eq!(ask(&mut line, second, start + EVERY), TurnAnswer::At(start + 2 * EVERY));
        // In a long time no more come back than there were.
        let later = start + 100 * EVERY;
        assert_eq!(ask(&mut line, second, later), TurnAnswer::Now);
        let compared = (0..5).filter(|_| begin(&mut line, 1, later).0 == TurnAnswer::Now).count();
        assert_eq!(compared, 2);
    }

    #[test]
    fn hosts_take_turns_and_the_one_that_has_most_is_refused() {
        let start = Instant::now();
        let mut line = line(start);
        (0..3).for_each(|_| assert_eq!(begin(&mut line, 1, start).0, TurnAnswer::Now));
        let flood: Vec<u64> = (0..4).map(|_| begin(&mut line, 1, start).1).collect();
        assert_eq!(begin(&mut line, 1, start).0, TurnAnswer::Refused, "too many of its own");
        let (answer, other) = begin(&mut line, 2, start);
        assert_eq!(answer, TurnAnswer::Behind, "there is room for another host");
        let ask = |line: &mut LoginLine, number, at| line.ask(number, at, Waker::noop());
        assert_eq!(ask(&mut line, flood[3], start), TurnAnswer::Refused);
        let mut at = start;
        for number in [flood[0], other, flood[1], flood[2]] {
            at += EVERY;
            assert_eq!(ask(&mut line, number, at), TurnAnswer::Now);
        }
        assert!(line.next().is_none());
    }

    #[test]
    fn every_second_turn_is_of_known_hosts_and_no_flood_of_others_has_one_refused() {
        let start = Instant::now();
        let mut line = LoginLine::new(TokenBucket { every: EVERY, burst: 3, full_at: start }, 16);
        line.known.note(host(1));
        (0..3).for_each(|_| assert_eq!(begin(&mut line, 9, start).0, TurnAnswer::Now));
        let flood: Vec<u64> = (10..26).map(|n| begin(&mut line, n, start).1).collect();
        let known: Vec<u64> = (0..2).map(|_| begin(&mut line, 1, start).1).collect();
        assert!(known.iter().all(|number| *number > 0), "two of sixteen are few");
        assert_eq!(
            begin(&mut line, 30, start).0,
            TurnAnswer::Refused,
            "those that wait came first"
        );
        let mut at = start;
        for number in [known[0], flood[0], known[1], flood[1], flood[2]] {
            at += EVERY;
            assert_eq!(line.ask(number, at, Waker::noop()), TurnAnswer::Now);
        }
        for last in 0..200 {
            (0..10).for_each(|net| line.known.note([10, 0, net, last].into()));
        }
        assert_eq!(line.known.last_right.len(), KNOWN_HOSTS_MAX);
        assert!(!line.known.has(host(1)) && line.known.has([10, 0, 9, 199].into()));
    }

    #[test]
    fn one_that_gives_up_leaves_its_turn_to_the_next() {
        let start = Instant::now();
        let mut line = line(start);
        (0..3).for_each(|_| assert_eq!(begin(&mut line, 1, start).0, TurnAnswer::Now));
        let [first, second] = [(); 2].map(|()| begin(&mut line, 1, start).1);
        line.leave(first);
        assert_eq!(line.ask(second, start + EVERY, Waker::noop()), TurnAnswer::Now);
    }
}
