//! The six specifications of total order broadcast and what they let faulty processes do
//! [TO 2.3, 2.4].

use crate::delivery::UNSETTLED;
use crate::history::{History, Proc};
use crate::index::Index;
use crate::intern::NONE;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use amcast_core::Property;
use core::fmt;

/// One of the six specifications TO(A, O): NUV, UI, the agreement A and the order O. [TO 2.3]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Specification {
    /// Whether agreement is uniform: UA, else NUA.
    pub uniform: bool,
    /// The order.
    pub order: OrderKind,
}

/// The order of a [`Specification`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OrderKind {
    /// Strong uniform: no gaps at any process.
    Suto,
    /// Weak uniform: gaps, but one order at all processes.
    Wuto,
    /// Weak non-uniform: one order at correct processes.
    Wnuto,
}

impl Specification {
    /// The six, the strongest first.
    pub const ALL: [Self; 6] = {
        use OrderKind::{Suto, Wnuto, Wuto};
        [
            Self { uniform: true, order: Suto },
            Self { uniform: true, order: Wuto },
            Self { uniform: true, order: Wnuto },
            Self { uniform: false, order: Suto },
            Self { uniform: false, order: Wuto },
            Self { uniform: false, order: Wnuto },
        ]
    };

    /// The specification of that name, such as `TO(UA,SUTO)`; case and spaces do not matter.
    pub fn parse(name: &str) -> Option<Self> {
        let plain = |s: &str| -> String {
            s.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_uppercase()).collect()
        };
        let name = plain(name);
        Self::ALL.into_iter().find(|s| plain(&s.to_string()) == name)
    }

    /// The properties it consists of.
    pub fn properties(self) -> [Property; 4] {
        let agreement = if self.uniform { Property::Ua } else { Property::Nua };
        let order = match self.order {
            OrderKind::Suto => Property::Suto,
            OrderKind::Wuto => Property::Wuto,
            OrderKind::Wnuto => Property::Wnuto,
        };
        [Property::Nuv, Property::Ui, agreement, order]
    }

    /// Those directly above it in the hierarchy [TO figure 1]: a protocol that breaks each of them breaks
    /// all that are stronger, so that it enforces no more than this one [TO definition 1].
    pub fn next_stronger(self) -> Vec<Self> {
        let order = match self.order {
            OrderKind::Suto => None,
            OrderKind::Wuto => Some(OrderKind::Suto),
            OrderKind::Wnuto => Some(OrderKind::Wuto),
        };
        let ordered = order.map(|order| Self { order, ..self });
        let uniform = (!self.uniform).then_some(Self { uniform: true, ..self });
        ordered.into_iter().chain(uniform).collect()
    }

    /// The patterns that faulty processes may show under it. [TO table 2]
    pub fn admits(self) -> Patterns {
        Patterns {
            ep1: true,
            ep2: !self.uniform,
            ep3: self.order != OrderKind::Suto,
            ep4: self.order == OrderKind::Wnuto,
        }
    }
}

impl fmt::Display for Specification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, _, agreement, order] = self.properties();
        write!(f, "TO({agreement},{order})")
    }
}

/// The properties that a name denotes: a property's own name, one of the six specifications, or
/// `atomic-multicast` for the five properties of [TRAM 2.2].
pub fn expand(name: &str) -> Option<Vec<Property>> {
    if name.eq_ignore_ascii_case("atomic-multicast") {
        return Some(vec![
            Property::Validity,
            Property::UniformAgreement,
            Property::UniformIntegrity,
            Property::UniformPrefixOrder,
            Property::UniformAcyclicOrder,
        ]);
    }
    let one = Property::parse(name).map(|p| vec![p]);
    one.or_else(|| Specification::parse(name).map(|s| s.properties().to_vec()))
}

/// Which execution patterns a faulty process shows. [TO 2.4]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Patterns {
    /// EP1: it delivers a prefix of what correct processes deliver (and none of the other three).
    pub ep1: bool,
    /// EP2: it delivers messages that no correct process delivers.
    pub ep2: bool,
    /// EP3: it skips messages that correct processes deliver before others that it delivers.
    pub ep3: bool,
    /// EP4: it delivers messages in another order than correct processes.
    pub ep4: bool,
}

impl Patterns {
    /// Whether `allowed` has every pattern of these.
    pub fn within(self, allowed: Self) -> bool {
        (!self.ep1 || allowed.ep1)
            && (!self.ep2 || allowed.ep2)
            && (!self.ep3 || allowed.ep3)
            && (!self.ep4 || allowed.ep4)
    }
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [(self.ep1, "EP1"), (self.ep2, "EP2"), (self.ep3, "EP3"), (self.ep4, "EP4")];
        let names: Vec<_> = all.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
        f.write_str(&names.join("+"))
    }
}

