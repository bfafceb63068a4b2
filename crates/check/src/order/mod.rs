//! The properties of order, each with its bound.
//!
//! *N* is the number of deliveries, *P* of processes, *G* of groups. A history that has the
//! properties is judged in time N (acyclic, weak total, fifo), N times the groups a message goes
//! to (strong total) or G N (prefix, causal; for causal order as a few instructions on G
//! neighbouring words for each delivery); if it has not, in P N at most, the time of finding a
//! small counterexample included.
pub(crate) mod causal;
pub(crate) mod components;
pub(crate) mod cycle;
pub(crate) mod fifo;
pub(crate) mod prefix;
pub(crate) mod strong;
pub(crate) mod views;
