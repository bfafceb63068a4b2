//! Answers over a ring of 8 lines.

use super::*;
use amcast_core::Time;
use amcast_core::memory::CacheLine;

/// A writer and a reader over a ring of 8 lines.
struct Pair {
    writer: RingWriter,
    reader: RingReader,
    ring: Vec<CacheLine>,
    credit: CacheLine,
    /// The writer's life, and the one that the reader knows of.
    epoch: u32,
    known: u32,
    refused: Vec<(u64, Oversize)>,
    parts: usize,
    /// The reader's setting beside its credit.
    holds: HeldBack,
    settled: u64,
}

impl Pair {
    /// Gives the writer an answer, with the outcome of its token.
    fn push(&mut self, token: u64, bytes: &[u8]) {
        self.writer.push(token, outcome(token), bytes);
    }

    /// The reader has told the writer that it may begin.
    fn new() -> Self {
        let mut pair = Self {
            writer: RingWriter::new(Pid(9), 8),
            reader: RingReader::default(),
            ring: (0..8).map(|_| CacheLine::default()).collect(),
            credit: CacheLine::default(),
            epoch: 1,
            known: 1,
            refused: Vec::new(),
            parts: 0,
            holds: HeldBack::Nothing,
            settled: 0,
        };
        assert!(pair.read().is_empty());
        pair
    }

    /// Lets both run for some time.
    fn run(&mut self, rounds: usize) -> Vec<(u64, Vec<u8>)> {
        let mut got = Vec::new();
        for _ in 0..rounds {
            self.pump();
            got.extend(self.read());
        }
        got
    }

    fn pump(&mut self) {
        let mut outs = Vec::new();
        self.writer.pump(RegionId(0), self.epoch, &self.credit, &mut outs);
        for out in outs {
            let MemoryOutput::Write { at, source: WriteSource::Made { head, stamp, .. }, .. } = out
            else {
                panic!("an office only writes lines that it makes")
            };
            self.ring[at as usize].put(&head, stamp);
        }
    }

    fn read(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut got = Vec::new();
        if self.reader.epoch != Some(self.known) {
            self.reader.renew(self.known);
        }
        self.reader.settle(self.settled);
        let mut take = |t, b: RingReply<'_>| match b {
            RingReply::Whole(answer) => {
                assert_eq!(answer.outcome, outcome(t));
                got.push((t, answer.bytes.into_owned()));
            }
            RingReply::NotSent(oversize) => self.refused.push((t, oversize)),
            RingReply::Part => self.parts += 1,
        };
        let came = self.reader.poll(&self.ring, &mut take);
        if let Some(word) = self.reader.credit(8, !came, true) {
            let words = [word, self.holds as u64, self.settled, 0, 0, 0, 0];
            self.credit.put(&words, LineStamp::new(1, 0));
        }
        got
    }
}

/// Each answer has an outcome that follows from its token.
fn outcome(token: u64) -> Outcome {
    Outcome::ALL[(token % 3) as usize]
}

#[test]
fn answers_of_any_length_pass_a_small_ring() {
    let mut pair = Pair::new();
    let lengths = [0, 1, 39, 40, 41, 96, 97, 5_000];
    for (token, len) in lengths.into_iter().enumerate() {
        pair.push(token as u64, &vec![token as u8; len]);
    }
    let mut got = Vec::new();
    for _ in 0..200 {
        pair.pump();
        got.extend(pair.read());
    }
    let expected: Vec<_> =
        lengths.iter().enumerate().map(|(t, &n)| (t as u64, vec![t as u8; n])).collect();
    assert_eq!(got, expected);
    assert_eq!(pair.writer.backlog_bytes, 0);
}

#[test]
fn a_gateway_that_does_not_read_costs_the_node_a_bounded_backlog() {
    let mut pair = Pair::new();
    let answer = vec![7; 1 << 20];
    for token in 0..100 {
        pair.push(token, &answer);
        pair.pump();
    }
    let most = BACKLOG_BYTES_MAX + answer.len() + RECORD_BYTES;
    assert!(pair.writer.backlog_bytes <= most);
    assert_eq!(pair.writer.dropped, 36);
    assert_eq!(pair.writer.written, 8);
}

