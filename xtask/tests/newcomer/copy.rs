//! A copy of the repository in a directory of its own, with what is built of other packages linked into it.

use amcast_test_policy::PROTOCOL;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xtask::source;

/// Directories that are not copied: results of builds, and git's own.
const LEFT_OUT: [&str; 3] = [".git", "target", "node_modules"];

/// The files of `deps` that are linked: compilers replace them, and do not write into them.
const LINKED: [&str; 3] = ["rlib", "rmeta", "so"];

/// The copy; it is removed at the end.
pub(crate) struct Copy {
    root: PathBuf,
}

impl Drop for Copy {
    fn drop(&mut self) {
        // A copy that cannot be removed remains in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Copy {
    /// Panics where there is no room for it.
    pub(crate) fn of_the_repository() -> Self {
        let target = target();
        let root = target.join(format!("newcomer-{}", std::process::id()));
        let copy = Self { root };
        // The first entry may be a file.
        fs::create_dir_all(&copy.root).expect("there is room");
        for entry in fs::read_dir(source::root()).expect("the root is there") {
            let entry = entry.expect("it can be listed");
            let name = entry.file_name();
            if !LEFT_OUT.iter().any(|out| name == *out) {
                take(&entry.path(), &copy.root.join(&name), &|_| true).expect("there is room");
            }
        }
        // A build finds other packages as they are: nothing but what depends on the catalog is built again.
        let (from, to) = (target.join("debug"), copy.target().join("debug"));
        for dir in ["build", ".fingerprint"] {
            take(&from.join(dir), &to.join(dir), &|_| true).expect("there is room");
        }
        let built = |path: &Path| {
            let end = path.extension().unwrap_or_default();
            LINKED.iter().any(|kind| end == *kind) || end == "d"
        };
        take(&from.join("deps"), &to.join("deps"), &built).expect("there is room");
        copy
    }

    fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    /// The text of a file.
    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).expect("it was copied")
    }

    /// Writes a file anew, with its folders.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("it can be made");
        fs::write(path, text).expect("there is room");
    }

    /// Removes a folder.
    pub(crate) fn remove(&self, path: &str) {
        fs::remove_dir_all(self.root.join(path)).expect("it was copied");
    }

    /// Runs cargo in the copy, for the newcomer alone where a suite goes through the catalog; what it prints. Panics
    /// if it fails.
    pub(crate) fn cargo(&self, args: &[&str]) -> String {
        let mut cargo = Command::new("cargo");
        cargo.args(args).env(PROTOCOL, "sequencer").env("CARGO_INCREMENTAL", "0");
        self.says(cargo, &format!("cargo {}", args.join(" ")), 0)
    }

    /// Runs the program that the copy builds; what it prints, and says of errors. Panics if it ends otherwise.
    pub(crate) fn amcast(&self, args: &[&str], code: i32) -> String {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["run", "--quiet", "--package", "amcast-cli", "--bin", "amcast", "--"])
            .args(args);
        cargo.env("CARGO_INCREMENTAL", "0");
        self.says(cargo, &format!("amcast {}", args.join(" ")), code)
    }

    fn says(&self, mut command: Command, what: &str, code: i32) -> String {
        eprintln!("newcomer: {what}");
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", self.target());
        // The variables that the outer cargo sets for its tests would rebuild everything.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "AMCAST_"];
            if of_package.iter().any(|start| name.starts_with(start)) && name != PROTOCOL {
                command.env_remove(&name);
            }
        }
        let output = command.stdin(Stdio::null()).output().expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let says = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{what}\n{says}");
        says
    }
}

/// Where the tests that run were built.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("it has a path");
    let debug = program.ancestors().find(|dir| dir.ends_with("debug"));
    debug.and_then(Path::parent).expect("tests are built in a target directory").to_path_buf()
}

/// Copies a file, or what is in a directory and wanted, with the times of changes. Files that compilers replace are
/// linked.
fn take(from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            take(&entry.path(), &to.join(entry.file_name()), wanted)?;
        }
        return Ok(());
    }
    if !wanted(from) {
        return Ok(());
    }
    let end = from.extension().unwrap_or_default();
    let in_deps = from.parent().is_some_and(|dir| dir.ends_with("deps"));
    if in_deps && LINKED.iter().any(|kind| end == *kind) {
        return fs::hard_link(from, to);
    }
    fs::copy(from, to)?;
    let changed = fs::metadata(from)?.modified()?;
    fs::File::options().append(true).open(to)?.set_modified(changed)
}
