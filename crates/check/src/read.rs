//! From lines and from events into a [`History`].

use crate::error::{LineError, Problem};
use crate::history::{History, ProcessAction};
use crate::intern::{MsgKey, NONE};
use crate::line::{FieldName, FieldValue, Fields, items};
use crate::tree::GroupTree;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use amcast_core::trace::TraceEvent;
use amcast_core::{ClusterShape, GroupSet, MsgId, Overlay, Pid};
use core::fmt::Write;

/// A problem and the byte of the line, from 0, where it is; `None` for the line as a whole.
type LocatedProblem = (Problem, Option<usize>);

impl History {
    /// Reads one line, with or without its end. Blank lines count but say nothing; fields that mean
    /// nothing here are passed over.
    ///
    /// # Errors
    /// When the line is not an event: it says where and what should be there. The history is then
    /// as if the line had not been, and takes further ones.
    pub fn push_line(&mut self, line: &str) -> Result<(), LineError> {
        self.next_line()
            .map_err(|problem| (problem, None))
            .and_then(|()| self.read(line))
            .map_err(|(problem, at)| self.refuse(problem, at.map_or(0, |at| at + 1)))
    }

    /// Takes one event of a run of `cluster`, as if its line had been read.
    ///
    /// # Errors
    /// The same as for the line; also when a process is not of `cluster`.
    pub fn push_event(
        &mut self,
        event: &TraceEvent<'_>,
        cluster: &ClusterShape,
    ) -> Result<(), LineError> {
        self.next_line()
            .and_then(|()| self.take(event, cluster))
            .map_err(|problem| self.refuse(problem, 0))
    }

    fn refuse(&self, problem: Problem, column: usize) -> LineError {
        let (file, line) = self.here();
        LineError { file, line, column, problem }
    }

