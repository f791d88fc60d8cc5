use super::*;
use crate::ids::PanelsLock;
use crate::{boards, output};

fn ours() -> Vec<Board> {
    output::render(boards::all(), &mut PanelsLock::default()).expect("our boards are sound")
}

#[test]
fn our_boards_are_clean() {
    let report = run(&ours());
    assert!(report.findings.is_empty(), "{}", report.to_text());
}
