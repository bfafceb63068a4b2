//! The errors of a line of a history, worded so that a person can mend it.

use alloc::string::String;
use core::fmt;

/// A line that was refused. The history is as it was before the line and continues to take others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineError {
    /// The file, as named by [`crate::History::file`]; empty if none was named.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The byte within the line where the fault starts, from 1; 0 when it is about the line as a
    /// whole.
    pub column: usize,
    /// The problem.
    pub problem: Problem,
}

/// A problem of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The line ends within its object: the writer was stopped while writing it. As the last line
    /// of a killed process's file this is to be expected.
    Cut,
    /// The line is not one JSON object; this should stand here.
    Malformed(&'static str),
    /// A field that events of this kind need is not there.
    Missing(&'static str),
    /// A field holds another kind of value than it should.
    Wrong {
        /// The field.
        field: &'static str,
        /// The expected value.
        want: &'static str,
    },
    /// No event has this name.
    UnknownEvent(String),
    /// The process has not been declared on an earlier line of its file or of an earlier file.
    Undeclared(String),
    /// The process was declared before with other groups.
    Redeclared(String),
    /// The message was cast before by another sender or to other destinations: ids are unique.
    Recast(String),
    /// The message has no destination.
    NoDestination,
    /// The process's time went back, which it never does within one file.
    TimeWentBack {
        /// The process.
        process: String,
        /// Its time before, in nanoseconds.
        before_ns: u64,
    },
    /// A group got another parent than before, or is its own ancestor: the groups are no tree.
    NoTree(String),
    /// An event follows the end of the run.
    AfterEnd,
    /// More of these than a history can hold (about 2^31).
    TooMany(&'static str),
    /// The event names a process that is not of the cluster.
    NotInCluster,
}

impl LineError {
    /// Whether the line merely ends too early, as the last line of a killed process may.
    pub fn is_cut(&self) -> bool {
        self.problem == Problem::Cut
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("the line ends too early"),
            Self::Malformed(want) => write!(f, "not JSON: {want} should stand here"),
            Self::Missing(field) => write!(f, "the field \"{field}\" is missing"),
            Self::Wrong { field, want } => write!(f, "\"{field}\" should be {want}"),
            Self::UnknownEvent(ev) => write!(
                f,
                "no event is called \"{ev}\": known are process, cast, part, deliver, crash, \
                 recover, view, call, return and end"
            ),
            Self::Undeclared(p) => {
                write!(f, "the process \"{p}\" needs a line {{\"ev\":\"process\",..}} before this")
            }
            Self::Redeclared(p) => write!(f, "\"{p}\" was declared before with other groups"),
            Self::Recast(m) => write!(
                f,
                "\"{m}\" was cast before by another sender or to other destinations: each message \
                 needs an id of its own"
            ),
            Self::NoDestination => f.write_str("\"dst\" is empty: a message has a destination"),
            Self::TimeWentBack { process, before_ns } => {
                write!(f, "the time of \"{process}\" went back: it was {before_ns} before")
            }
            Self::NoTree(g) => write!(
                f,
                "\"{g}\" had another parent before, or is its own ancestor: the groups are no tree"
            ),
            Self::AfterEnd => f.write_str("an event follows {\"ev\":\"end\"}"),
            Self::TooMany(what) => write!(f, "more {what} than a history can hold"),
            Self::NotInCluster => f.write_str("the event names a process outside the cluster"),
        }
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}: ", self.file)?;
        }
        write!(f, "line {}", self.line)?;
        if self.column > 0 {
            write!(f, ", column {}", self.column)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl core::error::Error for LineError {}
