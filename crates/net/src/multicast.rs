//! The members that receive a group's multicast address: others get the group's datagrams one by one.
//!
//! Routers do not pass multicast on unless somebody configured them to, and switches may stop to. Then
//! datagrams to the group are all lost for some of its members, for ever, while streams and unicast
//! datagrams arrive. So each carrier finds out whom its multicast reaches:
//!
//! ```text
//! sender                                     member of the group
//!   every PROBE_EVERY, sooner where a connection is new
//!   probe n  ------ to the group's address --->  arrives on the group's socket
//!            <----- to the group's address ----  its own next probe, and with it echo n
//! ```
//!
//! - If each member answered each probe by a datagram, probes would cost the square of the members. So echoes gather,
//!   and go along with the member's own next probe, which is one datagram for all that hear it. A member that does
//!   not hear it is answered at once and alone; so is one whose probe is urgent, since somebody is new to it.
//! - A member that echoed within [`HEARS_FOR`] hears the group's address. The others, and all before their
//!   first echo, get each of the group's datagrams by unicast.
//! - A member that has had no connection for [`AWAY_AFTER`], and from which no datagram arrived meanwhile, is down: it gets
//!   none until it connects or sends again. Copies that nobody receives would take as much of the link as the group's own
//!   datagrams.
//! - As long as no member hears the address nothing but probes goes there.
//! - If a connected member does not hear it for [`REMARK_AFTER`], the carrier remarks so, once; and it
//!   remarks when that member hears it again.
//!
//! Where the state changes a member may get a datagram twice, as the medium allows.

use crate::error::NetDiagnostic;
use crate::events::CarrierEvents;
use crate::inbound::ProbeEcho;
use crate::wire::{GatheredEcho, Probe};
use amcast_core::{Gid, Pid};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often the group's address is probed.
const PROBE_EVERY: Duration = Duration::from_millis(250);

/// How often it is probed for so long ([`PROBE_EVERY`]) after a member has connected or stopped to echo.
const PROBE_SOON: Duration = Duration::from_millis(10);

/// How long a member counts as one that hears the address after an echo: it may miss three probes.
const HEARS_FOR: Duration = Duration::from_secs(1);

/// After how long the carrier remarks that a connected member does not hear the address.
const REMARK_AFTER: Duration = Duration::from_secs(3);

/// After how long without a connection and without a datagram a member gets no copies.
const AWAY_AFTER: Duration = Duration::from_secs(3);

/// An echo of an earlier probe than this many before the last one says nothing of now.
const ECHO_LAG_MAX: u32 = 30;

/// Another member of a group that has a multicast address.
#[derive(Clone, Copy, Debug)]
struct MulticastListener {
    pid: Pid,
    hearing: ListenerState,
    /// Since when it has had no connection, and no datagram of it has arrived; none if there is either.
    away: Option<Instant>,
    /// That it does not hear the address was remarked.
    remarked: bool,
}

/// Whether a member hears the group's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListenerState {
    /// It is not connected, or has just been.
    Unknown,
    /// It echoed last at this time.
    Since(Instant),
    /// It is connected and has echoed nothing for too long, since then.
    Not(Instant),
}

/// A group that has a multicast address.
#[derive(Debug)]
pub(crate) struct MulticastGroup {
    group: Gid,
    address: SocketAddr,
    /// The outbound target of the address.
    pub(crate) target: usize,
    listeners: Vec<MulticastListener>,
    /// Whether any other member hears the address.
    pub(crate) is_heard: bool,
    /// Members that get the group's datagrams by unicast.
    pub(crate) unreached: Vec<Pid>,
    /// Echoes that go along with the next probe, of each member one at most.
    echoes: Vec<GatheredEcho>,
}

/// The contact that the carrier has with a member at present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenerContact {
    /// The address of its connection, if it has one.
    pub(crate) connected_at: Option<SocketAddr>,
    /// Whether a datagram of it arrived since the carrier probed last.
    pub(crate) sends: bool,
}

/// A probe that is to be sent.
#[derive(Debug)]
pub(crate) struct DueProbe {
    /// The outbound target of the group's address.
    pub(crate) target: usize,
    pub(crate) probe: Probe,
    /// Whether members are to echo it at once.
    pub(crate) is_urgent: bool,
    /// Echoes of probes of others.
    pub(crate) echoes: Vec<GatheredEcho>,
}

impl MulticastGroup {
    /// Whether an echo goes along with the next probe: its receiver hears that.
    fn gather(&mut self, echo: GatheredEcho, most: usize) -> bool {
        if !self.listeners.iter().any(|l| l.pid == echo.to && l.hears()) {
            return false;
        }
        match self.echoes.iter().position(|earlier| earlier.to == echo.to) {
            Some(at) => self.echoes[at] = echo,
            None if self.echoes.len() < most => self.echoes.push(echo),
            None => return false,
        }
        true
    }

