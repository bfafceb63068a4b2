//! The behaviour of a service when its calls come one at a time.

use alloc::string::String;
use alloc::vec::Vec;

/// A service as a state machine over keys, for [`super::linearizable_as`] and
/// [`super::sequential_as`].
///
/// Keys are numbers that the model gives out. Calls that touch different keys are independent: the
/// search treats sets of keys that no call connects apart from one another.
pub trait ServiceModel {
    /// An operation with the answer that came back, if one did.
    type Op;
    /// The values of some keys.
    type State: Clone;
    /// The record that takes one operation's effect back.
    type Undo;
    /// Facts that some answers imply for every state, early or late: see [`Self::known`].
    type Known;

    /// Understands an operation and its answer; no answer means that the call did not return.
    ///
    /// Gives nothing if the operation certainly had no effect and its answer says nothing (it was
    /// refused).
    ///
    /// # Errors
    /// A sentence, when the text is none of the service's language.
    fn understand(&mut self, op: &str, out: Option<&str>) -> Result<Option<Self::Op>, String>;

    /// Tells the keys that `op` may touch.
    fn keys(&self, op: &Self::Op, tell: &mut dyn FnMut(u32));

    /// Whether `op` never changes anything.
    fn only_reads(&self, op: &Self::Op) -> bool;

    /// The state before the first call.
    fn start(&self) -> Self::State;

    /// Lets `op` take effect. Nothing, and no change, if it does not answer in this state what it
    /// answered; any answer will do if it is not `answered`.
    fn apply(&self, state: &mut Self::State, op: &Self::Op, answered: bool) -> Option<Self::Undo>;

    /// The lasting facts that the answers of these operations, all of which are to be explained, imply once they
    /// hold. A search that knows them soon leaves a wrong branch.
    fn known(&self, ops: &mut dyn Iterator<Item = &Self::Op>) -> Self::Known;

    /// Whether `op` should take effect in this state as far as is `known`. If not, then no order that has
    /// it here explains the answers, or one without it does so, too.
    fn agrees(&self, state: &Self::State, op: &Self::Op, known: &Self::Known) -> bool;

    /// Takes the latest effect back.
    fn undo(&self, state: &mut Self::State, undo: Self::Undo);

    /// A fingerprint of the state: equal for equal states, different (but for a chance of one in
    /// 2^100 and less) for different ones.
    fn print(&self, state: &Self::State) -> u128;

    /// The values of `keys`, for a person.
    fn describe(&self, state: &Self::State, keys: &[u32]) -> Vec<String>;
}
