//! The key-value service on a real cluster: what ties the services to the runtime.

mod backend;
mod calls;
mod store;
mod watch;

pub use backend::ClusterBackend;
pub use calls::CallBook;
pub use store::KvNode;
pub use watch::{LOST_AFTER, Lost, Watch, ask, lost};
