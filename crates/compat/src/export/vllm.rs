//! The file of `vllm bench serve --save-result --save-detailed` (vllm/benchmarks/serve.py).
//!
//! Latencies start at the actual send time. Quantiles are interpolated linearly, standard deviations are those of a
//! population.

use crate::export::measured::{SortedValues, secs};
use crate::export::{Export, ExportError, File, Measured, Names, slug};
use llmscen_analysis::TimedRequest;
use llmscen_core::api::Api;
use llmscen_core::load::Arrival;
use llmscen_core::metric::Metric;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// As with `--metric-percentiles 50,90,95,99`.
const PERCENTS: [u32; 4] = [50, 90, 95, 99];

/// A file per case.
#[derive(Debug, Default)]
pub(super) struct Vllm {
    names: Names,
}

/// The file. Lists have an entry per request; missing values are null.
#[derive(Serialize)]
struct SavedResult {
    #[serde(flatten)]
    head: Map<String, Value>,
    input_lens: Vec<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_lens: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttfts: Option<Vec<Option<f64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    itls: Option<Vec<Vec<f64>>>,
    latencies: Vec<Option<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_times: Option<Vec<Option<f64>>>,
    queue_times: Vec<Option<f64>>,
    errors: Vec<String>,
    #[serde(flatten)]
    tail: Map<String, Value>,
}

impl Export for Vllm {
    fn case(&mut self, case: &Measured<'_>) -> Result<Vec<File>, ExportError> {
        let name = self.names.unique(&stem(case)) + ".json";
        Ok(vec![File {
            name,
            bytes: serde_json::to_vec(&saved(case))?,
        }])
    }

    fn end(&mut self) -> Result<Vec<File>, ExportError> {
        Ok(Vec::new())
    }
}

/// `openai-chat-8.0qps-concurrency16-model-20260102-030405`; with swept values, the case replaces the backend.
fn stem(case: &Measured<'_>) -> String {
    let label = label(case).unwrap_or_else(|| backend(case.case.target.api).to_owned());
    let rate = case
        .rate()
        .map_or_else(|| "inf".to_owned(), |rate| format!("{rate:?}"));
    let limit = case
        .concurrency()
        .map(|users| format!("-concurrency{users}"))
        .unwrap_or_default();
    let model = case.model().rsplit('/').next().unwrap_or_default();
    slug(&format!("{label}-{rate}qps{limit}-{model}-{}", date(case)))
}

/// The case id, if values are swept (`--label`).
fn label(case: &Measured<'_>) -> Option<String> {
    (!case.case.labels.0.is_empty()).then(|| case.case.id.clone())
}

fn date(case: &Measured<'_>) -> String {
    let date = case.date(Default::default());
    let (hour, minute, second) = date.to_hms();
    let day = date.date().to_string().replace('-', "");
    format!("{day}-{hour:02}{minute:02}{second:02}")
}

/// vLLM's name of a protocol.
fn backend(api: Api) -> &'static str {
    match api {
        Api::OpenaiCompletions => "openai",
        Api::Rerank => "vllm-rerank",
        api => api.name(),
    }
}

/// The values of the file without its lists.
pub(super) fn summary(case: &Measured<'_>) -> Map<String, Value> {
    let mut all = head(case);
    all.extend(tail(case, case.case.target.api.generates()));
    all
}

