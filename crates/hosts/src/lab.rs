//! The lab: its hosts, and the faults of their links.

use crate::faults::{HOSTS_MAX, LinkFaults};
use crate::goodput::{GoodputEnd, measure, measure_tcp};
use crate::leftovers::{name, remove, remove_leftovers};
use crate::programs::{output, run};
use crate::relay::DelayRelay;
use crate::settings::check_loss;
use crate::topology::{LabNames, LabTopology, dropped_frames, limit_rate};
use crate::{Direction, HostNamespace, LabError, LinkSettings, TcpGoodput, UdpGoodput};
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Several hosts on this machine, and the network between them. Hosts are counted from 0.
///
/// Dropping it ends the programs that still run on the hosts and removes all of it. A killed process cannot do
/// so; then the next lab that is built on the machine does.
///
/// # Panics
/// All methods that take a host, or sides of hosts, panic if the lab does not have one of them.
#[derive(Debug)]
pub struct HostLab {
    names: LabNames,
    topology: LabTopology,
    settings: LinkSettings,
    links: Mutex<LinkStates>,
    relays: Vec<DelayRelay>,
}

/// The links as they are now.
#[derive(Debug)]
struct LinkStates {
    faults: LinkFaults,
    /// By host: the rate in bits per second of what it sends, and of what the switch sends to it.
    rates: Vec<[Option<u64>; 2]>,
    /// By host: whether its port has a place for programs that drop frames.
    classified: Vec<bool>,
}

impl HostLab {
    /// Builds hosts on a switch. The switch passes multicast to the members of a group, and to all for a group that
    /// has no members.
    ///
    /// # Errors
    /// Why this user or this system cannot have them; then nothing of it is left.
    pub fn new(hosts: usize, settings: LinkSettings) -> Result<Self, LabError> {
        Self::build(hosts, settings, LabTopology::Switched)
    }

    /// Builds hosts that are in a subnet each, with a router between them that passes no multicast on.
    ///
    /// # Errors
    /// Why this user or this system cannot have them; then nothing of it is left.
    pub fn with_router_without_multicast(
        hosts: usize,
        settings: LinkSettings,
    ) -> Result<Self, LabError> {
        Self::build(hosts, settings, LabTopology::Routed)
    }

    fn build(
        hosts: usize,
        settings: LinkSettings,
        topology: LabTopology,
    ) -> Result<Self, LabError> {
        if hosts > HOSTS_MAX {
            return Err(LabError::Settings(format!("a lab has at most {HOSTS_MAX} hosts")));
        }
        settings.check()?;
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        remove_leftovers();
        // Several tests of one program may have labs at a time.
        static LABS: AtomicU32 = AtomicU32::new(0);
        let lab = LABS.fetch_add(1, Ordering::Relaxed);
        let names = LabNames {
            hosts: (0..hosts).map(|host| name(lab, host)).collect(),
            switch: name(lab, "switch"),
        };
        let links = LinkStates {
            faults: LinkFaults::new(hosts, settings.loss_ppm),
            rates: vec![[None; 2]; hosts],
            classified: vec![false; hosts],
        };
        // From here on all that exists is removed by its destructor, also if an error ends the construction.
        let links = Mutex::new(links);
        let mut this = Self { names, topology, settings, links, relays: Vec::new() };
        this.connect()?;
        Ok(this)
    }

    fn connect(&mut self) -> Result<(), LabError> {
        let delay = self.settings.delay;
        let devices = self.topology.build(&self.names, !delay.is_zero())?;
        for (host, devices) in devices.into_iter().enumerate() {
            self.relays.push(DelayRelay::start(devices, host, delay)?);
        }
        for host in 0..self.hosts() {
            if self.settings.rate_bits_per_s.is_some() {
                self.set_rate(host, self.settings.rate_bits_per_s)?;
            }
        }
        self.apply_faults(&mut self.links())
    }

    /// How many hosts there are.
    pub fn hosts(&self) -> usize {
        self.names.hosts.len()
    }

