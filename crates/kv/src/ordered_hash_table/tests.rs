//! The table against a tree.

use super::*;
use amcast_core::rng::Rng;

/// Kinds of hashes: uniform ones, and such as crowd in few segments.
const KINDS: [fn(&mut Rng) -> u64; 6] = [
    Rng::word,
    // Few, so that most are there already or are not any more.
    |rng| rng.below(300).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    // All in the first segment, and all in the last one.
    |rng| rng.below(2_000),
    |rng| u64::MAX - rng.below(2_000),
    // All in one, and then in each second one.
    |rng| 0x1234_5678 << 32 | rng.below(3_000) << 7,
    // Some of each, and the very ends.
    |rng| match rng.below(8) {
        0 => [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1][rng.below(6) as usize],
        1..4 => rng.below(1_000) << 53,
        _ => rng.word() >> (8 * rng.below(8)),
    },
];

/// Whether both have the same entries in the same order, from these hashes on.
fn assert_same(table: &OrderedHashTable<u64>, model: &BTreeMap<u64, u64>, from: u64) {
    assert!(table.range(from).eq(model.range(from..)), "from {from:#x}");
    let (after, behind) = (table.after(Some(&from)), model.after(Some(&from)));
    assert!(after.eq(behind), "after {from:#x}");
}

/// Checks the invariants of the table.
fn assert_sound(table: &OrderedHashTable<u64>) {
    let sum = |segments: &Segments<u64>| {
        let chunks = segments.chunks.iter().flatten();
        for segment in chunks.clone() {
            let len = segment.len();
            match segment {
                Segment::Sorted(pairs) => {
                    assert!(len <= SORTED_MAX);
                    assert!(pairs.capacity() <= len + 3 * ROOM, "{len} of {}", pairs.capacity());
                }
                Segment::Tree(_) => assert!(len > TREE_MIN),
            }
        }
        chunks.map(Segment::len).sum::<usize>()
    };
    assert_eq!(table.len(), sum(&table.current) + table.next.as_ref().map_or(0, sum));
    assert!(table.current.is_complete());
    // A rehash is over before the next one is due.
    let segments = 1 << table.current.bits;
    assert!(table.len() <= (LOAD_MAX + 1) * segments + 1, "{} in {segments}", table.len());
    assert!(segments == 1 || table.len() + segments >= LOAD_MIN * segments);
}

#[test]
fn it_agrees_with_a_tree() {
    let (mut rehashes, mut trees) = (0, 0);
    for (kind, seed) in (0..KINDS.len()).flat_map(|kind| (0..4).map(move |seed| (kind, seed))) {
        let mut rng = Rng::new(seed);
        let (mut table, mut model) = (OrderedHashTable::new(), BTreeMap::new());
        for n in 0..12_000_u64 {
            // It grows, shrinks to little, grows again and is emptied in the end.
            let growing = [900_000, 200_000, 700_000, 150_000][(n / 3_000) as usize];
            let hash = match rng.chance(300_000) {
                false => KINDS[kind](&mut rng),
                // One that is there, or its neighbour.
                true => {
                    let near = model.range(KINDS[kind](&mut rng)..).next();
                    near.map_or(0, |(hash, _)| *hash ^ rng.below(2))
                }
            };
            assert_eq!(table.get(hash), model.get(&hash));
            if rng.chance(growing) {
                assert_eq!(table.insert(hash, n), model.insert(hash, n));
            } else {
                let hash = model.range(hash..).next().map_or(hash, |(hash, _)| *hash);
                assert_eq!(table.remove(hash), model.remove(&hash));
            }
            if let Some(value) = table.get_mut(hash) {
                *value += 1;
                *model.get_mut(&hash).unwrap() += 1;
            }
            assert_eq!(table.len(), model.len());
            rehashes += u32::from(table.next.is_some());
            if n % 97 == 0 {
                assert_sound(&table);
                assert_same(&table, &model, hash);
                assert_same(&table, &model, KINDS[kind](&mut rng));
                assert_same(&table, &model, table.boundary.saturating_sub(rng.below(2)));
                trees += u32::from(has_tree(&table));
            }
        }
        assert_same(&table, &model, 0);
        assert_same(&table, &model, u64::MAX);
        assert_eq!(format!("{table:?}"), format!("{model:?}"));
        while let Some((hash, _)) = model.pop_first() {
            assert!(table.remove(hash).is_some() && table.remove(hash).is_none());
        }
        assert_sound(&table);
        assert_eq!((table.range(0).count(), table.current.bits), (0, 0));
    }
    assert!(rehashes > 2_000 && trees > 100, "{rehashes} rehashes, {trees} trees");
}

fn has_tree(table: &OrderedHashTable<u64>) -> bool {
    let all = [Some(&table.current), table.next.as_ref()];
    let mut segments = all.into_iter().flatten().flat_map(|all| all.chunks.iter().flatten());
    segments.any(|segment| matches!(segment, Segment::Tree(_)))
}

#[test]
fn uniform_hashes_take_many_chunks_and_little_memory() {
    let (mut table, mut rng) = (OrderedHashTable::new(), Rng::new(4));
    let hashes: Vec<u64> = (0..200_000).map(|_| rng.word()).collect();
    for hash in &hashes {
        table.insert(*hash, 0);
    }
    assert_sound(&table);
    assert!(!has_tree(&table) && table.current.chunks.len() > 4);
    let room = |segment: &Segment<u64>| match segment {
        Segment::Sorted(pairs) => pairs.capacity(),
        Segment::Tree(_) => 0,
    };
    let places: usize = table.current.chunks.iter().flatten().map(room).sum();
    assert!(places < hashes.len() * 5 / 4, "{places} places");
    for hash in &hashes[1_000..] {
        assert_eq!(table.remove(*hash), Some(0));
    }
    assert_sound(&table);
    assert!(table.current.bits <= 8 && table.current.chunks.len() == 1);
    let mut left = hashes[..1_000].to_vec();
    left.sort_unstable();
    assert!(table.range(0).map(|(hash, _)| hash).eq(&left));
}
