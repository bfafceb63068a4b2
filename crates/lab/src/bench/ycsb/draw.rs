//! Random draws: which record, which operation, and records themselves. The definitions are those
//! that YCSB published (Cooper et al., 2010), with its constants. One thing differs from its
//! program: that draws from 10^10 numbers, for any number of records, and takes the remainder,
//! which is less skewed; here the distribution is over the records themselves.

use amcast_core::rng::Rng;

/// How skewed requests are: the constant of YCSB's zipfian distribution.
const THETA: f64 = 0.99;

/// Fields of a record, and bytes of each.
const FIELDS: usize = 10;
const FIELD_BYTES: usize = 100;

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = FIELDS * FIELD_BYTES;

/// Numbers from 0 on, of which the first are the most frequent: number `k` with a probability that is
/// proportional to 1 / (k + 1)^0.99. As in Gray et al., "Quickly generating billion-record synthetic
/// databases"; the number of items may grow.
#[derive(Clone, Debug)]
pub(super) struct Zipfian {
    items: u64,
    zeta: f64,
}

impl Zipfian {
    /// Over `items` numbers, at least 2.
    pub(super) fn new(items: u64) -> Self {
        let mut zipfian = Self { items: 0, zeta: 0.0 };
        zipfian.grow(items.max(2));
        zipfian
    }

    /// Takes in more numbers.
    pub(super) fn grow(&mut self, items: u64) {
        for n in self.items..items {
            self.zeta += 1.0 / ((n + 1) as f64).powf(THETA);
        }
        self.items = self.items.max(items);
    }

    /// Draws one.
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        let zeta_2 = 1.0 + 0.5_f64.powf(THETA);
        let alpha = 1.0 / (1.0 - THETA);
        let items = self.items as f64;
        let eta = (1.0 - (2.0 / items).powf(1.0 - THETA)) / (1.0 - zeta_2 / self.zeta);
        let u = unit(rng);
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < zeta_2 {
            return 1;
        }
        let drawn = items * (eta * u - eta + 1.0).powf(alpha);
        (drawn as u64).min(self.items - 1)
    }
}

/// From 0 to below 1.
fn unit(rng: &mut Rng) -> f64 {
    (rng.below(1 << 53)) as f64 / (1_u64 << 53) as f64
}

/// FNV-1a of 64 bits over the bytes of a number: it scatters the frequent records.
pub(super) fn scatter(n: u64) -> u64 {
    n.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The key of record `n`: hashed, so that neighbours in time are none in the order of keys.
pub(super) fn key(n: u64) -> String {
    format!("user{:020}", scatter(n))
}

/// A record's value: printable, and not all the same.
pub(super) fn value(rng: &mut Rng) -> Vec<u8> {
    let mut word = 0;
    (0..RECORD_BYTES)
        .map(|n| {
            if n % 8 == 0 {
                word = rng.below(u64::MAX);
            }
            b' ' + ((word >> (n % 8 * 8)) as u8) % 95
        })
        .collect()
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum YcsbOp {
    /// Reads a record.
    Read,
    /// Writes a record that there is.
    Update,
    /// Writes a new record.
    Insert,
    /// Reads some records from a key on, in the order of keys.
    Scan,
    /// Reads a record and writes it.
    Modify,
}

impl YcsbOp {
    /// Its name in results.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::Modify => "read_modify_write",
        }
    }
}

/// Records that a scan reads at most; from 1 on, all alike.
const SCAN_MAX: u64 = 100;

/// How records are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RecordChoice {
    /// Zipfian, scattered over the keys.
    Zipfian,
    /// Zipfian, the newest the most frequent.
    Latest,
}

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct YcsbWorkload {
    /// Its letter.
    pub name: char,
    /// Percent of reads, updates, inserts, scans and read-modify-writes.
    percent: [u64; 5],
    choice: RecordChoice,
}

const OPS: [YcsbOp; 5] =
    [YcsbOp::Read, YcsbOp::Update, YcsbOp::Insert, YcsbOp::Scan, YcsbOp::Modify];

impl YcsbWorkload {
    /// YCSB's core workloads, in the order in which they are to be run: D and E insert.
    pub const ALL: [Self; 6] = {
        use RecordChoice::{Latest, Zipfian};
        [
            Self { name: 'A', percent: [50, 50, 0, 0, 0], choice: Zipfian },
            Self { name: 'B', percent: [95, 5, 0, 0, 0], choice: Zipfian },
            Self { name: 'C', percent: [100, 0, 0, 0, 0], choice: Zipfian },
            Self { name: 'F', percent: [50, 0, 0, 0, 50], choice: Zipfian },
            Self { name: 'D', percent: [95, 0, 5, 0, 0], choice: Latest },
            Self { name: 'E', percent: [0, 0, 5, 95, 0], choice: Zipfian },
        ]
    };

