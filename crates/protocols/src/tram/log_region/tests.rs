//! A candidate that reads a log from afar while its writer uses the lines once more, in every order in
//! which single stores and single remote reads can fall: with three replicas and a candidate's own half,
//! and with a follower's half that a leader begins anew. The effects of the memory model within one
//! process are tested in `amcast-memory`, `models.rs`.

use super::*;
use crate::tram::ring::RingRecordKind;
use alloc::vec;
use amcast_core::memory::Regions;
use amcast_core::{GroupSet, MsgId};

const OLD: u32 = 0x10;
const NEW: u32 = 0x30;
const RING: RecordRing = RecordRing { region: RegionId(0), base: LOG_BASE, lines: 8, lap: 8 };
const LINES: usize = (LOG_BASE + 8) as usize;

/// The one region of a process.
#[derive(Debug)]
struct OneRegion(Vec<CacheLine>);

impl Regions for OneRegion {
    fn lines(&self, _: RegionId) -> &[CacheLine] {
        &self.0
    }
}

type RawRecordLine = [u64; LINE_WORDS + 1];

/// A store of some words of one line.
#[derive(Clone)]
struct WordStore {
    line: usize,
    words: core::ops::RangeInclusive<usize>,
    value: RawRecordLine,
}

fn raw(line: &CacheLine) -> RawRecordLine {
    core::array::from_fn(|word| line.raw(word).load(core::sync::atomic::Ordering::Relaxed))
}

fn region() -> Vec<CacheLine> {
    (0..LINES).map(|_| CacheLine::default()).collect()
}

fn message(seq: u64) -> RingRecord {
    let msg = MsgId { sender: Pid(7), seq };
    RingRecord {
        kind: RingRecordKind::Message,
        bytes: 40,
        source: 0,
        lease: 1,
        msg,
        dst: GroupSet(1),
    }
}

/// The lines of a log of messages of two lines each.
fn record(seq: u64, epoch: u32) -> Vec<CacheLine> {
    let lines = region();
    RING.write(&lines, 0, epoch, &message(seq), &[seq as u8; 40]);
    lines.into_iter().skip(LOG_BASE as usize).take(2).collect()
}

/// A region in which the old term's log of three messages, at positions 2 to 8, is installed.
fn installed() -> Vec<CacheLine> {
    let lines = region();
    let mut log = OwnLog::begin_term((RING, &lines), OLD, 2, false);
    for seq in 0..3 {
        log.append(&lines, 2 + 2 * seq, record(seq, OLD).iter());
    }
    log.advance_tail(&lines, 2, 4);
    lines
}

/// The stores of the writer from here on, line by line; head lines word by word, others in two parts.
fn stores(before: &[RawRecordLine], after: &[CacheLine], order: &[usize]) -> Vec<WordStore> {
    let mut all = Vec::new();
    for &line in order {
        let value = raw(&after[line]);
        assert_ne!(before[line], value, "line {line} is written");
        let parts = if line < LOG_BASE as usize {
            (0..=LINE_WORDS).map(|w| w..=w).collect()
        } else {
            vec![0..=LINE_WORDS - 1, LINE_WORDS..=LINE_WORDS]
        };
        all.extend(parts.into_iter().map(|words| WordStore { line, words, value }));
    }
    all
}

/// A candidate's own half: it copies a log of one other message into it, from position 4 on.
fn own_half(silently: bool) -> Vec<WordStore> {
    let lines = installed();
    let before: Vec<RawRecordLine> = lines.iter().map(raw).collect();
    let mut log = OwnLog::begin_term((RING, &lines), NEW, 4, silently);
    log.append(&lines, 4, record(9, NEW).iter());
    log.append(&lines, 6, record(9, NEW).iter());
    log.advance_tail(&lines, 4, 4);
    let at = |pos| RING.at(pos) as usize;
    let records = [at(4), at(5), at(6), at(7)];
    let (term, control) = (TERM as usize, CONTROL as usize);
    let order: Vec<usize> = match silently {
        false => [&[term][..], &records, &[control]].concat(),
        true => [&records[..], &[term, control]].concat(),
    };
    stores(&before, &lines, &order)
}

