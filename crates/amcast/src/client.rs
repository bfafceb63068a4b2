//! A small client of the Redis gateway: one command at a time.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Answers nested deeper than this are not believed.
const DEPTH_MAX: usize = 32;

/// Nor are longer lines, in bytes: what is longer is sent with its length before it.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Nor longer values, in bytes: Redis has none.
const VALUE_BYTES_MAX: u64 = 512 << 20;

/// An answer of RESP2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A short word.
    Word(String),
    /// An error.
    Error(String),
    /// A number.
    Number(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Nothing.
    Null,
    /// Several answers.
    Array(Vec<Answer>),
}

impl Answer {
    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) | Self::Error(text) => f.write_str(text),
            Self::Number(n) => n.fmt(f),
            Self::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Null => f.write_str("(nil)"),
            Self::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { "\n" })?;
                }
                Ok(())
            }
        }
    }
}

/// A connection to a Redis gateway.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
    /// Whether each answer until now came whole. If not, the next bytes would belong to an earlier command.
    is_whole: bool,
}

impl Connection {
    /// Connects to `at`, as `127.0.0.1:6379`.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn open(at: &str) -> io::Result<Self> {
        Self::with_patience(at, PATIENCE)
    }

    fn with_patience(at: &str, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream: BufReader::new(stream), is_whole: true })
    }

    /// Logs in with `password`, if there is one.
    ///
    /// # Errors
    /// When it is not the right one, or as [`Connection::call`].
    pub fn log_in(&mut self, password: Option<&str>) -> io::Result<()> {
        let Some(password) = password else { return Ok(()) };
        match self.call(&[b"AUTH", password.as_bytes()])? {
            Answer::Error(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
            _ => Ok(()),
        }
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// When the connection ends, no answer comes for 20 s, or what comes is not RESP2. All later calls fail then, too: open another
    /// connection.
    pub fn call(&mut self, words: &[&[u8]]) -> io::Result<Answer> {
        if !self.is_whole {
            let why = "an earlier answer did not come whole: open another connection";
            return Err(io::Error::new(io::ErrorKind::NotConnected, why));
        }
        self.is_whole = false;
        let answer = self.exchange(words)?;
        self.is_whole = true;
        Ok(answer)
    }

    fn exchange(&mut self, words: &[&[u8]]) -> io::Result<Answer> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)?;
        self.answer(0)
    }

    fn answer(&mut self, depth: usize) -> io::Result<Answer> {
        let mut line = String::new();
        (&mut self.stream).take(LINE_BYTES_MAX).read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let Some((kind, rest)) = line.split_at_checked(1) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not RESP: an empty line"));
        };
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {line}"));
        let number = || rest.parse::<i64>().map_err(|_| wrong());
        match kind {
            "+" => Ok(Answer::Word(rest.to_string())),
            "-" => Ok(Answer::Error(rest.to_string())),
            ":" => Ok(Answer::Number(number()?)),
            "$" | "*" if rest == "-1" => Ok(Answer::Null),
            "$" => {
                let len = u64::try_from(number()?).ok().filter(|&len| len <= VALUE_BYTES_MAX);
                let len = len.ok_or_else(wrong)?;
                let mut bytes = Vec::new();
                (&mut self.stream).take(len + 2).read_to_end(&mut bytes)?;
                if bytes.len() as u64 != len + 2 || !bytes.ends_with(b"\r\n") {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                bytes.truncate(len as usize);
                Ok(Answer::Bytes(bytes))
            }
            "*" if depth < DEPTH_MAX => {
                let count = u64::try_from(number()?).map_err(|_| wrong())?;
                (0..count)
                    .map(|_| self.answer(depth + 1))
                    .collect::<io::Result<_>>()
                    .map(Answer::Array)
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A connection to a server that answers its commands so, one each, and then ends it.
    fn answered(with: &[&'static [u8]], patience: Duration) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let at = listener.local_addr().expect("it listens").to_string();
        let answers = with.to_vec();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it connects");
            for answer in answers {
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(answer);
            }
        });
        Connection::with_patience(&at, patience).expect("somebody listens")
    }

    #[test]
    fn an_answer_that_is_cut_off_is_an_error_and_not_a_shorter_answer() {
        let _limit = amcast_test_policy::time_limit();
        let cut: [&'static [u8]; 7] =
            [b"$10\r\nabc", b"$3\r\nabc\r", b":12", b"+O", b"*2\r\n:1\r\n", b":12\n", b""];
        for answer in cut {
            let mut connection = answered(&[answer], PATIENCE);
            let why = connection.call(&[b"GET", b"k"]).expect_err("it was cut off");
            assert_eq!(why.kind(), io::ErrorKind::UnexpectedEof, "{}", answer.escape_ascii());
            assert!(connection.call(&[b"PING"]).is_err(), "nor is the next one believed");
        }
        let wrong: [&'static [u8]; 5] =
            [b"*-5\r\n", b"$-7\r\n", b"$9999999999999\r\n", b"?\r\n", b"\r\n"];
        for answer in wrong {
            let why = answered(&[answer], PATIENCE).call(&[b"GET", b"k"]).expect_err("it is wrong");
            assert_eq!(why.kind(), io::ErrorKind::InvalidData, "{}", answer.escape_ascii());
        }
        let mut whole = answered(&[b"$3\r\nabc\r\n", b"*2\r\n:1\r\n$-1\r\n"], PATIENCE);
        assert_eq!(whole.call(&[b"GET", b"k"]).expect("it is whole"), Answer::Bytes(b"abc".into()));
        let pair = Answer::Array(vec![Answer::Number(1), Answer::Null]);
        assert_eq!(whole.call(&[b"MGET", b"k", b"l"]).expect("it is whole"), pair);
    }

    #[test]
    fn a_late_answer_is_not_taken_for_that_of_the_next_command() {
        let _limit = amcast_test_policy::time_limit();
        // The first answer comes with the second one.
        let mut connection = answered(&[b"", b"+FIRST\r\n+SECOND\r\n"], Duration::from_millis(50));
        assert!(connection.call(&[b"GET", b"k"]).is_err(), "it is late");
        let next = connection.call(&[b"GET", b"l"]).expect_err("another answer would come");
        assert_eq!(next.kind(), io::ErrorKind::NotConnected);
    }
}
