//! The same random commands to a real Redis server and to ours: the answers must be the same.

use amcast_core::rng::Rng;
use amcast_kv::Partitions;
use amcast_kv::client::StoreServer;
use amcast_kv::status::ServerStatus;
use amcast_node::gateway::LocalBackend;
use amcast_node::gateway::redis::{self, RedisGateway};
use amcast_test_policy::skip;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[path = "differential/introspection.rs"]
mod introspection;
#[path = "differential/large.rs"]
mod large;
#[path = "differential/odd.rs"]
mod odd;
#[path = "differential/silence.rs"]
mod silence;

/// An answer as RESP2 has it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Resp2Value {
    Null,
    Int(i64),
    Text(String),
    Error(String),
    Array(Vec<Resp2Value>),
}

struct DifferentialClient(BufReader<TcpStream>);

impl DifferentialClient {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, args: &[String]) {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for a in args {
            bytes.extend_from_slice(format!("${}\r\n{a}\r\n", a.len()).as_bytes());
        }
        self.0.get_mut().write_all(&bytes).unwrap();
    }

    fn read(&mut self) -> Resp2Value {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer");
        let (mark, rest) = line.trim_end().split_at(1);
        let n = || rest.parse::<i64>().expect("a number");
        match mark {
            "+" => Resp2Value::Text(rest.into()),
            "-" => Resp2Value::Error(rest.into()),
            ":" => Resp2Value::Int(n()),
            "$" if n() < 0 => Resp2Value::Null,
            "$" => {
                let mut bytes = vec![0; n() as usize + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Resp2Value::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            "*" if n() < 0 => Resp2Value::Null,
            "*" => Resp2Value::Array((0..n()).map(|_| self.read()).collect()),
            _ => panic!("not RESP2: {line:?}"),
        }
    }

    fn call(&mut self, args: &[String]) -> Resp2Value {
        self.send(args);
        self.read()
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// A real server on a free port; killed when dropped.
struct RealRedis(Child, SocketAddr);

impl RealRedis {
    fn start() -> Option<Self> {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let port = address.port().to_string();
        let child = Command::new("redis-server")
            .args([
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--databases",
                "1",
                // SLOWLOG LEN tells how busy the machine is.
                "--slowlog-log-slower-than",
                "-1",
            ])
            // Its SORT compares text as the locale says; ours does by bytes.
            .env("LC_ALL", "C")
            .stdout(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            return None;
        };
        let server = Self(child, address);
        let patience = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(patience.elapsed() < Duration::from_secs(10), "redis-server does not listen");
            std::thread::yield_now();
        }
        Some(server)
    }
}

impl Drop for RealRedis {
    fn drop(&mut self) {
        self.0.kill().expect("our own child");
        self.0.wait().expect("our own child");
    }
}

fn ours(shards: usize) -> RedisGateway {
    ours_of(shards, 1)
}

/// One that takes commands of so many megabytes.
fn ours_of(shards: usize, megabytes: usize) -> RedisGateway {
    let backend = Arc::new(LocalBackend::new(shards, 42));
    let status: Arc<dyn ServerStatus> = backend.clone();
    let server =
        Arc::new(StoreServer::new(Partitions::by_slot(shards).into(), 100, 0, None, status));
    let mut config = redis::RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1);
    config.command_bytes_max = redis::command_bytes_max(megabytes);
    redis::start(config, backend, server).expect("a free port")
}

struct CommandWords(Rng);

impl CommandWords {
    fn of(&mut self, choices: &[&str]) -> String {
        choices[self.0.below(choices.len() as u64) as usize].to_owned()
    }
    /// One of a few keys, of a kind that most commands on it expect.
    fn key(&mut self, kind: char) -> String {
        let kind = if self.0.chance(30_000) {
            self.of(&["s", "h", "l", "e", "z"])
        } else {
            kind.to_string()
        };
        format!("{kind}{}", self.0.below(4))
    }
    fn small(&mut self) -> String {
        (self.0.below(12) as i64 - 4).to_string()
    }
    fn member(&mut self) -> String {
        self.of(&["a", "b", "c", "d", "aa", "10", "11", "-3", "", "long-long-long"])
    }
    fn value(&mut self) -> String {
        self.of(&["1", "2.5", "-7", "hello", "", "9223372036854775807", "0010", "x y"])
    }
    fn score(&mut self) -> String {
        self.of(&["1", "2", "2.5", "-1", "0", "inf", "-inf", "10", "1e3", "nan", "x"])
    }
    fn bound(&mut self) -> String {
        self.of(&["-inf", "+inf", "(1", "2", "(2.5", "10", "-1", "x"])
    }
    fn lex(&mut self) -> String {
        self.of(&["-", "+", "[a", "(b", "[c", "[", "x"])
    }

    /// Replaces each word of a template that denotes a choice.
    fn fill(&mut self, template: &str) -> Vec<String> {
        let word = |w: &mut Self, t: &str| match t {
            "S" | "H" | "L" | "E" | "Z" => w.key(t.to_ascii_lowercase().chars().next().unwrap()),
            "K" => {
                let kind = w.of(&["s", "h", "l", "e", "z"]);
                w.key(kind.chars().next().unwrap())
            }
            "Q" => format!("q{}", w.0.below(3)),
            "D" => w.of(&["1", "-2", "3.5", "10", "0", "2e1", "7"]),
            "U" => w.of(&["u8", "i5", "u1", "i64", "u63", "u64", "i0", "x8"]),
            "O" => w.of(&["0", "3", "8", "100", "#1", "#2", "-1", "x"]),
            "A" => w.of(&["1", "-1", "7", "100", "-300", "9223372036854775807", "x"]),
            "P" => format!("p{}", w.0.below(4)),
            "G" => w.0.below(3000).to_string(),
            "Y" => format!("y{}", w.0.below(3)),
            "T" => format!("t{}", w.0.below(3)),
            "W" => w.of(&["1", "-0.25", "0.1", "3.25", "-7", "x", ""]),
            "N" => w.small(),
            "M" => w.member(),
            "V" => w.value(),
            "F" => w.score(),
            "B" => w.bound(),
            "X" => w.lex(),
            t => t.to_owned(),
        };
        template.split(' ').map(|t| word(self, t)).collect()
    }
}

/// Capital letters stand for: S H L E Z a key for a string, hash, list, set, sorted set; K any key; N
/// a small integer; M a member; V a value; F a score; B a bound of scores; X of members; Y a key for a
/// sorted set of equal scores; T one for a number of few digits, W such a number (Redis adds long ones
/// with more bits than ours); Q one for a list of numbers, D such a number; U the type of a field of
/// bits, O its offset, A what is added to it; P one for a HyperLogLog, G what it counts.
const TEMPLATES: &[&str] = &[
    "SET S V",
    "SET S V NX",
    "SET S V XX GET",
    "SET S V KEEPTTL",
    "SET S V EX 100",
    "SET S V PX 0",
    "SET S V NX XX",
    "SET S V EX 10 PX 10",
    "SET S V EXAT 1",
    "SET S V GET",
    "SET S V FOO",
    "GET S",
    "GETSET S V",
    "GETDEL S",
    "GETEX S",
    "GETEX S PERSIST",
    "GETEX S EX 100",
    "GETEX nope EX 0",
    "GETEX nope EX x",
    "GETEX nope EX",
    "GETEX H EX 0",
    "SETNX S V",
    "SETEX S 50 V",
    "PSETEX S 0 V",
    "APPEND S V",
    "STRLEN S",
    "SETRANGE S N V",
    "GETRANGE S N N",
    "SUBSTR S N N",
    "INCR S",
    "DECR S",
    "INCRBY S N",
    "DECRBY S V",
    "SET T W",
    "INCRBYFLOAT T 1.5",
    "INCRBYFLOAT T W",
    "INCRBYFLOAT S x",
    "MGET S S H nope",
    "MSET S V S V",
    "MSET S V S",
    "MSETNX S V S V",
    "SETBIT S 9 1",
    "SETBIT S N 0",
    "GETBIT S 9",
    "BITCOUNT S",
    "BITCOUNT S N N",
    "BITCOUNT S 3 9 BIT",
    "BITCOUNT S N N BYTE",
    "BITCOUNT S N",
    "BITCOUNT nope x y",
    "PFADD P G G G G G G G G",
    "PFADD P G G G G G G G G G G G G G",
    "PFADD P M",
    "LCS S S",
    "LCS S S LEN",
    "LCS S S IDX",
    "LCS S S IDX MINMATCHLEN N WITHMATCHLEN",
    "LCS S nope LEN IDX",
    "LCS S H",
    "LCS S S FOO",
    "PFADD P",
    "SET p9 V",
    "PFADD p9 G",
    "PFCOUNT P",
    "PFCOUNT P P nope",
    "PFCOUNT H",
    "PFMERGE P P P",
    "PFMERGE P",
    "PFMERGE P H",
    "PFDEBUG ENCODING P",
    "PFDEBUG DECODE P",
    "PFDEBUG decode P",
    "PFDEBUG GETREG p9",
    "PFDEBUG TODENSE p9",
    "PFDEBUG NOTHING P",
    "PFDEBUG ENCODING nope",
    "PFDEBUG ENCODING H",
    "STRLEN P",
    // Where the estimate is kept that PFCOUNT puts there on a real server is not looked at.
    "GETRANGE P 0 7",
    "GETRANGE P 16 -1",
    "DEL P",
    "SLOWLOG LEN",
    "LATENCY LATEST",
    "ACL WHOAMI",
    "ACL USERS",
    "BITPOS S 1",
    "BITPOS S 0",
    "BITPOS S 0 N",
    "BITPOS S 1 N N",
    "BITPOS S 0 N N BIT",
    "BITPOS S 1 2 30 BIT",
    "BITPOS S 2",
    "BITPOS nope 0 x",
    "BITPOS H 0",
    "BITOP AND S S S",
    "BITOP OR S S S S",
    "BITOP xor S S S",
    "BITOP NOT S S",
    "BITOP NOT S S S",
    "BITOP NAND S S",
    "BITOP OR S nope",
    "BITFIELD S GET U O",
    "BITFIELD S SET U O A GET U O",
    "BITFIELD S INCRBY U O A",
    "BITFIELD S OVERFLOW SAT INCRBY U O A SET U O A",
    "BITFIELD S OVERFLOW FAIL SET U O A INCRBY U O A OVERFLOW WRAP INCRBY U O A",
    "BITFIELD S OVERFLOW x GET u8 0",
    "BITFIELD S GET u8",
    "BITFIELD S",
    "BITFIELD_RO S GET U O",
    "BITFIELD_RO S SET u8 0 1",
    "RPUSH Q D D D",
    "LPOP Q",
    "SET w_1 D",
    "SET w_-2 D",
    "SET w_7 D",
    "HSET h_7 a D",
    "SORT Q",
    "SORT Q DESC",
    "SORT Q ALPHA LIMIT N N",
    "SORT Q LIMIT N N",
    "SORT L ALPHA",
    "SORT L",
    "SORT L ALPHA DESC LIMIT 1 2",
    "SORT E ALPHA ASC",
    "SORT Z ALPHA",
    "SORT Y BY nosort DESC LIMIT 1 2",
    "SORT Q BY nosort LIMIT 1 3",
    "SORT Q BY nosort DESC LIMIT N N",
    "SORT Q BY w_* GET # GET w_* GET h_*->a",
    "SORT Q BY h_*->a DESC LIMIT 0 2 GET nostar",
    "SORT Q BY w_* STORE L",
    "SORT Q GET w_* STORE L",
    "SORT nope STORE Q",
    "SORT L ALPHA STORE L",
    "SADD v1 M M",
    "SREM v1 M M",
    "SORT v1 BY nosort STORE L",
    "SORT L LIMIT x 1",
    "SORT L LIMIT 1",
    "SORT L FOO",
    "SORT nope",
    "SORT S",
    "SORT_RO Q DESC",
    "SORT_RO Q BY w_* GET #",
    "SORT_RO Q STORE L",
    "DEL K K",
    "UNLINK K",
    "EXISTS K K K",
    "TYPE K",
    "EXPIRE K 100",
    "EXPIRE K -1",
    "EXPIRE K 100 NX",
    "EXPIRE K 200 GT",
    "EXPIRE K 50 LT XX",
    "EXPIRE K 1 GT LT",
    "EXPIRE K 1 foo",
    "PEXPIREAT K 1",
    "TTL nope",
    "PERSIST K",
    "EXPIRETIME nope",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K",
    "COPY K K REPLACE",
    "TOUCH K K",
    "KEYS *",
    "KEYS s[0-2]",
    "OBJECT REFCOUNT nope",
    "HSET H M V",
    "HSET H M V M V",
    "HSET H M",
    "HMSET H M V",
    "HSETNX H M V",
    "HGET H M",
    "HMGET H M M M",
    "HGETALL H",
    "HDEL H M M",
    "HLEN H",
    "HEXISTS H M",
    "HKEYS H",
    "HVALS H",
    "HSTRLEN H M",
    "HINCRBY H M N",
    "HINCRBYFLOAT h9 M 0.5",
    "HINCRBYFLOAT h9 M W",
    "HINCRBYFLOAT E a 1",
    "HRANDFIELD nope",
    "HRANDFIELD H 0",
    "LPUSH L M M",
    "RPUSH L M M M",
    "LPUSHX L M",
    "RPUSHX L M",
    "LPOP L",
    "RPOP L",
    "LPOP L N",
    "RPOP L 2",
    "LLEN L",
    "LRANGE L N N",
    "LINDEX L N",
    "LSET L N V",
    "LINSERT L BEFORE M V",
    "LINSERT L AFTER M V",
    "LINSERT L x M V",
    "LREM L N M",
    "LTRIM L N N",
    "LTRIM L 0 5",
    "RPOPLPUSH L L",
    "LMOVE L L LEFT RIGHT",
    "LMOVE L L RIGHT LEFT",
    "LPOS L M",
    "LPOS L M RANK N",
    "LPOS L M COUNT 0",
    "LPOS L M COUNT 2 MAXLEN 3",
    "LMPOP 2 L L LEFT",
    "LMPOP 2 L L RIGHT COUNT 2",
    "LMPOP 0 L LEFT",
    "SADD E M M M",
    "SREM E M M",
    "SMEMBERS E",
    "SISMEMBER E M",
    "SMISMEMBER E M M",
    "SCARD E",
    "SMOVE E E M",
    "SINTER E E",
    "SUNION E E E",
    "SDIFF E E",
    "SINTERSTORE E E E",
    "SUNIONSTORE E E E",
    "SDIFFSTORE E E E",
    "SINTERCARD 2 E E",
    "SINTERCARD 2 E E LIMIT 1",
    "SINTERCARD 0 E",
    "SPOP nope",
    "SRANDMEMBER nope 3",
    "ZADD Z F M",
    "ZADD Z F M F M",
    "ZADD Z NX F M",
    "ZADD Z XX CH F M",
    "ZADD Z GT F M",
    "ZADD Z LT CH F M",
    "ZADD Z INCR F M",
    "ZADD Z NX XX 1 a",
    "ZADD Z GT NX 1 a",
    "ZADD Z INCR 1 a 2 b",
    "ZADD Z 1",
    "ZINCRBY Z F M",
    "ZREM Z M M",
    "ZSCORE Z M",
    "ZMSCORE Z M M",
    "ZCARD Z",
    "ZRANK Z M",
    "ZREVRANK Z M",
    "ZPOPMIN Z",
    "ZPOPMAX Z 2",
    "ZMPOP 2 Z Z MIN",
    "ZMPOP 1 Z MAX COUNT 2",
    "ZRANGE Z N N",
    "ZRANGE Z N N WITHSCORES",
    "ZRANGE Z N N REV",
    "ZRANGE Z B B BYSCORE",
    "ZRANGE Z B B BYSCORE REV WITHSCORES",
    "ZRANGE Y X X BYLEX",
    "ZRANGE Y X X BYLEX REV LIMIT N N",
    "ZRANGE Z 0 1 LIMIT 0 1",
    "ZREVRANGE Z N N WITHSCORES",
    "ZRANGEBYSCORE Z B B",
    "ZRANGEBYSCORE Z B B WITHSCORES LIMIT 1 2",
    "ZREVRANGEBYSCORE Z B B",
    "ZRANGEBYLEX Y X X",
    "ZREVRANGEBYLEX Y X X LIMIT 0 2",
    "ZCOUNT Z B B",
    "ZLEXCOUNT Y X X",
    "ZREMRANGEBYRANK Z N N",
    "ZREMRANGEBYSCORE Z B B",
    "ZREMRANGEBYLEX Y (b [c",
    "ZRANGESTORE Z Z N N",
    "ZUNION 2 Z Z WITHSCORES",
    "ZINTER 2 Z Z WITHSCORES",
    "ZINTER 2 Z S nonsense",
    "ZUNIONSTORE Z 2 Z S WEIGHTS 1",
    "ZDIFF 2 Z Z WITHSCORES",
    "ZUNIONSTORE Z 2 Z Z WEIGHTS 2 0.5",
    "ZINTERSTORE Z 2 Z Z AGGREGATE MAX",
    "ZDIFFSTORE Z 2 Z Z",
    "ZUNIONSTORE Z 2 Z E",
    "ZINTERCARD 2 Z Z LIMIT 1",
    "ZADD Y 0 M 0 M",
    "ZUNION 0 Z",
    "ZUNIONSTORE Z 3 Z Z",
    "ZRANDMEMBER nope 2",
    "GET",
    "GET a b",
    "NOSUCH a b",
    "ECHO hi",
    "PING",
    "PING x",
    "SELECT 0",
    "SELECT 1",
    "SELECT x",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH K K",
    "UNWATCH",
    "SSCAN nope 0",
    "HSCAN nope 0 COUNT 0",
    "SCAN x",
];

/// Whether the order of the answer's elements means nothing.
fn unordered(command: &str) -> bool {
    matches!(
        command,
        "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" | "KEYS" | "HKEYS" | "HVALS" | "HGETALL"
    )
}

fn normal(command: &str, value: Resp2Value) -> Resp2Value {
    match value {
        Resp2Value::Array(items) if command == "HGETALL" => {
            let mut pairs: Vec<_> =
                items.chunks(2).map(|p| Resp2Value::Array(p.to_vec())).collect();
            pairs.sort();
            Resp2Value::Array(pairs)
        }
        Resp2Value::Array(mut items) if unordered(command) => {
            items.sort();
            Resp2Value::Array(items)
        }
        other => other,
    }
}

/// Compares the answers to so many commands drawn from `seed`; false if there is no redis-server.
fn compare(shards: usize, seed: u64, steps: usize) -> bool {
    let Some(real) = RealRedis::start() else { return false };
    let gateway = ours(shards);
    let (mut theirs, mut mine) =
        (DifferentialClient::connect(real.1), DifferentialClient::connect(gateway.address()));
    let mut w = CommandWords(Rng::new(seed));
    let (mut log, mut gathered) = (Vec::new(), Vec::<String>::new());
    for _ in 0..steps {
        let template = w.of(TEMPLATES);
        let command = w.fill(&template);
        let name = command[0].clone();
        log.push(command.join(" "));
        let (mut a, mut b) = (theirs.call(&command), mine.call(&command));
        if a == Resp2Value::Text("QUEUED".into()) {
            gathered.push(name.clone());
        }
        match (name.as_str(), &mut a, &mut b) {
            ("EXEC", Resp2Value::Array(a), Resp2Value::Array(b)) if a.len() == b.len() => {
                for ((name, a), b) in gathered.iter().zip(a).zip(b) {
                    *a = normal(name, a.clone());
                    *b = normal(name, b.clone());
                }
            }
            _ => (a, b) = (normal(&name, a), normal(&name, b)),
        }
        if matches!(name.as_str(), "EXEC" | "DISCARD") {
            gathered.clear();
        }
        let recent = &log[log.len().saturating_sub(60)..];
        assert_eq!(b, a, "ours, theirs; seed {seed}, {shards} shards, after {recent:#?}");
    }
    true
}

/// Why there is nothing to compare with.
const NO_REDIS: &str = "redis-server is not installed";

#[test]
fn one_shard_answers_as_redis_does() {
    let _limit = amcast_test_policy::time_limit();
    if !(0..4).all(|seed| compare(1, seed, 15_000)) {
        skip("one_shard_answers_as_redis_does", NO_REDIS);
    }
}

#[test]
fn three_shards_answer_as_redis_does() {
    let _limit = amcast_test_policy::time_limit();
    if !(100..104).all(|seed| compare(3, seed, 15_000)) {
        skip("three_shards_answer_as_redis_does", NO_REDIS);
    }
}

#[test]
fn a_pipeline_over_shards_keeps_its_order() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = ours(3);
    let mut c = DifferentialClient::connect(gateway.address());
    let script = [
        "SET a 1",
        "SET b 2",
        "MGET a b",
        "RENAME a c",
        "GET c",
        "INCR b",
        "MGET a b c",
        "PING",
        "MULTI",
        "INCR b",
        "GET c",
        "EXEC",
        "WATCH b",
        "INCR b",
        "MULTI",
        "INCR b",
        "EXEC",
        "GET b",
    ];
    script.iter().for_each(|line| c.send(&words(line)));
    let text = |s: &str| Resp2Value::Text(s.into());
    let expected = [
        text("OK"),
        text("OK"),
        Resp2Value::Array(vec![text("1"), text("2")]),
        text("OK"),
        text("1"),
        Resp2Value::Int(3),
        Resp2Value::Array(vec![Resp2Value::Null, text("3"), text("1")]),
        text("PONG"),
        text("OK"),
        text("QUEUED"),
        text("QUEUED"),
        Resp2Value::Array(vec![Resp2Value::Int(4), text("1")]),
        text("OK"),
        Resp2Value::Int(5),
        text("OK"),
        text("QUEUED"),
        Resp2Value::Null,
        text("5"),
        Resp2Value::Int(2),
    ];
    for (line, expected) in script.iter().zip(expected) {
        assert_eq!(c.read(), expected, "{line}");
    }
}

