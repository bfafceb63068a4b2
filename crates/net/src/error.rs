//! Failures at the start, and events that are worth a line in a log later.

use crate::wire::ConnectionRefusal;
use amcast_core::Pid;
use core::fmt;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Why a carrier could not be started.
#[derive(Debug)]
pub enum NetError {
    /// Somebody else uses the address.
    InUse {
        /// Which address, and for what.
        address: SocketAddr,
        /// `connections` or `datagrams`.
        of: &'static str,
    },
    /// The address is not one of this machine's.
    NotHere {
        /// Which.
        address: SocketAddr,
    },
    /// This user may not use the address.
    Permission {
        /// Which.
        address: SocketAddr,
    },
    /// The process is not among its peers.
    NoSuch {
        /// Which.
        me: Pid,
        /// How many there are.
        count: usize,
    },
    /// A group's address, on which this process cannot take datagrams.
    Group {
        /// Which.
        address: SocketAddr,
        /// The error of the system.
        errno: Errno,
    },
    /// Two values do not go together, or one is out of its range.
    Options {
        /// Which, and what would be right.
        says: &'static str,
    },
    /// Any other refusal of the operating system.
    System {
        /// The failed operation.
        doing: &'static str,
        /// The error of the system.
        errno: Errno,
    },
}

impl NetError {
    /// The meaning of an error of the operating system about an address.
    pub(crate) fn at(address: SocketAddr, of: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::ADDRINUSE => Self::InUse { address, of },
            Errno::ADDRNOTAVAIL => Self::NotHere { address },
            Errno::ACCESS | Errno::PERM => Self::Permission { address },
            _ => Self::System { doing: "open a socket", errno },
        }
    }

    /// Adds what was tried.
    pub(crate) fn doing(doing: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::System { doing, errno }
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { address, of } => write!(
                f,
                "{address} is in use for {of}; end the program that uses it (`ss -lptun` names it), \
                 or configure another port for this process"
            ),
            Self::NotHere { address } => write!(
                f,
                "{address} is no address of this machine; configure one that `ip addr` lists"
            ),
            Self::Permission { address } => write!(
                f,
                "no permission to use {address}; choose a port from 1024 on, or another user"
            ),
            Self::NoSuch { me, count } => {
                write!(f, "there is no process {me:?}: {count} peers are configured")
            }
            Self::Group { address, errno } => write!(
                f,
                "cannot listen to the group address {address}: {errno}; choose an interface that                  carries multicast (`ip link` says MULTICAST), or send to groups without it"
            ),
            Self::Options { says } => f.write_str(says),
            Self::System { doing, errno } => write!(f, "cannot {doing}: {errno}"),
        }
    }
}

impl std::error::Error for NetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { errno, .. } => Some(errno),
            _ => None,
        }
    }
}

/// Why a connection broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkFailure {
    /// The other end closed it, or its process ended.
    Closed,
    /// More piled up than may wait for a peer; the bytes that did.
    Overflow(usize),
    /// The other end announced a frame over the limit; its bytes.
    TooLong(usize),
    /// The other end began a new connection.
    Replaced,
    /// This end gave it up: see [`Carrier::hang_up`](crate::Carrier::hang_up).
    HungUp,
    /// The operating system gave it up.
    System(Errno),
}

impl fmt::Display for LinkFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the other end closed it"),
            Self::Overflow(bytes) => {
                write!(f, "{bytes} bytes wait for it and no more may; it reads too slowly")
            }
            Self::TooLong(bytes) => {
                write!(f, "it announced a frame of {bytes} bytes, over the limit")
            }
            Self::Replaced => f.write_str("the other end began a new one"),
            Self::HungUp => f.write_str("this end gave it up"),
            Self::System(errno) => write!(f, "{errno}"),
        }
    }
}

