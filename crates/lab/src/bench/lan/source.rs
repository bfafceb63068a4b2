//! The messages that a process of a measurement broadcasts, and when.

use super::LanLoad;
use super::member::LanTask;
use crate::bench::votes::VoteSource;
use amcast_core::rng::Rng;
use amcast_core::{Span, Time};
use std::collections::VecDeque;

/// The messages of a member: one that says that it has begun, and those of the load.
pub(super) struct LanSource {
    payload: Vec<u8>,
    /// Bytes of the next message.
    bytes: usize,
    times: LanTimes,
    /// When each message that is not delivered was due.
    due: VecDeque<Time>,
    /// Before this time nothing is due. The first message is due at once.
    next: Time,
    has_begun: bool,
    rng: Rng,
}

/// When the messages of a load are due.
enum LanTimes {
    /// As soon as fewer own ones are on the way.
    Outstanding(usize),
    /// At random, so many nanoseconds apart on average.
    Random(u64),
    /// At the times of a source, so many nanoseconds apart on average.
    Source(VoteSource, u64),
    /// At a rate that changes.
    Phases(LanPhases),
    /// Never: this member only delivers.
    Never,
}

/// The demand of one member, phase by phase.
struct LanPhases {
    /// How long a phase takes.
    span: Span,
    /// When the first one begins to be measured; it is in force before that, too.
    origin: Time,
    /// Megabits a second in each.
    mbps: Vec<f64>,
    /// Bytes of a message, at least and at most.
    bytes: [u64; 2],
}

impl LanPhases {
    /// How long after a message of so many bytes, due at that time, the next one is.
    fn apart(&self, at: Time, bytes: usize) -> Span {
        let phase = at.since(self.origin).0 / self.span.0.max(1);
        let mbps = self.mbps.get(phase as usize).or(self.mbps.last()).copied().unwrap_or(0.0);
        Span((bytes as f64 * 8e3 / mbps.max(1e-3)) as u64)
    }
}

impl LanSource {
    pub(super) fn new(task: &LanTask) -> Self {
        let times = match &task.load {
            LanLoad::Full { outstanding } => LanTimes::Outstanding(*outstanding),
            LanLoad::Open { senders, apart_ns } if task.me < *senders => {
                LanTimes::Random(*apart_ns)
            }
            LanLoad::One { sender, apart_ns } if task.me == *sender => LanTimes::Random(*apart_ns),
            LanLoad::Open { .. } | LanLoad::One { .. } => LanTimes::Never,
            LanLoad::Source { source, apart_ns } => LanTimes::Source(*source, *apart_ns),
            LanLoad::Phases { phase_ns, mbps, bytes } => LanTimes::Phases(LanPhases {
                span: Span(*phase_ns),
                origin: Time::ZERO,
                mbps: mbps.iter().filter_map(|of| of.get(task.me)).copied().collect(),
                bytes: *bytes,
            }),
        };
        let most = match &times {
            LanTimes::Phases(phases) => phases.bytes[1] as usize,
            _ => task.payload,
        };
        Self {
            payload: vec![task.me as u8; most],
            bytes: most,
            times,
            due: VecDeque::new(),
            next: Time::ZERO,
            has_begun: false,
            rng: Rng::new(task.me as u64 + 1),
        }
    }

    /// From here on the load is due; it is measured after so long.
    pub(super) fn begin(&mut self, now: Time, warm_up: Span) {
        self.has_begun = true;
        self.next = match &mut self.times {
            LanTimes::Random(apart) | LanTimes::Source(_, apart) => {
                now + Span(self.rng.below(*apart + 1))
            }
            LanTimes::Outstanding(_) => now,
            LanTimes::Phases(phases) => {
                phases.origin = now + warm_up;
                now
            }
            LanTimes::Never => Time::NEVER,
        };
    }

    /// Bytes of the next message.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the next message is due, as far as that is known.
    pub(super) const fn next_at(&self) -> Time {
        match self.times {
            LanTimes::Outstanding(_) => Time::NEVER,
            _ => self.next,
        }
    }

