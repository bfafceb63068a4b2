//! Total order broadcast on virtual synchrony in the simulator: every row keeps what it promises,
//! views form one chain, and what a row admits and no more is seen of faulty processes.

mod links;
mod mutants;
mod promises;
mod shapes;
mod views;
mod witnesses;
