//! Making sockets: options, and what the system says to them.

use crate::error::{NetDiagnostic, NetError};
use crate::events::CarrierEvents;
use crate::options::{Interface, NetOptions};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How many connections may wait until they are taken.
const BACKLOG: i32 = 1024;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn address_of(fd: impl AsFd) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(rustix::net::getsockname(fd)?)
}

/// A socket that takes connections, and its address: with port 0 the system chose one.
pub(crate) fn listener(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), NetError> {
    let make = || {
        let fd = rustix::net::socket_with(
            family(address),
            SocketType::STREAM,
            FLAGS,
            Some(ipproto::TCP),
        )?;
        // Connections of an earlier life may linger on the port; another listener may not.
        sockopt::set_socket_reuseaddr(&fd, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&fd, true)?;
        }
        rustix::net::bind(&fd, &address)?;
        rustix::net::listen(&fd, BACKLOG)?;
        let bound = address_of(&fd)?;
        Ok((fd, bound))
    };
    make().map_err(|errno| NetError::at(address, "connections", errno))
}

/// Takes a connection, if one waits.
pub(crate) fn accept(listener: &OwnedFd) -> Result<(OwnedFd, SocketAddr), Errno> {
    let (fd, address) = rustix::net::acceptfrom_with(listener, FLAGS)?;
    // Gone again, if it has no address.
    let address = address.ok_or(Errno::CONNABORTED)?;
    Ok((fd, SocketAddr::try_from(address)?))
}

/// Begins to connect.
pub(crate) fn dial(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let fd =
        rustix::net::socket_with(family(address), SocketType::STREAM, FLAGS, Some(ipproto::TCP))?;
    match rustix::net::connect(&fd, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(errno),
    }
    // Where nobody listens, a socket on the same machine may be given the very port that it dials,
    // and connect to itself: the rightful owner could not open the port while it does.
    if address_of(&fd)? == address { Err(Errno::CONNREFUSED) } else { Ok(fd) }
}

/// Whether the connection begun by [`dial`] is open.
pub(crate) fn dialled(fd: &OwnedFd) -> Result<(), Errno> {
    sockopt::socket_error(fd)?
}

/// A socket for datagrams, and its address: with port 0 the system chose one.
pub(crate) fn datagrams(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), NetError> {
    let make = || {
        let fd = datagram_socket(address)?;
        rustix::net::bind(&fd, &address)?;
        let bound = address_of(&fd)?;
        Ok((fd, bound))
    };
    make().map_err(|errno| NetError::at(address, "datagrams", errno))
}

fn datagram_socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let udp = Some(ipproto::UDP);
    let fd = rustix::net::socket_with(family(address), SocketType::DGRAM, FLAGS, udp)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}

/// A socket on which a group's datagrams arrive.
pub(crate) fn join(address: SocketAddr, interface: Interface) -> Result<OwnedFd, NetError> {
    let make = || {
        let fd = datagram_socket(address)?;
        // Other members on this machine listen at the same address.
        sockopt::set_socket_reuseaddr(&fd, true)?;
        rustix::net::bind(&fd, &address)?;
        match (address.ip(), interface) {
            (IpAddr::V4(group), Interface::System) => {
                sockopt::set_ip_add_membership(&fd, &group, &Ipv4Addr::UNSPECIFIED)?;
            }
            (IpAddr::V4(group), Interface::Address(own)) => {
                sockopt::set_ip_add_membership(&fd, &group, &own)?;
            }
            (IpAddr::V4(group), Interface::Index(index)) => {
                let any = Ipv4Addr::UNSPECIFIED;
                sockopt::set_ip_add_membership_with_ifindex(&fd, &group, &any, index)?;
            }
            (IpAddr::V6(group), interface) => {
                sockopt::set_ipv6_add_membership(&fd, &group, index_of(interface))?;
            }
        }
        Ok(fd)
    };
    make().map_err(|errno| NetError::Group { address, errno })
}

