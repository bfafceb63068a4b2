//! What stands behind a node's replicas: the application, and what waits for it.
//!
//! # How a node gets back what it lost
//! The protocol brings each replica back on its own, and each from whichever peer it chooses; what
//! travels that way is only a placeholder for the application's state. The state itself comes from
//! one other node, all groups at one moment ([`crate::handover`]), once every replica of this node
//! knows the position that it goes on from. What the replicas deliver meanwhile waits here, and the
//! application skips what the state already has. When the state is in force the replicas are told
//! ([`amcast_core::Input::Installed`]): until then no other node counts on them.
//!
//! A node that keeps something on disk begins with the state that is there, and its replicas go on
//! from its positions; only what they cannot get any more comes from another node.

use crate::application::{Application, Command, Peeked};
use crate::checkpoint::{Checkpoints, Restored};
use crate::clock;
use crate::control::{ViewStatus, Wanted};
use crate::diagnostics;
use crate::diary::Diary;
use crate::door::Door;
use crate::handover::{Fetched, Fetching, Giving, News};
use crate::ingress::MayRead;
use crate::journal::LogVolume;
use crate::reading::{Asked, Read, Reading};
use crate::seat::{Above, Captured};
use crate::skips::Skips;
use amcast_core::step::{Note, Ticket};
use amcast_core::{Cluster, Delivery, Gid, MsgId, Outcome, Pid, ProtocolEvent, Time};
use amcast_storage::Error;
use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

/// Bytes that stand for the application's state in the protocol's own state transfer.
const PLACEHOLDER_BYTES: u64 = 8;

/// What an item may take in a saved state beside what it counts for, in bytes.
const ITEM_BYTES: u64 = 128;

/// Bytes of deliveries that wait for a state to come, before the protocol is held back.
const INBOX_BYTES_MAX: usize = 256 << 20;

/// A larger buffer for answers to reads is given back.
const ANSWER_BYTES_KEPT: usize = 1 << 20;

/// A delivery that waits until the application can take it.
struct Waiting {
    delivery: Delivery,
    payload: Box<[u8]>,
}

/// Where the application's state stands.
enum State<S> {
    /// It follows the replicas.
    Live,
    /// It is behind: a state is to be fetched.
    Behind,
    /// The state is on its way.
    Fetching(Fetching<S>),
    /// The state is here, and goes further than the replica yet knows the order.
    Early(Fetched<S>),
}

/// A view that a replica entered, where its group is dynamic.
#[derive(Clone, Copy, Default)]
struct View {
    number: u64,
    /// The members, a bit each.
    members: u32,
    /// It was left out since.
    is_over: bool,
    /// Who was a member, in one and the same incarnation, of all views since the state that is awaited was
    /// asked for, a bit each.
    steady: u32,
    /// The last position that the replica delivered, or was told to go on from.
    reached: u64,
}

/// Everything of a node except its seats.
pub(crate) struct House<A: Application> {
    pub(crate) cluster: Cluster,
    pub(crate) app: A,
    pub(crate) door: Door,
    pub(crate) diary: Option<Diary>,
    giving: Giving,
    state: State<A::State>,
    /// By group: the position from which its replica goes on, so the least that a state must have.
    wanted: Vec<u64>,
    /// By group: its replica lacks its place and has not been told yet where it goes on from.
    lacks: Vec<bool>,
    /// The application's state was lost in a crash and has not come back.
    lost: bool,
    /// It made room for the one that comes.
    cleared: bool,
    /// The replicas are to be told that the state is in force.
    tell: bool,
    /// They are to be told that some of it is missing.
    warn: bool,
    inbox: Vec<VecDeque<Waiting>>,
    inbox_bytes: usize,
    /// The view that the replica of the only group is in, if its group has views.
    view: Option<View>,
    /// The nodes that were asked for the state that is awaited, by rank, in order.
    donors: Vec<usize>,
    /// Whether the replicas may stop, if they were asked to leave their group.
    leaving: Option<bool>,
    /// Where the application's state is written, if it is.
    checkpoints: Option<Checkpoints>,
    /// The positions of the one that was found there, until the replicas are told.
    found: Option<Vec<u64>>,
    /// Reads that are not ordered.
    pub(crate) reading: Reading,
    /// The answer to one, reused.
    answer: Vec<u8>,
    /// What is not executed here, by decision of those who run the cluster.
    pub(crate) skips: Skips,
    /// How many of these are in the state that was saved or taken over last.
    skipped: usize,
}

