//! Faults in words, for people who read of a run.

use super::Fault;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use amcast_core::{ClusterShape, Pid, Span};

impl Fault {
    /// A sentence for people about the fault.
    pub fn words(&self, cluster: &ClusterShape) -> String {
        let name = |p: &Pid| cluster.name(*p).to_string();
        match self {
            Self::Crash { p, mid_step, down } => format!(
                "{} dies{}, {}",
                name(p),
                if *mid_step { " in the middle of a step" } else { "" },
                for_how_long(*down)
            ),
            Self::Power { outages, lost } => {
                let dies = |&(p, down): &_| format!("{} {}", name(&p), for_how_long(down));
                let dies: Vec<_> = outages.iter().map(dies).collect();
                let lost =
                    lost.map_or(String::new(), |n| format!(", with at most {n} records each"));
                format!("the machines of some fail{lost}: {}", dies.join(", "))
            }
            Self::Stall { p, span } => {
                format!("nothing that {} wrote becomes durable for {}", name(p), us(span))
            }
            Self::Full { p, span } => format!("the disk of {} is full for {}", name(p), us(span)),
            Self::Replace { p, span } => {
                format!(
                    "{} loses its machine and its disk, and is back after {}",
                    name(p),
                    us(span)
                )
            }
            Self::Damage { p, .. } => {
                format!("a record of {} cannot be read any more", name(p))
            }
            Self::Checkpoint { p } => format!("the application of {} takes a checkpoint", name(p)),
            Self::Overlay { p, overlay } => format!("{} asks for the tree {overlay}", name(p)),
            Self::Leave { p, patience, down } => format!(
                "{} is asked to leave its group within {}, and stops {}",
                name(p),
                us(patience),
                for_how_long(*down)
            ),
            Self::Pause { p, span } => format!("{} takes no step for {}", name(p), us(span)),
            Self::Hang { p, span } => {
                format!("the application of {} executes nothing for {}", name(p), us(span))
            }
            Self::Partition { side, both, span } => {
                let side: Vec<_> = side.iter().map(name).collect();
                let from = if *both { "to or from" } else { "from" };
                format!("nothing passes {from} {} for {}", side.join(", "), us(span))
            }
            Self::Cut { a, b, span } => {
                format!("the link between {} and {} fails for {}", name(a), name(b), us(span))
            }
            Self::Link { from, to, span } => {
                format!("nothing passes from {} to {} for {}", name(from), name(to), us(span))
            }
            Self::DeadLink { from, to } => {
                format!("nothing passes from {} to {} for good", name(from), name(to))
            }
            Self::Suspicion { to, of, span } => {
                format!("{} wrongly suspects {} for {}", name(to), name(of), us(span))
            }
            Self::WrongLeader { to, group, leader, span } => {
                format!(
                    "{} takes {} for the leader of {group} for {}",
                    name(to),
                    name(leader),
                    us(span)
                )
            }
        }
    }
}

fn us(span: &Span) -> String {
    format!("{:.3} us", span.0 as f64 / 1e3)
}

fn for_how_long(span: Option<Span>) -> String {
    span.map_or("for good".to_string(), |span| format!("for {}", us(&span)))
}
