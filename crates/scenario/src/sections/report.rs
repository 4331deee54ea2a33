//! `report`: output formats, folder and experiment trackers.

use crate::draft::Draft;
use crate::schema_table::{Block, Kind, field};
use crate::tree::Node;
use llmscen_core::artifacts::{
    Bodies, ExportFormat, Mlflow, Store, Trackers, UploadFiles, Wandb, WandbMode,
};
use llmscen_core::plan::{Format, ReportSpec};
use llmscen_core::redact::Secret;

const FORMATS: [(&str, Format); 7] = [
    ("md", Format::Md),
    ("html", Format::Html),
    ("png", Format::Png),
    ("svg", Format::Svg),
    ("junit", Format::Junit),
    ("csv", Format::Csv),
    ("json", Format::Json),
];

const STORES: [(&str, Store); 3] = [
    ("parquet", Store::Parquet),
    ("sqlite", Store::Sqlite),
    ("hlog", Store::Hlog),
];

const BODIES: [(&str, Bodies); 4] = [
    ("none", Bodies::None),
    ("sample", Bodies::Sample),
    ("failed", Bodies::Failed),
    ("all", Bodies::All),
];

static FORMAT: Kind = Kind::Choice(
    &[
        ("md", "report.md"),
        ("html", "report.html, one file with interactive charts"),
        ("png", "charts/*.png"),
        ("svg", "charts/*.svg, the same charts as vector graphics"),
        ("junit", "junit.xml, a test case per limit and case"),
        ("csv", "cases.csv, a row per case"),
        ("json", "results.json, always written"),
    ],
    &[],
);

static STORE: Kind = Kind::Choice(
    &[
        ("parquet", "requests.parquet, always written"),
        (
            "sqlite",
            "requests.db, an SQLite database with the same records, the cases and the verdicts",
        ),
        (
            "hlog",
            "histograms.hlog, an HdrHistogram log of TTFT, ITL, E2E and TPOT over time",
        ),
    ],
    &[],
);

const BODY: Kind = Kind::Choice(
    &[
        ("none", "no bodies"),
        (
            "sample",
            "per round of a case the first ten requests, twenty failed ones and \
            twenty random ones",
        ),
        ("failed", "every request that was sent and failed"),
        ("all", "every request that was sent"),
    ],
    &[],
);

static PEER: Kind = Kind::Choice(
    &[
        (
            "evalscope",
            "benchmark_summary.json and benchmark_percentile.json",
        ),
        (
            "vllm",
            "the file of `vllm bench serve --save-result --save-detailed`",
        ),
        (
            "aiperf",
            "profile_export_aiperf.json and .csv, profile_export.jsonl",
        ),
        ("guidellm", "benchmarks.json and benchmarks.csv"),
        ("lmdeploy", "the profile CSV files of its three scripts"),
        (
            "llm-d",
            "benchmark_report_v0.2,_CASE.json of llm-d-benchmark",
        ),
        ("inferencex", "agg_CASE.json of InferenceX"),
    ],
    &[],
);

pub(crate) static REPORT: Block = Block {
    doc: "Output formats and folder. requests.parquet and results.json are always written.",
    short: None,
    fields: &[
        field("formats", Kind::List(&FORMAT), "Reports to write.")
            .default("[md, html, png, junit, csv, json]")
            .example("[md, junit]"),
        field(
            "dir",
            Kind::Text,
            "Folder of all runs, relative to the working directory.",
        )
        .default("reports")
        .example("perf"),
        field(
            "store",
            Kind::List(&STORE),
            "Formats of the per-request records; requests.parquet is always written.",
        )
        .default("[parquet]")
        .example("[parquet, sqlite]"),
        field(
            "bodies",
            BODY,
            "Which request and response bodies to store in requests.db (secrets redacted, 1 MiB \
            per body). They add `sqlite` to `store`.",
        )
        .default("none")
        .example("sample"),
        field(
            "compat",
            Kind::List(&PEER),
            "Also write the results in the formats of other tools, to compat/.",
        )
        .example("[vllm]"),
        field(
            "track",
            Kind::Block(&TRACK),
            "Experiment trackers to upload the run to.",
        )
        .example("{ mlflow: { url: http://127.0.0.1:5000 } }"),
    ],
};

