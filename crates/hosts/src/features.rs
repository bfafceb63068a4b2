//! The features of a system that labs need, each tried with commands of its own. Where one is missing a test that needs
//! it may be skipped; where it is there, an error of a lab is a failure of the test.

use crate::leftovers::{name, remove};
use crate::namespace::HostNamespace;
use crate::programs::run;
use crate::relay::make_device;
use crate::{HostLab, LabError};
use std::sync::LazyLock;

/// A feature of the system that labs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabFeature {
    /// Network namespaces, with bridges and pairs of devices in them: every lab needs them.
    Namespaces,
    /// The kernel's token bucket: links that are limited in rate.
    Rates,
    /// The kernel's filters of classic BPF: losses, cuts and partitions.
    Faults,
    /// Devices of `/dev/net/tun`: links that delay.
    Delays,
}

/// By feature, in the order of their declaration: why it is missing.
static MISSING: LazyLock<[Option<String>; 4]> = LazyLock::new(try_all);

impl HostLab {
    /// Why this user or this system can have no lab with these features, if so. A process tries them once.
    pub fn missing_feature(features: &[LabFeature]) -> Option<&'static str> {
        let mut all = [LabFeature::Namespaces].iter().chain(features);
        all.find_map(|feature| MISSING[*feature as usize].as_deref())
    }
}

fn try_all() -> [Option<String>; 4] {
    if !rustix::process::geteuid().is_root() {
        return [(); 4].map(|()| Some(LabError::NotRoot.to_string()));
    }
    let probe = name("probe", "0");
    let tried = [try_namespaces(&probe), try_rates(&probe), try_faults(&probe), try_delays(&probe)];
    remove(&[probe]);
    tried.map(|tried| tried.err().map(|why| why.to_string()))
}

fn try_namespaces(probe: &str) -> Result<(), LabError> {
    run("ip", &["netns", "add", probe])?;
    run("ip", &["-n", probe, "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"])?;
    let bridge = ["-n", probe, "link", "add", "probe2", "type", "bridge", "mcast_snooping", "1"];
    run("ip", &bridge)?;
    // Containers may see the kernel's settings without being let change them.
    let path = "/proc/sys/net/ipv4/conf/all/rp_filter";
    let set = HostNamespace::open(probe)?.run(|| std::fs::write(path, "0"))?;
    set.map_err(|e| LabError::system(format!("write {path}"), e))
}

fn try_rates(probe: &str) -> Result<(), LabError> {
    let bucket = ["tbf", "rate", "1mbit", "burst", "16384", "limit", "65536"];
    run("tc", &[&["-n", probe, "qdisc", "add", "dev", "probe0", "root"][..], &bucket].concat())
}

fn try_faults(probe: &str) -> Result<(), LabError> {
    run("tc", &["-n", probe, "qdisc", "add", "dev", "probe1", "clsact"])?;
    // One instruction: pass.
    let program = ["bpf", "da", "bytecode", "1,6 0 0 4294967295,"];
    let filter = ["-n", probe, "filter", "add", "dev", "probe1", "egress", "prio", "1"];
    run("tc", &[&filter[..], &program].concat())
}

fn try_delays(probe: &str) -> Result<(), LabError> {
    make_device(&HostNamespace::open(probe)?, "probe3").map(drop)
}
