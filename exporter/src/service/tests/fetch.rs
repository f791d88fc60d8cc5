use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::run;
use crate::mocks::http::{Behaviour, Server};
use crate::service::fetch::{Answer, Client, FetchError};
use crate::slot::ErrorKind;

/// Longer than anything but a hang takes.
const DEADLINE: Duration = Duration::from_secs(2);

fn get_within(server: &Server, path: &str, deadline: Duration) -> Result<Answer, FetchError> {
    let url = server.url(path).parse().expect("a URL");
    run(async { Client::default().get(&url, deadline, 1_000).await })
}

fn get(server: &Server) -> Result<Answer, FetchError> {
    get_within(server, "/health?deep=1", DEADLINE)
}

#[test]
fn an_answer_is_a_status_and_a_bounded_body() {
    let server = Server::well("fine");
    let answer = Answer { status: 200, body: b"fine".to_vec(), cut: false };
    assert_eq!(get(&server).expect("an answer"), answer);
    let request = &server.requests()[0];
    assert!(request.starts_with("GET /health?deep=1 HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains("\r\nhost: 127.0.0.1:"), "{request}");
    for (length, cut) in [(1_000, false), (1_001, true), (100_000, true)] {
        server.set(Behaviour::Answer(503, "x".repeat(length)));
        let answer = get(&server).expect("an answer");
        assert_eq!((answer.status, answer.body.len(), answer.cut), (503, 1_000, cut));
    }
}

#[test]
fn redirects_are_told_and_not_followed() {
    let elsewhere = Server::well("here");
    let server = Server::start(Behaviour::Redirect(elsewhere.url("/")));
    assert_eq!(get(&server).expect("an answer").status, 302);
    assert!(elsewhere.requests().is_empty());
}

#[test]
fn what_never_answers_is_given_up() {
    let short = Duration::from_millis(200);
    for behaviour in [Behaviour::Hang, Behaviour::HangInBody] {
        let server = Server::start(behaviour);
        let begun = Instant::now();
        let result = get_within(&server, "/", short);
        assert!(matches!(result, Err(FetchError::Timeout(_))), "{result:?}");
        assert!((short..DEADLINE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
}

#[test]
fn what_closes_or_is_no_http_is_an_error_with_a_name() {
    let server = Server::start(Behaviour::Close);
    let kind = |server: &Server| get(server).expect_err("no answer").kind();
    assert_eq!(kind(&server), ErrorKind::Protocol);
    let cut = b"HTTP/1.1 200 x\r\nContent-Length: 9\r\n\r\nhalf".to_vec();
    let long = format!("HTTP/1.1 200 x\r\nX: {}\r\n\r\n", "y".repeat(100_000)).into_bytes();
    for bytes in [b"SSH-2.0-x\r\n".to_vec(), vec![0; 5_000], cut, long] {
        server.set(Behaviour::Raw(bytes));
        assert_eq!(kind(&server), ErrorKind::Protocol);
    }
    let nobody = {
        let closed = Server::well("");
        closed.url("/").parse().expect("a URL")
    };
    // The port is free again once its server has ended.
    let refused = || run(async { Client::default().get(&nobody, DEADLINE, 10).await });
    let gone = (0..200).find_map(|_| refused().err()).expect("it ends");
    assert!(matches!(gone.kind(), ErrorKind::Gone | ErrorKind::Protocol), "{gone}");
}

#[test]
fn encryption_needs_an_authority() {
    let server = Server::well("fine");
    let url = server.url("/").replace("http:", "https:").parse().expect("a URL");
    let error = run(async { Client::default().get(&url, DEADLINE, 10).await });
    let error = error.expect_err("nobody is trusted");
    assert!(error.to_string().contains("CA certificates"), "{error}");
}

fn file(name: &str) -> String {
    format!("{}/tests/data/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn certificates(name: &str) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_file_iter(file(name)).expect("a file of certificates");
    all.map(|one| one.expect("a certificate")).collect()
}

/// A server that answers one encrypted request, as `localhost` and 127.0.0.1.
fn encrypted(address: &str) -> SocketAddr {
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(certificates("server.pem"), key)
        .expect("they belong together");
    let listener = TcpListener::bind(address).expect("a port");
    let bound = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let session = ServerConnection::new(Arc::new(config)).expect("a session");
        let mut stream = StreamOwned::new(session, stream);
        let mut head = [0; 1024];
        // Whoever does not trust it says so and closes.
        if stream.read(&mut head).is_ok() {
            drop(stream.write_all(b"HTTP/1.1 200 x\r\nContent-Length: 6\r\n\r\nsecret"));
        }
    });
    bound
}

#[test]
fn encrypted_answers_are_read_from_whom_an_authority_vouches_for() {
    let get = |client: &Client, host: &str, address: SocketAddr| {
        let url = format!("https://{host}:{}/health", address.port()).parse().expect("a URL");
        run(async { client.get(&url, DEADLINE, 1_000).await })
    };
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(certificates("ca.pem"));
    let client = Client::new(trusted);
    let answer = get(&client, "127.0.0.1", encrypted("127.0.0.1:0")).expect("an answer");
    assert_eq!((answer.status, answer.body), (200, b"secret".to_vec()));
    // Somebody else's authority; another name than the certificate's.
    let mut others = RootCertStore::empty();
    others.add_parsable_certificates(certificates("server.pem"));
    for (client, host, address) in [
        (&Client::new(others), "127.0.0.1", encrypted("127.0.0.1:0")),
        (&client, "127.0.0.2", encrypted("127.0.0.2:0")),
    ] {
        let error = get(client, host, address).expect_err("not to be trusted");
        assert!(matches!(error, FetchError::Tls(_)), "{host}: {error}");
    }
}
