//! A client that is not ours: grpcurl, where it is installed. Where not, the test says that it is
//! skipped.

use super::alone;
use crate::harness::UpCluster;
use amcast_test_policy::skip;
use serde_json::Value;
use std::process::Command;

fn grpcurl() -> String {
    std::env::var("AMCAST_GRPCURL").unwrap_or_else(|_| "grpcurl".to_string())
}

/// Calls a method with a JSON request; the response, or the error instead.
fn call(up: &UpCluster, method: &str, request: &str) -> Result<Value, String> {
    let method = format!("amcast.log.v1.Log/{method}");
    let mut command = Command::new(grpcurl());
    command.args(["-plaintext", "-max-time", "10", "-d", request, &up.log, &method]);
    let output = command.output().expect("it was seen to work");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[test]
fn grpcurl_finds_the_service_by_itself_and_uses_it() {
    if !Command::new(grpcurl()).arg("-version").output().is_ok_and(|o| o.status.success()) {
        return skip(
            "grpcurl_finds_the_service_by_itself_and_uses_it",
            "grpcurl is not installed (or name it in AMCAST_GRPCURL)",
        );
    }
    let _alone = alone();
    let up = UpCluster::start(&["--shards", "3"]);
    let listed = Command::new(grpcurl()).args(["-plaintext", &up.log, "list"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("amcast.log.v1.Log"), "{listed}");
    // Values are in base64: "aGk=" is "hi".
    let append = r#"{"log": "a", "value": "aGk=", "session": {"id": "7", "request": "1"}}"#;
    let first = call(&up, "Append", append).unwrap();
    assert_eq!(call(&up, "Append", append).unwrap(), first, "repeated, and there once");
    let both = r#"{"additions": [{"log": "a", "value": "aGk="}, {"log": "b", "value": ""}]}"#;
    let positions = call(&up, "MultiAppend", both).unwrap();
    assert_eq!(positions, serde_json::json!({"positions": ["1", "0"]}));
    let read = call(&up, "Read", r#"{"log": "a"}"#).unwrap();
    assert_eq!(read["values"], serde_json::json!(["aGk=", "aGk="]));
    let why = call(&up, "Read", r#"{"log": "nowhere"}"#).unwrap_err();
    assert!(why.contains("NotFound") && why.contains("no log has this name"), "{why}");
}
