//! Rules that tests keep to on every machine: how long one may take, and which may be skipped.
//!
//! [`time_limit`] ends a test that hangs, with its name. [`skip`] ends a test whose needs the machine
//! does not meet; where CI names a list of permitted skips ([`SKIPS`]), any other skip is a failure.
//! [`protocol_is_tested`] runs tests that go through the catalog for one protocol.
//! Tests use all of it as development dependencies; `cargo xtask tidy` finds those that have neither a
//! limit nor a permitted skip and should. Tests of the pure crates (core, protocols, check, sim) need no limit: their code has no
//! sockets, threads, processes or clocks, so nothing in them waits.

mod limit;
mod only;
mod skips;

pub use limit::{LIMIT_S, TimeLimit, time_limit, time_limit_of};
pub use only::{PROTOCOL, protocol_is_tested};
pub use skips::{PermittedSkips, SKIPS, skip};
