//! One cell as JSON.

use crate::ParquetError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polars_arrow::array::{
    Array, BinaryArray, BinaryViewArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray, ListArray,
    MapArray, PrimitiveArray, StructArray, Utf8Array, Utf8ViewArray,
};
use polars_arrow::datatypes::{ArrowDataType, IntegerType, TimeUnit};
use polars_arrow::temporal_conversions as time;
use polars_arrow::types::NativeType;
use serde_json::Value;

/// The cell in a row. A number that JSON does not have (NaN, infinity) is `null`.
///
/// # Errors
/// A type that has no JSON.
pub(super) fn value(array: &dyn Array, row: usize) -> Result<Value, ParquetError> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    let found = match array.dtype() {
        ArrowDataType::Null => Some(Value::Null),
        ArrowDataType::Boolean => array.as_any().downcast_ref::<BooleanArray>().map(|own| own.value(row).into()),
        ArrowDataType::Int8 => primitive::<i8>(array, row).map(Value::from),
        ArrowDataType::Int16 => primitive::<i16>(array, row).map(Value::from),
        ArrowDataType::Int32 => primitive::<i32>(array, row).map(Value::from),
        ArrowDataType::Int64 => primitive::<i64>(array, row).map(Value::from),
        ArrowDataType::UInt8 => primitive::<u8>(array, row).map(Value::from),
        ArrowDataType::UInt16 => primitive::<u16>(array, row).map(Value::from),
        ArrowDataType::UInt32 => primitive::<u32>(array, row).map(Value::from),
        ArrowDataType::UInt64 => primitive::<u64>(array, row).map(Value::from),
        ArrowDataType::Float32 => primitive::<f32>(array, row).map(shortest),
        ArrowDataType::Float64 => primitive::<f64>(array, row).map(Value::from),
        ArrowDataType::Decimal(_, scale) => primitive::<i128>(array, row).map(|digits| decimal(digits, *scale).into()),
        ArrowDataType::Date32 => primitive::<i32>(array, row).map(|days| written(time::date32_to_date_opt(days))),
        ArrowDataType::Timestamp(unit, _) => primitive::<i64>(array, row).map(|stamp| instant(stamp, *unit)),
        ArrowDataType::Time64(TimeUnit::Microsecond) => {
            primitive::<i64>(array, row).map(|stamp| written(time::time64us_to_time_opt(stamp)))
        }
        ArrowDataType::Time64(TimeUnit::Nanosecond) => {
            primitive::<i64>(array, row).map(|stamp| written(time::time64ns_to_time_opt(stamp)))
        }
        ArrowDataType::Dictionary(IntegerType::UInt8, ..) => return word::<u8>(array, row),
        ArrowDataType::Dictionary(IntegerType::UInt16, ..) => return word::<u16>(array, row),
        ArrowDataType::Dictionary(IntegerType::UInt32, ..) => return word::<u32>(array, row),
        ArrowDataType::Dictionary(IntegerType::Int32, ..) => return word::<i32>(array, row),
        ArrowDataType::Dictionary(IntegerType::Int64, ..) => return word::<i64>(array, row),
        _ => return text(array, row).map_or_else(|| nested(array, row), Ok),
    };
    found.ok_or_else(|| unknown(array))
}

fn primitive<T: NativeType>(array: &dyn Array, row: usize) -> Option<T> {
    array.as_any().downcast_ref::<PrimitiveArray<T>>().map(|own| own.value(row))
}

/// The shortest number that is the same float: 0.1 and not 0.10000000149011612.
fn shortest(number: f32) -> Value {
    number.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

fn decimal(digits: i128, scale: usize) -> String {
    let sign = if digits < 0 { "-" } else { "" };
    let mut text = format!("{:0>width$}", digits.unsigned_abs(), width = scale + 1);
    if scale > 0 {
        text.insert(text.len() - scale, '.');
    }
    format!("{sign}{text}")
}

fn instant(stamp: i64, unit: TimeUnit) -> Value {
    written(match unit {
        TimeUnit::Second => time::timestamp_s_to_datetime_opt(stamp),
        TimeUnit::Millisecond => time::timestamp_ms_to_datetime_opt(stamp),
        TimeUnit::Microsecond => time::timestamp_us_to_datetime_opt(stamp),
        TimeUnit::Nanosecond => time::timestamp_ns_to_datetime_opt(stamp),
    })
}

fn written(moment: Option<impl ToString>) -> Value {
    moment.map_or(Value::Null, |moment| moment.to_string().into())
}

fn word<K: polars_arrow::array::DictionaryKey>(array: &dyn Array, row: usize) -> Result<Value, ParquetError> {
    let own = array.as_any().downcast_ref::<DictionaryArray<K>>().ok_or_else(|| unknown(array))?;
    value(own.values().as_ref(), own.key_value(row))
}

/// Texts as they are, bytes as base64.
fn text(array: &dyn Array, row: usize) -> Option<Value> {
    let any = array.as_any();
    let views = any.downcast_ref::<Utf8ViewArray>().map(|own| own.value(row));
    let plain = || any.downcast_ref::<Utf8Array<i32>>().map(|own| own.value(row));
    let large = || any.downcast_ref::<Utf8Array<i64>>().map(|own| own.value(row));
    if let Some(text) = views.or_else(plain).or_else(large) {
        return Some(text.into());
    }
    let views = any.downcast_ref::<BinaryViewArray>().map(|own| own.value(row));
    let plain = || any.downcast_ref::<BinaryArray<i32>>().map(|own| own.value(row));
    let large = || any.downcast_ref::<BinaryArray<i64>>().map(|own| own.value(row));
    let fixed = || any.downcast_ref::<FixedSizeBinaryArray>().map(|own| own.value(row));
    views.or_else(plain).or_else(large).or_else(fixed).map(|bytes| STANDARD.encode(bytes).into())
}

fn nested(array: &dyn Array, row: usize) -> Result<Value, ParquetError> {
    let any = array.as_any();
    if let Some(own) = any.downcast_ref::<StructArray>() {
        let pairs = own.fields().iter().zip(own.values());
        let pairs = pairs.map(|(field, column)| Ok((field.name.to_string(), value(column.as_ref(), row)?)));
        return pairs.collect::<Result<_, ParquetError>>().map(Value::Object);
    }
    let small = any.downcast_ref::<ListArray<i32>>().map(|own| own.value(row));
    let large = || any.downcast_ref::<ListArray<i64>>().map(|own| own.value(row));
    let fixed = || any.downcast_ref::<FixedSizeListArray>().map(|own| own.value(row));
    let map = || any.downcast_ref::<MapArray>().map(|own| own.value(row));
    let items = small.or_else(large).or_else(fixed).or_else(map).ok_or_else(|| unknown(array))?;
    (0..items.len()).map(|index| value(items.as_ref(), index)).collect::<Result<_, _>>().map(Value::Array)
}

fn unknown(array: &dyn Array) -> ParquetError {
    ParquetError::Decoder(format!("a column of type {:?} has no JSON", array.dtype()))
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn decimals_keep_their_zeros_and_their_sign() {
        for (digits, scale, text) in [(105, 2, "1.05"), (-5, 2, "-0.05"), (7, 0, "7"), (-1200, 3, "-1.200")] {
            assert_eq!(decimal(digits, scale), text);
        }
    }
}
