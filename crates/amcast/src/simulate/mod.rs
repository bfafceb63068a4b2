//! Whole replicas of a service in the simulator: what production runs above a protocol (executor, sessions, recovery,
//! state transfer, checkpoints) on all nodes of a simulated cluster, under the faults of the protocol, with clients that
//! retry at other nodes. What the clients saw is judged.
//!
//! [`Simulation::run`] makes one run. The same seed gives the same run. Below the nodes the protocol's own history is judged,
//! too ([`amcast_sim::Host`]).
//!
//! A state machine of your own needs an [`impl Simulated`](Simulated) and a [`Workload`]: what clients call, what an answer
//! says, and what must hold of the history.

mod application;
mod client;
mod host;
pub mod kv;
mod mutant;
mod node;

pub use host::{Finding, ServiceRun, ServiceSettings, Simulation};
pub use mutant::ServiceMutant;

use amcast_check::{History, PropertyVerdict};
use amcast_core::rng::Rng;
use amcast_core::{GroupSet, ServiceAnswer};
use amcast_smr::Machine;

/// A service that simulated nodes can be made of: it follows from the number of shards alone.
pub trait Simulated: Machine + Sized {
    /// The service over so many empty shards.
    fn over(shards: usize) -> Self;
}

/// A client's call.
pub struct Call {
    /// The shards that it goes to.
    pub dst: GroupSet,
    /// The command, as the machine takes it.
    pub body: Vec<u8>,
    /// Whether it changes nothing.
    pub read_only: bool,
    /// The same in the language of the history.
    pub op: String,
}

/// What an answer says to the gateway that asked.
pub enum Returned {
    /// The client is told this, in the language of the history.
    Out(String),
    /// Nobody knows what became of the command.
    Unknown,
    /// It was not executed, and is sent again.
    Again {
        /// Ordered time, if the command was refused by its stamp: in milliseconds of the hosts' clock.
        now_ms: Option<u64>,
    },
}

/// What clients do with a service, and what must hold of what they saw.
pub trait Workload {
    /// The service.
    type Machine: Simulated;

    /// A client's next call.
    fn next(&mut self, rng: &mut Rng) -> Call;

    /// A call that reads all that clients have written.
    fn last(&mut self) -> Call;

    /// What an answer says.
    fn returned(&self, answer: &ServiceAnswer<'_>) -> Returned;

    /// The properties of the service, by name, and whether the calls and returns of the history have them.
    fn judge(&self, history: &History) -> Vec<(&'static str, PropertyVerdict)>;
}
