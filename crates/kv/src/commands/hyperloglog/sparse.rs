//! The short form of a counter: runs of registers that have the same value, behind the head.
//!
//! A run is written in one of three ways, as Redis's description of the format has them:
//!
//! ```text
//! 00xxxxxx            ZERO   x + 1 registers are zero (1 to 64)
//! 01xxxxxx yyyyyyyy   XZERO  xy + 1 registers are zero (1 to 16384)
//! 1vvvvvxx            VAL    x + 1 registers have v + 1 (1 to 4, of 1 to 32)
//! ```
//!
//! Which runs stand for the same registers is not free: clients see the bytes, and Redis has ones of its own for each
//! way to come there. A register that rises splits its run; then few runs from the one before on are joined where two
//! neighbours have the same value.

use super::{ENCODING_AT, HEAD_BYTES, REGISTERS, SPARSE, empty_dense, set_register};
use std::fmt::Write;

/// Bytes behind the head; with more a counter becomes dense: `hll-sparse-max-bytes` of Redis, as it is there unless it
/// is set. The same on all nodes.
pub(crate) const BYTES_MAX: usize = 3000;

/// Bytes of a whole counter in this form, at the most: clients may write runs of one register each.
pub(super) const WHOLE_BYTES_MAX: usize = HEAD_BYTES + 2 * REGISTERS;

/// The largest value that a run may have.
const VALUE_MAX: u8 = 32;

/// The longest runs of each kind.
const ZERO_MAX: usize = 64;
const VALUES_MAX: usize = 4;

/// Runs that are looked at to be joined when a register has risen.
const JOIN_STEPS: usize = 5;

/// Registers one behind the other that have the same value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RegisterRun {
    pub(super) value: u8,
    pub(super) len: usize,
    /// How many bytes say that.
    bytes: usize,
}

impl RegisterRun {
    /// The run whose bytes these begin with; none if they end before it does.
    fn read(bytes: &[u8]) -> Option<Self> {
        let first = *bytes.first()?;
        Some(match first >> 6 {
            0 => Self { value: 0, len: usize::from(first) + 1, bytes: 1 },
            1 => {
                let len = u16::from_be_bytes([first & 0x3f, *bytes.get(1)?]);
                Self { value: 0, len: usize::from(len) + 1, bytes: 2 }
            }
            _ => Self { value: (first >> 2 & 0x1f) + 1, len: usize::from(first & 3) + 1, bytes: 1 },
        })
    }

    /// Appends a run; of none if it is empty.
    fn write(value: u8, len: usize, out: &mut Vec<u8>) {
        match (value, len) {
            (_, 0) => {}
            (0, 1..=ZERO_MAX) => out.push((len - 1) as u8),
            (0, _) => {
                let [high, low] = ((len - 1) as u16).to_be_bytes();
                out.extend_from_slice(&[0x40 | high, low]);
            }
            _ => out.push(0x80 | (value - 1) << 2 | (len - 1) as u8),
        }
    }
}

/// The runs of a counter, from its first byte on.
pub(super) fn runs(counter: &[u8]) -> impl Iterator<Item = RegisterRun> + '_ {
    let mut rest = &counter[HEAD_BYTES..];
    std::iter::from_fn(move || {
        let run = RegisterRun::read(rest)?;
        rest = &rest[run.bytes..];
        Some(run)
    })
}

/// Whether its runs are of all registers, and of no more.
pub(super) fn is_whole(counter: &[u8]) -> bool {
    let (mut registers, mut bytes) = (0, HEAD_BYTES);
    for run in runs(counter) {
        (registers, bytes) = (registers + run.len, bytes + run.bytes);
        // Each run has a register at least: no more are read of a string that is no counter than a counter may have.
        if registers > REGISTERS {
            return false;
        }
    }
    registers == REGISTERS && bytes == counter.len()
}

/// A counter that has seen nothing.
pub(super) fn empty() -> Vec<u8> {
    let mut counter = empty_dense();
    counter.truncate(HEAD_BYTES);
    counter[ENCODING_AT] = SPARSE;
    RegisterRun::write(0, REGISTERS, &mut counter);
    counter
}

/// The result of raising a register to a value at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Raise {
    /// It had that.
    Kept,
    /// It has it now.
    Raised,
    /// It cannot have it in this form: nothing was changed.
    NeedsDense,
}

/// Has the register at `index` of a counter that is whole have `value` at least, which is not 0.
pub(super) fn raise(counter: &mut Vec<u8>, index: usize, value: u8) -> Raise {
    if value > VALUE_MAX {
        return Raise::NeedsDense;
    }
    let mut at = HEAD_BYTES;
    let mut first = 0;
    let mut before = HEAD_BYTES;
    let run = loop {
        let run = RegisterRun::read(&counter[at..]).expect("its runs are of all registers");
        if index < first + run.len {
            break run;
        }
        (before, at, first) = (at, at + run.bytes, first + run.len);
    };
    if run.value >= value {
        return Raise::Kept;
    }
    let mut parts = Vec::with_capacity(5);
    RegisterRun::write(run.value, index - first, &mut parts);
    RegisterRun::write(value, 1, &mut parts);
    RegisterRun::write(run.value, first + run.len - 1 - index, &mut parts);
    let bytes = counter.len() + parts.len() - run.bytes;
    if parts.len() > run.bytes && bytes > HEAD_BYTES + BYTES_MAX {
        return Raise::NeedsDense;
    }
    counter.splice(at..at + run.bytes, parts);
    join(counter, before);
    Raise::Raised
}

