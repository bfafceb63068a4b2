//! Making the file with what the nodes of a cluster know and strangers do not.

use amcast_net::nonce;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes the file at `path` with a secret that was drawn for it, for its owner alone; one that is there stays.
///
/// # Errors
/// When it cannot be written, or the system has no randomness.
pub fn make(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = match file {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        file => file?,
    };
    let mut text = random_word()? + &random_word()?;
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_all()
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
}
