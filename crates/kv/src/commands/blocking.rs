//! Commands that wait for elements: `BLPOP`, and those like it.
//!
//! Shards do not wait. A gateway orders, for each of these commands, the one that does not wait, such as `LMPOP` for `BLPOP`; an answer
//! that says that there is nothing leaves the client waiting ([`BlockedClients`](crate::blocked_clients::BlockedClients)). In a
//! transaction nobody waits, as in Redis.

use super::super::blocked_clients::AwaitedType;
use super::super::number::parse_double;
use super::super::registry::{CommandRunner, CommandSpec, KeyArguments, TWO};
use super::super::reply::{RedisError, Reply};
use super::super::resp::reply::elements;
use super::lists::counted;
use std::borrow::Cow;
use std::time::Duration;

/// Keys that one command may wait for.
const KEYS_MAX: usize = 1_000;

/// Keys from the first argument to the last but one, which is the timeout.
const BEFORE_TIMEOUT: KeyArguments = KeyArguments::Range { first: 1, last: -2, step: 1 };

/// A count of keys, and these, behind the timeout.
const BEHIND_TIMEOUT: KeyArguments = KeyArguments::Counted { count: 2, before: 0 };

pub(crate) const COMMANDS: &[CommandSpec] = &[
    blocking("blpop", -3, BEFORE_TIMEOUT, &BLPOP, "Takes a list's head, or waits for one."),
    blocking("brpop", -3, BEFORE_TIMEOUT, &BRPOP, "Takes a list's tail, or waits for one."),
    blocking(
        "blmpop",
        -5,
        BEHIND_TIMEOUT,
        &BLMPOP,
        "Takes elements from the first list that has some, or waits.",
    ),
    blocking("blmove", 6, TWO, &BLMOVE, "Moves an element between lists, or waits for one."),
    blocking("brpoplpush", 4, TWO, &BRPOPLPUSH, "Moves a tail to a head, or waits for one."),
];

/// The same for sorted sets.
pub(crate) const SORTED_COMMANDS: &[CommandSpec] = &[
    blocking(
        "bzpopmin",
        -3,
        BEFORE_TIMEOUT,
        &BZPOPMIN,
        "Takes the member of the lowest score, or waits for one.",
    ),
    blocking(
        "bzpopmax",
        -3,
        BEFORE_TIMEOUT,
        &BZPOPMAX,
        "Takes the member of the highest score, or waits for one.",
    ),
    blocking(
        "bzmpop",
        -5,
        BEHIND_TIMEOUT,
        &BZMPOP,
        "Takes members from the first sorted set that has some, or waits.",
    ),
];

const fn blocking(
    name: &'static str,
    arity: i32,
    keys: KeyArguments,
    form: &'static BlockingForm,
    summary: &'static str,
) -> CommandSpec {
    let (flags, run) = ("write noscript blocking", CommandRunner::Blocking(form));
    CommandSpec { name, arity, flags, keys, summary, run, work: None }
}

/// How shards see a command that may wait.
pub struct BlockingForm {
    /// The name of the command that does not wait.
    orders: &'static str,
    /// Where it takes elements from: a word of that command.
    end: Option<&'static str>,
    /// Where its timeout and its keys are.
    places: ArgumentPlaces,
    /// Of what type the elements are.
    pub awaited: AwaitedType,
    shape: AnswerShape,
}

/// Where a command has its timeout, and the keys whose elements it waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentPlaces {
    /// Keys, then the timeout.
    KeysFirst,
    /// The timeout, a count of keys, these, and words of the command that does not wait.
    TimeoutFirst,
    /// The key, words of the command that does not wait, and the timeout.
    OneKey,
}

/// How the answer differs from that of the command that does not wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerShape {
    Same,
    /// The key and its only element, in one array.
    Element,
    /// The key, its only member and the score.
    Member,
}

const fn pop(orders: &'static str, end: &'static str, awaited: AwaitedType) -> BlockingForm {
    let shape = match awaited {
        AwaitedType::List => AnswerShape::Element,
        AwaitedType::SortedSet => AnswerShape::Member,
    };
    BlockingForm { orders, end: Some(end), places: ArgumentPlaces::KeysFirst, awaited, shape }
}

const fn same(orders: &'static str, places: ArgumentPlaces, awaited: AwaitedType) -> BlockingForm {
    BlockingForm { orders, end: None, places, awaited, shape: AnswerShape::Same }
}

static BLPOP: BlockingForm = pop("lmpop", "left", AwaitedType::List);
static BRPOP: BlockingForm = pop("lmpop", "right", AwaitedType::List);
static BZPOPMIN: BlockingForm = pop("zmpop", "min", AwaitedType::SortedSet);
static BZPOPMAX: BlockingForm = pop("zmpop", "max", AwaitedType::SortedSet);
static BLMPOP: BlockingForm = same("lmpop", ArgumentPlaces::TimeoutFirst, AwaitedType::List);
static BZMPOP: BlockingForm = same("zmpop", ArgumentPlaces::TimeoutFirst, AwaitedType::SortedSet);
static BLMOVE: BlockingForm = same("lmove", ArgumentPlaces::OneKey, AwaitedType::List);
static BRPOPLPUSH: BlockingForm = same("rpoplpush", ArgumentPlaces::OneKey, AwaitedType::List);

