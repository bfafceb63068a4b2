//! Connections whose clients have not given the password: a bounded number of them, each for a bounded time.
//!
//! The input of such a client is bounded by
//! [`Bounds::STRANGER`](amcast_kv::resp::parser::RequestBounds), its unread answers by
//! [`OUTPUT_BYTES_CALM`]. A wrong password is answered late, and later each time, and all unauthenticated clients together
//! can try as many as [`LOGINS`] says: beyond, each waits for its turn, whether its password is right or wrong
//! ([`login_turns`](crate::gateway::login_turns)).
//!
//! Refusals cost time, too, and the thread that refuses serves the other clients. After [`ROUND_UNITS`] units of work a
//! connection rests: nothing is read from it, so that its socket holds its client back. The rest is longer the more such
//! connections there are, so that all of them together get no more than [`UNITS_PER_SECOND`], and what each one dials with.

use crate::gateway::login_turns::{LoginPace, LoginPermit, LoginTurn, LoginTurns, TooManyLogins};
use amcast_kv::client::{ClientInfo, lock};
use amcast_net::host_network;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Such connections at a time, and no more than half of all. One more closes the one that has been idle for longest, of
/// the host that has most of them: a host that connects as fast as it can closes its own. One that waits for its turn
/// to give the password is not idle.
const STRANGERS_MAX: usize = 256;

/// How long a client may take to give the password.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// While more output waits for such a client, none of its commands is taken.
pub(super) const OUTPUT_BYTES_CALM: usize = 16 << 10;

/// How long the answer to a wrong password takes: the first of a connection, and at most.
const DELAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));

/// How fast passwords may be tried: as fast as so many places and the first delay let them.
pub(super) const LOGINS: LoginPace =
    LoginPace { per_second: 1024, burst: 64, waiting_max: STRANGERS_MAX };

/// Units of work between two rests of a connection: a command is one, and so is each [`UNIT_BYTES`] of it.
const ROUND_UNITS: usize = 64;

/// Bytes of a command that cost as much as another command.
const UNIT_BYTES: usize = 1 << 10;

/// The units of all connections together, apart from the first round of each.
const UNITS_PER_SECOND: usize = 2048;

/// The connections of a gateway.
pub(super) struct UnauthenticatedClients {
    most: usize,
    places: Mutex<StrangerPlaces>,
}

/// The places that are taken. The places of each host are counted as connections come and go: a flood of connections would
/// else have the thread that serves all clients count all places for each of them.
#[derive(Default)]
struct StrangerPlaces {
    all: BTreeMap<u64, StrangerPlace>,
    hosts: BTreeMap<IpAddr, HostPlaces>,
}

/// The places of a host.
#[derive(Default)]
struct HostPlaces {
    ids: BTreeSet<u64>,
    /// How many of them are of a host that is known.
    known: usize,
}

/// The place of a connection.
struct StrangerPlace {
    info: Arc<ClientInfo>,
    host: IpAddr,
    /// A client of its host has given the right password before.
    is_known: bool,
    /// It waits for its turn to give the password.
    waits: bool,
}

impl UnauthenticatedClients {
    /// None yet, of a gateway that serves so many connections.
    pub(super) fn of(clients_max: usize) -> Self {
        Self { most: STRANGERS_MAX.min(clients_max / 2).max(1), places: Mutex::default() }
    }

    /// How many there may be at a time.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Notes a connection, and whether its host is [known](LoginTurns::knows). The one that was closed for it, if there
    /// were too many; it may be this one.
    pub(super) fn enter(&self, info: Arc<ClientInfo>, is_known: bool) -> Option<Arc<ClientInfo>> {
        let mut places = lock(&self.places);
        let is_full = places.all.len() >= self.most;
        let (id, host) = (info.id, host(&info));
        places.insert(id, StrangerPlace { info, host, is_known, waits: false });
        let closed = is_full.then(|| places.to_give_up((id, host), self.most));
        let closed = closed.and_then(|id| places.remove(id));
        drop(places);
        closed.map(|place| place.info).inspect(|info| info.kill())
    }

    /// A connection waits for its turn to give the password, or does not any more.
    pub(super) fn set_waiting(&self, id: u64, waits: bool) {
        if let Some(place) = lock(&self.places).all.get_mut(&id) {
            place.waits = waits;
        }
    }

    /// How long a connection rests after a round: a second, or more where there are many.
    pub(super) fn rest(&self) -> Duration {
        let all = lock(&self.places).all.len();
        let ms = 1000 * ROUND_UNITS * all / UNITS_PER_SECOND;
        Duration::from_millis(ms.max(1000) as u64)
    }

