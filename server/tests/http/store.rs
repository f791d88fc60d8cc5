//! A store behind the host tier over two processes, and places that are none.

use serde_json::{Value, json};

use super::process::{Server, post, run};

fn fixture(model: &str) -> String {
    format!("{}/../tests/fixtures/models/{model}", env!("CARGO_MANIFEST_DIR"))
}

fn flags(store: &str) -> String {
    let model = fixture("tiny-llama");
    format!(
        "--model {model} --threads 1 --max-context 400 --enable-hierarchical-cache \
         --kv-store {store} --kv-store-prefetch wait_complete"
    )
}

/// A text, and how many of its prompt's tokens were not computed.
fn ask(server: &Server) -> (String, u64) {
    let prompt: Vec<u32> = (0..180).map(|at| 5 + at * 13 % 200).collect();
    let body = json!({
        "model": "tiny-llama", "prompt": prompt, "max_tokens": 12, "temperature": 0,
        "ignore_eos": true
    });
    let answer: Value = post(&server.api, "/v1/completions", &body);
    let text = answer["choices"][0]["text"].as_str().expect("a text").to_owned();
    let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    (text, cached.as_u64().expect("a count"))
}

#[test]
fn a_process_that_is_told_to_stop_leaves_what_it_has_computed_to_the_next() {
    let folder = std::env::temp_dir().join(format!("sightline-l3-{}", std::process::id()));
    let flags = flags(&format!("file://{}", folder.display()));
    let mut texts = Vec::new();
    for cached in [0, 176] {
        let mut server = Server::logged(&flags);
        let (text, found) = ask(&server);
        assert_eq!(found, cached);
        texts.push(text);
        server.signal("TERM");
        let log = server.log();
        assert_eq!(server.exit_code(), Some(0));
        let closed = |line: &&Value| line.to_string().contains("The store is closed.");
        let closed = log.iter().find(closed).expect("the log says how the store ended");
        assert!(closed.to_string().contains("\"dropped\":0"), "{closed}");
    }
    assert_eq!(texts[0], texts[1]);
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn a_place_that_is_none_ends_the_start_with_one_line() {
    for (store, says) in [
        ("file:///dev/null/store", "KVS009"),
        ("https://example.org/store", "KVS003"),
        ("s3://bucket/store?region=eu-central-1", "AWS_ACCESS_KEY_ID"),
    ] {
        let output = run(&format!("serve --port 0 --log-level error {}", flags(store)));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("--kv-store") && text.contains(says), "{text}");
    }
}
