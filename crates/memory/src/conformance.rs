//! One suite for every carrier of the medium `Memory`: simulated, mapped, and those to come.
//!
//! A carrier's test implements [`MemoryFabric`] and runs each of [`SUITE`]. A carrier that works in small
//! steps is looked at between any two of them; one that is synchronous has none in between.
//! The laws are those of [`amcast_core::memory`]; each function says which one it tests.

use amcast_core::id::Pid;
use amcast_core::memory::{
    AccessOutcome, LINE_WORDS, LineRange, LineStamp, MemoryInput, MemoryOutput, RegionId,
    RegionSpec, RegionWindow, WriteSource,
};
use amcast_core::step::Ticket;

/// Some processes and the memory between them.
pub trait MemoryFabric {
    /// Carries out what a process asks for, all of it before the next call.
    fn post(&mut self, from: Pid, outs: &[MemoryOutput]);
    /// Lets the smallest next thing happen; false if nothing is left to happen.
    fn advance(&mut self) -> bool;
    /// The inputs to this process since the last call, in order, without polls. Once a
    /// fresh start is given out here the process knows of it.
    fn heard(&mut self, by: Pid) -> Vec<MemoryEvent>;
    /// A process's own regions.
    fn window(&self, of: Pid) -> RegionWindow<'_>;
    /// A process dies.
    fn crash(&mut self, pid: Pid);
    /// A dead process starts again.
    fn start(&mut self, pid: Pid);
    /// Whether nothing of the writer lands any more once a revocation was carried out: more than the laws promise.
    fn stops_writes(&self) -> bool {
        false
    }
}

/// An input of the medium that owns its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemoryEvent {
    /// [`AccessOutcome::Written`].
    Written(Ticket),
    /// [`AccessOutcome::Denied`].
    Denied(Ticket),
    /// [`AccessOutcome::Lost`].
    Lost(Ticket),
    /// [`AccessOutcome::Words`].
    Words(Ticket, Vec<[u64; LINE_WORDS + 1]>),
    /// [`MemoryInput::Fresh`].
    Fresh(Pid, u32),
}

impl MemoryEvent {
    /// The owned copy of an input; none for a poll.
    pub fn of(input: &MemoryInput<'_>) -> Option<Self> {
        Some(match *input {
            MemoryInput::Poll => return None,
            MemoryInput::Fresh { pid, incarnation } => Self::Fresh(pid, incarnation),
            MemoryInput::Done(ticket, AccessOutcome::Written) => Self::Written(ticket),
            MemoryInput::Done(ticket, AccessOutcome::Denied) => Self::Denied(ticket),
            MemoryInput::Done(ticket, AccessOutcome::Lost) => Self::Lost(ticket),
            MemoryInput::Done(ticket, AccessOutcome::Words(words)) => {
                Self::Words(ticket, words.to_vec())
            }
        })
    }
}

/// Makes the fabric of [`shape`], all processes started for the first time.
pub type MakeMemoryFabric<'a> = &'a mut dyn FnMut() -> Box<dyn MemoryFabric>;

