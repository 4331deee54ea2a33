//! `telemetry`: what is sampled during the run; `target.metrics`: the metrics endpoint of the server.

use crate::draft::{Draft, headers};
use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, Leaf, conflicts_with, field, one_of, only_with, requires};
use crate::tree::{Data, Node};
use crate::values::target::{SIMULATOR, comparable_url, url_error};
use crate::values::time::{DURATION, SPAN, duration};
use crate::values::{describe_actual, expect};
use llmscen_core::telemetry::{MetricsKind, MetricsSource, Scrape, TelemetrySpec};
use llmscen_core::units::Nanos;
use serde_json::json;
use std::borrow::Cow;

const OFF: &str = "off";
/// The shortest interval: the kernel counts in steps of 10 ms.
const LEAST: Nanos = Nanos::from_millis(100);

/// For the whole run, so no matrix sets it.
static INTERVAL: Leaf = Leaf {
    expected: "a duration such as `1s`, or `off`",
    sweepable: false,
    schema: interval_schema,
    check: check_interval,
};
static SWITCH: Leaf = Leaf {
    expected: "`true` or `false`",
    sweepable: false,
    schema: || json!({ "type": "boolean" }),
    check: check_switch,
};
static ADDRESS: Leaf = Leaf {
    expected: "a URL such as `http://gpu-node:9400/metrics`",
    sweepable: false,
    schema: || json!({ "type": "string", "pattern": "^https?://" }),
    check: check_address,
};

pub(crate) static TELEMETRY: Block = Block {
    doc: "What is sampled during the run: the hardware, llmscen, and a managed server.",
    short: None,
    fields: &[
        field(
            "interval",
            Kind::Leaf(&INTERVAL),
            "Time between two samples, at least 100ms. `off` samples only \
            `target.metrics`, which has its own interval.",
        )
        .default("1s")
        .example("500ms"),
        field(
            "gpu",
            Kind::Leaf(&SWITCH),
            "Sample the GPUs of this host, with NVIDIA's library or AMD's command. If there are \
            none, a run with `target.gpus` or an objective that needs them notes that once.",
        )
        .default("true")
        .example("false"),
        field(
            "host",
            Kind::Leaf(&SWITCH),
            "Sample CPU, memory, network and disks of \
        llmscen, the managed server, and the host.",
        )
        .default("true")
        .example("false"),
        field(
            "dcgm",
            Kind::Leaf(&ADDRESS),
            "The URL of a DCGM exporter, if the GPUs are in another host; those of \
            this host are not sampled then.",
        )
        .example("http://gpu-node:9400/metrics"),
    ],
};

pub(crate) fn decode(draft: &Draft<'_>) -> Option<TelemetrySpec> {
    let interval = draft.read("telemetry.interval", read_interval)?;
    let dcgm = draft.text("telemetry.dcgm").map(Cow::into_owned);
    Some(TelemetrySpec {
        interval,
        gpu: draft.flag("telemetry.gpu")?,
        host: draft.flag("telemetry.host")?,
        dcgm,
    })
}

fn read_interval(node: &Node) -> Option<Nanos> {
    if node.text().is_some_and(|text| text == OFF) {
        Some(Nanos::ZERO)
    } else {
        duration(node)
    }
}

fn check_interval(node: &Node, review: &mut Review) {
    match read_interval(node) {
        None => (DURATION.check)(node, review),
        Some(span) if span > Nanos::ZERO && span < LEAST => {
            expect(node, "100ms or longer, or `off`", "`500ms`", review);
        }
        Some(_) => {}
    }
}

fn check_switch(node: &Node, review: &mut Review) {
    if !matches!(node.data, Data::Bool(_)) {
        let message = format!("`{}` must be `true` or `false`", review.key);
        review.push(Mistake::new(
            node.at,
            message,
            describe_actual(node, "`true` or `false`"),
        ));
    }
}

fn check_address(node: &Node, review: &mut Review) {
    let Some(error) = node.text().map_or(Some(ADDRESS.expected), |url| {
        url_error(&url).filter(|_| !review.is_unset(&url))
    }) else {
        return;
    };
    let mistake = Mistake::new(node.at, "this is not a URL", error);
    review
        .push(mistake.help(
            "Write the whole URL of the exporter, for example http://gpu-node:9400/metrics.",
        ));
}