#[test]
fn an_answer_larger_than_the_backlog_passes_and_one_beyond_the_limit_is_told() {
    let mut pair = Pair::new();
    let most = ANSWER_BYTES_MAX as u64;
    let mut beyond = vec![7; ANSWER_BYTES_MAX + 1];
    pair.push(3, &beyond);
    beyond.truncate(BACKLOG_BYTES_MAX + 1);
    pair.push(4, &beyond);
    let mut got = Vec::new();
    while got.is_empty() {
        pair.pump();
        got.extend(pair.read());
    }
    assert_eq!(pair.refused, [(3, Oversize { outcome: outcome(3), bytes: most + 1, most })]);
    assert!(got == [(4, beyond)], "{} bytes", got[0].1.len());
    assert_eq!(pair.writer.dropped, 0);
}

#[test]
fn a_gateway_that_stands_still_is_not_looked_after_often_and_is_forgotten_in_time() {
    let mut pair = Pair::new();
    let start = Time(1_000_000);
    (0..3).for_each(|token| pair.push(token, &[7; 2_000]));
    assert!(pair.writer.is_eager(start));
    pair.pump();
    pair.writer.watch(start, false);
    assert!(pair.writer.is_eager(start));
    pair.writer.watch(start + STALLED, false);
    assert!(!pair.writer.is_eager(start + STALLED));
    pair.writer.watch(start + ABANDONED, false);
    assert_eq!((pair.writer.backlog(), pair.writer.backlog_bytes), (1, 2_000 + RECORD_BYTES));
    // It lives after all: what it had begun to read comes to its end.
    let mut got = Vec::new();
    for _ in 0..20 {
        got.extend(pair.read());
        pair.pump();
    }
    assert_eq!(got, [(0, vec![7; 2_000])]);
    pair.writer.watch(start + ABANDONED, true);
    assert!(pair.writer.stalled.is_none());
}

#[test]
fn a_node_that_starts_anew_is_read_from_its_first_answer_on() {
    let mut pair = Pair::new();
    pair.push(1, &[1; 2_000]);
    pair.pump();
    assert!(pair.read().is_empty(), "the node died within this answer");
    let lines = |pair: &Pair| pair.ring.iter().map(CacheLine::words).collect::<Vec<_>>();
    let old = lines(&pair);
    pair.writer = RingWriter::new(Pid(9), 8);
    pair.epoch = 2;
    pair.push(2, b"again");
    pair.pump();
    assert_eq!(lines(&pair), old, "the mailbox may just be reading what the old life wrote");
    assert!(pair.read().is_empty());
    pair.pump();
    assert_eq!(lines(&pair), old, "it has not heard of the new life");
    pair.known = 2;
    assert!(pair.read().is_empty());
    pair.pump();
    assert_eq!(pair.read(), [(2, b"again".to_vec())]);
}

#[test]
fn the_credit_of_an_earlier_gateway_is_void() {
    let mut pair = Pair::new();
    pair.push(1, &[1; 300]);
    pair.pump();
    pair.read();
    pair.read();
    assert!(pair.writer.read_by_mailbox(&pair.credit, 1) > Some(0));
    pair.writer.renew(2);
    assert_eq!(pair.writer.read_by_mailbox(&pair.credit, 1), None);
}

#[test]
fn small_answers_go_between_the_pieces_of_a_large_one() {
    let mut pair = Pair::new();
    let large: Vec<u8> = (0..1_000_000).map(|i| (i % 251) as u8).collect();
    pair.push(1, &large);
    let mut got = pair.run(10);
    for token in 2..12 {
        pair.push(token, b"small");
    }
    while got.len() < 11 {
        got.extend(pair.run(1));
    }
    let small = |token| (token, b"small".to_vec());
    assert_eq!(got[..10], (2..12).map(small).collect::<Vec<_>>());
    assert!(got[10] == (1, large), "the large one is whole");
    assert_eq!(pair.parts, 1_000_000 / PIECE_BYTES, "each piece but the last was reported");
    assert_eq!(pair.writer.backlog_bytes, 0);
}