pub(crate) fn decode(draft: &Draft<'_>) -> Option<ReportSpec> {
    let bodies = draft.text("report.bodies")?;
    let bodies = BODIES.iter().find(|(name, _)| *name == bodies)?.1;
    let mut store = decode_words(draft, "report.store", &STORES)?;
    if bodies != Bodies::None && !store.contains(&Store::Sqlite) {
        store.push(Store::Sqlite);
    }
    let named = draft.items_at("report.compat");
    let compat = ExportFormat::ALL
        .into_iter()
        .filter(|peer| {
            named
                .iter()
                .any(|item| item.text().as_deref() == Some(peer.name()))
        })
        .collect();
    Some(ReportSpec {
        formats: decode_words(draft, "report.formats", &FORMATS)?,
        dir: draft.string("report.dir")?,
        store,
        bodies,
        compat,
        track: decode_track(draft, &draft.text("name")?),
    })
}

/// The values of a list of words, without duplicates.
fn decode_words<T: Copy + PartialEq>(
    draft: &Draft<'_>,
    path: &str,
    words: &[(&str, T)],
) -> Option<Vec<T>> {
    let named = draft
        .get(path)?
        .items()
        .iter()
        .filter_map(|item| item.text());
    let mut all = Vec::new();
    for one in named.filter_map(|name| {
        words
            .iter()
            .find(|(word, _)| *word == name)
            .map(|(_, one)| *one)
    }) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    Some(all)
}

const FILES: Kind = Kind::Choice(
    &[
        ("none", "No files"),
        (
            "reports",
            "Reports, charts, results and the plan, without the per-request records",
        ),
        ("all", "Also the per-request records"),
    ],
    &[],
);

pub(crate) static TRACK: Block = Block {
    doc: "Experiment trackers that receive parameters, metrics and files after the \
    run. An unreachable tracker is reported and does not change the run; `llmscen \
    report RUN_DIR --track` uploads it again.",
    short: None,
    fields: &[
        field("mlflow", Kind::Block(&MLFLOW), "An MLflow server.")
            .example("{ url: http://127.0.0.1:5000 }"),
        field(
            "wandb",
            Kind::Block(&WANDB),
            "Weights & Biases, with its Python client.",
        )
        .example("{ project: serving, mode: offline }"),
    ],
};

static MLFLOW: Block = Block {
    doc: "An MLflow tracking server, with its REST API: one run, with a nested run \
    per case if there are several.",
    short: Some("url"),
    fields: &[
        field("url", Kind::Text, "Its address.")
            .required()
            .example("\"${MLFLOW_TRACKING_URI}\""),
        field(
            "experiment",
            Kind::Text,
            "The experiment, which is created if it does not exist; \
        the scenario's name by default.",
        )
        .example("serving/chat"),
        field("token", Kind::Secret, "Sent as `Authorization: Bearer …`.")
            .example("\"${MLFLOW_TRACKING_TOKEN}\""),
        field("username", Kind::Text, "User name for a login.").example("ci"),
        field("password", Kind::Secret, "Its password.").example("\"${MLFLOW_TRACKING_PASSWORD}\""),
        field("tags", Kind::Map(&Kind::Text), "Tags of every run.").example("{ team: infra }"),
        field("files", FILES, "Files to upload.")
            .default("reports")
            .example("all"),
    ],
};

static WANDB: Block = Block {
    doc: "Weights & Biases, with its Python client and that client's login: one run \
    for the whole and one per case, in one group.",
    short: Some("project"),
    fields: &[
        field("project", Kind::Text, "The project.")
            .required()
            .example("serving"),
        field(
            "entity",
            Kind::Text,
            "The team or user; that of the login by default.",
        )
        .example("infra"),
        field(
            "api_key",
            Kind::Secret,
            "The API key, instead of the client's login.",
        )
        .example("\"${WANDB_API_KEY}\""),
        field(
            "mode",
            Kind::Choice(
                &[
                    ("online", "Over the network"),
                    (
                        "offline",
                        "Stored in `wandb/` of the run folder, for `wandb sync`",
                    ),
                ],
                &[],
            ),
            "Whether the network is used.",
        )
        .default("online")
        .example("offline"),
        field("python", Kind::Text, "The interpreter with the client.")
            .default("python3")
            .example(".venv/bin/python"),
        field("tags", Kind::List(&Kind::Text), "Tags of every run.").example("[nightly]"),
        field("files", FILES, "Files to upload.")
            .default("reports")
            .example("none"),
    ],
};

