//! A bank: accounts in shards, transfers between any of them, nodes that are killed meanwhile. No
//! money is lost or made.
//!
//! `cargo run --release --example bank` starts three nodes with four shards, has some tellers make
//! transfers, kills nodes in turn, and looks at all balances at one moment. With the name of a protocol
//! that sends messages behind it, such as `bb-urcast-urcast`, all accounts are in one shard, and the
//! nodes talk over the network.

use amcast::core::{Gid, GroupSet, Outcome};
use amcast::node::config::ClusterFile;
use amcast::node::supervisor::NodeCommand;
use amcast::replicate::{self, Cluster, Session};
use amcast::smr::{KeyUse, Shard, ShardView, StateMachine};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How many shards there are: known when the process starts.
static SHARDS: AtomicUsize = AtomicUsize::new(4);
const ACCOUNTS: u32 = 400;
const FIRST_BALANCE: i64 = 1000;
const TELLERS: u32 = 4;

fn shards() -> usize {
    SHARDS.load(Ordering::Relaxed)
}

/// Where an account is kept.
fn shard_of(account: u32) -> Gid {
    Gid((account as usize % shards()) as u8)
}

/// What tellers ask for. Twelve bytes: from, to, amount. No bytes: the sum of all balances.
struct Transfer {
    from: u32,
    to: u32,
    amount: u32,
}

impl Transfer {
    fn encode(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        for (field, to) in [self.from, self.to, self.amount].iter().zip(bytes.chunks_mut(4)) {
            to.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 12] = bytes.try_into().ok()?;
        let field = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|k| bytes[4 * i + k]));
        Some(Self { from: field(0), to: field(1), amount: field(2) })
    }
}

/// The state machine.
#[derive(Debug, Default)]
struct Bank;

/// One shard: balances that are not the first one.
#[derive(Debug, Default)]
struct Accounts(BTreeMap<u32, i64>);

impl Accounts {
    fn balance(&mut self, account: u32) -> &mut i64 {
        self.0.entry(account).or_insert(FIRST_BALANCE)
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
        let Some(transfer) = Transfer::decode(command) else { return false };
        for account in [transfer.from, transfer.to] {
            key(shard_of(account), &account.to_le_bytes(), KeyUse::Writes);
        }
        true
    }

    fn apply(
        &self,
        command: &[u8],
        shards: &mut [ShardView<'_, Accounts>],
        answer: &mut Vec<u8>,
    ) -> Outcome {
        let Some(Transfer { from, to, amount }) = Transfer::decode(command) else {
            let changed = shards.iter().flat_map(|s| s.data.0.values());
            let sum: i64 = changed.map(|balance| balance - FIRST_BALANCE).sum();
            let sum = sum + i64::from(ACCOUNTS) * FIRST_BALANCE;
            answer.extend_from_slice(&sum.to_le_bytes());
            return Outcome::Executed;
        };
        let amount = i64::from(amount);
        if ![from, to].iter().all(|&a| shards.iter().any(|s| s.shard == shard_of(a))) {
            // It was sent to other shards than those of its accounts.
            return Outcome::NotExecuted;
        }
        let mut change = |account, by| {
            let seen = shards.iter_mut().find(|s| s.shard == shard_of(account))?;
            let balance = seen.data.balance(account);
            (*balance + by >= 0).then(|| *balance += by)
        };
        // Either both balances change or none does.
        let done = from != to && change(from, -amount).is_some() && change(to, amount).is_some();
        // That there is too little money is what it found out: it was executed.
        answer.push(u8::from(done));
        Outcome::Executed
    }
}

/// Makes transfers until it is told to stop; how many went through.
fn teller(mut session: Session, number: u32, stop: &AtomicBool) -> Result<u64, String> {
    let mut done = 0;
    let mut draw = u64::from(number) + 1;
    while !stop.load(Ordering::Relaxed) {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = |shift: u32, below: u32| (draw >> shift) as u32 % below;
        let (from, to) = (drawn(33, ACCOUNTS), drawn(40, ACCOUNTS));
        let transfer = Transfer { from, to, amount: drawn(50, 100) };
        let shards = GroupSet::one(shard_of(from)).with(shard_of(to));
        let answer = session.call(shards, &transfer.encode()).map_err(|e| e.to_string())?;
        done += u64::from(answer == [1]);
    }
    Ok(done)
}

/// The sum of all balances at one moment.
fn total(session: &mut Session) -> Result<i64, Box<dyn Error>> {
    let answer = session.read(GroupSet::first(shards()), &[])?;
    Ok(i64::from_le_bytes(answer.as_slice().try_into()?))
}

/// Kills node after node, each when the one before it is back; how many.
fn kill_in_turn(cluster: &Cluster, until: Instant) -> Result<usize, Box<dyn Error>> {
    let mut kills = 0;
    while Instant::now() < until {
        let life = &cluster.lives()[kills % 3];
        if let (Some(process), Ok(())) = (life.os_pid, cluster.ready()) {
            std::process::Command::new("kill").args(["-9", &process.to_string()]).status()?;
            kills += 1;
            thread::sleep(Duration::from_millis(300));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(kills)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut file =
        ClusterFile { protocol: "tram".into(), shards: shards(), ..ClusterFile::default() };
    match &std::env::args().collect::<Vec<_>>()[..] {
        // Started by the supervisor below.
        [_, config, name] => {
            SHARDS.store(ClusterFile::read(Path::new(config))?.shards, Ordering::Relaxed);
            return Ok(replicate::node::<Bank>(Path::new(config), name)?);
        }
        [_, protocol] => {
            (file.protocol, file.shards) = (protocol.clone(), 1);
            SHARDS.store(1, Ordering::Relaxed);
        }
        _ => {}
    }
    let command = NodeCommand { program: std::env::current_exe()?, args: Vec::new() };
    let cluster = Cluster::start(&file, None, command)?;
    let stop = AtomicBool::new(false);
    let mut auditor = cluster.session();
    let (transfers, kills) = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let (stop, begun) = (&stop, Instant::now());
        let sessions = (0..TELLERS).map(|i| (i, cluster.session()));
        let tellers: Vec<_> =
            sessions.map(|(i, session)| scope.spawn(move || teller(session, i, stop))).collect();
        let kills = kill_in_turn(&cluster, begun + Duration::from_secs(3));
        let during = total(&mut auditor);
        stop.store(true, Ordering::Relaxed);
        let mut transfers = 0;
        for teller in tellers {
            transfers += teller.join().expect("tellers do not panic")?;
        }
        assert_eq!(during?, i64::from(ACCOUNTS) * FIRST_BALANCE, "while transfers are made");
        Ok((transfers, kills?))
    })?;
    let after = total(&mut auditor)?;
    assert_eq!(after, i64::from(ACCOUNTS) * FIRST_BALANCE);
    println!("{transfers} transfers, {kills} nodes killed, {after} in all accounts, as before");
    Ok(())
}
