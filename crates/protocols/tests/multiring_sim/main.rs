//! Multi-Ring Paxos in the simulator: with every kind of storage it keeps what it promises, through
//! under all faults within its assumptions.

mod caught_up;
mod far;
mod heal;
mod mutants;
mod promises;
mod rivals;
mod shapes;
mod silent;
mod slow;
