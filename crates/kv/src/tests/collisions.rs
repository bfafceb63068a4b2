//! The store's tables against a tree of names, with keys that share hashes.

use crate::data::Data;
use crate::store::{KeyEntry, NEVER_MS, Store};
use crate::{HashSeed, Partitions};
use amcast_core::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn fold(a: u64, b: u64) -> u64 {
    let wide = a as u128 * b as u128;
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// A key that has the hash of all that are chosen, by the seed that all clusters had at first.
fn chosen(seed: u64, word: u64) -> Vec<u8> {
    let start = fold(seed ^ MULTIPLIER, 16 ^ 0x2545_f491_4f6c_dd1d);
    let after = fold(start ^ word, seed | 1).wrapping_add(MULTIPLIER);
    [word, after].map(u64::to_le_bytes).concat()
}

fn store() -> Store {
    Store::new(HashSeed::Fixed(7), Partitions::by_slot(1).into(), 0)
}

/// A key that shares its hash with others or does not, in line or not.
fn any_key(rng: &mut Rng) -> Vec<u8> {
    match rng.below(3) {
        0 => chosen(7, rng.below(12)),
        1 => format!("k{}", rng.below(200)).into_bytes(),
        _ => format!("a key that has no room in line {}", rng.below(200)).into_bytes(),
    }
}

fn string(entry: &KeyEntry) -> &[u8] {
    match &entry.data {
        Data::Str(value) => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_that_share_a_hash_are_told_apart() {
    let seed = HashSeed::Fixed(7);
    let hashes: BTreeSet<u64> = (0..12).map(|word| seed.hash(&chosen(7, word))).collect();
    assert_eq!(hashes.len(), 1);
    let (mut store, mut model, mut rng) = (store(), BTreeMap::new(), Rng::new(3));
    for n in 0..20_000_u64 {
        let key = any_key(&mut rng);
        match rng.below(5) {
            0 | 1 => {
                let value = vec![n as u8; rng.below(90) as usize];
                let deadline_ms = [NEVER_MS, 1_000 + rng.below(9)][rng.below(2) as usize];
                match rng.below(3) {
                    0 => store.put(&key, Data::Str(value.clone()), deadline_ms),
                    _ => store.put_str(&key, &value, deadline_ms),
                }
                model.insert(key, (value, deadline_ms));
            }
            2 | 3 => {
                let (gone, expected) = (store.delete(&key), model.remove(&key));
                let gone = gone.map(|entry| (string(&entry).to_vec(), entry.deadline_ms));
                assert_eq!(gone, expected);
            }
            _ if rng.chance(5_000) => {
                store.clear();
                model.clear();
            }
            _ => {
                let found =
                    store.find(&key).map(|entry| (string(entry).to_vec(), entry.deadline_ms));
                assert_eq!(found.as_ref(), model.get(&key));
            }
        }
        assert_eq!(store.len(), model.len());
        if n % 61 == 0 {
            assert!(store.range(b"", b"").map(|entry| &*entry.key).eq(model.keys()));
            let mut scanned: Vec<&[u8]> = store.scan(0).map(|(_, entry)| &*entry.key).collect();
            scanned.sort_unstable();
            assert!(scanned.into_iter().eq(model.keys()));
            let expiring = model.values().filter(|(_, deadline_ms)| *deadline_ms != NEVER_MS);
            assert_eq!(store.expiring(), expiring.count());
            let used: usize =
                model.iter().map(|(key, (value, _))| 200 + key.len() + value.len()).sum();
            assert_eq!(store.used(), used as u64);
        }
    }
}

#[test]
fn a_string_takes_the_place_of_another_one_only_if_it_nearly_fills_it() {
    let mut store = store();
    let mut put = |len: usize| {
        store.put_str(b"key", &vec![b'v'; len], NEVER_MS);
        let Data::Str(value) = &store.find(b"key").unwrap().data else { panic!("no string") };
        assert_eq!(value.len(), len);
        value.capacity()
    };
    assert_eq!(put(1_000), 1_000);
    assert_eq!(put(950), 1_000);
    assert_eq!(put(1_001), 1_001);
    assert_eq!(put(500), 500);
    assert_eq!(put(0), 0);
}
