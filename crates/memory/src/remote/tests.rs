//! The queue of a node by itself: its bound, what takes the place of what, and what answers it believes.

use super::agent::AgentFrames;
use super::frames::{
    self, AccessHead, LINE_BYTES, RemoteAccess, RemoteFrame, encode_open, encode_opened,
};
use super::link::{OnLost, Posted, READS_BYTES_MAX, RemoteLink};
use super::{
    FrameSink, MemoryAgent, RemoteFate, RemoteFault, RemoteMap, RemoteMemory, RemoteTarget,
    judge_frame,
};
use crate::{ClusterId, Directory, MappedCarrier, StartOptions};
use amcast_core::id::Pid;
use amcast_core::memory::{RegionId, RegionSpec};
use amcast_core::rng::Rng;
use amcast_core::step::Ticket;
use core::cell::Cell;
use std::collections::VecDeque;

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

/// The accesses that would be sent now: the number of each, and its first word.
fn sent(link: &mut RemoteLink) -> Vec<(u64, u64)> {
    let mut all = AgentFrames::default();
    link.hand_over((0, usize::MAX), &mut all);
    let mut told = FramesSent(Vec::new());
    all.send(&mut told);
    told.0
}

/// Takes everything.
struct FramesSent(Vec<(u64, u64)>);

impl FrameSink for FramesSent {
    fn room(&self, _: usize) -> usize {
        usize::MAX
    }

    fn send(&mut self, _: usize, frame: &[u8]) {
        assert!(judge_frame(frame));
        let Some(RemoteFrame::Access { access, number, lines }) = frames::decode(frame) else {
            panic!("{frame:?}")
        };
        // Of a read: how many lines it wants.
        let first = frames::lines(lines).next().map_or(u64::from(access.count), |line| line[0]);
        self.0.push((number, first));
    }

    fn end(&mut self, _: usize, why: RemoteFault) {
        panic!("{why}");
    }
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
    assert_eq!(sent(&mut link), [(1, 3)]);
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
        assert_eq!(sent(&mut link), [(1, 3)]);
        let lines = (0..count).map(|i| [i; 8]);
        assert!(!link.words((1, more), lines, &mut |_, _, _, _| {}), "{count} lines in place of 3");
    }
    link.lose(&mut |_, _, _| panic!("it was answered"));
    let posted = link.post(POSTER, Some(Ticket(5)), read, |_| {}, &mut |_, _, _| {});
    assert_eq!(posted, Posted::Lost, "a read is not kept");
}

#[test]
fn reads_wait_for_the_lines_of_those_before_them_and_lost_ones_ask_for_none() {
    let mut link = RemoteLink::new();
    link.opened(9, 0);
    let lines = (READS_BYTES_MAX / LINE_BYTES) as u32;
    let wants = |count| {
        let mut read = access(0, 0, count);
        read.head.is_read = true;
        read
    };
    let counts = [2 * lines, 1, lines - 1, 1];
    for count in counts {
        let posted = link.post(POSTER, Some(Ticket(4)), wants(count), |_| {}, &mut |_, _, _| {});
        assert_eq!(posted, Posted::Queued);
    }
    post(&mut link, access(0, 0, 1), 7);
    assert_eq!(sent(&mut link), [(1, 2 * u64::from(lines))], "a long one by itself");
    assert!(link.outcome(1, frames::REFUSED, &mut |_, _, _, _| {}));
    assert_eq!(sent(&mut link), [(2, 1), (3, u64::from(lines) - 1)], "as many as there may be");
    assert!(link.words((2, false), [[0; 8]].into_iter(), &mut |_, _, _, _| {}));
    assert_eq!(sent(&mut link), [(4, 1), (5, 7)]);
    let mut lost = 0;
    link.lose(&mut |_, _, _| lost += 1);
    assert_eq!(lost, 3);
    link.opened(9, 2);
    assert_eq!(sent(&mut link), [(3, 0), (4, 0), (5, 7)], "the numbers have no gap");
}

