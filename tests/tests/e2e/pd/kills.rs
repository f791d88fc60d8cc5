//! Processes that are killed in the middle of what they do.

use super::network::Fault;
use super::*;

fn streamed(number: u64, tokens: usize) -> Value {
    let mut body = prompt(number);
    body["stream"] = json!(true);
    body["max_tokens"] = json!(tokens);
    body
}

fn open(set: &Set, body: &Value) -> Result<http::Stream> {
    let stream = http::open(&set.router.api, "POST", PATH, Some(body.to_string().as_bytes()))?;
    ensure!(stream.status == 200, "{}", stream.status);
    Ok(stream)
}

fn kill(server: &mut Server) -> Result<()> {
    server.signal(9)?;
    server.wait()?;
    Ok(())
}

/// The port of `HOST:PORT`.
fn port(address: &str) -> Result<&str> {
    Ok(address.rsplit_once(':').context("an address has a port")?.1)
}

#[test]
fn a_decode_worker_that_is_killed_in_mid_stream_ends_its_streams_with_an_error() -> Result<()> {
    let (mut set, unified) = (Set::start(1, 2, 21)?, unified()?);
    let mut stream = open(&set, &streamed(1, 16_000))?;
    for _ in 0..2 {
        ensure!(stream.event()?.is_some_and(|event| event.contains("\"text\"")));
    }
    let runs = |server: &Server| anyhow::Ok(load(server, "/running")? == 1);
    let victim = if runs(&set.decodes[0])? { 0 } else { 1 };
    ensure!(runs(&set.decodes[victim])?, "it runs on one of them");
    kill(&mut set.decodes[victim])?;
    let mut last = String::new();
    while let Some(event) = stream.event()? {
        last = event;
    }
    let error: Value = serde_json::from_str(&last).with_context(|| last.clone())?;
    ensure!(error["error"]["code"] == "bad_gateway", "{error}");
    let name = set.decodes[victim].name().to_owned();
    ensure!(last.contains(&name), "{error}");
    until("it is counted", || {
        let page = set.router.metrics()?;
        let failed = [("outcome", "upstream_error")];
        Ok(page.sum("sightline_router_requests_total", &failed) == 1.0)
    })?;
    // The other one answers meanwhile, and nothing is left at the prefill worker.
    for number in 2..5 {
        let answer = http::post(&set.router.api, PATH, &prompt(number))?;
        ensure!(answer.status == 200, "{}", answer.text()?);
        ensure!(choices(&answer)? == expected(&unified, &prompt(number))?);
    }
    let same = ["--port", port(&name)?];
    set.decodes[victim] = decode(victim, &set.prefills, &set.networks, &same)?;
    set.works(&unified)
}

#[test]
fn a_prefill_worker_that_is_killed_in_mid_transfer_is_replaced_by_another() -> Result<()> {
    let (mut set, unified) = (Set::start(2, 1, 22)?, unified()?);
    for network in &set.networks {
        network.frames(Fault::Hold, 2, 1);
    }
    let (api, body) = (set.router.api.clone(), prompt(1));
    let asked = std::thread::spawn(move || http::post(&api, PATH, &body));
    let mut victim = 0;
    until("a transfer has begun", || {
        let holds = set.networks.iter().position(Network::holds);
        victim = holds.unwrap_or_default();
        Ok(holds.is_some())
    })?;
    kill(&mut set.prefills[victim])?;
    set.networks.iter().for_each(Network::heal);
    let answer = asked.join().expect("it does not panic")?;
    ensure!(answer.status == 200, "{}", answer.text()?);
    ensure!(choices(&answer)? == expected(&unified, &prompt(1))?);
    let gone = [("reason", "peer_gone")];
    let lost = set.decodes[0].metrics()?.sum("sightline_kv_transfer_errors_total", &gone);
    ensure!(lost == 1.0, "the decode worker has lost one: {lost}");
    let page = set.router.metrics()?;
    ensure!(page.sum("sightline_router_retries_total", &[("reason", "error")]) == 1.0);
    let link = set.prefills[victim].transfer.clone().context("it had a link")?;
    let name = set.prefills[victim].name().to_owned();
    set.prefills[victim] = prefill(&["--port", port(&name)?, "--transfer-port", port(&link)?])?;
    set.works(&unified)
}

#[test]
fn the_only_prefill_worker_that_is_killed_in_mid_transfer_costs_its_request() -> Result<()> {
    let (mut set, unified) = (Set::start(1, 1, 23)?, unified()?);
    set.networks[0].frames(Fault::Hold, 2, 1);
    let (api, body) = (set.router.api.clone(), prompt(1));
    let asked = std::thread::spawn(move || http::post(&api, PATH, &body));
    until("a transfer has begun", || Ok(set.networks[0].holds()))?;
    kill(&mut set.prefills[0])?;
    set.networks[0].heal();
    explains(&asked.join().expect("it does not panic")?, 502, "peer_gone")?;
    until("the router misses it", || {
        let answer = http::post(&set.router.api, PATH, &prompt(2))?;
        let body = answer.json()?;
        ensure!(answer.status >= 500, "{body}");
        Ok(answer.status == 503 && body["error"]["code"] == "no_worker")
    })?;
    let link = set.prefills[0].transfer.clone().context("it had a link")?;
    let name = set.prefills[0].name().to_owned();
    set.prefills[0] = prefill(&["--port", port(&name)?, "--transfer-port", port(&link)?])?;
    set.works(&unified)
}

#[test]
fn a_router_that_is_killed_leaves_no_work_behind_and_its_clients_come_back() -> Result<()> {
    let (mut set, unified) = (Set::start(1, 1, 24)?, unified()?);
    let mut streams = Vec::new();
    for number in 0..3 {
        let mut stream = open(&set, &streamed(number, 6_000))?;
        ensure!(stream.event()?.is_some());
        streams.push(stream);
    }
    let name = set.router.name().to_owned();
    kill(&mut set.router)?;
    for mut stream in streams {
        // What was on its way still comes, and no end that looks like one.
        let mut done = false;
        while let Ok(Some(event)) = stream.event() {
            done |= event == "[DONE]";
        }
        ensure!(!done, "6,000 tokens take longer than that");
    }
    // Nobody reads the answers: they are given up at once, and counted.
    until("the decode worker has given them up", || {
        let gone = [("reason", "client_gone")];
        Ok(set.decodes[0].metrics()?.sum("sightline_requests_aborted_total", &gone) == 3.0)
    })?;
    ensure!(http::get(&set.router.api, "/readyz").is_err(), "nobody listens there");
    set.router = router(&set.prefills, &set.decodes, &["--port", port(&name)?])?;
    set.works(&unified)
}
