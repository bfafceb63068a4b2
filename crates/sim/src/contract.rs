//! The duties of a protocol with the events that it reports ([`ProtocolEvent`]), as far as one process shows them:
//! the states that it goes through, and what it must not report or do in each.
//!
//! ```text
//!            ViewEntered               Excluded
//! Outside ---------------> Inside ------------------> Excluded --ViewEntered--> Inside
//!                                                     (lagging until CaughtUp)
//! any of these --Left, after Leave--> no delivery and no view any more
//! ```

use amcast_core::{ProtocolEvent, StateSource};

/// Where a process is with respect to the views of its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Membership {
    /// It has entered no view in this life.
    Outside,
    /// It is in a view of these members, a bit each.
    Inside(u32),
    /// Its group excluded it, and it has entered no view since.
    Excluded,
}

/// Its reports of stopping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopping {
    /// It was not asked to leave.
    NotAsked,
    /// It was asked to leave.
    Asked,
    /// It said that it may stop.
    MayStop,
    /// It said that it has left.
    Left,
}

/// The reports of one process in this life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventContract {
    membership: Membership,
    stopping: Stopping,
    /// It misses state, and has not reported that it has caught up.
    lagging: bool,
    /// How often it said in this life which state it needs.
    needs: u64,
    /// The state that it needs is not in force.
    is_open: bool,
    /// It was started: what its log holds was given to it before.
    started: bool,
    /// It counted as fit after its last step since its start.
    was_fit: bool,
    /// Its driver reported that state of the application is missing, and it was not fit since.
    told_unfit: bool,
    /// The last view that it entered or was excluded in, over all its lives.
    view: Option<u64>,
}

impl EventContract {
    pub(crate) const fn new() -> Self {
        Self {
            membership: Membership::Outside,
            stopping: Stopping::NotAsked,
            lagging: false,
            needs: 0,
            is_open: false,
            started: false,
            was_fit: false,
            told_unfit: false,
            view: None,
        }
    }

    /// The process died. The numbers of its views still grow in its next life, unless it forgets them.
    pub(crate) fn restart(&mut self, forgets_views: bool) {
        let view = self.view.filter(|_| !forgets_views);
        *self = Self { view, ..Self::new() };
    }

    /// It is asked to leave.
    pub(crate) fn asked_to_leave(&mut self) {
        if self.stopping == Stopping::NotAsked {
            self.stopping = Stopping::Asked;
        }
    }

    /// It learns that a state is in force, which answers the first `needs` that it reported.
    pub(crate) fn installed(&mut self, needs: u64) {
        self.is_open &= needs < self.needs;
    }

    /// The view that it is in.
    pub(crate) const fn in_view(&self) -> Option<u64> {
        match self.membership {
            Membership::Inside(_) => self.view,
            Membership::Outside | Membership::Excluded => None,
        }
    }

    /// It is started. Before that it does not know yet which state it lost.
    pub(crate) fn started(&mut self) {
        self.started = true;
    }

    /// Its driver reports that state of the application is missing.
    pub(crate) fn told_unfit(&mut self) {
        self.told_unfit = true;
    }