#[test]
fn a_scan_finds_every_key_that_stays() {
    let _limit = amcast_test_policy::time_limit();
    for shards in [1, 3] {
        let gateway = ours(shards);
        let mut c = DifferentialClient::connect(gateway.address());
        for i in 0..3000 {
            c.send(&words(&format!("SET key:{i} {i}")));
        }
        (0..3000).for_each(|_| assert_eq!(c.read(), Resp2Value::Text("OK".into())));
        for kind in ["SADD big", "ZADD zbig 1"] {
            for i in 0..500 {
                c.call(&words(&format!("{kind} m{i}")));
            }
        }
        let (mut cursor, mut found, mut step) =
            ("0".to_owned(), std::collections::BTreeSet::new(), 0);
        loop {
            let Resp2Value::Array(answer) =
                c.call(&words(&format!("SCAN {cursor} COUNT 50 MATCH key:* TYPE string")))
            else {
                panic!("SCAN answers an array")
            };
            let [Resp2Value::Text(next), Resp2Value::Array(keys)] = &answer[..] else {
                panic!("cursor and keys")
            };
            found.extend(keys.iter().cloned());
            // Odd keys come and go meanwhile.
            c.call(&words(&format!("DEL key:{}", 2 * step + 1)));
            step += 1;
            cursor = next.clone();
            if cursor == "0" {
                break;
            }
        }
        let even = (0..3000).step_by(2).map(|i| Resp2Value::Text(format!("key:{i}")));
        assert!(even.into_iter().all(|k| found.contains(&k)), "{shards} shards");
        let (mut cursor, mut members) = ("0".to_owned(), 0);
        loop {
            let Resp2Value::Array(answer) = c.call(&words(&format!("SSCAN big {cursor}"))) else {
                panic!("an array")
            };
            let [Resp2Value::Text(next), Resp2Value::Array(found)] = &answer[..] else {
                panic!("cursor, members")
            };
            members += found.len();
            cursor = next.clone();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(members, 500);
        let Resp2Value::Array(range) = c.call(&words("RANGE key:10 key:1004 LIMIT 3")) else {
            panic!("an array")
        };
        let expected = ["key:10", "key:100", "key:1000"].map(|k| Resp2Value::Text(k.into()));
        assert_eq!(range, expected);
    }
}

#[test]
fn large_and_malformed_commands_are_refused_in_words() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = ours(1);
    let mut c = DifferentialClient::connect(gateway.address());
    let Resp2Value::Error(e) = c.call(&["SET".into(), "k".into(), "x".repeat(1 << 20)]) else {
        panic!("it is over the limit")
    };
    assert!(e.contains("larger than the limit of 1048"), "{e}");
    assert!(e.ends_with("; the command was not executed"), "{e}");
    assert_eq!(c.call(&words("GET k")), Resp2Value::Null, "the connection continues");
    let most = "x".repeat((1 << 20) - 200);
    assert_eq!(c.call(&["SET".into(), "k".into(), most.clone()]), Resp2Value::Text("OK".into()));
    assert_eq!(c.call(&words("GET k")), Resp2Value::Text(most));
    c.0.get_mut().write_all(b"*1\r\nPING\r\n").unwrap();
    assert_eq!(c.read(), Resp2Value::Error("ERR Protocol error: expected '$', got 'P'".into()));
    assert_eq!(c.0.read(&mut [0]).unwrap(), 0, "the connection is closed");
}

