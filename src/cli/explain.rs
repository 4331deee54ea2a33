//! `llmscen explain`: what a metric, a verdict, a statistic or a field of a scenario means, and what to do.

use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use llmscen_core::metric::{Metric, Requires, Scope, Stat};
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;
use llmscen_scenario::{FieldHelp, field_help, setting_named};
use std::fmt::Write;

/// Words with a meaning of their own: name, exit code, meaning, what to do.
const WORDS: [(&str, &str, &str); 13] = [
    (
        "PASS",
        "Every objective is met at its confidence (95% by default). Exit code 0.",
        "Nothing. To keep the result as a reference: llmscen baseline update RUN_DIR --to baseline.json",
    ),
    (
        "FAIL",
        "At least one objective is exceeded at its confidence. Exit code 1.",
        "Read the findings in report.html: they name the load from which it fails and what was \
        full then. Lower `load.concurrency` or `load.rate`, or give the server more resources. \
        `search` finds the largest load that passes.",
    ),
    (
        "INCONCLUSIVE",
        "The samples decide neither way at the confidence of the objective. Exit code 5, or 0 \
        with --inconclusive pass.",
        "Measure more requests: the report says how many (`load.requests`). Without a failed \
        request a p95 needs 59, a p99 and an error rate of 1% need 299. Consecutive requests are \
        correlated, so a longer `load.duration` helps more than a higher rate.",
    ),
    (
        "INVALID",
        "The load generator, and not the server, may have caused the result, the run differed \
        from its plan, or the server answered from its cache. Exit code 4.",
        "Run llmscen on an idle machine, apart from the server, with more CPU cores, or with a \
        lower load. The report names the reason and its limit in `audit`. Several machines: \
        --shard.",
    ),
    (
        "ERROR",
        "The run could not measure: the target was unreachable or was lost, every request failed, \
        or a managed server failed. Exit code 3.",
        "Send one request and look at the reply: llmscen try FILE. Check the server and this \
        machine: llmscen doctor URL",
    ),
    (
        "goodput",
        "Share of the scheduled requests that succeed and meet every limit in the parentheses: \
        goodput(ttft < 500ms, tpot < 50ms) >= 95%. Failed and dropped requests count against it.",
        "Look at the distribution of each limit in the report: the first one that bends over load \
        is the one to work on.",
    ),
    (
        "finish",
        "Share of the successful requests whose reply ended for a reason, in the word that the \
        server sends: finish{length}.share <= 5%. `length`, `stop`, `tool_calls` and \
        `content_filter` also match the words of other servers.",
        "The report lists the finish reasons of each case. If too many replies end for their \
        length, raise `request.max_tokens`.",
    ),
    (
        "baseline",
        "The statistics of an earlier run in a file that you commit. An objective refers to it: \
        ttft.p95 <= 1.10 * baseline.",
        "Create or extend it: llmscen baseline update RUN_DIR --to baseline.json",
    ),
    (
        "effective_n",
        "Effective sample size: the number of independent requests with the same information. \
        Consecutive requests share a queue and a batch, so their values are correlated. It is n \
        divided by the design effect, and verdicts use it in place of n.",
        "Measure longer: more load.duration or load.requests, or more rounds. A higher rate adds \
        correlated requests and little information.",
    ),
    (
        "design effect",
        "By how much correlation inflates the variance of a result: the variance of the measured \
        requests divided by that of as many independent ones. 1 means independent. n divided by \
        it is effective_n.",
        "Compare it at several loads: it grows near saturation, where queues are long. Lower the \
        load, or measure longer.",
    ),
    (
        "bound",
        "One-sided confidence bound of an observed value (95% by default): the true value is \
        worse than it in 5% of runs at most. `< 200ms` passes if the upper bound is below 200 ms, \
        and fails if the lower bound is above it. In between it is INCONCLUSIVE.",
        "More requests move the bound towards the observed value. `confidence` of an objective sets its level.",
    ),
    (
        "closed loop",
        "`load.concurrency`: each user sends the next request when the one before has ended, so a \
        slow server receives less load.",
        "To measure the latency at a fixed demand use an open loop: `load.rate`.",
    ),
    (
        "open loop",
        "`load.rate`: requests leave at scheduled times, whether or not earlier ones have ended. \
        Latency counts from the scheduled time.",
        "A latency that grows over the whole run means that the rate is above the capacity: lower \
        `load.rate`, or use `search`.",
    ),
];

