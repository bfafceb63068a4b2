//! TRAM's parameters.

use amcast_core::Param;
use amcast_core::config::ParamKind;
use amcast_core::parameters::{HEARTBEAT, SUSPECT};

pub(crate) const LOG_LINES: Param = Param {
    name: "log_lines",
    kind: ParamKind::Number { default: 40_960, min: 16, max: 1 << 24 },
    about: "Lines of the ring that holds a group's log (LOG), 64 bytes each.",
    cost: "Six logs for each replica of a group of three, all set aside at the start, of which one \
           is touched at a time, and mostly its first `lap_lines`; a payload takes at most half.",
    source: "ours; [TRAM 5.1] has unbounded buffers",
};

pub(crate) const HM_LINES: Param = Param {
    name: "hm_lines",
    kind: ParamKind::Number { default: 40_960, min: 16, max: 1 << 24 },
    about: "Lines of each message buffer (HM): one for each client and parent replica, 64 bytes each.",
    cost: "As for `log_lines`, for each pair of a client and a replica.",
    source: "ours; [TRAM 5.1] has unbounded buffers",
};

pub(crate) const LAP_LINES: Param = Param {
    name: "lap_lines",
    kind: ParamKind::Number { default: 8_192, min: 16, max: 1 << 24 },
    about: "Lines after which a ring of LOG or HM goes round while its records are short (an eighth \
            of that at most); no more than the ring's.",
    cost: "Bounds a client's outstanding short messages, and a follower's lag \
           before clients are held back. Fewer stay in the processor's cache.",
    source: "ours; measured",
};

pub(crate) const XFER_LINES: Param = Param {
    name: "xfer_lines",
    kind: ParamKind::Number { default: 1024, min: 16, max: 1 << 20 },
    about: "Lines of the ring through which a returning replica gets its place in the log.",
    cost: "Memory for each pair of replicas; more is faster over a long way.",
    source: "ours",
};

pub(crate) const BATCH_LINES: Param = Param {
    name: "batch_lines",
    kind: ParamKind::Number { default: 512, min: 1, max: 1 << 16 },
    about: "How much of a client's or parent's buffer a leader takes up in one step, in lines.",
    cost: "More gains throughput under load, and makes others wait longer. Nothing waits for a \
           batch to fill.",
    source: "[TRAM 7]; measured",
};

pub(crate) const PIPELINE: Param = Param {
    name: "pipeline",
    kind: ParamKind::Number { default: 4, min: 1, max: 64 },
    about: "Batches of log writes that a leader has on the way to its followers.",
    cost: "More hides the latency of writes, and makes batches smaller.",
    source: "ours; the paper has one slot on the way",
};

pub(crate) const DYNAMIC_OVERLAY: Param = Param {
    name: "dynamic_overlay",
    kind: ParamKind::Number { default: 0, min: 0, max: 1 },
    about: "1 if the tree of the groups may be changed while messages flow, 0 if it stays.",
    cost: "Each replica has a buffer of `hm_lines` for each replica of every other group, not of its parent \
           alone; they are touched only by parents. The path of a message is the same.",
    source: "ours; [TRAM 10] leaves it to future work",
};

pub(crate) const HEARTBEAT_OF_MEMORY: Param = HEARTBEAT.with(
    ParamKind::Number { default: 2_000, min: 10, max: 10_000_000 },
    "ours; a heartbeat is one line of memory for each replica of the group; the leader oracle of \
     [TRAM 2.1]",
);

/// All of them.
pub(crate) static ALL: &[Param] = &[
    LOG_LINES,
    HM_LINES,
    LAP_LINES,
    XFER_LINES,
    BATCH_LINES,
    PIPELINE,
    DYNAMIC_OVERLAY,
    HEARTBEAT_OF_MEMORY,
    SUSPECT.param(),
    #[cfg(feature = "mutants")]
    <super::mutants::TramMutant as crate::mutant::Mutant>::PARAM,
];
