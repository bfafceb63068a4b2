//! System calls that take or send many datagrams at once, for which `rustix` has no function: `recvmmsg`, and segmentation
//! offload (`UDP_SEGMENT`).
//!
//! Their headers hold raw pointers, so another thread may not have them, while a carrier may move to another thread. So
//! they belong to the thread that calls.

use nix::cmsg_space;
use nix::sys::socket::sockopt::UdpGroSegment;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg, setsockopt,
};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

/// How many times one call receives: each time a datagram, or several that the system has joined.
pub(crate) const RECEIVES_MAX: usize = 16;

/// Bytes that are received each time, at most: the longest datagram there is, or all that the system joins.
pub(crate) const RECEIVE_BYTES: usize = 64 << 10;

/// How many datagrams one call sends as segments of one, at most: what the oldest kernels take.
pub(crate) const SEGMENTS_MAX: usize = 64;

/// Bytes of these together, at most: they are one datagram until the system cuts it.
pub(crate) const SEGMENTED_BYTES_MAX: usize = 65_000;

thread_local! {
    static RECEIVED: RefCell<MultiHeaders<()>> =
        RefCell::new(MultiHeaders::preallocate(RECEIVES_MAX, None));
    static SENT: RefCell<MultiHeaders<SockaddrStorage>> =
        RefCell::new(MultiHeaders::preallocate(1, Some(cmsg_space!(u16))));
}

/// Receives what is there, into parts of `buffer` of [`RECEIVE_BYTES`] each; how many, and how long each of them is.
pub(crate) fn receive(
    socket: &OwnedFd,
    buffer: &mut [u8],
    lengths: &mut [usize; RECEIVES_MAX],
) -> Result<usize, Errno> {
    RECEIVED.with_borrow_mut(|headers| {
        let mut parts = buffer.chunks_mut(RECEIVE_BYTES);
        // A buffer of fewer parts receives fewer times.
        let mut slices: [[IoSliceMut<'_>; 1]; RECEIVES_MAX] =
            std::array::from_fn(|_| [IoSliceMut::new(parts.next().unwrap_or_default())]);
        let flags = MsgFlags::MSG_DONTWAIT;
        let all = recvmmsg(socket.as_raw_fd(), headers, slices.iter_mut(), flags, None);
        let all = all.map_err(errno)?;
        let mut count = 0;
        for (length, one) in lengths.iter_mut().zip(all) {
            *length = one.bytes;
            count += 1;
        }
        Ok(count)
    })
}

/// Sends datagrams that are equally long, but for the last, which may be shorter: the system cuts them out of one.
pub(crate) fn send_segments(
    socket: &OwnedFd,
    to: SocketAddr,
    segment: u16,
    datagrams: &[IoSlice<'_>],
) -> Result<(), Errno> {
    SENT.with_borrow_mut(|headers| {
        let control = [ControlMessage::UdpGsoSegments(&segment)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let to = [Some(SockaddrStorage::from(to))];
        let sent = sendmmsg(socket.as_raw_fd(), headers, [&datagrams], to, control, flags);
        sent.map(drop).map_err(errno)
    })
}

/// Has the system join datagrams of one sender that follow each other, where it can.
pub(crate) fn join_segments(socket: &OwnedFd) {
    // A system without it gives them one by one, which works as well.
    let _ = setsockopt(socket, UdpGroSegment, &true);
}

fn errno(of: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(of as i32)
}
