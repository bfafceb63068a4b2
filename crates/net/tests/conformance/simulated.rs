//! The simulator's network.

use crate::run;
use amcast_core::id::{Gid, Pid};
use amcast_core::messages::{Lane, Out};
use amcast_core::{Span, Time};
use amcast_net::conformance::{Fabric, Heard, shape};
use amcast_sim::chooser::Chooser;
use amcast_sim::delay::Delay;
use amcast_sim::network::{self, Network, NetworkModel};
use std::rc::Rc;

/// The network, and what each process heard of it.
pub(crate) struct Simulated {
    network: Network,
    chooser: Chooser,
    now: Time,
    heard: [Vec<Heard>; 3],
}

impl Simulated {
    pub(crate) fn new(seed: u64, model: NetworkModel) -> Self {
        let mut chooser = Chooser::seeded(seed);
        let mut network = Network::new(3, model);
        network.connect_all(Time::ZERO, &mut chooser);
        Self { network, chooser, now: Time::ZERO, heard: Default::default() }
    }

    fn to(&mut self, from: Pid, to: Pid, lane: Lane, bytes: &Rc<[u8]>) {
        self.network.send(self.now, from, to, lane, bytes, &mut self.chooser);
    }
}

impl Fabric for Simulated {
    fn send(&mut self, from: Pid, out: &Out<()>, message: &[u8]) {
        let bytes = Rc::from(message);
        match *out {
            Out::To(to, lane, ()) => self.to(from, to, lane, &bytes),
            Out::Group(Gid(g), lane, ()) => {
                for (to, groups) in (0..).zip(shape()) {
                    if groups.contains(Gid(g)) {
                        self.to(from, Pid(to), lane, &bytes);
                    }
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
                network::Heard::Frame { to, from, bytes } => {
                    (to, Heard::From(from, bytes.to_vec()))
                }
                network::Heard::Up { to, of } => (to, Heard::Up(of)),
                network::Heard::Down { to, of } => (to, Heard::Down(of)),
            };
            self.heard[to.index()].push(heard);
        }
        true
    }

    fn heard(&mut self, by: Pid) -> Vec<Heard> {
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

/// What a network may do at worst: everything that the laws allow.
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

#[test]
fn a_quiet_simulated_network_keeps_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    run("quiet", &mut || Box::new(Simulated::new(1, NetworkModel::constant(Span::micros(10)))));
}

#[test]
fn a_rough_simulated_network_keeps_the_laws() {
    let _limit = amcast_test_policy::time_limit();
    for seed in 0..5 {
        run("rough", &mut || Box::new(Simulated::new(seed, rough())));
    }
}
