//! Where the values of logs lie.

use super::segments::{Disk, Segments, Slot};
use std::borrow::Cow;

/// Keeps values, each from when it is put until it is freed. One for each shard.
///
/// A replica whose storage fails cannot go on as if nothing were lost: an implementation that can
/// fail ends its process then, and the other replicas go on.
pub trait Storage: Send + 'static {
    /// Where a value lies.
    type Place: Send + 'static;

    /// Keeps a value. Values are mostly read soon after they are put, or in the order in which they
    /// were.
    fn put(&mut self, value: &[u8]) -> Self::Place;

    /// The value at `place`.
    fn get<'a>(&'a self, place: &'a Self::Place) -> Cow<'a, [u8]>;

    /// Bytes of the value at `place`.
    fn len(&self, place: &Self::Place) -> usize;

    /// Gives up a value.
    fn free(&mut self, place: Self::Place);

    /// Says that the values which a trim gave up are all given up.
    fn trimmed(&mut self) {}
}

/// Keeps values in memory.
#[derive(Clone, Copy, Default, Debug)]
pub struct Memory;

impl Storage for Memory {
    type Place = Box<[u8]>;

    fn put(&mut self, value: &[u8]) -> Box<[u8]> {
        value.into()
    }

    fn get<'a>(&'a self, place: &'a Box<[u8]>) -> Cow<'a, [u8]> {
        Cow::Borrowed(place)
    }

    fn len(&self, place: &Box<[u8]>) -> usize {
        place.len()
    }

    fn free(&mut self, _: Box<[u8]>) {}
}

/// Keeps values in memory, or in files with the recent ones in memory, too.
pub enum Values {
    /// In memory.
    Memory(Memory),
    /// In files.
    Files(Box<Segments>),
}

/// Where a value lies in [`Values`].
#[derive(Debug)]
pub enum ValuePlace {
    /// Here.
    Memory(Box<[u8]>),
    /// In a file.
    File(Slot),
}

const FOREIGN: &str = "a value is asked for where it was put";

impl Values {
    /// In files as `disk` says, else in memory.
    pub fn new(disk: Option<&Disk>) -> Self {
        match disk {
            Some(disk) => Self::Files(Box::new(Segments::new(disk.clone()))),
            None => Self::Memory(Memory),
        }
    }
}

impl Storage for Values {
    type Place = ValuePlace;

    fn put(&mut self, value: &[u8]) -> ValuePlace {
        match self {
            Self::Memory(memory) => ValuePlace::Memory(memory.put(value)),
            Self::Files(files) => ValuePlace::File(files.put(value)),
        }
    }

    fn get<'a>(&'a self, place: &'a ValuePlace) -> Cow<'a, [u8]> {
        match (self, place) {
            (Self::Memory(memory), ValuePlace::Memory(place)) => memory.get(place),
            (Self::Files(files), ValuePlace::File(slot)) => files.get(slot),
            _ => unreachable!("{FOREIGN}"),
        }
    }

    fn len(&self, place: &ValuePlace) -> usize {
        match (self, place) {
            (Self::Memory(memory), ValuePlace::Memory(place)) => memory.len(place),
            (Self::Files(files), ValuePlace::File(slot)) => files.len(slot),
            _ => unreachable!("{FOREIGN}"),
        }
    }

    fn free(&mut self, place: ValuePlace) {
        match (self, place) {
            (Self::Memory(memory), ValuePlace::Memory(place)) => memory.free(place),
            (Self::Files(files), ValuePlace::File(slot)) => files.free(slot),
            _ => unreachable!("{FOREIGN}"),
        }
    }

    fn trimmed(&mut self) {
        match self {
            Self::Memory(memory) => memory.trimmed(),
            Self::Files(files) => files.trimmed(),
        }
    }
}
