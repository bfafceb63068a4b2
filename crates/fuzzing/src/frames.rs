//! Frames between a gateway and a node.

use amcast_node::ingress::frame::IngressFrame;

/// The longest frame of a gateway or node that is read here.
const FRAME_BYTES_MAX: usize = 4 << 10;

/// Frames from a gateway to a node and back: they decode as they were encoded, and a partial frame
/// is not decoded.
pub(crate) fn ingress(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((frame, used))) = IngressFrame::decode(rest, FRAME_BYTES_MAX) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, rest[..used], "{frame:?} does not read back");
        assert!(!matches!(IngressFrame::decode(&rest[..used - 1], FRAME_BYTES_MAX), Ok(Some(_))));
        rest = &rest[used..];
    }
}
