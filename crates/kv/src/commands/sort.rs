//! `SORT`: the elements of a collection in order, by themselves or by what other keys hold.

use super::super::Context;
use super::super::data::{Blob, Data, Hash, List, Set, Str};
use super::super::number::int;
use super::super::registry::{CommandSpec, KeyArguments};
use super::super::reply::{RedisError, Reply};
use super::super::store::NEVER_MS;
use super::super::work;
use amcast_core::Outcome;
use amcast_core::limits::ANSWER_BYTES_MAX;
use std::cmp::Ordering;

pub(crate) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::ordered(
        "sort",
        -2,
        "write denyoom",
        KeyArguments::Told(keys),
        sort,
        "Sorts a list, set or sorted set, and stores it if asked to.",
    )
    .taking(of_sort),
    CommandSpec::ordered(
        "sort_ro",
        -2,
        "readonly",
        KeyArguments::Told(keys),
        sort_ro,
        "Sorts a list, set or sorted set.",
    )
    .taking(of_sort),
];

/// Bytes of a list of what other keys hold that is stored: they are known only when it is made.
pub(crate) const STORED_BYTES_MAX: usize = 32 << 20;

/// How a collection is to be sorted, and what is asked of it.
#[derive(Default)]
struct SortOptions<'a> {
    descending: bool,
    /// By bytes instead of by number.
    alpha: bool,
    /// Where what an element is sorted by is found; without a star, the order stays.
    by: Option<&'a [u8]>,
    /// The first element and how many; all if negative.
    limit: Option<(i64, i64)>,
    /// The patterns whose values are returned for each element; the element itself if empty.
    get: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
}

impl<'a> SortOptions<'a> {
    fn parse(args: &[&'a [u8]], may_store: bool) -> Result<Self, RedisError> {
        let mut it = Self::default();
        let mut rest = &args[2..];
        while let [word, tail @ ..] = rest {
            rest = match (word.to_ascii_lowercase().as_slice(), tail) {
                (word @ (b"asc" | b"desc"), tail) => {
                    it.descending = word == b"desc";
                    tail
                }
                (b"alpha", tail) => {
                    it.alpha = true;
                    tail
                }
                (b"limit", [first, count, tail @ ..]) => {
                    it.limit = Some((int(first)?, int(count)?));
                    tail
                }
                (b"store", [key, tail @ ..]) if may_store => {
                    it.store = Some(key);
                    tail
                }
                (b"by", [pattern, tail @ ..]) => {
                    it.by = Some(pattern);
                    tail
                }
                (b"get", [pattern, tail @ ..]) => {
                    it.get.push(pattern);
                    tail
                }
                _ => return Err(RedisError::SYNTAX),
            };
        }
        Ok(it)
    }

    /// Whether it looks at keys that only the elements tell.
    fn looks_elsewhere(&self) -> bool {
        self.by.is_some_and(has_star) || self.get.iter().any(|p| has_star(p))
    }

    /// Which of `len` elements are wanted.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        let (first, count) = self.limit.unwrap_or((0, -1));
        let start = usize::try_from(first).unwrap_or(0).min(len);
        let end = usize::try_from(count).map_or(len, |n| start.saturating_add(n).min(len));
        start..end
    }
}

fn has_star(pattern: &[u8]) -> bool {
    pattern.contains(&b'*')
}

fn keys<'b>(args: &[&'b [u8]], tell: &mut dyn FnMut(&'b [u8])) -> bool {
    let Some(key) = args.get(1) else { return true };
    tell(key);
    // Options that cannot be parsed are refused when the command runs.
    let Ok(options) = SortOptions::parse(args, true) else { return true };
    options.store.into_iter().for_each(tell);
    !options.looks_elsewhere()
}

/// Each element is copied and compared, and looked for in other keys as often as that is asked for.
fn of_sort(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let Ok(options) = SortOptions::parse(args, true) else { return 0 };
    let (elements, bytes) = work::size_of(c, args[1]);
    let each = bytes / elements.max(1);
    let by = options.by.filter(|by| has_star(by)).map_or(0, |by| by.len() as u64 + each);
    let by = if by == 0 { 0 } else { work::of_values(elements, by) };
    let wanted = options.range(elements as usize).len() as u64;
    let get = options.get.iter().fold(0, |ns: u64, pattern| {
        ns.saturating_add(work::of_values(wanted, pattern.len() as u64 + each))
    });
    work::of_sorting(elements, bytes).saturating_add(by).saturating_add(get)
}

/// Where a `SORT` stores what it finds, and whether it looks for that in other keys.
pub(crate) fn target<'b>(args: &[&'b [u8]]) -> Option<(&'b [u8], bool)> {
    let options = SortOptions::parse(args, true).ok()?;
    Some((options.store?, !options.get.is_empty()))
}

fn sort(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    run(c, args, SortOptions::parse(args, true)?, reply)
}

fn sort_ro(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    run(c, args, SortOptions::parse(args, false)?, reply)
}

