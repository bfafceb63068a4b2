//! How a node and the others stand to each other: what it knows of their lives and disks for good, whom
//! it refuses, and who refuses it.
//!
//! A disk that was replaced has promised less than the later one. A peer that knew the later one
//! remembers it, in a file that outlasts the node, and does not admit the other one any more
//! ([`amcast_net::PeerIdentity`]). So a node that is refused learns that it lived before:
//!
//! - on a disk on which it never had its place yet, it begins anew, as one that lost what it
//!   promised, in a later life than any that is known;
//! - on any other the disk is the wrong one, or a copy: the node ends, and starts no more from it.

mod records;

use crate::cluster_dir::{ClusterDir, begin_anew_words, life_name};
use crate::config::node_name;
use crate::control::PeerStatus;
use crate::disk::DiskRecord;
use crate::incarnation::ProcessName;
use crate::peer_refusals::{PeerRefusals, begin_later_words};
use crate::skips::SKIPPED;
use crate::system::refuses_file;
use amcast_core::Pid;
use amcast_net::wire::ConnectionRefusal;
use amcast_net::{NetDiagnostic, PeerIdentity};
use records::{BackgroundWriter, PeerRecord, PeerRecords, lines, write_lines};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The interval of reports that one node is refused, or refuses, for one reason: at first, and when
/// that has continued for long. Any process that reaches the port can cause such a report, and must
/// not fill the log.
const SAY_EVERY: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// The printed length of a value that is not the same for all nodes.
const VALUE_CHARS_MAX: usize = 200;

/// That another node refuses this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dismissal {
    /// Which one.
    pub(crate) by: usize,
    /// Why.
    pub(crate) why: ConnectionRefusal,
    /// The latest life of this one that it knows.
    pub(crate) life: u32,
}

/// A node's records of its peers.
#[derive(Debug, Default)]
pub(crate) struct PeerRegistry {
    rank: usize,
    /// Where what is known is written; nowhere where nodes keep nothing that outlasts them.
    path: Option<PathBuf>,
    /// Writes it where the loop need not wait for that.
    writer: BackgroundWriter,
    /// The number of this node's disk; 0 if it keeps nothing.
    pub(crate) disk: u64,
    /// Whether this node began on it by asking the others what it had promised.
    pub(crate) anew: bool,
    /// The number of this start of it; 0 if it has none.
    pub(crate) start: u64,
    /// The known identity of each node, by rank.
    pub(crate) known: Vec<PeerIdentity>,
    /// The settings that decide the nodes' behaviour, in the order in which they compare them:
    /// names, and values here.
    pub(crate) decides: Vec<(String, String)>,
    /// Of whom an earlier life or disk is refused, by rank, and why.
    refused: BTreeMap<usize, String>,
    /// The peers of which an earlier life or disk was refused since they were met last, in this start
    /// or an earlier one, by rank.
    refused_since_met: BTreeSet<usize>,
    /// For whom something else decides what it does, by rank: what it is, and what to do.
    differs: BTreeMap<usize, String>,
    /// That a process began the handshake and did not prove that it knows the secret, since a peer was met last.
    unproved: Option<String>,
    /// The peers that multicast of this node does not reach, by rank, and the remedy.
    no_multicast: BTreeMap<usize, String>,
    /// The refusal of this node by a peer.
    dismissal: Option<Dismissal>,
    /// The peers that refuse this node, since they know another start of it.
    pub(crate) refusals: PeerRefusals,
    /// The peers that were met in this incarnation. All of them skip the same messages.
    pub(crate) met: BTreeSet<usize>,
    /// The last reports, and their times.
    said: BTreeMap<RefusalSubject, RepeatState>,
    /// Why it cannot continue.
    failed: Option<String>,
}

/// The key by which refusals are reported together: their node, none if it did not identify itself;
/// the reason; and whether this node is the refused one. Other reports of the same kind have
/// numbers that no reason has.
type RefusalSubject = (Option<usize>, u8, bool);

/// A report that any process that reaches the port can cause.
const STRANGER: RefusalSubject = (None, u8::MAX, false);
const SHORT: RefusalSubject = (None, u8::MAX - 1, false);
const UNDELIVERABLE: RefusalSubject = (None, u8::MAX - 2, false);
const UNPROVED: RefusalSubject = (None, u8::MAX - 3, false);

