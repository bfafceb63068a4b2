//! Replicas that are gone in turn: who leads does not reach the others any more, another one takes over, and
//! is gone itself as soon as the first one is back. The next that takes over finds two logs with different
//! values for one position, and must choose the right one.

use super::{Fault, FaultDrawing, FaultTime, Profile, Strike, assumes};
use crate::chooser::Concern;
use alloc::vec::Vec;
use amcast_core::{About, Assumption, ClusterShape, MediumKind, Pid, Span, Time};

/// Whether runs of this profile may have successions: of protocols over messages in whose groups a majority
/// continues without the others, and takes them in again.
pub(crate) fn has_successions(profile: Profile, about: &About, cluster: &ClusterShape) -> bool {
    let strikes = profile.has(Profile::Crash) || profile.has(Profile::Network);
    let bears = !assumes(about, Assumption::NoCrash) && !about.capabilities.views;
    strikes && bears && about.medium == MediumKind::Messages && cluster.replicas() >= 3
}

impl FaultDrawing<'_> {
    /// Rounds in which two replicas of a group are gone in turn; drawn apart from all other faults. A replica that is
    /// silent for `silence` is suspected.
    pub(super) fn successions(&mut self, profile: Profile, silence: Span) {
        self.concern = Concern::Successions;
        let mut at = self.up_to(silence.times(2));
        while at.0 < self.calm.0 {
            let end = self.succession(profile, silence, Time(at.0));
            at = end.since(Time::ZERO) + silence + self.up_to(silence.times(3));
        }
        self.concern = Concern::Faults;
    }

    fn up_to(&mut self, most: Span) -> Span {
        Span(self.pick(most.0 + 1))
    }

    /// So long that another one takes over, mostly: at least as long as it takes to suspect somebody, and
    /// often as long as some rounds of messages and slow writes to disks besides.
    fn absence(&mut self, silence: Span) -> Span {
        let scale = silence.times(1 << self.pick(3));
        scale + self.up_to(scale)
    }

    /// One round, from `at` on. The time at which all are back.
    fn succession(&mut self, profile: Profile, silence: Span, at: Time) -> Time {
        let [first, second, third] = self.three();
        // It may continue as if it led, with those clients that it reaches.
        let away = self.absence(silence);
        let mut side = alloc::vec![first];
        side.extend(self.some_clients());
        let both = self.pick(4) != 3;
        self.strike(at, Fault::Partition { side, both, span: away });
        let mut back = at + away;
        if self.crashes(profile) && self.pick(2) == 1 {
            let down = self.span(silence);
            let mid_step = self.pick(2) == 1;
            self.strike(back, Fault::Crash { p: first, mid_step, down: Some(down) });
            back += down;
        }
        // Nobody hears what the second one says last: nobody else knows that it is decided, and the first one
        // receives no report when it is back.
        let goes = back + self.span(Span(silence.0 / 2));
        let from = Time(back.0 - self.up_to(Span(silence.0 / 4)).0);
        let side = alloc::vec![second];
        self.strike(from, Fault::Partition { side, both: false, span: goes.since(from) });
        let away = self.absence(silence);
        if self.crashes(profile) {
            let mid_step = self.pick(2) == 1;
            self.strike(goes, Fault::Crash { p: second, mid_step, down: Some(away) });
        } else {
            let side = alloc::vec![second];
            self.strike(goes, Fault::Partition { side, both: true, span: away });
        }
        if profile.has(Profile::Disk) && self.around.replaces && self.pick(4) == 3 {
            let span = Span(1 + self.pick(silence.0));
            self.strike(goes, Fault::Replace { p: third, span });
        }
        goes + away
    }

    fn strike(&mut self, at: Time, fault: Fault) {
        if at < self.calm {
            self.strikes.push(Strike { at: FaultTime::Time(at), fault });
        }
    }

    /// Whether a replica crashes, and is not cut off.
    fn crashes(&mut self, profile: Profile) -> bool {
        let may = [Profile::Crash, Profile::Network].map(|kind| profile.has(kind));
        match may {
            [true, true] => self.pick(2) == 1,
            [crash, _] => crash,
        }
    }

    /// Three replicas of one group, mostly in the order in which they lead.
    fn three(&mut self) -> [Pid; 3] {
        let leader = self.likely_leader();
        let replicas = self.cluster.replicas();
        let group = self.cluster.group_of(leader).expect("a replica leads");
        let rank = group.index() % replicas + usize::from(self.pick(4) == 3);
        let turn = 1 + usize::from(self.pick(4) == 3);
        [0, turn, 2 * turn].map(|ahead| self.cluster.replica(group, (rank + ahead) % replicas))
    }

    fn some_clients(&mut self) -> Vec<Pid> {
        let cluster = self.cluster;
        let clients = (0..cluster.clients()).map(|n| cluster.client(n));
        clients.filter(|_| self.pick(2) == 1).collect()
    }
}
