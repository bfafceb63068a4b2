//! Why a node could not start, or ended by itself.

use crate::memory_driver::MemoryDriverError;
use crate::memory_links::LinksError;
use crate::system::refuses_file;
use amcast_core::ConfigError;
use std::fmt;
use std::path::PathBuf;

/// Why a node could not start.
#[derive(Debug)]
pub enum NodeError {
    /// The configuration.
    Config(ConfigError),
    /// A process of it.
    MemoryDriver(MemoryDriverError),
    /// Its connections to the other nodes.
    Net(amcast_net::NetError),
    /// Its connections to the memory of other hosts.
    Links(LinksError),
    /// This node runs already, as another process.
    Runs(String),
    /// Its control socket or history.
    Io(PathBuf, std::io::Error),
    /// Its application.
    Application(std::io::Error),
    /// A fault of its data on disk; the sentence names the remedy.
    Disk(String),
    /// Its state is not the one that a majority of the replicas has; the sentence says what to do.
    Differs(String),
    /// It lived before on a disk that is gone, as another node says, or a log of it was cut short: at its
    /// next start it asks the others what it had promised.
    Anew(String),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(e) => e.fmt(f),
            Self::MemoryDriver(e) => e.fmt(f),
            Self::Net(e) => e.fmt(f),
            Self::Links(e) => e.fmt(f),
            Self::Runs(name) => write!(f, "{name} runs already; end that process first"),
            Self::Io(path, e) => f.write_str(&refuses_file(path, e)),
            Self::Application(e) => write!(f, "the application of the node cannot be started: {e}"),
            Self::Disk(why) | Self::Differs(why) | Self::Anew(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for NodeError {}