fn interval_schema() -> serde_json::Value {
    json!({ "anyOf": [(DURATION.schema)(), { "const": OFF }] })
}

/// More frequent requests would be a load on the server.
const SHORTEST: Nanos = Nanos::from_millis(10);

const ONE_SOURCE: &str = "Write two items of the list: one for the page, one for the query.";

pub(crate) static METRICS: Block = Block {
    doc: "The server's metrics, as Prometheus text, scraped during the run. A plain text is the \
    `url`. A list has the pages of several workers, and queries of a Prometheus server.",
    short: Some("url"),
    fields: &[
        field(
            "url",
            Kind::Text,
            "The URL of the /metrics endpoint; `simulator` for that of the built-in server.",
        )
        .example("http://127.0.0.1:8000/metrics")
        .rules(&[
            only_with(&["target.url"], &["simulator*"])
                .when("simulator")
                .message("`metrics: simulator` needs `target.url: simulator`")
                .reason("this server is not used")
                .beside("this server is used")
                .help("Write the whole URL, for example http://127.0.0.1:8000/metrics."),
            one_of(&["url", "prometheus"], "a metrics page").help(ONE_SOURCE),
        ]),
        field(
            "role",
            Kind::Leaf(&ROLE),
            "Role of the workers behind this page, for figures and limits by role.",
        )
        .example("prefill"),
        field(
            "gpus",
            Kind::Whole(0, 1_000_000),
            "GPUs of all workers behind this page, which are added. All pages of a role need it \
            if one has it; `0` is a page without workers, such as that of a DCGM exporter.",
        )
        .example("4")
        .rules(&[conflicts_with(&["prometheus"], &[])
            .reason("a query has no GPUs")
            .beside("this is a query")
            .help("Set `gpus` at a page of the role.")]),
        field(
            "addresses",
            Kind::Choice(
                &[
                    ("one", "The host is one worker; the default."),
                    (
                        "all",
                        "Every address of the host is a worker with a page of its own: the \
                    pods behind one DNS name. They are looked up before each round.",
                    ),
                ],
                &[],
            ),
            "The workers behind the host name.",
        )
        .example("all")
        .rules(&[conflicts_with(&["prometheus"], &[])
            .reason("a query has no workers")
            .beside("this is a query")
            .help("Remove it.")]),
        field(
            "prometheus",
            Kind::Text,
            "In place of `url`: the URL of a Prometheus server, whose `query` is \
            evaluated over each round.",
        )
        .example("http://prometheus:9090")
        .rules(&[
            one_of(&["url", "prometheus"], "a Prometheus server").help(ONE_SOURCE),
            requires(&["query"]).help(
                "For example `query: \
            sum(rate(vllm:prompt_tokens_total[30s]))`.",
            ),
        ]),
        field(
            "query",
            Kind::Text,
            "The query, in PromQL. It is evaluated once before the first request, \
            which shows errors.",
        )
        .example("sum(rate(vllm:prompt_tokens_total[30s]))")
        .rules(&[
            requires(&["prometheus"]).help("For example `prometheus: http://prometheus:9090`."),
            requires(&["name"]).help(
                "For example `name: prompt_rate`, for \
            `server[\"prompt_rate\"].mean > 1000`.",
            ),
        ]),
        field(
            "name",
            Kind::Leaf(&QUERY_NAME),
            "Name of the values of the query, in \
        limits and in `telemetry.parquet`.",
        )
        .example("prompt_rate")
        .rules(&[requires(&["query"]).help(
            "The name is that of a query; the \
            series of a page have their own names.",
        )]),
        field(
            "interval",
            Kind::Leaf(&SPAN),
            "Scrape interval, which all pages share; also the scrape timeout, up to 5 s. Of a \
            query, the time between two values.",
        )
        .default("1s")
        .example("500ms"),
        field(
            "headers",
            Kind::Map(&Kind::Secret),
            "Headers of the requests; never printed, never stored.",
        )
        .example("{ Authorization: \"Bearer ${METRICS_TOKEN}\" }"),
    ],
};

