//! The flags of SGLang that this program knows: what those about sizes take, and the names of the
//! others, so that what is mistyped is told from what is not looked at.

use super::args::Flags;

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// No value: it is there or not.
    Nothing,
    /// Any text.
    Text,
    /// A whole number from 1 on.
    Count,
    /// A number above 0.
    Ratio,
    /// A number above 0, at most 1.
    Share,
    /// 0 or more decimal gigabytes.
    Gigabytes,
    /// Numbers of NUMA nodes.
    Nodes,
    /// One of these.
    One(&'static [&'static str]),
}

/// Whole numbers beyond are a typing error.
const COUNT_MAX: u64 = 1 << 40;
/// As for this server's own flag.
const RATIO_MAX: f64 = 1e6;
/// More gigabytes than any machine has.
const GIGABYTES_MAX: f64 = 1e7;

/// Flags that pools follow from, what they take, and a value that works.
pub(super) const SIZING: [(&str, Takes, &str); 33] = [
    ("model-path", Takes::Text, "/models/DeepSeek-V4-Flash"),
    ("tp-size", Takes::Count, "1"),
    ("dp-size", Takes::Count, "1"),
    ("pp-size", Takes::Count, "1"),
    ("dcp-size", Takes::Count, "1"),
    ("attn-cp-size", Takes::Count, "1"),
    ("nnodes", Takes::Count, "1"),
    ("enable-dp-attention", Takes::Nothing, ""),
    ("page-size", Takes::Count, "64"),
    ("max-total-tokens", Takes::Count, "213760"),
    ("max-total-num-tokens", Takes::Count, "213760"),
    ("swa-full-tokens-ratio", Takes::Share, "0.1"),
    ("kv-cache-dtype", Takes::Text, "auto"),
    ("speculative-algorithm", Takes::Text, "EAGLE"),
    ("dllm-algorithm", Takes::Text, "LowConfidence"),
    ("enable-hisparse", Takes::Nothing, ""),
    ("numa-node", Takes::Nodes, "0 0 1 1"),
    ("disable-radix-cache", Takes::Nothing, ""),
    ("max-queued-requests", Takes::Count, "32"),
    ("disaggregation-mode", Takes::One(&["null", "prefill", "decode"]), "prefill"),
    ("disaggregation-decode-enable-radix-cache", Takes::Nothing, ""),
    ("disaggregation-decode-enable-offload-kvcache", Takes::Nothing, ""),
    ("enable-hierarchical-cache", Takes::Nothing, ""),
    ("hicache-ratio", Takes::Ratio, "2.0"),
    ("hicache-size", Takes::Gigabytes, "40"),
    ("hicache-host-memory-fraction", Takes::Share, "0.8"),
    ("hicache-host-memory-mode", Takes::One(&["cache", "buffer_only"]), "cache"),
    (
        "hicache-write-policy",
        Takes::One(&["write_through", "write_through_selective", "write_back"]),
        "write_through",
    ),
    ("hicache-io-backend", Takes::One(&["kernel", "direct", "kernel_ascend"]), "kernel"),
    (
        "hicache-mem-layout",
        Takes::One(&[
            "layer_first",
            "page_first",
            "page_first_direct",
            "page_head",
            "page_first_kv_split",
        ]),
        "page_first",
    ),
    ("hicache-storage-backend", Takes::Text, "file"),
    (
        "hicache-storage-prefetch-policy",
        Takes::One(&["best_effort", "timeout", "wait_complete"]),
        "timeout",
    ),
    ("hicache-storage-backend-extra-config", Takes::Text, "'{}'"),
];