/// Joins neighbours of the same value, not zero, among few runs from the one at `at` on.
fn join(counter: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOIN_STEPS {
        let Some(run) = RegisterRun::read(&counter[at..]) else { return };
        let next = RegisterRun::read(&counter[at + run.bytes..]);
        match next {
            Some(next)
                if run.value > 0 && next.value == run.value && run.len + next.len <= VALUES_MAX =>
            {
                let mut joined = Vec::with_capacity(1);
                RegisterRun::write(run.value, run.len + next.len, &mut joined);
                counter.splice(at..at + run.bytes + next.bytes, joined);
            }
            _ => at += run.bytes,
        }
    }
}

/// The same counter in the long form.
pub(super) fn to_dense(counter: &[u8]) -> Vec<u8> {
    let (mut dense, mut index) = (empty_dense(), 0);
    // With the estimate that may be kept there.
    dense[..HEAD_BYTES].copy_from_slice(&counter[..HEAD_BYTES]);
    dense[ENCODING_AT] = super::DENSE;
    for run in runs(counter) {
        if run.value > 0 {
            (index..index + run.len).for_each(|at| set_register(&mut dense, at, run.value));
        }
        index += run.len;
    }
    dense
}

/// Its runs for people, as `PFDEBUG DECODE` shows them.
pub(super) fn decode_text(counter: &[u8]) -> String {
    let mut text = String::new();
    for run in runs(counter) {
        let shown = match run {
            RegisterRun { value: 0, bytes: 1, len } => write!(text, "z:{len} "),
            RegisterRun { value: 0, len, .. } => write!(text, "Z:{len} "),
            RegisterRun { value, len, .. } => write!(text, "v:{value},{len} "),
        };
        shown.expect("a string takes all");
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::super::register;
    use super::*;
    use amcast_core::rng::Rng;

    #[test]
    fn a_register_that_rises_splits_its_run_and_joins_its_neighbours() {
        let mut counter = empty();
        assert_eq!(counter[HEAD_BYTES..], [0x7f, 0xff]);
        assert_eq!(decode_text(&counter), "Z:16384");
        let mut raise = |index, value, wanted: &str| {
            assert_eq!(super::raise(&mut counter, index, value), Raise::Raised, "{wanted}");
            assert!(is_whole(&counter));
            assert_eq!(decode_text(&counter), wanted);
        };
        raise(100, 3, "Z:100 v:3,1 Z:16283");
        raise(101, 3, "Z:100 v:3,2 Z:16282");
        raise(36, 1, "z:36 v:1,1 z:63 v:3,2 Z:16282");
        raise(102, 3, "z:36 v:1,1 z:63 v:3,3 Z:16281");
        raise(101, 9, "z:36 v:1,1 z:63 v:3,1 v:9,1 v:3,1 Z:16281");
        raise(16_383, 32, "z:36 v:1,1 z:63 v:3,1 v:9,1 v:3,1 Z:16280 v:32,1");
        raise(0, 1, "v:1,1 z:35 v:1,1 z:63 v:3,1 v:9,1 v:3,1 Z:16280 v:32,1");
        assert_eq!(super::raise(&mut counter, 101, 8), Raise::Kept);
        assert_eq!(super::raise(&mut counter, 5, VALUE_MAX + 1), Raise::NeedsDense);
    }

    #[test]
    fn both_forms_have_the_same_registers() {
        let mut rng = Rng::new(7);
        let (mut counter, mut dense, mut risen) = (empty(), empty_dense(), 0);
        loop {
            let (index, value) = (rng.below(REGISTERS as u64) as usize, 1 + rng.below(5) as u8);
            let wanted = match register(&dense, index) < value {
                true => Raise::Raised,
                false => Raise::Kept,
            };
            match raise(&mut counter, index, value) {
                Raise::NeedsDense => break,
                got => assert_eq!(got, wanted),
            }
            if wanted == Raise::Raised {
                set_register(&mut dense, index, value);
                risen += 1;
            }
            assert!(is_whole(&counter) && counter.len() <= HEAD_BYTES + BYTES_MAX);
        }
        assert!(risen > 800, "{risen} registers in {} bytes", counter.len());
        assert_eq!(to_dense(&counter)[HEAD_BYTES..], dense[HEAD_BYTES..]);
    }

    #[test]
    fn runs_that_are_not_of_all_registers_are_not_whole() {
        let head = empty()[..HEAD_BYTES].to_vec();
        for body in [&[][..], &[0x7f, 0xfe], &[0x7f, 0xff, 0x00], &[0x7f], &[0x7f, 0xfe, 0x40]] {
            assert!(!is_whole(&[&head, body].concat()), "{body:?}");
        }
        assert!(is_whole(&[&head[..], &[0x7f, 0xfe, 0x00]].concat()));
    }
}