/// Something worth a line in a log: nothing depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetDiagnostic {
    /// A connection is open.
    Up {
        /// With whom.
        pid: Pid,
        /// In which of its lives.
        incarnation: u32,
    },
    /// A connection broke.
    Down {
        /// With whom.
        pid: Pid,
        /// Why.
        why: LinkFailure,
    },
    /// A peer cannot be reached. Said once until it is reached.
    Unreachable {
        /// The peer.
        pid: Pid,
        /// Where.
        address: SocketAddr,
        /// The error of the system.
        errno: Errno,
    },
    /// The dialled peer did not let this process in. Reported for each attempt.
    RefusedBy {
        /// The peer.
        pid: Pid,
        /// Where.
        address: SocketAddr,
        /// Its reason.
        why: ConnectionRefusal,
        /// Which life of this process it knows, if that is why.
        life: u32,
    },
    /// This process refused a connection, from either end.
    Refused {
        /// Where it is.
        address: SocketAddr,
        /// The peer's own claim of its id; none if it speaks another version.
        pid: Option<Pid>,
        /// Why.
        why: ConnectionRefusal,
    },
    /// Something that is not this program, or too slow to say so.
    Stranger {
        /// From where.
        address: SocketAddr,
        /// Whether it began the handshake of this program and ended it, or fell silent, after this process had proved
        /// that it knows its secret: so does a peer with another secret.
        began: bool,
    },
    /// A datagram could not be sent. Said once until one can be.
    Undeliverable {
        /// To where.
        address: SocketAddr,
        /// The error of the system.
        errno: Errno,
    },
    /// A connected peer does not hear the multicast address of its group: it gets the group's datagrams one
    /// by one. Said once until it hears it.
    NoMulticast {
        /// The peer.
        pid: Pid,
        /// Where it is connected.
        address: SocketAddr,
        /// The group's address.
        group: SocketAddr,
    },
    /// It hears it now: one datagram for all reaches it.
    MulticastAgain {
        /// The peer.
        pid: Pid,
        /// The address.
        group: SocketAddr,
    },
    /// The system gave a socket a smaller buffer than was asked for: bursts get lost earlier.
    Buffer {
        /// For receiving or for sending.
        of: &'static str,
        /// The requested size, in bytes.
        asked: usize,
        /// The granted size, in bytes.
        got: usize,
        /// The system's setting that bounds it.
        setting: &'static str,
    },
    /// The system has no descriptors or memory for another connection; tried again soon.
    Short {
        /// The error of the system.
        errno: Errno,
    },
    /// The system does not take an option; it goes without.
    Option {
        /// Which option, or what it is for.
        name: &'static str,
        /// The error of the system.
        errno: Errno,
    },
}

impl NetDiagnostic {
    /// The remedy where multicast does not reach a peer.
    pub const NO_MULTICAST_ADVICE: &str = "put both hosts into one subnet, have the routers between them \
        pass multicast on (IGMP and PIM), let the firewall pass UDP to that address, or use lane=datagram";
}

impl fmt::Display for NetDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up { pid, incarnation } => write!(f, "connected to {pid:?}, life {incarnation}"),
            Self::Down { pid, why } => write!(f, "the connection to {pid:?} broke: {why}"),
            Self::Unreachable { pid, address, errno } => {
                write!(f, "{pid:?} at {address} cannot be reached: {errno}; trying again")
            }
            Self::RefusedBy { pid, address, why, .. } => {
                write!(f, "{pid:?} at {address} refuses this process: {why}")
            }
            Self::Refused { address, pid: None, why } => {
                write!(f, "{address} was refused: {why}")
            }
            Self::Refused { address, pid: Some(pid), why } => {
                write!(f, "{address}, which says that it is {pid:?}, was refused: {why}")
            }
            Self::Stranger { address, began: true } => {
                write!(
                    f,
                    "{address} connected and did not complete the handshake: it ended, or was too slow, as a node is that \
                     begins with much to read; if this comes again and again, its secret is another one than the one \
                     here: give all nodes the same file as `secret`, and start them again"
                )
            }
            Self::Stranger { address, began: false } => {
                write!(
                    f,
                    "{address} connected and is not this program, or was too slow to say so; is the port right there?"
                )
            }
            Self::Undeliverable { address, errno } => {
                write!(f, "datagrams to {address} cannot be sent: {errno}")
            }
            Self::NoMulticast { pid, address, group } => write!(
                f,
                "multicast to {group} does not reach {pid:?} at {address}, which gets each datagram by itself; {}",
                Self::NO_MULTICAST_ADVICE
            ),
            Self::MulticastAgain { pid, group } => {
                write!(f, "multicast to {group} reaches {pid:?} again")
            }
            Self::Buffer { of, asked, got, setting } => write!(
                f,
                "the buffer for {of} datagrams has {got} bytes, not {asked}: raise {setting}"
            ),
            Self::Short { errno } => write!(
                f,
                "a connection cannot be taken: {errno}; raise the limit of open files (`ulimit -n`)"
            ),
            Self::Option { name, errno } => write!(f, "the system does not take {name}: {errno}"),
        }
    }
}

/// How many remarks are kept until somebody takes them.
const REMARKS_MAX: usize = 256;

/// Remarks that nobody took yet. When there are too many the oldest make room, and are counted.
#[derive(Debug, Default)]
pub(crate) struct NetDiagnostics(VecDeque<NetDiagnostic>);

impl NetDiagnostics {
    /// Puts one in; says how many were lost for it.
    pub(crate) fn put(&mut self, remark: NetDiagnostic) -> u64 {
        let lost = self.0.len() >= REMARKS_MAX;
        if lost {
            self.0.pop_front();
        }
        self.0.push_back(remark);
        u64::from(lost)
    }

    /// Takes out the oldest.
    pub(crate) fn take(&mut self) -> Option<NetDiagnostic> {
        self.0.pop_front()
    }
}
