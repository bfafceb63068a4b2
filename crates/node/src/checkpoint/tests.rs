//! Checkpoints are whole or none, and written when they are due.

use super::*;
use crate::log_owner::LogOwner;
use amcast_smr::application::{DeliveredCommand, GroupFigures, TellAnswer};
use std::fs;
use std::sync::Arc;

/// How a text begins that only a later version of the program reads.
const OF_LATER_VERSION: &str = "later: ";

/// A state that is a text, at the position of its length, given three bytes at a time.
#[derive(Default)]
struct TextState {
    text: String,
    given: usize,
}

impl Application for TextState {
    type State = String;

    fn deliver(&mut self, _: DeliveredCommand<'_>, _: TellAnswer<'_>) -> bool {
        true
    }

    fn applied(&self, _: Gid) -> u64 {
        0
    }

    fn delivered(&self, _: Gid) -> u64 {
        self.text.len() as u64
    }

    fn capture(&mut self) {
        self.given = 0;
    }

    fn piece(&mut self, _: usize, to: &mut Vec<u8>) -> bool {
        let end = self.text.len().min(self.given + 3);
        to.extend_from_slice(&self.text.as_bytes()[self.given..end]);
        self.given = end;
        end < self.text.len()
    }

    fn release(&mut self) {}

    fn read(_: usize, from: &mut dyn Read) -> Result<String, StateReadError> {
        let mut text = String::new();
        from.read_to_string(&mut text)?;
        match text.starts_with(OF_LATER_VERSION) {
            true => Err(StateReadError::Rejected("of a later version".to_string())),
            false => Ok(text),
        }
    }

    fn state_delivered(state: &String, _: Gid) -> u64 {
        state.len() as u64
    }

    fn adopt(&mut self, state: String) -> String {
        state
    }

    fn clear(&mut self) -> String {
        String::new()
    }

    fn figures(&self, _: Gid) -> GroupFigures {
        GroupFigures::default()
    }
}

/// A node's directory.
struct NodeTestDir(LogLocation);

impl NodeTestDir {
    fn new(name: &str) -> Self {
        let name = format!("amcast-checkpoint-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let begun = path.with_extension("begun");
        let keeping = LogLocation {
            path,
            begun,
            holds: false,
            lasts: true,
            lived: false,
            first_life: 0,
            owner: LogOwner::of(1, 1),
        };
        keeping.make().unwrap();
        Self(keeping)
    }

    /// The checkpoints, and what is there: state and history.
    fn open(&self) -> (Checkpoints, Option<(String, Vec<u8>)>) {
        let wake: WakeHandle = Arc::new(|| {});
        let opened = Checkpoints::open::<TextState>(&self.0, (0, 3), 1, (wake, None));
        let OpenedCheckpoints { checkpoints, restored } = opened.unwrap();
        (checkpoints, restored.map(|r| (r.state, r.history)))
    }
}

impl Drop for NodeTestDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0.path).unwrap();
    }
}

fn begin(checkpoints: &mut Checkpoints, text: &str) -> TextState {
    let mut app = TextState { text: text.to_string(), given: 0 };
    let positions = vec![app.delivered(Gid(0))];
    checkpoints.begin(&mut app, positions, b"told");
    app
}

fn save(checkpoints: &mut Checkpoints, text: &str) {
    let mut app = begin(checkpoints, text);
    let saved = loop {
        checkpoints.round(&mut app);
        if let Some(positions) = checkpoints.poll().unwrap() {
            break positions;
        }
        std::thread::yield_now();
    };
    assert_eq!(saved, [text.len() as u64]);
    assert!(!checkpoints.is_giving());
}

