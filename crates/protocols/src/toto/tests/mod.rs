//! The rule, against the definitions of the paper; and a member, on a group that the test plays.

mod dags;
mod member;
mod model;
mod order;
