//! FastCast with the membership of its paper [FastCast 3.1, 3.4, figure 3]: a perfect failure detector, and views that
//! continue as long as one member does. For the laboratory.
//!
//! All but the membership is that of [`FastCast`](super::FastCast). The members of a view are asked before it ends, and all of
//! those accept the next one that have not failed: a process takes what the detector says of another one as true. The
//! paper makes such a detector of connections: one that broke, and could not be made again in five attempts, proves a
//! crash. A network that is cut off disproves that, and then both halves of a group continue, each with an order of its
//! own. So nothing is served by this entry, and the simulator keeps what it assumes.
//!
//! By a majority `n = 2f + 1` processes bear `f` crashes; here `n` bear `n - 1`.

use super::{FastCastMember, PERFECT_PARAMS, TRIALS, layer, settings};
use crate::layers::group_entry::{check_group, group_process, show_packet};
use crate::layers::vsync::{ViewQuorum, VsyncSettings};
use alloc::string::String;
use amcast_core::entry::Trials;
use amcast_core::{
    About, Assumption, Capabilities, Config, ConfigError, Entry, Pid, ProtocolProcess,
};

static ABOUT: About = About {
    summary: "FastCast with the membership of its paper, for the laboratory: views continue while one member works, as a \
              perfect failure detector allows; TO(UA,SUTO).",
    capabilities: Capabilities { suspicion_tolerance: false, ..super::ABOUT.capabilities },
    assumes: &[Assumption::PerfectDetector, Assumption::OneFit],
    params: PERFECT_PARAMS,
    ..super::ABOUT
};

/// FastCast with a perfect failure detector in the catalog.
#[derive(Debug)]
pub struct FastCastPerfect;

impl Entry for FastCastPerfect {
    fn name(&self) -> &'static str {
        "fastcast-perfect-detector"
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    // Figure 3 asks all members of the new view; the detector says who that is.
    fn build(&self, me: Pid, config: &Config) -> Result<ProtocolProcess, ConfigError> {
        check_group(self.name(), config)?;
        let layer = layer(me, config);
        let layer = VsyncSettings { told_who_failed: true, quorum: ViewQuorum::Survivors, ..layer };
        Ok(group_process(layer, FastCastMember::new(settings(me, config))))
    }

    fn trials(&self) -> &'static Trials {
        TRIALS
    }

    fn show(&self, bytes: &[u8]) -> String {
        show_packet(bytes)
    }
}
