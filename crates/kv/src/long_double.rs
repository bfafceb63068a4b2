//! The 80-bit floating-point numbers of x86 (`long double`), with which Redis computes `INCRBYFLOAT` and
//! `HINCRBYFLOAT`: 64 bits of mantissa, 15 of exponent.
//!
//! Everything here is arithmetic of integers, so that all replicas come to the same digits on any processor that they
//! run. A number is read and printed exactly and rounded once, to the nearest, ties to even, as the C library does.
//! Numbers of up to 19 digits and 19 decimals need no memory besides; others use [`BigUnsigned`] integers, whose size is bounded
//! by [`TEXT_BYTES_MAX`].

use std::cmp::Ordering;

/// A longer text is no number, as in Redis (`MAX_LONG_DOUBLE_CHARS`).
pub(crate) const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;

/// The exponent of the last bit of a mantissa, at the least: that of numbers which have lost bits to it.
const EXPONENT_MIN: i64 = -16_445;

/// The same at the most.
const EXPONENT_MAX: i64 = 16_320;

/// Decimals that are printed, before zeros at the end are dropped.
const DECIMALS: usize = 17;

/// One, in units of the last of these decimals.
const DECIMAL_ONE: u128 = 10_u128.pow(DECIMALS as u32);

/// The most digits that a limb holds of, and their power of ten.
const LIMB_DIGITS: usize = 19;
const LIMB_POWER: u64 = 10_u64.pow(LIMB_DIGITS as u32);

/// A number that is not NaN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LongDouble {
    negative: bool,
    magnitude: FloatMagnitude,
}

/// A number without its sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FloatMagnitude {
    /// `mantissa * 2^exponent`. The first bit of a mantissa is set unless the exponent is [`EXPONENT_MIN`], and zero has
    /// that exponent.
    Finite {
        mantissa: u64,
        exponent: i64,
    },
    Infinite,
}

const ZERO: FloatMagnitude = FloatMagnitude::Finite { mantissa: 0, exponent: EXPONENT_MIN };

impl LongDouble {
    /// Reads a number as `strtold` of the C library does, all of `text`: decimal, hexadecimal (`0x1.8p3`) or infinite.
    /// None if it is none, is NaN, is longer than [`TEXT_BYTES_MAX`], or is too large or too small for the format.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let is = |name: &[u8]| text.eq_ignore_ascii_case(name);
        if is(b"inf") || is(b"infinity") {
            return Some(Self { negative, magnitude: FloatMagnitude::Infinite });
        }
        let magnitude = match text {
            [b'0', b'x' | b'X', rest @ ..] => hexadecimal(rest)?,
            _ => decimal(text)?,
        };
        // A number that is too large is refused; infinity itself is not.
        (magnitude != FloatMagnitude::Infinite).then_some(Self { negative, magnitude })
    }

    /// Whether it is not infinite.
    pub(crate) const fn is_finite(self) -> bool {
        matches!(self.magnitude, FloatMagnitude::Finite { .. })
    }

    /// The sum; none if it is infinite or NaN.
    pub(crate) fn sum(self, other: Self) -> Option<Self> {
        let (
            FloatMagnitude::Finite { mantissa: m, exponent: e },
            FloatMagnitude::Finite { mantissa: n, exponent: f },
        ) = (self.magnitude, other.magnitude)
        else {
            return None;
        };
        let ((high, m, e), (low, n, f)) = match (e, m) >= (f, n) {
            true => ((self, m, e), (other, n, f)),
            false => ((other, n, f), (self, m, e)),
        };
        // With 62 bits behind it the larger one loses none, and neither does the sum by rounding it once.
        let (larger, exponent) = (u128::from(m) << 62, e - 62);
        let (smaller, rest) = shift_right(u128::from(n) << 62, e - f);
        let total = match high.negative == low.negative {
            true => larger + smaller,
            // The rest is less than one unit.
            false => larger - smaller - u128::from(rest),
        };
        let magnitude = rounded(total, exponent, rest);
        let sum = Self { negative: high.negative, magnitude };
        sum.is_finite().then_some(sum)
    }

    /// Its digits with [`DECIMALS`] decimals (`%.17Lf`), without zeros at their end. Infinity has none.
    pub(crate) fn plain(self) -> Vec<u8> {
        let FloatMagnitude::Finite { mantissa, exponent } = self.magnitude else {
            return Vec::new();
        };
        let (mut text, mut decimals) = (Vec::new(), 0);
        let whole = if exponent > 64 {
            BigUnsigned::from(u128::from(mantissa)).shifted(exponent as usize).digits()
        } else if exponent >= 0 {
            (u128::from(mantissa) << exponent).to_string().into_bytes()
        } else {
            let units = u128::from(mantissa) * DECIMAL_ONE;
            let units = nearest(units, -exponent);
            decimals = units % DECIMAL_ONE;
            (units / DECIMAL_ONE).to_string().into_bytes()
        };
        if self.negative && (whole != b"0" || decimals != 0) {
            text.push(b'-');
        }
        text.extend_from_slice(&whole);
        if decimals != 0 {
            text.extend_from_slice(
                format!(".{decimals:0DECIMALS$}").trim_end_matches('0').as_bytes(),
            );
        }
        text
    }
}

