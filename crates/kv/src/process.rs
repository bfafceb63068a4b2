//! Facts about this process from the operating system.

use procfs::process::{Process, Stat};

/// Memory of a process in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessMemory {
    /// Its resident memory, with shared pages.
    pub resident: u64,
    /// Its resident memory without shared pages.
    pub own: u64,
}

impl ProcessMemory {
    /// Of this process; none where the system does not tell.
    pub fn read() -> Option<Self> {
        let pages = Process::myself().and_then(|process| process.statm()).ok()?;
        let own = pages.resident.saturating_sub(pages.shared) * procfs::page_size();
        Some(Self { resident: pages.resident * procfs::page_size(), own })
    }
}

/// Processor time in microseconds, as exact as the system's clock ticks are: 10 ms, mostly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuTime {
    /// In the program's code.
    pub user_us: u64,
    /// In the kernel.
    pub system_us: u64,
    /// In the code of processes that it started, and that have ended.
    pub children_user_us: u64,
    /// In the kernel, of the same.
    pub children_system_us: u64,
}

impl CpuTime {
    /// Of all threads of this process; none where the system does not tell.
    pub fn of_process() -> Option<Self> {
        let stat = Process::myself().and_then(|process| process.stat());
        stat.ok().map(|stat| Self::of(&stat))
    }

    /// Of its main thread.
    pub fn of_main_thread() -> Option<Self> {
        let thread = Process::myself().and_then(|process| process.task_main_thread());
        thread.and_then(|thread| thread.stat()).ok().map(|stat| Self::of(&stat))
    }

    fn of(stat: &Stat) -> Self {
        let per_second = procfs::ticks_per_second().max(1);
        let us = |ticks: u64| ticks * 1_000_000 / per_second;
        Self {
            user_us: us(stat.utime),
            system_us: us(stat.stime),
            children_user_us: us(stat.cutime.unsigned_abs()),
            children_system_us: us(stat.cstime.unsigned_abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_its_main_thread_took_no_more_time_than_all() {
        let _limit = amcast_test_policy::time_limit();
        let memory = ProcessMemory::read().unwrap();
        assert!(memory.resident >= memory.own && memory.resident > 1 << 20, "{memory:?}");
        let took = |of: CpuTime| of.user_us + of.system_us;
        let before = took(CpuTime::of_process().unwrap());
        // To ask takes time, too.
        while took(CpuTime::of_process().unwrap()) == before {}
        let (main, all) = (CpuTime::of_main_thread().unwrap(), CpuTime::of_process().unwrap());
        assert!(main.user_us <= all.user_us && main.system_us <= all.system_us);
        assert!(took(all) > before && took(all) < before + 600_000_000, "microseconds: {all:?}");
    }
}
