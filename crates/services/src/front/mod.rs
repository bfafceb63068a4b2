//! How the world reaches the services.

pub mod http;
pub mod redis;
mod seldom;
