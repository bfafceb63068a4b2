//! Redis's protocol as bytes, without a socket: requests are read ([`parser`]), answers written as one client's version of the
//! protocol wants them ([`reply`]).

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod parser;
pub mod reply;
