#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| testkit::targets::ctranslate2(bytes));