/// Explains a topic.
pub fn explain(topic: &str, terminal: &mut Terminal) -> Exit {
    match text(topic) {
        Some(text) => {
            let width = terminal.width.min(100);
            let wrapped: Vec<String> = text
                .lines()
                .map(|line| {
                    let indent = line.len() - line.trim_start().len();
                    let rest = " ".repeat(if line.contains("   ") { 12 } else { indent });
                    textwrap::fill(line, textwrap::Options::new(width).subsequent_indent(&rest))
                })
                .collect();
            terminal.print(&(wrapped.join("\n") + "\n"));
            Exit::Pass
        }
        None => {
            let near = nearest(topic)
                .map(|name| format!("; did you mean `{name}`?"))
                .unwrap_or_default();
            terminal.error(&format!(
                "nothing is known about `{topic}`{near}\n  help: a metric (ttft), a verdict \
                (INVALID), an exit code (4), a statistic (p95), or a field of a scenario \
                (load.concurrency)"
            ));
            Exit::Scenario
        }
    }
}

fn text(topic: &str) -> Option<String> {
    let name = topic.trim();
    let by_code = match name {
        "0" => "PASS",
        "1" => "FAIL",
        "3" => "ERROR",
        "4" => "INVALID",
        "5" => "INCONCLUSIVE",
        other => other,
    };
    let word = WORDS
        .iter()
        .find(|(word, ..)| plain(word) == plain(by_code));
    if let Some((word, meaning, action)) = word {
        return Some(format!("{word}\n  {meaning}\n\n  to do     {action}"));
    }
    let lower = name.to_lowercase();
    if let Some(metric) = Metric::parse(&lower).or_else(|| Metric::of_other_tools(&lower)) {
        return Some(metric_text(metric));
    }
    // `ttft.p95`: the metric, then the statistic.
    if let Some((metric, stat)) = lower.rsplit_once('.')
        && let (Some(metric), Some(stat)) = (Metric::parse(metric), Stat::parse(stat))
    {
        return Some(format!("{}\n\n{}", metric_text(metric), stat_text(stat)));
    }
    if let Some(stat) = Stat::parse(&lower) {
        return Some(stat_text(stat));
    }
    if let Some(signal) = Signal::parse(&lower) {
        return Some(format!(
            "{lower} ({})\n  {}\n\n  Telemetry: sampled during the run, if the source provides it.",
            unit_name(signal.unit()),
            signal.definition()
        ));
    }
    let field = field_help(&lower).or_else(|| field_help(&setting_named(&lower, false)?.path));
    field.as_ref().map(field_text)
}

/// A name without case, with a space for an underscore.
fn plain(name: &str) -> String {
    name.to_lowercase().replace('_', " ")
}

