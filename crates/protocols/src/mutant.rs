//! Protocols that are broken on purpose, so that a checker can be seen to fail.
//!
//! A protocol declares its mutants as an enum: a name for the command line, a sentence, and the
//! properties each one breaks. At the place where the right thing is done, the code asks
//! [`Mutants::is`] whether to do the wrong one. With the cargo feature `mutants` the protocol has a
//! parameter `mutant` that switches one of them on; without the feature the parameter does not
//! exist and `is` is a constant `false`, so that nothing is paid for it.
//!
//! ```text
//! mutants! {
//!     /// Ways to break this protocol.
//!     pub enum Mutant {
//!         /// At delivery.
//!         DeliversTwice = "delivers-twice":
//!             "Every message is delivered two times." breaks [UniformIntegrity];
//!     }
//! }
//!
//! static PARAMS: &[Param] = &[
//!     WINDOW,
//!     #[cfg(feature = "mutants")]
//!     <Mutant as mutant::Mutant>::PARAM,
//! ];
//! ```

use amcast_core::{Config, Param, Property};
use core::marker::PhantomData;

/// The description of one mutant.
#[derive(Clone, Copy, Debug)]
pub struct MutantInfo {
    /// Its name: a value of the parameter `mutant`.
    pub name: &'static str,
    /// Its mistake, in a sentence.
    pub what: &'static str,
    /// Promised properties that its runs are seen to break; none where it breaks the contract with
    /// its driver.
    pub breaks: &'static [Property],
    /// The run that shows it where random runs hardly ever do: the repository's file of a scenario, a seed or a test.
    pub shown_by: Option<&'static str>,
}

/// The mutants of one protocol; [`mutants!`](crate::mutant) writes the implementation.
pub trait Mutant: Copy + Eq + 'static {
    /// All of them, in the order of declaration.
    const ALL: &'static [Self];
    /// The description of each, in the same order.
    const INFO: &'static [MutantInfo];
    /// The parameter that switches one on: `none`, or a mutant's name.
    const PARAM: Param;
}

/// Which mutant of a protocol is switched on in a run, if any.
#[derive(Clone, Copy, Debug)]
pub struct Mutants<M> {
    #[cfg(feature = "mutants")]
    on: Option<M>,
    of: PhantomData<M>,
}

#[cfg(feature = "mutants")]
impl<M: Mutant> Mutants<M> {
    /// The one that the configuration switches on.
    pub fn of(config: &Config) -> Self {
        let choice = config.get(&M::PARAM) as usize;
        let on = choice.checked_sub(1).map(|i| M::ALL[i]);
        Self { on, of: PhantomData }
    }

    /// This one, if one is given: of a part that another protocol lends, and breaks in its own name.
    pub(crate) const fn with(on: Option<M>) -> Self {
        Self { on, of: PhantomData }
    }

    /// Whether `mutant` is on.
    #[inline]
    pub fn is(self, mutant: M) -> bool {
        self.on == Some(mutant)
    }

    /// Whether any is on: then the protocol's own assertions must not get in before the checker.
    #[inline]
    pub fn any(self) -> bool {
        self.on.is_some()
    }
}

#[cfg(not(feature = "mutants"))]
impl<M: Mutant> Mutants<M> {
    /// None: this build has no mutants.
    pub const fn of(_: &Config) -> Self {
        Self { of: PhantomData }
    }

    /// None: this build has no mutants.
    pub(crate) const fn with(_: Option<M>) -> Self {
        Self { of: PhantomData }
    }

    /// Whether `mutant` is on: never in this build.
    #[inline(always)]
    pub const fn is(self, _: M) -> bool {
        false
    }

    /// Whether any is on: never in this build.
    #[inline(always)]
    pub const fn any(self) -> bool {
        false
    }
}

/// The only one, if there is one: the text behind `shown_by`.
pub(crate) const fn only(all: &[&'static str]) -> Option<&'static str> {
    match all {
        [one] => Some(one),
        _ => None,
    }
}

/// Declares the mutants of a protocol; see the [module](crate::mutant).
macro_rules! mutants {
    (
        $(#[$of_enum:meta])*
        $vis:vis enum $name:ident {
            $(
                $(#[$of_variant:meta])*
                $variant:ident = $word:literal: $what:literal breaks [$($property:ident),*]
                    $(shown_by $shown_by:literal)?;
            )+
        }
    ) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        // Public where the feature exports it.
        #[allow(unreachable_pub)]
        $vis enum $name {
            $(
                #[doc = $what]
                $(#[$of_variant])*
                $variant,
            )+
        }

        impl $crate::mutant::Mutant for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            const INFO: &'static [$crate::mutant::MutantInfo] = &[$(
                $crate::mutant::MutantInfo {
                    name: $word,
                    what: $what,
                    breaks: &[$(amcast_core::Property::$property),*],
                    shown_by: $crate::mutant::only(&[$($shown_by)?]),
                },
            )+];
            const PARAM: amcast_core::Param = amcast_core::Param {
                name: "mutant",
                kind: amcast_core::config::ParamKind::Choice { of: &["none", $($word),+] },
                about: "Breaks the protocol in this way, on purpose.",
                cost: "The properties that the mutant is known to break.",
                source: "ours: a checker that has never failed anything is no evidence",
            };
        }
    };
}
pub(crate) use mutants;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use amcast_core::RawConfig;

    mutants! {
        /// Two ways to be wrong.
        pub(super) enum SampleMutant {
            First = "first": "The first way." breaks [Validity];
            Second = "second": "The second way." breaks [Validity, Genuine] shown_by "a-file";
        }
    }

    static PARAMS: &[Param] = &[<SampleMutant as Mutant>::PARAM];

    fn with(mutant: Option<&str>) -> Mutants<SampleMutant> {
        let mut raw = RawConfig::default();
        if let Some(name) = mutant {
            raw.set.insert("mutant".to_string(), name.to_string());
        }
        Mutants::of(&raw.check(PARAMS).unwrap())
    }

    #[test]
    fn none_is_on_unless_asked_for() {
        assert!(!with(None).any() && !with(Some("none")).any());
        assert!(SampleMutant::ALL.iter().all(|&w| !with(None).is(w)));
    }

    #[test]
    fn the_named_one_is_on_only_where_the_build_has_mutants() {
        let m = with(Some("second"));
        assert_eq!(m.any(), cfg!(feature = "mutants"));
        assert_eq!(m.is(SampleMutant::Second), cfg!(feature = "mutants"));
        assert!(!m.is(SampleMutant::First));
    }

    #[test]
    fn what_is_declared_can_be_listed() {
        assert_eq!(SampleMutant::INFO[1].name, "second");
        assert_eq!(SampleMutant::INFO[1].what, "The second way.");
        assert_eq!(SampleMutant::INFO[1].breaks, [Property::Validity, Property::Genuine]);
        assert_eq!(
            (SampleMutant::INFO[0].shown_by, SampleMutant::INFO[1].shown_by),
            (None, Some("a-file"))
        );
    }
}
