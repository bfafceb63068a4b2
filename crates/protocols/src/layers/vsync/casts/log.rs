//! The casts of one view as one member has them: numbered by sender, kept until all have them.

use crate::layers::vsync::agreement::NONSENSE;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::Pid;
use amcast_core::groupcast::Grade;

/// A cast that is kept, or a part of one that is larger than a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RetainedCast {
    pub(crate) grade: Grade,
    /// Whether the next cast of that sender and grade continues it.
    pub(crate) more: bool,
    pub(crate) bytes: Arc<[u8]>,
}

/// The casts of one sender. They are numbered from 1.
#[derive(Clone, Debug, Default)]
struct SenderLog {
    /// How many were dropped from the front: all have them.
    dropped: u64,
    /// Those after them; some may be missing.
    kept: VecDeque<Option<RetainedCast>>,
    /// Bytes of them.
    bytes: usize,
    /// Up to here none is missing.
    have: u64,
    /// Up to here those of [`Grade::Plain`] were handed over.
    plain: u64,
    /// Up to here those of [`Grade::Uniform`] were handed over.
    uniform: u64,
    /// Up to here those of [`Grade::Stable`] were handed over.
    stable: u64,
    /// How many of [`Grade::Stable`] are kept that were not handed over: where there are none, nothing is done for them.
    stable_left: usize,
    /// The same of [`Grade::Uniform`].
    uniform_left: usize,
    /// Up to here those of [`Grade::Stable`] were announced.
    announced: u64,
}

impl SenderLog {
    /// The cast of that number, which is neither dropped nor missing.
    fn cast(&self, number: u64) -> &RetainedCast {
        let at = (number - self.dropped - 1) as usize;
        self.kept[at].as_ref().expect("none is missing")
    }

    /// Counts a cast that is kept from here on.
    fn count(&mut self, kept: &RetainedCast) {
        self.bytes += kept.bytes.len();
        self.stable_left += usize::from(kept.grade == Grade::Stable);
        self.uniform_left += usize::from(kept.grade == Grade::Uniform);
    }

    /// Up to here all were handed over, of each grade.
    fn passed(&self) -> u64 {
        let of = |left: usize, passed: u64| if left == 0 { u64::MAX } else { passed };
        let uniform = of(self.uniform_left, self.uniform);
        self.plain.min(uniform).min(of(self.stable_left, self.stable))
    }

    /// The next cast of `grade` to hand over, numbered `upto` at most.
    fn next(&mut self, grade: Grade, upto: u64) -> Option<RetainedCast> {
        let mut passed = match grade {
            Grade::Plain => self.plain,
            Grade::Uniform if self.uniform_left == 0 => return None,
            Grade::Uniform => self.uniform.max(self.dropped),
            Grade::Stable if self.stable_left == 0 => return None,
            Grade::Stable => self.stable.max(self.dropped),
        };
        let mut found = None;
        while passed < upto && found.is_none() {
            passed += 1;
            found = Some(self.cast(passed)).filter(|cast| cast.grade == grade).cloned();
        }
        match grade {
            Grade::Plain => self.plain = passed,
            Grade::Uniform => {
                self.uniform = passed;
                self.uniform_left -= usize::from(found.is_some());
            }
            Grade::Stable => {
                self.stable = passed;
                self.stable_left -= usize::from(found.is_some());
            }
        }
        found
    }
}

/// Up to which number the casts of a sender are held by so many members that they may be handed over, by grade.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldCasts {
    /// By a majority, for [`Grade::Uniform`].
    pub(crate) majority: u64,
    /// By all members of the view, for [`Grade::Stable`].
    pub(crate) all: u64,
}

impl HeldCasts {
    /// As at the end of a view: all that are there.
    pub(crate) const ANY: Self = Self { majority: u64::MAX, all: u64::MAX };
}

/// How many casts of a sender all members have.
#[derive(Clone, Copy, Debug, Default)]
struct HeldCount {
    casts: u64,
    /// Whether one of those members that had no more has more since.
    is_old: bool,
}

/// The casts of one view, by sender.
#[derive(Clone, Debug)]
pub(crate) struct CastLog {
    /// The view.
    pub(crate) view: u64,
    logs: Vec<SenderLog>,
    /// How many casts of each sender each process has, by process and sender.
    acked: Vec<u64>,
    /// How many casts of each sender all members have, as the member says that gathers acknowledgements.
    told: Vec<u64>,
    /// How many casts of each sender all members have, as far as it was computed.
    held: Vec<HeldCount>,
    /// The casts that a sender may have that are not known to be everywhere.
    window: SendWindow,
}

