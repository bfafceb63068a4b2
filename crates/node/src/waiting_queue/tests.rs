//! The queue by itself, and against a slow second implementation.

use super::*;
use amcast_core::rng::Rng;

/// An item of a line, with bytes and a number of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SizedItem {
    line: u8,
    number: u32,
    bytes: usize,
}

impl QueueItem for SizedItem {
    type Line = u8;

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The same queue as one list, in which every question is answered by looking at all of it.
#[derive(Default)]
struct SlowQueue {
    all: Vec<SizedItem>,
    /// The lines in the order of their turns, also empty ones.
    turns: Vec<u8>,
}

impl SlowQueue {
    fn head(&self, line: u8) -> Option<SizedItem> {
        self.all.iter().copied().find(|parcel| parcel.line == line)
    }

    fn push(&mut self, parcel: SizedItem) {
        if self.head(parcel.line).is_none() {
            self.turns.retain(|&line| line != parcel.line);
            self.turns.push(parcel.line);
        }
        self.all.push(parcel);
    }

    fn take(&mut self, fits: impl Fn(&SizedItem) -> bool) -> Option<SizedItem> {
        let heads: Vec<SizedItem> = self.turns.iter().filter_map(|&line| self.head(line)).collect();
        let taken = heads.into_iter().find(|parcel| fits(parcel))?;
        self.all.retain(|parcel| *parcel != taken);
        self.turns.retain(|&line| line != taken.line);
        self.turns.push(taken.line);
        Some(taken)
    }

    fn take_heads(&mut self, stale: impl Fn(&SizedItem) -> bool) -> Vec<SizedItem> {
        let mut taken = Vec::new();
        for line in self.turns.clone() {
            while let Some(head) = self.head(line).filter(|parcel| stale(parcel)) {
                self.all.retain(|parcel| *parcel != head);
                taken.push(head);
            }
        }
        taken
    }

    fn take_all(&mut self, which: impl Fn(&SizedItem) -> bool) -> Vec<SizedItem> {
        let of = |line: u8| self.all.iter().copied().filter(move |parcel| parcel.line == line);
        let taken: Vec<SizedItem> =
            self.turns.iter().flat_map(|&line| of(line)).filter(|parcel| which(parcel)).collect();
        self.all.retain(|parcel| !which(parcel));
        taken
    }
}

/// The common behaviour of both queues, step by step.
fn run_of(seed: u64) {
    let mut rng = Rng::new(seed);
    let (mut queue, mut slow) = (WaitingQueue::default(), SlowQueue::default());
    for number in 0..400 {
        // Lines that are blocked, and an age beyond which items are stale, change from step to step.
        let (blocked, age) = (rng.below(8) as u8, rng.below(60) as u32);
        let fits =
            |parcel: &SizedItem| parcel.line % 4 != blocked && !parcel.bytes.is_multiple_of(7);
        match rng.below(12) {
            0..=5 => {
                let (line, bytes) = (rng.below(6) as u8, rng.below(50) as usize);
                let parcel = SizedItem { line, number, bytes };
                queue.push(line, parcel);
                slow.push(parcel);
            }
            6..=9 => assert_eq!(queue.take(fits), slow.take(fits), "seed {seed}"),
            10 => {
                let stale = |parcel: &SizedItem| parcel.number + age < number;
                assert_eq!(queue.take_heads(stale), slow.take_heads(stale), "seed {seed}");
            }
            _ => {
                let which = |parcel: &SizedItem| parcel.number % 5 == age % 5;
                assert_eq!(queue.take_all(which), slow.take_all(which), "seed {seed}");
            }
        }
        let bytes = slow.all.iter().map(|parcel| parcel.bytes).sum();
        assert_eq!(queue.occupancy(), Occupancy { count: slow.all.len(), bytes }, "seed {seed}");
        for line in 0..6 {
            assert_eq!(queue.has(line), slow.head(line).is_some(), "seed {seed}, line {line}");
        }
        let mut all: Vec<u32> = queue.iter().map(|parcel| parcel.number).collect();
        all.sort_unstable();
        assert!(all.iter().eq(slow.all.iter().map(|parcel| &parcel.number)), "seed {seed}");
    }
}

#[test]
fn it_does_what_a_list_does_that_is_searched_each_time() {
    (0..300).for_each(run_of);
}

fn queue_of(lines: &[u8]) -> WaitingQueue<SizedItem> {
    let mut queue = WaitingQueue::default();
    for (number, &line) in (0..).zip(lines) {
        queue.push(line, SizedItem { line, number, bytes: 3 });
    }
    queue
}

fn taken(queue: &mut WaitingQueue<SizedItem>, full: u8) -> Vec<u32> {
    let fits = |parcel: &SizedItem| parcel.line != full;
    std::iter::from_fn(|| queue.take(fits).map(|parcel| parcel.number)).collect()
}

#[test]
fn lines_take_turns_and_keep_their_order() {
    let mut queue = queue_of(&[0, 0, 1, 0, 1]);
    assert_eq!(queue.occupancy(), Occupancy { count: 5, bytes: 15 });
    assert_eq!(taken(&mut queue, 9), [0, 2, 1, 4, 3]);
    assert_eq!(queue.occupancy(), Occupancy::default());
}

#[test]
fn a_destination_without_room_delays_only_its_own() {
    let mut queue = queue_of(&[0, 1, 0, 1]);
    assert_eq!(taken(&mut queue, 0), [1, 3]);
    assert!(queue.has(0) && !queue.has(1));
    assert_eq!(taken(&mut queue, 1), [0, 2]);
}

#[test]
fn a_queue_that_is_empty_again_and_again_keeps_the_room_of_its_lines() {
    let mut queue = queue_of(&[]);
    for number in 0..100 {
        let line = number as u8 % 7;
        queue.push(line, SizedItem { line, number, bytes: 1 });
        assert!(queue.spare.is_empty() && queue.take(|_| true).is_some());
        let rooms: Vec<usize> = queue.spare.iter().map(VecDeque::capacity).collect();
        assert!(matches!(rooms[..], [1..=SPARE_ITEMS_MAX]), "{rooms:?}");
    }
    // A line that was long is not kept.
    for number in 0..=SPARE_ITEMS_MAX as u32 {
        queue.push(0, SizedItem { line: 0, number, bytes: 1 });
    }
    while queue.take(|_| true).is_some() {}
    assert!(queue.spare.is_empty());
}
