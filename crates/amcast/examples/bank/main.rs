//! A bank: accounts in shards, transfers between any of them, nodes that are killed meanwhile. No
//! money is lost or made.
//!
//! `cargo run --release --example bank` starts three nodes with four shards, has some tellers make
//! transfers, kills nodes in turn, and looks at all balances at one moment. With the name of a protocol
//! that sends messages behind it, such as `bb-urcast-urcast`, all accounts are in one shard, and the
//! nodes talk over the network.

mod machine;

use amcast::core::{Gid, GroupSet};
use amcast::node::config::ClusterFile;
use amcast::node::supervisor::NodeCommand;
use amcast::replicate::{self, Cluster, Session};
use machine::{Bank, BankOrder, FIRST_BALANCE, account, shard_of};
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ACCOUNTS: u32 = 400;
const TELLERS: u32 = 4;

/// Makes transfers until `stop` is set. Returns how many succeeded.
fn teller(
    mut session: Session,
    number: u32,
    shards: u32,
    stop: &AtomicBool,
) -> Result<u64, String> {
    let mut done = 0;
    let mut draw = u64::from(number) + 1;
    while !stop.load(Ordering::Relaxed) {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = |shift: u32, below: u32| (draw >> shift) as u32 % below;
        let of = |drawn: u32| account(Gid((drawn % shards) as u8), drawn / shards);
        let (from, to) = (of(drawn(33, ACCOUNTS)), of(drawn(40, ACCOUNTS)));
        let transfer = BankOrder::Transfer { from, to, amount: drawn(50, 100) };
        let both = GroupSet::one(shard_of(from)).with(shard_of(to));
        let answer = session.call(both, &transfer.encode()).map_err(|e| e.to_string())?;
        done += u64::from(answer == [1]);
    }
    Ok(done)
}

/// The sum of all balances at one moment.
fn total(session: &mut Session, shards: usize) -> Result<i64, Box<dyn Error>> {
    let answer = session.read(GroupSet::first(shards), &BankOrder::Change.encode())?;
    let change = i64::from_le_bytes(answer.as_slice().try_into()?);
    Ok(i64::from(ACCOUNTS) * FIRST_BALANCE + change)
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
    let mut file = ClusterFile { protocol: "tram".into(), shards: 4, ..ClusterFile::default() };
    match &std::env::args().collect::<Vec<_>>()[..] {
        // Started by the supervisor below.
        [_, config, name] => return Ok(replicate::node::<Bank>(Path::new(config), name)?),
        [_, protocol] => (file.protocol, file.shards) = (protocol.clone(), 1),
        _ => {}
    }
    let command = NodeCommand { program: std::env::current_exe()?, args: Vec::new() };
    let cluster = Cluster::start(&file, None, command)?;
    let shards = file.shards;
    let stop = AtomicBool::new(false);
    let mut auditor = cluster.session();
    let (transfers, kills) = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let (stop, begun) = (&stop, Instant::now());
        let sessions = (0..TELLERS).map(|i| (i, cluster.session()));
        let tellers: Vec<_> = sessions
            .map(|(i, session)| scope.spawn(move || teller(session, i, shards as u32, stop)))
            .collect();
        let kills = kill_in_turn(&cluster, begun + Duration::from_secs(3));
        let during = total(&mut auditor, shards);
        stop.store(true, Ordering::Relaxed);
        let mut transfers = 0;
        for teller in tellers {
            transfers += teller.join().expect("tellers do not panic")?;
        }
        assert_eq!(during?, i64::from(ACCOUNTS) * FIRST_BALANCE, "while transfers are made");
        Ok((transfers, kills?))
    })?;
    let after = total(&mut auditor, shards)?;
    assert_eq!(after, i64::from(ACCOUNTS) * FIRST_BALANCE);
    println!("{transfers} transfers, {kills} nodes killed, {after} in all accounts, as before");
    Ok(())
}
