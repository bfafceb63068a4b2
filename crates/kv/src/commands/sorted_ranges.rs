//! Ranges of sorted sets: by rank, by score, by member.

use super::super::Context;
use super::super::data::Sorted;
use super::super::number::{int, parse_loose_double};
use super::super::registry::{CommandSpec, ONE, TWO};
use super::super::reply::{RedisError, Reply};
use super::super::work;
use super::sets::store_or_delete;
use super::strings::clamp;
use std::ops::Range;
use std::sync::Arc;

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered("zrange", -4, "readonly", ONE, zrange, "Returns a range of members."),
    CommandSpec::ordered(
        "zrangestore",
        -5,
        "write denyoom",
        TWO,
        zrangestore,
        "Stores a range of members.",
    )
    .taking(work::of_zrangestore),
    CommandSpec::ordered(
        "zrevrange",
        -4,
        "readonly",
        ONE,
        zrevrange,
        "Returns a range of ranks, from the end.",
    ),
    CommandSpec::ordered(
        "zrangebyscore",
        -4,
        "readonly",
        ONE,
        zrangebyscore,
        "Returns a range of scores.",
    ),
    CommandSpec::ordered(
        "zrevrangebyscore",
        -4,
        "readonly",
        ONE,
        zrevrangebyscore,
        "The same, from the end.",
    ),
    CommandSpec::ordered(
        "zrangebylex",
        -4,
        "readonly",
        ONE,
        zrangebylex,
        "Returns a range of members by name.",
    ),
    CommandSpec::ordered(
        "zrevrangebylex",
        -4,
        "readonly",
        ONE,
        zrevrangebylex,
        "The same, from the end.",
    ),
    CommandSpec::ordered("zcount", 4, "readonly fast", ONE, zcount, "Counts a range of scores."),
    CommandSpec::ordered(
        "zlexcount",
        4,
        "readonly fast",
        ONE,
        zlexcount,
        "Counts a range of members by name.",
    ),
    CommandSpec::ordered(
        "zremrangebyrank",
        4,
        "write",
        ONE,
        zremrangebyrank,
        "Removes a range of ranks.",
    ),
    CommandSpec::ordered(
        "zremrangebyscore",
        4,
        "write",
        ONE,
        zremrangebyscore,
        "Removes a range of scores.",
    ),
    CommandSpec::ordered(
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
    fn parse(arg: &[u8]) -> Result<Self, RedisError> {
        let (open, digits) = arg.strip_prefix(b"(").map_or((false, arg), |d| (true, d));
        let score =
            parse_loose_double(digits).ok_or(RedisError::new("ERR min or max is not a float"))?;
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
    fn parse(arg: &'a [u8]) -> Result<Self, RedisError> {
        match arg {
            b"-" => Ok(Self::Lowest),
            b"+" => Ok(Self::Highest),
            [b'[', rest @ ..] => Ok(Self::Closed(rest)),
            [b'(', rest @ ..] => Ok(Self::Open(rest)),
            _ => Err(RedisError::new("ERR min or max not valid string range item")),
        }
    }
}

/// The unit of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeUnit {
    Rank,
    Score,
    Lex,
}

/// A range as asked for, `low` being the lower bound.
enum RangeBounds<'a> {
    Ranks(i64, i64),
    Scores(ScoreBound, ScoreBound),
    Members(LexBound<'a>, LexBound<'a>),
}

