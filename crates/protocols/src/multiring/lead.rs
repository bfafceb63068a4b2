//! The coordinator of a ring: phase 1, packing of proposals, and skips. Who that is: `elect.rs`; who is in
//! the ring: `layout.rs`.

use super::Mutant;
use super::bytes::Bytes;
use super::keep::{Act, Record};
use super::queue::{Queue, Queued};
use super::ring::{Cx, Ring, cut};
use super::value::{Ballot, Entry, INSTANCE_MAX, SKIP_MAX, Value, proposals};
use super::word::{Rows, Standing, Word};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use amcast_core::step::Note;
use amcast_core::{Gid, Pid, ProtocolEvent, Span, Time};
use core::mem;

/// The attempt of this process to lead a ring, and its leading.
#[derive(Clone, Debug)]
pub(super) struct Lead {
    pub(super) ballot: Ballot,
    /// When the promises were asked for last.
    asked_at: Time,
    /// By acceptor: its promise.
    promises: Vec<Option<Promised>>,
    /// By acceptor: what came of a promise before its end.
    coming: Vec<Vec<Entry>>,
    /// What everybody proposed last, as of the end of the run and with what is queued; none until
    /// everything before the run is known.
    table: Option<Rows>,
    /// Proposals that have no instance yet.
    queue: Queue,
    /// Entries that are not decided: where each ends, and its bytes.
    flights: VecDeque<(u64, usize)>,
    flight_bytes: usize,
    /// Entries that a majority of some group has not applied.
    lags: VecDeque<(u64, usize)>,
    lag_bytes: usize,
    /// Others wait until the ring has come here.
    want: u64,
    /// To whom it owes a word that proposals are decided: the life, and up to which number.
    acknowledged: BTreeMap<Pid, (u32, u64)>,
    /// Who is too far behind to be in the ring, and when that was looked at last.
    pub(super) behind: Vec<Pid>,
    pub(super) looked_at: Time,
    /// When the rate is levelled next, and where the run ended then.
    level_at: Time,
    level_end: u64,
}

/// What an acceptor promised with.
#[derive(Clone, Debug)]
struct Promised {
    known: u64,
    /// What it accepted beyond that, of the run of this ballot.
    settled: Ballot,
    entries: Vec<Entry>,
    /// What it knows of the memories of the acceptors.
    memories: Vec<u32>,
}

impl Lead {
    fn new(ballot: Ballot, acceptors: usize, now: Time) -> Self {
        Self {
            ballot,
            asked_at: now,
            promises: alloc::vec![None; acceptors],
            coming: alloc::vec![Vec::new(); acceptors],
            table: None,
            queue: Queue::default(),
            flights: VecDeque::new(),
            flight_bytes: 0,
            lags: VecDeque::new(),
            lag_bytes: 0,
            want: 0,
            acknowledged: BTreeMap::new(),
            behind: Vec::new(),
            looked_at: now,
            level_at: now,
            level_end: 0,
        }
    }

    /// Whether it leads the run of `ballot`.
    pub(super) fn is_active(&self, ballot: Ballot) -> bool {
        self.ballot == ballot
    }

    /// What came from this acceptor is not whole any more.
    pub(super) fn forget(&mut self, acceptor: Option<usize>) {
        if let Some(at) = acceptor {
            self.coming[at].clear();
        }
    }

    /// The proposals of `sender` up to this one are decided.
    pub(super) fn acknowledge(&mut self, sender: Pid, life: u32, number: u64) {
        let row = self.acknowledged.entry(sender).or_default();
        *row = (*row).max((life, number));
    }
}

/// Whether `number` of `life` is the one that comes after what `row` says.
fn is_next(row: (u32, u64), life: u32, number: u64) -> bool {
    if life == row.0 { number == row.1 + 1 } else { life > row.0 && number == 1 }
}

impl Ring {
    /// This process leads no more; a ballot above its own is why.
    pub(super) fn demoted(&mut self, above: Ballot, cx: &mut Cx<'_>) {
        if let Some(lead) = self.lead.take()
            && lead.is_active(self.ballot)
        {
            cx.out.note(Note::Demoted(above.number()));
        }
    }

    /// The ballot of this process above all that it knows of.
    pub(super) fn next_ballot(&self, me: Pid) -> Ballot {
        Ballot::new(self.promised.round + 1, me)
    }

