//! Notifications of a node to the system that started it, by systemd's protocol: a datagram to the
//! socket that `NOTIFY_SOCKET` names.

use amcast_node::control::status_of;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often a node is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Has the system wait for another minute until the node is ready.
const EXTENDS: &str = "EXTEND_TIMEOUT_USEC=60000000\n";

/// Tells the system how the node with this control socket is.
pub(super) struct ServiceNotifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    node: PathBuf,
    /// When it is asked next, until it was ready once.
    ask_at: Option<Instant>,
}

impl ServiceNotifier {
    /// Without that variable nothing is sent.
    pub(super) fn of_system(node: PathBuf) -> Self {
        let to = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let opened = address(name.as_bytes())
                .and_then(|at| UnixDatagram::unbound().map(|socket| (socket, at)));
            opened.inspect_err(|e| tracing::warn!("NOTIFY_SOCKET: {e}")).ok()
        });
        let ask_at = to.is_some().then(Instant::now);
        Self { to, node, ask_at }
    }

    fn say(&self, what: &str) {
        let Some((socket, at)) = &self.to else { return };
        if let Err(e) = socket.send_to_addr(what.as_bytes(), at) {
            tracing::warn!("the system is not told {what:?}: {e}");
        }
    }

    /// Looks whether the node is a full member, now and then, until it was once.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        if self.ask_at.is_none_or(|at| now < at) {
            return;
        }
        match status_of(&self.node) {
            Ok(status) if status.ready => {
                self.say("READY=1\nSTATUS=a full member of its cluster");
                self.ask_at = None;
            }
            Ok(status) => {
                let why = status.why.replace('\n', " ");
                // It works, and how long that takes depends on how much it missed.
                let more = if status.catches_up { EXTENDS } else { "" };
                self.say(&format!("{more}STATUS={why}"));
                self.ask_at = Some(now + ASK_EVERY);
            }
            // Its loop has not begun yet.
            Err(_) => self.ask_at = Some(now + ASK_EVERY),
        }
    }

    /// The node ends: sends that it is stopping, and nothing afterwards.
    pub(super) fn stopping(&mut self) {
        self.say("STOPPING=1\nSTATUS=answers what it took, and saves its state");
        self.ask_at = None;
    }
}

/// The address of a socket as systemd writes it: a path, or a name behind an `@`.
fn address(name: &[u8]) -> io::Result<SocketAddr> {
    match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_hears_that_a_node_stops() {
        let _limit = amcast_test_policy::time_limit();
        let path = std::env::temp_dir().join(format!("amcast-notify-{}", std::process::id()));
        let system = UnixDatagram::bind(&path).unwrap();
        let to =
            Some((UnixDatagram::unbound().unwrap(), address(path.as_os_str().as_bytes()).unwrap()));
        let mut notify = ServiceNotifier { to, node: PathBuf::new(), ask_at: Some(Instant::now()) };
        // There is no node: nothing is sent.
        notify.look();
        notify.stopping();
        let mut said = [0; 200];
        let count = system.recv(&mut said).unwrap();
        assert!(said[..count].starts_with(b"STOPPING=1\n"));
        std::fs::remove_file(&path).unwrap();
        assert!(address(b"@amcast").unwrap().as_abstract_name() == Some(b"amcast"));
    }
}
