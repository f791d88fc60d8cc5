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
