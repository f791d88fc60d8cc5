//! Lines: what is written is read back, and nothing else is read at all.

use super::*;
use proptest::prelude::*;

fn example_reports() -> Vec<Report> {
    let fault = Fault::new(FaultKind::GpuLost, "nvmlDeviceGetUUID: gone");
    let fast = Fast {
        utilization_percent: Some(50),
        memory: Some(Memory { total: 10, used: 5, free: 5, reserved: None }),
        throttle_times: ThrottleTimes { hw_thermal: Some(7), ..ThrottleTimes::default() },
        ..Fast::default()
    };
    let slow = Slow {
        links: vec![Link { link: 3, up: true, errors: LinkErrors::default() }],
        processes: vec![Process { pid: 1, bytes: None }],
        problems: vec![Problem { call: "f(0)".to_owned(), fault: fault.clone() }],
        ..Slow::default()
    };
    let fixed = Fixed { uuid: "GPU-1".to_owned(), ..Fixed::default() };
    let sample = |values| Report::Sample { card: 1, micros: 20, values };
    vec![
        Report::Hello(Hello {
            library: "libnvidia-ml.so.1".to_owned(),
            driver_version: Some("580.95.05".to_owned()),
            library_version: None,
            cuda_version: Some(13_000),
            cards: 8,
        }),
        Report::Failed(fault.clone()),
        sample(Values::Fast(Box::new(fast))),
        sample(Values::Slow(Box::new(slow))),
        sample(Values::Fixed(Box::new(fixed))),
        Report::Error { card: 2, group: Group::Slow, micros: 9, fault: fault.clone() },
        Report::Xid { card: 0, code: 79 },
        Report::Listening { card: 0, fault: Some(fault) },
        Report::Bye { clean: true },
    ]
}

fn example_requests() -> Vec<Request> {
    let open = Open { libraries: vec!["a/b".into()], probe_again_millis: 600_000 };
    let poll = Request::Poll { card: 7, group: Group::Fixed };
    vec![Request::Open(open), poll, Request::Release]
}

#[test]
fn messages_come_back_as_they_went() {
    for report in example_reports() {
        assert_eq!(from_line::<Report>(&to_line(&report)).unwrap(), report);
    }
    for request in example_requests() {
        assert_eq!(from_line::<Request>(&to_line(&request)).unwrap(), request);
    }
}

#[test]
fn lines_look_like_this() {
    let line = |message: &Report| String::from_utf8(to_line(message)).unwrap();
    let fast = Fast { utilization_percent: Some(5), ..Fast::default() };
    let sample = Report::Sample { card: 1, micros: 20, values: Values::Fast(Box::new(fast)) };
    let text = r#"{"sample":{"card":1,"micros":20,"values":{"fast":{"utilization_percent":5}}}}"#;
    assert_eq!(line(&sample), format!("{text}\n"));
    assert_eq!(line(&Report::Bye { clean: false }), "{\"bye\":{\"clean\":false}}\n");
}

/// Lines that went wrong or could: each is an error, and says what it is about.
const BAD_LINES: &str = include_str!("bad-lines.txt");

#[test]
fn bad_lines_are_errors_that_quote_them() {
    for line in BAD_LINES.lines() {
        let error = from_line::<Report>(line.as_bytes()).expect_err(line);
        assert!(error.to_string().contains("is no line of the protocol"), "{line}: {error}");
    }
    assert!(BAD_LINES.lines().count() > 20);
}

#[test]
fn a_stream_ends_in_an_error_when_its_last_line_does_not() {
    let whole = to_line(&Report::Bye { clean: true });
    let mut stream = &[&whole[..], &whole[..whole.len() - 1]].concat()[..];
    assert!(read::<Report>(&mut stream).unwrap().is_some());
    assert!(matches!(read::<Report>(&mut stream), Err(LineError::Cut(_))));
    assert!(read::<Report>(&mut &b""[..]).unwrap().is_none());
}

#[test]
fn a_line_without_end_is_not_read_to_its_end() {
    let endless = std::io::repeat(b'x');
    let mut endless = std::io::BufReader::new(endless);
    assert!(matches!(read::<Report>(&mut endless), Err(LineError::TooLong)));
    let long = vec![b' '; LINE_BYTES_MAX + 1];
    assert!(matches!(from_line::<Report>(&long), Err(LineError::TooLong)));
}

#[test]
fn a_detail_is_cut_between_characters() {
    let fault = Fault::new(FaultKind::Driver, "ä".repeat(1000));
    assert_eq!(fault.detail.chars().count(), 300);
}

#[test]
fn the_fullest_report_fits_a_line() {
    let long = "x".repeat(300);
    let fault = Fault::new(FaultKind::Driver, long.clone());
    let errors = LinkErrors {
        crc_flit: Some(u64::MAX),
        crc_data: Some(u64::MAX),
        replay: Some(u64::MAX),
        recovery: Some(u64::MAX),
        ecc_data: Some(u64::MAX),
    };
    let memory = Memory { total: u64::MAX, used: u64::MAX, free: u64::MAX, reserved: Some(1) };
    let instance = |gpu_instance| Instance {
        uuid: "MIG-00000000-0000-0000-0000-000000000000".to_owned(),
        gpu_instance,
        compute_instance: 8,
        memory: Some(memory),
    };
    let slow = Slow {
        links: (0..18).map(|link| Link { link, up: true, errors: errors.clone() }).collect(),
        instances: (0..16).map(instance).collect(),
        processes: vec![Process { pid: u32::MAX, bytes: Some(u64::MAX) }; 256],
        problems: vec![Problem { call: long, fault }; crate::reading::PROBLEMS_MAX],
        ..Slow::default()
    };
    let values = Values::Slow(Box::new(slow));
    let line = to_line(&Report::Sample { card: 63, micros: u64::MAX, values });
    assert!(line.len() <= LINE_BYTES_MAX, "{} bytes", line.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any bytes are a message or an error.
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut stream = &bytes[..];
        while let Ok(Some(_)) = read::<Report>(&mut stream) {}
        drop(from_line::<Request>(&bytes));
    }

    /// A good line with one byte changed is another good line or an error: what is read, is written
    /// back to the same meaning.
    #[test]
    fn a_changed_byte_is_survived(which in 0_usize..9, at in any::<usize>(), byte in any::<u8>()) {
        let mut line = to_line(&example_reports()[which]);
        let at = at % line.len();
        line[at] = byte;
        if let Ok(report) = from_line::<Report>(&line) {
            prop_assert_eq!(from_line::<Report>(&to_line(&report)).unwrap(), report);
        }
    }

    /// A line cut short is never half a report.
    #[test]
    fn a_cut_line_is_no_report(which in 0_usize..9, at in any::<usize>()) {
        let line = to_line(&example_reports()[which]);
        let cut = &line[..at % (line.len() - 1)];
        prop_assert!(from_line::<Report>(cut).is_err());
    }
}
