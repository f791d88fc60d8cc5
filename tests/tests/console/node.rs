//! The board of hosts in a browser, over the page of an exporter of a host with some of everything,
//! and something wrong.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use metric_catalog::def::LabelSet;
use metric_catalog::labels::*;
use metric_catalog::node as m;
use metric_catalog::page::Page;
use tests::{fixture_model, skip};

use crate::browser::{WIDTH, board, screens};
use crate::pair::until;
use crate::up::Up;
use crate::webdriver::{Browser, missing};

const GIB: f64 = 1_073_741_824.0;
/// A moment after which everything happened here, Unix seconds.
const START: f64 = 1_700_000_000.0;

#[test]
fn the_board_shows_a_host() -> Result<()> {
    if let Some(reason) = missing() {
        skip(&reason);
        return Ok(());
    }
    let exporter = serve()?;
    let up =
        Up::start(&fixture_model("tiny-llama"), &["--no-demo-load", "--node-exporter", &exporter])?;
    let browser = Browser::start(WIDTH, 1000)?;
    board(&browser, &up, "sightline-node", 1)?;
    let says = |panel: &str, words: &str| -> Result<()> {
        let script = format!(
            "[...document.querySelectorAll('.panel')].some(p => p.querySelector('h3').textContent
               === '{panel}' && p.innerText.includes('{words}'))"
        );
        ensure!(browser.wait_until(&script)?, "{panel} does not say {words}");
        Ok(())
    };
    says("Failing checks", "gpu_responding")?;
    says("Nodes not fit", "1")?;
    says("Verdict", "not fit")?;
    says("State of services", "failed")?;
    says("Largest ratio that fits", "3.5")?;
    says("Temperature", "°C")?;
    says("Power", "W")?;
    red(&browser)?;
    browser.screenshot(&screens()?.join("node.png"))?;
    let complaints = browser.complaints()?;
    ensure!(complaints.is_empty(), "{complaints:?}");
    // What is wrong with the host is on its way to be an alert.
    let query = "ALERTS%7Balertname%3D%22GpuThrottled%22%7D";
    let found = until(&up, query, |found| !found.is_empty())?;
    let alert = &found[0]["metric"];
    ensure!(alert["gpu"] == "0" && alert["job"] == "sightline-node", "{found:?}");
    Ok(())
}

/// The strip and the banner tell what is wrong with the host, and what to do.
fn red(browser: &Browser) -> Result<()> {
    let strip = "document.querySelector('[data-status=node].bad').innerText === 'node not fit'
        && /gpu_responding/.test(document.querySelector('[data-status=node]').title)";
    browser.expect("the verdict in the strip", strip)?;
    let line = "document.querySelector('.banner [data-alert^=Gpu]')";
    browser.expect(
        "what is wrong with a card",
        &format!("/What now\\?\\s+\\w+/.test({line}.innerText)"),
    )
}

/// Serves the page of the host for as long as the test runs; its address.
fn serve() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
    let address = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        let asked = AtomicU64::new(0);
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let page = host(asked.fetch_add(1, Ordering::Relaxed)).render();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n";
            let text = format!("{head}Content-Length: {}\r\n\r\n{page}", page.len());
            // A client that has gone asks again.
            drop(stream.read(&mut [0; 4096]));
            drop(stream.write_all(text.as_bytes()));
        }
    });
    Ok(address)
}

/// The page of the host when it is asked for the `n`th time.
fn host(n: u64) -> Page {
    let mut page = Page::new();
    verdict(&mut page);
    (0..2).for_each(|card| gpu(&mut page, card, n));
    (0..2).for_each(|node| numa(&mut page, node, n));
    services(&mut page, n);
    links(&mut page, n);
    collectors(&mut page, n);
    page
}

fn verdict(page: &mut Page) {
    page.gauge(m::BUILD_INFO, (Version::new("1"), GitSha::new("abc"), Rustc::new("1.95")), 1.0);
    page.flag(m::SANDBOXED, (), true);
    page.flag(m::HEALTHY, (), false);
    let check = |check, scope| (check, CheckScope::new(scope), CheckSeverity::Critical);
    let lost = check(HealthCheck::GpuResponding, "GPU-1");
    page.flag(m::HEALTH_CHECK, lost.clone(), false);
    page.flag(m::HEALTH_CHECK_KNOWN, lost, true);
    let well = check(HealthCheck::NumaHeadroom, "0");
    page.flag(m::HEALTH_CHECK, well.clone(), true);
    page.flag(m::HEALTH_CHECK_KNOWN, well, false);
    for state in GpuCount::ALL {
        let count = if *state == GpuCount::Responding { 1.0 } else { 2.0 };
        page.gauge(m::GPUS, (*state,), count);
    }
}