    /// Its client gave the password.
    pub(super) fn let_in(&self, info: &ClientInfo) {
        let mut places = lock(&self.places);
        places.remove(info.id);
        places.know(host(info));
    }

    /// It ended.
    pub(super) fn leave(&self, id: u64) {
        lock(&self.places).remove(id);
    }
}

/// The host that a connection is of.
pub(super) fn host(info: &ClientInfo) -> IpAddr {
    host_network(info.peer.ip())
}

impl StrangerPlaces {
    fn insert(&mut self, id: u64, place: StrangerPlace) {
        self.remove(id);
        let of_host = self.hosts.entry(place.host).or_default();
        of_host.ids.insert(id);
        of_host.known += usize::from(place.is_known);
        self.all.insert(id, place);
    }

    fn remove(&mut self, id: u64) -> Option<StrangerPlace> {
        let place = self.all.remove(&id)?;
        let of_host = self.hosts.get_mut(&place.host)?;
        of_host.ids.remove(&id);
        of_host.known -= usize::from(place.is_known);
        if of_host.ids.is_empty() {
            self.hosts.remove(&place.host);
        }
        Some(place)
    }

    /// A client of this host has given the right password.
    fn know(&mut self, host: IpAddr) {
        let Self { all, hosts } = self;
        let Some(of_host) = hosts.get_mut(&host) else { return };
        of_host.known = of_host.ids.len();
        for id in &of_host.ids {
            all.get_mut(id).into_iter().for_each(|place| place.is_known = true);
        }
    }

    /// Of the host that has most connections the one that has been idle for longest; where all hosts have one, that of all of
    /// them. If all of these wait for their turn it is the one that came last, which is `entering` if that is one of them:
    /// the others come first. Known hosts with no more than an eighth of the `most` places are passed over, as long as all of
    /// them together have no more than half.
    fn to_give_up(&self, entering: (u64, IpAddr), most: usize) -> u64 {
        let has_few = |of_host: &HostPlaces| of_host.ids.len() <= most / 8;
        let few = self.hosts.values().filter(|of_host| has_few(of_host));
        let passes_over = few.map(|of_host| of_host.known).sum::<usize>() <= most / 2;
        // By how much it may be given up: for its number of connections, unless all are known and few.
        let rank = |(host, of_host): (&IpAddr, &HostPlaces)| {
            let count = of_host.ids.len();
            let is_exempt = passes_over && has_few(of_host) && of_host.known == count;
            (!is_exempt, count, *host == entering.1, *host)
        };
        let Some((is_given_up, count, is_entering, host)) = self.hosts.iter().map(rank).max()
        else {
            return entering.0;
        };
        match (count, self.hosts.get(&host)) {
            (2.., Some(of_host)) => {
                let its = of_host.ids.iter().filter_map(|id| Some((*id, self.all.get(id)?)));
                idlest(its, entering.0, is_entering)
            }
            // Each host has one, but those that are passed over.
            _ => {
                let is_exempt = |place: &StrangerPlace| {
                    passes_over
                        && place.is_known
                        && self.hosts.get(&place.host).is_some_and(has_few)
                };
                let all = self.all.iter().map(|(id, place)| (*id, place));
                let may_be = all.filter(|(_, place)| !is_given_up || !is_exempt(place));
                idlest(may_be, entering.0, is_entering)
            }
        }
    }
}

/// Of these places, but the one that is `entering`, that which has been idle for longest. If all of them wait for their turn
/// it is the last one, or the entering one where that is one of them.
fn idlest<'a>(
    places: impl Iterator<Item = (u64, &'a StrangerPlace)> + Clone,
    entering: u64,
    is_entering: bool,
) -> u64 {
    let others = || places.clone().filter(|(id, _)| *id != entering);
    let idle = |(id, place): &(u64, &StrangerPlace)| (lock(&place.info.said).active_us, *id);
    let idlest = others().filter(|(_, place)| !place.waits).min_by_key(idle);
    let given_up = idlest.or_else(|| others().last().filter(|_| !is_entering));
    given_up.map_or(entering, |(id, _)| id)
}

/// The password that a client gave in its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GivenPassword {
    /// The right one.
    Right,
    /// A wrong one.
    Wrong,
    /// It gave none.
    Nothing,
}

