//! Commands that are made of subcommands: what `HELP` answers of each, and the error of an unknown one.

use super::super::reply::{RedisError, Reply};

/// How a subcommand is written, and its effect.
type Subcommand = (&'static str, &'static str);

/// The subcommands of each command that has some, `HELP` aside.
const ALL: &[(&str, &[Subcommand])] = &[
    (
        "ACL",
        &[
            ("LIST", "List users with their permissions."),
            ("USERS", "List the names of users."),
            ("WHOAMI", "Return the name of this connection's user."),
        ],
    ),
    (
        "CLIENT",
        &[
            ("GETNAME", "Return the name of this connection."),
            ("GETREDIR", "Return -1: no connection tracks keys."),
            ("ID", "Return the number of this connection."),
            ("INFO", "Return facts about this connection."),
            ("KILL <ip:port>|<option> <value> [<option> <value> ...]", "End connections."),
            ("LIST [TYPE <type>|ID <id> ...]", "List connections."),
            ("NO-EVICT ON|OFF", "Accepted, without an effect."),
            ("NO-TOUCH ON|OFF", "Accepted, without an effect."),
            ("REPLY ON|OFF|SKIP", "Send answers, none, or none to the next command."),
            ("SETINFO LIB-NAME|LIB-VER <value>", "Name the client's library."),
            ("SETNAME <name>", "Name this connection."),
            ("TRACKINGINFO", "Say that this connection tracks no keys."),
            ("UNBLOCK <id> [TIMEOUT|ERROR]", "End the wait of a client that waits for a key."),
            ("UNPAUSE", "Accepted, without an effect."),
        ],
    ),
    (
        "CLUSTER",
        &[
            ("INFO", "Return facts about the cluster."),
            ("KEYSLOT <key>", "Return the slot of a key."),
            ("MYID", "Return the name of this node."),
            ("NODES", "Return this node, as the only one."),
            ("SHARDS", "Return all slots, at this node."),
            ("SLOTS", "Return all slots, at this node."),
        ],
    ),
    (
        "COMMAND",
        &[
            ("(no subcommand)", "Return facts about all commands."),
            ("COUNT", "Return the number of commands."),
            ("DOCS [<name> ...]", "Return the documentation of commands."),
            ("GETKEYS <command>", "Return the keys of a whole command."),
            ("INFO [<name> ...]", "Return facts about commands."),
            ("LIST [FILTERBY MODULE|ACLCAT|PATTERN <value>]", "List the names of commands."),
        ],
    ),
    (
        "CONFIG",
        &[
            ("GET <pattern> ...", "Return parameters with names like a pattern."),
            ("RESETSTAT", "Set the statistics that INFO tells to zero."),
            ("SET <name> <value> ...", "Accepted for the values that the parameters have."),
        ],
    ),
    (
        "FUNCTION",
        &[
            ("FLUSH [ASYNC|SYNC]", "Accepted, without an effect: there are no functions."),
            ("LIST [LIBRARYNAME <pattern>] [WITHCODE]", "Return none."),
        ],
    ),
    (
        "LATENCY",
        &[
            ("HISTOGRAM [<command> ...]", "Return none."),
            ("HISTORY <event>", "Return none."),
            ("LATEST", "Return none."),
            ("RESET [<event> ...]", "Return 0."),
        ],
    ),
    ("MEMORY", &[("USAGE <key> [SAMPLES <count>]", "Return about how many bytes a key takes.")]),
    (
        "OBJECT",
        &[
            ("ENCODING <key>", "Return how Redis would encode the key's value."),
            ("FREQ <key>", "Return an error: how often keys are read is not counted."),
            ("IDLETIME <key>", "Return the seconds since the key changed."),
            ("REFCOUNT <key>", "Return 1."),
        ],
    ),
    (
        "SLOWLOG",
        &[
            ("GET [<count>]", "Return none: slow commands are not logged."),
            ("LEN", "Return 0."),
            ("RESET", "Accepted, without an effect."),
        ],
    ),
];

/// Subcommands that Redis takes with any number of arguments at first: the error about too many of them has other words.
const OPEN_ENDED: [(&str, &str); 2] = [("FUNCTION", "FLUSH"), ("SLOWLOG", "GET")];

/// Answers `HELP`, in the form of Redis: a line for each subcommand and one for its effect.
///
/// # Errors
/// When the subcommand is another one: the command does not have it, or not with so many arguments. The error says which, as
/// Redis does.
pub(super) fn help(command: &str, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let known = ALL.iter().find(|(name, _)| *name == command);
    match (known, args) {
        (Some((name, subcommands)), [_, word]) if word.eq_ignore_ascii_case(b"help") => {
            reply.array(3 + 2 * subcommands.len());
            reply.simple(&format!(
                "{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
            ));
            for (usage, effect) in subcommands.iter().chain(&[("HELP", "Print this help.")]) {
                reply.simple(usage);
                reply.simple(&format!("    {effect}"));
            }
            Ok(())
        }
        _ => {
            let word = args.get(1).map_or("".into(), |word| String::from_utf8_lossy(word));
            let subcommands = known.map_or(&[][..], |(_, subcommands)| *subcommands);
            let names = subcommands.iter().filter_map(|(usage, _)| usage.split(' ').next());
            let is_known = names.chain(["HELP"]).any(|name| word.eq_ignore_ascii_case(name));
            let is_open =
                |(of, name): &(&str, &str)| *of == command && word.eq_ignore_ascii_case(name);
            Err(match is_known {
                true if OPEN_ENDED.iter().any(is_open) => RedisError::new(format!(
                    "ERR unknown subcommand or wrong number of arguments for '{word}'. Try {command} HELP."
                )),
                true => RedisError::arity(&format!("{command}|{word}").to_ascii_lowercase()),
                false => {
                    RedisError::new(format!("ERR unknown subcommand '{word}'. Try {command} HELP."))
                }
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::lookup;

    #[test]
    fn each_command_with_subcommands_answers_help_with_all_of_them() {
        for (name, subcommands) in ALL {
            assert!(lookup(name.as_bytes()).is_some(), "{name}");
            let mut out = Vec::new();
            help(name, &[name.as_bytes(), b"Help"], &mut Reply::new(&mut out)).unwrap();
            let text = String::from_utf8(out).unwrap();
            let lines = text.strip_suffix("\r\n").unwrap().split("\r\n").collect::<Vec<_>>();
            assert_eq!(lines[0], format!("*{}", lines.len() - 1));
            assert!(lines[1].starts_with(&format!("+{name} <subcommand>")), "{}", lines[1]);
            for (usage, effect) in *subcommands {
                let at = lines.iter().position(|line| *line == format!("+{usage}"));
                assert_eq!(lines[at.unwrap() + 1], format!("+    {effect}"));
            }
            assert_eq!(lines[lines.len() - 2..], ["+HELP", "+    Print this help."]);
        }
    }

    #[test]
    fn the_error_of_a_subcommand_says_whether_it_is_unknown_or_has_the_wrong_arguments() {
        let mut out = Vec::new();
        let mut error = |words: &str| {
            let args: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let error = help("OBJECT", &args, &mut Reply::new(&mut out)).unwrap_err();
            error.text().to_string()
        };
        let unknown = "ERR unknown subcommand 'Shape'. Try OBJECT HELP.";
        assert_eq!(error("OBJECT Shape k"), unknown);
        let arity = |name| format!("ERR wrong number of arguments for 'object|{name}' command");
        assert_eq!(error("OBJECT Help k"), arity("help"));
        assert_eq!(error("object ENCODING"), arity("encoding"));
        assert_eq!(out, b"");
    }
}
