//! The transport through shared memory: a client process of the protocol, whose place is leased, and a
//! reader for the answers.
//!
//! One incarnation of the process has as many numbers for its commands as the replicas take of it. Where they are used up
//! the process begins its next incarnation, in the same place.

use super::client_transport::{
    ClientTransport, CommandProgress, OnCommandOutcome, TransportCommand,
};
use super::numbers::CommandNumbers;
use super::{GatewayError, GatewayOptions};
use crate::clock;
use crate::cluster_dir::{MemoryHosts, Transport};
use crate::diagnostics::ClientLog;
use crate::history::HistoryRecorder;
use crate::memory_driver::{MemoryDriver, MemoryDriverError, UpperLayer};
use crate::reply_ring::{ReplyRingLayout, ReplyRingReader, RingReply};
use amcast_core::step::Note;
use amcast_core::trace::TraceEvent;
use amcast_core::{
    ClusterShape, Config, Delivery, Entry, GroupSet, MsgId, Overlay, Pid, ProtocolEvent, Span,
    Submission, Time,
};
use amcast_memory::{Directory, Doorbell, Lease};
use std::io;
use std::path::PathBuf;

/// A node that says nothing for so long while an answer is late is not the only one that is listened
/// to any more.
const HEARD_WITHIN: Span = Span::millis(10);

/// An answer that is so late is asked of all nodes: the one that is listened to may not have it, since
/// it got a state in which its command was executed.
const LATE: Span = Span::millis(100);

/// With so many commands under way only the node that is listened to sends its answers: the others
/// save that for work. With fewer than [`FEW_OPEN`] all send small ones, and the first counts: the one
/// that is listened to may follow in that shard, sleep, and hear of the command last.
const MANY_OPEN: u64 = 24;

/// See [`MANY_OPEN`].
const FEW_OPEN: u64 = 8;

/// A client place, with the present incarnation of its process.
pub(super) struct LeasedTransport {
    start: ClientStart,
    lease: Lease,
    bell: Doorbell,
    /// None where the next incarnation could not begin.
    client: Option<ClientIncarnation>,
    ear: ListenedNode,
    /// The last command that was sent, by number.
    last: u64,
    /// Whether many commands are under way.
    busy: bool,
    /// The highest incarnation of the process that has begun.
    highest: u32,
}

/// The parts with which each incarnation of a client process begins.
struct ClientStart {
    entry: &'static dyn Entry,
    config: Config,
    directory: Directory,
    /// Where its cluster is on several hosts: the memory of this one.
    hosts: Option<MemoryHosts>,
    /// Where its history is written, if anywhere.
    record: Option<PathBuf>,
}

/// One incarnation of a client process, and its reader.
struct ClientIncarnation {
    driver: MemoryDriver,
    replies: ReplyRingReader,
    above: ClientProcessUpper,
}

impl ClientStart {
    /// Begins the next incarnation of the process in `place`. None of it may run. Says in `highest` which one it is, also
    /// where only a part of it begins.
    fn begin(&self, place: usize, highest: &mut u32) -> Result<ClientIncarnation, GatewayError> {
        let cluster = *self.config.cluster();
        let pid = cluster.client(place);
        let process = self.entry.build(pid, &self.config).map_err(GatewayError::Config)?;
        let tracing = self.record.is_some();
        let driver = MemoryDriver::start(&self.directory, &cluster, pid, process, None, tracing);
        let driver = driver.map_err(GatewayError::MemoryDriver)?;
        *highest = driver.incarnation();
        let (layout, bell) = (ReplyRingLayout(cluster), driver.bell().clone());
        let replies = ReplyRingReader::open(&self.directory, layout, place, bell);
        let replies =
            replies.map_err(|e| GatewayError::MemoryDriver(MemoryDriverError::Memory(e)))?;
        let above = ClientProcessUpper { cluster, recorder: None, log: ClientLog::default() };
        Ok(ClientIncarnation { driver, replies, above })
    }

    /// The recorder of the next incarnation of the process in `place`, if it is recorded.
    fn recorder(&self, place: usize) -> io::Result<Option<HistoryRecorder>> {
        let Some(dir) = &self.record else { return Ok(None) };
        let cluster = *self.config.cluster();
        let pid = cluster.client(place);
        let name = format!("{}", cluster.name(pid));
        HistoryRecorder::begin(dir, &name, cluster, &[pid], clock::now()).map(Some)
    }
}

/// Which node's answers are listened to.
#[derive(Default)]
struct ListenedNode {
    to: Option<usize>,
    /// When that node was last heard.
    heard_at: Time,
    /// Until then all are listened to.
    all_until: Time,
}

