//! The RESP parser. Reads commands from a stream of bytes: RESP arrays of bulk strings, or inline lines.
//!
//! The parser keeps its place between calls, so a command that comes in many pieces is looked at
//! once; arguments are ranges of the buffer, not copies.

use std::ops::Range;

/// Arguments of one command.
const ARGS_MAX: usize = 1 << 20;
/// Bytes of one argument that Redis would take; more is a protocol error.
const BULK_BYTES_MAX: usize = 512 << 20;
/// Bytes of a line: an inline command or a count.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Arguments for which room is kept between commands.
const ARGS_KEPT: usize = 64;

/// The bounds on a client's input.
#[derive(Clone, Copy, Debug)]
pub struct RequestBounds {
    /// Arguments of a command.
    args: usize,
    /// Bytes of an argument.
    bulk_bytes: usize,
    /// Bytes of a line.
    line_bytes: usize,
    /// Bytes of a command: a larger one is dropped as it comes.
    command_bytes: usize,
}

impl RequestBounds {
    /// For a client that has not given the password; as Redis has them.
    pub const STRANGER: Self = Self {
        args: 10,
        bulk_bytes: 16 << 10,
        line_bytes: 16 << 10,
        command_bytes: (10 * 16 + 1) << 10,
    };

    /// For all others.
    pub const fn new(command_bytes: usize) -> Self {
        Self {
            args: ARGS_MAX,
            bulk_bytes: BULK_BYTES_MAX,
            line_bytes: LINE_BYTES_MAX,
            command_bytes,
        }
    }

    const fn is_strange(&self) -> bool {
        self.args < ARGS_MAX
    }
}

/// The parser's result at the front of the buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum ParserStep {
    /// The command is not complete.
    More,
    /// A command, whose arguments are in [`Parser::args`]; it takes so many bytes. No arguments
    /// if it was an empty line.
    Command(usize),
    /// So many bytes belong to a command that is too large: drop them and continue.
    Drop(usize),
    /// The last byte of a command that was too large is so many bytes away: drop them.
    TooLarge(usize),
    /// The stream makes no sense from here on.
    Error(String),
}

/// The meaning of a number in the stream.
#[derive(Clone, Copy)]
enum Length {
    /// Arguments of a command.
    Arguments,
    /// Bytes of an argument.
    Bytes,
}

impl Length {
    /// The number makes no sense, or is too large for this client.
    fn wrong(self, bounds: &RequestBounds) -> ParserStep {
        ParserStep::Error(match self {
            Self::Arguments if bounds.is_strange() => {
                "Protocol error: unauthenticated multibulk length".into()
            }
            Self::Bytes if bounds.is_strange() => {
                "Protocol error: unauthenticated bulk length".into()
            }
            Self::Arguments => format!(
                "Protocol error: invalid multibulk length (at most {ARGS_MAX} arguments are taken)"
            ),
            Self::Bytes => format!(
                "Protocol error: invalid bulk length (at most {BULK_BYTES_MAX} bytes are taken)"
            ),
        })
    }
}

/// The state between two pieces of a stream.
#[derive(Default, Debug)]
pub struct Parser {
    /// Arguments found so far, as ranges of the buffer.
    pub args: Vec<Range<usize>>,
    /// How far the buffer was looked at.
    at: usize,
    /// Arguments still to come, if within a command.
    missing: Option<usize>,
    /// Length of the argument that comes next, once its head was read.
    bulk: Option<usize>,
    /// Bytes of the command so far.
    bytes: usize,
    /// The command is over this limit: its arguments are dropped.
    too_large: bool,
}

impl Parser {
    /// Bytes that it holds.
    pub const fn capacity(&self) -> usize {
        self.args.capacity() * size_of::<Range<usize>>()
    }

    /// How long the buffer must come to be for the argument that is read, if that is known.
    pub const fn needs(&self) -> usize {
        match self.bulk {
            Some(len) if !self.too_large => self.at + len + 2,
            _ => 0,
        }
    }

    /// Looks at `buffer`, which begins with what the last call left, for a command within `bounds`.
    pub fn step(&mut self, buffer: &[u8], bounds: RequestBounds) -> ParserStep {
        let bounds = &bounds;
        if self.missing.is_none() {
            self.args.clear();
            self.args.shrink_to(ARGS_KEPT);
            match buffer.first() {
                None => return ParserStep::More,
                Some(b'*') => match self.head(buffer, Length::Arguments, bounds) {
                    Ok(None) => return ParserStep::More,
                    Ok(Some(n)) if n <= 0 => return self.end(),
                    Ok(Some(n)) if n as u64 > bounds.args as u64 => {
                        return Length::Arguments.wrong(bounds);
                    }
                    Ok(Some(n)) => self.missing = Some(n as usize),
                    Err(e) => return e,
                },
                Some(_) => return self.inline(buffer, bounds),
            }
        }
        while self.missing != Some(0) {
            match self.argument(buffer, bounds) {
                Ok(true) => {}
                Ok(false) if self.too_large => {
                    let drop = std::mem::take(&mut self.at).min(buffer.len());
                    return if drop == 0 { ParserStep::More } else { ParserStep::Drop(drop) };
                }
                Ok(false) => return ParserStep::More,
                Err(e) => return e,
            }
        }
        self.end()
    }

