//! Traffic of strangers on the links of a group: flows between two hosts, over plain sockets, that know nothing of the protocol.
//!
//! A flow has a thread that sends and one that receives. It begins at its time, and stops by itself.

use super::watch::COURSE_STEP;
use crate::bench::stop::check_stop;
use amcast_core::{Span, Time};
use amcast_hosts::HostLab;
use amcast_memory::shorten_turns;
use amcast_node::clock;
use rustix::net::sockopt::{
    set_socket_linger, set_socket_recv_buffer_size_force, set_tcp_congestion, tcp_congestion,
};
use serde::Serialize;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of payload of a datagram: the most that fills one frame.
const DATAGRAM_BYTES: usize = 1472;

/// Bytes that are written to a connection, or read from a socket, at a time.
const STREAM_BYTES: usize = 64 << 10;

/// Bytes of the receiver's buffer for datagrams: a receiver that waits for a core loses nothing.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;

/// A sender of datagrams that was late makes up for so long at most.
const CATCH_UP: Span = Span::millis(20);

/// The congestion control of connections, which is the usual one of Linux and fills queues until they lose. A system that has none
/// of that name takes its own.
const CONGESTION: &str = "cubic";

/// How long a sender of datagrams sleeps at least.
const PAUSE: Span = Span::micros(300);

/// How long a sender waits at a time until the system takes more.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// For how long nothing must arrive until a receiver takes the flow to be over: longer than a full queue takes.
const QUIET: Duration = Duration::from_millis(300);

/// The traffic of a stranger.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StrangerFlow {
    /// UDP datagrams of 1472 bytes, evenly over the time.
    Udp {
        /// Bytes of payload, in kilobytes a second.
        kb_per_s: u64,
    },
    /// One TCP connection, as fast as it takes bytes.
    Tcp,
}

/// A stranger on the links.
#[derive(Clone, Copy, Debug)]
pub struct LanStranger {
    /// Its traffic.
    pub flow: StrangerFlow,
    /// The host that it sends from.
    pub from: usize,
    /// The host that it sends to.
    pub to: usize,
    /// When it begins, after the members begin to measure.
    pub begins: Span,
    /// For how long it sends.
    pub lasts: Span,
}

/// The traffic of a stranger that arrived.
#[derive(Clone, Debug, Serialize)]
pub struct StrangerResult {
    /// Its traffic.
    pub flow: StrangerFlow,
    /// Seconds after the members began to measure at which it began, and at which it stopped.
    pub seconds: [f64; 2],
    /// The congestion control of a connection.
    pub congestion: Option<String>,
    /// Megabits of payload a second that arrived, over the time in which it sent.
    pub arrived_mbps: f64,
    /// By tenth of a second since the members began to measure: megabits of payload a second that arrived.
    pub course_mbps: Vec<f64>,
    /// Datagrams that its system took, by tenth of a second; none of a connection.
    #[serde(skip)]
    pub sent: Vec<u64>,
    /// Of these, the datagrams that did not arrive, by the tenth of a second in which they were sent.
    #[serde(skip)]
    pub lost: Vec<u64>,
}

impl StrangerFlow {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp { .. } => "udp",
            Self::Tcp => "tcp",
        }
    }
}

impl StrangerResult {
    /// Datagrams that were sent.
    pub fn datagrams_sent(&self) -> u64 {
        self.sent.iter().sum()
    }

    /// Datagrams that did not arrive.
    pub fn datagrams_lost(&self) -> u64 {
        self.lost.iter().sum()
    }
}

/// The sockets of a stranger, on both hosts.
enum StrangerSockets {
    Udp { sender: UdpSocket, receiver: UdpSocket, kb_per_s: u64 },
    Tcp { sender: TcpStream, receiver: TcpStream },
}

/// A stranger that is about to send.
pub(super) struct OpenStranger {
    plan: LanStranger,
    sockets: StrangerSockets,
}

/// When a flow is counted from, begins and ends.
#[derive(Clone, Copy, Debug)]
struct FlowTimes {
    origin: Time,
    begins: Time,
    ends: Time,
}

impl FlowTimes {
    /// The step of a time.
    const fn step(self, now: Time) -> usize {
        (now.since(self.origin).0 / COURSE_STEP.0) as usize
    }
}

/// The arrivals of a flow.
#[derive(Debug, Default)]
struct FlowArrivals {
    /// Bytes, by the step in which they arrived.
    bytes: Vec<u64>,
    /// Datagrams, by the step in which they were sent.
    datagrams: Vec<u64>,
}

