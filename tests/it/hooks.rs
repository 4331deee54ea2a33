//! Hooks around the load, and commands after it.

use crate::lab::*;
use serde_json::json;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// A managed simulator with two variants; `more`: further keys.
fn scenario(more: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ url: 'http://127.0.0.1:{}/v1/chat/completions', model: sim, api_key: sk-secret-key, \
         server: {{ preset: simulator, args: {{ prefix_cache: true }} }} }}\n\
         variants: {{ a: {{}}, b: {{ target.server.args: {{ max_num_seqs: 4 }} }} }}\n\
         request: {{ max_tokens: 4 }}\ndataset: {{ kind: prompt, text: '{}' }}\nload: {{ concurrency: 1, requests: 3 }}\nrounds: 2\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1%, cache: 100%, idle: 100%, stalled: 100% }}\n{more}",
        port(),
        "word ".repeat(200)
    )
}

#[test]
fn hooks_run_around_the_rounds_and_commands_after_them() {
    let lab = Lab::new();
    let say = |point: &str| {
        format!(
            "{point}: [{{ run: 'echo {point} $LLMSCEN_CASE $LLMSCEN_ROUND >> order.txt; echo sk-secret-key' }}]"
        )
    };
    let points = ["before_run", "before_variant", "before_case", "after_case"];
    let hooks = points.map(say).join(", ");
    let then = "then: [{ run: 'curl --version > /dev/null || true; echo then $LLMSCEN_CASE >> order.txt; echo score 0.71' }, \
                { name: gate, run: 'exit 4', when: { variant: b } }]\n";
    let ran = lab
        .run(&scenario(&format!("hooks: {{ {hooks} }}\n{then}")))
        .expect(1);
    let order = lab.text("order.txt");
    let expected: Vec<String> = ["a", "b"]
        .iter()
        .flat_map(|case| {
            let rounds = [1, 2].into_iter().flat_map(move |round| {
                let fresh = (round == 1).then(|| format!("before_variant {case} 1"));
                fresh.into_iter().chain([
                    format!("before_case {case} {round}"),
                    format!("after_case {case} {round}"),
                ])
            });
            rounds.chain([format!("then {case}")])
        })
        .collect();
    let expected = [vec!["before_run a 1".to_owned()], expected].concat();
    assert_eq!(order.lines().collect::<Vec<_>>(), expected);
    let log = lab.text("out/hooks.log");
    assert!(
        !log.contains("sk-secret-key") && log.contains("[redacted]"),
        "{log}"
    );
    assert!(lab.text("out/then.log").contains("score 0.71"));
    let results = lab.results();
    let commands: Vec<_> = results["then"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| {
            (
                command["name"].clone(),
                command["case"].clone(),
                command["exit_code"].clone(),
            )
        })
        .collect();
    assert_eq!(
        commands,
        [
            (json!("curl"), json!("a"), json!(0)),
            (json!("curl"), json!("b"), json!(0)),
            (json!("gate"), json!("b"), json!(4)),
        ]
    );
    assert_eq!(
        (&results["verdict"], &results["exit_code"]),
        (&json!("fail"), &json!(1))
    );
    let why = "`gate` after `b` failed: exit status 4.";
    assert!(
        ran.out.contains("`gate` after `b` failed: exit status 4"),
        "{}",
        ran.out
    );
    let report = lab.text("out/report.md");
    assert!(
        report.contains("## Commands after the load") && report.contains(why),
        "{report}"
    );
    assert!(
        lab.text("out/report.html")
            .contains("Commands after the load")
    );
    let again = lab.llmscen(&["report", "out"]).expect(1);
    assert!(
        again.out.contains("`gate` after `b` failed"),
        "{}",
        again.out
    );
}

