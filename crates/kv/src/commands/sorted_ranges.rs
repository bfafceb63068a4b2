//! Ranges of sorted sets: by rank, by score, by member.

use super::super::Context;
use super::super::data::Sorted;
use super::super::number::{int, parse_double};
use super::super::registry::{Command, ONE, TWO};
use super::super::reply::{Error, Reply};
use super::super::work;
use super::sets::store_or_delete;
use super::strings::clamp;
use std::ops::Range;
use std::sync::Arc;

pub(crate) const COMMANDS: &[Command] = &[
    Command::ordered("zrange", -4, "readonly", ONE, zrange, "Returns a range of members."),
    Command::ordered(
        "zrangestore",
        -5,
        "write denyoom",
        TWO,
        zrangestore,
        "Stores a range of members.",
    )
    .taking(work::of_zrangestore),
    Command::ordered(
        "zrevrange",
        -4,
        "readonly",
        ONE,
        zrevrange,
        "Returns a range of ranks, from the end.",
    ),
    Command::ordered(
        "zrangebyscore",
        -4,
        "readonly",
        ONE,
        zrangebyscore,
        "Returns a range of scores.",
    ),
    Command::ordered(
        "zrevrangebyscore",
        -4,
        "readonly",
        ONE,
        zrevrangebyscore,
        "The same, from the end.",
    ),
    Command::ordered(
        "zrangebylex",
        -4,
        "readonly",
        ONE,
        zrangebylex,
        "Returns a range of members by name.",
    ),
    Command::ordered(
        "zrevrangebylex",
        -4,
        "readonly",
        ONE,
        zrevrangebylex,
        "The same, from the end.",
    ),
    Command::ordered("zcount", 4, "readonly fast", ONE, zcount, "Counts a range of scores."),
    Command::ordered(
        "zlexcount",
        4,
        "readonly fast",
        ONE,
        zlexcount,
        "Counts a range of members by name.",
    ),
    Command::ordered(
        "zremrangebyrank",
        4,
        "write",
        ONE,
        zremrangebyrank,
        "Removes a range of ranks.",
    ),
    Command::ordered(
        "zremrangebyscore",
        4,
        "write",
        ONE,
        zremrangebyscore,
        "Removes a range of scores.",
    ),
    Command::ordered(
        "zremrangebylex",
        4,
        "write",
        ONE,
        zremrangebylex,
        "Removes a range of members by name.",
    ),
];

/// A bound on scores.
struct ScoreBound {
    score: f64,
    open: bool,
}

impl ScoreBound {
    fn parse(arg: &[u8]) -> Result<Self, Error> {
        let (open, digits) = arg.strip_prefix(b"(").map_or((false, arg), |d| (true, d));
        let score = parse_double(digits).ok_or(Error::new("ERR min or max is not a float"))?;
        Ok(Self { score, open })
    }
}

/// A bound on members.
enum LexBound<'a> {
    Lowest,
    Highest,
    Closed(&'a [u8]),
    Open(&'a [u8]),
}

impl<'a> LexBound<'a> {
    fn parse(arg: &'a [u8]) -> Result<Self, Error> {
        match arg {
            b"-" => Ok(Self::Lowest),
            b"+" => Ok(Self::Highest),
            [b'[', rest @ ..] => Ok(Self::Closed(rest)),
            [b'(', rest @ ..] => Ok(Self::Open(rest)),
            _ => Err(Error::new("ERR min or max not valid string range item")),
        }
    }
}

/// What a range is measured in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// A range as asked for, `low` being the lower bound.
enum Bounds<'a> {
    Ranks(i64, i64),
    Scores(ScoreBound, ScoreBound),
    Members(LexBound<'a>, LexBound<'a>),
}

impl<'a> Bounds<'a> {
    fn parse(by: By, low: &'a [u8], high: &'a [u8]) -> Result<Self, Error> {
        Ok(match by {
            By::Rank => Self::Ranks(int(low)?, int(high)?),
            By::Score => Self::Scores(ScoreBound::parse(low)?, ScoreBound::parse(high)?),
            By::Lex => Self::Members(LexBound::parse(low)?, LexBound::parse(high)?),
        })
    }

    /// The ranks in it; counted from the end if `reverse`, which matters for ranks only.
    fn ranks(&self, z: &Sorted, reverse: bool) -> Range<usize> {
        let (start, end) = match self {
            Self::Ranks(start, end) => {
                let r = clamp(*start, *end, z.len());
                let n = z.len();
                if reverse && !r.is_empty() { (n - r.end, n - r.start) } else { (r.start, r.end) }
            }
            Self::Scores(low, high) => (
                z.count_before(|s, _| if low.open { s <= low.score } else { s < low.score }),
                z.count_before(|s, _| if high.open { s < high.score } else { s <= high.score }),
            ),
            Self::Members(low, high) => (
                z.count_before(|_, m| match low {
                    LexBound::Lowest => false,
                    LexBound::Highest => true,
                    LexBound::Closed(b) => m < *b,
                    LexBound::Open(b) => m <= *b,
                }),
                z.count_before(|_, m| match high {
                    LexBound::Lowest => false,
                    LexBound::Highest => true,
                    LexBound::Closed(b) => m <= *b,
                    LexBound::Open(b) => m < *b,
                }),
            ),
        };
        start..end.max(start)
    }
}

