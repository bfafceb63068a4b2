//! How many datagrams the system dropped at sockets of this process, because their buffers were full.
//!
//! The system counts them for each socket and shows them in a file of the network namespace. Reading it costs some
//! microseconds for each UDP socket there, so it is read when somebody asks, and nothing is asked for with each
//! datagram (`SO_RXQ_OVFL`).

use rustix::fd::OwnedFd;

/// The sockets of the network namespace of the thread, over IPv4 and over IPv6.
const FILES: [&str; 2] = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];

/// Columns of a line, counted from 0: the socket's number, and its drops.
const INODE: usize = 9;
const DROPS: usize = 12;

/// How many datagrams were dropped at these sockets so far; none if the system does not tell of all of them.
pub(crate) fn kernel_drops(sockets: &[OwnedFd]) -> Option<u64> {
    let inodes: Vec<u64> = sockets
        .iter()
        .map(|socket| rustix::fs::fstat(socket).map(|stat| stat.st_ino))
        .collect::<Result<_, _>>()
        .ok()?;
    let text: String = FILES.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    drops_of(&text, &inodes)
}

/// The drops of these sockets, from the text of the files.
fn drops_of(text: &str, inodes: &[u64]) -> Option<u64> {
    let mut found = 0;
    let mut drops = 0;
    for line in text.lines() {
        let mut columns = line.split_whitespace();
        let Some(inode) = columns.nth(INODE).and_then(|word| word.parse::<u64>().ok()) else {
            continue;
        };
        if inodes.contains(&inode) {
            drops += columns.nth(DROPS - INODE - 1)?.parse::<u64>().ok()?;
            found += 1;
        }
    }
    (found == inodes.len()).then_some(drops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    const TEXT: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n  \
        317: 0100007F:1CE8 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0000000000000000 7\n  \
        318: 00000000:1CE9 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4712 2 0000000000000000 20\n";

    #[test]
    fn the_drops_of_all_its_sockets_are_added_up() {
        let _limit = amcast_test_policy::time_limit();
        assert_eq!(drops_of(TEXT, &[4711]), Some(7));
        assert_eq!(drops_of(TEXT, &[4712, 4711]), Some(27));
        assert_eq!(drops_of(TEXT, &[4711, 1]), None, "nothing is told of the other one");
    }

    #[test]
    fn datagrams_that_find_a_buffer_full_are_counted() {
        let _limit = amcast_test_policy::time_limit();
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 4096).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        (0..100).for_each(|_| assert_eq!(sender.send_to(&[7; 1000], to).unwrap(), 1000));
        receiver.set_nonblocking(true).unwrap();
        let mut buffer = [0; 1000];
        let received = std::iter::from_fn(|| receiver.recv(&mut buffer).ok()).count();
        assert!(received < 100, "the buffer took all of them");
        let sockets = [OwnedFd::from(receiver)];
        assert_eq!(kernel_drops(&sockets), Some(100 - received as u64));
    }
}
