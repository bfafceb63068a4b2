//! Numbers as Redis reads and prints them.

use super::reply::RedisError;
use std::io::Write;

/// Appends `n` in decimal.
pub(crate) fn push_int(out: &mut Vec<u8>, n: i64) {
    if (0..10).contains(&n) {
        out.push(b'0' + n as u8);
        return;
    }
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = n.unsigned_abs();
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    if n < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends `d` with the fewest digits that read back as `d`; integers without a point, large and
/// small ones with an exponent (`1e+21`), as Redis 7.2 prints scores.
pub(crate) fn push_double(out: &mut Vec<u8>, d: f64) {
    if d.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if d.is_infinite() {
        return out.extend_from_slice(if d > 0.0 { b"inf" } else { b"-inf" });
    }
    if d == d.trunc() && d.abs() < (1_u64 << 62) as f64 {
        if d == 0.0 && d.is_sign_negative() {
            out.push(b'-');
        }
        return push_int(out, d as i64);
    }
    let science = format!("{d:e}");
    let (mantissa, exponent) = science.split_once('e').expect("an exponent is printed");
    let exponent: i32 = exponent.parse().expect("a printed exponent");
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count() as i32;
    let scale = exponent - digits + 1;
    let plain =
        if scale >= 0 { exponent.abs() < digits + 7 } else { scale > -7 || exponent.abs() < 4 };
    let written = if plain {
        write!(out, "{d}")
    } else {
        write!(out, "{mantissa}e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
    };
    written.expect("a buffer takes all");
}

/// Reads a 64-bit integer as strictly as Redis: no plus sign, no leading zeros or spaces.
pub(crate) fn int(bytes: &[u8]) -> Result<i64, RedisError> {
    parse_int(bytes).ok_or(RedisError::NOT_INTEGER)
}

/// Reads the count of members that are chosen at random: its negation is a number of 64 bits, too.
pub(crate) fn random_count(bytes: &[u8]) -> Result<i64, RedisError> {
    int(bytes)?.checked_neg().map(|n| -n).ok_or(OUT_OF_NEGATABLE)
}

/// Refuses a count of members that are chosen at random and told with their values, if twice its size has more than
/// 64 bits.
pub(crate) fn check_random_pairs(count: i64) -> Result<(), RedisError> {
    const MOST: i64 = i64::MAX / 2;
    let fits = (-MOST..=MOST).contains(&count);
    if fits { Ok(()) } else { Err(RedisError::fixed("ERR value is out of range")) }
}

/// The error of a number whose negation has more than 64 bits.
pub(crate) const OUT_OF_NEGATABLE: RedisError = RedisError::fixed(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);

/// Reads a decimal number of 64 bits as Redis does: no sign but `-`, no zeros in front.
pub fn parse_int(bytes: &[u8]) -> Option<i64> {
    if bytes == b"0" {
        return Some(0);
    }
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || digits.len() > 19 || digits[0] == b'0' {
        return None;
    }
    let mut n: u64 = 0;
    for &b in digits {
        if !b.is_ascii_digit() {
            return None;
        }
        n = n * 10 + u64::from(b - b'0');
    }
    match negative {
        false => i64::try_from(n).ok(),
        true if n <= 1 << 63 => Some((n as i64).wrapping_neg()),
        true => None,
    }
}

/// Reads a double as Redis does in an argument: decimal or hexadecimal (`0x1.8p3`), or an infinity; never NaN. A number
/// beyond the largest double is none, nor is one that is too small for a double and not zero.
pub(crate) fn double(bytes: &[u8]) -> Result<f64, RedisError> {
    parse_double(bytes).ok_or(RedisError::NOT_FLOAT)
}

/// As [`double`].
pub(crate) fn parse_double(bytes: &[u8]) -> Option<f64> {
    let d = read_double(bytes)?;
    // The word may have a sign in front. A hexadecimal number may end in the same letter.
    let is_named = || {
        let word = bytes.strip_prefix(b"-").or(bytes.strip_prefix(b"+")).unwrap_or(bytes);
        word.first().is_some_and(|b| b.eq_ignore_ascii_case(&b'i'))
    };
    let is_zero = || {
        let (digits, end) = match bytes.iter().any(|b| b"xX".contains(b)) {
            true => (&b"123456789abcdefABCDEF"[..], &b"pP"[..]),
            false => (&b"123456789"[..], &b"eE"[..]),
        };
        let mut mantissa = bytes.iter().take_while(|b| !end.contains(b));
        !mantissa.any(|b| digits.contains(b))
    };
    match d {
        _ if d.is_infinite() => is_named().then_some(d),
        0.0 => is_zero().then_some(d),
        _ => Some(d),
    }
}

/// Reads a double as `strtod` of C does all of a text, as Redis does the bounds of scores: spaces may be in front, and
/// nothing is zero. Never NaN.
pub(crate) fn parse_loose_double(bytes: &[u8]) -> Option<f64> {
    // A text of C ends there.
    let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
    let begin = bytes.iter().position(|b| !b" \t\n\x0b\x0c\r".contains(b));
    match begin {
        _ if bytes.is_empty() => Some(0.0),
        Some(begin) => read_double(&bytes[begin..]),
        None => None,
    }
}

/// Reads a double in decimal or hexadecimal, or an infinity.
fn read_double(bytes: &[u8]) -> Option<f64> {
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let d = match digits {
        [b'0', b'x' | b'X', rest @ ..] => hexadecimal(rest)?,
        // There is one sign at most.
        [b'-' | b'+', ..] => return None,
        _ => core::str::from_utf8(digits).ok()?.parse().ok()?,
    };
    let d: f64 = if negative { -d } else { d };
    (!d.is_nan()).then_some(d)
}

/// Reads the digits behind `0x`, with a point or not, and a binary exponent behind `p`; rounded to the nearest double.
fn hexadecimal(text: &[u8]) -> Option<f64> {
    let at = text.iter().position(|b| b"pP".contains(b));
    let (digits, exponent) = match at {
        Some(at) => (&text[..at], binary_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    // Further digits only say whether there is anything behind those that are kept.
    let mut kept = 0_u64;
    let mut scale = exponent;
    let mut count = 0;
    let mut point = false;
    for b in digits {
        if *b == b'.' && !point {
            point = true;
            continue;
        }
        let digit = u64::from((*b as char).to_digit(16)?);
        count += 1;
        let fits = kept >> 58 == 0;
        kept = if fits { kept << 4 | digit } else { kept | u64::from(digit > 0) };
        scale += i64::from(!fits) * 4 - i64::from(point) * 4;
    }
    (count > 0).then(|| scaled(kept, scale))
}

/// Reads the exponent of a hexadecimal number. One of many digits is as good as a very large one.
fn binary_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let far = 1 << 40;
    let exponent = digits.iter().fold(0, |n: i64, b| (n * 10 + i64::from(b - b'0')).min(far));
    Some(if negative { -exponent } else { exponent })
}

/// `n` times two to the power of `scale`, rounded once to the nearest double.
fn scaled(n: u64, scale: i64) -> f64 {
    /// The exponents of the highest bit of the largest doubles, and of the smallest with all their bits.
    const TOP: (i64, i64) = (1023, -1022);
    /// The exponent of the lowest bit of the smallest doubles.
    const LOWEST: i64 = -1074;
    if n == 0 {
        return 0.0;
    }
    let top = scale + 63 - i64::from(n.leading_zeros());
    if top > TOP.0 {
        return f64::INFINITY;
    }
    if top >= TOP.1 {
        // The conversion rounds; it may carry into an exponent that is too large.
        let bits = (n as f64).to_bits();
        let exponent = (bits >> 52) as i64 + scale;
        let largest = exponent >= 2047;
        return if largest {
            f64::INFINITY
        } else {
            f64::from_bits(bits & !(0x7ff << 52) | (exponent as u64) << 52)
        };
    }
    let dropped = LOWEST - scale;
    let n = u128::from(n);
    let units = match dropped {
        ..=0 => n << -dropped,
        1..=64 => {
            let (whole, rest, half) = (n >> dropped, n & ((1 << dropped) - 1), 1 << (dropped - 1));
            whole + u128::from(rest > half || rest == half && whole & 1 == 1)
        }
        _ => 0,
    };
    f64::from_bits(units as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(d: f64) -> String {
        let mut out = Vec::new();
        push_double(&mut out, d);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn doubles_print_as_in_redis() {
        let cases = [
            (3.0, "3"),
            (-0.0, "-0"),
            (3.25, "3.25"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e21, "1e+21"),
            (1.5e-9, "1.5e-9"),
            (1e17, "100000000000000000"),
            (f64::NEG_INFINITY, "-inf"),
            (0.00001, "0.00001"),
        ];
        for (d, text) in cases {
            assert_eq!(shown(d), text);
        }
    }

    #[test]
    fn integers_are_read_strictly() {
        for (text, n) in [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX)] {
            assert_eq!(int(text.as_bytes()), Ok(n));
        }
        assert_eq!(int(b"-9223372036854775808"), Ok(i64::MIN));
        for text in ["", "-", "+1", "01", "-0", " 1", "1 ", "9223372036854775808", "1.0"] {
            assert_eq!(int(text.as_bytes()), Err(RedisError::NOT_INTEGER), "{text}");
        }
    }

    #[test]
    fn doubles_are_read_as_by_redis() {
        let smallest = f64::from_bits(1);
        let cases: [(&str, f64); 22] = [
            ("1", 1.0),
            ("+1", 1.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("-0", -0.0),
            ("0e400", 0.0),
            ("inf", f64::INFINITY),
            ("-INFINITY", f64::NEG_INFINITY),
            ("0x10", 16.0),
            ("-0X1p3", -8.0),
            ("0x1.8", 1.5),
            ("0x.8P1", 1.0),
            ("0xfe", 254.0),
            ("0x0", 0.0),
            ("0x0p99999999999999999999", 0.0),
            ("0x1p-1074", smallest),
            ("0x1.8p-1074", 2.0 * smallest),
            ("0x1.7p-1074", smallest),
            ("0x1p-1022", f64::MIN_POSITIVE),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1.00000000000008", 1.0),
            ("0x1.000000000000080000000000001", 1.0 + f64::EPSILON),
        ];
        for (text, d) in cases {
            let read = parse_double(text.as_bytes()).map(f64::to_bits);
            assert_eq!(read, Some(d.to_bits()), "{text}");
            assert_eq!(parse_loose_double(text.as_bytes()).map(f64::to_bits), read, "{text}");
        }
        let wrong = [
            "nan", "-nan", "0x", "0x.", "0xg", "0x1p", "0x1p+", "--1", "+-1", "1 ", "1f", "1_0",
            "e5", "-", "0x1.0.0",
        ];
        for text in wrong {
            assert_eq!(parse_double(text.as_bytes()), None, "{text}");
            assert_eq!(parse_loose_double(text.as_bytes()), None, "{text}");
        }
        // The last digits of numbers that are too large are no part of a name.
        for text in ["0x", "-0X", "+0x"].map(|sign| sign.to_string() + &"f".repeat(260)) {
            assert_eq!(parse_double(text.as_bytes()), None, "{text}");
            assert!(parse_loose_double(text.as_bytes()).is_some_and(f64::is_infinite), "{text}");
        }
        // Only bounds may be those.
        let loose = [
            ("", 0.0),
            (" 1", 1.0),
            ("\t\n0x2", 2.0),
            ("3\0x", 3.0),
            ("1e400", f64::INFINITY),
            ("-1e400", f64::NEG_INFINITY),
            ("1e-400", 0.0),
            ("0x1p1024", f64::INFINITY),
            ("0x1.fffffffffffff8p1023", f64::INFINITY),
            ("0x1p-1075", 0.0),
        ];
        for (text, d) in loose {
            assert_eq!(parse_double(text.as_bytes()), None, "{text:?}");
            assert_eq!(parse_loose_double(text.as_bytes()), Some(d), "{text:?}");
        }
        assert_eq!(parse_loose_double(b" "), None);
    }
}
