//! A small file as text: read at once, unpacked, and checked to be UTF-8.

use super::error::PromptError;
use super::file::{Magic, unpacked};
use llmscen_core::bounds;
use std::path::Path;

/// Reads a text file, gzip or zstd undone and byte order mark dropped.
pub fn read(path: &Path) -> Result<String, PromptError> {
    let wrong = |source| PromptError::Read { path: path.to_owned(), source };
    let (magic, stream) = unpacked(Box::new(bounds::open_stream(path).map_err(wrong)?), path)?;
    if magic == Magic::Parquet {
        return Err(PromptError::Format { path: path.to_owned(), format: "a parquet file", instead: "plain text" });
    }
    let bytes = bounds::read_stream(stream, bounds::DATA).map_err(wrong)?;
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..byte].iter().filter(|byte| **byte == b'\n').count() + 1;
        PromptError::Utf8 { path: path.to_owned(), line, byte }
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    if text.trim_ascii().is_empty() {
        return Err(PromptError::Empty { path: path.to_owned() });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn written(bytes: &[u8]) -> Result<String, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let path = file.path().display().to_string();
        read(file.path()).map_err(|error| error.to_string().replace(&path, "d.txt"))
    }

    #[test]
    fn compression_and_byte_order_marks_are_undone() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all("\u{feff}grüße\n".as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        assert_eq!(written(&packed).unwrap(), "grüße\n");
        assert_eq!(written(&zstd::encode_all("grüße".as_bytes(), 1).unwrap()).unwrap(), "grüße");
        assert_eq!(written("\u{feff}a".as_bytes()).unwrap(), "a");
        assert!(written(&packed[..packed.len() - 9]).unwrap_err().starts_with("cannot read the dataset d.txt: "));
    }

    #[test]
    fn a_bad_byte_is_found_by_line_and_offset() {
        let error = written(b"one\ntwo\nth\xff").unwrap_err();
        assert!(error.starts_with("the dataset d.txt is not UTF-8: line 3, byte 10 of the file"), "{error}");
    }

    #[test]
    fn what_is_not_read_is_named() {
        assert_eq!(written(b"").unwrap_err(), "the dataset d.txt is empty");
        assert_eq!(written(b" \r\n\n").unwrap_err(), "the dataset d.txt is empty");
        assert!(written(b"PAR1").unwrap_err().ends_with("convert it to plain text"));
        let gone = read(Path::new("/nowhere/d.txt")).unwrap_err().to_string();
        assert!(gone.starts_with("cannot read the dataset /nowhere/d.txt: No such file"), "{gone}");
    }
}
