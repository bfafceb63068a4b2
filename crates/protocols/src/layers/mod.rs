//! Parts that several protocols are built from. Each is as pure as the protocols themselves: it
//! takes the time and observations, and returns answers.

pub(crate) mod batch;
pub(crate) mod causal;
pub(crate) mod compact;
pub(crate) mod delivery;
pub mod failure_detector;
pub(crate) mod group_entry;
pub(crate) mod join_state;
pub(crate) mod multicast_slots;
pub(crate) mod outgoing;
pub(crate) mod paced;
pub mod routing;
pub mod vsync;
