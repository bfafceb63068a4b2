//! DAGs of messages: all small ones, and random ones.

use super::model::DagMessage;
use alloc::vec::Vec;
use amcast_core::rng::Rng;

/// A DAG: its messages, by sender and number.
pub(super) type Dag = Vec<DagMessage>;

/// Whether each message that one follows is followed with all that it follows, and none follows itself through others.
fn is_closed(dag: &Dag, each: usize) -> bool {
    let of = |rank: usize, number: u64| &dag[rank * each + number as usize - 1];
    dag.iter().all(|m| {
        (0..m.follows.len()).all(|rank| {
            let upto = m.follows[rank];
            let own = m.rank == rank;
            // The latest one of that sender that it follows; of its own sender the one before it.
            let last = if own { upto - 1 } else { upto };
            last == 0 || {
                let before = of(rank, last);
                let within = before.follows.iter().zip(&m.follows).all(|(b, f)| b <= f);
                within && before.follows[m.rank] < m.follows[m.rank]
            }
        })
    })
}

/// Calls `visit` with every DAG of so many members with so many messages each, all of them agreed.
pub(super) fn all_dags(members: usize, each: usize, visit: &mut dyn FnMut(&Dag)) {
    let mut dag: Dag = Vec::new();
    choose(members, each, &mut dag, visit);
}

/// Extends the messages chosen so far by one, in every way.
fn choose(members: usize, each: usize, dag: &mut Dag, visit: &mut dyn FnMut(&Dag)) {
    let at = dag.len();
    if at == members * each {
        if is_closed(dag, each) {
            visit(dag);
        }
        return;
    }
    let rank = at / each;
    let number = (at % each) as u64 + 1;
    let choices = (each + 1).pow(members as u32 - 1);
    for choice in 0..choices {
        let mut rest = choice;
        let of = |q: usize| {
            if q == rank {
                return number;
            }
            let upto = (rest % (each + 1)) as u64;
            rest /= each + 1;
            upto
        };
        let follows: Vec<u64> = (0..members).map(of).collect();
        let grows = |before: &DagMessage| before.follows.iter().zip(&follows).all(|(b, f)| b <= f);
        if number == 1 || grows(&dag[at - 1]) {
            dag.push(DagMessage { rank, follows, agreed: true });
            choose(members, each, dag, visit);
            dag.pop();
        }
    }
}

/// The messages of a run in which each member sends that many, and receives some of what was sent in between.
pub(super) fn random_dag(members: usize, each: usize, rng: &mut Rng) -> Dag {
    let mut had = alloc::vec![alloc::vec![0_u64; members]; members];
    let mut dag: Dag = Vec::new();
    while dag.len() < members * each {
        let rank = rng.below(members as u64) as usize;
        if had[rank][rank] as usize == each {
            continue;
        }
        let agreed = rng.below(4) > 0;
        for m in &dag {
            // A member receives a message before it sends one that follows it.
            if rng.below(dag.len() as u64 + 2) < 2 {
                had[rank].iter_mut().zip(&m.follows).for_each(|(to, &of)| *to = of.max(*to));
            }
        }
        had[rank][rank] += 1;
        dag.push(DagMessage { rank, follows: had[rank].clone(), agreed });
    }
    dag
}

/// Whether a message may be received after those of the given counts.
pub(super) fn may_come(m: &DagMessage, had: &[u64]) -> bool {
    let is_next = m.follows[m.rank] == had[m.rank] + 1;
    let mut others = m.follows.iter().zip(had).enumerate().filter(|&(rank, _)| rank != m.rank);
    is_next && others.all(|(_, (follows, had))| follows <= had)
}
