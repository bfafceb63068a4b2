//! A recorded run in memory: who was there, what was cast, and what each process did, in order.
//!
//! Everything is a dense number: a delivery takes 16 bytes. Lines come from [`History::push_line`],
//! events of a simulated run from [`History::push_event`]; both end in the same few methods.

use crate::error::Problem;
use crate::intern::{GroupSets, MessageTable, MsgKey, NONE, Names};
use crate::tree::GroupTree;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A process of a history, by its place in the order of declaration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Proc(pub(crate) u32);

/// A message (or call) of a history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Msg(pub(crate) u32);

/// The position of an event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventPosition {
    /// The file, as named by [`History::file`]; empty if none was named.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// A recorded run.
#[derive(Clone, Debug)]
pub struct History {
    pub(crate) names: Names,
    pub(crate) procs: Vec<ProcessHistory>,
    /// The process with a name, by the name's number.
    proc_of_name: Vec<u32>,
    pub(crate) messages: MessageTable,
    pub(crate) casts: Vec<CastRecord>,
    pub(crate) group_names: Names,
    pub(crate) sets: GroupSets,
    /// The tree of groups, as far as the history tells it.
    pub(crate) tree: GroupTree,
    /// Other trees, along which processes took part, each once.
    pub(crate) trees: Vec<GroupTree>,
    pub(crate) calls: Vec<ServiceEvent>,
    pub(crate) returns: Vec<ServiceEvent>,
    /// Places of calls in the order in which they took effect, by message, as far as the recorder told them.
    pub(crate) places: BTreeMap<u32, u64>,
    /// Some calls were taken out, which nothing here can judge.
    pub(crate) calls_left_out: bool,
    pub(crate) ended: bool,
    /// The parts of the run that it is known to have no events of.
    pub(crate) gaps: HistoryGaps,
    /// The names of the files.
    file_names: Vec<String>,
    /// The files, or parts of them, in the order in which they were read.
    files: Vec<FilePart>,
    /// Lines of all files so far.
    pub(crate) lines: u32,
    end_here: bool,
    /// Names of a [`amcast_core::ClusterShape`]'s processes by index, once they have been met.
    pub(crate) cluster_names: Vec<u32>,
    pub(crate) scratch: String,
}

/// The parts of a run of which its history is known to have no events.
#[derive(Clone, Default, Debug)]
pub(crate) struct HistoryGaps {
    /// The first process that began with a state from before the history.
    pub(crate) restored: Option<String>,
    /// Something of which there is no history.
    pub(crate) missing: Option<String>,
}

impl HistoryGaps {
    /// Why the history cannot tell what was in the state that clients saw, if so.
    pub(crate) fn of_state(&self) -> Option<String> {
        if let Some(p) = &self.restored {
            return Some(format!("{p} began with a state from before the history"));
        }
        self.missing.as_ref().map(|missing| format!("no history of {missing}"))
    }
}

/// A process and what it did.
#[derive(Clone, Debug)]
pub(crate) struct ProcessHistory {
    pub(crate) name: u32,
    /// Its groups, ascending.
    pub(crate) groups: Vec<u32>,
    /// Casts and deliveries in the order of its files.
    pub(crate) log: Vec<HistoryEntry>,
    pub(crate) parts: Vec<HistoryEntry>,
    /// From which of `parts` on which of the history's `trees` counts, in order.
    pub(crate) trees: Vec<(usize, u32)>,
    pub(crate) lives: Vec<LifecycleEvent>,
    /// Whether it enters views: then each of its lives is a process of its own.
    in_views: bool,
    /// Whether it is a later life of such a process: it joined, and has the state of others.
    pub(crate) joined: bool,
    /// The views that it entered, in order.
    pub(crate) views: Vec<ViewEntry>,
    /// Whether a later file brought earlier times.
    pub(crate) tangled: bool,
    time: u64,
    file: usize,
}

/// A file, or a part of one.
#[derive(Clone, Debug)]
struct FilePart {
    /// Which file it is of, by its place in the list of names.
    file: usize,
    /// How many lines of all files came before its first.
    before: u32,
    /// How many lines of the file itself did.
    skipped: u32,
}

