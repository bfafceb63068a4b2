//! The life cycle of directories and of the files in them.

use super::supervised::clear_left_over;
use super::{
    ClusterDir, ClusterDirError, ClusterRegistry, GatewayAddresses, LogLocation, Net,
    SupervisedDir, Transport,
};
use crate::config::ClusterFile;
use crate::log_owner::LogOwner;
use crate::node_address::ClusterKey;
use crate::system::synced;
use amcast_core::{ClusterShape, Durability, Gid, GroupSet};
use amcast_memory::Directory;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

/// Directories of one test, removed when it ends.
struct ClusterTestDirs(PathBuf);

impl ClusterTestDirs {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("amcast-dir-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn registry(&self) -> ClusterRegistry {
        ClusterRegistry::within(self.0.join("registry"))
    }

    fn create(&self, name: &str) -> Result<SupervisedDir, ClusterDirError> {
        SupervisedDir::create(Some(&self.0.join(name)), &mut file(), self.registry())
    }
}

impl Drop for ClusterTestDirs {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn file() -> ClusterFile {
    ClusterFile { shards: 1, replicas: 1, clients: 1, ..ClusterFile::default() }
}

fn memory(own: &SupervisedDir) -> Directory {
    own.dir().memory(ClusterShape::new(1, 1, 1).unwrap()).unwrap()
}

/// A directory of this mode, for any mask of the process.
fn make(path: &Path, mode: u32) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn announce(own: &mut SupervisedDir) {
    let at = || "127.0.0.1:1".to_string();
    own.announce(&GatewayAddresses { redis: at(), log: None, http: at() }).unwrap();
}

#[test]
fn a_directory_made_for_a_cluster_goes_with_it_and_is_nobody_elses_meanwhile() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let own = place.create("a").unwrap();
    assert_eq!(ClusterDir::at(own.dir().path()).unwrap().file().unwrap(), file());
    let second = place.create("a");
    let Err(ClusterDirError::InUse(_, who)) = second else { panic!("{second:?}") };
    assert!(who.contains(&std::process::id().to_string()), "{who}");
    let memory = memory(&own);
    own.remove(&Transport::Memory(memory), false).unwrap();
    assert!(!place.0.join("a").exists());
}

#[test]
fn a_directory_that_was_there_stays_and_so_does_what_someone_put_into_it() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let (mine, made) = (place.0.join("mine"), place.0.join("made"));
    make(&mine, 0o755);
    for (name, path) in [("mine", &mine), ("made", &made)] {
        let mut own = place.create(name).unwrap();
        announce(&mut own);
        own.dir().write_lives(&[]).unwrap();
        if name == "made" {
            fs::write(path.join("notes.txt"), "keep").unwrap();
        }
        let memory = memory(&own);
        own.remove(&Transport::Memory(memory), false).unwrap();
    }
    assert_eq!(fs::read_dir(&mine).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(made.join("notes.txt")).unwrap(), "keep");
    assert_eq!(fs::read_dir(&made).unwrap().count(), 1);
    // With something of a stranger in it a directory is no cluster's.
    let again = place.create("made");
    let Err(ClusterDirError::NotEmpty(_, entry)) = again else { panic!("{again:?}") };
    assert_eq!(entry, "notes.txt");
}

#[test]
fn a_directory_in_which_others_may_write_is_refused_and_left_as_it_was() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    for mode in [0o775, 0o757, 0o1777] {
        let path = place.0.join(format!("{mode:o}"));
        make(&path, mode);
        let refused = SupervisedDir::create(Some(&path), &mut file(), place.registry());
        let Err(ClusterDirError::Exposed(_, said)) = refused else {
            panic!("{mode:o}: {refused:?}")
        };
        assert_eq!(said, mode & 0o777);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }
    make(&place.0.join("strangers"), 0o777);
    let registry = ClusterRegistry::within(place.0.join("strangers"));
    let refused = SupervisedDir::create(Some(&place.0.join("a")), &mut file(), registry);
    assert!(matches!(refused, Err(ClusterDirError::Exposed(..))), "{refused:?}");
    assert!(!place.0.join("a").exists());
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let path = if rustix::process::getuid().is_root() {
        let path = place.0.join("a");
        make(&path, 0o700);
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        path
    } else {
        PathBuf::from("/")
    };
    let refused = SupervisedDir::create(Some(&path), &mut file(), place.registry());
    let Err(ClusterDirError::NotOurs(_, uid)) = refused else { panic!("{refused:?}") };
    assert_eq!(uid, fs::metadata(&path).unwrap().uid());
}

