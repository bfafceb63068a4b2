//! The lasting knowledge of a process about a peer: its latest incarnation, and the disks on which it has begun.
//!
//! A peer that was let in again with the memory of an earlier life, or of a disk that was replaced, has
//! forgotten what it promised since. So a driver keeps this where it outlasts its process, and the
//! carrier refuses such a peer.

use crate::wire::ConnectionRefusal;

/// Disks that were replaced, of which this many are known at the most; the oldest are forgotten.
const REPLACED_MAX: usize = 64;

/// The claim of a peer about itself, which decides whether it is let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerClaim {
    /// Which of its lives it is in.
    pub life: u32,
    /// The number that this start of it has and no other; 0 if it says none.
    pub start: u64,
    /// Its disk; 0 if it keeps nothing.
    pub disk: u64,
    /// Whether it began on that disk by asking the others what it had promised before.
    pub anew: bool,
}

/// The identity of a peer, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerIdentity {
    /// The latest of its lives; none if it was never connected.
    pub life: Option<u32>,
    /// The start of this incarnation; 0 if the peer gave none.
    pub start: u64,
    /// The disk on which it promised last; 0 if it keeps nothing, or was never connected.
    pub disk: u64,
    /// Those on which it promised before.
    pub replaced: Vec<u64>,
}

impl PeerIdentity {
    /// Whether a peer may be let in that claims this.
    pub(crate) fn admits(&self, claim: &PeerClaim) -> Result<(), ConnectionRefusal> {
        let PeerClaim { life, start, disk, anew } = *claim;
        if disk != 0 && self.replaced.contains(&disk) {
            return Err(ConnectionRefusal::Replaced);
        }
        let Some(latest) = self.life else { return Ok(()) };
        let is_other_disk = self.disk != 0 && disk != 0 && disk != self.disk;
        let is_other_start = self.start != 0 && start != self.start;
        // However often it was started: what it promised on the disk that is known is not on this one.
        let forgot = is_other_disk && !anew;
        let is_copy = life == latest && (is_other_start || is_other_disk);
        if life < latest || is_copy || forgot { Err(ConnectionRefusal::Old) } else { Ok(()) }
    }

    /// It was let in; whether that is new.
    pub(crate) fn learn(&mut self, claim: &PeerClaim) -> bool {
        let PeerClaim { life, start, disk, .. } = *claim;
        let now = (Some(life), start, disk);
        let is_new = (self.life, self.start, self.disk) != now;
        (self.life, self.start) = (Some(life), start);
        if disk == 0 {
            // It keeps nothing now, which makes the disk that it had no worse.
            return is_new;
        }
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

    /// Of a start that says no number, on a disk that was the first.
    fn first(life: u32, disk: u64) -> PeerClaim {
        PeerClaim { life, disk, ..PeerClaim::default() }
    }

    /// On one that was not.
    fn anew(life: u32, disk: u64) -> PeerClaim {
        PeerClaim { anew: true, ..first(life, disk) }
    }

    #[test]
    fn neither_an_earlier_life_nor_an_earlier_disk_is_let_in() {
        let mut known = PeerIdentity::default();
        assert_eq!(known.admits(&first(0, 7)), Ok(()));
        assert!(known.learn(&first(3, 7)) && !known.learn(&first(3, 7)));
        assert_eq!(known.admits(&first(3, 7)), Ok(()), "it connects again");
        assert_eq!(known.admits(&first(4, 7)), Ok(()));
        assert_eq!(
            known.admits(&first(2, 7)),
            Err(ConnectionRefusal::Old),
            "a copy that was brought back"
        );
        assert_eq!(known.admits(&anew(3, 8)), Err(ConnectionRefusal::Old), "two of one number");
        assert_eq!(known.admits(&anew(4, 8)), Ok(()), "a new disk, in a later life");
        assert!(known.learn(&anew(4, 8)));
        // However often it was started since: the number alone would let it in.
        for back in [first(9, 7), anew(9, 7)] {
            assert_eq!(known.admits(&back), Err(ConnectionRefusal::Replaced));
        }
        assert_eq!(known.admits(&anew(9, 8)), Ok(()));
    }

    #[test]
    fn an_emptied_disk_is_let_in_only_if_it_began_by_asking_however_often_it_was_started() {
        let mut known = PeerIdentity::default();
        known.learn(&first(3, 7));
        for life in [4, 5, 1000] {
            assert_eq!(
                known.admits(&first(life, 8)),
                Err(ConnectionRefusal::Old),
                "in life {life}"
            );
            assert_eq!(known.admits(&anew(life, 8)), Ok(()));
        }
        // A process that never met it knows nothing of an earlier disk.
        assert_eq!(PeerIdentity::default().admits(&first(1000, 8)), Ok(()));
    }

    #[test]
    fn of_two_copies_in_one_life_the_second_is_refused() {
        let copy = |start| PeerClaim { start, ..first(3, 7) };
        let mut known = PeerIdentity::default();
        known.learn(&copy(11));
        assert_eq!(known.admits(&copy(11)), Ok(()), "it connects again");
        assert_eq!(known.admits(&copy(12)), Err(ConnectionRefusal::Old));
        assert_eq!(known.admits(&PeerClaim { life: 4, ..copy(12) }), Ok(()), "its next life");
        // Records from before starts were numbered say nothing of them.
        let known = PeerIdentity { start: 0, ..known };
        assert_eq!(known.admits(&copy(12)), Ok(()));
    }

    #[test]
    fn who_keeps_nothing_is_known_by_its_lives_alone_and_replaces_no_disk() {
        let mut known = PeerIdentity::default();
        assert!(known.learn(&first(3, 0)) && known.learn(&first(4, 0)));
        assert_eq!(known.admits(&first(3, 0)), Err(ConnectionRefusal::Old));
        assert_eq!(known, PeerIdentity { life: Some(4), ..PeerIdentity::default() });
        known.learn(&first(5, 7));
        known.learn(&first(6, 0));
        assert_eq!(known, PeerIdentity { life: Some(6), disk: 7, ..PeerIdentity::default() });
        assert_eq!(known.admits(&first(7, 7)), Ok(()));
    }

    #[test]
    fn disks_are_forgotten_in_their_order() {
        let mut known = PeerIdentity::default();
        for disk in 1..=REPLACED_MAX as u64 + 2 {
            known.learn(&anew(disk as u32, disk));
        }
        assert_eq!(known.replaced.len(), REPLACED_MAX);
        assert_eq!((known.replaced[0], known.disk), (2, REPLACED_MAX as u64 + 2));
    }
}
