//! amcast-sim