#[test]
fn what_another_user_put_where_everybody_may_write_keeps_no_cluster_from_starting() {
    let _limit = amcast_test_policy::time_limit();
    if !rustix::process::getuid().is_root() {
        return;
    }
    let place = ClusterTestDirs::new();
    let usual = format!("amcast-up-{}", std::process::id());
    for name in ["registry", &usual] {
        make(&place.0.join(name), 0o777);
        std::os::unix::fs::chown(place.0.join(name), Some(12345), None).unwrap();
    }
    let registry = ClusterRegistry::or_within(place.0.join("registry"), place.0.join("spare"));
    let dir = super::supervised::usual_in(&place.0);
    assert_ne!(dir, place.0.join(&usual));
    let mut own = SupervisedDir::create(Some(&dir), &mut file(), registry.clone()).unwrap();
    announce(&mut own);
    let running = registry.running();
    assert_eq!(running.iter().map(ClusterDir::path).collect::<Vec<_>>(), [dir.as_path()]);
    assert_eq!(fs::read_dir(place.0.join("registry")).unwrap().count(), 0);
    assert_eq!(super::supervised::usual_in(&place.0.join("other")).file_name().unwrap(), &*usual);
}

#[test]
fn what_lies_in_a_home_that_others_may_look_into_is_for_its_owner_only() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    make(&place.0.join("a"), 0o755);
    let mut own = place.create("a").unwrap();
    announce(&mut own);
    own.dir().write_lives(&[]).unwrap();
    let memory = memory(&own);
    let entries = fs::read_dir(own.dir().path()).unwrap().map(Result::unwrap);
    let modes: Vec<_> = entries.map(|e| (e.file_name(), e.metadata().unwrap().mode())).collect();
    assert!(modes.len() >= 5, "{modes:?}");
    for (name, mode) in modes {
        assert_eq!(mode & 0o077, 0, "{name:?} has mode {mode:o}");
    }
    own.remove(&Transport::Memory(memory), false).unwrap();
}

#[test]
fn what_a_killed_cluster_left_where_we_choose_the_name_is_cleared_but_not_what_a_stranger_put_there()
 {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    for name in ["amcast-up-1", "amcast-up-2"] {
        let mut own = place.create(name).unwrap();
        announce(&mut own);
        drop(memory(&own));
        fs::write(own.dir().log(0), "a last word").unwrap();
    }
    // It cannot be read any more: all is cleared the same.
    fs::write(place.0.join("amcast-up-2/cluster.toml"), "shards = many").unwrap();
    let strange = [place.0.join("amcast-up-1/notes.txt"), place.0.join("amcast-up-mine/lock")];
    make(&place.0.join("amcast-up-mine"), 0o755);
    strange.iter().for_each(|path| fs::write(path, "keep").unwrap());
    clear_left_over(&place.0);
    assert!(!place.0.join("amcast-up-2").exists());
    assert_eq!(fs::read_dir(place.0.join("amcast-up-1")).unwrap().count(), 1);
    strange.iter().for_each(|path| assert_eq!(fs::read_to_string(path).unwrap(), "keep"));
}

#[test]
fn what_a_killed_supervisor_left_is_taken_over_and_strange_files_in_it_are_kept() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let mut own = place.create("a").unwrap();
    announce(&mut own);
    let path = own.dir().path().to_path_buf();
    drop(memory(&own));
    fs::write(path.join("n0.sock"), "").unwrap();
    fs::write(path.join("notes.txt"), "keep").unwrap();
    // As when it is killed: the lock ends, and the files stay.
    drop(own);
    assert!(path.join("amcast-0000000000000001").exists());
    assert!(!ClusterDir::at(&path).unwrap().is_supervised());
    let own = place.create("a").unwrap();
    assert!(!path.join("n0.sock").exists());
    assert!(own.dir().is_supervised());
    let memory = memory(&own);
    own.remove(&Transport::Memory(memory), false).unwrap();
    assert_eq!(fs::read_to_string(path.join("notes.txt")).unwrap(), "keep");
}

