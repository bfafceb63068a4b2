//! Our protocols beside programs of others, under the same bursts and in turns with them.

use super::page::{ClaimVerdict, PagePart, PaperClaim};
use crate::bench::Spread;
use crate::bench::bursts::BurstRepeat;
use crate::bench::rivals::Rival;
use amcast::choose::enforced;
use amcast_core::Entry;
use maud::html;
use serde::Serialize;

/// How many times a rival's throughput, and what part of its latency, is aimed at.
const AIM: f64 = 5.0;

/// Ours beside a rival, with bursts of one size: the fastest that enforces the rival's specification or
/// a stronger one. Ratios are of turns that followed each other.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RivalComparison {
    rival: &'static str,
    medium: &'static str,
    specification: String,
    setting: &'static str,
    burst: usize,
    /// Deliveries a second: the protocol of ours with the most, and how many times the rival's.
    fastest: &'static str,
    throughput_times: Spread,
    /// Mean latency: the protocol of ours with the least, and how many times longer the rival's is.
    soonest: &'static str,
    latency_times: Spread,
}

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BurstFigure {
    Latency,
    Throughput,
}

fn mean(all: &[BurstRepeat], of: impl Fn(&BurstRepeat) -> f64) -> f64 {
    all.iter().map(of).sum::<f64>() / all.len().max(1) as f64
}

/// Compares one size of bursts, repeat by repeat; none where nothing of ours enforces as much.
pub(super) fn compare<'a>(
    rival: Rival,
    burst: usize,
    ours: impl Iterator<Item = (&'static dyn Entry, &'a [BurstRepeat])>,
    theirs: &[BurstRepeat],
) -> Option<RivalComparison> {
    let specification = rival.specification();
    let enforces = |row: &dyn Entry| {
        enforced(row).is_some_and(|has| has.admits().within(specification.admits()))
    };
    let ours: Vec<_> = ours.filter(|(row, _)| enforces(*row)).collect();
    let per_second = |r: &BurstRepeat| r.per_second;
    let latency = |r: &BurstRepeat| r.latency_us;
    let fastest =
        ours.iter().max_by(|a, b| mean(a.1, per_second).total_cmp(&mean(b.1, per_second)))?;
    let soonest = ours.iter().min_by(|a, b| mean(a.1, latency).total_cmp(&mean(b.1, latency)))?;
    let pairs = |ours: &'a [BurstRepeat]| ours.iter().zip(theirs);
    Some(RivalComparison {
        rival: rival.name(),
        medium: rival.wire().name(),
        specification: specification.to_string(),
        setting: rival.setting(),
        burst,
        fastest: fastest.0.name(),
        throughput_times: Spread::of(pairs(fastest.1).map(|(a, b)| a.per_second / b.per_second))?,
        soonest: soonest.0.name(),
        latency_times: Spread::of(pairs(soonest.1).map(|(a, b)| b.latency_us / a.latency_us))?,
    })
}

impl RivalComparison {
    fn times(&self, figure: BurstFigure) -> (&'static str, Spread) {
        match figure {
            BurstFigure::Latency => (self.soonest, self.latency_times),
            BurstFigure::Throughput => (self.fastest, self.throughput_times),
        }
    }
}

/// The targets with the largest bursts, and the results.
pub(super) fn claims(all: &[RivalComparison], figure: BurstFigure) -> Vec<PaperClaim> {
    let largest = all.iter().map(|v| v.burst).max();
    let claim = |v: &RivalComparison| {
        let (ours, times) = v.times(figure);
        let aim = match figure {
            BurstFigure::Latency => "a fifth of the latency",
            BurstFigure::Throughput => "five times the throughput",
        };
        let (rival, medium) = (v.rival, v.medium);
        PaperClaim {
            paper: format!(
                "ours: {aim} of {rival} over {medium}, for the specification that it offers, {}",
                v.specification
            ),
            found: format!(
                "{ours}: {:.1} times better ({:.1} to {:.1}), with bursts of {}",
                times.median, times.min, times.max, v.burst
            ),
            holds: ClaimVerdict::when(times.median >= AIM),
        }
    };
    all.iter().filter(|v| Some(v.burst) == largest).map(claim).collect()
}

