//! One suite for every carrier of the medium `Messages`: simulated, on real networks, and those to
//! come.
//!
//! A carrier's test implements [`MessageFabric`] and runs each of [`SUITE`]. The laws are those of
//! [`mod@amcast_core::messages`]; each function says which one it tests. No test waits for a time: what
//! must come is waited for, and what must not come is looked for in front of something that must.

use amcast_core::id::{Gid, GroupSet, Pid};
use amcast_core::messages::{DatagramBacklog, Lane, MessageInput, MessageOutput};
use amcast_core::rng::Rng;

/// Some processes and the messages between them.
pub trait MessageFabric {
    /// Sends what a process asks for.
    fn send(&mut self, from: Pid, out: &MessageOutput<()>, message: &[u8]);
    /// Lets a little happen; false if nothing will ever happen again by itself, or if nothing has
    /// happened for so long that it never will.
    fn advance(&mut self) -> bool;
    /// The inputs of the medium to this process since the last call, in order.
    fn heard(&mut self, by: Pid) -> Vec<MessageEvent>;
    /// The connection between two processes breaks; it is restored later.
    fn cut(&mut self, a: Pid, b: Pid);
    /// A process dies.
    fn crash(&mut self, pid: Pid);
    /// A dead process starts again, as a new incarnation.
    fn start(&mut self, pid: Pid);
    /// A process takes nothing in from now on, and continues later.
    fn stall(&mut self, pid: Pid, stalled: bool);
}

/// An input of the medium that owns its bytes.
#[derive(Clone, PartialEq, Eq)]
pub enum MessageEvent {
    /// [`MessageInput::From`].
    From(Pid, Vec<u8>),
    /// [`MessageInput::Up`].
    Up(Pid),
    /// [`MessageInput::Down`].
    Down(Pid),
    /// [`MessageInput::Backlog`].
    Backlog(DatagramBacklog),
}

impl MessageEvent {
    /// The owned copy of an input.
    pub fn of(input: &MessageInput<&[u8]>) -> Self {
        match *input {
            MessageInput::From(pid, message) => Self::From(pid, message.to_vec()),
            MessageInput::Up(pid) => Self::Up(pid),
            MessageInput::Down(pid) => Self::Down(pid),
            MessageInput::Backlog(backlog) => Self::Backlog(backlog),
        }
    }
}

impl core::fmt::Debug for MessageEvent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::From(pid, bytes) if bytes.len() > 16 => {
                write!(f, "From({pid:?}, {:?}.. {} bytes)", &bytes[..16], bytes.len())
            }
            Self::From(pid, bytes) => write!(f, "From({pid:?}, {bytes:?})"),
            Self::Up(pid) => write!(f, "Up({pid:?})"),
            Self::Down(pid) => write!(f, "Down({pid:?})"),
            Self::Backlog(backlog) => write!(f, "{backlog:?}"),
        }
    }
}

/// Makes the fabric of [`shape`], all processes started for the first time and not connected yet.
pub type MakeMessageFabric<'a> = &'a mut dyn FnMut() -> Box<dyn MessageFabric>;

/// A test of one law. Panics if the law is broken.
pub type MessageLaw = fn(MakeMessageFabric<'_>);

/// The suite: what is tested, and the test.
pub const SUITE: &[(&str, MessageLaw)] = &[
    ("each connection opens, and is reported once", connected),
    ("streams arrive in order, once, unchanged", streams_in_order),
    ("messages from before the connection opens arrive", sent_before_up),
    ("a group's message reaches its members and nobody else", groups),
    ("a message to oneself arrives like any other", own_messages),
    ("large messages pass, and small ones behind them", large_messages),
    ("a stream loses messages only where a break is reported", breaks),
    ("a new incarnation is reported before its first message", new_incarnation),
    ("a peer that takes nothing holds up nobody", stalled_peer),
    ("datagrams arrive unchanged, if they arrive", datagrams),
    ("under all events in any order, the laws hold", anything),
];

/// The suite of carriers from which datagrams leave at a rate, of some megabytes a second, and where a process has room for
/// no more than a megabyte of them.
pub const PACED_SUITE: &[(&str, MessageLaw)] =
    &[("a sender of more datagrams than leave hears of it, and then of room", backlog)];

const A: Pid = Pid(0);
const B: Pid = Pid(1);
const C: Pid = Pid(2);
const ALL: [Pid; 3] = [A, B, C];
/// Everyone.
const WIDE: Gid = Gid(0);
/// Without [`A`].
const NARROW: Gid = Gid(1);

/// The groups of the three processes of the suite.
pub fn shape() -> [GroupSet; 3] {
    [GroupSet::one(WIDE), GroupSet::first(2), GroupSet::first(2)]
}

/// The inputs to each process that were not looked at yet.
struct UnreadEvents<'a> {
    fabric: &'a mut dyn MessageFabric,
    heard: [Vec<MessageEvent>; 3],
}

