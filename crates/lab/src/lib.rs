//! The laboratory: what measures, compares, simulates and chooses protocols, and makes the papers' tables and figures.
//!
//! Nodes do not need it. The program `amcast` has its subcommands from [`commands`]; what they measure is in [`mod@bench`].
//!
//! The three types to know are [`bench::BenchPlan`] (what is measured), [`bench::BenchResult`] (what came out, with the properties that
//! were judged afterwards) and [`commands::Failure`] (how every subcommand ends that does not succeed).
//!
//! Read `bench/mod.rs`, `bench/shared.rs` (over shared memory) and `bench/wire/mod.rs` (over networks), then
//! `commands/sim/mod.rs` (the simulator from the command line) and `commands/reproduce/mod.rs` (tables and figures).

pub mod bench;
pub mod commands;
