//! The queue of a node by itself: its bound, what takes the place of what, and what answers it believes.

use super::frames::{self, AccessHead, RemoteAccess, RemoteFrame};
use super::link::{Posted, RemoteLink};
use super::{FrameSink, RemoteFate, RemoteFault, RemoteTarget, judge_frame};
use amcast_core::id::Pid;
use amcast_core::memory::RegionId;
use amcast_core::step::Ticket;

const POSTER: (Pid, u64) = (Pid(7), 3);

fn access(region: u16, at: u32, count: u32) -> RemoteAccess {
    let to = RemoteTarget { pid: Pid(1), incarnation: 1, region: RegionId(region), at };
    let head = AccessHead { is_read: false, wants: true, bell: false, from: POSTER.0, to };
    RemoteAccess { head, count }
}

/// Posts a write whose words are all `n`; the ticket is `n`, too. The tickets that are lost by it.
fn post(link: &mut RemoteLink, access: RemoteAccess, n: u64) -> (Posted, Vec<u64>) {
    let mut lost = Vec::new();
    let words = access.count as usize * 8;
    let fill =
        |bytes: &mut Vec<u8>| (0..words).for_each(|_| bytes.extend_from_slice(&n.to_le_bytes()));
    let ticket = Some(Ticket(n));
    let posted = link.post(POSTER, ticket, access, fill, &mut |pid, life, ticket| {
        assert_eq!((pid, life), POSTER);
        lost.push(ticket.0);
    });
    (posted, lost)
}

/// Takes everything: the number of each access, and its first word.
#[derive(Default)]
struct AllFrames(Vec<(u64, u64)>);

impl FrameSink for AllFrames {
    fn takes(&self, _: usize, _: usize) -> bool {
        true
    }

    fn send(&mut self, _: usize, frame: &[u8]) {
        assert!(judge_frame(frame));
        let Some(RemoteFrame::Access { number, lines, .. }) = frames::decode(frame) else {
            panic!("{frame:?}")
        };
        self.0.push((number, frames::lines(lines).next().map_or(0, |line| line[0])));
    }

    fn end(&mut self, _: usize, why: RemoteFault) {
        panic!("{why}");
    }
}

/// The accesses that would be sent now.
fn sent(link: &mut RemoteLink) -> Vec<(u64, u64)> {
    let mut all = AllFrames::default();
    link.hand_over(0, &mut all);
    all.0
}

fn tickets(link: &mut RemoteLink, fates: &[(u64, u8)]) -> Option<Vec<(u64, RemoteFate)>> {
    let mut told = Vec::new();
    let all = fates.iter().all(|&(number, fate)| {
        link.outcome(number, fate, &mut |_, _, ticket, fate| told.push((ticket.0, fate)))
    });
    all.then_some(told)
}

#[test]
fn nothing_is_kept_before_the_first_connection() {
    let mut link = RemoteLink::new();
    assert_eq!(post(&mut link, access(0, 0, 1), 1), (Posted::Lost, vec![]));
    assert_eq!(link.backlog(), 0);
    link.opened(9, 0);
    assert_eq!(post(&mut link, access(0, 0, 1), 2), (Posted::Queued, vec![]));
    assert_eq!(sent(&mut link), [(1, 2)]);
    assert_eq!(sent(&mut link), [], "handed over once");
    assert_eq!(tickets(&mut link, &[(1, 0)]), Some(vec![(2, RemoteFate::Written)]));
    assert_eq!(link.backlog(), 0);
}

#[test]
fn a_write_over_the_same_lines_takes_the_place_of_the_last_one_to_its_region_while_there_is_no_connection()
 {
    let mut link = RemoteLink::new();
    link.opened(9, 0);
    post(&mut link, access(0, 0, 1), 1);
    assert_eq!(sent(&mut link), [(1, 1)]);
    link.lose(&mut |_, _, ticket| assert_eq!(ticket, Ticket(1)));
    // The first was sent, and may be there already: it keeps its place.
    for (region, at, n) in [(0, 0, 2), (0, 0, 3), (1, 0, 4), (0, 0, 5), (0, 1, 6), (0, 0, 7)] {
        assert_eq!(post(&mut link, access(region, at, 1), n), (Posted::Lost, vec![]));
    }
    link.opened(9, 0);
    assert_eq!(sent(&mut link), [(1, 1), (2, 5), (3, 4), (4, 6), (5, 7)]);
    let _ = post(&mut link, access(0, 0, 1), 8);
    let _ = post(&mut link, access(0, 0, 1), 9);
    assert_eq!(sent(&mut link), [(6, 8), (7, 9)], "with a connection each is sent");
    // Outcomes of those that were given as lost are nobody's.
    let all: Vec<_> = (1..=7).map(|number| (number, 0)).collect();
    let told = vec![(8, RemoteFate::Written), (9, RemoteFate::Written)];
    assert_eq!(tickets(&mut link, &all), Some(told));
}

