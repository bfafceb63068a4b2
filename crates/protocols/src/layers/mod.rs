//! Parts that several protocols are built from. Each is as pure as the protocols themselves: it
//! takes the time and observations, and returns answers.

pub mod failure_detector;
pub mod routing;
pub mod vsync;
