//! Tasks of a gateway that all its clients need: they accept connections, wake streams, tell the health.
//!
//! tokio catches the panic of a task, so that one connection ends and no other. A task that all clients need must not end
//! so, for then its gateway would serve a part for ever. [`SharedTasks::failure`] passes such a panic on to the thread of
//! the gateway, which ends, and the process with it: the caller that runs the gateway looks at `is_serving`.

use std::convert::Infallible;
use std::future::{Future, pending};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// The tasks of one gateway's thread that all its clients need. Dropping it ends them.
#[derive(Default)]
pub(crate) struct SharedTasks(JoinSet<()>);

impl SharedTasks {
    /// Has a task run on the runtime of the gateway's thread.
    pub(crate) fn spawn(
        &mut self,
        runtime: &Handle,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.0.spawn_on(task, runtime);
    }

    /// Waits for as long as all of them run. One that returns has done its part: it does so when its gateway ends.
    ///
    /// # Panics
    /// If one of them panics, with the same message.
    pub(crate) async fn failure(&mut self) -> Infallible {
        while let Some(ended) = self.0.join_next().await {
            if let Err(e) = ended
                && let Ok(panic) = e.try_into_panic()
            {
                // It was reported where it happened.
                std::panic::resume_unwind(panic);
            }
        }
        pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_task_that_panics_ends_its_thread_and_one_that_returns_does_not() {
        let _limit = amcast_test_policy::time_limit();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut tasks = SharedTasks::default();
        tasks.spawn(runtime.handle(), async {});
        let wait = std::time::Duration::from_millis(10);
        let passed = runtime.block_on(async { tokio::time::timeout(wait, tasks.failure()).await });
        assert!(passed.is_err(), "all went well");
        tasks.spawn(runtime.handle(), pending());
        tasks.spawn(runtime.handle(), async { panic!("the task of all") });
        let failed = catch_unwind(AssertUnwindSafe(|| runtime.block_on(tasks.failure())));
        let why = failed.expect_err("it passes the panic on");
        assert_eq!(why.downcast_ref::<&str>(), Some(&"the task of all"));
    }
}
