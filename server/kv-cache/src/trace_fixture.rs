//! Recorded traces of requests, for the tests that replay them.

use std::io::Read;
use std::path::PathBuf;

use serde_json::Value;

/// One request: arrival in ms, prompt tokens, the ids of its whole pages. Equal ids mean equal
/// prefixes.
pub(crate) struct Request {
    pub(crate) at: u64,
    pub(crate) tokens: usize,
    pub(crate) pages: Vec<u32>,
}

/// A file of the fixture as text, unpacked where it is packed.
pub(crate) fn read(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/traces");
    let bytes = std::fs::read(folder.join(name)).expect("a fixture");
    if !name.ends_with(".gz") {
        return String::from_utf8(bytes).expect("text");
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("compressed text");
    text
}

pub(crate) fn number(value: &Value) -> usize {
    value.as_u64().expect("a count") as usize
}

/// The requests of a trace, in order.
pub(crate) fn requests(file: &str) -> Vec<Request> {
    let line = |line: &str| {
        let request: Value = serde_json::from_str(line).expect("a JSON line");
        let runs: Vec<_> = request["p"].as_array().expect("runs").iter().map(number).collect();
        let pages = runs.chunks(2).flat_map(|run| run[0]..run[0] + run[1]);
        Request {
            at: number(&request["t"]) as u64,
            tokens: number(&request["in"]),
            pages: pages.map(|page| page as u32).collect(),
        }
    };
    read(file).lines().map(line).collect()
}

/// Every trace with what is expected of it, by name.
pub(crate) fn expected() -> Vec<(String, Value)> {
    let file: Value =
        serde_json::from_str(&read("expected_hit_ratios.json.gz")).expect("a JSON file");
    let traces = file["traces"].as_object().expect("traces by name").clone();
    assert_eq!(traces.len(), 10);
    traces.into_iter().collect()
}
