//! The outcome of a command, for the client that sent it.
//!
//! A replica says it of each of its answers, and a gateway of each command that has none. It travels beside the
//! answer's bytes: nobody has to find it out from the words of an error, which may hold anything that a client or a
//! service of one's own put there.

use alloc::borrow::Cow;

/// The outcome of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Outcome {
    /// It was executed, once, at its place in the order. Its answer is the result there, and may be an error
    /// of the service (a key of another type) which means that nothing changed. A request after that answer that must
    /// not be older, sees what the command saw.
    Executed = 0,
    /// It was not executed and will not be: nothing changed, and it may be sent again as a new command.
    NotExecuted = 1,
    /// It was executed, or was not, or will be: only the state tells.
    Unknown = 2,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Executed, Self::NotExecuted, Self::Unknown];

    /// Its number in messages and in saved states: 0 to 2.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The outcome of this [number](Self::code); none if it is the number of none.
    pub const fn of_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Executed),
            1 => Some(Self::NotExecuted),
            2 => Some(Self::Unknown),
            _ => None,
        }
    }

    /// How an error ends that tells people so.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Executed => "the command was executed",
            Self::NotExecuted => "the command was not executed",
            Self::Unknown => "whether the command took effect is not known",
        }
    }
}

/// A service's answer to a command, on its way from a replica to the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceAnswer<'a> {
    /// The outcome of the command.
    pub outcome: Outcome,
    /// The answer of the service, in its own format.
    pub bytes: Cow<'a, [u8]>,
}

impl<'a> ServiceAnswer<'a> {
    /// An answer that borrows its bytes.
    pub const fn borrowed(outcome: Outcome, bytes: &'a [u8]) -> Self {
        Self { outcome, bytes: Cow::Borrowed(bytes) }
    }

    /// The same with bytes of its own.
    pub fn into_owned(self) -> ServiceAnswer<'static> {
        ServiceAnswer { outcome: self.outcome, bytes: Cow::Owned(self.bytes.into_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_tell_outcomes_apart() {
        for (i, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(
                (usize::from(outcome.code()), Outcome::of_code(i as u8)),
                (i, Some(outcome))
            );
            let others = Outcome::ALL.into_iter().filter(|other| *other != outcome);
            assert!(others.into_iter().all(|other| !outcome.words().ends_with(other.words())));
        }
        assert!((3..=u8::MAX).all(|code| Outcome::of_code(code).is_none()));
    }
}
