//! The laws of [`amcast_core::Protocol::step`], for every protocol of the catalog.
//!
//! Each law is watched from between protocol and simulator ([`watched`]), in ordinary runs under all
//! faults. `same`: a second process that is given the same inputs says the same, and `now` never goes
//! back. `bounded`: a step does a bounded amount of work, and in the steady state allocates nothing.
//! `hostile`: a step never panics, with any bytes of peers in messages and memory.
//!
//! All of it is bounded, so that a protocol that is added to the catalog cannot make it run for an
//! hour: each test has a fixed number of seeds ([`bounded::SEEDS`], [`hostile::SEEDS`],
//! [`same::SEEDS`]), and a run at most [`watched::EVENTS_MAX`] events. Events are counted and not
//! seconds: what is tried is the same on every machine.

mod bounded;
mod hostile;
mod same;
mod watched;
