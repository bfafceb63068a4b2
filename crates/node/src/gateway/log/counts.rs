//! The counters of a log gateway, for the metrics page.

use amcast_smr::Metric;
use amcast_smr::metrics::{MetricKind, MetricValue, SharedHistogram};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tonic::{Code, Status};

/// The counters of a log gateway since its start.
#[derive(Default)]
pub(crate) struct LogServiceCounts {
    /// Appends that took effect, to one log or several.
    appends: AtomicU64,
    /// Values that they appended.
    values: AtomicU64,
    trims: AtomicU64,
    deletes: AtomicU64,
    reads: AtomicU64,
    /// Requests that found no room, or made no sense.
    refused: AtomicU64,
    /// Requests that were not answered in time.
    unanswered: AtomicU64,
    wrong_passwords: AtomicU64,
    /// How long requests took that were looked at, by method.
    durations: [SharedHistogram; METHODS.len()],
}

/// The methods of the service that answer once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    Append,
    MultiAppend,
    Read,
    Trim,
    Delete,
    Info,
    List,
}

/// Each by its name in the service's description, in the order of their numbers.
const METHODS: [(Method, &str); 7] = [
    (Method::Append, "Append"),
    (Method::MultiAppend, "MultiAppend"),
    (Method::Read, "Read"),
    (Method::Trim, "Trim"),
    (Method::Delete, "Delete"),
    (Method::Info, "Info"),
    (Method::List, "List"),
];

/// A request that is being served, and since when.
pub(crate) struct RequestTimer {
    method: Method,
    begun: Instant,
}

impl Method {
    /// A request of it begins.
    pub(crate) fn begin(self) -> RequestTimer {
        RequestTimer { method: self, begun: Instant::now() }
    }
}

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogRequestKind {
    /// Values appended.
    Append(usize),
    /// Values dropped.
    Trim,
    /// A log taken away.
    Delete,
    /// Something that changes nothing.
    Read,
}

fn more(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}

impl LogServiceCounts {
    /// Counts a request, and gives back how it ended.
    pub(crate) fn note<T>(
        &self,
        timer: RequestTimer,
        asked: LogRequestKind,
        ended: Result<T, Status>,
    ) -> Result<T, Status> {
        let ns = u64::try_from(timer.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.durations[timer.method as usize].observe(ns);
        match ended.as_ref().map_err(Status::code) {
            Ok(_) => match asked {
                LogRequestKind::Append(values) => {
                    more(&self.appends, 1);
                    more(&self.values, values as u64);
                }
                LogRequestKind::Trim => more(&self.trims, 1),
                LogRequestKind::Delete => more(&self.deletes, 1),
                LogRequestKind::Read => more(&self.reads, 1),
            },
            // It asked for what is not there, which is an answer.
            Err(Code::NotFound | Code::OutOfRange) => more(&self.reads, 1),
            Err(Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Internal) => {
                more(&self.unanswered, 1);
            }
            Err(_) => more(&self.refused, 1),
        }
        ended
    }

    /// A wrong password was given; how many there were.
    pub(crate) fn wrong_password(&self) -> u64 {
        self.wrong_passwords.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// All figures, with the number of streams that are open.
    pub(crate) fn counts(&self, streams: usize) -> Vec<Metric> {
        let grown = |name, help, value: &AtomicU64| {
            Metric::counter(name, help, value.load(Ordering::Relaxed))
        };
        let durations = METHODS.iter().filter_map(|(method, name)| {
            let all = self.durations[*method as usize].read();
            (all.count() > 0).then(|| (name.to_string(), MetricValue::Durations(Box::new(all))))
        });
        vec![
            grown("log_appends", "Appends by this gateway that took effect", &self.appends),
            grown("log_values", "Values that they appended", &self.values),
            grown("log_trims", "Trims by this gateway", &self.trims),
            grown("log_deletes", "Logs deleted by this gateway", &self.deletes),
            grown("log_reads", "Reads, looks and lists by this gateway", &self.reads),
            grown("log_refused", "Requests that found no room or made no sense", &self.refused),
            grown("log_unanswered", "Requests without an answer in time", &self.unanswered),
            grown(
                "log_wrong_passwords",
                "Wrong passwords given to this gateway",
                &self.wrong_passwords,
            ),
            Metric::gauge("log_streams", "Streams that are open at this gateway", streams as u64),
            Metric::new(
                "log_request_duration",
                "How long requests of the log took at this gateway, by method",
                MetricKind::Histogram,
            )
            .with_each("method", durations),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_by_how_they_end() {
        let done = LogServiceCounts::default();
        let failed = |why| Err::<(), _>(why);
        assert!(done.note(Method::Append.begin(), LogRequestKind::Append(3), Ok(())).is_ok());
        assert!(done.note(Method::Append.begin(), LogRequestKind::Append(1), Ok(())).is_ok());
        assert!(
            done.note(
                Method::Append.begin(),
                LogRequestKind::Append(9),
                failed(Status::resource_exhausted("full"))
            )
            .is_err()
        );
        assert!(
            done.note(
                Method::Append.begin(),
                LogRequestKind::Append(9),
                failed(Status::deadline_exceeded("late"))
            )
            .is_err()
        );
        assert!(
            done.note(
                Method::Info.begin(),
                LogRequestKind::Read,
                failed(Status::not_found("no log"))
            )
            .is_err()
        );
        assert!(done.note(Method::Trim.begin(), LogRequestKind::Trim, Ok(())).is_ok());
        assert!(done.note(Method::Delete.begin(), LogRequestKind::Delete, Ok(())).is_ok());
        let counts = done.counts(5);
        let of = |name: &str| counts.iter().find(|c| c.name == name).and_then(Metric::count);
        let names =
            ["appends", "values", "trims", "deletes", "reads", "refused", "unanswered", "streams"];
        let values: Vec<_> = names.iter().map(|n| of(&format!("log_{n}")).unwrap()).collect();
        assert_eq!(values, [2, 4, 1, 1, 1, 1, 1, 5]);
        let durations = counts.iter().find(|c| c.name == "log_request_duration").unwrap();
        let by_method = durations.samples.iter().map(|(labels, value)| {
            let MetricValue::Durations(all) = value else { panic!("no histogram: {value:?}") };
            (labels[0].1.as_str(), all.count())
        });
        let by_method: Vec<_> = by_method.collect();
        assert_eq!(by_method, [("Append", 4), ("Trim", 1), ("Delete", 1), ("Info", 1)]);
    }
    #[test]
    fn each_method_has_its_own_durations() {
        assert!(METHODS.iter().enumerate().all(|(at, (method, _))| *method as usize == at));
    }
}
