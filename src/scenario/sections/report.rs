//! `report`: what is written, and where.

use crate::model::plan::{Format, ReportSpec};
use crate::scenario::block::{Block, Kind, field, planned};
use crate::scenario::sections::{Draft, track};

const FORMATS: [(&str, Format); 5] =
    [("md", Format::Md), ("png", Format::Png), ("junit", Format::Junit), ("csv", Format::Csv), ("json", Format::Json)];

static FORMAT: Kind = Kind::Choice(
    &[
        ("md", "report.md"),
        ("png", "charts/*.png"),
        ("junit", "junit.xml, a test case per limit and case"),
        ("csv", "cases.csv, a row per case"),
        ("json", "results.json, always written"),
    ],
    &["html"],
);

/// The keys of `report`.
pub(crate) static REPORT: Block = Block {
    doc: "What is written, and where. requests.parquet and results.json are always written.",
    short: None,
    fields: &[
        field("formats", Kind::List(&FORMAT), "Reports to write.").default("[md, png, junit, csv, json]").example("[md, junit]"),
        field("dir", Kind::Text, "Folder of all runs, relative to the working directory.").default("reports").example("perf"),
        field("track", Kind::Block(&track::TRACK), "Experiment trackers that are told of the run.")
            .example("{ mlflow: http://127.0.0.1:5000 }"),
        planned("store"),
        planned("bodies"),
    ],
};

/// The reports of a checked scenario.
pub(crate) fn decode(draft: &Draft<'_>) -> Option<ReportSpec> {
    let named = draft.get("report.formats")?.items().iter().filter_map(|item| item.text());
    let mut formats: Vec<Format> = Vec::new();
    for format in named.filter_map(|name| FORMATS.iter().find(|(own, _)| *own == name).map(|(_, format)| *format)) {
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    let track = track::decode(draft, &draft.text("name")?);
    Some(ReportSpec { formats, dir: draft.text("report.dir")?.into_owned(), track })
}
