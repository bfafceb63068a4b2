//! The registry of a cluster that has nothing but its file.

use crate::{
    CoordinationRegistry, EntryLifetime, OnRegistryChange, RegistrySnapshot, RegistryUnreachable,
};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A registry that this process alone writes on: what its cluster's file says is on it.
pub struct FileRegistry {
    known: Mutex<RegistrySnapshot>,
    on_change: OnRegistryChange,
}

impl FileRegistry {
    /// A registry with these entries.
    pub fn new(entries: BTreeMap<String, String>, on_change: OnRegistryChange) -> Self {
        Self { known: Mutex::new(RegistrySnapshot { entries, is_current: true }), on_change }
    }

    fn lock(&self) -> MutexGuard<'_, RegistrySnapshot> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CoordinationRegistry for FileRegistry {
    fn publish(&self, key: &str, value: Option<&str>, _: EntryLifetime) {
        let mut known = self.lock();
        let before = match value {
            Some(value) => known.entries.insert(key.to_string(), value.to_string()),
            None => known.entries.remove(key),
        };
        if before.as_deref() != value {
            let now = known.clone();
            drop(known);
            (self.on_change)(&now);
        }
    }

    fn withdraw(&self, _key: &str) {}

    fn snapshot(&self) -> RegistrySnapshot {
        self.lock().clone()
    }

    fn claim(
        &self,
        key: &str,
        before: Option<&str>,
        value: &str,
    ) -> Result<String, RegistryUnreachable> {
        let stands = self.lock().entries.get(key).cloned();
        if stands.as_deref() != before {
            return Ok(stands.unwrap_or_default());
        }
        self.publish(key, Some(value), EntryLifetime::Permanent);
        Ok(value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn what_is_said_is_known_and_told_once() {
        let told = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&told);
        let on_change: OnRegistryChange =
            Box::new(move |_| _ = counts.fetch_add(1, Ordering::Relaxed));
        let entries = [("nodes/n0".to_string(), "here".to_string())].into();
        let registry = FileRegistry::new(entries, on_change);
        for _ in 0..2 {
            registry.publish("nodes/n1", Some("there"), EntryLifetime::Permanent);
        }
        assert_eq!(told.load(Ordering::Relaxed), 1);
        let known = registry.snapshot();
        assert_eq!(known.under("nodes").collect::<Vec<_>>(), [("n0", "here"), ("n1", "there")]);
        assert_eq!(known.under("node").count(), 0);
        assert_eq!(registry.claim("map", None, "3"), Ok("3".to_string()));
        assert_eq!(registry.claim("map", None, "4"), Ok("3".to_string()), "somebody was first");
        assert_eq!(registry.claim("map", Some("3"), "4"), Ok("4".to_string()));
    }
}
