//! Making sockets: options, and what the system says to them.

use crate::error::{Error, Remark};
use crate::options::Options;
use crate::told::Told;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::net::SocketAddr;
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
pub(crate) fn listener(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), Error> {
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
    make().map_err(|errno| Error::at(address, "connections", errno))
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
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(errno),
    }
}

/// Whether the connection begun by [`dial`] stands.
pub(crate) fn dialled(fd: &OwnedFd) -> Result<(), Errno> {
    sockopt::socket_error(fd)?
}

/// What every connection gets, whoever dialled. An option that the system refuses is done without.
pub(crate) fn tune(fd: &OwnedFd, options: &Options, told: &mut Told) {
    let silence = Duration::from_nanos(options.silence_max.0);
    let probe = (silence / 4).max(Duration::from_secs(1));
    let mut set = |name, done: Result<(), Errno>| {
        if let Err(errno) = done {
            told.remark(Remark::Option { name, errno });
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
    }
}
