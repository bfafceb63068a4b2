//! Revocation between processes of the operating system, over provider `tcp`: this test program starts itself again as a
//! writer, and closes the endpoint that the writer writes to in the middle of large writes.

use amcast_fabric::{FabricAddress, FabricEndpoint, FabricEvent, FabricSettings, FabricWrite};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// The variable that has this program write, with so many bytes in each write.
const ROLE: &str = "AMCAST_FABRIC_TEST_WRITER";

/// Large: many pieces of a socket's buffer.
const LARGE: usize = 8 << 20;
const SMALL: usize = 64;

fn settings() -> FabricSettings {
    FabricSettings { bind: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), ..FabricSettings::default() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn address(line: &str) -> FabricAddress {
    let digits = line.trim().as_bytes().chunks(2);
    let byte = |two: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(two).expect("digits"), 16).expect("hexadecimal")
    };
    FabricAddress::decode(&digits.map(byte).collect::<Vec<_>>()).expect("an address")
}

/// A process that writes numbers that grow into all words of the buffer at an address, over and over.
struct FabricWriter {
    child: Child,
    tells: ChildStdin,
    says: BufReader<ChildStdout>,
    endpoint: Option<FabricEndpoint>,
    bytes: usize,
}

impl FabricWriter {
    fn start(bytes: usize) -> Self {
        let me = std::env::current_exe().expect("this program has a file");
        let child = Command::new(me)
            .args(["--exact", "writes_if_it_was_told_to", "--nocapture"])
            .env(ROLE, bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("started");
        let tells = child.stdin.take().expect("piped");
        let says = BufReader::new(child.stdout.take().expect("piped"));
        let mut writer = Self { child, tells, says, endpoint: None, bytes };
        writer.grant();
        writer
    }

    /// A line of the writer that begins with a word: the rest of it.
    fn hear(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.says.read_line(&mut line).expect("a line");
            assert!(read > 0, "the writer ended");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_string();
            }
        }
    }

    /// Opens a new endpoint under a new key for it, and has it write there.
    fn grant(&mut self) {
        let mut endpoint = FabricEndpoint::open(&settings(), self.bytes, 8).expect("opened");
        writeln!(self.tells, "{}", hex(&endpoint.address().encode())).expect("told");
        endpoint.meet(address(&self.hear("address:"))).expect("it has the same provider");
        self.endpoint = Some(endpoint);
    }

    fn progress(&mut self) {
        let endpoint = self.endpoint.as_mut().expect("granted");
        let event = endpoint.poll().expect("it is open");
        assert_eq!(event, None, "a write asks nothing of its target");
    }

    fn numbers(&self) -> Vec<u64> {
        numbers(self.endpoint.as_ref().expect("granted").landing())
    }

    /// Makes progress until the first word holds.
    fn until(&mut self, holds: impl Fn(u64) -> bool) {
        let begun = Instant::now();
        loop {
            self.progress();
            let landing = self.endpoint.as_ref().expect("granted").landing();
            if holds(landing[0].load(Ordering::Acquire)) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the writer does not write");
        }
    }

    /// Closes the endpoint, and judges that nothing lands afterwards and that what the writer believes to be written is
    /// there. Gives whether the last write was cut in the middle.
    fn revoke(&mut self, meanwhile: &mut dyn FnMut()) -> bool {
        let endpoint = self.endpoint.take().expect("granted");
        let landing = endpoint.close().expect("closed");
        let found = numbers(&landing);
        // The writer writes on until it learns that it may not.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(30) {
            meanwhile();
        }
        let written: u64 = self.hear("failed after:").parse().expect("a number");
        assert_eq!(numbers(&landing), found, "a byte landed after the revocation");
        let least = found.iter().copied().min().expect("words");
        assert!(least >= written, "{written} was complete at the writer, and {least} is there");
        least != found.iter().copied().max().expect("words")
    }
}

fn numbers(words: &[AtomicU64]) -> Vec<u64> {
    words.iter().map(|word| word.load(Ordering::Acquire)).collect()
}

impl Drop for FabricWriter {
    fn drop(&mut self) {
        // It may be gone already; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn nothing_lands_after_a_revocation_and_another_writer_and_a_new_grant_go_on() {
    let _limit = amcast_test_policy::time_limit();
    let (mut large, mut other) = (FabricWriter::start(LARGE), FabricWriter::start(SMALL));
    let mut cut = 0;
    for round in 0..6_u64 {
        large.until(|number| number > 1 + round % 3);
        // Sooner or later within the write that is under way.
        for _ in 0..round * 9 {
            large.progress();
        }
        let before = other.numbers()[0];
        cut += usize::from(large.revoke(&mut || other.progress()));
        other.until(|number| number > before);
        large.grant();
    }
    large.until(|number| number > 0);
    assert!(cut > 0, "no revocation came in the middle of a write, so that nothing was tested");
    println!("{cut} of 6 revocations came in the middle of a write");
}

#[test]
fn a_small_writer_is_revoked_too() {
    let _limit = amcast_test_policy::time_limit();
    let mut writer = FabricWriter::start(SMALL);
    for _ in 0..4 {
        writer.until(|number| number > 5);
        writer.revoke(&mut std::thread::yield_now);
        writer.grant();
    }
}

#[test]
fn a_provider_that_is_not_there_is_named() {
    let _limit = amcast_test_policy::time_limit();
    let settings = FabricSettings { provider: "carrier-pigeon".to_string(), bind: None };
    let why = FabricEndpoint::open(&settings, 64, 64).expect_err("there is no such provider");
    assert!(why.to_string().contains("carrier-pigeon"), "{why}");
}

/// Not a test of its own: what the children run.
#[test]
fn writes_if_it_was_told_to() {
    let _limit = amcast_test_policy::time_limit();
    let Ok(bytes) = std::env::var(ROLE) else { return };
    let bytes: usize = bytes.parse().expect("a number");
    // Its input ends when the test ends.
    for line in std::io::stdin().lines() {
        let mut endpoint = FabricEndpoint::open(&settings(), 8, bytes).expect("opened");
        println!("address:{}", hex(&endpoint.address().encode()));
        endpoint.meet(address(&line.expect("a line"))).expect("it has the same provider");
        println!("failed after:{}", write_until_it_fails(&mut endpoint, bytes));
    }
}

/// Writes 1, 2, 3 and so on into all words of the peer's buffer. Gives the last number whose write was complete.
fn write_until_it_fails(endpoint: &mut FabricEndpoint, bytes: usize) -> u64 {
    for number in 1.. {
        for word in endpoint.staging() {
            word.store(number, Ordering::Release);
        }
        let write = FabricWrite { from: 0, to: 0, bytes, id: number };
        loop {
            match endpoint.write(write) {
                Ok(true) => break,
                Ok(false) => {
                    if endpoint.poll().is_err() {
                        return number - 1;
                    }
                }
                Err(_) => return number - 1,
            }
        }
        loop {
            match endpoint.poll() {
                Ok(Some(FabricEvent::Written(id))) if id == number => break,
                Ok(Some(FabricEvent::Failed(..))) | Err(_) => return number - 1,
                Ok(_) => {}
            }
        }
    }
    unreachable!("numbers end much later than tests")
}
