//! The events of a run: the only schema behind histories, checkers, metrics and pictures.
//!
//! The simulator and real nodes write the same events; one event is one line of JSON. `t` is in
//! nanoseconds of the run's clock. A line is stable: programs outside the project read it.

use crate::cluster::{ClusterShape, Overlay};
use crate::id::{Gid, GroupSet, MsgId, Pid};
use crate::time::Time;
use core::fmt;

/// One event of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceEvent<'a> {
    /// A process exists; each once, before anything else. Clients are in no group.
    Process {
        /// The process.
        p: Pid,
        /// The groups it is a member of.
        groups: GroupSet,
    },
    /// `p` multicast (or broadcast) `m` to `dst`.
    Cast {
        /// When.
        t: Time,
        /// The sender.
        p: Pid,
        /// The message.
        m: MsgId,
        /// Its destinations.
        dst: GroupSet,
    },
    /// `p` took part in ordering `m`: it sent, received, wrote or read something for it.
    Part {
        /// When.
        t: Time,
        /// The process.
        p: Pid,
        /// The message.
        m: MsgId,
    },
    /// `p` takes part along this tree of groups from here on, where the tree can be changed; before that, along the
    /// tree that the lines of processes tell, if they tell one.
    Overlay {
        /// When.
        t: Time,
        /// The process.
        p: Pid,
        /// The tree.
        tree: &'a Overlay,
    },
    /// `p` delivered `m`.
    Deliver {
        /// When.
        t: Time,
        /// The process.
        p: Pid,
        /// The message.
        m: MsgId,
    },
    /// `p` delivered `m` early: its place in the order is not decided. Histories have no line for it: a simulator checks the
    /// duties that a protocol has with it, and measurements take it.
    Early {
        /// When.
        t: Time,
        /// The process.
        p: Pid,
        /// The message.
        m: MsgId,
    },
    /// `p` crashed and lost its memory.
    Crash {
        /// When.
        t: Time,
        /// The process.
        p: Pid,
    },
    /// `p` left its group as it was asked to, and stopped: nothing that it cast or delivered is lost.
    /// As a line it is a crash with `"left":true`, so that a reader that does not know of leaving counts it as failed.
    Leave {
        /// When.
        t: Time,
        /// The process.
        p: Pid,
    },
    /// `p` started again.
    Recover {
        /// When.
        t: Time,
        /// The process.
        p: Pid,
    },
    /// `p` entered a view with these members.
    View {
        /// When.
        t: Time,
        /// The process.
        p: Pid,
        /// The view's name.
        view: &'a str,
        /// Its members.
        members: &'a [Pid],
    },
    /// Client `p` called an operation of a service.
    Call {
        /// When.
        t: Time,
        /// The client.
        p: Pid,
        /// The call.
        m: MsgId,
        /// The operation, as text.
        op: &'a str,
    },
    /// The call returned to client `p`.
    Return {
        /// When.
        t: Time,
        /// The client.
        p: Pid,
        /// The call.
        m: MsgId,
        /// The answer, as text.
        out: &'a str,
    },
    /// The run settled: no further event will happen, so liveness may be judged.
    End,
}

impl<'a> TraceEvent<'a> {
    /// The event as one line of JSON without the line's end, names taken from `cluster`.
    pub const fn json(&'a self, cluster: &'a ClusterShape) -> Json<'a> {
        self.json_in(cluster, None)
    }

    /// As [`TraceEvent::json`]; where messages are ordered along a tree of groups, the line of a process names the
    /// parent of each of its groups, or nothing for the root: `"parents":["g0"]`.
    pub const fn json_in(
        &'a self,
        cluster: &'a ClusterShape,
        overlay: Option<&'a Overlay>,
    ) -> Json<'a> {
        Json { event: self, cluster, overlay }
    }
}

