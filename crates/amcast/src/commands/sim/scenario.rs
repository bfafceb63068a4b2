//! Scenarios.

use super::Args;
use crate::commands::Failure;
use std::path::Path;

pub(super) fn run(_args: &Args, _path: &Path) -> Result<(), Failure> {
    Err(Failure::Misuse("no".into()))
}
