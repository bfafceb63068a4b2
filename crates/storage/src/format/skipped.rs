//! Which messages a node skips: a small file beside its logs, written anew whenever it changes.
//!
//! ```text
//!  0  8  magic "amcastSK"          12  4  how many entries
//!  8  4  version, 1                16 44  zero
//!                                  60  4  crc32c of bytes 0 to 59
//! 64     the entries, in ascending order of their messages, 32 bytes each:
//!  0  4  sender of the message      8  8  number of the message
//!  4  1  one of its groups         16  8  its position in that group
//!  5  1  how far the decision is   24  4  zero
//!  6  2  zero                      28  4  crc32c that continues all sums before, over bytes 0 to 27
//! ```

use super::{HEAD_BYTES, head, open, put, seal, u32_at, u64_at};
use crate::error::Misfit;
use crate::skipped::{SkipEntry, SkipStage};
use amcast_core::{Gid, MsgId, Pid, SkipDecision};

/// The newest version; all from 1 to it can be read.
pub(crate) const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"amcastSK";

/// How long an entry is.
const ENTRY_BYTES: usize = 32;
/// Where its sum is.
const SUM_AT: usize = ENTRY_BYTES - 4;
/// How many groups there can be.
const GROUPS: u8 = 64;

/// The bytes of the file, whose entries ascend.
pub(crate) fn encode(entries: &[SkipEntry]) -> Vec<u8> {
    let mut begun = head(MAGIC, VERSION);
    put(&mut begun, 12, (entries.len() as u32).to_le_bytes());
    let mut file = seal(begun).to_vec();
    let mut sum = u32_at(&file, HEAD_BYTES - 4);
    for SkipEntry { decision: SkipDecision { msg, group, position }, stage } in entries {
        let mut entry = [0; ENTRY_BYTES];
        put(&mut entry, 0, msg.sender.0.to_le_bytes());
        (entry[4], entry[5]) = (group.0, *stage as u8);
        put(&mut entry, 8, msg.seq.to_le_bytes());
        put(&mut entry, 16, position.to_le_bytes());
        sum = crc32c::crc32c_append(sum, &entry[..SUM_AT]);
        put(&mut entry, SUM_AT, sum.to_le_bytes());
        file.extend_from_slice(&entry);
    }
    file
}

/// The entries of the file.
pub(crate) fn decode(file: &[u8]) -> Result<Vec<SkipEntry>, Misfit> {
    let begun = open(file, MAGIC, VERSION)?;
    let mut sum = u32_at(begun, HEAD_BYTES - 4);
    let (count, rest) = (u32_at(begun, 12) as usize, &file[HEAD_BYTES..]);
    if rest.len() != count.saturating_mul(ENTRY_BYTES) {
        return Err(Misfit::Short);
    }
    let mut entries: Vec<SkipEntry> = Vec::new();
    for entry in rest.chunks_exact(ENTRY_BYTES) {
        sum = crc32c::crc32c_append(sum, &entry[..SUM_AT]);
        if u32_at(entry, SUM_AT) != sum {
            return Err(Misfit::Sum);
        }
        let msg = MsgId { sender: Pid(u32_at(entry, 0)), seq: u64_at(entry, 8) };
        let (group, stage) = (Gid(entry[4]), SkipStage::of(entry[5]).ok_or(Misfit::Nonsense)?);
        let is_in_order = entries.last().is_none_or(|last| last.decision.msg < msg);
        if entry[4] >= GROUPS || !is_in_order {
            return Err(Misfit::Nonsense);
        }
        let decision = SkipDecision { msg, group, position: u64_at(entry, 16) };
        entries.push(SkipEntry { decision, stage });
    }
    Ok(entries)
}