/// A range command, all its forms.
struct Query<'a> {
    bounds: Bounds<'a>,
    reverse: bool,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

impl<'a> Query<'a> {
    /// Reads bounds and options; `by` and `reverse` are given for the old forms, which name their
    /// upper bound first if they go backwards.
    fn parse(args: &[&'a [u8]], fixed: Option<(By, bool)>, stored: bool) -> Result<Self, Error> {
        let (mut by, mut reverse) = fixed.unwrap_or((By::Rank, false));
        let (mut with_scores, mut offset, mut limit, mut limited) = (false, 0, -1, false);
        let mut rest = &args[2..];
        while let [word, tail @ ..] = rest {
            rest = tail;
            match word.to_ascii_lowercase().as_slice() {
                b"withscores" if !stored => with_scores = true,
                b"limit" if tail.len() >= 2 => {
                    (offset, limit, limited) = (int(tail[0])?, int(tail[1])?, true);
                    rest = &tail[2..];
                }
                b"byscore" if fixed.is_none() => by = By::Score,
                b"bylex" if fixed.is_none() => by = By::Lex,
                b"rev" if fixed.is_none() => reverse = true,
                _ => return Err(Error::SYNTAX),
            }
        }
        if limited && by == By::Rank {
            return Err(Error::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Lex {
            return Err(Error::new(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let swapped = reverse && by != By::Rank;
        let (low, high) = if swapped { (args[1], args[0]) } else { (args[0], args[1]) };
        let bounds = Bounds::parse(by, low, high)?;
        Ok(Self { bounds, reverse, with_scores, offset, limit })
    }

    fn find(&self, z: Option<&Sorted>) -> Vec<(Arc<[u8]>, f64)> {
        let Some(z) = z else { return Vec::new() };
        let ranks = self.bounds.ranks(z, self.reverse);
        let Ok(offset) = usize::try_from(self.offset) else { return Vec::new() };
        let rest = ranks.len().saturating_sub(offset);
        let n = usize::try_from(self.limit).map_or(rest, |limit| limit.min(rest));
        if n == 0 {
            return Vec::new();
        }
        let copy = |(m, s): (&Arc<[u8]>, f64)| (m.clone(), s);
        if self.reverse {
            z.iter_back_from(ranks.end - 1 - offset).take(n).map(copy).collect()
        } else {
            z.iter_from(ranks.start + offset).take(n).map(copy).collect()
        }
    }
}

fn query(
    c: &Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    fixed: Option<(By, bool)>,
) -> Result<(), Error> {
    let query = Query::parse(&args[2..], fixed, false)?;
    let found = query.find(c.get::<Sorted>(args[1])?);
    if query.with_scores {
        reply.pairs(found.len());
    } else {
        reply.array(found.len());
    }
    for (member, score) in &found {
        reply.bulk(member);
        if query.with_scores {
            reply.double(*score);
        }
    }
    Ok(())
}

fn zrange(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    query(c, args, reply, None)
}

fn zrevrange(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    query(c, args, reply, Some((By::Rank, true)))
}

fn zrangebyscore(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    query(c, args, reply, Some((By::Score, false)))
}

fn zrevrangebyscore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    query(c, args, reply, Some((By::Score, true)))
}

fn zrangebylex(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    query(c, args, reply, Some((By::Lex, false)))
}

fn zrevrangebylex(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    query(c, args, reply, Some((By::Lex, true)))
}

fn zrangestore(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    let query = Query::parse(&args[3..], None, true)?;
    let found = query.find(c.get::<Sorted>(args[2])?);
    let mut sorted = Sorted::default();
    for (member, score) in &found {
        sorted.set(member, *score);
    }
    reply.count(sorted.len());
    store_or_delete(c, args[1], sorted);
    Ok(())
}

fn count(c: &Context<'_>, args: &[&[u8]], by: By, reply: &mut Reply<'_>) -> Result<(), Error> {
    let bounds = Bounds::parse(by, args[2], args[3])?;
    let sorted = c.get::<Sorted>(args[1])?;
    reply.count(sorted.map_or(0, |z| bounds.ranks(z, false).len()));
    Ok(())
}

fn zcount(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    count(c, args, By::Score, reply)
}

fn zlexcount(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    count(c, args, By::Lex, reply)
}

fn remove(c: &mut Context<'_>, args: &[&[u8]], by: By, reply: &mut Reply<'_>) -> Result<(), Error> {
    let bounds = Bounds::parse(by, args[2], args[3])?;
    let store = c.store(args[1]);
    let mut removed = 0;
    if let Some(z) = store.get_mut::<Sorted>(args[1])? {
        let ranks = bounds.ranks(z, false);
        removed = ranks.len();
        let members: Vec<_> =
            z.iter_from(ranks.start).take(removed).map(|(m, _)| m.clone()).collect();
        for member in members {
            z.remove(&member);
        }
        store.settle(args[1], removed > 0);
    }
    reply.count(removed);
    Ok(())
}

fn zremrangebyrank(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    remove(c, args, By::Rank, reply)
}

fn zremrangebyscore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    remove(c, args, By::Score, reply)
}

fn zremrangebylex(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Error> {
    remove(c, args, By::Lex, reply)
}
