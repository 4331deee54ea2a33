use super::*;
use crate::fixture::{case, report_of};
use llmscen_core::local::{Batch, Loaded};
use llmscen_core::report::RunVerdict;

/// Two prompts of 30 tokens in 100 ms, three tokens each: 20 and 30 ms.
fn local_case() -> CaseReport {
    let loaded = Loaded {
        model: "/m/tiny".into(),
        architecture: "llama".into(),
        parameters: 1_234_000,
        dtype: "f32".into(),
        device: "cpu (2 threads)".into(),
        read: Nanos::from_millis(5),
        convert: Nanos::from_millis(2),
        place: Nanos::ZERO,
        weight_bytes: 3 << 20,
        attention: "matmul + softmax".into(),
        notes: Vec::new(),
    };
    let batch = Batch {
        seqs: vec![0, 1],
        measured: true,
        prompt_tokens: 60,
        padded_to: 30,
        output_tokens: 6,
        prefill: Nanos::from_millis(100),
        steps: vec![Nanos::from_millis(20), Nanos::from_millis(30)],
        memory: 100 << 20,
        memory_reserved: Some(300 << 20),
        ..Batch::default()
    };
    let part = LocalRound {
        loaded,
        batches: vec![batch],
        memory_peak: 200 << 20,
        ..LocalRound::default()
    };
    let speed = SpeedRow {
        prompt_tokens: 96,
        ok: 2,
        tokens_per_second: Some(61.234),
        memory: Some(1_500_000_000),
        device_memory: false,
    };
    CaseReport {
        local: vec![part],
        speed: vec![speed],
        ..case(2)
    }
}

#[test]
fn a_local_model_has_a_row_for_itself_and_one_for_its_batches() {
    let report = report_of(vec![case(1), local_case()], RunVerdict::Pass, 0);
    let model = [
        "`concurrency=2`",
        "`/m/tiny`",
        "llama",
        "1.23 M",
        "f32",
        "cpu (2 threads)",
        "matmul + softmax",
        "3 MiB",
        "5 ms",
        "2 ms",
        "0 ms",
    ];
    assert_eq!(models(&report).markdown_rows(), [model]);
    let measured = [
        "`concurrency=2`",
        "1",
        "2",
        "60",
        "6",
        "100",
        "100",
        "20",
        "30",
        "30",
        "30",
        "600",
        "80",
        "100 MiB / 200 MiB",
        "300 MiB / 300 MiB",
        "n/a",
    ];
    assert_eq!(batches(&report).markdown_rows(), [measured]);
    assert_eq!(
        speeds(&report).markdown_rows(),
        [["`concurrency=2`", "96", "61.23", "1.50", "2"]]
    );
    let table = "CASE           INPUT LENGTH  SPEED (TOKENS/S)  MEMORY (GB)  REQUESTS\n\
                 concurrency=2            96             61.23         1.50         2\n";
    assert_eq!(speed_table(&report, None, false), table);
    let line = "concurrency=2: /m/tiny (f32, cpu (2 threads)): prefill 600 tok/s, decode 80 tok/s, step p50 20 ms; \
        peak memory 200 MiB";
    assert_eq!(terminal_lines(&report), [line]);
}

#[test]
fn results_json_has_the_model_or_null_for_a_server() {
    let model = json(&local_case(), |values| json!(values.max));
    assert_eq!(
        (
            &model["parameters"],
            &model["read_ms"],
            &model["measured"]["step_ms"]
        ),
        (&json!(1_234_000), &json!(5.0), &json!(30.0))
    );
    assert_eq!(
        (
            &model["measured"]["prefill_tps"],
            &model["measured"]["decode_tps"]
        ),
        (&json!(600.0), &json!(80.0))
    );
    assert_eq!(
        (
            &model["measured"]["device_memory"],
            json(&case(1), |_| Value::Null)
        ),
        (&Value::Null, Value::Null)
    );
    let speed = json!({ "prompt_tokens": 96, "ok": 2, "output_tps": 61.234, "memory": 1_500_000_000u64,
        "memory_of": "process" });
    assert_eq!(speed_json(&local_case()), [speed]);
}
