//! Answers as bytes, before they are written for one client's version of the protocol.
//!
//! An answer is RESP3 with two marks of our own, so that most answers go to a client unchanged:
//! `*-1` is the null that RESP2 writes as a null array, and `&n` is an array of `n` pairs, nested
//! in RESP3 and flat in RESP2.

use super::number;
use amcast_core::Outcome;
use amcast_core::limits::ANSWER_BYTES_MAX;
use std::borrow::Cow;
use std::fmt;

/// Bytes that a number takes with what is around it, at most.
const NUMBER_BYTES_MAX: usize = 64;

/// An error as Redis words it: its first word is its code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisError {
    text: Cow<'static, str>,
    /// The command's outcome, if this is the whole answer.
    outcome: Outcome,
}

impl RedisError {
    pub(crate) const SYNTAX: Self = Self::fixed("ERR syntax error");
    pub(crate) const WRONG_TYPE: Self =
        Self::fixed("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const NOT_INTEGER: Self = Self::fixed("ERR value is not an integer or out of range");
    pub(crate) const NOT_FLOAT: Self = Self::fixed("ERR value is not a valid float");
    pub(crate) const NOT_FINITE: Self = Self::fixed("ERR increment would produce NaN or Infinity");
    pub(crate) const NO_KEY: Self = Self::fixed("ERR no such key");
    pub(crate) const OUT_OF_RANGE: Self = Self::fixed("ERR index out of range");
    pub(crate) const TOO_LONG: Self =
        Self::fixed("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

    /// An error that the command came to.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into(), outcome: Outcome::Executed }
    }

    /// The same of a text that never changes.
    pub(crate) const fn fixed(text: &'static str) -> Self {
        Self { text: Cow::Borrowed(text), outcome: Outcome::Executed }
    }

    /// An error that ends by telling what became of the command.
    pub fn of(outcome: Outcome, why: impl fmt::Display) -> Self {
        Self { text: format!("{why}; {}", outcome.words()).into(), outcome }
    }

    /// The command was refused before it was executed, in words of Redis that do not say so.
    pub(crate) fn refused(text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into(), outcome: Outcome::NotExecuted }
    }

    /// The outcome of the command whose whole answer it is.
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Its words.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn answer_too_large() -> Self {
        Self::of(
            Outcome::Executed,
            format_args!(
                "ERR the answer is larger than the limit of {ANSWER_BYTES_MAX} bytes; ask for less at a time"
            ),
        )
    }

    pub(crate) fn too_many_taken() -> Self {
        Self::of(
            Outcome::NotExecuted,
            format_args!(
                "ERR the answer could be larger than the limit of {ANSWER_BYTES_MAX} bytes; take fewer at a time"
            ),
        )
    }

    pub(crate) fn arity(name: &str) -> Self {
        Self::new(format!("ERR wrong number of arguments for '{name}' command"))
    }
}

/// Appends an answer to a buffer, which it never makes longer than [`ANSWER_BYTES_MAX`], or another bound: an answer can be
/// larger by far than its question. An element that does not fit is omitted, with all that follow, and
/// [`finish`](Self::finish) puts an error in place of the answer. A command that gathers much before it
/// writes checks [`is_over`](Self::is_over) meanwhile.
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    /// Bytes that the buffer may hold.
    most: usize,
    /// Something was omitted.
    over: bool,
}

impl<'a> Reply<'a> {
    /// Answers go to the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, most: ANSWER_BYTES_MAX, over: false }
    }

    /// The same of an answer of `most` bytes.
    pub(crate) fn at_most(most: usize, out: &'a mut Vec<u8>) -> Self {
        Self { most: out.len() + most, out, over: false }
    }

    /// How many bytes were written so far.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Whether the answer is larger than answers may be: nothing is added to it any more.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The present end, for a later [`take_back`](Self::take_back).
    pub fn mark(&self) -> (usize, bool) {
        (self.out.len(), self.over)
    }

    /// Takes back all that was written since `mark`.
    pub fn take_back(&mut self, (len, over): (usize, bool)) {
        self.out.truncate(len);
        self.over = over;
    }

    /// Ends the answer that began at `start`: one that was too large gives way to an error.
    pub fn finish(&mut self, start: usize) {
        if self.over {
            self.take_back((start, false));
            self.error(&RedisError::answer_too_large());
        }
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// A simple string, which must not hold a line's end.
    pub fn simple(&mut self, text: &str) {
        if self.takes(text.len() + 3) {
            self.out.push(b'+');
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// An error. Ends of lines become spaces.
    pub fn error(&mut self, error: &RedisError) {
        if self.takes(error.text.len() + 3) {
            let text = error.text.bytes().map(|b| if b == b'\r' || b == b'\n' { b' ' } else { b });
            self.out.push(b'-');
            self.out.extend(text);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// An error that is the whole answer; what became of the command.
    pub(crate) fn failed(&mut self, error: &RedisError) -> Outcome {
        self.error(error);
        error.outcome
    }

    /// An integer.
    pub fn int(&mut self, n: i64) {
        self.number(b':', |out| number::push_int(out, n));
    }

    /// A length or count as an integer.
    pub fn count(&mut self, n: usize) {
        self.int(n as i64);
    }

    /// 1 or 0.
    pub fn flag(&mut self, yes: bool) {
        self.raw(if yes { b":1\r\n" } else { b":0\r\n" });
    }

    /// A string of bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.string(b'$', b"", bytes);
    }

    /// A string of bytes or null.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Text for people: verbatim in RESP3.
    pub fn text(&mut self, text: &str) {
        self.string(b'=', b"txt:", text.as_bytes());
    }

    /// A double.
    pub fn double(&mut self, d: f64) {
        self.number(b',', |out| number::push_double(out, d));
    }

    /// Null where a string or number might have been.
    pub fn null(&mut self) {
        self.raw(b"_\r\n");
    }

    /// Null where an array might have been.
    pub fn null_array(&mut self) {
        self.raw(b"*-1\r\n");
    }

    /// The head of an array; `n` elements follow.
    pub fn array(&mut self, n: usize) {
        self.head(b'*', n);
    }

    /// The head of a map; `n` keys and values follow.
    pub fn map(&mut self, n: usize) {
        self.head(b'%', n);
    }

    /// The head of a set; `n` elements follow.
    pub fn set(&mut self, n: usize) {
        self.head(b'~', n);
    }

    /// The head of `n` pairs of plain elements.
    pub fn pairs(&mut self, n: usize) {
        self.head(b'&', n);
    }

    /// Bytes that are an answer already.
    pub fn raw(&mut self, bytes: &[u8]) {
        if self.takes(bytes.len()) {
            self.out.extend_from_slice(bytes);
        }
    }

    fn head(&mut self, mark: u8, n: usize) {
        self.number(mark, |out| number::push_int(out, n as i64));
    }

    fn number(&mut self, mark: u8, push: impl FnOnce(&mut Vec<u8>)) {
        if self.takes(NUMBER_BYTES_MAX) {
            self.out.push(mark);
            push(self.out);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Bytes behind their number; `before` is among them.
    fn string(&mut self, mark: u8, before: &[u8], bytes: &[u8]) {
        let len = before.len() + bytes.len();
        if self.takes(len.saturating_add(NUMBER_BYTES_MAX + 2)) {
            self.head(mark, len);
            self.out.extend_from_slice(before);
            self.out.extend_from_slice(bytes);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Whether `n` more bytes fit: if not, nothing does any more.
    fn takes(&mut self, n: usize) -> bool {
        self.over |= n > self.most.saturating_sub(self.out.len());
        !self.over
    }
}
