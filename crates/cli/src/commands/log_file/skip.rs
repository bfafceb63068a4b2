//! `amcast log-file skip`: has nodes skip a message that ends every process that executes it.

use super::failure;
use amcast_core::skip::parse_message;
use amcast_core::{MsgId, SkipDecision};
use amcast_kv::{batch, split_epoch};
use amcast_lab::commands::Failure;
use amcast_log::command::MARK;
use amcast_node::execution_notes::{ExecutionNote, executing_at_end};
use amcast_node::node_data::NodeData;
use amcast_smr::{SkipStatus, StateHead};
use amcast_storage::offline::{self, CheckpointSummary};
use amcast_storage::{CheckpointReader, SkipEntry, SkipStage, read_skipped, write_skipped};
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::PathBuf;

/// How many characters of an argument are printed.
const ARGUMENT_CHARS: usize = 40;

/// Has nodes skip a message that ends every process that executes it, also at each start.
///
/// Every node of the cluster must be given the decision: nodes with different ones refuse each other, and none skips
/// the message before it has met all others. A skipped command counts as delivered, its client learns that it was
/// not executed, and it cannot be restored. Without --message it prints the messages that nodes were executing when
/// they ended, and those that they skip. Without --yes it prints the intended changes, and makes none.
#[derive(clap::Args)]
pub(super) struct SkipArgs {
    /// The data directory of a node (n0.data), or the directory of a cluster, for all nodes in it;
    /// the nodes do not run
    #[arg(value_name = "DIR", required = true)]
    pub(super) paths: Vec<PathBuf>,
    /// The message: its sender and number, such as p1:4294967301, and behind an @ its place, such as g0/17,
    /// where no node here was executing it
    #[arg(long, value_name = "MESSAGE")]
    message: Option<String>,
    /// Say what each node skips, and what it was executing when it ended
    #[arg(long, conflicts_with_all = ["message", "undo", "yes", "all_nodes"])]
    list: bool,
    /// Take the decision back, where no node has used it
    #[arg(long, requires = "message")]
    undo: bool,
    /// With --undo, of nodes that have started with the decision: it is taken back at every node of the cluster,
    /// before any is started, and --list says of none that it used it
    #[arg(long, requires = "undo")]
    all_nodes: bool,
    /// Do it
    #[arg(long)]
    yes: bool,
}

/// A node, and the contents of its directory.
struct StoppedNode {
    data: NodeData,
    entries: Vec<SkipEntry>,
    ended: Vec<ExecutionNote>,
}

impl StoppedNode {
    fn read(data: NodeData) -> Result<Self, Failure> {
        let entries = read_skipped(&data.path).map_err(failure)?;
        let ended = executing_at_end(&data.path).map_err(Failure::failed)?;
        Ok(Self { data, entries, ended })
    }

    fn entry(&self, msg: MsgId) -> Option<&SkipEntry> {
        self.entries.iter().find(|entry| entry.decision.msg == msg)
    }

    fn note(&self, msg: MsgId) -> Option<&ExecutionNote> {
        self.ended.iter().find(|note| note.place.msg == msg)
    }

    /// Whether what the node knows of the message, and of the place, is what the decision says.
    fn agrees(&self, decision: &SkipDecision) -> bool {
        let fits = |ExecutionNote { place: known, dst, .. }: &ExecutionNote| {
            let is_there = (known.group, known.position) == (decision.group, decision.position);
            match known.msg == decision.msg {
                true => is_there || known.group != decision.group && dst.contains(decision.group),
                false => !is_there,
            }
        };
        let decided = self.entry(decision.msg).is_none_or(|entry| entry.decision == *decision);
        decided && self.ended.iter().all(fits)
    }

    /// The status of the message in the state from which the node starts, and the state's position
    /// in the message's group.
    fn skip_status(&self, decision: &SkipDecision) -> Result<(SkipStatus, u64), Failure> {
        let path = self.data.checkpoints();
        if !path.is_dir() {
            return Ok((SkipStatus::Ahead, 0));
        }
        let whole = offline::checkpoints(&path)
            .map_err(failure)?
            .into_iter()
            .filter_map(|CheckpointSummary { saved, .. }| saved.ok());
        let Some(saved) = whole.last() else { return Ok((SkipStatus::Ahead, 0)) };
        let head = head(saved).map_err(|why| {
            Failure::Failed(format!("{}: the state cannot be read: {why}", path.display()))
        })?;
        if decision.group.index() >= head.shards() {
            let (name, shards) = (&self.data.name, head.shards());
            return Err(Failure::Misuse(format!("{decision}: {name} has {shards} shards")));
        }
        Ok((head.skip_status(decision), head.delivered(decision.group)))
    }
}

