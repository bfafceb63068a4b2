//! Networks that break one law each: the suite must notice every one of them.

use crate::simulated::{SimulatedMessages, paced, rough};
use amcast_core::Span;
use amcast_core::id::{Gid, Pid};
use amcast_core::messages::{Lane, MessageOutput};
use amcast_net::conformance::{MakeMessageFabric, MessageEvent, MessageFabric, PACED_SUITE, SUITE};
use amcast_sim::network::NetworkModel;
use std::panic;

/// The broken law.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NetworkFault {
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
    CrowdUntold,
    RoomUntold,
    RoomTwice,
    OthersAreTold,
}

/// Each fault, and the law whose test must notice it.
const FAULTS: [(NetworkFault, &str); 21] = [
    (NetworkFault::Overtaken, "streams arrive in order, once, unchanged"),
    (NetworkFault::Doubled, "streams arrive in order, once, unchanged"),
    (NetworkFault::LostSilently, "streams arrive in order, once, unchanged"),
    (NetworkFault::LostSilently, "a stream loses messages only where a break is reported"),
    (NetworkFault::Changed, "streams arrive in order, once, unchanged"),
    (NetworkFault::DatagramChanged, "datagrams arrive unchanged, if they arrive"),
    (NetworkFault::CutShort, "large messages pass, and small ones behind them"),
    (NetworkFault::OwnLost, "a message to oneself arrives like any other"),
    (NetworkFault::LostBeforeUp, "messages from before the connection opens arrive"),
    (NetworkFault::UpUntold, "each connection opens, and is reported once"),
    (NetworkFault::UpTwice, "each connection opens, and is reported once"),
    (NetworkFault::UpAfterFirst, "a new incarnation is reported before its first message"),
    (NetworkFault::DownUntold, "a stream loses messages only where a break is reported"),
    (NetworkFault::OldLifeSpeaks, "a new incarnation is reported before its first message"),
    (NetworkFault::GroupIsEveryone, "a group's message reaches its members and nobody else"),
    (NetworkFault::GroupWithoutSender, "a group's message reaches its members and nobody else"),
    (NetworkFault::StallHoldsUpOthers, "a peer that takes nothing holds up nobody"),
    (NetworkFault::CrowdUntold, PACED_SUITE[0].0),
    (NetworkFault::RoomUntold, PACED_SUITE[0].0),
    (NetworkFault::RoomTwice, PACED_SUITE[0].0),
    (NetworkFault::OthersAreTold, PACED_SUITE[0].0),
];

struct BrokenNetwork {
    fault: NetworkFault,
    inner: SimulatedMessages,
    stalled: bool,
    /// Messages heard so far.
    count: u32,
    /// Inputs that are held back from each process, to be given out at a wrong time.
    held: [Option<MessageEvent>; 3],
    connected: bool,
}

impl BrokenNetwork {
    fn new(fault: NetworkFault) -> Self {
        let model = match fault {
            NetworkFault::DatagramChanged => rough(),
            NetworkFault::CrowdUntold
            | NetworkFault::RoomUntold
            | NetworkFault::RoomTwice
            | NetworkFault::OthersAreTold => paced(),
            _ => NetworkModel::constant(Span::micros(10)),
        };
        let inner = SimulatedMessages::new(1, model);
        Self { fault, inner, stalled: false, count: 0, held: Default::default(), connected: false }
    }

