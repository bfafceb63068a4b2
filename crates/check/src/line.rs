//! One line of a history taken apart: a strict reader of one flat JSON object that copies nothing.
//!
//! Written by hand because reading is most of the time that judging a long history takes: it keeps
//! slices of the line, and looks at the values of unknown fields only to see that they are JSON.

use alloc::borrow::Cow;
use alloc::string::String;

/// Why a line is not an object of JSON, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MalformedLine {
    /// The byte at fault, from 0.
    pub(crate) at: usize,
    /// The expected token.
    pub(crate) want: &'static str,
    /// Whether the line simply ends too early.
    pub(crate) cut: bool,
}

/// The fields that mean something in a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FieldName {
    Ev,
    T,
    P,
    M,
    Dst,
    Groups,
    View,
    Members,
    Op,
    Out,
    Left,
    Parents,
    Restored,
}

impl FieldName {
    const COUNT: usize = 13;

    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "ev" => Self::Ev,
            "t" => Self::T,
            "p" => Self::P,
            "m" => Self::M,
            "dst" => Self::Dst,
            "groups" => Self::Groups,
            "view" => Self::View,
            "members" => Self::Members,
            "op" => Self::Op,
            "out" => Self::Out,
            "left" => Self::Left,
            "parents" => Self::Parents,
            "restored" => Self::Restored,
            _ => return None,
        })
    }

    /// Its name in the line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ev => "ev",
            Self::T => "t",
            Self::P => "p",
            Self::M => "m",
            Self::Dst => "dst",
            Self::Groups => "groups",
            Self::View => "view",
            Self::Members => "members",
            Self::Op => "op",
            Self::Out => "out",
            Self::Left => "left",
            Self::Parents => "parents",
            Self::Restored => "restored",
        }
    }
}

/// A value of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldValue<'a> {
    /// A string; `escaped` if it holds backslashes.
    Text { raw: &'a str, escaped: bool },
    /// A number without sign, point or exponent that fits in 64 bits.
    Whole(u64),
    /// A list; the slice starts behind its bracket.
    List(&'a str),
    /// `true`.
    True,
    /// Anything else.
    Other,
}

/// The known fields of one line: each value and the byte where it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>([Option<(FieldValue<'a>, usize)>; FieldName::COUNT]);

impl<'a> Fields<'a> {
    /// Takes `line` apart.
    pub(crate) fn parse(line: &'a str) -> Result<Self, MalformedLine> {
        let mut fields = [None; FieldName::COUNT];
        let mut c = LineCursor { text: line, at: 0 };
        c.space();
        c.expect(b'{', "'{'")?;
        c.space();
        if c.peek() == Some(b'}') {
            c.at += 1;
        } else {
            loop {
                c.space();
                let start = c.at;
                let (raw, escaped) = c.string()?;
                c.space();
                c.expect(b':', "':'")?;
                c.space();
                let (at, value) = (c.at, c.value()?);
                // An escaped key is none of ours: known keys need no escapes.
                if let Some(field) = FieldName::of(raw).filter(|_| !escaped) {
                    if fields[field as usize].is_some() {
                        return Err(MalformedLine {
                            at: start,
                            want: "each field once",
                            cut: false,
                        });
                    }
                    fields[field as usize] = Some((value, at));
                }
                c.space();
                match c.next() {
                    Some(b',') => {}
                    Some(b'}') => break,
                    found => return Err(c.wrong(found, "',' or '}'")),
                }
            }
        }
        c.space();
        match c.next() {
            None => Ok(Self(fields)),
            found => Err(c.wrong(found, "the end of the line")),
        }
    }

    /// The value of `field` and the byte where it starts.
    pub(crate) fn get(&self, field: FieldName) -> Option<(FieldValue<'a>, usize)> {
        self.0[field as usize]
    }
}

impl<'a> FieldValue<'a> {
    /// The text of a string, escapes resolved; nothing if this is no string.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Text { raw, escaped: false } => Some(Cow::Borrowed(raw)),
            Self::Text { raw, escaped: true } => unescape(raw).map(Cow::Owned),
            _ => None,
        }
    }
}

/// The strings of a list whose text starts at `rest`; an item that is no string is `None`.
pub(crate) fn items(rest: &str) -> impl Iterator<Item = Option<Cow<'_, str>>> {
    let mut c = LineCursor { text: rest, at: 0 };
    let mut done = false;
    core::iter::from_fn(move || {
        c.space();
        if done || c.peek() == Some(b']') {
            return None;
        }
        let item = c.value().ok().and_then(FieldValue::text);
        c.space();
        done = item.is_none() || c.next() != Some(b',');
        Some(item)
    })
}