#[test]
fn a_state_that_the_program_does_not_read_is_an_error_and_stays() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("later");
    let (mut checkpoints, _) = place.open();
    save(&mut checkpoints, &format!("{OF_LATER_VERSION}what was acknowledged"));
    drop(checkpoints);
    let wake: WakeHandle = Arc::new(|| {});
    // It is no damage, which the logs or the other nodes would make up for: each start finds it again.
    for _ in 0..2 {
        let opened = Checkpoints::open::<TextState>(&place.0, (0, 3), 1, (Arc::clone(&wake), None));
        let why = opened.map(drop).unwrap_err();
        assert!(matches!(why, StorageError::UnreadCheckpoint { .. }), "{why}");
        let words = why.to_string();
        assert!(
            words.contains("of a later version") && words.contains("start the version"),
            "{words}"
        );
    }
}

#[test]
fn a_state_that_was_saved_is_there_after_a_start_with_its_history() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("saved");
    let (mut checkpoints, found) = place.open();
    assert_eq!(found, None);
    for text in ["a state", "a later state"] {
        save(&mut checkpoints, text);
        drop(checkpoints);
        let found;
        (checkpoints, found) = place.open();
        assert_eq!(found, Some((text.to_string(), b"told".to_vec())));
    }
}

#[test]
fn a_state_that_stands_elsewhere_than_its_checkpoint_says_is_none() {
    let _limit = amcast_test_policy::time_limit();
    let text = "a state";
    for position in [text.len() - 1, text.len(), text.len() + 1] {
        let place = NodeTestDir::new("elsewhere");
        let path = place.0.checkpoints();
        let wake: WakeHandle = Arc::new(|| {});
        let (mut disk, _) = amcast_storage::CheckpointDir::open(&path, wake, |_| {}).unwrap();
        disk.begin(position as u64);
        disk.give(&0_u64.to_le_bytes());
        disk.give(text.as_bytes());
        disk.finish();
        drop(disk);
        let (mut checkpoints, found) = place.open();
        let right = (position == text.len()).then(|| (text.to_string(), Vec::new()));
        assert_eq!(found, right, "it says {position}");
        // The next one takes its place, with any text.
        save(&mut checkpoints, text);
        drop(checkpoints);
        assert_eq!(place.open().1.map(|found| found.0).as_deref(), Some(text));
    }
}

#[test]
fn a_state_of_another_node_cluster_or_disk_is_refused_and_one_without_an_owner_is_not() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("owner");
    let (mut checkpoints, _) = place.open();
    save(&mut checkpoints, "mine");
    drop(checkpoints);
    let refused = |owner: LogOwner| {
        let wake: WakeHandle = Arc::new(|| {});
        let keeping = LogLocation { owner, ..place.0.clone() };
        let opened = Checkpoints::open::<TextState>(&keeping, (0, 3), 1, (wake, None));
        opened.map(|opened| opened.restored.map(|r| r.state)).map_err(|why| why.to_string())
    };
    assert_eq!(refused(LogOwner::of(1, 1)), Ok(Some("mine".to_string())));
    let why = refused(LogOwner::of(2, 1)).unwrap_err();
    assert!(why.contains("4.checkpoint: this is the state of a node of another cluster"), "{why}");
    let why = refused(LogOwner::of(1, 2)).unwrap_err();
    assert!(why.contains("this is the state of n1:"), "{why}");
    // The disk's number follows from a word beside the directory.
    let own = LogOwner::of(1, 1);
    let (here, there) = (own.of_checkpoints(7), own.of_checkpoints(8));
    assert!(!here.may_be(there) && here.may_be(own.of_checkpoints(0)));
    assert!(own.names(there).starts_with("another disk of n1 (if the file n1.disk was lost"));
    // Earlier versions of the program named no owner.
    let path = place.0.checkpoints();
    let (mut disk, _) =
        amcast_storage::CheckpointDir::open(&path, Arc::new(|| {}), |_| {}).unwrap();
    disk.begin(5);
    disk.give(&0_u64.to_le_bytes());
    disk.give(b"older");
    disk.finish();
    drop(disk);
    assert_eq!(refused(LogOwner::of(2, 1)), Ok(Some("older".to_string())));
}

