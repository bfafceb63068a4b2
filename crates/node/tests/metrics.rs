//! The commands' metrics of the metrics page and of `INFO`, read as Prometheus reads them.

use amcast_kv::Partitions;
use amcast_kv::client::StoreServer;
use amcast_kv::status::ServerStatus;
use amcast_node::gateway::LocalBackend;
use amcast_node::gateway::{http, redis};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// One family of a page: its description, and its samples by their names and labels.
#[derive(Default)]
struct Family {
    kind: String,
    help: bool,
    unit: Option<String>,
    samples: BTreeMap<String, f64>,
}

/// A page, read strictly.
struct StrictPage(BTreeMap<String, Family>);

/// A name of a metric, as the format has it.
fn is_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|b| b.is_ascii_alphabetic())
        && letters.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The labels in brackets, each with its value.
fn labels(text: &str) -> Vec<(&str, &str)> {
    let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).expect("brackets");
    let one = |pair| {
        let (name, value): (&str, &str) = str::split_once(pair, '=').expect("a label's value");
        assert!(is_name(name), "{text}");
        (name, value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).expect("quotes"))
    };
    inner.split(',').filter(|pair| !pair.is_empty()).map(one).collect()
}

impl StrictPage {
    fn read(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("an end");
        let (mut families, mut now) = (BTreeMap::<String, Family>::new(), String::new());
        for line in body.lines() {
            if let Some(about) = line.strip_prefix("# ") {
                let mut words = about.splitn(3, ' ');
                let (what, name) = (words.next().unwrap(), words.next().unwrap());
                let value = words.next().expect("something is said");
                if name != now {
                    assert!(is_name(name), "{line}");
                    assert!(!families.contains_key(name), "{name} comes twice");
                    now = name.to_string();
                }
                let family = families.entry(now.clone()).or_default();
                assert!(family.samples.is_empty(), "said after its samples: {line}");
                match what {
                    "HELP" => family.help = true,
                    "TYPE" => family.kind = value.to_string(),
                    "UNIT" => family.unit = Some(value.to_string()),
                    _ => panic!("{line}"),
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').expect("a value");
            assert!(!series.ends_with("{}"), "brackets without labels: {line}");
            assert!(series.starts_with(&now), "{series} is among {now}");
            let family = families.get_mut(&now).expect("it was said what it is");
            let value: f64 = value.parse().expect("a number");
            let before = family.samples.insert(series.to_string(), value);
            assert_eq!(before, None, "{series} comes twice");
        }
        let page = Self(families);
        page.0.iter().for_each(|(name, family)| page.check(name, family));
        page
    }

    fn check(&self, name: &str, family: &Family) {
        assert!(name.starts_with("amcast_"), "{name}");
        assert!(family.help && !family.samples.is_empty(), "{name}");
        if let Some(unit) = &family.unit {
            assert!(name.ends_with(&format!("_{unit}")), "{name} in {unit}");
        }
        match family.kind.as_str() {
            "counter" | "gauge" => {
                let end = if family.kind == "counter" { "_total" } else { "" };
                for (series, value) in &family.samples {
                    let (series, _) = series.split_once('{').unwrap_or((series, ""));
                    assert_eq!(series, format!("{name}{end}"));
                    assert!(*value >= 0.0, "{series} {value}");
                }
            }
            "histogram" => self.check_histogram(name, family),
            other => panic!("{name}: {other}"),
        }
    }

    /// Buckets grow, the last has no bound and counts all, and each has a sum.
    fn check_histogram(&self, name: &str, family: &Family) {
        let mut buckets = BTreeMap::<String, Vec<(f64, f64)>>::new();
        for (series, value) in &family.samples {
            let Some(of) = series.strip_prefix(&format!("{name}_bucket")) else { continue };
            let labels = labels(of);
            let rest: Vec<_> = labels.iter().filter(|(label, _)| *label != "le").collect();
            let (_, bound) = labels.iter().find(|(label, _)| *label == "le").expect("a bound");
            let bound = if *bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
            let rest = rest.iter().map(|(l, v)| format!("{l}=\"{v}\"")).collect::<Vec<_>>();
            buckets.entry(rest.join(",")).or_default().push((bound, *value));
        }
        assert!(!buckets.is_empty(), "{name}");
        for (labels, mut all) in buckets {
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(all.windows(2).all(|two| two[0].1 <= two[1].1), "{name} {labels}: {all:?}");
            let (bound, last) = *all.last().unwrap();
            assert_eq!(bound, f64::INFINITY, "{name} {labels}");
            let of = |what: &str| family.samples[&format!("{name}_{what}{{{labels}}}")];
            assert_eq!(last, of("count"), "{name} {labels}");
            assert!(of("sum") > 0.0 || last == 0.0, "{name} {labels}");
            assert_eq!(all.len(), 20, "{name} {labels}");
        }
    }

    /// The value of a series, 0 if it is not there.
    fn get(&self, series: &str) -> f64 {
        let family = self.0.values().find_map(|family| family.samples.get(series));
        family.copied().unwrap_or(0.0)
    }

    /// How many commands of that name were answered.
    fn answered(&self, command: &str) -> f64 {
        self.get(&format!("amcast_command_duration_seconds_count{{command=\"{command}\"}}"))
    }
}

/// A gateway with its page.
struct PagedGateway {
    redis: redis::RedisGateway,
    http: http::HttpGateway,
}

impl PagedGateway {
    fn start(threads: usize) -> Self {
        let backend = Arc::new(LocalBackend::new(2, 1));
        let status: Arc<dyn ServerStatus> = backend.clone();
        let map = Partitions::by_slot(2).into();
        let server = Arc::new(StoreServer::new(map, 4, 0, None, status));
        let mut config = redis::RedisGatewayConfig::new(([127, 0, 0, 1], 0).into(), 1);
        config.threads = threads;
        let redis = redis::start(config, backend, Arc::clone(&server)).unwrap();
        let http = http::start(([127, 0, 0, 1], 0).into(), server).unwrap();
        Self { redis, http }
    }

    fn page(&self) -> StrictPage {
        let mut stream = TcpStream::connect(self.http.address()).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
        StrictPage::read(body)
    }
}

/// A client of inline commands.
struct InlineClient(BufReader<TcpStream>);

impl InlineClient {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(BufReader::new(stream))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer in time");
        line.trim_end().to_owned()
    }

    /// Sends these at once; each has so many lines as its answer.
    fn send(&mut self, commands: &[(&str, usize)]) -> Vec<String> {
        let all: String = commands.iter().map(|(command, _)| format!("{command}\r\n")).collect();
        self.0.get_mut().write_all(all.as_bytes()).unwrap();
        commands.iter().flat_map(|(_, lines)| vec![(); *lines]).map(|()| self.line()).collect()
    }

    /// The answer to `INFO` with these sections.
    fn info(&mut self, sections: &str) -> String {
        self.0.get_mut().write_all(format!("INFO {sections}\r\n").as_bytes()).unwrap();
        let bytes: usize = self.line()[1..].parse().unwrap();
        let mut text = vec![0; bytes + 2];
        self.0.read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap().trim_end().to_string()
    }
}

#[test]
fn the_page_counts_each_command_by_how_it_ended() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = PagedGateway::start(2);
    let before = gateway.page();
    assert_eq!((before.answered("set"), before.get("amcast_commands_total")), (0.0, 0.0));
    let (mut one, mut other) = (
        InlineClient::connect(gateway.redis.address()),
        InlineClient::connect(gateway.redis.address()),
    );
    one.send(&[("SET a 1", 1), ("SeT b 1", 1), ("INCR a", 1), ("PING", 1), ("GET a", 2)]);
    other.send(&[("SET c 1", 1), ("LPUSH l 1", 1)]);
    // An error in execution, one before it, and no command at all.
    let errors = other.send(&[("GET l", 1), ("GET", 1), ("NOSUCHCOMMAND 1", 1)]);
    assert!(errors.iter().all(|error| error.starts_with('-')), "{errors:?}");
    other.send(&[("MULTI", 1), ("INCR a", 1), ("LPUSH a 1", 1), ("EXEC", 3)]);
    other.send(&[("CLIENT REPLY OFF", 0), ("SET d 1", 0), ("CLIENT REPLY ON", 1)]);
    let page = gateway.page();
    let commands = ["set", "incr", "ping", "get", "lpush", "multi", "exec", "client"];
    let answered = commands.map(|command| page.answered(command));
    assert_eq!(answered, [4.0, 2.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0]);
    let of = |what: &str, command: &str| {
        page.get(&format!("amcast_command_{what}_total{{command=\"{command}\"}}"))
    };
    assert_eq!((of("failures", "get"), of("rejections", "get")), (1.0, 1.0));
    assert_eq!((of("failures", "lpush"), of("failures", "set")), (1.0, 0.0));
    assert_eq!(of("rejections", "unknown"), 1.0);
    assert_eq!(page.get("amcast_commands_total"), 17.0);
    let named = |label: &str| page.0.values().any(|f| f.samples.keys().any(|s| s.contains(label)));
    assert!(!named("NOSUCH") && !named("nosuch"), "what clients make up is no label");
    assert!(!named("command=\"hset\""), "nobody sent it");
    let resident = page.get("amcast_process_resident_memory_bytes");
    assert!(resident > 1e6, "{resident}");
    assert!(page.0.contains_key("amcast_shard_memory_limit_bytes"));
    assert!(page.0.contains_key("amcast_shard_parts_bytes"));
}

