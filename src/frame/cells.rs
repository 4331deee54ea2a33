//! The table cell by cell, for stores of other forms than Parquet.

use crate::frame::error::FrameError;
use crate::frame::facts::Lists;
use crate::frame::schema::{self, Kind};
use crate::frame::table::Table;
use polars::prelude::*;

/// The form of a column's values.
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

/// One value. A list that is absent is an empty one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Absent.
    Null,
    /// Text.
    Text(&'a str),
    /// True or false.
    Flag(bool),
    /// A whole number.
    Whole(u64),
    /// A real number.
    Real(f64),
    /// Small whole numbers.
    Few(&'a [u32]),
    /// Whole numbers.
    Wholes(&'a [u64]),
    /// Real numbers.
    Reals(&'a [f64]),
}

/// The names and forms of all columns, in the order of requests.parquet.
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

/// The values of one column.
pub struct Values<'a>(Typed<'a>);

enum Typed<'a> {
    Text(&'a StringChunked),
    Flag(&'a BooleanChunked),
    U32(&'a UInt32Chunked),
    U64(&'a UInt64Chunked),
    F64(&'a Float64Chunked),
    Few(Lists<'a, UInt32Type>),
    Wholes(Lists<'a, UInt64Type>),
    Reals(Lists<'a, Float64Type>),
}

impl Table {
    /// The values of a column of [`columns`].
    ///
    /// # Errors
    /// The table has no such column.
    pub fn values(&self, name: &str) -> Result<Values<'_>, FrameError> {
        let missing = || FrameError::Missing { column: name.into() };
        let kind = schema::columns().find(|(own, _)| *own == name).ok_or_else(missing)?.1;
        let column = self.0.column(name).map_err(|_| missing())?;
        Ok(Values(match kind {
            Kind::Text => Typed::Text(column.str()?),
            Kind::Flag => Typed::Flag(column.bool()?),
            Kind::U32 => Typed::U32(column.u32()?),
            Kind::U64 => Typed::U64(column.u64()?),
            Kind::F64 => Typed::F64(column.f64()?),
            Kind::U32List => Typed::Few(Lists::new(column.list()?)),
            Kind::U64List => Typed::Wholes(Lists::new(column.list()?)),
            Kind::F64List => Typed::Reals(Lists::new(column.list()?)),
        }))
    }
}

impl<'a> Values<'a> {
    /// The value in a row; a row that there is not has none.
    pub fn get(&self, row: usize) -> Cell<'a> {
        let cell = match &self.0 {
            Typed::Text(own) => own.get(row).map(Cell::Text),
            Typed::Flag(own) => own.get(row).map(Cell::Flag),
            Typed::U32(own) => own.get(row).map(|value| Cell::Whole(value.into())),
            Typed::U64(own) => own.get(row).map(Cell::Whole),
            Typed::F64(own) => own.get(row).map(Cell::Real),
            Typed::Few(own) => Some(Cell::Few(own.get(row))),
            Typed::Wholes(own) => Some(Cell::Wholes(own.get(row))),
            Typed::Reals(own) => Some(Cell::Reals(own.get(row))),
        };
        cell.unwrap_or(Cell::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::fixture::{failed, stream, table};
    use crate::model::outcome::FailureKind;

    #[test]
    fn cells_are_what_the_table_holds() {
        let table = table("a", &[stream(0, 100, &[150, 150, 190]), failed(1, FailureKind::Dropped)]);
        let cells = |name: &str| {
            let values = table.values(name).unwrap();
            [values.get(0), values.get(1)]
        };
        assert_eq!(cells("case_id"), [Cell::Text("a"); 2]);
        assert_eq!(cells("seq"), [Cell::Whole(0), Cell::Whole(1)]);
        assert_eq!(cells("ttft_ms"), [Cell::Real(50.0), Cell::Null]);
        assert_eq!(cells("itl_ms"), [Cell::Reals(&[0.0, 40.0]), Cell::Reals(&[])]);
        assert_eq!(cells("token_events_ns")[0], Cell::Wholes(&[150_000_000, 150_000_000, 190_000_000]));
        assert!(table.values("nothing").is_err());
    }

    #[test]
    fn every_column_has_values_of_its_form() {
        let table = table("a", &[stream(0, 100, &[150, 190])]);
        for (name, form) in columns() {
            let fits = match table.values(name).unwrap().get(0) {
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