static ROLE: Leaf = Leaf {
    expected: "a word of letters, digits, `-` and `_`",
    sweepable: false,
    schema: || json!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_-]*$" }),
    check: |node, review| {
        if !is_word(node, |c| {
            c.is_ascii_alphanumeric() || ['_', '-'].contains(&c)
        }) {
            expect(node, ROLE.expected, "`prefill`", review);
        }
    },
};

static QUERY_NAME: Leaf = Leaf {
    expected: "a name of letters, digits, `_` and `:`",
    sweepable: false,
    schema: || json!({ "type": "string", "pattern": "^[A-Za-z_:][A-Za-z0-9_:]*$" }),
    check: |node, review| {
        if !is_word(node, |c| {
            c.is_ascii_alphanumeric() || ['_', ':'].contains(&c)
        }) {
            expect(node, QUERY_NAME.expected, "`prompt_rate`", review);
        }
    },
};

fn is_word(node: &Node, is_valid: impl Fn(char) -> bool) -> bool {
    node.text().is_some_and(|text| {
        text.starts_with(|c: char| !c.is_ascii_digit() && c != '-') && text.chars().all(is_valid)
    })
}

/// The pages and queries of `target.metrics`. Reports those that are invalid, or contradict each other.
pub(crate) fn decode_metrics(draft: &Draft<'_>, review: &mut Review) -> Vec<MetricsSource> {
    let Some(node) = draft.get("target.metrics") else {
        return Vec::new();
    };
    let alone = std::slice::from_ref(node);
    let items = if node.items().is_empty() {
        alone
    } else {
        node.items()
    };
    let mut sources: Vec<(&Node, MetricsSource)> = Vec::new();
    for item in items {
        let Some(source) = decode_source(item, review) else {
            continue;
        };
        for (other_item, other) in &sources {
            if let Some(mistake) = contradiction((item, &source), (other_item, other)) {
                review.push(mistake);
                break;
            }
        }
        sources.push((item, source));
    }
    report_missing_gpus(&sources, review);
    sources.into_iter().map(|(_, source)| source).collect()
}

fn decode_source(item: &Node, review: &mut Review) -> Option<MetricsSource> {
    let Some(entry) = item.entry("url").or_else(|| item.entry("prometheus")) else {
        // A query without a server is reported by its rule.
        if item.entry("query").is_none() {
            let mistake = Mistake::new(item.at, "`metrics` needs `url`", "`url` is missing");
            review.push(mistake.help("For example `url: http://127.0.0.1:8000/metrics`."));
        }
        return None;
    };
    let url = entry.value.string()?;
    let is_other = (url == SIMULATOR && entry.key == "url") || review.is_unset(&url);
    if let Some(error) = url_error(&url).filter(|_| !is_other) {
        let (label, example) = match entry.key.as_str() {
            "url" => (error, "http://127.0.0.1:8000/metrics"),
            _ if !error.starts_with("expected") => (error, "http://prometheus:9090"),
            _ => (
                "expected `http://…` or `https://…`",
                "http://prometheus:9090",
            ),
        };
        let mistake = Mistake::new(entry.value.at, "this is not a URL", label);
        review.push(mistake.help(format!("Write the whole URL, for example {example}.")));
    }
    let node = item.get("interval")?;
    let interval = duration(node)?;
    if interval < SHORTEST {
        let mistake = Mistake::new(
            node.at,
            "the metrics would be scraped more than 100 times per second",
            "at least 10ms",
        );
        review.push(mistake.help("Each scrape is work for the server under test; `1s` is usual."));
    }
    let kind = match entry.key.as_str() {
        "url" => MetricsKind::Page {
            all_addresses: item.get("addresses").and_then(Node::text).as_deref() == Some("all"),
        },
        _ => {
            let query = item.get("query")?;
            let (line, _) = review.sources.line_and_column(query.at);
            MetricsKind::Query {
                name: item.get("name")?.string()?,
                promql: query.string()?,
                place: format!("{}:{line}", review.sources.name(query.at.file)),
            }
        }
    };
    let gpus = item.get("gpus").and_then(Node::integer);
    Some(MetricsSource {
        scrape: Scrape {
            url,
            interval,
            headers: headers(item.entries_at("headers"), review),
        },
        role: item.get("role").and_then(Node::string),
        gpus: gpus.and_then(|gpus| u32::try_from(gpus).ok()),
        kind,
    })
}

