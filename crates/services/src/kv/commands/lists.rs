//! Stub.
use super::super::registry::Command;
pub(crate) const COMMANDS: &[Command] = &[];
