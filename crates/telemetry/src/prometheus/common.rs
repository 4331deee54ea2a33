//! The common signals of a page, by the table of names.

use super::names::{FAMILIES, Family, How, millis};
use super::text::{Page, Sample, pairs};
use crate::source::SampledValue;
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;
use std::collections::{BTreeSet, HashSet};

/// Labels of the parts of one engine, each of which tells the same of all of it.
const RANKS: [&str; 3] = ["tp_rank", "pp_rank", "moe_ep_rank"];

/// What a page tells under common names.
#[derive(Debug, Default)]
pub struct Common {
    /// The servers whose names are on it, by their place among [`FAMILIES`].
    pub families: BTreeSet<usize>,
    /// The signals that it tells.
    pub told: BTreeSet<Signal>,
    /// The samples that nothing is lost of, because each stands for a signal by itself.
    pub whole: HashSet<usize>,
    /// Names whose series belong to several models, of which none is asked for.
    pub unclear: BTreeSet<&'static str>,
}

/// Tells the common signals of a page. `asked` are the models that requests name.
pub fn common(page: &Page<'_>, asked: &[String], tell: &mut dyn FnMut(SampledValue<'_>)) -> Common {
    let mut common = Common::default();
    for (place, family) in FAMILIES.iter().enumerate().filter(|(_, family)| page.has_prefix(family.prefix)) {
        common.families.insert(place);
        let mut look = Look { page, family, asked, found: Vec::new(), merged: false, unclear: BTreeSet::new() };
        for (signal, how) in family.ways {
            if common.told.contains(signal) {
                continue;
            }
            look.found.clear();
            look.merged = false;
            if look.tell(*signal, how, tell) {
                common.told.insert(*signal);
                common.whole.extend(look.found.iter().filter(|_| !look.merged).copied());
            }
        }
        common.unclear.extend(look.unclear);
    }
    common
}

/// One look at the page for one signal.
struct Look<'l, 'p> {
    page: &'l Page<'p>,
    family: &'static Family,
    asked: &'l [String],
    /// The samples that it was found in.
    found: Vec<usize>,
    /// Several series were made one.
    merged: bool,
    unclear: BTreeSet<&'static str>,
}

