//! Every way in which a protocol can be broken on purpose, and how soon each is found.

use super::judge::JudgedRun;
use super::trial::{self, Trial};
use super::{RunSummary, SimArgs, judge_all};
use crate::commands::Failure;
use amcast::simulate::ServiceMutant;
use amcast_mutants::catalog;
use amcast_mutants::mutant::MutantInfo;
use serde_json::{Value, json};
use std::time::Instant;

/// The result of the hunt for one mutant.
struct MutantHunt {
    mutant: &'static MutantInfo,
    /// The first run in which something was wrong, and the command that makes it again.
    found: Option<(JudgedRun, String)>,
    /// How many seeds it took.
    seeds: u64,
}

/// Those of the service that runs above the protocol, or of the protocol.
fn all(args: &SimArgs) -> Vec<&'static MutantInfo> {
    match args.service {
        Some(_) => {
            let applies = |mutant| trial::service_mutant_applies(args, mutant);
            let all = ServiceMutant::ALL.iter().filter(|declared| applies(declared.mutant));
            all.map(|declared| &declared.info).collect()
        }
        None => catalog::mutants(&args.protocol).iter().collect(),
    }
}

/// The mistakes that a service over this protocol cannot make, or whose effects its clients cannot see.
fn inapplicable(args: &SimArgs) -> Vec<&'static MutantInfo> {
    let applies = |mutant| trial::service_mutant_applies(args, mutant);
    let others = ServiceMutant::ALL.iter().filter(|declared| !applies(declared.mutant));
    others.map(|declared| &declared.info).filter(|_| args.service.is_some()).collect()
}

/// The mutant of that name, `all` aside.
pub(super) fn known(args: &SimArgs, name: &str) -> Result<(), Failure> {
    let (all, protocol) = (all(args), &args.protocol);
    if name == "all" || all.iter().any(|m| m.name == name) {
        return Ok(());
    }
    let names: Vec<_> = all.iter().map(|m| m.name).collect();
    let there_are = match names[..] {
        [] => "it has none".to_string(),
        _ => format!("there are: all, {}", names.join(", ")),
    };
    Err(Failure::Misuse(format!("{protocol} has no mutant {name:?}; {there_are}")))
}

/// Of the seeds, a hunt takes one in so many for a mutant that a test or a scenario shows, and runs hardly ever do.
const SHOWN_ELSEWHERE: u64 = 10;

/// Goes through all mutants of the protocol; fails if one survives `seeds` seeds that nothing else shows.
pub(super) fn hunt(args: &SimArgs, first: u64, seeds: u64) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut all = Vec::new();
    for mutant in self::all(args) {
        let trial = |seed| Trial::new(args, seed, Some(mutant.name));
        let seeds = match mutant.shown_by {
            Some(_) => seeds.div_ceil(SHOWN_ELSEWHERE),
            None => seeds,
        };
        let RunSummary { wrong, .. } = judge_all(&trial, first, seeds)?;
        let found = match wrong {
            None => None,
            Some(judged) => {
                let replay = trial(judged.seed)?.replay();
                Some((judged, replay))
            }
        };
        let needed =
            found.as_ref().map_or(seeds, |(judged, _): &(JudgedRun, _)| judged.seed - first + 1);
        let hunted = MutantHunt { mutant, found, seeds: needed };
        if !args.json {
            hunted.print();
        }
        all.push(hunted);
    }
    let survived = |h: &&MutantHunt| h.found.is_none() && h.mutant.shown_by.is_none();
    let survivors: Vec<_> = all.iter().filter(survived).collect();
    if args.json {
        let document = json!({
            "protocol": args.protocol,
            "ok": survivors.is_empty(),
            "seeds": seeds,
            "seconds": begun.elapsed().as_secs_f64(),
            "mutants": all.iter().map(MutantHunt::json).collect::<Vec<_>>(),
            "inapplicable": inapplicable(args).iter().map(|m| m.name).collect::<Vec<_>>(),
        });
        println!("{document}");
    } else {
        let found = all.iter().filter(|h| h.found.is_some()).count();
        let (all, took) = (all.len(), begun.elapsed());
        println!("{found} of {all} mutants found, in {:.1} s", took.as_secs_f64());
        for mutant in inapplicable(args) {
            println!("{:<22} cannot be made above {}: {}", mutant.name, args.protocol, mutant.what);
        }
    }
    if survivors.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = survivors.iter().map(|h| h.mutant.name).collect();
    Err(Failure::Failed(format!("not found within {seeds} seeds: {}", names.join(", "))))
}

impl MutantHunt {
    fn print(&self) {
        let name = self.mutant.name;
        let Some((judged, replay)) = &self.found else {
            let shown = self.mutant.shown_by.map(|file| format!("; {file} shows it"));
            let runs = trial::count(self.seeds as usize, "seed");
            println!("{name:<22} not found within {runs}{}", shown.unwrap_or_default());
            return;
        };
        let what = judged.wrong.as_ref().map_or("", |w| w.what.name());
        let after = trial::count(self.seeds as usize, "seed");
        println!("{name:<22} {what:<22} seed {}, after {after}\n    {replay}", judged.seed);
    }

    fn json(&self) -> Value {
        let wrong = self.found.as_ref().and_then(|(judged, _)| judged.wrong.as_ref());
        json!({
            "name": self.mutant.name,
            "what": self.mutant.what,
            "breaks": self.mutant.breaks.iter().map(|p| p.name()).collect::<Vec<_>>(),
            "shown_by": self.mutant.shown_by,
            "found": self.found.is_some(),
            "seeds": self.seeds,
            "seed": self.found.as_ref().map(|(judged, _)| judged.seed),
            "property": wrong.map(|w| w.what.name()),
            "says": wrong.map(|w| &w.says),
            "replay": self.found.as_ref().map(|(_, replay)| replay),
        })
    }
}
