//! The table `bodies`: from the spool of the run, or else from the database that was there before.

use super::{FILE, Trouble, open, whole};
use crate::store::bodies::{Extent, Kept, spool};
use crate::store::rundir::RunDir;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, Statement, params, params_from_iter};

/// Bodies without a row, whose row a crash took, are left out.
const INSERT: &str = "INSERT INTO bodies SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
    WHERE EXISTS (SELECT 1 FROM requests WHERE case_id = ?1 AND round = ?2 AND seq = ?3 AND turn = ?4)";
const COLUMNS: usize = 10;

/// Writes the bodies that there are.
pub(super) fn write(own: &Connection, run: &RunDir) -> Result<(), Trouble> {
    let mut insert = own.prepare(INSERT)?;
    let spool = run.file(spool::FILE);
    if spool.exists() {
        return from_spool(&mut insert, Kept::open(&spool)?);
    }
    let earlier = run.file(FILE);
    if earlier.exists() {
        run.check_file(FILE)?;
        let earlier = open(&earlier)?;
        let mut all = earlier.prepare("SELECT * FROM bodies ORDER BY rowid")?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            insert.execute(params_from_iter(values(row)?))?;
        }
    }
    Ok(())
}

fn from_spool(insert: &mut Statement<'_>, kept: Kept) -> Result<(), Trouble> {
    kept.each(|head, packed| {
        let response = head.response.map(|_| &packed.response);
        let size = |extent: Extent| whole(extent.whole);
        insert.execute(params![
            head.case,
            head.round,
            whole(head.seq),
            head.turn,
            packed.request,
            size(head.request),
            head.request.cut,
            response,
            head.response.and_then(size),
            head.response.map(|extent| extent.cut),
        ])?;
        Ok(())
    })
}

fn values(row: &Row<'_>) -> rusqlite::Result<Vec<Value>> {
    (0..COLUMNS).map(|column| row.get(column)).collect()
}
