//! Processes of the operating system that are killed while they write, and what comes after them at the same port.

use amcast_fabric::{
    FabricAddress, FabricEndpoint, FabricEvent, FabricSettings, FabricStream, FabricWrite,
};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// The variable that has this program be a process of a test.
const ROLE: &str = "AMCAST_FABRIC_TEST_ROLE";

/// Frames are longer than a ring, so that most moments are within one.
const RING: usize = 64 << 10;
const FRAME: usize = 300 << 10;

fn settings() -> FabricSettings {
    FabricSettings { bind: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), ..FabricSettings::default() }
}

fn stream() -> FabricStream {
    FabricStream::open(&settings(), RING, FRAME).expect("opened")
}

fn hex(address: &FabricAddress) -> String {
    address.encode().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn address(line: &str) -> FabricAddress {
    let digits = line.trim().as_bytes().chunks(2);
    let byte = |two: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(two).expect("digits"), 16).expect("hexadecimal")
    };
    FabricAddress::decode(&digits.map(byte).collect::<Vec<_>>()).expect("an address")
}

/// The rest of the first line that has the word, behind it.
fn rest_of_line(from: &mut impl BufRead, word: &str) -> String {
    loop {
        let mut line = String::new();
        let read = from.read_line(&mut line).expect("a line");
        assert!(read > 0, "the process ended");
        if let Some((_, rest)) = line.split_once(word) {
            return rest.trim().to_string();
        }
    }
}

/// A process with one end of a stream. It is killed when it is dropped.
struct StreamProcess {
    child: Child,
    says: BufReader<ChildStdout>,
    tells: ChildStdin,
    address: FabricAddress,
}

impl StreamProcess {
    /// Of this role, whose endpoint has this port if one is given.
    fn start(role: &str, port: Option<u16>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
        command.args(["--exact", "has_an_end_if_it_was_told_to", "--nocapture"]).env(ROLE, role);
        if let Some(port) = port {
            command.env("FI_TCP_PORT_LOW_RANGE", port.to_string());
            command.env("FI_TCP_PORT_HIGH_RANGE", port.to_string());
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("started");
        let tells = child.stdin.take().expect("piped");
        let mut says = BufReader::new(child.stdout.take().expect("piped"));
        let address = address(&rest_of_line(&mut says, "address:"));
        Self { child, says, tells, address }
    }

    /// A line of the process with a word: what follows the word.
    fn hear(&mut self, word: &str) -> String {
        rest_of_line(&mut self.says, word)
    }

    /// It and the stream know each other.
    fn meet(&mut self, stream: &mut FabricStream) {
        writeln!(self.tells, "{}", hex(stream.address())).expect("told");
        stream.meet(self.address.clone()).expect("of one kind");
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is a child of ours");
    }
}

impl Drop for StreamProcess {
    fn drop(&mut self) {
        // It may be gone already; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The frame of a number.
fn frame(number: u64) -> Vec<u8> {
    (0..FRAME as u64 / 8).flat_map(|word| (number << 32 | word).to_le_bytes()).collect()
}

#[test]
fn a_writer_that_is_killed_leaves_whole_frames_only_and_the_next_one_begins_anew() {
    let _limit = amcast_test_policy::time_limit();
    for round in 0..4_u64 {
        let mut writer = StreamProcess::start("writes", None);
        let mut stream = stream();
        writer.meet(&mut stream);
        let (mut next, mut killed): (u64, Option<Instant>) = (0, None);
        let begun = Instant::now();
        // After its end the rest of what it sent may arrive, and then nothing.
        while killed.is_none_or(|at| at.elapsed() < Duration::from_millis(60)) {
            let mut take = |bytes: &[u8]| {
                assert!(bytes == frame(next), "round {round}: frame {next} is not what was sent");
                next += 1;
                true
            };
            let is_over = stream.receive(&mut take).is_err() || stream.flush().is_err();
            if is_over {
                assert!(killed.is_some(), "round {round}: the stream ended before its writer");
                break;
            }
            // At another moment within a frame each time.
            if killed.is_none()
                && next > round
                && begun.elapsed() > Duration::from_millis(7 * round)
            {
                writer.kill();
                killed = Some(Instant::now());
            }
            assert!(begun.elapsed() < PATIENCE, "round {round}: nothing arrives");
        }
        assert!(next > round);
        stream.close().expect("closed");
    }
}

/// A port that is free now.
fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    listener.local_addr().expect("it is bound").port()
}

/// Sends a frame of this byte until the process says that it has it.
fn sends(to: &mut StreamProcess, by: &mut FabricStream, byte: u8, meanwhile: &mut dyn FnMut()) {
    by.send(&[byte; 1000]);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| to.hear("frame:"));
        while !heard.is_finished() {
            by.flush().expect("its peer is there");
            meanwhile();
            assert!(begun.elapsed() < PATIENCE, "the frame does not arrive");
        }
        assert_eq!(heard.join().expect("it does not panic"), byte.to_string());
    });
}