#[test]
fn the_newest_state_is_found_and_its_position_told_as_it_was_begun() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("position");
    let (mut checkpoints, _) = place.open();
    for text in ["one", "one two", "one two three"] {
        save(&mut checkpoints, text);
    }
    drop(checkpoints);
    let wake: WakeHandle = Arc::new(|| {});
    let (_, found) =
        amcast_storage::CheckpointDir::open(&place.0.checkpoints(), wake, |_| {}).unwrap();
    assert_eq!(found.newest.map(|saved| saved.position()), Some(13));
}

#[test]
fn a_state_that_was_given_up_is_none_and_the_one_before_it_counts() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("given-up");
    let (mut checkpoints, _) = place.open();
    save(&mut checkpoints, "whole");
    let mut app = begin(&mut checkpoints, "of this only half is given");
    assert!(checkpoints.round(&mut app) && checkpoints.is_giving());
    checkpoints.give_up();
    assert!(!checkpoints.is_giving() && !checkpoints.round(&mut app));
    drop(checkpoints);
    let (mut checkpoints, found) = place.open();
    assert_eq!(found.map(|f| f.0).as_deref(), Some("whole"));
    save(&mut checkpoints, "whole again");
}

/// A schedule of node `rank` of three, in which commands were delivered and the logs have so much
/// volume.
fn schedule(rank: usize, records: u64, bytes: u64) -> SaveSchedule {
    let mut schedule = SaveSchedule::new(1000, (rank, 3));
    schedule.logged(LogVolume::default());
    schedule.has_more = true;
    schedule.logged(LogVolume { records, bytes });
    schedule
}

#[test]
fn one_is_due_when_the_logs_have_grown_by_the_least_and_nodes_take_turns() {
    let _limit = amcast_test_policy::time_limit();
    let due = |rank, bytes| schedule(rank, 1, bytes).is_due(|| 0);
    assert_eq!([999, 1000].map(|bytes| due(0, bytes)), [false, true]);
    assert_eq!([666, 667].map(|bytes| due(1, bytes)), [false, true]);
    assert_eq!([333, 334].map(|bytes| due(2, bytes)), [false, true]);
    let mut last = schedule(2, 1, 400);
    last.begun();
    last.delivered_up_to(1399);
    assert!(!last.is_due(|| 0), "it had a start ahead once");
    last.delivered_up_to(1400);
    assert!(last.is_due(|| 0));
    let mut none = schedule(0, 1, 1000);
    none.has_more = false;
    assert!(!none.is_due(|| 0), "there were no commands");
}

impl SaveSchedule {
    /// Commands were delivered, and the logs have so many bytes.
    fn delivered_up_to(&mut self, bytes: u64) {
        self.has_more = true;
        self.volume.logged.bytes = bytes;
    }
}

#[test]
fn where_little_room_is_left_one_is_due_soon_if_there_is_room_for_it() {
    let _limit = amcast_test_policy::time_limit();
    let due = |free: u64, holds: u64| {
        let mut schedule = schedule(0, 1, 1);
        schedule.has_room(free << 20, holds << 20);
        schedule.is_due(|| 0)
    };
    assert!(!due(600, 10) && due(500, 10), "there is enough");
    assert!(!due(40, 10) && due(45, 10), "it would not fit");
    assert!(due(1900, 400) && !due(2100, 400), "a large one needs more");
    let mut last = schedule(0, 1, 1);
    last.has_room(100 << 20, 0);
    assert!(last.is_due(|| 0));
    last.begun();
    last.delivered_up_to(2);
    assert!(!last.is_due(|| 0), "once, until it is looked again");
}

