//! The process confines itself, and what it may still do; the unit that it is installed with.

use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::harness::{Exporter, Folder};

#[test]
fn a_confined_process_reads_what_is_configured_and_nothing_else() {
    let (own, other) = (Folder::new(), Folder::new());
    let soon = SystemTime::now() + Duration::from_secs(300);
    let soon = soon.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    own.write("planned", &format!("decode {soon}\n"));
    let file = own.arg("planned");
    let args = [
        "--no-nvml",
        "--maintenance",
        &file,
        "--interval=maintenance=20ms",
        "--interval=page=20ms",
    ];
    let exporter = Exporter::start_confined(&args);
    let until = "sightline_maintenance_until_timestamp_seconds";
    let decode = [("engine_role", "decode")];
    let page =
        exporter.page_where("planned work", |page| page.value(until, &decode) == Some(soon as f64));
    assert_eq!(page.value(until, &[("engine_role", "prefill")]), Some(0.0));
    let numa = [("collector", "numa")];
    exporter.page_where("memory of the host", |page| {
        page.value("sightline_node_collector_success", &numa) == Some(1.0)
    });
    if page.value("sightline_node_sandboxed", &[]) == Some(0.0) {
        println!("SKIP this kernel has no Landlock");
        return;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", exporter.pid()));
    assert!(status.expect("it runs").contains("NoNewPrivs:\t1"));
    // The same file, by a link to a folder that nobody has configured.
    let elsewhere = other.write("planned", &format!("decode {soon}\n"));
    std::fs::remove_file(own.path("planned")).expect("it is there");
    std::os::unix::fs::symlink(elsewhere, own.path("planned")).expect("the folder is writable");
    let denied = [("collector", "maintenance"), ("error", "permission")];
    let page = exporter.page_where("the refusal", |page| {
        page.value("sightline_node_collector_errors_total", &denied) > Some(0.0)
    });
    assert_eq!(page.value(until, &decode), None);
}

#[test]
fn the_process_says_where_it_is_not_confined() {
    let exporter = Exporter::start(&["--no-nvml"]);
    assert_eq!(exporter.page().value("sightline_node_sandboxed", &[]), Some(0.0));
}

#[test]
fn the_unit_is_one_that_systemd_understands_and_hardened() {
    let unit = format!("{}/sightline-exporter.service", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&unit).expect("the unit is beside the crate");
    for line in [
        "Type=notify",
        "DynamicUser=yes",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "DevicePolicy=closed",
    ] {
        assert!(text.lines().any(|have| have == line), "{line}");
    }
    let start = text.lines().find(|line| line.starts_with("ExecStart=")).expect("it starts");
    assert!(start.contains("/sightline-exporter"), "{start}");
    // The program need not be installed to check the unit.
    let folder = Folder::new();
    let installed =
        text.replace(start, &format!("ExecStart={}", env!("CARGO_BIN_EXE_sightline-exporter")));
    let copy = folder.write("sightline-exporter.service", &installed);
    let verify = Command::new("systemd-analyze").arg("verify").arg(copy).output();
    let Ok(verify) = verify else {
        println!("SKIP systemd-analyze is not installed");
        return;
    };
    let said = String::from_utf8_lossy(&verify.stderr);
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("sightline-exporter")).collect();
    assert!(ours.is_empty(), "{said}");
}
