//! How a cluster's nodes find each other through etcd, as written in its file.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where etcd is, and how it lets nodes in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdSettings {
    /// Its servers: `http://10.0.0.9:2379`, or `https://` with `ca`.
    pub endpoints: Vec<String>,
    /// The folder that its keys are in; the cluster's number follows.
    #[serde(default = "usual_prefix")]
    pub prefix: String,
    /// The certificate authority of its servers' certificates: a PEM file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The certificate of the node, if etcd asks for one: a PEM file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Its key: a PEM file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The user that nodes are to etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A file whose first line is that user's password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// How long after its last message a node counts as dead for readers of etcd, in seconds. Nodes
    /// detect each other's failure much sooner.
    #[serde(default = "usual_lease_s")]
    pub lease_s: u64,
}

fn usual_prefix() -> String {
    "/amcast".to_string()
}

const fn usual_lease_s() -> u64 {
    5
}

impl EtcdSettings {
    /// Checks that the settings are consistent.
    pub(super) fn check(&self) -> Result<(), String> {
        let wrong = |why: &str| Err(format!("etcd.{why}"));
        if self.endpoints.is_empty() {
            return wrong("endpoints is empty: give one, such as [\"http://10.0.0.9:2379\"]");
        }
        if !self.prefix.starts_with('/') || self.prefix.ends_with('/') {
            return wrong("prefix: begin it with / and do not end it so, such as /amcast");
        }
        if self.cert.is_some() != self.key.is_some() {
            return wrong("cert and etcd.key: give both, or none");
        }
        if self.cert.is_some() && self.ca.is_none() {
            return wrong("cert: give etcd.ca, too");
        }
        if self.user.is_some() != self.password_file.is_some() {
            return wrong("user and etcd.password_file: give both, or none");
        }
        if !(1..=3600).contains(&self.lease_s) {
            return wrong("lease_s: give 1 to 3600 seconds");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together_is_named() {
        let read = |text: &str| -> Result<(), String> {
            let endpoints = "endpoints = [\"http://h:2379\"]\n";
            let etcd: EtcdSettings =
                toml::from_str(&format!("{endpoints}{text}")).map_err(|e| e.to_string())?;
            etcd.check()
        };
        assert_eq!(read(""), Ok(()));
        for (text, says) in [
            ("endpoint = 1", "unknown field `endpoint`"),
            ("prefix = \"amcast\"", "etcd.prefix: begin it with /"),
            ("cert = \"x\"", "etcd.cert and etcd.key: give both"),
            ("cert = \"x\"\nkey = \"y\"", "etcd.cert: give etcd.ca"),
            ("user = \"x\"", "etcd.user and etcd.password_file: give both"),
            ("lease_s = 0", "etcd.lease_s: give 1 to 3600"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
    }
}
