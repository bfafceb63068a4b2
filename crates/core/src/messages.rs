//! The medium `Messages`: processes that send messages to each other.
//!
//! # Laws
//! 1. On [`Lane::Stream`], between two processes that both live, messages arrive in the order in
//!    which they were sent, once each, unless [`MessageInput::Down`] comes in between: then messages in
//!    flight may be lost, and a later [`MessageInput::Up`] begins a new stream.
//! 2. On [`Lane::Datagram`] a message may be lost, doubled, delayed and overtaken, never changed.
//! 3. A message to oneself arrives like any other, and is never lost.
//! 4. `Down` may be reported of a process that lives; `Up` comes before the first message of a new
//!    incarnation.
//! 5. A process that starts has room for its datagrams. When more of them, or of their bytes, wait at its carrier than some
//!    level, because the network, or the rate that the protocol has asked for, takes them more slowly than it makes them, it hears
//!    [`MessageInput::Backlog`] without room; then, when half of the level is left, one with room; and so on, one after the
//!    other. Both come as soon as the carrier looks, once a round at most, and cost nothing for each message. A datagram
//!    that is made without room waits behind the others, and is lost where more wait than the carrier holds.

use crate::cluster::Overlay;
use crate::codec::{ByteReader, Codec};
use crate::id::{Gid, GroupSet, MsgId, Pid};
use crate::step::{
    Input, Medium, Note, Outbox, Output, PayloadRange, Protocol, ProtocolStatus, WaitReason,
    WakeReason,
};
use crate::time::Time;
use alloc::vec::Vec;
use core::marker::PhantomData;

/// How a message travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Reliable and in order between two processes while both live.
    Stream,
    /// May be lost, doubled or overtaken.
    Datagram,
}

/// The medium of typed messages `T`.
#[derive(Debug)]
pub struct Messages<T>(PhantomData<T>);

/// An input from the medium.
#[derive(Debug)]
pub enum MessageInput<T> {
    /// A message came from a process.
    From(Pid, T),
    /// A connection to this process is open; it may be a new incarnation.
    Up(Pid),
    /// The connection to this process broke.
    Down(Pid),
    /// The carrier has no more room for datagrams of this process, or has room again.
    Backlog(DatagramBacklog),
}

/// How much the carrier of a process holds of its datagrams: they are made, and have not left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramBacklog {
    /// Their bytes, when the carrier looked.
    pub bytes: usize,
    /// Whether more may be made: false from the level of the carrier on, until half of it is left. A protocol that makes
    /// more all the same gains nothing, and those that answer to time may make the same ones again while they wait.
    pub has_room: bool,
}

impl DatagramBacklog {
    /// Nothing waits.
    pub const NONE: Self = Self { bytes: 0, has_room: true };
}

/// A request of a protocol to the medium.
#[derive(Debug)]
pub enum MessageOutput<T> {
    /// Send to one process.
    To(Pid, Lane, T),
    /// Send to every member of a group, the sender too if it is one.
    Group(Gid, Lane, T),
}

impl<T: core::fmt::Debug + 'static> Medium for Messages<T> {
    type View<'a> = ();
    type In<'a> = MessageInput<T>;
    type Out = MessageOutput<T>;
}

/// The medium of encoded messages: what carriers transport.
#[derive(Debug)]
pub struct Frames;

impl Medium for Frames {
    type View<'a> = ();
    type In<'a> = MessageInput<&'a [u8]>;
    type Out = MessageOutput<PayloadRange>;
}

/// Turns a protocol of typed messages into one of frames: encodes outgoing messages, decodes incoming ones.
#[derive(Debug)]
pub struct FramedProtocol<T: core::fmt::Debug + 'static, P> {
    inner: P,
    outbox: Outbox<Messages<T>>,
    taken: Vec<Output<Messages<T>>>,
}

impl<T, P> FramedProtocol<T, P>
where
    T: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Messages<T>>,
{
    /// Wraps `inner`.
    pub fn new(inner: P) -> Self {
        Self { inner, outbox: Outbox::default(), taken: Vec::new() }
    }
}

impl<T, P> Protocol for FramedProtocol<T, P>
where
    T: Codec + core::fmt::Debug + 'static,
    P: Protocol<Medium = Messages<T>>,
{
    type Medium = Frames;

    fn step(&mut self, now: Time, (): (), input: Input<'_, Frames>, out: &mut Outbox<Frames>) {
        let input = match input {
            Input::Start { incarnation } => Input::Start { incarnation },
            Input::Submit(s) => Input::Submit(s),
            Input::Wake => Input::Wake,
            Input::Stored { number, record } => Input::Stored { number, record },
            Input::Torn => Input::Torn,
            Input::Lost => Input::Lost,
            Input::Durable(t) => Input::Durable(t),
            Input::Loaded { ticket, record } => Input::Loaded { ticket, record },
            Input::Checkpointed(position) => Input::Checkpointed(position),
            Input::Installed { position, needs } => Input::Installed { position, needs },
            Input::Full(is_full) => Input::Full(is_full),
            Input::Unfit => Input::Unfit,
            Input::Leave => Input::Leave,
            Input::Overlay(overlay) => Input::Overlay(overlay),
            Input::Applied(p) => Input::Applied(p),
            Input::Barrier(ticket) => Input::Barrier(ticket),
            Input::Oracle(o) => Input::Oracle(o),
            Input::Medium(MessageInput::Up(p)) => Input::Medium(MessageInput::Up(p)),
            Input::Medium(MessageInput::Down(p)) => Input::Medium(MessageInput::Down(p)),
            Input::Medium(MessageInput::Backlog(of)) => Input::Medium(MessageInput::Backlog(of)),
            Input::Medium(MessageInput::From(p, frame)) => {
                let mut reader = ByteReader::new(frame);
                match T::decode(&mut reader) {
                    Ok(m) if reader.is_empty() => Input::Medium(MessageInput::From(p, m)),
                    _ => return out.note(Note::Malformed(p, "frame does not decode")),
                }
            }
        };
        self.outbox.clear();
        self.outbox.trace_as(out);
        self.inner.step(now, (), input, &mut self.outbox);
        self.outbox.take(&mut self.taken);
        let base = out.adopt_bytes(&mut self.outbox);
        for output in self.taken.drain(..) {
            let output = match output {
                Output::Medium(asked) => {
                    let (MessageOutput::To(_, _, m) | MessageOutput::Group(_, _, m)) = &asked;
                    let frame = out.fill(|bytes| m.encode(bytes));
                    out.ask(match asked {
                        MessageOutput::To(p, lane, _) => MessageOutput::To(p, lane, frame),
                        MessageOutput::Group(g, lane, _) => MessageOutput::Group(g, lane, frame),
                    });
                    continue;
                }
                other => other,
            };
            out.relay(output, base, |_| unreachable!("messages were encoded above"));
        }
    }

    fn deadline(&self) -> Option<(Time, WakeReason)> {
        self.inner.deadline()
    }

    fn room(&self, dst: GroupSet, bytes: usize) -> usize {
        self.inner.room(dst, bytes)
    }

    fn payload_max(&self) -> usize {
        self.inner.payload_max()
    }

    fn waiting(&self, tell: &mut dyn FnMut(MsgId, WaitReason)) {
        self.inner.waiting(tell);
    }

    fn fit(&self) -> bool {
        self.inner.fit()
    }

    fn status(&self) -> ProtocolStatus {
        self.inner.status()
    }

    fn overlay(&self) -> Option<(u32, &Overlay)> {
        self.inner.overlay()
    }
}
