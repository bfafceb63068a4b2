//! Messages between members of a group, read from any bytes: for tests that feed invalid bytes.

use crate::fastcast::FastCastMessage;
use crate::layers::vsync::VsyncPacket;
use crate::lcr::LcrMessage;
use crate::ring_paxos_multicast::RingPaxosMessage;
use crate::total::OrderingMessage;
use crate::toto::TotoMessage;
use alloc::vec::Vec;
use amcast_core::codec::{ByteReader, Codec};

/// Reads a packet of the layer of virtual synchrony. Panics if what is read does not encode to the
/// bytes that it was read from.
pub fn packet(bytes: &[u8]) {
    reads_back::<VsyncPacket>(bytes);
}

/// The same of a message of each ordering protocol, which travels in such a packet.
pub fn message(bytes: &[u8]) {
    reads_back::<OrderingMessage>(bytes);
    reads_back::<FastCastMessage>(bytes);
    reads_back::<LcrMessage>(bytes);
    reads_back::<RingPaxosMessage>(bytes);
    reads_back::<TotoMessage>(bytes);
}

fn reads_back<T: Codec>(bytes: &[u8]) {
    let mut reader = ByteReader::new(bytes);
    let Ok(read) = T::decode(&mut reader) else { return };
    let used = bytes.len() - reader.rest().len();
    let mut again = Vec::new();
    read.encode(&mut again);
    assert_eq!(again, bytes[..used], "it does not read back");
    assert!(T::decode(&mut ByteReader::new(&bytes[..used.saturating_sub(1)])).is_err(), "cut off");
}

/// Whether the bytes are one whole packet of the layer of virtual synchrony.
pub fn is_packet(bytes: &[u8]) -> bool {
    is_whole::<VsyncPacket>(bytes)
}

/// Whether they are one whole message of some ordering protocol.
pub fn is_message(bytes: &[u8]) -> bool {
    is_whole::<OrderingMessage>(bytes)
        || is_whole::<FastCastMessage>(bytes)
        || is_whole::<LcrMessage>(bytes)
        || is_whole::<RingPaxosMessage>(bytes)
        || is_whole::<TotoMessage>(bytes)
}

fn is_whole<T: Codec>(bytes: &[u8]) -> bool {
    let mut reader = ByteReader::new(bytes);
    T::decode(&mut reader).is_ok() && reader.is_empty()
}
