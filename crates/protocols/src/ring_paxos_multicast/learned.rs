//! The values of one round as one member holds them: what is decided is delivered in the order of instances.

use super::message::ProposedValue;
use alloc::collections::VecDeque;

/// The values of a round, as far as they are not delivered.
#[derive(Debug, Default)]
pub(super) struct ValueLog {
    /// Values of the instances behind `delivered`.
    values: VecDeque<ProposedValue>,
    /// Up to this instance values were delivered.
    delivered: u64,
    /// Up to this instance values are decided, as far as this member knows.
    decided: u64,
}

impl ValueLog {
    /// Up to this instance this member holds values.
    pub(super) fn held(&self) -> u64 {
        self.delivered + self.values.len() as u64
    }

    /// Up to this instance values are decided.
    pub(super) const fn decided(&self) -> u64 {
        self.decided
    }

    /// Takes in the value of an instance.
    ///
    /// # Errors
    /// When it is not the next one: the layer below hands over the values of a round in their order.
    pub(super) fn hold(&mut self, instance: u64, value: ProposedValue) -> Result<(), &'static str> {
        if instance != self.held() + 1 {
            return Err("a value out of turn");
        }
        self.values.push_back(value);
        Ok(())
    }

    /// All values up to this instance are decided.
    ///
    /// # Errors
    /// When this member does not hold one of them: no decision overtakes its value.
    pub(super) fn decide(&mut self, instance: u64) -> Result<(), &'static str> {
        if instance > self.held() {
            return Err("a decision without its value");
        }
        self.decided = self.decided.max(instance);
        Ok(())
    }

    /// The next value to deliver: it is held and decided.
    pub(super) fn next(&mut self) -> Option<ProposedValue> {
        if self.delivered == self.decided {
            return None;
        }
        let value = self.values.pop_front()?;
        self.delivered += 1;
        Some(value)
    }

    /// The values that are left when the round ends, which all survivors hold.
    pub(super) fn finish(&mut self) -> VecDeque<ProposedValue> {
        core::mem::take(&mut self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decided_values_are_delivered_in_order_and_once_and_the_rest_is_finished() {
        let mut log = ValueLog::default();
        assert!(log.decide(1).is_err(), "it holds no such value");
        assert!(log.hold(2, ProposedValue::default()).is_err(), "the first one is missing");
        for instance in 1..=3 {
            assert_eq!(log.hold(instance, ProposedValue::default()), Ok(()));
        }
        assert!(log.hold(3, ProposedValue::default()).is_err(), "it holds that");
        assert!(log.next().is_none(), "nothing is decided");
        assert_eq!([log.decide(2), log.decide(1)], [Ok(()), Ok(())]);
        assert!(log.next().is_some() && log.next().is_some() && log.next().is_none());
        assert_eq!((log.held(), log.decided()), (3, 2));
        assert_eq!(log.finish().len(), 1);
    }
}
