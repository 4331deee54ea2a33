//! Bad input: each mistake is answered before anything is sent, with exit code 2 or 3 and the words to mend it.

use crate::lab::*;
use std::fs;

const SIM: &str = "version: 1\nname: t\ntarget: { api: simulator }\nload: { concurrency: 1, requests: 1 }\n\
    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100% }\n";

/// The complaint about a scenario that must be refused with exit code 2.
fn refused(lab: &Lab, scenario: &str) -> String {
    lab.file("s.yaml", scenario);
    let ran = lab.llmscen(&["validate", "s.yaml"]).expect(2);
    assert_eq!(ran.out, "");
    lab.run(scenario).expect(2);
    assert!(
        !lab.path().join("out").exists(),
        "nothing may be written for a scenario that is wrong"
    );
    ran.err
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in:\n{text}");
    }
}

#[test]
fn an_empty_file() {
    says(&refused(&Lab::new(), ""), &["s.yaml", "empty"]);
    says(
        &refused(&Lab::new(), "# only a comment\n"),
        &["s.yaml", "empty"],
    );
}

#[test]
fn wrong_types_unknown_and_duplicate_keys_are_all_reported_at_once() {
    let text = "version: 1\nname: t\ntarget: { api: simulator }\ndataset: openqa\nload: { concurency: 4, requests: many }\nseed: [1]\nseed: 2\n";
    let said = refused(&Lab::new(), text);
    says(
        &said,
        &[
            "concurency",
            "concurrency",
            "s.yaml:5:9",
            "many",
            "s.yaml:6:7",
            "s.yaml:7:1",
            "duplicate key",
            "4 errors",
        ],
    );
}

#[test]
fn cyclic_extends() {
    let lab = Lab::new();
    lab.file("a.yaml", "extends: s.yaml\nname: a\n");
    says(
        &refused(&lab, &format!("extends: a.yaml\n{SIM}dataset: openqa\n")),
        &["extends", "s.yaml", "a.yaml"],
    );
}

#[test]
fn a_matrix_key_that_does_not_exist() {
    let said = refused(
        &Lab::new(),
        &format!("{SIM}dataset: openqa\nmatrix: {{ load.concurency: [1, 2] }}\n"),
    );
    says(&said, &["load.concurency", "load.concurrency", "s.yaml:7:"]);
}

#[test]
fn an_slo_on_what_does_not_exist_or_cannot() {
    let said = refused(
        &Lab::new(),
        &format!(
            "{SIM}dataset: {{ kind: prompt, text: x }}\nslo: [ \"ttfft.p99 < 1s\", \"ttft.p99 < 5 tok/s\" ]\n"
        ),
    );
    says(&said, &["ttfft", "ttft", "tok/s", "s.yaml:7:"]);
    let said = refused(
        &Lab::new(),
        &format!(
            "{SIM}dataset: {{ kind: prompt, text: x }}\nrequest: {{ stream: false }}\nslo: [ \"ttft.p99 < 1s\" ]\n"
        ),
    );
    says(&said, &["ttft", "stream"]);
}

#[test]
fn a_template_that_is_not_json() {
    let lab = Lab::new();
    lab.file("body.json", "{ \"model\": \"%m\", ");
    says(
        &refused(
            &lab,
            &format!(
                "{SIM}dataset: {{ kind: prompt, text: x }}\nrequest: {{ template: body.json }}\n"
            ),
        ),
        &["body.json"],
    );
}

