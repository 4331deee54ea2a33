//! Results in the form of other tools.

use crate::lab::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

const SCENARIO: &str = "version: 1\nname: t\ntarget: { api: simulator, model: org/sim, simulator: { alpha: 2ms } }\n\
    request: { max_tokens: 6 }\ndataset: { kind: prompt, text: hello there }\nload: { concurrency: 2, requests: 20, warmup: 4 }\n\
    matrix: { load.concurrency: [2, 4] }\naudit: { lag_p99: 10s, stall_p99: 10s, cpu: 100% }\n";

const ALL: &str = "evalscope,vllm,aiperf,guidellm,lmdeploy,llm-d,inferencex";

/// Every file under a folder, by its path in it, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if entry.is_dir() {
            found.extend(files(&entry))
        } else {
            found.push(entry)
        }
    }
    found.sort();
    found
}

fn names(lab: &Lab) -> Vec<String> {
    let folder = lab.path().join("out/compat");
    files(&folder)
        .iter()
        .map(|path| {
            path.strip_prefix(&folder)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect()
}

fn ran(lab: &Lab) {
    lab.file("s.yaml", SCENARIO);
    lab.llmscen(&["run", "s.yaml", "--output", "out", "--compat", ALL])
        .expect(0);
}

#[test]
fn every_tool_finds_its_files() {
    let lab = Lab::new();
    ran(&lab);
    let dated = |name: &String| name.split("-20").next().unwrap().to_owned();
    let known = [
        "aiperf/concurrency=2/profile_export.jsonl",
        "aiperf/concurrency=2/profile_export_aiperf.csv",
        "aiperf/concurrency=2/profile_export_aiperf.json",
        "aiperf/concurrency=4/profile_export.jsonl",
        "aiperf/concurrency=4/profile_export_aiperf.csv",
        "aiperf/concurrency=4/profile_export_aiperf.json",
        "evalscope/org_sim/parallel_2_number_20/benchmark_percentile.json",
        "evalscope/org_sim/parallel_2_number_20/benchmark_summary.json",
        "evalscope/org_sim/parallel_4_number_20/benchmark_percentile.json",
        "evalscope/org_sim/parallel_4_number_20/benchmark_summary.json",
        "guidellm/benchmarks.csv",
        "guidellm/benchmarks.json",
        "inferencex/agg_concurrency=2.json",
        "inferencex/agg_concurrency=4.json",
        "llm-d/benchmark_report_v0.2,_concurrency=2.json",
        "llm-d/benchmark_report_v0.2,_concurrency=4.json",
        "lmdeploy/1/profile_generation.csv",
        "lmdeploy/2/profile_generation.csv",
        "lmdeploy/2/profile_restful_api.csv",
        "lmdeploy/2/profile_throughput.csv",
        "lmdeploy/3/profile_throughput.csv",
        "vllm/concurrency=2-infqps-concurrency2-sim",
        "vllm/concurrency=4-infqps-concurrency4-sim",
    ];
    assert_eq!(names(&lab).iter().map(dated).collect::<Vec<_>>(), known);
    let json = |name: &String| {
        serde_json::from_str::<Value>(&lab.text(&format!("out/compat/{name}"))).unwrap()
    };
    let all = names(&lab);
    for saved in all
        .iter()
        .filter(|name| name.starts_with("vllm/"))
        .map(json)
    {
        let count = |key: &str| saved[key].as_u64().unwrap();
        assert_eq!(
            (
                count("completed") + count("failed"),
                count("num_prompts"),
                count("total_output_tokens")
            ),
            (20, 20, 120)
        );
    }
    for summary in all
        .iter()
        .filter(|name| name.ends_with("benchmark_summary.json"))
        .map(json)
    {
        assert_eq!(
            (&summary["Total Requests"], &summary["Succeed requests"]),
            (&20.into(), &20.into())
        );
    }
    let report = json(&"guidellm/benchmarks.json".to_owned());
    assert_eq!(
        report["benchmarks"][1]["metrics"]["request_totals"]["total"],
        20
    );
    // The keys that the schema of llm-d's report requires.
    let report = json(&"llm-d/benchmark_report_v0.2,_concurrency=4.json".to_owned());
    assert!(report["run"]["uid"].is_string() && report["version"] == "0.2");
    let load = &report["scenario"]["load"]["standardized"];
    for key in ["tool", "tool_version", "source", "input_seq_len"] {
        assert!(!load[key].is_null(), "{key}: {report:#}");
    }
    let aggregate = &report["results"]["request_performance"]["aggregate"];
    assert_eq!(
        (&aggregate["requests"]["total"], &load["concurrency"]),
        (&20.into(), &4.into())
    );
    let rates = &aggregate["throughput"];
    assert!(rates["output_token_rate"]["mean"].as_f64().unwrap() > 0.0);
    let agg = json(&"inferencex/agg_concurrency=4.json".to_owned());
    assert_eq!((&agg["conc"], &agg["osl"]), (&4.into(), &6.into()));
    assert!(agg["median_intvty"].as_f64().unwrap() > 0.0 && agg.get("hw").is_none());
    let table = lab.text("out/compat/lmdeploy/3/profile_throughput.csv");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines[0],
        "batch,num_prompts,RPS,RPM,FTL(ave)(s),throughput(out tok/s),throughput(total tok/s)"
    );
    assert!(
        lines.len() == 3 && lines[1].starts_with("2,20,") && lines[2].starts_with("4,20,"),
        "{table}"
    );
}

#[test]
fn the_same_rows_give_the_same_bytes() {
    let lab = Lab::new();
    ran(&lab);
    let read = || {
        files(&lab.path().join("out/compat"))
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect::<Vec<_>>()
    };
    let first = read();
    std::fs::remove_dir_all(lab.path().join("out/compat")).unwrap();
    lab.llmscen(&["report", "out"]).expect(0);
    assert!(!lab.path().join("out/compat").exists(), "nobody asked");
    lab.llmscen(&[
        "report",
        "out",
        "--compat",
        "vllm,lmdeploy,inferencex",
        "--compat",
        "evalscope,aiperf,guidellm,llm-d",
    ])
    .expect(0);
    assert!(read() == first);
}

#[test]
fn a_scenario_may_ask_for_them() {
    let lab = Lab::new();
    lab.run(&format!("{SCENARIO}report: {{ compat: [lmdeploy] }}\n"))
        .expect(0);
    assert!(names(&lab).iter().all(|name| name.starts_with("lmdeploy/")) && names(&lab).len() == 5);
    let refused = lab.llmscen(&["run", "s.yaml", "--compat", "k6"]).expect(2);
    assert!(
        refused
            .err
            .contains("evalscope, vllm, aiperf, guidellm, lmdeploy, llm-d, inferencex"),
        "{}",
        refused.err
    );
}
