//! When the lane to each node is opened, how long it may take until it carries frames, and why it does not.
//!
//! ```text
//! absent --connection--> due --pause is over--> opened --invitation--> met --a frame each way--> carries
//!    ^                    |                        |                    |                          |
//!    +------ the connection is lost, or the lane failed and the connection is ended for it --------+
//! ```
//! A lane that failed once is opened again at once: a node that was killed is back soon. After the second failure in a row there
//! is a pause, which doubles up to [`PAUSES`]. So a provider that cannot connect costs one attempt in some seconds, and not
//! a processor. Lines in the log are bounded, too: the same reason again is a line after [`SAY_EVERY`].

use super::lanes::LaneEnd;
use crate::config::node_name;
use std::time::{Duration, Instant};

/// How long the invitation of the other end may take. That end may have to pause first.
const INVITED_WITHIN: Duration = Duration::from_secs(10);

/// How long it may take until a frame has arrived each way on a lane whose two ends know each other.
const CARRIES_WITHIN: Duration = Duration::from_secs(3);

/// The first and the longest pause before another attempt.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// A lane that carried frames for so long has worked, and its failures before it are forgotten.
const WORKED_AFTER: Duration = Duration::from_secs(1);

/// The interval of lines in the log that say the same of the same node.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// How many different reasons are remembered of a node, so that they are not logged again.
const REASONS_MAX: usize = 4;

/// The longest invitation that is kept.
const ADDRESS_BYTES_MAX: usize = 1024;

/// How far the lane to a node is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum LaneStage {
    /// There is no connection.
    #[default]
    Absent,
    /// It is to be opened once its pause is over. Its other end may have invited already.
    Due { invitation: Option<Vec<u8>> },
    /// It is open since then, and its other end is not known.
    Opened(Instant),
    /// Its other end is known since then, and at this place.
    Met(Instant, String),
    /// Frames arrive since then.
    Carries(Instant),
}

/// The lane to a node.
#[derive(Debug, Default)]
struct LaneState {
    stage: LaneStage,
    /// Failures since one has worked.
    failures: u32,
    /// The next one is not opened before.
    not_before: Option<Instant>,
    /// Why the last one failed, until one carries frames.
    fault: Option<String>,
    /// The reasons that were in the log.
    said: Vec<LoggedFault>,
}

/// A reason that was in the log.
#[derive(Debug)]
struct LoggedFault {
    /// Without numbers: each lane has a port of its own.
    kind: String,
    at: Instant,
    /// How often it was kept back since.
    kept_back: u64,
}

/// The lanes to all nodes.
#[derive(Debug)]
pub(super) struct LaneStates {
    of: Vec<LaneState>,
    /// Whether any of them may be due.
    any_due: bool,
}

/// The pause after so many failures in a row.
fn pause(failures: u32) -> Duration {
    match failures.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => PAUSES.0.saturating_mul(1 << doublings.min(16)).min(PAUSES.1),
    }
}

impl LaneState {
    /// The line of the log for this reason, unless it has been there lately.
    fn log(&mut self, node: usize, why: &str, now: Instant) -> Option<String> {
        let kind: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
        let known = self.said.iter().position(|said| said.kind == kind);
        if let Some(said) = known.map(|at| &mut self.said[at])
            && now.duration_since(said.at) < SAY_EVERY
        {
            said.kept_back += 1;
            return None;
        }
        let before = known.map(|at| self.said.remove(at));
        if self.said.len() == REASONS_MAX {
            self.said.remove(0);
        }
        self.said.push(LoggedFault { kind, at: now, kept_back: 0 });
        let mut text = format!("the connection to {} is ended: {why}", node_name(node));
        if let Some(before) = before.filter(|before| before.kept_back > 0) {
            text += &format!(" ({} times more since the last report)", before.kept_back);
        }
        Some(text)
    }
}

impl LaneStates {
    pub(super) fn new(nodes: usize) -> Self {
        Self { of: (0..nodes).map(|_| LaneState::default()).collect(), any_due: false }
    }

    /// There is a new connection to a node.
    pub(super) fn connected(&mut self, node: usize) {
        self.of[node].stage = LaneStage::Due { invitation: None };
        self.any_due = true;
    }

    /// The connection to a node is gone.
    pub(super) fn disconnected(&mut self, node: usize) {
        let lane = &mut self.of[node];
        if matches!(lane.stage, LaneStage::Carries(_)) {
            lane.failures = 0;
        }
        lane.stage = LaneStage::Absent;
    }

