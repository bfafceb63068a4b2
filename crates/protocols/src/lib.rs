//! The protocols: each orders messages over groups of processes, as a step machine that sees no
//! socket, file, clock, thread or random source.
//!
//! [`catalog`] lists them all and is where a driver starts. A protocol is one module and one line
//! there; its module's doc says what it orders and promises, what it assumes, and where it departs
//! from its paper. [`layers`] holds the parts that protocols share. [`mutant`] declares protocols
//! that are broken on purpose, so that checkers can be seen to fail. [`trial`] draws configurations to
//! try them in.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod catalog;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod layers;
pub mod multiring;
pub mod mutant;
pub mod skeen;
pub mod total;
pub mod tram;
pub mod trial;
