//! The log lines of a process about its replicas' events and notes. No action of the process
//! depends on this.

use amcast_core::step::Note;
use amcast_core::{ClusterShape, Pid, ProtocolEvent};

/// Logs what the replica `p` reports.
pub(crate) fn log_event(cluster: &ClusterShape, p: Pid, event: ProtocolEvent) {
    let name = cluster.name(p);
    match event {
        ProtocolEvent::Part(_) => {}
        ProtocolEvent::Leads(epoch) => tracing::info!("{name} leads its group in epoch {epoch}"),
        ProtocolEvent::Lagging => tracing::info!("{name} is lagging, and requests a state"),
        ProtocolEvent::NeedsState { position, .. } => {
            tracing::info!("{name} continues from {position}, and needs a state up to there");
        }
        ProtocolEvent::CaughtUp(position) => tracing::info!("{name} is back, at {position}"),
        ProtocolEvent::StorageRecovered => {
            tracing::info!("{name} has its earlier promises on its disk again, and votes");
        }
        ProtocolEvent::ViewEntered { number, members, .. } => {
            tracing::info!("{name} enters view {number} of {} members", members.count_ones());
        }
        ProtocolEvent::Merged { view, from, members } => {
            let members = members.count_ones();
            tracing::info!("{name} merges in view {view} with {members} members of view {from}");
        }
        ProtocolEvent::Excluded(view) => {
            tracing::warn!("{name} is excluded since view {view}, and joins again");
        }
        ProtocolEvent::Left(view) => {
            tracing::info!("{name} has left its group, which continues in view {view}");
        }
        ProtocolEvent::MayStop(view) => {
            tracing::info!("{name} stops, and is needed by its group in view {view}");
        }
    }
}

/// Logs what the replica `p` notes.
pub(crate) fn log_note(cluster: &ClusterShape, p: Pid, note: Note) {
    let name = cluster.name(p);
    match note {
        Note::Demoted(epoch) => tracing::info!("{name} no longer leads: epoch {epoch}"),
        Note::LeftBehind(peer) => {
            tracing::info!("{name} no longer waits for {}", cluster.name(peer));
        }
        Note::TooFull => {
            tracing::warn!(
                "{name} asks the others to continue without it: its application took in too little for full_us"
            );
        }
        Note::Malformed(peer, what) => {
            tracing::warn!("{name}: from {}: {what}", cluster.name(peer));
        }
        Note::Mark(mark) => tracing::trace!("{name}: {mark}"),
    }
}

/// Logs what a client notes, and not every time: a peer that sends nonsense must not fill the log.
#[derive(Debug, Default)]
pub(crate) struct ClientLog {
    /// How often a peer's input made no sense.
    malformed: u64,
}

impl ClientLog {
    pub(crate) fn note(&mut self, cluster: &ClusterShape, note: Note) {
        if let Note::Malformed(peer, what) = note {
            self.malformed += 1;
            if self.malformed.is_power_of_two() {
                let (name, n) = (cluster.name(peer), self.malformed);
                tracing::warn!("{name}: malformed input, {what}; {n} from its peers so far");
            }
        }
    }
}
