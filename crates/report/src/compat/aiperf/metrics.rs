//! AIPerf's metrics, by their tags.

use crate::compat::Measured;
use crate::compat::spread::Spread;
use llmscen_analysis::TimedRequest;
use llmscen_core::check::Subject;
use llmscen_core::metric::Metric;

/// A metric with its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tagged {
    /// Its key in JSON.
    pub tag: &'static str,
    /// Its name in tables.
    pub header: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its value.
    pub figure: Figure,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Figure {
    /// Of many requests.
    Spread(Spread),
    /// A whole number.
    Count(usize),
    /// Any other.
    Number(f64),
}

impl Tagged {
    /// Its name with its unit.
    pub(super) fn title(&self) -> String {
        match self.unit {
            "requests" => self.header.to_owned(),
            unit => format!("{} ({unit})", self.header),
        }
    }
}

/// A metric of single requests, and its value for one.
pub(super) type PerRequest = (&'static str, &'static str, &'static str, fn(&TimedRequest<'_>) -> Option<f64>);

/// The metrics of single requests, but for the one that is a list. Only ok requests have any.
pub(super) const PER_REQUEST: [PerRequest; 11] = [
    ("request_latency", "Request Latency", "ms", |row| row.answer_ms()),
    ("time_to_first_token", "Time to First Token", "ms", |row| row.get(Metric::TtftService)),
    ("time_to_second_token", "Time to Second Token", "ms", |row| row.gaps().first().copied()),
    ("inter_token_latency", "Inter Token Latency", "ms", pace),
    ("output_token_throughput_per_user", "Output Token Throughput Per User", "tokens/sec/user", |row| per_s(1.0, pace(row))),
    ("e2e_output_token_throughput", "E2E Output Token Throughput", "tokens/sec/user", |row| {
        per_s(row.output_tokens()?, row.answer_ms())
    }),
    ("prefill_throughput_per_user", "Prefill Throughput Per User", "tokens/sec/user", |row| {
        per_s(row.prompt_tokens()?, row.get(Metric::TtftService))
    }),
    ("output_sequence_length", "Output Sequence Length", "tokens", |row| row.output_tokens()),
    ("input_sequence_length", "Input Sequence Length", "tokens", |row| row.prompt_tokens()),
    ("output_token_count", "Output Token Count", "tokens", |row| {
        Some(row.output_tokens()? - row.get(Metric::ReasoningTokens).unwrap_or(0.0))
    }),
    ("reasoning_token_count", "Reasoning Token Count", "tokens", |row| row.get(Metric::ReasoningTokens)),
];

fn pace(row: &TimedRequest<'_>) -> Option<f64> {
    row.pace_ms(row.answer_ms())
}

fn per_s(amount: f64, millis: Option<f64>) -> Option<f64> {
    millis.filter(|&millis| millis > 0.0).map(|millis| amount * 1e3 / millis)
}

/// Everything that exists of a case.
pub(super) fn figures(case: &Measured<'_>) -> Vec<Tagged> {
    let spread = |(tag, header, unit, get): PerRequest| {
        let figure = Figure::Spread(Spread::of(case.ok().filter_map(get).collect())?);
        Some(Tagged { tag, header, unit, figure })
    };
    let mut figures: Vec<Tagged> = PER_REQUEST.into_iter().filter_map(spread).collect();
    if let Some(gaps) = Spread::of(case.gaps()) {
        let figure = Figure::Spread(gaps);
        figures.push(Tagged { tag: "inter_chunk_latency", header: "Inter Chunk Latency", unit: "ms", figure });
    }
    figures.extend(lone(case));
    figures
}

/// The figures that a case has one of.
fn lone(case: &Measured<'_>) -> Vec<Tagged> {
    let time = case.span(|row| row.ok(), |row| row.last_token().unwrap_or(row.end()));
    let over = |amount: Option<f64>| amount.zip(time).map(|(amount, time)| amount / time);
    let sum = |tag: &str| {
        let (.., get) = PER_REQUEST.into_iter().find(|metric| metric.0 == tag)?;
        Some(Spread::of(case.ok().filter_map(get).collect())?.sum())
    };
    let (input, output) = (sum("input_sequence_length"), sum("output_sequence_length"));
    let (ok, failed) = (case.completed(), case.failed());
    let good = good(case);
    let mut out = Vec::new();
    let mut put = |tag, header, unit, figure: Option<Figure>| {
        out.extend(figure.map(|figure| Tagged { tag, header, unit, figure }));
    };
    let number = |value: Option<f64>| value.map(Figure::Number);
    let tokens = |value: Option<f64>| value.map(|value| Figure::Count(value as usize));
    put("request_count", "Request Count", "requests", (ok > 0).then_some(Figure::Count(ok)));
    put("error_request_count", "Error Request Count", "requests", (failed > 0).then_some(Figure::Count(failed)));
    let share = (ok + failed > 0).then(|| 100.0 * failed as f64 / (ok + failed) as f64);
    put("request_error_rate", "Request Error Rate", "%", number(share));
    put("request_throughput", "Request Throughput", "requests/sec", number(over(Some(ok as f64))));
    put("output_token_throughput", "Output Token Throughput", "tokens/sec", number(over(output)));
    put("input_token_throughput", "Input Token Throughput", "tokens/sec", number(over(input)));
    let total = input.zip(output).map(|(input, output)| input + output);
    put("total_token_throughput", "Total Token Throughput", "tokens/sec", number(over(total)));
    put("benchmark_duration", "Benchmark Duration", "sec", number(time));
    put("total_isl", "Total Input Sequence Length", "tokens", tokens(input));
    put("total_osl", "Total Output Sequence Length", "tokens", tokens(output));
    put("total_output_tokens", "Total Output Tokens", "tokens", tokens(sum("output_token_count")));
    put("total_reasoning_tokens", "Total Reasoning Tokens", "tokens", tokens(sum("reasoning_token_count")));
    put("good_request_count", "Good Request Count", "requests", good.map(Figure::Count));
    put("goodput", "Goodput", "requests/sec", number(over(good.map(|good| good as f64))));
    out
}

/// Requests that meet the limits of the goodput that the scenario asserts.
fn good(case: &Measured<'_>) -> Option<usize> {
    let limits = case.case.checks.iter().find_map(|check| match &check.subject {
        Subject::Goodput(limits) => Some(limits),
        Subject::Metric { .. } | Subject::Signal { .. } => None,
    })?;
    Some(case.rows.iter().filter(|row| row.meets(limits)).count())
}