/// Adds to the count of a step.
fn count(steps: &mut Vec<u64>, step: usize, amount: u64) {
    if steps.len() <= step {
        steps.resize(step + 1, 0);
    }
    steps[step] += amount;
}

/// Sleeps until a time.
///
/// # Errors
/// If this process is asked to stop.
pub(super) fn sleep_until(at: Time) -> Result<(), String> {
    loop {
        check_stop()?;
        let left = Duration::from_nanos(at.since(clock::now()).0);
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

impl OpenStranger {
    /// Opens its sockets.
    ///
    /// # Errors
    /// When one of them cannot be opened.
    pub(super) fn new(lab: &HostLab, plan: LanStranger) -> Result<Self, String> {
        let sockets = match plan.flow {
            StrangerFlow::Udp { kb_per_s } => datagram_sockets(lab, plan, kb_per_s)?,
            StrangerFlow::Tcp => connection(lab, plan)?,
        };
        Ok(Self { plan, sockets })
    }

    /// Sends when its time comes, counted from `origin`, and measures what arrives.
    ///
    /// # Errors
    /// When a socket fails, or this process is asked to stop.
    pub(super) fn run(self, origin: Time) -> Result<StrangerResult, String> {
        let Self { plan: LanStranger { flow, begins, lasts, .. }, sockets } = self;
        let begins = origin + begins;
        let times = FlowTimes { origin, begins, ends: begins + lasts };
        let congestion = match &sockets {
            StrangerSockets::Udp { .. } => None,
            StrangerSockets::Tcp { sender, .. } => tcp_congestion(sender).ok(),
        };
        let (sent, arrived) = match sockets {
            StrangerSockets::Udp { sender, receiver, kb_per_s } => carried(
                || send_datagrams(&sender, times, kb_per_s),
                |is_over| receive_datagrams(&receiver, times, is_over),
            )?,
            StrangerSockets::Tcp { sender, receiver } => carried(
                || send_stream(sender, times).map(|()| Vec::new()),
                |is_over| receive_stream(receiver, times, is_over),
            )?,
        };
        Ok(StrangerResult { congestion, ..result(flow, times, sent, &arrived) })
    }
}

fn datagram_sockets(
    lab: &HostLab,
    plan: LanStranger,
    kb_per_s: u64,
) -> Result<StrangerSockets, String> {
    let bind = |host: usize| {
        let host = lab.host(host);
        let bound = host.run(|| UdpSocket::bind((host.address(), 0))).map_err(|e| e.to_string())?;
        bound.map_err(unopened)
    };
    let (sender, receiver) = (bind(plan.from)?, bind(plan.to)?);
    set_socket_recv_buffer_size_force(&receiver, RECEIVE_BUFFER_BYTES)
        .map_err(|e| unopened(e.into()))?;
    // Neither hears anybody else.
    receiver.local_addr().and_then(|target| sender.connect(target)).map_err(unopened)?;
    sender.local_addr().and_then(|source| receiver.connect(source)).map_err(unopened)?;
    receiver.set_read_timeout(Some(QUIET)).map_err(unopened)?;
    sender.set_write_timeout(Some(LOOK_EVERY)).map_err(unopened)?;
    Ok(StrangerSockets::Udp { sender, receiver, kb_per_s })
}

fn connection(lab: &HostLab, plan: LanStranger) -> Result<StrangerSockets, String> {
    let [from, to] = [plan.from, plan.to].map(|host| lab.host(host));
    let listens = to.run(|| TcpListener::bind((to.address(), 0))).map_err(|e| e.to_string())?;
    let listener = listens.map_err(unopened)?;
    let target = listener.local_addr().map_err(unopened)?;
    let connects = from.run(|| TcpStream::connect(target)).map_err(|e| e.to_string())?;
    let sender = connects.map_err(unopened)?;
    let (receiver, _) = listener.accept().map_err(unopened)?;
    receiver.set_read_timeout(Some(QUIET)).map_err(unopened)?;
    sender.set_write_timeout(Some(LOOK_EVERY)).map_err(unopened)?;
    // The result names the one that it has.
    let _ = set_tcp_congestion(&sender, CONGESTION);
    Ok(StrangerSockets::Tcp { sender, receiver })
}

fn unopened(e: Error) -> String {
    format!("a socket of a stranger cannot be opened: {e}")
}

/// Ends a flow's receiver, also where its sender panics: the scope of both ends when both have.
struct FlowEnd<'a>(&'a AtomicBool);

impl Drop for FlowEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Sends, and receives in another thread until it is over.
fn carried(
    send: impl FnOnce() -> Result<Vec<u64>, String>,
    receive: impl FnOnce(&AtomicBool) -> Result<FlowArrivals, Error> + Send,
) -> Result<(Vec<u64>, FlowArrivals), String> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let arrived = scope.spawn(|| receive(&is_over));
        let sent = {
            let _end = FlowEnd(&is_over);
            send()
        };
        let arrived = arrived.join().expect("the receiver does not panic");
        Ok((sent?, arrived.map_err(|e| format!("a stranger cannot receive: {e}"))?))
    })
}

