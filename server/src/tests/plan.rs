//! `/internal/plan`: what each size of the host tier would be worth.

use serde_json::{Value, json};

use super::rig::{Rig, post};

/// 64 device pages of 16 tokens.
const SMALL: &str = "--model fake:step=0ms --kv-pool-bytes 512KiB";

async fn plan(rig: &Rig) -> Value {
    let answer = rig.get("/internal/plan").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "application/json");
    answer.json()
}

/// Twelve whole pages that differ from those of every other `name`, looked up in order.
async fn ask(rig: &Rig, name: &str) {
    let prompt = format!("{name:0<200}");
    let body = json!({"model": "fake", "prompt": prompt, "max_tokens": 1, "ignore_eos": true});
    let answer = rig.post("/v1/completions", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Until the curve has seen so many requests.
async fn seen(rig: &Rig, requests: u64) {
    let curve = |rig: &Rig| rig.serving().engine.curve().expect("a curve");
    rig.until("the curve has seen all", |rig| {
        curve(rig).requests == requests && curve(rig).tracked_pages > 0
    })
    .await;
}

fn candidate(plan: &Value, ratio: f64) -> &Value {
    let candidates = plan["candidates"].as_array().expect("candidates");
    let of = |candidate: &&Value| candidate["ratio"].as_f64() == Some(ratio);
    candidates.iter().find(of).unwrap_or_else(|| panic!("no ratio {ratio} in {plan}"))
}

#[tokio::test]
async fn without_traffic_sizes_have_a_price_and_no_worth() {
    let rig = Rig::new(SMALL);
    let plan = plan(&rig).await;
    assert_eq!(
        (&plan["server"], &plan["form"], &plan["state"]),
        (&json!("sightline"), &json!(1), &json!("ready"))
    );
    assert_eq!(plan["window"]["requests"], 0);
    assert_eq!(plan["window"]["since_start"], true);
    assert_eq!(plan["window"]["hit_ratio"], Value::Null, "nothing is not zero");
    let four = candidate(&plan, 4.0);
    assert_eq!(four["bytes"], 4 * 512 * 1024);
    assert_eq!((&four["hit_ratio"], &four["gain"]), (&Value::Null, &Value::Null));
    let text = four["text"].as_str().expect("a sentence");
    assert!(text.starts_with("ratio 4 would take 2.1 MB more on "), "{text}");
    assert!(text.ends_with("too few requests were seen to say what it finds"), "{text}");
    assert_eq!(plan["advice"]["reason"], "not_warm");
    let text = plan["advice"]["text"].as_str().expect("a sentence");
    assert!(text.starts_with("no traffic: no request was seen in "), "{text}");
}

#[tokio::test]
async fn traffic_gives_each_size_its_worth_in_the_metrics_own_numbers() {
    let rig = Rig::new(SMALL);
    // 40 prompts of 12 pages: the device holds 5 of them, and a tier of ratio 4 the last 21.
    for name in 0..20 {
        ask(&rig, &format!("filler {name} ")).await;
    }
    for _ in 0..3 {
        for name in 0..20 {
            ask(&rig, &format!("session {name} ")).await;
        }
    }
    seen(&rig, 80).await;
    let plan = plan(&rig).await;
    let hits = async |ratio: &str| {
        let label = format!("ratio=\"{ratio}\"");
        rig.metric("kv_hit_curve_hit_tokens_total", &[&label]).await
    };
    let lookups = rig.metric("kv_hit_curve_lookup_tokens_total", &[]).await;
    assert_eq!(lookups, 16_000.0);
    assert_eq!(plan["window"]["prompt_tokens"], 16_000);
    assert_eq!(plan["window"]["requests"], 80);
    assert_eq!(plan["window"]["hit_ratio"], 0.0, "the device alone finds nothing");
    for (ratio, label) in [(0.0, "0"), (2.0, "2"), (4.0, "4")] {
        let ratio = candidate(&plan, ratio);
        assert_eq!(ratio["hit_ratio"].as_f64(), Some(hits(label).await / lookups), "{ratio}");
        assert_eq!(ratio["warm"], true, "{ratio}");
    }
    // Rounds two and three find all whole pages of theirs: 40 x 192 of 16,000 tokens.
    let four = candidate(&plan, 4.0);
    assert_eq!(four["hit_ratio"].as_f64(), Some(0.48));
    let bytes = rig.metric("kv_hit_curve_required_bytes", &["ratio=\"4\""]).await;
    assert_eq!(four["bytes"].as_f64(), Some(bytes));
    let text = four["text"].as_str().expect("a sentence");
    assert!(text.starts_with("ratio 4 would give +48 % hits for 2.1 MB more on "), "{text}");
    // A list that has not been so long says nothing yet.
    assert_eq!(candidate(&plan, 32.0)["warm"], false);
    let text = candidate(&plan, 32.0)["text"].as_str().expect("a sentence");
    assert!(text.contains("too few requests"), "{text}");
    let advice = plan["advice"]["text"].as_str().expect("a sentence");
    assert!(advice.starts_with("too little traffic: 80 requests were seen in "), "{advice}");
}

#[tokio::test]
async fn a_tier_in_force_is_what_others_are_compared_with() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/tiny-llama");
    let rig = Rig::new(&format!(
        "--model {model} --kv-pool-bytes 700KiB --max-context 400 --threads 1 \
         --enable-hierarchical-cache --hicache-ratio 4"
    ));
    // The device holds two of four conversations, so that the second round comes from the host.
    for turn in 0..8 {
        let prompt: Vec<usize> = (0..200).map(|at| 5 + (turn % 4 * 61 + at * 7) % 200).collect();
        let body = json!({"model": rig.api.model_name, "prompt": prompt, "max_tokens": 2});
        let answer = rig.post("/v1/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    seen(&rig, 8).await;
    let plan = plan(&rig).await;
    let tier = &plan["tier"];
    assert_eq!((&tier["enabled"], &tier["ratio"]), (&json!(true), &json!(4.0)), "{tier}");
    // What it has found is what the metrics say, in whichever tier it was.
    let window = &plan["window"];
    let source = async |from: &str| rig.metric("prompt_tokens_total", &[from]).await;
    let (device, host) = (source("source=\"device\"").await, source("source=\"host\"").await);
    assert!(host > 0.0, "{device} on the device, {host} on the host");
    assert_eq!(window["found_tokens"].as_f64(), Some(device + host), "{window}");
    let four = candidate(&plan, 4.0);
    // A curve that were further from what was found would be trusted no more.
    let off = four["hit_ratio"].as_f64().zip(window["hit_ratio"].as_f64());
    assert!(off.is_some_and(|(curve, found)| (curve - found).abs() <= 0.05), "{four} {window}");
    assert_eq!(four["bytes"], tier["bytes"]);
    assert_eq!(four["gain"].as_f64(), Some(0.0), "it is what there is");
    let text = four["text"].as_str().expect("a sentence");
    assert!(text.starts_with("ratio 4 is in force: ") && text.ends_with("% hits expected"));
    let less = candidate(&plan, 2.0);
    assert_eq!(less["bytes"].as_u64(), four["bytes"].as_u64().map(|bytes| bytes / 2));
    assert!(less["text"].as_str().is_some_and(|text| text.contains(" MB less on ")), "{less}");
}

#[tokio::test]
async fn what_a_window_loses_is_said_beside_what_is_found() {
    let rig = Rig::new("--model fake:step=0ms,window=32 --kv-pool-bytes 2MiB");
    for _ in 0..2 {
        for name in 0..10 {
            ask(&rig, &format!("session {name} ")).await;
        }
    }
    seen(&rig, 20).await;
    let plan = plan(&rig).await;
    for (ratio, label) in [(0.0, "0"), (8.0, "8")] {
        let label = format!("ratio=\"{label}\"");
        let metric = async |name: &str| rig.metric(name, &[&label]).await;
        let ratio = candidate(&plan, ratio);
        let lost = metric("kv_hit_curve_window_loss_tokens_total").await;
        let hits = metric("kv_hit_curve_hit_tokens_total").await;
        assert_eq!(ratio["window_loss"].as_f64(), Some(lost / 4_000.0), "{ratio}");
        assert_eq!(ratio["hit_ratio"].as_f64(), Some(hits / 4_000.0), "{ratio}");
        assert_eq!(ratio["bytes"].as_f64(), Some(metric("kv_hit_curve_required_bytes").await));
    }
}

#[tokio::test]
async fn a_curve_that_is_off_and_a_model_that_is_not_there_are_said() {
    let check = |plan: &Value, reason: &str, says: &str| {
        assert_eq!(plan["advice"]["reason"], reason, "{plan}");
        assert!(plan["advice"]["text"].as_str().is_some_and(|text| text.contains(says)), "{plan}");
        assert_eq!(plan["window"], Value::Null);
        assert_eq!(candidate(plan, 2.0)["hit_ratio"], Value::Null);
        assert_eq!(candidate(plan, 2.0)["bytes"], 2 * 512 * 1024);
    };
    let off = Rig::new(&format!("{SMALL} --hit-curve off"));
    check(&plan(&off).await, "curve_off", "--hit-curve on");
    let off = Rig::new(&format!("{SMALL} --prefix-cache off"));
    check(&plan(&off).await, "curve_off", "--prefix-cache on");
    let loading = Rig::loading(SMALL);
    check(&plan(&loading).await, "loading", "still being loaded");
    assert_eq!(plan(&loading).await["state"], "loading");
}

#[tokio::test]
async fn it_is_read_and_not_written_and_counted_as_its_own_route() {
    let rig = Rig::loading(SMALL);
    assert_eq!(rig.send(post("/internal/plan", &json!({}))).await.status(), 405);
    assert_eq!(rig.get("/internal/plans").await.status, 404);
    let (one, two) = tokio::join!(plan(&rig), plan(&rig));
    assert_eq!(one["candidates"], two["candidates"]);
    let counted = rig.metric("http_requests_total", &["/internal/plan", "status_code=\"200\""]);
    assert_eq!(counted.await, 2.0);
}
