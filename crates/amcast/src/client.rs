//! A small client of the Redis gateway: one command at a time.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Answers nested deeper than this are not believed.
const DEPTH_MAX: usize = 32;

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
}

impl Connection {
    /// Connects to `at`, as `127.0.0.1:6379`.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn open(at: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
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
    /// When the connection ends, or what comes is not RESP2.
    pub fn call(&mut self, words: &[&[u8]]) -> io::Result<Answer> {
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
        self.stream.read_line(&mut line)?;
        let line = line.trim_end_matches(['\r', '\n']);
        let Some((kind, rest)) = line.split_at_checked(1) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {line}"));
        let number = || rest.parse::<i64>().map_err(|_| wrong());
        match kind {
            "+" => Ok(Answer::Word(rest.to_string())),
            "-" => Ok(Answer::Error(rest.to_string())),
            ":" => Ok(Answer::Number(number()?)),
            "$" | "*" if rest == "-1" => Ok(Answer::Null),
            "$" => {
                let len = u64::try_from(number()?).map_err(|_| wrong())?;
                let mut bytes = Vec::new();
                (&mut self.stream).take(len + 2).read_to_end(&mut bytes)?;
                bytes.truncate(len as usize);
                Ok(Answer::Bytes(bytes))
            }
            "*" if depth < DEPTH_MAX => {
                let count = number()?;
                (0..count)
                    .map(|_| self.answer(depth + 1))
                    .collect::<io::Result<_>>()
                    .map(Answer::Array)
            }
            _ => Err(wrong()),
        }
    }
}
