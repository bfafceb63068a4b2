//! A member: the one replica of a node whose protocol sends messages, at the carrier that it talks
//! through.

use crate::application::Wake;
use crate::control::NetworkStatus;
use crate::dues::{Carrying, Dues};
use crate::home::Net;
use crate::replicas::Replicas;
use crate::seat::Above;
use amcast_core::messages::{Frames, In, Out};
use amcast_core::step::{Oracle, Outbox, Output, Protocol, Status};
use amcast_core::{Cluster, Gid, GroupSet, Input, Pid, Span, Submission, Time};
use amcast_net::{Carrier, Error, Options, Peer};
use std::os::fd::AsFd;
use std::sync::Arc;

/// After how long without a word a member counts as silent, for people.
const SILENT: Span = Span::millis(200);

/// How much may wait for a connection before nothing more is broadcast. What the others cast at the
/// same time has room beside it in what the carrier keeps.
const BACKLOG_BYTES_MAX: usize = 8 << 20;

impl Carrying<Frames> for Carrier {
    fn view(&self) {}

    fn carry(&mut self, outbox: &Outbox<Frames>) {
        for item in outbox.items() {
            if let Output::Medium(out) = item {
                let (Out::To(_, _, frame) | Out::Group(_, _, frame)) = out;
                Self::carry(self, out, outbox.bytes(*frame));
            }
        }
    }
}

/// A replica of the only group, and its carrier.
pub(crate) struct Member {
    cluster: Cluster,
    dues: Dues<Frames>,
    carrier: Carrier,
    /// When each process was heard last.
    heard: Vec<Time>,
    begun_at: Time,
}

impl Member {
    /// Opens the sockets of the process `pid` and begins to connect to its peers. `life` is a higher
    /// number than in any earlier life of it.
    ///
    /// # Errors
    /// When its addresses cannot be used; the error says which.
    pub(crate) fn start(
        net: &Net,
        cluster: &Cluster,
        (pid, life): (Pid, u32),
        protocol: Box<dyn Protocol<Medium = Frames> + Send>,
        tracing: bool,
    ) -> Result<Self, Error> {
        let peer = |(rank, place): (usize, &crate::config::Place)| {
            // It is told to others where it is reached, and listens where it is told to.
            let listens = place.listen.filter(|_| rank == pid.index());
            let at = listens.unwrap_or(place.address);
            Peer { tcp: at, udp: at, groups: GroupSet::one(Gid(0)) }
        };
        let peers: Vec<Peer> = net.places.iter().enumerate().map(peer).collect();
        let seed = u64::from(pid.0) << 32 | u64::from(life);
        let options = Options { cluster_id: net.id, seed, ..Options::default() };
        let carrier = Carrier::start(pid, life, &peers, &options)?;
        let dues = Dues::new(pid, protocol, tracing);
        let heard = vec![Time::ZERO; cluster.processes()];
        Ok(Self { cluster: *cluster, dues, carrier, heard, begun_at: Time::ZERO })
    }

    /// What becomes readable when there is something to do outside of the protocol wakes the loop.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub(crate) fn watch(&mut self, what: impl AsFd) -> Result<(), Error> {
        self.carrier.watch(what)
    }

    /// Wakes the protocol when it is time: again if it asks for that at once, as it does to send
    /// what it gathered; but not for ever.
    fn wake_up(&mut self, now: Time, above: &mut dyn Above) -> bool {
        let mut woke = false;
        for _ in 0..2 {
            if self.dues.deadline().is_none_or(|t| t > now) {
                break;
            }
            self.dues.step(now, &mut self.carrier, Input::Wake, above);
            woke = true;
        }
        woke
    }

    /// The others that it is connected to.
    fn connected(&self) -> impl Iterator<Item = Pid> + '_ {
        let others = self.cluster.pids().filter(|&p| p != self.carrier.pid());
        others.filter(|&p| self.carrier.connected(p).is_some())
    }

    fn log(&mut self) {
        while let Some(remark) = self.carrier.take_remark() {
            tracing::info!("{remark}");
        }
    }
}

impl Replicas for Member {
    fn pid(&self, _: Gid) -> Pid {
        self.carrier.pid()
    }

    fn life(&self) -> u32 {
        self.carrier.incarnation()
    }

    fn begin(&mut self, now: Time, above: &mut dyn Above) {
        self.begun_at = now;
        let incarnation = self.life();
        self.dues.step(now, &mut self.carrier, Input::Start { incarnation }, above);
    }

