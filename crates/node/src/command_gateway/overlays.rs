//! Changes of the tree of the groups: requests of other threads go to the gateway's process of the protocol, and its
//! commands wait in lines of the tree that this process knows.

use super::{CommandGateway, GatewayLoop};
use crate::overlay_changes::OverlayStatus;
use amcast_core::{Config, Entry, Overlay, Time};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Requests that the loop has not taken yet, at most; more are refused.
const REQUESTS_MAX: usize = 16;

/// Why a gateway does not ask for another tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OverlayRefusal {
    /// The tree of this cluster stays as it is.
    Fixed,
    /// The tree is over another number of groups.
    Groups {
        /// Groups of the tree.
        given: usize,
        /// Groups of the cluster.
        groups: usize,
    },
    /// Another change came first: this tree is in force.
    Overtaken(OverlayStatus),
    /// This gateway knows only the tree of this number yet.
    Behind(u32),
    /// Other requests wait, or the gateway stops.
    Busy,
}

impl OverlayRefusal {
    /// Whether the same may succeed soon.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(self, Self::Behind(_) | Self::Busy)
    }
}

impl fmt::Display for OverlayRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("the tree of this cluster cannot be changed"),
            Self::Groups { given, groups } => {
                write!(f, "the tree is over {given} groups, and the cluster has {groups}")
            }
            Self::Overtaken(OverlayStatus { number, parents }) => {
                write!(f, "another change came first: in force is {parents} (change {number})")
            }
            Self::Behind(number) => write!(
                f,
                "the gateway of this node does not know the tree in force yet, and goes by the one after {number} changes"
            ),
            Self::Busy => f.write_str("the gateway of this node is busy or stops: ask again"),
        }
    }
}

impl std::error::Error for OverlayRefusal {}

/// Trees that were asked for, on their way to the loop.
#[derive(Default)]
pub(super) struct OverlayRequests {
    /// Over how many groups; none where the tree stays.
    groups: Option<usize>,
    /// Whether there are any: the loop looks at this alone in each round, and at the lock seldom.
    are_there: AtomicBool,
    trees: Mutex<RequestedTrees>,
}

/// The trees that the loop has not taken yet, and the one that they are to follow.
#[derive(Default)]
struct RequestedTrees {
    /// The tree that the loop knows; none is needed of the first, behind which no change comes too late.
    known: Option<OverlayStatus>,
    /// Each with the number of the tree that it is to follow.
    wanted: Vec<(u32, Overlay)>,
}

impl OverlayRequests {
    pub(super) fn of(entry: &dyn Entry, config: &Config) -> Self {
        let groups = entry.has_dynamic_overlay(config).then(|| config.cluster().groups());
        Self { groups, ..Self::default() }
    }

    fn trees(&self) -> MutexGuard<'_, RequestedTrees> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop goes by this tree from now on.
    fn follow(&self, tree: OverlayStatus) {
        self.trees().known = Some(tree);
    }

    fn put(&self, behind: u32, to: Overlay) -> Result<(), OverlayRefusal> {
        let groups = self.groups.ok_or(OverlayRefusal::Fixed)?;
        if to.groups() != groups {
            return Err(OverlayRefusal::Groups { given: to.groups(), groups });
        }
        let mut trees = self.trees();
        let number = trees.known.as_ref().map_or(0, |known| known.number);
        if behind > number {
            return Err(OverlayRefusal::Behind(number));
        }
        if let Some(known) = trees.known.as_ref().filter(|_| behind < number) {
            return Err(OverlayRefusal::Overtaken(known.clone()));
        }
        if trees.wanted.len() >= REQUESTS_MAX {
            return Err(OverlayRefusal::Busy);
        }
        trees.wanted.push((behind, to));
        self.are_there.store(true, Ordering::Release);
        Ok(())
    }

    fn take(&self) -> Vec<(u32, Overlay)> {
        match self.are_there.swap(false, Ordering::AcqRel) {
            true => std::mem::take(&mut self.trees().wanted),
            false => Vec::new(),
        }
    }
}

/// The tree whose lowest common ancestors name the lines in which commands wait.
pub(super) struct PresentOverlay {
    number: u32,
    pub(super) tree: Overlay,
}

