use super::*;
use crate::ids::PanelsLock;
use crate::output::{self, Board};
use crate::write::canonical_json;
use metric_catalog::target::Target;

fn boards() -> Vec<Board> {
    let sets = Target::ALL.iter().map(|&target| (target, output::source(target))).collect();
    output::render_all(sets, &mut PanelsLock::default()).expect("sound")
}

#[test]
fn what_we_write_we_can_read() {
    for board in boards() {
        let resource = board.v2();
        let text = canonical_json(&resource);
        let read: Resource = serde_json::from_str(&text).expect("own output");
        assert_eq!(read, resource);
        assert_eq!(canonical_json(&read), text);
    }
}

#[test]
fn both_formats_hold_the_same_panels() {
    for board in boards() {
        let resource = board.v2();
        let spec = &resource.spec;
        assert_eq!(resource.metadata.name, board.classic.uid);
        let places = spec.layout.spec.rows.iter().flat_map(|row| &row.spec.layout.spec.items);
        let placed: Vec<&String> = places.map(|item| &item.spec.element.name).collect();
        assert_eq!(placed.len(), spec.elements.len());
        for (slug, panel) in placed.into_iter().map(|slug| (slug, &spec.elements[slug].spec)) {
            assert_eq!(board.slugs().get(&panel.id), Some(slug));
            let flat = board.classic.panels.iter();
            let classic = flat
                .flat_map(|p| std::iter::once(p).chain(p.children()))
                .find(|p| p.common().id == panel.id)
                .expect("the same ids");
            let common = classic.common();
            assert_eq!(common.title, panel.title);
            let queries = panel.data.spec.queries.iter().map(|query| &query.spec);
            let asked: Vec<_> = queries.map(|q| (&q.ref_id, &q.query.spec.expr)).collect();
            let targets: Vec<_> = common.targets.iter().map(|t| (&t.ref_id, &t.expr)).collect();
            assert_eq!(asked, targets);
            assert!(panel.data.spec.queries.iter().all(|q| {
                q.spec.query.datasource.name == "${datasource}"
                    && q.spec.query.group == "prometheus"
            }));
        }
        assert_eq!(spec.variables.len(), board.classic.templating.list.len());
        assert_eq!(spec.annotations.len(), board.classic.annotations.list.len());
    }
}

#[test]
fn places_are_counted_from_the_top_of_their_section() {
    for board in boards() {
        for row in board.v2().spec.layout.spec.rows {
            let items = &row.spec.layout.spec.items;
            assert!(items.iter().any(|item| item.spec.y == 0), "{}", row.spec.title);
            assert!(items.iter().all(|item| item.spec.x + item.spec.width <= 24));
        }
    }
}

#[test]
fn unknown_fields_and_words_are_refused() {
    let text = canonical_json(&boards()[0].v2());
    for (right, wrong) in [
        ("\"kind\": \"QueryGroup\"", "\"kind\": \"QueryGrop\""),
        ("\"cursorSync\": \"Crosshair\"", "\"cursorSync\": \"Cross\""),
        ("\"collapse\"", "\"collapsed\""),
        ("\"onTimeRangeChanged\"", "\"always\""),
        ("\"legendFormat\"", "\"legend\""),
    ] {
        assert!(text.contains(right), "{right}");
        let broken = text.replacen(right, wrong, 1);
        assert!(serde_json::from_str::<Resource>(&broken).is_err(), "{wrong}");
    }
}
