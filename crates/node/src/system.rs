//! Errors of the operating system, with their object and the remedy.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Returns when the name of this file survives the end of the machine, or its absence.
///
/// # Errors
/// When nobody knows whether it does.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    #[cfg(test)]
    SYNCED.with_borrow_mut(|synced| synced.push(folder.to_path_buf()));
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// The directories that this thread has synced.
    static SYNCED: std::cell::RefCell<Vec<std::path::PathBuf>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Whether this thread has synced the directory since it last asked.
#[cfg(test)]
pub(crate) fn was_synced(folder: &Path) -> bool {
    SYNCED.take().iter().any(|synced| synced == folder)
}

/// Whether this process, or the machine, may open no more files.
pub fn has_too_many_files(e: &Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::MFILE | Errno::NFILE))
}

/// A file or directory that cannot be used.
pub fn refuses_file(path: &Path, e: &Error) -> String {
    let path = path.display();
    match e.kind() {
        ErrorKind::NotFound => format!("{path}: there is nothing of this name"),
        ErrorKind::PermissionDenied => format!(
            "{path}: this user may not use it ({e}); `ls -ld {path}` says who may: be that user, or have \
             its owner let you"
        ),
        ErrorKind::IsADirectory => format!("{path}: is a directory; give a file"),
        ErrorKind::NotADirectory => {
            format!("{path}: a file is in the place of one of its directories")
        }
        ErrorKind::InvalidData if e.raw_os_error().is_none() => {
            format!("{path}: is not what it should be ({e})")
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("{path}: there is no room left for it ({e}); make some, and try again")
        }
        ErrorKind::ReadOnlyFilesystem => {
            format!("{path}: is on a file system for reading only ({e}); give another place")
        }
        _ => format!("{path}: cannot be used: {e}"),
    }
}

/// A file that should be text, and cannot be read.
pub fn refuses_text(path: &Path, e: &Error) -> String {
    if e.kind() == ErrorKind::InvalidData && e.raw_os_error().is_none() {
        return format!("{}: is no text (UTF-8); is it the right file?", path.display());
    }
    refuses_file(path, e)
}

/// An address, `host:port`, where something was to be reached.
pub fn refuses_address(at: &str, e: &Error) -> String {
    match e.kind() {
        ErrorKind::ConnectionRefused => format!(
            "{at}: nobody listens there (connection refused); `amcast status` names the addresses of a \
             cluster of this machine"
        ),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            format!("{at}: no answer came in time; is it the right host, and does it run?")
        }
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
            format!("{at}: this host cannot be reached from here ({e})")
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            format!("{at}: the connection broke ({e}); is it the port of a gateway?")
        }
        _ => format!("{at}: cannot be reached: {e}"),
    }
}

/// Opens a file for reading, at once: of a FIFO in its place nobody may have the other end open.
pub(crate) fn open_at_once(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_named_with_what_to_do() {
        let path = Path::new("/d/file");
        let file = |kind: ErrorKind| refuses_file(path, &Error::from(kind));
        assert_eq!(file(ErrorKind::NotFound), "/d/file: there is nothing of this name");
        let denied = file(ErrorKind::PermissionDenied);
        assert!(denied.starts_with("/d/file: ") && denied.contains("ls -ld /d/file"), "{denied}");
        let text = refuses_text(path, &Error::from(ErrorKind::InvalidData));
        assert!(text.contains("/d/file: is no text"), "{text}");
        assert_eq!(
            refuses_text(path, &Error::from(ErrorKind::NotFound)),
            file(ErrorKind::NotFound)
        );
        let nobody = refuses_address("h:1", &Error::from(ErrorKind::ConnectionRefused));
        assert!(nobody.starts_with("h:1: nobody listens there"), "{nobody}");
        for kind in [ErrorKind::TimedOut, ErrorKind::Other, ErrorKind::UnexpectedEof] {
            assert!(refuses_address("h:1", &Error::from(kind)).starts_with("h:1: "));
        }
    }
}
