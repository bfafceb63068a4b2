//! TRAM's parameters.

use amcast_core::Param;
use amcast_core::config::Kind;

pub(super) const LOG_LINES: Param = Param {
    name: "log_lines",
    kind: Kind::Number { default: 40_960, min: 16, max: 1 << 24 },
    about: "Lines of the ring that holds a group's log (LOG), 64 bytes each.",
    cost: "Six logs for each replica of a group of three, all set aside at the start, of which one \
           is touched at a time, and mostly its first `lap_lines`; a payload takes at most half.",
    source: "ours; [TRAM 5.1] has unbounded buffers",
};

pub(super) const HM_LINES: Param = Param {
    name: "hm_lines",
    kind: Kind::Number { default: 40_960, min: 16, max: 1 << 24 },
    about: "Lines of each message buffer (HM): one for each client and parent replica, 64 bytes each.",
    cost: "As for `log_lines`, for each pair of a client and a replica.",
    source: "ours; [TRAM 5.1] has unbounded buffers",
};

pub(super) const LAP_LINES: Param = Param {
    name: "lap_lines",
    kind: Kind::Number { default: 8_192, min: 16, max: 1 << 24 },
    about: "Lines after which a ring of LOG or HM goes round while its records are short (an eighth \
            of that at most); no more than the ring's.",
    cost: "What a client may have outstanding in short messages, and how far a follower may lag \
           before clients are held back. Fewer stay in the processor's cache.",
    source: "ours; measured",
};

pub(super) const XFER_LINES: Param = Param {
    name: "xfer_lines",
    kind: Kind::Number { default: 1024, min: 16, max: 1 << 20 },
    about: "Lines of the ring through which a returning replica gets its state.",
    cost: "Memory for each pair of replicas; more is faster over a long way.",
    source: "ours",
};

pub(super) const BATCH_LINES: Param = Param {
    name: "batch_lines",
    kind: Kind::Number { default: 512, min: 1, max: 1 << 16 },
    about: "How much of a client's or parent's buffer a leader takes up in one step, in lines.",
    cost: "More gains throughput under load, and makes others wait longer. Nothing waits for a \
           batch to fill.",
    source: "[TRAM 7]; measured",
};

pub(super) const PIPELINE: Param = Param {
    name: "pipeline",
    kind: Kind::Number { default: 4, min: 1, max: 64 },
    about: "Batches of log writes that a leader has on the way to its followers.",
    cost: "More hides the latency of writes, and makes batches smaller.",
    source: "ours; the paper has one slot on the way",
};

pub(super) const HEARTBEAT_US: Param = Param {
    name: "heartbeat_us",
    kind: Kind::Number { default: 2_000, min: 10, max: 10_000_000 },
    about: "How often a replica shows the others that it lives, in microseconds.",
    cost: "One line to each replica of its group, and a wake-up of an idle process.",
    source: "ours; the leader oracle of [TRAM 2.1]",
};

pub(super) const SUSPECT_US: Param = Param {
    name: "suspect_us",
    kind: Kind::Number { default: 50_000, min: 20, max: 60_000_000 },
    about: "How long a replica may be silent before it is suspected, in microseconds.",
    cost: "Less shortens the time without a leader after a crash, and demotes slow leaders more \
           often; a demotion loses nothing.",
    source: "ours; the leader oracle of [TRAM 2.1]",
};

/// All of them.
pub(super) static ALL: &[Param] = &[
    LOG_LINES,
    HM_LINES,
    LAP_LINES,
    XFER_LINES,
    BATCH_LINES,
    PIPELINE,
    HEARTBEAT_US,
    SUSPECT_US,
    #[cfg(feature = "mutants")]
    <super::mutants::Mutant as crate::mutant::Mutant>::PARAM,
];
