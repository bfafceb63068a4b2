//! A group whose links strangers use, too.

use super::cluster::{Lan, frames_dropped, result};
use super::member::LanReport;
use super::strangers::{
    LanStranger, OpenStranger, StrangerResult, segments_sent_again, sleep_until,
};
use super::watch::{COURSE_STEP, MemberStep};
use super::{LanBroadcasts, LanResult};
use crate::bench::{Latency, histogram};
use amcast_core::{Span, Time};
use amcast_hosts::HostLab;
use serde::Serialize;
use std::ops::Range;

/// A measurement of one protocol beside strangers.
#[derive(Clone, Debug)]
pub struct ContendedBroadcasts {
    /// The protocol and its load.
    pub broadcasts: LanBroadcasts,
    /// The strangers.
    pub strangers: Vec<LanStranger>,
    /// Times after the members begin to measure at which losses are read, in order.
    pub samples: Vec<Span>,
}

/// The result of a measurement beside strangers.
#[derive(Clone, Debug)]
pub struct ContendedResult {
    /// Of the whole time.
    pub whole: LanResult,
    /// Of each stranger.
    pub strangers: Vec<StrangerResult>,
    /// From each time at which losses were read to the next one.
    pub lost: Vec<FramesLost>,
    /// By tenth of a second, what all members observed.
    course: Vec<MemberStep>,
}

/// Frames that were lost between two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FramesLost {
    /// Frames of anybody that found the queue in front of a link full.
    pub all: u64,
    /// Of these, those of strangers: datagrams that did not arrive, and segments that a connection sent again, which tells a little
    /// later, and about.
    pub of_strangers: u64,
}

/// Counts at one moment.
#[derive(Clone, Copy, Debug)]
struct FrameCounts {
    dropped: u64,
    sent_again: u64,
}

impl FramesLost {
    /// Frames of the members.
    pub const fn of_members(self) -> u64 {
        self.all.saturating_sub(self.of_strangers)
    }

    /// Together.
    pub const fn plus(self, other: Self) -> Self {
        Self { all: self.all + other.all, of_strangers: self.of_strangers + other.of_strangers }
    }
}

impl ContendedResult {
    /// Megabits of payload a second that a member delivered in these tenths of a second, on average over the members.
    pub fn delivered_mbps(&self, steps: Range<usize>) -> f64 {
        let count = steps.len().max(1) as f64;
        self.whole.course_mbps.iter().take(steps.end).skip(steps.start).sum::<f64>() / count
    }

    /// How long messages took that were delivered at their senders in these tenths of a second.
    pub fn latency(&self, steps: Range<usize>) -> Latency {
        let mut all = histogram();
        let steps = self.course.iter().take(steps.end).skip(steps.start);
        let all_ns = steps.flat_map(|step| &step.latencies_ns);
        all_ns.for_each(|ns| all.saturating_record(*ns));
        Latency::of(&all)
    }

    /// How often members announced another rate of their links in these tenths of a second, all together.
    pub fn capacity_changes(&self, steps: Range<usize>) -> u64 {
        let steps = self.course.iter().take(steps.end).skip(steps.start);
        steps.map(|step| step.capacity_changes).sum()
    }
}

impl Lan {
    /// Runs a protocol on the first hosts, whose links strangers use, too.
    ///
    /// # Errors
    /// With what could not be set up, that a stranger could not send, or that members delivered in different orders.
    pub fn run_contended(&mut self, plan: &ContendedBroadcasts) -> Result<ContendedResult, String> {
        let open = |of: &LanStranger| OpenStranger::new(self.hosts(), *of);
        let open = plan.strangers.iter().map(open).collect::<Result<Vec<_>, String>>()?;
        let during = |lab: &HostLab, origin| observe(lab, plan, open, origin);
        let (said, in_links, (strangers, counts)) = self.run_with(&plan.broadcasts, during)?;
        Ok(ContendedResult {
            whole: result(&plan.broadcasts, &said, in_links)?,
            lost: losses(&counts, &plan.samples, &strangers),
            strangers,
            course: together(said),
        })
    }
}

/// Runs the strangers, and reads the counts at their times.
fn observe(
    lab: &HostLab,
    plan: &ContendedBroadcasts,
    open: Vec<OpenStranger>,
    origin: Time,
) -> Result<(Vec<StrangerResult>, Vec<FrameCounts>), String> {
    let hosts = plan.broadcasts.members;
    let read = |at: &Span| {
        sleep_until(origin + *at)?;
        let again = |host| segments_sent_again(lab, host);
        let sent_again = (0..hosts).map(again).sum::<Result<u64, String>>()?;
        Ok(FrameCounts { dropped: frames_dropped(lab, hosts)?, sent_again })
    };
    std::thread::scope(|scope| {
        let running: Vec<_> =
            open.into_iter().map(|stranger| scope.spawn(move || stranger.run(origin))).collect();
        let counts = plan.samples.iter().map(read).collect::<Result<Vec<_>, String>>();
        let ended = running.into_iter().map(|run| run.join().expect("a stranger does not panic"));
        let strangers = ended.collect::<Result<Vec<_>, String>>()?;
        Ok((strangers, counts?))
    })
}

/// The losses from each count to the next one.
fn losses(
    counts: &[FrameCounts],
    samples: &[Span],
    strangers: &[StrangerResult],
) -> Vec<FramesLost> {
    let lost_until = |at: Span| {
        let steps = (at.0 / COURSE_STEP.0) as usize;
        strangers.iter().flat_map(|of| of.lost.iter().take(steps)).sum::<u64>()
    };
    let all = counts.windows(2).zip(samples.windows(2));
    all.map(|(counts, times)| FramesLost {
        all: counts[1].dropped - counts[0].dropped,
        of_strangers: lost_until(times[1]) - lost_until(times[0]) + counts[1].sent_again
            - counts[0].sent_again,
    })
    .collect()
}

/// The observations of all members, step by step.
fn together(said: Vec<LanReport>) -> Vec<MemberStep> {
    let mut all: Vec<MemberStep> = Vec::new();
    for course in said.into_iter().map(|one| one.course) {
        if all.len() < course.len() {
            all.resize_with(course.len(), MemberStep::default);
        }
        for (all, mut step) in all.iter_mut().zip(course) {
            all.bytes += step.bytes;
            all.latencies_ns.append(&mut step.latencies_ns);
            all.capacity_changes += step.capacity_changes;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::lan::StrangerFlow;

    fn stranger(lost: Vec<u64>) -> StrangerResult {
        StrangerResult {
            flow: StrangerFlow::Tcp,
            seconds: [0.0, 1.0],
            congestion: None,
            arrived_mbps: 0.0,
            course_mbps: Vec::new(),
            sent: lost.clone(),
            lost,
        }
    }

    #[test]
    fn frames_of_strangers_are_none_of_the_members() {
        let counts = |dropped, sent_again| FrameCounts { dropped, sent_again };
        let counts = [counts(5, 1), counts(25, 1), counts(40, 9)];
        let samples = [100, 300, 500].map(Span::millis);
        let strangers = [stranger(vec![7, 1, 2, 3, 4]), stranger(vec![0, 10])];
        let lost = losses(&counts, &samples, &strangers);
        let [first, second] =
            [(20, 13), (15, 15)].map(|(all, of_strangers)| FramesLost { all, of_strangers });
        assert_eq!(lost, [first, second]);
        assert_eq!((first.of_members(), second.of_members()), (7, 0));
        assert_eq!(first.plus(second).of_members(), 7);
    }
}
