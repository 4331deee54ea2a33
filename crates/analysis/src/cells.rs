//! Reads the table cell by cell, for stores other than Parquet.

use crate::error::TableError;
use crate::schema;
use crate::table::Table;
use llmscen_parquet::{Kind, ParquetError};
use polars_arrow::array::{
    Array, BooleanArray, ListArray, PrimitiveArray, StaticArray, Utf8ViewArray,
};
use polars_arrow::types::NativeType;
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
        Kind::U32 | Kind::U64 | Kind::I64 => Form::Whole,
        Kind::F64 => Form::Real,
        Kind::U32List | Kind::U64List | Kind::F64List => Form::List,
    }
}

/// A range of one column.
pub struct Values(Typed);

enum Typed {
    Text(Utf8ViewArray),
    Flag(BooleanArray),
    U32(PrimitiveArray<u32>),
    U64(PrimitiveArray<u64>),
    F64(PrimitiveArray<f64>),
    Few(ListArray<i64>, PrimitiveArray<u32>),
    Wholes(ListArray<i64>, PrimitiveArray<u64>),
    Reals(ListArray<i64>, PrimitiveArray<f64>),
}

impl Table {
    /// A column of [`columns`] in a range of rows.
    ///
    /// # Errors
    /// The table has no such column.
    pub fn values(&self, name: &str, rows: Range<usize>) -> Result<Values, TableError> {
        let missing = || ParquetError::missing(name);
        let kind = schema::columns()
            .find(|(known, _)| *known == name)
            .ok_or_else(missing)?
            .1;
        let column = self.column(name, rows)?;
        let column = column.as_ref();
        let typed = match kind {
            Kind::Text => array(column).map(Typed::Text),
            Kind::Flag => array(column).map(Typed::Flag),
            Kind::U32 => array(column).map(Typed::U32),
            Kind::U64 => array(column).map(Typed::U64),
            // No column of the request table has it.
            Kind::I64 => None,
            Kind::F64 => array(column).map(Typed::F64),
            Kind::U32List => lists(column).map(|(lists, items)| Typed::Few(lists, items)),
            Kind::U64List => lists(column).map(|(lists, items)| Typed::Wholes(lists, items)),
            Kind::F64List => lists(column).map(|(lists, items)| Typed::Reals(lists, items)),
        };
        Ok(Values(typed.ok_or_else(missing)?))
    }
}

fn array<A: Clone + 'static>(column: &dyn Array) -> Option<A> {
    column.as_any().downcast_ref::<A>().cloned()
}

fn lists<T: NativeType>(column: &dyn Array) -> Option<(ListArray<i64>, PrimitiveArray<T>)> {
    let lists: ListArray<i64> = array(column)?;
    let items = array(lists.values().as_ref())?;
    Some((lists, items))
}

impl Values {
    /// The value in a row of the range; null for a row outside of it.
    pub fn get(&self, row: usize) -> Cell<'_> {
        let cell = match &self.0 {
            Typed::Text(array) => array.get(row).map(Cell::Text),
            Typed::Flag(array) => array.get(row).map(Cell::Flag),
            Typed::U32(array) => array.get(row).map(|value| Cell::Whole(value.into())),
            Typed::U64(array) => array.get(row).map(Cell::Whole),
            Typed::F64(array) => array.get(row).map(Cell::Real),
            Typed::Few(lists, items) => Some(Cell::Few(list(lists, items, row))),
            Typed::Wholes(lists, items) => Some(Cell::Wholes(list(lists, items, row))),
            Typed::Reals(lists, items) => Some(Cell::Reals(list(lists, items, row))),
        };
        cell.unwrap_or(Cell::Null)
    }
}

/// The items of a list; none for a row outside of the column.
fn list<'a, T: NativeType>(
    lists: &ListArray<i64>,
    items: &'a PrimitiveArray<T>,
    row: usize,
) -> &'a [T] {
    if row >= lists.len() {
        return &[];
    }
    let (from, to) = lists.offsets().start_end(row);
    items.values().as_slice().get(from..to).unwrap_or_default()
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
