//! Computes the signals of a page by the table of names.

use super::names::{FAMILIES, Formula, ServerFamily, millis_per_unit};
use super::text::{Page, Sample, pairs};
use crate::SampledValue;
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;
use std::collections::{BTreeSet, HashSet};

/// Labels of the ranks of one engine, which all report the same values.
const RANK_LABELS: [&str; 3] = ["tp_rank", "pp_rank", "moe_ep_rank"];

/// The signals of a page.
#[derive(Debug, Default)]
pub struct PageSignals {
    /// The servers whose names are on the page, by index in [`FAMILIES`].
    pub families: BTreeSet<usize>,
    /// The signals that were emitted.
    pub reported: BTreeSet<Signal>,
    /// Indices of the samples that a signal contains without loss, because each one is a signal by itself.
    pub used: HashSet<usize>,
    /// Indices of the samples that a signal combines with others.
    pub merged: HashSet<usize>,
    /// Names whose series belong to several models, none of which is in `models`.
    pub ambiguous: BTreeSet<&'static str>,
}

/// Emits the signals of a page. `models` are the models that requests name.
pub fn report_signals(
    page: &Page<'_>,
    models: &[String],
    emit: &mut dyn FnMut(SampledValue<'_>),
) -> PageSignals {
    let mut result = PageSignals::default();
    for (index, family) in FAMILIES
        .iter()
        .enumerate()
        .filter(|(_, family)| page.has_prefix(family.prefix))
    {
        result.families.insert(index);
        let mut reader = SignalReader {
            page,
            family,
            models,
            found: Vec::new(),
            merged: false,
            ambiguous: BTreeSet::new(),
        };
        for (signal, formula) in family.signals {
            if result.reported.contains(signal) {
                continue;
            }
            reader.found.clear();
            reader.merged = false;
            if reader.report(*signal, formula, emit) {
                result.reported.insert(*signal);
                let indices = match reader.merged {
                    true => &mut result.merged,
                    false => &mut result.used,
                };
                indices.extend(&reader.found);
            }
        }
        result.ambiguous.extend(reader.ambiguous);
    }
    result
}

/// Computes one signal after another.
struct SignalReader<'l, 'p> {
    page: &'l Page<'p>,
    family: &'static ServerFamily,
    models: &'l [String],
    /// The samples of the current signal.
    found: Vec<usize>,
    /// The current signal combines several series.
    merged: bool,
    ambiguous: BTreeSet<&'static str>,
}

impl<'l, 'p> SignalReader<'l, 'p> {
    /// Emits a signal; false where the page does not have it.
    fn report(
        &mut self,
        signal: Signal,
        formula: &Formula,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> bool {
        let mut emit_value = |labels: &str, value: f64| {
            emit(SampledValue {
                name: signal.name(),
                labels,
                device: None,
                value,
            })
        };
        let value = match *formula {
            Formula::Gauge(name) if signal.unit() == Unit::Share => self.mean(name),
            Formula::Gauge(name) | Formula::Counter(name) => self.sum(name),
            Formula::GaugeRatio(part, whole) => {
                let (part, whole) = (self.sum(part), self.sum(whole));
                part.zip(whole)
                    .filter(|(_, whole)| *whole > 0.0)
                    .map(|(part, whole)| part / whole)
            }
            Formula::ServerRatio(name) => {
                let Some(value) = self.mean(name) else {
                    return false;
                };
                emit_value("value", value);
                return true;
            }
            Formula::CounterRatio(part, whole) => {
                let mut sums = |names: &[&'static str]| {
                    names.iter().map(|name| self.sum(name)).sum::<Option<f64>>()
                };
                let (Some(part), Some(whole)) = (sums(part), sums(whole)) else {
                    return false;
                };
                emit_value("part", part);
                emit_value("whole", whole);
                return true;
            }
            Formula::Mean(sum, count) => {
                let (Some(total), Some(count)) = (self.sum(sum), self.sum(count)) else {
                    return false;
                };
                emit_value("sum", total * millis_per_unit(sum));
                emit_value("count", count);
                return true;
            }
            Formula::Histogram(name) => return self.histogram(name, &mut emit_value),
        };
        let Some(value) = value else { return false };
        emit_value("", value);
        true
    }

    fn sum(&mut self, name: &'static str) -> Option<f64> {
        let found = self.series(name, name);
        self.merged |= found.len() > 1;
        (!found.is_empty()).then(|| found.iter().map(|sample| sample.value).sum())
    }

    fn mean(&mut self, name: &'static str) -> Option<f64> {
        let sum = self.sum(name)?;
        Some(sum / self.series(name, name).len() as f64)
    }

    /// Buckets of several series are added at their common bounds.
    fn histogram(&mut self, name: &'static str, emit_value: &mut dyn FnMut(&str, f64)) -> bool {
        let scale = millis_per_unit(name);
        let mut buckets: Vec<(f64, f64, usize)> = Vec::new();
        for sample in self.series(name, &format!("{name}_bucket")) {
            let Some(bound) = sample
                .label("le")
                .and_then(|bound| bound.parse::<f64>().ok())
            else {
                continue;
            };
            buckets.push((bound * scale, sample.value, 1));
        }
        let series = buckets
            .iter()
            .filter(|(bound, ..)| *bound == f64::INFINITY)
            .count();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        buckets.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                *kept = (kept.0, kept.1 + next.1, kept.2 + 1);
            }
            same
        });
        if series == 0 {
            return false;
        }
        for (bound, count, _) in buckets.iter().filter(|(.., times)| *times == series) {
            // Rounded to 1 ns: 0.07 s are 70 ms, not 70.00000000000001.
            let bound = (bound * 1e6).round() / 1e6;
            emit_value(
                &if bound.is_finite() {
                    format!("le={bound}")
                } else {
                    "le=+Inf".to_owned()
                },
                *count,
            );
        }
        self.merged |= series > 1;
        for (part, scale) in [("sum", scale), ("count", 1.0)] {
            let found = self.series(name, &format!("{name}_{part}"));
            if !found.is_empty() {
                emit_value(
                    part,
                    found.iter().map(|sample| sample.value).sum::<f64>() * scale,
                );
            }
        }
        true
    }

    /// The finite series of a name, with or without `_total` and without duplicates. `table_name` is the name in the
    /// table.
    fn series(&mut self, table_name: &'static str, name: &str) -> Vec<&'l Sample<'p>> {
        let (name, labels) = name.split_once('{').map_or((name, ""), |(name, labels)| {
            (name, labels.trim_end_matches('}'))
        });
        let indices = match self.page.indices(name) {
            [] => self.page.indices(&format!("{name}_total")),
            indices => indices,
        };
        let labels: Vec<_> = pairs(labels).collect();
        let matches = |sample: &Sample<'_>| {
            sample.value.is_finite()
                && labels
                    .iter()
                    .all(|(label, value)| sample.label(label).as_deref() == Some(value))
        };
        let samples = indices
            .iter()
            .filter_map(|&index| Some((index, self.page.samples.get(index)?)));
        let mut samples: Vec<_> = samples.filter(|(_, sample)| matches(sample)).collect();
        if samples.len() > 1
            && samples
                .iter()
                .any(|(_, sample)| sample.labels.contains("_rank"))
        {
            let mut distinct = HashSet::new();
            samples.retain(|(_, sample)| {
                let labels = pairs(sample.labels).filter(|(label, _)| !RANK_LABELS.contains(label));
                distinct.insert(labels.collect::<Vec<_>>())
            });
        }
        if let Some(model_label) = self.family.model_label
            && samples
                .iter()
                .map(|(_, sample)| sample.label(model_label))
                .collect::<HashSet<_>>()
                .len()
                > 1
        {
            samples.retain(|(_, sample)| {
                sample
                    .label(model_label)
                    .is_some_and(|model| self.models.iter().any(|name| *name == *model))
            });
            if samples.is_empty() {
                self.ambiguous.insert(table_name);
            }
        }
        self.found.extend(samples.iter().map(|(index, _)| *index));
        samples.into_iter().map(|(_, sample)| sample).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Signal::*;

    /// The signals of a page: name, labels, value.
    fn signals(text: &str) -> Vec<(String, String, f64)> {
        signals_of_models(text, &[])
    }

    fn signals_of_models(text: &str, models: &[&str]) -> Vec<(String, String, f64)> {
        let models: Vec<String> = models.iter().map(|&model| model.to_owned()).collect();
        let mut all = Vec::new();
        report_signals(&Page::parse(text), &models, &mut |value| {
            all.push((value.name.to_owned(), value.labels.to_owned(), value.value));
        });
        all
    }

    fn row(signal: Signal, labels: &str, value: f64) -> (String, String, f64) {
        (signal.name().to_owned(), labels.to_owned(), value)
    }

    #[test]
    fn several_engines_are_added_and_their_shares_averaged() {
        let text = "vllm:num_requests_running{engine=\"0\"} \
        2\nvllm:num_requests_running{engine=\"1\"} 3\nvllm:kv_cache_usage_perc{engine=\"0\"} \
        0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} \
        0.25\nvllm:request_success_total{finished_reason=\"stop\"} \
        4\nvllm:request_success_total{finished_reason=\"length\"} 6\n";
        let rows = [
            row(ServerRunning, "", 5.0),
            row(ServerKvCacheUsage, "", 0.375),
            row(ServerRequestThroughput, "", 10.0),
        ];
        assert_eq!(signals(text), rows);
    }

    #[test]
    fn ranks_of_one_engine_count_once() {
        let text = "sglang:num_running_reqs{tp_rank=\"0\",dp_rank=\"0\"} \
        2\nsglang:num_running_reqs{tp_rank=\"1\",dp_rank=\"0\"} \
        2\nsglang:num_running_reqs{tp_rank=\"2\",dp_rank=\"1\"} 5\n";
        assert_eq!(signals(text), [row(ServerRunning, "", 7.0)]);
    }

    #[test]
    fn old_and_new_names_with_and_without_total_are_one_signal() {
        for name in ["prompt_tokens", "prompt_tokens_total"] {
            assert_eq!(
                signals(&format!("vllm:{name} 7\n")),
                [row(ServerPromptTps, "", 7.0)]
            );
        }
        let old = "vllm:gpu_cache_usage_perc 0.5\nvllm:gpu_prefix_cache_queries_total \
        8\nvllm:gpu_prefix_cache_hits_total 2\n";
        let rate = [
            row(ServerPrefixCacheHitRate, "part", 2.0),
            row(ServerPrefixCacheHitRate, "whole", 8.0),
        ];
        assert_eq!(
            signals(old),
            [vec![row(ServerKvCacheUsage, "", 0.5)], rate.to_vec()].concat()
        );
        let both = "vllm:kv_cache_usage_perc 0.25\nvllm:gpu_cache_usage_perc 0.75\n";
        assert_eq!(
            signals(both),
            [row(ServerKvCacheUsage, "", 0.25)],
            "the new name is used"
        );
    }

    #[test]
    fn a_ratio_is_computed_from_two_counters_or_else_the_servers_value() {
        let gauge = "sglang:cache_hit_rate 0.4\n";
        assert_eq!(
            signals(gauge),
            [row(ServerPrefixCacheHitRate, "value", 0.4)]
        );
        let counts = format!(
            "{gauge}sglang:cached_tokens_total{{cache_source=\"device\"}} \
         2\nsglang:cached_tokens_total{{cache_source=\"host\"}} 1\nsglang:prompt_tokens_total 10\n"
        );
        let rows = [
            row(ServerPrefixCacheHitRate, "part", 3.0),
            row(ServerPrefixCacheHitRate, "whole", 10.0),
            row(ServerPromptTps, "", 10.0),
        ];
        assert_eq!(signals(&counts), rows);
        let llama = "llamacpp:prompt_tokens_cached_total 30\nllamacpp:prompt_tokens_total 10\n";
        assert_eq!(
            signals(llama)[..2],
            [
                row(ServerPrefixCacheHitRate, "part", 30.0),
                row(ServerPrefixCacheHitRate, "whole", 40.0)
            ]
        );
    }

    #[test]
    fn a_histogram_has_its_buckets_in_order_and_in_milliseconds() {
        let text = "tgi_request_duration_bucket{le=\"+Inf\"} 5\ntgi_request_duration_bucket{le=\"0.07\"} 1\n\
        tgi_request_duration_bucket{le=\"2.5\"} 4\ntgi_request_duration_sum 9.5\ntgi_request_duration_count 5\n";
        let rows = [
            ("le=70", 1.0),
            ("le=2500", 4.0),
            ("le=+Inf", 5.0),
            ("sum", 9500.0),
            ("count", 5.0),
        ];
        assert_eq!(
            signals(text),
            rows.map(|(labels, value)| row(ServerE2e, labels, value))
        );
    }

    #[test]
    fn buckets_of_several_engines_are_added_at_the_bounds_that_all_have() {
        let text = "vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"1\"} \
        1\nvllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"2\"} \
        2\nvllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"+Inf\"} \
        3\nvllm:e2e_request_latency_seconds_bucket{engine=\"1\",le=\"1.0\"} \
        10\nvllm:e2e_request_latency_seconds_bucket{engine=\"1\",le=\"+Inf\"} \
        30\nvllm:e2e_request_latency_seconds_sum{engine=\"0\"} \
        4\nvllm:e2e_request_latency_seconds_sum{engine=\"1\"} \
        40\nvllm:e2e_request_latency_seconds_count{engine=\"0\"} \
        3\nvllm:e2e_request_latency_seconds_count{engine=\"1\"} 30\n";
        let rows = [
            ("le=1000", 11.0),
            ("le=+Inf", 33.0),
            ("sum", 44_000.0),
            ("count", 33.0),
        ];
        assert_eq!(
            signals(text),
            rows.map(|(labels, value)| row(ServerE2e, labels, value))
        );
    }

    #[test]
    fn of_an_ensemble_only_the_model_that_requests_name_counts() {
        let text = "nv_inference_request_success{model=\"ensemble\"} \
        4\nnv_inference_request_success{model=\"tensorrt_llm\"} \
        5\nnv_inference_queue_duration_us{model=\"ensemble\"} \
        100\nnv_inference_queue_duration_us{model=\"tensorrt_llm\"} 9000\n";
        let rows = [
            row(ServerRequestThroughput, "", 5.0),
            row(ServerQueueTime, "sum", 9.0),
            row(ServerQueueTime, "count", 5.0),
        ];
        assert_eq!(signals_of_models(text, &["tensorrt_llm"]), rows);
        let mut none = Vec::new();
        let signals = report_signals(&Page::parse(text), &["other".to_owned()], &mut |value| {
            none.push(value.value)
        });
        assert!(none.is_empty(), "{none:?}");
        assert_eq!(
            signals.ambiguous.into_iter().collect::<Vec<_>>(),
            [
                "nv_inference_queue_duration_us",
                "nv_inference_request_success"
            ]
        );
    }

    #[test]
    fn values_that_are_not_finite_are_left_out() {
        assert_eq!(
            signals(
                "vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running +Inf\nvllm:num_requests_waiting 0\n"
            ),
            [row(ServerWaiting, "", 0.0)]
        );
        assert_eq!(
            signals("tgi_request_duration_bucket{le=\"1\"} 1\n"),
            [],
            "buckets without the last one"
        );
        let none = "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"} 0\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 0\n";
        assert_eq!(signals(none), [], "a share of nothing");
    }

    #[test]
    fn a_sample_is_used_where_it_is_a_signal_by_itself() {
        let text = "vllm:num_requests_running 2\nvllm:num_requests_waiting{engine=\"0\"} \
        1\nvllm:num_requests_waiting{engine=\"1\"} 1\ntgi_request_duration_bucket{le=\"+Inf\"} \
        1\ntgi_request_duration_sum 1\ntgi_queue_size 1\nprocess_open_fds 3\n";
        let signals = report_signals(&Page::parse(text), &[], &mut |_| {});
        let mut used: Vec<_> = signals.used.into_iter().collect();
        used.sort_unstable();
        assert_eq!(used, [0, 3, 4]);
        assert_eq!(
            signals.reported.into_iter().collect::<Vec<_>>(),
            [ServerRunning, ServerWaiting, ServerE2e]
        );
    }
}
