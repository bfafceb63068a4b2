//! Which shard holds a key: Redis's 16384 slots, in contiguous ranges over the shards.

use amcast_core::{Gid, GroupSet};

/// Number of slots, as in Redis Cluster.
pub const SLOTS: u16 = 16384;

const fn crc16_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

static CRC16: [u16; 256] = crc16_table();

/// The slot of `key`: CRC16 (XMODEM) of its hash tag, that is what stands between the first `{`
/// and the next `}` if that is not empty, else of all of it.
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&b| b == b'{').and_then(|open| {
        let inner = &key[open + 1..];
        let close = inner.iter().position(|&b| b == b'}')?;
        (close > 0).then(|| &inner[..close])
    });
    let crc = tag
        .unwrap_or(key)
        .iter()
        .fold(0_u16, |crc, &b| (crc << 8) ^ CRC16[usize::from((crc >> 8) as u8 ^ b)]);
    crc % SLOTS
}

/// The map from slots to `shards` shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotMap {
    shards: u8,
}

impl SlotMap {
    /// The map for `shards` shards, 1 to 64.
    pub const fn new(shards: usize) -> Self {
        assert!(shards >= 1 && shards <= amcast_core::limits::GROUPS_MAX);
        Self { shards: shards as u8 }
    }

    /// How many shards.
    pub const fn shards(self) -> usize {
        self.shards as usize
    }

    /// All shards.
    pub const fn all(self) -> GroupSet {
        GroupSet::first(self.shards as usize)
    }

    /// The shard of `slot`.
    pub const fn of_slot(self, slot: u16) -> Gid {
        Gid((slot as u32 * self.shards as u32 / SLOTS as u32) as u8)
    }

    /// The shard of `key`.
    pub fn of_key(self, key: &[u8]) -> Gid {
        if self.shards == 1 { Gid(0) } else { self.of_slot(slot(key)) }
    }

    /// First and last slot of `shard`.
    pub fn range(self, shard: Gid) -> (u16, u16) {
        let n = self.shards as u32;
        let first = |g: u32| (g * SLOTS as u32).div_ceil(n);
        (first(shard.0 as u32) as u16, (first(shard.0 as u32 + 1) - 1) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), 8363);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
    }

    #[test]
    fn ranges_cover_each_slot_once() {
        for n in [1, 2, 3, 7, 64] {
            let map = SlotMap::new(n);
            let mut next = 0;
            for g in map.all().iter() {
                let (first, last) = map.range(g);
                assert_eq!(u32::from(first), next);
                assert!((first..=last).all(|s| map.of_slot(s) == g));
                next = u32::from(last) + 1;
            }
            assert_eq!(next, u32::from(SLOTS));
        }
    }
}
