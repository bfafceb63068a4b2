//! The flags of `amcast up` against the settings that are declared.

use super::*;
use amcast_node::config::settings::SETTINGS;
use std::collections::BTreeSet;

/// Flags that set no key of the file by themselves, or several.
const OTHER_FLAGS: [&str; 6] = ["config", "set", "storage", "redis-port", "log-port", "http-port"];

/// Flags whose value is not that of the key: a file to read, a directory that is looked at, or the contrary.
const INDIRECT: [&str; 5] = ["data", "log-dir", "record", "password-file", "no-node-fronts"];

#[test]
fn each_flag_sets_the_key_that_it_is_declared_with() {
    let _limit = amcast_test_policy::time_limit();
    let command = || <UpArgs as clap::Args>::augment_args(clap::Command::new("up"));
    let built = command();
    let flags: BTreeSet<&str> = built.get_arguments().filter_map(clap::Arg::get_long).collect();
    let declared = SETTINGS.iter().filter_map(|setting| Some(setting.flag?.name));
    assert_eq!(declared.chain(OTHER_FLAGS).collect::<BTreeSet<_>>(), flags);
    for setting in SETTINGS {
        let name = setting.flag.map(|flag| flag.name);
        let Some(flag) = name.filter(|name| !INDIRECT.contains(name)) else { continue };
        let value = setting.other.trim_matches(['[', ']']).trim_matches('"');
        let given = command().get_matches_from(["up", &format!("--{flag}={value}")]);
        let args = <UpArgs as clap::FromArgMatches>::from_arg_matches(&given).unwrap();
        let dir = std::env::temp_dir().join(format!("amcast-flag-{}", std::process::id()));
        std::fs::write(&dir, format!("{} = {}\n", setting.key, setting.other)).unwrap();
        let file = ClusterFile::read(&dir);
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(args.file(None).unwrap(), file.unwrap(), "--{flag}");
    }
}
