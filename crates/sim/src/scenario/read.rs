//! From the text of a scenario to a [`Scenario`].

use super::{Scenario, ScenarioBlock, ScenarioTimes};
use crate::barrier::Barrier;
use crate::faults::{Fault, FaultTime, Strike};
use crate::plan::PlannedCast;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use amcast_core::{Config, Entry, Gid, GroupSet, Overlay, Pid, RawConfig, Span, Time};
use core::fmt;

/// Why a scenario cannot be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioError {
    /// The line, counted from 1.
    pub line: usize,
    /// The problem.
    pub why: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl core::error::Error for ScenarioError {}

/// The largest time that can be given: a scenario is a short run.
const SECONDS_MAX: u64 = 10;

/// The largest payload that can be asked for, in bytes; a protocol may take less.
const BYTES_MAX: usize = 1 << 20;

/// How long a member may take to leave.
const PATIENCE: Span = Span::millis(100);

/// The content of the first block.
struct ScenarioHeader {
    entry: &'static dyn Entry,
    config: Config,
}

impl Scenario {
    /// Reads the commands of a scenario; what is written as their outcome is not looked at.
    ///
    /// # Errors
    /// The line that cannot be read, and why.
    pub fn read(
        text: &str,
        find: &dyn Fn(&str) -> Option<&'static dyn Entry>,
    ) -> Result<Self, ScenarioError> {
        let mut reading = ScenarioReader {
            find,
            header: None,
            times: ScenarioTimes {
                write: Span::micros(1),
                message: Span::micros(10),
                notice: Span::millis(1),
                sync: Span::micros(100),
            },
            shown: Vec::new(),
            deaths: Vec::new(),
            blocks: Vec::new(),
            block: ScenarioBlock::default(),
        };
        let mut expected = false;
        let mut last = 0;
        for (i, line) in text.lines().enumerate() {
            last = i + 1;
            let line = line.trim_end();
            if expected {
                expected = !line.is_empty();
            } else if line == "----" {
                reading.close().map_err(|why| ScenarioError { line: i + 1, why })?;
                expected = true;
            } else {
                reading.command(line).map_err(|why| ScenarioError { line: i + 1, why })?;
            }
        }
        reading.finish().map_err(|why| ScenarioError { line: last, why })
    }
}

struct ScenarioReader<'a> {
    find: &'a dyn Fn(&str) -> Option<&'static dyn Entry>,
    header: Option<ScenarioHeader>,
    times: ScenarioTimes,
    shown: Vec<String>,
    deaths: Vec<u64>,
    blocks: Vec<ScenarioBlock>,
    block: ScenarioBlock,
}

