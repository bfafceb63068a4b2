//! The casts of one view as one member has them: numbered by sender, kept until all have them.

use super::view_change::NONSENSE;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use amcast_core::Pid;
use amcast_core::groupcast::Grade;

/// A cast that is kept, or a part of one that is larger than a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RetainedCast {
    pub(super) grade: Grade,
    /// Whether the next cast of that sender and grade continues it.
    pub(super) more: bool,
    pub(super) bytes: Arc<[u8]>,
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
}

/// The casts of one view, by sender.
#[derive(Clone, Debug)]
pub(super) struct Casts {
    /// The view.
    pub(super) view: u64,
    logs: Vec<SenderLog>,
    /// How many casts of each sender each process has, by process and sender.
    acked: Vec<u64>,
    /// The casts that a sender may have that are not known to be everywhere.
    window: SendWindow,
}

/// How much a sender may have that is not known to be everywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWindow {
    /// Casts.
    pub(super) casts: usize,
    /// Bytes of them; one cast more may begin as long as they are not reached.
    pub(super) bytes: usize,
}

impl Casts {
    pub(super) fn new(view: u64, processes: usize, window: SendWindow) -> Self {
        Self {
            view,
            logs: alloc::vec![SenderLog::default(); processes],
            acked: alloc::vec![0; processes * processes],
            window,
        }
    }

    /// How many casts of `sender` are here without a gap.
    pub(super) fn have(&self, sender: Pid) -> u64 {
        self.logs[sender.index()].have
    }

    /// The same of every sender.
    pub(super) fn all(&self) -> Vec<u64> {
        self.logs.iter().map(|log| log.have).collect()
    }

    /// Whether casts of `sender` came that are not next.
    pub(super) fn gap(&self, sender: Pid) -> bool {
        let log = &self.logs[sender.index()];
        log.dropped + log.kept.len() as u64 > log.have
    }

    /// Whether one more cast of `sender` fits into the window of what not all have.
    pub(super) fn room(&self, sender: Pid) -> bool {
        let log = &self.logs[sender.index()];
        log.kept.len() < self.window.casts && log.bytes < self.window.bytes
    }

    /// Adds the next cast of `sender`, which is this process; gives its number.
    pub(super) fn push(&mut self, sender: Pid, kept: RetainedCast) -> u64 {
        let log = &mut self.logs[sender.index()];
        log.bytes += kept.bytes.len();
        log.kept.push_back(Some(kept));
        log.have += 1;
        log.have
    }

    /// Takes in a cast. Says whether it is new. One that is `needed` to end the view is taken
    /// however little is known of what the others have.
    pub(super) fn take(
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
        log.bytes += kept.bytes.len();
        log.kept[at] = Some(kept);
        while log.kept.get((log.have - log.dropped) as usize).is_some_and(Option::is_some) {
            log.have += 1;
        }
        true
    }

    /// A kept cast.
    pub(super) fn get(&self, sender: Pid, number: u64) -> Option<&RetainedCast> {
        let log = &self.logs[sender.index()];
        let at = number.checked_sub(log.dropped + 1)?;
        log.kept.get(usize::try_from(at).ok()?)?.as_ref()
    }

    /// The number of the first kept cast of `sender`.
    pub(super) fn first(&self, sender: Pid) -> u64 {
        self.logs[sender.index()].dropped + 1
    }

    /// `process` says how many it has of each.
    pub(super) fn ack(&mut self, process: Pid, have: &[u64]) {
        let count = self.logs.len();
        let row = &mut self.acked[process.index() * count..][..count];
        for (known, &said) in row.iter_mut().zip(have) {
            *known = said.min(NONSENSE).max(*known);
        }
    }

    /// `sender` has made this many.
    pub(super) fn ack_sender(&mut self, sender: Pid, number: u64) {
        let known = &mut self.acked[sender.index() * self.logs.len() + sender.index()];
        *known = number.max(*known);
    }

    /// This process has what it has.
    pub(super) fn ack_own(&mut self, me: Pid) {
        let count = self.logs.len();
        let row = &mut self.acked[me.index() * count..][..count];
        row.iter_mut().zip(&self.logs).for_each(|(known, log)| *known = log.have);
    }

