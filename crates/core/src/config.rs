//! Configuration in two types: [`RawConfig`] as written, [`Config`] as checked.
//!
//! Every parameter is declared once, as a [`Param`], with its unit, default, range, cost and
//! source; help texts, the file template and `config --explain` are made from the declarations.

use crate::cluster::{ClusterError, ClusterShape, Overlay, OverlayError};
use crate::id::{Gid, GroupSet};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// A parameter of a protocol or of the program, declared once.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name; the unit comes last (`heartbeat_us`).
    pub name: &'static str,
    /// Its values.
    pub kind: ParamKind,
    /// Its meaning.
    pub about: &'static str,
    /// The cost, or the gain, of a larger value.
    pub cost: &'static str,
    /// Where it comes from: a paper's section and symbol, or a measurement.
    pub source: &'static str,
}

/// The values of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum ParamKind {
    /// A whole number.
    Number {
        /// When nothing is written.
        default: u64,
        /// The smallest that makes sense.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// One of some words; its value is the word's index.
    Choice {
        /// The words. The first is the default.
        of: &'static [&'static str],
    },
    /// Sets of groups, such as `0+1,1+2`; none is the default. Its value is how many there are:
    /// [`Config::sets`] says which.
    Sets,
}

impl Param {
    /// The value when nothing is written.
    pub const fn default(&self) -> u64 {
        match self.kind {
            ParamKind::Number { default, .. } => default,
            ParamKind::Choice { .. } | ParamKind::Sets => 0,
        }
    }

    fn read(&'static self, text: &str, cluster: &ClusterShape) -> Result<u64, ConfigError> {
        let wrong = || ConfigError::Value { param: self, given: text.to_string() };
        match self.kind {
            ParamKind::Number { min, max, .. } => {
                let digits = text.replace('_', "");
                let n: u64 = digits.parse().map_err(|_| wrong())?;
                if (min..=max).contains(&n) { Ok(n) } else { Err(wrong()) }
            }
            ParamKind::Choice { of } => {
                of.iter().position(|&word| word == text).map(|i| i as u64).ok_or_else(wrong)
            }
            ParamKind::Sets => {
                read_sets(text, cluster).map(|sets| sets.len() as u64).ok_or_else(wrong)
            }
        }
    }
}

/// The sets of groups of a cluster that `text` names, each once; none if it names anything else.
fn read_sets(text: &str, cluster: &ClusterShape) -> Option<Vec<GroupSet>> {
    let mut sets = Vec::new();
    if text == "none" {
        return Some(sets);
    }
    for names in text.split(',') {
        let mut set = GroupSet::EMPTY;
        for name in names.split('+') {
            let group: u8 = name.trim().parse().ok()?;
            if usize::from(group) >= cluster.groups() || set.contains(Gid(group)) {
                return None;
            }
            set = set.with(Gid(group));
        }
        if set.len() < 2 || sets.contains(&set) {
            return None;
        }
        sets.push(set);
    }
    Some(sets)
}

/// A configuration as written: shape, overlay, and settings by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawConfig {
    /// Number of groups.
    pub groups: usize,
    /// Replicas in each group.
    pub replicas: usize,
    /// Client processes.
    pub clients: usize,
    /// `base`, `breadth`, `depth`, or the parents of the groups: `-1,0,0`.
    pub overlay: String,
    /// Settings of parameters.
    pub set: BTreeMap<String, String>,
}

impl Default for RawConfig {
    fn default() -> Self {
        Self {
            groups: 3,
            replicas: 3,
            clients: 2,
            overlay: "breadth".to_string(),
            set: BTreeMap::new(),
        }
    }
}

