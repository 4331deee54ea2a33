//! The tables of requests.db, documented in docs/reference/output-files.md.

use llmscen_analysis::Table;
use llmscen_core::sample::SummaryStatistics;
use polars::prelude::DataType;

/// `PRAGMA user_version`; changes with the schema.
pub const VERSION: i32 = 2;

/// Column of the gaps between token events, nanoseconds.
const TOKEN_GAPS: &str = "token_gaps_ns";
/// Column of the request table from which the gaps are computed.
const TOKEN_TIMES: &str = "token_events_ns";
/// Left out: the gaps contain the same values.
const LEFT_OUT: &str = "itl_ms";

/// All tables but `requests` and `distributions`.
const TABLES: &str = "
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, name TEXT NOT NULL, description TEXT, tool_version TEXT NOT NULL, plan_id TEXT NOT NULL,
    seed TEXT NOT NULL, started_at TEXT NOT NULL, started_unix_ns INTEGER NOT NULL, elapsed_s REAL, interrupted INTEGER NOT NULL,
    error TEXT, verdict TEXT NOT NULL, exit_code INTEGER NOT NULL, manifest TEXT NOT NULL, plan TEXT NOT NULL
) STRICT;
CREATE TABLE cases (
    case_id TEXT PRIMARY KEY, position INTEGER NOT NULL, is_stage INTEGER NOT NULL, labels TEXT NOT NULL, load TEXT NOT NULL,
    load_value REAL, load_axis TEXT NOT NULL, rounds INTEGER NOT NULL, scheduled INTEGER NOT NULL, ok INTEGER NOT NULL,
    failed INTEGER NOT NULL, abandoned INTEGER NOT NULL, dropped INTEGER NOT NULL, warmup INTEGER NOT NULL, cooldown INTEGER NOT NULL,
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

/// Created after the rows are inserted, which is faster.
pub const INDICES: &str = "
CREATE INDEX requests_by_outcome ON requests (outcome, case_id);
CREATE INDEX requests_by_intended ON requests (case_id, round, intended_ns);
CREATE INDEX requests_by_request_id ON requests (request_id) WHERE request_id IS NOT NULL;
CREATE INDEX requests_by_response_id ON requests (response_id) WHERE response_id IS NOT NULL;
";

/// A column of `requests`.
pub struct Column {
    /// Name.
    pub name: String,
    /// Name of the column in requests.parquet.
    pub source: String,
    /// It has the gaps between the timestamps of its source.
    pub is_gaps: bool,
    dtype: DataType,
}

/// The columns of `requests`, with lists last, so that reading the other columns does not skip over them.
pub fn requests() -> Vec<Column> {
    let mut requests: Vec<Column> = Table::schema()
        .into_iter()
        .filter(|(name, _)| name != LEFT_OUT)
        .map(|(source, dtype)| Column {
            name: match source.as_str() {
                TOKEN_TIMES => TOKEN_GAPS.to_owned(),
                source => source.to_owned(),
            },
            is_gaps: source == TOKEN_TIMES,
            source: source.to_string(),
            dtype,
        })
        .collect();
    requests.sort_by_key(|column| column.dtype.is_list());
    requests
}

/// The column of a quantile: `p99`, `p99_9`.
pub fn quantile(share: f64) -> String {
    format!("p{}", (share * 1000.0).round() / 10.0).replace('.', "_")
}

/// The SQL that creates all tables.
pub fn tables() -> String {
    // A list is JSON.
    let sql_type = |dtype: &DataType| match dtype {
        DataType::Float64 => "REAL",
        DataType::String | DataType::List(_) => "TEXT",
        _ => "INTEGER",
    };
    let columns: Vec<String> = requests()
        .iter()
        .map(|column| format!("{} {}", quoted(&column.name), sql_type(&column.dtype)))
        .collect();
    let quantiles: Vec<String> = SummaryStatistics::SHARES
        .iter()
        .map(|share| format!("{} REAL NOT NULL", quantile(*share)))
        .collect();
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

/// A column name, quoted since it may be an SQL keyword.
fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// An `INSERT` statement with this number of values.
pub fn insert(table: &str, values: usize) -> String {
    format!(
        "INSERT INTO {table} VALUES ({})",
        vec!["?"; values].join(", ")
    )
}
