//! The laboratory's subcommands, a file each, and what all subcommands share.
//!
//! Errors go to standard error and say what to do; the exit code is 2 for misuse and 1 for failure.

pub mod bench;
mod bench_cost;
mod bench_log;
mod bench_recovery;
mod bench_service;
mod bench_ycsb;
pub mod choose;
mod cores;
pub mod reproduce;
pub mod rings;
pub mod sheet;
pub mod sim;
mod unwritten;

pub use unwritten::end_if_unwritten;

use amcast_core::Entry;
use amcast_node::cluster_dir::ClusterDirError;
use std::fmt;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// It was asked wrongly: exit code 2.
    Misuse(String),
    /// It failed: exit code 1.
    Failed(String),
    /// The check failed, and the command has already printed why: exit code 1.
    Said,
}

impl Failure {
    /// It was asked wrongly, in `why`'s words.
    pub fn misuse(why: impl fmt::Display) -> Self {
        Self::Misuse(why.to_string())
    }

    /// It failed, in `why`'s words.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}

impl From<ClusterDirError> for Failure {
    fn from(e: ClusterDirError) -> Self {
        if e.is_misuse() { Self::misuse(e) } else { Self::failed(e) }
    }
}

/// The protocol of that name.
///
/// # Errors
/// When there is none.
pub fn entry(name: &str) -> Result<&'static dyn Entry, Failure> {
    amcast_protocols::catalog::find(name).ok_or_else(|| {
        let all = amcast_protocols::catalog::CATALOG.iter().map(|e| e.name());
        let all: Vec<_> = all.collect();
        Failure::Misuse(format!("no protocol is named {name:?}; there are: {}", all.join(", ")))
    })
}

/// Sees to it that no parameter is given twice: one of the two values would be lost.
///
/// # Errors
/// When one is.
pub fn once_each(set: &[(String, String)]) -> Result<(), Failure> {
    let twice =
        set.iter().enumerate().find(|(i, (name, _))| set[..*i].iter().any(|s| s.0 == *name));
    match twice {
        Some((_, (name, _))) => Err(Failure::Misuse(format!("--set {name} is given twice"))),
        None => Ok(()),
    }
}

/// Reads `name=value`.
///
/// # Errors
/// When it is none.
pub fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_string(), value.to_string())),
        _ => Err("give name=value".to_string()),
    }
}