impl FilePart {
    /// The line of the file that is the `line`-th of all.
    const fn line(&self, line: u32) -> u32 {
        line - self.before + self.skipped
    }
}

/// A process entered a view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewEntry {
    /// The view's name.
    pub(crate) view: u32,
    /// How many entries its log had then.
    pub(crate) at: usize,
}

/// A cast, a delivery or a participation. Its process knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryEntry {
    pub(crate) t: u64,
    /// The message; the top bit marks a cast.
    what: u32,
    /// The line, counted over all files.
    pub(crate) line: u32,
}

const CAST: u32 = 1 << 31;

impl HistoryEntry {
    pub(crate) fn message(self) -> u32 {
        self.what & !CAST
    }

    pub(crate) fn is_cast(self) -> bool {
        self.what & CAST != 0
    }

    pub(crate) fn delivery(self) -> Option<u32> {
        (!self.is_cast()).then_some(self.what)
    }
}

/// A crash or a start after one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LifecycleEvent {
    pub(crate) t: u64,
    pub(crate) line: u32,
    pub(crate) crash: bool,
    /// Whether it had left its group before.
    pub(crate) left: bool,
}

/// The sender, destinations and time of a cast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CastRecord {
    /// The sender, or `NONE` if the message was never cast.
    pub(crate) sender: u32,
    pub(crate) dst: u32,
    pub(crate) line: u32,
    pub(crate) t: u64,
}

/// A call or a return of a service.
#[derive(Clone, Debug)]
pub(crate) struct ServiceEvent {
    pub(crate) t: u64,
    pub(crate) p: u32,
    pub(crate) m: u32,
    pub(crate) line: u32,
    pub(crate) text: String,
}

/// An action of a process, and its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProcessAction {
    Deliver(u32),
    Part(u32),
    Crash,
    /// It stopped, and had left its group before.
    Leave,
    Recover,
    /// It entered the view of that name.
    View(u32),
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

impl History {
    /// A history of nothing.
    pub fn new() -> Self {
        Self {
            names: Names::new(),
            procs: Vec::new(),
            proc_of_name: Vec::new(),
            messages: MessageTable::new(),
            casts: Vec::new(),
            group_names: Names::new(),
            sets: GroupSets::new(),
            tree: GroupTree::default(),
            trees: Vec::new(),
            calls: Vec::new(),
            returns: Vec::new(),
            places: BTreeMap::new(),
            calls_left_out: false,
            ended: false,
            gaps: HistoryGaps::default(),
            file_names: Vec::new(),
            files: Vec::new(),
            lines: 0,
            end_here: false,
            cluster_names: Vec::new(),
            scratch: String::new(),
        }
    }

    /// Says that the lines that follow are from the file `name`, of the same run.
    ///
    /// A process may have lines in several files (it was started again); they are put together by
    /// time. Processes are known across files. `{"ev":"end"}` in any of the files says that the
    /// whole run settled.
    pub fn file(&mut self, name: &str) {
        self.file_names.push(name.to_string());
        self.continue_file(self.file_names.len() - 1, 0);
    }

    /// As [`History::file`], where the next lines begin with that line of the file: for files that are
    /// read in turns. Earlier lines of a file of this name are of the same file, so the order of
    /// its lines is the order in which things were.
    pub fn file_from(&mut self, name: &str, line: u32) {
        let skipped = line.saturating_sub(1);
        match self.file_names.iter().rposition(|known| known == name) {
            Some(file) => self.continue_file(file, skipped),
            None => {
                self.file_names.push(name.to_string());
                self.continue_file(self.file_names.len() - 1, skipped);
            }
        }
    }

    /// The lines that follow are of that file, behind so many others of it.
    fn continue_file(&mut self, file: usize, skipped: u32) {
        self.files.push(FilePart { file, before: self.lines, skipped });
        self.end_here = false;
    }

    /// Which file is being read; 0 if none was named.
    fn current_file(&self) -> usize {
        self.files.last().map_or(0, |piece| piece.file + 1)
    }

    /// Says that the history has no events of a part of the run, by this name, such as a file of one of the processes.
    /// A property that may depend on them is not judged.
    pub fn lacks(&mut self, what: &str) {
        self.gaps.missing.get_or_insert_with(|| what.to_string());
    }

