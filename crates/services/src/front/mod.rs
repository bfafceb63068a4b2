//! How the world reaches the services.

pub mod http;
mod limited;
pub mod places;
pub mod redis;
pub mod seldom;
