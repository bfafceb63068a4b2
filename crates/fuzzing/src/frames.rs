//! What peers send.

use amcast_core::messages::{Frames, In};
use amcast_core::step::{Note, Output};
use amcast_core::{Input, Node, Outbox, Pid, RawConfig, Time};
use amcast_protocols::catalog;

/// Frames behind their sender and length, a byte each, to each process of Skeen's protocol. What makes
/// no sense is noted, and nothing that was not multicast is delivered without its payload.
pub(crate) fn skeen(bytes: &[u8]) {
    let entry = catalog::find("skeen").expect("it is in the catalog");
    let raw = RawConfig { groups: 3, replicas: 1, clients: 2, ..RawConfig::default() };
    let config = raw.check(entry.about().params).expect("a sound configuration");
    let processes = config.cluster().processes() as u32;
    for me in config.cluster().pids() {
        let Ok(Node::Messages(mut node)) = entry.build(me, &config) else {
            panic!("Skeen exchanges messages")
        };
        let mut out = Outbox::<Frames>::default();
        node.step(Time::ZERO, (), Input::Start { incarnation: 0 }, &mut out);
        let mut rest = bytes;
        while let [from, len, tail @ ..] = rest {
            let (frame, tail) = tail.split_at(tail.len().min(usize::from(*len)));
            rest = tail;
            out.clear();
            let from = Pid(u32::from(*from) % processes);
            node.step(Time::ZERO, (), Input::Medium(In::From(from, frame)), &mut out);
            if frame.is_empty() {
                let noted = |o: &Output<Frames>| matches!(o, Output::Note(Note::Malformed(..)));
                assert!(out.items().iter().any(noted), "an empty frame passes unnoted");
            }
        }
    }
}
