//! What the requests took of the hardware: energy, operations, memory bandwidth.
//!
//! Formulas: docs/metrics.md, section 3. MFU after Chowdhery et al., "PaLM" (2022), appendix B, without its attention term; MBU
//! after Databricks, "LLM Inference Performance Engineering: Best Practices" (2023), with the KV cache of a whole batch.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::round::Round;
use crate::scalars::over_all;
use crate::telemetry::{self, Watched};
use llmscen_core::metric::Metric;
use llmscen_core::sample::Row;
use llmscen_core::telemetry::Hardware;

/// Those of them that exist.
pub(super) fn scalars(
    rounds: &[Round<'_, '_>],
    rows: &[Row],
    (facts, watched): (&CaseFacts<'_>, &[Watched<'_>]),
) -> Vec<(Metric, f64)> {
    let seconds: f64 = rounds.iter().map(Round::length).sum();
    let tokens = over_all(rows, Metric::OutputTps, seconds).map(|tps| tps * seconds).filter(|tokens| *tokens > 0.0);
    let windows = rounds.iter().filter(|round| round.window.is_some()).count();
    let energy = telemetry::energy(watched, windows).zip(tokens).map(|(joules, tokens)| joules / tokens);
    let gpus = facts.case.target.gpus.filter(|&gpus| gpus > 0).map(f64::from);
    let of_all = |peak: Option<f64>| peak.zip(gpus).map(|(peak, gpus)| peak * gpus).filter(|peak| *peak > 0.0);
    let hardware = facts.case.target.hardware;
    let mfu = hardware.and_then(|own| Some(2.0 * own.parameters * computed(rows, seconds)? / of_all(own.peak_flops)?));
    let mbu = hardware.and_then(|own| Some(read(rounds, &own)? / of_all(own.peak_bandwidth)?));
    let all = [(Metric::EnergyPerToken, energy), (Metric::Mfu, mfu), (Metric::Mbu, mbu)];
    all.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect()
}

/// Tokens per second that something was computed for: prompt tokens that the server says it took from its cache are none.
fn computed(rows: &[Row], seconds: f64) -> Option<f64> {
    let all = over_all(rows, Metric::TotalTps, seconds)?;
    let known = rows.iter().filter(|row| row.ok && row.prompt_tokens.is_some() && row.output_tokens.is_some());
    let cached: f64 = known.filter_map(|row| row.values.get(&Metric::CachedTokens)).sum();
    Some(all - cached / seconds)
}

