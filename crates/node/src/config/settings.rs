//! The settings of a cluster's file, each declared once: `amcast config --explain`, the help of the flags of `amcast up`
//! and the table of docs/settings.md are made of this list, and what decides what commands do is checked against it.
//!
//! The parameters of protocols are declared likewise, in [`amcast_core::parameters`] and by each protocol.

use std::fmt::Write;

/// How wide a key and its value are in the template, at least.
const COLUMN: usize = 22;

/// A key of the file, but for tables.
#[derive(Clone, Copy, Debug)]
pub struct FileSetting {
    /// The key.
    pub key: &'static str,
    /// A value as the template shows it: what holds where the file has none, if that can be written.
    pub shown: &'static str,
    /// Another value that it takes.
    pub other: &'static str,
    /// Its meaning, with its unit, its range, its default and what it costs: the lines of the template.
    pub about: &'static [&'static str],
    /// Whether it decides what commands do, and so must be the same in all runs of a cluster and on all its hosts.
    pub decides: bool,
    /// Whether the shown value is an example, and not what holds where the file has none: the template has the line as a
    /// comment then.
    pub is_example: bool,
    /// The flag of `amcast up` that sets it, if there is one, and what its help says.
    pub flag: Option<SettingFlag>,
}

/// A flag of `amcast up` that sets a key of the file.
#[derive(Clone, Copy, Debug)]
pub struct SettingFlag {
    /// Its name, without the dashes.
    pub name: &'static str,
    /// Its help; its default is in brackets.
    pub help: &'static str,
}

/// The help of the flag of `amcast up` with this name.
///
/// # Panics
/// If no setting has such a flag.
pub fn flag_help(name: &str) -> &'static str {
    let mut flags = SETTINGS.iter().filter_map(|setting| setting.flag);
    flags.find(|flag| flag.name == name).expect("the flag of a setting").help
}

const fn setting(
    key: &'static str,
    shown: &'static str,
    other: &'static str,
    about: &'static [&'static str],
) -> FileSetting {
    FileSetting { key, shown, other, about, decides: false, is_example: false, flag: None }
}

impl FileSetting {
    /// It decides what commands do.
    const fn decides(self) -> Self {
        Self { decides: true, ..self }
    }

    /// The shown value is an example.
    const fn example(self) -> Self {
        Self { is_example: true, ..self }
    }

    /// A flag of `amcast up` sets it, too.
    const fn flag(self, name: &'static str, help: &'static str) -> Self {
        Self { flag: Some(SettingFlag { name, help }), ..self }
    }
}

