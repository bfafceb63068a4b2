//! All chance of a run goes through here: from a seed, from a recorded list, or from an odometer
//! that enumerates every choice.
//!
//! The one rule: **0 is the ordinary choice** (no fault, the shortest delay). A list that ends
//! early continues with zeros, so a run is shrunk by cutting its list, and exploration goes from the
//! ordinary run outwards.

use alloc::boxed::Box;
use alloc::vec::Vec;
use amcast_core::rng::Rng;

/// The purposes of chance. Each has a stream of its own, so that a new use of chance in one does
/// not shift the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Concern {
    /// Delays, losses and breaks of messages.
    Network,
    /// Delays, tearing and denials of writes and reads of memory.
    Ram,
    /// Delays and damage of records.
    Disk,
    /// Which faults strike, and when.
    Faults,
    /// The multicasts.
    Workload,
    /// When processes look and act.
    Schedule,
    /// The claims of oracles, and their times.
    Oracle,
    /// The members that leave their groups by choice, and when.
    Leaves,
    /// Which links between two processes fail for long, and when.
    Links,
    /// The members that fall silent again and again, and when.
    Silences,
    /// The processes that receive a barrier, and when.
    Barriers,
    /// Which replicas are gone in turn, and when.
    Successions,
    /// Which processes are out of another's reach at first, and for how long.
    Unreached,
    /// The changes of the tree of the groups, and when they are asked for.
    Overlays,
    /// Which links fail for good, and when.
    DeadLinks,
    /// Which applications hang, and when.
    Hangs,
}

impl Concern {
    /// How many there are.
    pub const COUNT: usize = 16;

    /// Each of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Network,
        Self::Ram,
        Self::Disk,
        Self::Faults,
        Self::Workload,
        Self::Schedule,
        Self::Oracle,
        Self::Leaves,
        Self::Links,
        Self::Silences,
        Self::Barriers,
        Self::Successions,
        Self::Unreached,
        Self::Overlays,
        Self::DeadLinks,
        Self::Hangs,
    ];

    /// Its name: the name of its stream.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Ram => "ram",
            Self::Disk => "disk",
            Self::Faults => "faults",
            Self::Workload => "workload",
            Self::Schedule => "schedule",
            Self::Oracle => "oracle",
            Self::Leaves => "leaves",
            Self::Links => "ways",
            Self::Silences => "silences",
            Self::Barriers => "barriers",
            Self::Successions => "successions",
            Self::Unreached => "unreached",
            Self::Overlays => "overlays",
            Self::DeadLinks => "dead-links",
            Self::Hangs => "hangs",
        }
    }
}

/// The choices of a run, a list for each concern.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choices {
    lists: [Vec<u64>; Concern::COUNT],
}

impl Choices {
    /// The choices of one concern, in order.
    pub fn of(&self, concern: Concern) -> &[u64] {
        &self.lists[concern as usize]
    }

    /// The choices of one concern, to be changed.
    pub const fn of_mut(&mut self, concern: Concern) -> &mut Vec<u64> {
        &mut self.lists[concern as usize]
    }

