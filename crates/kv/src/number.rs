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

/// Reads a double: decimal, `inf`, `+inf`, `-inf`; never NaN.
pub(crate) fn double(bytes: &[u8]) -> Result<f64, RedisError> {
    parse_double(bytes).ok_or(RedisError::NOT_FLOAT)
}

pub(crate) fn parse_double(bytes: &[u8]) -> Option<f64> {
    let text = core::str::from_utf8(bytes).ok()?;
    let d: f64 = text.parse().ok()?;
    (!d.is_nan()).then_some(d)
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
}