/// Bytes read per second of decoding: the weights once a step, for all requests together, and the KV cache of each.
fn read(rounds: &[Round<'_, '_>], hardware: &Hardware) -> Option<f64> {
    let paced = |fact: &&RequestRow<'_>| fact.ok() && fact.metric(Metric::Tpot).is_some();
    let (mut steps, mut time, mut context, mut busy) = (0.0, 0.0, Some(0.0), 0u64);
    for round in rounds {
        let decoding: Vec<&RequestRow<'_>> = round.measured().filter(paced).collect();
        for fact in &decoding {
            let spans = fact.spans();
            steps += fact.metric(Metric::OutputTokens)? - spans.len() as f64;
            time += spans.iter().map(|(first, last)| (last - first) as f64 / 1e9).sum::<f64>();
            context = context.zip(context_read(fact)).map(|(sum, own)| sum + own);
        }
        busy += covered(decoding.iter().flat_map(|fact| fact.spans()).collect());
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

/// Tokens of context over all decoding steps of a request: its k-th step reads the prompt and k tokens.
fn context_read(fact: &RequestRow<'_>) -> Option<f64> {
    let choices = fact.spans().len() as f64;
    let each = fact.metric(Metric::OutputTokens)? / choices;
    Some(choices * (each - 1.0) * (fact.metric(Metric::PromptTokens)? + each / 2.0))
}

/// Nanoseconds that lie in any of these spans.
fn covered(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let mut reached = 0;
    spans.into_iter().fold(0, |sum, (from, to)| {
        let own = to.saturating_sub(from.max(reached));
        reached = reached.max(to);
        sum + own
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, facts, stream, table};
    use crate::sample::sample;
    use llmscen_core::load::Shape;
    use llmscen_core::outcome::Outcome;
    use llmscen_core::plan::Case;
    use llmscen_core::sample::Sample;
    use llmscen_core::signal::Signal;
    use llmscen_core::telemetry::{Reading, Recorded, Teller};

    fn with(gpus: Option<u32>, hardware: Option<Hardware>) -> Case {
        let mut case = case(Shape::Closed { users: 2 });
        (case.target.gpus, case.target.hardware) = (gpus, hardware);
        case
    }

    const GPU: Hardware = Hardware {
        parameters: 1e9,
        weight_bytes: 2e9,
        kv_bytes_per_token: 0.0,
        peak_flops: Some(1e12),
        peak_bandwidth: Some(1e12),
    };

    fn seen(case: &Case, rows: &[Outcome]) -> Sample {
        sample(&table("a", rows), &facts(case))
    }

    #[test]
    fn one_request_is_the_formula_of_its_source() {
        // 10 prompt and 5 output tokens in 500 ms; a token each 100 ms, so that the weights are read 10 times a second.
        let rows = [stream(0, 0, &[100, 200, 300, 400, 500])];
        let scalars = seen(&with(Some(2), Some(GPU)), &rows).scalars;
        assert_eq!((scalars[&Metric::Mfu], scalars[&Metric::Mbu]), (2e9 * 30.0 / 2e12, 2e9 * 10.0 / 2e12));
        // Four steps over contexts of 11, 12, 13 and 14 tokens: 50 in 0.4 s.
        let cached = Hardware { kv_bytes_per_token: 1e6, ..GPU };
        let scalars = seen(&with(Some(1), Some(cached)), &rows).scalars;
        assert_eq!(scalars[&Metric::Mbu], (2e10 + 1e6 * 50.0 / 0.4) / 1e12);
    }

    #[test]
    fn a_batch_reads_the_weights_once_and_each_cache_for_itself() {
        let hardware = Hardware { kv_bytes_per_token: 1e6, ..GPU };
        let rows = [0, 1].map(|seq| stream(seq, 0, &[100, 200, 300, 400, 500]));
        let scalars = seen(&with(Some(1), Some(hardware)), &rows).scalars;
        assert_eq!(scalars[&Metric::Mbu], (2e10 + 1e6 * 100.0 / 0.4) / 1e12);
    }

    #[test]
    fn tokens_from_the_cache_took_no_operations() {
        let mut row = stream(0, 0, &[100, 500]);
        row.usage.cached = Some(8);
        let scalars = seen(&with(Some(1), Some(GPU)), &[row]).scalars;
        assert_eq!(scalars[&Metric::Mfu], 2e9 * (2.0 + 2.0) / 0.5 / 1e12);
    }

    #[test]
    fn what_is_unknown_gives_no_figure() {
        let rows = [stream(0, 0, &[100, 500])];
        let none = |gpus, hardware| {
            let scalars = seen(&with(gpus, hardware), &rows).scalars;
            [Metric::Mfu, Metric::Mbu, Metric::EnergyPerToken].map(|metric| scalars.contains_key(&metric))
        };
        assert_eq!(none(None, Some(GPU)), [false; 3]);
        assert_eq!(none(Some(1), None), [false; 3]);
        assert_eq!(none(Some(1), Some(Hardware { peak_flops: None, ..GPU })), [false, true, false]);
        let mut unknown = stream(0, 0, &[100, 500]);
        unknown.usage.prompt = None;
        let hardware = Hardware { kv_bytes_per_token: 1.0, ..GPU };
        assert!(!seen(&with(Some(1), Some(hardware)), &[unknown]).scalars.contains_key(&Metric::Mbu));
    }

    #[test]
    fn energy_is_power_over_the_window_by_the_tokens_of_it() {
        // The window is from 0 to 2 s; 100 W at −1 s, 300 W at 1 s and 3 s: 200 to 300 W in the first second, 300 W in the next.
        let power = |at_s: i64, value: f64| Reading {
            at_ns: at_s * 1_000_000_000,
            teller: Teller::Nvml,
            name: Signal::GpuPower.name().into(),
            labels: "".into(),
            device: Some(0),
            value,
        };
        let readings = vec![power(-1, 100.0), power(1, 300.0), power(3, 300.0)];
        let recorded = Recorded { case: "a".into(), round: 0, readings };
        let table = table("a", &[stream(0, 0, &[500, 2000])]).beside(vec![recorded]);
        let scalars = sample(&table, &facts(&with(None, None))).scalars;
        assert_eq!(scalars[&Metric::EnergyPerToken], (250.0 + 300.0) / 2.0);
    }
}
