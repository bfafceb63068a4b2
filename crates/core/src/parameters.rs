//! Parameters that several protocols have, or that drivers act on: each is declared once, with its name,
//! meaning, default and range, as a typed handle.
//!
//! A protocol lists `HANDLE.param()` among its parameters, or [`SharedParam::with`] where it has a reason for
//! another default or range, which is written beside the value and shown by `amcast config --explain`. A
//! runtime or a tool reads and sets a value through the handle ([`SharedParam::find`], [`SharedParam::setting`]): no
//! name of a parameter appears in its code. Names, as files and `--set` know them, are part of the handle.

use crate::config::{Config, ConfigError, Param, ParamKind};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::time::Span;
use alloc::string::{String, ToString};
use core::marker::PhantomData;

/// A type of values that a parameter's number encodes.
pub trait ParamValue: Copy {
    /// The value of that number.
    fn of(number: u64) -> Self;

    /// The number of the value.
    fn number(self) -> u64;
}

/// In microseconds.
impl ParamValue for Span {
    fn of(number: u64) -> Self {
        Self::micros(number)
    }

    fn number(self) -> u64 {
        self.0 / 1000
    }
}

/// A count, or bytes.
impl ParamValue for usize {
    fn of(number: u64) -> Self {
        number as Self
    }

    fn number(self) -> u64 {
        self as u64
    }
}

/// The rate of a network link: megabits a second of datagrams, without what the network adds to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkRate {
    /// Megabits a second, of 1,000,000 bits.
    pub mbps: u64,
}

impl LinkRate {
    /// In bytes a second.
    pub const fn bytes_per_s(self) -> u64 {
        self.mbps * 125_000
    }

    /// In kilobytes a second, of 1000 bytes.
    pub const fn kilobytes_per_s(self) -> u64 {
        self.mbps * 125
    }
}

impl ParamValue for LinkRate {
    fn of(number: u64) -> Self {
        Self { mbps: number }
    }

    fn number(self) -> u64 {
        self.mbps
    }
}

/// A shared parameter whose values are `T`.
#[derive(Clone, Copy, Debug)]
pub struct SharedParam<T> {
    param: Param,
    value: PhantomData<T>,
}

impl<T> SharedParam<T> {
    const fn new(param: Param) -> Self {
        Self { param, value: PhantomData }
    }

    /// Its declaration, for the list of a protocol's parameters.
    pub const fn param(&self) -> Param {
        self.param
    }

    /// Its declaration with other values, for the list of a protocol that has this reason for them.
    pub const fn with(&self, kind: ParamKind, reason: &'static str) -> Param {
        Param { kind, source: reason, ..self.param }
    }

    /// Its name, as in files and behind `--set`.
    pub const fn name(&self) -> &'static str {
        self.param.name
    }

    /// Whether it is among these parameters of a protocol.
    pub fn is_in(&self, params: &[Param]) -> bool {
        params.iter().any(|param| self.is(param))
    }

    /// Whether that is the declaration of this parameter.
    pub fn is(&self, param: &Param) -> bool {
        param.name == self.param.name
    }
}

impl<T: ParamValue> SharedParam<T> {
    /// Its value. Panics if the configuration was checked without it.
    pub fn get(&self, config: &Config) -> T {
        T::of(config.get(&self.param))
    }

    /// Its value, if the protocol of the configuration has it.
    pub fn find(&self, config: &Config) -> Option<T> {
        config.find(self.param.name).map(T::of)
    }

    /// Name and text of a value, as a configuration is written.
    pub fn setting(&self, value: T) -> (String, String) {
        let text = match self.param.kind {
            ParamKind::Choice { of } => of[value.number() as usize].to_string(),
            ParamKind::Number { .. } | ParamKind::Sets => value.number().to_string(),
        };
        (self.param.name.to_string(), text)
    }
}

/// The transport of packets: the value of [`LANE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketLane {
    /// Streams.
    Stream,
    /// Datagrams, each to one process.
    Datagram,
    /// Datagrams; a message to all members of a group is one.
    Multicast,
}

impl PacketLane {
    /// Its name as a value of [`LANE`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Datagram => "datagram",
            Self::Multicast => "multicast",
        }
    }
}

impl ParamValue for PacketLane {
    fn of(number: u64) -> Self {
        match number {
            0 => Self::Stream,
            1 => Self::Datagram,
            _ => Self::Multicast,
        }
    }