/// A sum over some of the workers of a role would make the figures per GPU too high.
fn report_missing_gpus(sources: &[(&Node, MetricsSource)], review: &mut Review) {
    let pages = || sources.iter().filter(|(_, source)| source.is_page());
    for (item, page) in pages().filter(|(_, page)| page.gpus.is_none()) {
        let of_role = |(_, other): &&(&Node, MetricsSource)| other.role == page.role;
        let Some((with_gpus, _)) = pages()
            .filter(of_role)
            .find(|(_, other)| other.gpus.is_some())
        else {
            continue;
        };
        let pages = page.role.as_ref().map_or_else(
            || "pages without a role".to_owned(),
            |role| format!("pages with the role `{role}`"),
        );
        let message = format!("only some of the {pages} have `gpus`");
        let mistake = Mistake::new(item.at, message, "without `gpus`")
            .also(with_gpus.at, "with `gpus`")
            .help(
                "Write `gpus` on each of them: the GPUs of the workers behind it, or 0 for a \
            page without workers, such as that of a DCGM exporter.",
            );
        review.push(mistake);
    }
}

/// What two items cannot both be.
fn contradiction(
    (item, source): (&Node, &MetricsSource),
    (other_item, other): (&Node, &MetricsSource),
) -> Option<Mistake> {
    let at = |item: &Node, key: &str| item.entry(key).map_or(item.at, |entry| entry.value.at);
    match (&source.kind, &other.kind) {
        (MetricsKind::Page { .. }, MetricsKind::Page { .. }) => {
            if comparable_url(&source.scrape.url) == comparable_url(&other.scrape.url) {
                let mistake =
                    Mistake::new(at(item, "url"), "the same page is listed twice", "again");
                return Some(
                    mistake
                        .also(at(other_item, "url"), "first here")
                        .help("Its values would count twice: remove one of them."),
                );
            }
            (source.scrape.interval != other.scrape.interval).then(|| {
                let message = "the pages have different intervals";
                Mistake::new(at(item, "interval"), message, "another interval")
                    .also(at(other_item, "interval"), "the first one")
                    .help(
                        "All pages are read at the same time, so that their values can be \
                    added: give each the same `interval`.",
                    )
            })
        }
        (MetricsKind::Query { name, .. }, MetricsKind::Query { name: first, .. }) => {
            (name == first).then(|| {
                let message = format!("two queries have the name `{name}`");
                Mistake::new(at(item, "name"), message, "again")
                    .also(at(other_item, "name"), "first here")
                    .help("Give each query its own name.")
            })
        }
        _ => None,
    }
}

/// The GPUs of the target: those in the scenario, else those of its pages if each has them. Reports more GPUs of the
/// pages than the target has, and a different sum.
pub(crate) fn decode_gpus(
    draft: &Draft<'_>,
    sources: &[MetricsSource],
    review: &mut Review,
) -> Option<u32> {
    let pages = || sources.iter().filter(|source| source.is_page());
    let total: u32 = pages().filter_map(|page| page.gpus).sum();
    let is_complete = total > 0 && pages().all(|page| page.gpus.is_some());
    let Some(gpus) = draft.count("target.gpus") else {
        return is_complete.then_some(total);
    };
    if total > gpus || (is_complete && total != gpus) {
        let at = draft
            .get("target.gpus")
            .map_or(draft.root.at, |node| node.at);
        let message = format!("`gpus` is {gpus}, but the pages of `metrics` have {total}");
        let mistake = Mistake::new(at, message, "the GPUs of the whole target");
        review.push(mistake.help(format!("Write `gpus: {total}`, or remove it.")));
    }
    Some(gpus)
}

#[cfg(test)]
mod tests;
