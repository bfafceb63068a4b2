//! Decides the properties that ordering protocols and services promise, on recorded histories.
//!
//! The three types to know are [`History`] (the events), [`PropertyVerdict`] (the decision on a property) and [`Counterexample`] (the
//! events that break it).
//!
//! Read a history line by line ([`History::push_line`]) or event by event
//! ([`History::push_event`]), name the properties ([`expand`]), and [`check`]. A property that does
//! not hold comes with a [`Counterexample`]: a sentence, and the few events that show it, with their
//! lines. A property that the history does not decide is [`PropertyVerdict::NotJudged`], with the reason.
//!
//! ```
//! use amcast_check::{History, Property, PropertyVerdict, check};
//!
//! let mut history = History::new();
//! for line in [
//!     r#"{"ev":"process","p":"g0/r0","groups":["g0"]}"#,
//!     r#"{"ev":"process","p":"c0","groups":[]}"#,
//!     r#"{"ev":"cast","t":1,"p":"c0","m":"c0:1","dst":["g0"]}"#,
//!     r#"{"ev":"deliver","t":2,"p":"g0/r0","m":"c0:1"}"#,
//!     r#"{"ev":"deliver","t":3,"p":"g0/r0","m":"c0:1"}"#,
//! ] {
//!     history.push_line(line).unwrap();
//! }
//! let report = check(&history, &[Property::UniformIntegrity]);
//! let PropertyVerdict::Violated(why) = &report.findings[0].1 else { panic!() };
//! assert_eq!(why.sentence, "g0/r0 delivers c0:1 twice");
//! assert_eq!(why.events[1].place.line, 5);
//! ```
//!
//! # Decisions, and their reading of the history
//! - A process that crashed and did not come back is *faulty*, every other one *correct*; what it
//!   delivers over all its lives counts as one sequence. A replica that takes state over from
//!   others is expected to record as delivered what came with that state. A sender that came back
//!   has forgotten what it had cast: validity is judged for what it cast after its last start.
//! - Where processes enter views (`{"ev":"view"}`), the group is dynamic: a process that crashed, or
//!   was excluded, and came back is a new process, and the old one is faulty [TO 3.1]. It is
//!   expected to record as delivered what came with the state that it was given.
//! - A process that left its dynamic group by choice (a crash with `"left":true`) counts as correct in
//!   all that it did, owes nothing from then on, and has delivered all that it cast.
//! - Events that must happen *in the end* (validity, agreement) are judged only if the run settled
//!   (`{"ev":"end"}`).
//! - A message obliges the processes of the groups it was cast to, also under the properties of
//!   total order broadcast, where it is meant to be cast to one group with everyone in it.
//! - Where the lines of processes name the parents of groups (`"parents"`), partial genuineness is exact: a
//!   message involves the groups on the tree's paths from the lowest common ancestor of its destinations down
//!   to them, and no other. Where the history names no common ancestor, the checker does not judge who may take
//!   part in a message to several groups; a message to one group involves that group and its sender
//!   either way.
//! - Where that tree can be changed, each process says along which one it takes part from some time on
//!   (`{"ev":"overlay"}`, with all `"groups"` and their `"parents"`), and each of its participations is judged
//!   by the latest that it named, also where two processes take part in one message along different trees: a change
//!   may come between them. Which tree is in force when is the protocol's affair, and is not judged.
//! - Order is judged on first deliveries; a second one is a matter of integrity.
//! - A process whose line says `"restored":true` began with a state from before the history. Messages that the
//!   history does not have as cast may then have been cast before it: their deliveries are not judged. Nor are the
//!   answers of a service, as nobody knows the state that it began with.
//! - Services: see [`service`].
//!
//! The crate shares no code with what it judges: it knows events, and no protocol.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod delivery;
mod error;
mod history;
mod index;
mod intern;
mod line;
mod order;
mod patterns;
mod read;
mod report;
pub mod service;
mod tree;

pub use amcast_core::Property;
pub use error::{LineError, Problem};
pub use history::{EventPosition, History, Msg, Proc};
pub use patterns::{Behaviour, OrderKind, Patterns, Specification, execution_patterns, expand};
pub use report::{CheckReport, Counterexample, CounterexampleEvent, PropertyVerdict};

use alloc::vec::Vec;
use delivery::Obliges;
use index::Index;
use order::causal::{CausalGaps, causal};
use order::cycle::{self, StuckMerge};

/// Judges `properties` on `history`, services with the default [`service::Budget`].
pub fn check(history: &History, properties: &[Property]) -> CheckReport {
    check_within(history, properties, service::Budget::default())
}

/// Judges `properties` on `history`; services on the key-value language of [`service::kv`], each
/// property within `budget`.
pub fn check_within(
    history: &History,
    properties: &[Property],
    budget: service::Budget,
) -> CheckReport {
    let index = Index::new(history);
    let mut checker = Checker { x: &index, budget, all: None, correct: None };
    let findings = properties.iter().map(|&p| (p, checker.judge(p))).collect();
    CheckReport { findings }
}

struct Checker<'a> {
    x: &'a Index<'a>,
    budget: service::Budget,
    /// The merge of all processes, once needed.
    all: Option<Option<StuckMerge>>,
    /// The merge of correct processes, once needed.
    correct: Option<Option<StuckMerge>>,
}

impl Checker<'_> {
    fn judge(&mut self, property: Property) -> PropertyVerdict {
        let x = self.x;
        match property {
            Property::Validity => delivery::everywhere(x, Obliges::CorrectSender),
            Property::UniformAgreement | Property::Ua => {
                delivery::everywhere(x, Obliges::AnyDeliverer)
            }
            Property::Nua => delivery::everywhere(x, Obliges::CorrectDeliverer),
            Property::Nuv => delivery::own(x),
            Property::UniformIntegrity => delivery::integrity(x, true),
            Property::Ui => delivery::integrity(x, false),
            Property::UniformPrefixOrder => order::prefix::prefix(x),
            Property::UniformAcyclicOrder => cycle::acyclic(x, self.stuck_all()),
            Property::Wuto => cycle::weak(x, self.stuck_all()),
            Property::Wnuto => cycle::weak(x, self.stuck_correct()),
            Property::Suto => order::strong::strong(x, |_| true),
            Property::Snuto => order::strong::strong(x, |p| x.unfailed[p as usize]),
            Property::FifoOrder => order::fifo::fifo(x),
            Property::ViewSynchrony => order::views::synchrony(x),
            Property::AgreedMulticast => order::components::agreed(x),
            Property::CausalOrder => causal(x, CausalGaps::Forbidden),
            Property::Genuine => delivery::genuine(x, false),
            Property::PartiallyGenuine => delivery::genuine(x, true),
            Property::Linearizable => service::linearizable(x.h, self.budget),
            Property::Sequential => service::sequential(x.h, self.budget),
            Property::ReadYourWrites => service::read_your_writes(x.h),
            Property::ExactlyOnce => service::exactly_once(x.h),
        }
    }

    fn stuck_all(&mut self) -> Option<&StuckMerge> {
        let x = self.x;
        self.all.get_or_insert_with(|| cycle::merge(x, &x.procs().collect::<Vec<_>>())).as_ref()
    }

    fn stuck_correct(&mut self) -> Option<&StuckMerge> {
        let x = self.x;
        let correct = || x.procs().filter(|&p| x.unfailed[p as usize]).collect::<Vec<_>>();
        self.correct.get_or_insert_with(|| cycle::merge(x, &correct())).as_ref()
    }
}
