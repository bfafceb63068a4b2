//! A store in one process, without replication, for measuring the front: `local [PORT] [SHARDS]`.

use amcast_services::front::redis;
use amcast_services::kv::Partitions;
use amcast_services::kv::client::Server;
use amcast_services::{LocalBackend, Status};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let port: u16 = args.next().map_or(Ok(6390), |a| a.parse())?;
    let shards: usize = args.next().map_or(Ok(1), |a| a.parse())?;
    let backend = Arc::new(LocalBackend::new(shards, 7));
    let status: Arc<dyn Status> = backend.clone();
    let server = Arc::new(Server::new(Partitions::by_slot(shards).into(), 10_000, 0, None, status));
    let config = redis::Config::new(([127, 0, 0, 1], port).into(), 1);
    let front = redis::start(config, backend, server)?;
    println!("ready redis={}", front.address());
    loop {
        std::thread::park();
    }
}
