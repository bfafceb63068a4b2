//! A node and its gateways.

use super::*;
use amcast_core::Span;

const DST: GroupSet = GroupSet::one(Gid(1));

/// An ingress at a socket of its own, and a gateway that has greeted it.
struct GreetedIngress {
    dir: std::path::PathBuf,
    ingress: Ingress,
    gateway: IngressLine,
}

impl GreetedIngress {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("n0.in");
        let groups = GroupSet::first(2);
        let mut ingress = Ingress::open(&socket, (groups, true), 100, Arc::new(|| {})).unwrap();
        let mut gateway = ingress.inlet().connect(Arc::new(|| {}));
        gateway.say(IngressFrame::Hello(VERSION));
        gateway.flush().unwrap();
        ingress.round();
        Self { dir, ingress, gateway }
    }

    fn say(&mut self, frame: IngressFrame<'_>) {
        self.gateway.say(frame);
        self.gateway.flush().unwrap();
        self.ingress.round();
    }

    /// Whether this is the next frame to the gateway.
    fn hears(&mut self, frame: IngressFrame<'_>) -> bool {
        self.ingress.round();
        self.gateway.fill().unwrap();
        let Ok(Some((heard, used))) = self.gateway.next(ANSWER_FRAME_MAX) else { return false };
        let same = heard == frame;
        self.gateway.done(used);
        same
    }

    /// Takes up the next command, if there is room for `room`.
    fn take(&mut self, room: usize) -> Option<(u64, Vec<u8>)> {
        let taken = self.ingress.take(&mut |_, _| room)?;
        assert_eq!(taken.dst, DST);
        let (seq, payload) = (taken.seq, taken.payload().to_vec());
        self.ingress.put_back(taken);
        Some((seq, payload))
    }

    /// A read is answered, and one of its gateway that waits is taken up in its place.
    fn takes_one_more_for(&mut self, answered: &NodeRead) {
        self.ingress.answer_read(answered, Outcome::Executed, b"");
        assert!(self.take(1).is_none());
        assert_eq!(self.ingress.take_reads().len(), 1);
    }
}

