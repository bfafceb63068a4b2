//! The kinds of values that a key can hold.

pub(crate) use super::measured::{Hash, List, Set};
use super::ranked::Ranked;
use amcast_smr::hash::Keyed;
use indexmap::IndexMap;
use std::cmp::Ordering;
use std::sync::Arc;

/// A member, field or element.
pub(crate) type Blob = Box<[u8]>;
pub(crate) type Str = Vec<u8>;

/// Up to so many members a collection keeps the order of insertion and is scanned in one step.
pub(crate) const SMALL: usize = 128;

/// The value of a key. Collections are never empty; they are boxed, so that a key with a string takes less.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Str(Str),
    List(Box<List>),
    Hash(Box<Hash>),
    Set(Box<Set>),
    Sorted(Box<Sorted>),
}

impl Data {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Str(_) => "string",
            Self::List(_) => "list",
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
            Self::Sorted(_) => "zset",
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Str(_) => false,
            Self::List(l) => l.is_empty(),
            Self::Hash(h) => h.is_empty(),
            Self::Set(s) => s.is_empty(),
            Self::Sorted(z) => z.len() == 0,
        }
    }

    /// Bytes it takes, about: they follow from what it holds alone.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Str(s) => s.len(),
            Self::List(l) => l.bytes(),
            Self::Hash(h) => h.bytes(),
            Self::Set(s) => s.bytes(),
            Self::Sorted(z) => z.bytes,
        }
    }
}

/// Lets one function serve all kinds.
pub(crate) trait DataKind: Sized + Default {
    fn of(data: &Data) -> Option<&Self>;
    fn of_mut(data: &mut Data) -> Option<&mut Self>;
    fn into_data(self) -> Data;
}

macro_rules! kind {
    ($ty:ty, $arm:ident) => {
        impl DataKind for $ty {
            fn of(data: &Data) -> Option<&Self> {
                if let Data::$arm(x) = data { Some(x) } else { None }
            }
            fn of_mut(data: &mut Data) -> Option<&mut Self> {
                if let Data::$arm(x) = data { Some(x) } else { None }
            }
            fn into_data(self) -> Data {
                Data::$arm(self.into())
            }
        }
    };
}

kind!(Str, Str);
kind!(List, List);
kind!(Hash, Hash);
kind!(Set, Set);
kind!(Sorted, Sorted);

/// A score; never NaN, so it has a total order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Score(pub(crate) f64);

impl Eq for Score {}
impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

/// Members with scores, ordered by score and then by member.
#[derive(Clone, Default, Debug)]
pub(crate) struct Sorted {
    scores: IndexMap<Arc<[u8]>, f64, Keyed>,
    order: Ranked<(Score, Arc<[u8]>)>,
    /// Bytes that it takes, about.
    bytes: usize,
}

/// The memory of a member of a sorted set beside its bytes, in both tables, with the allocator's
/// overhead.
const MEMBER_BYTES: usize = 128;

impl Sorted {
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Sets a member's score; the score it had.
    pub(crate) fn set(&mut self, member: &[u8], score: f64) -> Option<f64> {
        if let Some((_, shared, old)) = self.scores.get_full_mut(member) {
            let before = *old;
            if before != score {
                let shared = shared.clone();
                *old = score;
                let was = (Score(before), shared);
                self.order.remove(&was);
                self.order.insert((Score(score), was.1));
            }
            return Some(before);
        }
        self.bytes += MEMBER_BYTES + member.len();
        let shared: Arc<[u8]> = member.into();
        self.scores.insert(shared.clone(), score);
        self.order.insert((Score(score), shared));
        None
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let (shared, score) = self.scores.swap_remove_entry(member)?;
        self.bytes -= MEMBER_BYTES + member.len();
        if self.scores.capacity() / 4 > self.scores.len().max(SMALL) {
            self.scores.shrink_to(2 * self.scores.len());
        }
        self.order.remove(&(Score(score), shared));
        Some(score)
    }

    pub(crate) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.order.count_before(|(s, m)| (*s, &**m) < (Score(score), member)))
    }

    pub(crate) fn count_before(&self, before: impl Fn(f64, &[u8]) -> bool) -> usize {
        self.order.count_before(|(s, m)| before(s.0, m))
    }

    pub(crate) fn iter_from(&self, rank: usize) -> impl Iterator<Item = (&Arc<[u8]>, f64)> {
        self.order.iter_from(rank).map(|(s, m)| (m, s.0))
    }

    pub(crate) fn iter_back_from(&self, rank: usize) -> impl Iterator<Item = (&Arc<[u8]>, f64)> {
        self.order.iter_back_from(rank).map(|(s, m)| (m, s.0))
    }

    /// The member at dense position `i`; positions mean nothing but allow a random choice.
    pub(crate) fn at(&self, i: usize) -> Option<(&[u8], f64)> {
        self.scores.get_index(i).map(|(m, s)| (&**m, *s))
    }

    /// Members and scores in dense order from position `from` on, as a snapshot gives them.
    pub(crate) fn dense_from(&self, from: usize) -> impl Iterator<Item = (&[u8], f64)> {
        let rest = self.scores.get_range(from..);
        rest.into_iter().flat_map(|rest| rest.iter().map(|(m, s)| (&**m, *s)))
    }
}