#[test]
fn counters_have_the_bytes_that_redis_gives_them() {
    let _limit = amcast_test_policy::time_limit();
    let Some(real) = RealRedis::start() else {
        return skip("counters_have_the_bytes_that_redis_gives_them", NO_REDIS);
    };
    let (gateway, mut rng) = (ours(2), Rng::new(11));
    let (mut theirs, mut ours) =
        (DifferentialClient::connect(real.1), DifferentialClient::connect(gateway.address()));
    let mut same = |command: &str| {
        let args = words(command);
        let (wanted, got) = (theirs.call(&args), ours.call(&args));
        assert_eq!(got, wanted, "{command}");
        wanted
    };
    let mut dense = 0;
    for step in 0..1200 {
        let key = format!("{{p}}{}", rng.below(5));
        let elements = (0..rng.below(25)).map(|_| format!(" {}", rng.below(1 << 20)));
        same(&format!("PFADD {key}{}", elements.collect::<String>()));
        // Where the estimate is kept that PFCOUNT of a real server puts there is not looked at.
        same(&format!("GETRANGE {key} 0 7"));
        same(&format!("GETRANGE {key} 16 -1"));
        if same(&format!("PFDEBUG ENCODING {key}")) == Resp2Value::Text("sparse".into()) {
            same(&format!("PFDEBUG DECODE {key}"));
        } else {
            dense += 1;
        }
        match rng.below(60) {
            0 => same(&format!("PFMERGE {key} {{p}}0 {{p}}1")),
            1 => same(&format!("PFDEBUG TODENSE {key}")),
            2 => same(&format!("PFDEBUG GETREG {key}")),
            3..6 => same(&format!("DEL {key}")),
            6 => same("PFCOUNT {p}0 {p}1 {p}2 {p}3 {p}4"),
            _ => same(&format!("PFCOUNT {key}")),
        };
        assert!(step < 1199 || dense > 20, "{dense} steps with a dense one");
    }
    for damage in ["APPEND d x", "SETRANGE d 17 ?"] {
        for command in ["DEL d", "PFADD d a b c", damage, "PFCOUNT d", "PFMERGE e d", "STRLEN d"] {
            same(command);
        }
    }
    for bad in ["SETRANGE d 4 ~", "SETRANGE d 0 hyll", "SET d HYLL", "SET d 1", "LPUSH f 1"] {
        let key = if bad.starts_with("LPUSH") { "f" } else { "d" };
        for command in ["DEL d f", "PFADD d a b c", bad] {
            same(command);
        }
        for command in ["PFCOUNT", "PFADD", "PFMERGE e", "PFDEBUG ENCODING", "PFDEBUG DECODE"] {
            same(&format!("{command} {key}"));
        }
    }
    // An estimate that the string holds is believed until it is stale.
    for command in ["DEL d", "PFADD d a b", "SETRANGE d 8 0123456!", "PFCOUNT d", "PFADD d a"] {
        same(command);
    }
    for command in ["PFCOUNT d", "PFADD d c", "PFCOUNT d", "PFDEBUG TODENSE d", "PFCOUNT d"] {
        same(command);
    }
}
