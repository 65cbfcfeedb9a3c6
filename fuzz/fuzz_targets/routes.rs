#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| semel_http::fuzzing::routes(bytes));
