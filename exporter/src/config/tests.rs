use super::*;

fn service(text: &str) -> Service {
    text.parse().expect(text)
}

fn refused(text: &str) -> String {
    text.parse::<Service>().expect_err(text)
}

#[test]
fn a_service_has_a_name_and_any_of_its_keys() {
    let all = service(
        "prefill-0,unit=prefill@0.service,cgroup=/system.slice/p,url=http://127.0.0.1:8100/health,\
         metrics=https://[::1]:9/m,log=journal,plan=/etc/plan.json,target=150GB,node=1,\
         start-up=5m",
    );
    assert_eq!((all.name.as_str(), all.unit.as_deref()), ("prefill-0", Some("prefill@0.service")));
    assert_eq!(all.cgroup, Some("system.slice/p".into()));
    let metrics = all.metrics_url.expect("given");
    assert_eq!((metrics.host(), metrics.port(), metrics.is_https()), ("::1", 9, true));
    let health = all.health_url.expect("given");
    assert_eq!((health.host(), health.port(), health.is_https()), ("127.0.0.1", 8100, false));
    assert_eq!(all.log, Some(LogSource::Journal("prefill@0.service".into())));
    assert_eq!((all.target, all.numa_node), (Some(150_000_000_000), Some(1)));
    assert_eq!((all.plan, all.start_up), (Some("/etc/plan.json".into()), Duration::from_secs(300)));

    let bare = service("gateway");
    assert_eq!((bare.unit, bare.start_up), (None, Duration::from_secs(600)));
    assert_eq!(service("a,log=/v/l\\,g").log, Some(LogSource::File("/v/l,g".into())));
    assert_eq!(
        service("a,log=journal:b.service").log,
        Some(LogSource::Journal("b.service".into()))
    );
    assert_eq!(service("a,url=http://h").health_url.expect("given").port(), 80);
}

#[test]
fn a_wrong_service_is_told_the_value_the_reason_and_what_would_work() {
    for (text, parts) in [
        ("", ["\"\"", "cannot name", "prefill-0"]),
        ("a b", ["a b", "cannot name", "prefill-0"]),
        ("a,unit", ["unit", "KEY=VALUE", "keys are unit"]),
        ("a,units=b.service", ["units=b.service", "no such key", "keys are unit"]),
        ("a,unit=b", ["unit=b", "full name", "b.service"]),
        ("a,unit=", ["service a", "empty", "leave it out"]),
        ("a,node=1,node=2", ["node", "twice", "once"]),
        ("a,node=x", ["node=x", "a number", "0"]),
        ("a,target=150", ["target=150", "need a unit", "150GB"]),
        ("a,url=127.0.0.1:80", ["127.0.0.1:80", "neither", "http://127.0.0.1:8000"]),
        ("a,url=http://u:p@h/", ["u:p@h", "user", "send none"]),
        ("a,log=journal", ["log=journal", "needs a unit", "journal:NAME.service"]),
        ("a,log=x", ["log=x", "neither", "absolute"]),
        ("a,cgroup=../x", ["../x", "not below", "system.slice"]),
        ("a,plan=x.json", ["x.json", "not absolute", "/x.json"]),
        ("a,start-up=5", ["start-up=5", "needs a unit", "5s"]),
    ] {
        let error = refused(text);
        for part in parts {
            assert!(error.contains(part), "{text:?}: {error:?} lacks {part:?}");
        }
    }
}

#[test]
fn what_is_escaped_reads_back() {
    for value in ["/a,b", "/a\\b", "/a\\,b", "/plain", "/trail\\"] {
        let text = format!("a,log={}", escape(value));
        assert_eq!(service(&text).log, Some(LogSource::File(value.into())), "{text}");
    }
}

#[test]
fn intervals_are_by_name_with_bounds() {
    let read = Intervals::parse("gpu=250ms").expect("fine");
    let intervals = Intervals::new([read]);
    assert_eq!(intervals.of(Timer::Collector(CollectorName::Gpu)), Duration::from_millis(250));
    assert_eq!(intervals.of(Timer::GpuStatic), Duration::from_secs(60));
    for timer in Timer::all() {
        let text = format!("{}=3s", timer.as_str());
        assert_eq!(Intervals::parse(&text), Ok((timer, Duration::from_secs(3))));
        let default = timer.default_interval();
        assert!(default >= Intervals::SHORTEST && default <= Intervals::LONGEST);
    }
    assert!(Intervals::parse("gpus=1s").expect_err("unknown").contains("there are gpu, gpu_slow"));
    assert!(Intervals::parse("gpu").expect_err("no time").contains("gpu=1s"));
    assert!(Intervals::parse("gpu=1").expect_err("no unit").contains("1s"));
    assert!(Intervals::parse("gpu=1ms").expect_err("short").contains("10ms"));
}

#[test]
fn rdma_ports_count_from_one() {
    let port = |text: &str| text.parse::<RdmaPort>();
    assert_eq!(port("mlx5_0"), Ok(RdmaPort { device: "mlx5_0".into(), port: 1 }));
    assert_eq!(port("mlx5_1:2"), Ok(RdmaPort { device: "mlx5_1".into(), port: 2 }));
    for wrong in ["", ":1", "mlx5_0:0", "mlx5_0:x", "../x:1"] {
        assert!(port(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn paths_of_the_host_are_below_its_root() {
    let paths = Paths { rootfs: "/host".into(), ..Config::default().paths };
    assert_eq!(paths.on_host("/var/log/x".as_ref()), PathBuf::from("/host/var/log/x"));
    assert_eq!(Config::default().paths.on_host("/x".as_ref()), PathBuf::from("/x"));
}
