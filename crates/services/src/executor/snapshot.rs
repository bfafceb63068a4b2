//! A node's state at one moment, a chunk per shard.
//!
//! A chunk holds, in this order: 4 bytes of magic, a version, the shard's number, the number of
//! shards, a word that is the same in all chunks of one snapshot, position and ordered time, the
//! sessions, the commands that wait (in the chunk of their lowest delivered shard), the machine's
//! bytes, and a CRC-32C of all that. Words are 64-bit little-endian. All chunks are taken between
//! two commands, so together they are a consistent cut: a node that restores them goes on behind
//! each shard's [`delivered`](super::Executor::delivered) position.

use super::sessions::{Session, Sessions};
use super::waiting::{Entry, Lanes};
use super::{Executor, Limits, Shard};
use crate::envelope::Envelope;
use crate::machine::{Corrupt, Machine, Place};
use amcast_core::{Gid, GroupSet, MsgId, Pid};

const MAGIC: [u8; 4] = *b"amKV";
const VERSION: u8 = 2;

/// One shard's part of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// The shard.
    pub shard: Gid,
    /// Replay goes on behind this position.
    pub position: u64,
    /// The state; see the module's documentation.
    pub bytes: Vec<u8>,
}

fn put(out: &mut Vec<u8>, word: u64) {
    out.extend_from_slice(&word.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads words and bytes from the front of a slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn word(&mut self) -> Result<u64, Corrupt> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Corrupt::Malformed)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*head))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Corrupt> {
        let len = usize::try_from(self.word()?).map_err(|_| Corrupt::Malformed)?;
        let (head, rest) = self.0.split_at_checked(len).ok_or(Corrupt::Malformed)?;
        self.0 = rest;
        Ok(head)
    }
}

impl Sessions {
    fn write(&self, out: &mut Vec<u8>) {
        put(out, self.table.len() as u64);
        for (id, s) in &self.table {
            let (below, position) = s.drop_below.unwrap_or((0, 0));
            for word in [*id, s.used_ms, s.floor, below, position, s.ran.len() as u64] {
                put(out, word);
            }
            for (request, answer) in &s.ran {
                put(out, *request);
                put(out, u64::from(answer.is_some()));
                put_bytes(out, answer.as_deref().unwrap_or_default());
            }
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let mut it = Self::default();
        for _ in 0..r.word()? {
            let id = r.word()?;
            let (used_ms, floor) = (r.word()?, r.word()?);
            let (below, position) = (r.word()?, r.word()?);
            let drop_below = (position > 0).then_some((below, position));
            let mut s = Session { used_ms, floor, drop_below, ..Session::default() };
            for _ in 0..r.word()? {
                let (request, kept, answer) = (r.word()?, r.word()?, r.bytes()?);
                it.answer_bytes += if kept == 1 { answer.len() } else { 0 };
                s.ran.push_back((request, (kept == 1).then(|| answer.into())));
            }
            it.table.insert(id, s);
        }
        Ok(it)
    }
}

fn write_waiting(e: &Entry, lanes: &Lanes, out: &mut Vec<u8>) {
    for word in [u64::from(e.id.sender.0), e.id.seq, e.dst.0, e.floor, e.places.len() as u64] {
        put(out, word);
    }
    for p in &e.places {
        for word in [u64::from(p.shard.0), p.position, p.now_ms, lanes.before(p)] {
            put(out, word);
        }
    }
    put_bytes(out, &e.payload);
}

/// A waiting command as read back.
struct Waiting<'a> {
    id: MsgId,
    dst: GroupSet,
    floor: u64,
    /// Each with the position of the command in front of it.
    places: Vec<(Place, u64)>,
    payload: &'a [u8],
}

fn read_waiting<'a>(r: &mut Reader<'a>, shards: usize) -> Result<Waiting<'a>, Corrupt> {
    let sender = u32::try_from(r.word()?).map_err(|_| Corrupt::Malformed)?;
    let id = MsgId { sender: Pid(sender), seq: r.word()? };
    let (dst, floor, count) = (GroupSet(r.word()?), r.word()?, r.word()?);
    if !dst.within(GroupSet::first(shards)) || count > dst.len() as u64 {
        return Err(Corrupt::Malformed);
    }
    let mut places = Vec::new();
    for _ in 0..count {
        let shard = r.word()?;
        let (position, now_ms, before) = (r.word()?, r.word()?, r.word()?);
        if before >= position || shard >= shards as u64 || !dst.contains(Gid(shard as u8)) {
            return Err(Corrupt::Malformed);
        }
        places.push((Place { shard: Gid(shard as u8), position, now_ms }, before));
    }
    let payload = r.bytes()?;
    Envelope::decode(payload).ok_or(Corrupt::Malformed)?;
    Ok(Waiting { id, dst, floor, places, payload })
}

