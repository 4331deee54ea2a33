//! The tables of requests.db, as docs/data.md describes them.

use llmscen_analysis::cells::{Form, columns};
use llmscen_core::sample::Distribution;

/// `PRAGMA user_version`: another shape is another number.
pub const VERSION: i32 = 1;

/// The gaps of the token events, nanoseconds: the first is between the first token and the second.
pub const GAPS: &str = "token_gaps_ns";
/// The column of the rows that the gaps are made of.
pub const STAMPS: &str = "token_events_ns";
/// What the gaps say already.
const LEFT_OUT: &str = "itl_ms";

/// All tables but `requests` and `distributions`, and the indices.
const TABLES: &str = "
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, name TEXT NOT NULL, description TEXT, tool_version TEXT NOT NULL, plan_id TEXT NOT NULL,
    seed TEXT NOT NULL, started_at TEXT NOT NULL, started_unix_ns INTEGER NOT NULL, elapsed_s REAL, interrupted INTEGER NOT NULL,
    error TEXT, verdict TEXT NOT NULL, exit_code INTEGER NOT NULL, manifest TEXT NOT NULL, plan TEXT NOT NULL
) STRICT;
CREATE TABLE cases (
    case_id TEXT PRIMARY KEY, position INTEGER NOT NULL, is_stage INTEGER NOT NULL, labels TEXT NOT NULL, load TEXT NOT NULL,
    load_value REAL, load_axis TEXT NOT NULL, rounds INTEGER NOT NULL, scheduled INTEGER NOT NULL, ok INTEGER NOT NULL,
    failed INTEGER NOT NULL, abandoned INTEGER NOT NULL, dropped INTEGER NOT NULL, warmup INTEGER NOT NULL,
    valid INTEGER NOT NULL, audit TEXT NOT NULL, notes TEXT NOT NULL
) STRICT;
CREATE TABLE parts (
    case_id TEXT NOT NULL, round INTEGER NOT NULL, origin_ns INTEGER NOT NULL, measured_from_ns INTEGER NOT NULL,
    sending_until_ns INTEGER, cut_short TEXT, PRIMARY KEY (case_id, round)
) STRICT;
CREATE TABLE figures (
    case_id TEXT NOT NULL, metric TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (case_id, metric)
) STRICT;
CREATE TABLE slo (
    case_id TEXT NOT NULL, position INTEGER NOT NULL, expr TEXT NOT NULL, ruling TEXT NOT NULL, threshold REAL,
    observed REAL, bound REAL, n INTEGER NOT NULL, need INTEGER, note TEXT, PRIMARY KEY (case_id, position)
) STRICT;
CREATE TABLE bodies (
    case_id TEXT NOT NULL, round INTEGER NOT NULL, seq INTEGER NOT NULL, turn INTEGER NOT NULL,
    request BLOB NOT NULL, request_bytes INTEGER NOT NULL, request_cut INTEGER NOT NULL,
    response BLOB, response_bytes INTEGER, response_cut INTEGER, PRIMARY KEY (case_id, round, seq, turn)
) STRICT;
";

/// Made when the rows are in: sorting once is quicker than keeping order.
pub const INDICES: &str = "
CREATE INDEX requests_by_outcome ON requests (outcome, case_id);
CREATE INDEX requests_by_intended ON requests (case_id, round, intended_ns);
CREATE INDEX requests_by_request_id ON requests (request_id) WHERE request_id IS NOT NULL;
CREATE INDEX requests_by_response_id ON requests (response_id) WHERE response_id IS NOT NULL;
";

/// A column of `requests`: its own name, and that of the table's column that it is made of.
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// The column of requests.parquet.
    pub source: &'static str,
    form: Form,
}

/// The columns of `requests`: lists last, so that reading the others need not pass over them.
pub fn requests() -> Vec<Column> {
    let column = |(source, form)| Column { name: if source == STAMPS { GAPS } else { source }, source, form };
    let mut all: Vec<Column> = columns().filter(|(name, _)| *name != LEFT_OUT).map(column).collect();
    all.sort_by_key(|column| column.form == Form::List);
    all
}

/// A quantile's column: `p99`, `p99_9`.
pub fn quantile(share: f64) -> String {
    format!("p{}", (share * 1000.0).round() / 10.0).replace('.', "_")
}

/// Everything that makes the tables.
pub fn tables() -> String {
    let word = |form| match form {
        Form::Text | Form::List => "TEXT",
        Form::Flag | Form::Whole => "INTEGER",
        Form::Real => "REAL",
    };
    let columns: Vec<String> = requests().iter().map(|column| format!("{} {}", quoted(column.name), word(column.form))).collect();
    let quantiles: Vec<String> = Distribution::SHARES.iter().map(|share| format!("{} REAL NOT NULL", quantile(*share))).collect();
    format!(
        "{TABLES}
CREATE TABLE requests (
    {},
    PRIMARY KEY (case_id, round, seq, turn)
) STRICT;
CREATE TABLE distributions (
    case_id TEXT NOT NULL, metric TEXT NOT NULL, n INTEGER NOT NULL, mean REAL NOT NULL, sd REAL, min REAL NOT NULL,
    {}, max REAL NOT NULL, PRIMARY KEY (case_id, metric)
) STRICT;
",
        columns.join(", "),
        quantiles.join(", ")
    )
}

/// A name that SQL may take for a word of its own.
pub fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// `INSERT` of so many values.
pub fn insert(table: &str, values: usize) -> String {
    format!("INSERT INTO {table} VALUES ({})", vec!["?"; values].join(", "))
}