/// The time of the last report, and the number of suppressed ones since.
#[derive(Debug)]
struct RepeatState {
    at: Instant,
    /// The pause before the next report.
    every: Duration,
    kept_back: u64,
}

/// Whether a node is refused since another life or disk has taken its place.
fn is_outdated(why: ConnectionRefusal) -> bool {
    matches!(why, ConnectionRefusal::Old | ConnectionRefusal::Replaced)
}

impl Dismissal {
    /// Why the node `rank` of so many, which keeps its records in the directory `dir`, cannot
    /// continue from there, and the remedy.
    pub(crate) fn describe(&self, (rank, nodes): (usize, usize), dir: &Path) -> String {
        let (by, name) = (node_name(self.by), node_name(rank));
        let others = (0..nodes).filter(|other| *other != rank);
        let others: Vec<_> = others.map(|other| forget_words(None, other, rank)).collect();
        format!(
            "{by} refuses {name}: it knows life {} of it, on another disk or started from another copy of this one, and \
             there it promised more than is in {}. Let it run from there, or {}; where another \
             node is refused, too, wait until the first one is ready before the files of the second one are removed. \
             If there {name} never answered anybody, as where the disks of two hosts were exchanged and put \
             back, this is the right disk: end the other nodes, say {} where they run, with their cluster's file as \
             FILE, and here {}",
            self.life,
            dir.display(),
            begin_anew_words(dir, &name),
            others.join(", "),
            forget_words(Some(dir), rank, rank)
        )
    }
}

/// The command that has the node `rank` forget the node `of`, where its directory is `dir` if that is known.
fn forget_words(dir: Option<&Path>, rank: usize, of: usize) -> String {
    let file = dir.map(|dir| dir.join("cluster.toml")).filter(|file| file.exists());
    let file = file.map_or_else(|| "FILE".to_string(), |file| format!("'{}'", file.display()));
    format!("`amcast node forget {} --config {file} --name {}`", node_name(of), node_name(rank))
}

/// Where a node remembers the others.
pub(crate) fn peers_name(rank: usize) -> String {
    format!("{}.peers", node_name(rank))
}

/// The number by which a disk is known that has this word: FNV-1a, and never 0.
fn number_of(word: &str) -> u64 {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    word.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix).max(1)
}

/// The number of the disk on which the node `rank` keeps what is in `data`; 0 where the disk has none.
pub(crate) fn disk_number(data: &Path, rank: usize) -> u64 {
    let home = data.parent().map(ClusterDir::of_directory);
    let word = home.and_then(|home| home.disk_word(rank).ok().flatten());
    word.map_or(0, |word| number_of(&word))
}

/// The result of a request to forget a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForgetOutcome {
    /// It is forgotten.
    Forgotten,
    /// There is nothing to forget: the other node was never met, or this one was never refused.
    NothingKnown,
    /// Nothing is forgotten until the request is confirmed.
    Unconfirmed {
        /// Whether an earlier life or disk of the other node was refused since it was met last; of the node
        /// itself, whether others refused it.
        has_refused: bool,
    },
}

/// Has the node `rank`, whose directory is `dir`, forget its records of the node `of` for good: the lives
/// and disks that it met, or, of itself, that others refused it. It forgets nothing unless that is
/// `confirmed`: afterwards an earlier disk is admitted, which promised less.
///
/// # Errors
/// When the node runs, or its files cannot be read or written; the sentence says what to do.
pub(crate) fn forget(
    dir: &Path,
    rank: usize,
    of: usize,
    confirmed: bool,
) -> Result<ForgetOutcome, String> {
    let life = dir.join(life_name(rank));
    if !life.exists() {
        let (node, dir) = (node_name(rank), dir.display());
        return Err(format!("{node} never ran in {dir}: there is nothing to forget"));
    }
    // Held until it is done, so that no start reads what is about to change.
    let name = ProcessName::take(&life).map_err(|e| refuses_file(&life, &e))?;
    let _name = name.ok_or_else(|| format!("{} runs: end it first", node_name(rank)))?;
    if rank == of {
        let disk = DiskRecord::of(dir, rank);
        if disk.was_refused() && !confirmed {
            return Ok(ForgetOutcome::Unconfirmed { has_refused: true });
        }
        return Ok(match disk.forget_refusal()? {
            true => ForgetOutcome::Forgotten,
            false => ForgetOutcome::NothingKnown,
        });
    }
    let path = dir.join(peers_name(rank));
    let mut lines = lines(&path).map_err(|e| refuses_file(&path, &e))?;
    match lines.remove(&node_name(of)).filter(|line| !line.is_empty()) {
        None => return Ok(ForgetOutcome::NothingKnown),
        Some(line) if !confirmed => {
            return Ok(ForgetOutcome::Unconfirmed { has_refused: line.refused });
        }
        Some(_) => {}
    }
    write_lines(&path, &lines).map_err(|e| refuses_file(&path, &e))?;
    Ok(ForgetOutcome::Forgotten)
}

