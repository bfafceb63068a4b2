//! Commands of many megabytes, which are ordered in parts.

use super::{DifferentialClient, NO_REDIS, RealRedis, Resp2Value, ours_of, words};
use amcast_core::rng::Rng;
use amcast_test_policy::skip;

#[test]
fn large_values_and_transactions_are_as_in_redis() {
    let _limit = amcast_test_policy::time_limit();
    let Some(real) = RealRedis::start() else {
        return skip("large_values_and_transactions_are_as_in_redis", NO_REDIS);
    };
    let gateway = ours_of(3, 64);
    let clients = [real.1, gateway.address()].map(DifferentialClient::connect);
    let [mut theirs, mut ours] = clients;
    let mut rng = Rng::new(17);
    let mut both = |args: &[String]| {
        let expected = theirs.call(args);
        let told =
            || args.iter().take(2).map(|a| a[..a.len().min(40)].to_string()).collect::<Vec<_>>();
        assert!(ours.call(args) == expected, "{:?}", told());
        expected
    };
    let mut large = |most: u64| {
        let letter = (b'a' + rng.below(26) as u8) as char;
        letter.to_string().repeat(1 + (rng.below(most << 20)) as usize)
    };
    let word = |text: &str| text.to_string();
    for round in 0..3 {
        for key in ["x", "y", "z"] {
            both(&[word("SET"), word(key), large(20)]);
            both(&[word("APPEND"), word(key), large(5)]);
            both(&words(&format!("STRLEN {key}")));
            both(&words(&format!("GETRANGE {key} -100 -1")));
        }
        both(&words("GET x"));
        let members = |n: usize| (0..n).map(move |i| format!("{:0>60}", i * 7 % 20_011));
        let push = ["RPUSH", "list"].into_iter().map(word).chain(members(40_000));
        both(&push.collect::<Vec<_>>());
        both(&words("LRANGE list 39000 -1"));
        both(&["SADD", "set"].into_iter().map(word).chain(members(30_000)).collect::<Vec<_>>());
        both(&words("SCARD set"));
        let pairs = (0..30).flat_map(|i| [format!("many{i}"), format!("{i}").repeat(100_000)]);
        both(&[word("MSET")].into_iter().chain(pairs).collect::<Vec<_>>());
        both(&words("MGET many0 many17 x"));
        both(&words("WATCH x y"));
        if round == 1 {
            both(&words("SET y changed"));
        }
        both(&words("MULTI"));
        for (n, key) in ["x", "y", "z"].into_iter().enumerate() {
            both(&[word("SET"), format!("in{key}"), large(2)]);
            both(&[word("APPEND"), word(key), large(2)]);
            both(&words(&format!("LINDEX list {n}")));
            both(&[word("ECHO"), large(1)]);
        }
        both(&words("EXEC"));
        both(&words("GET inx"));
        both(&words("MGET iny inz y z"));
        both(&words("DEL list set x"));
    }
    // A command over the limit is refused, and the connection continues.
    let Resp2Value::Error(e) = ours.call(&[word("SET"), word("x"), "x".repeat(64 << 20)]) else {
        panic!("it is over the limit")
    };
    assert!(e.contains("larger than the limit of 67108"), "{e}");
    let limit = ours.call(&words("CONFIG GET proto-max-bulk-len"));
    let expected = ["proto-max-bulk-len", "67108864"].map(|text| Resp2Value::Text(text.into()));
    assert_eq!(limit, Resp2Value::Array(expected.into()));
}

/// So many small elements that they take far more in the state than in the command.
#[test]
fn a_large_command_makes_the_state_grow_no_more_than_any_other() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = ours_of(1, 64);
    let mut c = DifferentialClient::connect(gateway.address());
    let push: Vec<String> = ["SADD", "k"]
        .into_iter()
        .map(str::to_string)
        .chain((0..700_000).map(|i| i.to_string()))
        .collect();
    let Resp2Value::Error(e) = c.call(&push) else { panic!("it would take more than 128 MB") };
    assert!(
        e.starts_with("ERR this may take 14") && e.ends_with("the command was not executed"),
        "{e}"
    );
    assert_eq!(c.call(&push[..500_000]), Resp2Value::Int(499_998));
    let mut remove = push;
    remove[0] = "SREM".to_string();
    assert_eq!(
        c.call(&remove),
        Resp2Value::Int(499_998),
        "what frees memory is no matter of its length"
    );
}