#[test]
fn datasets_that_are_missing_empty_misshapen_or_not_utf8() {
    let lab = Lab::new();
    let with = |dataset: &str| format!("{SIM}dataset: {dataset}\n");
    says(
        &lab.run(&with("{ kind: line_by_line, path: nowhere.txt }"))
            .err,
        &["nowhere.txt"],
    );
    lab.file("empty.txt", "");
    says(
        &lab.run(&with("{ kind: line_by_line, path: empty.txt }"))
            .expect(3)
            .err,
        &["empty.txt", "empty"],
    );
    lab.file("shape.jsonl", "{\"question\": \"\"}\n{\"ask\": 1}\n");
    says(
        &lab.run(&with("{ kind: openqa, path: shape.jsonl }"))
            .expect(3)
            .err,
        &["shape.jsonl:2", "question", "1 of 2"],
    );
    lab.file("bytes.txt", b"good line\nbad \xff\xfe line\n");
    says(
        &lab.run(&with("{ kind: line_by_line, path: bytes.txt }"))
            .expect(3)
            .err,
        &["bytes.txt", "2", "UTF-8"],
    );
    lab.file("short.txt", "hi\n");
    let filtered = "{ kind: line_by_line, path: short.txt, prompt_tokens: { min: 500 } }";
    says(&lab.run(&with(filtered)).expect(3).err, &["short.txt"]);
    assert!(
        !lab.path().join("out").exists(),
        "no run folder for a run that could not begin"
    );
}

#[test]
fn a_row_that_does_not_fit_is_named_and_counted_and_the_run_goes_on() {
    let lab = Lab::new();
    lab.file("mixed.jsonl", "{\"question\": \"ok\"}\n{\"ask\": 1}\n");
    let ran = lab
        .run(&format!(
            "{SIM}dataset: {{ kind: openqa, path: mixed.jsonl }}\n"
        ))
        .expect(0);
    let note = "mixed.jsonl:2: the row has no `question` (fields: ask); the row was left out";
    says(&ran.err, &[note]);
    says(&lab.results()["notes"].to_string(), &[note]);
    let manifest: serde_json::Value = serde_json::from_str(&lab.text("out/manifest.json")).unwrap();
    assert_eq!(manifest["parts"][0]["rows_dropped"], 1);
}

#[test]
fn a_file_with_a_late_error_ends_the_run_there_with_its_results() {
    let lab = Lab::new();
    lab.file(
        "late.txt",
        [b"hi\n".repeat(1100), b"\xff\n".to_vec()].concat(),
    );
    let sim = SIM.replace(
        "concurrency: 1, requests: 1",
        "concurrency: 8, requests: 2000",
    );
    let ran = lab
        .run(&format!(
            "{sim}request: {{ max_tokens: 1 }}\ndataset: {{ kind: line_by_line, path: late.txt }}\n"
        ))
        .expect(3);
    says(&ran.err, &["late.txt is not UTF-8: line 1101, byte 3300"]);
    let results = lab.results();
    assert_eq!(results["cases"][0]["counts"]["ok"], 1100);
    assert_eq!(results["verdict"], "error");
}

#[test]
fn data_that_stops_coming_does_not_keep_a_timed_round_from_its_end() {
    let lab = Lab::new();
    let pipe = lab.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        let mut pipe = fs::OpenOptions::new().write(true).open(pipe).unwrap();
        std::io::Write::write_all(&mut pipe, &b"hi\n".repeat(1500)).unwrap();
        // The end of the data would end the round too.
        ended.recv_timeout(std::time::Duration::from_secs(60))
            == Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
    });
    let sim = SIM.replace("requests: 1", "duration: 1s");
    lab.run(&format!(
        "{sim}request: {{ max_tokens: 1 }}\ndataset: {{ kind: line_by_line, path: pipe }}\n"
    ))
    .expect(0);
    drop(done);
    assert!(
        writer.join().unwrap(),
        "the round ended before its data did"
    );
}

#[test]
fn an_output_folder_that_cannot_be_written() {
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        format!("{SIM}dataset: {{ kind: prompt, text: x }}\n"),
    );
    lab.file("blocked", "a file, not a folder");
    let ran = lab
        .llmscen(&["run", "s.yaml", "--output", "blocked/run"])
        .expect(3);
    says(&ran.err, &["blocked"]);
}

