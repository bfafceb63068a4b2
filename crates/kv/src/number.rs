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

/// The sum of two decimal numbers as `INCRBYFLOAT` prints it: plain digits without an exponent;
/// none if it is not finite. Numbers of usual size are added as decimals, exactly: Redis comes to
/// the same digits with its 64 bits of mantissa.
pub(crate) fn plain_sum(a: &[u8], b: &[u8]) -> Result<Option<Vec<u8>>, RedisError> {
    let (x, y) = (double(a)?, double(b)?);
    if let (Some(a), Some(b)) = (decimal(a), decimal(b)) {
        let sum = a + b;
        let (whole, rest) = (sum.unsigned_abs() / DECIMAL_ONE, sum.unsigned_abs() % DECIMAL_ONE);
        let sign = if sum < 0 { "-" } else { "" };
        let text = format!("{sign}{whole}.{rest:017}");
        return Ok(Some(text.trim_end_matches('0').trim_end_matches('.').into()));
    }
    let sum = x + y;
    Ok(sum.is_finite().then(|| format!("{}", if sum == 0.0 { 0.0 } else { sum }).into_bytes()))
}

/// One, in units of 10^-17.
const DECIMAL_ONE: u128 = 100_000_000_000_000_000;

/// The first number of 21 places, in these units: the sum of two below it fits.
const DECIMAL_END: u128 = 100_000_000_000_000_000_000 * DECIMAL_ONE;

/// Reads a decimal number, with an exponent if it has one, in units of 10^-17; none if it has more than 17
/// decimals, or more than 20 places before them.
fn decimal(text: &[u8]) -> Option<i128> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (digits, exponent) = match text.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(at) => (&text[..at], exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let dot = digits.iter().position(|b| *b == b'.').unwrap_or(digits.len());
    let (whole, rest) = (&digits[..dot], digits.get(dot + 1..).unwrap_or_default());
    let mut sum = 0_i128;
    for b in whole.iter().chain(rest) {
        if !b.is_ascii_digit() {
            return None;
        }
        sum = sum.checked_mul(10)?.checked_add(i128::from(b - b'0'))?;
    }
    // Decimals that are missing are zeros; those beyond the last place must be.
    let mut places = 17 - i64::try_from(rest.len()).ok()? + exponent;
    while places < 0 && sum % 10 == 0 && sum != 0 {
        (sum, places) = (sum / 10, places + 1);
    }
    if sum != 0 {
        sum = sum.checked_mul(10_i128.checked_pow(u32::try_from(places).ok()?)?)?;
    }
    (sum.unsigned_abs() < DECIMAL_END).then_some(if negative { -sum } else { sum })
}

/// The exponent of a number, of three digits at most.
fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let plain = (1..=3).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let n: i64 = core::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()?;
    Some(if negative { -n } else { n })
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
        assert_eq!(plain_sum(b"10.5", b"0.1").unwrap().unwrap(), b"10.6");
        assert_eq!(plain_sum(b"5.0e3", b"200").unwrap().unwrap(), b"5200");
        assert_eq!(plain_sum(b"1e-1", b"+2E-1").unwrap().unwrap(), b"0.3");
        assert_eq!(plain_sum(b"-0.5", b".5e0").unwrap().unwrap(), b"0");
        assert_eq!(plain_sum(b"1.50e-16", b"1").unwrap().unwrap(), b"1.00000000000000015");
        let large = plain_sum(b"9223372036854775807", b"9").unwrap().unwrap();
        assert_eq!(large, b"9223372036854775816");
        // One more than 64 bits hold, and the most that two can come to.
        let larger = plain_sum(b"18446744073709551615", b"1").unwrap().unwrap();
        assert_eq!(larger, b"18446744073709551616");
        let most =
            plain_sum(b"-99999999999999999999.5", b"-99999999999999999999").unwrap().unwrap();
        assert_eq!(most, b"-199999999999999999998.5");
        assert_eq!(plain_sum(b"inf", b"1"), Ok(None));
    }

    #[test]
    fn decimals_are_read_exactly_or_not_at_all() {
        let one = DECIMAL_ONE as i128;
        for (text, n) in [
            ("1", Some(one)),
            ("-1.25", Some(-one - one / 4)),
            ("1e3", Some(1000 * one)),
            ("2500e-3", Some(2 * one + one / 2)),
            ("0e999", Some(0)),
            ("9999999999999999999", Some(9_999_999_999_999_999_999 * one)),
            ("99999999999999999999", Some(99_999_999_999_999_999_999 * one)),
            ("100000000000000000000", None),
            ("1e20", None),
            ("1e-18", None),
            ("10e-18", Some(1)),
            ("1e1000", None),
            ("1e", None),
            ("1e+-1", None),
            ("0x10", None),
        ] {
            assert_eq!(decimal(text.as_bytes()), n, "{text}");
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
