//! Others at the port of an endpoint, and something else at the port of a peer, over provider `tcp`.

use amcast_fabric::{
    ADDRESS_VERSION, FabricAddress, FabricEndpoint, FabricError, FabricEvent, FabricSettings,
    FabricStream, FabricWrite,
};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// How long a stranger has for its work.
const A_WHILE: Duration = Duration::from_millis(150);

const RING: usize = 4096;
const FRAME_MAX: usize = 64 << 10;

/// Where the written form of an address has its parts.
const VERSION_AT: usize = 7;
const KEY_AT: usize = 16;
const TOKEN_AT: usize = 32;
const NAME_AT: usize = 40;

fn settings() -> FabricSettings {
    FabricSettings { bind: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), ..FabricSettings::default() }
}

/// Two streams, and how many frames went from the first to the second.
struct StreamPair {
    a: FabricStream,
    b: FabricStream,
    frames: u8,
}

impl StreamPair {
    fn new() -> Self {
        let open = || FabricStream::open(&settings(), RING, FRAME_MAX).expect("opened");
        let (mut a, mut b) = (open(), open());
        a.meet(b.address().clone()).expect("of one kind");
        b.meet(a.address().clone()).expect("of one kind");
        Self { a, b, frames: 0 }
    }

    fn port(&self) -> SocketAddr {
        self.b.address().socket().expect("provider tcp names sockets")
    }

    /// Sends some frames, which arrive whole and in order.
    fn works(&mut self) {
        for _ in 0..5 {
            self.frames = self.frames.wrapping_add(1);
            self.a.send(&[self.frames; 1500]);
            let (begun, mut got) = (Instant::now(), false);
            while !got {
                self.a.flush().expect("its peer is there");
                let mut take = |bytes: &[u8]| {
                    assert_eq!(bytes, [self.frames; 1500], "a frame is another one");
                    got = true;
                    true
                };
                self.b.receive(&mut take).expect("its peer is there");
                self.b.flush().expect("its peer is there");
                self.a.receive(&mut |_| panic!("nobody sent it a frame")).expect("it is there");
                assert!(begun.elapsed() < PATIENCE, "a frame does not arrive");
            }
        }
    }

    /// The same for a while.
    fn works_for_a_while(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < A_WHILE {
            self.works();
        }
    }
}

/// The address with other bytes from `at` on.
fn altered(address: &FabricAddress, at: usize, by: impl Fn(u8) -> u8, count: usize) -> Vec<u8> {
    let mut bytes = address.encode();
    bytes[at..at + count].iter_mut().for_each(|byte| *byte = by(*byte));
    bytes
}

#[test]
fn whatever_connects_to_the_port_of_an_endpoint_and_is_no_endpoint_disturbs_nobody() {
    let _limit = amcast_test_policy::time_limit();
    let mut pair = StreamPair::new();
    pair.works();
    let connect = |pair: &StreamPair| TcpStream::connect(pair.port()).expect("it listens");
    let mut open = Vec::new();
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 3], &[0xff; 4096], &[1; 128]] {
        // One that stays, and one that leaves at once.
        for stays in [true, false] {
            let mut stranger = connect(&pair);
            // The endpoint may have closed it already.
            let _ = stranger.write_all(bytes);
            open.extend(stays.then_some(stranger));
            pair.works_for_a_while();
        }
    }
    drop(open);
    pair.works_for_a_while();
}

#[test]
fn notices_and_writes_without_the_word_and_the_key_of_an_endpoint_are_dropped() {
    let _limit = amcast_test_policy::time_limit();
    let mut pair = StreamPair::new();
    pair.works();
    let real = pair.b.address().clone();
    // The least that a word or key may differ by.
    let spoiled = |at| altered(&real, at, |byte| byte ^ 1, 1);
    for address in [spoiled(TOKEN_AT), spoiled(KEY_AT)] {
        let address = FabricAddress::decode(&address).expect("it has the form of one");
        let before = pair.b.foreign();
        let mut stranger = FabricEndpoint::open(&settings(), RING, RING).expect("opened");
        let has_key = address.encode()[KEY_AT] == real.encode()[KEY_AT];
        stranger.meet(address).expect("of one kind");
        stranger.staging().iter().for_each(|word| word.store(u64::MAX, Ordering::Release));
        let write = FabricWrite { from: 0, to: 0, bytes: RING, id: 1 };
        let (begun, mut done, mut told) = (Instant::now(), has_key, 0);
        // It has the key or the word, and not both: it writes without the key, or says what makes no sense without the word.
        while begun.elapsed() < 2 * A_WHILE {
            if has_key && told < 3 {
                told += u64::from(
                    stranger.notify([8, 3, 1 << 63 | 8][told as usize]).is_ok_and(|it| it),
                );
            } else if !done {
                done = stranger.write(write).is_ok_and(|it| it);
            }
            if let Ok(Some(FabricEvent::Written(id))) = stranger.poll() {
                panic!("write {id} landed without the key");
            }
            pair.works();
        }
        if has_key {
            assert_eq!(pair.b.foreign(), before + 3, "each notice was seen and dropped");
        } else {
            assert!(done, "the write was tried");
        }
    }
    pair.works_for_a_while();
}