    fn sort_out(&mut self, now: Instant) {
        let unreached = self.listeners.iter().filter(|l| !l.hears() && !l.is_down(now));
        self.unreached = unreached.map(|l| l.pid).collect();
        self.is_heard = self.listeners.iter().any(MulticastListener::hears);
    }
}

/// All groups that have a multicast address, and who hears it.
#[derive(Debug)]
pub(crate) struct Multicast {
    groups: Vec<MulticastGroup>,
    /// The number of the last probe.
    number: u32,
    /// When to probe next; none if there is nobody to probe for.
    due: Option<Instant>,
    /// Connections that were open so far, when it was probed last.
    connects: u64,
    /// How many echoes a probe has room for.
    echoes_max: usize,
}

impl Multicast {
    /// Groups with the address, the outbound target and the other members of each; a probe has room for so many echoes.
    pub(crate) fn new(
        groups: impl Iterator<Item = (Gid, SocketAddr, usize, Vec<Pid>)>,
        echoes_max: usize,
    ) -> Self {
        let listener = |pid| MulticastListener {
            pid,
            hearing: ListenerState::Unknown,
            away: None,
            remarked: false,
        };
        let groups: Vec<_> = groups
            .map(|(group, address, target, others)| MulticastGroup {
                group,
                address,
                target,
                listeners: others.iter().copied().map(listener).collect(),
                is_heard: false,
                unreached: others,
                echoes: Vec::new(),
            })
            .collect();
        let due = groups.iter().any(|g| !g.listeners.is_empty()).then(Instant::now);
        Self { groups, number: 0, due, connects: 0, echoes_max }
    }

    /// Whether the echo of a probe goes along with the next probe of this process. If not it is sent alone.
    pub(crate) fn gather(&mut self, answer: &ProbeEcho) -> bool {
        let ProbeEcho { to, incarnation, probe, is_urgent } = *answer;
        let Some(group) = self.groups.iter_mut().find(|g| g.group == probe.group) else {
            return false;
        };
        let echo = GatheredEcho { to, incarnation, number: probe.number };
        !is_urgent && group.gather(echo, self.echoes_max)
    }

    /// The group's address, if it has one.
    #[inline]
    pub(crate) fn of(&self, group: Gid) -> Option<&MulticastGroup> {
        self.groups.iter().find(|g| g.group == group)
    }

    /// Has the address probed at once if a connection is new.
    pub(crate) fn note_connects(&mut self, connects: u64, now: Instant) {
        if std::mem::replace(&mut self.connects, connects) != connects {
            self.due = self.due.map(|_| now);
        }
    }

    /// When [`Multicast::wake`] has something to do.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether it is time to probe.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Finds members that do not hear their group any more, or are down, if it is time to; the probes that are to be
    /// sent.
    pub(crate) fn wake(
        &mut self,
        now: Instant,
        contact: impl Fn(Pid) -> ListenerContact,
        told: &mut CarrierEvents,
    ) -> impl Iterator<Item = DueProbe> + '_ {
        let is_due = self.is_due(now);
        let mut is_urgent = false;
        if is_due {
            self.number = self.number.wrapping_add(1);
            for group in &mut self.groups {
                for listener in &mut group.listeners {
                    listener.look(now, contact(listener.pid), group.address, told);
                }
                group.sort_out(now);
            }
            let mut listeners = self.groups.iter().flat_map(|g| &g.listeners);
            is_urgent = listeners.any(|l| l.is_new(now));
            self.due = Some(now + if is_urgent { PROBE_SOON } else { PROBE_EVERY });
        }
        let number = self.number;
        let probed = move |g: &&mut MulticastGroup| {
            is_due && g.listeners.iter().any(|l| l.hearing != ListenerState::Unknown)
        };
        self.groups.iter_mut().filter(probed).map(move |g| DueProbe {
            target: g.target,
            probe: Probe { group: g.group, number },
            is_urgent,
            echoes: std::mem::take(&mut g.echoes),
        })
    }

    /// A member echoed a probe of this life.
    pub(crate) fn on_echo(
        &mut self,
        from: Pid,
        probe: Probe,
        now: Instant,
        told: &mut CarrierEvents,
    ) {
        if self.number.wrapping_sub(probe.number) > ECHO_LAG_MAX {
            return;
        }
        let Some(group) = self.groups.iter_mut().find(|g| g.group == probe.group) else { return };
        let Some(listener) = group.listeners.iter_mut().find(|l| l.pid == from) else { return };
        let before = std::mem::replace(&mut listener.hearing, ListenerState::Since(now));
        if std::mem::take(&mut listener.remarked) {
            told.remark(NetDiagnostic::MulticastAgain { pid: from, group: group.address });
        }
        if !matches!(before, ListenerState::Since(_)) {
            group.sort_out(now);
        }
    }
}

