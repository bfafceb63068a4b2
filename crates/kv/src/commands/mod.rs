//! The commands, a file per family. A new command is one entry in its family's list; a new family
//! is one line here.

pub(crate) mod bits;
pub mod blocking;
pub(crate) mod common_subsequence;
pub(crate) mod connection;
pub(crate) mod hashes;
pub(crate) mod hyperloglog;
mod info;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod memory;
pub mod partitions;
pub(crate) mod scan;
pub mod server;
pub(crate) mod sets;
pub(crate) mod sort;
pub(crate) mod sorted_algebra;
pub(crate) mod sorted_ranges;
pub(crate) mod sorted_sets;
pub(crate) mod strings;
mod subcommands;
pub mod transactions;
pub(crate) mod watching;

use super::registry::CommandSpec;

/// Each family with its name as `COMMAND DOCS` shows it.
pub(crate) static FAMILIES: &[(&str, &[CommandSpec])] = &[
    ("string", strings::COMMANDS),
    ("string", common_subsequence::COMMANDS),
    ("bitmap", bits::COMMANDS),
    ("hyperloglog", hyperloglog::COMMANDS),
    ("generic", keys::COMMANDS),
    ("generic", scan::COMMANDS),
    ("generic", sort::COMMANDS),
    ("hash", hashes::COMMANDS),
    ("list", lists::COMMANDS),
    ("list", blocking::COMMANDS),
    ("set", sets::COMMANDS),
    ("sorted-set", sorted_sets::COMMANDS),
    ("sorted-set", sorted_ranges::COMMANDS),
    ("sorted-set", sorted_algebra::COMMANDS),
    ("sorted-set", blocking::SORTED_COMMANDS),
    ("transactions", transactions::COMMANDS),
    ("connection", connection::COMMANDS),
    ("server", server::COMMANDS),
    ("server", watching::COMMANDS),
    ("server", partitions::COMMANDS),
    ("server", memory::COMMANDS),
];