/// `n / 2^by`, and whether there is a rest.
fn shift_right(n: u128, by: i64) -> (u128, bool) {
    match u32::try_from(by).ok().filter(|by| *by < 128) {
        Some(by) => (n >> by, n & ((1 << by) - 1) != 0),
        None => (0, n != 0),
    }
}

/// `n / 2^by`, to the nearest, ties to even; `n` has fewer than 127 bits.
fn nearest(n: u128, by: i64) -> u128 {
    let (half, has_rest) = shift_right(n, by - 1);
    let up = half & 1 == 1 && (has_rest || half & 2 == 2);
    (half >> 1) + u128::from(up)
}

/// `n * 2^exponent`, and a rest of less than one unit of `n` if there is one, to the nearest, ties to even. With a rest
/// `n` has more than 65 bits, or so few that all is lost to the least exponent.
fn rounded(n: u128, exponent: i64, rest: bool) -> FloatMagnitude {
    if n == 0 {
        return ZERO;
    }
    let bits = i64::from(128 - n.leading_zeros());
    let by = (bits - 64).max(EXPONENT_MIN - exponent);
    let (mut mantissa, mut exponent) = if by <= 0 {
        (n << -by, exponent + by)
    } else {
        let (half, has_rest) = shift_right(n, by - 1);
        let up = half & 1 == 1 && (has_rest || rest || half & 2 == 2);
        ((half >> 1) + u128::from(up), exponent + by)
    };
    if mantissa >> 64 != 0 {
        (mantissa, exponent) = (mantissa >> 1, exponent + 1);
    }
    match exponent > EXPONENT_MAX {
        true => FloatMagnitude::Infinite,
        false => FloatMagnitude::Finite { mantissa: mantissa as u64, exponent },
    }
}

/// The number behind a sign, in decimal; none if it is none, or is too small.
fn decimal(text: &[u8]) -> Option<FloatMagnitude> {
    let scan = NumberScan::of(text, 10, b'e')?;
    if scan.count == 0 {
        return Some(ZERO);
    }
    // The first digit means this power of ten, and no more.
    let first = scan.count as i64 + scan.exponent - scan.behind;
    if first < TENS_MIN {
        return None;
    }
    if first > TENS_MAX {
        return Some(FloatMagnitude::Infinite);
    }
    let tens = scan.exponent - scan.behind;
    let magnitude = match (scan.all, tens) {
        (Some(n), 0..=19) => rounded(n * 10_u128.pow(tens as u32), 0, false),
        // So many tens leave more than 65 bits.
        (Some(n), -18..0) => {
            let (by, tens) = (n.leading_zeros(), 10_u128.pow(-tens as u32));
            let n = n << by;
            rounded(n / tens, -i64::from(by), n % tens != 0)
        }
        _ => {
            let digits = BigUnsigned::read(text.iter().copied().take_while(|b| *b | 0x20 != b'e'));
            let tens_abs = tens.unsigned_abs() as usize;
            let (n, exponent, rest) = match tens >= 0 {
                true => digits.times_ten_to(tens_abs).top(),
                false => digits.quotient(BigUnsigned::from(1).times_ten_to(tens_abs)),
            };
            rounded(n, exponent, rest)
        }
    };
    (magnitude != ZERO).then_some(magnitude)
}

