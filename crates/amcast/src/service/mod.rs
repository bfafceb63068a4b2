//! Services on a real cluster: what ties them to the runtime.

mod backend;
mod calls;
mod log;
mod store;
mod watch;

pub use backend::ClusterBackend;
pub use calls::CallBook;
pub use log::LogBackend;
pub use store::{Hosted, ServiceNode, host_logs};
pub use watch::{LOST_AFTER, Lost, Watch, down, forgets, lost};
