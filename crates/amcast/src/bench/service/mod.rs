//! The key-value service measured: beside a rival, and while its leaders are killed.

pub(super) mod children;
pub(super) mod etcd;
mod failover;
mod load;
mod rival;

pub use failover::{FailoverPlan, run as run_failover};
pub use rival::{RivalPlan, run as run_rival};

use super::stop::go_on;
