//! Makes Rust of what is used of etcd's public API.

use std::error::Error;

const ROOT: &str = "../../proto";
const FILE: &str = "etcd/v3/etcd.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={ROOT}/{FILE}");
    let files = protox::compile([FILE], [ROOT])?;
    tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    Ok(())
}
