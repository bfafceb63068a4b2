//! Histories of real processes: one file a process, merged by `amcast check DIR`.
//!
//! Lines are buffered and go out when the process is idle or the buffer is full. What a killed
//! process had buffered is lost; such a process then looks as if it had died a little earlier.

use amcast_core::trace::Event;
use amcast_core::{Cluster, GroupSet, Pid, Time};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes held back before a write.
const BUFFER_BYTES: usize = 1 << 18;

/// Writes the history of one operating-system process.
#[derive(Debug)]
pub struct Recorder {
    cluster: Cluster,
    path: PathBuf,
    file: BufWriter<File>,
    dirty: bool,
    failed: bool,
}

impl Recorder {
    /// Begins the file `name.N.jsonl` in `dir`, with N the first number that is free: a process
    /// that starts again writes a new file. The file names the hosted processes first; those that
    /// had a file before say that they recovered.
    ///
    /// # Errors
    /// When the directory or file cannot be made.
    pub fn begin(
        dir: &Path,
        name: &str,
        cluster: Cluster,
        hosted: &[Pid],
        now: Time,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (run, path, file) = first_free(dir, name)?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let mut this = Self { cluster, path, file, dirty: false, failed: false };
        for &p in hosted {
            let groups = cluster.group_of(p).map_or(GroupSet::EMPTY, GroupSet::one);
            match run {
                0 => this.event(&Event::Process { p, groups }),
                _ => this.event(&Event::Recover { t: now, p }),
            }
        }
        Ok(this)
    }

    /// Adds one event.
    pub fn event(&mut self, event: &Event<'_>) {
        let result = writeln!(self.file, "{}", event.json(&self.cluster));
        self.dirty = true;
        self.judge(result);
    }

    /// Writes out what is held back.
    pub fn flush(&mut self) {
        if self.dirty {
            self.dirty = false;
            let result = self.file.flush();
            self.judge(result);
        }
    }

    /// A full disk must not stop the service: the history ends, and the log says so, once.
    fn judge(&mut self, result: io::Result<()>) {
        if let (Err(e), false) = (result, self.failed) {
            self.failed = true;
            tracing::error!("the history {} ends here: {e}", self.path.display());
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.flush();
    }
}

fn first_free(dir: &Path, name: &str) -> io::Result<(u32, PathBuf, File)> {
    let mut run = 0;
    loop {
        let path = dir.join(format!("{name}.{run}.jsonl"));
        match File::create_new(&path) {
            Ok(file) => return Ok((run, path, file)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => run += 1,
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::{Gid, MsgId};

    #[test]
    fn a_second_run_says_that_the_process_recovered() {
        let dir = std::env::temp_dir().join(format!("amcast-record-{}", std::process::id()));
        let cluster = Cluster::new(1, 1, 1).unwrap();
        let p = cluster.replica(Gid(0), 0);
        let m = MsgId { sender: cluster.client(0), seq: 4 };
        let mut first = Recorder::begin(&dir, "n0", cluster, &[p], Time(1)).unwrap();
        first.event(&Event::Deliver { t: Time(2), p, m });
        drop(first);
        drop(Recorder::begin(&dir, "n0", cluster, &[p], Time(3)).unwrap());
        let read = |run| std::fs::read_to_string(dir.join(format!("n0.{run}.jsonl"))).unwrap();
        assert_eq!(
            read(0),
            "{\"ev\":\"process\",\"p\":\"g0/r0\",\"groups\":[\"g0\"]}\n\
             {\"ev\":\"deliver\",\"t\":2,\"p\":\"g0/r0\",\"m\":\"c0:4\"}\n"
        );
        assert_eq!(read(1), "{\"ev\":\"recover\",\"t\":3,\"p\":\"g0/r0\"}\n");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