#[test]
fn while_a_node_is_silent_accesses_are_lost_at_once_and_writes_are_sent_all_the_same() {
    let mut link = RemoteLink::new();
    link.opened(9, 0);
    let nobody: OnLost<'_> = &mut |_, _, _| panic!("nobody waits for an answer");
    link.abandon(nobody);
    assert_eq!(post(&mut link, access(0, 0, 1), 1), (Posted::Queued, vec![]), "it owes nothing");
    assert_eq!(sent(&mut link), [(1, 1)]);
    post(&mut link, access(0, 0, 1), 2);
    let mut lost = Vec::new();
    link.abandon(&mut |pid, life, ticket| lost.push(((pid, life), ticket.0)));
    assert_eq!(lost, [(POSTER, 1), (POSTER, 2)], "also what was not sent yet");
    link.abandon(nobody);
    assert_eq!(post(&mut link, access(0, 0, 1), 3), (Posted::Lost, vec![]));
    let mut read = access(0, 0, 1);
    read.head.is_read = true;
    assert_eq!(link.post(POSTER, Some(Ticket(4)), read, |_| {}, nobody), Posted::Lost);
    assert_eq!(sent(&mut link), [(2, 2), (3, 3)], "each write, and no read");
    assert_eq!(tickets(&mut link, &[(1, 0)]), Some(vec![]), "its outcome is nobody's");
    assert_eq!(post(&mut link, access(0, 0, 1), 5), (Posted::Queued, vec![]), "it answers");
    assert_eq!(sent(&mut link), [(4, 5)]);
    let told = vec![(5, RemoteFate::Written)];
    assert_eq!(tickets(&mut link, &[(2, 1), (4, 0)]), Some(told));
    assert_eq!(link.backlog(), 0);
}

#[test]
fn once_half_of_the_queue_to_a_silent_node_is_taken_accesses_wait_for_their_answers() {
    let mut link = RemoteLink::new();
    link.bound(399);
    link.opened(9, 0);
    post(&mut link, access(0, 0, 1), 1);
    assert_eq!(sent(&mut link), [(1, 1)]);
    link.abandon(&mut |_, _, ticket| assert_eq!(ticket, Ticket(1)));
    assert_eq!(post(&mut link, access(0, 1, 1), 2), (Posted::Lost, vec![]));
    assert_eq!(post(&mut link, access(0, 2, 1), 3), (Posted::Queued, vec![]));
    link.abandon(&mut |_, _, ticket| panic!("{ticket:?} waits"));
    let mut lost = Vec::new();
    link.lose(&mut |_, _, ticket| lost.push(ticket.0));
    assert_eq!(lost, [3]);
    link.opened(9, 0);
    assert_eq!(sent(&mut link), [(1, 1), (2, 2), (3, 3)]);
}

/// The accesses that another node gets: number, whether it is a read, and whether its outcome is wanted.
struct AccessesSent<'a>(&'a mut VecDeque<(u64, bool, bool)>);

impl FrameSink for AccessesSent<'_> {
    fn room(&self, _: usize) -> usize {
        usize::MAX
    }

    fn send(&mut self, _: usize, frame: &[u8]) {
        let Some(RemoteFrame::Access { access, number, .. }) = frames::decode(frame) else {
            panic!("{frame:?}")
        };
        self.0.push_back((number, access.head.is_read, access.head.wants));
    }

    fn end(&mut self, _: usize, why: RemoteFault) {
        panic!("{why}");
    }
}

/// Posts, sends, answers and gives up at random; the tickets in the order in which they were answered, and how many there are.
fn answered_at_random(seed: u64) -> (Vec<u64>, u64) {
    let (mut rng, mut link) = (Rng::stream(seed, "link"), RemoteLink::new());
    link.opened(9, 0);
    let (mut answered, mut asked) = (Vec::new(), VecDeque::new());
    let mut posted = 0;
    for step in 0.. {
        // In the end all is sent, and answered.
        let act = if step < 300 { rng.below(8) } else { 4 + step % 2 };
        match act {
            0..=3 => {
                posted += 1;
                let mut access = access(0, 0, 1);
                access.head.is_read = act == 0;
                let fill = |bytes: &mut Vec<u8>| bytes.resize(bytes.len() + LINE_BYTES, 0);
                let fill = |bytes: &mut Vec<u8>| {
                    if act > 0 {
                        fill(bytes)
                    }
                };
                let ticket = Some(Ticket(posted));
                if link.post(POSTER, ticket, access, fill, &mut |_, _, _| {}) == Posted::Lost {
                    answered.push(posted);
                }
            }
            4 => {
                let mut all = AgentFrames::default();
                link.hand_over((0, usize::MAX), &mut all);
                all.send(&mut AccessesSent(&mut asked));
            }
            5 | 6 => {
                let Some((number, is_read, wants)) = asked.pop_front() else { continue };
                let is_right = if is_read {
                    let mut tell = |_, _, ticket: Ticket, _: &[_]| answered.push(ticket.0);
                    link.words((number, false), [[0; 8]].into_iter(), &mut tell)
                } else if wants {
                    link.outcome(number, 0, &mut |_, _, ticket, _| answered.push(ticket.0))
                } else {
                    link.carried_out(number)
                };
                assert!(is_right, "{seed}: {number}");
            }
            _ => link.abandon(&mut |_, _, ticket| answered.push(ticket.0)),
        }
        if step >= 300 && link.backlog() == 0 {
            break;
        }
    }
    (answered, posted)
}

