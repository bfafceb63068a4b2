//! Licences of everything that is built in: only ones that ask for no more than attribution.
//!
//! Where `cargo-deny` is installed it is asked, with `deny.toml`. Elsewhere this walk over `cargo
//! metadata` does the same with the same list, so that a clean checkout needs nothing installed.

use crate::source;
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Looks at the licence of every package in the lock file.
///
/// # Errors
/// The packages whose licence is not on the list of `deny.toml`, or what went wrong.
pub fn check() -> Result<String, String> {
    if Command::new("cargo").args(["deny", "--version"]).output().is_ok_and(|o| o.status.success())
    {
        let status = Command::new("cargo").args(["deny", "check", "licenses"]).status();
        return match status {
            Ok(status) if status.success() => Ok("licences: cargo-deny agrees".into()),
            _ => Err("cargo deny check licenses failed".into()),
        };
    }
    let allowed = allowed()?;
    let answer = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(source::root())
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !answer.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&answer.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&answer.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let wrong: Vec<String> = packages.iter().filter_map(|p| refused(p, &allowed)).collect();
    if wrong.is_empty() {
        return Ok(format!("licences: {} packages, all allowed", packages.len()));
    }
    Err(format!("licences that deny.toml does not allow:\n  {}", wrong.join("\n  ")))
}

/// The list of allowed licences, from `deny.toml`.
fn allowed() -> Result<Vec<String>, String> {
    let path = source::root().join("deny.toml");
    let text = fs::read_to_string(&path).map_err(|e| format!("deny.toml: {e}"))?;
    let table: toml::Table = text.parse().map_err(|e| format!("deny.toml: {e}"))?;
    let list = table.get("licenses").and_then(|l| l.get("allow")).and_then(toml::Value::as_array);
    let names = list.into_iter().flatten().filter_map(|n| n.as_str().map(str::to_string));
    let names: Vec<String> = names.collect();
    if names.is_empty() { Err("deny.toml allows no licence".into()) } else { Ok(names) }
}

fn refused(package: &Value, allowed: &[String]) -> Option<String> {
    let name = package["name"].as_str().unwrap_or("?");
    match package["license"].as_str() {
        Some(licence) if allows(licence, allowed) => None,
        Some(licence) => Some(format!("{name}: {licence}")),
        None => Some(format!("{name}: states no licence")),
    }
}

/// Whether an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0` can be met from the list.
fn allows(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any(&tokens, &mut at, allowed) && at == tokens.len()
}

fn any(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = all(tokens, at, allowed);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        // Both sides are read to their end, even if the first one is met.
        met |= all(tokens, at, allowed);
    }
    met
}

fn all(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = one(tokens, at, allowed);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(tokens, at, allowed);
    }
    met
}

fn one(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(&token) = tokens.get(*at) else { return false };
    *at += 1;
    if token == "(" {
        let met = any(tokens, at, allowed);
        *at += 1;
        return met;
    }
    let mut name = token.to_string();
    if tokens.get(*at) == Some(&"WITH") {
        name = format!("{token} WITH {}", tokens.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    allowed.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_from_the_list() {
        let list = ["MIT", "Apache-2.0", "Unicode-3.0"].map(String::from);
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
        ] {
            assert!(allows(good, &list), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "", "Apache-2.0 WITH LLVM-exception", "(MIT"] {
            assert!(!allows(bad, &list), "{bad}");
        }
    }

    #[test]
    fn a_package_that_states_nothing_is_refused() {
        let package: Value = serde_json::from_str("{\"name\": \"x\", \"license\": null}").unwrap();
        assert!(refused(&package, &["MIT".to_string()]).is_some());
    }
}
