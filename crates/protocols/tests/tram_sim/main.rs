//! TRAM in the simulator, judged by the checker.
//!
//! [`shapes`] draws configurations and judges runs. `promises`: nothing is broken under any fault,
//! and every rare branch is reached. `returns`: the same where the places of clients are taken again.
//! `overlays`: the same while the tree of the groups changes.
//! `mutants`: each way of breaking TRAM is found. `played`: those that a scenario shows. `exploration`:
//! small configurations, all choices within bounds. `links`: a link that is never mended.

mod exploration;
mod links;
mod mutants;
mod overlays;
mod played;
mod promises;
mod returns;
mod shapes;
