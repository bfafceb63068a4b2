//! Where the control socket of a node is: in the cluster's directory on its own host, or at an address
//! of the network for other hosts.

use amcast_net::{Purpose, Secret, nonce};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt::{self, Write as _};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a node of another host may take to be connected to.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// The longest line of the handshake, in bytes.
const LINE_BYTES_MAX: usize = 128;

/// The first words of a node's control address: a nonce follows.
const CHALLENGE: &str = "amcast control ";

/// The secret that a client of an address on another host must prove to know, and the proof that it
/// receives in return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterKey {
    /// The cluster's number.
    pub id: u64,
    /// Its secret, or none.
    pub secret: Secret,
}

impl ClusterKey {
    fn prove(&self, purpose: Purpose, [a, b]: [&str; 2]) -> String {
        let parts: [&[u8]; 3] = [a.as_bytes(), b.as_bytes(), &self.id.to_le_bytes()];
        hex(&self.secret.prove(purpose, &parts))
    }

    /// Proves to the node at the other end that this is known here, and has it prove the same.
    fn enter(&self, stream: &ControlStream) -> io::Result<()> {
        let until = Instant::now() + CONNECT_PATIENCE;
        let nobody = || io::Error::other("no node of that cluster answers there");
        let line = stream.line(LINE_BYTES_MAX, until)?;
        let theirs = line.strip_prefix(CHALLENGE).ok_or_else(nobody)?;
        let ours = hex(&nonce()?);
        let proof = self.prove(Purpose::Control, [theirs, &ours]);
        { stream }.write_all(format!("of {proof} {ours}\n").as_bytes())?;
        match stream.line(LINE_BYTES_MAX, until)?
            == self.prove(Purpose::ControlAnswer, [theirs, &ours])
        {
            true => Ok(()),
            false => Err(nobody()),
        }
    }

    /// Admits a peer that proves until then to know this secret; proves the same. False for a
    /// stranger, which receives nothing.
    ///
    /// # Errors
    /// When the connection ends, or nothing comes in time.
    pub(crate) fn admit(&self, stream: &ControlStream, until: Instant) -> io::Result<bool> {
        let ours = hex(&nonce()?);
        { stream }.write_all(format!("{CHALLENGE}{ours}\n").as_bytes())?;
        let line = stream.line(LINE_BYTES_MAX, until)?;
        let mut words = line.split_ascii_whitespace();
        let (Some("of"), Some(proof), Some(theirs)) = (words.next(), words.next(), words.next())
        else {
            return Ok(false);
        };
        // The compared proof is public once it is sent, and is valid on no other connection.
        if proof != self.prove(Purpose::Control, [&ours, theirs]) {
            return Ok(false);
        }
        let proof = self.prove(Purpose::ControlAnswer, [&ours, theirs]);
        { stream }.write_all(format!("{proof}\n").as_bytes())?;
        Ok(true)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Where a node takes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAddress {
    /// A socket in the cluster's directory.
    Socket(PathBuf),
    /// An address, with the secret that a client must know; and the socket, which exists if the
    /// node is of this host after all.
    Address(SocketAddr, ClusterKey, PathBuf),
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(at, _, path) if !path.exists() => at.fmt(f),
            Self::Socket(path) | Self::Address(_, _, path) => path.display().fmt(f),
        }
    }
}

impl NodeAddress {
    /// Connects, or fails soon: a node that is stopped and accepts no connection does not block its
    /// caller. At an address of another host both ends prove that they are of one cluster.
    pub(crate) fn connect(&self) -> io::Result<ControlStream> {
        match self {
            Self::Address(at, key, path) if !path.exists() => {
                let stream = ControlStream::Tcp(TcpStream::connect_timeout(at, CONNECT_PATIENCE)?);
                stream.set_write_timeout(CONNECT_PATIENCE)?;
                key.enter(&stream)?;
                Ok(stream)
            }
            Self::Socket(path) | Self::Address(_, _, path) => {
                connect(path).map(ControlStream::Unix)
            }
        }
    }

    /// Whether it may take long to find out that nobody answers.
    pub(crate) fn is_far(&self) -> bool {
        matches!(self, Self::Address(_, _, path) if !path.exists())
    }
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
pub(crate) enum ControlStream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl ControlStream {
    /// The next line, of fewer bytes than `most`, without its end, and nothing behind it.
    pub(crate) fn line(&self, most: usize, until: Instant) -> io::Result<String> {
        let mut line = Vec::new();
        while line.len() < most {
            // All of it until then, however slowly it comes.
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.set_read_timeout(left)?;
            let mut byte = [0];
            { self }.read_exact(&mut byte)?;
            if byte == *b"\n" {
                return String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into());
            }
            line.extend(byte);
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Ends it, both ways, from any thread.
    pub(crate) fn end(&self) {
        // It has ended then already.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

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

impl Read for &ControlStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            ControlStream::Unix(stream) => (&mut &*stream).read(to),
            ControlStream::Tcp(stream) => (&mut &*stream).read(to),
        }
    }
}

impl Write for &ControlStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            ControlStream::Unix(stream) => (&mut &*stream).write(from),
            ControlStream::Tcp(stream) => (&mut &*stream).write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
