//! The processes of a run: a prefill worker, a decode worker and a router on free ports.

use std::ffi::OsString;

use super::args::{CHUNK, CONTEXT, Limits, PREFILL_STEP, Script};
use crate::up::child::{Child, Part};
use crate::up::topology::paired;
use crate::up::{Failure, exit};

/// Room for the prompts of all clients at once, so that it is the rate that is short.
const KV_POOL: &str = "512MiB";

/// Processes that serve; they end when this is dropped.
pub(super) struct Cluster {
    /// The front first.
    pub(super) children: Vec<Child>,
    /// `host:port` of the router.
    pub(super) front: String,
    pub(super) model: String,
    /// Scrape job and `host:port` of each.
    pub(super) targets: Vec<(&'static str, String)>,
}

impl Cluster {
    /// Starts them and waits until they answer as one.
    pub(super) async fn start(script: &Script, limits: Limits) -> Result<Self, Failure> {
        let mut prefill = Child::start(&prefill(script, limits))?;
        let prefill_at = prefill.ready().await?;
        let missing = |what| Failure::new(exit::INTERNAL, format!("{what} was not told"));
        let port = prefill_at.transfer_port.ok_or_else(|| missing("the transfer port"))?;
        let peer = format!("{}@{port}", prefill_at.address);
        let mut decode = Child::start(&decode(script, limits, &peer))?;
        let decode_at = decode.ready().await?;
        let mut router = Child::start(&router(script, &prefill_at.address, &decode_at.address))?;
        let front = router.ready().await?;
        paired(&front.address).await?;
        Ok(Self {
            children: vec![router, decode, prefill],
            model: decode_at.model.ok_or_else(|| missing("the model"))?,
            targets: vec![
                ("sightline-router", front.address.clone()),
                ("sightline-prefill", prefill_at.address),
                ("sightline-decode", decode_at.address),
            ],
            front: front.address,
        })
    }

    /// Ends all processes now and waits until they have ended: nothing is left to be drained.
    pub(super) async fn end(mut self) {
        self.children.iter_mut().for_each(Child::kill);
        for child in &mut self.children {
            child.wait().await;
        }
    }
}

fn prefill(script: &Script, limits: Limits) -> Part {
    let timing = format!("step={}us,prefill-token={}us", micros(PREFILL_STEP), {
        micros(script.token_time())
    });
    let mut own = vec!["--role".to_owned(), "prefill".to_owned()];
    own.extend(["--transfer-port".to_owned(), "0".to_owned()]);
    own.extend(["--max-batch-tokens".to_owned(), CHUNK.to_string()]);
    // The bounds in tokens and in time follow the objective.
    let objective = match limits {
        Limits::Off => "0s".to_owned(),
        Limits::Default => format!("{}us", micros(script.objective)),
    };
    own.extend(["--ttft-objective".to_owned(), objective]);
    worker("prefill worker", &timing, own, limits)
}

fn decode(script: &Script, limits: Limits, peer: &str) -> Part {
    let timing = format!("step={}us", micros(script.decode_step));
    let mut own = vec!["--role".to_owned(), "decode".to_owned()];
    own.extend(["--prefill-peer".to_owned(), peer.to_owned()]);
    own.extend(objectives(script));
    worker("decode worker", &timing, own, limits)
}

/// What requests are judged by; the others are not about this.
fn objectives(script: &Script) -> [String; 2] {
    ["--ttft-objective".to_owned(), format!("{}us", micros(script.objective))]
}

fn worker(name: &'static str, timing: &str, own: Vec<String>, limits: Limits) -> Part {
    let model = format!("fake:context={CONTEXT},{timing}");
    let mut args: Vec<OsString> = vec!["--model".into(), model.into()];
    args.extend(["--kv-pool-bytes".into(), KV_POOL.into()]);
    args.extend(own.into_iter().map(OsString::from));
    match limits {
        Limits::Off => args.extend(["--max-queued-requests".into(), "0".into()]),
        Limits::Default => {}
    }
    part(name, &["server", "serve"], args)
}

fn router(script: &Script, prefill: &str, decode: &str) -> Part {
    let mut args: Vec<OsString> = vec!["--prefill".into(), format!("http://{prefill}").into()];
    args.extend(["--decode".into(), format!("http://{decode}").into()]);
    args.extend(objectives(script).map(OsString::from));
    part("router", &["server", "router"], args)
}

/// On free ports of this machine, and quiet: clients that leave are no news here.
fn part(name: &'static str, program: &'static [&'static str], mut args: Vec<OsString>) -> Part {
    let common =
        ["--host", "127.0.0.1", "--port", "0", "--probe-port", "0", "--log-level", "error"];
    args.extend(common.map(OsString::from));
    Part { name, program, args, starting: format!("Starting the {name}") }
}

/// Microseconds with their fractions, as options are written.
fn micros(time: std::time::Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::incident::result::tests::script;

    fn line(part: &Part) -> String {
        let args: Vec<_> = part.args.iter().map(|arg| arg.to_string_lossy()).collect();
        args.join(" ")
    }

    #[test]
    fn without_limits_all_bounds_are_off_and_else_only_the_objective_is_scaled() {
        let off = line(&prefill(&script(), Limits::Off));
        assert!(off.contains("--ttft-objective 0s"), "{off}");
        assert!(off.contains("--max-queued-requests 0"), "{off}");
        assert!(off.contains("fake:context=65536,step=1000us,prefill-token=301.077us"), "{off}");
        let limited = line(&prefill(&script(), Limits::Default));
        assert!(limited.contains("--ttft-objective 3000000us"), "{limited}");
        assert!(!limited.contains("queued"), "{limited}");
        let decode = line(&decode(&script(), Limits::Off, "127.0.0.1:1@2"));
        assert!(decode.contains("--prefill-peer 127.0.0.1:1@2"), "{decode}");
        assert!(decode.contains("--ttft-objective 3000000us"), "{decode}");
        assert!(decode.contains("step=2000us"), "{decode}");
        let router = line(&router(&script(), "127.0.0.1:1", "127.0.0.1:3"));
        assert!(router.contains("--prefill http://127.0.0.1:1 --decode http://127.0.0.1:3"));
    }
}
