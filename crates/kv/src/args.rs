//! A command as bytes: the epoch of the map of partitions that its destinations follow from, if that is
//! not the first, behind a mark; then its arguments: the count, then each argument behind its length,
//! all lengths as 32-bit little-endian words. Another mark in front of the epoch says that only a small
//! answer is wanted; the epoch is there then also if it is the first.

use amcast_core::limits;

/// The mark in front of the epoch. No count of arguments reads like this.
const EPOCH_MARK: [u8; 4] = *b"\xffMAP";

/// The same of a command of which only a small answer is wanted.
const SMALL_ANSWER_MARK: [u8; 4] = *b"\xffFEW";

/// Bytes of an epoch and its mark.
pub const EPOCH_BYTES: usize = EPOCH_MARK.len() + 8;

/// Appends the epoch of a map of partitions to `out`, before a command's arguments: nothing for the
/// first one.
pub fn encode_epoch(epoch: u64, out: &mut Vec<u8>) {
    if epoch > 0 {
        out.extend_from_slice(&EPOCH_MARK);
        out.extend_from_slice(&epoch.to_le_bytes());
    }
}

/// The same, also for the first map, so that [`set_small_answer`] can be called.
pub fn encode_whole_epoch(epoch: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&EPOCH_MARK);
    out.extend_from_slice(&epoch.to_le_bytes());
}

/// Says whether only a small answer is wanted to a command that begins with its epoch.
pub fn set_small_answer(command: &mut [u8], only_small: bool) {
    let mark = if only_small { SMALL_ANSWER_MARK } else { EPOCH_MARK };
    command[..mark.len()].copy_from_slice(&mark);
}

/// Whether only a small answer is wanted to a command.
pub fn wants_small_answer(command: &[u8]) -> bool {
    command.starts_with(&SMALL_ANSWER_MARK)
}

/// The epoch of a command, and its arguments' bytes.
pub fn split_epoch(command: &[u8]) -> (u64, &[u8]) {
    let marked = [EPOCH_MARK, SMALL_ANSWER_MARK].into_iter();
    let behind = marked.filter_map(|mark| command.strip_prefix(&mark)).next();
    let behind = behind.and_then(|rest| rest.split_first_chunk());
    behind.map_or((0, command), |(epoch, rest)| (u64::from_le_bytes(*epoch), rest))
}

/// Appends `args` to `out`.
pub fn encode_args(args: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(&(args.len() as u32).to_le_bytes());
    for arg in args {
        out.extend_from_slice(&(arg.len() as u32).to_le_bytes());
        out.extend_from_slice(arg);
    }
}

/// Bytes that [`encode_args`] appends.
pub fn encoded_len(args: &[&[u8]]) -> usize {
    4 + args.iter().map(|a| 4 + a.len()).sum::<usize>()
}

/// Reads arguments into `args`; none if `bytes` do not hold exactly one command.
pub fn decode_args<'a>(bytes: &'a [u8], args: &mut Vec<&'a [u8]>) -> Option<()> {
    let (count, mut rest) = word(bytes)?;
    // Each argument takes 4 bytes at least: a false count cannot ask for much memory.
    if count > rest.len() / 4 || rest.len() > limits::COMMAND_BYTES_MAX {
        return None;
    }
    args.reserve(count);
    for _ in 0..count {
        let (len, tail) = word(rest)?;
        let (arg, tail) = tail.split_at_checked(len)?;
        args.push(arg);
        rest = tail;
    }
    rest.is_empty().then_some(())
}

/// The second one of encoded arguments: the key of a command of one key.
pub(crate) fn second_arg(bytes: &[u8]) -> Option<&[u8]> {
    let (_, rest) = word(bytes)?;
    let (name_bytes, rest) = word(rest)?;
    let (key_bytes, rest) = word(rest.get(name_bytes..)?)?;
    rest.get(..key_bytes)
}

fn word(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*head) as usize, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_golden_and_only_whole_commands_are_read() {
        let mut bytes = Vec::new();
        encode_args(&[b"GET", b"", b"k"], &mut bytes);
        assert_eq!(bytes, b"\x03\0\0\0\x03\0\0\0GET\0\0\0\0\x01\0\0\0k");
        assert_eq!(bytes.len(), encoded_len(&[b"GET", b"", b"k"]));
        let mut args = Vec::new();
        assert_eq!(decode_args(&bytes, &mut args), Some(()));
        assert_eq!(args, [&b"GET"[..], b"", b"k"]);
        for end in 0..bytes.len() {
            assert_eq!(decode_args(&bytes[..end], &mut Vec::new()), None);
        }
        assert_eq!(decode_args(b"\xff\xff\xff\xff", &mut Vec::new()), None);
    }

    #[test]
    fn an_epoch_stands_before_the_arguments_and_the_first_one_takes_no_bytes() {
        let mut bytes = Vec::new();
        encode_epoch(0, &mut bytes);
        encode_args(&[b"k"], &mut bytes);
        assert_eq!(split_epoch(&bytes), (0, &b"\x01\0\0\0\x01\0\0\0k"[..]));
        let mut later = Vec::new();
        encode_epoch(258, &mut later);
        assert_eq!(later, b"\xffMAP\x02\x01\0\0\0\0\0\0");
        assert_eq!(later.len(), EPOCH_BYTES);
        later.extend_from_slice(&bytes);
        assert_eq!(split_epoch(&later), (258, &bytes[..]));
        assert!(decode_args(&later, &mut Vec::new()).is_none(), "not without looking for it");
    }

    #[test]
    fn a_command_says_that_only_a_small_answer_is_wanted() {
        let mut bytes = Vec::new();
        encode_whole_epoch(0, &mut bytes);
        encode_args(&[b"k"], &mut bytes);
        let before = bytes.clone();
        assert_eq!((wants_small_answer(&bytes), split_epoch(&bytes).0), (false, 0));
        set_small_answer(&mut bytes, true);
        assert_eq!(bytes[..EPOCH_BYTES], *b"\xffFEW\0\0\0\0\0\0\0\0");
        assert!(wants_small_answer(&bytes));
        assert_eq!(split_epoch(&bytes), split_epoch(&before));
        set_small_answer(&mut bytes, false);
        assert_eq!(bytes, before);
    }
}
