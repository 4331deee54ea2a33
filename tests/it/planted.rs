//! Secrets in all places of a scenario, and a server that echoes them: no output of any command contains one.

use crate::lab::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use polars::prelude::{DataType, ParquetReader, SerReader};
use rusqlite::Connection;
use rusqlite::types::Value as Cell;
use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variables and their values.
const ENV: [(&str, &str); 11] = [
    ("KEY", "key-\"planted\"/0"),
    ("TEAM", "team-planted-1"),
    ("URL_PASS", "pass-planted-2"),
    ("SIG", "sig-planted-3"),
    ("PAGE_PASS", "page-planted-4"),
    ("PAGE_HEADER", "pagehead-planted-5"),
    ("TENANT", "tenant-planted-6 & <co>"),
    ("PIN", "7700771234"),
    ("PROMPT", "prompt-planted-8"),
    ("SYSTEM", "system-planted-9"),
    ("LABEL", "label-planted-10"),
];
/// Written in the scenario itself.
const WRITTEN: [&str; 5] = [
    "user-planted-11",
    "query-planted-12",
    "literal-planted-13",
    "pageuser-planted-14",
    "pagequery-planted-15",
];
/// Only in the environment of llmscen.
const PROXY: &str = "proxy-planted-16";
const MODEL: &str = "qwen2.5-7b-instruct-planted";

fn planted() -> Vec<String> {
    let own = ENV
        .iter()
        .map(|(_, value)| *value)
        .chain(WRITTEN)
        .chain([PROXY])
        .map(str::to_owned);
    let pairs = [
        "user-planted-11:pass-planted-2",
        "pageuser-planted-14:page-planted-4",
        "pu:proxy-planted-16",
    ];
    own.chain(pairs.map(|pair| STANDARD.encode(pair))).collect()
}

/// Everything that must not be found: the secrets, and how JSON, HTML and URLs spell them.
fn needles() -> Vec<String> {
    let mut all = planted();
    all.extend(
        [
            "tenant-planted-6",
            "key-\\\"planted",
            "key-&quot;planted",
            "key-%22planted",
            "planted\\\"/0",
        ]
        .map(str::to_owned),
    );
    all
}

#[track_caller]
fn clean(place: &str, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    for needle in needles() {
        let Some(at) = text.find(&needle) else {
            continue;
        };
        let from = (0..=at.saturating_sub(60))
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        panic!(
            "{needle} in {place}: …{}",
            text[from..].chars().take(160).collect::<String>()
        );
    }
}

/// Every second response is an error; all of them contain every secret.
fn parrot() -> Server {
    let all = planted();
    Server::start(move |stream, number| {
        let words = serde_json::json!(all.join(" ")).to_string();
        let plain: Vec<&String> = all.iter().filter(|text| !text.contains('"')).collect();
        let head: String = plain
            .iter()
            .enumerate()
            .map(|(at, text)| format!("x-echo-{at}: {text}\r\n"))
            .collect();
        let with = |bytes: Vec<u8>| {
            String::from_utf8(bytes)
                .unwrap()
                .replacen("\r\n", &format!("\r\n{head}"), 1)
        };
        if number % 3 == 1 {
            let body = format!("{{\"error\": {{\"message\": {words}}}}}");
            return send(
                stream,
                with(response("400 Bad Request", "application/json", &body)).as_bytes(),
            );
        }
        let token = format!(
            r#"{{"id":{words},"choices":[{{"index":0,"delta":{{"content":{words}}},"finish_reason":null}}]}}"#
        );
        let finish = format!(
            r#"{{"id":"r","choices":[{{"index":0,"delta":{{}},"finish_reason":{words}}}]}}"#
        );
        send(
            stream,
            with(crate::lab::stream(
                &[&token, &token, &finish, "[DONE]"],
                true,
            ))
            .as_bytes(),
        )
    })
}

/// A /metrics endpoint whose names and labels contain every secret.
fn page() -> Server {
    let label = planted()
        .join(" ")
        .replace('\\', "\\\\")
        .replace('"', "\\\"");
    Server::start(move |stream, number| {
        let text = format!(
            "# TYPE odd gauge\nodd{{who=\"{label}\"}} {number}\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{model_name=\"{label}\"}} {number}\n"
        );
        send(
            stream,
            &response("200 OK", "text/plain; version=0.0.4", &text),
        )
    })
}

