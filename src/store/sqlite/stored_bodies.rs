//! Reads the stored bodies of a run, with facts of each request.

use crate::store::error::StoreError;
use crate::store::rundir::{DATABASE, RunDir};
use crate::store::sqlite::{DatabaseError, open, to_integer};
use flate2::read::ZlibDecoder;
use llmscen_core::units::Nanos;
use rusqlite::{Connection, Row, named_params};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Read;

/// Selects requests; None: no restriction.
#[derive(Clone, Debug, Default)]
pub struct BodyFilter {
    /// Case id.
    pub case: Option<String>,
    /// Round, from 0.
    pub round: Option<u32>,
    /// Number of the request or session.
    pub seq: Option<u64>,
    /// Turn, from 0.
    pub turn: Option<u32>,
    /// Only failed requests.
    pub failed: bool,
}

/// A request whose bodies are stored.
#[derive(Debug)]
pub struct StoredBodies {
    /// Case id.
    pub case: String,
    /// Round, from 0.
    pub round: u32,
    /// Number.
    pub seq: u64,
    /// Turn, from 0.
    pub turn: u32,
    /// Turns of its session.
    pub turns: u32,
    /// `ok`, or the kind of failure.
    pub outcome: String,
    /// HTTP status, if any.
    pub status: Option<u16>,
    /// Message of the failure, and its position in the response.
    pub error: Option<(String, String)>,
    /// Send time, after the start of the round.
    pub sent: Option<Nanos>,
    /// Time of the response headers, after the start of the round.
    pub headers: Option<Nanos>,
    /// Time of the first token, after the start of the round.
    pub first_token: Option<Nanos>,
    /// End of the request, after the start of the round.
    pub end: Nanos,
    /// Request body.
    pub request: StoredBody,
    /// Response body; None without a response.
    pub response: Option<StoredBody>,
}

/// A stored body.
#[derive(Debug)]
pub struct StoredBody {
    /// Compressed JSON text.
    packed: Vec<u8>,
    /// Length in bytes, without content encoding.
    pub bytes: u64,
    /// Whether only the beginning is stored.
    pub cut: bool,
}

/// The stored form of a response.
#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    body: &'a RawValue,
}

impl StoredBodies {
    /// Text of the request body.
    ///
    /// # Errors
    /// It cannot be decompressed.
    pub fn request_text(&self) -> std::io::Result<String> {
        unquote(&self.request.decompress()?)
    }

    /// Text of the response body; None without a response.
    ///
    /// # Errors
    /// It cannot be decompressed.
    pub fn response_text(&self) -> std::io::Result<Option<String>> {
        let Some(response) = &self.response else {
            return Ok(None);
        };
        let text = response.decompress()?;
        let stored: Response<'_> = serde_json::from_str(&text)?;
        unquote(stored.body.get()).map(Some)
    }
}

impl StoredBody {
    fn decompress(&self) -> std::io::Result<String> {
        let mut text = String::new();
        ZlibDecoder::new(self.packed.as_slice()).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// The body in its stored JSON: the content of a string, else the document.
fn unquote(json: &str) -> std::io::Result<String> {
    if json.starts_with('"') {
        Ok(serde_json::from_str(json)?)
    } else {
        Ok(json.to_owned())
    }
}

const WHERE: &str = "FROM bodies JOIN requests USING (case_id, round, seq, turn)
    WHERE (:case IS NULL OR case_id = :case) AND (:round IS NULL OR round = :round)
    AND (:seq IS NULL OR seq = :seq) AND (:turn IS NULL OR turn = :turn)
    AND (NOT :failed OR outcome NOT IN ('ok', 'abandoned'))";

/// The first `limit` selected bodies in the order of the run, and the number of all selected ones. Without a database
/// there are none.
///
/// # Errors
/// The database cannot be read.
pub fn stored_bodies(
    run: &RunDir,
    filter: &BodyFilter,
    limit: u64,
) -> Result<(Vec<StoredBodies>, u64), StoreError> {
    let path = run.file(DATABASE);
    if !path.exists() {
        return Ok((Vec::new(), 0));
    }
    run.check_file(DATABASE)?;
    open(&path)
        .and_then(|connection| query(&connection, filter, limit))
        .map_err(|error| error.with_path(&path))
}

fn query(
    connection: &Connection,
    filter: &BodyFilter,
    limit: u64,
) -> Result<(Vec<StoredBodies>, u64), DatabaseError> {
    // No request has a number beyond the range of SQLite.
    let seq = filter.seq.map(|seq| to_integer(seq).unwrap_or(i64::MAX));
    let parameters = named_params! {
        ":case": filter.case, ":round": filter.round, ":seq": seq, ":turn": filter.turn, ":failed": filter.failed,
    };
    let count: i64 =
        connection.query_row(&format!("SELECT count(*) {WHERE}"), parameters, |row| {
            row.get(0)
        })?;
    let limit = to_integer(limit).unwrap_or(i64::MAX);
    let mut select = connection.prepare(&format!(
        "SELECT case_id, round, seq, turn, turns, outcome, status, error, error_at, sent_ns, headers_ns, first_token_ns, end_ns,
         request, request_bytes, request_cut, response, response_bytes, response_cut {WHERE} ORDER BY bodies.rowid LIMIT {limit}"
    ))?;
    let rows = select
        .query_map(parameters, read_row)?
        .collect::<Result<Vec<_>, _>>()?;
    Ok((rows, count.unsigned_abs()))
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<StoredBodies> {
    let at = |column: &str| {
        Ok::<_, rusqlite::Error>(
            row.get::<_, Option<i64>>(column)?
                .map(|at| Nanos(at.unsigned_abs())),
        )
    };
    let bytes = |column: &str| {
        Ok::<_, rusqlite::Error>(
            row.get::<_, Option<i64>>(column)?
                .unwrap_or_default()
                .unsigned_abs(),
        )
    };
    let response: Option<Vec<u8>> = row.get("response")?;
    let response = response.map(|packed| {
        Ok::<_, rusqlite::Error>(StoredBody {
            packed,
            bytes: bytes("response_bytes")?,
            cut: row.get("response_cut")?,
        })
    });
    let error: Option<String> = row.get("error")?;
    Ok(StoredBodies {
        case: row.get("case_id")?,
        round: row.get("round")?,
        seq: row.get::<_, i64>("seq")?.unsigned_abs(),
        turn: row.get("turn")?,
        turns: row.get("turns")?,
        outcome: row.get("outcome")?,
        status: row.get("status")?,
        error: error
            .map(|error| {
                Ok::<_, rusqlite::Error>((
                    error,
                    row.get::<_, Option<String>>("error_at")?
                        .unwrap_or_default(),
                ))
            })
            .transpose()?,
        sent: at("sent_ns")?,
        headers: at("headers_ns")?,
        first_token: at("first_token_ns")?,
        end: at("end_ns")?.unwrap_or_default(),
        request: StoredBody {
            packed: row.get("request")?,
            bytes: bytes("request_bytes")?,
            cut: row.get("request_cut")?,
        },
        response: response.transpose()?,
    })
}
