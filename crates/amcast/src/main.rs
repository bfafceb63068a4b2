//! The program `amcast`; see the library's [`amcast::commands`].

fn main() -> std::process::ExitCode {
    amcast::commands::main()
}