#[test]
fn a_thread_looks_how_much_is_free_and_nobody_waits_for_it() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("look");
    let mut checkpoints = place.open().0;
    let later = clock::now() + LOOK_EVERY;
    // One that hangs: it is neither awaited, nor does a second thread look.
    let (to, found) = sync_channel(1);
    checkpoints.looking = Some(found);
    checkpoints.look_at_room(later, || unreachable!("nothing was found"));
    assert!(checkpoints.looking.is_some());
    to.send(40 << 20).unwrap();
    checkpoints.look_at_room(later, || 0);
    assert!(checkpoints.looking.is_none() && checkpoints.schedule.is_scarce);
    // The next one finds what there is.
    let mut asked = false;
    checkpoints.look_at_room(later + LOOK_EVERY, || unreachable!("nothing was found"));
    while !asked {
        std::thread::sleep(std::time::Duration::from_millis(1));
        checkpoints.look_at_room(later, || {
            asked = true;
            u64::MAX / 64
        });
    }
    assert!(!checkpoints.schedule.is_scarce, "no state of that size would fit");
}

#[test]
fn one_that_finds_no_room_is_given_up_and_the_next_one_waits() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("full");
    let mut checkpoints = place.open().0;
    checkpoints.delivered(1);
    let mut app = begin(&mut checkpoints, "no room");
    assert!(!checkpoints.has_more());
    let path = PathBuf::from("checkpoint.new");
    checkpoints.failed(StorageError::Full { path, what: Limit::Quota }).unwrap();
    // The rest of it is sent and dropped.
    while !checkpoints.is_idle() {
        checkpoints.round(&mut app);
    }
    assert!(checkpoints.has_more());
    checkpoints.schedule.volume.logged.bytes = LOG_BYTES_MOST;
    assert!(!checkpoints.is_due(|| 0), "it waits");
    let at = checkpoints.look_at;
    checkpoints.look_at_room(at, || 0);
    assert!(checkpoints.is_due(|| 0));
    let source = io::Error::other("rot");
    let damaged = StorageError::Io { path: PathBuf::new(), doing: "write it", source };
    assert!(checkpoints.failed(damaged).is_err(), "anything else ends the node");
}

#[test]
fn a_large_state_is_written_again_after_as_much_log_and_a_long_log_is_not_awaited() {
    let _limit = amcast_test_policy::time_limit();
    let due = |last_bytes, records, bytes| {
        let mut schedule = schedule(0, records, bytes);
        schedule.last_bytes = last_bytes;
        schedule.is_due(|| 0)
    };
    let large = 200 << 20;
    assert_eq!([large - 1, large].map(|bytes| due(large, 1, bytes)), [false, true]);
    // Six small writes a minute and the clocks of nine replicas, for an hour, and for a year.
    assert!(!due(large, 20_000, 2 << 20) && due(large, 1, 17_520 << 20));
    let huge = LOG_BYTES_MOST * 3;
    assert_eq!([LOG_BYTES_MOST - 1, LOG_BYTES_MOST].map(|b| due(huge, 1, b)), [false, true]);
    let many = LOG_RECORDS_MOST;
    assert_eq!([many - 1, many].map(|records| due(huge, records, 1)), [false, true]);
}

#[test]
fn what_a_start_executes_again_counts_and_what_was_given_up_does_again() {
    let _limit = amcast_test_policy::time_limit();
    // Each life executes what the ones before wrote, and adds a little.
    let life = |commands: u64| {
        let mut schedule = SaveSchedule::new(10_000, (0, 3));
        schedule.logged(LogVolume { records: commands, bytes: 100 * commands });
        (0..commands).for_each(|_| schedule.delivered(100 - COMMAND_BYTES));
        (0..10).for_each(|_| schedule.delivered(100 - COMMAND_BYTES));
        schedule.logged(LogVolume { records: commands + 10, bytes: 100 * (commands + 10) });
        schedule.is_due(|| 0)
    };
    assert_eq!([10, 50, 89, 90, 200].map(life), [false, false, false, true, true]);
    let mut given_up = schedule(0, 1, 1500);
    given_up.begun();
    assert!(!given_up.is_due(|| 0));
    given_up.failed();
    assert!(given_up.is_due(|| 0), "no other one has what it was begun for");
    given_up.begun();
    given_up.delivered_up_to(2499);
    assert!(!given_up.is_due(|| 0));
    given_up.delivered_up_to(2500);
    assert!(given_up.is_due(|| 0));
}

