//! Converts one cell to JSON.

use crate::ParquetError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polars_arrow::array::{
    Array, BinaryArray, BinaryViewArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray,
    FixedSizeListArray, ListArray, MapArray, PrimitiveArray, StructArray, Utf8Array, Utf8ViewArray,
};
use polars_arrow::datatypes::{ArrowDataType, IntegerType, TimeUnit};
use polars_arrow::temporal_conversions as time;
use polars_arrow::types::NativeType;
use serde_json::Value;

/// The cell of a row. NaN and infinity, which JSON lacks, become `null`.
///
/// # Errors
/// The column's type has no JSON form.
pub(super) fn cell_to_json(array: &dyn Array, row: usize) -> Result<Value, ParquetError> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    let value = match array.dtype() {
        ArrowDataType::Null => Some(Value::Null),
        ArrowDataType::Boolean => array
            .as_any()
            .downcast_ref::<BooleanArray>()
            .map(|array| array.value(row).into()),
        ArrowDataType::Int8 => primitive::<i8>(array, row).map(Value::from),
        ArrowDataType::Int16 => primitive::<i16>(array, row).map(Value::from),
        ArrowDataType::Int32 => primitive::<i32>(array, row).map(Value::from),
        ArrowDataType::Int64 => primitive::<i64>(array, row).map(Value::from),
        ArrowDataType::UInt8 => primitive::<u8>(array, row).map(Value::from),
        ArrowDataType::UInt16 => primitive::<u16>(array, row).map(Value::from),
        ArrowDataType::UInt32 => primitive::<u32>(array, row).map(Value::from),
        ArrowDataType::UInt64 => primitive::<u64>(array, row).map(Value::from),
        ArrowDataType::Float32 => primitive::<f32>(array, row).map(shortest_float),
        ArrowDataType::Float64 => primitive::<f64>(array, row).map(Value::from),
        ArrowDataType::Decimal(_, scale) => {
            primitive::<i128>(array, row).map(|digits| format_decimal(digits, *scale).into())
        }
        ArrowDataType::Date32 => {
            primitive::<i32>(array, row).map(|days| time_to_json(time::date32_to_date_opt(days)))
        }
        ArrowDataType::Timestamp(unit, _) => {
            primitive::<i64>(array, row).map(|stamp| timestamp_to_json(stamp, *unit))
        }
        ArrowDataType::Time64(TimeUnit::Microsecond) => primitive::<i64>(array, row)
            .map(|stamp| time_to_json(time::time64us_to_time_opt(stamp))),
        ArrowDataType::Time64(TimeUnit::Nanosecond) => primitive::<i64>(array, row)
            .map(|stamp| time_to_json(time::time64ns_to_time_opt(stamp))),
        ArrowDataType::Dictionary(IntegerType::UInt8, ..) => {
            return dictionary_value::<u8>(array, row);
        }
        ArrowDataType::Dictionary(IntegerType::UInt16, ..) => {
            return dictionary_value::<u16>(array, row);
        }
        ArrowDataType::Dictionary(IntegerType::UInt32, ..) => {
            return dictionary_value::<u32>(array, row);
        }
        ArrowDataType::Dictionary(IntegerType::Int32, ..) => {
            return dictionary_value::<i32>(array, row);
        }
        ArrowDataType::Dictionary(IntegerType::Int64, ..) => {
            return dictionary_value::<i64>(array, row);
        }
        _ => return text(array, row).map_or_else(|| nested(array, row), Ok),
    };
    value.ok_or_else(|| unsupported(array))
}

fn primitive<T: NativeType>(array: &dyn Array, row: usize) -> Option<T> {
    array
        .as_any()
        .downcast_ref::<PrimitiveArray<T>>()
        .map(|array| array.value(row))
}

/// The shortest decimal number that is the same float: 0.1, not 0.10000000149011612.
fn shortest_float(number: f32) -> Value {
    number
        .to_string()
        .parse::<f64>()
        .map_or(Value::Null, Value::from)
}

fn format_decimal(digits: i128, scale: usize) -> String {
    let sign = if digits < 0 { "-" } else { "" };
    let mut text = format!("{:0>width$}", digits.unsigned_abs(), width = scale + 1);
    if scale > 0 {
        text.insert(text.len() - scale, '.');
    }
    format!("{sign}{text}")
}

