use std::time::Duration;

use types::{PoolId, Priority, RequestId, TokenId};

use super::*;
use crate::failure::Failure;
use crate::link::{Accepted, Backend, LandPages, News, NotOffered, Offered, Prompt, Sending};
use crate::message::{Offer, Rejected};
use crate::sim_test::pages::TestPages;

type Heard = Arc<Mutex<Vec<News>>>;

/// Takes everything, and keeps it.
#[derive(Default)]
struct Takes(Mutex<Vec<Box<dyn Sending>>>);

impl Offers for Takes {
    fn offer(
        &self,
        _: &PeerName,
        _: Offer,
        sending: Box<dyn Sending>,
    ) -> Result<Accepted, Rejected> {
        self.0.lock().unwrap().push(sending);
        Ok(Accepted { request: RequestId(9), drain: Duration::ZERO })
    }
}

fn node(name: &str, peer: &str, page_tokens: u32, heard: &Heard) -> (Node, Arc<TestPages>) {
    let pages = Arc::new(TestPages::new(1, false));
    let heard = Arc::clone(heard);
    let node = Node {
        name: PeerName::new(name),
        shape: Shape::of("m", page_tokens, "f32", &*pages),
        secret: None,
        pages: Arc::<TestPages>::clone(&pages),
        limits: Limits::default(),
        peers: vec![PeerName::new(peer)],
        news: Arc::new(move |_: RequestId, news: News| heard.lock().unwrap().push(news)),
        observer: Arc::new(()),
    };
    (node, pages)
}

fn ask(port: &DecodePort) -> Arc<Mutex<Option<Result<Offered, NotOffered>>>> {
    let prompt = Prompt {
        request: "r".to_owned(),
        traceparent: None,
        tokens: vec![TokenId(1); 4],
        namespace: Vec::new(),
        priority: Priority::NORMAL,
        tenant: None,
    };
    let answer = Arc::new(Mutex::new(None));
    let place = Arc::clone(&answer);
    let answered = move |answer| *place.lock().unwrap() = Some(answer);
    port.offer(&PeerName::new("p:1"), RequestId(1), prompt, Box::new(answered));
    answer
}

#[test]
fn workers_that_do_not_fit_stay_up_and_say_why() {
    let (net, heard) = (Loopback::new(1, FaultPlan::local()), Heard::default());
    let (decode, decode_port) = net.decode(node("d:1", "p:1", 4, &heard).0);
    let takes = Arc::new(Takes::default());
    let (prefill, prefill_port) = net.prefill(node("p:1", "d:1", 8, &heard).0, takes);
    let error = net.connect(decode, prefill).unwrap_err().to_string();
    assert!(error.contains("the prefill worker has 8, the decode worker has 4"), "{error}");
    for snapshot in [decode_port.snapshot(), prefill_port.snapshot()] {
        let peer = &snapshot.peers[0];
        assert!(!peer.up && peer.trouble.as_ref() == Some(&error), "{snapshot:?}");
    }
    let answer = ask(&decode_port).lock().unwrap().take();
    assert!(matches!(answer, Some(Err(NotOffered::Failed(Failure::Connect)))), "{answer:?}");
}

#[test]
fn a_killed_worker_is_noticed_by_the_other() {
    let (net, decode_heard, prefill_heard) =
        (Loopback::new(1, FaultPlan::local()), Heard::default(), Heard::default());
    let (decode_node, pages) = node("d:1", "p:1", 4, &decode_heard);
    let (decode, port) = net.decode(decode_node);
    let takes = Arc::new(Takes::default());
    let offers = Arc::<Takes>::clone(&takes);
    let (prefill, _) = net.prefill(node("p:1", "d:1", 4, &prefill_heard).0, offers);
    net.connect(decode, prefill).unwrap();
    let answer = ask(&port);
    let at = |millis| Time::ZERO + Duration::from_millis(millis);
    net.drive(at(10));
    let mut offered = answer.lock().unwrap().take().unwrap().unwrap();
    let held = pages.take([1, 1]).unwrap();
    pages.open(&held, true);
    let land = |pool: u16| LandPages {
        pool: PoolId(pool),
        first_index: 0,
        pages: held[usize::from(pool)].clone(),
    };
    offered.landing.land(4, 0, vec![land(0), land(1)]);
    net.drive(at(20));
    assert_eq!(*prefill_heard.lock().unwrap(), [News::Wanted { skip_tokens: 0 }]);
    assert!(port.snapshot().peers[0].up);
    net.kill(prefill);
    net.drive(at(30));
    let gone = [News::Failed(Failure::PeerGone), News::Settled];
    assert_eq!(*decode_heard.lock().unwrap(), gone);
    assert!(!port.snapshot().peers[0].up);
    // The dead process's engine may still be dropped; nobody hears of it.
    takes.0.lock().unwrap().clear();
    drop(offered);
    net.drive(at(5000));
    assert!(net.is_quiet() && net.next_event().is_none());
    assert_eq!(prefill_heard.lock().unwrap().len(), 1);
}
