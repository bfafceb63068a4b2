//! The measurement of a link: how many bytes of payload arrive per second, over UDP and over TCP.

use crate::{HostNamespace, LabError, LinkSettings};
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The payload of each datagram, in bytes: the most that fills one Ethernet frame.
const PAYLOAD_BYTES: usize = 1472;

/// Bytes of the receiver's buffer: a receiver that is not scheduled for some milliseconds loses nothing.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;

/// How long the receiver waits for the last datagrams, beyond the delay of the link.
const QUIET: Duration = Duration::from_millis(200);

/// The measured link from one host to another.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct UdpGoodput {
    /// Bytes of UDP payload that arrived per second, in datagrams of `payload_bytes`; without the first fifth of
    /// the time, in which the token buckets are still full. 0 if fewer than two datagrams arrived then.
    pub payload_bytes_per_s: f64,
    /// The payload of each datagram, in bytes.
    pub payload_bytes: usize,
    /// Datagrams that the sending host took.
    pub sent: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// From the first datagram's sending until the last one's arrival.
    pub lasted: Duration,
}

impl UdpGoodput {
    /// The payload in megabits per second.
    pub fn mbit_per_s(&self) -> f64 {
        self.payload_bytes_per_s * 8.0 / 1e6
    }

    /// The share of the datagrams that did not arrive, from 0 to 1; 0 if none was sent.
    pub fn lost_share(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { 1.0 - self.received as f64 / self.sent as f64 }
    }
}

/// The measured link from one host to another, over TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TcpGoodput {
    /// Bytes of payload that arrived per second on one connection; without the first fifth of the time, in which the
    /// connection comes up to speed. Acknowledgements take the other direction of the link. 0 if nothing arrived then.
    pub payload_bytes_per_s: f64,
}

impl TcpGoodput {
    /// The payload in megabits per second.
    pub fn mbit_per_s(&self) -> f64 {
        self.payload_bytes_per_s * 8.0 / 1e6
    }
}

/// One end of the measurement.
pub(crate) struct GoodputEnd {
    pub(crate) namespace: HostNamespace,
    pub(crate) address: Ipv4Addr,
}

/// Sends as fast as the link takes it, for so long, and measures what arrives.
///
/// # Errors
/// When a socket cannot be opened on one of the hosts.
pub(crate) fn measure(
    from: &GoodputEnd,
    to: &GoodputEnd,
    lasts: Duration,
    links: &LinkSettings,
) -> Result<UdpGoodput, LabError> {
    let failed = |e| LabError::system("open a socket for the measurement", e);
    let bind =
        |end: &GoodputEnd| end.namespace.run(|| UdpSocket::bind((end.address, 0)))?.map_err(failed);
    let receiver = bind(to)?;
    receiver.set_read_timeout(Some(QUIET + links.delay)).map_err(failed)?;
    set_socket_recv_buffer_size_force(&receiver, RECEIVE_BUFFER_BYTES)
        .map_err(|e| failed(e.into()))?;
    let target = receiver.local_addr().map_err(failed)?;
    let sender = bind(from)?;
    // The kernel doubles it, and counts half as much again for its own structures. So the link's queue is never full:
    // the sender waits for the link, as for a network card, and loses nothing there.
    let send_buffer = links.queue_bytes as usize / 8 * 5;
    set_socket_send_buffer_size(&sender, send_buffer).map_err(|e| failed(e.into()))?;
    let sending = AtomicBool::new(true);
    let begin = Instant::now();
    let result = std::thread::scope(|scope| {
        let arrived = scope.spawn(|| receive(&receiver, &sending, lasts / 5));
        let sent = send(&sender, target, lasts);
        sending.store(false, Ordering::Release);
        let arrived = arrived.join().expect("the receiver does not panic");
        Ok((sent.map_err(failed)?, arrived.map_err(failed)?))
    });
    let (sent, arrived) = result?;
    Ok(UdpGoodput {
        payload_bytes_per_s: arrived.payload_bytes_per_s,
        payload_bytes: PAYLOAD_BYTES,
        sent,
        received: arrived.datagrams,
        lasted: arrived.last.saturating_duration_since(begin),
    })
}

