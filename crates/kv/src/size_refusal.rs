//! Reads that were not executed because their answers are larger than was wanted.
//!
//! A gateway cannot know how large an answer becomes. A read whose answer it expects to be small says
//! [so](super::set_small_answer), and a node that finds it to be larger stops building it and refuses: so reads of
//! megabytes that nobody made room for cost no more than small ones. The gateway makes room, and sends the read again.

/// The first byte of such an answer; no value of RESP begins with it.
const REFUSED: u8 = b'^';

/// A small answer has no more bytes.
pub const SMALL_ANSWER_BYTES: usize = 256 << 10;

/// Writes the refusal of a read with these arguments, which a gateway sends again.
pub fn refuse(args: &[u8], answer: &mut Vec<u8>) {
    answer.push(REFUSED);
    answer.extend_from_slice(args);
}

/// The arguments of the read in such an answer; none if it is another one.
pub fn of_refusal(answer: &[u8]) -> Option<&[u8]> {
    answer.strip_prefix(&[REFUSED])
}

/// Whether an answer is such a refusal.
pub fn is_refusal(answer: &[u8]) -> bool {
    answer.first() == Some(&REFUSED)
}
