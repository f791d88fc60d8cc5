use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use super::mock::{Asked, Mock, Reply};
use super::*;

fn run<T>(future: impl Future<Output = Result<T, ClientError>>) -> Result<T, String> {
    block_on(future).expect("a runtime").map_err(|error| error.to_string())
}

fn client(mock: &Mock) -> Prometheus {
    Prometheus::new(&mock.url()).expect("valid")
}

fn success(data: serde_json::Value) -> Reply {
    Reply::json(200, json!({"status": "success", "data": data}))
}

/// Answers as documented, by path.
fn answer(asked: &Asked) -> Reply {
    let labels = json!({"__name__": "up", "job": "a"});
    match asked.path.split('?').next().unwrap_or_default() {
        "/api/v1/status/buildinfo" => success(json!({"version": "2.42.0", "revision": "x"})),
        "/api/v1/query" if asked.body.contains("scalar") => {
            success(json!({"resultType": "scalar", "result": [5, "NaN"]}))
        }
        "/api/v1/query" => success(json!({"resultType": "vector", "result": [
            {"metric": labels, "value": [5.5, "+Inf"]},
        ]})),
        "/api/v1/query_range" => success(json!({"resultType": "matrix", "result": [
            {"metric": labels, "values": [[1, "1"], [2, "-2.5e3"]]},
            {"metric": {}, "histograms": [[1, {"count": "1"}]]},
        ]})),
        "/api/v1/series" => success(json!([labels])),
        "/api/v1/label/job/values" => success(json!(["a", "b"])),
        "/api/v1/metadata" => success(json!({"up": [{"type": "gauge", "help": "h", "unit": ""}]})),
        "/api/v1/targets" => success(json!({"activeTargets": [{
            "labels": {"job": "a"}, "scrapePool": "a", "scrapeUrl": "http://x/metrics",
            "health": "down", "lastError": "refused", "scrapeInterval": "15s",
        }], "droppedTargets": []})),
        "/api/v1/rules" => success(json!({"groups": [{"name": "g", "rules": [
            {"name": "A", "type": "alerting", "health": "ok", "query": "up == 0"},
        ]}]})),
        _ => Reply::Of(404, Vec::new(), "404 page not found".to_owned()),
    }
}

#[test]
fn every_question_is_asked_and_read_on_one_connection() {
    let mock = Mock::start(answer);
    let prometheus = client(&mock);
    let all = async {
        assert_eq!(prometheus.build_info().await?.version, "2.42.0");
        let samples = prometheus.query("up{job=~\"a|b\"}", Some(5.5)).await?;
        assert_eq!((samples.len(), samples[0].value, samples[0].at), (1, f64::INFINITY, 5.5));
        assert!(prometheus.query("scalar(up)", None).await?[0].value.is_nan());
        let range = Range { start: 1.0, end: 2.0, step: 0.25 };
        let series = prometheus.query_range("up", range).await?;
        assert_eq!(series[0].points, [(1.0, 1.0), (2.0, -2500.0)]);
        assert_eq!((series[1].points.len(), series[1].histograms), (0, 1));
        assert_eq!(prometheus.series(&["up", "x"], 1.0, 2.0).await?[0]["job"], "a");
        assert_eq!(prometheus.label_values("job", &["up"], 1.0, 2.0).await?, ["a", "b"]);
        assert_eq!(prometheus.metadata().await?["up"][0].kind, "gauge");
        let target = prometheus.targets().await?.active.remove(0);
        assert_eq!(
            (&*target.health, &*target.interval, &*target.error),
            ("down", "15s", "refused")
        );
        assert_eq!(prometheus.rules().await?[0].rules[0].name, "A");
        Ok(())
    };
    run(all).expect("answers");
    let asked = mock.asked();
    let line = |at: usize| format!("{} {} {}", asked[at].method, asked[at].path, asked[at].body);
    assert_eq!(line(1), "POST /api/v1/query query=up%7Bjob%3D~%22a%7Cb%22%7D&time=5.5");
    assert_eq!(line(3), "POST /api/v1/query_range query=up&start=1&end=2&step=0.25");
    assert_eq!(line(5), "GET /api/v1/label/job/values?start=1&end=2&match%5B%5D=up ");
    assert_eq!(mock.connections(), 1);
}

#[test]
fn credentials_and_the_path_before_the_api_are_sent() {
    let mock = Mock::start(|asked| {
        assert_eq!(asked.path, "/prom/api/v1/query");
        match asked.header("authorization") {
            Some("Basic bWU6c2VjcmV0") => success(json!({"resultType": "vector", "result": []})),
            _ => Reply::Of(401, Vec::new(), "who are you".to_owned()),
        }
    });
    let url = |user: &str| format!("{}/prom/", mock.url().replace("//", &format!("//{user}")));
    let ask = |user| {
        let prometheus = Prometheus::new(&url(user)).expect("valid");
        run(async move { prometheus.query("up", None).await })
    };
    assert_eq!(ask("me:secret@"), Ok(Vec::new()));
    for user in ["", "me:wrong@"] {
        let error = ask(user).expect_err("401");
        assert!(error.contains("HTTP 401 (who are you)") && error.contains("--user"), "{error}");
        assert!(!error.contains("wrong"), "{error}");
    }
}