    /// Reads one argument; false if it is not all there.
    fn argument(&mut self, buffer: &[u8], bounds: &RequestBounds) -> Result<bool, ParserStep> {
        let len = match self.bulk {
            Some(len) => len,
            None => {
                match buffer.get(self.at) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(b) => {
                        let shown = (*b as char).escape_default();
                        return Err(ParserStep::Error(format!(
                            "Protocol error: expected '$', got '{shown}'"
                        )));
                    }
                }
                let Some(n) = self.head(buffer, Length::Bytes, bounds)? else { return Ok(false) };
                if n < 0 || n as u64 > bounds.bulk_bytes as u64 {
                    return Err(Length::Bytes.wrong(bounds));
                }
                self.bulk = Some(n as usize);
                self.bytes += n as usize + 4;
                self.too_large |= self.bytes > bounds.command_bytes;
                n as usize
            }
        };
        if self.too_large {
            return Ok(self.drop_argument(buffer, len));
        }
        if buffer.len() < self.at + len + 2 {
            return Ok(false);
        }
        self.args.push(self.at..self.at + len);
        self.at += len + 2;
        self.took_argument();
        Ok(true)
    }

    /// Passes over what is there of an argument of `len` more bytes.
    fn drop_argument(&mut self, buffer: &[u8], len: usize) -> bool {
        let there = buffer.len() - self.at;
        if there >= len + 2 {
            self.at += len + 2;
            self.took_argument();
            return true;
        }
        // The line's end stays in the buffer until all of it is there.
        let dropped = there.min(len);
        self.at += dropped;
        self.bulk = Some(len - dropped);
        false
    }

    fn took_argument(&mut self) {
        self.bulk = None;
        self.missing = self.missing.map(|m| m - 1);
    }

    /// Ends a command.
    fn end(&mut self) -> ParserStep {
        let taken = std::mem::take(&mut self.at);
        self.missing = None;
        self.bytes = 0;
        if std::mem::take(&mut self.too_large) {
            self.args.clear();
            return ParserStep::TooLarge(taken);
        }
        ParserStep::Command(taken)
    }

    /// Reads a line that is a mark and a number; none if it is not all there.
    fn head(
        &mut self,
        buffer: &[u8],
        length: Length,
        bounds: &RequestBounds,
    ) -> Result<Option<i64>, ParserStep> {
        let rest = &buffer[self.at..];
        let window = &rest[..rest.len().min(32)];
        let Some(end) = window.iter().position(|b| *b == b'\r') else {
            if window.len() == 32 {
                return Err(length.wrong(bounds));
            }
            return Ok(None);
        };
        if rest.len() < end + 2 {
            return Ok(None);
        }
        let number = crate::number::parse_int(&rest[1..end]);
        let number = number.ok_or_else(|| length.wrong(bounds))?;
        self.at += end + 2;
        Ok(Some(number))
    }

    fn inline(&mut self, buffer: &[u8], bounds: &RequestBounds) -> ParserStep {
        let Some(end) = buffer.iter().take(bounds.line_bytes).position(|b| *b == b'\n') else {
            if buffer.len() >= bounds.line_bytes {
                return ParserStep::Error("Protocol error: too big inline request".into());
            }
            return ParserStep::More;
        };
        let line = &buffer[..end];
        // Quotes would need unescaped copies of arguments; the common ones without escapes do not.
        let mut at = 0;
        while at < line.len() {
            let b = line[at];
            if b.is_ascii_whitespace() || b == 0 {
                at += 1;
            } else if b == b'"' || b == b'\'' {
                let Some(len) = line[at + 1..].iter().position(|c| *c == b) else {
                    return ParserStep::Error(
                        "Protocol error: unbalanced quotes in request".into(),
                    );
                };
                self.args.push(at + 1..at + 1 + len);
                at += len + 2;
                if line.get(at).is_some_and(|c| !c.is_ascii_whitespace()) {
                    return ParserStep::Error(
                        "Protocol error: unbalanced quotes in request".into(),
                    );
                }
            } else {
                let len = line[at..].iter().position(u8::is_ascii_whitespace);
                let len = len.unwrap_or(line.len() - at);
                self.args.push(at..at + len);
                at += len;
            }
        }
        self.at = end + 1;
        self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::rng::Rng;

    /// All commands of `stream`, fed in pieces of random length; and the error it ends with.
    fn commands(stream: &[u8], rng: &mut Rng, bytes_max: usize) -> (Vec<Vec<Vec<u8>>>, String) {
        within(stream, rng, RequestBounds::new(bytes_max))
    }

    fn within(stream: &[u8], rng: &mut Rng, bounds: RequestBounds) -> (Vec<Vec<Vec<u8>>>, String) {
        let (mut parser, mut buffer, mut found) = (Parser::default(), Vec::new(), Vec::new());
        let mut rest = stream;
        loop {
            match parser.step(&buffer, bounds) {
                ParserStep::More if rest.is_empty() => return (found, String::new()),
                ParserStep::More => {
                    let n = (1 + rng.below(9) as usize).min(rest.len());
                    buffer.extend_from_slice(&rest[..n]);
                    rest = &rest[n..];
                }
                ParserStep::Command(n) => {
                    let args = parser.args.iter().map(|r| buffer[r.clone()].to_vec());
                    found.push(args.collect());
                    buffer.drain(..n);
                }
                ParserStep::Drop(n) => drop(buffer.drain(..n)),
                ParserStep::TooLarge(n) => {
                    found.push(vec![b"<too large>".to_vec()]);
                    buffer.drain(..n);
                }
                ParserStep::Error(e) => return (found, e),
            }
        }
    }

    #[test]
    fn commands_are_found_however_the_stream_is_cut() {
        let stream = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING  'a b'\r\n\r\n*1\r\n$4\r\n\r\n\r\n\r\n*0\r\n*1\r\n$0\r\n\r\n";
        for seed in 0..200 {
            let (found, error) = commands(stream, &mut Rng::new(seed), 1000);
            let expected: Vec<Vec<&[u8]>> = vec![
                vec![b"GET", b"k"],
                vec![b"PING", b"a b"],
                vec![],
                vec![b"\r\n\r\n"],
                vec![],
                vec![b""],
            ];
            assert_eq!(found, expected);
            assert_eq!(error, "");
        }
    }

    #[test]
    fn a_command_over_the_limit_is_dropped_and_the_next_one_is_read() {
        let mut stream = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$60\r\n".to_vec();
        stream.extend_from_slice(&[b'\r'; 60]);
        stream.extend_from_slice(b"\r\n*1\r\n$4\r\nPING\r\n");
        for seed in 0..200 {
            let (found, error) = commands(&stream, &mut Rng::new(seed), 50);
            assert_eq!(found, [[b"<too large>".to_vec()], [b"PING".to_vec()]]);
            assert_eq!(error, "");
        }
    }

    #[test]
    fn nonsense_is_refused_as_redis_does_and_the_limit_is_named() {
        let arguments =
            "Protocol error: invalid multibulk length (at most 1048576 arguments are taken)";
        let bytes = "Protocol error: invalid bulk length (at most 536870912 bytes are taken)";
        for (stream, expected) in [
            (&b"*x\r\n"[..], arguments),
            (b"*2000000\r\n", arguments),
            (b"*1\r\nGET\r\n", "Protocol error: expected '$', got 'G'"),
            (b"*1\r\n$-1\r\n", bytes),
            (b"*1\r\n$999999999999\r\n", bytes),
            (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$629145600\r\n", bytes),
            (b"GET \"x\r\n", "Protocol error: unbalanced quotes in request"),
        ] {
            assert_eq!(commands(stream, &mut Rng::new(1), 1000).1, expected);
        }
    }

    #[test]
    fn a_stranger_may_send_little() {
        let most = 16 << 10;
        let bulk = |len: usize| format!("*1\r\n${len}\r\n{}\r\n", "x".repeat(len));
        let args = |n: usize| format!("*{n}\r\n{}", "$0\r\n\r\n".repeat(n));
        for (stream, found, expected) in [
            (args(10), 1, ""),
            (args(11), 0, "Protocol error: unauthenticated multibulk length"),
            (bulk(most), 1, ""),
            (bulk(most + 1), 0, "Protocol error: unauthenticated bulk length"),
            ("x".repeat(most), 0, "Protocol error: too big inline request"),
        ] {
            let (commands, error) =
                within(stream.as_bytes(), &mut Rng::new(1), RequestBounds::STRANGER);
            assert_eq!((commands.len(), &*error), (found, expected));
        }
    }

    #[test]
    fn room_for_many_arguments_is_given_back() {
        let mut parser = Parser::default();
        let stream = format!("*200000\r\n{}", "$0\r\n\r\n".repeat(200_000));
        let step = parser.step(stream.as_bytes(), RequestBounds::new(1 << 20));
        assert!(step == ParserStep::Command(stream.len()) && parser.capacity() >= 3_000_000);
        assert_eq!(parser.step(b"", RequestBounds::new(1 << 20)), ParserStep::More);
        assert!(parser.capacity() <= 2 * ARGS_KEPT * size_of::<Range<usize>>());
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut rng = Rng::new(5);
        let alphabet = b"*$\r\n0123456789-aG\" ";
        for _ in 0..20_000 {
            let len = rng.below(60) as usize;
            let pick = |_| alphabet[rng.below(alphabet.len() as u64) as usize];
            let bytes: Vec<u8> = (0..len).map(pick).collect();
            let (found, error) = commands(&bytes, &mut Rng::new(7), 40);
            assert!(found.len() <= bytes.len() && error.len() < 100);
        }
    }
}
