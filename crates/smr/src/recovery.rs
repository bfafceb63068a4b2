//! Recovery by state transfer: a node's application state, which follows the node's replicas, comes back here.
//!
//! Each replica finds by its protocol where it continues, and reports the position up to which it needs a state
//! ([`ProtocolEvent::NeedsState`]). The state comes from one other node, all groups at one moment, once
//! every replica of this node knows the position from which it continues: there is no other transfer of
//! it. Deliveries of the replicas wait here meanwhile, and the application skips those that
//! the state already has. When the state is installed the replicas receive
//! [`amcast_core::Input::Installed`]: until then no other node counts on them.
//!
//! A node that keeps something on disk begins with the state that is there, and its replicas continue
//! from its positions; only what they cannot get any more comes from another node.
//!
//! ```text
//!            a replica needs a later position, or is excluded
//!   Live -----------------------------------------------------> Behind <---------------+
//!    ^                                                            | expect             | no node gave one,
//!    |                                                            v                    | or it is too old
//!    | it is in force                                          Fetching ---------------+
//!    |                                                            | fetched            |
//!    +----------------- Early <-----------------------------------+                    |
//!    |                    | the source was excluded meanwhile                          |
//!    |                    +------------------------------------------------------------+
//!    +<-- at once, unless the state is ahead of what a member of the view has delivered
//! ```
//!
//! Nothing here does I/O, reads a clock or starts a thread: what drives it (a node's loop, or the simulator) carries
//! states from node to node.

use crate::application::{Application, DeliveredCommand, TellAnswer};
use amcast_core::{ClusterShape, Delivery, Gid, MsgId, Pid, ProtocolEvent, StateSource};
use std::collections::VecDeque;
use std::fmt;

/// Bytes of deliveries that wait for a state to come, or for the application, before the protocol is held back.
const INBOX_BYTES_MAX: usize = 256 << 20;

/// A delivery that waits until the application can take it.
struct WaitingDelivery {
    delivery: Delivery,
    payload: Box<[u8]>,
}

impl WaitingDelivery {
    /// The memory that it takes, about.
    fn bytes(&self) -> usize {
        self.payload.len() + size_of::<Self>()
    }
}

/// A delivery that the application took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenDelivery {
    /// The group whose replica delivered it.
    pub group: Gid,
    /// Its position there.
    pub position: u64,
    /// Its message.
    pub msg: MsgId,
    /// Bytes of its payload.
    pub bytes: usize,
}

/// The state that a node asks another one for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedState {
    /// The least position of each group.
    pub positions: Vec<u64>,
    /// The view that the node is in, where groups have views: the source must be in it, too.
    pub view: Option<u64>,
}

impl WantedState {
    /// Reads the words that it is written in, behind the first one; none if they make no sense.
    pub fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (mut positions, mut view) = (Vec::new(), None);
        while let Some(word) = words.next() {
            match word {
                "view" => view = Some(words.next()?.parse().ok()?),
                number => positions.push(number.parse().ok()?),
            }
        }
        Some(Self { positions, view })
    }
}

impl fmt::Display for WantedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("state")?;
        self.positions.iter().try_for_each(|position| write!(f, " {position}"))?;
        self.view.map_or(Ok(()), |view| write!(f, " view {view}"))
    }
}

/// A state that another node gave.
pub struct FetchedState<S> {
    /// The application's state.
    pub state: S,
    /// The deliveries in it, for the history.
    pub history: Vec<u8>,
    /// Where it came from, for people.
    pub from: String,
    /// The place of that node among those that were asked.
    pub source: usize,
}

/// A state of another node that is in force.
pub struct Adoption<S> {
    /// The state before it: dropping it may take long.
    pub old: S,
    /// The deliveries in the new one, for the history.
    pub history: Vec<u8>,
    /// Where it came from, for people.
    pub from: String,
    /// Its position in each group.
    pub positions: Vec<u64>,
}

