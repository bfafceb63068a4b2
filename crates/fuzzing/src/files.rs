//! Files of people and other programs: cluster files, histories, scenarios, status pages.

use amcast_check::service::Budget;
use amcast_check::{History, Property, check_within};
use amcast_node::config::ClusterFile;
use amcast_node::control::NodeStatus;
use amcast_protocols::catalog;
use amcast_sim::Scenario;

/// A cluster file is refused or is the same after it was written and read again.
pub(crate) fn cluster(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(file) = toml::from_str::<ClusterFile>(text) else { return };
    let written = toml::to_string(&file).expect("a file that was read can be written");
    assert_eq!(toml::from_str::<ClusterFile>(&written).as_ref(), Ok(&file));
    if let Some(entry) = catalog::find(&file.protocol) {
        // Its flaws are reported; building a process of it checks the rest.
        let _ = file.check(entry).map_err(|e| e.to_string());
    }
}

/// The longest history that is judged, in lines.
const LINES_MAX: usize = 200;

/// The lines that make sense are a history, on which every property has a verdict.
pub(crate) fn history(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut history = History::new();
    let mut taken = 0;
    for line in text.lines().take(LINES_MAX) {
        match history.push_line(line) {
            Ok(()) => taken += 1,
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
    assert!(history.lines() >= taken);
    let report = check_within(&history, Property::ALL, Budget { states: 2_000 });
    assert_eq!(report.findings.len(), Property::ALL.len());
    assert!(!report.to_string().is_empty());
}

/// A scenario is read, or refused with the line that is wrong.
pub(crate) fn scenario(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(e) = Scenario::read(text, &catalog::find) {
        assert!(e.line <= text.lines().count() && !e.why.is_empty(), "{e}");
    }
}

/// A status page is refused or is the same after it was written and read again.
pub(crate) fn status(bytes: &[u8]) {
    let Ok(status) = serde_json::from_slice::<NodeStatus>(bytes) else { return };
    let written = serde_json::to_vec(&status).expect("a page that was read can be written");
    assert_eq!(serde_json::from_slice::<NodeStatus>(&written).ok(), Some(status));
}
