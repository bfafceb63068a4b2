//! Jobs that wait to be sent: a line for each group that orders messages first, so that a group
//! without room keeps nobody waiting who goes elsewhere.

use super::jobs::Job;
use amcast_core::{Gid, GroupSet, Span, Time};
use std::collections::VecDeque;

/// The lines. Within one jobs keep the order in which they were handed in, so commands whose only
/// destination is the same group are sent in that order.
pub(super) struct Waiting {
    lines: Vec<VecDeque<Job>>,
    /// The line that is looked at first, in turn.
    first: usize,
}

impl Waiting {
    pub(super) fn new(groups: usize) -> Self {
        Self { lines: (0..groups).map(|_| VecDeque::new()).collect(), first: 0 }
    }

    /// Puts a job behind those that `group`, too, orders first.
    pub(super) fn push(&mut self, group: Gid, job: Job) {
        self.lines[group.index()].push_back(job);
    }

    /// How many lines there are.
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    fn line(&self, turn: usize) -> usize {
        (self.first + turn) % self.lines.len()
    }

    /// The first job of the line whose turn comes as the `turn`-th.
    pub(super) fn first(&self, turn: usize) -> Option<&Job> {
        self.lines[self.line(turn)].front()
    }

    /// Takes that job out.
    pub(super) fn pop(&mut self, turn: usize) -> Option<Job> {
        let line = self.line(turn);
        self.lines[line].pop_front()
    }

    /// Lets another line be the first.
    pub(super) fn turn(&mut self) {
        self.first = self.line(1);
    }

    /// Takes out the jobs that have waited for as long as they may.
    pub(super) fn give_up(&mut self, now: Time, patience: Span) -> Vec<Job> {
        let mut late = Vec::new();
        for line in &mut self.lines {
            while line.front().is_some_and(|job| job.since + patience <= now) {
                late.extend(line.pop_front());
            }
        }
        late
    }

    /// Takes out the jobs that go to a group of `down`, each with that group.
    pub(super) fn remove(&mut self, down: GroupSet) -> Vec<(Job, Gid)> {
        let mut removed = Vec::new();
        for line in self.lines.iter_mut().filter(|_| !down.is_empty()) {
            for job in std::mem::take(line) {
                match job.dst.and(down).lowest() {
                    Some(group) => removed.push((job, group)),
                    None => line.push_back(job),
                }
            }
        }
        removed
    }

    /// All jobs.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.lines.iter().flatten()
    }

    /// Takes out all.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Job> {
        self.lines.iter_mut().flat_map(|line| line.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use super::super::jobs::Asker;
    use super::*;

    fn job(token: u64, groups: &[u8], since: u64) -> Job {
        let dst = groups.iter().map(|&g| Gid(g)).collect();
        let (payload, since, asker) = (Box::default(), Time(since), Asker::Sink(token));
        Job { dst, payload, is_read: false, since, asker }
    }

    fn token(job: &Job) -> u64 {
        let Asker::Sink(token) = job.asker else { panic!("all here have tokens") };
        token
    }

    /// Takes out what goes first and is no job of group `full`.
    fn send(waiting: &mut Waiting, full: Gid) -> Vec<u64> {
        let mut sent = Vec::new();
        for turn in 0..waiting.lines() {
            while waiting.first(turn).is_some_and(|j| !j.dst.contains(full)) {
                sent.extend(waiting.pop(turn).map(|j| token(&j)));
            }
        }
        waiting.turn();
        sent
    }

    #[test]
    fn a_group_without_room_keeps_only_its_own_waiting_and_each_line_keeps_its_order() {
        let mut waiting = Waiting::new(3);
        for t in 0..12 {
            waiting.push(Gid((t % 3) as u8), job(t, &[(t % 3) as u8], 0));
        }
        assert_eq!(send(&mut waiting, Gid(0)), [1, 4, 7, 10, 2, 5, 8, 11]);
        assert!(send(&mut waiting, Gid(0)).is_empty());
        assert_eq!(send(&mut waiting, Gid(9)), [0, 3, 6, 9]);
    }

    #[test]
    fn lines_come_first_in_turn() {
        let mut waiting = Waiting::new(3);
        let mut firsts = Vec::new();
        for _ in 0..4 {
            (0..3).for_each(|g| waiting.push(Gid(g), job(u64::from(g), &[g], 0)));
            firsts.push(send(&mut waiting, Gid(9))[0]);
        }
        assert_eq!(firsts, [0, 1, 2, 0]);
    }

    #[test]
    fn patience_counts_from_when_a_job_was_handed_in() {
        let mut waiting = Waiting::new(2);
        waiting.push(Gid(0), job(1, &[0], 100));
        waiting.push(Gid(0), job(2, &[0], 200));
        waiting.push(Gid(1), job(3, &[1], 100));
        let late = waiting.give_up(Time(150), Span::nanos(50));
        assert_eq!(late.iter().map(token).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(waiting.drain().map(|j| token(&j)).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn who_needs_a_group_that_is_down_need_not_wait() {
        let mut waiting = Waiting::new(2);
        waiting.push(Gid(0), job(1, &[0], 0));
        waiting.push(Gid(0), job(2, &[0, 1], 0));
        waiting.push(Gid(1), job(3, &[1], 0));
        assert!(waiting.remove(GroupSet::EMPTY).is_empty());
        let removed = waiting.remove(GroupSet::one(Gid(1)));
        assert_eq!(
            removed.iter().map(|(j, g)| (token(j), *g)).collect::<Vec<_>>(),
            [(2, Gid(1)), (3, Gid(1))]
        );
        assert_eq!(waiting.drain().map(|j| token(&j)).collect::<Vec<_>>(), [1]);
    }
}