impl ScenarioReader<'_> {
    fn command(&mut self, line: &str) -> Result<(), String> {
        self.block.text.push_str(line);
        self.block.text.push('\n');
        let words: Vec<&str> = line.split_whitespace().collect();
        let first = self.blocks.is_empty();
        match words[..] {
            [] => Ok(()),
            [word, ..] if word.starts_with('#') => Ok(()),
            ["run", name, ref values @ ..] if first && self.header.is_none() => {
                self.run(name, values)
            }
            ["time", ref values @ ..] if first => self.time(values),
            ["show", ref what @ ..] if first => {
                self.shown.extend(what.iter().map(ToString::to_string));
                Ok(())
            }
            ["at", at, ref what @ ..] if !first => {
                let at = Time::ZERO + span(at)?;
                let since = self.blocks.last().and_then(|b| b.at).unwrap_or(Time::ZERO);
                if at < *self.block.at.get_or_insert(at) || at < since {
                    return Err("times must not go back".to_string());
                }
                self.strike(at, what)
            }
            _ => Err(alloc::format!("{line:?} is no command here")),
        }
    }

    /// The commands of a block are over.
    fn close(&mut self) -> Result<(), String> {
        let block = core::mem::take(&mut self.block);
        match (&self.header, block.at) {
            (None, _) => return Err("the first block must say what is run".to_string()),
            (_, None) if !self.blocks.is_empty() => {
                return Err("a block without a command".to_string());
            }
            _ => self.blocks.push(block),
        }
        Ok(())
    }

    fn finish(self) -> Result<Scenario, String> {
        let Self { header, times, shown, deaths, blocks, block, .. } = self;
        if block.text.lines().any(|line| !line.is_empty()) {
            return Err("the last commands lack their line of dashes".to_string());
        }
        match header {
            Some(ScenarioHeader { entry, config }) if !blocks.is_empty() => {
                Ok(Scenario { entry, config, times, shown, deaths, blocks })
            }
            _ => Err("nothing is run".to_string()),
        }
    }

    fn run(&mut self, name: &str, values: &[&str]) -> Result<(), String> {
        let entry = (self.find)(name).ok_or_else(|| alloc::format!("no protocol {name:?}"))?;
        let mut raw = RawConfig::default();
        for value in values {
            let (name, value) = pair(value)?;
            match name {
                "groups" => raw.groups = number(value)?,
                "replicas" => raw.replicas = number(value)?,
                "clients" => raw.clients = number(value)?,
                "overlay" => raw.overlay = value.to_string(),
                _ => drop(raw.set.insert(name.to_string(), value.to_string())),
            }
        }
        let config = raw.check(entry.about().params).map_err(|e| e.to_string())?;
        amcast_core::entry::build_all(entry, &config).map_err(|e| e.to_string())?;
        self.header = Some(ScenarioHeader { entry, config });
        Ok(())
    }

    fn time(&mut self, values: &[&str]) -> Result<(), String> {
        for value in values {
            let (name, value) = pair(value)?;
            let value = span(value)?;
            match name {
                "write" => self.times.write = value,
                "message" => self.times.message = value,
                "notice" => self.times.notice = value,
                "sync" => self.times.sync = value,
                _ => return Err(alloc::format!("{name:?} takes no time that could be set")),
            }
        }
        Ok(())
    }

    fn leave(&self, p: &str, down: Option<Span>) -> Result<Fault, String> {
        Ok(Fault::Leave { p: self.process(p)?, patience: PATIENCE, down })
    }

    fn overlay(&self, p: &str, parents: &str) -> Result<Fault, String> {
        let parents = parents.split(',').map(|parent| parent.parse().map_err(|_| parent));
        let parents: Vec<i64> = parents
            .collect::<Result<_, _>>()
            .map_err(|parent| alloc::format!("{parent:?} is no number of a group, nor -1"))?;
        let overlay = Overlay::new(&parents, self.config()?.cluster().groups());
        Ok(Fault::Overlay { p: self.process(p)?, overlay: overlay.map_err(|e| e.to_string())? })
    }

    fn strike(&mut self, at: Time, what: &[&str]) -> Result<(), String> {
        let fault = match *what {
            ["look"] => return Ok(()),
            ["barrier", p] => {
                let p = self.process(p)?;
                self.block.barriers.push(Barrier { at, p });
                return Ok(());
            }
            ["cast", sender, dst, bytes] => {
                let (sender, dst) = (self.process(sender)?, self.groups(dst)?);
                let bytes = number(bytes)?;
                if bytes > BYTES_MAX {
                    return Err(alloc::format!("at most {BYTES_MAX} bytes"));
                }
                self.block.casts.push(PlannedCast { at, sender, dst, bytes });
                return Ok(());
            }
            ["crash", p, ref how @ ..] => {
                let (after, how) = match how {
                    ["after", outputs, rest @ ..] => (Some(number(outputs)? as u64), rest),
                    rest => (None, rest),
                };
                let down = match how {
                    [] => None,
                    ["for", time] => Some(span(time)?),
                    _ => return Err("crash P [after OUTPUTS] [for SPAN]".to_string()),
                };
                self.deaths.extend(after);
                Fault::Crash { p: self.process(p)?, mid_step: after.is_some(), down }
            }
            ["power", names, ref how @ ..] => self.power(names, how)?,
            ["stall", p, "for", time] => Fault::Stall { p: self.process(p)?, span: span(time)? },
            ["full", p, "for", time] => Fault::Full { p: self.process(p)?, span: span(time)? },
            ["replace", p, "for", time] => {
                Fault::Replace { p: self.process(p)?, span: span(time)? }
            }
            ["damage", p, ppm] => Fault::Damage { p: self.process(p)?, ppm: number(ppm)? as u64 },
            ["hold", from, to, "for", time] => {
                Fault::Link { from: self.process(from)?, to: self.process(to)?, span: span(time)? }
            }
            ["checkpoint", p] => Fault::Checkpoint { p: self.process(p)? },
            ["overlay", p, parents] => self.overlay(p, parents)?,
            ["leave", p] => self.leave(p, None)?,
            ["leave", p, "for", time] => self.leave(p, Some(span(time)?))?,
            ["pause", p, "for", time] => Fault::Pause { p: self.process(p)?, span: span(time)? },
            ["hang", p, "for", time] => Fault::Hang { p: self.process(p)?, span: span(time)? },
            ["cut", a, b, "for", time] => {
                Fault::Cut { a: self.process(a)?, b: self.process(b)?, span: span(time)? }
            }
            ["sever", from, to] => {
                Fault::DeadLink { from: self.process(from)?, to: self.process(to)? }
            }
            ["suspect", to, of, "for", time] => Fault::Suspicion {
                to: self.process(to)?,
                of: self.replica(of)?.0,
                span: span(time)?,
            },
            ["mislead", to, leader, "for", time] => {
                let (leader, group) = self.replica(leader)?;
                Fault::WrongLeader { to: self.process(to)?, group, leader, span: span(time)? }
            }
            _ => return Err(alloc::format!("{:?} is no command", what.join(" "))),
        };
        self.block.strikes.push(Strike { at: FaultTime::Time(at), fault });
        Ok(())
    }

    fn power(&self, names: &str, how: &[&str]) -> Result<Fault, String> {
        let (lost, how) = match how {
            ["keeps", rest @ ..] => (0, rest),
            rest => (u64::MAX, rest),
        };
        let down = match how {
            [] => None,
            ["for", time] => Some(span(time)?),
            _ => return Err("power P,.. [keeps] [for SPAN]".to_string()),
        };
        let outage = |name| self.process(name).map(|p| (p, down));
        let outages = names.split(',').map(outage).collect::<Result<_, _>>()?;
        Ok(Fault::Power { outages, lost: Some(lost) })
    }

    fn config(&self) -> Result<&Config, String> {
        let header = self.header.as_ref();
        header.map(|h| &h.config).ok_or_else(|| "nothing is run".to_string())
    }

    fn process(&self, name: &str) -> Result<Pid, String> {
        let cluster = self.config()?.cluster();
        let named = |p: &Pid| cluster.name(*p).to_string() == name;
        cluster.pids().find(named).ok_or_else(|| alloc::format!("no process is named {name:?}"))
    }

    fn replica(&self, name: &str) -> Result<(Pid, Gid), String> {
        let p = self.process(name)?;
        let group = self.config()?.cluster().group_of(p);
        group.map(|g| (p, g)).ok_or_else(|| alloc::format!("{name} is no replica"))
    }

    fn groups(&self, names: &str) -> Result<GroupSet, String> {
        let all = self.config()?.cluster().all_groups();
        let mut set = GroupSet::EMPTY;
        for name in names.split(',') {
            let found = all.iter().find(|g| g.to_string() == name);
            set = set.with(found.ok_or_else(|| alloc::format!("no group is named {name:?}"))?);
        }
        Ok(set)
    }
}

fn pair(word: &str) -> Result<(&str, &str), String> {
    word.split_once('=').ok_or_else(|| alloc::format!("{word:?} is not NAME=VALUE"))
}

fn number(word: &str) -> Result<usize, String> {
    word.parse().map_err(|_| alloc::format!("{word:?} is no number"))
}

/// A number and a unit: `20us`, `3ms`.
fn span(word: &str) -> Result<Span, String> {
    let wrong = || alloc::format!("{word:?} is no time: give ns, us or ms, such as 20us");
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &word[digits.len()..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        _ => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    let most = SECONDS_MAX * 1_000_000_000;
    let span = count.checked_mul(unit).filter(|&ns| ns <= most);
    span.map(Span).ok_or_else(|| alloc::format!("at most {SECONDS_MAX} seconds"))
}
