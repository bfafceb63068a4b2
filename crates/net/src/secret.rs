//! The secret of a cluster's nodes, which strangers do not know.
//!
//! Each end of a connection proves that it knows it before the other one believes, learns or tells
//! anything: a peer that is let in may speak for a node. A proof is an HMAC with SHA-256 over numbers that both
//! ends drew for this connection alone, and over the proved bytes, so that none serves twice. Later bytes of the connection are
//! neither encrypted nor proved: that is for networks that nobody else reads or writes.

use ring::hmac;
use std::fmt;
use std::sync::Arc;

/// How long a proof is, in bytes.
pub const PROOF_BYTES: usize = 32;

/// How long a nonce is, in bytes.
pub const NONCE_BYTES: usize = 16;

/// Shorter ones could be found by trying.
const SECRET_BYTES_MIN: usize = 32;

/// More is nobody's secret.
const SECRET_BYTES_MAX: usize = 4096;

/// A number that is drawn for one connection.
pub type Nonce = [u8; NONCE_BYTES];

/// Shows that its sender knows the secret.
pub type Proof = [u8; PROOF_BYTES];

/// The purpose of a proof: one for the one does not serve for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The dialled process knows the secret.
    Challenge,
    /// The dialling process knows it, and sends this hello.
    Ask,
    /// The answer to that.
    Answer,
    /// A request at a control address, and its answer.
    Control,
    /// See `Control`.
    ControlAnswer,
    /// The number of datagrams.
    Datagram,
}

impl Purpose {
    const fn name(self) -> &'static [u8] {
        match self {
            Self::Challenge => b"amcast challenge",
            Self::Ask => b"amcast ask",
            Self::Answer => b"amcast answer",
            Self::Control => b"amcast control",
            Self::ControlAnswer => b"amcast control answer",
            Self::Datagram => b"amcast datagram",
        }
    }
}

/// The secret of a cluster; or none, which anybody knows.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Arc<[u8]>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_none() { "Secret(none)" } else { "Secret(..)" })
    }
}

impl Secret {
    /// The secret that is written in `text`, without surrounding space.
    ///
    /// # Errors
    /// When it has fewer than 32 bytes, or more than 4096; the sentence says so.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let bytes = text.trim_ascii();
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Err(format!(
                "a secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, and this one has {}",
                bytes.len()
            ));
        }
        Ok(Self(bytes.into()))
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The proof of a holder of the secret, over these parts.
    pub fn prove(&self, purpose: Purpose, parts: &[&[u8]]) -> Proof {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let signed = hmac::sign(&key, &Self::said(purpose, parts));
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(signed.as_ref());
        proof
    }

    /// Whether this is that proof; takes as long for a wrong one as for the right one.
    pub fn is_proved(&self, purpose: Purpose, parts: &[&[u8]], proof: &[u8]) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        hmac::verify(&key, &Self::said(purpose, parts), proof).is_ok()
    }

    /// A number for the datagrams of the cluster of this number, which a process without the secret cannot guess;
    /// it travels in clear.
    pub fn datagram_id(&self, cluster: u64) -> u64 {
        if self.is_none() {
            return cluster;
        }
        let proof = self.prove(Purpose::Datagram, &[&cluster.to_le_bytes()]);
        u64::from_le_bytes(*proof.first_chunk().expect("a proof is longer"))
    }

    /// Parts stand behind their lengths: no two lists of them give the same bytes.
    fn said(purpose: Purpose, parts: &[&[u8]]) -> Vec<u8> {
        let mut said = Vec::new();
        for part in std::iter::once(&purpose.name()).chain(parts) {
            said.extend_from_slice(&(part.len() as u64).to_le_bytes());
            said.extend_from_slice(part);
        }
        said
    }
}

/// Draws a nonce.
///
/// # Errors
/// When the system has no randomness.
pub fn nonce() -> std::io::Result<Nonce> {
    let mut nonce = [0; NONCE_BYTES];
    let drawn = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    // So few bytes are never cut short, once the system has any.
    assert_eq!(drawn, NONCE_BYTES);
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_secret_proves_it_and_for_one_purpose() {
        let secret = Secret::parse(&[b'x'; 32]).unwrap();
        let other = Secret::parse(&[b'y'; 32]).unwrap();
        let proof = secret.prove(Purpose::Ask, &[b"a", b"bc"]);
        assert!(secret.is_proved(Purpose::Ask, &[b"a", b"bc"], &proof));
        assert!(!secret.is_proved(Purpose::Answer, &[b"a", b"bc"], &proof));
        assert!(!secret.is_proved(Purpose::Ask, &[b"ab", b"c"], &proof));
        assert!(!secret.is_proved(Purpose::Ask, &[b"a", b"bc"], &proof[..31]));
        assert!(!other.is_proved(Purpose::Ask, &[b"a", b"bc"], &proof));
        assert!(!Secret::default().is_proved(Purpose::Ask, &[b"a", b"bc"], &proof));
        assert_ne!(secret.datagram_id(7), other.datagram_id(7));
        assert_eq!(Secret::default().datagram_id(7), 7);
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }

    #[test]
    fn a_secret_is_long_and_is_not_shown() {
        let read = |bytes: usize| Secret::parse(&[vec![b'x'; bytes], vec![b'\n']].concat());
        assert!(
            read(31).unwrap_err().starts_with("a secret has 32 to 4096 bytes, and this one has 31")
        );
        assert!(read(4097).is_err());
        assert_eq!(read(32), Secret::parse(&[b'x'; 32]), "the end of the line is not of it");
        assert_eq!(
            format!("{:?} {:?}", read(32).unwrap(), Secret::default()),
            "Secret(..) Secret(none)"
        );
    }
}
