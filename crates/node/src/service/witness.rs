//! Notes what a service executes where the runtime keeps that.

use crate::executing::Executing;
use amcast_core::SkipDecision;
use amcast_smr::{Doing, Witness};
use std::sync::Arc;

/// The notes of a node, as its executor writes them.
pub(super) struct Notes(pub(super) Arc<Executing>);

impl Witness for Notes {
    fn begins(&self, slot: usize, doing: &Doing<'_>) {
        let Doing { id: msg, dst, place, command } = *doing;
        let place = SkipDecision { msg, group: place.shard, position: place.position };
        self.0.begins(slot, &place, dst, command);
    }

    fn ends(&self, slot: usize) {
        self.0.ends(slot);
    }
}
