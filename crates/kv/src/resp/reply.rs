//! Writes an answer as one client's version of the protocol wants it.

use crate::number::parse_int;

/// Appends `answer` to `out` in RESP2 or RESP3.
pub fn write(answer: &[u8], resp: u8, out: &mut Vec<u8>) {
    match answer.first() {
        Some(b'+' | b'-' | b':' | b'$') => out.extend_from_slice(answer),
        _ => {
            let mut rest = answer;
            while !rest.is_empty() {
                rest = element(rest, resp, out);
            }
        }
    }
}

/// Whether [`write()`] would append `answer` as it is.
pub fn is_same(answer: &[u8], resp: u8) -> bool {
    if let Some(b'+' | b'-' | b':' | b'$') = answer.first() {
        return true;
    }
    let mut rest = answer;
    while !rest.is_empty() {
        let (mark, line, tail) = head(rest);
        rest = tail;
        match (mark, resp) {
            (b'$', _) | (b'=', 3) => {
                let count = parse_int(line).map_or(0, |n| n.max(0) as usize);
                let Some(tail) = rest.get(count + 2..) else { return false };
                rest = tail;
            }
            (b'*', 3) if line == b"-1" => return false,
            (b'&', _) | (b'=' | b'_' | b'%' | b'~' | b',', 2) => return false,
            _ => {}
        }
    }
    true
}

/// The head of the first element, its number if it has one, and what follows the head.
fn head(bytes: &[u8]) -> (u8, &[u8], &[u8]) {
    let end = bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |i| i + 1);
    let line = bytes[1..end].strip_suffix(b"\r\n").unwrap_or_default();
    (bytes[0], line, &bytes[end..])
}

/// Writes the first element, for collections their head; what follows.
fn element<'a>(bytes: &'a [u8], resp: u8, out: &mut Vec<u8>) -> &'a [u8] {
    let (mark, line, rest) = head(bytes);
    let put = |out: &mut Vec<u8>, mark: u8, n: usize| {
        out.push(mark);
        crate::number::push_int(out, n as i64);
        out.extend_from_slice(b"\r\n");
    };
    let count = || parse_int(line).map_or(0, |n| n.max(0) as usize);
    let same =
        |out: &mut Vec<u8>, rest: &[u8]| out.extend_from_slice(&bytes[..bytes.len() - rest.len()]);
    match (mark, resp) {
        (b'$' | b'=', _) => {
            let (text, rest) = rest.split_at_checked(count() + 2).unwrap_or((rest, &[]));
            if mark == b'=' && resp == 2 {
                put(out, b'$', count().saturating_sub(4));
                out.extend_from_slice(text.get(4..).unwrap_or_default());
            } else {
                same(out, rest);
            }
            return rest;
        }
        (b'_', 2) => out.extend_from_slice(b"$-1\r\n"),
        (b'*', 3) if line == b"-1" => out.extend_from_slice(b"_\r\n"),
        (b'%', 2) => put(out, b'*', 2 * count()),
        (b'~', 2) => put(out, b'*', count()),
        (b',', 2) => {
            put(out, b'$', line.len());
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
        (b'&', 2) => put(out, b'*', 2 * count()),
        (b'&', _) => {
            put(out, b'*', count());
            let mut rest = rest;
            for _ in 0..count() {
                out.extend_from_slice(b"*2\r\n");
                for _ in 0..2 {
                    if !rest.is_empty() {
                        rest = element(rest, resp, out);
                    }
                }
            }
            return rest;
        }
        _ => same(out, rest),
    }
    rest
}

/// The elements of an answer that is an array; none if it is not one.
pub fn elements(answer: &[u8]) -> Option<Vec<&[u8]>> {
    let (mark, line, mut rest) = head(answer);
    if mark != b'*' || line == b"-1" {
        return None;
    }
    let mut found = Vec::new();
    while !rest.is_empty() {
        let tail = skip(rest);
        found.push(&rest[..rest.len() - tail.len()]);
        rest = tail;
    }
    Some(found)
}

/// The bytes behind the first element with all its parts.
fn skip(bytes: &[u8]) -> &[u8] {
    let (mut rest, mut missing) = (bytes, 1_usize);
    while missing > 0 && !rest.is_empty() {
        let (mark, line, tail) = head(rest);
        let n = parse_int(line).map_or(0, |n| n.max(0) as usize);
        rest = tail;
        missing -= 1;
        match mark {
            b'$' | b'=' => rest = rest.get(n + 2..).unwrap_or_default(),
            b'*' | b'~' => missing += n,
            b'%' | b'&' => missing += 2 * n,
            _ => {}
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::{RedisError, Reply};

    fn both(fill: impl Fn(&mut Reply<'_>)) -> (String, String) {
        let mut answer = Vec::new();
        fill(&mut Reply::new(&mut answer));
        let shown = |resp| {
            let mut out = Vec::new();
            write(&answer, resp, &mut out);
            assert_eq!(is_same(&answer, resp), out == answer, "{answer:?} in RESP{resp}");
            String::from_utf8(out).unwrap()
        };
        (shown(2), shown(3))
    }

    #[test]
    fn each_type_is_written_for_each_version() {
        let two = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(both(|r| r.null()), two("$-1\r\n", "_\r\n"));
        assert_eq!(both(|r| r.null_array()), two("*-1\r\n", "_\r\n"));
        assert_eq!(both(|r| r.double(1.5)), two("$3\r\n1.5\r\n", ",1.5\r\n"));
        assert_eq!(both(|r| r.text("ab")), two("$2\r\nab\r\n", "=6\r\ntxt:ab\r\n"));
        let map = both(|r| {
            r.map(1);
            r.bulk(b"a\n");
            r.set(1);
            r.int(1);
        });
        assert_eq!(map, two("*2\r\n$2\r\na\n\r\n*1\r\n:1\r\n", "%1\r\n$2\r\na\n\r\n~1\r\n:1\r\n"));
        let pairs = both(|r| {
            r.array(2);
            r.pairs(1);
            r.bulk(b"m");
            r.double(2.0);
            r.error(&RedisError::SYNTAX);
        });
        assert_eq!(
            pairs,
            two(
                "*2\r\n*2\r\n$1\r\nm\r\n$1\r\n2\r\n-ERR syntax error\r\n",
                "*2\r\n*1\r\n*2\r\n$1\r\nm\r\n,2\r\n-ERR syntax error\r\n"
            )
        );
    }

    #[test]
    fn an_array_is_taken_apart() {
        let mut answer = Vec::new();
        let mut r = Reply::new(&mut answer);
        r.array(3);
        r.ok();
        r.map(1);
        r.bulk(b"*1\r\n");
        r.array(0);
        r.null_array();
        let parts = elements(&answer).unwrap();
        assert_eq!(parts, [&b"+OK\r\n"[..], b"%1\r\n$4\r\n*1\r\n\r\n*0\r\n", b"*-1\r\n"]);
        assert_eq!(elements(b"*-1\r\n"), None);
    }
}
