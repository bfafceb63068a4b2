//! The description of a command, and the list of all commands.

use super::Context;
use super::client::ClientState;
use super::commands;
use super::commands::blocking::BlockingForm;
use super::commands::transactions::OrderedTransaction;
use super::reply::{RedisError, Reply};
use super::work::Estimate;
use std::sync::OnceLock;

/// A command: one value of this type, in its family's file, is all there is to it.
pub struct CommandSpec {
    /// Its name in lower case.
    pub name: &'static str,
    /// How many arguments it takes, its name included; at least so many if negative.
    pub arity: i32,
    /// The flags that `COMMAND` shows, separated by spaces. `write` and `readonly` decide whether
    /// it conflicts with others and whether a retry may run twice.
    pub flags: &'static str,
    /// Where its keys are.
    pub keys: KeyArguments,
    /// Its effect, in a sentence.
    pub summary: &'static str,
    /// The place where it runs.
    pub run: CommandRunner,
    /// How long it takes, if that may be more than a few microseconds and nothing else bounds it.
    pub work: Option<Estimate>,
}

/// Commands that write, and show whole values: these stay, or a few bytes make another one.
const WRITES_AND_SHOWS: [&str; 5] = ["getdel", "getex", "getset", "lmove", "rpoplpush"];

/// Where a command's keys are among its arguments.
#[derive(Clone, Copy)]
pub enum KeyArguments {
    /// It has none.
    None,
    /// Every `step`-th argument from `first` to `last`; a negative `last` counts from the end.
    Range {
        /// Index of the first key; the command's name is 0.
        first: usize,
        /// Index of the last key.
        last: isize,
        /// Distance of two keys.
        step: usize,
    },
    /// A count of keys is at index `count`, the keys behind it; and keys at the indices before it,
    /// from 1, `before` of them.
    Counted {
        /// Index of the count.
        count: usize,
        /// Number of keys before the count.
        before: usize,
    },
    /// Those that this function tells; false if they cannot be known beforehand: then it may touch
    /// every key of all shards.
    Told(TellKeys),
    /// It touches every key of all shards.
    All,
    /// It touches every key of the shards that this function finds.
    Shards(fn(&[&[u8]], &super::Partitions) -> amcast_core::GroupSet),
    /// A transaction: keys are those of the commands in it.
    Inner,
}

