//! The conformance suite of the medium `Messages` on every carrier there is.

mod broken;
mod loopback;
mod simulated;

use amcast_net::conformance::{MessageFabric, MessageLaw, SUITE};

/// Runs the whole suite and says what failed.
fn run(carrier: &str, make: &mut dyn FnMut() -> Box<dyn MessageFabric>) {
    run_all(SUITE, carrier, make);
}

/// Runs a suite.
fn run_all(
    suite: &[(&str, MessageLaw)],
    carrier: &str,
    make: &mut dyn FnMut() -> Box<dyn MessageFabric>,
) {
    for (law, test) in suite {
        println!("{carrier}: {law}");
        test(make);
    }
}