/// The head of a saved state.
fn head(saved: CheckpointReader) -> Result<StateHead, String> {
    let mut from = CheckpointPieces { saved, rest: Vec::new(), at: 0 };
    // The history of deliveries precedes it.
    let mut length = [0; 8];
    from.read_exact(&mut length).map_err(|e| e.to_string())?;
    let history = &mut (&mut from).take(u64::from_le_bytes(length));
    io::copy(history, &mut io::sink()).map_err(|e| e.to_string())?;
    StateHead::read(&mut from).map_err(|e| e.to_string())
}

/// The bytes of a saved state.
struct CheckpointPieces {
    saved: CheckpointReader,
    rest: Vec<u8>,
    at: usize,
}

impl Read for CheckpointPieces {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.rest.len() {
            self.rest = self.saved.piece().map_err(io::Error::other)?.unwrap_or_default().to_vec();
            self.at = 0;
        }
        let count = to.len().min(self.rest.len() - self.at);
        to[..count].copy_from_slice(&self.rest[self.at..][..count]);
        self.at += count;
        Ok(count)
    }
}

pub(super) fn run(args: &SkipArgs) -> Result<(), Failure> {
    let mut nodes = Vec::new();
    for path in &args.paths {
        for data in NodeData::hold(path).map_err(Failure::Misuse)? {
            nodes.push(StoppedNode::read(data)?);
        }
    }
    let Some(message) = &args.message else {
        return list(&nodes);
    };
    let decision = decision(&nodes, message)?;
    if args.undo { undo(&nodes, decision, args) } else { decide(&nodes, decision, args.yes) }
}

/// The decision that is meant: as it was given, or as a node knows it.
fn decision(nodes: &[StoppedNode], message: &str) -> Result<SkipDecision, Failure> {
    if message.contains('@') {
        return message
            .parse::<SkipDecision>()
            .map_err(|e| Failure::Misuse(format!("--message {message}: {e}")));
    }
    let msg = parse_message(message).ok_or_else(|| {
        Failure::Misuse(format!(
            "--message {message}: give its sender and number, such as p1:4294967301"
        ))
    })?;
    let known = |node: &StoppedNode| {
        let decided = node.entry(msg).map(|entry| entry.decision);
        decided.or_else(|| node.note(msg).map(|note| note.place))
    };
    nodes.iter().find_map(known).ok_or_else(|| {
        Failure::Misuse(format!(
            "no node here was executing {msg:?} when it ended: give it with its place, as `amcast log-file skip` \
             says it where one was ({msg:?}@g0/17)"
        ))
    })
}

fn list(nodes: &[StoppedNode]) -> Result<(), Failure> {
    for StoppedNode { data, entries, ended } in nodes {
        let name = &data.name;
        for note in ended {
            println!("{name} {note}: {}", command(note));
        }
        for entry in entries {
            println!("{name} skips {}: {}", entry.decision, stage(entry.stage));
        }
        if entries.is_empty() {
            println!("{name} skips nothing");
        }
    }
    Ok(())
}

/// How far a decision is, for people.
fn stage(stage: SkipStage) -> &'static str {
    match stage {
        SkipStage::Decided => "decided, and the node has not started since",
        SkipStage::Bound => {
            "the node started with it, and has not met all others with the same decision"
        }
        SkipStage::Agreed => "all nodes have it, and the node has not come to the message",
        SkipStage::Used => "used: the message was skipped",
    }
}

/// Prints the known facts of the command.
fn describe(nodes: &[StoppedNode], decision: &SkipDecision) {
    println!("message {:?}, at position {} of {}", decision.msg, decision.position, decision.group);
    if let Some(note) = nodes.iter().find_map(|node| node.note(decision.msg)) {
        let shards: Vec<_> = note.dst.iter().map(|group| group.to_string()).collect();
        println!("  goes to {}; {} bytes: {}", shards.join(", "), note.length, command(note));
    }
    for node in nodes {
        if let Some(note) = node.note(decision.msg) {
            println!("  {} {note}", node.data.name);
        }
    }
}