impl<'a> RangeBounds<'a> {
    fn parse(by: RangeUnit, low: &'a [u8], high: &'a [u8]) -> Result<Self, RedisError> {
        Ok(match by {
            RangeUnit::Rank => Self::Ranks(int(low)?, int(high)?),
            RangeUnit::Score => Self::Scores(ScoreBound::parse(low)?, ScoreBound::parse(high)?),
            RangeUnit::Lex => Self::Members(LexBound::parse(low)?, LexBound::parse(high)?),
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
struct RangeQuery<'a> {
    bounds: RangeBounds<'a>,
    reverse: bool,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

impl<'a> RangeQuery<'a> {
    /// Reads bounds and options; `by` and `reverse` are given for the old forms, which name their
    /// upper bound first if they go backwards.
    fn parse(
        args: &[&'a [u8]],
        fixed: Option<(RangeUnit, bool)>,
        stored: bool,
    ) -> Result<Self, RedisError> {
        let (mut by, mut reverse) = fixed.unwrap_or((RangeUnit::Rank, false));
        let mut with_scores = false;
        let mut offset = 0;
        let mut limit = -1;
        let mut rest = &args[2..];
        while let [word, tail @ ..] = rest {
            rest = tail;
            match word.to_ascii_lowercase().as_slice() {
                b"withscores" if !stored => with_scores = true,
                b"limit" if tail.len() >= 2 => {
                    (offset, limit) = (int(tail[0])?, int(tail[1])?);
                    rest = &tail[2..];
                }
                b"byscore" if fixed.is_none() => by = RangeUnit::Score,
                b"bylex" if fixed.is_none() => by = RangeUnit::Lex,
                b"rev" if fixed.is_none() => reverse = true,
                _ => return Err(RedisError::SYNTAX),
            }
        }
        // Redis takes -1 for no limit here as well.
        if limit != -1 && by == RangeUnit::Rank {
            return Err(RedisError::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if by == RangeUnit::Rank {
            // It has no meaning without a limit, and Redis ignores it.
            offset = 0;
        }
        if with_scores && by == RangeUnit::Lex {
            return Err(RedisError::new(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let swapped = reverse && by != RangeUnit::Rank;
        let (low, high) = if swapped { (args[1], args[0]) } else { (args[0], args[1]) };
        let bounds = RangeBounds::parse(by, low, high)?;
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
    fixed: Option<(RangeUnit, bool)>,
) -> Result<(), RedisError> {
    let query = RangeQuery::parse(&args[2..], fixed, false)?;
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

fn zrange(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    query(c, args, reply, None)
}

fn zrevrange(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    query(c, args, reply, Some((RangeUnit::Rank, true)))
}

fn zrangebyscore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    query(c, args, reply, Some((RangeUnit::Score, false)))
}

fn zrevrangebyscore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    query(c, args, reply, Some((RangeUnit::Score, true)))
}

fn zrangebylex(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    query(c, args, reply, Some((RangeUnit::Lex, false)))
}

fn zrevrangebylex(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    query(c, args, reply, Some((RangeUnit::Lex, true)))
}

fn zrangestore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let query = RangeQuery::parse(&args[3..], None, true)?;
    let found = query.find(c.get::<Sorted>(args[2])?);
    let mut sorted = Sorted::default();
    for (member, score) in &found {
        sorted.set(member, *score);
    }
    reply.count(sorted.len());
    store_or_delete(c, args[1], sorted);
    Ok(())
}

fn count(
    c: &Context<'_>,
    args: &[&[u8]],
    by: RangeUnit,
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let bounds = RangeBounds::parse(by, args[2], args[3])?;
    let sorted = c.get::<Sorted>(args[1])?;
    reply.count(sorted.map_or(0, |z| bounds.ranks(z, false).len()));
    Ok(())
}

fn zcount(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    count(c, args, RangeUnit::Score, reply)
}

fn zlexcount(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    count(c, args, RangeUnit::Lex, reply)
}

fn remove(
    c: &mut Context<'_>,
    args: &[&[u8]],
    by: RangeUnit,
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let bounds = RangeBounds::parse(by, args[2], args[3])?;
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
) -> Result<(), RedisError> {
    remove(c, args, RangeUnit::Rank, reply)
}

fn zremrangebyscore(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    remove(c, args, RangeUnit::Score, reply)
}

fn zremrangebylex(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    remove(c, args, RangeUnit::Lex, reply)
}
