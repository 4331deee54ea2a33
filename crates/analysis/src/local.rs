//! Metrics of a local model over the measured batches of all rounds.

use crate::sample::distribution;
use llmscen_core::dataset::Source;
use llmscen_core::local::{Batch, LocalRound};
use llmscen_core::metric::Metric;
use llmscen_core::plan::Case;
use llmscen_core::report::{GroupReport, SpeedRow};
use llmscen_core::sample::SummaryStatistics;
use llmscen_core::units::Nanos;

/// Metrics of the measured batches of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchMetrics {
    /// Number of batches.
    pub batches: u64,
    /// Number of requests.
    pub rows: u64,
    /// Prompt tokens without padding.
    pub prompt_tokens: u64,
    /// Tokens of the longest prompt.
    pub padded_to: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// Prefill time of a batch, up to its first tokens, in milliseconds.
    pub prefill_ms: Option<SummaryStatistics>,
    /// Time of each decode step, in milliseconds.
    pub step_ms: Option<SummaryStatistics>,
    /// Prefill throughput in tokens per second over all batches, and its distribution over batches.
    pub prefill_tps: (Option<f64>, Option<SummaryStatistics>),
    /// Decode throughput: tokens after the first of each request over the time of the decode steps.
    pub decode_tps: (Option<f64>, Option<SummaryStatistics>),
    /// Resident memory of this process in bytes: after the last batch, and the peak.
    pub memory: (u64, u64),
    /// Memory mapped by the allocator in bytes: after the last batch, and the maximum after a batch; None where
    /// unknown.
    pub memory_reserved: (Option<u64>, Option<u64>),
    /// Device memory in bytes: after the last batch, and the peak; None on a CPU, or where unknown.
    pub device_memory: (Option<u64>, Option<u64>),
}

/// The metrics of a case; None without a measured batch.
pub fn batch_metrics(parts: &[LocalRound]) -> Option<BatchMetrics> {
    let batches = || {
        parts
            .iter()
            .flat_map(|part| &part.batches)
            .filter(|batch| batch.measured)
    };
    let last = batches().next_back()?;
    let sum = |value: fn(&Batch) -> u64| batches().map(value).sum::<u64>();
    let spread =
        |value: fn(&Batch) -> Option<f64>| distribution(batches().filter_map(value).collect());
    Some(BatchMetrics {
        batches: batches().count() as u64,
        rows: sum(|batch| batch.seqs.len() as u64),
        prompt_tokens: sum(|batch| batch.prompt_tokens),
        padded_to: batches().map(|batch| batch.padded_to).max()?,
        output_tokens: sum(|batch| batch.output_tokens),
        prefill_ms: spread(|batch| Some(batch.prefill.millis())),
        step_ms: distribution(
            batches()
                .flat_map(|batch| &batch.steps)
                .map(|step| step.millis())
                .collect(),
        ),
        prefill_tps: (
            rate(
                sum(|batch| batch.prompt_tokens),
                Nanos(sum(|batch| batch.prefill.0)),
            ),
            spread(prefill_tps),
        ),
        decode_tps: (
            rate(
                sum(decoded_tokens),
                Nanos(sum(|batch| decode_time(batch).0)),
            ),
            spread(decode_tps),
        ),
        memory: (
            last.memory,
            parts.iter().map(|part| part.memory_peak).max()?,
        ),
        memory_reserved: (
            last.memory_reserved,
            batches().filter_map(|batch| batch.memory_reserved).max(),
        ),
        device_memory: (
            last.device_memory,
            parts
                .iter()
                .filter_map(|part| part.device_memory_peak)
                .max(),
        ),
    })
}

fn rate(tokens: u64, time: Nanos) -> Option<f64> {
    (tokens > 0 && time > Nanos::ZERO).then(|| tokens as f64 / time.secs())
}

/// Tokens after the first of each request: those of the decode steps.
fn decoded_tokens(batch: &Batch) -> u64 {
    batch.output_tokens.saturating_sub(batch.seqs.len() as u64)
}

fn decode_time(batch: &Batch) -> Nanos {
    Nanos(batch.steps.iter().map(|step| step.0).sum())
}

fn prefill_tps(batch: &Batch) -> Option<f64> {
    rate(batch.prompt_tokens, batch.prefill)
}

fn decode_tps(batch: &Batch) -> Option<f64> {
    rate(decoded_tokens(batch), decode_time(batch))
}