fn saved(case: &Measured<'_>) -> SavedResult {
    let generates = case.case.target.api.generates();
    let each = |get: &dyn Fn(&TimedRequest<'_>) -> Option<f64>| {
        case.rows.iter().map(get).collect::<Vec<_>>()
    };
    let seconds = |metric: Metric| each(&|row| row.get(metric).filter(|_| row.ok()).map(secs));
    let count = |tokens: Option<f64>| tokens.map(|tokens| tokens as u64);
    let gaps = |row: &TimedRequest<'_>| row.gaps().into_iter().map(secs).collect::<Vec<_>>();
    let output_if_ok = |row: &TimedRequest<'_>| row.output_tokens().filter(|_| row.ok());
    SavedResult {
        head: head(case),
        input_lens: case
            .rows
            .iter()
            .map(|row| count(row.prompt_tokens()))
            .collect(),
        output_lens: generates.then(|| {
            case.rows
                .iter()
                .map(|row| count(output_if_ok(row)).unwrap_or(0))
                .collect()
        }),
        ttfts: generates.then(|| seconds(Metric::TtftService)),
        itls: generates.then(|| case.rows.iter().map(gaps).collect()),
        latencies: seconds(Metric::E2eService),
        start_times: generates.then(|| each(&|row| row.sent().map(|sent| sent.secs()))),
        queue_times: each(&|row| row.sent().map(|sent| sent.since(row.intended()).secs())),
        errors: case.rows.iter().map(error).collect(),
        tail: tail(case, generates),
    }
}

fn error(row: &TimedRequest<'_>) -> String {
    match row.failure() {
        Some(kind) if row.message().is_empty() => kind.name().to_owned(),
        Some(kind) => format!("{kind}: {}", row.message()),
        None => String::new(),
    }
}

fn head(case: &Measured<'_>) -> Map<String, Value> {
    let (api, window) = (case.case.target.api, case.window());
    let over = |amount: Option<f64>| amount.zip(window).map(|(amount, window)| amount / window);
    let (input, output) = (
        case.total(Metric::PromptTokens),
        case.total(Metric::BilledTokens),
    );
    let burstiness = match case.arrival() {
        Some(Arrival::Gamma { burstiness }) => Some(burstiness),
        Some(Arrival::Constant) => None,
        Some(Arrival::Poisson) | None => Some(1.0),
    };
    let mut head = pairs([
        ("date", json!(date(case))),
        ("endpoint_type", json!(backend(api))),
        ("backend", json!(backend(api))),
        ("label", json!(label(case))),
        ("model_id", json!(case.model())),
        ("tokenizer_id", json!(case.case.dataset.tokenizer)),
        ("num_prompts", json!(case.rows.len())),
        (
            "request_rate",
            case.rate().map_or_else(|| json!("inf"), |rate| json!(rate)),
        ),
        ("burstiness", json!(burstiness)),
        ("max_concurrency", json!(case.concurrency())),
        ("duration", json!(window)),
        ("completed", json!(case.completed())),
        ("failed", json!(case.failed())),
        (
            "total_input_tokens",
            json!(input.map(|tokens| tokens as u64)),
        ),
    ]);
    if api.generates() {
        head.extend(pairs([
            (
                "total_output_tokens",
                json!(output.map(|tokens| tokens as u64)),
            ),
            (
                "request_throughput",
                json!(over(Some(case.completed() as f64))),
            ),
            (
                "request_goodput",
                json!(over(case.good_requests().map(|good| good as f64))),
            ),
            ("output_throughput", json!(over(output))),
            (
                "total_token_throughput",
                json!(over(
                    input.zip(output).map(|(input, output)| input + output)
                )),
            ),
        ]));
    } else {
        let items = case.total(Metric::Items);
        head.extend(pairs([
            (
                "total_input_sequences",
                json!(items.map(|items| items as u64)),
            ),
            (
                "request_throughput",
                json!(over(Some(case.completed() as f64))),
            ),
            ("input_sequence_throughput", json!(over(items))),
            ("total_token_throughput", json!(over(input))),
        ]));
    }
    head
}

fn pairs<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

