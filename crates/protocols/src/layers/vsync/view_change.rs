//! From one view to the next, at this process: it takes in no more casts, fetches those that the view ends with, hands
//! them over, and enters the view that is decided; or it is excluded.

use super::agreement::{AgreementStep, ViewDecision};
use super::casts::HeldCasts;
use super::membership::{AppState, ViewPhase};
use super::{Vsync, VsyncMutant, VsyncPacket};
use amcast_core::codec::Codec;
use amcast_core::groupcast::{Groupcast, GroupcastInput, View};
use amcast_core::messages::Messages;
use amcast_core::{Input, Outbox, Protocol, ProtocolEvent};

impl<M, P> Vsync<M, P>
where
    M: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Groupcast<M>>,
{
    /// Carries out a request of the agreement, and those that follow from it.
    pub(super) fn carry_out(
        &mut self,
        request: AgreementStep,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let mut next = Some(request);
        while let Some(request) = next.take() {
            match request {
                AgreementStep::Block(waiting) => {
                    self.block(out);
                    self.stay_blocked();
                    let log = &self.casts.log;
                    next = self.agreement.blocked(&self.group, log, waiting, &mut self.post);
                }
                AgreementStep::Fetch(cut) => self.casts.need(cut, self.group.now),
                AgreementStep::Decided(decision) => self.learn(decision, out),
                AgreementStep::Install(decision) => self.install(decision, out),
                AgreementStep::Released(decision) => {
                    self.group.decision = decision;
                    self.go(out);
                }
            }
        }
    }

    /// The coordinator's part of a round.
    pub(super) fn coordinate(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        // Most steps have nothing to do with views.
        if self.agreement.rests(&self.group) {
            return;
        }
        let step = self.agreement.coordinate(&self.group, &self.casts.log, &mut self.post);
        if let Some(request) = step {
            self.carry_out(request, out);
        }
    }

    /// This process takes in no more casts of the view.
    pub(super) fn block(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.group.phase != ViewPhase::Active {
            return;
        }
        if self.transfer.has_begun() {
            self.tell(Input::Medium(GroupcastInput::Block), out);
        }
        self.group.phase = ViewPhase::Blocked;
        self.casts.block();
    }

    /// This process does not enter the view that it was about to enter, whose casts it cannot get. Where a majority decides
    /// nobody asks for that.
    fn stay_blocked(&mut self) {
        if self.group.phase == ViewPhase::Entering {
            self.group.phase = ViewPhase::Blocked;
            self.casts.forget_cut();
        }
    }

    /// The coordinator of the component installs a view with this process.
    fn install(&mut self, decision: ViewDecision, out: &mut Outbox<Messages<VsyncPacket>>) {
        let me = self.group.me();
        for member in decision.view.members.iter().filter(|m| m.pid != me) {
            self.group.learn_incarnation(member.pid, member.life);
        }
        let cut = decision.cut.clone();
        self.group.decision = decision;
        self.group.phase = ViewPhase::Entering;
        self.casts.need(cut, self.group.now);
        self.enter_if_complete(out);
    }

    /// A view was decided.
    pub(super) fn learn(
        &mut self,
        decision: ViewDecision,
        out: &mut Outbox<Messages<VsyncPacket>>,
    ) {
        let id = decision.view.id;
        let known = self.group.decision.view.id;
        if id <= known || !decision.is_sound(self.group.settings.processes) {
            return;
        }
        let stays = self.group.is_inside() && id == known + 1;
        let me = self.group.myself();
        let chosen = decision.view.members.contains(&me);
        self.agreement.conclude(&decision, chosen);
        for member in decision.view.members.iter().filter(|m| m.pid != me.pid) {
            self.group.learn_incarnation(member.pid, member.life);
        }
        let ViewDecision { view, cut } = decision.clone();
        self.group.decision = decision;
        if chosen && stays {
            self.block(out);
            self.group.phase = ViewPhase::Entering;
            self.casts.need(cut, self.group.now);
            self.enter_if_complete(out);
        } else if stays && self.leaves_with(&cut) {
            self.go(out);
        } else if self.group.phase != ViewPhase::Out {
            // Also if it is named again in a view after one that it has missed.
            self.leave(out);
        } else if chosen {
            self.enter(view, out);
        }
    }

    /// The group continues without this process.
    fn leave(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.transfer.has_begun() {
            self.tell(Input::Medium(GroupcastInput::Excluded), out);
        }
        self.group.phase = ViewPhase::Out;
        self.group.begin_life(self.group.life + 1);
        self.end_membership();
        out.event(ProtocolEvent::Excluded(self.group.decision.view.id));
    }

    /// This process is in no view any more: it keeps casts for the others, and its state is void.
    pub(super) fn end_membership(&mut self) {
        self.casts.put_away(&self.group.settings);
        self.group.app_state = AppState::Missing;
        self.transfer.forget();
    }

    /// Hands over what the old view ends with, if it has it all, and enters the new one.
    fn enter_if_complete(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        if self.group.phase != ViewPhase::Entering {
            return;
        }
        let careless = self.group.is_broken(VsyncMutant::ForgetsTheCut);
        if !self.casts.log.has_all(&self.group.decision.cut) && !careless {
            return;
        }
        if self.transfer.has_begun() {
            for at in 0..self.group.members.len() {
                let sender = self.group.members[at];
                let upto = self.group.decision.cut[sender.index()];
                while let Some(kept) = self.casts.log.next(sender, HeldCasts::ANY, upto) {
                    self.give(sender, kept, out);
                }
            }
        }
        self.casts.keep_for_others(&self.group.settings);
        self.enter(self.group.decision.view.clone(), out);
    }

    /// Enters a view.
    fn enter(&mut self, view: View, out: &mut Outbox<Messages<VsyncPacket>>) {
        self.casts.begin_view(view.id, &self.group.settings);
        let before = self.group.enter(view);
        self.transfer.forget_base();
        if self.transfer.has_begun() {
            // The protocol above delivers what is left of the old view.
            let view = self.group.view.clone();
            self.tell(Input::Medium(GroupcastInput::View(&view)), out);
        }
        out.event(self.group.view_entered(Some(&before)));
        self.group.merged(&before).for_each(|event| out.event(event));
        if !self.transfer.has_begun() {
            self.transfer.seek_base(self.group.now);
            out.event(ProtocolEvent::Lagging);
        }
        // Earlier messages of the others are sent again when they hear that it has entered.
        self.casts.ack_members(&self.group, &mut self.post);
        self.tell_left();
    }

    /// Asks for what is needed to end the view, unless this process has it and enters the next one.
    pub(super) fn fetch_needed(&mut self, out: &mut Outbox<Messages<VsyncPacket>>) {
        if let Some(decided) = self.agreement.decide_if_accepted(&self.group, &mut self.post) {
            self.carry_out(decided, out);
        }
        self.enter_if_complete(out);
        if self.casts.needed_at() > self.group.now {
            return;
        }
        let (group, agreement) = (&self.group, &self.agreement);
        let known = |sender, upto| agreement.known_holder(group, sender, upto);
        self.casts.fetch_needed(group, known, agreement.coordinator(group), &mut self.post);
    }
}
