//! What a process knows of a peer for good: its latest life, and on which disks it has begun.
//!
//! A peer that was let in again with the memory of an earlier life, or of a disk that was replaced, has
//! forgotten what it promised since. So a driver keeps this where it outlasts its process, and the
//! carrier refuses such a peer.

use crate::wire::Refusal;

/// Disks that were replaced, of which this many are known at the most; the oldest are forgotten.
const REPLACED_MAX: usize = 64;

/// What is known of a peer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// The latest of its lives; none if it was never connected.
    pub life: Option<u32>,
    /// The disk on which it promised last; 0 if it keeps nothing, or was never connected.
    pub disk: u64,
    /// Those on which it promised before.
    pub replaced: Vec<u64>,
}

impl Known {
    /// Whether a peer may be let in that says it is in this life, with this disk.
    pub(crate) fn admits(&self, life: u32, disk: u64) -> Result<(), Refusal> {
        if disk != 0 && self.replaced.contains(&disk) {
            return Err(Refusal::Replaced);
        }
        let is_other = disk != 0 && self.disk != 0 && disk != self.disk;
        match self.life {
            Some(latest) if life < latest || life == latest && is_other => Err(Refusal::Old),
            _ => Ok(()),
        }
    }

    /// It was let in; whether that is new.
    pub(crate) fn learn(&mut self, life: u32, disk: u64) -> bool {
        let is_new = self.life != Some(life) || self.disk != disk;
        self.life = Some(life);
        let before = std::mem::replace(&mut self.disk, disk);
        if before != 0 && before != disk {
            self.replaced.push(before);
            let surplus = self.replaced.len().saturating_sub(REPLACED_MAX);
            self.replaced.drain(..surplus);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_an_earlier_life_nor_an_earlier_disk_is_let_in() {
        let mut known = Known::default();
        assert_eq!(known.admits(0, 7), Ok(()));
        assert!(known.learn(3, 7) && !known.learn(3, 7));
        assert_eq!(known.admits(3, 7), Ok(()), "it connects again");
        assert_eq!(known.admits(4, 7), Ok(()));
        assert_eq!(known.admits(2, 7), Err(Refusal::Old), "a copy that was brought back");
        assert_eq!(known.admits(3, 8), Err(Refusal::Old), "two of one number");
        assert_eq!(known.admits(4, 8), Ok(()), "a new disk, in a later life");
        assert!(known.learn(4, 8));
        // However often it was started since: the number alone would let it in.
        assert_eq!(known.admits(9, 7), Err(Refusal::Replaced));
        assert_eq!(known.admits(9, 8), Ok(()));
    }

    #[test]
    fn who_keeps_nothing_is_known_by_its_lives_alone() {
        let mut known = Known::default();
        assert!(known.learn(3, 0) && known.learn(4, 0));
        assert_eq!(known.admits(3, 0), Err(Refusal::Old));
        assert_eq!(known, Known { life: Some(4), ..Known::default() });
    }

    #[test]
    fn disks_are_forgotten_in_their_order() {
        let mut known = Known::default();
        for disk in 1..=REPLACED_MAX as u64 + 2 {
            known.learn(disk as u32, disk);
        }
        assert_eq!(known.replaced.len(), REPLACED_MAX);
        assert_eq!((known.replaced[0], known.disk), (2, REPLACED_MAX as u64 + 2));
    }
}
