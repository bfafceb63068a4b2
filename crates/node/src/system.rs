//! Errors of the operating system, with their object and the remedy.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Error, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
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

/// Returns when the name of this directory survives the end of the machine. The one that it lies in may be of another user
/// who lets nobody read it: then all of the file system is written.
///
/// # Errors
/// When nobody knows whether it does.
pub(crate) fn sync_name_of(directory: &Path) -> io::Result<()> {
    // It may be called by a link, or `.`: its own place is what counts.
    let place = directory.canonicalize()?;
    match sync_folder_of(&place) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            Ok(rustix::fs::syncfs(File::open(place)?)?)
        }
        synced => synced,
    }
}

/// Returns when the contents of the file at `path` survive the end of the machine.
///
/// # Errors
/// When nobody knows whether they do.
pub(crate) fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    #[cfg(test)]
    SYNCED.with_borrow_mut(|synced| synced.push(path.to_path_buf()));
    #[cfg(not(test))]
    let _ = path;
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// The files and directories that this thread has synced.
    static SYNCED: std::cell::RefCell<Vec<std::path::PathBuf>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The files and directories that this thread has synced since it last asked.
#[cfg(test)]
pub(crate) fn synced() -> Vec<std::path::PathBuf> {
    SYNCED.take()
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

/// The most bytes of a file in which people write settings, or a password.
pub const SETTINGS_BYTES_MAX: usize = 1 << 20;

/// Whether text may also come through a pipe without a name, as a shell makes one for `<(..)` and `|`. It can be read once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PipeInput {
    /// It may.
    Accepted,
    /// It may not, since the text is read again later.
    Refused,
}

/// Reads a file of text, of at most so many bytes.
///
/// # Errors
/// As [`read_bytes`], and when it is no UTF-8.
pub fn read_text(path: &Path, bytes_max: usize, pipes: PipeInput) -> io::Result<String> {
    let text = String::from_utf8(read_bytes(path, bytes_max, pipes)?);
    text.map_err(|e| Error::new(ErrorKind::InvalidData, e))
}

/// Reads a file of at most so many bytes.
///
/// # Errors
/// When it cannot be read, has more bytes, or is something that may block its reader for ever or never end: a
/// named pipe, a device but /dev/null, a socket.
pub fn read_bytes(path: &Path, bytes_max: usize, pipes: PipeInput) -> io::Result<Vec<u8>> {
    let refuse = |why: &str| Err(Error::new(ErrorKind::InvalidInput, why));
    let kind = fs::metadata(path)?.file_type();
    // A pipe without a name has no path but those of descriptors. One that this process has open has had a writer.
    if kind.is_fifo() && path.canonicalize().is_ok() && !is_of_descriptor(path) {
        return refuse("it is a named pipe (FIFO), to which nobody may ever write; give a file");
    }
    if kind.is_fifo() && pipes == PipeInput::Refused {
        return refuse("it is a pipe, which can be read only once; give a file");
    }
    let is_empty = path.canonicalize().is_ok_and(|path| path == Path::new("/dev/null"));
    if (kind.is_char_device() && !is_empty) || kind.is_block_device() || kind.is_socket() {
        return refuse("it is a device or a socket; give a file");
    }
    let mut bytes = Vec::new();
    let most = (bytes_max as u64).saturating_add(1);
    let file = if kind.is_fifo() { reopen_pipe(path)? } else { File::open(path)? };
    file.take(most).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        let why = format!("it has more than {bytes_max} bytes; is it the right file?");
        return Err(Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Whether a path names what this process has open.
fn is_of_descriptor(path: &Path) -> bool {
    let parents = ["/dev/fd", "/proc/self/fd"].map(Path::new);
    path == Path::new("/dev/stdin") || path.parent().is_some_and(|parent| parents.contains(&parent))
}

/// Opens a pipe that this process has open once more. Its writer may have ended already, and what it wrote is still
/// there: it is not waited for another writer, but a reader waits for one that is there.
fn reopen_pipe(path: &Path) -> io::Result<File> {
    let pipe = open_at_once(path)?;
    let flags = fcntl_getfl(&pipe)?;
    fcntl_setfl(&pipe, flags - OFlags::NONBLOCK)?;
    Ok(pipe)
}

/// Opens a file for reading, at once: of a FIFO in its place nobody may have the other end open.
pub(crate) fn open_at_once(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_from_files_and_perhaps_from_pipes_and_from_nothing_that_may_not_end() {
        let _limit = amcast_test_policy::time_limit();
        let dir = std::env::temp_dir().join(format!("amcast-read-text-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (file, fifo) = (dir.join("file"), dir.join("fifo"));
        fs::write(&file, "twelve bytes").unwrap();
        let read = |path: &Path, most| read_text(path, most, PipeInput::Accepted);
        assert_eq!(read(&file, 12).unwrap(), "twelve bytes");
        assert_eq!(read(&file, 11).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for endless in [&fifo, Path::new("/dev/zero")] {
            let refused = refuses_text(endless, &read(endless, 12).unwrap_err());
            assert!(refused.ends_with("; give a file"), "{refused}");
        }
        assert_eq!(read(Path::new("/dev/null"), 12).unwrap(), "");
        assert_eq!(read(&dir, 12).unwrap_err().kind(), ErrorKind::IsADirectory);
        let (from, mut to) = io::pipe().unwrap();
        let pipe = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&from));
        let again = read_text(Path::new(&pipe), 12, PipeInput::Refused).unwrap_err();
        assert!(again.to_string().contains("only once"), "{again}");
        io::Write::write_all(&mut to, b"piped").unwrap();
        drop(to);
        assert_eq!(read(Path::new(&pipe), 12).unwrap(), "piped");
        // One with a name that a shell has opened, as `< fifo` does; its writer has ended.
        let from = open_at_once(&fifo).unwrap();
        fs::write(&fifo, "by name").unwrap();
        let pipe = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&from));
        let again = read_text(Path::new(&pipe), 12, PipeInput::Refused).unwrap_err();
        assert!(again.to_string().contains("only once"), "{again}");
        assert_eq!(read(Path::new(&pipe), 12).unwrap(), "by name");
        fs::remove_dir_all(&dir).unwrap();
    }

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
