//! The state machine of shopping carts, which can be reconciled: a cart is used in every component of a partition, and when
//! components merge nothing that was added in any of them is lost.
//!
//! Each addition has a tag of its own, and a removal removes the tags that it sees. Two states merge by the union of what
//! was added and of what was removed. So of an addition and a removal of the same item in two components the addition wins: a
//! customer rather finds an item again than misses one.

use amcast::core::{Gid, GroupSet, Outcome};
use amcast::smr::{KeyUse, Reconciler, Shard, ShardView, StateMachine};
use std::collections::{BTreeMap, BTreeSet};

/// A command of a customer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CartOrder {
    /// Puts an item into a cart; the tag is that of this addition alone.
    Add { cart: u32, item: u32, tag: u64 },
    /// Takes all of an item out of a cart.
    Remove { cart: u32, item: u32 },
}

impl CartOrder {
    /// Numbers of four bytes, and the tag of an addition.
    pub(crate) fn encode(self) -> Vec<u8> {
        let (cart, item, tag) = match self {
            Self::Add { cart, item, tag } => (cart, item, Some(tag)),
            Self::Remove { cart, item } => (cart, item, None),
        };
        let mut bytes = [cart.to_le_bytes(), item.to_le_bytes()].concat();
        bytes.extend(tag.into_iter().flat_map(u64::to_le_bytes));
        bytes
    }

    /// The order that these bytes are, if they are one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (cart, rest) = bytes.split_first_chunk()?;
        let (item, tag) = rest.split_first_chunk()?;
        let (cart, item) = (u32::from_le_bytes(*cart), u32::from_le_bytes(*item));
        match tag {
            [] => Some(Self::Remove { cart, item }),
            tag => Some(Self::Add { cart, item, tag: u64::from_le_bytes(tag.try_into().ok()?) }),
        }
    }
}

/// Additions that the carts hold at most, those that were removed included: more are declined. Components that merge may
/// hold as many as they have together.
const ADDITIONS_MAX: usize = 100_000;

/// The state machine.
#[derive(Debug, Default)]
pub(crate) struct Carts;

/// All carts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CartState {
    /// By cart and item: the additions.
    added: BTreeMap<(u32, u32), BTreeSet<u64>>,
    /// The additions that were removed.
    removed: BTreeSet<u64>,
}

impl CartState {
    /// How many of each item are in a cart.
    pub(crate) fn items_of(&self, cart: u32) -> BTreeMap<u32, usize> {
        let of_cart = self.added.range((cart, 0)..=(cart, u32::MAX));
        let left = |tags: &BTreeSet<u64>| tags.difference(&self.removed).count();
        let counts = of_cart.map(|(&(_, item), tags)| (item, left(tags)));
        counts.filter(|&(_, count)| count > 0).collect()
    }

    /// Whether this addition was made here, or in a state that was merged, also if it was removed since.
    pub(crate) fn knows(&self, tag: u64) -> bool {
        self.added.values().any(|tags| tags.contains(&tag))
    }

    /// Adds what is in another state.
    fn merge(&mut self, other: &Self) {
        for (place, tags) in &other.added {
            self.added.entry(*place).or_default().extend(tags);
        }
        self.removed.extend(&other.removed);
    }
}

impl Shard for CartState {
    fn items(&self) -> usize {
        self.added.values().map(BTreeSet::len).sum()
    }

    /// Each addition with its place, and whether it was removed.
    fn save(&self, to: &mut Vec<u8>) {
        for ((cart, item), tags) in &self.added {
            for tag in tags {
                to.extend(cart.to_le_bytes());
                to.extend(item.to_le_bytes());
                to.extend(tag.to_le_bytes());
                to.push(u8::from(self.removed.contains(tag)));
            }
        }
    }

    fn load(from: &[u8]) -> Option<Self> {
        let mut state = Self::default();
        for entry in from.chunks(17) {
            let (order, removed) = entry.split_at_checked(16)?;
            let CartOrder::Add { cart, item, tag } = CartOrder::decode(order)? else { return None };
            state.added.entry((cart, item)).or_default().insert(tag);
            if *removed == [1] {
                state.removed.insert(tag);
            }
        }
        Some(state)
    }
}

impl StateMachine for Carts {
    type Shard = CartState;

    fn touches(
        &self,
        command: &[u8],
        shards: GroupSet,
        key: &mut dyn FnMut(Gid, &[u8], KeyUse),
    ) -> bool {
        let Some(CartOrder::Add { cart, .. } | CartOrder::Remove { cart, .. }) =
            CartOrder::decode(command)
        else {
            return true;
        };
        shards.iter().for_each(|shard| key(shard, &cart.to_le_bytes(), KeyUse::Writes));
        true
    }

    /// The answer is how many items are in the cart then.
    fn apply(
        &self,
        command: &[u8],
        shards: &mut [ShardView<'_, CartState>],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        let (Some(order), [shard, ..]) = (CartOrder::decode(command), shards) else {
            return Outcome::NotExecuted;
        };
        let state = &mut *shard.data;
        let cart = match order {
            CartOrder::Add { .. } if state.items() >= ADDITIONS_MAX => return Outcome::NotExecuted,
            CartOrder::Add { cart, item, tag } => {
                state.added.entry((cart, item)).or_default().insert(tag);
                cart
            }
            CartOrder::Remove { cart, item } => {
                state.removed.extend(state.added.get(&(cart, item)).into_iter().flatten());
                cart
            }
        };
        let count: usize = state.items_of(cart).values().sum();
        answer.extend((count as u64).to_le_bytes());
        Outcome::Executed
    }

    fn reconciler(&self) -> Option<Reconciler<CartState>> {
        Some(CartState::merge)
    }
}