    fn number(self) -> u64 {
        self as u64
    }
}

/// How a member that failed is found: the value of [`DETECTOR`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detector {
    /// By its silence.
    Timeouts,
    /// When it takes no connection any more.
    Connections,
}

impl ParamValue for Detector {
    fn of(number: u64) -> Self {
        match number {
            0 => Self::Timeouts,
            _ => Self::Connections,
        }
    }

    fn number(self) -> u64 {
        self as u64
    }
}

const fn number(default: u64, min: u64, max: u64) -> ParamKind {
    ParamKind::Number { default, min, max }
}

/// How often a process shows that it lives.
pub const HEARTBEAT: SharedParam<Span> = SharedParam::new(Param {
    name: "heartbeat_us",
    kind: number(5_000, 10, 10_000_000),
    about: "How often a process shows that it lives, in microseconds.",
    cost: "A message to each process that watches it, and a wake-up of an idle one. Over rings it also \
           says how much a process has, which makes room for more.",
    source: "ours",
});

/// How long a process may be silent.
pub const SUSPECT: SharedParam<Span> = SharedParam::new(Param {
    name: "suspect_us",
    kind: number(50_000, 20, 60_000_000),
    about: "How long a process may be silent before it is suspected and the others continue without it, in \
            microseconds. Over a network it grows, to two seconds at most, for one that proved slow.",
    cost: "Less shortens the time that a crash costs, and suspects slow processes more often.",
    source: "ours; the failure detector of the papers",
});

/// After how long something is asked again.
pub const RETRY: SharedParam<Span> = SharedParam::new(Param {
    name: "retry_us",
    kind: number(5_000, 10, 10_000_000),
    about: "After how long without an answer something is sent again, in microseconds; in groups with \
            views it grows to 16 times as long.",
    cost: "Less repairs losses sooner, and sends more in vain.",
    source: "ours",
});

/// How many own messages may be on the way.
pub const WINDOW: SharedParam<usize> = SharedParam::new(Param {
    name: "window",
    kind: number(64, 1, 4096),
    about: "Own messages that a process may have multicast and not have done; over rings for each ring.",
    cost: "Memory at each process that orders them, times senders. More hides latency, and lengthens \
           queues.",
    source: "ours",
});

/// How many bytes of own messages may be on the way.
pub const WINDOW_BYTES: SharedParam<usize> = SharedParam::new(Param {
    name: "window_bytes",
    kind: number(4 << 20, 64, 64 << 20),
    about: "Bytes of payload that a process may have multicast and not have done.",
    cost: "As much memory at each process that orders them, for each sender, at worst three times.",
    source: "ours",
});

/// The largest payload.
pub const PAYLOAD_MAX: SharedParam<usize> = SharedParam::new(Param {
    name: "payload_max_bytes",
    kind: number(PAYLOAD_BYTES_MAX as u64, 0, PAYLOAD_BYTES_MAX as u64),
    about: "The largest payload of one message, in bytes.",
    cost: "Must fit into window_bytes.",
    source: "ours",
});

/// The transport of packets.
pub const LANE: SharedParam<PacketLane> = SharedParam::new(Param {
    name: "lane",
    kind: ParamKind::Choice { of: &["stream", "datagram", "multicast"] },
    about: "The transport of packets. With multicast, a packet to all members is one datagram.",
    cost: "Streams wait for lost bytes; datagrams are retransmitted one by one. Multicast needs \
           a network that has it, and IPv4.",
    source: "ours",
});

/// The rate of the link of each node. A driver lets the datagrams of a process leave at this rate, at most.
pub const LINK: SharedParam<LinkRate> = SharedParam::new(Param {
    name: "link_mbps",
    kind: number(942, 1, 100_000),
    about: "The rate that the network link of a node carries, in megabits a second. A node's datagrams leave no faster; \
            where a protocol allocates bandwidth, its members share that rate.",
    cost: "More than the link carries loses datagrams under load; less leaves some of the link unused.",
    source: "FastCast 4.1: a link of 1 Gb/s",
});

/// How a member that failed is found.
pub const DETECTOR: SharedParam<Detector> = SharedParam::new(Param {
    name: "detector",
    kind: ParamKind::Choice { of: &["timeouts", "connections"] },
    about: "How a member that failed is found: by its silence, or when it takes no connection any more \
            in five attempts, and never by silence.",
    cost: "Connections find a process that died, and never suspect one that is only slow; but a \
           process that is partitioned away, or whose machine failed, may block the group for \
           seconds, or for good.",
    source: "FastCast 3",
});