    /// Checks an event of the process, which is the one of this number among the `replicas` of its group, and
    /// whose deliveries and installed states have reached `position`.
    ///
    /// # Errors
    /// The forbidden action.
    pub(crate) fn report(
        &mut self,
        event: ProtocolEvent,
        rank: usize,
        replicas: usize,
        position: u64,
    ) -> Result<(), &'static str> {
        match event {
            ProtocolEvent::Part(_) | ProtocolEvent::Leads(_) | ProtocolEvent::StorageRecovered => {
                Ok(())
            }
            ProtocolEvent::Lagging => {
                self.lagging = true;
                Ok(())
            }
            ProtocolEvent::NeedsState { source, .. } => {
                (self.needs, self.is_open) = (self.needs + 1, true);
                require(self.lagging, "it needs a state, and has not reported that it is lagging")?;
                let is_in = match source {
                    StateSource::Replicas => true,
                    StateSource::View(view) => self.in_view() == Some(view),
                };
                require(is_in, "it needs the state of members of a view that it is not in")
            }
            ProtocolEvent::CaughtUp(upto) => {
                self.lagging = false;
                require(!self.is_open, "it caught up before the state that it needs was in force")?;
                require(upto <= position, "it caught up to a position that it has not delivered")
            }
            ProtocolEvent::ViewEntered { number, members, continuing } => {
                self.enter(number, members, continuing)?;
                let all = u32::MAX >> (32 - replicas.clamp(1, 32));
                require(members & !all == 0, "a view has members that are not in the group")?;
                require(members >> rank & 1 == 1, "it entered a view without being a member")
            }
            ProtocolEvent::Merged { view, members, .. } => {
                let is_in = self.in_view() == Some(view);
                require(is_in, "it reports a merge in a view that it is not in")?;
                let Membership::Inside(all) = self.membership else { return Ok(()) };
                let others = members & !(1 << rank);
                require(members != 0 && others == members, "it merges with nobody, or itself")?;
                require(members & !all == 0, "it merges with processes that are not in its view")
            }
            ProtocolEvent::Excluded(view) => self.exclude(view),
            ProtocolEvent::Left(view) => self.stop(Stopping::Left, view),
            ProtocolEvent::MayStop(view) => self.stop(Stopping::MayStop, view),
        }
    }

    fn enter(&mut self, number: u64, members: u32, continuing: u32) -> Result<(), &'static str> {
        let before = match self.membership {
            Membership::Inside(members) => members,
            Membership::Outside | Membership::Excluded => 0,
        };
        let grows = self.view.is_none_or(|last| number > last);
        let left = self.stopping == Stopping::Left;
        (self.view, self.membership) = (Some(number), Membership::Inside(members));
        require(!left, "it entered a view after it had left")?;
        require(grows, "it entered a view whose number does not grow")?;
        require(continuing & !before == 0, "a continuing member was not in the view before")?;
        require(continuing & !members == 0, "a continuing member is not in the view")
    }

    fn exclude(&mut self, view: u64) -> Result<(), &'static str> {
        let inside = matches!(self.membership, Membership::Inside(_));
        let grows = self.view.is_none_or(|last| view > last);
        (self.view, self.membership, self.lagging) = (Some(view), Membership::Excluded, true);
        // The needed state is of no use any more.
        self.is_open = false;
        require(inside, "it was excluded and was in no view")?;
        require(grows, "it was excluded in a view that it had entered, or before")
    }

    fn stop(&mut self, how: Stopping, view: u64) -> Result<(), &'static str> {
        let asked = self.stopping == Stopping::Asked;
        self.stopping = how;
        let later = self.view.is_none_or(|last| view > last);
        require(asked, "it left or may stop, and was not asked to leave, or said so before")?;
        require(how == Stopping::MayStop || later, "it left in a view that it had entered")
    }

    /// Checks that it may deliver.
    ///
    /// # Errors
    /// Why it must not.
    pub(crate) fn deliver(&self) -> Result<(), &'static str> {
        let excluded = self.membership == Membership::Excluded;
        require(!excluded, "it delivered while it was excluded")?;
        require(self.stopping != Stopping::Left, "it delivered after it had left")
    }

    /// Checks whether it may count as fit, or not, after a step.
    ///
    /// # Errors
    /// Why it must not.
    pub(crate) fn counts_as(&mut self, fit: bool) -> Result<(), &'static str> {
        let turned = self.was_fit && !fit;
        self.was_fit = fit && self.started;
        if fit {
            self.told_unfit = false;
            require(!self.lagging, "it is fit, and has not said that it caught up")?;
            return require(
                !self.is_open,
                "it is fit, and the state that it needs is not in force",
            );
        }
        // A process that was asked to leave is out of its group before it knows that the others are without it.
        let leaves = self.stopping != Stopping::NotAsked;
        let said = self.lagging || self.is_open || self.told_unfit || leaves;
        require(!turned || said, "it is not fit any more, and has not said that it lags")
    }
}

fn require(holds: bool, breach: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(breach) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_delivered_between_the_end_of_a_membership_and_the_next_view() {
        let view = |number| ProtocolEvent::ViewEntered { number, members: 1, continuing: 0 };
        let mut contract = EventContract::new();
        let mut report = |event| {
            contract.report(event, 0, 1, 0).expect("it is allowed");
            contract.deliver().is_ok()
        };
        assert!(report(view(1)));
        assert!(!report(ProtocolEvent::Excluded(2)));
        assert!(report(view(3)));
        contract.asked_to_leave();
        contract.report(ProtocolEvent::Left(4), 0, 1, 0).expect("it was asked to leave");
        assert_eq!(contract.deliver(), Err("it delivered after it had left"));
        contract.counts_as(false).expect("a process that has left need not be fit");
        // In its next life it delivers; the numbers of its views still grow.
        contract.restart(false);
        assert_eq!(contract.deliver(), Ok(()));
        let stale = contract.report(view(1), 0, 1, 0);
        assert_eq!(stale, Err("it entered a view whose number does not grow"));
    }

    #[test]
    fn a_process_that_was_fit_reports_that_it_lags_before_it_is_not() {
        let silent = Err("it is not fit any more, and has not said that it lags");
        let mut contract = EventContract::new();
        // While it reads its log it knows nothing, and at its start it may find that it lost some of it.
        assert_eq!([true, false].map(|fit| contract.counts_as(fit)), [Ok(()), Ok(())]);
        contract.started();
        assert_eq!(
            [false, true, false].map(|fit| contract.counts_as(fit)),
            [Ok(()), Ok(()), silent]
        );
        contract.restart(false);
        contract.started();
        assert_eq!(contract.counts_as(true), Ok(()));
        contract.report(ProtocolEvent::Lagging, 0, 1, 0).expect("it may lag");
        assert_eq!(contract.counts_as(false), Ok(()));
        contract.report(ProtocolEvent::CaughtUp(0), 0, 1, 0).expect("it caught up");
        assert_eq!(contract.counts_as(true), Ok(()));
        contract.told_unfit();
        assert_eq!(contract.counts_as(false), Ok(()));
        assert_eq!([true, false].map(|fit| contract.counts_as(fit)), [Ok(()), silent]);
    }
}