fn tail(case: &Measured<'_>, generates: bool) -> Map<String, Value> {
    let mut tail = Map::new();
    if generates {
        tail.insert(
            "max_output_tokens_per_s".into(),
            json!(busiest_second(case)),
        );
        tail.insert("max_concurrent_requests".into(), json!(max_in_flight(case)));
        let tpots = case
            .ok()
            .filter_map(|row| row.pace_ms(row.get(Metric::E2eService)))
            .collect();
        add_statistics(&mut tail, "ttft", case.values(Metric::TtftService));
        add_statistics(&mut tail, "tpot", tpots);
        add_statistics(&mut tail, "itl", case.gaps());
    }
    add_statistics(&mut tail, "e2el", case.values(Metric::E2eService));
    tail
}

/// Mean, median, standard deviation and percentiles of a metric in milliseconds; null without values.
fn add_statistics(tail: &mut Map<String, Value>, name: &str, values: Vec<f64>) {
    let sorted = SortedValues::new(values);
    let mut add = |stat: &str, get: &dyn Fn(&SortedValues) -> f64| {
        tail.insert(format!("{stat}_{name}_ms"), json!(sorted.as_ref().map(get)))
    };
    add("mean", &SortedValues::mean);
    add("median", &|values| values.linear(50.0));
    add("std", &SortedValues::sd);
    for percent in PERCENTS {
        add(&format!("p{percent}"), &|values| {
            values.linear(f64::from(percent))
        });
    }
}

/// The most token events in one second after the first send time. None without streams.
fn busiest_second(case: &Measured<'_>) -> Option<f64> {
    let start = case.ok().filter_map(|row| row.sent()).min()?;
    let mut seconds: BTreeMap<u64, u64> = BTreeMap::new();
    for (row, first) in case.ok().filter_map(|row| Some((row, row.first_token()?))) {
        let mut at = first.since(start).millis();
        *seconds.entry((at / 1e3) as u64).or_default() += 1;
        for gap in &row.gaps() {
            at += gap;
            *seconds.entry((at / 1e3) as u64).or_default() += 1;
        }
    }
    seconds.values().max().map(|&most| most as f64)
}

