//! The replicas that a node hosts, as its loop drives them: over memory or the network.

use crate::config::{HostPlacement, node_name};
use crate::control::{NetworkStatus, PeerStatus};
use crate::log_ends::LogEnds;
use crate::memory_driver::{MemoryDriver, UpperLayer};
use crate::memory_links::MemoryLinks;
use crate::node::NodeError;
use crate::overlay_changes::OverlayStatus;
use crate::peer_refusals::NodeRefusal;
use crate::peer_registry::Dismissal;
use crate::replica_log::LogVolume;
use crate::resources::LogStatus;
use amcast_core::step::{ProtocolStatus, Ticket};
use amcast_core::{Gid, GroupSet, Pid, Span, Submission, Time};
use amcast_smr::application::WakeHandle;

/// The replicas of a node, one of each group, by the number of their group.
pub(crate) trait Replicas {
    /// Which process the replica of `group` is.
    fn pid(&self, group: Gid) -> Pid;

    /// Which life of the node this is: 0 for the first.
    fn life(&self) -> u32;

    /// Gives each its first inputs. Once, before anything else.
    ///
    /// # Errors
    /// When what one keeps on disk cannot be used, or can be at the next start only.
    fn begin(&mut self, now: Time, above: &mut dyn UpperLayer) -> Result<(), NodeError>;