/// Sends on one connection as fast as it takes it, for so long, and measures what arrives.
///
/// # Errors
/// When a socket cannot be opened on one of the hosts, or the connection breaks.
pub(crate) fn measure_tcp(
    from: &GoodputEnd,
    to: &GoodputEnd,
    lasts: Duration,
) -> Result<TcpGoodput, LabError> {
    let failed = |e| LabError::system("open a connection for the measurement", e);
    let broke = |e| LabError::system("send on a connection for the measurement", e);
    let bind = || TcpListener::bind((to.address, 0));
    let listener = to.namespace.run(bind)?.map_err(failed)?;
    let target = listener.local_addr().map_err(failed)?;
    let mut sender = from.namespace.run(|| TcpStream::connect(target))?.map_err(failed)?;
    let (receiver, _) = listener.accept().map_err(failed)?;
    let payload_bytes_per_s = std::thread::scope(|scope| {
        let arrived = scope.spawn(|| receive_stream(receiver, lasts / 5));
        let begin = Instant::now();
        let mut sent = Ok(());
        while sent.is_ok() && begin.elapsed() < lasts {
            sent = sender.write_all(&[0x5a; STREAM_BYTES]);
        }
        drop(sender);
        let arrived = arrived.join().expect("the receiver does not panic");
        sent.and(arrived).map_err(broke)
    })?;
    Ok(TcpGoodput { payload_bytes_per_s })
}

/// Bytes that are written to a stream, and read from it, at a time.
const STREAM_BYTES: usize = 64 << 10;

/// Reads until the end. The rate does not count what arrives earlier than `warm_up` after the first bytes.
fn receive_stream(mut socket: TcpStream, warm_up: Duration) -> std::io::Result<f64> {
    let mut buffer = vec![0; STREAM_BYTES];
    let (mut first, mut counted_since) = (None, None);
    let mut bytes = 0;
    let mut last = Instant::now();
    loop {
        let length = match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        last = Instant::now();
        if counted_since.is_some() {
            bytes += length;
        } else if last >= *first.get_or_insert(last) + warm_up {
            counted_since = Some(last);
        }
    }
    let seconds = counted_since.map_or(0.0, |since: Instant| (last - since).as_secs_f64());
    Ok(if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 })
}

/// Sends for so long; how many datagrams the host took.
fn send(socket: &UdpSocket, target: SocketAddr, lasts: Duration) -> std::io::Result<u64> {
    let payload = [0x5a; PAYLOAD_BYTES];
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < lasts {
        match socket.send_to(&payload, target) {
            Ok(_) => sent += 1,
            Err(e) if is_full(&e) => std::thread::sleep(Duration::from_micros(100)),
            Err(e) => return Err(e),
        }
    }
    Ok(sent)
}

fn is_full(error: &std::io::Error) -> bool {
    let full = rustix::io::Errno::NOBUFS.raw_os_error();
    error.raw_os_error() == Some(full) || error.kind() == ErrorKind::Interrupted
}

/// The datagrams that arrived.
struct Arrivals {
    datagrams: u64,
    /// When the last one arrived, or the receiver began if none did.
    last: Instant,
    payload_bytes_per_s: f64,
}

/// Receives until nothing more arrives. The rate does not count arrivals earlier than `warm_up` after the first.
fn receive(
    socket: &UdpSocket,
    sending: &AtomicBool,
    warm_up: Duration,
) -> std::io::Result<Arrivals> {
    let mut buffer = [0; PAYLOAD_BYTES];
    let mut datagrams = 0;
    let mut first = None;
    let mut counted_since: Option<Instant> = None;
    let mut last = Instant::now();
    let mut bytes = 0;
    loop {
        let still = sending.load(Ordering::Acquire);
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(e) if is_quiet(&e) && still => continue,
            Err(e) if is_quiet(&e) => break,
            Err(e) => return Err(e),
        };
        last = Instant::now();
        datagrams += 1;
        if counted_since.is_some() {
            bytes += length;
        } else if last >= *first.get_or_insert(last) + warm_up {
            counted_since = Some(last);
        }
    }
    let seconds = counted_since.map_or(0.0, |since| (last - since).as_secs_f64());
    let payload_bytes_per_s = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
    Ok(Arrivals { datagrams, last, payload_bytes_per_s })
}

fn is_quiet(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