/// All ratios, if there are rivals.
pub(super) fn table(all: &[RivalComparison]) -> Option<PagePart> {
    let row = |v: &RivalComparison| {
        let told = |(name, times): (&str, Spread)| {
            let Spread { median, min, max } = times;
            html! { (format!("{median:.1} ({min:.1} to {max:.1}), {name}")) }
        };
        vec![
            html! { (v.rival) ", " (v.medium) },
            html! { (v.specification) },
            html! { (v.burst) },
            told(v.times(BurstFigure::Throughput)),
            told(v.times(BurstFigure::Latency)),
        ]
    };
    let head = [
        "rival",
        "specification that it offers",
        "burst",
        "our throughput, times its",
        "its latency, times ours",
    ];
    let part = PagePart::Table {
        caption: "Beside programs of others: medians of the repeats, and extremes".to_string(),
        head: head.map(String::from).to_vec(),
        rows: all.iter().map(row).collect(),
    };
    (!all.is_empty()).then_some(part)
}

/// How rivals were set up, and which are missing.
pub(super) fn describe_rivals(all: &[RivalComparison], absent: &[String]) -> String {
    let mut text = String::new();
    let mut settings: Vec<_> = all.iter().map(|v| v.setting).collect();
    settings.dedup();
    if !settings.is_empty() {
        text.push_str(
            " Programs of others take turns with ours, with the same definitions of latency and \
             throughput; their groups stay up in between. They deliver without waiting for a majority \
             and keep nothing, so each is compared with what enforces the same specification of ours, or \
             a stronger one; of these with the best of this run, which chance favours where repeats are \
             few. ",
        );
        text.push_str(&settings.join(". "));
        text.push('.');
    }
    for why in absent {
        text.push(' ');
        text.push_str(why);
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::bursts::BurstMedium;
    use amcast_protocols::total::{BB_RCAST_RCAST, PB_RCAST, SB_URCAST};

    const fn repeat(latency_us: f64, per_second: f64) -> BurstRepeat {
        BurstRepeat { latency_us, per_second }
    }

    #[test]
    fn a_rival_is_compared_with_the_fastest_that_enforces_as_much() {
        let weak = [repeat(10.0, 900.0), repeat(10.0, 900.0)];
        let token = [repeat(20.0, 500.0), repeat(40.0, 500.0)];
        let strong = [repeat(50.0, 600.0), repeat(50.0, 600.0)];
        let ours = || {
            let rows: [(&'static dyn Entry, &[BurstRepeat]); 3] =
                [(&BB_RCAST_RCAST, &weak), (&PB_RCAST, &token), (&SB_URCAST, &strong)];
            rows.into_iter()
        };
        let theirs = [repeat(100.0, 100.0), repeat(160.0, 50.0)];
        let all = compare(Rival::Jgroups(BurstMedium::Tcp), 100, ours(), &theirs).unwrap();
        assert_eq!((all.fastest, all.soonest), ("bb-rcast-rcast", "bb-rcast-rcast"));
        assert_eq!((all.throughput_times.min, all.throughput_times.max), (9.0, 18.0));
        // One token orders weakly uniformly, and bb-rcast-rcast does not enforce that.
        let ordered = compare(Rival::Corosync, 100, ours(), &theirs).unwrap();
        assert_eq!((ordered.fastest, ordered.soonest), ("sb-urcast", "pb-rcast"));
        assert_eq!((ordered.latency_times.min, ordered.latency_times.max), (4.0, 5.0));
        let claims = claims(&[ordered], BurstFigure::Latency);
        assert_eq!(claims[0].holds, ClaimVerdict::No, "the median of two is the lower one, 4");
        assert!(claims[0].found.starts_with("pb-rcast: 4.0 times better (4.0 to 5.0)"));
    }
}
