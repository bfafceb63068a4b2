//! The program `amcast`: a cluster on this machine, a node of one, clients of its services, what looks at histories and
//! logs on disk, and the laboratory (`amcast_lab`).
//!
//! Read `commands/mod.rs` (what a subcommand is), `commands/node.rs` (a node), then `commands/up.rs` (many).

mod commands;

/// Keys and values of a store lie all over its memory: with huge pages fewer reads wait for the tables of pages, too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    amcast_node::memory_links::HostCarrier::prepare();
    commands::main()
}
