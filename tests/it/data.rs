//! Files for other programs: the database, its bodies, the histograms, and the examples in docs/reference/output-files.md.

use crate::lab::*;
use flate2::read::ZlibDecoder;
use rusqlite::Connection;
use rusqlite::types::Value as Cell;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PAGE: &str = include_str!("../../docs/reference/output-files.md");
const QUERIES: &str = include_str!("../../docs/how-to/query-results.md");
const METRICS: &str = include_str!("../../docs/reference/metrics.md");
const KEY: &str = "sk-very\"secret\"key";

/// Two cases in two rounds on the simulator, a tenth of whose requests fail; 30 requests each.
const SWEPT: &str = "version: 1\nname: t\nrounds: 2\n\
    target: { api: simulator, api_key: \"${KEY}\", headers: { x-team: \"${TEAM}\" }, simulator: { alpha: 1ms, faults: { error: 10% } } }\n\
    request: { max_tokens: 8 }\ndataset: { kind: prompt, text: hello }\n\
    load: { requests: 30, warmup: 2 }\nmatrix: { load.concurrency: [2, 3] }\n\
    slo: [ttft.p50 < 10s, error_rate < 100%]\n\
    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n\
    report: { formats: [md], store: [sqlite, hlog], bodies: all }\n";

fn run(lab: &Lab, scenario: &str) -> Ran {
    lab.file("s.yaml", scenario);
    Ran::of(
        lab.command(&["run", "s.yaml", "--output", "out", "--force"])
            .env("KEY", KEY)
            .env("TEAM", "team-secret")
            .output()
            .unwrap(),
    )
}

fn report(lab: &Lab) -> Ran {
    Ran::of(
        lab.command(&["report", "out"])
            .env("KEY", KEY)
            .env("TEAM", "team-secret")
            .output()
            .unwrap(),
    )
}

fn database(lab: &Lab) -> Connection {
    Connection::open(lab.path().join("out/requests.db")).unwrap()
}

/// The rows of a query, by column.
fn rows(own: &Connection, query: &str) -> Vec<BTreeMap<String, Value>> {
    let mut statement = own
        .prepare(query)
        .unwrap_or_else(|error| panic!("{query}: {error}"));
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let row = |row: &rusqlite::Row<'_>| {
        let cell = |(place, name): (usize, &String)| Ok((name.clone(), value(row.get(place)?)));
        names
            .iter()
            .enumerate()
            .map(cell)
            .collect::<rusqlite::Result<_>>()
    };
    statement
        .query_map([], row)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

fn value(cell: Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Integer(number) => number.into(),
        Cell::Real(number) => number.into(),
        Cell::Text(text) => text.into(),
        Cell::Blob(packed) => {
            let mut text = String::new();
            ZlibDecoder::new(packed.as_slice())
                .read_to_string(&mut text)
                .unwrap();
            serde_json::from_str(&text).unwrap()
        }
    }
}

/// The SQL queries of the page, in its order.
fn queries() -> Vec<&'static str> {
    let queries = QUERIES.split("\n## ").skip(1);
    queries
        .map(|section| block(section, "sql").unwrap())
        .collect()
}

