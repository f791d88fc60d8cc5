//! A board that no generator makes: every kind of panel, and everything that can go wrong with one.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::up::Up;
use crate::webdriver::Browser;

/// A panel of the board at `place` (x, y, width, height).
fn panel(id: u32, kind: &str, title: &str, place: [u32; 4], targets: &[Value]) -> Value {
    let [x, y, w, h] = place;
    json!({
        "id": id, "type": kind, "title": title, "targets": targets, "options": {},
        "gridPos": { "x": x, "y": y, "w": w, "h": h },
        "fieldConfig": { "defaults": {}, "overrides": [] },
    })
}

fn now(reference: &str, expr: &str) -> Value {
    json!({ "refId": reference, "expr": expr, "instant": true, "range": false,
        "format": "table", "legendFormat": "{{job}}" })
}

fn over(reference: &str, expr: &str) -> Value {
    json!({ "refId": reference, "expr": expr, "legendFormat": "{{job}}" })
}

/// Bars of made-up counts by code and by job: numbers as names, out of order.
fn bars() -> Vec<Value> {
    let counts = "label_replace(vector(3), \"code\", \"200\", \"\", \"\")
        or label_replace(vector(7), \"code\", \"1000\", \"\", \"\")
        or label_replace(vector(5), \"code\", \"30\", \"\", \"\")";
    let convert = |kind: &str| {
        json!({ "id": "convertFieldType", "options":
            { "conversions": [{ "targetField": "code", "destinationType": kind }], "fields": {} } })
    };
    let mut sorted = panel(1, "barchart", "Bars by code", [0, 0, 8, 8], &[now("A", counts)]);
    sorted["options"] = json!({ "orientation": "vertical", "xField": "code", "showValue": "always",
        "legend": { "showLegend": true, "displayMode": "list", "calcs": [] } });
    sorted["transformations"] = json!([
        convert("number"),
        { "id": "sortBy", "options":
            { "fields": {}, "sort": [{ "field": "code", "desc": false }] } },
        convert("string"),
        { "id": "organize", "options":
            { "excludeByName": { "Time": true }, "renameByName": { "Value": "answers" } } },
    ]);
    let matrix = json!([{ "id": "groupingToMatrix", "options": { "columnField": "job",
        "rowField": "instance", "valueField": "Value", "emptyValue": "null" } }]);
    let mut lying = panel(2, "barchart", "Lying bars", [8, 0, 8, 8], &[now("A", "up")]);
    lying["options"] = json!({ "orientation": "horizontal", "stacking": "percent",
        "legend": { "showLegend": true, "displayMode": "list", "calcs": [] } });
    lying["transformations"] = matrix;
    vec![sorted, lying]
}

/// Lines of two queries that belong together, judged by a threshold, and a series with a link.
fn tables() -> Vec<Value> {
    let queries = [now("A", "sum by (job) (up * 2)"), now("B", "sum by (job) (up * 0.004)")];
    let mut table = panel(3, "table", "Lines", [16, 0, 8, 8], &queries);
    table["transformations"] = json!([{ "id": "merge", "options": {} }, { "id": "organize",
        "options": { "excludeByName": { "Time": true },
            "renameByName": { "Value #A": "Twice", "Value #B": "Took", "job": "Job" } } }]);
    table["fieldConfig"]["overrides"] = json!([{ "matcher": { "id": "byName", "options": "Took" },
        "properties": [
            { "id": "unit", "value": "s" },
            { "id": "thresholds", "value": { "mode": "absolute", "steps": [
                { "color": "green", "value": null }, { "color": "red", "value": 0.001 }] } },
            { "id": "custom.cellOptions", "value": { "type": "color-text" } },
        ] }]);
    let mut linked =
        panel(4, "timeseries", "A series with a link", [0, 8, 12, 8], &[over("A", "up * 2")]);
    linked["options"] = json!({ "tooltip": { "mode": "multi" }, "legend": { "showLegend": true,
        "displayMode": "table", "calcs": ["lastNotNull", "max"] } });
    linked["fieldConfig"]["defaults"] = json!({ "unit": "s", "links": [{
        "title": "Only ${__field.labels.job}",
        "url": "/d/sightline-overview?${__url_time_range}&var-job=${__field.labels.job}" }] });
    vec![table, linked]
}

/// What cannot be drawn, or only in part.
fn failing() -> Vec<Value> {
    let mut text = panel(9, "text", "Words", [12, 16, 12, 6], &[]);
    text["options"] = json!({ "content": "## Gap\n\nNo signal for $job.\n\n- one `code`" });
    vec![
        panel(5, "timeseries", "Wrong", [12, 8, 12, 8], &[over("A", "sum(rate(up)")]),
        panel(6, "piechart", "Unknown", [0, 16, 6, 6], &[now("A", "up")]),
        panel(7, "timeseries", "In part", [6, 16, 6, 6], &[over("A", "up"), over("B", "up{")]),
        panel(8, "stat", "Nothing", [0, 22, 6, 6], &[now("A", "no_such_metric")]),
        text,
    ]
}

/// The board.
fn board() -> Value {
    let panels = [bars(), tables(), failing()].concat();
    let many: Vec<String> = (0..40).map(|number| format!("value-{number}")).collect();
    json!({
        "uid": "made-up", "title": "Made up", "panels": panels, "links": [],
        "time": { "from": "now-5m", "to": "now" }, "templating": { "list": [
            { "type": "query", "name": "job", "label": "Job", "multi": true, "includeAll": true,
              "query": { "query": "label_values(up, job)" } },
            { "type": "custom", "name": "many", "query": many.join(","), "multi": true,
              "includeAll": true },
            { "type": "adhoc", "name": "strange" },
        ] },
        "annotations": { "list": [
            { "name": "Targets", "enable": true, "iconColor": "blue", "titleFormat": "Seen",
              "textFormat": "{{job}}", "expr": "up == 1" },
        ] },
    })
}

/// `document`'s panel of that id.
fn of(id: u32) -> String {
    format!("document.querySelector('.panel[data-panel=\"{id}\"]')")
}

/// Opens the board in a page whose server does not have it.
pub(crate) fn shown(browser: &Browser, up: &Up) -> Result<()> {
    browser.go(&format!("{}/?theme=light", up.console))?;
    browser.expect("the home page", "document.querySelectorAll('.card').length > 0")?;
    let board = board();
    browser.run(&format!(
        "const live = window.fetch; const made = JSON.stringify({board});
         window.fetch = (path, options) => String(path).endsWith('/boards/made-up')
           ? Promise.resolve(new Response(made)) : live(path, options);
         const link = document.createElement('a');
         link.href = '/d/made-up?refresh=1s'; document.body.append(link); link.click();
         return null"
    ))?;
    let settled = "document.querySelectorAll('.panel').length === 9
        && [...document.querySelectorAll('.panel')].every(p => p.dataset.state !== 'waiting')";
    browser.expect("the board settles", settled)?;
    let states = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('.panel')].map(
           p => [p.dataset.panel, p.dataset.state]))",
    )?;
    let wanted = json!({ "1": "drawn", "2": "drawn", "3": "drawn", "4": "drawn", "5": "error",
        "6": "unsupported", "7": "drawn", "8": "empty", "9": "drawn" });
    ensure!(states == wanted, "{states}");
    Ok(())
}