/// A follower's half: a leader that leads again posts its log there.
fn followers_half(silently: bool) -> Vec<WordStore> {
    let own = region();
    let log = OwnLog::begin_term((RING, &own), NEW, 4, false);
    log.append(&own, 4, record(9, NEW).iter());
    log.append(&own, 6, record(9, NEW).iter());
    let mut out = Outbox::default();
    let mut follower = FollowerLog::begin_term((Pid(1), RING), NEW, 4, silently, &mut out);
    follower.append(4, (RING.region, 4), None, &mut out);
    let control = Control { epoch: NEW, tail: 4, commit: 4 };
    follower.advance_tail(control, (Ticket(0), false), &mut out);
    let (before, lines) = (installed(), installed());
    let before: Vec<RawRecordLine> = before.iter().map(raw).collect();
    let mut order = Vec::new();
    for output in out.items() {
        let amcast_core::Output::Medium(MemoryOutput::Write { at, source, .. }) = output else {
            continue;
        };
        for i in 0..source.count() {
            let line = (at + i) as usize;
            order.push(line);
            match source {
                WriteSource::Copy(from) => lines[line]
                    .copy(&own[(from.at + i) as usize], own[(from.at + i) as usize].stamp()),
                WriteSource::Made { head, stamp, .. } => lines[line].put(head, *stamp),
            }
        }
    }
    stores(&before, &lines, &order)
}

/// How the candidate judges what it has read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CandidateCheck {
    /// As the protocol does.
    Confirms,
    /// It believes what it has read: the mutant `skips-confirm`.
    Believes,
    /// It looks at the control line alone.
    ControlOnly,
}

/// Reads the old log from position 2 on, each line by itself in this order, then the head, control line first
/// or last. `looks[i]` says how many stores are done before the i-th read.
fn adopts(
    stores: &[WordStore],
    looks: &[usize; 4],
    reversed: bool,
    judge: CandidateCheck,
) -> Option<usize> {
    let lines = installed();
    let mut done = 0;
    let mut look = |upto: usize, range: core::ops::Range<usize>| -> Vec<RawRecordLine> {
        for store in &stores[done..upto] {
            for word in store.words.clone() {
                let cell = lines[store.line].raw(word);
                cell.store(store.value[word], core::sync::atomic::Ordering::Relaxed);
            }
        }
        done = upto;
        lines[range].iter().map(raw).collect()
    };
    let (first, middle, end) = (RING.at(2) as usize, RING.at(5) as usize, LINES);
    let read = if reversed {
        let later = look(looks[0], middle..end);
        [look(looks[1], first..middle), later].concat()
    } else {
        let begin = look(looks[0], first..middle);
        [begin, look(looks[1], middle..end)].concat()
    };
    let (control, term) = (CONTROL as usize, TERM as usize);
    let head = if reversed {
        let term = look(looks[2], term..term + 1);
        [look(looks[3], control..control + 1), term].concat()
    } else {
        let control = look(looks[2], control..control + 1);
        [control, look(looks[3], term..term + 1)].concat()
    };
    let head = LogHead::of(AccessOutcome::Words(&head)).expect("two lines");
    let holds = match judge {
        CandidateCheck::Confirms => head.holds(OLD, 2),
        CandidateCheck::Believes => true,
        CandidateCheck::ControlOnly => head.control.is_some_and(|c| c.epoch == OLD && c.tail <= 2),
    };
    let copied = OneRegion(region());
    for (line, words) in copied.0.iter().skip(first).zip(&read) {
        let words7 = words[..LINE_WORDS].try_into().expect("seven of eight");
        line.put(words7, LineStamp(words[LINE_WORDS]));
    }
    let view = LogView { ring: RING, view: RegionWindow(&copied), epoch: OLD, checks: false };
    let whole = |seq: &u64| {
        let mut payload = Vec::new();
        let record = view.read_checked(2 + 2 * seq, |_| true, &mut payload);
        record == Some(message(*seq)) && payload == [*seq as u8; 40]
    };
    holds.then(|| (0..3).take_while(whole).count())
}

