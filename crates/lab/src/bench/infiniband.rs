//! The machines of TRAM's evaluation as a model of the simulator [TRAM 8.1]: one process a machine, whose writes to other
//! machines' memory take a time of their own on the wire, and whose processor pays for posting each of them.
//!
//! The paper gives the latency of a write and the bandwidth. It gives no cost of posting a write or of polling its completion
//! (the curves of its figure 2 are a picture without numbers), so those are assumptions: they are fields here, and the
//! reproductions vary them.

use amcast_core::Span;
use amcast_sim::{CarrierModel, Delay};
use serde::Serialize;

/// Bits of a cache line, which is the unit of what is written.
const LINE_BITS: u64 = 512;

/// Machines that write to each other's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Infiniband {
    /// From the call that posts a write of one line until its owner finds the line, in nanoseconds.
    pub write_ns: u64,
    /// The rate of a port, in Gbit/s.
    pub gbps: u64,
    /// From the line's arrival until the writer's network card has its completion, in nanoseconds.
    pub completion_after_ns: u64,
    /// The processor's time to post one write, in nanoseconds. Each goes through a queue pair of its own, so none is cheaper
    /// because others are posted with it.
    pub post_ns: u64,
    /// The processor's time to take one completion, in nanoseconds.
    pub completion_ns: u64,
    /// The processor's time to look through its buffers once, in nanoseconds.
    pub look_ns: u64,
    /// After how long a process, which spins, looks again at what it looks at now and then, in nanoseconds.
    pub spin_ns: u64,
    /// The processor's time for each message that a process orders, passes on or delivers, in nanoseconds.
    pub message_ns: u64,
}

impl Infiniband {
    /// The paper's machines: 1.31 us a write and 50 Gbit/s are the paper's, the others are assumed.
    pub const PAPER: Self = Self {
        write_ns: 1310,
        gbps: 50,
        completion_after_ns: 650,
        post_ns: 150,
        completion_ns: 50,
        look_ns: 50,
        spin_ns: 2_100,
        message_ns: 100,
    };

    /// As the simulator's carriers.
    pub const fn model(&self) -> CarrierModel {
        let write = Span(self.write_ns.saturating_sub(self.post_ns));
        let mut model = CarrierModel::constant(write, write);
        // A machine for each process: it spins.
        model.spin = Some(Span(self.spin_ns));
        model.ram.answer = Delay::Constant(Span(self.completion_after_ns));
        model.ram.post = Span(self.post_ns);
        model.ram.post_more = Span(self.post_ns);
        model.ram.line_ps = LINE_BITS * 1000 / self.gbps;
        model.step = Span(self.look_ns);
        model.part = Span(self.message_ns);
        model.completion = Span(self.completion_ns);
        model
    }
}
