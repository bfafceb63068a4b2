//! The peers that refuse this node, and whether they leave it no majority.
//!
//! A peer that refuses the node may dial it, and learns only from the answer which start of the node it has reached: for
//! that moment the two are connected. So a connection does not end a refusal. It ends when the peer has not repeated it
//! for some time.

use crate::config::node_name;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a refusal counts after it was heard last. A refused node dials again within a second, also one that is behind a
/// slow network.
const COUNTS_FOR: Duration = Duration::from_secs(10);

/// The refusals of this node by its peers, each with its time and the latest incarnation of this node that the peer knows, by rank.
#[derive(Debug, Default)]
pub(crate) struct PeerRefusals(BTreeMap<usize, (Instant, u32)>);

/// So many peers refuse this node that it has no majority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeRefusal {
    /// The ranks of the peers that refuse it.
    pub(crate) by: Vec<usize>,
    /// The latest incarnation of it that they know.
    pub(crate) life: u32,
}

impl PeerRefusals {
    /// The peer `by` refuses this node, and knows the incarnation `life` of it.
    pub(crate) fn hear(&mut self, by: usize, life: u32, now: Instant) {
        self.0.insert(by, (now, life));
    }

    /// Whether the peer `by` refused this node lately.
    pub(crate) fn counts(&self, by: usize, now: Instant) -> bool {
        self.0.get(&by).is_some_and(|(at, _)| now < *at + COUNTS_FOR)
    }

    /// The refusal of this node, one of `nodes`, if the peers that refuse it leave fewer than `quorum`. Quick where none does.
    pub(crate) fn by_majority(&self, nodes: usize, quorum: usize) -> Option<NodeRefusal> {
        if nodes - self.0.len().min(nodes) >= quorum {
            return None;
        }
        let now = Instant::now();
        let by: Vec<usize> = self.0.keys().copied().filter(|by| self.counts(*by, now)).collect();
        let life = by.iter().map(|by| self.0[by].1).max()?;
        (nodes - by.len() < quorum).then_some(NodeRefusal { by, life })
    }
}

impl NodeRefusal {
    /// Why the node `name` in its incarnation `own`, which keeps no data, does not work, and the remedy; `file` counts its
    /// incarnations.
    pub(crate) fn describe(&self, name: &str, own: u32, file: Option<&Path>) -> String {
        let by: Vec<_> = self.by.iter().map(|&rank| node_name(rank)).collect();
        let verb = if by.len() == 1 { "refuses" } else { "refuse" };
        let Self { life, .. } = self;
        let file = file.map_or_else(|| format!("{name}.life"), |file| file.display().to_string());
        format!(
            "{} {verb} {name}: another start of it is known, in life {life}, and this one is in life {own}. Another process \
             of {name} runs, or {file}, which counts its lives, was lost. {}",
            by.join(" and "),
            begin_later_words(name, *life, &file)
        )
    }
}

/// The remedy where a node that keeps no data has lost the file that counts its incarnations, of which `life` is known.
pub(crate) fn begin_later_words(name: &str, life: u32, file: &str) -> String {
    format!(
        "If no other process of {name} runs, write {} into {file} and end the refused one, so that {name} begins anew \
         when it is started again",
        life.saturating_add(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_refused_as_long_as_its_peers_leave_it_no_majority() {
        let (now, mut refusals) = (Instant::now(), PeerRefusals::default());
        assert_eq!(refusals.by_majority(3, 2), None);
        refusals.hear(0, 4, now);
        assert_eq!(refusals.by_majority(3, 2), None, "n2 may take it in");
        refusals.hear(2, 7, now);
        let refusal = NodeRefusal { by: vec![0, 2], life: 7 };
        assert_eq!(refusals.by_majority(3, 2), Some(refusal.clone()));
        assert_eq!(refusals.by_majority(5, 3), None);
        let told = refusal.describe("n1", 0, Some(Path::new("d/n1.life")));
        let begins = "n0 and n2 refuse n1: another start of it is known, in life 7, and this one is in life 0. ";
        assert!(told.starts_with(begins), "{told}");
        assert!(told.contains("write 8 into d/n1.life and end the refused one"), "{told}");
        // One of them has not refused it for long.
        let Some(long_ago) = now.checked_sub(COUNTS_FOR) else { return };
        refusals.hear(2, 7, long_ago);
        assert!(refusals.counts(0, now) && !refusals.counts(2, now));
        assert_eq!(refusals.by_majority(3, 2), None);
    }
}
