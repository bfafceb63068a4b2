//! A client of a measurement: multicasts in a closed or an open loop, and notes what it waited.

use super::part::DeliverySink;
use super::{BenchLoad, destinations, histogram};
use amcast_core::rng::Rng;
use amcast_core::{GroupSet, Overlay, Span, Submission, Time};
use amcast_node::clock;
use amcast_node::memory_driver::MemoryDriver;
use hdrhistogram::Histogram;

/// How long a client may take to finish what is on the way after the end.
const DRAIN: Span = Span::secs(5);

/// An outstanding multicast.
#[derive(Clone, Copy)]
struct SentMulticast {
    seq: u64,
    dst: GroupSet,
    due: Time,
}

/// A client under way.
pub(super) struct BenchClient<'a> {
    load: &'a BenchLoad,
    overlay: &'a Overlay,
    rng: Rng,
    /// Where the next multicast goes, if it is drawn already.
    drawn: Option<GroupSet>,
    number: usize,
    seq: u64,
    /// The window: what was multicast in each place.
    window: Vec<Option<SentMulticast>>,
    /// How many places are taken.
    open: usize,
    /// When what is found finished in a turn was due; empty between turns.
    finished: Vec<Time>,
    payload: Vec<u8>,
    begin: Time,
    next_due: Time,
    latencies: Histogram<u64>,
    done: bool,
}

impl<'a> BenchClient<'a> {
    pub(super) fn new(load: &'a BenchLoad, overlay: &'a Overlay, number: usize, now: Time) -> Self {
        let window = load.window();
        Self {
            load,
            overlay,
            rng: Rng::stream(number as u64, "destinations"),
            drawn: None,
            number,
            seq: 0,
            window: vec![None; window],
            open: 0,
            finished: Vec::with_capacity(window),
            payload: vec![0x5a; load.payload],
            begin: now,
            next_due: now,
            latencies: histogram(),
            done: false,
        }
    }

    /// Whether it has sent all it wants, and all of that is delivered or given up.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// The latencies of its multicasts, in nanoseconds.
    pub(super) fn latencies(&self) -> &Histogram<u64> {
        &self.latencies
    }

    /// Whether `now` is within the time that is measured.
    fn measures(&self, now: Time) -> bool {
        let since = now.since(self.begin).0 as f64 / 1e9;
        (self.load.warm_up_s..self.load.warm_up_s + self.load.duration_s).contains(&since)
    }

    fn end(&self) -> Time {
        let whole = self.load.warm_up_s + self.load.duration_s;
        self.begin + Span((whole * 1e9) as u64)
    }

    /// Takes note of what is finished, and multicasts. Says whether anything happened.
    pub(super) fn turn(
        &mut self,
        now: Time,
        seat: &mut MemoryDriver,
        sink: &mut DeliverySink<'_>,
    ) -> bool {
        let finished = self.finish(sink);
        if now >= self.end() {
            self.done |= self.open == 0 || now.since(self.end()) > DRAIN;
            return finished;
        }
        let sent = self.send(now, seat, sink);
        if sent {
            seat.round(now, sink);
        }
        finished | sent
    }

    fn finish(&mut self, sink: &DeliverySink<'_>) -> bool {
        if self.open == 0 {
            return false;
        }
        for place in &mut self.window {
            let Some(sent) = *place else { continue };
            if sink.acks.is_delivered(self.number, sent.seq, sent.dst) {
                *place = None;
                self.finished.push(sent.due);
            }
        }
        if self.finished.is_empty() {
            return false;
        }
        self.open -= self.finished.len();
        // The clock is read late, so that the time until the client sees it is in.
        let end = clock::now();
        if self.measures(end) {
            for due in &self.finished {
                self.latencies.saturating_record(end.since(*due).0);
            }
        }
        self.finished.clear();
        true
    }

    fn send(&mut self, now: Time, seat: &mut MemoryDriver, sink: &mut DeliverySink<'_>) -> bool {
        let mut at = None;
        while self.open < self.window.len() && self.is_due(now) {
            let seq = self.seq + 1;
            let place = (seq % self.window.len() as u64) as usize;
            let dst = match self.drawn {
                Some(dst) => dst,
                None => destinations(self.overlay, &mut self.rng, self.load),
            };
            self.drawn = Some(dst);
            let room = seat.protocol().room(dst, self.payload.len()) > 0;
            // Places are used in turn: the number of the message names its place.
            if self.window[place].is_some() || !room {
                break;
            }
            let due = match self.load.rate {
                // Late or not, it counts from when it was due.
                Some(rate) => {
                    let due = self.next_due;
                    self.next_due += Span(1_000_000_000 / rate);
                    due
                }
                None => *at.get_or_insert_with(clock::now),
            };
            (self.drawn, self.seq) = (None, seq);
            self.open += 1;
            self.window[place] = Some(SentMulticast { seq, dst, due });
            seat.submit(now, Submission { seq, dst, payload: &self.payload }, sink);
        }
        at.is_some() || self.open > 0 && self.load.rate.is_some()
    }

    fn is_due(&self, now: Time) -> bool {
        self.load.rate.is_none() || self.next_due <= now
    }
}
