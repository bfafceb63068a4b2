//! The laboratory's commands: the simulator and the checker, as a user calls them.

use amcast_hosts::{HostLab, LabFeature};
use std::process::{Command, Output};

fn amcast(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_amcast")).args(args).output().expect("it can be started")
}

#[test]
fn the_same_seed_gives_the_same_history_file_and_the_checker_accepts_it() {
    let _limit = amcast_test_policy::time_limit();
    let path = |n: u32| {
        let name = format!("amcast-history-{}-{n}.jsonl", std::process::id());
        std::env::temp_dir().join(name)
    };
    for n in 0..2 {
        let file = path(n).display().to_string();
        let run = ["sim", "--protocol", "skeen", "--seed", "7", "--faults", "all", "--history"];
        let output = amcast(&[&run[..], &[&file]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let [a, b] = [0, 1].map(|n| std::fs::read(path(n)).unwrap());
    assert!(a.len() > 1000 && a == b);
    let checked = amcast(&["check", &path(0).display().to_string(), "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(report["ok"], true, "{report}");
    assert!(report["findings"].as_array().is_some_and(|f| f.len() == 5), "{report}");
    (0..2).for_each(|n| std::fs::remove_file(path(n)).unwrap());
}

#[test]
fn a_history_that_lacks_a_property_exits_with_1_and_shows_why() {
    let _limit = amcast_test_policy::time_limit();
    let path = std::env::temp_dir().join(format!("amcast-twice-{}.jsonl", std::process::id()));
    let lines = [
        r#"{"ev":"process","p":"g0/r0","groups":["g0"]}"#,
        r#"{"ev":"process","p":"c0","groups":[]}"#,
        r#"{"ev":"cast","t":1,"p":"c0","m":"c0:1","dst":["g0"]}"#,
        r#"{"ev":"deliver","t":2,"p":"g0/r0","m":"c0:1"}"#,
        r#"{"ev":"deliver","t":3,"p":"g0/r0","m":"c0:1"}"#,
    ];
    std::fs::write(&path, lines.join("\n")).unwrap();
    let output = amcast(&["check", &path.display().to_string()]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("g0/r0 delivers c0:1 twice"), "{text}");
}

#[test]
fn the_catalog_is_one_json_document() {
    let _limit = amcast_test_policy::time_limit();
    let output = amcast(&["protocols", "--json"]);
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = all["protocols"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert!(names.iter().any(|n| **n == "tram") && names.iter().any(|n| **n == "skeen"), "{all}");
}

#[test]
fn a_line_that_makes_no_sense_is_named_once_with_its_file() {
    let _limit = amcast_test_policy::time_limit();
    let path = std::env::temp_dir().join(format!("amcast-odd-{}.jsonl", std::process::id()));
    std::fs::write(&path, "{\"ev\":\"sneeze\"}\n").unwrap();
    let file = path.display().to_string();
    let output = amcast(&["check", &file]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches(&file).count(), 1, "{said}");
    assert!(said.contains("line 1") && said.contains("sneeze"), "{said}");
}

/// The finding for each mutant: its name, and the command that replays the run.
fn hunted(protocol: &str) -> Vec<(String, String)> {
    // Those that only a scenario shows are hunted in vain: not for long.
    let hunt = ["sim", "--protocol", protocol, "--mutant", "all", "--seeds", "300", "--json"];
    let output = amcast(&hunt);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{report}");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
    let mutants = report["mutants"].as_array().unwrap();
    mutants.iter().map(|m| (text(&m["name"]), text(&m["replay"]))).collect()
}

/// Hunts all mutants of a protocol, and tries every `every`-th command that is printed: with its mutant it
/// finds the violation and makes it smaller, without it finds none.
fn hunt_and_replay(protocol: &str, least: usize, every: usize) {
    let all = hunted(protocol);
    // A scenario alone shows some: `tram_sim` plays it with them.
    let all: Vec<_> = all.into_iter().filter(|(_, replay)| !replay.is_empty()).collect();
    assert!(all.len() >= least, "{protocol} has {} mutants that are found", all.len());
    for (name, replay) in all.into_iter().step_by(every) {
        let words: Vec<&str> = replay.split(' ').skip(1).collect();
        let output = amcast(&words);
        assert_eq!(output.status.code(), Some(1), "{replay}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("made smaller: from") && said.contains(&replay), "{said}");
        let sound: Vec<&str> = words[..words.len() - 2].to_vec();
        let output = amcast(&sound);
        assert!(output.status.success(), "{name} is found where there is no mutant: {replay}");
    }
}

#[test]
fn every_mutant_of_tram_is_found_and_the_command_that_is_printed_finds_it_again() {
    let _limit = amcast_test_policy::time_limit();
    hunt_and_replay("tram", 15, 4);
}

#[test]
fn every_mutant_of_skeen_is_found_and_the_command_that_is_printed_finds_it_again() {
    let _limit = amcast_test_policy::time_limit();
    hunt_and_replay("skeen", 6, 2);
}

#[test]
fn the_command_that_is_printed_finds_the_mistake_of_a_service_again() {
    let _limit = amcast_test_policy::time_limit();
    let service = ["sim", "--service", "kv", "--protocol", "tram", "--mutant", "loses-command"];
    let output = amcast(&[&service[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let replay = report["violations"][0]["replay"].as_str().unwrap();
    let words: Vec<&str> = replay.split(' ').skip(1).collect();
    let output = amcast(&words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("made smaller: from") && said.contains(replay), "{said}");
}

#[test]
fn log_lines_of_simulated_nodes_are_shown_where_the_environment_asks_for_them() {
    let _limit = amcast_test_policy::time_limit();
    // The replicas of this run find out that they differ, and say so; it is made smaller in an instant.
    let args = ["sim", "--service", "kv", "--protocol", "bb-urcast-urcast", "--seed", "6"];
    let args = [&args[..], &["--faults", "all", "--mutant", "expires-by-own-clock"]].concat();
    let said = |level: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amcast"));
        command.args(&args).env_remove("AMCAST_LOG");
        level.map(|level| command.env("AMCAST_LOG", level));
        let output = command.output().expect("it can be started");
        assert_eq!(output.status.code(), Some(1), "the mutant is found");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let quiet = said(None);
    assert!(!quiet.contains("digests: "), "{quiet}");
    let loud = said(Some("warn"));
    assert!(loud.contains("digests: "), "{loud}");
}

#[test]
fn a_mutant_that_survives_a_hunt_is_a_failure_and_one_seed_of_it_is_not() {
    let _limit = amcast_test_policy::time_limit();
    // Only a test of its protocol shows this one.
    let mutant = ["sim", "--mutant", "adopts-before-it-tells"];
    let output = amcast(&[&mutant[..], &["--seeds", "2", "--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("adopts-before-it-tells survives: not found within 2 seeds"), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["ok"], &report["violations"]), (&false.into(), &serde_json::json!([])));
    assert!(amcast(&[&mutant[..], &["--seed", "2"]].concat()).status.success());
}

#[test]
fn a_scenario_is_run_and_compared_with_what_its_file_says() {
    let _limit = amcast_test_policy::time_limit();
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let output = amcast(&["sim", "--scenario", dir, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success() && report["ok"] == true, "{report}");
    assert!(report["scenarios"].as_array().is_some_and(|all| all.len() >= 8), "{report}");

    let path = std::env::temp_dir().join(format!("amcast-scenario-{}.txt", std::process::id()));
    let file = path.display().to_string();
    let with = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let output = amcast(&["sim", "--scenario", &file]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = with("run skeen groups=1 replicas=1\n----\nsnow\n");
    assert!(
        code == Some(1) && said.contains(r#"line 3 is "snow", and should be "settled""#),
        "{said}"
    );
    let (code, said) = with("run skeen groups=1 replicas=1\n----\nsettled\n");
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let (code, said) = with("walk skeen\n");
    assert!(code == Some(2) && said.contains("line 1"), "{said}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_small_cluster_is_explored_wholly_and_a_mutant_is_found_there() {
    let _limit = amcast_test_policy::time_limit();
    let explore = |more: &[&str]| {
        let output = amcast(&[&["sim", "--explore", "--json", "--protocol"], more].concat());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for shape in [&["tram"][..], &["skeen", "--groups", "2"]] {
        let (code, report, said) = explore(shape);
        assert_eq!((code, &report["complete"]), (Some(0), &true.into()), "{report} {said}");
        assert!(report["runs"].as_u64().is_some_and(|runs| runs > 100), "{report}");
    }
    let (code, report, said) = explore(&["tram", "--mutant", "decides-alone"]);
    assert_eq!((code, &report["ok"]), (Some(1), &false.into()), "{report}");
    assert!(said.contains("made smaller: from") && said.contains("g0/r0 dies"), "{said}");
    let replay = report["replay"].as_str().unwrap();
    let words: Vec<&str> = replay.split(' ').skip(1).collect();
    assert_eq!(amcast(&words).status.code(), Some(1), "{replay}");
}

#[test]
fn figures_of_bursts_are_made_anew_with_their_page() {
    let _limit = amcast_test_policy::time_limit();
    let out = std::env::temp_dir().join(format!("amcast-reproduced-{}", std::process::id()));
    let dir = out.display().to_string();
    let output = amcast(&["reproduce", "to-fig4", "to-fig5", "--quick", "--json", "--out", &dir]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success() && report["ok"] == true, "{report}");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&read("to-fig4.json")).unwrap();
    let points = figures["figures"]["points"].as_array().unwrap();
    let latency = |protocol: &str, burst: u64| {
        let of = |p: &&serde_json::Value| p["protocol"] == protocol && p["medium"] == "sim";
        let point = points.iter().filter(of).find(|p| p["burst"] == burst);
        point.unwrap()["latency_us"]["mean"].as_f64().unwrap()
    };
    // At least the two hops of 60 us that a uniform delivery takes; and it costs more than a plain one.
    assert!(latency("sb-urcast", 1) > 120.0 && latency("sb-urcast", 1) > latency("sb-rcast", 1));
    // Sixteen protocols, bursts of three sizes, over TCP, over UDP, and in the simulator.
    assert_eq!(points.len(), 3 * (16 + 16 + 16));
    assert!(points.iter().all(|p| p["per_second"]["least"].as_f64().is_some_and(|n| n > 0.0)));
    let file = out.join("to-fig5.json").display().to_string();
    let chosen = amcast(&["choose", "--spec", "TO(NUA,SUTO)", "--json", "--measured", &file]);
    let chosen: serde_json::Value = serde_json::from_slice(&chosen.stdout).unwrap();
    // All rows that enforce it were measured.
    let candidates = chosen["candidates"].as_array().unwrap();
    let measured = candidates.iter().take_while(|c| c["deliveries_per_second"].is_f64()).count();
    assert_eq!((measured, candidates.len()), (7, 7), "{chosen}");
    for name in ["fastcast", "lcr", "ring-paxos-multicast"] {
        assert!(candidates.iter().any(|c| c["protocol"] == name), "{chosen}");
    }
    let page = read("index.html");
    assert!(page.contains("<svg") && page.contains("to-fig5.json"), "{page}");
    assert!(read("to-fig5-sim.svg").contains("pb-urcast"));
    std::fs::remove_dir_all(&out).unwrap();
    let output = amcast(&["reproduce", "to-fig9"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("to-table3"));
}

#[test]
fn tables_and_figures_of_votes_are_made_anew_beside_the_paper_s() {
    let _limit = amcast_test_policy::time_limit();
    let out = std::env::temp_dir().join(format!("amcast-votes-{}", std::process::id()));
    let dir = out.display().to_string();
    let ids = ["toto-tab1", "toto-tab4", "toto-fig5"];
    let output =
        amcast(&[&["reproduce"], &ids[..], &["--quick", "--json", "--out", &dir]].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && report["ok"] == true, "{report} {said}");
    let of = |at: usize| &report["experiments"][at];
    assert_eq!(of(0)["figures"]["delivered"], "b1, c1, e2");
    assert!(of(0)["claims"].as_array().unwrap().iter().all(|claim| claim["holds"] == "yes"));
    // Two loads, and both protocols at each: one prediction for each of them.
    let rows = of(1)["figures"]["rows"].as_array().unwrap();
    let value = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    assert_eq!((rows.len(), &rows[0]["protocol"]), (4, &"toto".into()));
    assert!(value(0, "observed_ms") < value(1, "observed_ms"), "all-ack waits for more: {rows:?}");
    assert!(value(0, "model_ms") > 50.0 && value(0, "deviation") < 0.5, "{rows:?}");
    let points = of(2)["figures"]["points"].as_array().unwrap();
    assert!(points.iter().all(|p| (5.0..8.0).contains(&p["mean_index"].as_f64().unwrap())));
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.contains("toto-fig5.json") && page.contains("mean in the paper"), "{page}");
    assert!(std::fs::read_to_string(out.join("toto-fig5-index.svg")).unwrap().contains("<svg"));
    std::fs::remove_dir_all(&out).unwrap();
}

#[test]
fn strangers_beside_four_hosts_of_fastcast_are_measured_and_all_deliver_in_one_order() {
    let _limit = amcast_test_policy::time_limit();
    let test = "strangers_beside_four_hosts_of_fastcast_are_measured_and_all_deliver_in_one_order";
    if let Some(why) = HostLab::missing_feature(&[LabFeature::Rates]) {
        return amcast_test_policy::skip(test, why);
    }
    let out = std::env::temp_dir().join(format!("amcast-strangers-{}", std::process::id()));
    let dir = out.display().to_string();
    let output = amcast(&["reproduce", "fastcast-strangers", "--quick", "--json", "--out", &dir]);
    let said = String::from_utf8_lossy(&output.stderr);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Members whose orders differ have no figures: that ends the experiment.
    assert!(output.status.success() && report["ok"] == true, "{report} {said}");
    let experiment = &report["experiments"][0];
    let figures = &experiment["figures"];
    let runs = figures["runs"].as_array().unwrap();
    let judgements: Vec<_> = runs.iter().map(|run| run["judgement"].as_str().unwrap()).collect();
    assert_eq!(judgements, ["usual", "at-least-half", "never"], "{figures}");
    for run in runs {
        let phases = run["phases"].as_array().unwrap();
        let names: Vec<_> = phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect();
        assert_eq!(names, ["before", "udp", "after-udp", "tcp", "after-tcp"]);
        for phase in phases {
            let latency = &phase["latency_ns"];
            assert!(phase["delivered_mbps"].as_f64().is_some_and(|mbps| mbps > 0.0), "{phase}");
            assert!(latency["p50"].as_u64() > Some(0) && latency["p99"].as_u64() > Some(0));
            assert_eq!(phase["lost"].as_array().map(Vec::len), Some(2), "{phase}");
        }
        let strangers = run["strangers"].as_array().unwrap();
        assert_eq!(strangers.len(), 2, "{run}");
        let arrived = |of: &serde_json::Value| of["arrived_mbps"].as_f64();
        assert!(strangers.iter().all(|of| arrived(of).is_some_and(|mbps| mbps > 0.0)), "{run}");
        assert!(run["stream_datagrams"][0].as_u64() > Some(0), "{run}");
    }
    assert!(experiment["claims"].as_array().is_some_and(|claims| claims.len() == 6));
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("The strangers"), "{page}");
    std::fs::remove_dir_all(&out).unwrap();
}

#[test]
fn a_network_is_given_by_its_figures() {
    let _limit = amcast_test_policy::time_limit();
    let sim = ["sim", "--protocol", "bb-urcast-urcast", "--messages", "20", "--network"];
    let output = amcast(&[&sim[..], &["latency_us=40,loss_ppm=1000,mbit=100"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = amcast(&[&sim[..], &["speed=3"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("latency_us"), "{said}");
}

#[test]
fn what_cannot_be_or_cannot_be_judged_is_said_and_no_success() {
    let _limit = amcast_test_policy::time_limit();
    let refused = |args: &[&str], named: &str| {
        let output = amcast(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(named), "{args:?}: {said}");
    };
    refused(&["sim", "--groups", "3", "--destinations", "4"], "--destinations 4");
    refused(&["sim", "--payload", "100000000"], "--payload 100000000");
    refused(&["sim", "--clients", "0"], "--clients 0");
    refused(&["sim", "--settle-us", "0"], "--settle-us");
    refused(&["sim", "--network", "loss_ppm=1000000"], "at most 500000");
    refused(&["sim", "--overlay", "0,0,0"], "0 roots");
    refused(&["sim", "--protocol", "skeen", "--faults", "crash"], "no process crashes");
    refused(&["sim", "--scenario", "scenarios", "--seed", "3"], "--seed");

    let path = std::env::temp_dir().join(format!("amcast-nothing-{}.jsonl", std::process::id()));
    let file = path.display().to_string();
    std::fs::write(&path, "").unwrap();
    assert_eq!(amcast(&["check", &file]).status.code(), Some(1));
    // No protocol is named: TRAM is meant.
    assert!(amcast(&["sim", "--seed", "7", "--history", &file]).status.success());
    assert_eq!(amcast(&["check", &file]).status.code(), Some(0));
    assert_eq!(amcast(&["check", &file, "--require", "linearizable"]).status.code(), Some(1));
    // An answer that nobody asked for: something of the history is missing.
    let torn = [
        r#"{"ev":"process","p":"c0","groups":[]}"#,
        r#"{"ev":"call","t":1,"p":"c0","m":"c0:1","op":"SET a 1"}"#,
        r#"{"ev":"return","t":2,"p":"c0","m":"c0:2","out":"OK"}"#,
    ];
    std::fs::write(&path, torn.join("\n")).unwrap();
    for more in [&[][..], &["--json"], &["--require", "linearizable"]] {
        let output = amcast(&[&["check", &file], more].concat());
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{report}");
        assert!(report.contains("c0:2 returns without a call before it"), "{report}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn groups_and_clients_of_message_protocols_are_measured_over_tcp() {
    let _limit = amcast_test_policy::time_limit();
    for protocol in ["skeen", "byzcast"] {
        let load = ["--groups", "2", "--destinations", "2", "--clients", "2", "--outstanding", "4"];
        let run = ["bench", "--medium", "tcp", "--quick", "--json", "--protocol", protocol];
        let output = amcast(&[&run[..], &load].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
        let measured = &report["measured"];
        assert!(measured["multicasts"].as_u64().is_some_and(|n| n > 0), "{report}");
        // One process delivers in each of the two groups, and both orders were judged.
        assert!(measured["deliveries"].as_u64() >= measured["multicasts"].as_u64().map(|n| 2 * n));
        assert!(measured["holds"].as_array().is_some_and(|all| all.len() == 3), "{report}");
    }
}

#[test]
fn a_full_disk_under_standard_output_is_told_in_a_sentence() {
    let _limit = amcast_test_policy::time_limit();
    for args in [&["protocols"][..], &["sim", "--messages", "5"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_amcast")).args(args).stdout(full).output();
        let output = output.expect("it can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("standard output cannot be written") && !said.contains("panic"),
            "{said}"
        );
    }
}

#[test]
fn a_protocol_is_chosen_by_what_it_must_guarantee() {
    let _limit = amcast_test_policy::time_limit();
    let chosen = |args: &[&str]| {
        let output = amcast(&[&["choose", "--json"], args].concat());
        let chosen: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        chosen["chosen"].as_str().unwrap().to_string()
    };
    assert!(chosen(&["--spec", "to( ua , suto )"]).ends_with("urcast"));
    assert_eq!(chosen(&["--multicast", "--medium", "shm"]), "tram");
    for wrong in [&["--spec", "TO(UA)"][..], &["--spec", "TO(UA,SUTO)", "--medium", "shm"], &[]] {
        assert_eq!(amcast(&[&["choose"], wrong].concat()).status.code(), Some(2));
    }
    let output = amcast(&["choose", "--spec", "TO(UA,SUTO)", "--measured", "/dev/null"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("to-fig5"));
}

#[test]
fn faults_of_disks_are_refused_for_a_protocol_that_uses_none() {
    let _limit = amcast_test_policy::time_limit();
    let output = amcast(&["sim", "--protocol", "tram", "--faults", "disk"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("tram keeps nothing on disk"), "{text}");
}

#[test]
fn a_history_is_drawn_and_what_is_wrong_with_it_stands_out() {
    let _limit = amcast_test_policy::time_limit();
    let directory = std::env::temp_dir().join(format!("amcast-view-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    let (history, page) = (path("run.jsonl"), path("run.html"));
    let run = ["sim", "--protocol", "multi-ring", "--seed", "3", "--faults", "all", "--history"];
    assert!(amcast(&[&run[..], &[&history]].concat()).status.success());
    let output = amcast(&["view", &history, "--out", &page, "--events", "90"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).trim_end().ends_with("/run.html"));
    let drawn = std::fs::read_to_string(&page).unwrap();
    assert_eq!(drawn.matches("<title>").count(), 91, "as many events as asked, and the page");
    assert!(drawn.contains("that were chosen are not drawn") && drawn.contains("holds"));
    // The last delivery once more, by a process that has it: it is found, and drawn with its message.
    let text = std::fs::read_to_string(&history).unwrap();
    let twice = text.lines().rfind(|l| l.contains("\"deliver\"")).unwrap();
    let lines: Vec<&str> =
        text.lines().flat_map(|l| vec![l; 1 + usize::from(l == twice)]).collect();
    std::fs::write(&history, lines.join("\n")).unwrap();
    let output = amcast(&["view", &history, "--out", &page]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let drawn = std::fs::read_to_string(&page).unwrap();
    assert!(drawn.contains(" twice</strong>") && drawn.contains("class=\"m wrong\""));
    let (nothing, nowhere) = (path("none.jsonl"), path("none/x.html"));
    let wrong: [(&[&str], i32); 3] = [
        (&["view", &nothing, "--out", &page], 2),
        (&["view", &history, "--out", &page, "--message", "nobody:7"], 1),
        (&["view", &history, "--out", &nowhere], 1),
    ];
    for (args, code) in wrong {
        let output = amcast(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!why.is_empty());
        if args.contains(&"nobody:7") {
            assert!(why.contains("are named as in it: g0/r"), "{why}");
        }
    }
    // A file that is no page is overwritten only if that is meant.
    std::fs::write(&page, "notes").unwrap();
    let output = amcast(&["view", &history, "--out", &page]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "notes");
    assert!(amcast(&["view", &history, "--out", &page, "--force"]).status.success());
    assert!(std::fs::read_to_string(&page).unwrap().contains("</svg>"));
    std::fs::remove_dir_all(&directory).unwrap();
}
