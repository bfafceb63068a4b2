//! Properties of services, from their clients' view: linearizability, sequential consistency, read-your-writes and
//! exactly-once, from the calls and returns of a history.
//!
//! A call is `{"ev":"call",..}` and ends with the `{"ev":"return",..}` of the same process and
//! message; a call without return may have taken effect or not. A second call with the same message
//! is a retry of the same command and changes nothing. The text of `op` and `out` is that of a
//! [`ServiceModel`]; [`check`](crate::check) takes the key-value store's, [`kv`], and that of logs is [`log`].
//!
//! - *linearizable*: there is one order of all calls, in which a call that returned before another
//!   was made comes first, that explains every answer. Decided key by key; keys that one call
//!   touches together are decided together.
//! - *sequential*: the same, but only calls of one client keep their order [MRP 6.1]. Decided for
//!   each set of connected keys, then for all keys at once.
//! - *read-your-writes*, *exactly-once*: see [`read_your_writes`] and [`exactly_once`].
//!
//! The first two are decided by search, which can take for ever: it counts the different situations
//! it meets and gives up at a [`Budget`], with [`PropertyVerdict::NotJudged`].

mod calls;
pub mod kv;
mod linear;
pub mod log;
mod model;
mod omitted;
mod once;
mod search;
mod session;

pub use model::ServiceModel;
pub use omitted::OmittedCalls;
pub use once::exactly_once;
pub use session::read_your_writes;

use crate::history::History;
use crate::report::PropertyVerdict;

/// The bound of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Different situations (calls ordered so far, and state) that one property's search may
    /// remember. Each takes 32 to 64 bytes while the search of its keys lasts.
    pub states: u64,
}

impl Default for Budget {
    /// Four million states: some seconds, and at most 256 MB.
    fn default() -> Self {
        Self { states: 4_000_000 }
    }
}

/// Whether the calls of a key-value store are linearizable.
pub fn linearizable(history: &History, budget: Budget) -> PropertyVerdict {
    linearizable_as(kv::KvModel::new(), history, budget)
}

/// Whether the calls of a key-value store are sequentially consistent.
pub fn sequential(history: &History, budget: Budget) -> PropertyVerdict {
    sequential_as(kv::KvModel::new(), history, budget)
}

/// Whether the calls of a service with this model are linearizable.
pub fn linearizable_as<M: ServiceModel>(
    mut model: M,
    history: &History,
    budget: Budget,
) -> PropertyVerdict {
    match calls::JudgedCalls::new(history, &mut model) {
        Ok(calls) => linear::linearizable(&model, &calls, budget.states),
        Err(why) => why.into(),
    }
}

/// Whether the calls of a service with this model are sequentially consistent.
pub fn sequential_as<M: ServiceModel>(
    mut model: M,
    history: &History,
    budget: Budget,
) -> PropertyVerdict {
    match calls::JudgedCalls::new(history, &mut model) {
        Ok(calls) => linear::sequential(&model, &calls, budget.states),
        Err(why) => why.into(),
    }
}