impl MulticastListener {
    /// Whether it hears the address.
    const fn hears(&self) -> bool {
        matches!(self.hearing, ListenerState::Since(_))
    }

    /// Whether it has been away for too long to get copies.
    fn is_down(&self, now: Instant) -> bool {
        self.away.is_some_and(|since| now >= since + AWAY_AFTER)
    }

    /// Whether it has only just been found that it does not hear the address.
    fn is_new(&self, now: Instant) -> bool {
        matches!(self.hearing, ListenerState::Not(since) if now < since + PROBE_EVERY)
    }

    fn look(
        &mut self,
        now: Instant,
        contact: ListenerContact,
        group: SocketAddr,
        told: &mut CarrierEvents,
    ) {
        let is_away = contact.connected_at.is_none() && !contact.sends;
        self.away = is_away.then(|| self.away.unwrap_or(now));
        let Some(address) = contact.connected_at else {
            self.hearing = ListenerState::Unknown;
            return;
        };
        self.hearing = match self.hearing {
            ListenerState::Unknown => ListenerState::Not(now),
            ListenerState::Since(at) if now >= at + HEARS_FOR => ListenerState::Not(now),
            same => same,
        };
        if let ListenerState::Not(since) = self.hearing
            && now >= since + REMARK_AFTER
            && !std::mem::replace(&mut self.remarked, true)
        {
            told.remark(NetDiagnostic::NoMulticast { pid: self.pid, address, group });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const B: Pid = Pid(1);
    const C: Pid = Pid(2);
    const B_AT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);
    const GROUP: Gid = Gid(0);

    const CONNECTED: ListenerContact = ListenerContact { connected_at: Some(B_AT), sends: false };
    const AWAY: ListenerContact = ListenerContact { connected_at: None, sends: false };

    fn to_one() -> (Multicast, Instant, SocketAddr) {
        let address: SocketAddr = "239.255.0.1:1".parse().unwrap();
        let groups = [(GROUP, address, 2, vec![B])];
        let multicast = Multicast::new(groups.into_iter(), 1);
        let now = multicast.next_due().unwrap();
        (multicast, now, address)
    }

    /// Wakes it until `until`; who is connected echoes if `hears`.
    fn run(m: &mut Multicast, until: Instant, hears: bool, told: &mut CarrierEvents) {
        while let Some(now) = m.next_due().filter(|due| *due < until) {
            let due = m.wake(now, |_| CONNECTED, told).next();
            if let Some(DueProbe { target: 2, probe, .. }) = due.filter(|_| hears) {
                m.on_echo(B, probe, now, told);
            }
        }
    }

    #[test]
    fn who_echoes_nothing_gets_unicast_and_is_remarked_once_until_it_echoes() {
        let (mut m, begin, group) = to_one();
        let mut told = CarrierEvents::default();
        let said = |told: &mut CarrierEvents| {
            std::iter::from_fn(|| told.remarks.take()).collect::<Vec<_>>()
        };
        assert_eq!(m.of(GROUP).unwrap().unreached, [B], "before its first echo");
        run(&mut m, begin + REMARK_AFTER * 4, false, &mut told);
        assert!(!m.of(GROUP).unwrap().is_heard);
        assert_eq!(said(&mut told), [NetDiagnostic::NoMulticast { pid: B, address: B_AT, group }]);
        run(&mut m, begin + REMARK_AFTER * 5, true, &mut told);
        assert!(m.of(GROUP).unwrap().unreached.is_empty());
        assert_eq!(said(&mut told), [NetDiagnostic::MulticastAgain { pid: B, group }]);
        run(&mut m, begin + REMARK_AFTER * 5 + HEARS_FOR * 2, false, &mut told);
        assert_eq!(m.of(GROUP).unwrap().unreached, [B], "it hears the address no more");
        assert_eq!(said(&mut told), [], "not for long enough");
    }

    #[test]
    fn echoes_go_along_with_a_probe_to_whom_it_reaches_and_alone_where_they_are_urgent() {
        let (mut m, begin, _) = to_one();
        let mut told = CarrierEvents::default();
        let answer = |to, number, is_urgent| {
            let probe = Probe { group: GROUP, number };
            ProbeEcho { to, incarnation: 3, probe, is_urgent }
        };
        assert!(!m.gather(&answer(B, 1, false)), "it is not known to hear the address");
        run(&mut m, begin + PROBE_EVERY, true, &mut told);
        assert!(!m.gather(&answer(B, 2, true)), "its sender waits for it");
        assert!(!m.gather(&answer(Pid(7), 2, false)), "no member");
        assert!(m.gather(&answer(B, 3, false)) && m.gather(&answer(B, 4, false)));
        let due = m.next_due().unwrap();
        let mut sent = |m: &mut Multicast, now| {
            let all: Vec<DueProbe> = m.wake(now, |_| CONNECTED, &mut told).collect();
            all.into_iter().map(|probe| (probe.is_urgent, probe.echoes)).collect::<Vec<_>>()
        };
        let last = GatheredEcho { to: B, incarnation: 3, number: 4 };
        assert_eq!(sent(&mut m, due), [(false, vec![last])]);
        let due = m.next_due().unwrap();
        assert_eq!(sent(&mut m, due), [(false, Vec::new())], "each is sent once");
        let silent = begin + HEARS_FOR * 2;
        assert_eq!(sent(&mut m, silent), [(true, Vec::new())], "it answers no more");
        assert!(!m.gather(&answer(B, 5, false)), "and would not hear of it");
    }

    #[test]
    fn an_echo_of_long_ago_counts_for_nothing_and_who_is_away_is_not_probed() {
        let (mut m, begin, _) = to_one();
        let mut told = CarrierEvents::default();
        run(&mut m, begin + HEARS_FOR * 5, false, &mut told);
        m.on_echo(B, Probe { group: GROUP, number: 1 }, begin, &mut told);
        m.on_echo(B, Probe { group: Gid(1), number: m.number }, begin, &mut told);
        m.on_echo(Pid(7), Probe { group: GROUP, number: m.number }, begin, &mut told);
        assert_eq!(m.of(GROUP).unwrap().unreached, [B]);
        let due = m.next_due().unwrap();
        assert_eq!(m.wake(due, |_| AWAY, &mut told).count(), 0);
    }

    /// Wakes it until `until`: B has this contact, and hears the address while it is connected; C does if `c_hears`. Gives
    /// the members that get copies then, and whether anybody hears the address.
    fn copies_to(
        m: &mut Multicast,
        until: Instant,
        of_b: ListenerContact,
        c_hears: bool,
    ) -> (Vec<Pid>, bool) {
        let mut told = CarrierEvents::default();
        while let Some(now) = m.next_due().filter(|due| *due < until) {
            let contact = |pid| if pid == B { of_b } else { CONNECTED };
            let due = m.wake(now, contact, &mut told).next();
            if let Some(DueProbe { probe, .. }) = due {
                let hearers = [(B, of_b.connected_at.is_some()), (C, c_hears)];
                for (pid, _) in hearers.into_iter().filter(|(_, hears)| *hears) {
                    m.on_echo(pid, probe, now, &mut told);
                }
            }
        }
        let group = m.of(GROUP).unwrap();
        (group.unreached.clone(), group.is_heard)
    }

    #[test]
    fn a_member_that_is_down_gets_no_copies_until_it_connects_or_sends() {
        let address: SocketAddr = "239.255.0.1:1".parse().unwrap();
        let mut m = Multicast::new([(GROUP, address, 2, vec![B, C])].into_iter(), 1);
        let begin = m.next_due().unwrap();
        let at = |ms| begin + Duration::from_millis(ms);
        assert_eq!(copies_to(&mut m, at(1_000), CONNECTED, true), (vec![], true));
        assert_eq!(copies_to(&mut m, at(3_900), AWAY, true), (vec![B], true), "for a while");
        assert_eq!(copies_to(&mut m, at(4_600), AWAY, true), (vec![], true));
        assert_eq!(copies_to(&mut m, at(6_000), AWAY, false), (vec![C], false));
        // Without a connection it gets copies as long as it sends.
        let sends = ListenerContact { sends: true, ..AWAY };
        assert_eq!(copies_to(&mut m, at(12_000), sends, true), (vec![B], true));
        assert_eq!(copies_to(&mut m, at(16_000), AWAY, true), (vec![], true));
        m.note_connects(1, at(16_001));
        let mut told = CarrierEvents::default();
        assert_eq!(m.wake(at(16_001), |_| CONNECTED, &mut told).count(), 1);
        assert_eq!(m.of(GROUP).unwrap().unreached, [B], "it is connected again");
    }

    #[test]
    fn a_member_that_was_never_there_gets_copies_for_a_while_only() {
        let (mut m, begin, _) = to_one();
        let mut told = CarrierEvents::default();
        for (ms, copies) in [(0, 1), (2_700, 1), (3_000, 0)] {
            let now = begin + Duration::from_millis(ms);
            assert_eq!(m.wake(now, |_| AWAY, &mut told).count(), 0);
            let group = m.of(GROUP).unwrap();
            assert_eq!((group.unreached.len(), group.is_heard), (copies, false), "{ms} ms");
        }
    }
}
