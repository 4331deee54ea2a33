//! A model in this process, from the scenario to the report.

use crate::lab::*;
use flate2::read::ZlibDecoder;
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::time::{Duration, Instant};

const AUDIT: &str = "audit: { lag_p99: 10s, achieved: 1% }\n";

fn scenario(request: &str, load: &str, more: &str) -> String {
    format!(
        "version: 1\nname: own\nseed: 7\ntarget: {{ api: local, model: \"random:tiny\", local: {{ dtype: f32, threads: 1 }} }}\n\
         request: {{ max_tokens: 6, ignore_eos: true{request} }}\ndataset: {{ kind: random, tokens: 24 }}\nload: {{ {load} }}\n\
         {AUDIT}{more}"
    )
}

/// The reply of each request, by number.
fn replies(lab: &Lab) -> Vec<Value> {
    let database = Connection::open(lab.path().join("out/requests.db")).unwrap();
    let mut rows = database
        .prepare("SELECT response FROM bodies ORDER BY seq")
        .unwrap();
    let replies = rows.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
    let said = |packed: Vec<u8>| {
        serde_json::from_reader::<_, Value>(ZlibDecoder::new(packed.as_slice())).unwrap()["body"]
            .clone()
    };
    replies.map(|reply| said(reply.unwrap())).collect()
}

const BODIES: &str = "report: { formats: [md], store: [sqlite], bodies: all }\n";

/// Shape and values of an array that numpy would read.
fn array(bytes: &[u8]) -> (Vec<usize>, Vec<f32>) {
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let head = std::str::from_utf8(&bytes[10..10 + length]).unwrap();
    assert!(
        bytes.starts_with(b"\x93NUMPY\x01\x00")
            && head.contains("'<f4'")
            && head.contains("'fortran_order': False"),
        "{head}"
    );
    let shape = head
        .split(['(', ')'])
        .nth(1)
        .unwrap()
        .split(", ")
        .map(|side| side.parse().unwrap())
        .collect();
    (
        shape,
        bytes[10 + length..]
            .chunks(4)
            .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
            .collect(),
    )
}

fn logits(lab: &Lab, seq: u64) -> (Vec<usize>, Vec<f32>) {
    array(&std::fs::read(lab.path().join(format!("out/logits/base/0-{seq}.npy"))).unwrap())
}

#[test]
fn a_static_batch_says_what_single_requests_say_and_counts_exactly() {
    let keep = ", keep: { logits: true }";
    let (together, alone) = (Lab::new(), Lab::new());
    together
        .run(&scenario(
            keep,
            "static: { batch: 4, rounds: 2 }, warmup: 1x",
            BODIES,
        ))
        .expect(0);
    alone
        .run(&scenario(
            keep,
            "concurrency: 1, requests: 8, warmup: 4",
            BODIES,
        ))
        .expect(0);
    let (batch, single) = (replies(&together), replies(&alone));
    assert_eq!((batch.len(), &batch), (12, &single));
    for reply in &batch {
        assert_eq!(
            (
                &reply["usage"]["prompt_tokens"],
                &reply["usage"]["completion_tokens"]
            ),
            (&24.into(), &6.into())
        );
        assert_eq!(reply["tokens"].as_array().unwrap().len(), 6);
    }
    for seq in 0..12 {
        let (own, other) = (logits(&together, seq), logits(&alone, seq));
        assert_eq!(
            (own.0.len(), own.0[0], own.0[0] * own.0[1]),
            (2, 6, own.1.len())
        );
        assert!(
            own.1
                .iter()
                .zip(&other.1)
                .all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1.0)),
            "{seq}"
        );
        // The token of each step is the greatest of its logits.
        let best = own.1.chunks(own.0[1]).map(|row| {
            (0..row.len())
                .max_by(|a, b| row[*a].total_cmp(&row[*b]))
                .unwrap()
        });
        assert_eq!(
            best.map(Value::from).collect::<Vec<_>>(),
            *batch[seq as usize]["tokens"].as_array().unwrap()
        );
    }
    let own = &together.results()["cases"][0];
    let did = &own["local"]["measured"];
    assert_eq!(
        (
            &did["batches"],
            &did["requests"],
            &did["prompt_tokens"],
            &did["output_tokens"]
        ),
        (&2.into(), &8.into(), &192.into(), &48.into())
    );
    assert_eq!(
        (
            &did["prefill_ms"]["n"],
            &did["step_ms"]["n"],
            &did["padded_to"]
        ),
        (&2.into(), &10.into(), &24.into())
    );
    assert!(
        own["metrics"]["server_prefill_ms"]["n"] == 8 && own["audit"]["valid"] == true,
        "{own:#}"
    );
    assert_eq!(
        (&own["token_source"], &own["local"]["dtype"]),
        (&"usage".into(), &"f32".into())
    );
    let single = &alone.results()["cases"][0]["local"]["measured"];
    assert_eq!(
        (&single["batches"], &single["step_ms"]["n"]),
        (&8.into(), &40.into())
    );
    let report = together.text("out/report.md");
    assert!(
        report.contains("## Local model") && report.contains("`random:tiny`"),
        "{report}"
    );
    let manifest = together.json("out/manifest.json");
    let batches = manifest["parts"][0]["local"]["batches"].as_array().unwrap();
    let sizes: Vec<usize> = batches
        .iter()
        .map(|batch| batch["seqs"].as_array().unwrap().len())
        .collect();
    assert_eq!(
        (sizes, &batches[0]["measured"]),
        (vec![4, 4, 4], &false.into())
    );
}