impl<M: Machine> Executor<M> {
    /// The node's state at this moment, a chunk per shard, in order of shards.
    pub fn snapshot(&self) -> Vec<Chunk> {
        let cut = self.shards.iter().flat_map(|s| s.delivered.to_le_bytes()).collect::<Vec<u8>>();
        let cut = u64::from(crc32c::crc32c(&cut)) << 32 | self.shards[0].delivered & 0xffff_ffff;
        let gids = (0..self.shards.len()).map(|i| Gid(i as u8));
        gids.map(|shard| self.chunk(shard, cut)).collect()
    }

    fn chunk(&self, shard: Gid, cut: u64) -> Chunk {
        let mine = &self.shards[shard.index()];
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, shard.0, self.shards.len() as u8, 0]);
        for word in [cut, mine.delivered, mine.now_ms] {
            put(&mut out, word);
        }
        mine.sessions.write(&mut out);
        let at_home = |e: &&Entry| e.places.iter().map(|p| p.shard).min() == Some(shard);
        put(&mut out, self.lanes.iter().filter(at_home).count() as u64);
        for entry in self.lanes.iter().filter(at_home) {
            write_waiting(entry, &self.lanes, &mut out);
        }
        let head = out.len();
        put(&mut out, 0);
        self.machine.snapshot(shard, &mut out);
        let len = (out.len() - head - 8) as u64;
        out[head..head + 8].copy_from_slice(&len.to_le_bytes());
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        Chunk { shard, position: mine.delivered, bytes: out }
    }

    /// An executor that goes on where the one that wrote `chunks` was. `machine` must have as many
    /// shards; what it holds is replaced.
    ///
    /// # Errors
    /// When the chunks are damaged, of a later version, or not all of one snapshot.
    pub fn restore(mut machine: M, chunks: &[Chunk], limits: Limits) -> Result<Self, Corrupt> {
        let (mut shards, mut waiting, mut cuts) = (Vec::new(), Vec::new(), Vec::new());
        for (i, chunk) in chunks.iter().enumerate() {
            let (body, sum) = chunk.bytes.split_last_chunk::<4>().ok_or(Corrupt::Malformed)?;
            let (head, body_rest) = body.split_first_chunk::<8>().ok_or(Corrupt::Malformed)?;
            if head[..4] != MAGIC {
                return Err(Corrupt::Malformed);
            }
            if head[4] != VERSION {
                return Err(Corrupt::Version(head[4]));
            }
            if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
                return Err(Corrupt::Checksum);
            }
            if usize::from(head[5]) != i || usize::from(head[6]) != chunks.len() {
                return Err(Corrupt::Mixed);
            }
            let mut r = Reader(body_rest);
            cuts.push(r.word()?);
            let (delivered, now_ms) = (r.word()?, r.word()?);
            let sessions = Sessions::read(&mut r)?;
            for _ in 0..r.word()? {
                waiting.push(read_waiting(&mut r, chunks.len())?);
            }
            machine.restore(Gid(i as u8), r.bytes()?)?;
            shards.push(Shard { delivered, now_ms, executed: 0, sessions });
        }
        if shards.is_empty() || cuts.iter().any(|c| *c != cuts[0]) {
            return Err(Corrupt::Mixed);
        }
        let mut lanes = Lanes::new(shards.len());
        line_up_again(&machine, &waiting, &mut lanes);
        Ok(Self { machine, limits, shards, lanes, scratch: Vec::new() })
    }
}

/// Puts waiting commands back, each shard's in order of position. None of them can run: they
/// waited when the snapshot was taken.
fn line_up_again<M: Machine>(machine: &M, waiting: &[Waiting<'_>], lanes: &mut Lanes) {
    let mut arrivals: Vec<((Place, u64), &Waiting<'_>)> =
        waiting.iter().flat_map(|w| w.places.iter().map(move |p| (*p, w))).collect();
    arrivals.sort_by_key(|((p, _), _)| (p.shard, p.position));
    for (place, w) in arrivals {
        let body = Envelope::decode(w.payload).expect("it was checked").1;
        lanes.enter((w.id, w.dst), place, Some(w.floor), w.payload, |access| {
            machine.access(body, w.dst, access);
        });
    }
}