/// How a socket sends to groups.
pub(crate) fn send_to_groups(
    fd: &OwnedFd,
    own: SocketAddr,
    options: &NetOptions,
) -> Result<(), NetError> {
    let hops = u32::from(options.multicast_hops);
    let set = || match (own, options.interface) {
        (SocketAddr::V4(_), interface) => {
            match interface {
                Interface::System => {}
                Interface::Address(address) => sockopt::set_ip_multicast_if(fd, &address)?,
                Interface::Index(index) => {
                    let any = Ipv4Addr::UNSPECIFIED;
                    sockopt::set_ip_multicast_if_with_ifindex(fd, &any, &any, index)?;
                }
            }
            // Members on this machine want it as well.
            sockopt::set_ip_multicast_loop(fd, true)?;
            sockopt::set_ip_multicast_ttl(fd, hops)
        }
        (SocketAddr::V6(_), interface) => {
            sockopt::set_ipv6_multicast_if(fd, index_of(interface))?;
            sockopt::set_ipv6_multicast_loop(fd, true)?;
            sockopt::set_ipv6_multicast_hops(fd, hops)
        }
    };
    set().map_err(NetError::doing("set up multicast"))
}

fn index_of(interface: Interface) -> u32 {
    match interface {
        Interface::Index(index) => index,
        Interface::System | Interface::Address(_) => 0,
    }
}

/// Asks for a buffer of that size for what arrives; remarks if the system gives less.
pub(crate) fn enlarge(fd: &OwnedFd, asked: usize, told: &mut CarrierEvents) {
    // A process that may exceed the system's bound does; the others get the allowed size.
    if sockopt::set_socket_recv_buffer_size_force(fd, asked).is_err()
        && let Err(errno) = sockopt::set_socket_recv_buffer_size(fd, asked)
    {
        told.remark(NetDiagnostic::Option { name: "SO_RCVBUF", errno });
    }
    match sockopt::socket_recv_buffer_size(fd) {
        // The system counts its own bookkeeping in, and says twice what it was asked for.
        Ok(twice) if twice / 2 < asked => told.remark(NetDiagnostic::Buffer {
            of: "arriving",
            asked,
            got: twice / 2,
            setting: "net.core.rmem_max",
        }),
        Ok(_) => {}
        Err(errno) => told.remark(NetDiagnostic::Option { name: "SO_RCVBUF", errno }),
    }
}

/// The options of every connection, from either end. An option that the system refuses is done without.
pub(crate) fn tune(fd: &OwnedFd, options: &NetOptions, told: &mut CarrierEvents) {
    let silence = Duration::from_nanos(options.silence_max.0);
    let probe = (silence / 4).max(Duration::from_secs(1));
    let mut set = |name, done: Result<(), Errno>| {
        if let Err(errno) = done {
            told.remark(NetDiagnostic::Option { name, errno });
        }
    };
    set("TCP_NODELAY", sockopt::set_tcp_nodelay(fd, true));
    // Data that is not acknowledged, and windows that stay closed.
    let millis = silence.as_millis().try_into().unwrap_or(u32::MAX);
    set("TCP_USER_TIMEOUT", sockopt::set_tcp_user_timeout(fd, millis));
    // Connections on which nothing is sent.
    set("SO_KEEPALIVE", sockopt::set_socket_keepalive(fd, true));
    set("TCP_KEEPIDLE", sockopt::set_tcp_keepidle(fd, probe));
    set("TCP_KEEPINTVL", sockopt::set_tcp_keepintvl(fd, probe));
    if let Some(name) = &options.congestion {
        set("TCP_CONGESTION", sockopt::set_tcp_congestion(fd, name));
    } else if is_local(fd) {
        // A system without it has its own choice, which works as well.
        let _ = sockopt::set_tcp_congestion(fd, LOCAL_CONGESTION);
    }
}

/// Within one machine nothing is lost, and what paces only delays.
const LOCAL_CONGESTION: &str = "cubic";

/// Whether the other end of a connection is on the loopback.
fn is_local(fd: &OwnedFd) -> bool {
    let peer = rustix::net::getpeername(fd).ok().flatten();
    peer.and_then(|at| SocketAddr::try_from(at).ok()).is_some_and(|at| at.ip().is_loopback())
}
