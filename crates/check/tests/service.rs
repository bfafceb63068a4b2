//! Histories of calls: the search against all orders tried one by one, and the messages to a reader.

mod script;

use amcast_check::service::{Budget, linearizable, sequential};
use amcast_check::{Property, PropertyVerdict, check};
use amcast_core::rng::Rng;
use script::history;
use std::collections::BTreeMap;

/// A call as the definition sees it: client, operation, answer (none: it never returned), and the
/// moments of call and return.
#[derive(Clone, Debug)]
struct ServiceCall {
    client: usize,
    op: String,
    out: Option<String>,
    from: usize,
    to: usize,
}

/// A second store, for single words only.
fn run(store: &mut BTreeMap<String, String>, op: &str) -> String {
    let words: Vec<&str> = op.split(' ').collect();
    let get = |store: &BTreeMap<String, String>, k: &str| {
        store.get(k).cloned().unwrap_or_else(|| "nil".into())
    };
    match words[..] {
        ["GET", k] => get(store, k),
        ["MGET", a, b] => format!("{} {}", get(store, a), get(store, b)),
        ["SET", k, v] => {
            store.insert(k.into(), v.into());
            "OK".into()
        }
        ["MSET", a, v, b, w] => {
            store.insert(a.into(), v.into());
            store.insert(b.into(), w.into());
            "OK".into()
        }
        ["DEL", k] => if store.remove(k).is_some() { "1" } else { "0" }.into(),
        ["INCR", k] => {
            let n = store.get(k).map_or(0, |n| n.parse::<i64>().unwrap()) + 1;
            store.insert(k.into(), n.to_string());
            n.to_string()
        }
        ["CAS", k, old, new] => {
            let same = get(store, k) == old;
            if same {
                store.insert(k.into(), new.into());
            }
            if same { "1" } else { "0" }.into()
        }
        _ => panic!("{op}"),
    }
}

/// Whether some order of `left`, continuing from `store`, explains all answers; a call that `first`
/// says must come before one that is left may not be passed over.
fn some_order(
    left: &[ServiceCall],
    store: &BTreeMap<String, String>,
    first: &dyn Fn(&ServiceCall, &ServiceCall) -> bool,
) -> bool {
    if left.iter().all(|c| c.out.is_none()) {
        return true;
    }
    (0..left.len()).any(|i| {
        if left.iter().any(|c| first(c, &left[i])) {
            return false;
        }
        let mut store = store.clone();
        let out = run(&mut store, &left[i].op);
        if left[i].out.as_ref().is_some_and(|o| *o != out) {
            return false;
        }
        let mut rest = left.to_vec();
        rest.remove(i);
        some_order(&rest, &store, first)
    })
}

/// A few calls of a few clients, mostly right; as calls and as a script.
fn random_calls(rng: &mut Rng) -> (Vec<ServiceCall>, String) {
    let clients = 2 + rng.below(2) as usize;
    let mut open: Vec<Option<(usize, Option<String>)>> = vec![None; clients];
    let (mut calls, mut store) = (Vec::<ServiceCall>::new(), BTreeMap::new());
    let mut old = BTreeMap::new();
    let mut text: String = (0..clients).map(|c| format!("process c{c}\n")).collect();
    for t in 0..40 {
        let c = rng.below(clients as u64) as usize;
        match open[c].take() {
            None if calls.len() < 6 => {
                let k = ["a", "b"][rng.below(2) as usize];
                let v = rng.below(3);
                let op = match rng.below(9) {
                    0..3 => format!("GET {k}"),
                    3..5 => format!("SET {k} {v}"),
                    5 => format!("INCR {k}"),
                    6 => format!("CAS {k} {v} {}", rng.below(3)),
                    7 => format!("MSET a {v} b {v}"),
                    _ => ["MGET a b", "DEL a"][rng.below(2) as usize].to_string(),
                };
                text += &format!("call c{c} c{c}:{} {op}\n", calls.len());
                open[c] = Some((calls.len(), None));
                calls.push(ServiceCall { client: c, op, out: None, from: t, to: usize::MAX });
            }
            None => {}
            Some((i, None)) => {
                // A fault: it reads what was before.
                let out = if rng.chance(150_000) {
                    run(&mut old.clone(), &calls[i].op)
                } else {
                    run(&mut store, &calls[i].op)
                };
                if rng.chance(300_000) {
                    old = store.clone();
                }
                open[c] = (!rng.chance(80_000)).then_some((i, Some(out)));
            }
            Some((i, Some(out))) => {
                text += &format!("return c{c} c{c}:{i} {out}\n");
                (calls[i].out, calls[i].to) = (Some(out), t);
            }
        }
    }
    (calls, text)
}

#[test]
fn the_search_agrees_with_trying_every_order() {
    let mut rng = Rng::stream(3, "calls");
    let mut counts = [0_u32; 4];
    for round in 0..6_000 {
        let (calls, text) = random_calls(&mut rng);
        if calls.is_empty() {
            continue;
        }
        let history = history(&text);
        let earlier = |a: &ServiceCall, b: &ServiceCall| a.to < b.from;
        let same = |a: &ServiceCall, b: &ServiceCall| a.client == b.client && a.to < b.from;
        let expected = [
            some_order(&calls, &BTreeMap::new(), &earlier),
            some_order(&calls, &BTreeMap::new(), &same),
        ];
        let found =
            [linearizable(&history, Budget::default()), sequential(&history, Budget::default())];
        for (n, (expected, found)) in expected.into_iter().zip(found).enumerate() {
            let holds = found == PropertyVerdict::Holds;
            let decided = !matches!(found, PropertyVerdict::NotJudged(_));
            assert!(decided && holds == expected, "round {round}: {found:?}\n{text}");
            counts[2 * n + usize::from(holds)] += 1;
        }
    }
    assert!(counts.iter().all(|&n| n > 200), "{counts:?}");
}

