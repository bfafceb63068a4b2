//! Returning freed memory to the system.
#![allow(unsafe_code)]

/// Gives back to the system what the process has freed. The allocator keeps it for later, as a rule, which
/// is right but after much was freed that will not be needed soon. With the feature `mimalloc` it is what the calling thread
/// has, and what threads that ended have left: other threads give theirs back later. Where the allocator is neither
/// that one nor that of GNU, nothing happens.
pub fn give_back_memory() {
    #[cfg(feature = "mimalloc")]
    // SAFETY: it may be called at any time, by any thread, and changes no memory that is in use.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    };
    #[cfg(target_env = "gnu")]
    // SAFETY: as above.
    let _any = unsafe { libc::malloc_trim(0) };
}