/// Flags that no pool follows from, as far as they are common.
const OTHERS: &str = "\
    additional-config admin-api-key allow-auto-truncate api-key attention-backend base-gpu-id \
    chat-template chunked-prefill-size collect-tokens-histogram completion-template config \
    constrained-json-whitespace-pattern context-length cpu-offload-gb crash-dump-folder \
    cuda-graph-bs cuda-graph-max-bs custom-sigquit-handler decode-attention-backend \
    decode-log-interval decrypted-config-file deepep-config deepep-mode \
    default-priority-value delete-ckpt-after-loading device disable-chunked-prefix-cache \
    disable-cuda-graph disable-cuda-graph-padding disable-custom-all-reduce \
    disable-fast-image-processor disable-flashinfer-autotune disable-hybrid-swa-memory \
    disable-outlines-disk-cache disable-overlap-schedule disable-piecewise-cuda-graph \
    disable-shared-experts-fusion disaggregation-bootstrap-port disaggregation-decode-dp \
    disaggregation-decode-tp disaggregation-ib-device disaggregation-prefill-pp \
    disaggregation-transfer-backend dist-init-addr dist-timeout \
    download-dir dtype elastic-ep-backend enable-attn-tp-input-scattered \
    enable-cache-report enable-custom-logit-processor enable-deterministic-inference \
    enable-dp-lm-head enable-dynamic-batch-tokenizer enable-eplb \
    enable-expert-distribution-metrics enable-flashinfer-allreduce-fusion \
    enable-lora enable-metrics enable-metrics-for-all-schedulers enable-mixed-chunk \
    enable-mscclpp enable-multimodal enable-multi-layer-eagle enable-nan-detection \
    enable-nccl-nvls enable-nsa-prefill-context-parallel enable-p2p-check \
    enable-piecewise-cuda-graph enable-priority-scheduling enable-profile-cuda-graph \
    enable-request-time-stats-logging enable-return-hidden-states enable-single-batch-overlap \
    enable-symm-mem enable-tf32-matmul enable-tokenizer-batch-encode enable-torch-compile \
    enable-trace enable-two-batch-overlap enable-weights-cpu-backup ep ep-dispatch-algorithm \
    ep-num-redundant-experts ep-size eplb-algorithm eplb-rebalance-num-iterations \
    expert-distribution-recorder-mode expert-parallel-size export-metrics-to-file \
    file-storage-path flashinfer-mxfp4-moe-precision forward-hooks fp8-gemm-backend \
    gc-warning-threshold-secs generation-tokens-buckets gpu-id-step grammar-backend \
    grpc-mode host init-expert-location is-embedding json-model-override-args \
    keep-mm-feature-on-device kv-events-config limit-mm-data-per-request load-balance-method \
    load-format log-level log-level-http log-requests log-requests-level \
    lora-backend lora-eviction-policy lora-paths lora-target-modules mamba-full-memory-ratio \
    mamba-scheduler-strategy mamba-ssm-dtype max-loaded-loras max-lora-rank \
    max-lora-chunk-size max-loras-per-batch max-mamba-cache-size max-prefill-tokens \
    max-running-requests mem-fraction-static min-free-slots-delay-batch mm-attention-backend \
    model-impl model-loader-extra-config modelopt-quant moe-a2a-backend \
    moe-dense-tp-size moe-dp-size moe-runner-backend multi-item-scoring-delimiter nccl-port \
    node-rank nsa-decode-backend nsa-prefill-backend num-continuous-decode-steps \
    num-reserved-decode-tokens otlp-traces-endpoint pp-async-batch-depth \
    pp-max-micro-batch-size preferred-sampling-params prefill-attention-backend \
    prefill-delayer-max-delay-passes prefill-max-requests \
    priority-scheduling-preemption-threshold prompt-tokens-buckets \
    quantization quantization-param-path radix-eviction-policy random-seed reasoning-parser \
    remote-instance-weight-loader-seed-instance-ip revision rl-on-policy-target \
    sampling-backend sampling-defaults schedule-conservativeness \
    schedule-low-priority-values-first schedule-policy scheduler-recv-interval \
    served-model-name show-time-cost skip-server-warmup skip-tokenizer-init sleep-on-idle \
    speculative-accept-threshold-acc speculative-accept-threshold-single \
    speculative-attention-mode speculative-draft-attention-backend \
    speculative-draft-load-format speculative-draft-model-path \
    speculative-draft-model-quantization speculative-draft-model-revision \
    speculative-eagle-topk speculative-moe-a2a-backend speculative-moe-runner-backend \
    speculative-num-draft-tokens speculative-num-steps speculative-token-map \
    stream-interval stream-output strict-ports tbo-token-distribution-threshold \
    tokenizer-metrics-allowed-custom-labels tokenizer-metrics-custom-labels-header \
    tokenizer-mode tokenizer-path tokenizer-worker-num tool-call-parser tool-server \
    torch-compile-max-bs torchao-config triton-attention-num-kv-splits \
    triton-attention-reduce-in-fp32 trust-remote-code warmups watchdog-timeout \
    weight-loader-disable-mmap weight-version";

/// Names of the same flag.
const ALIASES: [(&str, &str); 13] = [
    ("model", "model-path"),
    ("tp", "tp-size"),
    ("tensor-parallel-size", "tp-size"),
    ("dp", "dp-size"),
    ("data-parallel-size", "dp-size"),
    ("pp", "pp-size"),
    ("pipeline-parallel-size", "pp-size"),
    ("dcp", "dcp-size"),
    ("decode-context-parallel-size", "dcp-size"),
    ("attention-context-parallel-size", "attn-cp-size"),
    ("enable-hicache", "enable-hierarchical-cache"),
    ("hicache-enable", "enable-hierarchical-cache"),
    ("swa-full-token-ratio", "swa-full-tokens-ratio"),
];

