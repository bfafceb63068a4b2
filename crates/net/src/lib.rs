//! The medium `Messages` over real networks: frames on TCP connections and in UDP datagrams.
//!
//! The three types to know are [`Carrier`] (the medium for a loop), [`NetOptions`] (how it behaves) and [`NetDiagnostic`] (what it
//! reports of its links).
//!
//! Read [`Carrier`] for how a loop uses it. The laws that are kept are those of
//! [`mod@amcast_core::messages`].
//!
//! - `wire/` is what travels, byte for byte; nothing in it touches a socket.
//! - `streams/` is the lane `Stream`: connections, their stages, and what breaks them.
//! - `outbound.rs` and `inbound.rs` are the lane `Datagram`: messages gathered into datagrams, or cut
//!   into pieces, and put together again.
//! - `batched.rs` is the system calls for many datagrams, `datagram_pace.rs` the rate at which they leave, where one is
//!   given, and `kernel_drops.rs` counts those that the system dropped because this process did not take them in time.
//! - `multicast.rs` finds out which members of a group hear its multicast address.
//! - `poller.rs` is readiness, sleep, and being woken by other threads.
//! - `sockets.rs` makes sockets, `options.rs` says how all of it behaves.
//! - `conformance.rs`, behind the feature of that name, tests any carrier of the medium against the
//!   laws; the simulator's passes the same suite.
//!
//! Under load, a round costs one system call that asks what is ready, one that reads for each peer
//! from which bytes arrived, and one that writes for each peer to which bytes go, for any
//! number of messages; and for datagrams, in each of which 20 messages of 64 bytes fit, one that sends for 32 of them and
//! one that reads for 16. Datagrams of one length to one place are cut out of one by the system (`UDP_SEGMENT`), up to 64
//! of them, and it joins those that arrive one after the other (`UDP_GRO`), where it has that. A message is copied once on its way out, behind others for the same peer, and
//! not at all on its way in.
//!
//! - `secret.rs` is the proof that processes give each other before they believe anything, and `settings_digest.rs` the settings that must be
//!   the same for both.
//! - `host_network.rs` is the host that an address counts for, where strangers have bounds for each host.
//!
//! Nothing is encrypted, and messages after the handshake are not proved: a user who can write into the network can
//! speak for a process. Without a secret every user who reaches the ports can.
#![forbid(unsafe_code)]

mod batched;
mod carrier;
#[cfg(feature = "conformance")]
pub mod conformance;
mod datagram_pace;
mod error;
mod events;
mod host_network;
mod inbound;
mod kernel_drops;
mod liveness;
mod multicast;
mod options;
mod outbound;
mod peer_identity;
mod poller;
mod secret;
mod self_channel;
mod settings_digest;
mod sockets;
mod streams;
pub mod wire;

pub use carrier::{BoundPorts, Carrier, park_all};
pub use error::{LinkFailure, NetDiagnostic, NetError};
pub use events::NetCounts;
pub use host_network::{crowded_host, host_network};
pub use liveness::LivenessProbe;
pub use options::{Interface, NetOptions, PeerConfig};
pub use peer_identity::{PeerClaim, PeerIdentity};
pub use poller::Waker;
pub use secret::{NONCE_BYTES, Nonce, PROOF_BYTES, Proof, Purpose, Secret, nonce};
pub use settings_digest::{MARKS, SettingsDigest};
