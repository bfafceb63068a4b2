//! A log that takes appends at every member of a group that hears no other one, and is one log again when they meet: the
//! library's example of members over a real network that reconcile.
//!
//! `cargo run --release --example partition_log` starts three members as processes of their own, ends two of them, appends
//! at the one that is left, starts the two again, appends at each of them at once, and prints the log when all have merged:
//! where each entry was ordered, the same at all members.
//!
//! A member by itself, on a host of yours: `partition_log member RANK DIRECTORY SECRET ADDRESS ADDRESS ..`, with the same
//! addresses, in the order of ranks, at all hosts, and the same file with a secret of 32 letters at least (`-` for none, where all
//! members are on one machine). It takes lines: `append WRITER NUMBER TEXT`, `log`, `status`; it leaves when they end. It
//! writes its history in the directory `PARTITION_LOG_RECORD` of its environment, if there is one.

mod process;

use amcast::log::partition_log::AppendId;
use amcast::log::{PartitionLog, PartitionLogAnswer, PartitionLogCommand};
use amcast::net::Secret;
use amcast::replicate::{self, ComponentMember, MemberOptions};
use amcast::smr::ReconcileLimits;
use process::{MemberProcess, free_addresses, wait_for_one_view};
use std::error::Error;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

/// The log of this example holds so many bytes.
type ExampleLog = PartitionLog<{ 1 << 20 }>;

/// How long an append may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A number of this group's own.
const GROUP: u64 = 0x706c_6f67;

/// Carries out a line, and says what came of it.
fn obey(member: &ComponentMember<ExampleLog>, line: &str) -> Result<Vec<String>, String> {
    let stopped = || "the member has stopped".to_string();
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    match words[..] {
        ["append", writer, number, text] => {
            let number_of = |word: &str| word.parse().map_err(|e| format!("{word}: {e}"));
            let id = AppendId { writer: number_of(writer)?, number: number_of(number)? };
            let command = PartitionLogCommand::Append { id, value: text.as_bytes() };
            let answer = member.call(&command.encode(), PATIENCE).map_err(|e| e.to_string())?;
            match PartitionLogAnswer::decode(&answer) {
                Some(PartitionLogAnswer::Appended(place)) => Ok(vec![format!("appended {place}")]),
                other => Err(format!("{other:?}")),
            }
        }
        ["log"] => member
            .look(|log| {
                let line = |entry: amcast::log::partition_log::PartitionLogEntry<'_>| {
                    let (place, id) = (entry.place, entry.id);
                    let text = String::from_utf8_lossy(entry.value);
                    format!("{place} | {}.{} {text}", id.writer, id.number)
                };
                log.entries().map(line).collect()
            })
            .ok_or_else(stopped),
        ["status"] => {
            let status = member.status().ok_or_else(stopped)?;
            let members: Vec<_> = status.members.iter().map(ToString::to_string).collect();
            let (view, merges) = (status.view, status.merges);
            let state = if status.is_reconciled { "reconciled" } else { "exchanging" };
            Ok(vec![format!("{view} of {} {state} after {merges} merges", members.join(","))])
        }
        _ => Err("lines are `append WRITER NUMBER TEXT`, `log` and `status`".to_string()),
    }
}

/// A member that obeys the lines of its input, until these end.
fn run_member(args: &[String]) -> Result<(), Box<dyn Error>> {
    let [rank, directory, secret, addresses @ ..] = args else {
        return Err("give a rank, a directory, a file with a secret or -, and addresses".into());
    };
    let secret = match &**secret {
        "-" => Secret::default(),
        path => Secret::parse(&std::fs::read(path)?)?,
    };
    let addresses = addresses.iter().map(|at| at.parse()).collect::<Result<_, _>>()?;
    let member = replicate::member::<ExampleLog>(&MemberOptions {
        protocol: "toto-partitionable".to_string(),
        // A member of this example that has to wait for its turn on a busy machine is not taken for one that is cut off.
        set: vec![("suspect_us".to_string(), "300000".to_string())],
        group: GROUP,
        secret,
        addresses,
        rank: rank.parse()?,
        directory: PathBuf::from(directory),
        limits: ReconcileLimits::default(),
        record: std::env::var_os("PARTITION_LOG_RECORD").map(PathBuf::from),
    })?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        match obey(&member, &line?) {
            Ok(lines) => lines.iter().try_for_each(|line| writeln!(out, "{line}"))?,
            Err(why) => writeln!(out, "error: {why}")?,
        }
        writeln!(out, "{}", process::END)?;
        out.flush()?;
    }
    Ok(())
}

/// Starts a member of this program.
fn start(
    rank: usize,
    directory: &std::path::Path,
    addresses: &[String],
) -> Result<MemberProcess, Box<dyn Error>> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.arg("member").arg(rank.to_string()).arg(directory).arg("-").args(addresses);
    Ok(MemberProcess::start(command)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "member") {
        return run_member(&args[1..]);
    }
    let directory = std::env::temp_dir().join(format!("partition-log-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let ended = show(&directory);
    std::fs::remove_dir_all(&directory)?;
    ended
}

fn show(directory: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let addresses = free_addresses(3)?;
    let begin = |rank| start(rank, directory, &addresses);
    let mut members = [begin(0)?, begin(1)?, begin(2)?];
    wait_for_one_view(&mut members.iter_mut().collect::<Vec<_>>())?;
    println!("p1 {}", members[1].ask_one("append 1 1 by-all")?);
    let [first, second, third] = members;
    second.end()?;
    third.end()?;
    let mut first = first;
    println!("p0 {}", first.ask_one("append 0 1 by-the-one-that-is-left")?);
    let mut members = [first, begin(1)?, begin(2)?];
    println!("p1 {}", members[1].ask_one("append 1 2 by-one-that-began-anew")?);
    println!("p2 {}", members[2].ask_one("append 2 1 by-another-one")?);
    wait_for_one_view(&mut members.iter_mut().collect::<Vec<_>>())?;
    println!("p2 {}", members[2].ask_one("append 2 2 by-all-again")?);
    let logs = members.each_mut().map(|member| member.wait_for_entries(5));
    let [log, others @ ..] = logs;
    let log = log?;
    for line in &log {
        println!("{line}");
    }
    for other in others {
        if other? != log {
            return Err("members have different logs".into());
        }
    }
    println!("the log of {} entries is the same at each of 3 members", log.len());
    members.into_iter().try_for_each(MemberProcess::end)?;
    Ok(())
}