/// Sends at that rate; by step, how many datagrams the system took.
fn send_datagrams(socket: &UdpSocket, times: FlowTimes, kb_per_s: u64) -> Result<Vec<u64>, String> {
    // Without short turns it is late where others compute, and its datagrams leave in bursts.
    let _ = shorten_turns();
    let apart = Span(DATAGRAM_BYTES as u64 * 1_000_000 / kb_per_s.max(1));
    let (mut payload, mut sent) = ([0x5a; DATAGRAM_BYTES], Vec::new());
    sleep_until(times.begins)?;
    let mut next = times.begins;
    loop {
        check_stop()?;
        let now = clock::now();
        if now >= times.ends {
            return Ok(sent);
        }
        if now.since(next) > CATCH_UP {
            next = now;
        }
        let step = times.step(now);
        payload[..size_of::<u64>()].copy_from_slice(&(step as u64).to_le_bytes());
        while next <= now {
            match socket.send(&payload) {
                Ok(_) => count(&mut sent, step, 1),
                Err(e) if is_full(&e) => {}
                Err(e) => return Err(format!("a stranger cannot send: {e}")),
            }
            next += apart;
        }
        let left = next.min(times.ends).since(clock::now()).max(PAUSE);
        std::thread::sleep(Duration::from_nanos(left.0));
    }
}

