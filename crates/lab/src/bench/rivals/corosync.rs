//! corosync: a daemon for each member, all of them in namespaces of their own.

use super::build::{self, RivalSource};
use super::{AbsentRival, RivalGroup};
use crate::bench::bursts::{MEMBERS, PAYLOAD_BYTES};
use crate::bench::scratch_dir::ScratchDir;
use std::path::Path;
use std::process::Command;

const INSTALL: &str = "apt install corosync libcpg-dev gcc iproute2";

const SOURCES: [RivalSource; 1] =
    [("bursts.c", include_str!("../../../../../rivals/corosync/bursts.c"))];

fn make(dir: &Path) -> Result<(), AbsentRival> {
    let arguments = ["-O2", "-o", "bursts", "bursts.c", "-lcpg"];
    build::run(Command::new("cc").current_dir(dir).args(arguments), INSTALL)
}

/// Starts a group: one process starts all members.
pub(super) fn start() -> Result<RivalGroup, AbsentRival> {
    build::run(Command::new("corosync").arg("-v"), INSTALL)?;
    if !rustix::process::geteuid().is_root() {
        let why = "corosync: four of them on one machine need namespaces: run this as root";
        return Err(AbsentRival(why.to_string()));
    }
    let dir = build::built("corosync", &SOURCES, make)?;
    let directory = ScratchDir::temporary("corosync").map_err(AbsentRival)?;
    let mut command = Command::new(dir.join("bursts"));
    command.arg(directory.path()).args([MEMBERS, PAYLOAD_BYTES].map(|n| n.to_string()));
    let mut group = RivalGroup::new(MEMBERS, Some(directory));
    group.add(&mut command).map_err(AbsentRival)?;
    Ok(group)
}