/// The first block of code in this language.
fn block(section: &'static str, language: &str) -> Option<&'static str> {
    let (_, rest) = section.split_once(&format!("```{language}\n"))?;
    Some(rest.split_once("```")?.0)
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
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

fn close(a: &Value, b: &Value) -> bool {
    (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() <= 1e-9 * b.as_f64().unwrap().abs()
}

#[test]
fn a_run_leaves_a_database_of_which_the_ten_queries_tell_what_the_report_tells() {
    let lab = Lab::new();
    run(&lab, SWEPT).expect(0);
    let (own, results) = (database(&lab), lab.results());
    let cases = results["cases"].as_array().unwrap();
    let queries = queries();
    assert_eq!(queries.len(), 10);
    let told: Vec<_> = queries.iter().map(|query| rows(&own, query)).collect();
    for case in cases {
        let id = &case["id"];
        let own = |query: usize| {
            told[query - 1]
                .iter()
                .filter(|row| row["case_id"] == *id)
                .collect::<Vec<_>>()
        };
        let sum = |query: usize, name: &str| {
            own(query)
                .iter()
                .map(|row| row[name].as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!(
            own(1).iter().find(|row| row["outcome"] == "ok").unwrap()["requests"],
            case["counts"]["ok"]
        );
        assert_eq!(
            sum(1, "requests"),
            case["counts"]["scheduled"].as_u64().unwrap()
        );
        for share in ["p50", "p95", "p99"] {
            assert_eq!(
                own(2)[0][share],
                case["metrics"]["ttft_ms"][share],
                "{share}"
            );
        }
        assert_eq!(own(3)[0]["n"], case["metrics"]["itl_ms"]["n"]);
        for share in ["p50", "p99"] {
            assert!(
                close(&own(3)[0][share], &case["metrics"]["itl_ms"][share]),
                "{share}"
            );
        }
        assert_eq!(sum(4, "requests"), case["counts"]["ok"].as_u64().unwrap());
        let failed: u64 = case["counts"]["failures"]
            .as_object()
            .unwrap()
            .values()
            .map(|n| n.as_u64().unwrap())
            .sum();
        assert_eq!(sum(6, "requests"), failed);
        assert_eq!(own(6)[0]["error"], case["failures"][0]["message"]);
        let rulings: Vec<_> = case["slo"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (&one["expr"], &one["verdict"], &one["observed"]))
            .collect();
        assert_eq!(
            own(7)
                .iter()
                .map(|row| (&row["expr"], &row["ruling"], &row["observed"]))
                .collect::<Vec<_>>(),
            rulings
        );
        let most = own(8)
            .iter()
            .map(|row| row["in_flight"].as_i64().unwrap())
            .max();
        assert_eq!(
            most,
            case["load_value"]
                .as_i64()
                .or(Some(case["labels"]["load.concurrency"].as_i64().unwrap()))
        );
        assert_eq!(
            own(8)
                .iter()
                .map(|row| row["in_flight"].as_i64().unwrap())
                .min(),
            Some(0)
        );
        assert_eq!(
            (own(9).len(), sum(9, "scheduled")),
            (2, case["counts"]["scheduled"].as_u64().unwrap())
        );
    }
    let slowest = &told[4];
    assert_eq!(slowest.len(), 10);
    assert!(
        slowest
            .windows(2)
            .all(|pair| pair[0]["e2e_ms"].as_f64() >= pair[1]["e2e_ms"].as_f64())
    );
    let [at, start] =
        [&slowest[0]["at"], &results["started_at"]].map(|time| time.as_str().unwrap().to_owned());
    assert!(at >= start && at[..14] >= start[..14], "{at} after {start}");
    assert!(
        told[9].iter().all(|row| row["response"]["status"] == 500),
        "{:?}",
        told[9]
    );
    assert!(!told[9].is_empty());
}

#[test]
fn every_body_is_kept_without_a_secret_and_reports_make_the_same_files_again() {
    let lab = Lab::new();
    run(&lab, SWEPT).expect(0);
    let out = lab.path().join("out");
    let own = database(&lab);
    let (all, sent) = (
        rows(&own, "SELECT * FROM bodies"),
        rows(&own, "SELECT * FROM requests WHERE sent_ns IS NOT NULL"),
    );
    assert_eq!((all.len(), sent.len()), (4 * 32, 4 * 32));
    for row in &all {
        assert_eq!(row["request"]["messages"][0]["content"], "hello", "{row:?}");
        let response = &row["response"];
        let words = response["body"]
            .as_str()
            .map(str::to_owned)
            .unwrap_or_else(|| response["body"].to_string());
        assert_eq!(
            response["status"] == 200,
            words.ends_with("data: [DONE]\n\n"),
            "{response}"
        );
        assert_eq!(
            (row["request_cut"].as_i64(), row["response_cut"].as_i64()),
            (Some(0), Some(0))
        );
    }
    drop(own);
    assert!(!out.join("bodies.bin").exists());
    let read =
        || ["requests.db", "histograms.hlog"].map(|name| std::fs::read(out.join(name)).unwrap());
    let before = read();
    for _ in 0..2 {
        report(&lab).expect(0);
        assert!(read() == before, "another rendering made other bytes");
    }
    for file in files(&out) {
        let bytes = std::fs::read(&file).unwrap();
        for secret in [KEY, "very\\\"secret", "team-secret"] {
            assert!(
                !bytes
                    .windows(secret.len())
                    .any(|part| part == secret.as_bytes()),
                "{secret} in {file:?}"
            );
        }
    }
}

/// Echoes the request, including the key; every fourth request is refused.
fn parrot() -> Server {
    Server::start(|stream, number| {
        let key = json!(KEY).to_string();
        if number % 4 == 3 {
            return send(
                stream,
                &response(
                    "401 Unauthorized",
                    "application/json",
                    &format!("{{\"error\": {{\"message\": {key}}}}}"),
                ),
            );
        }
        let token = format!(
            r#"{{"id":"r","choices":[{{"index":0,"delta":{{"content":{key}}},"finish_reason":null}}]}}"#
        );
        send(
            stream,
            &crate::lab::stream(&[&token, &token, FINISH, "[DONE]"], true),
        )
    })
}

#[test]
fn a_server_that_echoes_the_key_does_not_bring_it_into_any_file() {
    let lab = Lab::new();
    let server = parrot();
    let scenario = plain(&server.url(), 40).replace("model: m,", "model: m, api_key: \"${KEY}\",");
    run(
        &lab,
        &format!("{scenario}report: {{ formats: [md, json], bodies: sample }}\n"),
    )
    .expect(0);
    let all = rows(
        &database(&lab),
        "SELECT seq, outcome, response FROM bodies JOIN requests USING (case_id, round, seq, turn) ORDER BY seq",
    );
    let seqs: Vec<u64> = all.iter().map(|row| row["seq"].as_u64().unwrap()).collect();
    assert!(
        (0..10)
            .chain((0..10).map(|n| 4 * n + 3))
            .all(|seq| seqs.contains(&seq)),
        "the first and the failed: {seqs:?}"
    );
    assert!((20..=37).contains(&seqs.len()), "{seqs:?}");
    for row in &all {
        let body = row["response"]["body"].to_string();
        assert!(body.contains("[redacted]"), "{body}");
        assert_eq!(
            row["response"]["status"] == 401,
            row["outcome"] == "http_4xx"
        );
    }
    for file in files(&lab.path().join("out")) {
        let bytes = std::fs::read(&file).unwrap();
        assert!(
            !bytes
                .windows(8)
                .any(|part| part == b"sk-very\"" || part == b"sk-very\\"),
            "{file:?}"
        );
    }
    assert!(seqs.len() < 40);
}

#[test]
fn what_was_kept_of_a_killed_run_is_in_its_database() {
    let lab = Lab::new();
    let long = SWEPT
        .replace(
            "load: { requests: 30, warmup: 2 }",
            "load: { duration: 60s }",
        )
        .replace("rounds: 2", "rounds: 1");
    lab.file("s.yaml", long);
    let mut child = lab
        .command(&["run", "s.yaml", "--output", "out"])
        .env("KEY", KEY)
        .env("TEAM", "team-secret")
        .spawn()
        .unwrap();
    let spool = lab.path().join("out/bodies.bin");
    let began = std::time::Instant::now();
    while !std::fs::metadata(&spool).is_ok_and(|file| file.len() > 20_000) {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "no bodies after 60 s"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!lab.path().join("out/requests.db").exists());
    report(&lab).expect(130);
    let kept = rows(&database(&lab), "SELECT request, response FROM bodies");
    assert!(
        kept.len() > 10 && kept.iter().all(|row| row["request"].is_object()),
        "{}",
        kept.len()
    );
    assert!(!spool.exists());
    report(&lab).expect(130);
    assert_eq!(
        rows(&database(&lab), "SELECT request, response FROM bodies"),
        kept
    );
}

#[test]
fn without_a_word_of_it_there_is_no_database_and_a_forced_run_removes_the_old_one() {
    let lab = Lab::new();
    run(&lab, SWEPT).expect(0);
    let plain = SWEPT.replace(", store: [sqlite, hlog], bodies: all", "");
    run(&lab, &plain).expect(0);
    for name in ["requests.db", "histograms.hlog", "bodies.bin"] {
        assert!(!lab.path().join("out").join(name).exists(), "{name}");
    }
    assert!(lab.path().join("out/requests.parquet").exists());
}

#[test]
fn the_page_names_every_column() {
    let lab = Lab::new();
    run(&lab, SWEPT).expect(0);
    let own = database(&lab);
    let query = "SELECT m.name AS own, c.name AS name FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'";
    let columns = rows(&own, query);
    assert!(columns.len() > 100, "{}", columns.len());
    for row in columns {
        let (table, name) = (row["own"].as_str().unwrap(), row["name"].as_str().unwrap());
        assert!(
            PAGE.contains(&format!("`{name}`")),
            "{table}.{name} is not on the page"
        );
    }
}

/// The frames that a Python script prints after `answer:`.
fn answers(lab: &Lab, script: &str) -> Vec<Vec<BTreeMap<String, Value>>> {
    let ran = Command::new(crate::numbers::python())
        .args(["-c", script])
        .current_dir(lab.path())
        .output()
        .unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let answers = out.lines().filter_map(|line| line.strip_prefix("answer: "));
    answers
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Runs the expressions of docs/reference/metrics.md, and compares their figures with those of results.json.
#[test]
fn the_aggregates_in_polars_are_those_of_the_report() {
    let lab = Lab::new();
    let scenario = "version: 1\nname: t\nrounds: 2\n\
        target: { url: simulator, model: m, simulator: { alpha: 1ms, prefix_cache: true, faults: { error: 10% } } }\n\
        request: { max_tokens: 8, cancel: { share: 20%, tokens: 3 }, expect: { regex: '[aeiou]' } }\n\
        dataset: { kind: prefix, groups: 2, prefix_tokens: 64, tokens: 16 }\n\
        load: { requests: 60, warmup: 2 }\nmatrix: { load.concurrency: [2, 3] }\n\
        slo: ['goodput(ttft < 500ms) > 1%', 'finish{length}.share > 1%']\n\
        audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\nreport: { formats: [json] }\n";
    lab.file("s.yaml", scenario);
    lab.llmscen(&["run", "s.yaml", "--output", "RUN"]).expect(0);
    let results = lab.json("RUN/results.json");
    let (_, section) = METRICS.split_once("### The aggregates in polars").unwrap();
    let (first, rest) = section.split_once("A distribution, and").unwrap();
    let mut script = [first, rest]
        .map(|part| block(part, "python").unwrap())
        .concat();
    for frame in ["cases", "distributions", "gaps", "objectives"] {
        script.push_str(&format!("print('answer:', {frame}.write_json())\n"));
    }
    let mut compared = 0;
    for row in answers(&lab, &script).into_iter().flatten() {
        let mut cases = results["cases"].as_array().unwrap().iter();
        let case = cases.find(|case| case["id"] == row["case_id"]).unwrap();
        for (name, figure) in row.iter().filter(|(name, _)| *name != "case_id") {
            let mut objectives = case["slo"].as_array().unwrap().iter();
            let objective =
                objectives.find(|it| it["expr"].as_str().unwrap().starts_with(name.as_str()));
            let known = objective.map_or(&case["metrics"][name], |it| &it["observed"]);
            let pairs: Vec<(&Value, &Value)> = match figure.as_object() {
                Some(statistics) => statistics
                    .iter()
                    .map(|(name, figure)| (figure, &known[name]))
                    .collect(),
                None => vec![(figure, known)],
            };
            for (figure, known) in pairs {
                let is_equal = figure == known || figure.is_number() && close(figure, known);
                assert!(is_equal, "{name}: {figure} and {known}");
                compared += usize::from(figure.is_number());
            }
        }
    }
    // Of two cases: nine aggregates (there is no `match_rate`), ten statistics of four metrics, two objectives.
    assert_eq!(compared, 2 * (9 + 4 * 10 + 2));
}

/// Runs every block of Python of the page, and compares its answer with that of the SQL query above it.
#[test]
fn polars_and_sql_give_one_answer() {
    let lab = Lab::new();
    run(&lab, SWEPT).expect(0);
    std::fs::rename(lab.path().join("out"), lab.path().join("RUN")).unwrap();
    let own = Connection::open(lab.path().join("RUN/requests.db")).unwrap();
    let mut sections = QUERIES.split("\n## ");
    let mut script = block(sections.next().unwrap(), "python")
        .unwrap()
        .to_owned();
    let mut expected = Vec::new();
    for section in sections {
        let Some(python) = block(section, "python") else {
            continue;
        };
        script.push_str(python);
        if python.contains("answer =") {
            script.push_str("print('answer:', answer.write_json())\n");
            expected.push((python, rows(&own, block(section, "sql").unwrap())));
        }
    }
    assert_eq!(expected.len(), 5);
    let answers = answers(&lab, &script);
    assert_eq!(answers.len(), expected.len());
    for (actual, (python, known)) in std::iter::zip(answers, expected) {
        assert!(!known.is_empty() && actual.len() == known.len(), "{python}");
        for (actual, known) in std::iter::zip(actual, known) {
            assert!(
                actual.keys().eq(known.keys()),
                "{python}\n{actual:?}\n{known:?}"
            );
            for (name, value) in &known {
                let is_equal = match value.is_f64() {
                    true => close(&actual[name], value),
                    false => actual[name] == *value,
                };
                assert!(is_equal, "{name}\n{python}\n{actual:?}\n{known:?}");
            }
        }
    }
}

#[test]
fn a_run_over_swept_files_is_reported_again_from_its_records() {
    let lab = Lab::new();
    for name in ["a", "b"] {
        lab.file(
            &format!("data/{name}.jsonl"),
            format!("{{\"prompt\": \"hello {name}\"}}\n"),
        );
    }
    let scenario = "version: 1\nname: t\ntarget: { url: simulator, model: m }\nrequest: { max_tokens: 4 }\n\
                    dataset: { kind: rows }\nload: { concurrency: 1, requests: 3 }\n\
                    matrix: { dataset.path: [data/a.jsonl, data/b.jsonl] }\nreport: { formats: [json] }\n\
                    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n";
    lab.file("s.yaml", scenario);
    lab.llmscen(&["run", "s.yaml", "--output", "out"]).expect(0);
    let ran = lab.json("out/results.json")["cases"].clone();
    let known: Vec<(&str, u64)> = ran
        .as_array()
        .unwrap()
        .iter()
        .map(|case| {
            (
                case["id"].as_str().unwrap(),
                case["counts"]["ok"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(known, [("path=a.jsonl", 3), ("path=b.jsonl", 3)]);
    lab.llmscen(&["report", "out"]).expect(0);
    assert_eq!(lab.json("out/results.json")["cases"], ran);
}