#[test]
fn a_peer_at_whose_port_is_something_else_or_nothing_is_tried_without_a_hang() {
    let _limit = amcast_test_policy::time_limit();
    let other = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    other.set_nonblocking(true).expect("it may");
    let port = other.local_addr().expect("it is bound").port();
    let gone = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let closed = gone.local_addr().expect("it is bound").port();
    drop(gone);
    let real = FabricStream::open(&settings(), RING, FRAME_MAX).expect("opened");
    for (port, listens) in [(port, true), (closed, false)] {
        let mut bytes = real.address().encode();
        bytes[NAME_AT + 2..NAME_AT + 4].copy_from_slice(&port.to_be_bytes());
        let address = FabricAddress::decode(&bytes).expect("it has the form of one");
        assert_eq!(address.socket().map(|at| at.port()), Some(port));
        let mut stream = FabricStream::open(&settings(), RING, FRAME_MAX).expect("opened");
        stream.meet(address).expect("of one kind");
        stream.send(&[1; 100]);
        let (begun, mut longest, mut accepted) = (Instant::now(), Duration::ZERO, 0);
        while begun.elapsed() < 2 * A_WHILE {
            let called = Instant::now();
            // An error is an answer, too: its user closes it then.
            let has_failed = stream.flush().is_err();
            longest = longest.max(called.elapsed());
            if let Ok((mut taken, _)) = other.accept() {
                accepted += 1;
                // It is no endpoint, and says so.
                let _ = taken.write_all(b"SSH-2.0-other\r\n");
            }
            if has_failed {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(accepted > 0, listens, "it was tried");
        assert!(stream.backlog() > 0, "nobody has taken it");
        let called = Instant::now();
        stream.close().expect("closed");
        longest = longest.max(called.elapsed());
        assert!(longest < PATIENCE / 4, "a call took {longest:?}");
    }
}

#[test]
fn addresses_of_another_form_version_family_or_size_are_named_and_not_met() {
    let _limit = amcast_test_policy::time_limit();
    let mut a = FabricStream::open(&settings(), RING, FRAME_MAX).expect("opened");
    let b = FabricStream::open(&settings(), RING, FRAME_MAX).expect("opened");
    let right = b.address().encode();
    let version = altered(b.address(), VERSION_AT, |version| version + 1, 1);
    let why = FabricAddress::decode(&version).expect_err("it is of a later version");
    assert_eq!(why, FabricError::Version(ADDRESS_VERSION + 1));
    assert!(why.to_string().contains("version 3, and this one's version 2"), "{why}");
    for cut in [0, 3, VERSION_AT, VERSION_AT + 1, NAME_AT - 1, NAME_AT] {
        assert_eq!(FabricAddress::decode(&right[..cut]), Err(FabricError::NoAddress), "{cut}");
    }
    let other = altered(b.address(), 0, |byte| byte + 1, 1);
    assert_eq!(FabricAddress::decode(&other), Err(FabricError::NoAddress));
    let long = [&right[..], &[0; 300]].concat();
    assert_eq!(FabricAddress::decode(&long), Err(FabricError::NoAddress));
    // A family whose addresses are longer: the provider would read behind its end.
    let family = FabricAddress::decode(&altered(b.address(), NAME_AT, |_| 10, 1)).expect("a form");
    assert_eq!(a.meet(family), Err(FabricError::Peer));
    let longer = FabricAddress::decode(&[&right[..], &[0; 12]].concat()).expect("a form");
    assert_eq!(a.meet(longer), Err(FabricError::Peer));
    let large = FabricStream::open(&settings(), 2 * RING, FRAME_MAX).expect("opened");
    let why = a.meet(large.address().clone()).expect_err("its ring is larger");
    assert_eq!(why, FabricError::Ring { own: RING as u64, peer: 2 * RING as u64 });
    a.meet(FabricAddress::decode(&right).expect("an address")).expect("of one kind");
}
