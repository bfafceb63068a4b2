//! Rivals: programs of others that order broadcasts, measured with the same bursts as our protocols,
//! in turns with them. Their drivers are in `rivals/` of the source, are part of this program, and
//! are built on demand in the user's cache directory.
//!
//! A rival's group stays up between its turns, so that its caches stay warm. Members say `ready`
//! once all of them are there; a line `ROUNDS BURST BURST ..` starts a run of each, and each answers
//! with a line of JSON. Times are taken as in [`crate::bench::bursts`].

pub(in crate::bench) mod build;
mod corosync;
mod jgroups;

use super::bursts::{BurstMedium, BurstRepeat, ROUNDS, WARM_UPS, warmed_up};
use super::child_process::{ChildOutput, ChildProcess, gather};
use super::scratch_dir::ScratchDir;
use amcast_check::Specification;
use serde::Deserialize;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a group may take to come up, and a run to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program that orders broadcasts in one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rival {
    /// JGroups with SEQUENCER: members send to a coordinator, which broadcasts.
    Jgroups(BurstMedium),
    /// corosync's closed process groups: Totem, a token ring; its agreed delivery.
    Corosync,
}

/// Why a rival cannot be measured here: what is missing, and the command that installs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AbsentRival(pub String);

impl Rival {
    /// Those whose messages travel so.
    pub fn over(wire: BurstMedium) -> &'static [Self] {
        match wire {
            BurstMedium::Tcp => &[Self::Jgroups(BurstMedium::Tcp)],
            BurstMedium::Udp => &[Self::Jgroups(BurstMedium::Udp), Self::Corosync],
        }
    }

    /// Its name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jgroups(_) => "JGroups SEQUENCER",
            Self::Corosync => "corosync CPG",
        }
    }

    /// The transport of its messages.
    pub const fn wire(self) -> BurstMedium {
        match self {
            Self::Jgroups(wire) => wire,
            Self::Corosync => BurstMedium::Udp,
        }
    }

    /// The specification that its protocol enforces on virtual synchrony [TO table 3]: SEQUENCER is
    /// send-broadcast over a reliable, non-uniform broadcast; Totem's agreed delivery is privilege-based
    /// over one.
    ///
    /// # Panics
    /// Never: the names are those of specifications.
    pub fn specification(self) -> Specification {
        let name = match self {
            Self::Jgroups(_) => "TO(NUA,WNUTO)",
            Self::Corosync => "TO(NUA,WUTO)",
        };
        Specification::parse(name).expect("it is one")
    }

    /// How it was set up, in a sentence.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Jgroups(BurstMedium::Tcp) => {
                "JGroups 5.5.7, its own tcp.xml with SEQUENCER and tcp_nodelay, a Java machine a member \
                 with 256 MB, warmed up by at least ten seconds of bursts"
            }
            Self::Jgroups(BurstMedium::Udp) => {
                "JGroups 5.5.7, its own udp.xml with SEQUENCER, a Java machine a member with 256 MB, \
                 warmed up by at least ten seconds of bursts"
            }
            Self::Corosync => {
                "corosync as installed, a daemon a member, udpu, packets of 8982 bytes, no encryption, no \
                 real-time priority (with it, it is slower here), warmed up by two seconds of bursts"
            }
        }
    }

    const fn warm_up(self, quick: bool) -> Duration {
        Duration::from_secs(match (self, quick) {
            (Self::Jgroups(_), false) => 10,
            (Self::Jgroups(_), true) => 5,
            (Self::Corosync, _) => 2,
        })
    }

    /// Starts a group of it and warms it up.
    ///
    /// # Errors
    /// When it is not installed, or does not start; the error says how to install it.
    pub fn start(self, quick: bool) -> Result<RivalGroup, AbsentRival> {
        let mut group = match self {
            Self::Jgroups(wire) => jgroups::start(wire)?,
            Self::Corosync => corosync::start()?,
        };
        let fails = |why| AbsentRival(format!("{} does not run: {why}", self.name()));
        group.await_ready().map_err(fails)?;
        let begun = Instant::now();
        while begun.elapsed() < self.warm_up(quick) {
            group.run_of(100, &[100, 10, 1]).map_err(fails)?;
        }
        Ok(group)
    }
}

/// A group of a rival's processes, which end with this.
pub struct RivalGroup {
    processes: Vec<ChildProcess>,
    /// How many members say something in each process.
    members_each: usize,
    /// It goes after the processes.
    _directory: Option<ScratchDir>,
}