#[test]
fn handles_of_the_owner_before_write_nothing_into_its_successor_at_the_same_port() {
    let _limit = amcast_test_policy::time_limit();
    let port = port();
    let mut owner = StreamProcess::start("reads", Some(port));
    let before = owner.address.clone();
    assert_eq!(before.socket().map(|at| at.port()), Some(port), "the provider takes the port");
    let mut old = stream();
    owner.meet(&mut old);
    sends(&mut owner, &mut old, 1, &mut || {});
    // Something is under way.
    old.send(&[1; FRAME]);
    old.flush().expect("its peer is there");
    owner.kill();
    let mut owner = StreamProcess::start("reads", Some(port));
    assert_eq!(owner.address.socket(), before.socket(), "it is at the same place");
    let mut new = stream();
    owner.meet(&mut new);
    // A handle that is made of the old address, which is still written down somewhere.
    let mut handle = FabricEndpoint::open(&settings(), RING, RING).expect("opened");
    handle.meet(before).expect("of one kind");
    let write = FabricWrite { from: 0, to: 0, bytes: RING, id: 1 };
    let (mut tried, mut told, mut old_works) = (false, 0, true);
    let mut disturb = || {
        old_works = old_works && old.flush().is_ok();
        // Positions that a stream of its peer would believe.
        if told < 4 {
            told += u8::from(handle.notify(8).is_ok_and(|it| it));
        } else {
            tried = tried || handle.write(write).is_ok_and(|it| it);
        }
        if let Ok(Some(FabricEvent::Written(id))) = handle.poll() {
            panic!("write {id} of an old handle landed");
        }
    };
    let begun = Instant::now();
    // The old handle sends 1; a fast machine sends more frames than a byte has values.
    let mut bytes = (2..=u8::MAX).cycle();
    while begun.elapsed() < Duration::from_millis(400) {
        let byte = bytes.next().expect("it has no end");
        sends(&mut owner, &mut new, byte, &mut disturb);
    }
    assert!(tried && told == 4, "the old handle was tried: {told} notices, a write {tried}");
    assert!(old.backlog() >= FRAME, "nobody has taken what was for the owner before");
    writeln!(owner.tells, "end").expect("told");
    let foreign: u64 = owner.hear("foreign:").parse().expect("a number");
    assert!(foreign >= 4, "{foreign} messages were seen and dropped");
}

/// Not a test of its own: what the children run.
#[test]
fn has_an_end_if_it_was_told_to() {
    let _limit = amcast_test_policy::time_limit();
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut end = stream();
    println!("address:{}", hex(end.address()));
    let told = || std::io::stdin().lines().next();
    let Some(line) = told() else { return };
    end.meet(address(&line.expect("a line"))).expect("of one kind");
    if role == "writes" {
        for number in 0.. {
            end.send(&frame(number));
            while end.backlog() > 2 * FRAME {
                end.flush().expect("its peer is there");
                end.receive(&mut |_| panic!("nobody sent it a frame")).expect("it is there");
            }
        }
    }
    // The test says when it has seen enough.
    let over = std::thread::spawn(move || told().is_none());
    while !over.is_finished() {
        let mut take = |bytes: &[u8]| {
            println!("frame:{}", bytes[0]);
            true
        };
        end.receive(&mut take).expect("its peer is there");
        end.flush().expect("its peer is there");
    }
    println!("foreign:{}", end.foreign());
}