/// The result of installing a fetched state.
pub enum TakeOver<S> {
    /// It is in force.
    Adopted(Adoption<S>),
    /// It was dropped, and another one is to be asked for; the sentence says why.
    Dropped(String),
    /// It must not be put in force, since other messages were skipped on the way to it; the sentence says which.
    Conflicts(String),
}

/// The stage of the application's state.
enum RecoveryStage<S> {
    /// It follows the replicas.
    Live,
    /// It is behind: a state is to be fetched.
    Behind(Gap),
    /// The state is on its way.
    Fetching(Gap),
    /// The state is here, and goes further than the replica yet knows the order.
    Early(Gap, FetchedState<S>),
}

/// The part of the state that is present, if it is behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Gap {
    /// It was lost, in a crash or since the group excluded the replica: what is there is not what the group has.
    is_lost: bool,
    /// The application made room for the state that comes.
    is_cleared: bool,
}

impl Gap {
    /// The state is what the group had at its positions.
    const BEHIND: Self = Self { is_lost: false, is_cleared: false };
    const LOST: Self = Self { is_lost: true, is_cleared: false };
}

/// The next input to the replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notice {
    /// That the application's state is in force.
    Installed,
    /// That some of it is missing.
    Unfit,
}

/// A view that a replica entered, where its group is dynamic.
#[derive(Clone, Copy, Default)]
struct EnteredView {
    number: u64,
    /// The members, a bit each.
    members: u32,
    /// It was excluded since.
    is_over: bool,
    /// The members, in one and the same incarnation, of all views since the awaited state was
    /// requested, a bit each.
    steady: u32,
    /// The last position that the replica delivered, or from which it was set to continue.
    reached: u64,
}

/// The view of the replica of the only group, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberView {
    /// Its number.
    pub number: u64,
    /// The members' ranks, a bit each.
    pub members: u32,
    /// Whether the replica was excluded since.
    pub is_over: bool,
}

/// Whether the replicas leave their group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaving {
    No,
    Asked,
    MayStop,
}

/// One group's replica of this node.
struct RecoveringReplica {
    /// The position from which it continues, so the least that a state must have.
    wanted: u64,
    /// From which replicas of its group the state may come.
    source: StateSource,
    /// It is lagging and has no position yet from which it continues.
    is_lagging: bool,
    inbox: VecDeque<WaitingDelivery>,
}

impl RecoveringReplica {
    /// A replica that has its place, or is lagging and has no position yet from which it continues.
    const fn new(is_lagging: bool) -> Self {
        let (wanted, source) = (0, StateSource::Replicas);
        Self { wanted, source, is_lagging, inbox: VecDeque::new() }
    }
}

/// A node's application, and what it takes to bring its state to where the node's replicas are.
pub struct Recovery<A: Application> {
    /// The application.
    pub app: A,
    cluster: ClusterShape,
    stage: RecoveryStage<A::State>,
    replicas: Vec<RecoveringReplica>,
    notice: Option<Notice>,
    inbox_bytes: usize,
    inbox_bytes_max: usize,
    /// The view that the replica of the only group is in, if its group has views.
    view: Option<EnteredView>,
    /// The nodes that were asked for the state that is awaited, by rank, in order.
    sources: Vec<usize>,
    leaving: Leaving,
    /// The positions of the state with which this incarnation began, until the replicas receive
    /// them.
    restored: Option<Vec<u64>>,
}

impl<A: Application> Recovery<A> {
    /// Of an application that is empty; `reborn` if it had a state in an earlier life.
    pub fn new(cluster: ClusterShape, app: A, reborn: bool) -> Self {
        let replica = |_| RecoveringReplica::new(reborn);
        Self {
            app,
            cluster,
            stage: if reborn { RecoveryStage::Behind(Gap::LOST) } else { RecoveryStage::Live },
            replicas: (0..cluster.groups()).map(replica).collect(),
            notice: None,
            inbox_bytes: 0,
            inbox_bytes_max: INBOX_BYTES_MAX,
            view: None,
            sources: Vec::new(),
            leaving: Leaving::No,
            restored: None,
        }
    }

