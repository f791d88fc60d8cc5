//! The file of `--web.config.file`: TLS, certificates of clients, passwords, and changes of it
//! while the program runs.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::harness::{Answer, Exporter, Folder, eventually, try_exchange};

/// `anna:one` and `anna:two` with the least cost there is, and one that costs a while.
const ONE: &str = "YW5uYTpvbmU=";
const TWO: &str = "YW5uYTp0d28=";

fn data(name: &str) -> String {
    format!("{}/tests/data/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn users(password: &str, cost: u32) -> String {
    let hash = bcrypt::hash(password, cost).expect("hashes");
    format!("basic_auth_users:\n  anna: {hash}\n")
}

fn tls_section(more: &str) -> String {
    let (cert, key) = (data("server.pem"), data("server.key"));
    format!("tls_server_config:\n  cert_file: {cert}\n  key_file: {key}\n{more}")
}

fn start(folder: &Folder, text: &str, args: &[&str]) -> Exporter {
    let file = folder.write("web.yml", text).display().to_string();
    let fast = ["--no-nvml", "--interval=web_config=20ms", "--interval=page=20ms"];
    let mut all = vec!["--web.config.file", &file];
    all.extend(fast.iter().chain(args));
    Exporter::start(&all)
}

/// A client that trusts the CA of these tests; with or without a certificate of its own.
fn client(certified: bool, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(data("ca.pem")).expect("a certificate");
    roots.add(ca).expect("it is one of a CA");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("the version is known")
        .with_root_certificates(roots);
    Arc::new(if certified {
        let own = CertificateDer::from_pem_file(data("client.pem")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(data("client.key")).expect("a key");
        builder.with_client_auth_cert(vec![own], key).expect("they belong together")
    } else {
        builder.with_no_client_auth()
    })
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A connection over TLS, once the client's side has agreed on it.
fn connect(exporter: &Exporter, config: &Arc<ClientConfig>) -> io::Result<Stream> {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut connection = ClientConnection::new(Arc::clone(config), name).expect("it is valid");
    let mut socket: TcpStream = exporter.connect();
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(connection, socket))
}

/// Asks over TLS. With TLS 1.3 a client learns only while it reads that it is not let in.
fn ask(exporter: &Exporter, config: &Arc<ClientConfig>, path: &str) -> io::Result<Answer> {
    let mut stream = connect(exporter, config)?;
    try_exchange(&mut stream, "GET", path, &[]).map(|bytes| Answer::parse(&bytes))
}

/// The client was not let in, and told why: unless the end of the connection overtook the reason.
fn assert_refused(result: io::Result<Answer>, why: &str) {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    let error = result.expect_err("it must not be let in");
    let cut = [BrokenPipe, ConnectionReset].contains(&error.kind());
    assert!(cut || error.to_string().contains(why), "{error:?}");
}

#[test]
fn connections_are_encrypted_with_the_versions_asked_for() {
    let folder = Folder::new();
    let exporter = start(&folder, &tls_section("  min_version: TLS13\n"), &[]);
    let new = client(false, &rustls::version::TLS13);
    assert_eq!(ask(&exporter, &new, "/metrics").expect("they agree").status, 200);
    let old = client(false, &rustls::version::TLS12);
    assert_refused(ask(&exporter, &old, "/metrics"), "ProtocolVersion");
    // Without encryption there is no page: an alert at most, and the end.
    match try_exchange(&mut exporter.connect(), "GET", "/metrics", &[]) {
        Ok(bytes) => assert!(!bytes.windows(5).any(|part| part == b"HTTP/"), "{bytes:?}"),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
    }

    let both = start(&folder, &tls_section(""), &[]);
    for config in [&new, &old] {
        assert_eq!(ask(&both, config, "/livez").expect("they agree").status, 200);
    }
}

/// TLS for those who show a certificate of the CA.
fn certified_section() -> String {
    let kind = "  client_auth_type: RequireAndVerifyClientCert\n";
    tls_section(&format!("  client_ca_file: {}\n{kind}", data("ca.pem")))
}

#[test]
fn clients_show_a_certificate_where_one_is_asked_for() {
    let folder = Folder::new();
    let exporter = start(&folder, &certified_section(), &[]);
    let version = &rustls::version::TLS13;
    let refused = ask(&exporter, &client(false, version), "/metrics");
    assert_refused(refused, "CertificateRequired");
    let answer = ask(&exporter, &client(true, version), "/metrics");
    assert_eq!(answer.expect("let in").status, 200);
}

#[test]
fn a_change_of_tls_ends_connections_that_are_open() {
    let folder = Folder::new();
    let exporter = start(&folder, &tls_section(""), &[]);
    let bare = client(false, &rustls::version::TLS13);
    let mut open = connect(&exporter, &bare).expect("they agree");
    open.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut answer = Vec::new();
    while !answer.ends_with(b"alive\n") {
        let mut bytes = [0; 1024];
        let read = open.read(&mut bytes).expect("it answers");
        assert!(read > 0, "it is kept open: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&bytes[..read]);
    }
    folder.write("web.yml", &certified_section());
    // It waits for the end, and fails when there is none.
    let end = open.read(&mut [0; 1]);
    assert_eq!(end.expect("it is closed in order"), 0, "{}", exporter.log());
    assert_refused(ask(&exporter, &bare, "/livez"), "CertificateRequired");
    let known = client(true, &rustls::version::TLS13);
    assert_eq!(ask(&exporter, &known, "/livez").expect("let in").status, 200);
}

#[test]
fn a_changed_file_is_used_and_a_broken_one_is_not() {
    let folder = Folder::new();
    let exporter = start(&folder, &users("one", 4), &[]);
    let get = |path: &str, credentials: &str| {
        let header = format!("Basic {credentials}");
        exporter.request("GET", path, &[("Authorization", &header)])
    };
    assert_eq!(exporter.get("/metrics").status, 401);
    assert_eq!((get("/metrics", ONE).status, get("/metrics", TWO).status), (200, 401));

    let headers = "http_server_config:\n  headers:\n    X-Frame-Options: deny\n";
    folder.write("web.yml", &format!("{}{headers}", users("two", 4)));
    assert!(eventually(|| get("/metrics", TWO).status == 200), "{}", exporter.log());
    assert_eq!(get("/metrics", ONE).status, 401, "what was right is forgotten");
    assert_eq!(get("/metrics", TWO).headers["x-frame-options"], "deny");

    folder.write("web.yml", "basic_auth_user:\n  anna: one\n");
    let failed =
        |text: &str| text.contains("sightline_node_collector_success{collector=\"web_config\"} 0");
    assert!(eventually(|| failed(&get("/metrics", TWO).body)), "{}", exporter.log());
    assert_eq!(exporter.get("/metrics").status, 401, "nobody is let in by mistake");
    let health = get("/health", TWO).json();
    let check = health["checks"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|check| check["check"] == "collector_fresh" && check["scope"] == "web_config");
    let reason = check.map(|check| check["reason"].to_string()).unwrap_or_default();
    assert!(reason.contains("basic_auth_user") && reason.contains("keys are"), "{health}");
    assert!(exporter.log().contains("basic_auth_user"), "{}", exporter.log());

    folder.write("web.yml", &users("one", 4));
    assert!(eventually(|| get("/metrics", ONE).status == 200), "{}", exporter.log());
    assert!(eventually(|| !failed(&get("/metrics", ONE).body)));
}

#[test]
fn guessing_does_not_hold_up_who_knows_the_password() {
    let folder = Folder::new();
    // A check takes long here (about a second in a build that is not optimised).
    let exporter = start(&folder, &users("one", 8), &[]);
    let right = [("Authorization", "Basic YW5uYTpvbmU=")];
    assert_eq!(exporter.request("GET", "/metrics", &right).status, 200);
    let head = "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YW5uYTp0d28=\r\n\r\n";
    let guesses: Vec<TcpStream> = (0..30)
        .map(|_| {
            let mut stream = exporter.connect();
            stream.write_all(head.as_bytes()).expect("it reads");
            stream
        })
        .collect();
    let first = exporter.request("GET", "/metrics", &right);
    assert_eq!(first.status, 200);
    let health = exporter.request("GET", "/livez", &right);
    assert_eq!(health.status, 200);
    // The guesses are answered too: refused, or told to come again.
    for mut stream in guesses {
        let mut bytes = vec![0; 1024];
        let read = stream.read(&mut bytes).expect("it answers");
        let status = Answer::parse(&bytes[..read]).status;
        assert!(status == 401 || status == 503, "{status}");
    }
}

#[test]
fn cards_are_released_only_for_who_is_known() {
    let folder = Folder::new();
    let exporter = start(&folder, &users("one", 4), &[]);
    assert_eq!(exporter.request("POST", "/-/release", &[]).status, 401);
    let right = [("Authorization", "Basic YW5uYTpvbmU=")];
    assert_eq!(exporter.request("POST", "/-/release", &right).status, 409);
}