/// A command that may wait, as it is ordered.
pub struct BlockingCommand<'a> {
    /// The arguments of the command that does not wait.
    pub args: Vec<Cow<'a, [u8]>>,
    /// The keys whose elements it waits for.
    pub keys: Vec<&'a [u8]>,
    /// How long it waits; none for as long as it takes.
    pub timeout: Option<Duration>,
}

impl BlockingForm {
    /// The command with these arguments, which are as many as it takes.
    ///
    /// # Errors
    /// In the words of Redis, when its timeout is none, or its keys are not as many as it says.
    pub fn ordered<'a>(&self, args: &[&'a [u8]]) -> Result<BlockingCommand<'a>, RedisError> {
        let [_, given @ ..] = args else { return Err(RedisError::SYNTAX) };
        let (first, last) = match given {
            [first, .., last] => (*first, *last),
            _ => return Err(RedisError::SYNTAX),
        };
        let inner = &given[..given.len() - 1];
        let (keys, timeout, words): (_, _, &[&'a [u8]]) = match self.places {
            ArgumentPlaces::KeysFirst => (inner, last, &[]),
            ArgumentPlaces::OneKey => (&inner[..1], last, &inner[1..]),
            ArgumentPlaces::TimeoutFirst => {
                let (keys, words) = counted(args, 2)?;
                (keys, first, words)
            }
        };
        if keys.len() > KEYS_MAX {
            let why = format!("ERR a command waits for {KEYS_MAX} keys at most");
            return Err(RedisError::refused(why));
        }
        let timeout = parse_timeout(timeout)?;
        let mut ordered: Vec<Cow<'a, [u8]>> = vec![Cow::Borrowed(self.orders.as_bytes())];
        if self.places != ArgumentPlaces::OneKey {
            ordered.push(Cow::Owned(keys.len().to_string().into_bytes()));
        }
        ordered.extend(keys.iter().chain(words).map(|arg| Cow::Borrowed(*arg)));
        ordered.extend(self.end.map(|end| Cow::Borrowed(end.as_bytes())));
        Ok(BlockingCommand { args: ordered, keys: keys.to_vec(), timeout })
    }

    /// Whether an error about a key's type says that this is not the key that it waits for: then the client waits on. Of several
    /// keys, or of two with different uses, it does not say which one it was.
    pub fn waits_on_wrong_type(&self, keys: usize) -> bool {
        keys == 1 && self.places != ArgumentPlaces::OneKey
    }

    /// The key from which something was taken, of an answer of the command that does not wait; none if it does not say that.
    pub fn taken_from<'a>(&self, ordered: &'a [u8]) -> Option<&'a [u8]> {
        let parts = elements(ordered).filter(|_| self.places != ArgumentPlaces::OneKey)?;
        let bytes = parts.first()?.strip_prefix(b"$")?;
        let head = bytes.iter().position(|b| *b == b'\n')? + 1;
        bytes[head..].strip_suffix(b"\r\n")
    }

    /// Writes the answer of the command that does not wait as this one's.
    pub fn answer(&self, ordered: &[u8], reply: &mut Reply<'_>) {
        let parts = elements(ordered).filter(|_| self.shape != AnswerShape::Same);
        let Some([key, taken]) = parts.as_deref() else { return reply.raw(ordered) };
        let taken = elements(taken).unwrap_or_default();
        let values = match (self.shape, &*taken) {
            (AnswerShape::Member, [pair]) => elements(pair).unwrap_or_default(),
            _ => taken,
        };
        reply.array(1 + values.len());
        reply.raw(key);
        values.iter().for_each(|value| reply.raw(value));
    }
}

/// Whether an answer says that there was nothing to take.
pub fn is_nothing(answer: &[u8]) -> bool {
    matches!(answer, b"*-1\r\n" | b"_\r\n")
}

/// Whether it says that a key is of another type.
pub fn is_wrong_type(answer: &[u8]) -> bool {
    answer.starts_with(b"-WRONGTYPE ")
}

