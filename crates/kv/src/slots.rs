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

/// The CRC of a byte with so many zero bytes behind it, for eight bytes at a time.
static CRC16: [[u16; 256]; 8] = {
    let mut tables = [crc16_table(); 8];
    let mut zeros = 1;
    while zeros < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[zeros - 1][i];
            tables[zeros][i] = (before << 8) ^ tables[0][(before >> 8) as usize];
            i += 1;
        }
        zeros += 1;
    }
    tables
};

/// CRC16 (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0_u16;
    let (eights, rest) = bytes.as_chunks::<8>();
    for &[a, b, c, d, e, f, g, h] in eights {
        let at = |zeros: usize, byte: u8| CRC16[zeros][usize::from(byte)];
        crc = at(7, a ^ (crc >> 8) as u8)
            ^ at(6, b ^ crc as u8)
            ^ at(5, c)
            ^ at(4, d)
            ^ at(3, e)
            ^ at(2, f)
            ^ at(1, g)
            ^ at(0, h);
    }
    rest.iter().fold(crc, |crc, &b| (crc << 8) ^ CRC16[0][usize::from((crc >> 8) as u8 ^ b)])
}

/// The slot of `key`: CRC16 (XMODEM) of its hash tag, that is the text between the first `{` and
/// the next `}` if that is not empty, else of all of it.
pub fn slot(key: &[u8]) -> u16 {
    // Most keys have none, which is found out faster than where it is.
    let open = if key.contains(&b'{') { key.iter().position(|&b| b == b'{') } else { None };
    let tag = open.and_then(|open| {
        let inner = &key[open + 1..];
        let close = inner.iter().position(|&b| b == b'}')?;
        (close > 0).then(|| &inner[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
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
    fn eight_bytes_at_a_time_are_the_same_as_one_by_one() {
        let bytes: Vec<u8> = (0..70_u32).map(|i| ((i * 7919) >> 3) as u8).collect();
        for n in 0..bytes.len() {
            let one_by_one = bytes[..n].iter().fold(0_u16, |crc, &b| {
                (0..8).fold(crc ^ u16::from(b) << 8, |crc, _| {
                    if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 }
                })
            });
            assert_eq!(crc16(&bytes[..n]), one_by_one, "{n} bytes");
        }
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
