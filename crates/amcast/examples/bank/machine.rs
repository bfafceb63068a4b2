//! The bank's state machine: accounts in shards, transfers between any of them, statements and sums.
#![allow(unreachable_pub, reason = "the simulator's workload of the library has this file, too")]

use amcast::core::{Gid, GroupSet, Outcome};
use amcast::smr::{KeyUse, Shard, ShardView, StateMachine};
use std::collections::BTreeMap;

/// The balance of each account when the bank opens.
pub const FIRST_BALANCE: i64 = 1000;

/// The bits of an account's number that count the accounts of one shard.
const NUMBER_BITS: u32 = 24;

/// The so-manyth account of a shard.
pub fn account(shard: Gid, number: u32) -> u32 {
    u32::from(shard.0) << NUMBER_BITS | number
}

/// Where an account is kept: its number says so.
pub fn shard_of(account: u32) -> Gid {
    Gid((account >> NUMBER_BITS) as u8)
}

/// The commands that tellers send.
pub enum BankOrder {
    /// An amount goes from one account to another, if there is so much.
    Transfer { from: u32, to: u32, amount: u32 },
    /// How much is in these accounts?
    Balances(Vec<u32>),
    /// By how much does what is in the shards differ from what was there at first?
    Change,
}

impl BankOrder {
    /// A byte for the kind, and then numbers of four bytes.
    pub fn encode(&self) -> Vec<u8> {
        let numbers = |kind: u8, numbers: &[u32]| {
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
            [kind].into_iter().chain(bytes).collect()
        };
        match self {
            Self::Transfer { from, to, amount } => numbers(0, &[*from, *to, *amount]),
            Self::Balances(accounts) => numbers(1, accounts),
            Self::Change => numbers(2, &[]),
        }
    }

    /// The order that these bytes are, if they are one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?));
        let numbers: Vec<u32> = rest.chunks(4).map(number).collect::<Option<_>>()?;
        match (kind, &numbers[..]) {
            (0, &[from, to, amount]) => Some(Self::Transfer { from, to, amount }),
            (1, [_, ..]) => Some(Self::Balances(numbers)),
            (2, []) => Some(Self::Change),
            _ => None,
        }
    }

    /// The accounts that it names.
    pub fn accounts(&self) -> Vec<u32> {
        match self {
            Self::Transfer { from, to, .. } => vec![*from, *to],
            Self::Balances(accounts) => accounts.clone(),
            Self::Change => Vec::new(),
        }
    }
}

/// The state machine.
#[derive(Debug, Default)]
pub struct Bank;

/// One shard: balances that are not the first one.
#[derive(Debug, Default)]
pub struct Accounts(BTreeMap<u32, i64>);

impl Accounts {
    fn balance(&self, account: u32) -> i64 {
        self.0.get(&account).copied().unwrap_or(FIRST_BALANCE)
    }

    fn add(&mut self, account: u32, by: i64) {
        *self.0.entry(account).or_insert(FIRST_BALANCE) += by;
    }
}

impl Shard for Accounts {
    fn items(&self) -> usize {
        self.0.len()
    }

    fn save(&self, to: &mut Vec<u8>) {
        for (account, balance) in &self.0 {
            to.extend_from_slice(&account.to_le_bytes());
            to.extend_from_slice(&balance.to_le_bytes());
        }
    }

    /// Accounts are in order, so the replicas can compare what they save.
    fn digest(&self, to: &mut Vec<u8>) {
        self.save(to);
    }

    fn load(from: &[u8]) -> Option<Self> {
        let one = |bytes: &[u8]| {
            let (account, rest) = bytes.split_first_chunk()?;
            let balance = i64::from_le_bytes(rest.try_into().ok()?);
            Some((u32::from_le_bytes(*account), balance))
        };
        from.chunks(12).map(one).collect::<Option<_>>().map(Self)
    }
}

impl StateMachine for Bank {
    type Shard = Accounts;

    fn touches(
        &self,
        command: &[u8],
        _: GroupSet,
        key: &mut dyn FnMut(Gid, &[u8], KeyUse),
    ) -> bool {
        let Some(order) = BankOrder::decode(command) else { return true };
        let touch = match order {
            BankOrder::Transfer { .. } => KeyUse::Writes,
            BankOrder::Balances(_) => KeyUse::Reads,
            BankOrder::Change => return false,
        };
        for account in order.accounts() {
            key(shard_of(account), &account.to_le_bytes(), touch);
        }
        true
    }

    fn apply(
        &self,
        command: &[u8],
        shards: &mut [ShardView<'_, Accounts>],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        let is_here = |a: &u32| shards.iter().any(|s| s.shard == shard_of(*a));
        let order = BankOrder::decode(command).filter(|order| order.accounts().iter().all(is_here));
        // It makes no sense, or was sent to other shards than those of its accounts.
        let Some(order) = order else { return Outcome::NotExecuted };
        let balance = |shards: &[ShardView<'_, Accounts>], account| {
            let seen = shards.iter().find(|s| s.shard == shard_of(account));
            seen.map_or(0, |seen| seen.data.balance(account))
        };
        match order {
            BankOrder::Change => {
                let changed = shards.iter().flat_map(|s| s.data.0.values());
                let change: i64 = changed.map(|balance| balance - FIRST_BALANCE).sum();
                answer.extend_from_slice(&change.to_le_bytes());
            }
            BankOrder::Balances(accounts) => {
                answer.extend(accounts.into_iter().flat_map(|a| balance(shards, a).to_le_bytes()));
            }
            BankOrder::Transfer { from, to, amount } => {
                let amount = i64::from(amount);
                // Either both balances change or none does. That there is too little money is what it found out: it was
                // executed.
                let done = from != to && balance(shards, from) >= amount;
                for (account, by) in [(from, -amount), (to, amount)].into_iter().filter(|_| done) {
                    let seen = shards.iter_mut().find(|s| s.shard == shard_of(account));
                    seen.into_iter().for_each(|seen| seen.data.add(account, by));
                }
                answer.push(u8::from(done));
            }
        }
        Outcome::Executed
    }
}
