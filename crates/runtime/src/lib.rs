//! amcast-runtime