#[test]
fn wrong_places_change_no_verdict() {
    let mut rng = Rng::stream(5, "places");
    for round in 0..6_000 {
        let (calls, text) = random_calls(&mut rng);
        let (plain, mut placed) = (history(&text), history(&text));
        for (i, call) in calls.iter().enumerate() {
            if rng.below(4) > 0 {
                placed.tell_place(&format!("c{}:{i}", call.client), rng.below(8));
            }
        }
        for judge in [linearizable, sequential] {
            let holds =
                [&plain, &placed].map(|h| judge(h, Budget::default()) == PropertyVerdict::Holds);
            assert_eq!(holds[0], holds[1], "round {round}\n{text}");
        }
    }
}

#[test]
fn told_places_decide_what_a_search_cannot() {
    // Every order of the appends is possible until the read says which one it was.
    let order = [3, 9, 0, 7, 1, 11, 5, 10, 2, 8, 4, 6];
    let mut text: String = (0..12).map(|c| format!("process c{c}\n")).collect();
    (0..12).for_each(|c| text += &format!("call c{c} c{c}:1 APPEND x {}\n", char::from(b'a' + c)));
    let names: String = order.iter().map(|c| char::from(b'a' + c)).collect();
    text += "call c0 c0:2 GET x\n";
    text += &format!("return c0 c0:2 {names}\n");
    let (mut history, budget) = (history(&text), Budget { states: 1_000 });
    for judge in [linearizable, sequential] {
        let verdict = judge(&history, budget);
        assert!(matches!(verdict, PropertyVerdict::NotJudged(_)), "{verdict:?}");
    }
    for (place, c) in order.iter().enumerate() {
        history.tell_place(&format!("c{c}:1"), 2 * place as u64);
    }
    history.tell_place("c0:2", 100);
    for judge in [linearizable, sequential] {
        assert_eq!(judge(&history, budget), PropertyVerdict::Holds);
    }
}

#[test]
fn a_linearizable_run_breaks_no_weaker_promise() {
    let mut rng = Rng::stream(4, "weaker");
    let mut seen = 0;
    for _ in 0..6_000 {
        let (_, text) = random_calls(&mut rng);
        let Some(_) = text.find("call") else { continue };
        let history = history(&text);
        if linearizable(&history, Budget::default()) == PropertyVerdict::Holds {
            seen += 1;
            let weaker = [Property::Sequential, Property::ReadYourWrites, Property::ExactlyOnce];
            let report = check(&history, &weaker);
            assert!(report.no_violation(), "{report}\n{text}");
        }
    }
    assert!(seen > 1_000);
}

#[test]
fn a_window_shows_only_what_clashes() {
    let mut text = String::from("process c0\nprocess c1\n");
    for i in 0..50 {
        text += &format!("call c0 c0:{i} SET x {i}\ncall c1 c1:{i} GET y\n");
        text += &format!("return c1 c1:{i} nil\nreturn c0 c0:{i} OK\n");
    }
    text +=
        "call c1 c1:90 MGET x y\ncall c0 c0:91 SET y 5\nreturn c1 c1:90 48 nil\nreturn c0 c0:91 OK";
    let report = check(&history(&text), &[Property::Linearizable]);
    let PropertyVerdict::Violated(why) = &report.findings[0].1 else { panic!("{report}") };
    assert!(why.sentence.contains("c1: MGET x y -> 48 nil"), "{report}");
    assert!(why.sentence.ends_with("with before them: x = \"49\", y is absent"), "{report}");
    assert!(why.events.len() <= 4, "{report}");
}

#[test]
fn an_exhausted_budget_is_admitted() {
    let mut text: String = (0..12).map(|c| format!("process c{c}\n")).collect();
    for c in 0..12 {
        text += &format!("call c{c} c{c}:1 APPEND x {c}\n");
    }
    for c in 0..12 {
        text += &format!("return c{c} c{c}:1 99\n");
    }
    let verdict = linearizable(&history(&text), Budget { states: 5 });
    assert!(matches!(verdict, PropertyVerdict::Violated(_)), "no first call fits: {verdict:?}");
    let text = text.replace("return c0 c0:1 99", "return c0 c0:1 1").replace("APPEND x", "SET x");
    let text = text.replace(" 99", " OK").replace("c0:1 1", "c0:1 OK")
        + "call c0 c0:2 GET x\nreturn c0 c0:2 no";
    match linearizable(&history(&text), Budget { states: 50 }) {
        PropertyVerdict::NotJudged(why) => {
            assert!(why.starts_with("budget exhausted: 50 states"), "{why}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_model_lacks_is_not_judged_and_what_no_run_can_be_is_said() {
    let why = |text: &str| match linearizable(&history(text), Budget::default()) {
        PropertyVerdict::NotJudged(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why("process c0"), "the history has no calls");
    assert_eq!(
        why("process c0\ncall c0 c0:1 FLY x\nreturn c0 c0:1 OK"),
        "line 2: the unknown command FLY"
    );
    let torn = history("process c0\ncall c0 c0:1 GET x\nreturn c0 c0:2 OK");
    let says = "line 3: c0:2 returns without a call before it";
    assert_eq!(linearizable(&torn, Budget::default()), PropertyVerdict::Impossible(says.into()));
    let report = check(&torn, &[Property::Linearizable, Property::ExactlyOnce]);
    assert!(!report.no_violation() && report.to_string().contains(says), "{report}");
}
