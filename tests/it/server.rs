//! Managed servers: they start, are measured, and are stopped in any case.

use crate::lab::*;
use llmscen_client::server::{Server, ServerCommand, ServerError};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a machine that is busy with other things.
const LONG: Duration = Duration::from_secs(60);

/// A scratch folder in which no process outlives its test.
struct Yard(Lab);

impl Drop for Yard {
    fn drop(&mut self) {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
                .and_then(Pid::from_raw);
            let own = std::fs::read_link(entry.path().join("cwd"))
                .is_ok_and(|cwd| cwd.starts_with(self.0.path()));
            if let Some(pid) = pid.filter(|_| own) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl Yard {
    fn new() -> Yard {
        Yard(Lab::new())
    }

    /// The process that wrote its id into this file, once it has.
    fn pid(&self, name: &str) -> Pid {
        let path = self.0.path().join(name);
        let read = || {
            std::fs::read_to_string(&path)
                .ok()?
                .strip_suffix('\n')?
                .parse()
                .ok()
                .and_then(Pid::from_raw)
        };
        wait_for(name, read)
    }

    /// Starts a run, and waits until it is under way.
    fn start(&self, scenario: &str) -> Child {
        self.0.file("s.yaml", scenario);
        let child = self.0.spawn(&["run", "s.yaml", "--output", "out"]);
        let journal = self.0.path().join("out/journal.bin");
        wait_for("the journal", || {
            std::fs::metadata(&journal)
                .is_ok_and(|file| file.len() > 2000)
                .then_some(())
        });
        child
    }

    /// A server that logs its start and sleeps.
    fn order(&self, script: &str, grace: Duration) -> ServerCommand {
        ServerCommand {
            command: ["sh", "-c", script].map(str::to_owned).into(),
            env: vec![("MARK".into(), "of the yard".into())],
            cwd: Some(self.0.path().display().to_string()),
            log: self.0.path().join("server.log"),
            grace_ns: grace.as_nanos() as u64,
        }
    }
}

#[track_caller]
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LONG, "no {what} after {LONG:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn lives(pid: Pid) -> bool {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[track_caller]
fn gone(pid: Pid) {
    wait_for("end of the server", || (!lives(pid)).then_some(()));
}

fn tool() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_llmscen"))
}

/// The simulator as a managed server that writes its process id to the file `pid`.
fn simulator(port: u16) -> String {
    format!(
        "[sh, -c, 'echo $$ > pid; exec {} simulate --listen 127.0.0.1:{port} \"$@\"', sh]",
        tool().display()
    )
}

/// A run of that server; `more`: further keys of it.
fn managed(port: u16, command: &str, more: &str, load: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget:\n  url: http://127.0.0.1:{port}/v1/chat/completions\n  model: sim\n  server:\n    command: {command}\n\
         {more}request: {{ max_tokens: 8 }}\ndataset: {{ kind: prompt, text: hello }}\nload: {{ {load} }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
    )
}

const BY_LOG: &str = "    ready: { log: 'http://' }\n";
const ENDLESS: &str = "concurrency: 4, duration: 100s, graceful_stop: 2s";

#[test]
fn a_server_is_started_measured_and_stopped() {
    let (yard, port) = (Yard::new(), port());
    let more = format!(
        "{BY_LOG}    env: {{ SIM_TOKEN: \"${{TOK}}\" }}\n    args: {{ truth: truth.jsonl }}\n"
    );
    let scenario = managed(port, &simulator(port), &more, "concurrency: 2, requests: 6")
        + "slo: [startup < 60s]\n";
    yard.0.file("s.yaml", scenario);
    let ran = yard
        .0
        .command(&["run", "s.yaml", "--output", "out"])
        .env("TOK", "t0ps3cret")
        .output()
        .unwrap();
    let ran = Ran::of(ran).expect(0);
    assert!(
        ran.out.contains("server: ready after ") && ran.err.contains("starting the server\n"),
        "{}{}",
        ran.out,
        ran.err
    );
    let case = &yard.0.results()["cases"][0];
    let own = &case["startups"][0];
    let at = |name: &str| own[name].as_f64().unwrap();
    assert!(
        0.0 < at("spawned_s")
            && at("spawned_s") <= at("ready_s")
            && at("ready_s") < at("first_token_s"),
        "{own}"
    );
    assert_eq!(
        (
            own["log"].as_str(),
            case["startups"].as_array().unwrap().len()
        ),
        (Some("server.log"), 1)
    );
    assert_eq!(case["metrics"]["startup_s"], own["ready_s"]);
    assert_eq!(
        (
            &case["slo"][0]["verdict"],
            case["server_ends"].as_array().unwrap().len()
        ),
        (&Value::from("pass"), 0)
    );
    // It stopped on SIGTERM, so that it could write its log.
    assert_eq!(yard.0.text("truth.jsonl").lines().count(), 6);
    assert!(
        yard.0
            .text("out/server.log")
            .contains("the simulator is listening")
    );
    assert!(
        yard.0.text("out/report.md").contains("## Server\n")
            && yard
                .0
                .text("out/report.html")
                .contains("<section id=\"server\">")
    );
    assert!(!lives(yard.pid("pid")));
    for entry in std::fs::read_dir(yard.0.path().join("out"))
        .unwrap()
        .flatten()
    {
        let text = std::fs::read(entry.path()).unwrap_or_default();
        assert!(
            !String::from_utf8_lossy(&text).contains("t0ps3cret"),
            "{entry:?}"
        );
    }
    assert_eq!(
        yard.0.llmscen(&["report", "out"]).expect(0).out,
        ran.out,
        "told again from what is stored"
    );
}

#[test]
fn readiness_may_be_a_status() {
    let (yard, port) = (Yard::new(), port());
    let more = |status: &str| {
        format!(
            "    ready: {{ url: \"http://127.0.0.1:{port}/{status}\", timeout: 2s, interval: 50ms }}\n"
        )
    };
    let ran = yard
        .0
        .run(&managed(
            port,
            &simulator(port),
            &more("health"),
            "concurrency: 1, requests: 2",
        ))
        .expect(0);
    assert!(ran.out.contains("server: ready after "), "{}", ran.out);
    let ran = yard
        .0
        .run(&managed(
            port,
            &simulator(port),
            &more("nowhere"),
            "concurrency: 1, requests: 2",
        ))
        .expect(3);
    assert!(
        ran.err.contains("server not ready after 2 s")
            && ran.err.contains("the last status was 404"),
        "{}",
        ran.err
    );
    gone(yard.pid("pid"));
}

#[test]
fn a_signal_to_the_tool_stops_the_server_too() {
    for signal in [Signal::INT, Signal::TERM] {
        let (yard, port) = (Yard::new(), port());
        let child = yard.start(&managed(port, &simulator(port), BY_LOG, ENDLESS));
        let pid = yard.pid("pid");
        assert!(lives(pid));
        kill_process(Pid::from_child(&child), signal).unwrap();
        finish(child).expect(130);
        assert!(!lives(pid));
        assert_eq!(yard.0.results()["interrupted"], true);
    }
}

#[test]
fn a_signal_during_startup_stops_the_server() {
    let (yard, port) = (Yard::new(), port());
    yard.0.file(
        "s.yaml",
        managed(
            port,
            "[sh, -c, 'echo $$ > pid; exec sleep 100']",
            BY_LOG,
            ENDLESS,
        ),
    );
    let child = yard.0.spawn(&["run", "s.yaml", "--output", "out"]);
    let pid = yard.pid("pid");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    finish(child).expect(130);
    assert!(!lives(pid));
}

#[test]
fn a_flood_in_the_log_outlasts_no_timeout() {
    let (yard, port) = (Yard::new(), port());
    let ready = "    ready: { log: never said, timeout: 1s }\n    stop: { grace: 1s }\n";
    // The size limit of the file is far above what is written until the timeout.
    let flood = "[sh, -c, 'echo $$ > pid; ulimit -f 8000000; line=$(printf %01000d 1); while :; do echo $line; done']";
    let ran = yard.0.run(&managed(port, flood, ready, ENDLESS));
    assert!(
        ran.code != 0 && ran.err.contains("server not ready after 1 s"),
        "{ran:?}"
    );
    gone(yard.pid("pid"));
}

#[test]
fn a_second_signal_hurries_a_server_that_did_not_come_up() {
    let (yard, port) = (Yard::new(), port());
    let stubborn =
        "[sh, -c, 'trap \"echo >> asked\" TERM; echo $$ > pid; while :; do sleep 0.1; done']";
    let more = "    ready: { log: never said, timeout: 300ms }\n    stop: { grace: 1000s }\n";
    yard.0
        .file("s.yaml", managed(port, stubborn, more, ENDLESS));
    let child = yard.0.spawn(&["run", "s.yaml", "--output", "out"]);
    let pid = yard.pid("pid");
    wait_for("request to end", || {
        yard.0.path().join("asked").exists().then_some(())
    });
    for _ in 0..2 {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    gone(pid);
    finish(child);
}

#[test]
fn a_tool_that_is_killed_takes_the_server_along() {
    let (yard, port) = (Yard::new(), port());
    let child = yard.start(&managed(port, &simulator(port), BY_LOG, ENDLESS));
    let pid = yard.pid("pid");
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    assert_eq!(finish(child).code, -1);
    gone(pid);
}

#[test]
fn a_server_that_is_killed_ends_the_run_with_what_was_measured() {
    for load in [ENDLESS, "rate: 30/s, duration: 100s, graceful_stop: 2s"] {
        let (yard, port) = (Yard::new(), port());
        let child = yard.start(&managed(port, &simulator(port), BY_LOG, load));
        kill_process(yard.pid("pid"), Signal::KILL).unwrap();
        let began = Instant::now();
        let ran = finish(child).expect(3);
        assert!(began.elapsed() < LONG);
        assert!(
            ran.err
                .contains("the managed server exited during case `base`: signal 9"),
            "{}",
            ran.err
        );
        let results = yard.0.results();
        let (case, counts) = (&results["cases"][0], &results["cases"][0]["counts"]);
        let end = &case["server_ends"][0];
        assert_eq!(
            (end["how"].as_str(), end["round"].as_u64()),
            (Some("signal 9"), Some(0))
        );
        assert!(
            counts["ok"].as_u64().unwrap() > 0 && counts["scheduled"].as_u64().unwrap() < 100_000,
            "{counts}"
        );
        let kinds: Vec<&String> = counts["failures"].as_object().unwrap().keys().collect();
        assert!(
            kinds
                .iter()
                .all(|kind| ["connect", "truncated"].contains(&kind.as_str())),
            "{counts}"
        );
        assert!(
            yard.0
                .text("out/report.md")
                .contains("The server of `base` exited ")
        );
        yard.0.llmscen(&["report", "out"]).expect(3);
        assert_eq!(yard.0.results(), results);
    }
}

#[test]
fn a_server_that_ends_once_it_was_ready_is_asked_nothing() {
    let (yard, port) = (Yard::new(), port());
    let ran = yard
        .0
        .run(&managed(
            port,
            "[sh, -c, 'echo http://; sleep 0.1; exit 9']",
            BY_LOG,
            ENDLESS,
        ))
        .expect(3);
    assert!(
        ran.err.contains(": exit status 9") && ran.err.contains("| http://"),
        "{}",
        ran.err
    );
    assert_eq!(yard.0.results()["cases"][0]["counts"]["scheduled"], 0);
}

#[test]
fn a_port_that_refuses_is_not_stormed() {
    let (yard, port) = (Yard::new(), port());
    // The process outlives its port, as that of an engine whose workers take long to exit.
    let command = format!(
        "[sh, -c, '{} simulate --listen 127.0.0.1:{port} & echo $! > pid; wait; sleep 1; exit 4']",
        tool().display()
    );
    let child = yard.start(&managed(port, &command, BY_LOG, ENDLESS));
    kill_process(yard.pid("pid"), Signal::KILL).unwrap();
    finish(child).expect(3);
    let refused = yard.0.results()["cases"][0]["counts"]["failures"]["connect"]
        .as_u64()
        .unwrap();
    // Four users during the last second of the process, each waiting twice as long after each failed connection.
    assert!((1..40).contains(&refused), "{refused}");
}

#[test]
fn a_server_that_closes_its_port_is_lost_although_its_process_runs() {
    let (yard, port) = (Yard::new(), port());
    let command = format!(
        "[sh, -c, '{} simulate --listen 127.0.0.1:{port} & echo $! > pid; wait; sleep 100']",
        tool().display()
    );
    let child = yard.start(&managed(port, &command, BY_LOG, ENDLESS));
    kill_process(yard.pid("pid"), Signal::KILL).unwrap();
    let ran = finish(child).expect(3);
    assert!(ran.out.contains("Target lost after "), "{}", ran.out);
    let refused = yard.0.results()["cases"][0]["counts"]["failures"]["connect"]
        .as_u64()
        .unwrap();
    assert!((4..=48).contains(&refused), "{refused}");
}

#[test]
fn every_case_whose_own_server_fails_is_explained() {
    let (yard, port) = (Yard::new(), port());
    let more = format!("{BY_LOG}    restart: case\n");
    let matrix = "matrix: { target.server.args.listen: [nonsense, rubbish] }\n";
    let command = simulator(port).replace(&format!("--listen 127.0.0.1:{port} "), "");
    let ran = yard
        .0
        .run(&(managed(port, &command, &more, "concurrency: 1, requests: 3") + matrix))
        .expect(3);
    let verdict = ran
        .out
        .lines()
        .find(|line| line.contains("before it was ready"))
        .unwrap();
    for named in [
        "nonsense`",
        "rubbish`",
        "before it was ready: exit status 2",
    ] {
        assert!(verdict.contains(named), "{verdict}");
    }
}

#[test]
fn a_killed_supervisor_leaves_no_server_behind() {
    let (yard, port) = (Yard::new(), port());
    let child = yard.start(&managed(port, &simulator(port), BY_LOG, ENDLESS));
    let pid = yard.pid("pid");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let guard: i32 = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kill_process(Pid::from_raw(guard).unwrap(), Signal::KILL).unwrap();
    let ran = finish(child).expect(3);
    assert!(
        ran.err.contains("its supervisor process was killed"),
        "{}",
        ran.err
    );
    assert!(!lives(pid));
}

#[test]
fn an_address_in_use_is_refused() {
    let yard = Yard::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let ran = yard
        .0
        .run(&managed(
            port,
            &simulator(port),
            BY_LOG,
            "concurrency: 1, requests: 1",
        ))
        .expect(3);
    assert!(
        ran.err
            .contains(&format!("127.0.0.1:{port} is already in use")),
        "{}",
        ran.err
    );
    assert!(!yard.0.path().join("pid").exists());
}

#[test]
fn a_server_that_does_not_start_is_reported_with_the_end_of_its_log() {
    let (yard, port) = (Yard::new(), port());
    let script = |end: &str| {
        format!("[sh, -c, 'for i in $(seq 30); do echo line $i; done; echo key t0ps3cret; {end}']")
    };
    let more =
        "    ready: { log: 'up and running', timeout: 700ms }\n    env: { A_KEY: t0ps3cret }\n";
    for (end, said) in [
        ("exit 7", "before it was ready: exit status 7"),
        (
            "exec sleep 100",
            "server not ready after 0.7 s: `up and running` did not appear in its log",
        ),
        ("trap \"\" TERM; sleep 100", "server not ready after 0.7 s"),
    ] {
        let more = format!("{more}    stop: {{ grace: 200ms }}\n");
        let ran = yard
            .0
            .run(&managed(
                port,
                &script(end),
                &more,
                "concurrency: 1, requests: 1",
            ))
            .expect(3);
        assert!(
            ran.err.contains(said) && ran.err.contains("| line 30\n  | key [redacted]"),
            "{}",
            ran.err
        );
        assert!(
            !ran.err.contains("| line 11\n") && !ran.err.contains("t0ps3cret"),
            "{}",
            ran.err
        );
    }
    let ran = yard
        .0
        .run(&managed(
            port,
            "no-such-program",
            BY_LOG,
            "concurrency: 1, requests: 1",
        ))
        .expect(3);
    assert!(
        ran.err
            .contains("cannot start the server `no-such-program`"),
        "{}",
        ran.err
    );
}

#[test]
fn a_case_may_have_a_server_of_its_own() {
    let (yard, port) = (Yard::new(), port());
    let more = format!("{BY_LOG}    restart: case\n");
    let matrix = "matrix: { target.server.args.truth: [a.jsonl, b.jsonl] }\n";
    yard.0
        .run(&(managed(port, &simulator(port), &more, "concurrency: 1, requests: 3") + matrix))
        .expect(0);
    let results = yard.0.results();
    let logs: Vec<&Value> = (0..2)
        .map(|case| &results["cases"][case]["startups"][0]["log"])
        .collect();
    assert_eq!(logs, ["server.log", "server-2.log"]);
    for truth in ["a.jsonl", "b.jsonl"] {
        assert_eq!(yard.0.text(truth).lines().count(), 3, "{truth}");
    }
}

#[test]
fn a_case_whose_own_server_fails_does_not_end_the_others() {
    let (yard, port) = (Yard::new(), port());
    let more = format!("{BY_LOG}    restart: case\n");
    let matrix = "matrix: { target.server.args.listen: [nonsense, '127.0.0.1:PORT'] }\nrounds: 2\n"
        .replace("PORT", &port.to_string());
    let command = simulator(port).replace(&format!("--listen 127.0.0.1:{port} "), "");
    let ran = yard
        .0
        .run(&(managed(port, &command, &more, "concurrency: 1, requests: 3") + &matrix))
        .expect(3);
    assert!(
        ran.err.contains("before it was ready: exit status 2"),
        "{}",
        ran.err
    );
    let results = yard.0.results();
    let of = |case: usize| {
        (
            results["cases"][case]["counts"]["ok"].as_u64(),
            results["cases"][case]["startups"].as_array().unwrap().len(),
        )
    };
    assert_eq!((of(0), of(1)), ((Some(0), 0), (Some(6), 2)));
}

#[test]
fn a_server_that_is_shared_is_started_once() {
    let (yard, port) = (Yard::new(), port());
    let more = "matrix: { load.concurrency: [1, 2] }\nrounds: 2\n";
    yard.0
        .run(&(managed(port, &simulator(port), BY_LOG, "requests: 3") + more))
        .expect(0);
    let results = yard.0.results();
    let starts = |case: usize| results["cases"][case]["startups"].as_array().unwrap().len();
    assert_eq!((starts(0), starts(1)), (1, 0));
    assert!(!yard.0.path().join("out/server-2.log").exists());
}

#[test]
fn a_search_keeps_its_server() {
    let (yard, port) = (Yard::new(), port());
    let search = "slo: [ttft.p50 < 20s]\nsearch: { vary: load.concurrency, range: [1, 4], precision: 50%, confirm: 1, drain: 10ms }\n";
    let ran = yard.0.run(
        &(managed(
            port,
            &simulator(port),
            BY_LOG,
            "concurrency: 1, requests: 40",
        ) + search),
    );
    assert!([0, 5].contains(&ran.code), "{ran:?}");
    let results = yard.0.results();
    let cases = results["cases"].as_array().unwrap();
    assert_eq!(
        cases
            .iter()
            .map(|case| case["startups"].as_array().unwrap().len())
            .sum::<usize>(),
        1
    );
    assert!(!lives(yard.pid("pid")));
}

#[test]
fn fifty_starts_and_stops_leak_nothing() {
    let (yard, port) = (Yard::new(), port());
    // Each server counts the open files and the threads of the tool, its guard's parent, and the processes of this folder.
    let count = "tool=$(cut -d\" \" -f4 /proc/$PPID/stat); echo $(ls /proc/$tool/fd | wc -l) $(ls /proc/$tool/task | wc -l) >> counts; ";
    let command = simulator(port).replace("echo $$ > pid; ", &format!("{count}echo $$ >> pids; "));
    let more = format!("{BY_LOG}    restart: case\n");
    yard.0
        .run(&(managed(port, &command, &more, "concurrency: 1, requests: 1") + "rounds: 50\n"));
    assert_eq!(
        yard.0.results()["cases"][0]["startups"]
            .as_array()
            .unwrap()
            .len(),
        50
    );
    let counts: Vec<String> = yard.0.text("counts").lines().map(str::to_owned).collect();
    assert_eq!(counts.len(), 50);
    // The first start is before the first round, which may start a permanent thread.
    let totals = |line: &String| {
        line.split(' ')
            .map(|count| count.parse::<i64>().unwrap())
            .collect::<Vec<_>>()
    };
    let (early, late) = (totals(&counts[4]), totals(&counts[49]));
    assert!(
        late[0] <= early[0] + 2 && late[1] <= early[1] + 2,
        "{counts:?}"
    );
    for pid in yard.0.text("pids").lines() {
        assert!(
            !lives(Pid::from_raw(pid.parse().unwrap()).unwrap()),
            "{pid} is left"
        );
    }
}

#[test]
fn all_that_a_server_started_ends_with_it() {
    let yard = Yard::new();
    // An orphan in its own session, a child that ignores signals, and a deep descendant.
    let script = "(setsid sh -c 'echo $$ > away; exec sleep 100' &) ; \
                  setsid sh -c 'trap \"\" TERM; echo $$ > deaf; while :; do sleep 1; done' & \
                  sh -c 'sh -c \"echo \\$\\$ > deep; sleep 100\" & wait' & echo $MARK; wait";
    let server = Server::start(tool(), &yard.order(script, Duration::from_millis(300))).unwrap();
    let pids = ["away", "deaf", "deep"].map(|name| yard.pid(name));
    assert!(pids.into_iter().all(lives));
    assert_eq!(server.stop(&|| false), Vec::<u32>::new());
    assert!(!pids.into_iter().any(lives), "{:?}", pids.map(lives));
    assert_eq!(yard.0.text("server.log"), "of the yard\n");
}

#[test]
fn who_is_in_a_hurry_waits_for_no_grace() {
    let yard = Yard::new();
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 1; done";
    let server = Server::start(tool(), &yard.order(script, Duration::from_secs(1000))).unwrap();
    let pid = yard.pid("pid");
    let began = Instant::now();
    assert_eq!(
        server.stop(&|| began.elapsed() > Duration::from_millis(200)),
        Vec::<u32>::new()
    );
    assert!(began.elapsed() < LONG && !lives(pid));
}

#[test]
fn a_server_that_ends_is_noticed_and_the_rest_of_it_ended() {
    let yard = Yard::new();
    let server = Server::start(
        tool(),
        &yard.order("(setsid sleep 100 & echo $! > rest); exit 5", LONG),
    )
    .unwrap();
    let rest = yard.pid("rest");
    let ended = wait_for("end", || server.ended());
    assert_eq!(ended.how, "exit status 5");
    assert!(ended.at >= server.asked);
    gone(rest);
    let (sender, heard) = std::sync::mpsc::channel();
    server.on_end(move || sender.send(()).unwrap());
    assert!(
        heard.recv_timeout(LONG).is_ok(),
        "told at once, for it has ended"
    );
    let missing = ServerCommand {
        command: vec!["no-such-program".into()],
        ..yard.order("", LONG)
    };
    assert!(matches!(
        Server::start(tool(), &missing),
        Err(ServerError::Start { .. })
    ));
    let nowhere = ServerCommand {
        log: PathBuf::from("/nowhere/x.log"),
        ..yard.order("", LONG)
    };
    assert!(matches!(
        Server::start(tool(), &nowhere),
        Err(ServerError::Log { .. })
    ));
}

#[test]
fn a_panic_ends_the_server() {
    let yard = Yard::new();
    let order = yard.order("echo $$ > pid; sleep 100", LONG);
    let broken = std::thread::spawn(move || {
        let _server = Server::start(tool(), &order).unwrap();
        panic!("as a defect would");
    });
    assert!(broken.join().is_err());
    assert!(!lives(yard.pid("pid")));
}

#[test]
fn a_guard_by_itself_says_what_it_is_for() {
    let ran = Lab::new().llmscen(&["guard"]).expect(3);
    assert!(
        ran.err
            .contains("this command is for internal use by `llmscen run`"),
        "{}",
        ran.err
    );
}