    /// The input that a process receives instead of this.
    fn wrong(&mut self, by: Pid, heard: MessageEvent) -> Vec<MessageEvent> {
        let MessageEvent::From(from, bytes) = heard else { return self.wrong_news(by, heard) };
        self.count += 1;
        let (nth, own) = (self.count, from == by);
        let heard = MessageEvent::From(from, bytes.clone());
        let held = &mut self.held[by.index()];
        match self.fault {
            NetworkFault::Overtaken if nth % 100 == 99 && held.is_none() => *held = Some(heard),
            NetworkFault::Overtaken => {
                return [Some(heard), held.take()].into_iter().flatten().collect();
            }
            NetworkFault::Doubled if nth % 100 == 99 => return vec![heard.clone(), heard],
            NetworkFault::LostSilently if !own && nth % 50 == 49 => {}
            NetworkFault::OwnLost if own && nth % 50 == 49 => {}
            NetworkFault::Changed | NetworkFault::DatagramChanged
                if bytes.len() > 8 && nth % 5 == 4 =>
            {
                let mut bytes = bytes;
                *bytes.last_mut().expect("it is not empty") ^= 1;
                return vec![MessageEvent::From(from, bytes)];
            }
            NetworkFault::CutShort if bytes.len() > 1 << 16 => {
                return vec![MessageEvent::From(from, bytes[..1 << 16].to_vec())];
            }
            NetworkFault::OldLifeSpeaks if held.is_none() => *held = Some(heard),
            NetworkFault::UpAfterFirst => {
                return [Some(heard), held.take()].into_iter().flatten().collect();
            }
            _ => return vec![heard],
        }
        vec![]
    }

    fn wrong_news(&mut self, by: Pid, heard: MessageEvent) -> Vec<MessageEvent> {
        let held = &mut self.held[by.index()];
        match (self.fault, &heard) {
            (NetworkFault::UpUntold, MessageEvent::Up(_))
            | (NetworkFault::DownUntold, MessageEvent::Down(_)) => vec![],
            (NetworkFault::CrowdUntold, MessageEvent::Backlog(of)) if !of.has_room => vec![],
            (NetworkFault::RoomUntold, MessageEvent::Backlog(of)) if of.has_room => vec![],
            (NetworkFault::RoomTwice, MessageEvent::Backlog(of)) if of.has_room => {
                vec![heard.clone(), heard]
            }
            (NetworkFault::OthersAreTold, MessageEvent::Backlog(_)) => {
                self.inner.tell(Pid(2), heard.clone());
                vec![heard]
            }
            (NetworkFault::UpTwice, MessageEvent::Up(_)) => vec![heard.clone(), heard],
            (NetworkFault::UpAfterFirst, MessageEvent::Up(Pid(0)))
                if by == Pid(1) && held.is_none() =>
            {
                *held = Some(heard);
                vec![]
            }
            (NetworkFault::OldLifeSpeaks, MessageEvent::Up(of)) => match held.take() {
                Some(MessageEvent::From(from, bytes)) if from == *of => {
                    vec![heard, MessageEvent::From(from, bytes)]
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

impl MessageFabric for BrokenNetwork {
    fn send(&mut self, from: Pid, out: &MessageOutput<()>, message: &[u8]) {
        match (self.fault, out) {
            (NetworkFault::LostBeforeUp, MessageOutput::To(to, Lane::Stream, ()))
                if !self.connected && *to != from => {}
            (NetworkFault::GroupIsEveryone, MessageOutput::Group(_, lane, ())) => {
                self.inner.send(from, &MessageOutput::Group(Gid(0), *lane, ()), message);
            }
            (NetworkFault::GroupWithoutSender, MessageOutput::Group(g, lane, ())) => {
                for to in (u32::from(g.0)..3).map(Pid).filter(|&to| to != from) {
                    self.inner.send(from, &MessageOutput::To(to, *lane, ()), message);
                }
            }
            _ => self.inner.send(from, out, message),
        }
    }

    fn advance(&mut self) -> bool {
        self.inner.advance()
    }

    fn heard(&mut self, by: Pid) -> Vec<MessageEvent> {
        if self.stalled && self.fault == NetworkFault::StallHoldsUpOthers {
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
        let notices = |test: fn(MakeMessageFabric<'_>)| {
            let judged = panic::catch_unwind(|| test(&mut || Box::new(BrokenNetwork::new(fault))));
            judged.is_err()
        };
        let noticed: Vec<_> = SUITE
            .iter()
            .chain(PACED_SUITE)
            .filter(|&&(_, test)| notices(test))
            .map(|(law, _)| *law)
            .collect();
        assert!(noticed.contains(&broken), "{fault:?} is noticed only by {noticed:?}");
    }
}
