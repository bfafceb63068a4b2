//! Clients that wait for elements of keys: those of `BLPOP`, and of commands like it.
//!
//! A gateway orders such a command as the one that does not wait ([`blocking`](super::commands::blocking)). If that one found
//! nothing, the client waits here until one of its keys may have changed, and then the gateway orders the command again. So replicas
//! know nothing of clients that wait, and what one takes is taken at one place in the order.
//!
//! A key may have changed when a replica of this process executed a command that changed it, and when a command that writes it was
//! answered here. Of the clients of one gateway that wait for a key, each change wakes the one that has waited longest and was not woken;
//! one that took something wakes the next one, since there may be more. Clients of different gateways have no turns among them.

use super::client::{ClientInfo, lock};
use super::data::Data;
use amcast_smr::hash::Keyed;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The hash by which a key is awaited, which is another one in each process. Of two keys with the same one a client that waits for one
/// would use up the wake-ups of the other: so nobody may be able to compute such keys.
pub fn awaited_hash(key: &[u8]) -> u64 {
    Keyed.hash_one(key)
}

/// The types of the elements that a client waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AwaitedType {
    /// Those of lists.
    List,
    /// Those of sorted sets.
    SortedSet,
}

/// The clients of one gateway that wait for keys.
#[derive(Default)]
pub struct BlockedClients {
    /// How many there are, to be looked at without the lock.
    count: AtomicUsize,
    /// Whether replicas of this process tell of changes.
    hears_replicas: AtomicBool,
    turns: Mutex<Turns>,
}

impl fmt::Debug for BlockedClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockedClients").field("count", &self.count()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Turns {
    /// The number of the last one that came.
    last: u64,
    clients: BTreeMap<u64, WaitingClient>,
    /// For each key and type those that wait for elements of it, in the order in which they came: a change finds the first one at once,
    /// also where many wait for the other type. One that is woken stays in its lines until somebody looks
    /// at its place there: to leave all at once takes time in proportion to its keys, in the thread that executes commands.
    lines: BTreeMap<(u64, AwaitedType), BTreeSet<u64>>,
}

struct WaitingClient {
    info: Arc<ClientInfo>,
    keys: BTreeSet<u64>,
    awaited: AwaitedType,
    woken: Option<WokenBy>,
}

/// The change that woke a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WokenBy {
    /// One of the key with this hash.
    Key(u64),
    /// One of any key. All clients that wait were woken by it, most of them for nothing.
    Anything,
}

impl WokenBy {
    const fn key(self) -> Option<u64> {
        match self {
            Self::Key(key) => Some(key),
            Self::Anything => None,
        }
    }
}

impl Turns {
    /// Wakes the first client that waits for this key, and for elements of that type.
    fn next(&mut self, key: u64, of: AwaitedType) -> Option<Arc<ClientInfo>> {
        let (clients, line) = (&self.clients, self.lines.get_mut(&(key, of))?);
        let waits = |number: &u64| {
            step();
            clients.get(number).is_some_and(|client| client.woken.is_none())
        };
        // Each place is taken off once: so all these steps are as many as places were given.
        while line.first().is_some_and(|number| !waits(number)) {
            line.pop_first();
        }
        let number = line.first().copied();
        if number.is_none() {
            self.lines.remove(&(key, of));
        }
        self.wake(number?, WokenBy::Key(key))
    }

    fn wake(&mut self, number: u64, by: WokenBy) -> Option<Arc<ClientInfo>> {
        let client = self.clients.get_mut(&number).filter(|client| client.woken.is_none())?;
        client.woken = Some(by);
        Some(client.info.clone())
    }