    /// A node whose lane is to be opened now.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<usize> {
        if !self.any_due {
            return None;
        }
        let is_due = |lane: &LaneState| matches!(lane.stage, LaneStage::Due { .. });
        let may = |lane: &LaneState| lane.not_before.is_none_or(|at| now >= at);
        let found = self.of.iter().position(|lane| is_due(lane) && may(lane));
        self.any_due = found.is_some() || self.of.iter().any(is_due);
        found
    }

    /// The lane to a node is opened. Gives the invitation of its other end, if that was there before.
    pub(super) fn opened(&mut self, node: usize, now: Instant) -> Option<Vec<u8>> {
        let before = core::mem::replace(&mut self.of[node].stage, LaneStage::Opened(now));
        match before {
            LaneStage::Due { invitation } => invitation,
            _ => None,
        }
    }

    /// The other end of a lane invites. Whether its address is kept until the lane is opened here.
    ///
    /// # Errors
    /// When no invitation makes sense.
    pub(super) fn keep(&mut self, node: usize, address: &[u8]) -> Result<bool, String> {
        match &mut self.of[node].stage {
            LaneStage::Opened(_) => Ok(false),
            LaneStage::Due { invitation } if address.len() <= ADDRESS_BYTES_MAX => {
                *invitation = Some(address.to_vec());
                Ok(true)
            }
            LaneStage::Due { .. } => Err("its invitation has no address".to_string()),
            LaneStage::Met(..) | LaneStage::Carries(_) => {
                Err("it invites twice on one connection".to_string())
            }
            LaneStage::Absent => Err("it invites before it is connected".to_string()),
        }
    }

    /// The other end of a lane is known, and at this place.
    pub(super) fn met(&mut self, node: usize, place: String, now: Instant) {
        self.of[node].stage = LaneStage::Met(now, place);
    }

    /// The connection to a node is ended for this reason. Gives the sentence for the log, unless it has been there lately.
    pub(super) fn fail(&mut self, node: usize, why: &str, now: Instant) -> Option<String> {
        let lane = &mut self.of[node];
        let has_worked =
            matches!(lane.stage, LaneStage::Carries(since) if now - since >= WORKED_AFTER);
        lane.failures = if has_worked { 1 } else { lane.failures.saturating_add(1) };
        lane.not_before = Some(now + pause(lane.failures));
        lane.stage = LaneStage::Absent;
        lane.fault = Some(why.to_string());
        lane.log(node, why, now)
    }

    /// Why accesses do not reach the memory of a node, if that is known.
    pub(super) fn fault(&self, node: usize) -> Option<&str> {
        self.of[node].fault.as_deref()
    }

    /// Finds lanes whose time is over, where `carries` says whether the memory of a node is reached. Gives nodes that are
    /// reached again after a fault.
    pub(super) fn look(
        &mut self,
        now: Instant,
        carries: impl Fn(usize) -> bool,
        ended: &mut Vec<LaneEnd>,
    ) -> Vec<usize> {
        let mut again = Vec::new();
        for (node, lane) in self.of.iter_mut().enumerate() {
            match &lane.stage {
                LaneStage::Met(..) if carries(node) => {
                    lane.stage = LaneStage::Carries(now);
                    again.extend(lane.fault.take().map(|_| node));
                }
                LaneStage::Met(since, place) if now.duration_since(*since) >= CARRIES_WITHIN => {
                    ended.push((node, silent(place)));
                }
                LaneStage::Opened(since) if now.duration_since(*since) >= INVITED_WITHIN => {
                    let why = "it names no endpoint for remote writes, though it is connected; look at its log";
                    ended.push((node, why.to_string()));
                }
                _ => {}
            }
        }
        again
    }
}

