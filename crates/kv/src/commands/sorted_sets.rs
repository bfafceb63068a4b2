//! Sorted sets: members, scores and ranks. Ranges are in [`super::sorted_ranges`], set algebra in
//! [`super::sorted_algebra`].

use super::super::Context;
use super::super::data::Sorted;
use super::super::number::{check_random_pairs, double, parse_int, random_count};
use super::super::registry::{CommandSpec, KeyArguments, ONE};
use super::super::reply::{RedisError, Reply};
use super::super::work;
use super::hashes::choose;
use super::lists::{counted, fits_answer, mpop_count};

const COUNTED: KeyArguments = KeyArguments::Counted { count: 1, before: 0 };

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered("zadd", -4, "write denyoom fast", ONE, zadd, "Sets members' scores."),
    CommandSpec::ordered("zincrby", 4, "write denyoom fast", ONE, zincrby, "Adds to a score."),
    CommandSpec::ordered("zrem", -3, "write fast", ONE, zrem, "Removes members."),
    CommandSpec::ordered("zscore", 3, "readonly fast", ONE, zscore, "Returns a score."),
    CommandSpec::ordered("zmscore", -3, "readonly fast", ONE, zmscore, "Returns scores."),
    CommandSpec::ordered("zcard", 2, "readonly fast", ONE, zcard, "Counts members."),
    CommandSpec::ordered("zrank", -3, "readonly fast", ONE, zrank, "Returns a member's rank."),
    CommandSpec::ordered(
        "zrevrank",
        -3,
        "readonly fast",
        ONE,
        zrevrank,
        "Returns its rank from the end.",
    ),
    CommandSpec::ordered(
        "zpopmin",
        -2,
        "write fast",
        ONE,
        zpopmin,
        "Takes the lowest members out.",
    )
    .taking(work::of_pop),
    CommandSpec::ordered(
        "zpopmax",
        -2,
        "write fast",
        ONE,
        zpopmax,
        "Takes the highest members out.",
    )
    .taking(work::of_pop),
    CommandSpec::ordered(
        "zmpop",
        -4,
        "write",
        COUNTED,
        zmpop,
        "Takes members from the first set that has some.",
    )
    .taking(work::of_mpop),
    CommandSpec::ordered(
        "zrandmember",
        -2,
        "readonly",
        ONE,
        zrandmember,
        "Returns random members.",
    )
    .taking(work::of_random),
];

#[derive(Default)]
struct AddOptions {
    only_new: bool,
    only_old: bool,
    greater: bool,
    less: bool,
    count_changed: bool,
    increment: bool,
}

