//! Streams of frames between two endpoints over provider `tcp`.

use amcast_fabric::{
    FabricEndpoint, FabricEvent, FabricSettings, FabricStream, FabricWrite, StreamFault,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const RING: usize = 4096;
const FRAME_MAX: usize = 64 << 10;

fn settings() -> FabricSettings {
    FabricSettings { bind: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), ..FabricSettings::default() }
}

fn pair() -> [FabricStream; 2] {
    let open = || FabricStream::open(&settings(), RING, FRAME_MAX).expect("opened");
    let (mut a, mut b) = (open(), open());
    a.meet(b.address().clone()).expect("of one kind");
    b.meet(a.address().clone()).expect("of one kind");
    [a, b]
}

/// The frame of a number, of a length that depends on it.
fn frame(number: usize, lengths: &[usize]) -> Vec<u8> {
    let length = lengths[number % lengths.len()];
    (0..length).map(|i| (i * 31 + number) as u8).collect()
}

#[test]
fn frames_of_any_length_arrive_in_order_both_ways_through_small_rings() {
    let _limit = amcast_test_policy::time_limit();
    // Longer than a ring, none at all, and such that frames end on every word of it.
    let lengths = [64, 0, 1, 7, 8, 9, 500, RING - 8, RING, RING + 1, 3 * RING + 5, FRAME_MAX];
    let count = 120;
    let mut ends = pair();
    let mut got = [0, 0];
    for end in &mut ends {
        (0..count).for_each(|number| end.send(&frame(number, &lengths)));
    }
    let begun = Instant::now();
    while got != [count; 2] || ends.iter().any(|end| end.backlog() >= RING) {
        for (end, got) in ends.iter_mut().zip(&mut got) {
            let mut take = |bytes: &[u8]| {
                assert_eq!(bytes, frame(*got, &lengths), "frame {got}");
                *got += 1;
                true
            };
            end.receive(&mut take).expect("it is open");
            end.flush().expect("it is open");
        }
        assert!(begun.elapsed() < PATIENCE, "{got:?} of {count} frames, {ends:?}");
    }
}

#[test]
fn a_receiver_takes_as_many_frames_at_a_time_as_it_wants() {
    let _limit = amcast_test_policy::time_limit();
    let [mut a, mut b] = pair();
    (0..3).for_each(|number| a.send(&[number; 5]));
    let (begun, mut got) = (Instant::now(), Vec::new());
    while got.len() < 3 {
        a.flush().expect("it is open");
        let before = got.len();
        let mut take = |bytes: &[u8]| {
            got.push(bytes[0]);
            false
        };
        b.receive(&mut take).expect("it is open");
        assert!(got.len() <= before + 1);
        assert!(begun.elapsed() < PATIENCE, "{got:?}");
    }
    assert_eq!(got, [0, 1, 2]);
}

#[test]
fn a_peer_that_closed_takes_nothing_more_whether_the_stream_learns_of_it_or_not() {
    let _limit = amcast_test_policy::time_limit();
    let [mut a, mut b] = pair();
    let (begun, mut got) = (Instant::now(), 0);
    a.send(&[7; 1000]);
    while got == 0 {
        a.flush().expect("it is open");
        let mut take = |bytes: &[u8]| {
            assert_eq!(bytes, [7; 1000]);
            got += 1;
            true
        };
        b.receive(&mut take).expect("it is open");
        assert!(begun.elapsed() < PATIENCE, "it does not arrive");
    }
    drop(b);
    a.send(&vec![8; FRAME_MAX]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        // Where no write was under way the provider tries to connect until its user gives up.
        let Ok(_) = a.flush() else { break };
    }
    assert!(a.backlog() >= FRAME_MAX, "{} bytes are left", a.backlog());
}

#[test]
fn a_peer_that_writes_no_frame_or_says_positions_that_cannot_be_is_found() {
    let _limit = amcast_test_policy::time_limit();
    // The first word, and the notice: a frame that is too long; not a word; beyond the ring; taken what was never sent.
    let too_long = FRAME_MAX as u64 + 1;
    for (length, notice) in [(too_long, 8), (0, 3), (0, RING as u64 + 8), (0, 1 << 63 | 8)] {
        let mut stream = FabricStream::open(&settings(), RING, FRAME_MAX).expect("opened");
        let mut liar = FabricEndpoint::open(&settings(), RING, RING).expect("opened");
        stream.meet(liar.address().clone()).expect("of one kind");
        liar.meet(stream.address().clone()).expect("of one kind");
        liar.staging()[0].store(length, Ordering::Release);
        let (begun, mut written, mut told) = (Instant::now(), false, false);
        let write = FabricWrite { from: 0, to: 0, bytes: 8, id: 1 };
        let fault = loop {
            written = written || liar.write(write).expect("it is open");
            told = written && (told || liar.notify(notice).expect("it is open"));
            let event = liar.poll().expect("it is open");
            assert!(matches!(event, None | Some(FabricEvent::Written(1))), "{event:?}");
            if let Err(fault) = stream.receive(&mut |_| panic!("it is no frame")) {
                break fault;
            }
            assert!(begun.elapsed() < PATIENCE, "{length} {notice}: not found");
        };
        assert_eq!(fault, StreamFault::Malformed, "{length} {notice}");
    }
}

#[test]
fn ends_with_rings_of_different_sizes_do_not_meet() {
    let _limit = amcast_test_policy::time_limit();
    let mut a = FabricStream::open(&settings(), RING, FRAME_MAX).expect("opened");
    let b = FabricStream::open(&settings(), 2 * RING, FRAME_MAX).expect("opened");
    assert!(a.meet(b.address().clone()).is_err());
}