/// Powers of ten beyond which a number rounds to zero, or is too large: the format ends between them.
const TENS_MIN: i64 = -4_950;
const TENS_MAX: i64 = 4_933;

/// The number behind `0x`; none if it is none, or is too small.
fn hexadecimal(text: &[u8]) -> Option<FloatMagnitude> {
    let scan = NumberScan::of(text, 16, b'p')?;
    if scan.count == 0 {
        return Some(ZERO);
    }
    let dropped = scan.count.saturating_sub(HEX_DIGITS) as i64;
    let exponent = scan.exponent + 4 * (dropped - scan.behind);
    let magnitude = rounded(scan.first, exponent, scan.has_rest);
    (magnitude != ZERO).then_some(magnitude)
}

/// Hexadecimal digits that are looked at one by one: they have more than 65 bits. Of the others it matters only whether
/// there is one that is not zero.
const HEX_DIGITS: usize = 20;

/// An exponent counts as this one at the most: no number has as many digits as could make up for it.
const EXPONENT_READ_MAX: i64 = 1_000_000;

/// The contents of a text of digits, a point and an exponent.
struct NumberScan {
    /// Digits from the first one on that is not zero.
    count: usize,
    /// The first [`HEX_DIGITS`] of these.
    first: u128,
    /// All of them, if they are [`LIMB_DIGITS`] at the most.
    all: Option<u128>,
    /// Whether one behind the first is not zero.
    has_rest: bool,
    /// Digits behind the point.
    behind: i64,
    /// The exponent.
    exponent: i64,
}

impl NumberScan {
    /// Reads all of `text`, with digits to `base` and an exponent behind `mark`; none if it is no number.
    fn of(text: &[u8], base: u32, mark: u8) -> Option<Self> {
        let count = 0;
        let first = 0;
        let has_rest = false;
        let mut scan = Self { count, first, all: None, has_rest, behind: 0, exponent: 0 };
        let (mut any, mut has_point) = (false, false);
        for (at, b) in text.iter().enumerate() {
            if let Some(digit) = (*b as char).to_digit(base) {
                any = true;
                scan.behind += i64::from(has_point);
                if scan.count > 0 || digit > 0 {
                    scan.count += 1;
                    match scan.count <= HEX_DIGITS {
                        true => scan.first = scan.first * u128::from(base) + u128::from(digit),
                        false => scan.has_rest |= digit > 0,
                    }
                }
            } else if *b == b'.' && !has_point {
                has_point = true;
            } else if b.to_ascii_lowercase() == mark {
                scan.exponent = exponent(&text[at + 1..])?;
                break;
            } else {
                return None;
            }
        }
        scan.all = (scan.count <= LIMB_DIGITS).then_some(scan.first);
        any.then_some(scan)
    }
}

/// A sign, and at least one digit.
fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let next = |n: i64, b: &u8| (n * 10 + i64::from(b - b'0')).min(EXPONENT_READ_MAX);
    let n = digits.iter().fold(0, next);
    Some(if negative { -n } else { n })
}

/// How many digits are read or printed for the number in `text`, at the most: what it costs follows from that.
pub(crate) fn digits_max(text: &[u8]) -> u64 {
    let most = 2 * TEXT_BYTES_MAX as u64;
    if text.len() > TEXT_BYTES_MAX {
        // It is refused. Nothing of it is looked at, however long it is.
        return most;
    }
    let mark = text.iter().position(|b| matches!(b | 0x20, b'e' | b'p'));
    let behind = mark.and_then(|at| exponent(&text[at + 1..])).unwrap_or(0);
    (text.len() as u64).saturating_add(behind.unsigned_abs()).min(most)
}

/// An integer that is not negative, of any size: the last bits first, and nothing but zero without a limb.
struct BigUnsigned(Vec<u64>);

impl From<u128> for BigUnsigned {
    fn from(n: u128) -> Self {
        let mut big = Self(vec![n as u64, (n >> 64) as u64]);
        big.trim();
        big
    }
}

