//! Which of the protocols the tests over all of them are run for.

/// Names the protocol that tests over all protocols are run for, in the environment; all if it is not set.
pub const PROTOCOL: &str = "AMCAST_PROTOCOL";

/// Whether tests over all protocols are to be run for the protocol of that name.
pub fn protocol_is_tested(name: &str) -> bool {
    std::env::var(PROTOCOL).map_or(true, |only| only == name)
}