#[test]
fn a_large_answer_comes_though_small_ones_never_end() {
    let mut pair = Pair::new();
    let large = vec![3; 3 * PIECE_BYTES];
    pair.push(1, &large);
    let (mut token, mut rounds, mut got) = (2, 0, Vec::new());
    while !got.iter().any(|(t, _)| *t == 1) {
        while pair.writer.backlog() < 20 {
            pair.push(token, &[7; 500]);
            token += 1;
        }
        got = pair.run(1);
        rounds += 1;
        assert!(rounds < 20_000, "it starves");
    }
    assert!(token > 200, "others had their turn: {token}");
}

#[test]
fn what_is_held_back_is_sent_when_it_is_wanted_and_forgotten_when_it_is_not() {
    let mut pair = Pair::new();
    (pair.holds, pair.settled) = (HeldBack::All, 1);
    pair.run(2);
    (1..=9).for_each(|token| pair.push(token, &[token as u8; 10]));
    pair.push(10, &[10; PIECE_BYTES + 1]);
    assert!(pair.run(5).is_empty());
    assert!(!pair.writer.is_eager(Time(1)), "nobody waits for it");
    pair.settled = 5;
    assert!(pair.run(5).is_empty());
    assert_eq!(pair.writer.backlog(), 6, "those from 5 on");
    pair.push(3, b"late, and not needed");
    pair.holds = HeldBack::Nothing;
    let tokens: Vec<u64> = pair.run(3_000).into_iter().map(|(token, _)| token).collect();
    assert_eq!(tokens, [5, 6, 7, 8, 9, 10]);
    assert_eq!((pair.writer.backlog_bytes, pair.writer.dropped), (0, 0));
}

#[test]
fn large_answers_alone_are_held_back_where_small_ones_are_wanted_of_all() {
    let mut pair = Pair::new();
    pair.holds = HeldBack::LargeReply;
    pair.run(2);
    pair.push(1, &[1; PIECE_BYTES + 1]);
    assert!(pair.run(5).is_empty() && !pair.writer.is_eager(Time(1)));
    pair.push(2, b"small");
    assert_eq!(pair.run(5), [(2, b"small".to_vec())]);
    pair.holds = HeldBack::Nothing;
    assert_eq!(pair.run(3_000), [(1, vec![1; PIECE_BYTES + 1])]);
}

#[test]
fn a_mailbox_that_says_it_read_more_than_was_written_is_not_believed() {
    let mut pair = Pair::new();
    pair.push(1, b"one");
    pair.credit.put(&[1 << 32 | 5, 0, 0, 0, 0, 0, 0], LineStamp::new(1, 0));
    let mut outs = Vec::new();
    assert!(!pair.writer.pump(RegionId(0), 1, &pair.credit, &mut outs) && outs.is_empty());
}

#[test]
fn a_large_answer_that_is_not_needed_any_more_ends_with_its_piece() {
    let mut pair = Pair::new();
    let large = vec![1; 40 * PIECE_BYTES];
    pair.push(1, &large);
    pair.run(10);
    // Another node was quicker. The next answer is understood all the same.
    pair.settled = 2;
    pair.push(2, b"next");
    pair.push(3, &large);
    let lines = lines_of(PIECE_BYTES);
    assert_eq!(pair.run(lines as usize), [(2, b"next".to_vec())]);
    let got = pair.run(41 * lines as usize);
    assert!(got == [(3, large)], "{} answers", got.len());
}

#[test]
fn a_gateway_that_has_gone_while_answers_are_held_back_costs_nothing_in_the_end() {
    let mut pair = Pair::new();
    (pair.holds, pair.settled) = (HeldBack::All, 1);
    pair.run(2);
    (1..100).for_each(|token| pair.push(token, &[0; 1_000]));
    pair.run(1);
    let start = Time(1_000_000);
    let later = |n: u64| start + Span(n * ABANDONED.0);
    pair.writer.watch(start, false);
    pair.writer.watch(start, false);
    // A reader that sends anything is alive.
    pair.settled = 2;
    pair.run(2);
    pair.writer.watch(later(1), false);
    assert_eq!(pair.writer.backlog(), 98);
    pair.writer.watch(later(1), false);
    pair.writer.watch(later(2), false);
    assert_eq!(pair.writer.backlog(), 1);
}
