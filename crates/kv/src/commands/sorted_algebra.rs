//! Unions, intersections and differences of sorted sets; plain sets count with score 1.

use super::super::Context;
use super::super::data::{Data, Sorted};
use super::super::number::{parse_double, parse_int};
use super::super::registry::{CommandSpec, KeyArguments};
use super::super::reply::{RedisError, Reply};
use super::super::work;
use super::lists::ArgumentSlice;
use super::sets::{card_limit, store_or_delete};

const COUNTED: KeyArguments = KeyArguments::Counted { count: 1, before: 0 };
const STORED: KeyArguments = KeyArguments::Counted { count: 2, before: 1 };

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered("zunion", -3, "readonly", COUNTED, zunion, "Returns what any set has.")
        .taking(work::of_zunion),
    CommandSpec::ordered(
        "zinter",
        -3,
        "readonly",
        COUNTED,
        zinter,
        "Returns the members that all sets have.",
    )
    .taking(work::of_zinter),
    CommandSpec::ordered(
        "zdiff",
        -3,
        "readonly",
        COUNTED,
        zdiff,
        "Returns what only the first set has.",
    )
    .taking(work::of_zdiff),
    CommandSpec::ordered(
        "zunionstore",
        -4,
        "write denyoom",
        STORED,
        zunionstore,
        "Stores what any set has.",
    )
    .taking(work::of_zunionstore),
    CommandSpec::ordered(
        "zinterstore",
        -4,
        "write denyoom",
        STORED,
        zinterstore,
        "Stores the members that all sets have.",
    )
    .taking(work::of_zinterstore),
    CommandSpec::ordered(
        "zdiffstore",
        -4,
        "write denyoom",
        STORED,
        zdiffstore,
        "Stores what only the first has.",
    )
    .taking(work::of_zdiffstore),
    CommandSpec::ordered(
        "zintercard",
        -3,
        "readonly",
        COUNTED,
        zintercard,
        "Counts the members that all sets have.",
    )
    .taking(work::of_zinter),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum SortedMix {
    Union,
    Inter,
    Diff,
}

impl SortedMix {
    const fn name(self) -> &'static str {
        match self {
            Self::Union => "zunion",
            Self::Inter => "zinter",
            Self::Diff => "zdiff",
        }
    }
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            // Opposite infinities cancel out.
            Self::Sum => Some(a + b).filter(|s| !s.is_nan()).unwrap_or(0.0),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
        }
    }
}

