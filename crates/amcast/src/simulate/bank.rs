//! The bank of `examples/bank/` under simulated clients: the machine of that example, judged by a model of its own. It shows
//! what a service takes that speaks none of the languages that the checker knows.

// The example's own file: what runs on real nodes there is simulated here.
#[path = "../../examples/bank/machine.rs"]
mod machine;

use super::{AnswerMeaning, Call, SeenCalls, Workload};
use amcast_check::PropertyVerdict;
use amcast_check::service::{Budget, ServiceModel, linearizable_as};
use amcast_core::rng::Rng;
use amcast_core::{Gid, GroupSet, ServiceAnswer};
use amcast_smr::StateMachineAdapter;
use machine::{Bank, BankOrder, FIRST_BALANCE, account, shard_of};
use std::collections::BTreeMap;

/// Accounts of each shard: few, so that clients meet.
const ACCOUNTS: u32 = 2;

/// Tellers that make transfers between all accounts, and look at some of them or at all.
pub struct BankWorkload {
    shards: usize,
}

impl BankWorkload {
    /// Of a bank over so many shards.
    pub const fn new(shards: usize) -> Self {
        Self { shards }
    }

    fn accounts(&self) -> Vec<u32> {
        let shards = 0..self.shards as u8;
        shards.flat_map(|shard| (0..ACCOUNTS).map(move |n| account(Gid(shard), n))).collect()
    }

    fn call(&self, order: &BankOrder, op: String) -> Call {
        let dst = match order {
            BankOrder::Change => GroupSet::first(self.shards),
            _ => order.accounts().into_iter().map(shard_of).collect(),
        };
        let read_only = !matches!(order, BankOrder::Transfer { .. });
        Call::new(dst, order.encode(), read_only, op)
    }

    fn balances(&self, accounts: &[u32]) -> Call {
        let names: String = accounts.iter().map(|a| format!(" {a}")).collect();
        self.call(&BankOrder::Balances(accounts.to_vec()), format!("BALANCES{names}"))
    }
}

impl Workload for BankWorkload {
    type Machine = StateMachineAdapter<Bank>;

    fn next(&mut self, rng: &mut Rng) -> Call {
        let all = self.accounts();
        let mut one = || all[rng.below(all.len() as u64) as usize];
        let (from, to) = (one(), one());
        match rng.below(8) {
            0..=4 => {
                let amount = rng.below(FIRST_BALANCE as u64) as u32;
                let order = BankOrder::Transfer { from, to, amount };
                self.call(&order, format!("TRANSFER {from} {to} {amount}"))
            }
            5 | 6 => self.balances(&[from, to]),
            _ => self.call(&BankOrder::Change, "CHANGE".to_string()),
        }
    }

    fn last(&mut self) -> Call {
        self.balances(&self.accounts())
    }

    fn returned(&mut self, _: &Call, answer: &ServiceAnswer<'_>) -> AnswerMeaning {
        AnswerMeaning::of_whole(answer, |bytes| match bytes {
            [done] => done.to_string(),
            balances => {
                let one = |bytes: &[u8]| {
                    i64::from_le_bytes(bytes.try_into().expect("eight bytes")).to_string()
                };
                balances.chunks_exact(8).map(one).collect::<Vec<_>>().join(" ")
            }
        })
    }

    fn judge(&self, seen: &SeenCalls<'_>) -> Vec<(&'static str, PropertyVerdict)> {
        vec![("linearizable", linearizable_as(BankModel, seen.history, Budget::default()))]
    }
}

/// The model of a bank whose calls arrive one at a time: `TRANSFER from to amount` answers 1, or 0 if there was
/// too little; `BALANCES account ..` answers the balance of each; `CHANGE` answers by how much the sum of all
/// differs from the first one.
struct BankModel;

/// A call and what it answered, if it returned.
enum BankOp {
    Transfer {
        from: u32,
        to: u32,
        amount: i64,
        done: Option<bool>,
    },
    Balances {
        accounts: Vec<u32>,
        has: Option<Vec<i64>>,
    },
    /// No order of transfers changes the sum: this alone is wrong, if it is not 0.
    Change(Option<i64>),
}

fn numbers(text: &str) -> Result<Vec<i64>, String> {
    let number = |word: &str| word.parse().map_err(|_| format!("{word:?} is no number"));
    text.split_whitespace().map(number).collect()
}

impl ServiceModel for BankModel {
    type Op = BankOp;
    type State = BTreeMap<u32, i64>;
    /// The transfer to be made back.
    type Undo = Option<MadeTransfer>;
    type Known = ();

    fn understand(&mut self, op: &str, out: Option<&str>) -> Result<Option<BankOp>, String> {
        if out == Some("ERR") {
            return Ok(None);
        }
        let (name, rest) = op.split_once(' ').unwrap_or((op, ""));
        let (asked, said) = (numbers(rest)?, out.map(numbers).transpose()?);
        let accounts = || asked.iter().map(|a| *a as u32).collect();
        match (name, &asked[..], said.as_deref()) {
            ("TRANSFER", &[from, to, amount], None | Some([0 | 1])) => {
                let done = said.map(|said| said == [1]);
                let (from, to) = (from as u32, to as u32);
                Ok(Some(BankOp::Transfer { from, to, amount, done }))
            }
            ("BALANCES", accounts_of, has) if has.is_none_or(|h| h.len() == accounts_of.len()) => {
                Ok(Some(BankOp::Balances { accounts: accounts(), has: said }))
            }
            ("CHANGE", [], None) => Ok(Some(BankOp::Change(None))),
            ("CHANGE", [], Some(&[change])) => Ok(Some(BankOp::Change(Some(change)))),
            _ => Err(format!("{op:?} answered {out:?}: that is no call of a bank")),
        }
    }

