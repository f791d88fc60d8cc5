//! Opens the link of a worker of a pair, once its model is loaded.

use std::sync::Arc;

use engine::Handle;
use memory_pool::PageBytes;
use transfer::tcp::{
    DecodeClient, Environment, LinkOptions, ListenOptions, PrefillPeer, PrefillServer, StartError,
    Tuning,
};
use transfer::{Limits, PeerName, Shape, TransferObserver};

use super::Link;
use super::door::Door;
use super::identity::pairing;
use super::offer::Offering;
use crate::cli::Role;
use crate::config::roles::certificates;
use crate::config::{Class, Finding, RolePlan};
use crate::http::Api;

/// What a link carries, and for whom.
pub(crate) struct Cargo {
    /// The device pages.
    pub(crate) pages: Arc<dyn PageBytes>,
    /// The model and its layout.
    pub(crate) shape: Shape,
    /// Takes the news.
    pub(crate) engine: Handle,
    /// Takes the numbers.
    pub(crate) observer: Arc<dyn TransferObserver>,
}

/// Opens the link of `plan`'s role for `api`; `own` is its name. Peers are looked for from now on;
/// nothing waits for them. Needs a runtime with time and sockets.
///
/// # Errors
/// A port that cannot be had, certificates that do not work.
pub(crate) async fn open(
    api: &Arc<Api>,
    plan: &RolePlan,
    own: String,
    cargo: Cargo,
) -> Result<(), Finding> {
    let fingerprint = pairing(&cargo.shape);
    tracing::info!(model = cargo.shape.model, fingerprint, own, "The link is being opened.");
    let options = LinkOptions {
        advertise: own,
        shape: cargo.shape,
        secret: plan.secret.clone(),
        tls: plan.tls.clone(),
        limits: Limits {
            bootstrap: plan.bootstrap_timeout,
            waiting: plan.waiting_timeout,
            ..Limits::default()
        },
        tuning: Tuning::default(),
    };
    let around = Environment {
        pages: cargo.pages,
        news: Arc::new(cargo.engine),
        observer: cargo.observer,
        clock: api.clock,
    };
    let link = match plan.role {
        Role::Unified => return Ok(()),
        Role::Prefill => {
            let listen = ListenOptions {
                host: plan.transfer.ip().to_string(),
                port: plan.transfer.port(),
                peers: plan.decode_peers.iter().map(|peer| PeerName::new(peer.name())).collect(),
            };
            let door = Arc::new(Door::new(api));
            let server = PrefillServer::start(options, listen, door, around).await;
            Link::Prefill(server.map_err(|error| refused(plan, &error))?)
        }
        Role::Decode => {
            let peers: Vec<PrefillPeer> = plan.prefill_peers.iter().map(dialed).collect();
            let client = DecodeClient::start(options, &peers, around);
            let client = Arc::new(client.map_err(|error| certificates(&error))?);
            let names = peers.into_iter().map(|peer| peer.name).collect();
            Link::Decode(Offering::new(Arc::<DecodeClient>::clone(&client), names), client)
        }
    };
    api.has_link(link, fingerprint);
    Ok(())
}

fn dialed(peer: &crate::cli::PrefillPeer) -> PrefillPeer {
    PrefillPeer {
        name: PeerName::new(peer.api.name()),
        host: peer.api.host().to_owned(),
        port: peer.transfer_port,
    }
}

fn refused(plan: &RolePlan, error: &StartError) -> Finding {
    match error {
        StartError::Bind(error) => Finding {
            id: "PD015",
            class: Class::Temporary,
            flag: "--transfer-port",
            value: plan.transfer.port().to_string(),
            reason: error.to_string(),
            fix: "--transfer-port 0, which chooses a free one".to_owned(),
        },
        StartError::Tls(error) => certificates(error),
    }
}
