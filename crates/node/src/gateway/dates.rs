//! Dates of answers over HTTP.
//!
//! The HTTP library writes the date into answers, and panics where the host's clock is before the year 1970 or after 9999;
//! over HTTP/1 it does so even if it was configured to write none. Such a clock is wrong, and serving clients does not depend on
//! it: gateways see to it that the library is not asked for that date.

use std::time::{SystemTime, UNIX_EPOCH};

/// The first second of the year 10000, since 1970.
const YEAR_10000: u64 = 253_402_300_800;

/// A second that may pass until the date is written.
const SOON: u64 = 1;

/// Whether the library can write this date into an answer.
pub(super) fn is_writable(now: SystemTime) -> bool {
    now.duration_since(UNIX_EPOCH).is_ok_and(|since| since.as_secs() + SOON < YEAR_10000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_from_1970_to_9999_can_be_written() {
        assert!(is_writable(UNIX_EPOCH) && is_writable(SystemTime::now()));
        assert!(!is_writable(UNIX_EPOCH - Duration::from_nanos(1)));
        let end = UNIX_EPOCH + Duration::from_secs(YEAR_10000);
        assert!(is_writable(end - Duration::from_secs(2)) && !is_writable(end));
    }
}