    /// The part of the run of which the caller reported first that there are no events, if any.
    pub fn missing(&self) -> Option<&str> {
        self.gaps.missing.as_deref()
    }

    /// How many lines or events were read, refused ones included.
    pub fn lines(&self) -> u64 {
        u64::from(self.lines)
    }

    /// Whether the run settled, so that liveness may be judged.
    pub fn settled(&self) -> bool {
        self.ended
    }

    /// How many calls of a service, and returns of them, it holds.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Tells the place of a call, by the name of its message, in the order in which the calls took effect, as far as the
    /// recorder knows it: one that sees the replicas execute commands does. The search for an order then tries the calls in
    /// this order first. A wrong place costs time, and changes no verdict.
    pub fn tell_place(&mut self, message: &str, place: u64) {
        if let Ok(m) = self.message_number(message) {
            self.places.insert(m, place);
        }
    }

    /// How many messages are named.
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    /// How often a process delivered something.
    pub fn deliveries(&self) -> u64 {
        let count = |p: &ProcessHistory| p.log.iter().filter(|e| !e.is_cast()).count() as u64;
        self.procs.iter().map(count).sum()
    }

    /// Every process, in the order of declaration.
    pub fn processes(&self) -> impl Iterator<Item = Proc> + use<> {
        (0..self.procs.len() as u32).map(Proc)
    }

    /// The process of that name.
    pub fn process(&self, name: &str) -> Option<Proc> {
        self.names.find(name).and_then(|n| self.proc_named(n)).map(Proc)
    }

    /// The name of a process.
    pub fn process_name(&self, p: Proc) -> &str {
        self.procs.get(p.0 as usize).map_or("", |p| self.names.get(p.name))
    }

