//! What the operating system says of this process.

use std::fs::read_to_string;

/// Memory of a process in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProcessMemory {
    /// What it has, with what it shares with others.
    pub(crate) resident: u64,
    /// What of that it has for itself.
    pub(crate) own: u64,
}

impl ProcessMemory {
    /// Of this process; none where the system does not tell.
    pub(crate) fn read() -> Option<Self> {
        let statm = read_to_string("/proc/self/statm").ok()?;
        let mut pages = statm.split_ascii_whitespace().skip(1).map_while(|n| n.parse::<u64>().ok());
        let (resident, shared) = (pages.next()?, pages.next()?);
        let page_bytes = rustix::param::page_size() as u64;
        let own = resident.saturating_sub(shared) * page_bytes;
        Some(Self { resident: resident * page_bytes, own })
    }
}

/// Processor time in microseconds, as exact as the system's clock ticks are: 10 ms, mostly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CpuTime {
    /// In the program's code.
    pub(crate) user_us: u64,
    /// In the kernel.
    pub(crate) system_us: u64,
    /// In the code of processes that it started, and that have ended.
    pub(crate) children_user_us: u64,
    /// In the kernel, of the same.
    pub(crate) children_system_us: u64,
}

impl CpuTime {
    /// Of all threads of this process; none where the system does not tell.
    pub(crate) fn of_process() -> Option<Self> {
        Self::parse(&read_to_string("/proc/self/stat").ok()?)
    }

    /// Of its main thread.
    pub(crate) fn of_main_thread() -> Option<Self> {
        let id = std::process::id();
        Self::parse(&read_to_string(format!("/proc/self/task/{id}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name, which is in brackets, may have blanks and brackets in it.
        let (_, rest) = stat.rsplit_once(')')?;
        let ticks = rest.split_ascii_whitespace().skip(11).map_while(|n| n.parse::<u64>().ok());
        let per_second = rustix::param::clock_ticks_per_second();
        let mut us = ticks.map(|ticks| ticks * 1_000_000 / per_second.max(1));
        Some(Self {
            user_us: us.next()?,
            system_us: us.next()?,
            children_user_us: us.next()?,
            children_system_us: us.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second();
        let line = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 5 6 7 8 20 0 4 0 100\n";
        let time = CpuTime::parse(line).unwrap();
        let ticks = [time.user_us, time.system_us, time.children_user_us, time.children_system_us];
        assert_eq!(ticks.map(|us| us / tick_us), [5, 6, 7, 8]);
        assert_eq!(CpuTime::parse("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_memory_and_its_main_thread_took_no_more_time_than_all() {
        let memory = ProcessMemory::read().unwrap();
        assert!(memory.resident >= memory.own && memory.resident > 1 << 20, "{memory:?}");
        let (main, all) = (CpuTime::of_main_thread().unwrap(), CpuTime::of_process().unwrap());
        assert!(main.user_us <= all.user_us && main.system_us <= all.system_us);
    }
}
