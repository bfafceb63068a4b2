//! Answers as bytes, before they are written for one client's version of the protocol.
//!
//! An answer is RESP3 with two marks of our own, so that most answers go to a client unchanged:
//! `*-1` is the null that RESP2 writes as a null array, and `&n` is an array of `n` pairs, nested
//! in RESP3 and flat in RESP2.

use super::number;
use std::borrow::Cow;

/// An error as Redis words it: its first word is its code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error(pub Cow<'static, str>);

impl Error {
    pub(crate) const SYNTAX: Self = Self(Cow::Borrowed("ERR syntax error"));
    pub(crate) const WRONG_TYPE: Self =
        Self(Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value"));
    pub(crate) const NOT_INTEGER: Self =
        Self(Cow::Borrowed("ERR value is not an integer or out of range"));
    pub(crate) const NOT_FLOAT: Self = Self(Cow::Borrowed("ERR value is not a valid float"));
    pub(crate) const NO_KEY: Self = Self(Cow::Borrowed("ERR no such key"));
    pub(crate) const OUT_OF_RANGE: Self = Self(Cow::Borrowed("ERR index out of range"));
    pub(crate) const TOO_LONG: Self =
        Self(Cow::Borrowed("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));

    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }

    pub(crate) fn arity(name: &str) -> Self {
        Self(format!("ERR wrong number of arguments for '{name}' command").into())
    }
}

/// Appends an answer to a buffer.
pub struct Reply<'a>(&'a mut Vec<u8>);

impl<'a> Reply<'a> {
    /// Answers go to the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self(out)
    }

    /// A reply to the same place, for a shorter time.
    pub fn again(&mut self) -> Reply<'_> {
        Reply(self.0)
    }

    /// How many bytes were written so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes back all bytes from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.0.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string, which must not hold a line's end.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error. Ends of lines become spaces.
    pub fn error(&mut self, error: &Error) {
        self.0.push(b'-');
        self.0.extend(error.0.bytes().map(|b| if b == b'\r' || b == b'\n' { b' ' } else { b }));
        self.0.extend_from_slice(b"\r\n");
    }

    /// An integer.
    pub fn int(&mut self, n: i64) {
        self.0.push(b':');
        number::push_int(self.0, n);
        self.0.extend_from_slice(b"\r\n");
    }

    /// A length or count as an integer.
    pub fn count(&mut self, n: usize) {
        self.int(n as i64);
    }

    /// 1 or 0.
    pub fn flag(&mut self, yes: bool) {
        self.0.extend_from_slice(if yes { b":1\r\n" } else { b":0\r\n" });
    }

    /// A string of bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len());
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(b"\r\n");
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
        self.head(b'=', text.len() + 4);
        self.0.extend_from_slice(b"txt:");
        self.0.extend_from_slice(text.as_bytes());
        self.0.extend_from_slice(b"\r\n");
    }

    /// A double.
    pub fn double(&mut self, d: f64) {
        self.0.push(b',');
        number::push_double(self.0, d);
        self.0.extend_from_slice(b"\r\n");
    }

    /// Null where a string or number might have been.
    pub fn null(&mut self) {
        self.0.extend_from_slice(b"_\r\n");
    }

    /// Null where an array might have been.
    pub fn null_array(&mut self) {
        self.0.extend_from_slice(b"*-1\r\n");
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
        self.0.extend_from_slice(bytes);
    }

    fn head(&mut self, mark: u8, n: usize) {
        self.0.push(mark);
        number::push_int(self.0, n as i64);
        self.0.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, mark: u8, text: &[u8]) {
        self.0.push(mark);
        self.0.extend_from_slice(text);
        self.0.extend_from_slice(b"\r\n");
    }
}