    /// A host.
    pub fn host(&self, host: usize) -> LabHost<'_> {
        assert!(host < self.hosts(), "there are {} hosts, and no host {host}", self.hosts());
        LabHost { lab: self, host }
    }

    /// The settings that the lab was built with. The rate and the loss of a link may have been changed.
    pub fn settings(&self) -> &LinkSettings {
        &self.settings
    }

    /// Drops all frames from one host to another one from now on, and those that return if it is both ways. The
    /// hosts do not notice it: their devices remain up.
    ///
    /// # Errors
    /// When `tc` is not there, or the kernel has no filters of classic BPF.
    pub fn cut(&self, from: usize, to: usize, direction: Direction) -> Result<(), LabError> {
        let mut links = self.links();
        links.faults.cut(from, to);
        if direction == Direction::BothWays {
            links.faults.cut(to, from);
        }
        self.apply_faults(&mut links)
    }

    /// Cuts the hosts of different sides off from each other, in addition to the cuts that are there. Hosts that
    /// no side names are one more side.
    ///
    /// # Errors
    /// When `tc` is not there, or the kernel has no filters of classic BPF.
    ///
    /// # Panics
    /// If a host is on two sides, or is none of the lab's.
    pub fn partition(&self, sides: &[&[usize]]) -> Result<(), LabError> {
        let mut links = self.links();
        links.faults.partition(sides);
        self.apply_faults(&mut links)
    }

    /// Drops all TCP segments to these ports of a host from now on, as a firewall does that answers nothing. Ports that were closed
    /// there before are open.
    ///
    /// # Errors
    /// When `tc` is not there, or the kernel has no filters of classic BPF.
    pub fn close_ports(&self, host: usize, ports: RangeInclusive<u16>) -> Result<(), LabError> {
        let mut links = self.links();
        links.faults.close(host, ports);
        self.apply_faults(&mut links)
    }

    /// Lifts all cuts and partitions, and opens all ports. Losses, rates and plugs remain as they are.
    ///
    /// # Errors
    /// When `tc` fails.
    pub fn heal(&self) -> Result<(), LabError> {
        let mut links = self.links();
        links.faults.heal();
        self.apply_faults(&mut links)
    }

    /// Has a host's link lose so many of a million frames to the host, at random; 0 for none.
    ///
    /// # Errors
    /// When `tc` is not there, or the kernel has no filters of classic BPF.
    pub fn set_loss(&self, host: usize, loss_ppm: u32) -> Result<(), LabError> {
        check_loss(loss_ppm)?;
        let mut links = self.links();
        links.faults.loss_ppm[host] = loss_ppm;
        self.apply_faults(&mut links)
    }

    /// Limits the rate of each direction of a host's link, in bits per second of Ethernet frames, or lifts the
    /// limit.
    ///
    /// # Errors
    /// When `tc` is not there, or the kernel has no token bucket. Then one direction may have the new rate, and the next
    /// call corrects that.
    pub fn set_rate(&self, host: usize, bits_per_s: Option<u64>) -> Result<(), LabError> {
        LinkSettings { rate_bits_per_s: bits_per_s, ..self.settings.clone() }.check()?;
        let mut links = self.links();
        let port = format!("port{host}");
        let ends = [(&*self.names.hosts[host], "eth"), (&*self.names.switch, &*port)];
        for ((namespace, device), rate) in ends.into_iter().zip(&mut links.rates[host]) {
            if *rate != bits_per_s {
                limit_rate(namespace, device, bits_per_s, &self.settings)?;
                *rate = bits_per_s;
            }
        }
        Ok(())
    }

    /// Has the switch pass multicast to all hosts from now on, whether they are members of its group or not. A switch that
    /// knows the members (IGMP snooping) learns of one that has left and come back within two seconds only with its next
    /// question, ten seconds later at most: in measurements that follow each other that shows as losses that nobody counts.
    ///
    /// # Errors
    /// When `ip` fails, or there is a router and no switch.
    pub fn flood_multicast(&self) -> Result<(), LabError> {
        let switch = ["-n", &self.names.switch, "link", "set", "switch", "type", "bridge"];
        run("ip", &[&switch[..], &["mcast_snooping", "0"]].concat())
    }

    /// Pulls the plug of a host out of the switch or router. Needs the program `ip` alone.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn unplug(&self, host: usize) -> Result<(), LabError> {
        self.set_plug(host, "down")
    }

    /// Puts the plug of a host in again.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn plug_in(&self, host: usize) -> Result<(), LabError> {
        self.set_plug(host, "up")
    }

    fn set_plug(&self, host: usize, state: &str) -> Result<(), LabError> {
        let port = format!("port{}", self.host(host).host);
        run("ip", &["-n", &self.names.switch, "link", "set", &port, state])
    }

    /// Measures the link from one host to another: sends UDP datagrams of full size as fast as the link takes
    /// them, for `lasts`. It takes a fifth of a second longer. Where the links have no limit this is the speed of this
    /// machine, with both hosts on it.
    ///
    /// # Errors
    /// When a socket cannot be opened on one of the hosts.
    pub fn udp_goodput(
        &self,
        from: usize,
        to: usize,
        lasts: Duration,
    ) -> Result<UdpGoodput, LabError> {
        measure(&self.end(from)?, &self.end(to)?, lasts, &self.settings)
    }

    /// As [`HostLab::udp_goodput`], over one TCP connection. Its segments carry less than datagrams of full size do.
    ///
    /// # Errors
    /// When a socket cannot be opened on one of the hosts, or the connection breaks.
    pub fn tcp_goodput(
        &self,
        from: usize,
        to: usize,
        lasts: Duration,
    ) -> Result<TcpGoodput, LabError> {
        measure_tcp(&self.end(from)?, &self.end(to)?, lasts)
    }

    fn end(&self, host: usize) -> Result<GoodputEnd, LabError> {
        let host = self.host(host);
        Ok(GoodputEnd { namespace: host.namespace()?, address: host.address() })
    }

    /// How many frames of a host's link the queues in front of its two directions dropped so far: what the host sent,
    /// and what the switch sent to it. 0 where the link has no limit.
    ///
    /// # Errors
    /// When `tc` fails.
    pub fn frames_dropped(&self, host: usize) -> Result<u64, LabError> {
        let port = format!("port{}", self.host(host).host);
        let ends = [(&*self.names.hosts[host], "eth"), (&*self.names.switch, &*port)];
        let of = |(namespace, device): (&str, &str)| {
            let shown = output("tc", &["-n", namespace, "-s", "qdisc", "show", "dev", device])?;
            Ok(dropped_frames(&shown))
        };
        ends.into_iter().map(of).sum()
    }

    fn links(&self) -> MutexGuard<'_, LinkStates> {
        // Each change is complete before the next step, so a panic of another thread leaves nothing broken.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives each port the program that drops what it shall drop now.
    fn apply_faults(&self, links: &mut LinkStates) -> Result<(), LabError> {
        let switch = &self.names.switch;
        for host in 0..self.hosts() {
            let port = format!("port{host}");
            let program = links.faults.program(host, |other| self.topology.address(other));
            match program {
                Some(program) => {
                    if !links.classified[host] {
                        run("tc", &["-n", switch, "qdisc", "add", "dev", &port, "clsact"])?;
                        links.classified[host] = true;
                    }
                    let words = ["-n", switch, "filter", "replace", "dev", &port, "egress"];
                    let filter = ["prio", "1", "handle", "1", "bpf", "da", "bytecode", &program];
                    run("tc", &[&words[..], &filter].concat())?;
                }
                None if links.classified[host] => {
                    run("tc", &["-n", switch, "qdisc", "del", "dev", &port, "clsact"])?;
                    links.classified[host] = false;
                }
                None => {}
            }
        }
        Ok(())
    }
}

