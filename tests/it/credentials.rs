//! Keys that a command prints, and signed requests.

use crate::lab::*;
use crate::moto;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A server that keeps the `authorization` of each POST. `answer` gets the number of the request, from 0, and its header.
struct KeyServer {
    addr: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl KeyServer {
    fn start(answer: impl Fn(usize, &str) -> Vec<u8> + Send + Sync + 'static) -> KeyServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = KeyServer {
            addr: listener.local_addr().unwrap(),
            seen: Arc::default(),
        };
        let (answer, seen) = (Arc::new(answer), server.seen.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, seen) = (answer.clone(), seen.clone());
                std::thread::spawn(move || serve(stream, &*answer, &seen));
            }
        });
        server
    }

    fn keys(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    fn scenario(&self, api_key: &str, requests: u32) -> String {
        let url = format!("http://{}/v1/chat/completions", self.addr);
        plain(&url, requests).replace("model: m,", &format!("model: m, api_key: {api_key},"))
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &dyn Fn(usize, &str) -> Vec<u8>,
    seen: &Mutex<Vec<String>>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut length, mut key, mut is_post) = (0, String::new(), false);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            is_post |= line.starts_with("POST ");
            if let Some((name, value)) = line.trim().split_once(": ") {
                match name.to_lowercase().as_str() {
                    "content-length" => length = value.parse().unwrap(),
                    "authorization" => key = value.to_owned(),
                    _ => {}
                }
            }
            if line == "\r\n" {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        let bytes = if is_post {
            let number = {
                let mut seen = seen.lock().unwrap();
                seen.push(key.clone());
                seen.len() - 1
            };
            answer(number, &key)
        } else {
            response("404 Not Found", "application/json", "{}")
        };
        if !send(&mut stream, &bytes) {
            return;
        }
    }
}

fn answer_ok() -> Vec<u8> {
    stream(&[TOKEN, FINISH, "[DONE]"], true)
}

/// A command that prints `key-secret-N` on its Nth call, and leaves N lines in `calls.txt`.
fn counting(lab: &Lab) -> String {
    lab.file(
        "print-key.sh",
        "echo call >> calls.txt\necho key-secret-$(wc -l < calls.txt | tr -d ' ')\n",
    );
    "sh print-key.sh".to_owned()
}

fn calls(folder: &std::path::Path) -> usize {
    std::fs::read_to_string(folder.join("calls.txt"))
        .unwrap_or_default()
        .lines()
        .count()
}

/// The text of all files of the run folder that are text.
fn all_text(lab: &Lab) -> String {
    let mut text = String::new();
    let mut folders = vec![lab.path().join("out")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                text += &String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap());
            }
        }
    }
    text
}

#[test]
fn a_command_prints_the_key_again_while_requests_are_sent() {
    let lab = Lab::new();
    let folder = lab.path().to_owned();
    // Each answer waits for the call after the next one, so that the next request has a newer key.
    let server = KeyServer::start(move |number, _| {
        while calls(&folder) < number + 3 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        answer_ok()
    });
    let command = counting(&lab);
    let key = format!("{{ command: {command}, every: 20ms }}");
    let ran = lab.run(&server.scenario(&key, 5)).expect(0);
    let keys = server.keys();
    assert_eq!(keys.len(), 5);
    for (number, key) in keys.iter().enumerate() {
        let printed: usize = key
            .strip_prefix("Bearer key-secret-")
            .and_then(|key| key.parse().ok())
            .unwrap_or_else(|| panic!("{key}"));
        assert!(printed > number, "{keys:?}");
    }
    assert_eq!(lab.results()["cases"][0]["counts"]["ok"], 5);
    let notes = lab.json("out/manifest.json")["notes"].to_string();
    assert!(!notes.contains("print-key"), "{notes}");
    assert!(!format!("{}{}{}", ran.out, ran.err, all_text(&lab)).contains("key-secret"));
}

