//! What was sampled beside the requests, from its file to limits, results, reports and charts.

use crate::lab::*;
use llmscen_analysis::telemetry;
use llmscen_core::telemetry::{Source, TelemetryRecord, TelemetrySample};

/// Two users for about a second, with objectives on telemetry.
const SCENARIO: &str = "version: 1\nname: sampled\n\
    target: { api: simulator, gpus: 1, simulator: { alpha: 20ms }, hardware: { parameters: 1B, weight_bytes: 2GB, peak_flops: 1 TFLOPS } }\n\
    request: { max_tokens: 8 }\ndataset: { kind: prompt, text: hello }\n\
    load: { concurrency: 2, duration: 1s, warmup: 0 }\n\
    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100% }\n\
    slo: [ host.cpu.max < 90%, gpu.power.mean < 300 W, { expr: tool.memory.max < 1 GiB, no_data: inconclusive } ]\n\
    telemetry: { interval: 100ms }\nreport: { formats: [md, html, png, junit, csv] }\n";

fn reading(at_ms: i64, source: Source, name: &str, labels: &str, value: f64) -> TelemetrySample {
    TelemetrySample {
        at_ns: at_ms * 1_000_000,
        source,
        name: name.into(),
        labels: labels.into(),
        device: None,
        value,
    }
}

/// What could have been read every 100 ms from before the round to after it.
fn readings() -> Vec<TelemetrySample> {
    let mut all = Vec::new();
    for k in -2..80 {
        let (at, of) = (k * 100, f64::from(k as i32));
        all.push(reading(at, Source::Host, "host.cpu", "", 0.5));
        all.push(reading(at, Source::Nvml, "gpu.power", "", 400.0));
        all.push(reading(at, Source::Prometheus, "server.running", "", 2.0));
        all.push(reading(
            at,
            Source::Prometheus,
            "server.waiting",
            "",
            of.rem_euclid(3.0),
        ));
        all.push(reading(
            at,
            Source::Prometheus,
            "server.output_tps",
            "",
            50.0 + 10.0 * of,
        ));
        for (label, value) in [
            ("le=5", 0.0),
            ("le=50", 4.0),
            ("le=+Inf", 4.0),
            ("count", 4.0),
            ("sum", 40.0),
        ] {
            all.push(reading(
                at,
                Source::Prometheus,
                "server.ttft",
                label,
                value * (of + 2.0),
            ));
        }
    }
    all.push(reading(-150, Source::Prometheus, "own:name", "a=b", 7.0));
    all
}

#[test]
fn readings_become_rulings_results_tables_and_charts() {
    let lab = Lab::new();
    lab.run(SCENARIO).expect(1);
    let before = lab.results();
    let ruled = |results: &serde_json::Value| {
        let slo = results["cases"][0]["slo"].as_array().unwrap().clone();
        slo.iter()
            .map(|own| own["verdict"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let (told, slo) = (&before["cases"][0]["telemetry"], &before["cases"][0]["slo"]);
    assert_eq!(
        (ruled(&before)[1].as_str(), slo[1]["note"].as_str()),
        ("fail", Some("no data")),
        "a simulator uses no GPU"
    );
    for name in ["tool.cpu", "tool.memory", "host.memory"] {
        assert!(
            told[name]["n"].as_u64() > Some(0) && told[name]["mean"].as_f64() > Some(0.0),
            "{name}: {}",
            told[name]
        );
    }
    assert!(told["gpu.power"].is_null() && told["server.waiting"].is_null());
    let again = lab.llmscen(&["report", "out"]).expect(1);
    assert_eq!(
        (
            lab.results()["cases"][0]["telemetry"].clone(),
            again.out.is_empty()
        ),
        (told.clone(), false)
    );
    let recorded = TelemetryRecord {
        case: "base".into(),
        round: 0,
        readings: readings(),
    };
    std::fs::write(
        lab.path().join("out/telemetry.parquet"),
        telemetry::write(&[recorded]).unwrap(),
    )
    .unwrap();
    std::fs::remove_file(lab.path().join("out/checksums.sha256")).unwrap();
    let ran = lab.llmscen(&["report", "out"]).expect(1);
    assert!(
        ran.out.contains("server   running 2 (max 2), waiting "),
        "{}",
        ran.out
    );
    let results = lab.results();
    assert_eq!(
        ruled(&results),
        ["pass", "fail", "inconclusive"],
        "{}",
        results["cases"][0]["slo"]
    );
    let (case, told) = (&results["cases"][0], &results["cases"][0]["telemetry"]);
    assert_eq!(
        (&told["host.cpu"]["mean"], &told["server.preemptions"]),
        (&serde_json::json!(0.5), &serde_json::Value::Null)
    );
    assert_eq!(
        (
            told["server.ttft"]["mean"].as_f64(),
            told["server.ttft"]["p50"].as_f64()
        ),
        (Some(10.0), Some(27.5))
    );
    assert!(
        (told["server.output_tps"]["mean"].as_f64().unwrap() - 100.0).abs() < 1e-6,
        "10 tokens each 100 ms"
    );
    assert_eq!(told["other"]["own:name{a=b}"]["mean"], 7.0);
    let figure = |name: &str| case["metrics"][name].as_f64().unwrap();
    let energy = 400.0 / figure("output_tps_with_drain");
    assert!(
        (figure("energy_per_token_j") - energy).abs() < 1e-6 * energy,
        "{} J",
        figure("energy_per_token_j")
    );
    assert!(
        (figure("mfu") - 2e9 * figure("total_tps_with_drain") / 1e12).abs() < 1e-9
            && case["metrics"]["mbu"].is_null()
    );
    let note = case["slo"][1]["note"].as_str().unwrap();
    assert_eq!(
        note,
        "point estimate only: telemetry samples are correlated, so no confidence bound is given"
    );
    let markdown = lab.text("out/report.md");
    for words in [
        "## Telemetry",
        "| `server.running` |",
        "## TTFT: server histogram and client",
        "charts/telemetry_server.png",
    ] {
        assert!(
            markdown.contains(words),
            "`{words}` is missing in:\n{markdown}"
        );
    }
    assert!(
        lab.text("out/report.html")
            .contains("Requests in the server")
    );
    let schema: serde_json::Value =
        serde_json::from_str(&lab.llmscen(&["schema", "--results"]).expect(0).out).unwrap();
    assert!(
        jsonschema::validator_for(&schema)
            .unwrap()
            .is_valid(&results)
    );
    for name in ["telemetry_server", "telemetry_gpu", "telemetry_machine"] {
        assert!(
            lab.path().join(format!("out/charts/{name}.png")).exists(),
            "{name}"
        );
    }
}

#[test]
fn a_damaged_file_of_readings_is_named() {
    let lab = Lab::new();
    lab.run(&SCENARIO.replace("host.cpu.max < 90%, gpu.power.mean < 300 W, ", ""))
        .expect(0);
    std::fs::write(lab.path().join("out/telemetry.parquet"), b"no table").unwrap();
    let ran = lab.llmscen(&["report", "out"]);
    assert!(ran.err.contains("telemetry.parquet"), "{}", ran.err);
}
