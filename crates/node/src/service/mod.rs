//! Services on a real cluster: what ties them to the runtime.

mod backend;
pub mod calls;
mod clock_pace;
mod cluster_readiness;
mod digests;
mod disk_room;
mod node_metrics;
mod reads;
mod store;
mod watch;

pub use backend::{ClusterBackend, without_majority};
pub use calls::CallBook;
pub use clock_pace::ClockPace;
pub use cluster_readiness::{
    ClusterReadiness, LateNodes, MissingNode, NotServing, START_PATIENCE, missing_nodes,
};
pub use digests::DigestPace;
pub use reads::Reads;
pub use store::{Hosted, ServiceNode, blocked_clients, first_partitions, host_logs, host_store};
pub use watch::{ClusterWatch, LOST_AFTER, LostShard, down, forgets, lost};