#[test]
fn an_expired_key_is_renewed_at_once_and_no_key_is_stored() {
    let lab = Lab::new();
    let server = KeyServer::start(|number, key| {
        if number < 3 || key == "Bearer key-secret-2" {
            let echo = TOKEN.replace("\"hi\"", &format!("\"you sent {key}\""));
            let finish = FINISH.replace("stop", &key.replace("Bearer ", ""));
            return stream(&[&echo, &finish, "[DONE]"], true);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let body = json!({ "error": { "message": format!("expired: {key}") } });
        response("401 Unauthorized", "application/json", &body.to_string())
    });
    let command = counting(&lab);
    let scenario = server.scenario(&format!("{{ command: {command} }}"), 60)
        + "report: { bodies: all, store: [sqlite, hlog] }\n";
    let ran = lab.run(&scenario).expect(0);
    assert_eq!(
        calls(lab.path()),
        2,
        "the first call, and one after HTTP 401"
    );
    let keys = server.keys();
    let refused = keys[3..]
        .iter()
        .filter(|key| *key == "Bearer key-secret-1")
        .count();
    assert!(refused > 0 && refused < 57, "{refused}");
    let results = lab.results();
    let case = &results["cases"][0];
    assert_eq!(case["counts"]["ok"], 60 - refused);
    let failures = case["failures"].to_string();
    assert!(
        failures.contains("expired: Bearer [redacted]"),
        "{failures}"
    );
    let notes = lab.json("out/manifest.json")["notes"].to_string();
    assert!(
        notes.contains(
            "`sh print-key.sh` was called again 1 time because the server refused its key (HTTP 401)."
        ),
        "{notes}"
    );
    let bodies = lab.llmscen(&["bodies", "out", "--seq", "0"]).expect(0);
    assert!(bodies.out.contains("[redacted]"), "{}", bodies.out);
    for text in [ran.out, ran.err, bodies.out, all_text(&lab)] {
        assert!(!text.contains("key-secret"), "{text}");
    }
}

#[test]
fn a_failed_renewal_keeps_the_last_key_and_is_a_note() {
    let lab = Lab::new();
    let folder = lab.path().to_owned();
    let server = KeyServer::start(move |number, _| {
        while number == 1 && calls(&folder) < 4 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        answer_ok()
    });
    lab.file(
        "print-key.sh",
        "echo call >> calls.txt\n[ $(wc -l < calls.txt) = 1 ] || { echo 'no login for key-secret-1' >&2; exit 7; }\necho key-secret-1\n",
    );
    let key = "{ command: [sh, print-key.sh], every: 20ms }";
    lab.run(&server.scenario(key, 3)).expect(0);
    assert_eq!(server.keys(), vec!["Bearer key-secret-1"; 3]);
    let report = lab.text("out/report.md");
    let note = report
        .lines()
        .find(|line| line.contains("print-key.sh"))
        .unwrap_or_else(|| panic!("{report}"));
    assert!(
        note.contains("times during the run, and requests had the last key. Last failure: exit status 7: no login for \\[redacted\\]"),
        "{note}"
    );
}

#[test]
fn a_command_that_fails_at_first_ends_the_run_before_a_request() {
    let lab = Lab::new();
    let server = KeyServer::start(|_, _| answer_ok());
    for (command, why) in [
        (
            "\"sh -c 'echo no account >&2; exit 4'\"",
            "`sh -c 'echo no account >&2; exit 4'`: exit status 4: no account",
        ),
        ("[\"true\"]", "`true`: it printed nothing"),
        (
            "no-such-program",
            "`no-such-program`: cannot run it: No such file",
        ),
    ] {
        let ran = lab
            .run(&server.scenario(&format!("{{ command: {command} }}"), 3))
            .expect(3);
        assert!(
            ran.err.contains("cannot get the key of the target: ") && ran.err.contains(why),
            "{}",
            ran.err
        );
    }
    assert_eq!(server.keys().len(), 0);
}

#[test]
fn only_what_sends_requests_runs_the_command() {
    let lab = Lab::new();
    let server = KeyServer::start(|_, _| answer_ok());
    let command = counting(&lab);
    lab.file(
        "s.yaml",
        server.scenario(&format!("{{ command: {command} }}"), 3),
    );
    lab.llmscen(&["validate", "s.yaml"]).expect(0);
    let plan = lab.llmscen(&["plan", "s.yaml"]).expect(0);
    assert!(!plan.out.contains("key-secret"), "{}", plan.out);
    assert_eq!(calls(lab.path()), 0);
    let tried = lab.llmscen(&["try", "s.yaml"]).expect(0);
    assert_eq!(calls(lab.path()), 1);
    assert_eq!(server.keys(), ["Bearer key-secret-1"]);
    assert!(
        tried.out.contains("authorization: Bearer [redacted]") && !tried.out.contains("key-secret"),
        "{}",
        tried.out
    );
}

#[test]
fn hooks_and_cases_share_the_current_key() {
    let lab = Lab::new();
    let server = KeyServer::start(|_, _| answer_ok());
    let command = counting(&lab);
    let scenario = server.scenario(&format!("{{ command: {command} }}"), 2)
        + "hooks: { before_case: [ { post: /reset } ] }\nmatrix: { request.max_tokens: [1, 2] }\n";
    lab.run(&scenario).expect(0);
    assert_eq!(calls(lab.path()), 1);
    assert_eq!(server.keys(), vec!["Bearer key-secret-1"; 6]);
}

/// A server that checks signatures with botocore; killed when dropped.
struct AwsWitness {
    child: Child,
    port: String,
}

impl AwsWitness {
    /// None if botocore is not installed, which is printed.
    fn start(lab: &Lab) -> Option<AwsWitness> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/aws_witness.py");
        let mut child = Command::new(moto::python()?)
            .arg(script)
            .arg(lab.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the witness starts");
        let mut port = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut port).unwrap();
        let port = port.trim().to_owned();
        Some(AwsWitness { child, port })
    }

    fn scenario(&self, path: &str, aws: &str, requests: u32) -> String {
        plain(&format!("http://127.0.0.1:{}{path}", self.port), requests).replace(
            "model: m,",
            &format!("model: m, aws: {{ service: bedrock, {aws} }},"),
        )
    }
}