impl<'a> UnreadEvents<'a> {
    fn new(fabric: &'a mut dyn MessageFabric) -> Self {
        Self { fabric, heard: Default::default() }
    }

    /// Runs until the inputs of a process satisfy `done`; takes them.
    fn until(
        &mut self,
        by: Pid,
        what: &str,
        done: impl Fn(&[MessageEvent]) -> bool,
    ) -> Vec<MessageEvent> {
        let mut looked_at = usize::MAX;
        loop {
            self.listen();
            let heard = &mut self.heard[by.index()];
            if heard.len() != looked_at && done(heard) {
                return std::mem::take(heard);
            }
            looked_at = heard.len();
            let moved = self.fabric.advance();
            self.listen();
            let heard = &self.heard[by.index()];
            let more = moved || heard.len() > looked_at;
            assert!(more, "{what}: {by:?} never hears it, but {:?}", brief(heard));
        }
    }

    fn listen(&mut self) {
        for pid in ALL {
            self.heard[pid.index()].append(&mut self.fabric.heard(pid));
        }
    }

    /// Runs until every two processes are connected; forgets their inputs.
    fn connect(&mut self) {
        for (by, of) in pairs() {
            let up = |heard: &[MessageEvent]| heard.contains(&MessageEvent::Up(of));
            while !up(&self.heard[by.index()]) {
                let so_far = self.until(by, "a connection", up);
                self.heard[by.index()] = so_far;
            }
        }
        self.heard = Default::default();
    }

    fn to(&mut self, from: Pid, to: Pid, lane: Lane, message: &[u8]) {
        self.fabric.send(from, &MessageOutput::To(to, lane, ()), message);
    }
}

fn brief(heard: &[MessageEvent]) -> (usize, Vec<&MessageEvent>) {
    (heard.len(), heard.iter().rev().take(8).rev().collect())
}

fn pairs() -> impl Iterator<Item = (Pid, Pid)> {
    ALL.into_iter().flat_map(|a| ALL.into_iter().map(move |b| (a, b))).filter(|(a, b)| a != b)
}

/// How long a message is at least, in bytes.
const HEAD: usize = 12;

/// A message that tells who sent it, its number, its length, and whether it was changed.
fn message(from: Pid, number: u32, bytes: usize) -> Vec<u8> {
    let bytes = bytes.max(HEAD);
    let head = [from.0, number, bytes as u32].map(u32::to_le_bytes).concat();
    let body = (HEAD..bytes).map(|i| (i as u32 ^ number) as u8);
    head.into_iter().chain(body).collect()
}

/// The number of a message, if it is one of [`message`]'s from this process.
fn number(from: Pid, bytes: &[u8]) -> u32 {
    assert!(bytes.len() >= HEAD, "{} bytes were never sent", bytes.len());
    let number = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
    assert!(bytes == message(from, number, bytes.len()), "a message of {from:?} was changed");
    number
}

/// The numbers of what came from a process.
fn numbers(heard: &[MessageEvent], from: Pid) -> Vec<u32> {
    let number = |heard: &MessageEvent| match heard {
        MessageEvent::From(pid, bytes) if *pid == from => Some(number(from, bytes)),
        _ => None,
    };
    heard.iter().filter_map(number).collect()
}

/// Whether that message of that process is there; that it is unchanged is looked at later, once.
fn has(from: Pid, last: u32) -> impl Fn(&[MessageEvent]) -> bool {
    let is = move |bytes: &[u8]| bytes.get(4..8) == Some(&last.to_le_bytes());
    let found = move |h: &MessageEvent| matches!(h, MessageEvent::From(p, bytes) if *p == from && is(bytes));
    move |heard| heard.iter().rev().any(found)
}

