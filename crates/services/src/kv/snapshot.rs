//! One shard's keys as bytes: entries in the order of their hashes, then the marks of watched
//! keys. Numbers are 64-bit little-endian words, bytes stand behind their length. Collections keep
//! their dense order, which a random choice of a member depends on.

use super::data::{Data, Hash, List, Set, Sorted};
use super::store::{Entry, Mark, Store};

const STR: u8 = 0;
const LIST: u8 = 1;
const HASH: u8 = 2;
const SET: u8 = 3;
const SORTED: u8 = 4;

fn put(out: &mut Vec<u8>, word: u64) {
    out.extend_from_slice(&word.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends the state of `store`.
pub(crate) fn write(store: &Store, out: &mut Vec<u8>) {
    put(out, store.len() as u64);
    for Entry { key, data, version, deadline_ms } in store.all() {
        put_bytes(out, key);
        put(out, *version);
        put(out, *deadline_ms);
        write_data(data, out);
    }
    put(out, store.marks().len() as u64);
    for (key, mark) in store.marks() {
        put_bytes(out, key);
        put(out, mark.version);
        put(out, mark.deadline_ms);
    }
}

fn write_data(data: &Data, out: &mut Vec<u8>) {
    let head = |out: &mut Vec<u8>, kind: u8, len: usize| {
        out.push(kind);
        put(out, len as u64);
    };
    match data {
        Data::Str(s) => {
            out.push(STR);
            put_bytes(out, s);
        }
        Data::List(l) => {
            head(out, LIST, l.len());
            l.iter().for_each(|b| put_bytes(out, b));
        }
        Data::Hash(h) => {
            head(out, HASH, h.len());
            for (field, value) in h {
                put_bytes(out, field);
                put_bytes(out, value);
            }
        }
        Data::Set(s) => {
            head(out, SET, s.len());
            s.iter().for_each(|b| put_bytes(out, b));
        }
        Data::Sorted(z) => {
            head(out, SORTED, z.len());
            for (member, score) in z.dense() {
                put_bytes(out, member);
                put(out, score.to_bits());
            }
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (head, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*head)
    }

    fn word(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*head))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.word()?).ok()?;
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn data(&mut self) -> Option<Data> {
        let kind = self.byte()?;
        if kind == STR {
            return Some(Data::Str(self.bytes()?.to_vec()));
        }
        let len = self.word()?;
        Some(match kind {
            LIST => Data::List(
                (0..len).map(|_| self.bytes().map(Into::into)).collect::<Option<List>>()?,
            ),
            HASH => {
                let mut hash = Hash::default();
                for _ in 0..len {
                    hash.insert(self.bytes()?.into(), self.bytes()?.into());
                }
                Data::Hash(hash)
            }
            SET => {
                Data::Set((0..len).map(|_| self.bytes().map(Into::into)).collect::<Option<Set>>()?)
            }
            SORTED => {
                let mut sorted = Sorted::default();
                for _ in 0..len {
                    let (member, score) = (self.bytes()?, f64::from_bits(self.word()?));
                    if score.is_nan() {
                        return None;
                    }
                    sorted.set(member, score);
                }
                Data::Sorted(Box::new(sorted))
            }
            _ => return None,
        })
    }
}

/// Fills an empty `store`; none if `bytes` are not what [`write`] wrote.
pub(crate) fn read(bytes: &[u8], store: &mut Store) -> Option<()> {
    let mut r = Reader(bytes);
    for _ in 0..r.word()? {
        let key = r.bytes()?;
        let (version, deadline_ms) = (r.word()?, r.word()?);
        let data = r.data()?;
        store.version = version;
        store.put(key, data, deadline_ms);
    }
    for _ in 0..r.word()? {
        let key = r.bytes()?;
        let (version, deadline_ms) = (r.word()?, r.word()?);
        store.put_mark(key, Mark { version, deadline_ms });
    }
    r.0.is_empty().then_some(())
}
