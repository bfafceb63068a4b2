//! The name of a key.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Names of so many bytes or fewer are held in line.
const INLINE_BYTES_MAX: usize = 22;

/// The name of a key, in the order of its bytes.
///
/// A short name, as most are, is held in line: a table that looks at it needs no further access to memory, and a new
/// key no further allocation. The tables of the store share a longer one.
#[derive(Clone)]
pub(crate) enum KeyName {
    /// Zeros follow the name's bytes.
    Inline { len: u8, bytes: [u8; INLINE_BYTES_MAX] },
    /// A name of more bytes than fit in line.
    Shared(Arc<[u8]>),
}

impl KeyName {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Shared(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for KeyName {
    fn from(name: &[u8]) -> Self {
        if name.len() > INLINE_BYTES_MAX {
            return Self::Shared(name.into());
        }
        let mut bytes = [0; INLINE_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        Self::Inline { len: name.len() as u8, bytes }
    }
}

impl Deref for KeyName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Borrow<[u8]> for KeyName {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for KeyName {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for KeyName {}

impl PartialOrd for KeyName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyName {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            // The zeros behind a name put it in front of all that it begins, but for those that have zeros there.
            (Self::Inline { len, bytes }, Self::Inline { len: other_len, bytes: other }) => {
                words(bytes).cmp(&words(other)).then(len.cmp(other_len))
            }
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

/// The bytes as numbers that have the same order: comparing them is quicker.
fn words(bytes: &[u8; INLINE_BYTES_MAX]) -> (u128, u64) {
    let (first, rest) = bytes.split_at(16);
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    (u128::from_be_bytes(first.try_into().expect("16 bytes")), u64::from_be_bytes(last))
}

impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::rng::Rng;

    #[test]
    fn names_have_the_order_of_their_bytes() {
        let mut rng = Rng::new(11);
        let mut names: Vec<Vec<u8>> = vec![Vec::new(), vec![0; 22], vec![0; 23], vec![255; 22]];
        for _ in 0..400 {
            // Few different bytes, and lengths about the one that fits: many begin alike.
            let len = [rng.below(4), 7 + rng.below(3), 15 + rng.below(10)][rng.below(3) as usize];
            names.push((0..len).map(|_| [0, 1, 255][rng.below(3) as usize]).collect());
        }
        for a in &names {
            let of_a = KeyName::from(&a[..]);
            assert_eq!(*of_a, a[..]);
            assert_eq!(format!("{of_a:?}"), format!("{a:?}"));
            for b in &names {
                let of_b = KeyName::from(&b[..]);
                assert_eq!(of_a.cmp(&of_b), a.cmp(b), "{a:?} {b:?}");
                assert_eq!(of_a == of_b, a == b, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_name_takes_three_words() {
        assert_eq!(size_of::<KeyName>(), 24);
        let is_inline =
            |len: usize| matches!(KeyName::from(&vec![b'k'; len][..]), KeyName::Inline { .. });
        assert!(is_inline(0) && is_inline(INLINE_BYTES_MAX) && !is_inline(INLINE_BYTES_MAX + 1));
    }
}