/// The logs that a candidate adopts over all orders: how many messages each has, and how often.
fn explore(stores: &[WordStore], judge: CandidateCheck) -> [usize; 4] {
    let mut found = [0; 4];
    let n = stores.len();
    for reversed in [false, true] {
        for a in 0..=n {
            for b in a..=n {
                for c in b..=n {
                    for d in c..=n {
                        if let Some(messages) = adopts(stores, &[a, b, c, d], reversed, judge) {
                            found[messages] += 1;
                        }
                    }
                }
            }
        }
    }
    found
}

#[test]
fn a_log_that_is_written_over_is_never_adopted() {
    for stores in [own_half(false), followers_half(false)] {
        let [none, one, two, whole] = explore(&stores, CandidateCheck::Confirms);
        assert_eq!([none, one, two], [0; 3], "a part of the log is taken for all of it");
        assert!(whole > 0, "what is whole is adopted");
    }
}

#[test]
fn a_candidate_that_does_not_confirm_adopts_a_part() {
    for stores in [own_half(false), followers_half(false)] {
        assert!(explore(&stores, CandidateCheck::Believes)[..3].iter().sum::<usize>() > 0);
    }
}

#[test]
fn a_control_line_alone_does_not_tell_that_a_log_is_written_over() {
    for stores in [own_half(false), followers_half(false)] {
        assert!(explore(&stores, CandidateCheck::ControlOnly)[..3].iter().sum::<usize>() > 0);
    }
}

#[test]
fn a_writer_that_does_not_tell_first_has_a_part_adopted() {
    for stores in [own_half(true), followers_half(true)] {
        assert!(explore(&stores, CandidateCheck::Confirms)[..3].iter().sum::<usize>() > 0);
    }
}

#[test]
fn a_record_behind_a_tail_that_moved_is_not_consumed_and_neither_is_a_pad() {
    let lines = OneRegion(region());
    let mut log = OwnLog::begin_term((RING, &lines.0), OLD, 0, false);
    log.append(&lines.0, 0, record(0, OLD).iter());
    log.append_pad(&lines.0, 2);
    log.advance_tail(&lines.0, 0, 8);
    let checked = LogView { ring: RING, view: RegionWindow(&lines), epoch: OLD, checks: true };
    let read = |view: &LogView<'_>, pos| {
        view.read_checked(pos, |r| r.kind == RingRecordKind::Message, &mut Vec::new())
    };
    assert_eq!(read(&checked, 0), Some(message(0)));
    assert_eq!(read(&checked, 2), Some(RingRecord::pad(6)));
    log.advance_tail(&lines.0, 8, 8);
    assert_eq!((read(&checked, 0), read(&checked, 2)), (None, None));
    let believes = LogView { checks: false, ..checked };
    assert_eq!(
        read(&believes, 2),
        Some(RingRecord::pad(6)),
        "it is still there, and may be half of it"
    );
}

#[test]
#[should_panic(expected = "written over before the tail was advanced")]
fn lines_beyond_what_the_tail_leaves_room_for_are_refused() {
    let lines = region();
    let log = OwnLog::begin_term((RING, &lines), OLD, 2, false);
    log.append(&lines, 9, record(0, OLD).iter());
}

#[test]
#[should_panic(expected = "written over before the tail was advanced")]
fn lines_for_a_follower_beyond_its_tail_are_refused() {
    let mut out = Outbox::default();
    let log = FollowerLog::begin_term((Pid(1), RING), OLD, 2, false, &mut out);
    log.append(8, (RING.region, 3), None, &mut out);
}