/// Prints an event as JSON.
pub struct Json<'a> {
    event: &'a TraceEvent<'a>,
    cluster: &'a ClusterShape,
    overlay: Option<&'a Overlay>,
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = self.cluster;
        match self.event {
            TraceEvent::Process { p, groups } => {
                write!(f, r#"{{"ev":"process","p":"{}","groups":["#, c.name(*p))?;
                list(f, groups.iter())?;
                if let Some(overlay) = self.overlay.filter(|_| !groups.is_empty()) {
                    f.write_str(r#"],"parents":["#)?;
                    list(f, groups.iter().map(|g| Parent(overlay.parent(g))))?;
                }
                f.write_str("]}")
            }
            TraceEvent::Cast { t, p, m, dst } => {
                let (p, s) = (c.name(*p), c.name(m.sender));
                write!(f, r#"{{"ev":"cast","t":{},"p":"{p}","m":"{s}:{}","dst":["#, t.0, m.seq)?;
                list(f, dst.iter())?;
                f.write_str("]}")
            }
            TraceEvent::Part { t, p, m } => about(f, "part", *t, *p, *m, c),
            TraceEvent::Overlay { t, p, tree } => {
                let groups = GroupSet::first(tree.groups());
                write!(f, r#"{{"ev":"overlay","t":{},"p":"{}","groups":["#, t.0, c.name(*p))?;
                list(f, groups.iter())?;
                f.write_str(r#"],"parents":["#)?;
                list(f, groups.iter().map(|g| Parent(tree.parent(g))))?;
                f.write_str("]}")
            }
            TraceEvent::Deliver { t, p, m } => about(f, "deliver", *t, *p, *m, c),
            TraceEvent::Early { t, p, m } => about(f, "early", *t, *p, *m, c),
            TraceEvent::Crash { t, p } => plain(f, "crash", *t, *p, c),
            TraceEvent::Leave { t, p } => {
                write!(f, r#"{{"ev":"crash","t":{},"p":"{}","left":true}}"#, t.0, c.name(*p))
            }
            TraceEvent::Recover { t, p } => plain(f, "recover", *t, *p, c),
            TraceEvent::View { t, p, view, members } => {
                write!(f, r#"{{"ev":"view","t":{},"p":"{}","view":"#, t.0, c.name(*p))?;
                quoted(f, view)?;
                f.write_str(r#","members":["#)?;
                list(f, members.iter().map(|&m| c.name(m)))?;
                f.write_str("]}")
            }
            TraceEvent::Call { t, p, m, op } => said(f, ("call", "op"), *t, *p, *m, op, c),
            TraceEvent::Return { t, p, m, out } => said(f, ("return", "out"), *t, *p, *m, out, c),
            TraceEvent::End => f.write_str(r#"{"ev":"end"}"#),
        }
    }
}

/// The parent of a group: its name, or nothing.
struct Parent(Option<Gid>);

impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |g| g.fmt(f))
    }
}

fn list(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = impl fmt::Display>) -> fmt::Result {
    for (i, item) in items.enumerate() {
        write!(f, "{}\"{item}\"", if i == 0 { "" } else { "," })?;
    }
    Ok(())
}

fn plain(f: &mut fmt::Formatter<'_>, ev: &str, t: Time, p: Pid, c: &ClusterShape) -> fmt::Result {
    write!(f, r#"{{"ev":"{ev}","t":{},"p":"{}"}}"#, t.0, c.name(p))
}

fn about(
    f: &mut fmt::Formatter<'_>,
    ev: &str,
    t: Time,
    p: Pid,
    m: MsgId,
    c: &ClusterShape,
) -> fmt::Result {
    let (p, s) = (c.name(p), c.name(m.sender));
    write!(f, r#"{{"ev":"{ev}","t":{},"p":"{p}","m":"{s}:{}"}}"#, t.0, m.seq)
}

fn said(
    f: &mut fmt::Formatter<'_>,
    (ev, key): (&str, &str),
    t: Time,
    p: Pid,
    m: MsgId,
    text: &str,
    c: &ClusterShape,
) -> fmt::Result {
    let (p, s) = (c.name(p), c.name(m.sender));
    write!(f, r#"{{"ev":"{ev}","t":{},"p":"{p}","m":"{s}:{}","{key}":"#, t.0, m.seq)?;
    quoted(f, text)?;
    f.write_str("}")
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for ch in text.chars() {
        match ch {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            ch if (ch as u32) < 0x20 => write!(f, "\\u{:04x}", ch as u32)?,
            ch => write!(f, "{ch}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn lines_are_golden() {
        let c = ClusterShape::new(3, 2, 1).unwrap();
        let (t, p, m) = (Time(17), c.replica(Gid(0), 1), MsgId { sender: c.client(0), seq: 42 });
        let line = |e: TraceEvent<'_>| e.json(&c).to_string();
        assert_eq!(
            line(TraceEvent::Process { p, groups: GroupSet::one(Gid(0)) }),
            r#"{"ev":"process","p":"g0/r1","groups":["g0"]}"#
        );
        let tree = Overlay::depth(3);
        let member = |g| TraceEvent::Process { p, groups: GroupSet::one(Gid(g)) };
        assert_eq!(
            member(0).json_in(&c, Some(&tree)).to_string(),
            r#"{"ev":"process","p":"g0/r1","groups":["g0"],"parents":[""]}"#
        );
        assert_eq!(
            member(2).json_in(&c, Some(&tree)).to_string(),
            r#"{"ev":"process","p":"g0/r1","groups":["g2"],"parents":["g1"]}"#
        );
        assert_eq!(
            line(TraceEvent::Overlay { t, p, tree: &tree }),
            r#"{"ev":"overlay","t":17,"p":"g0/r1","groups":["g0","g1","g2"],"parents":["","g0","g1"]}"#
        );
        let dst = GroupSet::one(Gid(0)).with(Gid(2));
        assert_eq!(
            line(TraceEvent::Cast { t, p: c.client(0), m, dst }),
            r#"{"ev":"cast","t":17,"p":"c0","m":"c0:42","dst":["g0","g2"]}"#
        );
        assert_eq!(
            line(TraceEvent::Deliver { t, p, m }),
            r#"{"ev":"deliver","t":17,"p":"g0/r1","m":"c0:42"}"#
        );
        assert_eq!(line(TraceEvent::Crash { t, p }), r#"{"ev":"crash","t":17,"p":"g0/r1"}"#);
        assert_eq!(
            line(TraceEvent::View { t, p, view: "7", members: &[p] }),
            r#"{"ev":"view","t":17,"p":"g0/r1","view":"7","members":["g0/r1"]}"#
        );
        assert_eq!(
            line(TraceEvent::Call { t, p: c.client(0), m, op: "SET \"a\"\u{1}" }),
            r#"{"ev":"call","t":17,"p":"c0","m":"c0:42","op":"SET \"a\"\u0001"}"#
        );
        assert_eq!(line(TraceEvent::End), r#"{"ev":"end"}"#);
    }
}
