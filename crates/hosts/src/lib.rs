//! Several hosts on one machine: network namespaces with links between them that are limited in rate, that
//! delay and lose frames, and that tests cut and mend.
//!
//! [`HostLab`] builds the hosts and removes them when it is dropped, [`LinkSettings`] says how their links
//! behave, and [`LabError`] why this machine cannot have them. The files are best read in this order:
//! `settings.rs`, `lab.rs`, `topology.rs` (the devices and how they are connected), `faults.rs` (which frames a
//! port drops), `relay.rs` (delay), `goodput.rs` (the measurement of a link), `leftovers.rs` (removal).
//!
//! A lab needs Linux, root and the program `ip`. Rates, losses and cuts also need `tc`, with the token
//! bucket (`tbf`) and classic BPF filters of the kernel; delays need devices of `/dev/net/tun`. Netem is not
//! used, because many kernels have none. If something is missing, the call returns an error that names it;
//! [`HostLab::missing_feature`] asks before, with commands of its own (`features.rs`).

mod error;
mod faults;
mod features;
mod goodput;
mod lab;
mod leftovers;
mod namespace;
mod programs;
mod relay;
mod settings;
mod topology;

pub use error::LabError;
pub use features::LabFeature;
pub use goodput::{TcpGoodput, UdpGoodput};
pub use lab::{HostLab, LabHost};
pub use namespace::HostNamespace;
pub use settings::{Direction, LinkSettings};
