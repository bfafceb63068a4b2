//! Lists, hashes and sets that know how much memory they take: it follows from what they hold alone, so that it is the
//! same on all replicas and after a restart, and costs nothing to ask for.
//!
//! They are read as the collections that they are made of, and changed by the functions here.

use super::data::Blob;
use amcast_smr::hash::Keyed;
use indexmap::{IndexMap, IndexSet};
use std::collections::VecDeque;
use std::ops::Deref;

/// The memory of an element of each kind beside its bytes: its place in the collection, which may
/// have room for twice as many, and the allocator's overhead.
const LIST_BYTES: usize = 32;
const HASH_BYTES: usize = 96;
const SET_BYTES: usize = 64;

/// Room for so many elements is kept by a collection that has had more.
const KEPT: usize = 64;

/// A collection of blobs, and how many bytes it takes.
#[derive(Clone, Default, Debug)]
pub(crate) struct SizedCollection<C> {
    all: C,
    bytes: usize,
}

pub(crate) type List = SizedCollection<VecDeque<Blob>>;
pub(crate) type Hash = SizedCollection<IndexMap<Blob, Blob, Keyed>>;
pub(crate) type Set = SizedCollection<IndexSet<Blob, Keyed>>;

impl<C> SizedCollection<C> {
    /// Bytes that it takes, about.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<C> Deref for SizedCollection<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.all
    }
}

impl<'a, C> IntoIterator for &'a SizedCollection<C>
where
    &'a C: IntoIterator,
{
    type Item = <&'a C as IntoIterator>::Item;
    type IntoIter = <&'a C as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        (&self.all).into_iter()
    }
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn push_front(&mut self, element: Blob) {
        self.bytes += LIST_BYTES + element.len();
        self.all.push_front(element);
    }

    pub(crate) fn push_back(&mut self, element: Blob) {
        self.bytes += LIST_BYTES + element.len();
        self.all.push_back(element);
    }

    pub(crate) fn pop_front(&mut self) -> Option<Blob> {
        let element = self.all.pop_front();
        self.removed(element)
    }

    pub(crate) fn pop_back(&mut self) -> Option<Blob> {
        let element = self.all.pop_back();
        self.removed(element)
    }

    /// Inserts an element in front of the one at `i`.
    pub(crate) fn insert(&mut self, i: usize, element: Blob) {
        self.bytes += LIST_BYTES + element.len();
        self.all.insert(i, element);
    }

    /// Puts an element in the place of the one at `i`.
    pub(crate) fn set(&mut self, i: usize, element: Blob) {
        let was = std::mem::replace(&mut self.all[i], element);
        self.bytes = self.bytes + self.all[i].len() - was.len();
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Blob) -> bool) {
        let bytes = &mut self.bytes;
        self.all.retain(|element| {
            let kept = keep(element);
            *bytes -= if kept { 0 } else { LIST_BYTES + element.len() };
            kept
        });
        self.shrink();
    }

    /// Drops all but those from `range.start` to `range.end`.
    pub(crate) fn trim(&mut self, range: std::ops::Range<usize>) {
        let cut = |gone: &Blob| LIST_BYTES + gone.len();
        let len = self.all.len();
        let (end, start) = (range.end.min(len), range.start.min(range.end).min(len));
        self.bytes -= self.all.range(end..).map(cut).sum::<usize>();
        self.all.truncate(end);
        self.bytes -= self.all.drain(..start).map(|gone| cut(&gone)).sum::<usize>();
        self.shrink();
    }

    fn removed(&mut self, element: Option<Blob>) -> Option<Blob> {
        self.bytes -= element.as_ref().map_or(0, |element| LIST_BYTES + element.len());
        self.shrink();
        element
    }

    /// Gives room back, so that little is not held by what had been much.
    fn shrink(&mut self) {
        let len = self.all.len();
        if self.all.capacity() / 4 > len.max(KEPT) {
            self.all.shrink_to(2 * len);
        }
    }
}

impl FromIterator<Blob> for List {
    fn from_iter<I: IntoIterator<Item = Blob>>(all: I) -> Self {
        let mut it = Self::default();
        all.into_iter().for_each(|element| it.push_back(element));
        it
    }
}

impl Hash {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Sets a field; whether it is new.
    pub(crate) fn set(&mut self, field: &[u8], value: Blob) -> bool {
        if let Some(was) = self.all.get_mut(field) {
            self.bytes = self.bytes + value.len() - was.len();
            *was = value;
            return false;
        }
        self.bytes += HASH_BYTES + field.len() + value.len();
        self.all.insert(field.into(), value);
        true
    }

    /// Removes a field; the others keep their order, or the last one moves there.
    pub(crate) fn remove(&mut self, field: &[u8], keep_order: bool) -> bool {
        let gone = match keep_order {
            true => self.all.shift_remove_entry(field),
            false => self.all.swap_remove_entry(field),
        };
        let Some((field, value)) = gone else { return false };
        self.bytes -= HASH_BYTES + field.len() + value.len();
        let len = self.all.len();
        if self.all.capacity() / 4 > len.max(KEPT) {
            self.all.shrink_to(2 * len);
        }
        true
    }
}

impl Set {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a member; whether it is new.
    pub(crate) fn insert(&mut self, member: Blob) -> bool {
        let len = member.len();
        let new = self.all.insert(member);
        self.bytes += if new { SET_BYTES + len } else { 0 };
        new
    }

    /// Removes a member; the others keep their order, or the last one moves there.
    pub(crate) fn remove(&mut self, member: &[u8], keep_order: bool) -> bool {
        let gone = match keep_order {
            true => self.all.shift_take(member),
            false => self.all.swap_take(member),
        };
        self.removed(gone).is_some()
    }

    /// Takes out the member at `i`; the last one moves there.
    pub(crate) fn swap_remove_index(&mut self, i: usize) -> Option<Blob> {
        let gone = self.all.swap_remove_index(i);
        self.removed(gone)
    }

    fn removed(&mut self, gone: Option<Blob>) -> Option<Blob> {
        self.bytes -= gone.as_ref().map_or(0, |member| SET_BYTES + member.len());
        let len = self.all.len();
        if self.all.capacity() / 4 > len.max(KEPT) {
            self.all.shrink_to(2 * len);
        }
        gone
    }
}

impl FromIterator<Blob> for Set {
    fn from_iter<I: IntoIterator<Item = Blob>>(all: I) -> Self {
        let mut it = Self::default();
        all.into_iter().for_each(|member| _ = it.insert(member));
        it
    }
}