struct LineCursor<'a> {
    text: &'a str,
    at: usize,
}

/// Lists and objects inside one another that a line may hold in a field we do not know.
const DEPTH_MAX: usize = 64;

impl<'a> LineCursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let b = self.peek()?;
        self.at += 1;
        Some(b)
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// The error for having read `found` (the byte before the cursor, or the end).
    fn wrong(&self, found: Option<u8>, want: &'static str) -> MalformedLine {
        let at = if found.is_some() { self.at - 1 } else { self.at };
        MalformedLine { at, want, cut: found.is_none() }
    }

    fn expect(&mut self, byte: u8, want: &'static str) -> Result<(), MalformedLine> {
        match self.next() {
            Some(b) if b == byte => Ok(()),
            found => Err(self.wrong(found, want)),
        }
    }

    /// A string: what is between the quotes, and whether it holds escapes.
    fn string(&mut self) -> Result<(&'a str, bool), MalformedLine> {
        self.expect(b'"', "a string")?;
        let (start, mut escaped) = (self.at, false);
        loop {
            match self.next() {
                Some(b'"') => return Ok((&self.text[start..self.at - 1], escaped)),
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(0..0x20) => return Err(self.wrong(Some(0), "an escaped control character")),
                Some(_) => {}
                None => return Err(self.wrong(None, "the end of the string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), MalformedLine> {
        match self.next() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(()),
            Some(b'u') => {
                for _ in 0..4 {
                    match self.next() {
                        Some(b) if b.is_ascii_hexdigit() => {}
                        found => return Err(self.wrong(found, "four hexadecimal digits")),
                    }
                }
                Ok(())
            }
            found => Err(self.wrong(found, "an escape")),
        }
    }

    /// Any value. Lists and objects are walked through without recursion.
    fn value(&mut self) -> Result<FieldValue<'a>, MalformedLine> {
        match self.peek() {
            Some(b'"') => self.string().map(|(raw, escaped)| FieldValue::Text { raw, escaped }),
            Some(b'[') => {
                let start = self.at + 1;
                self.nested()?;
                Ok(FieldValue::List(&self.text[start..]))
            }
            Some(b'{') => self.nested().map(|()| FieldValue::Other),
            _ => self.scalar(),
        }
    }

    /// A number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Result<FieldValue<'a>, MalformedLine> {
        let start = self.at;
        while let Some(b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.') = self.peek() {
            self.at += 1;
        }
        let word = &self.text[start..self.at];
        let bad = |cut| MalformedLine { at: start, want: "a value", cut };
        match word {
            "true" => Ok(FieldValue::True),
            "false" | "null" => Ok(FieldValue::Other),
            "" => Err(bad(self.peek().is_none())),
            _ if !is_number(word) => Err(bad(false)),
            _ if word.bytes().all(|b| b.is_ascii_digit()) => {
                Ok(word.parse().map_or(FieldValue::Other, FieldValue::Whole))
            }
            _ => Ok(FieldValue::Other),
        }
    }

    /// A list or an object, walked to its end.
    fn nested(&mut self) -> Result<(), MalformedLine> {
        let mut open = [false; DEPTH_MAX]; // true: an object
        let mut depth = 0;
        loop {
            // Here a value starts.
            self.space();
            match self.peek() {
                Some(bracket @ (b'[' | b'{')) => {
                    if depth == DEPTH_MAX {
                        let want = "fewer lists and objects inside one another";
                        return Err(MalformedLine { at: self.at, want, cut: false });
                    }
                    self.at += 1;
                    open[depth] = bracket == b'{';
                    depth += 1;
                    self.space();
                    if self.peek() != Some(if open[depth - 1] { b'}' } else { b']' }) {
                        if open[depth - 1] {
                            self.key()?;
                        }
                        continue;
                    }
                }
                Some(b'"') => self.string().map(|_| ())?,
                _ => self.scalar().map(|_| ())?,
            }
            // Here a value has ended, or an empty list or object ends.
            loop {
                self.space();
                let object = open[depth - 1];
                match self.next() {
                    Some(b',') => {
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    Some(b'}') if object => depth -= 1,
                    Some(b']') if !object => depth -= 1,
                    found => return Err(self.wrong(found, "',' or the closing bracket")),
                }
                if depth == 0 {
                    return Ok(());
                }
            }
        }
    }

    /// A key of an object inside and its colon.
    fn key(&mut self) -> Result<(), MalformedLine> {
        self.space();
        self.string()?;
        self.space();
        self.expect(b':', "':'")
    }
}

/// Whether `word` is a number as JSON writes it.
fn is_number(word: &str) -> bool {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let word = word.strip_prefix('-').unwrap_or(word);
    let (base, exponent) = match word.split_once(['e', 'E']) {
        Some((base, e)) => (base, Some(e.strip_prefix(['+', '-']).unwrap_or(e))),
        None => (word, None),
    };
    let (whole, part) = match base.split_once('.') {
        Some((whole, part)) => (whole, Some(part)),
        None => (base, None),
    };
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && part.is_none_or(digits)
        && exponent.is_none_or(digits)
}

/// The text that `raw`, whose escapes are well formed, denotes. Nothing for half of a pair of
/// surrogates, which denotes no character.
fn unescape(raw: &str) -> Option<String> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let kind = *rest.as_bytes().get(at + 1)?;
        rest = &rest[at + 2..];
        out.push(match kind {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = |s: &str| u32::from_str_radix(s.get(..4)?, 16).ok();
                let mut code = unit(rest)?;
                rest = &rest[4..];
                if (0xd800..0xdc00).contains(&code) {
                    let low = unit(rest.strip_prefix("\\u")?)?;
                    let low = low.checked_sub(0xdc00).filter(|&l| l < 0x400)?;
                    code = 0x1_0000 + ((code - 0xd800) << 10) + low;
                    rest = &rest[6..];
                }
                char::from_u32(code)?
            }
            other => other as char,
        });
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;

    #[test]
    fn fields_come_in_any_order_and_unknown_ones_are_passed_over() {
        let line =
            r#" {"x":{"a":[1,{"b":[]},-2.5e3],"c":null},"m":"c1:4","y":[],"t":17,"ev":"part"} "#;
        let f = Fields::parse(line).unwrap();
        assert_eq!(f.get(FieldName::M).unwrap().0.text().unwrap(), "c1:4");
        assert!(matches!(f.get(FieldName::T), Some((FieldValue::Whole(17), _))));
        assert!(f.get(FieldName::Dst).is_none());
    }

    #[test]
    fn escapes_stand_for_what_they_mean() {
        let f = Fields::parse(r#"{"op":"a\"\\\u0001\n\ud83d\ude00\u00e9"}"#).unwrap();
        assert_eq!(f.get(FieldName::Op).unwrap().0.text().unwrap(), "a\"\\\u{1}\n\u{1f600}\u{e9}");
        let lone = Fields::parse(r#"{"op":"\ud83d"}"#).unwrap();
        assert!(lone.get(FieldName::Op).unwrap().0.text().is_none());
    }

    #[test]
    fn a_list_gives_its_strings() {
        let f = Fields::parse(r#"{"dst":[ "g0" , "g2" ],"groups":[]}"#).unwrap();
        let Some((FieldValue::List(rest), _)) = f.get(FieldName::Dst) else { panic!("a list") };
        assert_eq!(items(rest).map(Option::unwrap).collect::<Vec<_>>(), ["g0", "g2"]);
        let Some((FieldValue::List(rest), _)) = f.get(FieldName::Groups) else { panic!("a list") };
        assert_eq!(items(rest).count(), 0);
    }

    #[test]
    fn what_is_not_json_is_refused_where_it_goes_wrong() {
        let wrong = |line: &str| Fields::parse(line).unwrap_err();
        assert_eq!((wrong(r#"{"t":17"#).at, wrong(r#"{"t":17"#).cut), (7, true));
        assert_eq!(wrong(r#"{"t":017}"#).at, 5);
        assert_eq!(wrong(r#"{"t":17,"t":18}"#).want, "each field once");
        assert_eq!(wrong(r#"{"t":17} x"#).at, 9);
        assert!(wrong(r#"{"p":"g0"#).cut && !wrong(r#"{"p":}"#).cut);
        assert!(wrong("").cut);
        let deep = format!("{{\"x\":{}", "[".repeat(1_000_000));
        assert!(wrong(&deep).want.starts_with("fewer"));
    }
}
