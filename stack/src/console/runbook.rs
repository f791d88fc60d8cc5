//! The alerts' runbook as a page: headings get their anchors, all else stays text.

/// Where panels point to; the same address as in Grafana.
pub(super) const PATH: &str = dashboards::links::RUNBOOK;

const TEXT: &str = include_str!("../../../prometheus/runbook.md");

/// The page.
pub(super) fn html() -> String {
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>Runbook · Sightline</title><link rel=\"stylesheet\" href=\"/css/theme.css\">\
         <link rel=\"stylesheet\" href=\"/css/runbook.css\"></head><body><main>\n",
    );
    for block in TEXT.split("\n\n").map(|block| escape(block.trim())) {
        if let Some(title) = block.strip_prefix("## ") {
            page += &format!("<h2 id=\"{title}\">{title}</h2>\n");
        } else if let Some(title) = block.strip_prefix("# ") {
            page += &format!("<h1>{title}</h1>\n");
        } else {
            page += &format!("<p>{}</p>\n", strong(&block));
        }
    }
    page + "</main></body></html>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// `**words**` in bold.
fn strong(text: &str) -> String {
    let parts = text.split("**").enumerate();
    parts
        .map(|(at, part)| if at % 2 == 1 { format!("<b>{part}</b>") } else { part.to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_of_a_board_ends_at_a_heading() {
        let page = html();
        let mut links = 0;
        for board in crate::console::board_texts() {
            let text = std::str::from_utf8(&board).expect("boards are UTF-8");
            for link in text.split('"').filter(|text| text.starts_with(PATH)) {
                let anchor = link.split('#').nth(1).expect("a link to a section");
                assert!(page.contains(&format!("<h2 id=\"{anchor}\">")), "{link}");
                links += 1;
            }
        }
        assert!(links > 0, "no board links the runbook");
    }
}