impl BigUnsigned {
    /// The digits among `text`.
    fn read(text: impl Iterator<Item = u8>) -> Self {
        let mut big = Self(Vec::new());
        let mut limb = 0;
        let mut power = 1;
        for digit in text.filter(u8::is_ascii_digit) {
            (limb, power) = (limb * 10 + u64::from(digit - b'0'), power * 10);
            if power == LIMB_POWER {
                big.times_plus(power, limb);
                (limb, power) = (0, 1);
            }
        }
        big.times_plus(power, limb);
        big
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn times_plus(&mut self, by: u64, plus: u64) {
        let mut carry = plus;
        for limb in &mut self.0 {
            let product = u128::from(*limb) * u128::from(by) + u128::from(carry);
            (*limb, carry) = (product as u64, (product >> 64) as u64);
        }
        if carry > 0 {
            self.0.push(carry);
        }
    }

    fn times_ten_to(mut self, mut tens: usize) -> Self {
        while tens >= LIMB_DIGITS {
            self.times_plus(LIMB_POWER, 0);
            tens -= LIMB_DIGITS;
        }
        self.times_plus(10_u64.pow(tens as u32), 0);
        self
    }

    fn bits(&self) -> usize {
        self.0.last().map_or(0, |last| 64 * self.0.len() - last.leading_zeros() as usize)
    }

    fn shifted(&self, by: usize) -> Self {
        let (limbs, bits) = (by / 64, by % 64);
        let mut to = vec![0; limbs];
        let mut carry = 0;
        for limb in &self.0 {
            to.push(limb << bits | carry);
            carry = if bits == 0 { 0 } else { limb >> (64 - bits) };
        }
        to.push(carry);
        let mut shifted = Self(to);
        shifted.trim();
        shifted
    }

    /// The first 128 bits, what they are to be multiplied with as a power of two, and whether there is a rest.
    fn top(&self) -> (u128, i64, bool) {
        let limb = |at: usize| u128::from(self.0.get(at).copied().unwrap_or(0));
        if self.0.len() <= 2 {
            return (limb(1) << 64 | limb(0), 0, false);
        }
        let above = self.bits() - 128;
        let (at, bits) = (above / 64, above % 64);
        let mut n = limb(at + 1) << 64 | limb(at);
        if bits > 0 {
            n = n >> bits | limb(at + 2) << (128 - bits);
        }
        let rest = self.0[..at].iter().any(|l| *l != 0) || limb(at) & ((1 << bits) - 1) != 0;
        (n, above as i64, rest)
    }

    /// The quotient by `divisor` to at least 67 bits, as [`top`](Self::top) says it.
    fn quotient(&self, divisor: Self) -> (u128, i64, bool) {
        const BITS: usize = 67;
        let up = (divisor.bits() + BITS) as i64 - self.bits() as i64;
        let mut rest = self.shifted(up.max(0) as usize);
        // One bit after the other, the divisor where the first one is.
        let divisor = divisor.shifted((BITS as i64 + (-up).max(0)) as usize);
        let mut quotient = 0;
        for _ in 0..=BITS {
            quotient <<= 1;
            if rest.compare(&divisor) != Ordering::Less {
                rest.subtract(&divisor);
                quotient |= 1;
            }
            rest = rest.shifted(1);
        }
        (quotient, -up, !rest.0.is_empty())
    }

    fn compare(&self, other: &Self) -> Ordering {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Takes away what is not larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (at, limb) in self.0.iter_mut().enumerate() {
            let (left, under) = limb.overflowing_sub(other.0.get(at).copied().unwrap_or(0));
            let (left, again) = left.overflowing_sub(u64::from(borrow));
            (*limb, borrow) = (left, under || again);
        }
        self.trim();
    }

    /// Its digits.
    fn digits(mut self) -> Vec<u8> {
        const PIECE: u64 = 1_000_000_000;
        let mut pieces = Vec::new();
        while !self.0.is_empty() {
            let mut rest = 0;
            for limb in self.0.iter_mut().rev() {
                let high = (rest << 32) | (*limb >> 32);
                let low = ((high % PIECE) << 32) | (*limb & 0xffff_ffff);
                (*limb, rest) = (((high / PIECE) << 32) | (low / PIECE), low % PIECE);
            }
            self.trim();
            pieces.push(rest);
        }
        let first = pieces.pop().unwrap_or(0).to_string();
        let others = pieces.iter().rev().map(|piece| format!("{piece:09}"));
        std::iter::once(first).chain(others).collect::<String>().into_bytes()
    }
}

#[cfg(test)]
mod tests;
