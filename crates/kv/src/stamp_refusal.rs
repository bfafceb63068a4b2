//! Commands that were refused because their stamp is far from ordered time: the clock of their
//! gateway is wrong, or the shard's ordered time did not advance.

use super::split_epoch;

/// The first byte of such an answer; no value of RESP begins with it.
const REFUSED: u8 = b'?';

/// Writes the refusal of a command whose stamp ordered time, `now_ms` by the hosts' clock, is far from.
/// Its arguments follow: a gateway orders them again.
pub fn refuse(now_ms: u64, command: &[u8], answer: &mut Vec<u8>) {
    answer.push(REFUSED);
    answer.extend_from_slice(now_ms.to_string().as_bytes());
    answer.push(b'\n');
    answer.extend_from_slice(split_epoch(command).1);
}

/// Ordered time and the command's arguments in such an answer; none if it is another one.
pub fn of_refusal(answer: &[u8]) -> Option<(u64, &[u8])> {
    let rest = answer.strip_prefix(&[REFUSED])?;
    let end = rest.iter().position(|b| *b == b'\n')?;
    Some((std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?, &rest[end + 1..]))
}

/// Whether an answer is such a refusal.
pub fn is_refusal(answer: &[u8]) -> bool {
    answer.first() == Some(&REFUSED)
}
