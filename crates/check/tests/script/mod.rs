//! Histories as short scripts: one event a line, times counted up by one.
//!
//! `process g0/r0 g0`, `process g1/r0 g1 g0` (the parent of g1 is g0; `-` for the root), `cast c0 c0:1 g0,g1`, `deliver g0/r0 c0:1`, `part ..`, `overlay g0/r0 g0,g1 -,g0`, `crash g0/r0`,
//! `call c0 c0:1 SET a 1`, `return c0 c0:1 OK`, `view g0/r0 2`, `end`.

use amcast_check::History;

/// The script as lines of JSON.
pub(crate) fn lines(script: &str) -> Vec<String> {
    let words = |s: &str| s.split(',').map(|g| format!("{g:?}")).collect::<Vec<_>>().join(",");
    let events = script.lines().map(str::trim).filter(|l| !l.is_empty());
    let line = |(t, event): (usize, &str)| {
        let mut parts = event.splitn(4, ' ');
        let mut part = || parts.next().unwrap_or_default();
        let (ev, p, m, rest) = (part(), part(), part(), part());
        let t = t + 1;
        match ev {
            "process" if m.is_empty() => format!(r#"{{"ev":"process","p":"{p}","groups":[]}}"#),
            "process" if !rest.is_empty() => {
                let (groups, parents) = (words(m), words(rest).replace('-', ""));
                format!(r#"{{"ev":"process","p":"{p}","groups":[{groups}],"parents":[{parents}]}}"#)
            }
            "process" => format!(r#"{{"ev":"process","p":"{p}","groups":[{}]}}"#, words(m)),
            "overlay" => {
                let (groups, parents) = (words(m), words(rest).replace('-', ""));
                format!(
                    r#"{{"ev":"overlay","t":{t},"p":"{p}","groups":[{groups}],"parents":[{parents}]}}"#
                )
            }
            "cast" => {
                let dst = words(rest);
                format!(r#"{{"ev":"cast","t":{t},"p":"{p}","m":"{m}","dst":[{dst}]}}"#)
            }
            "call" => format!(r#"{{"ev":"call","t":{t},"p":"{p}","m":"{m}","op":{rest:?}}}"#),
            "return" => format!(r#"{{"ev":"return","t":{t},"p":"{p}","m":"{m}","out":{rest:?}}}"#),
            "deliver" | "part" => format!(r#"{{"ev":"{ev}","t":{t},"p":"{p}","m":"{m}"}}"#),
            "crash" | "recover" => format!(r#"{{"ev":"{ev}","t":{t},"p":"{p}"}}"#),
            "leave" => format!(r#"{{"ev":"crash","t":{t},"p":"{p}","left":true}}"#),
            "view" => {
                let view = if m.is_empty() { "1" } else { m };
                format!(r#"{{"ev":"view","t":{t},"p":"{p}","view":"{view}","members":[]}}"#)
            }
            "end" => r#"{"ev":"end"}"#.to_string(),
            other => panic!("a script has no {other}"),
        }
    };
    events.enumerate().map(line).collect()
}

/// The script as a history.
pub(crate) fn history(script: &str) -> History {
    let mut history = History::new();
    for line in lines(script) {
        history.push_line(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
    history
}
