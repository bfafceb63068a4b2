//! Multi-Ring Paxos in the simulator: with every kind of storage it keeps what it promises, through
//! whatever strikes within what it assumes.

mod far;
mod heal;
mod mutants;
mod promises;
mod rivals;
mod shapes;
mod silent;
mod slow;
