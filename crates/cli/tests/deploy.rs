//! The files in `deploy/` are of use as they are.

use amcast_test_policy::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

#[test]
fn the_clusters_file_is_right() {
    let _limit = amcast_test_policy::time_limit();
    let file = deploy("cluster.toml");
    let checked = Command::new(env!("CARGO_BIN_EXE_amcast"))
        .args(["config", "check"])
        .arg(&file)
        .output()
        .expect("it starts");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let said = String::from_utf8_lossy(&checked.stdout);
    let number = said.lines().find_map(|line| line.strip_prefix("decides: "));
    let number = number.and_then(|rest| rest.split(',').next());
    assert!(number.is_some_and(|n| u64::from_str_radix(n, 16).is_ok() && n.len() == 16), "{said}");
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit() {
    let _limit = amcast_test_policy::time_limit();
    let dir = std::env::temp_dir().join(format!("amcast-unit-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let unit = std::fs::read_to_string(deploy("amcast@.service")).unwrap();
    // The program need not be installed here.
    let installed = "ExecStart=/usr/local/bin/amcast";
    assert!(unit.contains(installed));
    let unit = unit.replace(installed, concat!("ExecStart=", env!("CARGO_BIN_EXE_amcast")));
    let path = dir.join("amcast@n0.service");
    std::fs::write(&path, unit).unwrap();
    let found = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output();
    std::fs::remove_dir_all(&dir).unwrap();
    match found {
        Err(e) => skip(
            "systemd_finds_nothing_wrong_with_the_unit",
            format_args!("systemd-analyze does not start: {e}"),
        ),
        Ok(found) => {
            let said = String::from_utf8_lossy(&found.stderr).into_owned();
            assert!(found.status.success() && !said.contains("amcast@n0"), "{said}");
        }
    }
}