    /// Lets only so many bytes of deliveries wait for a state, before the protocol is held back.
    pub const fn bound_inbox(&mut self, bytes: usize) {
        self.inbox_bytes_max = bytes;
    }

    /// Begins with a state of an earlier life.
    ///
    /// # Errors
    /// When other messages were skipped in that than are skipped here; the sentence says so.
    pub fn restore(&mut self, state: A::State) -> Result<&[u64], String> {
        if let Some(why) = self.app.conflict(&state) {
            return Err(why);
        }
        let positions = self.positions_of(&state);
        for (replica, position) in self.replicas.iter_mut().zip(&positions) {
            replica.wanted = *position;
        }
        drop(self.app.adopt(state));
        self.notice = Some(Notice::Installed);
        Ok(self.restored.insert(positions))
    }

    /// The replicas have started. A replica that reported to be lagging did not know yet of the
    /// restored state; it learns of it now, and reports again if that is not enough.
    pub fn has_begun(&mut self) {
        if self.restored.is_some() {
            self.replicas.iter_mut().for_each(|replica| replica.is_lagging = false);
            self.notice = Some(Notice::Installed);
        }
    }

    /// The positions of the state that was restored, once.
    pub const fn take_restored(&mut self) -> Option<Vec<u64>> {
        self.restored.take()
    }

    /// Whether the application follows the replicas.
    pub const fn is_live(&self) -> bool {
        matches!(self.stage, RecoveryStage::Live)
    }

    /// Whether a state that was asked for is awaited.
    pub const fn is_fetching(&self) -> bool {
        matches!(self.stage, RecoveryStage::Fetching(_))
    }

    /// Whether there is a state to save: a lagging node has none.
    pub fn has_state(&self) -> bool {
        self.is_live() && !self.lags()
    }

    /// Whether a replica does not know where it continues.
    fn lags(&self) -> bool {
        self.replicas.iter().any(|replica| replica.is_lagging)
    }

    /// The part of the state that is present, unless it is whole.
    const fn gap(&self) -> Option<Gap> {
        match &self.stage {
            RecoveryStage::Live => None,
            RecoveryStage::Behind(gap)
            | RecoveryStage::Fetching(gap)
            | RecoveryStage::Early(gap, _) => Some(*gap),
        }
    }

    fn is_lost(&self) -> bool {
        self.gap().is_some_and(|gap| gap.is_lost)
    }

    /// The application's position in each group.
    pub fn positions(&self) -> Vec<u64> {
        self.cluster.all_groups().iter().map(|g| self.app.delivered(g)).collect()
    }

    fn positions_of(&self, state: &A::State) -> Vec<u64> {
        self.cluster.all_groups().iter().map(|g| A::state_delivered(state, g)).collect()
    }

    /// Takes what the replica `p` delivered: whether the application took it at once. Else it waits here.
    pub fn deliver(
        &mut self,
        p: Pid,
        delivery: Delivery,
        payload: &[u8],
        answer: TellAnswer<'_>,
    ) -> Option<TakenDelivery> {
        let group = self.group(p);
        if let Some(view) = &mut self.view {
            view.reached = delivery.position;
        }
        let is_next = self.is_live() && self.replicas[group.index()].inbox.is_empty();
        if is_next && self.app.deliver(command(group, delivery, payload), answer) {
            return Some(taken(group, delivery, payload));
        }
        let waiting = WaitingDelivery { delivery, payload: payload.into() };
        self.inbox_bytes += waiting.bytes();
        self.replicas[group.index()].inbox.push_back(waiting);
        self.want_what_overflows();
        None
    }