    /// [MRP 4] Phase 1, for all instances from here on.
    pub(super) fn prepare(&mut self, cx: &mut Cx<'_>) {
        // [MRP 1:1]
        let ballot = self.next_ballot(cx.me);
        self.vain += 1;
        self.promised = ballot;
        self.awaits(cx.now);
        self.lead = Some(Lead::new(ballot, self.shape.acceptors.len(), cx.now));
        let lead = Act::Lead { ring: self.id, ballot };
        if cx.shape.mutants.is(Mutant::LeadsBeforeItIsWritten) {
            cx.keep.due.push_back(lead.clone());
        }
        cx.keep.write(Record::Promise { ring: self.id, ballot }, Some(lead));
        self.ask_for_promises(cx);
    }

    fn ask_for_promises(&mut self, cx: &mut Cx<'_>) {
        let (ring, known) = (self.id, self.known);
        let Some(lead) = &mut self.lead else { return };
        lead.asked_at = cx.now;
        for (at, &acceptor) in self.shape.acceptors.iter().enumerate() {
            // Who knew more than could be learned since may have died; who lost its memory since has
            // promised nothing.
            let memory = cx.memories[acceptor.index()];
            let stands = |p: &Promised| p.known <= known && p.memories[at] == memory;
            let promised = lead.promises[at].as_ref().is_some_and(stands);
            if acceptor != cx.me && !promised {
                lead.promises[at] = None;
                lead.coming[at].clear();
                cx.say(acceptor, Word::Prepare { ring, ballot: lead.ballot });
            }
        }
    }

    /// Phase 1B: a promise, and what was accepted before.
    pub(super) fn on_prepare(&mut self, from: Pid, ballot: Ballot, cx: &mut Cx<'_>) {
        if self.my_vote.is_none() || !cx.votes || !ballot.is_of(&self.shape.acceptors) {
            return;
        }
        let ring = self.id;
        if ballot < self.promised {
            return cx.say(from, Word::Refuse { ring, promised: self.promised });
        }
        if ballot == self.ballot {
            // Its run has begun: this is an old question.
            return;
        }
        if self.lead.as_ref().is_some_and(|lead| lead.ballot < ballot) {
            self.demoted(ballot, cx);
        }
        self.promised = ballot;
        let mut words: Vec<Word> = self
            .open_entries()
            .into_iter()
            .map(|entry| Word::Accepted { ring, ballot, entry })
            .collect();
        if cx.shape.mutants.is(Mutant::ForgetsWhatItAccepted) {
            words.clear();
        }
        let count = words.len() as u32;
        let of = |p: &Pid| cx.memories[p.index()];
        let memories = self.shape.acceptors.iter().map(of).collect();
        let (known, settled) = (self.known, self.settled);
        words.push(Word::Promise { ring, ballot, known, settled, count, memories });
        let act = Act::Say { to: from, words };
        if cx.shape.mutants.is(Mutant::PromisesBeforeItIsWritten) {
            cx.keep.due.push_back(act.clone());
        }
        cx.keep.write(Record::Promise { ring, ballot }, Some(act));
    }

    pub(super) fn on_accepted(&mut self, from: Pid, ballot: Ballot, entry: Entry) {
        if let Some(at) = self.shape.acceptor(from)
            && let Some(lead) = &mut self.lead
            && lead.ballot == ballot
        {
            lead.coming[at].push(entry);
        }
    }