fn gpu(page: &mut Page, card: u64, n: u64) {
    let of = || (Gpu::new(card.to_string()), Uuid::new(format!("GPU-{card}")));
    let (gpu, uuid) = of();
    let whole = || (gpu.clone(), uuid.clone(), GpuInstance::WHOLE, ComputeInstance::WHOLE);
    page.flag(m::GPU_UP, of(), card == 0);
    let bus = PciBusId::new(format!("0000:{card}7:00.0"));
    let (name, driver) = (GpuName::new("H200"), DriverVersion::new("590"));
    let rest = (VbiosVersion::new("96"), Minor::new(card.to_string()));
    let node = NumaNode::new(card.to_string());
    let info = (gpu.clone(), uuid.clone(), name, bus, node, driver, rest.0, rest.1);
    page.gauge(m::GPU_INFO, info, 1.0);
    if card == 0 {
        let wave = (n % 20) as f64;
        page.gauge(m::GPU_UTILIZATION, of(), 0.5 + wave / 40.0);
        page.gauge(m::GPU_POWER, of(), 400.0 + wave);
        page.gauge(m::GPU_POWER_LIMIT, of(), 700.0);
        page.gauge(m::GPU_MEMORY_USED, whole(), 100.0 * GIB);
        page.gauge(m::GPU_MEMORY_TOTAL, whole(), 140.0 * GIB);
        let sensor = |sensor| (gpu.clone(), uuid.clone(), sensor);
        page.gauge(m::GPU_TEMPERATURE, sensor(Sensor::Gpu), 60.0 + wave);
        for domain in ClockDomain::ALL {
            page.gauge(m::GPU_CLOCK, (gpu.clone(), uuid.clone(), *domain), 1.98e9);
        }
        for reason in ThrottleReason::ALL {
            let hot = *reason == ThrottleReason::HwThermal;
            page.flag(m::GPU_THROTTLE_ACTIVE, (gpu.clone(), uuid.clone(), *reason), hot);
        }
        let service = (gpu.clone(), uuid.clone(), Service::new("prefill"));
        page.gauge(m::GPU_PROCESS_MEMORY, service, 90.0 * GIB);
        page.gauge(m::GPU_PCIE_LINK_WIDTH, of(), 8.0);
        page.gauge(m::GPU_PCIE_LINK_WIDTH_MAX, of(), 16.0);
        page.gauge(m::GPU_RECOVERY_ACTION, of(), 0.0);
    }
    let time = (gpu.clone(), uuid.clone(), ThrottleTime::HwThermal);
    page.time(m::GPU_THROTTLE_SECONDS, time, Duration::from_millis(300 * n));
    page.counter(m::GPU_PCIE_TRANSMIT, of(), n << 30);
    page.counter(m::GPU_PCIE_RECEIVE, of(), n << 31);
    for kind in EccKind::ALL {
        page.counter(m::GPU_ECC_ERRORS, (gpu.clone(), uuid.clone(), *kind), card * (n / 10));
        page.gauge(m::GPU_ECC_LIFETIME_ERRORS, (gpu.clone(), uuid.clone(), *kind), 3.0);
        page.gauge(m::GPU_ROW_REMAPS, (gpu.clone(), uuid.clone(), *kind), 1.0);
    }
    let xid = |code: &'static str| (gpu.clone(), uuid.clone(), Xid::new(code));
    let (gpu, uuid, code) = xid("79");
    page.counter(m::GPU_XID_ERRORS, (gpu, uuid, code, XidSource::Nvml), card * (n / 10));
    page.gauge(m::GPU_XID_LAST, xid("79"), START);
}

fn numa(page: &mut Page, node: u64, n: u64) {
    let of = || (NumaNode::new(node.to_string()),);
    let wave = (n % 30) as f64 / 10.0;
    for (gauge, gib) in [
        (m::NUMA_MEMORY_TOTAL, 256.0),
        (m::NUMA_MEMORY_FREE, 90.0 - wave),
        (m::NUMA_MEMORY_FILE, 30.0),
        (m::NUMA_MEMORY_SHMEM, 10.0),
        (m::NUMA_MEMORY_ANON, 120.0),
        (m::NUMA_MEMORY_SLAB, 3.0),
        (m::NUMA_MEMORY_HUGETLB, 0.0),
        (m::NUMA_MEMORY_MLOCKED, 20.0),
        (m::NUMA_MEMORY_UNACCOUNTED, 1.0),
        (m::NUMA_HEADROOM, if node == 0 { 80.0 - wave } else { -10.0 }),
        (m::NUMA_RESERVE, 12.8),
    ] {
        page.gauge(gauge, of(), gib * GIB);
    }
    for outcome in PageAllocation::ALL {
        let pages = (NumaNode::new(node.to_string()), *outcome);
        page.counter(m::NUMA_PAGE_ALLOCATIONS, pages, 100 * n);
    }
    for to in 0..2 {
        let pair = (NumaNode::new(node.to_string()), ToNode::new(to.to_string()));
        page.gauge(m::NUMA_DISTANCE, pair, if to == node { 10.0 } else { 21.0 });
    }
}

