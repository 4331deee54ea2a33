//! How far the measured times are from the truth: `cargo bench --bench truth [-- --only 256]`.
//!
//! The simulator logs when it writes each token; the client says when it saw it. Both on one clock, in one process, on the
//! same cores: what is printed is scheduling, the loopback and the client together, an upper bound of the client's own error.

#[path = "../tests/it/witness.rs"]
mod witness;

use llmscen_core::report::InvalidReason;
use witness::*;

fn main() {
    println!(
        "true TTFT 100 ms, true gaps 10 ms, 100 tokens a request; measured minus truth in ms\n"
    );
    println!(
        "Users whose replies have equal lengths finish together, and send their next requests together.\n"
    );
    println!(
        "| streams | TTFT p50 | TTFT p99 | TTFT max | ITL p50 | ITL p99 | ITL max | sent late p50 | sent late p99 | sent late max | audit |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut args = std::env::args().skip_while(|arg| arg != "--only").skip(1);
    let only: Option<u32> = args.next().and_then(|streams| streams.parse().ok());
    for streams in [1, 32, 256, 1024] {
        if only.is_none_or(|only| only == streams) {
            closed(streams);
        }
    }
    if only.is_none() {
        open();
    }
}

fn closed(streams: u32) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let scenario = format!(
        "version: 1\nname: b\ntarget: {{ url: \"{{url}}\", model: m }}\nrequest: {{ max_tokens: 100 }}\n\
         dataset: {{ kind: prompt, text: \"{}\" }}\nload: {{ concurrency: {streams}, requests: {}, warmup: 1x }}\n\
         report: {{ formats: [json] }}\n",
        "word ".repeat(64),
        (streams * 4).max(8)
    );
    // 90 ms until it is queued and one step of 10 ms: a true TTFT of 100 to 110 ms.
    let simulator = "{ admission: 90ms, alpha: 10ms, beta: 0s, gamma: 0s, delta: 0s }";
    let (conducted, pairs) = witness(folder.path(), simulator, &scenario);
    let (ttft, itl, lags) = (ttft_errors(&pairs), itl_errors(&pairs), send_lags(&pairs));
    let at = |errors: &[f64]| {
        [0.5, 0.99, 1.0]
            .map(|share| format!("{:.3}", quantile(errors, share)))
            .join(" | ")
    };
    let audit = &conducted.report.cases[0].audit;
    let verdict = if audit.valid {
        "valid".to_owned()
    } else {
        InvalidReason::joined(&audit.reasons)
    };
    println!(
        "| {streams} | {} | {} | {} | {verdict} |",
        at(&ttft),
        at(&itl),
        at(&lags)
    );
}

fn open() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let scenario = "version: 1\nname: b\ntarget: { url: \"{url}\", model: m }\nrequest: { max_tokens: 8 }\n\
        dataset: { kind: prompt, text: hello }\nload: { rate: 200/s, duration: 10s }\nreport: { formats: [json] }\n";
    let (_, pairs) = witness(folder.path(), "{ alpha: 5ms }", scenario);
    let lags = send_lags(&pairs);
    println!(
        "\nopen loop, 200/s Poisson for 10 s: {} arrivals, sent late by p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms",
        lags.len(),
        quantile(&lags, 0.5),
        quantile(&lags, 0.99),
        quantile(&lags, 1.0)
    );
}