fn decide(nodes: &[StoppedNode], decision: SkipDecision, yes: bool) -> Result<(), Failure> {
    describe(nodes, &decision);
    let mut to_write = Vec::new();
    for node in nodes {
        let name = &node.data.name;
        if !node.agrees(&decision) {
            return Err(wrong_place(name, &decision));
        }
        if let Some(entry) = node.entry(decision.msg) {
            println!("  {name} has that decision already: {}", stage(entry.stage));
            continue;
        }
        let (status, delivered) = node.skip_status(&decision)?;
        let group = decision.group;
        match status {
            SkipStatus::Ahead => {
                println!("  {name} has it ahead: its state on disk is at {delivered} of {group}")
            }
            SkipStatus::Skipped => println!("  {name} has skipped it before"),
            SkipStatus::Misplaced => return Err(wrong_place(name, &decision)),
            SkipStatus::Executed => {
                return Err(Failure::Failed(format!(
                    "{name} has executed {decision}: its state on disk is at {delivered} of {group}. Nothing was \
                     changed, and no node may skip what another one has executed: have the others continue from the \
                     state of {name}, with more memory for them if they had too little"
                )));
            }
        }
        to_write.push(node);
    }
    if !yes {
        return Err(Failure::Failed(format!(
            "nothing was changed; to have {} skip it for good, say --yes",
            names(to_write.iter().copied())
        )));
    }
    for node in &to_write {
        let mut entries = node.entries.clone();
        entries.push(SkipEntry { decision, stage: SkipStage::Decided });
        write_skipped(&node.data.path, &entries).map_err(failure)?;
    }
    println!("decided for {}", names(to_write.into_iter()));
    if !is_whole_cluster(nodes) {
        println!(
            "no node skips it before all nodes of the cluster have the decision; for each of the others, while it \
             does not run:\n  amcast log-file skip DIR --message {decision} --yes"
        );
    }
    Ok(())
}

/// The error for a decision that contradicts a node's state.
fn wrong_place(name: &str, decision: &SkipDecision) -> Failure {
    Failure::Misuse(format!(
        "{decision}: {name} has another place for that message, or another message there. Nothing was changed; give \
         it exactly as `amcast log-file skip --list` says it where it was executed or decided, the same at all nodes"
    ))
}

fn names<'a>(nodes: impl Iterator<Item = &'a StoppedNode>) -> String {
    let names: Vec<_> = nodes.map(|node| node.data.name.as_str()).collect();
    if names.is_empty() { "no further node".to_string() } else { names.join(", ") }
}

/// Whether these are all nodes of a cluster.
fn is_whole_cluster(nodes: &[StoppedNode]) -> bool {
    let distinct: BTreeSet<_> = nodes.iter().map(|node| &node.data.name).collect();
    let dirs: BTreeSet<_> = nodes.iter().map(|node| node.data.path.parent()).collect();
    let count = nodes.iter().find_map(|node| node.data.cluster_nodes());
    dirs.len() == 1 && count == Some(distinct.len())
}

/// Takes a decision back. A node that started with it is bound to it: others may have skipped the message since
/// they met it. Unless all of them are here, and none has.
fn undo(nodes: &[StoppedNode], decision: SkipDecision, args: &SkipArgs) -> Result<(), Failure> {
    let have: Vec<_> =
        nodes.iter().filter_map(|node| Some((node, node.entry(decision.msg)?))).collect();
    if have.is_empty() {
        return Err(Failure::Misuse(format!(
            "no node here has a decision to skip {:?}",
            decision.msg
        )));
    }
    for node in nodes {
        let name = &node.data.name;
        let entry = node.entry(decision.msg);
        if let Some(SkipEntry { decision, stage: at }) = entry {
            println!("{name} skips {decision}: {}", stage(*at));
        }
        // Also one that has lost its file: its state tells.
        let (status, _) = node.skip_status(&entry.map_or(decision, |entry| entry.decision))?;
        let is_used = entry.is_some_and(|entry| entry.stage == SkipStage::Used);
        if is_used || status == SkipStatus::Skipped {
            return Err(Failure::Failed(format!(
                "{name} has skipped {decision}: that stays for ever"
            )));
        }
    }
    let bound = have.iter().find(|(_, entry)| entry.stage > SkipStage::Decided);
    if let Some((node, _)) = bound.filter(|_| !args.all_nodes && !is_whole_cluster(nodes)) {
        return Err(Failure::Failed(format!(
            "{} has started with that decision, and others may have used it since: give the directories of all \
             nodes, or say --all-nodes if it is taken back at each of them before any is started",
            node.data.name
        )));
    }
    if !args.yes {
        return Err(Failure::Failed("nothing was changed; to take it back, say --yes".to_string()));
    }
    for (node, _) in &have {
        let mut entries = node.entries.clone();
        entries.retain(|entry| entry.decision.msg != decision.msg);
        write_skipped(&node.data.path, &entries).map_err(failure)?;
    }
    println!("taken back for {}", names(have.iter().map(|(node, _)| *node)));
    Ok(())
}