#[test]
fn a_directory_whose_cluster_has_a_process_that_runs_is_not_taken_over() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let own = place.create("a").unwrap();
    let memory = memory(&own);
    let path = own.dir().path().to_path_buf();
    let carrier = memory.start(amcast_core::Pid(0), &[], Default::default()).unwrap();
    drop(own);
    let ends = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        drop(carrier);
    });
    // It waits for the process to end, as the nodes of a killed supervisor do.
    let own = SupervisedDir::create(Some(&path), &mut file(), place.registry()).unwrap();
    ends.join().unwrap();
    let memory = self::memory(&own);
    own.remove(&Transport::Memory(memory), false).unwrap();
}

#[test]
fn many_that_want_one_directory_at_a_time_have_it_one_after_the_other() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let had = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    clear_left_over(&place.0);
                    match place.create("amcast-up-x") {
                        Ok(own) => {
                            had.fetch_add(1, Ordering::Relaxed);
                            assert!(own.dir().is_supervised() && own.dir().file().is_ok());
                            let memory = memory(&own);
                            own.remove(&Transport::Memory(memory), false).unwrap();
                        }
                        Err(ClusterDirError::InUse(..)) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    assert!(had.into_inner() > 0);
}

#[test]
fn a_supervisors_directory_is_known_without_its_lock() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let path = place.0.join("a");
    let tampers: [fn(&Path); 2] =
        [|lock| fs::remove_file(lock).unwrap(), |lock| fs::write(lock, "").unwrap()];
    for tamper in tampers {
        let mut own = place.create("a").unwrap();
        announce(&mut own);
        fs::write(path.join("n0.life"), "7\n").unwrap();
        drop(own);
        tamper(&path.join("lock"));
        let own = place.create("a").unwrap_or_else(|e| panic!("{e}"));
        let memory = memory(&own);
        own.remove(&Transport::Memory(memory), false).unwrap();
    }
}

#[test]
fn the_directory_and_lock_of_a_supervisor_whose_nodes_keep_data_survive_the_end_of_the_machine() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let path = place.0.join("a");
    for durable in [false, true] {
        let mut file = ClusterFile { durable, ..file() };
        let own = SupervisedDir::create(Some(&path), &mut file, place.registry()).unwrap();
        let lock = own.dir().path().join("lock");
        let synced = synced();
        for name in [&lock, &place.0] {
            assert_eq!(synced.contains(name), durable, "{}", name.display());
        }
        drop(own);
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn what_is_no_file_where_a_node_would_open_one_is_refused_by_name() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let path = place.0.join("a");
    let fifo = |path: &Path| {
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    };
    let directory = |path: &Path| fs::create_dir(path).unwrap();
    let device = |path: &Path| std::os::unix::fs::symlink("/dev/zero", path).unwrap();
    let file = |path: &Path| fs::write(path, "").unwrap();
    let in_data = "n1.data/g0/00000000000000000000.segment";
    type Make<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Make<'_>, &str); 13] = [
        ("lock", &fifo, "a FIFO, where the cluster has a file"),
        ("cluster.toml", &fifo, "a FIFO"),
        ("last.ports", &fifo, "a FIFO"),
        ("c0.life", &fifo, "a FIFO"),
        ("n1.log", &fifo, "a FIFO"),
        ("n1.log", &directory, "a directory, where"),
        ("n1.log", &device, "a device"),
        ("n1.life", &fifo, "a FIFO"),
        ("n1.life", &directory, "a directory"),
        ("n1.peers", &fifo, "a FIFO"),
        ("n1.data", &file, "a file, where the cluster has a directory"),
        (in_data, &fifo, "a FIFO"),
        ("n1.data/skipped", &device, "a device"),
    ];
    for (name, make_it, is) in cases {
        make(&path, 0o700);
        fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
        make_it(&path.join(name));
        let told = place.create("a").unwrap_err();
        assert!(told.is_misuse(), "{name}: {told}");
        let told = told.to_string();
        assert!(told.starts_with(&format!("{}: is {is}", path.join(name).display())), "{told}");
        // A node that is started by itself looks at its own.
        let dir = ClusterDir::of_file(&path.join("cluster.toml"));
        let of = |rank| dir.check_files(Some(rank)).is_err();
        assert_eq!((of(0), of(1)), (false, name.starts_with("n1.")), "{name}");
        // A status request does not wait for ever either.
        assert_eq!((dir.last_words(1), dir.is_supervised()), (None, false), "{name}");
        assert_ne!(dir.is_lived(1), Some(true), "{name}");
        fs::remove_dir_all(&path).unwrap();
    }
    // A node's entry of the right kind is accepted, and a foreign entry is ignored.
    make(&path, 0o700);
    fifo(&path.join("pipe"));
    fs::create_dir_all(path.join("n1.data/state")).unwrap();
    fs::write(path.join("n1.data/state/1"), "").unwrap();
    directory(&path.join("n1.differed"));
    fs::write(place.0.join("elsewhere"), "").unwrap();
    std::os::unix::fs::symlink("../elsewhere", path.join("n1.log")).unwrap();
    std::os::unix::net::UnixListener::bind(path.join("n1.in")).unwrap();
    assert!(ClusterDir::of_file(&path.join("cluster.toml")).check_files(None).is_ok());
}

