//! Must fail: an assertion that does not hold, behind a few comparisons, which is found only if coverage leads the
//! fuzzer and assertions are on. A run in which this one passes shows nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(rest) = text.strip_prefix("{\"")
        && let Some(name) = rest.strip_suffix('}')
    {
        assert!(!name.contains("\":"), "the canary was found");
    }
});