    pub(super) fn on_promise(
        &mut self,
        from: Pid,
        (ballot, known, settled, count): (Ballot, u64, Ballot, u32),
        memories: Vec<u32>,
        cx: &mut Cx<'_>,
    ) -> Result<(), &'static str> {
        let at = self.shape.acceptor(from).ok_or("a promise of one that is no acceptor")?;
        if memories.len() != self.shape.acceptors.len() {
            return Err("a promise of another ring");
        }
        let Some(lead) = self.lead.as_mut().filter(|l| l.ballot == ballot) else { return Ok(()) };
        let entries = mem::take(&mut lead.coming[at]);
        let Some(surplus) = entries.len().checked_sub(count as usize) else {
            // Some of it was lost; it is asked for again.
            return Ok(());
        };
        let processes = cx.shape.cluster.processes();
        let sound = |entry: &Entry| entry.makes_sense(&self.shape.acceptors, processes);
        let entries: Vec<Entry> = entries.into_iter().skip(surplus).collect();
        let far = known > INSTANCE_MAX || !settled.is_of(&self.shape.acceptors);
        if far || !entries.iter().all(sound) || !is_whole(known, &entries) {
            return Err("a promise that makes no sense");
        }
        let promised = Promised { known, settled, entries, memories };
        lead.promises[at] = Some(promised);
        if let Some(member) = self.shape.member(from) {
            let held = &mut self.peers[member].known;
            *held = (*held).max(known);
        }
        self.begin_run(cx);
        Ok(())
    }

    /// The own promise is where it must be.
    pub(super) fn promised_itself(&mut self, ballot: Ballot, cx: &mut Cx<'_>) {
        let Some(at) = self.my_vote else { return };
        let entries = self.open_entries();
        let of = |p: &Pid| cx.memories[p.index()];
        let memories = self.shape.acceptors.iter().map(of).collect();
        let Some(lead) = self.lead.as_mut().filter(|l| l.ballot == ballot) else { return };
        let (known, settled) = (self.known, self.settled);
        lead.promises[at] = Some(Promised { known, settled, entries, memories });
        self.begin_run(cx);
    }

    /// With promises of a majority: proposes again what may be decided. That is in the book of whoever
    /// accepted most of the run of the highest ballot, because whatever a majority accepted in an
    /// earlier one is in that run.
    ///
    /// What one of them knows to be decided already must be known here first: others get it from here,
    /// and there may be nobody else, because who knows that something is decided may forget it.
    fn begin_run(&mut self, cx: &mut Cx<'_>) {
        let Some(lead) = &self.lead else { return };
        // Not before the own promise is where it must be: or this process might forget that it led
        // this ballot, and lead another run of it.
        let promised = self.my_vote.is_some_and(|mine| lead.promises[mine].is_some());
        if lead.ballot <= self.ballot || !promised {
            return;
        }
        let ballot = lead.ballot;
        // A promise from a memory that was lost since is none.
        for promised in lead.promises.iter().flatten() {
            for (at, &memory) in promised.memories.iter().enumerate() {
                let held = &mut cx.memories[self.shape.acceptors[at].index()];
                *held = (*held).max(memory);
            }
        }
        let any = cx.shape.mutants.is(Mutant::CountsLostPromises);
        let counts = |(at, promised): (usize, &Option<Promised>)| {
            let now = cx.memories[self.shape.acceptors[at].index()];
            promised.as_ref().is_some_and(|p| any || p.memories[at] == now)
        };
        let standing: Vec<bool> = lead.promises.iter().enumerate().map(counts).collect();
        if standing.iter().filter(|&&counts| counts).count() < self.shape.quorum() {
            return;
        }
        let promises = || {
            let all = lead.promises.iter().zip(&standing);
            all.filter(|(_, counts)| **counts).filter_map(|(p, _)| p.as_ref())
        };
        let start = self.known;
        let behind = promises().any(|p| p.known > start);
        if behind && !cx.shape.mutants.is(Mutant::BeginsBehind) {
            return;
        }
        let longest = cx.shape.mutants.is(Mutant::BeginsWithTheLongestLog);
        let rank = |p: &&Promised| (if longest { Ballot::NONE } else { p.settled }, p.end());
        let best = promises().max_by_key(rank);
        let rivals = |p: &Promised| {
            let other = best.filter(|best| best.settled != p.settled);
            other.is_some_and(|best| are_rivals(&p.entries, &best.entries))
        };
        if promises().any(rivals) {
            cx.out.mark("multiring-rival-values");
        }
        let chosen: Vec<Value> = match cx.shape.mutants.is(Mutant::BeginsWithNothing) {
            true => Vec::new(),
            false => best.map_or(Vec::new(), |best| best.values_from(start)),
        };
        let fresh = chosen.iter().fold(start, value_end);
        self.follow(ballot, (start, fresh), cx);
        cx.out.event(ProtocolEvent::Leads(ballot.number()));
        for value in chosen {
            self.propose(value, cx);
        }
    }

    /// The next entry of the run.
    fn propose(&mut self, value: Value, cx: &mut Cx<'_>) {
        if value_end(self.end, &value) <= self.end {
            return;
        }
        // [MRP 1:3]
        let (size, entry) = (value.size(), Entry { first: self.end, ballot: self.ballot, value });
        self.accept(entry, cx);
        if let Some(lead) = &mut self.lead {
            lead.flights.push_back((self.end, size));
            lead.flight_bytes += size;
            lead.lags.push_back((self.end, size));
            lead.lag_bytes += size;
        }
    }

    /// A proposer wants these ordered.
    pub(super) fn on_propose(&mut self, from: Pid, bytes: &Bytes, cx: &mut Cx<'_>) {
        let hint = Word::Lead { ring: self.id, ballot: self.ballot };
        let table_known = self.table.get(from.index()).copied();
        let active = self.leads();
        let Some(lead) = self.lead.as_mut().filter(|_| active) else {
            // Who led this run and does not any more must not say so in its own name: it would be sent
            // everything again at once, and answer again, until there is a new run.
            let led = self.coordinator() == Some(cx.me);
            if from != cx.me && self.ballot != Ballot::NONE && !led {
                cx.say(from, hint);
            }
            return;
        };
        let Some(table) = &mut lead.table else { return };
        let (row, mut done) = (&mut table[from.index()], None);
        // New ones that lie behind each other go on together.
        let (mut at, mut first, mut end, mut count) = (0, 0, 0, 0);
        for proposal in proposals(bytes) {
            let (life, number) = (proposal.life, proposal.number);
            let begins = at;
            at += proposal.size();
            let twice = cx.shape.mutants.is(Mutant::OrdersTwice) && (life, number) <= *row;
            // Nobody has more on the way than its window.
            let full = lead.queue.len() + count >= cx.shape.cluster.processes() * cx.shape.window;
            if full {
                break;
            }
            if is_next(*row, life, number) || twice {
                *row = (*row).max((life, number));
                first = if count == 0 { begins } else { first };
                (end, count) = (at, count + 1);
                continue;
            }
            lead.queue.push(Queued { bytes: bytes.slice(first..end), count });
            count = 0;
            if table_known.is_some_and(|known| (life, number) <= known) {
                done = table_known;
            }
        }
        lead.queue.push(Queued { bytes: bytes.slice(first..end), count });
        if let Some((life, number)) = done {
            lead.acknowledge(from, life, number);
        }
    }

    /// Others wait until this ring has come to instance `upto`.
    pub(super) fn on_want(&mut self, upto: u64) {
        let most = self.end.saturating_add(SKIP_MAX).min(INSTANCE_MAX);
        if let Some(lead) = &mut self.lead {
            lead.want = lead.want.max(upto.min(most));
        }
    }

    /// What a coordinator, or one who wants to be, does now and then.
    pub(super) fn lead(&mut self, cx: &mut Cx<'_>) {
        let Some(lead) = &self.lead else { return };
        if !lead.is_active(self.ballot) {
            if cx.now.since(lead.asked_at) >= cx.shape.retry {
                self.ask_for_promises(cx);
            }
            return self.begin_run(cx);
        }
        self.take_stock(cx);
        self.lay_out(cx);
        if self.is_ready(cx) {
            self.pack(cx);
            self.level(cx);
        }
        self.thank(cx);
    }

    /// Whether everything before the run is known, so that it is known what was proposed already.
    fn is_ready(&mut self, cx: &mut Cx<'_>) -> bool {
        let behind = self.known < self.start || self.table_at != self.known;
        if behind || self.settled != self.ballot {
            return false;
        }
        let Some(lead) = &mut self.lead else { return false };
        if lead.table.is_none() {
            let mut table = self.table.clone();
            for (_, slot) in self.book.from(self.known) {
                for packed in slot.value.iter().flat_map(Value::messages) {
                    table[packed.msg.sender.index()] = (packed.life, packed.number);
                }
            }
            lead.table = Some(table);
            lead.level_end = self.end;
            // What was proposed before is to be proposed again, at once.
            for p in cx.shape.cluster.pids() {
                cx.post.push((p, Word::Lead { ring: self.id, ballot: self.ballot }));
            }
        }
        true
    }

    /// Forgets what is decided, and what a majority of each group has applied; says what may be
    /// trimmed.
    fn take_stock(&mut self, cx: &Cx<'_>) {
        let merged = self.reached(cx, |standing| standing.merged);
        // [MRP 3:4]
        let safe = self.kept(cx);
        self.trim = self.trim.max(safe.min(self.known));
        let (decided, Some(lead)) = (self.decided, &mut self.lead) else { return };
        while let Some(&(_, size)) = lead.flights.front().filter(|(end, _)| *end <= decided) {
            lead.flight_bytes -= size;
            lead.flights.pop_front();
        }
        while let Some(&(_, size)) = lead.lags.front().filter(|(end, _)| *end <= merged) {
            lead.lag_bytes -= size;
            lead.lags.pop_front();
        }
    }

    /// How far a majority of the replicas of each group has come.
    fn reached(&self, cx: &Cx<'_>, what: impl Fn(&Standing) -> u64) -> u64 {
        let of_group = |g| of_majority(cx, |rank| self.of_replica(cx, (g, rank), &what));
        self.shape.set.iter().map(of_group).min().unwrap_or(0)
    }

    /// [MRP 5.2] How far a majority of nodes has come with checkpoints (`K[x]T`). The replicas of one rank are a
    /// node, which counts as far as the one of them that is furthest behind: `MultiRing::trim` says why.
    ///
    /// In memory it is how far each group has come: by assumption a majority of each is fit at any time.
    fn kept(&self, cx: &Cx<'_>) -> u64 {
        let safe = |standing: &Standing| standing.safe;
        if !cx.keep.is_durable() {
            return self.reached(cx, safe);
        }
        let of_node = |rank| {
            let of_group = |g| self.of_replica(cx, (g, rank), safe);
            self.shape.set.iter().map(of_group).min().unwrap_or(0)
        };
        of_majority(cx, of_node)
    }

    /// Where the replica of a group stands that has this rank.
    fn of_replica(
        &self,
        cx: &Cx<'_>,
        (g, rank): (Gid, usize),
        what: impl Fn(&Standing) -> u64,
    ) -> u64 {
        let p = cx.shape.cluster.replica(g, rank);
        match self.shape.member(p) {
            Some(_) if p == cx.me => what(&self.mine),
            Some(at) => what(&self.peers[at]),
            None => 0,
        }
    }

    /// [MRP 4] Gives queued proposals their instances, several to one.
    fn pack(&mut self, cx: &mut Cx<'_>) {
        loop {
            let Some(lead) = &mut self.lead else { return };
            let full = lead.flight_bytes >= cx.shape.pipeline_bytes
                || lead.lag_bytes >= cx.shape.lag_bytes
                || lead.queue.is_empty();
            if full {
                return;
            }
            // [MRP 1:8]
            let batch = lead.queue.batch(cx.shape.pack_bytes);
            let instance = self.end;
            self.propose(Value::Batch(batch), cx);
            self.pull_others(instance, cx);
        }
    }

    /// Tells the coordinators of the rings that are merged with this one how far they must come for
    /// what is in `instance` to be delivered.
    fn pull_others(&self, instance: u64, cx: &mut Cx<'_>) {
        for g in self.shape.set.iter() {
            let (order, rings) = cx.shape.subscribed(g);
            let Some(mine) = rings.iter().position(|&r| r == self.id) else { continue };
            for (at, &ring) in rings.iter().enumerate().filter(|(at, _)| *at != mine) {
                let upto = order.needs(mine, instance, at);
                cx.need(ring, upto);
            }
        }
    }

    /// [MRP 4] Skips instances, so that nobody waits for this ring: as far as others want, and to
    /// the agreed rate where rates are paced.
    fn level(&mut self, cx: &mut Cx<'_>) {
        let (end, Some(lead)) = (self.end, &mut self.lead) else { return };
        let mut upto = lead.want.saturating_add(rounding(lead.want, end)).min(INSTANCE_MAX);
        // [MRP 2:3]
        if let Some((delta, rate)) = cx.shape.pace
            && cx.now >= lead.level_at
        {
            let gone = cx.now.since(lead.level_at) + delta;
            upto = upto.max(lead.level_end + instances(rate, gone));
            (lead.level_at, lead.level_end) = (cx.now + delta, end.max(upto));
        }
        if upto > end && lead.lag_bytes < cx.shape.lag_bytes {
            // [MRP 2:4]
            self.propose(Value::Skip((upto - end).min(SKIP_MAX)), cx);
        }
    }

    /// Tells proposers what of theirs is decided.
    fn thank(&mut self, cx: &mut Cx<'_>) {
        let Some(lead) = &mut self.lead else { return };
        for (pid, (life, upto)) in mem::take(&mut lead.acknowledged) {
            cx.say(pid, Word::Done { ring: self.id, life, upto });
        }
    }

    /// When the coordinator has something to do, whatever happens.
    pub(super) fn lead_at(&self, retry: Span, paced: bool) -> Time {
        match &self.lead {
            Some(lead) if !lead.is_active(self.ballot) => lead.asked_at + retry,
            Some(lead) if paced && lead.table.is_some() => lead.level_at,
            _ => Time::NEVER,
        }
    }
}