impl PresentOverlay {
    /// The one that the cluster begins with.
    pub(super) fn first(config: &Config) -> Self {
        Self { number: 0, tree: config.overlay().clone() }
    }
}

impl CommandGateway {
    /// Has the protocol change the tree of the groups, behind the one of number `behind`: if another change comes first this
    /// one is given up. Returns at once: the change is a message to all groups, and takes effect in each when that is
    /// delivered there.
    ///
    /// # Errors
    /// When the tree cannot be changed, is over another number of groups, is not the one of that number here, or the gateway
    /// takes no requests now.
    pub fn change_overlay(&self, behind: u32, to: Overlay) -> Result<(), OverlayRefusal> {
        if !self.is_serving() {
            return Err(OverlayRefusal::Busy);
        }
        self.shared.overlays.put(behind, to)?;
        self.flush();
        Ok(())
    }
}

impl GatewayLoop {
    /// Asks for the trees that others want, and follows the tree in force. Says whether there was anything to do.
    pub(super) fn follow_overlay(&mut self, now: Time) -> bool {
        let asked = self.shared.overlays.take();
        for (behind, to) in &asked {
            // Between the request and this another change may come.
            if self.transport.overlay().is_some_and(|(number, _)| number == *behind) {
                self.transport.change_overlay(now, to);
            }
        }
        let Some((number, tree)) = self.transport.overlay() else { return !asked.is_empty() };
        if number == self.overlay.number {
            return !asked.is_empty();
        }
        self.shared.overlays.follow(OverlayStatus::of((number, tree)));
        self.overlay = PresentOverlay { number, tree: tree.clone() };
        // Commands for one group alone wait in its own line in every tree, so they keep their order.
        let mut jobs = self.waiting.take_all(|_| true);
        // In each line the oldest is the first: its patience is over first.
        jobs.sort_by_key(|job| job.since);
        for job in jobs {
            self.waiting.push(self.overlay.tree.lca(job.dst), job);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::RawConfig;
    use amcast_protocols::catalog;

    fn requests(protocol: &str, dynamic: Option<&str>) -> OverlayRequests {
        let entry = catalog::find(protocol).expect("it is in the catalog");
        let set = dynamic.map(|value| ("dynamic_overlay".to_string(), value.to_string()));
        let raw = RawConfig { groups: 3, set: set.into_iter().collect(), ..RawConfig::default() };
        OverlayRequests::of(entry, &raw.check(entry.about().params).expect("it is sound"))
    }

    #[test]
    fn trees_are_taken_where_they_may_change_and_fit_and_no_more_than_may_wait() {
        let tree = |groups| Overlay::depth(groups);
        for entry in catalog::CATALOG {
            let fixed = requests(entry.name(), None);
            assert_eq!(fixed.put(0, tree(3)), Err(OverlayRefusal::Fixed), "{}", entry.name());
        }
        let able = |entry: &&&dyn Entry| {
            entry.about().params.iter().any(|param| param.name == "dynamic_overlay")
        };
        let able = catalog::CATALOG.iter().find(able).expect("one has such trees").name();
        let requests = requests(able, Some("1"));
        let wrong = OverlayRefusal::Groups { given: 2, groups: 3 };
        assert_eq!(requests.put(0, tree(2)), Err(wrong));
        assert_eq!(requests.take(), []);
        for _ in 0..REQUESTS_MAX {
            assert_eq!(requests.put(0, tree(3)), Ok(()));
        }
        assert_eq!(requests.put(0, tree(3)), Err(OverlayRefusal::Busy));
        assert_eq!(requests.take().len(), REQUESTS_MAX);
        assert_eq!(requests.put(1, tree(3)), Err(OverlayRefusal::Behind(0)));
        let second = OverlayStatus { number: 2, parents: "2,2,-1".to_string() };
        requests.follow(second.clone());
        let overtaken = OverlayRefusal::Overtaken(second);
        assert_eq!(requests.put(1, tree(3)), Err(overtaken.clone()));
        assert!(overtaken.to_string().contains("in force is 2,2,-1"), "{overtaken}");
        assert_eq!(requests.put(2, tree(3)), Ok(()));
        assert_eq!(requests.take(), [(2, tree(3))]);
        assert_eq!(requests.take(), [], "each is taken once");
    }
}
