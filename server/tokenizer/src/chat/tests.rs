use serde_json::json;

use super::functions::strftime;
use super::{ChatTemplate, RenderOptions, without_generation_tags};
use crate::error::TemplateError;
use crate::tokenizer::{SpecialToken, SpecialTokens};

fn special() -> SpecialTokens {
    let token = |text: &str| Some(SpecialToken { text: text.to_owned(), id: None });
    SpecialTokens { bos: token("<s>"), eos: token("</s>"), pad: None, unk: None }
}

fn render_with(source: &str, options: &RenderOptions) -> Result<String, TemplateError> {
    let messages = [
        json!({"role": "user", "content": " Hi there "}),
        json!({"role": "assistant", "content": null}),
    ];
    ChatTemplate::new(source, &special())?.render(&messages, options)
}

fn render(source: &str) -> String {
    render_with(source, &RenderOptions::default()).expect("renders")
}

#[test]
fn blocks_leave_no_lines_behind() {
    let source = "{{ bos_token }}\n  {% for m in messages %}\n[{{ m.role }}]\n  {% endfor %}\n";
    assert_eq!(render(source), "<s>\n[user]\n[assistant]\n");
}

#[test]
fn python_methods_and_filters_work() {
    assert_eq!(render("{{ messages[0].content.strip() }}"), "Hi there");
    assert_eq!(render("{{ messages[0]['content'] | trim | length }}"), "8");
    assert_eq!(render("{{ 'a,b'.split(',')[1] ~ 'ab'.startswith('a') }}"), "bTrue");
    assert_eq!(render("{{ 'x</think>y'.split('</think>')[-1].lstrip('\\n') }}"), "y");
    assert_eq!(render("{{ {'a': 1}.items() | list | length }}{{ messages[1].content }}"), "1None");
    assert_eq!(render("{{ messages[::-1][0].role }}"), "assistant");
    assert_eq!(render("{{ messages | map(attribute='role') | join('+') }}"), "user+assistant");
}

#[test]
fn namespaces_macros_and_loop_controls_work() {
    let source = "{% set ns = namespace(n=0) %}{% for m in messages %}\
        {% if m.role == 'assistant' %}{% break %}{% endif %}{% set ns.n = ns.n + 1 %}\
        {% endfor %}{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice(ns.n) }}";
    assert_eq!(render(source), "11");
    let tagged = "{%- generation -%} a {%- endgeneration %}{% generation %}b{% endgeneration %}";
    assert_eq!(render(tagged), "ab");
    assert_eq!(without_generation_tags("{% x %}{{ y }}{% z"), "{% x %}{{ y }}{% z");
}

#[test]
fn absent_variables_are_undefined_and_tools_are_none() {
    let source = "{{ enable_thinking is defined }},{{ tools is none }},{{ tools is defined }},\
        {{ documents is none }},{% if enable_thinking is defined and enable_thinking is false %}\
        off{% endif %}{{ nothing }}";
    assert_eq!(render(source), "False,True,True,True,");
    let kwargs = json!({"enable_thinking": false}).as_object().cloned().expect("an object");
    let options = RenderOptions { kwargs, ..RenderOptions::default() };
    assert_eq!(render_with(source, &options).expect("renders"), "True,True,True,True,off");
}

#[test]
fn arguments_of_the_request_cannot_replace_the_conversation() {
    let kwargs = json!({"messages": [], "bos_token": "B"}).as_object().cloned().expect("object");
    let options = RenderOptions { kwargs, ..RenderOptions::default() };
    let text = render_with("{{ bos_token }}{{ messages | length }}", &options);
    assert_eq!(text.expect("renders"), "B2");
}

#[test]
fn json_is_written_as_python_writes_it() {
    let tools = json!([{"name": "f<", "args": {"b": [1, 2.5, true], "a": null}, "text": "é'"}]);
    let options = RenderOptions { tools: Some(tools), ..RenderOptions::default() };
    let text = render_with("{{ tools[0].args.b | tojson }} {{ tools | tojson }}", &options);
    let text = text.expect("renders");
    assert!(text.starts_with("[1, 2.5, true] [{\""), "{text}");
    assert!(text.contains("\"f<\"") && text.contains("\"é'\""), "{text}");
    let indented = render_with("{{ tools[0].args.b | tojson(indent=4) }}", &options);
    assert_eq!(indented.expect("renders"), "[\n    1,\n    2.5,\n    true\n]");
    let usual = "{{ messages[0] | tojson(ensure_ascii=False) }}";
    assert!(render(usual).contains("\"role\": \"user\""));
}

#[test]
fn errors_carry_the_templates_own_message() {
    let error = |source: &str| {
        render_with(source, &RenderOptions::default()).expect_err("the template fails")
    };
    let raised = TemplateError::Raised("roles must alternate".to_owned());
    assert_eq!(error("{{ raise_exception('roles must alternate') }}"), raised);
    let nested = "{% macro m() %}{{ raise_exception('no') }}{% endmacro %}{{ m() }}";
    assert_eq!(error(nested), TemplateError::Raised("no".to_owned()));
    assert!(matches!(error("{% if %}"), TemplateError::Syntax(_)));
    assert!(matches!(error("{{ messages[0].content + 1 }}"), TemplateError::Render(_)));
    assert!(matches!(error("{{ a.b.c }}"), TemplateError::Render(_)));
    let deep = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    assert!(matches!(error(deep), TemplateError::Render(_)));
}

#[test]
fn dates_are_utc_and_of_the_time_given() {
    let now = 1_709_208_249.5; // 2024-02-29 12:04:09
    let check = |format: &str, expect: &str| {
        assert_eq!(strftime(now, format).expect("supported"), expect);
    };
    check("%d %b %Y", "29 Feb 2024");
    check("%A, %B %-d, %Y", "Thursday, February 29, 2024");
    check("%F %T %I%p 100%%", "2024-02-29 12:04:09 12PM 100%");
    assert_eq!(strftime(0.0, "%a %F").expect("supported"), "Thu 1970-01-01");
    assert_eq!(strftime(951_782_400.0, "%F").expect("supported"), "2000-02-29");
    assert_eq!(strftime(4_102_444_799.0, "%F").expect("supported"), "2099-12-31");
    assert_eq!(strftime(f64::NAN, "%Y").expect("supported"), "1970");
    assert!(strftime(now, "%Q").is_err() && strftime(now, "%").is_err());
    let options = RenderOptions { now_unix: now, ..RenderOptions::default() };
    let text = render_with("{{ strftime_now('%d %b %Y') }}", &options);
    assert_eq!(text.expect("renders"), "29 Feb 2024");
}
