//! A carrier's knowledge of each process of the cluster.
//!
//! A peer's file is mapped when it is first written to or read. Each access compares the peer's
//! `live` word in the directory with the incarnation that this carrier deals with: one load of a
//! line that hardly ever changes. If they differ the access is `Lost`, until the protocol has been
//! notified with `Fresh`: no write meant for the old memory reaches the new one.
//!
//! The files of partners are mapped before that, one in each round ([`MapAhead`]): a replica that begins to lead writes to
//! processes that it has never written to, and others wait for it then.
//!
//! The memory of a peer that ended is released at the next look, before it has started again: its new
//! life may need that very room.
//!
//! The protocol learns of every incarnation that appears while it runs, but for the first of all if
//! nothing was ever lost for want of it: to the protocol that one was always there.
//!
//! Of a process of another host the node that it lives in says the incarnation ([`crate::remote`]); the rest is the same.
//!
//! Where a peer's file cannot be mapped the same holds. Writes meanwhile are lost, so nothing that is
//! written later may appear there before the protocol knows of the gap (law 2): the peer counts as one that
//! is not known, mapping is tried again, and when it succeeds the protocol is notified with `Fresh`.

use crate::directory::Directory;
use crate::error::MemoryError;
use crate::layout::ProcessLayout;
use crate::remote::RemoteMemory;
use amcast_core::id::Pid;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long after a peer's file could not be mapped it is tried again: files, maps or memory may have
/// been short for a moment.
const MAP_AGAIN: Duration = Duration::from_millis(100);

/// One process of the cluster, as this carrier sees it.
#[derive(Debug, Default)]
struct MappedPeer {
    /// The incarnation this carrier deals with; 0 before there was one.
    known: u64,
    /// Whether something was lost before any incarnation was known: then the first one is news.
    owed: bool,
    /// When mapping failed the last time: it is tried again [`MAP_AGAIN`] later.
    failed: Option<Instant>,
    /// The file of an incarnation that could be mapped at last; in force once the protocol knows of it.
    ready: Option<(u64, Arc<ProcessLayout>)>,
    /// Whether its bell is to be rung after this batch.
    ring: bool,
    /// The file of the known incarnation, once it was needed.
    mapped: Option<Arc<ProcessLayout>>,
}

impl MappedPeer {
    /// Whether this incarnation is no news: the first, and nothing was lost before it.
    fn takes_silently(&self, live: u64) -> bool {
        live == 1 && self.known == 0 && !self.owed
    }
}

/// The incarnation in which a process may be written to; 0 for none.
fn live_of(directory: &Directory, pid: Pid) -> u64 {
    match directory.remote() {
        Some(remote) if remote.is_far(pid) => remote.live(pid),
        _ => directory.layout().live(pid),
    }
}

/// All processes of the cluster.
#[derive(Debug)]
pub(crate) struct MappedPeers {
    directory: Directory,
    me: Pid,
    peers: Vec<MappedPeer>,
    /// The counts of changes at the last look, of the directory and of other hosts.
    changes_seen: [u64; 2],
    /// The last failure with a peer, until it is asked for.
    fault: Option<MemoryError>,
    /// How often a file was mapped.
    maps: u64,
    /// How many peers are to be mapped again.
    unmapped: usize,
    ahead: MapAhead,
}

/// The files that are mapped before they are needed.
#[derive(Debug)]
pub(crate) struct MapAhead {
    partners: Vec<Pid>,
    /// Whether the pages of these files are entered into the page table.
    prefaults: bool,
    /// The partners that are to be mapped next.
    due: Vec<Pid>,
}

impl MapAhead {
    /// Of these processes.
    pub(crate) fn new(partners: Vec<Pid>, prefaults: bool) -> Self {
        Self { due: Vec::with_capacity(partners.len()), partners, prefaults }
    }
}