#[test]
fn a_cache_is_reset_by_the_endpoint_of_the_engine() {
    let lab = Lab::new();
    let cached = |lab: &Lab| {
        let results = lab.results();
        results["cases"][1]["audit"]["cached"].as_f64().unwrap()
    };
    lab.run(&scenario("")).expect(0);
    let kept = cached(&lab);
    lab.run(&scenario("hooks: { before_case: [reset_cache] }\n"))
        .expect(0);
    let reset = cached(&lab);
    // Without the reset only the first of six prompts is not cached; with it the first of each round.
    assert!((reset / kept - 4.0 / 5.0).abs() < 0.01, "{reset} {kept}");
}

#[test]
fn an_action_that_fails_costs_its_round_and_is_named() {
    let lab = Lab::new();
    let post = "hooks: { before_case: [{ post: /no_such_endpoint, when: { variant: b } }], after_case: [{ run: 'echo lost; exit 3' }] }\n";
    let ran = lab.run(&scenario(post)).expect(3);
    let failed = lab.json("out/manifest.json")["failed"].clone();
    assert_eq!(failed[0]["case"], "b");
    let why = failed[0]["why"].as_str().unwrap();
    assert!(
        why.starts_with("`before_case` of `b` failed: POST http://127.0.0.1:")
            && why.ends_with("/no_such_endpoint: the server answered 404"),
        "{why}"
    );
    assert_eq!(lab.results()["cases"][0]["counts"]["ok"], 6, "{}", ran.err);
    let notes = lab.json("out/manifest.json")["notes"].to_string();
    assert!(
        notes.contains("`after_case` of `a` failed: echo lost; exit 3: exit status 3: lost"),
        "{notes}"
    );
    let late = "hooks: { before_run: [{ run: 'sleep 60', timeout: 200ms }] }\n";
    let ran = lab.run(&scenario(late)).expect(3);
    assert!(
        ran.err
            .contains("`before_run` failed: sleep 60: no end within 0.2 s"),
        "{}",
        ran.err
    );
}

/// A server of chats and actions. `action` has the path and the number of earlier calls of any action.
fn server_with_actions(
    action: impl Fn(&str, usize) -> Vec<u8> + Send + Sync + 'static,
) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let calls = Arc::<Mutex<Vec<String>>>::default();
    let (kept, action) = (calls.clone(), Arc::new(action));
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let (kept, action) = (kept.clone(), action.clone());
            std::thread::spawn(move || {
                while let Some((head, _)) = read_head_and_body(&mut socket) {
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    let reply = match path.as_str() {
                        "/v1/chat/completions" => stream(&[TOKEN, FINISH, "[DONE]"], true),
                        _ if head.starts_with("get ") => {
                            response("404 Not Found", "text/plain", "")
                        }
                        path => {
                            let mut calls = kept.lock().unwrap();
                            calls.push(path.to_owned());
                            action(path, calls.len() - 1)
                        }
                    };
                    if !send(&mut socket, &reply) {
                        return;
                    }
                }
            });
        }
    });
    (port, calls)
}

