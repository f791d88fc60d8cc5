//! `plan --engine sglang@VERSION`: command lines of another engine, judged before they are run.

use serde_json::Value;

use super::plan::{config, incident_ways};
use super::process::binary;

/// Exit code, text and JSON of the plan of a command line.
fn plan(version: &str, line: &str, rest: &[&str]) -> (i32, String, Value) {
    let engine = format!("sglang@{version}");
    let output = binary()
        .args(["plan", "--engine", &engine, "--args", line])
        .args(rest)
        .output()
        .expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().expect("an exit code"), format!("{text}{errors}"), json)
}

const MACHINE: [&str; 4] = ["--assume-numa", "2x240GB", "--assume-swa-tokens", "213760"];

/// The prefill server of an incident, with more flags.
fn prefill(version: &str, flags: &str, rest: &[&str]) -> (i32, String, Value) {
    let line = format!(
        "numactl --membind=0 python -m sglang.launch_server --model-path {} --tp 4 \
         --disaggregation-mode prefill --enable-hierarchical-cache {flags}",
        config("deepseek-v4-flash")
    );
    let machine = ["--assume-device-tokens", "213760"];
    plan(version, &line, &[&MACHINE[..], &machine, rest].concat())
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn the_incident_is_sized_by_the_version_s_rules() {
    let (code, _, json) = prefill("0.5.13", "--hicache-ratio 2.0", &["--format", "json"]);
    assert_eq!(code, 0, "{json}");
    let tier = &json["host_tier"];
    assert_eq!(tier["pools"][1]["host_pages"], 1670);
    assert_eq!(tier["pools"][1]["parts"][2]["host_bytes"], 574_586_880);
    assert_eq!(tier["total_bytes"], 2 * 30_588_414_720_u64);
    assert_eq!(tier["nodes"][0]["node"], 0, "as numactl binds it");
    // The floor of a page above the device, which the later version has for history only.
    let pages = |version| {
        let (_, _, json) = prefill(version, "--hicache-ratio 1.0", &["--format", "json"]);
        [0, 1].map(|pool| json["host_tier"]["pools"][pool]["host_pages"].as_u64())
    };
    assert_eq!(pages("0.5.13"), [Some(836), Some(836)]);
    assert_eq!(pages("0.5.23"), [Some(836), Some(835)]);
}

#[test]
fn three_ways_to_more_cache_have_their_sums_on_the_incident_s_machine() {
    let (code, _, json) = prefill("0.5.13", "--hicache-ratio 2.0", &["--format", "json"]);
    assert_eq!(code, 0, "{json}");
    // 124,322 bytes of each of 209 x 256 tokens, by the engine's own formula.
    incident_ways(&json["ways"], "--mem-fraction-static", "6.65 GB more on each device");
    let (_, text, _) = prefill("0.5.13", "--hicache-ratio 2.0", &[]);
    says(&text, &["ways to hold more", "relaxed membind", "3204096", "458.50 GB"]);
    // Ranks that are bound to nothing have nothing to relax.
    let line =
        format!("--model-path {} --tp 4 --enable-hierarchical-cache", config("deepseek-v4-flash"));
    let rest = ["--assume-device-tokens", "213760", "--format", "json"];
    let (_, _, json) = plan("0.5.13", &line, &[&MACHINE[..], &rest].concat());
    assert_eq!(json["ways"].as_array().map(Vec::len), Some(3), "{json}");
}

#[test]
fn a_size_is_refused_before_weights_with_the_ratio_that_it_would_be() {
    let (code, text, _) = prefill("0.5.13", "--hicache-size 37.5", &[]);
    assert_eq!(code, 78);
    says(&text, &["SGL010", "--hicache-ratio 4.9 ", "150.00 GB", "30.59 GB per unit of ratio"]);
    let (code, text, _) = prefill("0.5.23", "", &[]);
    assert_eq!(code, 78);
    says(&text, &["SGL011", "--hicache-ratio 2"]);
    let (code, text, _) = prefill("0.5.13", "", &[]);
    assert_eq!(code, 0, "the default of the earlier version is 2: {text}");
}

#[test]
fn what_the_machine_cannot_hold_is_69_with_what_it_can() {
    let (code, text, _) = prefill("0.5.13", "--hicache-ratio 20", &[]);
    assert_eq!(code, 69);
    says(&text, &["SGL012", "NUMA node 0", "611.77 GB", "--hicache-ratio 7.49"]);
    let (_, text, _) = prefill("0.5.13", "--hicache-ratio 2", &["--hicache-target", "150GB"]);
    says(&text, &["SGL013", "--hicache-ratio 4.9"]);
}

#[test]
fn what_has_no_effect_or_breaks_is_said() {
    let (code, text, _) = prefill("0.5.13", "--max-queued-requests 32", &[]);
    assert_eq!(code, 0);
    says(&text, &["warning SGL003: --max-queued-requests 32"]);
    let v4 = config("deepseek-v4-flash");
    let decode = |flags: &str| {
        let line =
            format!("--model-path {v4} --tp 4 --enable-hicache --disaggregation-mode decode");
        let machine = ["--assume-device-tokens", "213760"];
        plan("0.5.13", &format!("{line} {flags}"), &[&MACHINE[..], &machine].concat())
    };
    let (code, text, _) = decode("--disaggregation-decode-enable-radix-cache");
    assert_eq!(code, 78);
    says(&text, &["SGL005", "prefill server"]);
    says(&decode("").1, &["SGL004"]);
    says(&decode("--disable-radix-cache").1, &["SGL004: --disable-radix-cache"]);
    let (_, text, _) =
        prefill("0.5.13", "--hicache-mem-layout page_first --hicache-io-backend direct", &[]);
    says(&text, &["SGL006", "page_first_direct"]);
}

#[test]
fn flags_that_are_not_known_are_a_warning_and_change_no_sum() {
    let unknown = "--hicache-ratio 2.0 --made-up-for-this 3 --another_one";
    let (code, text, _) = prefill("0.5.13", unknown, &[]);
    assert_eq!(code, 0, "{text}");
    says(&text, &["warning SGL014: --args --another-one --made-up-for-this: ", "1 warning"]);
    let bytes = |flags: &str| {
        let (_, _, json) = prefill("0.5.13", flags, &["--format", "json"]);
        json["host_tier"]["total_bytes"].as_u64().expect("a tier")
    };
    assert_eq!(bytes(unknown), bytes("--hicache-ratio 2.0"));
    assert!(!prefill("0.5.13", "--mem-fraction-static 0.8", &[]).1.contains("SGL014"));
}

#[test]
fn settings_that_are_not_modelled_are_refused_by_name_instead_of_summed_up() {
    for (flags, says_so, fix) in [
        ("--pp-size 2", "SGL015: --pp-size 2: not modelled: ", "try --pp-size 1"),
        ("--kv-cache-dtype fp4_e2m1", "SGL015: --kv-cache-dtype fp4_e2m1", "fp8_e4m3"),
        (
            "--hicache-host-memory-mode buffer_only",
            "SGL015: --hicache-host-memory-mode buffer_only",
            "try --hicache-host-memory-mode cache",
        ),
    ] {
        let (code, text, _) = prefill("0.5.13", &format!("--hicache-ratio 2 {flags}"), &[]);
        assert_eq!(code, 78, "{text}");
        says(&text, &[says_so, fix, "plan: 1 error"]);
        let (_, _, json) = prefill("0.5.13", flags, &["--format", "json"]);
        assert_eq!((&json["host_tier"], &json["valid"]), (&Value::Null, &Value::Bool(false)));
    }
    assert_eq!(prefill("0.5.13", "--hicache-ratio 2 --pp-size 1", &[]).0, 0);
}

#[test]
fn dense_models_are_sized_by_tokens_and_a_page_more() {
    let line = format!(
        "--model-path {} --tp 2 --enable-hierarchical-cache --page-size 64 \
         --max-total-tokens 640000",
        config("llama-3.1-8b")
    );
    let at = |flags: &str| {
        let line = format!("{line} {flags}");
        plan("0.5.13", &line, &["--assume-numa", "1x900GB", "--format", "json"])
    };
    let (code, _, json) = at("--hicache-ratio 1.5");
    assert_eq!(code, 0, "{json}");
    assert_eq!(json["host_tier"]["pools"][0]["host_pages"], 15_001);
    // 4 heads of a rank, 128 numbers, twice, 32 layers, 16 bits.
    let page = 64 * 4 * 128 * 2 * 32 * 2_u64;
    assert_eq!(json["host_tier"]["pools"][0]["parts"][0]["page_bytes"], page);
    let (code, _, json) = at("--hicache-size 80");
    assert_eq!(code, 0, "{json}");
    assert_eq!(json["host_tier"]["pools"][0]["host_pages"], 80_000_000_000 / page + 1);
    let (code, _, json) = at("--hicache-size 1");
    assert_eq!((code, json["findings"][0]["id"].as_str()), (78, Some("SGL009")));
}

#[test]
fn what_is_not_known_is_asked_for() {
    let v4 = config("deepseek-v4-flash");
    let line = format!("--model-path {v4} --enable-hierarchical-cache");
    let (code, text, _) = plan("0.5.13", &line, &[]);
    assert_eq!(code, 78);
    says(&text, &["SGL002", "--assume-device-tokens", "max_total_num_tokens"]);
    let (code, text, _) = plan("0.5.13", "--model-path some/model", &[]);
    assert_eq!(code, 78);
    says(&text, &["some/model", "--model with the folder"]);
    let (code, text, _) = plan("0.5.12", &line, &[]);
    assert_eq!(code, 78);
    says(&text, &["sglang@0.5.13"]);
    let machine = ["--assume-device-tokens", "213760", "--assume-numa", "2x240GB"];
    says(&plan("0.5.14", &line, &machine).1, &["warning SGL001", "sglang@0.5.13"]);
    assert_eq!(plan("main", &line, &[]).0, 64);
    assert_eq!(plan("0.5.13", "--model 'x", &[]).0, 64);
    assert_eq!(plan("0.5.13", "--tp four --model-path x", &["--model", &v4]).0, 64);
}

#[test]
fn a_server_s_own_answer_is_enough() {
    let path = std::env::temp_dir().join(format!("sightline-info-{}.json", std::process::id()));
    let info = serde_json::json!({
        "model_path": config("deepseek-v4-flash"), "tp_size": 4, "hicache_size": 0,
        "enable_hierarchical_cache": true, "hicache_ratio": 2.0, "swa_full_tokens_ratio": 1.0,
        "max_total_num_tokens": 213_760, "disable_radix_cache": false,
    });
    std::fs::write(&path, info.to_string()).expect("the temporary folder is writable");
    let output = binary()
        .args(["plan", "--engine", "sglang@0.5.13", "--format", "json", "--assume-numa", "2x240GB"])
        .arg("--args-from")
        .arg(&path)
        .output()
        .expect("the binary starts");
    drop(std::fs::remove_file(path));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["host_tier"]["total_bytes"], 2 * 30_588_414_720_u64, "{json}");
}

#[test]
fn a_running_process_is_read_by_its_id() {
    let v4 = config("deepseek-v4-flash");
    let script = "read line";
    let mut process = std::process::Command::new("sh")
        .args(["-c", script, "sglang.launch_server", "--model-path", &v4, "--tp", "4"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("a shell");
    let output = binary()
        .args(["plan", "--engine", "sglang@0.5.13", "--format", "json", "--args-from"])
        .arg(process.id().to_string())
        .output()
        .expect("the binary starts");
    drop(process.stdin.take());
    process.wait().expect("the shell ends");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((json["ranks"].as_u64(), json["valid"].as_bool()), (Some(4), Some(true)), "{json}");
}
