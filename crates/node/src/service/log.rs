//! The log's backend on a real cluster: commands go out through a front of the runtime.

use super::Watch;
use crate::front::{Front, NoAnswer};
use crate::gateway::log::{Backend, OnAnswer, Unanswered};
use amcast_core::{GroupSet, Outcome, ServiceAnswer};
use amcast_log::command::Command;
use amcast_smr::Envelope;
use std::sync::Arc;

/// Has commands of the log ordered by the cluster.
pub struct LogBackend {
    front: Arc<Front>,
    watch: Arc<Watch>,
}

impl LogBackend {
    /// A backend on `front`, which may serve others, too; `watch` knows whether there is room for more.
    pub fn new(front: Arc<Front>, watch: Arc<Watch>) -> Self {
        Self { front, watch }
    }
}

impl Backend for LogBackend {
    fn ask(&self, dst: GroupSet, command: &[u8], done: OnAnswer) -> Result<(), Unanswered> {
        if let Some(why) = self.watch.refuses(|| appends(command)) {
            let outcome = Outcome::NotExecuted;
            let why = format!("{why}; {}", outcome.words());
            return Err(Unanswered { outcome, lacks_room: true, why });
        }
        let done = move |answer: Result<ServiceAnswer<'_>, NoAnswer>| done(answer.map_err(told));
        // What a client has under way at the same time, it must expect in any order.
        let is_read = Envelope::decode(command).is_some_and(|(envelope, _)| envelope.read_only);
        let asked = match is_read {
            true => self.front.ask_read(dst, command, Box::new(done)),
            false => self.front.ask(dst, command, Box::new(done)),
        };
        asked.map_err(told)?;
        self.front.flush();
        Ok(())
    }
}

/// Whether a command appends to logs.
fn appends(command: &[u8]) -> bool {
    let body = Envelope::decode(command).and_then(|(_, body)| Command::decode(body));
    matches!(body, Some(Command::Append(_)))
}

fn told(why: NoAnswer) -> Unanswered {
    Unanswered { outcome: why.outcome(), lacks_room: false, why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_log::command::Addition;
    use amcast_smr::Stamp;

    #[test]
    fn appends_alone_take_room() {
        let appends = |body: &Command<'_>| {
            let mut command = Vec::new();
            let stamp = Stamp::default();
            let head = Envelope { session: 1, request: 1, open_from: 1, stamp, read_only: false };
            head.encode(&mut command);
            body.encode(&mut command);
            super::appends(&command)
        };
        assert!(appends(&Command::Append(vec![Addition { log: b"a", value: b"v" }])));
        assert!(!appends(&Command::Trim { log: b"a", before: 3 }));
        assert!(!appends(&Command::Delete { log: b"a" }));
    }
}