#[test]
fn an_action_waits_for_a_busy_server() {
    // As SGLang: the reset is refused for a while after the last reply.
    let refusal = "Cache not flushed because there are pending requests.";
    let (port, calls) = server_with_actions(move |path, number| match (path, number) {
        ("/flush_cache", 0..6) => response("400 Bad Request", "text/plain", refusal),
        ("/adapter", 7) => response("503 Unavailable", "text/plain", "starting"),
        ("/adapter", 8) => {
            let body = response("429 Too Many Requests", "text/plain", "later");
            let text = String::from_utf8(body).unwrap();
            text.replacen("\r\n", "\r\nretry-after: 1\r\n", 1)
                .into_bytes()
        }
        ("/reset_prefix_cache", 10) => {
            response("200 OK", "application/json", r#"{"success":false}"#)
        }
        _ => response("200 OK", "application/json", "{}"),
    });
    let lab = Lab::new();
    let hooks = "hooks: { before_case: [{ post: /flush_cache }, { post: /adapter, body: { name: a } }, { post: /reset_prefix_cache }] }\n";
    let url = format!("http://127.0.0.1:{port}/v1/chat/completions");
    lab.run(&(plain(&url, 3) + hooks)).expect(0);
    let expected = [
        vec!["/flush_cache"; 7],
        vec!["/adapter"; 3],
        vec!["/reset_prefix_cache"; 2],
    ];
    assert_eq!(*calls.lock().unwrap(), expected.concat());
    let case = &lab.results()["cases"][0];
    assert_eq!(case["counts"]["ok"], 3);
}

#[test]
fn an_action_of_a_server_that_stays_busy_fails_with_its_last_message() {
    let (port, calls) = server_with_actions(|path, _| match path {
        "/flush_cache" => response("400 Bad Request", "text/plain", "Flush cache failed.\n"),
        "/long" => {
            let body = response("503 Unavailable", "text/plain", "maintenance");
            let text = String::from_utf8(body).unwrap();
            text.replacen("\r\n", "\r\nretry-after: 600\r\n", 1)
                .into_bytes()
        }
        _ => response("404 Not Found", "text/plain", "busy"),
    });
    let lab = Lab::new();
    let url = format!("http://127.0.0.1:{port}/v1/chat/completions");
    let why = |action: &str| {
        let hooks = format!("hooks: {{ before_case: [{action}] }}\n");
        lab.run(&(plain(&url, 3) + &hooks)).expect(3);
        let failed = lab.json("out/manifest.json")["failed"].clone();
        let count = std::mem::take(&mut *calls.lock().unwrap()).len();
        (failed[0]["why"].as_str().unwrap().to_owned(), count)
    };
    let (busy, count) = why("{ post: /flush_cache, timeout: 3s }");
    // One attempt per 250 ms, fewer on a busy machine.
    assert!((2..=13).contains(&count), "{count}");
    let start = format!(
        "POST http://127.0.0.1:{port}/flush_cache: the server was busy ({count} attempts in "
    );
    assert!(
        busy.contains(&start) && busy.ends_with(" s): 400: Flush cache failed."),
        "{busy}"
    );
    let (long, count) = why("{ post: /long, timeout: 20s }");
    assert_eq!(count, 1);
    assert!(
        long.contains("the server was busy (1 attempt in ")
            && long.ends_with(" s): 503: maintenance (retry-after: 600)"),
        "{long}"
    );
    let (missing, count) = why("{ post: /gone, timeout: 20s }");
    assert_eq!(count, 1);
    assert!(
        missing.ends_with("/gone: the server answered 404"),
        "{missing}"
    );
}

#[test]
fn actions_beside_the_load_are_counted() {
    let lab = Lab::new();
    let beside = "hooks: { beside: [{ get: /health, every: 10ms, when: { variant: a } }] }\n";
    // Slow tokens: each round is longer than any action beside it, on a busy machine too.
    let slow = scenario(beside).replace("prefix_cache: true", "prefix_cache: true, alpha: 100ms");
    lab.run(&slow).expect(0);
    let manifest = lab.json("out/manifest.json");
    let notes: Vec<&str> = manifest["notes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|note| note.as_str())
        .filter(|note| note.contains("beside"))
        .collect();
    assert_eq!(notes.len(), 2, "one per round: {notes:?}");
    for note in notes {
        let count: u64 = note
            .split(" ran ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .unwrap()
            .parse()
            .unwrap();
        assert!(count > 0 && note.ends_with(" of `a`, 0 failed."), "{note}");
    }
}

#[test]
fn hooks_that_make_no_sense_are_errors() {
    let lab = Lab::new();
    for (more, expected) in [
        (
            "hooks: { before_run: [reset_cache] }",
            "this hook has no server yet",
        ),
        ("hooks: { before_case: [empty_cache] }", "empty_cache"),
        (
            "hooks: { before_case: [{ run: a, post: /b }] }",
            "an action does one thing",
        ),
        (
            "hooks: { before_case: [{ timeout: 1s }] }",
            "an action does one thing",
        ),
        (
            "hooks: { before_case: [{ post: reset }] }",
            "this is not a URL",
        ),
        (
            "hooks: { before_case: [{ run: a, every: 1s }] }",
            "`every` outside of `beside`",
        ),
        (
            "hooks: { before_case: [{ run: a, when: { varient: b } }] }",
            "`varient` is not swept",
        ),
        ("hooks: { before_cases: [] }", "unknown key `before_cases`"),
        ("hooks: { on_fail: profile }", "unknown action `profile`"),
        ("then: [{ name: x }]", "run"),
    ] {
        lab.file("wrong.yaml", scenario(&format!("{more}\n")));
        let refused = lab.llmscen(&["plan", "wrong.yaml"]).expect(2);
        assert!(refused.err.contains(expected), "{more}: {}", refused.err);
    }
    let inside = "version: 1\nname: t\ntarget: { url: simulator }\ndataset: { kind: prompt, text: hi }\nload: { concurrency: 1, requests: 2 }\n\
                  hooks: { before_case: [{ post: /reset }] }\n";
    lab.file("wrong.yaml", inside);
    let refused = lab.llmscen(&["plan", "wrong.yaml"]).expect(2);
    assert!(
        refused.err.contains("this hook has no server"),
        "{}",
        refused.err
    );
}

/// A scenario for a server that is started elsewhere.
fn outside(port: u16, ready: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ url: 'http://127.0.0.1:{port}/v1/chat/completions', model: sim, api_key: sk-secret-key, \
         metrics: 'http://127.0.0.1:{port}/metrics', ready: {ready} }}\n\
         request: {{ max_tokens: 4 }}\ndataset: {{ kind: prompt, text: hi }}\nload: {{ concurrency: 1, requests: 3 }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1%, idle: 100%, stalled: 100% }}\n"
    )
}