    /// How many choices there are, of all concerns.
    pub fn len(&self) -> usize {
        self.lists.iter().map(Vec::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many choices are not the ordinary one.
    pub fn deviations(&self) -> usize {
        self.lists.iter().flatten().filter(|&&choice| choice != 0).count()
    }

    /// Drops zeros from the ends: a list that ends continues with them anyway.
    pub fn trim(&mut self) {
        for list in &mut self.lists {
            let used = list.iter().rposition(|&choice| choice != 0).map_or(0, |last| last + 1);
            list.truncate(used);
        }
    }
}

/// Where chance comes from, and what it was.
#[derive(Debug)]
pub struct Chooser {
    source: ChoiceSource,
    record: Choices,
}

#[derive(Debug)]
enum ChoiceSource {
    Seeded([Rng; Concern::COUNT]),
    Listed { choices: Box<Choices>, at: [usize; Concern::COUNT] },
    Odometer(Odometer),
}

impl Chooser {
    /// Chance from a seed.
    pub fn seeded(seed: u64) -> Self {
        let streams = Concern::ALL.map(|concern| Rng::stream(seed, concern.name()));
        Self { source: ChoiceSource::Seeded(streams), record: Choices::default() }
    }

    /// The choices of an earlier run again; zeros where the lists end.
    pub fn listed(choices: Choices) -> Self {
        let source = ChoiceSource::Listed { choices: Box::new(choices), at: [0; Concern::COUNT] };
        Self { source, record: Choices::default() }
    }

    /// The choices that an odometer shows.
    pub fn odometer(odometer: Odometer) -> Self {
        Self { source: ChoiceSource::Odometer(odometer), record: Choices::default() }
    }

    /// A number below `n`, each as likely; 0 for `n` below 2.
    pub fn pick(&mut self, concern: Concern, n: u64) -> u64 {
        self.decide(concern, n, n, |rng| rng.below(n))
    }

    /// A number below `n` that is a size, not a kind: an odometer tries only a few of them, the
    /// least and the greatest among them.
    pub fn spread(&mut self, concern: Concern, n: u64) -> u64 {
        let coarse = match &self.source {
            ChoiceSource::Odometer(odometer) => odometer.grain.min(n),
            _ => n,
        };
        self.decide(concern, n, coarse, |rng| rng.below(n))
    }

    /// True with a chance of `per_million` in a million; an odometer tries both unless the chance
    /// is nothing or certain.
    pub fn chance(&mut self, concern: Concern, per_million: u64) -> bool {
        match per_million {
            0 => false,
            1_000_000.. => true,
            _ => self.decide(concern, 2, 2, |rng| u64::from(rng.chance(per_million))) == 1,
        }
    }

    /// A number from `least` to `most`, both included; a size.
    pub fn between(&mut self, concern: Concern, least: u64, most: u64) -> u64 {
        least + self.spread(concern, most.saturating_sub(least).saturating_add(1))
    }

    /// The choices so far.
    pub fn record(&self) -> &Choices {
        &self.record
    }

    /// Takes out what was chosen so far.
    pub fn take_record(&mut self) -> Choices {
        core::mem::take(&mut self.record)
    }

    /// Takes out the odometer, if chance comes from one; ordinary choices follow.
    pub fn take_odometer(&mut self) -> Option<Odometer> {
        let ordinary = ChoiceSource::Listed { choices: Box::default(), at: [0; Concern::COUNT] };
        match core::mem::replace(&mut self.source, ordinary) {
            ChoiceSource::Odometer(odometer) => Some(odometer),
            other => {
                self.source = other;
                None
            }
        }
    }

    fn decide(
        &mut self,
        concern: Concern,
        n: u64,
        coarse: u64,
        draw: impl FnOnce(&mut Rng) -> u64,
    ) -> u64 {
        if n < 2 {
            return 0;
        }
        let i = concern as usize;
        let choice = match &mut self.source {
            ChoiceSource::Seeded(streams) => draw(&mut streams[i]),
            ChoiceSource::Listed { choices, at } => {
                let listed = choices.lists[i].get(at[i]).copied().unwrap_or(0);
                at[i] += 1;
                // A shrunk run may ask for less than was recorded.
                listed.min(n - 1)
            }
            ChoiceSource::Odometer(odometer) => odometer.turn(n, coarse.max(2)),
        };
        self.record.lists[i].push(choice);
        choice
    }
}

/// Enumerates all sequences of choices with at most so many that are not ordinary (delay-bounded
/// exploration), without knowing in advance which choices a run will ask for.
#[derive(Clone, Debug)]
pub struct Odometer {
    wheels: Vec<Wheel>,
    at: usize,
    /// How many values of a size are tried.
    grain: u64,
    deviations_max: usize,
    wheels_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Wheel {
    value: u64,
    values: u64,
}

impl Odometer {
    /// All zeros. `grain` values of each size are tried; at most `deviations_max` choices are not
    /// ordinary, all of them among the first `wheels_max` of the run.
    pub const fn new(grain: u64, deviations_max: usize, wheels_max: usize) -> Self {
        Self { wheels: Vec::new(), at: 0, grain, deviations_max, wheels_max }
    }

    fn turn(&mut self, n: u64, values: u64) -> u64 {
        let at = self.at;
        self.at += 1;
        if at >= self.wheels.len() {
            if at >= self.wheels_max {
                return 0;
            }
            self.wheels.push(Wheel { value: 0, values });
        }
        // The same prefix of choices gives the same run, so a wheel never changes its size; the
        // minimum only keeps a protocol that breaks this law from leaving the range.
        let wheel = self.wheels[at];
        let value = wheel.value.min(values - 1);
        (u128::from(value) * u128::from(n - 1) / u128::from(values - 1)) as u64
    }

    /// How many choices of the sequence it shows are not ordinary.
    pub fn deviations(&self) -> usize {
        self.wheels.iter().filter(|wheel| wheel.value != 0).count()
    }

    /// Turns to the next sequence. False when all were shown.
    pub fn advance(&mut self) -> bool {
        self.wheels.truncate(self.at);
        self.at = 0;
        let mut deviations = self.wheels.iter().filter(|wheel| wheel.value != 0).count();
        while let Some(mut wheel) = self.wheels.pop() {
            deviations -= usize::from(wheel.value != 0);
            if wheel.value + 1 < wheel.values && deviations < self.deviations_max {
                wheel.value += 1;
                self.wheels.push(wheel);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    const C: Concern = Concern::Network;

    #[test]
    fn a_record_replays_and_a_short_one_goes_on_with_zeros() {
        let mut first = Chooser::seeded(9);
        let draw =
            |c: &mut Chooser| (c.pick(C, 100), c.chance(Concern::Ram, 500_000), c.pick(C, 7));
        let seen = draw(&mut first);
        let mut record = first.take_record();
        assert_eq!(draw(&mut Chooser::listed(record.clone())), seen);
        record.of_mut(C).truncate(1);
        assert_eq!(draw(&mut Chooser::listed(record)), (seen.0, seen.1, 0));
    }

    #[test]
    fn concerns_do_not_shift_each_other() {
        let (mut a, mut b) = (Chooser::seeded(4), Chooser::seeded(4));
        b.pick(Concern::Disk, 1000);
        assert_eq!(a.pick(C, 1 << 40), b.pick(C, 1 << 40));
    }

    #[test]
    fn the_odometer_shows_every_sequence_once() {
        let mut odometer = Odometer::new(2, 9, 9);
        let mut seen = BTreeSet::new();
        loop {
            let mut chooser = Chooser::odometer(odometer);
            let first = chooser.pick(C, 3);
            // Asks for more only on one branch, as runs do.
            let second = if first == 1 { chooser.chance(C, 10) } else { false };
            let third = chooser.spread(C, 1000);
            assert!(seen.insert((first, second, third)));
            odometer = chooser.take_odometer().expect("it was put in");
            if !odometer.advance() {
                break;
            }
        }
        assert_eq!(seen.len(), 8);
        assert!(seen.iter().all(|s| s.2 == 0 || s.2 == 999));
    }

    #[test]
    fn deviations_are_bounded() {
        let mut odometer = Odometer::new(2, 1, 9);
        let mut runs = 0;
        loop {
            let mut chooser = Chooser::odometer(odometer);
            let sum: u64 = (0..4).map(|_| chooser.pick(C, 2)).sum();
            assert!(sum <= 1);
            runs += 1;
            odometer = chooser.take_odometer().expect("it was put in");
            if !odometer.advance() {
                break;
            }
        }
        assert_eq!(runs, 5);
    }
}