/// Law 4: `Up` at both ends of each connection, and not again while it is open.
fn connected(make: MakeMessageFabric<'_>) {
    let mut fabric = make();
    let mut ears = UnreadEvents::new(&mut *fabric);
    for (by, of) in pairs() {
        ears.to(by, of, Lane::Stream, &message(by, 1, 8));
    }
    for by in ALL {
        let others = || ALL.into_iter().filter(|&of| of != by);
        let heard = ears.until(by, "messages", |heard| others().all(|of| has(of, 1)(heard)));
        for of in others() {
            let ups = heard.iter().filter(|h| **h == MessageEvent::Up(of)).count();
            assert_eq!(ups, 1, "law 4: {by:?} hears {heard:?}");
        }
        assert!(
            !heard.contains(&MessageEvent::Down(by)) && !heard.contains(&MessageEvent::Up(by)),
            "{heard:?}"
        );
    }
}

/// Law 1, all ways at once, in batches and one by one.
fn streams_in_order(make: MakeMessageFabric<'_>) {
    const COUNT: u32 = 2_000;
    let mut fabric = make();
    let mut ears = UnreadEvents::new(&mut *fabric);
    ears.connect();
    for i in 0..COUNT {
        for (from, to) in pairs() {
            ears.to(from, to, Lane::Stream, &message(from, i, 8 + (i as usize * 7) % 600));
        }
        if i % 100 == 7 {
            ears.fabric.advance();
            ears.listen();
        }
    }
    for by in ALL {
        let others = || ALL.into_iter().filter(|&of| of != by);
        let heard = ears.until(by, "all", |heard| others().all(|of| has(of, COUNT - 1)(heard)));
        for of in others() {
            assert!(numbers(&heard, of).into_iter().eq(0..COUNT), "law 1: from {of:?} to {by:?}");
        }
        assert!(!heard.iter().any(|h| matches!(h, MessageEvent::Down(_))), "nothing broke");
    }
}

/// Law 1: nobody said `Down`, so nothing is lost.
fn sent_before_up(make: MakeMessageFabric<'_>) {
    let mut fabric = make();
    let mut ears = UnreadEvents::new(&mut *fabric);
    for i in 0..100 {
        for (from, to) in pairs() {
            ears.to(from, to, Lane::Stream, &message(from, i, 100));
        }
    }
    for (of, by) in pairs() {
        let heard = ears.until(by, "the last one", has(of, 99));
        if !heard.contains(&MessageEvent::Down(of)) {
            assert!(numbers(&heard, of).into_iter().eq(0..100), "law 1: from {of:?} to {by:?}");
        }
        ears.heard[by.index()] = heard;
    }
}

/// Members get a group's message, the sender if it is one, and nobody else.
fn groups(make: MakeMessageFabric<'_>) {
    let mut fabric = make();
    let mut ears = UnreadEvents::new(&mut *fabric);
    ears.connect();
    for from in ALL {
        ears.fabric.send(
            from,
            &MessageOutput::Group(NARROW, Lane::Stream, ()),
            &message(from, 1, 50),
        );
        ears.fabric.send(
            from,
            &MessageOutput::Group(WIDE, Lane::Stream, ()),
            &message(from, 2, 50),
        );
    }
    for by in ALL {
        let heard = ears.until(by, "all", |heard| ALL.into_iter().all(|of| has(of, 2)(heard)));
        let expected: &[u32] = if by == A { &[2] } else { &[1, 2] };
        for of in ALL {
            assert_eq!(numbers(&heard, of), expected, "from {of:?} to {by:?}");
        }
    }
}

/// Law 3, on both lanes and through a group.
fn own_messages(make: MakeMessageFabric<'_>) {
    const COUNT: u32 = 5_000;
    let mut fabric = make();
    let mut ears = UnreadEvents::new(&mut *fabric);
    for i in 0..COUNT {
        let lane = if i % 2 == 0 { Lane::Stream } else { Lane::Datagram };
        let bytes = message(B, i, if i % 1_000 == 3 { 1 << 18 } else { 64 });
        match i % 3 {
            0 => ears.fabric.send(B, &MessageOutput::Group(NARROW, lane, ()), &bytes),
            _ => ears.to(B, B, lane, &bytes),
        }
    }
    let is_own = |h: &&MessageEvent| matches!(h, MessageEvent::From(B, _));
    let all = |heard: &[MessageEvent]| heard.iter().filter(is_own).count() >= COUNT as usize;
    let heard = ears.until(B, "all", all);
    let mut seen = numbers(&heard, B);
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..COUNT), "law 3");
}

