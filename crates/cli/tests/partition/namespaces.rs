//! Hosts that are network namespaces: each with an address on one switch, whose plug can be pulled.

use crate::harness::{ends_with_us, runs};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Hosts on a switch. Dropping it removes them.
pub(crate) struct SwitchedHosts {
    names: Vec<String>,
}

fn ip(words: &str) -> Result<(), String> {
    let run = Command::new("ip").args(words.split_whitespace()).output();
    let Output { status, stderr, .. } = run.map_err(|e| format!("ip: {e}"))?;
    let said = String::from_utf8_lossy(&stderr);
    if status.success() { Ok(()) } else { Err(format!("ip {words}: {}", said.trim_end())) }
}

/// Removes the networks of tests whose program is gone: one that was killed could not.
fn remove_what_killed_tests_left() {
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let of = name.strip_prefix("amcast-").and_then(|name| name.split('-').next());
        if of.and_then(|os_pid| os_pid.parse().ok()).is_some_and(|os_pid| !runs(os_pid)) {
            // Another test may be doing the same.
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

impl SwitchedHosts {
    /// So many hosts; why not, if this user or this system cannot have them.
    pub(crate) fn new(count: usize) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".to_string());
        }
        static FIRST: Once = Once::new();
        FIRST.call_once(remove_what_killed_tests_left);
        // Several tests of one program may have hosts at a time.
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        let (id, network) = (std::process::id(), NETWORKS.fetch_add(1, Ordering::Relaxed));
        let names = (0..=count).map(|n| format!("amcast-{id}-{network}-{n}")).collect();
        // From here on what there is is removed, however far it went.
        let this = Self { names };
        let switch = this.switch();
        for name in &this.names {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        ip(&format!("-n {switch} link add switch type bridge"))?;
        ip(&format!("-n {switch} link set switch up"))?;
        for host in 0..count {
            let (name, at) = (&this.names[host], this.address(host));
            ip(&format!("-n {switch} link add port{host} type veth peer name eth netns {name}"))?;
            ip(&format!("-n {switch} link set port{host} master switch up"))?;
            ip(&format!("-n {name} addr add {at}/24 dev eth"))?;
            ip(&format!("-n {name} link set eth up"))?;
        }
        Ok(this)
    }

    fn switch(&self) -> &str {
        self.names.last().expect("the switch is the last")
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: usize) -> String {
        format!("10.99.7.{}", host + 1)
    }

    /// Pulls the plug of a host, or puts it in again.
    pub(crate) fn plug(&self, host: usize, state: &str) {
        ip(&format!("-n {} link set port{host} {state}", self.switch()))
            .expect("a plug can be moved");
    }

    /// A program that is to run on a host.
    pub(crate) fn command(&self, host: usize, program: &str) -> Command {
        let mut command = ends_with_us("ip");
        command.args(["netns", "exec", &self.names[host], program]);
        command
    }

    /// The namespace that a thread enters to be on a host.
    #[allow(dead_code, reason = "the other tests start programs there")]
    pub(crate) fn namespace(&self, host: usize) -> File {
        File::open(format!("/run/netns/{}", self.names[host])).expect("it is there")
    }

    /// Has a thread of its own do something on a host.
    #[allow(dead_code, reason = "others have all their threads there")]
    pub(crate) fn on<T: Send>(&self, host: usize, act: impl FnOnce() -> T + Send) -> T {
        let namespace =
            File::open(format!("/run/netns/{}", self.names[host])).expect("it is there");
        std::thread::scope(|scope| {
            let there = || {
                enter(&namespace);
                act()
            };
            scope.spawn(there).join().expect("it does not panic")
        })
    }
}

/// Has this thread, and those that it starts from now on, be on a host.
pub(crate) fn enter(namespace: &File) {
    let kind = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(namespace.as_fd(), kind).expect("a thread may move");
}

impl Drop for SwitchedHosts {
    fn drop(&mut self) {
        for name in &self.names {
            // One that could not be made is not there.
            let _ = ip(&format!("netns del {name}"));
        }
    }
}
