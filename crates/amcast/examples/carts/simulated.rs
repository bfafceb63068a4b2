//! Nodes of the shopping carts in the simulator: customers at every node, also at one that hears no other node.

use crate::machine::{CartOrder, CartState, Carts};
use amcast::core::rng::Rng;
use amcast::core::{Entry, Outcome, Span};
use amcast::sim::{Profile, RunSettings};
use amcast::simulate::components::{
    ComponentRun, ComponentSettings, ComponentWorkload, run_components,
};
use std::collections::{BTreeMap, BTreeSet};

/// Carts, and items in each.
const CARTS: u64 = 3;

/// The customers, and what they know.
#[derive(Debug, Default)]
pub(crate) struct Customers {
    tags: u64,
    /// By node: additions that it executed for its own customers in its present life.
    kept: BTreeMap<usize, BTreeSet<u64>>,
}

impl Customers {
    /// Additions that a node executed that has lived on since.
    pub(crate) fn kept(&self) -> impl Iterator<Item = u64> + '_ {
        self.kept.values().flatten().copied()
    }
}

impl ComponentWorkload for Customers {
    type Machine = Carts;

    fn next(&mut self, _rank: usize, rng: &mut Rng) -> Vec<u8> {
        let (cart, item) = (rng.below(CARTS) as u32, rng.below(CARTS) as u32);
        let order = match rng.below(4) {
            0 => CartOrder::Remove { cart, item },
            _ => {
                self.tags += 1;
                CartOrder::Add { cart, item, tag: self.tags }
            }
        };
        order.encode()
    }

    fn answered(&mut self, rank: usize, command: &[u8], outcome: Outcome, _answer: &[u8]) {
        if outcome == Outcome::Executed
            && let Some(CartOrder::Add { tag, .. }) = CartOrder::decode(command)
        {
            self.kept.entry(rank).or_default().insert(tag);
        }
    }

    fn crashed(&mut self, rank: usize) {
        self.kept.remove(&rank);
    }
}

/// Runs the carts above a protocol, on so many nodes.
///
/// # Errors
/// When the protocol is none for them, or has no cluster of that shape.
pub(crate) fn run(
    entry: &dyn Entry,
    replicas: usize,
    profile: Profile,
    seed: u64,
) -> Result<ComponentRun<Customers>, String> {
    let settings = ComponentSettings { replicas, ..ComponentSettings::default() };
    let run = RunSettings { settle: Span::secs(60), ..RunSettings::with(profile) };
    run_components(entry, (&settings, &run), seed, &Customers::default)
}

/// How many of each item are in each cart.
pub(crate) fn contents(state: &CartState) -> BTreeMap<u32, BTreeMap<u32, usize>> {
    (0..CARTS as u32).map(|cart| (cart, state.items_of(cart))).collect()
}