/// The largest payload, several times, both ways at once.
fn large_messages(make: MakeMessageFabric<'_>) {
    const LARGE: usize = 1 << 20;
    let mut fabric = make();
    let mut ears = UnreadEvents::new(&mut *fabric);
    ears.connect();
    for i in 0..8 {
        let bytes = if i % 2 == 0 { LARGE } else { 64 };
        ears.to(A, B, Lane::Stream, &message(A, i, bytes));
        ears.to(B, A, Lane::Stream, &message(B, i, bytes));
    }
    for (by, of) in [(A, B), (B, A)] {
        let heard = ears.until(by, "the last one", has(of, 7));
        assert!(numbers(&heard, of).into_iter().eq(0..8), "law 1");
    }
}

/// Law 1 over several breaks: what arrives of each stream has no gap, and nothing arrives twice.
fn breaks(make: MakeMessageFabric<'_>) {
    let mut fabric = make();
    let mut ears = UnreadEvents::new(&mut *fabric);
    ears.connect();
    let mut next = 0;
    let mut heard = Vec::new();
    for (round, (a, b)) in [(A, B), (B, A), (A, B), (A, B)].into_iter().enumerate() {
        for _ in 0..500 {
            ears.to(A, B, Lane::Stream, &message(A, next, 300));
            next += 1;
        }
        for _ in 0..round {
            ears.fabric.advance();
        }
        ears.fabric.cut(a, b);
        for _ in 0..500 {
            ears.to(A, B, Lane::Stream, &message(A, next, 300));
            next += 1;
        }
        for (by, of) in [(A, B), (B, A)] {
            let again = |heard: &[MessageEvent]| {
                let down = heard.iter().position(|h| *h == MessageEvent::Down(of));
                down.is_some_and(|at| heard[at..].contains(&MessageEvent::Up(of)))
            };
            let said = ears.until(by, "Down and then Up", again);
            if by == B {
                heard.extend(said);
            }
        }
        // Both know that the new stream is open: later messages are of it, and arrive.
        ears.to(A, B, Lane::Stream, &message(A, next, 300));
        heard.extend(ears.until(B, "the message sent after Up", has(A, next)));
        next += 1;
    }
    let mut last = None;
    let mut broke = false;
    for h in heard {
        match h {
            MessageEvent::Down(A) => broke = true,
            MessageEvent::From(A, bytes) => {
                let n = number(A, &bytes);
                let follows = last.map_or(0, |last| last + 1);
                assert!(n == follows || (broke && n > follows), "law 1: {n} after {last:?}");
                (last, broke) = (Some(n), false);
            }
            _ => {}
        }
    }
}

/// Law 4: lives do not mix.
fn new_incarnation(make: MakeMessageFabric<'_>) {
    let mut fabric = make();
    let mut ears = UnreadEvents::new(&mut *fabric);
    ears.connect();
    for life in 0..4_u32 {
        let of = if life % 2 == 0 { A } else { C };
        for i in 0..200 {
            ears.to(of, B, Lane::Stream, &message(of, life * 1_000 + i, 200));
            ears.to(B, of, Lane::Stream, &message(B, life * 1_000 + i, 200));
        }
        ears.fabric.advance();
        ears.fabric.crash(of);
        ears.listen();
        ears.heard[of.index()].clear();
        ears.fabric.start(of);
        ears.to(of, B, Lane::Stream, &message(of, life * 1_000 + 999, 200));
        let heard = ears.until(B, "the new life", has(of, life * 1_000 + 999));
        let first_new = heard.iter().rposition(|h| *h == MessageEvent::Up(of));
        let first_new = first_new.unwrap_or_else(|| panic!("law 4: no Up before {heard:?}"));
        assert_eq!(numbers(&heard[first_new..], of), [life * 1_000 + 999], "law 4");
        let old = numbers(&heard[..first_new], of);
        assert!(old.iter().copied().eq((life * 1_000..).take(old.len())), "law 1: {old:?}");
        ears.until(of, "that it is connected", |heard| heard.contains(&MessageEvent::Up(B)));
        ears.to(B, of, Lane::Stream, &message(B, 77, 200));
        ears.until(of, "the message sent to it now", has(B, 77));
    }
}