#[test]
fn sampled_tokens_follow_the_seed() {
    let run = |seed: u64, own: &str| {
        let lab = Lab::new();
        let request = format!(", temperature: 1.5, top_k: 500, min_p: 0.0001{own}");
        let yaml = scenario(&request, "concurrency: 2, requests: 4", BODIES)
            .replace("seed: 7\n", &format!("seed: {seed}\n"));
        lab.run(&yaml).expect(0);
        replies(&lab)
            .iter()
            .map(|reply| reply["tokens"].clone())
            .collect::<Vec<_>>()
    };
    let first = run(7, "");
    assert_eq!(first, run(7, ""));
    assert_ne!(first, run(8, ""));
    assert_ne!(first, run(7, ", seed: 3"));
}

#[test]
fn a_stop_text_ends_a_reply_before_it() {
    let lab = Lab::new();
    lab.run(&scenario("", "concurrency: 1, requests: 1", BODIES))
        .expect(0);
    let text = replies(&lab)[0]["text"].as_str().unwrap().to_owned();
    // A character from the middle of the greedy output.
    let (at, stop) = text
        .char_indices()
        .find(|(at, c)| *at > 1 && c.is_ascii_alphanumeric())
        .expect("a plain character");
    let lab = Lab::new();
    lab.run(&scenario(
        &format!(", stop: [\"{stop}\"]"),
        "concurrency: 1, requests: 1",
        BODIES,
    ))
    .expect(0);
    let reply = &replies(&lab)[0];
    let whole = text.find(stop).unwrap();
    assert!(whole <= at);
    assert_eq!(
        (reply["text"].as_str(), reply["finish_reason"].as_str()),
        (text.get(..whole), Some("stop"))
    );
}

#[test]
fn missing_files_are_errors_before_the_run() {
    let with = |target: &str| {
        let lab = Lab::new();
        lab.file("other/readme.txt", "x");
        let ran = lab.run(&scenario("", "concurrency: 1, requests: 1", "").replace(
            "api: local, model: \"random:tiny\", local: { dtype: f32, threads: 1 }",
            target,
        ));
        assert!(!lab.path().join("out").exists());
        ran.expect(2).err
    };
    assert!(with("api: local, model: ./models/none").contains("`./models/none` not found"));
    assert!(with("api: local, model: other").contains("a folder without config.json"));
    assert!(with("api: local, model: \"random:huge\"").contains("did you mean `random:tiny`?"));
    assert!(with("api: local, model: [a, b]").contains("`api: local` runs one model at a time"));
    let server = with(
        "api: local, model: \"random:tiny\", url: \"http://h/\", api_key: k, timeouts: { connect: 1s }",
    );
    assert_eq!(
        server.matches("has no effect with `api: local`").count(),
        3,
        "{server}"
    );
    let device = with("api: local, model: \"random:tiny\", local: { device: metal }");
    assert!(
        device.contains("Build it with `--features metal`"),
        "{device}"
    );
}

