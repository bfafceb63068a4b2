//! A network namespace: threads enter it, programs run in it.

use crate::LabError;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The folder in which the program `ip` keeps namespaces by name.
pub(crate) const FOLDER: &str = "/run/netns";

/// The file of a namespace.
pub(crate) fn path_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// A host's network namespace, opened. It continues to be usable while this is held.
#[derive(Debug)]
pub struct HostNamespace {
    file: File,
}

impl HostNamespace {
    pub(crate) fn open(name: &str) -> Result<Self, LabError> {
        let file = File::open(path_of(name));
        let file = file.map_err(|e| LabError::system(format!("open the namespace {name}"), e))?;
        Ok(Self { file })
    }

    /// Moves the calling thread to the host, together with all threads and programs that it starts from now
    /// on. Sockets remain on the host on which they were opened.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn enter(&self) -> Result<(), LabError> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|e| LabError::system("enter a network namespace", e))
    }

    /// Has a thread of its own do something on the host, and waits for it.
    ///
    /// # Errors
    /// When the thread cannot enter the host.
    ///
    /// # Panics
    /// If `act` panics, with the same message.
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        std::thread::scope(|scope| {
            let there = || {
                self.enter()?;
                Ok(act())
            };
            match scope.spawn(there).join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}
