//! The owners of the files, their permissions, and the separation of clusters.

use super::*;
use amcast_memory::MemoryError;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

const INBOX: RegionId = RegionId(0);
const ID: ClusterId = ClusterId(7);

/// A base directory of the test's own.
struct BaseDir(PathBuf);

impl BaseDir {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("amcast-memory-{}-{name}", process::id()));
        fs::create_dir_all(&path).expect("made");
        Self(path)
    }

    fn cluster(&self) -> PathBuf {
        self.0.join("amcast-0000000000000007")
    }

    fn open(&self) -> Result<Directory, MemoryError> {
        Directory::open(&self.0, ID, 2, 1)
    }
}

impl Drop for BaseDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("removed");
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").permissions().mode() & 0o7777
}

#[test]
fn only_the_owner_may_use_the_files() {
    let _limit = amcast_test_policy::time_limit();
    let base = BaseDir::new("modes");
    let directory = base.open().expect("opened");
    let _carrier = start(&directory, PARENT, &[region(1, CHILD, false)]);
    let _lease = directory.lease(0).expect("asked").expect("free");
    assert_eq!(mode(&base.cluster()), 0o700);
    let files: Vec<_> =
        fs::read_dir(base.cluster()).expect("listed").map(|e| e.expect("read").path()).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    assert!(files.iter().all(|path| mode(path) == 0o600), "{files:?}");
}

#[test]
fn a_directory_or_file_that_others_may_use_is_refused() {
    let _limit = amcast_test_policy::time_limit();
    let base = BaseDir::new("exposed");
    drop(base.open().expect("opened"));
    let file = base.cluster().join("directory");
    fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("set");
    assert!(matches!(base.open(), Err(MemoryError::Exposed { path, mode: 0o640 }) if path == file));
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("set");
    fs::set_permissions(base.cluster(), Permissions::from_mode(0o755)).expect("set");
    assert!(matches!(base.open(), Err(MemoryError::Exposed { mode: 0o755, .. })));
}

