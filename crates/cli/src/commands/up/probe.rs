//! The command by which a starting cluster shows that it serves.

use amcast::client::Connection;
use std::net::SocketAddr;

/// A client's write that leaves nothing behind.
pub(super) struct ServingProbe<'a> {
    /// The Redis gateway.
    pub(super) door: SocketAddr,
    pub(super) password: Option<&'a str>,
    /// Whether a command may go to several shards.
    pub(super) together: bool,
}

impl ServingProbe<'_> {
    /// Writes over enough keys that every shard takes part.
    ///
    /// # Errors
    /// When the cluster does not answer, or refuses it.
    pub(super) fn run(&self) -> Result<(), String> {
        let keys: Vec<String> = (0..256).map(|i| format!("amcast:probe:{i}")).collect();
        let words: Vec<&[u8]> =
            std::iter::once(&b"DEL"[..]).chain(keys.iter().map(String::as_bytes)).collect();
        let mut connection = Connection::open(&self.door.to_string()).map_err(|e| e.to_string())?;
        connection.log_in(self.password).map_err(|e| e.to_string())?;
        let mut call = |words: &[&[u8]]| match connection.call(words) {
            Ok(answer) if answer.is_error() => Err(answer.to_string()),
            Ok(_) => Ok(()),
            Err(e) => Err(e.to_string()),
        };
        if self.together {
            return call(&words);
        }
        // A shard at a time.
        words[1..].iter().try_for_each(|key| call(&[words[0], key]))
    }
}