    /// The replica `p` delivers these next: shows them to the application, if it takes them then.
    pub fn look_ahead(&mut self, p: Pid, deliveries: &mut dyn Iterator<Item = (Delivery, &[u8])>) {
        let group = self.group(p);
        if self.is_live() && self.replicas[group.index()].inbox.is_empty() {
            let next = |(delivery, payload)| command(group, delivery, payload);
            self.app.look_ahead(group, &mut deliveries.map(next));
        }
    }

    /// Shows the application a message whose place in the order is not decided, if its state is in force.
    pub fn early(&mut self, msg: MsgId, payload: &[u8]) {
        if self.is_live() {
            self.app.early(msg, payload);
        }
    }

    /// Gives the application what waits for it, as far as it takes it. Whether there was anything.
    pub fn drain(&mut self, answer: TellAnswer<'_>, took: &mut dyn FnMut(TakenDelivery)) -> bool {
        if !self.is_live() {
            return false;
        }
        let mut any = false;
        loop {
            let mut again = false;
            for (g, replica) in (0..).map(Gid).zip(&mut self.replicas) {
                while let Some(waiting) = replica.inbox.front() {
                    let WaitingDelivery { delivery, payload } = waiting;
                    if !self.app.deliver(command(g, *delivery, payload), answer) {
                        break;
                    }
                    self.inbox_bytes -= waiting.bytes();
                    took(taken(g, *delivery, payload));
                    replica.inbox.pop_front();
                    again = true;
                }
            }
            any |= again;
            // Another group may have freed the one that was full.
            if !again || self.replicas.iter().all(|replica| replica.inbox.is_empty()) {
                return any;
            }
        }
    }

    /// How far the replica of `group` may count as executed. While a state is awaited, what waits
    /// here counts, so that the others are not held back. They keep it all the same until the replicas receive
    /// [`amcast_core::Input::Installed`]: without the awaited state it is of no use.
    pub fn applied(&self, group: Gid) -> Option<u64> {
        if self.is_live() {
            return Some(self.app.applied(group));
        }
        let last = self.replicas[group.index()].inbox.back();
        last.filter(|_| self.inbox_bytes <= self.inbox_bytes_max).map(|w| w.delivery.position)
    }

    /// Whether so much waits here that a replica of a group with views takes in no more for now
    /// ([`amcast_core::Input::Full`]): there members broadcast, and [`applied`](Self::applied) holds nobody back. A
    /// replica that is behind a state that has arrived takes in more in any case, or that would never come into force:
    /// windows bound it.
    pub const fn is_full(&self) -> bool {
        let waits_for_replica = matches!(self.stage, RecoveryStage::Early(..));
        self.view.is_some() && self.overflows() && !waits_for_replica
    }

    /// Bytes of deliveries that wait here.
    pub const fn waiting_bytes(&self) -> usize {
        self.inbox_bytes
    }

    const fn overflows(&self) -> bool {
        self.inbox_bytes > self.inbox_bytes_max
    }

    /// While no node gives its state, deliveries that overflow are dropped in a group with views, and a state is
    /// wanted that has them: members that wait for each other's state would otherwise hold back what they need to
    /// give one.
    fn want_what_overflows(&mut self) {
        let is_behind = matches!(self.stage, RecoveryStage::Behind(_));
        if !is_behind || self.view.is_none() || !self.overflows() {
            return;
        }
        for replica in &mut self.replicas {
            let last = replica.inbox.back().map_or(0, |w| w.delivery.position);
            replica.wanted = replica.wanted.max(last);
            replica.inbox.clear();
        }
        self.count_inbox();
    }

    /// A state is to be fetched.
    fn falls_behind(&mut self, gap: Gap) {
        self.stage = RecoveryStage::Behind(gap);
        self.want_what_overflows();
    }

    /// The state to fetch, if one is needed and every replica knows where it continues.
    pub fn wants(&self) -> Option<WantedState> {
        let is_idle = matches!(self.stage, RecoveryStage::Behind(_));
        let positions = || self.replicas.iter().map(|replica| replica.wanted).collect();
        let view = self.view.filter(|_| self.is_bound_to_views()).map(|view| view.number);
        (is_idle && self.wants_state()).then(|| WantedState { positions: positions(), view })
    }