#[test]
fn an_output_folder_that_holds_another_run() {
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        format!("{SIM}dataset: {{ kind: prompt, text: x }}\n"),
    );
    lab.llmscen(&["run", "s.yaml", "--output", "out"]).expect(0);
    let before = lab.text("out/manifest.json");
    says(
        &lab.llmscen(&["run", "s.yaml", "--output", "out"])
            .expect(3)
            .err,
        &["out", "--force"],
    );
    assert_eq!(lab.text("out/manifest.json"), before);
    lab.llmscen(&["run", "s.yaml", "--output", "out", "--force"])
        .expect(0);
    assert_ne!(lab.text("out/manifest.json"), before);
}

#[test]
fn a_port_in_use() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    says(
        &Lab::new()
            .llmscen(&["simulate", "--listen", &address])
            .expect(3)
            .err,
        &[&address, "in use"],
    );
}

#[test]
fn a_dataset_that_must_be_downloaded_says_what_to_do_offline() {
    let lab = Lab::new();
    lab.file("s.yaml", format!("{SIM}dataset: longalpaca\n"));
    let output = lab
        .command(&["run", "s.yaml"])
        .env("LLMSCEN_HUB", "http://127.0.0.1:9")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    says(
        &String::from_utf8_lossy(&output.stderr),
        &["http://127.0.0.1:9", "LLMSCEN_HUB", "path"],
    );
}

#[test]
fn a_missing_file_and_a_wrong_command_line() {
    let lab = Lab::new();
    says(
        &lab.llmscen(&["run", "nowhere.yaml"]).expect(2).err,
        &["nowhere.yaml"],
    );
    says(&lab.llmscen(&["run"]).expect(2).err, &["Usage"]);
    says(&lab.llmscen(&["rum", "x"]).expect(2).err, &["run"]);
    fs::create_dir(lab.path().join("empty")).unwrap();
    says(
        &lab.llmscen(&["validate", "empty"]).expect(2).err,
        &["no *.yaml"],
    );
    lab.file(
        "s.yaml",
        format!("{SIM}dataset: {{ kind: prompt, text: x }}\n"),
    );
    says(
        &lab.llmscen(&["run", "s.yaml", "--set", "load.concurency=2"])
            .expect(2)
            .err,
        &["concurrency"],
    );
    says(
        &lab.llmscen(&["run", "s.yaml", "--only", "nothing"])
            .expect(2)
            .err,
        &["base"],
    );
    says(
        &lab.llmscen(&["report", "nowhere"]).expect(2).err,
        &["nowhere"],
    );
}

#[test]
fn a_secret_reaches_no_file_and_no_output() {
    let server = Server::start(|s, _| {
        send(
            s,
            &response(
                "401 Unauthorized",
                "application/json",
                r#"{"error":{"message":"bad key sk-topsecret-1"}}"#,
            ),
        )
    });
    let lab = Lab::new();
    let scenario = plain(&server.url(), 2).replace(
        "model: m",
        "model: m, api_key: \"${MY_KEY}\", headers: { X-Api-Key: \"${OTHER_KEY}\" }",
    );
    lab.file("s.yaml", scenario);
    let mut command = lab.command(&["run", "s.yaml", "--output", "out"]);
    let output = command
        .env("MY_KEY", "sk-topsecret-1")
        .env("OTHER_KEY", "topsecret-2")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let mut texts = vec![output.stdout, output.stderr];
    for entry in fs::read_dir(lab.path().join("out")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            texts.push(fs::read(path).unwrap());
        }
    }
    assert!(texts.len() > 6);
    for text in texts {
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains("topsecret"), "{text}");
    }
    says(&lab.text("out/plan.yaml"), &["${MY_KEY}", "${OTHER_KEY}"]);
}