impl PeerRegistry {
    /// Of a node that keeps nothing, in a cluster of so many.
    pub(crate) fn fleeting(nodes: usize) -> Self {
        Self { known: vec![PeerIdentity::default(); nodes], ..Self::default() }
    }

    /// Of the node `rank`, whose disk has this word, with what its earlier lives wrote down in the
    /// directory `dir`.
    ///
    /// # Errors
    /// When that cannot be read.
    pub(crate) fn open(
        (dir, word): (&Path, &str),
        (rank, nodes): (usize, usize),
    ) -> io::Result<Self> {
        let path = dir.join(peers_name(rank));
        let mut known = vec![PeerIdentity::default(); nodes];
        let lines = lines(&path)?;
        let mut refused_since_met = BTreeSet::new();
        for (of, known) in known.iter_mut().enumerate() {
            if let Some(line) = lines.get(&node_name(of)) {
                let PeerRecord { life, start, disk, ref replaced, refused } = *line;
                refused_since_met.extend(refused.then_some(of));
                *known = PeerIdentity { life, start, disk, replaced: replaced.clone() };
            }
        }
        let (path, disk) = (Some(path), number_of(word));
        Ok(Self { rank, path, disk, known, refused_since_met, ..Self::default() })
    }

    /// A node is connected. Its new disk is on this node's disk when this returns true; false if it could not be
    /// written: then this node must not talk to it. Another life of the same disk is written without waiting for it.
    pub(crate) fn meets(&mut self, rank: usize, now: &PeerIdentity) -> bool {
        self.refused.remove(&rank);
        self.differs.remove(&rank);
        self.unproved = None;
        self.dismissal.take_if(|dismissal| dismissal.by == rank);
        let was_refused = self.refused_since_met.remove(&rank);
        if self.known[rank] == *now {
            if was_refused {
                self.write_behind();
            }
            return true;
        }
        let before = std::mem::replace(&mut self.known[rank], now.clone());
        let is_other = before.disk != 0 && before.disk != now.disk;
        if is_other {
            tracing::warn!(
                "{} has begun on another disk: what is of the one before is refused from now on",
                node_name(rank)
            );
        }
        if before.life.is_some() && before.disk == now.disk && before.replaced == now.replaced {
            // Where it does not come to the disk, the next start may let in one of the disk's earlier lives, and no disk
            // that it should not. Each restart of a peer comes here: the loop must not wait.
            self.write_behind();
            return true;
        }
        match self.write() {
            Ok(()) => true,
            // The disk has a number now, and had none before: so much may be known only until this node ends.
            Err(e) if !is_other && before.life.is_some() => {
                tracing::warn!("which life of {} was met is not on disk: {e}", node_name(rank));
                true
            }
            Err(e) => {
                self.failed = Some(e.to_string());
                false
            }
        }
    }

    /// Writes the records; they are on the disk when this returns.
    fn write(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        // Older ones that are being written must not replace these.
        self.writer.wait();
        let written = write_lines(path, &self.records());
        written.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }

    /// Has the records written, without waiting for that. A failure is in the log.
    fn write_behind(&mut self) {
        let records = self.records();
        if let Some(path) = &self.path {
            self.writer.write(path, records);
        }
    }

    fn records(&self) -> PeerRecords {
        let record = |rank: usize, known: &PeerIdentity| {
            let PeerIdentity { life, start, disk, replaced } = known.clone();
            let refused = self.refused_since_met.contains(&rank);
            PeerRecord { life, start, disk, replaced, refused }
        };
        let others = self.known.iter().enumerate().filter(|(rank, _)| *rank != self.rank);
        others.map(|(rank, known)| (node_name(rank), record(rank, known))).collect()
    }