    /// Whether it is behind, and every replica knows where it continues.
    pub fn wants_state(&self) -> bool {
        !self.is_live() && !self.lags()
    }

    /// Whether only members of a view that this node's replica is in may give the state.
    fn is_bound_to_views(&self) -> bool {
        self.replicas.iter().any(|replica| matches!(replica.source, StateSource::View(_)))
    }

    /// A state is asked for from these nodes, by rank, in turn.
    pub fn expect(&mut self, sources: Vec<usize>) {
        let RecoveryStage::Behind(gap) = self.stage else { return };
        (self.stage, self.sources) = (RecoveryStage::Fetching(gap), sources);
        if let Some(view) = &mut self.view {
            view.steady = view.members;
        }
    }

    /// One of them gives its state. The old one, which nobody can bring up to where the replicas continue,
    /// makes room for it; until then it may be what another node needs. Gives it back the first time.
    pub fn make_room(&mut self) -> Option<A::State> {
        let RecoveryStage::Fetching(gap) = &mut self.stage else { return None };
        let was_cleared = std::mem::replace(&mut gap.is_cleared, true);
        (!was_cleared).then(|| self.app.clear())
    }

    /// The requested state has arrived, or no node sent one.
    pub fn fetched(&mut self, fetched: Option<FetchedState<A::State>>) {
        let RecoveryStage::Fetching(gap) = self.stage else { return };
        match fetched {
            Some(fetched) => self.stage = RecoveryStage::Early(gap, fetched),
            None => self.falls_behind(gap),
        }
    }

    /// Installs the state that has arrived, if that is possible now.
    pub fn take_over(&mut self) -> Option<TakeOver<A::State>> {
        let (gap, fetched) = match std::mem::replace(&mut self.stage, RecoveryStage::Live) {
            RecoveryStage::Early(gap, fetched) => (gap, fetched),
            other => {
                self.stage = other;
                return None;
            }
        };
        self.stage = RecoveryStage::Behind(gap);
        let (positions, from) = (self.positions_of(&fetched.state), &fetched.from);
        if positions.iter().zip(&self.replicas).any(|(has, replica)| *has < replica.wanted) {
            // A replica began to lag once more while it was on its way.
            self.want_what_overflows();
            return Some(TakeOver::Dropped(format!("the state of {from} is too old by now")));
        }
        if let Some(why) = self.app.conflict(&fetched.state) {
            return Some(TakeOver::Conflicts(format!("the state of {from} is not taken: {why}")));
        }
        if let Some(view) = self.view {
            // Deliveries that only the source had are agreed on only if both members continued from
            // view to view, in one incarnation: then they arrive here, too, and the state waits for
            // them.
            if self.sources.get(fetched.source).is_none_or(|rank| view.steady >> rank & 1 == 0) {
                let why = format!("{from} was excluded while its state was on its way");
                self.want_what_overflows();
                return Some(TakeOver::Dropped(why));
            }
            if positions.iter().any(|&has| has > view.reached) {
                self.stage = RecoveryStage::Early(gap, fetched);
                return None;
            }
        }
        let FetchedState { state, history, from, .. } = fetched;
        let old = self.app.adopt(state);
        for (replica, position) in self.replicas.iter_mut().zip(&positions) {
            replica.wanted = *position;
        }
        (self.stage, self.notice) = (RecoveryStage::Live, Some(Notice::Installed));
        Some(TakeOver::Adopted(Adoption { old, history, from, positions }))
    }

    /// Whether the replicas must learn now that the application needs a state.
    pub fn is_unfit(&mut self) -> bool {
        self.notice.take_if(|notice| *notice == Notice::Unfit).is_some()
    }

    /// The positions of the installed state, if the replicas must learn them now.
    pub fn installed(&mut self) -> Option<Vec<u64>> {
        self.notice.take_if(|notice| *notice == Notice::Installed)?;
        Some(self.positions())
    }

