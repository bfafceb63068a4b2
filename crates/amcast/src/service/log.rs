//! The log's backend on a real cluster: commands go out through a front of the runtime.

use amcast_core::GroupSet;
use amcast_log::{Backend, Effect, OnAnswer, Unanswered};
use amcast_runtime::front::{self, Front, NoAnswer};
use amcast_services::Envelope;
use std::sync::Arc;

/// Has commands of the log ordered by the cluster.
pub struct LogBackend(Arc<Front>);

impl LogBackend {
    /// A backend on `front`, which may serve others, too.
    pub fn new(front: Arc<Front>) -> Self {
        Self(front)
    }
}

impl Backend for LogBackend {
    fn ask(&self, dst: GroupSet, command: &[u8], done: OnAnswer) -> Result<(), Unanswered> {
        let done = move |answer: Result<&[u8], NoAnswer>| done(answer.map_err(told));
        // What a client has under way at the same time, it must expect in any order.
        let is_read = Envelope::decode(command).is_some_and(|(envelope, _)| envelope.read_only);
        let asked = match is_read {
            true => self.0.ask_read(dst, command, Box::new(done)),
            false => self.0.ask(dst, command, Box::new(done)),
        };
        asked.map_err(told)?;
        self.0.flush();
        Ok(())
    }
}

fn told(why: NoAnswer) -> Unanswered {
    let effect = match why.effect() {
        front::Effect::None => Effect::None,
        front::Effect::Unknown => Effect::Unknown,
        front::Effect::Whole => Effect::Whole,
    };
    Unanswered { effect, why: why.to_string() }
}