    /// The carrier has something to say.
    pub(crate) fn hear(&mut self, remark: NetDiagnostic) {
        let (matter, text) = match remark {
            NetDiagnostic::Refused { pid, address, why } => {
                // A node of another cluster that connects here by mistake is none of ours.
                let rank = pid.map(Pid::index).filter(|_| why != ConnectionRefusal::Cluster);
                let rank = rank.filter(|rank| *rank < self.known.len());
                let who = rank.map_or_else(|| "an unknown process".to_string(), node_name);
                let who = format!("{who} at {address}");
                let text = format!("{who} is refused: {}", self.refused_words(&who, rank, why));
                self.note(rank, why, &text);
                if let Some(rank) = rank.filter(|_| is_outdated(why)) {
                    self.refused.insert(rank, text.clone());
                    if self.refused_since_met.insert(rank) {
                        // For the question of `amcast node forget`: a failure costs a warning there, and no safety.
                        self.write_behind();
                    }
                }
                ((rank, why.number(), false), text)
            }
            NetDiagnostic::RefusedBy { pid, address, why, life } => {
                if is_outdated(why) {
                    self.refusals.hear(pid.index(), life, Instant::now());
                    self.dismissal = Some(Dismissal { by: pid.index(), why, life });
                }
                let by = node_name(pid.index());
                let is_known = why == ConnectionRefusal::Old && self.path.is_none();
                let known = || format!("another start of it is known, in life {life}");
                let why_so = if is_known { known() } else { self.refusal_reason(why) };
                let text = format!("{by} at {address} refuses this node: {why_so}");
                self.note(Some(pid.index()), why, &text);
                ((Some(pid.index()), why.number(), true), text)
            }
            NetDiagnostic::NoMulticast { pid, address, group } => {
                let text = format!(
                    "multicast to {group} does not reach {} at {address}, which gets each datagram by \
                     itself; {}",
                    node_name(pid.index()),
                    NetDiagnostic::NO_MULTICAST_ADVICE
                );
                tracing::warn!("{text}");
                self.no_multicast.insert(pid.index(), text);
                return;
            }
            NetDiagnostic::MulticastAgain { pid, group } => {
                self.no_multicast.remove(&pid.index());
                let name = node_name(pid.index());
                return tracing::info!("multicast to {group} reaches {name} again");
            }
            ref short @ NetDiagnostic::Short { .. } => (SHORT, short.to_string()),
            ref remark @ NetDiagnostic::Undeliverable { .. } => (UNDELIVERABLE, remark.to_string()),
            ref stranger @ NetDiagnostic::Stranger { began, .. } => {
                let text = stranger.to_string();
                if began {
                    self.unproved = Some(text.clone());
                }
                (if began { UNPROVED } else { STRANGER }, text)
            }
            // A peer that refuses this node and dials it is connected for a moment each time.
            NetDiagnostic::Up { pid, .. } | NetDiagnostic::Down { pid, .. }
                if self.refusals.counts(pid.index(), Instant::now()) =>
            {
                return tracing::debug!("{remark}");
            }
            other => return tracing::info!("{other}"),
        };
        if let Some(line) = self.line(matter, text, Instant::now()) {
            tracing::warn!("{line}");
        }
    }

    /// Why the process `who`, which is the node `rank` if that is known, is refused, and the remedy.
    fn refused_words(&self, who: &str, rank: Option<usize>, why: ConnectionRefusal) -> String {
        if let Some((rank, life)) = rank.and_then(|rank| self.fleeting_life(rank, why)) {
            let (name, file) = (node_name(rank), life_name(rank));
            return format!(
                "another start of it is known, in life {life}. Another process of {name} runs, or {file} in its \
                 directory, which counts its lives, was lost. {}",
                begin_later_words(&name, life, &file)
            );
        }
        let told = self.refusal_reason(why);
        let Some(rank) = rank.filter(|_| is_outdated(why)) else { return told };
        let dir = self.path.as_deref().and_then(Path::parent);
        let forget = forget_words(dir, self.rank, rank);
        format!(
            "{told}. If the one that is known here never answered anybody, {who} is the right one: end this node \
             and say {forget}"
        )
    }

    /// The latest known incarnation of the node `rank`, if that is why it is refused and nodes keep no data.
    fn fleeting_life(&self, rank: usize, why: ConnectionRefusal) -> Option<(usize, u32)> {
        let is_old = self.path.is_none() && why == ConnectionRefusal::Old;
        let life = self.known.get(rank).filter(|_| is_old)?.life?;
        Some((rank, life))
    }