impl ListenedNode {
    /// Node `k` gave an answer, or a piece of one.
    fn hear(&mut self, now: Time, k: usize) {
        if self.to.is_none() && now >= self.all_until {
            self.to = Some(k);
        }
        if self.to == Some(k) {
            self.heard_at = now;
        }
    }

    /// Something is late since `since`.
    fn is_late(&mut self, now: Time, since: Time) {
        if self.heard_at + HEARD_WITHIN <= now || since + LATE <= now {
            (self.to, self.all_until) = (None, now + HEARD_WITHIN);
        }
    }
}

impl LeasedTransport {
    /// Takes a place, and begins an incarnation of its process.
    pub(super) fn take(
        options: &GatewayOptions<'_>,
        directory: &Directory,
    ) -> Result<Self, GatewayError> {
        let (entry, config) = (options.entry, options.config.clone());
        let lease = directory.lease_any();
        let lease = lease.map_err(|e| GatewayError::MemoryDriver(MemoryDriverError::Memory(e)))?;
        let lease = lease.ok_or(GatewayError::NoPlace(config.cluster().clients()))?;
        let (directory, record) = (directory.clone(), options.record.clone());
        let hosts = match options.ground {
            Transport::Hosts(hosts) => Some(hosts.clone()),
            Transport::Memory(_) | Transport::Net(_) => None,
        };
        let start = ClientStart { entry, config, directory, hosts, record };
        let place = lease.place() as usize;
        let mut highest = 0;
        let mut client = start.begin(place, &mut highest)?;
        client.above.recorder = start.recorder(place).map_err(GatewayError::Io)?;
        let bell = client.driver.bell().clone();
        let (client, ear) = (Some(client), ListenedNode::default());
        Ok(Self { start, lease, bell, client, ear, last: 0, busy: false, highest })
    }

    /// The place.
    pub(super) fn place(&self) -> u32 {
        self.lease.place()
    }

    /// Which life of the place this is.
    pub(super) fn life(&self) -> u32 {
        self.client.as_ref().map_or(0, |client| client.driver.incarnation())
    }

    /// The largest command that it takes, in bytes.
    pub(super) fn payload_max(&self) -> usize {
        self.client.as_ref().map_or(0, |client| client.driver.protocol().payload_max())
    }

    /// Wakes the loop, in every incarnation.
    pub(super) fn bell(&self) -> &Doorbell {
        &self.bell
    }
}

impl ClientTransport for LeasedTransport {
    fn begin(&mut self, now: Time) {
        if let Some(ClientIncarnation { driver, above, .. }) = &mut self.client {
            driver.begin(now, above);
        }
    }

    fn numbers(&self) -> CommandNumbers {
        CommandNumbers::of_incarnation(self.life())
    }

    fn begin_next_incarnation(&mut self, now: Time) -> Result<(), GatewayError> {
        if let Some(hosts) = &self.start.hosts {
            // Else the first incarnation after the host had lost its memory would be one that other hosts know already.
            hosts.keep_above(self.highest + 1).map_err(GatewayError::Io)?;
        }
        // The one before must have ended: a process has one incarnation at a time.
        self.client = None;
        let place = self.lease.place() as usize;
        let mut client = self.start.begin(place, &mut self.highest)?;
        client.above.recorder = self.start.recorder(place).unwrap_or_else(|e| {
            tracing::warn!("the next commands of a gateway are not recorded: {e}");
            None
        });
        self.client = Some(client);
        self.ear = ListenedNode::default();
        self.begin(now);
        Ok(())
    }