impl Drop for GreetedIngress {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

#[test]
fn commands_wait_for_room_and_answers_find_their_gateway() {
    let mut place = GreetedIngress::new("ingress");
    assert!(place.take(9).is_none());
    assert!(place.hears(IngressFrame::Serves(false)));
    place.say(IngressFrame::Command(7, DST, b"one"));
    place.say(IngressFrame::Command(8, DST, b"two"));
    assert!(place.take(9).is_none(), "the member does not serve");
    place.ingress.serve(true);
    assert!(place.hears(IngressFrame::Serves(true)));
    assert!(place.take(0).is_none(), "there is no room");
    assert_eq!(place.take(1), Some((100, b"one".to_vec())));
    assert_eq!(place.take(1), Some((101, b"two".to_vec())));
    place.ingress.answer(101, Outcome::Executed, b"+2");
    place.ingress.answer(100, Outcome::Executed, b"+1");
    place.ingress.answer(100, Outcome::Executed, b"again");
    place.ingress.answer(55, Outcome::Executed, b"of an earlier life");
    assert!(
        place.hears(IngressFrame::Answer(8, Outcome::Executed, b"+2"))
            && place.hears(IngressFrame::Answer(7, Outcome::Executed, b"+1"))
    );
    assert_eq!((place.gateway.unread(), place.ingress.open_commands()), (0, 0));
}

#[test]
fn reads_are_taken_apart_and_answered_or_ordered_after_all() {
    let mut place = GreetedIngress::new("reads");
    place.ingress.serve(true);
    place.say(IngressFrame::Read(1, DST, b"first"));
    place.say(IngressFrame::Command(2, DST, b"set"));
    place.say(IngressFrame::Read(3, DST, b"second"));
    assert_eq!(place.take(1), Some((100, b"set".to_vec())));
    assert_eq!(place.take(1), None);
    let mut reads = place.ingress.take_reads();
    assert_eq!(reads.iter().map(|read| read.token).collect::<Vec<_>>(), [1, 3]);
    let second = reads.pop().unwrap();
    place.ingress.answer_read(&reads[0], Outcome::Executed, b"+x");
    assert!(
        place.hears(IngressFrame::Serves(true))
            && place.hears(IngressFrame::Answer(1, Outcome::Executed, b"+x"))
    );
    place.ingress.order(second);
    // A read of its line waits for its answer, and others do not.
    place.say(IngressFrame::Read(4, DST, b"third"));
    assert_eq!(place.take(1), Some((101, b"second".to_vec())));
    assert_eq!(place.take(1), None);
    let mut third = place.ingress.take_reads().remove(0);
    assert_eq!(place.ingress.may_read(&third), MayRead::NotYet);
    third.line = 9;
    assert_eq!(place.ingress.may_read(&third), MayRead::Now);
    third.line = 0;
    place.ingress.answer(101, Outcome::Executed, b"+y");
    assert_eq!(place.ingress.may_read(&third), MayRead::Now);
    place.ingress.answer_read(&third, Outcome::Executed, b"+z");
    assert!(
        place.hears(IngressFrame::Answer(3, Outcome::Executed, b"+y"))
            && place.hears(IngressFrame::Answer(4, Outcome::Executed, b"+z"))
    );
    let left = &place.ingress.gateways[0];
    assert_eq!((left.reads, left.detours.len()), (Occupancy::default(), 0));
    assert_eq!(place.ingress.open_reads, Occupancy::default());
}

#[test]
fn a_read_whose_gateway_is_gone_is_dropped() {
    let mut place = GreetedIngress::new("reads-gone");
    place.ingress.serve(true);
    place.say(IngressFrame::Read(1, DST, b"first"));
    assert!(place.take(1).is_none());
    let read = place.ingress.take_reads().remove(0);
    place.say(IngressFrame::Answer(1, Outcome::Executed, b"I am no node"));
    assert!(place.take(1).is_none());
    assert_eq!(place.ingress.may_read(&read), MayRead::Gone);
    assert_eq!(place.ingress.open_reads, Occupancy::default());
}

#[test]
fn reads_of_many_gateways_together_are_bounded_and_each_has_places_of_its_own() {
    let mut place = GreetedIngress::new("reads-together");
    place.ingress.serve(true);
    let (mut gateways, mut taken) = (Vec::new(), Vec::new());
    for _ in 0..READS_MAX / FLIGHT_MAX {
        let mut gateway = place.ingress.inlet().connect(Arc::new(|| {}));
        gateway.say(IngressFrame::Hello(VERSION));
        (0..FLIGHT_MAX as u64).for_each(|token| gateway.say(IngressFrame::Read(token, DST, b"")));
        let mut reads = Vec::new();
        while gateway.backlog() > 0 {
            gateway.flush().unwrap();
            place.ingress.round();
            assert!(place.take(1).is_none());
            reads.append(&mut place.ingress.take_reads());
        }
        gateways.push(gateway);
        taken.push(reads);
    }
    let counts: Vec<usize> = taken.iter().map(Vec::len).collect();
    assert_eq!(counts, [FLIGHT_MAX, FLIGHT_MAX, OWN_READS, OWN_READS], "of two halves");
    place.takes_one_more_for(&taken[3][0]);
    // None of them takes an answer; another one is served, also with a write behind a read.
    place.say(IngressFrame::Read(1, DST, b"read"));
    place.say(IngressFrame::Command(2, DST, b"set"));
    assert_eq!(place.take(1), Some((100, b"set".to_vec())));
    assert_eq!(place.ingress.take_reads().len(), 1);
}

#[test]
fn a_gateway_is_given_no_more_reads_than_it_is_expected_to_take_answers_of() {
    let mut place = GreetedIngress::new("reads-given");
    place.ingress.serve(true);
    (0..300).for_each(|token| place.say(IngressFrame::Read(token, DST, b"")));
    assert!(place.take(1).is_none());
    let reads = place.ingress.take_reads();
    let answer = vec![b'x'; 400 << 10];
    (0..8).for_each(|n| place.ingress.answer_read(&reads[n], Outcome::Executed, &answer));
    while place.ingress.gateways[0].line.backlog() > 0 {
        place.ingress.round();
        place.gateway.fill().unwrap();
        while let Ok(Some((_, used))) = place.gateway.next(ANSWER_FRAME_MAX) {
            place.gateway.done(used);
        }
    }
    let may =
        |place: &mut GreetedIngress, read: &NodeRead| place.ingress.may_read(read) == MayRead::Now;
    let given = reads[8..].iter().take_while(|read| {
        let may = may(&mut place, read);
        if may {
            place.ingress.give_read(read);
        }
        may
    });
    let given = given.count();
    assert!((10..30).contains(&given), "{given}");
    place.ingress.take_back_read(&reads[8]);
    assert!(may(&mut place, &reads[100]));
}

#[test]
fn a_read_of_several_groups_is_ordered() {
    let mut place = GreetedIngress::new("reads-several");
    place.ingress.serve(true);
    let both = GroupSet::first(2);
    place.say(IngressFrame::Read(1, both, b"both"));
    let taken = place.ingress.take(&mut |_, _| 1).unwrap();
    assert_eq!((taken.dst, taken.payload()), (both, &b"both"[..]));
}

#[test]
fn a_gateway_has_a_bounded_number_of_reads_and_of_their_bytes_on_their_way() {
    for (name, bytes) in [("reads-many", 1), ("reads-large", FLIGHT_BYTES_MAX / 16)] {
        let mut place = GreetedIngress::new(name);
        place.ingress.serve(true);
        let read = vec![7; bytes];
        let (most, mut taken) = (FLIGHT_MAX.min(FLIGHT_BYTES_MAX / bytes), Vec::new());
        for token in 0..most as u64 + 5 {
            place.say(IngressFrame::Read(token, DST, &read));
            assert!(place.take(1).is_none());
            taken.append(&mut place.ingress.take_reads());
        }
        assert_eq!(taken.len(), most);
        place.takes_one_more_for(&taken[0]);
    }
}

#[test]
fn a_member_that_was_left_out_closes_the_connections_of_those_whose_commands_are_lost() {
    for waits_for_room in [false, true] {
        let mut place = GreetedIngress::new("lost");
        place.ingress.serve(true);
        place.say(IngressFrame::Command(7, DST, b"one"));
        assert!(place.take(1).is_some() && place.hears(IngressFrame::Serves(true)));
        // The next one is not to be ordered before the first one is sent again, wherever it is.
        if !waits_for_room {
            place.ingress.serve(false);
            assert!(place.hears(IngressFrame::Serves(false)));
        }
        place.say(IngressFrame::Command(8, DST, b"two"));
        assert!(place.take(0).is_none());
        place.ingress.lose_all();
        place.ingress.serve(true);
        assert!(place.take(1).is_none(), "{waits_for_room}");
        place.ingress.answer(100, Outcome::Executed, b"late");
        place.ingress.round();
        assert!(place.take(1).is_none() && place.gateway.fill().is_err(), "{waits_for_room}");
        assert_eq!((place.ingress.open_commands(), place.ingress.dropped()), (0, 0));
    }
}

#[test]
fn a_gateway_that_lost_nothing_keeps_its_connection() {
    let mut place = GreetedIngress::new("lost-nothing");
    place.say(IngressFrame::Command(7, DST, b"one"));
    assert!(place.take(1).is_none() && place.hears(IngressFrame::Serves(false)));
    place.ingress.lose_all();
    place.ingress.serve(true);
    assert!(place.hears(IngressFrame::Serves(true)));
    assert_eq!(place.take(1), Some((100, b"one".to_vec())));
}

#[test]
fn a_gateway_has_a_bounded_number_of_commands_on_their_way() {
    let mut place = GreetedIngress::new("flights");
    place.ingress.serve(true);
    for token in 0..FLIGHT_MAX as u64 + 1 {
        place.say(IngressFrame::Command(token, DST, b""));
    }
    let taken = (0..2 * FLIGHT_MAX).filter(|_| place.take(1).is_some()).count();
    assert_eq!(taken, FLIGHT_MAX);
    place.ingress.answer(100, Outcome::Executed, b"");
    assert!(place.take(1).is_some());
}

#[test]
fn reads_of_a_gateway_are_executed_while_few_of_its_answers_wait() {
    let mut place = GreetedIngress::new("calm");
    place.ingress.serve(true);
    let answer = vec![b'x'; 900 << 10];
    (0..100).for_each(|token| place.say(IngressFrame::Read(token, DST, b"")));
    assert!(place.take(1).is_none());
    let mut reads = place.ingress.take_reads();
    assert_eq!(reads.len(), 100);
    reads.reverse();
    let mut heard = 0;
    while heard < 100 {
        // As many as the node executes in one round.
        while let Some(read) = reads.pop_if(|read| place.ingress.may_read(read) == MayRead::Now) {
            place.ingress.answer_read(&read, Outcome::Executed, &answer);
        }
        assert!(place.ingress.gateways[0].line.backlog() <= CALM_BYTES + answer.len() + 64);
        place.ingress.round();
        place.gateway.fill().unwrap();
        while let Ok(Some((frame, used))) = place.gateway.next(ANSWER_FRAME_MAX) {
            heard += usize::from(matches!(frame, IngressFrame::Answer(..)));
            place.gateway.done(used);
        }
    }
    assert_eq!((place.ingress.dropped(), place.ingress.gateways.len()), (0, 1));
}

#[test]
fn answers_beyond_the_bound_are_dropped_and_asked_for_again_and_no_gateway_is_cut_off() {
    let mut place = GreetedIngress::new("unread");
    place.ingress.serve(true);
    let answer = vec![b'x'; 1 << 20];
    let most = BACKLOG_BYTES_MAX / answer.len();
    for token in 0..most as u64 + 52 {
        place.say(IngressFrame::Command(token, DST, b""));
    }
    let mut taken: Vec<_> = std::iter::from_fn(|| place.take(1)).collect();
    assert_eq!(taken.len(), most + 52);
    let (small, _) = taken.pop().expect("that many were taken");
    let (read, _) = taken.pop().expect("that many were taken");
    for (seq, _) in taken {
        place.ingress.answer(seq, Outcome::Executed, &answer);
    }
    assert!(place.ingress.gateways[0].line.backlog() < BACKLOG_BYTES_MAX + (2 << 20));
    let commands = place.ingress.commands();
    assert!(!commands.awaits(read, clock::now()), "its answer would be dropped");
    place.ingress.answer(small, Outcome::Executed, b"+OK");
    // Nothing more is taken up of it, and of others it is.
    place.say(IngressFrame::Command(1000, DST, b""));
    let mut other = place.ingress.inlet().connect(Arc::new(|| {}));
    other.say(IngressFrame::Hello(VERSION));
    other.say(IngressFrame::Command(7, DST, b"other"));
    other.flush().unwrap();
    place.ingress.round();
    assert_eq!(place.take(1).unwrap().1, b"other");
    assert!(place.take(1).is_none());
    let (mut answers, mut lost) = (0, 0);
    while answers + lost < most + 52 {
        place.ingress.round();
        place.gateway.fill().unwrap();
        while let Ok(Some((frame, used))) = place.gateway.next(ANSWER_FRAME_MAX) {
            answers += usize::from(matches!(frame, IngressFrame::Answer(..)));
            lost += usize::from(matches!(frame, IngressFrame::NotKept(_)));
            place.gateway.done(used);
        }
    }
    assert_eq!((answers, lost, place.ingress.dropped()), (most + 1, 51, 50));
    let (next, _) = place.take(1).expect("what waited is taken up");
    assert!(commands.awaits(next, clock::now()));
}

#[test]
fn who_makes_no_sense_is_cut_off_and_its_commands_with_it() {
    let mut place = GreetedIngress::new("sense");
    place.ingress.serve(true);
    place.say(IngressFrame::Command(1, DST, b""));
    assert!(place.take(1).is_some());
    place.say(IngressFrame::Answer(1, Outcome::Executed, b"I am no node"));
    assert!(place.take(1).is_none());
    assert_eq!((place.ingress.cut_off, place.ingress.open_commands()), (1, 0));
    place.gateway.say(IngressFrame::Command(2, DST, b""));
    assert!(place.gateway.flush().is_err());
}

#[test]
fn a_command_for_no_group_of_the_cluster_is_not_taken_up() {
    for dst in [GroupSet::EMPTY, DST.with(Gid(2))] {
        let mut place = GreetedIngress::new("nowhere");
        place.ingress.serve(true);
        place.say(IngressFrame::Command(1, dst, b""));
        assert!(place.take(1).is_none());
        assert_eq!(place.ingress.cut_off, 1, "{dst:?}");
    }
}

#[test]
fn nobody_waits_for_a_command_whose_front_is_gone_or_has_no_more_patience() {
    let _limit = amcast_test_policy::time_limit();
    let mut place = GreetedIngress::new("given-up");
    place.ingress.serve(true);
    place.say(IngressFrame::Command(7, DST, b"slow"));
    place.say(IngressFrame::Command(8, DST, b"late"));
    assert_eq!(place.take(1), Some((100, b"slow".to_vec())));
    assert_eq!(place.take(1), Some((101, b"late".to_vec())));
    let (commands, now) = (place.ingress.commands(), clock::now());
    assert!(commands.awaits(100, now) && commands.awaits(101, now));
    assert!(!commands.awaits(99, now), "it is of an earlier life");
    assert!(commands.awaits(100, now + Span::secs(14)), "its gateway is patient");
    assert!(!commands.awaits(100, now + Span::secs(20)));
    assert!(!commands.awaits(100, now), "it is not executed later");
    // Its gateway learns of it, and may send another one in its place.
    assert!(place.hears(IngressFrame::Serves(true)) && place.hears(IngressFrame::NotKept(7)));
    assert_eq!((place.ingress.open_commands(), place.ingress.gateways[0].flights), (1, 1));
    place.ingress.close(0, None);
    assert!(!commands.awaits(101, now));
    assert_eq!(place.ingress.open_commands(), 0);
}
