//! JGroups: a Java machine for each member.

use super::build::{self, RivalSource};
use super::{AbsentRival, RivalGroup};
use crate::bench::bursts::{BurstMedium, MEMBERS};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

const SOURCES: [RivalSource; 4] = [
    ("pom.xml", include_str!("../../../../../rivals/jgroups/pom.xml")),
    ("tcp.xml", include_str!("../../../../../rivals/jgroups/tcp.xml")),
    ("udp.xml", include_str!("../../../../../rivals/jgroups/udp.xml")),
    (
        "src/main/java/Bursts.java",
        include_str!("../../../../../rivals/jgroups/src/main/java/Bursts.java"),
    ),
];

/// The first member founds the group; the others find it there.
const FOUNDING: Duration = Duration::from_millis(1_500);

/// Starts a group's processes.
pub(super) fn start(wire: BurstMedium) -> Result<RivalGroup, AbsentRival> {
    build::run(Command::new("java").arg("-version"), build::JAVA)?;
    let dir = build::built("jgroups", &SOURCES, build::with_maven)?;
    let failed = |e: io::Error| AbsentRival(format!("JGroups: {e}"));
    let port = ports().map_err(failed)?;
    let mut group = RivalGroup::new(1, None);
    for me in 0..MEMBERS {
        let log = dir.join(format!("{}-{me}.log", wire.name()));
        let log = File::create(log).map_err(failed)?;
        let mut command = Command::new("java");
        command
            .current_dir(&dir)
            .args(["-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"])
            .arg(format!("-Damcast.port={port}"))
            .args(["-cp", "target/classes:target/lib/*", "Bursts"])
            .args([format!("{}.xml", wire.name()), me.to_string(), MEMBERS.to_string()])
            .stderr(Stdio::from(log));
        group.add(&mut command).map_err(AbsentRival)?;
        if me == 0 {
            std::thread::sleep(FOUNDING);
        }
    }
    Ok(group)
}

/// The first of some ports in a row that are free, most likely still a moment later.
fn ports() -> io::Result<u16> {
    loop {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let is_free = |n: usize| {
            let port = usize::from(first) + n;
            let port = u16::try_from(port).map_err(io::Error::other)?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        };
        if (0..MEMBERS).all(|n| is_free(n).is_ok()) {
            return Ok(first);
        }
    }
}
