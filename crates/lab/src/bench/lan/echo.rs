//! The floor of latencies on hosts: how long a datagram to all of them takes, each of which answers it at once, without any
//! protocol. Each host is a thread that sleeps in the system until something comes.

use crate::bench::{Latency, histogram};
use amcast_hosts::HostLab;
use amcast_memory::shorten_turns;
use rustix::net::sockopt::set_ip_multicast_if;
use std::io::Error;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How far datagrams are apart: links are idle again by then.
const APART: Duration = Duration::from_millis(20);

/// How long the answers may take; a datagram whose answers do not come within it does not count.
const PATIENCE: Duration = Duration::from_millis(200);

/// Bytes of an answer.
const ANSWER_BYTES: usize = 64;

/// The first host sends `count` datagrams of so many bytes to the first `hosts`, one at a time: from the moment before it sends
/// one until all others have answered it.
///
/// # Errors
/// When a socket cannot be opened on one of the hosts, or hardly any answers come.
pub(super) fn measure(
    lab: &HostLab,
    hosts: usize,
    (group, port): (SocketAddrV4, u16),
    bytes: usize,
    count: usize,
) -> Result<Latency, String> {
    let failed = |e: Error| format!("echoes on hosts: {e}");
    let socket = |host: usize, to: SocketAddrV4| {
        let bound = lab.host(host).run(|| UdpSocket::bind(to)).map_err(|e| e.to_string())?;
        bound.and_then(|s| s.set_read_timeout(Some(PATIENCE)).map(|()| s)).map_err(failed)
    };
    let own = |host: usize| lab.host(host).address();
    let sender = socket(0, SocketAddrV4::new(own(0), port))?;
    set_ip_multicast_if(&sender, &own(0)).map_err(|e| failed(e.into()))?;
    let answering = (1..hosts).map(|host| {
        let hears = socket(host, group)?;
        let joined = lab.host(host).run(|| hears.join_multicast_v4(group.ip(), &own(host)));
        joined.map_err(|e| e.to_string())?.map_err(failed)?;
        Ok((hears, socket(host, SocketAddrV4::new(own(host), port))?))
    });
    let answering = answering.collect::<Result<Vec<_>, String>>()?;
    let over = AtomicBool::new(false);
    let found = thread::scope(|scope| {
        let asks = || {
            let _ = shorten_turns();
            (0..count)
                .filter_map(|round| ask(&sender, group, bytes, (round, hosts - 1)).transpose())
                .collect::<Result<Vec<Duration>, Error>>()
        };
        for (hears, answers) in &answering {
            scope.spawn(|| answer(hears, answers, bytes, &over));
        }
        let found = scope.spawn(asks).join();
        // Also if it panicked: the scope ends when all threads have.
        over.store(true, Ordering::Release);
        found.expect("it does not panic")
    });
    let found = found.map_err(failed)?;
    if found.len() < count / 2 {
        return Err(format!(
            "only {} of {count} datagrams were answered by all hosts",
            found.len()
        ));
    }
    let mut all = histogram();
    found.iter().for_each(|took| all.saturating_record(took.as_nanos() as u64));
    Ok(Latency::of(&all))
}

/// Answers each datagram until it is over.
fn answer(hears: &UdpSocket, answers: &UdpSocket, bytes: usize, over: &AtomicBool) {
    // As the members of a group do; without it the answers are late on a busy machine.
    let _ = shorten_turns();
    let mut buffer = vec![0; bytes];
    while !over.load(Ordering::Acquire) {
        if let Ok((_, from)) = hears.recv_from(&mut buffer) {
            // One that is lost makes the round not count.
            let _ = answers.send_to(&buffer[..ANSWER_BYTES.min(bytes)], from);
        }
    }
}

/// Sends a datagram to all and waits for so many answers to it; none if they do not come in time.
fn ask(
    sender: &UdpSocket,
    group: SocketAddrV4,
    bytes: usize,
    (round, answers): (usize, usize),
) -> Result<Option<Duration>, Error> {
    thread::sleep(APART);
    let round = (round as u64).to_le_bytes();
    let mut message = vec![0; bytes.max(round.len())];
    message[..round.len()].copy_from_slice(&round);
    let mut buffer = [0; ANSWER_BYTES];
    let begin = Instant::now();
    sender.send_to(&message, group)?;
    let mut came = 0;
    while came < answers && begin.elapsed() < PATIENCE {
        match sender.recv(&mut buffer) {
            Ok(_) if buffer[..round.len()] == round => came += 1,
            Ok(_) => {}
            Err(_) => return Ok(None),
        }
    }
    Ok((came == answers).then(|| begin.elapsed()))
}

#[cfg(test)]
mod tests {
    use crate::bench::lan::{Lan, LanBursts, LanLinks};
    use std::time::Duration;

    #[test]
    fn all_hosts_answer_and_a_message_takes_its_time_on_both_links() {
        let _limit = amcast_test_policy::time_limit();
        if let Some(why) = Lan::missing() {
            return amcast_test_policy::skip(
                "all_hosts_answer_and_a_message_takes_its_time_on_both_links",
                why,
            );
        }
        let lan = Lan::new(3, LanLinks::near(LanBursts::Short)).expect("this machine grants hosts");
        let least = |bytes| lan.echo(3, bytes, 10).expect("all answer").min;
        // 10 kB besides two frames, at 50.3 Mbit/s.
        let (short, long) = (least(64), least(10_000));
        assert!(long > short && long > 1_100_000, "{short} and {long} ns");
    }

    #[test]
    fn links_that_delay_pass_a_datagram_of_many_frames_to_all_hosts() {
        let _limit = amcast_test_policy::time_limit();
        let test = "links_that_delay_pass_a_datagram_of_many_frames_to_all_hosts";
        if let Some(why) = Lan::missing_with_delays() {
            return amcast_test_policy::skip(test, why);
        }
        let delay = Duration::from_millis(3);
        let links = LanLinks { delay, ..LanLinks::near(LanBursts::Short) };
        let lan = Lan::new(3, links).expect("this machine grants hosts");
        // The message is delayed once, and each answer.
        let least = lan.echo(3, 10_000, 10).expect("all answer").min;
        assert!(least > 1_100_000 + 2 * delay.as_nanos() as u64, "{least} ns");
    }
}