fn scenario(page: &Server) -> String {
    format!(
        "version: 1\nname: planted-run\ntarget:\n  url: \"http://user-planted-11:${{URL_PASS}}@model.invalid/v1/chat/completions?session=query-planted-12&sig=${{SIG}}\"\n  \
         model: \"${{MODEL}}\"\n  api_key: \"${{KEY}}\"\n  headers: {{ X-Team: \"${{TEAM}}\", X-Literal: literal-planted-13 }}\n  \
         metrics: {{ url: \"http://pageuser-planted-14:${{PAGE_PASS}}@{}/metrics?access=pagequery-planted-15\", interval: 50ms, headers: {{ X-Page: \"${{PAGE_HEADER}}\" }} }}\n  \
         timeouts: {{ connect: 2s, read: 5s, total: 9s }}\n\
         dataset: {{ kind: prompt, text: \"hello ${{PROMPT}}\", system: \"be ${{SYSTEM}}\" }}\n\
         request: {{ max_tokens: 8, extra: {{ metadata: {{ tenant: \"${{TENANT}}\", pin: \"${{PIN}}\", at: \"x ${{TENANT}} y\" }} }} }}\n\
         matrix: {{ request.extra.label: [plain, \"${{LABEL}}\"] }}\n\
         load: {{ concurrency: 2, requests: 12 }}\nslo: [ttft.p50 < 10s, error_rate < 90%]\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n\
         report: {{ formats: [md, html, json, csv, junit], store: [sqlite, hlog], bodies: all, compat: [evalscope, vllm, aiperf, guidellm, lmdeploy, llm-d, inferencex] }}\n",
        page.addr
    )
}

