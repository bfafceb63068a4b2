//! A state machine of one's own in the simulator: a mistake that only a restart shows, found by a seed and made small.
//!
//! `cargo run --example simulate` runs two ticket offices. Each has its replicas, executor, sessions, checkpoints and state
//! transfers simulated whole, under crashes, lost messages, disks that fail, and clients that ask again elsewhere. One
//! office numbers tickets from what it saved, and gives a number twice; the other one saves its counter, too.

use amcast::core::rng::Rng;
use amcast::core::{Entry, Gid, GroupSet, Outcome, RawConfig, ServiceAnswer};
use amcast::protocols::multiring;
use amcast::sim::{Profile, RunSettings};
use amcast::simulate::{AnswerMeaning, Call, FailedRun, ServiceSettings, Simulation, Workload};
use amcast::smr::{KeyUse, Shard, ShardView, StateMachine, StateMachineAdapter};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Sells numbered tickets and takes them back. It saves its counter if it is `WHOLE`.
#[derive(Default)]
struct Office<const WHOLE: bool>;

#[derive(Default)]
struct Tickets<const WHOLE: bool> {
    last: u64,
    sold: BTreeSet<u64>,
}

impl<const WHOLE: bool> Shard for Tickets<WHOLE> {
    fn items(&self) -> usize {
        self.sold.len()
    }

    fn save(&self, to: &mut Vec<u8>) {
        let last = WHOLE.then_some(&self.last);
        last.into_iter().chain(&self.sold).for_each(|number| to.extend(number.to_le_bytes()));
    }

    fn load(from: &[u8]) -> Option<Self> {
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        let mut numbers = from.chunks(8).map(number).collect::<Option<Vec<_>>>()?.into_iter();
        let last = if WHOLE { numbers.next()? } else { 0 };
        let sold: BTreeSet<u64> = numbers.collect();
        // The mistake, without a saved counter: the last number may have been that of a ticket that came back.
        let last = sold.last().copied().unwrap_or(0).max(last);
        Some(Self { last, sold })
    }
}

impl<const WHOLE: bool> StateMachine for Office<WHOLE> {
    type Shard = Tickets<WHOLE>;

    fn touches(&self, _: &[u8], _: GroupSet, _: &mut dyn FnMut(Gid, &[u8], KeyUse)) -> bool {
        false
    }

    fn apply(
        &self,
        command: &[u8],
        shards: &mut [ShardView<'_, Self::Shard>],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        let tickets = &mut *shards[0].data;
        match command {
            b"sell" => {
                tickets.last += 1;
                tickets.sold.insert(tickets.last);
                answer.extend_from_slice(tickets.last.to_string().as_bytes());
            }
            _ => {
                // The last buyer gives the ticket back.
                tickets.sold.pop_last();
                answer.extend_from_slice(b"OK");
            }
        }
        Outcome::Executed
    }
}

/// Buyers. The history has their calls in the language of `amcast::check::service::kv`, whose model
/// judges them: each ticket's number follows the previous one.
struct Buyers<const WHOLE: bool>;

fn call(body: &str, op: &str) -> Call {
    let (dst, body) = (GroupSet::one(Gid(0)), body.as_bytes().to_vec());
    Call::new(dst, body, false, op.to_string())
}

impl<const WHOLE: bool> Workload for Buyers<WHOLE> {
    type Machine = StateMachineAdapter<Office<WHOLE>>;

    fn next(&mut self, rng: &mut Rng) -> Call {
        match rng.below(3) {
            0 => call("return", "SET returned 1"),
            _ => call("sell", "INCR tickets"),
        }
    }

    fn last(&mut self) -> Call {
        call("sell", "INCR tickets")
    }

    fn returned(&mut self, _: &Call, answer: &ServiceAnswer<'_>) -> AnswerMeaning {
        AnswerMeaning::of_whole(answer, |text| String::from_utf8_lossy(text).into_owned())
    }
}

/// The first run of these seeds in which something is wrong.
pub(crate) fn hunt<const WHOLE: bool>(seeds: RangeInclusive<u64>) -> Option<FailedRun> {
    let entry = &multiring::SYNCED;
    let raw = RawConfig { groups: 1, replicas: 3, clients: 0, ..RawConfig::default() };
    let config = &raw.check(entry.about().params).expect("the shape is sound");
    let (service, workload) = (ServiceSettings::default(), &|| Buyers::<WHOLE>);
    let simulation = Simulation { entry, config, service, seed: 0, workload };
    simulation.hunt(&RunSettings::with(Profile::All), seeds).expect("the protocol takes the shape")
}

/// Seeds of which one shows the mistake.
pub(crate) const SEEDS: RangeInclusive<u64> = 2..=60;

pub(crate) fn main() {
    let seeds = SEEDS;
    match hunt::<false>(seeds.clone()) {
        Some(failed) => println!("The office that does not save its counter, {failed}"),
        None => println!("The office that does not save its counter: nothing found"),
    }
    match hunt::<true>(seeds) {
        Some(failed) => println!("The office that does, {failed}"),
        None => println!("The office that does: nothing found"),
    }
}
