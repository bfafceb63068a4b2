//! Dropping much without having a command wait for it.

/// Of this many values on, dropping them is left to another thread.
const MANY: usize = 10_000;

/// Drops `values`, of which there are `count`: on another thread if they are many, since that takes time.
pub(crate) fn lazy_free<T: Send + 'static>(values: T, count: usize) {
    if count < MANY {
        return;
    }
    // Without another thread they are dropped here, with the closure.
    let drop_all = move || drop(values);
    let spawned = std::thread::Builder::new().name("lazy-free".to_string()).spawn(drop_all);
    drop(spawned);
}