    fn keys(&self, op: &BankOp, tell: &mut dyn FnMut(u32)) {
        match op {
            BankOp::Transfer { from, to, .. } => {
                [*from, *to].map(key_of).into_iter().for_each(tell)
            }
            BankOp::Balances { accounts, .. } => accounts.iter().map(|a| key_of(*a)).for_each(tell),
            // It fits anywhere, or nowhere.
            BankOp::Change(_) => tell(0),
        }
    }

    fn only_reads(&self, op: &BankOp) -> bool {
        !matches!(op, BankOp::Transfer { .. })
    }

    fn start(&self) -> Self::State {
        BTreeMap::new()
    }

    fn apply(&self, state: &mut Self::State, op: &BankOp, answered: bool) -> Option<Self::Undo> {
        let balance = |state: &Self::State, account| -> i64 {
            state.get(account).copied().unwrap_or(FIRST_BALANCE)
        };
        match op {
            BankOp::Transfer { from, to, amount, done } => {
                let does = from != to && balance(state, from) >= *amount;
                if answered && done.is_some_and(|done| done != does) {
                    return None;
                }
                let transfer =
                    does.then_some(MadeTransfer { from: *from, to: *to, amount: *amount });
                transfer.iter().for_each(|transfer| make(state, transfer));
                Some(transfer)
            }
            BankOp::Balances { accounts, has } => {
                let fits = |has: &Vec<i64>| {
                    accounts.iter().zip(has).all(|(account, has)| balance(state, account) == *has)
                };
                (!answered || has.as_ref().is_none_or(fits)).then_some(None)
            }
            BankOp::Change(change) => (!answered || change.is_none_or(|c| c == 0)).then_some(None),
        }
    }

    fn known(&self, _: &mut dyn Iterator<Item = &BankOp>) {}

    fn agrees(&self, _: &Self::State, _: &BankOp, (): &()) -> bool {
        true
    }

    fn undo(&self, state: &mut Self::State, undo: Self::Undo) {
        undo.iter().for_each(|made| make(state, &made.back()));
    }

    fn print(&self, state: &Self::State) -> u128 {
        // An account with its first balance counts as one that nobody touched.
        let touched = state.iter().filter(|(_, balance)| **balance != FIRST_BALANCE);
        touched.fold(0, |print, (account, balance)| {
            let mut mixed = Rng::new(Rng::new(u64::from(*account)).word() ^ *balance as u64);
            print ^ (u128::from(mixed.word()) << 64 | u128::from(mixed.word()))
        })
    }

    fn describe(&self, state: &Self::State, keys: &[u32]) -> Vec<String> {
        let of = |account: u32| state.get(&account).copied().unwrap_or(FIRST_BALANCE);
        let accounts = keys.iter().map(|key| account(Gid((key / ACCOUNTS) as u8), key % ACCOUNTS));
        accounts.map(|account| format!("account {account} has {}", of(account))).collect()
    }
}

/// The checker counts accounts from 0, without gaps.
fn key_of(of: u32) -> u32 {
    let shard = u32::from(shard_of(of).0);
    shard * ACCOUNTS + of - account(Gid(shard as u8), 0)
}

/// A transfer that changed both balances.
struct MadeTransfer {
    from: u32,
    to: u32,
    amount: i64,
}

impl MadeTransfer {
    /// The transfer that takes it back.
    const fn back(&self) -> Self {
        Self { from: self.to, to: self.from, amount: self.amount }
    }
}

fn make(state: &mut BTreeMap<u32, i64>, transfer: &MadeTransfer) {
    let MadeTransfer { from, to, amount } = *transfer;
    *state.entry(from).or_insert(FIRST_BALANCE) -= amount;
    *state.entry(to).or_insert(FIRST_BALANCE) += amount;
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_check::History;

    /// The verdict on consecutive calls of one client.
    fn judged(calls: &[(&str, &str)]) -> PropertyVerdict {
        let mut history = History::new();
        let mut push = |line: String| history.push_line(&line).expect("it is a line");
        push(r#"{"ev":"process","p":"c","groups":[]}"#.to_string());
        for (n, (op, out)) in calls.iter().enumerate() {
            let t = 10 * n;
            push(format!(r#"{{"ev":"call","t":{t},"p":"c","m":"c:{n}","op":"{op}"}}"#));
            push(format!(r#"{{"ev":"return","t":{},"p":"c","m":"c:{n}","out":"{out}"}}"#, t + 5));
        }
        linearizable_as(BankModel, &history, Budget::default())
    }

    #[test]
    fn money_that_is_made_lost_or_spent_twice_is_found() {
        let spent = ("TRANSFER 0 1 600", "1");
        assert_eq!(
            judged(&[spent, ("BALANCES 0 1", "400 1600"), ("CHANGE", "0")]),
            PropertyVerdict::Holds
        );
        assert_eq!(
            judged(&[spent, ("TRANSFER 0 1 600", "0"), ("BALANCES 0", "400")]),
            PropertyVerdict::Holds
        );
        for wrong in [("TRANSFER 0 1 600", "1"), ("BALANCES 0 1", "1000 1600"), ("CHANGE", "-600")]
        {
            assert!(matches!(judged(&[spent, wrong]), PropertyVerdict::Violated(_)), "{wrong:?}");
        }
    }
}