#[test]
fn after_the_newest_cluster_has_stopped_the_older_one_is_found() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let registry = place.registry();
    assert!(matches!(registry.newest(), Err(ClusterDirError::NoneRuns)));
    let [mut old, mut new, mut killed] = ["old", "new", "killed"].map(|n| place.create(n).unwrap());
    for own in [&mut old, &mut new, &mut killed] {
        announce(own);
    }
    drop(killed);
    let (newest, others) = registry.newest().unwrap();
    assert_eq!(newest.path(), new.dir().path());
    assert_eq!(others.len(), 1);
    let gone = memory(&new);
    new.remove(&Transport::Memory(gone.clone()), false).unwrap();
    let (newest, others) = registry.newest().unwrap();
    assert_eq!(newest.path(), old.dir().path());
    assert!(others.is_empty());
    let gone = memory(&old);
    old.remove(&Transport::Memory(gone.clone()), false).unwrap();
    registry.clear();
    assert_eq!(fs::read_dir(place.0.join("registry")).unwrap().count(), 0);
}

#[test]
fn a_directory_that_is_no_cluster_s_is_refused_for_what_it_is() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    fs::create_dir(place.0.join("empty")).unwrap();
    fs::write(place.0.join("file"), "").unwrap();
    fs::create_dir(place.0.join("shut")).unwrap();
    let at = |name: &str| ClusterDir::at(&place.0.join(name)).unwrap_err();
    assert!(matches!(at("none"), ClusterDirError::Missing(_)));
    assert!(matches!(at("empty"), ClusterDirError::NotCluster(_)));
    fs::create_dir_all(place.0.join("without/n1.data")).unwrap();
    assert!(matches!(at("without"), ClusterDirError::NoFile(..)));
    fs::create_dir(place.0.join("begun")).unwrap();
    fs::write(place.0.join("begun/lock"), "amcast up, process 7\n").unwrap();
    assert!(matches!(at("begun"), ClusterDirError::Unmade(_)));
    assert!(matches!(at("file"), ClusterDirError::NotDirectory(_)));
    fs::create_dir(place.0.join("written")).unwrap();
    file().write(&place.0.join("written/cluster.toml")).unwrap();
    for path in ["written", "without"] {
        fs::set_permissions(place.0.join(path), fs::Permissions::from_mode(0o700)).unwrap();
    }
    assert!(matches!(place.create("written"), Err(ClusterDirError::OnlyFile(_))));
    fs::write(place.0.join("written/n0.life"), "1\n").unwrap();
    let of_node = place.create("written").unwrap_err();
    assert!(matches!(of_node, ClusterDirError::OfNodes(..)), "{of_node}");
    assert!(of_node.to_string().contains("amcast node --config FILE --name n0"), "{of_node}");
    assert!(!place.0.join("written/lock").exists(), "nothing is left there");
    assert!(matches!(place.create("file"), Err(ClusterDirError::NotDirectory(_))));
    let long = place.create(&"x".repeat(100));
    assert!(matches!(long, Err(ClusterDirError::TooLong(..))), "{long:?}");
    // Root may enter everywhere.
    if !rustix::process::getuid().is_root() {
        let shut = place.0.join("shut");
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o000)).unwrap();
        assert!(matches!(at("shut"), ClusterDirError::Io(..)));
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn a_directory_is_made_but_not_what_it_would_be_in_and_not_through_a_link_to_nothing() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let refused = place.create("none/a");
    let Err(e @ ClusterDirError::NoParent(_)) = refused else { panic!("{refused:?}") };
    assert!(e.is_misuse() && !place.0.join("none").exists());
    // The kernel says the same of a directory in which nobody can make one.
    let why = super::not_made(Path::new("/proc/x")).to_string();
    assert!(why.contains("no directory can be made there"), "{why}");
    std::os::unix::fs::symlink("nowhere", place.0.join("link")).unwrap();
    let refused = place.create("link");
    assert!(matches!(refused, Err(ClusterDirError::Dangling(_))), "{refused:?}");
    // A link to a directory is as good as the directory.
    make(&place.0.join("nowhere"), 0o700);
    let own = place.create("link").unwrap();
    assert!(own.dir().path().ends_with("nowhere"));
    let memory = memory(&own);
    own.remove(&Transport::Memory(memory), false).unwrap();
}