impl AddOptions {
    /// The options, and how many arguments they take.
    fn parse(args: &[&[u8]]) -> Result<(Self, usize), RedisError> {
        let (mut o, mut taken) = (Self::default(), 0);
        for word in args {
            match word.to_ascii_lowercase().as_slice() {
                b"nx" => o.only_new = true,
                b"xx" => o.only_old = true,
                b"gt" => o.greater = true,
                b"lt" => o.less = true,
                b"ch" => o.count_changed = true,
                b"incr" => o.increment = true,
                _ => break,
            }
            taken += 1;
        }
        let pairs = args.len() - taken;
        if pairs == 0 || !pairs.is_multiple_of(2) {
            return Err(RedisError::SYNTAX);
        }
        if o.only_new && o.only_old {
            return Err(RedisError::new(
                "ERR XX and NX options at the same time are not compatible",
            ));
        }
        if o.greater && (o.less || o.only_new) || o.less && o.only_new {
            return Err(RedisError::new(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if o.increment && pairs > 2 {
            return Err(RedisError::new(
                "ERR INCR option supports a single increment-element pair",
            ));
        }
        Ok((o, taken))
    }
}

fn zadd(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (o, taken) = AddOptions::parse(&args[2..])?;
    let pairs = args[2 + taken..].chunks_exact(2).map(|p| Ok((double(p[0])?, p[1])));
    let pairs = pairs.collect::<Result<Vec<_>, RedisError>>()?;
    let key = args[1];
    let store = c.store(key);
    if o.only_old && store.get::<Sorted>(key)?.is_none() {
        if o.increment {
            reply.null();
        } else {
            reply.int(0);
        }
        return Ok(());
    }
    let sorted = store.get_or_new::<Sorted>(key)?;
    let mut added = 0;
    let mut updated = 0;
    let mut last = None;
    for (score, member) in pairs {
        let old = sorted.score(member);
        let new = if o.increment { old.unwrap_or(0.0) + score } else { score };
        if new.is_nan() {
            store.settle(key, false);
            return Err(RedisError::new("ERR resulting score is not a number (NaN)"));
        }
        let admitted = match old {
            None => !o.only_old,
            Some(old) => !(o.only_new || o.greater && new <= old || o.less && new >= old),
        };
        last = None;
        if admitted {
            last = Some(new);
            match sorted.set(member, new) {
                None => added += 1,
                Some(was) => updated += usize::from(was != new),
            }
        }
    }
    store.settle(key, added + updated > 0);
    match (o.increment, last) {
        (true, Some(score)) => reply.double(score),
        (true, None) => reply.null(),
        (false, _) => reply.count(added + if o.count_changed { updated } else { 0 }),
    }
    Ok(())
}

fn zincrby(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    zadd(c, &[args[0], args[1], b"INCR", args[2], args[3]], reply)
}

fn zrem(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let store = c.store(args[1]);
    let sorted = store.get_mut::<Sorted>(args[1])?;
    let removed = sorted.map_or(0, |z| args[2..].iter().filter(|m| z.remove(m).is_some()).count());
    store.settle(args[1], removed > 0);
    reply.count(removed);
    Ok(())
}

fn score_or_null(score: Option<f64>, reply: &mut Reply<'_>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

fn zscore(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    score_or_null(c.get::<Sorted>(args[1])?.and_then(|z| z.score(args[2])), reply);
    Ok(())
}

fn zmscore(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let sorted = c.get::<Sorted>(args[1])?;
    reply.array(args.len() - 2);
    args[2..].iter().for_each(|m| score_or_null(sorted.and_then(|z| z.score(m)), reply));
    Ok(())
}

fn zcard(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    reply.count(c.get::<Sorted>(args[1])?.map_or(0, Sorted::len));
    Ok(())
}

fn rank(
    c: &Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    from_end: bool,
) -> Result<(), RedisError> {
    let with_score = match &args[3..] {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"withscore") => true,
        _ => return Err(RedisError::SYNTAX),
    };
    let sorted = c.get::<Sorted>(args[1])?;
    let Some((z, rank)) = sorted.and_then(|z| Some((z, z.rank(args[2])?))) else {
        if with_score {
            reply.null_array();
        } else {
            reply.null();
        }
        return Ok(());
    };
    let rank = if from_end { z.len() - 1 - rank } else { rank };
    if with_score {
        reply.array(2);
    }
    reply.count(rank);
    if with_score {
        score_or_null(z.score(args[2]), reply);
    }
    Ok(())
}

fn zrank(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    rank(c, args, reply, false)
}

fn zrevrank(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    rank(c, args, reply, true)
}

type PoppedMembers = Vec<(std::sync::Arc<[u8]>, f64)>;

/// Takes up to `count` members from an end of a sorted set.
fn take(
    c: &mut Context<'_>,
    key: &[u8],
    highest: bool,
    count: usize,
) -> Result<PoppedMembers, RedisError> {
    let store = c.store(key);
    let Some(sorted) = store.get_mut::<Sorted>(key)? else { return Ok(Vec::new()) };
    let n = count.min(sorted.len());
    if highest {
        fits_answer(sorted.iter_back_from(sorted.len() - 1).map(|(m, _)| m.len()), n)?;
    } else {
        fits_answer(sorted.iter_from(0).map(|(m, _)| m.len()), n)?;
    }
    let taken: PoppedMembers = if highest {
        let back = sorted.iter_back_from(sorted.len() - 1);
        back.take(count).map(|(m, s)| (m.clone(), s)).collect()
    } else {
        sorted.iter_from(0).take(count).map(|(m, s)| (m.clone(), s)).collect()
    };
    for (member, _) in &taken {
        sorted.remove(member);
    }
    store.settle(key, !taken.is_empty());
    Ok(taken)
}

fn pop(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    highest: bool,
) -> Result<(), RedisError> {
    let count = match args.len() {
        2 => None,
        3 => {
            let n = parse_int(args[2]).and_then(|n| usize::try_from(n).ok());
            Some(n.ok_or(RedisError::new("ERR value is out of range, must be positive"))?)
        }
        _ => return Err(RedisError::SYNTAX),
    };
    let taken = take(c, args[1], highest, count.unwrap_or(1))?;
    if count.is_some() {
        reply.pairs(taken.len());
    } else {
        reply.array(2 * taken.len());
    }
    for (member, score) in &taken {
        reply.bulk(member);
        reply.double(*score);
    }
    Ok(())
}

fn zpopmin(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    pop(c, args, reply, false)
}

fn zpopmax(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    pop(c, args, reply, true)
}

fn zmpop(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let (keys, rest) = counted(args, 1)?;
    let (word, rest) = rest.split_first().ok_or(RedisError::SYNTAX)?;
    let highest = match word.to_ascii_lowercase().as_slice() {
        b"min" => false,
        b"max" => true,
        _ => return Err(RedisError::SYNTAX),
    };
    let count = mpop_count(rest)?;
    for key in keys {
        let taken = take(c, key, highest, count)?;
        if taken.is_empty() {
            continue;
        }
        reply.array(2);
        reply.bulk(key);
        reply.array(taken.len());
        for (member, score) in &taken {
            reply.array(2);
            reply.bulk(member);
            reply.double(*score);
        }
        return Ok(());
    }
    reply.null_array();
    Ok(())
}

fn zrandmember(
    c: &mut Context<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    // Arguments are wrong before the key is of another type.
    let count = args.get(2).map(|count| random_count(count)).transpose()?;
    let with_scores = match args.get(3..).unwrap_or_default() {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"withscores") => true,
        _ => return Err(RedisError::SYNTAX),
    };
    if with_scores {
        count.map_or(Ok(()), check_random_pairs)?;
    }
    let len = c.get::<Sorted>(args[1])?.map_or(0, Sorted::len);
    let Some(count) = count else {
        let i = c.pick(len);
        let found = c.get::<Sorted>(args[1])?.and_then(|z| z.at(i));
        reply.bulk_or_null(found.map(|(m, _)| m));
        return Ok(());
    };
    let chosen = choose(c, count, len)?;
    if with_scores {
        reply.pairs(chosen.len());
    } else {
        reply.array(chosen.len());
    }
    let sorted = c.get::<Sorted>(args[1])?;
    for (member, score) in chosen.iter().filter_map(|i| sorted.and_then(|z| z.at(*i))) {
        reply.bulk(member);
        if with_scores {
            reply.double(score);
        }
    }
    Ok(())
}