    /// One round: what the medium says. Whether there was anything.
    fn round(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool;

    /// Ends a round: does what is due, and what was asked of the medium goes out. Whether anything
    /// was due.
    fn flush(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool;

    /// How many messages of `bytes` bytes to `dst` the node multicasts now; none where clients have
    /// processes of their own.
    fn room(&self, dst: GroupSet, bytes: usize) -> usize;

    /// Only these nodes, a bit each, delay multicasts when they are slow; all by default.
    fn wait_for(&mut self, _nodes: Option<u32>) {}

    /// Has the replica of the lowest group among the destinations multicast. There was room.
    fn submit(&mut self, now: Time, submission: Submission<'_>, above: &mut dyn UpperLayer);

    /// Sets the replica of `group` a barrier, where the protocol has any.
    fn set_barrier(
        &mut self,
        _now: Time,
        _group: Gid,
        _ticket: Ticket,
        _above: &mut dyn UpperLayer,
    ) {
    }

    /// The application has applied everything of `group` up to `position`.
    fn applied(&mut self, now: Time, group: Gid, position: u64, above: &mut dyn UpperLayer);

    /// Whether so much waits for the application that it takes in no deliveries for now. Where members are fixed they
    /// learn from [`applied`](Self::applied) that they must wait.
    fn full(&mut self, _now: Time, _is_full: bool, _above: &mut dyn UpperLayer) {}

    /// The application has a state in force with everything of each group up to its position.
    fn installed(&mut self, now: Time, positions: &[u64], above: &mut dyn UpperLayer);

    /// The application needs a state.
    fn unfit(&mut self, now: Time, above: &mut dyn UpperLayer);

    /// The node is about to stop: replicas whose groups are dynamic leave them.
    fn leave(&mut self, _now: Time, _above: &mut dyn UpperLayer) {}

    /// The application's state with everything of each group up to its position survives the end of
    /// the machine.
    fn checkpointed(&mut self, _now: Time, _positions: &[u64], _above: &mut dyn UpperLayer) {}

    /// The volume of their logs since the node started, with the records found in them; zero where
    /// they have none.
    fn logged(&self) -> LogVolume {
        LogVolume::default()
    }

    /// Since when a log has had no room, if that has lasted for so long that other nodes serve their clients sooner.
    fn log_stuck_since(&self) -> Option<Time> {
        None
    }

    /// The status of their logs since the node started; none where they have none.
    fn log_status(&self) -> Option<LogStatus> {
        None
    }

    /// How far their logs are synced.
    fn log_ends(&self) -> LogEnds {
        LogEnds::default()
    }

    /// The nodes that this one was not connected to yet, by rank; none where there are no connections.
    fn not_met(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Why they cannot continue, if they cannot.
    fn failed(&self) -> Option<String> {
        None
    }

    /// The status of the replica of `group`, and whether it is a working member.
    fn status(&self, group: Gid) -> (ProtocolStatus, bool);

    /// The tree of the groups that the replica of `group` goes by, where that can be changed.
    fn overlay(&self, _group: Gid) -> Option<OverlayStatus> {
        None
    }

    /// Why the node does nothing although it is a working member, for people.
    fn stopped(&self, _now: Time) -> Option<String> {
        None
    }

    /// That the node does not talk to another one, since something else decides what that does; for people.
    fn differs(&self) -> Option<String> {
        None
    }

    /// The connections to other nodes, if there are any.
    fn network(&self) -> Option<NetworkStatus> {
        None
    }

    /// The status of the peers, by rank, if they have connections.
    fn peers(&self) -> Vec<PeerStatus> {
        Vec::new()
    }

    /// That another node knows a later life or disk of this one, and refuses it.
    fn dismissal(&self) -> Option<Dismissal> {
        None
    }

    /// That so many peers refuse this node that it has no majority, where members have one. Quick where none does.
    fn refusal(&self) -> Option<NodeRefusal> {
        None
    }

    /// Why the node must begin a new incarnation, if it must: writes between it and others were dropped, and these have a majority.
    fn must_begin_anew(&self) -> Option<String> {
        None
    }

    /// Nodes are at these places from now on, in order of rank.
    fn move_to(&mut self, _places: &[HostPlacement]) {}

    /// The node of this rank is reported dead. That may be wrong.
    fn doubt(&mut self, _now: Time, _rank: usize, _above: &mut dyn UpperLayer) {}

    /// Wakes the loop, from any thread.
    fn wake(&self) -> WakeHandle;

    /// The loop is about to sleep; it looks once more at everything before it does.
    fn announce(&mut self);

    /// There was work after all.
    fn stay(&mut self);

    /// Sleeps until there may be something to do, or for `at_most`.
    fn sleep(&mut self, now: Time, at_most: Span);
}

/// Replicas over memory: a driver each, with one doorbell, and the connections to other hosts, if there are any.
pub(crate) struct MemoryDrivers(pub(crate) Vec<MemoryDriver>, pub(crate) Option<MemoryLinks>);

impl Replicas for MemoryDrivers {
    fn pid(&self, group: Gid) -> Pid {
        self.0[group.index()].pid()
    }

    fn life(&self) -> u32 {
        self.0.iter().map(MemoryDriver::incarnation).max().unwrap_or(0)
    }

    fn begin(&mut self, now: Time, above: &mut dyn UpperLayer) -> Result<(), NodeError> {
        self.0.iter_mut().for_each(|seat| seat.begin(now, above));
        Ok(())
    }

    fn round(&mut self, now: Time, above: &mut dyn UpperLayer) -> bool {
        let mut busy = false;
        for seat in &mut self.0 {
            busy |= seat.round(now, above);
        }
        if let Some(links) = &self.1 {
            let (mut is_fit, mut lagging) = (true, 0);
            for seat in &self.0 {
                is_fit &= seat.protocol().fit();
                // A replica's rank is the one of its node.
                lagging |= seat.protocol().lagging();
            }
            links.set_fit(is_fit, lagging);
        }
        busy
    }

    fn flush(&mut self, _: Time, _: &mut dyn UpperLayer) -> bool {
        // A driver's round has done that.
        false
    }

    fn room(&self, _dst: GroupSet, _bytes: usize) -> usize {
        0
    }

    fn submit(&mut self, _: Time, _: Submission<'_>, _: &mut dyn UpperLayer) {
        unreachable!("it never has room")
    }

    fn applied(&mut self, now: Time, group: Gid, position: u64, above: &mut dyn UpperLayer) {
        self.0[group.index()].applied(now, position, above);
    }

    fn installed(&mut self, now: Time, positions: &[u64], above: &mut dyn UpperLayer) {
        for (seat, &position) in self.0.iter_mut().zip(positions) {
            seat.installed(now, position, above);
        }
    }

    fn unfit(&mut self, now: Time, above: &mut dyn UpperLayer) {
        self.0.iter_mut().for_each(|seat| seat.unfit(now, above));
    }

    fn status(&self, group: Gid) -> (ProtocolStatus, bool) {
        let protocol = self.0[group.index()].protocol();
        (protocol.status(), protocol.fit())
    }

    fn overlay(&self, group: Gid) -> Option<OverlayStatus> {
        self.0[group.index()].protocol().overlay().map(OverlayStatus::of)
    }

    fn not_met(&self) -> Vec<usize> {
        self.1.as_ref().map(MemoryLinks::not_met).unwrap_or_default()
    }

    fn must_begin_anew(&self) -> Option<String> {
        self.1.as_ref().and_then(MemoryLinks::must_begin_anew)
    }

    fn differs(&self) -> Option<String> {
        self.1.as_ref().and_then(MemoryLinks::differs)
    }

    fn network(&self) -> Option<NetworkStatus> {
        self.1.as_ref().and_then(MemoryLinks::network)
    }

    fn peers(&self) -> Vec<PeerStatus> {
        self.1.as_ref().map(MemoryLinks::peers).unwrap_or_default()
    }

    fn dismissal(&self) -> Option<Dismissal> {
        self.1.as_ref().and_then(MemoryLinks::dismissal)
    }

    fn move_to(&mut self, places: &[HostPlacement]) {
        if let Some(links) = &mut self.1 {
            links.move_to(places);
        }
    }

    fn wake(&self) -> WakeHandle {
        let bell = self.0[0].bell().clone();
        std::sync::Arc::new(move || _ = bell.ring())
    }

    fn announce(&mut self) {
        self.0[0].bell().announce();
    }

    fn stay(&mut self) {
        self.0[0].bell().stay();
    }

    fn sleep(&mut self, now: Time, at_most: Span) {
        if self.0.iter().any(|seat| seat.is_pressing(now)) {
            return self.stay();
        }
        let wake = self.0.iter().filter_map(MemoryDriver::deadline).min().unwrap_or(Time::NEVER);
        self.0[0].bell().sleep(wake.since(now).min(at_most));
    }
}

/// That a replica has not its place in its group back, and the nodes that this one has not reached since it started: without them
/// too few may be left to give it back.
pub(crate) fn waits_for_place(replica: &str, not_met: &[usize]) -> String {
    let mut why = format!("{replica} has not its place in the group back");
    if !not_met.is_empty() {
        let names: Vec<_> = not_met.iter().map(|&rank| node_name(rank)).collect();
        why += &format!(
            ": this node has not reached {} since it started; look at the network between them, a majority of the other nodes \
             must be reached",
            names.join(", ")
        );
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_without_its_place_names_the_nodes_that_were_not_reached() {
        assert_eq!(waits_for_place("g0/r1", &[]), "g0/r1 has not its place in the group back");
        let why = waits_for_place("g0/r1", &[0, 2]);
        assert!(why.contains("has not reached n0, n2 since it started"), "{why}");
    }
}
