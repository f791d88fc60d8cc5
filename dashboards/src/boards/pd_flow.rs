//! The way of a request through a pair, from left to right, and where its time goes.

mod stages;
mod time;

use super::common::{self, INSTANCE as BY_INSTANCE};
use crate::build::{line, section, stat, time_series};
use crate::ir::{Color, Dashboard, Line, Panel, Section, Stack};
use metric_catalog::def::{Label, Unit};
use metric_catalog::labels::{AbortInitiator, AbortStage, Instance, Queue, Role};
use metric_catalog::promql::{Expr, Selection, Window, max, quantile, rate, recorded, sum};
use metric_catalog::{server, slo};

const NOW: Window = Window::Interval;

/// Instead of data, where no pair is deployed.
const NO_PAIR: &str = "no pair";

/// The board.
pub(super) fn board() -> Dashboard {
    let mut board = common::board(
        common::PD_FLOW,
        "PD flow",
        "The way of a request through a prefill and a decode worker, from left to right: queue, \
         bootstrap, prefill, transfer, decode. Where do requests stand, and where does the time to \
         first token go? Links are on the transfer board, choices on the router board. Without \
         pairs most of it is empty.",
        vec![
            now(),
            time::section(),
            queues(),
            stages::bootstrap(),
            stages::prefill(),
            stages::transfer(),
            stages::decode(),
            replicas(),
        ],
    );
    board.split_from = vec![common::PAIRS.to_owned()];
    board
}

/// How many requests stand at each station.
fn now() -> Section {
    let waits = |queue| sum(server::QUEUE_REQUESTS.is(Role::Prefill).is(queue)).total();
    let runs = |role| sum(server::RUNNING_REQUESTS.is(role)).total();
    let stations = [
        station(
            "flow-queue",
            "1. Queue",
            "Requests that wait for the device of a prefill worker. Most of them here: prompts \
             come faster than they are computed; see *Queue drain*.",
            waits(Queue::Waiting),
        ),
        station(
            "flow-bootstrap",
            "2. Bootstrap",
            "Requests that a prefill worker has accepted and whose decode worker has no room yet. \
             Most of them here: decode workers are full; see *Decode*.",
            waits(Queue::Bootstrap),
        ),
        station(
            "flow-prefill",
            "3. Prefill",
            "Requests whose prompt is being computed.",
            runs(Role::Prefill),
        ),
        station(
            "flow-transfer",
            "4. Transfer",
            "Requests that are computed and whose last bytes are on their way. Most of them here: \
             the link is slow or broken; see the transfer board.",
            waits(Queue::InflightSend),
        )
        .detail(common::TRANSFER),
        station(
            "flow-decode",
            "5. Decode",
            "Requests that decode workers answer now.",
            runs(Role::Decode),
        ),
    ];
    section("now", "Where requests are", vec![line(4, stations.map(Panel::from).to_vec())])
}

type Ready = crate::build::Draft<crate::build::Set, crate::build::Set, crate::build::Set>;

fn station(slug: &str, title: &str, description: &str, requests: Expr) -> Ready {
    stat(slug)
        .title(title)
        .describe(description)
        .unit(Unit::Requests)
        .query(requests, "requests")
        .no_value(NO_PAIR)
        .base(Color::Blue)
}

fn queues() -> Section {
    section("queues", "Queue: where requests wait", vec![both_sides(), how_long()])
}

fn both_sides() -> Line {
    let by = (Queue::KEY, Instance::KEY);
    line(
        9,
        vec![
            time_series("pair-queues")
                .title("Requests by queue")
                .describe(
                    "Prefill: `bootstrap` waits for room at the decode worker, `waiting` for the \
                     device, `inflight_send` for the last bytes to arrive. Decode: `prealloc` \
                     waits for room, `transfer` for the prompt to be computed and to arrive.",
                )
                .unit(Unit::Requests)
                .query(max(server::QUEUE_REQUESTS).by(by).above(0.0), "{{queue}} {{instance}}")
                .no_value("nothing waits")
                .stacked(Stack::Sum)
                .into(),
            time_series("pair-drain")
                .title("Queue drain")
                .describe(
                    "Seconds that the prefill of everything queued at a worker takes. A decode \
                     worker's own is near 0: it computes only what is too short to be sent. Above \
                     the lines: add prefill workers, or shed load.",
                )
                .unit(Unit::Seconds)
                .query(recorded::QUEUE_DRAIN.get(), BY_INSTANCE)
                .no_value("idle")
                .threshold(slo::DRAIN_WARNING_SECONDS, Color::Orange)
                .threshold(slo::DRAIN_CRITICAL_SECONDS, Color::Red)
                .threshold_lines()
                .alert("PrefillQueueDrainSlow")
                .detail(common::QUEUE)
                .into(),
        ],
    )
}

fn how_long() -> Line {
    let time = |share| quantile(share, server::REQUEST_QUEUE_TIME, NOW).by((Role::KEY, Queue::KEY));
    let oldest = max(server::QUEUE_OLDEST_REQUEST_AGE).by((Queue::KEY, Instance::KEY));
    line(
        8,
        vec![
            time_series("pair-queue-time")
                .title("Time in each queue")
                .describe(
                    "How long requests waited that left a queue, however they left it. The queue \
                     that grows is the station that is too small.",
                )
                .unit(Unit::Seconds)
                .query(time(0.5), "p50 {{engine_role}} {{queue}}")
                .query(time(0.95), "p95 {{engine_role}} {{queue}}")
                .no_value("no requests")
                .into(),
            time_series("pair-oldest")
                .title("Oldest request of each queue")
                .describe(
                    "It needs no rate, so it stays true when a worker hangs. Above the line most \
                     clients have given up.",
                )
                .unit(Unit::Seconds)
                .query(oldest.above(0.0), "{{queue}} {{instance}}")
                .no_value("nothing waits")
                .threshold(slo::OLDEST_REQUEST_SECONDS, Color::Red)
                .threshold_lines()
                .alert("OldestQueuedRequestTooOld")
                .into(),
        ],
    )
}

fn replicas() -> Section {
    let name = "{{engine_role}} {{model_name}}";
    let given_up = sum(rate(server::REQUESTS_ABORTED.is(AbortInitiator::Client), NOW));
    let panels = vec![
        time_series("replicas")
            .title("Replicas by role")
            .describe(
                "Processes of each role that serve, and how many the router declares, else how \
                 many there were in the last hour (dashed). Below it: start the one that is gone, \
                 or bring it back into discovery.",
            )
            .unit(Unit::Count)
            .query(recorded::LIVE_REPLICAS.get(), name)
            .query(recorded::EXPECTED_REPLICAS.get(), &format!("expected {name}"))
            .dashed("/^expected/")
            .steps()
            .detail(common::ROUTER)
            .detail(common::INSTANCES)
            .into(),
        time_series("client-aborts")
            .title("Clients that give up, by stage")
            .describe(
                "Above the line, with transfers that end in `peer_abort`, clients lose patience \
                 faster than prompts are computed: look at *Queue drain*, not at the link.",
            )
            .unit(Unit::RequestsPerSecond)
            .query(
                given_up.by((AbortStage::KEY, Instance::KEY)).above(0.0),
                "{{stage}} {{instance}}",
            )
            .no_value("nobody gave up")
            .threshold(slo::CLIENT_ABORTS_PER_SECOND, Color::Red)
            .threshold_lines()
            .into(),
    ];
    section("replicas-of-roles", "Replicas and patience", vec![line(8, panels)])
}
