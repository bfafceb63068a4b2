//! amcast-check