    /// Whether it scans.
    pub fn scans(&self) -> bool {
        self.percent[3] > 0
    }

    /// The next operation.
    pub(super) fn op(&self, rng: &mut Rng) -> YcsbOp {
        let mut left = rng.below(100);
        for (op, percent) in OPS.into_iter().zip(self.percent) {
            if left < percent {
                return op;
            }
            left -= percent;
        }
        YcsbOp::Read
    }

    /// Which of `records` records.
    pub(super) fn record(&self, zipfian: &mut Zipfian, records: u64, rng: &mut Rng) -> u64 {
        zipfian.grow(records);
        let drawn = zipfian.draw(rng);
        match self.choice {
            RecordChoice::Zipfian => scatter(drawn) % records.max(1),
            RecordChoice::Latest => records.saturating_sub(1).saturating_sub(drawn),
        }
    }
}

/// How many records a scan reads.
pub(super) fn scan_length(rng: &mut Rng) -> u64 {
    1 + rng.below(SCAN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 400_000;

    #[test]
    fn frequencies_follow_the_zipfian_law() {
        let (zipfian, mut rng) = (Zipfian::new(1_000), Rng::new(1));
        let mut counts = vec![0_u32; 1_000];
        for _ in 0..DRAWS {
            counts[zipfian.draw(&mut rng) as usize] += 1;
        }
        let zeta: f64 = (1..=1_000).map(|n| 1.0 / f64::from(n).powf(THETA)).sum();
        // The first two are exact; the others are of a continuous approximation.
        for (n, within) in [(0, 0.02), (1, 0.03), (2, 0.20), (10, 0.15), (100, 0.2)] {
            let expected = DRAWS as f64 / zeta / f64::from(n + 1).powf(THETA);
            let off = (f64::from(counts[n as usize]) - expected).abs() / expected;
            assert!(off < within, "{n}: {} for {expected}", counts[n as usize]);
        }
    }

    #[test]
    fn growing_is_the_same_as_beginning_larger() {
        let mut grown = Zipfian::new(10);
        grown.grow(500);
        let whole = Zipfian::new(500);
        assert!((grown.zeta - whole.zeta).abs() < 1e-9);
        let draw = |z: &Zipfian| (0..50).map(|s| z.draw(&mut Rng::new(s))).collect::<Vec<_>>();
        assert_eq!(draw(&grown), draw(&whole));
    }

    #[test]
    fn workloads_mix_as_defined_and_the_latest_are_the_newest() {
        let mut rng = Rng::new(3);
        for workload in YcsbWorkload::ALL {
            assert_eq!(workload.percent.iter().sum::<u64>(), 100);
            let mut counts = [0_u64; 5];
            for _ in 0..100_000 {
                let op = workload.op(&mut rng);
                counts[OPS.iter().position(|o| *o == op).unwrap()] += 1;
            }
            for (count, percent) in counts.iter().zip(workload.percent) {
                assert!(count.abs_diff(percent * 1_000) < 700, "{}: {counts:?}", workload.name);
            }
        }
        let latest = YcsbWorkload::ALL.into_iter().find(|w| w.name == 'D').unwrap();
        let mut zipfian = Zipfian::new(100);
        let drawn: Vec<_> =
            (0..10_000).map(|_| latest.record(&mut zipfian, 1_000, &mut rng)).collect();
        let newest = drawn.iter().filter(|n| **n == 999).count();
        assert!(drawn.iter().all(|n| *n < 1_000) && newest > 1_000, "{newest}");
    }

    #[test]
    fn frequent_records_are_scattered_and_scans_are_of_1_to_100() {
        let zipfian_workload = YcsbWorkload::ALL[0];
        let (mut zipfian, mut rng) = (Zipfian::new(1_000), Rng::new(5));
        let mut counts = vec![0_u32; 1_000];
        for _ in 0..DRAWS {
            counts[zipfian_workload.record(&mut zipfian, 1_000, &mut rng) as usize] += 1;
        }
        let most = (0..1_000).max_by_key(|&n| counts[n]).unwrap() as u64;
        assert_eq!(most, scatter(0) % 1_000, "where the first number is scattered to");
        let lengths: Vec<_> = (0..10_000).map(|_| scan_length(&mut rng)).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&1), Some(&100)));
        assert_eq!(value(&mut rng).len(), 1_000);
        assert!(value(&mut rng).iter().all(|b| (b' '..=b'~').contains(b)));
    }
}
