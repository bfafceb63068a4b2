//! The order of one group, record by record.

use super::MessageArrival::{Known, New, Refused};
use super::*;
use amcast_core::Pid;

const ME: Gid = Gid(0);
const OTHER: Gid = Gid(1);
const BOTH: GroupSet = GroupSet(0b11);

fn order() -> TimestampOrder {
    TimestampOrder::new(ME, (2, 4), Mutants::with(None))
}

fn msg(seq: u64) -> MsgId {
    MsgId { sender: Pid(7), seq }
}

fn from_client(start: u64) -> ClientPlace {
    ClientPlace { client: 0, lease: 1, start: Some(start) }
}

const FROM_GROUP: ClientPlace = ClientPlace { client: 0, lease: 1, start: None };

fn all(order: &mut TimestampOrder) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    order.deliver(|msg, _, number, _| all.push((msg.seq, number)));
    all
}

#[test]
fn a_message_waits_for_all_proposals_and_for_those_that_may_be_smaller() {
    let mut o = order();
    assert_eq!(o.arrive(msg(1), BOTH, 1, from_client(0), b"a"), New);
    assert_eq!(o.arrive(msg(2), GroupSet::one(ME), 2, from_client(1), b"b"), New);
    assert_eq!(all(&mut o), [], "the first may come before the second");
    o.proposed((msg(1), BOTH), 0, (OTHER, 5));
    assert_eq!(all(&mut o), [(2, 1), (1, 2)]);
    assert_eq!(o.clock(), 5);
}

#[test]
fn a_proposal_may_come_before_its_message() {
    let mut o = order();
    o.proposed((msg(2), BOTH), 0, (OTHER, 3));
    assert_eq!(o.arrive(msg(1), GroupSet::one(ME), 4, from_client(0), b""), New);
    assert_eq!(all(&mut o), [(1, 1)], "the second gets a timestamp above");
    assert_eq!(o.arrive(msg(2), BOTH, 5, from_client(1), b""), New);
    assert_eq!(all(&mut o), [(2, 2)]);
}

#[test]
fn a_leader_delivers_by_a_proposal_that_its_own_log_has_not_decided() {
    let mut o = order();
    o.arrive(msg(1), BOTH, 3, from_client(0), b"");
    o.proposed_ahead((msg(1), BOTH), 0, (OTHER, 4));
    assert_eq!(all(&mut o), [], "a later leader may give 4 to another message");
    o.pass_clock(4);
    assert_eq!((all(&mut o), o.delivered()), (alloc::vec![(1, 1)], 0));
    o.arrive(msg(2), GroupSet::one(ME), 5, from_client(1), b"");
    assert_eq!((all(&mut o), o.settled(0, 2)), (alloc::vec![(2, 2)], 0));
    o.proposed((msg(1), BOTH), 0, (OTHER, 4));
    assert_eq!((all(&mut o), o.delivered(), o.settled(0, 2)), (alloc::vec![], 2, 2));
}

#[test]
fn a_message_counts_once_by_whichever_way_it_comes() {
    let mut o = order();
    assert_eq!(o.arrive(msg(1), BOTH, 1, FROM_GROUP, b""), New);
    o.proposed((msg(1), BOTH), 0, (OTHER, 1));
    assert_eq!(all(&mut o).len(), 1);
    let third = o.arrive(msg(1), BOTH, 2, FROM_GROUP, b"");
    assert_eq!(third, Known, "a third group brings it, too");
    let own = o.arrive(msg(1), BOTH, 3, from_client(0), b"");
    assert_eq!(own, Known, "the client's own copy");
    assert_eq!(o.arrive(msg(1), BOTH, 4, FROM_GROUP, b""), Known, "late");
    assert_eq!(all(&mut o), []);
}

#[test]
fn a_number_that_does_not_grow_is_refused_and_counts_once() {
    let mut o = order();
    let mine = GroupSet::one(ME);
    assert_eq!(o.arrive(msg(2), mine, 1, from_client(0), b""), New);
    assert_eq!(o.arrive(msg(2), mine, 2, from_client(1), b""), Known, "it waits");
    assert_eq!(all(&mut o), [(2, 1)]);
    assert_eq!(o.arrive(msg(2), mine, 3, from_client(2), b""), Refused, "repeated");
    assert_eq!(o.arrive(msg(1), mine, 4, from_client(3), b""), Refused, "lower");
    let later = ClientPlace { lease: 2, ..from_client(0) };
    assert_eq!(o.arrive(msg(2), mine, 5, later, b""), Refused, "by the next holder");
    assert_eq!(o.arrive(msg(3), mine, 6, later, b""), New);
    assert_eq!((all(&mut o), o.settled(0, 9)), (alloc::vec![(3, 2)], 9));
    let last = msg(u64::MAX);
    assert_eq!(o.arrive(last, mine, 7, later, b""), New);
    assert_eq!(all(&mut o).len(), 1);
    assert_eq!(o.arrive(last, mine, 8, later, b""), Refused, "no number grows any more");
}