impl MappedPeers {
    /// `own` is this process's memory, which it may write like any other.
    pub(crate) fn new(
        (directory, me): (Directory, Pid),
        known: u64,
        own: Arc<ProcessLayout>,
        ahead: MapAhead,
    ) -> Self {
        let count = directory.layout().processes();
        let mut peers: Vec<_> = (0..count).map(|_| MappedPeer::default()).collect();
        for (index, peer) in peers.iter_mut().enumerate() {
            // A peer that runs already: this process has never written there.
            peer.known = live_of(&directory, Pid(index as u32));
        }
        peers[me.index()] = MappedPeer { known, mapped: Some(own), ..MappedPeer::default() };
        Self {
            directory,
            me,
            peers,
            changes_seen: [0; 2],
            fault: None,
            maps: 0,
            unmapped: 0,
            ahead,
        }
    }

    /// The memory of a process, if it lives in the incarnation this carrier deals with.
    #[inline]
    pub(crate) fn reach(&mut self, pid: Pid) -> Option<&ProcessLayout> {
        let peer = self.peers.get_mut(pid.index())?;
        let live = self.directory.layout().live(pid);
        if peer.known != live || peer.mapped.is_none() {
            self.touch(pid, live)?;
        }
        self.peers[pid.index()].mapped.as_deref()
    }

    /// The rare part of [`MappedPeers::reach`].
    #[cold]
    fn touch(&mut self, pid: Pid, live: u64) -> Option<()> {
        let peer = &mut self.peers[pid.index()];
        if peer.takes_silently(live) {
            peer.known = live;
        }
        if live == 0 || live != peer.known {
            peer.owed = true;
            return None;
        }
        self.maps += 1;
        match self.directory.open_peer(pid, live) {
            Ok(layout) => peer.mapped = Some(Arc::new(layout)),
            // It ended between the look at the directory and the opening.
            Err(e) if e.is_gone() => return None,
            Err(e) => {
                // Writes from here on are lost, and leave a gap: until the protocol knows of it, nothing may follow.
                (peer.known, peer.owed) = (0, true);
                peer.failed = Some(Instant::now());
                self.unmapped += 1;
                self.fault = Some(e);
                return None;
            }
        }
        Some(())
    }

    /// Maps a partner before it is written to or read.
    #[cold]
    fn map_ahead(&mut self, pid: Pid) {
        let (live, peer) = (self.directory.layout().live(pid), &mut self.peers[pid.index()]);
        let is_open = peer.mapped.is_some() || peer.failed.is_some();
        if is_open || live == 0 || live != peer.known {
            return;
        }
        self.maps += 1;
        // If it cannot be mapped nothing is lost yet: the first access finds that out, and says so.
        peer.mapped = self.directory.open_peer(pid, live).ok().map(Arc::new);
        if let Some(layout) = peer.mapped.as_ref().filter(|_| self.ahead.prefaults) {
            layout.touch_pages();
        }
    }