#[test]
fn a_queue_that_is_full_is_dropped_and_the_next_connection_says_so() {
    let mut link = RemoteLink::new();
    link.bound(399);
    link.opened(9, 0);
    for n in 1..=3 {
        assert_eq!(post(&mut link, access(0, n as u32, 1), n), (Posted::Queued, vec![]));
    }
    assert_eq!(post(&mut link, access(0, 4, 1), 4), (Posted::Lost, vec![1, 2, 3]));
    assert_eq!(post(&mut link, access(0, 6, 1), 6), (Posted::Lost, vec![]), "nothing is kept");
    assert_eq!(link.backlog(), 0);
    assert!(link.take_overflow() && !link.take_overflow());
    assert!(!link.is_open() && sent(&mut link).is_empty());
    let mut open = Vec::new();
    link.greet(5, &mut open);
    let Some(RemoteFrame::Open { start: 5, peer: 9, oldest }) = frames::decode(&open) else {
        panic!("{open:?}")
    };
    assert_eq!(oldest, 6, "the five before are gone");
    // In a later start of the other node there is no gap.
    link.opened(10, 0);
    assert_eq!(post(&mut link, access(0, 5, 1), 5), (Posted::Queued, vec![]));
    assert_eq!(sent(&mut link).len(), 1);
}

#[test]
fn answers_that_cannot_be_are_not_believed() {
    for fates in [&[(2, 0)][..], &[(1, 9)], &[(0, 0)], &[(1, 0), (1, 0)], &[(u64::MAX, 0)]] {
        let mut link = RemoteLink::new();
        link.opened(9, 0);
        post(&mut link, access(0, 0, 1), 1);
        assert_eq!(tickets(&mut link, fates), None, "before it was sent");
        sent(&mut link);
        assert_eq!(tickets(&mut link, fates), None, "{fates:?}");
    }
    let mut link = RemoteLink::new();
    link.opened(9, 0);
    post(&mut link, access(0, 0, 1), 1);
    post(&mut link, access(0, 1, 1), 2);
    assert!(!link.carried_out(1), "before it was sent");
    sent(&mut link);
    assert!(!link.carried_out(1), "its outcome is missing");
    assert_eq!(tickets(&mut link, &[(2, 0)]), None, "the outcome of the first is missing");
    assert!(!link.words((1, false), [[0; 8]].into_iter(), &mut |_, _, _, _| {}), "it is no read");
    let told = vec![(1, RemoteFate::Denied), (2, RemoteFate::Written)];
    assert_eq!(tickets(&mut link, &[(1, 1), (2, 0)]), Some(told));
}

#[test]
fn a_queue_that_is_never_empty_does_not_grow() {
    let mut link = RemoteLink::new();
    link.opened(9, 0);
    post(&mut link, access(0, 0, 64), 1);
    for number in 2..10_000 {
        post(&mut link, access(0, 0, 64), number);
        sent(&mut link);
        assert!(tickets(&mut link, &[(number - 1, 0)]).is_some());
    }
    assert!(link.room() < 2 << 20, "{}", link.room());
}

#[test]
fn a_read_is_answered_once_all_its_words_are_there() {
    let mut link = RemoteLink::new();
    link.opened(9, 0);
    let mut read = access(0, 0, 3);
    read.head.is_read = true;
    let posted = link.post(POSTER, Some(Ticket(4)), read, |_| {}, &mut |_, _, _| {});
    assert_eq!(posted, Posted::Queued);
    assert_eq!(sent(&mut link), [(1, 0)]);
    assert_eq!(tickets(&mut link, &[(1, 0)]), None, "a read is not written");
    let mut told = Vec::new();
    for (more, count) in [(true, 2), (false, 1)] {
        let lines = (0..count).map(|i| [i; 8]);
        assert!(link.words((1, more), lines, &mut |_, _, ticket, words| {
            told.push((ticket.0, words.to_vec()));
        }));
    }
    assert_eq!(told, [(4, vec![[0; 8], [1; 8], [0; 8]])]);
    for (more, count) in [(true, 4), (false, 2), (false, 4)] {
        let mut link = RemoteLink::new();
        link.opened(9, 0);
        link.post(POSTER, Some(Ticket(4)), read, |_| {}, &mut |_, _, _| {});
        assert_eq!(sent(&mut link), [(1, 0)]);
        let lines = (0..count).map(|i| [i; 8]);
        assert!(!link.words((1, more), lines, &mut |_, _, _, _| {}), "{count} lines in place of 3");
    }
    link.lose(&mut |_, _, _| panic!("it was answered"));
    let posted = link.post(POSTER, Some(Ticket(5)), read, |_| {}, &mut |_, _, _| {});
    assert_eq!(posted, Posted::Lost, "a read is not kept");
}