/// The state of one waiting connection.
#[derive(Default)]
pub(super) struct LoginWait {
    /// Until when its client must have given the password, while it has not.
    until: Option<Pin<Box<Sleep>>>,
    /// Wrong passwords so far.
    wrong: u32,
    /// Until when nothing is answered.
    delay: Option<Pin<Box<Sleep>>>,
    /// Units of work in this round.
    units: usize,
    /// Until when nothing is read.
    rest: Option<Pin<Box<Sleep>>>,
    /// It waits for its turn to give a password.
    turn: Option<LoginTurn>,
    /// It has its turn.
    permit: Option<LoginPermit>,
    /// Too many wait for their turn: it ends.
    is_refused: bool,
}

impl LoginWait {
    /// A wrong password was given.
    pub(super) fn refuse(&mut self) {
        let delay = DELAY.0.saturating_mul(1 << self.wrong.min(16)).min(DELAY.1);
        self.wrong = self.wrong.saturating_add(1);
        self.delay = Some(Box::pin(sleep(delay)));
    }

    /// Whether it has to wait until a password of a client of this host may be compared; `cx` is woken then.
    pub(super) fn awaits_turn(
        &mut self,
        turns: &Arc<LoginTurns>,
        host: IpAddr,
        cx: &mut Context<'_>,
    ) -> bool {
        let turn = self.turn.get_or_insert_with(|| turns.turn(host));
        match Pin::new(turn).poll(cx) {
            Poll::Pending => return true,
            Poll::Ready(Ok(permit)) => self.permit = Some(permit),
            Poll::Ready(Err(TooManyLogins)) => self.is_refused = true,
        }
        self.turn = None;
        self.is_refused
    }

    /// Whether it waits until a password may be compared.
    pub(super) const fn is_in_line(&self) -> bool {
        self.turn.is_some()
    }

    /// It gives up its turn.
    pub(super) fn leave_line(&mut self) {
        self.turn = None;
    }

    /// Its turn is over.
    pub(super) fn end_turn(&mut self, given: GivenPassword) {
        let Some(permit) = self.permit.take() else { return };
        match given {
            GivenPassword::Right => permit.was_right(),
            GivenPassword::Wrong => {}
            GivenPassword::Nothing => permit.compared_nothing(),
        }
    }

    /// A command of so many bytes was looked at before its client gave the password. Whether the round is over.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        self.units = self.units.saturating_add(1 + bytes / UNIT_BYTES);
        let is_over = self.units >= ROUND_UNITS;
        if is_over {
            self.units = 0;
        }
        is_over
    }

    /// Has the connection rest for so long.
    pub(super) fn begin_rest(&mut self, time: Duration) {
        self.rest = Some(Box::pin(sleep(time)));
    }

    /// Whether the connection is known as an unauthenticated client's.
    pub(super) const fn is_strange(&self) -> bool {
        self.until.is_some()
    }

    /// From now on it is an unauthenticated client's, or is not any more.
    pub(super) fn set_strange(&mut self, strange: bool) {
        self.until = strange.then(|| Box::pin(sleep(PATIENCE)));
        self.rest = None;
    }

    /// Whether its time is over.
    pub(super) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_refused
            || self.until.as_mut().is_some_and(|until| until.as_mut().poll(cx).is_ready())
    }

    /// Whether no command is taken now: the answer to a wrong password waits, or the connection rests.
    pub(super) const fn is_closed(&self) -> bool {
        self.delay.is_some() || self.rest.is_some()
    }

    /// Whether the answer to a wrong password waits, by the clock; `cx` is woken when it is to be given.
    pub(super) fn delays(&mut self, cx: &mut Context<'_>) -> bool {
        is_pending(&mut self.delay, cx)
    }

    /// Whether the connection rests, by the clock; `cx` is woken when more is to be read.
    pub(super) fn rests(&mut self, cx: &mut Context<'_>) -> bool {
        is_pending(&mut self.rest, cx)
    }
}