/// Tells the keys among the arguments; false if there may be others.
pub type TellKeys = for<'a, 'b> fn(&'a [&'b [u8]], &mut dyn FnMut(&'b [u8])) -> bool;

/// The key of index 1 alone.
pub const ONE: KeyArguments = KeyArguments::Range { first: 1, last: 1, step: 1 };
/// All arguments are keys.
pub const EACH: KeyArguments = KeyArguments::Range { first: 1, last: -1, step: 1 };
/// The first two arguments are keys.
pub const TWO: KeyArguments = KeyArguments::Range { first: 1, last: 2, step: 1 };

/// A function that runs an ordered command on the shards.
pub type OnShards = fn(&mut Context<'_>, &[&[u8]], &mut Reply<'_>) -> Result<(), RedisError>;

/// A function that runs a command in the gateway that the client is connected to.
pub type OnGateway = fn(&mut ClientState, &[&[u8]], &mut Reply<'_>) -> Result<AfterRun, RedisError>;

/// The place where a command runs.
#[derive(Clone, Copy)]
pub enum CommandRunner {
    /// The shards, in order.
    Shards(OnShards),
    /// The gateway: it concerns the connection or the server.
    Gateway(OnGateway),
    /// The gateway first; if it says so, the shards then.
    Both(OnGateway, OnShards),
    /// The shards run another command, and the gateway has its client wait if that one found nothing.
    Blocking(&'static BlockingForm),
}

/// The gateway's next action after it ran a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterRun {
    /// Sends the answer that was written.
    Answer,
    /// Sends the answer, then closes the connection.
    Close,
    /// Nothing was answered: has the transaction ordered that the client gathered.
    Transaction,
    /// Nothing was answered: has the given keys watched, which is an ordered command.
    Watch,
}

impl CommandSpec {
    /// A command that the shards run.
    pub const fn ordered(
        name: &'static str,
        arity: i32,
        flags: &'static str,
        keys: KeyArguments,
        run: OnShards,
        summary: &'static str,
    ) -> Self {
        Self { name, arity, flags, keys, summary, run: CommandRunner::Shards(run), work: None }
    }

    /// A command that the gateway runs.
    pub const fn local(
        name: &'static str,
        arity: i32,
        flags: &'static str,
        run: OnGateway,
        summary: &'static str,
    ) -> Self {
        Self {
            name,
            arity,
            flags,
            keys: KeyArguments::None,
            summary,
            run: CommandRunner::Gateway(run),
            work: None,
        }
    }

    /// The same command, which takes as long as `work` says.
    pub const fn taking(self, work: Estimate) -> Self {
        Self { work: Some(work), ..self }
    }

    /// Whether it has `flag`.
    pub fn is(&self, flag: &str) -> bool {
        self.flags.split(' ').any(|f| f == flag)
    }

    /// Whether it may change keys.
    pub fn writes(&self) -> bool {
        self.flags.starts_with("write")
    }

    /// Whether its answer with these arguments may be far larger than what the client has sent, time and again. Commands
    /// that show elements that they take away answer each one once, so a client that asks for many has sent many.
    pub fn may_answer_much(&self, args: &[&[u8]]) -> bool {
        if matches!(self.keys, KeyArguments::Inner) {
            let script = OrderedTransaction::parse(args);
            return script.is_some_and(|script| {
                let shows = |inner: &Vec<&[u8]>| {
                    lookup(inner[0]).is_some_and(|command| command.may_answer_much(inner))
                };
                script.commands.iter().any(shows)
            });
        }
        let options = args.get(3..).unwrap_or_default();
        let shows_old = || {
            self.name == "set" && options.iter().any(|option| option.eq_ignore_ascii_case(b"get"))
        };
        !self.writes() || self.writes_and_shows() || shows_old()
    }

    /// Whether it writes, and shows a whole value.
    pub(super) fn writes_and_shows(&self) -> bool {
        WRITES_AND_SHOWS.contains(&self.name)
    }

    /// Refuses a wrong number of arguments.
    pub fn check_arity(&self, args: usize) -> Result<(), RedisError> {
        let right = if self.arity < 0 {
            args >= self.arity.unsigned_abs() as usize
        } else {
            args == self.arity as usize
        };
        if right { Ok(()) } else { Err(RedisError::arity(self.name)) }
    }

    /// The keys among `args`.
    pub fn keys_of<'a>(&self, args: &[&'a [u8]], tell: &mut dyn FnMut(&'a [u8])) {
        match self.keys {
            KeyArguments::None
            | KeyArguments::All
            | KeyArguments::Shards(_)
            | KeyArguments::Inner => {}
            KeyArguments::Told(keys) => _ = keys(args, tell),
            KeyArguments::Range { first, last, step } => {
                let last = if last < 0 { args.len() as isize + last } else { last };
                for i in (first..=last.max(0) as usize).step_by(step) {
                    if let Some(key) = args.get(i) {
                        tell(key);
                    }
                }
            }
            KeyArguments::Counted { count, before } => {
                args.iter().skip(1).take(before).for_each(|k| tell(k));
                let n = args.get(count).and_then(|n| super::number::parse_int(n)).unwrap_or(0);
                args.iter().skip(count + 1).take(n.max(0) as usize).for_each(|k| tell(k));
            }
        }
    }
}

/// Bytes of the longest name, at least.
const NAME_BYTES_MAX: usize = 24;

/// Places of the table below: a power of two, with room to spare.
const PLACES: usize = 1024;

/// A command with its number: its place among [`all`].
pub type NumberedCommand = (u16, &'static CommandSpec);

/// All commands, in the order of their numbers.
pub fn all() -> impl Iterator<Item = &'static CommandSpec> {
    commands::FAMILIES.iter().flat_map(|family| family.1)
}

/// All commands, each at the first free place from that of its name on.
fn table() -> &'static [Option<NumberedCommand>; PLACES] {
    static TABLE: OnceLock<[Option<NumberedCommand>; PLACES]> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = [None; PLACES];
        for (number, command) in all().enumerate() {
            let mut place = place(command.name.as_bytes());
            while table[place].is_some() {
                place = (place + 1) % PLACES;
            }
            table[place] = Some((number as u16, command));
        }
        table
    })
}

