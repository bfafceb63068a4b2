//! Parts that several protocols are built from. Each is as pure as the protocols themselves: it is
//! told the time and what was seen, and answers.

pub mod failure_detector;
pub mod routing;
pub mod vsync;