impl Drop for AwsWitness {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const AWS_ENV: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
    ("AWS_SECRET_ACCESS_KEY", "secret/of+example"),
    ("AWS_SESSION_TOKEN", "session//token+of/example=="),
];

fn run_with(lab: &Lab, scenario: &str, env: &[(&str, &str)]) -> Ran {
    lab.file("s.yaml", scenario);
    let mut command = lab.command(&["run", "s.yaml", "--output", "out", "--force"]);
    Ran::of(command.envs(env.iter().copied()).output().unwrap())
}

/// What the witness got.
fn seen(lab: &Lab) -> Vec<Value> {
    let text = lab.text("seen.jsonl");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn requests_retries_and_hooks_have_signatures_that_botocore_computes_too() {
    let lab = Lab::new();
    let Some(witness) = AwsWitness::start(&lab) else {
        return;
    };
    // The colon of a model id is escaped, and the wait lets the date of the second attempt differ.
    let scenario = witness.scenario("/model/busy-1:0/v1/chat/completions?b=2&a=1", "region: us-east-1", 3)
        .replace("model: m,", "model: m, headers: { X-Team: infra }, request_id: X-Request-Id, ready: { models: [m] },")
        + "request: { retry: { on: [429], wait: 2200ms } }\n\
           hooks: { before_case: [ { post: /reset, body: { all: true } } ] }\n\
           report: { bodies: all, store: [sqlite, hlog] }\n";
    let ran = run_with(&lab, &scenario, &AWS_ENV).expect(0);
    let seen = seen(&lab);
    for entry in &seen {
        assert_eq!(entry["fault"], Value::Null, "{entry}");
        assert_eq!(entry["token"], AWS_ENV[2].1, "{entry}");
        let authorization = entry["authorization"].as_str().unwrap();
        let scope = format!(
            "/{}/us-east-1/bedrock/aws4_request",
            &entry["date"].as_str().unwrap()[..8]
        );
        assert!(authorization.contains(&scope), "{entry}");
    }
    let of = |path: &str| {
        seen.iter()
            .filter(|entry| entry["path"] == path)
            .collect::<Vec<_>>()
    };
    let calls = of("/model/busy-1%3A0/v1/chat/completions?b=2&a=1");
    assert_eq!(calls.len(), 4, "{seen:?}");
    assert!(calls.iter().all(|call| {
        call["authorization"]
            .as_str()
            .unwrap()
            .contains("content-type;host;x-amz-date;x-amz-security-token;x-team")
    }));
    assert_eq!(calls[0]["body"], calls[1]["body"]);
    let dates: HashSet<&str> = calls
        .iter()
        .map(|call| call["date"].as_str().unwrap())
        .collect();
    assert!(dates.len() > 1, "{seen:?}");
    assert_eq!(of("/reset").len(), 1);
    assert!(!of("/model/busy-1:0/v1/models").is_empty(), "{seen:?}");
    assert_eq!(lab.results()["cases"][0]["counts"]["ok"], 3);
    let bodies = lab.llmscen(&["bodies", "out", "--seq", "0"]).expect(0);
    let mut command = lab.command(&["try", "s.yaml"]);
    let tried = Ran::of(command.envs(AWS_ENV).output().unwrap()).expect(0);
    assert!(
        tried
            .out
            .contains("authorization: AWS4-HMAC-SHA256 [redacted]")
            && tried.out.contains("x-amz-security-token: [redacted]"),
        "{}",
        tried.out
    );
    for text in [ran.out, ran.err, bodies.out, tried.out, all_text(&lab)] {
        for (name, secret) in AWS_ENV {
            assert!(!text.contains(secret), "{name}: {text}");
        }
        assert!(!text.contains("Signature="), "{text}");
    }
}

#[test]
fn a_wrong_secret_is_refused_by_botocore_and_no_file_has_the_token() {
    let lab = Lab::new();
    let Some(witness) = AwsWitness::start(&lab) else {
        return;
    };
    let scenario = witness.scenario("/v1/chat/completions", "region: us-east-1", 2);
    let mut env = AWS_ENV;
    env[1].1 = "secret/of+another";
    let ran = run_with(&lab, &scenario, &env);
    assert_ne!(ran.code, 0);
    let seen = seen(&lab);
    assert!(
        seen.iter().all(|entry| entry["fault"]
            .as_str()
            .is_some_and(|fault| fault.starts_with("signature of"))),
        "{seen:?}"
    );
    let printed = format!("{}{}", ran.out, ran.err);
    assert!(
        printed.contains("AWS refused the signature or its permissions"),
        "{printed}"
    );
    for (name, secret) in env {
        assert!(
            !format!("{printed}{}", all_text(&lab)).contains(secret),
            "{name}"
        );
    }
}

#[test]
fn expired_credentials_of_a_profile_are_read_again() {
    let lab = Lab::new();
    let Some(witness) = AwsWitness::start(&lab) else {
        return;
    };
    let profile = |id: &str, secret: &str| {
        format!("[dev]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n")
    };
    lab.file(".aws/credentials", profile("AKIDOLD", "secret-of-old"));
    lab.file(".aws/config", "[profile dev]\nregion = eu-west-1\n");
    lab.file("renewed", profile("AKIDNEW", "secret-of-new"));
    let scenario = witness.scenario("/v1/chat/completions", "profile: dev", 60);
    run_with(&lab, &scenario, &[]).expect(0);
    let seen = seen(&lab);
    assert!(
        seen.iter().all(|entry| entry["fault"] == Value::Null),
        "{seen:?}"
    );
    let last = seen.last().unwrap()["authorization"].as_str().unwrap();
    assert!(
        last.contains("AKIDNEW/") && last.contains("/eu-west-1/"),
        "{last}"
    );
    let notes = lab.json("out/manifest.json")["notes"].to_string();
    assert!(
        notes.contains(
            "The credentials of AWS were read again 1 time because the server refused a signature (HTTP 401 or 403)."
        ),
        "{notes}"
    );
    assert!(!all_text(&lab).contains("AKID"));
}

#[test]
fn credentials_are_needed_to_send_but_not_to_plan() {
    let lab = Lab::new();
    let server = KeyServer::start(|_, _| answer_ok());
    let scenario = server
        .scenario("x", 1)
        .replace("api_key: x", "aws: { service: bedrock }");
    let ran = lab.run(&scenario).expect(3);
    let home = lab.path().display();
    assert!(
        ran.err.contains(&format!(
            "cannot sign requests: no credentials of AWS: the environment has no AWS_ACCESS_KEY_ID, and there is no \
             profile `default` in {home}/.aws/credentials and {home}/.aws/config"
        )),
        "{}",
        ran.err
    );
    assert_eq!(server.keys().len(), 0);
    lab.llmscen(&["validate", "s.yaml"]).expect(0);
    lab.llmscen(&["plan", "s.yaml"]).expect(0);
    lab.file(
        ".aws/config",
        "[default]\nregion = us-east-1\ncredential_process = sh print-keys.sh\n",
    );
    lab.file("print-keys.sh", "echo '{ \"Version\": 1, \"AccessKeyId\": \"AKIDPROCESS\", \"SecretAccessKey\": \"s3cret\" }'\n");
    lab.run(&scenario).expect(0);
    assert!(
        server.keys()[0].starts_with("AWS4-HMAC-SHA256 Credential=AKIDPROCESS/"),
        "{:?}",
        server.keys()
    );
    lab.file("print-keys.sh", "echo no session >&2; exit 2\n");
    let ran = lab.run(&scenario).expect(3);
    assert!(
        ran.err.contains(
            "cannot sign requests: credential_process `sh print-keys.sh`: exit status 2: no session"
        ),
        "{}",
        ran.err
    );
}