    fn leave(&mut self, number: u64, client: &WaitingClient) {
        for key in &client.keys {
            let Entry::Occupied(mut line) = self.lines.entry((*key, client.awaited)) else {
                continue;
            };
            line.get_mut().remove(&number);
            if line.get().is_empty() {
                line.remove();
            }
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Clients that were looked up to find the one to be woken.
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a client that is looked up, in tests.
fn step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

impl BlockedClients {
    /// How many clients wait.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Replicas of this process tell of changes from here on.
    pub(crate) fn hear_replicas(&self) {
        self.hears_replicas.store(true, Ordering::Release);
    }

    /// Whether replicas of this process tell of changes.
    pub fn hears_replicas(&self) -> bool {
        self.hears_replicas.load(Ordering::Acquire)
    }

    /// A client waits for keys with these hashes from here on.
    pub fn wait(
        self: &Arc<Self>,
        info: &Arc<ClientInfo>,
        keys: BTreeSet<u64>,
        awaited: AwaitedType,
    ) -> KeyWait {
        let mut turns = lock(&self.turns);
        turns.last += 1;
        let number = turns.last;
        for key in &keys {
            turns.lines.entry((*key, awaited)).or_default().insert(number);
        }
        let client = WaitingClient { info: info.clone(), keys, awaited, woken: None };
        turns.clients.insert(number, client);
        self.count.store(turns.clients.len(), Ordering::Release);
        drop(turns);
        KeyWait { all: self.clone(), number, tried_for: None, is_trying: true, took: None }
    }

    /// A replica of this process gave a key this value: a client that waits for its elements hears of it.
    pub(crate) fn hear(clients: Option<&Arc<Self>>, key: &[u8], data: &Data) {
        let of = match data {
            Data::List(_) => AwaitedType::List,
            Data::Sorted(_) => AwaitedType::SortedSet,
            Data::Str(_) | Data::Hash(_) | Data::Set(_) => return,
        };
        if let Some(clients) = clients.filter(|_| !data.is_empty()) {
            clients.replica_changed(key, of);
        }
    }

    /// A replica of this process changed a key whose elements are of this type.
    fn replica_changed(&self, key: &[u8], of: AwaitedType) {
        if self.count() > 0 {
            self.changed(awaited_hash(key), of);
        }
    }

    /// A command that writes a key with this hash was answered.
    pub fn answered(&self, key: u64) {
        for of in [AwaitedType::List, AwaitedType::SortedSet] {
            self.changed(key, of);
        }
    }

    fn changed(&self, key: u64, of: AwaitedType) {
        let next = lock(&self.turns).next(key, of);
        // A connection that is woken takes locks of its own.
        next.iter().for_each(|info| (info.wake)());
    }

    /// Any key may have changed.
    pub fn all_changed(&self) {
        if self.count() == 0 {
            return;
        }
        let mut turns = lock(&self.turns);
        let numbers: Vec<u64> = turns.clients.keys().copied().collect();
        let woken: Vec<_> = numbers
            .into_iter()
            .filter_map(|number| turns.wake(number, WokenBy::Anything))
            .collect();
        drop(turns);
        woken.iter().for_each(|info| (info.wake)());
    }
}

/// The place of one client among those that wait, which it leaves when this is dropped.
pub struct KeyWait {
    all: Arc<BlockedClients>,
    number: u64,
    /// The change for which its command was tried again, or its keys were looked for.
    tried_for: Option<WokenBy>,
    /// Its command was not answered that there is nothing: where it takes something there may be more, for the next one.
    is_trying: bool,
    /// The key from which it took something.
    took: Option<u64>,
}

impl KeyWait {
    /// The change that woke it since [`Self::listen`] or [`Self::retry`], or since it came, if there was any.
    pub fn woken(&self) -> Option<WokenBy> {
        lock(&self.all.turns).clients.get(&self.number).and_then(|client| client.woken)
    }

    /// Its command is tried again: changes from here on wake it, in the turn that it has had from the start.
    pub fn retry(&mut self) {
        self.is_trying = true;
        self.listen();
    }

    /// Its keys are looked for: changes from here on wake it, as with [`Self::retry`].
    pub fn listen(&mut self) {
        let mut turns = lock(&self.all.turns);
        let Turns { clients, lines, .. } = &mut *turns;
        let Some(client) = clients.get_mut(&self.number) else { return };
        self.tried_for = client.woken.take();
        if self.tried_for.is_some() {
            for key in &client.keys {
                lines.entry((*key, client.awaited)).or_default().insert(self.number);
            }
        }
    }

    /// It cannot make use now of the change that woke it: another client is woken for that. It looks for its keys when it can,
    /// as if any had changed, and is woken no more until then.
    pub fn pass_on(&self) {
        let mut turns = lock(&self.all.turns);
        let Some(client) = turns.clients.get_mut(&self.number) else { return };
        let Some(WokenBy::Key(key)) = client.woken else { return };
        client.woken = Some(WokenBy::Anything);
        let of = client.awaited;
        let next = turns.next(key, of);
        drop(turns);
        next.iter().for_each(|info| (info.wake)());
    }

    /// Its command found nothing.
    pub const fn note_nothing(&mut self) {
        (self.is_trying, self.tried_for) = (false, None);
    }

    /// Its command took something from the key with this hash.
    pub const fn note_taken(&mut self, key: u64) {
        self.took = Some(key);
    }
}

impl Drop for KeyWait {
    fn drop(&mut self) {
        let mut turns = lock(&self.all.turns);
        let Some(client) = turns.clients.remove(&self.number) else { return };
        self.all.count.store(turns.clients.len(), Ordering::Release);
        turns.leave(self.number, &client);
        // Somebody else may take the element that woke it, if it has not, and what is behind the one that it has.
        let woken_by = [self.tried_for, client.woken, self.took.map(WokenBy::Key)];
        let is_unknown = self.is_trying && self.took.is_none();
        let keys: BTreeSet<u64> = match is_unknown || woken_by.contains(&Some(WokenBy::Anything)) {
            true => client.keys,
            false => woken_by.iter().flatten().filter_map(|by| by.key()).collect(),
        };
        let next = keys.iter().filter_map(|key| turns.next(*key, client.awaited));
        let next: Vec<Arc<ClientInfo>> = next.collect();
        drop(turns);
        next.iter().for_each(|info| (info.wake)());
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::{BlockState, ClientReport};
    use super::*;
    use amcast_smr::hash::hash_bytes;
    use std::sync::atomic::AtomicUsize;

    /// A client, and how often it was woken.
    fn client() -> (Arc<ClientInfo>, Arc<AtomicUsize>) {
        let address = "127.0.0.1:1".parse().expect("an address");
        let woken = Arc::new(AtomicUsize::new(0));
        let count = woken.clone();
        let said = ClientReport {
            name: String::new(),
            lib_name: String::new(),
            lib_version: String::new(),
            resp: 2,
            command: "blpop",
            active_us: 0,
        };
        let info = ClientInfo {
            id: 1,
            peer: address,
            local: address,
            since_us: 0,
            said: said.into(),
            killed: false.into(),
            held: 0.into(),
            block: BlockState::default(),
            wake: Box::new(move || _ = count.fetch_add(1, Ordering::Relaxed)),
        };
        (Arc::new(info), woken)
    }

    fn wait(
        all: &Arc<BlockedClients>,
        keys: &[&str],
        of: AwaitedType,
    ) -> (KeyWait, Arc<AtomicUsize>) {
        let (info, woken) = client();
        let keys = keys.iter().map(|key| awaited_hash(key.as_bytes())).collect();
        let mut place = all.wait(&info, keys, of);
        place.note_nothing();
        (place, woken)
    }

    #[test]
    fn keys_that_share_a_hash_which_is_in_the_source_share_none_by_which_they_are_awaited() {
        let (one, other) = (&b"jobs"[..], &b"\xf7\x9a\x79\xef\x71\x9d\xb6\xe8"[..]);
        assert_eq!(hash_bytes(0, one), hash_bytes(0, other));
        assert_ne!(awaited_hash(one), awaited_hash(other));
        assert_eq!(awaited_hash(one), awaited_hash(b"jobs"));
    }

    #[test]
    fn a_change_passes_over_nobody_who_waits_for_another_type() {
        let all: Arc<BlockedClients> = Arc::default();
        let many: Vec<_> = (0..1000).map(|_| wait(&all, &["k"], AwaitedType::SortedSet)).collect();
        let (mut one, woken) = wait(&all, &["k"], AwaitedType::List);
        STEPS.set(0);
        for _ in 0..100 {
            all.replica_changed(b"k", AwaitedType::List);
            one.retry();
            one.note_nothing();
        }
        assert_eq!(counts(&[&woken, &many[0].1]), [100, 0]);
        assert!(STEPS.get() <= 200, "{} clients were looked up", STEPS.get());
        // Those that were woken before are passed over once.
        for _ in 0..1000 {
            all.replica_changed(b"k", AwaitedType::SortedSet);
        }
        assert_eq!(counts(&[&many[0].1, &many[999].1]), [1, 1]);
        assert!(STEPS.get() <= 2200, "{} clients were looked up", STEPS.get());
    }

    fn counts(all: &[&Arc<AtomicUsize>]) -> Vec<usize> {
        all.iter().map(|woken| woken.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn each_change_wakes_the_first_that_was_not_woken_and_a_place_that_is_left_wakes_the_next() {
        let all: Arc<BlockedClients> = Arc::default();
        let (mut first, a) = wait(&all, &["k", "l"], AwaitedType::List);
        let (second, b) = wait(&all, &["k"], AwaitedType::List);
        let (third, c) = wait(&all, &["k"], AwaitedType::List);
        all.replica_changed(b"other", AwaitedType::List);
        assert_eq!((counts(&[&a, &b, &c]), all.count()), (vec![0, 0, 0], 3));
        all.replica_changed(b"k", AwaitedType::List);
        all.answered(awaited_hash(b"l"));
        assert_eq!(counts(&[&a, &b, &c]), [1, 0, 0], "it was woken for either");
        all.answered(awaited_hash(b"k"));
        assert_eq!(counts(&[&a, &b, &c]), [1, 1, 0]);
        // It is tried, and finds nothing: its turn is before that of the third still.
        first.retry();
        first.note_nothing();
        assert!(first.woken().is_none() && second.woken().is_some());
        all.replica_changed(b"k", AwaitedType::List);
        assert_eq!(counts(&[&a, &b, &c]), [2, 1, 0]);
        // One that was woken and leaves makes no use of that.
        drop(second);
        assert_eq!(counts(&[&a, &b, &c]), [2, 1, 1]);
        drop((first, third));
        assert_eq!(all.count(), 0);
        assert!(lock(&all.turns).lines.is_empty());
    }

    #[test]
    fn one_that_took_something_wakes_one_for_the_key_that_it_took_it_from() {
        let all: Arc<BlockedClients> = Arc::default();
        let (mut first, a) = wait(&all, &["k", "l", "m"], AwaitedType::List);
        let (_other, b) = wait(&all, &["k"], AwaitedType::SortedSet);
        let (_second, c) = wait(&all, &["k", "l"], AwaitedType::List);
        let (_third, d) = wait(&all, &["l", "m"], AwaitedType::List);
        all.replica_changed(b"k", AwaitedType::List);
        first.retry();
        first.note_taken(awaited_hash(b"k"));
        drop(first);
        assert_eq!(counts(&[&a, &b, &c, &d]), [1, 0, 1, 0], "nor one that waits for another type");
        all.answered(awaited_hash(b"k"));
        assert_eq!(counts(&[&a, &b, &c, &d]), [1, 1, 1, 0]);
    }

    #[test]
    fn one_that_leaves_while_it_is_tried_wakes_the_next_and_one_that_only_waits_wakes_nobody() {
        let all: Arc<BlockedClients> = Arc::default();
        let (first, a) = wait(&all, &["k"], AwaitedType::List);
        let (mut second, b) = wait(&all, &["k"], AwaitedType::List);
        let (_third, c) = wait(&all, &["k"], AwaitedType::List);
        drop(first);
        assert_eq!(counts(&[&a, &b, &c]), [0, 0, 0]);
        // It may have taken something, and there may be more.
        second.retry();
        drop(second);
        assert_eq!(counts(&[&a, &b, &c]), [0, 0, 1]);
    }

    #[test]
    fn one_that_cannot_take_passes_each_wake_up_on_once_and_has_its_turn_again_later() {
        let all: Arc<BlockedClients> = Arc::default();
        let (mut first, a) = wait(&all, &["k"], AwaitedType::List);
        let (mut second, b) = wait(&all, &["k"], AwaitedType::List);
        let (_third, c) = wait(&all, &["k"], AwaitedType::List);
        all.replica_changed(b"k", AwaitedType::List);
        first.pass_on();
        first.pass_on();
        assert_eq!(counts(&[&a, &b, &c]), [1, 1, 0]);
        assert_eq!(first.woken(), Some(WokenBy::Anything));
        second.retry();
        second.note_nothing();
        all.replica_changed(b"k", AwaitedType::List);
        assert_eq!(counts(&[&a, &b, &c]), [1, 2, 0], "it is not woken while it cannot take");
        first.listen();
        first.note_nothing();
        all.replica_changed(b"k", AwaitedType::List);
        assert_eq!(counts(&[&a, &b, &c]), [2, 2, 0]);
    }

    #[test]
    fn replicas_wake_those_that_wait_for_the_type_and_everything_wakes_all() {
        let all: Arc<BlockedClients> = Arc::default();
        let (mut list, a) = wait(&all, &["k"], AwaitedType::List);
        let (sorted, b) = wait(&all, &["k"], AwaitedType::SortedSet);
        all.replica_changed(b"k", AwaitedType::SortedSet);
        assert_eq!(counts(&[&a, &b]), [0, 1]);
        all.all_changed();
        assert_eq!(counts(&[&a, &b]), [1, 1], "one of them was woken before");
        let (key, anything) = (WokenBy::Key(awaited_hash(b"k")), WokenBy::Anything);
        assert_eq!((list.woken(), sorted.woken()), (Some(anything), Some(key)));
        // Changes during the look wake it again; one that finds nothing leaves without waking anybody.
        list.listen();
        assert_eq!(list.woken(), None);
        let (_behind, c) = wait(&all, &["k"], AwaitedType::List);
        all.replica_changed(b"k", AwaitedType::List);
        assert_eq!((counts(&[&a, &c]), list.woken()), (vec![2, 0], Some(key)));
        list.listen();
        list.note_nothing();
        drop(list);
        assert_eq!(counts(&[&c]), [0]);
    }
}
