//! The services measured: beside a rival, and while leaders are killed.

mod bookkeeper;
pub(super) mod children;
pub(super) mod etcd;
mod failover;
mod load;
mod log;
mod rival;

pub use failover::{FailoverPlan, run as run_failover};
pub use log::{LogPlan, run as run_log};
pub use rival::{RivalPlan, run as run_rival};

use super::stop::check_stop;