/// Refusals of the last record: the number, its destinations, and the groups that hear of it.
fn refused(o: &mut TimestampOrder) -> Vec<(u64, u64, u64)> {
    o.take_refused().iter().map(|r| (r.msg.seq, r.dst.0, r.to.0)).collect()
}

fn keeps_nothing(o: &TimestampOrder) -> bool {
    o.held.is_empty() && o.decided.is_empty() && o.ahead.is_empty()
}

#[test]
fn a_number_to_other_destinations_is_another_message_and_only_one_of_them_is_ordered() {
    let (others, third) = (GroupSet(0b101), Gid(2));
    let mut o = order();
    o.arrive(msg(5), BOTH, 1, from_client(0), b"");
    o.arrive(msg(6), BOTH, 2, from_client(1), b"");
    o.proposed((msg(5), others), 0, (third, 9));
    assert_eq!((refused(&mut o), o.clock()), (alloc::vec![(5, 0b101, 0b100)], 9));
    o.proposed_ahead((msg(5), others), 0, (third, 9));
    assert_eq!(o.arrive(msg(5), others, 3, FROM_GROUP, b""), Known, "as a whole");
    assert_eq!(o.arrive(msg(5), others, 3, from_client(2), b""), Refused, "by its client");
    assert!(!o.refused((msg(5), others), third));
    o.proposed((msg(5), BOTH), 0, (OTHER, 2));
    o.proposed((msg(6), BOTH), 0, (OTHER, 3));
    assert_eq!(all(&mut o), [(5, 1), (6, 2)], "9 counts for neither");
    assert!(keeps_nothing(&o));
    // The proposals were here before the message.
    o.proposed((msg(7), others), 0, (third, 20));
    o.proposed((msg(7), BOTH), 0, (OTHER, 10));
    assert_eq!(refused(&mut o), []);
    o.arrive(msg(7), BOTH, 21, from_client(3), b"");
    assert_eq!(refused(&mut o), [(7, 0b101, 0b100)]);
    assert_eq!(all(&mut o), [(7, 3)]);
    assert!(keeps_nothing(&o));
}

#[test]
fn a_proposal_that_comes_to_nothing_is_refused_once() {
    let mut o = order();
    o.proposed((msg(1), BOTH), 0, (OTHER, 7));
    o.proposed((msg(2), BOTH), 0, (OTHER, 8));
    o.proposed((msg(4), BOTH), 0, (OTHER, 9));
    o.proposed_ahead((msg(1), BOTH), 0, (OTHER, 7));
    assert_eq!(refused(&mut o), [], "they may come");
    o.arrive(msg(3), GroupSet::one(ME), 8, from_client(0), b"");
    assert_eq!(refused(&mut o), [(1, 0b11, 0b10), (2, 0b11, 0b10)], "they were passed over");
    assert_eq!(o.arrive(msg(1), BOTH, 9, FROM_GROUP, b""), Known);
    assert_eq!(o.arrive(msg(2), BOTH, 9, from_client(1), b""), Refused);
    assert_eq!(refused(&mut o), []);
    o.proposed((msg(0), BOTH), 0, (OTHER, 10));
    o.proposed_ahead((msg(0), BOTH), 0, (OTHER, 10));
    assert_eq!(refused(&mut o), [(0, 0b11, 0b10)], "it came too late");
    assert_eq!(all(&mut o), [(3, 1)]);
    o.arrive(msg(4), BOTH, 11, from_client(2), b"");
    assert_eq!((all(&mut o), refused(&mut o)), (alloc::vec![(4, 2)], alloc::vec![]));
    assert!(keeps_nothing(&o));
}

#[test]
fn a_refused_message_is_dropped_and_refused_to_the_others_in_turn() {
    let (three, third) = (GroupSet(0b111), Gid(2));
    let mut o = order();
    o.arrive(msg(1), three, 1, from_client(0), b"");
    o.arrive(msg(2), GroupSet::one(ME), 2, from_client(1), b"");
    o.proposed((msg(1), three), 0, (third, 2));
    assert!(!o.refused((msg(9), three), OTHER), "nothing that waits is refused");
    assert_eq!(all(&mut o), []);
    assert!(o.refused((msg(1), three), OTHER));
    assert_eq!(refused(&mut o), [(1, 0b111, 0b100)], "not to the group that refuses it");
    assert!(!o.refused((msg(1), three), third), "that one has heard of it");
    assert_eq!(
        (all(&mut o), o.settled(0, 2), refused(&mut o)),
        (alloc::vec![(2, 1)], 2, Vec::new())
    );
    assert!(keeps_nothing(&o));
}