#[test]
fn a_state_that_another_node_gave_is_due_until_it_is_saved() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("taken");
    let (mut checkpoints, _) = place.open();
    let mut older = begin(&mut checkpoints, "old");
    checkpoints.took_over(vec![9]);
    // A checkpoint that was being written before does not count.
    while checkpoints.poll().unwrap().is_none() {
        checkpoints.round(&mut older);
    }
    assert!(checkpoints.is_due(|| 0) && checkpoints.has_more());
    begin(&mut checkpoints, "from there");
    assert!(!checkpoints.is_due(|| 0), "it is being written");
    checkpoints.give_up();
    assert!(checkpoints.is_due(|| 0));
    save(&mut checkpoints, "from there");
    assert!(!checkpoints.is_due(|| 0) && !checkpoints.has_more());
}

#[test]
fn what_is_in_the_logs_for_other_nodes_makes_none_due_after_a_start() {
    let _limit = amcast_test_policy::time_limit();
    let mut schedule = SaveSchedule::new(1000, (2, 3));
    // The state on disk has all of it; another node that is down has not.
    schedule.logged(LogVolume { records: 9_000_000, bytes: 9 << 30 });
    assert!(!schedule.is_due(|| 0));
    schedule.delivered(10);
    assert!(!schedule.is_due(|| 0), "the first command is no reason");
    schedule.logged(LogVolume { records: 9_000_001, bytes: (9 << 30) + 333 });
    assert!(!schedule.is_due(|| 0));
    schedule.logged(LogVolume { records: 9_000_002, bytes: (9 << 30) + 334 });
    assert!(schedule.is_due(|| 0), "what comes after counts");
}

#[test]
fn a_command_that_is_new_counts_once_though_it_is_logged_and_delivered() {
    let _limit = amcast_test_policy::time_limit();
    let mut schedule = schedule(0, 0, 0);
    for bytes in [100, 200, 300, 400, 500, 600, 700, 800, 900] {
        schedule.delivered(100 - COMMAND_BYTES);
        schedule.logged(LogVolume { records: 1, bytes });
        assert!(!schedule.is_due(|| 0), "{bytes}");
    }
    schedule.delivered(100 - COMMAND_BYTES);
    assert!(schedule.is_due(|| 0));
}

/// A life that ends in the middle of a checkpoint, as by `kill -9`: its file stays as it is.
fn end_in_the_middle(place: &NodeTestDir) {
    fs::write(place.0.checkpoints().join("checkpoint.new"), b"begun").unwrap();
}

#[test]
fn a_life_hurries_if_the_one_before_ended_in_the_middle_of_a_checkpoint() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("hurries");
    let (mut checkpoints, _) = place.open();
    assert!(!checkpoints.hurries && checkpoints.schedule.hurried == 0);
    save(&mut checkpoints, "a state");
    drop(checkpoints);
    end_in_the_middle(&place);
    let (mut checkpoints, found) = place.open();
    assert_eq!(found.map(|found| found.0).as_deref(), Some("a state"));
    let least = checkpoints.schedule.least;
    checkpoints.logged(LogVolume { records: 1, bytes: least });
    checkpoints.delivered((least / HASTE - 2 * COMMAND_BYTES) as usize);
    assert!(!checkpoints.is_due(|| 0), "also who hurries does not write for nothing");
    checkpoints.delivered(COMMAND_BYTES as usize);
    assert!(checkpoints.is_due(|| 0));
    // It does not wait for its turn.
    checkpoints.pace = Pace::new(Some(1));
    save(&mut checkpoints, "a longer state than that");
    assert!(checkpoints.hurries && checkpoints.schedule.hurried == 1, "another one follows");
    save(&mut checkpoints, "a state that is longer than that");
    assert!(!checkpoints.hurries && checkpoints.schedule.hurried == 0, "twice is enough");
    drop(checkpoints);
    let (checkpoints, _) = place.open();
    assert!(!checkpoints.hurries);
}

