//! See `crates/fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (amcast_fuzzing::target("memory_frames").expect("it is declared").run)(bytes);
});
