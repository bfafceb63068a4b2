//! Commands that wait to be sent: a line for each destination, so that one without room delays nothing that goes
//! elsewhere (virtual output queueing, against head-of-line blocking). The gateway and the ingress of a node both keep
//! theirs here.
//!
//! Lines take turns, a command each; within a line commands keep the order in which they were pushed. The queue counts
//! its items and their bytes: its owner compares both with its bounds before it pushes, and so holds back its sender.

use std::collections::VecDeque;

/// Emptied lines that are kept for the next destination, so that a queue which is empty again and again allocates
/// nothing; and items for which each keeps room, at most.
const SPARE_LINES_MAX: usize = 16;
const SPARE_ITEMS_MAX: usize = 1024;

/// How much is under way or waits: a number of items, and their bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Occupancy {
    /// Items.
    pub(crate) count: usize,
    /// Their bytes.
    pub(crate) bytes: usize,
}

impl Occupancy {
    /// An item of so many bytes comes in.
    pub(crate) const fn begin(&mut self, bytes: usize) {
        (self.count, self.bytes) = (self.count + 1, self.bytes + bytes);
    }

    /// An item of so many bytes, which had entered, leaves.
    pub(crate) const fn end(&mut self, bytes: usize) {
        (self.count, self.bytes) = (self.count - 1, self.bytes - bytes);
    }
}

/// An item of a [`WaitingQueue`].
pub(crate) trait QueueItem {
    /// The key of the line in which it waits.
    type Line: Copy + PartialEq;

    /// Its bytes.
    fn bytes(&self) -> usize;
}

/// Items that wait, in a line for each destination.
#[derive(Debug)]
pub(crate) struct WaitingQueue<T: QueueItem> {
    /// The lines that hold something; the first is the next in turn.
    lines: VecDeque<(T::Line, VecDeque<T>)>,
    /// Empty ones, for their room.
    spare: Vec<VecDeque<T>>,
    occupancy: Occupancy,
}

impl<T: QueueItem> Default for WaitingQueue<T> {
    fn default() -> Self {
        Self { lines: VecDeque::new(), spare: Vec::new(), occupancy: Occupancy::default() }
    }
}

impl<T: QueueItem> WaitingQueue<T> {
    /// How much waits.
    pub(crate) const fn occupancy(&self) -> Occupancy {
        self.occupancy
    }

    /// Whether something waits in this line: a later item for it must wait, too.
    pub(crate) fn has(&self, line: T::Line) -> bool {
        self.lines.iter().any(|(other, _)| *other == line)
    }

    /// Puts an item at the end of a line.
    pub(crate) fn push(&mut self, line: T::Line, item: T) {
        self.occupancy.begin(item.bytes());
        if let Some((_, items)) = self.lines.iter_mut().find(|(other, _)| *other == line) {
            return items.push_back(item);
        }
        let mut items = self.spare.pop().unwrap_or_default();
        items.push_back(item);
        self.lines.push_back((line, items));
    }

    /// Takes out the first item of the first line in turn whose first item `fits`. All other lines have their turn
    /// before the next item of this one.
    pub(crate) fn take(&mut self, mut fits: impl FnMut(&T) -> bool) -> Option<T> {
        let first_fits = |(_, items): &(_, VecDeque<T>)| items.front().is_some_and(&mut fits);
        let at = self.lines.iter().position(first_fits)?;
        let (line, mut items) = self.lines.remove(at)?;
        let item = items.pop_front()?;
        self.occupancy.end(item.bytes());
        match items.is_empty() {
            true => self.keep(items),
            false => self.lines.push_back((line, items)),
        }
        Some(item)
    }

    /// Takes out all items at the heads of lines for as long as they are `stale`, in the order of the lines' turns.
    pub(crate) fn take_heads(&mut self, mut stale: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for (_, items) in &mut self.lines {
            while items.front().is_some_and(&mut stale) {
                taken.extend(items.pop_front());
            }
        }
        self.forget(&taken);
        taken
    }

    /// Takes out all items that are not to wait any longer, wherever they are.
    pub(crate) fn take_all(&mut self, mut which: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for (_, items) in &mut self.lines {
            for item in std::mem::take(items) {
                match which(&item) {
                    true => taken.push(item),
                    false => items.push_back(item),
                }
            }
        }
        self.forget(&taken);
        taken
    }

    /// All items.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.lines.iter().flat_map(|(_, items)| items)
    }

    /// These are not in the lines any more.
    fn forget(&mut self, taken: &[T]) {
        taken.iter().for_each(|item| self.occupancy.end(item.bytes()));
        self.lines.retain(|(_, items)| !items.is_empty());
    }

    fn keep(&mut self, items: VecDeque<T>) {
        if self.spare.len() < SPARE_LINES_MAX && items.capacity() <= SPARE_ITEMS_MAX {
            self.spare.push(items);
        }
    }
}

#[cfg(test)]
mod tests;
