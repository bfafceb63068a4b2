//! Where the control socket of a node is: in the cluster's directory on its own host, or at an address
//! of the network for other hosts.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a node of another host may take to be connected to.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Where a node takes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// A socket in the cluster's directory.
    Socket(PathBuf),
    /// An address, with the number of the cluster, which whoever asks must know; and the socket, which
    /// is there if the node is of this host after all.
    Address(SocketAddr, u64, PathBuf),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(at, _, path) if !path.exists() => at.fmt(f),
            Self::Socket(path) | Self::Address(_, _, path) => path.display().fmt(f),
        }
    }
}

impl At {
    /// Connects, or fails soon: a node that is stopped and accepts nobody does not hold up whoever
    /// asks it. What is to be said first is said.
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Address(at, id, path) if !path.exists() => {
                let stream = TcpStream::connect_timeout(at, CONNECT_PATIENCE)?;
                (&stream).write_all(greeting(*id).as_bytes())?;
                Ok(Stream::Tcp(stream))
            }
            Self::Socket(path) | Self::Address(_, _, path) => connect(path).map(Stream::Unix),
        }
    }

    /// Whether it may take long to find out that nobody answers.
    pub(crate) fn is_far(&self) -> bool {
        matches!(self, Self::Address(_, _, path) if !path.exists())
    }
}

/// What a request of another host begins with.
pub(crate) fn greeting(id: u64) -> String {
    format!("of {id} ")
}

/// Connects to a socket, or fails at once.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A connection to or from a control socket, that blocks.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    pub(crate) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_write_timeout(Some(timeout)),
            Self::Tcp(stream) => stream.set_write_timeout(Some(timeout)),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).read(to),
            Stream::Tcp(stream) => (&mut &*stream).read(to),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).write(from),
            Stream::Tcp(stream) => (&mut &*stream).write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