fn metric_text(metric: Metric) -> String {
    let per = match metric.per() {
        Scope::Request => "one value per request, so an objective needs a statistic such as p95",
        Scope::Gap => {
            "one value per gap between tokens, so an objective needs a statistic such as p99"
        }
        Scope::Case => "one value per case",
    };
    let mut text = format!(
        "{} ({})\n  {}\n",
        metric.name(),
        unit_name(metric.unit()),
        metric.definition()
    );
    let better = if metric.higher_is_better() {
        "higher"
    } else {
        "lower"
    };
    let _ = write!(text, "\n  values    {per}\n  better    {better}");
    let needs = match metric.needs() {
        Requires::Nothing => "",
        Requires::Stream => "streamed responses",
        Requires::Gpus => "`target.gpus`",
        Requires::OpenLoop => "an open loop (`load.rate`)",
        Requires::Reasoning => "streamed responses with reasoning and an answer",
        Requires::Turns => "conversations (`dataset.turns`)",
        Requires::Tokenizer => "`dataset.tokenizer`",
        Requires::OutputTokenizer => "`dataset.tokenizer`, and token counts of the server",
        Requires::Items => "requests with several inputs or results",
        Requires::Audio => "requests that transcribe or generate audio",
        Requires::AudioOutput => {
            "responses that are audio (`api: openai-speech`, or `openai-realtime` with audio)"
        }
        Requires::ServerTimes => "a server that reports its own times",
        Requires::ManagedServer => "`target.server`",
        Requires::Power => "GPUs that report their power",
        Requires::Hardware => "`target.hardware`",
        Requires::Cost => "`target.cost`",
        Requires::KeptHeaders => "`target.keep_headers`",
        Requires::Held => "`load.max_in_flight` with `then: hold`",
        Requires::Endpoints => "several URLs in `target.url`",
        Requires::AnswerFormat => "a check of the format in `request.expect`",
        Requires::AnswerTruth => "a truth in `request.expect`",
        Requires::AnswerLength => {
            "`request.ignore_eos: true` and `max_tokens`, or `request.expect.length: exact`, and token counts"
        }
    };
    if !needs.is_empty() {
        let _ = write!(text, "\n  needs     {needs}");
    }
    let _ = write!(text, "\n  example   {}", example(metric));
    if let Some(action) = action(metric) {
        let _ = write!(text, "\n  to do     {action}");
    }
    text + "\n\n  intended: the scheduled send time. Exact definitions: the metrics page of the documentation."
}

fn example(metric: Metric) -> String {
    let (stat, op) = match (metric.per(), metric.higher_is_better()) {
        (Scope::Case, true) => ("", ">="),
        (Scope::Case, false) => ("", "<"),
        (_, true) => (".p5", ">="),
        (_, false) => (".p95", "<"),
    };
    let limit = match metric.unit() {
        Unit::Millis if metric == Metric::Itl || metric == Metric::Tpot => "50ms",
        Unit::Millis => "500ms",
        Unit::Share if metric.is_request_share() && metric.higher_is_better() => "99%",
        Unit::Share => "1%",
        _ => "100",
    };
    format!("slo: [\"{}{stat} {op} {limit}\"]", metric.name())
}

/// What to do if a metric misses its limit.
fn action(metric: Metric) -> Option<&'static str> {
    use Metric::*;
    Some(match metric {
        Ttft | TtftService | TimeToFirstAnswer | Ttfc => {
            "If it grows with the load, requests queue: lower the load, raise the batch size or \
            KV cache of the server, or add replicas. If it is high at one user, prefill is slow: \
            shorter prompts, prefix caching, a larger GPU."
        }
        Itl | Tpot | DecodeTps => {
            "It grows with the batch: lower the concurrency, limit the batch size of the server, \
            or use chunked prefill so that prefills do not interrupt decoding."
        }
        E2e | E2eService | Ntpot => {
            "It is ttft + (output tokens - 1) * tpot: look at these two and at the output lengths."
        }
        ErrorRate => {
            "The report lists the failures by kind with an example of each; `llmscen try FILE` \
            shows one exchange in full."
        }
        ValidRate | MatchRate | LengthExact => {
            "The report lists the checks that failed, with the first answers of each case; \
            `llmscen try FILE` shows one exchange in full."
        }
        OutputTps | TotalTps | RequestThroughput => {
            "Raise the load until the throughput stops growing (`matrix` over \
            `load.concurrency`), or let `search` find the load."
        }
        Startup => {
            "Warm model files in the page cache, fewer compiled graphs, a smaller `max_model_len`."
        }
        HeldTime => {
            "The server ends requests more slowly than they arrive: raise `load.max_in_flight`, or lower the rate."
        }
        ScheduleLag => {
            "It is the delay of the load generator itself: give llmscen an idle core, or lower the load."
        }
        _ => return None,
    })
}

