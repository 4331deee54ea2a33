use super::*;
use crate::fixture::{failing, grid, no_data, observed, report_of, searched, sweep};
use llmscen_core::check::relative::{ReferenceKind, ReferenceValue, Relative};
use llmscen_core::early_stop::{Aborted, Saturated};
use llmscen_core::report::{Cause, ShardRecord};
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;

fn rendered(report: &Report) -> Value {
    serde_json::from_str(&json(report).unwrap()).unwrap()
}

#[test]
fn results_are_valid_against_the_schema() {
    let schema: Value = serde_json::from_str(results_schema()).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let mixed = report_of(
        vec![failing(), no_data(), observed()],
        Default::default(),
        1,
    );
    for report in [
        searched(),
        sweep(1),
        sweep(12),
        grid(2),
        mixed,
        report_of(Vec::new(), Default::default(), 0),
        Report::default(),
    ] {
        let results = rendered(&report);
        let errors: Vec<String> = validator
            .iter_errors(&results)
            .map(|error| format!("{} {error}", error.instance_path()))
            .collect();
        assert_eq!(errors, [""; 0]);
    }
}

#[test]
fn a_case_of_several_shards_has_their_records() {
    let schema: Value = serde_json::from_str(results_schema()).unwrap();
    let mut report = sweep(1);
    let shard = ShardRecord {
        index: 1,
        host: "host-b".into(),
        requests: 60,
        offset_source: "kernel".into(),
        reasons: vec![Cause::LoadGenerator.reason("shard 1 (host-b): late")],
        ..ShardRecord::default()
    };
    report.cases[0].shards = vec![ShardRecord::default(), shard];
    let results = rendered(&report);
    assert!(
        jsonschema::draft202012::new(&schema)
            .unwrap()
            .is_valid(&results)
    );
    let shards = &results["cases"][0]["shards"];
    assert_eq!(
        (
            &shards[1]["host"],
            &shards[1]["requests"],
            &shards[0]["ttft_ms_p50"]
        ),
        (&json!("host-b"), &json!(60), &Value::Null)
    );
}

#[test]
fn the_schema_allows_every_unit() {
    let schema: Value = serde_json::from_str(results_schema()).unwrap();
    let units = schema["$defs"]["slo"]["properties"]["unit"]["enum"]
        .as_array()
        .unwrap();
    let all = Metric::ALL
        .iter()
        .map(|metric| metric.unit())
        .chain(Signal::ALL.iter().map(|signal| signal.unit()));
    for unit in all.filter(|unit| *unit != Unit::Share) {
        assert!(units.contains(&json!(unit.symbol())), "{unit:?}");
    }
}

#[test]
fn the_schema_rejects_missing_keys_and_unknown_verdicts() {
    let schema: Value = serde_json::from_str(results_schema()).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let valid = rendered(&sweep(1));
    for pointer in [
        "/verdict",
        "/cases/0/metrics/ttft_ms",
        "/cases/0/slo/0/need",
        "/cases/0/metrics/ttft_ms/p99.9",
        "/cases/0/audit/valid",
        "/cases/0/aborted",
        "/cases/0/steady_from_s",
    ] {
        let mut broken = valid.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        broken
            .pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(key)
            .unwrap();
        assert!(!validator.is_valid(&broken), "{pointer}");
    }
    let mut renamed = valid;
    renamed["verdict"] = json!("maybe");
    assert!(!validator.is_valid(&renamed));
}

#[test]
fn every_metric_has_its_key_and_missing_values_are_null() {
    let results = rendered(&sweep(1));
    let metrics = results["cases"][0]["metrics"].as_object().unwrap();
    assert_eq!(
        metrics.keys().map(String::as_str).collect::<Vec<_>>(),
        Metric::ALL.iter().map(|m| m.column()).collect::<Vec<_>>()
    );
    assert_eq!(
        (&metrics["output_tps_per_gpu"], &metrics["cached_tokens"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(metrics["ttft_ms"]["n"], json!(240));
    let keys: Vec<&str> = metrics["ttft_ms"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys.join(" "),
        "n mean sd min p1 p5 p10 p25 p50 p66 p75 p80 p90 p95 p98 p99 p99.9 max"
    );
}

#[test]
fn a_case_that_ended_early_has_the_cause() {
    let mut report = sweep(1);
    let aborted = Aborted {
        expr: "x".into(),
        after: 9,
        n: 9,
        breaking: 8,
        allowed: 0.05,
        alpha: 0.01,
        ..Aborted::default()
    };
    let saturated = Saturated {
        from_s: 2.5,
        at_s: 7.0,
        in_flight_slope: 3.0,
        ttft_slope: 40.0,
    };
    (report.cases[0].aborted, report.cases[0].saturated) = (Some(aborted), Some(saturated));
    let results = rendered(&report);
    let schema: Value = serde_json::from_str(results_schema()).unwrap();
    assert!(
        jsonschema::draft202012::new(&schema)
            .unwrap()
            .is_valid(&results)
    );
    let case = &results["cases"][0];
    let expected = json!({ "check": 0, "expr": "x", "at_s": 0.0, "after": 9, "planned": null, "n": 9,
        "breaking": 8, "allowed": 0.05, "alpha": 0.01 });
    assert_eq!(
        (&case["aborted"], &case["saturated"]["from_s"]),
        (&expected, &json!(2.5))
    );
    assert!(case["steady_until_s"].as_f64() > case["steady_from_s"].as_f64());
}

#[test]
fn a_relative_limit_has_its_reference_or_null() {
    let schema: Value = serde_json::from_str(results_schema()).unwrap();
    let known = ReferenceValue {
        value: 512.0,
        low: None,
        high: Some(530.0),
        n: Some(400),
        spread: None,
    };
    let with_reference = |known| {
        let mut report = sweep(1);
        let relative = Relative::new(ReferenceKind::Baseline, 1.1, known);
        let check = &mut report.cases[0].verdicts[0].check;
        (check.limit, check.relative) = (relative.limit(), Some(relative));
        rendered(&report)
    };
    let present = with_reference(Some(known));
    let missing = with_reference(None);
    let expected = json!({ "to": "baseline", "case": null, "factor": 1.1, "value": 512.0,
        "low": null, "high": 530.0, "n": 400, "runs": null, "replicates": null });
    let slo = &present["cases"][0]["slo"][0];
    assert_eq!(
        (&slo["relative"], &slo["limit"]),
        (&expected, &json!(563.2))
    );
    assert!(missing["cases"][0]["slo"][0]["limit"].is_null());
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    assert!(validator.is_valid(&present) && validator.is_valid(&missing));
}

#[test]
fn a_verdict_is_in_the_unit_it_names() {
    let slo = &rendered(&sweep(1))["cases"][0]["slo"];
    let errors = json!({
        "expr": "error_rate < 1%", "default": false, "verdict": "inconclusive", "observed": 0.0,
            "bound": 0.0124, "limit": 0.01,
        "relative": null, "unit": "share", "n": 240, "effective_n": null, "need": 299, "note": null
    });
    assert_eq!(
        (&slo[1], &slo[0]["unit"], &slo[0]["limit"]),
        (&errors, &json!("ms"), &json!(500.0))
    );
}