/// Receives until nothing arrives any more.
fn receive_datagrams(
    socket: &UdpSocket,
    times: FlowTimes,
    is_over: &AtomicBool,
) -> Result<FlowArrivals, Error> {
    let (mut arrived, mut buffer) = (FlowArrivals::default(), [0; DATAGRAM_BYTES]);
    loop {
        let was_over = is_over.load(Ordering::Acquire);
        match socket.recv(&mut buffer) {
            Ok(length) => {
                count(&mut arrived.bytes, times.step(clock::now()), length as u64);
                let step = buffer.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                count(&mut arrived.datagrams, step as usize, 1);
            }
            Err(e) if is_quiet(&e) && was_over => return Ok(arrived),
            Err(e) if is_quiet(&e) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Sends on a connection as fast as it takes bytes. The bytes that are not sent at the end are dropped with it.
fn send_stream(mut socket: TcpStream, times: FlowTimes) -> Result<(), String> {
    let failed = |e: Error| format!("a stranger cannot send: {e}");
    sleep_until(times.begins)?;
    while clock::now() < times.ends {
        check_stop()?;
        match socket.write(&[0x5a; STREAM_BYTES]) {
            Ok(_) => {}
            Err(e) if is_quiet(&e) => {}
            Err(e) => return Err(failed(e)),
        }
    }
    set_socket_linger(&socket, Some(Duration::ZERO)).map_err(|e| failed(e.into()))
}

/// Reads until the connection is reset, or nothing arrives any more since the reset is lost.
fn receive_stream(
    mut socket: TcpStream,
    times: FlowTimes,
    is_over: &AtomicBool,
) -> Result<FlowArrivals, Error> {
    let (mut arrived, mut buffer) = (FlowArrivals::default(), vec![0; STREAM_BYTES]);
    loop {
        let was_over = is_over.load(Ordering::Acquire);
        match socket.read(&mut buffer) {
            Ok(0) => return Ok(arrived),
            Ok(length) => count(&mut arrived.bytes, times.step(clock::now()), length as u64),
            Err(e) if is_quiet(&e) && !was_over => {}
            Err(e) if is_quiet(&e) || e.kind() == ErrorKind::ConnectionReset => return Ok(arrived),
            Err(e) => return Err(e),
        }
    }
}

/// The system took nothing in time, or its queue is full.
fn is_full(error: &Error) -> bool {
    let full = rustix::io::Errno::NOBUFS.raw_os_error();
    error.raw_os_error() == Some(full) || is_quiet(error)
}

fn is_quiet(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn result(
    flow: StrangerFlow,
    times: FlowTimes,
    sent: Vec<u64>,
    arrived: &FlowArrivals,
) -> StrangerResult {
    let mbps = |bytes: u64, lasts: Span| bytes as f64 * 8e3 / lasts.0.max(1) as f64;
    let received = |step: usize| arrived.datagrams.get(step).copied().unwrap_or(0);
    let lost = sent.iter().enumerate().map(|(step, sent)| sent.saturating_sub(received(step)));
    let seconds = |at: Time| at.since(times.origin).0 as f64 / 1e9;
    StrangerResult {
        flow,
        seconds: [seconds(times.begins), seconds(times.ends)],
        congestion: None,
        arrived_mbps: mbps(arrived.bytes.iter().sum(), times.ends.since(times.begins)),
        course_mbps: arrived.bytes.iter().map(|&bytes| mbps(bytes, COURSE_STEP)).collect(),
        lost: lost.collect(),
        sent,
    }
}

/// How many segments of TCP a host has sent again so far, as its system counts them: what its connections lost, about.
///
/// # Errors
/// When the system does not tell.
pub(super) fn segments_sent_again(lab: &HostLab, host: usize) -> Result<u64, String> {
    // Of the thread, which is on the host: the process is not.
    let path = "/proc/thread-self/net/snmp";
    let read = lab.host(host).run(|| std::fs::read_to_string(path)).map_err(|e| e.to_string())?;
    let text = read.map_err(|e| format!("{path}: {e}"))?;
    sent_again(&text).ok_or_else(|| format!("{path} does not count segments that were sent again"))
}

/// The count in the system's text: a line of names and a line of numbers.
fn sent_again(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let at = lines.next()?.split_whitespace().position(|name| name == "RetransSegs")?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::lan::{Lan, LanBursts, LanLinks};

    #[test]
    fn a_stream_has_its_rate_and_a_connection_takes_what_is_there_and_both_stop() {
        let _limit = amcast_test_policy::time_limit();
        if let Some(why) = Lan::missing() {
            return amcast_test_policy::skip(
                "a_stream_has_its_rate_and_a_connection_takes_what_is_there_and_both_stop",
                why,
            );
        }
        let lan = Lan::new(2, LanLinks::near(LanBursts::Usual)).expect("this machine grants hosts");
        let run = |flow| {
            let [begins, lasts] = [Span::millis(200), Span::millis(800)];
            let plan = LanStranger { flow, from: 0, to: 1, begins, lasts };
            let stranger = OpenStranger::new(lan.hosts(), plan).expect("it has sockets");
            let found = stranger.run(clock::now()).expect("it sends");
            let first = found.course_mbps.iter().position(|mbps| *mbps > 0.0);
            assert!(first.is_some_and(|step| step >= 2), "{found:?}");
            assert!(found.arrived_mbps > 0.0 && found.course_mbps.len() < 20, "{found:?}");
            found
        };
        let udp = run(StrangerFlow::Udp { kb_per_s: 1_000 });
        // 800 kB in datagrams of 1472 bytes, fewer where this machine is busy.
        assert!((1..=545).contains(&udp.datagrams_sent()), "{udp:?}");
        assert_eq!(udp.datagrams_lost(), 0, "{udp:?}");
        let tcp = run(StrangerFlow::Tcp);
        assert_eq!((tcp.datagrams_sent(), tcp.datagrams_lost()), (0, 0));
        assert!(tcp.congestion.is_some() && udp.congestion.is_none());
        assert!(segments_sent_again(lan.hosts(), 0).is_ok());
    }

    #[test]
    fn datagrams_that_did_not_arrive_are_those_of_the_step_in_which_they_were_sent() {
        let at = |ms| Time::ZERO + Span::millis(ms);
        let times = FlowTimes { origin: at(100), begins: at(200), ends: at(400) };
        let arrived = FlowArrivals { bytes: vec![0, 0, 50_000], datagrams: vec![0, 7] };
        let udp = StrangerFlow::Udp { kb_per_s: 5 };
        let found = result(udp, times, vec![0, 9, 3], &arrived);
        assert_eq!((found.lost.clone(), found.datagrams_lost()), (vec![0, 2, 3], 5));
        assert_eq!((found.seconds, found.arrived_mbps), ([0.1, 0.3], 2.0));
        assert_eq!(found.course_mbps, [0.0, 0.0, 4.0]);
    }

    #[test]
    fn segments_that_were_sent_again_stand_in_the_line_of_tcp() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoMin RetransSegs InErrs\nTcp: 200 17 0\n";
        assert_eq!((sent_again(text), sent_again("Tcp: RtoMin\nTcp: 3\n")), (Some(17), None));
    }
}
