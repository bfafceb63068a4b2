//! A node's state comes back from whatever replicas lack and get, in any order.

use super::*;
use crate::application::Figures;
use crate::ingress::Ingress;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where its groups are.
struct Stands([u64; 2]);

impl Application for Stands {
    type State = [u64; 2];

    fn deliver(&mut self, command: Command<'_>, _: &mut dyn FnMut(MsgId, &[u8])) -> bool {
        self.0[command.group.index()] = command.position;
        true
    }

    fn applied(&self, group: Gid) -> u64 {
        self.0[group.index()]
    }

    fn delivered(&self, group: Gid) -> u64 {
        self.0[group.index()]
    }

    fn capture(&mut self) {}

    fn piece(&mut self, _: usize, _: &mut Vec<u8>) -> bool {
        false
    }

    fn release(&mut self) {}

    fn read(_: usize, _: &mut dyn Read) -> Result<Self::State, String> {
        Err("nobody asks for it".to_string())
    }

    fn state_delivered(state: &Self::State, group: Gid) -> u64 {
        state[group.index()]
    }

    fn adopt(&mut self, state: Self::State) -> Self::State {
        std::mem::replace(&mut self.0, state)
    }

    fn clear(&mut self) -> Self::State {
        self.adopt([0; 2])
    }

    fn figures(&self, _: Gid) -> Figures {
        Figures::default()
    }
}

/// A node of two groups, and its replicas.
fn house(reborn: bool) -> (House<Stands>, [Pid; 2]) {
    static HOUSES: AtomicU32 = AtomicU32::new(0);
    let number = HOUSES.fetch_add(1, Ordering::Relaxed);
    let name = format!("amcast-house-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let cluster = Cluster::new(2, 3, 0).unwrap();
    let ingress = Ingress::open(&path, cluster.all_groups(), 1, Arc::new(|| {})).unwrap();
    std::fs::remove_file(&path).unwrap();
    let pids = [Gid(0), Gid(1)].map(|g| cluster.replica(g, 0));
    (House::new(cluster, Stands([0; 2]), Door::Ingress(ingress, 0), None, reborn), pids)
}

fn wanted(house: &House<Stands>) -> Option<Vec<u64>> {
    house.wants().map(|wanted| wanted.positions)
}

/// Another node gives this state.
fn give(house: &mut House<Stands>, state: [u64; 2]) {
    let from = "n1".to_string();
    house.state = State::Early(Fetched { state, history: Vec::new(), from, donor: 0 });
    house.take_over();
}

#[test]
fn what_one_group_got_back_by_itself_keeps_no_other_from_its_state() {
    let (mut house, [one, two]) = house(false);
    house.note(Time(1), one, Note::Recovering);
    house.note(Time(1), two, Note::Recovering);
    house.install(Time(1), two, 10, &[], true);
    assert_eq!(wanted(&house), None, "the first one may need a later one");
    house.note(Time(1), one, Note::Recovered(0));
    assert_eq!(wanted(&house), Some(vec![0, 10]));
    give(&mut house, [0, 9]);
    assert_eq!(wanted(&house), Some(vec![0, 10]), "that was too old");
    give(&mut house, [3, 12]);
    assert!(house.is_live());
    assert_eq!(house.installed(), Some(vec![3, 12]));
}

#[test]
fn a_state_that_came_for_one_group_ends_what_another_lacked() {
    let (mut house, [one, two]) = house(false);
    house.note(Time(1), two, Note::Recovering);
    house.install(Time(1), two, 10, &[], true);
    // Before the state is there, the other one falls behind, too; what comes is new enough for it.
    house.note(Time(1), one, Note::Recovering);
    give(&mut house, [30, 12]);
    assert_eq!(house.installed(), Some(vec![30, 12]));
    house.note(Time(1), one, Note::Recovered(30));
    assert_eq!(house.installed(), Some(vec![30, 12]), "what was told before may have been undone");
    // Much later one of them lacks something again.
    house.note(Time(1), two, Note::Recovering);
    house.install(Time(1), two, 50, &[], true);
    assert_eq!(wanted(&house), Some(vec![30, 50]));
}

#[test]
fn a_node_without_its_state_waits_until_every_group_knows_where_it_goes_on() {
    let (mut house, [one, two]) = house(true);
    house.note(Time(1), one, Note::Recovered(0));
    house.install(Time(1), two, 10, &[], true);
    assert_eq!(wanted(&house), None, "what was delivered to it before is gone");
    house.install(Time(1), one, 20, &[], true);
    assert_eq!(wanted(&house), Some(vec![20, 10]));
}

#[test]
fn an_old_state_makes_room_for_the_one_that_comes() {
    let (mut house, [one, two]) = house(false);
    house.app.0 = [3, 4];
    house.note(Time(1), one, Note::Recovering);
    house.install(Time(1), one, 10, &[], true);
    let wanted = house.wants().expect("every group knows where it goes on");
    assert_eq!(wanted.positions, [10, 4]);
    let nobody = Fetching::begin::<Stands>(house.cluster, vec![], wanted, Arc::new(|| {}));
    house.expect(nobody.unwrap(), vec![1]);
    assert_eq!(house.app.0, [0, 0], "nobody can bring it up to 10");
    // What it had counts all the same: nobody may take it to stand where an empty state does.
    assert_eq!([one, two].map(|p| house.capture(p, two).position), [10, 4]);
    let any = Wanted { positions: vec![0, 0], view: None };
    assert!(house.give(&any).is_err_and(|why| why.contains("waits for a state")));
    // What the other group lacks for a moment it gets by itself: the state need not be newer for that.
    house.note(Time(1), two, Note::Recovering);
    house.note(Time(1), two, Note::Recovered(4));
    give(&mut house, [12, 4]);
    assert_eq!((house.is_live(), house.app.0), (true, [12, 4]));
    assert!(house.give(&any).is_ok());
}
