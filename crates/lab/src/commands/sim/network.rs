//! A simulated network whose figures are given on the command line.

use amcast_core::Span;
use amcast_sim::CarrierModel;
use std::fmt;
use std::str::FromStr;

/// A network that is the same for all: written as
/// `latency_us=40,loss_ppm=1000,mbit=100,buffer_kib=512,bus=0`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::commands) struct Network {
    /// How long a message takes, in microseconds.
    pub(in crate::commands) latency_us: u64,
    /// Chance in a million that a datagram is lost.
    pub(in crate::commands) loss_ppm: u64,
    /// Megabits each second that a process can send, and receive; 0 is no limit.
    pub(in crate::commands) mbit: u64,
    /// Kibibytes of datagrams that may wait for a port, and for a busy process; 0 is no limit.
    pub(in crate::commands) buffer_kib: u64,
    /// 1 where all share one cable of so many megabits, which carries one frame at a time.
    pub(in crate::commands) bus: u64,
}

/// A write to memory takes two microseconds, should the protocol use any.
const WRITE: Span = Span::micros(2);

/// Picoseconds that a byte takes at one megabit a second.
const PS_PER_BYTE_AT_1_MBIT: u64 = 8_000_000;

/// Datagrams that may be lost, in a million: where more are, a run takes longer to settle than it is
/// given, and where all are, no protocol can.
const LOSS_PPM_MAX: u64 = 500_000;

/// More is as much as none.
const BUFFER_KIB_MAX: u64 = 1 << 30;

impl Network {
    /// As the simulator has it.
    pub(in crate::commands) fn model(self) -> CarrierModel {
        let mut model = CarrierModel::constant(WRITE, Span::micros(self.latency_us));
        model.network.loss_ppm = self.loss_ppm;
        model.network.port_ps_per_byte = PS_PER_BYTE_AT_1_MBIT.checked_div(self.mbit).unwrap_or(0);
        model.network.port_buffer = self.buffer_kib << 10;
        model.network.socket_buffer = self.buffer_kib << 10;
        model.network.bus = self.bus == 1;
        model
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut network = Self { latency_us: 40, loss_ppm: 0, mbit: 0, buffer_kib: 0, bus: 0 };
        for part in text.split(',') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (target, most) = match name {
                "latency_us" => (&mut network.latency_us, 60_000_000),
                "loss_ppm" => (&mut network.loss_ppm, LOSS_PPM_MAX),
                "mbit" => (&mut network.mbit, PS_PER_BYTE_AT_1_MBIT),
                "buffer_kib" => (&mut network.buffer_kib, BUFFER_KIB_MAX),
                "bus" => (&mut network.bus, 1),
                _ => {
                    let names = "latency_us, loss_ppm, mbit, buffer_kib or bus";
                    return Err(format!("{name:?}: give {names}"));
                }
            };
            let given = value.parse().ok().filter(|v| *v <= most);
            *target = given.ok_or(format!("{part:?}: give {name}=NUMBER, at most {most}"))?;
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { latency_us, loss_ppm, mbit, buffer_kib, bus } = self;
        write!(
            f,
            "latency_us={latency_us},loss_ppm={loss_ppm},mbit={mbit},buffer_kib={buffer_kib},bus={bus}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_nonsense_is_refused_by_name() {
        let network: Network =
            "mbit=100,loss_ppm=5,buffer_kib=64,bus=1".parse().expect("it is sound");
        let meant = Network { latency_us: 40, loss_ppm: 5, mbit: 100, buffer_kib: 64, bus: 1 };
        assert_eq!(network, meant);
        assert_eq!(network.to_string().parse(), Ok(network));
        let model = network.model().network;
        assert_eq!((model.port_ps_per_byte, model.port_buffer), (80_000, 64 << 10));
        assert!(model.bus && !Network { bus: 0, ..network }.model().network.bus);
        let wrongs = [("speed=1", "speed"), ("mbit", "mbit"), ("loss_ppm=500001", "500000")];
        for (wrong, named) in wrongs.into_iter().chain([("bus=2", "at most 1")]) {
            assert!(wrong.parse::<Network>().is_err_and(|e| e.contains(named)), "{wrong}");
        }
    }
}