#[test]
fn of_clusters_that_failed_the_newest_logs_are_kept_and_older_ones_cleared() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    for n in 0..7 {
        let path = place.0.join(format!("amcast-up-{n}"));
        make(&path, 0o700);
        fs::write(path.join("n0.log"), "why it failed").unwrap();
        let age = Duration::from_secs(1000 - 100 * n);
        fs::File::open(&path).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }
    let strange = place.0.join("amcast-up-0/notes.txt");
    fs::write(&strange, "keep").unwrap();
    clear_left_over(&place.0);
    let mut left: Vec<_> = fs::read_dir(&place.0)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    // The one with a stranger's file is none of them, and stays whole.
    assert_eq!(left, [0, 3, 4, 5, 6].map(|n| format!("amcast-up-{n}")));
    assert!(place.0.join("amcast-up-0/n0.log").exists());
}

#[test]
fn why_a_node_ended_is_the_last_line_of_its_log_that_says_so() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let own = place.create("a").unwrap();
    let dir = own.dir().clone();
    assert_eq!(dir.last_words(0), None);
    let text = "amcast n0: an earlier reason\nINFO starts\namcast n0: no room\nINFO and so on\n";
    fs::write(dir.log(0), text).unwrap();
    assert_eq!(dir.last_words(0).as_deref(), Some("no room"));
    fs::write(dir.log(0), "INFO starts\n".repeat(10_000)).unwrap();
    assert_eq!(dir.last_words(0), None);
    let memory = memory(&own);
    own.remove(&Transport::Memory(memory), false).unwrap();
}

#[test]
fn a_cluster_that_needs_more_room_than_there_is_is_told_what_to_do() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let own = place.create("a").unwrap();
    assert!(own.dir().check_room(1).is_ok());
    let full = own.dir().check_room(1 << 60);
    let Err(e @ ClusterDirError::NoRoom { .. }) = full else { panic!("{full:?}") };
    assert!(!e.is_misuse(), "nothing was asked wrongly");
    let said = e.to_string();
    assert!(said.contains("takes 1099511627776 MB") && said.contains("--shm-size"), "{said}");
    let memory = memory(&own);
    own.remove(&Transport::Memory(memory), false).unwrap();
}

/// A file of a durable cluster, of this number.
fn durable(id: u64) -> ClusterFile {
    ClusterFile { durable: true, id: Some(id), ..file() }
}

fn net() -> Transport {
    let mut file = durable(1);
    let at = "127.0.0.1:7400".parse().unwrap();
    file.nodes.insert("n0".to_string(), crate::config::HostPlacement::at(at));
    let config = amcast_core::RawConfig { groups: 1, replicas: 1, ..Default::default() };
    let config = config.check(&[]).unwrap();
    let dir = ClusterDir::of_file(Path::new("/nowhere/cluster.toml"));
    dir.ground(&file, (amcast_core::MediumKind::Messages, &[]), &config).unwrap()
}