    /// The next message, if it is due and there is room for it.
    pub(super) fn next(&mut self, now: Time, room: usize) -> Option<&[u8]> {
        let is_over = matches!(self.times, LanTimes::Outstanding(most) if self.due.len() >= most);
        if room == 0 || now < self.next || is_over {
            return None;
        }
        let is_timed = !matches!(self.times, LanTimes::Outstanding(_) | LanTimes::Never);
        // A stall counts for all that was due in it.
        self.due.push_back(if is_timed && self.has_begun { self.next } else { now });
        let bytes = self.bytes;
        match &self.times {
            _ if !self.has_begun => self.next = Time::NEVER,
            LanTimes::Random(apart) => self.next += Span(1 + self.rng.below(2 * apart)),
            LanTimes::Source(source, apart) => {
                self.next += source.interval(Span(*apart), &mut self.rng);
            }
            LanTimes::Phases(phases) => {
                self.next += phases.apart(self.next, bytes);
                let [least, most] = phases.bytes;
                self.bytes = (least + self.rng.below(most - least + 1)) as usize;
            }
            LanTimes::Outstanding(_) | LanTimes::Never => {}
        }
        Some(&self.payload[..bytes])
    }

    /// The oldest own message is delivered: when it was due.
    pub(super) fn delivered(&mut self) -> Option<Time> {
        self.due.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn source(me: usize, load: LanLoad) -> LanSource {
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        LanSource::new(&LanTask {
            protocol: String::new(),
            set: Vec::new(),
            me,
            cluster_id: 0,
            addresses: vec![address; 2],
            group: address,
            payload: 10,
            load,
            seconds: [0.0, 1.0],
            kinds: false,
        })
    }

    /// The bytes of the messages that are due from one time to another, when each may leave at once.
    fn sent(source: &mut LanSource, from: Time, until: Time) -> usize {
        let mut bytes = 0;
        while source.next_at() < until {
            let at = source.next_at().max(from);
            bytes += source.next(at, 1).map_or(0, <[u8]>::len);
        }
        bytes
    }

    #[test]
    fn the_demand_of_a_member_is_that_of_the_phase_and_the_last_one_lasts() {
        let second = Span::secs(1);
        let load = LanLoad::Phases {
            phase_ns: second.0,
            mbps: vec![vec![9.0, 8.0], vec![9.0, 80.0]],
            bytes: [100, 600],
        };
        let mut source = source(1, load);
        assert_eq!(source.next(Time::ZERO, 1).map(<[u8]>::len), Some(600), "it has begun");
        assert!(source.next(Time::ZERO + second, 1).is_none(), "the load has not");
        source.begin(Time::ZERO + second, second.times(2));
        let mut of = |from, until| {
            let [from, until] = [from, until].map(|s| Time::ZERO + second.times(s));
            sent(&mut source, from, until) as f64 / 1e6
        };
        let found = [of(1, 3), of(3, 4), of(4, 5), of(5, 6)];
        for (bytes, expected) in found.into_iter().zip([2.0, 1.0, 10.0, 10.0]) {
            assert!((bytes - expected).abs() < 0.01, "{found:?}");
        }
    }

    #[test]
    fn a_full_load_waits_for_deliveries_and_a_member_that_does_not_send_for_nothing() {
        let mut full = source(0, LanLoad::Full { outstanding: 2 });
        full.begin(Time::ZERO, Span::ZERO);
        let count = |source: &mut LanSource| {
            std::iter::from_fn(|| source.next(Time::ZERO, 1).map(|_| ())).count()
        };
        assert_eq!(count(&mut full), 2);
        assert_eq!(full.delivered(), Some(Time::ZERO));
        assert_eq!(count(&mut full), 1);
        for load in [
            LanLoad::Open { senders: 1, apart_ns: 5 },
            LanLoad::One { sender: 0, apart_ns: 5 },
            LanLoad::One { sender: 2, apart_ns: 5 },
        ] {
            let mut silent = source(1, load);
            assert_eq!(count(&mut silent), 1, "it has begun");
            silent.begin(Time::ZERO, Span::ZERO);
            assert!(silent.next_at() == Time::NEVER && count(&mut silent) == 0);
        }
        let mut sends = source(1, LanLoad::One { sender: 1, apart_ns: 5 });
        assert_eq!(count(&mut sends), 1, "it has begun");
        sends.begin(Time::ZERO, Span::ZERO);
        assert!(sends.next_at() < Time::NEVER);
    }
}
