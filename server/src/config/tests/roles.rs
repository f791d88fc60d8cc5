//! Flags about prefill and decode apart.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;
use crate::cli::Role;

/// A file in the temporary folder, gone when dropped.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("sightline-roles-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("the temporary folder is writable");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("it is ours");
        Self(path)
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn outcome(flags: &str) -> Result<Resolved, Findings> {
    resolved(flags, host(8 * GIB))
}

/// What is wrong with these flags, by id, flag and value.
fn wrong(flags: &str, id: &str, flag: &str, value: &str) -> Finding {
    let first = finding(flags, host(8 * GIB));
    assert_eq!((first.id, first.flag, first.value.as_str()), (id, flag, value), "{first}");
    first
}

fn works(flags: &str) -> Resolved {
    let resolved = outcome(flags).unwrap_or_else(|found| panic!("{flags}: {found}"));
    assert!(resolved.advice.is_empty(), "{flags}: {}", resolved.advice);
    resolved
}

const DECODE: &str = "--role decode --port 8002 --prefill-peer 127.0.0.1:8001";

#[test]
fn peers_fit_the_role_and_each_other() {
    let found = wrong("--prefill-peer a:1", "PD001", "--prefill-peer", "a:1");
    works(&format!("--prefill-peer a:1 {}", found.fix));
    let found = wrong("--role prefill --prefill-peer a:1", "PD001", "--prefill-peer", "a:1");
    assert_eq!(found.fix, "no --prefill-peer");
    works("--role prefill");
    let found = wrong("--decode-peer a:1,b:2", "PD002", "--decode-peer", "a:1,b:2");
    works(&format!("--decode-peer a:1,b:2 {}", found.fix));
    wrong(&format!("{DECODE} --decode-peer a:1"), "PD002", "--decode-peer", "a:1");
    for port in [8000, 8001] {
        let flags = format!("--role decode --port {port}");
        let found = wrong(&flags, "PD003", "--role", "decode");
        works(&format!("{flags} {}", found.fix.split(',').next().expect("a fix")));
    }
    for own in ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"] {
        let flags = "--role decode --port 8002 --prefill-peer";
        let peer = format!("{}:8002", own.to_lowercase());
        let found = wrong(&format!("{flags} {own}:8002"), "PD007", "--prefill-peer", &peer);
        let fix = found.fix.split(',').next().expect("a fix");
        works(&format!("--role decode --port 8002 {fix}"));
    }
    wrong(
        "--role prefill --advertise n7:8001 --decode-peer n7:8001",
        "PD007",
        "--decode-peer",
        "n7:8001",
    );
    let twice = "--role decode --prefill-peer a:1 --prefill-peer b:1,a:1@9000";
    let found = wrong(twice, "PD008", "--prefill-peer", "a:1");
    assert!(found.reason.contains("place 3 of 3"), "{found}");
    works("--role decode --prefill-peer a:1 --prefill-peer b:1@9000");
    let many: Vec<String> = (1..=65).map(|port| format!("a:{port}")).collect();
    let flags = format!("--role decode --prefill-peer {}", many.join(","));
    wrong(&flags, "PD009", "--prefill-peer", "65 times");
    works(&format!("--role decode --prefill-peer {}", many[..64].join(",")));
}

#[test]
fn links_that_leave_the_host_need_a_secret() {
    let flags = "--role prefill --transfer-host 0.0.0.0";
    let found = wrong(flags, "PD004", "--transfer-host", "0.0.0.0");
    assert!(found.fix.contains("--transfer-host 127.0.0.1"), "{found}");
    let file = TestFile::new("secret", "0123456789abcdef\n");
    let resolved = works(&format!("{flags} --pd-secret-file {}", file.path()));
    let secret = resolved.roles.secret.expect("the secret");
    assert_eq!(&secret.bytes()[..], b"0123456789abcdef");
    assert!(!format!("{secret:?}").contains("0123"));
    works("--role prefill --transfer-host ::1 --transfer-port 0");
    let short = TestFile::new("short", "0123456789abcde\n");
    let flags = format!("--role prefill --pd-secret-file {}", short.path());
    let found = wrong(&flags, "PD013", "--pd-secret-file", &short.path());
    assert!(found.reason.contains("15 bytes"), "{found}");
    let flags = "--admin-token-file /nowhere/token";
    let found = wrong(flags, "PD013", "--admin-token-file", "/nowhere/token");
    assert!(found.fix.contains("no --admin-token-file"), "{found}");
    let all = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&file.0, all).expect("it is ours");
    let flags = format!("--role prefill --pd-secret-file {}", file.path());
    let found = wrong(&flags, "PD013", "--pd-secret-file", &file.path());
    assert_eq!(found.fix, format!("chmod 600 {}", file.path()));
}

