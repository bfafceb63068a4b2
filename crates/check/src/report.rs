//! The findings of the checker, for a person and as JSON.

use crate::history::EventPosition;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use amcast_core::Property;
use core::fmt::{self, Write};

/// The findings of [`crate::check`], property by property in the order asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckReport {
    /// Each property and what was found.
    pub findings: Vec<(Property, PropertyVerdict)>,
}

/// The finding about one property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PropertyVerdict {
    /// The history has the property.
    Holds,
    /// It has not, and here is why.
    Violated(Counterexample),
    /// The history does not say; the reason is a sentence.
    NotJudged(String),
    /// It can be the history of no run, as one in which an answer comes without a call: it is damaged,
    /// or was put together wrongly. Where, is a sentence.
    Impossible(String),
}

/// Why a history does not have a property: a few events and a sentence about them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counterexample {
    /// The violation, with the names of the processes and messages.
    pub sentence: String,
    /// The events that show it.
    pub events: Vec<CounterexampleEvent>,
}

/// An event of a counterexample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterexampleEvent {
    /// The process.
    pub process: String,
    /// Its action: "delivers", "casts", "takes part in", "calls", ..
    pub does: &'static str,
    /// To which message; for calls, what was called and what came back.
    pub message: String,
    /// For a delivery, its place among the process's deliveries, from 1.
    pub position: Option<u64>,
    /// Where the history says so.
    pub place: EventPosition,
    /// When, in nanoseconds of the run's clock.
    pub t_ns: u64,
}

impl CheckReport {
    /// Whether no property is violated, and the history can be one. Properties that were not judged do
    /// not count against it: see [`CheckReport::all_hold`].
    pub fn no_violation(&self) -> bool {
        let wrong = |v: &PropertyVerdict| {
            matches!(v, PropertyVerdict::Violated(_) | PropertyVerdict::Impossible(_))
        };
        !self.findings.iter().any(|(_, v)| wrong(v))
    }

    /// Whether every property was judged and holds.
    pub fn all_hold(&self) -> bool {
        self.findings.iter().all(|(_, v)| *v == PropertyVerdict::Holds)
    }

    /// The verdict about `property`, if it was asked for.
    pub fn verdict(&self, property: Property) -> Option<&PropertyVerdict> {
        self.findings.iter().find(|(p, _)| *p == property).map(|(_, v)| v)
    }

    /// The report as one JSON document.
    pub fn json(&self) -> String {
        let mut out = String::from(r#"{"ok":"#);
        out.push_str(if self.no_violation() { "true" } else { "false" });
        out.push_str(r#","findings":["#);
        for (i, (property, verdict)) in self.findings.iter().enumerate() {
            out.push_str(if i == 0 { "{" } else { ",{" });
            field(&mut out, "property", property.name());
            match verdict {
                PropertyVerdict::Holds => out.push_str(r#","verdict":"holds""#),
                PropertyVerdict::NotJudged(why) => {
                    out.push_str(r#","verdict":"not-judged","#);
                    field(&mut out, "reason", why);
                }
                PropertyVerdict::Impossible(why) => {
                    out.push_str(r#","verdict":"impossible","#);
                    field(&mut out, "reason", why);
                }
                PropertyVerdict::Violated(c) => {
                    out.push_str(r#","verdict":"violated","#);
                    c.json(&mut out);
                }
            }
            out.push('}');
        }
        out.push_str("]}");
        out
    }
}

impl Counterexample {
    pub(crate) fn new(sentence: String, events: Vec<CounterexampleEvent>) -> Self {
        Self { sentence, events }
    }

    /// The processes it names, without repetition.
    pub fn processes(&self) -> BTreeSet<&str> {
        self.events.iter().map(|e| e.process.as_str()).collect()
    }

    /// The messages it names, without repetition.
    pub fn messages(&self) -> BTreeSet<&str> {
        self.events.iter().map(|e| e.message.as_str()).collect()
    }

    fn json(&self, out: &mut String) {
        field(out, "sentence", &self.sentence);
        out.push_str(r#","events":["#);
        for (i, e) in self.events.iter().enumerate() {
            out.push_str(if i == 0 { "{" } else { ",{" });
            for (key, text) in [("p", &*e.process), ("does", e.does), ("m", &e.message)] {
                field(out, key, text);
                out.push(',');
            }
            if let Some(position) = e.position {
                let _ = write!(out, r#""position":{position},"#);
            }
            if !e.place.file.is_empty() {
                field(out, "file", &e.place.file);
                out.push(',');
            }
            let _ = write!(out, r#""line":{},"t":{}}}"#, e.place.line, e.t_ns);
        }
        out.push(']');
    }
}

/// Writes `"key":"text"`.
fn field(out: &mut String, key: &str, text: &str) {
    out.push('"');
    out.push_str(key);
    out.push_str("\":\"");
    for ch in text.chars() {
        match ch {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            ch if (ch as u32) < 0x20 => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", ch as u32);
            }
            ch => out.push(ch),
        }
    }
    out.push('"');
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (property, verdict) in &self.findings {
            match verdict {
                PropertyVerdict::Holds => writeln!(f, "holds       {property}")?,
                PropertyVerdict::NotJudged(why) => writeln!(f, "not judged  {property}: {why}")?,
                PropertyVerdict::Impossible(why) => writeln!(
                    f,
                    "IMPOSSIBLE  {property}: {why}; this can be the history of no run, it is damaged or \
                     a file is missing"
                )?,
                PropertyVerdict::Violated(c) => writeln!(f, "VIOLATED    {property}: {c}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)?;
        for e in &self.events {
            write!(f, "\n              {e}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CounterexampleEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.file.is_empty() {
            write!(f, "{}: ", self.place.file)?;
        }
        write!(f, "line {}: {} {} {}", self.place.line, self.process, self.does, self.message)?;
        if let Some(position) = self.position {
            write!(f, " as its no. {position}")?;
        }
        write!(f, " at {} ns", self.t_ns)
    }
}
