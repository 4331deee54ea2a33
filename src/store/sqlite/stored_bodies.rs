//! Reads the bodies of a run, each beside what its row says.

use crate::store::error::StoreError;
use crate::store::rundir::RunDir;
use crate::store::sqlite::{FILE, Trouble, open, whole};
use flate2::read::ZlibDecoder;
use llmscen_core::units::Nanos;
use rusqlite::{Connection, Row, named_params};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Read;

/// Which requests are wanted; None: all of them.
#[derive(Clone, Debug, Default)]
pub struct BodyFilter {
    /// Case id.
    pub case: Option<String>,
    /// Round, from 0.
    pub round: Option<u32>,
    /// Number of the request, or of its session.
    pub seq: Option<u64>,
    /// Turn, from 0.
    pub turn: Option<u32>,
    /// Only those that failed.
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
    /// HTTP status, where one arrived.
    pub status: Option<u16>,
    /// The failure's message, and where in the response it happened.
    pub error: Option<(String, String)>,
    /// When it was sent, after the start of the round.
    pub sent: Option<Nanos>,
    /// Headers, first token and end, after the start of the round.
    pub headers: Option<Nanos>,
    /// The same.
    pub first_token: Option<Nanos>,
    /// The same.
    pub end: Nanos,
    /// The body that was sent.
    pub request: StoredBody,
    /// The body that came; None where none did.
    pub response: Option<StoredBody>,
}

/// A body as it is stored.
#[derive(Debug)]
pub struct StoredBody {
    /// Compressed JSON text.
    packed: Vec<u8>,
    /// Bytes that went over the wire, content codings undone.
    pub bytes: u64,
    /// Only its beginning is stored.
    pub cut: bool,
}

/// What is stored of a response.
#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    body: &'a RawValue,
}

impl StoredBodies {
    /// The body that was sent.
    ///
    /// # Errors
    /// It cannot be unpacked.
    pub fn request_text(&self) -> std::io::Result<String> {
        unquoted(&self.request.unpacked()?)
    }

    /// The body that came; None where none did.
    ///
    /// # Errors
    /// It cannot be unpacked.
    pub fn response_text(&self) -> std::io::Result<Option<String>> {
        let Some(response) = &self.response else { return Ok(None) };
        let text = response.unpacked()?;
        let stored: Response<'_> = serde_json::from_str(&text)?;
        unquoted(stored.body.get()).map(Some)
    }
}

impl StoredBody {
    fn unpacked(&self) -> std::io::Result<String> {
        let mut text = String::new();
        ZlibDecoder::new(self.packed.as_slice()).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// What is stored as a JSON string was a text; all else is a document.
fn unquoted(json: &str) -> std::io::Result<String> {
    if json.starts_with('"') { Ok(serde_json::from_str(json)?) } else { Ok(json.to_owned()) }
}

const WHERE: &str = "FROM bodies JOIN requests USING (case_id, round, seq, turn)
    WHERE (:case IS NULL OR case_id = :case) AND (:round IS NULL OR round = :round)
    AND (:seq IS NULL OR seq = :seq) AND (:turn IS NULL OR turn = :turn)
    AND (NOT :failed OR outcome NOT IN ('ok', 'abandoned'))";

/// The first of the wanted bodies in the order of the run, at most `limit`, and how many there are. No database: none.
///
/// # Errors
/// The database cannot be read.
pub fn stored_bodies(run: &RunDir, wanted: &BodyFilter, limit: u64) -> Result<(Vec<StoredBodies>, u64), StoreError> {
    let path = run.file(FILE);
    if !path.exists() {
        return Ok((Vec::new(), 0));
    }
    run.check_file(FILE)?;
    open(&path).and_then(|own| found(&own, wanted, limit)).map_err(|trouble| trouble.at(&path))
}

fn found(own: &Connection, wanted: &BodyFilter, limit: u64) -> Result<(Vec<StoredBodies>, u64), Trouble> {
    let (case, round, turn) = (&wanted.case, wanted.round, wanted.turn);
    // No request has a number beyond what SQLite holds.
    let seq = wanted.seq.map(|seq| whole(seq).unwrap_or(i64::MAX));
    let failed = wanted.failed;
    let which = named_params! { ":case": case, ":round": round, ":seq": seq, ":turn": turn, ":failed": failed };
    let count: i64 = own.query_row(&format!("SELECT count(*) {WHERE}"), which, |row| row.get(0))?;
    let limit = whole(limit).unwrap_or(i64::MAX);
    let mut query = own.prepare(&format!(
        "SELECT case_id, round, seq, turn, turns, outcome, status, error, error_at, sent_ns, headers_ns, first_token_ns, end_ns,
         request, request_bytes, request_cut, response, response_bytes, response_cut {WHERE} ORDER BY bodies.rowid LIMIT {limit}"
    ))?;
    let rows = query.query_map(which, stored)?.collect::<Result<Vec<_>, _>>()?;
    Ok((rows, count.unsigned_abs()))
}

fn stored(row: &Row<'_>) -> rusqlite::Result<StoredBodies> {
    let at = |column: &str| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(|at| Nanos(at.unsigned_abs())));
    let bytes = |column: &str| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.unwrap_or_default().unsigned_abs());
    let response: Option<Vec<u8>> = row.get("response")?;
    let response = response.map(|packed| {
        Ok::<_, rusqlite::Error>(StoredBody { packed, bytes: bytes("response_bytes")?, cut: row.get("response_cut")? })
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
            .map(|error| Ok::<_, rusqlite::Error>((error, row.get::<_, Option<String>>("error_at")?.unwrap_or_default())))
            .transpose()?,
        sent: at("sent_ns")?,
        headers: at("headers_ns")?,
        first_token: at("first_token_ns")?,
        end: at("end_ns")?.unwrap_or_default(),
        request: StoredBody { packed: row.get("request")?, bytes: bytes("request_bytes")?, cut: row.get("request_cut")? },
        response: response.transpose()?,
    })
}