#[test]
fn a_run_waits_until_the_server_is_ready() {
    let lab = Lab::new();
    let port = port();
    lab.file(
        "s.yaml",
        outside(
            port,
            "{ url: /health, models: [sim], metrics: 1, timeout: 60s }",
        ),
    );
    let run = lab
        .command(&["run", "s.yaml", "--output", "out"])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let mut server = lab.spawn(&["simulate", "--listen", &format!("127.0.0.1:{port}")]);
    let ended = run.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&ended.stderr);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{err}");
    assert!(
        err.contains("waiting until the target is ready: GET http://127.0.0.1:")
            && err.contains("/health: "),
        "{err}"
    );
    assert_eq!(lab.results()["cases"][0]["counts"]["ok"], 3);
}

#[test]
fn a_target_that_is_not_ready_in_time_ends_the_run_and_is_named() {
    let lab = Lab::new();
    let port = port();
    let mut server = lab.spawn(&["simulate", "--listen", &format!("127.0.0.1:{port}")]);
    let ready = "{ url: [/health, /late], models: [sim, other], metrics: 2, timeout: 2s }";
    lab.file("s.yaml", outside(port, ready));
    let ran = lab.llmscen(&["run", "s.yaml", "--output", "out"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(ran.code, 3, "{}", ran.err);
    for expected in [
        "the target was not ready after 2 s:",
        "/late: the server answered 404",
        "/v1/models does not list the model `other`",
        "1 of 2 workers answer at http://",
    ] {
        assert!(ran.err.contains(expected), "{expected}: {}", ran.err);
    }
    assert!(
        !ran.err.contains("model `sim`") && !ran.err.contains("sk-secret-key"),
        "{}",
        ran.err
    );
    for (ready, expected) in [
        ("{ timeout: 1s }", "`ready` has no condition"),
        ("health", "a URL, a path, or a list of them"),
        ("{ url: [] }", "a URL, a path, or a list of them"),
        ("{ metrics: 0 }", "from 1 to"),
    ] {
        lab.file("wrong.yaml", outside(port, ready));
        let refused = lab.llmscen(&["plan", "wrong.yaml"]).expect(2);
        assert!(refused.err.contains(expected), "{ready}: {}", refused.err);
    }
    let managed = outside(port, "/health").replace(
        "ready: /health",
        "ready: /health, server: { preset: simulator }",
    );
    lab.file("wrong.yaml", managed);
    let refused = lab.llmscen(&["plan", "wrong.yaml"]).expect(2);
    assert!(
        refused
            .err
            .contains("would be checked before the server starts"),
        "{}",
        refused.err
    );
}

/// The value of a counter on the metrics page of a simulator.
fn counter(port: u16, name: &str) -> u64 {
    let page = std::process::Command::new("curl")
        .args(["-s", &format!("http://127.0.0.1:{port}/metrics")])
        .output();
    let page = String::from_utf8(page.unwrap().stdout).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}

/// Two cases at a server: `max_tokens=1` meets its objective, `max_tokens=40` does not.
fn failing(target: &str, hooks: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ {target}, model: sim }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 1, requests: 60, warmup: 5 }}\n\
         matrix: {{ request.max_tokens: [1, 40] }}\nslo: [ \"output_tokens.p50 < 20\" ]\n{hooks}\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1%, cache: 100%, idle: 100%, stalled: 100% }}\n"
    )
}