#[test]
fn a_signal_ends_a_long_generation_with_a_report() {
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        scenario("", "concurrency: 1, requests: 50, graceful_stop: 0s", "")
            .replace("max_tokens: 6", "max_tokens: 8000"),
    );
    let child = lab.spawn(&["run", "s.yaml", "--output", "out"]);
    let began = Instant::now();
    while !std::fs::metadata(lab.path().join("out/journal.bin")).is_ok_and(|file| file.len() > 12) {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "no journal after 60 s"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let pressed = Instant::now();
    finish(child).expect(130);
    assert!(pressed.elapsed() < Duration::from_secs(10));
    let case = &lab.results()["cases"][0];
    assert_eq!(
        (
            &case["counts"]["failures"]["cancelled"],
            lab.results()["interrupted"].as_bool()
        ),
        (&1.into(), Some(true))
    );
    assert!(
        lab.text("out/report.md").contains("after "),
        "the tokens that it had are told"
    );
}

#[test]
fn users_leave_and_open_loops_queue() {
    let lab = Lab::new();
    lab.run(&scenario(
        ", cancel: { share: 100%, tokens: 2 }",
        "rate: 200/s, requests: 5",
        "",
    ))
    .expect(0);
    let case = &lab.results()["cases"][0];
    assert_eq!(
        (&case["counts"]["abandoned"], &case["counts"]["failed"]),
        (&5.into(), &0.into())
    );
    let batches = lab.json("out/manifest.json")["parts"][0]["local"]["batches"].clone();
    assert_eq!(
        batches
            .as_array()
            .unwrap()
            .iter()
            .map(|batch| batch["output_tokens"].as_u64().unwrap())
            .sum::<u64>(),
        2 * (5 + case["counts"]["cooldown"].as_u64().unwrap())
    );
}

#[test]
fn one_model_serves_the_cases_that_name_it() {
    let lab = Lab::new();
    let matrix = "rounds: 2\nmatrix: { load.concurrency: [1, 3] }\n";
    lab.run(
        &scenario("", "concurrency: 1, requests: 3", matrix)
            .replace("threads: 1", "threads: 1, batch: 3"),
    )
    .expect(0);
    let manifest = lab.json("out/manifest.json");
    let loaded: Vec<&Value> = manifest["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| &part["local"]["loaded"])
        .collect();
    assert_eq!(loaded.len(), 4);
    assert!(
        loaded.iter().all(|own| *own == loaded[0]),
        "loaded once: its times are those of one loading"
    );
    assert!(lab.text("out/plan.yaml").contains("model: random:tiny"));
}

#[test]
fn the_table_of_speeds_is_printed() {
    let lab = Lab::new();
    let yaml = scenario("", "concurrency: 1, requests: 2", "");
    let yaml = yaml.replace(
        "{ kind: random, tokens: 24 }",
        "{ kind: speed_benchmark, prompt_tokens: { max: 96 } }",
    );
    // 2048 tokens, as in the benchmark, would take too long in a debug build.
    let ran = lab
        .run(&yaml.replace(
            "ignore_eos: true",
            "ignore_eos: true, extra: { max_tokens: 16 }",
        ))
        .expect(0);
    assert!(
        ran.out
            .contains("INPUT LENGTH  SPEED (TOKENS/S)  MEMORY (GB)"),
        "{}",
        ran.out
    );
    let speed = &lab.results()["cases"][0]["speed"];
    assert_eq!(
        (
            &speed[0]["prompt_tokens"],
            &speed[0]["ok"],
            &speed[0]["memory_of"]
        ),
        (&96.into(), &2.into(), &"process".into())
    );
    assert!(
        speed[0]["output_tps"].as_f64().unwrap() > 0.0
            && speed[0]["memory"].as_u64().unwrap() > 1 << 20
    );
    assert!(
        lab.text("out/report.md")
            .contains("## Speed by prompt length")
    );
}
