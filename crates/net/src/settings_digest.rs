//! The settings on which the behaviour of a cluster's processes depends, as far as they can be compared from afar: a mark of each
//! thing. Processes for which anything of it is not the same would come to different states, and nobody
//! would notice: so they do not talk to each other, and say what it is.

use amcast_core::codec::{ByteReader, Codec, CodecError};
use ring::digest::{Context, SHA256};

/// How many settings are distinguished by name; those beyond share the last mark.
pub const MARKS: usize = 48;

/// A mark of each thing that decides, in an order that all processes of a cluster have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettingsDigest([u64; MARKS]);

impl Default for SettingsDigest {
    /// Nothing decides.
    fn default() -> Self {
        Self([0; MARKS])
    }
}

impl SettingsDigest {
    /// The marks of these things: their names and values, in their order.
    pub fn of<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut marks = [0_u64; MARKS];
        for (at, (name, value)) in all.into_iter().enumerate() {
            let mark = &mut marks[at.min(MARKS - 1)];
            // The mark that is there is of things that share it.
            *mark = digest(&[&mark.to_le_bytes(), name.as_bytes(), value.as_bytes()]);
        }
        Self(marks)
    }

    /// The place of the first thing that is not the same, if anything is not.
    pub fn differs(&self, other: &Self) -> Option<u8> {
        (0..)
            .zip(self.0.iter().zip(&other.0))
            .find_map(|(at, (one, two))| (one != two).then_some(at))
    }

    /// One number for all of it: who decides the same has the same.
    pub fn fingerprint(&self) -> u64 {
        let bytes: Vec<u8> = self.0.iter().flat_map(|mark| mark.to_le_bytes()).collect();
        digest(&[&bytes])
    }

    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        self.0.iter().for_each(|mark| mark.encode(to));
    }

    pub(crate) fn decode(from: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        let mut marks = [0; MARKS];
        for mark in &mut marks {
            *mark = u64::decode(from)?;
        }
        Ok(Self(marks))
    }
}

/// The first eight bytes of the SHA-256 of parts, each behind its length.
fn digest(parts: &[&[u8]]) -> u64 {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let digest = context.finish();
    u64::from_le_bytes(*digest.as_ref().first_chunk().expect("a digest is longer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thing_that_differs_is_found_and_the_fingerprint_is_of_all() {
        let of =
            |values: [&'static str; 3]| SettingsDigest::of(["a", "b", "c"].into_iter().zip(values));
        let all = of(["1", "2", "3"]);
        assert_eq!(all.differs(&of(["1", "2", "3"])), None);
        assert_eq!(all.differs(&of(["1", "x", "y"])), Some(1));
        assert_eq!(all.differs(&SettingsDigest::default()), Some(0));
        assert_eq!(all.differs(&SettingsDigest::of([("a", "1"), ("b", "2")])), Some(2));
        assert_ne!(SettingsDigest::of([("ab", "c")]), SettingsDigest::of([("a", "bc")]));
        assert_eq!(all.fingerprint(), of(["1", "2", "3"]).fingerprint());
        assert_ne!(all.fingerprint(), of(["1", "2", "4"]).fingerprint());
        // Two hosts compare it by eye, maybe with different versions of the program.
        assert_eq!(
            format!("{:016x}", SettingsDigest::of([("a", "1")]).fingerprint()),
            "f4c8d1dcd58d9b78"
        );
    }

    #[test]
    fn what_has_no_mark_of_its_own_is_not_overlooked() {
        let of = |last: &'static str| {
            SettingsDigest::of(
                (0..MARKS + 3).map(move |n| ("n", if n == MARKS { last } else { "v" })),
            )
        };
        assert_eq!(of("v").differs(&of("v")), None);
        assert_eq!(of("v").differs(&of("w")), Some(MARKS as u8 - 1));
    }
}