/// A checked configuration: every value is in range and every name is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    cluster: ClusterShape,
    overlay: Overlay,
    values: Vec<(&'static str, u64)>,
    sets: Vec<(&'static str, Vec<GroupSet>)>,
}

/// Why a configuration was refused.
#[derive(Clone, Debug)]
pub enum ConfigError {
    /// The shape.
    Cluster(ClusterError),
    /// The overlay.
    Overlay(OverlayError),
    /// No parameter has this name; the names there are.
    Unknown(String, Vec<&'static str>),
    /// The value is not one the parameter takes.
    Value {
        /// The parameter.
        param: &'static Param,
        /// The text as written.
        given: String,
    },
    /// Two values do not fit together; the sentence says why, and which would.
    Relation(String),
    /// The protocol has no such role: for example a client of a broadcast among replicas.
    Role(&'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(e) => e.fmt(f),
            Self::Overlay(e) => e.fmt(f),
            Self::Unknown(name, known) => {
                write!(f, "no parameter is named {name:?}; there are: {}", known.join(", "))
            }
            Self::Value { param, given } => match param.kind {
                ParamKind::Number { min, max, .. } => {
                    write!(f, "{} = {given}: give a number from {min} to {max}", param.name)
                }
                ParamKind::Choice { of } => {
                    write!(f, "{} = {given}: give one of {}", param.name, of.join(", "))
                }
                ParamKind::Sets => write!(
                    f,
                    "{} = {given}: give sets of two or more of this cluster's groups, each once, such \
                     as 0+1,1+2, or none",
                    param.name
                ),
            },
            Self::Relation(why) => f.write_str(why),
            Self::Role(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for ConfigError {}

impl From<ClusterError> for ConfigError {
    fn from(e: ClusterError) -> Self {
        Self::Cluster(e)
    }
}

impl From<OverlayError> for ConfigError {
    fn from(e: OverlayError) -> Self {
        Self::Overlay(e)
    }
}

impl RawConfig {
    /// Checks everything once, against the parameters of the protocol that will use it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, params: &'static [Param]) -> Result<Config, ConfigError> {
        let cluster = ClusterShape::new(self.groups, self.replicas, self.clients)?;
        let overlay = self.tree()?;
        if let Some(name) = self.set.keys().find(|name| params.iter().all(|p| p.name != **name)) {
            let known = params.iter().map(|p| p.name).collect();
            return Err(ConfigError::Unknown(name.clone(), known));
        }
        let value = |p: &'static Param| match self.set.get(p.name) {
            Some(text) => p.read(text, &cluster),
            None => Ok(p.default()),
        };
        let values = params
            .iter()
            .map(|p| Ok((p.name, value(p)?)))
            .collect::<Result<Vec<_>, ConfigError>>()?;
        let sets = |p: &'static Param| {
            let text = self.set.get(p.name).filter(|_| matches!(p.kind, ParamKind::Sets))?;
            Some((p.name, read_sets(text, &cluster)?))
        };
        let sets = params.iter().filter_map(sets).collect();
        Ok(Config { cluster, overlay, values, sets })
    }

    fn tree(&self) -> Result<Overlay, ConfigError> {
        Ok(match self.overlay.as_str() {
            "base" => Overlay::base(self.groups),
            "breadth" => Overlay::breadth(self.groups),
            "depth" => Overlay::depth(self.groups),
            list => {
                let parents = list
                    .split(',')
                    .map(|p| p.trim().parse::<i64>())
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|_| {
                        ConfigError::Relation(alloc::format!(
                            "overlay = {list}: give base, breadth, depth, or parents such as -1,0,0"
                        ))
                    })?;
                Overlay::new(&parents, self.groups)?
            }
        })
    }
}

impl Config {
    /// The cluster's shape.
    pub const fn cluster(&self) -> &ClusterShape {
        &self.cluster
    }

    /// The tree over the groups.
    pub const fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// Whether the configuration was checked with this parameter: not all rows of a family have the same.
    pub fn has(&self, param: &Param) -> bool {
        self.find(param.name).is_some()
    }

    /// The value of a parameter. Panics if the configuration was checked without it.
    pub fn get(&self, param: &Param) -> u64 {
        let found = self.find(param.name);
        found.unwrap_or_else(|| panic!("{} was not among the checked parameters", param.name))
    }

    /// The value of the parameter of that name, if the configuration was checked with it.
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The sets of groups that a parameter of [`ParamKind::Sets`] names, in the order in which they were
    /// written; none if nothing was.
    pub fn sets(&self, param: &Param) -> &[GroupSet] {
        let found = self.sets.iter().find(|(name, _)| *name == param.name);
        found.map_or(&[], |(_, sets)| sets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PARAMS: [Param; 3] = [
        Param {
            name: "ring_lines",
            kind: ParamKind::Number { default: 64, min: 8, max: 1024 },
            about: "Lines of a ring.",
            cost: "64 bytes each.",
            source: "ours",
        },
        Param {
            name: "mode",
            kind: ParamKind::Choice { of: &["fast", "safe"] },
            about: "How.",
            cost: "None.",
            source: "ours",
        },
        Param {
            name: "sets",
            kind: ParamKind::Sets,
            about: "Which.",
            cost: "None.",
            source: "ours",
        },
    ];

    fn with(name: &str, value: &str) -> Result<Config, ConfigError> {
        let mut raw = RawConfig::default();
        raw.set.insert(name.to_string(), value.to_string());
        raw.check(&PARAMS)
    }

    #[test]
    fn defaults_hold_and_settings_are_checked() {
        let c = RawConfig::default().check(&PARAMS).unwrap();
        assert_eq!((c.get(&PARAMS[0]), c.get(&PARAMS[1])), (64, 0));
        assert_eq!(with("ring_lines", "1_000").unwrap().get(&PARAMS[0]), 1000);
        assert_eq!(with("mode", "safe").unwrap().get(&PARAMS[1]), 1);
        let text = |r: Result<Config, ConfigError>| r.unwrap_err().to_string();
        assert_eq!(text(with("ring_lines", "4")), "ring_lines = 4: give a number from 8 to 1024");
        assert_eq!(text(with("mode", "x")), "mode = x: give one of fast, safe");
        assert_eq!(
            text(with("nope", "1")),
            "no parameter is named \"nope\"; there are: ring_lines, mode, sets"
        );
    }

    #[test]
    fn sets_of_groups_are_of_this_cluster_and_each_is_there_once() {
        let set = |bits| GroupSet(bits);
        let c = with("sets", "0+1, 2 + 1,0+1+2").unwrap();
        assert_eq!(c.sets(&PARAMS[2]), [set(0b011), set(0b110), set(0b111)]);
        assert_eq!(c.get(&PARAMS[2]), 3);
        for none in [with("sets", "none"), with("mode", "fast")] {
            assert!(none.unwrap().sets(&PARAMS[2]).is_empty());
        }
        for wrong in ["", "0", "0+3", "0+0", "0+1,1+0", "0+1,", "a+b", "0-1"] {
            let said = with("sets", wrong).unwrap_err().to_string();
            assert!(said.contains("give sets of two or more"), "{wrong}: {said}");
        }
    }

    #[test]
    fn the_overlay_is_a_name_or_a_list() {
        let raw = RawConfig { overlay: "-1,0,1".to_string(), ..RawConfig::default() };
        assert_eq!(*raw.check(&PARAMS).unwrap().overlay(), Overlay::depth(3));
        let raw = RawConfig { overlay: "ring".to_string(), ..RawConfig::default() };
        assert!(raw.check(&PARAMS).unwrap_err().to_string().contains("give base, breadth"));
    }
}
