//! Keyed hashing of keys and members.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

const fn fold(a: u64, b: u64) -> u64 {
    let wide = a as u128 * b as u128;
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// A 64-bit hash of `bytes` that cannot be predicted without `seed`. The same on every machine.
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
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

/// Builds hashers with a seed drawn once per process. Only for tables whose order does not depend
/// on hashes (dense ones), so that the seed is never visible.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Keyed;

pub(crate) struct KeyedHasher(u64);

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;
    fn build_hasher(&self) -> KeyedHasher {
        static SEED: OnceLock<u64> = OnceLock::new();
        KeyedHasher(*SEED.get_or_init(|| RandomState::new().hash_one(MULTIPLIER)))
    }
}

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash_bytes(self.0, bytes);
    }
    fn write_usize(&mut self, n: usize) {
        self.0 = fold(self.0 ^ n as u64, MULTIPLIER);
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = fold(self.0 ^ n, MULTIPLIER);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
