//! How the links of a lab behave.

use crate::LabError;
use crate::relay::FRAMES_MAX;
use std::time::Duration;

/// Headers of a UDP datagram on the wire, in bytes: Ethernet 14, IPv4 20, UDP 8. The kernel's shaper counts
/// these, and neither preamble nor checksum of Ethernet.
const UDP_HEADERS: f64 = 42.0;

/// The longest delay of a link.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// The bits of a frame of full size.
const FRAME_BITS: u64 = 1514 * 8;

/// The smallest queue, in bytes: some frames of full size.
const QUEUE_BYTES_MIN: u32 = 16 << 10;

/// The links between the hosts of a lab and their switch or router. All hosts have the same at first.
///
/// A datagram passes the sender's link and the receiver's: each limits its rate, the sender's delays it, and the
/// receiver's may lose it. So one datagram is delayed once and is lost with one probability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// The rate of each direction of a host's link, in bits per second of Ethernet frames; no limit if `None`.
    pub rate_bits_per_s: Option<u64>,
    /// How long a link delays each frame that its host sends, at most 10 s. A round trip takes twice as long. The delay
    /// is made by a thread of this process, so it is exact to some tens of microseconds. At most 65,536 frames are
    /// delayed at a time, and more are lost: a rate at which frames of full size would be more is refused.
    pub delay: Duration,
    /// How many of a million frames to a host its link loses, at random.
    pub loss_ppm: u32,
    /// How many bytes wait at the sending end of a direction that is limited in rate. If there are more, the
    /// newest are dropped. At least 16 KiB, and a millisecond's worth at high rates.
    pub queue_bytes: u32,
    /// How many bytes a direction that was idle passes at once, faster than its rate: at least two frames of 1514 bytes. Fewer
    /// make a short message take as long as it does on a wire; more let a busy machine be late and reach the rate. If none,
    /// 16 KiB, or a millisecond's worth at high rates.
    pub burst_bytes: Option<u32>,
}

impl Default for LinkSettings {
    /// No limit, no delay and no loss; a queue of 256 KiB where there is a limit.
    fn default() -> Self {
        Self {
            rate_bits_per_s: None,
            delay: Duration::ZERO,
            loss_ppm: 0,
            queue_bytes: 256 << 10,
            burst_bytes: None,
        }
    }
}

impl LinkSettings {
    /// Links of this rate, in bits per second of Ethernet frames, that neither delay nor lose.
    pub fn of_rate(bits_per_s: u64) -> Self {
        Self { rate_bits_per_s: Some(bits_per_s), ..Self::default() }
    }

    /// The most payload that UDP datagrams of this many bytes of payload can carry over a link, in bytes per
    /// second; none if there is no limit. The datagrams are not fragmented.
    pub fn udp_goodput_max(&self, payload_bytes: usize) -> Option<f64> {
        let payload = payload_bytes as f64;
        self.rate_bits_per_s.map(|rate| rate as f64 / 8.0 * payload / (payload + UDP_HEADERS))
    }

    /// Refuses settings that no kernel can follow.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if self.rate_bits_per_s.is_some_and(|rate| rate < 8_000) {
            return Err(LabError::Settings("a link has a rate of at least 8000 bit/s".to_string()));
        }
        if self.queue_bytes < QUEUE_BYTES_MIN {
            let why = format!("the queue of a link has at least {QUEUE_BYTES_MIN} bytes");
            return Err(LabError::Settings(why));
        }
        if self.burst_bytes.is_some_and(|burst| u64::from(burst) * 8 < 2 * FRAME_BITS) {
            let why = "a link passes at least two frames of 1514 bytes at once".to_string();
            return Err(LabError::Settings(why));
        }
        if self.delay > DELAY_MAX {
            let why = format!("a link delays frames for at most {} s", DELAY_MAX.as_secs());
            return Err(LabError::Settings(why));
        }
        let delayed = self.rate_bits_per_s.map_or(0.0, |rate| rate as f64 / FRAME_BITS as f64)
            * self.delay.as_secs_f64();
        if delayed > FRAMES_MAX as f64 {
            return Err(LabError::Settings(format!(
                "at that rate {delayed:.0} frames are delayed at a time, and a link delays {FRAMES_MAX} at most: give a \
                 lower rate or a shorter delay"
            )));
        }
        check_loss(self.loss_ppm)
    }
}

/// Refuses a loss of more than all frames.
pub(crate) fn check_loss(loss_ppm: u32) -> Result<(), LabError> {
    match loss_ppm {
        0..=1_000_000 => Ok(()),
        _ => Err(LabError::Settings(format!("a link cannot lose {loss_ppm} of a million frames"))),
    }
}

/// Which frames between two hosts a cut drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Only those from the first host to the second.
    OneWay,
    /// Those of both.
    BothWays,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_datagrams_are_no_goodput() {
        let links = LinkSettings::of_rate(80_000_000);
        assert_eq!(links.udp_goodput_max(42), Some(5_000_000.0));
        assert_eq!(LinkSettings::default().udp_goodput_max(42), None);
    }

    #[test]
    fn impossible_links_are_refused() {
        assert!(LinkSettings::default().check().is_ok());
        assert!(LinkSettings::of_rate(1).check().is_err());
        let burst = |bytes| {
            LinkSettings { burst_bytes: Some(bytes), ..LinkSettings::of_rate(1_000_000) }.check()
        };
        assert!(burst(3027).is_err() && burst(3028).is_ok());
        let all_and_more = LinkSettings { loss_ppm: 1_000_001, ..LinkSettings::default() };
        assert!(all_and_more.check().is_err());
        let late = |delay, rate| LinkSettings { delay, ..LinkSettings::of_rate(rate) }.check();
        assert!(late(Duration::MAX, 1_000_000).is_err());
        assert!(late(Duration::from_secs(10), 1_000_000).is_ok());
        let why = late(Duration::from_secs(1), 1_000_000_000).unwrap_err().to_string();
        assert!(why.contains("82563 frames"), "{why}");
        assert!(late(Duration::from_millis(500), 1_000_000_000).is_ok());
    }
}
