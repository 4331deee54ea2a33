//! logits/CASE/ROUND-SEQ.npy: arrays that numpy reads (format 1.0), float32 in C order, a row for each step.

use crate::store::atomic::remove_if_there;
use crate::store::error::StoreError;
use crate::store::rundir::RunDir;
use std::fs;
use std::io::{self, ErrorKind, Write};

/// The folder of all of them.
const LOGITS: &str = "logits";
/// Characters of a case's id in the name of its folder at the most.
const LONGEST: usize = 120;
/// What the header ends on a multiple of.
const ALIGNED: usize = 64;

/// The folder of a case, which is the `index`th of the plan: its id, or where no folder can be called so, its number and what
/// of the id can stand in a name.
pub fn folder(index: u32, case: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "=,._-+".contains(c);
    if case.chars().all(fits) && case.len() <= LONGEST && !case.starts_with('.') {
        return case.to_owned();
    }
    let name: String = case.chars().map(|c| if fits(c) { c } else { '_' }).take(LONGEST).collect();
    format!("{index}-{name}")
}

/// Writes rows of this width under `name` in the folder of all logits.
///
/// # Errors
/// The file cannot be written.
pub fn write(run: &RunDir, name: &str, values: &[f32], width: usize) -> Result<(), StoreError> {
    run.write_with(&format!("{LOGITS}/{name}"), |out| {
        out.write_all(&header(values.len() / width.max(1), width))?;
        values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
    })
}

/// Bytes of a file of so many rows of this width.
pub fn size(rows: u64, width: u64) -> u64 {
    rows * width * 4 + 2 * ALIGNED as u64
}

fn header(rows: usize, width: usize) -> Vec<u8> {
    let shape = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    let lead = 10;
    let padded = (lead + shape.len() + 1).next_multiple_of(ALIGNED) - lead;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((padded as u16).to_le_bytes());
    header.extend(format!("{shape:<width$}\n", width = padded - 1).bytes());
    header
}

impl RunDir {
    /// Removes the logits of an earlier run, and nothing else that may lie there.
    pub(super) fn clear_logits(&self) -> io::Result<()> {
        let list = |path| match fs::read_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            entries => entries?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>(),
        };
        for case in list(self.file(LOGITS))?.into_iter().filter(|path| path.is_dir()) {
            for file in list(case.clone())?.iter().filter(|path| path.extension().is_some_and(|end| end == "npy")) {
                remove_if_there(file)?;
            }
            // What is not empty holds something of somebody else's.
            let _ = fs::remove_dir(case);
        }
        let _ = fs::remove_dir(self.file(LOGITS));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_has_its_shape_in_front_and_its_rows_one_after_another() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path());
        write(&run, "base/0-7.npy", &[1.0, -2.0, 0.5, 4.0, 5.0, 6.0], 3).unwrap();
        let bytes = run.read("logits/base/0-7.npy").unwrap();
        assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
        let head = std::str::from_utf8(&bytes[10..128]).unwrap();
        assert_eq!(head.trim_end(), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
        assert!(head.ends_with('\n'));
        let values: Vec<f32> = bytes[128..].chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
        assert_eq!((values, bytes.len() as u64), (vec![1.0, -2.0, 0.5, 4.0, 5.0, 6.0], size(2, 3)));
        run.write("logits/base/notes.txt", b"mine").unwrap();
        run.clear_logits().unwrap();
        assert!(run.file("logits/base/notes.txt").exists() && !run.file("logits/base/0-7.npy").exists());
    }

    #[test]
    fn a_case_has_a_folder_of_its_own_whatever_its_id() {
        assert_eq!(folder(3, "concurrency=16,dtype=f32"), "concurrency=16,dtype=f32");
        assert_eq!(folder(3, "model=/a/b"), "3-model=_a_b");
        assert_eq!(folder(3, ".."), "3-..");
    }
}
