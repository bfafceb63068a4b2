//! How many connections the ports of a process may have, as far as the system lets it have open files.
//!
//! A process that has as many files open as it may cannot write its logs and checkpoints either,
//! and ends. So each port has a share of the allowed files, and some are reserved for all other
//! uses, however many clients connect.

use rustix::process::{Resource, getrlimit, setrlimit};
use std::sync::Once;

/// A port, by how much it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GatewayPort {
    /// Commands of Redis clients.
    Redis,
    /// The log service.
    Log,
    /// Pages for monitoring.
    Pages,
}

impl GatewayPort {
    /// Its part of the files that are left, in sixteenths: together with those of the other ports less than all.
    const fn sixteenths(self) -> u64 {
        match self {
            Self::Redis => 12,
            Self::Log => 2,
            Self::Pages => 1,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis clients",
            Self::Log => "clients of the log",
            Self::Pages => "readers of pages",
        }
    }
}

/// Files that a process has open beside connections of clients: logs, checkpoints, connections of other nodes and of
/// tools. About; half of all where fewer are allowed.
const OTHER_FILES: u64 = 256;

/// How many connections a port may have where the process may have so many files open.
const fn room(port: GatewayPort, files: u64) -> u64 {
    let others = if files / 2 < OTHER_FILES { files / 2 } else { OTHER_FILES };
    let room = (files - others) / 16 * port.sixteenths();
    if room == 0 { 1 } else { room }
}

/// Lets the process have as many files open as the system allows; how many connections a port may have then, which
/// wants so many. It says so where these are fewer.
pub fn connections(port: GatewayPort, want: usize) -> usize {
    static RAISED: Once = Once::new();
    RAISED.call_once(|| {
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current != limit.maximum {
            limit.current = limit.maximum;
            if let Err(e) = setrlimit(Resource::Nofile, limit) {
                tracing::warn!("the limit of open files cannot be raised: {e}");
            }
        }
    });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = usize::try_from(room(port, files)).unwrap_or(usize::MAX);
    if room < want {
        tracing::warn!(
            "a process may have {files} files open here, so at most {room} connections of {} are served at a time \
             instead of {want}: raise the hard limit (`ulimit -Hn`, or LimitNOFILE of systemd)",
            port.name()
        );
    }
    room.min(want)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: [GatewayPort; 3] = [GatewayPort::Redis, GatewayPort::Log, GatewayPort::Pages];

    #[test]
    fn all_ports_together_leave_files_for_the_rest() {
        for files in [8, 64, 256, 1024, 4096, 1 << 20, u64::MAX] {
            let ports: u64 = PORTS.iter().map(|port| room(*port, files)).sum();
            let left = files - ports;
            assert!(left >= (files / 2).min(OTHER_FILES), "{left} of {files}");
        }
        // The usual limit of a shell.
        assert_eq!(PORTS.map(|port| room(port, 1024)), [576, 96, 48]);
        // More than any of them wants.
        assert!(
            room(GatewayPort::Redis, 1 << 19) > 100_000 && room(GatewayPort::Log, 1 << 19) > 1024
        );
    }
}