fn run(
    c: &mut Context<'_>,
    args: &[&[u8]],
    mut options: SortOptions<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RedisError> {
    let data = c.find(args[1]).map(|e| &e.data);
    if options.store.is_some() && matches!(data, Some(Data::Set(_))) && stays(&options) {
        // A set has no order that could be kept in a list.
        (options.alpha, options.by) = (true, None);
    }
    let mut elements = elements(data, options.descending && stays(&options))?;
    if !stays(&options) {
        elements = in_order(c, elements, &options)?;
    }
    let wanted = &elements[options.range(elements.len())];
    let count = wanted.len() * options.get.len().max(1);
    let Some(to) = options.store else {
        reply.array(count);
        each_value(c, wanted, &options, |value| {
            reply.bulk_or_null(value);
            !reply.is_over()
        });
        return Ok(());
    };
    let mut list = List::default();
    each_value(c, wanted, &options, |value| {
        let value = value.unwrap_or_default();
        list.push_back(value.into());
        options.get.is_empty() || list.bytes() <= STORED_BYTES_MAX
    });
    if !options.get.is_empty() && list.bytes() > STORED_BYTES_MAX {
        let why = format_args!("ERR the list is larger than the limit of {STORED_BYTES_MAX} bytes");
        return Err(RedisError::of(Outcome::NotExecuted, why));
    }
    reply.count(count);
    if list.is_empty() {
        c.store(to).delete(to);
    } else {
        c.put(to, Data::List(list.into()), NEVER_MS);
    }
    Ok(())
}

/// Tells what is asked of each element, until `tell` is false: values may be large, and the same one may be asked for
/// again and again.
fn each_value(
    c: &Context<'_>,
    elements: &[Blob],
    options: &SortOptions<'_>,
    mut tell: impl FnMut(Option<&[u8]>) -> bool,
) {
    for element in elements {
        let go_on = match &*options.get {
            [] => tell(Some(element)),
            get => get.iter().all(|pattern| tell(look(c, pattern, element))),
        };
        if !go_on {
            return;
        }
    }
}

/// Whether the elements stay in the order that they are in.
fn stays(options: &SortOptions<'_>) -> bool {
    options.by.is_some_and(|by| !has_star(by))
}

fn elements(data: Option<&Data>, from_end: bool) -> Result<Vec<Blob>, RedisError> {
    Ok(match data {
        None => Vec::new(),
        Some(Data::List(l)) if from_end => l.iter().rev().cloned().collect(),
        Some(Data::List(l)) => l.iter().cloned().collect(),
        Some(Data::Set(s)) => of_set(s),
        Some(Data::Sorted(z)) if from_end => members(z.iter_back_from(z.len() - 1)),
        Some(Data::Sorted(z)) => members(z.iter_from(0)),
        Some(_) => return Err(RedisError::WRONG_TYPE),
    })
}

fn of_set(set: &Set) -> Vec<Blob> {
    set.iter().cloned().collect()
}

fn members<'a>(all: impl Iterator<Item = (&'a std::sync::Arc<[u8]>, f64)>) -> Vec<Blob> {
    all.map(|(member, _)| (**member).into()).collect()
}

fn in_order(
    c: &Context<'_>,
    elements: Vec<Blob>,
    options: &SortOptions<'_>,
) -> Result<Vec<Blob>, RedisError> {
    let (mut keyed, mut texts) = (Vec::with_capacity(elements.len()), 0);
    for element in &elements {
        let by = match options.by {
            Some(pattern) => look(c, pattern, element),
            None => Some(&**element),
        };
        let (mut score, mut text) = (0.0, None);
        if !options.alpha {
            score = by.map_or(Ok(0.0), number)?;
        } else if options.by.is_some() {
            text = by;
            // The same large text may stand for each of many elements, and is compared as often.
            texts += by.map_or(0, <[u8]>::len);
            if texts > ANSWER_BYTES_MAX {
                let why = format_args!(
                    "ERR what to sort by is larger than the limit of {ANSWER_BYTES_MAX} bytes"
                );
                return Err(RedisError::of(Outcome::NotExecuted, why));
            }
        }
        keyed.push((score, text, element));
    }
    let (alpha, by) = (options.alpha, options.by.is_some());
    keyed.sort_by(|(a_score, a_text, a), (b_score, b_text, b)| {
        let order = match (alpha, by) {
            (true, true) => a_text.cmp(b_text),
            (true, false) => a.cmp(b),
            (false, _) => a_score.partial_cmp(b_score).unwrap_or(Ordering::Equal).then(a.cmp(b)),
        };
        if options.descending { order.reverse() } else { order }
    });
    Ok(keyed.into_iter().map(|(.., element)| element.clone()).collect())
}

/// A number as C's `strtod` reads it, which Redis uses here: spaces in front and nothing at all are
/// fine; hexadecimal is not read.
fn number(text: &[u8]) -> Result<f64, RedisError> {
    const BAD: RedisError =
        RedisError::fixed("ERR One or more scores can't be converted into double");
    if text.is_empty() {
        return Ok(0.0);
    }
    let text = std::str::from_utf8(text.trim_ascii_start()).map_err(|_| BAD)?;
    let n: f64 = text.parse().map_err(|_| BAD)?;
    let named = text.contains(['n', 'N']);
    if n.is_nan() || n.is_infinite() && !named { Err(BAD) } else { Ok(n) }
}

/// The value of `pattern` with `element` in place of its star: the element itself for `#`, a
/// string, or a field of a hash behind `->`.
fn look<'a>(c: &'a Context<'_>, pattern: &[u8], element: &'a [u8]) -> Option<&'a [u8]> {
    if pattern == b"#" {
        return Some(element);
    }
    let star = pattern.iter().position(|b| *b == b'*')?;
    let (before, after) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = after.windows(2).position(|w| w == b"->").filter(|at| at + 2 < after.len());
    let key = [before, element, &after[..arrow.unwrap_or(after.len())]].concat();
    match arrow {
        Some(at) => Some(c.get::<Hash>(&key).ok()??.get(&after[at + 2..])?),
        None => c.get::<Str>(&key).ok()?.map(Vec::as_slice),
    }
}
