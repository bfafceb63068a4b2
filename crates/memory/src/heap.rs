//! Returning freed memory to the system.
#![allow(unsafe_code)]

/// Gives back to the system what the process has freed. The allocator keeps it for later, as a rule, which
/// is right but after much was freed that will not be needed soon. Where the allocator is not that of GNU,
/// nothing happens.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, by any thread, and changes nothing that anyone can see.
    let _any = unsafe { libc::malloc_trim(0) };
}