/// What a majority of ranks has at least, of what each has.
fn of_majority(cx: &Cx<'_>, has: impl Fn(usize) -> u64) -> u64 {
    let cluster = &cx.shape.cluster;
    let mut all: Vec<u64> = (0..cluster.replicas()).map(has).collect();
    all.sort_unstable();
    let quorum = match cx.shape.mutants.is(Mutant::TrimsForOne) {
        true => 1,
        false => cluster.quorum(),
    };
    all[all.len() - quorum]
}

/// From so many wanted instances on, some more are skipped.
const MANY: u64 = 8;

/// How many instances are skipped beyond those that are wanted: who wants many is one of several who soon
/// want about as many, and need not have a skip each.
fn rounding(want: u64, end: u64) -> u64 {
    match want.saturating_sub(end) {
        many if many >= MANY => many / 2,
        _ => 0,
    }
}

/// How many instances a rate makes in a time.
fn instances(rate: u64, span: Span) -> u64 {
    (u128::from(rate) * u128::from(span.0) / 1_000_000_000) as u64
}

fn value_end(first: u64, value: &Value) -> u64 {
    first.saturating_add(value.instances())
}

/// Whether the entries follow each other, from what is known on.
fn is_whole(known: u64, entries: &[Entry]) -> bool {
    let mut at = known;
    entries.iter().all(|entry| {
        let next = entry.first == at;
        at = entry.end();
        next
    })
}

