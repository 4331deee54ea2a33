#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| llmscen_fuzz::check_with_path(input));
