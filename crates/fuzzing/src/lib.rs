//! A function for each place where bytes come in from outside: files, clients, peers.
//!
//! None of them may panic on any input; each asserts its other invariants itself. A fuzzer calls
//! them (`fuzz/`, with nightly Rust); `tests/corpus` calls the same functions in every test run,
//! with the corpus and a bounded number of changes to it. The targets of protocols go through the
//! catalog: a new protocol is fuzzed without a line here.

mod files;
mod frames;
mod log;
mod memory;
mod net;
mod parts;
mod protocols;
mod redis;
mod state;

/// A place where bytes come in.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Its name, and that of its corpus: `fuzz/corpus/NAME`.
    pub name: &'static str,
    /// The check of these bytes. Panics if it fails.
    pub run: fn(&[u8]),
    /// Fragments of such bytes, to be put in at random places.
    pub words: &'static [&'static str],
}

/// All of them.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget {
        name: "redis_requests",
        run: redis::requests,
        words: &["*", "$", "\r\n", "*1\r\n", "$1\r\n", "-1", "0", "536870913", "\n", "\"", "PING"],
    },
    FuzzTarget {
        name: "redis_commands",
        run: redis::commands,
        words: &[
            " ",
            "\n",
            "SET",
            "GET",
            "MSET",
            "EX",
            "PX",
            "NX",
            "KEEPTTL",
            "GETRANGE",
            "HSET",
            "LPUSH",
            "ZADD",
            "ZRANGE",
            "BYSCORE",
            "LIMIT",
            "-1",
            "inf",
            "nan",
            "9223372036854775807",
            "1e308",
            "SCAN",
            "MATCH",
            "COUNT",
            "EXPIRE",
            "INCRBY",
            "APPEND",
            "SETRANGE",
            "LRANGE",
            "k",
            "{k}",
        ],
    },
    FuzzTarget {
        name: "ordered_messages",
        run: parts::messages,
        words: &[
            "\n",
            "p 2 1 0 2 ",
            "a 2 1 2 ",
            "c 1 1 ",
            "r ",
            "S\n",
            " ",
            "1",
            "SET k v",
            "MSET a 1 b 2",
            "GET k",
        ],
    },
    FuzzTarget {
        name: "state_stream",
        run: state::stream,
        words: &["amKV", "\0\0\0\0\0\0\0\0", "\u{1}\0\0\0\0\0\0\0", "\u{7f}\u{7f}\u{7f}\u{7f}"],
    },
    FuzzTarget {
        name: "cluster_file",
        run: files::cluster,
        words: &[
            "=",
            "\n",
            "[set]",
            "shards",
            "replicas",
            "overlay",
            "-1,0",
            "0",
            "64",
            "18446744073709551615",
        ],
    },
    FuzzTarget {
        name: "history_lines",
        run: files::history,
        words: &[
            "\n",
            "{",
            "}",
            "\"ev\":",
            "\"deliver\"",
            "\"m\":\"c0:1\"",
            "\"t\":",
            "\"dst\":[]",
            "{\"ev\":\"end\"}",
        ],
    },
    FuzzTarget {
        name: "scenario",
        run: files::scenario,
        words: &[
            "\n",
            "----\n",
            "at ",
            "us",
            "run tram",
            "cast c0 g0 8",
            "crash g0/r0",
            "for ",
            "groups=",
            "#",
        ],
    },
    FuzzTarget {
        name: "node_status",
        run: files::status,
        words: &["{", "}", "[", "]", ",", "null", "\"replicas\":", "-1", "1e999", "\"\\ud800\""],
    },
    FuzzTarget {
        name: "protocol_messages",
        run: protocols::messages,
        words: &[
            "\n",
            "\0",
            "\u{1}",
            "\u{2}",
            "\u{3}",
            "\u{b}",
            "\0\0\0\0\0\0\0\0",
            "\u{7f}\u{7f}\u{7f}\u{7f}",
        ],
    },
    FuzzTarget { name: "group_packets", run: amcast_protocols::fuzzing::packet, words: ITEMS },
    FuzzTarget { name: "group_messages", run: amcast_protocols::fuzzing::message, words: ITEMS },
    FuzzTarget {
        name: "ingress_frames",
        run: frames::ingress,
        words: &["\t\0\0\0\u{1}", "\u{1}\0\0\0", "\0\0\0\0", "\u{5}", "\u{7f}\u{7f}\u{7f}\u{7f}"],
    },
    FuzzTarget {
        name: "memory_frames",
        run: memory::frames,
        words: &[
            "\u{19}\0\u{1}",
            "\u{19}\0\u{2}",
            "\u{d}\0\u{3}",
            "d\0\u{4}\u{3}",
            "$\0\u{5}\u{1}",
            "\u{12}\0\u{6}",
            "J\0\u{7}",
            "\0\0\0\0\0\0\0",
            "\u{1}\0\0\0",
        ],
    },
    FuzzTarget {
        name: "net_stream",
        run: net::stream,
        words: &[
            "amcS",
            "\u{1}\0",
            "\0\0\0\0",
            "\u{8}\0\0\0",
            "\0\u{10}\0\0",
            "\u{7f}\u{7f}\u{7f}\u{7f}",
        ],
    },
    FuzzTarget {
        name: "net_datagrams",
        run: net::datagrams,
        words: &[
            "amcD\u{1}\0\0\0",
            "amcD\u{1}\0\u{1}\0",
            "\0\0",
            "\u{1}\0",
            "\u{8}\0\0\0",
            "\u{7f}\u{7f}",
        ],
    },
    FuzzTarget {
        name: "protocol_memory",
        run: protocols::memory,
        words: &["\n", "\0", "\u{1}", "\u{10}", "\u{20}", "\u{7f}\u{7f}"],
    },
    FuzzTarget {
        name: "log_commands",
        run: log::commands,
        words: &["\u{1}", "\u{2}", "\u{6}\0", "\u{1}\0\u{1}", "\u{1}a", "\u{1}b", "\0\0\0\0"],
    },
    FuzzTarget { name: "log_answers", run: log::answers, words: NUMBERS },
    FuzzTarget { name: "log_segment", run: amcast_storage::fuzzing::segment, words: NUMBERS },
    FuzzTarget { name: "log_state", run: amcast_storage::fuzzing::state, words: NUMBERS },
    FuzzTarget { name: "log_synced", run: amcast_storage::fuzzing::synced, words: NUMBERS },
    FuzzTarget { name: "checkpoint", run: amcast_storage::fuzzing::checkpoint, words: NUMBERS },
];

/// The first bytes of packets' items, numbers, and counts of lists: in one byte, and in two of lists that decide views.
const ITEMS: &[&str] = &[
    "\u{1}",
    "\u{4}",
    "\u{7}",
    "\u{9}",
    "\u{d}",
    "\u{15}",
    "\u{1e}",
    "\u{1f}",
    "\u{21}",
    "\u{23}",
    "\u{2}\0",
    "\u{3}\0\u{1}\u{2}",
    "\u{1}\u{f}",
    "\0\0\0\0\0\0\0\0",
    "\u{3}\0\0\0",
    "\u{7f}\u{7f}\u{7f}\u{7f}",
];

/// Small numbers of four and eight bytes, and a large one.
const NUMBERS: &[&str] =
    &["\0\0\0\0\0\0\0\0", "\u{1}\0\0\0\0\0\0\0", "\u{2}\0\0\0", "\u{7f}\u{7f}\u{7f}\u{7f}"];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static FuzzTarget> {
    TARGETS.iter().find(|target| target.name == name)
}
