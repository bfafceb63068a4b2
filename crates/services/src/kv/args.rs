//! A command's arguments as bytes: the count, then each argument behind its length, all lengths
//! as 32-bit little-endian words.

use amcast_core::limits;

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
    if count > rest.len() / 4 || rest.len() > limits::PAYLOAD_BYTES_MAX {
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
}
