//! What a real Alertmanager makes of the configuration: who is told, and which alerts are muted.
//!
//! The unit tests and replays ask `routing::pages`; here the program itself is asked, over every
//! moment of every story, so that the two cannot part.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use metric_catalog::alerts::routing::{self, Labels};
use serde_json::{Value, json};

use crate::stories::{self, Moment};
use crate::{assert_success, folder, scratch, tool};

/// How long it may take to start or to take alerts in, on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(60);

struct Alertmanager {
    child: Child,
    address: String,
    /// Reads its log until it ends.
    rest: Option<std::thread::JoinHandle<std::io::Result<u64>>>,
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing else to do with either error.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(self.rest.take().map(std::thread::JoinHandle::join));
    }
}

impl Alertmanager {
    /// With the committed configuration, on a port of its own.
    #[expect(clippy::zombie_processes, reason = "waited for when it is dropped")]
    fn start() -> Option<Self> {
        let mut child = tool("prometheus-alertmanager")?
            .arg(format!("--config.file={}", folder().join("alertmanager.yml").display()))
            .arg(format!("--storage.path={}", scratch("alertmanager").display()))
            .args(["--web.listen-address=127.0.0.1:0", "--cluster.listen-address="])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was found");
        let mut log = BufReader::new(child.stderr.take().expect("piped"));
        let (mut seen, mut line) = (String::new(), String::new());
        while log.read_line(&mut line).is_ok_and(|read| read > 0) {
            if line.contains("Listening on") {
                let (_, address) = line.split_once(" address=").expect("it says where");
                let address = address.trim().to_owned();
                // A program whose log nobody reads any more is ended by its next line.
                let rest =
                    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
                return Some(Self { child, address, rest: Some(rest) });
            }
            seen.push_str(&line);
            line.clear();
        }
        panic!("Alertmanager ended:\n{seen}");
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out that is not 0");
        let length = body.len();
        write!(
            stream,
            "{method} /api/v2{path} HTTP/1.0\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
        .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.split(' ').nth(1) == Some("200"), "{method} {path}: {answer}");
        serde_json::from_str(body).unwrap_or(Value::Null)
    }

    fn post(&self, alerts: &[Labels]) {
        let alerts: Vec<_> = alerts.iter().map(|labels| json!({"labels": labels})).collect();
        self.ask("POST", "/alerts", &Value::from(alerts).to_string());
    }

    /// Alerts of a cluster: their labels, and whether they are muted.
    fn of_cluster(&self, cluster: &str) -> Vec<(Labels, bool)> {
        let path = format!("/alerts?filter=cluster%3D%22{cluster}%22");
        let alerts = self.ask("GET", &path, "");
        let one = |alert: &Value| {
            let labels = alert["labels"].as_object().expect("an alert has labels");
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let labels = labels.iter().map(|(name, value)| (name.clone(), text(value))).collect();
            let muted = alert["status"]["inhibitedBy"].as_array().is_some_and(|by| !by.is_empty());
            (labels, muted)
        };
        alerts.as_array().expect("a list").iter().map(one).collect()
    }

    /// Takes in what was posted before: alerts are taken in order, and of these two the last one
    /// is muted once both are in.
    #[expect(clippy::disallowed_methods, reason = "a time-out of this test only")]
    fn settle(&self) {
        let labels = |name: &str, layer: &str, more: &[(&str, &str)]| -> Labels {
            let all = [("alertname", name), ("layer", layer), ("severity", "critical")];
            let all = all.iter().chain([&("cluster", "last"), &("node", "h")]).chain(more);
            all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let cause = labels("ServiceFailed", "node", &[("root_cause", "true")]);
        self.post(&[labels("NodeUnhealthy", "symptom", &[]), cause]);
        let started = Instant::now();
        while !self.of_cluster("last").iter().any(|(_, muted)| *muted) {
            assert!(started.elapsed() < PATIENCE, "it takes no alerts in");
            std::thread::yield_now();
        }
    }
}

/// The same alerts in another cluster, so that moments do not meet.
fn in_cluster(firing: &[Labels], cluster: &str) -> Vec<Labels> {
    let moved = |labels: &Labels| {
        let mut labels = labels.clone();
        labels.insert("cluster".to_owned(), cluster.to_owned());
        labels
    };
    firing.iter().map(moved).collect()
}

#[test]
fn it_mutes_what_the_stories_say() {
    let Some(server) = Alertmanager::start() else { return };
    let moments = stories::moments();
    assert!(moments.len() >= 12, "there are stories");
    let named = |index: usize| format!("c{index}");
    for (index, Moment { firing, .. }) in moments.iter().enumerate() {
        server.post(&in_cluster(firing, &named(index)));
    }
    server.settle();
    let mut pages = 0;
    for (index, Moment { story, at, firing }) in moments.iter().enumerate() {
        let firing = in_cluster(firing, &named(index));
        let told = server.of_cluster(&named(index));
        assert_eq!(told.len(), firing.len(), "{story} at {at}");
        for (labels, muted) in told {
            let expected = routing::is_muted(&labels, &firing);
            assert_eq!(muted, expected, "{story} at {at}: {labels:?}");
            pages += usize::from(!muted && labels["severity"] == "critical");
        }
    }
    println!("{} moments make {pages} pages", moments.len());
}

#[test]
fn configuration_and_its_examples_load() {
    let Some(mut amtool) = tool("amtool") else { return };
    let path = folder().join("alertmanager.yml");
    let text = std::fs::read_to_string(&path).expect("it is there");
    // The examples are comments; without their marks they must load as well.
    let used = scratch("alertmanager-examples").join("alertmanager.yml");
    std::fs::write(&used, text.replace("    # ", "    ")).expect("the folder can be written");
    let output = amtool.arg("check-config").args([&path, &used]).output().expect("it runs");
    assert_success("amtool check-config", &output);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.matches("SUCCESS").count(), 2, "{said}");
    assert_eq!(said.matches(" - 4 receivers").count(), 2, "{said}");
    assert_eq!(said.matches(" - 5 inhibit rules").count(), 2, "{said}");
}

/// The watchdog wakes nobody up and is told every minute; pages, tickets and notes go apart.
#[test]
fn each_kind_of_alert_has_its_receiver() {
    for (labels, receiver) in [
        (["alertname=Watchdog", "severity=none"], "deadman"),
        (["alertname=TargetDown", "severity=critical"], "pager"),
        (["alertname=QueueNearLimit", "severity=warning"], "tickets"),
        (["alertname=HostPoolThrashing", "severity=info"], "log"),
        (["alertname=Another", "severity=none"], "log"),
    ] {
        let Some(mut amtool) = tool("amtool") else { return };
        let config = format!("--config.file={}", folder().join("alertmanager.yml").display());
        let output = amtool.args(["config", "routes", "test", &config]).args(labels).output();
        let output = output.expect("it runs");
        assert_success("amtool config routes test", &output);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), receiver, "{labels:?}");
    }
}
