//! amcast-protocols
