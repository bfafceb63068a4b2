//! Where the values of logs lie.

use std::borrow::Cow;

/// Keeps values, each from when it is put until it is freed. One for each shard.
///
/// A replica whose storage fails cannot go on as if nothing were lost: an implementation that can
/// fail ends its process then, and the other replicas go on.
pub trait Storage: Default + Send + 'static {
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
