//! `LCS`: the longest bytes that two strings have in common, in order but not all in a row.

use super::super::Context;
use super::super::data::{Data, Str};
use super::super::number::int;
use super::super::registry::{CommandSpec, TWO};
use super::super::reply::{RedisError, Reply};
use super::super::work;

pub(crate) const COMMANDS: &[CommandSpec] = &[CommandSpec::ordered(
    "lcs",
    -3,
    "readonly",
    TWO,
    lcs,
    "Finds the longest common subsequence of two strings.",
)
.taking(of_lcs)];

/// The product of both lengths: it takes four bytes and some nanoseconds for each, while the shard
/// waits.
const CELLS_MAX: usize = 4 << 20;

/// Some nanoseconds for each cell of the table.
fn of_lcs(c: &Context<'_>, args: &[&[u8]]) -> u64 {
    let len = |key| work::size_of(c, key).1 as usize + 1;
    let cells = len(args[1]).saturating_mul(len(args[2]));
    if cells > CELLS_MAX { 0 } else { 3 * cells as u64 }
}

/// The options of the command.
#[derive(Default)]
struct LcsOptions {
    len: bool,
    ranges: bool,
    min_len: usize,
    with_len: bool,
}

impl LcsOptions {
    fn parse(args: &[&[u8]]) -> Result<Self, RedisError> {
        let mut it = Self::default();
        let mut rest = &args[3..];
        while let [word, tail @ ..] = rest {
            rest = tail;
            match (word.to_ascii_lowercase().as_slice(), tail) {
                (b"len", _) => it.len = true,
                (b"idx", _) => it.ranges = true,
                (b"withmatchlen", _) => it.with_len = true,
                (b"minmatchlen", [n, tail @ ..]) => {
                    it.min_len = usize::try_from(int(n)?).unwrap_or(0);
                    rest = tail;
                }
                _ => return Err(RedisError::SYNTAX),
            }
        }
        if it.len && it.ranges {
            return Err(RedisError::new(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(it)
    }
}

/// For each two beginnings of two strings, the length of what they have in common.
struct LcsTable {
    width: usize,
    cells: Vec<u32>,
}

impl LcsTable {
    fn of(a: &[u8], b: &[u8]) -> Self {
        let width = b.len() + 1;
        let mut cells = vec![0; (a.len() + 1) * width];
        for (i, x) in a.iter().enumerate() {
            let (above, row) = cells[i * width..].split_at_mut(width);
            for (j, y) in b.iter().enumerate() {
                row[j + 1] = if x == y { above[j] + 1 } else { above[j + 1].max(row[j]) };
            }
        }
        Self { width, cells }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }
}

/// Bytes in a row that both strings have: where they begin in either, and how many.
type CommonRun = (usize, usize, usize);

/// The runs of a longest common subsequence, the last one first; of several, the one that Redis
/// finds.
fn runs(a: &[u8], b: &[u8], table: &LcsTable) -> Vec<CommonRun> {
    let (mut i, mut j) = (a.len(), b.len());
    let mut found: Vec<CommonRun> = Vec::new();
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            match found.last_mut() {
                Some((at_a, at_b, len)) if (*at_a, *at_b) == (i + 1, j + 1) => {
                    (*at_a, *at_b, *len) = (i, j, *len + 1);
                }
                _ => found.push((i, j, 1)),
            }
        } else if table.at(i - 1, j) > table.at(i, j - 1) {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    found
}

fn lcs(c: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), RedisError> {
    let string = |key| match c.find(key).map(|e| &e.data) {
        None => Ok(&[][..]),
        Some(Data::Str(bytes)) => Ok(Str::as_slice(bytes)),
        Some(_) => Err(RedisError::new("ERR The specified keys must contain string values")),
    };
    let (a, b) = (string(args[1])?, string(args[2])?);
    let options = LcsOptions::parse(args)?;
    if (a.len() + 1).saturating_mul(b.len() + 1) > CELLS_MAX {
        return Err(RedisError::new(format!(
            "ERR the strings are too long: the product of their lengths may be {CELLS_MAX}"
        )));
    }
    let table = LcsTable::of(a, b);
    let len = table.at(a.len(), b.len()) as usize;
    if options.len {
        reply.count(len);
        return Ok(());
    }
    let mut runs = runs(a, b, &table);
    if !options.ranges {
        let bytes = runs.iter().rev().flat_map(|(at, _, len)| &a[*at..at + len]);
        reply.bulk(&bytes.copied().collect::<Vec<u8>>());
        return Ok(());
    }
    runs.retain(|(.., len)| *len >= options.min_len);
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(runs.len());
    for (at_a, at_b, len) in runs {
        reply.array(2 + usize::from(options.with_len));
        for at in [at_a, at_b] {
            reply.array(2);
            reply.count(at);
            reply.count(at + len - 1);
        }
        if options.with_len {
            reply.count(len);
        }
    }
    reply.bulk(b"len");
    reply.count(len);
    Ok(())
}
