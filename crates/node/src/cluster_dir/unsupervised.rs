//! The directory of a host's nodes that nobody supervises: each is started by hand, or by the system.

use super::supervised::SOCKET_PATH_MAX;
use super::{
    ClusterDir, ClusterDirError, LogLocation, STATE, at, check_ours, life_name, not_made,
    write_synced,
};
use crate::config::{ClusterFile, node_name, same};
use crate::control::{NodeStatus, statuses_of};
use crate::disk::DiskRecord;
use crate::system::sync_name_of;
use amcast_core::limits::REPLICAS_MAX;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the word is by which a node's disk is known.
fn disk_name(rank: usize) -> String {
    format!("{}.disk", node_name(rank))
}

impl ClusterDir {
    /// The directory of a host's nodes: the directory that the cluster's file names, or the one that the
    /// file, at `path`, is in.
    pub fn of_host(file: &ClusterFile, path: &Path) -> Self {
        match &file.data {
            Some(data) => Self { path: std::path::absolute(data).unwrap_or_else(|_| data.clone()) },
            None => Self::of_file(path),
        }
    }

    /// Checks that the data of the nodes `ranks` are not where earlier versions of the program had them for the file at
    /// `path`: they saw a relative `data` from the directory in which they were started. Without this check nodes
    /// would begin with nothing here, while acknowledged writes are there.
    ///
    /// # Errors
    /// When the nodes left nothing here and one of them did there, or the file cannot be read.
    pub fn check_not_elsewhere(
        &self,
        file: &ClusterFile,
        path: &Path,
        mut ranks: Range<usize>,
    ) -> Result<(), ClusterDirError> {
        let earlier = ClusterFile::data_of_earlier_versions(path).map_err(ClusterDirError::File)?;
        let Some(there) = earlier.map(|path| Self { path }) else { return Ok(()) };
        if there.path == self.path || !ranks.clone().all(|rank| self.is_fresh(rank)) {
            return Ok(());
        }
        let is_of_another = file.id.is_some() && there.file().is_ok_and(|of| of.id != file.id);
        match ranks.find(|&rank| !there.is_fresh(rank)) {
            Some(rank) if !is_of_another => Err(ClusterDirError::DataElsewhere {
                node: node_name(rank),
                path: self.path.clone(),
                there: there.path,
            }),
            _ => Ok(()),
        }
    }