#[test]
fn a_node_that_ends_before_its_state_is_on_disk_hurries_next_time_and_one_that_gave_it_up_does_not()
{
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("ended");
    let (mut checkpoints, _) = place.open();
    let mut app = begin(&mut checkpoints, "of this a part is given");
    assert!(checkpoints.round(&mut app));
    drop(checkpoints);
    let (mut checkpoints, found) = place.open();
    assert!(found.is_none() && checkpoints.hurries);
    let mut app = begin(&mut checkpoints, "of this, too");
    assert!(checkpoints.round(&mut app));
    checkpoints.give_up();
    drop(checkpoints);
    let (checkpoints, found) = place.open();
    assert!(found.is_none() && !checkpoints.hurries);
}

#[test]
fn pieces_go_to_the_disk_at_the_pace_until_somebody_waits_for_them() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("pace");
    let (mut checkpoints, _) = place.open();
    checkpoints.pace = Pace::new(Some(1));
    let mut app = begin(&mut checkpoints, "three bytes a second would take a while");
    let given = (0..1000).filter(|_| checkpoints.round(&mut app)).count();
    assert_eq!(given, 1, "the next one is not due");
    checkpoints.hurry();
    while checkpoints.poll().unwrap().is_none() {
        checkpoints.round(&mut app);
    }
}

#[test]
fn another_node_that_asks_for_the_state_goes_first_once() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("gives-way");
    let (mut checkpoints, _) = place.open();
    begin(&mut checkpoints, "a state that is given up");
    assert!(checkpoints.give_way() && checkpoints.is_idle());
    let mut app = begin(&mut checkpoints, "a state");
    assert!(!checkpoints.give_way() && checkpoints.is_giving() && checkpoints.hurries);
    while checkpoints.poll().unwrap().is_none() {
        checkpoints.round(&mut app);
    }
    assert!(!checkpoints.hurries);
    begin(&mut checkpoints, "the next one");
    assert!(checkpoints.give_way());
}

/// An application that is at a position, and whose state has always the same number of pieces.
struct FixedSizeState {
    position: u64,
    given: u32,
}

/// Pieces of its state: rounds that it takes at the least to write it.
const COUNTER_PIECES: u32 = 12;

impl Application for FixedSizeState {
    type State = u64;

    fn deliver(&mut self, _: DeliveredCommand<'_>, _: TellAnswer<'_>) -> bool {
        true
    }

    fn applied(&self, _: Gid) -> u64 {
        self.position
    }

    fn delivered(&self, _: Gid) -> u64 {
        self.position
    }

    fn capture(&mut self) {
        self.given = 0;
    }

    fn piece(&mut self, _: usize, to: &mut Vec<u8>) -> bool {
        to.extend_from_slice(&self.position.to_le_bytes());
        self.given += 1;
        self.given < COUNTER_PIECES
    }

    fn release(&mut self) {}

    fn read(_: usize, from: &mut dyn Read) -> Result<u64, StateReadError> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn state_delivered(state: &u64, _: Gid) -> u64 {
        *state
    }

    fn adopt(&mut self, state: u64) -> u64 {
        std::mem::replace(&mut self.position, state)
    }

    fn clear(&mut self) -> u64 {
        0
    }

    fn figures(&self, _: Gid) -> GroupFigures {
        GroupFigures::default()
    }
}

