//! Making the file with what the nodes of a cluster know and strangers do not.

use crate::system::sync_folder_of;
use amcast_net::nonce;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Makes the file at `path` with a secret that was drawn for it, for its owner alone; one that is there stays. Nobody
/// ever finds a part of it there.
///
/// # Errors
/// When it cannot be written, or the system has no randomness.
pub fn make(path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // A process that was killed may have left one.
    remove(&new)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let mut text = random_word()? + &random_word()?;
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    match fs::hard_link(&new, path) {
        // Somebody was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        // A file system without links.
        Err(_) => fs::rename(&new, path)?,
        Ok(()) => {}
    }
    remove(&new)?;
    sync_folder_of(path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// 32 letters and digits that nobody guesses.
///
/// # Errors
/// When the system has no randomness.
pub fn random_word() -> io::Result<String> {
    Ok(crate::node_address::hex(&nonce()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_net::Secret;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_secret_is_made_once_and_for_its_owner_alone() {
        let _limit = amcast_test_policy::time_limit();
        let path = std::env::temp_dir().join(format!("amcast-secret-{}", std::process::id()));
        make(&path).unwrap();
        let made = std::fs::read(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        make(&path).unwrap();
        let again = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((mode & 0o777, &made), (0o600, &again));
        assert!(Secret::parse(&made).is_ok() && made.len() == 65);
    }

    #[test]
    fn nobody_finds_a_part_of_a_secret() {
        let _limit = amcast_test_policy::time_limit();
        let path = std::env::temp_dir().join(format!("amcast-secret-part-{}", std::process::id()));
        let new = path.with_extension("new");
        // As one was left by a process that was killed.
        std::fs::write(&new, "half").unwrap();
        let made = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..300 {
                    make(&path).unwrap();
                    assert!(!new.exists());
                    std::fs::remove_file(&path).unwrap();
                }
                made.store(true, Ordering::Release);
            });
            while !made.load(Ordering::Acquire) {
                // Whenever this process is killed, this is what the next one finds.
                if let Ok(found) = std::fs::read(&path) {
                    assert_eq!(found.len(), 65);
                }
            }
        });
    }
}