    /// Why a node is refused, with what this one knows of it.
    fn refusal_reason(&self, why: ConnectionRefusal) -> String {
        let ConnectionRefusal::Decides(at) = why else { return why.to_string() };
        let Some((name, value)) = self.decides.get(usize::from(at)) else { return why.to_string() };
        let value: String = value.chars().take(VALUE_CHARS_MAX).collect();
        if name == SKIPPED {
            return format!(
                "the two have not decided to skip the same messages, each at the same place, and no replica may execute \
                 what another one skips: {} skips {value}. See `amcast log-file skip --list` on each host, and give all nodes the same \
                 decisions",
                node_name(self.rank)
            );
        }
        format!(
            "their cluster files differ in {name}, which is {value} in the one of this node, and its replicas would \
             come to another state; give all nodes the same file (`amcast config check FILE` on each host prints \
             what is compared)"
        )
    }

    /// Takes note of a node with another secret, or for which something else decides what it does.
    fn note(&mut self, rank: Option<usize>, why: ConnectionRefusal, text: &str) {
        if let (Some(rank), ConnectionRefusal::Decides(_) | ConnectionRefusal::Secret) = (rank, why)
        {
            self.differs.insert(rank, text.to_string());
        }
    }

    /// That this node does not talk to another one, which has another secret or does something else by its settings.
    /// A node that the others dial sees no more of another secret than a handshake that ends.
    pub(crate) fn differs(&self) -> Option<&String> {
        self.differs.values().next().or(self.unproved.as_ref())
    }

    /// The line to be logged, if it is time for one, with the number of suppressed ones before it.
    fn line(&mut self, matter: RefusalSubject, text: String, now: Instant) -> Option<String> {
        let said = self.said.get_mut(&matter);
        let (kept_back, every) = match said {
            Some(said) if now < said.at + said.every => {
                said.kept_back += 1;
                return None;
            }
            // It continues: more and more seldom.
            Some(said) if now < said.at + said.every * 2 => {
                (said.kept_back, (said.every * 2).min(SAY_EVERY.1))
            }
            Some(said) => (said.kept_back, SAY_EVERY.0),
            None => (0, SAY_EVERY.0),
        };
        self.said.insert(matter, RepeatState { at: now, every, kept_back: 0 });
        Some(match kept_back {
            0 => text,
            1 => format!("{text} (and once more since the last report)"),
            n => format!("{text} (and {n} times more since the last report)"),
        })
    }

    /// Its records of each node, by rank. The refusal of an old node says nothing of the right one,
    /// which is connected.
    pub(crate) fn peers(&self, is_connected: impl Fn(usize) -> bool) -> Vec<PeerStatus> {
        let refused = |rank| self.refused.get(&rank).or_else(|| self.differs.get(&rank));
        let refused = |rank| refused(rank).filter(|_| !is_connected(rank)).cloned();
        let known = self.known.iter().enumerate();
        let status = |(rank, known): (usize, &PeerIdentity)| PeerStatus {
            life: known.life,
            refused: refused(rank),
            no_multicast: self.no_multicast.get(&rank).cloned(),
            carrier: None,
            memory_fault: None,
        };
        known.map(status).collect()
    }

    /// That this node is one that another life or disk of it has taken the place of.
    pub(crate) fn dismissal(&self) -> Option<&Dismissal> {
        self.dismissal.as_ref()
    }

