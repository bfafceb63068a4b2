//! How the world reaches the services.

pub mod files;
pub mod http;
mod limited;
pub mod log;
mod metrics;
pub mod places;
pub mod redis;
pub mod seldom;