/// How a faulty process behaved in one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Behaviour {
    /// The faulty process.
    pub process: Proc,
    /// The group, by name.
    pub group: String,
    /// The pattern that it shows there.
    pub patterns: Patterns,
    /// How many messages it delivered there: where none, EP1 is no more than that it died early.
    pub deliveries: usize,
}

/// The execution patterns of every faulty process in each of its groups, against the correct member
/// that delivered most. Groups without a correct member are omitted. Messages nobody cast, or cast
/// to other groups, are not considered.
///
/// # Errors
/// When the run did not settle: what correct processes deliver is not known then.
pub fn execution_patterns(history: &History) -> Result<Vec<Behaviour>, String> {
    if !history.settled() {
        return Err(UNSETTLED.to_string());
    }
    let x = Index::new(history);
    let mut found = Vec::new();
    let mut place = vec![NONE; x.messages()];
    for (g, members) in x.members().iter().enumerate() {
        let g = g as u32;
        let of = |p: u32| x.delivered(p).iter().copied().filter(|&m| x.to_group(m, g));
        let correct = members.iter().copied().filter(|&p| x.correct[p as usize]);
        let Some(lead) = correct.clone().max_by_key(|&p| of(p).count()) else { continue };
        for (n, m) in of(lead).enumerate() {
            place[m as usize] = n as u32;
        }
        // Messages that only other correct members delivered are delivered by correct processes all the same.
        let elsewhere = NONE - 1;
        for m in correct.flat_map(of) {
            if place[m as usize] == NONE {
                place[m as usize] = elsewhere;
            }
        }
        for &p in members.iter().filter(|&&p| !x.correct[p as usize]) {
            let patterns = classify(of(p).map(|m| place[m as usize]), elsewhere);
            let (group, deliveries) = (x.group_name(g).to_string(), of(p).count());
            found.push(Behaviour { process: Proc(p), group, patterns, deliveries });
        }
        place.fill(NONE);
    }
    Ok(found)
}

/// Classifies a process by the places (in the correct order) of what it delivered.
fn classify(places: impl Iterator<Item = u32>, elsewhere: u32) -> Patterns {
    let mut shown = Patterns::default();
    let (mut known, mut highest) = (0_u32, None::<u32>);
    for place in places {
        if place == NONE {
            shown.ep2 = true;
        } else if place != elsewhere {
            shown.ep4 |= highest.is_some_and(|h| h > place);
            highest = highest.max(Some(place));
            known += 1;
        }
    }
    // It skipped something if it does not know all up to the last that it knows.
    shown.ep3 = highest.is_some_and(|h| known < h + 1);
    shown.ep1 = shown == Patterns::default();
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_2_reads_as_printed() {
        let admitted: Vec<_> =
            Specification::ALL.iter().map(|s| (s.to_string(), s.admits().to_string())).collect();
        let printed = [
            ("TO(UA,SUTO)", "EP1"),
            ("TO(UA,WUTO)", "EP1+EP3"),
            ("TO(UA,WNUTO)", "EP1+EP3+EP4"),
            ("TO(NUA,SUTO)", "EP1+EP2"),
            ("TO(NUA,WUTO)", "EP1+EP2+EP3"),
            ("TO(NUA,WNUTO)", "EP1+EP2+EP3+EP4"),
        ];
        assert!(admitted.iter().map(|(a, b)| (&**a, &**b)).eq(printed));
    }

    #[test]
    fn figure_1_reads_as_printed() {
        let above: Vec<String> = Specification::ALL
            .iter()
            .map(|s| {
                s.next_stronger().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            })
            .collect();
        let printed = [
            "",
            "TO(UA,SUTO)",
            "TO(UA,WUTO)",
            "TO(UA,SUTO)",
            "TO(NUA,SUTO) TO(UA,WUTO)",
            "TO(NUA,WUTO) TO(UA,WNUTO)",
        ];
        assert_eq!(above, printed);
    }

    #[test]
    fn names_expand_to_properties() {
        assert_eq!(
            expand("to( nua, wuto )"),
            Some(vec![Property::Nuv, Property::Ui, Property::Nua, Property::Wuto])
        );
        assert_eq!(expand("causal-order"), Some(vec![Property::CausalOrder]));
        assert_eq!(expand("atomic-multicast").map(|p| p.len()), Some(5));
        assert_eq!(expand("TO(UA,SNUTO)"), None);
    }

    #[test]
    fn places_are_classified() {
        let class = |places: &[u32]| classify(places.iter().copied(), 99).to_string();
        assert_eq!(class(&[]), "EP1");
        assert_eq!(class(&[0, 1]), "EP1");
        assert_eq!(class(&[0, NONE]), "EP2");
        assert_eq!(class(&[0, 2]), "EP3");
        assert_eq!(class(&[1, 0]), "EP4");
        assert_eq!(class(&[2, 0, NONE]), "EP2+EP3+EP4");
    }
}