    /// Why the node cannot continue, if it cannot.
    pub(crate) fn failed(&self) -> Option<&String> {
        self.failed.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_known_of_another_is_forgotten_while_the_node_does_not_run() {
        let dir = std::env::temp_dir().join(format!("amcast-forget-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        assert!(forget(&dir, 1, 2, false).unwrap_err().contains("n1 never ran"));
        let open = || PeerRegistry::open((&dir, "a word"), (1, 3)).unwrap();
        let met = |life| PeerIdentity { life: Some(life), start: 9, disk: 8, replaced: vec![1] };
        let life = ProcessName::take(&dir.join("n1.life")).unwrap().unwrap().begin(0).unwrap();
        let mut peer_registry = open();
        assert!(peer_registry.meets(0, &met(3)) && peer_registry.meets(2, &met(4)));
        assert_eq!(forget(&dir, 1, 2, true), Err("n1 runs: end it first".to_string()));
        drop((life, peer_registry));
        let unconfirmed = |has_refused| Ok(ForgetOutcome::Unconfirmed { has_refused });
        assert_eq!(forget(&dir, 1, 2, false), unconfirmed(false));
        // An earlier life of it is refused, until the right one is met.
        let (address, pid) = (([127, 0, 0, 1], 7400).into(), Some(Pid(2)));
        let refused = NetDiagnostic::Refused { address, pid, why: ConnectionRefusal::Old };
        open().hear(refused);
        assert_eq!(forget(&dir, 1, 2, false), unconfirmed(true));
        assert!(open().meets(2, &met(4)));
        assert_eq!(forget(&dir, 1, 2, false), unconfirmed(false));
        assert_eq!(open().known, [met(3), PeerIdentity::default(), met(4)]);
        assert_eq!(forget(&dir, 1, 2, true), Ok(ForgetOutcome::Forgotten));
        assert_eq!(open().known, [met(3), PeerIdentity::default(), PeerIdentity::default()]);
        assert_eq!(forget(&dir, 1, 2, false), Ok(ForgetOutcome::NothingKnown));
        // Of itself it forgets that it was refused.
        let disk = DiskRecord::of(&dir, 1);
        disk.is_refused("it was replaced".to_string());
        assert!(disk.check().is_err());
        assert_eq!(forget(&dir, 1, 1, false), unconfirmed(true));
        assert!(disk.check().is_err());
        assert_eq!(forget(&dir, 1, 1, true), Ok(ForgetOutcome::Forgotten));
        assert_eq!(forget(&dir, 1, 1, false), Ok(ForgetOutcome::NothingKnown));
        disk.check().unwrap();
        fs::write(dir.join("n1.peers"), "half a fi").unwrap();
        assert!(forget(&dir, 1, 0, true).unwrap_err().contains("n1.peers"));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_known_of_the_others_outlasts_a_node() {
        let dir = std::env::temp_dir().join(format!("amcast-registry-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let open = || PeerRegistry::open((&dir, "a word"), (1, 3)).unwrap();
        let mut peer_registry = open();
        assert_eq!(peer_registry.known, vec![PeerIdentity::default(); 3]);
        let known = PeerIdentity { life: Some(4), start: 9, disk: u64::MAX, replaced: vec![1, 2] };
        assert!(peer_registry.meets(2, &known));
        assert_eq!(open().known[2], known);
        assert!(open().disk != 0 && open().disk == peer_registry.disk);
        // Where it cannot be written nobody is let in whose earlier disk might be let in later.
        fs::remove_dir_all(&dir).unwrap();
        assert!(peer_registry.meets(2, &PeerIdentity { life: Some(5), ..known.clone() }));
        assert_eq!(peer_registry.failed(), None);
        assert!(
            !peer_registry.meets(
                2,
                &PeerIdentity { life: Some(6), disk: 3, replaced: vec![1, 2, 9], ..known }
            )
        );
        assert!(peer_registry.failed().is_some_and(|why| why.contains("n1.peers")));
    }

    #[test]
    fn what_the_version_before_wrote_is_read_and_what_does_not_read_is_told_with_what_to_do() {
        let dir = std::env::temp_dir().join(format!("amcast-peers-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let before = r#"{"n0":{"life":4,"disk":7,"replaced":[3]},"n2":{"life":null,"disk":0}}"#;
        let open = |text: &str| {
            fs::write(dir.join("n1.peers"), text).unwrap();
            PeerRegistry::open((&dir, "a word"), (1, 3))
        };
        let flipped = |at: usize| {
            let mut bytes = before.as_bytes().to_vec();
            bytes[at] ^= 0x80;
            fs::write(dir.join("n1.peers"), bytes).unwrap();
            PeerRegistry::open((&dir, "a word"), (1, 3)).unwrap_err().to_string()
        };
        let known = PeerIdentity { life: Some(4), start: 0, disk: 7, replaced: vec![3] };
        let read = open(before).unwrap().known;
        assert_eq!(read, [known, PeerIdentity::default(), PeerIdentity::default()]);
        let damaged = ["", "{\"n0\":{\"life\":", "no json"];
        let damaged = damaged.map(|text| open(text).unwrap_err().to_string());
        for why in damaged.into_iter().chain([flipped(3), flipped(9)]) {
            assert!(
                why.contains("remove this file") && why.contains("remove all files of this node"),
                "{why}"
            );
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn nodes_of_another_cluster_that_come_here_by_mistake_are_none_of_ours() {
        let mut peer_registry = PeerRegistry::fleeting(3);
        let (address, pid) = (([127, 0, 0, 1], 7400).into(), Some(Pid(2)));
        peer_registry.hear(NetDiagnostic::Refused {
            address,
            pid,
            why: ConnectionRefusal::Cluster,
        });
        assert!(peer_registry.peers(|_| false).iter().all(|peer| peer.refused.is_none()));
        assert!(peer_registry.said.keys().all(|(of, ..)| of.is_none()), "it does not count as n2");
        // That one of ours refuses us is not forgotten over what is at its address now.
        let by = |why| NetDiagnostic::RefusedBy { pid: Pid(0), address, why, life: 7 };
        peer_registry.hear(by(ConnectionRefusal::Old));
        peer_registry.hear(by(ConnectionRefusal::Cluster));
        assert_eq!(
            peer_registry.dismissal().map(|dismissal| dismissal.why),
            Some(ConnectionRefusal::Old)
        );
    }

    #[test]
    fn what_is_refused_again_and_again_is_counted_and_another_reason_is_told_at_once() {
        let mut peer_registry = PeerRegistry::fleeting(3);
        let begun = Instant::now();
        let mut says = |of, why: ConnectionRefusal, seconds| {
            let now = begun + Duration::from_secs(seconds);
            peer_registry.line((of, why.number(), false), "refused".to_string(), now)
        };
        assert_eq!(says(Some(1), ConnectionRefusal::Old, 0).as_deref(), Some("refused"));
        assert_eq!(
            (says(Some(1), ConnectionRefusal::Old, 1), says(Some(1), ConnectionRefusal::Old, 59)),
            (None, None)
        );
        assert_eq!(says(Some(1), ConnectionRefusal::Version, 59).as_deref(), Some("refused"));
        assert_eq!(says(None, ConnectionRefusal::Old, 59).as_deref(), Some("refused"));
        let again = says(Some(1), ConnectionRefusal::Old, 60);
        assert_eq!(again.as_deref(), Some("refused (and 2 times more since the last report)"));
        assert_eq!(says(Some(1), ConnectionRefusal::Old, 61), None);
        let again = says(Some(1), ConnectionRefusal::Old, 500);
        assert_eq!(again.as_deref(), Some("refused (and once more since the last report)"));
        assert_eq!(says(Some(1), ConnectionRefusal::Old, 900).as_deref(), Some("refused"));
    }

    #[test]
    fn a_node_for_which_something_else_decides_is_told_with_what_it_is_until_it_is_connected() {
        let mut peer_registry = PeerRegistry::fleeting(3);
        let item = |name: &str, value: &str| (name.to_string(), value.to_string());
        peer_registry.decides = vec![item("shards", "3"), item("maxmemory_mb", "2000")];
        let address = ([127, 0, 0, 1], 7400).into();
        let why = ConnectionRefusal::Decides(1);
        peer_registry.hear(NetDiagnostic::Refused { address, pid: Some(Pid(2)), why });
        peer_registry.hear(NetDiagnostic::RefusedBy { address, pid: Pid(0), why, life: 1 });
        let peers = peer_registry.peers(|_| false);
        for (rank, begins) in [(0, "n0 at 127.0.0.1:7400 refuses this node"), (2, "n2 at")] {
            let text = peers[rank].refused.as_ref().unwrap();
            assert!(text.starts_with(begins), "{text}");
            assert!(
                text.contains("differ in maxmemory_mb, which is 2000 in the one of this"),
                "{text}"
            );
        }
        assert!(peers[1].refused.is_none() && peer_registry.differs().is_some());
        assert_eq!(peer_registry.dismissal(), None, "it may be right, and the other wrong");
        (0..3).for_each(|rank| assert!(peer_registry.meets(rank, &PeerIdentity::default())));
        assert_eq!(peer_registry.differs(), None);
        assert!(peer_registry.peers(|_| false).iter().all(|peer| peer.refused.is_none()));
    }

    #[test]
    fn a_node_with_another_secret_is_named_until_a_node_is_connected() {
        let mut peer_registry = PeerRegistry::fleeting(3);
        let address = ([127, 0, 0, 1], 7400).into();
        let why = ConnectionRefusal::Secret;
        peer_registry.hear(NetDiagnostic::Refused { address, pid: Some(Pid(0)), why });
        let refused = peer_registry.peers(|_| false)[0].refused.clone();
        let named = "n0 at 127.0.0.1:7400 is refused: its secret and the one here are not the same";
        assert!(refused.is_some_and(|why| why.starts_with(named)));
        assert!(peer_registry.meets(0, &PeerIdentity::default()));
        assert_eq!(peer_registry.differs(), None);
        // The end that is dialled learns no name.
        peer_registry.hear(NetDiagnostic::Stranger { address, began: false });
        assert_eq!(peer_registry.differs(), None);
        peer_registry.hear(NetDiagnostic::Stranger { address, began: true });
        let differs = peer_registry.differs().cloned();
        assert!(
            differs.is_some_and(|why| why.contains("give all nodes the same file as `secret`"))
        );
        assert!(peer_registry.meets(1, &PeerIdentity::default()));
        assert_eq!(peer_registry.differs(), None);
    }

    #[test]
    fn strangers_do_not_fill_the_log() {
        let mut peer_registry = PeerRegistry::fleeting(3);
        let begun = Instant::now();
        let says = |n: u64| {
            let now = begun + Duration::from_secs(n);
            peer_registry.line(STRANGER, "a stranger".to_string(), now)
        };
        let told: Vec<String> = (0..86_400).filter_map(says).collect();
        assert!((20..40).contains(&told.len()), "{} lines in a day", told.len());
        let address = ([127, 0, 0, 1], 7400).into();
        peer_registry.hear(NetDiagnostic::Stranger { address, began: false });
        assert!(peer_registry.said[&STRANGER].kept_back > 0, "it is one of those");
    }

    #[test]
    fn who_refuses_and_who_is_refused_is_known_until_they_are_connected() {
        let refused = |peer_registry: &PeerRegistry, rank: usize| {
            peer_registry.peers(|_| false)[rank].refused.clone()
        };
        let mut peer_registry = PeerRegistry::fleeting(3);
        let address = ([127, 0, 0, 1], 7400).into();
        let why = ConnectionRefusal::Replaced;
        peer_registry.hear(NetDiagnostic::Refused { address, pid: Some(Pid(2)), why });
        assert!(
            refused(&peer_registry, 2).is_some_and(|why| why.starts_with("n2 at 127.0.0.1:7400"))
        );
        assert_eq!(
            peer_registry.peers(|rank| rank == 2)[2].refused,
            None,
            "the right one is connected"
        );
        // Of nobody here, or not for an old disk.
        for (pid, why) in [
            (Some(3), why),
            (None, ConnectionRefusal::Version),
            (Some(1), ConnectionRefusal::Shape),
        ] {
            peer_registry.hear(NetDiagnostic::Refused { address, pid: pid.map(Pid), why });
        }
        assert_eq!(peer_registry.refused.keys().collect::<Vec<_>>(), [&2]);
        let (pid, life) = (Pid(1), 7);
        peer_registry.hear(NetDiagnostic::RefusedBy {
            pid,
            address,
            why: ConnectionRefusal::Shape,
            life,
        });
        assert_eq!(peer_registry.dismissal(), None, "that another life would not mend");
        peer_registry.hear(NetDiagnostic::RefusedBy {
            pid,
            address,
            why: ConnectionRefusal::Old,
            life,
        });
        let dismissal = Dismissal { by: 1, why: ConnectionRefusal::Old, life };
        assert_eq!(peer_registry.dismissal(), Some(&dismissal));
        (1..3).for_each(|rank| assert!(peer_registry.meets(rank, &PeerIdentity::default())));
        assert_eq!((peer_registry.dismissal(), refused(&peer_registry, 2)), (None, None));
    }

    #[test]
    fn whom_multicast_does_not_reach_is_in_the_status_by_name_until_it_is_reached() {
        let mut peer_registry = PeerRegistry::fleeting(3);
        let [address, group] = ["10.0.2.7:4000", "239.255.1.2:5000"].map(|at| at.parse().unwrap());
        let says =
            |peer_registry: &PeerRegistry| peer_registry.peers(|_| true)[2].no_multicast.clone();
        peer_registry.hear(NetDiagnostic::NoMulticast { pid: Pid(2), address, group });
        let text = says(&peer_registry).unwrap();
        for part in ["239.255.1.2:5000", "n2 at 10.0.2.7:4000", "lane=datagram"] {
            assert!(text.contains(part), "{text}");
        }
        peer_registry.hear(NetDiagnostic::MulticastAgain { pid: Pid(2), group });
        assert_eq!(says(&peer_registry), None);
    }
}
