//! Commands of one front that the node's members have no room for: a line for each set of groups, so
//! that a group without room keeps nobody waiting who goes elsewhere.

use amcast_core::GroupSet;
use std::collections::VecDeque;

/// A command as its front said it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Command {
    /// What the front calls it.
    pub(super) token: u64,
    pub(super) dst: GroupSet,
    pub(super) bytes: Box<[u8]>,
}

/// The lines. In each, commands keep the order in which the front said them.
#[derive(Default, Debug)]
pub(super) struct Waiting {
    lines: Vec<VecDeque<Command>>,
    count: usize,
    bytes: usize,
}

impl Waiting {
    /// How many wait.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Their bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether one to these groups waits: the next one must, too.
    pub(super) fn has(&self, dst: GroupSet) -> bool {
        self.count > 0 && self.lines.iter().any(|line| line.front().is_some_and(|c| c.dst == dst))
    }

    /// Puts a command behind those to the same groups.
    pub(super) fn push(&mut self, command: Command) {
        self.count += 1;
        self.bytes += command.bytes.len();
        let same = |line: &VecDeque<Command>| line.front().is_some_and(|c| c.dst == command.dst);
        match self.lines.iter().position(same) {
            Some(line) => self.lines[line].push_back(command),
            None => self.lines.push(VecDeque::from([command])),
        }
    }

    /// Takes out one that there is room for: `room` says how many of so many bytes to these groups are
    /// taken.
    pub(super) fn take(
        &mut self,
        room: &mut dyn FnMut(GroupSet, usize) -> usize,
    ) -> Option<Command> {
        let mut has_room =
            |line: &VecDeque<Command>| line.front().is_some_and(|c| room(c.dst, c.bytes.len()) > 0);
        let at = self.lines.iter().position(&mut has_room)?;
        // The others have their turn before the next of this line.
        let mut line = self.lines.remove(at);
        let command = line.pop_front()?;
        if !line.is_empty() {
            self.lines.push(line);
        }
        self.count -= 1;
        self.bytes -= command.bytes.len();
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Gid;

    fn waiting(groups: &[u8]) -> Waiting {
        let mut waiting = Waiting::default();
        for (token, &g) in (0..).zip(groups) {
            let dst = GroupSet::one(Gid(g));
            waiting.push(Command { token, dst, bytes: Box::from([7; 3]) });
        }
        waiting
    }

    fn taken(waiting: &mut Waiting, full: u8) -> Vec<u64> {
        let mut room = |dst: GroupSet, _: usize| usize::from(!dst.contains(Gid(full)));
        std::iter::from_fn(|| waiting.take(&mut room).map(|c| c.token)).collect()
    }

    #[test]
    fn lines_take_turns_and_keep_their_order() {
        let mut all = waiting(&[0, 0, 1, 0, 1]);
        assert_eq!((all.count(), all.bytes()), (5, 15));
        assert_eq!(taken(&mut all, 9), [0, 2, 1, 4, 3]);
        assert_eq!((all.count(), all.bytes(), all.lines.len()), (0, 0, 0));
    }

    #[test]
    fn a_group_without_room_holds_up_only_its_own() {
        let mut all = waiting(&[0, 1, 0, 1]);
        assert_eq!(taken(&mut all, 0), [1, 3]);
        assert!(all.has(GroupSet::one(Gid(0))) && !all.has(GroupSet::one(Gid(1))));
        assert_eq!(taken(&mut all, 1), [0, 2]);
    }
}
