//! How a cluster's file is read.

use super::{ClusterFile, FileError, names};
use crate::system::{PipeInput, SETTINGS_BYTES_MAX, read_bytes, read_text};
use amcast_net::Secret;
use std::path::Path;

impl ClusterFile {
    /// Reads the file at `path`. A program may read it again later, so it is no pipe.
    ///
    /// # Errors
    /// When it cannot be read, is no file or a large one ([`read_text`]), is not TOML, or holds an unknown key.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::read_as_written(path, PipeInput::Refused)?.seen_from(path)
    }

    /// The same for a program that reads it only here: it may be a pipe.
    ///
    /// # Errors
    /// As [`ClusterFile::read`].
    pub fn read_once(path: &Path) -> Result<Self, FileError> {
        Self::read_as_written(path, PipeInput::Accepted)?.seen_from(path)
    }

    fn seen_from(mut self, path: &Path) -> Result<Self, FileError> {
        self.resolve_paths(path)?;
        Ok(self)
    }

    /// The same with its paths as they are written.
    pub(super) fn read_as_written(path: &Path, pipes: PipeInput) -> Result<Self, FileError> {
        let text = read_text(path, SETTINGS_BYTES_MAX, pipes);
        let text = text.map_err(|e| FileError::Io(path.to_path_buf(), e))?;
        toml::from_str(&text)
            .map_err(|e| FileError::Syntax(path.to_path_buf(), names::with_nearest(&e.to_string())))
    }

    /// The shared secret of the cluster's nodes, if any.
    ///
    /// # Errors
    /// When its file cannot be read, or has no secret in it.
    pub fn read_secret(&self) -> Result<Secret, FileError> {
        let Some(path) = &self.secret else { return Ok(Secret::default()) };
        let text = read_bytes(path, SETTINGS_BYTES_MAX, PipeInput::Refused);
        let text = text.map_err(|e| FileError::Io(path.clone(), e))?;
        Secret::parse(&text).map_err(|why| FileError::Syntax(path.clone(), why))
    }
}
