//! The properties that protocols promise and the checker decides, by name.

use core::fmt;

macro_rules! properties {
    ($($variant:ident = $name:literal: $doc:literal,)*) => {
        /// A property of a history. Protocols name the ones they promise (`About::promises`); the
        /// checker decides each of them on a recorded run.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Property { $(#[doc = $doc] $variant,)* }

        impl Property {
            /// Every property.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name used on the command line and in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Its meaning, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $doc),* }
            }
        }
    };
}

properties! {
    Validity = "validity": "A message that a correct process multicasts is delivered in the end by every correct process of its destinations. [TRAM 2.2]",
    UniformAgreement = "uniform-agreement": "A message that any process delivers is delivered in the end by every correct process of its destinations. [TRAM 2.2]",
    UniformIntegrity = "uniform-integrity": "A process delivers a message at most once, only if it is in a destination group, and only if the message was multicast. [TRAM 2.2]",
    UniformPrefixOrder = "uniform-prefix-order": "Of two messages with two destination groups in common, two processes of these groups do not each miss the other's one in front of their own. [TRAM 2.2]",
    UniformAcyclicOrder = "uniform-acyclic-order": "The relation 'some process delivers m before m2' over all messages has no cycle. [TRAM 2.2]",
    Genuine = "genuine": "Only the sender and the destinations of a message take part in ordering it. [TRAM 2.3]",
    PartiallyGenuine = "partially-genuine": "A process that is neither sender nor destination takes part only for messages to several groups; where the groups are arranged in a tree, only on its paths from the destinations' lowest common ancestor down to them. [TRAM 2.3, 4]",
    FifoOrder = "fifo-order": "Messages of one sender are delivered in the order in which it sent them; a process may miss some.",
    CausalOrder = "causal-order": "A message is delivered only after every message that causally precedes it and has the same destination.",
    ViewSynchrony = "view-synchrony": "Two processes that go from one view to the same next one deliver the same messages between them, in the same order; one that joined may lack those that came before its state.",
    AgreedMulticast = "agreed-multicast": "Where every component of a partition continues: a message is delivered in one view alone; processes that go from one view to the same next one, or stay in it to the end, deliver the same messages in it in the same order; and a process that delivers two messages delivers the one first that causally precedes the other. [ToTo figure 2, 5.1]",
    Nuv = "NUV": "Non-uniform validity: a message that a correct process broadcasts is delivered in the end by that process. [TO table 1]",
    Ui = "UI": "Uniform integrity: every process delivers a message at most once, and only if it was broadcast. [TO table 1]",
    Ua = "UA": "Uniform agreement: a message delivered by any process is delivered in the end by every correct process. [TO table 1]",
    Nua = "NUA": "Non-uniform agreement: a message delivered by a correct process is delivered in the end by every correct process. [TO table 1]",
    Suto = "SUTO": "Strong uniform total order: if some process delivers m before m2, every process delivers m2 only after it has delivered m. [TO table 1]",
    Snuto = "SNUTO": "Strong non-uniform total order: the same among correct processes. [TO table 1]",
    Wuto = "WUTO": "Weak uniform total order: two processes that both deliver m and m2 deliver them in the same order. [TO table 1]",
    Wnuto = "WNUTO": "Weak non-uniform total order: the same among correct processes. [TO table 1]",
    Linearizable = "linearizable": "Calls take effect one at a time, each between its call and its return. Judged per key where keys are independent, and across shards.",
    Sequential = "sequential": "Calls take effect one at a time in an order that each client's own order agrees with.",
    ReadYourWrites = "read-your-writes": "A client's read sees every write that the same client had acknowledged before it.",
    ExactlyOnce = "exactly-once": "A command that was retried took effect once.",
}

impl Property {
    /// The property of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|p| p.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for &p in Property::ALL {
            assert_eq!(Property::parse(p.name()), Some(p));
        }
        assert_eq!(Property::parse("no such"), None);
    }
}