pub(crate) fn decode_track(draft: &Draft<'_>, name: &str) -> Trackers {
    Trackers {
        mlflow: decode_mlflow(draft, name),
        wandb: decode_wandb(draft),
    }
}

fn decode_mlflow(draft: &Draft<'_>, name: &str) -> Option<Mlflow> {
    let at = |key: &str| format!("report.track.mlflow.{key}");
    let text = |key: &str| draft.string(&at(key)).filter(|text| !text.is_empty());
    Some(Mlflow {
        url: text("url")?,
        experiment: text("experiment").unwrap_or_else(|| name.to_owned()),
        token: text("token").map(Secret::new),
        login: text("username")
            .map(|user| (user, Secret::new(text("password").unwrap_or_default()))),
        tags: draft
            .get(&at("tags"))
            .into_iter()
            .flat_map(Node::string_pairs)
            .collect(),
        files: decode_files(draft, &at("files")),
    })
}

fn decode_wandb(draft: &Draft<'_>) -> Option<Wandb> {
    let at = |key: &str| format!("report.track.wandb.{key}");
    let text = |key: &str| draft.string(&at(key));
    Some(Wandb {
        project: text("project")?,
        entity: text("entity"),
        api_key: text("api_key")
            .filter(|key| !key.is_empty())
            .map(Secret::new),
        mode: if text("mode").as_deref() == Some("offline") {
            WandbMode::Offline
        } else {
            WandbMode::Online
        },
        python: text("python").unwrap_or_else(|| "python3".into()),
        tags: draft
            .items_at(&at("tags"))
            .iter()
            .filter_map(Node::string)
            .collect(),
        files: decode_files(draft, &at("files")),
    })
}

fn decode_files(draft: &Draft<'_>, path: &str) -> UploadFiles {
    match draft.text(path).as_deref() {
        Some("none") => UploadFiles::Nothing,
        Some("all") => UploadFiles::All,
        _ => UploadFiles::Reports,
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::load_with;

    use llmscen_core::artifacts::{Bodies, Store};

    fn report(section: &str) -> Result<(Vec<Store>, Bodies), String> {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: simulator }}\ndataset: {{ kind: \
             prompt, text: x }}\nload: {{ concurrency: 1, requests: 1 }}\n{section}"
        );
        let loaded = load_with(&text, &[], &[]);
        loaded
            .map(|loaded| (loaded.plan.report.store, loaded.plan.report.bodies))
            .map_err(|faults| faults.render(false, 120))
    }

    #[test]
    fn bodies_add_sqlite_to_the_store() {
        use Store::{Hlog, Parquet, Sqlite};
        assert_eq!(report(""), Ok((vec![Parquet], Bodies::None)));
        assert_eq!(
            report("report: { store: [hlog, sqlite, hlog] }"),
            Ok((vec![Hlog, Sqlite], Bodies::None))
        );
        assert_eq!(
            report("report: { store: [parquet], bodies: all }"),
            Ok((vec![Parquet, Sqlite], Bodies::All))
        );
        assert_eq!(
            report("report: { bodies: failed }"),
            Ok((vec![Parquet, Sqlite], Bodies::Failed))
        );
        assert_eq!(
            report("report: { store: [sqlite], bodies: sample }"),
            Ok((vec![Sqlite], Bodies::Sample))
        );
        let error = report("report: { store: [sqlit], bodies: some }").unwrap_err();
        assert!(
            error.contains("did you mean `sqlite`")
                && error.contains("unknown bodies `some`")
                && error.contains("`none`, `sample`, `failed` or `all`"),
            "{error}"
        );
    }
}