/// A number of seconds, in milliseconds that are rounded up; none for 0, which is for ever.
fn parse_timeout(text: &[u8]) -> Result<Option<Duration>, RedisError> {
    const OUT_OF_RANGE: RedisError =
        RedisError::fixed("ERR timeout is not a float or out of range");
    let ms = parse_double(text).map(|secs| (secs * 1000.0).ceil()).ok_or(OUT_OF_RANGE)?;
    match ms {
        _ if ms < 0.0 => Err(RedisError::fixed("ERR timeout is negative")),
        _ if ms >= i64::MAX as f64 => Err(OUT_OF_RANGE),
        _ => Ok(Some(Duration::from_millis(ms as u64)).filter(|timeout| !timeout.is_zero())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::registry::{all, lookup};
    use super::*;

    fn form(name: &str) -> &'static BlockingForm {
        match lookup(name.as_bytes()).map(|command| command.run) {
            Some(CommandRunner::Blocking(form)) => form,
            _ => panic!("{name} does not wait"),
        }
    }

    /// The command that is ordered, the keys, and the milliseconds that it waits; or the error.
    fn ordered(line: &str) -> Result<(String, String, Option<u128>), String> {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let found = form(&text(args[0])).ordered(&args).map_err(|e| e.text().to_owned())?;
        let words: Vec<String> = found.args.iter().map(|arg| text(arg)).collect();
        let keys: Vec<String> = found.keys.iter().map(|key| text(key)).collect();
        Ok((words.join(" "), keys.join(" "), found.timeout.map(|t| t.as_millis())))
    }

    #[test]
    fn each_command_is_ordered_as_one_that_does_not_wait() {
        let is = |line, expected: &str, keys: &str, ms| {
            assert_eq!(ordered(line), Ok((expected.into(), keys.into(), ms)), "{line}");
        };
        is("BLPOP a b 0", "lmpop 2 a b left", "a b", None);
        is("brpop a 0.0011", "lmpop 1 a right", "a", Some(2));
        is("BZPOPMIN a b 1e1", "zmpop 2 a b min", "a b", Some(10_000));
        is("BZPOPMAX a 1", "zmpop 1 a max", "a", Some(1000));
        is("BLMPOP 1 2 a b LEFT COUNT 3", "lmpop 2 a b LEFT COUNT 3", "a b", Some(1000));
        is("BZMPOP 0 1 a MAX", "zmpop 1 a MAX", "a", None);
        is("BLMOVE a b LEFT RIGHT 2", "lmove a b LEFT RIGHT", "a", Some(2000));
        is("BRPOPLPUSH a b 2", "rpoplpush a b", "a", Some(2000));
        for command in all() {
            if let CommandRunner::Blocking(form) = command.run {
                let found = lookup(form.orders.as_bytes()).expect("a command");
                assert!(matches!(found.run, CommandRunner::Shards(_)) && found.writes());
            }
        }
    }

    #[test]
    fn malformed_commands_have_the_errors_of_redis() {
        let fails = |line, why: &str| assert_eq!(ordered(line), Err(why.into()), "{line}");
        for line in ["BLPOP a x", "BLPOP a inf", "BLPOP a 1e300", "BLMOVE a b LEFT RIGHT x"] {
            fails(line, "ERR timeout is not a float or out of range");
        }
        fails("BLPOP a -1", "ERR timeout is negative");
        fails("BLMPOP 1 0 a LEFT", "ERR numkeys should be greater than 0");
        fails("BZMPOP 1 3 a MIN", "ERR syntax error");
        fails("BLMPOP -1 1 a LEFT", "ERR timeout is negative");
        let many = format!("BLPOP{} 0", " k".repeat(KEYS_MAX + 1));
        fails(&many, "ERR a command waits for 1000 keys at most");
    }

    #[test]
    fn answers_have_the_shape_of_the_command_that_waits() {
        let shown = |name: &str, answer: &str| {
            let mut out = Vec::new();
            form(name).answer(answer.as_bytes(), &mut Reply::new(&mut out));
            String::from_utf8(out).unwrap()
        };
        let list = "*2\r\n$1\r\nk\r\n*1\r\n$3\r\nabc\r\n";
        assert_eq!(shown("blpop", list), "*2\r\n$1\r\nk\r\n$3\r\nabc\r\n");
        assert_eq!(shown("blmpop", list), list);
        let sorted = "*2\r\n$1\r\nk\r\n*1\r\n*2\r\n$1\r\nm\r\n,1.5\r\n";
        assert_eq!(shown("bzpopmin", sorted), "*3\r\n$1\r\nk\r\n$1\r\nm\r\n,1.5\r\n");
        assert_eq!(shown("bzmpop", sorted), sorted);
        for same in ["*-1\r\n", "-ERR x\r\n"] {
            assert_eq!(shown("brpop", same), same);
        }
        assert_eq!(shown("blmove", "$1\r\nv\r\n"), "$1\r\nv\r\n");
        let from = |name: &str, answer: &'static str| form(name).taken_from(answer.as_bytes());
        assert_eq!(from("blpop", "*2\r\n$4\r\nk\r\n2\r\n*0\r\n"), Some(&b"k\r\n2"[..]));
        assert_eq!((from("blmove", "$1\r\nv\r\n"), from("brpop", "*-1\r\n")), (None, None));
        assert!(is_nothing(b"*-1\r\n") && is_nothing(b"_\r\n") && !is_nothing(list.as_bytes()));
    }
}
