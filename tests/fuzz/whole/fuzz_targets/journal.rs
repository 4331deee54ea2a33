#![no_main]

use llmscen::store::journal::Reader;
use std::io::Write;

// Whatever the bytes: the reader ends, and never counts more bytes than there are.
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Ok(mut file) = tempfile::NamedTempFile::new() else { return };
    if file.write_all(input).is_err() {
        return;
    }
    let Ok(mut reader) = Reader::open(file.path()) else { return };
    let records = reader.by_ref().filter(Result::is_ok).count();
    assert!(records <= input.len() / 8, "{records} records in {} bytes", input.len());
    assert!(reader.left_out() <= input.len() as u64);
});
