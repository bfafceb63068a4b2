//! Rules that tests keep to on every machine: how long one may take, and which may be skipped.
//!
//! [`time_limit`] ends a test that hangs, with its name. [`skip`] ends a test whose needs the machine
//! does not meet; where CI names a list of permitted skips ([`SKIPS`]), any other skip is a failure.
//! Tests use both as development dependencies; `cargo xtask tidy` finds those that use neither and
//! should. Tests of the pure crates (core, protocols, check, sim) need no limit: their code has no
//! sockets, threads, processes or clocks, so nothing in them waits.

mod limit;
mod skips;

pub use limit::{LIMIT_S, TimeLimit, time_limit, time_limit_of};
pub use skips::{SKIPS, Skips, skip};
