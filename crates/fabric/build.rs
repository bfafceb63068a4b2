//! Builds the shim over libfabric where the feature `rdma` asks for it.

fn main() {
    #[cfg(feature = "rdma")]
    build_shim();
}

#[cfg(feature = "rdma")]
fn build_shim() {
    println!("cargo:rerun-if-changed=src/shim.c");
    println!("cargo:rerun-if-env-changed=LIBFABRIC_DIR");
    // For a libfabric that is installed elsewhere: a directory with `include` and `lib`.
    let dir = std::env::var("LIBFABRIC_DIR").ok();
    let mut build = cc::Build::new();
    build.file("src/shim.c").warnings(true).extra_warnings(true).warnings_into_errors(true);
    if let Some(dir) = &dir {
        build.include(format!("{dir}/include"));
        println!("cargo:rustc-link-search=native={dir}/lib");
    }
    // The preprocessor finds the headers, or the library is not there.
    assert!(
        build.clone().try_expand().is_ok(),
        "the feature `rdma` needs libfabric, whose headers are missing: install the package libfabric-dev (Debian, \
         Ubuntu) or libfabric-devel (Fedora), or set LIBFABRIC_DIR to where libfabric is installed"
    );
    build.compile("amcast_fabric_shim");
    println!("cargo:rustc-link-lib=fabric");
    // `dladdr`, which older systems have in a library of its own.
    println!("cargo:rustc-link-lib=dl");
}
