//! The exchange before the hellos: each end draws a nonce, and the dialled one proves first that it knows
//! the cluster's secret. Neither end sends anything of the cluster before.

use super::VERSION;
use super::hello::{HELLO_BYTES, Hello, MAGIC, NotHello};
use crate::secret::{NONCE_BYTES, Nonce, PROOF_BYTES, Proof, Purpose, Secret};

/// Bytes of the magic, the version, what this is, and a zero.
const HEAD_BYTES: usize = 8;

/// How long an opening is, in bytes.
pub const OPENING_BYTES: usize = HEAD_BYTES + NONCE_BYTES;

/// How long a challenge is, in bytes.
pub const CHALLENGE_BYTES: usize = HEAD_BYTES + NONCE_BYTES + PROOF_BYTES;

/// How long a hello is with its proof, in bytes.
pub const PROVED_BYTES: usize = HELLO_BYTES + PROOF_BYTES;

const OPENING: u8 = 3;
const CHALLENGE: u8 = 4;

fn head(kind: u8) -> [u8; HEAD_BYTES] {
    let ([a, b, c, d], [e, f]) = (MAGIC.to_le_bytes(), VERSION.to_le_bytes());
    [a, b, c, d, e, f, kind, 0]
}

/// The bytes behind the head of this kind.
fn behind(bytes: &[u8], kind: u8) -> Result<&[u8], NotHello> {
    let (begun, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(NotHello::Stranger)?;
    let [a, b, c, d, e, f, said, zero] = *begun;
    match (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f])) {
        (MAGIC, VERSION) if (said, zero) == (kind, 0) => Ok(rest),
        (MAGIC, version) if version != VERSION => Err(NotHello::Version(version)),
        _ => Err(NotHello::Stranger),
    }
}

/// The first bytes of who dialled: the nonce that it drew.
pub fn opening(nonce: &Nonce) -> [u8; OPENING_BYTES] {
    let mut bytes = [0; OPENING_BYTES];
    bytes[..HEAD_BYTES].copy_from_slice(&head(OPENING));
    bytes[HEAD_BYTES..].copy_from_slice(nonce);
    bytes
}

/// The nonce in an opening.
///
/// # Errors
/// When it is none, or of another version.
pub fn read_opening(bytes: &[u8; OPENING_BYTES]) -> Result<Nonce, NotHello> {
    behind(bytes, OPENING)?.try_into().map_err(|_| NotHello::Stranger)
}

/// The nonces of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonces {
    /// Drawn by who dialled.
    pub dialler: Nonce,
    /// Drawn by who was dialled.
    pub dialled: Nonce,
}

impl Nonces {
    fn prove(&self, secret: &Secret, purpose: Purpose, said: &[u8]) -> Proof {
        secret.prove(purpose, &[&self.dialler, &self.dialled, said])
    }