#[test]
fn only_get_is_fine_too() {
    let mock = Mock::start(|asked| match (&*asked.method, &*asked.path) {
        ("GET", "/api/v1/query?query=up") => success(json!({"resultType": "vector", "result": []})),
        _ => Reply::Of(405, Vec::new(), String::new()),
    });
    assert_eq!(run(client(&mock).query("up", None)), Ok(Vec::new()));
}

#[test]
fn every_failure_says_what_was_asked_what_came_and_what_would_work() {
    let redirect = vec![("Location", "https://sso.example/".to_owned())];
    let refused = json!({"status": "error", "errorType": "bad_data", "error": "1:3: parse error"});
    for (reply, words) in [
        (Reply::json(400, refused), vec!["bad_data", "1:3: parse error"]),
        (
            Reply::json(404, "404 page not found"),
            vec!["HTTP 404", "page not found", "/api/v1/query"],
        ),
        (Reply::json(403, ""), vec!["HTTP 403", "credentials"]),
        (Reply::Of(302, redirect, String::new()), vec!["HTTP 302", "https://sso.example/"]),
        (Reply::json(503, "busy"), vec!["HTTP 503 (busy)", "try again"]),
        (Reply::json(500, "<html>"), vec!["HTTP 500 (<html>)"]),
        (Reply::json(200, "<html>\n hello"), vec!["not the answer of Prometheus", "<html> hello"]),
        (Reply::json(200, json!({"a": 1})), vec!["no data in it"]),
        (success(json!({"resultType": "matrix", "result": []})), vec!["no vector"]),
        (Reply::Raw(b"SSH-2.0-x\r\n"), vec!["an HTTP server"]),
        (Reply::Raw(b"HTTP/1.1 200 x\r\nContent-Length: 9\r\n\r\nhalf"), vec!["an HTTP server"]),
        (Reply::Raw(b""), vec!["an HTTP server"]),
    ] {
        let shown = format!("{reply:?}");
        let mock = Mock::start(move |_| reply.clone());
        let error = run(client(&mock).query("up", None)).expect_err(&shown);
        let asked = format!("{}/api/v1/query: ", mock.url());
        assert!(error.starts_with(&asked), "{error}");
        for word in words {
            assert!(error.contains(word), "{shown}: {error}");
        }
    }
}

#[test]
fn time_and_size_have_bounds_and_nobody_at_home_is_told() {
    let mock = Mock::start(|asked| match asked.method.as_str() {
        "GET" => success(json!({"version": "x".repeat(1_000)})),
        _ => Reply::Nothing,
    });
    let bounds = Bounds { timeout: Duration::from_millis(200), bytes_max: 1_000 };
    let prometheus = Prometheus::with(&mock.url(), &Access::default(), bounds).expect("valid");
    let error = run(prometheus.build_info()).expect_err("too large");
    assert!(error.contains("more than 1000 bytes"), "{error}");
    let error = run(prometheus.query("up", None)).expect_err("too slow");
    assert!(error.contains("no whole answer within"), "{error}");
    drop(mock);
    let error = run(prometheus.build_info()).expect_err("closed");
    assert!(error.contains("no connection") && error.contains("is it running"), "{error}");
}

#[test]
fn a_connection_that_was_closed_meanwhile_is_made_anew() {
    let mock = Mock::start(|_| {
        Reply::Raw(
            b"HTTP/1.1 200 x\r\nContent-Length: 45\r\n\r\n\
              {\"status\":\"success\",\"data\":{\"version\":\"1.2\"}} ",
        )
    });
    let prometheus = client(&mock);
    let twice = async {
        prometheus.build_info().await?;
        prometheus.build_info().await
    };
    assert_eq!(run(twice).map(|info| info.version), Ok("1.2".to_owned()));
    assert_eq!(mock.connections(), 2);
}

/// Certificates of a `localhost` and of the authority that signed it.
fn tls(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../exporter/tests/data/tls")).join(name)
}

/// The URL of a server that answers one encrypted request.
fn encrypted() -> String {
    let key = PrivateKeyDer::from_pem_file(tls("server.key")).expect("a key");
    let certificate = CertificateDer::from_pem_file(tls("server.pem")).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let session = ServerConnection::new(Arc::new(config)).expect("a session");
        let mut stream = StreamOwned::new(session, stream);
        let body = r#"{"status":"success","data":{"version":"3.5.0"}}"#;
        let answer = format!("HTTP/1.1 200 x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        // Whoever does not trust it says so and closes.
        if stream.read(&mut [0; 1024]).is_ok() {
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    format!("https://{address}")
}

#[test]
fn encrypted_servers_are_asked_when_an_authority_vouches_for_them() {
    let ask = |name: &str| {
        let access = Access { ca_file: Some(tls(name)), ..Access::default() };
        let prometheus = Prometheus::with(&encrypted(), &access, Bounds::default());
        let prometheus = prometheus.map_err(|error| error.to_string())?;
        run(async move { prometheus.build_info().await }).map(|info| info.version)
    };
    assert_eq!(ask("ca.pem"), Ok("3.5.0".to_owned()));
    let error = ask("client.pem").expect_err("signed by another");
    assert!(error.contains("TLS: ") && error.contains("--ca-file"), "{error}");
    let error = ask("server.key").expect_err("no certificate in it");
    assert!(error.contains("no certificate in it"), "{error}");
}
