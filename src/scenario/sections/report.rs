//! `report`: what is written, and where.

use crate::model::plan::{Format, ReportSpec};
use crate::scenario::block::{Block, Kind, field, planned};
use crate::scenario::sections::Draft;

const FORMATS: [(&str, Format); 6] = [
    ("md", Format::Md),
    ("html", Format::Html),
    ("png", Format::Png),
    ("junit", Format::Junit),
    ("csv", Format::Csv),
    ("json", Format::Json),
];

static FORMAT: Kind = Kind::Choice(
    &[
        ("md", "report.md"),
        ("html", "report.html, one file with interactive charts"),
        ("png", "charts/*.png"),
        ("junit", "junit.xml, a test case per limit and case"),
        ("csv", "cases.csv, a row per case"),
        ("json", "results.json, always written"),
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
    Some(ReportSpec { formats, dir: draft.text("report.dir")?.into_owned() })
}
