//! Values in which simulations by the thousand try the parameters of rings: which rings there are, how they are
//! merged, and how much is on the way. With the smallest ones nearly every member lags in some runs.

use amcast_core::entry::Trials;

pub(super) const TRIALS: &Trials = &[
    ("rings", &["global", "global", "pairs", "independent"]),
    ("m", &["1", "1", "2", "7"]),
    ("leveling", &["demand", "demand", "paced"]),
    ("pack_bytes", &["32768", "500", "1"]),
    ("pass_bytes", &["131072", "2000", "100"]),
    ("pipeline_bytes", &["2097152", "3000", "300"]),
    ("lag_bytes", &["67108864", "5000"]),
    ("held_bytes", &["67108864", "8192"]),
    ("cache_bytes", &["67108864", "2048"]),
    ("apply_bytes", &["8388608", "1000"]),
    ("spread", &["24", "2"]),
    ("around", &["nodes", "nodes", "groups"]),
    ("behind_instances", &["4096", "10"]),
    ("ring_sets", &["none", "none", "0+1", "1+2,0+1", "0+1,2+3", "1+2+3,0+2"]),
];