/// The keys that every cluster's file may have, in the order of the template.
pub const SETTINGS: &[FileSetting] = &[
    setting("protocol", r#""multi-ring""#, r#""tram""#, &["which protocol orders commands: `amcast protocols`"])
    .decides()
    .flag("protocol", "The protocol that orders commands: over shared memory, such as tram, or one that sends messages: to \
         several shards, such as multi-ring, or with one shard, such as bb-urcast-urcast [multi-ring]"),
    setting("shards", "3", "4", &["groups of replicas, each with a part of the keys: 1 to 64"])
        .decides()
        .flag("shards", "Shards of the key-value store [3; 1 if the protocol broadcasts within one group]"),
    setting("replicas", "3", "5", &["replicas of each shard, on as many nodes: 1 to 32, with protocols over shared memory to 9"])
    .decides()
    .flag("replicas", "Replicas of each shard, and so nodes [3]"),
    setting("clients", "8", "9", &["places in shared memory for gateways, benchmarks and tools: at most 256"]),
    setting("overlay", r#""breadth""#, r#""depth""#, &["the tree over the shards: breadth, depth, base, or parents -1,0,0"])
    .flag("overlay", "The tree over the shards: breadth, depth, base, or parents such as -1,0,0 [breadth]"),
    setting("maxmemory_mb", "2000", "30", &["MB that all keys may take in each node, in equal parts for its shards; beyond, writes are", "refused; AMCAST.MAXMEMORY sets it later; by default any, but `up` and `config init` write it"])
    .decides()
    .flag("maxmemory-mb", "MB that all keys may take in each node of a new cluster, in equal parts for its shards; beyond, \
         commands that may need more are refused. The Redis command AMCAST.MAXMEMORY sets it later [2000]"),
    setting("command_max_mb", "1", "64", &["MB of 2^20 bytes that a Redis command or a transaction may have: 1 to 64; hosts may differ"])
    .flag("command-max-mb", "MB of 2^20 bytes that a Redis command or a transaction may have with all its arguments, 1 to 64; \
         what is larger than a message is ordered in parts [1]"),
    setting(
        "hash_seed",
        r#""000102030405060708090a0b0c0d0e0f""#,
        r#""100102030405060708090a0b0c0d0e0f""#,
        &["32 digits of your own that nobody guesses, for ever: without, keys can", "be chosen that take long to find; `up` and `config init` draw one"],
    )
    .example()
    .decides(),
    setting("log_dir", r#""DIR""#, r#""OTHER""#, &["nodes keep the values of logs in files there, seen from the cluster's own", "directory; by default in memory, or with `amcast up` on a disk in that directory"])
    .example()
    .decides()
    .flag("log-dir", "A directory on a disk: each node keeps the values of its logs in files there, which have no names \
         and go with it; --log-mb is then for what stays in memory: names, what says where values lie, and \
         recent values [the cluster's own directory, if the cluster keeps what it orders on a disk]"),
    setting("log_disk_mb", "10000", "3", &["MB that the logs of a node may hold there, however many values those are"])
    .decides()
    .flag("log-disk-mb", "MB that the logs of a node may hold in files, at most a hundred times --log-mb for all of it to be \
         of use [10000]"),
    setting("log_mb", "200", "3", &["MB that the logs of a node may hold in memory: without log_dir values, else names, what says where", "values lie, and recent values; beyond, appends are refused until logs are trimmed or deleted"])
    .decides()
    .flag("log-mb", "MB that the logs of a node may hold, in equal parts for its shards; beyond, appends are refused \
         until logs are trimmed [200]"),
    setting("partition", r#""range""#, r#""range""#, &["partitions are parts of the order of keys; by default \"hash\": of slots"])
    .example()
    .decides()
    .flag("partition", "The order of keys that partitions are parts of, each held by a shard: hash (of slots, as in Redis \
         Cluster) or range (of the keys themselves) [hash]"),
    setting("partitions", "2", "2", &["partitions at first, each held by a shard; by default as many as shards, else some are spare"])
    .example()
    .decides()
    .flag("partitions", "How many partitions keys have at first; shards beyond are spare, for `amcast kv split` [as many as \
         shards]"),
    setting("boundaries", r#"["h"]"#, r#"["h"]"#, &["range: the first keys of all partitions but the first; by default even parts, for random bytes"])
    .example()
    .decides()
    .flag("boundaries", "The first keys of all partitions but the first, at first, with --partition range [even, for keys of \
         random bytes]"),
    setting("workers", "0", "7", &["threads of a node that execute commands; by default as its cores allow"])
    .example()
    .flag("workers", "Threads of each node that execute commands which do not conflict in parallel; 0: the thread that \
         orders commands executes them, too [as many as its share of the cores has to spare]"),
    setting("digest_secs", "5", "0", &["seconds from a change of a shard until its replicas compare digests of their states; 0: never"]),
    setting("disk_reserve_mb", "256", "0", &["MB that each node's disk keeps free besides room for a state: where less is free at too many nodes,", "commands that may take more are refused; by default 256, at most an eighth of the disk; 0: none"]),
    setting("state_mb_s", "50", "0", &["MB of its state that a node gives to another, or writes to its disk, in a second; when one takes", "more than 20 s, twice as many, and so on; 0: any"]),
    setting("rdma_provider", r#""tcp""#, r#""verbs""#, &["libfabric's provider (tcp, verbs, efa) by which nodes on several hosts carry the memory of protocols over memory, the", "same on every host, in a program with the feature `rdma`; by default their connections carry it"])
    .example(),
    setting("record", r#""DIR""#, r#""OTHER""#, &["every process writes its history there, seen from the directory of this file"])
    .example()
        .flag("record", "Every process writes its history into this directory, for `amcast check`. That costs speed, and \
         about 100 bytes for each command and replica"),
    setting("record_limit", "256", "7", &["MB of each kind that a process may record in all its lives"])
    .flag("record-limit", "How many megabytes of each kind - deliveries, multicasts, calls - a process may record in all its \
         incarnations; then, or when the disk is full, all recording stops and the service continues [256]"),
    setting("data", r#""DIR""#, r#""OTHER""#, &["where the nodes of a host keep what is theirs, seen from the directory of this file; by default that directory"])
    .example()
    .flag("data", "A directory for the cluster's files and shared memory: new, empty, or left by a cluster. If it was \
         there before, it stays; other files in it are never touched. Where the protocol keeps a log, the \
         data stay in it, and the next `up` continues with them: settings that are not given then are as \
         before [./amcast-data where the protocol keeps a log, else one in /dev/shm]"),
    setting("node_fronts", "true", "false", &["whether each node that `amcast up` starts serves clients, too"])
    .flag("no-node-fronts", "Serve clients from this process only, not from every node as well"),
    setting("password", r#""SECRET""#, r#""OTHER""#, &["the password that clients must give (Redis: AUTH, log: Bearer); only the owner may read this file then"])
    .example()
    .flag("password-file", "A file whose first line Redis clients must give with AUTH, and nobody else should be able to read"),
];

/// The keys of a cluster whose nodes send messages.
pub const NETWORK: &[FileSetting] = &[
    setting("id", "4711", "4712", &["the cluster's number: nodes of another one are not let in"])
        .example(),
    setting(
        "secret",
        r#""secret""#,
        r#""other""#,
        &["a file beside this one, the same on every host: nodes prove that they know it"],
    )
    .example(),
    setting(
        "insecure",
        "false",
        "true",
        &[
            "whether nodes may listen beyond this machine without secret and password, which is refused else",
        ],
    ),
];

/// The keys that `amcast up` writes for itself.
pub const OWN_KEYS: &[(&str, &str)] = &[
    (
        "durable",
        "whether the nodes keep data on disk, with which the next `amcast up` there continues",
    ),
    (
        "clock_ahead_ms",
        "milliseconds by which the time of the cluster is ahead of the time since the host booted, so that it continues",
    ),
];

/// A table of the file.
#[derive(Clone, Copy, Debug)]
pub struct FileTable {
    /// Its name; of one for each node, that of the first.
    pub name: &'static str,
    /// The lines of comment above it in the template.
    pub about: &'static [&'static str],
    /// Its keys.
    pub settings: &'static [FileSetting],
    /// Whether the template has it as a comment, since most clusters do without it.
    pub is_comment: bool,
}

/// Where the gateways listen.
pub const PORTS: FileTable = FileTable {
    name: "ports",
    about: &[
        "The ports of the gateways: 0 takes any; by default the usual one, or any if that is taken.",
    ],
    settings: &[
        setting("redis", "6379", "0", &["Redis clients"]),
        setting("log", "6380", "0", &["the log, over gRPC"]),
        setting("http", "6381", "0", &["status page and metrics"]),
    ],
    is_comment: true,
};

/// Where a node is.
pub const NODE: FileTable = FileTable {
    name: "nodes.n0",
    about: &[
        "Where each node is: n0, n1, n2, .., one for each replica. On one machine `amcast up` chooses all of it. On several,",
        "every host has the same file, and runs `amcast node --config FILE --name n0` for its node: docs/deploy.md.",
    ],
    settings: &[
        setting(
            "address",
            r#""10.0.0.1:7400""#,
            r#""10.0.0.2:7400""#,
            &["where the others reach it, by TCP and UDP"],
        ),
        setting(
            "listen",
            r#""0.0.0.0:7400""#,
            r#""0.0.0.0:7402""#,
            &["where it listens; by default at its address"],
        ),
        setting(
            "control",
            r#""10.0.0.1:7401""#,
            r#""10.0.0.2:7401""#,
            &["where it gives its state to nodes of other hosts that lost theirs"],
        ),
        setting(
            "redis",
            r#""10.0.0.1:6379""#,
            r#""10.0.0.2:6379""#,
            &["where it serves Redis clients; of these three at least one, or it serves nobody"],
        ),
        setting(
            "log",
            r#""10.0.0.1:6380""#,
            r#""10.0.0.2:6380""#,
            &["where it serves the log over gRPC"],
        ),
        setting(
            "http",
            r#""10.0.0.1:6381""#,
            r#""10.0.0.2:6381""#,
            &["where its status page and metrics are"],
        ),
        setting(
            "replaced",
            "0",
            "1",
            &["how often it began anew with an empty disk: add one for each time, on all hosts"],
        ),
    ],
    is_comment: true,
};

/// Where nodes find each other.
pub const ETCD: FileTable = FileTable {
    name: "etcd",
    about: &[
        "Where etcd is, to hear there where the other nodes are: then the file has this host's node only.",
        "Relative paths are seen from the directory of this file.",
    ],
    settings: &[
        setting(
            "endpoints",
            r#"["http://10.0.0.9:2379"]"#,
            r#"["https://10.0.0.9:2379"]"#,
            &["its servers; https:// with ca"],
        ),
        setting(
            "prefix",
            r#""/amcast""#,
            r#""/other""#,
            &["the folder of the keys; the cluster's number follows"],
        ),
        setting(
            "ca",
            r#""ca.pem""#,
            r#""other.pem""#,
            &["the authority that signed its servers' certificates"],
        ),
        setting(
            "cert",
            r#""node.pem""#,
            r#""other.pem""#,
            &["the certificate of the node, if etcd asks for one"],
        ),
        setting("key", r#""node.key""#, r#""other.key""#, &["the key of that certificate"]),
        setting(
            "user",
            r#""NAME""#,
            r#""OTHER""#,
            &["the user that nodes are to etcd, if it asks for one"],
        ),
        setting(
            "password_file",
            r#""FILE""#,
            r#""OTHER""#,
            &["a file whose first line is that user's password"],
        ),
        setting(
            "lease_s",
            "5",
            "6",
            &[
                "seconds after its last message until readers of etcd take a node for dead: 1 to 3600",
            ],
        ),
    ],
    is_comment: true,
};

/// The table of a protocol's parameters, which each protocol declares.
pub const PARAMETERS: &str = "set";

/// The begin of a setting that is not in force.
const COMMENT: &str = "# ";

/// Writes a setting with this value as lines of a file.
fn write_setting(setting: &FileSetting, shown: &str, prefix: &str, text: &mut String) {
    let prefix = if setting.is_example { COMMENT } else { prefix };
    let mut line = format!("{prefix}{} = {shown}", setting.key);
    for about in setting.about {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line:<COLUMN$} # {about}");
        line.clear();
    }
}

/// Writes settings as lines of a file.
fn write_settings(settings: &[FileSetting], prefix: &str, text: &mut String) {
    settings.iter().for_each(|setting| write_setting(setting, setting.shown, prefix, text));
}

/// A file with all settings, of a cluster of this protocol and number of shards whose nodes send messages (`network`) or share
/// memory. It ends with the head of the table of the protocol's parameters.
pub fn template(protocol: &str, shards: usize, network: bool) -> String {
    let mut text =
        "# A cluster file. Every key is optional. Lines that begin with # are examples.\n"
            .to_string();
    for setting in SETTINGS {
        let shown = match setting.key {
            "protocol" => format!("\"{protocol}\""),
            "shards" => shards.to_string(),
            _ => setting.shown.to_string(),
        };
        write_setting(setting, &shown, "", &mut text);
    }
    if network {
        write_settings(NETWORK, "", &mut text);
    }
    let tables = [PORTS, NODE, ETCD];
    for table in &tables[..if network { 3 } else { 1 }] {
        let FileTable { name, about, settings, is_comment } = table;
        let prefix = if *is_comment { COMMENT } else { "" };
        text.push('\n');
        for about in *about {
            let _ = writeln!(text, "# {about}");
        }
        let _ = writeln!(text, "{prefix}[{name}]");
        write_settings(settings, prefix, &mut text);
    }
    let _ = writeln!(text, "\n# The protocol's parameters.\n[{PARAMETERS}]");
    text
}

#[cfg(test)]
mod tests {
    use super::super::ClusterFile;
    use super::*;
    use crate::config::names::expected;
    use std::collections::BTreeSet;
    use std::path::Path;

    const PAGE: &str = "\
# Settings of a cluster's file

Made from the declarations of the settings: `AMCAST_WRITE=1 cargo test -p amcast-node --lib settings`.

Every key is optional. `amcast config --explain` prints all settings as lines of a file, with examples and the
parameters of a protocol (table `[set]`) as comments: take from it what you need. `amcast config check FILE` checks a file, and names the nearest key where it finds an unknown one.
Nodes refuse each other if their files differ in a setting that must be the same on all hosts. Of the replicas of a shard less than
half may fail at one time.

";

    /// The settings as rows of a table.
    fn table() -> String {
        let mut text =
            "| key | for example | flag of `amcast up` | the same on all hosts | what it is |\n\
                        |---|---|---|---|---|\n"
                .to_string();
        for FileSetting { key, shown, about, decides, flag, .. } in SETTINGS {
            let flag = flag.map_or(String::new(), |flag| format!("`--{}`", flag.name));
            let same = if *decides { "yes" } else { "" };
            let about = about.join(" ");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| `{key}` | `{shown}` | {flag} | {same} | {about} |");
        }
        text
    }

    /// The keys of clusters on several hosts, and of the tables.
    fn further_tables() -> String {
        let mut text =
            "\nOf a cluster whose nodes send messages ([deploy.md](deploy.md)):\n".to_string();
        let rows = |settings: &[FileSetting], text: &mut String| {
            text.push_str("\n| key | for example | what it is |\n|---|---|---|\n");
            for FileSetting { key, shown, about, .. } in settings {
                let _ = writeln!(text, "| `{key}` | `{shown}` | {} |", about.join(" "));
            }
        };
        rows(NETWORK, &mut text);
        for FileTable { name, about, settings, .. } in [PORTS, NODE, ETCD] {
            let _ = writeln!(text, "\n## `[{name}]`\n\n{}", about.join("\n"));
            rows(settings, &mut text);
        }
        text += "\n## Keys that programs write\n\n`amcast up` writes these into the file of its cluster. Do not set them.\n\n\
                 | key | what it is |\n|---|---|\n";
        for (key, about) in OWN_KEYS {
            let _ = writeln!(text, "| `{key}` | {about} |");
        }
        text
    }

    fn file(text: &str) -> ClusterFile {
        toml::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn each_key_of_the_file_is_declared_once() {
        let wrong = toml::from_str::<ClusterFile>("nothing = 1").unwrap_err().to_string();
        let keys: BTreeSet<&str> = expected(&wrong).into_iter().collect();
        assert!(keys.len() > 30, "{wrong}");
        let settings = SETTINGS.iter().chain(NETWORK).map(|setting| setting.key);
        let tables = [PORTS.name, "nodes", ETCD.name, PARAMETERS];
        let all: Vec<&str> =
            settings.chain(OWN_KEYS.iter().map(|own| own.0)).chain(tables).collect();
        assert_eq!(all.len(), keys.len(), "a key is declared twice, or not at all");
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), keys);
    }

    #[test]
    fn each_key_of_a_table_is_declared_once() {
        for FileTable { name, settings, .. } in [PORTS, NODE, ETCD] {
            let text = format!("[{name}]\nnothing = 1");
            let wrong = toml::from_str::<ClusterFile>(&text).unwrap_err().to_string();
            let keys: Vec<&str> = settings.iter().map(|setting| setting.key).collect();
            assert_eq!(expected(&wrong), keys, "{wrong}");
            let read = |varied: &str| {
                let value = |s: &FileSetting| if s.key == varied { s.other } else { s.shown };
                let lines = settings.iter().map(|s| format!("{} = {}\n", s.key, value(s)));
                file(&format!("[{name}]\n{}", lines.collect::<String>()))
            };
            let shown = read("none");
            for key in keys {
                assert_ne!(read(key), shown, "{name}.{key}: the other value is the same");
            }
        }
    }

    /// The lines of a table of a file, or those before all tables where the name is empty.
    fn lines_of<'a>(text: &'a str, table: &str) -> Vec<&'a str> {
        let mut name = "";
        let is_of_table = |line: &&'a str| {
            if let Some(begun) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                name = begun;
            }
            name == table
        };
        text.lines().filter(is_of_table).collect()
    }

    #[test]
    fn the_template_is_a_file_with_every_setting_in_it() {
        let text = template("multi-ring", 3, true);
        let all = [SETTINGS, NETWORK, PORTS.settings, NODE.settings, ETCD.settings].concat();
        let lines = all.iter().map(|setting| format!("{} = ", setting.key));
        let lines = lines.chain([PORTS, NODE, ETCD].map(|table| format!("[{}]", table.name)));
        let whole = lines.fold(text.clone(), |text, line| {
            text.replace(&format!("\n# {line}"), &format!("\n{line}"))
        });
        let written = toml::to_string(&file(&whole)).unwrap();
        let quiet = ["insecure", "replaced"];
        let tables = [PORTS, NODE, ETCD].map(|table| (table.name, table.settings));
        for (table, settings) in tables.into_iter().chain([("", NETWORK), ("", SETTINGS)]) {
            let (shown, read) = (lines_of(&whole, table), lines_of(&written, table));
            for FileSetting { key, about, .. } in settings {
                let has =
                    |lines: &[&str]| lines.iter().any(|l| l.starts_with(&format!("{key} = ")));
                assert!(has(&shown), "{table}: {key}");
                assert!(has(&read) || quiet.contains(key), "{table}: {key} is not read: {written}");
                assert!(!about.is_empty() && text.contains(about[0]), "{table}: {key}");
            }
        }
        let unedited = file(&text);
        assert_eq!((unedited.etcd, unedited.password, unedited.nodes.len()), (None, None, 0));
        assert!(!template("tram", 3, false).contains("[nodes"));
    }

    #[test]
    fn what_is_declared_to_decide_decides_and_nothing_else() {
        let usual = ClusterFile::default();
        for FileSetting { key, other, decides, .. } in SETTINGS {
            let changed = file(&format!("{key} = {other}"));
            assert_ne!(changed, usual, "{key} = {other} is the default");
            assert_eq!(changed.decides() != usual.decides(), *decides, "{key}");
            assert_eq!(changed.marks(&[]) != usual.marks(&[]), *decides, "{key}");
        }
    }

    #[test]
    fn the_page_of_settings_is_made_of_their_declarations() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
        let page = [PAGE, &table(), &further_tables()].concat();
        if std::env::var_os("AMCAST_WRITE").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(there == page, "docs/settings.md is not made of the declarations: write it anew");
        for FileSetting { key, flag, .. } in SETTINGS {
            assert!(page.contains(&format!("\n| `{key}` | ")), "{key}");
            let named = |flag: SettingFlag| page.contains(&format!(" | `--{}` | ", flag.name));
            assert!(flag.is_none_or(named), "{key}");
        }
    }
}