/// Whether the time of `until` has not come; it is forgotten when it has.
fn is_pending(until: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> bool {
    let Some(sleep) = until else { return false };
    let pending = sleep.as_mut().poll(cx) == Poll::Pending;
    if !pending {
        *until = None;
    }
    pending
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_kv::client::ClientReport;

    fn info(id: u64, ip: &str) -> Arc<ClientInfo> {
        let said = ClientReport {
            name: String::new(),
            lib_name: String::new(),
            lib_version: String::new(),
            resp: 2,
            command: "",
            active_us: id,
        };
        Arc::new(ClientInfo {
            id,
            peer: (ip.parse::<IpAddr>().expect("an address"), 1).into(),
            local: ([127, 0, 0, 1], 1).into(),
            since_us: id,
            said: said.into(),
            killed: false.into(),
            held: 0.into(),
            block: amcast_kv::client::BlockState::default(),
            wake: Box::new(|| {}),
        })
    }

    #[test]
    fn all_connections_together_have_a_bounded_number_of_units_a_second() {
        let strangers = UnauthenticatedClients::of(1000);
        for id in 1..=256 {
            strangers.enter(info(id, "10.0.0.8"), false);
            let per_second =
                1000 * id as usize * ROUND_UNITS / strangers.rest().as_millis() as usize;
            assert!(per_second <= UNITS_PER_SECOND + ROUND_UNITS, "{id}: {per_second}");
            assert!(strangers.rest() >= Duration::from_secs(1) && strangers.rest() < PATIENCE);
        }
        let mut entrance = LoginWait::default();
        assert_eq!((1..=640).filter(|_| entrance.spend(30)).count(), 10);
        // Few commands that are large cost as much.
        assert!((0..3).all(|_| entrance.spend(100_000)) && !entrance.spend(20_000));
    }

    #[test]
    fn who_dials_without_end_closes_its_own_connections() {
        let strangers = UnauthenticatedClients::of(16);
        let ended = |info: &Arc<ClientInfo>| info.killed.load(std::sync::atomic::Ordering::Acquire);
        let client = info(0, "10.0.0.7");
        assert!(strangers.enter(client.clone(), false).is_none());
        let mut floods = Vec::new();
        for id in 1..500 {
            floods.push(info(id, if id % 2 == 0 { "10.0.0.8" } else { "::ffff:10.0.0.8" }));
            strangers.enter(floods[id as usize - 1].clone(), false);
        }
        assert!(!ended(&client), "another host pushes it out");
        assert_eq!(floods.iter().filter(|info| !ended(info)).count(), 7);
        assert!(!ended(floods.last().expect("there are some")), "the idlest goes first");
        // One host has many addresses in one network, and no two of them are two hosts.
        let strangers = UnauthenticatedClients::of(16);
        let client = info(0, "2001:db8:1::1");
        strangers.enter(client.clone(), false);
        (1..500)
            .for_each(|id| _ = strangers.enter(info(id, &format!("2001:db8:2::{id:x}")), false));
        assert!(!ended(&client));
        // As many hosts as places: each has one, and the idlest of all goes.
        let strangers = UnauthenticatedClients::of(16);
        let many: Vec<_> = (0..9).map(|id| info(id, &format!("10.0.1.{id}"))).collect();
        many.iter().for_each(|info| _ = strangers.enter(info.clone(), false));
        assert_eq!(many.iter().map(ended).collect::<Vec<_>>()[..2], [true, false]);
    }

    #[test]
    fn hosts_that_are_known_are_not_closed_for_any_number_of_others() {
        let ended = |info: &Arc<ClientInfo>| info.killed.load(std::sync::atomic::Ordering::Acquire);
        let strangers = UnauthenticatedClients::of(64);
        let flood = |count: u64, from: u64| {
            for id in from..from + count {
                strangers.enter(info(id, &format!("10.1.{}.{}", id % 3, id % 250)), false);
                strangers.set_waiting(id, true);
            }
        };
        flood(32, 0);
        let clients: Vec<_> = (1000..1004).map(|id| info(id, "10.0.0.7")).collect();
        clients.iter().for_each(|client| _ = strangers.enter(client.clone(), true));
        flood(500, 2000);
        assert!(!clients.iter().any(ended), "they wait beside others that are not known");
        // More than an eighth of all places are as those of other hosts.
        let more: Vec<_> = (3000..3040).map(|id| info(id, "10.0.0.7")).collect();
        more.iter().for_each(|client| _ = strangers.enter(client.clone(), true));
        assert_eq!(clients.iter().chain(&more).filter(|client| !ended(client)).count(), 4);
    }

    #[test]
    fn hosts_that_are_known_do_not_have_all_places() {
        let ended = |info: &Arc<ClientInfo>| info.killed.load(std::sync::atomic::Ordering::Acquire);
        let strangers = UnauthenticatedClients::of(64);
        for id in 0..80 {
            strangers.enter(info(id, &format!("10.2.0.{}", id % 8)), true);
            strangers.set_waiting(id, true);
        }
        let newcomers: Vec<_> = (0..10).map(|n| info(100 + n, &format!("10.3.0.{n}"))).collect();
        newcomers.iter().for_each(|client| _ = strangers.enter(client.clone(), false));
        assert!(!newcomers.iter().any(ended), "half of them are for others");
        // Those that wait when a client of their host is let in are known as well.
        let waiting: Vec<_> = (0..2).map(|n| info(200 + n, "10.4.0.1")).collect();
        waiting.iter().for_each(|client| _ = strangers.enter(client.clone(), false));
        strangers.let_in(&waiting[0]);
        (300..400)
            .for_each(|id| _ = strangers.enter(info(id, &format!("10.5.{}.1", id % 250)), false));
        assert!(!ended(&waiting[1]));
    }

    #[test]
    fn who_waits_for_its_turn_keeps_its_place() {
        let strangers = UnauthenticatedClients::of(16);
        let ended = |info: &Arc<ClientInfo>| info.killed.load(std::sync::atomic::Ordering::Acquire);
        let floods: Vec<_> = (0..8).map(|id| info(id, "10.0.0.8")).collect();
        floods.iter().for_each(|info| _ = strangers.enter(info.clone(), false));
        (0..7).for_each(|id| strangers.set_waiting(id, true));
        let next = info(8, "10.0.0.8");
        strangers.enter(next.clone(), false);
        assert!(ended(&floods[7]) && !ended(&next), "the only one that does not wait goes");
        strangers.set_waiting(8, true);
        let last = info(9, "10.0.0.8");
        assert!(
            strangers.enter(last.clone(), false).is_some() && ended(&last),
            "all others come first"
        );
        let client = info(10, "10.0.0.7");
        strangers.enter(client.clone(), false);
        assert!(ended(&next) && !ended(&client), "it takes the place of the last of the others");
        assert_eq!(floods.iter().filter(|info| ended(info)).count(), 1);
    }

    /// The place that is given up, found by counting all places.
    fn counted(places: &StrangerPlaces, entering: (u64, IpAddr), most: usize) -> u64 {
        let all = &places.all;
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        all.values().for_each(|place| *counts.entry(place.host).or_default() += 1);
        let has_few = |place: &StrangerPlace| counts[&place.host] <= most / 8;
        let exempt = all.values().filter(|place| place.is_known && has_few(place)).count();
        let is_exempt =
            |place: &StrangerPlace| place.is_known && has_few(place) && exempt <= most / 2;
        let rank = |place: &StrangerPlace| {
            (!is_exempt(place), counts[&place.host], place.host == entering.1, place.host)
        };
        let first = all.values().map(rank).max().expect("one is entering");
        let is_candidate = |(id, place): &(&u64, &StrangerPlace)| {
            let is_of = match first.1 {
                1 => !first.0 || !is_exempt(place),
                _ => place.host == first.3,
            };
            **id != entering.0 && is_of
        };
        let its = || all.iter().filter(is_candidate);
        let idle = |(id, place): &(&u64, &StrangerPlace)| (lock(&place.info.said).active_us, **id);
        let idlest = its().filter(|(_, place)| !place.waits).min_by_key(idle);
        let given_up = idlest.or_else(|| its().next_back().filter(|_| !first.2));
        given_up.map_or(entering.0, |(id, _)| *id)
    }

    #[test]
    fn the_place_that_is_given_up_is_the_one_that_counting_all_finds() {
        let mut rng = amcast_core::rng::Rng::new(5);
        for round in 0..300 {
            let most = 1 + rng.below(24) as usize;
            let hosts = 1 + rng.below(30);
            let strangers = UnauthenticatedClients::of(2 * most);
            for id in 0..120 {
                let host = format!("10.0.0.{}", rng.below(hosts));
                let info = info(id, &host);
                lock(&info.said).active_us = rng.below(40);
                let is_known = rng.chance(300_000);
                let mut places = lock(&strangers.places);
                let is_full = places.all.len() >= most;
                let place = StrangerPlace {
                    info: info.clone(),
                    host: super::host(&info),
                    is_known,
                    waits: false,
                };
                places.insert(id, place);
                let entering = (id, super::host(&info));
                let expected = is_full.then(|| counted(&places, entering, most));
                places.remove(id);
                drop(places);
                let closed = strangers.enter(info.clone(), is_known).map(|info| info.id);
                assert_eq!(closed, expected, "round {round}, {id}");
                match rng.below(6) {
                    0 => strangers.leave(rng.below(id + 1)),
                    1 => strangers.let_in(&info),
                    2 | 3 => strangers.set_waiting(rng.below(id + 1), true),
                    _ => {}
                }
            }
        }
    }
}
