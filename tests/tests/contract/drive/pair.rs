//! A prefill and a decode worker.

use super::*;

/// What the workers call each other; nobody connects to these.
const NAMES: [&str; 2] = ["127.0.0.1:7001", "127.0.0.1:7002"];

/// Two processes that answer like one.
pub(crate) struct Pair {
    pub(crate) prefill: Server,
    pub(crate) decode: Server,
}

impl Pair {
    /// A pair that serves `model`, each with flags of its own.
    pub(crate) fn start(model: &str, prefill: &[&str], decode: &[&str]) -> Result<Self> {
        let [one, other] = NAMES;
        let own = ["--model", model, "--role", "prefill", "--advertise", one];
        let link = ["--transfer-port", "0", "--decode-peer", other];
        let prefill = Server::start(&[&own[..], &link, prefill].concat())?;
        let transfer = prefill.transfer.as_deref().context("the ready line names no link")?;
        let (_, port) = transfer.rsplit_once(':').context("a link without a port")?;
        let peer = format!("{one}@{port}");
        let own = ["--model", model, "--role", "decode", "--advertise", other];
        let decode = Server::start(&[&own[..], &["--prefill-peer", &peer], decode].concat())?;
        let pair = Self { prefill, decode };
        until(&pair.decode, "the link is up", |page| page.sum("sightline_pd_peer_up", &[]) == 1.0)?;
        Ok(pair)
    }

    /// Both pages once nothing is left anywhere.
    fn idle(&self) -> Result<(Page, Page)> {
        let empty = |page: &Page| {
            let queued = page.sum("sightline_queue_requests", &[]);
            let open = page.sum("sightline_kv_transfers_active", &[]);
            let held = page.sum("sightline_kv_transfer_held_bytes", &[]);
            running(page) + queued + open + held == 0.0
        };
        let decode = until(&self.decode, "decode is idle", empty)?;
        Ok((until(&self.prefill, "prefill is idle", empty)?, decode))
    }
}

/// Drives what only a pair has; the pages of prefill and of decode workers.
pub(crate) fn all() -> Result<(Vec<Page>, Vec<Page>)> {
    let pages = [sent()?, given_up()?, no_room()?];
    Ok(pages.into_iter().unzip())
}

/// Prompts that are computed there and answered here.
fn sent() -> Result<(Page, Page)> {
    let pair = Pair::start("fake:step=0ms", &[], &[])?;
    for (prompt, stream) in [("a".repeat(200), false), ("b".repeat(300), true)] {
        let body = completion(&prompt, 3, stream);
        assert_eq!(http::post(&pair.decode.api, "/v1/completions", &body)?.status, 200);
    }
    let (prefill, decode) = pair.idle()?;
    let ok = |page: &Page, side| {
        page.sum("sightline_kv_transfers_total", &[("side", side), ("result", "ok")])
    };
    assert_eq!([ok(&prefill, "send"), ok(&decode, "recv")], [2.0, 2.0]);
    let bytes = |page: &Page| page.sum("sightline_kv_transfer_bytes_total", &[]);
    assert_eq!(bytes(&prefill), bytes(&decode), "what was sent has arrived");
    let remote = decode.sum("sightline_prompt_tokens_total", &[("source", "remote")]);
    let prompts = decode.sum("sightline_prompt_tokens_total", &[]);
    assert_eq!(prompts, 500.0, "each token has one source");
    assert_eq!(remote, 498.0, "all but the last token of each");
    let sums = |name: &str| decode.sum(name, &[]);
    let parts = sums("sightline_ttft_phase_seconds_sum");
    let whole = sums("sightline_time_to_first_token_seconds_sum");
    assert!((parts - whole).abs() <= 0.01 * whole, "{parts} of {whole}");
    Ok((prefill, decode))
}

/// A client that leaves while its prompt is computed.
fn given_up() -> Result<(Page, Page)> {
    let slow = ["--max-batch-tokens", "8", "--max-running-requests", "1"];
    let pair = Pair::start("fake:step=1ms,prefill-token=2ms", &slow, &[])?;
    let client = complete(&pair.decode, &"a".repeat(900), 5)?;
    until(&pair.prefill, "it is being computed", |page| running(page) == 1.0)?;
    drop(client);
    let (prefill, decode) = pair.idle()?;
    assert_eq!(aborted(&decode, "transfer"), 1.0);
    let peer = &[("initiator", "peer"), ("reason", "peer_abort")];
    assert_eq!(prefill.sum("sightline_requests_aborted_total", peer), 1.0);
    for page in [&prefill, &decode] {
        let given_up = page.sum("sightline_kv_transfers_total", &[("result", "aborted")]);
        assert_eq!(given_up, page.sum("sightline_kv_transfer_errors_total", &[]));
        assert_eq!(given_up, 1.0);
    }
    Ok((prefill, decode))
}

/// A client that leaves while its prompt waits for room at the decode worker.
fn no_room() -> Result<(Page, Page)> {
    let room = ["--kv-pool-bytes", "128KiB", "--max-running-requests", "1"];
    let pair = Pair::start("fake:step=50ms", &[], &room)?;
    let first = complete(&pair.decode, &"a".repeat(150), 90)?;
    until(&pair.decode, "it runs", |page| running(page) == 1.0)?;
    let second = complete(&pair.decode, &"b".repeat(150), 90)?;
    let queue = |page: &Page, queue| page.sum("sightline_queue_requests", &[("queue", queue)]);
    until(&pair.decode, "it waits for room", |page| queue(page, "prealloc") == 1.0)?;
    until(&pair.prefill, "and so does its prompt", |page| queue(page, "bootstrap") == 1.0)?;
    drop(second);
    until(&pair.decode, "it is gone", |page| aborted(page, "bootstrap") == 1.0)?;
    until(&pair.prefill, "there, too", |page| aborted(page, "bootstrap") == 1.0)?;
    drop(first);
    pair.idle()
}