#[test]
fn what_a_durable_cluster_keeps_outlasts_it_and_is_gone_on_with_by_itself_alone() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let path = place.0.join("kept");
    let create = |file: &ClusterFile| {
        SupervisedDir::create(Some(&path), &mut file.clone(), place.registry())
    };
    for run in 0..2 {
        // The second time it was killed.
        let own = create(&durable(7)).unwrap();
        fs::create_dir_all(path.join("n0.data/g0")).unwrap();
        fs::write(path.join("n0.life"), "3").unwrap();
        fs::write(path.join("n0.sock"), "").unwrap();
        if run == 0 {
            fs::write(own.dir().log(0), "amcast n0: it ended\n").unwrap();
            let dir = own.dir().clone();
            own.remove(&net(), false).unwrap();
            let mut names: Vec<_> =
                fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, ["cluster.toml", "lock", "n0.data", "n0.life", "n0.log"]);
            assert_eq!(dir.parting_words(0).as_deref(), Some("it ended"));
        } else {
            let said = fs::read_to_string(own.dir().log(0)).unwrap();
            assert!(said.starts_with("amcast n0: it ended\n"), "{said}");
            assert_eq!(own.dir().last_words(0), None, "that was of the run before");
            assert_eq!(own.dir().parting_words(0), None);
        }
    }
    assert_eq!(ClusterDir::kept(&path).unwrap(), Some(durable(7)));
    for other in [durable(8), ClusterFile { shards: 2, ..durable(7) }] {
        let refused = create(&other);
        assert!(matches!(refused, Err(ClusterDirError::Another(..))), "{refused:?}");
    }
    let own = create(&durable(7)).unwrap();
    assert!(path.join("n0.data/g0").exists() && path.join("n0.life").exists());
    assert!(!path.join("n0.sock").exists());
    drop(own);
    fs::remove_file(path.join("cluster.toml")).unwrap();
    let refused = create(&durable(7));
    assert!(matches!(refused, Err(ClusterDirError::NoFile(..))), "{refused:?}");
}

#[test]
fn the_data_of_a_durable_cluster_stay_when_its_file_is_emptied_or_cut() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let path = place.0.join("cut");
    let create = || SupervisedDir::create(Some(&path), &mut durable(7), place.registry());
    create().unwrap().remove(&net(), false).unwrap();
    fs::create_dir_all(path.join("n0.data/g0")).unwrap();
    fs::write(path.join("n0.disk"), "17").unwrap();
    let whole = fs::read_to_string(path.join("cluster.toml")).unwrap();
    for end in 0..whole.len() {
        fs::write(path.join("cluster.toml"), &whole[..end]).unwrap();
        match create() {
            Ok(own) => drop(own),
            Err(ClusterDirError::NoFile(..) | ClusterDirError::Another(..)) => {}
            Err(e) => panic!("{end}: {e}"),
        }
        assert!(path.join("n0.data/g0").exists(), "cut at {end}, the data are gone");
    }
    fs::write(path.join("cluster.toml"), "").unwrap();
    let told = create().unwrap_err().to_string();
    assert!(told.contains("bring it back") && told.contains("emptied"), "{told}");
}

#[test]
fn what_nodes_keep_goes_with_a_cluster_that_is_not_durable() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let own = place.create("gone").unwrap();
    let path = place.0.join("gone");
    fs::create_dir_all(path.join("n0.data/g0")).unwrap();
    assert_eq!(ClusterDir::kept(&path).unwrap(), None);
    own.remove(&net(), false).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_durable_cluster_is_not_cleared_away_with_what_was_left_over() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let path = place.0.join("amcast-up-kept");
    drop(SupervisedDir::create(Some(&path), &mut durable(7), place.registry()).unwrap());
    clear_left_over(&place.0);
    assert_eq!(ClusterDir::kept(&path).unwrap(), Some(durable(7)));
}

#[test]
fn a_node_that_may_have_lived_takes_a_life_that_its_lost_disk_had_not() {
    let _limit = amcast_test_policy::time_limit();
    let mut keeping = LogLocation {
        path: "/nowhere/n0.data".into(),
        begun: "/nowhere/n0.begun".into(),
        holds: false,
        lasts: true,
        lived: false,
        first_life: 0,
        owner: LogOwner::of(1, 1),
    };
    let usual = crate::config::HostPlacement::at(([127, 0, 0, 1], 7400).into());
    let at = |replaced| crate::config::HostPlacement { replaced, ..usual.clone() };
    let net = |replaced| Net::of("/nowhere".into(), ClusterKey::default(), vec![at(replaced)]);
    assert_eq!(net(0).first_life(0, Some(&keeping)), 0);
    // A killed peer may have written few of the lives that it met. The margin ends with the numbers of the disk.
    let last = 0xffff;
    for (known, first) in
        [(last - 9, last), (last - 1, last + 1), (last, last + 2), (0, 256), (7, 263)]
    {
        let known = Some(known);
        keeping.has_lived(known);
        assert_eq!(net(0).first_life(0, Some(&keeping)), first);
    }
    assert_eq!(net(1).first_life(0, Some(&keeping)), 1 << 16, "of a machine that is counted");
    // A working peer may never have met it, or be of a version that remembered no peers.
    keeping.has_lived(None);
    let first = net(0).first_life(0, Some(&keeping));
    assert!((1 << 15..1 << 16).contains(&first), "{first}");
}

