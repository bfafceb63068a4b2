//! The remarks of a cluster's gateways about it: what they alone know, as that they refuse writes.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long a gateway may take to be reached, and to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long an answer may be, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The remarks of the gateways whose pages are served at these addresses, each once. All are asked at one time. One that does not
/// answer says nothing here: its node's own line tells of it.
pub(super) fn remarks<'a>(pages: impl Iterator<Item = &'a str>) -> Vec<String> {
    let pages: BTreeSet<&str> = pages.collect();
    let answers: Vec<Option<String>> = std::thread::scope(|scope| {
        let asked: Vec<_> = pages.iter().map(|page| scope.spawn(|| answer(page))).collect();
        asked.into_iter().map(|answer| answer.join().expect("it does not panic")).collect()
    });
    let mut all: Vec<String> = Vec::new();
    for remark in answers.iter().flatten().flat_map(|answer| of_answer(answer)) {
        if !all.contains(&remark) {
            all.push(remark);
        }
    }
    all
}

/// The answer of a gateway that is asked whether the cluster serves.
fn answer(page: &str) -> Option<String> {
    let address = page.to_socket_addrs().ok()?.next()?;
    let until = Instant::now() + PATIENCE;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let request =
        format!("GET /readyz/cluster HTTP/1.1\r\nhost: {page}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    while bytes.len() < ANSWER_BYTES_MAX {
        let left = until.saturating_duration_since(Instant::now());
        // Refused where nothing is left.
        stream.set_read_timeout(Some(left)).ok()?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(_) => return None,
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The remarks in an answer: they are behind the line that says `ready`.
fn of_answer(answer: &str) -> Vec<String> {
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let behind = body.strip_prefix("ready\n").unwrap_or_default();
    behind.lines().map(str::to_string).filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn remarks_are_what_is_said_behind_ready() {
        let _limit = amcast_test_policy::time_limit();
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n";
        assert_eq!(of_answer(&format!("{head}ready\n")), Vec::<String>::new());
        assert_eq!(of_answer(&format!("{head}ready\na\nb c\n")), ["a", "b c"]);
        assert_eq!(of_answer(&format!("{head}1 of 3 nodes is ready\n")), Vec::<String>::new());
        assert_eq!(of_answer("nonsense"), Vec::<String>::new());
    }

    #[test]
    fn a_gateway_is_asked_once_and_one_that_is_gone_says_nothing() {
        let _limit = amcast_test_policy::time_limit();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let page = listener.local_addr().unwrap().to_string();
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let serve = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 512];
            let count = stream.read(&mut head).unwrap();
            assert!(head[..count].starts_with(b"GET /readyz/cluster HTTP/1.1\r\n"));
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nready\nthe disks are full\n").unwrap();
        });
        let said = remarks([page.as_str(), &page, &gone].into_iter());
        assert_eq!(said, ["the disks are full"]);
        serve.join().unwrap();
    }
}
