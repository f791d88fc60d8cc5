use super::*;
use crate::shape::tests::shape;

/// Counts up: every nonce is another one.
fn random() -> impl Random {
    let mut next = 0_u8;
    move |bytes: &mut [u8]| {
        for byte in bytes {
            next = next.wrapping_add(1);
            *byte = next;
        }
    }
}

fn terms(secret: Option<&str>, shape: Shape) -> Terms {
    let secret = secret.map(|secret| secret.as_bytes().into());
    Terms { secret, shape, name: "decode-1:30000".to_owned() }
}

type Outcome = (Result<Ready, HandshakeError>, Result<String, HandshakeError>);

/// Runs a handshake to its end on both sides: decode's outcome and prefill's.
fn run(decode: &Terms, prefill: &Terms, joins: Option<[u8; 16]>) -> Outcome {
    let mut random = random();
    let (mut dial, hello) = Dial::start(decode, joins, &mut random);
    let mut greet = Greet::new(prefill, 64);
    let mut to_prefill = hello;
    loop {
        let (answer, prefill) = match greet.on_message(to_prefill, &mut random) {
            Ok(GreetStep::Send(message)) => (message, None),
            Ok(GreetStep::Done { ready, joins: joined, name }) => {
                assert_eq!(joined, joins);
                (Message::Ready(ready), Some(Ok(name)))
            }
            Err(error) => (error.answer().unwrap(), Some(Err(error))),
        };
        match (dial.on_message(answer), prefill) {
            (Ok(DialStep::Send(message)), None) => to_prefill = message,
            (Ok(DialStep::Done(ready)), Some(prefill)) => return (Ok(ready), prefill),
            (Err(error), prefill) => {
                let told = error.answer().map(|refused| greet.on_message(refused, &mut random));
                let prefill = prefill.unwrap_or_else(|| {
                    let Some(Err(error)) = told else { panic!("{told:?}") };
                    Err(error)
                });
                return (Err(error), prefill);
            }
            (step, prefill) => panic!("{step:?} {prefill:?}"),
        }
    }
}

#[test]
fn workers_that_fit_are_connected() {
    for secret in [None, Some("open sesame 1234")] {
        let both = terms(secret, shape(2, false));
        let (decode, prefill) = run(&both, &both, None);
        let ready = decode.unwrap();
        assert_eq!(prefill.unwrap(), "decode-1:30000");
        assert_eq!((ready.rooms_max, &ready.shape), (64, &both.shape));
        let (decode, _) = run(&both, &both, Some(ready.link));
        assert_eq!(decode.unwrap().link, ready.link);
    }
    let (four, two) = (terms(None, shape(4, true)), terms(None, shape(2, true)));
    assert!(run(&four, &two, None).0.is_ok() && run(&two, &four, None).1.is_ok());
}

#[test]
fn both_sides_learn_both_values_of_what_does_not_fit() {
    let decode = terms(None, shape(2, false));
    let mut other = shape(2, false);
    other.page_tokens = 64;
    let (decode, prefill) = run(&decode, &terms(None, other), None);
    let expected =
        "page size in tokens: the prefill worker has 64, the decode worker has 16".to_owned();
    assert_eq!(prefill.unwrap_err().to_string(), expected);
    assert_eq!(decode.unwrap_err(), HandshakeError::Refused(expected));
}

#[test]
fn a_wrong_or_missing_secret_is_refused_by_who_notices_first() {
    let with = |secret| terms(secret, shape(1, false));
    let (decode, prefill) = run(&with(Some("one")), &with(Some("two")), None);
    // The prefill worker has to prove itself first: it learns nothing of the decode worker.
    assert_eq!(decode.unwrap_err(), HandshakeError::Proof);
    assert!(matches!(prefill.unwrap_err(), HandshakeError::Refused(_)));
    let (decode, prefill) = run(&with(None), &with(Some("two")), None);
    assert_eq!(prefill.unwrap_err(), HandshakeError::Secret { prefill: true, decode: false });
    let text = decode.unwrap_err().to_string();
    assert!(text.contains("prefill worker has one, the decode worker has none"), "{text}");
    assert!(run(&with(Some("one")), &with(None), None).1.is_err());
}