/// The usual name of a flag, whose name is written with `-`: of another name for it, or of its
/// beginning where only one known flag begins like that, as the engine's own parser takes it.
pub(super) fn usual(name: &str) -> Option<&'static str> {
    let exact = names().find(|known| *known == name);
    let found = exact.or_else(|| {
        let mut begin = names().filter(|known| known.starts_with(name));
        let first = begin.next()?;
        begin.next().is_none().then_some(first)
    })?;
    Some(ALIASES.iter().find(|(other, _)| *other == found).map_or(found, |(_, usual)| usual))
}

fn names() -> impl Iterator<Item = &'static str> {
    let sizing = SIZING.iter().map(|(name, ..)| *name);
    let aliases = ALIASES.iter().map(|(other, _)| *other);
    sizing.chain(aliases).chain(OTHERS.split_ascii_whitespace())
}

/// The flag about sizes that somebody probably meant by `name`, which is none.
fn meant(name: &str) -> Option<&'static str> {
    /// Letters that may be wrong.
    const WRONG: usize = 2;
    // Short names are all alike.
    let near = |known: &&str| known.len() > 2 * WRONG && distance(name, known) <= WRONG;
    let sizing = SIZING.iter().map(|(known, ..)| *known);
    let aliases = ALIASES.iter().map(|(other, _)| *other);
    sizing.chain(aliases).filter(near).min_by_key(|known| distance(name, known))
}

/// Letters to change, add, leave out or swap with the next, to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    // A word of a hostile line may be long, and is far from everything then.
    if one.len().abs_diff(other.len()) > 4 {
        return usize::MAX;
    }
    let mut rows = [vec![0; other.len() + 1], (0..=other.len()).collect(), Vec::new()];
    for (row, letter) in one.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, with) in other.iter().enumerate() {
            let replaced = rows[1][column] + usize::from(letter != with);
            let mut least = replaced.min(rows[1][column + 1] + 1).min(next[column] + 1);
            if row > 0 && column > 0 && *letter == other[column - 1] && one[row - 1] == *with {
                least = least.min(rows[0][column - 1] + 1);
            }
            next.push(least);
        }
        rows[0] = std::mem::replace(&mut rows[1], next);
    }
    rows[1].last().copied().unwrap_or(0)
}

/// Everything that is wrong with the values of flags about sizes, one line each: the value, why,
/// and what works.
pub(super) fn problems(flags: &Flags) -> Vec<String> {
    let mut found = Vec::new();
    for (name, takes, works) in SIZING {
        let Some(value) = flags.get(name) else { continue };
        let try_it = if works.is_empty() { String::new() } else { format!(" {works}") };
        if let Err(reason) = takes.check(value, flags.answered) {
            let value = if value.is_empty() { String::new() } else { format!(" {value}") };
            found.push(format!("--{name}{}: {reason}; try --{name}{try_it}", shortened(&value)));
        }
    }
    for name in flags.unknown() {
        if let Some(meant) = meant(name) {
            found.push(format!("--{}: no such flag; try --{meant}", shortened(name)));
        }
    }
    found
}

/// Of a hostile line no more than a line.
fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    let plain: String = text.chars().filter(|letter| !letter.is_control()).take(MOST).collect();
    if text.chars().count() > MOST { format!("{plain}...") } else { plain }
}

/// Flags that are not looked at, with dashes, a few of them.
pub(super) fn unknown(flags: &Flags) -> Option<String> {
    const MOST: usize = 12;
    let all: Vec<&str> = flags.unknown().collect();
    let named: Vec<String> =
        all.iter().take(MOST).map(|name| format!("--{}", shortened(name))).collect();
    let more = all.len().saturating_sub(MOST);
    match (named.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named.join(" ")),
        (false, more) => Some(format!("{} and {more} more", named.join(" "))),
    }
}

