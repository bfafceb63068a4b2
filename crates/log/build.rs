//! Makes Rust of the public .proto file, and keeps its description for reflection.

use std::error::Error;
use std::path::PathBuf;

const ROOT: &str = "../../proto";
const FILE: &str = "amcast/log/v1/log.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={ROOT}/{FILE}");
    let mut compiler = protox::Compiler::new([ROOT])?;
    compiler.include_imports(true).include_source_info(true).open_file(FILE)?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo gives OUT_DIR")?);
    std::fs::write(out.join("log.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        .bytes(".amcast.log.v1")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