#[test]
fn refused_connections_count_by_the_limit() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = PagedGateway::start(1);
    let address = gateway.redis.address();
    let mut all: Vec<_> = (0..4).map(|_| InlineClient::connect(address)).collect();
    all.iter_mut().for_each(|client| assert_eq!(client.send(&[("PING", 1)]), ["+PONG"]));
    let refused = InlineClient::connect(address).line();
    assert!(refused.starts_with("-ERR max number of clients"), "{refused}");
    let page = gateway.page();
    let of = |limit| page.get(&format!("amcast_connections_refused_total{{limit=\"{limit}\"}}"));
    assert_eq!((of("max_clients"), of("memory_limit")), (1.0, 0.0));
    assert_eq!(page.get("amcast_connected_clients"), 4.0);
    assert!(all[0].info("stats").contains("rejected_connections:1"));
}

#[test]
fn info_has_the_sections_that_are_asked_for() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = PagedGateway::start(1);
    let mut client = InlineClient::connect(gateway.redis.address());
    let sections = |client: &mut InlineClient, asked: &str| -> Vec<String> {
        let text = client.info(asked);
        let heads = text.lines().filter_map(|line| line.strip_prefix("# "));
        heads.map(str::to_string).collect()
    };
    let usual = sections(&mut client, "");
    assert!(usual.contains(&"CPU".to_string()) && usual.contains(&"Keyspace".to_string()));
    assert!(!usual.contains(&"Commandstats".to_string()), "{usual:?}");
    assert_eq!(sections(&mut client, "default"), usual);
    let all = sections(&mut client, "all");
    assert_eq!(all.len(), usual.len() + 2);
    assert_eq!(sections(&mut client, "EVERYTHING"), all);
    let some = sections(&mut client, "latencystats cpu commandstats nonsense cpu");
    assert_eq!(some, ["CPU", "Commandstats", "Latencystats"]);
    assert_eq!(sections(&mut client, "default commandstats").len(), usual.len() + 1);
    assert_eq!(client.info("nonsense"), "");
}