    fn round(&mut self, now: Time, above: &mut dyn Above) -> bool {
        let mut busy = false;
        self.carrier.begin_round();
        while let Some(input) = self.carrier.next_input() {
            if let In::From(pid, _) | In::Up(pid) = &input {
                self.heard[pid.index()] = now;
            }
            let broken = if let In::Down(pid) = &input { Some(*pid) } else { None };
            let (protocol, outbox) = self.dues.parts();
            protocol.step(now, (), Input::Medium(input), outbox);
            self.dues.carry_out(now, &mut self.carrier, above);
            if let Some(pid) = broken {
                // The system closes the connections of a process that dies: that is known at once,
                // and silence only after a while. One that lives is heard again soon.
                let suspect = Input::Oracle(Oracle::Suspect(pid));
                self.dues.step(now, &mut self.carrier, suspect, above);
            }
            busy = true;
        }
        self.log();
        busy
    }

    fn flush(&mut self, now: Time, above: &mut dyn Above) -> bool {
        let woke = self.wake_up(now, above);
        self.carrier.flush();
        woke
    }

    fn room(&self, bytes: usize) -> usize {
        // The protocol has bounds of its own; where they are wide, the slowest connection holds back.
        if self.connected().any(|p| self.carrier.backlog(p) > BACKLOG_BYTES_MAX) {
            return 0;
        }
        self.dues.protocol().room(GroupSet::one(Gid(0)), bytes)
    }

    fn submit(&mut self, now: Time, submission: Submission<'_>, above: &mut dyn Above) {
        self.dues.step(now, &mut self.carrier, Input::Submit(submission), above);
    }

    fn applied(&mut self, now: Time, _: Gid, position: u64, above: &mut dyn Above) {
        self.dues.applied(now, &mut self.carrier, position, above);
    }

    fn installed(&mut self, now: Time, positions: &[u64], above: &mut dyn Above) {
        let position = positions.first().copied().unwrap_or(0);
        self.dues.step(now, &mut self.carrier, Input::Installed(position), above);
    }

    fn unfit(&mut self, now: Time, above: &mut dyn Above) {
        self.dues.step(now, &mut self.carrier, Input::Unfit, above);
    }

    fn status(&self, _: Gid) -> (Status, bool) {
        (self.dues.protocol().status(), self.dues.protocol().fit())
    }

    fn stopped(&self, now: Time) -> Option<String> {
        let status = self.dues.protocol().status();
        if status.follows {
            return None;
        }
        let others = || self.cluster.pids().filter(|&p| p != self.carrier.pid());
        let silent = |p: Pid| {
            let heard = self.heard[p.index()];
            let since = now.since(if heard == Time::ZERO { self.begun_at } else { heard });
            (since > SILENT).then(|| match heard {
                Time::ZERO => format!("{} was never heard", self.cluster.name(p)),
                _ => {
                    format!("{} is silent for {:.1} s", self.cluster.name(p), since.0 as f64 / 1e9)
                }
            })
        };
        let silent: Vec<String> = others().filter_map(silent).collect();
        let works = self.cluster.replicas() - silent.len();
        if works >= self.cluster.quorum() {
            return Some("it waits to be taken into the group".to_string());
        }
        Some(format!(
            "it has stopped: {works} of {} members are heard, and {} are needed ({})",
            self.cluster.replicas(),
            self.cluster.quorum(),
            silent.join(", ")
        ))
    }

    fn network(&self) -> Option<NetworkStatus> {
        let counts = self.carrier.counts();
        let dropped_datagrams = counts.datagrams_dropped_full
            + counts.datagrams_dropped_error
            + counts.datagrams_malformed
            + counts.datagrams_old
            + counts.datagrams_early;
        Some(NetworkStatus {
            connected: self.connected().count(),
            backlog_bytes: self.connected().map(|p| self.carrier.backlog(p)).max().unwrap_or(0),
            connects: counts.connects,
            breaks: counts.breaks,
            sent: counts.stream_sent + counts.datagram_messages_sent,
            received: counts.stream_received + counts.datagram_messages_received,
            dropped: counts.dropped_down + dropped_datagrams,
            strange: counts.strangers + counts.datagrams_strange,
        })
    }

    fn wake(&self) -> Wake {
        let waker = self.carrier.waker();
        Arc::new(move || waker.ring())
    }

    fn announce(&mut self) {}

    fn stay(&mut self) {}

    fn sleep(&mut self, now: Time, at_most: Span) {
        let wake = self.dues.deadline().unwrap_or(Time::NEVER).since(now);
        if wake > Span::ZERO {
            self.carrier.park(Some(wake.min(at_most)));
        }
    }
}