impl<A: Application> House<A> {
    /// A house whose application is empty; `reborn` if it had a state in an earlier life. It gives its state to other
    /// nodes with at most `per_second` bytes in a second, at first; none for any number.
    pub(crate) fn new(
        cluster: Cluster,
        app: A,
        door: Door,
        diary: Option<Diary>,
        (reborn, per_second): (bool, Option<u64>),
    ) -> Self {
        let groups = cluster.groups();
        Self {
            cluster,
            app,
            door,
            diary,
            giving: Giving::at_most(per_second),
            state: if reborn { State::Behind } else { State::Live },
            wanted: vec![0; groups],
            lacks: vec![reborn; groups],
            lost: reborn,
            cleared: false,
            tell: false,
            warn: false,
            inbox: (0..groups).map(|_| VecDeque::new()).collect(),
            inbox_bytes: 0,
            view: None,
            donors: Vec::new(),
            leaving: None,
            checkpoints: None,
            found: None,
            reading: Reading::of(groups),
            answer: Vec::new(),
            skips: Skips::default(),
            skipped: 0,
        }
    }

    /// The application's state is written to disk from now on. It goes on from the one that was there.
    ///
    /// # Errors
    /// When other messages were skipped in that than are skipped here; the sentence says so.
    pub(crate) fn keep_state(
        &mut self,
        checkpoints: Checkpoints,
        restored: Option<Restored<A::State>>,
    ) -> Result<(), String> {
        self.checkpoints = Some(checkpoints);
        let Some(Restored { state, history }) = restored else { return Ok(()) };
        if let Some(why) = self.app.conflict(&state) {
            return Err(why);
        }
        let groups = self.cluster.all_groups();
        self.wanted = groups.iter().map(|g| A::state_delivered(&state, g)).collect();
        drop(self.app.adopt(state));
        self.record_taken_over(&history, "the disk");
        tracing::info!("goes on from the state on disk, at {:?}", self.wanted);
        (self.tell, self.found) = (true, Some(self.wanted.clone()));
        self.skipped = self.count_skipped();
        Ok(())
    }

    /// The replicas have started. One that reported that it lacks state did not know yet of the one on
    /// disk; it is told now, and says so again if that is not enough.
    pub(crate) fn has_begun(&mut self) {
        if self.tell {
            self.lacks.fill(false);
            self.warn = false;
        }
    }

    /// Records what came with a state, which is in force.
    fn record_taken_over(&mut self, history: &[u8], from: &str) {
        let groups = self.cluster.all_groups();
        let positions: Vec<u64> = groups.iter().map(|g| self.app.delivered(g)).collect();
        if let Some(diary) = &mut self.diary
            && let Err(why) = diary.take_over(clock::now(), history, &positions)
        {
            tracing::error!("the history is not whole: {from}: {why}");
        }
    }