impl<'l, 'p> Look<'l, 'p> {
    fn tell(&mut self, signal: Signal, how: &How, tell: &mut dyn FnMut(SampledValue<'_>)) -> bool {
        let mut say = |labels: &str, value: f64| tell(SampledValue { name: signal.name(), labels, device: None, value });
        let value = match *how {
            How::Gauge(name) if signal.unit() == Unit::Share => self.mean(name),
            How::Gauge(name) | How::Count(name) => self.sum(name),
            How::Over(part, whole) => {
                let (part, whole) = (self.sum(part), self.sum(whole));
                part.zip(whole).filter(|(_, whole)| *whole > 0.0).map(|(part, whole)| part / whole)
            }
            How::Value(name) => {
                let value = self.mean(name);
                value.into_iter().for_each(|value| say("value", value));
                return value.is_some();
            }
            How::Counts(part, whole) => {
                let mut sums = |names: &[&'static str]| names.iter().map(|name| self.sum(name)).sum::<Option<f64>>();
                let both = sums(part).zip(sums(whole));
                both.into_iter().for_each(|(part, whole)| {
                    say("part", part);
                    say("whole", whole);
                });
                return both.is_some();
            }
            How::Mean(sum, count) => {
                let both = self.sum(sum).zip(self.sum(count));
                both.into_iter().for_each(|(total, count)| {
                    say("sum", total * millis(sum));
                    say("count", count);
                });
                return both.is_some();
            }
            How::Histogram(name) => return self.histogram(name, &mut say),
        };
        value.into_iter().for_each(|value| say("", value));
        value.is_some()
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

    /// Buckets of several series are added, at the bounds that all of them have.
    fn histogram(&mut self, name: &'static str, say: &mut dyn FnMut(&str, f64)) -> bool {
        let scale = millis(name);
        let mut buckets: Vec<(f64, f64, usize)> = Vec::new();
        for sample in self.series(name, &format!("{name}_bucket")) {
            let Some(bound) = sample.label("le").and_then(|bound| bound.parse::<f64>().ok()) else { continue };
            buckets.push((bound * scale, sample.value, 1));
        }
        let series = buckets.iter().filter(|(bound, ..)| *bound == f64::INFINITY).count();
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
            // To the nanosecond: 0.07 s are 70 ms, not 70.00000000000001.
            let bound = (bound * 1e6).round() / 1e6;
            say(&if bound.is_finite() { format!("le={bound}") } else { "le=+Inf".to_owned() }, *count);
        }
        self.merged |= series > 1;
        for (part, scale) in [("sum", scale), ("count", 1.0)] {
            let found = self.series(name, &format!("{name}_{part}"));
            if !found.is_empty() {
                say(part, found.iter().map(|sample| sample.value).sum::<f64>() * scale);
            }
        }
        true
    }

    /// The series of a name, with or without `_total`, that have a value and are not another's copy.
    fn series(&mut self, known: &'static str, name: &str) -> Vec<&'l Sample<'p>> {
        let (name, only) = name.split_once('{').map_or((name, ""), |(name, only)| (name, only.trim_end_matches('}')));
        let places = match self.page.places(name) {
            [] => self.page.places(&format!("{name}_total")),
            places => places,
        };
        let only: Vec<_> = pairs(only).collect();
        let wanted = |sample: &Sample<'_>| {
            sample.value.is_finite() && only.iter().all(|(label, value)| sample.label(label).as_deref() == Some(value))
        };
        let samples = places.iter().filter_map(|&place| Some((place, self.page.samples.get(place)?)));
        let mut samples: Vec<_> = samples.filter(|(_, sample)| wanted(sample)).collect();
        if samples.len() > 1 && samples.iter().any(|(_, sample)| sample.labels.contains("_rank")) {
            let mut seen = HashSet::new();
            samples.retain(|(_, sample)| {
                let labels = pairs(sample.labels).filter(|(label, _)| !RANKS.contains(label));
                seen.insert(labels.collect::<Vec<_>>())
            });
        }
        if let Some(apart) = self.family.apart
            && samples.iter().map(|(_, sample)| sample.label(apart)).collect::<HashSet<_>>().len() > 1
        {
            samples.retain(|(_, sample)| sample.label(apart).is_some_and(|model| self.asked.iter().any(|own| *own == *model)));
            if samples.is_empty() {
                self.unclear.insert(known);
            }
        }
        self.found.extend(samples.iter().map(|(place, _)| *place));
        samples.into_iter().map(|(_, sample)| sample).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Signal::*;

    /// What a page tells under common names: name, labels, value.
    fn told(text: &str) -> Vec<(String, String, f64)> {
        asked(text, &[])
    }

    fn asked(text: &str, models: &[&str]) -> Vec<(String, String, f64)> {
        let models: Vec<String> = models.iter().map(|&model| model.to_owned()).collect();
        let mut all = Vec::new();
        common(&Page::read(text), &models, &mut |told| all.push((told.name.to_owned(), told.labels.to_owned(), told.value)));
        all
    }

    fn row(signal: Signal, labels: &str, value: f64) -> (String, String, f64) {
        (signal.name().to_owned(), labels.to_owned(), value)
    }

    #[test]
    fn several_engines_are_added_and_their_shares_averaged() {
        let text = "vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} 3\n\
        vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.25\n\
        vllm:request_success_total{finished_reason=\"stop\"} 4\nvllm:request_success_total{finished_reason=\"length\"} 6\n";
        let rows = [row(ServerRunning, "", 5.0), row(ServerKvCacheUsage, "", 0.375), row(ServerRequestThroughput, "", 10.0)];
        assert_eq!(told(text), rows);
    }

    #[test]
    fn ranks_of_one_engine_tell_the_same_and_count_once() {
        let text = "sglang:num_running_reqs{tp_rank=\"0\",dp_rank=\"0\"} 2\nsglang:num_running_reqs{tp_rank=\"1\",dp_rank=\"0\"} 2\n\
        sglang:num_running_reqs{tp_rank=\"2\",dp_rank=\"1\"} 5\n";
        assert_eq!(told(text), [row(ServerRunning, "", 7.0)]);
    }

    #[test]
    fn old_and_new_names_with_and_without_total_are_one_signal() {
        for name in ["prompt_tokens", "prompt_tokens_total"] {
            assert_eq!(told(&format!("vllm:{name} 7\n")), [row(ServerPromptTps, "", 7.0)]);
        }
        let old = "vllm:gpu_cache_usage_perc 0.5\nvllm:gpu_prefix_cache_queries_total 8\nvllm:gpu_prefix_cache_hits_total 2\n";
        let rate = [row(ServerPrefixCacheHitRate, "part", 2.0), row(ServerPrefixCacheHitRate, "whole", 8.0)];
        assert_eq!(told(old), [vec![row(ServerKvCacheUsage, "", 0.5)], rate.to_vec()].concat());
        let both = "vllm:kv_cache_usage_perc 0.25\nvllm:gpu_cache_usage_perc 0.75\n";
        assert_eq!(told(both), [row(ServerKvCacheUsage, "", 0.25)], "the new name is the one that counts");
    }

    #[test]
    fn a_ratio_is_two_counts_where_there_are_two_and_else_what_the_server_says() {
        let gauge = "sglang:cache_hit_rate 0.4\n";
        assert_eq!(told(gauge), [row(ServerPrefixCacheHitRate, "value", 0.4)]);
        let counts = format!(
            "{gauge}sglang:cached_tokens_total{{cache_source=\"device\"}} 2\nsglang:cached_tokens_total{{cache_source=\"host\"}} 1\n\
         sglang:prompt_tokens_total 10\n"
        );
        let rows = [
            row(ServerPrefixCacheHitRate, "part", 3.0),
            row(ServerPrefixCacheHitRate, "whole", 10.0),
            row(ServerPromptTps, "", 10.0),
        ];
        assert_eq!(told(&counts), rows);
        let llama = "llamacpp:prompt_tokens_cached_total 30\nllamacpp:prompt_tokens_total 10\n";
        assert_eq!(told(llama)[..2], [row(ServerPrefixCacheHitRate, "part", 30.0), row(ServerPrefixCacheHitRate, "whole", 40.0)]);
    }

    #[test]
    fn a_histogram_has_its_buckets_in_order_and_in_milliseconds() {
        let text = "tgi_request_duration_bucket{le=\"+Inf\"} 5\ntgi_request_duration_bucket{le=\"0.07\"} 1\n\
        tgi_request_duration_bucket{le=\"2.5\"} 4\ntgi_request_duration_sum 9.5\ntgi_request_duration_count 5\n";
        let rows = [("le=70", 1.0), ("le=2500", 4.0), ("le=+Inf", 5.0), ("sum", 9500.0), ("count", 5.0)];
        assert_eq!(told(text), rows.map(|(labels, value)| row(ServerE2e, labels, value)));
    }

    #[test]
    fn buckets_of_several_engines_are_added_at_the_bounds_that_all_have() {
        let text = "vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"1\"} 1\n\
        vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"2\"} 2\n\
        vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"+Inf\"} 3\n\
        vllm:e2e_request_latency_seconds_bucket{engine=\"1\",le=\"1.0\"} 10\n\
        vllm:e2e_request_latency_seconds_bucket{engine=\"1\",le=\"+Inf\"} 30\n\
        vllm:e2e_request_latency_seconds_sum{engine=\"0\"} 4\nvllm:e2e_request_latency_seconds_sum{engine=\"1\"} 40\n\
        vllm:e2e_request_latency_seconds_count{engine=\"0\"} 3\nvllm:e2e_request_latency_seconds_count{engine=\"1\"} 30\n";
        let rows = [("le=1000", 11.0), ("le=+Inf", 33.0), ("sum", 44_000.0), ("count", 33.0)];
        assert_eq!(told(text), rows.map(|(labels, value)| row(ServerE2e, labels, value)));
    }

    #[test]
    fn of_an_ensemble_only_the_model_that_requests_name_counts() {
        let text = "nv_inference_request_success{model=\"ensemble\"} 4\nnv_inference_request_success{model=\"tensorrt_llm\"} 5\n\
        nv_inference_queue_duration_us{model=\"ensemble\"} 100\nnv_inference_queue_duration_us{model=\"tensorrt_llm\"} 9000\n";
        let rows = [row(ServerRequestThroughput, "", 5.0), row(ServerQueueTime, "sum", 9.0), row(ServerQueueTime, "count", 5.0)];
        assert_eq!(asked(text, &["tensorrt_llm"]), rows);
        let mut none = Vec::new();
        let common = common(&Page::read(text), &["other".to_owned()], &mut |told| none.push(told.value));
        assert!(none.is_empty(), "{none:?}");
        assert_eq!(
            common.unclear.into_iter().collect::<Vec<_>>(),
            ["nv_inference_queue_duration_us", "nv_inference_request_success"]
        );
    }

    #[test]
    fn what_is_no_number_is_not_told() {
        assert_eq!(
            told("vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running +Inf\nvllm:num_requests_waiting 0\n"),
            [row(ServerWaiting, "", 0.0)]
        );
        assert_eq!(told("tgi_request_duration_bucket{le=\"1\"} 1\n"), [], "buckets without the last one");
        let none = "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"} 0\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 0\n";
        assert_eq!(told(none), [], "a share of nothing");
    }

    #[test]
    fn a_sample_that_stands_for_a_signal_alone_is_whole_and_one_of_several_is_not() {
        let text = "vllm:num_requests_running 2\nvllm:num_requests_waiting{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"1\"} 1\n\
        tgi_request_duration_bucket{le=\"+Inf\"} 1\ntgi_request_duration_sum 1\ntgi_queue_size 1\nprocess_open_fds 3\n";
        let common = common(&Page::read(text), &[], &mut |_| {});
        let mut whole: Vec<_> = common.whole.into_iter().collect();
        whole.sort_unstable();
        assert_eq!(whole, [0, 3, 4]);
        assert_eq!(common.told.into_iter().collect::<Vec<_>>(), [ServerRunning, ServerWaiting, ServerE2e]);
    }
}