/// The table of a `speed_benchmark` by prompt length; empty for other datasets.
pub fn speed_table(case: &Case, groups: &[GroupReport], parts: &[LocalRound]) -> Vec<SpeedRow> {
    if !matches!(case.dataset.source, Source::SpeedBenchmark { .. }) || !case.mix.is_empty() {
        return Vec::new();
    }
    let row = |group: &GroupReport| {
        let measured = || {
            parts
                .iter()
                .flat_map(|part| &part.batches)
                .filter(|batch| batch.measured)
        };
        let of_group = || measured().filter(|batch| batch.group.as_ref() == Some(&group.name));
        let device = of_group().filter_map(|batch| batch.device_memory).max();
        Some(SpeedRow {
            prompt_tokens: group.name.parse().ok()?,
            ok: group.ok,
            tokens_per_second: group.scalars.get(&Metric::OutputTpsPerUser).copied(),
            memory: device.or_else(|| {
                of_group()
                    .map(|batch| batch.memory)
                    .max()
                    .filter(|memory| *memory > 0)
            }),
            device_memory: device.is_some(),
        })
    };
    let mut rows: Vec<SpeedRow> = groups.iter().filter_map(row).collect();
    rows.sort_by_key(|row| row.prompt_tokens);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn batch(measured: bool, prefill: u64, steps: &[u64], memory: u64) -> Batch {
        Batch {
            seqs: vec![0, 1],
            measured,
            prompt_tokens: 60,
            padded_to: 40,
            output_tokens: 2 + 2 * steps.len() as u64,
            prefill: Nanos(prefill * MS),
            steps: steps.iter().map(|step| Nanos(step * MS)).collect(),
            memory,
            group: Some("96".into()),
            ..Batch::default()
        }
    }

    fn part(batches: Vec<Batch>) -> LocalRound {
        LocalRound {
            batches,
            memory_peak: 900,
            ..LocalRound::default()
        }
    }

    #[test]
    fn metrics_are_those_of_the_measured_batches() {
        let first = part(vec![
            batch(false, 999, &[999], 1),
            batch(true, 100, &[10, 20, 30], 500),
        ]);
        let second = part(vec![batch(true, 300, &[40], 700)]);
        let seen = batch_metrics(&[first, second]).unwrap();
        assert_eq!(
            (
                seen.batches,
                seen.rows,
                seen.prompt_tokens,
                seen.padded_to,
                seen.output_tokens
            ),
            (2, 4, 120, 40, 12)
        );
        let (prefill, step) = (seen.prefill_ms.unwrap(), seen.step_ms.unwrap());
        assert_eq!(
            (prefill.n, prefill.mean, prefill.min, prefill.max),
            (2, 200.0, 100.0, 300.0)
        );
        assert_eq!(
            (step.n, step.quantile(0.5), step.quantile(0.99), step.mean),
            (4, Some(20.0), Some(40.0), 25.0)
        );
        // 120 tokens in 0.4 s; 2 rows of 3 and of 1 later tokens in 0.1 s.
        assert_eq!(
            (seen.prefill_tps.0, seen.decode_tps.0),
            (Some(300.0), Some(80.0))
        );
        let each = [seen.prefill_tps.1.unwrap(), seen.decode_tps.1.unwrap()];
        assert_eq!(
            each.map(|own| (own.min, own.max)),
            [(200.0, 600.0), (50.0, 100.0)]
        );
        assert_eq!(
            (seen.memory, seen.device_memory),
            ((700, 900), (None, None))
        );
    }

    #[test]
    fn unmeasured_batches_have_no_metrics() {
        assert_eq!(batch_metrics(&[part(vec![batch(false, 1, &[1], 1)])]), None);
        let single = batch_metrics(&[part(vec![Batch {
            output_tokens: 2,
            ..batch(true, 10, &[], 5)
        }])])
        .unwrap();
        assert_eq!((single.step_ms, single.decode_tps), (None, (None, None)));
    }

    #[test]
    fn the_speed_table_is_ordered_by_length_with_memory() {
        let yaml = "version: 1\nname: t\ntarget: {url: simulator}\ndataset: \
        speed_benchmark\nload: {concurrency: 1, requests: 1}\n";
        let env = std::collections::BTreeMap::new();
        let input = llmscen_scenario::Input {
            path: std::path::Path::new("t.yaml"),
            text: Some(yaml.into()),
            env: &env,
            set: &[],
        };
        let mut case = llmscen_scenario::load(&input).unwrap().plan.cases.remove(0);
        let group = |name: &str, tps: Option<f64>| GroupReport {
            name: name.into(),
            ok: 3,
            scalars: tps
                .map(|tps| (Metric::OutputTpsPerUser, tps))
                .into_iter()
                .collect(),
            ..GroupReport::default()
        };
        let groups = [group("2048", None), group("96", Some(12.5))];
        let device = Batch {
            group: Some("2048".into()),
            device_memory: Some(44),
            ..batch(true, 1, &[], 70)
        };
        let parts = [part(vec![
            batch(true, 1, &[], 30),
            batch(true, 1, &[], 50),
            batch(false, 1, &[], 90),
            device,
        ])];
        let row = |prompt_tokens, tokens_per_second, memory, of_device| SpeedRow {
            prompt_tokens,
            ok: 3,
            tokens_per_second,
            memory,
            device_memory: of_device,
        };
        assert_eq!(
            speed_table(&case, &groups, &parts),
            [
                row(96, Some(12.5), Some(50), false),
                row(2048, None, Some(44), true)
            ]
        );
        assert_eq!(
            speed_table(&case, &groups, &[])[0],
            row(96, Some(12.5), None, false)
        );
        case.dataset.source = Source::Openqa;
        assert_eq!(speed_table(&case, &groups, &parts), []);
    }
}
