//! The project's own tools: what `cargo xtask` does, and what two ordinary tests of this crate
//! check on every `cargo test`.
//!
//! [`tidy`] holds the rules of style and structure, each with its reason and with a sample that breaks it.
//! [`papers`] ties every step of an algorithm to code and tests. [`source`] reads the tree for
//! both. [`commits`] judges the subjects of the last commits. [`licences`], [`advisories`], [`no_os`], [`rdma`] and
//! [`steps`] are commands.

pub mod advisories;
pub mod commits;
pub mod licences;
pub mod no_os;
pub mod papers;
pub mod rdma;
pub mod scan;
pub mod source;
pub mod steps;
pub mod tidy;
pub mod torture;
