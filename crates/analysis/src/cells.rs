//! Reads the table cell by cell, for stores other than Parquet.

use crate::columns::{F64, F64List, Flag, Text, U32, U32List, U64, U64List, View};
use crate::error::TableError;
use crate::schema::{self, Kind};
use crate::table::Table;
use llmscen_parquet::ParquetError;
use std::ops::Range;

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text.
    Text,
    /// True or false.
    Flag,
    /// A whole number.
    Whole,
    /// A real number.
    Real,
    /// A list of numbers.
    List,
}

/// One value. A null list is an empty list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// Text.
    Text(&'a str),
    /// True or false.
    Flag(bool),
    /// A whole number.
    Whole(u64),
    /// A real number.
    Real(f64),
    /// 32-bit whole numbers.
    Few(&'a [u32]),
    /// Whole numbers.
    Wholes(&'a [u64]),
    /// Real numbers.
    Reals(&'a [f64]),
}

/// Names and types of all columns, in the order of requests.parquet.
pub fn columns() -> impl Iterator<Item = (&'static str, Form)> {
    schema::columns().map(|(name, kind)| (name, form(kind)))
}

fn form(kind: Kind) -> Form {
    match kind {
        Kind::Text => Form::Text,
        Kind::Flag => Form::Flag,
        Kind::U32 | Kind::U64 => Form::Whole,
        Kind::F64 => Form::Real,
        Kind::U32List | Kind::U64List | Kind::F64List => Form::List,
    }
}

/// A range of one column.
pub struct Values(Typed);

enum Typed {
    Text(View<Text>),
    Flag(View<Flag>),
    U32(View<U32>),
    U64(View<U64>),
    F64(View<F64>),
    U32List(View<U32List>),
    U64List(View<U64List>),
    F64List(View<F64List>),
}

impl Table {
    /// A column of [`columns`] in a range of rows.
    ///
    /// # Errors
    /// The table has no such column.
    pub fn values(&self, name: &str, rows: Range<usize>) -> Result<Values, TableError> {
        let column = self.column(name, rows)?;
        let kind = schema::columns().find(|(known, _)| *known == name);
        let (_, kind) = kind.ok_or_else(|| ParquetError::missing(name))?;
        Ok(Values(match kind {
            Kind::Text => Typed::Text(View::of(&column)?),
            Kind::Flag => Typed::Flag(View::of(&column)?),
            Kind::U32 => Typed::U32(View::of(&column)?),
            Kind::U64 => Typed::U64(View::of(&column)?),
            Kind::F64 => Typed::F64(View::of(&column)?),
            Kind::U32List => Typed::U32List(View::of(&column)?),
            Kind::U64List => Typed::U64List(View::of(&column)?),
            Kind::F64List => Typed::F64List(View::of(&column)?),
        }))
    }
}

impl Values {
    /// The value in a row of the range; null for a row outside of it.
    pub fn get(&self, row: usize) -> Cell<'_> {
        let cell = match &self.0 {
            Typed::Text(column) => column.get(row).map(Cell::Text),
            Typed::Flag(column) => column.get(row).map(Cell::Flag),
            Typed::U32(column) => column.get(row).map(|value| Cell::Whole(value.into())),
            Typed::U64(column) => column.get(row).map(Cell::Whole),
            Typed::F64(column) => column.get(row).map(Cell::Real),
            Typed::U32List(column) => Some(Cell::Few(column.get(row))),
            Typed::U64List(column) => Some(Cell::Wholes(column.get(row))),
            Typed::F64List(column) => Some(Cell::Reals(column.get(row))),
        };
        cell.unwrap_or(Cell::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failed, stream, table};
    use llmscen_core::outcome::FailureKind;

    #[test]
    fn cells_are_what_the_table_holds() {
        let table = table(
            "a",
            &[
                stream(0, 100, &[150, 150, 190]),
                failed(1, FailureKind::Dropped),
            ],
        );
        let check = |name: &str, known: [Cell<'_>; 2]| {
            let values = table.values(name, 0..2).unwrap();
            assert_eq!([values.get(0), values.get(1)], known, "{name}");
        };
        check("case_id", [Cell::Text("a"); 2]);
        check("seq", [Cell::Whole(0), Cell::Whole(1)]);
        check("ttft_ms", [Cell::Real(50.0), Cell::Null]);
        check("itl_ms", [Cell::Reals(&[0.0, 40.0]), Cell::Reals(&[])]);
        check(
            "token_events_ns",
            [
                Cell::Wholes(&[150_000_000, 150_000_000, 190_000_000]),
                Cell::Wholes(&[]),
            ],
        );
        assert_eq!(table.values("seq", 1..2).unwrap().get(0), Cell::Whole(1));
        assert!(table.values("nothing", 0..2).is_err());
    }

    #[test]
    fn every_column_has_values_of_its_form() {
        let table = table("a", &[stream(0, 100, &[150, 190])]);
        for (name, form) in columns() {
            let fits = match table.values(name, 0..1).unwrap().get(0) {
                Cell::Null => true,
                Cell::Text(_) => form == Form::Text,
                Cell::Flag(_) => form == Form::Flag,
                Cell::Whole(_) => form == Form::Whole,
                Cell::Real(_) => form == Form::Real,
                Cell::Few(_) | Cell::Wholes(_) | Cell::Reals(_) => form == Form::List,
            };
            assert!(fits, "{name}");
        }
    }
}