    fn round(&mut self, now: Time, tell: OnCommandOutcome<'_>) -> bool {
        let Some(ClientIncarnation { driver, replies, above }) = &mut self.client else {
            return false;
        };
        let busy = driver.round(now, above);
        let ear = &mut self.ear;
        let heard = replies.round(&mut |node, seq, got| {
            ear.hear(now, node);
            tell(
                seq,
                match got {
                    RingReply::Whole(answer) => CommandProgress::Answer(Ok(answer)),
                    RingReply::NotSent(oversize) => CommandProgress::Answer(Err(oversize)),
                    RingReply::Part => CommandProgress::Part,
                },
            );
        });
        replies.listen_to(self.ear.to, self.busy);
        busy | heard
    }

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        self.client.as_ref().map_or(0, |client| client.driver.protocol().room(dst, bytes))
    }

    fn reports_losses(&self) -> bool {
        false
    }

    fn send(&mut self, now: Time, command: TransportCommand<'_>) {
        let TransportCommand { seq, dst, payload, .. } = command;
        let ClientIncarnation { driver, above, .. } = self.client.as_mut().expect("there was room");
        above.cast(now, driver.pid(), seq, dst);
        self.last = seq;
        driver.submit(now, Submission { seq, dst, payload }, above);
    }

    fn forget(&mut self, _seq: u64) {}

    fn settle(&mut self, below: u64) {
        if let Some(client) = &mut self.client {
            client.replies.settle(below);
        }
        let open = (self.last + 1).saturating_sub(below);
        self.busy = open >= if self.busy { FEW_OPEN } else { MANY_OPEN };
    }

    fn is_late(&mut self, now: Time, since: Time) {
        self.ear.is_late(now, since);
    }

    fn change_overlay(&mut self, now: Time, to: &Overlay) {
        if let Some(ClientIncarnation { driver, above, .. }) = &mut self.client {
            driver.change_overlay(now, to, above);
        }
    }

    fn overlay(&self) -> Option<(u32, &Overlay)> {
        self.client.as_ref()?.driver.protocol().overlay()
    }

    fn flush(&mut self, now: Time) {
        // A run of submissions ends with another input: now the batch may go out.
        if let Some(ClientIncarnation { driver, above, .. }) = &mut self.client {
            driver.round(now, above);
        }
    }

    fn rest(&mut self) {
        if let Some(client) = &mut self.client {
            client.above.flush();
        }
    }

    fn announce(&mut self) {
        self.bell.announce();
    }

    fn stay(&mut self) {
        self.bell.stay();
    }

    fn is_pressing(&self, now: Time) -> bool {
        self.client.as_ref().is_some_and(|client| client.driver.is_pressing(now))
    }

    fn sleep(&mut self, now: Time, at_most: Span) {
        let deadline = self.client.as_ref().and_then(|client| client.driver.deadline());
        let wake = deadline.unwrap_or(Time::NEVER).since(now);
        self.bell.sleep(wake.min(at_most));
    }
}

/// The layer above a client process: it delivers nothing and has no state.
struct ClientProcessUpper {
    cluster: ClusterShape,
    recorder: Option<HistoryRecorder>,
    log: ClientLog,
}

impl ClientProcessUpper {
    /// Records a multicast. It is in the file when this returns: the process may be killed as soon as the protocol has the
    /// message, and a replica that delivers it would then deliver a message that nobody cast.
    fn cast(&mut self, t: Time, p: Pid, seq: u64, dst: GroupSet) {
        if let Some(recorder) = &mut self.recorder {
            recorder.event(&TraceEvent::Cast { t, p, m: MsgId { sender: p, seq }, dst });
            recorder.flush();
        }
    }

    fn flush(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }
}

impl UpperLayer for ClientProcessUpper {
    fn deliver(&mut self, _: Time, _: Pid, _: Delivery, _: &[u8]) {}

    fn event(&mut self, now: Time, p: Pid, event: ProtocolEvent) {
        if let (ProtocolEvent::Part(m), Some(recorder)) = (event, &mut self.recorder) {
            recorder.event(&TraceEvent::Part { t: now, p, m });
        }
    }

    fn note(&mut self, _: Time, _: Pid, note: Note) {
        self.log.note(&self.cluster, note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multicast_is_in_the_file_before_the_protocol_has_it() {
        let dir = std::env::temp_dir().join(format!("amcast-leased-{}", std::process::id()));
        let cluster = ClusterShape::new(1, 1, 1).unwrap();
        let pid = cluster.client(0);
        let recorder = HistoryRecorder::begin(&dir, "c0", cluster, &[pid], clock::now()).unwrap();
        let log = ClientLog::default();
        let mut above = ClientProcessUpper { cluster, recorder: Some(recorder), log };
        above.cast(clock::now(), pid, 7, GroupSet::one(amcast_core::Gid(0)));
        // The recorder is not dropped, as that of a killed process is not.
        let text = std::fs::read_to_string(dir.join("c0.0.jsonl")).unwrap();
        assert!(text.ends_with("\"m\":\"c0:7\",\"dst\":[\"g0\"]}\n"), "{text}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn one_node_is_listened_to_until_it_is_silent_or_has_not_what_is_late() {
        let at = |ms: u64| Time::ZERO + Span::millis(1_000 + ms);
        let mut ear = ListenedNode::default();
        ear.hear(at(0), 2);
        ear.hear(at(1), 0);
        assert_eq!(ear.to, Some(2), "the first that answered");
        ear.is_late(at(9), at(0));
        assert_eq!(ear.to, Some(2), "it was heard lately");
        ear.is_late(at(10), at(0));
        assert_eq!(ear.to, None);
        ear.hear(at(19), 1);
        assert_eq!(ear.to, None, "others have what it has not sent");
        ear.hear(at(20), 1);
        assert_eq!(ear.to, Some(1));
        ear.hear(at(100), 1);
        ear.is_late(at(101), at(2));
        assert_eq!(ear.to, Some(1), "it answers others");
        ear.is_late(at(102), at(2));
        assert_eq!(ear.to, None, "but not this one");
    }
}