#[test]
fn links_laid_in_the_way_are_refused() {
    let _limit = amcast_test_policy::time_limit();
    let base = BaseDir::new("links");
    let elsewhere = base.0.join("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    fs::set_permissions(&elsewhere, Permissions::from_mode(0o700)).expect("set");
    symlink(&elsewhere, base.cluster()).expect("linked");
    assert!(matches!(base.open(), Err(MemoryError::NotPlain { .. })), "the directory");
    fs::remove_file(base.cluster()).expect("removed");
    drop(base.open().expect("opened"));
    let file = base.cluster().join("directory");
    fs::rename(&file, elsewhere.join("directory")).expect("moved");
    symlink(elsewhere.join("directory"), &file).expect("linked");
    assert!(matches!(base.open(), Err(MemoryError::NotPlain { .. })), "a file in it");
}

#[test]
fn what_belongs_to_someone_else_is_refused() {
    let _limit = amcast_test_policy::time_limit();
    let base = BaseDir::new("owner");
    drop(base.open().expect("opened"));
    let us = rustix::process::geteuid().as_raw();
    if us != 0 {
        // Only root can give a directory away; for others there is nothing to be refused.
        assert!(chown(base.cluster(), Some(us + 1), None).is_err());
        return;
    }
    chown(base.cluster(), Some(12_345), None).expect("given away");
    assert!(matches!(base.open(), Err(MemoryError::NotOurs { owner_uid: 12_345, our_uid: 0, .. })));
}

#[test]
fn a_place_that_does_not_exist_is_named() {
    let _limit = amcast_test_policy::time_limit();
    let missing = Path::new("/nonexistent/base");
    let error = Directory::open(missing, ID, 2, 1).expect_err("not there");
    assert!(error.to_string().contains("/nonexistent/base/amcast-"), "{error}");
}

#[test]
fn too_little_space_is_an_error_that_says_how_much_is_needed() {
    let _limit = amcast_test_policy::time_limit();
    let base = BaseDir::new("space");
    let directory = base.open().expect("opened");
    let specs: Vec<_> = (0..3).map(|_| region(u32::MAX, CHILD, false)).collect();
    let needed = 3 * u64::from(u32::MAX) * 64;
    for backing in [amcast_memory::Backing::Reserved, amcast_memory::Backing::Sparse] {
        let options = StartOptions { backing, ..StartOptions::default() };
        let error = directory.start(PARENT, &specs, options).expect_err("no room");
        let MemoryError::NoSpace { needed_bytes, free_bytes, .. } = error else {
            panic!("{error}")
        };
        assert!(needed_bytes >= needed && free_bytes < needed_bytes, "{error}");
    }
    let left: Vec<_> = fs::read_dir(base.cluster()).expect("listed").collect();
    assert_eq!(left.len(), 1, "nothing remains: {left:?}");
}

#[test]
fn another_shape_or_another_kind_of_file_is_refused() {
    let _limit = amcast_test_policy::time_limit();
    let base = BaseDir::new("shape");
    drop(base.open().expect("opened"));
    let other = Directory::open(&base.0, ID, 3, 1);
    assert!(matches!(other, Err(MemoryError::Shape { found: [7, 2, 1], expected: [7, 3, 1], .. })));
    let file = base.cluster().join("directory");
    let mut bytes = fs::read(&file).expect("read");
    bytes[8] = 99;
    fs::write(&file, &bytes).expect("written");
    assert!(matches!(base.open(), Err(MemoryError::Version { found: 99, .. })));
    bytes[0] = b'x';
    fs::write(&file, &bytes).expect("written");
    assert!(matches!(base.open(), Err(MemoryError::Corrupt { .. })));
}

#[test]
fn a_directory_whose_maker_died_half_way_is_made_anew() {
    let _limit = amcast_test_policy::time_limit();
    let base = BaseDir::new("half");
    for length in [0_u64, 64, 6 * 64] {
        drop(base.open().expect("opened"));
        let file = base.cluster().join("directory");
        fs::write(&file, vec![0; length as usize]).expect("written");
        let directory = base.open().expect("made anew");
        start(&directory, PARENT, &[]).stop().expect("works");
    }
}

#[test]
fn two_clusters_on_one_machine_keep_apart() {
    let _limit = amcast_test_policy::time_limit();
    let (one, two) = (PairCluster::new(), PairCluster::new());
    let specs = [region(1, PARENT, false)];
    let mut writers = [start(&one.directory, PARENT, &[]), start(&two.directory, PARENT, &[])];
    let owners = [start(&one.directory, CHILD, &specs), start(&two.directory, CHILD, &specs)];
    writers[0].post(&[number(CHILD, INBOX, 0, 11, true)]);
    assert_eq!([read(&owners[0], INBOX, 0), read(&owners[1], INBOX, 0)], [11, 0]);
    let [first, second] = writers;
    drop(first);
    let [owner, other] = owners;
    drop(owner);
    drop(one);
    let mut second = second;
    second.post(&[number(CHILD, INBOX, 0, 22, true)]);
    assert_eq!(read(&other, INBOX, 0), 22, "removing one leaves the other");
}

#[test]
fn a_peer_that_cannot_be_mapped_for_a_moment_is_out_of_reach_for_no_longer() {
    let _limit = amcast_test_policy::time_limit();
    let base = BaseDir::new("again");
    let directory = base.open().expect("made");
    let owner = start(&directory, CHILD, &[region(1, PARENT, false)]);
    let file = base.cluster().join(format!("p{}.1", CHILD.0));
    let mut carrier = start(&directory, PARENT, &[]);
    let write = |carrier: &mut MappedCarrier| {
        carrier.post(&[number(CHILD, INBOX, 0, 11, false)]);
        carrier.counts().writes
    };
    // As if the system had no map or no memory to spare: it refuses.
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("set");
    assert_eq!((write(&mut carrier), write(&mut carrier)), (0, 0));
    assert!(matches!(carrier.take_fault(), Some(MemoryError::Exposed { .. })));
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("set");
    // A write was lost: no later one may appear before the protocol knows of it (laws 2 and 5).
    let begun = Instant::now();
    let mut told = 0;
    while told == 0 {
        assert!(begun.elapsed() < PATIENCE, "it is never tried again");
        assert_eq!(write(&mut carrier), 0, "a write follows a lost one without a word");
        carrier.begin_round();
        while let Some((_, input)) = carrier.next_input() {
            let fresh = matches!(input, MemoryInput::Fresh { pid: CHILD, incarnation: 0 });
            told += usize::from(fresh);
        }
    }
    assert_eq!((write(&mut carrier), told), (1, 1));
    assert_eq!(read(&owner, INBOX, 0), 11);
    assert!(carrier.take_fault().is_none(), "the failure was reported already");
    drop((carrier, owner));
}

#[test]
fn lines_that_are_not_there_are_refused_and_reported() {
    let _limit = amcast_test_policy::time_limit();
    let cluster = PairCluster::new();
    let owner =
        start(&cluster.directory, CHILD, &[region(2, PARENT, false), region(2, CHILD, false)]);
    let mut carrier = start(&cluster.directory, PARENT, &[]);
    carrier.post(&[
        number(CHILD, RegionId(0), 2, 1, false),
        number(CHILD, RegionId(1), 0, 1, false),
        number(CHILD, RegionId(9), 0, 1, false),
        number(Pid(9), RegionId(0), 0, 1, false),
    ]);
    assert_eq!(
        (carrier.counts().writes, carrier.counts().refused, carrier.counts().lost),
        (0, 3, 1)
    );
    assert!(matches!(
        carrier.take_fault(),
        Some(MemoryError::Refused { pid: CHILD, region: 9, .. })
    ));
    assert!(carrier.take_fault().is_none());
    assert_eq!(read(&owner, RegionId(1), 0), 0, "a region is written by its writer only");
}
