//! The conformance suite of the medium `Memory` on every carrier there is.

mod broken;
mod mapped;
mod remote;
#[cfg(not(miri))] // nothing in it is unsafe
mod simulated;

use amcast_memory::conformance::{MemoryFabric, SUITE};

/// Runs the whole suite and says what failed.
fn run(carrier: &str, make: &mut dyn FnMut() -> Box<dyn MemoryFabric>) {
    for (law, test) in SUITE {
        println!("{carrier}: {law}");
        test(make);
    }
}
