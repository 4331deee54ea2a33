//! Sessions of very many turns under every shape of load: they begin before they are written whole, and take little memory.

use crate::lab::Lab;
use crate::memory::memory;
use std::fmt::Write;
use std::process::Stdio;
use std::time::Duration;

/// Memory that a run may take, in bytes.
const MEMORY: u64 = 300 << 20;

#[test]
fn long_sessions_begin_within_a_short_round_and_take_little_memory() {
    let lab = Lab::new();
    let mut log = String::new();
    for turn in 0..20_000 {
        writeln!(
            log,
            "{{\"session_id\": \"s\", \"timestamp\": {turn}, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [{turn}]}}"
        )
        .unwrap();
    }
    lab.file("log.jsonl", log);
    let datasets = [
        "{ kind: random, tokens: 3, turns: { count: 100000 } }",
        "{ kind: trace, path: log.jsonl, tokenizer: builtin, turns: {} }",
    ];
    let loads = [
        "concurrency: 4, duration: 3s",
        "rate: 5/s, duration: 3s",
        "stages: [{ concurrency: 1, for: 1s }, { concurrency: 4, for: 2s }]",
    ];
    for (dataset, load) in datasets
        .iter()
        .flat_map(|dataset| loads.map(|load| (dataset, load)))
    {
        lab.file(
            "s.yaml",
            format!(
                "version: 1\nname: s\ntarget: {{ url: simulator }}\ndataset: {dataset}\nrequest: {{ max_tokens: 1 }}\n\
                 load: {{ {load} }}\nreport: {{ formats: [md] }}\n"
            ),
        );
        let _ = std::fs::remove_dir_all(lab.path().join("out"));
        let mut command = lab.command(&["run", "s.yaml", "--output", "out", "--quiet"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let mut most = 0;
        while child.try_wait().unwrap().is_none() {
            most = memory(&child).map_or(most, |[_, highest]| highest.max(most));
            std::thread::sleep(Duration::from_millis(5));
        }
        let results = lab.json("out/results.json");
        let counts = &results["cases"][0]["counts"];
        assert!(
            counts["ok"].as_u64() > Some(0),
            "{dataset} {load}: {counts}"
        );
        assert_eq!(
            counts["dropped"], 0,
            "turns that were not due are no failures"
        );
        assert!(most < MEMORY, "{dataset} {load}: {most} bytes");
    }
}
