//! `report`: what is written, and where.

use crate::schema_table::{Block, Kind, field};
use crate::sections::{Draft, track};
use llmscen_core::artifacts::{Bodies, Store};
use llmscen_core::export_format::Peer;
use llmscen_core::plan::{Format, ReportSpec};

const FORMATS: [(&str, Format); 7] = [
    ("md", Format::Md),
    ("html", Format::Html),
    ("png", Format::Png),
    ("svg", Format::Svg),
    ("junit", Format::Junit),
    ("csv", Format::Csv),
    ("json", Format::Json),
];

const STORES: [(&str, Store); 3] = [("parquet", Store::Parquet), ("sqlite", Store::Sqlite), ("hlog", Store::Hlog)];

const BODIES: [(&str, Bodies); 4] =
    [("none", Bodies::None), ("sample", Bodies::Sample), ("failed", Bodies::Failed), ("all", Bodies::All)];

static FORMAT: Kind = Kind::Choice(
    &[
        ("md", "report.md"),
        ("html", "report.html, one file with interactive charts"),
        ("png", "charts/*.png"),
        ("svg", "charts/*.svg, the same charts to scale and to edit"),
        ("junit", "junit.xml, a test case per limit and case"),
        ("csv", "cases.csv, a row per case"),
        ("json", "results.json, always written"),
    ],
    &[],
);

static STORE: Kind = Kind::Choice(
    &[
        ("parquet", "requests.parquet, always written"),
        ("sqlite", "requests.db, an SQLite database of the same rows, the cases and the verdicts"),
        ("hlog", "histograms.hlog, an HdrHistogram log of TTFT, ITL, E2E and TPOT over time"),
    ],
    &[],
);

const BODY: Kind = Kind::Choice(
    &[
        ("none", "keep no body"),
        ("sample", "in each round of a case those of its first ten requests, of twenty that failed and of twenty that are drawn"),
        ("failed", "those of every request that was sent and failed"),
        ("all", "those of every request that was sent"),
    ],
    &[],
);

static PEER: Kind = Kind::Choice(
    &[
        ("evalscope", "benchmark_summary.json and benchmark_percentile.json"),
        ("vllm", "what `vllm bench serve --save-result --save-detailed` saves"),
        ("aiperf", "profile_export_aiperf.json and .csv, profile_export.jsonl"),
        ("guidellm", "benchmarks.json and benchmarks.csv"),
        ("lmdeploy", "the profile CSV of its three generations"),
    ],
    &[],
);

/// The keys of `report`.
pub(crate) static REPORT: Block = Block {
    doc: "What is written, and where. requests.parquet and results.json are always written.",
    short: None,
    fields: &[
        field("formats", Kind::List(&FORMAT), "Reports to write.")
            .default("[md, html, png, junit, csv, json]")
            .example("[md, junit]"),
        field("dir", Kind::Text, "Folder of all runs, relative to the working directory.").default("reports").example("perf"),
        field("store", Kind::List(&STORE), "Forms in which the rows are stored; requests.parquet always is.")
            .default("[parquet]")
            .example("[parquet, sqlite]"),
        field(
            "bodies",
            BODY,
            "Whose request and response bodies are kept, secrets removed and at most 1 MiB of each. They lie in requests.db, \
             which is then written whether `store` names it or not.",
        )
        .default("none")
        .example("sample"),
        field("compat", Kind::List(&PEER), "Other tools in whose form the results are written too, under compat/.")
            .example("[vllm]"),
        field("track", Kind::Block(&track::TRACK), "Experiment trackers that are told of the run.")
            .example("{ mlflow: { url: http://127.0.0.1:5000 } }"),
    ],
};

/// The reports of a checked scenario.
pub(crate) fn decode(draft: &Draft<'_>) -> Option<ReportSpec> {
    let bodies = draft.text("report.bodies")?;
    let bodies = BODIES.iter().find(|(name, _)| *name == bodies)?.1;
    let mut store = chosen(draft, "report.store", &STORES)?;
    if bodies != Bodies::None && !store.contains(&Store::Sqlite) {
        store.push(Store::Sqlite);
    }
    let named = draft.get("report.compat").map(|list| list.items()).unwrap_or_default();
    let compat =
        Peer::ALL.into_iter().filter(|peer| named.iter().any(|item| item.text().as_deref() == Some(peer.name()))).collect();
    Some(ReportSpec {
        formats: chosen(draft, "report.formats", &FORMATS)?,
        dir: draft.text("report.dir")?.into_owned(),
        store,
        bodies,
        compat,
        track: track::decode(draft, &draft.text("name")?),
    })
}

/// What a list of words names, each once.
fn chosen<T: Copy + PartialEq>(draft: &Draft<'_>, path: &str, words: &[(&str, T)]) -> Option<Vec<T>> {
    let named = draft.get(path)?.items().iter().filter_map(|item| item.text());
    let mut all = Vec::new();
    for one in named.filter_map(|name| words.iter().find(|(own, _)| *own == name).map(|(_, one)| *one)) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use crate::{Input, load};
    use llmscen_core::artifacts::{Bodies, Store};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn report(section: &str) -> Result<(Vec<Store>, Bodies), String> {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: simulator }}\ndataset: {{ kind: prompt, text: x }}\n\
             load: {{ concurrency: 1, requests: 1 }}\n{section}"
        );
        let loaded = load(&Input { path: Path::new("t.yaml"), text: Some(text), env: &BTreeMap::new(), set: &[] });
        loaded.map(|loaded| (loaded.plan.report.store, loaded.plan.report.bodies)).map_err(|faults| faults.render(false, 120))
    }

    #[test]
    fn bodies_bring_the_database_that_they_lie_in() {
        use Store::{Hlog, Parquet, Sqlite};
        assert_eq!(report(""), Ok((vec![Parquet], Bodies::None)));
        assert_eq!(report("report: { store: [hlog, sqlite, hlog] }"), Ok((vec![Hlog, Sqlite], Bodies::None)));
        assert_eq!(report("report: { store: [parquet], bodies: all }"), Ok((vec![Parquet, Sqlite], Bodies::All)));
        assert_eq!(report("report: { bodies: failed }"), Ok((vec![Parquet, Sqlite], Bodies::Failed)));
        assert_eq!(report("report: { store: [sqlite], bodies: sample }"), Ok((vec![Sqlite], Bodies::Sample)));
        let error = report("report: { store: [sqlit], bodies: some }").unwrap_err();
        assert!(
            error.contains("did you mean `sqlite`")
                && error.contains("unknown bodies `some`")
                && error.contains("`none`, `sample`, `failed` or `all`"),
            "{error}"
        );
    }
}