fn equip(command: &mut Command, proxy: &Server) {
    command
        .envs(ENV)
        .env("MODEL", MODEL)
        .env("http_proxy", format!("http://pu:{PROXY}@{}", proxy.addr));
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Every text in a file, those in databases, compressed bodies and columns among them.
fn texts(path: &Path) -> Vec<u8> {
    let mut all = std::fs::read(path).unwrap();
    match path.extension().and_then(|end| end.to_str()) {
        Some("parquet") => {
            let frame = ParquetReader::new(Cursor::new(all.clone()))
                .finish()
                .unwrap();
            for column in frame
                .columns()
                .iter()
                .filter(|column| column.dtype() == &DataType::String)
            {
                let column = column.as_materialized_series().str().unwrap().clone();
                column
                    .iter()
                    .flatten()
                    .for_each(|text| all.extend(format!("{text}\n").bytes()));
            }
        }
        Some("db") => {
            let own = Connection::open(path).unwrap();
            let mut tables = own
                .prepare("SELECT name FROM sqlite_master WHERE type = 'table'")
                .unwrap();
            let names: Vec<String> = tables
                .query_map([], |row| row.get(0))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            for name in names {
                let mut table = own.prepare(&format!("SELECT * FROM {name}")).unwrap();
                let columns = table.column_count();
                let mut rows = table.query([]).unwrap();
                while let Some(row) = rows.next().unwrap() {
                    (0..columns).for_each(|at| match row.get::<_, Cell>(at).unwrap() {
                        Cell::Text(text) => all.extend(format!("{text}\n").bytes()),
                        Cell::Blob(bytes) => {
                            drop(ZlibDecoder::new(bytes.as_slice()).read_to_end(&mut all))
                        }
                        _ => {}
                    });
                }
            }
        }
        _ => {}
    }
    all
}

#[track_caller]
fn clean_folder(folder: &Path) {
    files(folder)
        .iter()
        .for_each(|path| clean(&path.display().to_string(), &texts(path)));
}

fn get(addr: SocketAddr) -> Option<String> {
    let mut socket = TcpStream::connect(addr).ok()?;
    write!(socket, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok().map(|_| answer)
}

#[test]
fn no_output_of_any_command_contains_a_planted_secret() {
    let (lab, proxy, page) = (Lab::new(), parrot(), page());
    lab.file("s.yaml", scenario(&page));
    let said = |args: &[&str], set: bool| {
        let mut command = lab.command(args);
        if set {
            equip(&mut command, &proxy);
        }
        let ran = Ran::of(command.output().unwrap());
        clean(&format!("stdout of {args:?}"), ran.out.as_bytes());
        clean(&format!("stderr of {args:?}"), ran.err.as_bytes());
        ran
    };
    let args = [
        "run",
        "s.yaml",
        "--output",
        "out",
        "--progress",
        "json",
        "--metrics-addr",
        "127.0.0.1:0",
        "--metrics-linger",
        "20",
    ];
    let mut command = lab.command(&args);
    equip(&mut command, &proxy);
    let mut child = command
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_STEP_SUMMARY", lab.path().join("step.md"))
        .spawn()
        .unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut heard = Vec::new();
    let addr = loop {
        let line = err.next().expect("the port is named");
        let found = line
            .split_once("http://127.0.0.1:")
            .and_then(|(_, rest)| rest.split_once("/metrics"));
        let addr = found.map(|(port, _)| SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap())));
        heard.push(line);
        if let Some(addr) = addr {
            break addr;
        }
    };
    for line in err.by_ref() {
        let over = line.contains("\"run_ended\"");
        heard.push(line);
        if over {
            break;
        }
    }
    let scraped = get(addr).unwrap();
    heard.extend(err);
    let mut out = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    assert_eq!(
        child.wait().unwrap().code(),
        Some(0),
        "{}",
        heard.join("\n")
    );
    clean("JSON events", heard.join("\n").as_bytes());
    heard.iter().for_each(|line| {
        drop(serde_json::from_str::<serde_json::Value>(line).expect("each line is JSON"))
    });
    clean("stdout", out.as_bytes());
    clean("metrics endpoint", scraped.as_bytes());
    clean("step summary", lab.text("step.md").as_bytes());
    clean_folder(&lab.path().join("out"));

    // Other text stays, and redacted output is still well-formed.
    let (report, plan) = (lab.text("out/report.md"), lab.text("out/plan.yaml"));
    assert!(report.contains(MODEL) || lab.text("out/plan.yaml").contains(MODEL));
    assert!(
        scraped.contains(MODEL) && report.contains("planted-run"),
        "{report}"
    );
    assert!(report.contains("[redacted]"), "{report}");
    for kept in [
        "tenant: ${TENANT}",
        "pin: ${PIN}",
        "x ${TENANT} y",
        "hello ${PROMPT}",
        "be ${SYSTEM}",
        "${LABEL}",
    ] {
        assert!(plan.contains(kept), "{kept} not in {plan}");
    }
    let ids: Vec<String> = lab.results()["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids, ["label=plain", "label=${LABEL}"]);
    for path in files(&lab.path().join("out"))
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
    {
        let text = std::fs::read_to_string(path).unwrap();
        serde_json::from_str::<serde_json::Value>(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    assert_eq!(lab.results()["cases"][0]["counts"]["scheduled"], 12);

    // Bodies are readable by their owner only.
    assert_eq!(
        std::fs::metadata(lab.path().join("out/requests.db"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );

    said(&["try", "s.yaml"], true);
    said(&["plan", "s.yaml"], true).expect(0);
    said(&["validate", "s.yaml"], true).expect(0);
    for set in [true, false] {
        said(
            &[
                "report",
                "out",
                "--format",
                if set { "json" } else { "csv" },
                "--summary",
                "again.md",
            ],
            set,
        );
        clean_folder(&lab.path().join("out"));
        clean("summary", lab.text("again.md").as_bytes());
    }
    said(&["bodies", "out"], false).expect(0);
    said(&["bodies", "out", "--seq", "1"], false).expect(0);
    said(&["compare", "out", "out"], false);
    said(&["baseline", "out"], false);
}

#[test]
fn a_full_screen_shows_no_planted_secret() {
    let (lab, proxy, page) = (Lab::new(), parrot(), page());
    lab.file(
        "s.yaml",
        scenario(&page).replace("formats: [md, html, json, csv, junit]", "formats: [json]"),
    );
    let line = format!(
        "{} run s.yaml --output out --live",
        env!("CARGO_BIN_EXE_llmscen")
    );
    let mut script = Command::new("script");
    script
        .args(["-qefc", &line, "/dev/null"])
        .current_dir(lab.path())
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh");
    equip(&mut script, &proxy);
    let Ok(child) = script
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
    else {
        return;
    };
    let shown = child.wait_with_output().unwrap();
    assert!(
        lab.path().join("out/results.json").exists(),
        "{}",
        String::from_utf8_lossy(&shown.stdout)
    );
    clean("the screen", &shown.stdout);
}

#[test]
fn the_log_of_a_server_loses_secrets_and_is_its_owners() {
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        "version: 1\nname: served\ntarget:\n  url: http://127.0.0.1:9/v1/chat/completions\n  model: m\n  server:\n    \
         command: [sh, -c, \"echo variable $OWN; echo key $1; exit 3\", sh, \"--api-key=${TEAM}\"]\n    ready: { log: never }\n    env: { OWN: \"${TENANT}\" }\n\
         dataset: { kind: prompt, text: x }\nload: { concurrency: 1, requests: 1 }\n",
    );
    let mut command = lab.command(&["run", "s.yaml", "--output", "out"]);
    let ran = Ran::of(command.envs(ENV).output().unwrap());
    assert_ne!(ran.code, 0);
    clean("stderr", ran.err.as_bytes());
    clean("stdout", ran.out.as_bytes());
    clean_folder(&lab.path().join("out"));
    assert_eq!(
        lab.text("out/server.log"),
        "variable [redacted]\nkey --api-key=[redacted]\n"
    );
    assert_eq!(
        std::fs::metadata(lab.path().join("out/server.log"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
}