/// Each panel shows what its JSON says.
pub(crate) fn panels(browser: &Browser) -> Result<()> {
    let names = browser.run(&format!(
        "return [...{}.querySelectorAll('.chart text')].map(t => t.textContent)",
        of(1)
    ))?;
    let names: Vec<&str> =
        names.as_array().context("texts")?.iter().filter_map(Value::as_str).collect();
    let place = |name: &str| names.iter().rposition(|one| *one == name).context(name.to_owned());
    ensure!(place("30")? < place("200")? && place("200")? < place("1000")?, "{names:?}");
    for (id, what, condition) in [
        (1, "a bar for each value", "node.querySelectorAll('.chart rect').length === 3"),
        (1, "the name of the bars", "/answers/.test(node.innerText)"),
        (2, "bars of two jobs", "node.querySelectorAll('.chart rect').length === 2"),
        (2, "shares", "/100%/.test(node.querySelector('.chart svg').textContent)"),
        (3, "a line for each job", "node.querySelectorAll('tbody tr').length === 2"),
        (3, "values with their unit", "/4 ms/.test(node.querySelector('tbody').innerText)"),
        (
            3,
            "a value that is judged",
            "getComputedStyle([...node.querySelectorAll('td')].find(
               c => /4 ms/.test(c.innerText))).color === 'rgb(242, 73, 92)'",
        ),
        (
            5,
            "why it failed, and the query",
            "/parse error/.test(node.innerText)
            && /sum\\(rate\\(up\\)/.test(node.innerText) && node.querySelector('button.button')",
        ),
        (6, "what it cannot draw", "/piechart/.test(node.innerText)"),
        (7, "what it could draw, with a warning", "!node.querySelector('.partial').hidden"),
        (8, "that there is nothing", "/No data/.test(node.innerText)"),
        (9, "words with the choice in them", "/No signal for All/.test(node.innerText)"),
    ] {
        let expression = format!("(() => {{ const node = {}; return {condition}; }})()", of(id));
        browser.expect(what, &expression)?;
    }
    let strange = "/strange/.test(document.querySelector('.tools').innerText)";
    browser.expect("a variable of an unknown kind is said", strange)
}

