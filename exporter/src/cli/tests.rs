use std::path::Path;

use super::*;
use crate::config::{Config, LogSource};
use crate::slot::CollectorName;

fn read(args: &[&str]) -> Result<Cli, Wrong> {
    let name = std::iter::once("sightline-exporter");
    Cli::read(name.chain(args.iter().copied()).map(OsString::from).collect())
}

fn config(args: &[&str]) -> Config {
    match read(args) {
        Ok(cli) => cli.resolve().unwrap_or_else(|refusal| panic!("{refusal}")),
        Err(wrong) => panic!("{wrong}"),
    }
}

/// What is said of arguments that cannot be used.
fn refused(args: &[&str]) -> String {
    match read(args) {
        Err(wrong) => wrong.to_string(),
        Ok(cli) => cli.resolve().expect_err("these arguments are wrong").to_string(),
    }
}

struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sightline-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("the temporary folder is writable");
        Self(path)
    }

    fn arg(&self) -> &str {
        self.0.to_str().expect("the path is text")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn nothing_given_is_the_default_configuration() {
    let (given, default) = (config(&[]), Config::default());
    assert_eq!(format!("{given:?}"), format!("{default:?}"));
    assert!(given.listen.ip().is_loopback());
}

#[test]
fn every_flag_reaches_the_configuration() {
    let config = config(&[
        "--listen=[::1]:0",
        "--web.max-requests=7",
        "--web.client-timeout=2s",
        "--service=a,node=1",
        "--service=b,url=http://localhost:1/h",
        "--reserve=4GiB",
        "--maintenance=/run/planned",
        "--expect-gpus=8",
        "--nvml.library=/a.so",
        "--nvml.library=/b.so",
        "--nvml.release-time=5s",
        "--gpu-reserve=2GiB",
        "--xid.critical=1,2",
        "--xid.warn=3",
        "--xid.window=1m",
        "--no-kmsg",
        "--rdma.require=mlx5_0:1",
        "--grace=9s",
        "--interval=gpu=100ms",
        "--interval=page=200ms",
        "--path.procfs=/proc",
        "--path.cgroupfs=/nowhere/yet",
        "--compat.dcgm",
        "--no-sandbox",
    ]);
    assert_eq!(config.listen, "[::1]:0".parse().expect("an address"));
    assert_eq!((config.max_requests, config.client_timeout), (7, Duration::from_secs(2)));
    assert_eq!((config.services.len(), config.services[0].numa_node), (2, Some(1)));
    assert_eq!((config.reserve, config.gpu_reserve), (Some(4 << 30), 2 << 30));
    assert_eq!(config.maintenance.as_deref(), Some(Path::new("/run/planned")));
    assert_eq!((config.expect_gpus, config.nvml.off), (Some(8), false));
    assert_eq!(config.nvml.libraries, [Path::new("/a.so"), Path::new("/b.so")]);
    assert_eq!(config.nvml.release, Duration::from_secs(5));
    assert_eq!(config.xids.critical, [1, 2].into());
    assert_eq!(config.xids.warn, [3].into());
    assert_eq!((config.xids.window, config.kmsg), (Duration::from_secs(60), None));
    assert_eq!((config.rdma_required.len(), config.grace), (1, Duration::from_secs(9)));
    assert_eq!(config.intervals.of(Timer::Page), Duration::from_millis(200));
    let gpu = Timer::Collector(CollectorName::Gpu);
    assert_eq!(config.intervals.of(gpu), Duration::from_millis(100));
    assert_eq!(config.paths.cgroupfs, Path::new("/nowhere/yet"));
    assert!(config.compat_dcgm && !config.sandbox);
}

#[test]
fn a_file_says_the_same_and_the_command_line_wins() {
    let file = File::new(
        "exporter.toml",
        "listen = \"127.0.0.1:1\"\nexpect-gpus = 8\nno_kmsg = true\n\
         xid.critical = [1, 2]\ngrace = \"9s\"\n\
         web.max-requests = 3\n\
         [path]\nrootfs = \"/tmp\"\n[compat]\ndcgm = true\n[interval]\ngpu = \"100ms\"\n\
         page = \"300ms\"\n\
         [[service]]\nname = \"a\"\nlog = \"/var/log/a,b.log\"\nnode = 1\nstart_up = \"5m\"\n\
         [[service]]\nname = \"b\"\ntarget = \"150GB\"\n",
    );
    let from_file = config(&["--config", file.arg()]);
    assert_eq!(from_file.listen.port(), 1);
    assert_eq!((from_file.expect_gpus, from_file.max_requests), (Some(8), 3));
    assert_eq!(from_file.xids.critical, [1, 2].into());
    assert!(from_file.compat_dcgm && from_file.kmsg.is_none());
    assert_eq!(from_file.paths.rootfs, Path::new("/tmp"));
    let [a, b] = from_file.services.as_slice() else { panic!("{:?}", from_file.services) };
    assert_eq!(a.log, Some(LogSource::File("/var/log/a,b.log".into())));
    assert_eq!((a.numa_node, a.start_up), (Some(1), Duration::from_secs(300)));
    assert_eq!(b.target, Some(150_000_000_000));

    let both = config(&[
        "--config",
        file.arg(),
        "--listen=127.0.0.1:2",
        "--compat.dcgm=false",
        "--service=b,target=20GB",
        "--interval=gpu=1s",
    ]);
    assert_eq!((both.listen.port(), both.compat_dcgm), (2, false));
    assert_eq!(both.expect_gpus, Some(8), "what is not given again stays");
    let target = |name: &str| both.services.iter().find(|s| s.name == name).expect(name).target;
    assert_eq!((both.services.len(), target("a"), target("b")), (2, None, Some(20_000_000_000)));
    assert_eq!(both.intervals.of(Timer::Page), Duration::from_millis(300));
    let gpu = Timer::Collector(CollectorName::Gpu);
    assert_eq!(both.intervals.of(gpu), Duration::from_secs(1));
}

#[test]
fn a_wrong_file_is_named_with_the_key_and_what_would_work() {
    for (text, parts) in [
        ("expect_gpu = 8", ["expect-gpu", "no such flag", "expect-gpus"]),
        ("gpus.expected = 8", ["gpus.expected", "no such flag", "expect-gpus"]),
        ("listen = 9840 oops", ["not TOML", "oops", "line 1"]),
        ("service = \"a\"", ["service", "tables", "[[service]]"]),
        ("[[service]]\nunit = \"a.service\"", ["service", "lacks its name", "prefill-0"]),
        ("[[service]]\nname = \"a\"\nunits = \"b\"", ["a", "units=b", "keys are unit"]),
        ("interval = \"1s\"", ["interval", "table", "[interval]"]),
        ("[interval]\ngpu = [1]", ["interval", "write", "gpu = \"1s\""]),
        ("config = \"x\"", ["config", "belongs on", "command line"]),
        ("grace = \"9\"", ["--grace", "needs a unit", "9s"]),
        ("grace = {a = 1}", ["grace", "must be a string", "list"]),
    ] {
        let file = File::new("wrong.toml", text);
        let error = refused(&["--config", file.arg()]);
        for part in parts {
            assert!(error.contains(part), "{text:?}: {error:?} lacks {part:?}");
        }
    }
    let error = refused(&["--config=/nowhere.toml"]);
    assert!(error.contains("/nowhere.toml") && error.contains("name an existing"), "{error}");
}

#[test]
fn wrong_arguments_say_the_value_the_reason_and_what_would_work() {
    let many: Vec<String> = (0..65).map(|n| format!("--service=s{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (args, parts) in [
        (&["--listen=9840"][..], ["9840", "not ADDRESS:PORT", "127.0.0.1:9840"]),
        (&["--service=a", "--service=a"], ["--service a", "twice", "each its own"]),
        (&many, ["65 times", "at most 64", "leave out"]),
        (&["--expect-gpus=8", "--no-nvml"], ["--expect-gpus 8", "--no-nvml", "one of the two"]),
        (&["--compat.dcgm", "--no-nvml"], ["--compat.dcgm", "nothing", "one of the two"]),
        (&["--xid.critical=1", "--xid.warn=1"], ["--xid.warn 1", "has it too", "once"]),
        (&["--path.procfs=/no/proc"], ["--path.procfs /no/proc", "No such file", "mounted"]),
        (&["--path.rootfs=/etc/passwd"], ["/etc/passwd", "not a folder", "mounted"]),
        (&["--web.config.file=/no.yml"], ["--web.config.file /no.yml", "cannot read", "may read"]),
        (&["--web.client-timeout=0s"], ["0s", "that fast", "10s"]),
        (&["--reserve=8"], ["--reserve", "need a unit", "8GiB"]),
        (&["--interval=gpus=1s"], ["gpus", "there are", "gpu_slow"]),
        (&["--web.max-requests=0"], ["--web.max-requests", "0", "1..=10000"]),
    ] {
        let error = refused(args);
        for part in parts {
            assert!(error.contains(part), "{args:?}: {error:?} lacks {part:?}");
        }
    }
}

#[test]
fn the_help_names_every_flag_with_a_heading_and_the_units() {
    let mut command = Cli::command();
    for argument in command.get_arguments() {
        let long = argument.get_long().unwrap_or_default();
        if ["config", "check", "help", "version"].contains(&long) {
            continue;
        }
        assert!(argument.get_help_heading().is_some(), "--{long}");
    }
    let help = command.render_long_help().to_string();
    for word in ["/metrics", "/health", "target=", "150GB", "bcrypt", "gpu_static", "Examples"] {
        assert!(help.contains(word), "{word}");
    }
    for timer in Timer::all() {
        assert!(help.contains(timer.as_str()), "{}", timer.as_str());
    }
    for key in crate::config::SERVICE_KEYS {
        assert!(help.contains(&format!("{key}=")), "{key}");
    }
}