/// A message of a member.
#[derive(Deserialize)]
struct RivalReport {
    seen: Vec<BurstRepeat>,
    digest: u64,
}

impl RivalGroup {
    const fn new(members_each: usize, directory: Option<ScratchDir>) -> Self {
        Self { processes: Vec::new(), members_each, _directory: directory }
    }

    /// Starts one more process.
    fn add(&mut self, command: &mut Command) -> Result<(), String> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        self.processes.push(ChildProcess::start("a member", piped)?);
        Ok(())
    }

    /// The next line of each member.
    fn lines(&mut self) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        for _ in 0..self.members_each {
            lines.extend(gather(&mut self.processes, PATIENCE, ChildOutput::line)?);
        }
        Ok(lines)
    }

    fn await_ready(&mut self) -> Result<(), String> {
        match self.lines()?.iter().find(|line| *line != "ready") {
            Some(line) => Err(format!("it said {line:?}")),
            None => Ok(()),
        }
    }

    /// One repeat of every size of bursts, which the largest warms up.
    ///
    /// # Errors
    /// When a member ended, or members delivered in different orders.
    pub fn run(&mut self, bursts: &[usize]) -> Result<Vec<BurstRepeat>, String> {
        Ok(self.run_of(ROUNDS, &warmed_up(bursts))?.split_off(WARM_UPS))
    }

    fn run_of(&mut self, rounds: usize, bursts: &[usize]) -> Result<Vec<BurstRepeat>, String> {
        let sizes: Vec<String> = bursts.iter().map(ToString::to_string).collect();
        let line = format!("{rounds} {}", sizes.join(" "));
        self.processes.iter_mut().try_for_each(|process| process.tell(&line))?;
        let read = |line: String| {
            serde_json::from_str::<RivalReport>(&line).map_err(|e| format!("it said {line:?}: {e}"))
        };
        let said = self.lines()?.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if said.iter().any(|one| one.digest != said[0].digest) {
            return Err("its members delivered in different orders".to_string());
        }
        if said.iter().any(|one| one.seen.len() != bursts.len()) {
            return Err("a member did not do all sizes".to_string());
        }
        let of =
            |n: usize| BurstRepeat::of(&said.iter().map(|one| one.seen[n]).collect::<Vec<_>>());
        Ok((0..bursts.len()).map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes with one member each that print the given lines.
    fn group(says: [&str; 2]) -> RivalGroup {
        let mut group = RivalGroup::new(1, None);
        for line in says {
            let script = format!("read l; echo '{line}'; read l");
            group.add(Command::new("sh").args(["-c", &script])).unwrap();
        }
        group
    }

    fn said(latency_us: f64, digest: u64) -> String {
        format!(
            "{{\"seen\":[{{\"latency_us\":{latency_us},\"per_second\":100.0}}],\"digest\":{digest}}}"
        )
    }

    #[test]
    fn latency_is_averaged_over_members_and_throughput_is_summed() {
        let _limit = amcast_test_policy::time_limit();
        let seen = group([&said(10.0, 1), &said(30.0, 1)]).run_of(1, &[5]).unwrap();
        assert_eq!((seen[0].latency_us, seen[0].per_second), (20.0, 200.0));
    }

    #[test]
    fn a_rival_that_delivers_in_different_orders_is_found() {
        let _limit = amcast_test_policy::time_limit();
        let why = group([&said(1.0, 1), &said(1.0, 2)]).run_of(1, &[5]).unwrap_err();
        assert!(why.contains("different orders"), "{why}");
    }

    #[test]
    fn a_member_that_ends_or_talks_nonsense_is_an_error() {
        let _limit = amcast_test_policy::time_limit();
        assert!(group(["what", "what"]).run_of(1, &[5]).unwrap_err().contains("it said"));
        let mut group = RivalGroup::new(1, None);
        group.add(Command::new("true").args(["x"])).unwrap();
        assert!(group.await_ready().unwrap_err().contains("before its time"));
    }

    #[test]
    fn a_rival_is_compared_with_protocols_that_enforce_what_it_does() {
        let _limit = amcast_test_policy::time_limit();
        for wire in [BurstMedium::Tcp, BurstMedium::Udp] {
            for rival in Rival::over(wire) {
                assert_eq!(rival.wire(), wire);
                assert!(!rival.specification().uniform, "neither waits for a majority");
            }
        }
    }
}