/// A decode worker that guesses: whatever it sends as a proof is refused, before the shape is
/// looked at.
#[test]
fn a_proof_must_be_made_with_the_secret_for_this_handshake() {
    let own = terms(Some("0123456789abcdef"), shape(1, false));
    let mut random = random();
    let mut attempt = |change: &dyn Fn(&mut Proof, &Welcome)| {
        let (mut dial, hello) = Dial::start(&own, None, &mut random);
        let mut greet = Greet::new(&own, 1);
        let Ok(GreetStep::Send(Message::Welcome(welcome))) = greet.on_message(hello, &mut random)
        else {
            panic!("the prefill worker greets")
        };
        let step = dial.on_message(Message::Welcome(welcome.clone())).unwrap();
        let DialStep::Send(Message::Proof(mut proof)) = step else { panic!("{step:?}") };
        change(&mut proof, &welcome);
        greet.on_message(Message::Proof(proof), &mut random)
    };
    assert!(attempt(&|_, _| ()).is_ok());
    assert_eq!(attempt(&|proof, _| proof.proof[31] ^= 1), Err(HandshakeError::Proof));
    assert_eq!(attempt(&|proof, _| proof.proof = [0; 32]), Err(HandshakeError::Proof));
    // The prefill worker's own proof, sent back.
    assert_eq!(attempt(&|proof, w| proof.proof = w.proof), Err(HandshakeError::Proof));
    let other = |proof: &mut Proof, _: &Welcome| {
        proof.proof[0] ^= 1;
        proof.shape.model = "other".to_owned();
    };
    assert_eq!(attempt(&other), Err(HandshakeError::Proof));
}

/// What was overheard in one handshake is worth nothing in the next.
#[test]
fn a_replayed_proof_is_refused() {
    let own = terms(Some("0123456789abcdef"), shape(1, false));
    let mut random = random();
    let (mut dial, hello) = Dial::start(&own, None, &mut random);
    let mut greets = [Greet::new(&own, 1), Greet::new(&own, 1)];
    let mut welcomes = greets.each_mut().map(|greet| {
        let step = greet.on_message(hello.clone(), &mut random).unwrap();
        let GreetStep::Send(welcome) = step else { panic!("{step:?}") };
        welcome
    });
    let DialStep::Send(proof) = dial.on_message(welcomes[0].clone()).unwrap() else { panic!() };
    assert!(greets[0].on_message(proof.clone(), &mut random).is_ok());
    assert_eq!(greets[1].on_message(proof, &mut random), Err(HandshakeError::Proof));
    // Nor is a welcome of another handshake.
    let (mut again, _) = Dial::start(&own, None, &mut random);
    assert_eq!(again.on_message(welcomes[1].clone()), Err(HandshakeError::Proof));
    // And a proof for a new peer does not join another.
    let (mut joining, hello) = Dial::start(&own, Some([7; 16]), &mut random);
    let step = Greet::new(&own, 1).on_message(hello, &mut random).unwrap();
    let GreetStep::Send(welcome) = step else { panic!("{step:?}") };
    welcomes[0] = welcome;
    assert!(joining.on_message(welcomes[0].clone()).is_ok());
}

#[test]
fn another_version_is_refused_with_both() {
    let own = terms(None, shape(1, false));
    let mut random = random();
    let (mut dial, hello) = Dial::start(&own, None, &mut random);
    let Message::Hello(hello) = hello else { panic!("{hello:?}") };
    let old = Message::Hello(Hello { protocol: 7, ..hello });
    let error = Greet::new(&own, 1).on_message(old, &mut random).unwrap_err();
    assert_eq!(error, HandshakeError::Protocol { ours: PROTOCOL, theirs: 7 });
    let welcome = Welcome { protocol: 9, nonce: [0; 32], proof: [0; 32] };
    let error = dial.on_message(Message::Welcome(welcome)).unwrap_err();
    assert_eq!(error.to_string(), "protocol version: this worker has 2, the peer has 9");
}

#[test]
fn steps_out_of_order_are_refused() {
    let own = terms(None, shape(1, false));
    let mut random = random();
    let ready = Ready { link: [0; 16], rooms_max: 1, shape: own.shape.clone() };
    let (mut dial, hello) = Dial::start(&own, None, &mut random);
    let error = dial.on_message(Message::Ready(ready)).unwrap_err();
    assert_eq!(error, HandshakeError::Step { found: "ready", due: "welcome" });
    let proof = Proof { proof: [0; 32], name: String::new(), shape: own.shape.clone() };
    let mut greet = Greet::new(&own, 1);
    let error = greet.on_message(Message::Proof(proof), &mut random).unwrap_err();
    assert_eq!(error, HandshakeError::Step { found: "proof", due: "hello" });
    let mut greet = Greet::new(&own, 1);
    assert!(greet.on_message(hello.clone(), &mut random).is_ok());
    let error = greet.on_message(hello, &mut random).unwrap_err();
    assert_eq!(error, HandshakeError::Step { found: "hello", due: "proof" });
}

#[test]
fn a_reason_fits_into_its_message() {
    let mut long = shape(1, false);
    long.model = "ü".repeat(64);
    let error = Shape::fit(&long, &shape(1, false)).unwrap_err();
    let error = HandshakeError::Shape(Mismatch { what: "é".repeat(2000), ..error });
    let Some(Message::Refused(refused)) = error.answer() else { panic!("it is told") };
    assert_eq!(refused.reason.len(), REASON_MAX);
    crate::Encoder::new().message(&Message::Refused(refused));
}
