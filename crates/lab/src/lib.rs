//! The laboratory: what measures, compares, simulates and chooses protocols, and makes the papers' tables and figures.
//!
//! Nodes do not need it. The program `amcast` has its subcommands from [`commands`]; what they measure is in [`bench`].

pub mod bench;
pub mod commands;
