//! Odd numbers, bounds and options on keys of every type: which error comes first, and what is no error.

use super::{DifferentialClient, NO_REDIS, RealRedis, Resp2Value, ours};
use amcast_test_policy::skip;

/// A key of each type, by the command that makes it.
const KEYS: [(&str, &str); 6] = [
    ("none", "PING"),
    ("str", "SET str hello"),
    ("list", "RPUSH list a b c"),
    ("hash", "HSET hash f 1 g x"),
    ("set", "SADD set m"),
    ("z", "ZADD z 1 a 2 b 3 c"),
];

const INTEGERS: [&str; 12] = [
    "0",
    "-1",
    "x",
    "",
    "1.0",
    " 1",
    "+1",
    "-0",
    "01",
    "0x10",
    "9223372036854775808",
    "-9223372036854775808",
];

const DOUBLES: [&str; 32] = [
    "1",
    "0x10",
    "0X1p3",
    "-0x.8p1",
    "inf",
    "+INF",
    "-Infinity",
    "nan",
    "-nan",
    "nan(1)",
    "1e400",
    "-1e400",
    "1e-400",
    "0x1p1024",
    "0x1p-1075",
    "0x1p-1074",
    " 1",
    "1 ",
    "",
    "+1",
    ".5",
    "5.",
    "1e",
    "--1",
    "+-1",
    "0x",
    "0x1p",
    "1_0",
    "1d",
    "\t1",
    "-0",
    "e5",
];

/// Commands on the key K with one odd argument `#`; each is tried with every integer.
const WITH_INTEGERS: [&str; 32] = [
    "LINDEX K #",
    "LRANGE K # 1",
    "LRANGE K 0 #",
    "LSET K # v",
    "LTRIM K # 1",
    "LREM K # a",
    "LPOS K a RANK #",
    "LPOS K a COUNT #",
    "LPOS K a MAXLEN #",
    "LPOS K a FOO #",
    "LPOS K a RANK # COUNT",
    "LPOS K a COUNT # FOO",
    "LPOS K a MAXLEN # COUNT",
    "GETRANGE K # -1",
    "SETRANGE K # ?",
    "INCRBY K #",
    "HINCRBY K f #",
    "HINCRBY K g #",
    "EXPIRE K # FOO",
    "EXPIRE K #",
    "ZRANGE K # -1",
    "ZRANGE K 0 -1 LIMIT 0 #",
    "ZRANGE K 0 -1 LIMIT # -1",
    "ZREVRANGE K 0 -1 LIMIT # -1",
    "ZRANGESTORE d K 0 -1 LIMIT # -1",
    "ZRANGEBYSCORE K -inf inf LIMIT # -1",
    "ZRANGE K - + BYLEX LIMIT # -1",
    "ZRANGEBYSCORE K -inf inf LIMIT # 1",
    "ZINTERCARD 1 K LIMIT #",
    "HRANDFIELD K # FOO",
    "ZRANDMEMBER K # FOO",
    "SRANDMEMBER K #",
];

/// The same with doubles, and with each behind `(`.
const WITH_DOUBLES: [&str; 12] = [
    "ZADD K # m",
    "ZADD K XX # m",
    "ZADD K NX GT # m",
    "ZADD K 1 ok # m",
    "ZCOUNT K # 2",
    "ZCOUNT K 1 #",
    "ZRANGEBYSCORE K # 2",
    "ZREVRANGEBYSCORE K # 1",
    "ZRANGE K # 2 BYSCORE",
    "ZREMRANGEBYSCORE K # 1",
    "ZUNIONSTORE d 1 K WEIGHTS #",
    "HINCRBYFLOAT K g #",
];

/// Offsets into keys of up to three members, and commands with one.
const OFFSETS: [&str; 4] = ["1", "2", "3", "-2"];
const WITH_OFFSETS: [&str; 5] = [
    "ZRANGE K 0 -1 LIMIT # -1",
    "ZRANGE K 0 -1 REV LIMIT # -1",
    "ZREVRANGE K 0 -1 LIMIT # -1",
    "ZRANGESTORE d K 0 -1 LIMIT # -1",
    "ZRANGEBYSCORE K -inf inf LIMIT # -1",
];

