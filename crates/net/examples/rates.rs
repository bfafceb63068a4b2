//! Measures the carriers on this machine: `cargo run --release -p amcast-net --example rates`.
//!
//! Two processes, each a thread with a carrier: round trips of 64 bytes while both spin and while both
//! park, then messages one way in batches, with the system calls that they cost. Numbers only compare
//! within one run: the machine is shared.

use amcast_core::messages::{Lane, MessageInput, MessageOutput};
use amcast_core::{GroupSet, Pid, Span};
use amcast_net::{BoundPorts, Carrier, NetCounts, NetOptions, PeerConfig};
use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const A: Pid = Pid(0);
const B: Pid = Pid(1);

/// How a loop waits that has nothing to do.
#[derive(Clone, Copy, Debug)]
enum IdleWait {
    Spin,
    Park,
}

/// Two connected carriers.
fn two(options: &NetOptions) -> (Carrier, Carrier) {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let ports = [(); 2].map(|()| BoundPorts::open(any, any).expect("opened"));
    let peer = |p: &BoundPorts| PeerConfig { tcp: p.tcp(), udp: p.udp(), groups: GroupSet::EMPTY };
    let peers: Vec<PeerConfig> = ports.iter().map(peer).collect();
    let [a, b] = ports;
    let mut a = Carrier::start_at(a, A, 0, &peers, options).expect("started");
    let mut b = Carrier::start_at(b, B, 0, &peers, options).expect("started");
    let mut up = 0;
    while up < 2 {
        for carrier in [&mut a, &mut b] {
            carrier.poll(&mut |input| up += u32::from(matches!(input, MessageInput::Up(_))));
            carrier.flush();
        }
    }
    (a, b)
}

/// Sends back what comes, until told to stop.
fn echo(mut carrier: Carrier, lane: Lane, wait: IdleWait, stop: &AtomicBool) {
    let mut message = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        carrier.begin_round();
        let mut busy = false;
        while let Some(input) = carrier.next_input() {
            if let MessageInput::From(from, bytes) = input {
                message.clear();
                message.extend_from_slice(bytes);
                carrier.carry(&MessageOutput::To(from, lane, ()), &message);
                busy = true;
            }
        }
        carrier.flush();
        if !busy && matches!(wait, IdleWait::Park) {
            carrier.park(Some(Span::millis(50)));
        }
    }
}

fn percentile(sorted: &[Duration], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize].as_nanos() as f64 / 1_000.0
}

fn round_trips(lane: Lane, wait: IdleWait, for_long: Duration) {
    let (mut a, b) = two(&NetOptions::default());
    let stop = AtomicBool::new(false);
    let mut times = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| echo(b, lane, wait, &stop));
        let end = Instant::now() + for_long;
        while Instant::now() < end {
            let begin = Instant::now();
            a.carry(&MessageOutput::To(B, lane, ()), &[7; 64]);
            a.flush();
            let mut came = false;
            while !came {
                a.poll(&mut |input| came |= matches!(input, MessageInput::From(..)));
                // A datagram may be lost; nothing waits for ever.
                came |= begin.elapsed() > Duration::from_millis(200);
                if !came && matches!(wait, IdleWait::Park) {
                    a.park(Some(Span::millis(50)));
                }
            }
            times.push(begin.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
    });
    times.sort_unstable();
    println!(
        "{lane:?} round trip, {wait:?}: p10 {:.1} us, p50 {:.1} us, p99 {:.1} us ({} of them)",
        percentile(&times, 0.1),
        percentile(&times, 0.5),
        percentile(&times, 0.99),
        times.len()
    );
}

fn per_message(calls: u64, messages: u64) -> f64 {
    calls as f64 / messages.max(1) as f64
}

fn one_way(lane: Lane, bytes: usize, batch: usize, options: &NetOptions, for_long: Duration) {
    let (mut a, mut b) = two(options);
    let stop = Arc::new(AtomicBool::new(false));
    let received = Arc::new(AtomicU64::new(0));
    let receiver = thread::spawn({
        let (stop, received) = (Arc::clone(&stop), Arc::clone(&received));
        move || -> NetCounts {
            while !stop.load(Ordering::Relaxed) {
                let count = b.poll(&mut |_| {});
                received.fetch_add(count as u64, Ordering::Relaxed);
                if count == 0 {
                    b.park(Some(Span::millis(1)));
                }
            }
            b.counts()
        }
    });
    let message = vec![7; bytes];
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < for_long {
        a.poll(&mut |_| {});
        if a.backlog(B) > 1 << 20 {
            a.park(Some(Span::millis(1)));
            continue;
        }
        for _ in 0..batch {
            a.carry(&MessageOutput::To(B, lane, ()), &message);
        }
        sent += batch as u64;
        a.flush();
    }
    let (count, seconds) = (received.load(Ordering::Relaxed), begin.elapsed().as_secs_f64());
    stop.store(true, Ordering::Relaxed);
    let (here, there) = (a.counts(), receiver.join().expect("it ends"));
    let writes = here.stream_writes + here.datagram_writes + here.looks;
    let reads = there.stream_reads + there.datagram_reads + there.looks + there.parks;
    println!(
        "{lane:?} one way, {bytes} B, {batch} a flush: {:.0} messages/s, {:.0} MB/s, {:.1}% lost or on \
         the way; system calls per message {:.4} to send, {:.4} to receive",
        count as f64 / seconds,
        count as f64 * bytes as f64 / seconds / 1e6,
        100.0 * (1.0 - count as f64 / sent as f64).max(0.0),
        per_message(writes, sent),
        per_message(reads, count)
    );
}

fn main() {
    let seconds = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let for_long = Duration::from_secs_f64(seconds);
    for lane in [Lane::Stream, Lane::Datagram] {
        for wait in [IdleWait::Spin, IdleWait::Park] {
            round_trips(lane, wait, for_long);
        }
    }
    let usual = NetOptions::default();
    let cubic = NetOptions { congestion: Some("cubic".to_string()), ..NetOptions::default() };
    let jumbo = NetOptions { datagram_bytes: 8_952, ..NetOptions::default() };
    for batch in [1, 32, 256] {
        one_way(Lane::Stream, 64, batch, &usual, for_long);
    }
    for bytes in [1_024, 1 << 16, 1 << 20] {
        one_way(Lane::Stream, bytes, 4, &usual, for_long);
        print!("with cubic: ");
        one_way(Lane::Stream, bytes, 4, &cubic, for_long);
    }
    for batch in [1, 32, 256] {
        one_way(Lane::Datagram, 64, batch, &usual, for_long);
    }
    print!("jumbo: ");
    one_way(Lane::Datagram, 64, 256, &jumbo, for_long);
    one_way(Lane::Datagram, 1_024, 32, &usual, for_long);
    one_way(Lane::Datagram, 1 << 20, 1, &usual, for_long);
}