/// A test of one law. Panics if the law is broken.
pub type MemoryLaw = fn(MakeMemoryFabric<'_>);

/// The suite: what is tested, and the test.
pub const SUITE: &[(&str, MemoryLaw)] = &[
    ("sources arrive with their stamps", sources_arrive),
    ("a line is whole or stale", whole_or_stale),
    ("a line is whole or stale when its writer dies", whole_or_stale_after_death),
    ("writes appear in order of posting", in_order),
    ("each ticket is answered once", answered_once),
    ("reads give the lines", reads_give_lines),
    ("a guarded region starts revoked", starts_revoked),
    ("a write that was reported is seen after a revocation", written_is_seen),
    ("a write that a revocation stops does not land later", nothing_lands_later),
    ("nothing is reported written while revoked", nothing_written_while_revoked),
    ("revoking one region leaves the others alone", others_left_alone),
    ("a fresh start is empty and told once", fresh_start),
    ("nothing meant for the old memory reaches the new", old_writes_stay_away),
];

const OWNER: Pid = Pid(0);
const WRITER: Pid = Pid(1);
const OTHER: Pid = Pid(2);
/// The owner's regions.
const PLAIN: RegionId = RegionId(0);
const GUARDED: RegionId = RegionId(1);
const GUARDED_OTHER: RegionId = RegionId(2);
/// The writers' own region, from which they copy.
const STAGING: RegionId = RegionId(0);
const LINES: u32 = 12;

/// The regions of the three processes of the suite.
pub fn shape() -> Vec<Vec<RegionSpec>> {
    let spec = |name, writer, guarded| RegionSpec { name, lines: LINES, writer, guarded };
    let owner = vec![
        spec("plain", WRITER, false),
        spec("guarded", WRITER, true),
        spec("guarded-other", OTHER, true),
    ];
    let staging = |pid| vec![spec("staging", pid, false)];
    vec![owner, staging(WRITER), staging(OTHER)]
}

fn settle(fabric: &mut dyn MemoryFabric) {
    // Bounded, so that a carrier that never rests fails instead of hanging.
    for _ in 0..1_000_000 {
        if !fabric.advance() {
            return;
        }
    }
    panic!("the carrier does not come to rest");
}

fn stamp(line: u32) -> LineStamp {
    LineStamp::new(7, u64::from(line))
}

fn words(line: u32) -> [u64; LINE_WORDS] {
    core::array::from_fn(|i| u64::from(line + 1) * 1_000 + i as u64)
}

/// A write of one line whose words follow from its place.
fn write(region: RegionId, line: u32) -> MemoryOutput {
    let source = WriteSource::line(words(line), stamp(line));
    let ticket = Some(Ticket(u64::from(line)));
    MemoryOutput::Write { to: OWNER, region, at: line, source, ticket, bell: false }
}

/// Which lines of the owner's region carry their stamp. Panics if one of them is torn.
fn stamped(fabric: &dyn MemoryFabric, region: RegionId) -> Vec<bool> {
    let lines = fabric.window(OWNER).region(region);
    let look = |(i, line): (u32, &amcast_core::memory::CacheLine)| {
        if line.stamp() == LineStamp::default() {
            return false;
        }
        assert_eq!((line.stamp(), line.words()), (stamp(i), words(i)), "law 1: line {i} is torn");
        true
    };
    (0..).zip(lines).map(look).collect()
}

fn is_prefix(stamped: &[bool]) -> bool {
    stamped.windows(2).all(|pair| pair[0] || !pair[1])
}

/// Puts whole lines into a writer's staging region.
fn fill_staging(fabric: &dyn MemoryFabric, of: Pid) {
    for (i, line) in (0..).zip(fabric.window(of).region(STAGING)) {
        line.put(&words(i), stamp(i));
    }
}

/// A post of all lines: some one by one, some copied in one write.
fn mixed(region: RegionId) -> Vec<MemoryOutput> {
    let mut outs: Vec<_> = (0..4).map(|line| write(region, line)).collect();
    let source = WriteSource::Copy(LineRange { region: STAGING, at: 4, count: LINES - 4 });
    let ticket = Some(Ticket(4));
    outs.push(MemoryOutput::Write { to: OWNER, region, at: 4, source, ticket, bell: true });
    outs
}

/// Copies keep their lines' stamps; lines made here share one.
fn sources_arrive(make: MakeMemoryFabric<'_>) {
    let mut fabric = make();
    fill_staging(&*fabric, WRITER);
    let rest = LineRange { region: STAGING, at: 1, count: 2 };
    let made = WriteSource::Made { head: [9; LINE_WORDS], stamp: LineStamp(77), rest };
    let copied = WriteSource::Copy(LineRange { region: STAGING, at: 5, count: 3 });
    let out = |at, source| MemoryOutput::Write {
        to: OWNER,
        region: PLAIN,
        at,
        source,
        ticket: None,
        bell: false,
    };
    fabric.post(WRITER, &[out(0, made), out(LINES - 3, copied)]);
    settle(&mut *fabric);
    let lines = fabric.window(OWNER).region(PLAIN);
    let seen = |i: u32| (lines[i as usize].words(), lines[i as usize].stamp());
    assert_eq!(seen(0), ([9; LINE_WORDS], LineStamp(77)));
    assert_eq!(seen(1), (words(1), LineStamp(77)));
    assert_eq!(seen(2), (words(2), LineStamp(77)));
    assert_eq!(seen(3), ([0; LINE_WORDS], LineStamp::default()), "nothing beyond the write");
    for i in 0..3 {
        assert_eq!(seen(LINES - 3 + i), (words(5 + i), stamp(5 + i)));
    }
}

/// Law 1, looked at between any two steps.
fn whole_or_stale(make: MakeMemoryFabric<'_>) {
    let mut fabric = make();
    fill_staging(&*fabric, WRITER);
    fabric.post(WRITER, &mixed(PLAIN));
    while fabric.advance() {
        stamped(&*fabric, PLAIN);
    }
    assert!(stamped(&*fabric, PLAIN).iter().all(|&there| there), "all is written in the end");
}

/// Law 1, with the writer dead after any number of steps.
fn whole_or_stale_after_death(make: MakeMemoryFabric<'_>) {
    for steps in 0.. {
        let mut fabric = make();
        fill_staging(&*fabric, WRITER);
        fabric.post(WRITER, &mixed(PLAIN));
        let taken = (0..steps).take_while(|_| fabric.advance()).count();
        fabric.crash(WRITER);
        settle(&mut *fabric);
        let seen = stamped(&*fabric, PLAIN);
        assert!(is_prefix(&seen), "law 2: {seen:?}");
        if taken < steps {
            return;
        }
    }
}

/// Law 2, between any two steps.
fn in_order(make: MakeMemoryFabric<'_>) {
    let mut fabric = make();
    fill_staging(&*fabric, WRITER);
    for out in mixed(PLAIN) {
        fabric.post(WRITER, &[out]);
    }
    while fabric.advance() {
        let seen = stamped(&*fabric, PLAIN);
        assert!(is_prefix(&seen), "law 2: {seen:?}");
    }
}

/// Every ticket comes back, once, and nothing else does.
fn answered_once(make: MakeMemoryFabric<'_>) {
    let mut fabric = make();
    let read =
        |ticket, count| MemoryOutput::Read { of: OWNER, region: PLAIN, at: 0, count, ticket };
    let silent = MemoryOutput::Write {
        to: OWNER,
        region: PLAIN,
        at: 9,
        source: WriteSource::line(words(9), stamp(9)),
        ticket: None,
        bell: false,
    };
    fabric.post(WRITER, &[write(PLAIN, 0), read(Ticket(50), 1), silent, write(GUARDED, 1)]);
    settle(&mut *fabric);
    let mut tickets: Vec<_> = fabric
        .heard(WRITER)
        .into_iter()
        .map(|heard| match heard {
            MemoryEvent::Written(t)
            | MemoryEvent::Denied(t)
            | MemoryEvent::Lost(t)
            | MemoryEvent::Words(t, _) => t.0,
            MemoryEvent::Fresh(..) => panic!("nobody started again"),
        })
        .collect();
    tickets.sort_unstable();
    assert_eq!(tickets, [0, 1, 50]);
    assert_eq!(fabric.heard(WRITER), []);
    assert_eq!(fabric.heard(OWNER), [], "the owner did not ask, and gets no answer");
}

/// A read gives words and stamps, also of a region that someone else writes.
fn reads_give_lines(make: MakeMemoryFabric<'_>) {
    let mut fabric = make();
    fabric.post(WRITER, &[write(PLAIN, 2), write(PLAIN, 3)]);
    settle(&mut *fabric);
    fabric.post(
        OTHER,
        &[MemoryOutput::Read { of: OWNER, region: PLAIN, at: 2, count: 3, ticket: Ticket(1) }],
    );
    settle(&mut *fabric);
    let heard = fabric.heard(OTHER);
    let [MemoryEvent::Words(Ticket(1), lines)] = &heard[..] else { panic!("{heard:?}") };
    let line = |i| {
        let [a, b, c, d, e, f, g] = words(i);
        [a, b, c, d, e, f, g, stamp(i).0]
    };
    assert_eq!(lines[..], [line(2), line(3), [0; LINE_WORDS + 1]]);
}

/// Law 4: before the first grant nothing is written.
fn starts_revoked(make: MakeMemoryFabric<'_>) {
    let mut fabric = make();
    fabric.post(WRITER, &[write(GUARDED, 0)]);
    settle(&mut *fabric);
    assert_eq!(fabric.heard(WRITER), [MemoryEvent::Denied(Ticket(0))]);
    fabric.post(OWNER, &[MemoryOutput::Allow(GUARDED)]);
    settle(&mut *fabric);
    fabric.post(WRITER, &[write(GUARDED, 1)]);
    settle(&mut *fabric);
    assert_eq!(fabric.heard(WRITER), [MemoryEvent::Written(Ticket(1))]);
}

/// Law 3, with the revocation after any number of steps.
fn written_is_seen(make: MakeMemoryFabric<'_>) {
    for steps in 0.. {
        let mut fabric = make();
        fabric.post(OWNER, &[MemoryOutput::Allow(GUARDED)]);
        settle(&mut *fabric);
        let outs: Vec<_> = (0..LINES).map(|line| write(GUARDED, line)).collect();
        for batch in outs.chunks(3) {
            fabric.post(WRITER, batch);
        }
        let taken = (0..steps).take_while(|_| fabric.advance()).count();
        fabric.post(OWNER, &[MemoryOutput::Revoke(GUARDED)]);
        let seen = stamped(&*fabric, GUARDED);
        settle(&mut *fabric);
        let heard = fabric.heard(WRITER);
        assert_eq!(heard.len(), LINES as usize, "{heard:?}");
        for answer in heard {
            match answer {
                MemoryEvent::Written(t) => assert!(seen[t.0 as usize], "law 3: {t:?} is not seen"),
                MemoryEvent::Denied(_) => {}
                other => panic!("{other:?}"),
            }
        }
        if taken < steps {
            return;
        }
    }
}

/// Where the carrier promises it: after the revocation, which comes after any number of steps, the region stays as it is
/// until it is opened anew.
fn nothing_lands_later(make: MakeMemoryFabric<'_>) {
    for steps in 0.. {
        let mut fabric = make();
        if !fabric.stops_writes() {
            return;
        }
        fabric.post(OWNER, &[MemoryOutput::Allow(GUARDED)]);
        settle(&mut *fabric);
        for line in 0..LINES {
            fabric.post(WRITER, &[write(GUARDED, line)]);
        }
        let taken = (0..steps).take_while(|_| fabric.advance()).count();
        fabric.post(OWNER, &[MemoryOutput::Revoke(GUARDED)]);
        let seen = stamped(&*fabric, GUARDED);
        settle(&mut *fabric);
        assert_eq!(stamped(&*fabric, GUARDED), seen, "a write lands after the revocation");
        if taken < steps {
            return;
        }
    }
}

/// Law 4, through several grants.
fn nothing_written_while_revoked(make: MakeMemoryFabric<'_>) {
    let mut fabric = make();
    for (line, twice) in [(0, false), (2, true), (4, true)] {
        let grant = [MemoryOutput::Allow(GUARDED), MemoryOutput::Allow(GUARDED)];
        fabric.post(OWNER, &grant[..1 + usize::from(twice)]);
        settle(&mut *fabric);
        fabric.post(WRITER, &[write(GUARDED, line)]);
        settle(&mut *fabric);
        assert_eq!(fabric.heard(WRITER), [MemoryEvent::Written(Ticket(u64::from(line)))]);
        let revoke = [MemoryOutput::Revoke(GUARDED), MemoryOutput::Revoke(GUARDED)];
        fabric.post(OWNER, &revoke[..1 + usize::from(twice)]);
        fabric.post(WRITER, &[write(GUARDED, line + 1)]);
        settle(&mut *fabric);
        let answer = MemoryEvent::Denied(Ticket(u64::from(line) + 1));
        assert_eq!(fabric.heard(WRITER), [answer], "law 4");
        stamped(&*fabric, GUARDED);
    }
}

/// The writer's answers, one `Written` and one `Denied` in either order, as their tickets in this
/// order.
fn written_then_denied(fabric: &mut dyn MemoryFabric) -> [u64; 2] {
    let heard = fabric.heard(WRITER);
    match heard[..] {
        [MemoryEvent::Written(w), MemoryEvent::Denied(d)]
        | [MemoryEvent::Denied(d), MemoryEvent::Written(w)] => [w.0, d.0],
        _ => panic!("{heard:?}"),
    }
}

/// Permissions are per region.
fn others_left_alone(make: MakeMemoryFabric<'_>) {
    let mut fabric = make();
    fabric.post(OWNER, &[MemoryOutput::Allow(GUARDED), MemoryOutput::Allow(GUARDED_OTHER)]);
    settle(&mut *fabric);
    fabric.post(OWNER, &[MemoryOutput::Revoke(GUARDED)]);
    fabric.post(OTHER, &[write(GUARDED_OTHER, 0)]);
    fabric.post(WRITER, &[write(PLAIN, 1), write(GUARDED, 2)]);
    settle(&mut *fabric);
    assert_eq!(fabric.heard(OTHER), [MemoryEvent::Written(Ticket(0))]);
    assert_eq!(written_then_denied(&mut *fabric), [1, 2]);
}

/// Law 5: zeroed, revoked, told once, and of use from then on.
fn fresh_start(make: MakeMemoryFabric<'_>) {
    let mut fabric = make();
    fabric.post(OWNER, &[MemoryOutput::Allow(GUARDED)]);
    settle(&mut *fabric);
    fabric.post(WRITER, &[write(PLAIN, 0), write(GUARDED, 0)]);
    settle(&mut *fabric);
    fabric.heard(WRITER);
    for life in 1..4 {
        fabric.crash(OWNER);
        settle(&mut *fabric);
        fabric.start(OWNER);
        for region in [PLAIN, GUARDED, GUARDED_OTHER] {
            let lines = fabric.window(OWNER).region(region);
            assert!(lines.iter().all(|l| l.words() == [0; LINE_WORDS]), "law 5: not zeroed");
            assert!(lines.iter().all(|l| l.stamp() == LineStamp::default()), "law 5: not zeroed");
        }
        settle(&mut *fabric);
        assert_eq!(fabric.heard(WRITER), [MemoryEvent::Fresh(OWNER, life)], "law 5: told once");
        assert_eq!(fabric.heard(OTHER), [MemoryEvent::Fresh(OWNER, life)], "law 5: told once");
        assert_eq!(fabric.heard(OWNER), [], "a process that starts gets no event of itself");
        fabric.post(WRITER, &[write(PLAIN, 1), write(GUARDED, 2)]);
        settle(&mut *fabric);
        assert_eq!(written_then_denied(&mut *fabric), [1, 2]);
        let (seen, line) = (stamped(&*fabric, PLAIN), 1);
        assert!(seen[line] && !seen[0], "{seen:?}");
    }
}

/// Law 5: neither a write nor a read meant for the old memory touches the new one.
fn old_writes_stay_away(make: MakeMemoryFabric<'_>) {
    for steps in 0.. {
        let mut fabric = make();
        fabric.post(WRITER, &[write(PLAIN, 0), write(PLAIN, 1)]);
        let taken = (0..steps).take_while(|_| fabric.advance()).count();
        fabric.crash(OWNER);
        fabric.start(OWNER);
        // The writer does not know it yet.
        let read =
            MemoryOutput::Read { of: OWNER, region: PLAIN, at: 0, count: 1, ticket: Ticket(60) };
        fabric.post(WRITER, &[write(PLAIN, 5), read]);
        settle(&mut *fabric);
        let seen = stamped(&*fabric, PLAIN);
        assert!(seen.iter().all(|&there| !there), "law 5: {seen:?}");
        let heard = fabric.heard(WRITER);
        for ticket in [Ticket(5), Ticket(60)] {
            assert!(heard.contains(&MemoryEvent::Lost(ticket)), "law 5: {heard:?}");
        }
        let told = heard.iter().filter(|&h| *h == MemoryEvent::Fresh(OWNER, 1)).count();
        assert_eq!(told, 1, "law 5: {heard:?}");
        fabric.post(WRITER, &[write(PLAIN, 6)]);
        settle(&mut *fabric);
        assert_eq!(fabric.heard(WRITER), [MemoryEvent::Written(Ticket(6))]);
        if taken < steps {
            return;
        }
    }
}
