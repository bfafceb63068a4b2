//! Standard output that cannot be written.

use std::io::{self, Write};

/// Ends the program if the panic is one of `println!`: what was to be printed has nowhere to go, as
/// on a full disk, and that is no mistake of the program's.
pub fn end_if_unwritten(info: &std::panic::PanicHookInfo<'_>) {
    let said = info.payload().downcast_ref::<String>();
    if let Some(why) = said.and_then(|said| said.strip_prefix("failed printing to stdout: ")) {
        let _ = writeln!(io::stderr(), "amcast: standard output cannot be written: {why}");
        std::process::exit(1);
    }
}
