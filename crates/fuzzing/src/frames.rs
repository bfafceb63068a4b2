//! Frames of peers.

use amcast_core::messages::{Frames, MessageInput};
use amcast_core::step::{Note, Output};
use amcast_core::{Input, MediumKind, Outbox, Pid, ProtocolProcess, RawConfig, Span, Time};
use amcast_node::ingress::frame::IngressFrame;
use amcast_protocols::catalog::CATALOG;
use amcast_protocols::skeen::Skeen;

/// The longest frame of a gateway or node that is read here.
const FRAME_BYTES_MAX: usize = 4 << 10;

/// Frames behind their sender and length, a byte each, to each process of Skeen's protocol. A
/// malformed frame is noted, and no message is delivered without its payload unless it was
/// multicast.
pub(crate) fn skeen(bytes: &[u8]) {
    let entry: &dyn amcast_core::Entry = &Skeen;
    let raw = RawConfig { groups: 3, replicas: 1, clients: 2, ..RawConfig::default() };
    let config = raw.check(entry.about().params).expect("a sound configuration");
    let processes = config.cluster().processes() as u32;
    for me in config.cluster().pids() {
        let Ok(ProtocolProcess::Messages(mut node)) = entry.build(me, &config) else {
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
            node.step(Time::ZERO, (), Input::Medium(MessageInput::From(from, frame)), &mut out);
            if frame.is_empty() {
                let noted = |o: &Output<Frames>| matches!(o, Output::Note(Note::Malformed(..)));
                assert!(out.items().iter().any(noted), "an empty frame passes unnoted");
            }
        }
    }
}

/// The process that takes the frames, of three in a group.
const MEMBER: Pid = Pid(0);

/// Frames behind their sender and length, a byte each, to a member of a group in total order; the
/// first byte says of which protocol. Time passes meanwhile. It delivers nothing twice, and its
/// positions only grow.
pub(crate) fn member(bytes: &[u8]) {
    let Some((which, mut rest)) = bytes.split_first() else { return };
    let broadcasts = |entry: &&&'static dyn amcast_core::Entry| {
        let about = entry.about();
        about.medium == MediumKind::Messages && about.capabilities.views
    };
    let all: Vec<_> = CATALOG.iter().filter(broadcasts).collect();
    let entry = all[usize::from(*which) % all.len()];
    let raw = RawConfig { groups: 1, replicas: 3, clients: 0, ..RawConfig::default() };
    let config = raw.check(entry.about().params).expect("a sound configuration");
    let Ok(ProtocolProcess::Messages(mut node)) = entry.build(MEMBER, &config) else {
        panic!("{} exchanges messages", entry.name())
    };
    let mut out = Outbox::<Frames>::default();
    let mut now = Time::ZERO;
    let mut position = 0;
    let mut delivered = Vec::new();
    let mut look = |out: &mut Outbox<Frames>| {
        for item in out.items() {
            if let Output::Deliver(delivery) = item {
                assert!(delivery.position > position, "positions do not grow");
                position = delivery.position;
                assert!(!delivered.contains(&delivery.msg), "{:?} twice", delivery.msg);
                delivered.push(delivery.msg);
            }
        }
        out.clear();
    };
    node.step(now, (), Input::Start { incarnation: 0 }, &mut out);
    look(&mut out);
    while let [from, len, tail @ ..] = rest {
        let (frame, tail) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = tail;
        now += Span::micros(u64::from(*from) * 100);
        node.step(
            now,
            (),
            Input::Medium(MessageInput::From(Pid(u32::from(*from) % 3), frame)),
            &mut out,
        );
        look(&mut out);
        if node.deadline().is_some_and(|(at, _)| at <= now) {
            node.step(now, (), Input::Wake, &mut out);
            look(&mut out);
        }
    }
}

/// Frames from a gateway to a node and back: they decode as they were encoded, and a partial frame
/// is not decoded.
pub(crate) fn ingress(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((frame, used))) = IngressFrame::decode(rest, FRAME_BYTES_MAX) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, rest[..used], "{frame:?} does not read back");
        assert!(!matches!(IngressFrame::decode(&rest[..used - 1], FRAME_BYTES_MAX), Ok(Some(_))));
        rest = &rest[used..];
    }
}
