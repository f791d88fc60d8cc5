//! Labels whose values are known at run time only.

use super::*;

open! {
    /// Cluster; set by the scrape configuration.
    Cluster: "cluster", 16, "clusters of one Prometheus";
    /// Host; set by the scrape configuration.
    Node: "node", 256, "hosts of one Prometheus";
    /// Scrape job, one for each role and one for node exporters; set by the scrape configuration.
    Job: "job", 8, "one for each role and one for node exporters";
    /// Address of the scrape target; set by the scrape configuration.
    Instance: "instance", 1024, "targets of one Prometheus";
    /// Model served; a constant label.
    ModelName: "model_name", 1, "one engine serves one model";
    /// Version of the program.
    Version: "version", 1, "constant of the build";
    /// Commit it was built from.
    GitSha: "git_sha", 1, "constant of the build";
    /// Compiler it was built with.
    Rustc: "rustc", 1, "constant of the build";
    /// CUDA version it was built with, or `none`.
    Cuda: "cuda", 1, "constant of the build";
    /// Ranks of tensor parallelism.
    TpSize: "tp_size", 1, "constant of the configuration";
    /// Ranks of data parallelism.
    DpSize: "dp_size", 1, "constant of the configuration";
    /// Element type of the KV cache.
    KvDtype: "kv_dtype", 1, "constant of the configuration";
    /// Tokens of a page.
    PageTokens: "page_tokens", 1, "constant of the configuration or of the pool";
    /// Mode of the host cache, or `none`.
    HicacheMode: "hicache_mode", 1, "constant of the configuration";
    /// How KV moves between servers, or `none`.
    TransferBackend: "transfer_backend", 1, "constant of the configuration";
    /// How often settings have changed since the start, from 1.
    ConfigGeneration: "generation", 2, "one in force; two while it changes", leaves;
    /// Hash of the settings in force that can change.
    ConfigHash: "hash", 2, "one in force; two while it changes";
    /// Layers whose KV a pool holds.
    Layers: "layers", 1, "constant of the pool";
    /// Bytes of one slot of a pool.
    SlotBytes: "slot_bytes", 1, "constant of the pool";
    /// Order of the dimensions in a slot.
    Layout: "layout", 1, "constant of the pool";
    /// KV pool of the model served.
    Pool: "pool", 8, "pools of a model: one for dense ones, eight for DeepSeek-V4";
    /// Rank of a tensor-parallel group, from 0.
    TpRank: "tp_rank", 64, "ranks of one process";
    /// Host to device ratio of a candidate size of the host tier; 0 is the device alone.
    HostRatio: "ratio", 16, "the candidates and the ratio in force";
    /// NUMA node, as the kernel numbers them; `unknown` for a device that firmware puts on none.
    NumaNode: "numa_node", 18, "nodes of one host, and any or unknown";
    /// Pool whose indices this one borrows, or `none`.
    DerivedFrom: "derived_from", 1, "constant of the pool";
    /// Operation of the model that a kernel computes.
    Op: "op", 16, "linear layers of the architectures we run, attention, embedding, head";
    /// Weight format of an operation.
    Format: "format", 8, "weight formats we read, and none";
    /// Code path chosen for an operation.
    Kernel: "kernel", 16, "code paths of the kernels crate";
    /// The other worker of a pair, by the address of its API; `other` beyond the bound.
    Peer: "peer", 33, "32 peers of the configuration and other", leaves;
    /// A worker of a router, by its address; `other` beyond the bound.
    Worker: "worker", 33, "32 workers of the configuration or discovery, and other", leaves;
}
