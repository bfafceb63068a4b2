//! Sums beside those of the C library on x86, whose `long double` Redis computes with.

use super::*;

/// The sum in the words of the table.
fn shown(a: &str, b: &str) -> String {
    let read = |text: &str| LongDouble::parse(text.as_bytes());
    let (Some(a), Some(b)) = (read(a), read(b)) else { return "invalid".to_string() };
    let sum = a.sum(b).map(|sum| String::from_utf8(sum.plain()).expect("digits"));
    sum.unwrap_or_else(|| "infinite".to_string())
}

/// Lines of two numbers and what `strtold`, `+` and `printf("%.17Lf")` of glibc 2.36 made of them, without zeros at the
/// end. Chosen at random among kinds that are hard: many digits, hexadecimal, ties, the ends of the format.
const SUMS: &str = include_str!("sums.txt");

#[test]
fn sums_are_those_of_the_c_library_digit_by_digit() {
    let _limit = amcast_test_policy::time_limit();
    let mut count = 0;
    let other = std::env::var_os("AMCAST_LONG_DOUBLES").map(std::fs::read_to_string);
    let other = other.transpose().expect("a table").unwrap_or_default();
    for line in SUMS.lines().chain(other.lines()) {
        let words: Vec<&str> = line.split(' ').collect();
        let [a, b, sum] = words[..] else { panic!("{line}") };
        assert_eq!(shown(a, b), sum, "{a} + {b}");
        assert_eq!(shown(b, a), sum, "{b} + {a}");
        count += 1;
    }
    assert!(count >= 300);
}

#[test]
fn the_ends_of_the_format_are_those_of_redis() {
    assert_eq!(shown("100000000000000000.2", "3.333333333333333333"), "100000000000000003.5390625");
    assert_eq!(shown("inf", "-inf"), "infinite");
    assert_eq!(shown("1.1e4932", "1.1e4932"), "infinite");
    assert_eq!(shown("1.2e4932", "0"), "invalid");
    assert_eq!(shown("1e-4951", "0"), "invalid");
    // Half of the least number, which rounds to the even one: zero. A little more does not.
    assert_eq!(shown("0x1p-16446", "0"), "invalid");
    assert_eq!(shown("0x1.0000001p-16446", "0"), "0");
    assert_eq!(shown("-1e-30", "0"), "0");
    // The digits behind the last decimal are rounded, ties to even.
    assert_eq!(shown("0x1p-18", "0"), "0.00000381469726562");
    assert_eq!(shown("0x3p-18", "0"), "0.00001144409179688");
    for text in ["", " 1", "1 ", "nan", "1\0", "0x", "1e", "1,5", "\u{663}"] {
        assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
    }
    let long = "1".repeat(TEXT_BYTES_MAX - 200) + "." + &"0".repeat(199);
    assert_eq!(LongDouble::parse(long.as_bytes()).map(|n| n.plain().len()), Some(4919));
    assert_eq!(LongDouble::parse((long + "0").as_bytes()), None, "too long");
}

/// The estimate of the work of commands rests on it.
#[test]
fn what_a_digit_costs_is_bounded() {
    let _limit = amcast_test_policy::time_limit();
    let hard = [
        "1".repeat(100) + "e-4900",
        "7".repeat(5_100) + "e-9900",
        "9.9e4931".to_string(),
        "3".repeat(4_900),
        "3.1e-4800".to_string(),
    ];
    for text in hard {
        let begun = std::time::Instant::now();
        for _ in 0..20 {
            LongDouble::parse(text.as_bytes()).expect("a number").plain();
        }
        let per_digit = begun.elapsed().as_nanos() as u64 / 20 / digits_max(text.as_bytes());
        println!("{per_digit} ns a digit: {}", &text[..8]);
        // Far more than any machine needs: no digit takes a time that grows with their number.
        assert!(per_digit < 20_000, "{per_digit}");
    }
}