fn services(page: &mut Page, n: u64) {
    for (name, state) in [("prefill", ServiceState::Active), ("decode", ServiceState::Failed)] {
        let of = || (Service::new(name),);
        for known in ServiceState::ALL {
            page.flag(m::SERVICE_STATE, (Service::new(name), *known), *known == state);
        }
        let well = state == ServiceState::Active;
        page.flag(m::SERVICE_PROBE_SUCCESS, of(), well);
        page.gauge(m::SERVICE_PROBE_DURATION, of(), 0.01 + (n % 7) as f64 / 1000.0);
        page.counter(m::SERVICE_RESTARTS, of(), u64::from(!well) * (n / 5));
        page.counter(m::SERVICE_OOM_KILLS, of(), u64::from(!well) * (n / 20));
        page.gauge(m::SERVICE_START, of(), START);
        page.gauge(m::SERVICE_MEMORY_CURRENT, of(), 30.0 * GIB);
        page.gauge(m::SERVICE_MEMORY_MAX, of(), 64.0 * GIB);
        page.gauge(m::SERVICE_LOCKED, of(), 20.0 * GIB);
        let policy = (Service::new(name), MempolicyKind::Bind, PolicyNodes::new("0"));
        page.gauge(m::SERVICE_MEMPOLICY_INFO, policy, 1.0);
        let on_node = || (Service::new(name), NumaNode::new("0"));
        page.gauge(m::SERVICE_NUMA_RESIDENT, on_node(), 30.0 * GIB);
        page.gauge(m::HOSTCACHE_RESIDENT, on_node(), 20.0 * GIB);
        page.gauge(m::HOSTCACHE_TARGET, (Service::new(name), TargetSource::Config), 150.0 * GIB);
        let pool = || (Service::new(name), Pool::new("full"), NumaNode::new("0"));
        let (service, full, node) = pool();
        page.gauge(m::HOSTCACHE_PLANNED, (service, full, node, HostcacheSource::Log), 25.0 * GIB);
        let (service, full, node) = pool();
        page.gauge(m::HOSTCACHE_ALLOCATED, (service, full, node, HostcacheSource::Log), 20.0 * GIB);
        page.gauge(m::HOSTCACHE_LOCAL, of(), 0.97);
        page.gauge(m::HICACHE_RATIO_MAX, of(), 3.5);
        page.gauge(m::HICACHE_BYTES_PER_RATIO, of(), 10.0 * GIB);
    }
    for resource in PressureResource::ALL {
        page.time(m::PRESSURE_WAITING, (*resource,), Duration::from_millis(40 * n));
        page.time(m::PRESSURE_STALLED, (*resource,), Duration::from_millis(4 * n));
    }
}

fn links(page: &mut Page, n: u64) {
    for (device, well) in [("mlx5_0", true), ("mlx5_1", false)] {
        let of = || (RdmaDevice::new(device), RdmaPort::new("1"), NumaNode::new("0"));
        page.flag(m::RDMA_PORT_UP, of(), well);
        page.flag(m::RDMA_PORT_REQUIRED, of(), true);
        page.gauge(m::RDMA_PORT_RATE, of(), 5e10);
        page.counter(m::RDMA_TRANSMIT, of(), n << 30);
        page.counter(m::RDMA_RECEIVE, of(), n << 31);
        for kind in RdmaError::ALL {
            let (device, port, node) = of();
            page.counter(m::RDMA_ERRORS, (device, port, node, *kind), u64::from(!well) * n);
        }
        for kind in RdmaCongestion::ALL {
            let (device, port, node) = of();
            page.counter(m::RDMA_CONGESTION, (device, port, node, *kind), n);
        }
    }
}

fn collectors(page: &mut Page, n: u64) {
    for (collector,) in <(Collector,)>::all() {
        let of = (collector,);
        let stuck = collector == Collector::Gpu;
        page.flag(m::COLLECTOR_SUPPORTED, of, true);
        page.gauge(m::COLLECTOR_INTERVAL, of, 1.0);
        page.flag(m::COLLECTOR_SUCCESS, of, !stuck);
        page.gauge(m::COLLECTOR_DURATION, of, 0.002);
        page.gauge(m::COLLECTOR_LAST_SUCCESS, of, START);
        page.gauge(m::COLLECTOR_STUCK, of, if stuck { n as f64 } else { 0.0 });
        let errors = (collector, CollectorError::Timeout);
        page.counter(m::COLLECTOR_ERRORS, errors, u64::from(stuck) * n);
    }
}
