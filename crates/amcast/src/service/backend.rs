//! A service's backend on a real cluster: commands go out through a front of the runtime.

use amcast_core::GroupSet;
use amcast_runtime::front::{Front, NoAnswer};
use amcast_services::{Answers, Backend, Busy};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// How many commands may be open when a front that was refused is told that there is room.
const ROOM_BELOW: usize = 8_192;

/// Has commands ordered by the cluster.
pub struct ClusterBackend {
    front: Arc<Front>,
    answers: OnceLock<Arc<dyn Answers>>,
    refused: Arc<AtomicBool>,
}

impl ClusterBackend {
    /// A backend on `front`.
    pub fn new(front: Arc<Front>) -> Self {
        Self { front, answers: OnceLock::new(), refused: Arc::default() }
    }
}

impl Backend for ClusterBackend {
    fn start(&self, answers: Arc<dyn Answers>) {
        assert!(self.answers.set(answers).is_ok(), "a backend is started once");
    }

    fn submit(&self, dst: GroupSet, command: &[u8], token: u64) -> Result<(), Busy> {
        let answers = Arc::clone(self.answers.get().expect("a backend is started before its use"));
        let refused = Arc::clone(&self.refused);
        let open = self.front.open_count();
        let done = {
            let answers = Arc::clone(&answers);
            move |answer: Result<&[u8], NoAnswer>| {
                match answer {
                    Ok(bytes) => answers.answer(token, bytes),
                    Err(why) => answers.answer(token, &error(why)),
                }
                if open.now() < ROOM_BELOW && refused.swap(false, Ordering::AcqRel) {
                    answers.room();
                }
            }
        };
        match self.front.submit(dst, command.into(), Box::new(done)) {
            Ok(()) => Ok(()),
            Err(NoAnswer::Busy) => {
                self.refused.store(true, Ordering::Release);
                // Everything may have been answered in between: then nobody else says so.
                if self.front.open() < ROOM_BELOW && self.refused.swap(false, Ordering::AcqRel) {
                    answers.room();
                }
                Err(Busy)
            }
            Err(why) => {
                answers.answer(token, &error(why));
                Ok(())
            }
        }
    }
}

/// What a client is told: an error of RESP, which is what the store's answers are made of.
fn error(why: NoAnswer) -> Vec<u8> {
    let word = match why {
        NoAnswer::TooLarge(_) => "ERR",
        _ => "TRYAGAIN",
    };
    format!("-{word} {why}\r\n").into_bytes()
}
