//! What a process of Multi-Ring Paxos hears of others, and which part of it that is for.

use super::process::MultiRing;
use super::rings::RingId;
use super::value::{Ballot, count};
use super::word::{Gaps, Packet, Standing, Word};
use amcast_core::messages::Messages;
use amcast_core::step::Note;
use amcast_core::{Outbox, Pid};

impl MultiRing {
    /// Whether the life that says something is the last one that is known of it.
    pub(super) fn heard_life(&mut self, from: Pid, life: u32) -> bool {
        let held = self.lives[from.index()];
        if life > held {
            self.lives[from.index()] = life;
            self.heartbeat.restarted(self.now, from.index());
            self.reach.told(from, Gaps::default());
            self.rings.iter_mut().flatten().for_each(|ring| ring.restarted(from));
            self.reconnected(from);
        }
        life >= held
    }

    /// The connection to `p` is new: what was on the way may be lost.
    pub(super) fn reconnected(&mut self, p: Pid) {
        self.rings.iter_mut().flatten().for_each(|ring| ring.reconnected(p));
        self.proposers.iter_mut().for_each(|proposer| proposer.reconnected(p));
    }

    /// A word of a life that is not over.
    pub(super) fn hear(&mut self, from: Pid, word: Word, out: &mut Outbox<Messages<Packet>>) {
        let mut wrong = None;
        match word {
            Word::Alive { count, fit, gaps, rings } => {
                self.reach.told(from, gaps);
                self.on_alive(from, count, fit, &rings);
            }
            Word::Propose { ring, proposals } => {
                if count(&proposals, |sender| sender == from).is_some() {
                    self.with_ring(ring, |r, cx| r.on_propose(from, &proposals, cx));
                } else {
                    wrong = Some("what is no proposal, or in another's name");
                }
            }
            Word::Relay { ring, sender, proposals } => {
                let one = sender.index() < self.shape.cluster.processes();
                if one && count(&proposals, |s| s == sender).is_some() {
                    self.with_ring(ring, |r, cx| r.on_relay(from, sender, proposals, cx));
                } else {
                    wrong = Some("what is no proposal, or in another's name");
                }
            }
            Word::Done { ring, life, upto } => {
                if let Some(p) = self.proposers.get_mut(usize::from(ring))
                    && life == self.life
                {
                    p.done(upto, self.now);
                }
            }
            Word::Lead { ring, ballot } => self.on_lead(from, ring, ballot),
            Word::Want { ring, upto } => self.on_want(ring, upto),
            Word::Pass(pass) => {
                let id = pass.ring;
                wrong = self.with_ring(id, |r, cx| r.on_pass(from, pass, cx)).and_then(Result::err);
            }
            Word::Lack { ring, ballot, from: at } => {
                self.with_ring(ring, |r, cx| r.on_lack(from, (ballot, at), cx));
            }
            Word::Fetch { ring, from: at, table } => self.on_fetch(from, ring, (at, table), out),
            Word::Learn { ring, lesson } => {
                let done = self.with_ring(ring, |r, cx| r.on_learn(from, lesson, cx));
                wrong = done.and_then(Result::err);
            }
            Word::Skipped { ring, entry } => {
                let done = self.with_ring(ring, |r, cx| r.on_skipped(from, entry, cx));
                wrong = done.and_then(Result::err);
            }
            Word::Probe { round } => self.on_probe(from, round),
            Word::Voted { life, round, rings } if life == self.life => {
                wrong = self.on_voted(from, round, &rings).err();
            }
            Word::Voted { .. } => {}
            other => wrong = self.hear_of_ballots(from, other, out).err(),
        }
        if let Some(why) = wrong {
            out.note(Note::Malformed(from, why));
        }
    }

    fn hear_of_ballots(
        &mut self,
        from: Pid,
        word: Word,
        out: &mut Outbox<Messages<Packet>>,
    ) -> Result<(), &'static str> {
        match word {
            Word::Canvass { ballot, .. } | Word::Prepare { ballot, .. }
                if ballot.coordinator() != Some(from) =>
            {
                return Err("a ballot of another's");
            }
            Word::Canvass { ring, ballot } => {
                self.with_ring(ring, |r, cx| r.on_canvass(from, ballot, cx));
            }
            Word::Consent { ring, ballot } => {
                self.with_ring(ring, |r, cx| r.on_consent(from, ballot, cx.now));
            }
            Word::Prepare { ring, ballot } => {
                self.with_ring(ring, |r, cx| r.on_prepare(from, ballot, cx));
            }
            Word::Accepted { ring, ballot, entry } => {
                self.with_ring(ring, |r, _| r.on_accepted(from, ballot, entry));
            }
            Word::Promise { ring, ballot, known, settled, count, memories } => {
                let head = (ballot, known, settled, count);
                let done = self.with_ring(ring, |r, cx| r.on_promise(from, head, memories, cx));
                return done.unwrap_or(Ok(()));
            }
            Word::Refuse { ring, promised } => {
                self.with_ring(ring, |r, cx| r.on_refuse(from, promised, cx));
            }
            Word::Carry(carried) => return self.on_carry(from, *carried, out),
            other => self.hear_of_state(from, other, out),
        }
        Ok(())
    }

    fn hear_of_state(&mut self, from: Pid, word: Word, out: &mut Outbox<Messages<Packet>>) {
        match word {
            Word::Lost { .. } | Word::Recalled { .. } | Word::Recall { .. } => {
                self.hear_of_memory((from, None), word, out);
            }
            Word::Ask { attempt } => self.on_ask(from, attempt, out),
            Word::Offer { attempt, position } => self.on_offer(from, attempt, position),
            Word::Take { attempt, least } => self.on_take(from, attempt, least, out),
            Word::State { attempt, position, point, bytes } => {
                self.on_state(from, attempt, (position, point, bytes), out);
            }
            Word::Need { attempt, offset } => self.on_need(from, attempt, offset, out),
            Word::Piece { attempt, offset, bytes } => {
                self.on_piece(from, (attempt, offset), &bytes, out);
            }
            Word::Thanks { attempt } => self.on_thanks(from, attempt, out),
            _ => out.note(Note::Malformed(from, "a word that is not of state")),
        }
    }

    fn on_alive(&mut self, from: Pid, count: u64, fit: bool, rings: &[(RingId, Standing)]) {
        self.heartbeat.saw(self.now, from.index(), count, fit);
        for &(id, standing) in rings {
            if let Some(Some(ring)) = self.rings.get_mut(usize::from(id))
                && let Some(at) = ring.shape.member(from)
            {
                let held = &mut ring.peers[at];
                held.known = held.known.max(standing.known);
                held.merged = held.merged.max(standing.merged);
                held.safe = held.safe.max(standing.safe);
            }
        }
    }

    /// A ring is in this ballot, for all that `from` knows.
    fn on_lead(&mut self, from: Pid, ring: RingId, ballot: Ballot) {
        if let Some(p) = self.proposers.get_mut(usize::from(ring))
            && ballot.is_of(&self.shape.rings[usize::from(ring)].acceptors)
        {
            p.hint(ballot);
            if ballot.coordinator() == Some(from) {
                // It takes them from now on; what it was sent before is lost.
                p.reconnected(from);
            }
        }
    }

    /// Whoever is asked and is not the coordinator passes it on.
    fn on_want(&mut self, id: RingId, upto: u64) {
        let Some(Some(ring)) = self.rings.get_mut(usize::from(id)) else { return };
        if ring.leads() {
            ring.on_want(upto);
        } else if ring.end < upto {
            self.wants.push((id, upto));
        }
    }
}
