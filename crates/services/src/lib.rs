//! amcast-services
