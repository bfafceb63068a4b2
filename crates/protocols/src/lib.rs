//! The protocols: each orders messages over groups of processes, as a step machine that sees no
//! socket, file, clock, thread or random source.
//!
//! The three types to know are [`Entry`](amcast_core::Entry) (the declarations of a protocol), [`Protocol`](amcast_core::step::Protocol)
//! (one process of it) and [`MutantInfo`](mutant::MutantInfo) (a protocol that is broken on purpose).
//!
//! [`catalog`] lists them all and is where a driver starts. A protocol is one folder and one line
//! there, which also declares its module; the module's doc says what it orders and promises, what it assumes, and where it departs
//! from its paper. [`layers`] holds the parts that protocols share. [`mutant`] declares protocols
//! that are broken on purpose, so that checkers can be seen to fail. [`trial`] draws configurations to
//! try them in.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[macro_use]
pub mod catalog;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod layers;
pub mod mutant;
pub mod trial;

macro_rules! modules {
    ($(mod $module:ident: $($entry:ident => $($mutants:ident)::+),+;)+) => {
        $(pub mod $module;)+
    };
}
protocols!(modules);
