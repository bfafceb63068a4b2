//! The tests that every protocol of the catalog must pass in the simulator, derived from its entry
//! alone.
//!
//! [`judged`] makes runs and judges them. `promises`: each promise is kept under every fault that the entry does not
//! assume away. `mutants`: each promise is seen broken by a mutant, and each mutant is found. `replay`: the same seed,
//! and the record of a run, give the same run. `scenarios`: a scenario that is written from the entry is played alike
//! each time, and changes with a mutant. With `AMCAST_PROTOCOL` in the environment only that protocol is tested, and
//! `AMCAST_SEEDS` says how many seeds.
//!
//! Further tests of one family of protocols (rare branches, scenarios, explorations) are in a suite
//! of its own beside this one, or in the folder of the protocol.

mod judged;
mod mutants;
mod promises;
mod replay;
mod scenarios;
