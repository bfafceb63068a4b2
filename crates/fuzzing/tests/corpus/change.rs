//! Changes to an input, drawn from a seed.

use amcast_core::rng::Rng;
use amcast_fuzzing::FuzzTarget;

/// The longest input that is made, in bytes.
const BYTES_MAX: usize = 8 << 10;

/// One or more changes to an input.
pub(crate) fn change(
    input: &mut Vec<u8>,
    target: &FuzzTarget,
    all: &[(String, Vec<u8>)],
    rng: &mut Rng,
) {
    let mut pick = |n: usize| rng.below(n.max(1) as u64) as usize;
    for _ in 0..1 + pick(6) {
        let at = pick(input.len() + 1);
        match pick(7) {
            0 => input.truncate(at),
            1 => drop(input.splice(at..at, [pick(256) as u8])),
            2 if at < input.len() => input[at] = pick(256) as u8,
            3 if at < input.len() => input[at] ^= 1 << pick(8),
            4 => drop(input.drain(at..(at + pick(16)).min(input.len()))),
            5 => {
                // The end of another input, behind the beginning of this one.
                let other = &all[pick(all.len())].1;
                let from = pick(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let word = target.words[pick(target.words.len())];
                drop(input.splice(at..at, word.bytes()));
            }
        }
    }
    input.truncate(BYTES_MAX);
}