    /// Saves the application's state when it is time, now that the replicas' logs have come to so much; the
    /// positions of one that has come to be durable.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub(crate) fn checkpoint(&mut self, logged: LogVolume) -> Result<Option<Vec<u64>>, Error> {
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(None) };
        checkpoints.logged(logged);
        let (app, groups) = (&self.app, self.cluster.all_groups());
        let holds = |g| app.figures(g).used_bytes + ITEM_BYTES * app.figures(g).items;
        checkpoints.look_at_room(clock::now(), || groups.iter().map(holds).sum());
        let saved = checkpoints.poll()?;
        if checkpoints.is_due() && self.may_save() {
            self.save();
        }
        Ok(saved)
    }

    /// The positions of the state that was on disk at the start, once.
    pub(crate) const fn take_found(&mut self) -> Option<Vec<u64>> {
        self.found.take()
    }

    /// Whether there is a state to save: who lacks state has none; and one state is given at a time.
    fn may_save(&self) -> bool {
        self.is_live() && !self.lacks.contains(&true) && !self.giving.is_going()
    }

    /// Begins to save the state as it is now.
    fn save(&mut self) {
        let Some(checkpoints) = &mut self.checkpoints else { return };
        let mut history = Vec::new();
        if let Some(diary) = &self.diary {
            diary.write(&mut history);
        }
        let groups = self.cluster.all_groups();
        let positions = groups.iter().map(|g| self.app.delivered(g)).collect();
        checkpoints.begin(&mut self.app, positions, &history);
    }

    /// The node is to end: saves what was executed since the last time, whether it is due or not, so
    /// that the next life has little to read. Whether a state is on its way to the disk.
    pub(crate) fn save_last(&mut self) -> bool {
        let may = self.may_save();
        let Some(checkpoints) = &mut self.checkpoints else { return false };
        checkpoints.hurry();
        if checkpoints.is_idle() && checkpoints.has_more() && may {
            self.save();
        }
        self.is_saving()
    }

    /// Whether a state is on its way to the disk.
    pub(crate) fn is_saving(&self) -> bool {
        self.checkpoints.as_ref().is_some_and(|checkpoints| !checkpoints.is_idle())
    }

    /// Whether the application follows the replicas.
    pub(crate) const fn is_live(&self) -> bool {
        matches!(self.state, State::Live)
    }

    /// Whether it has something to do soon that no bell announces.
    pub(crate) fn is_pressing(&self) -> bool {
        let saves = self.checkpoints.as_ref().is_some_and(Checkpoints::is_giving);
        let reads = self.reading.is_pressing();
        self.door.is_pressing() || self.giving.is_going() || saves || reads
    }

    /// The replicas are about to leave their group. False if it has no views, so that they cannot.
    pub(crate) fn begin_leaving(&mut self) -> bool {
        self.leaving = self.view.map(|_| false);
        self.leaving.is_some()
    }

    /// Whether the replicas were asked to leave.
    pub(crate) const fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Whether those that were asked to leave may stop now.
    pub(crate) fn may_stop(&self) -> bool {
        self.leaving == Some(true)
    }

    fn has_left(&mut self, p: Pid) {
        if let Some(diary) = &mut self.diary {
            diary.left(clock::now(), p);
        }
    }

    /// The members of the view, a bit for each node, where groups have views.
    pub(crate) fn members(&self) -> Option<u32> {
        self.view.filter(|view| !view.is_over).map(|view| view.members)
    }

    /// Takes the answers of what the application executed in its own threads.
    pub(crate) fn collect(&mut self, now: Time) -> bool {
        self.collect_reads(now) | self.app.collect(&mut answerer(&mut self.door, self.cluster))
    }

    /// Takes what became of reads that the application answers in its own threads.
    fn collect_reads(&mut self, now: Time) -> bool {
        let Self { app, door, reading, .. } = self;
        let Door::Ingress(ingress, _) = door else { return false };
        app.collect_reads(&mut |group, number, peeked, bytes| match peeked {
            Peeked::Answered(outcome) => {
                if let Some(read) = reading.answered(group, number) {
                    ingress.take_back_read(&read);
                    ingress.answer_read(&read, outcome, bytes);
                }
            }
            Peeked::Later | Peeked::NotYet | Peeked::Busy => {
                reading.put_back(group, (number, now), &mut |read| ingress.take_back_read(read));
            }
            Peeked::Never => {
                let mut back = |read: &Read| ingress.take_back_read(read);
                if let Some(read) = reading.refused(group, (number, now), &mut back) {
                    ingress.order(read);
                }
            }
        })
    }

    /// Gives the application what waits for it, as far as it takes it.
    pub(crate) fn drain(&mut self) -> bool {
        if !self.is_live() {
            return false;
        }
        let mut any = false;
        loop {
            let mut took = false;
            for g in 0..self.inbox.len() {
                while let Some(waiting) = self.inbox[g].front() {
                    let (delivery, payload) = (waiting.delivery, &waiting.payload);
                    let mut answer = answerer(&mut self.door, self.cluster);
                    if !self.app.deliver(command(Gid(g as u8), delivery, payload), &mut answer) {
                        break;
                    }
                    self.inbox_bytes -= payload.len();
                    if let Some(checkpoints) = &mut self.checkpoints {
                        checkpoints.delivered(payload.len());
                    }
                    if let Some(diary) = &mut self.diary {
                        diary.deliver(clock::now(), Gid(g as u8), delivery.position, delivery.msg);
                    }
                    self.inbox[g].pop_front();
                    took = true;
                }
            }
            any |= took;
            // What one group was full with may have been freed by another.
            if !took || self.inbox.iter().all(VecDeque::is_empty) {
                return any;
            }
        }
    }

    /// Answers reads whose barriers are passed; those that wait for too long are ordered. Whether there was
    /// anything to do.
    pub(crate) fn read(&mut self, now: Time) -> bool {
        if self.reading.is_empty() {
            return false;
        }
        let (is_live, mut any) = (self.is_live(), false);
        let Self { app, door, reading, answer, .. } = self;
        let Door::Ingress(ingress, _) = door else { return false };
        for group in self.cluster.all_groups().iter().filter(|_| is_live) {
            let at = (app.delivered(group), now);
            any |= reading.serve(group, at, &mut |number, read| {
                match ingress.may_read(&read) {
                    MayRead::Now => {}
                    MayRead::NotYet => return Asked::NotYet(read),
                    MayRead::Held => return Asked::Held(read),
                    MayRead::Gone => return Asked::Done,
                }
                answer.clear();
                match app.peek(group, number, &read.bytes, answer) {
                    Peeked::Answered(outcome) => ingress.answer_read(&read, outcome, answer),
                    Peeked::Later => {
                        ingress.give_read(&read);
                        return Asked::Later(read);
                    }
                    Peeked::NotYet => return Asked::NotYet(read),
                    Peeked::Busy => return Asked::Held(read),
                    Peeked::Never => ingress.order(read),
                }
                Asked::Done
            });
        }
        app.flush_reads();
        for read in reading.late(now) {
            ingress.order(read);
            any = true;
        }
        if answer.capacity() > ANSWER_BYTES_KEPT {
            *answer = Vec::new();
        }
        any
    }

    /// How far the replica of `group` may count as executed. While a state is awaited, what waits
    /// here counts: nobody needs to keep it for this node, and the others are not held back.
    pub(crate) fn applied(&self, group: Gid) -> Option<u64> {
        match self.state {
            State::Live => Some(self.app.applied(group)),
            _ if self.inbox_bytes > INBOX_BYTES_MAX => None,
            _ => self.inbox[group.index()].back().map(|w| w.delivery.position),
        }
    }

    /// What state has to be fetched, if one has to be and every replica knows where it goes on from.
    pub(crate) fn wants(&self) -> Option<Wanted> {
        let idle = matches!(self.state, State::Behind);
        let view = self.view.map(|view| view.number);
        (idle && self.wants_state()).then(|| Wanted { positions: self.wanted.clone(), view })
    }

    /// Whether so much waits here that the replicas must not bring more: where members broadcast,
    /// nobody else holds them back. Who takes nothing in for long is left out by the others, and gets
    /// a newer state instead.
    pub(crate) fn is_full(&self) -> bool {
        self.view.is_some() && self.inbox_bytes > INBOX_BYTES_MAX
    }

    /// Whether it is behind, and every replica knows where it goes on from.
    pub(crate) fn wants_state(&self) -> bool {
        !self.is_live() && !self.lacks.contains(&true)
    }

    /// A state is asked for from these nodes, by rank, in turn.
    pub(crate) fn expect(&mut self, fetching: Fetching<A::State>, donors: Vec<usize>) {
        (self.state, self.donors) = (State::Fetching(fetching), donors);
        if let Some(view) = &mut self.view {
            view.steady = view.members;
        }
    }

    /// One of them gives its state. The old one, which nobody can bring up to where the replicas go on,
    /// makes room for it; until then it may be what another node needs.
    fn make_room(&mut self) {
        if !std::mem::replace(&mut self.cleared, true) {
            self.stop_giving();
            free(self.app.clear());
        }
    }

    /// Puts the state in force that was fetched, if it has come.
    pub(crate) fn take_over(&mut self) {
        let fetched = match std::mem::replace(&mut self.state, State::Behind) {
            State::Fetching(fetching) => match fetching.poll() {
                Some(News::Ended(fetched)) => fetched,
                news => {
                    if news.is_some() {
                        self.make_room();
                        fetching.go_on();
                    }
                    return self.state = State::Fetching(fetching);
                }
            },
            State::Early(fetched) => Some(fetched),
            other => return self.state = other,
        };
        let Some(Fetched { state, history, from, donor }) = fetched else {
            tracing::info!("no node gave its state; asking again");
            return;
        };
        let groups = self.cluster.all_groups();
        let positions: Vec<u64> = groups.iter().map(|g| A::state_delivered(&state, g)).collect();
        if positions.iter().zip(&self.wanted).any(|(has, least)| has < least) {
            // A replica was left behind once more while it was on its way.
            tracing::info!("the state of {from} is too old by now; asking again");
            return;
        }
        if let Some(why) = self.app.conflict(&state) {
            tracing::error!("the state of {from} is not taken: {why}");
            return;
        }
        if let Some(view) = self.view {
            // What the donor had delivered and this member has not is agreed on only if both went on
            // from view to view, in one incarnation: then it comes here, too, and the state waits for it.
            if self.donors.get(donor).is_none_or(|rank| view.steady >> rank & 1 == 0) {
                tracing::info!("{from} was left out while its state was on its way; asking again");
                return;
            }
            if positions.iter().any(|&has| has > view.reached) {
                self.state = State::Early(Fetched { state, history, from, donor });
                return;
            }
        }
        self.stop_giving();
        free(self.app.adopt(state));
        self.cleared = false;
        self.record_taken_over(&history, &from);
        tracing::info!("has all state again, from {from}, at {positions:?}");
        self.checkpoints.iter_mut().for_each(|c| c.took_over(positions.clone()));
        self.skipped = self.count_skipped();
        self.wanted = positions;
        (self.state, self.lost, self.tell) = (State::Live, false, true);
        self.drain();
    }

    /// What of the state is given is not whole any more.
    fn stop_giving(&mut self) {
        self.giving.give_up();
        self.checkpoints.iter_mut().for_each(Checkpoints::give_up);
    }

    /// Whether the replicas are to be told that the application lacks state.
    pub(crate) fn is_unfit(&mut self) -> bool {
        std::mem::take(&mut self.warn)
    }

    /// The positions of the state in force, if the replicas are to be told of it now.
    pub(crate) fn installed(&mut self) -> Option<Vec<u64>> {
        if !std::mem::take(&mut self.tell) {
            return None;
        }
        Some(self.cluster.all_groups().iter().map(|g| self.app.delivered(g)).collect())
    }

    /// Begins to give its state to another node, which needs it at these positions at least.
    ///
    /// # Errors
    /// When it has none, or not so far, or gives to another one; the sentence says which.
    pub(crate) fn give(&mut self, wanted: &Wanted) -> Result<Receiver<Vec<u8>>, String> {
        let in_view = self.view.filter(|view| !view.is_over).map(|view| view.number);
        if in_view != wanted.view {
            let tell = |view: Option<u64>| view.map_or("none".to_string(), |v| v.to_string());
            let (mine, asked) = (tell(in_view), tell(wanted.view));
            return Err(format!("it is in view {mine}, and not in {asked}"));
        }
        if self.lost || self.cleared {
            return Err("it waits for a state itself".to_string());
        }
        let groups = self.cluster.groups();
        if wanted.positions.len() != groups {
            return Err(format!("give {groups} positions, one for each group"));
        }
        for (g, &position) in wanted.positions.iter().enumerate() {
            let have = self.app.delivered(Gid(g as u8));
            if have < position {
                return Err(format!("it is at {have} in g{g}, not {position}"));
            }
        }
        if !self.giving.is_going()
            && let Some(checkpoints) = self.checkpoints.as_mut().filter(|c| c.is_giving())
        {
            // Who asks serves nobody until it has the state; the disk has time, and is next.
            if !checkpoints.give_way() {
                return Err("it writes its state to its disk just now".to_string());
            }
            self.app.release();
        }
        let mut history = Vec::new();
        if let Some(diary) = &self.diary {
            diary.write(&mut history);
        }
        self.giving.begin(&mut self.app, &history)
    }

    /// Goes on giving.
    pub(crate) fn give_on(&mut self) -> bool {
        let mut any = self.giving.round(&mut self.app);
        if let Some(checkpoints) = &mut self.checkpoints {
            any |= checkpoints.round(&mut self.app);
        }
        any
    }

    /// The view of the replica of the only group, where groups have views.
    pub(crate) fn view(&self) -> Option<ViewStatus> {
        let View { number, members, is_over, .. } = self.view?;
        let of = |rank: &usize| members >> rank & 1 == 1;
        let name = |rank| self.cluster.name(self.cluster.replica(Gid(0), rank)).to_string();
        let members = (0..self.cluster.replicas()).filter(of).map(name).collect();
        Some(ViewStatus { number, members, left_out: is_over })
    }

    fn enters_view(&mut self, p: Pid, number: u64, (members, continuing): (u32, u32)) {
        let reached = self.view.map_or(0, |view| view.reached);
        let before = self.view.filter(|view| !view.is_over);
        let steady = before.map_or(members, |view| view.steady & continuing);
        self.view = Some(View { number, members, is_over: false, steady, reached });
        if let Some(diary) = &mut self.diary {
            let of = |rank: &usize| members >> rank & 1 == 1;
            let ranks = (0..self.cluster.replicas()).filter(of);
            let members: Vec<Pid> = ranks.map(|r| self.cluster.replica(Gid(0), r)).collect();
            diary.view(clock::now(), p, number, &members);
        }
    }

    /// The group goes on without the replica: what it has need not be what the group has.
    fn is_left_out(&mut self, p: Pid) {
        let g = self.group(p).index();
        self.state = State::Behind;
        (self.lacks[g], self.lost, self.wanted[g]) = (true, true, 0);
        self.inbox[g].clear();
        self.inbox_bytes = self.inbox.iter().flatten().map(|w| w.payload.len()).sum();
        if let Some(view) = &mut self.view {
            (view.is_over, view.reached) = (true, 0);
        }
        if let Some(diary) = &mut self.diary {
            diary.begin_anew(clock::now());
        }
        if let Door::Ingress(ingress, _) = &mut self.door {
            ingress.lose_all();
        }
    }

    /// A replica has its place back. If no state came for it since it lacked some, it got what it
    /// missed from its own log or from the others, and goes on from where the application is, or from
    /// what waits for that: then nothing is missing any more. So it is also while the state is awaited
    /// that another group lacks, unless the application has lost its own.
    fn has_recovered(&mut self, p: Pid, position: u64) {
        let group = self.group(p);
        let stands = self.stands(group);
        let was_lacking = std::mem::take(&mut self.lacks[group.index()]);
        if !was_lacking || self.lost || position > stands {
            // A state is here or comes, and says itself what it is good for.
            self.lacks[group.index()] = was_lacking;
            return;
        }
        if self.is_live() && !self.lacks.contains(&true) {
            (self.warn, self.tell) = (false, true);
        }
    }

    /// Where the replica of `group` stands: what the application has, what waits for it here, and what it
    /// will have at the least when its state has come.
    fn stands(&self, group: Gid) -> u64 {
        let waits = self.inbox[group.index()].back().map_or(0, |w| w.delivery.position);
        let awaits = if self.is_live() { 0 } else { self.wanted[group.index()] };
        self.app.delivered(group).max(waits).max(awaits)
    }

    fn group(&self, p: Pid) -> Gid {
        self.cluster.group_of(p).expect("a node hosts replicas")
    }
}

