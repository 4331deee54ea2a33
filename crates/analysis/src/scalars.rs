//! The case-level metrics. Rounds are pooled: a total over the sum of their windows, never a mean of rates.

use crate::CaseFacts;
use crate::in_flight::{InFlight, Steady, steady_state};
use crate::measured_requests::{MeasuredRequest, header_value};
use crate::request_row::RequestRow;
use crate::round::{Round, measured_share};
use crate::sending::{Flow, Windows, is_session, rates};
use crate::telemetry::{self, RoundTelemetry, Workers, imbalance};
use llmscen_core::manifest::Part;
use llmscen_core::metric::Metric;
use llmscen_core::stats::moments;
use llmscen_core::telemetry::Hardware;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The case-level metrics that exist.
pub(super) fn scalars(
    rounds: &[Round<'_, '_>],
    (requests, windows, flows): (&[MeasuredRequest<'_>], &Windows<'_>, &[Flow]),
    facts: &CaseFacts<'_>,
) -> BTreeMap<Metric, f64> {
    let seconds: f64 = rounds.iter().map(Round::length).sum();
    let sending = windows.requests.total();
    let has_sessions = rounds
        .iter()
        .flat_map(|round| round.measured())
        .any(|row| is_session(row, facts.case));
    let has_goodput = facts
        .case
        .checks
        .iter()
        .any(|check| check.subject.goodput_limits().is_some());
    let rate = |metric: Metric| match metric.undivided() {
        Metric::SessionThroughput if !has_sessions => None,
        Metric::GoodputRate if !has_goodput => None,
        undivided if undivided.is_session_rate() => {
            throughput(requests, flows, undivided, windows.sessions.total())
        }
        undivided => throughput(requests, flows, undivided, sending),
    };
    let mut scalars = rates(rounds, facts);
    let mut put = |metric, value: Option<f64>| {
        if let Some(value) = value {
            scalars.insert(metric, value);
        }
    };
    put(Metric::Window, (seconds > 0.0).then_some(seconds));
    put(Metric::ThroughputWindow, (sending > 0.0).then_some(sending));
    for (metric, with_drain) in [
        (
            Metric::RequestThroughput,
            Metric::RequestThroughputWithDrain,
        ),
        (Metric::OutputTps, Metric::OutputTpsWithDrain),
        (Metric::TotalTps, Metric::TotalTpsWithDrain),
    ] {
        put(metric, rate(metric));
        put(with_drain, rate_with_drain(requests, metric, seconds));
    }
    let gpus = facts
        .case
        .target
        .gpus
        .filter(|&gpus| gpus > 0)
        .map(f64::from);
    for metric in [Metric::InputTps, Metric::BilledTps, Metric::BilledTotalTps] {
        put(metric, rate(metric));
    }
    for metric in [
        Metric::InputTpsPerGpu,
        Metric::OutputTpsPerGpu,
        Metric::TotalTpsPerGpu,
    ] {
        let tps = rate(metric);
        put(metric, tps.zip(gpus).map(|(tps, gpus)| tps / gpus));
    }
    let cost = facts.case.target.cost_per_second();
    let costs = Metric::ALL
        .iter()
        .filter_map(|metric| Some((*metric, metric.cost_basis()?)));
    for (metric, (throughput, amount)) in costs {
        let rate = rate(throughput).filter(|rate| *rate > 0.0);
        put(
            metric,
            cost.zip(rate).map(|(cost, rate)| cost * amount / rate),
        );
    }
    put(Metric::OutputTpsPerUser, mean_user_tps(requests));
    for metric in [
        Metric::ItemThroughput,
        Metric::Rtfx,
        Metric::GoodputRate,
        Metric::SessionThroughput,
    ] {
        put(metric, rate(metric));
    }
    for share in Metric::ALL
        .iter()
        .filter(|metric| metric.is_request_share())
    {
        put(*share, request_share(requests, *share));
    }
    let per_hour = rate(Metric::SessionsPerHour).map(|sessions| sessions * 3600.0);
    put(Metric::SessionsPerHour, per_hour);
    put(
        Metric::SessionsPerHourPerGpu,
        per_hour.zip(gpus).map(|(sessions, gpus)| sessions / gpus),
    );
    put(Metric::CachedShare, cached_share(requests));
    put(Metric::CacheableShare, cacheable_share(rounds));
    put(
        Metric::EndpointImbalance,
        endpoint_imbalance(requests, facts.case.target.endpoint_names()),
    );
    put(
        Metric::ReplicaImbalance,
        facts
            .case
            .target
            .keep_headers
            .first()
            .and_then(|header| replica_imbalance(requests, header)),
    );
    put(Metric::Startup, startup_seconds(facts.parts));
    scalars.extend(in_flight_metrics(rounds, facts, seconds));
    scalars
}

/// What arrived in the throughput window by its length. None where no request has such an amount; a throughput of
/// requests or sessions may be 0.
pub(super) fn throughput<'f>(
    requests: &[MeasuredRequest<'_>],
    flows: impl IntoIterator<Item = &'f Flow>,
    metric: Metric,
    sending: f64,
) -> Option<f64> {
    let amount = || {
        flows
            .into_iter()
            .flat_map(|flow| flow.bins.values())
            .map(|bin| bin.amount(metric))
            .sum::<f64>()
    };
    exists(requests, metric, sending).then(|| amount() / sending)
}

/// The amount of all requests by the length of the measured window, its start and drain included.
fn rate_with_drain(requests: &[MeasuredRequest<'_>], metric: Metric, seconds: f64) -> Option<f64> {
    let amount = || {
        requests
            .iter()
            .filter_map(|request| request.credit(metric))
            .sum::<f64>()
    };
    exists(requests, metric, seconds).then(|| amount() / seconds)
}

/// Whether any request has an amount of a throughput; a total needs both of its parts.
pub(super) fn exists(requests: &[MeasuredRequest<'_>], throughput: Metric, seconds: f64) -> bool {
    let any = |metric| {
        let mut ok = requests.iter().filter(|request| request.ok());
        ok.any(|request| request.credit(metric).is_some())
    };
    seconds > 0.0
        && match throughput.undivided() {
            Metric::RequestThroughput | Metric::GoodputRate | Metric::SessionThroughput => true,
            Metric::TotalTps => any(Metric::InputTps) && any(Metric::OutputTps),
            Metric::BilledTotalTps => any(Metric::InputTps) && any(Metric::BilledTps),
            metric => any(metric),
        }
}

/// The output tokens of the URL that generated most over the mean of all URLs. None for one URL, and where tokens are
/// unknown.
fn endpoint_imbalance(requests: &[MeasuredRequest<'_>], endpoints: &[Arc<str>]) -> Option<f64> {
    let mut tokens = vec![0.0; endpoints.len()];
    for request in requests.iter().filter(|request| request.ok()) {
        let name = request.endpoint()?;
        let index = endpoints.iter().position(|endpoint| **endpoint == *name)?;
        *tokens.get_mut(index)? += request.value(Metric::OutputTokens)?;
    }
    imbalance(tokens.into_iter().map(Some))
}

/// The output tokens of the replica that generated most over the mean of all that answered, by the value of a kept
/// header. None where the header or the tokens of a request are unknown.
fn replica_imbalance(requests: &[MeasuredRequest<'_>], header: &str) -> Option<f64> {
    let mut tokens: BTreeMap<&str, f64> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.ok()) {
        let replica = header_value(request.kept_headers()?, header)?;
        *tokens.entry(replica).or_default() += request.value(Metric::OutputTokens)?;
    }
    if tokens.len() == 1 {
        return Some(1.0);
    }
    imbalance(tokens.into_values().map(Some))
}

/// The mean throughput of a user over the requests that have one.
pub(super) fn mean_user_tps(requests: &[MeasuredRequest<'_>]) -> Option<f64> {
    moments::mean(
        &requests
            .iter()
            .filter_map(|request| request.user_tps())
            .collect::<Vec<_>>(),
    )
}

/// Among the requests that the share applies to; the client cancelled none of them.
pub(super) fn request_share(requests: &[MeasuredRequest<'_>], share: Metric) -> Option<f64> {
    let hits = || requests.iter().filter_map(|request| request.is_hit(share));
    let n = hits().count();
    (n > 0).then(|| hits().filter(|hit| *hit).count() as f64 / n as f64)
}

/// Cached over all prompt tokens of the ok requests. None where the server reports no cached tokens; servers omit a
/// count of 0.
fn cached_share(requests: &[MeasuredRequest<'_>]) -> Option<f64> {
    let sum = |metric| {
        let values = requests
            .iter()
            .filter(|request| request.ok() && request.value(Metric::PromptTokens).is_some())
            .filter_map(|request| request.value(metric));
        values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
    };
    let prompt = sum(Metric::PromptTokens).filter(|tokens| *tokens > 0.0)?;
    Some(sum(Metric::CachedTokens)? / prompt)
}

/// The share of prompt tokens that an unlimited prefix cache would have, of the ok requests for which the local
/// tokenizer counts both.
fn cacheable_share(rounds: &[Round<'_, '_>]) -> Option<f64> {
    let known = rounds
        .iter()
        .flat_map(|round| round.measured())
        .filter(|row| row.ok())
        .filter_map(|row| {
            Some((
                row.metric(Metric::CacheableTokens)?,
                row.counted_prompt()? as f64,
            ))
        });
    let (cacheable, prompt) = known.fold((0.0, 0.0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
    (prompt > 0.0).then(|| cacheable / prompt)
}

/// Mean seconds until the managed server was ready, of the starts for this case, else of the servers that it ran on.
fn startup_seconds(parts: &[Part]) -> Option<f64> {
    let starts: Vec<f64> = parts
        .iter()
        .filter_map(|part| Some(part.startup.as_ref()?.ready.secs()))
        .collect();
    let served: Vec<f64> = parts
        .iter()
        .filter_map(|part| Some(part.served_ready?.secs()))
        .collect();
    moments::mean(&starts).or_else(|| moments::mean(&served))
}

fn in_flight_metrics(
    rounds: &[Round<'_, '_>],
    facts: &CaseFacts<'_>,
    seconds: f64,
) -> Vec<(Metric, f64)> {
    let shape = &facts.case.load.shape;
    let mut area = 0.0;
    let mut max = 0;
    let mut pooled = Steady::default();
    for (round, window) in rounds
        .iter()
        .filter_map(|round| round.window.map(|window| (round, window)))
    {
        let in_flight = InFlight::count(round.rows);
        let state = steady_state(round, &in_flight, shape);
        pooled = Steady {
            tokens: pooled.tokens + state.tokens,
            seconds: pooled.seconds + state.seconds,
        };
        area += in_flight.area(window);
        max = max.max(in_flight.max(window));
    }
    let streamed = rounds
        .iter()
        .flat_map(|round| round.rows)
        .any(|row| row.ok() && !row.events().is_empty());
    let mut found = Vec::new();
    if seconds > 0.0 {
        found.extend([
            (Metric::ConcurrencyMean, area / 1e9 / seconds),
            (Metric::ConcurrencyMax, f64::from(max)),
        ]);
    }
    if streamed && pooled.seconds > 0.0 {
        found.push((Metric::OutputTpsSteady, pooled.tokens / pooled.seconds));
    }
    found
}

// Hardware metrics: energy, FLOPS and memory bandwidth utilization. Formulas: docs/reference/metrics.md, "Metrics of
// a case". MFU after Chowdhery et al., "PaLM" (2022), appendix B, without its attention term; MBU after Databricks,
// "LLM Inference Performance Engineering: Best Practices" (2023), with the KV cache of a whole batch.

/// The hardware metrics that exist.
pub(super) fn hardware_scalars(
    rounds: &[Round<'_, '_>],
    requests: &[MeasuredRequest<'_>],
    (facts, telemetry_of_rounds): (&CaseFacts<'_>, &[RoundTelemetry<'_>]),
) -> Vec<(Metric, f64)> {
    let seconds: f64 = rounds.iter().map(Round::length).sum();
    let tokens = rate_with_drain(requests, Metric::BilledTps, seconds)
        .map(|tps| tps * seconds)
        .filter(|tokens| *tokens > 0.0);
    let windows = rounds.iter().filter(|round| round.window.is_some()).count();
    let energy = telemetry::energy(telemetry_of_rounds, windows, Workers::All)
        .zip(tokens)
        .map(|(joules, tokens)| joules * measured_share(rounds) / tokens);
    let gpus = facts
        .case
        .target
        .gpus
        .filter(|&gpus| gpus > 0)
        .map(f64::from);
    let total_peak = |peak: Option<f64>| {
        peak.zip(gpus)
            .map(|(peak, gpus)| peak * gpus)
            .filter(|peak| *peak > 0.0)
    };
    let hardware = facts.case.target.hardware;
    let mfu = hardware.and_then(|spec| {
        Some(
            2.0 * spec.parameters * computed_tokens(requests, seconds)?
                / total_peak(spec.peak_flops)?,
        )
    });
    let mbu = hardware
        .and_then(|spec| Some(bytes_read(rounds, &spec)? / total_peak(spec.peak_bandwidth)?));
    let all = [
        (Metric::EnergyPerToken, energy),
        (Metric::Mfu, mfu),
        (Metric::Mbu, mbu),
    ];
    all.into_iter()
        .filter_map(|(metric, value)| Some((metric, value?)))
        .collect()
}

/// Computed tokens per second: all tokens without the prompt tokens that the server reported as cached.
fn computed_tokens(requests: &[MeasuredRequest<'_>], seconds: f64) -> Option<f64> {
    let total = rate_with_drain(requests, Metric::BilledTotalTps, seconds)?;
    let counted = [Metric::PromptTokens, Metric::BilledTokens];
    let known = requests.iter().filter(|request| {
        request.ok() && counted.iter().all(|&count| request.value(count).is_some())
    });
    let cached: f64 = known
        .filter_map(|request| request.value(Metric::CachedTokens))
        .sum();
    Some(total - cached / seconds)
}

/// Bytes read per second of decoding: the weights once per step for all requests together, and the KV cache of each
/// request.
fn bytes_read(rounds: &[Round<'_, '_>], hardware: &Hardware) -> Option<f64> {
    let has_tpot = |row: &&RequestRow<'_>| row.ok() && row.metric(Metric::Tpot).is_some();
    let mut steps = 0.0;
    let mut time = 0.0;
    let mut context = Some(0.0);
    let mut busy = 0u64;
    for round in rounds {
        let decoding: Vec<&RequestRow<'_>> = round.measured().filter(has_tpot).collect();
        for row in &decoding {
            let spans = row.choice_spans();
            steps += row.decoded_tokens()? as f64;
            time += spans
                .iter()
                .map(|(first, last)| (last - first) as f64 / 1e9)
                .sum::<f64>();
            context = context
                .zip(context_read(row))
                .map(|(sum, tokens)| sum + tokens);
        }
        busy += covered_nanos(decoding.iter().flat_map(|row| row.choice_spans()).collect());
    }
    if steps <= 0.0 || time <= 0.0 || busy == 0 {
        return None;
    }
    let weights = hardware.weight_bytes * steps / time;
    if hardware.kv_bytes_per_token <= 0.0 {
        return Some(weights);
    }
    context.map(|tokens| weights + hardware.kv_bytes_per_token * tokens / (busy as f64 / 1e9))
}

/// Context tokens over all decoding steps of a request: step k reads the prompt and k tokens. The last step reads all
/// but the last token.
fn context_read(row: &RequestRow<'_>) -> Option<f64> {
    let choices = row.choice_spans().len() as f64;
    let each = row.metric(Metric::OutputTokens)? / choices;
    let steps = row.decoded_tokens()? as f64 / choices;
    let mean = each - (steps + 1.0) / 2.0;
    Some(choices * steps * (row.metric(Metric::PromptTokens)? + mean))
}

/// Length of the union of spans, in nanoseconds.
fn covered_nanos(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let mut reached = 0;
    spans.into_iter().fold(0, |sum, (from, to)| {
        let added = to.saturating_sub(from.max(reached));
        reached = reached.max(to);
        sum + added
    })
}

#[cfg(test)]
mod tests;
