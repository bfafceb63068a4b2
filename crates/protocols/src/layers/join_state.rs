//! The state of an ordering protocol with which a process begins in a view that it joins.

use alloc::vec::Vec;
use amcast_core::{MsgId, messages};

/// The note on the state for a process that joins which cannot be decoded.
pub(crate) const MALFORMED_STATE: &str = "the state for a joining process cannot be decoded";

/// The deliveries before the view. The application's state as of there travels another way: the driver fetches it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct JoinState {
    /// The position that deliveries have reached.
    pub(crate) position: u64,
    /// Of each process, by pid, the last message that was delivered.
    pub(crate) last: Vec<u64>,
}

messages! {
    struct JoinState { position, last }
}

impl JoinState {
    /// Before the first delivery, among so many processes.
    pub(crate) fn new(processes: usize) -> Self {
        Self { position: 0, last: alloc::vec![0; processes] }
    }

    /// Whether a message was delivered, or is of no process that there is.
    pub(crate) fn has(&self, msg: MsgId) -> bool {
        self.last.get(msg.sender.index()).is_none_or(|&last| msg.seq <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Pid;
    use amcast_core::codec::{ByteReader, Codec};

    #[test]
    fn a_state_reads_back_and_has_what_was_delivered() {
        let state = JoinState { position: 7, last: alloc::vec![0, 4] };
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        assert_eq!(JoinState::decode(&mut ByteReader::new(&bytes)), Ok(state.clone()));
        let has = |sender, seq| state.has(MsgId { sender: Pid(sender), seq });
        assert!(has(1, 4) && !has(1, 5) && !has(0, 1) && has(2, 1));
        assert_eq!(JoinState::new(2), JoinState { position: 0, last: alloc::vec![0, 0] });
    }
}