/// Certificates that the link's own tests use.
fn certificate(name: &str) -> String {
    format!("{}/transfer/tests/certificates/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn tls_needs_certificates_and_their_key() {
    let [cert, key, ca] = ["worker.pem", "worker.key", "authority.pem"].map(certificate);
    let flags = format!("--role prefill --pd-tls-cert {cert}");
    let found = wrong(&flags, "PD006", "--pd-tls-cert", &cert);
    assert!(found.reason.contains("--pd-tls-key"), "{found}");
    wrong(&format!("--role prefill --pd-tls-key {key}"), "PD006", "--pd-tls-key", &key);
    wrong(&format!("--role prefill --pd-tls-ca {ca}"), "PD006", "--pd-tls-ca", &ca);
    let both = format!("--pd-tls-cert {cert} --pd-tls-key {key}");
    wrong(&format!("{DECODE} {both}"), "PD006", "--pd-tls-cert", &cert);
    works(&format!("--role prefill {both}"));
    works(&format!("--role prefill {both} --pd-tls-ca {ca}"));
    works(&format!("{DECODE} --pd-tls-ca {ca}"));
    works(&format!("{DECODE} {both} --pd-tls-ca {ca}"));
    let swapped = format!("--role prefill --pd-tls-cert {key} --pd-tls-key {cert}");
    wrong(&swapped, "PD014", "--pd-tls-cert", &key);
    wrong(&format!("{DECODE} --pd-tls-ca /nowhere"), "PD014", "--pd-tls-cert", "/nowhere");
}

#[test]
fn ports_and_times_are_checked() {
    for flags in ["--port 8998", "--port 8898", "--transfer-port 8000", "--transfer-port 8100"] {
        let flags = format!("--role prefill {flags}");
        let first = finding(&flags, host(8 * GIB));
        assert_eq!((first.id, first.flag), ("PD005", "--transfer-port"), "{first}");
        works(
            &format!("{flags} --transfer-port 0")
                .replace("--transfer-port 8000 ", "")
                .replace("--transfer-port 8100 ", ""),
        );
    }
    let found =
        wrong("--role prefill --pd-bootstrap-timeout 0s", "PD010", "--pd-bootstrap-timeout", "0s");
    works(&format!("--role prefill {}", found.fix));
}

#[test]
fn what_does_nothing_is_said_and_stops_nothing() {
    let advice = |flags: &str, flag: &str| {
        let resolved = outcome(flags).unwrap_or_else(|found| panic!("{flags}: {found}"));
        let found: Vec<_> = resolved.advice.iter().cloned().collect();
        assert_eq!(found.len(), 1, "{flags}: {}", resolved.advice);
        assert_eq!((found[0].id, found[0].flag), ("PD011", flag), "{}", found[0]);
    };
    advice("--transfer-port 9000", "--transfer-port");
    advice("--role prefill --pd-local-tokens 3", "--pd-local-tokens");
    advice("--role prefill --pd-waiting-timeout 3s", "--pd-waiting-timeout");
    advice(&format!("{DECODE} --pd-bootstrap-timeout 3s"), "--pd-bootstrap-timeout");
    advice(&format!("{DECODE} --transfer-host 127.0.0.1"), "--transfer-host");
    advice("--advertise n7:8001", "--advertise");
    advice("--role prefill --host 0.0.0.0", "--host");
    works("--role prefill --host 0.0.0.0 --advertise n7:8000");
}

#[test]
fn the_rest_has_defaults() {
    let roles = works(DECODE).roles;
    assert_eq!((roles.role, roles.local_tokens), (Role::Decode, 16));
    assert_eq!(roles.waiting_timeout.as_secs(), 300);
    assert_eq!(works(&format!("{DECODE} --pd-local-tokens 0")).roles.local_tokens, 0);
    let roles = works("--role prefill").roles;
    assert_eq!(roles.transfer.to_string(), "127.0.0.1:8998");
    assert_eq!(roles.bootstrap_timeout.as_secs(), 300);
    assert_eq!(works("").roles.role, Role::Unified);
}