/// No process waits for another one.
fn stalled_peer(make: MakeMessageFabric<'_>) {
    let mut fabric = make();
    let mut ears = UnreadEvents::new(&mut *fabric);
    ears.connect();
    ears.fabric.stall(C, true);
    for i in 0..200 {
        // More than sockets hold, so that it piles up at the sender.
        ears.to(A, C, Lane::Stream, &message(A, i, 60_000));
        ears.to(A, B, Lane::Stream, &message(A, i, 600));
        if i % 10 == 0 {
            ears.fabric.advance();
        }
    }
    let heard = ears.until(B, "all", has(A, 199));
    assert!(numbers(&heard, A).into_iter().eq(0..200), "law 1");
    ears.fabric.stall(C, false);
    let heard = ears.until(C, "all", has(A, 199));
    assert!(numbers(&heard, A).into_iter().eq(0..200), "law 1: what piled up arrives");
}

/// Law 2: never changed, of any size, to one and to groups. A lost message is sent again.
fn datagrams(make: MakeMessageFabric<'_>) {
    let sizes = [HEAD, HEAD + 1, 64, 1_000, 1_400, 1_500, 3_000, 20_000, 65_000, 100_000];
    let mut fabric = make();
    let mut ears = UnreadEvents::new(&mut *fabric);
    ears.connect();
    let to_one =
        [MessageOutput::To(B, Lane::Datagram, ()), MessageOutput::To(C, Lane::Datagram, ())];
    let to_group = [MessageOutput::Group(NARROW, Lane::Datagram, ())];
    let ways = [&to_one[..], &to_group[..]];
    let mut barrier = 1_000_000;
    for (i, (bytes, way)) in (0..).zip(sizes.iter().flat_map(|&n| ways.map(|way| (n, way)))) {
        let arrived =
            |ears: &UnreadEvents<'_>| [B, C].iter().all(|by| has(A, i)(&ears.heard[by.index()]));
        for attempt in 0.. {
            assert!(attempt < 200, "a message of {bytes} bytes never arrives");
            for out in way {
                ears.fabric.send(A, out, &message(A, i, bytes));
            }
            // The barrier on the stream: much of what the system passed on by then is there.
            barrier += 1;
            ears.to(A, B, Lane::Stream, &message(A, barrier, 8));
            let heard = ears.until(B, "the barrier", has(A, barrier));
            ears.heard[B.index()] = heard;
            ears.fabric.advance();
            ears.listen();
            if arrived(&ears) {
                break;
            }
        }
    }
    for by in [B, C] {
        for i in numbers(&ears.heard[by.index()], A) {
            assert!(i as usize <= 2 * sizes.len() || i > 1_000_000, "law 2: {i} was never sent");
        }
    }
}

/// Law 5: no room, and room, one after the other, at the process that makes the datagrams and at no other one.
fn backlog(make: MakeMessageFabric<'_>) {
    const BYTES: usize = 1_000;
    const BURST: u32 = 1_500;
    let mut fabric = make();
    let mut ears = UnreadEvents::new(&mut *fabric);
    ears.connect();
    let of = |heard: &[MessageEvent]| -> Vec<DatagramBacklog> {
        let all = heard.iter().filter_map(|event| match event {
            MessageEvent::Backlog(backlog) => Some(*backlog),
            _ => None,
        });
        all.collect()
    };
    for burst in 0..2 {
        for i in 0..BURST {
            let out = MessageOutput::To(B, Lane::Datagram, ());
            ears.fabric.send(A, &out, &message(A, burst * BURST + i, BYTES));
        }
        let heard = of(&ears.until(A, "room again", |heard| of(heard).len() >= 2));
        let [crowded, room] = heard[..] else { panic!("law 5: {heard:?}") };
        assert!(!crowded.has_room && room.has_room, "law 5: {heard:?}");
        assert!(room.bytes <= crowded.bytes / 2, "law 5: {heard:?}");
        assert!(crowded.bytes <= BURST as usize * 2 * BYTES, "law 5: {heard:?}");
    }
    // One that finds room changes nothing.
    let last = 2 * BURST;
    ears.to(A, B, Lane::Datagram, &message(A, last, BYTES));
    ears.to(A, B, Lane::Stream, &message(A, last + 1, BYTES));
    ears.until(B, "the message sent behind", has(A, last + 1));
    for p in ALL {
        assert_eq!(of(&ears.heard[p.index()]), [], "law 5: {p:?} has room");
    }
}

/// Messages of one life of a process have numbers below this; the life's number times it is added.
const LIFE: u32 = 1_000_000;

