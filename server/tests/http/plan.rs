//! `plan` for machines that are not here: models by their configuration, the host tier by its sums.

use serde_json::Value;

use super::process::run;

/// The configuration of a published model.
pub(crate) fn config(name: &str) -> String {
    format!("{}/../tests/fixtures/configs/{name}/config.json", env!("CARGO_MANIFEST_DIR"))
}

/// Exit code, text and, where it was asked for, JSON.
pub(crate) fn plan(flags: &str) -> (i32, String, Value) {
    let output = run(&format!("plan {flags}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().expect("an exit code"), format!("{text}{errors}"), json)
}

/// The machine of an incident: four ranks, 835 pages of history and of the window on each, two
/// nodes of 240 GB, bound to one.
fn incident(flags: &str) -> (i32, String, Value) {
    plan(&format!(
        "--model {} --assume-numa 2x240GB --assume-device-tokens 213760 --assume-swa-tokens 213760 \
         --tp-size 4 --enable-hierarchical-cache {flags}",
        config("deepseek-v4-flash")
    ))
}

#[test]
fn the_incident_is_answered_from_a_configuration_alone() {
    let (code, _, json) = incident("--hicache-ratio 2 --hicache-numa 0 --format json");
    assert_eq!(code, 0, "{json}");
    let tier = &json["resolved"]["host_tier"];
    assert_eq!(tier["unit_bytes"], 30_588_414_720_u64, "30.6 GB per unit of ratio");
    assert_eq!(tier["total_bytes"], 2 * 30_588_414_720_u64);
    assert_eq!(tier["nodes"][0]["node"], 0);
    let states = &tier["pools"][1]["parts"];
    assert_eq!(states[2]["name"], "deepseek_v4_c4_indexer_state");
    assert_eq!(states[2]["host_bytes"], 574_586_880);
    assert_eq!(states[1]["host_bytes"], 2_298_347_520_u64);
    // What does not fit is refused with what does.
    let (code, text, _) = incident("--hicache-ratio 20 --hicache-numa 0");
    assert_eq!(code, 69);
    for part in ["HIC008", "try --hicache-ratio 7.49", "NUMA node 0", "611.77", "deepseek_v4_c4"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    // Over both nodes, twice as much.
    let (code, text, _) = incident("--hicache-ratio 14");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("largest that fits: 14.9"), "{text}");
}

/// Three ways from ratio 2 on the machine of the incident: 9,158,208 bytes a page and rank, of 835.
pub(crate) fn incident_ways(ways: &Value, pool: &str, cost: &str) {
    let ways = ways.as_array().expect("ways");
    let names: Vec<&str> = ways.iter().filter_map(|way| way["way"].as_str()).collect();
    assert_eq!(names, ["as it is", "larger ratio", "larger device pool", "relaxed membind"]);
    let sums = |pages: u64| (Some(pages * 256), Some(4 * pages * 9_158_208), Some(true));
    for (way, pages, change) in [
        (&ways[0], 1_670, "ratio 2"),
        // One node of 240 GB less 10 GiB holds ratio 7.49.
        (&ways[1], 6_254, "--hicache-ratio 7.49"),
        // Twice 835 and a quarter, rounded up.
        (&ways[2], 2 * 1_044, pool),
        // Two nodes hold twice as much.
        (&ways[3], 12_516, "--hicache-ratio 14.99"),
    ] {
        let found =
            (way["history_tokens"].as_u64(), way["host_bytes"].as_u64(), way["fits"].as_bool());
        assert_eq!(found, sums(pages), "{way}");
        assert!(way["change"].as_str().is_some_and(|text| text.contains(change)), "{way}");
    }
    assert!(ways[2]["cost"].as_str().is_some_and(|text| text.starts_with(cost)), "{}", ways[2]);
}

#[test]
fn three_ways_to_more_cache_stand_where_a_tier_is_asked_for() {
    let (code, _, json) = incident("--hicache-ratio 2 --hicache-numa 0 --format json");
    assert_eq!(code, 0, "{json}");
    // 209 pages of 19,643,968 bytes, which the state that is not mirrored is among.
    incident_ways(&json["ways"], "--assume-device-tokens", "4.11 GB more on each device");
    // They are what to do where what was asked for does not fit.
    let (code, text, _) = incident("--hicache-ratio 20 --hicache-numa 0");
    assert_eq!(code, 69);
    for part in ["as it is", "does not fit", "largest ratio", "3204096", "--hicache-numa auto"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let (_, _, json) = plan("--model fake --port 0 --probe-port 0 --format json");
    assert_eq!((&json["valid"], &json["ways"]), (&Value::Bool(true), &serde_json::json!([])));
}

#[test]
fn a_size_per_rank_is_refused_with_the_ratio_that_it_would_be() {
    // What the operators of the incident asked for is more than the node has: what fits is said.
    let (code, text, _) = incident("--hicache-size 150 --hicache-numa 0");
    assert_eq!(code, 78, "{text}");
    let fix = "--hicache-ratio 7.49, the largest that fits; 4 ranks x 150 GB = 600.00 GB would be";
    assert!(text.contains(fix), "{text}");
    let (code, text, _) = incident("--hicache-size 37.5 --hicache-numa 0");
    assert_eq!(code, 78);
    for part in ["HIC001", "--hicache-ratio 4.9 ", "150.00 GB", "30.59 GB", "6 pools"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    for works in ["--hicache-ratio 4.9", "--hicache-budget 150GB"] {
        let (code, text, _) = incident(&format!("{works} --hicache-numa 0"));
        assert_eq!(code, 0, "{text}");
    }
}

#[test]
fn the_default_share_of_windows_is_a_tenth() {
    let flags = "--assume-device-tokens 2137600 --enable-hierarchical-cache --tp-size 4";
    let model = config("deepseek-v4-flash");
    let (code, text, json) =
        plan(&format!("--model {model} --assume-numa 2x240GB --format json {flags}"));
    assert_eq!(code, 0, "{text}");
    let tier = &json["resolved"]["host_tier"];
    assert_eq!(tier["pools"][0]["host_pages"], 16_700);
    assert_eq!(tier["pools"][1]["host_pages"], 1_670);
    assert_eq!(tier["total_bytes"], 4 * (16_700 * 998_208 + 1_670 * 8_160_000_u64));
}

#[test]
fn other_models_are_sized_by_their_heads_and_layers() {
    let page = |name: &str, flags: &str| {
        let (code, text, json) = plan(&format!(
            "--model {} --assume-numa 1x900GB --assume-device-tokens 160000 --format json \
             --enable-hierarchical-cache {flags}",
            config(name)
        ));
        assert_eq!(code, 0, "{text}");
        json["resolved"]["host_tier"]["pools"][0]["parts"][0]["page_bytes"].as_u64()
    };
    // Two vectors of 8 heads of 128 numbers in each of 32 layers, 16 tokens, 16 bits.
    assert_eq!(page("llama-3.1-8b", ""), Some(2 * 8 * 128 * 32 * 16 * 2));
    assert_eq!(page("llama-3.1-8b", "--tp-size 4"), Some(2 * 2 * 128 * 32 * 16 * 2));
    assert_eq!(page("qwen3-8b", "--kv-dtype fp8"), Some(2 * 8 * 128 * 36 * 16));
    // A latent of 512 and the part with positions, the same on every rank.
    assert_eq!(page("deepseek-v3", "--tp-size 8"), Some((512 + 64) * 61 * 16 * 2));
    assert_eq!(page("deepseek-v4-pro", ""), Some(30 * 37_440));
}

#[test]
fn what_cannot_be_planned_is_named() {
    let llama = config("llama-3.1-8b");
    let check = |flags: &str, code: i32, says: &[&str]| {
        let (ended, text, _) = plan(flags);
        assert_eq!(ended, code, "{flags}: {text}");
        for part in says {
            assert!(text.contains(part), "{flags}: {part:?} is not in {text}");
        }
    };
    check("--model /nowhere/config.json", 78, &["/nowhere/config.json", "cannot be read"]);
    check(&format!("--model {llama} --assume-numa 2"), 64, &["2x240GB"]);
    check(&format!("--model {llama} --assume-swa-tokens 5"), 64, &["--assume-device-tokens"]);
    check(&format!("--model {llama} --assume-device-tokens 5"), 78, &["PLAN002", "holds 16"]);
    check(&format!("--model {llama} --tp-size 3"), 78, &["TP001", "--tp-size 2"]);
    check(&format!("--model {llama}"), 0, &["PLAN001", "1 warning"]);
    let v4 = config("deepseek-v4-flash");
    let three = ["TP001", "o_groups is 8", "--tp-size 2"];
    check(&format!("--model {v4} --tp-size 3"), 78, &three);
    check(&format!("--model {v4} --tp-size 16"), 78, &["o_groups is 8", "--tp-size 8"]);
    check(&format!("--model {v4} --tp-size 4"), 0, &["plan: valid"]);
    check(&format!("--model {v4} --page-tokens 64"), 78, &["CFG008", "--page-tokens 128"]);
    check("--model fake --kv-dtype bf16", 78, &["KV003"]);
    let folder = std::env::temp_dir().join(format!("sightline-shape-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let file = folder.join("config.json");
    std::fs::write(&file, "{\"model_type\": \"deepseek_v4\", \"num_hidden_layers\": 2}")
        .expect("file");
    check(&format!("--model {}", folder.display()), 78, &["field compress_ratios is missing"]);
    drop(std::fs::remove_dir_all(folder));
}

#[test]
fn a_server_computes_in_32_bits() {
    let output = run("serve --model fake --kv-dtype fp8");
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("KV003"));
}