/// Checks that a process which shows that it lives is not suspected: of so many `beats` in a row, one has to
/// come within the time that it may be silent.
///
/// # Errors
/// When [`HEARTBEAT`] is too long for [`SUSPECT`].
pub fn check_timers(config: &Config, beats: u64) -> Result<(), ConfigError> {
    let (heartbeat, suspect) = (HEARTBEAT.get(config), SUSPECT.get(config));
    let (h, s) = (heartbeat.number(), suspect.number());
    if h < s && h * beats <= s {
        return Ok(());
    }
    let wrong = match beats {
        0 | 1 => alloc::format!("heartbeat_us = {h} is not below suspect_us = {s}"),
        n => alloc::format!("heartbeat_us = {h} is more than 1/{n} of suspect_us = {s}"),
    };
    Err(ConfigError::Relation(alloc::format!(
        "{wrong}: everybody would be suspected; a tenth is a sound choice"
    )))
}

/// Checks that the largest payload fits into the window.
///
/// # Errors
/// When [`PAYLOAD_MAX`] is larger than [`WINDOW_BYTES`].
pub fn check_window(config: &Config) -> Result<(), ConfigError> {
    let (payload, window) = (PAYLOAD_MAX.get(config), WINDOW_BYTES.get(config));
    if payload <= window {
        return Ok(());
    }
    Err(ConfigError::Relation(alloc::format!(
        "payload_max_bytes = {payload} does not fit into window_bytes = {window}: such a payload could \
         never be sent"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawConfig;

    static PARAMS: [Param; 5] = [
        HEARTBEAT.param(),
        SUSPECT.param(),
        WINDOW_BYTES.param(),
        PAYLOAD_MAX.param(),
        LANE.param(),
    ];

    fn with(set: &[(String, String)]) -> Config {
        let raw = RawConfig { set: set.iter().cloned().collect(), ..RawConfig::default() };
        raw.check(&PARAMS).unwrap()
    }

    #[test]
    fn a_value_that_is_set_through_a_handle_is_found_through_it() {
        let config = with(&[SUSPECT.setting(Span::millis(9)), LANE.setting(PacketLane::Multicast)]);
        assert_eq!(SUSPECT.get(&config), Span::millis(9));
        assert_eq!(LANE.find(&config), Some(PacketLane::Multicast));
        assert_eq!((HEARTBEAT.get(&config), RETRY.find(&config)), (Span::millis(5), None));
        for lane in [PacketLane::Stream, PacketLane::Datagram, PacketLane::Multicast] {
            assert_eq!(LANE.get(&with(&[LANE.setting(lane)])), lane);
            assert_eq!(LANE.setting(lane).1, lane.name());
        }
        for detector in [Detector::Timeouts, Detector::Connections] {
            assert_eq!(Detector::of(detector.number()), detector);
        }
    }

    #[test]
    fn a_megabit_a_second_is_125_kilobytes_a_second() {
        let rate = LinkRate::of(8);
        assert_eq!((rate.kilobytes_per_s(), rate.bytes_per_s()), (1000, 1_000_000));
        assert_eq!(LINK.setting(rate), ("link_mbps".to_string(), "8".to_string()));
    }

    #[test]
    fn a_protocol_that_differs_says_why_and_keeps_the_name() {
        let param = WINDOW.with(number(1, 1, 2), "a reason");
        assert!(WINDOW.is(&param) && !WINDOW_BYTES.is(&param));
        assert_eq!((param.default(), param.source), (1, "a reason"));
    }

    #[test]
    fn timers_and_windows_that_do_not_go_together_are_refused() {
        let timers = |h, s, beats| {
            let set = [HEARTBEAT.setting(Span::micros(h)), SUSPECT.setting(Span::micros(s))];
            check_timers(&with(&set), beats).is_ok()
        };
        assert!(timers(99, 100, 1) && !timers(100, 100, 1) && !timers(101, 100, 1));
        assert!(timers(50, 100, 2) && !timers(51, 100, 2));
        let window = |payload, bytes| {
            let set = [PAYLOAD_MAX.setting(payload), WINDOW_BYTES.setting(bytes)];
            check_window(&with(&set)).is_ok()
        };
        assert!(window(100, 100) && !window(101, 100));
    }
}
