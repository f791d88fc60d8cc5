use super::*;
use crate::ids::PanelsLock;
use crate::write::canonical_json;
use crate::{boards, output};

#[test]
fn what_we_write_we_can_read() {
    let boards = output::render(boards::all(), &mut PanelsLock::default()).expect("sound");
    for board in boards {
        let read: Dashboard = serde_json::from_str(&board.json).expect("own output");
        assert_eq!(read, board.classic);
        assert_eq!(canonical_json(&read), board.json);
    }
}
