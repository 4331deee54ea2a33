//! What templates know from Python.

use minijinja::value::{Kwargs, Serde};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// `json.dumps`, as Hugging Face calls it: nothing escaped for HTML, non-ASCII letters as they are, a blank behind `,`
/// and `:`. Takes `indent`, `sort_keys` and `ensure_ascii`.
pub fn tojson(Serde(mut json): Serde<Value>, options: Kwargs) -> Result<String, Error> {
    let wrong = |error: serde_json::Error| Error::new(ErrorKind::InvalidOperation, error.to_string());
    let indent: Option<usize> = options.get("indent")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    if sorted == Some(true) {
        json.sort_all_objects();
    }
    let text = match indent {
        Some(width) => written(&json, PrettyFormatter::with_indent(" ".repeat(width).as_bytes())),
        None => written(&json, OneLine),
    };
    let text = text.map_err(wrong)?;
    Ok(if ascii == Some(true) { in_ascii(&text) } else { text })
}

fn written(json: &Value, formatter: impl Formatter) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    json.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A blank behind each separator.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

fn in_ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    let mut units = [0; 2];
    for letter in text.chars() {
        match letter.is_ascii() {
            true => ascii.push(letter),
            false => letter.encode_utf16(&mut units).iter().for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    ascii
}

/// `strftime` of Friday, 26 July 2024, 00:00:00. A directive that is not known stays as it is.
pub fn strftime(format: &str) -> String {
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let (mut directive, mut padded) = (letters.next(), true);
        if directive == Some('-') {
            (directive, padded) = (letters.next(), false);
        }
        let word = match directive {
            Some('d' | 'e') => "26",
            Some('b' | 'h') => "Jul",
            Some('B') => "July",
            Some('m') => {
                if padded {
                    "07"
                } else {
                    "7"
                }
            }
            Some('Y') => "2024",
            Some('y') => "24",
            Some('a') => "Fri",
            Some('A') => "Friday",
            Some('j') => "208",
            Some('H' | 'M' | 'S') => {
                if padded {
                    "00"
                } else {
                    "0"
                }
            }
            Some('I') => "12",
            Some('p') => "AM",
            Some('F') => "2024-07-26",
            Some('T') => "00:00:00",
            Some('%') => "%",
            Some(other) => {
                out.push('%');
                out.push(other);
                continue;
            }
            None => "%",
        };
        out.push_str(word);
    }
    out
}