#[test]
fn each_access_is_answered_once_and_in_order_however_often_the_node_is_given_up() {
    for seed in 0..if cfg!(miri) { 4 } else { 400 } {
        let (answered, posted) = answered_at_random(seed);
        assert_eq!(answered, (1..=posted).collect::<Vec<_>>(), "{seed}");
    }
}

#[test]
fn what_a_panic_leaves_of_a_frame_is_not_sent() {
    let mut link = RemoteLink::new();
    link.opened(9, 0);
    post(&mut link, access(0, 0, 1), 1);
    let half = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let fill = |bytes: &mut Vec<u8>| bytes.extend_from_slice(&[0; 32]);
        link.post(POSTER, None, access(0, 0, 1), fill, &mut |_, _, _| {})
    }));
    assert!(half.is_err(), "half of a line is none");
    post(&mut link, access(0, 0, 1), 2);
    assert_eq!(sent(&mut link), [(1, 1), (2, 2)]);
}

/// The agent of a node, connected to another one that has one process, and what it has sent there.
fn connected() -> (MemoryAgent, Directory, MappedCarrier) {
    connected_in(Directory::heap(ClusterId(1), 2, 0).expect("it is small"))
}

#[test]
fn a_node_has_the_client_places_that_are_its_own() {
    let directory = Directory::heap(ClusterId(1), 2, 3).expect("it is small");
    let (node_of, near, places) = (vec![0, 1], vec![0], vec![0, 1, 0]);
    let map = RemoteMap { here: 0, nodes: 2, node_of, near, places, first_incarnation: 0 };
    let directory = directory.with_remote(RemoteMemory::new(map, 5));
    let other = directory.lease(1).expect("there is such a place");
    assert!(other.is_none(), "the other node cannot see that it is taken");
    let own = [directory.lease(0), directory.lease_any()].map(|lease| lease.expect("it exists"));
    assert!(own.iter().all(Option::is_some) && directory.lease_any().expect("asked").is_none());
}

fn connected_in(directory: Directory) -> (MemoryAgent, Directory, MappedCarrier) {
    let specs = [RegionSpec { name: "lines", lines: 1 << 16, writer: Pid(1), guarded: false }];
    let (node_of, near) = (vec![0, 1], vec![0]);
    let map = RemoteMap { here: 0, nodes: 2, node_of, near, places: vec![], first_incarnation: 0 };
    let directory = directory.with_remote(RemoteMemory::new(map, 5));
    let carrier = directory.start(Pid(0), &specs, StartOptions::default()).expect("it is small");
    let mut agent = MemoryAgent::new(directory.clone());
    agent.up(1);
    (agent, directory, carrier)
}

fn hear(agent: &mut MemoryAgent, fill: impl Fn(&mut Vec<u8>)) -> Result<(), RemoteFault> {
    let mut bytes = Vec::new();
    fill(&mut bytes);
    agent.frame(1, &bytes)
}

