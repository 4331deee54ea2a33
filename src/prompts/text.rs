//! A file as text: read once, unpacked, and checked to be UTF-8.

use super::error::PromptError;
use flate2::read::MultiGzDecoder;
use std::io::Read;
use std::path::Path;

/// Reads a text file, gzip undone and byte order mark dropped.
pub fn read(path: &Path) -> Result<String, PromptError> {
    let bytes = std::fs::read(path).map_err(|source| PromptError::Read { path: path.to_owned(), source })?;
    decode(bytes, path)
}

/// The bytes of `path` as text. Formats are told by their first bytes, whatever the file is called.
pub fn decode(bytes: Vec<u8>, path: &Path) -> Result<String, PromptError> {
    let plain = match bytes.as_slice() {
        [0x1f, 0x8b, ..] => unpack(&bytes).map_err(|source| PromptError::Read { path: path.to_owned(), source })?,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return Err(format(path, "zstd-compressed", "gzip or plain text")),
        [b'P', b'A', b'R', b'1', ..] => return Err(format(path, "a parquet file", "JSONL")),
        _ => bytes,
    };
    let mut text = String::from_utf8(plain).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        PromptError::Utf8 { path: path.to_owned(), line: line_at(&error.as_bytes()[..byte]), byte }
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    if text.trim_ascii().is_empty() {
        return Err(PromptError::Empty { path: path.to_owned() });
    }
    Ok(text)
}

/// The line, from 1, that follows these bytes.
pub fn line_at(before: &[u8]) -> usize {
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

fn unpack(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut plain)?;
    Ok(plain)
}

fn format(path: &Path, format: &'static str, instead: &'static str) -> PromptError {
    PromptError::Format { path: path.to_owned(), format, instead }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn decoded(bytes: &[u8]) -> Result<String, String> {
        decode(bytes.to_vec(), Path::new("d.txt")).map_err(|error| error.to_string())
    }

    #[test]
    fn gzip_and_byte_order_marks_are_undone() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all("\u{feff}grüße\n".as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        assert_eq!(decoded(&packed).unwrap(), "grüße\n");
        assert_eq!(decoded("\u{feff}a".as_bytes()).unwrap(), "a");
        assert!(decoded(&packed[..packed.len() - 9]).unwrap_err().starts_with("cannot read the dataset d.txt: "));
    }

    #[test]
    fn a_bad_byte_is_found_by_line_and_offset() {
        let error = decoded(b"one\ntwo\nth\xff").unwrap_err();
        assert!(error.starts_with("the dataset d.txt is not UTF-8: line 3, byte 10 of the file"), "{error}");
    }

    #[test]
    fn what_is_not_read_is_named() {
        assert_eq!(decoded(b"").unwrap_err(), "the dataset d.txt is empty");
        assert_eq!(decoded(b" \r\n\n").unwrap_err(), "the dataset d.txt is empty");
        assert!(decoded(b"\x28\xb5\x2f\xfd rest").unwrap_err().contains("zstd-compressed"));
        assert!(decoded(b"PAR1").unwrap_err().ends_with("convert it to JSONL"));
        let gone = read(Path::new("/nowhere/d.txt")).unwrap_err().to_string();
        assert!(gone.starts_with("cannot read the dataset /nowhere/d.txt: No such file"), "{gone}");
    }
}
