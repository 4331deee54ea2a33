//! The table `requests`: every row of the run.

use super::{Trouble, schema, whole};
use llmscen_analysis::Table;
use llmscen_analysis::cells::{Cell, Values};
use rusqlite::{Connection, Statement};
use std::fmt::{Display, Write};

/// Writes all rows.
pub(super) fn write(own: &Connection, table: &Table) -> Result<(), Trouble> {
    let columns = schema::requests();
    let mut statement = own.prepare(&schema::insert("requests", columns.len()))?;
    let mut text = String::new();
    for rows in table.batches() {
        let values: Vec<(Values, bool)> = columns
            .iter()
            .map(|column| Ok((table.values(column.source, rows.clone())?, column.source == schema::STAMPS)))
            .collect::<Result<_, Trouble>>()?;
        for row in 0..rows.len() {
            for (place, (values, stamps)) in values.iter().enumerate() {
                bind(&mut statement, place + 1, values.get(row), *stamps, &mut text)?;
            }
            statement.raw_execute()?;
        }
    }
    Ok(())
}

/// Binds a cell; `stamps` become gaps. Lists are JSON text, and absent where they are empty.
fn bind(statement: &mut Statement<'_>, place: usize, cell: Cell<'_>, stamps: bool, text: &mut String) -> rusqlite::Result<()> {
    match cell {
        Cell::Null | Cell::Few([]) | Cell::Wholes([]) | Cell::Reals([]) => statement.raw_bind_parameter(place, None::<i64>),
        Cell::Text(word) => statement.raw_bind_parameter(place, word),
        Cell::Flag(flag) => statement.raw_bind_parameter(place, flag),
        Cell::Whole(number) => statement.raw_bind_parameter(place, whole(number)),
        Cell::Real(number) => statement.raw_bind_parameter(place, number),
        Cell::Few(list) => statement.raw_bind_parameter(place, json(text, list.iter())),
        Cell::Wholes(list) if stamps => statement.raw_bind_parameter(place, json(text, gaps(list))),
        Cell::Wholes(list) => statement.raw_bind_parameter(place, json(text, list.iter())),
        Cell::Reals(list) => statement.raw_bind_parameter(place, json(text, list.iter())),
    }
}

fn gaps(stamps: &[u64]) -> impl Iterator<Item = i128> {
    stamps.windows(2).filter_map(|pair| Some(i128::from(*pair.last()?) - i128::from(*pair.first()?)))
}

/// A list of finite numbers as JSON.
fn json(text: &mut String, list: impl Iterator<Item = impl Display>) -> &str {
    text.clear();
    for number in list {
        text.push(if text.is_empty() { '[' } else { ',' });
        // A string takes everything.
        let _ = write!(text, "{number}");
    }
    text.push_str(if text.is_empty() { "[]" } else { "]" });
    text
}