    /// How many casts of `sender` `process` is known to have.
    pub(super) fn acked(&self, process: Pid, sender: Pid) -> u64 {
        self.acked[process.index() * self.logs.len() + sender.index()]
    }

    /// The number up to which `quorum` of `members` have the casts of `sender`.
    pub(super) fn held(&self, members: &[Pid], sender: Pid, quorum: usize) -> u64 {
        // Groups are small: count for each candidate, the largest first.
        let of = |p: &Pid| self.acked(*p, sender);
        let enough = |n: &u64| members.iter().filter(|p| of(p) >= *n).count() >= quorum;
        members.iter().map(of).filter(enough).max().unwrap_or(0)
    }

    /// Whether anything of `sender` is not handed over yet. Asked first, since most often nothing is.
    pub(super) fn waits(&self, sender: Pid) -> bool {
        let log = &self.logs[sender.index()];
        log.plain.min(log.uniform) < log.have
    }

    /// The next cast of `sender` to hand over, if those of [`Grade::Uniform`] up to `held`, and any
    /// up to `upto`, may be.
    pub(super) fn next(&mut self, sender: Pid, held: u64, upto: u64) -> Option<RetainedCast> {
        let log = &mut self.logs[sender.index()];
        let upto = log.have.min(upto);
        let kept = |log: &SenderLog, number: u64| {
            log.kept[(number - log.dropped - 1) as usize].clone().expect("none is missing")
        };
        while log.plain < upto {
            log.plain += 1;
            let found = kept(log, log.plain);
            if found.grade == Grade::Plain {
                return Some(found);
            }
        }
        while log.uniform < upto.min(held) {
            log.uniform += 1;
            let found = kept(log, log.uniform);
            if found.grade == Grade::Uniform {
                return Some(found);
            }
        }
        None
    }

    /// Drops what all `members` have and was handed over here.
    pub(super) fn trim(&mut self, members: &[Pid]) {
        for sender in 0..self.logs.len() {
            let pid = Pid(sender as u32);
            let all = members.iter().map(|p| self.acked(*p, pid)).min().unwrap_or(0);
            let log = &mut self.logs[sender];
            let upto = all.min(log.plain).min(log.uniform);
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

    fn next(casts: &mut Casts, held: u64) -> Option<u8> {
        casts.next(Pid(1), held, u64::MAX).map(|k| k.bytes[0])
    }

    #[test]
    fn casts_are_handed_over_in_order_without_gaps_and_within_the_window() {
        let mut casts = Casts::new(1, 3, window(4));
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
        let mut casts = Casts::new(1, 3, window(4));
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
        let mut casts = Casts::new(1, 3, window(2));
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
        while casts.next(Pid(0), 2, u64::MAX).is_some() {}
        casts.trim(&ALL);
        assert!(casts.room(Pid(0)) && casts.get(Pid(0), 1).is_none());
        assert_eq!(casts.get(Pid(0), 2).map(|k| k.bytes[0]), Some(2));
        assert_eq!(casts.first(Pid(0)), 2);
    }

    #[test]
    fn a_window_of_bytes_is_full_before_that_of_casts() {
        let mut casts = Casts::new(1, 3, SendWindow { casts: 9, bytes: 2 });
        casts.push(Pid(0), kept(Grade::Plain, 1));
        assert!(casts.room(Pid(0)));
        casts.push(Pid(0), kept(Grade::Plain, 2));
        assert!(!casts.room(Pid(0)) && casts.room(Pid(1)));
        ALL.iter().for_each(|p| casts.ack(*p, &[1, 0, 0]));
        while casts.next(Pid(0), 0, u64::MAX).is_some() {}
        // Nothing of the other grade is among them.
        casts.trim(&ALL);
        assert!(!casts.room(Pid(0)), "the uniform ones have not passed it");
        while casts.next(Pid(0), 2, u64::MAX).is_some() {}
        casts.trim(&ALL);
        assert!(casts.room(Pid(0)));
    }
}