/// Whether two logs, each in the order of its instances, have different values for one instance.
fn are_rivals(a: &[Entry], b: &[Entry]) -> bool {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(one), Some(other)) = (a.peek(), b.peek()) {
        let meet = one.first < other.end() && other.first < one.end();
        let both_skip = matches!((&one.value, &other.value), (Value::Skip(_), Value::Skip(_)));
        if meet && !both_skip && one.value != other.value {
            return true;
        }
        let ahead = if one.end() < other.end() { &mut a } else { &mut b };
        ahead.next();
    }
    false
}

impl Promised {
    /// Where what it accepted ends.
    fn end(&self) -> u64 {
        self.entries.last().map_or(self.known, Entry::end)
    }

    /// The values that it accepted from instance `start` on.
    fn values_from(&self, start: u64) -> Vec<Value> {
        let rest = self.entries.iter().filter(|entry| entry.end() > start);
        rest.map(|entry| cut(entry.clone(), start.max(entry.first)).value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first: u64, value: Value) -> Entry {
        Entry { first, ballot: Ballot::new(1, Pid(0)), value }
    }

    #[test]
    fn what_was_accepted_is_proposed_again_from_what_is_known_on() {
        let batch = Value::Batch(Bytes::from(&[7][..]));
        let entries = alloc::vec![
            entry(3, Value::Skip(4)),
            entry(7, batch.clone()),
            entry(8, Value::Skip(2)),
        ];
        assert!(is_whole(3, &entries) && !is_whole(2, &entries) && !is_whole(3, &entries[1..]));
        let settled = Ballot::new(1, Pid(0));
        let promised = Promised { known: 3, settled, entries, memories: Vec::new() };
        assert_eq!(promised.end(), 10);
        assert_eq!(promised.values_from(5), [Value::Skip(2), batch.clone(), Value::Skip(2)]);
        assert_eq!(promised.values_from(9), [Value::Skip(1)]);
        assert!(promised.values_from(10).is_empty());
    }

    #[test]
    fn proposals_follow_each_other_and_a_new_life_begins_again() {
        assert!(is_next((0, 0), 0, 1) && is_next((0, 4), 0, 5) && is_next((0, 4), 1, 1));
        assert!(!is_next((0, 4), 0, 4) && !is_next((0, 4), 0, 6) && !is_next((1, 1), 0, 2));
        assert!(!is_next((0, 4), 2, 2));
    }

    #[test]
    fn a_rate_makes_instances() {
        assert_eq!(instances(9000, Span::millis(5)), 45);
        assert_eq!(instances(2000, Span::millis(20)), 40);
    }
}
