//! Who may connect to whom, and what is said to those who may not.

use super::workers::{Decode, Prefill, at, options, until};
use crate::NotOffered;
use crate::tcp::{LinkOptions, Secret, TlsFiles};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn secret(text: &str) -> Option<Secret> {
    let path = std::env::temp_dir().join(format!("link-{text}-{}", std::process::id()));
    fs::write(&path, format!("a secret that is called {text}")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let secret = Secret::read(&path).unwrap();
    fs::remove_file(path).unwrap();
    Some(secret)
}

fn file(name: &str) -> Option<PathBuf> {
    Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name))
}

fn identity(name: &str, ca: Option<&str>) -> TlsFiles {
    let (cert, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
    TlsFiles { cert, key, ca: ca.and_then(file) }
}

fn with(change: impl FnOnce(&mut LinkOptions)) -> LinkOptions {
    let mut options = options("decode:1");
    change(&mut options);
    options
}

/// Both work together.
async fn accepted(prefill: LinkOptions, decode: LinkOptions) {
    let prefill = Prefill::start(prefill, 0).await.unwrap();
    let peer = at("prefill:1", prefill.address());
    let decode = Decode::start(decode, std::slice::from_ref(&peer)).unwrap();
    assert_eq!(decode.transfer(&peer.name, 5, 100, 0).await, Ok(()));
    until("both are at rest", || decode.at_rest() && prefill.at_rest()).await;
}

/// They do not, and the decode worker can say why with all of `words`. Nothing is left of it.
async fn refused(prefill: LinkOptions, decode: LinkOptions, words: &[&str]) {
    let prefill = Prefill::start(prefill, 0).await.unwrap();
    let peer = at("prefill:1", prefill.address());
    let decode = Decode::start(decode, std::slice::from_ref(&peer)).unwrap();
    let failed = decode.transfer(&peer.name, 5, 100, 0).await;
    assert_eq!(failed, Err(NotOffered::Failed(crate::Failure::Connect)));
    let (up, trouble) = decode.peer(&peer.name);
    assert!(!up && words.iter().all(|word| trouble.contains(word)), "{words:?}: {trouble:?}");
    assert!(decode.at_rest() && prefill.at_rest() && prefill.ledger.ends().is_empty());
    assert!(prefill.server.snapshot().peers.iter().all(|peer| !peer.up));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_must_be_the_same_on_both_sides() {
    let none = || options("decode:1");
    let own = |text: &str| with(|options| options.secret = secret(text));
    accepted(own("right"), own("right")).await;
    refused(own("right"), own("wrong"), &["secret", "another one", "--pd-secret-file"]).await;
    let prefill_only = ["the prefill worker has one", "the decode worker has none"];
    refused(own("right"), none(), &prefill_only).await;
    let decode_only = ["the prefill worker has none", "the decode worker has one"];
    refused(none(), own("right"), &decode_only).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_checked_on_both_sides() {
    let tls = |files: TlsFiles| with(|options| options.tls = files);
    let ca = |name: &str| TlsFiles { ca: file(name), ..TlsFiles::default() };
    // The listener alone shows who it is, then both.
    accepted(tls(identity("worker", None)), tls(ca("authority.pem"))).await;
    let both = || tls(identity("worker", Some("authority.pem")));
    accepted(both(), both()).await;
    let both_and_secret = || {
        let mut options = both();
        options.secret = secret("tls");
        options
    };
    accepted(both_and_secret(), both_and_secret()).await;
    // Signed by another authority: the listener's, then the dialer's.
    refused(tls(identity("stranger", None)), tls(ca("authority.pem")), &["TLS", "Unknown"]).await;
    let stranger = tls(identity("stranger", Some("authority.pem")));
    refused(both(), stranger, &["127.0.0.1"]).await;
    refused(both(), tls(ca("authority.pem")), &["127.0.0.1"]).await;
    // TLS on one side only.
    refused(both(), options("decode:1"), &["127.0.0.1"]).await;
    refused(options("prefill"), both(), &["TLS"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_with_both_values() {
    let decode = with(|options| options.shape.model = "model-b".to_owned());
    refused(options("prefill"), decode, &["model-a", "model-b"]).await;
    let decode = with(|options| options.shape.page_tokens = 32);
    refused(options("prefill"), decode, &["16", "32"]).await;
    let decode = with(|options| options.shape.kv_dtype = "bf16".to_owned());
    refused(options("prefill"), decode, &["f32", "bf16"]).await;
    let decode = with(|options| options.shape.parts[2].layer_bytes = 4096);
    refused(options("prefill"), decode, &["swa", "20480", "4096"]).await;
}
