//! Known advisories about the packages in `Cargo.lock`, where a database of them is at hand.
//!
//! The database is a checkout of <https://github.com/RustSec/advisory-db>: `AMCAST_ADVISORY_DB`, or
//! where cargo-audit and cargo-deny keep theirs. It is read here, so that a machine needs nothing
//! installed; where there is none, cargo-deny or cargo-audit fetch one if they are installed. Where
//! there is neither, a line says that nothing was checked: a build must not need a network for it.

use crate::source;
use semver::{Version, VersionReq};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable with the path of a database.
const DATABASE: &str = "AMCAST_ADVISORY_DB";

/// The registry whose packages the advisories are about.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// An advisory about one package.
#[derive(Debug)]
struct Advisory {
    id: String,
    package: String,
    date: String,
    /// Why it is no vulnerability, if it is none: `unmaintained`, `unsound`, `notice`.
    informational: Option<String>,
    is_withdrawn: bool,
    /// Versions that have the fault no longer, or never had it.
    sound: Vec<VersionReq>,
}

/// The findings of the advisories about the packages of a lock file.
#[derive(Debug, Default)]
pub struct Findings {
    /// Advisories that were read.
    pub advisories: usize,
    /// The latest date of an advisory, as `2026-01-31`: how old the database is.
    pub newest: String,
    /// Packages that were looked up.
    pub packages: usize,
    /// Vulnerabilities of packages in the lock file: they fail the check.
    pub vulnerable: Vec<String>,
    /// Other remarks about packages in the lock file: that they are unmaintained, or unsound.
    pub notices: Vec<String>,
}

/// Checks the lock file of this workspace; what was found, or why nothing was checked.
///
/// # Errors
/// The packages that are vulnerable, and what cannot be read.
pub fn check() -> Result<String, String> {
    if let Some(database) = database()? {
        let lock = read(&source::root().join("Cargo.lock"))?;
        let findings = find(&database, &lock, &ignored()?)?;
        return report(&findings, &database);
    }
    for (tool, args) in [("deny", &["check", "advisories"][..]), ("audit", &[])] {
        let asked = Command::new("cargo").args([tool, "--version"]).output();
        if !asked.is_ok_and(|output| output.status.success()) {
            continue;
        }
        let mut command = Command::new("cargo");
        let status = command.arg(tool).args(args).current_dir(source::root()).status();
        return match status {
            Ok(status) if status.success() => Ok(format!("advisories: cargo-{tool} finds none")),
            _ => Err(format!("cargo {tool} {} failed", args.join(" "))),
        };
    }
    Ok(format!(
        "advisories: NOT CHECKED: there is no database (a checkout of RustSec's advisory-db in \
         {DATABASE} or $CARGO_HOME/advisory-db), and neither cargo-deny nor cargo-audit is installed"
    ))
}

/// Where the database is, if there is one.
fn database() -> Result<Option<PathBuf>, String> {
    if let Some(given) = std::env::var_os(DATABASE).map(PathBuf::from) {
        let lies = given.join("crates").is_dir();
        let wrong = || format!("{DATABASE}: {} has no folder `crates`", given.display());
        return if lies { Ok(Some(given)) } else { Err(wrong()) };
    }
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let Some(home) = home else { return Ok(None) };
    // cargo-deny has a folder for each database, named by its address.
    let kept = fs::read_dir(home.join("advisory-dbs")).into_iter().flatten().flatten();
    let mut candidates: Vec<PathBuf> = kept.map(|entry| entry.path()).collect();
    candidates.sort();
    candidates.insert(0, home.join("advisory-db"));
    Ok(candidates.into_iter().find(|path| path.join("crates").is_dir()))
}

/// Looks up every package of `lock` that is from crates.io, but for the advisories that are ignored.
///
/// # Errors
/// When the lock file or an advisory about one of its packages is not in the agreed form.
pub fn find(database: &Path, lock: &str, ignored: &[String]) -> Result<Findings, String> {
    let lock: toml::Table = lock.parse().map_err(|e| format!("Cargo.lock: {e}"))?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let packages = packages.ok_or("Cargo.lock lists no package")?;
    let mut findings = Findings::default();
    for package in packages {
        let text = |key: &str| package.get(key).and_then(toml::Value::as_str);
        let (Some(name), Some(version)) = (text("name"), text("version")) else {
            return Err("Cargo.lock: a package without name or version".into());
        };
        if text("source") != Some(CRATES_IO) {
            continue;
        }
        findings.packages += 1;
        let version = Version::parse(version).map_err(|e| format!("{name} {version}: {e}"))?;
        for advisory in about(database, name)? {
            findings.newest = findings.newest.clone().max(advisory.date.clone());
            let sound = advisory.sound.iter().any(|versions| versions.matches(&version));
            if sound || advisory.is_withdrawn || ignored.contains(&advisory.id) {
                continue;
            }
            let says = format!("{name} {version}: {} ({})", advisory.id, advisory.date);
            match advisory.informational {
                Some(kind) => findings.notices.push(format!("{says}: {kind}")),
                None => findings.vulnerable.push(says),
            }
        }
    }
    findings.advisories = count(&database.join("crates"))?;
    Ok(findings)
}