impl Drop for HostLab {
    fn drop(&mut self) {
        self.relays.clear();
        remove(&self.names.all());
    }
}

/// A host of a lab.
#[derive(Clone, Copy, Debug)]
pub struct LabHost<'a> {
    lab: &'a HostLab,
    host: usize,
}

impl LabHost<'_> {
    /// Its address in the lab's network.
    pub fn address(&self) -> Ipv4Addr {
        self.lab.topology.address(self.host)
    }

    /// A program that will run on the host, with the files and processes of this machine. Where the program
    /// `setpriv` is there, the system kills it when the thread that started it ends.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        static CAN_END: LazyLock<bool> = LazyLock::new(|| {
            let mut tried = Command::new("setpriv");
            tried.args(["--pdeathsig", "KILL", "--", "true"]);
            tried.stdout(Stdio::null()).stderr(Stdio::null());
            tried.status().is_ok_and(|status| status.success())
        });
        let mut command = Command::new(if *CAN_END { "setpriv" } else { "ip" });
        if *CAN_END {
            command.args(["--pdeathsig", "KILL", "--", "ip"]);
        }
        command.args(["netns", "exec", &self.lab.names.hosts[self.host]]).arg(program);
        command
    }

    /// Its network namespace, for threads that enter it.
    ///
    /// # Errors
    /// When somebody has removed it.
    pub fn namespace(&self) -> Result<HostNamespace, LabError> {
        HostNamespace::open(&self.lab.names.hosts[self.host])
    }

    /// Has a thread of its own do something on the host, and waits for it.
    ///
    /// # Errors
    /// When somebody has removed the host.
    ///
    /// # Panics
    /// If `act` panics, with the same message.
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        self.namespace()?.run(act)
    }
}