fn timestamp_to_json(stamp: i64, unit: TimeUnit) -> Value {
    time_to_json(match unit {
        TimeUnit::Second => time::timestamp_s_to_datetime_opt(stamp),
        TimeUnit::Millisecond => time::timestamp_ms_to_datetime_opt(stamp),
        TimeUnit::Microsecond => time::timestamp_us_to_datetime_opt(stamp),
        TimeUnit::Nanosecond => time::timestamp_ns_to_datetime_opt(stamp),
    })
}

fn time_to_json(moment: Option<impl ToString>) -> Value {
    moment.map_or(Value::Null, |moment| moment.to_string().into())
}

fn dictionary_value<K: polars_arrow::array::DictionaryKey>(
    array: &dyn Array,
    row: usize,
) -> Result<Value, ParquetError> {
    let own = array
        .as_any()
        .downcast_ref::<DictionaryArray<K>>()
        .ok_or_else(|| unsupported(array))?;
    cell_to_json(own.values().as_ref(), own.key_value(row))
}

/// Text unchanged, bytes as base64.
fn text(array: &dyn Array, row: usize) -> Option<Value> {
    let any = array.as_any();
    let views = any
        .downcast_ref::<Utf8ViewArray>()
        .map(|array| array.value(row));
    let plain = || {
        any.downcast_ref::<Utf8Array<i32>>()
            .map(|array| array.value(row))
    };
    let large = || {
        any.downcast_ref::<Utf8Array<i64>>()
            .map(|array| array.value(row))
    };
    if let Some(text) = views.or_else(plain).or_else(large) {
        return Some(text.into());
    }
    let views = any
        .downcast_ref::<BinaryViewArray>()
        .map(|array| array.value(row));
    let plain = || {
        any.downcast_ref::<BinaryArray<i32>>()
            .map(|array| array.value(row))
    };
    let large = || {
        any.downcast_ref::<BinaryArray<i64>>()
            .map(|array| array.value(row))
    };
    let fixed = || {
        any.downcast_ref::<FixedSizeBinaryArray>()
            .map(|array| array.value(row))
    };
    views
        .or_else(plain)
        .or_else(large)
        .or_else(fixed)
        .map(|bytes| STANDARD.encode(bytes).into())
}

fn nested(array: &dyn Array, row: usize) -> Result<Value, ParquetError> {
    let any = array.as_any();
    if let Some(own) = any.downcast_ref::<StructArray>() {
        let pairs = own.fields().iter().zip(own.values());
        let pairs = pairs.map(|(field, column)| {
            Ok((field.name.to_string(), cell_to_json(column.as_ref(), row)?))
        });
        return pairs
            .collect::<Result<_, ParquetError>>()
            .map(Value::Object);
    }
    let small = any
        .downcast_ref::<ListArray<i32>>()
        .map(|array| array.value(row));
    let large = || {
        any.downcast_ref::<ListArray<i64>>()
            .map(|array| array.value(row))
    };
    let fixed = || {
        any.downcast_ref::<FixedSizeListArray>()
            .map(|array| array.value(row))
    };
    let map = || any.downcast_ref::<MapArray>().map(|array| array.value(row));
    let items = small
        .or_else(large)
        .or_else(fixed)
        .or_else(map)
        .ok_or_else(|| unsupported(array))?;
    (0..items.len())
        .map(|index| cell_to_json(items.as_ref(), index))
        .collect::<Result<_, _>>()
        .map(Value::Array)
}

fn unsupported(array: &dyn Array) -> ParquetError {
    ParquetError::Decoder(format!(
        "a column of type {:?} cannot be converted to JSON",
        array.dtype()
    ))
}

#[cfg(test)]
mod tests {
    use super::format_decimal;

    #[test]
    fn decimals_keep_their_zeros_and_their_sign() {
        for (digits, scale, text) in [
            (105, 2, "1.05"),
            (-5, 2, "-0.05"),
            (7, 0, "7"),
            (-1200, 3, "-1.200"),
        ] {
            assert_eq!(format_decimal(digits, scale), text);
        }
    }
}
