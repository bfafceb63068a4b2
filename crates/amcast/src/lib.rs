//! amcast