    /// Tries again to map those that could not be mapped, and puts those that now can into `fresh`.
    #[cold]
    fn map_again(&mut self, fresh: &mut Vec<(Pid, u64)>) {
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if peer.failed.is_none_or(|at| at.elapsed() < MAP_AGAIN) {
                continue;
            }
            let pid = Pid(index as u32);
            let live = self.directory.layout().live(pid);
            if live == 0 {
                // It ended: its next incarnation is announced as any other.
                peer.failed = None;
                self.unmapped -= 1;
                continue;
            }
            self.maps += 1;
            match self.directory.open_peer(pid, live) {
                Ok(layout) => {
                    peer.ready = Some((live, Arc::new(layout)));
                    peer.failed = None;
                    self.unmapped -= 1;
                    fresh.push((pid, live));
                }
                // Said once: trying again mostly fails for the same reason.
                Err(_) => peer.failed = Some(Instant::now()),
            }
        }
    }

    /// The incarnation of a process of another host that this carrier deals with, if it lives in it.
    pub(crate) fn reach_far(&mut self, pid: Pid) -> Option<u64> {
        let live = live_of(&self.directory, pid);
        let peer = self.peers.get_mut(pid.index())?;
        if peer.takes_silently(live) {
            peer.known = live;
        }
        if live == 0 || live != peer.known {
            peer.owed = true;
            return None;
        }
        Some(live)
    }

    /// The memory of a process reached before in this batch.
    #[inline]
    pub(crate) fn reached(&self, pid: Pid) -> Option<&ProcessLayout> {
        let peer = &self.peers[pid.index()];
        let still = self.directory.layout().live(pid) == peer.known;
        peer.mapped.as_deref().filter(|_| still)
    }

    /// Notes that a process's bell is to be rung; says whether that is news.
    #[inline]
    pub(crate) fn mark_ring(&mut self, pid: Pid) -> bool {
        let peer = &mut self.peers[pid.index()];
        !core::mem::replace(&mut peer.ring, true)
    }

    /// Takes the note back.
    pub(crate) fn unmark_ring(&mut self, pid: Pid) {
        self.peers[pid.index()].ring = false;
    }

    /// Looks for processes that started anew, and puts them and their incarnations into `fresh`.
    /// One load if nothing changed.
    #[inline]
    pub(crate) fn look(&mut self, fresh: &mut Vec<(Pid, u64)>) {
        // Pairs with the release increment in `DirectoryLayout::publish`.
        let here = self.directory.layout().changes().load(core::sync::atomic::Ordering::Acquire);
        let changes = [here, self.directory.remote().map_or(0, RemoteMemory::changes)];
        if self.unmapped > 0 {
            self.map_again(fresh);
        }
        if changes != self.changes_seen {
            self.look_at_all(changes, fresh);
        } else if let Some(pid) = self.ahead.due.pop() {
            self.map_ahead(pid);
        }
    }

    /// The rare part of [`MappedPeers::look`].
    #[cold]
    fn look_at_all(&mut self, changes: [u64; 2], fresh: &mut Vec<(Pid, u64)>) {
        self.changes_seen = changes;
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let pid = Pid(index as u32);
            let live = live_of(&self.directory, pid);
            // A peer that cannot be mapped is announced when it can be.
            if pid == self.me || live == peer.known || peer.failed.is_some() {
                continue;
            }
            // The incarnation that this carrier deals with has ended, and its number never comes again: every access to
            // its memory is lost from here on. As long as anybody maps the file its pages are taken,
            // and the next life may find no room.
            peer.mapped = None;
            if live == 0 {
                continue;
            }
            if peer.takes_silently(live) {
                peer.known = live;
            } else if !fresh.contains(&(pid, live)) {
                fresh.push((pid, live));
            }
        }
        let is_far = |pid| self.directory.remote().is_some_and(|remote| remote.is_far(pid));
        let is_unmapped = |pid: &Pid| self.peers[pid.index()].mapped.is_none() && !is_far(*pid);
        let MapAhead { partners, due, .. } = &mut self.ahead;
        due.clear();
        due.extend(partners.iter().filter(|pid| is_unmapped(pid)));
    }

    /// From here on this carrier deals with that incarnation: the protocol learns of it now.
    pub(crate) fn adopt(&mut self, pid: Pid, incarnation: u64) {
        let peer = &mut self.peers[pid.index()];
        if peer.failed.is_some() {
            self.unmapped -= 1;
        }
        let ready = peer.ready.take().filter(|(of, _)| *of == incarnation);
        *peer = MappedPeer {
            known: incarnation,
            ring: peer.ring,
            mapped: ready.map(|(_, layout)| layout),
            ..MappedPeer::default()
        };
    }

    /// The incarnation that this carrier deals with; 0 before there was one.
    pub(crate) fn known(&self, pid: Pid) -> u64 {
        self.peers[pid.index()].known
    }

    /// Keeps an error until it is asked for; a later one takes its place.
    #[cold]
    pub(crate) fn fail(&mut self, fault: MemoryError) {
        self.fault = Some(fault);
    }

    /// Whether there is an error that was not asked for.
    #[inline]
    pub(crate) const fn has_fault(&self) -> bool {
        self.fault.is_some()
    }

    /// Takes the last error.
    #[cold]
    pub(crate) fn take_fault(&mut self) -> Option<MemoryError> {
        self.fault.take()
    }

    /// How often a file was mapped.
    pub(crate) fn maps(&self) -> u64 {
        self.maps
    }
}
