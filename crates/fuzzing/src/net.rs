//! Bytes that arrive on connections and in datagrams, from anyone who reaches the ports.

use amcast_core::Pid;
use amcast_net::wire::{
    DatagramBody, DatagramSender, FrameReader, HELLO_BYTES, Hello, MessageAssembly, Nonces,
    OPENING_BYTES, echoes_max, next_datagram, next_message, opening, read_datagram, read_opening,
};
use amcast_net::{NONCE_BYTES, Purpose, Secret};

/// The longest frame that the readers here take.
const FRAME_BYTES_MAX: usize = 4 << 10;

/// The room for messages in pieces.
const ASSEMBLY_BYTES_MAX: usize = 16 << 10;

/// A connection from its first byte on: a hello, and frames. The frames are the same however the
/// bytes are split, and the connection reads nothing behind a frame that is too long.
pub(crate) fn stream(bytes: &[u8]) {
    let (hello, rest) = bytes.split_at(bytes.len().min(HELLO_BYTES));
    if let Ok(hello) = hello.try_into()
        && let Ok(read) = Hello::decode(hello)
    {
        assert_eq!(Hello::decode(&read.encode()), Ok(read), "a hello does not read back");
    }
    handshake(bytes);
    let whole = frames(rest, usize::MAX);
    for piece in [1, 3, 7, 64] {
        assert_eq!(frames(rest, piece), whole, "in pieces of {piece} the frames are others");
    }
}

/// The exchange before the hellos. A peer without the secret proves nothing by any bytes.
fn handshake(bytes: &[u8]) {
    let secret = Secret::parse(&[b's'; 32]).expect("it is long enough");
    if let Some(Ok(nonce)) = bytes.first_chunk().map(read_opening) {
        assert_eq!(bytes[..OPENING_BYTES], opening(&nonce), "an opening does not read back");
    }
    if let Some(challenge) = bytes.first_chunk() {
        let nonces = Nonces::of_challenge([0; NONCE_BYTES], challenge, &secret);
        assert!(!matches!(nonces, Ok(Some(_))), "a challenge was proved by chance");
    }
    if let Some(hello) = bytes.first_chunk() {
        let nonces = Nonces { dialler: [0; NONCE_BYTES], dialled: [1; NONCE_BYTES] };
        assert_eq!(nonces.read_hello(&secret, Purpose::Ask, hello), Ok(None));
    }
}

/// The frames in these bytes, and whether one was too long.
fn frames(mut bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let space = reader.space();
        let count = space.len().min(bytes.len()).min(piece);
        assert!(count > 0, "a reader without whole frames has no space");
        space[..count].copy_from_slice(&bytes[..count]);
        reader.arrived(count);
        bytes = &bytes[count..];
        loop {
            match reader.take() {
                Ok(Some(at)) => frames.push(reader.bytes()[at].to_vec()),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    assert!(frames.iter().all(|frame| frame.len() <= FRAME_BYTES_MAX));
    (frames, false)
}

/// Bytes that are received at once, each time behind their length in two bytes: a datagram, or several that the system has
/// joined. The parts of a datagram lie within it, and messages in pieces are reassembled in bounded memory.
pub(crate) fn datagrams(bytes: &[u8]) {
    let mut assembly = MessageAssembly::new(ASSEMBLY_BYTES_MAX, FRAME_BYTES_MAX);
    let mut rest = bytes;
    while let [a, b, tail @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*a, *b]));
        let (mut received, tail) = tail.split_at(tail.len().min(length));
        rest = tail;
        while let Ok(Some(datagram)) = next_datagram(&mut received) {
            take_datagram(datagram, &mut assembly);
        }
    }
}

/// One datagram.
fn take_datagram(datagram: &[u8], assembly: &mut MessageAssembly) {
    let Ok((sender, body)) = read_datagram(datagram) else { return };
    match body {
        DatagramBody::Messages(mut messages) => {
            let mut bytes = messages.len();
            while let Ok(Some(message)) = next_message(&mut messages) {
                bytes -= message.len() + 2;
            }
            assert!(messages.len() <= bytes, "messages are longer than their datagram");
        }
        DatagramBody::Piece(piece) => {
            // Few senders, so that their pieces meet.
            let sender = DatagramSender { pid: Pid(sender.pid.0 % 2), incarnation: 0, ..sender };
            if let Some(place) = assembly.add(sender, &piece) {
                let message = assembly.message(place);
                assert_eq!(message.len(), piece.total as usize);
                let here = &message[piece.offset()..][..piece.bytes.len()];
                assert_eq!(here, piece.bytes, "the last piece is not in its place");
            }
        }
        DatagramBody::Probe(probe) => {
            let most = echoes_max(datagram.len());
            assert!(probe.echoes().count() <= most, "more echoes than bytes");
        }
        DatagramBody::Knock | DatagramBody::Echo(..) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_is_of_this_version() {
        let hellos: [&[u8]; 4] = [
            include_bytes!("../../../fuzz/corpus/net_stream/ask_and_frames"),
            include_bytes!("../../../fuzz/corpus/net_stream/refused"),
            include_bytes!("../../../fuzz/corpus/net_stream/too_long"),
            include_bytes!("../../../fuzz/corpus/net_stream/welcome"),
        ];
        for bytes in hellos {
            let hello = bytes.first_chunk::<HELLO_BYTES>().expect("a whole hello");
            assert!(Hello::decode(hello).is_ok(), "{hello:?}");
        }
        let datagram = include_bytes!("../../../fuzz/corpus/net_datagrams/messages");
        let length = usize::from(u16::from_le_bytes([datagram[0], datagram[1]]));
        assert!(read_datagram(&datagram[2..][..length]).is_ok());
    }
}