    /// Whether another node may have this one's state, if it needs it at these positions at least.
    ///
    /// # Errors
    /// When it has none, or not so far, or one that may be wrong; the sentence says which.
    pub fn may_give(&self, wanted: &WantedState) -> Result<(), String> {
        let in_view = self.view.filter(|view| !view.is_over).map(|view| view.number);
        if in_view != wanted.view {
            let tell = |view: Option<u64>| view.map_or("none".to_string(), |v| v.to_string());
            let (mine, asked) = (tell(in_view), tell(wanted.view));
            return Err(format!("it is in view {mine}, and not in {asked}"));
        }
        if self.gap().is_some_and(|gap| gap.is_lost || gap.is_cleared) {
            return Err("it waits for a state itself".to_string());
        }
        self.trusts_state()?;
        let groups = self.cluster.groups();
        if wanted.positions.len() != groups {
            return Err(format!("give {groups} positions, one for each group"));
        }
        for (g, &position) in (0..).map(Gid).zip(&wanted.positions) {
            let have = self.app.delivered(g);
            if have < position {
                return Err(format!("it is at {have} in {g}, not {position}"));
            }
        }
        Ok(())
    }

    /// Whether nothing speaks against this node's state. One that may be wrong is given to nobody: a replica that took it
    /// would agree with this one, and both together would outvote the one that is right.
    ///
    /// # Errors
    /// The sentence says which replicas differ.
    pub fn trusts_state(&self) -> Result<(), String> {
        if let Some(why) = self.app.differs() {
            return Err(format!("its state is not that of a majority of the replicas: {why}"));
        }
        match self.app.doubt() {
            Some(why) => Err(format!("it is not known whether its state is right: {why}")),
            None => Ok(()),
        }
    }

    /// The replicas are about to leave their group. False if it has no views, so that they cannot.
    pub const fn begin_leaving(&mut self) -> bool {
        if self.view.is_some() {
            self.leaving = Leaving::Asked;
        }
        self.is_leaving()
    }

    /// Whether the replicas were asked to leave.
    pub const fn is_leaving(&self) -> bool {
        !matches!(self.leaving, Leaving::No)
    }

    /// Whether those that were asked to leave may stop now.
    pub const fn may_stop(&self) -> bool {
        matches!(self.leaving, Leaving::MayStop)
    }

    /// The view of the replica of the only group, where groups have views.
    pub fn view(&self) -> Option<MemberView> {
        let EnteredView { number, members, is_over, .. } = self.view?;
        Some(MemberView { number, members, is_over })
    }

    /// The replica `p` continues from `position`: the application needs a state as far as that, from there.
    fn needs_state(&mut self, p: Pid, position: u64, source: StateSource) {
        let group = self.group(p);
        let replica = &mut self.replicas[group.index()];
        (replica.is_lagging, replica.source) = (false, source);
        if let Some(view) = &mut self.view {
            view.reached = view.reached.max(position);
        }
        // Deliveries that are in the state need not wait for the application any more.
        self.replicas[group.index()].inbox.retain(|w| w.delivery.position > position);
        self.count_inbox();
        if self.is_live() {
            if self.app.delivered(group) >= position {
                // Nothing was delivered in what its replica missed.
                self.notice = Some(Notice::Installed);
                return;
            }
            // An older state must not replace the application's newer one of the other groups.
            for (g, replica) in (0..).map(Gid).zip(&mut self.replicas) {
                replica.wanted = self.app.delivered(g);
            }
            self.app.void_early();
            // A state that came into force since the replica reported that it lags told the others that nothing is missing.
            (self.stage, self.notice) = (RecoveryStage::Behind(Gap::BEHIND), Some(Notice::Unfit));
        }
        let wanted = &mut self.replicas[group.index()].wanted;
        *wanted = (*wanted).max(position);
    }

