//! A directory of a measurement's own, which goes with it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that no other measurement has, removed with this.
pub(in crate::bench) struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Makes one under `base`; errors say with `choose` how to give another directory than that.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(in crate::bench) fn under(base: &Path, name: &str, choose: &str) -> Result<Self, String> {
        // Several may be measured beside each other.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (nth, process) = (MADE.fetch_add(1, Ordering::Relaxed), std::process::id());
        let path = base.join(format!("amcast-bench-{name}-{process}-{nth}"));
        let wrong = |e| format!("{}: {e}; {choose} another directory", path.display());
        std::fs::create_dir_all(&path).map_err(wrong)?;
        // Those that work in it may be elsewhere.
        Ok(Self(path.canonicalize().map_err(wrong)?))
    }

    /// Makes one in the temporary directory.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(in crate::bench) fn temporary(name: &str) -> Result<Self, String> {
        Self::under(&std::env::temp_dir(), name, "set TMPDIR to")
    }

    /// Warns if what is synced in it is in memory only; `choose` says how to give another directory.
    pub(in crate::bench) fn warn_if_in_memory(self, choose: &str) -> Self {
        const TMPFS: i64 = 0x0102_1994;
        const RAMFS: i64 = 0x8584_58f6;
        let kind = rustix::fs::statfs(&self.0).map(|system| system.f_type);
        if kind.is_ok_and(|kind| kind == TMPFS || kind == RAMFS) {
            let base = self.0.parent().unwrap_or(&self.0).display();
            tracing::warn!(
                "{base} is in memory, where a sync costs nothing; {choose} a directory on a disk"
            );
        }
        self
    }

    /// Where it is.
    pub(in crate::bench) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("{} is not removed: {e}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_directory_of_its_own_and_takes_it_along() {
        let made = ["x", "x"].map(|name| ScratchDir::temporary(name).unwrap());
        let paths = made.each_ref().map(|dir| dir.path().to_path_buf());
        assert_ne!(paths[0], paths[1]);
        std::fs::write(paths[0].join("file"), "").unwrap();
        assert!(paths.iter().all(|path| path.is_dir()));
        drop(made);
        assert!(paths.iter().all(|path| !path.exists()));
        let why = ScratchDir::under(Path::new("/dev/null"), "x", "give --data").err().unwrap();
        assert!(why.starts_with("/dev/null/amcast-bench-x-") && why.ends_with("another directory"));
    }
}