/// The legend sorts; a click in a plot keeps the tooltip with the link of the series.
pub(crate) fn legend_and_links(browser: &Browser) -> Result<()> {
    let heading = format!("[...{}.querySelectorAll('.legend th button')][2]", of(4));
    browser.run(&format!("{heading}.click(); return null"))?;
    let sorted = format!("{}.querySelector('.legend th[aria-sort=descending]')", of(4));
    browser.expect("the legend is sorted", &sorted)?;
    browser.drag(&format!("{}.querySelector('.u-over')", of(4)), &[(0.98, 0.4)])?;
    let pinned = "/^Only sightline-/.test(document.querySelector('.tip.pinned a').innerText)";
    browser.expect("the tooltip stays, with the link of the series", pinned)?;
    let marked = "/Seen/.test(document.querySelector('.tip').innerText)";
    browser.expect("the mark is told", marked)?;
    let address = "/^\\/d\\/sightline-overview\\?from=now-5m&to=now&var-job=sightline-/.test(
        document.querySelector('.tip.pinned a').getAttribute('href'))";
    browser.expect("the link names the range and the job", address)?;
    browser.run("document.querySelector('.tip.pinned a').click(); return null")?;
    browser.expect("the link leads on", "location.pathname === '/d/sightline-overview'")
}

/// A long list is searched, and one of it chosen alone.
pub(crate) fn picker(browser: &Browser) -> Result<()> {
    browser.run("document.querySelector('[data-variable=many] summary').click(); return null")?;
    browser
        .expect("the search has the focus", "document.activeElement.matches('.menu .search')")?;
    browser.keys("value-3")?;
    let found = "document.querySelectorAll('[data-variable=many] .item').length === 11";
    browser.expect("eleven are found", found)?;
    browser.keys(crate::webdriver::ENTER)?;
    browser.expect("the first is chosen", "/var-many=value-3(&|$)/.test(location.search)")?;
    let chip = "document.querySelector('[data-variable=many] .chip').innerText === 'value-3'";
    browser.expect("the chip says so", chip)?;
    browser.keys(crate::webdriver::ESCAPE)?;
    browser.expect("Escape closes it", "!document.querySelector('[data-variable=many]').open")
}
