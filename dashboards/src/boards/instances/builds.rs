//! Builds, settings and starts of processes, beside those of their peers.

use crate::boards::common::INSTANCE as BY_INSTANCE;
use crate::build::{folded, line, section as titled, table, time_series};
use crate::ir::{Color, Line, Section};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{
    Cluster, ConfigHash, Cuda, DpSize, Format, GitSha, HicacheMode, Instance, Kernel, KvDtype, Op,
    PageTokens, ReloadResult, Role, Rustc, StartupPhase, TpSize, TransferBackend, Version,
};
use metric_catalog::promql::{Window, count, increase, max, sum, time};
use metric_catalog::{process, server};

const NOW: Window = Window::Interval;

pub(super) fn section() -> Section {
    titled("versions", "Builds and starts", vec![builds(), starts()])
}

fn builds() -> Line {
    let by = (Role::KEY, Instance::KEY, Version::KEY, GitSha::KEY, Rustc::KEY, Cuda::KEY);
    let build = max(server::BUILD_INFO).by(by);
    // How many of the peers have the same build, for each process.
    let peers = count(server::BUILD_INFO).by((Cluster::KEY, Role::KEY));
    let same = count(server::BUILD_INFO).by((Cluster::KEY, Role::KEY, Version::KEY, GitSha::KEY));
    let share = same.share_of(&["cluster", "engine_role"], peers);
    let on = ["cluster", "engine_role", "version", "git_sha"];
    let share = metric_catalog::promql::Expr::from(server::BUILD_INFO).joined(&on, share);
    let columns = [
        ("engine_role", "Role"),
        ("instance", "Instance"),
        ("version", "Version"),
        ("git_sha", "Commit"),
        ("rustc", "Compiler"),
        ("cuda", "CUDA"),
    ];
    let builds = table("builds", &columns)
        .title("Builds")
        .describe(
            "What each process was built from, and the share of its peers with the same version \
             and commit. Below 100 % a rollout is under way, or was left half done: look at who is \
             behind.",
        )
        .unit(Unit::Flag)
        .query(build, "")
        .query(max(share.in_unit(Unit::Ratio)).by(by), "Peers like it")
        .judge("Peers like it", Color::Orange, &[(1.0, Color::Text)])
        .sorted_by("Peers like it", false);
    line(7, vec![builds.into()])
}

fn starts() -> Line {
    let age = time().minus(max(process::START_TIME).by((Role::KEY, Instance::KEY)).above(0.0));
    let phases = max(server::STARTUP_PHASE).by((StartupPhase::KEY, Instance::KEY));
    line(
        8,
        vec![
            time_series("uptime")
                .title("Time since the start")
                .describe("A line that falls to 0 is a restart; a saw is a crash loop.")
                .unit(Unit::Seconds)
                .query(age.in_unit(Unit::Seconds), "{{engine_role}} {{instance}}")
                .into(),
            time_series("startup-phases")
                .title("Startup phases")
                .describe(
                    "How long each phase of the last start took. A slow `load` is the disk that \
                     weights come from; `host_pools` is memory that must be zeroed or locked.",
                )
                .unit(Unit::Seconds)
                .query(phases, &format!("{{{{phase}}}} {BY_INSTANCE}"))
                .into(),
        ],
    )
}

pub(super) fn settings() -> Section {
    folded("settings", "Kernels and configuration", vec![configuration(), changes(), kernels()])
}

fn configuration() -> Line {
    let by = (
        Instance::KEY,
        TpSize::KEY,
        DpSize::KEY,
        KvDtype::KEY,
        PageTokens::KEY,
        HicacheMode::KEY,
        TransferBackend::KEY,
    );
    let columns = [
        ("instance", "Instance"),
        ("tp_size", "Tensor parallel"),
        ("dp_size", "Data parallel"),
        ("kv_dtype", "KV type"),
        ("page_tokens", "Tokens per page"),
        ("hicache_mode", "Host cache"),
        ("transfer_backend", "Transfer"),
    ];
    let configuration = table("configuration", &columns)
        .title("Configuration")
        .describe("The settings that other panels must be read against. Peers should be alike.")
        .unit(Unit::Flag)
        .query(max(server::CONFIG_INFO).by(by), "");
    let hash = max(server::CONFIG_GENERATION_INFO).by((Role::KEY, Instance::KEY, ConfigHash::KEY));
    let columns = [("engine_role", "Role"), ("instance", "Instance"), ("hash", "Settings")];
    let settings = table("live-settings", &columns)
        .title("Settings that can change while it runs")
        .describe(
            "A hash of them. Peers of a role that differ were told different things: compare \
             `/admin/config` of both.",
        )
        .unit(Unit::Flag)
        .query(hash, "");
    line(7, vec![configuration.into(), settings.span(8).into()])
}

fn changes() -> Line {
    let by = (Role::KEY, Instance::KEY);
    let since = time().minus(max(server::CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP).by(by).above(0.0));
    let reloads = sum(increase(server::CONFIG_RELOADS, NOW));
    let columns = [("engine_role", "Role"), ("instance", "Instance")];
    let state = table("settings-state", &columns)
        .title("State of the settings")
        .describe(
            "Since when the settings hold, how many of them an admin changed so that they differ \
             from flags and file, and whether the file could be used when it was last read. A \
             restart takes the changes of admins back: write them into the file.",
        )
        .unit(Unit::Count)
        .query(since.in_unit(Unit::Seconds), "In force for")
        .query(max(server::CONFIG_DRIFT).by(by), "Differ from the file")
        .query(max(server::CONFIG_LAST_RELOAD_SUCCESSFUL).by(by), "File usable")
        .judge("Differ from the file", Color::Text, &[(1.0, Color::Yellow)])
        .words("File usable", &[(0, "no", Color::Red), (1, "yes", Color::Green)]);
    let reloads = time_series("reloads")
        .title("Changes of settings")
        .describe(
            "Attempts to change settings while the process runs, by what became of them. Those \
             that are refused say why in the log and in the answer.",
        )
        .unit(Unit::Count)
        .query(
            reloads.by((Instance::KEY, ReloadResult::KEY)).above(0.0).in_unit(Unit::Count),
            "{{result}} {{instance}}",
        )
        .no_value("nobody changed anything")
        .steps();
    line(7, vec![state.into(), reloads.into()])
}

fn kernels() -> Line {
    let kernel = max(server::KERNEL_INFO).by((Instance::KEY, Op::KEY, Format::KEY, Kernel::KEY));
    let columns = [
        ("instance", "Instance"),
        ("op", "Operation"),
        ("format", "Weights"),
        ("kernel", "Kernel"),
    ];
    let kernels = table("kernels", &columns)
        .title("Kernels")
        .describe(
            "Code path of each operation. `reference` where a faster one is expected: the \
             processor lacks an instruction set.",
        )
        .unit(Unit::Flag)
        .query(kernel, "");
    line(7, vec![kernels.into()])
}
