//! logits/CASE/ROUND-SEQ.npy: NumPy arrays (format 1.0), float32 in C order, one row per decoding step.

use crate::store::error::StoreError;
use crate::store::rundir::{LOGITS, RunDir};
use std::io::Write;

/// Maximum length of a folder name.
const MAX_NAME: usize = 120;
/// Alignment of the header.
const ALIGNMENT: usize = 64;

/// The folder of case `index` of the plan: its id, or if that is no valid name, its index and the valid characters of
/// the id.
pub fn folder_name(index: u32, case: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "=,._-+".contains(c);
    if case.chars().all(is_valid) && case.len() <= MAX_NAME && !case.starts_with('.') {
        return case.to_owned();
    }
    let name: String = case
        .chars()
        .map(|c| if is_valid(c) { c } else { '_' })
        .take(MAX_NAME)
        .collect();
    format!("{index}-{name}")
}

/// Writes rows of this width to `name` in the folder of all logits.
///
/// # Errors
/// The file cannot be written.
pub fn write(run: &RunDir, name: &str, values: &[f32], width: usize) -> Result<(), StoreError> {
    run.write_with(&format!("{LOGITS}/{name}"), |out| {
        out.write_all(&header(values.len() / width.max(1), width))?;
        values
            .iter()
            .try_for_each(|value| out.write_all(&value.to_le_bytes()))
    })
}

/// Size in bytes of a file with these rows.
pub fn file_size(rows: u64, width: u64) -> u64 {
    rows * width * 4 + 2 * ALIGNMENT as u64
}

fn header(rows: usize, width: usize) -> Vec<u8> {
    let shape = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    let prefix = 10;
    let padded = (prefix + shape.len() + 1).next_multiple_of(ALIGNMENT) - prefix;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((padded as u16).to_le_bytes());
    header.extend(format!("{shape:<width$}\n", width = padded - 1).bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_a_header_with_its_shape_and_its_rows() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path());
        write(&run, "base/0-7.npy", &[1.0, -2.0, 0.5, 4.0, 5.0, 6.0], 3).unwrap();
        let bytes = run.read("logits/base/0-7.npy").unwrap();
        assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
        let head = std::str::from_utf8(&bytes[10..128]).unwrap();
        assert_eq!(
            head.trim_end(),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
        );
        assert!(head.ends_with('\n'));
        let values: Vec<f32> = bytes[128..]
            .chunks(4)
            .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
            .collect();
        assert_eq!(
            (values, bytes.len() as u64),
            (vec![1.0, -2.0, 0.5, 4.0, 5.0, 6.0], file_size(2, 3))
        );
        run.write("logits/base/notes.txt", b"mine").unwrap();
        run.remove_logits().unwrap();
        assert!(
            run.file("logits/base/notes.txt").exists() && !run.file("logits/base/0-7.npy").exists()
        );
    }

    #[test]
    fn every_case_has_its_own_folder() {
        assert_eq!(
            folder_name(3, "concurrency=16,dtype=f32"),
            "concurrency=16,dtype=f32"
        );
        assert_eq!(folder_name(3, "model=/a/b"), "3-model=_a_b");
        assert_eq!(folder_name(3, ".."), "3-..");
    }
}