fn stat_text(stat: Stat) -> String {
    let meaning = match stat {
        Stat::Quantile(share) => format!(
            "The smallest value that at least {}% of the samples do not exceed (nearest rank). \
            Its verdict uses order statistics and assumes no distribution.",
            share * 100.0
        ),
        Stat::Mean => "The arithmetic mean. Its verdict uses the standard error with the \
        effective sample size."
            .to_owned(),
        Stat::Min | Stat::Max => "An extreme of the samples. It has no confidence bound, so its \
        verdict is a point estimate."
            .to_owned(),
        Stat::Count => "The number of samples.".to_owned(),
        Stat::Sd => "The sample standard deviation.".to_owned(),
    };
    format!("{stat}\n  {meaning}")
}

fn field_text(field: &FieldHelp) -> String {
    let mut text = format!(
        "{}\n  {}\n\n  values    {}",
        field.path, field.meaning, field.values
    );
    if !field.default.is_empty() {
        let _ = write!(text, "\n  default   {}", field.default);
    }
    if let Some(example) = &field.example {
        let _ = write!(text, "\n  example   {example}");
    }
    if !field.keys.is_empty() {
        let _ = write!(text, "\n  keys      {}", field.keys.join(", "));
    }
    for (word, meaning) in field.words {
        let _ = write!(text, "\n  {word:<9} {meaning}");
    }
    text
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Share => "share",
        unit if unit.symbol().is_empty() => "number",
        unit => unit.symbol(),
    }
}

/// The known name that is most like the topic.
fn nearest(topic: &str) -> Option<String> {
    let lower = topic.to_lowercase();
    let names = Metric::ALL
        .iter()
        .map(|metric| metric.name().to_owned())
        .chain(WORDS.iter().map(|(word, ..)| (*word).to_owned()));
    names
        .map(|name| {
            (
                strsim::damerau_levenshtein(&lower, &name.to_lowercase()),
                name,
            )
        })
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_verdict_and_signal_is_explained() {
        for metric in Metric::ALL {
            let text = text(metric.name()).unwrap();
            assert!(
                text.contains(metric.definition()) && metric.definition().len() > 5,
                "{text}"
            );
        }
        for word in ["PASS", "invalid", "4", "goodput", "p99.9", "open loop"] {
            assert!(text(word).is_some(), "{word}");
        }
        assert_eq!(text("4"), text("INVALID"));
        for (topic, meaning) in [
            ("effective_n", "Effective sample size"),
            ("design effect", "correlation inflates the variance"),
            ("bound", "One-sided confidence bound"),
        ] {
            assert!(text(topic).unwrap().contains(meaning), "{topic}");
        }
        assert_eq!(text("design_effect"), text("design effect"));
        assert!(text("server.waiting").unwrap().contains("Telemetry"));
    }

    #[test]
    fn a_field_is_found_by_its_path_or_its_last_segment() {
        assert_eq!(text("load.concurrency"), text("concurrency"));
        assert!(text("audit.stalled").unwrap().contains("default   `5%`"));
        assert_eq!(text("nothing.of_this"), None);
        assert_eq!(nearest("tftt").as_deref(), Some("ttft"));
    }

    #[test]
    fn an_example_is_an_objective_with_the_unit_of_the_metric() {
        assert_eq!(example(Metric::Ttft), "slo: [\"ttft.p95 < 500ms\"]");
        assert_eq!(example(Metric::OutputTps), "slo: [\"output_tps >= 100\"]");
        assert_eq!(example(Metric::ErrorRate), "slo: [\"error_rate < 1%\"]");
        assert_eq!(example(Metric::ValidRate), "slo: [\"valid_rate >= 99%\"]");
    }
}
