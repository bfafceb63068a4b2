//! `amcast log read`: the values of a log, a page at a time.
//!
//! All pages are of one log. If that is deleted between two of them, or trimmed up to values that were not read yet, reading
//! fails. A JSON document is whole also then: the values that were read are in it, and the error. A reading that fails
//! before the first page prints nothing.

use super::{Failure, LogPrinter, about, entry};
use amcast_log::proto::{Extent, ReadRequest, ReadResponse};
use amcast_log::{LogError, LogSession};
use tonic::Code;

/// Values of a page, usually.
pub(super) const VALUES_AT_ONCE: u32 = 10_000;

/// How often the first position is asked for, where the log is trimmed before it is read.
const TRIES: u32 = 10;

/// The gateways of a cluster, which answer reads.
pub(super) trait ReadSource {
    /// A page of values.
    fn read(&mut self, asked: ReadRequest) -> Result<ReadResponse, LogError>;

    /// How far a log goes, if it is there.
    fn extent(&mut self, log: &str) -> Result<Option<Extent>, LogError>;
}

impl ReadSource for LogSession {
    fn read(&mut self, asked: ReadRequest) -> Result<ReadResponse, LogError> {
        Self::read(self, asked)
    }

    fn extent(&mut self, log: &str) -> Result<Option<Extent>, LogError> {
        Ok(self.info(&[log])?.first().copied().flatten())
    }
}

/// The values to read.
#[derive(Clone, Copy)]
pub(super) struct ReadRange<'a> {
    pub(super) log: &'a str,
    /// The position of the first one; none for the first that was not trimmed.
    pub(super) from: Option<u64>,
    /// How many at most.
    pub(super) limit: Option<u64>,
}

/// A page of values.
struct ValuePage {
    response: ReadResponse,
    extent: Extent,
}

impl ReadRange<'_> {
    fn page(
        &self,
        source: &mut impl ReadSource,
        from: u64,
        values_max: u64,
    ) -> Result<ValuePage, LogError> {
        let max_values = u32::try_from(values_max).unwrap_or(u32::MAX);
        let asked = ReadRequest { log: self.log.to_string(), from, max_values, max_bytes: 0 };
        let response = source.read(asked)?;
        let extent = response.extent.unwrap_or_default();
        Ok(ValuePage { response, extent })
    }

    fn first(&self, source: &mut impl ReadSource, values_max: u64) -> Result<ValuePage, LogError> {
        if let Some(from) = self.from {
            return self.page(source, from, values_max);
        }
        let mut tries = 1;
        loop {
            let from = source.extent(self.log)?.unwrap_or_default().first;
            match self.page(source, from, values_max) {
                // It was trimmed in between.
                Err(failed) if failed.code == Code::OutOfRange && tries < TRIES => tries += 1,
                page => return page,
            }
        }
    }

    /// A later page, of the log with this incarnation.
    fn later(
        &self,
        source: &mut impl ReadSource,
        from: u64,
        values_max: u64,
        incarnation: u64,
    ) -> Result<ValuePage, LogError> {
        let deleted = || {
            let why = "the log was deleted while it was read; a new one may have its name";
            LogError { code: Code::NotFound, why: why.to_string() }
        };
        let is_same = |now: Option<Extent>| now.is_some_and(|now| now.incarnation == incarnation);
        match self.page(source, from, values_max) {
            Ok(page) if is_same(Some(page.extent)) => Ok(page),
            Ok(_) => Err(deleted()),
            Err(failed) => match failed.code {
                Code::NotFound => Err(deleted()),
                Code::OutOfRange if !is_same(source.extent(self.log)?) => Err(deleted()),
                _ => Err(failed),
            },
        }
    }
}