    /// The name of a message.
    pub fn message_name(&self, m: Msg) -> Cow<'_, str> {
        if m.0 as usize >= self.messages.len() {
            return Cow::Borrowed("");
        }
        let MsgKey { name, seq } = self.messages.key(m.0);
        let name = self.names.get(name);
        if seq == MsgKey::PLAIN { Cow::Borrowed(name) } else { Cow::Owned(format!("{name}:{seq}")) }
    }

    /// The deliveries of `p`, in order, over all its lives; a message that it delivered twice is there twice.
    pub fn delivered(&self, p: Proc) -> Vec<Msg> {
        let Some(p) = self.procs.get(p.0 as usize) else { return Vec::new() };
        p.ordered_log().iter().filter_map(|e| e.delivery()).map(Msg).collect()
    }

    /// Whether `p` is correct: it never crashed, or came back after its last crash.
    pub fn is_correct(&self, p: Proc) -> bool {
        self.procs.get(p.0 as usize).is_some_and(ProcessHistory::is_correct)
    }

    /// The file and line of the `line`-th line over all files.
    pub(crate) fn place(&self, line: u32) -> EventPosition {
        let n = self.files.partition_point(|piece| piece.before < line);
        match n.checked_sub(1).map(|n| &self.files[n]) {
            Some(piece) => {
                let file = self.file_names[piece.file].clone();
                EventPosition { file, line: piece.line(line) }
            }
            None => EventPosition { file: String::new(), line },
        }
    }

    /// How many files were read; a history without named files is one.
    pub(crate) fn file_count(&self) -> usize {
        self.file_names.len().max(1)
    }

    /// Whether two lines are of one file, so that their order is the order in which things were.
    pub(crate) fn same_file(&self, a: u32, b: u32) -> bool {
        let file = |line| {
            let n = self.files.partition_point(|piece| piece.before < line);
            n.checked_sub(1).map(|n| self.files[n].file)
        };
        self.file_count() < 2 || file(a) == file(b)
    }

    /// The name of the file being read and the line within it.
    pub(crate) fn here(&self) -> (String, u32) {
        match self.files.last() {
            Some(piece) => (self.file_names[piece.file].clone(), piece.line(self.lines)),
            None => (String::new(), self.lines),
        }
    }

    pub(crate) fn proc_named(&self, name: u32) -> Option<u32> {
        self.proc_of_name.get(name as usize).copied().filter(|&p| p != NONE)
    }

    pub(crate) fn name_number(&mut self, name: &str) -> Result<u32, Problem> {
        self.names.intern(name).ok_or(Problem::TooMany("names"))
    }

    /// The number of the set of these groups, in any order.
    pub(crate) fn set_number(&mut self, groups: &mut Vec<u32>) -> Result<u32, Problem> {
        groups.sort_unstable();
        groups.dedup();
        self.sets.intern(groups).ok_or(Problem::TooMany("sets of destinations"))
    }

    pub(crate) fn group_number(&mut self, name: &str) -> Result<u32, Problem> {
        self.group_names.intern(name).ok_or(Problem::TooMany("groups"))
    }

    /// The number of the message called `name`.
    pub(crate) fn message_number(&mut self, name: &str) -> Result<u32, Problem> {
        // A canonical `sender:sequence` is two numbers; anything else is a name of its own.
        let split = name.rsplit_once(':').and_then(|(sender, seq)| {
            let plain = seq == "0" || !seq.starts_with(['0', '+']);
            let seq = seq.parse().ok().filter(|&n| plain && n != MsgKey::PLAIN)?;
            Some((sender, seq))
        });
        let (text, seq) = split.unwrap_or((name, MsgKey::PLAIN));
        let name = self.name_number(text)?;
        self.message_keyed(MsgKey { name, seq })
    }

    pub(crate) fn message_keyed(&mut self, key: MsgKey) -> Result<u32, Problem> {
        let (m, new) = self.messages.intern(key).ok_or(Problem::TooMany("messages"))?;
        if new {
            self.casts.push(CastRecord { sender: NONE, dst: NONE, line: NONE, t: 0 });
        }
        Ok(m)
    }

    /// Counts a line in, unless there are as many as can be numbered.
    pub(crate) fn next_line(&mut self) -> Result<(), Problem> {
        let next = self.lines.checked_add(1).filter(|&n| n < NONE);
        self.lines = next.ok_or(Problem::TooMany("lines"))?;
        Ok(())
    }

    pub(crate) fn not_after_end(&self) -> Result<(), Problem> {
        if self.end_here { Err(Problem::AfterEnd) } else { Ok(()) }
    }

    pub(crate) fn declare(&mut self, name: u32, mut groups: Vec<u32>) -> Result<(), Problem> {
        groups.sort_unstable();
        groups.dedup();
        if let Some(p) = self.proc_named(name) {
            let same = self.procs[p as usize].groups == groups;
            return if same {
                Ok(())
            } else {
                Err(Problem::Redeclared(self.names.get(name).into()))
            };
        }
        let p = u32::try_from(self.procs.len()).ok().filter(|&p| p < NONE - 1);
        let p = p.ok_or(Problem::TooMany("processes"))?;
        if self.proc_of_name.len() <= name as usize {
            self.proc_of_name.resize(self.names.len().max(name as usize + 1), NONE);
        }
        self.proc_of_name[name as usize] = p;
        self.procs.push(ProcessHistory {
            name,
            groups,
            log: Vec::new(),
            parts: Vec::new(),
            trees: Vec::new(),
            lives: Vec::new(),
            in_views: false,
            joined: false,
            views: Vec::new(),
            tangled: false,
            time: 0,
            file: self.current_file(),
        });
        Ok(())
    }

    /// Checks that `p` may do something at `t`, and notes that it did.
    fn advance(&mut self, p: u32, t: u64) -> Result<(), Problem> {
        let file = self.current_file();
        let process = &mut self.procs[p as usize];
        if t < process.time {
            if process.file == file {
                let (name, before_ns) = (process.name, process.time);
                let process = self.names.get(name).into();
                return Err(Problem::TimeWentBack { process, before_ns });
            }
            process.tangled = true;
        }
        (process.time, process.file) = (t, file);
        Ok(())
    }

    pub(crate) fn cast(&mut self, t: u64, p: u32, m: u32, dst: u32) -> Result<(), Problem> {
        if self.sets.get(dst).is_empty() {
            return Err(Problem::NoDestination);
        }
        let old = self.casts[m as usize];
        if old.sender != NONE && (old.sender, old.dst) != (p, dst) {
            return Err(Problem::Recast(self.message_name(Msg(m)).into_owned()));
        }
        self.advance(p, t)?;
        let line = self.lines;
        // A sender that sends a message again still cast it once: the first time counts.
        if old.sender == NONE {
            self.procs[p as usize].log.push(HistoryEntry { t, what: m | CAST, line });
        }
        if old.sender == NONE || t < old.t {
            self.casts[m as usize] = CastRecord { sender: p, dst, line, t };
        }
        Ok(())
    }

    pub(crate) fn act(&mut self, act: ProcessAction, t: u64, p: u32) -> Result<(), Problem> {
        self.advance(p, t)?;
        if act == ProcessAction::Recover && self.procs[p as usize].in_views {
            return self.succeed(p);
        }
        let line = self.lines;
        let process = &mut self.procs[p as usize];
        match act {
            ProcessAction::Deliver(m) => process.log.push(HistoryEntry { t, what: m, line }),
            ProcessAction::Part(m) => process.parts.push(HistoryEntry { t, what: m, line }),
            ProcessAction::Crash | ProcessAction::Leave | ProcessAction::Recover => {
                let (crash, left) = (act != ProcessAction::Recover, act == ProcessAction::Leave);
                process.lives.push(LifecycleEvent { t, line, crash, left });
            }
            ProcessAction::View(view) => {
                process.in_views = true;
                process.views.push(ViewEntry { view, at: process.log.len() });
            }
        }
        Ok(())
    }

    /// From here on `p` takes part along this tree.
    pub(crate) fn take_part_along(
        &mut self,
        t: u64,
        p: u32,
        tree: GroupTree,
    ) -> Result<(), Problem> {
        self.advance(p, t)?;
        let known = self.trees.iter().position(|known| *known == tree);
        let number = known.unwrap_or_else(|| {
            self.trees.push(tree);
            self.trees.len() - 1
        });
        let process = &mut self.procs[p as usize];
        process.trees.push((process.parts.len(), number as u32));
        Ok(())
    }

    /// A member of a dynamic group that comes back is a new process, under the old name: one that
    /// joins [TO 3.1]. The old one has failed.
    fn succeed(&mut self, p: u32) -> Result<(), Problem> {
        let successor = u32::try_from(self.procs.len()).ok().filter(|&p| p < NONE - 1);
        let successor = successor.ok_or(Problem::TooMany("processes"))?;
        let old = &self.procs[p as usize];
        let new = ProcessHistory {
            groups: old.groups.clone(),
            log: Vec::new(),
            parts: Vec::new(),
            trees: Vec::new(),
            lives: Vec::new(),
            views: Vec::new(),
            joined: true,
            ..*old
        };
        self.proc_of_name[new.name as usize] = successor;
        self.procs.push(new);
        Ok(())
    }

    pub(crate) fn say(
        &mut self,
        call: bool,
        t: u64,
        p: u32,
        m: u32,
        text: &str,
    ) -> Result<(), Problem> {
        self.advance(p, t)?;
        let said = ServiceEvent { t, p, m, line: self.lines, text: text.to_string() };
        if call {
            self.calls.push(said)
        } else {
            self.returns.push(said)
        }
        Ok(())
    }

    pub(crate) fn end(&mut self) {
        (self.ended, self.end_here) = (true, true);
    }
}

impl ProcessHistory {
    /// Casts and deliveries in the order of time.
    pub(crate) fn ordered_log(&self) -> Cow<'_, [HistoryEntry]> {
        if !self.tangled {
            return Cow::Borrowed(&self.log);
        }
        let mut log = self.log.clone();
        log.sort_by_key(|e| e.t);
        Cow::Owned(log)
    }

    pub(crate) fn is_correct(&self) -> bool {
        !self.last_life().is_some_and(|life| life.crash)
    }

    /// Whether it left its dynamic group by choice: until then it was as good as a correct one.
    pub(crate) fn has_left(&self) -> bool {
        self.in_views && self.last_life().is_some_and(|life| life.left)
    }

    fn last_life(&self) -> Option<&LifecycleEvent> {
        self.lives.iter().max_by_key(|life| (life.t, life.line))
    }
}
