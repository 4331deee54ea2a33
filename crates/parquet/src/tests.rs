use super::testing::write_parquet;
use super::{DecoderPanic, IS_DECODING, Records, decode};
use polars_arrow::array::{
    Array, BinaryViewArray, BooleanArray, FixedSizeListArray, ListArray, PrimitiveArray,
    StructArray, Utf8ViewArray,
};
use polars_arrow::datatypes::{ArrowDataType, Field, TimeUnit};
use polars_arrow::offset::Offsets;
use serde_json::{Value, json};
use std::io::Cursor;

fn texts(rows: &[Option<&str>]) -> Box<dyn Array> {
    Utf8ViewArray::from_slice(rows).boxed()
}

fn read(file: &[u8]) -> Vec<Value> {
    Records::open(Cursor::new(file))
        .unwrap()
        .map(|row| Value::Object(row.unwrap()))
        .collect()
}

/// A list of `{from, value}` per row, as ShareGPT has it.
fn conversations(
    lengths: &[usize],
    from: &[Option<&str>],
    values: &[Option<&str>],
) -> Box<dyn Array> {
    let text = |name: &str| Field::new(name.into(), ArrowDataType::Utf8View, true);
    let kind = ArrowDataType::Struct(vec![text("from"), text("value")]);
    let items = StructArray::new(
        kind.clone(),
        from.len(),
        vec![texts(from), texts(values)],
        None,
    );
    let offsets: Offsets<i64> = Offsets::try_from_lengths(lengths.iter().copied()).unwrap();
    ListArray::new(
        ListArray::<i64>::default_datatype(kind),
        offsets.into(),
        items.boxed(),
        None,
    )
    .boxed()
}

#[test]
fn lists_of_structs_come_back_as_json_from_every_row_group() {
    let first = conversations(
        &[2, 0],
        &[Some("human"), Some("gpt")],
        &[Some("Hi \"you\""), None],
    );
    let second = conversations(&[1], &[Some("human")], &[Some("ü\n")]);
    let file = write_parquet(
        &["id", "talk"],
        vec![
            vec![texts(&[Some("a"), None]), first],
            vec![texts(&[Some("c")]), second],
        ],
    );
    let talk =
        json!([{ "from": "human", "value": "Hi \"you\"" }, { "from": "gpt", "value": null }]);
    let known = [
        json!({ "id": "a", "talk": talk }),
        json!({ "id": null, "talk": [] }),
        json!({ "id": "c", "talk": [{ "from": "human", "value": "ü\n" }] }),
    ];
    assert_eq!(read(&file), known);
}

#[test]
fn numbers_dates_bytes_and_fixed_lists_have_their_json() {
    let unit = ArrowDataType::Timestamp(TimeUnit::Millisecond, None);
    let pairs = ArrowDataType::FixedSizeList(
        Box::new(Field::new("item".into(), ArrowDataType::Int32, true)),
        2,
    );
    let pair = FixedSizeListArray::new(
        pairs,
        1,
        PrimitiveArray::from_slice([3i32, 4]).boxed(),
        None,
    );
    let columns: Vec<Box<dyn Array>> = vec![
        PrimitiveArray::from_slice([u64::MAX]).boxed(),
        PrimitiveArray::from_slice([-7i32]).boxed(),
        PrimitiveArray::from_slice([0.1f32]).boxed(),
        PrimitiveArray::from_slice([f64::NAN]).boxed(),
        BooleanArray::from_slice([true]).boxed(),
        BinaryViewArray::from_slice([Some(b"\x00\xff")]).boxed(),
        PrimitiveArray::<i64>::from_slice([1_700_000_000_123])
            .to(unit)
            .boxed(),
        PrimitiveArray::<i32>::from_slice([19_675])
            .to(ArrowDataType::Date32)
            .boxed(),
        PrimitiveArray::<i128>::from_slice([-105])
            .to(ArrowDataType::Decimal(9, 2))
            .boxed(),
        pair.boxed(),
    ];
    let file = write_parquet(
        &[
            "u", "i", "f", "nan", "b", "bytes", "at", "day", "price", "pair",
        ],
        vec![columns],
    );
    let known = json!({ "u": u64::MAX, "i": -7, "f": 0.1, "nan": null, "b": true, "bytes": "AP8=",
        "at": "2023-11-14 22:13:20.123", "day": "2023-11-14", "price": "-1.05", "pair": [3, 4] });
    assert_eq!(read(&file), [known]);
}

#[test]
fn a_file_that_is_not_parquet_is_an_error() {
    let file = write_parquet(&["id"], vec![vec![texts(&[Some("a")])]]);
    assert!(
        Records::open(Cursor::new(
            &b"PAR1 but not really, only as long as one"[..]
        ))
        .is_err()
    );
    assert!(Records::open(Cursor::new(&file[..file.len() / 2])).is_err());
}

#[test]
fn a_panic_of_the_decoder_is_an_error_and_others_stay_panics() {
    assert_eq!(decode(|| Ok::<_, DecoderPanic>(1)).unwrap(), 1);
    let error = decode(|| -> Result<(), DecoderPanic> {
        panic!("index {} is out of range\nat some place", 7)
    })
    .unwrap_err();
    assert_eq!(error, DecoderPanic("index 7 is out of range".into()));
    let nested = decode(|| {
        let inner = decode(|| -> Result<(), DecoderPanic> { panic!("inner") });
        assert!(inner.is_err() && IS_DECODING.get());
        Ok::<_, DecoderPanic>(())
    });
    assert!(nested.is_ok() && !IS_DECODING.get());
}