    /// Makes the directory if need be, and sees to it that this cluster may use it. A missing seed
    /// of hashes is taken over from the file there: the data there were written with it.
    ///
    /// # Errors
    /// When it cannot be made, others may write in it, or it is of another cluster.
    pub fn make_on_host(&self, file: &mut ClusterFile) -> Result<(), ClusterDirError> {
        if file.data.is_none() {
            return Ok(());
        }
        let length = self.path.as_os_str().len();
        if length > SOCKET_PATH_MAX {
            return Err(ClusterDirError::TooLong(self.path.clone(), length - SOCKET_PATH_MAX));
        }
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(not_made(&self.path));
            }
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(at(&self.path)(e)),
            _ if !self.path.is_dir() => {
                return Err(ClusterDirError::NotDirectory(self.path.clone()));
            }
            _ => check_ours(&self.path, 0o022)?,
        }
        if self.file_path().exists() {
            let bad =
                |e: ClusterDirError| ClusterDirError::BadCopy(self.file_path(), e.to_string());
            let before = self.file().map_err(bad)?;
            let mut same = file.clone();
            let checked = same.go_on_from(&before);
            // Correcting a file with which no node ever had its place loses no data.
            let is_first = || same.id == before.id && self.used_nodes().is_empty();
            if let Err(why) = checked
                && !is_first()
            {
                let used = self.used_nodes();
                let only = (same.id == before.id && used.len() == 1).then(|| node_name(used[0]));
                let path = self.path.clone();
                return Err(ClusterDirError::NodesOfAnother { path, why, only });
            }
            file.hash_seed = same.hash_seed;
        }
        Ok(())
    }

    /// The ranks of the nodes that had their place among the others here.
    fn used_nodes(&self) -> Vec<usize> {
        let is_used = |rank: &usize| {
            let has_run = self.path.join(life_name(*rank)).exists();
            has_run && !self.never_worked(*rank)
        };
        (0..REPLICAS_MAX).filter(is_used).collect()
    }

    /// Whether the node `rank` never had its place here, and left no state.
    fn never_worked(&self, rank: usize) -> bool {
        let states = fs::read_dir(self.data(rank).join(STATE));
        let has_state = states.is_ok_and(|mut all| {
            all.any(|entry| entry.is_ok_and(|entry| entry.file_name() != "lock"))
        });
        DiskRecord::of(&self.path, rank).is_joining() && !has_state
    }

    /// Checks that what decides what the node `rank` does is as it was when it had its place here first: its state
    /// came to be by that. It is written down at the first start, and once more as long as the node never had
    /// its place.
    ///
    /// # Errors
    /// When something decides otherwise, which is named, or a file cannot be read or written.
    pub fn keep_decides(
        &self,
        rank: usize,
        now: &[(String, String)],
    ) -> Result<(), ClusterDirError> {
        let path = self.path.join(format!("{}.decides", node_name(rank)));
        let before: Vec<(String, String)> = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|e| ClusterDirError::BadDecides(path.clone(), e.to_string()))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(at(&path)(e)),
        };
        if before == now {
            return Ok(());
        }
        if let Err(why) = same(now, &before)
            && !self.never_worked(rank)
        {
            return Err(ClusterDirError::Decides(node_name(rank), self.path.clone(), why));
        }
        let text = serde_json::to_vec(now).map_err(|e| at(&path)(e.into()))?;
        write_synced(&path, &text).map_err(at(&path))
    }

    /// Prepares it for a node: makes the directory if need be, and puts the cluster's file there,
    /// for tools that get only the directory.
    ///
    /// # Errors
    /// As [`make_on_host`](Self::make_on_host), and when the file cannot be written.
    pub fn prepare_host(&self, file: &mut ClusterFile) -> Result<(), ClusterDirError> {
        self.make_on_host(file)?;
        if file.data.is_none() { Ok(()) } else { self.write_file(file) }
    }

    /// Writes the cluster's file, which nobody ever sees half of.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_file(&self, file: &ClusterFile) -> Result<(), ClusterDirError> {
        // Each under a name of its own: several nodes may start at one time.
        let new = self.path.join(format!("cluster.toml.{}.new", std::process::id()));
        file.write(&new).map_err(ClusterDirError::File)?;
        fs::rename(&new, self.file_path()).map_err(at(&new))?;
        self.sync_names()
    }

    /// Sees to it that the directory, and what was made in it, are there after the end of the machine.
    fn sync_names(&self) -> Result<(), ClusterDirError> {
        let synced = File::open(&self.path).and_then(|dir| dir.sync_all());
        synced.and_then(|()| sync_name_of(&self.path)).map_err(at(&self.path))
    }

    /// The word by which the disk of node `rank` is known, which goes with the disk; none if there is
    /// none yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn disk_word(&self, rank: usize) -> Result<Option<String>, ClusterDirError> {
        let path = self.path.join(disk_name(rank));
        match fs::read_to_string(&path) {
            Ok(word) => Ok(Some(word.trim().to_string()).filter(|word| !word.is_empty())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(at(&path)(e)),
        }
    }

    /// Gives the disk of node `rank` a word that no other has; it is on the disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn give_disk_word(&self, rank: usize) -> Result<String, ClusterDirError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let word = format!("{}.{}", std::process::id(), since.as_nanos());
        let path = self.path.join(disk_name(rank));
        write_synced(&path, word.as_bytes()).map_err(at(&path))?;
        Ok(word)
    }

    /// Whether the node `rank` never ran here, or what it left is gone.
    pub fn is_fresh(&self, rank: usize) -> bool {
        !self.path.join(life_name(rank)).exists() && !self.data(rank).exists()
    }

    /// Whether the node `rank`, whose directory is new, may have lived before on a disk that is gone:
    /// another one knows a life of it, or works or worked already. None where that is not so, or nobody
    /// answers; else who says so, and the latest life that any of them knows.
    pub fn may_have_lived(
        &self,
        file: &ClusterFile,
        rank: usize,
        keeping: &LogLocation,
    ) -> Option<(String, Option<u32>)> {
        // A directory alone says nothing: an earlier start may have ended before its logs were there.
        if keeping.is_begun() {
            return None;
        }
        let mut others = self.nodes(file);
        others.remove(rank);
        let said: Vec<NodeStatus> = statuses_of(&others).into_iter().flatten().collect();
        let known = |node: &NodeStatus| node.peers.get(rank).and_then(|peer| peer.life);
        let works = |node: &&NodeStatus| {
            node.ready || known(node).is_some() || node.replicas.iter().any(|r| r.delivered > 0)
        };
        let who = said.iter().find(works)?;
        Some((who.name.clone(), said.iter().filter_map(known).max()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_stays_as_it_was_once_a_node_had_its_place() {
        let base = std::env::temp_dir().join(format!("amcast-decides-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let dir = ClusterDir { path: base.clone() };
        let item = |name: &str, value: &str| (name.to_string(), value.to_string());
        let (few, many) =
            ([item("shards", "3"), item("mb", "30")], [item("shards", "3"), item("mb", "40")]);
        let joining = base.join("n1.joining");
        fs::write(&joining, "").unwrap();
        for now in [&few, &few, &many] {
            dir.keep_decides(1, now).unwrap();
        }
        fs::remove_file(&joining).unwrap();
        dir.keep_decides(1, &many).unwrap();
        let why = dir.keep_decides(1, &few).unwrap_err();
        assert!(why.is_misuse());
        assert!(
            why.to_string().contains("mb = 30, and what is there was written with 40"),
            "{why}"
        );
        assert!(why.to_string().contains("n1.decides is damaged"), "{why}");
        dir.keep_decides(0, &few).unwrap();
        // It left a state before it had its place.
        fs::write(&joining, "").unwrap();
        fs::create_dir_all(base.join("n1.data/state")).unwrap();
        fs::write(base.join("n1.data/state/lock"), "").unwrap();
        dir.keep_decides(1, &few).unwrap();
        dir.keep_decides(1, &many).unwrap();
        fs::write(base.join("n1.data/state/7"), "").unwrap();
        assert!(dir.keep_decides(1, &few).is_err());
        // A later version of the program may compare more.
        let more = [many.to_vec(), vec![item("new", "1")]].concat();
        dir.keep_decides(1, &more).unwrap();
        assert!(dir.keep_decides(1, &[item("new", "2")]).is_err());
        fs::write(base.join("n1.decides"), "half").unwrap();
        let why = dir.keep_decides(1, &many).unwrap_err().to_string();
        assert!(why.contains("n1.decides") && why.contains("remove it"), "{why}");
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_file_is_corrected_as_long_as_no_node_had_its_place() {
        let base = std::env::temp_dir().join(format!("amcast-typo-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let file = |mb| ClusterFile {
            data: Some(base.join("data")),
            id: Some(7),
            maxmemory_mb: Some(mb),
            ..ClusterFile::default()
        };
        let dir = ClusterDir::of_host(&file(30), Path::new("x"));
        dir.prepare_host(&mut file(30)).unwrap();
        fs::write(base.join("data/n1.life"), "1\n").unwrap();
        fs::write(base.join("data/n1.joining"), "").unwrap();
        dir.prepare_host(&mut file(40)).unwrap();
        assert_eq!(dir.file().unwrap(), file(40));
        fs::remove_file(base.join("data/n1.joining")).unwrap();
        let why = dir.prepare_host(&mut file(30)).unwrap_err().to_string();
        assert!(why.contains("maxmemory_mb = 30, and what is there was written with 40"), "{why}");
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn data_where_earlier_versions_had_them_are_not_passed_over() {
        let base = std::env::temp_dir().join(format!("amcast-moved-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        // Relative, and seen from the directory of this process another directory than from that of the file.
        let name = format!("amcast-moved-data-{}", std::process::id());
        let there = std::path::absolute(&name).unwrap();
        let path = base.join("cluster.toml");
        fs::write(&path, format!("id = 7\ndata = \"{name}\"\n")).unwrap();
        let file = ClusterFile::read(&path).unwrap();
        let dir = ClusterDir::of_host(&file, &path);
        let check = |file| dir.check_not_elsewhere(file, &path, 0..3);
        check(&file).unwrap();
        fs::create_dir_all(&there).unwrap();
        fs::write(there.join("n1.life"), "1\n").unwrap();
        let why = check(&file).unwrap_err();
        let words = why.to_string();
        assert!(why.is_misuse() && words.contains("data of n1"), "{words}");
        for named in [&there, &base.join(&name)] {
            assert!(words.contains(&*named.to_string_lossy()), "{words}");
        }
        dir.check_not_elsewhere(&file, &path, 0..1).unwrap();
        // Another cluster was started in this directory.
        fs::write(there.join("cluster.toml"), "id = 8\n").unwrap();
        check(&file).unwrap();
        fs::write(there.join("cluster.toml"), "id = 7\n").unwrap();
        check(&file).unwrap_err();
        fs::create_dir_all(dir.path().join("n0.data")).unwrap();
        check(&file).unwrap();
        fs::remove_dir_all(&there).unwrap();
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_directory_is_made_for_one_cluster_and_no_other() {
        let base = std::env::temp_dir().join(format!("amcast-host-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let data = Some(base.join("data"));
        let file = ClusterFile { data: data.clone(), id: Some(7), ..ClusterFile::default() };
        let dir = ClusterDir::of_host(&file, Path::new("/etc/amcast/cluster.toml"));
        assert_eq!(dir.path(), base.join("data"));
        let seeded = ClusterFile { hash_seed: Some("0f".repeat(16)), ..file.clone() };
        dir.prepare_host(&mut seeded.clone()).unwrap();
        assert_eq!(dir.file().unwrap(), seeded);
        for _ in 0..2 {
            // A later file that does not say it does not make it forgotten.
            let mut lacks = file.clone();
            dir.prepare_host(&mut lacks).unwrap();
            assert_eq!((dir.file().unwrap(), lacks), (seeded.clone(), seeded.clone()));
        }
        let file = seeded;
        assert_eq!(dir.disk_word(1).unwrap(), None);
        let word = dir.give_disk_word(1).unwrap();
        assert_eq!(dir.disk_word(1).unwrap(), Some(word));
        assert_eq!(dir.disk_word(0).unwrap(), None);
        let mut other = ClusterFile { id: Some(8), ..file.clone() };
        let why = dir.prepare_host(&mut other).unwrap_err();
        assert!(why.is_misuse() && why.to_string().contains("id = 8, and what is there"), "{why}");
        let copy = fs::read(dir.file_path()).unwrap();
        fs::write(dir.file_path(), b"\x1b[31mno file").unwrap();
        let why = dir.prepare_host(&mut file.clone()).unwrap_err().to_string();
        assert!(why.contains("data/cluster.toml") && why.contains("remove it if"), "{why}");
        fs::write(dir.file_path(), copy).unwrap();
        let mut deep = ClusterFile { data: Some(base.join("no/where")), ..file };
        let why = ClusterDir::of_host(&deep, Path::new("x")).prepare_host(&mut deep).unwrap_err();
        assert!(matches!(why, ClusterDirError::NoParent(_)), "{why}");
        fs::remove_dir_all(&base).unwrap();
    }
}