#[test]
fn a_case_that_fails_is_sent_once_more_with_the_profiler_and_no_figure_changes() {
    let lab = Lab::new();
    let port = port();
    let address = format!("127.0.0.1:{port}");
    let mut simulator = lab.spawn(&[
        "simulate",
        "--listen",
        &address,
        "--set",
        "target.simulator.alpha=100us",
    ]);
    while std::net::TcpStream::connect(&address).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let target = format!("url: 'http://{address}/v1/chat/completions'");
    let counts = |lab: &Lab| {
        let results = lab.results();
        let cases = results["cases"].as_array().unwrap().iter();
        cases
            .map(|case| {
                let tokens = case["metrics"]["output_tokens"].clone();
                let verdict = case["slo"][0]["verdict"].clone();
                (case["counts"].clone(), tokens, verdict)
            })
            .collect::<Vec<_>>()
    };
    lab.run(&failing(&target, "")).expect(1);
    let plain = counts(&lab);
    let verdicts = plain
        .iter()
        .map(|(_, tokens, verdict)| (tokens["n"].clone(), verdict.clone()));
    assert_eq!(
        verdicts.collect::<Vec<_>>(),
        [(json!(60), json!("pass")), (json!(60), json!("fail"))]
    );
    assert_eq!(lab.results()["profiled"], json!([]));
    let hooks = "hooks: { on_fail: { before: [{ post: /start_profile }], after: [{ post: /stop_profile }] } }\n";
    let planned = lab.file("s.yaml", failing(&target, hooks));
    let planned = lab.llmscen(&["plan", planned.to_str().unwrap()]).expect(0);
    assert!(
        planned
            .out
            .contains("a case that fails is sent once more with the profiler (at most 3 cases)"),
        "{}",
        planned.out
    );
    let ran = lab.run(&failing(&target, hooks)).expect(1);
    let results = lab.results();
    assert_eq!(counts(&lab), plain);
    assert_eq!(
        results["profiled"],
        json!([{ "case": "max_tokens=40", "requests": 65, "folder": null, "failure": null }])
    );
    let profiles = ["profiles_total", "profiled_requests_total"];
    let profiles = profiles.map(|name| counter(port, &format!("simulator:{name}")));
    assert_eq!(profiles, [1, 65]);
    let sent = counter(
        port,
        "vllm:request_success_total{model_name=\"sim\",finished_reason=\"length\"}",
    );
    assert_eq!(sent, 2 * 2 * 65 + 65);
    let note = "`max_tokens=40` failed and was sent again with the profiler (65 requests): the profile is where the engine writes it. \
                This extra round is no part of any figure or verdict.";
    assert!(
        results["notes"].to_string().contains(note),
        "{}",
        results["notes"]
    );
    assert!(
        ran.err.contains("sending it again with the profiler"),
        "{}",
        ran.err
    );
    let names = std::fs::read_dir(lab.path().join("out")).unwrap();
    let names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".tmp"))
        .collect();
    assert!(names.is_empty(), "{names:?}");
    simulator.kill().unwrap();
    let _ = simulator.wait();
}