/// The most successful requests in flight. A request that ends when another starts does not overlap it.
fn max_in_flight(case: &Measured<'_>) -> u64 {
    let spans = case.ok().filter_map(|row| Some((row.sent()?, row.end())));
    let mut changes: Vec<_> = spans
        .flat_map(|(from, to)| [(from, 1i64), (to, -1)])
        .collect();
    changes.sort_unstable();
    let mut now = 0i64;
    let mut most = 0i64;
    for (_, step) in changes {
        now += step;
        most = most.max(now);
    }
    most.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::{case, files, rows, texts};
    use llmscen_core::artifacts::ExportFormat;
    use llmscen_core::check::{Check, Confidence, NoData, Op, RequestLimit, RequestSet, Subject};
    use llmscen_core::label::Labels;
    use llmscen_core::load::Shape;

    #[test]
    fn statistics_are_those_of_numpy() {
        let [(name, text)] = <[_; 1]>::try_from(texts(ExportFormat::Vllm)).unwrap();
        assert_eq!(
            name,
            "concurrency=2-infqps-concurrency2-m-7b-20260102-030405.json"
        );
        let saved: Value = serde_json::from_str(&text).unwrap();
        let number = |key: &str| saved[key].as_f64().unwrap();
        assert_eq!(
            [
                "completed",
                "failed",
                "num_prompts",
                "total_input_tokens",
                "total_output_tokens"
            ]
            .map(number),
            [4.0, 2.0, 6.0, 40.0, 10.0]
        );
        assert_eq!(
            [
                "duration",
                "request_throughput",
                "output_throughput",
                "total_token_throughput"
            ]
            .map(number),
            [2.0, 2.0, 5.0, 25.0]
        );
        // numpy: mean, median, std and percentile(…, 99) of [50, 90, 40, 100].
        let ttft = [
            "mean_ttft_ms",
            "median_ttft_ms",
            "std_ttft_ms",
            "p99_ttft_ms",
        ]
        .map(number);
        assert_eq!(ttft, [70.0, 70.0, 25.495097567963924, 99.7]);
        assert_eq!(
            ["mean_tpot_ms", "median_tpot_ms", "p99_tpot_ms"].map(number),
            [24.0, 26.0, 33.84]
        );
        assert_eq!(
            ["median_itl_ms", "p99_itl_ms", "mean_e2el_ms"].map(number),
            [20.0, 58.50000000000001, 112.0]
        );
        assert_eq!(
            ["max_output_tokens_per_s", "max_concurrent_requests"].map(number),
            [9.0, 2.0]
        );
        assert_eq!(
            (
                &saved["date"],
                &saved["request_rate"],
                &saved["request_goodput"]
            ),
            (&json!("20260102-030405"), &json!("inf"), &Value::Null)
        );
    }

    #[test]
    fn lists_have_an_entry_per_request() {
        let saved: Value = serde_json::from_str(&texts(ExportFormat::Vllm)[0].1).unwrap();
        assert_eq!(saved["output_lens"], json!([3, 4, 2, 0, 0, 1]));
        assert_eq!(saved["ttfts"], json!([0.05, 0.09, 0.04, null, null, 0.1]));
        assert_eq!(
            saved["itls"],
            json!([[0.02, 0.03], [0.02, 0.02, 0.06], [0.01], [], [], []])
        );
        assert_eq!(
            (
                &saved["start_times"][4],
                &saved["start_times"][5],
                &saved["queue_times"][0]
            ),
            (&Value::Null, &json!(1.0), &json!(0.001))
        );
        assert_eq!(
            (&saved["errors"][3], &saved["errors"][0]),
            (&json!("http_5xx: no \"luck\", at all"), &json!(""))
        );
        assert!(saved.get("generated_texts").is_none());
    }

    #[test]
    fn goodput_is_over_the_full_duration() {
        let mut limited = case(Shape::Closed { users: 2 });
        limited.checks.push(Check {
            expr: "goodput(ttft < 60ms) >= 50%".into(),
            subject: Subject::Goodput(vec![RequestLimit {
                metric: Metric::Ttft,
                op: Op::Less,
                limit: 60.0,
            }]),
            op: Op::AtLeast,
            limit: 0.5,
            confidence: Confidence::Point,
            when: Labels::default(),
            of: RequestSet::Ok,
            no_data: NoData::Fail,
            relative: None,
            abort: None,
            is_default: false,
        });
        let saved: Value =
            serde_json::from_slice(&files(ExportFormat::Vllm, &limited, rows())[0].bytes).unwrap();
        // First tokens after 51, 91, 41 and 101 ms: two good ones in the 2 s until the last end.
        assert_eq!(
            (&saved["request_goodput"], &saved["duration"]),
            (&json!(1.0), &json!(2.0))
        );
    }

    #[test]
    fn an_open_loop_is_named_by_its_rate() {
        let open = case(Shape::Open {
            rate: 8.0,
            arrival: Arrival::Constant,
        });
        let file = files(ExportFormat::Vllm, &open, rows()).remove(0);
        assert_eq!(file.name, "concurrency=2-8.0qps-m-7b-20260102-030405.json");
        let saved: Value = serde_json::from_slice(&file.bytes).unwrap();
        assert_eq!(
            (
                &saved["request_rate"],
                &saved["burstiness"],
                &saved["max_concurrency"]
            ),
            (&json!(8.0), &Value::Null, &Value::Null)
        );
    }

    #[test]
    fn without_a_success_statistics_are_null() {
        let lost = rows().into_iter().filter(|row| row.end.is_err()).collect();
        let file = files(ExportFormat::Vllm, &case(Shape::Burst), lost).remove(0);
        let saved: Value = serde_json::from_slice(&file.bytes).unwrap();
        assert_eq!(
            (
                &saved["completed"],
                &saved["failed"],
                &saved["mean_ttft_ms"]
            ),
            (&json!(0), &json!(2), &Value::Null)
        );
    }
}
