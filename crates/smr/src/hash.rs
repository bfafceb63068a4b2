//! Keyed hashing of keys and members.

use siphasher::sip::SipHasher13;
use std::fmt;
use std::hash::{BuildHasher, DefaultHasher, RandomState};
use std::sync::OnceLock;

/// The seed of the hashes of keys, the same on all nodes of a cluster for ever: `SCAN` walks keys in the order of
/// their hashes, and moves them in it. A client that knows it can choose keys that all have one hash, so that finding
/// them is slow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum HashSeed {
    /// The seed that all clusters had at first, and the hash of that time: it is in the source, and
    /// keys that share hashes can be computed. Clusters of that time keep it.
    Fixed(u64),
    /// A key of SipHash-1-3 of the cluster's own.
    Own([u8; 16]),
}

impl HashSeed {
    /// Reads a seed of 32 hexadecimal digits.
    pub fn parse(digits: &str) -> Option<Self> {
        let well = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let number = u128::from_str_radix(digits, 16).ok().filter(|_| well);
        number.map(|number| Self::Own(number.to_be_bytes()))
    }

    /// A 64-bit hash of `bytes`, the same on every machine.
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        match self {
            Self::Fixed(seed) => hash_bytes(*seed, bytes),
            Self::Own(key) => SipHasher13::new_with_key(key).hash(bytes),
        }
    }

    /// Distinguishes two seeds, and does not reveal them.
    pub fn mark(&self) -> u64 {
        match self {
            Self::Fixed(_) => 0,
            Self::Own(_) => self.hash(b"which seed it is"),
        }
    }
}

impl From<u64> for HashSeed {
    fn from(seed: u64) -> Self {
        Self::Fixed(seed)
    }
}

impl fmt::Debug for HashSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {:x}", self.mark())
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

const fn fold(a: u64, b: u64) -> u64 {
    let wide = a as u128 * b as u128;
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// A quick 64-bit hash of `bytes`, the same on every machine. A client that knows `seed` can compute bytes that share
/// a hash: so use it only where nobody gains by that.
pub fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut h = fold(seed ^ MULTIPLIER, bytes.len() as u64 ^ 0x2545_f491_4f6c_dd1d);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().expect("chunks of 8"));
        h = fold(h ^ word, seed | 1).wrapping_add(MULTIPLIER);
    }
    let mut last = [0; 8];
    let rest = chunks.remainder();
    last[..rest.len()].copy_from_slice(rest);
    h = fold(h ^ u64::from_le_bytes(last), seed | 1);
    fold(h ^ MULTIPLIER, 0xd6e8_feb8_6659_fd93)
}

/// Builds hashers of SipHash-1-3 with a key drawn once per process. Only for tables whose order does not depend on
/// hashes (dense ones), so that it is never visible, and may be another on each node; and for hashes that are no part of
/// the executed state, and do not leave the process.
#[derive(Clone, Copy, Default, Debug)]
pub struct Keyed;

impl BuildHasher for Keyed {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        static STATE: OnceLock<RandomState> = OnceLock::new();
        STATE.get_or_init(RandomState::new).build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_siphash_and_of_before_for_ever() {
        let own = HashSeed::parse("000102030405060708090a0b0c0d0e0f").unwrap();
        // The reference's vectors for SipHash-1-3.
        assert_eq!(own.hash(b""), u64::from_le_bytes(*b"\xdc\xc4\x0f\x05\x58\x01\xac\xab"));
        assert_eq!(own.hash(b"\0"), 0xc9f49bf37d57ca93);
        assert_eq!(HashSeed::Fixed(7).hash(b"key"), hash_bytes(7, b"key"));
        assert_ne!(own.mark(), HashSeed::parse(&"0".repeat(32)).unwrap().mark());
        assert_eq!(format!("{:?}", HashSeed::Fixed(7)), "seed 0");
        for wrong in ["", "0", "+0010203040506070809a0b0c0d0e0f01", &"g".repeat(32)] {
            assert_eq!(HashSeed::parse(wrong), None, "{wrong}");
        }
    }

    /// Keys that all have one hash, by the seed that is in the source: after its second word each
    /// is in the same state.
    fn chosen(seed: u64, count: u64) -> Vec<Vec<u8>> {
        let start = fold(seed ^ MULTIPLIER, 16 ^ 0x2545_f491_4f6c_dd1d);
        let after = |word: u64| fold(start ^ word, seed | 1).wrapping_add(MULTIPLIER);
        (0..count).map(|word| [word, after(word)].map(u64::to_le_bytes).concat()).collect()
    }

    #[test]
    fn keys_that_were_chosen_share_no_hashes_by_a_seed_of_their_own() {
        let keys = chosen(7, 2_000);
        let hashes = |seed: HashSeed| {
            keys.iter().map(|key| seed.hash(key)).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(hashes(HashSeed::Fixed(7)), 1, "what own seeds are for");
        assert_eq!(hashes(HashSeed::parse(&"5".repeat(32)).unwrap()), 2_000);
        let members: std::collections::BTreeSet<u64> =
            keys.iter().map(|key| Keyed.hash_one(&**key)).collect();
        assert_eq!(members.len(), 2_000);
    }
}