/// Prints values, in pages of `at_once`.
pub(super) fn read(
    source: &mut impl ReadSource,
    range: ReadRange<'_>,
    at_once: u32,
    out: &mut LogPrinter<'_>,
) -> Result<(), Failure> {
    let (log, limit) = (range.log, range.limit.unwrap_or(u64::MAX));
    let mut page = range.first(source, limit.min(at_once.into())).map_err(about(log))?;
    let (mut position, incarnation) = (page.response.from, page.extent.incarnation);
    // Values appended meanwhile are not awaited: the log might grow faster than it is read.
    let mut left = limit.min(page.extent.next.saturating_sub(position));
    out.begin_values(log)?;
    let mut is_first = true;
    loop {
        let values = &page.response.values;
        for value in values.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            match out.json {
                true => out.element(entry(position, value), is_first)?,
                false => out.value(position, value)?,
            }
            is_first = false;
            position += 1;
            left -= 1;
        }
        if values.is_empty() || left == 0 {
            return out.end_values(&page.extent);
        }
        match range.later(source, position, left.min(at_once.into()), incarnation) {
            Ok(later) => page = later,
            Err(failed) => {
                out.break_values(&failed)?;
                return Err(about(log)(failed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use serde_json::{Value, json};
    use std::collections::VecDeque;

    /// A log that changes before each of its answers.
    struct ChangingLog {
        first: u64,
        values: Vec<Bytes>,
        /// None if it is not there.
        incarnation: Option<u64>,
        changes: VecDeque<LogChange>,
    }

    type LogChange = fn(&mut ChangingLog);

    const NO_CHANGE: LogChange = |_| ();
    const GROWS: LogChange = |log| log.values.push(Bytes::from("later"));
    const IS_TRIMMED: LogChange = |log| log.first += 1;

    impl ChangingLog {
        fn new(values: u64, changes: &[LogChange]) -> Self {
            let values = (0..values).map(|n| Bytes::from(format!("old {n}"))).collect();
            Self {
                first: 0,
                values,
                incarnation: Some(0),
                changes: changes.iter().copied().collect(),
            }
        }

        fn is_made_anew(&mut self) {
            self.values.iter_mut().for_each(|value| *value = Bytes::from("new"));
            (self.first, self.incarnation) = (0, Some(1));
        }

        fn change(&mut self) {
            if let Some(change) = self.changes.pop_front() {
                change(self);
            }
        }

        fn now(&self) -> Option<Extent> {
            let incarnation = self.incarnation?;
            Some(Extent {
                first: self.first,
                next: self.values.len() as u64,
                bytes: 9,
                incarnation,
            })
        }
    }

    impl ReadSource for ChangingLog {
        fn read(&mut self, asked: ReadRequest) -> Result<ReadResponse, LogError> {
            self.change();
            let failed = |code, why: &str| Err(LogError { code, why: why.to_string() });
            let Some(extent) = self.now() else { return failed(Code::NotFound, "not there") };
            if asked.from < self.first {
                return failed(Code::OutOfRange, "it was trimmed");
            }
            let values = self.values.iter().skip(asked.from as usize);
            let values = values.take(asked.max_values as usize).cloned().collect();
            Ok(ReadResponse { from: asked.from, values, extent: Some(extent) })
        }

        fn extent(&mut self, _: &str) -> Result<Option<Extent>, LogError> {
            self.change();
            Ok(self.now())
        }
    }

    /// The output of reading it in pages of two values, and the error.
    fn printed(
        log: &mut ChangingLog,
        from: Option<u64>,
        is_json: bool,
    ) -> (String, Option<String>) {
        let mut to = Vec::new();
        let mut out = LogPrinter { json: is_json, to: &mut to };
        let done = read(log, ReadRange { log: "a", from, limit: None }, 2, &mut out);
        let error = done.err().map(|failure| match failure {
            Failure::Failed(why) => why,
            other => panic!("{other:?}"),
        });
        (String::from_utf8(to).expect("text"), error)
    }

    fn document(log: &mut ChangingLog, from: Option<u64>) -> (Value, Option<String>) {
        let (printed, error) = printed(log, from, true);
        (serde_json::from_str(&printed).expect("one whole document"), error)
    }

    #[test]
    fn all_pages_are_printed_up_to_the_end_that_the_first_one_saw() {
        let mut log = ChangingLog::new(5, &[NO_CHANGE, GROWS, GROWS]);
        let (told, error) = document(&mut log, Some(1));
        let values = [1, 2, 3, 4].map(|n| json!({"position": n, "text": format!("old {n}")}));
        assert_eq!((&told["values"], &told["next"]), (&json!(values), &json!(6)));
        assert_eq!((told.get("error"), error), (None, None));
        let (told, error) = printed(&mut ChangingLog::new(5, &[GROWS]), None, false);
        assert_eq!((told.lines().count(), error), (6, None), "{told}");
    }

    #[test]
    fn a_log_that_is_deleted_between_two_pages_is_not_continued_with_another_one() {
        let is_gone: LogChange = |log| log.incarnation = None;
        let is_another_that_is_trimmed: LogChange = |log| {
            log.is_made_anew();
            log.first = 4;
        };
        for change in [ChangingLog::is_made_anew, is_gone, is_another_that_is_trimmed] {
            let changes = [NO_CHANGE, NO_CHANGE, change];
            let (told, error) = document(&mut ChangingLog::new(6, &changes), None);
            let why = "the log was deleted while it was read; a new one may have its name";
            assert_eq!(error, Some(format!("a: {why}")));
            let values = [0, 1].map(|n| json!({"position": n, "text": format!("old {n}")}));
            assert_eq!(told, json!({"log": "a", "values": values, "error": why}));
            let (told, error) = printed(&mut ChangingLog::new(6, &changes), None, false);
            assert_eq!(told, "0\told 0\n1\told 1\n");
            assert!(error.is_some());
        }
    }

    #[test]
    fn a_trim_in_front_of_the_first_page_is_no_error_unless_a_position_was_named() {
        let changes = [NO_CHANGE, IS_TRIMMED, NO_CHANGE, IS_TRIMMED];
        let (told, error) = document(&mut ChangingLog::new(4, &changes), None);
        assert_eq!((told["values"][0]["position"].as_u64(), error), (Some(2), None));
        let (told, error) = printed(&mut ChangingLog::new(4, &[IS_TRIMMED]), Some(0), true);
        assert_eq!((told.as_str(), error.as_deref()), ("", Some("a: it was trimmed")));
        // One that is trimmed before each read is given up.
        let changes = [NO_CHANGE, IS_TRIMMED].repeat(2 * TRIES as usize);
        let mut log = ChangingLog::new(100, &changes);
        let (told, error) = printed(&mut log, None, true);
        assert_eq!((told.as_str(), error.as_deref()), ("", Some("a: it was trimmed")));
        assert_eq!(log.first, u64::from(TRIES));
    }

    #[test]
    fn a_trim_of_values_between_two_pages_is_an_error_behind_a_whole_document() {
        let is_trimmed_far: LogChange = |log| log.first = 3;
        let changes = [NO_CHANGE, NO_CHANGE, is_trimmed_far];
        let (told, error) = document(&mut ChangingLog::new(4, &changes), None);
        assert_eq!(told["values"].as_array().map(Vec::len), Some(2));
        assert_eq!(told["error"], "it was trimmed");
        assert_eq!(error.as_deref(), Some("a: it was trimmed"));
    }
}