/// One life of so many rounds, in which the log from the state on disk up to `end` is executed: 8 commands of 2 MB a
/// round. Gives the position of the state with which it began.
fn life(place: &NodeTestDir, rounds: u32, end: u64) -> u64 {
    let wake: WakeHandle = Arc::new(|| {});
    // As the second of three nodes, for which one is due earlier.
    let opened = Checkpoints::open::<FixedSizeState>(&place.0, (1, 3), 1, (wake, Some(1))).unwrap();
    let OpenedCheckpoints { mut checkpoints, restored } = opened;
    let begun = restored.map_or(0, |restored| restored.state);
    let mut app = FixedSizeState { position: begun, given: 0 };
    checkpoints.logged(LogVolume::default());
    let mut captured = begun;
    for _ in 0..rounds {
        for _ in 0..8 {
            if app.position < end {
                app.position += 1;
                checkpoints.delivered(2 << 20);
            }
        }
        if checkpoints.is_due(|| app.position) {
            captured = app.position;
            checkpoints.begin(&mut app, vec![captured], b"");
        }
        // The state is that of when it was begun, and has no command that is executed meanwhile.
        let now = std::mem::replace(&mut app.position, captured);
        checkpoints.round(&mut app);
        app.position = now;
        while matches!(checkpoints.stage, SaveStage::Saving(_))
            && checkpoints.poll().unwrap().is_none()
        {
            std::thread::yield_now();
        }
    }
    begun
}

#[test]
fn the_log_of_a_node_whose_lives_are_all_short_stays_bounded() {
    let _limit = amcast_test_policy::time_limit();
    // In a life of 25 rounds 200 commands can be executed, and a state needs 12 rounds.
    for (rounds, each) in [(40, 60), (25, 30), (16, 8)] {
        let place = NodeTestDir::new(&format!("short-{rounds}"));
        // A long log is there already.
        let mut end = 1_000;
        let mut lags = Vec::new();
        for _ in 0..60 {
            let begun = life(&place, rounds, end);
            lags.push(end - begun);
            end += each;
        }
        let last = lags[50..].iter().max().unwrap();
        assert!(*last <= 8 * each, "{rounds} rounds: {lags:?}");
    }
}

#[test]
fn a_state_without_room_does_not_have_the_node_started_again() {
    let _limit = amcast_test_policy::time_limit();
    let words =
        |what| no_room(&StorageError::Full { path: PathBuf::from("/d/n0.data/state"), what });
    for what in [Limit::Disk, Limit::Quota] {
        let words = words(what).unwrap();
        let is_right = words.starts_with("/d/n0.data/state: ") && words.contains("make room");
        assert!(is_right, "{words}");
        assert!(words.contains("The node continues") && !words.contains("start again"), "{words}");
    }
    assert_eq!(words(Limit::FileSize), None, "no more room would help");
}

#[test]
fn the_end_of_a_state_that_was_given_up_is_not_taken_for_that_of_the_next() {
    let _limit = amcast_test_policy::time_limit();
    let place = NodeTestDir::new("later");
    let mut checkpoints = place.open().0;
    let full = |position| SaveProgress::Failed {
        position,
        error: StorageError::Full { path: PathBuf::new(), what: Limit::Disk },
    };
    begin(&mut checkpoints, "first");
    checkpoints.give_up();
    let mut app = begin(&mut checkpoints, "the second");
    assert_eq!(checkpoints.on_progress(full(5)).unwrap(), None);
    let early = SaveProgress::Saved { position: 5, bytes: 5 };
    assert_eq!(checkpoints.on_progress(early).unwrap(), None);
    assert!(checkpoints.is_giving() && !checkpoints.dropped && !checkpoints.schedule.waits);
    while checkpoints.is_giving() {
        checkpoints.round(&mut app);
    }
    let saved = SaveProgress::Saved { position: 10, bytes: 10 };
    assert_eq!(checkpoints.on_progress(saved).unwrap(), Some(vec![10]));
    // Another reason than want of room ends the node, also of a state that was given up.
    let source = io::Error::other("rot");
    let error = StorageError::Io { path: PathBuf::new(), doing: "write it", source };
    assert!(checkpoints.on_progress(SaveProgress::Failed { position: 5, error }).is_err());
}
