//! How histories are read: clear errors, several files, events of a simulated run, and no panic on
//! anything.

mod script;

use amcast_check::{
    History, Problem, Property, PropertyVerdict, check, execution_patterns, expand, service,
};
use amcast_core::rng::Rng;
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, Gid, GroupSet, MsgId, Overlay, Time};

const PROCESS: &str = r#"{"ev":"process","p":"a","groups":["g"]}"#;

/// The error for the last of `lines`.
fn refused(lines: &[&str]) -> String {
    let mut h = History::new();
    let (last, good) = lines.split_last().unwrap();
    for line in good {
        h.push_line(line).unwrap();
    }
    h.push_line(last).unwrap_err().to_string()
}

#[test]
fn an_error_names_line_column_and_field() {
    assert_eq!(refused(&["", "{\"ev\":\"deliver\""]), "line 2, column 16: the line ends too early");
    assert_eq!(
        refused(&[r#"{"ev":"deliver","t":-1,"p":"a","m":"a:1"}"#]),
        "line 1, column 21: \"t\" should be a whole number of nanoseconds"
    );
    assert_eq!(
        refused(&[PROCESS, r#"{"ev":"deliver","t":1,"p":"b","m":"a:1"}"#]),
        "line 2, column 27: the process \"b\" needs a line {\"ev\":\"process\",..} before this"
    );
    assert_eq!(
        refused(&[PROCESS, r#"{"ev":"deliver","t":1,"p":"a"}"#]),
        "line 2: the field \"m\" is missing"
    );
    assert_eq!(
        refused(&[PROCESS, r#"{"ev":"cast","t":1,"p":"a","m":"a:1","dst":[]}"#]),
        "line 2: \"dst\" is empty: a message has a destination"
    );
    assert_eq!(
        refused(&[PROCESS, r#"{"ev":"cast","t":1,"p":"a","m":"a:1","dst":["g",4]}"#]),
        "line 2, column 44: \"dst\" should be a list of strings"
    );
    assert_eq!(
        refused(&[PROCESS, r#"{"ev":"crash","t":5,"p":"a"}"#, r#"{"ev":"recover","t":4,"p":"a"}"#]),
        "line 3: the time of \"a\" went back: it was 5 before"
    );
    assert_eq!(refused(&[r#"{"ev":"end"}"#, PROCESS]), "line 2: an event follows {\"ev\":\"end\"}");
    assert!(
        refused(&[r#"{"ev":"vote"}"#]).starts_with("line 1, column 7: no event is called \"vote\"")
    );
    assert!(refused(&["[1]"]).ends_with("not JSON: '{' should stand here"));
    assert!(
        refused(&[PROCESS, r#"{"ev":"process","p":"a","groups":[]}"#]).contains("other groups")
    );
    let in_tree = |p, parent| {
        format!(r#"{{"ev":"process","p":"{p}","groups":["{p}"],"parents":["{parent}"]}}"#)
    };
    assert_eq!(
        refused(&[&in_tree("g1", "g0"), &in_tree("g0", "g1")]),
        "line 2, column 52: \"g0\" had another parent before, or is its own ancestor: the groups are no tree"
    );
    assert_eq!(
        refused(&[r#"{"ev":"process","p":"a","groups":["g"],"parents":[]}"#]),
        "line 1, column 50: \"parents\" should be a list with a string for each of \"groups\""
    );
}

#[test]
fn a_refused_line_leaves_the_history_as_it_was() {
    let mut h = History::new();
    h.push_line(PROCESS).unwrap();
    let a = h.process("a").unwrap();
    h.push_line(r#"{"ev":"deliver","t":1,"p":"a","m":"a:1","extra":{"x":[1]}}"#).unwrap();
    let cut = h.push_line(r#"{"ev":"deliver","t":2,"p":"a","m":"a:"#).unwrap_err();
    assert!(cut.is_cut() && cut.problem == Problem::Cut);
    h.push_line(r#"{"ev":"deliver","t":2,"p":"a","m":"a:2"}"#).unwrap();
    let names: Vec<_> = h.delivered(a).into_iter().map(|m| h.message_name(m)).collect();
    assert_eq!(names, ["a:1", "a:2"]);
    assert_eq!((h.lines(), h.deliveries(), h.settled()), (4, 2, false));
}

#[test]
fn messages_may_have_any_name_and_similar_names_differ() {
    let mut h = History::new();
    h.push_line(PROCESS).unwrap();
    let given = ["a:1", "a:01", "a:+1", "1", ":", "x y", "a:18446744073709551615", "g/r:7:8", "a"];
    for m in given {
        let line = format!(r#"{{"ev":"deliver","t":1,"p":"a","m":"{m}"}}"#);
        h.push_line(&line).unwrap();
    }
    let p = h.process("a").unwrap();
    let read: Vec<_> = h.delivered(p).into_iter().map(|m| h.message_name(m)).collect();
    assert_eq!(read, given);
    let integrity = check(&h, &[Property::Ui]).to_string();
    assert!(integrity.contains("which nobody cast"), "{integrity}");
}

#[test]
fn several_files_are_one_run() {
    let mut h = History::new();
    let mut read = |file: &str, lines: &[&str]| {
        h.file(file);
        lines.iter().try_for_each(|line| h.push_line(line))
    };
    // The second life of "a" was written to a file that is read first.
    read(
        "b",
        &[
            r#"{"ev":"process","p":"b","groups":["g"]}"#,
            r#"{"ev":"deliver","t":5,"p":"b","m":"a:1"}"#,
            r#"{"ev":"deliver","t":6,"p":"b","m":"a:2"}"#,
            r#"{"ev":"end"}"#,
        ],
    )
    .unwrap();
    read(
        "a.2",
        &[
            PROCESS,
            r#"{"ev":"recover","t":20,"p":"a"}"#,
            r#"{"ev":"deliver","t":21,"p":"a","m":"a:2"}"#,
        ],
    )
    .unwrap();
    read(
        "a.1",
        &[
            PROCESS,
            r#"{"ev":"cast","t":5,"p":"a","m":"a:1","dst":["g"]}"#,
            r#"{"ev":"cast","t":5,"p":"a","m":"a:2","dst":["g"]}"#,
            r#"{"ev":"deliver","t":7,"p":"a","m":"a:1"}"#,
            r#"{"ev":"crash","t":8,"p":"a"}"#,
        ],
    )
    .unwrap();
    let error = read("c", &[r#"{"ev":"crash","t":8,"p":"c"}"#]).unwrap_err();
    assert!(error.to_string().starts_with("c: line 1, column 25:"), "{error}");
    assert!(h.settled() && h.is_correct(h.process("a").unwrap()));
    let mut required = expand("atomic-multicast").unwrap();
    required.extend(expand("TO(UA,SUTO)").unwrap());
    required.extend([Property::FifoOrder, Property::CausalOrder]);
    let report = check(&h, &required);
    assert!(report.all_hold(), "{report}");

    h.file("late");
    h.push_line(r#"{"ev":"deliver","t":22,"p":"a","m":"a:1"}"#).unwrap();
    let report = check(&h, &[Property::Ui]);
    let PropertyVerdict::Violated(why) = &report.findings[0].1 else { panic!("{report}") };
    let places: Vec<_> = why.events.iter().map(|e| (&*e.place.file, e.place.line)).collect();
    assert_eq!(places, [("a.1", 4), ("late", 1)]);
}

/// Reads two files as they are merged by time, a line at a time: `lines` name the file and the line of each.
fn merged(lines: &[(&str, u32, &str)]) -> History {
    let mut h = History::new();
    for (file, number, text) in lines {
        h.file_from(file, *number);
        h.push_line(text).expect("it can be read");
    }
    h
}

/// The violation of integrity, if any.
fn early(h: &History) -> Option<String> {
    match &check(h, &[Property::Ui]).findings[0].1 {
        PropertyVerdict::Violated(why) => Some(why.to_string()),
        _ => None,
    }
}

#[test]
fn what_is_delivered_before_it_was_cast_is_seen_in_files_that_are_read_in_turns() {
    let b = r#"{"ev":"process","p":"b","groups":["g"]}"#;
    let cast = |t: u64| format!(r#"{{"ev":"cast","t":{t},"p":"a","m":"a:1","dst":["g"]}}"#);
    let deliver = |t: u64, p: &str| format!(r#"{{"ev":"deliver","t":{t},"p":"{p}","m":"a:1"}}"#);
    let play = |own: bool, cast_at: u64, delivered_at: u64, cast_first: bool| {
        let (p, file, number) = if own { ("a", "a", 3) } else { ("b", "b", 2) };
        let (cast, deliver) = (cast(cast_at), deliver(delivered_at, p));
        let (first, second) = (("a", 2, &*cast), (file, number, &*deliver));
        let last = if cast_first { [first, second] } else { [second, first] };
        merged(&[("a", 1, PROCESS), ("b", 1, b), last[0], last[1]])
    };
    // At one moment in one file the lines give the order, with any reads between them.
    assert_eq!(early(&play(true, 5, 5, true)), None);
    let wrong = early(&play(true, 5, 5, false)).expect("it is seen");
    assert!(wrong.contains("a delivers a:1, before it was cast"), "{wrong}");
    // In two files the times give it, with the files read in either order.
    for cast_first in [true, false] {
        let wrong = early(&play(false, 6, 5, cast_first)).expect("it is seen");
        assert!(wrong.contains("b delivers a:1, before it was cast"), "{wrong}");
        assert_eq!(early(&play(false, 5, 6, cast_first)), None);
        assert_eq!(early(&play(false, 5, 5, cast_first)), None);
    }
}

#[test]
fn of_a_file_that_is_read_in_turns_no_process_goes_back_in_time() {
    let b = r#"{"ev":"process","p":"b","groups":["g"]}"#;
    let mut h = merged(&[
        ("a", 1, PROCESS),
        ("b", 1, b),
        ("a", 2, r#"{"ev":"cast","t":5,"p":"a","m":"a:1","dst":["g"]}"#),
        ("b", 2, r#"{"ev":"deliver","t":6,"p":"b","m":"a:1"}"#),
    ]);
    h.file_from("a", 3);
    let back = h.push_line(r#"{"ev":"deliver","t":4,"p":"a","m":"a:1"}"#).unwrap_err();
    assert!(matches!(back.problem, Problem::TimeWentBack { .. }), "{back}");
    h.file_from("a.2", 1);
    // Another file of it may have been written before.
    h.push_line(r#"{"ev":"deliver","t":4,"p":"a","m":"a:1"}"#).unwrap();
}

#[test]
fn events_and_their_lines_give_the_same_history() {
    let c = ClusterShape::new(2, 2, 1).unwrap();
    let (m, dst) = (MsgId { sender: c.client(0), seq: 7 }, GroupSet::first(2));
    let mut events: Vec<TraceEvent<'_>> = c
        .pids()
        .map(|p| TraceEvent::Process {
            p,
            groups: c.group_of(p).map_or(GroupSet::EMPTY, GroupSet::one),
        })
        .collect();
    let (r, t) = (c.replica(Gid(1), 1), Time(5));
    events.extend([
        TraceEvent::Cast { t, p: c.client(0), m, dst },
        TraceEvent::Part { t, p: r, m },
        TraceEvent::Deliver { t, p: r, m },
        TraceEvent::View { t, p: r, view: "7", members: &[] },
        TraceEvent::Crash { t, p: r },
        TraceEvent::Recover { t: Time(6), p: r },
        TraceEvent::Call { t, p: c.client(0), m, op: "SET \"a b\" 1" },
        TraceEvent::Return { t, p: c.client(0), m, out: "OK" },
        TraceEvent::End,
    ]);
    let tree = Overlay::depth(2);
    let (mut direct, mut lines) = (History::new(), History::new());
    direct.arrange(&tree).unwrap();
    for event in &events {
        direct.push_event(event, &c).unwrap();
        lines.push_line(&event.json_in(&c, Some(&tree)).to_string()).unwrap();
    }
    let other = Overlay::new(&[1, -1], 2).unwrap();
    assert_eq!(
        lines.arrange(&other),
        Err(Problem::NoTree("g0".into())),
        "it received another tree"
    );
    assert_eq!(lines.arrange(&tree), Ok(()));
    assert_eq!(check(&direct, Property::ALL), check(&lines, Property::ALL));
    assert_eq!((direct.lines(), direct.messages()), (lines.lines(), lines.messages()));
    let stranger = TraceEvent::Crash { t, p: amcast_core::Pid(99) };
    let error = History::new().push_event(&stranger, &c).unwrap_err();
    assert_eq!(error.problem, Problem::NotInCluster);
    let early = History::new().push_event(&events[5], &c).unwrap_err();
    assert_eq!(early.problem, Problem::Undeclared("c0".into()));
}

#[test]
fn faulty_processes_show_their_execution_patterns() {
    let shown = |deliveries: &[&str]| {
        let mut text = String::from("process a g\nprocess p g\nprocess q g\n");
        for m in ["m1", "m2", "m3", "m4"] {
            text += &format!("cast a {m} g\n");
        }
        for m in ["m1", "m2", "m3"] {
            text += &format!("deliver a {m}\ndeliver q {m}\n");
        }
        for m in deliveries {
            text += &format!("deliver p {m}\n");
        }
        let h = script::history(&(text + "crash p\nend"));
        let found = execution_patterns(&h).unwrap();
        assert_eq!(h.process_name(found[0].process), "p");
        (found.len(), found[0].patterns.to_string())
    };
    assert_eq!(shown(&["m1", "m2"]), (1, "EP1".into()));
    assert_eq!(shown(&["m1", "m4"]), (1, "EP2".into()));
    assert_eq!(shown(&["m1", "m3"]), (1, "EP3".into()));
    assert_eq!(shown(&["m2", "m1"]), (1, "EP4".into()));
    assert_eq!(shown(&["m4", "m3", "m1"]), (1, "EP2+EP3+EP4".into()));
    assert!(execution_patterns(&History::new()).is_err());
}

/// A few lines of every kind, to be damaged.
const SCRIPT: &str = "
    process g0/r0 g0
    process g0/r1 g0
    process c0
    cast c0 c0:1 g0
    cast g0/r0 g0/r0:1 g0
    part g0/r0 c0:1
    deliver g0/r0 c0:1
    deliver g0/r1 c0:1
    deliver g0/r0 g0/r0:1
    deliver g0/r1 g0/r0:1
    crash g0/r1
    recover g0/r1
    call c0 c0:1 MULTI; IF a 1; SET \"a b\" 2; MGET a b
    return c0 c0:1 OK; 1 nil
    call c0 c0:2 INCR n
    return c0 c0:2 1
    call c0 c0:3 APPEND s x
    call c0 c0:4 GET n
    return c0 c0:4 1
    end";

fn judge_all(h: &History) {
    let report = check(h, Property::ALL);
    assert_eq!(report.findings.len(), Property::ALL.len());
    assert!(!report.to_string().is_empty() && report.json().starts_with("{\"ok\":"));
    assert_eq!(execution_patterns(h).is_ok(), h.settled());
}

#[test]
fn nothing_panics_on_damaged_lines() {
    let mut rng = Rng::stream(5, "damage");
    let good = script::lines(SCRIPT);
    let (mut taken, mut refused) = (0_u64, 0_u64);
    for _ in 0..4_000 {
        let mut h = History::new();
        for _ in 0..rng.below(40) {
            let mut line = good[rng.below(good.len() as u64) as usize].clone().into_bytes();
            for _ in 0..rng.below(3) {
                let at = rng.below(line.len().max(1) as u64) as usize;
                match rng.below(4) {
                    0 => line.truncate(at),
                    1 if at < line.len() => line[at] = rng.word() as u8,
                    2 if at < line.len() => drop(line.remove(at)),
                    _ => line.insert(at.min(line.len()), b"\"\\{}[],:0;"[rng.below(10) as usize]),
                }
            }
            if rng.chance(50_000) {
                h.file("next");
            }
            match h.push_line(&String::from_utf8_lossy(&line)) {
                Ok(()) => taken += 1,
                Err(e) => {
                    assert!(e.line > 0 && !e.to_string().is_empty());
                    refused += 1;
                }
            }
        }
        judge_all(&h);
    }
    assert!(taken > 5_000 && refused > 5_000, "{taken} taken, {refused} refused");
}

#[test]
fn nothing_panics_on_any_order_of_lines_or_any_bytes() {
    let mut rng = Rng::stream(6, "bytes");
    let good = script::lines(SCRIPT);
    for _ in 0..4_000 {
        let mut h = History::new();
        for p in &good[..3] {
            h.push_line(p).unwrap();
        }
        for _ in 0..rng.below(40) {
            let line = &good[rng.below(good.len() as u64) as usize];
            // All at one time, so that no order of lines is refused for going back.
            let at = line.find("\"t\":").map(|at| at + 4);
            let end = at.and_then(|at| Some(at + line[at..].find(',')?));
            let same = at.zip(end).map(|(at, end)| format!("{}9{}", &line[..at], &line[end..]));
            // After the end of the run lines are refused.
            let _ = h.push_line(same.as_ref().unwrap_or(line));
        }
        judge_all(&h);
        let bytes: Vec<u8> = (0..rng.below(60)).map(|_| rng.word() as u8).collect();
        let text = String::from_utf8_lossy(&bytes);
        let blank = text.trim_ascii().is_empty();
        assert_eq!(h.push_line(&text).is_ok(), blank, "{text:?}");
    }
}

#[test]
fn a_model_of_the_readers_own_can_be_judged() {
    let h = script::history("process c0\ncall c0 c0:1 GET a\nreturn c0 c0:1 nil");
    let budget = service::Budget::default();
    assert_eq!(
        service::linearizable_as(service::kv::KvModel::new(), &h, budget),
        PropertyVerdict::Holds
    );
    assert_eq!(
        service::sequential_as(service::kv::KvModel::new(), &h, budget),
        PropertyVerdict::Holds
    );
}

/// One that comes back into a group with views is a new process, and its old life is faulty: what
/// only that delivered obliges nobody. Without views it is the same process all along.
#[test]
fn who_comes_back_into_a_view_is_a_new_process() {
    let lines = |view: &str| {
        let all = [
            r#"{"ev":"process","p":"g0/r0","groups":["g0"]}"#,
            r#"{"ev":"process","p":"g0/r1","groups":["g0"]}"#,
            view,
            r#"{"ev":"cast","t":1,"p":"g0/r1","m":"g0/r1:1","dst":["g0"]}"#,
            r#"{"ev":"deliver","t":2,"p":"g0/r1","m":"g0/r1:1"}"#,
            r#"{"ev":"crash","t":3,"p":"g0/r1"}"#,
            r#"{"ev":"recover","t":4,"p":"g0/r1"}"#,
            r#"{"ev":"cast","t":5,"p":"g0/r0","m":"g0/r0:1","dst":["g0"]}"#,
            r#"{"ev":"deliver","t":6,"p":"g0/r0","m":"g0/r0:1"}"#,
            r#"{"ev":"deliver","t":6,"p":"g0/r1","m":"g0/r0:1"}"#,
            r#"{"ev":"end"}"#,
        ];
        let mut h = History::new();
        all.iter().filter(|line| !line.is_empty()).for_each(|line| h.push_line(line).unwrap());
        h
    };
    let judged = |h: &History, property| check(h, &[property]).findings[0].1.clone();
    let plain = lines("");
    assert!(matches!(judged(&plain, Property::Nua), PropertyVerdict::Violated(_)));
    assert!(execution_patterns(&plain).unwrap().is_empty());
    let dynamic =
        lines(r#"{"ev":"view","t":0,"p":"g0/r1","view":"0","members":["g0/r0","g0/r1"]}"#);
    assert!(matches!(judged(&dynamic, Property::Nua), PropertyVerdict::Holds));
    assert!(matches!(judged(&dynamic, Property::Ua), PropertyVerdict::Violated(_)));
    let shown = execution_patterns(&dynamic).unwrap();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].patterns.to_string(), "EP2");
}

/// The verdict on uniform integrity, where `a` delivers a message of `sender` that the history does not have as cast.
fn uncast(sender: &str, lines: &[&str], missing: Option<&str>) -> PropertyVerdict {
    let mut h = History::new();
    let deliver = format!(r#"{{"ev":"deliver","t":3,"p":"a","m":"{sender}:1"}}"#);
    let own = r#"{"ev":"cast","t":1,"p":"a","m":"a:1","dst":["g"]}"#;
    for line in [PROCESS, own].iter().chain(lines).chain([&&*deliver]) {
        h.push_line(line).unwrap();
    }
    missing.iter().for_each(|missing| h.lacks(missing));
    check(&h, &[Property::UniformIntegrity]).findings.remove(0).1
}

#[test]
fn what_may_have_been_cast_where_the_history_does_not_tell_is_not_judged() {
    const B: &str = r#"{"ev":"process","p":"b","groups":[]}"#;
    const RESTORED: &str = r#"{"ev":"process","p":"a","groups":["g"],"restored":true}"#;
    assert!(matches!(uncast("b", &[B], None), PropertyVerdict::Violated(_)));
    assert!(matches!(uncast("b", &[], None), PropertyVerdict::Violated(_)), "nobody is b");
    let cases = [
        (uncast("b", &[B, RESTORED], None), "a began with a state from before the history; a"),
        (uncast("b", &[B], Some("n2-sent.0.jsonl")), "no history of n2-sent.0.jsonl; a"),
    ];
    for (verdict, says) in cases {
        let PropertyVerdict::NotJudged(why) = verdict else { panic!("{verdict:?}") };
        assert!(why.starts_with(says), "{why}");
    }
    // Another violation counts as before.
    let twice = r#"{"ev":"deliver","t":2,"p":"a","m":"b:1"}"#;
    assert!(matches!(uncast("b", &[RESTORED, twice], None), PropertyVerdict::Violated(_)));
}

#[test]
fn calls_on_a_state_from_before_the_history_are_not_judged() {
    let lines = [
        r#"{"ev":"process","p":"c","groups":[]}"#,
        r#"{"ev":"call","t":1,"p":"c","m":"c:1","op":"GET k"}"#,
        r#"{"ev":"return","t":2,"p":"c","m":"c:1","out":"old"}"#,
    ];
    let judged = |before: &str| {
        let mut h = History::new();
        std::iter::once(before).chain(lines).for_each(|line| h.push_line(line).unwrap());
        check(&h, &[Property::Linearizable]).findings.remove(0).1
    };
    assert!(matches!(judged(PROCESS), PropertyVerdict::Violated(_)));
    let verdict = judged(r#"{"ev":"process","p":"a","groups":["g"],"restored":true}"#);
    let PropertyVerdict::NotJudged(why) = verdict else { panic!("{verdict:?}") };
    assert!(why.starts_with("a began with a state from before the history"), "{why}");
}
