//! The simulator's network.

use crate::{run, run_all};
use amcast_core::id::Pid;
use amcast_core::messages::{Lane, MessageOutput};
use amcast_core::{Span, Time};
use amcast_net::conformance::{MessageEvent, MessageFabric, PACED_SUITE, shape};
use amcast_sim::chooser::Chooser;
use amcast_sim::delay::Delay;
use amcast_sim::network::{self, NetworkModel, SimNetwork};
use std::rc::Rc;

/// The network, and what each process heard of it.
pub(crate) struct SimulatedMessages {
    network: SimNetwork,
    chooser: Chooser,
    now: Time,
    heard: [Vec<MessageEvent>; 3],
}

impl SimulatedMessages {
    pub(crate) fn new(seed: u64, model: NetworkModel) -> Self {
        let mut chooser = Chooser::seeded(seed);
        let mut network = SimNetwork::new(3, model);
        network.connect_all(Time::ZERO, &mut chooser);
        Self { network, chooser, now: Time::ZERO, heard: Default::default() }
    }

    /// A process hears something that the network did not say.
    pub(crate) fn tell(&mut self, to: Pid, event: MessageEvent) {
        self.heard[to.index()].push(event);
    }

    fn to(&mut self, from: Pid, to: Pid, lane: Lane, bytes: &Rc<[u8]>) {
        self.network.send(self.now, from, to, lane, bytes, &mut self.chooser);
    }
}

impl MessageFabric for SimulatedMessages {
    fn send(&mut self, from: Pid, out: &MessageOutput<()>, message: &[u8]) {
        let bytes = Rc::from(message);
        match *out {
            MessageOutput::To(to, lane, ()) => self.to(from, to, lane, &bytes),
            MessageOutput::Group(g, lane, ()) => {
                let members = (0..).map(Pid).zip(shape());
                let members = members.filter(|(_, of)| of.contains(g)).map(|(p, _)| p);
                match lane {
                    Lane::Datagram => {
                        self.network.multicast(self.now, from, members, &bytes, &mut self.chooser);
                    }
                    Lane::Stream => members.for_each(|to| self.to(from, to, lane, &bytes)),
                }
            }
        }
    }

    fn advance(&mut self) -> bool {
        let next = self.network.next();
        if next == Time::NEVER {
            return false;
        }
        self.now = next;
        self.network.step(&mut self.chooser);
        while let Some(heard) = self.network.take() {
            let (to, heard) = match heard {
                network::NetworkEvent::Frame { to, from, bytes, .. } => {
                    (to, MessageEvent::From(from, bytes.to_vec()))
                }
                network::NetworkEvent::Up { to, of } => (to, MessageEvent::Up(of)),
                network::NetworkEvent::Down { to, of } => (to, MessageEvent::Down(of)),
                network::NetworkEvent::Backlog { to, backlog } => {
                    (to, MessageEvent::Backlog(backlog))
                }
            };
            self.heard[to.index()].push(heard);
        }
        true
    }

    fn heard(&mut self, by: Pid) -> Vec<MessageEvent> {
        std::mem::take(&mut self.heard[by.index()])
    }

    fn cut(&mut self, a: Pid, b: Pid) {
        self.network.cut(self.now, a, b, Span::micros(50), &mut self.chooser);
    }

    fn crash(&mut self, pid: Pid) {
        self.network.crash(self.now, pid, &mut self.chooser);
        self.heard[pid.index()].clear();
    }

    fn start(&mut self, pid: Pid) {
        self.network.start(self.now, pid, &mut self.chooser);
    }

    fn stall(&mut self, _: Pid, _: bool) {
        // A process of the simulator takes what it hears when it likes: nothing waits for it.
    }
}

/// The worst network: everything that the laws allow.
pub(crate) fn rough() -> NetworkModel {
    NetworkModel {
        stream: Delay::Uniform(Span::micros(5), Span::micros(50)),
        datagram: Delay::Uniform(Span::micros(5), Span::micros(90)),
        loss_ppm: 100_000,
        double_ppm: 100_000,
        late_ppm: 100_000,
        late: Delay::Uniform(Span::micros(100), Span::millis(1)),
        ..NetworkModel::constant(Span::micros(20))
    }
}

/// Each process sends at a gigabyte a second, and has room for a quarter of a megabyte.
pub(crate) fn paced() -> NetworkModel {
    let port_ps_per_byte = 1_000;
    let delay = NetworkModel::constant(Span::micros(10));
    NetworkModel { port_ps_per_byte, sender_bytes: 256 << 10, ..delay }
}

#[test]
fn a_simulated_network_with_ports_says_when_there_is_room() {
    let _limit = amcast_test_policy::time_limit();
    run_all(PACED_SUITE, "paced", &mut || Box::new(SimulatedMessages::new(1, paced())));
}

#[test]
fn a_quiet_simulated_network_keeps_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    run("quiet", &mut || {
        Box::new(SimulatedMessages::new(1, NetworkModel::constant(Span::micros(10))))
    });
}

#[test]
fn a_rough_simulated_network_keeps_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    for seed in 0..5 {
        run("rough", &mut || Box::new(SimulatedMessages::new(seed, rough())));
    }
}