/// The inputs to one process, in one of its lives, from another: enough to judge the next one.
#[derive(Clone, Copy, Default)]
struct DeliveryCheck {
    last: Option<u32>,
    /// Said since the last message.
    down: bool,
    up: bool,
}

impl DeliveryCheck {
    fn hears(&mut self, heard: &MessageEvent, of: Pid) {
        let MessageEvent::From(_, bytes) = heard else {
            self.down |= *heard == MessageEvent::Down(of);
            self.up |= *heard == MessageEvent::Up(of);
            return;
        };
        let n = number(of, bytes);
        if let Some(last) = self.last {
            assert!(n > last, "law 1: {n} of {of:?} after {last}");
            assert!(n == last + 1 || self.down, "law 1: {n} of {of:?} after {last}, and no Down");
            assert!(n / LIFE == last / LIFE || self.up, "law 4: {n} of {of:?}, and no Up");
        }
        *self = Self { last: Some(n), ..Self::default() };
    }
}

/// Three processes to which anything may happen.
struct RandomRun<'a> {
    fabric: &'a mut dyn MessageFabric,
    lives: [u32; 3],
    next: [[u32; 3]; 3],
    judges: [[DeliveryCheck; 3]; 3],
}

impl RandomRun<'_> {
    fn listen(&mut self) {
        for by in ALL {
            for heard in self.fabric.heard(by) {
                let (MessageEvent::From(of, _) | MessageEvent::Up(of) | MessageEvent::Down(of)) =
                    heard
                else {
                    continue;
                };
                self.judges[by.index()][of.index()].hears(&heard, of);
            }
        }
    }

    fn send(&mut self, from: Pid, to: Pid, bytes: usize) -> u32 {
        let next = &mut self.next[from.index()][to.index()];
        let n = self.lives[from.index()] * LIFE + *next;
        *next += 1;
        self.fabric.send(from, &MessageOutput::To(to, Lane::Stream, ()), &message(from, n, bytes));
        n
    }

    fn strike(&mut self, rng: &mut Rng) {
        let mut pick = |n: u64| rng.below(n);
        let a = ALL[pick(3) as usize];
        let b = ALL[(a.index() + 1 + pick(2) as usize) % 3];
        match pick(20) {
            0..8 => (0..pick(50)).for_each(|i| {
                self.send(a, b, 20 << (i % 12));
            }),
            8..10 => {
                self.send(a, a, 40);
            }
            10..16 => (0..pick(20)).for_each(|_| {
                self.fabric.advance();
                self.listen();
            }),
            16 => self.fabric.stall(a, pick(2) == 0),
            17 | 18 => self.fabric.cut(a, b),
            _ => {
                self.fabric.crash(a);
                self.fabric.start(a);
                self.lives[a.index()] += 1;
                self.next[a.index()] = [0; 3];
                self.judges[a.index()] = [DeliveryCheck::default(); 3];
            }
        }
    }

    /// Nothing strikes any more: what is sent now arrives, if not at the first attempt.
    fn heal(&mut self) {
        ALL.into_iter().for_each(|pid| self.fabric.stall(pid, false));
        for (from, to) in pairs().chain(ALL.map(|pid| (pid, pid))) {
            // Lost if it was sent while the connection was down: another one is sent.
            let arrived = (0..100).any(|_| self.arrives(from, to));
            assert!(arrived, "{to:?} never hears of {from:?} again");
        }
    }

    /// Whether a message sent now arrives soon.
    fn arrives(&mut self, from: Pid, to: Pid) -> bool {
        let n = self.send(from, to, 64);
        for _ in 0..500 {
            let moved = self.fabric.advance();
            self.listen();
            if self.judges[to.index()][from.index()].last == Some(n) {
                return true;
            }
            if !moved {
                break;
            }
        }
        false
    }
}

/// Laws 1, 3 and 4 under random sequences of messages, breaks, stalls and restarts.
fn anything(make: MakeMessageFabric<'_>) {
    for seed in 0..12 {
        let mut fabric = make();
        let mut rng = Rng::stream(seed, "anything");
        let mut wild = RandomRun {
            fabric: &mut *fabric,
            lives: [0; 3],
            next: Default::default(),
            judges: Default::default(),
        };
        for _ in 0..80 {
            wild.strike(&mut rng);
            wild.listen();
        }
        wild.heal();
    }
}
