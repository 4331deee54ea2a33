//! Shards and server on a real network: namespaces of this machine, joined by a switch. One shard has a slow link, or none.

use crate::lab::*;
use crate::launch::{is_missing, succeeds};
use crate::shards::{
    DATA, Simulator, assert_received_once, expect_codes, finish_all, scenario, shard_args,
    simulate, wait_for_round,
};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The hosts of the network: a server and three shards. The link of the last shard can be slow.
const HOSTS: [&str; 4] = ["server", "s0", "s1", "s2"];
const ADDRESS: &str = "10.77.0.1:8000";

static NETWORKS: AtomicU32 = AtomicU32::new(0);

struct Network {
    name: String,
    link: Child,
}

impl Network {
    /// None without root and iproute2. `delay_ms` and `loss`: of the link of s2, in each direction.
    fn start(delay_ms: u32, loss: f64) -> Option<Network> {
        let root = rustix::process::geteuid().is_root() && succeeds("ip", &["netns", "list"]);
        if is_missing("network namespaces (iproute2, root)", root) {
            return None;
        }
        let number = NETWORKS.fetch_add(1, Ordering::SeqCst);
        let name = format!("llmscen{}x{number}", std::process::id());
        let ip = |line: &str| {
            let args: Vec<&str> = line.split_whitespace().collect();
            assert!(succeeds("ip", &args), "ip {line}");
        };
        let switch = format!("{name}switch");
        ip(&format!("netns add {switch}"));
        ip(&format!("-n {switch} link add switch type bridge"));
        ip(&format!("-n {switch} link set switch up"));
        for (place, host) in HOSTS.iter().enumerate() {
            let own = format!("{name}{host}");
            ip(&format!("netns add {own}"));
            ip(&format!(
                "-n {switch} link add {host} type veth peer name eth0 netns {own}"
            ));
            ip(&format!(
                "-n {own} addr add 10.77.0.{}/24 dev eth0",
                place + 1
            ));
            for line in [
                format!("-n {own} link set lo up"),
                format!("-n {own} link set eth0 up"),
                format!("-n {switch} link set {host} up"),
            ] {
                ip(&line);
            }
            if *host != "s2" {
                ip(&format!("-n {switch} link set {host} master switch"));
            }
        }
        // The frames of s2 pass a program, so that every kernel can delay and lose them.
        ip(&format!(
            "-n {switch} link add near type veth peer name far"
        ));
        ip(&format!("-n {switch} link set near up"));
        ip(&format!("-n {switch} link set far up"));
        ip(&format!("-n {switch} link set far master switch"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/slow_link.py");
        let mut link = Command::new("ip")
            .args(["netns", "exec", &switch, "python3"])
            .arg(script)
            .args(["s2", "near", &delay_ms.to_string(), &loss.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(link.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Some(Network { name, link })
    }

    /// The binary on a host.
    fn on(&self, lab: &Lab, host: &str, args: &[&str]) -> Command {
        let own = lab.command(&[]);
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &format!("{}{host}", self.name)])
            .arg(own.get_program())
            .args(args)
            .current_dir(lab.path())
            .env_clear()
            .envs([
                ("HOME", lab.path().to_str().unwrap()),
                ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn server(&self, lab: &Lab) -> Simulator {
        let args = simulate(ADDRESS, "target.simulator.alpha=5ms");
        Simulator::launch(
            self.on(lab, "server", &args),
            lab.path().join("truth.jsonl"),
        )
    }

    fn shards(&self, lab: &Lab, scenario: &str) -> Vec<Child> {
        lab.file("s.yaml", scenario);
        std::fs::create_dir_all(lab.path().join("store")).unwrap();
        let shard = |index| {
            let args = shard_args(lab, "s.yaml", &format!("{index}/3"), &[]);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            self.on(lab, &format!("s{index}"), &args).spawn().unwrap()
        };
        (0..3).map(shard).collect()
    }

    /// Unplugs s2, or plugs it in again.
    fn plug(&self, state: &str) {
        assert!(succeeds(
            "ip",
            &[
                "-n",
                &format!("{}switch", self.name),
                "link",
                "set",
                "near",
                state
            ]
        ));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.link.kill();
        let _ = self.link.wait();
        for host in HOSTS.iter().chain(&["switch"]) {
            succeeds("ip", &["netns", "del", &format!("{}{host}", self.name)]);
        }
    }
}

#[test]
fn a_slow_link_of_one_shard_is_seen_in_its_latencies() {
    let Some(network) = Network::start(20, 0.005) else {
        return;
    };
    let lab = Lab::new();
    let server = network.server(&lab);
    let load = format!("{DATA}load: {{ rate: 60/s, duration: 5s }}\n");
    let ran = finish_all(network.shards(&lab, &scenario(&server.url, &load)));
    expect_codes(&ran, &[0, 0, 0]);
    assert_received_once("slow link", server.received(), &lab.path().join("out"));
    let results = lab.results();
    let shards = results["cases"][0]["shards"].as_array().unwrap();
    let ttft = |index: usize| {
        shards[index]["ttft_ms_p50"]
            .as_f64()
            .expect("TTFT of the shard")
    };
    // 20 ms there and 20 ms back; the other links have none.
    assert!(ttft(2) >= 40.0, "{}", ttft(2));
    assert!(ttft(0).max(ttft(1)) + 20.0 < ttft(2), "{shards:#?}");
    // One kernel: no skew.
    for shard in shards {
        assert_eq!(
            (&shard["offset_ms"], &shard["bound_ms"]),
            (&0.0.into(), &0.0.into()),
            "{shard}"
        );
    }
    let notes = results["cases"][0]["notes"].to_string();
    assert!(
        notes.contains("shard 2"),
        "the report tells that TTFTs differ: {notes}"
    );
}

#[test]
fn a_shard_without_the_server_is_no_lighter_load_that_passes() {
    let Some(network) = Network::start(0, 0.0) else {
        return;
    };
    let lab = Lab::new();
    let server = network.server(&lab);
    let text = scenario(
        &server.url,
        &format!("{DATA}load: {{ rate: 45/s, duration: 10s, graceful_stop: 5s }}\n"),
    )
    .replace(
        "model: sim,",
        "model: sim, timeouts: { connect: 1s, read: 1s, total: 2s },",
    );
    let shards = network.shards(&lab, &text);
    wait_for_round(&lab, Duration::from_secs(4));
    network.plug("down");
    let ran = finish_all(shards);
    // The target is lost for one shard, so the run failed.
    assert_eq!(ran[0].code, 3, "{ran:#?}");
    let results = lab.results();
    let case = &results["cases"][0];
    assert!(
        case["counts"]["failed"].as_u64().unwrap() >= 10,
        "{}",
        case["counts"]
    );
    assert_eq!(results["verdict"], "error");
}

#[test]
fn a_short_partition_costs_requests_of_its_shard_only() {
    let Some(network) = Network::start(0, 0.0) else {
        return;
    };
    let lab = Lab::new();
    let server = network.server(&lab);
    let text = scenario(
        &server.url,
        &format!("{DATA}load: {{ rate: 45/s, duration: 8s }}\n"),
    )
    .replace(
        "model: sim,",
        "model: sim, timeouts: { connect: 1s, read: 500ms, total: 2s },",
    );
    let shards = network.shards(&lab, &text);
    wait_for_round(&lab, Duration::from_secs(3));
    network.plug("down");
    std::thread::sleep(Duration::from_secs(2));
    network.plug("up");
    let ran = finish_all(shards);
    expect_codes(&ran, &[0, 0, 0]);
    let results = lab.results();
    let shards = results["cases"][0]["shards"].as_array().unwrap();
    let failed = |index: usize| {
        shards[index]["requests"].as_u64().unwrap() - shards[index]["ok"].as_u64().unwrap()
    };
    assert!(failed(2) >= 5, "{shards:#?}");
    assert_eq!((failed(0), failed(1)), (0, 0), "{shards:#?}");
}
