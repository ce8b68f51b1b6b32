#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weighbridge_fuzz::targets::index(bytes));