#[test]
fn a_file_that_is_not_there_is_one_line_and_names_those_that_are() {
    let lab = Lab::new();
    let ran = lab.llmscen(&["run", "nope.yaml"]).expect(2);
    assert_eq!(
        ran.err,
        "error: scenario file not found: nope.yaml\n  help: write a first scenario with: llmscen init\n"
    );
    for name in ["scenarios/chat.yaml", "scenarios/sweep.yaml"] {
        lab.file(name, format!("{SIM}dataset: {{ kind: prompt, text: x }}\n"));
    }
    lab.file("compose.yaml", "services: {}\n");
    let ran = lab.llmscen(&["run", "nope.yaml"]).expect(2);
    let expected = "error: scenario file not found: nope.yaml\n  help: existing scenarios: scenarios/chat.yaml, scenarios/sweep.yaml\n";
    assert_eq!(ran.err, expected);
    let ran = lab.llmscen(&["validate", "chat.yml"]).expect(2);
    assert_eq!(
        ran.err,
        "error: scenario file not found: chat.yml\n  help: did you mean scenarios/chat.yaml?\n"
    );
    // The ending that all share makes no name similar.
    lab.file(
        "bom.yaml",
        format!("{SIM}dataset: {{ kind: prompt, text: x }}\n"),
    );
    let ran = lab.llmscen(&["run", "nope.yaml"]).expect(2);
    assert!(
        ran.err.ends_with(
            "help: existing scenarios: bom.yaml, scenarios/chat.yaml, scenarios/sweep.yaml\n"
        ),
        "{}",
        ran.err
    );
    let ran = lab.llmscen(&["simulate", "scenarios"]).expect(2);
    assert_eq!(
        ran.err,
        "error: cannot read `scenarios`: this is a folder, not a file\n"
    );
}

#[test]
fn files_that_are_no_scenario_are_one_error() {
    let lab = Lab::new();
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain(SIM.encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    lab.file("utf16.yaml", utf16);
    lab.file("rows.parquet", b"PAR1\0\0\0");
    lab.file(
        "README.md",
        "# A tool\n\nIt runs scenarios: many of them.\n\n- one\n",
    );
    lab.file("prose.md", "Only text.\n");
    lab.file(
        "results.json",
        "{\"schema\": \"llmscen/results/1\", \"cases\": []}",
    );
    lab.file("rows.json", "[1, 2]");
    for (name, message) in [
        (
            "utf16.yaml",
            "error: `utf16.yaml` is UTF-16 text, not UTF-8 text",
        ),
        (
            "rows.parquet",
            "error: `rows.parquet` is a binary file, not UTF-8 text",
        ),
        ("README.md", "error: README.md is not a scenario\n"),
        ("prose.md", "error: prose.md is not a scenario\n"),
        ("results.json", "error: results.json is not a scenario\n"),
        ("rows.json", "a scenario must be a mapping"),
    ] {
        let err = lab.llmscen(&["validate", name]).expect(2).err;
        assert!(err.contains(message), "{name}: {err}");
        assert_eq!(
            err.matches("error: ").count() + err.matches("  × ").count(),
            1,
            "{name}: {err}"
        );
    }
}

#[test]
fn a_scenario_comes_from_standard_input_as_json_or_from_windows() {
    let lab = Lab::new();
    let scenario = format!("{SIM}dataset: {{ kind: prompt, text: x }}\n");
    lab.file(
        "s.yaml",
        format!("\u{feff}{}", scenario.replace('\n', "\r\n")),
    );
    lab.llmscen(&["validate", "s.yaml"]).expect(0);
    let json = "{\"version\": 1, \"name\": \"t\", \"target\": {\"url\": \"simulator\"}, \"dataset\": \"openqa\", \"load\": {\"concurrency\": 1, \"requests\": 1}}";
    lab.file("s.json", json);
    lab.llmscen(&["validate", "s.json"]).expect(0);
    let input = fs::File::open(lab.file("t.yaml", &scenario)).unwrap();
    let output = lab
        .command(&["validate", "-"])
        .stdin(input)
        .output()
        .unwrap();
    Ran::of(output).expect(0);
}

#[test]
fn an_option_that_is_a_field_of_the_scenario_is_explained() {
    let lab = Lab::new();
    let ran = lab
        .llmscen(&["run", "x.yaml", "--concurrency", "4"])
        .expect(2);
    let expected = "error: unknown option --concurrency\n  help: override scenario fields with --set: llmscen run x.yaml --set load.concurrency=4\n";
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", expected));
}