/// Frees a state: that may take as long as it took to build it.
fn free<S: Send + 'static>(state: S) {
    let thread = std::thread::Builder::new().name("free".to_string());
    let dropped = thread.spawn(move || {
        drop(state);
        amcast_memory::give_back_memory();
    });
    if dropped.is_err() {
        tracing::warn!("no thread to free an old state with: this node stood still for it");
    }
}

fn command(group: Gid, delivery: Delivery, payload: &[u8]) -> Command<'_> {
    let Delivery { msg, dst, position, .. } = delivery;
    Command { group, position, msg, dst, payload }
}

/// Gives an answer to the front that asked.
fn answerer(door: &mut Door, cluster: Cluster) -> impl FnMut(MsgId, Outcome, &[u8]) {
    move |msg, outcome, bytes| door.answer(cluster, msg, outcome, bytes)
}

impl<A: Application> Above for House<A> {
    fn deliver(&mut self, _: Time, p: Pid, delivery: Delivery, payload: &[u8]) {
        let group = self.group(p);
        if let Some(view) = &mut self.view {
            view.reached = delivery.position;
        }
        if self.is_live() && self.inbox[group.index()].is_empty() {
            let mut answer = answerer(&mut self.door, self.cluster);
            if self.app.deliver(command(group, delivery, payload), &mut answer) {
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.delivered(payload.len());
                }
                if let Some(diary) = &mut self.diary {
                    // The round's time may be older than the multicast.
                    diary.deliver(clock::now(), group, delivery.position, delivery.msg);
                }
                return;
            }
        }
        self.inbox_bytes += payload.len();
        self.inbox[group.index()].push_back(Waiting { delivery, payload: payload.into() });
    }

    fn passed(&mut self, now: Time, p: Pid, ticket: Ticket) {
        let group = self.group(p);
        self.reading.passed(group, ticket, (self.stands(group), now));
    }

    fn capture(&mut self, p: Pid, _reader: Pid) -> Captured {
        // The reader needs a state as far as that.
        Captured { position: self.stands(self.group(p)), bytes: PLACEHOLDER_BYTES }
    }

    fn piece(&mut self, _: Pid, _: u64, bytes: u32, to: &mut Vec<u8>) {
        to.resize(to.len() + bytes as usize, 0);
    }

    fn install(&mut self, _now: Time, p: Pid, position: u64, _piece: &[u8], last: bool) {
        if !last {
            return;
        }
        let group = self.group(p);
        self.lacks[group.index()] = false;
        if let Some(view) = &mut self.view {
            view.reached = view.reached.max(position);
        }
        // What is in the state need not wait for the application any more.
        self.inbox[group.index()].retain(|w| w.delivery.position > position);
        let waiting = self.inbox.iter().flatten();
        self.inbox_bytes = waiting.map(|w| w.payload.len()).sum();
        if self.is_live() {
            if self.app.delivered(group) >= position {
                // Nothing was delivered in what its replica missed.
                self.tell = true;
                return;
            }
            // What the application has of the other groups must not be lost to an older state.
            let groups = self.cluster.all_groups();
            self.wanted = groups.iter().map(|g| self.app.delivered(g)).collect();
            self.state = State::Behind;
        }
        let wanted = &mut self.wanted[group.index()];
        *wanted = (*wanted).max(position);
    }

    fn event(&mut self, _: Time, p: Pid, event: ProtocolEvent) {
        diagnostics::log_event(&self.cluster, p, event);
        match event {
            ProtocolEvent::Part(m) => {
                if let Some(diary) = &mut self.diary {
                    diary.part(clock::now(), p, m);
                }
            }
            ProtocolEvent::Leads(_) => {}
            ProtocolEvent::Lagging => {
                let g = self.group(p).index();
                (self.lacks[g], self.warn) = (true, true);
            }
            ProtocolEvent::CaughtUp(position) => self.has_recovered(p, position),
            ProtocolEvent::ViewEntered { number, members, continuing } => {
                self.enters_view(p, number, (members, continuing));
            }
            ProtocolEvent::Excluded(_) => self.is_left_out(p),
            ProtocolEvent::Left(_) => {
                self.leaving = Some(true);
                self.has_left(p);
            }
            ProtocolEvent::MayStop(_) => self.leaving = Some(true),
        }
    }

    fn note(&mut self, _: Time, p: Pid, note: Note) {
        diagnostics::log_note(&self.cluster, p, note);
    }
}

mod skipping;
#[cfg(test)]
mod tests;