impl Takes {
    /// `answered`: the value comes from a running server, which took it.
    fn check(self, value: &str, answered: bool) -> Result<(), String> {
        if value.is_empty() && answered {
            return Ok(());
        }
        if value.is_empty() && self != Self::Nothing {
            return Err("a value is missing".to_owned());
        }
        let number = |least: f64, most: f64, what: &str| match value.parse::<f64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(()),
            Ok(_) | Err(_) => Err(format!("{what} is expected")),
        };
        match self {
            Self::Nothing if value.is_empty() || answered => Ok(()),
            Self::Nothing => Err("it takes no value".to_owned()),
            Self::Text => Ok(()),
            Self::Count => match value.parse::<u64>() {
                Ok(1..=COUNT_MAX) => Ok(()),
                Ok(0) => Err("there is at least one".to_owned()),
                Ok(_) => Err(format!("no machine has so many; the limit is {COUNT_MAX}")),
                Err(_) => Err("a whole number is expected".to_owned()),
            },
            Self::Ratio => {
                number(f64::MIN_POSITIVE, RATIO_MAX, "a number above 0, at most 1000000,")
            }
            Self::Share => number(f64::MIN_POSITIVE, 1.0, "a number above 0, at most 1,"),
            Self::Gigabytes => {
                number(0.0, GIGABYTES_MAX, "a number of decimal gigabytes of each rank")
            }
            Self::Nodes => match value.split_whitespace().all(|node| node.parse::<u32>().is_ok()) {
                true => Ok(()),
                false => {
                    Err("the numbers of NUMA nodes are expected, one for each rank".to_owned())
                }
            },
            Self::One(known) if answered || known.contains(&value) => Ok(()),
            Self::One(known) => Err(format!("one of {} is expected", known.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &str) -> Flags {
        Flags::read(line).expect(line)
    }

    #[test]
    fn a_wrong_value_is_a_line_with_one_that_works() {
        let check = |line: &str, says: &[&str]| {
            let found = problems(&flags(line));
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert_eq!(found[0].lines().count(), 1);
            for part in says {
                assert!(found[0].contains(part), "{part:?} is not in {found:?}");
            }
        };
        check("--tp-size 0", &["--tp-size 0: there is at least one", "try --tp-size 1"]);
        check("--tp four", &["--tp-size four: a whole number", "try --tp-size 1"]);
        check("--tp 99999999999999", &["no machine has so many"]);
        check("--tp-size", &["--tp-size: a value is missing; try --tp-size 1"]);
        check("--tp --page-size 64", &["--tp-size: a value is missing"]);
        for ratio in ["0", "-1", "nan", "inf", "1e308", "two", "2 3"] {
            check(&format!("--hicache-ratio {ratio}"), &[ratio, "above 0", "--hicache-ratio 2.0"]);
        }
        check("--hicache-size 150GB", &["decimal gigabytes of each rank", "--hicache-size 40"]);
        check("--hicache-size -5", &["--hicache-size -5"]);
        check("--hicache-host-memory-fraction 2", &["at most 1"]);
        check("--swa-full-tokens-ratio 5", &["at most 1"]);
        check("--hicache-write-policy writeback", &["one of write_through,"]);
        check("--disaggregation-mode prefil", &["one of null, prefill, decode"]);
        check("--enable-hierarchical-cache true", &["takes no value"]);
        check("--numa-node zero", &["numbers of NUMA nodes"]);
        let many = problems(&flags("--tp 0 --dp 0 --hicache-ratio x"));
        assert_eq!(many.len(), 3, "all of them, not just the first: {many:?}");
    }

    #[test]
    fn what_is_mistyped_is_told_from_what_is_not_known() {
        let typo = |line: &str| problems(&flags(line)).join("");
        assert!(
            typo("--hicache-ration 2")
                .contains("--hicache-ration: no such flag; try --hicache-ratio")
        );
        assert!(typo("--hicahce-size 2").contains("try --hicache-size"));
        assert!(typo("--tp-szie 2").contains("try --tp-size"));
        assert!(typo("--max-total-token 2").is_empty(), "the beginning of a flag is that flag");
        for real in ["--ep-size 4", "--moe-dp-size 2", "--max-prefill-tokens 9", "--node-rank 1"] {
            assert_eq!((typo(real), unknown(&flags(real))), (String::new(), None), "{real}");
        }
        let line = "--tp 2 --brand-new-thing 5 --another --max-total-tokens 5";
        assert_eq!(unknown(&flags(line)).as_deref(), Some("--another --brand-new-thing"));
        assert_eq!(typo(line), "");
        let many: String = (0..20).map(|n| format!("--novelty{n:02} ")).collect();
        assert!(unknown(&flags(&many)).is_some_and(|text| text.ends_with("and 8 more")));
        assert!(typo(&format!("--{}", "x".repeat(100_000))).is_empty());
    }

    #[test]
    fn a_flag_has_several_names_and_beginnings() {
        assert_eq!(usual("tp"), Some("tp-size"));
        assert_eq!(usual("enable-hier"), Some("enable-hierarchical-cache"));
        assert_eq!(usual("hicache"), None, "several begin like that");
        assert_eq!(usual("novelty"), None);
        assert_eq!(flags("--hicache-rat 3").number("hicache-ratio"), Ok(Some(3.0)));
    }

    #[test]
    fn words_are_as_far_apart_as_they_take_to_mend() {
        for (one, other, far) in [
            ("abcd", "abcd", 0),
            ("abcd", "abdc", 1),
            ("abc", "abcd", 1),
            ("", "ab", 2),
            ("ab", "ba", 1),
        ] {
            assert_eq!(distance(one, other), far, "{one} {other}");
            assert_eq!(distance(other, one), far, "{other} {one}");
        }
    }
}
