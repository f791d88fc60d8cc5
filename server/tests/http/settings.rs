//! Settings that change while the process runs.

use serde_json::Value;

use super::process::{Connection, Server, get, until};

fn settings(server: &Server) -> Value {
    serde_json::from_str(&get(&server.api, "/admin/config").body).expect("JSON")
}

#[test]
fn a_file_is_read_again_at_sighup_and_wins_over_what_was_changed_since() {
    let name = format!("sightline-settings-{}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    let write = |requests: u32| {
        let text = format!("model = \"fake\"\nmax-queued-requests = {requests}\n");
        std::fs::write(&path, text).expect("the temporary folder is writable");
    };
    write(8);
    let server = Server::start(&format!("--config {}", path.display()));
    assert_eq!(settings(&server)["settings"]["max-queued-requests"], "8");
    let mut connection = Connection::open(&server.api);
    let body = "{\"max-queued-requests\": 3}";
    let head = format!(
        "POST /admin/config HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
         if-match: \"1\"\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write(head.as_bytes()).expect("the server reads");
    assert_eq!(connection.answer().status, 200);
    assert_eq!(settings(&server)["drift"][0], "max-queued-requests");
    write(9);
    server.signal("HUP");
    until("the file was read again", || settings(&server)["generation"] == 3);
    let now = settings(&server);
    assert_eq!(
        (&now["settings"]["max-queued-requests"], &now["drift"]),
        (&"9".into(), &Value::Array(vec![]))
    );
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn a_router_reads_its_file_again_at_sighup_and_keeps_what_it_has_of_a_broken_one() {
    let name = format!("sightline-router-settings-{}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    let write = |text: &str| {
        let text = format!("worker = \"127.0.0.1:1\"\n{text}\n");
        std::fs::write(&path, text).expect("the temporary folder is writable");
    };
    write("hold-time = \"3s\"");
    let router = Server::router(&format!("--config {}", path.display()));
    assert_eq!(settings(&router)["settings"]["hold-time"], "3s");
    write("hold-time = \"4s\"\nhttp-threads = 3");
    router.signal("HUP");
    until("the file was read again", || settings(&router)["generation"] == 2);
    assert_eq!(settings(&router)["settings"]["hold-time"], "4s");
    let metric = |name: &str| {
        let page = get(&router.api, "/metrics").body;
        let line = page.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).expect("a sample")
    };
    let successful = "sightline_config_last_reload_successful{";
    assert_eq!(metric(successful), 1.0);
    write("hold-time = \"forever\"");
    router.signal("HUP");
    until("it is refused", || metric(successful) == 0.0);
    let now = settings(&router);
    assert_eq!((&now["generation"], &now["settings"]["hold-time"]), (&2.into(), &"4s".into()));
    std::fs::remove_file(&path).expect("it is there");
}
