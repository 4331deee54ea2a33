//! `report.track`: experiment trackers that are told of a run.

use crate::schema_table::{Block, Kind, field};
use crate::sections::Draft;
use llmscen_core::target::Secret;
use llmscen_core::track::{Files, Mlflow, Track, Wandb, WandbMode};

const FILES: Kind = Kind::Choice(
    &[("none", "No files"), ("reports", "Reports, charts, results and the plan; not the rows"), ("all", "The rows too")],
    &[],
);

/// The keys of `report.track`.
pub(crate) static TRACK: Block = Block {
    doc: "Experiment trackers that are told of the run once it is over: parameters, metrics, files. One that cannot be reached is said, and changes nothing else; `llmscen report RUN_DIR --track` tells it again.",
    short: None,
    fields: &[
        field("mlflow", Kind::Block(&MLFLOW), "An MLflow server.").example("{ url: http://127.0.0.1:5000 }"),
        field("wandb", Kind::Block(&WANDB), "Weights & Biases, by its own Python client.")
            .example("{ project: serving, mode: offline }"),
    ],
};

static MLFLOW: Block = Block {
    doc: "An MLflow tracking server, by its REST API: a run, with a nested run for each case where there are several.",
    short: Some("url"),
    fields: &[
        field("url", Kind::Text, "Its address.").required().example("\"${MLFLOW_TRACKING_URI}\""),
        field(
            "experiment",
            Kind::Text,
            "The experiment, made where there is none of that name; without it that of the scenario's name.",
        )
        .example("serving/chat"),
        field("token", Kind::Secret, "Sent as `Authorization: Bearer …`.").example("\"${MLFLOW_TRACKING_TOKEN}\""),
        field("username", Kind::Text, "User name, where it wants a login.").example("ci"),
        field("password", Kind::Secret, "Its password.").example("\"${MLFLOW_TRACKING_PASSWORD}\""),
        field("tags", Kind::Map(&Kind::Text), "Tags of every run.").example("{ team: infra }"),
        field("files", FILES, "Files sent along.").default("reports").example("all"),
    ],
};

static WANDB: Block = Block {
    doc: "Weights & Biases, by its own Python client, with that client's own login: a run for the whole and one for each case, in one group.",
    short: Some("project"),
    fields: &[
        field("project", Kind::Text, "The project.").required().example("serving"),
        field("entity", Kind::Text, "The team or user; without it the login's own.").example("infra"),
        field("api_key", Kind::Secret, "The API key, in place of the client's own login.").example("\"${WANDB_API_KEY}\""),
        field(
            "mode",
            Kind::Choice(
                &[("online", "Over the network"), ("offline", "Kept in `wandb/` of the run folder, for `wandb sync`")],
                &[],
            ),
            "Whether it is reached over the network.",
        )
        .default("online")
        .example("offline"),
        field("python", Kind::Text, "The interpreter that has the client.").default("python3").example(".venv/bin/python"),
        field("tags", Kind::List(&Kind::Text), "Tags of every run.").example("[nightly]"),
        field("files", FILES, "Files sent along.").default("reports").example("none"),
    ],
};

/// The trackers of a checked scenario of this name.
pub(crate) fn decode(draft: &Draft<'_>, name: &str) -> Track {
    Track { mlflow: mlflow(draft, name), wandb: wandb(draft) }
}

fn mlflow(draft: &Draft<'_>, name: &str) -> Option<Mlflow> {
    let at = |key: &str| format!("report.track.mlflow.{key}");
    let text = |key: &str| draft.text(&at(key)).map(|text| text.into_owned()).filter(|text| !text.is_empty());
    let tags = draft.get(&at("tags")).map(|node| node.entries()).unwrap_or_default();
    Some(Mlflow {
        url: text("url")?,
        experiment: text("experiment").unwrap_or_else(|| name.to_owned()),
        token: text("token").map(Secret::new),
        login: text("username").map(|user| (user, Secret::new(text("password").unwrap_or_default()))),
        tags: tags.iter().filter_map(|entry| Some((entry.key.clone(), entry.value.text()?.into_owned()))).collect(),
        files: files(draft, &at("files")),
    })
}

fn wandb(draft: &Draft<'_>) -> Option<Wandb> {
    let at = |key: &str| format!("report.track.wandb.{key}");
    let text = |key: &str| draft.text(&at(key)).map(|text| text.into_owned());
    let tags = draft.get(&at("tags")).map(|node| node.items()).unwrap_or_default();
    Some(Wandb {
        project: text("project")?,
        entity: text("entity"),
        api_key: text("api_key").filter(|key| !key.is_empty()).map(Secret::new),
        mode: if text("mode").as_deref() == Some("offline") { WandbMode::Offline } else { WandbMode::Online },
        python: text("python").unwrap_or_else(|| "python3".into()),
        tags: tags.iter().filter_map(|node| node.text().map(|text| text.into_owned())).collect(),
        files: files(draft, &at("files")),
    })
}

fn files(draft: &Draft<'_>, path: &str) -> Files {
    match draft.text(path).as_deref() {
        Some("none") => Files::Nothing,
        Some("all") => Files::All,
        _ => Files::Reports,
    }
}