/// Where a name is looked for first; the same in any case.
fn place(name: &[u8]) -> usize {
    // In letters this is what their case differs in; other bytes may well become the same.
    let mix = |hash: u64, word: u64| {
        let lower = word | 0x2020_2020_2020_2020;
        (hash.rotate_left(29) ^ lower).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let (words, rest) = name.as_chunks::<8>();
    let hash = words.iter().fold(0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    (mix(hash, last_word(rest)) >> 54) as usize
}

/// Up to 7 bytes as a number, by loads that overlap: a copy to a word of its own would have the load of that word wait
/// for the stores of the copy, in each of the several lookups of every command.
fn last_word(bytes: &[u8]) -> u64 {
    let count = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let last = u64::from(u32::from_le_bytes(*last));
        return u64::from(u32::from_le_bytes(*first)) | last << (8 * (count - 4));
    }
    match *bytes {
        [] => 0,
        [one] => u64::from(one),
        [first, .., last] => {
            let middle = u64::from(bytes[count / 2]);
            u64::from(first) | middle << 8 | u64::from(last) << 16
        }
    }
}

/// The families of commands with their names, for `COMMAND DOCS`.
pub fn families() -> &'static [(&'static str, &'static [CommandSpec])] {
    commands::FAMILIES
}

/// The command of that name, in any case.
pub fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    find(name).map(|(_, command)| command)
}

/// The command of that name, in any case, and its number.
pub fn find(name: &[u8]) -> Option<NumberedCommand> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let (table, mut at) = (table(), place(name));
    while let Some((number, command)) = table[at] {
        if command.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some((number, command));
        }
        at = (at + 1) % PLACES;
    }
    None
}

/// The answer of Redis to an unknown command.
pub fn unknown(args: &[&[u8]]) -> RedisError {
    let shown = |bytes: &[u8], most: usize| {
        String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned()
    };
    let mut rest = String::new();
    for arg in &args[1..] {
        if rest.len() >= 128 {
            break;
        }
        rest.push_str(&format!("'{}' ", shown(arg, 128 - rest.len())));
    }
    RedisError::new(format!(
        "ERR unknown command '{}', with args beginning with: {rest}",
        shown(args[0], 128)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_show_values_may_answer_much_alone_and_in_transactions() {
        let much = |line: &str| {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            lookup(args[0]).expect("a command").may_answer_much(&args)
        };
        for line in ["GET k", "GETDEL k", "SET k v EX 5 get", "EXEC 0 2 3 SET k v 2 GET k"] {
            assert!(much(line), "{line}");
        }
        for line in ["SET k get", "SET k v NX", "INCR k", "EXEC 0 2 3 SET k v 2 INCR k"] {
            assert!(!much(line), "{line}");
        }
    }

    #[test]
    fn each_command_is_found_by_its_name_in_any_case_and_nothing_else_is() {
        let mut steps = 0;
        let all: Vec<&CommandSpec> = families().iter().flat_map(|family| family.1).collect();
        for command in &all {
            let name = command.name.as_bytes();
            assert!(std::ptr::eq(lookup(name).unwrap(), *command), "{}", command.name);
            let mut mixed = name.to_vec();
            mixed[0].make_ascii_uppercase();
            assert!(std::ptr::eq(lookup(&mixed).unwrap(), *command), "{}", command.name);
            let mut at = place(name);
            while !std::ptr::eq(table()[at].unwrap().1, *command) {
                (at, steps) = ((at + 1) % PLACES, steps + 1);
            }
            mixed.push(b'x');
            assert!(lookup(&mixed).is_none_or(|c| c.name.len() == mixed.len()));
        }
        assert!(all.len() < PLACES / 4 && steps < all.len() / 2, "{steps} steps");
        // These differ from a name only in the bit that the case is.
        for none in [&b""[..], b"GE\x14", b"amcast\x0etidy", b"command\0", &[b'a'; 25]] {
            assert!(lookup(none).is_none(), "{none:?}");
        }
    }
}