/// The keys at `args[at + 1..]`, counted by `args[at]`, and what follows.
fn counted<'a, 'b>(
    args: &'b [&'a [u8]],
    at: usize,
    name: &str,
) -> Result<(ArgumentSlice<'a, 'b>, ArgumentSlice<'a, 'b>), RedisError> {
    let n = parse_int(args[at]).ok_or(RedisError::NOT_INTEGER)?;
    if n < 1 {
        return Err(RedisError::new(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    args[at + 1..].split_at_checked(n as usize).ok_or(RedisError::SYNTAX)
}

struct SortedMixOptions {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

fn options(
    mut rest: &[&[u8]],
    keys: usize,
    (how, stored): (SortedMix, bool),
) -> Result<SortedMixOptions, RedisError> {
    let mut o = SortedMixOptions {
        weights: vec![1.0; keys],
        aggregate: Aggregate::Sum,
        with_scores: false,
    };
    while let [word, tail @ ..] = rest {
        rest = match word.to_ascii_lowercase().as_slice() {
            b"weights" if how != SortedMix::Diff && tail.len() >= keys => {
                let weight = |w: &&[u8]| {
                    parse_double(w).ok_or(RedisError::new("ERR weight value is not a float"))
                };
                o.weights = tail[..keys].iter().map(weight).collect::<Result<_, _>>()?;
                &tail[keys..]
            }
            b"aggregate" if how != SortedMix::Diff && !tail.is_empty() => {
                o.aggregate = match tail[0].to_ascii_lowercase().as_slice() {
                    b"sum" => Aggregate::Sum,
                    b"min" => Aggregate::Min,
                    b"max" => Aggregate::Max,
                    _ => return Err(RedisError::SYNTAX),
                };
                &tail[1..]
            }
            b"withscores" if !stored => {
                o.with_scores = true;
                tail
            }
            _ => return Err(RedisError::SYNTAX),
        };
    }
    Ok(o)
}

/// One input: any kind of set, or nothing.
#[derive(Clone, Copy)]
enum SortedInput<'a> {
    Empty,
    Plain(&'a super::super::data::Set),
    Sorted(&'a Sorted),
}

impl<'a> SortedInput<'a> {
    fn of(c: &'a Context<'_>, key: &[u8]) -> Result<Self, RedisError> {
        match c.find(key).map(|e| &e.data) {
            None => Ok(Self::Empty),
            Some(Data::Set(s)) => Ok(Self::Plain(s)),
            Some(Data::Sorted(z)) => Ok(Self::Sorted(z)),
            Some(_) => Err(RedisError::WRONG_TYPE),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Empty => None,
            Self::Plain(s) => s.contains(member).then_some(1.0),
            Self::Sorted(z) => z.score(member),
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Plain(s) => s.len(),
            Self::Sorted(z) => z.len(),
        }
    }

    fn each(self, tell: &mut dyn FnMut(&[u8], f64)) {
        match self {
            Self::Empty => {}
            Self::Plain(s) => s.iter().for_each(|m| tell(m, 1.0)),
            Self::Sorted(z) => z.iter_from(0).for_each(|(m, s)| tell(m, s)),
        }
    }
}

/// The sets of these keys.
fn inputs<'a>(c: &'a Context<'_>, keys: &[&[u8]]) -> Result<Vec<SortedInput<'a>>, RedisError> {
    keys.iter().map(|k| SortedInput::of(c, k)).collect()
}

fn mix(inputs: &[SortedInput<'_>], how: SortedMix, o: &SortedMixOptions) -> Sorted {
    let weigh = |i: usize, s: f64| Some(s * o.weights[i]).filter(|s| !s.is_nan()).unwrap_or(0.0);
    let mut out = Sorted::default();
    match how {
        SortedMix::Union => {
            for (i, input) in inputs.iter().enumerate() {
                input.each(&mut |m, s| {
                    let s = weigh(i, s);
                    let sum = out.score(m).map_or(s, |old| o.aggregate.of(old, s));
                    out.set(m, sum);
                });
            }
        }
        SortedMix::Diff => inputs[0].each(&mut |m, s| {
            if inputs[1..].iter().all(|other| other.score(m).is_none()) {
                out.set(m, s);
            }
        }),
        SortedMix::Inter => {
            let smallest = inputs.iter().min_by_key(|i| i.len()).expect("an input at least");
            smallest.each(&mut |m, _| {
                let scores: Option<Vec<f64>> = inputs.iter().map(|i| i.score(m)).collect();
                let weighed = scores.into_iter().flatten().enumerate().map(|(i, s)| weigh(i, s));
                if let Some(s) = weighed.reduce(|a, b| o.aggregate.of(a, b)) {
                    out.set(m, s);
                }
            });
        }
    }
    out
}

fn show(
    c: &Context<'_>,
    args: &[&[u8]],
    how: SortedMix,
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let (keys, rest) = counted(args, 1, how.name())?;
    let inputs = inputs(c, keys)?;
    let o = options(rest, keys.len(), (how, false))?;
    let found = mix(&inputs, how, &o);
    if o.with_scores {
        reply.pairs(found.len());
    } else {
        reply.array(found.len());
    }
    for (member, score) in found.iter_from(0) {
        reply.bulk(member);
        if o.with_scores {
            reply.double(score);
        }
    }
    Ok(())
}

fn keep(
    c: &mut Context<'_>,
    args: &[&[u8]],
    how: SortedMix,
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let (keys, rest) = counted(args, 2, &format!("{}store", how.name()))?;
    let inputs = inputs(c, keys)?;
    let o = options(rest, keys.len(), (how, true))?;
    let found = mix(&inputs, how, &o);
    reply.count(found.len());
    store_or_delete(c, args[1], found);
    Ok(())
}

fn zunion(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    show(c, args, SortedMix::Union, reply)
}

fn zinter(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    show(c, args, SortedMix::Inter, reply)
}

fn zdiff(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    show(c, args, SortedMix::Diff, reply)
}

fn zunionstore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    keep(c, args, SortedMix::Union, reply)
}

fn zinterstore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    keep(c, args, SortedMix::Inter, reply)
}

fn zdiffstore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    keep(c, args, SortedMix::Diff, reply)
}

fn zintercard(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let (keys, rest) = counted(args, 1, "zintercard")?;
    // Keys of another type come before wrong options, other than with SINTERCARD.
    inputs(c, keys)?;
    let limit = card_limit(rest)?;
    let o = options(&[], keys.len(), (SortedMix::Inter, false))?;
    reply.count(mix(&inputs(c, keys)?, SortedMix::Inter, &o).len().min(limit));
    Ok(())
}