#[test]
fn failed_cases_of_a_managed_server_are_profiled_before_it_stops() {
    let lab = Lab::new();
    let target = format!(
        "url: 'http://127.0.0.1:{}/v1/chat/completions', server: {{ preset: simulator, args: {{ alpha: 100us }}, env: {{ VLLM_TORCH_PROFILER_DIR: /tmp/p }} }}",
        port()
    );
    let hooks = "hooks: { on_fail: { action: rerun_with_profile, max: 1 }, after_case: [{ run: 'echo $LLMSCEN_CASE $LLMSCEN_ROUND >> order.txt' }] }\n\
                 then: [{ run: 'echo then >> order.txt' }]\n";
    let scenario = failing(&target, hooks).replace("[1, 40]", "[1, 40, 50]");
    lab.run(&scenario).expect(1);
    let results = lab.results();
    assert_eq!(
        results["profiled"],
        json!([{ "case": "max_tokens=40", "requests": 65, "folder": "/tmp/p", "failure": null }])
    );
    assert_eq!(
        lab.text("order.txt"),
        "max_tokens=1 1\nmax_tokens=40 1\nmax_tokens=50 1\nthen\nmax_tokens=40 2\n"
    );
    let notes = results["notes"].to_string();
    assert!(
        notes.contains("`max_tokens=50` failed, but was not sent again with the profiler: `hooks.on_fail.max` is 1."),
        "{notes}"
    );
    assert!(!lab.path().join("out/server-2.log").exists(), "one start");
    assert_eq!(
        lab.json("out/manifest.json")["parts"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn a_continued_run_keeps_the_profiles_and_commands_of_its_finished_cases() {
    let lab = Lab::new();
    let address = format!("127.0.0.1:{}", port());
    let target = format!(
        "url: 'http://{address}/v1/chat/completions', \
         server: {{ command: 'llmscen simulate --listen {address}', ready: {{ url: 'http://{address}/health' }} }}"
    );
    let rest = format!(
        "request: {{ max_tokens: 40 }}\nhooks: {{ on_fail: {{ before: [{{ post: /start_profile }}], after: [{{ post: /stop_profile }}], max: 1 }} }}\n\
         then: [{{ name: score, run: 'echo $LLMSCEN_CASE >> then.txt' }}]\nvariants: {{ base: {{}}, late: {{ target.server.command: './late simulate --listen {address}' }} }}\n"
    );
    let scenario = failing(&target, &rest).replace("matrix: { request.max_tokens: [1, 40] }\n", "");
    lab.file("s.yaml", scenario);
    lab.llmscen(&["run", "s.yaml", "--output", "out"]).expect(3);
    let profiled = json!([{ "case": "base", "requests": 65, "folder": null, "failure": null }]);
    assert_eq!(lab.results()["profiled"], profiled);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_llmscen"), lab.path().join("late")).unwrap();
    lab.llmscen(&["run", "--continue", "out"]).expect(1);
    let results = lab.results();
    assert_eq!(results["profiled"], profiled);
    let commands = results["then"].as_array().unwrap();
    let commands: Vec<&str> = commands
        .iter()
        .map(|command| command["case"].as_str().unwrap())
        .collect();
    assert_eq!(commands, ["base", "late"]);
    assert_eq!(lab.text("then.txt"), "base\nlate\n", "each runs once");
    let notes = results["notes"].to_string();
    for note in [
        "`base` failed and was sent again with the profiler (65 requests)",
        "`late` failed, but was not sent again with the profiler: `hooks.on_fail.max` is 1.",
    ] {
        assert_eq!(notes.matches(note).count(), 1, "{note}: {notes}");
    }
}