    /// Takes what the replica `p` reports.
    pub fn event(&mut self, p: Pid, event: ProtocolEvent) {
        match event {
            ProtocolEvent::Part(_)
            | ProtocolEvent::Leads(_)
            | ProtocolEvent::StorageRecovered
            // Every state stays in force: none is fetched.
            | ProtocolEvent::Merged { .. } => {}
            ProtocolEvent::Lagging => {
                let group = self.group(p);
                self.replicas[group.index()].is_lagging = true;
                self.notice = Some(Notice::Unfit);
            }
            ProtocolEvent::NeedsState { position, source } => self.needs_state(p, position, source),
            ProtocolEvent::CaughtUp(position) => self.has_recovered(p, position),
            ProtocolEvent::ViewEntered { number, members, continuing } => {
                self.enters_view(number, members, continuing);
            }
            ProtocolEvent::Excluded(_) => self.is_excluded(p),
            ProtocolEvent::Left(_) | ProtocolEvent::MayStop(_) => self.leaving = Leaving::MayStop,
        }
    }

    fn enters_view(&mut self, number: u64, members: u32, continuing: u32) {
        let reached = self.view.map_or(0, |view| view.reached);
        let before = self.view.filter(|view| !view.is_over);
        let steady = before.map_or(members, |view| view.steady & continuing);
        self.view = Some(EnteredView { number, members, is_over: false, steady, reached });
    }

    /// The group continues without the replica: what it has need not be what the group has.
    fn is_excluded(&mut self, p: Pid) {
        if self.is_live() {
            self.app.void_early();
        }
        let is_cleared = self.gap().is_some_and(|gap| gap.is_cleared);
        self.stage = RecoveryStage::Behind(Gap { is_lost: true, is_cleared });
        let group = self.group(p);
        self.replicas[group.index()] = RecoveringReplica::new(true);
        self.count_inbox();
        if let Some(view) = &mut self.view {
            (view.is_over, view.reached) = (true, 0);
        }
    }

    /// A replica has its place back. If no state was installed for it since it began to lag, it got
    /// its missing deliveries from its own log or from the others, and continues from the
    /// application's position, or from the deliveries that wait for it: then nothing is missing any
    /// more. So it is also while another group's state is awaited, unless the application has lost
    /// its own.
    fn has_recovered(&mut self, p: Pid, position: u64) {
        let group = self.group(p);
        let is_ahead = position > self.stands(group);
        if !self.replicas[group.index()].is_lagging || self.is_lost() || is_ahead {
            // A state is here or comes, and says itself what it is good for.
            return;
        }
        self.replicas[group.index()].is_lagging = false;
        if self.has_state() {
            self.notice = Some(Notice::Installed);
        }
    }

    /// The position of the replica of `group`: that of the application, of the deliveries that wait
    /// for it here, or at least that of the awaited state.
    pub fn stands(&self, group: Gid) -> u64 {
        let replica = &self.replicas[group.index()];
        let waits = replica.inbox.back().map_or(0, |w| w.delivery.position);
        let awaits = if self.is_live() { 0 } else { replica.wanted };
        self.app.delivered(group).max(waits).max(awaits)
    }

    fn count_inbox(&mut self) {
        let waiting = self.replicas.iter().flat_map(|replica| &replica.inbox);
        self.inbox_bytes = waiting.map(WaitingDelivery::bytes).sum();
    }

    fn group(&self, p: Pid) -> Gid {
        self.cluster.group_of(p).expect("a node hosts replicas")
    }
}

fn command(group: Gid, delivery: Delivery, payload: &[u8]) -> DeliveredCommand<'_> {
    let Delivery { msg, dst, position, .. } = delivery;
    DeliveredCommand { group, position, msg, dst, payload }
}

const fn taken(group: Gid, delivery: Delivery, payload: &[u8]) -> TakenDelivery {
    let Delivery { msg, position, .. } = delivery;
    TakenDelivery { group, position, msg, bytes: payload.len() }
}

#[cfg(test)]
mod tests;