#[test]
fn a_connection_is_opened_once_from_each_side() {
    let (mut agent, _directory, _carrier) = connected();
    let open = |bytes: &mut Vec<u8>| encode_open([9, 0, 1], bytes);
    let opened = |bytes: &mut Vec<u8>| encode_opened([9, 5, 0], bytes);
    assert_eq!([hear(&mut agent, open), hear(&mut agent, opened)], [Ok(()); 2]);
    let malformed = Err(RemoteFault::Malformed);
    assert_eq!([hear(&mut agent, open), hear(&mut agent, opened)], [malformed; 2]);
    agent.up(1);
    assert_eq!(
        [hear(&mut agent, open), hear(&mut agent, opened)],
        [Ok(()); 2],
        "it is another one"
    );
}

#[test]
fn a_node_that_asks_for_more_lines_than_it_may_is_not_answered() {
    let (mut agent, directory, _carrier) = connected();
    let most = (READS_BYTES_MAX / LINE_BYTES) as u32;
    let number = Cell::new(0);
    let read = |agent: &mut MemoryAgent, count| {
        number.set(number.get() + 1);
        let mut read = access(0, 0, count);
        let incarnation = directory.layout().live(Pid(0));
        read.head.to = RemoteTarget { pid: Pid(0), incarnation, region: RegionId(0), at: 0 };
        (read.head.is_read, read.head.from) = (true, Pid(1));
        hear(agent, |bytes| read.encode(number.get(), bytes))
    };
    for before_it_is_answered in [false, true] {
        hear(&mut agent, |bytes| encode_open([9, 0, 1], bytes)).expect("it opens");
        number.set(0);
        for count in [1 << 16, most - (1 << 16)] {
            assert_eq!(read(&mut agent, count), Ok(()), "as many as may be");
        }
        if before_it_is_answered {
            assert_eq!(read(&mut agent, 1), Err(RemoteFault::Malformed));
        } else {
            let mut lines = LinesSent(0);
            agent.flush(&mut lines);
            assert_eq!(lines.0, most as usize);
            assert_eq!(read(&mut agent, 1), Ok(()));
            agent.up(1);
        }
    }
}

/// Counts the lines that are sent as answers to reads.
struct LinesSent(usize);

impl FrameSink for LinesSent {
    fn room(&self, _: usize) -> usize {
        usize::MAX
    }

    fn send(&mut self, _: usize, frame: &[u8]) {
        if let Some(RemoteFrame::Words { lines, .. }) = frames::decode(frame) {
            self.0 += frames::lines(lines).count();
        }
    }

    fn end(&mut self, _: usize, why: RemoteFault) {
        panic!("{why}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "the interpreter maps no files")]
fn memory_that_cannot_be_mapped_for_now_ends_the_connection_and_misses_no_access() {
    let base = std::env::temp_dir().join(format!("amcast-no-room-{}", std::process::id()));
    std::fs::create_dir_all(&base).expect("a directory can be made");
    let directory = Directory::open(&base, ClusterId(1), 2, 0).expect("it is small");
    let (mut agent, directory, carrier) = connected_in(directory);
    let incarnation = directory.layout().live(Pid(0));
    let file = base.join(format!("amcast-{:016x}", 1)).join(format!("p0.{incarnation}"));
    let aside = file.with_extension("aside");
    let write = |agent: &mut MemoryAgent, number: u64| {
        let mut write = access(0, 0, 1);
        write.head.to = RemoteTarget { pid: Pid(0), incarnation, region: RegionId(0), at: 0 };
        write.head.from = Pid(1);
        hear(agent, |bytes| {
            write.encode(number, bytes);
            (0..8).for_each(|_| bytes.extend_from_slice(&number.to_le_bytes()));
        })
    };
    let stamp = || carrier.window().region(RegionId(0))[0].stamp().0;
    let open = |bytes: &mut Vec<u8>| encode_open([9, 5, 1], bytes);
    hear(&mut agent, open).expect("it opens");
    // A directory in its place: the system finds it, and does not map it.
    std::fs::rename(&file, &aside).expect("it is ours");
    std::fs::create_dir(&file).expect("its name is free");
    assert_eq!(write(&mut agent, 1), Err(RemoteFault::NoRoom(Pid(0))));
    std::fs::remove_dir(&file).expect("it is empty");
    std::fs::rename(&aside, &file).expect("it is ours");
    agent.up(1);
    hear(&mut agent, open).expect("it opens again");
    assert_eq!((write(&mut agent, 1), stamp()), (Ok(()), 1));
    drop(carrier);
    let _ = std::fs::remove_dir_all(&base);
}
