//! amcast-memory
