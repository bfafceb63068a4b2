//! The format of all bytes between two processes. Nothing here touches a socket: everything is
//! read from slices, and no bytes make it panic.
//!
//! ```text
//! a connection   the one who dials sends an opening, the other a challenge; then each a hello with its
//!                proof; then frames both ways
//! opening        magic u32 | version u16 | 3 u8 | 0 u8 | nonce                   24 bytes
//! challenge      magic u32 | version u16 | 4 u8 | 0 u8 | nonce | proof           56 bytes
//! hello          magic u32 | version u16 | kind u8 | refusal u8 | cluster u64
//!                | from u32 | to u32 | incarnation u32 | processes u32 | disk u64 | start u64
//!                | anew u8 | decides 48 x u64                                 433 bytes, and a proof
//! frame          length u32 | bytes
//!
//! a datagram     magic u16 | length u16 | version u16 | kind u8 | 0 u8 | cluster u64 | from u32 | incarnation u32
//!                and behind these 24 bytes, which its length includes, by its kind:
//! messages       length u16 | bytes, as often as they fit
//! piece          number u32 | total u32 | index u16 | size u16 | bytes
//! knock          nothing
//! probe          group u8 | number u32 | urgent u8 | echoes of other probes that go along, each:
//!                of whom u32 | incarnation u32 of it | number u32
//! echo           group u8 | number u32 | incarnation u32 of who probed
//! ```
//! Numbers are little-endian. A nonce has 16 bytes and a proof 32: see [`crate::Secret`].

mod assembly;
mod challenge;
mod datagram;
mod frames;
mod hello;

pub use assembly::MessageAssembly;
pub use challenge::{CHALLENGE_BYTES, Nonces, OPENING_BYTES, PROVED_BYTES, opening, read_opening};
pub use datagram::{
    DatagramBody, DatagramSender, GatheredEcho, GroupProbe, HEAD_BYTES, MessageFragment,
    NotDatagram, PIECE_BYTES, Probe, SIZE_BYTES, complete, echoes_max, next_datagram, next_message,
    put_message, read_datagram,
};
pub(crate) use frames::FrameQueue;
pub use frames::{FrameReader, FrameTooLong, LENGTH_BYTES};
pub use hello::{ConnectionRefusal, HELLO_BYTES, HandshakeMessage, Hello, NotHello};

/// The version of everything that travels, and of the content of frames. Both ends must have the same.
///
/// It is raised also where the same commands come to other results: replicas execute them each by itself, and nothing else keeps
/// those of two programs apart. The settings that nodes compare say nothing of code, and the version of a state holds
/// only where a state goes from one to the other.
pub const VERSION: u16 = 14;