    fn read(&mut self, line: &str) -> Result<(), LocatedProblem> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let fields = Fields::parse(line).map_err(|bad| {
            let problem = if bad.cut { Problem::Cut } else { Problem::Malformed(bad.want) };
            (problem, Some(bad.at))
        })?;
        let (ev, at) = text(&fields, FieldName::Ev)?;
        let whole = |problem| (problem, None);
        self.not_after_end().map_err(whole)?;
        match &*ev {
            "deliver" => self.read_about(ProcessAction::Deliver, &fields),
            "part" => self.read_about(ProcessAction::Part, &fields),
            "crash" => {
                let left = matches!(fields.get(FieldName::Left), Some((FieldValue::True, _)));
                self.read_plain(
                    if left { ProcessAction::Leave } else { ProcessAction::Crash },
                    &fields,
                )
            }
            "recover" => self.read_plain(ProcessAction::Recover, &fields),
            "view" => {
                let (view, at) = text(&fields, FieldName::View)?;
                strings(&fields, FieldName::Members, |_| Ok(()))?;
                let view = self.name_number(&view).map_err(|problem| (problem, Some(at)))?;
                self.read_plain(ProcessAction::View(view), &fields)
            }
            "overlay" => self.read_overlay(&fields),
            "cast" => self.read_cast(&fields),
            "call" => self.read_said(true, FieldName::Op, &fields),
            "return" => self.read_said(false, FieldName::Out, &fields),
            "process" => self.read_process(&fields),
            "end" => {
                self.end();
                Ok(())
            }
            other => Err((Problem::UnknownEvent(other.into()), Some(at))),
        }
    }

    fn read_process(&mut self, fields: &Fields<'_>) -> Result<(), LocatedProblem> {
        let (p, at) = text(fields, FieldName::P)?;
        let groups = self.read_groups(fields, FieldName::Groups)?;
        let tree = self.read_parents(fields, &groups, self.tree.clone())?;
        self.name_number(&p)
            .and_then(|name| self.declare(name, groups))
            .map_err(|problem| (problem, Some(at)))?;
        if matches!(fields.get(FieldName::Restored), Some((FieldValue::True, _))) {
            self.gaps.restored.get_or_insert_with(|| p.into_owned());
        }
        self.tree = tree.unwrap_or_else(|| core::mem::take(&mut self.tree));
        Ok(())
    }

    /// The tree along which a process takes part from here on.
    fn read_overlay(&mut self, fields: &Fields<'_>) -> Result<(), LocatedProblem> {
        let (t, p) = self.read_who(fields)?;
        let groups = self.read_groups(fields, FieldName::Groups)?;
        let tree = self.read_parents(fields, &groups, GroupTree::default())?;
        let tree = tree.ok_or((Problem::Missing("parents"), None))?;
        self.take_part_along(t, p, tree).map_err(|problem| (problem, None))
    }

    /// `tree` with the parents of these groups, none for a root, if the line has them.
    fn read_parents(
        &mut self,
        fields: &Fields<'_>,
        groups: &[u32],
        mut tree: GroupTree,
    ) -> Result<Option<GroupTree>, LocatedProblem> {
        let Some((_, at)) = fields.get(FieldName::Parents) else { return Ok(None) };
        let mut names = Vec::new();
        strings(fields, FieldName::Parents, |name| {
            names.push((!name.is_empty()).then(|| self.group_number(name)).transpose()?);
            Ok(())
        })?;
        if names.len() != groups.len() {
            let want = "a list with a string for each of \"groups\"";
            return Err((Problem::Wrong { field: "parents", want }, Some(at)));
        }
        for (&group, parent) in groups.iter().zip(names) {
            self.join_tree(&mut tree, group, parent).map_err(|problem| (problem, Some(at)))?;
        }
        Ok(Some(tree))
    }

    fn join_tree(&self, tree: &mut GroupTree, g: u32, parent: Option<u32>) -> Result<(), Problem> {
        if !tree.takes(g, parent) {
            return Err(Problem::NoTree(self.group_names.get(g).into()));
        }
        tree.put(g, parent);
        Ok(())
    }

    /// Says in which tree the groups of a simulated run are arranged, as `"parents"` in the lines of processes
    /// does.
    ///
    /// # Errors
    /// When the history knows another tree.
    pub fn arrange(&mut self, overlay: &Overlay) -> Result<(), Problem> {
        self.tree = self.tree_of(overlay, self.tree.clone())?;
        Ok(())
    }

    /// `tree`, and `overlay` in it.
    fn tree_of(&mut self, overlay: &Overlay, mut tree: GroupTree) -> Result<GroupTree, Problem> {
        for g in GroupSet::first(overlay.groups()).iter() {
            let parent = overlay.parent(g).map(GroupSet::one).unwrap_or(GroupSet::EMPTY);
            let (group, parent) =
                (self.group_numbers(GroupSet::one(g))?, self.group_numbers(parent)?);
            self.join_tree(&mut tree, group[0], parent.first().copied())?;
        }
        Ok(tree)
    }

    fn read_about(
        &mut self,
        act: fn(u32) -> ProcessAction,
        fields: &Fields<'_>,
    ) -> Result<(), LocatedProblem> {
        let (t, p) = self.read_who(fields)?;
        let m = self.read_message(fields)?;
        self.act(act(m), t, p).map_err(|problem| (problem, None))
    }

    fn read_plain(
        &mut self,
        act: ProcessAction,
        fields: &Fields<'_>,
    ) -> Result<(), LocatedProblem> {
        let (t, p) = self.read_who(fields)?;
        self.act(act, t, p).map_err(|problem| (problem, None))
    }

    fn read_cast(&mut self, fields: &Fields<'_>) -> Result<(), LocatedProblem> {
        let (t, p) = self.read_who(fields)?;
        let mut groups = self.read_groups(fields, FieldName::Dst)?;
        let m = self.read_message(fields)?;
        self.set_number(&mut groups)
            .and_then(|dst| self.cast(t, p, m, dst))
            .map_err(|problem| (problem, None))
    }

    fn read_said(
        &mut self,
        call: bool,
        field: FieldName,
        fields: &Fields<'_>,
    ) -> Result<(), LocatedProblem> {
        let (t, p) = self.read_who(fields)?;
        let (said, _) = text(fields, field)?;
        let m = self.read_message(fields)?;
        self.say(call, t, p, m, &said).map_err(|problem| (problem, None))
    }

    /// When, and which process.
    fn read_who(&mut self, fields: &Fields<'_>) -> Result<(u64, u32), LocatedProblem> {
        let want = "a whole number of nanoseconds";
        let t = match fields.get(FieldName::T) {
            Some((FieldValue::Whole(t), _)) => t,
            Some((_, at)) => return Err((Problem::Wrong { field: "t", want }, Some(at))),
            None => return Err((Problem::Missing("t"), None)),
        };
        let (name, at) = text(fields, FieldName::P)?;
        match self.names.find(&name).and_then(|n| self.proc_named(n)) {
            Some(p) => Ok((t, p)),
            None => Err((Problem::Undeclared(name.into_owned()), Some(at))),
        }
    }

    fn read_message(&mut self, fields: &Fields<'_>) -> Result<u32, LocatedProblem> {
        let (m, at) = text(fields, FieldName::M)?;
        self.message_number(&m).map_err(|problem| (problem, Some(at)))
    }

    fn read_groups(
        &mut self,
        fields: &Fields<'_>,
        field: FieldName,
    ) -> Result<Vec<u32>, LocatedProblem> {
        let mut groups = Vec::new();
        strings(fields, field, |name| {
            groups.push(self.group_number(name)?);
            Ok(())
        })?;
        Ok(groups)
    }

    fn take(&mut self, event: &TraceEvent<'_>, cluster: &ClusterShape) -> Result<(), Problem> {
        self.not_after_end()?;
        match *event {
            TraceEvent::Process { p, groups } => {
                let name = self.pid_name(p, cluster)?;
                let groups = self.group_numbers(groups)?;
                self.declare(name, groups)
            }
            TraceEvent::Cast { t, p, m, dst } => {
                let mut groups = self.group_numbers(dst)?;
                let (p, m) = (self.pid(p, cluster)?, self.msg(m, cluster)?);
                let dst = self.set_number(&mut groups)?;
                self.cast(t.0, p, m, dst)
            }
            TraceEvent::Deliver { t, p, m } => {
                let (p, m) = (self.pid(p, cluster)?, self.msg(m, cluster)?);
                self.act(ProcessAction::Deliver(m), t.0, p)
            }
            TraceEvent::Part { t, p, m } => {
                let (p, m) = (self.pid(p, cluster)?, self.msg(m, cluster)?);
                self.act(ProcessAction::Part(m), t.0, p)
            }
            TraceEvent::Overlay { t, p, tree } => {
                let tree = self.tree_of(tree, GroupTree::default())?;
                let p = self.pid(p, cluster)?;
                self.take_part_along(t.0, p, tree)
            }
            // Nothing is promised of the order of early deliveries; the simulator checks the duties with them.
            TraceEvent::Early { .. } => Ok(()),
            TraceEvent::Crash { t, p } => self.take_plain(ProcessAction::Crash, t.0, p, cluster),
            TraceEvent::Leave { t, p } => self.take_plain(ProcessAction::Leave, t.0, p, cluster),
            TraceEvent::Recover { t, p } => {
                self.take_plain(ProcessAction::Recover, t.0, p, cluster)
            }
            TraceEvent::View { t, p, view, .. } => {
                let view = self.name_number(view)?;
                self.take_plain(ProcessAction::View(view), t.0, p, cluster)
            }
            TraceEvent::Call { t, p, m, op } => {
                let (p, m) = (self.pid(p, cluster)?, self.msg(m, cluster)?);
                self.say(true, t.0, p, m, op)
            }
            TraceEvent::Return { t, p, m, out } => {
                let (p, m) = (self.pid(p, cluster)?, self.msg(m, cluster)?);
                self.say(false, t.0, p, m, out)
            }
            TraceEvent::End => {
                self.end();
                Ok(())
            }
        }
    }

    fn take_plain(
        &mut self,
        act: ProcessAction,
        t: u64,
        p: Pid,
        c: &ClusterShape,
    ) -> Result<(), Problem> {
        let p = self.pid(p, c)?;
        self.act(act, t, p)
    }

    /// The number of the name of `p`.
    fn pid_name(&mut self, p: Pid, cluster: &ClusterShape) -> Result<u32, Problem> {
        if !cluster.has(p) {
            return Err(Problem::NotInCluster);
        }
        if let Some(&name) = self.cluster_names.get(p.index()).filter(|&&name| name != NONE) {
            return Ok(name);
        }
        let mut text = core::mem::take(&mut self.scratch);
        text.clear();
        // Writing to a string cannot fail.
        let _ = write!(text, "{}", cluster.name(p));
        let name = self.name_number(&text);
        self.scratch = text;
        let name = name?;
        if self.cluster_names.len() <= p.index() {
            self.cluster_names.resize(p.index() + 1, NONE);
        }
        self.cluster_names[p.index()] = name;
        Ok(name)
    }

    fn pid(&mut self, p: Pid, cluster: &ClusterShape) -> Result<u32, Problem> {
        let name = self.pid_name(p, cluster)?;
        self.proc_named(name).ok_or_else(|| Problem::Undeclared(self.names.get(name).into()))
    }

    fn msg(&mut self, m: MsgId, cluster: &ClusterShape) -> Result<u32, Problem> {
        let name = self.pid_name(m.sender, cluster)?;
        if m.seq == MsgKey::PLAIN {
            return self.message_number(&alloc::format!("{}:{}", cluster.name(m.sender), m.seq));
        }
        self.message_keyed(MsgKey { name, seq: m.seq })
    }

    fn group_numbers(&mut self, groups: GroupSet) -> Result<Vec<u32>, Problem> {
        let mut text = String::new();
        let mut numbers = Vec::with_capacity(groups.len());
        for g in groups.iter() {
            text.clear();
            let _ = write!(text, "{g}");
            numbers.push(self.group_number(&text)?);
        }
        Ok(numbers)
    }
}

/// The text of `field` and the byte where it starts.
fn text<'a>(
    fields: &Fields<'a>,
    field: FieldName,
) -> Result<(Cow<'a, str>, usize), LocatedProblem> {
    let name = field.name();
    let (value, at) = fields.get(field).ok_or((Problem::Missing(name), None))?;
    let want = "a string";
    value.text().map(|s| (s, at)).ok_or((Problem::Wrong { field: name, want }, Some(at)))
}

/// Calls `tell` with each string of the list `field`.
fn strings(
    fields: &Fields<'_>,
    field: FieldName,
    mut tell: impl FnMut(&str) -> Result<(), Problem>,
) -> Result<(), LocatedProblem> {
    let name = field.name();
    let (value, at) = fields.get(field).ok_or((Problem::Missing(name), None))?;
    let wrong = || (Problem::Wrong { field: name, want: "a list of strings" }, Some(at));
    let FieldValue::List(rest) = value else { return Err(wrong()) };
    for item in items(rest) {
        tell(&item.ok_or_else(wrong)?).map_err(|problem| (problem, Some(at)))?;
    }
    Ok(())
}
