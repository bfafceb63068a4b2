//! Checkpoints are whole or none, and written when they are due.

use super::*;
use crate::application::{Command, Figures};
use amcast_core::{Gid, MsgId};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// A state that is a text, at the position of its length.
struct Text;

impl Application for Text {
    type State = String;

    fn deliver(&mut self, _: Command<'_>, _: &mut dyn FnMut(MsgId, &[u8])) -> bool {
        true
    }

    fn applied(&self, _: Gid) -> u64 {
        0
    }

    fn delivered(&self, _: Gid) -> u64 {
        0
    }

    fn capture(&mut self) {}

    fn piece(&mut self, _: usize, _: &mut Vec<u8>) -> bool {
        false
    }

    fn release(&mut self) {}

    fn read(_: usize, from: &mut dyn Read) -> Result<String, String> {
        let mut text = String::new();
        from.read_to_string(&mut text).map_err(|e| e.to_string())?;
        Ok(text)
    }

    fn state_delivered(state: &String, _: Gid) -> u64 {
        state.len() as u64
    }

    fn adopt(&mut self, state: String) -> String {
        state
    }

    fn figures(&self, _: Gid) -> Figures {
        Figures::default()
    }
}

/// A node's directory.
struct Place(Keeping);

impl Place {
    fn new(name: &str) -> Self {
        let name = format!("amcast-checkpoint-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let keeping = Keeping { path, holds: false, lasts: true };
        keeping.make().unwrap();
        Self(keeping)
    }

    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(&self.0, (0, 3), Time(1))
    }

    fn newest(&self) -> Option<(String, Vec<u8>)> {
        let restored = newest::<Text>(&self.0, 1).unwrap();
        restored.map(|r| (r.state, r.history))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.0.checkpoints())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0.path).unwrap();
    }
}

/// Begins a checkpoint at this position.
fn begin(checkpoints: &mut Checkpoints, position: u64) -> SyncSender<Vec<u8>> {
    let (to, pieces) = sync_channel(1);
    checkpoints.begin(Time(1), vec![position], pieces, Arc::new(|| {})).unwrap();
    to
}

/// Says a state, as a node gives one.
fn say(to: &SyncSender<Vec<u8>>, text: &str) {
    let history = b"told";
    to.send([&4_u64.to_le_bytes()[..], history].concat()).unwrap();
    to.send(text.as_bytes().to_vec()).unwrap();
}

fn wait(checkpoints: &mut Checkpoints) -> Result<Option<Vec<u64>>, Failed> {
    while checkpoints.is_writing() {
        let polled = checkpoints.poll();
        if !matches!(polled, Ok(None)) {
            return polled;
        }
        thread::yield_now();
    }
    Ok(None)
}

fn write_one(checkpoints: &mut Checkpoints, text: &str) {
    let to = begin(checkpoints, text.len() as u64);
    say(&to, text);
    to.send(Vec::new()).unwrap();
    assert_eq!(wait(checkpoints).unwrap(), Some(vec![text.len() as u64]));
}

#[test]
fn the_newest_state_is_read_back_and_the_one_before_it_stays() {
    let place = Place::new("newest");
    assert_eq!(place.newest(), None);
    let mut checkpoints = place.checkpoints();
    for text in ["one", "three", "eleven ...."] {
        write_one(&mut checkpoints, text);
        assert_eq!(place.newest(), Some((text.to_string(), b"told".to_vec())));
    }
    assert_eq!(place.names(), ["0000000000000001", "0000000000000002"]);
}

#[test]
fn a_state_that_was_given_up_or_is_damaged_is_none() {
    let place = Place::new("damaged");
    let mut checkpoints = place.checkpoints();
    write_one(&mut checkpoints, "whole");
    let to = begin(&mut checkpoints, 9);
    say(&to, "half of i");
    drop(to);
    assert_eq!(wait(&mut checkpoints).unwrap(), None);
    assert_eq!(place.newest().unwrap().0, "whole");
    write_one(&mut checkpoints, "turned");
    let path = place.0.checkpoints().join("0000000000000001");
    let good = fs::read(&path).unwrap();
    for at in [3, 20, 31, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, &bad).unwrap();
        assert_eq!(place.newest().unwrap().0, "whole", "byte {at}");
    }
    for length in [0, 20, good.len() - 1] {
        fs::write(&path, &good[..length]).unwrap();
        assert_eq!(place.newest().unwrap().0, "whole", "{length} bytes");
    }
    fs::write(&path, &good).unwrap();
    assert_eq!(place.newest().unwrap().0, "turned");
}

#[test]
fn what_cannot_be_written_is_said() {
    let place = Place::new("unwritten");
    let mut checkpoints = place.checkpoints();
    fs::write(place.0.checkpoints(), "a file where a directory should be").unwrap();
    let _to = begin(&mut checkpoints, 1);
    let Err(Failed(why)) = wait(&mut checkpoints) else { panic!("it was written") };
    assert!(why.contains("the state cannot be written"), "{why}");
}

#[test]
fn one_is_due_after_many_bytes_or_a_long_time_and_nodes_take_turns() {
    let place = Place::new("due");
    let node = |rank| Checkpoints::new(&place.0, (rank, 3), Time::ZERO);
    let late = Time::ZERO + AFTER;
    assert!(!node(0).is_due(late), "there were no commands");
    let (mut first, mut last) = (node(0), node(2));
    for checkpoints in [&mut first, &mut last] {
        checkpoints.delivered(AFTER_BYTES as usize / 2);
    }
    assert_eq!((first.is_due(Time(1)), last.is_due(Time(1))), (false, true));
    assert!(first.is_due(late));
    first.delivered(AFTER_BYTES as usize / 2);
    assert!(first.is_due(Time(1)));
    first.last_bytes = 2 * AFTER_BYTES;
    assert!(!first.is_due(Time(1)), "the last one was larger than what came since");
}