/// The advisories about a package.
fn about(database: &Path, name: &str) -> Result<Vec<Advisory>, String> {
    let Ok(entries) = fs::read_dir(database.join("crates").join(name)) else {
        return Ok(Vec::new());
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|e| format!("advisories about {name}: {e}"))?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|e| e == "md"));
    paths.sort();
    let parsed = paths.iter().map(|path| {
        let advisory = parse(&read(path)?).map_err(|e| format!("{}: {e}", path.display()))?;
        let same = advisory.package == name;
        if same { Ok(advisory) } else { Err(format!("{}: another package", path.display())) }
    });
    parsed.collect()
}

/// Reads an advisory: TOML between two fences, then text for people.
fn parse(text: &str) -> Result<Advisory, String> {
    let front = text.trim_start().strip_prefix("```toml").and_then(|rest| rest.split_once("```"));
    let (front, _) = front.ok_or("it does not begin with a block of TOML")?;
    let table: toml::Table = front.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let advisory = table.get("advisory").ok_or("it has no [advisory]")?;
    let text = |key: &str| advisory.get(key).and_then(toml::Value::as_str).map(str::to_string);
    let versions = |key: &str| {
        let list = table.get("versions").and_then(|v| v.get(key)).and_then(toml::Value::as_array);
        list.into_iter().flatten().filter_map(toml::Value::as_str)
    };
    let sound = versions("patched").chain(versions("unaffected"));
    let sound = sound.map(|v| VersionReq::parse(v).map_err(|e| format!("`{v}`: {e}")));
    Ok(Advisory {
        id: text("id").ok_or("it has no id")?,
        package: text("package").ok_or("it names no package")?,
        date: text("date").unwrap_or_default(),
        informational: text("informational"),
        is_withdrawn: advisory.get("withdrawn").is_some(),
        sound: sound.collect::<Result<_, _>>()?,
    })
}

/// How many advisories there are: 0 would pass everything, and is an error.
fn count(crates: &Path) -> Result<usize, String> {
    let unreadable = |e: std::io::Error| format!("{}: {e}", crates.display());
    let folders = fs::read_dir(crates).map_err(unreadable)?.flatten();
    let files = folders.filter_map(|folder| fs::read_dir(folder.path()).ok()).flatten().flatten();
    let advisories =
        files.filter(|file| file.path().extension().is_some_and(|e| e == "md")).count();
    if advisories == 0 {
        return Err(format!("{} holds no advisory", crates.display()));
    }
    Ok(advisories)
}

/// The advisories that `deny.toml` has us ignore, each by its id or with its reason.
fn ignored() -> Result<Vec<String>, String> {
    let table: toml::Table = read(&source::root().join("deny.toml"))?
        .parse()
        .map_err(|e: toml::de::Error| format!("deny.toml: {e}"))?;
    let list =
        table.get("advisories").and_then(|a| a.get("ignore")).and_then(toml::Value::as_array);
    let id = |v: &toml::Value| v.as_str().or_else(|| v.get("id")?.as_str()).map(str::to_string);
    Ok(list.into_iter().flatten().filter_map(id).collect())
}

fn report(findings: &Findings, database: &Path) -> Result<String, String> {
    let Findings { advisories, newest, packages, vulnerable, notices } = findings;
    if !vulnerable.is_empty() {
        return Err(format!("packages with a known vulnerability:\n  {}", vulnerable.join("\n  ")));
    }
    let mut text = format!(
        "advisories: {advisories} in {}, none says that any of {packages} packages is vulnerable",
        database.display()
    );
    if !newest.is_empty() {
        text += &format!("; the newest about any of them is of {newest}");
    }
    notices.iter().for_each(|notice| text += &format!("\nadvisories: note: {notice}"));
    Ok(text)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
