use super::*;

const HASH: &str = "$2b$04$abcdefghijklmnopqrstuuQ6d0JW3wMzjRJ0iQpQ3BEVmT3KM9qHi";

/// The folder of the certificates of these tests.
fn tls(name: &str) -> String {
    format!("{}/tests/data/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn read(text: &str) -> Result<WebConfig, WebConfigError> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("sightline-web-{}-{next}.yml", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).expect("the temporary folder is writable");
    let config = WebConfig::read(&path);
    std::fs::remove_file(path).expect("it was written");
    config
}

fn server() -> String {
    format!("  cert_file: {}\n  key_file: {}\n", tls("server.pem"), tls("server.key"))
}

#[test]
fn an_empty_file_asks_for_nothing() {
    for text in ["", "\n", "# later\n", "tls_server_config: {}\n", "basic_auth_users:\n"] {
        let config = read(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert!(config.tls.is_none() && config.users.is_empty() && config.headers.is_empty());
    }
}

#[test]
fn a_whole_file_is_read_as_prometheus_reads_it() {
    let ca = tls("ca.pem");
    let config = read(&format!(
        "tls_server_config:\n{}  client_ca_file: {ca}\n  client_auth_type: \
         RequireAndVerifyClientCert\n  min_version: TLS13\n  prefer_server_cipher_suites: true\n\
         http_server_config:\n  http2: true\n  headers:\n    X-Frame-Options: deny\n    \
         Strict-Transport-Security: max-age=3600\nbasic_auth_users:\n  anna: \
         {HASH}\n  \"1\": {HASH}\n",
        server()
    ))
    .expect("the file is good");
    assert!(config.tls.is_some());
    assert_eq!(config.users.keys().collect::<Vec<_>>(), ["1", "anna"]);
    assert_eq!(config.headers.len(), 2);
    assert_eq!(config.files.len(), 4, "every file is watched: {:?}", config.files);
}

#[test]
fn whatever_cannot_be_had_is_an_error_with_a_way_out() {
    let with = |more: &str| format!("tls_server_config:\n{}{more}", server());
    let auth = |kind: &str| with(&format!("  client_auth_type: {kind}\n"));
    let ca = tls("ca.pem");
    let cert_only = format!("tls_server_config:\n  cert_file: {}\n", tls("server.pem"));
    let other_key = with("").replace("server.key", "other.key");
    let no_cert = with("").replace("server.pem", "server.key");
    let no_key = with("").replace("server.key", "server.pem");
    for (text, parts) in [
        ("tls_config: {}\n".to_owned(), ["tls_config", "unknown", "tls_server_config"]),
        ("rate_limit: {}\n".to_owned(), ["rate_limit", "unknown", "keys are"]),
        (with("  insecure: true\n"), ["insecure", "unknown", "keys are"]),
        ("- a\n".to_owned(), ["", "", "keys are"]),
        (with("  min_version: TLS10\n"), ["min_version", "TLS10", "TLS12 or TLS13"]),
        (with("  min_version: TLS13\n  max_version: TLS12\n"), ["newer", "max", "leave"]),
        (with("  cipher_suites: [A]\n"), ["cipher_suites", "chosen", "leave it out"]),
        (with("  curve_preferences: [A]\n"), ["curve_preferences", "chosen", "leave it out"]),
        (with("  client_allowed_sans: [a]\n"), ["allowed_sans", "chosen", "leave it out"]),
        (with("  prefer_server_cipher_suites: false\n"), ["prefer", "chooses", "leave"]),
        (with("  cert: x\n"), ["cert", "twice", "the file or the text"]),
        (auth("RequireAnyClientCert"), ["RequireAny", "whoever", "RequireAndVerify"]),
        (auth("Whatever"), ["client_auth_type", "Whatever", "RequireAndVerify"]),
        (auth("RequireAndVerifyClientCert"), ["client_auth_type", "needs a CA", "client_ca_file"]),
        (with(&format!("  client_ca_file: {ca}\n")), ["client_ca", "nobody is asked", "add"]),
        (cert_only, ["tls_server_config", "needs its key", "key_file"]),
        (other_key, ["key_file", "", "belongs to the first"]),
        (no_cert, ["cert_file", "holds no", "PEM file of certificates"]),
        (no_key, ["key_file", "holds no", "unencrypted PEM"]),
        (with("").replace("server.pem", "gone.pem"), ["gone.pem", "No such file", "may read"]),
        ("basic_auth_users: {anna: secret}\n".to_owned(), ["anna", "no bcrypt", "htpasswd"]),
        (
            format!("basic_auth_users: {{anna: {}}}\n", HASH.replace("$04$", "$20$")),
            ["cost 20", "too long", "10 to 14"],
        ),
        (format!("basic_auth_users: {{\"a:b\": {HASH}}}\n"), ["a:b", "colon", "another"]),
        (
            "http_server_config: {headers: {Set-Cookie: a}}\n".to_owned(),
            ["Set-Cookie", "cannot be set", "x-frame-options"],
        ),
    ] {
        let error = read(&text).map(|_| ()).expect_err(&text);
        let said = format!("{error}; {}", error.fix());
        for part in parts {
            assert!(said.contains(part), "{text}: {said:?} lacks {part:?}");
        }
        assert!(!said.contains("secret"), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn it_is_outdated_when_any_of_its_files_changes() {
    let name = format!("sightline-outdated-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("writable");
    for name in ["server.pem", "server.key"] {
        std::fs::copy(tls(name), folder.join(name)).expect("copies");
    }
    let path = folder.join("web.yml");
    let text = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";
    std::fs::write(&path, text).expect("writable");
    let config = WebConfig::read(&path).expect("paths are relative to the file");
    assert!(!config.is_outdated());
    let later = SystemTime::now() + std::time::Duration::from_secs(2);
    let key = std::fs::File::options().write(true).open(folder.join("server.key")).expect("there");
    key.set_modified(later).expect("ours");
    assert!(config.is_outdated());
    assert!(!WebConfig::read(&path).expect("good").is_outdated());
    std::fs::remove_file(&path).expect("there");
    assert!(config.is_outdated());
    std::fs::remove_dir_all(folder).expect("there");
}
