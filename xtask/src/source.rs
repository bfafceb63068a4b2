//! The tree of files that the checks look at.

use crate::scan;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const FOREIGN: &[&str] = &["target", "node_modules"];

/// Files that are looked at, by how their names end.
const KINDS: &[&str] =
    &[".rs", ".toml", ".md", ".txt", ".proto", ".yml", ".sh", ".html", "justfile"];

/// A file.
#[derive(Debug)]
pub struct SourceFile {
    /// Its path below the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
    /// For Rust: the text with comments and strings blanked; else empty.
    pub masked: String,
    /// For Rust: what is compiled for tests only.
    test_ranges: Vec<(usize, usize)>,
}

impl SourceFile {
    /// A file of that path and text.
    pub fn new(path: &str, text: String) -> Self {
        let masked = if path.ends_with(".rs") { scan::mask(&text) } else { String::new() };
        let test_ranges = scan::test_ranges(&masked);
        Self { path: path.to_string(), text, masked, test_ranges }
    }

    /// Whether it is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is a manifest.
    pub fn is_manifest(&self) -> bool {
        self.path == "Cargo.toml" || self.path.ends_with("/Cargo.toml")
    }

    /// Whether all of it is there for tests, measurements or as an example.
    pub fn is_test(&self) -> bool {
        let within = |dir: &str| self.path.split('/').any(|part| part == dir);
        within("tests") || within("benches") || within("examples") || self.name() == "tests.rs"
    }

    /// Whether the byte at `at` is for tests only.
    pub fn in_test(&self, at: usize) -> bool {
        self.is_test() || self.test_ranges.iter().any(|&(from, to)| from <= at && at <= to)
    }

    /// The last part of its path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().expect("a split has a last part")
    }

    /// The workspace member it belongs to, as a folder: `crates/core`, `xtask`; empty at the root.
    pub fn member(&self) -> &str {
        let mut slashes = self.path.match_indices('/').map(|(i, _)| i);
        let end = if self.path.starts_with("crates/") { slashes.nth(1) } else { slashes.next() };
        end.map_or("", |end| &self.path[..end])
    }

    /// The place of the byte at `at`, for people.
    pub fn at(&self, at: usize) -> SourceLine {
        SourceLine { path: self.path.clone(), line: scan::line_of(&self.text, at) }
    }

    /// A line of it, for people.
    pub fn line(&self, line: usize) -> SourceLine {
        SourceLine { path: self.path.clone(), line }
    }
}

/// A line of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SourceLine {
    /// The file's path below the root.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, self.line)
    }
}

/// The files of the workspace, in order of their paths.
#[derive(Debug)]
pub struct SourceTree {
    /// All of them.
    pub files: Vec<SourceFile>,
}

impl SourceTree {
    /// The tree below the workspace's root.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read() -> io::Result<Self> {
        let root = root();
        let mut paths = Vec::new();
        walk(&root, &mut paths)?;
        paths.sort();
        let mut files = Vec::new();
        for path in paths {
            let below = path.strip_prefix(&root).expect("walked from the root");
            let below = below.to_string_lossy().replace('\\', "/");
            let text = fs::read_to_string(&path)
                .map_err(|e| io::Error::new(e.kind(), format!("{below}: {e}")))?;
            files.push(SourceFile::new(&below, text));
        }
        Ok(Self { files })
    }

    /// A tree made of samples.
    pub fn of(samples: &[(&str, &str)]) -> Self {
        let files = samples.iter().map(|(path, text)| SourceFile::new(path, (*text).to_string()));
        Self { files: files.collect() }
    }

    /// The Rust files.
    pub fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|f| f.is_rust())
    }

    /// The file of that path.
    pub fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|f| f.path == path)
    }
}

/// The workspace's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the workspace").to_path_buf()
}

fn walk(dir: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            let foreign = FOREIGN.contains(&name.as_ref()) || name.starts_with("target-");
            // `.ci` and the like are ours; what git and editors keep is not text.
            if !foreign && (name == ".ci" || name == ".cargo" || !name.starts_with('.')) {
                walk(&entry.path(), into)?;
            }
        } else if KINDS.iter().any(|kind| name.ends_with(kind)) {
            into.push(entry.path());
        }
    }
    Ok(())
}