/// Twice the first two have 64 bits, twice the others do not. Keys of the right type would be answered with as many
/// members.
const RANDOM_COUNTS: [&str; 5] = [
    "4611686018427387903",
    "-4611686018427387903",
    "4611686018427387904",
    "-4611686018427387904",
    "9223372036854775807",
];
const WITH_RANDOM_COUNTS: [&str; 2] =
    ["HRANDFIELD z # WITHVALUES", "ZRANDMEMBER list # WITHSCORES"];

/// Ends of strings that are too long, here and in Redis.
const LARGE_OFFSETS: [&str; 4] =
    ["4294967296", "4294967297", "9223372036854775806", "9223372036854775807"];
const WITH_LARGE_OFFSETS: [&str; 3] = ["SETRANGE K # v", "SETRANGE K # ?", "SETBIT K # 1"];

/// The words of a line; `?` is an empty one.
fn line(text: &str, key: &str, odd: &str) -> Vec<String> {
    let word = |word: &str| match word {
        "K" => key.to_string(),
        "#" => odd.to_string(),
        "?" => String::new(),
        word => word.to_string(),
    };
    text.split(' ').map(word).collect()
}

#[test]
fn odd_arguments_are_taken_or_refused_as_by_redis() {
    let _limit = amcast_test_policy::time_limit();
    let Some(real) = RealRedis::start() else {
        return skip("odd_arguments_are_taken_or_refused_as_by_redis", NO_REDIS);
    };
    let gateway = ours(1);
    let [mut theirs, mut mine] = [real.1, gateway.address()].map(DifferentialClient::connect);
    let bounds = DOUBLES.iter().map(|double| format!("({double}"));
    // A hexadecimal number that is too large, and ends as a name of infinity does.
    let large = ["0x", "-0x", "(0x"].map(|sign| sign.to_string() + &"f".repeat(260));
    let doubles = DOUBLES.iter().map(|d| d.to_string()).chain(bounds).chain(large);
    let doubles: Vec<String> = doubles.collect();
    let owned = |odds: &[&str]| odds.iter().map(|odd| odd.to_string()).collect::<Vec<_>>();
    let odds = [&INTEGERS[..], &OFFSETS, &RANDOM_COUNTS, &LARGE_OFFSETS].map(owned);
    let [integers, offsets, counts, ends] = odds;
    let tried: [(&[&str], &[String]); 5] = [
        (&WITH_INTEGERS, &integers),
        (&WITH_DOUBLES, &doubles),
        (&WITH_OFFSETS, &offsets),
        (&WITH_RANDOM_COUNTS, &counts),
        (&WITH_LARGE_OFFSETS, &ends),
    ];
    let tried = tried.iter().flat_map(|(texts, odds)| texts.iter().map(|text| (text, *odds)));
    let mut wrong = Vec::new();
    let mut count = 0;
    for (text, odds) in tried {
        for (key, make) in KEYS {
            for odd in odds {
                for c in [&mut theirs, &mut mine] {
                    c.send(&line("DEL K d", key, odd));
                    c.send(&line(make, key, odd));
                    c.send(&line(text, key, odd));
                    c.read();
                    c.read();
                }
                let (expected, got): (Resp2Value, Resp2Value) = (theirs.read(), mine.read());
                count += 1;
                // Redis 7.0 takes it, and later versions do not.
                let is_later = text.starts_with("LPOS K a RANK #") && *odd == i64::MIN.to_string();
                if expected != got && !is_later {
                    wrong.push(format!("{text}, {key}, {odd:?}: {got:?}, and Redis {expected:?}"));
                }
            }
        }
    }
    assert!(count > 5_000);
    assert!(
        wrong.is_empty(),
        "{} of {count} differ: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(40)]
    );
}
