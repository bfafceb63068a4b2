//! What threads of its own cost and give an executor: `workers [SHARDS]` prints commands a second
//! for small and for heavy commands, without workers and with one to three.

use amcast_core::rng::Rng;
use amcast_core::{Gid, GroupSet, MsgId, Pid};
use amcast_services::kv::{Kv, Partitions, destinations, encode_args, registry};
use amcast_services::{Envelope, Executor, Limits, Stamp};
use std::sync::Arc;
use std::time::Instant;

struct Load {
    executor: Executor<Kv>,
    positions: Vec<u64>,
    shards: usize,
    sent: u64,
    answered: u64,
}

impl Load {
    fn new(shards: usize, workers: usize) -> std::io::Result<Self> {
        let limits = Limits { running: 256, ..Limits::default() };
        let kv = Kv::new(shards, 7);
        let here = std::thread::current();
        let wake = Arc::new(move || here.unpark());
        let mut executor = Executor::new(kv, shards, limits);
        executor.employ(workers, wake)?;
        Ok(Self { executor, positions: vec![0; shards], shards, sent: 0, answered: 0 })
    }

    /// Delivers a command in all its shards; waits while the workers have too many.
    fn send(&mut self, text: &str) {
        let args: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let command = registry::lookup(args[0]).expect("a known command");
        let map = Partitions::by_slot(self.shards);
        let dst: GroupSet = destinations(command, &args, &map).expect("proper arguments");
        self.sent += 1;
        let request = self.sent;
        let open_from = request.saturating_sub(900).max(1);
        let read_only = !command.writes();
        let mut payload = Vec::with_capacity(128);
        let stamp = Stamp { wall_ms: 1, host_ms: 1 };
        Envelope { session: 1, request, open_from, stamp, read_only }.encode(&mut payload);
        encode_args(&args, &mut payload);
        let id = MsgId { sender: Pid(0), seq: request };
        for shard in dst.iter() {
            let position = self.positions[shard.index()] + 1;
            self.positions[shard.index()] = position;
            while self.deliver(shard, position, id, dst, &payload).is_err() {
                self.wait();
            }
        }
        self.executor.collect(&mut |_| self.answered += 1);
    }

    fn deliver(
        &mut self,
        shard: Gid,
        position: u64,
        id: MsgId,
        dst: GroupSet,
        payload: &[u8],
    ) -> Result<(), amcast_services::Full> {
        let answered = &mut self.answered;
        self.executor.deliver(shard, position, id, dst, payload, &mut |_| *answered += 1)?;
        Ok(())
    }

    fn wait(&mut self) {
        if !self.executor.collect(&mut |_| self.answered += 1) {
            std::thread::park();
        }
    }

    /// Commands a second, until all are answered.
    fn rate(&mut self, n: u64, mut text: impl FnMut(u64) -> String) -> u64 {
        let texts: Vec<String> = (0..n).map(&mut text).collect();
        let begun = Instant::now();
        texts.iter().for_each(|text| self.send(text));
        while self.answered < self.sent {
            self.wait();
        }
        (n as f64 / begun.elapsed().as_secs_f64()) as u64
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shards: usize = std::env::args().nth(1).map_or(Ok(3), |a| a.parse())?;
    let cores = std::thread::available_parallelism()?;
    println!("{cores} cores, {shards} shards; commands a second");
    println!(
        "{:8} {:>12} {:>12} {:>12} {:>12}",
        "workers", "SET", "GET", "MSET of 2", "SUNIONSTORE"
    );
    for workers in [0, 1, 2, 3, 0, 2] {
        let mut load = Load::new(shards, workers)?;
        let mut rng = Rng::new(1);
        let mut pick = |n: u64| rng.below(n);
        let set = load.rate(300_000, |_| format!("SET k{} v", pick(10_000)));
        let get = load.rate(300_000, |_| format!("GET k{}", pick(10_000)));
        let mset = load.rate(150_000, |_| format!("MSET k{} a k{} b", pick(10_000), pick(10_000)));
        for s in 0..64 {
            for from in (0..5000).step_by(500) {
                let members: String = (from..from + 500).map(|m| format!(" {}", m + s)).collect();
                load.send(&format!("SADD {{{s}}}a{members}"));
                load.send(&format!("SADD {{{s}}}b{members}x"));
            }
        }
        while load.answered < load.sent {
            load.wait();
        }
        let union = load.rate(2_000, |i| format!("SUNIONSTORE {{{0}}}c {{{0}}}a {{{0}}}b", i % 64));
        println!("{workers:8} {set:12} {get:12} {mset:12} {union:12}");
    }
    Ok(())
}