/// Why a lane is given up on which nothing arrives.
fn silent(place: &str) -> String {
    format!(
        "no remote write went both ways within {} s between this node and its endpoint at {place}: the ports of the provider may be \
         closed between the two hosts, or the provider cannot reach that network; see `fi_pingpong`, and docs/deploy.md on ports",
        CARRIES_WITHIN.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_lane_that_fails_again_and_again_is_opened_after_pauses_that_grow_to_a_bound() {
        let _limit = amcast_test_policy::time_limit();
        let (mut lanes, mut now) = (LaneStates::new(2), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..9 {
            lanes.connected(1);
            let begun = now;
            while lanes.next_due(now).is_none() {
                now += ms(50);
            }
            pauses.push(now - begun);
            assert_eq!(lanes.next_due(now), Some(1), "it is due until it is opened");
            assert_eq!(lanes.opened(1, now), None);
            assert_eq!(lanes.next_due(now), None);
            lanes.fail(1, "its provider is gone", now);
        }
        let expected = [0, 0, 200, 400, 800, 1_600, 3_200, 5_000, 5_000].map(ms);
        assert_eq!(pauses, expected);
        // One that has worked for a while begins at the front again.
        lanes.connected(1);
        now += PAUSES.1;
        lanes.opened(1, now);
        lanes.met(1, "there".into(), now);
        let mut ended = Vec::new();
        assert_eq!(lanes.look(now, |_| true, &mut ended), [1], "the fault is over");
        now += WORKED_AFTER;
        lanes.fail(1, "its process has died", now);
        lanes.connected(1);
        assert_eq!((lanes.next_due(now), ended), (Some(1), vec![]));
    }

    #[test]
    fn a_lane_that_nobody_answers_is_given_up_and_its_fault_stays_until_one_carries_frames() {
        let _limit = amcast_test_policy::time_limit();
        let (mut lanes, begun) = (LaneStates::new(1), Instant::now());
        let mut ended = Vec::new();
        lanes.connected(0);
        lanes.opened(0, begun);
        lanes.look(begun + INVITED_WITHIN - ms(1), |_| false, &mut ended);
        assert_eq!(ended, [], "its invitation may come yet");
        lanes.look(begun + INVITED_WITHIN, |_| false, &mut ended);
        assert!(ended.pop().is_some_and(|(node, why)| node == 0 && why.contains("no endpoint")));
        lanes.met(0, "10.0.0.2:41000".into(), begun);
        lanes.look(begun + CARRIES_WITHIN - ms(1), |_| false, &mut ended);
        assert_eq!(ended, [], "a frame may come yet");
        lanes.look(begun + CARRIES_WITHIN, |_| false, &mut ended);
        let (_, why) = ended.pop().expect("its time is over");
        assert!(why.contains("10.0.0.2:41000") && why.contains("ports"), "{why}");
        lanes.fail(0, &why, begun);
        lanes.connected(0);
        lanes.opened(0, begun);
        lanes.met(0, "10.0.0.2:41001".into(), begun);
        assert_eq!(lanes.fault(0), Some(&*why), "the next one is not better yet");
        assert_eq!(lanes.look(begun, |_| true, &mut ended), [0]);
        assert_eq!((lanes.fault(0), ended), (None, vec![]));
    }

    #[test]
    fn the_same_fault_again_and_again_is_one_line_of_the_log_a_minute() {
        let _limit = amcast_test_policy::time_limit();
        let (mut lanes, begun) = (LaneStates::new(3), Instant::now());
        let first = lanes.fail(2, "no", begun).expect("it is new");
        assert_eq!(first, "the connection to n2 is ended: no");
        for n in 1..6 {
            assert_eq!(lanes.fail(2, "no", begun + ms(n)), None);
        }
        let of = |port: u16| format!("nothing arrives at port {port}");
        assert!(lanes.fail(2, &of(41_000), begun).is_some(), "it is another reason");
        assert_eq!(lanes.fail(2, &of(41_001), begun), None, "the next lane has another port");
        assert!(lanes.fail(1, "no", begun).is_some(), "of another node it is new");
        let again = lanes.fail(2, "no", begun + SAY_EVERY).expect("it is a minute later");
        assert!(again.ends_with("no (5 times more since the last report)"), "{again}");
        let other = lanes.fail(2, "never", begun + SAY_EVERY).expect("it is another reason");
        assert!(other.ends_with("ended: never"), "{other}");
    }

    #[test]
    fn an_invitation_that_is_there_before_its_lane_is_opened_waits_for_it() {
        let _limit = amcast_test_policy::time_limit();
        let (mut lanes, now) = (LaneStates::new(1), Instant::now());
        assert!(lanes.keep(0, b"address").is_err(), "there is no connection");
        lanes.connected(0);
        assert!(lanes.keep(0, &[0; ADDRESS_BYTES_MAX + 1]).is_err(), "it is none");
        assert_eq!(lanes.keep(0, b"address"), Ok(true));
        assert_eq!(lanes.opened(0, now), Some(b"address".to_vec()));
        assert_eq!(lanes.keep(0, b"address"), Ok(false), "it is open");
        lanes.met(0, "there".into(), now);
        assert!(lanes.keep(0, b"address").is_err(), "it has invited already");
        lanes.connected(0);
        assert_eq!(lanes.opened(0, now), None, "that one was of the connection before");
    }
}
