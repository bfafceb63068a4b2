//! Networks that break one law each: the suite must notice every one of them.

use crate::simulated::{Simulated, rough};
use amcast_core::Span;
use amcast_core::id::{Gid, Pid};
use amcast_core::messages::{Lane, Out};
use amcast_net::conformance::{Fabric, Heard, Make, SUITE};
use amcast_sim::network::NetworkModel;
use std::panic;

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Overtaken,
    Doubled,
    LostSilently,
    Changed,
    DatagramChanged,
    CutShort,
    OwnLost,
    LostBeforeUp,
    UpUntold,
    UpTwice,
    UpAfterFirst,
    DownUntold,
    OldLifeSpeaks,
    GroupIsEveryone,
    GroupWithoutSender,
    StallHoldsUpOthers,
}

/// Each fault, and the law whose test must notice it.
const FAULTS: [(Fault, &str); 17] = [
    (Fault::Overtaken, "streams arrive in order, once, unchanged"),
    (Fault::Doubled, "streams arrive in order, once, unchanged"),
    (Fault::LostSilently, "streams arrive in order, once, unchanged"),
    (Fault::LostSilently, "a stream loses something only where a break is said"),
    (Fault::Changed, "streams arrive in order, once, unchanged"),
    (Fault::DatagramChanged, "datagrams arrive unchanged, if they arrive"),
    (Fault::CutShort, "large messages pass, and small ones behind them"),
    (Fault::OwnLost, "a message to oneself arrives like any other"),
    (Fault::LostBeforeUp, "what is sent before the connection stands arrives"),
    (Fault::UpUntold, "connections come to stand, and it is said once"),
    (Fault::UpTwice, "connections come to stand, and it is said once"),
    (Fault::UpAfterFirst, "a new incarnation is said before its first message"),
    (Fault::DownUntold, "a stream loses something only where a break is said"),
    (Fault::OldLifeSpeaks, "a new incarnation is said before its first message"),
    (Fault::GroupIsEveryone, "a group's message reaches its members and nobody else"),
    (Fault::GroupWithoutSender, "a group's message reaches its members and nobody else"),
    (Fault::StallHoldsUpOthers, "a peer that takes nothing holds up nobody"),
];

struct Broken {
    fault: Fault,
    inner: Simulated,
    stalled: bool,
    /// Messages heard so far.
    count: u32,
    /// What is held back from each process, to be given out at a wrong time.
    held: [Option<Heard>; 3],
    connected: bool,
}

impl Broken {
    fn new(fault: Fault) -> Self {
        let model = match fault {
            Fault::DatagramChanged => rough(),
            _ => NetworkModel::constant(Span::micros(10)),
        };
        let inner = Simulated::new(1, model);
        Self { fault, inner, stalled: false, count: 0, held: Default::default(), connected: false }
    }

    /// What a process hears instead of this.
    fn wrong(&mut self, by: Pid, heard: Heard) -> Vec<Heard> {
        let Heard::From(from, bytes) = heard else { return self.wrong_news(by, heard) };
        self.count += 1;
        let (nth, own) = (self.count, from == by);
        let heard = Heard::From(from, bytes.clone());
        let held = &mut self.held[by.index()];
        match self.fault {
            Fault::Overtaken if nth % 100 == 99 && held.is_none() => *held = Some(heard),
            Fault::Overtaken => return [Some(heard), held.take()].into_iter().flatten().collect(),
            Fault::Doubled if nth % 100 == 99 => return vec![heard.clone(), heard],
            Fault::LostSilently if !own && nth % 50 == 49 => {}
            Fault::OwnLost if own && nth % 50 == 49 => {}
            Fault::Changed | Fault::DatagramChanged if bytes.len() > 8 && nth % 5 == 4 => {
                let mut bytes = bytes;
                *bytes.last_mut().expect("it is not empty") ^= 1;
                return vec![Heard::From(from, bytes)];
            }
            Fault::CutShort if bytes.len() > 1 << 16 => {
                return vec![Heard::From(from, bytes[..1 << 16].to_vec())];
            }
            Fault::OldLifeSpeaks if held.is_none() => *held = Some(heard),
            Fault::UpAfterFirst => {
                return [Some(heard), held.take()].into_iter().flatten().collect();
            }
            _ => return vec![heard],
        }
        vec![]
    }

    fn wrong_news(&mut self, by: Pid, heard: Heard) -> Vec<Heard> {
        let held = &mut self.held[by.index()];
        match (self.fault, &heard) {
            (Fault::UpUntold, Heard::Up(_)) | (Fault::DownUntold, Heard::Down(_)) => vec![],
            (Fault::UpTwice, Heard::Up(_)) => vec![heard.clone(), heard],
            (Fault::UpAfterFirst, Heard::Up(Pid(0))) if by == Pid(1) && held.is_none() => {
                *held = Some(heard);
                vec![]
            }
            (Fault::OldLifeSpeaks, Heard::Up(of)) => match held.take() {
                Some(Heard::From(from, bytes)) if from == *of => {
                    vec![heard, Heard::From(from, bytes)]
                }
                other => {
                    *held = other;
                    vec![heard]
                }
            },
            _ => vec![heard],
        }
    }
}

impl Fabric for Broken {
    fn send(&mut self, from: Pid, out: &Out<()>, message: &[u8]) {
        match (self.fault, out) {
            (Fault::LostBeforeUp, Out::To(to, Lane::Stream, ()))
                if !self.connected && *to != from => {}
            (Fault::GroupIsEveryone, Out::Group(_, lane, ())) => {
                self.inner.send(from, &Out::Group(Gid(0), *lane, ()), message);
            }
            (Fault::GroupWithoutSender, Out::Group(g, lane, ())) => {
                for to in (u32::from(g.0)..3).map(Pid).filter(|&to| to != from) {
                    self.inner.send(from, &Out::To(to, *lane, ()), message);
                }
            }
            _ => self.inner.send(from, out, message),
        }
    }

    fn advance(&mut self) -> bool {
        self.inner.advance()
    }

    fn heard(&mut self, by: Pid) -> Vec<Heard> {
        if self.stalled && self.fault == Fault::StallHoldsUpOthers {
            return vec![];
        }
        let heard = self.inner.heard(by);
        self.connected |= !heard.is_empty();
        heard.into_iter().flat_map(|heard| self.wrong(by, heard)).collect()
    }

    fn cut(&mut self, a: Pid, b: Pid) {
        self.inner.cut(a, b);
    }

    fn crash(&mut self, pid: Pid) {
        self.inner.crash(pid);
    }

    fn start(&mut self, pid: Pid) {
        self.inner.start(pid);
    }

    fn stall(&mut self, pid: Pid, stalled: bool) {
        self.inner.stall(pid, stalled);
        self.stalled = stalled;
    }
}

#[test]
fn the_suite_notices_every_fault() {
    let _limit = amcast_test_policy::time_limit();
    for (fault, broken) in FAULTS {
        let notices = |test: fn(Make<'_>)| {
            let judged = panic::catch_unwind(|| test(&mut || Box::new(Broken::new(fault))));
            judged.is_err()
        };
        let noticed: Vec<_> =
            SUITE.iter().filter(|&&(_, test)| notices(test)).map(|(law, _)| *law).collect();
        assert!(noticed.contains(&broken), "{fault:?} is noticed only by {noticed:?}");
    }
}