/// A description of a command, as far as its beginning shows it.
fn command(note: &ExecutionNote) -> String {
    if note.command.starts_with(&MARK) {
        return "a command of the log service".to_string();
    }
    let is_cut = note.length > note.command.len() as u64;
    shown(split_epoch(&note.command).1, is_cut).unwrap_or_else(|| {
        let digits: String =
            note.command.iter().take(ARGUMENT_CHARS).map(|b| format!("{b:02x}")).collect();
        format!("{digits}..")
    })
}

/// The command, or the commands of the batch, as far as these first bytes have them.
fn shown(encoded: &[u8], is_cut: bool) -> Option<String> {
    if !batch::is_batch(encoded) {
        return arguments(encoded);
    }
    let mut batched = batch::commands(encoded);
    let mut all: Vec<String> = batched.by_ref().filter_map(arguments).collect();
    // The last one may be there in part.
    all.extend(batched.rest().get(4..).and_then(arguments));
    let dots = if is_cut { "; .." } else { "" };
    (!all.is_empty()).then(|| all.join("; ") + dots)
}

/// The arguments of a command of the store of which these are the first bytes.
fn arguments(bytes: &[u8]) -> Option<String> {
    let (count, mut rest) = word(bytes)?;
    let mut shown = Vec::new();
    for _ in 0..count {
        let Some((length, behind)) = word(rest) else { break };
        let (argument, tail) = behind.split_at(length.min(behind.len()));
        let text = String::from_utf8_lossy(argument);
        let text: String = text.chars().take(ARGUMENT_CHARS).collect();
        let dots = if text.len() < length { ".." } else { "" };
        shown.push(format!("{text:?}{dots}"));
        rest = tail;
    }
    let is_whole = shown.len() == count;
    (!shown.is_empty()).then(|| shown.join(" ") + if is_whole { "" } else { " .." })
}

fn word(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*head) as usize, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_kv::encode_args;

    #[test]
    fn commands_that_share_a_message_are_shown_as_far_as_they_were_noted() {
        let encoded = |args: &[&[u8]]| {
            let mut command = Vec::new();
            encode_args(args, &mut command);
            command
        };
        let mut message = encoded(&[b"SET", b"a", b"1"]);
        batch::push(&mut message, 0, &encoded(&[b"INCR", b"b"]));
        let all = shown(&message, false).expect("whole commands");
        assert_eq!(all, r#""SET" "a" "1"; "INCR" "b""#);
        let cut = shown(&message[..message.len() - 5], true).expect("one and a half");
        assert_eq!(cut, r#""SET" "a" "1"; "INCR" ..; .."#);
        let first = shown(&message[..25], true).expect("a half");
        assert_eq!(first, r#""SET" "a" ..; .."#);
    }

    #[test]
    fn a_command_is_shown_as_far_as_it_was_noted() {
        let shown = |args: &[&[u8]], bytes: usize| {
            let mut command = Vec::new();
            encode_args(args, &mut command);
            command.truncate(bytes);
            arguments(&command).unwrap_or_default()
        };
        let all: [&[u8]; 3] = [b"SETRANGE", b"k\n", &[b'x'; 100]];
        assert_eq!(shown(&all[..2], 100), "\"SETRANGE\" \"k\\n\"");
        assert_eq!(shown(&all, 1000), format!("\"SETRANGE\" \"k\\n\" \"{}\"..", "x".repeat(40)));
        assert_eq!(shown(&all, 30), "\"SETRANGE\" \"k\\n\" \"xxxx\"..");
        assert_eq!(shown(&all, 19), "\"SETRANGE\" ..");
        assert_eq!((shown(&all, 3), shown(&[], 9)), (String::new(), String::new()));
    }
}