/// How much a sender may have that is not known to be everywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWindow {
    /// Casts.
    pub(crate) casts: usize,
    /// Bytes of them; one cast more may begin as long as they are not reached.
    pub(crate) bytes: usize,
}

impl CastLog {
    pub(crate) fn new(view: u64, processes: usize, window: SendWindow) -> Self {
        Self {
            view,
            logs: alloc::vec![SenderLog::default(); processes],
            acked: alloc::vec![0; processes * processes],
            told: alloc::vec![0; processes],
            held: alloc::vec![HeldCount::default(); processes],
            window,
        }
    }

    /// How many casts of `sender` are here without a gap.
    pub(crate) fn have(&self, sender: Pid) -> u64 {
        self.logs[sender.index()].have
    }

    /// The same of every sender.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.logs.iter().map(|log| log.have).collect()
    }

    /// Whether all casts of each sender are here up to this cut.
    pub(crate) fn has_all(&self, cut: &[u64]) -> bool {
        cut.iter().enumerate().all(|(p, &upto)| self.have(Pid(p as u32)) >= upto)
    }

    /// Whether no casts of any sender are here beyond this cut.
    pub(crate) fn is_within(&self, cut: &[u64]) -> bool {
        cut.iter().enumerate().all(|(p, &upto)| self.have(Pid(p as u32)) <= upto)
    }

    /// Whether casts of `sender` came that are not next.
    pub(crate) fn gap(&self, sender: Pid) -> bool {
        let log = &self.logs[sender.index()];
        log.dropped + log.kept.len() as u64 > log.have
    }

    /// The number of the first cast of `sender` that is here behind a gap, if there is a gap.
    pub(crate) fn first_behind_gap(&self, sender: Pid) -> Option<u64> {
        let log = &self.logs[sender.index()];
        let at =
            log.kept.iter().skip((log.have - log.dropped) as usize).position(Option::is_some)?;
        Some(log.have + 1 + at as u64)
    }

    /// Whether one more cast of `sender` fits into the window of what not all have.
    pub(crate) fn room(&self, sender: Pid) -> bool {
        let log = &self.logs[sender.index()];
        log.kept.len() < self.window.casts && log.bytes < self.window.bytes
    }

    /// Adds the next cast of `sender`, which is this process; gives its number.
    pub(crate) fn push(&mut self, sender: Pid, kept: RetainedCast) -> u64 {
        let log = &mut self.logs[sender.index()];
        log.count(&kept);
        log.kept.push_back(Some(kept));
        log.have += 1;
        log.have
    }

    /// Takes in a cast. Says whether it is new. One that is `needed` to end the view is taken
    /// however little is known of what the others have.
    pub(crate) fn take(
        &mut self,
        sender: Pid,
        number: u64,
        kept: RetainedCast,
        needed: bool,
    ) -> bool {
        let log = &mut self.logs[sender.index()];
        let window = self.window.casts as u64;
        let full = number > log.dropped + window * 2 && !needed;
        if number <= log.have || number > log.have + window || full {
            return false;
        }
        let at = (number - log.dropped - 1) as usize;
        while log.kept.len() <= at {
            log.kept.push_back(None);
        }
        if log.kept[at].is_some() {
            return false;
        }
        log.count(&kept);
        log.kept[at] = Some(kept);
        while log.kept.get((log.have - log.dropped) as usize).is_some_and(Option::is_some) {
            log.have += 1;
        }
        true
    }

    /// A kept cast.
    pub(crate) fn get(&self, sender: Pid, number: u64) -> Option<&RetainedCast> {
        let log = &self.logs[sender.index()];
        let at = number.checked_sub(log.dropped + 1)?;
        log.kept.get(usize::try_from(at).ok()?)?.as_ref()
    }

    /// The number of the first kept cast of `sender`.
    pub(crate) fn first(&self, sender: Pid) -> u64 {
        self.logs[sender.index()].dropped + 1
    }

    /// `process` has at least so many casts of `sender`.
    fn raise(&mut self, process: usize, sender: usize, casts: u64) {
        let known = &mut self.acked[process * self.logs.len() + sender];
        if casts > *known {
            let held = &mut self.held[sender];
            held.is_old |= *known <= held.casts;
            *known = casts;
        }
    }

    /// `process` says how many it has of each.
    pub(crate) fn ack(&mut self, process: Pid, have: &[u64]) {
        for (sender, &said) in have.iter().enumerate().take(self.logs.len()) {
            self.raise(process.index(), sender, said.min(NONSENSE));
        }
    }

    /// `sender` has made this many.
    pub(crate) fn ack_sender(&mut self, sender: Pid, number: u64) {
        self.raise(sender.index(), sender.index(), number);
    }

    /// All `members` have the casts of `sender` up to this one.
    pub(crate) fn ack_all(&mut self, members: &[Pid], sender: Pid, number: u64) {
        for process in members {
            self.raise(process.index(), sender.index(), number);
        }
    }

    /// All members have so many casts of each sender, as the member says that gathers acknowledgements. This process is one
    /// of them: it takes nothing for held that it does not have itself.
    pub(crate) fn ack_held(&mut self, held: &[u64]) {
        for (sender, &said) in held.iter().enumerate().take(self.logs.len()) {
            let known = &mut self.told[sender];
            *known = said.min(self.logs[sender].have).max(*known);
        }
    }

    /// How many casts of `sender` all members have, as that member has said.
    pub(crate) fn announced_held(&self, sender: Pid) -> u64 {
        self.told[sender.index()]
    }

    /// This process has what it has.
    pub(crate) fn ack_own(&mut self, me: Pid) {
        for sender in 0..self.logs.len() {
            self.raise(me.index(), sender, self.logs[sender].have);
        }
    }

    /// How many casts of `sender` `process` is known to have.
    pub(crate) fn acked(&self, process: Pid, sender: Pid) -> u64 {
        let said = self.acked[process.index() * self.logs.len() + sender.index()];
        said.max(self.told[sender.index()])
    }

    /// The number up to which `quorum` of `members` have the casts of `sender`.
    pub(crate) fn held(&self, members: &[Pid], sender: Pid, quorum: usize) -> u64 {
        // Groups are small: count for each candidate, the largest first.
        let of = |p: &Pid| self.acked(*p, sender);
        let enough = |n: &u64| members.iter().filter(|p| of(p) >= *n).count() >= quorum;
        members.iter().map(of).filter(enough).max().unwrap_or(0)
    }

    /// The number up to which a majority of `quorum` has the casts of `sender` where casts of [`Grade::Uniform`] wait; no
    /// number else, since nobody asks for it then.
    pub(crate) fn uniform_held(&self, members: &[Pid], sender: Pid, quorum: usize) -> u64 {
        match self.logs[sender.index()].uniform_left {
            0 => 0,
            _ => self.held(members, sender, quorum),
        }
    }

    /// The number up to which all `members` have the casts of `sender`. They are the same as long as the log is.
    pub(crate) fn held_by_all(&mut self, members: &[Pid], sender: Pid) -> u64 {
        // Asked for each sender in each step: only what has changed is looked at again.
        if self.held[sender.index()].is_old {
            let casts = members.iter().map(|p| self.acked(*p, sender)).min().unwrap_or(0);
            self.held[sender.index()] = HeldCount { casts, is_old: false };
        }
        self.held[sender.index()].casts.max(self.told[sender.index()])
    }

    /// The same where casts of [`Grade::Stable`] wait, likewise.
    pub(crate) fn stable_held(&mut self, members: &[Pid], sender: Pid) -> u64 {
        match self.logs[sender.index()].stable_left {
            0 => 0,
            _ => self.held_by_all(members, sender),
        }
    }

    /// Whether anything of `sender` is not handed over yet. Asked first, since most often nothing is.
    pub(crate) fn waits(&self, sender: Pid) -> bool {
        let log = &self.logs[sender.index()];
        log.passed() < log.have
    }

    /// The next cast of `sender` to hand over: those up to `upto` that are `held` by as many members as their grade asks
    /// for.
    pub(crate) fn next(&mut self, sender: Pid, held: HeldCasts, upto: u64) -> Option<RetainedCast> {
        let log = &mut self.logs[sender.index()];
        let upto = log.have.min(upto);
        log.next(Grade::Plain, upto)
            .or_else(|| log.next(Grade::Uniform, upto.min(held.majority)))
            .or_else(|| log.next(Grade::Stable, upto.min(held.all)))
    }

    /// Takes note of the next cast of `sender` as [`Grade::Stable`] that is whole, and not announced yet. Says whether
    /// there is one.
    pub(crate) fn announce(&mut self, sender: Pid) -> bool {
        let log = &mut self.logs[sender.index()];
        if log.stable_left == 0 {
            return false;
        }
        // One that was handed over needs no announcement.
        log.announced = log.announced.max(log.stable).max(log.dropped);
        while log.announced < log.have {
            log.announced += 1;
            let cast = log.cast(log.announced);
            if cast.grade == Grade::Stable && !cast.more {
                return true;
            }
        }
        false
    }

    /// Drops what all `members` have and was handed over here.
    pub(crate) fn trim(&mut self, members: &[Pid]) {
        for sender in 0..self.logs.len() {
            let passed = self.logs[sender].passed();
            if passed == self.logs[sender].dropped {
                continue;
            }
            let all = self.held_by_all(members, Pid(sender as u32));
            let log = &mut self.logs[sender];
            let upto = all.min(passed);
            while log.dropped < upto {
                let kept = log.kept.pop_front().flatten();
                log.bytes -= kept.map_or(0, |kept| kept.bytes.len());
                log.dropped += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Pid; 3] = [Pid(0), Pid(1), Pid(2)];

    fn kept(grade: Grade, n: u8) -> RetainedCast {
        RetainedCast { grade, more: false, bytes: Arc::from(&[n][..]) }
    }

    const fn window(casts: usize) -> SendWindow {
        SendWindow { casts, bytes: 1000 }
    }

    /// By a majority up to here, and by all up to there.
    const fn held(majority: u64, all: u64) -> HeldCasts {
        HeldCasts { majority, all }
    }

    fn next(casts: &mut CastLog, majority: u64) -> Option<u8> {
        casts.next(Pid(1), held(majority, 0), u64::MAX).map(|k| k.bytes[0])
    }

    #[test]
    fn the_first_cast_behind_a_gap_is_known_as_long_as_there_is_a_gap() {
        let mut casts = CastLog::new(0, 3, window(8));
        let mut take = |number| {
            casts.take(ALL[1], number, kept(Grade::Plain, 1), false);
            casts.first_behind_gap(ALL[1])
        };
        assert_eq!(take(1), None);
        assert_eq!([take(6), take(4), take(2), take(3)], [Some(6), Some(4), Some(4), Some(6)]);
        assert_eq!(take(5), None);
    }

    #[test]
    fn casts_are_handed_over_in_order_without_gaps_and_within_the_window() {
        let mut casts = CastLog::new(1, 3, window(4));
        assert!(casts.take(Pid(1), 2, kept(Grade::Plain, 2), false));
        assert!(casts.gap(Pid(1)) && casts.have(Pid(1)) == 0);
        assert_eq!(next(&mut casts, 0), None);
        assert!(!casts.take(Pid(1), 2, kept(Grade::Plain, 9), false), "it is there");
        assert!(!casts.take(Pid(1), 5, kept(Grade::Plain, 5), false), "beyond the window");
        assert!(casts.take(Pid(1), 1, kept(Grade::Plain, 1), false));
        assert!(!casts.gap(Pid(1)));
        assert_eq!([next(&mut casts, 0), next(&mut casts, 0)], [Some(1), Some(2)]);
        assert_eq!(next(&mut casts, 0), None);
    }

    #[test]
    fn uniform_casts_wait_for_a_quorum_and_plain_ones_do_not_wait_for_them() {
        let mut casts = CastLog::new(1, 3, window(4));
        casts.take(Pid(1), 1, kept(Grade::Uniform, 1), false);
        casts.take(Pid(1), 2, kept(Grade::Plain, 2), false);
        casts.ack(Pid(0), &[0, 2, 0]);
        assert_eq!(casts.held(&ALL, Pid(1), 2), 0);
        assert_eq!([next(&mut casts, 0), next(&mut casts, 0)], [Some(2), None]);
        casts.ack(Pid(2), &[0, 1, 0]);
        casts.ack(Pid(2), &[0, 0, 0]);
        let held = casts.held(&ALL, Pid(1), 2);
        assert_eq!((held, next(&mut casts, held)), (1, Some(1)));
    }

    #[test]
    fn what_all_have_is_dropped_and_makes_room() {
        let mut casts = CastLog::new(1, 3, window(2));
        for n in 1..=2 {
            assert!(casts.room(Pid(0)));
            assert_eq!(casts.push(Pid(0), kept(Grade::Plain, n)), u64::from(n));
        }
        assert!(!casts.room(Pid(0)));
        for p in ALL {
            casts.ack(p, &[1, 0, 0]);
        }
        casts.trim(&ALL);
        assert!(!casts.room(Pid(0)), "not handed over yet");
        while casts.next(Pid(0), held(2, 0), u64::MAX).is_some() {}
        casts.trim(&ALL);
        assert!(casts.room(Pid(0)) && casts.get(Pid(0), 1).is_none());
        assert_eq!(casts.get(Pid(0), 2).map(|k| k.bytes[0]), Some(2));
        assert_eq!(casts.first(Pid(0)), 2);
    }

    #[test]
    fn a_window_of_bytes_is_full_before_that_of_casts() {
        let mut casts = CastLog::new(1, 3, SendWindow { casts: 9, bytes: 2 });
        casts.push(Pid(0), kept(Grade::Plain, 1));
        assert!(casts.room(Pid(0)));
        casts.push(Pid(0), kept(Grade::Plain, 2));
        assert!(!casts.room(Pid(0)) && casts.room(Pid(1)));
        ALL.iter().for_each(|p| casts.ack(*p, &[1, 0, 0]));
        casts.trim(&ALL);
        assert!(!casts.room(Pid(0)), "not handed over yet");
        while casts.next(Pid(0), held(0, 0), u64::MAX).is_some() {}
        casts.trim(&ALL);
        assert!(casts.room(Pid(0)));
    }

    #[test]
    fn stable_casts_are_announced_when_they_come_and_wait_for_all_members() {
        let mut casts = CastLog::new(1, 3, window(8));
        let part = RetainedCast { more: true, ..kept(Grade::Stable, 1) };
        casts.take(Pid(1), 1, part, false);
        assert!(!casts.announce(Pid(1)), "it is not whole");
        casts.take(Pid(1), 2, kept(Grade::Stable, 2), false);
        casts.take(Pid(1), 3, kept(Grade::Uniform, 3), false);
        casts.take(Pid(1), 5, kept(Grade::Stable, 5), false);
        assert!(casts.announce(Pid(1)) && !casts.announce(Pid(1)), "once, and none behind a gap");
        let bytes = |cast: Option<RetainedCast>| cast.map(|cast| cast.bytes[0]);
        assert_eq!(bytes(casts.next(Pid(1), held(3, 0), 9)), Some(3), "a majority has them");
        assert_eq!(bytes(casts.next(Pid(1), held(3, 1), 9)), Some(1));
        assert_eq!(bytes(casts.next(Pid(1), held(3, 1), 9)), None);
        casts.take(Pid(1), 4, kept(Grade::Stable, 4), false);
        assert!(casts.announce(Pid(1)) && casts.announce(Pid(1)) && !casts.announce(Pid(1)));
        let mut rest = core::iter::from_fn(|| bytes(casts.next(Pid(1), HeldCasts::ANY, 4)));
        assert_eq!(
            [rest.next(), rest.next(), rest.next()],
            [Some(2), Some(4), None],
            "up to the cut"
        );
    }

    #[test]
    fn what_all_have_follows_each_acknowledgement_and_what_another_member_has_gathered() {
        let mut casts = CastLog::new(1, 3, window(64));
        for n in 1..=40 {
            assert!(casts.take(Pid(1), n, kept(Grade::Stable, n as u8), false));
        }
        // As a count over all of them finds it.
        let mut known = [0_u64; 3];
        for n in 0..200_u64 {
            let (p, has) = ((n * 7 % 5 % 3) as usize, n * 13 % 41);
            known[p] = known[p].max(has);
            casts.ack(ALL[p], &[0, has, 0]);
            if n % 3 == 0 {
                assert_eq!(casts.held_by_all(&ALL, Pid(1)), *known.iter().min().unwrap_or(&0));
            }
        }
        let mut casts = CastLog::new(1, 3, window(64));
        assert!(casts.take(Pid(1), 1, kept(Grade::Stable, 1), false));
        casts.ack_held(&[0, 9, 0]);
        assert_eq!(casts.held_by_all(&ALL, Pid(1)), 1, "no more than is here");
        assert_eq!((casts.acked(Pid(2), Pid(1)), casts.announced_held(Pid(1))), (1, 1));
    }
}
