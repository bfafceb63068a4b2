//! The list of commands in `docs/commands.md` is the registry's. With `AMCAST_WRITE=1` in the
//! environment the file is written anew.

use amcast::kv::registry::{CommandRunner, CommandSpec, families};
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
# Commands of the key-value store

Made from the registry of commands: `AMCAST_WRITE=1 cargo test -p amcast-cli --test commands`.

They are meant to behave as in Redis 7, with its options, in RESP2 and RESP3; the tests compare
answers with those of a real `redis-server`. The families *connection* and *server* answer what
clients and tools ask before they start. A command over keys of several shards is one atomic step.
A command that is not listed here is answered as Redis answers a command that it does not know. *Arguments*
counts the words behind the name. All of them together have 1 MB at most, or up to 64 MB where a cluster is set
so ([store.md](store.md#large-commands)). Names that a client gives itself and its library (`CLIENT SETNAME`, `SETINFO`) have
256 bytes at most, and the patterns of one `CONFIG GET` or `COMMAND LIST` 1 KB together.
";

/// How many arguments a command takes besides its name.
fn arguments(command: &CommandSpec) -> String {
    let least = command.arity.unsigned_abs() - 1;
    if command.arity < 0 { format!("{least} or more") } else { least.to_string() }
}

fn row(command: &CommandSpec) -> String {
    let name = command.name.to_uppercase();
    let by = match command.run {
        CommandRunner::Gateway(_) => "the gateway",
        CommandRunner::Blocking(_) => "shards, writes",
        CommandRunner::Shards(_) | CommandRunner::Both(..) if command.writes() => "shards, writes",
        CommandRunner::Shards(_) | CommandRunner::Both(..) => "shards",
    };
    format!("| {name} | {} | {by} | {} |\n", arguments(command), command.summary)
}

/// The page as it should be.
fn page() -> String {
    let mut text = HEAD.to_string();
    let mut names: Vec<&str> = Vec::new();
    families().iter().for_each(|(name, _)| {
        if !names.contains(name) {
            names.push(name);
        }
    });
    for name in names {
        let all = families().iter().filter(|(family, _)| *family == name).flat_map(|(_, all)| *all);
        let mut rows: Vec<String> = all.map(row).collect();
        rows.sort();
        let head = "| command | arguments | run by | what it does |\n|---|---|---|---|\n";
        write!(text, "\n## {name} ({})\n\n{head}{}", rows.len(), rows.concat())
            .expect("a string takes everything");
    }
    text
}

#[test]
fn the_list_of_commands_in_the_docs_is_that_of_the_registry() {
    let _limit = amcast_test_policy::time_limit();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let right = page();
    if std::env::var_os("AMCAST_WRITE").is_some_and(|v| v == "1") {
        std::fs::write(&path, &right).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = right.lines().zip(written.lines()).find(|(a, b)| a != b);
    assert!(
        right == written,
        "docs/commands.md is stale, first at {differs:?}; write it anew: AMCAST_WRITE=1 cargo test -p \
         amcast-cli --test commands"
    );
    assert!(right.contains("| SET |") && right.contains("| MGET |"));
}