    /// The first bytes of who was dialled: the nonce that it drew, and that it knows the secret.
    pub fn challenge(&self, secret: &Secret) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [0; CHALLENGE_BYTES];
        bytes[..HEAD_BYTES].copy_from_slice(&head(CHALLENGE));
        bytes[HEAD_BYTES..OPENING_BYTES].copy_from_slice(&self.dialled);
        bytes[OPENING_BYTES..].copy_from_slice(&self.prove(secret, Purpose::Challenge, b""));
        bytes
    }

    /// The nonces of a connection on which `dialler` was answered with a challenge; none if the answering process
    /// does not know the secret.
    ///
    /// # Errors
    /// When it is no challenge, or of another version.
    pub fn of_challenge(
        dialler: Nonce,
        bytes: &[u8; CHALLENGE_BYTES],
        secret: &Secret,
    ) -> Result<Option<Self>, NotHello> {
        let rest = behind(bytes, CHALLENGE)?;
        let (dialled, proof) = rest.split_first_chunk().ok_or(NotHello::Stranger)?;
        let parts: [&[u8]; 3] = [&dialler, dialled, b""];
        let nonces = Self { dialler, dialled: *dialled };
        Ok(secret.is_proved(Purpose::Challenge, &parts, proof).then_some(nonces))
    }

    /// A hello with its proof: [`Purpose::Ask`] of who dialled, [`Purpose::Answer`] of the other.
    pub fn hello(&self, secret: &Secret, purpose: Purpose, hello: &Hello) -> [u8; PROVED_BYTES] {
        let said = hello.encode();
        let mut bytes = [0; PROVED_BYTES];
        bytes[..HELLO_BYTES].copy_from_slice(&said);
        bytes[HELLO_BYTES..].copy_from_slice(&self.prove(secret, purpose, &said));
        bytes
    }

    /// Reads it back; none if its sender does not know the secret.
    ///
    /// # Errors
    /// When it is no hello of this version.
    pub fn read_hello(
        &self,
        secret: &Secret,
        purpose: Purpose,
        bytes: &[u8; PROVED_BYTES],
    ) -> Result<Option<Hello>, NotHello> {
        let (said, proof) = bytes.split_first_chunk::<HELLO_BYTES>().ok_or(NotHello::Stranger)?;
        // Bytes without a proof are not looked at.
        if !secret.is_proved(purpose, &[&self.dialler, &self.dialled, said], proof) {
            return Ok(None);
        }
        Hello::decode(said).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings_digest::SettingsDigest;
    use crate::wire::{ConnectionRefusal, HandshakeMessage};
    use amcast_core::Pid;

    const NONCES: Nonces = Nonces { dialler: [7; NONCE_BYTES], dialled: [8; NONCE_BYTES] };

    fn hello() -> Hello {
        Hello {
            said: HandshakeMessage::Ask,
            cluster: 1,
            from: Pid(1),
            to: Pid(0),
            incarnation: 2,
            processes: 3,
            disk: 4,
            start: 5,
            anew: false,
            decides: SettingsDigest::default(),
        }
    }

    #[test]
    fn what_both_ends_say_reads_back_and_begins_with_these_bytes() {
        let secret = Secret::parse(&[b's'; 32]).unwrap();
        let opening = opening(&NONCES.dialler);
        assert_eq!(opening[..9], [b'a', b'm', b'c', b'S', 14, 0, 3, 0, 7]);
        assert_eq!(read_opening(&opening), Ok(NONCES.dialler));
        let challenge = NONCES.challenge(&secret);
        assert_eq!(challenge[..9], [b'a', b'm', b'c', b'S', 14, 0, 4, 0, 8]);
        let read = Nonces::of_challenge(NONCES.dialler, &challenge, &secret);
        assert_eq!(read, Ok(Some(NONCES)));
        for purpose in [Purpose::Ask, Purpose::Answer] {
            let said = NONCES.hello(&secret, purpose, &hello());
            assert_eq!(NONCES.read_hello(&secret, purpose, &said), Ok(Some(hello())));
        }
    }

    #[test]
    fn a_stranger_proves_nothing_also_with_what_was_said_before() {
        let (secret, none) = (Secret::parse(&[b's'; 32]).unwrap(), Secret::default());
        let challenge = NONCES.challenge(&none);
        assert_eq!(Nonces::of_challenge(NONCES.dialler, &challenge, &secret), Ok(None));
        let of_another =
            Nonces::of_challenge([9; NONCE_BYTES], &NONCES.challenge(&secret), &secret);
        assert_eq!(of_another, Ok(None), "it was said on another connection");
        let asked = NONCES.hello(&secret, Purpose::Ask, &hello());
        let again = Nonces { dialled: [9; NONCE_BYTES], ..NONCES };
        assert_eq!(again.read_hello(&secret, Purpose::Ask, &asked), Ok(None));
        assert_eq!(NONCES.read_hello(&secret, Purpose::Answer, &asked), Ok(None), "sent back");
        let other = Hello { incarnation: 9, ..hello() };
        let mut changed = NONCES.hello(&secret, Purpose::Ask, &other);
        changed[HELLO_BYTES..].copy_from_slice(&asked[HELLO_BYTES..]);
        assert_eq!(NONCES.read_hello(&secret, Purpose::Ask, &changed), Ok(None));
    }

    #[test]
    fn other_versions_are_told_apart_from_strangers() {
        let mut older = opening(&NONCES.dialler);
        older[4] = 7;
        assert_eq!(read_opening(&older), Err(NotHello::Version(7)));
        older[0] = b'G';
        assert_eq!(read_opening(&older), Err(NotHello::Stranger));
        // An older one answers with a refusal, which may end sooner than a challenge.
        let mut refused = [0; CHALLENGE_BYTES];
        let said = Hello { said: HandshakeMessage::Refuse(ConnectionRefusal::Version), ..hello() }
            .encode();
        refused.copy_from_slice(&said[..CHALLENGE_BYTES]);
        refused[4] = 7;
        let read = Nonces::of_challenge(NONCES.dialler, &refused, &Secret::default());
        assert_eq!(read, Err(NotHello::Version(7)));
    }
}