#[test]
fn a_proposal_that_is_withdrawn_counts_no_more() {
    let (three, third) = (GroupSet(0b111), Gid(2));
    let mut o = order();
    o.proposed((msg(1), three), 0, (OTHER, 3));
    o.proposed((msg(1), three), 0, (third, 4));
    o.refused((msg(1), three), third);
    o.arrive(msg(1), three, 5, from_client(0), b"");
    assert_eq!((all(&mut o), refused(&mut o)), (alloc::vec![], alloc::vec![]));
    assert!(o.refused((msg(1), three), third), "its answer to the proposal");
    for seq in 2..1000 {
        o.proposed((msg(seq), three), 0, (third, 6));
        o.refused((msg(seq), three), third);
        assert!(keeps_nothing(&o), "of a client that never writes here");
    }
}

#[test]
fn what_is_kept_of_dead_holders_is_bounded() {
    let (mut o, mut size) = (order(), 0);
    for seq in 1..=1000 {
        // The client of each lease reached only the other group.
        let place = ClientPlace { lease: seq as u32, ..FROM_GROUP };
        assert_eq!(o.arrive(msg(seq), BOTH, seq, place, b""), New);
        o.proposed((msg(seq), BOTH), 0, (OTHER, seq));
        assert_eq!(all(&mut o), [(seq, seq)]);
        assert_eq!(o.arrive(msg(seq), BOTH, seq, place, b""), Known, "another group's");
        let mut bytes = Vec::new();
        o.encode(&mut bytes);
        if seq == 4 {
            size = bytes.len();
        }
        assert!(seq <= 4 || bytes.len() <= size + 64, "{seq}: {} bytes", bytes.len());
    }
    assert_eq!(o.arrive(msg(3), BOTH, 2000, FROM_GROUP, b""), Known);
    // The last holder writes its copies, as far as its buffer goes, and what it sent here alone.
    let place = ClientPlace { lease: 1000, ..from_client(0) };
    assert_eq!(o.arrive(msg(999), BOTH, 2001, place, b""), Known);
    assert_eq!(o.arrive(msg(1000), BOTH, 2002, place, b""), Known);
    assert_eq!(o.arrive(msg(1001), GroupSet::one(ME), 2003, place, b""), New);
    assert!(o.clients[0].early.is_empty());
}

#[test]
fn a_state_with_more_early_messages_than_a_buffer_holds_is_refused() {
    let (mut o, mut small) = (order(), order());
    let mut bytes = Vec::new();
    for seq in 1..=3 {
        o.arrive(msg(seq), BOTH, seq, FROM_GROUP, b"");
    }
    o.encode(&mut bytes);
    assert!(small.resume(&mut ByteReader::new(&bytes)));
    small.early_max = 2;
    assert!(!small.resume(&mut ByteReader::new(&bytes)));
}

#[test]
fn a_buffer_is_settled_up_to_the_first_message_that_is_not_delivered() {
    let mut o = order();
    o.arrive(msg(1), BOTH, 1, from_client(0), b"");
    o.arrive(msg(2), BOTH, 2, from_client(4), b"");
    assert_eq!(o.settled(0, 8), 0);
    o.proposed((msg(1), BOTH), 0, (OTHER, 1));
    assert_eq!((all(&mut o).len(), o.settled(0, 8)), (1, 4));
    o.proposed((msg(2), BOTH), 0, (OTHER, 3));
    assert_eq!((all(&mut o).len(), o.settled(0, 8)), (1, 8));
}

#[test]
fn a_state_that_is_handed_over_continues_alike() {
    let mut o = order();
    o.arrive(msg(1), BOTH, 1, from_client(0), b"first");
    o.arrive(msg(2), BOTH, 2, from_client(3), b"second");
    o.proposed((msg(3), BOTH), 0, (OTHER, 9));
    let (mut bytes, mut taker) = (Vec::new(), order());
    o.encode(&mut bytes);
    assert!(taker.resume(&mut ByteReader::new(&bytes)));
    assert!(!order().resume(&mut ByteReader::new(&bytes[1..])));
    for o in [&mut o, &mut taker] {
        assert_eq!((o.clock(), o.settled(0, 9)), (9, 0));
        o.proposed((msg(1), BOTH), 0, (OTHER, 4));
        o.proposed((msg(2), BOTH), 0, (OTHER, 3));
        assert_eq!(all(o), [(2, 1), (1, 2)]);
    }
}