#[test]
fn info_counts_commands_as_redis_does_until_the_statistics_are_reset() {
    let _limit = amcast_test_policy::time_limit();
    let gateway = PagedGateway::start(1);
    let mut client = InlineClient::connect(gateway.redis.address());
    client.send(&[("LPUSH l 1", 1), ("GET l", 1), ("GET a", 1), ("GET", 1)]);
    let stats = client.info("commandstats latencystats cpu");
    let fields = |name: &str| -> BTreeMap<String, String> {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        let pairs = line.unwrap_or_else(|| panic!("{name}: {stats}")).split(',');
        pairs.filter_map(|p| p.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
    };
    let get = fields("cmdstat_get");
    assert_eq!((get["calls"].as_str(), get["failed_calls"].as_str()), ("2", "1"));
    assert_eq!(get["rejected_calls"], "1");
    let (us, each): (f64, f64) =
        (get["usec"].parse().unwrap(), get["usec_per_call"].parse().unwrap());
    assert!((each - us / 2.0).abs() < 0.01, "{get:?}");
    let shares = fields("latency_percentiles_usec_get");
    let share = |name: &str| shares[name].parse::<f64>().unwrap();
    assert!(0.0 < share("p50") && share("p50") <= share("p99"), "{shares:?}");
    assert!(share("p99") <= share("p99.9"), "{shares:?}");
    let cpu = stats.lines().filter(|line| line.starts_with("used_cpu_")).count();
    assert_eq!(cpu, 6, "{stats}");
    assert_eq!(client.send(&[("CONFIG RESETSTAT", 1)]), ["+OK"]);
    let after = client.info("commandstats stats");
    assert!(!after.contains("cmdstat_get:") && after.contains("cmdstat_config:"), "{after}");
    assert!(after.contains("total_connections_received:0"), "{after}");
    assert!(after.contains("total_error_replies:0"), "{after}");
    // Counters of Prometheus only grow.
    assert_eq!(gateway.page().answered("get"), 2.0);
}