#[test]
fn a_node_that_differs_starts_no_more_also_where_the_reason_finds_no_room() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let keeping = LogLocation {
        path: place.0.join("n0.data"),
        begun: place.0.join("n0.begun"),
        holds: false,
        lasts: true,
        lived: false,
        first_life: 0,
        owner: LogOwner::of(1, 0),
    };
    keeping.make().unwrap();
    keeping.check_differs().unwrap();
    // As on a full disk, the words cannot be written.
    let in_the_way = keeping.path.join("differs.new");
    fs::create_dir(&in_the_way).unwrap();
    let told = keeping.is_different("n0 differs".to_string());
    assert!(told.contains("no start continues") && told.contains("n0.data/differs: "), "{told}");
    let refused = keeping.check_differs().unwrap_err();
    assert!(
        refused.contains("could not be written") && refused.contains("n0.differed"),
        "{refused}"
    );
    fs::remove_dir(&in_the_way).unwrap();
    let told = keeping.is_different("n0 differs".to_string());
    let refused = keeping.check_differs().unwrap_err();
    assert!(refused.starts_with(&told), "{refused}");
}

#[test]
fn what_is_of_a_disk_that_was_replaced_is_refused() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let path = place.0.join("n0.life");
    let usual = crate::config::HostPlacement::at(([127, 0, 0, 1], 7400).into());
    let at = |replaced| crate::config::HostPlacement { replaced, ..usual.clone() };
    let net = |replaced| Net::of(place.0.clone(), ClusterKey::default(), vec![at(replaced)]);
    for replaced in 0..3 {
        // A disk that nobody lived on, then one of each number before.
        let now = net(replaced);
        assert_eq!(now.check_disk(0, &place.0.join("none")), Ok(()));
        let refused = now.check_disk(0, &path);
        assert_eq!(refused.is_err(), replaced > 0, "{refused:?}");
        for _ in 0..2 {
            drop(
                crate::incarnation::IncarnationLock::begin(&path, now.first_life(0, None)).unwrap(),
            );
            assert_eq!(now.check_disk(0, &path), Ok(()));
        }
    }
}

#[test]
fn who_begins_anew_has_its_logs_marked_before_it_says_so() {
    let _limit = amcast_test_policy::time_limit();
    let place = ClusterTestDirs::new();
    let data = place.0.join("n0.data");
    let keeping = LogLocation {
        path: data.clone(),
        begun: place.0.join("n0.begun"),
        holds: false,
        lasts: true,
        lived: false,
        first_life: 0,
        owner: LogOwner::of(1, 1),
    };
    let groups: GroupSet = (0..2).map(Gid).collect();
    // A dangling link is in the place of a mark.
    fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink(place.0.join("none/lost"), data.join("g1.lost")).unwrap();
    let (path, _) = keeping.begin_anew(groups).unwrap_err();
    assert_eq!(path, data.join("g1.lost"));
    assert!(!keeping.is_anew() && !keeping.is_begun());
    fs::remove_file(data.join("g1.lost")).unwrap();
    keeping.begin_anew(groups).unwrap();
    assert!(data.join("g0.lost").exists() && data.join("g1.lost").exists());
    assert!(keeping.is_anew() && keeping.is_begun());
}

#[test]
fn what_processes_say_waits_for_the_log_where_they_do_not_await_it_themselves() {
    let _limit = amcast_test_policy::time_limit();
    let dir = ClusterDir::of_file(Path::new("/nowhere/cluster.toml"));
    let holds = |durability| dir.keeping(&file(), durability, 0).map(|keeping| keeping.holds);
    assert_eq!(holds(Durability::Volatile), None, "there is no log");
    assert_eq!(holds(Durability::Written), Some(true));
    assert_eq!(holds(Durability::Synced), Some(false));
}
