//! Calls with their returns, in an order of time, understood by a model.

use super::model::ServiceModel;
use super::search::{Timed, UNPLACED};
use crate::history::{History, Msg, ServiceEvent};
use crate::intern::NONE;
use crate::report::{CounterexampleEvent, PropertyVerdict};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// The calls of a history that say anything.
pub(crate) struct JudgedCalls<'a, M: ServiceModel> {
    pub(crate) h: &'a History,
    pub(crate) ops: Vec<M::Op>,
    /// One for each of `ops`; the lane is the client.
    pub(crate) times: Vec<Timed>,
    /// For each of `ops`, its call and its return.
    pub(crate) said: Vec<(&'a ServiceEvent, Option<&'a ServiceEvent>)>,
}

/// Why calls cannot be judged.
pub(crate) enum CallsError {
    /// There are none, or one that the model does not know.
    Lacking(String),
    /// They cannot be those of any run: what was recorded is damaged, or put together wrongly.
    Impossible(String),
}

impl From<CallsError> for PropertyVerdict {
    fn from(why: CallsError) -> Self {
        match why {
            CallsError::Lacking(why) => Self::NotJudged(why),
            CallsError::Impossible(why) => Self::Impossible(why),
        }
    }
}

/// A call or return in time. Ties between files are no order: then calls go first, so that the two
/// overlap.
fn moment(h: &History, said: &ServiceEvent, is_return: bool) -> (u64, bool, u32) {
    (said.t, is_return && h.file_count() > 1, said.line)
}

/// Why the history's calls are not enough for a verdict, if so.
fn lacking(h: &History) -> Option<String> {
    match h.calls.is_empty() {
        true if h.calls_left_out => Some("no calls remain".to_string()),
        true => Some(match h.missing() {
            Some(missing) => format!("no calls, and no history of {missing}"),
            None => "the history has no calls".to_string(),
        }),
        false => h.gaps.of_state().map(|why| format!("{why}, which calls may have read")),
    }
}

impl<'a, M: ServiceModel> JudgedCalls<'a, M> {
    /// # Errors
    /// Why nothing can be judged: there are no calls, or one that makes no sense.
    pub(crate) fn new(h: &'a History, model: &mut M) -> Result<Self, CallsError> {
        lacking(h).map_or(Ok(()), |why| Err(CallsError::Lacking(why)))?;
        // The first call and the first return of each message, in time.
        let mut call_of: Vec<Option<&ServiceEvent>> = vec![None; h.messages()];
        let mut return_of: Vec<Option<&ServiceEvent>> = vec![None; h.messages()];
        for (list, of) in [(&h.calls, &mut call_of), (&h.returns, &mut return_of)] {
            for said in list {
                let first = &mut of[said.m as usize];
                if first.is_none_or(|f| (said.t, said.line) < (f.t, f.line)) {
                    *first = Some(said);
                }
            }
        }
        let at = |said: &ServiceEvent| {
            let place = h.place(said.line);
            let file = if place.file.is_empty() { String::new() } else { place.file + ": " };
            format!("{file}line {}", place.line)
        };
        for r in &h.returns {
            if call_of[r.m as usize].is_none_or(|c| c.p != r.p || c.t > r.t) {
                let m = h.message_name(Msg(r.m));
                let why = format!("{}: {m} returns without a call before it", at(r));
                return Err(CallsError::Impossible(why));
            }
        }
        let mut moments = Vec::new();
        let mut calls = Self { h, ops: Vec::new(), times: Vec::new(), said: Vec::new() };
        for call in &h.calls {
            let m = call.m as usize;
            if call_of[m].is_none_or(|first| first.line != call.line) {
                let first = call_of[m].unwrap_or(call);
                if (first.p, &first.text) != (call.p, &call.text) {
                    let m = h.message_name(Msg(call.m));
                    let why = format!("{}: {m} was called before as something else", at(call));
                    return Err(CallsError::Impossible(why));
                }
                continue; // a retry
            }
            let answer = return_of[m];
            let understood = model.understand(&call.text, answer.map(|r| &*r.text));
            let told = |why| CallsError::Lacking(format!("{}: {why}", at(call)));
            let Some(op) = understood.map_err(told)? else {
                continue;
            };
            if answer.is_none() && model.only_reads(&op) {
                continue; // says nothing
            }
            let i = calls.ops.len() as u32;
            moments.push((moment(h, call, false), i));
            moments.extend(answer.map(|r| (moment(h, r, true), i)));
            calls.ops.push(op);
            let answered = answer.is_some();
            let place = h.places.get(&call.m).copied().unwrap_or(UNPLACED);
            let lane = call.p;
            calls.times.push(Timed { op: i, lane, call: NONE, ret: NONE, answered, place });
            calls.said.push((call, answer));
        }
        moments.sort_unstable();
        for (rank, (_, i)) in (0_u32..).zip(moments) {
            let time = &mut calls.times[i as usize];
            *if time.call == NONE { &mut time.call } else { &mut time.ret } = rank;
        }
        Ok(calls)
    }

    /// Of `times`, those of each set of connected keys, the smallest set first.
    pub(crate) fn components(&self, model: &M, times: &[Timed]) -> Vec<Vec<Timed>> {
        let mut joined = UnionFind(Vec::new());
        let mut first_key = vec![NONE; times.len()];
        for (time, first) in times.iter().zip(&mut first_key) {
            model.keys(&self.ops[time.op as usize], &mut |k| {
                *first = if *first == NONE { k } else { *first };
                joined.join(*first, k);
            });
        }
        let mut sets: Vec<Vec<Timed>> = vec![Vec::new(); joined.0.len() + 1];
        for (&time, &key) in times.iter().zip(&first_key) {
            // A call without keys is a set of its own: any order will do.
            let set = if key == NONE { joined.0.len() } else { joined.root(key) as usize };
            sets[set].push(time);
        }
        sets.retain(|set| !set.is_empty());
        sets.sort_by_key(Vec::len);
        sets
    }

    /// A call and its return, for a person.
    pub(crate) fn seen(&self, op: u32) -> Vec<CounterexampleEvent> {
        let (call, ret) = self.said[op as usize];
        let tell = |said: &ServiceEvent, does| CounterexampleEvent {
            process: self.h.process_name(crate::Proc(said.p)).into(),
            does,
            message: format!("{}: {}", self.h.message_name(Msg(said.m)), said.text),
            position: None,
            place: self.h.place(said.line),
            t_ns: said.t,
        };
        let mut seen = vec![tell(call, "calls")];
        seen.extend(ret.map(|ret| tell(ret, "gets back")));
        seen
    }

    /// `c1: GET a -> 1`.
    pub(crate) fn short(&self, op: u32) -> String {
        let (call, ret) = self.said[op as usize];
        let out = ret.map_or("(no answer)", |ret| &*ret.text);
        format!("{}: {} -> {out}", self.h.process_name(crate::Proc(call.p)), call.text)
    }
}

/// Union-find over keys.
struct UnionFind(Vec<u32>);

impl UnionFind {
    fn root(&mut self, k: u32) -> u32 {
        while self.0.len() <= k as usize {
            self.0.push(self.0.len() as u32);
        }
        let mut root = k;
        while self.0[root as usize] != root {
            // Halving the way keeps it short.
            self.0[root as usize] = self.0[self.0[root as usize] as usize];
            root = self.0[root as usize];
        }
        root
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[b as usize] = a;
    }
}
