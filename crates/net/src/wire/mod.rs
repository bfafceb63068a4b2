//! What travels between two processes, byte for byte. Nothing here touches a socket: everything is
//! read from slices, and no bytes make it panic.
//!
//! ```text
//! a connection   the one who dials sends a hello, the other answers; then frames both ways
//! hello          magic u32 | version u16 | kind u8 | refusal u8 | cluster u64
//!                | from u32 | to u32 | incarnation u32 | processes u32 | disk u64 | start u64
//!                | anew u8                                                     49 bytes
//! frame          length u32 | bytes
//!
//! a datagram     magic u32 | version u16 | kind u8 | 0 u8 | cluster u64 | from u32 | incarnation u32
//!                and behind these 24 bytes, by its kind:
//! messages       length u16 | bytes, as often as they fit
//! piece          number u32 | total u32 | index u16 | size u16 | bytes
//! knock          nothing
//! probe          group u8 | number u32
//! echo           group u8 | number u32 | incarnation u32 of who probed
//! ```
//! Numbers are little-endian.

mod assembly;
mod datagram;
mod frames;
mod hello;

pub use assembly::Assembly;
pub use datagram::{
    Body, HEAD_BYTES, NotDatagram, PIECE_BYTES, Piece, Probe, SIZE_BYTES, Sender, next_message,
    put_message, read_datagram,
};
pub(crate) use frames::FrameQueue;
pub use frames::{FrameReader, FrameTooLong, LENGTH_BYTES};
pub use hello::{HELLO_BYTES, Hello, NotHello, Refusal, Said};

/// The version of everything that travels, and of what stands in frames. Both ends must have the same.
pub const VERSION: u16 = 7;
